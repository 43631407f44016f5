//! [`Shard`]: the part of every database that one lock protects.

use crate::extendible::{At, Content, ExtendibleTable, Item, New, Payload, Positions, position_of};
use crate::keepers::Keepers;
use crate::promise::Promised;
use crate::record::{Value, key_expiry_ms};
use crate::tracking::ChangedKeys;
use crate::types::Collection;
use crate::types::hash::OnGone;
use crate::usage::{Access, Usage};
use crate::watch::Watchers;
use crate::{Key, KeyEvent, KeyHash, RecordRef, Settings, ValueRef};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A shard with its lock, on two cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LockedShard {
    pub(crate) lock: Mutex<Shard>,
    /// [`Shard::sums`] at the last release of the shard after a change. These fields need no lock.
    data_bytes: AtomicUsize,
    records: AtomicUsize,
    expiring: AtomicUsize,
    changes: AtomicU64,
}

impl LockedShard {
    pub(crate) fn new(shard: Shard) -> LockedShard {
        let (data_bytes, records, expiring) = (0.into(), 0.into(), 0.into());
        LockedShard { lock: Mutex::new(shard), data_bytes, records, expiring, changes: 0.into() }
    }
    /// [`Shard::changes`], without taking the lock.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }
    /// Bytes of all its data, without taking the lock.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes.load(Relaxed)
    }
    /// Records that clients can reach, without taking the lock; `expiring_only`: those that have an expiry.
    pub(crate) fn records(&self, expiring_only: bool) -> usize {
        if expiring_only { self.expiring.load(Relaxed) } else { self.records.load(Relaxed) }
    }
    /// Publishes the sums of the shard. Call it after a change, with the lock held.
    #[inline]
    pub(crate) fn publish(&self, shard: &Shard) {
        let sums = shard.sums();
        self.data_bytes.store(sums.bytes, Relaxed);
        self.records.store(sums.records, Relaxed);
        self.expiring.store(sums.expiring, Relaxed);
        self.changes.store(shard.changes, Relaxed);
    }
}

/// Maps keys to positions.
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

/// One shard. A *slot* numbers the tables ([`Shard::table`]): slot 0 is database 0, the only one with tracked
/// keys. Clients reach the even slots.
#[derive(Debug)]
pub(crate) struct Shard {
    /// The table of slot 0.
    first: Table,
    /// The other tables that were ever needed, by ascending slot. A shard has one table for each database in use,
    /// however high its number.
    others: Vec<(usize, Box<Table>)>,
    /// Sums of `others`, kept current, so the cost of a write does not grow with the number of tables.
    others_sums: Sums,
    /// Nothing in `others` expires before this time.
    others_expiry_ms: i64,
    base_bits: u8,
    positions: KeyPositions,
    pub(crate) changed_keys: ChangedKeys,
    pub(crate) watchers: Watchers,
    /// Present while there is a snapshot of the data or a view of some keys.
    pub(crate) keepers: Option<Box<Keepers>>,
    /// Promised writes that are not carried out yet, the oldest first.
    pub(crate) promised: Vec<Promised>,
    /// Number of changes of records, without expiry and eviction: redis-server's `dirty`.
    pub(crate) changes: u64,
    /// State of the random generator behind LFU counters.
    pub(crate) random: u64,
}

/// The part of one database in a shard.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) records: ExtendibleTable<Value, KeyPositions>,
    /// Records with an expiry.
    pub(crate) expiring: usize,
    /// Sum of these expiries, in milliseconds since 1970.
    pub(crate) expiries_ms: i128,
    /// Hashes with fields that expire.
    pub(crate) mortal: usize,
}

/// Sums over some tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Heap bytes.
    pub(crate) bytes: usize,
    /// Records that clients can reach.
    pub(crate) records: usize,
    /// Those records that have an expiry.
    pub(crate) expiring: usize,
}

impl Sums {
    #[inline]
    fn and(self, other: Sums) -> Sums {
        Sums {
            bytes: self.bytes + other.bytes,
            records: self.records + other.records,
            expiring: self.expiring + other.expiring,
        }
    }
    fn without(self, other: Sums) -> Sums {
        Sums {
            bytes: self.bytes - other.bytes,
            records: self.records - other.records,
            expiring: self.expiring - other.expiring,
        }
    }
}

impl Table {
    fn new(base_bits: u8, positions: &KeyPositions) -> Table {
        Table {
            records: ExtendibleTable::new(base_bits, positions.clone()),
            expiring: 0,
            expiries_ms: 0,
            mortal: 0,
        }
    }
    /// Counts a record with this expiry (`i64::MAX`: none).
    #[inline]
    fn count_expiry(&mut self, expiry_ms: i64) {
        if expiry_ms != i64::MAX {
            self.expiring += 1;
            self.expiries_ms += i128::from(expiry_ms);
        }
    }
    /// Reverts [`Table::count_expiry`].
    #[inline]
    fn uncount_expiry(&mut self, expiry_ms: i64) {
        if expiry_ms != i64::MAX {
            self.expiring -= 1;
            self.expiries_ms -= i128::from(expiry_ms);
        }
    }
    /// Removes the record from the counts.
    #[inline]
    fn uncount(&mut self, at: At) {
        let item = self.records.at(at);
        if item.expiry_ms() == i64::MAX {
            return;
        }
        let expiry_ms = key_expiry_ms(&item);
        if let Content::OffHeap(value) = item.content() {
            self.mortal -= usize::from(value.field_expiry_ms() != i64::MAX);
        }
        self.uncount_expiry(expiry_ms);
    }
    /// Sums of this table. A table other than the first also counts its own struct.
    pub(crate) fn sums(&self, slot: usize) -> Sums {
        let own_bytes = if slot == 0 { 0 } else { size_of::<Table>() + size_of::<(usize, Box<Table>)>() };
        let bytes = own_bytes + self.records.heap_bytes();
        match slot & 1 {
            0 => Sums { bytes, records: self.records.len(), expiring: self.expiring },
            _ => Sums { bytes, ..Sums::default() },
        }
    }
}

/// Called with a key, an event, and the data that is gone by the event, in the form of [`FieldsExpired::events`].
type OnExpiry<'a> = &'a mut dyn FnMut(&[u8], KeyEvent, Option<&[Vec<u8>]>);

/// Result of an expired record whose value may be a hash with expiring fields.
pub(crate) struct FieldsExpired {
    /// The place of the record now.
    pub(crate) at: At,
    /// The record stays. Otherwise the caller removes it.
    pub(crate) stays: bool,
    /// Some fields expired.
    any: bool,
    /// Names of the expired fields, if they were asked for.
    fields: Vec<Vec<u8>>,
}

impl FieldsExpired {
    /// The events of the key. A hash that loses its last field is deleted, not expired. Each event comes with the
    /// data that is gone by it: these fields, the whole key (an empty list), or nothing (`None`).
    pub(crate) fn events(&self) -> impl Iterator<Item = (KeyEvent, Option<&[Vec<u8>]>)> {
        let fields = self.any.then_some((KeyEvent::FIELDS_EXPIRED, self.stays.then_some(&self.fields[..])));
        let key = if self.any { KeyEvent::DEL } else { KeyEvent::EXPIRED };
        fields.into_iter().chain((!self.stays).then_some((key, Some(&[][..]))))
    }
}

/// Prepares a value for a table. Stores the key's expiry in a value with expiring fields. Returns the value, the
/// expiry for the record's place, and whether fields expire.
#[inline]
fn joined(payload: Payload<'_, Value>, expiry_ms: i64) -> (Payload<'_, Value>, i64, bool) {
    match payload {
        Payload::OffHeap(mut value) => {
            let joined_ms = value.joined_expiry_ms(expiry_ms);
            let mortal = value.field_expiry_ms() != i64::MAX;
            (Payload::OffHeap(value), joined_ms, mortal)
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
            promised: Vec::new(),
            changes: 0,
            random,
        }
    }
    /// Sums over all tables.
    #[inline]
    pub(crate) fn sums(&self) -> Sums {
        self.first.sums(0).and(self.others_sums)
    }
    /// The table of a slot, if it was ever needed.
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
    /// The first table at or after `slot` that clients can reach and that has records (`expiring_only`: records
    /// with an expiry).
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
            self.others_sums = self.others_sums.and(table.sums(slot));
            self.others.insert(place, (slot, table));
            place
        });
        let table = &mut *self.others[place].1;
        let before = table.sums(slot);
        let result = change(table);
        self.others_sums = self.others_sums.without(before).and(table.sums(slot));
        self.others_expiry_ms = self.others_expiry_ms.min(table.records.expiry_ms());
        result
    }
    /// Index of the slot's table in `others`, or the index for inserting it.
    fn place(&self, slot: usize) -> Result<usize, usize> {
        self.others.binary_search_by_key(&slot, |(slot, _)| *slot)
    }
    /// Empty records for a new table.
    pub(crate) fn empty_records(&self) -> ExtendibleTable<Value, KeyPositions> {
        ExtendibleTable::new(self.base_bits, self.positions.clone())
    }
    /// Takes out the table of a slot. `None` when there is none.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Table> {
        self.keep_table(slot);
        if slot == 0 {
            return Some(std::mem::replace(&mut self.first, Table::new(self.base_bits, &self.positions)));
        }
        let table = self.others.remove(self.place(slot).ok()?).1;
        self.others_sums = self.others_sums.without(table.sums(slot));
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
    /// Removes and notes the record of `key`. Returns the value if it lay outside the table. The caller decides
    /// whether this counts as a change.
    pub(crate) fn remove(&mut self, slot: usize, at: At, key: &Key<'_>) -> Option<Value> {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        let value = self.change_table(slot, |table| {
            table.uncount(at);
            table.records.remove_at(at)
        });
        self.note(slot, position_of(key.hash.0), key.bytes);
        value
    }
    /// Lets the segment at `position` release spare memory.
    pub(crate) fn trim(&mut self, slot: usize, position: u64) {
        self.change_table(slot, |table| table.records.trim(position));
    }
    /// Lets the segment at `position` compute anew when its first record expires.
    pub(crate) fn raise_expiry(&mut self, slot: usize, position: u64) {
        self.change_table(slot, |table| table.records.raise_expiry_at(position));
    }
    /// Adds and notes a record for a missing key.
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
        self.keep(slot, position, key.bytes);
        self.changes += 1;
        self.note(slot, position, key.bytes);
        let used = Some(now.access(&mut self.random).first().0);
        self.change_table(slot, |table| {
            table.count_expiry(expiry_ms);
            table.mortal += usize::from(mortal);
            table.records.insert_new(position, New { key: key.bytes, used, expiry_ms: joined_ms, payload });
        });
    }
    /// Sets and notes the expiry of a record (`i64::MAX`: none).
    pub(crate) fn set_expiry(&mut self, slot: usize, at: At, key: &Key<'_>, expiry_ms: i64) {
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
    /// Replaces the value and the expiry (`None`: keeps it) of a record, marks the record as used, and notes it.
    /// Returns the former value if it lay outside the table.
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        at: At,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        expiry_ms: Option<i64>,
        now: &Clock<'_>,
    ) -> Option<Value> {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        self.changes += 1;
        self.note(slot, position_of(key.hash.0), key.bytes);
        let mut random = self.random;
        let former = self.change_table(slot, |table| {
            let item = table.records.at(at);
            let before_ms = key_expiry_ms(&item);
            let used = Some(now.access(&mut random).again(Usage(item.used())).0);
            let expiry_ms = expiry_ms.unwrap_or(before_ms);
            table.uncount(at);
            let (payload, joined_ms, mortal) = joined(payload, expiry_ms);
            table.count_expiry(expiry_ms);
            table.mortal += usize::from(mortal);
            table.records.replace(at, New { key: key.bytes, used, expiry_ms: joined_ms, payload })
        });
        self.random = random;
        former
    }
    /// Sets the usage of a record to `before`, plus one use.
    pub(crate) fn set_used(&mut self, slot: usize, at: At, before: Usage, now: &Clock<'_>) {
        let used = now.access(&mut self.random).again(before);
        self.put_used(slot, at, used);
    }
    /// Sets the usage of a record.
    pub(crate) fn put_used(&mut self, slot: usize, at: At, used: Usage) {
        self.change_table(slot, |table| table.records.set_used(at, used.0));
    }
    /// Marks a record as used. No sum changes.
    #[inline]
    pub(crate) fn touch(&mut self, slot: usize, at: At, now: &Clock<'_>) -> Item<'_, Value> {
        self.mark_used(slot, at, now).at(at)
    }
    #[inline]
    fn mark_used(&mut self, slot: usize, at: At, now: &Clock<'_>) -> &ExtendibleTable<Value, KeyPositions> {
        let table = match slot {
            0 => &mut self.first,
            _ => {
                let place = self.place(slot).expect("the table of a record");
                &mut *self.others[place].1
            }
        };
        let before = Usage(table.records.at(at).used());
        let used = now.access(&mut self.random).again(before);
        // Another read of a hot key in the same second must not dirty its cache line.
        if used != before {
            table.records.set_used(at, used.0);
        }
        &table.records
    }
    /// Lets `change` write to the value of a record, and marks the record as used. Returns `None` when the value
    /// lies in the table. Notes nothing: the caller knows whether anything changed ([`Shard::note_key`]).
    pub(crate) fn change<R>(
        &mut self,
        slot: usize,
        at: At,
        key: &Key<'_>,
        now: &Clock<'_>,
        change: impl FnOnce(&mut Value) -> R,
    ) -> Option<R> {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        self.mark_used(slot, at, now);
        self.change_table(slot, |table| table.records.change_outside(at, change))
    }
    /// The first slot at or after `slot` with a table in which something may have expired.
    pub(crate) fn next_due(&mut self, slot: usize, now_ms: i64) -> Option<usize> {
        if slot == 0 && self.first.records.expiry_ms() <= now_ms {
            return Some(0);
        }
        if self.others_expiry_ms > now_ms {
            return None;
        }
        let place = self.place(slot).unwrap_or_else(|place| place);
        let due = self.others[place..].iter().find(|(_, table)| table.records.expiry_ms() <= now_ms);
        let due = due.map(|(slot, _)| *slot);
        if due.is_none() {
            let expiries = self.others.iter().map(|(_, table)| table.records.expiry_ms());
            self.others_expiry_ms = expiries.min().unwrap_or(i64::MAX);
        }
        due
    }
    /// Removes and notes the expired records of the first segment at or after `from` that has any, as
    /// [`ExtendibleTable::expire_step`]. Values outside the table are added to `garbage`. Calls `tell` with each event
    /// and the data that is gone by it, as [`FieldsExpired::events`] has them. Names of fields are included only with
    /// `names_fields`. Returns the number of removed records, the number of records looked at, and where to continue.
    pub(crate) fn expire_step(
        &mut self,
        slot: usize,
        from: u64,
        now_ms: i64,
        garbage: &mut Vec<Value>,
        names_fields: bool,
        tell: OnExpiry<'_>,
    ) -> (usize, usize, Option<u64>) {
        let (mut removed, mut notes) = (0, std::mem::take(&mut self.changed_keys));
        let mut watchers = std::mem::take(&mut self.watchers);
        let mut in_part = Vec::new();
        let (looked_at, next) = self.change_table(slot, |table| {
            let (mut expiring, mut mortal) = (0, 0);
            let gone = &mut |key: &[u8], position, value: Option<Value>| {
                removed += 1;
                expiring += 1;
                mortal +=
                    usize::from(value.as_ref().is_some_and(|value| value.field_expiry_ms() != i64::MAX));
                garbage.extend(value);
                tell(key, KeyEvent::EXPIRED, Some(&[]));
                if watchers.any() {
                    watchers.raise(slot, key);
                }
                if slot == 0 {
                    notes.note(position, key);
                }
            };
            let step = table.records.expire_step(from, now_ms, gone, &mut in_part);
            table.expiring -= expiring;
            table.mortal -= mortal;
            step
        });
        (self.changed_keys, self.watchers) = (notes, watchers);
        for key in in_part {
            let position = self.positions.position(&key);
            let key = Key { bytes: &key, hash: self.positions.hash(&key) };
            let at = self.table(slot).and_then(|table| table.records.locate(position, key.bytes));
            let Some(at) = at else { continue };
            let expired = self.expire_fields(slot, at, &key, now_ms, names_fields);
            if !expired.stays {
                removed += 1;
                garbage.extend(self.remove(slot, expired.at, &key));
            }
            expired.events().for_each(|(event, gone)| tell(key.bytes, event, gone));
        }
        (removed, looked_at, next)
    }
    /// Removes the expired fields of the hash at `at`, whose record is due. The record does not stay when the key
    /// itself expired or no field is left. The result has the fields' names only with `names_fields`.
    pub(crate) fn expire_fields(
        &mut self,
        slot: usize,
        at: At,
        key: &Key<'_>,
        now_ms: i64,
        names_fields: bool,
    ) -> FieldsExpired {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        let mut fields = Vec::new();
        let mut add = |field: &[u8]| fields.push(field.to_vec());
        let expired = self.change_table(slot, |table| {
            if key_expiry_ms(&table.records.at(at)) <= now_ms {
                return None;
            }
            table.records.change_outside(at, |value| match value {
                Value::Hash(hash) => {
                    let add: OnGone<'_> = if names_fields { Some(&mut add) } else { None };
                    Some((hash.expire(now_ms, add), hash.is_empty()))
                }
                Value::Str(_) | Value::Set(_) | Value::List(_) | Value::ZSet(_) | Value::Stream(_) => None,
            })
        });
        let Some((gone, is_empty)) = expired.flatten() else {
            return FieldsExpired { at, stays: false, any: false, fields };
        };
        if gone > 0 {
            self.note_key(slot, key);
        }
        self.settle(slot, at, key, true);
        let found = self.table(slot).and_then(|t| t.records.locate(position_of(key.hash.0), key.bytes));
        FieldsExpired { at: found.unwrap_or(at), stays: !is_empty, any: gone > 0, fields }
    }
    /// Sets the expiry of a hash's record to the earliest expiry of the key and its fields. `was_mortal`: the hash
    /// had expiring fields before the change. The record moves.
    pub(crate) fn settle(&mut self, slot: usize, at: At, key: &Key<'_>, was_mortal: bool) {
        self.change_table(slot, |table| {
            let before_ms = table.records.at(at).expiry_ms();
            let settled = table.records.change_outside(at, |value| match value {
                Value::Hash(hash) => {
                    let key_expiry_ms = if was_mortal { hash.key_expiry_ms() } else { before_ms };
                    hash.set_key_expiry_ms(key_expiry_ms);
                    let next_ms = hash.next_expiry_ms();
                    Some((next_ms.min(key_expiry_ms), next_ms != i64::MAX))
                }
                Value::Str(_) | Value::Set(_) | Value::List(_) | Value::ZSet(_) | Value::Stream(_) => None,
            });
            let Some((expiry_ms, is_mortal)) = settled.flatten() else { return };
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
    /// Notes that the tables of these slots are about to be emptied or exchanged. Raises the watches of keys that
    /// exist there.
    pub(crate) fn note_tables(&mut self, slots: &[usize]) {
        let records =
            slots.iter().filter_map(|slot| self.table(*slot)).map(|table| table.records.len() as u64);
        self.changes += records.sum::<u64>();
        if slots.contains(&0) {
            self.changed_keys.note_all();
        }
        if self.watchers.any() {
            let watchers = std::mem::take(&mut self.watchers);
            watchers.raise_where(|slot, key| {
                let position = self.positions.position(key);
                slots.contains(&slot) && slots.iter().any(|slot| self.has(*slot, position, key))
            });
            self.watchers = watchers;
            self.watchers.waiters.signal_slots(slots);
        }
    }
    /// The value at a key, if the key exists.
    pub(crate) fn value(&self, slot: usize, key: &Key<'_>) -> Option<ValueRef<'_>> {
        let records = &self.table(slot)?.records;
        let at = records.locate(position_of(key.hash.0), key.bytes)?;
        Some(RecordRef(records.at(at)).value())
    }
    pub(crate) fn has(&self, slot: usize, position: u64, key: &[u8]) -> bool {
        self.table(slot).is_some_and(|table| table.records.locate(position, key).is_some())
    }
    /// Notes every record of database 0.
    pub(crate) fn note_each(&mut self) {
        for record in self.first.records.iter() {
            self.changed_keys.note(self.positions.position(record.key()), record.key());
        }
    }
    #[inline]
    fn note(&mut self, slot: usize, position: u64, key: &[u8]) {
        if self.watchers.any() {
            self.watchers.raise(slot, key);
        }
        if slot == 0 {
            self.changed_keys.note(position, key);
        }
    }
}

/// The time of a command, and how uses are counted at that time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock<'a> {
    pub(crate) now_ms: i64,
    /// Records with this expiry or an earlier one are gone. `now_ms`, or `i64::MIN` while a journal is replayed.
    pub(crate) expiry_ms: i64,
    /// True under an LFU policy.
    pub(crate) lfu: bool,
    pub(crate) settings: &'a Settings,
}

impl Clock<'_> {
    #[inline]
    fn access<'r>(&'r self, random: &'r mut u64) -> Access<'r> {
        Access { now_ms: self.now_ms, lfu: self.lfu, settings: self.settings, random }
    }
}

#[cfg(test)]
mod tests;
