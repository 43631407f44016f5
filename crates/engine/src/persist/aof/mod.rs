//! The append-only file: every change as a command, in files that rebuild the data.
//!
//! [`load`] finds the files and runs their commands at the start ([`replay`]). [`writer`] appends new changes on one
//! thread, and [`syncs`] syncs them as `appendfsync` says. [`rewrite`] replaces the grown files with a base of one
//! moment. [`gates`] holds replies back until their writes are on the disk. [`reload`] is DEBUG LOADAOF.
//!
//! Locks: a thread that holds [`Aof::writer`] may wait for the disk and for a long lock on all shards. So neither a
//! worker nor the syncing thread takes this lock. [`Aof::status`] has the facts for INFO and the workers. Its lock is
//! held only for a moment.

mod base;
mod gates;
mod info;
mod load;
mod reload;
mod replay;
mod rewrite;
mod syncs;
mod writer;

pub(crate) use gates::Gates;
pub(super) use info::info;
pub use load::FoundAof;
pub(crate) use replay::run_other;
pub(crate) use rewrite::RewriteStart;

use crate::config::Opt;
use crate::{Config, Engine, Host, Now, Signal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use syncs::Syncs;
use writer::Writer;

/// The state of the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AofMode {
    /// The append-only file is switched off.
    Off,
    /// The append-only file is switched on, and its first base is being written. The files are not complete yet.
    Starting,
    /// The append-only file is switched on and complete: the files have every change.
    On,
}

/// The append-only file. See the module.
pub(crate) struct Aof {
    mode: AtomicU8,
    /// `None` while there is no append-only file.
    writer: Mutex<Option<Writer>>,
    syncs: Syncs,
    /// How many times the threads of the append-only file were started. The threads of an earlier start end.
    starts: AtomicU64,
    status: Mutex<Status>,
    pub(crate) gates: Gates,
    /// Signalled when the journal has many bytes to write.
    pub(crate) backlog_signal: Arc<dyn Signal>,
    /// The progress of the running rewrite: keys in the new base so far, and keys when the rewrite began.
    keys_done: AtomicU64,
    keys_total: AtomicU64,
    /// Set to cancel the background rewrite.
    cancel: Arc<AtomicBool>,
    /// Locked while the append-only file is switched on or off.
    switching: Mutex<()>,
    /// Number of times that all data was replaced while the files were open, and that number at the moment of the current
    /// base. While they differ, the files belong to former data.
    replaced: AtomicU64,
    covered: AtomicU64,
}

/// Facts for INFO, and for the decision to start a rewrite.
struct Status {
    /// The time when the running rewrite began.
    rewriting: Option<Now>,
    scheduled: bool,
    last_rewrite_ok: bool,
    /// Duration of the last rewrite in seconds. -1: none was made.
    last_rewrite_s: i64,
    last_try_s: i64,
    rewrites: u64,
    failures: u64,
    last_kept_bytes: usize,
    /// Why writes to the file fail. `None`: they succeed.
    write_error: Option<String>,
    /// True when a sync has failed. Bytes written since the previous sync may not be on the disk. Only a new base
    /// repairs this.
    has_failed_sync: bool,
    failed_syncs: u64,
    /// Number of failed syncs, counted since the start, that the base which is being written repairs.
    covered_syncs: u64,
    /// Number of bytes of all files now.
    bytes: u64,
    /// Bytes of all files at the end of the last rewrite.
    rewritten_bytes: u64,
    /// The journal offset of the end of the bytes in the file.
    written: u64,
    /// The value of `dir` when the file was opened.
    dir: Vec<u8>,
}

impl Aof {
    /// Sets the number of rewrites to zero.
    pub(super) fn reset_totals(&self) {
        self.status.lock().rewrites = 0;
    }
    /// Number of rewrites that failed since the last one that did not.
    pub(super) fn failed_rewrites(&self) -> u64 {
        self.status.lock().failures
    }
    pub(super) fn new(host: &dyn Host) -> Aof {
        Aof {
            mode: AtomicU8::new(AofMode::Off as u8),
            writer: Mutex::default(),
            syncs: Syncs::new(host),
            starts: AtomicU64::new(0),
            status: Mutex::new(Status {
                rewriting: None,
                scheduled: false,
                last_rewrite_ok: true,
                last_rewrite_s: -1,
                last_try_s: 0,
                rewrites: 0,
                failures: 0,
                last_kept_bytes: 0,
                write_error: None,
                has_failed_sync: false,
                failed_syncs: 0,
                covered_syncs: 0,
                bytes: 0,
                rewritten_bytes: 0,
                written: 0,
                dir: Vec::new(),
            }),
            gates: Gates::new(host.signal()),
            backlog_signal: host.signal().into(),
            keys_done: AtomicU64::new(0),
            keys_total: AtomicU64::new(0),
            cancel: Arc::default(),
            switching: Mutex::default(),
            replaced: AtomicU64::new(0),
            covered: AtomicU64::new(0),
        }
    }
    pub(crate) fn mode(&self) -> AofMode {
        match self.mode.load(Acquire) {
            0 => AofMode::Off,
            1 => AofMode::Starting,
            _ => AofMode::On,
        }
    }
    /// True when the files belong to the data in memory: see `replaced`.
    pub(crate) fn has_this_data(&self) -> bool {
        self.mode() == AofMode::On && self.replaced.load(Acquire) == self.covered.load(Acquire)
    }
    /// All data was replaced, and no file has the new data.
    pub(in crate::persist) fn note_replaced(&self) {
        self.replaced.fetch_add(1, AcqRel);
    }
    fn set_mode(&self, mode: AofMode) {
        self.mode.store(mode as u8, Release);
    }
    /// False when the append-only file was switched off after this start of its threads.
    fn is_current_start(&self, start_number: u64) -> bool {
        self.mode() != AofMode::Off && self.starts.load(Acquire) == start_number
    }
    /// Bytes of a journal with this tail that wait to be written to the file.
    pub(crate) fn pending_bytes(&self, tail: u64) -> u64 {
        if self.mode() == AofMode::Off { 0 } else { tail.saturating_sub(self.status.lock().written) }
    }
    /// True while a base is written.
    pub(crate) fn is_rewriting(&self) -> bool {
        self.status.lock().rewriting.is_some()
    }
    /// The number of keys in the base that is written now, and of all keys when its rewrite began. Both are 0 without a
    /// rewrite.
    pub(super) fn rewritten_keys(&self) -> (u64, u64) {
        match self.is_rewriting() {
            true => (self.keys_done.load(Relaxed), self.keys_total.load(Relaxed)),
            false => (0, 0),
        }
    }
    /// Cancels the running rewrite. The rewrite ends soon, without a result.
    pub(super) fn cancel_rewrite(&self) {
        self.cancel.store(true, Relaxed);
    }
    /// The error with which writes are refused.
    pub(super) fn refusal(&self) -> String {
        format!("MISCONF Errors writing to the AOF file: {}", self.failure())
    }
    /// The system's text about the last write or sync that failed.
    pub(super) fn failure(&self) -> String {
        self.status.lock().write_error.clone().unwrap_or_else(|| "Input/output error".into())
    }
}

/// The names of the append-only files.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The value of `appenddirname`.
    folder: String,
    /// The value of `appendfilename`.
    file: String,
}

impl Names {
    fn of(config: &Config) -> Names {
        let text = |option| String::from_utf8_lossy(&config.text(option)).into_owned();
        Names { folder: text(Opt::AppendDirName), file: text(Opt::AppendFileName) }
    }
    fn manifest(&self) -> String {
        format!("{}.manifest", self.file)
    }
    /// The manifest's path for messages.
    fn manifest_path(&self) -> String {
        format!("{}/{}", self.folder, self.manifest())
    }
    fn base(&self, seq: u64, is_rdb: bool) -> String {
        format!("{}.{seq}.base.{}", self.file, if is_rdb { "rdb" } else { "aof" })
    }
    fn increment(&self, seq: u64) -> String {
        format!("{}.{seq}.incr.aof", self.file)
    }
}

/// The manifest's path for messages.
pub(super) fn manifest_path(config: &Config) -> String {
    Names::of(config).manifest_path()
}

impl Engine {
    /// The folder of the append-only file, if `dir` was changed since the file was opened. The file stays where it is.
    pub(crate) fn misplaced_aof(&self) -> Option<String> {
        let aof = &self.persist.aof;
        let dir = aof.status.lock().dir.clone();
        (aof.mode() != AofMode::Off && dir != self.config.dir())
            .then(|| String::from_utf8_lossy(&dir).into_owned())
    }
    /// True while replies wait until their writes are on the disk.
    pub(crate) fn always_syncs(&self) -> bool {
        self.config.choice(Opt::AppendFsync) == "always"
    }
}
