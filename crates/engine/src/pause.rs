//! [`Pause`]: CLIENT PAUSE. Every command checks it, so it is one number.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The end of the pause and the paused commands. 0: no pause. Otherwise the end in microseconds of the driver's
/// clock, shifted left by one. The lowest bit is 1 when all commands wait, and 0 when only writes wait.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

impl Pause {
    /// True from the start of a pause until its end is noticed.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
    /// True when a pause of all commands was begun.
    pub(crate) fn stops_all(&self) -> bool {
        self.0.load(Relaxed) & 1 == 1
    }
    /// Pauses until `until_us`. A running pause can only become longer and stricter.
    pub(crate) fn begin(&self, until_us: u64, all: bool, now_us: u64) {
        let new = (until_us << 1) | u64::from(all);
        let merge = |old: u64| match old >> 1 > now_us {
            true => Some(((old >> 1).max(until_us) << 1) | (old & 1) | u64::from(all)),
            false => Some(new),
        };
        let _ = self.0.fetch_update(Relaxed, Relaxed, merge);
    }
    pub(crate) fn end(&self) {
        self.0.store(0, Relaxed);
    }
    /// Until when a command must wait (`write`: the command writes). `None`: it may run now.
    #[cold]
    pub(crate) fn waits_until(&self, write: bool, now_us: u64) -> Option<u64> {
        let state = self.0.load(Relaxed);
        let until_us = state >> 1;
        if until_us <= now_us {
            // This pause is over. A new pause that began meanwhile stays.
            let _ = self.0.compare_exchange(state, 0, Relaxed, Relaxed);
            return None;
        }
        (write || state & 1 == 1).then_some(until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_gets_longer_and_stricter_and_ends() {
        let pause = Pause::default();
        assert!(!pause.is_set());
        pause.begin(100, false, 0);
        assert_eq!((pause.waits_until(true, 1), pause.waits_until(false, 1)), (Some(100), None));
        pause.begin(50, true, 1);
        assert_eq!((pause.waits_until(true, 1), pause.waits_until(false, 1)), (Some(100), Some(100)));
        assert_eq!(pause.waits_until(true, 100), None);
        assert!(!pause.is_set());
        pause.begin(200, true, 100);
        pause.end();
        assert!(!pause.is_set());
    }
}
