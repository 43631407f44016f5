//! The table with positions chosen by hand, against a BTreeMap of them.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// An item that is told its position and deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    position: u64,
    number: u32,
    deadline_ms: i64,
}

impl Item for Told {
    fn position(&self) -> u64 {
        self.position
    }
    fn deadline_ms(&self) -> i64 {
        self.deadline_ms
    }
}

fn told(position: u64, number: u32) -> Told {
    Told { position, number, deadline_ms: i64::MAX }
}
fn spread_out(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(..1 << POSITION_BITS)
}

impl<T: Item> Segmented<T> {
    /// Every invariant that holds between two operations.
    fn check(&self) {
        assert_eq!(self.directory.len(), if self.segments.is_empty() { 0 } else { 1 << self.depth });
        assert_eq!(u32::from(self.shift), POSITION_BITS - u32::from(self.base_bits + self.depth));
        assert_eq!(self.len, self.segments.iter().map(|s| s.table.len()).sum::<usize>());
        assert_eq!(self.tables_bytes, self.segments.iter().map(|s| s.table.allocation_size()).sum::<usize>());
        assert_eq!(self.deepest as usize, self.segments.iter().filter(|s| s.depth == self.depth).count());
        let mut entries = 0;
        for (i, segment) in self.segments.iter().enumerate() {
            let mine: Vec<_> =
                self.directory.iter().enumerate().filter(|e| *e.1 == i as u32).map(|e| e.0).collect();
            assert_eq!(mine.len(), 1 << (self.depth - segment.depth), "entries of segment {i}");
            assert_eq!(mine[mine.len() - 1] - mine[0], mine.len() - 1, "side by side");
            entries += mine.len();
            let size = 1u64 << (POSITION_BITS - u32::from(self.base_bits + segment.depth));
            assert_eq!(segment.start % size, 0);
            for item in &segment.table {
                assert!((segment.start..segment.start + size).contains(&item.position()));
                assert!(segment.deadline_ms <= item.deadline_ms());
            }
            assert!(self.deadline_ms <= segment.deadline_ms);
        }
        assert_eq!(entries, self.directory.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Grows to thousands and shrinks again in turns, with positions spread out or crowded in a corner.
    #[test]
    fn does_what_a_set_does(
        seed in any::<u64>(),
        base_bits in prop_oneof![Just(0u8), Just(3), Just(10)],
        crowded in any::<bool>(),
        turns in prop::collection::vec((any::<bool>(), 1..3000usize), 1..6),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut table, mut twin) = (Segmented::new(base_bits), BTreeSet::new());
        // The table's share of all positions: the last.
        let range = 1u64 << (POSITION_BITS - u32::from(base_bits));
        let start = (1 << POSITION_BITS) - range;
        for (grow, many) in turns {
            for _ in 0..many {
                if grow || twin.is_empty() {
                    let within = if crowded { range >> 12 } else { range };
                    let item = told(start + rng.u64(..within), rng.u32(..2));
                    let there = table.locate(item.position, |t: &Told| *t == item);
                    prop_assert_eq!(there.is_some(), twin.contains(&item));
                    if there.is_none() {
                        table.insert_new(item);
                        twin.insert(item);
                    }
                } else {
                    let from = told(start + rng.u64(..range), 0);
                    let item = *twin.range(from..).next().or(twin.first()).expect("not empty");
                    let at = table.locate(item.position, |t| *t == item).expect("the twin has it");
                    prop_assert_eq!(table.remove_at(at), item);
                    twin.remove(&item);
                }
            }
            table.check();
            prop_assert_eq!(table.iter().copied().collect::<BTreeSet<_>>(), twin.clone());
            let shape = table.shape();
            prop_assert!(crowded || shape.moved_max <= SEGMENT_ITEMS_MAX, "{:?}", shape);
            // A scan in steps of any size sees each once, in order of position from step to step.
            let (mut next, mut seen, step) = (Some(start), Vec::new(), rng.usize(1..700));
            while let Some(from) = next {
                let mut stretch = Vec::new();
                let (visited, then) = table.scan_step(from, step, &mut |t| stretch.push(*t));
                prop_assert_eq!(visited, stretch.len());
                stretch.sort_unstable();
                seen.extend(stretch);
                next = then;
            }
            prop_assert!(seen.iter().eq(&twin));
        }
    }
}

#[test]
fn all_of_one_position_stay_together_and_cost_no_directory() {
    let mut table = Segmented::new(4);
    let position = 0x123_4567_89ab;
    let position = position & ((1 << POSITION_BITS) - 1);
    for number in 0..5000 {
        table.insert_new(told(position, number));
        table.insert_new(told(position ^ 1, number));
    }
    table.check();
    let shape = table.shape();
    assert!(shape.directory <= DIRECTORY_PER_SEGMENT_MAX * shape.segments, "{shape:?}");
    let mut seen = 0;
    let (visited, next) = table.scan_step(position, 10, &mut |_| seen += 1);
    assert_eq!((visited, seen), (5000, 5000), "all of one position in one step");
    assert!(next.is_some());
    for number in 0..5000 {
        let at = table.locate(position, |t: &Told| t.number == number).expect("it is there");
        assert_eq!(table.remove_at(at).number, number);
    }
    table.check();
    assert_eq!(table.len(), 5000);
}

#[test]
fn churn_at_one_size_neither_grows_nor_moves_more_than_a_segment() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut table = Segmented::new(0);
    let mut there: Vec<Told> = Vec::new();
    let mut bytes_max_after_growth = 0;
    for i in 0..60_000u32 {
        let item = told(spread_out(&mut rng), i);
        table.insert_new(item);
        there.push(item);
        if there.len() > 5000 {
            let old = there.swap_remove(rng.usize(..there.len()));
            let at = table.locate(old.position, |t: &Told| *t == old).expect("it is there");
            table.remove_at(at);
            bytes_max_after_growth = bytes_max_after_growth.max(table.heap_bytes());
        }
    }
    table.check();
    let shape = table.shape();
    assert!(shape.moved_max <= SEGMENT_ITEMS_MAX, "{shape:?}");
    // 24-byte items in tables that are half full at worst, and the segments' own headers.
    assert!(bytes_max_after_growth < 5000 * 25 * 5 / 2, "{bytes_max_after_growth}");
}

#[test]
fn expiry_opens_only_segments_with_something_due() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut table = Segmented::new(0);
    let mut due: BTreeMap<i64, usize> = BTreeMap::new();
    for number in 0..20_000 {
        let deadline_ms = if number % 10 == 0 { i64::MAX } else { rng.i64(1..1000) };
        *due.entry(deadline_ms).or_default() += 1;
        table.insert_new(Told { deadline_ms, ..told(spread_out(&mut rng), number) });
    }
    for now_ms in [0, 1, 10, 500, 998, 999, 1000] {
        let mut expired = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = table.expire_step(from, now_ms, &mut expired).1;
        }
        assert!(expired.iter().all(|t: &Told| t.deadline_ms <= now_ms));
        let later = due.split_off(&(now_ms + 1));
        assert_eq!(expired.len(), due.values().sum::<usize>(), "at {now_ms}");
        due = later;
        table.check();
        // Now that it was walked to the end, nothing is due before the earliest deadline that is left.
        assert_eq!(table.deadline_ms(), *due.keys().next().expect("some never expire"));
        assert_eq!(table.expire_step(0, now_ms, &mut expired), (0, None));
    }
    assert_eq!(table.len(), 2000);
}

#[test]
fn an_empty_table_holds_nothing() {
    let mut table: Segmented<Told> = Segmented::new(6);
    assert_eq!((table.heap_bytes(), table.locate(5, |_| true), table.iter().count()), (0, None, 0));
    assert_eq!(table.scan_step(0, 10, &mut |_| panic!("nothing is there")), (0, None));
    assert!(table.random(&mut fastrand::Rng::with_seed(1)).is_none());
    table.insert_new(told(5, 5));
    let at = table.locate(5, |t| t.number == 5).expect("just inserted");
    table.remove_at(at);
    assert_eq!(table.heap_bytes(), 0, "given back with the last item");
    table.check();
}
