//! [`SearchBudget`]: the place where a command runs and the total work that its searches may do there. [`Halt`]: the
//! reason why a search stopped.
//!
//! The cost of a text is not known beforehand. A lazy DFA passes most texts at a nanosecond per byte, but needs
//! about a microsecond for each state that it must build. So a search starts on the current thread (on a worker
//! when its text is short), counts its work, and moves to another thread when the work exceeds the budget. Work is
//! counted, not timed: the same command on the same caches always stops at the same place.

use std::cell::Cell;
use std::time::Instant;
use strand_commands::call::RunsOn;

/// Approximate cost of building one state of a lazy DFA, in nanoseconds: this number, plus [`BUILD_STATE_NS`] for
/// each state of the NFA.
const BUILD_NS: u64 = 500;
const BUILD_STATE_NS: u64 = 10;
/// Worst-case cost of the simulation for each NFA state and byte, in nanoseconds.
pub(crate) const SIMULATE_NS: u64 = 8;
/// Minimum number of bytes that a lazy DFA must pass per state built. Below it, the lazy DFA is slower than the
/// simulation.
pub(crate) const BYTES_PER_STATE_MIN: usize = 10;
/// Maximum number of nanoseconds that one command may build and simulate on a worker. [`LANE_NS_MAX`] is the limit on
/// the lane.
pub(crate) const WORKER_NS_MAX: u64 = 500_000;
pub(crate) const LANE_NS_MAX: u64 = 10_000_000;
/// Maximum number of bytes that all searches of one command may pass on a worker.
pub(crate) const WORKER_BYTES_MAX: usize = 512 << 10;
/// Number of bytes that a literal search passes in the time in which an automaton passes one byte.
const LITERAL_BYTES: usize = 8;
/// After a literal search over this number of bytes or more, the deadline is checked. A check costs as much as a search
/// over some thousand bytes.
const CHECKED_LITERAL_BYTES: usize = 64 << 10;
/// Maximum number of bytes of results that one command may produce on a worker.
const WORKER_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes of matches and groups in a reply.
pub(crate) const REPLY_BYTES_MAX: usize = 256 << 20;

/// Why a search stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The client no longer waits.
    Cancelled,
    /// The search's deadline has passed.
    Deadline,
    /// There is too much work for a worker. The command must move to the lane.
    MoveToLane,
    /// There is too much work for a thread with other commands in its queue. The command must move to the hard lane.
    MoveToHardLane,
    /// The matches take more than [`REPLY_BYTES_MAX`] bytes.
    ReplyTooLarge,
}

/// What the searches of a command may do on the current thread.
pub(crate) struct SearchBudget<'a> {
    runs_on: RunsOn,
    /// Yields the processor. Returns true when the client no longer waits.
    cancelled: &'a dyn Fn() -> bool,
    deadline: Cell<Option<Instant>>,
    /// Nanoseconds left for building and simulating on a worker or on the lane.
    ns_left: Cell<u64>,
    /// Number of bytes that the command may still pass on a worker.
    bytes_left: Cell<usize>,
    output_left: Cell<usize>,
    answer_left: Cell<usize>,
}

impl<'a> SearchBudget<'a> {
    /// The budget of a command on `runs_on`. `cancelled` is called between pieces of work, but not on a worker.
    pub(crate) fn new(
        runs_on: RunsOn,
        cancelled: &'a dyn Fn() -> bool,
        deadline: Option<Instant>,
    ) -> SearchBudget<'a> {
        let ns_left = Cell::new(match runs_on {
            RunsOn::Worker => WORKER_NS_MAX,
            RunsOn::Lane => LANE_NS_MAX,
            RunsOn::Hard => u64::MAX,
        });
        let (bytes_left, output_left) = (Cell::new(WORKER_BYTES_MAX), Cell::new(WORKER_OUTPUT_BYTES_MAX));
        let answer_left = Cell::new(REPLY_BYTES_MAX);
        let deadline = Cell::new(deadline);
        SearchBudget { runs_on, cancelled, deadline, ns_left, bytes_left, output_left, answer_left }
    }
    /// The budget of a search that stays on the current thread until its end.
    pub(crate) fn whole(cancelled: &'a dyn Fn() -> bool) -> SearchBudget<'a> {
        SearchBudget::new(RunsOn::Hard, cancelled, None)
    }
    /// The place at which the command runs.
    pub(crate) fn runs_on(&self) -> RunsOn {
        self.runs_on
    }
    /// When the search must stop.
    #[cfg(test)]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }
    /// Runs `work`, which is not a search: its time does not count against the deadline.
    pub(crate) fn beside_deadline<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(deadline) = self.deadline.get() else { return work() };
        let start = Instant::now();
        let result = work();
        self.deadline.set(Some(deadline + start.elapsed()));
        result
    }
    /// Checks between two pieces of work whether the search must stop.
    pub(crate) fn check(&self) -> Result<(), Halt> {
        if self.runs_on == RunsOn::Worker {
            return Ok(());
        }
        if (self.cancelled)() {
            return Err(Halt::Cancelled);
        }
        match self.deadline.get() {
            Some(at) if Instant::now() >= at => Err(Halt::Deadline),
            _ => Ok(()),
        }
    }
    /// Counts bytes passed or about to be passed.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.bytes_left, bytes)
    }
    /// Counts bytes searched for a literal. After a long search, checks whether the command must stop: a set may have
    /// many patterns, and a text that lacks their literals meets no other check.
    pub(crate) fn spend_literal_search(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.bytes_left, bytes / LITERAL_BYTES)?;
        if bytes >= CHECKED_LITERAL_BYTES { self.check() } else { Ok(()) }
    }
    /// Counts bytes of results before they are produced.
    pub(crate) fn produce(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.output_left, bytes)
    }
    /// Counts bytes of the reply before they are produced.
    pub(crate) fn answer(&self, bytes: usize) -> Result<(), Halt> {
        self.answer_left.set(self.answer_left.get().checked_sub(bytes).ok_or(Halt::ReplyTooLarge)?);
        self.produce(bytes)
    }
    fn take(&self, left: &Cell<usize>, bytes: usize) -> Result<(), Halt> {
        if self.runs_on == RunsOn::Worker {
            left.set(left.get().checked_sub(bytes).ok_or(Halt::MoveToLane)?);
        }
        Ok(())
    }
    /// Nanoseconds left for building and simulating on the current thread.
    pub(crate) fn ns_left(&self) -> u64 {
        self.ns_left.get()
    }
    /// Charges the time that building or simulating has taken.
    pub(crate) fn charge(&self, ns: u64) {
        self.ns_left.set(self.ns_left.get().saturating_sub(ns));
    }
    /// Charges work in progress and checks whether the search must stop.
    pub(crate) fn charge_and_check(&self, ns: u64) -> Result<(), Halt> {
        self.charge(ns);
        match self.runs_on {
            RunsOn::Worker if self.ns_left.get() == 0 => Err(Halt::MoveToLane),
            RunsOn::Lane if self.ns_left.get() == 0 => Err(Halt::MoveToHardLane),
            _ => self.check(),
        }
    }
    /// Checks, before a simulation over `bytes`, that the budget covers its worst case.
    pub(crate) fn afford(&self, states: usize, bytes: usize) -> Result<(), Halt> {
        let (ns, left) = (simulation_ns(states, bytes), self.ns_left.get());
        match self.runs_on {
            RunsOn::Worker if ns >= LANE_NS_MAX => Err(Halt::MoveToHardLane),
            RunsOn::Worker if ns >= left => Err(Halt::MoveToLane),
            RunsOn::Lane if ns >= left => Err(Halt::MoveToHardLane),
            _ => self.check(),
        }
    }
    /// Like [`SearchBudget::afford`], for a simulation that almost never reaches its worst case, because its result is
    /// already known.
    pub(crate) fn try_afford(&self, states: usize, bytes: usize) -> Result<(), Halt> {
        match self.runs_on {
            RunsOn::Worker if simulation_ns(states, bytes) > self.ns_left.get() => Err(Halt::MoveToLane),
            _ => self.check(),
        }
    }
}

/// Worst-case cost of a simulation, in nanoseconds.
pub(crate) fn simulation_ns(states: usize, bytes: usize) -> u64 {
    // Count one step more per byte, and one position more than there are bytes.
    (states as u64 + 1).saturating_mul(bytes as u64 + 1).saturating_mul(SIMULATE_NS)
}

/// Cost of building one state of a lazy DFA, in nanoseconds.
pub(crate) fn build_ns(nfa_states: usize) -> u64 {
    BUILD_NS + nfa_states as u64 * BUILD_STATE_NS
}
