//! The byte chain: how every byte arrives and leaves.
//!
//! [`Blob`] is a byte string in one reference-counted allocation (thin pointer); [`Chain`] is an ordered list of
//! blob ranges with a read position; [`Body`] receives one value of known length straight into its final blob.
//!
//! **Invariant:** this crate knows nothing of ours: no protocol, no keyspace, no socket. It is the only crate where
//! `unsafe` may appear.

mod blob;
mod body;
mod chain;

pub use blob::Blob;
pub use body::Body;
pub use chain::Chain;
