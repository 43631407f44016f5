//! Sums over all shards of a [`Keyspace`]: bytes, keys, databases in use. Most of them take no lock.

use crate::shard::{LockedShard, Shard};
use crate::{Keys, Keyspace};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// [`Keyspace::try_in_use`] waits at most this long for a shard.
const COUNT_TIMEOUT: Duration = Duration::from_micros(200);

impl Keyspace {
    /// Heap bytes of all keys, values and tables in all databases. Takes no lock. For a shard that is being
    /// written, it counts the bytes before the write.
    pub fn data_bytes(&self) -> usize {
        self.shards.iter().map(LockedShard::data_bytes).sum()
    }
    /// Number of times that a shard has grown by more than 64 KiB between its lock and its release. When this number has
    /// changed, [`Keyspace::data_bytes`] may differ much from its last value.
    pub fn leaps(&self) -> u64 {
        self.leaps.load(Relaxed)
    }
    /// Number of keys in all databases, including expired keys that were not removed yet. Takes no lock. For a
    /// shard that is being written, it counts the keys before the write.
    pub fn records(&self) -> u64 {
        self.shards.iter().map(|shard| shard.records(false) as u64).sum()
    }
    /// Number of keys of all databases that have an expiry. Takes no lock.
    pub fn expiring_records(&self) -> u64 {
        self.shards.iter().map(|shard| shard.records(true) as u64).sum()
    }
    /// Like [`crate::Txn::len`], but locks one shard at a time.
    pub fn len(&self, db: usize) -> usize {
        self.unlocked(0).len(db)
    }
    /// True when `db` has no key.
    pub fn is_empty(&self, db: usize) -> bool {
        self.len(db) == 0
    }
    /// Number of keys in `db` that have an expiry.
    pub fn expiring_len(&self, db: usize) -> usize {
        let slot = self.slot(db);
        self.shards.iter().map(|s| s.lock.lock().table(slot).map_or(0, |t| t.expiring)).sum()
    }
    /// The databases that have tables (because something was stored there since the last flush), with their numbers
    /// of keys. Locks each shard once. The cost grows with the databases in use, not with [`Keyspace::databases`].
    pub fn in_use(&self) -> BTreeMap<usize, Keys> {
        self.in_use_by(|shard| Some(shard.lock.lock())).unwrap_or_default()
    }
    /// Like [`Keyspace::in_use`], for a thread that must not wait long. `None` when a shard stays locked.
    pub fn try_in_use(&self) -> Option<BTreeMap<usize, Keys>> {
        self.in_use_by(|shard| shard.lock.try_lock_for(COUNT_TIMEOUT))
    }
    fn in_use_by<'k>(
        &'k self,
        lock: impl Fn(&'k LockedShard) -> Option<MutexGuard<'k, Shard>>,
    ) -> Option<BTreeMap<usize, Keys>> {
        let mut dbs = BTreeMap::<usize, Keys>::new();
        for shard in &self.shards {
            for (slot, table) in lock(shard)?.tables() {
                let keys = dbs.entry(slot / 2).or_default();
                if slot % 2 == 0 {
                    keys.all += table.records.len();
                    keys.expiring += table.expiring;
                    keys.expiries_ms += table.expiries_ms;
                    keys.mortal += table.mortal;
                }
            }
        }
        Some(dbs)
    }
}
