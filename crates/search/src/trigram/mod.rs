//! The trigram index of RX.GREP: which values can match a pattern at all.
//!
//! [`query::Query`] is what a pattern demands of a text's trigrams, [`index::Index`] finds the documents that have them,
//! [`postings::Segment`] holds the lists, `service` follows the keyspace. Whatever is found is verified by the pattern
//! itself, so an index changes what a search costs and never what it finds.

mod index;
mod postings;
mod query;
mod service;

pub(crate) use query::Query;
pub(crate) use service::{Entry, Trigrams, create, drop_index, info, list};
