//! [`Keepers`]: what a shard keeps for readers of its past state. These readers are snapshots of all data
//! ([`crate::Snapshot`]) and views of some keys ([`crate::View`]). Before the shard writes a record, they keep the
//! former record.

use crate::extendible::ExtendibleTable;
use crate::record::Value;
use crate::shard::{KeyPositions, Shard};
use crate::snapshot::{Saving, SnapshotLoad};
use crate::view::Viewing;
use std::sync::Arc;

/// The parts of all current snapshots and views that belong to one shard.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    pub(crate) savings: Vec<Saving>,
    pub(crate) viewings: Vec<Viewing>,
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
    pub(crate) fn saving(&mut self, load: &Arc<SnapshotLoad>) -> Option<&mut Saving> {
        self.savings.iter_mut().find(|saving| saving.is_of(load))
    }
    fn is_empty(&self) -> bool {
        self.savings.is_empty() && self.viewings.is_empty()
    }
}

impl Shard {
    /// Call this before the record of `key` is written, added or removed. Costs one branch while the shard has no
    /// snapshot and no view.
    #[inline]
    pub(crate) fn keep(&mut self, slot: usize, position: u64, key: &[u8]) {
        if self.keepers.is_some() {
            self.keep_for_all(slot, position, key);
        }
    }
    #[cold]
    fn keep_for_all(&mut self, slot: usize, position: u64, key: &[u8]) {
        let Some(mut keepers) = self.keepers.take() else { return };
        keepers.savings.iter_mut().for_each(|saving| saving.keep(self, slot, position, key));
        keepers.viewings.iter_mut().for_each(|viewing| viewing.keep(self, slot, position, key));
        self.keepers = Some(keepers);
    }
    /// Call this before a flush or a swap takes a whole table away.
    pub(crate) fn keep_table(&mut self, slot: usize) {
        let Some(mut keepers) = self.keepers.take() else { return };
        keepers.savings.iter_mut().for_each(|saving| saving.keep_table(self, slot));
        keepers.viewings.iter_mut().for_each(|viewing| viewing.keep_table(self, slot));
        self.keepers = Some(keepers);
    }
    /// The keepers of this shard. Creates them if there are none, because the caller adds a snapshot or a view.
    pub(crate) fn keepers(&mut self) -> &mut Keepers {
        self.keepers.get_or_insert_default()
    }
    pub(crate) fn saving(&mut self, load: &Arc<SnapshotLoad>) -> Option<&mut Saving> {
        self.keepers.as_mut()?.saving(load)
    }
    /// Removes this shard's part of a snapshot and returns it.
    pub(crate) fn take_saving(&mut self, load: &Arc<SnapshotLoad>) -> Option<Saving> {
        let keepers = self.keepers.as_mut()?;
        let at = keepers.savings.iter().position(|saving| saving.is_of(load))?;
        let saving = keepers.savings.swap_remove(at);
        self.forget_keepers();
        Some(saving)
    }
    /// Removes this shard's part of a view and returns it.
    pub(crate) fn take_viewing(&mut self, id: u64) -> Option<Viewing> {
        let keepers = self.keepers.as_mut()?;
        let at = keepers.viewings.iter().position(|viewing| viewing.id == id)?;
        let viewing = keepers.viewings.swap_remove(at);
        self.forget_keepers();
        Some(viewing)
    }
    fn forget_keepers(&mut self) {
        self.keepers = self.keepers.take().filter(|keepers| !keepers.is_empty());
    }
}
