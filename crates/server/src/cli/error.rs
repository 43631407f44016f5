//! [`CliError`]: why `strand bundle` and `strand profile` fail.

use crate::bundle::archive::BundleError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use strand_import::ImportError;

/// Why `strand bundle` or `strand profile` fails.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server cannot be reached, or refuses a command.
    #[error(transparent)]
    Server(#[from] ImportError),
    /// The file cannot be written.
    #[error("cannot write {path}: {error}", path = path.display())]
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
    #[error("{path}: the manifest's digest is {digest}", path = path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// The digest of the bundle.
        digest: String,
    },
    /// The bundle has no entry of this name.
    #[error("there is no entry {0:?}: without --entry all names are listed")]
    NoEntry(String),
    /// The console listens on this machine alone.
    #[error("{0}: only an address of this machine is listened at")]
    NotLocal(SocketAddr),
    /// The address of the console cannot be used.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
}
