//! [`Budget`]: where a search runs and how much it may do there; [`Halt`]: why it stopped.
//!
//! What a text costs is not known before: a lazy DFA passes most at a nanosecond a byte, and some at a microsecond for
//! each state that it has to build. So a search begins where it is (on a worker, when its text is short), counts the
//! states that it builds, and goes elsewhere when they are too many for the bytes passed.

use std::cell::Cell;
use std::time::Instant;
use strand_commands::call::Place;

/// Building a lazy DFA's state costs about this, and this for each state of the NFA, in nanoseconds.
const BUILD_NS: u64 = 300;
const BUILD_STATE_NS: u64 = 10;
/// The simulation costs about this for each state of the NFA and byte, at worst, in nanoseconds.
pub(crate) const SIMULATE_NS: u64 = 8;
/// Fewer bytes than this for each state built, and the lazy DFA is no gain.
pub(crate) const BYTES_PER_STATE_MIN: usize = 10;
/// What a worker, or a helper thread of the heavy lane, spends on building before that rule is applied, in nanoseconds.
const PATIENCE_NS: u64 = 100_000;
const BUILDS_MIN: u64 = 16;
/// The longest simulation on a worker, and on the heavy lane; a longer one goes to the hard lane. In nanoseconds, at worst.
const WORKER_NS_MAX: u64 = 500_000;
const LANE_NS_MAX: u64 = 2_000_000;
/// Bytes that one command may pass on a worker, over all its searches.
pub(crate) const WORKER_BYTES_MAX: usize = 512 << 10;

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
}

/// What a search may do where it runs.
pub(crate) struct Budget<'a> {
    place: Place,
    /// Lets others have the processor, and says whether nobody waits any more.
    cancelled: &'a dyn Fn() -> bool,
    deadline: Option<Instant>,
    bytes_left: Cell<usize>,
}

impl<'a> Budget<'a> {
    /// Of a search at `place`; `cancelled` is asked between pieces of work, but not on a worker.
    pub(crate) fn new(
        place: Place,
        cancelled: &'a dyn Fn() -> bool,
        deadline: Option<Instant>,
    ) -> Budget<'a> {
        Budget { place, cancelled, deadline, bytes_left: Cell::new(WORKER_BYTES_MAX) }
    }
    /// A search that is done to its end where it is.
    pub(crate) fn whole(cancelled: &'a dyn Fn() -> bool) -> Budget<'a> {
        Budget::new(Place::Hard, cancelled, None)
    }
    /// Where it runs.
    pub(crate) fn place(&self) -> Place {
        self.place
    }
    /// Between two pieces of work.
    pub(crate) fn check(&self) -> Result<(), Halt> {
        if self.place == Place::Worker {
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
    /// Before so many bytes are passed.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Halt> {
        if self.place == Place::Worker {
            let left = self.bytes_left.get().checked_sub(bytes).ok_or(Halt::Lane)?;
            self.bytes_left.set(left);
        }
        Ok(())
    }
    /// Before a simulation of an NFA of so many states over so many bytes.
    pub(crate) fn afford(&self, states: usize, bytes: usize) -> Result<(), Halt> {
        let ns = simulation_ns(states, bytes);
        match self.place {
            Place::Worker if ns > WORKER_NS_MAX => Err(Halt::Hard),
            Place::Lane if ns > LANE_NS_MAX => Err(Halt::Hard),
            _ => self.check(),
        }
    }
    /// States of a lazy DFA that may be built before they are weighed against the bytes passed; `None`: until its cache
    /// has been full, which where it is known not to help is too late everywhere.
    pub(crate) fn builds(&self, states: usize, is_hopeless: bool) -> Option<u64> {
        let fits = PATIENCE_NS / (BUILD_NS + states as u64 * BUILD_STATE_NS);
        (self.place != Place::Hard || is_hopeless).then(|| fits.max(BUILDS_MIN))
    }
}

/// The worst case of a simulation, in nanoseconds.
pub(crate) fn simulation_ns(states: usize, bytes: usize) -> u64 {
    (states as u64).saturating_mul(bytes as u64).saturating_mul(SIMULATE_NS)
}
