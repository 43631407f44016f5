//! How a [`Segmented`] table grows and shrinks: one segment at a time.

use super::*;

/// A last segment of at most this many buckets is left as it is when items go.
const SHRUNK_BUCKETS_MIN: usize = 8;

impl<T: Item> Segmented<T> {
    /// Makes room for one item at `position`; the segment it belongs to.
    pub(super) fn make_room(&mut self, position: u64) -> usize {
        loop {
            let Some(i) = self.segment_of(position) else {
                self.begin(position);
                continue;
            };
            let table = &self.segments[i].table;
            if table.len() < table.capacity() || table.num_buckets() < SEGMENT_BUCKETS {
                return i; // There is room, or its table may still double.
            }
            if table.len() < SPLIT_ITEMS_MIN {
                self.rebuild(i);
                return i;
            }
            if !self.split(i) {
                return i; // Its table grows over the size of a segment.
            }
        }
    }
    /// Merges a segment that lost items with its buddy, as often as both are small; gives back what an empty table held.
    pub(super) fn shrink(&mut self, mut i: usize) {
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

    /// The first segment, for all positions of this table.
    fn begin(&mut self, position: u64) {
        let range = 1 << (POSITION_BITS - u32::from(self.base_bits));
        let start = position & !(range - 1);
        self.segments.reserve_exact(1);
        self.segments.push(Segment { table: HashTable::new(), start, deadline_ms: i64::MAX, depth: 0 });
        self.directory = vec![0];
        self.deepest = 1;
    }
    /// The bit of a position that follows the `depth` bits after the base bits.
    fn bit_below(&self, depth: u8) -> u64 {
        1 << (POSITION_BITS - u32::from(self.base_bits + depth) - 1)
    }
    /// Splits a segment into two; false when positions or the directory do not allow it.
    fn split(&mut self, i: usize) -> bool {
        let depth = self.segments[i].depth;
        if u32::from(self.base_bits + depth) == POSITION_BITS
            || (depth == self.depth && !self.double_directory())
        {
            return false;
        }
        let bit = self.bit_below(depth);
        let old = std::mem::take(&mut self.segments[i].table);
        let freed = old.allocation_size();
        let moved = old.len();
        let [mut low, mut high] = [(); 2].map(|()| HashTable::with_capacity(SEGMENT_ITEMS_MAX));
        let [mut low_ms, mut high_ms] = [i64::MAX; 2];
        for item in old {
            let position = item.position();
            let (table, deadline_ms) =
                if position & bit == 0 { (&mut low, &mut low_ms) } else { (&mut high, &mut high_ms) };
            *deadline_ms = item.deadline_ms().min(*deadline_ms);
            table.insert_unique(spread(position), item, hash_of);
        }
        self.tables_bytes = self.tables_bytes + low.allocation_size() + high.allocation_size() - freed;
        let segment = &mut self.segments[i];
        (segment.table, segment.deadline_ms, segment.depth) = (low, low_ms, depth + 1);
        let start = segment.start | bit;
        self.segments.push(Segment { table: high, start, deadline_ms: high_ms, depth: depth + 1 });
        self.deepest += if depth + 1 == self.depth { 2 } else { 0 };
        self.label(self.segments.len() - 1);
        self.moved(moved);
        true
    }
    /// Puts two buddies into one segment; its index.
    fn merge(&mut self, a: usize, b: usize) -> usize {
        let (mut kept, gone) = if self.segments[a].start < self.segments[b].start { (a, b) } else { (b, a) };
        if self.segments[kept].depth == self.depth {
            self.deepest -= 2;
        }
        let buddy = self.segments.swap_remove(gone);
        if gone < self.segments.len() {
            self.label(gone); // The last segment took the place of the one that went.
        }
        if kept == self.segments.len() {
            kept = gone;
        }
        let (freed, moved) = (buddy.table.allocation_size(), buddy.table.len());
        let segment = &mut self.segments[kept];
        let before = segment.table.allocation_size();
        segment.depth -= 1;
        segment.deadline_ms = segment.deadline_ms.min(buddy.deadline_ms);
        segment.table.reserve(moved, hash_of);
        for item in buddy.table {
            segment.table.insert_unique(hash_of(&item), item, hash_of);
        }
        self.tables_bytes = self.tables_bytes + segment.table.allocation_size() - before - freed;
        let moved = segment.table.len();
        self.label(kept);
        self.moved(moved);
        while self.deepest == 0 && self.depth > 0 {
            self.halve_directory();
        }
        if self.segments.len() < self.segments.capacity() / 4 {
            self.segments.shrink_to(self.segments.len() * 2);
        }
        kept
    }
    /// The only segment: its table follows its items down, to nothing.
    fn shrink_last(&mut self) {
        if self.len == 0 {
            *self = Segmented { moved_max: self.moved_max, ..Segmented::new(self.base_bits) };
            return;
        }
        let table = &mut self.segments[0].table;
        let buckets = table.num_buckets();
        if buckets > SHRUNK_BUCKETS_MIN && table.len() * 8 <= buckets {
            let before = table.allocation_size();
            let moved = table.len();
            table.shrink_to(moved * 2, hash_of);
            self.tables_bytes = self.tables_bytes + table.allocation_size() - before;
            self.moved(moved);
        }
    }
    /// Moves a segment's items to a fresh table of the same size: removed items may leave marks that take up room.
    fn rebuild(&mut self, i: usize) {
        let segment = &mut self.segments[i];
        let old = std::mem::replace(&mut segment.table, HashTable::with_capacity(SEGMENT_ITEMS_MAX));
        self.tables_bytes = self.tables_bytes + segment.table.allocation_size() - old.allocation_size();
        let moved = old.len();
        for item in old {
            segment.table.insert_unique(hash_of(&item), item, hash_of);
        }
        self.moved(moved);
    }
    /// Lets the directory say that segment `i` holds all positions of its range.
    fn label(&mut self, i: usize) {
        let segment = &self.segments[i];
        let first = (segment.start >> self.shift) as usize & (self.directory.len() - 1);
        let entries = 1 << (self.depth - segment.depth);
        self.directory[first..first + entries].fill(i as u32);
    }
    fn double_directory(&mut self) -> bool {
        if self.directory.len() * 2 > self.segments.len() * DIRECTORY_PER_SEGMENT_MAX {
            return false;
        }
        self.directory = self.directory.iter().flat_map(|i| [*i, *i]).collect();
        self.depth += 1;
        self.shift -= 1;
        self.deepest = 0;
        true
    }
    fn halve_directory(&mut self) {
        self.directory = self.directory.iter().step_by(2).copied().collect();
        self.depth -= 1;
        self.shift += 1;
        self.deepest = self.segments.iter().filter(|s| s.depth == self.depth).count() as u32;
    }
    fn moved(&mut self, items: usize) {
        self.moved_max = self.moved_max.max(items as u32);
    }
}
