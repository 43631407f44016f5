//! [`TurnWatch`]: workers that stay in one turn for too long.
//!
//! A worker records the beginning and the end of a turn with two stores to its own cache line. A background thread
//! checks them.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Maximum number of workers that are checked.
const WORKERS_MAX: usize = 256;

/// The current turn of one worker, on its own cache line, so that workers do not disturb one another.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerTurn {
    /// Start of the turn on the monotonic clock. 0 between turns.
    since_us: AtomicU64,
    client: AtomicU64,
    command: AtomicU32,
    /// Start of the turn that was last reported.
    reported_us: AtomicU64,
}

/// The turns of all workers. See the module.
pub(crate) struct TurnWatch {
    turns: Box<[WorkerTurn]>,
    newest: Mutex<Option<(String, u64)>>,
}

impl Default for TurnWatch {
    fn default() -> TurnWatch {
        TurnWatch {
            turns: (0..WORKERS_MAX).map(|_| WorkerTurn::default()).collect(),
            newest: Mutex::default(),
        }
    }
}

/// A worker that has been in one turn for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StuckWorker {
    pub(crate) worker: usize,
    pub(crate) duration_us: u64,
    pub(crate) client: u64,
    pub(crate) command: u32,
}

impl TurnWatch {
    /// Starts a turn of a client's session.
    #[inline]
    pub(crate) fn begin_turn(&self, worker: usize, client: u64, now_us: u64) {
        let turn = &self.turns[worker % WORKERS_MAX];
        turn.client.store(client, Relaxed);
        turn.since_us.store(now_us.max(1), Relaxed);
    }
    /// Records the command of the turn that starts to be timed.
    #[inline]
    pub(crate) fn set_command(&self, worker: usize, command: u32) {
        self.turns[worker % WORKERS_MAX].command.store(command, Relaxed);
    }
    /// Ends the worker's turn.
    #[inline]
    pub(crate) fn end_turn(&self, worker: usize) {
        self.turns[worker % WORKERS_MAX].since_us.store(0, Relaxed);
    }
    /// Workers in a turn of `period_us` (`watchdog-period`) or more. Each turn is reported once.
    pub(crate) fn take_stuck(&self, period_us: u64, now_us: u64) -> Vec<StuckWorker> {
        let turn_watch = |(worker, turn): (usize, &WorkerTurn)| {
            let since_us = turn.since_us.load(Relaxed);
            let duration_us = now_us.saturating_sub(since_us);
            let is_new = since_us > 0
                && duration_us >= period_us
                && turn.reported_us.swap(since_us, Relaxed) != since_us;
            let (client, command) = (turn.client.load(Relaxed), turn.command.load(Relaxed));
            is_new.then_some(StuckWorker { worker, duration_us, client, command })
        };
        self.turns.iter().enumerate().filter_map(turn_watch).collect()
    }
    /// The current turns: each with its worker and its start.
    pub(crate) fn current(&self) -> Vec<(usize, u64)> {
        let turns = self.turns.iter().enumerate();
        turns
            .map(|(worker, turn)| (worker, turn.since_us.load(Relaxed)))
            .filter(|(_, since_us)| *since_us > 0)
            .collect()
    }
    /// True when this turn of [`TurnWatch::current`] has ended.
    pub(crate) fn has_ended(&self, (worker, since_us): (usize, u64)) -> bool {
        self.turns[worker].since_us.load(Relaxed) != since_us
    }
    /// The duration of the longest current turn.
    pub(crate) fn longest_us(&self, now_us: u64) -> u64 {
        let since = self.turns.iter().map(|turn| turn.since_us.load(Relaxed)).filter(|since| *since > 0);
        since.map(|since_us| now_us.saturating_sub(since_us)).max().unwrap_or(0)
    }
    /// The text of the newest report, and its milliseconds.
    pub(crate) fn newest(&self) -> Option<(String, u64)> {
        self.newest.lock().clone()
    }
    pub(crate) fn set_newest(&self, text: String, ms: u64) {
        *self.newest.lock() = Some((text, ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_US: u64 = 100_000;

    #[test]
    fn a_long_turn_is_reported_once() {
        let turn_watch = TurnWatch::default();
        assert!(turn_watch.take_stuck(PERIOD_US, 1 << 40).is_empty());
        turn_watch.begin_turn(3, 77, 1_000);
        turn_watch.set_command(3, 5);
        assert!(turn_watch.take_stuck(PERIOD_US, 1_000 + PERIOD_US - 1).is_empty());
        let found = [StuckWorker { worker: 3, duration_us: PERIOD_US, client: 77, command: 5 }];
        assert_eq!(turn_watch.take_stuck(PERIOD_US, 1_000 + PERIOD_US), found);
        assert!(turn_watch.take_stuck(PERIOD_US, 1_000 + 2 * PERIOD_US).is_empty());
        assert_eq!((turn_watch.longest_us(2_000), TurnWatch::default().longest_us(9)), (1_000, 0));
        assert_eq!(turn_watch.current(), [(3, 1_000)]);
        assert!(!turn_watch.has_ended((3, 1_000)) && turn_watch.has_ended((3, 999)));
        turn_watch.end_turn(3);
        turn_watch.begin_turn(3, 78, 500_000);
        assert!(turn_watch.take_stuck(PERIOD_US, 500_100).is_empty());
        assert_eq!(turn_watch.take_stuck(PERIOD_US, 900_000).len(), 1);
    }
}
