//! Reading one document: whole, of one moment, or not at all.
//!
//! [`read`] looks at the file's [`Stamp`] before and after; when they differ the file was written meanwhile and is read
//! once more, and a second time it is given up. Only the beginning is read of a file that is no mail.

use super::Stamp;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Bytes that decide whether a file is mail, and all that is read of one that is not.
pub const BEGINNING_BYTES: u64 = 64 * 1024;
/// Times a file is read that changes while it is read.
pub const READS_MAX: usize = 2;
/// The reading buffer is given back when one message made it larger than this.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Of the moment that the bytes are of.
    pub stamp: Stamp,
    /// False when only the beginning was wanted.
    pub whole: bool,
}

/// Why a document could not be read. Each time the next import tries again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It was listed and is gone.
    #[error("the file vanished during the import")]
    Vanished,
    /// It is no regular file any more.
    #[error("the file became something else during the import")]
    Replaced,
    /// It changed during every read.
    #[error("the file changed while it was read, {READS_MAX} times")]
    Changing,
    /// The system refused.
    #[error("{0}")]
    Io(io::Error),
}

/// Reads `path` into `buffer` (cleared first). `want_rest` is shown the beginning and the size and says whether the rest
/// is wanted.
///
/// # Errors
/// [`ReadError`].
pub fn read(
    path: &Path,
    buffer: &mut Vec<u8>,
    want_rest: impl FnMut(&[u8], u64) -> bool,
) -> Result<ReadDone, ReadError> {
    read_watched(path, buffer, want_rest, || {})
}

/// [`read`], calling `between` after the bytes and before the second look at the stamp: where tests change the file.
fn read_watched(
    path: &Path,
    buffer: &mut Vec<u8>,
    mut want_rest: impl FnMut(&[u8], u64) -> bool,
    mut between: impl FnMut(),
) -> Result<ReadDone, ReadError> {
    for _ in 0..READS_MAX {
        buffer.clear();
        buffer.shrink_to(BUFFER_BYTES_KEPT);
        // Not through a link that took the file's place since it was listed; nor opened when it is a pipe, which waits.
        if !path.symlink_metadata().map_err(read_error)?.is_file() {
            return Err(ReadError::Replaced);
        }
        let mut file = File::open(path).map_err(read_error)?;
        let before = Stamp::of(&file.metadata().map_err(read_error)?);
        file.by_ref().take(BEGINNING_BYTES).read_to_end(buffer).map_err(read_error)?;
        let whole = want_rest(buffer, before.size);
        if whole && buffer.len() as u64 == BEGINNING_BYTES {
            // One byte more than expected shows a file that grew; and no file that grows for ever is read for ever.
            let rest = (before.size + 1).saturating_sub(BEGINNING_BYTES);
            file.by_ref().take(rest).read_to_end(buffer).map_err(read_error)?;
        }
        between();
        let after = Stamp::of(&file.metadata().map_err(read_error)?);
        if before == after && (!whole || buffer.len() as u64 == before.size) {
            return Ok(ReadDone { stamp: before, whole });
        }
    }
    Err(ReadError::Changing)
}

fn read_error(error: io::Error) -> ReadError {
    match error.kind() {
        ErrorKind::NotFound => ReadError::Vanished,
        _ => ReadError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    #[test]
    fn reads_all_or_the_beginning() {
        let dir = TempDir::new("read");
        let long = vec![b'x'; BEGINNING_BYTES as usize * 2 + 7];
        dir.write("long", &long);
        let mut buffer = Vec::new();
        let done = read(&dir.path().join("long"), &mut buffer, |_, _| true).unwrap();
        assert!(done.whole && buffer == long && done.stamp.size == long.len() as u64);
        let done = read(&dir.path().join("long"), &mut buffer, |_, _| false).unwrap();
        assert!(!done.whole && buffer.len() as u64 == BEGINNING_BYTES);
    }

    #[test]
    fn a_file_that_changes_once_is_read_again() {
        let dir = TempDir::new("change");
        dir.write("f", b"first");
        let (path, mut buffer, mut reads) = (dir.path().join("f"), Vec::new(), 0);
        let done = read_watched(
            &path,
            &mut buffer,
            |_, _| true,
            || {
                reads += 1;
                if reads == 1 {
                    dir.write("f", b"second");
                }
            },
        );
        assert_eq!((done.unwrap().stamp.size, &buffer[..], reads), (6, &b"second"[..], 2));
    }

    #[test]
    fn a_file_that_keeps_changing_is_given_up() {
        let dir = TempDir::new("changing");
        dir.write("f", b"1");
        let (path, mut buffer, mut len) = (dir.path().join("f"), Vec::new(), 1);
        let done = read_watched(
            &path,
            &mut buffer,
            |_, _| true,
            || {
                len += 1;
                dir.write("f", &vec![b'1'; len]);
            },
        );
        assert!(matches!(done, Err(ReadError::Changing)));
    }

    #[test]
    fn what_is_gone_or_no_file_is_told_apart() {
        let dir = TempDir::new("gone");
        let mut buffer = Vec::new();
        let gone = read(&dir.path().join("none"), &mut buffer, |_, _| true);
        assert!(matches!(gone, Err(ReadError::Vanished)));
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let link = read(&dir.path().join("link"), &mut buffer, |_, _| true);
        assert!(matches!(link, Err(ReadError::Replaced)));
    }
}
