//! [`Packed`]: pairs of byte strings side by side in one allocation, in the order they were added; found by looking at
//! each. For hashes of few small fields.
//!
//! Layout: for each pair the field's length, the field, the value's length, the value; lengths are 7 bits a byte, low
//! ones first, the top bit saying that more follow.

use std::ops::Range;

/// Pairs in one allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    pairs: u32,
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
        self.pairs as usize
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.find(field).map(|place| &self.bytes[place.value])
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
                self.bytes.splice(place.value_from..place.pair.end, new);
                false
            }
            None => {
                // Not twice the size, as a Vec would take: most hashes are filled once and kept.
                let needed = field.len() + value.len() + 10;
                if self.bytes.capacity() - self.bytes.len() < needed {
                    self.bytes.reserve_exact(needed + self.bytes.len() / 8);
                }
                put(&mut self.bytes, field);
                put(&mut self.bytes, value);
                self.pairs += 1;
                true
            }
        }
    }
    /// Removes `field`; true when it was there.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(place) = self.find(field) else { return false };
        self.bytes.drain(place.pair);
        self.pairs -= 1;
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to_fit();
        }
        true
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places().map(|place| (&self.bytes[place.field], &self.bytes[place.value]))
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Asks for the first of its bytes.
    #[inline]
    pub(super) fn prefetch(&self) {
        strand_chain::prefetch(&*self.bytes, strand_chain::CACHE_LINE_BYTES);
    }

    fn find(&self, field: &[u8]) -> Option<Place> {
        self.places().find(|place| self.bytes[place.field.clone()] == *field)
    }
    fn places(&self) -> impl Iterator<Item = Place> {
        let mut from = 0;
        std::iter::from_fn(move || {
            if from == self.bytes.len() {
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
