//! Jobs: imports that are run again and again, many of them within one budget of memory.
//!
//! A [`definition`] says what a job does and when; [`schedule`] tells the moment; [`ledger`] is the budget; [`board`] decides, from all
//! of these, who starts, who gets memory and who waits. Nothing here knows processes, sockets, files or clocks: time is an
//! argument, and what is to be done comes out as [`board::Action`]s.

pub mod board;
pub mod definition;
mod error;
pub mod ledger;
pub mod schedule;

pub use board::{Action, Board, Report, Work};
pub use definition::Definition;
pub use error::JobError;
pub use ledger::Ledger;
