//! [`Pace`]: how fast the indexes take changed keys, and so how much may wait.
//!
//! A search waits for the keys that were changed before it. Writers that are faster than the indexes would make that wait
//! grow without a limit, so they wait once [`Pace::waiting_bytes_max`] wait. The measure is bytes of records
//! ([`strand_keyspace::Touched::bytes`]), because a document of 5 MB takes as long as thousands of small ones.

use std::time::Duration;

/// A search waits about this long for changed keys, at most. The commit comes in addition.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// At most this many bytes may wait. The names of the keys are in memory.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// A byte of text counts as at least this many nanoseconds. The last documents of a drain are still in the library's
/// thread when the drain ends, so the time for a few large documents is not seen. Hashes of 5 MB took 21 ns a byte.
const BYTE_NS: u64 = 20;
/// The background releases the follow lock after work for about this time.
const PART: Duration = Duration::from_millis(20);
/// Once this much time is measured, what was measured before counts less: half of it is forgotten.
const MEMORY: Duration = Duration::from_millis(250);

/// The bytes that were indexed lately, and the time for them.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes: u64,
    time: Duration,
}

impl Default for Pace {
    /// Before the first measurement, 12 MB a second: hashes of 1 KB with one TEXT field.
    fn default() -> Pace {
        Pace { bytes: 120_000, time: Duration::from_millis(10) }
    }
}

impl Pace {
    /// Notes that the indexes took `bytes` of changed keys within `time`, and that `text_bytes` of texts were in them.
    pub(crate) fn note(&mut self, bytes: usize, text_bytes: usize, time: Duration) {
        self.bytes += bytes as u64;
        self.time += time.max(Duration::from_nanos(text_bytes as u64 * BYTE_NS));
        while self.time > MEMORY {
            (self.bytes, self.time) = (self.bytes.div_ceil(2), self.time / 2);
        }
    }
    /// Bytes of changed keys that may wait.
    pub(crate) fn waiting_bytes_max(&self) -> usize {
        self.bytes_within(WAIT_MAX).min(WAITING_BYTES_MAX)
    }
    /// Bytes of changed keys after which the background releases the follow lock.
    pub(crate) fn part_bytes(&self) -> usize {
        self.bytes_within(PART)
    }
    /// Bytes of changed keys that the indexes take within `time`, at least one.
    pub(crate) fn bytes_within(&self, time: Duration) -> usize {
        let bytes = u128::from(self.bytes) * time.as_nanos() / self.time.as_nanos().max(1);
        usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_may_wait_as_is_indexed_in_a_quarter_second() {
        let mut pace = Pace::default();
        assert_eq!((pace.waiting_bytes_max(), pace.part_bytes()), (3_000_000, 240_000));
        (0..100).for_each(|_| pace.note(1_000_000, 0, Duration::from_millis(200)));
        let slow = pace.waiting_bytes_max();
        assert!((1_200_000..1_400_000).contains(&slow), "5 MB a second: {slow}");
        (0..100).for_each(|_| pace.note(1_000_000, 0, Duration::from_millis(20)));
        let fast = pace.waiting_bytes_max();
        assert!((11_500_000..12_600_000).contains(&fast), "50 MB a second: {fast}");
        (0..6).for_each(|_| pace.note(1_000_000, 50_000_000, Duration::ZERO));
        let seen_by_its_texts = pace.waiting_bytes_max();
        assert!((250_000..300_000).contains(&seen_by_its_texts), "1 MB a second: {seen_by_its_texts}");
        pace.note(1, 0, Duration::from_secs(3600));
        assert!((1..100).contains(&pace.waiting_bytes_max()), "{pace:?}");
        (0..100).for_each(|_| pace.note(usize::MAX / 1000, 0, Duration::from_millis(200)));
        assert_eq!(pace.waiting_bytes_max(), WAITING_BYTES_MAX);
    }
}
