//! The end of the server: what SHUTDOWN and the signals wait for, and SHUTDOWN ABORT.
//!
//! At most one end is in progress ([`End`]). It waits for the replicas, and then makes the last save. A SHUTDOWN that
//! comes meanwhile shares its outcome, unless the SHUTDOWN insists on less (NOW, FORCE, NOSAVE): then it takes the place
//! of the end in progress. SHUTDOWN ABORT gives the end up. The host stops the threads afterwards.

use super::{AOF_FAILED, AofMode, ENDED, ENDING};
use crate::config::Opt;
use crate::long_locks::LongLock;
use crate::scripts::busy_text;
use crate::{Engine, Now, SaveError, ShutdownRequest};
use parking_lot::Mutex;
use std::io;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of naps, of a millisecond each, in which the end waits for the workers' turns. A turn is far shorter.
const TURN_NAPS_MAX: usize = 1_000;
/// After this time, the log says what the end of the server waits for.
const LONG_WAIT_US: u64 = 1_000_000;

/// Called with the outcome of an end.
type Done = Box<dyn FnOnce(&Engine, &Result<(), SaveError>) + Send>;

/// The end of the server that is in progress, if there is one.
#[derive(Default)]
pub(super) struct End {
    state: Mutex<EndState>,
}

#[derive(Default)]
struct EndState {
    running: Option<Ending>,
    /// What follows when the end in progress has been given up.
    next: Option<Ending>,
    /// The time at which the wait for replicas ends, on the clock of [`Now::mono_us`]. `None` without a wait.
    waits_until_us: Option<u64>,
    /// True when the server stops now. SHUTDOWN ABORT comes too late.
    is_final: bool,
}

/// An end, and what waits for its outcome.
struct Ending {
    request: ShutdownRequest,
    /// Set by SHUTDOWN ABORT, and by a SHUTDOWN that takes the place of this end.
    given_up: Arc<AtomicBool>,
    waiting: Vec<Done>,
}

impl ShutdownRequest {
    /// True when the request does not share the outcome of an end in progress.
    fn insists(self) -> bool {
        self.now || self.force || self.nosave
    }
}

impl EndState {
    /// Gives the end in progress up. What waits for its outcome waits for `next` instead, if that is some, unless SHUTDOWN
    /// ABORT has given the end up before.
    fn give_up(&mut self, next: Option<Ending>) {
        let Some(running) = &mut self.running else { return };
        let was_given_up = running.given_up.swap(true, Relaxed);
        let former = take(&mut self.next).map(|former| former.waiting).unwrap_or_default();
        let Some(mut next) = next else { return running.waiting.extend(former) };
        if !was_given_up {
            next.waiting.append(&mut running.waiting);
        }
        next.waiting.extend(former);
        self.next = Some(next);
    }
}

impl Engine {
    /// The options of a signal that ends the server: `shutdown-on-sigint`, `shutdown-on-sigterm`.
    pub fn on_signal(&self, is_interrupt: bool) -> ShutdownRequest {
        let option = if is_interrupt { Opt::ShutdownOnSigint } else { Opt::ShutdownOnSigterm };
        let text = self.config.text(option);
        let has = |word: &[u8]| text.split(|b| *b == b' ').any(|given| given == word);
        ShutdownRequest {
            now: has(b"now"),
            force: has(b"force"),
            save: has(b"save"),
            nosave: has(b"nosave"),
            by_signal: true,
        }
    }
    /// True when a SHUTDOWN with these options saves first.
    fn saves_at_end(&self, request: ShutdownRequest) -> bool {
        let by_default = !request.nosave && !self.config.save_points().is_empty();
        !self.persist.is_loading() && (request.save || by_default)
    }
    /// Ends at once, if nothing must be waited for, or if the server stops already. `None`: the end takes long, so call
    /// [`Engine::end_on_thread`]. `Ok`: stop now.
    ///
    /// # Errors
    /// As the outcome of [`Engine::end_on_thread`].
    pub fn end_at_once(&self, request: ShutdownRequest) -> Option<Result<(), SaveError>> {
        let waits =
            self.saves_at_end(request) || self.lacks_writes(request) || self.awaits_replicas_at_end(request);
        let checked = if waits { Ok(()) } else { self.check_first_base(request) };
        let mut state = self.persist.end.state.lock();
        if state.is_final {
            return Some(Ok(()));
        }
        if waits || state.running.is_some() {
            return None;
        }
        state.is_final = checked.is_ok();
        drop(state);
        match checked {
            Ok(()) => {
                self.note_losses(request);
                self.cancel_files();
            }
            Err(_) => self.log_failed_end(),
        }
        Some(checked)
    }
    /// The work of SHUTDOWN and the signals before the server stops, on a thread of its own. Waits for the replicas, then
    /// cancels background saves and rewrites, and makes the last save if the options ask for it. Writes wait from the
    /// begin of the first wait on. Calls `done` with the outcome. `Ok`: stop now.
    ///
    /// The outcome is an error, and the server continues, when SHUTDOWN ABORT gave the end up, the save failed, the first
    /// base of the append-only file is not complete, or the append-only file lacks writes that the disk did not take and
    /// the options do not force the stop.
    ///
    /// Returns the flag that is set when the end is given up.
    ///
    /// # Errors
    /// When the system cannot create a thread. `done` is not called then.
    pub fn end_on_thread(
        self: &Arc<Self>,
        request: ShutdownRequest,
        done: impl FnOnce(&Engine, &Result<(), SaveError>) + Send + 'static,
    ) -> io::Result<Arc<AtomicBool>> {
        let done: Done = Box::new(done);
        let mut state = self.persist.end.state.lock();
        if state.is_final {
            drop(state);
            done(self, &Ok(()));
            return Ok(Arc::default());
        }
        if let Some(running) = &mut state.running
            && !running.given_up.load(Relaxed)
            && !request.insists()
        {
            running.waiting.push(done);
            return Ok(running.given_up.clone());
        }
        if let Some(next) = &mut state.next
            && !request.insists()
        {
            next.waiting.push(done);
            return Ok(next.given_up.clone());
        }
        let given_up = Arc::<AtomicBool>::default();
        let ending = Ending { request, given_up: given_up.clone(), waiting: vec![done] };
        if state.running.is_some() {
            state.give_up(Some(ending));
            return Ok(given_up);
        }
        state.running = Some(ending);
        drop(state);
        let engine = self.clone();
        let spawned = self.host.spawn("save", Box::new(move || engine.run_ends()));
        spawned.inspect_err(|why| self.forget_ends(why)).map(|()| given_up)
    }
    /// Tells the requests that have joined an end that the end has no thread. The first request knows that already.
    fn forget_ends(&self, why: &io::Error) {
        let mut state = self.persist.end.state.lock();
        let joined = state.running.take().into_iter().flat_map(|running| running.waiting.into_iter().skip(1));
        let next = state.next.take().into_iter().flat_map(|next| next.waiting);
        let waiting: Vec<Done> = joined.chain(next).collect();
        drop(state);
        let failed = Err(SaveError::Failed(format!("the system cannot start a thread: {why}")));
        waiting.into_iter().for_each(|done| done(self, &failed));
    }
    /// Runs ends until one succeeds or none is wanted.
    fn run_ends(&self) {
        loop {
            let running = |ending: &Ending| (ending.request, ending.given_up.clone());
            let Some((request, given_up)) = self.persist.end.state.lock().running.as_ref().map(running)
            else {
                return;
            };
            let end = || self.end(request, &given_up, self.host.now());
            let ended = catch_unwind(AssertUnwindSafe(end));
            let ended =
                ended.unwrap_or_else(|_| Err(SaveError::Failed("the save panicked, see the log".into())));
            let mut state = self.persist.end.state.lock();
            let is_given_up = given_up.load(Relaxed);
            let ended = if is_given_up { Err(SaveError::Aborted) } else { ended };
            let waiting = state.running.take().map(|running| running.waiting).unwrap_or_default();
            state.waits_until_us = None;
            match &ended {
                Ok(()) => {
                    state.is_final = true;
                    if self.persist.is_ending() {
                        self.persist.set(ENDED, true);
                    }
                }
                Err(_) => {
                    self.scripts.stopping.store(false, Relaxed);
                    self.persist.in_last_save.store(false, Relaxed);
                    self.persist.set(ENDING, false);
                }
            }
            // Without an end that is given up there is no next one.
            state.running = state.next.take();
            let goes_on = state.running.is_some();
            drop(state);
            if ended.is_err() && !is_given_up {
                self.log_failed_end();
            }
            waiting.into_iter().for_each(|done| done(self, &ended));
            if !goes_on {
                return;
            }
        }
    }
    /// Stops the server after its end.
    pub(crate) fn stop(&self, request: ShutdownRequest) {
        // Stops scripts, because an endless script must not keep the server running.
        self.scripts.stopping.store(true, Relaxed);
        self.host.shutdown(request);
    }
    /// One end, up to the point where the server can stop, or until it is given up.
    fn end(&self, request: ShutdownRequest, given_up: &Arc<AtomicBool>, now: Now) -> Result<(), SaveError> {
        self.check_first_base(request)?;
        self.note_losses(request);
        self.check_file_is_written(request)?;
        let saves = self.saves_at_end(request);
        let awaits_replicas = self.awaits_replicas_at_end(request);
        let until_us = self.host.mono_us() + self.config.number(Opt::ShutdownTimeout) as u64 * 1_000_000;
        self.await_drafts(request, given_up);
        if saves || awaits_replicas {
            self.hold_writes_for_end(request, saves, until_us, given_up)?;
        }
        if awaits_replicas {
            self.persist.end.state.lock().waits_until_us = Some(until_us);
            self.await_replicas(until_us, given_up);
        }
        if given_up.load(Relaxed) {
            return Err(SaveError::Aborted);
        }
        // The append-only file may have been switched on during the wait.
        self.check_first_base(request)?;
        self.persist.in_last_save.store(saves, Relaxed);
        self.cancel_files();
        if !saves {
            return Ok(());
        }
        // The append-only file may have been switched on during the save.
        let saved = self.last_save(given_up, now).map_err(SaveError::Failed);
        let saved = saved.and_then(|()| self.check_first_base(request));
        if request.force { Ok(()) } else { saved }
    }
    /// Lets scripts on a draft come to their end. A script that has run for `busy-reply-threshold` is not waited for.
    fn await_drafts(&self, request: ShutdownRequest, given_up: &AtomicBool) {
        let recent_us = self.busy_threshold_us();
        let goes_on = || !given_up.load(Relaxed) && !request.now && !request.nosave;
        while goes_on() && self.scripts.has_recent_draft(self.host.mono_us(), recent_us) {
            self.host.nap_us(super::RETRY_US);
        }
    }
    /// Makes writes wait, and waits for those that have begun: their clients get replies, so the save and the replicas must
    /// have these writes. An end without a save waits until `until_us` at most.
    fn hold_writes_for_end(
        &self,
        request: ShutdownRequest,
        saves: bool,
        until_us: u64,
        given_up: &AtomicBool,
    ) -> Result<(), SaveError> {
        loop {
            if saves {
                // Writes go on while a script keeps the save from beginning.
                drop(self.announce_for_end(request, given_up)?);
            }
            self.persist.set(ENDING, true);
            let is_busy = || self.long_locks.is_busy(None).is_some();
            let is_late = || !saves && self.host.mono_us() >= until_us;
            let mut says_at_us = self.host.mono_us() + LONG_WAIT_US;
            let goes_on = || {
                if self.host.mono_us() >= says_at_us {
                    says_at_us = u64::MAX;
                    self.host.log(
                        "The shutdown waits for writes that have begun: a script, or MIGRATE to a server that does not answer",
                    );
                }
                !given_up.load(Relaxed) && !is_busy() && !is_late()
            };
            if self.await_begun_writes(goes_on) || !saves {
                return Ok(());
            }
            // A script has begun meanwhile, and is busy now.
            self.persist.set(ENDING, false);
        }
    }
    /// Waits until no long lock is announced, and announces one on all shards. A signal waits for a busy script. A
    /// SHUTDOWN fails, as it does when it meets a busy script at its beginning.
    fn announce_for_end(
        &self,
        request: ShutdownRequest,
        given_up: &AtomicBool,
    ) -> Result<LongLock<'_>, SaveError> {
        self.long_locks.announce_while(None, |busy| {
            if given_up.load(Relaxed) {
                return Err(SaveError::Aborted);
            }
            match busy {
                Some(is_function) if !request.by_signal => {
                    let text = busy_text(is_function);
                    self.host.warn(&format!("Cannot shut down: {text}"));
                    Err(SaveError::Failed(text.into()))
                }
                _ => Ok(()),
            }
        })
    }
    /// SHUTDOWN ABORT. False when no end is in progress.
    pub(crate) fn give_up_end(&self) -> bool {
        let mut state = self.persist.end.state.lock();
        let goes_on = |running: &Ending| !running.given_up.load(Relaxed);
        if state.next.is_none() && !state.running.as_ref().is_some_and(goes_on) {
            return false;
        }
        state.give_up(None);
        drop(state);
        self.host.log("Shutdown manually aborted.");
        true
    }
    /// The milliseconds that the end of the server still waits for replicas at most. `None` without an end that waits.
    pub(crate) fn ends_in_ms(&self, now: Now) -> Option<u64> {
        let until_us = self.persist.end.state.lock().waits_until_us?;
        Some(until_us.saturating_sub(now.mono_us) / 1_000)
    }
    /// Waits until each worker's current turn has ended. A turn that began before [`ENDING`] was set may have admitted a
    /// write that has not run yet. The last save must have this write, because its client gets a reply.
    pub(crate) fn await_turns(&self) {
        // From the end of this nap on, each worker's memory shows a turn that began before the nap.
        self.host.nap_us(super::RETRY_US);
        let turns = self.diag.turn_watch.current();
        for _ in 0..TURN_NAPS_MAX {
            if turns.iter().all(|turn| self.diag.turn_watch.has_ended(*turn)) {
                break;
            }
            self.host.nap_us(super::RETRY_US);
        }
    }
    /// Notes what the options of the end allow to lose.
    fn note_losses(&self, request: ShutdownRequest) {
        self.persist.may_lose_writes.store(request.nosave || request.force, Relaxed);
    }
    /// Cancels what is written in the background.
    fn cancel_files(&self) {
        self.persist.aof.cancel_rewrite();
        self.cancel_running_save();
    }
    fn log_failed_end(&self) {
        self.host.warn("Errors trying to shut down the server. Check the logs for more information.");
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
            return Err(SaveError::Failed("the first base of the append-only file is not complete".into()));
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
        Err(SaveError::Failed(format!(
            "the append-only file lacks the newest writes: {why}. SHUTDOWN FORCE ends the server without them"
        )))
    }
    /// True when a write to the append-only file has failed, and a stop with these options must not lose it.
    fn lacks_writes(&self, request: ShutdownRequest) -> bool {
        !request.nosave && !request.force && self.persist.alerts() & AOF_FAILED != 0
    }
}
