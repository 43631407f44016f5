//! [`ExtendibleTable`]: an extendible hash: a directory over small tables ([`Segment`]), split one at a time when full.
//!
//! A key's place is its *position*: the top [`POSITION_BITS`] of its hash. The first bits of a position choose the
//! segment (after `base_bits` that are the same for all items of one table: the shard), so segments lie in hash order,
//! and a position is a cursor that stays good however segments split and merge. Growth moves the items of one segment at
//! most; so does shrinking: two small buddies become one.
//!
//! A segment is shared by count and copied when it is written while shared: so a clone of a table of millions of items
//! costs a pointer for every few hundred of them, and shows the items as they were.
//!
//! Here: finding, inserting, replacing, removing. `entry`: how an item lies in memory. `segment`: one segment. `reshape`:
//! splitting and merging. `walk`: scans, expiry, random items.

mod entry;
mod reshape;
mod segment;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use entry::INLINE_BYTES_MAX;
pub(crate) use segment::{Content, Item, New, OffHeap, Payload, Segment, class_bytes};

use smallvec::SmallVec;
use strand_chain::{CACHE_LINE_BYTES, prefetch};
use triomphe::Arc;

/// Bits of a hash that make a position: 1 G keys in 1,024 shards use 22 of them to choose the segment, which leaves the
/// 16 that a segment's table takes for its bucket and its tag.
pub(crate) const POSITION_BITS: u32 = 40;
/// Buckets of a full-grown segment. With handles of 3 bytes that is 4.1 kB, beside a heap of some 60 kB for items of 80
/// bytes; a split moves 896 items in some 25 us. With half as many, the page that a heap does not fill cost 4 bytes more
/// for each such item.
pub(crate) const SEGMENT_BUCKETS: usize = 1024;
/// Items that fit in those (7 of 8).
pub(crate) const SEGMENT_ITEMS_MAX: usize = SEGMENT_BUCKETS / 8 * 7;
/// A segment that is out of room because of what was removed from it is split from this many items on, rebuilt below.
const SPLIT_ITEMS_MIN: usize = SEGMENT_ITEMS_MAX / 4 * 3;
/// Two buddies with at most this many items together become one.
const MERGE_ITEMS_MAX: usize = SEGMENT_ITEMS_MAX / 2;
/// The directory never has more entries than this for each segment, or than one for each item. Keyed hashes stay far
/// below; if positions collided all the same, a segment grows over its size instead of the directory.
const DIRECTORY_PER_SEGMENT_MAX: usize = 16;

/// In a table of so few items any may be the one that is wanted next.
const PREFETCH_ITEMS_MAX: usize = 8;

/// The position of a 64-bit hash.
#[inline]
pub(crate) fn position_of(hash: u64) -> u64 {
    hash >> (64 - POSITION_BITS)
}

/// Tells where keys belong: the top [`POSITION_BITS`] of their hash, the same for life.
pub(crate) trait Positions: Clone {
    fn position(&self, key: &[u8]) -> u64;
}

/// Where an item is, until the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    segment: u32,
    bucket: u32,
    /// Where its entry begins.
    start: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct ExtendibleTable<V, P> {
    positions: P,
    /// Index of a segment for each value of the `depth` bits after the base bits; empty while there is one segment.
    directory: Vec<u32>,
    segments: SmallVec<[Arc<Segment<V>>; 1]>,
    len: usize,
    /// Of the segments, with all that they hold.
    segments_bytes: usize,
    /// No item expires before this.
    expiry_ms: i64,
    /// `POSITION_BITS - base_bits - depth`: right shift of a position to its directory index.
    shift: u8,
    base_bits: u8,
    /// Log2 of the directory's length.
    depth: u8,
    /// How many segments there are of each depth, up to the directory's: when none has that, the directory is halved.
    depths: Vec<u32>,
    /// Most items that one operation moved.
    moved_max: u32,
}

/// What a table looks like, for tests and for those who look after a server.
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
    /// Most items that one operation ever moved.
    pub moved_max: usize,
    /// Bytes of keys and values that lie in the segments, and of what is noted beside them.
    pub entries_bytes: usize,
    /// Bytes of heap in all.
    pub heap_bytes: usize,
}

impl Shape {
    /// Both together.
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

/// A table of fewer bytes is in the processor's cache while it is used often.
const NEAR_BYTES: usize = 128 << 10;
/// As many items as are asked for together without an allocation.
const PREFETCHED_TOGETHER: usize = 16;

/// The hash that a segment's table sees. It takes its buckets from the low bits and its 7-bit tags from the top ones;
/// within a segment a position's top bits are all the same, so the tag comes from the bits above the bucket's.
#[inline]
fn spread(position: u64) -> u64 {
    position << (64 - 7 - SEGMENT_BUCKETS.trailing_zeros()) | position
}

impl<V: OffHeap, P: Positions> ExtendibleTable<V, P> {
    /// Empty, without an allocation; all positions that it will see share their first `base_bits` bits.
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
    /// Bytes of heap behind it, all values included. Counted along, not walked.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        let pointers = if self.segments.spilled() { self.segments.capacity() } else { 0 };
        let words = self.directory.capacity() + self.depths.capacity();
        self.segments_bytes + pointers * size_of::<usize>() + words * size_of::<u32>()
    }
    /// What it looks like; walks the segments.
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
    /// How many allocations freeing it costs, without those of outside values.
    pub(crate) fn parts(&self) -> usize {
        2 + 4 * self.segments.len()
    }
    /// True when both have the very same segments: one is an unchanged clone of the other.
    pub(crate) fn shares_all_with(&self, other: &ExtendibleTable<V, P>) -> bool {
        self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(|(a, b)| Arc::ptr_eq(a, b))
    }
    /// All its memory in pieces of so many segments, to be freed one after the other.
    pub(crate) fn into_pieces(mut self, segments: usize) -> impl Iterator<Item = Vec<Arc<Segment<V>>>> {
        std::iter::from_fn(move || {
            let rest = self.segments.len().saturating_sub(segments);
            let piece: Vec<_> = self.segments.drain(rest..).collect();
            (!piece.is_empty()).then_some(piece)
        })
    }
    /// Where keys belong.
    #[inline]
    pub(crate) fn position(&self, key: &[u8]) -> u64 {
        self.positions.position(key)
    }
    /// Finds the item with this key, whose position that is.
    #[inline]
    pub(crate) fn locate(&self, position: u64, key: &[u8]) -> Option<At> {
        let segment = self.segment_of(position)?;
        let (bucket, start) = self.segments[segment].find(position, key)?;
        Some(At { segment: segment as u32, bucket: bucket as u32, start: start as u32 })
    }
    /// Asks for the memory of the item that is probably at `position`, judged by its tag alone; its entry is not looked
    /// at. `bytes`: of the entry.
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
    /// Asks for the memory of the items with these keys, and of so many bytes of each entry: all at once, where a look-up waits for
    /// one line after the other. False when the table is so small that it is near.
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
    /// The first segment, for a prefetch of a small table.
    #[inline]
    pub(crate) fn prefetch_first(&self) {
        if let Some(segment) = self.segments.first() {
            prefetch(&**segment, size_of::<Segment<V>>());
        }
    }
    /// Asks for the beginnings of the items of a small table, whose first segment was asked for.
    #[inline]
    pub(crate) fn prefetch_items(&self) {
        if let [segment] = &self.segments[..]
            && segment.table.len() <= PREFETCH_ITEMS_MAX
        {
            segment.starts().for_each(|start| prefetch(segment.heap_from(start), CACHE_LINE_BYTES));
        }
    }
    /// The item there.
    ///
    /// # Panics
    /// May, when the table was changed since it was located.
    #[inline]
    pub(crate) fn at(&self, at: At) -> Item<'_, V> {
        self.segments[at.segment as usize].item(at.start as usize)
    }
    /// Marks the item there used.
    #[inline]
    pub(crate) fn set_used(&mut self, at: At, used: u32) {
        self.segment_mut(at.segment as usize).set_used(at.start as usize, used);
    }
    /// Lets `change` have the outside value of the item there; `None` when its value lies in the table.
    pub(crate) fn change_outside<R>(&mut self, at: At, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.counted(at.segment as usize, |segment| segment.change_outside(at.bucket as usize, change))
    }
    /// Sets when the item there, whose key this is, expires (`i64::MAX`: never). It has moved after that.
    pub(crate) fn set_expiry(&mut self, at: At, key: &[u8], expiry_ms: i64) {
        let i = at.segment as usize;
        self.counted(i, |segment| segment.set_expiry(at.bucket as usize, key, expiry_ms));
        self.lower_expiry(i, expiry_ms);
    }
    /// Adds an item, whose position that is and whose key is not in the table.
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
    /// Replaces the item there, which has the same key; the outside value that it had. It has moved after that.
    pub(crate) fn replace(&mut self, at: At, new: New<'_, V>) -> Option<V> {
        let i = at.segment as usize;
        self.lower_expiry(i, new.expiry_ms);
        self.counted(i, |segment| segment.replace(at.bucket as usize, new))
    }
    /// Removes the item there; the outside value that it had.
    ///
    /// # Panics
    /// When the table was changed since it was located.
    pub(crate) fn remove_at(&mut self, at: At) -> Option<V> {
        let i = at.segment as usize;
        let value = self.counted(i, |segment| segment.remove(at.bucket as usize));
        self.len -= 1;
        self.shrink(i);
        value
    }
    /// Has the segment at `position` give back room, if a smaller heap holds what is in it.
    pub(crate) fn trim(&mut self, position: u64) {
        if let Some(i) = self.segment_of(position).filter(|i| self.segments[*i].is_roomy()) {
            self.counted(i, Segment::trim);
        }
    }
    /// All items, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_, V>> {
        self.segments.iter().flat_map(|s| s.items())
    }

    /// The index of the segment that holds `position`; `None` when there is no segment at all.
    #[inline]
    fn segment_of(&self, position: u64) -> Option<usize> {
        if self.segments.len() <= 1 {
            return (!self.segments.is_empty()).then_some(0);
        }
        let at = (position >> self.shift) as usize & (self.directory.len() - 1);
        Some(self.directory[at] as usize)
    }
    /// A segment for writing; copied first when a clone of the table has it too.
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
    /// Lets `change` have a segment, and counts its bytes before and after.
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
