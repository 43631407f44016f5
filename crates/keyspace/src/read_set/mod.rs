//! [`ReadSet`]: the keys that work on copies has read so far. It tells when another client writes one of them.
//!
//! Work that lists keys ([`ReadSet::list`]) also depends on keys that do not exist. So the read set notes, in each listed
//! shard, which names the work asked for ([`Names`]). Another client that adds or removes a key with one of these names
//! overtakes the read set.
//!
//! The work holds no shard while it runs. It reads each record with [`ReadSet::read`], which notes the key's position
//! in the key's shard. From then on, the first write to a noted position *overtakes* the read set. As long as the read
//! set is not overtaken, all its records are as of one moment, the moment of the last read. At its end the work locks
//! the shards of the read set. If [`ReadSet::is_current`] is true then, the work happens at that moment.
//!
//! A read set keeps no former records, so writes to other keys cost no memory, however long the work takes. A
//! [`crate::View`] is for work that needs the former records.

use crate::extendible::position_of;
use crate::promise::PositionSet;
use crate::{Key, Keyspace, RecordRef, ScanCursor, Txn, Viewed};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// Maximum number of keys of one command whose names are compared while their shard is locked. Keys of a larger command
/// count as listed.
const PROMISED_NAMES_MAX: usize = 1024;
/// Maximum number of keys whose promises are carried out before one step of a listing.
const CARRIED_OUT_PER_STEP: usize = 512;

/// The names that a listing asks for. Clones are one set of names.
#[derive(Clone)]
pub struct Names(Arc<NameFilter>);

type NameFilter = dyn Fn(&[u8]) -> bool + Send + Sync;

impl Names {
    /// The names for which `filter` returns true. The filter runs while a shard is locked, so it must be quick.
    pub fn new(filter: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Names {
        Names(Arc::new(filter))
    }
    fn have(&self, name: &[u8]) -> bool {
        (self.0)(name)
    }
    fn is(&self, other: &Names) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

/// The part of a read set that belongs to one shard.
#[derive(Debug)]
pub(crate) struct ShardReads {
    pub(crate) id: u64,
    slot: usize,
    /// Positions of the keys that were read. A key that shares a position with one of them counts, too.
    positions: PositionSet,
    /// The names that were listed.
    listed: Vec<Names>,
    is_overtaken: Arc<AtomicBool>,
}

impl ShardReads {
    /// A record at this position is about to be written, added or removed.
    pub(crate) fn note_write(&self, slot: usize, position: u64) {
        if slot == self.slot && self.positions.contains(&position) {
            self.is_overtaken.store(true, SeqCst);
        }
    }
    /// A key with this name is about to be added or removed.
    pub(crate) fn note_name(&self, slot: usize, name: &[u8]) {
        if slot == self.slot && self.listed.iter().any(|names| names.have(name)) {
            self.is_overtaken.store(true, SeqCst);
        }
    }
    /// A flush or a swap is about to take the whole table away.
    pub(crate) fn note_table(&self, slot: usize) {
        if slot == self.slot {
            self.is_overtaken.store(true, SeqCst);
        }
    }
    /// Keys are about to be promised to be added or removed. `names` has their names.
    pub(crate) fn note_promised_names<'n>(
        &self,
        slot: usize,
        promised: usize,
        names: impl Iterator<Item = &'n [u8]>,
    ) {
        if slot != self.slot || self.listed.is_empty() {
            return;
        }
        match promised > PROMISED_NAMES_MAX {
            true => self.is_overtaken.store(true, SeqCst),
            false => names.for_each(|name| self.note_name(slot, name)),
        }
    }
    /// Writes to these positions are promised from now on. The cost is in line with the smaller of both sets.
    pub(crate) fn note_promises(&self, slot: usize, promised: &PositionSet) {
        let meet = match promised.len() < self.positions.len() {
            true => promised.iter().any(|position| self.positions.contains(position)),
            false => self.positions.iter().any(|position| promised.contains(position)),
        };
        if slot == self.slot && meet {
            self.is_overtaken.store(true, SeqCst);
        }
    }
}

/// The keys of one database that work on copies has read: see the module. Dropping this value ends the noting.
#[derive(Debug)]
pub struct ReadSet<'k> {
    keyspace: &'k Keyspace,
    id: u64,
    db: usize,
    /// The shards of the keys, in ascending order.
    shards: Vec<usize>,
    /// Number of positions that were noted.
    positions: usize,
    is_overtaken: Arc<AtomicBool>,
    first_expiry_ms: Option<i64>,
}

impl Keyspace {
    /// An empty read set of database `db`.
    pub fn read_set(&self, db: usize) -> ReadSet<'_> {
        ReadSet {
            keyspace: self,
            id: self.views.fetch_add(1, Relaxed),
            db,
            shards: Vec::new(),
            positions: 0,
            is_overtaken: Arc::default(),
            first_expiry_ms: None,
        }
    }
}

impl<'k> ReadSet<'k> {
    /// Reads the record at `key`, marks the record as used (unless `txn` is set to no-touch), and notes the key. The
    /// record counts only if [`ReadSet::is_overtaken`] is false afterwards.
    ///
    /// # Panics
    /// Panics if `txn` does not hold the key's shard.
    pub fn read(&mut self, txn: &mut Txn<'k>, key: &Key<'_>) -> Option<Viewed> {
        // The look-up carries out the key's promises and removes a record that has expired. Neither is a write by
        // another client after this read, so the key is noted afterwards.
        let record =
            txn.db(self.db).get(key).map(|record| (record.value().to_value(), record.expire_at_ms()));
        if let Some((value, expire_at_ms)) = &record {
            let expiries_ms = [self.first_expiry_ms, *expire_at_ms, value.first_field_expiry_ms()];
            self.first_expiry_ms = expiries_ms.into_iter().flatten().min();
        }
        let part = self.part_of(txn, self.keyspace.shard_of(key.hash));
        let is_new = part.positions.insert(position_of(key.hash.0));
        self.positions += usize::from(is_new);
        record
    }
    /// One step of SCAN: visits about `count` records of one shard, from `cursor` on. Notes the names in that shard.
    /// `visit` returns true when the work needs the record. Returns the next cursor; `None` at the end of the database. A
    /// step may visit no record, and may return `cursor` itself. The records count only if [`ReadSet::is_overtaken`] is false afterwards.
    ///
    /// # Panics
    /// Panics if `txn` does not hold the shard of the cursor ([`Keyspace::shard_of_cursor`]).
    pub fn list(
        &mut self,
        txn: &mut Txn<'k>,
        cursor: ScanCursor,
        count: usize,
        names: &Names,
        visit: &mut dyn FnMut(&RecordRef<'_>) -> bool,
    ) -> Option<ScanCursor> {
        let shard = self.keyspace.shard_of_cursor(cursor);
        if txn.carry_out_promises_of(shard, CARRIED_OUT_PER_STEP) {
            return Some(cursor);
        }
        let listed = &mut self.part_of(txn, shard).listed;
        if !listed.iter().any(|other| other.is(names)) {
            listed.push(names.clone());
        }
        let mut first_expiry_ms = self.first_expiry_ms;
        let (_, next) = txn.scan_step(self.db, cursor, count.max(1), &mut |record| {
            if visit(&record) {
                first_expiry_ms = [first_expiry_ms, record.expire_at_ms()].into_iter().flatten().min();
            }
        });
        self.first_expiry_ms = first_expiry_ms;
        next
    }
    /// The part of this read set in a held shard.
    fn part_of<'t>(&mut self, txn: &'t mut Txn<'k>, shard: usize) -> &'t mut ShardReads {
        let reads = &mut txn.shard_guard(shard).lock.keepers().reads;
        let at = reads.iter().position(|part| part.id == self.id).unwrap_or_else(|| {
            let at = self.shards.partition_point(|other| *other < shard);
            self.shards.insert(at, shard);
            reads.push(ShardReads {
                id: self.id,
                slot: self.keyspace.slot(self.db),
                positions: PositionSet::default(),
                listed: Vec::new(),
                is_overtaken: self.is_overtaken.clone(),
            });
            reads.len() - 1
        });
        &mut reads[at]
    }
    /// True when another client has written one of the keys since the work read it, or has added or removed a key with a
    /// listed name, or has promised to do so.
    pub fn is_overtaken(&self) -> bool {
        self.is_overtaken.load(SeqCst)
    }
    /// True when the records are as they were read and listed, and none of them, or of their fields, has expired meanwhile. An
    /// expiry that another client has set after the listing counts only once the key is removed. `txn`
    /// holds [`ReadSet::shards`], at the current time.
    pub fn is_current(&self, txn: &Txn<'k>) -> bool {
        !self.is_overtaken() && !self.first_expiry_ms.is_some_and(|at_ms| txn.has_passed(at_ms))
    }
    /// True when a record that was read or listed, or one of its fields, has expired at `now_ms`.
    pub fn has_expired(&self, now_ms: i64) -> bool {
        self.first_expiry_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
    /// The shards of the keys and listings, in ascending order.
    pub fn shards(&self) -> &[usize] {
        &self.shards
    }
    /// Number of keys. Keys that share a position count once.
    pub fn len(&self) -> usize {
        self.positions
    }
    /// True when nothing was read and nothing was listed.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }
}

impl Drop for ReadSet<'_> {
    fn drop(&mut self) {
        for shard in &self.shards {
            // The positions are freed after the lock is released.
            let part = self.keyspace.shards[*shard].lock.lock().take_shard_reads(self.id);
            drop(part);
        }
    }
}

#[cfg(test)]
mod tests;
