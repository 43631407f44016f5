//! [`Keepers`]: who must hear of a write before a shard writes a record. A snapshot of all data ([`crate::Snapshot`]) and a
//! view of some keys ([`crate::View`]) keep the record's former value. A read set ([`crate::ReadSet`]) notes the write.

use crate::extendible::ExtendibleTable;
use crate::read_set::ShardReads;
use crate::record::Value;
use crate::shard::{KeyPositions, Shard};
use crate::snapshot::{ShardSnapshot, SnapshotLoad};
use crate::view::ShardView;
use std::sync::Arc;

/// The parts of all current snapshots, views and read sets that belong to one shard.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    pub(crate) snapshots: Vec<ShardSnapshot>,
    pub(crate) views: Vec<ShardView>,
    pub(crate) reads: Vec<ShardReads>,
}

/// The records of a table as they were before a flush or a swap took the table away. Costs one pointer per segment,
/// because the table shares its segments.
#[derive(Debug)]
pub(crate) struct FrozenTable(pub(crate) ExtendibleTable<Value, KeyPositions>);

impl FrozenTable {
    pub(crate) fn of(shard: &Shard, slot: usize) -> FrozenTable {
        FrozenTable(match shard.table(slot) {
            Some(table) => table.records.clone(),
            None => shard.empty_records(),
        })
    }
}

impl Keepers {
    pub(crate) fn shard_snapshot(&mut self, load: &Arc<SnapshotLoad>) -> Option<&mut ShardSnapshot> {
        self.snapshots.iter_mut().find(|shard_snapshot| shard_snapshot.is_of(load))
    }
    /// Tells the read sets that a key with this name is about to be added or removed.
    #[cold]
    pub(crate) fn note_name(&self, slot: usize, name: &[u8]) {
        self.reads.iter().for_each(|shard_reads| shard_reads.note_name(slot, name));
    }
    fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.views.is_empty() && self.reads.is_empty()
    }
}

impl Shard {
    /// Call this before the record of `key` is written. Costs one branch while the shard has no snapshot, no view and no
    /// read set.
    #[inline]
    pub(crate) fn keep(&mut self, slot: usize, position: u64, key: &[u8]) {
        if self.keepers.is_some() {
            self.keep_for_all(slot, position, key);
        }
    }
    #[cold]
    fn keep_for_all(&mut self, slot: usize, position: u64, key: &[u8]) {
        let Some(mut keepers) = self.keepers.take() else { return };
        keepers
            .snapshots
            .iter_mut()
            .for_each(|shard_snapshot| shard_snapshot.keep(self, slot, position, key));
        keepers.views.iter_mut().for_each(|shard_view| shard_view.keep(self, slot, position, key));
        keepers.reads.iter().for_each(|shard_reads| shard_reads.note_write(slot, position));
        self.keepers = Some(keepers);
    }
    /// Like [`Shard::keep`], for a record that is added or removed.
    #[inline]
    pub(crate) fn keep_with_name(&mut self, slot: usize, position: u64, key: &[u8]) {
        if self.keepers.is_some() {
            self.keep_for_all(slot, position, key);
            self.keepers.iter().for_each(|keepers| keepers.note_name(slot, key));
        }
    }
    /// Asks the processor to load what [`Shard::keep`] needs, for a key that may be written soon.
    #[inline]
    pub(crate) fn prefetch_keepers(&self, slot: usize, position: u64) {
        if let Some(keepers) = &self.keepers {
            keepers.snapshots.iter().for_each(|shard_snapshot| shard_snapshot.prefetch(slot, position));
        }
    }
    /// Call this before a flush or a swap takes a whole table away.
    pub(crate) fn keep_table(&mut self, slot: usize) {
        let Some(mut keepers) = self.keepers.take() else { return };
        keepers.snapshots.iter_mut().for_each(|shard_snapshot| shard_snapshot.keep_table(self, slot));
        keepers.views.iter_mut().for_each(|shard_view| shard_view.keep_table(self, slot));
        keepers.reads.iter().for_each(|shard_reads| shard_reads.note_table(slot));
        self.keepers = Some(keepers);
    }
    /// The keepers of this shard. Creates them if there are none, because the caller adds a part.
    pub(crate) fn keepers(&mut self) -> &mut Keepers {
        self.keepers.get_or_insert_default()
    }
    pub(crate) fn shard_snapshot(&mut self, load: &Arc<SnapshotLoad>) -> Option<&mut ShardSnapshot> {
        self.keepers.as_mut()?.shard_snapshot(load)
    }
    /// Removes this shard's part of a snapshot and returns it.
    pub(crate) fn take_shard_snapshot(&mut self, load: &Arc<SnapshotLoad>) -> Option<ShardSnapshot> {
        self.take_part(|keepers| &mut keepers.snapshots, |shard_snapshot| shard_snapshot.is_of(load))
    }
    /// Removes this shard's part of a view and returns it.
    pub(crate) fn take_shard_view(&mut self, id: u64) -> Option<ShardView> {
        self.take_part(|keepers| &mut keepers.views, |shard_view| shard_view.id == id)
    }
    /// Removes this shard's part of a read set and returns it.
    pub(crate) fn take_shard_reads(&mut self, id: u64) -> Option<ShardReads> {
        self.take_part(|keepers| &mut keepers.reads, |shard_reads| shard_reads.id == id)
    }
    fn take_part<P>(
        &mut self,
        parts: impl FnOnce(&mut Keepers) -> &mut Vec<P>,
        is_wanted: impl Fn(&P) -> bool,
    ) -> Option<P> {
        let parts = parts(self.keepers.as_mut()?);
        let part = parts.swap_remove(parts.iter().position(is_wanted)?);
        self.keepers = self.keepers.take().filter(|keepers| !keepers.is_empty());
        Some(part)
    }
}
