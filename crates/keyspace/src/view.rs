//! [`View`]: keys at one moment, read while writes continue. Long reads of many keys and long scripts use it.
//!
//! At that moment the shards of all the keys are held. From then on a shard keeps the former state of a key of the
//! view before the first write to it. The keys of a view are named, or they are all keys of some shards. Memory grows
//! with the view's own keys that are written. Views of all keys keep at most [`KEPT_BYTES_MAX`] together.

use crate::extendible::position_of;
use crate::keepers::Frozen;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::{Key, Keyspace, Txn};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most bytes of former records that the views of all keys of a keyspace keep together. A view that needs more is lost.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of a former record besides its key and its value.
const KEPT_ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Option<Viewed>)>();

/// A value, and its expiry (unix milliseconds), if any.
pub type Viewed = (Value, Option<i64>);

/// The keys of a future view, by shard. Built while no shard is held.
#[derive(Debug)]
pub struct ViewKeys(BTreeMap<usize, Vec<u64>>);

/// A shard's part of a view.
#[derive(Debug)]
pub(crate) struct Viewing {
    pub(crate) id: u64,
    slot: usize,
    /// Positions of its keys, ascending. Another key with one of these positions is kept needlessly. `None`: all keys.
    positions: Option<Vec<u64>>,
    /// Former state of the keys that were written since the moment.
    kept: HashMap<Box<[u8]>, Option<Viewed>, ahash::RandomState>,
    /// Bytes of `kept`, if they count.
    kept_bytes: usize,
    /// Bytes that all views of all keys keep. `None`: the view is of named keys, and its bytes do not count.
    all_bytes: Option<Arc<AtomicUsize>>,
    /// A record was not kept.
    is_lost: bool,
    /// The database's table when it was emptied or exchanged. Earlier writes are in `kept`.
    frozen: Option<Frozen>,
}

impl Viewing {
    /// Keeps the record of `key`, which is about to be written, added or removed.
    pub(crate) fn keep(&mut self, shard: &Shard, slot: usize, position: u64, key: &[u8]) {
        if slot == self.slot
            && self.frozen.is_none()
            && !self.is_lost
            && self.positions.as_ref().is_none_or(|positions| positions.binary_search(&position).is_ok())
            && !self.kept.contains_key(key)
        {
            let table = shard.table(slot).map(|table| &table.records);
            let was = table.and_then(|records| Some(records.at(records.locate(position, key)?)));
            let was = was.map(|item| viewed(&RecordRef(item)));
            if let Some(all_bytes) = &self.all_bytes {
                let value_bytes = was.as_ref().map_or(0, |(value, _)| value.heap_bytes());
                let bytes = KEPT_ENTRY_BYTES + key.len() + value_bytes;
                if all_bytes.fetch_add(bytes, Relaxed) + bytes > KEPT_BYTES_MAX {
                    all_bytes.fetch_sub(bytes, Relaxed);
                    self.is_lost = true;
                    return;
                }
                self.kept_bytes += bytes;
            }
            self.kept.insert(key.into(), was);
        }
    }
    /// Keeps the whole table, which is about to be taken away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot == self.slot && self.frozen.is_none() {
            self.frozen = Some(Frozen::of(shard, slot));
        }
    }
    /// The former state of a key, if it was written since the moment.
    fn read(&self, key: &Key<'_>) -> Option<Option<Viewed>> {
        if let Some(kept) = self.kept.get(key.bytes) {
            return Some(kept.clone());
        }
        let records = &self.frozen.as_ref()?.0;
        let at = records.locate(position_of(key.hash.0), key.bytes);
        Some(at.map(|at| viewed(&RecordRef(records.at(at)))))
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        if let Some(all_bytes) = &self.all_bytes {
            all_bytes.fetch_sub(self.kept_bytes, Relaxed);
        }
    }
}

fn viewed(record: &RecordRef<'_>) -> Viewed {
    (record.value().to_value(), record.expire_at_ms())
}

/// A view, see the module. Ends on drop.
#[derive(Debug)]
pub struct View<'k> {
    keyspace: &'k Keyspace,
    id: u64,
    db: usize,
    shards: Vec<usize>,
}

impl Keyspace {
    /// Prepares these keys for [`Txn::view`].
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
    /// A view of `keys` of database `db` at this moment.
    ///
    /// # Panics
    /// When the shard of one of the keys is not held.
    pub fn view(&mut self, db: usize, keys: ViewKeys) -> View<'k> {
        let slot = self.keyspace.slot(db);
        keys.0.iter().for_each(|(shard, positions)| self.settle_at(*shard, slot, positions));
        self.begin_view(db, keys.0.into_iter().map(|(shard, positions)| (shard, Some(positions))), false)
    }
    /// A view of all keys of database `db` in the held shards, at this moment. Much writing makes it lose what it
    /// keeps, see [`View::is_lost`].
    pub fn view_of_held(&mut self, db: usize) -> View<'k> {
        self.settle_all();
        let held: Vec<usize> = self.held_shards().map(|(shard, _)| shard).collect();
        self.begin_view(db, held.into_iter().map(|shard| (shard, None)), true)
    }
    fn begin_view(
        &mut self,
        db: usize,
        parts: impl Iterator<Item = (usize, Option<Vec<u64>>)>,
        counts: bool,
    ) -> View<'k> {
        let (keyspace, slot) = (self.keyspace, self.keyspace.slot(db));
        let id = keyspace.views.fetch_add(1, Relaxed);
        let mut shards = Vec::new();
        for (shard, positions) in parts {
            let viewing = Viewing {
                id,
                slot,
                positions,
                kept: HashMap::default(),
                kept_bytes: 0,
                all_bytes: counts.then(|| keyspace.view_bytes.clone()),
                is_lost: false,
                frozen: None,
            };
            self.held(shard).guard.keepers().viewings.push(viewing);
            shards.push(shard);
        }
        View { keyspace, id, db, shards }
    }
}

impl<'k> View<'k> {
    /// The state of `key`, one of the view's keys, at the moment of the view. The record may have expired
    /// meanwhile. A record that was not written since is marked as used, unless `txn` is set to no-touch.
    ///
    /// # Panics
    /// When `txn` does not hold the key's shard.
    pub fn read(&self, txn: &mut Txn<'k>, key: &Key<'_>) -> Option<Viewed> {
        // Carries out promises made since the moment first. Then the shard keeps the former state, as for any
        // write.
        txn.db(self.db).look(key);
        match self.viewing(txn, key).and_then(|viewing| viewing.read(key)) {
            Some(was) => was,
            None => txn.db(self.db).get(key).map(|record| viewed(&record)),
        }
    }
    /// True when the shard of `key` had to keep more than the views may. A record that [`View::read`] returned before is of
    /// the moment of the view, and one that it returns from now on may be newer. Views of named keys are never lost.
    ///
    /// # Panics
    /// When `txn` does not hold the key's shard.
    pub fn is_lost(&self, txn: &mut Txn<'k>, key: &Key<'_>) -> bool {
        self.viewing(txn, key).is_some_and(|viewing| viewing.is_lost)
    }
    /// True when none of the view's keys in the shards that `txn` holds was written since the moment of the view. A
    /// write of a key that shares a position with one of them counts, too.
    pub fn is_unchanged(&self, txn: &Txn<'k>) -> bool {
        let slot = self.keyspace.slot(self.db);
        txn.held_shards().all(|(_, shard)| {
            let keepers = shard.keepers.as_ref();
            let viewing = keepers.and_then(|keepers| keepers.viewings.iter().find(|part| part.id == self.id));
            viewing.is_none_or(|viewing| {
                let promised = match &viewing.positions {
                    Some(positions) => shard.may_be_promised(slot, positions),
                    None => shard.is_promised(),
                };
                viewing.kept.is_empty() && viewing.frozen.is_none() && !viewing.is_lost && !promised
            })
        })
    }
    fn viewing<'t>(&self, txn: &'t mut Txn<'k>, key: &Key<'_>) -> Option<&'t Viewing> {
        let keepers = txn.held(self.keyspace.shard_of(key.hash)).guard.keepers.as_ref()?;
        keepers.viewings.iter().find(|viewing| viewing.id == self.id)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        for shard in &self.shards {
            // The kept state is freed after the shard is released.
            let viewing = self.keyspace.shards[*shard].lock.lock().take_viewing(self.id);
            drop(viewing);
        }
    }
}

#[cfg(test)]
mod tests;
