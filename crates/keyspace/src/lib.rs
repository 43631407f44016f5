//! The keyspace: shards, segments, records, and the value types in them.
//!
//! [`Keyspace`] is shared by all workers; [`Locked`] holds the shards that a command's keys live in (taken in ascending
//! order, so no deadlock); [`Db`] is one database seen through them; a [`Record`] is one key with its [`Value`] and expiry.
//!
//! **Invariant:** knows no argv, no reply, no socket; time is an argument (`now_ms`, unix milliseconds).

mod db;
mod keyspace;
mod name;
mod record;
mod segmented;
mod settings;
mod shard;
mod sweep;
mod tracking;
pub mod types;
mod usage;

pub use db::{Db, Locked, Lookups};
pub use keyspace::{Key, KeyHash, Keyspace, ScanCursor};
pub use record::{Record, Value};
pub use segmented::Shape;
pub use settings::Settings;
pub use tracking::Touched;
pub use types::{hash::HashValue, string::Str};
