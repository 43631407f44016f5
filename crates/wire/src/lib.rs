//! Codecs over the chain: bytes to commands, replies to bytes.
//!
//! [`args::Argv`] owns one received command, and [`args::Args`] is the view for handlers. [`resp::Decoder`] turns a
//! chain into argvs; headers and inline requests have their own modules. [`reply::Reply`] encodes replies directly
//! into the output chain. [`pack4`] is RESP in frames. [`digits`] prints numbers, and [`quote`]
//! bytes that are not text. [`client`] is the client's side
//! (encodes commands, parses replies), for the importer and the tests. [`events`] reads replies piece by piece, for
//! code that forwards them.
//!
//! **Invariant:** this crate knows no socket, no clock and no keyspace.

pub mod args;
pub mod client;
pub mod digits;
pub mod events;
mod header;
pub mod inline;
pub mod pack4;
pub mod quote;
pub mod replica;
pub mod reply;
pub mod resp;
