//! [`Folder`]: the files of an append-only file, as the driver keeps them.
//!
//! All names are of files in the one folder. Each method may take a while: none is called on a worker.

use crate::host::{OpenedFile, WriteFile};
use std::io::{self, IoSlice};
use std::sync::Arc;

/// A folder, and the right to write in it: no other server has it.
pub trait Folder: Send + Sync {
    /// Opens a file for reading; `None` when it is not there.
    ///
    /// # Errors
    /// Those of the system; also when it is no regular file.
    fn open(&self, name: &str) -> io::Result<Option<OpenedFile>>;
    /// Puts what `write` writes in the place of a file, in one step and once it is on the disk, the folder too.
    ///
    /// # Errors
    /// Those of the system and of `write`; the file is as it was before.
    fn replace(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()>;
    /// Opens a file for adding to its end; it is made when it is not there.
    ///
    /// # Errors
    /// Those of the system.
    fn append_to(&self, name: &str) -> io::Result<Box<dyn AppendFile>>;
    /// Cuts a file to its first `bytes`.
    ///
    /// # Errors
    /// Those of the system.
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Moves the file of this name from the working folder to here.
    ///
    /// # Errors
    /// Those of the system.
    fn adopt(&self, name: &str) -> io::Result<()>;
}

/// A file that grows.
pub trait AppendFile: Send {
    /// Bytes in it.
    fn bytes(&self) -> u64;
    /// Adds bytes to its end; how many, which may be fewer.
    ///
    /// # Errors
    /// Those of the system; nothing was added.
    fn append(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Cuts it to its first `bytes`.
    ///
    /// # Errors
    /// Those of the system.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// What brings it to the disk, from any thread.
    fn sync_file(&self) -> Arc<dyn SyncFile>;
}

/// A file that somebody else may be adding to.
pub trait SyncFile: Send + Sync {
    /// Back when all that was added before the call is on the disk.
    ///
    /// # Errors
    /// Those of the system: what was added since the last time may be lost, whatever a later call says.
    fn sync(&self) -> io::Result<()>;
}
