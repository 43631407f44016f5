//! The end of the server: what SHUTDOWN and the signals wait for, and SHUTDOWN ABORT.
//!
//! [`Engine::end`] does the work before the server stops: it waits for the replicas, and makes the last save. [`End`] knows
//! which ends are in progress, so that SHUTDOWN ABORT can give them up and INFO can tell of them. The host stops the
//! threads afterwards.

use super::{AOF_FAILED, AofMode, LAST_SAVE_DONE, LAST_SAVE_RUNNING};
use crate::config::Opt;
use crate::{Engine, Now, SaveError, ShutdownRequest};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of naps, of a millisecond each, in which the end waits for the workers' turns. A turn is far shorter.
const TURN_NAPS_MAX: usize = 1_000;

/// The ends of the server that are in progress. Each SHUTDOWN and each signal is one.
#[derive(Default)]
pub(super) struct End {
    state: Mutex<EndState>,
}

#[derive(Default)]
struct EndState {
    /// One flag for each end in progress. SHUTDOWN ABORT sets all.
    given_up: Vec<Arc<AtomicBool>>,
    /// The time at which the last wait for replicas ends, on the clock of [`Now::mono_us`]. `None` without a wait.
    waits_until_us: Option<u64>,
    /// True when the server stops now. SHUTDOWN ABORT comes too late.
    is_final: bool,
}

impl End {
    /// Registers an end.
    fn begin(&self) -> Arc<AtomicBool> {
        let given_up = Arc::new(AtomicBool::new(false));
        self.state.lock().given_up.push(given_up.clone());
        given_up
    }
}

impl Engine {
    /// The options of a signal that ends the server: `shutdown-on-sigint`, `shutdown-on-sigterm`.
    pub fn on_signal(&self, is_interrupt: bool) -> ShutdownRequest {
        let option = if is_interrupt { Opt::ShutdownOnSigint } else { Opt::ShutdownOnSigterm };
        let text = self.config.text(option);
        let has = |word: &[u8]| text.split(|b| *b == b' ').any(|given| given == word);
        ShutdownRequest { now: has(b"now"), force: has(b"force"), save: has(b"save"), nosave: has(b"nosave") }
    }
    /// True when a SHUTDOWN with these options saves first.
    pub fn saves_at_end(&self, request: ShutdownRequest) -> bool {
        let by_default = !request.nosave && !self.config.save_points().is_empty();
        !self.persist.is_loading() && (request.save || by_default)
    }
    /// True when [`Engine::end`] may wait for the disk or for replicas.
    pub fn waits_at_end(&self, request: ShutdownRequest) -> bool {
        self.saves_at_end(request) || self.lacks_writes(request) || self.awaits_replicas_at_end(request)
    }
    /// Does what [`Engine::end`] does on a thread of its own, and then calls `done`.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn end_on_thread(
        self: &Arc<Self>,
        request: ShutdownRequest,
        done: impl FnOnce(&Engine, Result<(), SaveError>) + Send + 'static,
    ) -> io::Result<()> {
        let engine = self.clone();
        let work = move || {
            let end = || engine.end(request, engine.host.now());
            let ended = catch_unwind(AssertUnwindSafe(end));
            done(&engine, ended.unwrap_or_else(|_| Err(SaveError("the save panicked, see the log".into()))));
        };
        self.host.spawn("save", Box::new(work))
    }
    /// Stops the server after [`Engine::end`].
    pub(crate) fn stop(&self, request: ShutdownRequest) {
        // Stops scripts, because an endless script must not keep the server running.
        self.scripts.stopping.store(true, Relaxed);
        self.host.shutdown(request);
    }
    /// The work of SHUTDOWN and the signals before the server stops. Waits for the replicas, then cancels background saves
    /// and rewrites, and makes the last save if the options ask for it. Writes wait from the start of the wait for
    /// replicas or of the last save. `Ok`: stop now. May block if [`Engine::waits_at_end`].
    ///
    /// # Errors
    /// SHUTDOWN ABORT gave the end up, the save failed, the first base of the append-only file is not complete, or the
    /// append-only file lacks writes that the disk did not take and the options do not force the stop. The server continues.
    pub fn end(&self, request: ShutdownRequest, now: Now) -> Result<(), SaveError> {
        let given_up = self.persist.end.begin();
        let mut holds_writes = false;
        let mut ended = self.prepare_end(request, &given_up, &mut holds_writes, now);
        if ended.is_err() && !given_up.load(Relaxed) {
            self.host.warn("Errors trying to shut down the server. Check the logs for more information.");
        }
        let mut state = self.persist.end.state.lock();
        if given_up.load(Relaxed) {
            ended = Err(SaveError("SHUTDOWN ABORT".into()));
        }
        state.given_up.retain(|other| !Arc::ptr_eq(other, &given_up));
        match &ended {
            Ok(()) => {
                state.is_final = true;
                self.persist.set(LAST_SAVE_DONE, holds_writes);
            }
            Err(_) if state.given_up.is_empty() => {
                state.waits_until_us = None;
                self.persist.ends_unsaved.store(false, Relaxed);
                self.persist.set(LAST_SAVE_RUNNING, false);
            }
            // Another end is in progress.
            Err(_) => {}
        }
        ended
    }
    /// [`Engine::end`] up to the point where the server can stop. Sets `holds_writes` when writes wait for the end.
    fn prepare_end(
        &self,
        request: ShutdownRequest,
        given_up: &AtomicBool,
        holds_writes: &mut bool,
        now: Now,
    ) -> Result<(), SaveError> {
        self.check_first_base(request)?;
        self.persist.may_lose_writes.store(request.nosave || request.force, Relaxed);
        self.check_file_is_written(request)?;
        let mut saves = self.saves_at_end(request);
        if saves {
            // Writes go on while a script keeps the save from beginning.
            self.announce_until_cancelled(given_up).map_err(|_| SaveError("SHUTDOWN ABORT".into()))?;
            // Meanwhile SHUTDOWN NOSAVE may have cut the script. A save would have what the script wrote before the cut.
            saves = !self.persist.ends_unsaved.load(Relaxed);
            self.persist.saves_at_end.store(saves, Relaxed);
        } else if request.nosave {
            self.persist.ends_unsaved.store(true, Relaxed);
        }
        let awaits_replicas = self.awaits_replicas_at_end(request);
        *holds_writes = saves || awaits_replicas;
        if *holds_writes {
            self.persist.set(LAST_SAVE_RUNNING, true);
            self.await_turns();
        }
        if awaits_replicas {
            let until_us = self.host.mono_us() + self.config.number(Opt::ShutdownTimeout) as u64 * 1_000_000;
            self.persist.end.state.lock().waits_until_us = Some(until_us);
            self.await_replicas(until_us, given_up);
        }
        if given_up.load(Relaxed) {
            return Ok(());
        }
        // The append-only file may have been switched on during the wait.
        self.check_first_base(request)?;
        self.persist.aof.cancel_rewrite();
        self.cancel_running_save();
        if !saves {
            return Ok(());
        }
        // The append-only file may have been switched on during the save.
        let saved =
            self.last_save(given_up, now).map_err(SaveError).and_then(|()| self.check_first_base(request));
        if request.force { Ok(()) } else { saved }
    }
    /// SHUTDOWN ABORT. False when no end is in progress.
    pub(crate) fn give_up_end(&self) -> bool {
        let state = self.persist.end.state.lock();
        if state.given_up.is_empty() || state.is_final {
            return false;
        }
        for given_up in &state.given_up {
            given_up.store(true, Relaxed);
        }
        if self.persist.is_in_last_save() {
            self.cancel_running_save();
        }
        self.host.log("Shutdown manually aborted.");
        true
    }
    /// The milliseconds that the end of the server still waits for replicas at most. `None` without an end that waits.
    pub(crate) fn ends_in_ms(&self, now: Now) -> Option<u64> {
        let until_us = self.persist.end.state.lock().waits_until_us?;
        Some(until_us.saturating_sub(now.mono_us) / 1_000)
    }
    /// Waits until each worker's current turn has ended. A turn that began before [`LAST_SAVE_RUNNING`] was set may have
    /// admitted a write that has not run yet. The last save must have this write, because its client gets a reply.
    pub(crate) fn await_turns(&self) {
        // After this time each worker's memory shows a turn that began before.
        self.host.nap_us(super::RETRY_US);
        let turns = self.diag.turn_watch.current();
        for _ in 0..TURN_NAPS_MAX {
            if turns.iter().all(|turn| self.diag.turn_watch.has_ended(*turn)) {
                break;
            }
            self.host.nap_us(super::RETRY_US);
        }
    }
    /// Refuses the end of the server while the first base of the append-only file is incomplete: no manifest names the
    /// files yet, so a start with the append-only file would find no data.
    fn check_first_base(&self, request: ShutdownRequest) -> Result<(), SaveError> {
        if self.persist.aof.mode() != AofMode::Starting {
            return Ok(());
        }
        // The base may wait for a long-running script, which only this SHUTDOWN ends.
        let ends_script = request.nosave && self.long_locks.is_busy(None).is_some();
        if !request.force && !ends_script {
            self.host.warn("Writing initial AOF, can't exit.");
            return Err(SaveError("the first base of the append-only file is not complete".into()));
        }
        self.host.warn("Writing initial AOF. Exit anyway.");
        Ok(())
    }
    /// Refuses the end of the server while a write to the append-only file has failed and was not made up for: the end
    /// would lose writes that clients believe saved.
    fn check_file_is_written(&self, request: ShutdownRequest) -> Result<(), SaveError> {
        if !self.lacks_writes(request) {
            return Ok(());
        }
        // The disk may have room again.
        self.write_aof(true);
        if !self.lacks_writes(request) {
            return Ok(());
        }
        let why = self.persist.aof.failure();
        self.host.warn(&format!("Error writing to the AOF file, can't exit: {why}"));
        Err(SaveError(format!(
            "the append-only file lacks the newest writes: {why}. SHUTDOWN FORCE ends the server without them"
        )))
    }
    /// True when a write to the append-only file has failed, and a stop with these options must not lose it.
    fn lacks_writes(&self, request: ShutdownRequest) -> bool {
        !request.nosave && !request.force && self.persist.alerts() & AOF_FAILED != 0
    }
}
