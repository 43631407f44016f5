//! [`Keepers`]: readers of a shard's past state, which are told before a record is written. They are snapshots of all
//! data ([`crate::Snapshot`]) and views of some keys ([`crate::View`]).

use crate::extendible::ExtendibleTable;
use crate::record::Value;
use crate::shard::{KeyPositions, Shard};
use crate::snapshot::{Saving, SnapshotLoad};
use crate::view::Viewing;
use std::sync::Arc;

/// A shard's parts of all snapshots and views.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    pub(crate) savings: Vec<Saving>,
    pub(crate) viewings: Vec<Viewing>,
}

/// The records of a table that was emptied or exchanged. They share segments with the records elsewhere, at the
/// cost of one pointer a segment.
#[derive(Debug)]
pub(crate) struct Frozen(pub(crate) ExtendibleTable<Value, KeyPositions>);

impl Frozen {
    pub(crate) fn of(shard: &Shard, slot: usize) -> Frozen {
        Frozen(match shard.table(slot) {
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
    /// Call this before the record of `key` is written, added or removed. Costs one branch while there are no
    /// keepers.
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
    /// Call this before a whole table is taken away.
    pub(crate) fn keep_table(&mut self, slot: usize) {
        let Some(mut keepers) = self.keepers.take() else { return };
        keepers.savings.iter_mut().for_each(|saving| saving.keep_table(self, slot));
        keepers.viewings.iter_mut().for_each(|viewing| viewing.keep_table(self, slot));
        self.keepers = Some(keepers);
    }
    /// The keepers, to add one.
    pub(crate) fn keepers(&mut self) -> &mut Keepers {
        self.keepers.get_or_insert_default()
    }
    pub(crate) fn saving(&mut self, load: &Arc<SnapshotLoad>) -> Option<&mut Saving> {
        self.keepers.as_mut()?.saving(load)
    }
    /// Takes out this shard's part of a snapshot.
    pub(crate) fn take_saving(&mut self, load: &Arc<SnapshotLoad>) -> Option<Saving> {
        let keepers = self.keepers.as_mut()?;
        let at = keepers.savings.iter().position(|saving| saving.is_of(load))?;
        let saving = keepers.savings.swap_remove(at);
        self.forget_keepers();
        Some(saving)
    }
    /// Takes out this shard's part of a view.
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
