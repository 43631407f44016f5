//! HTTP/1.1 in front of a session: requests become commands, replies become responses.
//!
//! A [`Connection`] is a future that serves one socket (with hyper). The session is behind a [`pipe`]: the
//! connection writes RESP commands into the pipe and reads RESP3 replies from it, in order. So authentication,
//! limits, slow commands and accounting apply to HTTP clients without separate code. [`routes`] is the table of
//! [`route`]s, and [`openapi`] describes it. The handlers are in [`keys`], [`commands`], [`search`], [`update`]
//! (XML), [`metrics`] and [`console`] (pages for people). [`problem`] defines the form of errors. A value is never
//! held whole in either direction: a PUT goes from the network into the pipe while it arrives, and a response
//! shares the value's memory ([`body`]). Long work yields to the worker's other tasks and sockets ([`turns`]).
//!
//! **Invariant:** this crate knows no engine, no keyspace and no socket. It starts no runtime. Commands go into a pipe
//! in memory, and replies come out of it.

pub mod auth;
pub mod body;
pub mod budget;
mod bundle;
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
pub mod json_reader;
pub mod keys;
pub mod metrics;
pub mod openapi;
mod origin;
pub mod pipe;
pub mod problem;
pub mod query;
pub mod request_body;
pub mod route;
pub mod routes;
pub mod search;
mod serve;
pub mod session_client;
pub mod text;
pub mod turns;
pub mod update;
pub mod xml;

pub use bundle::{Bundler, PackError, Packer};
pub use exchange::{MayCall, Rights, Settings, Sleeper, UNSENT_BYTES_MAX, Unready, UsersVersion};
pub use origin::is_foreign;
pub use serve::{Connection, HEAD_BYTES_MAX, HEADERS_MAX, is_denial, of_parser, refusal};
