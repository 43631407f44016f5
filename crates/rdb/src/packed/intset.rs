//! Intset: a sorted array of integers of one width (2, 4 or 8 bytes), little endian.

use super::{PackedEntry, bytes};
use crate::{Error, Result};

const HEADER_BYTES: usize = 8;

/// A position in an intset.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    width: usize,
    previous: Option<i64>,
}

impl Cursor {
    pub(super) fn new(blob: &[u8]) -> Result<Cursor> {
        let width = u32::from_le_bytes(bytes::array(blob, 0)?) as usize;
        let count = u32::from_le_bytes(bytes::array(blob, 4)?) as usize;
        if !matches!(width, 2 | 4 | 8) {
            return Err(Error::unexpected("2, 4 or 8 bytes for each integer of an intset", width as u64));
        }
        if count.checked_mul(width).and_then(|n| n.checked_add(HEADER_BYTES)) != Some(blob.len()) {
            return Err(Error::Corrupt("an intset whose count does not match its size"));
        }
        Ok(Cursor { at: HEADER_BYTES, width, previous: None })
    }

    #[inline]
    pub(super) fn at_end(&self, blob: &[u8]) -> bool {
        self.at >= blob.len()
    }

    #[inline]
    pub(super) fn next<'a>(&mut self, blob: &'a [u8]) -> Result<Option<PackedEntry<'a>>> {
        if self.at >= blob.len() {
            return Ok(None);
        }
        let n = match self.width {
            2 => bytes::signed::<2>(blob, self.at)?,
            4 => bytes::signed::<4>(blob, self.at)?,
            _ => bytes::signed::<8>(blob, self.at)?,
        };
        if self.previous.is_some_and(|previous| previous >= n) {
            return Err(Error::Corrupt("an intset that is not sorted"));
        }
        self.at += self.width;
        self.previous = Some(n);
        Ok(Some(PackedEntry::Int(n)))
    }
}

/// The intset of `sorted`, which must ascend without duplicates. Uses the smallest width that fits all.
pub fn encode(sorted: &[i64]) -> Vec<u8> {
    debug_assert!(sorted.is_sorted_by(|a, b| a < b));
    let fits = |min: i64, max: i64| {
        sorted.first().is_none_or(|n| *n >= min) && sorted.last().is_none_or(|n| *n <= max)
    };
    let width = if fits(i16::MIN.into(), i16::MAX.into()) {
        2
    } else if fits(i32::MIN.into(), i32::MAX.into()) {
        4
    } else {
        8
    };
    let mut blob = Vec::with_capacity(HEADER_BYTES + sorted.len() * width);
    blob.extend_from_slice(&(width as u32).to_le_bytes());
    blob.extend_from_slice(&(sorted.len() as u32).to_le_bytes());
    for n in sorted {
        blob.extend_from_slice(&n.to_le_bytes()[..width]);
    }
    blob
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_decodes_back() {
        for ints in [
            &[][..],
            &[-5, 0, 7],
            &[i16::MIN as i64, i16::MAX as i64],
            &[-1, 32_768],
            &[i32::MIN as i64, 3],
            &[i64::MIN, -1, i64::MAX],
        ] {
            let blob = encode(ints);
            let mut cursor = Cursor::new(&blob).unwrap();
            for n in ints {
                assert_eq!(cursor.next(&blob).unwrap(), Some(PackedEntry::Int(*n)));
            }
            assert_eq!(cursor.next(&blob).unwrap(), None);
        }
        let mut blob = encode(&[1, 2]);
        assert_eq!(blob, [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 2, 0]);
        blob[10] = 1;
        let mut cursor = Cursor::new(&blob).unwrap();
        cursor.next(&blob).unwrap();
        assert!(cursor.next(&blob).is_err(), "a duplicate");
        assert!(Cursor::new(&blob[..11]).is_err());
        blob[0] = 3;
        assert!(Cursor::new(&blob).is_err());
        assert!(Cursor::new(&[]).is_err());
    }
}
