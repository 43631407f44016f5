//! [`Patience`]: how long a run waits for the program that extracts a document.
//!
//! A paused run, or one that Ctrl-Z has stopped, waits for nothing meanwhile. So the run waits in slices, and a slice that
//! took longer counts as [`SLICE_COUNTED_MAX`].

use std::time::{Duration, Instant};

/// Maximum time of one wait.
const SLICE: Duration = Duration::from_millis(250);
/// Maximum time that one wait counts. More than [`SLICE`], because on a busy machine a wait ends late.
const SLICE_COUNTED_MAX: Duration = Duration::from_secs(1);

/// Time of the last wait.
const LAST: Duration = Duration::from_millis(1);

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

    /// Calls `wait` with the time that `wait` may take, until `wait` returns something. `None` when no time is left. Before
    /// that comes a last call, so that an answer that came during a stop is not lost.
    pub(super) fn wait<T>(&mut self, mut wait: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        while !self.left.is_zero() {
            if let Some(found) = wait(self.left.min(SLICE)) {
                return Some(found);
            }
            self.count(self.counted_until.elapsed());
        }
        wait(LAST)
    }

    fn count(&mut self, took: Duration) {
        self.left = self.left.saturating_sub(took.min(SLICE_COUNTED_MAX));
        self.counted_until = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_counts_as_one_slice() {
        let mut patience = Patience::new(Duration::from_secs(3));
        patience.count(Duration::from_secs(3600));
        assert_eq!(patience.left, Duration::from_secs(2));
        assert_eq!(patience.wait(|slice| (slice <= SLICE).then_some(7)), Some(7));
        patience.count(Duration::from_millis(500));
        assert_eq!(patience.left, Duration::from_millis(1_500));
        patience.count(Duration::from_secs(3600));
        patience.count(Duration::from_secs(3600));
        let mut waits = Vec::new();
        assert_eq!(
            patience.wait(|slice| -> Option<()> {
                waits.push(slice);
                None
            }),
            None
        );
        assert_eq!(waits, [LAST]);
    }
}
