//! [`Locked`]: the shards a command holds; [`Db`]: one database seen through them. STARTING VERSION.

use crate::keyspace::Shard;
use crate::{Key, Keyspace, Record, Value};
use parking_lot::MutexGuard;

/// Shards held by one command.
#[derive(Debug)]
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    held: Vec<(usize, MutexGuard<'k, Shard>)>,
    now_ms: i64,
}

impl<'k> Locked<'k> {
    pub(crate) fn new(keyspace: &'k Keyspace, mut shards: Vec<usize>, now_ms: i64) -> Locked<'k> {
        shards.sort_unstable();
        shards.dedup();
        let held = shards.into_iter().map(|i| (i, keyspace.shards[i].lock())).collect();
        Locked { keyspace, held, now_ms }
    }
    /// Database `db` (a system one too) seen through the held shards.
    pub fn db(&mut self, db: usize) -> Db<'_, 'k> {
        Db { locked: self, db }
    }
    /// The time the command runs at, in unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }
    /// The keyspace the shards belong to.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }
}

/// One database through held shards. Every call answers as if expired keys were already gone, and removes those it meets.
///
/// # Panics
/// Every method panics when the key's shard is not held: the command's key specs are wrong.
#[derive(Debug)]
pub struct Db<'l, 'k> {
    locked: &'l mut Locked<'k>,
    db: usize,
}

impl<'l> Db<'l, '_> {
    fn table(&mut self, key: &Key<'_>) -> &mut std::collections::BTreeMap<Vec<u8>, Record> {
        let at = self.locked.keyspace.shard_of(key.hash);
        let now = self.locked.now_ms;
        let held = self.locked.held.iter_mut().find(|h| h.0 == at).expect("the key's shard is held");
        let table = &mut held.1.dbs[self.db];
        if table.get(key.bytes).is_some_and(|r| r.expire_at_ms <= now) {
            table.remove(key.bytes);
        }
        table
    }
    /// Reads a record and marks it used.
    pub fn get(&mut self, key: &Key<'_>) -> Option<&Record> {
        self.peek(key)
    }
    /// Reads a record without marking it used (TTL, TYPE, OBJECT, EXISTS do this).
    pub fn peek(&mut self, key: &Key<'_>) -> Option<&Record> {
        self.table(key).get(key.bytes)
    }
    /// A record for writing: marks it used and touched. Remove it when its value became empty.
    pub fn get_mut(&mut self, key: &Key<'_>) -> Option<&mut Record> {
        self.table(key).get_mut(key.bytes)
    }
    /// Sets key to value with that expiry (`None`: no expiry); returns the record it replaces.
    pub fn insert(&mut self, key: &Key<'_>, value: Value, expire_at_ms: Option<i64>) -> Option<Record> {
        let used_at_ms = self.locked.now_ms;
        let expire_at_ms = expire_at_ms.unwrap_or(i64::MAX);
        self.table(key).insert(key.bytes.to_vec(), Record { key: key.bytes.into(), expire_at_ms, used_at_ms, value })
    }
    /// Removes a record and returns it.
    pub fn remove(&mut self, key: &Key<'_>) -> Option<Record> {
        self.table(key).remove(key.bytes)
    }
    /// Sets or clears (`None`) the expiry; false when there is no such key. A time that has passed is kept as given:
    /// the key is gone at the next look.
    pub fn set_expiry(&mut self, key: &Key<'_>, expire_at_ms: Option<i64>) -> bool {
        match self.table(key).get_mut(key.bytes) {
            Some(r) => {
                r.expire_at_ms = expire_at_ms.unwrap_or(i64::MAX);
                true
            }
            None => false,
        }
    }
}
