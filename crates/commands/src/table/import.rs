//! The rows of group import.

use crate::spec::CommandSpec;

/// Group import, by name.
pub(crate) static IMPORT: &[CommandSpec] = &[];
