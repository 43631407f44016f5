//! [`ServiceError`]: why the service for jobs cannot start.

use super::config::JobsFileError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use strand_import::jobs::JobError;

/// Why the service for jobs cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The file of the jobs cannot be used.
    #[error(transparent)]
    Config(#[from] JobsFileError),
    /// A job of the file conflicts with another job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The folder of the state, or a file in it, cannot be used.
    #[error("{path}: {error}", path = path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another service uses the folder of the state.
    #[error(
        "{folder}: another `strand jobs serve` uses this folder: choose another `state`",
        folder = folder.display()
    )]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// The saved state of the jobs is damaged.
    #[error(
        "{path} is damaged: {error}. Restore a backup. Or delete the file, and add again the jobs that `strand jobs add` \
         had added",
        path = path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// The program that runs the jobs is not found.
    #[error("cannot find the program of this service: {0}")]
    Program(io::Error),
    /// The address of the service cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
}
