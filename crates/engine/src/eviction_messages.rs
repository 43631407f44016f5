//! [`Echo`]: the memory of messages about evicted keys. This memory must not cause more eviction.
//!
//! An evicted key may cause a message to each client that has a copy of the key (CLIENT TRACKING) or listens
//! (`notify-keyspace-events`). The messages wait in the server until the clients' sockets take them. Without this module, an
//! eviction of 300 KB evicted all 10,000 keys that 200 clients had copies of, within 2.5 s, because each slice of eviction
//! saw the messages of the slices before.
//!
//! While keys are evicted and somebody listens, growth of memory that is no data and that the clients' waiting messages
//! explain is the *echo*. It is left out of the memory that counts against the limit. What waits for long counts again.

use crate::{Engine, Now};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The echo is measured at this interval, and memory is not sampled in between.
const MEASURED_EVERY_US: u64 = 10_000;
/// Memory of a client for whom anything waits, besides the bytes themselves: a block of output and its list.
const BLOCK_BYTES: u64 = 20 << 10;
/// A message on its way to a worker takes up to this many times its bytes.
const MESSAGE_PARTS: u64 = 3;
/// Each measurement moves the figures from before the eviction by one part in this number towards the figures of now: what
/// waits for longer than about twenty seconds counts against the limit again.
const FORGOTTEN_PART: u64 = 2048;
/// Time after the last eviction until the figures from before the next eviction are taken.
const QUIET_US: u64 = 2_000_000;

/// The memory that messages about evicted keys take. See the module.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    bytes: AtomicU64,
    /// The time of the last eviction, on the clock of [`Now::mono_us`].
    evicted_us: AtomicU64,
    before: Mutex<Figures>,
}

/// Bytes that wait for clients, and bytes that are no data, at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    taken_us: u64,
    waiting_bytes: u64,
    other_bytes: u64,
}

impl Echo {
    /// Bytes that do not count against the limit.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Call this when keys were evicted.
    pub(crate) fn note_eviction(&self, now: Now) {
        self.evicted_us.store(now.mono_us.max(1), Relaxed);
    }
    fn is_evicting(&self, now: Now) -> bool {
        let evicted_us = self.evicted_us.load(Relaxed);
        evicted_us > 0 && now.mono_us.saturating_sub(evicted_us) < QUIET_US
    }
    /// Measures the echo. `other_bytes`: memory that is no data.
    fn measure(&self, waiting_bytes: u64, other_bytes: u64, now: Now) {
        let before = &mut *self.before.lock();
        before.taken_us = now.mono_us;
        if !self.is_evicting(now) {
            (before.waiting_bytes, before.other_bytes) = (waiting_bytes, other_bytes);
            return self.bytes.store(0, Relaxed);
        }
        for (then, current) in
            [(&mut before.waiting_bytes, waiting_bytes), (&mut before.other_bytes, other_bytes)]
        {
            *then = (*then * (FORGOTTEN_PART - 1) + current) / FORGOTTEN_PART;
        }
        let waits = waiting_bytes.saturating_sub(before.waiting_bytes);
        self.bytes.store(waits.min(other_bytes.saturating_sub(before.other_bytes)), Relaxed);
    }
}

impl Engine {
    /// Samples the memory for the background. While eviction tells clients about keys, only every
    /// [`MEASURED_EVERY_US`], with the echo.
    pub(crate) fn sample_memory_and_echo(&self, now: Now) {
        if !self.notices.listens() {
            self.echo.bytes.store(0, Relaxed);
            return self.sample_memory();
        }
        let taken_us = self.echo.before.lock().taken_us;
        if self.echo.is_evicting(now) && now.mono_us < taken_us + MEASURED_EVERY_US {
            return;
        }
        self.sample_memory();
        let other_bytes = self.memory.used_bytes().saturating_sub(self.keyspace.data_bytes() as u64);
        let waiting_bytes =
            self.clients.waiting_bytes(BLOCK_BYTES) + MESSAGE_PARTS * self.pubsub.queued_bytes();
        self.echo.measure(waiting_bytes, other_bytes, now);
        if self.echo.bytes() > 0 {
            self.sample_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn only_growth_by_messages_while_keys_are_evicted_is_an_echo() {
        let echo = Echo::default();
        let at = |ms: u64| Now { unix_us: 0, mono_us: ms * 1000 };
        echo.measure(MB, 10 * MB, at(10));
        assert_eq!(echo.bytes(), 0);
        echo.note_eviction(at(20));
        // The messages share their bytes: memory has grown by less than waits.
        echo.measure(31 * MB, 12 * MB, at(30));
        assert!((MB..=2 * MB).contains(&echo.bytes()), "{}", echo.bytes());
        // Memory has grown by something else.
        echo.measure(2 * MB, 50 * MB, at(40));
        assert!(echo.bytes() < MB, "{}", echo.bytes());
        // What waits for long counts again, also while the eviction goes on.
        (0..10_000).for_each(|i| {
            echo.note_eviction(at(50 + 10 * i));
            echo.measure(31 * MB, 40 * MB, at(50 + 10 * i));
        });
        assert!(echo.bytes() < MB, "{}", echo.bytes());
        echo.measure(90 * MB, 90 * MB, at(500_000));
        assert_eq!(echo.bytes(), 0, "nothing was evicted for long");
    }
}
