//! [`Item`]: a key with its value, expiry and usage in a table. [`Entries`]: the memory of a segment's items.
//! [`Payload`] is a value that is being stored, and [`Content`] a stored value.
//!
//! An *item* is stored as an *entry*, the bytes in the segment's heap (`entry`), plus a value outside the heap if the
//! value or the key is long. In the keyspace's tables, an item is a *record* ([`crate::RecordRef`]).

use super::entry::{EntryLayout, EntryMetadata, InlineValue};
use crate::types::Bytes;
use strand_chain::{Blob, HEADER_BYTES, prefetch};

/// A value that a table can hold outside its heaps.
pub(crate) trait OutsideValue: Clone {
    /// Heap bytes of the value. The call takes the same time for every size of value.
    fn heap_bytes(&self) -> usize;
    /// Expiry of the whole item. `expiry_ms` is the expiry in the item's entry, which may be the earlier expiry of
    /// a part of the value.
    fn key_expiry_ms(&self, expiry_ms: i64) -> i64 {
        expiry_ms
    }
    /// The value of an integer whose key is too long for the heap.
    fn from_int(n: i64) -> Self;
    /// The value of bytes that are too long for the heap, or whose key is. `edited`: a command edited them in
    /// place.
    fn from_bytes(bytes: &[u8], edited: bool) -> Self;
}

/// A value that is being stored in a table.
#[derive(Debug)]
pub(crate) enum Payload<'a, V> {
    /// The value is an integer.
    Int(i64),
    /// Bytes, and whether a command edited them in place.
    Bytes(&'a [u8], bool),
    /// The value is of any other kind.
    Outside(V),
}

/// A value in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a, V> {
    /// The value is an integer.
    Int(i64),
    /// Bytes, and whether a command edited them in place.
    Bytes(&'a [u8], bool),
    /// The value is of any other kind.
    Outside(&'a V),
}

/// An item that is being stored in a table.
#[derive(Debug)]
pub(crate) struct NewItem<'a, V> {
    pub(crate) key: &'a [u8],
    /// 24 bits of usage, for tables that track it.
    pub(crate) usage: Option<u32>,
    /// Expiry in unix milliseconds; `i64::MAX` for never.
    pub(crate) expiry_ms: i64,
    pub(crate) payload: Payload<'a, V>,
}

/// Items stored together: a heap of entries ([`super::entry`]), and a list of the values outside the heap.
#[derive(Clone, Debug)]
pub(crate) struct Entries<V> {
    pub(super) heap: Vec<u8>,
    pub(super) outside: Vec<OutsideSlot<V>>,
}

impl<V> Default for Entries<V> {
    fn default() -> Entries<V> {
        Entries { heap: Vec::new(), outside: Vec::new() }
    }
}

impl<V: OutsideValue> Entries<V> {
    /// No items, with room for `bytes` bytes of entries.
    pub(crate) fn with_room(bytes: usize) -> Entries<V> {
        Entries { heap: Vec::with_capacity(bytes), outside: Vec::new() }
    }
    /// Adds a copy of an item, which shares the outside value. Returns the number of bytes that the copy uses, shared
    /// bytes included.
    pub(crate) fn push(&mut self, item: &Item<'_, V>) -> usize {
        let start = self.heap.len();
        let entry = &item.entries.heap[item.layout.range()];
        self.heap.extend_from_slice(entry);
        let InlineValue::Outside(index, _) = item.layout.value(&item.entries.heap) else {
            return entry.len();
        };
        let value = item.entries.outside[index as usize].clone();
        let bytes = entry.len() + size_of::<OutsideSlot<V>>() + value.heap_bytes();
        EntryLayout::of(&self.heap, start).set_outside_index(&mut self.heap, self.outside.len() as u32);
        self.outside.push(value);
        bytes
    }
    /// Removes all items, and keeps only the room for entries in the heap.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.outside = Vec::new();
    }
    /// Number of bytes of entries for which memory is allocated.
    pub(crate) fn room(&self) -> usize {
        self.heap.capacity()
    }
    /// Number of bytes that the entries take in the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.len()
    }
}

impl<V> Entries<V> {
    /// All live items in the order of the heap, so that the processor prefetches the next cache line. In the order
    /// of the table, each item would be a cache miss.
    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'_, V>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.heap.len() {
                let layout = EntryLayout::of(&self.heap, at);
                at = layout.range().end;
                if !layout.metadata.is_garbage() {
                    return Some(Item { entries: self, layout });
                }
            }
            None
        })
    }
    /// The item whose entry starts at `start`.
    #[inline]
    pub(super) fn item(&self, start: usize) -> Item<'_, V> {
        Item { entries: self, layout: EntryLayout::of(&self.heap, start) }
    }
}

/// An item in a table.
pub(crate) struct Item<'a, V> {
    pub(super) entries: &'a Entries<V>,
    pub(super) layout: EntryLayout,
}

/// The metadata of an item: its usage and its expiry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemMetadata<'a> {
    heap: &'a [u8],
    metadata: EntryMetadata,
}

impl<'a> ItemMetadata<'a> {
    #[inline(always)]
    pub(super) fn of(heap: &'a [u8], start: usize) -> ItemMetadata<'a> {
        ItemMetadata { heap, metadata: EntryMetadata::of(heap, start) }
    }
    /// Does what [`Item::usage`] does.
    #[inline(always)]
    pub(crate) fn usage(self) -> u32 {
        self.metadata.usage(self.heap)
    }
    /// Does what [`Item::expiry_ms`] does.
    #[inline(always)]
    pub(crate) fn expiry_ms(self) -> i64 {
        self.metadata.expiry_ms(self.heap)
    }
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
        match self.layout.value(&self.entries.heap) {
            InlineValue::Outside(index, true) => self.entries.outside[index as usize].key(),
            _ => &self.entries.heap[self.layout.key()],
        }
    }
    #[inline]
    pub(crate) fn content(&self) -> Content<'a, V> {
        match self.layout.value(&self.entries.heap) {
            InlineValue::Int(n) => Content::Int(n),
            InlineValue::Bytes(bytes, edited) => Content::Bytes(bytes, edited),
            InlineValue::Outside(index, _) => Content::Outside(self.entries.outside[index as usize].value()),
        }
    }
    /// The key: as a slice, or as a blob that the caller may share if the key is long.
    pub(crate) fn key_bytes(&self) -> Bytes<'a> {
        match self.layout.value(&self.entries.heap) {
            InlineValue::Outside(index, true) => match &self.entries.outside[index as usize] {
                OutsideSlot::Keyed(keyed) => Bytes::Shared(&keyed.key),
                _ => Bytes::Slice(&[]),
            },
            _ => Bytes::Slice(&self.entries.heap[self.layout.key()]),
        }
    }
    /// Expiry (unix milliseconds); `i64::MAX` for never.
    #[inline]
    pub(crate) fn expiry_ms(&self) -> i64 {
        self.layout.metadata.expiry_ms(&self.entries.heap)
    }
    /// The usage of the item, in 24 bits.
    #[inline]
    pub(crate) fn usage(&self) -> u32 {
        self.layout.metadata.usage(&self.entries.heap)
    }
    /// Start of the item's entry in the heap.
    pub(super) fn start(&self) -> usize {
        self.layout.range().start
    }
    /// Bytes of the item's entry in the heap.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.layout.range().len()
    }
    /// The position of the key. It is stored for a long key, and computed by `position_of` for a short one.
    #[inline]
    pub(crate) fn position(&self, position_of: impl Fn(&[u8]) -> u64) -> u64 {
        match self.layout.value(&self.entries.heap) {
            InlineValue::Outside(index, true) => self.entries.outside[index as usize].position(),
            _ => position_of(&self.entries.heap[self.layout.key()]),
        }
    }
    /// Prefetches the value if it lies outside the heap. Returns true when it does.
    #[inline]
    pub(crate) fn prefetch_outside(&self) -> bool {
        let InlineValue::Outside(index, _) = self.layout.value(&self.entries.heap) else { return false };
        if let Some(place) = self.entries.outside.get(index as usize) {
            prefetch(place, size_of::<OutsideSlot<V>>());
        }
        true
    }
    /// Bytes of the key if it lies outside; otherwise 0.
    pub(crate) fn outside_key_bytes(&self) -> usize {
        match self.layout.value(&self.entries.heap) {
            InlineValue::Outside(_, true) => self.key().len(),
            _ => 0,
        }
    }
    /// True when [`Item::content`] is [`Content::Outside`].
    #[cfg(test)]
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self.layout.value(&self.entries.heap), InlineValue::Outside(..))
    }
}

/// One element of the list of outside values.
#[derive(Clone, Debug)]
pub(super) enum OutsideSlot<V> {
    Free,
    Value(V),
    Keyed(Box<Keyed<V>>),
}

/// A value with its long key. The key's position (its hash) is stored too, because moving the item to another segment
/// must not hash the long key again.
#[derive(Clone, Debug)]
pub(super) struct Keyed<V> {
    /// A blob, which a copy of the segment and a reader without a lock share instead of copying the key.
    pub(super) key: Blob,
    pub(super) position: u64,
    pub(super) value: V,
}

impl<V> OutsideSlot<V> {
    pub(super) fn key(&self) -> &[u8] {
        match self {
            OutsideSlot::Keyed(keyed) => &keyed.key,
            _ => &[],
        }
    }
    pub(super) fn position(&self) -> u64 {
        match self {
            OutsideSlot::Keyed(keyed) => keyed.position,
            _ => unreachable!("only a long key has a stored position"),
        }
    }
    pub(super) fn value(&self) -> &V {
        match self {
            OutsideSlot::Value(value) => value,
            OutsideSlot::Keyed(keyed) => &keyed.value,
            OutsideSlot::Free => unreachable!("an entry's index is in use"),
        }
    }
    pub(super) fn into_value(self) -> Option<V> {
        match self {
            OutsideSlot::Free => None,
            OutsideSlot::Value(value) => Some(value),
            OutsideSlot::Keyed(keyed) => Some(keyed.value),
        }
    }
    pub(super) fn value_mut(&mut self) -> &mut V {
        match self {
            OutsideSlot::Value(value) => value,
            OutsideSlot::Keyed(keyed) => &mut keyed.value,
            OutsideSlot::Free => unreachable!("an entry's index is in use"),
        }
    }
    pub(super) fn heap_bytes(&self) -> usize
    where
        V: OutsideValue,
    {
        match self {
            OutsideSlot::Free => 0,
            OutsideSlot::Value(value) => value.heap_bytes(),
            OutsideSlot::Keyed(keyed) => {
                size_of::<Keyed<V>>() + HEADER_BYTES + keyed.key.len() + keyed.value.heap_bytes()
            }
        }
    }
}
