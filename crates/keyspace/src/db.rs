//! [`Locked`]: the shards a command holds; [`Db`]: one database seen through them.

use crate::segmented::{At, position_of};
use crate::shard::{Clock, Shard};
use crate::{Key, Keyspace, Record, Value};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;

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
    guard: MutexGuard<'k, Shard>,
}

impl<'k> Locked<'k> {
    /// Holds one shard; allocates nothing.
    #[inline]
    pub(crate) fn one(keyspace: &'k Keyspace, shard: usize, now_ms: i64) -> Locked<'k> {
        let mut locked = Locked::none(keyspace, now_ms);
        locked.held.push(Held { shard, guard: keyspace.shards[shard].0.lock() });
        locked
    }
    /// Holds these shards, which ascend.
    pub(crate) fn ascending(
        keyspace: &'k Keyspace,
        shards: impl Iterator<Item = usize>,
        now_ms: i64,
    ) -> Locked<'k> {
        let mut locked = Locked::none(keyspace, now_ms);
        locked.held.extend(shards.map(|shard| Held { shard, guard: keyspace.shards[shard].0.lock() }));
        debug_assert!(locked.held.windows(2).all(|w| w[0].shard < w[1].shard), "taken in ascending order");
        locked
    }
    /// As [`Locked::ascending`], if nobody holds any of them.
    pub(crate) fn try_ascending(
        keyspace: &'k Keyspace,
        shards: impl Iterator<Item = usize>,
        now_ms: i64,
    ) -> Option<Locked<'k>> {
        let mut locked = Locked::none(keyspace, now_ms);
        for shard in shards {
            locked.held.push(Held { shard, guard: keyspace.shards[shard].0.try_lock()? });
        }
        Some(locked)
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

    #[inline]
    fn none(keyspace: &'k Keyspace, now_ms: i64) -> Locked<'k> {
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
    #[inline]
    fn shard(&mut self, shard: usize) -> &mut Shard {
        let at = match &self.held[..] {
            [only] if only.shard == shard => 0,
            held => held.binary_search_by_key(&shard, |h| h.shard).expect("the key's shard is held"),
        };
        &mut self.held[at].guard
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
    pub fn get(&mut self, key: &Key<'_>) -> Option<&Record> {
        let Some(at) = self.locate(key) else {
            self.locked.lookups.misses += 1;
            return None;
        };
        self.locked.lookups.hits += 1;
        let (slot, clock, no_touch) = (self.slot, self.locked.clock, self.locked.no_touch);
        let shard = self.shard(key);
        if no_touch {
            return shard.table(slot).map(|t| &**t.records.at(at));
        }
        Some(shard.touch(slot, at, &clock))
    }
    /// Reads a record without marking it used (TTL, TYPE, OBJECT, EXISTS do this).
    pub fn peek(&mut self, key: &Key<'_>) -> Option<&Record> {
        let at = self.locate(key)?;
        let slot = self.slot;
        self.shard(key).table(slot).map(|t| &**t.records.at(at))
    }
    /// A record for writing: marks it used and touched. Remove it when its value became empty.
    #[inline]
    pub fn get_mut(&mut self, key: &Key<'_>) -> Option<&mut Record> {
        let at = self.locate(key)?;
        let (slot, clock) = (self.slot, self.locked.clock);
        self.note(key);
        Some(self.shard(key).touch(slot, at, &clock))
    }
    /// Sets key to value with that expiry (`None`: no expiry); true when it replaces a record. What it replaces is freed
    /// when the shards are let go, or by a helper thread when it is big.
    pub fn insert(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) -> bool {
        let deadline_ms = expire_at_ms.unwrap_or(i64::MAX);
        let at = self.locate(key);
        let (slot, clock) = (self.slot, self.locked.clock);
        match at {
            Some(at) => {
                self.note(key);
                let old = self.shard(key).replace(slot, at, value, deadline_ms, &clock);
                self.locked.garbage(old);
            }
            None => {
                let shard = self.shard(key);
                let record = shard.record(key, value, deadline_ms, &clock);
                shard.insert(slot, record);
            }
        }
        at.is_some()
    }
    /// Removes a record and returns it. To delete it use [`Db::delete`].
    pub fn remove(&mut self, key: &Key<'_>) -> Option<Record> {
        let at = self.locate(key)?;
        let slot = self.slot;
        Some(*self.shard(key).remove(slot, at))
    }
    /// Deletes a record; false when there is none. Its value is freed when the shards are let go, or by a helper thread
    /// when it is big.
    pub fn delete(&mut self, key: &Key<'_>) -> bool {
        let removed = self.remove(key);
        let found = removed.is_some();
        if let Some(record) = removed {
            self.locked.garbage(record.value);
        }
        found
    }
    /// Sets or clears (`None`) the expiry; false when there is no such key. A time that has passed is kept as given:
    /// the key is gone at the next look.
    pub fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: Option<i64>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let slot = self.slot;
        self.note(key);
        self.shard(key).set_deadline(slot, at, expire_at_ms.unwrap_or(i64::MAX));
        true
    }

    #[inline]
    fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        let shard = self.locked.keyspace.shard_of(key.hash);
        self.locked.shard(shard)
    }
    /// Finds a record that has not expired; removes it when it has.
    #[inline]
    fn locate(&mut self, key: &Key<'_>) -> Option<At> {
        let (slot, now_ms) = (self.slot, self.locked.clock.now_ms);
        let position = position_of(key.hash.0);
        let table = self.shard(key).table(slot)?;
        let at = table.records.locate(position, |r| r.is_at(position, key.bytes))?;
        if table.records.at(at).is_expired(now_ms) {
            self.expire(key, at);
            return None;
        }
        Some(at)
    }
    #[cold]
    fn expire(&mut self, key: &Key<'_>, at: At) {
        let slot = self.slot;
        let record = self.shard(key).remove(slot, at);
        self.locked.garbage(record.value);
        self.locked.keyspace.count_expired(1);
    }
    #[inline]
    fn note(&mut self, key: &Key<'_>) {
        if self.slot == 0 {
            self.shard(key).notes.note(position_of(key.hash.0), key.bytes);
        }
    }
}

impl Locked<'_> {
    /// Frees a value once the shards are let go. An integer is no garbage.
    #[inline]
    fn garbage(&mut self, value: Value) {
        if !matches!(value, Value::Str(crate::Str::Int(_))) {
            self.garbage.push(value);
        }
    }
}
