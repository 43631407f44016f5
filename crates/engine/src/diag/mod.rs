//! The server's history: [`Engine::sample`] fills [`Diag`] once per second, and DIAG reads it.
//!
//! [`figures`] reads the engine's counters; the host adds the system's figures of the process and the machine.
//! [`store`] keeps the coarser rows on the disk, [`hot`] the most used keys. Nothing here runs on a worker, and no
//! command pays for it.

mod disk;
pub(crate) mod doctor;
mod figures;
pub(crate) mod hot;
pub(crate) mod otlp;
mod store;
pub(crate) mod turn_watch;

use crate::config::Opt;
use crate::headroom::WorkAdmission;
use crate::host::STACK_BYTES;
use crate::{Engine, Now};
use disk::DiskSpace;
use doctor::ActionLog;
use figures::Latencies;
use hot::HotKeys;
pub(crate) use hot::first_sample;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::Store;
use strand_diag::history::{Recorder, Stamp};
use turn_watch::TurnWatch;

/// The folder of the history's file, in the working folder.
const FOLDER: &str = "strand-history";

/// The history of figures, and what observes the server.
#[derive(Default)]
pub(crate) struct Diag {
    pub(crate) recorder: Mutex<Recorder>,
    latencies: Mutex<Latencies>,
    /// The server's own actions.
    pub(crate) action_log: ActionLog,
    /// Workers in one turn for too long.
    pub(crate) turn_watch: TurnWatch,
    /// The most used keys.
    pub(crate) hot: HotKeys,
    /// Free space of the data's disk.
    disk: DiskSpace,
    store: Mutex<Option<Store>>,
    /// Bytes of the history at the last sample.
    bytes: AtomicU64,
    /// Total time of all samples.
    sampled_ns: AtomicU64,
}

impl Diag {
    /// Bytes of the history.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Total time of all samples in microseconds.
    pub(crate) fn sampled_us(&self) -> u64 {
        self.sampled_ns.load(Relaxed) / 1000
    }
    /// Whether the history is on the disk, and why it is not if it should be.
    pub(crate) fn disk_state(&self) -> (bool, Option<String>) {
        match &*self.store.lock() {
            None => (false, None),
            Some(store) => (store.is_healthy(), store.last_error().map(String::from)),
        }
    }
}

impl Engine {
    /// Takes a sample of everything. Call it once per second, on a thread that may block.
    pub fn sample(&self, now: Now) {
        let began_ns = self.host.mono_ns();
        // The system's figures come last, and those of threads at their end. So when there are too many series, figures
        // of threads are left out.
        let mut figures = Vec::new();
        self.add_figures(&mut figures, now);
        // The memory in use is read before the system's figures, so what is added between the two readings counts twice. In
        // the other order it would not count.
        let used_bytes = self.host.used_bytes();
        figures.extend(self.host.system_figures());
        // Comes before the history, which is written to a disk.
        self.sample_headroom(used_bytes, &figures, now);
        let at = Stamp { unix_ms: now.unix_ms(), mono_ms: now.mono_us / 1000 };
        let diag = &self.diag;
        diag.hot.tick(now.mono_us / 1_000_000);
        {
            let mut recorder = diag.recorder.lock();
            let grown = recorder.record(at, &figures);
            let latencies = diag.latencies.lock().bytes();
            diag.bytes.store((recorder.history().bytes() + latencies) as u64, Relaxed);
            if let Some(store) = &mut *diag.store.lock()
                && !diag.is_disk_low()
            {
                store.append_rows(recorder.history(), grown, &*self.host);
            }
        }
        self.take_actions(now);
        diag.sampled_ns.fetch_add(self.host.mono_ns().saturating_sub(began_ns), Relaxed);
    }
    /// Switches the sampling of allocations as `heap-profiling` says.
    pub fn sample_heap(&self) {
        self.host.sample_heap(self.config.number(Opt::HeapProfiling) != 0);
    }
    /// The duration of the longest current turn of a worker.
    pub fn longest_turn_us(&self, now: Now) -> u64 {
        self.diag.turn_watch.longest_us(now.mono_us)
    }
    /// Finds workers in one turn for too long and logs them. Called ten times per second.
    pub(crate) fn report_stuck_workers(&self, now: Now) {
        let period_us = self.config.number(Opt::WatchdogPeriod).unsigned_abs() * 1000;
        if period_us == 0 {
            return;
        }
        for found in self.diag.turn_watch.take_stuck(period_us, now.mono_us) {
            let (ms, command) = (found.duration_us / 1000, self.stats.ids.name(found.command));
            let reserved = self.admit_work(STACK_BYTES, 0, now);
            let may_use_memory = matches!(reserved, WorkAdmission::Now(_));
            let place = self.host.worker_place(found.worker, may_use_memory);
            let text = format!(
                "worker {} serves client {}, last timed command {command}{place}",
                found.worker, found.client
            );
            self.host.warn(&format!("A worker is stuck for {ms} ms: {text}"));
            self.diag.action_log.add(now.unix_s(), "stuck-worker", format!("reported after {ms} ms: {text}"));
            self.diag.turn_watch.set_newest(text, ms);
        }
    }
    /// Loads the history that an earlier process left on the disk, if the configuration asks for it. Call it once,
    /// before the first sample. A failure is logged and does not prevent the start.
    pub fn open_history(&self) {
        let wanted = match self.config.choice(Opt::HistoryOnDisk) {
            "yes" => true,
            "auto" => self.wants_aof() || !self.config.save_points().is_empty(),
            _ => false,
        };
        if !wanted {
            return;
        }
        let opened = self.host.open_folder(FOLDER, store::FILE);
        let opened = opened
            .and_then(|folder| folder.map(|f| Store::open(f, &mut self.diag.recorder.lock())).transpose());
        match opened {
            Ok(Some((store, loaded))) => {
                if loaded.rows > 0 {
                    self.host.log(&format!("The history continues after {} rows from the disk", loaded.rows));
                }
                if loaded.is_foreign {
                    self.host.warn("The history's file has another format: it is replaced");
                } else if loaded.is_cut {
                    self.host.warn("The damaged end of the history's file is ignored");
                }
                *self.diag.store.lock() = Some(store);
            }
            Ok(None) => {}
            Err(e) => self.host.warn(&format!("The history is kept in memory only: {FOLDER}: {e}")),
        }
    }
}
