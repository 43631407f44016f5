//! [`walk`]: one pass of a DFA, full or lazy, forward or reverse. Counts the states it builds and can be stopped.
//!
//! The inner loop only looks up transitions. A special state (one that must be built, a match, a start state after
//! which a literal is searched) leaves the loop for one step.

use super::budget::{BYTES_PER_STATE_MIN, Halt, SearchBudget};
use regex_automata::dfa::{Automaton, dense};
use regex_automata::hybrid::{LazyStateID, dfa as lazy};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::primitives::StateID;
use regex_automata::{Input, PatternID, PatternSet, Span};
use std::collections::HashSet;
use std::hash::Hash;

/// Number of bytes passed between two checks whether to stop: half a millisecond if every byte misses the processor's
/// caches.
const PIECE_BYTES: usize = 16 * 1024;
/// A pattern that a match state adds costs as much as a walk over this number of bytes.
const MATCH_BYTES: usize = 2;
/// A state with more patterns adds them once. Finding that a state was met costs as much as this number of patterns.
const PATTERNS_ADDED_MAX: usize = 8;
/// Nanoseconds of building states between two checks whether to stop.
const PIECE_NS: u64 = 100_000;

/// Why a walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkEnd {
    /// The budget stopped the walk.
    Halt(Halt),
    /// The walk built states that did not pay off.
    GaveUp,
    /// Like [`WalkEnd::GaveUp`], but the cache is still being filled: its states may help later texts.
    Cold,
    /// The walk met a byte that the DFA cannot handle (Unicode word boundaries).
    Quit,
}

/// The kind of a state: what a walk must do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Plain,
    Match,
    Start,
    Dead,
    Quit,
}

/// A DFA that a walk can step through.
pub(super) trait Steps {
    type Id: Copy;
    /// The start state.
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<Self::Id, WalkEnd>;
    /// Consumes bytes from `at` until a special state or `stop`. Returns the state and the position.
    fn run<const REV: bool>(
        &mut self,
        id: Self::Id,
        bytes: &[u8],
        at: usize,
        stop: usize,
    ) -> (Self::Id, usize);
    /// Consumes one byte, even if the next state is special.
    fn step(&mut self, id: Self::Id, byte: u8) -> Self::Id;
    /// The state after the end of the text.
    fn end(&mut self, id: Self::Id) -> Self::Id;
    /// The kind of a state.
    fn kind(&self, id: Self::Id) -> StateKind;
    /// Number of patterns of a match state.
    fn match_len(&self, id: Self::Id) -> usize;
    /// Passes the patterns of a match state to `each` until `each` returns false.
    fn matches(&self, id: Self::Id, each: &mut dyn FnMut(PatternID) -> bool) -> bool;
    /// Number of states built, and number of times the cache was cleared, since the walk started.
    fn built(&self) -> (u64, usize);
}

/// A full DFA, for a walk.
pub(super) struct Full<'a>(pub(super) &'a dense::DFA<Vec<u32>>);

impl Steps for Full<'_> {
    type Id = StateID;
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<StateID, WalkEnd> {
        let start = if REV { self.0.start_state_reverse(input) } else { self.0.start_state_forward(input) };
        start.map_err(|_| WalkEnd::Quit)
    }
    #[inline]
    fn run<const REV: bool>(
        &mut self,
        mut id: StateID,
        bytes: &[u8],
        mut at: usize,
        stop: usize,
    ) -> (StateID, usize) {
        if self.0.is_accel_state(id) && !REV {
            // The loop below reads only the bytes of `rest`.
            let rest = &bytes[at..stop];
            let next = match *self.0.accelerator(id) {
                [a] => memchr::memchr(a, rest),
                [a, b] => memchr::memchr2(a, b, rest),
                [a, b, c] => memchr::memchr3(a, b, c, rest),
                _ => Some(0),
            };
            at = next.map_or(stop, |n| at + n);
            return (id, at);
        }
        if self.0.is_special_state(id) {
            return (id, at);
        }
        while at < stop {
            let next = self.0.next_state(id, byte::<REV>(bytes, at));
            if self.0.is_special_state(next) {
                break;
            }
            (id, at) = (next, at + 1);
        }
        (id, at)
    }
    fn step(&mut self, id: StateID, byte: u8) -> StateID {
        self.0.next_state(id, byte)
    }
    fn end(&mut self, id: StateID) -> StateID {
        self.0.next_eoi_state(id)
    }
    fn kind(&self, id: StateID) -> StateKind {
        if !self.0.is_special_state(id) {
            StateKind::Plain
        } else if self.0.is_match_state(id) {
            StateKind::Match
        } else if self.0.is_dead_state(id) {
            StateKind::Dead
        } else if self.0.is_quit_state(id) {
            StateKind::Quit
        } else if self.0.is_start_state(id) {
            StateKind::Start
        } else {
            StateKind::Plain
        }
    }
    fn match_len(&self, id: StateID) -> usize {
        self.0.match_len(id)
    }
    fn matches(&self, id: StateID, each: &mut dyn FnMut(PatternID) -> bool) -> bool {
        (0..self.0.match_len(id)).all(|i| each(self.0.match_pattern(id, i)))
    }
    fn built(&self) -> (u64, usize) {
        (0, 0)
    }
}

/// A lazy DFA and its cache, for a walk.
pub(super) struct Lazy<'a> {
    pub(super) dfa: &'a lazy::DFA,
    pub(super) cache: &'a mut lazy::Cache,
    builds: u64,
    clears_before: usize,
}

impl<'a> Lazy<'a> {
    pub(super) fn new(dfa: &'a lazy::DFA, cache: &'a mut lazy::Cache) -> Lazy<'a> {
        let clears_before = cache.clear_count();
        Lazy { dfa, cache, builds: 0, clears_before }
    }
    fn counted(&mut self, step: impl FnOnce(&mut lazy::Cache) -> LazyStateID) -> LazyStateID {
        let before = (self.cache.memory_usage(), self.cache.clear_count());
        let id = step(self.cache);
        self.builds += u64::from((self.cache.memory_usage(), self.cache.clear_count()) != before);
        id
    }
}

impl Steps for Lazy<'_> {
    type Id = LazyStateID;
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<LazyStateID, WalkEnd> {
        let start = match REV {
            true => self.dfa.start_state_reverse(self.cache, input),
            false => self.dfa.start_state_forward(self.cache, input),
        };
        start.map_err(|_| WalkEnd::Quit)
    }
    #[inline]
    fn run<const REV: bool>(
        &mut self,
        mut id: LazyStateID,
        bytes: &[u8],
        mut at: usize,
        stop: usize,
    ) -> (LazyStateID, usize) {
        if id.is_tagged() {
            return (id, at);
        }
        let cache = &*self.cache;
        while at < stop {
            let next = self.dfa.next_state_untagged(cache, id, byte::<REV>(bytes, at));
            if next.is_tagged() {
                break;
            }
            (id, at) = (next, at + 1);
        }
        (id, at)
    }
    fn step(&mut self, id: LazyStateID, byte: u8) -> LazyStateID {
        let dfa = self.dfa;
        if !id.is_tagged() {
            let next = dfa.next_state_untagged(self.cache, id, byte);
            if !next.is_unknown() {
                return next;
            }
            self.builds += 1;
            // An error cannot occur, because the cache is configured never to give up by itself.
            return dfa.next_state(self.cache, id, byte).unwrap_or(next);
        }
        self.counted(|cache| dfa.next_state(cache, id, byte).unwrap_or(id))
    }
    fn end(&mut self, id: LazyStateID) -> LazyStateID {
        self.dfa.next_eoi_state(self.cache, id).unwrap_or(id)
    }
    fn kind(&self, id: LazyStateID) -> StateKind {
        if !id.is_tagged() {
            StateKind::Plain
        } else if id.is_match() {
            StateKind::Match
        } else if id.is_dead() {
            StateKind::Dead
        } else if id.is_quit() {
            StateKind::Quit
        } else if id.is_start() {
            StateKind::Start
        } else {
            StateKind::Plain
        }
    }
    fn match_len(&self, id: LazyStateID) -> usize {
        self.dfa.match_len(self.cache, id)
    }
    fn matches(&self, id: LazyStateID, each: &mut dyn FnMut(PatternID) -> bool) -> bool {
        (0..self.dfa.match_len(self.cache, id)).all(|i| each(self.dfa.match_pattern(self.cache, id, i)))
    }
    fn built(&self) -> (u64, usize) {
        (self.builds, self.cache.clear_count() - self.clears_before)
    }
}

/// The patterns that a walk has found. A state with many patterns adds them once: a state may have a thousand patterns,
/// and each byte of a text may lead to such a state.
pub(super) struct FoundPatterns<'f, Id> {
    found: &'f mut PatternSet,
    /// The states with many patterns that the walk has met since the cache was cleared for the last time.
    met: HashSet<Id>,
    clears: usize,
    /// Why the walk was ended before its end.
    pub(super) halt: Option<Halt>,
}

impl<'f, Id: Copy + Eq + Hash> FoundPatterns<'f, Id> {
    pub(super) fn new(found: &'f mut PatternSet) -> Self {
        FoundPatterns { found, met: HashSet::new(), clears: 0, halt: None }
    }
    /// Adds the patterns of a match state. False ends the walk.
    pub(super) fn add(&mut self, dfa: &impl Steps<Id = Id>, id: Id, budget: &SearchBudget<'_>) -> bool {
        let patterns = dfa.match_len(id);
        let mut bytes = MATCH_BYTES * patterns;
        if patterns > PATTERNS_ADDED_MAX {
            let (_, clears) = dfa.built();
            if clears != std::mem::replace(&mut self.clears, clears) {
                // The numbers of the states stand for other states now.
                self.met.clear();
            }
            if !self.met.insert(id) {
                bytes = MATCH_BYTES * PATTERNS_ADDED_MAX;
            }
        }
        if let Err(halt) = budget.spend(bytes) {
            self.halt = Some(halt);
            return false;
        }
        let is_known = bytes < MATCH_BYTES * patterns;
        is_known
            || dfa.matches(id, &mut |pattern| {
                self.found.insert(pattern);
                !self.found.is_full()
            })
    }
}

#[inline(always)]
fn byte<const REV: bool>(bytes: &[u8], at: usize) -> u8 {
    if REV { bytes[bytes.len() - 1 - at] } else { bytes[at] }
}

/// Receives each match: the machine, the state and the offset. Returns false to end the walk.
pub(super) type OnMatch<'m, S> = &'m mut dyn FnMut(&S, <S as Steps>::Id, usize) -> bool;

/// How much a walk may build before the states must pay off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Cost of building one state, in nanoseconds.
    pub(super) state_ns: u64,
    /// Nanoseconds of building before the states are weighed against the bytes passed; `None`: until the cache has
    /// been full.
    pub(super) ns: Option<u64>,
}

impl Patience {
    /// The value for a full DFA, which builds no states.
    pub(super) const UNNEEDED: Patience = Patience { state_ns: 0, ns: None };

    fn is_over(&self, builds: u64, clears: usize, bytes: usize) -> bool {
        let is_no_gain = builds as usize * BYTES_PER_STATE_MIN > bytes;
        is_no_gain && self.ns.map_or(clears > 0, |ns| builds * self.state_ns > ns)
    }
}

/// Walks the bytes of `input`'s span. Reports matches in order, each at its end (in reverse: at its start). Charges
/// the bytes passed and the states built to `budget`.
pub(super) fn walk<S: Steps, const REV: bool>(
    dfa: &mut S,
    input: &Input<'_>,
    prefilter: Option<&Prefilter>,
    patience: Patience,
    budget: &SearchBudget<'_>,
    on_match: OnMatch<'_, S>,
) -> Result<(), WalkEnd> {
    let mut passed = Passed::default();
    let result = pass::<S, REV>(dfa, input, prefilter, patience, budget, &mut passed, on_match);
    budget.charge(dfa.built().0 * patience.state_ns - passed.charged_ns);
    let spent = budget.spend(passed.at - passed.charged);
    result.and(spent.map_err(WalkEnd::Halt))
}

/// How far a walk has come, and how much of that is charged to the budget.
#[derive(Default)]
struct Passed {
    at: usize,
    charged: usize,
    charged_ns: u64,
}

fn pass<S: Steps, const REV: bool>(
    dfa: &mut S,
    input: &Input<'_>,
    prefilter: Option<&Prefilter>,
    patience: Patience,
    budget: &SearchBudget<'_>,
    passed: &mut Passed,
    on_match: OnMatch<'_, S>,
) -> Result<(), WalkEnd> {
    let (haystack, span) = (input.haystack(), input.get_span());
    let bytes = &haystack[span.start..span.end];
    let offset = |at: usize| if REV { span.end - at } else { span.start + at };
    let mut id = dfa.start::<REV>(input)?;
    let (mut at, mut builds_before) = (0, 0);
    while at < bytes.len() {
        let stop = bytes.len().min(at + PIECE_BYTES);
        while at < stop {
            (id, at) = dfa.run::<REV>(id, bytes, at, stop);
            passed.at = at;
            if at >= stop {
                break;
            }
            if let Some(prefilter) = prefilter
                && !REV
                && dfa.kind(id) == StateKind::Start
            {
                // No match is in progress here, and a match can only start with the literal, so search for the
                // literal.
                match prefilter.find(haystack, Span { start: span.start + at, end: span.end }) {
                    None => {
                        passed.at = bytes.len();
                        return Ok(());
                    }
                    Some(found) if found.start > span.start + at => {
                        at = found.start - span.start;
                        id = dfa.start::<REV>(&input.clone().span(found.start..span.end))?;
                    }
                    Some(_) => {}
                }
            }
            id = dfa.step(id, byte::<REV>(bytes, at));
            match dfa.kind(id) {
                StateKind::Match if !on_match(dfa, id, offset(at)) => return Ok(()),
                StateKind::Dead => return Ok(()),
                StateKind::Quit => return Err(WalkEnd::Quit),
                _ => {}
            }
            at += 1;
            passed.at = at;
            let (builds, clears) = dfa.built();
            if builds > builds_before {
                builds_before = builds;
                if patience.is_over(builds, clears, at) {
                    return Err(WalkEnd::GaveUp);
                }
                let ns = builds * patience.state_ns - passed.charged_ns;
                if ns >= PIECE_NS {
                    passed.charged_ns += ns;
                    budget.charge_and_check(ns).map_err(WalkEnd::Halt)?;
                }
            }
        }
        if at < bytes.len() {
            budget.spend(at - passed.charged).map_err(WalkEnd::Halt)?;
            passed.charged = at;
            budget.check().map_err(WalkEnd::Halt)?;
        }
    }
    let beyond =
        if REV { span.start.checked_sub(1).map(|i| haystack[i]) } else { haystack.get(span.end).copied() };
    id = match beyond {
        Some(byte) => dfa.step(id, byte),
        None => dfa.end(id),
    };
    match dfa.kind(id) {
        StateKind::Match => {
            on_match(dfa, id, offset(bytes.len()));
            Ok(())
        }
        StateKind::Quit => Err(WalkEnd::Quit),
        _ => Ok(()),
    }
}
