//! [`Patience`]: how long a run waits for the program that extracts a document.
//!
//! A paused run, or one that Ctrl-Z has stopped, waits for nothing meanwhile. So the run waits in slices. All time counts,
//! also between two waits, but a stop counts as [`SLICE_COUNTED_MAX`] at most.

use std::time::{Duration, Instant};

/// Maximum time of one wait.
const SLICE: Duration = Duration::from_millis(250);
/// Maximum time that one wait counts. More than [`SLICE`], because on a busy machine a wait ends late. What takes longer
/// is a stop.
const SLICE_COUNTED_MAX: Duration = Duration::from_secs(1);

/// The time that is left for an answer.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
    counted_until: Instant,
}

impl Patience {
    /// Patience for `time`, which begins now.
    pub(super) fn new(time: Duration) -> Patience {
        Patience { left: time, counted_until: Instant::now() }
    }

    /// Calls `wait` with the time that `wait` may take, until `wait` returns something. `None` when no time is left.
    pub(super) fn wait<T>(&mut self, mut wait: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        while !self.left.is_zero() {
            let found = wait(self.left.min(SLICE));
            self.count(self.counted_until.elapsed());
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn count(&mut self, took: Duration) {
        self.left = match took <= SLICE_COUNTED_MAX {
            true => self.left.saturating_sub(took),
            // One more slice, in which the run finds the answer that came during the stop.
            false => self.left.saturating_sub(SLICE_COUNTED_MAX).max(SLICE),
        };
        self.counted_until = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_counts_as_one_slice_and_leaves_a_slice() {
        let mut patience = Patience::new(Duration::from_secs(3));
        let stop = Duration::from_secs(3600);
        patience.count(stop);
        assert_eq!(patience.left, Duration::from_secs(2));
        patience.count(Duration::from_millis(500));
        assert_eq!(patience.left, Duration::from_millis(1_500));
        patience.count(stop);
        patience.count(stop);
        assert_eq!(patience.left, SLICE);
        patience.count(SLICE);
        assert_eq!(patience.wait(|_| Some(7)), None);
    }

    /// A program that sends its answer byte by byte gets no more time.
    #[test]
    fn waits_that_bring_something_count() {
        let mut patience = Patience::new(Duration::from_secs(600));
        let piece = Duration::from_millis(2);
        for _ in 0..3 {
            let began = Instant::now();
            let brings = |_| {
                while began.elapsed() < piece {}
                Some(7)
            };
            assert_eq!(patience.wait(brings), Some(7));
        }
        assert!(patience.left <= Duration::from_secs(600) - 3 * piece, "{patience:?}");
    }
}
