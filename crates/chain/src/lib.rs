//! The byte chain: every byte that the server receives or sends goes through one.
//!
//! [`Blob`] is a byte string in one reference-counted allocation (thin pointer). [`Chain`] is an ordered list of
//! blob ranges with a read position. [`Body`] receives one value of known length directly into its final blob.
//!
//! **Invariant:** this crate knows nothing about the rest of Strand: no protocol, no keyspace, no socket. Besides
//! `lua`, `ring` and `pages` it is the only crate with `unsafe`, in the modules `blob` and `prefetch`.

#[allow(unsafe_code)]
mod blob;
mod blob_traits;
mod body;
mod chain;
mod pool;
#[allow(unsafe_code)]
mod prefetch;

pub use blob::{Blob, HEADER_BYTES, OutOfMemory};
pub use body::{Body, TRUSTED_AFTER_BYTES};
pub use chain::{Chain, ROOM_BYTES_MAX};
pub use pool::{free_pooled, pooled_bytes};
pub use prefetch::{CACHE_LINE_BYTES, prefetch};
