//! [`Snapshot`]: the data at one moment, read while writes continue. It needs no fork, and copies only what is written.
//!
//! At that moment all shards are held, just long enough to put a [`Saving`] into each. Several snapshots may
//! exist, each with its own moment. The reader walks the shards in order, in slices. A writer first *keeps* a
//! record that the walk has not reached: the snapshot gets a copy of the former record, which shares a value outside
//! the table. A record that is new since the moment is only marked. So memory grows only with the records that are
//! written before their turn.
//!
//! [`SnapshotLoad`] counts the kept bytes, and raises a flag while they exceed the budget. The code that admits
//! writes checks the flag and delays writers until the reader has taken some of the kept records.
//!
//! Left out: where the records go.

use crate::extendible::{Entries, Item, position_of};
use crate::keepers::Frozen;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::{Keys, Keyspace, Txn};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Records of one step, unless a step copies a whole segment. The shard is held while they are copied.
const STEP_RECORDS: usize = 256;
/// Bytes of copied records, shared values included, after which a step ends. A segment with no outside values and at
/// most these bytes is copied in one step: that needs no order, so no key is hashed.
const STEP_BYTES: usize = 256 << 10;
/// Bytes of kept records that lie side by side. A larger allocation would be enlarged, and copied, while a writer waits.
const KEPT_PART_BYTES: usize = 32 << 10;
/// When more than this fraction of the budget is kept, the kept records are taken before the walk continues.
const TAKE_PART: usize = 8;

/// Bit of a snapshot's alerts: the kept records exceed the budget.
pub const SNAPSHOT_OVER: u8 = 1;

/// Memory of a snapshot beside the data.
#[derive(Debug)]
pub struct SnapshotLoad {
    bytes: AtomicUsize,
    /// Bytes of marks. They do not count against the budget, because they go only when the walk has passed their
    /// shard.
    marks_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    budget_bytes: usize,
    alerts: Arc<AtomicU8>,
    is_over: AtomicBool,
    /// Number of the keyspace's snapshots that exceed their budgets.
    over: Arc<Mutex<usize>>,
}

impl SnapshotLoad {
    /// Bytes of kept records that were not read yet, and of all marks.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.marks_bytes.load(Relaxed)
    }
    /// Highest value of [`SnapshotLoad::bytes`] so far.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }
    fn add(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        self.peak_bytes.fetch_max(now + self.marks_bytes.load(Relaxed), Relaxed);
        if now > self.budget_bytes {
            self.tell(true);
        }
    }
    fn sub(&self, bytes: usize) {
        let now = self.bytes.fetch_sub(bytes, Relaxed) - bytes;
        if now <= self.budget_bytes / 2 {
            self.tell(false);
        }
    }
    /// Sets whether this snapshot exceeds its budget. The alert is set while any snapshot does.
    fn tell(&self, is_over: bool) {
        if self.is_over.load(Relaxed) == is_over {
            return;
        }
        let mut over = self.over.lock();
        if self.is_over.swap(is_over, Relaxed) == is_over {
            return;
        }
        *over = if is_over { *over + 1 } else { *over - 1 };
        match *over {
            0 => self.alerts.fetch_and(!SNAPSHOT_OVER, Relaxed),
            _ => self.alerts.fetch_or(SNAPSHOT_OVER, Relaxed),
        };
    }
}

/// Records of one database as they were at the moment of the snapshot, side by side.
#[derive(Debug)]
pub struct Saved {
    slot: usize,
    entries: Entries<Value>,
    bytes: usize,
}

impl Saved {
    /// Their database, or the database of their system companion.
    pub fn db(&self) -> usize {
        self.slot / 2
    }
    /// True when they are in a system companion.
    pub fn is_system(&self) -> bool {
        self.slot % 2 == 1
    }
    /// The records. Their values may share memory with the current data.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.entries.items().map(RecordRef)
    }
    /// No records, with room for `bytes` bytes of them.
    fn with_room(slot: usize, bytes: usize) -> Saved {
        Saved { slot, entries: Entries::with_room(bytes), bytes: 0 }
    }
    /// Adds a copy of `item`, in one piece as it lies in the table. Returns its approximate size in bytes.
    fn push(&mut self, item: &Item<'_, Value>) -> usize {
        let bytes = self.entries.push(item);
        self.bytes += bytes;
        bytes
    }
}

/// A shard's part of a snapshot.
#[derive(Debug)]
pub(crate) struct Saving {
    load: Arc<SnapshotLoad>,
    /// The walk has passed everything before this slot and position.
    done: (usize, u64),
    /// Marks of records after that place that were written since the moment, new ones included.
    marks: HashTable<u128>,
    /// Bytes of `marks` that are counted in `load`.
    marks_bytes: usize,
    /// The former state of those records that existed.
    kept: Vec<Saved>,
    /// Former tables that were emptied or exchanged since the moment. The tables that replaced them do not belong
    /// to the snapshot.
    frozen: Vec<(usize, Frozen)>,
    hashers: [ahash::RandomState; 2],
}

impl Saving {
    /// True when this part belongs to the snapshot with this load.
    pub(crate) fn is_of(&self, load: &Arc<SnapshotLoad>) -> bool {
        Arc::ptr_eq(&self.load, load)
    }
    /// Keeps the record of `key`, which is about to be written, added or removed.
    pub(crate) fn keep(&mut self, shard: &Shard, slot: usize, position: u64, key: &[u8]) {
        if self.is_ahead(slot, position)
            && self.set_mark(slot, key)
            && let Some(table) = shard.table(slot)
            && let Some(at) = table.records.locate(position, key)
        {
            let item = table.records.at(at);
            let bytes = self.room_for(slot, item.inline_bytes()).push(&item);
            self.load.add(bytes);
        }
    }
    /// The part of the kept records that has room for an entry of `bytes` bytes.
    fn room_for(&mut self, slot: usize, bytes: usize) -> &mut Saved {
        let is_full = |part: &Saved| part.entries.heap_bytes() + bytes > KEPT_PART_BYTES;
        let room = match self.kept.last() {
            Some(last) if last.slot != slot => Some(0),
            Some(last) if is_full(last) => Some(KEPT_PART_BYTES),
            Some(_) => None,
            None => Some(0),
        };
        self.kept.extend(room.map(|room| Saved::with_room(slot, room)));
        self.kept.last_mut().expect("there was a part, or one was added")
    }
    /// Keeps the whole table, which is about to be taken away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot >= self.done.0 && self.frozen.iter().all(|(frozen, _)| *frozen != slot) {
            // The table that replaces it is new. This also holds when there is no table now.
            self.frozen.push((slot, Frozen::of(shard, slot)));
        }
    }
    /// True when the walk has not reached this place yet.
    fn is_ahead(&self, slot: usize, position: u64) -> bool {
        (slot, position) >= self.done && self.frozen.iter().all(|(frozen, _)| *frozen != slot)
    }
    /// 128 bits of keyed hash, so two keys do not share a mark.
    fn mark(&self, slot: usize, key: &[u8]) -> u128 {
        let [a, b] = &self.hashers;
        u128::from(a.hash_one((slot, key))) << 64 | u128::from(b.hash_one((slot, key)))
    }
    fn is_marked(&self, slot: usize, key: &[u8]) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let mark = self.mark(slot, key);
        self.marks.find(mark as u64, |known| *known == mark).is_some()
    }
    /// Sets the mark of a key. Returns true when it was not marked before.
    fn set_mark(&mut self, slot: usize, key: &[u8]) -> bool {
        let mark = self.mark(slot, key);
        let Entry::Vacant(place) = self.marks.entry(mark as u64, |known| *known == mark, |mark| *mark as u64)
        else {
            return false;
        };
        place.insert(mark);
        let bytes = self.marks.allocation_size();
        if bytes != self.marks_bytes {
            self.load.marks_bytes.fetch_add(bytes - self.marks_bytes, Relaxed);
            self.marks_bytes = bytes;
        }
        true
    }
    /// Drops marks and frozen tables, because nothing is ahead of the walk.
    fn finish(&mut self) {
        self.done = (usize::MAX, 0);
        self.load.marks_bytes.fetch_sub(std::mem::take(&mut self.marks_bytes), Relaxed);
        (self.marks, self.frozen) = (HashTable::new(), Vec::new());
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        self.finish();
        self.load.sub(self.kept.iter().map(|part| part.bytes).sum());
    }
}

/// The steps of a snapshot in a shard.
impl Shard {
    /// Copies records of `slot`, starting at `from`, that the snapshot does not have yet. Returns where to
    /// continue.
    fn save_step(
        &mut self,
        load: &Arc<SnapshotLoad>,
        slot: usize,
        from: u64,
        out: &mut Vec<Saved>,
    ) -> Option<u64> {
        let mut keepers = self.keepers.take()?;
        let next = match keepers.saving(load) {
            Some(saving) => saving.step(self, slot, from, out),
            None => None,
        };
        self.keepers = Some(keepers);
        next
    }
}

impl Saving {
    /// See [`Shard::save_step`].
    fn step(&mut self, shard: &Shard, slot: usize, from: u64, out: &mut Vec<Saved>) -> Option<u64> {
        let frozen = self.frozen.iter().find(|(of, _)| *of == slot).map(|(_, frozen)| &frozen.0);
        let records = frozen.or_else(|| shard.table(slot).map(|table| &table.records))?;
        let mut saved = Saved::with_room(slot, records.inline_bytes_at(from).unwrap_or(0).min(STEP_BYTES));
        let (mut from, mut left) = (Some(from), STEP_RECORDS);
        while let Some(at) = from
            && left > 0
            && saved.bytes < STEP_BYTES
        {
            let fits_whole = |bytes: usize| saved.bytes + bytes <= STEP_BYTES;
            let most = if records.inline_bytes_at(at).is_some_and(fits_whole) { usize::MAX } else { left };
            let (visited, next) = records.scan_step(at, most, &mut |item| {
                if !self.is_marked(slot, item.key()) {
                    saved.push(&item);
                }
            });
            left = left.saturating_sub(visited.max(1));
            from = next;
        }
        out.extend((saved.bytes > 0).then_some(saved));
        self.done = from.map_or((slot + 1, 0), |next| (slot, next));
        from
    }
}

/// A snapshot, see the module. Ends on drop.
#[derive(Debug)]
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    load: Arc<SnapshotLoad>,
    databases: BTreeMap<usize, Keys>,
    changes: u64,
    /// Slots with records. The walk is in the first one.
    slots: Vec<usize>,
    /// Where the walk continues in the first slot.
    shard: usize,
    from: u64,
    /// The shard from which kept records are taken next.
    take_from: usize,
}

impl Keyspace {
    /// The data at this moment. All shards are held briefly: announce that where others may hold shards for long.
    /// While the snapshot keeps more than `budget_bytes`, `alerts` has the bit [`SNAPSHOT_OVER`]. All snapshots of
    /// a keyspace must get one shared `alerts`.
    pub fn snapshot(&self, budget_bytes: usize, alerts: Arc<AtomicU8>) -> Snapshot<'_> {
        self.lock_all(0).snapshot(budget_bytes, alerts)
    }
    /// Number of changes of records since the start, without expiry and eviction.
    pub fn changes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.changes()).sum()
    }
}

impl<'k> Txn<'k> {
    /// As [`Keyspace::snapshot`].
    ///
    /// # Panics
    /// When not all shards are held.
    pub fn snapshot(&mut self, budget_bytes: usize, alerts: Arc<AtomicU8>) -> Snapshot<'k> {
        self.settle_all();
        let keyspace = self.keyspace;
        let load = Arc::new(SnapshotLoad {
            bytes: AtomicUsize::new(0),
            marks_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            budget_bytes,
            alerts,
            is_over: AtomicBool::new(false),
            over: keyspace.snapshots_over.clone(),
        });
        let mut databases = BTreeMap::<usize, Keys>::new();
        let mut slots = BTreeSet::new();
        let mut changes = 0;
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
            shard.keepers().savings.push(Saving {
                load: load.clone(),
                done: (0, 0),
                marks: HashTable::new(),
                marks_bytes: 0,
                kept: Vec::new(),
                frozen: Vec::new(),
                hashers: keyspace.hashers(),
            });
        }
        let slots = slots.into_iter().collect();
        Snapshot { keyspace, load, databases, changes, slots, shard: 0, from: 0, take_from: 0 }
    }
}

impl Snapshot<'_> {
    /// The databases with keys, and their numbers of keys.
    pub fn databases(&self) -> &BTreeMap<usize, Keys> {
        &self.databases
    }
    /// [`Keyspace::changes`] at the moment of the snapshot.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    /// Memory that the snapshot keeps.
    pub fn load(&self) -> &Arc<SnapshotLoad> {
        &self.load
    }
    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace
    }
    /// Adds the next records to `out`: database by database, but records that were written before their turn come
    /// out of order. Returns false at the end, and adds nothing then. Holds one shard for one slice.
    pub fn next(&mut self, out: &mut Vec<Saved>) -> bool {
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
    fn step(&mut self, slot: usize, out: &mut Vec<Saved>) {
        let shard = self.shard;
        let from = self.from.max(self.keyspace.start_of(shard));
        let is_last_slot = self.slots.len() == 1;
        let mut held = self.keyspace.shards[shard].lock.lock();
        match held.save_step(&self.load, slot, from, out) {
            Some(next) => self.from = next,
            None => {
                if is_last_slot && let Some(saving) = held.saving(&self.load) {
                    saving.finish();
                }
                (self.shard, self.from) = (shard + 1, 0);
            }
        }
        drop(held);
        if self.shard == self.keyspace.shards() {
            (self.shard, self.from) = (0, 0);
            self.slots.remove(0);
        }
    }
    /// Takes the kept records of the next shard that has any.
    fn take_kept(&mut self, out: &mut Vec<Saved>) -> bool {
        for _ in 0..self.keyspace.shards() {
            let shard = self.take_from;
            self.take_from = (shard + 1) % self.keyspace.shards();
            let mut held = self.keyspace.shards[shard].lock.lock();
            let saving = held.saving(&self.load);
            let kept = saving.map(|saving| std::mem::take(&mut saving.kept)).unwrap_or_default();
            drop(held);
            if !kept.is_empty() {
                // From here on the reader has them, like the records of a step.
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
            // The kept records are freed after the shard is released.
            let saving = shard.lock.lock().take_saving(&self.load);
            drop(saving);
        }
        self.load.tell(false);
    }
}

impl crate::Db<'_, '_> {
    /// Call this before a change of the value at `key` in place is estimated: the change must copy what a snapshot
    /// shares.
    pub fn keep_for_snapshot(&mut self, key: &crate::Key<'_>) {
        let (slot, shard) = (self.slot, self.txn.keyspace.shard_of(key.hash));
        self.txn.held(shard).guard.keep(slot, position_of(key.hash.0), key.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests;
