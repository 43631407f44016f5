//! [`Retries`]: when the parked commands of a worker are tried again.
//!
//! A command that waits for a snapshot or for the indexes is parked and asks again. If each of 2,000 clients asked once a
//! millisecond, the workers would spend a quarter of their time on the answers. So the retries of one worker have a distance
//! from each other, and the command that was parked first is tried first.
//!
//! Left out: commands that wait for memory, because each retry evicts some records.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Workers with the same number modulo this share a place.
const SLOTS: usize = 16;
/// Time between two retries of one worker. Up to 50 parked commands are tried once a millisecond, 1,000 once in 20 ms.
const DISTANCE_US: u64 = 20;

/// The time of the last retry of each worker.
#[derive(Debug, Default)]
pub(crate) struct Retries([AtomicU64; SLOTS]);

impl Retries {
    /// The time of the next retry of a command on this worker, `at_us` or later.
    pub(crate) fn next(&self, worker: usize, at_us: u64) -> u64 {
        let last = &self.0[worker % SLOTS];
        // Only workers that share a place change it at a time. Then two commands may get one time.
        let next = at_us.max(last.load(Relaxed) + DISTANCE_US);
        last.store(next, Relaxed);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_commands_are_tried_one_after_the_other_and_few_at_once() {
        let retries = Retries::default();
        let at: Vec<u64> = (0..100).map(|_| retries.next(1, 1_000_000)).collect();
        assert_eq!(at, (0..100).map(|i| 1_000_000 + i * DISTANCE_US).collect::<Vec<_>>());
        assert_eq!(retries.next(2, 1_000_000), 1_000_000, "another worker");
        assert_eq!(retries.next(1, 2_000_000), 2_000_000, "the others have been tried");
    }
}
