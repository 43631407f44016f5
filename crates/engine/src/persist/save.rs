//! Writes snapshots. Each complete snapshot file replaces the former one.

use super::moment::Moment;
use super::{ENDING, Running};
use crate::config::Opt;
use crate::following::Position;
use crate::session::REDIS_VERSION;
use crate::{Engine, Now, system_text};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_commands::serial::file::{Saving, save};

/// Seconds until an automatic save is retried after a failure.
const RETRY_S: i64 = 5;
/// A save that `rdb-key-save-delay` delays notices a cancel after this time.
const DELAY_NAP_US_MAX: u64 = 10_000;
/// Maximum number of tries of the last save. A command that began before the save may write after the moment of the
/// snapshot. Then the save is repeated.
const FINAL_TRIES_MAX: usize = 10;

const IN_PROGRESS: &str = "ERR Background save already in progress";
/// The reply to a failed save. The log has the reason.
const NO_SAVE: &str = "ERR";

/// How a save ended.
enum SaveOutcome {
    Done {
        keys: u64,
        /// The length of the written file, in bytes.
        bytes: u64,
        /// [`strand_keyspace::Keyspace::changes`] at the moment of the snapshot.
        changes: u64,
    },
    Cancelled,
    Failed(String),
}

/// The auxiliary fields of a file.
pub(crate) fn aux_fields(engine: &Engine, began: Now, is_aof_base: bool) -> [(&'static str, String); 5] {
    [
        ("redis-ver", REDIS_VERSION.to_string()),
        ("redis-bits", usize::BITS.to_string()),
        ("ctime", began.unix_s().to_string()),
        ("used-mem", engine.host.used_bytes().to_string()),
        ("aof-base", u8::from(is_aof_base).to_string()),
    ]
}

impl SaveOutcome {
    fn reply(&self) -> Result<(), &'static str> {
        match self {
            SaveOutcome::Done { .. } => Ok(()),
            SaveOutcome::Cancelled | SaveOutcome::Failed(_) => Err(NO_SAVE),
        }
    }
}

/// A writer that counts the bytes written through it.
struct CountingWriter<'w> {
    out: &'w mut dyn io::Write,
    bytes: u64,
}

impl io::Write for CountingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// How all shards are locked at the moment of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SnapshotLock {
    /// The save announces a long lock.
    Announced,
    /// The caller has announced a longer long lock.
    Held,
}

impl Engine {
    /// SAVE. Runs on a helper thread and returns when the snapshot is on the disk.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn save(&self, now: Now) -> Result<(), &'static str> {
        let running = self.begin_save(false, Arc::default(), now).ok_or(IN_PROGRESS)?;
        self.persist.state.lock().saves += 1;
        self.run_save(running, SnapshotLock::Announced, now).reply()
    }
    /// Does what [`Engine::save`] does, for a caller with a long lock on all shards.
    pub(super) fn save_under_lock(&self, now: Now) -> Result<(), &'static str> {
        let running = self.begin_save(false, Arc::default(), now).ok_or(IN_PROGRESS)?;
        self.run_save(running, SnapshotLock::Held, now).reply()
    }
    /// BGSAVE. Returns when the save has begun.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn bgsave(self: &Arc<Self>, now: Now) -> Result<(), &'static str> {
        let running = self.begin_save(true, Arc::default(), now).ok_or(IN_PROGRESS)?;
        self.persist.state.lock().saves += 1;
        let engine = self.clone();
        let work = Box::new(move || drop(engine.run_save(running, SnapshotLock::Announced, now)));
        if let Err(why) = self.host.spawn("bgsave", work) {
            let why = system_text(&why);
            self.host.warn(&format!("Can't save in background: {why}"));
            self.record_save_outcome(now, true, &SaveOutcome::Failed(why));
            return Err(NO_SAVE);
        }
        Ok(())
    }
    /// Schedules BGSAVE for the next tick without a running save.
    pub(crate) fn schedule_bgsave(&self) {
        self.persist.state.lock().scheduled = true;
    }
    /// BGSAVE CANCEL.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn cancel_bgsave(&self) -> Result<&'static str, &'static str> {
        let mut state = self.persist.state.lock();
        if let Some(running) = state.running.as_ref().filter(|running| running.background) {
            running.cancel.store(true, Relaxed);
            return Ok("Background saving cancelled");
        }
        match std::mem::take(&mut state.scheduled) {
            true => Ok("Scheduled background saving cancelled"),
            false => Err("ERR Background saving is currently not in progress or scheduled"),
        }
    }
    /// Starts a background save when one is scheduled or a `save` point is reached. Called with every tick.
    pub(crate) fn check_save_points(self: &Arc<Self>, now: Now) {
        if self.persist.alerts() & (super::LOADING | ENDING) != 0 {
            return;
        }
        let points = self.config.save_points();
        let mut state = self.persist.state.lock();
        let may_try = state.last_ok || now.unix_s() - state.last_try_s > RETRY_S;
        if state.running.is_some()
            || self.persist.aof.is_rewriting()
            || !may_try
            || (points.is_empty() && !state.scheduled)
        {
            return;
        }
        let changes = self.keyspace.changes().saturating_sub(state.saved_changes);
        let age_s = now.unix_s() - state.last_save_s;
        let due = points.iter().find(|(seconds, least)| changes >= *least && age_s > *seconds);
        if !std::mem::take(&mut state.scheduled) && due.is_none() {
            return;
        }
        drop(state);
        if let Some((seconds, least)) = due {
            self.host.log(&format!("{least} changes in {seconds} seconds. Saving..."));
        }
        // Another save may have started meanwhile.
        let _ = self.bgsave(now);
    }
    /// True while a snapshot is written.
    pub fn is_saving(&self) -> bool {
        self.persist.state.lock().running.is_some()
    }
    /// True while a snapshot or a base of the append-only file is written.
    pub fn is_saving_or_rewriting(&self) -> bool {
        self.is_saving() || self.persist.aof.is_rewriting()
    }
    /// True while a snapshot is written in the background.
    pub(super) fn is_saving_in_background(&self) -> bool {
        self.persist.state.lock().running.as_ref().is_some_and(|running| running.background)
    }
    /// Writes the last snapshot before the server ends, until `given_up` is set.
    ///
    /// # Errors
    /// The save failed.
    pub(super) fn last_save(&self, given_up: &Arc<AtomicBool>, now: Now) -> Result<(), String> {
        self.host.log("Saving the final RDB snapshot before exiting.");
        let mut is_saved = false;
        for _ in 0..FINAL_TRIES_MAX {
            let running = loop {
                if given_up.load(Relaxed) {
                    return Ok(());
                }
                if let Some(running) = self.begin_save(false, given_up.clone(), now) {
                    break running;
                }
                // A client may have begun a save meanwhile. A cancelled save ends after its current slice.
                self.cancel_running_save();
                self.host.nap_us(super::RETRY_US);
            };
            match self.run_save(running, SnapshotLock::Announced, now) {
                // The file of a replica has its position in the primary's stream, which goes on.
                SaveOutcome::Done { changes, .. }
                    if changes == self.keyspace.changes() || self.following.is_on() =>
                {
                    return Ok(());
                }
                SaveOutcome::Done { .. } => is_saved = true,
                SaveOutcome::Cancelled => {}
                SaveOutcome::Failed(why) => return Err(why),
            }
        }
        if is_saved { Ok(()) } else { Err("the save before the exit was cancelled too many times".into()) }
    }

    /// Cancels the save that runs, if one does. The save ends after its current slice.
    pub(super) fn cancel_running_save(&self) {
        if let Some(running) = &self.persist.state.lock().running {
            running.cancel.store(true, Relaxed);
        }
    }
    /// Registers a save, which ends when `cancel` is set. `None` when another save is running.
    fn begin_save(&self, background: bool, cancel: Arc<AtomicBool>, now: Now) -> Option<Running> {
        let mut state = self.persist.state.lock();
        if state.running.is_some() {
            return None;
        }
        let keys_total = self.keyspace.records();
        let running =
            Running { background, began: now, keys_done: Arc::default(), keys_total, cancel, load: None };
        state.running = Some(running.clone());
        if background {
            (state.last_try_s, state.scheduled) = (now.unix_s(), false);
        }
        Some(running)
    }
    /// Writes the snapshot.
    fn run_save(&self, running: Running, lock: SnapshotLock, now: Now) -> SaveOutcome {
        let name = self.config.dbfilename();
        let ended = match name.is_empty() {
            // As in redis-server, saving to an empty name fails.
            true => SaveOutcome::Failed("dbfilename is empty".into()),
            false => {
                if running.background
                    && let Err(error) = self.check_disk_room(self.persist.snapshot_bytes())
                {
                    // The last free blocks of the disk are left to the append-only file.
                    return self.finish_save(&name, SaveOutcome::Failed(error.to_string()), &running, now);
                }
                let write = || self.write_snapshot(&name, &running, lock);
                catch_unwind(AssertUnwindSafe(write))
                    .unwrap_or_else(|_| SaveOutcome::Failed("the save panicked, see the log".into()))
            }
        };
        self.finish_save(&name, ended, &running, now)
    }
    fn finish_save(&self, name: &str, ended: SaveOutcome, running: &Running, now: Now) -> SaveOutcome {
        let text = match (&ended, running.background) {
            (SaveOutcome::Done { keys, .. }, true) => {
                format!("Background saving terminated with success: {keys} keys in {name}")
            }
            (SaveOutcome::Done { keys, .. }, false) => format!("DB saved on disk: {keys} keys in {name}"),
            (SaveOutcome::Cancelled, _) => "Background saving cancelled".into(),
            (SaveOutcome::Failed(why), true) => format!("Background saving error: {name}: {why}"),
            (SaveOutcome::Failed(why), false) => format!("Error saving the DB: {name}: {why}"),
        };
        match ended {
            SaveOutcome::Failed(_) => self.host.warn(&text),
            _ => self.host.log(&text),
        }
        let took_us = self.host.mono_us().saturating_sub(now.mono_us);
        let end = Now { unix_us: now.unix_us + took_us as i64, mono_us: now.mono_us + took_us };
        self.record_save_outcome(end, running.background, &ended);
        ended
    }
    fn write_snapshot(&self, name: &str, running: &Running, lock: SnapshotLock) -> SaveOutcome {
        let config = &self.config;
        let flag = |option| config.number(option) != 0;
        let (mut keys, mut bytes, mut changes) = (0, 0, 0);
        let wrote = self.host.replace_file(name, flag(Opt::RdbSaveIncrementalFsync), &mut |out| {
            let (moment, position) = match lock {
                SnapshotLock::Announced => {
                    self.take_moment_of_stream(|| self.announce_until_cancelled(&running.cancel))?
                }
                // The caller holds the shards, for which a command of the primary's stream may wait.
                SnapshotLock::Held => (self.take_moment(&mut self.keyspace.lock_all(0)), Position::default()),
            };
            let Moment { snapshot, definitions, .. } = moment;
            changes = snapshot.changes();
            if let Some(running) = &mut self.persist.state.lock().running {
                running.load = Some(snapshot.load().clone());
            }
            // What changed after the snapshot counts as a change for the next save.
            let mut aux = aux_fields(self, running.began, false).to_vec();
            aux.extend(position.aux_fields());
            let saving = Saving {
                aux: &aux,
                commands: &definitions.encoded_commands(),
                functions: &definitions.libraries(),
                compress: flag(Opt::RdbCompression),
                checksum: flag(Opt::RdbChecksum),
                lru: config.choice(Opt::MaxMemoryPolicy).ends_with("-lru"),
                // Replicas that continue the stream have keys that have expired, until the stream removes them. DEBUG RELOAD
                // on a replica continues the stream, too, although the file has no position.
                expiry_ms: match position.is_known() || self.following.is_on() {
                    true => i64::MIN,
                    false => running.began.unix_ms(),
                },
                clock_ms: &|| self.host.now().unix_ms(),
                pause: &|| self.host.yield_now(),
                progress: &self.save_progress(running),
            };
            let mut out = CountingWriter { out, bytes: 0 };
            keys = save(Some(snapshot), &saving, &mut out)?;
            bytes = out.bytes;
            Ok(())
        });
        match wrote {
            Ok(()) => SaveOutcome::Done { keys, bytes, changes },
            Err(_) if running.cancel.load(Relaxed) => SaveOutcome::Cancelled,
            Err(why) => SaveOutcome::Failed(system_text(&why)),
        }
    }
    /// Counts keys, waits for `rdb-key-save-delay`, and stops a cancelled save.
    fn save_progress(&self, running: &Running) -> impl Fn(u64) -> io::Result<()> {
        let delay = self.delay_or_cancel(&running.cancel);
        move |keys| {
            running.keys_done.store(keys, Relaxed);
            delay(keys)
        }
    }
    /// Returns a function that takes the number of keys so far. The function waits for `rdb-key-save-delay`, and
    /// fails after a cancel.
    pub(crate) fn delay_or_cancel(&self, cancel: &AtomicBool) -> impl Fn(u64) -> io::Result<()> {
        let previous_keys = Cell::new(0);
        move |keys| {
            let delay_us = self.config.number(Opt::RdbKeySaveDelay).max(0) as u64;
            let mut left_us = delay_us.saturating_mul(keys - previous_keys.replace(keys));
            while left_us > 0 && !cancel.load(Relaxed) {
                let nap_us = left_us.min(DELAY_NAP_US_MAX);
                self.host.nap_us(nap_us);
                left_us -= nap_us;
            }
            match cancel.load(Relaxed) {
                true => Err(io::ErrorKind::Interrupted.into()),
                false => Ok(()),
            }
        }
    }
    fn record_save_outcome(&self, now: Now, background: bool, outcome: &SaveOutcome) {
        let mut state = self.persist.state.lock();
        let Some(running) = state.running.take() else { return };
        state.last_kept_bytes = running.load.map_or(0, |load| load.peak_bytes());
        if background {
            state.last_duration_s = now.unix_s() - running.began.unix_s();
        }
        match outcome {
            SaveOutcome::Done { changes, bytes, .. } => {
                state.last_bytes = *bytes;
                (state.saved_changes, state.last_save_s, state.last_ok) = (*changes, now.unix_s(), true);
            }
            SaveOutcome::Failed(_) if background => state.last_ok = false,
            SaveOutcome::Failed(_) | SaveOutcome::Cancelled => {}
        }
        drop(state);
        self.update_save_alerts();
    }
}
