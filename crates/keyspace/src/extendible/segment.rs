//! [`Segment`]: a small Swiss table of 24-bit handles into a heap of entries ([`super::entry`]).
//!
//! New entries are appended to the heap. A removed entry, and one that no longer fits its place, becomes garbage.
//! When the heap has no room left and an eighth of it is garbage, the live entries are copied to a fresh heap. So
//! a segment's memory stays close to the size of its contents, and nothing larger than a segment is ever copied.

use super::entry::{self, Body, EntryLayout, INLINE_BYTES_MAX, Written};
use super::spread;
use crate::types::Bytes;
use hashbrown::HashTable;
use strand_chain::{Blob, HEADER_BYTES, prefetch};

/// Limit of a segment's heap, because handles have 24 bits. Full-grown segments stay below a twelfth of it.
const HEAP_BYTES_MAX: usize = 1 << 24;
/// Beyond this size a heap takes no more keys and values, only their metadata. Keys are spread by a keyed hash, so
/// this happens only when a client makes keys collide at great cost. An entry then takes about 16 bytes, and there
/// is room for a million.
const CROWDED_BYTES_MIN: usize = HEAP_BYTES_MAX / 4;
/// Longest key and longest value in a crowded heap.
const CROWDED_INLINE_BYTES_MAX: usize = 4;
/// The heap is copied instead of enlarged when more than one part in this many is garbage.
const GARBAGE_PART: usize = 8;
/// At most this many free places in the list of outside values are tolerated.
const GAPS_MIN: usize = 64;
/// A larger heap that is mostly garbage is copied at once.
const MOSTLY_GARBAGE_BYTES_MIN: usize = 1024;

/// A value that a table can hold outside its heaps.
pub(crate) trait OffHeap: Clone {
    /// Heap bytes behind the value. The cost does not grow with the value.
    fn heap_bytes(&self) -> usize;
    /// Expiry of the whole item, given the expiry in its place, which may be the earlier expiry of a part of the
    /// value.
    fn key_expiry_ms(&self, expiry_ms: i64) -> i64 {
        expiry_ms
    }
    /// An integer with a key that is too long for the heap.
    fn from_int(n: i64) -> Self;
    /// Bytes that are too long for the heap, or that have a long key. `edited`: a command edited them in place.
    fn from_bytes(bytes: &[u8], edited: bool) -> Self;
}

/// A value on its way into a table.
#[derive(Debug)]
pub(crate) enum Payload<'a, V> {
    /// An integer.
    Int(i64),
    /// Bytes, and whether a command edited them in place.
    Bytes(&'a [u8], bool),
    /// Any other value.
    OffHeap(V),
}

/// A value in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a, V> {
    /// An integer.
    Int(i64),
    /// Bytes, and whether a command edited them in place.
    Bytes(&'a [u8], bool),
    /// Any other value.
    OffHeap(&'a V),
}

/// An item on its way into a table.
#[derive(Debug)]
pub(crate) struct New<'a, V> {
    pub(crate) key: &'a [u8],
    /// 24 bits of usage, for tables that track it.
    pub(crate) used: Option<u32>,
    /// `i64::MAX` for never.
    pub(crate) expiry_ms: i64,
    pub(crate) payload: Payload<'a, V>,
}

/// An item in a table.
pub(crate) struct Item<'a, V> {
    segment: &'a Segment<V>,
    place: EntryLayout,
}

impl<V> Clone for Item<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Item<'_, V> {}

impl<'a, V> Item<'a, V> {
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        match self.place.body(&self.segment.heap) {
            Body::OffHeap(number, true) => self.segment.outside[number as usize].key(),
            _ => &self.segment.heap[self.place.key()],
        }
    }
    #[inline]
    pub(crate) fn content(&self) -> Content<'a, V> {
        match self.place.body(&self.segment.heap) {
            Body::Int(n) => Content::Int(n),
            Body::Bytes(bytes, edited) => Content::Bytes(bytes, edited),
            Body::OffHeap(number, _) => Content::OffHeap(self.segment.outside[number as usize].value()),
        }
    }
    /// The key. A long key may be shared.
    pub(crate) fn key_bytes(&self) -> Bytes<'a> {
        match self.place.body(&self.segment.heap) {
            Body::OffHeap(number, true) => match &self.segment.outside[number as usize] {
                OffHeapSlot::Keyed(keyed) => Bytes::Shared(&keyed.key),
                _ => Bytes::Slice(&[]),
            },
            _ => Bytes::Slice(&self.segment.heap[self.place.key()]),
        }
    }
    /// Expiry (unix milliseconds); `i64::MAX` for never.
    #[inline]
    pub(crate) fn expiry_ms(&self) -> i64 {
        self.place.expiry_ms(&self.segment.heap)
    }
    /// 24 bits of usage.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.place.used(&self.segment.heap)
    }
    /// Start of the entry.
    pub(super) fn start(&self) -> usize {
        self.place.range().start
    }
    /// Bytes of the entry in the segment's heap.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.place.range().len()
    }
    /// The position of the key, computed by `position_of` or, for a long key, stored.
    #[inline]
    pub(crate) fn position(&self, position_of: impl Fn(&[u8]) -> u64) -> u64 {
        match self.place.body(&self.segment.heap) {
            Body::OffHeap(number, true) => self.segment.outside[number as usize].position(),
            _ => position_of(&self.segment.heap[self.place.key()]),
        }
    }
    /// Prefetches the outside value. Returns true when there is one.
    #[inline]
    pub(crate) fn prefetch_outside(&self) -> bool {
        let Body::OffHeap(number, _) = self.place.body(&self.segment.heap) else { return false };
        if let Some(place) = self.segment.outside.get(number as usize) {
            prefetch(place, size_of::<OffHeapSlot<V>>());
        }
        true
    }
    /// Bytes of the key if it lies outside, else 0.
    pub(crate) fn outside_key_bytes(&self) -> usize {
        match self.place.body(&self.segment.heap) {
            Body::OffHeap(_, true) => self.key().len(),
            _ => 0,
        }
    }
    /// True when [`Item::content`] is [`Content::OffHeap`].
    #[cfg(test)]
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.place.body(&self.segment.heap), Body::OffHeap(..))
    }
}

/// Start of an entry in its heap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle([u8; 3]);

impl Handle {
    /// # Panics
    /// When `start` has more than 24 bits. Silent truncation would corrupt the segment.
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

/// A place in the list of outside values.
#[derive(Clone, Debug)]
enum OffHeapSlot<V> {
    Free,
    Value(V),
    Keyed(Box<Keyed<V>>),
}

/// A value with its long key. The position is stored, so that moving the item does not hash the long key again.
#[derive(Clone, Debug)]
struct Keyed<V> {
    /// Shared by count, so that a copy of the segment, and a reader that holds nothing, need no copy of the key.
    key: Blob,
    position: u64,
    value: V,
}

impl<V> OffHeapSlot<V> {
    fn key(&self) -> &[u8] {
        match self {
            OffHeapSlot::Keyed(keyed) => &keyed.key,
            _ => &[],
        }
    }
    fn position(&self) -> u64 {
        match self {
            OffHeapSlot::Keyed(keyed) => keyed.position,
            _ => unreachable!("asked of long keys only"),
        }
    }
    fn value(&self) -> &V {
        match self {
            OffHeapSlot::Value(value) => value,
            OffHeapSlot::Keyed(keyed) => &keyed.value,
            OffHeapSlot::Free => unreachable!("an entry's number is in use"),
        }
    }
    fn into_value(self) -> Option<V> {
        match self {
            OffHeapSlot::Free => None,
            OffHeapSlot::Value(value) => Some(value),
            OffHeapSlot::Keyed(keyed) => Some(keyed.value),
        }
    }
    fn value_mut(&mut self) -> &mut V {
        match self {
            OffHeapSlot::Value(value) => value,
            OffHeapSlot::Keyed(keyed) => &mut keyed.value,
            OffHeapSlot::Free => unreachable!("an entry's number is in use"),
        }
    }
    fn heap_bytes(&self) -> usize
    where
        V: OffHeap,
    {
        match self {
            OffHeapSlot::Free => 0,
            OffHeapSlot::Value(value) => value.heap_bytes(),
            OffHeapSlot::Keyed(keyed) => {
                size_of::<Keyed<V>>() + HEADER_BYTES + keyed.key.len() + keyed.value.heap_bytes()
            }
        }
    }
}

/// One part of a table, in three or four allocations.
#[derive(Clone, Debug)]
pub(crate) struct Segment<V> {
    pub(super) table: HashTable<Handle>,
    heap: Vec<u8>,
    outside: Vec<OffHeapSlot<V>>,
    /// Free places in `outside`.
    free: Vec<u32>,
    /// Bytes of entries that are garbage.
    garbage: usize,
    /// Heap bytes of the outside values.
    outside_bytes: usize,
    /// Bytes of all allocations, outside values included.
    bytes: usize,
    /// First position of the segment.
    pub(super) start: u64,
    /// No item here expires before this. A write lowers it at once; a walk over the segment raises it.
    pub(super) expiry_ms: i64,
    /// Number of bits after the base bits that all positions share.
    pub(super) depth: u8,
}

impl<V: OffHeap> Segment<V> {
    pub(super) fn new(start: u64, depth: u8) -> Segment<V> {
        let mut segment = Segment {
            table: HashTable::new(),
            heap: Vec::new(),
            outside: Vec::new(),
            free: Vec::new(),
            garbage: 0,
            outside_bytes: 0,
            bytes: 0,
            start,
            expiry_ms: i64::MAX,
            depth,
        };
        segment.recount();
        segment
    }
    /// An empty segment, with room for `items` items and `bytes` bytes of entries.
    pub(super) fn with_room(start: u64, depth: u8, items: usize, bytes: usize) -> Segment<V> {
        let mut segment = Segment::new(start, depth);
        segment.table = HashTable::with_capacity(items);
        segment.heap = Vec::with_capacity(class_bytes(bytes));
        segment.recount();
        segment
    }
    /// Heap bytes, outside values included.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    /// A copy with equal spare room.
    pub(super) fn copied(&self) -> Segment<V> {
        let mut heap = Vec::with_capacity(self.heap.capacity());
        heap.extend_from_slice(&self.heap);
        let (table, outside, free) = (self.table.clone(), self.outside.clone(), self.free.clone());
        let mut copy = Segment { table, heap, outside, free, ..*self };
        copy.recount();
        copy
    }
    /// Bytes of live entries.
    pub(super) fn live_bytes(&self) -> usize {
        self.heap.len() - self.garbage
    }
    /// The heap from `start` on, for a prefetch.
    #[inline]
    pub(super) fn heap_from(&self, start: usize) -> &[u8] {
        &self.heap[start..]
    }
    /// The bucket of `key` and the start of its entry, if the key is here.
    #[inline]
    pub(super) fn find(&self, position: u64, key: &[u8]) -> Option<(usize, usize)> {
        let bucket =
            self.table.find_bucket_index(spread(position), |handle| self.key_is(handle.start(), key))?;
        Some((bucket, self.table.get_bucket(bucket)?.start()))
    }
    /// The item whose entry starts at `start`.
    #[inline]
    pub(super) fn item(&self, start: usize) -> Item<'_, V> {
        Item { segment: self, place: EntryLayout::of(&self.heap, start) }
    }
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_, V>> {
        self.places().map(|place| Item { segment: self, place })
    }
    /// Start of each entry, in the order of the table. Does not read the heap.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.table.iter().map(|handle| handle.start())
    }
    /// All live entries in the order of the heap, so the processor prefetches the next cache line. In the order of
    /// the table each entry would be a cache miss.
    fn places(&self) -> impl Iterator<Item = EntryLayout> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.heap.len() {
                let place = EntryLayout::of(&self.heap, at);
                at = place.range().end;
                if !place.is_dead() {
                    return Some(place);
                }
            }
            None
        })
    }
    /// Adds an item with a new key. `position_of` computes a key's position.
    pub(super) fn insert(&mut self, new: New<'_, V>, position: u64, position_of: impl Fn(&[u8]) -> u64) {
        let long = new.key.len() > self.inline_bytes_max();
        let body = self.settle(long.then_some((new.key, position)), new.payload);
        let written = Written { key: new.key, used: new.used, expiry_ms: new.expiry_ms, body };
        self.reserve(written.room());
        let handle = Handle::new(self.heap.len());
        written.push(&mut self.heap);
        self.add(handle, position, position_of);
    }
    /// Replaces the item in `bucket`, which has the key of `new`. Returns the former outside value.
    pub(super) fn replace(&mut self, bucket: usize, new: New<'_, V>) -> Option<V> {
        let place = EntryLayout::of(&self.heap, self.start_of(bucket));
        let (body, former) = match (place.body(&self.heap), new.payload) {
            (Body::OffHeap(number, with_key), payload)
                if with_key || matches!(payload, Payload::OffHeap(_)) =>
            {
                let value = outlying(payload);
                let former = self.change_place(number, |place| std::mem::replace(place, value));
                (Body::OffHeap(number, with_key), Some(former))
            }
            (Body::OffHeap(number, _), payload) => {
                let former = self.vacate(number).into_value();
                (self.settle(None, payload), former)
            }
            (_, payload) => (self.settle(None, payload), None),
        };
        let written = Written { key: new.key, used: new.used, expiry_ms: new.expiry_ms, body };
        self.rewrite(bucket, &place, &written);
        self.close_gaps();
        former
    }
    /// Removes the item in `bucket`. Returns its outside value.
    pub(super) fn remove(&mut self, bucket: usize) -> Option<V> {
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { panic!("no item is in bucket {bucket}") };
        let (handle, _) = entry.remove();
        let value = self.discard(handle).into_value();
        self.tidy();
        value
    }
    /// Removes every item for which `is` returns true. `gone` gets the key, its position and the outside value of
    /// each.
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
                OffHeapSlot::Keyed(keyed) => gone(&keyed.key, keyed.position, Some(keyed.value)),
                other => {
                    // A discarded entry stays in the heap until `tidy` below.
                    let key = &self.heap[EntryLayout::of(&self.heap, handle.start()).key()];
                    gone(key, position_of(key), other.into_value());
                }
            }
        }
        self.tidy();
    }
    /// Lets `change` write to the outside value of the item in `bucket`, if it has one.
    pub(super) fn change_outside<R>(&mut self, bucket: usize, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        match EntryLayout::of(&self.heap, self.start_of(bucket)).body(&self.heap) {
            Body::OffHeap(number, _) => Some(self.change_place(number, change)),
            _ => None,
        }
    }
    /// Sets the usage of the item at `start`.
    #[inline]
    pub(super) fn set_used(&mut self, start: usize, used: u32) {
        EntryLayout::of(&self.heap, start).set_used(&mut self.heap, used);
    }
    /// Sets the expiry of the item in `bucket`, which has this key.
    pub(super) fn set_expiry(&mut self, bucket: usize, key: &[u8], expiry_ms: i64) {
        let place = EntryLayout::of(&self.heap, self.start_of(bucket));
        let used = place.counts_use().then(|| place.used(&self.heap));
        let mut copy = [0; INLINE_BYTES_MAX];
        let body = match place.body(&self.heap) {
            Body::Int(n) => Body::Int(n),
            Body::OffHeap(number, with_key) => Body::OffHeap(number, with_key),
            Body::Bytes(bytes, edited) => {
                copy[..bytes.len()].copy_from_slice(bytes);
                Body::Bytes(&copy[..bytes.len()], edited)
            }
        };
        self.rewrite(bucket, &place, &Written { key, used, expiry_ms, body });
    }
    /// Makes room for `bytes` bytes of entries.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.heap.capacity() - self.heap.len() < bytes {
            self.make_room(bytes);
        }
    }
    /// True when a smaller heap would hold all entries.
    pub(super) fn is_roomy(&self) -> bool {
        class_bytes(self.live_bytes()) < self.heap.capacity()
    }
    /// Moves the entries to the smallest heap that holds them.
    pub(super) fn trim(&mut self) {
        self.compact(0);
    }
    /// Makes the table as small as `items` items allow.
    pub(super) fn shrink(&mut self, items: usize, position_of: impl Fn(&[u8]) -> u64) {
        self.with_table(|table, hash_of| table.shrink_to(items, hash_of), position_of);
        self.compact(0);
        self.recount();
    }
    /// Moves the items to a fresh table for `items` items, because marks of removed items take up room.
    pub(super) fn rebuild(&mut self, items: usize, position_of: impl Fn(&[u8]) -> u64) {
        let mut table = HashTable::with_capacity(items);
        for item in self.items() {
            let hash = spread(item.position(&position_of));
            table.insert_unique(hash, Handle::new(item.start()), |_| unreachable!("there is room"));
        }
        self.table = table;
        self.recount();
    }
    /// Takes over the item of `other` that starts at `start`.
    pub(super) fn adopt(
        &mut self,
        other: &mut Segment<V>,
        start: usize,
        position: u64,
        position_of: impl Fn(&[u8]) -> u64,
    ) {
        let place = EntryLayout::of(&other.heap, start);
        let entry = &other.heap[place.range()];
        self.reserve(entry.len());
        let handle = Handle::new(self.heap.len());
        self.heap.extend_from_slice(entry);
        self.expiry_ms = self.expiry_ms.min(place.expiry_ms(&other.heap));
        if let Body::OffHeap(number, _) = place.body(&other.heap) {
            let value = std::mem::replace(&mut other.outside[number as usize], OffHeapSlot::Free);
            let number = self.place_outside(value);
            EntryLayout::of(&self.heap, handle.start()).set_number(&mut self.heap, number);
        }
        self.add(handle, position, position_of);
    }

    #[inline]
    fn key_is(&self, start: usize, key: &[u8]) -> bool {
        entry::key_is(&self.heap, start, key).unwrap_or_else(|| self.item(start).key() == key)
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
            self.with_table(|table, hash_of| table.reserve(1, hash_of), position_of);
            self.recount();
        }
        self.table.insert_unique(spread(position), handle, |_| unreachable!("there is room"));
    }
    /// Lets `change` write to the table, and passes it the hash of each handle.
    fn with_table(
        &mut self,
        change: impl FnOnce(&mut HashTable<Handle>, &dyn Fn(&Handle) -> u64),
        position_of: impl Fn(&[u8]) -> u64,
    ) {
        let mut table = std::mem::take(&mut self.table);
        change(&mut table, &|handle| spread(self.item(handle.start()).position(&position_of)));
        self.table = table;
    }
    /// Writes the item in `bucket`, whose entry is `place`: in place if it fits, else at the end of the heap.
    #[inline]
    fn rewrite(&mut self, bucket: usize, place: &EntryLayout, written: &Written<'_>) {
        if place.overwrite(&mut self.heap, written) {
            return;
        }
        self.reserve(written.room());
        // Making room may have moved the entry.
        let former = EntryLayout::of(&self.heap, self.start_of(bucket));
        self.bury(&former);
        let handle = Handle::new(self.heap.len());
        written.push(&mut self.heap);
        *self.table.get_bucket_mut(bucket).expect("the bucket of an item") = handle;
    }
    /// Longest key, and longest value, that the heap still takes.
    #[inline]
    fn inline_bytes_max(&self) -> usize {
        if self.heap.len() < CROWDED_BYTES_MIN { INLINE_BYTES_MAX } else { CROWDED_INLINE_BYTES_MAX }
    }
    /// Puts a value into the entry or among the outside values. `long_key`: the key and its position, when the key
    /// must lie outside too.
    #[inline]
    fn settle<'a>(&mut self, long_key: Option<(&[u8], u64)>, payload: Payload<'a, V>) -> Body<'a> {
        match payload {
            Payload::Int(n) if long_key.is_none() => Body::Int(n),
            Payload::Bytes(bytes, edited) if long_key.is_none() && bytes.len() <= self.inline_bytes_max() => {
                Body::Bytes(bytes, edited)
            }
            payload => {
                let value = outlying(payload);
                let place = match long_key {
                    None => OffHeapSlot::Value(value),
                    Some((key, position)) => {
                        OffHeapSlot::Keyed(Box::new(Keyed { key: key.into(), position, value }))
                    }
                };
                Body::OffHeap(self.place_outside(place), long_key.is_some())
            }
        }
    }
    fn place_outside(&mut self, place: OffHeapSlot<V>) -> u32 {
        let bytes = place.heap_bytes();
        self.outside_bytes += bytes;
        self.bytes += bytes;
        match self.free.pop() {
            Some(number) => {
                self.outside[number as usize] = place;
                number
            }
            None => {
                if self.outside.len() == self.outside.capacity() {
                    self.outside.reserve_exact(1 + self.outside.len() / 4);
                    self.recount();
                }
                self.outside.push(place);
                self.outside.len() as u32 - 1
            }
        }
    }
    /// Lets `change` write to an outside value, and updates the count of bytes.
    fn change_place<R>(&mut self, number: u32, change: impl FnOnce(&mut V) -> R) -> R {
        let value = self.outside[number as usize].value_mut();
        let before = value.heap_bytes();
        let result = change(value);
        let after = value.heap_bytes();
        self.outside_bytes = self.outside_bytes + after - before;
        self.bytes = self.bytes + after - before;
        result
    }
    /// Turns an entry into garbage.
    #[inline]
    fn bury(&mut self, place: &EntryLayout) {
        place.bury(&mut self.heap);
        self.garbage += place.range().len();
    }
    /// Turns the entry of a handle into garbage, after the handle left the table. Returns the outside value.
    fn discard(&mut self, handle: Handle) -> OffHeapSlot<V> {
        let place = EntryLayout::of(&self.heap, handle.start());
        self.bury(&place);
        match place.body(&self.heap) {
            Body::OffHeap(number, _) => self.vacate(number),
            _ => OffHeapSlot::Free,
        }
    }
    /// Frees a place among the outside values, and returns its content.
    fn vacate(&mut self, number: u32) -> OffHeapSlot<V> {
        let place = std::mem::replace(&mut self.outside[number as usize], OffHeapSlot::Free);
        let bytes = place.heap_bytes();
        self.outside_bytes -= bytes;
        self.bytes -= bytes;
        let full = self.free.len() == self.free.capacity();
        self.free.push(number);
        if full {
            self.recount();
        }
        place
    }
    /// Releases memory that is mostly garbage, after removals.
    fn tidy(&mut self) {
        if self.table.is_empty() {
            (self.heap, self.outside, self.free, self.garbage) = (Vec::new(), Vec::new(), Vec::new(), 0);
            self.recount();
        } else if self.garbage > self.heap.len() / 2 && self.heap.len() > MOSTLY_GARBAGE_BYTES_MIN {
            self.compact(0);
        }
        self.close_gaps();
    }
    /// Renumbers the outside values when most of their places are free. All entries must be in the table, and no
    /// caller may hold a number.
    #[inline]
    fn close_gaps(&mut self) {
        if self.free.len() > GAPS_MIN && self.free.len() > self.outside.len() / 2 {
            self.renumber();
        }
    }
    #[cold]
    fn make_room(&mut self, bytes: usize) {
        if self.garbage * GARBAGE_PART > self.heap.len() {
            self.compact(bytes);
        } else {
            let len = self.heap.len();
            let capacity = class_bytes(len + bytes);
            self.heap.reserve_exact(capacity - len);
            self.recount();
        }
    }
    /// Copies the live entries to a fresh heap with room for `bytes` more.
    fn compact(&mut self, bytes: usize) {
        let mut heap = Vec::with_capacity(class_bytes(self.live_bytes() + bytes));
        for handle in &mut self.table {
            let range = EntryLayout::of(&self.heap, handle.start()).range();
            *handle = Handle::new(heap.len());
            heap.extend_from_slice(&self.heap[range]);
        }
        (self.heap, self.garbage) = (heap, 0);
        self.recount();
    }
    fn renumber(&mut self) {
        let mut kept = Vec::with_capacity(self.outside.len() - self.free.len());
        for handle in &self.table {
            let place = EntryLayout::of(&self.heap, handle.start());
            if let Body::OffHeap(number, _) = place.body(&self.heap) {
                place.set_number(&mut self.heap, kept.len() as u32);
                kept.push(std::mem::replace(&mut self.outside[number as usize], OffHeapSlot::Free));
            }
        }
        (self.outside, self.free) = (kept, Vec::new());
        self.recount();
    }
    fn recount(&mut self) {
        // One word for the reference count.
        self.bytes = size_of::<Segment<V>>()
            + size_of::<usize>()
            + self.table.allocation_size()
            + self.heap.capacity()
            + self.outside.capacity() * size_of::<OffHeapSlot<V>>()
            + self.free.capacity() * size_of::<u32>()
            + self.outside_bytes;
    }
    #[cfg(test)]
    pub(super) fn check(&self) {
        let live: usize = self.starts().map(|start| self.item(start).inline_bytes()).sum();
        assert_eq!(live, self.live_bytes());
        let mut starts: Vec<usize> = self.starts().collect();
        starts.sort_unstable();
        assert!(self.places().map(|place| place.range().start).eq(starts));
        let outside = self.items().filter(Item::is_outside).count();
        assert_eq!(outside + self.free.len(), self.outside.len());
        assert_eq!(self.outside_bytes, self.outside.iter().map(OffHeapSlot::heap_bytes).sum::<usize>());
        let mut recounted = self.clone();
        recounted.heap.reserve_exact(self.heap.capacity() - self.heap.len());
        recounted.outside.reserve_exact(self.outside.capacity() - self.outside.len());
        recounted.free.reserve_exact(self.free.capacity() - self.free.len());
        recounted.recount();
        assert_eq!(recounted.bytes, self.bytes);
    }
}

/// The outside form of a value.
fn outlying<V: OffHeap>(payload: Payload<'_, V>) -> V {
    match payload {
        Payload::Int(n) => V::from_int(n),
        Payload::Bytes(bytes, edited) => V::from_bytes(bytes, edited),
        Payload::OffHeap(value) => value,
    }
}

/// `bytes` rounded up to a size class of the allocator: multiples of 16 up to 128, then four classes for each
/// doubling.
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
