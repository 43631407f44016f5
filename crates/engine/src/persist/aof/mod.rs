//! The append-only file: every change, as a command, in files that make the data again.
//!
//! [`load`] finds the files and runs their commands at the start ([`replay`]). [`writer`] adds what is new, by one thread, and
//! [`syncs`] brings it to the disk as `appendfsync` says. [`rewrite`] puts a base of one moment in the place of what has grown.
//! [`gates`] keeps replies back that tell of what is not safe yet. [`reload`] is DEBUG LOADAOF.
//!
//! Locks: whoever holds [`Aof::writer`] may wait for the disk and for a hold of all shards; no worker takes it, and the thread
//! that syncs does not. What INFO and the workers look at is behind [`Aof::status`], which is held for a moment only.

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
pub(crate) use rewrite::Began;

use crate::config::Opt;
use crate::{Config, Engine, Now};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use syncs::Syncs;
use writer::Writer;

/// How the append-only file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// There is none.
    Off,
    /// It was switched on, and its first base is being written: there is none to rely on yet.
    Begins,
    /// It has every change.
    On,
}

/// See the module.
pub(crate) struct Aof {
    mode: AtomicU8,
    /// `None` while there is no append-only file.
    writer: Mutex<Option<Writer>>,
    syncs: Syncs,
    /// How often threads were begun for it; those of an earlier time end.
    begun: AtomicU64,
    status: Mutex<Status>,
    pub(crate) gates: Gates,
    /// A rewrite in the background is to end.
    cancel: Arc<AtomicBool>,
    /// Held by who switches it on or off.
    switching: Mutex<()>,
}

/// What INFO tells, and what decides when a rewrite begins.
struct Status {
    /// When the rewrite that goes on began.
    rewriting: Option<Now>,
    scheduled: bool,
    last_rewrite_ok: bool,
    /// Seconds that the last one took; -1: there was none.
    last_rewrite_s: i64,
    last_try_s: i64,
    rewrites: u64,
    failures: u64,
    last_kept_bytes: usize,
    /// Why nothing can be written; `None`: it can.
    write_error: Option<String>,
    /// A sync has failed: what was written since the one before may not be on the disk, and only a new base makes up for it.
    is_unproven: bool,
    failed_syncs: u64,
    /// The first so many of them are made up for by the base that is being written.
    covered_syncs: u64,
    /// Of all files now.
    bytes: u64,
    /// The same, when the last rewrite ended.
    rewritten_bytes: u64,
    /// The offset in the stream behind what is in the file.
    written: u64,
}

impl Aof {
    pub(super) fn new() -> Aof {
        Aof {
            mode: AtomicU8::new(Mode::Off as u8),
            writer: Mutex::default(),
            syncs: Syncs::default(),
            begun: AtomicU64::new(0),
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
                is_unproven: false,
                failed_syncs: 0,
                covered_syncs: 0,
                bytes: 0,
                rewritten_bytes: 0,
                written: 0,
            }),
            gates: Gates::default(),
            cancel: Arc::default(),
            switching: Mutex::default(),
        }
    }
    pub(crate) fn mode(&self) -> Mode {
        match self.mode.load(Acquire) {
            0 => Mode::Off,
            1 => Mode::Begins,
            _ => Mode::On,
        }
    }
    fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Release);
    }
    /// False: it was switched off since its threads were begun for the time `begun`.
    fn goes_on(&self, begun: u64) -> bool {
        self.mode() != Mode::Off && self.begun.load(Acquire) == begun
    }
    /// Bytes of a stream with this end that wait to be written to the file.
    pub(crate) fn pending_bytes(&self, tail: u64) -> u64 {
        if self.mode() == Mode::Off { 0 } else { tail.saturating_sub(self.status.lock().written) }
    }
    /// True while a base is being written.
    pub(crate) fn is_rewriting(&self) -> bool {
        self.status.lock().rewriting.is_some()
    }
    /// A rewrite that goes on ends soon, without a result.
    pub(super) fn cancel_rewrite(&self) {
        self.cancel.store(true, Relaxed);
    }
    /// The error that writes are refused with.
    pub(super) fn refusal(&self) -> String {
        let status = self.status.lock();
        let why = status.write_error.as_deref().unwrap_or("Input/output error");
        format!("MISCONF Errors writing to the AOF file: {why}")
    }
}

/// What the files are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// `appenddirname`.
    folder: String,
    /// `appendfilename`.
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
    /// For messages.
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

/// The manifest's path, for messages.
pub(super) fn manifest_path(config: &Config) -> String {
    Names::of(config).manifest_path()
}

fn no_files() -> String {
    "the host keeps no files".into()
}

/// The system's own words for an error.
fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

impl Engine {
    /// True while the append-only file holds replies back until it is on the disk.
    pub(crate) fn always_syncs(&self) -> bool {
        self.config.choice(Opt::AppendFsync) == "always"
    }
}
