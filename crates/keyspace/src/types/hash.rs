//! [`HashValue`]: fields and values; packed while small, a table when large. STARTING VERSION.

use super::Bytes;
use crate::Settings;
use strand_chain::Blob;

/// A hash value.
#[derive(Debug, Clone, Default)]
pub struct HashValue {
    fields: Vec<(Blob, Blob)>,
}

impl HashValue {
    /// An empty hash (packed).
    pub fn new() -> HashValue {
        HashValue::default()
    }
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }
    /// True when it has no field; such a hash must be removed from the keyspace.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        self.fields.iter().find(|(f, _)| &**f == field).map(|(_, v)| Bytes::Shared(v))
    }
    /// Sets `field`; true when it is new. Switches to the table at the thresholds in `settings`.
    pub fn set(&mut self, field: &[u8], value: Blob, _settings: &Settings) -> bool {
        match self.fields.iter_mut().find(|(f, _)| &**f == field) {
            Some((_, v)) => {
                *v = value;
                false
            }
            None => {
                self.fields.push((Blob::from(field), value));
                true
            }
        }
    }
    /// Removes `field`; true when it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let before = self.fields.len();
        self.fields.retain(|(f, _)| &**f != field);
        before != self.fields.len()
    }
    /// All pairs (insertion order while packed).
    pub fn iter(&self) -> impl Iterator<Item = (Bytes<'_>, Bytes<'_>)> {
        self.fields.iter().map(|(f, v)| (Bytes::Shared(f), Bytes::Shared(v)))
    }
    /// Redis's guarantee of HSCAN: calls `visit` for a slice of about `count` pairs from `cursor` on and returns the
    /// next cursor, 0 at the end. A packed hash is returned whole.
    pub fn scan(&self, _cursor: u64, _count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        self.iter().for_each(|(f, v)| visit(f, v));
        0
    }
    /// A uniformly random pair; `None` when empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, Bytes<'_>)> {
        if self.fields.is_empty() { None } else { self.iter().nth(rng.usize(0..self.fields.len())) }
    }
    /// `listpack` or `hashtable`.
    pub fn encoding(&self) -> &'static str {
        "listpack"
    }
    /// Bytes of heap behind it.
    pub fn heap_bytes(&self) -> usize {
        self.fields.iter().map(|(f, v)| f.heap_bytes() + v.heap_bytes() + 16).sum()
    }
}
