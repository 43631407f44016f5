//! The data on disk: when it is saved, the state of saves, and which commands may not run because of it.
//!
//! [`Persist`] is the state. [`save`] writes snapshots (SAVE, BGSAVE, `save` points, the last save before the end), and
//! [`end`] is what SHUTDOWN waits for.
//! [`load`] reads a snapshot at the start, and [`loaders`] put its records into the keyspace. [`aof`] is the
//! append-only file with every change. Files, threads and clocks are the host's. At most one save runs at a time,
//! beside at most one rewrite of the append-only file.
//!
//! Every command checks one number, [`Persist::alerts`]. It is zero except in these states:
//! - the dataset is loading;
//! - the last save failed;
//! - the append-only file cannot be written;
//! - a snapshot keeps more than its budget;
//! - too much of the journal waits to be written;
//! - too many changed keys wait to be indexed;
//! - the server waits for its replicas or makes its last save, before it ends, or it has ended;
//! - this server is a replica, or has too few replicas.

mod aof;
mod end;
mod error;
mod info;
mod load;
mod loaders;
mod moment;
mod save;

pub use aof::FoundAof;
pub(crate) use aof::{Aof, AofMode, RewriteStart, run_other};
pub use error::{Damage, DataError, ManifestProblem};
pub(crate) use info::info;
pub use load::Load;
pub(crate) use load::Reload;
pub(crate) use moment::Moment;
pub(crate) use save::aux_fields;

use crate::config::Opt;
use crate::following::Position;
use crate::{Engine, Host, Now};
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use strand_commands::spec::Flags;
use strand_keyspace::journal::JOURNAL_FULL;
use strand_keyspace::{SNAPSHOT_OVER, SnapshotLoad, TOUCHED_FULL};

/// The dataset is loading: few commands may run.
const LOADING: u16 = 2;
/// Writes are refused: the append-only file cannot be written.
const AOF_FAILED: u16 = 64;
/// Writes are refused: the last save in the background failed (`stop-writes-on-bgsave-error`).
const SAVE_FAILED: u16 = 4;
/// Writes are refused because something could not be written.
pub(crate) const FAILURES: u16 = AOF_FAILED | SAVE_FAILED;
/// The wait for replicas or the last save at the end has begun: writes wait.
const ENDING: u16 = 8;
/// Writes are refused: this server is a replica, or too few replicas are connected (`min-replicas-to-write`).
const REPLICATION: u16 = 128;
/// The server stops: a writing command ends its session.
const ENDED: u16 = 16;
/// The data is about to be replaced (DEBUG RELOAD and LOADAOF): writes wait.
const REPLACING: u16 = 256;

/// Time until a write that waits for a snapshot or for the indexes is retried.
pub(crate) const RETRY_US: u64 = 1_000;

/// What a command may add to the journal, if its flags do not say that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adds {
    Nothing,
    /// Messages for replicas. The command waits while the journal is full.
    Messages,
    /// The writes of a script. The script waits as a write does, but only its writes are refused
    /// ([`Persist::write_refusal`]).
    Writes,
}

/// Whether a command may run while data is saved or loaded.
pub(crate) enum Verdict {
    /// The command may run.
    Run,
    /// The command gets this error.
    Refuse(Cow<'static, str>),
    /// The command is retried at this time, on the clock of [`Now::mono_us`].
    RetryAt(u64),
    /// The session ends, without a reply to the command.
    EndSession,
}

/// The error of a command that needs the data while the data is loaded.
pub(crate) const IS_LOADING: &str = "LOADING Redis is loading the dataset in memory";
const TOO_FEW_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Why writes are refused because of replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    None,
    /// This server is a replica that accepts no writes.
    ReadOnlyReplica,
    /// `min-replicas-to-write` are not near.
    TooFewReplicas,
}

const CANNOT_SAVE: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
                           disk. Commands that may modify the data set are disabled, because this instance is configured \
                           to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). \
                           Please check the Redis logs for details about the RDB error.";

/// The state of saves. See the module.
pub(crate) struct Persist {
    /// Shared with the keyspace: its snapshots set the bit [`SNAPSHOT_OVER`], its journal the bit [`JOURNAL_FULL`], and the
    /// keys that wait for the indexes the bit [`TOUCHED_FULL`].
    alerts: Arc<AtomicU16>,
    state: Mutex<State>,
    loading: Loading,
    /// Locked for writing while DEBUG RELOAD or DEBUG LOADAOF replaces the data. See [`Engine::while_data_stays`].
    replacing: RwLock<()>,
    /// True when the options of the stop allow that writes are lost: SHUTDOWN FORCE and SHUTDOWN NOSAVE.
    may_lose_writes: AtomicBool,
    /// True from the begin of the last save before the end of the server on.
    in_last_save: AtomicBool,
    /// The end of the server that is in progress.
    end: end::End,
    /// The [`WriteRefusal`].
    write_refusal: AtomicU8,
    pub(crate) aof: Aof,
}

struct State {
    /// The value of [`strand_keyspace::Keyspace::changes`] up to which changes are in the snapshot file.
    saved_changes: u64,
    /// Time of the last save in unix seconds. Before the first save: the start of the server.
    last_save_s: i64,
    /// Start of the last background save.
    last_try_s: i64,
    /// True when the last background save succeeded.
    last_ok: bool,
    /// Duration of the last background save. -1: none was made.
    last_duration_s: i64,
    last_kept_bytes: usize,
    /// Length of the last snapshot file. 0: no file was written.
    last_bytes: u64,
    saves: u64,
    running: Option<Running>,
    /// True when BGSAVE is scheduled.
    scheduled: bool,
    loaded_keys: u64,
    expired_keys: u64,
}

/// A save that is running.
#[derive(Clone)]
struct Running {
    background: bool,
    began: Now,
    keys_done: Arc<AtomicU64>,
    keys_total: u64,
    cancel: Arc<AtomicBool>,
    /// The load of the snapshot. Set from the moment of the snapshot on.
    load: Option<Arc<SnapshotLoad>>,
}

/// The progress of loading the dataset.
#[derive(Default)]
struct Loading {
    started_s: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    used_mem: AtomicU64,
    /// The position of a stream of replication that the file tells.
    position: Mutex<Position>,
}

impl Persist {
    pub(crate) fn new(host: &dyn Host, now: Now) -> Persist {
        Persist {
            alerts: Arc::default(),
            state: Mutex::new(State {
                saved_changes: 0,
                last_save_s: now.unix_s(),
                last_try_s: 0,
                last_ok: true,
                last_duration_s: -1,
                last_kept_bytes: 0,
                last_bytes: 0,
                saves: 0,
                running: None,
                scheduled: false,
                loaded_keys: 0,
                expired_keys: 0,
            }),
            loading: Loading::default(),
            replacing: RwLock::new(()),
            may_lose_writes: AtomicBool::new(false),
            in_last_save: AtomicBool::new(false),
            end: end::End::default(),
            write_refusal: AtomicU8::new(WriteRefusal::None as u8),
            aof: Aof::new(host),
        }
    }
    /// The alerts for the keyspace, which sets the bits that make writes wait.
    pub(crate) fn shared_alerts(&self) -> Arc<AtomicU16> {
        self.alerts.clone()
    }
    /// Non-zero when [`Persist::verdict`] must be asked.
    #[inline]
    pub(crate) fn alerts(&self) -> u16 {
        self.alerts.load(Relaxed)
    }
    /// True while a write of a key that an index follows must wait.
    pub(crate) fn awaits_indexes(&self) -> bool {
        self.alerts() & TOUCHED_FULL != 0
    }
    /// True when the last snapshot could not be written.
    pub(crate) fn last_save_failed(&self) -> bool {
        !self.state.lock().last_ok
    }
    /// Number of rewrites of the append-only file that failed since the last one that did not.
    pub(crate) fn failed_rewrites(&self) -> u64 {
        self.aof.failed_rewrites()
    }
    /// CONFIG RESETSTAT: sets the numbers of saves and rewrites to zero.
    pub(crate) fn reset_totals(&self) {
        self.state.lock().saves = 0;
        self.aof.reset_totals();
    }
    /// True while the dataset is loading.
    pub(crate) fn is_loading(&self) -> bool {
        self.alerts() & LOADING != 0
    }
    /// True from the begin of the last save on.
    pub(crate) fn is_in_last_save(&self) -> bool {
        self.in_last_save.load(Relaxed)
    }
    /// True from the time on when the end of the server makes writes wait.
    pub(crate) fn is_ending(&self) -> bool {
        self.alerts() & ENDING != 0
    }
    /// True while no write may begin, because the server ends or replaces its data. A thread that has counted its write
    /// before this call sees the alert, or the thread that has set the alert sees the count
    /// ([`Engine::await_begun_writes`]).
    pub(crate) fn holds_writes(&self) -> bool {
        self.alerts.load(SeqCst) & (ENDING | ENDED | REPLACING) != 0
    }
    /// Decides about a command with these flags. `all_flags` includes the flags of the commands that EXEC would run.
    /// `adds`: what the command may add to the journal, unless its flags say that it writes.
    #[cold]
    pub(crate) fn verdict(
        &self,
        flags: Flags,
        all_flags: Flags,
        adds: Adds,
        is_ping: bool,
        now: Now,
    ) -> Verdict {
        let alerts = self.alerts();
        if alerts & LOADING != 0 && !flags.has(Flags::LOADING) {
            return Verdict::Refuse(IS_LOADING.into());
        }
        if (is_ping || all_flags.has(Flags::WRITE))
            && let Some(text) = self.write_refusal()
            && !(is_ping && self.alerts() & FAILURES == 0)
        {
            return Verdict::Refuse(text);
        }
        let retry = Verdict::RetryAt(now.mono_us + RETRY_US);
        match adds {
            _ if alerts & JOURNAL_FULL != 0 && adds == Adds::Messages => retry,
            Adds::Nothing | Adds::Messages if !all_flags.has(Flags::WRITE) => Verdict::Run,
            _ if alerts & ENDED != 0 => Verdict::EndSession,
            _ if alerts & (ENDING | REPLACING | SNAPSHOT_OVER | JOURNAL_FULL) != 0 => retry,
            _ => Verdict::Run,
        }
    }
    /// The error with which writes are refused now, because the last save or a write to the append-only file failed.
    pub(crate) fn write_refusal(&self) -> Option<Cow<'static, str>> {
        match self.alerts() {
            alerts if alerts & SAVE_FAILED != 0 => Some(CANNOT_SAVE.into()),
            alerts if alerts & AOF_FAILED != 0 => Some(self.aof.refusal().into()),
            alerts if alerts & REPLICATION != 0 => self.replication_refusal(),
            _ => None,
        }
    }
    /// The error with which writes are refused because of replication.
    fn replication_refusal(&self) -> Option<Cow<'static, str>> {
        let refusal = self.write_refusal.load(Relaxed);
        if refusal == WriteRefusal::ReadOnlyReplica as u8 {
            return Some(READ_ONLY.into());
        }
        (refusal == WriteRefusal::TooFewReplicas as u8).then(|| TOO_FEW_REPLICAS.into())
    }
    /// Sets why writes are refused because of replication. `is_replica`: this server is a replica, so commands must be
    /// checked also without a refusal of writes (`replica-serve-stale-data`).
    pub(crate) fn set_replication(&self, is_replica: bool, refusal: WriteRefusal) {
        self.write_refusal.store(refusal as u8, Relaxed);
        self.set(REPLICATION, is_replica || refusal != WriteRefusal::None);
    }
    /// Sets an alert or takes it back.
    fn set(&self, alert: u16, on: bool) {
        match on {
            true => self.alerts.fetch_or(alert, SeqCst),
            false => self.alerts.fetch_and(!alert, SeqCst),
        };
    }
    /// The time that LASTSAVE replies with, in Unix seconds.
    pub(crate) fn last_save_s(&self) -> i64 {
        self.state.lock().last_save_s
    }
    /// The expected disk space of the next snapshot: the length of the last one, or of the loaded file.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        match self.state.lock().last_bytes {
            0 => self.loading.total_bytes.load(Relaxed),
            bytes => bytes,
        }
    }
    /// Bytes that a snapshot keeps besides the data.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.running.as_ref().and_then(|r| r.load.as_ref()).map_or(0, |load| load.bytes() as u64)
    }
}

impl Engine {
    /// Runs work in the background that may remove keys by itself: expiry, eviction, the reading of keys for an index.
    /// Does nothing and returns `None` while data is loaded from a file: a later command of the file may need the key.
    pub fn while_data_stays<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let _stays = self.persist.replacing.try_read()?;
        (!self.persist.is_loading()).then(work)
    }
    /// Call this when a save has ended, and when the options changed that decide whether writes continue after a
    /// failed save.
    pub(crate) fn update_save_alerts(&self) {
        let stops =
            self.config.number(Opt::StopWritesOnBgsaveError) != 0 && !self.config.save_points().is_empty();
        let state = self.persist.state.lock();
        self.persist.set(SAVE_FAILED, stops && !state.last_ok);
    }
}
