//! Regular expressions with a cost that does not grow over time. [`Pattern`] is a compiled, immutable pattern;
//! [`Matcher`] holds one thread's caches for it. [`Machine`] and [`MachineCache`] do this for a single automaton.
//!
//! The engines, cheapest first: memmem for a required literal, which rules texts out; a full DFA if it fits; else a
//! lazy DFA; and last a [`simulate::Simulation`] of the NFA. This crate steps the lazy DFA itself instead of
//! calling its library. So giving up depends on *this text alone* (states built against bytes passed, see
//! [`budget`]) and never on what earlier texts left in the cache. The simulation takes over when the lazy DFA gives
//! up or meets a byte that it cannot handle. Every engine except the full DFA can be cancelled and ends at a
//! deadline. The time is always linear in the text. The rules are ASCII (`\b`, `\w`, `.`, case); `(?u)` selects
//! Unicode.

pub(crate) mod budget;
mod cache;
mod classes;
mod machine;
mod matcher;
mod pattern;
mod simulate;
mod walk;

pub(crate) use budget::{Halt, SearchBudget};
pub(crate) use cache::MachineCache;
pub(crate) use classes::CLASSES_WEIGHT_MAX;
pub(crate) use machine::{Machine, tiers_within};
pub(crate) use matcher::{Counts, Matcher, Progress};
pub(crate) use pattern::{Pattern, PatternOptions, build_many, parse, parse_within};
pub(crate) use simulate::{NONE, Simulation, StreamState};

/// Maximum length of a pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of the automaton of a pattern or of a set, in bytes.
pub(crate) const NFA_BYTES_MAX: usize = 4 << 20;
/// Maximum nesting of a pattern.
pub(crate) const PATTERN_DEPTH_MAX: u32 = 100;
/// Maximum number of bytes of a full DFA, and of the work to build it, for a pattern that is compiled for one command.
pub(crate) const DFA_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes of a full DFA, and of the work to build it, for a pattern that is kept.
pub(crate) const KEPT_DFA_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests;
