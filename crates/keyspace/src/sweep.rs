//! Walks over all shards of a [`Keyspace`]: SCAN, whole visits, random keys, active expiry. One shard is locked at a time,
//! and never for longer than a segment takes.

use crate::extendible::POSITION_BITS;
use crate::journal::Placed;
use crate::{Flushed, KeyEvent, Keyspace, RecordRef, ScanCursor, Txn};
use std::sync::atomic::Ordering::Relaxed;

/// A random key comes from a random shard when that has at least this many; with fewer, shards differ too much for every
/// key to be about as likely as any other, and the shards are weighed first.
const SHARD_ITEMS_DENSE: usize = 64;
/// Draws of a random key, of which all but the last may hit an expired one.
const DRAWS_MAX: usize = 100;

impl Keyspace {
    /// As [`Txn::scan`], each shard locked by itself, a segment at a time.
    pub fn scan(
        &self,
        db: usize,
        cursor: ScanCursor,
        count: usize,
        now_ms: i64,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> ScanCursor {
        self.unlocked(now_ms).scan(db, cursor, count, visit)
    }
    /// As [`Txn::random_key`], each shard locked by itself.
    pub fn random_key(&self, db: usize, now_ms: i64, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        self.unlocked(now_ms).random_key(db, rng)
    }
    /// Visits every live record of `db` in one shard: walk the shards one by one to visit all. A record that is there
    /// all the while is visited exactly once. The shard is let go between its segments.
    pub fn for_each_in_shard(
        &self,
        shard: usize,
        db: usize,
        now_ms: i64,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) {
        let slot = self.slot(db);
        let mut next = Some(self.start_of(shard));
        let mut txn = self.unlocked(now_ms);
        while let Some(from) = next {
            next = txn.visit_step(slot, from, usize::MAX, visit).1;
        }
    }
    /// Active expiry: removes expired keys for at most about `keys_max` records, going on where the last call stopped;
    /// says how many were removed, and whether the bound ended it. Cheap when nothing has expired: it opens only segments
    /// in which something is due.
    pub fn expire_slice(&self, now_ms: i64, keys_max: usize) -> Expired {
        // Another thread is at it.
        let Some(mut at) = self.expire_from.try_lock() else { return Expired::default() };
        let (mut looked_at, mut removed) = (0, 0);
        let mut garbage = Vec::new();
        // Once around: every shard, and the one it starts in the middle of twice.
        for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *at;
            let shard_index = self.shard_at(from);
            loop {
                if looked_at >= keys_max {
                    *at = (slot, from);
                    return Expired { removed, more: true };
                }
                let mut held = self.shards[shard_index].lock.lock();
                if held.is_promised() {
                    break;
                }
                let Some(due) = held.next_due(slot, now_ms) else { break };
                if due != slot {
                    (slot, from) = (due, self.start_of(shard_index));
                }
                let (listens, mut effects) = (self.listens(), None);
                let mut tell = |key: &[u8], event: KeyEvent, gone: Option<&[Vec<u8>]>| {
                    if listens {
                        if let Some(fields) = gone {
                            self.note_gone(slot, key, fields, &mut effects);
                        }
                        self.tell(slot, key, event, true, 0);
                    }
                };
                let (gone, seen, next) =
                    held.expire_step(slot, from, now_ms, &mut garbage, listens, &mut tell);
                let placed = effects.and_then(|effects| self.journal().place(effects));
                if gone > 0 {
                    self.shards[shard_index].publish(&held);
                }
                let is_waited_for = held.watchers.waiters.has_signalled();
                drop(held);
                placed.into_iter().for_each(Placed::put);
                if is_waited_for {
                    self.serve_signalled(shard_index, now_ms);
                }
                looked_at += seen;
                removed += gone;
                self.count_expired(gone);
                garbage.drain(..).for_each(|value| self.dispose(value));
                (slot, from) = next.map_or((slot + 1, self.start_of(shard_index)), |from| (slot, from));
            }
            *at = (0, self.start_of((shard_index + 1) & (self.shards.len() - 1)));
        }
        Expired { removed, more: false }
    }
}

/// What [`Keyspace::expire_slice`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Records removed.
    pub removed: usize,
    /// It looked at as many as it might; as it opens only what is due, there is more to do.
    pub more: bool,
}

/// What concerns a whole database. Shards that are held are used as they are; the others are locked one at a time, for as
/// long as a segment takes.
impl Txn<'_> {
    /// Number of keys in `db`, expired ones included (as DBSIZE has it).
    pub fn len(&mut self, db: usize) -> usize {
        let slot = self.keyspace.slot(db);
        (0..self.keyspace.shards()).map(|shard| self.records_in(shard, slot)).sum()
    }
    /// True when `db` has no key.
    pub fn is_empty(&mut self, db: usize) -> bool {
        self.len(db) == 0
    }
    /// SCAN: visits about `count` live records of `db` from `cursor` on; returns the next cursor, 0 at the end. A key
    /// that is there from start to end is visited at least once, however the table grows or shrinks meanwhile.
    ///
    /// Looks at one segment more than `count` records fill, at most (and at shards that have nothing).
    pub fn scan(
        &mut self,
        db: usize,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> ScanCursor {
        let (keyspace, slot) = (self.keyspace, self.keyspace.slot(db));
        let mut left = count.max(1);
        let mut from = cursor;
        while left > 0 && from < 1 << POSITION_BITS {
            let (visited, next) = self.visit_step(slot, from, left, visit);
            left = left.saturating_sub(visited);
            from = next.unwrap_or_else(|| keyspace.start_of(keyspace.shard_at(from) + 1));
        }
        if from < 1 << POSITION_BITS { from } else { 0 }
    }
    /// A random live key of `db`; `None` when there is none (or when all that were drawn had expired).
    pub fn random_key(&mut self, db: usize, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let (shards, slot) = (self.keyspace.shards(), self.keyspace.slot(db));
        for _ in 0..DRAWS_MAX {
            let dense = self.random_in(rng.usize(..shards), slot, SHARD_ITEMS_DENSE, rng);
            let drawn = match dense {
                Drawn::TooFew => self.random_weighed(slot, rng),
                drawn => drawn,
            };
            match drawn {
                Drawn::Key(key) => return Some(key),
                Drawn::Expired => {}
                Drawn::TooFew => return None,
            }
        }
        None
    }
    /// Removes every key of `db` and of its system companion. Freeing what it returns takes a while with many keys: do
    /// that when the shards are let go.
    ///
    /// # Panics
    /// When not all shards are held.
    pub fn flush(&mut self, db: usize) -> Flushed {
        self.settle_all();
        let (keyspace, slot) = (self.keyspace, self.keyspace.slot(db));
        let mut tables = Vec::with_capacity(2 * keyspace.shards());
        for shard in self.all_held() {
            shard.note_tables(&[slot]);
            tables.extend([slot, slot ^ 1].into_iter().filter_map(|slot| shard.take(slot)));
        }
        // Before it is no data any more: it is always counted as one or the other.
        keyspace
            .garbage_bytes
            .fetch_add(tables.iter().map(|table| table.records.heap_bytes()).sum(), Relaxed);
        if slot == 0 {
            keyspace.flushes.fetch_add(1, Relaxed);
        }
        if self.listens() {
            self.note_change(slot);
            keyspace.tell_all();
        }
        Flushed { tables, garbage_bytes: keyspace.garbage_bytes.clone() }
    }
    /// Swaps two databases and their system companions.
    ///
    /// # Panics
    /// When not all shards are held.
    pub fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.settle_all();
        let (a, b) = (self.keyspace.slot(a), self.keyspace.slot(b));
        for shard in self.all_held() {
            shard.note_tables(&[a, b]);
            shard.swap(a, b);
            shard.swap(a ^ 1, b ^ 1);
        }
        if a == 0 || b == 0 {
            self.keyspace.flushes.fetch_add(1, Relaxed);
        }
        if self.listens() {
            self.note_change(a);
            self.keyspace.tell_all();
        }
    }

    /// Visits the live records of a segment, as [`crate::extendible::ExtendibleTable::scan_step`] does.
    fn visit_step(
        &mut self,
        slot: usize,
        from: u64,
        items_max: usize,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> (usize, Option<u64>) {
        let (shard, now_ms) = (self.keyspace.shard_at(from), self.now_ms());
        self.with_shard(shard, |shard| {
            let Some(table) = shard.table(slot) else { return (0, None) };
            table.records.scan_step(from, items_max, &mut |item| {
                let record = RecordRef(item);
                if !record.is_expired(now_ms) {
                    visit(record);
                }
            })
        })
    }
    fn records_in(&mut self, shard: usize, slot: usize) -> usize {
        self.with_shard(shard, |shard| shard.table(slot).map_or(0, |table| table.records.len()))
    }
    /// A random key of one shard, if it has at least `items_min`.
    fn random_in(&mut self, shard: usize, slot: usize, items_min: usize, rng: &mut fastrand::Rng) -> Drawn {
        let now_ms = self.now_ms();
        self.with_shard(shard, |shard| {
            let table = shard.table(slot).filter(|t| t.records.len() >= items_min);
            match table.and_then(|t| t.records.random(rng)) {
                None => Drawn::TooFew,
                Some(record) if RecordRef(record).is_expired(now_ms) => Drawn::Expired,
                Some(record) => Drawn::Key(record.key().to_vec()),
            }
        })
    }
    /// A random key of a random shard, chosen by its number of keys.
    fn random_weighed(&mut self, slot: usize, rng: &mut fastrand::Rng) -> Drawn {
        let lens: Vec<usize> =
            (0..self.keyspace.shards()).map(|shard| self.records_in(shard, slot)).collect();
        let total: usize = lens.iter().sum();
        if total == 0 {
            return Drawn::TooFew;
        }
        let mut ticket = rng.usize(..total);
        let holds = |len: &usize| match ticket.checked_sub(*len) {
            Some(rest) => {
                ticket = rest;
                false
            }
            None => true,
        };
        let shard = lens.iter().position(holds).expect("the ticket is below the sum");
        match self.random_in(shard, slot, 1, rng) {
            Drawn::TooFew => Drawn::Expired, // Emptied meanwhile: draw again.
            drawn => drawn,
        }
    }
}

enum Drawn {
    Key(Vec<u8>),
    Expired,
    TooFew,
}
