//! The engine: sessions as state machines over the shared keyspace.
//!
//! [`Engine`] is the state that all workers share (keyspace, configuration, client registry, counters). A [`Session`]
//! is one connection: bytes in, bytes out, and a [`Turn`] that tells the driver what to do next. A [`LaneJob`] is a
//! command that runs on a helper thread while its session waits. [`Host`] provides everything outside the engine.
//!
//! **Invariant:** the engine knows no runtime, socket, file, thread or clock. Time is an argument ([`Now`]), so that
//! a seeded simulator can drive the engine.

mod acl;
mod admission;
mod clients;
pub mod config;
mod diag;
mod engine;
mod error;
mod eviction_messages;
mod folder;
mod following;
mod headroom;
mod host;
mod importers;
mod limited_lines;
mod long_locks;
mod memory;
mod monitors;
mod notices;
mod pause;
mod persist;
mod pubsub;
mod replication;
mod retries;
mod scripts;
mod session;
mod slowlog;
mod stats;
mod table;
mod timing;
mod tracking;

pub use acl::{RuleError, UsersError};
pub use config::Config;
pub use diag::otlp::OtlpCursor;
pub use engine::{EXPIRE_KEYS_PER_TICK, Engine};
pub use error::{NoProfile, SaveError, StartError, system_text};
pub use folder::{AppendFile, Folder, SyncFile};
pub use host::{
    CpuFacts, Dial, Framing, Host, HostFigures, HostFiles, HostLog, HostServices, HostThreads, Link,
    MemoryFacts, Now, OpenedFile, PeerInfo, ProfileRequest, STACK_BYTES, ScratchFile, ServerFacts,
    ServiceMemory, ShutdownRequest, Signal, Wake, WriteFile,
};
pub use persist::{Damage, DataError, FoundAof, Load, ManifestProblem};
pub use pubsub::Delivery;
pub use session::{
    COMMANDS_PER_TURN_MAX, LaneDone, LaneJob, OUTPUT_BYTES_MAX, OUTPUT_RESUME_BYTES, READ_AHEAD_BYTES_MAX,
    Session, Turn, UNAUTHENTICATED_OUTPUT_BYTES_MAX, UNAUTHENTICATED_READ_AHEAD_BYTES_MAX,
};
pub use table::TABLE;
