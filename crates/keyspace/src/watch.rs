//! [`Watchers`]: who wants to know that a key changed (WATCH), per shard.
//!
//! A client that watches keys has one flag. The shard of each watched key keeps the flag; whatever changes the key raises
//! it. Where nobody watches, a change costs one branch.

use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Raised when a watched key changed. Flags are read and raised with the key's shard held, so no order is needed.
pub type WatchFlag = Arc<AtomicBool>;

/// The watched keys of one shard: flags by slot and key.
#[derive(Debug, Default)]
pub(crate) struct Watchers(HashMap<(usize, Box<[u8]>), Vec<WatchFlag>, ahash::RandomState>);

impl Watchers {
    pub(crate) fn add(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) {
        let flags = self.0.entry((slot, key.into())).or_default();
        if !flags.iter().any(|known| Arc::ptr_eq(known, flag)) {
            flags.push(flag.clone());
        }
    }
    pub(crate) fn remove(&mut self, slot: usize, key: &[u8], flag: &WatchFlag) {
        let place = (slot, Box::from(key));
        let Some(flags) = self.0.get_mut(&place) else { return };
        flags.retain(|known| !Arc::ptr_eq(known, flag));
        if flags.is_empty() {
            self.0.remove(&place);
        }
        if self.0.is_empty() {
            self.0 = HashMap::default();
        }
    }
    /// True when somebody watches a key of this shard.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }
    /// The key changed.
    #[cold]
    pub(crate) fn raise(&self, slot: usize, key: &[u8]) {
        if let Some(flags) = self.0.get(&(slot, Box::from(key))) {
            flags.iter().for_each(|flag| flag.store(true, Relaxed));
        }
    }
    /// Every watched key of these slots for which `is_there` says so changed.
    pub(crate) fn raise_where(&self, mut is_there: impl FnMut(usize, &[u8]) -> bool) {
        for ((slot, key), flags) in &self.0 {
            if is_there(*slot, key) {
                flags.iter().for_each(|flag| flag.store(true, Relaxed));
            }
        }
    }
}
