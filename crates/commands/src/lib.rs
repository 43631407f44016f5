//! Command tables and the families of commands about the data.
//!
//! A [`spec::CommandSpec`] is a row of the command table. It says everything about one command: arity, flags, key
//! specs, ACL categories, documentation, handler. [`mod@table`] has the rows of the commands about the data, and
//! makes a table of any rows. A handler gets a [`call::Call`]. [`dispatch`] finds the keys of a call. [`cost`]
//! tells which calls are long, and [`long`] runs long calls on the lane. [`serial`] converts values to Redis's
//! bytes and back.
//!
//! **Invariant:** this crate knows no socket, no session and no thread. The time is an argument (`Call::now_ms`).

pub mod call;
mod copy_write;
pub mod cost;
pub mod dataset_versions;
pub mod dispatch;
pub mod errors;
pub mod events;
#[cfg(test)]
mod expiry_tests;
mod families;
#[cfg(test)]
mod fixture;
pub mod glob;
pub mod introspect;
pub mod long;
mod long_double;
mod many_key_writes;
pub mod migrate;
mod optimistic;
mod parse;
pub mod replay;
pub mod run;
pub mod serial;
pub mod spec;
mod strtod;
pub mod table;
pub mod wait;

pub use families::listing;
