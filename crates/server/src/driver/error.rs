//! [`ServeError`]: why the server cannot start, or had to end.

use super::files;
use super::listen::BindError;
use super::tls::TlsConfigError;
use super::unix_socket::UnixSocketError;
use rustix::io::Errno;
use std::io;
use strand_engine::config::ConfigError;
use strand_engine::{SaveError, StartError};

/// Why the server cannot start, or had to end. The text is for the user, and names its cause.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The working folder cannot be entered.
    #[error("cannot change to the working folder (dir) {dir}: {error}")]
    Folder {
        /// The value of the option `dir`.
        dir: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// An option cannot be set to the value in use.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log file cannot be opened.
    #[error("cannot open the log file {file}: {error}")]
    LogFile {
        /// The value of the option `logfile`.
        file: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// The options of TLS cannot be used.
    #[error("Failed to configure TLS: {0}")]
    Tls(TlsConfigError),
    /// The server cannot listen on an address.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// The server cannot listen on the file of `unixsocket`.
    #[error(transparent)]
    UnixSocket(#[from] UnixSocketError),
    /// The users or the data cannot be loaded.
    #[error("cannot start: {0}")]
    Engine(StartError),
    /// The option `save` cannot be emptied, although another server saves in this folder.
    #[error("cannot start: save \"\": {0}")]
    SavePoints(String),
    /// The server has ended, but the disk did not take the newest writes.
    #[error("stopped, but {0}")]
    Unsaved(SaveError),
    /// The process may open too few files.
    #[error(
        "cannot start: the limit of open files is {has}: raise it to at least {needed} (`ulimit -n`, LimitNOFILE of a systemd \
         unit)"
    )]
    OpenFiles {
        /// The limit.
        has: u64,
        /// A limit that is enough for one client.
        needed: u64,
    },
    /// The operating system refused a thread, a socket or a lock.
    #[error("cannot start: {0}")]
    Io(io::Error),
}

impl ServeError {
    /// Names the limit of open files, if the server has reached it.
    pub(super) fn with_open_files(self, workers: usize) -> ServeError {
        match self {
            ServeError::Io(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                let (has, needed) = files::open_files(workers);
                ServeError::OpenFiles { has, needed }
            }
            other => other,
        }
    }
}

// No `#[from]`: it would make the cause a `source`, and the text already includes the cause.
impl From<StartError> for ServeError {
    fn from(error: StartError) -> ServeError {
        ServeError::Engine(error)
    }
}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> ServeError {
        ServeError::Io(error)
    }
}
