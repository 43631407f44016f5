//! [`Pause`]: CLIENT PAUSE, and the pause of writes during FAILOVER. Every command checks it, so it is one number.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The end of the pause and the paused commands. 0: no pause. Otherwise the end in microseconds of the driver's
/// clock, shifted left by one. The lowest bit is 1 when all commands wait, and 0 when only writes wait. The bit
/// [`FOR_FAILOVER`] is set while writes wait for FAILOVER, whatever the rest says.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

/// The highest bit. The driver's clock does not reach it.
const FOR_FAILOVER: u64 = 1 << 63;
/// A write that waits for FAILOVER is tried again after this time, if nobody wakes its session before.
const FAILOVER_RETRY_US: u64 = 100_000;

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
        let new = ((until_us << 1) & !FOR_FAILOVER) | u64::from(all);
        let merge = |state: u64| {
            let (failover, old) = (state & FOR_FAILOVER, state & !FOR_FAILOVER);
            match old >> 1 > now_us {
                true => Some(failover | ((old >> 1).max(new >> 1) << 1) | (old & 1) | u64::from(all)),
                false => Some(failover | new),
            }
        };
        let _ = self.0.fetch_update(Relaxed, Relaxed, merge);
    }
    /// Ends the pause of CLIENT PAUSE.
    pub(crate) fn end(&self) {
        self.0.fetch_and(FOR_FAILOVER, Relaxed);
    }
    /// Begins or ends the pause of writes during FAILOVER.
    pub(crate) fn set_for_failover(&self, on: bool) {
        match on {
            true => self.0.fetch_or(FOR_FAILOVER, Relaxed),
            false => self.0.fetch_and(!FOR_FAILOVER, Relaxed),
        };
    }
    /// True while CLIENT PAUSE stops writes, or all commands.
    pub(crate) fn stops_clients(&self, now_us: u64) -> bool {
        (self.0.load(Relaxed) & !FOR_FAILOVER) >> 1 > now_us
    }
    /// Until when a command must wait (`write`: the command writes). `None`: it may run now.
    #[cold]
    pub(crate) fn waits_until(&self, write: bool, now_us: u64) -> Option<u64> {
        let state = self.0.load(Relaxed);
        let failover = state & FOR_FAILOVER;
        let until_us = (state & !FOR_FAILOVER) >> 1;
        let retry_us = (write && failover != 0).then_some(now_us + FAILOVER_RETRY_US);
        if until_us <= now_us {
            // This pause is over. A new pause that began meanwhile stays.
            let _ = self.0.compare_exchange(state, failover, Relaxed, Relaxed);
            return retry_us;
        }
        retry_us.or((write || state & 1 == 1).then_some(until_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_gets_longer_and_stricter_and_ends() {
        let pause = Pause::default();
        assert!(!pause.is_set() && !pause.stops_clients(0));
        pause.begin(100, false, 0);
        assert!(pause.stops_clients(99) && !pause.stops_clients(100));
        assert_eq!((pause.waits_until(true, 1), pause.waits_until(false, 1)), (Some(100), None));
        pause.begin(50, true, 1);
        assert_eq!((pause.waits_until(true, 1), pause.waits_until(false, 1)), (Some(100), Some(100)));
        assert_eq!(pause.waits_until(true, 100), None);
        assert!(!pause.is_set());
        pause.begin(200, true, 100);
        pause.end();
        assert!(!pause.is_set());
    }
    #[test]
    fn failover_stops_writes_beside_a_pause_of_clients() {
        let pause = Pause::default();
        pause.set_for_failover(true);
        assert!(!pause.stops_clients(0));
        let retry = |now_us| Some(now_us + FAILOVER_RETRY_US);
        assert_eq!((pause.waits_until(true, 7), pause.waits_until(false, 7)), (retry(7), None));
        assert!(pause.is_set() && !pause.stops_all());
        pause.begin(100, true, 10);
        pause.begin(u64::MAX >> 1, false, 11);
        assert_eq!((pause.waits_until(true, 20), pause.waits_until(false, 20).is_some()), (retry(20), true));
        pause.end();
        assert_eq!((pause.waits_until(true, 30), pause.waits_until(false, 30)), (retry(30), None));
        pause.begin(40, true, 31);
        pause.set_for_failover(false);
        assert_eq!((pause.waits_until(true, 32), pause.waits_until(true, 40)), (Some(40), None));
        assert!(!pause.is_set());
    }
}
