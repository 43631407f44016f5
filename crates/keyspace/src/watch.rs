//! [`Watchers`]: the clients that are notified when a key of a shard changes. They watch the key (WATCH) or wait for
//! it ([`crate::wait`]).
//!
//! A client has one flag for all its watched keys. The shard of each watched key holds a reference to this flag,
//! and each change of the key raises it. While nobody watches a key of the shard or waits for one, a change costs
//! one branch.

use crate::wait::Waiters;
use hashbrown::{Equivalent, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Set to true when a watched key has changed. A flag is read and raised while the key's shard is held, so
/// `Relaxed` suffices.
pub type WatchFlag = Arc<AtomicBool>;

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
            flags.iter().for_each(|flag| flag.store(true, Relaxed));
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
                flags.iter().for_each(|flag| flag.store(true, Relaxed));
            }
        }
    }
}
