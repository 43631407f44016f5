//! Notes which tracked keys were touched, for followers of the data (the text index).
//!
//! [`PrefixSet`] decides whether a key is tracked. Every write asks the set while it holds the key's shard, so the
//! set answers by a binary search instead of a comparison with every prefix.

use hashbrown::HashTable;
use std::sync::Arc;

/// Maximum number of tracked prefixes, for all followers together. Code that takes prefixes from clients must check
/// this limit.
pub const TRACKED_PREFIXES_MAX: usize = 4096;
/// Maximum length of a tracked prefix, in bytes. Code that takes prefixes from clients must check this limit.
pub const TRACKED_PREFIX_BYTES_MAX: usize = 4096;

/// A sorted list of key prefixes. A prefix that begins with another prefix is left out, so at most one prefix
/// matches a key: the last prefix that does not sort after the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixSet(Arc<[Box<[u8]>]>);

impl PrefixSet {
    /// A set of these `prefixes`, in any order. An empty prefix matches every key.
    pub fn new(mut prefixes: Vec<&[u8]>) -> PrefixSet {
        prefixes.sort_unstable();
        // A prefix that begins with another one follows directly after it.
        prefixes.dedup_by(|next, kept| next.starts_with(kept));
        PrefixSet(prefixes.into_iter().map(Box::from).collect())
    }
    /// True when `key` begins with one of the prefixes.
    pub fn covers(&self, key: &[u8]) -> bool {
        let behind = self.0.partition_point(|prefix| **prefix <= *key);
        behind.checked_sub(1).is_some_and(|last| key.starts_with(&self.0[last]))
    }
    /// True when there are no prefixes, so no key is tracked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Changes in one shard since the last [`crate::Keyspace::take_touched`].
#[derive(Debug, Default)]
pub struct Touched {
    /// Keys of database 0 under a tracked prefix that were written, expired, evicted or deleted, each once.
    pub keys: Vec<Vec<u8>>,
    /// True when database 0 was flushed or swapped, so any key may have changed.
    pub flushed: bool,
}

/// The tracked keys of one shard that were touched, noted for followers. Without followers, a change costs
/// one branch.
#[derive(Debug, Default)]
pub(crate) struct ChangedKeys {
    /// Prefixes of the keys to note; `None` without followers.
    prefixes: Option<PrefixSet>,
    /// The tracked keys that were touched, each with its position.
    touched: HashTable<(u64, Vec<u8>)>,
    flushed: bool,
}

impl ChangedKeys {
    pub(crate) fn follow(&mut self, prefixes: &PrefixSet) {
        self.prefixes = (!prefixes.is_empty()).then(|| prefixes.clone());
        if self.prefixes.is_none() {
            self.take();
        }
    }
    /// Notes `key` if it is tracked.
    #[inline]
    pub(crate) fn note(&mut self, position: u64, key: &[u8]) {
        if self.prefixes.is_some() {
            self.note_followed(position, key);
        }
    }
    /// Notes that any key may have changed. Drops the keys noted so far, because the follower must read all keys.
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
        if !prefixes.covers(key) {
            return;
        }
        // Positions of one shard differ only in their low bits. Copy these bits to the top too, because the hash
        // table takes its tags from the top bits.
        let spread = |position: u64| position << 48 | position;
        let is = |noted: &(u64, Vec<u8>)| noted.0 == position && noted.1 == key;
        if self.touched.find(spread(position), is).is_none() {
            self.touched.insert_unique(spread(position), (position, key.to_vec()), |noted| spread(noted.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn prefix_set_covers_keys_with_its_prefixes() {
        let rng = &mut fastrand::Rng::with_seed(11);
        let mut text = |bytes_max: usize| -> Vec<u8> {
            (0..rng.usize(..=bytes_max)).map(|_| rng.u8(b'a'..=b'c')).collect()
        };
        for round in 0..2000 {
            let prefixes: Vec<Vec<u8>> = (0..round % 12).map(|_| text(4)).collect();
            let set = PrefixSet::new(prefixes.iter().map(Vec::as_slice).collect());
            assert_eq!(set.is_empty(), prefixes.is_empty());
            for _ in 0..20 {
                let key = text(6);
                let want = prefixes.iter().any(|p| key.starts_with(p));
                assert_eq!(set.covers(&key), want, "{key:?} under {prefixes:?}");
            }
        }
    }

    #[test]
    fn prefixes_that_another_covers_are_dropped() {
        let set = PrefixSet::new(vec![b"ab", b"a", b"b:", b"abc", b"b:", b"b"]);
        assert_eq!(set.0.iter().map(|p| &p[..]).collect::<Vec<_>>(), [&b"a"[..], b"b"]);
        assert_eq!(PrefixSet::new(vec![b"x", b"", b"y"]).0.len(), 1);
    }

    /// A write takes about as long with 65,536 tracked prefixes as with one. The test times both in turns.
    #[test]
    fn noting_does_not_go_through_all_prefixes() {
        let all: Vec<Vec<u8>> = (0..65_536).map(|i| format!("prefix:{i:05}:").into_bytes()).collect();
        let notes = |prefixes: &[Vec<u8>]| {
            let mut notes = ChangedKeys::default();
            notes.follow(&PrefixSet::new(prefixes.iter().map(Vec::as_slice).collect()));
            notes
        };
        let (mut one, mut many) = (notes(&all[..1]), notes(&all));
        let time = |notes: &mut ChangedKeys| {
            let start = Instant::now();
            (0..500).for_each(|position| notes.note(position, b"prefix:zzzz"));
            start.elapsed()
        };
        let (mut least_one, mut least_many) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            least_one = least_one.min(time(&mut one));
            least_many = least_many.min(time(&mut many));
        }
        assert_eq!((one.len(), many.len()), (0, 0));
        assert!(least_many < least_one * 200, "{least_many:?} with all, {least_one:?} with one");
    }
}
