//! The rows of group server.

use crate::spec::CommandSpec;

/// Group server, by name.
pub(crate) static SERVER: &[CommandSpec] = &[];
