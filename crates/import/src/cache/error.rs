//! [`CacheError`]: why a cache cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a cache cannot be used. The run goes on without the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    /// The cache cannot be opened.
    #[error("cannot open the cache {folder}: {error}", folder = folder.display())]
    Open {
        /// The folder of the cache.
        folder: PathBuf,
        /// What is wrong.
        error: OpenError,
    },
    /// The index cannot be read or written.
    #[error("cannot read or write the cache's index: {0}")]
    Index(redb::Error),
    /// A file of the cache cannot be written or removed.
    #[error("cannot write to the cache at {path}: {error}", path = path.display())]
    File {
        /// The file, or the folder of the cache.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Why an index cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// Another process, or another cache of this process, has the index open.
    #[error("another run of this source uses this cache")]
    InUse,
    /// The index cannot be read, and no new one can be made in its place.
    #[error(
        "cannot create the cache's index: {0}. You may delete this folder: it holds only data that can be fetched again"
    )]
    Damaged(String),
    /// The operating system refused a call.
    #[error("{0}")]
    Io(io::Error),
}

impl From<redb::DatabaseError> for OpenError {
    fn from(error: redb::DatabaseError) -> OpenError {
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => OpenError::InUse,
            redb::DatabaseError::Storage(redb::StorageError::Io(error)) => OpenError::Io(error),
            error => OpenError::Damaged(error.to_string()),
        }
    }
}
