//! Listpack: entries in sequence. Each is followed by its length, so the listpack can be walked from both ends.
//!
//! Header: total bytes (32 bits, little endian) and count (16 bits; 65535: unknown, count by walking). End: 0xff.

use super::{PackedEntry, bytes};
use crate::text::canonical_int;
use crate::{Error, Result};

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// The count in a listpack's header that means "unknown".
const COUNT_UNKNOWN: u16 = u16::MAX;

/// A position in a listpack.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    /// Number of entries left according to the header; `None` when the header has no count.
    left: Option<u16>,
}

impl Cursor {
    /// A position before the first entry of `blob`.
    pub(crate) fn new(blob: &[u8]) -> Result<Cursor> {
        let total = u32::from_le_bytes(bytes::array(blob, 0)?) as usize;
        if total != blob.len() || blob.len() <= HEADER_BYTES || blob.last() != Some(&END) {
            return Err(Error::Corrupt(
                "a listpack whose size in the header is wrong, or without the end marker 0xff",
            ));
        }
        let count = u16::from_le_bytes(bytes::array(blob, 4)?);
        Ok(Cursor { at: HEADER_BYTES, left: (count != COUNT_UNKNOWN).then_some(count) })
    }

    #[inline]
    pub(super) fn at_end(&self, blob: &[u8]) -> bool {
        blob.get(self.at) == Some(&END)
    }

    /// The next entry, or `None` at the end.
    #[inline]
    pub(crate) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<PackedEntry<'a>>> {
        let at = self.at;
        let [first] = bytes::array(blob, at)?;
        if first == END {
            return if at + 1 == blob.len() && self.left.is_none_or(|left| left == 0) {
                Ok(None)
            } else {
                Err(Error::Corrupt("a listpack whose count in the header differs from its number of entries"))
            };
        }
        let string = |header: usize, n: usize| -> Result<_> {
            Ok((PackedEntry::Bytes(bytes::slice(blob, at + header, n)?), header + n))
        };
        let (entry, len) = match first {
            0..=0x7f => (PackedEntry::Int(i64::from(first)), 1),
            0x80..=0xbf => string(1, usize::from(first & 0x3f))?,
            0xc0..=0xdf => {
                let [high, low] = bytes::array(blob, at)?;
                let raw = i64::from(high & 0x1f) << 8 | i64::from(low);
                // The value has 13 bits; the highest bit is the sign.
                (PackedEntry::Int(raw << 51 >> 51), 2)
            }
            0xe0..=0xef => {
                let [high, low] = bytes::array(blob, at)?;
                string(2, usize::from(high & 0x0f) << 8 | usize::from(low))?
            }
            0xf0 => string(5, u32::from_le_bytes(bytes::array(blob, at + 1)?) as usize)?,
            0xf1 => (PackedEntry::Int(bytes::signed::<2>(blob, at + 1)?), 3),
            0xf2 => (PackedEntry::Int(bytes::signed::<3>(blob, at + 1)?), 4),
            0xf3 => (PackedEntry::Int(bytes::signed::<4>(blob, at + 1)?), 5),
            0xf4 => (PackedEntry::Int(bytes::signed::<8>(blob, at + 1)?), 9),
            _ => return Err(Error::unexpected("a listpack encoding up to 0xf4", first.into())),
        };
        let (back, back_len) = back_length(len);
        if bytes::slice(blob, at + len, back_len)? != &back[..back_len] {
            return Err(Error::Corrupt("a listpack entry that is followed by a wrong length"));
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Error::Corrupt(
                "a listpack whose count in the header differs from its number of entries",
            ))?;
        }
        self.at = at + len + back_len;
        Ok(Some(entry))
    }
}

/// The length after an entry of `len` bytes, in groups of seven bits, the lowest group last. Every byte but the
/// first has a bit set: more groups are to its left.
#[inline]
fn back_length(len: usize) -> ([u8; 5], usize) {
    const MORE: u8 = 0x80;
    let group = |shift: u32| (len >> shift) as u8 & 0x7f;
    match len {
        0..=0x7f => ([len as u8, 0, 0, 0, 0], 1),
        0x80..=0x3fff => ([group(7), group(0) | MORE, 0, 0, 0], 2),
        0x4000..=0x1f_ffff => ([group(14), group(7) | MORE, group(0) | MORE, 0, 0], 3),
        0x20_0000..=0xfff_ffff => ([group(21), group(14) | MORE, group(7) | MORE, group(0) | MORE, 0], 4),
        _ => ([group(28), group(21) | MORE, group(14) | MORE, group(7) | MORE, group(0) | MORE], 5),
    }
}

/// A listpack under construction.
#[derive(Clone, Debug)]
pub struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    /// An empty listpack.
    pub fn new() -> Listpack {
        Listpack { bytes: vec![0; HEADER_BYTES], count: 0 }
    }
    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.count = 0;
    }
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }
    /// True when there are no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Length of the finished listpack, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Appends a string. If the string spells an integer, it is packed as an integer.
    pub fn push(&mut self, text: &[u8]) {
        if let Some(n) = canonical_int(text) {
            return self.push_int(n);
        }
        let start = self.bytes.len();
        match text.len() {
            n @ 0..=0x3f => self.bytes.push(0x80 | n as u8),
            n @ 0x40..=0xfff => self.bytes.extend_from_slice(&[0xe0 | (n >> 8) as u8, n as u8]),
            n => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(n as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_entry(start);
    }

    /// Appends an integer.
    pub fn push_int(&mut self, n: i64) {
        let start = self.bytes.len();
        let le = n.to_le_bytes();
        match n {
            0..=127 => self.bytes.push(n as u8),
            -4096..=4095 => self.bytes.extend_from_slice(&[0xc0 | (n >> 8) as u8 & 0x1f, n as u8]),
            -0x8000..=0x7fff => self.put_wide(0xf1, &le[..2]),
            -0x80_0000..=0x7f_ffff => self.put_wide(0xf2, &le[..3]),
            -0x8000_0000..=0x7fff_ffff => self.put_wide(0xf3, &le[..4]),
            _ => self.put_wide(0xf4, &le),
        }
        self.end_entry(start);
    }

    /// Appends a score: as an integer if the score is a whole number, else as the text that redis-server 7.0 writes.
    pub fn push_score(&mut self, score: f64) {
        /// Scores beyond 2^52 are written as text, as in redis-server, because not every integer there is a double.
        const WHOLE_MAX: f64 = (1u64 << 52) as f64;
        if score.trunc() == score && score.abs() <= WHOLE_MAX {
            // This turns minus zero into zero, as in redis-server.
            self.push_int(score as i64);
        } else {
            self.push(strand_wire::digits::Digits::double(score).as_slice());
        }
    }

    /// Appends all entries of `other`.
    pub fn append(&mut self, other: &Listpack) {
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.count += other.count;
    }

    /// The bytes of the listpack, with header and end. More entries may be pushed afterwards.
    pub fn finish(&mut self) -> Finished<'_> {
        let total = self.byte_len() as u32;
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes.push(END);
        Finished { listpack: self }
    }

    fn put_wide(&mut self, encoding: u8, bytes: &[u8]) {
        self.bytes.push(encoding);
        self.bytes.extend_from_slice(bytes);
    }

    fn end_entry(&mut self, start: usize) {
        let (back, n) = back_length(self.bytes.len() - start);
        self.bytes.extend_from_slice(&back[..n]);
        self.count += 1;
    }
}

impl Default for Listpack {
    fn default() -> Listpack {
        Listpack::new()
    }
}

/// The bytes of a finished listpack. Dropping this value makes the listpack writable again.
pub struct Finished<'a> {
    listpack: &'a mut Listpack,
}

impl std::ops::Deref for Finished<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.listpack.bytes
    }
}

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.listpack.bytes.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_decodes_back() {
        let ints = [
            0,
            127,
            128,
            -1,
            4095,
            4096,
            -4096,
            -4097,
            32_767,
            32_768,
            -32_768,
            -32_769,
            8_388_607,
            8_388_608,
            -8_388_608,
            -8_388_609,
            2_147_483_647,
            2_147_483_648,
            -2_147_483_649,
            i64::MAX,
            i64::MIN,
        ];
        let mut texts: Vec<Vec<u8>> = ints.iter().map(|n: &i64| n.to_string().into_bytes()).collect();
        for n in [0, 1, 63, 64, 120, 127, 128, 4095, 4096, 16_400, 2_097_160] {
            texts.push(vec![b'x'; n]);
        }
        let mut listpack = Listpack::new();
        texts.iter().for_each(|text| listpack.push(text));
        let blob = listpack.finish().to_vec();
        assert_eq!(blob.len(), listpack.byte_len());
        let mut cursor = Cursor::new(&blob).unwrap();
        for text in &texts {
            assert_eq!(&*cursor.next(&blob).unwrap().unwrap().text(), &text[..]);
        }
        assert!(cursor.next(&blob).unwrap().is_none());
    }

    #[test]
    fn more_entries_than_a_header_can_count() {
        let mut listpack = Listpack::new();
        (0..70_000).for_each(|n| listpack.push_int(n));
        let blob = listpack.finish().to_vec();
        assert_eq!(blob[4..6], [0xff, 0xff]);
        let mut cursor = Cursor::new(&blob).unwrap();
        let mut n = 0;
        while let Some(entry) = cursor.next(&blob).unwrap() {
            assert_eq!(entry, PackedEntry::Int(n));
            n += 1;
        }
        assert_eq!(n, 70_000);
        listpack.clear();
        assert_eq!(&*listpack.finish(), [7, 0, 0, 0, 0, 0, 0xff]);
    }

    #[test]
    fn scores_are_packed_as_redis_does() {
        let mut listpack = Listpack::new();
        for score in [3.0, -0.0, 1.5, f64::INFINITY, 1e300] {
            listpack.push_score(score);
        }
        let blob = listpack.finish().to_vec();
        let mut cursor = Cursor::new(&blob).unwrap();
        let read: Vec<Vec<u8>> =
            std::iter::from_fn(|| cursor.next(&blob).unwrap()).map(|e| e.text().into_vec()).collect();
        assert_eq!(read, [&b"3"[..], b"0", b"1.5", b"inf", b"1.0000000000000001e+300"]);
    }

    #[test]
    fn wrong_listpacks_are_refused() {
        let walk = |blob: &[u8]| -> Result<usize> {
            let (mut cursor, mut n) = (Cursor::new(blob)?, 0);
            while cursor.next(blob)?.is_some() {
                n += 1;
            }
            Ok(n)
        };
        let mut listpack = Listpack::new();
        listpack.push(b"hello");
        listpack.push_int(5);
        let good = listpack.finish().to_vec();
        assert_eq!(walk(&good).unwrap(), 2);
        for (at, byte) in [(0, 1), (4, 1), (4, 3), (6, 0x86), (6, 0xff), (6, 0xf5), (12, 7), (13, 0x81)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(walk(&bad).is_err(), "byte {at} as {byte:#x}");
        }
        assert!(walk(&good[..good.len() - 1]).is_err());
        assert!(walk(&[]).is_err());
        assert!(walk(&[6, 0, 0, 0, 0, 0]).is_err());
    }
}
