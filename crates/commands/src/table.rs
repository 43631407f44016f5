//! The table itself: [`COMMANDS`], gathered from the families. STARTING VERSION.

use crate::spec::CommandSpec;

/// Every top-level command, sorted by name.
pub static COMMANDS: &[CommandSpec] = &[];
