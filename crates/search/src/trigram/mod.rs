//! The trigram index of RX.GREP: which values can match a pattern at all.
//!
//! [`query::Query`] is what a pattern demands of a text, [`index::Index`] holds the documents and [`postings::Segment`] the
//! lists of which of them have a trigram, [`lookup`] finds those that have all, `service` follows the keyspace. Whatever is
//! found is verified by the pattern itself, so an index changes what a search costs and never what it finds.

mod grams;
mod index;
mod lookup;
mod postings;
mod query;
mod rice;
mod service;

pub(crate) use query::Query;
pub(crate) use service::{Entry, INDEXES_MAX, Trigrams, create, drop_index, info, list};
