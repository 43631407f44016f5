//! The keyspace: shards, segments, records, and the types of values.
//!
//! All workers share one [`Keyspace`]. A [`Txn`] holds the shards that a piece of work needs. It locks them in
//! ascending order, so two transactions cannot deadlock. A [`Db`] is one database, seen through the held shards. A
//! [`RecordRef`] is one key with its value and its expiry.
//!
//! **Invariant:** this crate knows no argv, no reply and no socket. Time is an argument (`now_ms`, unix
//! milliseconds).

mod db;
mod draft;
mod event;
mod evict;
mod expired;
mod extendible;
pub mod journal;
mod keepers;
mod keyspace;
mod promise;
mod read_set;
mod record;
mod settings;
mod shard;
mod snapshot;
mod sweep;
mod totals;
mod tracking;
mod txn;
pub mod types;
mod undo;
mod usage;
mod view;
mod wait;
mod watch;

pub use db::{Db, OtherType, RemovedRecord};
pub use event::{Class, KeyEvent, Listener, NO_CLIENT};
pub use evict::{Evicted, Evictor, Order, Policy};
pub use extendible::Shape;
pub use keyspace::{Flushed, Key, KeyHash, Keys, Keyspace, ScanCursor};
pub use promise::Promises;
pub use read_set::{Names, ReadSet};
pub use record::{RecordRef, TYPE_NAMES, Value, ValueRef};
pub use settings::{JOURNAL, LISTENER, Settings};
pub use snapshot::{SNAPSHOT_OVER, Snapshot, SnapshotLoad, SnapshotRecords};
pub use sweep::Expired;
pub use tracking::{PrefixSet, TOUCHED_FULL, TRACKED_PREFIX_BYTES_MAX, TRACKED_PREFIXES_MAX, Touched};
pub use txn::{ChangesMark, Lookups, REPLAYED_STRING_BYTES_MAX, Txn};
pub use types::{
    AsValue, Bytes, Changed, Collection, OnGone, PUBLISHED_FIELD, Parts, Piece, Wanted,
    hash::HashValue,
    list::ListValue,
    set::{Member, SetValue},
    string::{Str, StrRef},
    zset::ZSetValue,
};
pub use view::{View, ViewKeys, Viewed};
pub use wait::{READERS_SERVED_MAX, Registration, WaitEvent, Waiter, WaiterOutcome};
pub use watch::{WatchFlag, WatchState, Watched};
