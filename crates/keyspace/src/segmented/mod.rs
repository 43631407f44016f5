//! [`Segmented`]: an extendible hash: a directory over small Swiss tables (*segments*), split one at a time when full.
//!
//! A key's place is its *position*: the top [`POSITION_BITS`] of its hash, kept for life. The first bits of a position
//! choose the segment (after `base_bits` that are the same for all items of one table: the shard), so segments lie in
//! hash order, and a position is a cursor that stays good however segments split and merge. Growth moves the items of
//! one segment at most; so does shrinking: two small buddies become one.
//!
//! Here: finding, inserting, removing. `reshape`: splitting and merging. `walk`: scans, expiry, random items.

mod reshape;
#[cfg(test)]
mod tests;
mod walk;

use hashbrown::HashTable;

/// Bits of a hash that make a position: 1 G keys in 1,024 shards use 22 of them to choose the segment, which leaves the
/// 16 that a segment's table takes for its bucket and its tag.
pub(crate) const POSITION_BITS: u32 = 40;
/// Buckets of a full-grown segment. With 8-byte items that is 4.6 kB: a split moves 448 items in some 10 us, and the
/// directory costs 4 bytes for 300 items.
pub(crate) const SEGMENT_BUCKETS: usize = 512;
/// Items that fit in those (7 of 8).
pub(crate) const SEGMENT_ITEMS_MAX: usize = SEGMENT_BUCKETS / 8 * 7;
/// A segment that is out of room because of what was removed from it is split from this many items on, rebuilt below.
const SPLIT_ITEMS_MIN: usize = SEGMENT_ITEMS_MAX / 4 * 3;
/// Two buddies with at most this many items together become one.
const MERGE_ITEMS_MAX: usize = SEGMENT_ITEMS_MAX / 2;
/// The directory never has more entries than this for each segment. Keyed hashes stay far below; if positions collided
/// all the same, a segment grows over its size instead of the directory.
const DIRECTORY_PER_SEGMENT_MAX: usize = 16;

/// The position of a 64-bit hash.
#[inline]
pub(crate) fn position_of(hash: u64) -> u64 {
    hash >> (64 - POSITION_BITS)
}

/// What a table holds.
pub(crate) trait Item {
    /// The top [`POSITION_BITS`] of the hash of its key; the same for life.
    fn position(&self) -> u64;
    /// When it expires (unix milliseconds); `i64::MAX` when never.
    fn deadline_ms(&self) -> i64 {
        i64::MAX
    }
}

/// Where an item is, until the table is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    segment: u32,
    bucket: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct Segmented<T> {
    /// Index of a segment for each value of the `depth` bits after the base bits; empty when there is no segment.
    directory: Vec<u32>,
    segments: Vec<Segment<T>>,
    len: usize,
    /// Allocated behind the segments' tables.
    tables_bytes: usize,
    /// No item expires before this.
    deadline_ms: i64,
    /// `POSITION_BITS - base_bits - depth`: right shift of a position to its directory index.
    shift: u8,
    base_bits: u8,
    /// Log2 of the directory's length.
    depth: u8,
    /// Segments whose depth is the directory's: at 0 the directory can be halved.
    deepest: u32,
    /// Most items that one operation moved.
    moved_max: u32,
}

#[derive(Clone, Debug)]
struct Segment<T> {
    table: HashTable<T>,
    /// Its first position.
    start: u64,
    /// No item here expires before this. Lowered at once, raised when the segment is walked.
    deadline_ms: i64,
    /// How many bits after the base bits all its positions share.
    depth: u8,
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
    /// Bytes of the tables themselves, without the items' own allocations.
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
            heap_bytes: self.heap_bytes + other.heap_bytes,
        }
    }
}

/// The hash that a segment's table sees. It takes its buckets from the low bits and its 7-bit tags from the top ones;
/// within a segment a position's top bits are all the same, so the tag comes from the bits above the bucket's.
#[inline]
fn spread(position: u64) -> u64 {
    position << 48 | position
}
fn hash_of<T: Item>(item: &T) -> u64 {
    spread(item.position())
}

impl<T: Item> Segmented<T> {
    /// Empty, without an allocation; all positions that it will see share their first `base_bits` bits.
    pub(crate) const fn new(base_bits: u8) -> Segmented<T> {
        Segmented {
            directory: Vec::new(),
            segments: Vec::new(),
            len: 0,
            tables_bytes: 0,
            deadline_ms: i64::MAX,
            shift: POSITION_BITS as u8 - base_bits,
            base_bits,
            depth: 0,
            deepest: 0,
            moved_max: 0,
        }
    }
    /// Number of items.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// Bytes of heap of the table itself. Counted along, not walked.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.tables_bytes
            + self.segments.capacity() * size_of::<Segment<T>>()
            + self.directory.capacity() * size_of::<u32>()
    }
    /// What it looks like; walks the segments.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            items: self.len,
            segments: self.segments.len(),
            directory: self.directory.len(),
            segment_items_max: self.segments.iter().map(|s| s.table.len()).max().unwrap_or(0),
            moved_max: self.moved_max as usize,
            heap_bytes: self.heap_bytes(),
        }
    }
    /// Finds the item at `position` for which `is` holds.
    #[inline]
    pub(crate) fn locate(&self, position: u64, is: impl FnMut(&T) -> bool) -> Option<At> {
        let segment = self.segment_of(position)?;
        let bucket = self.segments[segment].table.find_bucket_index(spread(position), is)?;
        Some(At { segment: segment as u32, bucket: bucket as u32 })
    }
    /// The item that is probably at `position`, judged by its tag alone: the item itself is not looked at.
    #[inline]
    pub(crate) fn candidate(&self, position: u64) -> Option<&T> {
        let segment = self.segment_of(position)?;
        let table = &self.segments[segment].table;
        table.get_bucket(table.find_bucket_index(spread(position), |_| true)?)
    }
    /// The item there.
    ///
    /// # Panics
    /// When the table was changed since it was located.
    #[inline]
    pub(crate) fn at(&self, at: At) -> &T {
        self.segments[at.segment as usize]
            .table
            .get_bucket(at.bucket as usize)
            .expect("located, not changed since")
    }
    /// The item there, for writing; its position must stay. After lowering its deadline call
    /// [`Segmented::note_deadline`].
    ///
    /// # Panics
    /// When the table was changed since it was located.
    #[inline]
    pub(crate) fn at_mut(&mut self, at: At) -> &mut T {
        let table = &mut self.segments[at.segment as usize].table;
        table.get_bucket_mut(at.bucket as usize).expect("located, not changed since")
    }
    /// Takes note that the item there expires at `deadline_ms`.
    pub(crate) fn note_deadline(&mut self, at: At, deadline_ms: i64) {
        self.lower_deadline(at.segment as usize, deadline_ms);
    }
    /// Adds an item whose key is not in the table.
    pub(crate) fn insert_new(&mut self, item: T) {
        let position = item.position();
        let i = self.make_room(position);
        self.lower_deadline(i, item.deadline_ms());
        let table = &mut self.segments[i].table;
        if table.len() < table.capacity() {
            table.insert_unique(spread(position), item, hash_of);
        } else {
            let before = table.allocation_size();
            self.moved_max = self.moved_max.max(table.len() as u32);
            table.insert_unique(spread(position), item, hash_of);
            self.tables_bytes += table.allocation_size() - before;
        }
        self.len += 1;
    }
    /// Removes the item there.
    ///
    /// # Panics
    /// When the table was changed since it was located.
    pub(crate) fn remove_at(&mut self, at: At) -> T {
        let table = &mut self.segments[at.segment as usize].table;
        let entry = table.get_bucket_entry(at.bucket as usize).ok().expect("located, not changed since");
        let item = entry.remove().0;
        self.len -= 1;
        self.shrink(at.segment as usize);
        item
    }
    /// All items, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flat_map(|s| s.table.iter())
    }

    /// The index of the segment that holds `position`; `None` when there is no segment at all.
    #[inline]
    fn segment_of(&self, position: u64) -> Option<usize> {
        // An empty directory makes the mask all ones, and then no index is in range.
        let mask = self.directory.len().wrapping_sub(1);
        self.directory.get((position >> self.shift) as usize & mask).map(|i| *i as usize)
    }
    #[inline]
    fn lower_deadline(&mut self, segment: usize, deadline_ms: i64) {
        if deadline_ms < self.segments[segment].deadline_ms {
            self.segments[segment].deadline_ms = deadline_ms;
            self.deadline_ms = self.deadline_ms.min(deadline_ms);
        }
    }
}
