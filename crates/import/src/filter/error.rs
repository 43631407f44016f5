//! [`FilterError`]: which option of a filter is wrong, and why.

use super::{EXCLUDE_FILE_BYTES_MAX, GLOBS_MAX};
use std::io;
use std::path::PathBuf;

/// An option of a filter is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A glob is empty, or begins with gitignore's sign of a negation.
    #[error("{option} {glob:?}: expected a glob that is not empty and does not begin with '!'")]
    EmptyOrNegated {
        /// The option.
        option: &'static str,
        /// The glob.
        glob: String,
    },
    /// A glob has a wrong syntax.
    #[error("{option} {glob:?}: {error}")]
    Glob {
        /// The option.
        option: &'static str,
        /// The glob.
        glob: String,
        /// What is wrong.
        error: ignore::Error,
    },
    /// A file of exclusions cannot be read.
    #[error("--exclude-from {file}: {error}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A file of exclusions is too large.
    #[error("--exclude-from {file}: more than {EXCLUDE_FILE_BYTES_MAX} bytes", file = file.display())]
    FileTooLarge {
        /// The file.
        file: PathBuf,
    },
    /// A line of a file of exclusions has a wrong syntax.
    #[error("--exclude-from {file}, line {line}: {error}", file = file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        error: ignore::Error,
    },
    /// No document can have such a size.
    #[error("--min-size ({least} bytes) is above --max-size ({most} bytes), so no document would be taken")]
    Sizes {
        /// The smallest size in bytes.
        least: u64,
        /// The largest size in bytes.
        most: u64,
    },
    /// There are too many globs, types and lines.
    #[error(
        "--include, --exclude, --type, --type-not and --exclude-from: {found} globs, types and lines together, at \
         most {GLOBS_MAX} are allowed"
    )]
    TooMany {
        /// The number of globs, types and lines.
        found: usize,
    },
    /// There is no file type of this name.
    #[error(
        "{option} {name}: unknown type; expected mail, archive, office, text, or a type that `rg --type-list` shows"
    )]
    UnknownType {
        /// The option.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// The globs and lines of these options cannot be compiled together.
    #[error("{options}: {error}")]
    Build {
        /// The options.
        options: &'static str,
        /// What is wrong.
        error: ignore::Error,
    },
}
