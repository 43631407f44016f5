//! [`Shard`]: one lock's part of every database.

use crate::record::Record;
use crate::segmented::{At, Item, Segmented};
use crate::tracking::Notes;
use crate::usage::Access;
use crate::{Key, Settings, Value};
use parking_lot::Mutex;

/// A shard with its lock, on a cache line of its own (two: processors fetch them in pairs).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot(pub(crate) Mutex<Shard>);

/// One shard. Databases are counted by [`Shard::table`]'s *slot*: 0 is database 0, whose writes are noted.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Slot 0.
    first: Table,
    /// The others, as far as they were needed.
    more: Vec<Table>,
    base_bits: u8,
    pub(crate) notes: Notes,
    /// State of the generator behind LFU counters.
    pub(crate) random: u64,
}

/// Records on their way out, boxed as they are in the table: only pointers are copied.
#[allow(clippy::vec_box)]
pub(crate) type Removed = Vec<Box<Record>>;

/// One database's part in a shard.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) records: Segmented<Box<Record>>,
    /// Records with an expiry.
    pub(crate) volatile: usize,
}

impl Table {
    const fn new(base_bits: u8) -> Table {
        Table { records: Segmented::new(base_bits), volatile: 0 }
    }
}

impl Shard {
    pub(crate) fn new(base_bits: u8, random: u64) -> Shard {
        let first = Table::new(base_bits);
        Shard { first, more: Vec::new(), base_bits, notes: Notes::default(), random }
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
            let base_bits = self.base_bits;
            self.more.resize_with(slot, || Table::new(base_bits));
        }
        &mut self.more[slot - 1]
    }
    /// How many slots have a table.
    pub(crate) fn slots(&self) -> usize {
        1 + self.more.len()
    }
    /// Puts an empty table in a database's place.
    pub(crate) fn take(&mut self, slot: usize) -> Table {
        let empty = Table::new(self.base_bits);
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
    /// Removes a record, and takes note of it.
    pub(crate) fn remove(&mut self, slot: usize, at: At) -> Box<Record> {
        let table = self.table_mut(slot);
        let record = table.records.remove_at(at);
        table.volatile -= usize::from(record.expire_at_ms().is_some());
        self.note(slot, &record);
        record
    }
    /// Adds a record for a key that is not there, and takes note of it.
    pub(crate) fn insert(&mut self, slot: usize, record: Box<Record>) {
        self.note(slot, &record);
        let table = self.table_mut(slot);
        table.volatile += usize::from(record.expire_at_ms().is_some());
        table.records.insert_new(record);
    }
    /// Sets a record's expiry (`i64::MAX`: none).
    pub(crate) fn set_deadline(&mut self, slot: usize, at: At, deadline_ms: i64) {
        let table = self.table_mut(slot);
        let record = table.records.at_mut(at);
        table.volatile -= usize::from(record.expire_at_ms().is_some());
        record.set_deadline_ms(deadline_ms);
        table.volatile += usize::from(deadline_ms != i64::MAX);
        table.records.note_deadline(at, deadline_ms);
    }
    /// Replaces the value and the expiry of a record; the former value.
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        at: At,
        value: Value,
        deadline_ms: i64,
        now: &Clock<'_>,
    ) -> Value {
        let record = self.touch(slot, at, now);
        let old = std::mem::replace(&mut record.value, value);
        if record.deadline_ms() != deadline_ms {
            self.set_deadline(slot, at, deadline_ms);
        }
        old
    }
    /// Marks a record used.
    #[inline]
    pub(crate) fn touch(&mut self, slot: usize, at: At, now: &Clock<'_>) -> &mut Record {
        let table = if slot == 0 { &mut self.first } else { &mut self.more[slot - 1] };
        let record = table.records.at_mut(at);
        record.touch(&mut now.access(&mut self.random));
        record
    }
    /// A new record.
    pub(crate) fn record(
        &mut self,
        key: &Key<'_>,
        value: Value,
        deadline_ms: i64,
        now: &Clock<'_>,
    ) -> Box<Record> {
        Box::new(Record::new(key, value, deadline_ms, now.access(&mut self.random).first()))
    }
    /// Moves the expired records of the first segment from `from` on that has any to `expired`: as
    /// [`Segmented::expire_step`], with notes of them.
    pub(crate) fn expire_step(
        &mut self,
        slot: usize,
        from: u64,
        now_ms: i64,
        expired: &mut Removed,
    ) -> (usize, Option<u64>) {
        let table = self.table_mut(slot);
        if table.records.deadline_ms() > now_ms {
            return (0, None);
        }
        let before = expired.len();
        let step = table.records.expire_step(from, now_ms, expired);
        table.volatile -= expired.len() - before;
        expired[before..].iter().for_each(|record| self.note(slot, record));
        step
    }
    /// Takes note of every record of database 0.
    pub(crate) fn note_each(&mut self) {
        for record in self.first.records.iter() {
            self.notes.note(record.position(), record.key());
        }
    }
    #[inline]
    fn note(&mut self, slot: usize, record: &Record) {
        if slot == 0 {
            self.notes.note(record.position(), record.key());
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
