//! [`Segment`]: a small Swiss table of 24-bit handles. A handle is the start of an entry ([`super::entry`]) in the
//! segment's heap.
//!
//! New entries are appended to the heap. An entry becomes garbage when its item is removed, or is rewritten and no
//! longer fits. When the heap is full and an eighth of it is garbage, the live entries are copied to a new heap. So
//! a segment's memory stays close to the size of its contents, and no copy is larger than a segment.

use super::entry::{self, EntryLayout, EntryMetadata, EntryParts, INLINE_BYTES_MAX, InlineValue};
use super::expiring::Few;
use super::item::{Entries, Item, ItemMetadata, Keyed, NewItem, OutsideSlot, OutsideValue, Payload};
use super::{SEGMENT_ITEMS_MAX, spread};
use hashbrown::HashTable;

/// Maximum size of a segment's heap, because handles have 24 bits. Full-grown segments need less than a twelfth of
/// this size.
const HEAP_BYTES_MAX: usize = 1 << 24;
/// A heap larger than this is *crowded*: it takes no more keys and values, only their metadata. The hash is keyed,
/// so this happens only when a client makes keys collide at great cost. An entry then takes about 16 bytes, so
/// there is room for a million.
const CROWDED_BYTES_MIN: usize = HEAP_BYTES_MAX / 4;
/// Maximum length of a key, and of a value, in a heap that is crowded.
const CROWDED_INLINE_BYTES_MAX: usize = 4;
/// A full heap is copied instead of enlarged when more than one in this many bytes is garbage.
const GARBAGE_PART: usize = 8;
/// While there are at most this many unused elements in the list of outside values, they are not removed.
const GAPS_MIN: usize = 64;
/// When more than half of a heap larger than this is garbage, the heap is copied at once.
const MOSTLY_GARBAGE_BYTES_MIN: usize = 1024;

/// Start of an entry in its heap, in 24 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle([u8; 3]);

impl Handle {
    /// # Panics
    /// Panics if `start` has more than 24 bits. Silent truncation would corrupt the segment.
    #[inline]
    fn new(start: usize) -> Handle {
        assert!(start < HEAP_BYTES_MAX, "a segment's heap is full");
        let [a, b, c, _] = (start as u32).to_le_bytes();
        Handle([a, b, c])
    }
    #[inline]
    pub(super) fn start(self) -> usize {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0]) as usize
    }
}

/// One part of a table: the items whose positions lie in one range. It has three or four allocations.
#[derive(Clone, Debug)]
pub(crate) struct Segment<V> {
    pub(super) table: HashTable<Handle>,
    entries: Entries<V>,
    /// Indices of unused elements in the list of outside values.
    free: Vec<u32>,
    /// Number of bytes of entries that are garbage.
    garbage: usize,
    /// Number of heap bytes of the outside values.
    outside_bytes: usize,
    /// Bytes of all allocations, outside values included.
    bytes: usize,
    /// First position of the segment.
    pub(super) start: u64,
    /// No item of the segment expires before this time. A write lowers it at once. A walk over the segment raises
    /// it.
    pub(super) expiry_ms: i64,
    /// The positions of all items with an expiry, and of some others. `None`: no item has an expiry (then `expiry_ms` is
    /// `i64::MAX`), or many may have one.
    pub(super) few: Option<Box<Few>>,
    /// Number of bits, after the base bits, that are equal in all positions of the segment.
    pub(super) depth: u8,
}

/// A copy with the same spare room.
fn roomy<T: Clone>(from: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(from.capacity());
    copy.extend_from_slice(from);
    copy
}

impl<V: OutsideValue> Segment<V> {
    pub(super) fn new(start: u64, depth: u8) -> Segment<V> {
        let mut segment = Segment {
            table: HashTable::new(),
            entries: Entries::default(),
            free: Vec::new(),
            garbage: 0,
            outside_bytes: 0,
            bytes: 0,
            start,
            expiry_ms: i64::MAX,
            few: None,
            depth,
        };
        segment.recount();
        segment
    }
    /// An empty segment, with room for `items` items and `bytes` bytes of entries.
    pub(super) fn with_room(start: u64, depth: u8, items: usize, bytes: usize) -> Segment<V> {
        let mut segment = Segment::new(start, depth);
        segment.table = HashTable::with_capacity(items);
        segment.entries.heap = Vec::with_capacity(class_bytes(bytes));
        segment.recount();
        segment
    }
    /// Number of heap bytes of the segment, outside values included.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    /// A copy with the same spare room as this segment.
    pub(super) fn copied(&self) -> Segment<V> {
        let entries = Entries { heap: roomy(&self.entries.heap), outside: roomy(&self.entries.outside) };
        let (table, free) = (self.table.clone(), roomy(&self.free));
        let mut copy = Segment { table, entries, free, few: self.few.clone(), ..*self };
        copy.recount();
        copy
    }
    /// Number of bytes of entries that are not garbage.
    pub(super) fn live_bytes(&self) -> usize {
        self.entries.heap.len() - self.garbage
    }
    /// Bytes of live entries. `None` when the segment has outside values.
    pub(super) fn inline_bytes(&self) -> Option<usize> {
        self.entries.outside.is_empty().then(|| self.live_bytes())
    }
    /// The heap from `start` on, for a prefetch.
    #[inline]
    pub(super) fn heap_from(&self, start: usize) -> &[u8] {
        &self.entries.heap[start..]
    }
    /// The place after the last entry in the heap, for a prefetch.
    #[inline]
    pub(super) fn heap_end(&self) -> &[u8] {
        &self.entries.heap[self.entries.heap.len()..]
    }
    /// The bucket of `key` and the start of its entry, if the segment has the key.
    #[inline]
    pub(super) fn find(&self, position: u64, key: &[u8]) -> Option<(usize, usize)> {
        let bucket =
            self.table.find_bucket_index(spread(position), |handle| self.key_is(handle.start(), key))?;
        Some((bucket, self.table.get_bucket(bucket)?.start()))
    }
    /// The item whose entry starts at `start`.
    #[inline]
    pub(super) fn item(&self, start: usize) -> Item<'_, V> {
        self.entries.item(start)
    }
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_, V>> {
        self.entries.items()
    }
    /// Start of each entry, in the order of the table. Reads no entry.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.table.iter().map(|handle| handle.start())
    }
    /// Adds an item whose key is not in the segment. `position_of` computes the position of any key.
    pub(super) fn insert(&mut self, new: NewItem<'_, V>, position: u64, position_of: impl Fn(&[u8]) -> u64) {
        let long = new.key.len() > self.inline_bytes_max();
        let value = self.store_value(long.then_some((new.key, position)), new.payload);
        let written = EntryParts { key: new.key, usage: new.usage, expiry_ms: new.expiry_ms, value };
        self.reserve(written.bytes_max());
        let handle = Handle::new(self.entries.heap.len());
        written.push(&mut self.entries.heap);
        self.add(handle, position, position_of);
    }
    /// Replaces the item in `bucket` by `new`, which has an equal key. Returns the former outside value.
    pub(super) fn replace(&mut self, bucket: usize, new: NewItem<'_, V>) -> Option<V> {
        let layout = EntryLayout::of(&self.entries.heap, self.start_of(bucket));
        let (value, former) = match (layout.value(&self.entries.heap), new.payload) {
            (InlineValue::Outside(index, key_outside), payload)
                if key_outside || matches!(payload, Payload::Outside(_)) =>
            {
                let value = into_outside_value(payload);
                let former = self.change_outside_value(index, |place| std::mem::replace(place, value));
                (InlineValue::Outside(index, key_outside), Some(former))
            }
            (InlineValue::Outside(index, _), payload) => {
                let former = self.remove_outside(index).into_value();
                (self.store_value(None, payload), former)
            }
            (_, payload) => (self.store_value(None, payload), None),
        };
        let written = EntryParts { key: new.key, usage: new.usage, expiry_ms: new.expiry_ms, value };
        self.rewrite(bucket, &layout, &written);
        self.renumber_if_sparse();
        former
    }
    /// Removes the item in `bucket`. Returns its value if that lay outside.
    pub(super) fn remove(&mut self, bucket: usize) -> Option<V> {
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { panic!("no item is in bucket {bucket}") };
        let (handle, _) = entry.remove();
        let value = self.discard(handle).into_value();
        self.tidy();
        value
    }
    /// Removes every item for which `is` returns true. Calls `gone` with the key, the position and the
    /// outside value of each.
    pub(super) fn remove_all(
        &mut self,
        mut is: impl FnMut(&Item<'_, V>) -> bool,
        position_of: impl Fn(&[u8]) -> u64,
        mut gone: impl FnMut(&[u8], u64, Option<V>),
    ) {
        let mut table = std::mem::take(&mut self.table);
        let mut taken = Vec::new();
        table.retain(|handle| {
            let stays = !is(&self.item(handle.start()));
            if !stays {
                taken.push(*handle);
            }
            stays
        });
        self.table = table;
        for handle in taken {
            match self.discard(handle) {
                OutsideSlot::Keyed(keyed) => gone(&keyed.key, keyed.position, Some(keyed.value)),
                other => {
                    // A discarded entry stays in the heap until `tidy` below.
                    let key = &self.entries.heap[EntryLayout::of(&self.entries.heap, handle.start()).key()];
                    gone(key, position_of(key), other.into_value());
                }
            }
        }
        self.tidy();
    }
    /// Lets `change` write to the value of the item in `bucket`. Returns `None` when the value does not lie
    /// outside.
    pub(super) fn change_outside<R>(&mut self, bucket: usize, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        match EntryLayout::of(&self.entries.heap, self.start_of(bucket)).value(&self.entries.heap) {
            InlineValue::Outside(index, _) => Some(self.change_outside_value(index, change)),
            _ => None,
        }
    }
    /// The metadata of the item at `start`.
    #[inline(always)]
    pub(super) fn metadata(&self, start: usize) -> ItemMetadata<'_> {
        ItemMetadata::of(&self.entries.heap, start)
    }
    /// Sets the usage of the item at `start`.
    #[inline]
    pub(super) fn set_usage(&mut self, start: usize, usage: u32) {
        EntryMetadata::of(&self.entries.heap, start).set_usage(&mut self.entries.heap, usage);
    }
    /// Sets the expiry of the item in `bucket`, which has this key.
    pub(super) fn set_expiry(&mut self, bucket: usize, key: &[u8], expiry_ms: i64) {
        let layout = EntryLayout::of(&self.entries.heap, self.start_of(bucket));
        let usage = layout.metadata.has_usage().then(|| layout.metadata.usage(&self.entries.heap));
        let mut copy = [0; INLINE_BYTES_MAX];
        let value = match layout.value(&self.entries.heap) {
            InlineValue::Int(n) => InlineValue::Int(n),
            InlineValue::Outside(index, key_outside) => InlineValue::Outside(index, key_outside),
            InlineValue::Bytes(bytes, edited) => {
                copy[..bytes.len()].copy_from_slice(bytes);
                InlineValue::Bytes(&copy[..bytes.len()], edited)
            }
        };
        self.rewrite(bucket, &layout, &EntryParts { key, usage, expiry_ms, value });
    }
    /// Makes room in the heap for `bytes` more bytes of entries.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.entries.heap.capacity() - self.entries.heap.len() < bytes {
            self.make_room(bytes);
        }
    }
    /// True when a smaller heap would hold all live entries.
    pub(super) fn is_roomy(&self) -> bool {
        class_bytes(self.live_bytes()) < self.entries.heap.capacity()
    }
    /// Moves the live entries to the smallest heap that holds them.
    pub(super) fn trim(&mut self) {
        self.compact(0);
    }
    /// Shrinks the table to the smallest size for `items` items, and the heap to the live entries.
    pub(super) fn shrink(&mut self, items: usize, position_of: impl Fn(&[u8]) -> u64) {
        self.with_table(|table, hash_of| table.shrink_to(items, hash_of), position_of);
        self.compact(0);
        self.recount();
    }
    /// Moves the handles to a new table for `items` items, because the marks of removed items take up room in the old
    /// table.
    pub(super) fn rebuild(&mut self, items: usize, position_of: impl Fn(&[u8]) -> u64) {
        let mut table = HashTable::with_capacity(items);
        for item in self.items() {
            let hash = spread(item.position(&position_of));
            table.insert_unique(hash, Handle::new(item.start()), |_| unreachable!("there is room"));
        }
        self.table = table;
        self.recount();
    }
    /// Moves the item of the segment `other` that starts at `start` to this segment.
    pub(super) fn adopt(
        &mut self,
        other: &mut Segment<V>,
        start: usize,
        position: u64,
        position_of: impl Fn(&[u8]) -> u64,
    ) {
        let layout = EntryLayout::of(&other.entries.heap, start);
        let entry = &other.entries.heap[layout.range()];
        self.reserve(entry.len());
        let handle = Handle::new(self.entries.heap.len());
        self.entries.heap.extend_from_slice(entry);
        let expiry_ms = layout.metadata.expiry_ms(&other.entries.heap);
        if expiry_ms != i64::MAX {
            self.note_expiring(position);
            self.expiry_ms = self.expiry_ms.min(expiry_ms);
        }
        if let InlineValue::Outside(index, _) = layout.value(&other.entries.heap) {
            let value = std::mem::replace(&mut other.entries.outside[index as usize], OutsideSlot::Free);
            let index = self.add_outside(value);
            EntryLayout::of(&self.entries.heap, handle.start())
                .set_outside_index(&mut self.entries.heap, index);
        }
        self.add(handle, position, position_of);
    }

    #[inline]
    fn key_is(&self, start: usize, key: &[u8]) -> bool {
        entry::key_is(&self.entries.heap, start, key).unwrap_or_else(|| self.item(start).key() == key)
    }
    #[inline]
    fn start_of(&self, bucket: usize) -> usize {
        self.table.get_bucket(bucket).expect("the bucket of an item").start()
    }
    /// Adds a handle to the table.
    #[inline]
    fn add(&mut self, handle: Handle, position: u64, position_of: impl Fn(&[u8]) -> u64) {
        let grows = self.table.len() == self.table.capacity();
        if grows {
            // An empty segment with a depth was split in advance, so more items than the first one will come.
            let more = if self.depth > 0 && self.table.is_empty() { SEGMENT_ITEMS_MAX } else { 1 };
            self.with_table(|table, hash_of| table.reserve(more, hash_of), position_of);
            self.recount();
        }
        self.table.insert_unique(spread(position), handle, |_| unreachable!("there is room"));
    }
    /// Lets `change` write to the table, and passes it a function that hashes a handle.
    fn with_table(
        &mut self,
        change: impl FnOnce(&mut HashTable<Handle>, &dyn Fn(&Handle) -> u64),
        position_of: impl Fn(&[u8]) -> u64,
    ) {
        let mut table = std::mem::take(&mut self.table);
        change(&mut table, &|handle| spread(self.item(handle.start()).position(&position_of)));
        self.table = table;
    }
    /// Writes the item in `bucket`, whose entry has the layout `layout`. Overwrites the entry if the new one fits
    /// there. Otherwise appends the new entry to the heap.
    #[inline]
    fn rewrite(&mut self, bucket: usize, layout: &EntryLayout, written: &EntryParts<'_>) {
        if layout.overwrite(&mut self.entries.heap, written) {
            return;
        }
        self.reserve(written.bytes_max());
        // `reserve` may have moved the entry.
        let former = EntryLayout::of(&self.entries.heap, self.start_of(bucket));
        self.mark_garbage(&former);
        let handle = Handle::new(self.entries.heap.len());
        written.push(&mut self.entries.heap);
        *self.table.get_bucket_mut(bucket).expect("the bucket of an item") = handle;
    }
    /// Maximum length of a key, and of a value, that the heap takes now.
    #[inline]
    fn inline_bytes_max(&self) -> usize {
        if self.entries.heap.len() < CROWDED_BYTES_MIN { INLINE_BYTES_MAX } else { CROWDED_INLINE_BYTES_MAX }
    }
    /// Decides where a value is stored, and stores it if that is outside. Returns what to store in the entry.
    /// `long_key`: the key and its position, if the key must lie outside as well.
    #[inline]
    fn store_value<'a>(
        &mut self,
        long_key: Option<(&[u8], u64)>,
        payload: Payload<'a, V>,
    ) -> InlineValue<'a> {
        match payload {
            Payload::Int(n) if long_key.is_none() => InlineValue::Int(n),
            Payload::Bytes(bytes, edited) if long_key.is_none() && bytes.len() <= self.inline_bytes_max() => {
                InlineValue::Bytes(bytes, edited)
            }
            payload => {
                let value = into_outside_value(payload);
                let place = match long_key {
                    None => OutsideSlot::Value(value),
                    Some((key, position)) => {
                        OutsideSlot::Keyed(Box::new(Keyed { key: key.into(), position, value }))
                    }
                };
                InlineValue::Outside(self.add_outside(place), long_key.is_some())
            }
        }
    }
    fn add_outside(&mut self, place: OutsideSlot<V>) -> u32 {
        let bytes = place.heap_bytes();
        self.outside_bytes += bytes;
        self.bytes += bytes;
        match self.free.pop() {
            Some(index) => {
                self.entries.outside[index as usize] = place;
                index
            }
            None => {
                if self.entries.outside.len() == self.entries.outside.capacity() {
                    self.entries.outside.reserve_exact(1 + self.entries.outside.len() / 4);
                    self.recount();
                }
                self.entries.outside.push(place);
                self.entries.outside.len() as u32 - 1
            }
        }
    }
    /// Lets `change` write to the outside value with this index, and updates the counts of bytes.
    fn change_outside_value<R>(&mut self, index: u32, change: impl FnOnce(&mut V) -> R) -> R {
        let value = self.entries.outside[index as usize].value_mut();
        let before = value.heap_bytes();
        let result = change(value);
        let after = value.heap_bytes();
        self.outside_bytes = self.outside_bytes + after - before;
        self.bytes = self.bytes + after - before;
        result
    }
    /// Turns an entry into garbage.
    #[inline]
    fn mark_garbage(&mut self, layout: &EntryLayout) {
        layout.metadata.mark_garbage(&mut self.entries.heap);
        self.garbage += layout.range().len();
    }
    /// Makes the entry of a handle garbage, after the handle has left the table. Returns the outside value.
    fn discard(&mut self, handle: Handle) -> OutsideSlot<V> {
        let layout = EntryLayout::of(&self.entries.heap, handle.start());
        self.mark_garbage(&layout);
        match layout.value(&self.entries.heap) {
            InlineValue::Outside(index, _) => self.remove_outside(index),
            _ => OutsideSlot::Free,
        }
    }
    /// Removes the outside value with this index and returns it. The index becomes free.
    fn remove_outside(&mut self, index: u32) -> OutsideSlot<V> {
        let place = std::mem::replace(&mut self.entries.outside[index as usize], OutsideSlot::Free);
        let bytes = place.heap_bytes();
        self.outside_bytes -= bytes;
        self.bytes -= bytes;
        let full = self.free.len() == self.free.capacity();
        self.free.push(index);
        if full {
            self.recount();
        }
        place
    }
    /// After removals: releases memory that is mostly garbage.
    fn tidy(&mut self) {
        if self.table.is_empty() {
            (self.entries.heap, self.entries.outside, self.free, self.garbage) =
                (Vec::new(), Vec::new(), Vec::new(), 0);
            self.recount();
        } else if self.garbage > self.entries.heap.len() / 2
            && self.entries.heap.len() > MOSTLY_GARBAGE_BYTES_MIN
        {
            self.compact(0);
        }
        self.renumber_if_sparse();
    }
    /// Gives the outside values new indices when most indices are free. All entries must be in the table, and no
    /// caller may hold an index.
    #[inline]
    fn renumber_if_sparse(&mut self) {
        if self.free.len() > GAPS_MIN && self.free.len() > self.entries.outside.len() / 2 {
            self.renumber();
        }
    }
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        if self.garbage * GARBAGE_PART > self.entries.heap.len() {
            self.compact(bytes);
        } else {
            let len = self.entries.heap.len();
            let capacity = class_bytes(len + bytes);
            self.entries.heap.reserve_exact(capacity - len);
            self.recount();
        }
    }
    /// Copies the live entries to a new heap, with room for `bytes` more bytes.
    fn compact(&mut self, bytes: usize) {
        let mut heap = Vec::with_capacity(class_bytes(self.live_bytes() + bytes));
        for handle in &mut self.table {
            let range = EntryLayout::of(&self.entries.heap, handle.start()).range();
            *handle = Handle::new(heap.len());
            heap.extend_from_slice(&self.entries.heap[range]);
        }
        (self.entries.heap, self.garbage) = (heap, 0);
        self.recount();
    }
    fn renumber(&mut self) {
        let mut kept = Vec::with_capacity(self.entries.outside.len() - self.free.len());
        for handle in &self.table {
            let layout = EntryLayout::of(&self.entries.heap, handle.start());
            if let InlineValue::Outside(index, _) = layout.value(&self.entries.heap) {
                layout.set_outside_index(&mut self.entries.heap, kept.len() as u32);
                kept.push(std::mem::replace(&mut self.entries.outside[index as usize], OutsideSlot::Free));
            }
        }
        (self.entries.outside, self.free) = (kept, Vec::new());
        self.recount();
    }
    pub(super) fn recount(&mut self) {
        // The last term is one word for the segment's reference count.
        self.bytes = size_of::<Segment<V>>()
            + size_of::<usize>()
            + self.table.allocation_size()
            + self.entries.heap.capacity()
            + self.entries.outside.capacity() * size_of::<OutsideSlot<V>>()
            + self.free.capacity() * size_of::<u32>()
            + self.few.as_ref().map_or(0, |_| size_of::<Few>())
            + self.outside_bytes;
    }
    #[cfg(test)]
    pub(super) fn check(&self, position_of: impl Fn(&[u8]) -> u64) {
        let expiring = || self.items().filter(|item| item.expiry_ms() != i64::MAX);
        match self.few_expiring(&position_of) {
            Some(few) => assert_eq!(
                few.map(|item| item.start()).collect::<std::collections::BTreeSet<_>>(),
                expiring().map(|item| item.start()).collect()
            ),
            None => assert!(self.expiry_ms != i64::MAX || expiring().next().is_none()),
        }
        let live: usize = self.starts().map(|start| self.item(start).inline_bytes()).sum();
        assert_eq!(live, self.live_bytes());
        let mut starts: Vec<usize> = self.starts().collect();
        starts.sort_unstable();
        assert!(self.items().map(|item| item.start()).eq(starts));
        let outside = self.items().filter(Item::is_outside).count();
        assert_eq!(outside + self.free.len(), self.entries.outside.len());
        assert_eq!(
            self.outside_bytes,
            self.entries.outside.iter().map(OutsideSlot::heap_bytes).sum::<usize>()
        );
        let mut recounted = self.clone();
        recounted.entries.heap.reserve_exact(self.entries.heap.capacity() - self.entries.heap.len());
        recounted.entries.outside.reserve_exact(self.entries.outside.capacity() - self.entries.outside.len());
        recounted.free.reserve_exact(self.free.capacity() - self.free.len());
        recounted.recount();
        assert_eq!(recounted.bytes, self.bytes);
    }
}

/// The form that a value has outside the heap.
fn into_outside_value<V: OutsideValue>(payload: Payload<'_, V>) -> V {
    match payload {
        Payload::Int(n) => V::from_int(n),
        Payload::Bytes(bytes, edited) => V::from_bytes(bytes, edited),
        Payload::Outside(value) => value,
    }
}

/// Rounds `bytes` up to a size class of the allocator. The classes are the multiples of 16 up to 128, and above
/// that four classes per power of two.
pub(crate) fn class_bytes(bytes: usize) -> usize {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_allocator_s() {
        let sizes =
            [(0, 0), (1, 16), (128, 128), (129, 160), (161, 192), (256, 256), (257, 320), (40_000, 40_960)];
        for (bytes, class) in sizes {
            assert_eq!(class_bytes(bytes), class, "{bytes}");
        }
    }
}
