//! The rows of group connection.

use crate::spec::CommandSpec;

/// Group connection, by name.
pub(crate) static CONNECTION: &[CommandSpec] = &[];
