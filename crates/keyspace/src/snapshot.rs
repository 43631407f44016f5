//! [`Snapshot`]: the data as it was at one moment, read while writes go on. No fork, and no copy of what nobody writes.
//!
//! The moment is one at which all shards are held, for as long as it takes to put a [`Saving`] into each. There may be
//! several snapshots, each of a moment of its own. The reader walks the shards in order, a slice at a time. A record that is
//! written before the walk has reached it is *kept* first: the snapshot gets what the record was, values shared by count
//! where the types allow it. What is new since the moment is marked only. So memory grows with the records that are written
//! before their turn, and with nothing else.
//!
//! [`SnapshotLoad`] tells how many bytes are kept, and raises a flag while there are more than the budget: whoever admits
//! writes looks at the flag and lets them wait until the reader has taken some.
//!
//! Left out: where the records go.

use crate::extendible::{Item, position_of};
use crate::keepers::Frozen;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::usage::Usage;
use crate::{Keys, Keyspace, Settings, Txn};
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

/// Records of one step: the shard is held while they are copied.
const STEP_RECORDS: usize = 256;
/// A step ends when it has copied so many bytes of keys and short strings.
const STEP_BYTES: usize = 256 << 10;
/// Kept records are taken before the walk goes on when they are more than this part of the budget.
const TAKE_PART: usize = 8;
/// What a mark of a written record takes.
const MARK_BYTES: usize = 2 * size_of::<u128>();

/// Bit of a snapshot's alerts: more is kept than the budget.
pub const SNAPSHOT_OVER: u8 = 1;

/// How much a snapshot keeps beside the data.
#[derive(Debug)]
pub struct SnapshotLoad {
    bytes: AtomicUsize,
    /// Of marks: they go when the walk has passed a shard, and nobody waits for that.
    marks_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    budget_bytes: usize,
    alerts: Arc<AtomicU8>,
    is_over: AtomicBool,
    /// How many of the keyspace's snapshots are over their budgets.
    over: Arc<Mutex<usize>>,
}

impl SnapshotLoad {
    /// Bytes of records that were written before their turn and have not been read, and of the marks on all that were written.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.marks_bytes.load(Relaxed)
    }
    /// The most that it ever was.
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
    /// Whether this snapshot is over its budget. The alert is there while any snapshot is.
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

/// One record as it was.
#[derive(Debug)]
pub struct Saved {
    /// Its database, or the one whose system companion it is in.
    pub db: usize,
    /// It is in a system database.
    pub system: bool,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, which may share memory with what is in the keyspace now.
    pub value: Value,
    /// When it expires (unix milliseconds), if ever.
    pub expire_at_ms: Option<i64>,
    usage: Usage,
}

impl Saved {
    /// See [`RecordRef::idle_s`].
    pub fn idle_s(&self, now_ms: i64) -> u32 {
        self.usage.idle_s(now_ms)
    }
    /// See [`RecordRef::frequency`].
    pub fn frequency(&self, now_ms: i64, settings: &Settings) -> u8 {
        self.usage.frequency(now_ms, settings)
    }
    /// A copy of `item`, and about how many bytes that takes.
    fn of(slot: usize, item: Item<'_, Value>) -> (Saved, usize) {
        let record = RecordRef(item);
        let (value, key) = (record.value().to_value(), record.key().to_vec());
        let bytes = size_of::<Saved>() + key.len() + value.heap_bytes();
        let expire_at_ms = record.expire_at_ms();
        (
            Saved {
                db: slot / 2,
                system: slot % 2 == 1,
                key,
                value,
                expire_at_ms,
                usage: Usage(item.used()),
            },
            bytes,
        )
    }
}

/// A shard's part of a snapshot.
#[derive(Debug)]
pub(crate) struct Saving {
    load: Arc<SnapshotLoad>,
    /// The walk has passed everything before this slot and position.
    done: (usize, u64),
    /// Marks of records behind that place that were written since the moment, new ones included.
    marks: HashTable<u128>,
    /// What those were that were there, with the bytes that each takes.
    kept: Vec<(Saved, usize)>,
    /// Tables that were emptied or exchanged since the moment, as they were then; nothing that is in their place counts.
    frozen: Vec<(usize, Frozen)>,
    hashers: [ahash::RandomState; 2],
}

impl Saving {
    /// Is a part of the snapshot with this load.
    pub(crate) fn is_of(&self, load: &Arc<SnapshotLoad>) -> bool {
        Arc::ptr_eq(&self.load, load)
    }
    /// The record of `key` is about to be written, added or removed.
    pub(crate) fn keep(&mut self, shard: &Shard, slot: usize, position: u64, key: &[u8]) {
        if self.is_ahead(slot, position)
            && self.set_mark(slot, key)
            && let Some(table) = shard.table(slot)
            && let Some(at) = table.records.locate(position, key)
        {
            let (saved, bytes) = Saved::of(slot, table.records.at(at));
            self.load.add(bytes);
            self.kept.push((saved, bytes));
        }
    }
    /// The whole table is about to be taken away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot >= self.done.0 && self.frozen.iter().all(|(frozen, _)| *frozen != slot) {
            // What comes in its place is new, also where there is no table.
            self.frozen.push((slot, Frozen::of(shard, slot)));
        }
    }
    /// True when the walk has still to come by a record there.
    fn is_ahead(&self, slot: usize, position: u64) -> bool {
        (slot, position) >= self.done && self.frozen.iter().all(|(frozen, _)| *frozen != slot)
    }
    /// 128 bits of keyed hash: no two keys share them.
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
    /// True when it was not marked before.
    fn set_mark(&mut self, slot: usize, key: &[u8]) -> bool {
        let mark = self.mark(slot, key);
        let is_new = self.marks.find(mark as u64, |known| *known == mark).is_none();
        if is_new {
            self.marks.insert_unique(mark as u64, mark, |mark| *mark as u64);
            self.load.marks_bytes.fetch_add(MARK_BYTES, Relaxed);
        }
        is_new
    }
    /// Nothing is ahead any more.
    fn finish(&mut self) {
        self.done = (usize::MAX, 0);
        self.load.marks_bytes.fetch_sub(self.marks.len() * MARK_BYTES, Relaxed);
        (self.marks, self.frozen) = (HashTable::new(), Vec::new());
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        self.finish();
        self.load.sub(self.kept.iter().map(|(_, bytes)| bytes).sum());
    }
}

/// What a shard does for a snapshot.
impl Shard {
    /// Copies the records of `slot` from `from` on that the snapshot does not have yet; where to go on.
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
        let (mut from, mut left, mut bytes) = (Some(from), STEP_RECORDS, 0);
        while let Some(at) = from
            && left > 0
            && bytes < STEP_BYTES
        {
            let (visited, next) = records.scan_step(at, left, &mut |item| {
                if !self.is_marked(slot, item.key()) {
                    let (saved, size) = Saved::of(slot, item);
                    bytes += size;
                    out.push(saved);
                }
            });
            left = left.saturating_sub(visited.max(1));
            from = next;
        }
        self.done = from.map_or((slot + 1, 0), |next| (slot, next));
        from
    }
}

/// See the module. Ends when dropped.
#[derive(Debug)]
pub struct Snapshot<'k> {
    keyspace: &'k Keyspace,
    load: Arc<SnapshotLoad>,
    databases: BTreeMap<usize, Keys>,
    changes: u64,
    /// Slots that have records, the first of which is being walked.
    slots: Vec<usize>,
    /// Where the walk goes on, in the first slot; at or behind the end of all positions when that is done.
    shard: usize,
    from: u64,
    /// The shard from which kept records are taken next.
    take_from: usize,
}

impl Keyspace {
    /// The data as it is now. All shards are held for a moment: announce that, if others may hold them for long. While a
    /// snapshot keeps more than its `budget_bytes`, `alerts` has the bit [`SNAPSHOT_OVER`]: all snapshots of a keyspace are
    /// given the same alerts.
    pub fn snapshot(&self, budget_bytes: usize, alerts: Arc<AtomicU8>) -> Snapshot<'_> {
        self.lock_all(0).snapshot(budget_bytes, alerts)
    }
    /// How often records were changed since the start; expiry and eviction do not count.
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
    /// The databases that have keys, and how many.
    pub fn databases(&self) -> &BTreeMap<usize, Keys> {
        &self.databases
    }
    /// [`Keyspace::changes`] at the moment.
    pub fn changes(&self) -> u64 {
        self.changes
    }
    /// How much is kept for it.
    pub fn load(&self) -> &Arc<SnapshotLoad> {
        &self.load
    }
    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        self.keyspace
    }
    /// The next records, added to `out`: database by database, except those that were written before their turn. False at
    /// the end; nothing was added then. One shard is held, for one slice.
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
    /// Takes what is kept in the next shard that keeps anything.
    fn take_kept(&mut self, out: &mut Vec<Saved>) -> bool {
        for _ in 0..self.keyspace.shards() {
            let shard = self.take_from;
            self.take_from = (shard + 1) % self.keyspace.shards();
            let mut held = self.keyspace.shards[shard].lock.lock();
            let saving = held.saving(&self.load);
            let kept = saving.map(|saving| std::mem::take(&mut saving.kept)).unwrap_or_default();
            drop(held);
            if !kept.is_empty() {
                // From here on they are the reader's, as what a step gives.
                self.load.sub(kept.iter().map(|(_, bytes)| bytes).sum());
                out.extend(kept.into_iter().map(|(saved, _)| saved));
                return true;
            }
        }
        false
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        for shard in &self.keyspace.shards {
            // What was kept is freed when the shard is let go.
            let saving = shard.lock.lock().take_saving(&self.load);
            drop(saving);
        }
        self.load.tell(false);
    }
}

impl crate::Db<'_, '_> {
    /// To be called before it is told how long a change of the value at `key` in place takes: what a snapshot shares from
    /// then on must be copied.
    pub fn keep_for_snapshot(&mut self, key: &crate::Key<'_>) {
        let (slot, shard) = (self.slot, self.txn.keyspace.shard_of(key.hash));
        self.txn.held(shard).guard.keep(slot, position_of(key.hash.0), key.bytes);
    }
}

#[cfg(test)]
pub(crate) mod tests;
