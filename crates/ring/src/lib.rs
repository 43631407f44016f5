//! Sockets on an io_uring. Each socket has one standing request, which receives bytes into buffers shared with the
//! kernel. One system call submits the sends of many sockets.
//!
//! A [`Ring`] belongs to one thread, and a [`RingSocket`] is one socket on it. Nothing here blocks, and nothing is a
//! future: a task polls a port with its context, and the port wakes the task. The driver of the ring calls
//! [`Ring::turn`] when the ring's descriptor is readable or [`Ring::poll_work`] is ready.
//!
//! **Invariant:** this crate knows nothing about the rest of Strand but the chain. Besides `strand-chain`,
//! `strand-lua` and `strand-pages` it is the only crate with `unsafe`: the ring owns all memory that the kernel reads
//! or writes until the kernel has released it. If the ring ends earlier, the memory is leaked, not freed.

#[allow(unsafe_code)]
mod buffers;
mod port;
#[allow(unsafe_code)]
mod ring;
mod slot;

pub use buffers::buffers_bytes;
pub use port::{Ready, RingSocket};
pub use ring::Ring;
