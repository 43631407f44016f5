//! The data on disk: when it is saved, what is known of saves, and what may not run because of them.
//!
//! [`Persist`] is the state. [`save`] writes snapshots (SAVE, BGSAVE, `save` points, the last one before the end); [`load`]
//! reads one at the start, and [`loaders`] put what it reads into the keyspace. [`aof`] is the append-only file, which has
//! every change. Files, threads and clocks are the host's. One save at a time goes on, beside a rewrite of the append-only
//! file.
//!
//! What every command looks at is one number, [`Persist::alerts`], which is zero in all but six states: the dataset is being
//! loaded, the last save failed, the append-only file cannot be written, a snapshot keeps more than its budget, too much of the
//! journal waits to be written, the server saves for the last time.

mod aof;
mod info;
mod load;
mod loaders;
mod save;

pub use aof::FoundAof;
pub(crate) use aof::{Aof, Began, Mode};
pub(crate) use info::info;
pub use load::Load;
pub(crate) use load::Reload;

use crate::config::Opt;
use crate::{Engine, Now};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use strand_commands::spec::Flags;
use strand_keyspace::journal::JOURNAL_FULL;
use strand_keyspace::{SNAPSHOT_OVER, SnapshotLoad};

/// The dataset is being loaded: little may run.
const LOADING: u8 = 2;
/// Writes are refused: the append-only file cannot be written.
const AOF_FAILED: u8 = 64;
/// Writes are refused: the last save in the background failed (`stop-writes-on-bgsave-error`).
const DENIED: u8 = 4;
/// Writes are refused because something could not be written.
pub(crate) const FAILURES: u8 = AOF_FAILED | DENIED;
/// The last save before the end has begun: writes wait for it.
const FINAL: u8 = 8;
/// And it is done: who still wants to write is too late.
const ENDED: u8 = 16;

/// A write that has to wait for a snapshot is tried again after so long.
const RETRY_US: u64 = 1_000;

/// What becomes of a command.
pub(crate) enum Verdict {
    /// It may run.
    Runs,
    /// It gets this error.
    Refused(Cow<'static, str>),
    /// It is tried again at this time, on the clock of [`Now::mono_us`].
    Waits(u64),
    /// Its session ends.
    Ends,
}

const IS_LOADING: &str = "LOADING Redis is loading the dataset in memory";
const CANNOT_SAVE: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
                           disk. Commands that may modify the data set are disabled, because this instance is configured \
                           to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). \
                           Please check the Redis logs for details about the RDB error.";

/// See the module.
pub(crate) struct Persist {
    /// Shared with the keyspace: its snapshot has the bit [`SNAPSHOT_OVER`], its journal the bit [`JOURNAL_FULL`].
    alerts: Arc<AtomicU8>,
    state: Mutex<State>,
    /// Codes of function libraries of the file that could not be loaded: saved again, so that nothing is lost.
    functions: Mutex<Vec<Vec<u8>>>,
    loading: Loading,
    pub(crate) aof: Aof,
}

struct State {
    /// [`strand_keyspace::Keyspace::changes`] that the file has.
    saved_changes: u64,
    /// When that was, in unix seconds; the start of the server before that.
    last_save_s: i64,
    /// When a save in the background was last begun.
    last_try_s: i64,
    /// The last save in the background was done.
    last_ok: bool,
    /// How long it took; -1: there was none.
    last_took_s: i64,
    last_kept_bytes: usize,
    /// The length of the last file; 0: none was written.
    last_bytes: u64,
    saves: u64,
    running: Option<Running>,
    /// BGSAVE is to begin as soon as it can.
    scheduled: bool,
    loaded_keys: u64,
    expired_keys: u64,
}

/// A save that goes on.
#[derive(Clone)]
struct Running {
    background: bool,
    began: Now,
    keys_done: Arc<AtomicU64>,
    keys_total: u64,
    cancel: Arc<AtomicBool>,
    /// From its moment on.
    load: Option<Arc<SnapshotLoad>>,
}

/// How far the loading is.
#[derive(Default)]
struct Loading {
    started_s: AtomicI64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    used_mem: AtomicU64,
}

impl Persist {
    pub(crate) fn new(now: Now) -> Persist {
        Persist {
            alerts: Arc::default(),
            state: Mutex::new(State {
                saved_changes: 0,
                last_save_s: now.unix_s(),
                last_try_s: 0,
                last_ok: true,
                last_took_s: -1,
                last_kept_bytes: 0,
                last_bytes: 0,
                saves: 0,
                running: None,
                scheduled: false,
                loaded_keys: 0,
                expired_keys: 0,
            }),
            functions: Mutex::default(),
            loading: Loading::default(),
            aof: Aof::new(),
        }
    }
    /// Where the keyspace says that writes are to wait.
    pub(crate) fn shared_alerts(&self) -> Arc<AtomicU8> {
        self.alerts.clone()
    }
    /// Not zero when [`Persist::verdict`] must be asked.
    #[inline]
    pub(crate) fn alerts(&self) -> u8 {
        self.alerts.load(Relaxed)
    }
    /// True while the dataset is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.alerts() & LOADING != 0
    }
    /// What becomes of a command with these flags; `all_flags` has those of what EXEC would run, too.
    #[cold]
    pub(crate) fn verdict(&self, flags: Flags, all_flags: Flags, is_ping: bool, now: Now) -> Verdict {
        let alerts = self.alerts();
        if alerts & LOADING != 0 && !flags.has(Flags::LOADING) {
            return Verdict::Refused(IS_LOADING.into());
        }
        if alerts & DENIED != 0 && (is_ping || all_flags.has(Flags::WRITE)) {
            return Verdict::Refused(CANNOT_SAVE.into());
        }
        if alerts & AOF_FAILED != 0 && (is_ping || all_flags.has(Flags::WRITE)) {
            return Verdict::Refused(self.aof.refusal().into());
        }
        if !all_flags.has(Flags::WRITE) {
            return Verdict::Runs;
        }
        match alerts {
            _ if alerts & ENDED != 0 => Verdict::Ends,
            _ if alerts & (FINAL | SNAPSHOT_OVER | JOURNAL_FULL) != 0 => {
                Verdict::Waits(now.mono_us + RETRY_US)
            }
            _ => Verdict::Runs,
        }
    }
    fn set(&self, alert: u8, on: bool) {
        match on {
            true => self.alerts.fetch_or(alert, Relaxed),
            false => self.alerts.fetch_and(!alert, Relaxed),
        };
    }
    /// LASTSAVE.
    pub(crate) fn last_save_s(&self) -> i64 {
        self.state.lock().last_save_s
    }
    /// What the next snapshot takes of the disk, as far as the last one tells, or the file that was loaded.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        match self.state.lock().last_bytes {
            0 => self.loading.total_bytes.load(Relaxed),
            bytes => bytes,
        }
    }
    /// Bytes that a snapshot keeps beside the data.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.running.as_ref().and_then(|r| r.load.as_ref()).map_or(0, |load| load.bytes() as u64)
    }
}

impl Engine {
    /// To be called when a save has ended, and when the options changed that decide whether writes go on after that.
    pub(crate) fn look_at_save_errors(&self) {
        let stops =
            self.config.number(Opt::StopWritesOnBgsaveError) != 0 && !self.config.save_points().is_empty();
        let state = self.persist.state.lock();
        self.persist.set(DENIED, stops && !state.last_ok);
    }
}
