//! The rows of group string.

use crate::spec::CommandSpec;

/// Group string, by name.
pub(crate) static STRING: &[CommandSpec] = &[];
