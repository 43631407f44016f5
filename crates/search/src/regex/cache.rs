//! [`MachineCache`]: what one thread needs to run a machine; its [`LazyCache`] has the states of a lazy DFA that the texts
//! so far needed.
//!
//! States that hard texts build are of no use to anybody and push out those of easy ones, whose building the easy ones
//! then wait for. So where others wait, a cache has a *credit* for building what has not paid off yet: much when it is
//! begun, cleared or made anew, so that it fills quickly; then what the easy texts earn it, little by little. A hard text
//! so builds a few states and is given up, a thread that sees only hard ones hardly tries, and an easy text, which builds
//! nothing once the cache has its states, notices neither.
//!
//! A cache grows to the next size when it was full again after a few searches, all worth their states, or after one that
//! was not and was allowed to find that out (on the hard lane).

use super::simulate::Simulation;
use regex_automata::hybrid::dfa as lazy;
use strand_commands::call::RunsOn;

/// Credit of a cache that was just begun, in nanoseconds for each byte that it may have: states for a small part of them.
const CREDIT_NS_PER_BYTE: u64 = 3;
/// What a search that was worth its states adds, and up to which credit.
const EARNED_NS: u64 = 1_000;
const EARNED_NS_MAX: u64 = 100_000;
/// What is always tried.
const CREDIT_NS_MIN: u64 = 10_000;
/// Most of it that one search may use up where others wait behind it on a helper thread.
const LANE_PATIENCE_NS: u64 = 4_000_000;
/// The same on a worker.
const WORKER_PATIENCE_NS: u64 = 400_000;
/// A cache that is full again after fewer searches is too small for what is searched.
const SEARCHES_PER_CLEAR_MIN: u32 = 64;
/// What a cache has of heap, at most, for each byte that its library counts: vectors and tables double when they grow.
/// Measured: up to 1.75 while it fills. What it had when it was full stays with it when it is cleared.
const HEAP_PER_COUNTED: usize = 2;

/// One thread's caches for a machine.
#[derive(Debug, Default)]
pub(crate) struct MachineCache {
    pub(super) lazy: Option<LazyCache>,
    /// Made when first needed.
    simulation: Option<Box<Simulation>>,
}

impl MachineCache {
    /// Bytes of heap, at most.
    pub(crate) fn bytes(&self) -> usize {
        self.lazy.as_ref().map_or(0, LazyCache::bytes)
            + self.simulation.as_ref().map_or(0, |s| size_of::<Simulation>() + s.heap_bytes())
    }
    /// The simulation's.
    pub(crate) fn simulation(&mut self) -> &mut Simulation {
        self.simulation.get_or_insert_default()
    }
}

/// The states of a lazy DFA.
#[derive(Debug)]
pub(super) struct LazyCache {
    /// Which of the sizes it has.
    pub(super) tier: usize,
    pub(super) cache: Box<lazy::Cache>,
    /// The most that the library counted in it.
    counted_max: usize,
    /// Most bytes that the library may count.
    bytes_max: usize,
    credit_ns: u64,
    /// Since it was cleared.
    searches: u32,
}

impl LazyCache {
    /// An empty one for `dfa`, which is that of the size `tier`.
    pub(super) fn new(tier: usize, dfa: &lazy::DFA) -> LazyCache {
        let cache = Box::new(dfa.create_cache());
        let (counted_max, bytes_max) = (cache.memory_usage(), dfa.get_config().get_cache_capacity());
        let mut new = LazyCache { tier, cache, counted_max, bytes_max, credit_ns: 0, searches: 0 };
        new.begin();
        new
    }
    fn begin(&mut self) {
        (self.credit_ns, self.searches) = (self.bytes_max as u64 * CREDIT_NS_PER_BYTE, 0);
    }
    fn bytes(&self) -> usize {
        size_of::<lazy::Cache>() + HEAP_PER_COUNTED * self.counted_max
    }
    /// What a search at `place` may build before it has to be worth it; `None`: until the cache has been full.
    pub(super) fn patience_ns(&self, runs_on: RunsOn, is_hopeless: bool) -> Option<u64> {
        let credit_ns = self.credit_ns.max(CREDIT_NS_MIN);
        match runs_on {
            RunsOn::Worker => Some(credit_ns.min(WORKER_PATIENCE_NS)),
            RunsOn::Lane => Some(credit_ns.min(LANE_PATIENCE_NS)),
            RunsOn::Hard => is_hopeless.then_some(credit_ns.min(LANE_PATIENCE_NS)),
        }
    }
    /// A search has built states for so much, in nanoseconds, and found the cache full so often. True while the cache is
    /// still to be filled: then what was given up need not be hard.
    pub(super) fn searched(&mut self, built_ns: u64, clears: usize, gave_up: bool) -> bool {
        let counted = if clears > 0 { self.bytes_max } else { self.cache.memory_usage() };
        self.counted_max = self.counted_max.max(counted);
        let is_cold = self.credit_ns > EARNED_NS_MAX;
        if gave_up {
            self.credit_ns = self.credit_ns.saturating_sub(built_ns);
        } else if self.credit_ns < EARNED_NS_MAX {
            self.credit_ns += EARNED_NS;
        }
        self.searches = self.searches.saturating_add(1);
        is_cold
    }
    /// After [`LazyCache::searched`]: true when the search filled it and another size is to be tried. `gave_up`: and
    /// whether it was allowed to fill it.
    pub(super) fn is_too_small(&mut self, clears: usize, gave_up: Option<bool>) -> bool {
        if clears == 0 {
            return false;
        }
        let searches = self.searches;
        self.begin();
        gave_up.unwrap_or(searches < SEARCHES_PER_CLEAR_MIN)
    }
    /// True when it soon will be.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.cache.memory_usage() > self.bytes_max / 4 * 3
    }
    /// Empties it.
    pub(super) fn reset(&mut self, dfa: &lazy::DFA) {
        self.cache.reset(dfa);
        self.begin();
    }
}
