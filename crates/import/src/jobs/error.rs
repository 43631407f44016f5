//! [`JobError`]: why the board or a definition refuses.

use super::board::JOBS_MAX;

/// Why a job is not as it was asked for. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// No job has this name.
    #[error("there is no job {0:?}")]
    NoJob(String),
    /// Two jobs may not fill one dataset.
    #[error("the job {job:?} fills the dataset {dataset:?} already")]
    Taken {
        /// The job that fills the dataset already.
        job: String,
        /// The dataset.
        dataset: String,
    },
    /// The board has no room for another job.
    #[error("there are {JOBS_MAX} jobs already")]
    Full,
    /// The definition is wrong. The text names the key.
    #[error("{0}")]
    Definition(String),
}
