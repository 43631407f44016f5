//! HTTP/1.1 in front of a session: what is asked for by URL becomes commands, replies become responses.
//!
//! A [`Connection`] is a future that serves what comes over its socket (by hyper) with the session behind a [`pipe`]: it
//! writes RESP commands into it and reads RESP3 replies from it, in order, so that everything that holds for a client
//! (authentication, limits, slow commands, accounting) holds here without being written twice. [`routes`] is the table,
//! [`openapi`] its description; [`keys`], [`commands`], [`search`], [`update`] (XML) and [`metrics`] answer; [`problem`] is how
//! errors look. Values go both ways without being held whole: a PUT goes from the network into the pipe as it comes, a
//! response shares the value's memory ([`body`]).
//!
//! **Invariant:** knows no engine, no keyspace, no socket, no runtime: commands go in and replies come out of a pipe in
//! memory.

mod auth;
pub mod body;
pub mod budget;
pub mod commands;
pub mod conditions;
mod delete;
mod elements;
#[doc(hidden)]
pub mod fuzzing;
mod import;
mod json;
pub mod keys;
mod link;
pub mod metrics;
pub mod openapi;
mod origin;
pub mod pipe;
pub mod problem;
mod query;
pub mod routes;
pub mod search;
mod serve;
pub mod text;
pub mod update;
mod xml;

pub use serve::{Connection, HEAD_BYTES_MAX, HEADERS_MAX, Rights, Settings, Version, of_parser, refusal};
