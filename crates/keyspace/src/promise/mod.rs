//! [`Promises`]: a write of many keys that takes effect at one moment and is carried out afterwards, in slices.
//!
//! At that moment, the shards of all the keys are held, just long enough to store the promises in them. From then
//! on, a lookup of one of the keys carries out its promises first ([`Db`] does this), so nobody sees the
//! former value. The writer carries out the promises of all other keys in slices. So the write is atomic, nobody
//! waits for it, and no shard is held for long. A key for which clients wait (BLPOP) is written at that moment, and
//! its waiters are served.
//!
//! A flush, a swap and a snapshot first carry out all promises of their shards. A view first carries out those of
//! its keys. Active expiry and eviction skip a shard with promises, because a promise may replace the record that
//! they would remove. [`crate::draft`] turns the changes of a whole transaction into promises.
//!
//! SCAN, RANDOMKEY and counts of keys are an exception: outside transactions and scripts they show the state before the
//! promises. A transaction and a script first carry out all promises of their shards. A script on a draft does so for each
//! shard whose keys it lists ([`crate::ReadSet::list`]).

use crate::draft::DraftedKey;
use crate::event::EventSource;
use crate::extendible::position_of;
use crate::shard::Shard;
use crate::types::string::Str;
use crate::{Db, Key, Keyspace, Txn};
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

type Keys = HashMap<Box<[u8]>, Promise, ahash::RandomState>;
/// Positions of keys.
pub(crate) type PositionSet = HashSet<u64, ahash::RandomState>;

/// Keys, each with the change that it will get. Built while no shard is held.
#[derive(Debug, Default)]
pub struct Promises {
    parts: BTreeMap<usize, ShardPromises>,
    /// Number of promises made so far.
    count: usize,
}

/// The promises for keys of one shard.
#[derive(Debug, Default)]
struct ShardPromises {
    keys: Keys,
    positions: PositionSet,
}

/// The promise of one key.
#[derive(Debug)]
struct Promise {
    /// Number of promises that were added before this one.
    order: usize,
    change: PromisedChange,
}

/// The change of a key when its promise is carried out.
#[derive(Debug)]
pub(crate) enum PromisedChange {
    Deleted,
    /// The key gets this string, and this expiry in unix milliseconds. `None`: no expiry.
    Set(Str, Option<i64>),
    /// The key gets its state from a transaction in a draft.
    Drafted(Box<DraftedKey>),
}

impl PromisedChange {
    /// True when the key exists afterwards.
    fn leaves_record(&self) -> bool {
        match self {
            PromisedChange::Deleted => false,
            PromisedChange::Set(..) => true,
            PromisedChange::Drafted(made) => made.leaves_record(),
        }
    }
}

/// The promises of one [`Promises`] that belong to one shard.
#[derive(Debug)]
pub(crate) struct PendingPromises {
    slot: usize,
    keys: Keys,
    /// Positions of all the keys, including keys whose promises were carried out already.
    positions: PositionSet,
    /// The event name and the client of the command that made the promises.
    caller: EventSource,
    /// Time of the promises: a record with this expiry or an earlier one had expired then.
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

/// A promise that is about to be carried out.
struct DuePromise {
    change: PromisedChange,
    caller: EventSource,
    expiry_ms: i64,
    removed: Arc<AtomicU64>,
}

impl Promises {
    /// Promises to set `key` to `value` with this expiry in unix milliseconds. `None`: no expiry. If a key has several
    /// promises, only the last one counts.
    pub fn set(&mut self, keyspace: &Keyspace, key: &Key<'_>, value: Str, expire_at_ms: Option<i64>) {
        self.push(keyspace, key, PromisedChange::Set(value, expire_at_ms));
    }
    /// Promises to delete `key`. If a key has several promises, only the last one counts.
    pub fn delete(&mut self, keyspace: &Keyspace, key: &Key<'_>) {
        self.push(keyspace, key, PromisedChange::Deleted);
    }
    pub(crate) fn push(&mut self, keyspace: &Keyspace, key: &Key<'_>, change: PromisedChange) {
        let part = self.parts.entry(keyspace.shard_of(key.hash)).or_default();
        part.keys.insert(key.bytes.into(), Promise { order: self.count, change });
        part.positions.insert(position_of(key.hash.0));
        self.count += 1;
    }
    /// True when there is a promise for `key`.
    pub fn has(&self, keyspace: &Keyspace, key: &Key<'_>) -> bool {
        self.parts.get(&keyspace.shard_of(key.hash)).is_some_and(|part| part.keys.contains_key(key.bytes))
    }
    /// True when no promise was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl PendingPromises {
    fn take(&mut self, slot: usize, key: &[u8]) -> Option<DuePromise> {
        if slot != self.slot {
            return None;
        }
        let change = self.keys.remove(key)?.change;
        Some(DuePromise {
            change,
            caller: self.caller,
            expiry_ms: self.expiry_ms,
            removed: self.removed.clone(),
        })
    }
    /// True when one of these positions, which ascend, is the position of a promised key. Another key may have that
    /// position, too.
    fn meets(&self, slot: usize, positions: &[u64]) -> bool {
        slot == self.slot
            && match self.positions.len() < positions.len() {
                true => self.positions.iter().any(|position| positions.binary_search(position).is_ok()),
                false => positions.iter().any(|position| self.positions.contains(position)),
            }
    }
}

impl Shard {
    /// True when this shard has promises that are not carried out yet.
    #[inline]
    pub(crate) fn has_promises(&self) -> bool {
        !self.pending_promises.is_empty()
    }
    /// True when a key at one of these positions, which ascend, may have a promise. A key whose promises were
    /// carried out already may still count.
    pub(crate) fn may_have_promise(&self, slot: usize, positions: &[u64]) -> bool {
        self.pending_promises.iter().any(|promised| promised.meets(slot, positions))
    }
    /// The keys with promises at these positions, which ascend.
    fn promised_keys_at(&self, keyspace: &Keyspace, slot: usize, positions: &[u64]) -> Vec<Box<[u8]>> {
        let meeting = self.pending_promises.iter().filter(|promised| promised.meets(slot, positions));
        let is_at = |key: &[u8]| positions.binary_search(&position_of(keyspace.key(key).hash.0)).is_ok();
        meeting.flat_map(|promised| promised.keys.keys().filter(|key| is_at(key))).cloned().collect()
    }
    /// Removes the promises of `key` from this shard and returns them, the oldest first.
    fn take_due(&mut self, slot: usize, key: &[u8]) -> SmallVec<[DuePromise; 1]> {
        let due: SmallVec<[DuePromise; 1]> =
            self.pending_promises.iter_mut().filter_map(|promised| promised.take(slot, key)).collect();
        if !due.is_empty() {
            self.pending_promises.retain(|promised| !promised.keys.is_empty());
        }
        due
    }
    /// At most `max` keys that have promises, and the slot of their database.
    fn next_promised_keys(&self, max: usize) -> Option<(usize, Vec<Box<[u8]>>)> {
        let first = self.pending_promises.first()?;
        Some((first.slot, first.keys.keys().take(max).cloned().collect()))
    }
}

impl Txn<'_> {
    /// Stores promises for keys of database `db`, as a write of the current command. The caller then carries them
    /// out by [`Db::peek`] of each key, and records the command's effect itself. Returns a counter of the records
    /// that the promises have deleted so far.
    ///
    /// # Panics
    /// Panics if the shard of a key is not held.
    pub fn promise(&mut self, db: usize, promises: Promises) -> Arc<AtomicU64> {
        let keyspace = self.keyspace;
        let (slot, caller, expiry_ms) = (keyspace.slot(db), self.caller, self.clock.expiry_ms);
        let removed = Arc::<AtomicU64>::default();
        let mut awaited = Vec::new();
        for (shard, ShardPromises { keys, positions }) in promises.parts {
            let held = self.shard_guard(shard);
            let shard = &mut held.lock;
            // Raise the flags of WATCH now. A transaction that watches one of these keys may touch only other keys,
            // so its look-ups would not carry out the promise.
            let watchers = &shard.watchers;
            let changes = |key: &[u8], promise: &Promise| match &promise.change {
                PromisedChange::Deleted => shard.has(slot, position_of(keyspace.key(key).hash.0), key),
                PromisedChange::Set(..) => true,
                PromisedChange::Drafted(made) => made.outdates_watches(),
            };
            // Walk the smaller set: one client may watch a million keys, or wait for them.
            match keys.len() < watchers.watched() {
                true => keys
                    .iter()
                    .for_each(|(key, promise)| watchers.raise_if(slot, key, || changes(key, promise))),
                false => watchers.raise_where(|of, key| {
                    of == slot && keys.get(key).is_some_and(|promise| changes(key, promise))
                }),
            }
            let waiters = &watchers.waiters;
            match keys.len() < waiters.len() {
                true => {
                    let waited_for = keys.iter().filter(|(key, _)| waiters.has(slot, key));
                    awaited.extend(waited_for.map(|(key, promise)| (promise.order, key.clone())));
                }
                false => {
                    let promised = |key: &[u8]| Some((keys.get(key)?.order, Box::<[u8]>::from(key)));
                    awaited.extend(waiters.keys_of(slot).filter_map(promised));
                }
            }
            for shard_reads in shard.keepers.iter().flat_map(|keepers| &keepers.reads) {
                shard_reads.note_promises(slot, &positions);
                let added_or_removed = keys.iter().filter(|(key, promise)| {
                    let position = position_of(keyspace.key(key).hash.0);
                    promise.change.leaves_record() != shard.has_live(slot, position, key, expiry_ms)
                });
                shard_reads.note_promised_names(slot, keys.len(), added_or_removed.map(|(key, _)| &**key));
            }
            let removed = removed.clone();
            shard.pending_promises.push(PendingPromises {
                slot,
                keys,
                positions,
                caller,
                expiry_ms,
                removed,
            });
        }
        awaited.sort_unstable();
        for (_, key) in awaited {
            Db { txn: self, slot }.carry_out_promises(&keyspace.key(&key));
        }
        removed
    }
    /// Carries out the promises of the keys at these positions, which ascend, of a held shard.
    pub(crate) fn carry_out_promises_at(&mut self, shard: usize, slot: usize, positions: &[u64]) {
        let keyspace = self.keyspace;
        for key in self.shard_guard(shard).lock.promised_keys_at(keyspace, slot, positions) {
            Db { txn: self, slot }.carry_out_promises(&keyspace.key(&key));
        }
    }
    /// Number of keys in the held shards whose promises are not carried out yet.
    pub fn promised_keys(&self) -> usize {
        let of_shard =
            |shard: &Shard| shard.pending_promises.iter().map(|promised| promised.keys.len()).sum::<usize>();
        self.held_shards().map(|(_, shard)| of_shard(shard)).sum()
    }
    /// Carries out all promises of the held shards.
    pub fn carry_out_all_promises(&mut self) {
        let shards: Vec<usize> =
            self.held_shards().filter(|(_, shard)| shard.has_promises()).map(|(at, _)| at).collect();
        for shard in shards {
            while self.carry_out_promises_of(shard, usize::MAX) {}
        }
    }
    /// Carries out promises of at most `keys_max` keys of a held shard, the oldest first. False: the shard had none.
    pub fn carry_out_promises_of(&mut self, shard: usize, keys_max: usize) -> bool {
        let next = self.shard_guard(shard).lock.next_promised_keys(keys_max);
        let Some((slot, keys)) = next else { return false };
        for key in keys {
            let key = self.keyspace.key(&key);
            Db { txn: self, slot }.carry_out_promises(&key);
        }
        true
    }
}

impl Db<'_, '_> {
    /// Carries out the promises of `key`.
    #[cold]
    pub(crate) fn carry_out_promises(&mut self, key: &Key<'_>) {
        let slot = self.slot;
        // Take all promises of the key first. Otherwise the look-up below would carry out the next promise before
        // this one.
        for due in self.shard(key).take_due(slot, key.bytes) {
            // The change belongs to the command that made the promise, not to the command whose look-up carries it
            // out. The effect of the first command is recorded already.
            let caller = std::mem::replace(&mut self.txn.caller, due.caller);
            let expiry_ms = self.txn.clock.expiry_ms;
            self.txn.clock.set_expiry(due.expiry_ms);
            let suspended = self.txn.suspend_effects();
            match due.change {
                PromisedChange::Set(value, at_ms) => _ = self.set_str(key, value.view(), at_ms),
                PromisedChange::Drafted(made) => self.make(key, *made),
                PromisedChange::Deleted => {
                    let is_removed = self.delete(key);
                    due.removed.fetch_add(is_removed.into(), Relaxed);
                }
            }
            self.txn.resume_effects(suspended);
            self.txn.clock.set_expiry(expiry_ms);
            self.txn.caller = caller;
        }
    }
}

#[cfg(test)]
mod tests;
