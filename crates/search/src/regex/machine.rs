//! [`Machine`]: one automaton with its engines. It is immutable except for what it learns about the sizes of its
//! caches.
//!
//! A lazy DFA's cache has one of several sizes ([`TIERS_BYTES`]), and [`super::cache`] decides when it grows. If
//! even the largest size does not help, the pattern is *hopeless*: it returns to the smallest size, and texts that
//! are hard for it go to the simulation without further attempts.

use super::budget::{Halt, SearchBudget, build_ns};
use super::cache::{LazyCache, MachineCache};
use super::matcher::Counts;
use super::simulate::NONE;
use super::walk::{FoundPatterns, Full, Lazy, Patience, Steps, WalkEnd, walk};
use regex_automata::dfa::{StartKind, dense};
use regex_automata::hybrid::{BuildError, dfa as lazy};
use regex_automata::nfa::thompson::NFA;
use regex_automata::util::prefilter::Prefilter;
use regex_automata::{Anchored, Input, MatchKind, PatternSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use strand_commands::call::RunsOn;

/// The sizes of a lazy DFA's cache, in bytes.
pub(crate) const TIERS_BYTES: [usize; 3] = [2 << 20, 16 << 20, 64 << 20];

/// The cache sizes to try: those of at most `bytes`. The smallest size is included even when `bytes` is less.
pub(crate) fn tiers_within(bytes: usize) -> &'static [usize] {
    let fit = TIERS_BYTES.iter().take_while(|tier| **tier <= bytes).count();
    &TIERS_BYTES[..fit.max(1)]
}

/// An automaton that was compiled from one or more patterns.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) nfa: NFA,
    pub(crate) prefilter: Option<Prefilter>,
    anchored: Anchored,
    engine: Engine,
    tiers: &'static [usize],
    /// Index into `tiers` of the largest size that a cache has reached.
    tier: AtomicUsize,
    hopeless: AtomicBool,
}

/// The engine that is tried first.
#[derive(Debug)]
enum Engine {
    /// A full DFA: every state is prebuilt. The cost per byte is constant.
    Full(Box<dense::DFA<Vec<u32>>>),
    /// A lazy DFA: states are built when first needed. There is one DFA for each cache size.
    Lazy(Vec<lazy::DFA>),
}

/// The options for building a [`Machine`].
pub(crate) struct BuildOptions {
    pub(crate) kind: MatchKind,
    pub(crate) reverse: bool,
    /// Maximum number of bytes of a full DFA and of the work to build it.
    pub(crate) dfa_bytes: usize,
    /// Sizes of a lazy DFA's cache, at least one.
    pub(crate) tiers: &'static [usize],
}

impl Machine {
    /// Builds the engines of `nfa`. If `options` says reverse, `nfa` is the NFA of the reversed patterns.
    ///
    /// # Errors
    /// The library's error.
    pub(crate) fn new(
        nfa: NFA,
        prefilter: Option<Prefilter>,
        options: &BuildOptions,
    ) -> Result<Machine, Box<BuildError>> {
        let prefilter = prefilter.filter(Prefilter::is_fast);
        let anchored = if options.reverse { Anchored::Yes } else { Anchored::No };
        let config = dense::Config::new()
            .match_kind(options.kind)
            .start_kind(if options.reverse { StartKind::Anchored } else { StartKind::Unanchored })
            .prefilter(prefilter.clone())
            .specialize_start_states(prefilter.is_some())
            .accelerate(!options.reverse && options.kind == MatchKind::LeftmostFirst)
            .dfa_size_limit(Some(options.dfa_bytes))
            .determinize_size_limit(Some(options.dfa_bytes));
        let build = || dense::Builder::new().configure(config).build_from_nfa(&nfa).ok();
        let engine = match (options.dfa_bytes > 0).then(build).flatten() {
            Some(dfa) => Engine::Full(Box::new(dfa)),
            _ => {
                let build = |bytes: &usize| {
                    let config = lazy::Config::new()
                        .match_kind(options.kind)
                        .prefilter(prefilter.clone())
                        .specialize_start_states(prefilter.is_some())
                        .unicode_word_boundary(true)
                        .cache_capacity(*bytes)
                        .skip_cache_capacity_check(true);
                    lazy::Builder::new().configure(config).build_from_nfa(nfa.clone()).map_err(Box::new)
                };
                Engine::Lazy(options.tiers.iter().map(build).collect::<Result<_, _>>()?)
            }
        };
        Ok(Machine {
            nfa,
            prefilter,
            anchored,
            engine,
            tiers: options.tiers,
            tier: AtomicUsize::new(0),
            hopeless: AtomicBool::new(false),
        })
    }

    /// Heap bytes of the compiled automaton.
    pub(crate) fn bytes(&self) -> usize {
        let engine = match &self.engine {
            Engine::Full(dfa) => dfa.memory_usage(),
            // All sizes share one NFA.
            Engine::Lazy(tiers) => tiers.iter().map(|dfa| size_of_val(dfa) + dfa.memory_usage()).sum(),
        };
        engine + self.nfa.memory_usage() + self.prefilter.as_ref().map_or(0, Prefilter::memory_usage)
    }
    /// True when the automaton is a full DFA.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.engine, Engine::Full(_))
    }
    /// Bytes of the full DFA; 0 when there is none.
    pub(crate) fn full_bytes(&self) -> usize {
        match &self.engine {
            Engine::Full(dfa) => dfa.memory_usage(),
            Engine::Lazy(_) => 0,
        }
    }
    /// Number of NFA states.
    pub(crate) fn states(&self) -> usize {
        self.nfa.states().len()
    }
    /// True when the lazy DFA quits on some texts: the pattern has Unicode word boundaries, and the text is not
    /// ASCII.
    pub(crate) fn is_prone_to_quit(&self) -> bool {
        !self.is_full() && self.nfa.look_set_any().contains_word_unicode()
    }
    /// True when no cache size was large enough.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.hopeless.load(Relaxed)
    }
    /// The cache size that the automaton's caches have reached, in bytes.
    pub(crate) fn tier_bytes(&self) -> usize {
        self.tiers[if self.is_hopeless() { 0 } else { self.tier.load(Relaxed) }]
    }

    /// Offset at which the first match ends. The first match is the leftmost-first match, or the match with the
    /// earliest end.
    pub(crate) fn match_end(
        &self,
        cache: &mut MachineCache,
        (haystack, span): (&[u8], Range<usize>),
        earliest: bool,
        counts: &mut Counts,
        budget: &SearchBudget<'_>,
    ) -> Result<Option<usize>, Halt> {
        let input = Input::new(haystack).span(span.clone()).earliest(earliest);
        let found = match &self.engine {
            Engine::Full(dfa) => {
                self.last::<_, false>(&mut Full(dfa), &input, Patience::UNNEEDED, earliest, budget)
            }
            Engine::Lazy(tiers) => self.run_lazy(tiers, cache, counts, budget, |dfa, patience| {
                self.last::<_, false>(dfa, &input, patience, earliest, budget)
            }),
        };
        match found {
            Ok(end) => Ok(end),
            Err(failed) => {
                self.afford(failed, span.len(), counts, budget)?;
                let mut slots = [NONE; 2];
                let found = cache.simulation().leftmost(
                    &self.nfa,
                    self.prefilter.as_ref(),
                    &input,
                    &mut slots,
                    budget,
                )?;
                Ok(found.then_some(slots[1]))
            }
        }
    }

    /// For an automaton of the reversed pattern: the offset at which the match starts that ends at the end of the
    /// span. `None`: the caller must find the start in another way.
    pub(crate) fn match_start(
        &self,
        cache: &mut MachineCache,
        (haystack, span): (&[u8], Range<usize>),
        counts: &mut Counts,
        budget: &SearchBudget<'_>,
    ) -> Result<Option<usize>, Halt> {
        let input = Input::new(haystack).span(span).anchored(self.anchored);
        let found = match &self.engine {
            Engine::Full(dfa) => {
                self.last::<_, true>(&mut Full(dfa), &input, Patience::UNNEEDED, false, budget)
            }
            Engine::Lazy(tiers) => self.run_lazy(tiers, cache, counts, budget, |dfa, patience| {
                self.last::<_, true>(dfa, &input, patience, false, budget)
            }),
        };
        match found {
            Ok(start) => Ok(start),
            Err(WalkEnd::Halt(halt)) => Err(halt),
            Err(_) => Ok(None),
        }
    }

    /// Adds the patterns that match anywhere to `found`. Stops when `enough` returns true.
    pub(crate) fn find_patterns(
        &self,
        cache: &mut MachineCache,
        haystack: &[u8],
        found: &mut PatternSet,
        counts: &mut Counts,
        budget: &SearchBudget<'_>,
    ) -> Result<(), Halt> {
        let (input, prefilter) = (Input::new(haystack), self.prefilter.as_ref());
        let (passed, halt) = match &self.engine {
            Engine::Full(dfa) => {
                let (dfa, patience, mut patterns) =
                    (&mut Full(dfa), Patience::UNNEEDED, FoundPatterns::new(found));
                let passed = walk::<_, false>(dfa, &input, prefilter, patience, budget, &mut |dfa, id, _| {
                    patterns.add(dfa, id, budget)
                });
                (passed, patterns.halt)
            }
            Engine::Lazy(tiers) => {
                let mut patterns = FoundPatterns::new(found);
                let passed = self.run_lazy(tiers, cache, counts, budget, |dfa, patience| {
                    walk::<_, false>(dfa, &input, prefilter, patience, budget, &mut |dfa, id, _| {
                        patterns.add(dfa, id, budget)
                    })
                });
                (passed, patterns.halt)
            }
        };
        if let Some(halt) = halt {
            return Err(halt);
        }
        let Err(failed) = passed else { return Ok(()) };
        self.afford(failed, haystack.len(), counts, budget)?;
        cache.simulation().find_patterns(&self.nfa, prefilter, haystack, found, budget)
    }

    /// Checks whether the budget covers a simulation.
    fn afford(
        &self,
        failed: WalkEnd,
        bytes: usize,
        counts: &mut Counts,
        budget: &SearchBudget<'_>,
    ) -> Result<(), Halt> {
        match failed {
            WalkEnd::Halt(halt) => return Err(halt),
            WalkEnd::GaveUp | WalkEnd::Cold => counts.give_ups += 1,
            WalkEnd::Quit => counts.quits += 1,
        }
        let affordable = budget.afford(self.states(), bytes);
        if affordable == Err(Halt::MoveToHardLane)
            && failed == WalkEnd::Cold
            && budget.runs_on() == RunsOn::Worker
        {
            // Move to the lane, because the text is not necessarily hard. The lane allows more building, and fewer
            // commands wait there than on the hard lane.
            return Err(Halt::MoveToLane);
        }
        affordable?;
        counts.simulations += 1;
        Ok(())
    }

    /// The full DFA, for streams, if there is one.
    pub(crate) fn full(&self) -> Option<&dense::DFA<Vec<u32>>> {
        match &self.engine {
            Engine::Full(dfa) => Some(dfa),
            Engine::Lazy(_) => None,
        }
    }

    /// Offset of the last match before the automaton dies, or of the first match.
    fn last<S: Steps, const REV: bool>(
        &self,
        dfa: &mut S,
        input: &Input<'_>,
        patience: Patience,
        first: bool,
        budget: &SearchBudget<'_>,
    ) -> Result<Option<usize>, WalkEnd> {
        let mut last = None;
        walk::<S, REV>(dfa, input, self.prefilter.as_ref(), patience, budget, &mut |_, _, offset| {
            last = Some(offset);
            !first
        })?;
        Ok(last)
    }

    /// Runs `search` on the lazy DFA and learns from the result.
    fn run_lazy<T>(
        &self,
        tiers: &[lazy::DFA],
        cache: &mut MachineCache,
        counts: &mut Counts,
        budget: &SearchBudget<'_>,
        search: impl FnOnce(&mut Lazy<'_>, Patience) -> Result<T, WalkEnd>,
    ) -> Result<T, WalkEnd> {
        budget.check().map_err(WalkEnd::Halt)?;
        let (runs_on, is_hopeless) = (budget.runs_on(), self.is_hopeless());
        // A new cache on the hard lane starts with the size that other caches of the automaton needed.
        let tier = if runs_on == RunsOn::Hard && !is_hopeless { self.tier.load(Relaxed) } else { 0 };
        let stays_small = runs_on == RunsOn::Hard && is_hopeless;
        let held = cache.lazy.take().filter(|held| !stays_small || held.tier == 0);
        let held = cache.lazy.insert(held.unwrap_or_else(|| LazyCache::new(tier, &tiers[tier])));
        let dfa = &tiers[held.tier];
        let ns = held.patience_ns(runs_on, is_hopeless).map(|ns| ns.min(budget.ns_left()));
        let patience = Patience { state_ns: build_ns(self.states()), ns };
        let mut lazy = Lazy::new(dfa, &mut held.cache);
        let found = search(&mut lazy, patience);
        let (builds, clears) = lazy.built();
        counts.builds += builds;
        counts.clears += clears as u64;
        let gave_up = matches!(found, Err(WalkEnd::GaveUp));
        let is_cold = held.record_search(builds * patience.state_ns, clears, gave_up);
        let is_too_small = held.is_too_small(clears, gave_up.then_some(patience.ns.is_none()));
        if is_too_small && held.tier + 1 < tiers.len() && !stays_small {
            let tier = held.tier + 1;
            *held = LazyCache::new(tier, &tiers[tier]);
            self.tier.fetch_max(tier, Relaxed);
        } else if is_too_small && gave_up {
            self.hopeless.store(true, Relaxed);
        } else if gave_up && patience.ns.is_some() && held.is_nearly_full() {
            // Empty the cache. Its states come from hard texts and help no other text, and easy texts need the room.
            held.reset(dfa);
            counts.resets += 1;
        }
        found.map_err(|failed| if failed == WalkEnd::GaveUp && is_cold { WalkEnd::Cold } else { failed })
    }
}
