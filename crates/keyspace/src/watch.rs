//! [`Watchers`]: the clients that are notified when a key of a shard changes. They watch the key (WATCH) or wait for
//! it ([`crate::wait`]).
//!
//! A client has one flag for all its watched keys. The shard of each watched key holds a reference to this flag,
//! and each change of the key raises it. While nobody watches a key of the shard or waits for one, a change costs
//! one branch. A flush or a swap of databases looks at the flags and not at the keys ([`WatchList`]).

use crate::wait::Waiters;
use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The flag of a client's watched keys, shared by their shards.
pub type WatchFlag = Arc<WatchState>;

/// Raised when a watched key has changed. The state is read and raised while the key's shard is held, so `Relaxed`
/// suffices.
#[derive(Debug, Default)]
pub struct WatchState {
    has_changed: AtomicBool,
    slots: Mutex<SmallVec<[WatchedSlot; 1]>>,
}

/// What a flag watches in the database of one slot.
#[derive(Clone, Copy, Debug)]
struct WatchedSlot {
    slot: usize,
    /// True when a key existed when it was watched. Since then either the key exists, or the flag is raised.
    has_present: bool,
    /// True when a key did not exist when it was watched.
    has_absent: bool,
}

impl WatchState {
    /// True when a watched key has changed.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Relaxed)
    }
    fn raise(&self) {
        self.has_changed.store(true, Relaxed);
    }
    /// Notes a watched key. Returns true for the first one.
    pub(crate) fn note(&self, slot: usize, is_present: bool) -> bool {
        let mut slots = self.slots.lock();
        let is_first = slots.is_empty();
        let at = slots.iter().position(|watched| watched.slot == slot).unwrap_or(slots.len());
        if at == slots.len() {
            slots.push(WatchedSlot { slot, has_present: false, has_absent: false });
        }
        slots[at].has_present |= is_present;
        slots[at].has_absent |= !is_present;
        is_first
    }
    /// Raises the flag if one of its keys existed in one of these slots. Returns true when it is not raised, and watches
    /// a key there that did not exist.
    fn raise_if_present(&self, in_slots: &[usize]) -> bool {
        let slots = self.slots.lock();
        let mut watched = slots.iter().filter(|watched| in_slots.contains(&watched.slot));
        if watched.clone().any(|watched| watched.has_present) {
            self.raise();
        }
        !self.has_changed() && watched.any(|watched| watched.has_absent)
    }
}

/// The flags of all clients that watch keys. A flag that has ended stays for a while.
#[derive(Debug, Default)]
pub(crate) struct WatchList {
    flags: Vec<Weak<WatchState>>,
    /// When the list has this many flags, those that have ended are removed.
    pruned_at: usize,
}

/// The list of flags has room for this many without a look for those that have ended.
const FLAGS_MIN: usize = 64;

impl WatchList {
    pub(crate) fn add(&mut self, flag: &WatchFlag) {
        if self.flags.len() >= self.pruned_at {
            self.flags.retain(|flag| flag.strong_count() > 0);
            self.pruned_at = FLAGS_MIN.max(2 * self.flags.len());
        }
        self.flags.push(Arc::downgrade(flag));
    }
    /// A flush or a swap takes away the tables of these slots: raises the flags whose keys existed there. Returns the
    /// other flags that watch keys there.
    pub(crate) fn take_away(&self, slots: &[usize]) -> Vec<WatchFlag> {
        self.flags.iter().filter_map(Weak::upgrade).filter(|flag| flag.raise_if_present(slots)).collect()
    }
}

/// Raises all flags.
pub(crate) fn raise_all(flags: &[WatchFlag]) {
    flags.iter().for_each(|flag| flag.raise());
}

/// Result of watching a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// True when this flag was not watching the key already.
    pub is_new: bool,
    /// The earliest time at which the key or a field of it expires (unix milliseconds).
    pub expires_ms: Option<i64>,
}

/// A key of one database: the database's slot, and the bytes of the key.
pub(crate) type SlotKey = (usize, Box<[u8]>);

/// A borrowed [`SlotKey`], with which a table is searched without an allocation.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct SlotKeyRef<'a>(pub(crate) usize, pub(crate) &'a [u8]);

impl Equivalent<SlotKey> for SlotKeyRef<'_> {
    fn equivalent(&self, of: &SlotKey) -> bool {
        self.0 == of.0 && *self.1 == *of.1
    }
}

/// The watched keys of one shard, and the clients that wait for its keys.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// The flags of the watches, by slot and key.
    flags: HashMap<SlotKey, Vec<WatchFlag>, ahash::RandomState>,
    pub(crate) waiters: Waiters,
    /// True while somebody watches a key of the shard or waits for one.
    has_any: bool,
}

impl Watchers {
    /// Adds a flag to a key. Returns false when the flag watches the key already.
    pub(crate) fn add(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) -> bool {
        let flags = self.flags.entry((slot, key.into())).or_default();
        let is_new = !flags.iter().any(|known| Arc::ptr_eq(known, flag));
        if is_new {
            flags.push(flag.clone());
        }
        self.has_any = true;
        is_new
    }
    pub(crate) fn remove(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) {
        let place = SlotKeyRef(slot, key);
        let Some(flags) = self.flags.get_mut(&place) else { return };
        flags.retain(|known| !Arc::ptr_eq(known, flag));
        if flags.is_empty() {
            self.flags.remove(&place);
        }
        if self.flags.is_empty() {
            self.flags = HashMap::default();
        }
        self.update_has_any();
    }
    /// Recomputes `has_any`. Call this after flags or waiters were added or removed.
    pub(crate) fn update_has_any(&mut self) {
        self.has_any = !self.flags.is_empty() || !self.waiters.is_empty();
    }
    /// True when somebody watches a key of this shard or waits for one.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any
    }
    /// Raises the flags that watch a changed key, and signals the clients that wait for the key.
    #[cold]
    pub(crate) fn raise(&mut self, slot: usize, key: &[u8]) {
        self.raise_if(slot, key, || true);
        if !self.waiters.is_empty() {
            self.waiters.signal(slot, key);
        }
    }
    /// Raises the flags that watch the key, if `has_changed` returns true. Calls it only for a watched key.
    pub(crate) fn raise_if(&self, slot: usize, key: &[u8], has_changed: impl FnOnce() -> bool) {
        if let Some(flags) = self.flags.get(&SlotKeyRef(slot, key))
            && has_changed()
        {
            raise_all(flags);
        }
    }
    /// Number of watched keys.
    pub(crate) fn watched(&self) -> usize {
        self.flags.len()
    }
    /// Raises the flags of every watched key (slot and key) for which `is_there` returns true.
    pub(crate) fn raise_where(&self, mut is_there: impl FnMut(usize, &[u8]) -> bool) {
        for ((slot, key), flags) in &self.flags {
            if is_there(*slot, key) {
                raise_all(flags);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keyspace;

    const NOW_MS: i64 = 1;

    fn set(keyspace: &Keyspace, db: usize, name: &str) {
        let key = keyspace.key(name.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(db).set_str(&key, crate::StrRef::of(b"value"), None);
    }
    fn watch(keyspace: &Keyspace, db: usize, name: &str, flag: &WatchFlag) {
        let key = keyspace.key(name.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(db).watch(&key, flag);
    }
    fn watching(keyspace: &Keyspace, db: usize, name: &str) -> WatchFlag {
        let flag = WatchFlag::default();
        watch(keyspace, db, name, &flag);
        flag
    }

    #[test]
    fn a_flush_changes_the_watched_keys_that_exist() {
        let keyspace = Keyspace::new(4, 2, [1, 2, 3, 4]);
        set(&keyspace, 0, "there");
        set(&keyspace, 1, "there");
        let flags =
            [(0, "there"), (0, "missing"), (1, "there")].map(|(db, name)| watching(&keyspace, db, name));
        // A flag of several keys and databases.
        let of_many = watching(&keyspace, 1, "missing");
        watch(&keyspace, 0, "missing", &of_many);
        keyspace.lock_all(NOW_MS).flush(0);
        assert_eq!(flags.each_ref().map(|flag| flag.has_changed()), [true, false, false]);
        assert!(!of_many.has_changed());
        watch(&keyspace, 1, "there", &of_many);
        keyspace.lock_all(NOW_MS).flush(1);
        assert!(flags[2].has_changed() && of_many.has_changed());
    }

    #[test]
    fn a_swap_changes_the_watched_keys_that_exist_in_either_database() {
        let keyspace = Keyspace::new(4, 2, [1, 2, 3, 4]);
        set(&keyspace, 0, "here");
        set(&keyspace, 1, "other");
        let flags = ["here", "other", "nowhere"]
            .map(|name| [watching(&keyspace, 0, name), watching(&keyspace, 1, name)]);
        keyspace.lock_all(NOW_MS).swap(0, 1);
        let changed = flags.each_ref().map(|of| of.each_ref().map(|flag| flag.has_changed()));
        assert_eq!(changed, [[true; 2], [true; 2], [false; 2]]);
        // With very many watched keys, a swap does not look at them.
        let many = WatchFlag::default();
        (0..=8192).for_each(|n| watch(&keyspace, 0, &format!("missing {n}"), &many));
        keyspace.lock_all(NOW_MS).swap(0, 1);
        assert!(many.has_changed());
    }

    #[test]
    fn the_list_of_flags_forgets_those_that_have_ended() {
        let keyspace = Keyspace::new(4, 2, [1, 2, 3, 4]);
        let kept = watching(&keyspace, 0, "kept");
        for _ in 0..1000 {
            let flag = watching(&keyspace, 0, "key");
            keyspace.unwatch(0, b"key", &flag);
        }
        assert!(keyspace.watches.lock().flags.len() <= 2 * FLAGS_MIN);
        assert_eq!(keyspace.watches.lock().take_away(&[0]).len(), 1);
        drop(kept);
    }
}
