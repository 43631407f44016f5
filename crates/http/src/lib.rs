//! HTTP/1.1 in front of a session: what is asked for by URL becomes commands, replies become responses.
//!
//! A [`Connection`] is a future that serves what comes over its socket (by hyper) with the session behind a [`pipe`]: it
//! writes RESP commands into it and reads RESP3 replies from it, in order, so that everything that holds for a client
//! (authentication, limits, slow commands, accounting) holds here without being written twice. [`routes`] is the table (of
//! [`route`]s), [`openapi`] its description; [`keys`], [`commands`], [`search`], [`update`] (XML), [`metrics`] and
//! [`console`] (pages for a person) answer; [`problem`] is how errors look. Values go both ways without being held whole: a
//! PUT goes from the network into the pipe as it comes, a response shares the value's memory ([`body`]); what is long lets
//! others go first ([`turns`], for the driver too).
//!
//! **Invariant:** knows no engine, no keyspace, no socket, no runtime: commands go in and replies come out of a pipe in
//! memory.

pub mod auth;
pub mod body;
pub mod budget;
pub mod collections;
pub mod commands;
pub mod conditions;
pub mod console;
mod delete;
mod diag;
pub mod elements;
pub mod exchange;
mod import;
pub mod json;
pub mod keys;
pub mod metrics;
pub mod openapi;
mod origin;
pub mod pipe;
pub mod problem;
pub mod query;
pub mod route;
pub mod routes;
pub mod search;
mod serve;
pub mod session_client;
pub mod text;
pub mod turns;
pub mod update;
pub mod xml;

pub use exchange::{MayCall, Rights, Settings, Sleeper, UNSENT_BYTES_MAX, Unready, Version};
pub use serve::{Connection, HEAD_BYTES_MAX, HEADERS_MAX, of_parser, refusal};
