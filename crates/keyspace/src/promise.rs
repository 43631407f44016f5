//! [`Promises`]: a write of many keys that is made at one moment and carried out after it.
//!
//! At the moment the shards of all the keys are held, for as long as it takes to give each shard its part. From then on
//! whoever looks for one of the keys carries out what is promised of that key first ([`Db`] does so at each look-up), so
//! nobody sees the key as it was. Whoever promised carries out the rest in slices. So the write is as atomic as if all had
//! been done at the moment, nobody waits for it, and nothing is held for long.
//!
//! What goes over whole tables (a flush, a swap, a snapshot, a view) carries out everything first. Active expiry and eviction
//! leave a shard with promises alone: what they would remove is another record by then.
//!
//! Left out: SCAN, RANDOMKEY and counts of keys see what is not carried out yet.

use crate::event::Caller;
use crate::extendible::position_of;
use crate::shard::Shard;
use crate::types::string::Str;
use crate::{Db, Key, Keyspace, Txn};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Keys = HashMap<Box<[u8]>, Option<Str>, ahash::RandomState>;

/// Keys with what becomes of each: a string that never expires, or nothing. Made with nothing held.
#[derive(Debug, Default)]
pub struct Promises(BTreeMap<usize, Keys>);

/// What a shard has to do of one [`Promises`].
#[derive(Debug)]
pub(crate) struct Promised {
    slot: usize,
    keys: Keys,
    /// How the changes are called, and whose they are.
    caller: Caller,
    /// What had expired at the moment.
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

/// What is to be done of one key.
struct Due {
    value: Option<Str>,
    caller: Caller,
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

impl Promises {
    /// `key` is to hold `value`, or to be gone. Of one key the last promise counts.
    pub fn add(&mut self, keyspace: &Keyspace, key: &Key<'_>, value: Option<Str>) {
        let keys = self.0.entry(keyspace.shard_of(key.hash)).or_default();
        keys.insert(key.bytes.into(), value);
    }
}

impl Promised {
    fn take(&mut self, slot: usize, key: &[u8]) -> Option<Due> {
        if slot != self.slot {
            return None;
        }
        let value = self.keys.remove(key)?;
        Some(Due { value, caller: self.caller, expiry_ms: self.expiry_ms, removed: self.removed.clone() })
    }
}

impl Shard {
    /// True when something is promised of a key of this shard.
    #[inline]
    pub(crate) fn is_promised(&self) -> bool {
        !self.promised.is_empty()
    }
    /// Takes out what is promised of `key`, the oldest promise first.
    fn take_due(&mut self, slot: usize, key: &[u8]) -> SmallVec<[Due; 1]> {
        let due: SmallVec<[Due; 1]> =
            self.promised.iter_mut().filter_map(|promised| promised.take(slot, key)).collect();
        if !due.is_empty() {
            self.promised.retain(|promised| !promised.keys.is_empty());
        }
        due
    }
    /// A key of which something is promised, and its slot.
    fn next_promised(&self) -> Option<(usize, Box<[u8]>)> {
        let first = self.promised.first()?;
        Some((first.slot, first.keys.keys().next()?.clone()))
    }
}

impl Txn<'_> {
    /// Makes promises in database `db`, of the command that was begun; how many records they have removed so far. To be
    /// carried out by [`Db::peek`] of each key. What the effect is, the command says itself.
    ///
    /// # Panics
    /// When the shard of a key is not held.
    pub fn promise(&mut self, db: usize, promises: Promises) -> Arc<AtomicU64> {
        let keyspace = self.keyspace;
        let (slot, caller, expiry_ms) = (keyspace.slot(db), self.caller, self.clock.expiry_ms);
        let removed = Arc::<AtomicU64>::default();
        for (shard, keys) in promises.0 {
            let held = self.held(shard);
            let shard = &mut held.guard;
            // Whoever watches a key and then touches others must find out now.
            shard.watchers.raise_where(|of, key| {
                let is_there = || shard.has(slot, position_of(keyspace.key(key).hash.0), key);
                of == slot && keys.get(key).is_some_and(|value| value.is_some() || is_there())
            });
            let promised = Promised { slot, keys, caller, expiry_ms, removed: removed.clone() };
            shard.promised.push(promised);
        }
        removed
    }
    /// Carries out what is promised in all held shards.
    pub(crate) fn settle_all(&mut self) {
        let shards: Vec<usize> =
            self.held_shards().filter(|(_, shard)| shard.is_promised()).map(|(at, _)| at).collect();
        for shard in shards {
            while let Some((slot, key)) = self.held(shard).guard.next_promised() {
                let key = self.keyspace.key(&key);
                Db { txn: self, slot }.settle(&key);
            }
        }
    }
}

impl Db<'_, '_> {
    /// Carries out what is promised of `key`.
    #[cold]
    pub(crate) fn settle(&mut self, key: &Key<'_>) {
        let slot = self.slot;
        // All of it at once: each of the look-ups below would else carry out the next promise before this one.
        for due in self.shard(key).take_due(slot, key.bytes) {
            // The change is the promise's, not of the work that meets it: the effect was said when the promise was made.
            let caller = std::mem::replace(&mut self.txn.caller, due.caller);
            let expiry_ms = std::mem::replace(&mut self.txn.clock.expiry_ms, due.expiry_ms);
            let apart = self.txn.set_apart();
            match due.value {
                Some(value) => _ = self.set_str(key, value.view(), None),
                None => {
                    let is_removed = self.delete(key);
                    due.removed.fetch_add(is_removed.into(), Relaxed);
                }
            }
            self.txn.put_together(apart);
            self.txn.clock.expiry_ms = expiry_ms;
            self.txn.caller = caller;
        }
    }
}

#[cfg(test)]
mod tests;
