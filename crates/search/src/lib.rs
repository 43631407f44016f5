//! Search: the `FT.*` commands over a text index, and `RX.*`: sets of patterns, and `RX.GREP` over keys and values.
//!
//! [`Search`] is the whole service: it holds the indexes, follows the keyspace's touched keys (so that a search sees
//! every write acknowledged before it), and runs the commands, each on a helper thread; a short text is searched with a
//! set of patterns on the worker.
//!
//! **Invariant:** knows neither the engine nor sessions; it is reached as a job and by keyspace events, never from the
//! hot path of keys, and holds a shard's lock only for a bounded slice of records.

mod definitions;
mod error;
mod exec;
mod follow;
mod grep;
mod index;
mod info;
mod meter;
mod options;
mod query;
mod regex;
mod reply;
mod rx;
mod schema;
mod service;
#[cfg(test)]
mod tests;
mod tokenizer;
mod trigram;

pub use error::SearchError;
pub use service::{INDEXES_MAX, Search};
