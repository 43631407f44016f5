//! [`Matcher`]: searches texts with one pattern on one thread.

use super::budget::{Halt, SearchBudget};
use super::cache::MachineCache;
use super::pattern::Pattern;
use super::simulate::NONE;
use regex_automata::{Anchored, Input};
use std::ops::Range;
use strand_commands::call::RunsOn;

/// Counters of the engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of texts searched.
    pub(crate) searches: u64,
    /// Number of bytes of these texts.
    pub(crate) bytes: u64,
    /// Number of states that lazy DFAs built.
    pub(crate) builds: u64,
    /// Number of times that a lazy DFA's full cache was cleared.
    pub(crate) clears: u64,
    /// Number of texts on which a lazy DFA gave up because it was inefficient.
    pub(crate) give_ups: u64,
    /// Number of texts on which a lazy DFA met a byte that it cannot handle (Unicode word boundaries).
    pub(crate) quits: u64,
    /// Number of times that a lazy DFA's cache was reset.
    pub(crate) resets: u64,
    /// Number of texts that the simulation finished.
    pub(crate) simulations: u64,
}

/// Caches for one pattern, owned by one thread. Every call must pass the same pattern.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    forward: MachineCache,
    reverse: MachineCache,
    pub(crate) counts: Counts,
}

impl Matcher {
    /// Heap bytes of the caches.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.forward.bytes() + self.reverse.bytes()
    }

    /// True when the haystack has a match.
    ///
    /// # Errors
    /// When the search must stop or move to another thread.
    pub(crate) fn is_match(
        &mut self,
        pattern: &Pattern,
        haystack: &[u8],
        budget: &SearchBudget<'_>,
    ) -> Result<bool, Halt> {
        Ok(self.find_end(pattern, haystack, 0, true, budget)?.is_some())
    }

    /// Offset at which the first match that starts at `at` or later ends: leftmost-first. With `earliest`, the earliest
    /// end of any match, which is enough to know that a match exists.
    ///
    /// # Errors
    /// As [`Matcher::is_match`].
    pub(super) fn find_end(
        &mut self,
        pattern: &Pattern,
        haystack: &[u8],
        at: usize,
        earliest: bool,
        budget: &SearchBudget<'_>,
    ) -> Result<Option<usize>, Halt> {
        if pattern.lacks_literal(&haystack[at..], budget)? {
            return Ok(None);
        }
        let text = (haystack, at..haystack.len());
        pattern.machine.match_end(&mut self.forward, text, earliest, &mut self.counts, budget)
    }

    /// The first match that starts at `at` or later: leftmost-first.
    ///
    /// # Errors
    /// As [`Matcher::is_match`].
    pub(crate) fn find(
        &mut self,
        pattern: &Pattern,
        haystack: &[u8],
        at: usize,
        budget: &SearchBudget<'_>,
    ) -> Result<Option<Range<usize>>, Halt> {
        let Some(end) = self.find_end(pattern, haystack, at, false, budget)? else {
            return Ok(None);
        };
        if budget.runs_on() == RunsOn::Worker && !pattern.has_reverse() {
            // Move to the lane, because compiling the automaton that matches backwards takes too long on a worker.
            return Err(Halt::MoveToLane);
        }
        let reverse = match pattern.has_reverse() {
            true => pattern.reverse(),
            false => budget.beside_deadline(|| pattern.reverse()),
        };
        if let Some(reverse) = reverse
            && let Some(start) =
                reverse.match_start(&mut self.reverse, (haystack, at..end), &mut self.counts, budget)?
        {
            return Ok(Some(start..end));
        }
        // The end is known, so the text after it is not searched.
        let mut slots = [NONE; 2];
        self.slots(pattern, haystack, at..end, Anchored::No, &mut slots, budget)?;
        Ok(Some(slots[0]..slots[1]))
    }

    /// The groups of the match at `span`, which [`Matcher::find`] returned. Each group has two slots: its start and
    /// its end.
    ///
    /// # Errors
    /// As [`Matcher::is_match`].
    pub(crate) fn groups(
        &mut self,
        pattern: &Pattern,
        haystack: &[u8],
        span: Range<usize>,
        budget: &SearchBudget<'_>,
    ) -> Result<Vec<usize>, Halt> {
        let mut slots = vec![NONE; pattern.machine.nfa.group_info().slot_len()];
        self.slots(pattern, haystack, span, Anchored::Yes, &mut slots, budget)?;
        Ok(slots)
    }

    fn slots(
        &mut self,
        pattern: &Pattern,
        haystack: &[u8],
        span: Range<usize>,
        anchored: Anchored,
        slots: &mut [usize],
        budget: &SearchBudget<'_>,
    ) -> Result<bool, Halt> {
        let machine = &pattern.machine;
        // The span is known to match, so only some threads of the simulation are alive.
        budget.try_afford(machine.states(), span.len())?;
        let input = Input::new(haystack).span(span).anchored(anchored);
        self.forward.simulation().leftmost(&machine.nfa, machine.prefilter.as_ref(), &input, slots, budget)
    }
}

/// Walks the non-overlapping matches of a pattern. Keeps the offset to continue from and the end of the last match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    at: usize,
    last_end: Option<usize>,
    whole_characters: bool,
}

impl Progress {
    /// Progress at the begin of a text. With `whole_characters`, an empty match inside a character of UTF-8 does not count.
    pub(crate) fn new(whole_characters: bool) -> Progress {
        Progress { at: 0, last_end: None, whole_characters }
    }
    /// The next match in `text`, if any. `find` searches from an offset on.
    ///
    /// # Errors
    /// The errors of `find`.
    pub(crate) fn next(
        &mut self,
        text: &[u8],
        mut find: impl FnMut(usize) -> Result<Option<Range<usize>>, Halt>,
    ) -> Result<Option<Range<usize>>, Halt> {
        while self.at <= text.len() {
            let Some(found) = find(self.at)? else {
                self.at = text.len() + 1;
                break;
            };
            // An empty match that follows the last match directly does not count.
            let follows = self.last_end == Some(found.end);
            if found.is_empty() && (follows || self.whole_characters && is_inside_character(text, found.end))
            {
                self.at = found.end + 1;
                continue;
            }
            self.at = found.end;
            self.last_end = Some(found.end);
            return Ok(Some(found));
        }
        Ok(None)
    }
}

/// True when the byte at `at` continues a character of UTF-8.
fn is_inside_character(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| (0x80..0xc0).contains(byte))
}
