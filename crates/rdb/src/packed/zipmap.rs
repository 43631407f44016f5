//! Zipmap, the packed hash of Redis 2.4: fields and values alternate, each after its length. Unused bytes may
//! follow a value. Header: count (254 and more: count by walking). End: 0xff.

use super::{PackedEntry, bytes};
use crate::{Error, Result};

const END: u8 = 0xff;
/// The marker for a length of at least this value. The length is then in the four bytes after the marker.
const LONG: u8 = 254;

/// A position in a zipmap.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    value_is_next: bool,
    /// Number of pairs left according to the header; `None` when the header has no count.
    left: Option<u8>,
}

impl Cursor {
    pub(super) fn new(blob: &[u8]) -> Result<Cursor> {
        let [count] = bytes::array(blob, 0)?;
        if blob.last() != Some(&END) || blob.len() < 2 {
            return Err(Error::Corrupt("a zipmap without the end marker 0xff"));
        }
        Ok(Cursor { at: 1, value_is_next: false, left: (count < LONG).then_some(count) })
    }

    #[inline]
    pub(super) fn at_end(&self, blob: &[u8]) -> bool {
        blob.get(self.at) == Some(&END)
    }

    pub(super) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<PackedEntry<'a>>> {
        let [first] = bytes::array(blob, self.at)?;
        if first == END {
            return if self.at + 1 == blob.len()
                && !self.value_is_next
                && self.left.is_none_or(|left| left == 0)
            {
                Ok(None)
            } else {
                Err(Error::Corrupt("a zipmap whose count in the header differs from its number of pairs"))
            };
        }
        let (n, mut at) = if first < LONG {
            (usize::from(first), self.at + 1)
        } else {
            (u32::from_le_bytes(bytes::array(blob, self.at + 1)?) as usize, self.at + 5)
        };
        let mut unused = 0;
        if self.value_is_next {
            unused = usize::from(bytes::array::<1>(blob, at)?[0]);
            at += 1;
            if let Some(left) = &mut self.left {
                *left = left.checked_sub(1).ok_or(Error::Corrupt(
                    "a zipmap whose count in the header differs from its number of pairs",
                ))?;
            }
        }
        let text = bytes::slice(blob, at, n)?;
        // The unused bytes must also lie in the blob. Reading the byte after them checks this.
        self.at = at + n + unused;
        self.value_is_next = !self.value_is_next;
        Ok(Some(PackedEntry::Bytes(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_unused_bytes() {
        let blob = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
        let walk = |blob: &[u8]| -> Result<Vec<Vec<u8>>> {
            let (mut cursor, mut all) = (Cursor::new(blob)?, Vec::new());
            while let Some(entry) = cursor.next(blob)? {
                all.push(entry.text().into_vec());
            }
            Ok(all)
        };
        assert_eq!(walk(blob).unwrap(), [&b"foo"[..], b"bar", b"hello", b"world"]);
        assert!(walk(&blob[..blob.len() - 1]).is_err());
        for (at, byte) in [(0, 1), (0, 3), (1, 200), (6, 9), (17, 9)] {
            let mut bad = blob.to_vec();
            bad[at] = byte;
            assert!(walk(&bad).is_err(), "byte {at} as {byte}");
        }
        assert_eq!(walk(b"\x00\xff").unwrap(), Vec::<Vec<u8>>::new());
        assert!(walk(b"\xff").is_err() && walk(b"").is_err());
    }
}
