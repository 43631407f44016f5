//! Hooks of jemalloc: [`in_pieces`] returns freed pages to the system in small pieces, so that no worker waits for it, and
//! [`on_sample`] tells of each sampled allocation.
//!
//! jemalloc's own threads return memory that has been free for one second (`dirty_decay_ms`). They return about 1,024 pages at a
//! time, with one `madvise(2)` for each free extent. One call takes 1 to 3.5 ms where page tables are expensive (in
//! a nested virtual machine). A scheduler with a tick of 4 ms may not interrupt the call, whatever the priorities:
//! a worker on the same core waited this long after each large reply. [`in_pieces`] replaces the call (jemalloc's
//! extent hooks) by a function that processes an extent [`PIECE_BYTES`] at a time and yields the processor in
//! between.
//!
//! jemalloc still decides which pages to return and when, and still does all allocation.
//!
//! **Invariant:** this crate knows nothing about the rest of Strand. Besides `strand-chain`, `strand-lua` and
//! `strand-ring` it is the only crate with `unsafe`: the hooks are C functions.

#[allow(unsafe_code)]
mod hooks;
#[allow(unsafe_code)]
mod samples;

pub use hooks::{PIECE_BYTES, in_pieces, pieces};
pub use samples::on_sample;
