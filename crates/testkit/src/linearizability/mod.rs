//! Checks linearizability: does *some* sequential order of the calls explain what concurrent clients saw? Each call
//! must take effect between its sending and the reading of its reply, and the calls of one pipeline in their order.
//! [`Recorder`] records a history, and [`check`] decides.
//!
//! The check is Wing and Gong's search in the just-in-time form of Lowe ("Testing for linearizability", 2017). It
//! walks the history once, in order of time, with the set of all configurations that explain the calls so far. A
//! configuration is a state of the key and the set of pending calls that have taken effect in it. A call must take
//! effect before it returns, so at each return the configurations in which the call cannot have taken effect are
//! dropped. When no configuration is left, the history is wrong, and the call that returned shows the error. Keys are
//! independent, so each is checked alone. Replies are known when a call is tried, which prunes early, and equal
//! configurations are merged. The cost is linear in the history and exponential only in the number of calls pending
//! together. (Existing crates such as todc-utils search with backtracking over the whole history, with quadratic
//! memory. This walk does not need that.)

mod database;
mod model;

pub use database::{Database, Entry, Request, Step};
pub use model::{Operation, State};

use crate::client::Client;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use strand_wire::client::Value;

/// Maximum number of calls on one key that may be pending together.
pub const PENDING_MAX: usize = 64;
/// Maximum number of configurations that the check follows together before it gives up.
const CONFIGURATIONS_MAX: usize = 1 << 20;

/// The effect of calls, one after another, on a state.
pub trait Model: Clone + PartialEq + fmt::Debug {
    /// The state on which calls act. A history starts with the default state.
    type State: Clone + Default + Eq + Ord + Hash + fmt::Debug;

    /// The possible states after the call, each with its reply, when the call takes effect within `during` (in ns,
    /// like [`Call::invoked_ns`]). There are several when the time matters and is not known exactly.
    fn outcomes(&self, before: &Self::State, during: RangeInclusive<u64>) -> Vec<(Self::State, Value)>;
}

/// One call, as its client saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<M = Operation> {
    /// The request of the call.
    pub operation: M,
    /// The reply; `None` when the connection ended first, so it is unknown whether the call took effect.
    pub reply: Option<Value>,
    /// Time before the first byte was sent, in ns since the start of the recording.
    pub invoked_ns: u64,
    /// Time after the last byte of the reply was read; `u64::MAX` without a reply.
    pub returned_ns: u64,
    /// The pipeline and the place of the call in it. Calls of one pipeline take effect in order.
    pub sent: (u64, usize),
}

impl<M> Call<M> {
    fn is_before(&self, later: &Call<M>) -> bool {
        self.sent.0 == later.sent.0 && self.sent.1 < later.sent.1
    }
}

/// The number of the next pipeline, over all recordings.
static PIPELINES: AtomicU64 = AtomicU64::new(0);

/// The reason why a history was not accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection<M: Model = Operation> {
    /// No order of the calls explains this call's reply.
    Wrong {
        /// The call at whose return the last explanation was lost.
        call: Box<Call<M>>,
        /// The states that were possible before this call.
        states: Vec<M::State>,
    },
    /// The check had to follow too many configurations.
    TooManyConfigurations,
}

impl<M: Model> fmt::Display for Rejection<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::Wrong { call, states } => {
                write!(f, "nothing explains {call:?}; before it: {states:?}")
            }
            Rejection::TooManyConfigurations => {
                write!(f, "too many calls were pending together to be checked")
            }
        }
    }
}

impl<M: Model> std::error::Error for Rejection<M> {}

/// The clock that all clients of a recording share.
#[derive(Clone, Copy, Debug)]
pub struct Recorder(Instant);

impl Recorder {
    /// Starts a recording.
    pub fn start() -> Recorder {
        Recorder(Instant::now())
    }

    /// Sends `calls` as one pipeline and waits for all replies. When the connection ends, unanswered calls have no
    /// reply.
    pub fn run(&self, client: &mut Client, calls: &[(&str, Operation)]) -> Vec<Call> {
        let mut bytes = Vec::new();
        for (key, operation) in calls {
            for request in operation.requests(key) {
                strand_wire::client::encode_command(&mut bytes, &request);
            }
        }
        let pipeline = PIPELINES.fetch_add(1, Relaxed);
        let invoked_ns = self.now_ns();
        let sent = io::Write::write_all(client.stream(), &bytes);
        let one = |(place, (key, operation)): (usize, &(&str, Operation))| {
            let mut reply = || {
                let replies = operation.requests(key).len();
                // Only the last reply counts: the earlier replies say that a command is queued.
                let last = (0..replies).fold(None, |_, _| client.reply().ok())?;
                Some(operation.seen(last))
            };
            let reply = sent.as_ref().ok().and_then(|()| reply());
            let returned_ns = if reply.is_some() { self.now_ns() } else { u64::MAX };
            Call { operation: operation.clone(), reply, invoked_ns, returned_ns, sent: (pipeline, place) }
        };
        calls.iter().enumerate().map(one).collect()
    }

    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A state, and the pending calls (by slot) that have taken effect in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Configuration<S> {
    state: S,
    done: u64,
}

/// Checks a history: of one key that did not exist at first, or of a [`Database`] that was empty. Returns the
/// largest number of configurations followed together.
///
/// # Errors
/// [`Rejection::Wrong`] when the history is not linearizable.
pub fn check<M: Model>(history: &[Call<M>]) -> Result<usize, Rejection<M>> {
    let mut configurations = HashSet::from([Configuration { state: M::State::default(), done: 0 }]);
    let mut slots: [Option<&Call<M>>; PENDING_MAX] = [None; PENDING_MAX];
    let mut most = 1;
    for (_, returns, index) in events(history) {
        let call = &history[index];
        if !returns {
            let free = slots.iter().position(Option::is_none).ok_or(Rejection::TooManyConfigurations)?;
            slots[free] = Some(call);
            continue;
        }
        let slot = slots.iter().position(|s| s.is_some_and(|c| std::ptr::eq(c, call)));
        let slot = slot.expect("a call returns after it was invoked");
        let next = linearize(&configurations, &slots, slot)?;
        if next.is_empty() {
            let mut states: Vec<M::State> = configurations.into_iter().map(|c| c.state).collect();
            states.sort();
            states.dedup();
            states.truncate(10);
            return Err(Rejection::Wrong { call: Box::new(call.clone()), states });
        }
        most = most.max(next.len());
        configurations = next;
        slots[slot] = None;
    }
    Ok(most)
}

/// Starts and returns of calls in order of time. At equal times starts come first, so that calls that may overlap
/// do overlap.
fn events<M>(history: &[Call<M>]) -> Vec<(u64, bool, usize)> {
    let mut events = Vec::with_capacity(history.len() * 2);
    for (index, call) in history.iter().enumerate() {
        events.push((call.invoked_ns, false, index));
        if call.reply.is_some() {
            events.push((call.returned_ns, true, index));
        }
    }
    events.sort_unstable();
    events
}

/// The configurations in which the call of `slot` has taken effect. In these, the slot is free again. Other pending
/// calls may take effect before this call, from each configuration in `from`, in every order that explains their
/// replies.
fn linearize<M: Model>(
    from: &HashSet<Configuration<M::State>>,
    slots: &[Option<&Call<M>>; PENDING_MAX],
    slot: usize,
) -> Result<HashSet<Configuration<M::State>>, Rejection<M>> {
    // Every call that takes effect here does so before the call of `slot` returns.
    let until_ns = slots[slot].map_or(u64::MAX, |call| call.returned_ns);
    let mut reached = HashSet::new();
    let mut seen: HashSet<Configuration<M::State>> = from.clone();
    let mut open: Vec<Configuration<M::State>> = from.iter().cloned().collect();
    while let Some(configuration) = open.pop() {
        if configuration.done & (1 << slot) != 0 {
            let done = configuration.done & !(1 << slot);
            reached.insert(Configuration { state: configuration.state, done });
            continue;
        }
        for (i, call) in slots.iter().enumerate() {
            let Some(call) = call.filter(|_| configuration.done & (1 << i) == 0) else {
                continue;
            };
            let waits = |(i, other): (usize, &Option<&Call<M>>)| {
                configuration.done & (1 << i) == 0 && other.is_some_and(|other| other.is_before(call))
            };
            if slots.iter().enumerate().any(waits) {
                continue;
            }
            let during = call.invoked_ns..=call.returned_ns.min(until_ns);
            for (state, reply) in call.operation.outcomes(&configuration.state, during) {
                if call.reply.as_ref().is_some_and(|seen| *seen != reply) {
                    continue;
                }
                let next = Configuration { state, done: configuration.done | 1 << i };
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        if seen.len() > CONFIGURATIONS_MAX {
            return Err(Rejection::TooManyConfigurations);
        }
    }
    Ok(reached)
}

#[cfg(test)]
mod tests;
