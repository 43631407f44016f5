//! The rows of group hash.

use crate::spec::CommandSpec;

/// Group hash, by name.
pub(crate) static HASH: &[CommandSpec] = &[];
