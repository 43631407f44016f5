//! The keyspace: shards, segments, records, and the value types in them.
//!
//! [`Keyspace`] is shared by all workers; [`Locked`] holds the shards that a command's keys live in (taken in ascending
//! order, so no deadlock); [`Db`] is one database seen through them; a [`RecordRef`] is one key with its value and expiry.
//!
//! **Invariant:** knows no argv, no reply, no socket; time is an argument (`now_ms`, unix milliseconds).

mod db;
mod evict;
mod keyspace;
mod record;
mod segmented;
mod settings;
mod shard;
mod sweep;
mod tracking;
pub mod types;
mod usage;

pub use db::{Db, Locked, Lookups, OtherType, Taken};
pub use evict::{Evicted, Evictor, Order, Policy};
pub use keyspace::{Flushed, Key, KeyHash, Keys, Keyspace, ScanCursor};
pub use record::{RecordRef, Value, ValueRef};
pub use segmented::Shape;
pub use settings::Settings;
pub use sweep::Expired;
pub use tracking::Touched;
pub use types::{
    Bytes,
    hash::{HashValue, Piece},
    string::{Str, StrRef},
};
