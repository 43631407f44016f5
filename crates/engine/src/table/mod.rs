//! THE table of all commands. The compiler makes it from the rows of three crates.
//!
//! The rows of commands about the data are in [`strand_commands`]. The rows of commands that a session runs itself are
//! in this crate, beside their handlers. The rows of text search and regular expressions are in [`strand_search`]. A
//! new group is one line in its crate.

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;

use crate::session::SESSION_GROUPS;
use strand_commands::table::{GROUPS, Table};
use strand_commands::{rows, table};

/// The table of every command.
pub static TABLE: Table = table!(&[rows!(GROUPS), rows!(SESSION_GROUPS), rows!(strand_search::GROUPS)]);
