//! [`Simulation`]: runs an NFA over a text, state by state. Every pattern can be searched by it when the faster
//! machines cannot be used: the simulation builds no DFA states, needs memory only for the states of the NFA, and
//! supports all assertions. Unlike the library's simulation it can be cancelled, ends at a deadline, and can continue
//! with the next piece of a stream.
//!
//! A *thread* of the simulation is one of the NFA states that are active at the present offset. Threads are ordered by
//! preference, so the first thread that matches gives the leftmost-first match. Each thread carries as many slots
//! (offsets of groups) as the caller needs.

use super::budget::{Halt, SIMULATE_NS, SearchBudget};
use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::primitives::StateID;
use regex_automata::{Input, PatternID, PatternSet, Span};

/// The value of an unset slot.
pub(crate) const NONE: usize = usize::MAX;
/// Number of simulated threads that are advanced between two checks whether the search must stop.
const PIECE_STEPS: usize = 1 << 14;

/// The simulation's buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulation {
    now: Threads,
    next: Threads,
    stack: Vec<Frame>,
    slots: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Explore(StateID),
    Restore(usize, usize),
}

/// A set of states, ordered by preference, with the slots of each.
#[derive(Clone, Debug, Default)]
struct Threads {
    order: Vec<StateID>,
    place: Vec<u32>,
    slots: Vec<usize>,
    width: usize,
}

impl Threads {
    fn begin(&mut self, states: usize, width: usize) {
        self.order.clear();
        self.place.resize(states, 0);
        self.slots.clear();
        self.width = width;
    }
    fn clear(&mut self) {
        self.order.clear();
        self.slots.clear();
    }
    fn has(&self, id: StateID) -> bool {
        self.order.get(self.place[id.as_usize()] as usize) == Some(&id)
    }
    fn add(&mut self, id: StateID) {
        self.place[id.as_usize()] = self.order.len() as u32;
        self.order.push(id);
        self.slots.resize(self.order.len() * self.width, NONE);
    }
    fn slots_of(&self, i: usize) -> &[usize] {
        &self.slots[i * self.width..(i + 1) * self.width]
    }
    fn heap_bytes(&self) -> usize {
        (self.order.capacity() + self.place.capacity()) * 4 + self.slots.capacity() * 8
    }
}

/// The state of a stream between two pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamState {
    /// States before the next byte, without their empty transitions. Assertions may need to see the next byte
    /// first.
    states: Vec<StateID>,
    last: Option<u8>,
}

impl StreamState {
    /// Heap bytes of the stream's state.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.states.capacity() * 4
    }
}

impl Simulation {
    /// Heap bytes of the simulation's buffers.
    pub(crate) fn heap_bytes(&self) -> usize {
        let frames = self.stack.capacity() * std::mem::size_of::<Frame>();
        self.now.heap_bytes() + self.next.heap_bytes() + frames + self.slots.capacity() * 8
    }

    /// Finds the leftmost-first match in the span of `input` (its anchored and earliest flags apply) and fills
    /// `slots`. The first two slots are the start and the end. Returns false when there is no match.
    pub(crate) fn leftmost(
        &mut self,
        nfa: &NFA,
        prefilter: Option<&Prefilter>,
        input: &Input<'_>,
        out: &mut [usize],
        budget: &SearchBudget<'_>,
    ) -> Result<bool, Halt> {
        let (haystack, span) = (input.haystack(), input.get_span());
        let is_anchored = input.get_anchored().is_anchored();
        self.begin(nfa, out.len());
        let (mut found, mut steps, mut at) = (false, 0, span.start);
        loop {
            if self.now.order.is_empty() {
                if found || (is_anchored && at > span.start) {
                    break;
                }
                if let Some(prefilter) = prefilter.filter(|_| !is_anchored) {
                    match prefilter.find(haystack, Span { start: at, end: span.end }) {
                        None => break,
                        Some(candidate) => at = candidate.start,
                    }
                }
            }
            if !found && (!is_anchored || at == span.start) {
                self.slots.fill(NONE);
                explore(
                    nfa,
                    haystack,
                    at,
                    nfa.start_anchored(),
                    &mut self.now,
                    &mut self.stack,
                    &mut self.slots,
                );
            }
            self.next.clear();
            let byte = if at < span.end { Some(haystack[at]) } else { None };
            for i in 0..self.now.order.len() {
                let state = nfa.state(self.now.order[i]);
                if let State::Match { .. } = state {
                    out.copy_from_slice(self.now.slots_of(i));
                    found = true;
                    // Stop, because later threads are less preferred.
                    break;
                }
                if let Some(to) = byte.and_then(|b| target(state, b)) {
                    self.slots.copy_from_slice(self.now.slots_of(i));
                    explore(nfa, haystack, at + 1, to, &mut self.next, &mut self.stack, &mut self.slots);
                }
            }
            steps += self.now.order.len() + 1;
            std::mem::swap(&mut self.now, &mut self.next);
            if (found && input.get_earliest()) || at >= span.end {
                break;
            }
            at += 1;
            if steps >= PIECE_STEPS {
                budget.charge_and_check(steps_ns(std::mem::take(&mut steps)))?;
            }
        }
        budget.charge(steps_ns(steps));
        Ok(found)
    }

    /// Adds the patterns that match anywhere in `haystack` to `found`.
    pub(crate) fn find_patterns(
        &mut self,
        nfa: &NFA,
        prefilter: Option<&Prefilter>,
        haystack: &[u8],
        found: &mut PatternSet,
        budget: &SearchBudget<'_>,
    ) -> Result<(), Halt> {
        self.begin(nfa, 0);
        let (mut steps, mut at) = (0, 0);
        loop {
            if let Some(prefilter) = prefilter.filter(|_| self.now.order.is_empty()) {
                match prefilter.find(haystack, Span { start: at, end: haystack.len() }) {
                    None => break,
                    Some(candidate) => at = candidate.start,
                }
            }
            explore(nfa, haystack, at, nfa.start_anchored(), &mut self.now, &mut self.stack, &mut self.slots);
            steps += self.now.order.len() + 1;
            self.advance(nfa, haystack, at, &mut |pattern| {
                found.insert(pattern);
            });
            if found.is_full() || at >= haystack.len() {
                break;
            }
            at += 1;
            if steps >= PIECE_STEPS {
                budget.charge_and_check(steps_ns(std::mem::take(&mut steps)))?;
            }
        }
        budget.charge(steps_ns(steps));
        Ok(())
    }

    /// Continues a stream with `piece`. Calls `each` with each pattern that matches and the number of bytes of
    /// `piece` before its end. No assertion may look more than one byte to either side. `is_last`: the text ends
    /// with `piece`.
    pub(crate) fn feed(
        &mut self,
        nfa: &NFA,
        stream: &mut StreamState,
        piece: &[u8],
        is_last: bool,
        each: &mut dyn FnMut(PatternID, usize),
        budget: &SearchBudget<'_>,
    ) -> Result<(), Halt> {
        // Put the previous byte before the piece, because assertions look back at it.
        let text: Vec<u8> = stream.last.into_iter().chain(piece.iter().copied()).collect();
        let before = text.len() - piece.len();
        self.begin(nfa, 0);
        let states = std::mem::take(&mut stream.states);
        let mut steps = 0;
        for at in before..text.len() + usize::from(is_last) {
            if at == before {
                for id in &states {
                    explore(nfa, &text, at, *id, &mut self.now, &mut self.stack, &mut self.slots);
                }
            }
            explore(nfa, &text, at, nfa.start_anchored(), &mut self.now, &mut self.stack, &mut self.slots);
            steps += self.now.order.len() + 1;
            if at + 1 == text.len() && !is_last {
                // Keep these states: assertions after the last byte need to see the first byte of the next piece.
                for id in &self.now.order {
                    let state = nfa.state(*id);
                    if let State::Match { pattern_id } = state {
                        each(*pattern_id, at - before);
                    }
                    stream.states.extend(target(state, text[at]));
                }
                stream.states.sort_unstable();
                stream.states.dedup();
            } else {
                self.advance(nfa, &text, at, &mut |pattern| each(pattern, at - before));
            }
            if steps >= PIECE_STEPS {
                budget.charge_and_check(steps_ns(std::mem::take(&mut steps)))?;
            }
        }
        budget.charge(steps_ns(steps));
        if piece.is_empty() && !is_last {
            stream.states = states;
        }
        stream.last = text.last().copied();
        Ok(())
    }

    /// Reports the threads that match and consumes one byte.
    fn advance(&mut self, nfa: &NFA, haystack: &[u8], at: usize, each: &mut dyn FnMut(PatternID)) {
        self.next.clear();
        let byte = haystack.get(at);
        for id in &self.now.order {
            let state = nfa.state(*id);
            if let State::Match { pattern_id } = state {
                each(*pattern_id);
            } else if let Some(to) = byte.and_then(|b| target(state, *b)) {
                explore(nfa, haystack, at + 1, to, &mut self.next, &mut self.stack, &mut self.slots);
            }
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }

    fn begin(&mut self, nfa: &NFA, width: usize) {
        self.now.begin(nfa.states().len(), width);
        self.next.begin(nfa.states().len(), width);
        self.slots.clear();
        self.slots.resize(width, NONE);
        self.stack.clear();
    }
}

/// Cost of `steps` steps, in nanoseconds.
fn steps_ns(steps: usize) -> u64 {
    steps as u64 * SIMULATE_NS
}

/// The successor of a state that consumes `byte`.
fn target(state: &State, byte: u8) -> Option<StateID> {
    match state {
        State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
        State::Sparse(all) => all.matches_byte(byte),
        State::Dense(all) => all.matches_byte(byte),
        _ => None,
    }
}

/// Adds `id` and all states reachable from it without a byte, in order of preference. `slots` are the slots of
/// `id`; they are restored before the return.
fn explore(
    nfa: &NFA,
    haystack: &[u8],
    at: usize,
    id: StateID,
    threads: &mut Threads,
    stack: &mut Vec<Frame>,
    slots: &mut [usize],
) {
    stack.push(Frame::Explore(id));
    while let Some(frame) = stack.pop() {
        let mut id = match frame {
            Frame::Restore(slot, offset) => {
                slots[slot] = offset;
                continue;
            }
            Frame::Explore(id) => id,
        };
        loop {
            if threads.has(id) {
                break;
            }
            threads.add(id);
            let last = threads.order.len() - 1;
            match nfa.state(id) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Match { .. } => {
                    let width = threads.width;
                    threads.slots[last * width..].copy_from_slice(slots);
                    break;
                }
                State::Fail => break,
                State::Look { look, next } => {
                    if !nfa.look_matcher().matches(*look, haystack, at) {
                        break;
                    }
                    id = *next;
                }
                State::Union { alternates } => {
                    let Some((first, rest)) = alternates.split_first() else { break };
                    stack.extend(rest.iter().rev().map(|a| Frame::Explore(*a)));
                    id = *first;
                }
                State::BinaryUnion { alt1, alt2 } => {
                    stack.push(Frame::Explore(*alt2));
                    id = *alt1;
                }
                State::Capture { next, slot, .. } => {
                    let slot = slot.as_usize();
                    if slot < slots.len() {
                        stack.push(Frame::Restore(slot, slots[slot]));
                        slots[slot] = at;
                    }
                    id = *next;
                }
            }
        }
    }
}
