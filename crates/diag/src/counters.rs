//! [`Counters`]: numbered counters. Many threads add to them without sharing cache lines.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of counters in one cache line.
const PER_LINE: usize = 8;

/// A cache line of counters. Aligned to 128 bytes, because processors fetch neighbouring lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; PER_LINE]);

/// The counters `0..len`, in one copy for each slot (a worker, or a group of sessions).
#[derive(Debug)]
pub struct Counters {
    lines: Box<[Line]>,
    lines_per_slot: usize,
    /// Number of copies of each counter, a power of two.
    slots: usize,
}

impl Counters {
    /// `len` counters, all 0, in `slots` copies (rounded up to a power of two). Memory: 16 bytes per counter and
    /// copy.
    pub fn new(len: usize, slots: usize) -> Counters {
        let slots = slots.next_power_of_two();
        let lines_per_slot = len.div_ceil(PER_LINE);
        Counters {
            lines: (0..lines_per_slot * slots).map(|_| Line::default()).collect(),
            lines_per_slot,
            slots,
        }
    }
    /// Adds `n` to counter `index` in the copy of `slot` (taken modulo the number of copies).
    ///
    /// # Panics
    /// When `index` is past the last counter by a cache line or more.
    #[inline]
    pub fn add(&self, slot: usize, index: usize, n: u64) {
        self.cell(slot & (self.slots - 1), index).fetch_add(n, Ordering::Relaxed);
    }
    /// The sum of counter `index` over all copies. Concurrent additions may be missing.
    pub fn get(&self, index: usize) -> u64 {
        (0..self.slots).fold(0, |sum, slot| sum.wrapping_add(self.cell(slot, index).load(Ordering::Relaxed)))
    }
    /// Sets counter `index` to 0. Concurrent additions may survive.
    pub fn reset(&self, index: usize) {
        (0..self.slots).for_each(|slot| self.cell(slot, index).store(0, Ordering::Relaxed));
    }
    #[inline]
    fn cell(&self, slot: usize, index: usize) -> &AtomicU64 {
        assert!(index / PER_LINE < self.lines_per_slot, "counter {index} is past the end");
        &self.lines[slot * self.lines_per_slot + index / PER_LINE].0[index % PER_LINE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_many_threads_add_up() {
        let counters = Counters::new(11, 3);
        std::thread::scope(|s| {
            for slot in 0..8 {
                let counters = &counters;
                s.spawn(move || (0..1000).for_each(|i| counters.add(slot, i % 11, 2)));
            }
        });
        assert_eq!((0..11).map(|i| counters.get(i)).sum::<u64>(), 16_000);
        counters.reset(3);
        assert_eq!(counters.get(3), 0);
        assert!(counters.get(4) > 0);
    }

    #[test]
    #[should_panic(expected = "counter 8 is past the end")]
    fn a_counter_past_the_last_cache_line_panics() {
        Counters::new(8, 2).add(0, 8, 1);
    }
}
