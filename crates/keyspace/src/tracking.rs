//! Keyspace events for whoever follows the data (the text index): which tracked keys were touched since last asked.

use hashbrown::HashTable;
use std::sync::Arc;

/// What happened in one shard since the last [`crate::Keyspace::take_touched`].
#[derive(Debug, Default)]
pub struct Touched {
    /// Keys of database 0 under a tracked prefix that were written, expired, evicted or deleted; each once.
    pub keys: Vec<Vec<u8>>,
    /// True when database 0 was flushed or swapped: everything may have changed.
    pub flushed: bool,
}

/// A shard's notes for its follower. Without one, noting costs a branch.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Prefixes of the keys to note; `None` when nobody follows.
    prefixes: Option<Arc<[Vec<u8>]>>,
    /// Position and key.
    touched: HashTable<(u64, Vec<u8>)>,
    flushed: bool,
}

impl Notes {
    pub(crate) fn follow(&mut self, prefixes: Option<Arc<[Vec<u8>]>>) {
        self.prefixes = prefixes;
        if self.prefixes.is_none() {
            self.take();
        }
    }
    /// Takes note of `key`, if it is followed.
    #[inline]
    pub(crate) fn note(&mut self, position: u64, key: &[u8]) {
        if self.prefixes.is_some() {
            self.note_followed(position, key);
        }
    }
    /// Everything may have changed: that says more than the keys noted so far.
    pub(crate) fn note_all(&mut self) {
        if self.prefixes.is_some() {
            self.touched = HashTable::new();
            self.flushed = true;
        }
    }
    pub(crate) fn take(&mut self) -> Touched {
        let keys = std::mem::take(&mut self.touched).into_iter().map(|(_, key)| key).collect();
        Touched { keys, flushed: std::mem::take(&mut self.flushed) }
    }
    pub(crate) fn len(&self) -> usize {
        self.touched.len()
    }
    #[cold]
    fn note_followed(&mut self, position: u64, key: &[u8]) {
        let Some(prefixes) = &self.prefixes else { return };
        if !prefixes.iter().any(|p| key.starts_with(p)) {
            return;
        }
        // Bits that differ within a shard, at both ends: the table takes its tags from the top.
        let spread = |position: u64| position << 48 | position;
        let is = |noted: &(u64, Vec<u8>)| noted.0 == position && noted.1 == key;
        if self.touched.find(spread(position), is).is_none() {
            self.touched.insert_unique(spread(position), (position, key.to_vec()), |noted| spread(noted.0));
        }
    }
}
