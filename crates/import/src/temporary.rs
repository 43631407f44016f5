//! [`TemporaryFile`]: a file for data that does not fit the memory of a run. The file has no name, so nothing is left of a run
//! that is killed.
//!
//! The errors are `io::Error`, as those of the source beside which the file is used. [`is_fault_of`] tells them apart.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file in the folder for temporary files (`TMPDIR`, `/tmp` without this variable).
#[derive(Debug)]
pub(crate) struct TemporaryFile(File);

/// What the errors of a [`TemporaryFile`] contain.
#[derive(Debug, thiserror::Error)]
#[error("cannot use a temporary file in {}: {error}. TMPDIR names another folder", folder.display())]
struct TemporaryError {
    folder: PathBuf,
    error: io::Error,
}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), TemporaryError { folder: std::env::temp_dir(), error })
}

impl TemporaryFile {
    /// An empty file.
    pub(crate) fn new() -> io::Result<TemporaryFile> {
        tempfile::tempfile().map(TemporaryFile).map_err(named)
    }
    /// Writes `bytes` at the offset.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset).map_err(named)
    }
    /// Fills `into` from the offset on.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(into, offset).map_err(named)
    }
    /// Reads from the offset on. Returns the number of bytes, 0 at the end of the file.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset).map_err(named)
    }
}

/// True for an error of a [`TemporaryFile`], which is no fault of the source.
#[must_use]
pub fn is_fault_of(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<TemporaryError>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_folder_and_are_told_apart() {
        let file = TemporaryFile::new().expect("room in the folder for temporary files");
        file.write_all_at(b"bytes", 3).expect("room");
        let mut into = [0; 5];
        file.read_exact_at(&mut into, 3).expect("the file has them");
        assert_eq!(&into, b"bytes");
        assert_eq!(file.read_at(&mut into, 8).expect("the end"), 0);
        let error = file.read_exact_at(&mut into, 100).expect_err("behind the end");
        let text = error.to_string();
        assert!(text.starts_with("cannot use a temporary file in /") && text.contains("TMPDIR"), "{text}");
        assert!(is_fault_of(&error) && !is_fault_of(&io::Error::other("x")));
    }
}
