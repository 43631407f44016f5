//! Codecs: bytes to commands and replies to bytes, over the chain.
//!
//! [`args::Argv`] owns one received command and [`args::Args`] is the view handlers read; [`resp::Decoder`] turns a
//! chain into argvs (headers and inline requests have modules of their own); [`reply::Reply`] encodes replies straight
//! into the output chain; [`pack4`] has both in frames; [`digits`] prints numbers; [`quote`] prints bytes
//! that are not text; [`client`] is the other side (encode a command, parse a reply), for the importer and the tests;
//! [`events`] reads replies piece by piece, for programs that pass them on.
//!
//! **Invariant:** knows no socket, no clock, no keyspace.

pub mod args;
pub mod client;
pub mod digits;
pub mod events;
mod header;
pub mod inline;
pub mod pack4;
pub mod quote;
pub mod reply;
pub mod resp;
