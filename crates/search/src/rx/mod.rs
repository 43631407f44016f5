//! The regex service behind `RX.*`: named sets of patterns, compiled once, searched by every thread with caches of its own.
//!
//! [`set::Set`] is compiled and immutable; [`registry::Registry`] knows the sets by name and gives each thread its
//! [`registry::ThreadCaches`] at one; `commands` and `matches` are the commands, [`stream`] the texts that come in pieces. Nothing
//! is persisted.

mod check;
mod commands;
mod matches;
mod registry;
mod set;
mod stats;
mod stream;

pub(crate) use check::check;
pub(crate) use commands::{delete, list, set};
pub(crate) use matches::{captures, find_all, matching, replace};
pub(crate) use registry::Registry;
pub(crate) use stats::stats;
pub(crate) use stream::{Streams, close, feed, open};

/// Most sets at a time.
pub(crate) const SETS_MAX: usize = 1024;
/// Most patterns of a set.
pub(crate) const PATTERNS_MAX: usize = 1024;
/// Groups in one pattern, the whole match included: where groups are asked for, each state keeps a place for each.
pub(crate) const GROUPS_MAX: usize = 256;
/// Longest name of a set, and id of a pattern, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Most bytes that a set may become when it is compiled.
pub(crate) const COMPILED_BYTES_MAX: usize = 64 << 20;
/// Longest text, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// Most matches of one command.
pub(crate) const MATCHES_MAX: usize = 100_000;
/// The same on a worker: more are found on the lane.
const WORKER_MATCHES_MAX: usize = 2_000;
/// Longest text that RX.REPLACE makes, in bytes.
pub(crate) const REPLACED_BYTES_MAX: usize = 256 << 20;
/// MEMORY: bytes of caches that a set may have, over all threads.
const MEMORY_BYTES_DEFAULT: usize = 64 << 20;
const MEMORY_BYTES_MIN: usize = 4 << 20;
const MEMORY_BYTES_MAX: usize = 4 << 30;
/// DEADLINE: how long a search may take, in milliseconds.
const DEADLINE_MS_DEFAULT: u64 = 1_000;
const DEADLINE_MS_MAX: u64 = 600_000;
