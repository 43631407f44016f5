//! [`Shard`]: one lock's part of every database.

use crate::record::Value;
use crate::segmented::{At, Item, New, Payload, Positions, Segmented, position_of};
use crate::tracking::Notes;
use crate::usage::{Access, Usage};
use crate::{Key, Settings};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A shard with its lock, on a cache line of its own (two: processors fetch them in pairs).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) lock: Mutex<Shard>,
    /// What [`Shard::heap_bytes`] was when the shard was last let go after a change.
    data_bytes: AtomicUsize,
}

impl Slot {
    pub(crate) fn new(shard: Shard) -> Slot {
        Slot { lock: Mutex::new(shard), data_bytes: AtomicUsize::new(0) }
    }
    /// Bytes of all its data, without taking the lock.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes.load(Relaxed)
    }
    /// Makes known what the shard's data takes; call it with the lock held, after a change.
    #[inline]
    pub(crate) fn publish(&self, shard: &Shard) {
        self.data_bytes.store(shard.heap_bytes(), Relaxed);
    }
}

/// Where keys belong.
#[derive(Debug, Clone)]
pub(crate) struct KeyPositions(pub(crate) ahash::RandomState);

impl Positions for KeyPositions {
    #[inline]
    fn position(&self, key: &[u8]) -> u64 {
        position_of(self.0.hash_one(key))
    }
}

/// One shard. Databases are counted by [`Shard::table`]'s *slot*: 0 is database 0, whose writes are noted.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Slot 0.
    first: Table,
    /// The others, as far as they were needed.
    more: Vec<Table>,
    base_bits: u8,
    positions: KeyPositions,
    pub(crate) notes: Notes,
    /// State of the generator behind LFU counters.
    pub(crate) random: u64,
}

/// One database's part in a shard.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) records: Segmented<Value, KeyPositions>,
    /// Records with an expiry.
    pub(crate) volatile: usize,
}

impl Table {
    fn new(base_bits: u8, positions: &KeyPositions) -> Table {
        Table { records: Segmented::new(base_bits, positions.clone()), volatile: 0 }
    }
}

impl Shard {
    pub(crate) fn new(base_bits: u8, positions: KeyPositions, random: u64) -> Shard {
        let first = Table::new(base_bits, &positions);
        Shard { first, more: Vec::new(), base_bits, positions, notes: Notes::default(), random }
    }
    /// Bytes of all its tables.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.first.records.heap_bytes() + self.more.iter().map(|t| t.records.heap_bytes()).sum::<usize>()
    }
    /// A database's table, if it was ever needed.
    #[inline]
    pub(crate) fn table(&self, slot: usize) -> Option<&Table> {
        if slot == 0 { Some(&self.first) } else { self.more.get(slot - 1) }
    }
    /// A database's table.
    #[inline]
    pub(crate) fn table_mut(&mut self, slot: usize) -> &mut Table {
        if slot == 0 {
            return &mut self.first;
        }
        if self.more.len() < slot {
            let (base_bits, positions) = (self.base_bits, &self.positions);
            self.more.resize_with(slot, || Table::new(base_bits, positions));
        }
        &mut self.more[slot - 1]
    }
    /// How many slots have a table.
    pub(crate) fn slots(&self) -> usize {
        1 + self.more.len()
    }
    /// Puts an empty table in a database's place.
    pub(crate) fn take(&mut self, slot: usize) -> Table {
        let empty = Table::new(self.base_bits, &self.positions);
        if slot == 0 || slot <= self.more.len() {
            std::mem::replace(self.table_mut(slot), empty)
        } else {
            empty
        }
    }
    /// Exchanges two databases.
    pub(crate) fn swap(&mut self, a: usize, b: usize) {
        let table = self.take(a);
        let other = std::mem::replace(self.table_mut(b), table);
        *self.table_mut(a) = other;
    }
    /// Removes the record of `key`, and takes note of it; the value, if that lay outside the table.
    pub(crate) fn remove(&mut self, slot: usize, at: At, key: &Key<'_>) -> Option<Value> {
        let table = self.table_mut(slot);
        table.volatile -= usize::from(table.records.at(at).deadline_ms() != i64::MAX);
        let value = table.records.remove_at(at);
        self.note(slot, position_of(key.hash.0), key.bytes);
        value
    }
    /// Adds a record for a key that is not there, and takes note of it.
    pub(crate) fn insert(
        &mut self,
        slot: usize,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        deadline_ms: i64,
        now: &Clock<'_>,
    ) {
        let position = position_of(key.hash.0);
        self.note(slot, position, key.bytes);
        let used = Some(now.access(&mut self.random).first().0);
        let table = self.table_mut(slot);
        table.volatile += usize::from(deadline_ms != i64::MAX);
        table.records.insert_new(position, New { key: key.bytes, used, deadline_ms, payload });
    }
    /// Sets a record's expiry (`i64::MAX`: none), and takes note of it.
    pub(crate) fn set_deadline(&mut self, slot: usize, at: At, key: &Key<'_>, deadline_ms: i64) {
        self.note(slot, position_of(key.hash.0), key.bytes);
        let table = self.table_mut(slot);
        table.volatile -= usize::from(table.records.at(at).deadline_ms() != i64::MAX);
        table.volatile += usize::from(deadline_ms != i64::MAX);
        table.records.set_deadline(at, key.bytes, deadline_ms);
    }
    /// Replaces the value and the expiry (`None`: keeps it) of a record, marks it used and takes note of it; the former
    /// value, if that lay outside the table.
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        at: At,
        key: &Key<'_>,
        payload: Payload<'_, Value>,
        deadline_ms: Option<i64>,
        now: &Clock<'_>,
    ) -> Option<Value> {
        self.note(slot, position_of(key.hash.0), key.bytes);
        let table = if slot == 0 { &mut self.first } else { &mut self.more[slot - 1] };
        let item = table.records.at(at);
        let before_ms = item.deadline_ms();
        let used = Some(now.access(&mut self.random).again(Usage(item.used())).0);
        let deadline_ms = deadline_ms.unwrap_or(before_ms);
        table.volatile -= usize::from(before_ms != i64::MAX);
        table.volatile += usize::from(deadline_ms != i64::MAX);
        table.records.replace(at, New { key: key.bytes, used, deadline_ms, payload })
    }
    /// Lets a record be as much used as one that was `before`, and once more.
    pub(crate) fn set_used(&mut self, slot: usize, at: At, before: Usage, now: &Clock<'_>) {
        let used = now.access(&mut self.random).again(before);
        self.table_mut(slot).records.set_used(at, used.0);
    }
    /// Marks a record used.
    #[inline]
    pub(crate) fn touch(&mut self, slot: usize, at: At, now: &Clock<'_>) -> Item<'_, Value> {
        let table = if slot == 0 { &mut self.first } else { &mut self.more[slot - 1] };
        let before = Usage(table.records.at(at).used());
        let used = now.access(&mut self.random).again(before);
        // Reading a hot key again in the same second must not dirty its cache line.
        if used != before {
            table.records.set_used(at, used.0);
        }
        table.records.at(at)
    }
    /// Lets `change` have the value of the record of `key`, marks it used and takes note of it; `None` when the value
    /// lies in the table.
    pub(crate) fn change<R>(
        &mut self,
        slot: usize,
        at: At,
        key: &Key<'_>,
        now: &Clock<'_>,
        change: impl FnOnce(&mut Value) -> R,
    ) -> Option<R> {
        self.note(slot, position_of(key.hash.0), key.bytes);
        self.touch(slot, at, now);
        self.table_mut(slot).records.change_outside(at, change)
    }
    /// Removes the expired records of the first segment from `from` on that has any, with notes of them: as
    /// [`Segmented::expire_step`]. What lay outside the table is added to `garbage`. Returns how many it removed, how
    /// many it looked at, and where to go on.
    pub(crate) fn expire_step(
        &mut self,
        slot: usize,
        from: u64,
        now_ms: i64,
        garbage: &mut Vec<Value>,
    ) -> (usize, usize, Option<u64>) {
        let notes = &mut self.notes;
        let table = match slot {
            0 => &mut self.first,
            _ => &mut self.more[slot - 1],
        };
        if table.records.deadline_ms() > now_ms {
            return (0, 0, None);
        }
        let mut removed = 0;
        let (looked_at, next) = table.records.expire_step(from, now_ms, &mut |key, position, value| {
            removed += 1;
            garbage.extend(value);
            if slot == 0 {
                notes.note(position, key);
            }
        });
        table.volatile -= removed;
        (removed, looked_at, next)
    }
    /// Takes note of every record of database 0.
    pub(crate) fn note_each(&mut self) {
        for record in self.first.records.iter() {
            self.notes.note(self.positions.position(record.key()), record.key());
        }
    }
    #[inline]
    fn note(&mut self, slot: usize, position: u64, key: &[u8]) {
        if slot == 0 {
            self.notes.note(position, key);
        }
    }
}

/// The time a command runs at, and how uses are counted then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock<'a> {
    pub(crate) now_ms: i64,
    /// Under an LFU policy.
    pub(crate) lfu: bool,
    pub(crate) settings: &'a Settings,
}

impl Clock<'_> {
    #[inline]
    fn access<'r>(&'r self, random: &'r mut u64) -> Access<'r> {
        Access { now_ms: self.now_ms, lfu: self.lfu, settings: self.settings, random }
    }
}
