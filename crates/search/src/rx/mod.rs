//! The regex service behind `RX.*`: named sets of patterns, compiled once. Each thread searches with its own
//! caches.
//!
//! [`set::Set`] is a compiled, immutable set. [`registry::Registry`] maps names to sets and gives each thread its own
//! [`registry::ThreadCaches`] for each set that the thread uses. `commands` and `matches` hold the commands, [`stream`]
//! the texts that arrive in pieces. Snapshots save the commands that define the sets; caches and streams are not saved.

mod check;
mod commands;
pub(crate) mod help;
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

/// Maximum number of sets.
pub(crate) const SETS_MAX: usize = 1024;
/// Maximum number of patterns of a set.
pub(crate) const PATTERNS_MAX: usize = 1024;
/// Maximum number of groups in one pattern, the whole match included. A search for groups keeps one slot per state
/// and group.
pub(crate) const GROUPS_MAX: usize = 256;
/// Maximum length of the name of a set and of the id of a pattern, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Maximum size of a compiled set, in bytes.
pub(crate) const COMPILED_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a text, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// Maximum number of matches of one command.
pub(crate) const MATCHES_MAX: usize = 100_000;
/// Maximum number of matches of one command on a worker. A command with more matches moves to the lane.
const WORKER_MATCHES_MAX: usize = 2_000;
/// Maximum length of the result of RX.REPLACE, in bytes.
pub(crate) const REPLACED_BYTES_MAX: usize = 256 << 20;
/// Default of the option MEMORY: the maximum number of bytes of a set's caches, summed over all threads.
const MEMORY_BYTES_DEFAULT: usize = 64 << 20;
const MEMORY_BYTES_MIN: usize = 4 << 20;
const MEMORY_BYTES_MAX: usize = 4 << 30;
/// Default of the option DEADLINE: the maximum time of a search, in milliseconds.
const DEADLINE_MS_DEFAULT: u64 = 1_000;
const DEADLINE_MS_MAX: u64 = 600_000;
