//! [`View`]: some keys as they were at one moment, read while writes go on. What a long read of many keys runs on.
//!
//! The moment is one at which the shards of all the keys are held. From then on a shard keeps what a key of the view was
//! before somebody writes the key for the first time. So memory grows with the view's own keys, and with nothing else.

use crate::extendible::position_of;
use crate::keepers::Frozen;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::{Key, Keyspace, Txn};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// A value, and when it expires (unix milliseconds), if ever.
pub type Viewed = (Value, Option<i64>);

/// The keys of a view before its moment, by shard. Made with nothing held.
#[derive(Debug)]
pub struct ViewKeys(BTreeMap<usize, Vec<u64>>);

/// A shard's part of a view.
#[derive(Debug)]
pub(crate) struct Viewing {
    pub(crate) id: u64,
    slot: usize,
    /// The positions of its keys, in ascending order. Another key at one of them is kept in vain.
    positions: Vec<u64>,
    /// What keys were that were written since the moment.
    kept: HashMap<Box<[u8]>, Option<Viewed>, ahash::RandomState>,
    /// The database's table as it was when it was emptied or exchanged; what was written before that is in `kept`.
    frozen: Option<Frozen>,
}

impl Viewing {
    /// The record of `key` is about to be written, added or removed.
    pub(crate) fn keep(&mut self, shard: &Shard, slot: usize, position: u64, key: &[u8]) {
        if slot == self.slot
            && self.frozen.is_none()
            && self.positions.binary_search(&position).is_ok()
            && !self.kept.contains_key(key)
        {
            let table = shard.table(slot).map(|table| &table.records);
            let was = table.and_then(|records| Some(records.at(records.locate(position, key)?)));
            self.kept.insert(key.into(), was.map(|item| viewed(&RecordRef(item))));
        }
    }
    /// The whole table is about to be taken away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot == self.slot && self.frozen.is_none() {
            self.frozen = Some(Frozen::of(shard, slot));
        }
    }
    /// What the key was, if it was written since the moment.
    fn read(&self, key: &Key<'_>) -> Option<Option<Viewed>> {
        if let Some(kept) = self.kept.get(key.bytes) {
            return Some(kept.clone());
        }
        let records = &self.frozen.as_ref()?.0;
        let at = records.locate(position_of(key.hash.0), key.bytes);
        Some(at.map(|at| viewed(&RecordRef(records.at(at)))))
    }
}

fn viewed(record: &RecordRef<'_>) -> Viewed {
    (record.value().to_value(), record.expire_at_ms())
}

/// See the module. Ends when dropped.
#[derive(Debug)]
pub struct View<'k> {
    keyspace: &'k Keyspace,
    id: u64,
    db: usize,
    shards: Vec<usize>,
}

impl Keyspace {
    /// These keys, to be looked at by [`Txn::view`].
    pub fn view_keys(&self, keys: &[Key<'_>]) -> ViewKeys {
        let mut shards = BTreeMap::<usize, Vec<u64>>::new();
        for key in keys {
            shards.entry(self.shard_of(key.hash)).or_default().push(position_of(key.hash.0));
        }
        shards.values_mut().for_each(|positions| positions.sort_unstable());
        ViewKeys(shards)
    }
}

impl<'k> Txn<'k> {
    /// `keys` of database `db` as they are now.
    ///
    /// # Panics
    /// When the shard of one of them is not held.
    pub fn view(&mut self, db: usize, keys: ViewKeys) -> View<'k> {
        self.settle_all();
        let (keyspace, slot) = (self.keyspace, self.keyspace.slot(db));
        let id = keyspace.views.fetch_add(1, Relaxed);
        let mut shards = Vec::with_capacity(keys.0.len());
        for (shard, positions) in keys.0 {
            let viewing = Viewing { id, slot, positions, kept: HashMap::default(), frozen: None };
            self.held(shard).guard.keepers().viewings.push(viewing);
            shards.push(shard);
        }
        View { keyspace, id, db, shards }
    }
}

impl<'k> View<'k> {
    /// What was at `key`, one of the view's, at the moment; a record that has expired by then may be among that. Of a key that
    /// was not written since the record is marked used, unless `txn` does not touch.
    ///
    /// # Panics
    /// When `txn` does not hold the key's shard.
    pub fn read(&self, txn: &mut Txn<'k>, key: &Key<'_>) -> Option<Viewed> {
        // What was promised since the moment is carried out first: so it is kept, like any write.
        txn.db(self.db).look(key);
        let held = txn.held(self.keyspace.shard_of(key.hash));
        let keepers = held.guard.keepers.as_ref();
        let viewing =
            keepers.and_then(|keepers| keepers.viewings.iter().find(|viewing| viewing.id == self.id));
        match viewing.and_then(|viewing| viewing.read(key)) {
            Some(was) => was,
            None => txn.db(self.db).get(key).map(|record| viewed(&record)),
        }
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        for shard in &self.shards {
            // What was kept is freed when the shard is let go.
            let viewing = self.keyspace.shards[*shard].lock.lock().take_viewing(self.id);
            drop(viewing);
        }
    }
}

#[cfg(test)]
mod tests;
