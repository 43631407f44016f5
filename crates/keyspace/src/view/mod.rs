//! [`View`]: keys as of one moment, read while writes continue. Long reads of many keys and long scripts use it.
//!
//! At that moment the shards of all the keys are held. From then on, before the first write to a key of the view,
//! the key's shard keeps the former record. A view is either of named keys, or of all keys of some shards. Its
//! memory grows only with those of its keys that are written. All views of the second kind together keep at most
//! [`KEPT_BYTES_MAX`].

use crate::extendible::position_of;
use crate::keepers::FrozenTable;
use crate::record::{RecordRef, Value};
use crate::shard::Shard;
use crate::{Key, Keyspace, Txn};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum number of bytes of former records that all views of all keys keep together. A view that needs more is
/// *lost*: it keeps no further records ([`View::is_lost`]).
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Memory of a kept record besides its key and its value.
const KEPT_ENTRY_BYTES: usize = size_of::<(Box<[u8]>, Option<Viewed>)>();

/// A value and its expiry (unix milliseconds). `None`: no expiry.
pub type Viewed = (Value, Option<i64>);

/// The keys of a view that is about to begin, as positions by shard. Built while no shard is held.
#[derive(Debug)]
pub struct ViewKeys(BTreeMap<usize, Vec<u64>>);

/// The part of a view that belongs to one shard.
#[derive(Debug)]
pub(crate) struct ShardView {
    pub(crate) id: u64,
    slot: usize,
    /// Positions of the view's keys, in ascending order. A key that shares a position with a key of the view
    /// is kept, too. `None`: the view is of all keys.
    positions: Option<Vec<u64>>,
    /// Former records of the keys that were written since the moment of the view. `None`: the key was missing.
    kept: HashMap<Box<[u8]>, Option<Viewed>, ahash::RandomState>,
    /// Bytes of the records in `kept`, if the bytes of this view are limited.
    kept_bytes: usize,
    /// The counter of the bytes that all views of all keys keep together. `None`: the view is of named keys, and
    /// its bytes are not limited.
    all_bytes: Option<Arc<AtomicUsize>>,
    /// True when a former record was not kept, because the limit was reached.
    is_lost: bool,
    /// The table of the view's database as it was before a flush or a swap took it away. For keys that were written
    /// before that, `kept` has the record.
    frozen: Option<FrozenTable>,
}

impl ShardView {
    /// Keeps the current record of `key`, which is about to be written, added or removed.
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
    /// Keeps the whole table, before a flush or a swap takes it away.
    pub(crate) fn keep_table(&mut self, shard: &Shard, slot: usize) {
        if slot == self.slot && self.frozen.is_none() {
            self.frozen = Some(FrozenTable::of(shard, slot));
        }
    }
    /// The record of a key at the moment of the view, if this part has kept it. `None`: the key was not written
    /// since.
    fn read(&self, key: &Key<'_>) -> Option<Option<Viewed>> {
        if let Some(kept) = self.kept.get(key.bytes) {
            return Some(kept.clone());
        }
        let records = &self.frozen.as_ref()?.0;
        let at = records.locate(position_of(key.hash.0), key.bytes);
        Some(at.map(|at| viewed(&RecordRef(records.at(at)))))
    }
}

impl Drop for ShardView {
    fn drop(&mut self) {
        if let Some(all_bytes) = &self.all_bytes {
            all_bytes.fetch_sub(self.kept_bytes, Relaxed);
        }
    }
}

fn viewed(record: &RecordRef<'_>) -> Viewed {
    (record.value().to_value(), record.expire_at_ms())
}

/// A view: see the module. Dropping this value ends the view.
#[derive(Debug)]
pub struct View<'k> {
    keyspace: &'k Keyspace,
    id: u64,
    db: usize,
    shards: Vec<usize>,
}

impl Keyspace {
    /// Collects the positions of these keys for [`Txn::view`].
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
    /// Begins a view of `keys` of database `db`, as of this moment.
    ///
    /// # Panics
    /// Panics if the shard of one of the keys is not held.
    pub fn view(&mut self, db: usize, keys: ViewKeys) -> View<'k> {
        let slot = self.keyspace.slot(db);
        keys.0.iter().for_each(|(shard, positions)| self.carry_out_promises_at(*shard, slot, positions));
        self.begin_view(db, keys.0.into_iter().map(|(shard, positions)| (shard, Some(positions))), false)
    }
    /// Begins a view of all keys of database `db` in the held shards, as of this moment. The view is lost if too
    /// much is written while it exists: see [`View::is_lost`].
    pub fn view_of_held(&mut self, db: usize) -> View<'k> {
        self.carry_out_all_promises();
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
            let shard_view = ShardView {
                id,
                slot,
                positions,
                kept: HashMap::default(),
                kept_bytes: 0,
                all_bytes: counts.then(|| keyspace.view_bytes.clone()),
                is_lost: false,
                frozen: None,
            };
            self.shard_guard(shard).lock.keepers().views.push(shard_view);
            shards.push(shard);
        }
        View { keyspace, id, db, shards }
    }
}

impl<'k> View<'k> {
    /// The record of `key`, one of the view's keys, at the moment of the view. The record may have expired since.
    /// If the key was not written since, its record is marked as used, unless `txn` is set to no-touch.
    ///
    /// # Panics
    /// Panics if `txn` does not hold the key's shard.
    pub fn read(&self, txn: &mut Txn<'k>, key: &Key<'_>) -> Option<Viewed> {
        // First carry out promises that were made after the moment of the view. Like any other write, this makes
        // the shard keep the former record.
        txn.db(self.db).refresh(key);
        match self.shard_view(txn, key).and_then(|shard_view| shard_view.read(key)) {
            Some(was) => was,
            None => txn.db(self.db).get(key).map(|record| viewed(&record)),
        }
    }
    /// True when the view is lost in the shard of `key`: the shard could not keep a record, because of
    /// [`KEPT_BYTES_MAX`]. Records that [`View::read`] returned before are still as of the moment of the view.
    /// Records that it returns from now on may be newer. A view of named keys is never lost.
    ///
    /// # Panics
    /// Panics if `txn` does not hold the key's shard.
    pub fn is_lost(&self, txn: &mut Txn<'k>, key: &Key<'_>) -> bool {
        self.shard_view(txn, key).is_some_and(|shard_view| shard_view.is_lost)
    }
    /// True when no key of the view in the shards that `txn` holds was written since the moment of the view. A
    /// write of another key that shares a position with one of them counts, too.
    pub fn is_unchanged(&self, txn: &Txn<'k>) -> bool {
        let slot = self.keyspace.slot(self.db);
        txn.held_shards().all(|(_, shard)| {
            let keepers = shard.keepers.as_ref();
            let shard_view = keepers.and_then(|keepers| keepers.views.iter().find(|part| part.id == self.id));
            shard_view.is_none_or(|shard_view| {
                let promised = match &shard_view.positions {
                    Some(positions) => shard.may_have_promise(slot, positions),
                    None => shard.has_promises(),
                };
                shard_view.kept.is_empty() && shard_view.frozen.is_none() && !shard_view.is_lost && !promised
            })
        })
    }
    fn shard_view<'t>(&self, txn: &'t mut Txn<'k>, key: &Key<'_>) -> Option<&'t ShardView> {
        let keepers = txn.shard_guard(self.keyspace.shard_of(key.hash)).lock.keepers.as_ref()?;
        keepers.views.iter().find(|shard_view| shard_view.id == self.id)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        for shard in &self.shards {
            // The kept records are freed after the lock is released.
            let shard_view = self.keyspace.shards[*shard].lock.lock().take_shard_view(self.id);
            drop(shard_view);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
