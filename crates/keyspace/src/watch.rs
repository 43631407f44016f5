//! [`Watchers`]: who learns that a key of the shard changed: WATCH, and clients that wait for a key ([`crate::wait`]).
//!
//! A client has one flag for all its watched keys. The shard of each watched key has the flag, and each change of
//! the key raises it. While nobody watches or waits, a change costs one branch.

use crate::wait::Waiters;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Raised when a watched key changed. Flags are read and raised with the key's shard held, so no memory order is
/// needed.
pub type WatchFlag = Arc<AtomicBool>;

/// Result of watching a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// This flag did not watch the key before.
    pub is_new: bool,
    /// Time at which the key, or a field of it, expires (unix milliseconds).
    pub expires_ms: Option<i64>,
}

/// The watched keys of one shard.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// By slot and key.
    flags: HashMap<(usize, Box<[u8]>), Vec<WatchFlag>, ahash::RandomState>,
    pub(crate) waiters: Waiters,
    /// True while somebody watches or waits.
    any: bool,
}

impl Watchers {
    /// Adds a flag. Returns false when the key has it already.
    pub(crate) fn add(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) -> bool {
        let flags = self.flags.entry((slot, key.into())).or_default();
        let is_new = !flags.iter().any(|known| Arc::ptr_eq(known, flag));
        if is_new {
            flags.push(flag.clone());
        }
        self.any = true;
        is_new
    }
    pub(crate) fn remove(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) {
        let place = (slot, Box::from(key));
        let Some(flags) = self.flags.get_mut(&place) else { return };
        flags.retain(|known| !Arc::ptr_eq(known, flag));
        if flags.is_empty() {
            self.flags.remove(&place);
        }
        if self.flags.is_empty() {
            self.flags = HashMap::default();
        }
        self.look_whether_any();
    }
    /// Call this when the number of watchers or waiters may have become zero, or is no longer zero.
    pub(crate) fn look_whether_any(&mut self) {
        self.any = !self.flags.is_empty() || !self.waiters.is_empty();
    }
    /// True when somebody watches a key of this shard or waits for one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any
    }
    /// Raises the flags of a changed key, and signals its waiters.
    #[cold]
    pub(crate) fn raise(&mut self, slot: usize, key: &[u8]) {
        if let Some(flags) = self.flags.get(&(slot, Box::from(key))) {
            flags.iter().for_each(|flag| flag.store(true, Relaxed));
        }
        if !self.waiters.is_empty() {
            self.waiters.signal(slot, key);
        }
    }
    /// Raises the flags of every watched key for which `is_there` returns true.
    pub(crate) fn raise_where(&self, mut is_there: impl FnMut(usize, &[u8]) -> bool) {
        for ((slot, key), flags) in &self.flags {
            if is_there(*slot, key) {
                flags.iter().for_each(|flag| flag.store(true, Relaxed));
            }
        }
    }
}
