//! [`ExtendibleTable`]: an extendible hash table. A directory points to small tables ([`Segment`]). A full segment
//! is split in two.
//!
//! A key's *position* is the top [`POSITION_BITS`] of its hash. The first `base_bits` of the position are equal for
//! all items of one table, because they choose the shard. The next bits choose the segment, so the segments lie in
//! the order of hashes, and a position stays valid as a cursor when segments are split or merged. Growth moves at
//! most the items of one segment. Shrinking merges two small neighbours (buddies) into one segment, and moves at
//! most their items.
//!
//! A clone shares the segments of its table, by reference counts. A shared segment is copied before it is written.
//! Therefore a clone of a table with millions of items costs one pointer per few hundred items, and shows the items
//! as of its moment.
//!
//! This module: find, insert, replace, remove. `entry`: the layout of an item in memory. `item`: an item.
//! `segment`: one segment. `expiring`: its few items with an expiry. `reshape`: split and merge. `walk`: scans, expiry, random items.

mod entry;
mod expiring;
mod item;
mod reshape;
mod segment;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use entry::INLINE_BYTES_MAX;
pub(crate) use expiring::LISTED_MAX;
pub(crate) use item::{Content, Entries, Item, ItemMetadata, NewItem, OutsideValue, Payload};
pub(crate) use segment::{Segment, class_bytes};

use smallvec::SmallVec;
use strand_chain::{CACHE_LINE_BYTES, prefetch};
use triomphe::Arc;

/// Number of bits of a hash that make a position. 1 G keys in 1,024 shards use 22 of them to choose the shard and
/// the segment. The 18 others are enough for the bucket and the tag in a segment's table.
pub(crate) const POSITION_BITS: u32 = 40;
/// Buckets of a full-grown segment. Its table takes 4.1 kB with handles of 3 bytes, and its heap about 60 kB with
/// items of 80 bytes. A split moves 896 items in about 25 us. With half as many buckets, each of these items would
/// cost 4 bytes more, for the unfilled page at the end of a heap.
pub(crate) const SEGMENT_BUCKETS: usize = 1024;
/// Maximum number of items in these buckets (7 of 8).
pub(crate) const SEGMENT_ITEMS_MAX: usize = SEGMENT_BUCKETS / 8 * 7;
/// When removed items fill a segment's table, a segment with at least this many items is split. A segment
/// with fewer items is rebuilt.
const SPLIT_ITEMS_MIN: usize = SEGMENT_ITEMS_MAX / 4 * 3;
/// Two buddies are merged when they have at most this many items together.
const MERGE_ITEMS_MAX: usize = SEGMENT_ITEMS_MAX / 2;
/// The directory has at most this many entries per segment, or one entry per item if that is more. Keyed hashes
/// stay far below this limit. If many positions do collide, a segment grows past its size instead of the
/// directory.
const DIRECTORY_PER_SEGMENT_MAX: usize = 16;

/// A table of at most this many items is prefetched whole, because each of them may be wanted next.
const PREFETCH_ITEMS_MAX: usize = 8;
/// Bytes that are prefetched for an entry that is probably new.
const NEW_ENTRY_BYTES: usize = 2 * CACHE_LINE_BYTES;

/// The position of a 64-bit hash.
#[inline]
pub(crate) fn position_of(hash: u64) -> u64 {
    hash >> (64 - POSITION_BITS)
}

/// Maps keys to positions: the top [`POSITION_BITS`] of the key's hash. The position of a key never changes.
pub(crate) trait Positions: Clone {
    fn position(&self, key: &[u8]) -> u64;
}

/// The place of an item. Valid until the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    segment: u32,
    bucket: u32,
    /// Start of the item's entry in the segment's heap.
    start: u32,
}

/// An extendible hash table. The module explains it.
#[derive(Clone, Debug)]
pub(crate) struct ExtendibleTable<V, P> {
    positions: P,
    /// Index of a segment for each value of the `depth` bits that follow the base bits. Empty while there is one
    /// segment.
    directory: Vec<u32>,
    segments: SmallVec<[Arc<Segment<V>>; 1]>,
    len: usize,
    /// Heap bytes of all segments, items included.
    segments_bytes: usize,
    /// No item of the table expires before this time.
    expiry_ms: i64,
    /// `POSITION_BITS - base_bits - depth`: a position shifted right by this number is an index into the directory.
    shift: u8,
    base_bits: u8,
    /// Binary logarithm of the directory's length.
    depth: u8,
    /// Number of segments of each depth, from 0 to the depth of the directory. When no segment has the directory's
    /// depth, the directory is halved.
    depths: Vec<u32>,
    /// Maximum number of items that one operation has moved so far.
    moved_max: u32,
}

/// Sizes of a table, for tests and for administrators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Number of items in the table.
    pub items: usize,
    /// Number of segments of the table.
    pub segments: usize,
    /// Number of entries in the table's directory.
    pub directory: usize,
    /// Number of items in the fullest segment.
    pub segment_items_max: usize,
    /// Maximum number of items that one operation has moved so far.
    pub moved_max: usize,
    /// Bytes of keys and values in the segments, and of their metadata.
    pub entries_bytes: usize,
    /// Number of heap bytes of the whole table.
    pub heap_bytes: usize,
}

impl Shape {
    /// The sizes of two tables together.
    pub fn and(self, other: Shape) -> Shape {
        Shape {
            items: self.items + other.items,
            segments: self.segments + other.segments,
            directory: self.directory + other.directory,
            segment_items_max: self.segment_items_max.max(other.segment_items_max),
            moved_max: self.moved_max.max(other.moved_max),
            entries_bytes: self.entries_bytes + other.entries_bytes,
            heap_bytes: self.heap_bytes + other.heap_bytes,
        }
    }
}

/// A table with fewer bytes than this stays in the processor's cache while it is in use, so it needs no prefetch.
const NEAR_BYTES: usize = 128 << 10;
/// Number of items that one call prefetches without an allocation.
const PREFETCHED_TOGETHER: usize = 16;

/// The hash of a position for a segment's table, which takes the bucket from its low bits and a 7-bit tag from its
/// top bits. All positions of a segment have equal top bits, so the tag is made of the position's bits just above
/// those of the bucket.
#[inline]
fn spread(position: u64) -> u64 {
    position << (64 - 7 - SEGMENT_BUCKETS.trailing_zeros()) | position
}

impl<V: OutsideValue, P: Positions> ExtendibleTable<V, P> {
    /// An empty table, without an allocation. All positions in the table will share their first `base_bits` bits.
    pub(crate) fn new(base_bits: u8, positions: P) -> ExtendibleTable<V, P> {
        ExtendibleTable {
            positions,
            directory: Vec::new(),
            segments: SmallVec::new(),
            len: 0,
            segments_bytes: 0,
            expiry_ms: i64::MAX,
            shift: POSITION_BITS as u8 - base_bits,
            base_bits,
            depth: 0,
            depths: Vec::new(),
            moved_max: 0,
        }
    }
    /// Number of items in the table.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// All heap bytes, including values. Kept up to date, so this walks over nothing.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        let pointers = if self.segments.spilled() { self.segments.capacity() } else { 0 };
        let words = self.directory.capacity() + self.depths.capacity();
        self.segments_bytes + pointers * size_of::<usize>() + words * size_of::<u32>()
    }
    /// The sizes of the table. Walks over the segments.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            items: self.len,
            segments: self.segments.len(),
            directory: self.directory.len(),
            segment_items_max: self.segments.iter().map(|s| s.table.len()).max().unwrap_or(0),
            moved_max: self.moved_max as usize,
            entries_bytes: self.segments.iter().map(|s| s.live_bytes()).sum(),
            heap_bytes: self.heap_bytes(),
        }
    }
    /// Number of allocations, except those of outside values.
    pub(crate) fn parts(&self) -> usize {
        2 + 4 * self.segments.len()
    }
    /// True when both tables share all segments: one is a clone of the other, and neither was changed since.
    pub(crate) fn shares_all_with(&self, other: &ExtendibleTable<V, P>) -> bool {
        self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(|(a, b)| Arc::ptr_eq(a, b))
    }
    /// Splits the memory of the table into pieces of `segments` segments, to be freed one after the other.
    pub(crate) fn into_pieces(mut self, segments: usize) -> impl Iterator<Item = Vec<Arc<Segment<V>>>> {
        std::iter::from_fn(move || {
            let rest = self.segments.len().saturating_sub(segments);
            let piece: Vec<_> = self.segments.drain(rest..).collect();
            (!piece.is_empty()).then_some(piece)
        })
    }
    /// The position of a key.
    #[inline]
    pub(crate) fn position(&self, key: &[u8]) -> u64 {
        self.positions.position(key)
    }
    /// Finds the item with this key. `position` is the key's position.
    #[inline]
    pub(crate) fn locate(&self, position: u64, key: &[u8]) -> Option<Location> {
        let segment = self.segment_of(position)?;
        let (bucket, start) = self.segments[segment].find(position, key)?;
        Some(Location { segment: segment as u32, bucket: bucket as u32, start: start as u32 })
    }
    /// Prefetches `bytes` bytes of the entry that is probably at `position`. Only its tag is compared; the entry
    /// itself is not read.
    #[inline]
    pub(crate) fn prefetch(&self, position: u64, bytes: usize) {
        if let Some(segment) = self.segment_of(position) {
            let segment = &self.segments[segment];
            let bucket = segment.table.find_bucket_index(spread(position), |_| true);
            if let Some(handle) = bucket.and_then(|bucket| segment.table.get_bucket(bucket)) {
                prefetch(segment.heap_from(handle.start()), bytes);
            }
        }
    }
    /// Prefetches the place at which an entry with this position would be added, or the entry that is probably there.
    pub(crate) fn prefetch_new(&self, position: u64) {
        if let Some(segment) = self.segment_of(position) {
            let segment = &self.segments[segment];
            let bucket = segment.table.find_bucket_index(spread(position), |_| true);
            let found = bucket.and_then(|bucket| segment.table.get_bucket(bucket));
            let place = found.map_or(segment.heap_end(), |handle| segment.heap_from(handle.start()));
            prefetch(place, NEW_ENTRY_BYTES);
        }
    }
    /// Prefetches `bytes` bytes of each of these keys' entries, with all loads in flight at once. (A look-up waits
    /// for one cache line after the other.) Returns false, without a prefetch, when the table is small enough to be
    /// in the cache.
    pub(crate) fn prefetch_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, bytes: usize) -> bool {
        if self.segments_bytes < NEAR_BYTES {
            return false;
        }
        let positions: SmallVec<[u64; PREFETCHED_TOGETHER]> = keys.map(|key| self.position(key)).collect();
        let segment = |position| self.segment_of(position).map(|segment| &*self.segments[segment]);
        for segment in positions.iter().filter_map(|position| segment(*position)) {
            prefetch(segment, size_of::<Segment<V>>());
        }
        positions.iter().for_each(|position| self.prefetch(*position, bytes));
        !positions.is_empty()
    }
    /// The item that is probably at `position`: only its tag is compared.
    #[inline]
    pub(crate) fn candidate(&self, position: u64) -> Option<Item<'_, V>> {
        let segment = &self.segments[self.segment_of(position)?];
        let bucket = segment.table.find_bucket_index(spread(position), |_| true)?;
        Some(segment.item(segment.table.get_bucket(bucket)?.start()))
    }
    /// Prefetches the first segment, for [`ExtendibleTable::prefetch_items`].
    #[inline]
    pub(crate) fn prefetch_first(&self) {
        if let Some(segment) = self.segments.first() {
            prefetch(&**segment, size_of::<Segment<V>>());
        }
    }
    /// Prefetches the first bytes of all items of a small table. [`ExtendibleTable::prefetch_first`] must have
    /// prefetched the segment.
    #[inline]
    pub(crate) fn prefetch_items(&self) {
        if let [segment] = &self.segments[..]
            && segment.table.len() <= PREFETCH_ITEMS_MAX
        {
            segment.starts().for_each(|start| prefetch(segment.heap_from(start), CACHE_LINE_BYTES));
        }
    }
    /// The item at this place.
    ///
    /// # Panics
    /// May panic when the table was changed after the place was located.
    #[inline]
    pub(crate) fn at(&self, at: Location) -> Item<'_, V> {
        self.segments[at.segment as usize].item(at.start as usize)
    }
    /// The metadata of the item at this place. Faster than [`ExtendibleTable::at`], if nothing else is needed.
    #[inline(always)]
    pub(crate) fn metadata_at(&self, at: Location) -> ItemMetadata<'_> {
        self.segments[at.segment as usize].metadata(at.start as usize)
    }
    /// Sets the usage of the item at this place.
    #[inline]
    pub(crate) fn set_usage(&mut self, at: Location, usage: u32) {
        self.segment_mut(at.segment as usize).set_usage(at.start as usize, usage);
    }
    /// Lets `change` write to the value of the item at this place. Returns `None` when the value lies in the
    /// segment's heap and not outside.
    pub(crate) fn change_outside<R>(&mut self, at: Location, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.counted(at.segment as usize, |segment| segment.change_outside(at.bucket as usize, change))
    }
    /// Sets the expiry of the item at this place, which has this key (`i64::MAX`: never). The item moves.
    pub(crate) fn set_expiry(&mut self, at: Location, key: &[u8], expiry_ms: i64) {
        let i = at.segment as usize;
        self.counted(i, |segment| segment.set_expiry(at.bucket as usize, key, expiry_ms));
        self.lower_expiry(i, expiry_ms, |positions| positions.position(key));
    }
    /// Adds an item at `position`. The item's key must not be in the table.
    pub(crate) fn insert_new(&mut self, position: u64, new: NewItem<'_, V>) {
        let i = self.room_for(position);
        self.lower_expiry(i, new.expiry_ms, |_| position);
        let items = self.segments[i].table.len();
        if items == self.segments[i].table.capacity() {
            self.moved_max = self.moved_max.max(items as u32);
        }
        if !self.segments[i].is_unique() {
            self.unshare(i);
        }
        let positions = &self.positions;
        let segment = Arc::make_mut(&mut self.segments[i]);
        let before = segment.bytes();
        segment.insert(new, position, |key| positions.position(key));
        self.segments_bytes = self.segments_bytes + segment.bytes() - before;
        self.len += 1;
    }
    /// Replaces the item at this place by a new item with an equal key. Returns the former outside value. The item
    /// moves.
    pub(crate) fn replace(&mut self, at: Location, new: NewItem<'_, V>) -> Option<V> {
        let i = at.segment as usize;
        self.lower_expiry(i, new.expiry_ms, |positions| positions.position(new.key));
        self.counted(i, |segment| segment.replace(at.bucket as usize, new))
    }
    /// Removes the item at this place. Returns its value if that lay outside.
    ///
    /// # Panics
    /// Panics if the table was changed after the place was located.
    pub(crate) fn remove_at(&mut self, at: Location) -> Option<V> {
        let i = at.segment as usize;
        let value = self.counted(i, |segment| segment.remove(at.bucket as usize));
        self.len -= 1;
        self.shrink(i);
        value
    }
    /// Moves the items of the segment at `position` to a smaller heap, if one holds them.
    pub(crate) fn trim(&mut self, position: u64) {
        if let Some(i) = self.segment_of(position).filter(|i| self.segments[*i].is_roomy()) {
            self.counted(i, Segment::trim);
        }
    }
    /// All items, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_, V>> {
        self.segments.iter().flat_map(|s| s.items())
    }

    /// Index of the segment that holds `position`. `None` when there is no segment.
    #[inline]
    fn segment_of(&self, position: u64) -> Option<usize> {
        if self.segments.len() <= 1 {
            return (!self.segments.is_empty()).then_some(0);
        }
        let at = (position >> self.shift) as usize & (self.directory.len() - 1);
        Some(self.directory[at] as usize)
    }
    /// A segment for writing. If a clone of the table shares the segment, it is copied first.
    #[inline]
    fn segment_mut(&mut self, i: usize) -> &mut Segment<V> {
        if !self.segments[i].is_unique() {
            self.unshare(i);
        }
        Arc::make_mut(&mut self.segments[i])
    }
    #[cold]
    fn unshare(&mut self, i: usize) {
        let copy = self.segments[i].copied();
        self.segments_bytes = self.segments_bytes + copy.bytes() - self.segments[i].bytes();
        self.segments[i] = Arc::new(copy);
    }
    /// Lets `change` write to a segment, and updates the count of bytes.
    #[inline]
    fn counted<R>(&mut self, i: usize, change: impl FnOnce(&mut Segment<V>) -> R) -> R {
        let segment = self.segment_mut(i);
        let before = segment.bytes();
        let result = change(segment);
        let after = segment.bytes();
        self.segments_bytes = self.segments_bytes + after - before;
        result
    }
    /// Notes the expiry of an item of the segment.
    #[inline]
    fn lower_expiry(&mut self, i: usize, expiry_ms: i64, position: impl FnOnce(&P) -> u64) {
        if expiry_ms != i64::MAX && self.segments[i].lists_expiring() {
            let position = position(&self.positions);
            self.counted(i, |segment| segment.note_expiring(position));
        }
        if expiry_ms < self.segments[i].expiry_ms {
            self.segment_mut(i).expiry_ms = expiry_ms;
            self.expiry_ms = self.expiry_ms.min(expiry_ms);
        }
    }
}
