//! What is wrong with a value or with a line of a configuration. The texts about values are redis-server's.

use super::load::{FILES_MAX, INCLUDE_DEPTH_MAX};
use super::special::{LOG_LEVELS, SAVE_POINTS_MAX};

/// Why CONFIG SET failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// There is no such option.
    #[error("there is no option {}", .0.escape_ascii())]
    Unknown(Vec<u8>),
    /// The option cannot have this value.
    #[error("{}: {reason}", name.escape_ascii())]
    Refused {
        /// The option as the client named it.
        name: Vec<u8>,
        /// Why the option keeps its value.
        reason: SetRefusal,
    },
}

/// The error, and what the option takes. A full stop at the end of redis-server's texts is dropped before the rest.
fn expecting(error: &ValueError, takes: Option<&str>) -> String {
    let error = error.to_string();
    match takes {
        Some(takes) => format!("{}; it takes {takes}", error.trim_end_matches('.')),
        None => error,
    }
}

/// Why CONFIG SET does not set an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetRefusal {
    /// The option is read only at the start.
    #[error("can't set immutable config")]
    Immutable,
    /// `enable-protected-configs` keeps the client from setting this option.
    #[error("can't set protected config")]
    Protected,
    /// The command names the option twice.
    #[error("duplicate parameter")]
    Duplicate,
    /// The words are no value of the option.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Why words are no value of their option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Each text says what its variant is.
pub enum ValueError {
    #[error("wrong number of arguments")]
    WordCount,
    #[error("argument couldn't be parsed into an integer")]
    NotAnInteger,
    #[error("argument must be between {min} and {max} inclusive")]
    OutOfRange { min: i64, max: i64 },
    #[error("argument couldn't be parsed as an octal number")]
    NotOctal,
    #[error("argument must be between {min:o} and {max:o} inclusive")]
    OutOfOctalRange { min: i64, max: i64 },
    #[error("argument must be a memory value")]
    NotMemory,
    #[error("argument must be a memory or percent value")]
    NotMemoryOrPercent,
    #[error("percentage argument must be less or equal to 100")]
    PercentTooLarge,
    #[error("argument must be 'yes' or 'no'")]
    NotBool,
    #[error("argument(s) must be one of the following: {}", .0.join(", "))]
    NotOneOf(&'static [&'static str]),
    #[error("shutdown options SAVE and NOSAVE can't be used simultaneously")]
    SaveAndNoSave,
    #[error("Wrong number of arguments in buffer limit configuration.")]
    BufferLimitWordCount,
    #[error("Invalid client class specified in buffer limit configuration.")]
    BufferLimitClass,
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    BufferLimitNumbers,
    #[error("Invalid save parameters")]
    SavePoints,
    #[error("there are more than {SAVE_POINTS_MAX} save points")]
    TooManySavePoints,
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    EventClass,
    #[error("Invalid latency-tracking-info-percentiles parameters")]
    NotAPercentile,
    #[error("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")]
    PercentileOutOfRange,
    #[error("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")]
    OomScore,
    #[error("Invalid master port")]
    PrimaryPort,
    #[error("argument must be part=level, several with commas, where a level is one of: {}", LOG_LEVELS.join(", "))]
    LogLevels,
    #[error("argument must be an address such as http://HOST:PORT")]
    NotAnHttpAddress,
    #[error("{option} can't be a path, just a {kind}")]
    IsAPath { option: &'static str, kind: &'static str },
    #[error("{0} can't be empty")]
    IsEmpty(&'static str),
}

impl ValueError {
    /// True when the text says which words the option takes.
    pub(super) fn lists_accepted_values(&self) -> bool {
        matches!(self, ValueError::NotBool | ValueError::NotOneOf(_))
    }
}

/// What is wrong with a line of a configuration. Names and lines in the texts are in quotes and bounded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigLineError {
    /// More files are included than may be.
    #[error("more than {FILES_MAX} files are included")]
    TooManyFiles,
    /// The files are nested more deeply than they may be.
    #[error("files are included more than {INCLUDE_DEPTH_MAX} deep")]
    TooDeep,
    /// The line is not text.
    #[error("there is a NUL byte in this line; the file is not a text file")]
    NulByte,
    /// A quote is not closed, or is not followed by a blank. Holds the first word.
    #[error("the quotes do not match in {0}")]
    UnbalancedQuotes(String),
    /// An included file cannot be read. Holds the text of the function that reads the files.
    #[error("{0}")]
    Include(String),
    /// The words are no value of their option.
    #[error("{line}: {}", expecting(error, takes.as_deref()))]
    Value {
        /// The line; for a secret option only its name.
        line: String,
        /// What is wrong with the words.
        error: ValueError,
        /// What the option takes, if the error does not say what.
        takes: Option<String>,
    },
    /// A directive has the wrong number of words.
    #[error("{0}: wrong number of arguments")]
    WordCount(String),
    /// `rename-command`.
    #[error(
        "rename-command is not supported: restrict users with ACL rules instead, for example: user default on nopass \
         ~* &* +@all -config"
    )]
    RenameCommand,
    /// A line for Sentinel.
    #[error("sentinel is an option of Redis Sentinel; Strand is a data server")]
    Sentinel,
    /// There is no such option.
    #[error(
        "there is no option {name}; {}",
        match nearest {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "`strand serve --help` lists the options".into(),
        }
    )]
    UnknownOption {
        /// The option in quotes.
        name: String,
        /// The name of an option that is almost spelled like this one.
        nearest: Option<&'static str>,
    },
}
