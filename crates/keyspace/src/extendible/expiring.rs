//! [`Few`]: the positions of the items of a segment that may have an expiry, while these items are few.
//!
//! Eviction by a `volatile-...` policy looks for items with an expiry. Where one item in a thousand has one, a look at all items
//! would cost a thousand times as much as where all have one. So a segment knows where its few such items are. A segment with
//! more than [`FEW_MAX`] of them does not: there, a look at all items finds enough.
//!
//! A position stays in the list when its item is removed, or when the item's expiry is. The next walk that looks for items
//! with an expiry takes it out. So removals cost nothing.

use super::item::{Item, OutsideValue};
use super::segment::Segment;
use super::{SEGMENT_ITEMS_MAX, spread};

/// Maximum number of positions in a list: one in 29 items of a full segment.
pub(super) const FEW_MAX: usize = SEGMENT_ITEMS_MAX / 29 + 1;
/// A walk makes a list for a segment with at most this number of items with an expiry. It is less than [`FEW_MAX`], so that a
/// segment does not lose its list soon again.
pub(crate) const LISTED_MAX: usize = FEW_MAX / 2;

/// A list of positions.
#[derive(Clone, Debug)]
pub(super) struct Few {
    len: u8,
    positions: [u64; FEW_MAX],
}

impl Few {
    pub(super) fn new() -> Box<Few> {
        Box::new(Few { len: 0, positions: [0; FEW_MAX] })
    }
    pub(super) fn positions(&self) -> &[u64] {
        &self.positions[..usize::from(self.len)]
    }
    /// Adds a position, unless the list has it. Returns false when the list is full.
    pub(super) fn add(&mut self, position: u64) -> bool {
        if self.positions().contains(&position) {
            return true;
        }
        let len = usize::from(self.len);
        if let Some(place) = self.positions.get_mut(len) {
            *place = position;
            self.len += 1;
        }
        len < FEW_MAX
    }
}

impl<V: OutsideValue> Segment<V> {
    /// True when [`Segment::note_expiring`] may change something.
    #[inline]
    pub(super) fn lists_expiring(&self) -> bool {
        self.few.is_some() || self.expiry_ms == i64::MAX
    }
    /// Notes that the item at `position` gets an expiry. Call this before `expiry_ms` is lowered.
    pub(super) fn note_expiring(&mut self, position: u64) {
        let is_first = self.few.is_none() && self.expiry_ms == i64::MAX;
        if is_first {
            self.few = Some(Few::new());
        }
        let is_full = self.few.as_mut().is_some_and(|few| !few.add(position));
        if is_full {
            self.few = None;
        }
        if is_first || is_full {
            self.recount();
        }
    }
    /// The items with an expiry, if they are few. `None`: they may be many.
    pub(super) fn few_expiring(
        &self,
        position_of: impl Fn(&[u8]) -> u64,
    ) -> Option<impl Iterator<Item = Item<'_, V>>> {
        let few = self.few.as_ref()?;
        Some(few.positions().iter().filter_map(move |position| {
            let handle = self.table.find(spread(*position), |handle| {
                let item = self.item(handle.start());
                item.expiry_ms() != i64::MAX && item.position(&position_of) == *position
            });
            handle.map(|handle| self.item(handle.start()))
        }))
    }
    /// Drops the list when no item has an expiry.
    pub(super) fn forget_expired(&mut self) {
        if self.expiry_ms == i64::MAX && self.few.take().is_some() {
            self.recount();
        }
    }
    /// The number of places that [`Segment::few_expiring`] looks at.
    pub(super) fn few_places(&self) -> usize {
        self.few.as_ref().map_or(0, |few| few.positions().len())
    }
    /// Lists the items with an expiry anew, if there are at most [`LISTED_MAX`], or if there is a list. Sets the time at
    /// which the first of them expires.
    pub(super) fn list_expiring(&mut self, position_of: impl Fn(&[u8]) -> u64) {
        let (mut few, mut expiry_ms, mut all) = (Few::new(), i64::MAX, 0);
        let mut note = |item: Item<'_, V>| {
            if item.expiry_ms() != i64::MAX {
                all += 1;
                expiry_ms = expiry_ms.min(item.expiry_ms());
                few.add(item.position(&position_of));
            }
        };
        let has_list = match self.few_expiring(&position_of) {
            Some(items) => {
                items.for_each(note);
                true
            }
            None => {
                self.items().for_each(&mut note);
                false
            }
        };
        self.expiry_ms = expiry_ms;
        self.few = (all > 0 && (has_list || all <= LISTED_MAX)).then_some(few);
        self.recount();
    }
}
