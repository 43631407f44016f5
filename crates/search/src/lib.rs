//! Text and regex search: the `FT.*` commands over text indexes, the `RX.*` commands over sets of patterns, and
//! `RX.GREP` over keys and values.
//!
//! [`Search`] is the service. It holds the indexes and follows the touched keys of the keyspace, so a search sees every
//! write that was acknowledged before it. Each command runs on a helper thread, except that a short text is matched
//! against a set of patterns on the worker. [`GROUPS`] are the rows of the commands, each with its function.
//!
//! **Invariant:** this crate knows neither the engine nor sessions. Only its own commands and background work run its
//! code; commands on keys never call it. It locks a shard only for a bounded slice of records.

mod buffers;
mod definitions;
mod difference;
mod directory;
mod document;
mod due;
mod error;
mod exec;
mod follow;
mod grep;
mod index;
mod info;
mod merges;
mod meter;
mod options;
mod pace;
mod query;
mod queue;
mod regex;
mod reply;
mod rx;
mod schema;
mod service;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;
mod trigram;
mod versions;

pub use error::SearchError;
pub use service::{INDEXES_MAX, Search};
pub use table::{GROUPS, KEEP};
