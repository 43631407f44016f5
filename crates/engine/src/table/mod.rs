//! THE table: every command, made while compiling of the rows of three crates.
//!
//! Commands about the data are rows of [`strand_commands`], those that a session runs itself are rows of this crate (beside their
//! handlers), those of text search and regular expressions are rows of [`strand_search`]. A new group is one line in its crate.

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;

use crate::session::SESSION_GROUPS;
use strand_commands::table::{GROUPS, Table};
use strand_commands::{rows, table};

/// Every command.
pub static TABLE: Table = table!(&[rows!(GROUPS), rows!(SESSION_GROUPS), rows!(strand_search::GROUPS)]);
