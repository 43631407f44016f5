//! [`Packed`]: pairs of byte strings side by side in one allocation, in the order they were added; found by looking at
//! each. For hashes of few small fields.
//!
//! Layout: the length of all pairs and their number, 4 bytes each, little-endian; then for each pair the field's length,
//! the field, the value's length, the value; lengths are 7 bits a byte, low ones first, the top bit saying that more
//! follow. What follows the last pair is room for more. With both numbers in the allocation a hash is a pointer and a
//! length, which lie beside its key: one look at memory less for each command.

use std::ops::Range;

/// Bytes in front of the first pair.
const HEAD_BYTES: usize = 8;

/// A hash of more bytes is no packed one, whatever the thresholds are (redis-server: the same).
const BYTES_MAX: usize = 1 << 30;

/// Pairs in one allocation; none while there is no pair.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
}

/// Where a pair lies.
struct Place {
    field: Range<usize>,
    value: Range<usize>,
    /// Where the value's length begins, which ends the field.
    value_from: usize,
    pair: Range<usize>,
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.number(4)
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.find(field).map(|place| &self.bytes[place.value])
    }
    /// True when a pair of so many bytes may be added.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) < BYTES_MAX
    }
    /// Sets `field`; true when it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.find(field) {
            Some(place) if place.value.len() == value.len() => {
                self.bytes[place.value].copy_from_slice(value);
                false
            }
            Some(place) => {
                let mut new = Vec::with_capacity(value.len() + 5);
                put(&mut new, value);
                self.change(0, |bytes| drop(bytes.splice(place.value_from..place.pair.end, new)));
                false
            }
            None => {
                self.change(1, |bytes| {
                    // Not twice the size, as a Vec would take: most hashes are filled once and kept.
                    let needed = field.len() + value.len() + 10;
                    if bytes.capacity() - bytes.len() < needed {
                        bytes.reserve_exact(needed + bytes.len() / 8);
                    }
                    put(bytes, field);
                    put(bytes, value);
                });
                true
            }
        }
    }
    /// Removes `field`; true when it was there.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(place) = self.find(field) else { return false };
        self.change(-1, |bytes| {
            bytes.drain(place.pair);
            if bytes.len() < bytes.capacity() / 2 {
                bytes.shrink_to_fit();
            }
        });
        true
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places().map(|place| (&self.bytes[place.field], &self.bytes[place.value]))
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Asks for the first of its bytes.
    #[inline]
    pub(super) fn prefetch(&self) {
        strand_chain::prefetch(&*self.bytes, 2 * strand_chain::CACHE_LINE_BYTES);
    }

    /// Lets `change` have the head and the pairs as a vector with the room there is; `more` pairs are there after it.
    fn change(&mut self, more: isize, change: impl FnOnce(&mut Vec<u8>)) {
        let (used, pairs) = (self.used(), self.len());
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.truncate(used);
        bytes.resize(used.max(HEAD_BYTES), 0);
        change(&mut bytes);
        let (used, pairs) = (bytes.len() as u32, pairs.wrapping_add_signed(more) as u32);
        bytes[..4].copy_from_slice(&used.to_le_bytes());
        bytes[4..HEAD_BYTES].copy_from_slice(&pairs.to_le_bytes());
        // The room stays: the slice has all of it.
        bytes.resize(bytes.capacity(), 0);
        self.bytes = bytes.into_boxed_slice();
    }
    /// Bytes up to the end of the last pair.
    fn used(&self) -> usize {
        self.number(0)
    }
    #[inline]
    fn number(&self, at: usize) -> usize {
        let number = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        number.map_or(0, u32::from_le_bytes) as usize
    }
    fn find(&self, field: &[u8]) -> Option<Place> {
        self.places().find(|place| self.bytes[place.field.clone()] == *field)
    }
    fn places(&self) -> impl Iterator<Item = Place> {
        let (mut from, used) = (HEAD_BYTES, self.used());
        std::iter::from_fn(move || {
            if from >= used {
                return None;
            }
            let field = sized(&self.bytes, from);
            let (start, value_from) = (from, field.end);
            let value = sized(&self.bytes, value_from);
            from = value.end;
            Some(Place { field, value_from, pair: start..value.end, value })
        })
    }
}

/// Appends a length and the bytes.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
}
/// The range of the bytes whose length is written at `at`.
#[inline]
fn sized(bytes: &[u8], at: usize) -> Range<usize> {
    let (mut at, mut len, mut shift) = (at, 0, 0);
    loop {
        let byte = bytes[at];
        at += 1;
        len |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return at..at + len;
        }
        shift += 7;
    }
}
