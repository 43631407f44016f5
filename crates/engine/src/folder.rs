//! [`Folder`]: the files of an append-only file, kept by the driver.
//!
//! All names are names of files in the folder. All methods may block, so no worker calls them.

use crate::host::{OpenedFile, WriteFile};
use std::io::{self, IoSlice};
use std::sync::Arc;

/// A folder with the exclusive right to write in it.
pub trait Folder: Send + Sync {
    /// Opens a file for reading. `None` when it is missing.
    ///
    /// # Errors
    /// The system's error. Also an error when it is not a regular file.
    fn open(&self, name: &str) -> io::Result<Option<OpenedFile>>;
    /// Replaces a file with the output of `write`, atomically and only after the new content is on the disk. Until the
    /// next [`Folder::sync`] a crash may bring the old file back.
    ///
    /// # Errors
    /// The system's error, or the error of `write`. The old file stays unchanged.
    fn replace(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()>;
    /// Returns when all earlier replacements of files are on the disk.
    ///
    /// # Errors
    /// The system's error. The replaced files stay, and a crash may still bring the old files back.
    fn sync(&self) -> io::Result<()>;
    /// Opens a file for appending. Creates a missing file.
    ///
    /// # Errors
    /// The system's error.
    fn append_to(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;
    /// Cuts a file to its first `bytes`.
    ///
    /// # Errors
    /// The system's error.
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()>;
    /// Removes a file. A missing file is not an error.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Moves the file with this name from the working folder to this folder.
    ///
    /// # Errors
    /// The system's error.
    fn adopt(&self, name: &str) -> io::Result<()>;
}

/// A file open for appending.
pub trait AppendFile: Send {
    /// The file's length in bytes.
    fn bytes(&self) -> u64;
    /// Appends bytes and returns their number, which may be smaller than asked.
    ///
    /// # Errors
    /// The system's error. Nothing was appended.
    fn append(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Cuts the file to its first `bytes`.
    ///
    /// # Errors
    /// The system's error.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// A handle that syncs the file from any thread.
    fn sync_file(&self) -> Arc<dyn SyncFile>;
}

/// Syncs a file while another thread may append to it.
pub trait SyncFile: Send + Sync {
    /// Returns when everything appended before the call is on the disk.
    ///
    /// # Errors
    /// The system's error. Bytes appended since the last sync may then be lost, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;
}
