//! The trigram index of RX.GREP: finds the values that a pattern can match at all.
//!
//! [`query::Query`] is the condition that a pattern puts on a text. [`index::TrigramIndex`] holds the documents, and
//! [`postings::Segment`] the list of documents for each trigram. [`lookup`] intersects the lists. `service` follows
//! the keyspace. The pattern itself verifies each candidate, so an index changes the cost of a search and never its
//! result.

mod grams;
mod index;
mod lookup;
mod postings;
mod query;
mod rice;
mod service;

pub(crate) use query::Query;
pub(crate) use service::{INDEXES_MAX, TrigramIndexEntry, Trigrams, create, drop_index, info, list};
