//! Walks over all shards of a [`Keyspace`]: SCAN, visits of all records, random keys, active expiry. A walk locks
//! one shard at a time, and keeps it for one segment.

use crate::event::NO_CLIENT;
use crate::extendible::POSITION_BITS;
use crate::journal::{PlacedEffects, Removal};
use crate::watch::raise_all;
use crate::{Changed, Flushed, KeyEvent, Keyspace, RecordRef, ScanCursor, Txn};
use std::sync::atomic::Ordering::Relaxed;

/// Minimum number of keys in a randomly chosen shard from which RANDOMKEY takes a key. With fewer keys per shard,
/// the shards differ too much for a fair draw. Then the shard is drawn with a chance proportional to its number of
/// keys.
const SHARD_ITEMS_DENSE: usize = 64;
/// Maximum number of draws for one random key. A draw that finds an expired key is repeated.
const DRAWS_MAX: usize = 100;
/// Maximum number of records that a walk for one random key visits, when all draws have found expired keys: about half
/// a millisecond.
const WALK_RECORDS_MAX: usize = 40_000;
/// Maximum number of watched keys that a swap looks at, one after the other: about 2 milliseconds.
const LOOKED_AT_MAX: usize = 8192;

impl Keyspace {
    /// The shard in which a scan goes on at this cursor.
    pub fn shard_of_cursor(&self, cursor: ScanCursor) -> usize {
        self.shard_at(cursor).min(self.shards.len() - 1)
    }
    /// Like [`Txn::scan`], but locks one shard at a time, for one segment.
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
    /// Like [`Txn::random_key`], but locks one shard at a time.
    pub fn random_key(&self, db: usize, now_ms: i64, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        self.unlocked(now_ms).random_key(db, rng)
    }
    /// Visits every record of `db` in one shard that has not expired. A record that exists throughout the call is
    /// visited exactly once. The shard is released after each segment.
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
    /// Removes a key that has expired, even if [`crate::Settings::keeps_expired`] is set. Returns the expiry of a key that expires
    /// later, in unix milliseconds.
    pub fn expire_kept(&self, db: usize, key: &[u8], now_ms: i64) -> Option<i64> {
        let key = self.key(key);
        let mut txn = self.lock(&[key.hash], now_ms);
        txn.removes_kept = true;
        txn.db(db).peek(&key)?.expire_at_ms()
    }
    /// Active expiry: removes expired keys, starting where the last call stopped. Looks at about `keys_max` records
    /// at most. Opens only segments in which some expiry has passed, so a call is cheap when nothing has expired.
    pub fn expire_slice(&self, now_ms: i64, keys_max: usize) -> Expired {
        // Another thread is expiring keys.
        let Some(mut at) = self.expire_from.try_lock() else { return Expired::default() };
        let (mut looked_at, mut removed) = (0, 0);
        let mut garbage = Vec::new();
        // Visit every shard once, and the first shard a second time, because the walk may start in the middle
        // of that shard.
        for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *at;
            let shard_index = self.shard_at(from);
            loop {
                if looked_at >= keys_max {
                    *at = (slot, from);
                    return Expired { removed, has_more: true };
                }
                let mut shard = self.shards[shard_index].lock.lock();
                if shard.has_promises() {
                    break;
                }
                let Some(due) = shard.next_due(slot, now_ms) else { break };
                if due != slot {
                    (slot, from) = (due, self.start_of(shard_index));
                }
                let (listens, mut effects) = (self.listens(), None);
                let mut report = |key: &[u8], event: KeyEvent, removal: Option<&Removal>| {
                    if listens {
                        if let Some(removal) = removal {
                            self.record_removal(slot, key, removal, &mut effects);
                        }
                        self.report(slot, key, event, Changed::Yes, NO_CLIENT);
                    }
                };
                let step = shard.expire_step(slot, from, now_ms, &mut garbage, listens, &mut report);
                let placed = effects.and_then(|effects| self.journal().place(effects));
                // A step that removes nothing may still give spare memory of a segment back.
                self.shards[shard_index].publish(&shard);
                let is_waited_for = shard.watchers.waiters.has_signalled();
                drop(shard);
                placed.into_iter().for_each(PlacedEffects::write);
                if is_waited_for {
                    self.serve_signalled(shard_index, now_ms);
                }
                looked_at += step.looked_at;
                removed += step.expired.keys;
                self.count_expired(step.expired);
                garbage.drain(..).for_each(|value| self.dispose(value));
                (slot, from) = step.next.map_or((slot + 1, self.start_of(shard_index)), |from| (slot, from));
            }
            *at = (0, self.start_of((shard_index + 1) & (self.shards.len() - 1)));
        }
        Expired { removed, has_more: false }
    }
}

/// Result of [`Keyspace::expire_slice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Number of removed records.
    pub removed: usize,
    /// True when `keys_max` ended the call, so there may be more expired keys.
    pub has_more: bool,
}

/// Operations on a whole database. For shards that the transaction holds, they use its locks. They lock each other
/// shard themselves, one shard at a time, for one segment.
impl Txn<'_> {
    /// Number of keys in `db`, including expired keys that were not removed yet, as in DBSIZE.
    pub fn len(&mut self, db: usize) -> usize {
        let slot = self.keyspace.slot(db);
        (0..self.keyspace.shards()).map(|shard| self.records_in(shard, slot)).sum()
    }
    /// True when `db` has no key.
    pub fn is_empty(&mut self, db: usize) -> bool {
        self.len(db) == 0
    }
    /// SCAN: visits about `count` records of `db` that have not expired, starting at `cursor`. Returns the next
    /// cursor; 0 at the end. A key that exists during the whole scan is visited at least once, even if the table
    /// grows or shrinks.
    ///
    /// A call looks at no more segments than `count` records fill, plus one, and at the empty shards on its way.
    pub fn scan(
        &mut self,
        db: usize,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> ScanCursor {
        let mut left = count.max(1);
        let mut next = Some(cursor);
        while let Some(from) = next.filter(|_| left > 0) {
            let visited;
            (visited, next) = self.scan_step(db, from, left, visit);
            left = left.saturating_sub(visited);
        }
        next.unwrap_or(0)
    }
    /// One step of [`Txn::scan`], which stays in one segment. Returns the number of records in the segment, and the next
    /// cursor: `None` at the end of the database.
    pub(crate) fn scan_step(
        &mut self,
        db: usize,
        cursor: ScanCursor,
        records_max: usize,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> (usize, Option<ScanCursor>) {
        if cursor >= 1 << POSITION_BITS {
            return (0, None);
        }
        let keyspace = self.keyspace;
        let (visited, next) = self.visit_step(keyspace.slot(db), cursor, records_max, visit);
        let next = next.unwrap_or_else(|| keyspace.start_of(keyspace.shard_at(cursor) + 1));
        (visited, (next < 1 << POSITION_BITS).then_some(next))
    }
    /// A random key of `db` that has not expired. `None` when `db` is empty, or when [`DRAWS_MAX`] draws and a walk over
    /// [`WALK_RECORDS_MAX`] records find only expired keys.
    pub fn random_key(&mut self, db: usize, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let (shards, slot) = (self.keyspace.shards(), self.keyspace.slot(db));
        for _ in 0..DRAWS_MAX {
            let dense = self.random_in(rng.usize(..shards), slot, SHARD_ITEMS_DENSE, rng);
            let drawn = match dense {
                RandomDraw::TooFew => self.random_weighed(slot, rng),
                drawn => drawn,
            };
            match drawn {
                RandomDraw::Key(key) => return Some(key),
                RandomDraw::Expired => {}
                RandomDraw::TooFew => return None,
            }
        }
        self.next_key(slot, rng.usize(..shards))
    }
    /// The first key that has not expired, from a shard on.
    fn next_key(&mut self, slot: usize, first_shard: usize) -> Option<Vec<u8>> {
        let (keyspace, mut left, mut found) = (self.keyspace, WALK_RECORDS_MAX, None);
        let shards = keyspace.shards();
        for shard in (first_shard..shards).chain(0..first_shard) {
            let mut next = Some(keyspace.start_of(shard));
            while let Some(from) = next.filter(|_| left > 0) {
                let visit: &mut dyn FnMut(RecordRef<'_>) = &mut |record| {
                    found.get_or_insert_with(|| record.key().to_vec());
                };
                let visited;
                (visited, next) = self.visit_step(slot, from, left, visit);
                left = left.saturating_sub(visited.max(1));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
    /// Removes every key of `db` and of its system companion. Drop the result after the shards are released,
    /// because freeing many keys takes long.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn flush(&mut self, db: usize) -> Flushed {
        let flushed = self.flush_unreported(db);
        self.keyspace.report_all();
        flushed
    }
    /// Does what [`Txn::flush`] does, for several databases. The listener is told once.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn flush_each(&mut self, dbs: impl IntoIterator<Item = usize>) -> Vec<Flushed> {
        let flushed = dbs.into_iter().map(|db| self.flush_unreported(db)).collect();
        self.keyspace.report_all();
        flushed
    }
    fn flush_unreported(&mut self, db: usize) -> Flushed {
        self.carry_out_all_promises();
        let (keyspace, slot) = (self.keyspace, self.keyspace.slot(db));
        let mut tables = Vec::with_capacity(2 * keyspace.shards());
        self.raise_watches(&[slot]);
        for shard in self.all_held() {
            shard.note_tables(&[slot]);
            tables.extend([slot, slot ^ 1].into_iter().filter_map(|slot| shard.take(slot)));
        }
        // Add the tables to the garbage before they leave the data, so that INFO counts their bytes at any time.
        keyspace
            .garbage_bytes
            .fetch_add(tables.iter().map(|table| table.records.heap_bytes()).sum(), Relaxed);
        keyspace.count_flush(db);
        if self.listens() {
            self.note_change(slot);
        }
        Flushed { tables, garbage_bytes: keyspace.garbage_bytes.clone() }
    }
    /// Swaps two databases and their system companions.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.carry_out_all_promises();
        self.keyspace.count_flush(a);
        self.keyspace.count_flush(b);
        let (a, b) = (self.keyspace.slot(a), self.keyspace.slot(b));
        self.raise_watches(&[a, b]);
        for shard in self.all_held() {
            shard.note_tables(&[a, b]);
            shard.swap(a, b);
            shard.swap(a ^ 1, b ^ 1);
            // Waits for versions of datasets (IMPORT.VERSION WAIT) are in the companions.
            [a, b, a ^ 1, b ^ 1].into_iter().for_each(|slot| shard.signal_table(slot));
        }
        if self.listens() {
            self.note_change(a);
        }
        self.keyspace.report_all();
    }

    /// Raises the flags of the keys that a flush or a swap of these slots changes: those that exist in one of them.
    fn raise_watches(&mut self, slots: &[usize]) {
        let undecided = self.keyspace.watches.lock().take_away(slots);
        // The keys of these flags do not exist in their own database. A swap may bring them.
        if undecided.is_empty() || slots.len() == 1 {
            return;
        }
        let now_ms = self.now_ms();
        let watched: usize = self.all_held().map(|shard| shard.watchers.watched()).sum();
        if watched > LOOKED_AT_MAX {
            return raise_all(&undecided);
        }
        self.all_held().for_each(|shard| shard.raise_watches(slots, now_ms));
    }

    /// Visits the records of one segment that have not expired: see
    /// [`crate::extendible::ExtendibleTable::scan_step`].
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
    /// A random key of one shard. [`RandomDraw::TooFew`] when the shard has fewer than `items_min` keys.
    fn random_in(
        &mut self,
        shard: usize,
        slot: usize,
        items_min: usize,
        rng: &mut fastrand::Rng,
    ) -> RandomDraw {
        let now_ms = self.now_ms();
        self.with_shard(shard, |shard| {
            let table = shard.table(slot).filter(|t| t.records.len() >= items_min);
            match table.and_then(|t| t.records.random(rng)) {
                None => RandomDraw::TooFew,
                Some(record) if RecordRef(record).is_expired(now_ms) => RandomDraw::Expired,
                Some(record) => RandomDraw::Key(record.key().to_vec()),
            }
        })
    }
    /// A random key of a shard that is drawn with a chance proportional to its number of keys.
    fn random_weighed(&mut self, slot: usize, rng: &mut fastrand::Rng) -> RandomDraw {
        let lens: Vec<usize> =
            (0..self.keyspace.shards()).map(|shard| self.records_in(shard, slot)).collect();
        let total: usize = lens.iter().sum();
        if total == 0 {
            return RandomDraw::TooFew;
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
            RandomDraw::TooFew => RandomDraw::Expired,
            drawn => drawn,
        }
    }
}

/// The result of drawing a random key.
enum RandomDraw {
    Key(Vec<u8>),
    /// The drawn key has expired, or the shard was emptied meanwhile. Draw again.
    Expired,
    /// The shard has fewer keys than asked for.
    TooFew,
}
