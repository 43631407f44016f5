//! [`Clock`]: the only place that reads the time. The state machines get the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strand_engine::Now;

/// Reads Unix time, and a monotonic time that starts at 0 with the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic side starts now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }
    /// The time now.
    pub fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { unix_us: unix.as_micros() as i64, mono_us: self.start.elapsed().as_micros() as u64 }
    }
    /// The monotonic part of the time, in microseconds.
    pub fn mono_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
    /// The monotonic part of the time, in nanoseconds. The number overflows after five hundred years.
    pub fn mono_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    /// The instant at which the monotonic part is `mono_us`.
    pub fn instant(&self, mono_us: u64) -> tokio::time::Instant {
        // Maximum time from now to the returned instant: a day. A later deadline is shortened to a day, and its
        // waiter then checks the clock again.
        const AHEAD_MS_MAX: u64 = 24 * 3600 * 1000;
        let from_start =
            Duration::from_micros(mono_us).min(self.start.elapsed() + Duration::from_millis(AHEAD_MS_MAX));
        tokio::time::Instant::from_std(self.start + from_start)
    }
}
