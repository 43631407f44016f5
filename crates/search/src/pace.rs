//! [`Pace`]: how fast the indexes take changed keys, and so how many keys may wait.
//!
//! A search waits for the keys that were changed before it. Writers that are faster than the indexes would make that wait
//! grow without a limit, so they wait once [`Pace::waiting_max`] keys wait.

use std::time::Duration;

/// A search waits about this long for changed keys, at most. The commit comes in addition.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// At most this many keys may wait, each with its name in memory.
const WAITING_MAX: usize = 1_000_000;
/// A byte of text counts as at least this many nanoseconds. The last documents of a drain are still in the library's
/// thread when the drain ends, so the time for a few large documents is not seen. Hashes of 5 MB took 21 ns a byte.
const BYTE_NS: u64 = 20;
/// The background releases the follow lock after keys for about this time.
const PART: Duration = Duration::from_millis(20);
/// Once this much time is measured, older keys count less: half of what is measured is forgotten.
const MEMORY: Duration = Duration::from_millis(250);

/// The number of keys that were indexed lately, and the time for them.
#[derive(Debug)]
pub(crate) struct Pace {
    keys: u64,
    time: Duration,
}

impl Default for Pace {
    /// Before the first measurement, 1 ms a key: a large document. The first keys correct this.
    fn default() -> Pace {
        Pace { keys: 10, time: Duration::from_millis(10) }
    }
}

impl Pace {
    /// Notes that the indexes took `keys` keys within `time`, and `text_bytes` of texts in these keys.
    pub(crate) fn note(&mut self, keys: usize, text_bytes: usize, time: Duration) {
        self.keys += keys as u64;
        self.time += time.max(Duration::from_nanos(text_bytes as u64 * BYTE_NS));
        while self.time > MEMORY {
            (self.keys, self.time) = (self.keys.div_ceil(2), self.time / 2);
        }
    }
    /// The number of keys that may wait.
    pub(crate) fn waiting_max(&self) -> usize {
        self.keys_within(WAIT_MAX).clamp(1, WAITING_MAX)
    }
    /// The number of keys after which the background releases the follow lock.
    pub(crate) fn part(&self) -> usize {
        self.keys_within(PART).max(1)
    }
    /// The number of keys that the indexes take within `time`.
    pub(crate) fn keys_within(&self, time: Duration) -> usize {
        let keys = u128::from(self.keys) * time.as_nanos() / self.time.as_nanos().max(1);
        usize::try_from(keys).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_keys_may_wait_as_are_indexed_in_a_quarter_second() {
        let mut pace = Pace::default();
        assert_eq!((pace.waiting_max(), pace.part()), (250, 20));
        (0..100).for_each(|_| pace.note(1000, 0, Duration::from_millis(200)));
        let slow = pace.waiting_max();
        assert!((1200..1400).contains(&slow), "5,000 keys a second: {slow}");
        (0..100).for_each(|_| pace.note(1000, 0, Duration::from_millis(20)));
        let fast = pace.waiting_max();
        assert!((11_500..12_600).contains(&fast), "50,000 keys a second: {fast}");
        (0..6).for_each(|_| pace.note(1, 50_000_000, Duration::ZERO));
        assert_eq!(pace.waiting_max(), 1, "a second for each key, which the library has taken at once");
        pace.note(1, 0, Duration::from_secs(3600));
        assert_eq!((pace.waiting_max(), pace.part()), (1, 1));
        (0..100).for_each(|_| pace.note(10_000_000, 0, Duration::from_millis(200)));
        assert_eq!(pace.waiting_max(), WAITING_MAX);
        pace.note(usize::MAX / 2, 0, Duration::ZERO);
        assert_eq!(pace.waiting_max(), WAITING_MAX);
    }
}
