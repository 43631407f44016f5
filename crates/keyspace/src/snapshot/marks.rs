//! [`Marks`]: the set of the keys that one shard's part of a snapshot has marked.
//!
//! A write during a snapshot looks its key up here. The search for a mark begins at a place that follows from the key's
//! position, so the look-ahead of a pipeline prefetches the first cache line without hashing the key. The set consists
//! of parts that grow one by one, so no write waits until a large table has grown. (`cargo bench -p
//! strand-keyspace --bench keyspace`, rows "overwrite": a write that keeps a record costs 680 ns, and 390 ns when the
//! record is kept already. With a hash table of the standard form these writes cost 940 and 900 ns.)

use strand_chain::{CACHE_LINE_BYTES, prefetch};

/// Minimum number of expected marks per part. A part gets at most twice this number, unless more keys are added than the
/// shard had records.
const PART_MARKS: usize = 1024;
/// Number of slots of a part with its first mark.
const FIRST_SLOTS: usize = 8;
/// An odd number, the golden ratio of 2^64, which spreads positions over parts and slots (Knuth, The Art of Computer
/// Programming, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mark of a key in one database: the key's position (40 bits), and 63 bits of another keyed hash of the key and the
/// database. In a snapshot with 10^9 records, any two keys have equal marks with a probability of 10^-10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    position: u64,
    /// An odd number. 0 in an empty slot.
    check: u64,
}

impl Mark {
    /// The mark of a key with this position and this other hash.
    pub(super) fn new(position: u64, hash: u64) -> Mark {
        Mark { position, check: hash | 1 }
    }
    fn is_empty(self) -> bool {
        self.check == 0
    }
}

/// A set of marks: see the module.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// A power of two. Empty until the first mark.
    parts: Box<[Part]>,
    /// Number of marks for which the parts are made.
    expected: usize,
    bytes: usize,
}

/// An open hash table: a mark lies in the first free slot at or after its own.
#[derive(Debug, Default)]
struct Part {
    /// A power of two.
    slots: Box<[Mark]>,
    len: usize,
}

impl Marks {
    /// An empty set for about `expected` marks. Allocates nothing.
    pub(super) fn new(expected: usize) -> Marks {
        Marks { expected, ..Marks::default() }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    /// Heap bytes of the set.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Adds a mark. Returns true if the mark is new.
    pub(super) fn insert(&mut self, mark: Mark) -> bool {
        if self.parts.is_empty() {
            let parts = (self.expected / PART_MARKS).next_power_of_two();
            self.parts = (0..parts).map(|_| Part::default()).collect();
            self.bytes = parts * size_of::<Part>();
        }
        let part = self.part_of(mark.position);
        let part = &mut self.parts[part];
        if part.has(mark) {
            return false;
        }
        self.bytes += part.make_room();
        part.put(mark);
        true
    }
    pub(super) fn contains(&self, mark: Mark) -> bool {
        self.parts.get(self.part_of(mark.position)).is_some_and(|part| part.has(mark))
    }
    /// Asks the processor to load the line at which the search for a mark with this position begins.
    pub(super) fn prefetch(&self, position: u64) {
        if let Some(part) = self.parts.get(self.part_of(position))
            && let Some(slot) = part.slots.get(part.slot_of(position))
        {
            prefetch(slot, CACHE_LINE_BYTES);
        }
    }
    fn part_of(&self, position: u64) -> usize {
        // The highest bits of the product: they depend on all bits of the position.
        let bits = self.parts.len().checked_ilog2().unwrap_or(0);
        position.wrapping_mul(SPREAD).unbounded_shr(u64::BITS - bits) as usize
    }
}

impl Part {
    /// The slot at which the search for a key's mark begins.
    fn slot_of(&self, position: u64) -> usize {
        // Other bits of the product than those of `Marks::part_of`.
        (position.wrapping_mul(SPREAD) >> 24) as usize & self.slots.len().wrapping_sub(1)
    }
    fn has(&self, mark: Mark) -> bool {
        self.find(mark).is_some_and(|slot| self.slots[slot] == mark)
    }
    /// The slot of `mark`, or the empty slot where it would be. `None` in a part without slots.
    fn find(&self, mark: Mark) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut slot = self.slot_of(mark.position);
        // A quarter of the slots is empty, so the search ends.
        while self.slots[slot] != mark && !self.slots[slot].is_empty() {
            slot = (slot + 1) & last;
        }
        Some(slot)
    }
    /// Doubles the slots when three quarters of them are used. Returns the additional bytes.
    fn make_room(&mut self) -> usize {
        if self.len * 4 < self.slots.len() * 3 {
            return 0;
        }
        let before = self.slots.len();
        let slots = (2 * before).max(FIRST_SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![Mark::default(); slots].into());
        self.len = 0;
        old.iter().filter(|mark| !mark.is_empty()).for_each(|mark| self.put(*mark));
        (slots - before) * size_of::<Mark>()
    }
    /// Adds a mark that is not there. The part has an empty slot.
    fn put(&mut self, mark: Mark) {
        if let Some(slot) = self.find(mark) {
            self.slots[slot] = mark;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extendible::POSITION_BITS;
    use std::collections::HashSet;

    /// Marks of a shard, whose positions all begin with the same bits.
    fn random(rng: &mut fastrand::Rng, shards_bits: u32) -> Mark {
        let position = rng.u64(..1 << (POSITION_BITS - shards_bits)) | 1 << (POSITION_BITS - 1);
        Mark::new(position, rng.u64(..))
    }

    #[test]
    fn marks_are_a_set_at_any_number_of_records() {
        for (records, marked) in [(0, 5_000), (1, 1), (1_023, 3_000), (1_024, 100), (50_000, 60_000)] {
            for shards_bits in [1, 10, 30] {
                let mut rng = fastrand::Rng::with_seed(records as u64);
                let (mut marks, mut twin) = (Marks::new(records), HashSet::new());
                assert!(marks.is_empty() && marks.bytes() == 0);
                for _ in 0..marked {
                    let mark = random(&mut rng, shards_bits);
                    let neighbour = Mark { check: mark.check ^ 2, ..mark };
                    marks.prefetch(mark.position);
                    assert!(!marks.contains(neighbour));
                    assert!(!marks.contains(mark));
                    assert!(marks.insert(mark));
                    assert!(!marks.insert(mark));
                    twin.insert((mark.position, mark.check));
                }
                for (position, check) in &twin {
                    assert!(marks.contains(Mark { position: *position, check: *check }));
                }
                assert_eq!(marks.parts.iter().map(|part| part.len).sum::<usize>(), twin.len());
                let slots: usize = marks.parts.iter().map(|part| part.slots.len()).sum();
                assert_eq!(marks.bytes(), slots * size_of::<Mark>() + marks.parts.len() * size_of::<Part>());
            }
        }
    }

    /// The cost of a mark stays flat: marks spread evenly over parts and slots.
    #[test]
    fn marks_spread_over_parts_and_slots() {
        let records = 64 * PART_MARKS;
        let (mut rng, mut marks) = (fastrand::Rng::with_seed(1), Marks::new(records));
        (0..records).for_each(|_| assert!(marks.insert(random(&mut rng, 8))));
        for part in &marks.parts {
            assert!((PART_MARKS / 2..PART_MARKS * 2).contains(&part.len), "{} marks in a part", part.len);
            let steps = |(slot, mark): (usize, &Mark)| {
                slot.wrapping_sub(part.slot_of(mark.position)) & (part.slots.len() - 1)
            };
            let marks = part.slots.iter().enumerate().filter(|(_, mark)| !mark.is_empty());
            let steps: usize = marks.map(steps).sum();
            assert!(steps < 3 * part.len, "{steps} steps for {} marks", part.len);
        }
    }
}
