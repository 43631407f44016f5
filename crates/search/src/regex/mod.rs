//! Patterns that cost the same the millionth time: [`Pattern`] is compiled and immutable, [`Matcher`] is one thread's
//! caches for it; [`Machine`] and [`MachineCache`] are the same for one automaton.
//!
//! The stack of engines, cheapest first: a required literal (memmem) rules a text out; a full DFA where it fits; else a
//! lazy DFA, which is stepped here and not by its library, so that giving up depends on *this text alone* (states built
//! against bytes passed, see [`budget`]) and never on what earlier texts left in the cache; and where it gives up, or
//! meets a byte that it cannot handle, a [`simulate::Simulation`] of the NFA finishes. All but the full DFA can be
//! cancelled, and end at a deadline. Always linear in the text. ASCII by default (`\b`, `\w`, `.`, case): `(?u)` asks for
//! Unicode.

pub(crate) mod budget;
mod cache;
mod classes;
mod machine;
mod matcher;
mod pattern;
mod simulate;
mod walk;

pub(crate) use budget::{Budget, Halt};
pub(crate) use cache::MachineCache;
pub(crate) use classes::CLASSES_WEIGHT_MAX;
pub(crate) use machine::{Machine, tiers_within};
pub(crate) use matcher::{Counts, Matcher, Progress};
pub(crate) use pattern::{Options, Pattern, build_many, parse, parse_within};
pub(crate) use simulate::{NONE, Simulation, StreamState};

/// Longest pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Largest automaton that a pattern (or a set of them) may become, in bytes.
pub(crate) const NFA_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting of a pattern.
pub(crate) const PATTERN_DEPTH_MAX: u32 = 100;
/// A pattern that is compiled for one command gets a full DFA when it, and the work to build it, stays under this, in bytes.
pub(crate) const DFA_BYTES_MAX: usize = 1 << 20;
/// The same for a pattern that is kept.
pub(crate) const KEPT_DFA_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests;
