//! The rows of group regex.

use crate::spec::CommandSpec;

/// Group regex, by name.
pub(crate) static REGEX: &[CommandSpec] = &[];
