//! [`Watchers`]: who wants to know that a key changed, per shard: WATCH, and those who wait for it ([`crate::wait`]).
//!
//! A client that watches keys has one flag. The shard of each watched key keeps the flag; whatever changes the key raises
//! it. Where nobody watches and nobody waits, a change costs one branch.

use crate::wait::Waiters;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Raised when a watched key changed. Flags are read and raised with the key's shard held, so no order is needed.
pub type WatchFlag = Arc<AtomicBool>;

/// What came of watching a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// This flag did not watch it before.
    pub is_new: bool,
    /// When it changes by itself: it expires, or fields of it do, in unix milliseconds.
    pub expires_ms: Option<i64>,
}

/// The watched keys of one shard.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// By slot and key.
    flags: HashMap<(usize, Box<[u8]>), Vec<WatchFlag>, ahash::RandomState>,
    pub(crate) waiters: Waiters,
    /// Somebody watches or waits.
    any: bool,
}

impl Watchers {
    /// False: it has the flag already.
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
    /// To be called when fewer may watch or wait, or the first one waits.
    pub(crate) fn look_whether_any(&mut self) {
        self.any = !self.flags.is_empty() || !self.waiters.is_empty();
    }
    /// True when somebody watches a key of this shard or waits for one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any
    }
    /// The key changed.
    #[cold]
    pub(crate) fn raise(&mut self, slot: usize, key: &[u8]) {
        if let Some(flags) = self.flags.get(&(slot, Box::from(key))) {
            flags.iter().for_each(|flag| flag.store(true, Relaxed));
        }
        if !self.waiters.is_empty() {
            self.waiters.signal(slot, key);
        }
    }
    /// Every watched key of these slots for which `is_there` says so changed.
    pub(crate) fn raise_where(&self, mut is_there: impl FnMut(usize, &[u8]) -> bool) {
        for ((slot, key), flags) in &self.flags {
            if is_there(*slot, key) {
                flags.iter().for_each(|flag| flag.store(true, Relaxed));
            }
        }
    }
}
