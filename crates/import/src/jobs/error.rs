//! [`JobError`]: why the board refuses a request. [`DefinitionError`]: why a definition of a job is wrong.

use super::board::JOBS_MAX;
use super::definition::{EVERY_MIN, JITTER_DAYS_MAX, KEYS, NAME_BYTES_MAX, OPTIONS_MAX};
use crate::filter::SizeError;

/// Why the board refuses a request about a job. A refused request changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// No job has this name.
    #[error("there is no job {0:?}")]
    NoJob(String),
    /// Another job imports into the dataset. Two jobs may not import into one dataset.
    #[error("the dataset {dataset:?} already belongs to the job {job:?}: choose another dataset with into")]
    Taken {
        /// The job that imports into the dataset.
        job: String,
        /// The dataset.
        dataset: String,
    },
    /// The board has no room for another job.
    #[error("there are {JOBS_MAX} jobs already")]
    Full,
}

/// Why a definition of a job is wrong. The text names the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The definition is no object.
    #[error("expected an object of JSON")]
    NoObject,
    /// A key is unknown.
    #[error("{key:?} is not a key of a job: expected one of {}", KEYS.join(", "))]
    Key {
        /// The key.
        key: String,
    },
    /// A required key is missing.
    #[error("{key} is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The value of a key is not a string, or an empty string.
    #[error("{key}: expected a text")]
    Text {
        /// The key.
        key: &'static str,
    },
    /// The name of the job is too long, has a character that is not allowed, or means another path in a URL.
    #[error(
        "name {0:?}: expected up to {NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores, and not \".\" or \"..\""
    )]
    Name(String),
    /// The source looks like an option.
    #[error("source {0:?}: a source cannot begin with a hyphen")]
    Source(String),
    /// A job has both a server and another sink.
    #[error("give server or to, not both")]
    Destinations,
    /// A job has both an interval (`every`) and a time (`cron`).
    #[error("give every or cron, not both")]
    Times,
    /// The value of a key is no length of time.
    #[error("{key} {value:?}: expected a number and ms, s, m, h or d, for example 10m")]
    Duration {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// The value of `cron` has too few or too many fields.
    #[error("cron {0:?}: expected five fields, such as \"30 4 * * 1-5\"")]
    CronFields(String),
    /// A field of `cron` is wrong, or the time never comes.
    #[error("cron {value:?}: {}", why.trim_end_matches('.'))]
    Cron {
        /// The value.
        value: String,
        /// What is wrong: the library's error text.
        why: String,
    },
    /// The source cannot be watched.
    #[error("watch: only a folder can be watched, not {0:?}")]
    Watch(String),
    /// The priority is no number.
    #[error("priority: expected a number from {} to {}", i32::MIN, i32::MAX)]
    Priority,
    /// The rate is no size.
    #[error("rate: {0}")]
    Rate(SizeError),
    /// The rate is 0.
    #[error("rate: expected at least 1 byte a second")]
    ZeroRate,
    /// The interval is too short.
    #[error("every: expected at least {} ms", EVERY_MIN.as_millis())]
    TooOften,
    /// The delay is too long.
    #[error("jitter: expected at most {JITTER_DAYS_MAX}d")]
    Jitter,
    /// `strand import` does not accept the options. The text says why.
    #[error("options: {0}")]
    Import(String),
    /// The options are not a list of strings, or the list is too long.
    #[error("options: expected a list of texts, up to {OPTIONS_MAX} of them")]
    Options,
    /// A job may not have this option.
    #[error("options: {0} is not for jobs")]
    Refused(String),
}
