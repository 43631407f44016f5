//! [`Fields`]: the table form of a hash. It is an extendible table of fields and values. So even a hash of millions
//! of fields grows, shrinks and is scanned one segment at a time, and its clone is a cheap snapshot.

use super::Bytes;
use crate::extendible::{
    Content, ExtendibleTable, Item, NewItem, OutsideValue, POSITION_BITS, Payload, Positions, Segment,
    position_of,
};
use std::sync::OnceLock;
use strand_chain::Blob;
use triomphe::Arc;

/// Hashes the fields of all hashes in the process, so that no hash needs a seed of its own. Clients choose fields,
/// so the hash is keyed: with the seed of the first keyspace (so that a simulation repeats), or at random without a
/// keyspace.
static FIELD_HASHER: OnceLock<ahash::RandomState> = OnceLock::new();

/// Sets the key of the fields' hash, unless it was set before.
pub(crate) fn key_fields_with([a, b, c, d]: [u64; 4]) {
    // The keyspace's own key must not be used: the cursors of HSCAN would reveal parts of the hashes of keys.
    FIELD_HASHER.get_or_init(|| ahash::RandomState::with_seeds(!b, !c, !d, !a));
}

/// Number of segments that are freed together: about 15,000 fields, which takes about 50 us.
const PIECE_SEGMENTS: usize = 16;

/// Fields and values in an extendible table.
#[derive(Debug, Clone)]
pub(super) struct Fields(ExtendibleTable<Blob, FieldPositions>);

#[derive(Debug, Clone)]
pub(super) struct FieldPositions;

impl Positions for FieldPositions {
    #[inline]
    fn position(&self, field: &[u8]) -> u64 {
        position_of(FIELD_HASHER.get_or_init(ahash::RandomState::new).hash_one(field))
    }
}

impl OutsideValue for Blob {
    fn heap_bytes(&self) -> usize {
        self.heap_bytes()
    }
    fn from_int(n: i64) -> Blob {
        Blob::from(super::string::format_int(n, &mut [0; 20]))
    }
    fn from_bytes(bytes: &[u8], _: bool) -> Blob {
        Blob::from(bytes)
    }
}

impl Fields {
    pub(super) fn new() -> Fields {
        Fields(ExtendibleTable::new(0, FieldPositions))
    }
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        let at = self.0.locate(self.0.position(field), field)?;
        Some(pair(self.0.at(at)).1)
    }
    /// Sets the value of `field`. Returns true when the field is new.
    pub(super) fn set(&mut self, field: &[u8], value: Bytes<'_>) -> bool {
        let payload = match value {
            Bytes::Slice(bytes) => Payload::Bytes(bytes, false),
            Bytes::Shared(blob) if blob.len() <= crate::extendible::INLINE_BYTES_MAX => {
                Payload::Bytes(blob, false)
            }
            Bytes::Shared(blob) => Payload::Outside(blob.clone()),
        };
        let new = NewItem { key: field, usage: None, expiry_ms: i64::MAX, payload };
        let position = self.0.position(field);
        match self.0.locate(position, field) {
            Some(at) => {
                self.0.replace(at, new);
                false
            }
            None => {
                self.0.insert_new(position, new);
                true
            }
        }
    }
    /// Adds `field` with an empty value, unless it exists. Returns true when it was added.
    pub(super) fn add(&mut self, field: &[u8]) -> bool {
        let position = self.0.position(field);
        if self.0.locate(position, field).is_some() {
            return false;
        }
        let payload = Payload::Bytes(b"", false);
        self.0.insert_new(position, NewItem { key: field, usage: None, expiry_ms: i64::MAX, payload });
        true
    }
    /// Removes `field`. Returns true when it existed.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(at) = self.0.locate(self.0.position(field), field) else { return false };
        self.0.remove_at(at);
        true
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (Bytes<'_>, Bytes<'_>)> {
        self.0.iter().map(pair)
    }
    pub(super) fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        if cursor >> POSITION_BITS != 0 {
            return 0; // Past the last position.
        }
        let (mut from, mut left) = (cursor, count.max(1));
        loop {
            let (visited, next) = self.0.scan_step(from, left, &mut |item| {
                let (field, value) = pair(item);
                visit(field, value);
            });
            left = left.saturating_sub(visited);
            match next {
                None => return 0,
                Some(next) if left == 0 => return next,
                Some(next) => from = next,
            }
        }
    }
    pub(super) fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, Bytes<'_>)> {
        self.0.random(rng).map(pair)
    }
    /// The segments, in groups that take about 50 us each to free.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Vec<Arc<Segment<Blob>>>> {
        self.0.into_pieces(PIECE_SEGMENTS)
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
    /// Approximate number of allocations.
    pub(super) fn parts(&self) -> usize {
        // Assume that one value in ten has a blob of its own. The decisions that depend on this number need
        // no better estimate.
        self.0.parts() + self.0.len() / 10
    }
    /// Like [`Fields::parts`], for fields whose values are all empty (the members of a set).
    pub(super) fn segment_parts(&self) -> usize {
        self.0.parts()
    }
    /// True when one of the two was cloned from the other and neither was changed since.
    pub(super) fn is_same(&self, other: &Fields) -> bool {
        self.0.shares_all_with(&other.0)
    }
    #[inline]
    pub(super) fn prefetch(&self) {
        self.0.prefetch_first();
    }
    /// Prefetches these fields. Returns false, without a prefetch, when the table is small enough to be in the
    /// cache.
    pub(super) fn prefetch_all<'f>(&self, fields: impl Iterator<Item = &'f [u8]>) -> bool {
        self.0.prefetch_all(fields, 2 * strand_chain::CACHE_LINE_BYTES)
    }
    #[inline]
    pub(super) fn prefetch_items(&self) {
        self.0.prefetch_items();
    }
    #[cfg(test)]
    pub(super) fn shape(&self) -> crate::Shape {
        self.0.shape()
    }
}

fn pair(item: Item<'_, Blob>) -> (Bytes<'_>, Bytes<'_>) {
    let value = match item.content() {
        Content::Bytes(bytes, _) => Bytes::Slice(bytes),
        Content::Outside(blob) => Bytes::Shared(blob),
        Content::Int(_) => unreachable!("no field is stored as an integer"),
    };
    (item.key_bytes(), value)
}
