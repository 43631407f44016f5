//! [`Keyspace`]: the shards, and what walks over them all. STARTING VERSION: a BTreeMap a shard and database.

use crate::record::Record;
use crate::{Locked, Settings, Touched};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The keyed hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

/// A key with its hash, computed once per command.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key's bytes.
    pub bytes: &'a [u8],
    /// Their hash.
    pub hash: KeyHash,
}

/// A position in hash order; 0 is the start and the end.
pub type ScanCursor = u64;

/// One shard: its part of every database.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) dbs: Vec<BTreeMap<Vec<u8>, Record>>,
    pub(crate) touched: Touched,
}

/// All data of the server.
///
/// Databases `0..databases()` are what SELECT reaches. Each has a *system* companion (`system_db`) that SELECT cannot
/// reach, for state that belongs to the data (imported versions): it is flushed and swapped with its database.
#[derive(Debug)]
pub struct Keyspace {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    hasher: ahash::RandomState,
    databases: usize,
    settings: Settings,
    pub(crate) tracked: Mutex<Vec<Vec<u8>>>,
}

impl Keyspace {
    /// With `shards` shards (rounded up to a power of two) and `databases` databases, keyed by `seed`.
    pub fn new(shards: usize, databases: usize, seed: [u64; 4]) -> Keyspace {
        let shard = || Mutex::new(Shard { dbs: Vec::new(), touched: Touched::default() });
        let shards: Box<[_]> = (0..shards.next_power_of_two()).map(|_| shard()).collect();
        for s in &shards {
            s.lock().dbs.resize_with(databases * 2, BTreeMap::new);
        }
        Keyspace {
            shards,
            hasher: ahash::RandomState::with_seeds(seed[0], seed[1], seed[2], seed[3]),
            databases,
            settings: Settings::default(),
            tracked: Mutex::default(),
        }
    }
    /// The tunables.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Number of databases that SELECT reaches.
    pub fn databases(&self) -> usize {
        self.databases
    }
    /// The index of `db`'s system companion.
    pub fn system_db(&self, db: usize) -> usize {
        self.databases + db
    }
    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }
    /// Hashes a key.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: KeyHash(self.hasher.hash_one(bytes)) }
    }
    /// The shard of a hash.
    pub fn shard_of(&self, hash: KeyHash) -> usize {
        (hash.0 >> 40) as usize & (self.shards.len() - 1)
    }
    /// Locks the shards of `hashes`, in ascending order, each once.
    pub fn lock(&self, hashes: &[KeyHash], now_ms: i64) -> Locked<'_> {
        Locked::new(self, hashes.iter().map(|h| self.shard_of(*h)).collect(), now_ms)
    }
    /// Locks one shard by its index.
    pub fn lock_shard(&self, shard: usize, now_ms: i64) -> Locked<'_> {
        Locked::new(self, vec![shard], now_ms)
    }
    /// Locks every shard, in ascending order: for what must be atomic over the whole keyspace and is quick.
    pub fn lock_all(&self, now_ms: i64) -> Locked<'_> {
        Locked::new(self, (0..self.shards.len()).collect(), now_ms)
    }
    /// Number of keys in `db`, expired ones included (as DBSIZE has it).
    pub fn len(&self, db: usize) -> usize {
        self.shards.iter().map(|s| s.lock().dbs[db].len()).sum()
    }
    /// Number of keys in `db` that have an expiry.
    pub fn volatile_len(&self, db: usize) -> usize {
        self.shards.iter().map(|s| s.lock().dbs[db].values().filter(|r| r.expire_at_ms().is_some()).count()).sum()
    }
    /// SCAN: visits about `count` live records of `db` from `cursor` on; returns the next cursor, 0 at the end. A key
    /// that is there from start to end is visited at least once, however the table grows or shrinks meanwhile.
    pub fn scan(&self, db: usize, cursor: ScanCursor, count: usize, now_ms: i64, visit: &mut dyn FnMut(&Record)) -> ScanCursor {
        let _ = (cursor, count);
        (0..self.shards()).for_each(|s| self.for_each_in_shard(s, db, now_ms, visit));
        0
    }
    /// Visits every live record of `db` in one shard, holding its lock: walk the shards one by one to visit all.
    pub fn for_each_in_shard(&self, shard: usize, db: usize, now_ms: i64, visit: &mut dyn FnMut(&Record)) {
        let s = self.shards[shard].lock();
        s.dbs[db].values().filter(|r| r.expire_at_ms > now_ms).for_each(visit);
    }
    /// A random live key of `db`; `None` when there is none.
    pub fn random_key(&self, db: usize, now_ms: i64, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        let mut keys = Vec::new();
        self.scan(db, 0, 10, now_ms, &mut |r| keys.push(r.key().to_vec()));
        if keys.is_empty() { None } else { Some(keys.swap_remove(rng.usize(0..keys.len()))) }
    }
    /// Removes every key of `db` and of its system companion.
    pub fn flush(&self, db: usize) {
        for s in &self.shards {
            let mut s = s.lock();
            s.dbs[db].clear();
            s.dbs[db + self.databases].clear();
            s.touched.flushed |= db == 0;
        }
    }
    /// Swaps two databases and their system companions, atomically.
    pub fn swap(&self, a: usize, b: usize) {
        let mut all: Vec<_> = self.shards.iter().map(|s| s.lock()).collect();
        for s in &mut all {
            s.dbs.swap(a, b);
            s.dbs.swap(a + self.databases, b + self.databases);
            s.touched.flushed |= a == 0 || b == 0;
        }
    }
    /// Active expiry: removes expired keys for at most about `keys_max` records, going on where the last call stopped;
    /// returns how many were removed. Cheap when nothing has expired.
    pub fn expire_slice(&self, now_ms: i64, keys_max: usize) -> usize {
        let _ = (now_ms, keys_max);
        0
    }
    /// Keys that expired since the start.
    pub fn expired_total(&self) -> u64 {
        0
    }
    /// Follow keys of database 0 under these prefixes (an empty prefix follows all); replaces the former list.
    pub fn track(&self, prefixes: Vec<Vec<u8>>) {
        *self.tracked.lock() = prefixes;
    }
    /// What was touched in one shard since last asked.
    pub fn take_touched(&self, shard: usize) -> Touched {
        std::mem::take(&mut self.shards[shard].lock().touched)
    }
    /// Adds every live tracked key of one shard to its touched keys: the first scan of a new index.
    pub fn touch_all(&self, shard: usize) {
        let _ = shard;
    }
    /// Tracked keys touched and not taken yet, over all shards (approximate).
    pub fn touched_len(&self) -> usize {
        0
    }
}
