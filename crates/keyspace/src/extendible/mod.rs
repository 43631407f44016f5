//! [`ExtendibleTable`]: an extendible hash table. A directory points to small tables ([`Segment`]), and a full segment is split in two.
//!
//! A key's place is its *position*: the top [`POSITION_BITS`] of its hash. The first `base_bits` of a position are
//! equal for all items of one table (they give the shard). The next bits choose the segment. So segments lie in
//! hash order, and a position stays valid as a cursor when segments split and merge. Growth moves the items of one
//! segment at most. Shrinking merges two small buddies into one segment, and moves no more items.
//!
//! Segments are shared by count, and a shared segment is copied before a write. So a clone of a table with
//! millions of items costs one pointer for every few hundred items, and keeps showing the items as they were.
//!
//! Here: find, insert, replace, remove. `entry`: the layout of an item in memory. `item`: an item. `segment`: one segment.
//! `reshape`: split and merge. `walk`: scans, expiry, random items.

mod entry;
mod item;
mod reshape;
mod segment;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use entry::INLINE_BYTES_MAX;
pub(crate) use item::{Content, Entries, Item, New, OffHeap, Payload};
pub(crate) use segment::{Segment, class_bytes};

use smallvec::SmallVec;
use strand_chain::{CACHE_LINE_BYTES, prefetch};
use triomphe::Arc;

/// Bits of a hash that make a position. 1 G keys in 1,024 shards use 22 bits to choose the segment. That leaves at
/// least the 16 bits that a segment's table needs for bucket and tag.
pub(crate) const POSITION_BITS: u32 = 40;
/// Buckets of a full-grown segment. With handles of 3 bytes a table takes 4.1 kB, beside a heap of about 60 kB for
/// items of 80 bytes. A split moves 896 items in about 25 us. With half as many buckets, the unfilled page at the
/// end of a heap costs 4 bytes more for each of these items.
pub(crate) const SEGMENT_BUCKETS: usize = 1024;
/// Items that fit in these buckets (7 of 8).
pub(crate) const SEGMENT_ITEMS_MAX: usize = SEGMENT_BUCKETS / 8 * 7;
/// A segment whose table is filled by removed items is split from this many items on, and rebuilt below.
const SPLIT_ITEMS_MIN: usize = SEGMENT_ITEMS_MAX / 4 * 3;
/// Two buddies with at most this many items together are merged.
const MERGE_ITEMS_MAX: usize = SEGMENT_ITEMS_MAX / 2;
/// Limit of the directory: the larger of this many entries for each segment and one for each item. Keyed
/// hashes stay far below. If positions still collide, a segment grows past its size instead of the directory.
const DIRECTORY_PER_SEGMENT_MAX: usize = 16;

/// A table of at most this many items is prefetched whole, because any item may be wanted next.
const PREFETCH_ITEMS_MAX: usize = 8;

/// The position of a 64-bit hash.
#[inline]
pub(crate) fn position_of(hash: u64) -> u64 {
    hash >> (64 - POSITION_BITS)
}

/// Maps keys to positions: the top [`POSITION_BITS`] of the key's hash. The position of a key never changes.
pub(crate) trait Positions: Clone {
    fn position(&self, key: &[u8]) -> u64;
}

/// Place of an item, valid until the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    segment: u32,
    bucket: u32,
    /// Start of the entry in the segment's heap.
    start: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct ExtendibleTable<V, P> {
    positions: P,
    /// A segment's index for each value of the `depth` bits after the base bits. Empty while there is one segment.
    directory: Vec<u32>,
    segments: SmallVec<[Arc<Segment<V>>; 1]>,
    len: usize,
    /// Bytes of all segments, contents included.
    segments_bytes: usize,
    /// No item expires before this.
    expiry_ms: i64,
    /// `POSITION_BITS - base_bits - depth`: a position shifted right by this is its directory index.
    shift: u8,
    base_bits: u8,
    /// Binary logarithm of the directory's length.
    depth: u8,
    /// Number of segments of each depth, up to the directory's. When no segment has the directory's depth, the
    /// directory is halved.
    depths: Vec<u32>,
    /// Most items that one operation has moved.
    moved_max: u32,
}

/// Shape of a table, for tests and for administrators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Items.
    pub items: usize,
    /// Segments.
    pub segments: usize,
    /// Entries of the directories.
    pub directory: usize,
    /// Items in the fullest segment.
    pub segment_items_max: usize,
    /// Most items that one operation has moved.
    pub moved_max: usize,
    /// Bytes of keys and values in the segments, and of their metadata.
    pub entries_bytes: usize,
    /// All heap bytes.
    pub heap_bytes: usize,
}

impl Shape {
    /// The shape of both tables together.
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

/// A table of fewer bytes stays in the processor's cache while it is in use.
const NEAR_BYTES: usize = 128 << 10;
/// Items that are prefetched together without an allocation.
const PREFETCHED_TOGETHER: usize = 16;

/// The hash for a segment's table, which takes buckets from its low bits and 7-bit tags from its top bits. Within
/// a segment the top bits of all positions are equal, so the tag comes from the bits above those of the bucket.
#[inline]
fn spread(position: u64) -> u64 {
    position << (64 - 7 - SEGMENT_BUCKETS.trailing_zeros()) | position
}

impl<V: OffHeap, P: Positions> ExtendibleTable<V, P> {
    /// An empty table, without an allocation. All positions that it will see share their first `base_bits` bits.
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
    /// Number of items.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// All heap bytes, values included. Kept current, not computed by a walk.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        let pointers = if self.segments.spilled() { self.segments.capacity() } else { 0 };
        let words = self.directory.capacity() + self.depths.capacity();
        self.segments_bytes + pointers * size_of::<usize>() + words * size_of::<u32>()
    }
    /// The shape of the table. Walks the segments.
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
    /// Number of allocations, without those of outside values.
    pub(crate) fn parts(&self) -> usize {
        2 + 4 * self.segments.len()
    }
    /// True when both tables have the same segments in memory: one is an unchanged clone of the other.
    pub(crate) fn shares_all_with(&self, other: &ExtendibleTable<V, P>) -> bool {
        self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(|(a, b)| Arc::ptr_eq(a, b))
    }
    /// All memory of the table in pieces of `segments` segments, to be freed one after the other.
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
    /// Finds the item with this key, which has this position.
    #[inline]
    pub(crate) fn locate(&self, position: u64, key: &[u8]) -> Option<At> {
        let segment = self.segment_of(position)?;
        let (bucket, start) = self.segments[segment].find(position, key)?;
        Some(At { segment: segment as u32, bucket: bucket as u32, start: start as u32 })
    }
    /// Prefetches `bytes` of the entry that is probably at `position`, judged by its tag alone. The entry is not
    /// read.
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
    /// Prefetches `bytes` of the entries of these keys, with all loads in flight together. (A look-up waits for
    /// one cache line after the other.) Returns false when the table is small enough to be in the cache.
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
    /// The item that is probably at `position`, judged by its tag alone.
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
    /// Prefetches the starts of all items of a small table, whose first segment was prefetched before.
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
    pub(crate) fn at(&self, at: At) -> Item<'_, V> {
        self.segments[at.segment as usize].item(at.start as usize)
    }
    /// Sets the usage of the item at this place.
    #[inline]
    pub(crate) fn set_used(&mut self, at: At, used: u32) {
        self.segment_mut(at.segment as usize).set_used(at.start as usize, used);
    }
    /// Lets `change` write to the outside value of the item at this place. Returns `None` when its value lies in
    /// the table.
    pub(crate) fn change_outside<R>(&mut self, at: At, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.counted(at.segment as usize, |segment| segment.change_outside(at.bucket as usize, change))
    }
    /// Sets the expiry of the item with this key at this place (`i64::MAX`: never). The item moves.
    pub(crate) fn set_expiry(&mut self, at: At, key: &[u8], expiry_ms: i64) {
        let i = at.segment as usize;
        self.counted(i, |segment| segment.set_expiry(at.bucket as usize, key, expiry_ms));
        self.lower_expiry(i, expiry_ms);
    }
    /// Adds an item with this position. Its key must not be in the table.
    pub(crate) fn insert_new(&mut self, position: u64, new: New<'_, V>) {
        let i = self.room_for(position);
        self.lower_expiry(i, new.expiry_ms);
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
    /// Replaces the item at this place by one with an equal key. Returns the former outside value. The item moves.
    pub(crate) fn replace(&mut self, at: At, new: New<'_, V>) -> Option<V> {
        let i = at.segment as usize;
        self.lower_expiry(i, new.expiry_ms);
        self.counted(i, |segment| segment.replace(at.bucket as usize, new))
    }
    /// Removes the item at this place. Returns its outside value.
    ///
    /// # Panics
    /// When the table was changed after the place was located.
    pub(crate) fn remove_at(&mut self, at: At) -> Option<V> {
        let i = at.segment as usize;
        let value = self.counted(i, |segment| segment.remove(at.bucket as usize));
        self.len -= 1;
        self.shrink(i);
        value
    }
    /// Lets the segment at `position` release memory, if a smaller heap holds its items.
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
    /// A segment for writing. It is copied first when a clone of the table shares it.
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
    #[inline]
    fn lower_expiry(&mut self, i: usize, expiry_ms: i64) {
        if expiry_ms < self.segments[i].expiry_ms {
            self.segment_mut(i).expiry_ms = expiry_ms;
            self.expiry_ms = self.expiry_ms.min(expiry_ms);
        }
    }
}
