//! [`CliError`]: why `strand bundle` and `strand profile` fail.

use super::access::AccessError;
use crate::bundle::archive::BundleError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use strand_import::ImportError;

/// Why `strand bundle` or `strand profile` fails.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The options for reaching the server are wrong.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// `--seconds` is given for a profile that is not sampled over time.
    #[error("--seconds has no effect here: only a profile of cpu takes time")]
    IdleSeconds,
    /// The server cannot be reached, or refuses a command.
    #[error(transparent)]
    Server(#[from] ImportError),
    /// The file cannot be written.
    #[error("cannot write {path}: {}", why_not_written(error), path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file is no bundle, or was changed.
    #[error("{path}: {error}", path = path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: BundleError,
    },
    /// The bundle is not the one whose digest is known.
    #[error("{path}: the manifest's digest is {digest}, which is not the expected one", path = path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest of the bundle.
        digest: String,
    },
    /// The server refused every command of a bundle.
    #[error("there is nothing to bundle: the user may call none of the commands")]
    NothingToBundle,
    /// The bundle has no entry of this name.
    #[error("the bundle has no entry {0:?}: run without --entry to list all entries")]
    NoEntry(String),
    /// The address of the console is not a loopback address.
    #[error("{0} is not a loopback address: expected one like 127.0.0.1:8379")]
    NotLocal(SocketAddr),
    /// The address of the console cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
}

impl CliError {
    /// The exit code of the process: 2 for wrong usage, else 1.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Access(_) | CliError::IdleSeconds => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

fn why_not_written(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "the file exists; name another file with --output".into(),
        _ => error.to_string(),
    }
}
