//! [`Snapshot`]: all data as of one moment, read while writes continue. It needs no fork, and copies only records
//! that are written meanwhile.
//!
//! At that moment all shards are held, just long enough to put a [`ShardSnapshot`] into each. Several snapshots may
//! exist, each with its own moment. The reader of a snapshot walks over the shards in order, in slices. Before a
//! writer changes a record that the walk has not reached, the snapshot *keeps* the record: it copies the entry, and
//! shares a value that lies outside the table. A record that was added after the moment is only marked, so that the
//! walk skips it. Therefore memory grows only with the records that are written before the walk reaches them.
//!
//! [`SnapshotLoad`] counts the bytes of kept records, and sets a flag while they exceed the budget. The code that
//! admits writes checks this flag, and delays writers until the reader has taken some of the kept records.
//!
//! This module does not know where the records are written to.

mod marks;

use crate::extendible::{Entries, Item, position_of};
use crate::keepers::FrozenTable;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::{Keys, Keyspace, Txn};
use marks::{Mark, Marks};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};

/// Maximum number of records per step, unless a step copies a whole segment. Their shard is held while they are
/// copied.
const STEP_RECORDS: usize = 256;
/// Bytes of copied records, shared values included, after which a step ends. A segment without outside values and
/// with at most this many bytes is copied in one step. Such a copy needs no order of records, so no key is hashed while
/// the shard has no mark.
const STEP_BYTES: usize = 256 << 10;
/// Bytes of kept records that are stored together. A larger allocation would have to grow by a copy while a writer
/// waits.
const KEPT_PART_BYTES: usize = 32 << 10;
/// Maximum number of emptied parts that wait for the next kept records. They have 2 to 4 MiB. No figure counts them.
const SPARE_PARTS_MAX: usize = 64;
/// When kept records exceed the budget divided by this number, the reader takes them before it continues the walk.
const TAKE_PART: usize = 8;

/// Bit of `alerts`: the kept records of some snapshot exceed its budget.
pub const SNAPSHOT_OVER: u16 = 1;

/// Memory that a snapshot uses in addition to the data.
#[derive(Debug)]
pub struct SnapshotLoad {
    bytes: AtomicUsize,
    /// Bytes of the marks of written records. They do not count against the budget, because the reader cannot take
    /// marks: they are freed only when the walk ends in their shard.
    marks_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    budget_bytes: usize,
    alerts: Arc<AtomicU16>,
    is_over_budget: AtomicBool,
    /// Number of snapshots of the keyspace that exceed their budgets.
    snapshots_over: Arc<Mutex<usize>>,
    /// Emptied parts for the next kept records. Fresh memory would cost a writer a page fault per 4 KiB.
    spare_parts: Mutex<Vec<Entries<Value>>>,
}

impl SnapshotLoad {
    /// Bytes of all marks, and of the kept records that the reader has not taken yet.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.marks_bytes.load(Relaxed)
    }
    /// The largest value of [`SnapshotLoad::bytes`] so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }
    fn add(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.peak_bytes.fetch_max(now + self.marks_bytes.load(Relaxed), Relaxed);
        if now > self.budget_bytes {
            self.set_over(true);
        }
    }
    fn sub(&self, bytes: usize) {
        let now = self.bytes.fetch_sub(bytes, Relaxed) - bytes;
        if now <= self.budget_bytes / 2 {
            self.set_over(false);
        }
    }
    /// An emptied part, if there is one. Does not wait for the saver, because the caller holds a shard.
    fn spare_part(&self) -> Option<Entries<Value>> {
        self.spare_parts.try_lock()?.pop()
    }
    /// Notes whether this snapshot exceeds its budget. `alerts` has the bit [`SNAPSHOT_OVER`] while any snapshot
    /// exceeds its budget.
    fn set_over(&self, is_over: bool) {
        if self.is_over_budget.load(Relaxed) == is_over {
            return;
        }
        let mut over = self.snapshots_over.lock();
        if self.is_over_budget.swap(is_over, Relaxed) == is_over {
            return;
        }
        *over = if is_over { *over + 1 } else { *over - 1 };
        match *over {
            0 => self.alerts.fetch_and(!SNAPSHOT_OVER, Relaxed),
            _ => self.alerts.fetch_or(SNAPSHOT_OVER, Relaxed),
        };
    }
}

/// Some records of one database as they were at the moment of the snapshot, stored together.
#[derive(Debug)]
pub struct SnapshotRecords {
    slot: usize,
    entries: Entries<Value>,
    bytes: usize,
}

impl SnapshotRecords {
    /// The database of these records or, for records of a system companion, the database to which the companion
    /// belongs.
    pub fn db(&self) -> usize {
        self.slot / 2
    }
    /// True when these records belong to a system companion.
    pub fn is_system(&self) -> bool {
        self.slot % 2 == 1
    }
    /// The records. Their values may share memory with the current data.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.entries.items().map(RecordRef)
    }
    /// An empty part of these entries, which have no item.
    fn of(slot: usize, entries: Entries<Value>) -> SnapshotRecords {
        SnapshotRecords { slot, entries, bytes: 0 }
    }
    /// Adds a copy of `item`. A value outside the table is shared. Returns the approximate size of the copy in
    /// bytes.
    fn push(&mut self, item: &Item<'_, Value>) -> usize {
        let bytes = self.entries.push(item);
        self.bytes += bytes;
        bytes
    }
}

/// The part of a snapshot that belongs to one shard.
#[derive(Debug)]
pub(crate) struct ShardSnapshot {
    load: Arc<SnapshotLoad>,
    /// The walk has passed all records before this slot and position.
    walked_to: (usize, u64),
    /// Marks of records after `walked_to` that were written or added since the moment of the snapshot. Their bytes are
    /// counted in `load`.
    marks: Marks,
    /// The marked records as they were at the moment of the snapshot, if they existed then.
    kept: Vec<SnapshotRecords>,
    /// Tables that a flush or a swap took away since the moment of the snapshot, by slot. The walk reads these
    /// tables, and not the new tables in their slots.
    frozen: Vec<(usize, FrozenTable)>,
    /// The hasher of marks, independent of the hash that places keys.
    hasher: ahash::RandomState,
}

impl ShardSnapshot {
    /// True when this part belongs to the snapshot that has this load.
    pub(crate) fn is_of(&self, load: &Arc<SnapshotLoad>) -> bool {
        Arc::ptr_eq(&self.load, load)
    }
    /// Keeps the current record of `key`, which is about to be written, added or removed.
    pub(crate) fn keep(&mut self, shard: &Shard, slot: usize, position: u64, key: &[u8]) {
        if self.is_ahead(slot, position)
            && self.set_mark(slot, position, key)
            && let Some(table) = shard.table(slot)
            && let Some(at) = table.records.locate(position, key)
        {
            let item = table.records.at(at);
            let bytes = self.room_for(slot, item.inline_bytes()).push(&item);
            self.load.add(bytes);
        }
    }
    /// Asks the processor to load the mark of a key that may be written soon.
    pub(crate) fn prefetch(&self, slot: usize, position: u64) {
        if self.is_ahead(slot, position) {
            self.marks.prefetch(position);
        }
    }
    /// The last part of `kept` if it has room for an entry of `bytes` bytes, else a new part.
    fn room_for(&mut self, slot: usize, bytes: usize) -> &mut SnapshotRecords {
        let is_full = |part: &SnapshotRecords| part.entries.heap_bytes() + bytes > KEPT_PART_BYTES;
        let room = match self.kept.last() {
            Some(last) if last.slot != slot => Some(0),
            Some(last) if is_full(last) => Some(KEPT_PART_BYTES),
            Some(_) => None,
            None => Some(0),
        };
        if let Some(room) = room {
            let entries = self.load.spare_part().unwrap_or_else(|| Entries::with_room(room));
            self.kept.push(SnapshotRecords::of(slot, entries));
        }
        self.kept.last_mut().expect("there was a part, or one was added")
    }
    /// Keeps the whole table of a slot, before a flush or a swap takes it away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot >= self.walked_to.0 && self.frozen.iter().all(|(frozen, _)| *frozen != slot) {
            // Freeze the table even if it does not exist, so that the walk does not read the table that replaces
            // it.
            self.frozen.push((slot, FrozenTable::of(shard, slot)));
        }
    }
    /// True when the walk has yet to reach this place in the current table of the slot.
    fn is_ahead(&self, slot: usize, position: u64) -> bool {
        (slot, position) >= self.walked_to && self.frozen.iter().all(|(frozen, _)| *frozen != slot)
    }
    fn mark(&self, slot: usize, position: u64, key: &[u8]) -> Mark {
        Mark::new(position, self.hasher.hash_one((slot, key)))
    }
    /// Sets the mark of a key. Returns true when it was not marked before.
    fn set_mark(&mut self, slot: usize, position: u64, key: &[u8]) -> bool {
        let mark = self.mark(slot, position, key);
        let before = self.marks.bytes();
        let is_new = self.marks.insert(mark);
        if self.marks.bytes() != before {
            self.load.marks_bytes.fetch_add(self.marks.bytes() - before, Relaxed);
        }
        is_new
    }
    /// Returns the marks and the frozen tables, which are no longer needed, because the walk has passed every record of
    /// the shard. The caller drops them after the shard is released.
    fn finish(&mut self) -> (Marks, Vec<(usize, FrozenTable)>) {
        self.walked_to = (usize::MAX, 0);
        self.load.marks_bytes.fetch_sub(self.marks.bytes(), Relaxed);
        (std::mem::take(&mut self.marks), std::mem::take(&mut self.frozen))
    }
}

impl Drop for ShardSnapshot {
    fn drop(&mut self) {
        drop(self.finish());
        self.load.sub(self.kept.iter().map(|part| part.bytes).sum());
    }
}

/// The step of a snapshot's walk in one shard.
impl Shard {
    /// Adds the next records of `slot`, starting at position `from`, to `out`. Skips records that the snapshot has
    /// kept. Returns the position at which to continue; `None` at the end of the slot.
    fn save_step(
        &mut self,
        load: &Arc<SnapshotLoad>,
        slot: usize,
        from: u64,
        out: &mut Vec<SnapshotRecords>,
    ) -> Option<u64> {
        let mut keepers = self.keepers.take()?;
        let next = match keepers.shard_snapshot(load) {
            Some(shard_snapshot) => shard_snapshot.step(self, slot, from, out),
            None => None,
        };
        self.keepers = Some(keepers);
        next
    }
}

impl ShardSnapshot {
    /// Saves a step of the shard: see [`Shard::save_step`].
    fn step(&mut self, shard: &Shard, slot: usize, from: u64, out: &mut Vec<SnapshotRecords>) -> Option<u64> {
        let frozen = self.frozen.iter().find(|(of, _)| *of == slot).map(|(_, frozen)| &frozen.0);
        let records = frozen.or_else(|| shard.table(slot).map(|table| &table.records))?;
        let room = records.inline_bytes_at(from).unwrap_or(0).min(STEP_BYTES);
        let mut saved = SnapshotRecords::of(slot, Entries::with_room(room));
        let (mut from, mut left) = (Some(from), STEP_RECORDS);
        while let Some(at) = from
            && left > 0
            && saved.bytes < STEP_BYTES
        {
            let fits_whole = |bytes: usize| saved.bytes + bytes <= STEP_BYTES;
            let most = if records.inline_bytes_at(at).is_some_and(fits_whole) { usize::MAX } else { left };
            let (visited, next) = records.scan_step(at, most, &mut |item| {
                let mark = || self.mark(slot, records.position_of(&item), item.key());
                if self.marks.is_empty() || !self.marks.contains(mark()) {
                    saved.push(&item);
                }
            });
            left = left.saturating_sub(visited.max(1));
            from = next;
        }
        out.extend((saved.bytes > 0).then_some(saved));
        self.walked_to = from.map_or((slot + 1, 0), |next| (slot, next));
        from
    }
}

/// A snapshot: see the module. Dropping this value ends the snapshot.
#[derive(Debug)]
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    load: Arc<SnapshotLoad>,
    databases: BTreeMap<usize, Keys>,
    changes: u64,
    /// The slots with records that the walk has not finished, in ascending order. The walk is in the first of these
    /// slots.
    slots: Vec<usize>,
    /// The shard at which the walk continues in the first of `slots`.
    shard: usize,
    /// The position in this shard at which the walk continues.
    from: u64,
    /// The shard from which kept records are taken next.
    take_from: usize,
}

impl Keyspace {
    /// Begins a snapshot of the data at this moment. Holds all shards briefly. Where others may hold shards for
    /// long, the caller announces this as a long lock. While kept records exceed `budget_bytes`, `alerts` has the
    /// bit [`SNAPSHOT_OVER`]. All snapshots of a keyspace must get the same `alerts`.
    pub fn snapshot(&self, budget_bytes: usize, alerts: Arc<AtomicU16>) -> Snapshot<'_> {
        self.lock_all(0).snapshot(budget_bytes, alerts)
    }
    /// Number of changes since the start: of records, and of what [`Keyspace::record`] knows. Expiry and eviction do
    /// not count.
    pub fn changes(&self) -> u64 {
        let of_records: u64 = self.shards.iter().map(|shard| shard.changes()).sum();
        of_records + self.other_changes.load(Relaxed)
    }
}

impl<'k> Txn<'k> {
    /// Like [`Keyspace::snapshot`], for a transaction that holds all shards.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn snapshot(&mut self, budget_bytes: usize, alerts: Arc<AtomicU16>) -> Snapshot<'k> {
        self.carry_out_all_promises();
        let keyspace = self.keyspace;
        let load = Arc::new(SnapshotLoad {
            bytes: AtomicUsize::new(0),
            marks_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            budget_bytes,
            alerts,
            is_over_budget: AtomicBool::new(false),
            snapshots_over: keyspace.snapshots_over.clone(),
            spare_parts: Mutex::default(),
        });
        let mut databases = BTreeMap::<usize, Keys>::new();
        let mut slots = BTreeSet::new();
        let mut changes = keyspace.other_changes.load(Relaxed);
        for shard in self.all_held() {
            for (slot, table) in shard.tables().filter(|(_, table)| table.records.len() > 0) {
                slots.insert(slot);
                if slot % 2 == 0 {
                    let keys = databases.entry(slot / 2).or_default();
                    keys.all += table.records.len();
                    keys.expiring += table.expiring;
                }
            }
            changes += shard.changes;
            let records = shard.sums().records;
            shard.keepers().snapshots.push(ShardSnapshot {
                load: load.clone(),
                walked_to: (0, 0),
                marks: Marks::new(records),
                kept: Vec::new(),
                frozen: Vec::new(),
                hasher: keyspace.mark_hasher(),
            });
        }
        let slots = slots.into_iter().collect();
        Snapshot { keyspace, load, databases, changes, slots, shard: 0, from: 0, take_from: 0 }
    }
}

impl Snapshot<'_> {
    /// The databases that had keys at the moment of the snapshot, and their numbers of keys.
    pub fn databases(&self) -> &BTreeMap<usize, Keys> {
        &self.databases
    }
    /// [`Keyspace::changes`] at the moment of the snapshot.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    /// How much memory the snapshot keeps.
    pub fn load(&self) -> &Arc<SnapshotLoad> {
        &self.load
    }
    /// The keyspace of the snapshot.
    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace
    }
    /// Adds the next records to `out`. They come database by database, but records that were written before the
    /// walk reached them come out of order. Returns false at the end, with nothing added. Holds one shard for one
    /// slice.
    pub fn next(&mut self, out: &mut Vec<SnapshotRecords>) -> bool {
        let is_much =
            |snapshot: &Self| snapshot.load.bytes.load(Relaxed) > snapshot.load.budget_bytes / TAKE_PART;
        loop {
            if is_much(self) && self.take_kept(out) {
                return true;
            }
            let Some(slot) = self.slots.first().copied() else { return self.take_kept(out) };
            self.step(slot, out);
            if !out.is_empty() {
                return true;
            }
        }
    }
    /// Takes the memory of a part that was read, for the next kept records.
    pub fn take_back(&self, part: SnapshotRecords) {
        let mut entries = part.entries;
        if (KEPT_PART_BYTES..2 * KEPT_PART_BYTES).contains(&entries.room()) {
            entries.clear();
            let mut spare_parts = self.load.spare_parts.lock();
            if spare_parts.len() < SPARE_PARTS_MAX {
                spare_parts.push(entries);
            }
        }
    }
    fn step(&mut self, slot: usize, out: &mut Vec<SnapshotRecords>) {
        let shard = self.shard;
        let from = self.from.max(self.keyspace.start_of(shard));
        let is_last_slot = self.slots.len() == 1;
        let mut held = self.keyspace.shards[shard].lock.lock();
        let mut unneeded = None;
        match held.save_step(&self.load, slot, from, out) {
            Some(next) => self.from = next,
            None => {
                if is_last_slot && let Some(shard_snapshot) = held.shard_snapshot(&self.load) {
                    unneeded = Some(shard_snapshot.finish());
                }
                (self.shard, self.from) = (shard + 1, 0);
            }
        }
        drop(held);
        drop(unneeded);
        if self.shard == self.keyspace.shards() {
            (self.shard, self.from) = (0, 0);
            self.slots.remove(0);
        }
    }
    /// Adds the kept records of the next shard that has any to `out`. Returns false when there are none.
    fn take_kept(&mut self, out: &mut Vec<SnapshotRecords>) -> bool {
        for _ in 0..self.keyspace.shards() {
            let shard = self.take_from;
            self.take_from = (shard + 1) % self.keyspace.shards();
            let mut held = self.keyspace.shards[shard].lock.lock();
            let shard_snapshot = held.shard_snapshot(&self.load);
            let kept = shard_snapshot
                .map(|shard_snapshot| std::mem::take(&mut shard_snapshot.kept))
                .unwrap_or_default();
            drop(held);
            if !kept.is_empty() {
                // From here on the records count as taken by the reader, like the records of a step.
                self.load.sub(kept.iter().map(|part| part.bytes).sum());
                out.extend(kept);
                return true;
            }
        }
        false
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        for shard in &self.keyspace.shards {
            // The kept records are freed after the lock is released.
            let shard_snapshot = shard.lock.lock().take_shard_snapshot(&self.load);
            drop(shard_snapshot);
        }
        self.load.set_over(false);
        // The load may live on in INFO's figures.
        let spare_parts = std::mem::take(&mut *self.load.spare_parts.lock());
        drop(spare_parts);
    }
}

impl crate::Db<'_, '_> {
    /// Makes the snapshots and views keep the record of `key`. Call this before the cost of a change of the value
    /// in place is estimated, because the change must copy memory that a snapshot shares.
    pub fn keep_for_snapshot(&mut self, key: &crate::Key<'_>) {
        let (slot, shard) = (self.slot, self.txn.keyspace.shard_of(key.hash));
        self.txn.shard_guard(shard).lock.keep(slot, position_of(key.hash.0), key.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests;
