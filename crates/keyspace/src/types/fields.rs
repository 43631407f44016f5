//! [`Fields`]: the table form of a hash: a segmented table of pairs, so that a hash of millions of fields grows, shrinks
//! and is scanned a segment at a time, as the keyspace is.

use super::Bytes;
use super::packed::{put, sized};
use crate::segmented::{Item, Segmented, position_of};
use std::sync::OnceLock;
use strand_chain::Blob;

/// From this length on a value is a blob of its own, which replies share; shorter ones lie behind their field.
const SHARED_BYTES_MIN: usize = 1024;

/// Hashes all fields of all hashes in the process. Clients choose fields too, so it is keyed: by the first keyspace's
/// seed (a simulation repeats), or at random where there is none. One for all, so that a hash needs no seed of its own.
static FIELD_HASHER: OnceLock<ahash::RandomState> = OnceLock::new();

/// Keys the hash of fields, unless it is keyed already.
pub(crate) fn key_fields_with([a, b, c, d]: [u64; 4]) {
    // Not the keyspace's own key: what a cursor of HSCAN shows must not help with keys.
    FIELD_HASHER.get_or_init(|| ahash::RandomState::with_seeds(!b, !c, !d, !a));
}

/// Fields and values.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    table: Segmented<Pair>,
    /// Allocated behind the pairs.
    pairs_bytes: usize,
}

/// A field with its value.
#[derive(Debug, Clone)]
enum Pair {
    /// The field's length, the field, the value.
    Small(Box<[u8]>),
    Large(Box<(Box<[u8]>, Blob)>),
}

const _: () = assert!(size_of::<Pair>() == 16);

impl Fields {
    pub(super) const fn new() -> Fields {
        Fields { table: Segmented::new(0), pairs_bytes: 0 }
    }
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        let at = self.table.locate(position(field), |pair| pair.field() == field)?;
        Some(self.table.at(at).value())
    }
    /// Sets `field`; true when it is new.
    pub(super) fn set(&mut self, field: &[u8], value: Blob) -> bool {
        let pair = Pair::new(field, value);
        self.pairs_bytes += pair.heap_bytes();
        match self.table.locate(position(field), |pair| pair.field() == field) {
            Some(at) => {
                let old = std::mem::replace(self.table.at_mut(at), pair);
                self.pairs_bytes -= old.heap_bytes();
                false
            }
            None => {
                self.table.insert_new(pair);
                true
            }
        }
    }
    /// Removes `field`; true when it was there.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(at) = self.table.locate(position(field), |pair| pair.field() == field) else { return false };
        self.pairs_bytes -= self.table.remove_at(at).heap_bytes();
        true
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (Bytes<'_>, Bytes<'_>)> {
        self.table.iter().map(Pair::both)
    }
    pub(super) fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        if cursor != position_of(cursor << (64 - crate::segmented::POSITION_BITS)) {
            return 0; // Beyond all positions.
        }
        let (mut from, mut left) = (cursor, count.max(1));
        loop {
            let (visited, next) = self.table.scan_step(from, left, &mut |pair| {
                let (field, value) = pair.both();
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
        self.table.random(rng).map(Pair::both)
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.pairs_bytes
    }
    #[cfg(test)]
    pub(super) fn shape(&self) -> crate::Shape {
        self.table.shape()
    }
}

impl Pair {
    fn new(field: &[u8], value: Blob) -> Pair {
        if value.len() >= SHARED_BYTES_MIN {
            return Pair::Large(Box::new((field.into(), value)));
        }
        let mut bytes = Vec::with_capacity(sized_bytes(field.len()) + value.len());
        put(&mut bytes, field);
        bytes.extend_from_slice(&value);
        Pair::Small(bytes.into_boxed_slice())
    }
    #[inline]
    fn field(&self) -> &[u8] {
        match self {
            Pair::Small(bytes) => &bytes[sized(bytes, 0)],
            Pair::Large(pair) => &pair.0,
        }
    }
    fn value(&self) -> Bytes<'_> {
        self.both().1
    }
    fn both(&self) -> (Bytes<'_>, Bytes<'_>) {
        match self {
            Pair::Small(bytes) => {
                let field = sized(bytes, 0);
                (Bytes::Slice(&bytes[field.clone()]), Bytes::Slice(&bytes[field.end..]))
            }
            Pair::Large(pair) => (Bytes::Slice(&pair.0), Bytes::Shared(&pair.1)),
        }
    }
    fn heap_bytes(&self) -> usize {
        match self {
            Pair::Small(bytes) => bytes.len(),
            Pair::Large(pair) => size_of::<(Box<[u8]>, Blob)>() + pair.0.len() + pair.1.heap_bytes(),
        }
    }
}

impl Item for Pair {
    fn position(&self) -> u64 {
        position(self.field())
    }
}

/// Bytes that a field of this length takes with its length in front.
fn sized_bytes(len: usize) -> usize {
    len + 1 + (len.max(1).ilog2() as usize) / 7
}
fn position(field: &[u8]) -> u64 {
    position_of(FIELD_HASHER.get_or_init(ahash::RandomState::new).hash_one(field))
}
