//! The rows of group search.

use crate::spec::CommandSpec;

/// Group search, by name.
pub(crate) static SEARCH: &[CommandSpec] = &[];
