//! A rewrite: a new base with the data of one moment replaces all files from before that moment. BGREWRITEAOF, the
//! growth of the files and CONFIG SET appendonly start a rewrite. The start of the server makes the first base.
//!
//! At that moment, with all shards locked, the journal offset is read. Bytes after the offset go to a new increment.
//! The base is written while clients continue. At the end the manifest lists the base and the new increment. Until
//! then the manifest lists the old files and the new increment, so a crash at any time loses nothing.

use super::load::{FoundAof, write_manifest};
use super::writer::{Writer, new_increment};
use super::{AofMode, Names};
use crate::config::Opt;
use crate::folder::Folder;
use crate::long_locks::LongLock;
use crate::persist::DataError;
use crate::persist::moment::Moment;
use crate::persist::{AOF_FAILED, LOADING};
use crate::{Engine, Now, SaveError, StartError, system_text};
use parking_lot::MutexGuard;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use strand_aof::manifest::{File, Manifest};

/// Seconds until an automatic rewrite is retried after a failure. Each further failure doubles the time.
const RETRY_S: i64 = 5;
const RETRY_DOUBLINGS_MAX: u64 = 7;
/// How many times the writer and all shards are locked without a wait for other long locks. If a long lock is there each
/// time, the writer stays locked during the wait.
const LOCK_TRIES: usize = 100;

const IN_PROGRESS: &str = "ERR Background append only file rewriting already in progress";
const NO_REWRITE: &str =
    "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.";

/// What BGREWRITEAOF has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RewriteStart {
    /// The rewrite runs now.
    Running,
    /// The rewrite starts when the current snapshot is written.
    Scheduled,
}

/// Where the changes from before a rewrite's increment are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PriorChanges {
    /// The changes are in the current files, which stay valid.
    Files,
    /// The changes are in no file: the current files, if any, belong to other data.
    NoFile,
}

impl Engine {
    /// Loads the files that [`Engine::find_aof`] found, and from then on writes every change. Ends LOADING. No other
    /// code may change the data before that.
    ///
    /// # Errors
    /// The reason why the server cannot start.
    pub fn start_aof(self: &Arc<Self>, mut found: FoundAof, now: Now) -> Result<(), StartError> {
        self.load_files(&mut found, now).map_err(StartError::Data)?;
        self.begin_writing(found, now).map_err(StartError::Writing)
    }
    fn begin_writing(self: &Arc<Self>, found: FoundAof, now: Now) -> Result<(), DataError> {
        let changes = self.keyspace.changes();
        self.persist.state.lock().saved_changes = changes;
        let names = Names::of(&self.config);
        let failed = |why| DataError::OpenToWrite { folder: names.folder.clone(), why };
        let is_new = found.manifest.to_load().next().is_none();
        let base_bytes = found.base_bytes;
        if is_new {
            let writer = self.begin_writer(found, names.clone()).map_err(failed)?;
            self.adopt_writer(writer);
            self.rewrite(PriorChanges::NoFile, now).map_err(failed)?;
            self.host.log("Creating AOF base file on server start");
        } else {
            let writer = self.continue_writer(found, names.clone()).map_err(failed)?;
            self.persist.aof.status.lock().rewritten_bytes = base_bytes;
            self.keyspace.switch_journal(true);
            self.adopt_writer(writer);
        }
        self.persist.aof.set_mode(AofMode::On);
        self.update_gates();
        self.spawn_aof_threads()?;
        self.persist.set(LOADING, false);
        Ok(())
    }
    /// A writer for the last increment, or for a new increment when the files have none.
    fn continue_writer(&self, found: FoundAof, names: Names) -> io::Result<Writer> {
        let total_bytes = found.total_bytes();
        let FoundAof { folder, mut manifest, .. } = found;
        let file = match manifest.increments.last() {
            Some(last) => folder.append_to(&last.name)?,
            None => {
                let new = self.new_aof_file(&*folder, &manifest, 0, |seq| names.increment(seq))?;
                let file = new_increment(&*folder, &new)?;
                manifest.increments.push(new);
                write_manifest(&*folder, &manifest, &names)?;
                file
            }
        };
        let name = &manifest.increments.last().expect("there is one").name;
        self.host.log(&format!("Opening AOF incr file {name} on server start"));
        if !manifest.history.is_empty() && self.config.number(Opt::AofDisableAutoGc) == 0 {
            self.drop_history(&*folder, &mut manifest, &names);
        }
        let before_bytes = total_bytes.saturating_sub(file.bytes());
        let offset = self.keyspace.journal().select_again();
        Ok(Writer::new(folder, names, manifest, file, before_bytes, offset))
    }
    /// Removes the obsolete files. A failure leaves them to the next rewrite: a full disk must not keep the server from
    /// starting.
    fn drop_history(&self, folder: &dyn Folder, manifest: &mut Manifest, names: &Names) {
        let kept = Manifest { history: Vec::new(), ..manifest.clone() };
        match write_manifest(folder, &kept, names) {
            Ok(()) => {
                self.remove(folder, &manifest.removable());
                *manifest = kept;
            }
            Err(why) => {
                self.host
                    .warn(&format!("cannot remove old files of the append-only file: {}", system_text(&why)));
            }
        }
    }
    /// A writer for data that no file has. Its increment enters the manifest together with the first base.
    fn begin_writer(&self, found: FoundAof, names: Names) -> io::Result<Writer> {
        let FoundAof { folder, mut manifest, .. } = found;
        // The existing files belong to other data. They are removed when the new base is complete.
        let base_seq = manifest.base_seq();
        let last = manifest.increment_seq();
        let new = self.new_aof_file(&*folder, &manifest, last, |seq| names.increment(seq))?;
        let old = manifest.base.take().into_iter().chain(manifest.increments.drain(..));
        let old: Vec<File> = old.chain(manifest.history.drain(..)).collect();
        let file = new_increment(&*folder, &new)?;
        let manifest = Manifest { base: None, increments: vec![new], history: old };
        let mut writer =
            Writer::new(folder, names, manifest, file, 0, self.keyspace.journal().select_again());
        writer.set_base_seq(base_seq);
        Ok(writer)
    }
    fn adopt_writer(&self, writer: Writer) {
        let mut status = self.persist.aof.status.lock();
        (status.bytes, status.written) = (writer.bytes(), writer.written());
        status.dir = self.config.dir();
        drop(status);
        self.persist.aof.syncs.begin_at(writer.written());
        *self.persist.aof.writer.lock() = Some(writer);
    }
    fn spawn_aof_threads(self: &Arc<Self>) -> Result<(), DataError> {
        let start_number = self.persist.aof.starts.fetch_add(1, AcqRel) + 1;
        let (writes, syncs) = (self.clone(), self.clone());
        let writer = self.host.spawn("aof", Box::new(move || writes.run_aof_thread(start_number)));
        let spawned = writer.and_then(|()| {
            self.host.spawn("aof-sync", Box::new(move || syncs.run_sync_thread(start_number)))
        });
        spawned.map_err(DataError::System)
    }
    /// Call this when `appendfsync` or `appendonly` has changed.
    pub(crate) fn update_gates(&self) {
        let aof = &self.persist.aof;
        match aof.mode() {
            AofMode::Off => aof.gates.close(),
            AofMode::Starting => aof.gates.begin(),
            AofMode::On => aof.gates.open(self.always_syncs()),
        }
    }
    /// BGREWRITEAOF.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn bgrewriteaof(self: &Arc<Self>, now: Now) -> Result<RewriteStart, &'static str> {
        if self.persist.aof.is_rewriting() {
            return Err(IN_PROGRESS);
        }
        if self.is_saving() {
            self.schedule_bgrewriteaof();
            return Ok(RewriteStart::Scheduled);
        }
        self.spawn_rewrite(now)
    }
    /// Schedules BGREWRITEAOF for the next tick at which nothing prevents it.
    pub(crate) fn schedule_bgrewriteaof(&self) {
        let mut status = self.persist.aof.status.lock();
        (status.scheduled, status.failures) = (true, 0);
    }
    fn spawn_rewrite(self: &Arc<Self>, now: Now) -> Result<RewriteStart, &'static str> {
        let aof = &self.persist.aof;
        {
            let mut status = aof.status.lock();
            if status.rewriting.is_some() {
                return Err(IN_PROGRESS);
            }
            (status.rewriting, status.scheduled, status.last_try_s) = (Some(now), false, now.unix_s());
            status.rewrites += 1;
            aof.keys_done.store(0, Relaxed);
            aof.keys_total.store(self.keyspace.records(), Relaxed);
            aof.cancel.store(false, Relaxed);
        }
        let engine = self.clone();
        let work = Box::new(move || engine.rewrite_in_background(now));
        self.host.spawn("aof-rewrite", work).map(|()| RewriteStart::Running).map_err(|why| {
            self.host.warn(&format!("Can't rewrite append only file in background: {}", system_text(&why)));
            self.finish_rewrite(now, Err(why));
            NO_REWRITE
        })
    }
    fn rewrite_in_background(&self, now: Now) {
        let prior = match self.persist.aof.mode() {
            AofMode::On => PriorChanges::Files,
            AofMode::Starting => PriorChanges::NoFile,
            AofMode::Off => return self.rewrite_without_aof(now),
        };
        let done = catch_unwind(AssertUnwindSafe(|| self.rewrite(prior, now)));
        let done = done.unwrap_or_else(|_| Err(io::Error::other("the rewrite panicked, see the log")));
        self.finish_rewrite(now, done);
    }
    /// BGREWRITEAOF without an append-only file. As in redis-server it writes a base, for a later start with an
    /// append-only file.
    fn rewrite_without_aof(&self, now: Now) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let found = self.open_aof_folder().map_err(io::Error::other)?;
            let names = Names::of(&self.config);
            let moment = {
                let _long_lock = self.announce_until_cancelled(&self.persist.aof.cancel)?;
                self.take_moment(&mut self.keyspace.lock_all(0))
            };
            let FoundAof { folder, manifest: old, .. } = found;
            let is_rdb = self.is_base_rdb();
            let base = self.new_aof_file(&*folder, &old, old.base_seq(), |seq| names.base(seq, is_rdb))?;
            self.write_base(&*folder, &base.name, is_rdb, moment, now)?;
            let history = old.base.into_iter().chain(old.increments).chain(old.history).collect();
            let mut manifest = Manifest { base: Some(base), increments: Vec::new(), history };
            write_manifest(&*folder, &manifest, &names)?;
            if self.config.number(Opt::AofDisableAutoGc) != 0 {
                return Ok(());
            }
            self.remove(&*folder, &manifest.removable());
            manifest.history.clear();
            write_manifest(&*folder, &manifest, &names)
        }));
        self.finish_rewrite(
            now,
            done.unwrap_or_else(|_| Err(io::Error::other("the rewrite panicked, see the log"))),
        );
    }
    fn finish_rewrite(&self, began: Now, done: io::Result<()>) {
        let now = self.host.now();
        let aof = &self.persist.aof;
        let mut status = aof.status.lock();
        status.rewriting = None;
        status.last_rewrite_s = now.unix_s() - began.unix_s();
        match done {
            Ok(()) => {
                (status.last_rewrite_ok, status.failures) = (true, 0);
                self.host.log("Background AOF rewrite finished successfully");
                // A sync that failed after the moment of the base stays failed. Another rewrite is scheduled.
                if status.has_failed_sync && status.covered_syncs == status.failed_syncs {
                    (status.has_failed_sync, status.write_error) = (false, None);
                    self.persist.set(AOF_FAILED, false);
                }
            }
            Err(_) if aof.cancel.load(Relaxed) => self.host.log("Background AOF rewrite cancelled"),
            Err(e) => {
                (status.last_rewrite_ok, status.failures) = (false, status.failures + 1);
                self.host.warn(&format!("Background AOF rewrite failed: {}", system_text(&e)));
            }
        }
    }

    /// Announces a long lock on all shards for a save or a rewrite.
    ///
    /// # Errors
    /// The save or rewrite was cancelled while another long lock lasted.
    pub(in crate::persist) fn announce_until_cancelled(
        &self,
        cancel: &AtomicBool,
    ) -> io::Result<LongLock<'_>> {
        self.long_locks.announce_while(None, until_cancelled(cancel))
    }
    /// Locks the writer, and then announces a long lock on all shards. `check` is [`LongLocks::announce_while`]'s.
    /// While another long lock lasts, the writer is not locked, so that the file still gets all changes.
    ///
    /// # Errors
    /// The error of `check`.
    ///
    /// [`LongLocks::announce_while`]: crate::long_locks::LongLocks::announce_while
    pub(super) fn lock_writer_and_shards<E>(
        &self,
        check: impl Fn(Option<bool>) -> Result<(), E>,
    ) -> Result<(MutexGuard<'_, Option<Writer>>, LongLock<'_>), E> {
        for _ in 0..LOCK_TRIES {
            drop(self.long_locks.announce_while(None, &check)?);
            let guard = self.persist.aof.writer.lock();
            if let Some(long_lock) = self.long_locks.try_announce(None) {
                return Ok((guard, long_lock));
            }
        }
        let guard = self.persist.aof.writer.lock();
        let long_lock = self.long_locks.announce_while(None, check)?;
        Ok((guard, long_lock))
    }
    /// Writes a base and updates the manifest. May block.
    fn rewrite(&self, prior: PriorChanges, now: Now) -> io::Result<()> {
        let (aof, is_rdb) = (&self.persist.aof, self.is_base_rdb());
        if prior == PriorChanges::Files {
            self.sync_ahead()?;
        }
        let (moment, folder, base, replaced) = {
            let (mut guard, long_lock) = self.lock_writer_and_shards(until_cancelled(&aof.cancel))?;
            let writer = guard.as_mut().ok_or_else(|| io::Error::other("there is no append-only file"))?;
            let moment = {
                let _long_lock = long_lock;
                if !self.keyspace.journal().is_on() {
                    self.keyspace.switch_journal(true);
                }
                self.take_moment(&mut self.keyspace.lock_all(0))
            };
            let (offset, base) = (moment.offset, writer.next_base(self, is_rdb)?);
            match prior {
                PriorChanges::Files => writer.rotate(self, offset, self.host.now(), &base)?,
                // The base also contains what is in the file now.
                PriorChanges::NoFile => writer.restart(self, offset, self.host.now())?,
            }
            let mut status = aof.status.lock();
            status.covered_syncs = status.failed_syncs;
            drop(status);
            (moment, writer.folder.clone(), base, aof.replaced.load(Acquire))
        };
        self.write_base(&*folder, &base.name, is_rdb, moment, now)?;
        let base_bytes = folder.open(&base.name)?.map_or(0, |(_, bytes)| bytes);
        let mut guard = aof.writer.lock();
        let Some(writer) = guard.as_mut() else {
            // The append-only file was switched off meanwhile.
            return folder
                .remove(&base.name)
                .and(Err(io::Error::other("the append-only file was switched off")));
        };
        let history = writer.adopt_base(self, base, base_bytes)?;
        aof.covered.store(replaced, Release);
        if prior == PriorChanges::NoFile {
            // The files are complete. CONFIG SET appendonly takes the writer under the same lock.
            aof.set_mode(AofMode::On);
            self.update_gates();
        }
        let bytes = writer.bytes();
        drop(guard);
        let mut status = aof.status.lock();
        (status.bytes, status.rewritten_bytes) = (bytes, bytes);
        drop(status);
        if self.config.number(Opt::AofDisableAutoGc) == 0 {
            self.remove(&*folder, &history);
            let mut guard = aof.writer.lock();
            if let Some(writer) = guard.as_mut() {
                writer.forget_history(self)?;
            }
        }
        Ok(())
    }
    /// Syncs the file while other threads write to it, so that the sync at the moment of the base is short.
    fn sync_ahead(&self) -> io::Result<()> {
        let aof = &self.persist.aof;
        let order = {
            let mut guard = aof.writer.lock();
            let writer = guard.as_mut().ok_or_else(|| io::Error::other("there is no append-only file"))?;
            writer.write_and_order(self, self.host.now())?
        };
        aof.syncs.sync_now(order, |e| self.sync_failed(e))
    }
    /// True when a new base is an RDB file. False: the base has commands.
    fn is_base_rdb(&self) -> bool {
        self.config.number(Opt::AofUseRdbPreamble) != 0
    }
    /// Writes the base file `name`: an RDB file if `is_rdb` is true, otherwise commands.
    fn write_base(
        &self,
        folder: &dyn Folder,
        name: &str,
        is_rdb: bool,
        moment: Moment<'_>,
        now: Now,
    ) -> io::Result<()> {
        let Moment { snapshot, definitions, .. } = moment;
        let in_parts = self.config.number(Opt::AofRewriteIncrementalFsync) != 0;
        let load = snapshot.load().clone();
        let mut snapshot = Some(snapshot);
        folder.replace(name, in_parts, &mut |out| {
            let snapshot =
                snapshot.take().ok_or_else(|| io::Error::other("the snapshot is already written"))?;
            let delay_or_cancel = self.delay_or_cancel(&self.persist.aof.cancel);
            let report_progress = |keys| {
                self.persist.aof.keys_done.store(keys, Relaxed);
                delay_or_cancel(keys)
            };
            self.write_base_file(is_rdb, snapshot, &definitions, now, &report_progress, out)
        })?;
        folder.sync()?;
        self.persist.aof.status.lock().last_kept_bytes = load.peak_bytes();
        Ok(())
    }
    fn remove(&self, folder: &dyn Folder, files: &[File]) {
        for file in files {
            if let Err(e) = folder.remove(&file.name) {
                self.host.warn(&format!("cannot remove the old file {}: {e}", file.name));
            }
        }
    }

    /// Starts a rewrite when one is scheduled or the files have grown. Called with every tick.
    pub(crate) fn check_aof_growth(self: &Arc<Self>, now: Now) {
        let aof = &self.persist.aof;
        if aof.mode() == AofMode::Off && !aof.status.lock().scheduled
            || self.is_saving()
            || self.persist.is_loading()
        {
            return;
        }
        let (percentage, min_bytes) = (
            self.config.number(Opt::AutoAofRewritePercentage) as u64,
            self.config.number(Opt::AutoAofRewriteMinSize) as u64,
        );
        let status = aof.status.lock();
        let wait_s = match status.failures {
            0 => 0,
            n => RETRY_S << (n - 1).min(RETRY_DOUBLINGS_MAX),
        };
        // A clock that was set back ends the wait.
        let is_early = (0..wait_s).contains(&(now.unix_s() - status.last_try_s));
        if status.rewriting.is_some() || is_early {
            return;
        }
        let base = status.rewritten_bytes.max(1);
        let growth = (status.bytes * 100 / base).saturating_sub(100);
        let has_grown =
            aof.mode() == AofMode::On && percentage > 0 && status.bytes > min_bytes && growth >= percentage;
        // After a failed sync only a new base lets writes go on. So the rewrite is retried until one succeeds.
        let is_wanted = status.scheduled || status.has_failed_sync || aof.mode() == AofMode::Starting;
        if !is_wanted && !has_grown {
            return;
        }
        let base_bytes = status.rewritten_bytes;
        let may_wait = has_grown && !is_wanted;
        drop(status);
        if may_wait && let Err(why) = self.check_disk_room(base_bytes) {
            // The last free blocks of the disk are left to the append-only file. A later tick checks again, as after a
            // failure.
            let mut status = aof.status.lock();
            (status.last_rewrite_ok, status.failures) = (false, status.failures + 1);
            status.last_try_s = now.unix_s();
            drop(status);
            return self.host.warn(&format!("Can't rewrite append only file in background: {why}"));
        }
        if has_grown {
            self.host.log(&format!("Starting automatic rewriting of AOF on {growth}% growth"));
        }
        // Another rewrite may have started meanwhile.
        let _ = self.spawn_rewrite(now);
    }
    /// CONFIG SET appendonly. May block.
    ///
    /// # Errors
    /// Why the setting stays unchanged.
    pub(crate) fn switch_aof(self: &Arc<Self>, on: bool, now: Now) -> Result<(), DataError> {
        let aof = &self.persist.aof;
        let _switching = aof.switching.lock();
        match (aof.mode(), on) {
            (AofMode::Off, true) => {
                self.await_rewrite();
                let found = self.open_aof_folder()?;
                let names = Names::of(&self.config);
                let writer = self.begin_writer(found, names).map_err(DataError::System)?;
                self.adopt_writer(writer);
                aof.set_mode(AofMode::Starting);
                self.update_gates();
                self.spawn_aof_threads()?;
                // Failures of earlier rewrites do not delay the first base.
                self.schedule_bgrewriteaof();
                self.check_aof_growth(now);
                Ok(())
            }
            (AofMode::Starting | AofMode::On, false) => {
                self.write_aof(true);
                let check = |busy: Option<bool>| busy.map_or(Ok(()), |_| Err(DataError::Busy));
                let (mut guard, long_lock) = self.lock_writer_and_shards(check)?;
                let writer = guard.take();
                aof.set_mode(AofMode::Off);
                aof.cancel.store(true, Relaxed);
                if !self.replication.needs_journal() {
                    self.keyspace.switch_journal(false);
                }
                if let Some(writer) = writer {
                    // Drop changes that were made after the writer's last turn, because no file needs them. Nobody else may
                    // take the journal meanwhile.
                    writer.end(self);
                }
                drop((guard, long_lock));
                self.update_gates();
                // A running rewrite also holds the folder, so wait for its end.
                self.await_rewrite();
                let mut status = aof.status.lock();
                (status.write_error, status.has_failed_sync, status.scheduled) = (None, false, false);
                self.persist.set(AOF_FAILED, false);
                Ok(())
            }
            _ => Ok(()),
        }
    }
    /// Waits for the end of a running or cancelled rewrite.
    pub(crate) fn await_rewrite(&self) {
        while self.persist.aof.is_rewriting() {
            self.host.nap_us(crate::persist::RETRY_US);
        }
    }
    /// Writes and syncs the file at the end of the server. May block.
    ///
    /// # Errors
    /// The disk did not take all of it, and the options of the stop do not allow this. The log says how much is missing.
    pub fn end_aof(&self) -> Result<(), SaveError> {
        let aof = &self.persist.aof;
        aof.cancel.store(true, Relaxed);
        if aof.mode() == AofMode::Off {
            return Ok(());
        }
        self.host.log("Calling fsync() on the AOF file.");
        self.write_aof(true);
        if self.persist.alerts() & AOF_FAILED == 0 {
            return Ok(());
        }
        let bytes = aof.pending_bytes(self.keyspace.journal().tail());
        let text = format!("the append-only file lacks the last {bytes} bytes of writes: {}", aof.failure());
        self.host.warn(&format!("Stopped, but {text}"));
        if self.persist.may_lose_writes.load(Relaxed) { Ok(()) } else { Err(SaveError::Failed(text)) }
    }
}

/// The check of a wait for long locks that a save or a rewrite makes: it fails after a cancel.
fn until_cancelled(cancel: &AtomicBool) -> impl Fn(Option<bool>) -> io::Result<()> {
    |_| match cancel.load(Relaxed) {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    }
}
