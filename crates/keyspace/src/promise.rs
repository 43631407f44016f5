//! [`Promises`]: a write of many keys that happens at one moment and is carried out after it.
//!
//! At that moment the shards of all keys are held, just long enough to give each shard its part. From then on,
//! each look-up first carries out the promises of its key ([`Db`] does this), so nobody sees the former value. The
//! writer carries out the rest in slices. So the write is as atomic as if it had been done at once, nobody waits
//! for it, and no shard is held for long.
//!
//! Operations on whole tables (a flush, a swap, a snapshot, a view) carry out all promises first. Active expiry
//! and eviction skip a shard with promises, because a promise may replace the record that they would remove.
//!
//! Left out: SCAN, RANDOMKEY and counts of keys see the state before the promises.

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

/// Keys, each with a string that never expires, or with nothing for a deletion. Built while no shard is held.
#[derive(Debug, Default)]
pub struct Promises(BTreeMap<usize, Keys>);

/// A shard's part of one [`Promises`].
#[derive(Debug)]
pub(crate) struct Promised {
    slot: usize,
    keys: Keys,
    /// The name of the changes, and their client.
    caller: Caller,
    /// What had expired at the moment of the promise.
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

/// What to do with one key.
struct Due {
    value: Option<Str>,
    caller: Caller,
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

impl Promises {
    /// Promises that `key` gets `value`, or is deleted. The last promise of a key counts.
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
    /// True when a key of this shard has promises.
    #[inline]
    pub(crate) fn is_promised(&self) -> bool {
        !self.promised.is_empty()
    }
    /// Takes out the promises of `key`, the oldest first.
    fn take_due(&mut self, slot: usize, key: &[u8]) -> SmallVec<[Due; 1]> {
        let due: SmallVec<[Due; 1]> =
            self.promised.iter_mut().filter_map(|promised| promised.take(slot, key)).collect();
        if !due.is_empty() {
            self.promised.retain(|promised| !promised.keys.is_empty());
        }
        due
    }
    /// A key with promises, and its slot.
    fn next_promised(&self) -> Option<(usize, Box<[u8]>)> {
        let first = self.promised.first()?;
        Some((first.slot, first.keys.keys().next()?.clone()))
    }
}

impl Txn<'_> {
    /// Makes promises in database `db`, for the current command. Returns the count of records that they have
    /// removed so far. Carry them out by [`Db::peek`] of each key. The command itself names its effect.
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
            // A watcher of a key that then touches other keys must see the change now.
            shard.watchers.raise_where(|of, key| {
                let is_there = || shard.has(slot, position_of(keyspace.key(key).hash.0), key);
                of == slot && keys.get(key).is_some_and(|value| value.is_some() || is_there())
            });
            let promised = Promised { slot, keys, caller, expiry_ms, removed: removed.clone() };
            shard.promised.push(promised);
        }
        removed
    }
    /// Carries out all promises of the held shards.
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
    /// Carries out the promises of `key`.
    #[cold]
    pub(crate) fn settle(&mut self, key: &Key<'_>) {
        let slot = self.slot;
        // Take all of them first. Otherwise each look-up below would carry out the next promise before this one.
        for due in self.shard(key).take_due(slot, key.bytes) {
            // The change belongs to the command that made the promise, not to the work that meets it. That command
            // already named the effect.
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
