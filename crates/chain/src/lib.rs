//! The byte chain: how every byte arrives and leaves.
//!
//! [`Blob`] is a byte string in one reference-counted allocation (thin pointer); [`Chain`] is an ordered list of
//! blob ranges with a read position; [`Body`] receives one value of known length straight into its final blob.
//!
//! **Invariant:** this crate knows nothing of ours: no protocol, no keyspace, no socket. It is the only crate where
//! `unsafe` may appear, and in it only in `blob` and `prefetch`.

#[allow(unsafe_code)]
mod blob;
mod blob_traits;
mod body;
mod chain;
mod pool;
#[allow(unsafe_code)]
mod prefetch;

pub use blob::{Blob, HEADER_BYTES, OutOfMemory};
pub use body::{Body, PROOF_BYTES};
pub use chain::{Chain, ROOM_BYTES_MAX};
pub use pool::pooled_bytes;
pub use prefetch::{CACHE_LINE_BYTES, prefetch};
