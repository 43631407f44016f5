//! Jobs: imports that are run again and again, many of them within one budget of memory.
//!
//! A [`definition`] says what a job does and when. [`schedule`] computes its next time, and [`ledger`] is the budget.
//! [`board`] decides from all of these which job starts, gets memory or waits. Nothing here knows processes, sockets,
//! files or clocks: time is an argument, and the results are [`board::Action`]s for the service.

pub mod board;
pub mod definition;
mod error;
pub mod ledger;
pub mod schedule;

pub use board::{Action, Board, Report, Work};
pub use definition::Definition;
pub use error::{DefinitionError, JobError};
pub use ledger::Ledger;
