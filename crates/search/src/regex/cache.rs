//! [`MachineCache`]: the data that one thread needs to run a machine. Its [`LazyCache`] holds the states of a lazy
//! DFA that earlier texts needed.
//!
//! States built for a hard text help no other text, and they evict the states of easy texts, which must then be built
//! again. On threads with a queue, a cache therefore has a *credit* for building states that have not paid off yet. The
//! credit is large when the cache is new, cleared or recreated, so the cache fills quickly. After that, easy texts earn
//! credit little by little. The search of a hard text builds a few states and gives up. A thread that sees only hard
//! texts soon stops trying. An easy text builds nothing once the cache has its states, so the thread's search of easy
//! texts stays fast.
//!
//! A cache grows to the next size when it fills up again after only a few searches ([`SEARCHES_PER_CLEAR_MIN`]) and the
//! last search did not give up. It also grows after a search that filled the cache and gave up on the hard lane, where
//! a search may fill the cache.

use super::simulate::Simulation;
use regex_automata::hybrid::dfa as lazy;
use strand_commands::call::RunsOn;

/// Credit of a new cache, in nanoseconds per byte of its size: enough to fill a small part of it.
const CREDIT_NS_PER_BYTE: u64 = 3;
/// Credit that a search earns when its states were worth building, in nanoseconds.
const EARNED_NS: u64 = 1_000;
/// Maximum credit that searches can earn, in nanoseconds.
const EARNED_NS_MAX: u64 = 100_000;
/// Minimum credit of every search, in nanoseconds.
const CREDIT_NS_MIN: u64 = 10_000;
/// Maximum credit that one search may use on a helper thread with a queue.
const LANE_PATIENCE_NS: u64 = 4_000_000;
/// Maximum credit that one search may use on a worker.
const WORKER_PATIENCE_NS: u64 = 400_000;
/// A cache that is full again after fewer searches than this is too small.
const SEARCHES_PER_CLEAR_MIN: u32 = 64;
/// Upper bound of heap bytes per byte that the library counts, because vectors and tables double when they grow.
/// Measured: up to 1.75 while the cache fills. A cleared cache keeps the memory that it had when it was full.
const HEAP_PER_COUNTED: usize = 2;

/// One thread's caches for one automaton.
#[derive(Debug, Default)]
pub(crate) struct MachineCache {
    pub(super) lazy: Option<LazyCache>,
    /// The buffers of the simulation. Created on first use.
    simulation: Option<Box<Simulation>>,
}

impl MachineCache {
    /// Upper bound of the heap bytes of the caches.
    pub(crate) fn bytes(&self) -> usize {
        self.lazy.as_ref().map_or(0, LazyCache::bytes)
            + self.simulation.as_ref().map_or(0, |s| size_of::<Simulation>() + s.heap_bytes())
    }
    /// The simulation of this automaton.
    pub(crate) fn simulation(&mut self) -> &mut Simulation {
        self.simulation.get_or_insert_default()
    }
}

/// The states of a lazy DFA.
#[derive(Debug)]
pub(super) struct LazyCache {
    /// The current cache size, as an index into the sizes.
    pub(super) tier: usize,
    pub(super) cache: Box<lazy::Cache>,
    /// Maximum number of bytes that the library has counted so far.
    counted_max: usize,
    /// Maximum number of bytes that the library may count.
    bytes_max: usize,
    credit_ns: u64,
    /// Number of searches since the cache was cleared.
    searches: u32,
}

impl LazyCache {
    /// An empty cache for `dfa`, which must be the lazy DFA whose cache has size number `tier`.
    pub(super) fn new(tier: usize, dfa: &lazy::DFA) -> LazyCache {
        let cache = Box::new(dfa.create_cache());
        let (counted_max, bytes_max) = (cache.memory_usage(), dfa.get_config().get_cache_capacity());
        let mut new = LazyCache { tier, cache, counted_max, bytes_max, credit_ns: 0, searches: 0 };
        new.restart_credit();
        new
    }
    fn restart_credit(&mut self) {
        (self.credit_ns, self.searches) = (self.bytes_max as u64 * CREDIT_NS_PER_BYTE, 0);
    }
    fn bytes(&self) -> usize {
        size_of::<lazy::Cache>() + HEAP_PER_COUNTED * self.counted_max
    }
    /// Nanoseconds that a search on `runs_on` may spend on building states before the states must have paid off.
    /// `None`: the search may build until the cache has been full.
    pub(super) fn patience_ns(&self, runs_on: RunsOn, is_hopeless: bool) -> Option<u64> {
        let credit_ns = self.credit_ns.max(CREDIT_NS_MIN);
        match runs_on {
            RunsOn::Worker => Some(credit_ns.min(WORKER_PATIENCE_NS)),
            RunsOn::Lane => Some(credit_ns.min(LANE_PATIENCE_NS)),
            RunsOn::Hard => is_hopeless.then_some(credit_ns.min(LANE_PATIENCE_NS)),
        }
    }
    /// Records a search: the nanoseconds spent on states and how often the cache filled. Returns true while the cache
    /// is still being filled. A text on which the search gives up then is not necessarily hard.
    pub(super) fn record_search(&mut self, built_ns: u64, clears: usize, gave_up: bool) -> bool {
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
    /// Called after [`LazyCache::record_search`]. Returns true when the search filled the cache and a larger size
    /// should be tried. `gave_up` says whether the search gave up and, if so, whether it was allowed to fill the cache.
    pub(super) fn is_too_small(&mut self, clears: usize, gave_up: Option<bool>) -> bool {
        if clears == 0 {
            return false;
        }
        let searches = self.searches;
        self.restart_credit();
        gave_up.unwrap_or(searches < SEARCHES_PER_CLEAR_MIN)
    }
    /// True when the cache will be full soon.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.cache.memory_usage() > self.bytes_max / 4 * 3
    }
    /// Empties the cache.
    pub(super) fn reset(&mut self, dfa: &lazy::DFA) {
        self.cache.reset(dfa);
        self.restart_credit();
    }
}
