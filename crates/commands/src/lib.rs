//! Command tables and the families of commands about the data.
//!
//! [`spec::CommandSpec`] is one row; [`table`] has the rows of the commands about the data, and makes tables, which find a row and
//! check the arity; [`call::Call`] is what a handler sees; [`dispatch`] finds the keys; [`cost`] tells which calls are long, [`long`]
//! runs those on the lane; [`serial`] makes Redis's bytes of values, and values of those. Everything that is true of a command (arity,
//! flags, key specs, ACL categories, documentation, handler) is said once, in its row.
//!
//! **Invariant:** knows no socket, no session, no thread; the time is `Call::now_ms`.

pub mod call;
pub mod cost;
pub mod dispatch;
pub mod errors;
pub mod events;
mod families;
#[cfg(test)]
mod fixture;
pub mod glob;
pub mod introspect;
pub mod long;
mod long_double;
pub mod migrate;
mod on_copy;
mod optimistic;
mod parse;
mod promised;
pub mod published;
pub mod replay;
pub mod run;
pub mod serial;
pub mod spec;
mod strtod;
pub mod table;
pub mod wait;
