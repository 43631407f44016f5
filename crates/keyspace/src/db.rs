//! [`Db`]: one database, seen through the shards that a [`Txn`] holds. All look-ups and changes of records are
//! here.

use crate::extendible::{INLINE_BYTES_MAX, Location, Payload, position_of};
use crate::journal::Arg;
use crate::shard::Shard;
use crate::types::string::{Str, StrRef};
use crate::types::{Changed, Collection};
use crate::usage::{FREQUENCY_NEW, Usage};
use crate::{Key, KeyEvent, RecordRef, Txn, Value, ValueRef, WatchFlag, Watched};
use strand_chain::Blob;

/// A command expected another type of value than the key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherType;

/// A record that [`Db::remove`] has removed.
#[derive(Debug)]
pub struct RemovedRecord {
    /// Value of the record.
    pub value: Value,
    /// Expiry of the record (unix milliseconds), if it had any.
    pub expire_at_ms: Option<i64>,
    usage: Usage,
}

/// One database, seen through the shards that a [`Txn`] holds. To every method an expired key is missing. A method
/// that finds an expired record removes that record.
///
/// # Panics
/// Every method panics when the shard of its key is not held. The command's row in the table then has wrong key
/// specs.
#[derive(Debug)]
pub struct Db<'l, 'k> {
    pub(crate) txn: &'l mut Txn<'k>,
    pub(crate) slot: usize,
}

impl Db<'_, '_> {
    /// Reads a record and marks it as used.
    #[inline]
    pub fn get(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let Some(at) = self.locate(key) else {
            self.txn.lookups.misses += 1;
            self.report_miss(key);
            return None;
        };
        self.txn.lookups.hits += 1;
        self.touched(key, at)
    }
    /// Does what [`Db::get`] does for a command that writes: the look-up counts neither as a hit nor as a miss.
    pub fn get_to_write(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let at = self.locate(key)?;
        self.touched(key, at)
    }
    #[inline]
    fn touched(&mut self, key: &Key<'_>, at: Location) -> Option<RecordRef<'_>> {
        let (slot, clock, no_touch) = (self.slot, self.txn.clock, self.txn.no_touch);
        if no_touch {
            return self.record(key, at);
        }
        Some(RecordRef(self.shard(key).touch(slot, at, &clock)))
    }
    /// Counts a look-up as a hit or as a miss.
    pub fn count_lookup(&mut self, is_hit: bool) {
        let lookups = &mut self.txn.lookups;
        *if is_hit { &mut lookups.hits } else { &mut lookups.misses } += 1;
    }
    /// Does what [`Db::peek`] does, and counts a hit or a miss (for TTL, TYPE, OBJECT, EXISTS).
    pub fn look(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let at = self.locate(key);
        self.count_lookup(at.is_some());
        match at {
            Some(at) => self.record(key, at),
            None => {
                self.report_miss(key);
                None
            }
        }
    }
    /// Reads a record without marking it as used. This look-up counts neither as a hit nor as a miss.
    pub fn peek(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let Some(at) = self.locate(key) else {
            self.report_miss(key);
            return None;
        };
        self.record(key, at)
    }
    /// Heap bytes of the record at `key`; 0 when the key is missing. This look-up counts neither as a hit nor as a
    /// miss, and the listener does not learn of it.
    pub fn heap_bytes_at(&mut self, key: &Key<'_>) -> usize {
        let at = self.locate(key);
        at.and_then(|at| self.record(key, at)).map_or(0, |record| record.heap_bytes())
    }
    /// Sets `key` to `value` with this expiry (`None`: no expiry). Returns true when the key existed. The value
    /// that was replaced is freed after the shards are released. A helper thread frees it if it is big.
    pub fn insert(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) -> bool {
        match value {
            Value::Str(s) => self.set_str(key, s.view(), expire_at_ms),
            collection => self.put(key, Payload::Outside(collection), Some(expire_at_ms)),
        }
    }
    /// Like [`Db::insert`], but only adds a missing key. When the key exists, returns false and changes nothing.
    pub fn insert_new(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) -> bool {
        if self.locate(key).is_some() {
            self.txn.garbage(Some(value));
            return false;
        }
        match value {
            Value::Str(s) => self.put_at(None, key, payload_of(s.view()), Some(expire_at_ms)),
            collection => self.put_at(None, key, Payload::Outside(collection), Some(expire_at_ms)),
        }
        true
    }
    /// Asks the processor to load the memory that [`Db::insert_new`] of these keys needs. All of them are in one shard.
    pub fn prefetch_new(&mut self, keys: &[Key<'_>]) {
        let (slot, Some(first)) = (self.slot, keys.first()) else { return };
        if let Some(table) = self.shard(first).table(slot) {
            keys.iter().for_each(|key| table.records.prefetch_new(position_of(key.hash.0)));
        }
    }
    /// Like [`Db::insert_new`], for a string.
    pub fn set_new_str(&mut self, key: &Key<'_>, value: StrRef<'_>, expire_at_ms: Option<i64>) -> bool {
        let is_new = self.locate(key).is_none();
        if is_new {
            self.put_at(None, key, payload_of(value), Some(expire_at_ms));
        }
        is_new
    }
    /// Adds a copy of a record to a draft ([`crate::draft`]), in which the key is missing. The copy is reported neither
    /// as a change nor as an event.
    pub fn put_copy(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) {
        let (slot, clock, expiry_ms) = (self.slot, self.txn.clock, expire_at_ms.unwrap_or(i64::MAX));
        let shard = self.changed(key);
        match value {
            Value::Str(s) => shard.insert(slot, key, payload_of(s.view()), expiry_ms, &clock),
            collection => shard.insert(slot, key, Payload::Outside(collection), expiry_ms, &clock),
        }
    }
    /// Like [`Db::insert`], for a string. A short string is copied into the table. For a long string the record
    /// shares the blob of `value`.
    #[inline]
    pub fn set_str(&mut self, key: &Key<'_>, value: StrRef<'_>, expire_at_ms: Option<i64>) -> bool {
        self.put(key, payload_of(value), Some(expire_at_ms))
    }
    /// Replaces the value of a record by a string, and keeps the expiry. A missing key is added without an expiry.
    /// Returns true when the key existed.
    pub fn update_str(&mut self, key: &Key<'_>, value: StrRef<'_>) -> bool {
        self.put(key, payload_of(value), None)
    }
    /// Lets `change` edit a string in place (APPEND, SETRANGE). The expiry stays, and the encoding becomes `raw`
    /// even if the string is short. Returns `None` when the key is missing. When `change` fails, it must leave the
    /// bytes as they were.
    ///
    /// # Errors
    /// Fails if the value is not a string.
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
            _ => return Err(OtherType),
        };
        let Some(mut blob) = inline else {
            let edited = self.change_value(key, at, |value| match value {
                Value::Str(s) => change(s.edit()),
                _ => unreachable!("the value is a string in a blob"),
            });
            if matches!(edited, Some(Ok(_))) {
                let slot = self.slot;
                self.changed(key).note_key(slot, key);
                self.report_change(key);
            }
            return Ok(edited);
        };
        let result = change(&mut blob);
        if result.is_ok() {
            self.update_str(key, StrRef::Blob { blob: &blob, edited: true });
        }
        Ok(Some(result))
    }
    /// Changes the encoding of a string to `raw`. The key does not count as changed. Does nothing when the key is missing
    /// or has another type.
    pub fn make_raw(&mut self, key: &Key<'_>) {
        let Some(at) = self.locate(key) else { return };
        let blob = match self.record(key, at).as_ref().map(RecordRef::value) {
            Some(ValueRef::Str(s)) if s.encoding() != "raw" => s.to_blob(),
            _ => return,
        };
        let (slot, clock) = (self.slot, self.txn.clock);
        let raw = payload_of(StrRef::Blob { blob: &blob, edited: true });
        let former = self.changed(key).replace_unnoted(slot, at, key, raw, None, &clock);
        self.txn.garbage(former);
    }
    /// Returns the collection at `key`, and marks the record as used. Returns `None` when the key is missing.
    ///
    /// # Errors
    /// Fails if the value is of another type.
    #[inline]
    pub fn read<T: Collection>(&mut self, key: &Key<'_>) -> Result<Option<&T>, OtherType> {
        of_type(self.get(key))
    }
    /// Does what [`Db::get`] does with each key, and returns the values together, without clones. Stops at the first value
    /// that `check` refuses.
    ///
    /// # Errors
    /// What `check` returns.
    pub fn get_all<E>(
        &mut self,
        keys: &[Key<'_>],
        check: impl Fn(ValueRef<'_>) -> Result<(), E>,
    ) -> Result<Vec<Option<ValueRef<'_>>>, E> {
        let mut is_there = Vec::with_capacity(keys.len());
        for key in keys {
            let record = self.get(key);
            is_there.push(record.is_some());
            record.map_or(Ok(()), |record| check(record.value()))?;
        }
        let (txn, slot) = (&*self.txn, self.slot);
        let value = |key: &Key<'_>| txn.held_shard(txn.keyspace.shard_of(key.hash)).value(slot, key);
        let found = keys.iter().zip(is_there);
        Ok(found.map(|(key, is_there)| if is_there { value(key) } else { None }).collect())
    }
    /// Does what [`Db::read`] does for a command that writes: the look-up counts neither as a hit nor as a miss.
    ///
    /// # Errors
    /// Fails if the value is of another type.
    pub fn read_to_write<T: Collection>(&mut self, key: &Key<'_>) -> Result<Option<&T>, OtherType> {
        of_type(self.get_to_write(key))
    }
    /// Like [`Db::read`], but does not mark the record as used.
    ///
    /// # Errors
    /// Fails if the value is of another type.
    pub fn peek_at<T: Collection>(&mut self, key: &Key<'_>) -> Result<Option<&T>, OtherType> {
        of_type(self.peek(key))
    }
    /// Lets `change` write to the collection at `key`. Returns `None` when the key is missing. The expiry stays.
    /// When `change` removes the last element, the key is deleted, unless the type has
    /// [`Collection::STAYS_WHEN_EMPTY`].
    ///
    /// # Errors
    /// Fails if the value is of another type.
    pub fn change<T: Collection, R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut T) -> (R, Changed),
    ) -> Result<Option<R>, OtherType> {
        let Some(at) = self.locate(key) else { return Ok(None) };
        self.change_located(key, at, change).map(Some)
    }
    /// Like [`Db::change`], but passes an empty collection to `change` when the key is missing. The new collection
    /// is stored, without an expiry, if `change` reports a change and has added an element (a type with
    /// [`Collection::STAYS_WHEN_EMPTY`] needs no element).
    ///
    /// # Errors
    /// Fails if the value is of another type.
    pub fn change_or_create<T: Collection, R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut T) -> (R, Changed),
    ) -> Result<R, OtherType> {
        if let Some(at) = self.locate(key) {
            return self.change_located(key, at, change);
        }
        let mut new = T::default();
        let (result, changed) = change(&mut new);
        if changed != Changed::No && (T::STAYS_WHEN_EMPTY || !new.is_empty()) {
            self.put(key, Payload::Outside(new.into_value()), Some(None));
        }
        Ok(result)
    }
    /// Replaces the value at `key`, with the rules of a command that changes a value: the expiry stays, a missing
    /// key is created, and the key is deleted if the new collection is empty. Returns the former collection, which
    /// the caller frees.
    ///
    /// # Errors
    /// Fails if `value` is a collection and the value at `key` is of another type.
    pub fn replace(&mut self, key: &Key<'_>, value: Value) -> Result<Option<Value>, OtherType> {
        value.replace_at(self, key)
    }
    /// See [`Db::replace`]. The former collection is `None` if the key was missing, or is deleted.
    pub(crate) fn replace_collection<T: Collection>(
        &mut self,
        key: &Key<'_>,
        new: T,
    ) -> Result<Option<Value>, OtherType> {
        let Some(at) = self.locate(key) else {
            return self.change_or_create(key, |value| (*value = new, Changed::Yes)).map(|()| None);
        };
        of_type::<T>(self.record(key, at))?;
        if new.is_empty() && !T::STAYS_WHEN_EMPTY {
            self.delete_emptied(key);
            return Ok(None);
        }
        let (slot, clock) = (self.slot, self.txn.clock);
        let payload = Payload::Outside(new.into_value());
        let former = self.changed(key).replace(slot, at, key, payload, None, &clock);
        self.report_change(key);
        Ok(former)
    }
    /// Deletes a key whose collection a command has emptied. The command's own event comes first.
    fn delete_emptied(&mut self, key: &Key<'_>) {
        if self.txn.listens() {
            self.report(key, self.txn.caller.event, Changed::No);
        }
        self.delete(key);
    }
    fn change_located<T: Collection, R>(
        &mut self,
        key: &Key<'_>,
        at: Location,
        change: impl FnOnce(&mut T) -> (R, Changed),
    ) -> Result<R, OtherType> {
        let changed = self.change_value(key, at, |value| {
            let collection = T::of_mut(value)?;
            let before_ms = collection.field_expiry_ms();
            let (result, changed) = change(collection);
            let resettled = (before_ms != collection.field_expiry_ms()).then_some(before_ms != i64::MAX);
            Some((result, changed, collection.is_empty() && !T::STAYS_WHEN_EMPTY, resettled))
        });
        let (result, changed, emptied, resettled) = changed.flatten().ok_or(OtherType)?;
        if let Some(was_mortal) = resettled {
            let slot = self.slot;
            self.changed(key).update_record_expiry(slot, at, key, was_mortal);
        }
        if emptied {
            self.delete_emptied(key);
        } else if changed == Changed::Yes {
            let slot = self.slot;
            self.changed(key).note_key(slot, key);
            self.report_change(key);
        } else if changed == Changed::Beside {
            self.changed(key).changes += 1;
            if self.txn.listens() {
                self.txn.note_change(self.slot);
                self.report(key, self.txn.caller.event, Changed::Beside);
            }
        }
        Ok(result)
    }
    /// Lets the clients that wait for `key` try again, although no element was added.
    pub fn signal_waiters(&mut self, key: &Key<'_>) {
        let slot = self.slot;
        let shard = self.changed(key);
        if shard.watchers.has_any() {
            shard.watchers.waiters.signal(slot, key.bytes);
        }
    }
    /// Removes a record and returns its content. The event has the name of the command's changes. Use
    /// [`Db::delete`] for an event named `del`.
    pub fn remove(&mut self, key: &Key<'_>) -> Option<RemovedRecord> {
        let at = self.locate(key)?;
        self.changed(key).changes += 1;
        let removed = self.take_at(key, at)?;
        self.report_change(key);
        Some(removed)
    }
    /// Takes the record of `key` out of a draft ([`crate::draft`]), also if its expiry has passed. The removal is reported
    /// neither as a change nor as an event.
    pub fn take_copy(&mut self, key: &Key<'_>) -> Option<RemovedRecord> {
        let slot = self.slot;
        let at = self.shard(key).table(slot)?.records.locate(position_of(key.hash.0), key.bytes)?;
        self.take_at(key, at)
    }
    fn take_at(&mut self, key: &Key<'_>, at: Location) -> Option<RemovedRecord> {
        let slot = self.slot;
        let shard = self.changed(key);
        let record = RecordRef(shard.table(slot)?.records.at(at));
        let (expire_at_ms, usage) = (record.expire_at_ms(), Usage(record.0.usage()));
        let inline = match record.value() {
            ValueRef::Str(s @ (StrRef::Int(_) | StrRef::Bytes { .. })) => Some(Value::Str(s.to_str())),
            _ => None,
        };
        let outside = shard.remove(slot, at, key);
        Some(RemovedRecord { value: outside.or(inline)?, expire_at_ms, usage })
    }
    /// Puts a removed record back at `key`, with its former expiry. Its usage is the former one plus one use.
    pub fn put_back(&mut self, key: &Key<'_>, taken: RemovedRecord) {
        self.insert(key, taken.value, taken.expire_at_ms);
        let Some(at) = self.locate(key) else { return };
        let (slot, clock) = (self.slot, self.txn.clock);
        self.shard(key).set_usage(slot, at, taken.usage, &clock);
    }
    /// Sets the usage of a record (RESTORE): the seconds since the last use or, under an LFU policy, the access
    /// counter. `None`: as in a new record. The argument that the current policy does not use is ignored. Does nothing
    /// when the key is missing.
    pub fn set_usage(&mut self, key: &Key<'_>, idle_s: Option<u64>, frequency: Option<u8>) {
        let now_ms = self.txn.clock.now_ms;
        let usage = match self.txn.clock.lfu {
            true => Usage::used_often(frequency.unwrap_or(FREQUENCY_NEW), now_ms),
            false => Usage::idle_for(idle_s.unwrap_or(0), now_ms),
        };
        let Some(at) = self.locate(key) else { return };
        let slot = self.slot;
        self.shard(key).put_usage(slot, at, usage);
    }
    /// Deletes a record. Returns false when the key is missing. The value is freed after the shards are released. A
    /// helper thread frees it if it is big.
    pub fn delete(&mut self, key: &Key<'_>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let slot = self.slot;
        let shard = self.changed(key);
        shard.changes += 1;
        let value = shard.remove(slot, at, key);
        self.txn.garbage(value);
        if self.txn.listens() {
            self.txn.note_change(self.slot);
            self.report(key, KeyEvent::DEL, Changed::Yes);
        }
        true
    }
    /// Sets the expiry, or removes it (`None`). Returns false when the key is missing. A time in the past is
    /// stored, too; the next look-up then removes the key.
    pub fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: Option<i64>) -> bool {
        let Some(at) = self.locate(key) else { return false };
        let slot = self.slot;
        self.changed(key).set_expiry(slot, at, key, expire_at_ms.unwrap_or(i64::MAX));
        self.report_change(key);
        true
    }

    /// Begins to watch `key` (WATCH): each change of its value or expiry raises `flag`, until
    /// [`crate::Keyspace::unwatch`].
    pub fn watch(&mut self, key: &Key<'_>, flag: &WatchFlag) -> Watched {
        // Removes the key first if it has expired, so that its expiry does not raise the flag.
        let at = self.locate(key);
        let slot = self.slot;
        if flag.note(slot, at.is_some()) {
            self.txn.keyspace.watches.lock().add(flag);
        }
        let shard = self.shard(key);
        let next_ms = at.and_then(|at| Some(shard.table(slot)?.records.metadata_at(at).expiry_ms()));
        let is_new = shard.watchers.add(slot, key.bytes, flag);
        Watched { is_new, expires_ms: next_ms.filter(|at_ms| *at_ms != i64::MAX) }
    }

    /// Carries out the promises of `key`, and removes its record if it has expired.
    pub(crate) fn refresh(&mut self, key: &Key<'_>) {
        let _ = self.locate(key);
    }
    /// True when the time `at_ms` has passed: see [`Txn::has_passed`].
    pub fn has_passed(&self, at_ms: i64) -> bool {
        self.txn.has_passed(at_ms)
    }
    /// True while changes are recorded: see [`Txn::is_recorded`].
    pub fn is_recorded(&self) -> bool {
        self.txn.is_recorded()
    }
    /// Like [`Txn::effect`], in this database.
    pub fn effect(&mut self, args: &[Arg<'_>]) {
        self.txn.effect(self.slot / 2, args);
    }
    /// Sets the event of the next changes: see [`Txn::set_event`].
    #[inline]
    pub fn set_event(&mut self, event: KeyEvent) {
        self.txn.set_event(event);
    }
    /// Reports an event of `key` to the listener, if there is one. For events that are not changes, and for events
    /// whose name differs from that of the command's changes.
    pub fn report_event(&mut self, key: &Key<'_>, event: KeyEvent) {
        if self.txn.listens() {
            self.report(key, event, Changed::No);
        }
    }
    /// Reports to the listener, if there is one, that the command has changed `key`.
    #[inline]
    fn report_change(&mut self, key: &Key<'_>) {
        if self.txn.listens() {
            self.txn.note_change(self.slot);
            self.report(key, self.txn.caller.event, Changed::Yes);
        }
    }
    #[inline]
    fn report_miss(&mut self, key: &Key<'_>) {
        if self.txn.listens() && self.txn.caller.reads {
            self.report(key, KeyEvent::MISS, Changed::No);
        }
    }
    #[cold]
    fn report(&mut self, key: &Key<'_>, event: KeyEvent, changed: Changed) {
        self.txn.report(self.slot, key.bytes, event, changed);
    }

    #[inline]
    pub(crate) fn record(&mut self, key: &Key<'_>, at: Location) -> Option<RecordRef<'_>> {
        let slot = self.slot;
        self.shard(key).table(slot).map(|table| RecordRef(table.records.at(at)))
    }
    /// Lets `change` write to the value of the record at `at`. Returns `None` when the value is a short string
    /// inside the table. The caller reports whether the key has changed.
    pub(crate) fn change_value<R>(
        &mut self,
        key: &Key<'_>,
        at: Location,
        change: impl FnOnce(&mut Value) -> R,
    ) -> Option<R> {
        let (slot, clock) = (self.slot, self.txn.clock);
        self.changed(key).change(slot, at, key, &clock, change)
    }
    /// Adds or replaces a record. `expire_at_ms`: `None` keeps the expiry of an existing record.
    #[inline]
    fn put(&mut self, key: &Key<'_>, payload: Payload<'_, Value>, expire_at_ms: Option<Option<i64>>) -> bool {
        let at = self.locate(key);
        self.put_at(at, key, payload, expire_at_ms);
        at.is_some()
    }
    /// Like [`Db::put`], after the caller has located the key.
    #[inline]
    fn put_at(
        &mut self,
        at: Option<Location>,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        expire_at_ms: Option<Option<i64>>,
    ) {
        let expiry_ms = expire_at_ms.map(|at| at.unwrap_or(i64::MAX));
        let (slot, clock) = (self.slot, self.txn.clock);
        match at {
            Some(at) => {
                let former = self.changed(key).replace(slot, at, key, payload, expiry_ms, &clock);
                self.txn.garbage(former);
            }
            None => {
                if clock.keeps_expired {
                    self.remove_kept(key);
                }
                self.changed(key).insert(slot, key, payload, expiry_ms.unwrap_or(i64::MAX), &clock);
                if self.txn.listens() {
                    // Report only the event `new` here. `report_change` below reports the change of the key.
                    self.report(key, KeyEvent::NEW, Changed::No);
                }
            }
        }
        self.report_change(key);
    }
    #[inline]
    pub(crate) fn shard(&mut self, key: &Key<'_>) -> &mut Shard {
        let shard = self.txn.keyspace.shard_of(key.hash);
        &mut self.txn.shard_guard(shard).lock
    }
    /// The shard of `key`, for writing. Notes that the shard was changed.
    #[inline]
    pub(crate) fn changed(&mut self, key: &Key<'_>) -> &mut Shard {
        let shard = self.txn.keyspace.shard_of(key.hash);
        let held = self.txn.shard_guard(shard);
        held.changed = true;
        &mut held.lock
    }
    /// Finds the record of `key`. First carries out the promises of the key. Removes the record if it has expired.
    #[inline]
    pub(crate) fn locate(&mut self, key: &Key<'_>) -> Option<Location> {
        let (slot, look_ms) = (self.slot, self.txn.clock.look_ms);
        let position = position_of(key.hash.0);
        // Each look for the shard among the locked ones takes 25 instructions (callgrind), so look once.
        let mut shard = self.shard(key);
        if shard.has_promises() {
            self.carry_out_promises(key);
            shard = self.shard(key);
        }
        let table = shard.table(slot)?;
        let at = table.records.locate(position, key.bytes)?;
        if table.records.metadata_at(at).expiry_ms() <= look_ms {
            return self.expire(key, at);
        }
        Some(at)
    }
}

/// The collection in a record. `None` when `record` is `None`.
#[inline]
fn of_type<T: Collection>(record: Option<RecordRef<'_>>) -> Result<Option<&T>, OtherType> {
    match record {
        None => Ok(None),
        Some(record) => T::of(record.value()).map(Some).ok_or(OtherType),
    }
}

/// Prepares a string for a table: a short string is copied, a long one shares its blob.
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
