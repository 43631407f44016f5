//! Sockets on an io_uring: bytes are received into buffers that the ring shares with the kernel, by one standing request
//! a socket, and sends of many sockets are submitted with one system call.
//!
//! [`Ring`] belongs to one thread; [`Port`] is one socket on it. Nothing blocks and nothing here is a future: a port is
//! asked with a task's context and wakes that task, and whoever drives the ring calls [`Ring::turn`] when its descriptor
//! is readable or [`Ring::poll_queued`] says so.
//!
//! **Invariant:** must not know anything of ours but the chain. With `strand-chain` the only place with `unsafe`: what
//! the kernel reads or writes is owned by the ring until the kernel says that it is done with it, and is leaked rather
//! than freed when the ring ends earlier.

#[allow(unsafe_code)]
mod buffers;
mod port;
#[allow(unsafe_code)]
mod ring;
mod slot;

pub use port::{Port, Ready};
pub use ring::Ring;
