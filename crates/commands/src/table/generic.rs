//! The rows of group generic.

use crate::spec::CommandSpec;

/// Group generic, by name.
pub(crate) static GENERIC: &[CommandSpec] = &[];
