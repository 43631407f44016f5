//! [`ReadSet`]: the keys that work on copies has read so far. It tells when another client writes one of them.
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
use crate::{Key, Keyspace, Txn, Viewed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// The part of a read set that belongs to one shard.
#[derive(Debug)]
pub(crate) struct ShardReads {
    pub(crate) id: u64,
    slot: usize,
    /// Positions of the keys that were read. A key that shares a position with one of them counts, too.
    positions: PositionSet,
    is_overtaken: Arc<AtomicBool>,
}

impl ShardReads {
    /// A record at this position is about to be written, added or removed.
    pub(crate) fn note_write(&self, slot: usize, position: u64) {
        if slot == self.slot && self.positions.contains(&position) {
            self.is_overtaken.store(true, SeqCst);
        }
    }
    /// A flush or a swap is about to take the whole table away.
    pub(crate) fn note_table(&self, slot: usize) {
        if slot == self.slot {
            self.is_overtaken.store(true, SeqCst);
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
        let shard = self.keyspace.shard_of(key.hash);
        let reads = &mut txn.shard_guard(shard).lock.keepers().reads;
        let part = match reads.iter().position(|part| part.id == self.id) {
            Some(at) => &mut reads[at],
            None => {
                let at = self.shards.partition_point(|other| *other < shard);
                self.shards.insert(at, shard);
                reads.push(ShardReads {
                    id: self.id,
                    slot: self.keyspace.slot(self.db),
                    positions: PositionSet::default(),
                    is_overtaken: self.is_overtaken.clone(),
                });
                reads.last_mut().expect("the part was added")
            }
        };
        self.positions += usize::from(part.positions.insert(position_of(key.hash.0)));
        record
    }
    /// True when another client has written one of the keys since the work read it, or has promised such a write.
    pub fn is_overtaken(&self) -> bool {
        self.is_overtaken.load(SeqCst)
    }
    /// True when the records are as they were read, and none of them, or of their fields, has expired meanwhile. `txn`
    /// holds [`ReadSet::shards`], at the current time.
    pub fn is_current(&self, txn: &Txn<'k>) -> bool {
        !self.is_overtaken() && !self.first_expiry_ms.is_some_and(|at_ms| txn.has_passed(at_ms))
    }
    /// The shards of the keys, in ascending order.
    pub fn shards(&self) -> &[usize] {
        &self.shards
    }
    /// Number of keys. Keys that share a position count once.
    pub fn len(&self) -> usize {
        self.positions
    }
    /// True when no key was read.
    pub fn is_empty(&self) -> bool {
        self.positions == 0
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
