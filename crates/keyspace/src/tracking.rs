//! Notes which tracked keys were touched, for followers of the data (the text index).
//!
//! [`PrefixSet`] decides whether a key is tracked. Every write asks the set while it holds the key's shard, so the
//! set answers by a binary search instead of a comparison with every prefix.
//!
//! [`Followed`] counts the touched keys of all shards, and the bytes of their records. While more bytes wait than the
//! follower allows, an alert makes writes of tracked keys wait, so the follower's work stays bounded.

use crate::journal::Wake;
use crate::{RecordRef, ValueRef};
use hashbrown::HashTable;
use parking_lot::RwLock;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};

/// Maximum number of tracked prefixes, for all followers together. Code that takes prefixes from clients must check
/// this limit.
pub const TRACKED_PREFIXES_MAX: usize = 4096;
/// Bit of the keyspace's alerts: more touched bytes wait than [`crate::Keyspace::set_touched_bytes_max`] allows.
pub const TOUCHED_FULL: u16 = 512;
/// A touched key counts as this many bytes besides its record: what a follower needs for a key of any size. (A hash of 100
/// bytes takes 13 us, one of 1,000 bytes 80 us.)
const KEY_BYTES: usize = 256;
/// A touched key whose record a follower does not read counts as this many bytes. (A string under the prefix of a text
/// index takes 0.5 us.)
const UNREAD_KEY_BYTES: usize = 16;
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
    /// Bytes of the records of these keys when the keys were noted, and some for each key.
    pub bytes: usize,
    /// True when database 0 was flushed or swapped, so any key may have changed.
    pub flushed: bool,
    /// The keys and bytes count as waiting until this is dropped.
    _counted: Option<CountedKeys>,
}

/// Keys and bytes that [`Followed`] counts until this is dropped.
#[derive(Debug)]
struct CountedKeys {
    followed: Arc<Followed>,
    keys: usize,
    bytes: usize,
}

impl Drop for CountedKeys {
    fn drop(&mut self) {
        self.followed.remove(self.keys, self.bytes);
    }
}

/// What the followers of all shards share: the tracked prefixes, and the number of touched keys with its limit.
#[derive(Debug)]
pub(crate) struct Followed {
    prefixes: RwLock<PrefixSet>,
    /// Number of touched keys that the follower has not finished ([`Touched`]).
    touched: AtomicUsize,
    /// The bytes of these keys ([`Touched::bytes`]).
    touched_bytes: AtomicUsize,
    /// With more touched bytes, the alert is set.
    touched_bytes_max: AtomicUsize,
    /// True when the followers read no records but hashes.
    reads_hashes_only: AtomicBool,
    /// Wakes the follower when the alert is set.
    wake: OnceLock<Wake>,
    /// Has the bit [`TOUCHED_FULL`] while too many keys wait.
    alerts: OnceLock<Arc<AtomicU16>>,
}

impl Default for Followed {
    fn default() -> Followed {
        Followed {
            prefixes: RwLock::default(),
            touched: AtomicUsize::new(0),
            touched_bytes: AtomicUsize::new(0),
            touched_bytes_max: AtomicUsize::new(usize::MAX),
            reads_hashes_only: AtomicBool::new(false),
            wake: OnceLock::new(),
            alerts: OnceLock::new(),
        }
    }
}

impl Followed {
    pub(crate) fn set_prefixes(&self, prefixes: PrefixSet) {
        *self.prefixes.write() = prefixes;
    }
    /// True when a change of `key` of database 0 is noted.
    pub(crate) fn tracks(&self, key: &[u8]) -> bool {
        self.prefixes.read().covers(key)
    }
    pub(crate) fn touched(&self) -> usize {
        self.touched.load(Relaxed)
    }
    pub(crate) fn touched_bytes(&self) -> usize {
        self.touched_bytes.load(Relaxed)
    }
    pub(crate) fn set_touched_bytes_max(&self, bytes: usize) {
        self.touched_bytes_max.store(bytes, SeqCst);
        self.update_alert();
    }
    pub(crate) fn set_reads_hashes_only(&self, hashes_only: bool) {
        self.reads_hashes_only.store(hashes_only, Relaxed);
    }
    /// Sets the function that wakes the follower. Only the first call has an effect.
    pub(crate) fn set_wake(&self, wake: Wake) {
        let _ = self.wake.set(wake);
    }
    /// Sets the word that gets the bit. Only the first call has an effect.
    pub(crate) fn set_alerts(&self, alerts: Arc<AtomicU16>) {
        let _ = self.alerts.set(alerts);
    }
    fn add(&self, keys: usize, bytes: usize) {
        self.touched.fetch_add(keys, Relaxed);
        let before = self.touched_bytes.fetch_add(bytes, SeqCst);
        if before + bytes > self.touched_bytes_max.load(Relaxed) {
            self.update_alert();
        }
    }
    fn remove(&self, keys: usize, bytes: usize) {
        self.touched.fetch_sub(keys, Relaxed);
        self.touched_bytes.fetch_sub(bytes, SeqCst);
        self.update_alert();
    }
    fn update_alert(&self) {
        let Some(alerts) = self.alerts.get() else { return };
        let is_full = || self.touched_bytes.load(SeqCst) > self.touched_bytes_max.load(SeqCst);
        if is_full() && alerts.fetch_or(TOUCHED_FULL, SeqCst) & TOUCHED_FULL == 0 {
            self.wake.get().into_iter().for_each(|wake| wake.0());
        }
        // Another thread may have taken the keys meanwhile, and must not leave the bit behind: writes would wait.
        if !is_full() && alerts.load(SeqCst) & TOUCHED_FULL != 0 {
            alerts.fetch_and(!TOUCHED_FULL, SeqCst);
        }
    }
}

/// The tracked keys of one shard that were touched, noted for followers. Without followers, a change costs
/// one branch.
#[derive(Debug, Default)]
pub(crate) struct ChangedKeys {
    /// Prefixes of the keys to note, and the count for all shards; `None` without followers.
    follower: Option<(PrefixSet, Arc<Followed>)>,
    /// The tracked keys that were touched.
    touched: HashTable<Noted>,
    flushed: bool,
}

/// A touched key.
#[derive(Debug)]
struct Noted {
    position: u64,
    key: Vec<u8>,
    /// See [`Touched::bytes`].
    bytes: usize,
}

impl ChangedKeys {
    /// Notes keys with these prefixes from now on. Every call must get the same `followed`.
    pub(crate) fn follow(&mut self, prefixes: &PrefixSet, followed: &Arc<Followed>) {
        if prefixes.is_empty() {
            self.take();
        }
        self.follower = (!prefixes.is_empty()).then(|| (prefixes.clone(), followed.clone()));
    }
    #[inline]
    pub(crate) fn has_follower(&self) -> bool {
        self.follower.is_some()
    }
    /// True when changes of `key` are noted.
    pub(crate) fn tracks(&self, key: &[u8]) -> bool {
        self.follower.as_ref().is_some_and(|(prefixes, _)| prefixes.covers(key))
    }
    /// Notes `key` if it is tracked. `record` is the key's record, if there is one.
    pub(crate) fn note(&mut self, position: u64, key: &[u8], record: Option<RecordRef<'_>>) {
        if self.tracks(key) {
            self.note_tracked(position, key, record);
        }
    }
    /// Notes that any key may have changed. Drops the keys noted so far, because the follower must read all keys.
    pub(crate) fn note_all(&mut self) {
        if self.follower.is_some() {
            self.take();
            self.flushed = true;
        }
    }
    pub(crate) fn take(&mut self) -> Touched {
        let touched = std::mem::take(&mut self.touched);
        let bytes = touched.iter().map(|noted| noted.bytes).sum();
        let keys: Vec<_> = touched.into_iter().map(|noted| noted.key).collect();
        let counted = self.follower.as_ref().map(|(_, followed)| {
            let followed = followed.clone();
            CountedKeys { followed, keys: keys.len(), bytes }
        });
        Touched { keys, bytes, flushed: std::mem::take(&mut self.flushed), _counted: counted }
    }
    /// Notes `key`, which is tracked. See [`ChangedKeys::note`].
    pub(crate) fn note_tracked(&mut self, position: u64, key: &[u8], record: Option<RecordRef<'_>>) {
        let Some((_, followed)) = &self.follower else { return };
        let is_unread = |record: &RecordRef<'_>| {
            followed.reads_hashes_only.load(Relaxed) && !matches!(record.value(), ValueRef::Hash(_))
        };
        let bytes = match record {
            Some(record) if is_unread(&record) => UNREAD_KEY_BYTES,
            Some(record) => record.heap_bytes() + KEY_BYTES,
            None => KEY_BYTES,
        };
        // Positions of one shard differ only in their low bits. Copy these bits to the top too, because the hash
        // table takes its tags from the top bits.
        let spread = |position: u64| position << 48 | position;
        let is = |noted: &Noted| noted.position == position && noted.key == key;
        match self.touched.find_mut(spread(position), is) {
            Some(noted) => {
                let more = bytes.saturating_sub(noted.bytes);
                noted.bytes += more;
                followed.add(0, more);
            }
            None => {
                let noted = Noted { position, key: key.to_vec(), bytes };
                self.touched.insert_unique(spread(position), noted, |noted| spread(noted.position));
                followed.add(1, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::string::Str;
    use crate::{Keyspace, Value};
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

    #[test]
    fn the_alert_is_set_while_more_bytes_wait_than_allowed() {
        let keyspace = Keyspace::new(1, 1, [1, 2, 3, 4]);
        let (alerts, wakes) = (Arc::new(AtomicU16::new(1)), Arc::new(AtomicUsize::new(0)));
        keyspace.set_touched_alerts(alerts.clone());
        let counter = wakes.clone();
        keyspace.set_touched_wake(Box::new(move || {
            counter.fetch_add(1, SeqCst);
        }));
        keyspace.track(&[b"a".to_vec()]);
        let set = |key: &[u8], bytes: usize| {
            let key = keyspace.key(key);
            keyspace.lock(&[key.hash], 0).db(0).insert(
                &key,
                Value::Str(Str::from_slice(&vec![7; bytes])),
                None,
            );
        };
        let counts = || (keyspace.touched_len(), keyspace.touched_bytes());
        let is_full = || alerts.load(SeqCst) == TOUCHED_FULL | 1;
        set(b"a1", 10);
        let small = keyspace.touched_bytes();
        assert!((KEY_BYTES..KEY_BYTES + 200).contains(&small), "{small}");
        set(b"a1", 10_000);
        let large = keyspace.touched_bytes();
        assert!((10_000..12_000).contains(&large), "{large}");
        set(b"a1", 10);
        set(b"b1", 10);
        assert_eq!(counts(), (1, large), "each key once, with its largest size, and only tracked keys");
        keyspace.set_touched_bytes_max(large);
        assert!(!is_full());
        set(b"a2", 10);
        assert!(is_full() && wakes.load(SeqCst) == 1);
        set(b"a3", 10);
        assert_eq!(wakes.load(SeqCst), 1, "the follower knows");
        let taken = keyspace.take_touched(0);
        assert_eq!((taken.keys.len(), taken.bytes), counts());
        assert!(is_full(), "the follower works on the keys");
        drop(taken);
        assert_eq!((counts(), alerts.load(SeqCst)), ((0, 0), 1), "other bits stay");
        keyspace.set_followers_read_hashes_only(true);
        set(b"a1", 10_000);
        assert_eq!(counts(), (1, UNREAD_KEY_BYTES));
        drop(keyspace.flush(0));
        assert_eq!(counts(), (0, 0), "the follower reads all keys");
        set(b"a1", 10);
        keyspace.track(&[]);
        assert_eq!(counts(), (0, 0), "nobody follows");
    }

    /// A write takes about as long with 65,536 tracked prefixes as with one. The test times both in turns.
    #[test]
    fn noting_does_not_go_through_all_prefixes() {
        let all: Vec<Vec<u8>> = (0..65_536).map(|i| format!("prefix:{i:05}:").into_bytes()).collect();
        let notes = |prefixes: &[Vec<u8>]| {
            let mut notes = ChangedKeys::default();
            notes.follow(&PrefixSet::new(prefixes.iter().map(Vec::as_slice).collect()), &Arc::default());
            notes
        };
        let (mut one, mut many) = (notes(&all[..1]), notes(&all));
        let time = |notes: &mut ChangedKeys| {
            let start = Instant::now();
            (0..500).for_each(|position| notes.note(position, b"prefix:zzzz", None));
            start.elapsed()
        };
        let (mut least_one, mut least_many) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            least_one = least_one.min(time(&mut one));
            least_many = least_many.min(time(&mut many));
        }
        assert_eq!((one.take().keys.len(), many.take().keys.len()), (0, 0));
        assert!(least_many < least_one * 200, "{least_many:?} with all, {least_one:?} with one");
    }
}
