//! How an [`ExtendibleTable`] grows and shrinks: one segment at a time.

use super::*;

/// Items per segment of a table that expects many items. (Segments of a table that has grown have between half of
/// [`SEGMENT_ITEMS_MAX`] and all of it.) Hashes spread so evenly that no segment with 776 expected items gets 896.
const EXPECTED_ITEMS_MAX: usize = SEGMENT_ITEMS_MAX - 120;
/// The only segment of a table is not shrunk below this number of buckets.
const SHRUNK_BUCKETS_MIN: usize = 8;

impl<V: OutsideValue, P: Positions> ExtendibleTable<V, P> {
    /// Index of the segment for a new item at `position`. Its table has room for one more item, or may still grow.
    #[inline]
    pub(super) fn room_for(&mut self, position: u64) -> usize {
        if let Some(i) = self.segment_of(position) {
            let table = &self.segments[i].table;
            if table.len() < table.capacity() || table.num_buckets() < SEGMENT_BUCKETS {
                return i;
            }
        }
        self.make_room(position)
    }
    /// Merges a segment that has lost items with its buddy, and repeats this while both are small. Frees all memory
    /// when the table is empty.
    #[inline]
    pub(super) fn shrink(&mut self, i: usize) {
        if self.segments[i].table.len() <= MERGE_ITEMS_MAX / 2 {
            self.shrink_small(i);
        }
    }

    /// Splits an empty table in advance, for about `items` items. `start` is the first position of the table.
    /// Growth up to this number then moves hardly any item. Costs about 200 bytes per 600 items. Does nothing if
    /// the table has been used before.
    pub(crate) fn reserve_items(&mut self, start: u64, items: usize) {
        let bits = items.div_ceil(EXPECTED_ITEMS_MAX).next_power_of_two().trailing_zeros();
        // At least two positions must remain per segment.
        let depth = bits.min(POSITION_BITS - u32::from(self.base_bits) - 1);
        if depth == 0 || !self.segments.is_empty() {
            return;
        }
        self.depth = depth as u8;
        self.shift -= self.depth;
        self.directory = (0..1 << depth).collect();
        self.depths = vec![0; depth as usize];
        self.depths.push(1 << depth);
        let segments = (0..1u64 << depth).map(|i| Segment::new(start | i << self.shift, self.depth));
        self.segments = segments.map(Arc::new).collect();
        self.segments_bytes = self.segments.iter().map(|segment| segment.bytes()).sum();
    }

    #[cold]
    fn make_room(&mut self, position: u64) -> usize {
        loop {
            let Some(i) = self.segment_of(position) else {
                self.begin(position);
                continue;
            };
            let table = &self.segments[i].table;
            if table.len() < table.capacity() || table.num_buckets() < SEGMENT_BUCKETS {
                return i;
            }
            if table.len() < SPLIT_ITEMS_MIN {
                let positions = self.positions.clone();
                self.moved(self.segments[i].table.len());
                self.counted(i, |s| s.rebuild(SEGMENT_ITEMS_MAX, |key| positions.position(key)));
                return i;
            }
            if !self.split(i) {
                return i; // The table of the segment grows past the size of a segment.
            }
        }
    }
    fn shrink_small(&mut self, mut i: usize) {
        loop {
            let (depth, items) = (self.segments[i].depth, self.segments[i].table.len());
            if items > MERGE_ITEMS_MAX / 2 {
                return;
            }
            if depth == 0 {
                return self.shrink_last();
            }
            let buddy = self.segments[i].start ^ self.bit_below(depth - 1);
            let buddy = self.segment_of(buddy).expect("there are segments, so all positions have one");
            let other = &self.segments[buddy];
            if other.depth != depth || other.table.len() + items > MERGE_ITEMS_MAX {
                return;
            }
            i = self.merge(i, buddy);
        }
    }
    /// Adds the first segment, for all positions of this table.
    fn begin(&mut self, position: u64) {
        let range = 1 << (POSITION_BITS - u32::from(self.base_bits));
        let segment = Segment::new(position & !(range - 1), 0);
        self.segments_bytes = segment.bytes();
        self.segments.push(Arc::new(segment));
        self.depths = vec![1];
    }
    /// The bit of a position that follows the base bits and `depth` further bits.
    fn bit_below(&self, depth: u8) -> u64 {
        1 << (POSITION_BITS - u32::from(self.base_bits + depth) - 1)
    }
    /// Splits a segment into two. Returns false when its positions have no bit left, or when the directory must not
    /// grow.
    fn split(&mut self, i: usize) -> bool {
        let depth = self.segments[i].depth;
        if u32::from(self.base_bits + depth) == POSITION_BITS
            || (depth == self.depth && !self.double_directory())
        {
            return false;
        }
        let bit = self.bit_below(depth);
        let start = self.segments[i].start;
        let old = self.segment_mut(i);
        let freed = old.bytes();
        let mut old = std::mem::replace(old, Segment::new(start, depth));
        // First find out to which side each item goes and how many bytes it takes, so that each heap is allocated
        // once.
        let mut sides = [0, 0];
        let mut places = Vec::with_capacity(old.table.len());
        for item in old.items() {
            let position = item.position(|key| self.positions.position(key));
            sides[usize::from(position & bit != 0)] += item.inline_bytes();
            places.push((position, item.start() as u32));
        }
        let room = |start, bytes| Segment::with_room(start, depth + 1, SEGMENT_ITEMS_MAX, bytes);
        let [mut low, mut high] = [room(start, sides[0]), room(start | bit, sides[1])];
        for (position, start) in &places {
            let side = if position & bit == 0 { &mut low } else { &mut high };
            side.adopt(&mut old, *start as usize, *position, |key| self.positions.position(key));
        }
        self.segments_bytes = self.segments_bytes + low.bytes() + high.bytes() - freed;
        self.segments[i] = Arc::new(low);
        self.segments.push(Arc::new(high));
        self.count_depth(depth, -1);
        self.count_depth(depth + 1, 2);
        self.label(i);
        self.label(self.segments.len() - 1);
        self.moved(places.len());
        true
    }
    /// Merges two buddies into one segment. Returns the index of that segment.
    fn merge(&mut self, a: usize, b: usize) -> usize {
        let (mut kept, gone) = if self.segments[a].start < self.segments[b].start { (a, b) } else { (b, a) };
        let depth = self.segments[kept].depth;
        self.count_depth(depth, -2);
        self.count_depth(depth - 1, 1);
        let mut buddy = self.segments.swap_remove(gone);
        self.segments_bytes -= buddy.bytes();
        let buddy = Arc::make_mut(&mut buddy);
        if gone < self.segments.len() {
            self.label(gone); // The last segment moved to the index of the removed one.
        }
        if kept == self.segments.len() {
            kept = gone;
        }
        let positions = self.positions.clone();
        let items = self.counted(kept, |segment| {
            segment.depth -= 1;
            segment.reserve(buddy.live_bytes());
            let starts: Vec<_> = buddy.items().map(|item| item.start()).collect();
            for start in starts {
                let position = buddy.item(start).position(|key| positions.position(key));
                segment.adopt(buddy, start, position, |key| positions.position(key));
            }
            segment.expiry_ms = segment.expiry_ms.min(buddy.expiry_ms);
            segment.table.len()
        });
        self.label(kept);
        self.moved(items);
        while self.depth > 0 && self.depths[usize::from(self.depth)] == 0 {
            self.halve_directory();
        }
        if self.segments.len() < self.segments.capacity() / 4 {
            let mut fewer = SmallVec::with_capacity(self.segments.len() * 2);
            fewer.extend(self.segments.drain(..));
            self.segments = fewer;
        }
        kept
    }
    /// Shrinks the table of the only segment to fit its items. Frees all memory when there are none.
    fn shrink_last(&mut self) {
        if self.len == 0 {
            let moved_max = self.moved_max;
            *self =
                ExtendibleTable { moved_max, ..ExtendibleTable::new(self.base_bits, self.positions.clone()) };
            return;
        }
        let table = &self.segments[0].table;
        let (buckets, items) = (table.num_buckets(), table.len());
        if buckets > SHRUNK_BUCKETS_MIN && items * 8 <= buckets {
            let positions = self.positions.clone();
            self.counted(0, |segment| segment.shrink(items * 2, |key| positions.position(key)));
            self.moved(items);
        }
    }
    /// Lets the directory entries of all positions in segment `i` point to the segment.
    fn label(&mut self, i: usize) {
        if self.directory.is_empty() {
            return; // A single segment, at depth 0.
        }
        let segment = &self.segments[i];
        let first = (segment.start >> self.shift) as usize & (self.directory.len() - 1);
        let entries = 1 << (self.depth - segment.depth);
        self.directory[first..first + entries].fill(i as u32);
    }
    fn double_directory(&mut self) -> bool {
        let entries = self.directory.len().max(1);
        // A client that makes keys collide fills a few segments more than the others. In that case allow one entry
        // per item.
        if entries * 2 > (self.segments.len() * DIRECTORY_PER_SEGMENT_MAX).max(self.len) {
            return false;
        }
        self.directory = match self.directory.is_empty() {
            true => vec![0, 0],
            false => self.directory.iter().flat_map(|i| [*i, *i]).collect(),
        };
        self.depth += 1;
        self.shift -= 1;
        self.depths.push(0);
        true
    }
    fn halve_directory(&mut self) {
        self.directory = match self.depth {
            1 => Vec::new(),
            _ => self.directory.iter().step_by(2).copied().collect(),
        };
        self.depth -= 1;
        self.shift += 1;
        self.depths.pop();
    }
    fn count_depth(&mut self, depth: u8, more: i32) {
        let count = &mut self.depths[usize::from(depth)];
        *count = count.checked_add_signed(more).expect("each segment is counted at its depth");
    }
    fn moved(&mut self, items: usize) {
        self.moved_max = self.moved_max.max(items as u32);
    }
}
