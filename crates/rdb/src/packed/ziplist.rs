//! Ziplist, written by Redis up to 6.2. Like a listpack, but each entry starts with the length of the previous one.
//!
//! Header: total bytes and offset of the last entry (32 bits each), count (16 bits; 65535: count by walking). End:
//! 0xff.

use super::{PackedEntry, bytes};
use crate::{Error, Result};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// The marker for a previous entry of at least this length. The length is then in the four bytes after the marker.
const LONG_PREVIOUS: u8 = 254;

/// A position in a ziplist.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    left: Option<u16>,
    /// Length of the entry before `at`.
    previous_len: usize,
    /// Start of the last entry according to the header.
    tail: usize,
}

impl Cursor {
    pub(super) fn new(blob: &[u8]) -> Result<Cursor> {
        let total = u32::from_le_bytes(bytes::array(blob, 0)?) as usize;
        let tail = u32::from_le_bytes(bytes::array(blob, 4)?) as usize;
        let count = u16::from_le_bytes(bytes::array(blob, 8)?);
        if total != blob.len() || blob.len() <= HEADER_BYTES || blob.last() != Some(&END) {
            return Err(Error::Corrupt(
                "a ziplist whose size in the header is wrong, or without the end marker 0xff",
            ));
        }
        let left = (count != COUNT_UNKNOWN).then_some(count);
        Ok(Cursor { at: HEADER_BYTES, left, previous_len: 0, tail })
    }

    #[inline]
    pub(super) fn at_end(&self, blob: &[u8]) -> bool {
        blob.get(self.at) == Some(&END)
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<PackedEntry<'a>>> {
        let start = self.at;
        let [first] = bytes::array(blob, start)?;
        if first == END {
            let last_begins = start - self.previous_len;
            return if start + 1 == blob.len()
                && self.left.is_none_or(|left| left == 0)
                && self.tail == last_begins
            {
                Ok(None)
            } else {
                Err(Error::Corrupt("a ziplist whose header does not match its entries"))
            };
        }
        let (previous_len, mut at) = if first < LONG_PREVIOUS {
            (usize::from(first), start + 1)
        } else {
            (u32::from_le_bytes(bytes::array(blob, start + 1)?) as usize, start + 5)
        };
        if previous_len != self.previous_len {
            return Err(Error::Corrupt("a ziplist entry that has a wrong length of the previous entry"));
        }
        let [encoding] = bytes::array(blob, at)?;
        at += 1;
        let entry = match encoding {
            0xc0 => int::<2>(blob, &mut at)?,
            0xd0 => int::<4>(blob, &mut at)?,
            0xe0 => int::<8>(blob, &mut at)?,
            0xf0 => int::<3>(blob, &mut at)?,
            0xfe => int::<1>(blob, &mut at)?,
            0xf1..=0xfd => PackedEntry::Int(i64::from(encoding & 0x0f) - 1),
            0x00..=0x3f => string(blob, &mut at, usize::from(encoding))?,
            0x40..=0x7f => {
                let [low] = bytes::array(blob, at)?;
                at += 1;
                string(blob, &mut at, usize::from(encoding & 0x3f) << 8 | usize::from(low))?
            }
            0x80 => {
                let n = u32::from_be_bytes(bytes::array(blob, at)?) as usize;
                at += 4;
                string(blob, &mut at, n)?
            }
            _ => return Err(Error::unexpected("a ziplist encoding", encoding.into())),
        };
        if let Some(left) = &mut self.left {
            *left = left
                .checked_sub(1)
                .ok_or(Error::Corrupt("a ziplist whose header does not match its entries"))?;
        }
        self.previous_len = at - start;
        self.at = at;
        Ok(Some(entry))
    }
}

fn int<'a, const N: usize>(blob: &[u8], at: &mut usize) -> Result<PackedEntry<'a>> {
    let n = bytes::signed::<N>(blob, *at)?;
    *at += N;
    Ok(PackedEntry::Int(n))
}

fn string<'a>(blob: &'a [u8], at: &mut usize, n: usize) -> Result<PackedEntry<'a>> {
    let text = bytes::slice(blob, *at, n)?;
    *at += n;
    Ok(PackedEntry::Bytes(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(blob: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (mut cursor, mut all) = (Cursor::new(blob)?, Vec::new());
        while let Some(entry) = cursor.next(blob)? {
            all.push(entry.text().into_vec());
        }
        Ok(all)
    }

    #[test]
    fn the_forms_of_integers_and_strings() {
        // 0, 12, -1 as int8, 300 as int16, "ab": encoded by hand from the format.
        let entries: [&[u8]; 5] =
            [b"\x00\xf1", b"\x02\xfd", b"\x02\xfe\xff", b"\x03\xc0\x2c\x01", b"\x04\x02ab"];
        let body = entries.concat();
        let total = (HEADER_BYTES + body.len() + 1) as u32;
        let tail = total - 1 - 4;
        let blob =
            [&total.to_le_bytes()[..], &tail.to_le_bytes(), &5u16.to_le_bytes(), &body, &[END]].concat();
        assert_eq!(walk(&blob).unwrap(), [&b"0"[..], b"12", b"-1", b"300", b"ab"]);
        for (at, byte) in [(0, 0), (4, 1), (8, 4), (8, 6), (12, 3), (13, 0xff)] {
            let mut bad = blob.clone();
            bad[at] = byte;
            assert!(walk(&bad).is_err(), "byte {at} as {byte:#x}");
        }
        assert!(walk(&blob[..blob.len() - 1]).is_err());
    }

    #[test]
    fn an_empty_ziplist_has_no_entries() {
        assert_eq!(walk(&[11, 0, 0, 0, 10, 0, 0, 0, 0, 0, 255]).unwrap(), Vec::<Vec<u8>>::new());
        assert!(walk(&[]).is_err());
    }
}
