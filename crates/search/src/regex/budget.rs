//! [`Budget`]: where a command runs and how much its searches may do there, all together; [`Halt`]: why one stopped.
//!
//! What a text costs is not known before: a lazy DFA passes most at a nanosecond a byte, and some at a microsecond for
//! each state that it has to build. So a search begins where it is (on a worker, when its text is short), counts what it
//! does, and goes elsewhere when that is too much. It is counted, not timed: the same command on the same caches always
//! ends in the same place.

use std::cell::Cell;
use std::time::Instant;
use strand_commands::call::RunsOn;

/// Building a lazy DFA's state costs about this, and this for each state of the NFA, in nanoseconds.
const BUILD_NS: u64 = 500;
const BUILD_STATE_NS: u64 = 10;
/// The simulation costs about this for each state of the NFA and byte, at worst, in nanoseconds.
pub(crate) const SIMULATE_NS: u64 = 8;
/// Fewer bytes than this for each state built, and the lazy DFA is no gain.
pub(crate) const BYTES_PER_STATE_MIN: usize = 10;
/// What one command may build and simulate on a worker, and on the heavy lane, in nanoseconds.
pub(crate) const WORKER_NS_MAX: u64 = 500_000;
pub(crate) const LANE_NS_MAX: u64 = 10_000_000;
/// Bytes that one command may pass on a worker, over all its searches.
pub(crate) const WORKER_BYTES_MAX: usize = 512 << 10;
/// Looking for a literal passes so many bytes in the time of one.
const LITERAL_BYTES: usize = 8;
/// Bytes that one command may make there of what it finds.
const WORKER_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Most bytes of matches and groups that a command is answered with.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a search stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Nobody waits for it any more.
    Cancelled,
    /// Its deadline has passed.
    Deadline,
    /// It is too much for a worker.
    Lane,
    /// It is too much for whoever has others waiting behind it.
    Hard,
    /// It finds more than [`ANSWER_BYTES_MAX`].
    Answer,
}

/// What a command's searches may do where they run.
pub(crate) struct Budget<'a> {
    runs_on: RunsOn,
    /// Lets others have the processor, and says whether nobody waits any more.
    cancelled: &'a dyn Fn() -> bool,
    deadline: Option<Instant>,
    /// What is left for a worker or the heavy lane.
    ns_left: Cell<u64>,
    /// What is left for a worker.
    bytes_left: Cell<usize>,
    output_left: Cell<usize>,
    answer_left: Cell<usize>,
}

impl<'a> Budget<'a> {
    /// Of a command at `place`; `cancelled` is asked between pieces of work, but not on a worker.
    pub(crate) fn new(
        runs_on: RunsOn,
        cancelled: &'a dyn Fn() -> bool,
        deadline: Option<Instant>,
    ) -> Budget<'a> {
        let ns_left = Cell::new(match runs_on {
            RunsOn::Worker => WORKER_NS_MAX,
            RunsOn::Lane => LANE_NS_MAX,
            RunsOn::Hard => u64::MAX,
        });
        let (bytes_left, output_left) = (Cell::new(WORKER_BYTES_MAX), Cell::new(WORKER_OUTPUT_BYTES_MAX));
        let answer_left = Cell::new(ANSWER_BYTES_MAX);
        Budget { runs_on, cancelled, deadline, ns_left, bytes_left, output_left, answer_left }
    }
    /// A search that is done to its end where it is.
    pub(crate) fn whole(cancelled: &'a dyn Fn() -> bool) -> Budget<'a> {
        Budget::new(RunsOn::Hard, cancelled, None)
    }
    /// Where it runs.
    pub(crate) fn runs_on(&self) -> RunsOn {
        self.runs_on
    }
    /// Between two pieces of work.
    pub(crate) fn check(&self) -> Result<(), Halt> {
        if self.runs_on == RunsOn::Worker {
            return Ok(());
        }
        if (self.cancelled)() {
            return Err(Halt::Cancelled);
        }
        match self.deadline {
            Some(at) if Instant::now() >= at => Err(Halt::Deadline),
            _ => Ok(()),
        }
    }
    /// After so many bytes were passed, or before they are.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.bytes_left, bytes)
    }
    /// After a literal was looked for in so many bytes.
    pub(crate) fn looked(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.bytes_left, bytes / LITERAL_BYTES)
    }
    /// Before so many bytes are made.
    pub(crate) fn produce(&self, bytes: usize) -> Result<(), Halt> {
        self.take(&self.output_left, bytes)
    }
    /// The same of what the command is answered with.
    pub(crate) fn answer(&self, bytes: usize) -> Result<(), Halt> {
        self.answer_left.set(self.answer_left.get().checked_sub(bytes).ok_or(Halt::Answer)?);
        self.produce(bytes)
    }
    fn take(&self, left: &Cell<usize>, bytes: usize) -> Result<(), Halt> {
        if self.runs_on == RunsOn::Worker {
            left.set(left.get().checked_sub(bytes).ok_or(Halt::Lane)?);
        }
        Ok(())
    }
    /// What may still be built or simulated here, in nanoseconds.
    pub(crate) fn ns_left(&self) -> u64 {
        self.ns_left.get()
    }
    /// After so much was built or simulated.
    pub(crate) fn charge(&self, ns: u64) {
        self.ns_left.set(self.ns_left.get().saturating_sub(ns));
    }
    /// The same in the midst of it.
    pub(crate) fn go_on(&self, ns: u64) -> Result<(), Halt> {
        self.charge(ns);
        match self.runs_on {
            RunsOn::Worker if self.ns_left.get() == 0 => Err(Halt::Lane),
            RunsOn::Lane if self.ns_left.get() == 0 => Err(Halt::Hard),
            _ => self.check(),
        }
    }
    /// Before a simulation of an NFA of so many states over so many bytes, that costs as much as it can.
    pub(crate) fn afford(&self, states: usize, bytes: usize) -> Result<(), Halt> {
        let (ns, left) = (simulation_ns(states, bytes), self.ns_left.get());
        match self.runs_on {
            RunsOn::Worker if ns >= LANE_NS_MAX => Err(Halt::Hard),
            RunsOn::Worker if ns >= left => Err(Halt::Lane),
            RunsOn::Lane if ns >= left => Err(Halt::Hard),
            _ => self.check(),
        }
    }
    /// The same of one that hardly ever costs as much, as where it is known what it will find.
    pub(crate) fn try_afford(&self, states: usize, bytes: usize) -> Result<(), Halt> {
        match self.runs_on {
            RunsOn::Worker if simulation_ns(states, bytes) > self.ns_left.get() => Err(Halt::Lane),
            _ => self.check(),
        }
    }
}

/// The worst case of a simulation, in nanoseconds.
pub(crate) fn simulation_ns(states: usize, bytes: usize) -> u64 {
    // A step more for each byte, and one place more than there are bytes.
    (states as u64 + 1).saturating_mul(bytes as u64 + 1).saturating_mul(SIMULATE_NS)
}

/// What building a state of a lazy DFA costs, in nanoseconds.
pub(crate) fn build_ns(nfa_states: usize) -> u64 {
    BUILD_NS + nfa_states as u64 * BUILD_STATE_NS
}
