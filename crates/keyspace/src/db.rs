//! [`Locked`]: the shards a command holds; [`Db`]: one database seen through them.

use crate::segmented::{At, INLINE_BYTES_MAX, Payload, position_of};
use crate::shard::{Clock, Shard, Slot};
use crate::types::hash::HashValue;
use crate::types::string::{Str, StrRef};
use crate::usage::Usage;
use crate::{Key, Keyspace, RecordRef, Value, ValueRef};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strand_chain::Blob;

/// Shards held by one command. What it makes garbage of is freed after they are let go.
#[derive(Debug)]
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    /// In ascending order.
    held: SmallVec<[Held<'k>; 1]>,
    clock: Clock<'k>,
    /// `CLIENT NO-TOUCH`: reading does not mark records used.
    no_touch: bool,
    /// Reads that found a record, and that did not.
    lookups: Lookups,
    /// One place inline: a SET that replaces a value allocates nothing for it.
    garbage: SmallVec<[Value; 1]>,
}

/// What reading found: INFO's `keyspace_hits` and `keyspace_misses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// [`Db::get`] found a record.
    pub hits: u64,
    /// It found none.
    pub misses: u64,
}

#[derive(Debug)]
struct Held<'k> {
    shard: usize,
    slot: &'k Slot,
    guard: MutexGuard<'k, Shard>,
    /// It was written to.
    changed: bool,
}

impl<'k> Held<'k> {
    #[inline]
    fn lock(keyspace: &'k Keyspace, shard: usize) -> Held<'k> {
        let slot = &keyspace.shards[shard];
        Held { shard, slot, guard: slot.lock.lock(), changed: false }
    }
    #[inline]
    fn try_lock(keyspace: &'k Keyspace, shard: usize) -> Option<Held<'k>> {
        let slot = &keyspace.shards[shard];
        Some(Held { shard, slot, guard: slot.lock.try_lock()?, changed: false })
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.slot.publish(&self.guard);
        }
    }
}

/// The value at a key is not of the type that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherType;

/// A record that was removed.
#[derive(Debug)]
pub struct Taken {
    /// Its value.
    pub value: Value,
    /// When it would have expired (unix milliseconds), if ever.
    pub expire_at_ms: Option<i64>,
    used: Usage,
}

impl<'k> Locked<'k> {
    /// Holds one shard; allocates nothing.
    #[inline]
    pub(crate) fn one(keyspace: &'k Keyspace, shard: usize, now_ms: i64) -> Locked<'k> {
        let mut locked = Locked::none(keyspace, now_ms);
        locked.held.push(Held::lock(keyspace, shard));
        locked
    }
    /// Holds these shards, which ascend.
    pub(crate) fn ascending(
        keyspace: &'k Keyspace,
        shards: impl Iterator<Item = usize>,
        now_ms: i64,
    ) -> Locked<'k> {
        let mut locked = Locked::none(keyspace, now_ms);
        locked.held.extend(shards.map(|shard| Held::lock(keyspace, shard)));
        debug_assert!(locked.held.windows(2).all(|w| w[0].shard < w[1].shard), "taken in ascending order");
        locked
    }
    /// Holds these shards, which ascend, if it held nothing and nobody holds any of them; else nothing. A hot path, so the
    /// result is not moved.
    #[inline]
    pub(crate) fn try_hold(&mut self, shards: impl Iterator<Item = usize>) -> bool {
        for shard in shards {
            match Held::try_lock(self.keyspace, shard) {
                Some(held) => self.held.push(held),
                None => {
                    self.held.clear();
                    return false;
                }
            }
        }
        true
    }
    /// As [`Locked::ascending`], holding none while it waits for another: it lets all go, waits for that one, for
    /// `patience` at most, and begins with it. `None` after `tries`.
    pub(crate) fn together(
        keyspace: &'k Keyspace,
        shards: &[usize],
        tries: usize,
        patience: Duration,
        now_ms: i64,
    ) -> Option<Locked<'k>> {
        let mut busy: Option<usize> = None;
        for _ in 0..tries {
            let mut waited = None;
            if let Some(shard) = busy {
                let slot = &keyspace.shards[shard];
                let Some(guard) = slot.lock.try_lock_for(patience) else { continue };
                waited = Some(Held { shard, slot, guard, changed: false });
            }
            let mut locked = Locked::none(keyspace, now_ms);
            busy = shards.iter().copied().find(|shard| {
                let held = waited.take_if(|held| held.shard == *shard);
                let held = held.or_else(|| Held::try_lock(keyspace, *shard));
                let is_busy = held.is_none();
                locked.held.extend(held);
                is_busy
            });
            if busy.is_none() {
                return Some(locked);
            }
        }
        None
    }
    /// Database `db` (a system one too) seen through the held shards.
    #[inline]
    pub fn db(&mut self, db: usize) -> Db<'_, 'k> {
        let slot = self.keyspace.slot(db);
        Db { locked: self, slot }
    }
    /// The time the command runs at, in unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms
    }
    /// The keyspace the shards belong to.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }
    /// From here on reading does not mark records used: `CLIENT NO-TOUCH`.
    pub fn set_no_touch(&mut self, no_touch: bool) {
        self.no_touch = no_touch;
    }

    /// What [`Db::get`] found so far.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Holds nothing.
    #[inline]
    pub(crate) fn none(keyspace: &'k Keyspace, now_ms: i64) -> Locked<'k> {
        let settings = keyspace.settings();
        let clock = Clock { now_ms, lfu: settings.lfu.load(Relaxed) != 0, settings };
        Locked {
            keyspace,
            held: SmallVec::new(),
            clock,
            no_touch: false,
            lookups: Lookups::default(),
            garbage: SmallVec::new(),
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.garbage.is_empty() {
            self.held.clear();
            self.garbage.drain(..).for_each(|value| self.keyspace.dispose(value));
        }
    }
}

/// One database through held shards. Every call answers as if expired keys were already gone, and removes those it meets.
///
/// # Panics
/// Every method panics when the key's shard is not held: the command's key specs are wrong.
#[derive(Debug)]
pub struct Db<'l, 'k> {
    locked: &'l mut Locked<'k>,
    slot: usize,
}

impl Db<'_, '_> {
    /// Reads a record and marks it used.
    #[inline]
    pub fn get(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let Some(at) = self.locate(key) else {
            self.locked.lookups.misses += 1;
            return None;
        };
        self.locked.lookups.hits += 1;
        let (slot, clock, no_touch) = (self.slot, self.locked.clock, self.locked.no_touch);
        if no_touch {
            return self.record(key, at);
        }
        Some(RecordRef(self.shard(key).touch(slot, at, &clock)))
    }
    /// Reads a record without marking it used (TTL, TYPE, OBJECT, EXISTS do this).
    pub fn peek(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let at = self.locate(key)?;
        self.record(key, at)
    }
    /// Sets key to value with that expiry (`None`: no expiry); true when it replaces a record. What it replaces is freed
    /// when the shards are let go, or by a helper thread when it is big.
    pub fn insert(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) -> bool {
        match value {
            Value::Str(s) => self.set_str(key, s.view(), expire_at_ms),
            hash => self.put(key, Payload::Outside(hash), Some(expire_at_ms)),
        }
    }
    /// As [`Db::insert`], of a string: a short one is copied into the table, a long one that lies in a blob is shared.
    #[inline]
    pub fn set_str(&mut self, key: &Key<'_>, value: StrRef<'_>, expire_at_ms: Option<i64>) -> bool {
        self.put(key, payload_of(value), Some(expire_at_ms))
    }
    /// Replaces a record's value by a string and leaves its expiry as it is; without a record adds one that never
    /// expires. True when there was one.
    pub fn update_str(&mut self, key: &Key<'_>, value: StrRef<'_>) -> bool {
        self.put(key, payload_of(value), None)
    }
    /// Lets `change` edit a string in place (APPEND, SETRANGE), which then is `raw` whatever its length; its expiry stays
    /// as it is. `None` when there is no such key. A `change` that fails must leave the bytes as they were.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn edit_str<R, E>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut Blob) -> Result<R, E>,
    ) -> Result<Option<Result<R, E>>, OtherType> {
        let Some(at) = self.locate(key) else { return Ok(None) };
        let Some(record) = self.record(key, at) else { return Ok(None) };
        let inline = match record.value() {
            ValueRef::Str(StrRef::Blob { .. }) => None,
            ValueRef::Str(s) => Some(s.to_blob()),
            ValueRef::Hash(_) => return Err(OtherType),
        };
        let Some(mut blob) = inline else {
            return Ok(self.change(key, at, |value| match value {
                Value::Str(s) => change(s.edit()),
                Value::Hash(_) => unreachable!("looked at above"),
            }));
        };
        let result = change(&mut blob);
        if result.is_ok() {
            self.update_str(key, StrRef::Blob { blob: &blob, edited: true });
        }
        Ok(Some(result))
    }
    /// Lets `change` have a hash for writing; `None` when there is no such key. Delete the key when the hash became empty.
    ///
    /// # Errors
    /// When the value is of another type.
    pub fn change_hash<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut HashValue) -> R,
    ) -> Result<Option<R>, OtherType> {
        let Some(at) = self.locate(key) else { return Ok(None) };
        let changed = self.change(key, at, |value| match value {
            Value::Hash(hash) => Ok(change(hash)),
            Value::Str(_) => Err(OtherType),
        });
        changed.unwrap_or(Err(OtherType)).map(Some)
    }
    /// Removes a record and returns what was in it. To delete it use [`Db::delete`].
    pub fn remove(&mut self, key: &Key<'_>) -> Option<Taken> {
        let at = self.locate(key)?;
        let slot = self.slot;
        let shard = self.changed(key);
        let record = RecordRef(shard.table(slot)?.records.at(at));
        let (expire_at_ms, used) = (record.expire_at_ms(), Usage(record.0.used()));
        let inline = match record.value() {
            ValueRef::Str(s @ (StrRef::Int(_) | StrRef::Bytes { .. })) => Some(Value::Str(s.to_str())),
            _ => None,
        };
        let outside = shard.remove(slot, at, key);
        Some(Taken { value: outside.or(inline)?, expire_at_ms, used })
    }
    /// Puts a removed record at `key`, with its expiry and as often used as it was, and once more.
    pub fn put_back(&mut self, key: &Key<'_>, taken: Taken) {
        self.insert(key, taken.value, taken.expire_at_ms);
        let Some(at) = self.locate(key) else { return };
        let (slot, clock) = (self.slot, self.locked.clock);
        self.shard(key).set_used(slot, at, taken.used, &clock);
    }
    /// Deletes a record; false when there is none. Its value is freed when the shards are let go, or by a helper thread
    /// when it is big.
    pub fn delete(&mut self, key: &Key<'_>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let slot = self.slot;
        let value = self.changed(key).remove(slot, at, key);
        self.locked.garbage(value);
        true
    }
    /// Sets or clears (`None`) the expiry; false when there is no such key. A time that has passed is kept as given:
    /// the key is gone at the next look.
    pub fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: Option<i64>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let slot = self.slot;
        self.changed(key).set_deadline(slot, at, key, expire_at_ms.unwrap_or(i64::MAX));
        true
    }

    /// The record at `at`.
    #[inline]
    fn record(&mut self, key: &Key<'_>, at: At) -> Option<RecordRef<'_>> {
        let slot = self.slot;
        self.shard(key).table(slot).map(|table| RecordRef(table.records.at(at)))
    }
    /// Lets `change` have the value at `at`; `None` when that lies in the table.
    fn change<R>(&mut self, key: &Key<'_>, at: At, change: impl FnOnce(&mut Value) -> R) -> Option<R> {
        let (slot, clock) = (self.slot, self.locked.clock);
        self.changed(key).change(slot, at, key, &clock, change)
    }
    /// Adds or replaces a record. `expire_at_ms`: `None` keeps that of the record that is there.
    #[inline]
    fn put(&mut self, key: &Key<'_>, payload: Payload<'_, Value>, expire_at_ms: Option<Option<i64>>) -> bool {
        let deadline_ms = expire_at_ms.map(|at| at.unwrap_or(i64::MAX));
        let at = self.locate(key);
        let (slot, clock) = (self.slot, self.locked.clock);
        let shard = self.changed(key);
        match at {
            Some(at) => {
                let former = shard.replace(slot, at, key, payload, deadline_ms, &clock);
                self.locked.garbage(former);
            }
            None => shard.insert(slot, key, payload, deadline_ms.unwrap_or(i64::MAX), &clock),
        }
        at.is_some()
    }
    #[inline]
    fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        let shard = self.locked.keyspace.shard_of(key.hash);
        &mut self.locked.held(shard).guard
    }
    /// The key's shard, for writing.
    #[inline]
    fn changed(&mut self, key: &Key<'_>) -> &mut Shard {
        let shard = self.locked.keyspace.shard_of(key.hash);
        let held = self.locked.held(shard);
        held.changed = true;
        &mut held.guard
    }
    /// Finds a record that has not expired; removes it when it has.
    #[inline]
    fn locate(&mut self, key: &Key<'_>) -> Option<At> {
        let (slot, now_ms) = (self.slot, self.locked.clock.now_ms);
        let position = position_of(key.hash.0);
        let table = self.shard(key).table(slot)?;
        let at = table.records.locate(position, key.bytes)?;
        if table.records.at(at).deadline_ms() <= now_ms {
            self.expire(key, at);
            return None;
        }
        Some(at)
    }
    #[cold]
    fn expire(&mut self, key: &Key<'_>, at: At) {
        let slot = self.slot;
        let value = self.changed(key).remove(slot, at, key);
        self.locked.garbage(value);
        self.locked.keyspace.count_expired(1);
    }
}

impl<'k> Locked<'k> {
    #[inline]
    fn held(&mut self, shard: usize) -> &mut Held<'k> {
        let at = match &self.held[..] {
            [only] if only.shard == shard => 0,
            held => held.binary_search_by_key(&shard, |h| h.shard).expect("the key's shard is held"),
        };
        &mut self.held[at]
    }
    /// Frees a value once the shards are let go.
    #[inline]
    fn garbage(&mut self, value: Option<Value>) {
        if let Some(value) = value {
            self.garbage.push(value);
        }
    }
}

/// How a string goes into a table: a short one is copied, of a long one a share of its blob.
#[inline]
fn payload_of(value: StrRef<'_>) -> Payload<'_, Value> {
    match value {
        StrRef::Int(n) => Payload::Int(n),
        StrRef::Bytes { bytes, edited } => Payload::Bytes(bytes, edited),
        StrRef::Blob { blob, edited } if blob.len() <= INLINE_BYTES_MAX => Payload::Bytes(blob, edited),
        StrRef::Blob { blob, edited } => {
            let blob = blob.clone();
            Payload::Outside(Value::Str(if edited { Str::Edited(blob) } else { Str::Raw(blob) }))
        }
    }
}
