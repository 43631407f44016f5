//! [`Matcher`]: one thread's search of haystacks with one pattern.

use super::pattern::{Engine, Pattern};
use super::*;
use crate::error::SearchError;
use regex_automata::dfa::Automaton;
use regex_automata::hybrid::dfa as lazy;
use regex_automata::nfa::thompson::pikevm;
use regex_automata::{HalfMatch, Input, MatchErrorKind};

/// Bytes stepped between two looks at whether anybody waits.
const STEP_BYTES: usize = 64 * 1024;

/// What the caches went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Haystacks searched.
    pub(crate) searches: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Times the lazy DFA's full cache was cleared.
    pub(crate) clears: u64,
    /// Haystacks on which the lazy DFA gave up for being inefficient.
    pub(crate) give_ups: u64,
    /// Haystacks on which it met a byte it cannot handle (Unicode word boundaries).
    pub(crate) quits: u64,
    /// Resets of a cache that had gone bad.
    pub(crate) resets: u64,
}

/// Caches for one pattern, owned by one thread.
pub(crate) struct Matcher<'p> {
    pattern: &'p Pattern,
    lazy: Option<lazy::Cache>,
    /// Made when first needed: the caches of the fallbacks.
    patient: Option<lazy::Cache>,
    pike: Option<pikevm::Cache>,
    pub(crate) counts: Counts,
    /// Reset a cache that was cleared or gave up; only a test that shows why turns this off.
    pub(super) resets: bool,
    is_bad: bool,
}

impl<'p> Matcher<'p> {
    /// Fresh caches.
    pub(crate) fn new(pattern: &'p Pattern) -> Matcher<'p> {
        let lazy = match &pattern.engine {
            Engine::Lazy(dfa, _) => Some(dfa.create_cache()),
            Engine::Full(_) => None,
        };
        Matcher {
            pattern,
            lazy,
            patient: None,
            pike: None,
            counts: Counts::default(),
            resets: true,
            is_bad: false,
        }
    }

    /// Bytes of heap of its caches.
    pub(crate) fn cache_bytes(&self) -> usize {
        let lazy = [&self.lazy, &self.patient].into_iter().flatten().map(|cache| cache.memory_usage());
        lazy.sum::<usize>() + self.pike.as_ref().map_or(0, |cache| cache.memory_usage())
    }

    /// Where the first match ends: leftmost-first, or the earliest end there is with `earliest` (enough to know that
    /// there is a match).
    ///
    /// # Errors
    /// [`SearchError::Cancelled`] when `cancelled` says so in a long haystack.
    pub(crate) fn find_end(
        &mut self,
        haystack: &[u8],
        earliest: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, SearchError> {
        self.counts.searches += 1;
        self.counts.bytes += haystack.len() as u64;
        if self.pattern.literal.as_ref().is_some_and(|l| l.find(haystack).is_none()) {
            return Ok(None);
        }
        let input = Input::new(haystack).earliest(earliest);
        let found = match &self.pattern.engine {
            Engine::Full(dfa) => dfa.try_search_fwd(&input),
            Engine::Lazy(dfa, _) => {
                let cache = self.lazy.as_mut().expect("made with the lazy engine");
                if std::mem::take(&mut self.is_bad) && self.resets {
                    cache.reset(dfa);
                    self.counts.resets += 1;
                }
                let before = cache.clear_count();
                let found = dfa.try_search_fwd(cache, &input);
                let clears = cache.clear_count() - before;
                self.counts.clears += clears as u64;
                self.is_bad = clears > 0 || found.is_err();
                found
            }
        };
        match found {
            Ok(end) => Ok(end.map(|m: HalfMatch| m.offset())),
            Err(e) => {
                match e.kind() {
                    MatchErrorKind::Quit { .. } => {
                        self.counts.quits += 1;
                        return self.after_quit(&input);
                    }
                    _ => self.counts.give_ups += 1,
                }
                if haystack.len() <= PIKE_BYTES_MAX {
                    Ok(self.pike(&input))
                } else {
                    self.step(&input, cancelled)
                }
            }
        }
    }

    /// Only the PikeVM knows Unicode word boundaries in text that is not ASCII, and nothing can stop it.
    fn after_quit(&mut self, input: &Input<'_>) -> Result<Option<usize>, SearchError> {
        if input.haystack().len() > PIKE_BYTES_MAX {
            let text = "ERR Unicode word boundaries are not searched for in values over 256 KiB that are not ASCII; use (?-u:\\b)";
            return Err(SearchError::Refused(text.into()));
        }
        Ok(self.pike(input))
    }

    /// The search that nothing stops and that builds nothing.
    fn pike(&mut self, input: &Input<'_>) -> Option<usize> {
        let pike = &self.pattern.pike;
        let cache = self.pike.get_or_insert_with(|| pike.create_cache());
        let mut slots = [None, None];
        pike.search_slots(cache, input, &mut slots)?;
        slots[1].map(|end| end.get())
    }

    /// A lazy DFA that never gives up, a byte at a time, for haystacks too long to be left alone with.
    pub(super) fn step(
        &mut self,
        input: &Input<'_>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, SearchError> {
        let Engine::Lazy(_, dfa) = &self.pattern.engine else {
            return Ok(self.pike(input));
        };
        let cache = self.patient.get_or_insert_with(|| dfa.create_cache());
        let before = cache.clear_count();
        let failed =
            |why: &dyn std::fmt::Display| SearchError::Refused(format!("ERR The pattern failed: {why}"));
        let mut state = dfa.start_state_forward(cache, input).map_err(|e| failed(&e))?;
        let (mut end, mut quit) = (None, false);
        for (i, byte) in input.haystack().iter().enumerate() {
            if i % STEP_BYTES == 0 && cancelled() {
                return Err(SearchError::Cancelled);
            }
            state = dfa.next_state(cache, state, *byte).map_err(|e| failed(&e))?;
            if state.is_tagged() {
                // A match is reported one byte late.
                if state.is_match() {
                    end = Some(i);
                    if input.get_earliest() {
                        break;
                    }
                } else if state.is_dead() {
                    break;
                } else if state.is_quit() {
                    quit = true;
                    break;
                }
            }
        }
        let is_settled = quit || state.is_dead() || (end.is_some() && input.get_earliest());
        if !is_settled {
            state = dfa.next_eoi_state(cache, state).map_err(|e| failed(&e))?;
            if state.is_match() {
                end = Some(input.haystack().len());
            }
        }
        self.counts.clears += (cache.clear_count() - before) as u64;
        if quit {
            self.counts.quits += 1;
            return self.after_quit(input);
        }
        Ok(end)
    }
}
