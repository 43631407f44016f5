//! Patterns that cost the same the millionth time: [`Pattern`] is compiled and immutable, [`Matcher`] is one thread's
//! caches for it.
//!
//! The stack of engines, cheapest first: a required literal (memmem) rules a haystack out; a full DFA where it fits
//! [`DFA_BYTES_MAX`]; else a lazy DFA of [`LAZY_BYTES_MAX`], whose cache is **reset before the next haystack** whenever
//! it was cleared in this one, so that a hard haystack never makes the later ones slow; and when it gives up, the
//! PikeVM finishes that haystack (or, for a long one, a lazy DFA that never gives up, stepped here so that it can be
//! cancelled). Always linear in the haystack. ASCII by default (`\b`, `\w`, `.`, case): `(?u)` asks for Unicode.

mod matcher;
mod pattern;

pub(crate) use matcher::{Counts, Matcher};
pub(crate) use pattern::Pattern;

/// Longest pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 16 * 1024;
/// Largest automaton that a pattern may become, in bytes.
pub(crate) const NFA_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting of a pattern.
pub(crate) const PATTERN_DEPTH_MAX: u32 = 100;
/// A full DFA is used when it, and the work to build it, stays under this, in bytes.
pub(crate) const DFA_BYTES_MAX: usize = 1 << 20;
/// The lazy DFA's cache, in bytes.
pub(crate) const LAZY_BYTES_MAX: usize = 2 << 20;
/// The lazy DFA may give up after this many clears of its cache in one haystack ...
pub(crate) const LAZY_CLEARS_MIN: usize = 3;
/// ... when it gets through fewer than this many bytes for each state it builds.
pub(crate) const LAZY_BYTES_PER_STATE_MIN: usize = 10;
/// Longest haystack that the PikeVM finishes, in bytes; it cannot be cancelled.
pub(crate) const PIKE_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests;
