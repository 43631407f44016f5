//! Freed pages go back to the system in small pieces, so that no worker waits for it.
//!
//! jemalloc gives back what has been free for ten seconds from threads of its own, some 1,024 pages at a time, a free
//! extent with one `madvise(2)`. That takes 1 to 3.5 ms where page tables are dear (a guest in a guest), and a scheduler
//! whose tick is 4 ms need not take the core away in the middle of it, whatever the priorities: a worker on the same core
//! waited that long after each large reply. [`in_pieces`] puts a function of ours in place of that call (jemalloc's extent
//! hooks), which goes through the extent [`PIECE_BYTES`] at a time and yields the processor in between.
//!
//! What is given back, and when, is jemalloc's decision as before; so is all allocation.
//!
//! **Invariant:** must not know anything of ours. With `strand-chain` and `strand-ring` the only place with `unsafe`: the
//! hooks are C functions.

#[allow(unsafe_code)]
mod hooks;

pub use hooks::{PIECE_BYTES, in_pieces, pieces};
