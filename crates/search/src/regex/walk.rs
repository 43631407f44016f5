//! [`walk`]: one pass of a DFA, full or lazy, forward or in reverse, that counts the states it builds and can be stopped.
//!
//! The inner loop only looks up transitions; whatever is special (a state to be built, a match, a start state behind which
//! a literal is searched for) leaves it for one step.

use super::budget::{BYTES_PER_STATE_MIN, Budget, Halt};
use regex_automata::dfa::{Automaton, dense};
use regex_automata::hybrid::{LazyStateID, dfa as lazy};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::primitives::StateID;
use regex_automata::{Input, PatternID, Span};

/// Bytes passed between two looks at whether to go on: half a millisecond, should each be a miss of the processor's caches.
const PIECE_BYTES: usize = 16 * 1024;
/// Nanoseconds of building between two such looks.
const PIECE_NS: u64 = 100_000;

/// Why a walk ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Told to.
    Halt(Halt),
    /// It builds more states than it is worth.
    GaveUp,
    /// The same, but its cache has just been begun: it may be worth more to those who come later.
    Cold,
    /// A byte that it cannot handle (Unicode word boundaries).
    Quit,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Match,
    Start,
    Dead,
    Quit,
}

/// A DFA at work.
pub(super) trait Steps {
    type Id: Copy;
    /// The state to begin in.
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<Self::Id, Failed>;
    /// Passes bytes from `at` on until something special comes or `stop` is reached; the state and position then.
    fn run<const REV: bool>(
        &mut self,
        id: Self::Id,
        bytes: &[u8],
        at: usize,
        stop: usize,
    ) -> (Self::Id, usize);
    /// Passes one byte, whatever comes.
    fn step(&mut self, id: Self::Id, byte: u8) -> Self::Id;
    /// What follows the last byte.
    fn end(&mut self, id: Self::Id) -> Self::Id;
    /// What a state is.
    fn kind(&self, id: Self::Id) -> Kind;
    /// The patterns of a match state, one by one, until `each` says no.
    fn matches(&self, id: Self::Id, each: &mut dyn FnMut(PatternID) -> bool) -> bool;
    /// States built, and times that the cache was cleared, since the walk began.
    fn built(&self) -> (u64, usize);
}

/// A full DFA.
pub(super) struct Full<'a>(pub(super) &'a dense::DFA<Vec<u32>>);

impl Steps for Full<'_> {
    type Id = StateID;
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<StateID, Failed> {
        let start = if REV { self.0.start_state_reverse(input) } else { self.0.start_state_forward(input) };
        start.map_err(|_| Failed::Quit)
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
            // It is left on these bytes only.
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
    fn kind(&self, id: StateID) -> Kind {
        match () {
            () if !self.0.is_special_state(id) => Kind::Plain,
            () if self.0.is_match_state(id) => Kind::Match,
            () if self.0.is_dead_state(id) => Kind::Dead,
            () if self.0.is_quit_state(id) => Kind::Quit,
            () if self.0.is_start_state(id) => Kind::Start,
            () => Kind::Plain,
        }
    }
    fn matches(&self, id: StateID, each: &mut dyn FnMut(PatternID) -> bool) -> bool {
        (0..self.0.match_len(id)).all(|i| each(self.0.match_pattern(id, i)))
    }
    fn built(&self) -> (u64, usize) {
        (0, 0)
    }
}

/// A lazy DFA and its cache.
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
    fn start<const REV: bool>(&mut self, input: &Input<'_>) -> Result<LazyStateID, Failed> {
        let start = match REV {
            true => self.dfa.start_state_reverse(self.cache, input),
            false => self.dfa.start_state_forward(self.cache, input),
        };
        start.map_err(|_| Failed::Quit)
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
            // It never gives up by itself: it is configured not to.
            return dfa.next_state(self.cache, id, byte).unwrap_or(next);
        }
        self.counted(|cache| dfa.next_state(cache, id, byte).unwrap_or(id))
    }
    fn end(&mut self, id: LazyStateID) -> LazyStateID {
        self.dfa.next_eoi_state(self.cache, id).unwrap_or(id)
    }
    fn kind(&self, id: LazyStateID) -> Kind {
        match () {
            () if !id.is_tagged() => Kind::Plain,
            () if id.is_match() => Kind::Match,
            () if id.is_dead() => Kind::Dead,
            () if id.is_quit() => Kind::Quit,
            () if id.is_start() => Kind::Start,
            () => Kind::Plain,
        }
    }
    fn matches(&self, id: LazyStateID, each: &mut dyn FnMut(PatternID) -> bool) -> bool {
        (0..self.dfa.match_len(self.cache, id)).all(|i| each(self.dfa.match_pattern(self.cache, id, i)))
    }
    fn built(&self) -> (u64, usize) {
        (self.builds, self.cache.clear_count() - self.clears_before)
    }
}

#[inline(always)]
fn byte<const REV: bool>(bytes: &[u8], at: usize) -> u8 {
    if REV { bytes[bytes.len() - 1 - at] } else { bytes[at] }
}

/// What a walk reports a match to: the machine, the state and the offset; no more of them when it says false.
pub(super) type OnMatch<'m, S> = &'m mut dyn FnMut(&S, <S as Steps>::Id, usize) -> bool;

/// How much building a walk may do before it has to be worth it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// What a state costs, in nanoseconds.
    pub(super) state_ns: u64,
    /// States that cost so much may be built before they are weighed against the bytes passed; `None`: until the cache
    /// has been full.
    pub(super) ns: Option<u64>,
}

impl Patience {
    /// For a DFA that builds nothing.
    pub(super) const UNNEEDED: Patience = Patience { state_ns: 0, ns: None };

    fn is_over(&self, builds: u64, clears: usize, bytes: usize) -> bool {
        let is_no_gain = builds as usize * BYTES_PER_STATE_MIN > bytes;
        is_no_gain && self.ns.map_or(clears > 0, |ns| builds * self.state_ns > ns)
    }
}

/// Passes the bytes of `input`'s span; matches are reported in order, each where it ends (in reverse: where it begins).
/// What it passes and builds is charged to `budget`.
pub(super) fn walk<S: Steps, const REV: bool>(
    dfa: &mut S,
    input: &Input<'_>,
    prefilter: Option<&Prefilter>,
    patience: Patience,
    budget: &Budget<'_>,
    on_match: OnMatch<'_, S>,
) -> Result<(), Failed> {
    let mut passed = Passed::default();
    let result = pass::<S, REV>(dfa, input, prefilter, patience, budget, &mut passed, on_match);
    budget.charge(dfa.built().0 * patience.state_ns - passed.charged_ns);
    let spent = budget.spend(passed.at - passed.charged);
    result.and(spent.map_err(Failed::Halt))
}

/// How far a walk is, and what of that is charged.
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
    budget: &Budget<'_>,
    passed: &mut Passed,
    on_match: OnMatch<'_, S>,
) -> Result<(), Failed> {
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
                && dfa.kind(id) == Kind::Start
            {
                // Nothing is begun here: a match can only begin with the literal.
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
                Kind::Match if !on_match(dfa, id, offset(at)) => return Ok(()),
                Kind::Dead => return Ok(()),
                Kind::Quit => return Err(Failed::Quit),
                _ => {}
            }
            at += 1;
            passed.at = at;
            let (builds, clears) = dfa.built();
            if builds > builds_before {
                builds_before = builds;
                if patience.is_over(builds, clears, at) {
                    return Err(Failed::GaveUp);
                }
                let ns = builds * patience.state_ns - passed.charged_ns;
                if ns >= PIECE_NS {
                    passed.charged_ns += ns;
                    budget.go_on(ns).map_err(Failed::Halt)?;
                }
            }
        }
        if at < bytes.len() {
            budget.spend(at - passed.charged).map_err(Failed::Halt)?;
            passed.charged = at;
            budget.check().map_err(Failed::Halt)?;
        }
    }
    let beyond =
        if REV { span.start.checked_sub(1).map(|i| haystack[i]) } else { haystack.get(span.end).copied() };
    id = match beyond {
        Some(byte) => dfa.step(id, byte),
        None => dfa.end(id),
    };
    match dfa.kind(id) {
        Kind::Match => {
            on_match(dfa, id, offset(bytes.len()));
            Ok(())
        }
        Kind::Quit => Err(Failed::Quit),
        _ => Ok(()),
    }
}
