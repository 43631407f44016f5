//! [`Packed`]: a hash of few fields: pairs of byte strings in one allocation, in the order of insertion, with
//! linear search.
//!
//! Layout, from the start of the allocation: the offset of the end of the fields, 4 bytes little-endian; the number
//! of pairs, 4 bytes, with [`OUTGROWN`] as its top bit; then per pair the field's length, the field, and the
//! value's length. A length has 7 bits per byte, low bits first; the top bit of a byte means that more bytes
//! follow. The values are at the end of the allocation, the first value last. The gap in the middle is spare room.
//!
//! So the search for a field reads only the first one or two cache lines, however long the values are. And a new
//! pair is added without a move of the others. The counts are in the allocation, so a hash is only a pointer and a
//! length in the record of its key. This saves one memory access per command.

use std::ops::Range;

/// Number of bytes before the first pair: the head of the allocation.
const HEAD_BYTES: usize = 8;

/// Flag in the number of pairs: the hash has exceeded Redis's thresholds for its compact form.
const OUTGROWN: u32 = 1 << 31;

/// Maximum size of a packed hash in bytes, whatever the thresholds are. redis-server has this limit, too.
const BYTES_MAX: usize = 1 << 30;

/// Maximum number of bytes of an encoded length, because 2^30 needs five groups of 7 bits.
const NUMBER_BYTES_MAX: usize = 5;

/// Fields and values in one allocation. There is no allocation while there are no pairs.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed {
    bytes: Box<[u8]>,
}

/// Result of a search for a field.
pub(super) enum Found {
    /// The field exists, and this is where its pair is.
    Pair(PairRange),
    /// The hash does not have the field.
    Missing {
        /// Offset in the allocation at which the values start.
        values_from: usize,
    },
}

impl Found {
    /// True when the field exists and its value has `value_bytes` bytes. Then a new value of this length moves
    /// nothing.
    #[inline]
    pub(super) fn has_value_len(&self, value_bytes: usize) -> bool {
        matches!(self, Found::Pair(pair) if pair.value.len() == value_bytes)
    }
}

/// Where the parts of a pair are in the allocation.
pub(super) struct PairRange {
    /// Range of the field's length, the field, and the value's length.
    head: Range<usize>,
    field: Range<usize>,
    value: Range<usize>,
}

impl Packed {
    /// True when both hashes have equal bytes, also in the spare room. A clone that was not changed fulfils this.
    pub(super) fn is_same(&self, other: &Packed) -> bool {
        self.bytes == other.bytes
    }
    pub(super) fn len(&self) -> usize {
        (self.number(4) & !OUTGROWN) as usize
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match self.find(field) {
            Found::Pair(pair) => Some(&self.bytes[pair.value]),
            Found::Missing { .. } => None,
        }
    }
    /// Number of bytes of the allocation that are in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.used_with(self.values_from())
    }
    /// True when a pair of `bytes` bytes may be added without exceeding the maximum size.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        // Compare with the size of the allocation, because the bytes in use would have to be counted.
        self.bytes.len().saturating_add(bytes) < BYTES_MAX
    }
    /// True when the hash was marked as outgrown.
    pub(super) fn is_outgrown(&self) -> bool {
        self.number(4) & OUTGROWN != 0
    }
    /// Marks the hash as outgrown. Has no effect on an empty hash.
    pub(super) fn set_outgrown(&mut self) {
        if !self.bytes.is_empty() {
            self.put_number(4, self.number(4) | OUTGROWN);
        }
    }
    /// Sets the value of `field`. `found` is the result of [`Packed::find`]. Returns true when the field is new.
    #[inline]
    pub(super) fn set_at(&mut self, found: Found, field: &[u8], value: &[u8]) -> bool {
        match found {
            Found::Pair(pair) if pair.value.len() == value.len() => {
                self.bytes[pair.value].copy_from_slice(value);
                false
            }
            Found::Pair(pair) => {
                self.replace(pair, value);
                false
            }
            Found::Missing { values_from } => {
                self.add(field, value, values_from);
                true
            }
        }
    }
    /// Removes `field`. Returns true when it existed.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Found::Pair(pair) = self.find(field) else { return false };
        let (end, from) = (self.fields_end(), self.values_after(&pair));
        self.bytes.copy_within(pair.head.end..end, pair.head.start);
        self.bytes.copy_within(from..pair.value.start, from + pair.value.len());
        self.put_number(0, (end - pair.head.len()) as u32);
        self.put_number(4, self.number(4) - 1);
        self.shrink(from + pair.value.len());
        true
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs().map(|pair| (&self.bytes[pair.field], &self.bytes[pair.value]))
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Prefetches the first bytes of the allocation.
    #[inline]
    pub(super) fn prefetch(&self) {
        strand_chain::prefetch(&*self.bytes, 2 * strand_chain::CACHE_LINE_BYTES);
    }

    /// Adds a pair with a new field. The values start at `values_from` now.
    fn add(&mut self, field: &[u8], value: &[u8], values_from: usize) {
        let to = self.reserve(field.len() + value.len() + 2 * NUMBER_BYTES_MAX, values_from);
        let from = self.fields_end();
        self.bytes[to - value.len()..to].copy_from_slice(value);
        let at = put_len(&mut self.bytes, from, field.len());
        self.bytes[at..at + field.len()].copy_from_slice(field);
        let end = put_len(&mut self.bytes, at + field.len(), value.len());
        self.put_number(0, end as u32);
        self.put_number(4, self.number(4) + 1);
    }
    /// Replaces the value of a pair by a value of another length.
    fn replace(&mut self, mut pair: PairRange, value: &[u8]) {
        let (before, len) = (self.bytes.len(), pair.value.len());
        let more = value.len().saturating_sub(len) + NUMBER_BYTES_MAX;
        let from = self.reserve(more, self.values_after(&pair));
        // The values are at the end of the allocation, and have moved with this end.
        let grown = self.bytes.len() - before;
        pair.value = pair.value.start + grown..pair.value.end + grown;
        let end = self.fields_end();
        // The values of later pairs are before this one, and move with its new start.
        let start = pair.value.end - value.len();
        let moved_to = from + len - value.len();
        self.bytes.copy_within(from..pair.value.start, moved_to);
        self.bytes[start..pair.value.end].copy_from_slice(value);
        let number_bytes = encoded_len_bytes(value.len());
        self.bytes.copy_within(pair.head.end..end, pair.field.end + number_bytes);
        put_len(&mut self.bytes, pair.field.end, value.len());
        self.put_number(0, (end - pair.head.end + pair.field.end + number_bytes) as u32);
        self.shrink(moved_to);
    }
    /// Makes room for `more` bytes. `values_from` is the offset at which the values start now. Returns the offset at
    /// which they start afterwards.
    fn reserve(&mut self, more: usize, values_from: usize) -> usize {
        let (before, used) = (self.bytes.len(), self.used_with(values_from));
        if before < used + more {
            // Do not double the size as `Vec` does, because most hashes are filled once and kept.
            self.reallocate(used + more + used / 8, values_from);
        }
        values_from + self.bytes.len() - before
    }
    /// Shrinks an allocation that is more than half empty.
    fn shrink(&mut self, values_from: usize) {
        let used = self.used_with(values_from);
        if used < self.bytes.len() / 2 {
            self.reallocate(used, values_from);
        }
    }
    /// Moves to a new allocation of `bytes` bytes, which must be enough.
    fn reallocate(&mut self, bytes: usize, values_from: usize) {
        let mut new = vec![0; bytes].into_boxed_slice();
        let end = self.fields_end();
        new[..HEAD_BYTES].copy_from_slice(&(HEAD_BYTES as u64).to_le_bytes());
        if !self.bytes.is_empty() {
            new[..end].copy_from_slice(&self.bytes[..end]);
        }
        let to = bytes - (self.bytes.len() - values_from);
        new[to..].copy_from_slice(&self.bytes[values_from..]);
        self.bytes = new;
    }
    /// Bytes in use when the values start at `values_from`.
    fn used_with(&self, values_from: usize) -> usize {
        self.fields_end() + (self.bytes.len() - values_from)
    }
    /// The offset at which the values start. Found by a walk over the pairs after this pair.
    fn values_after(&self, pair: &PairRange) -> usize {
        let after = self.pairs_from(pair.head.end, pair.value.start);
        after.last().map_or(pair.value.start, |last| last.value.start)
    }
    fn fields_end(&self) -> usize {
        (self.number(0) as usize).max(HEAD_BYTES)
    }
    /// The offset at which the values start. Found by a walk over all pairs.
    fn values_from(&self) -> usize {
        self.pairs().last().map_or(self.bytes.len(), |pair| pair.value.start)
    }
    /// One of the two numbers in the head of the allocation. 0 while there is no allocation.
    #[inline]
    fn number(&self, at: usize) -> u32 {
        let number = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        number.map_or(0, u32::from_le_bytes)
    }
    fn put_number(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    /// Searches for the pair of `field`.
    #[inline]
    pub(super) fn find(&self, field: &[u8]) -> Found {
        let mut values_from = self.bytes.len();
        for pair in self.pairs() {
            if self.bytes[pair.field.clone()] == *field {
                return Found::Pair(pair);
            }
            values_from = pair.value.start;
        }
        Found::Missing { values_from }
    }
    #[inline]
    fn pairs(&self) -> impl Iterator<Item = PairRange> {
        self.pairs_from(HEAD_BYTES, self.bytes.len())
    }
    /// The pairs whose fields start at `from` and whose values end at `values`, one after the other.
    #[inline]
    fn pairs_from(&self, mut from: usize, mut values: usize) -> impl Iterator<Item = PairRange> {
        let end = self.fields_end();
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let (at, len) = read_len(&self.bytes, from);
            let field = at..at + len;
            let (at, len) = read_len(&self.bytes, field.end);
            let pair = PairRange { head: from..at, field, value: values - len..values };
            (from, values) = (at, values - len);
            Some(pair)
        })
    }
}

fn encoded_len_bytes(number: usize) -> usize {
    (number.max(1).ilog2() as usize) / 7 + 1
}
/// Writes a length at `at` and returns the offset after it.
fn put_len(out: &mut [u8], mut at: usize, mut number: usize) -> usize {
    while number >= 0x80 {
        out[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    out[at] = number as u8;
    at + 1
}
/// The offset after the length that is encoded at `at`, and this length.
#[inline]
fn read_len(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (at, number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        /// Also compares the order of the pairs, which a table does not keep.
        #[test]
        fn keeps_pairs_in_their_order(
            ops in prop::collection::vec((0..24u8, any::<bool>(), prop_oneof![0..4usize, 126..131usize, 16382..16386usize]), 1..300),
        ) {
            let (mut packed, mut twin) = (Packed::default(), Vec::<(Vec<u8>, Vec<u8>)>::new());
            for (i, (field, set, len)) in ops.into_iter().enumerate() {
                // Use long fields too, so that encoded lengths have different numbers of bytes.
                let (field, value) = (vec![b'f'; usize::from(field) * usize::from(field)], vec![i as u8; len]);
                let at = twin.iter().position(|(f, _)| *f == field);
                match (set, at) {
                    (true, None) => {
                        let found = packed.find(&field);
                        prop_assert!(!found.has_value_len(len) && packed.set_at(found, &field, &value));
                        twin.push((field, value));
                    }
                    (true, Some(at)) => {
                        let found = packed.find(&field);
                        let same = twin[at].1.len() == value.len();
                        prop_assert!(found.has_value_len(len) == same && !packed.set_at(found, &field, &value));
                        twin[at].1 = value;
                    }
                    (false, at) => {
                        prop_assert_eq!(packed.remove(&field), at.is_some());
                        at.map(|at| twin.remove(at));
                    }
                }
                let pairs: Vec<_> = packed.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
                prop_assert_eq!(&pairs, &twin);
                prop_assert_eq!(packed.len(), twin.len());
                let least: usize = twin.iter().map(|(f, v)| f.len() + v.len() + 2).sum();
                prop_assert!(packed.used_bytes() >= least && packed.used_bytes() <= least + HEAD_BYTES + 4 * twin.len());
                prop_assert!(packed.heap_bytes() <= 4 * (packed.used_bytes() + 64), "{}", packed.heap_bytes());
            }
        }
    }
}
