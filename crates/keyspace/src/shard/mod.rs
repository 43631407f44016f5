//! [`Shard`]: the part of every database that one lock protects.

mod expiry;
mod table;
pub(crate) use expiry::FieldsExpired;
use table::Counted;
pub(crate) use table::{Sums, Table};

use crate::extendible::{ExtendibleTable, Item, Location, NewItem, Payload, Positions, position_of};
use crate::keepers::Keepers;
use crate::promise::PendingPromises;
use crate::record::{Value, key_expiry_ms};
use crate::tracking::ChangedKeys;
use crate::usage::{Access, Usage};
use crate::watch::Watchers;
use crate::{Key, KeyHash, RecordRef, Settings, ValueRef};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Growth of a shard in one transaction that counts as a leap ([`crate::Keyspace::leaps`]).
const LEAP_BYTES: usize = 64 << 10;

/// A shard with its lock. Aligned to two cache lines of its own, because processors fetch cache lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LockedShard {
    pub(crate) lock: Mutex<Shard>,
    /// Sums of the shard ([`Shard::sums`]) at its last release after a change. These fields are read without a
    /// lock.
    data_bytes: AtomicUsize,
    records: AtomicUsize,
    expiring: AtomicUsize,
    changes: AtomicU64,
    /// The leaps of all shards.
    leaps: Arc<AtomicU64>,
}

impl LockedShard {
    pub(crate) fn new(shard: Shard, leaps: Arc<AtomicU64>) -> LockedShard {
        let (data_bytes, records, expiring) = (0.into(), 0.into(), 0.into());
        LockedShard { lock: Mutex::new(shard), data_bytes, records, expiring, changes: 0.into(), leaps }
    }
    /// The shard's number of changes ([`Shard::changes`]). Takes no lock.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }
    /// Bytes of all data of the shard. Takes no lock.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes.load(Relaxed)
    }
    /// Number of records that clients can reach (`expiring_only`: that have an expiry). Takes no lock.
    pub(crate) fn records(&self, expiring_only: bool) -> usize {
        if expiring_only { self.expiring.load(Relaxed) } else { self.records.load(Relaxed) }
    }
    /// Copies the shard's sums to the fields that need no lock. Call this after a change, with the lock held.
    #[inline]
    pub(crate) fn publish(&self, shard: &Shard) {
        let sums = shard.sums();
        if sums.bytes > self.data_bytes() + LEAP_BYTES {
            self.count_leap();
        }
        self.data_bytes.store(sums.bytes, Relaxed);
        self.records.store(sums.records, Relaxed);
        self.expiring.store(sums.expiring, Relaxed);
        self.changes.store(shard.changes, Relaxed);
    }
    #[cold]
    fn count_leap(&self) {
        self.leaps.fetch_add(1, Relaxed);
    }
}

/// Maps keys to positions, by their keyed hash.
#[derive(Debug, Clone)]
pub(crate) struct KeyPositions(pub(crate) ahash::RandomState);

impl KeyPositions {
    fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.0.hash_one(key))
    }
}

impl Positions for KeyPositions {
    #[inline]
    fn position(&self, key: &[u8]) -> u64 {
        position_of(self.0.hash_one(key))
    }
}

/// One shard: a table per database in use. A *slot* numbers a table: database n has slot 2n, its companion 2n + 1.
/// Only slot 0 has tracked keys. To *note* a key is to report a change of the key to its watchers and followers.
#[derive(Debug)]
pub(crate) struct Shard {
    /// The table of slot 0, which is database 0.
    first: Table,
    /// The other tables, in ascending order of slots. A table is created when its database is first written to.
    others: Vec<(usize, Box<Table>)>,
    /// Sums of `others`. Kept up to date, so that the cost of a write does not grow with the number of tables.
    others_sums: Sums,
    /// Nothing in `others` expires before this time.
    others_expiry_ms: i64,
    base_bits: u8,
    positions: KeyPositions,
    pub(crate) changed_keys: ChangedKeys,
    pub(crate) watchers: Watchers,
    /// `Some` while there is a snapshot of the data, or a view or a read set of keys of this shard.
    pub(crate) keepers: Option<Box<Keepers>>,
    /// Promised writes that are not carried out yet, the oldest first.
    pub(crate) pending_promises: Vec<PendingPromises>,
    /// redis-server's `dirty`: number of changes of records, without expiry and eviction.
    pub(crate) changes: u64,
    /// State of the random generator behind LFU counters.
    pub(crate) random: u64,
    /// The latest time of a transaction on this shard, in unix milliseconds.
    pub(crate) latest_ms: i64,
}

/// Prepares a value for a table: stores the key's expiry in a value whose fields expire. Returns the value, the
/// expiry to store in the record, and whether fields expire.
#[inline(always)]
fn joined(payload: Payload<'_, Value>, expiry_ms: i64) -> (Payload<'_, Value>, i64, bool) {
    match payload {
        Payload::Outside(mut value) => {
            let joined_ms = value.joined_expiry_ms(expiry_ms);
            let mortal = value.field_expiry_ms() != i64::MAX;
            (Payload::Outside(value), joined_ms, mortal)
        }
        Payload::Int(_) | Payload::Bytes(..) => (payload, expiry_ms, false),
    }
}

impl Shard {
    pub(crate) fn new(base_bits: u8, positions: KeyPositions, random: u64) -> Shard {
        Shard {
            first: Table::new(base_bits, &positions),
            others: Vec::new(),
            others_sums: Sums::default(),
            others_expiry_ms: i64::MAX,
            base_bits,
            positions,
            changed_keys: ChangedKeys::default(),
            watchers: Watchers::default(),
            keepers: None,
            pending_promises: Vec::new(),
            changes: 0,
            random,
            latest_ms: i64::MIN,
        }
    }
    /// The sums over all tables of the shard.
    #[inline]
    pub(crate) fn sums(&self) -> Sums {
        self.first.sums(0).plus(self.others_sums)
    }
    /// The table of a slot. `None` when its database was never written to.
    #[inline]
    pub(crate) fn table(&self, slot: usize) -> Option<&Table> {
        if slot == 0 {
            return Some(&self.first);
        }
        Some(&self.others[self.place(slot).ok()?].1)
    }
    /// All tables with their slots, in ascending order.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Table)> {
        std::iter::once((0, &self.first)).chain(self.others.iter().map(|(slot, table)| (*slot, &**table)))
    }
    /// The first non-empty table at or after `slot` that clients can reach (`expiring_only`: the first that has
    /// records with an expiry).
    pub(crate) fn next_table(&self, slot: usize, expiring_only: bool) -> Option<(usize, &Table)> {
        let has = |table: &Table| if expiring_only { table.expiring > 0 } else { table.records.len() > 0 };
        if slot == 0 && has(&self.first) {
            return Some((0, &self.first));
        }
        let others = self.others[self.place(slot).unwrap_or_else(|place| place)..].iter();
        others.map(|(slot, table)| (*slot, &**table)).find(|(slot, table)| slot % 2 == 0 && has(table))
    }
    /// Lets `change` write to the table of a slot.
    #[inline]
    pub(crate) fn change_table<R>(&mut self, slot: usize, change: impl FnOnce(&mut Table) -> R) -> R {
        if slot == 0 { change(&mut self.first) } else { self.change_other(slot, change) }
    }
    fn change_other<R>(&mut self, slot: usize, change: impl FnOnce(&mut Table) -> R) -> R {
        let place = self.place(slot).unwrap_or_else(|place| {
            let table = Box::new(Table::new(self.base_bits, &self.positions));
            self.others_sums = self.others_sums.plus(table.sums(slot));
            self.others.insert(place, (slot, table));
            place
        });
        let table = &mut *self.others[place].1;
        let before = table.sums(slot);
        let result = change(table);
        self.others_sums = self.others_sums.minus(before).plus(table.sums(slot));
        self.others_expiry_ms = self.others_expiry_ms.min(table.records.expiry_ms());
        result
    }
    /// Index in `others` of the slot's table. `Err`: the index at which to insert it.
    fn place(&self, slot: usize) -> Result<usize, usize> {
        self.others.binary_search_by_key(&slot, |(slot, _)| *slot)
    }
    /// An empty table of records, for a new [`Table`] or a frozen one.
    pub(crate) fn empty_records(&self) -> ExtendibleTable<Value, KeyPositions> {
        ExtendibleTable::new(self.base_bits, self.positions.clone())
    }
    /// Removes the table of a slot and returns it. `None` when the slot has no table.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Table> {
        self.keep_table(slot);
        if slot == 0 {
            return Some(std::mem::replace(&mut self.first, Table::new(self.base_bits, &self.positions)));
        }
        let table = self.others.remove(self.place(slot).ok()?).1;
        self.others_sums = self.others_sums.minus(table.sums(slot));
        Some(*table)
    }
    /// Exchanges the tables of two slots.
    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        let (was_a, was_b) = (self.take(a), self.take(b));
        for (slot, table) in [(a, was_b), (b, was_a)] {
            if let Some(table) = table.filter(|table| table.records.len() > 0) {
                self.change_table(slot, |place| *place = table);
            }
        }
    }
    /// Removes the record of `key` and notes the key. Returns the value if it lay outside the table. If the removal
    /// is a change, the caller counts it.
    pub(crate) fn remove(&mut self, slot: usize, at: Location, key: &Key<'_>) -> Option<Value> {
        self.keep_with_name(slot, position_of(key.hash.0), key.bytes);
        let value = self.change_table(slot, |table| {
            table.uncount(Counted::of(&table.records, at, table.records.metadata_at(at)));
            table.records.remove_at(at)
        });
        self.note(slot, position_of(key.hash.0), key.bytes);
        value
    }
    /// Lets the segment at `position` release spare memory.
    pub(crate) fn trim(&mut self, slot: usize, position: u64) {
        self.change_table(slot, |table| table.records.trim(position));
    }
    /// Does what [`crate::extendible::ExtendibleTable::list_expiring_at`] does.
    pub(crate) fn list_expiring(&mut self, slot: usize, position: u64) {
        self.change_table(slot, |table| table.records.list_expiring_at(position));
    }
    /// Adds a record for a missing key, and notes the key.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        expiry_ms: i64,
        now: &Clock<'_>,
    ) {
        let (payload, joined_ms, mortal) = joined(payload, expiry_ms);
        let position = position_of(key.hash.0);
        self.keep_with_name(slot, position, key.bytes);
        self.changes += 1;
        let usage = Some(now.access(&mut self.random).of_new().0);
        self.change_table(slot, |table| {
            table.count_expiry(expiry_ms);
            table.mortal += usize::from(mortal);
            table
                .records
                .insert_new(position, NewItem { key: key.bytes, usage, expiry_ms: joined_ms, payload });
        });
        self.note(slot, position, key.bytes);
    }
    /// Sets the expiry of a record (`i64::MAX`: none), and notes the key.
    pub(crate) fn set_expiry(&mut self, slot: usize, at: Location, key: &Key<'_>, expiry_ms: i64) {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        self.changes += 1;
        self.note(slot, position_of(key.hash.0), key.bytes);
        self.change_table(slot, |table| {
            table.uncount_expiry(key_expiry_ms(&table.records.at(at)));
            table.count_expiry(expiry_ms);
            let joined_ms = table.records.change_outside(at, |value| value.joined_expiry_ms(expiry_ms));
            table.records.set_expiry(at, key.bytes, joined_ms.unwrap_or(expiry_ms));
        });
    }
    /// Replaces the value and the expiry (`None`: keeps it) of a record, marks the record as used, and notes the
    /// key. Returns the former value if it lay outside the table.
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        expiry_ms: Option<i64>,
        now: &Clock<'_>,
    ) -> Option<Value> {
        let former = self.replace_unnoted(slot, at, key, payload, expiry_ms, now);
        self.note_key(slot, key);
        former
    }
    /// Does what [`Shard::replace`] does, but the key does not count as changed. For a value that only gets another
    /// encoding.
    #[inline]
    pub(crate) fn replace_unnoted(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        expiry_ms: Option<i64>,
        now: &Clock<'_>,
    ) -> Option<Value> {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        let mut random = self.random;
        let former = self.change_table(slot, |table| {
            let metadata = table.records.metadata_at(at);
            let before = Counted::of(&table.records, at, metadata);
            let usage = Usage(metadata.usage());
            let usage = Some(now.access(&mut random).after_use(usage).0);
            let expiry_ms = expiry_ms.unwrap_or(before.expiry_ms);
            table.uncount(before);
            let (payload, joined_ms, mortal) = joined(payload, expiry_ms);
            table.count_expiry(expiry_ms);
            table.mortal += usize::from(mortal);
            table.records.replace(at, NewItem { key: key.bytes, usage, expiry_ms: joined_ms, payload })
        });
        self.random = random;
        former
    }
    /// Sets the usage of a record to `before` plus one use, now.
    pub(crate) fn set_usage(&mut self, slot: usize, at: Location, before: Usage, now: &Clock<'_>) {
        let usage = now.access(&mut self.random).after_use(before);
        self.put_usage(slot, at, usage);
    }
    /// Sets the usage of a record.
    pub(crate) fn put_usage(&mut self, slot: usize, at: Location, usage: Usage) {
        self.change_table(slot, |table| table.records.set_usage(at, usage.0));
    }
    /// Marks a record as used. The shard's sums stay the same, so they need not be published.
    #[inline]
    pub(crate) fn touch(&mut self, slot: usize, at: Location, now: &Clock<'_>) -> Item<'_, Value> {
        self.mark_used(slot, at, now).at(at)
    }
    #[inline]
    fn mark_used(
        &mut self,
        slot: usize,
        at: Location,
        now: &Clock<'_>,
    ) -> &ExtendibleTable<Value, KeyPositions> {
        let table = match slot {
            0 => &mut self.first,
            _ => {
                let place = self.place(slot).expect("the table of a record");
                &mut *self.others[place].1
            }
        };
        let before = Usage(table.records.metadata_at(at).usage());
        let usage = now.access(&mut self.random).after_use(before);
        // Write only a changed usage: a second read of a hot key in the same second must not dirty its cache line.
        if usage != before {
            table.records.set_usage(at, usage.0);
        }
        &table.records
    }
    /// Lets `change` write to the value of a record, and marks the record as used. Returns `None` when the value
    /// lies in the table. The caller calls [`Shard::note_key`] if something changed.
    pub(crate) fn change<R>(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        now: &Clock<'_>,
        change: impl FnOnce(&mut Value) -> R,
    ) -> Option<R> {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        self.mark_used(slot, at, now);
        self.change_table(slot, |table| table.records.change_outside(at, change))
    }
    /// Changes a value in a way that does not count as a use or as a change of its key.
    pub(crate) fn change_unnoted(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        change: impl FnOnce(&mut Value),
    ) {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        self.change_table(slot, |table| table.records.change_outside(at, change));
    }
    /// Sets the expiry in a value's record to the earliest expiry of the key and its fields. `was_mortal`: some field
    /// had an expiry before the change. The record moves.
    pub(crate) fn update_record_expiry(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        was_mortal: bool,
    ) {
        self.change_table(slot, |table| {
            let before_ms = table.records.at(at).expiry_ms();
            let rejoined =
                table.records.change_outside(at, |value| value.rejoined_expiry_ms(before_ms, was_mortal));
            let Some((expiry_ms, is_mortal)) = rejoined.flatten() else { return };
            table.mortal = table.mortal + usize::from(is_mortal) - usize::from(was_mortal);
            if expiry_ms != before_ms {
                table.records.set_expiry(at, key.bytes, expiry_ms);
            }
        });
    }
    /// Notes that the value at `key` changed.
    pub(crate) fn note_key(&mut self, slot: usize, key: &Key<'_>) {
        self.changes += 1;
        self.note(slot, position_of(key.hash.0), key.bytes);
    }
    /// Notes that a flush or a swap is about to take away the tables of these slots. [`Txn::raise_watches`] tells the
    /// clients that watch keys.
    ///
    /// [`Txn::raise_watches`]: crate::Txn
    pub(crate) fn note_tables(&mut self, slots: &[usize]) {
        let records =
            slots.iter().filter_map(|slot| self.table(*slot)).map(|table| table.records.len() as u64);
        self.changes += records.sum::<u64>();
        if slots.contains(&0) {
            self.changed_keys.note_all();
        }
        self.watchers.waiters.signal_groups(slots);
    }
    /// Signals the keys of a table that a swap has brought, if somebody waits for them.
    pub(crate) fn signal_table(&mut self, slot: usize) {
        if self.watchers.waiters.is_empty() {
            return;
        }
        let mut waiters = std::mem::take(&mut self.watchers.waiters);
        let records = self.table(slot).map(|table| &table.records).filter(|records| records.len() > 0);
        // Walk the smaller set: clients may wait for a million keys.
        match records {
            Some(records) if records.len() < waiters.len() => {
                records.iter().for_each(|record| waiters.signal(slot, record.key()));
            }
            Some(_) => waiters.signal_present(slot, |key| self.has(slot, self.positions.position(key), key)),
            None => {}
        }
        self.watchers.waiters = waiters;
    }
    /// Raises the flags of the watched keys of these slots that exist in one of them. A key that has expired does not
    /// exist.
    pub(crate) fn raise_watches(&self, slots: &[usize], now_ms: i64) {
        self.watchers.raise_where(|slot, key| {
            let position = self.positions.position(key);
            slots.contains(&slot) && slots.iter().any(|slot| self.has_live(*slot, position, key, now_ms))
        });
    }
    /// The value at `key`. `None` when the key is missing.
    pub(crate) fn value(&self, slot: usize, key: &Key<'_>) -> Option<ValueRef<'_>> {
        let records = &self.table(slot)?.records;
        let at = records.locate(position_of(key.hash.0), key.bytes)?;
        Some(RecordRef(records.at(at)).value())
    }
    pub(crate) fn has(&self, slot: usize, position: u64, key: &[u8]) -> bool {
        self.table(slot).is_some_and(|table| table.records.locate(position, key).is_some())
    }
    /// True when the key exists and has not expired at `now_ms`.
    pub(crate) fn has_live(&self, slot: usize, position: u64, key: &[u8], now_ms: i64) -> bool {
        let Some(records) = self.table(slot).map(|table| &table.records) else { return false };
        let at = records.locate(position, key);
        at.is_some_and(|at| !RecordRef(records.at(at)).is_expired(now_ms))
    }
    /// Notes every key of database 0 for followers.
    pub(crate) fn note_each(&mut self) {
        for record in self.first.records.iter() {
            let position = self.positions.position(record.key());
            self.changed_keys.note(position, record.key(), Some(RecordRef(record)));
        }
    }
    #[inline]
    fn note(&mut self, slot: usize, position: u64, key: &[u8]) {
        if self.watchers.has_any() {
            self.watchers.raise(slot, key);
        }
        if slot == 0 && self.changed_keys.has_follower() {
            self.note_for_follower(position, key);
        }
    }
    #[cold]
    fn note_for_follower(&mut self, position: u64, key: &[u8]) {
        if self.changed_keys.tracks(key) {
            let records = &self.first.records;
            let record = records.locate(position, key).map(|at| RecordRef(records.at(at)));
            self.changed_keys.note_tracked(position, key, record);
        }
    }
}

/// The time of a command, and how uses are counted at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock<'a> {
    pub(crate) now_ms: i64,
    /// Data with this expiry or an earlier one has expired. `now_ms`, or `i64::MIN` while a journal is replayed.
    pub(crate) expiry_ms: i64,
    /// A look-up takes a closer look at a record with this expiry or an earlier one. While the
    /// primary's commands are replayed, each record with an expiry may have fields that are hidden from clients.
    pub(crate) look_ms: i64,
    /// [`Settings::keeps_expired`] at the begin of the transaction. The option must not change within an operation.
    pub(crate) keeps_expired: bool,
    /// True under an LFU policy of `maxmemory-policy`.
    pub(crate) lfu: bool,
    pub(crate) settings: &'a Settings,
}

impl<'a> Clock<'a> {
    pub(crate) fn at(now_ms: i64, settings: &'a Settings) -> Clock<'a> {
        let lfu = settings.lfu.load(Relaxed) != 0;
        let keeps_expired = settings.keeps_expired.load(Relaxed) != 0;
        Clock { now_ms, expiry_ms: now_ms, look_ms: now_ms, keeps_expired, lfu, settings }
    }
    /// Sets the time up to which data has expired.
    #[inline]
    pub(crate) fn set_expiry(&mut self, expiry_ms: i64) {
        self.expiry_ms = expiry_ms;
        let looks_closer = expiry_ms == i64::MIN && self.keeps_expired;
        // `i64::MAX` is the expiry of a record that never expires.
        self.look_ms = if looks_closer { i64::MAX - 1 } else { expiry_ms };
    }
    #[inline]
    fn access<'r>(&'r self, random: &'r mut u64) -> Access<'r> {
        Access { now_ms: self.now_ms, lfu: self.lfu, settings: self.settings, random }
    }
}

#[cfg(test)]
mod tests;
