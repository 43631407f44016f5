//! Reads one document completely, in one version, or fails.
//!
//! [`read`] compares the object's [`Stat`] before and after the read. If they differ, the object was written during the
//! read, and it is read once more. If they differ again, the read fails. If the caller does not want the whole object,
//! only its beginning is read.

use super::{Object, ReadError, Stat};
use std::io;

/// Number of bytes at the beginning that decide whether the whole file is read.
pub const BEGINNING_BYTES: u64 = 64 * 1024;
/// Maximum number of times that an object is read if it changes during each read.
pub const READS_MAX: usize = 2;
/// The buffer keeps this number of bytes of capacity from one read to the next.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Size and token of the version that was read.
    pub stat: Stat,
    /// False when only the beginning of the object was wanted.
    pub whole: bool,
}

/// Clears `buffer`, opens an object by `open`, and reads the object into `buffer`. `want_rest` gets the beginning and
/// the size of the object, and decides whether the rest is read.
///
/// # Errors
/// [`ReadError`].
pub fn read(
    mut open: impl FnMut() -> Result<Box<dyn Object>, ReadError>,
    buffer: &mut Vec<u8>,
    mut want_rest: impl FnMut(&[u8], u64) -> bool,
) -> Result<ReadDone, ReadError> {
    for _ in 0..READS_MAX {
        buffer.clear();
        buffer.shrink_to(BUFFER_BYTES_KEPT);
        let object = open()?;
        let before = object.stat()?;
        // Try to read one byte more than the size: the byte shows that the object is longer than its size. The bound
        // also ends the read of an object that grows without end. Some files have the size 0 although they have bytes.
        let more = u64::from(!object.is_exact());
        let expected = if before.size == 0 { BEGINNING_BYTES } else { before.size.saturating_add(more) };
        append(&*object, buffer, expected.min(BEGINNING_BYTES))?;
        let whole = want_rest(buffer, before.size);
        if whole && buffer.len() as u64 == BEGINNING_BYTES {
            append(&*object, buffer, expected.saturating_sub(BEGINNING_BYTES))?;
        }
        let after = object.stat()?;
        let same = before.token == after.token && before.size == after.size;
        if same && (!whole || buffer.len() as u64 == before.size) {
            return Ok(ReadDone { stat: after, whole });
        }
    }
    Err(ReadError::Changing)
}

/// Appends up to `bytes` bytes of the object to `buffer`, from the offset `buffer.len()` on.
fn append(object: &dyn Object, buffer: &mut Vec<u8>, bytes: u64) -> io::Result<()> {
    let end = buffer.len() + usize::try_from(bytes).unwrap_or(usize::MAX - buffer.len());
    while buffer.len() < end {
        let at = buffer.len();
        // The buffer grows as bytes arrive, so a wrong size allocates nothing.
        buffer.resize(end.min(at + BEGINNING_BYTES as usize), 0);
        let got = object.read_at(at as u64, &mut buffer[at..]);
        buffer.truncate(at + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// An object that changes at each of the first `changes` reads of its beginning.
    struct Changing<'a> {
        bytes: Vec<u8>,
        version: &'a Cell<u8>,
        changes: u8,
    }

    impl Object for Changing<'_> {
        fn stat(&self) -> io::Result<Stat> {
            Ok(Stat { size: self.bytes.len() as u64, token: vec![self.version.get()], is_young: false })
        }
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            if offset == 0 && self.version.get() < self.changes {
                self.version.set(self.version.get() + 1);
            }
            let rest = &self.bytes[(offset as usize).min(self.bytes.len())..];
            let len = rest.len().min(into.len()).min(1000);
            into[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    fn read_changing(len: usize, changes: u8, whole: bool) -> (Result<ReadDone, ReadError>, Vec<u8>, usize) {
        let version: &'static Cell<u8> = Box::leak(Box::new(Cell::new(0)));
        let (mut buffer, mut opened) = (vec![9; 5], 0);
        let open = || {
            opened += 1;
            Ok(Box::new(Changing { bytes: vec![b'x'; len], version, changes }) as Box<dyn Object>)
        };
        let done = read(open, &mut buffer, |_, _| whole);
        (done, buffer, opened)
    }

    #[test]
    fn reads_all_or_the_beginning() {
        let long = BEGINNING_BYTES as usize * 2 + 7;
        let (done, buffer, _) = read_changing(long, 0, true);
        assert!(done.unwrap().whole && buffer == vec![b'x'; long]);
        let (done, buffer, _) = read_changing(long, 0, false);
        assert!(!done.unwrap().whole && buffer.len() as u64 == BEGINNING_BYTES);
    }

    #[test]
    fn an_object_that_changes_once_is_read_again_and_then_given_up() {
        let (done, buffer, opened) = read_changing(6, 1, true);
        assert_eq!((done.unwrap().stat.token, buffer.len(), opened), (vec![1], 6, 2));
        let (done, _, opened) = read_changing(6, 2, true);
        assert!(matches!(done, Err(ReadError::Changing)) && opened == READS_MAX);
    }
}
