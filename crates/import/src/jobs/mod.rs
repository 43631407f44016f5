//! Jobs: imports that run repeatedly, several at the same time within one memory budget.
//!
//! A [`definition`] says what a job imports and when. [`schedule`] computes the next time of a job, and [`ledger`] is
//! the memory budget. [`board`] decides which job starts, gets memory or waits. This module knows no processes,
//! sockets, files or clocks: time is an argument, and the results are [`board::Action`]s for the service.

pub mod board;
pub mod definition;
mod error;
pub mod ledger;
pub mod schedule;

pub use board::{Action, Board, RunReport, Work, without_password};
pub use definition::{Definition, is_name};
pub use error::{DefinitionError, JobError};
pub use ledger::Ledger;
