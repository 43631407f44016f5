//! [`Writer`]: writes new bytes of the journal to the append-only file, and syncs the file as `appendfsync` says.
//!
//! One thread calls [`Engine::write_aof`] in turns. A turn takes all new bytes and writes them at once. With `always`
//! it then syncs once for all waiting clients. With `everysec` it orders a sync, and later turns write during the
//! sync. Bytes that could not be written are kept and retried; meanwhile commands that write are refused. After a
//! failed sync the state of the disk is unknown. With `always` the server then ends. Otherwise writes are refused
//! until a new base is complete.

use super::Names;
use super::syncs::{Order, Syncs};
use crate::config::Opt;
use crate::folder::{AppendFile, Folder};
use crate::persist::AOF_FAILED;
use crate::system_text;
use crate::timing::Event;
use crate::{Engine, Now};
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use strand_aof::manifest::{File, Manifest};
use strand_chain::Chain;
use strand_keyspace::journal::TakenBytes;

/// Time between two turns when no client waits for the disk.
const TURN_EVERY_US: u64 = 20_000;
/// With `always`, waiting clients wake the thread. The thread also checks by itself at this interval.
const CHECK_EVERY_US: u64 = 200_000;
/// Time between two syncs with `everysec`.
const SYNC_EVERY_US: u64 = 1_000_000;
/// Time until a failed write is retried.
const RETRY_US: u64 = 1_000_000;
/// Time between two log lines about a write that keeps failing.
const LOGGED_EVERY_US: u64 = 30_000_000;
/// Maximum number of pieces of one write.
const SLICES_MAX: usize = 256;
/// Maximum number of bytes of one write.
const WRITE_BYTES_MAX: usize = 8 << 20;

/// The writer of the last increment of the append-only file.
pub(super) struct Writer {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) names: Names,
    /// The manifest on the disk. Without a base: the manifest to write once the base is complete.
    manifest: Manifest,
    /// The number after which the next base gets its number.
    base_seq: u64,
    /// The file of the base that the last rewrite has tried to write.
    tried_base: Option<File>,
    file: Box<dyn AppendFile>,
    /// Length of the whole commands in the file.
    good_bytes: u64,
    /// Number of bytes of the files before the one that is written.
    before_bytes: u64,
    /// Bytes taken from the journal that are not in the file yet.
    pending: Chain,
    /// Journal offsets: the end of the taken bytes, and the end of the bytes in the file. [`Syncs`] has the offset of
    /// the synced bytes.
    taken: u64,
    written: u64,
    /// Ranges of the journal that only replicas get, up to `taken`. Ranges before `written` may be missing.
    skipped: Vec<Range<u64>>,
    /// When the last sync was ordered or made.
    last_sync_us: u64,
    /// The time at which a failed write is retried.
    retry_us: Option<u64>,
    logged_us: Option<u64>,
    /// The second in the file's last timestamp line.
    timestamp_s: i64,
}

impl Writer {
    /// A writer that appends to `file`. Everything before `offset` of the journal is in this file or in earlier
    /// files.
    pub(super) fn new(
        folder: Arc<dyn Folder>,
        names: Names,
        manifest: Manifest,
        file: Box<dyn AppendFile>,
        before_bytes: u64,
        offset: u64,
    ) -> Writer {
        Writer {
            folder,
            names,
            base_seq: manifest.base_seq(),
            tried_base: None,
            manifest,
            good_bytes: file.bytes(),
            file,
            before_bytes,
            pending: Chain::new(),
            taken: offset,
            written: offset,
            skipped: Vec::new(),
            last_sync_us: 0,
            retry_us: None,
            logged_us: None,
            timestamp_s: 0,
        }
    }
    /// Number of bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.before_bytes + self.good_bytes
    }
    /// The journal offset of the end of the bytes in the file.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
    /// Sets the number of the latest base, also when the base is no longer in the manifest.
    pub(super) fn set_base_seq(&mut self, seq: u64) {
        self.base_seq = seq;
    }
    /// The file of the next base. After a failed rewrite this is the file of that rewrite's base.
    ///
    /// # Errors
    /// Those of [`Engine::new_aof_file`].
    pub(super) fn next_base(&mut self, engine: &Engine, is_rdb: bool) -> io::Result<File> {
        let names = |seq| self.names.base(seq, is_rdb);
        if let Some(again) = self.tried_base.as_ref().filter(|tried| tried.name == names(tried.seq)) {
            return Ok(again.clone());
        }
        let new = engine.new_aof_file(&*self.folder, &self.manifest, self.base_seq, names)?;
        self.tried_base = Some(new.clone());
        Ok(new)
    }
    /// Ends the append-only file and empties the journal.
    pub(super) fn end(mut self, engine: &Engine) {
        let tail = engine.keyspace.journal().tail();
        drop(self.take_until(engine, tail, engine.host.now()));
    }
    /// Takes the new bytes of the journal.
    fn take(&mut self, engine: &Engine, now: Now) {
        let mut new_bytes = Chain::new();
        let TakenBytes { end, for_replicas } = engine.take_journal(&mut new_bytes);
        let start = end - new_bytes.len() as u64;
        let new_bytes = without(new_bytes, start, &for_replicas);
        for range in for_replicas {
            match self.skipped.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.skipped.push(range),
            }
        }
        self.taken = end;
        if new_bytes.is_empty() {
            if self.pending.is_empty() {
                // The file has everything that it gets.
                self.note_written(end);
            }
            return;
        }
        if engine.config.number(Opt::AofTimestampEnabled) != 0 && now.unix_s() > self.timestamp_s {
            self.timestamp_s = now.unix_s();
            self.pending.push_slice(format!("#TS:{}\r\n", self.timestamp_s).as_bytes());
        }
        self.pending.push_chain(new_bytes);
    }
    /// Writes all pending bytes. After an error the file has the whole transactions that fitted into it.
    fn write(&mut self) -> io::Result<()> {
        let mut left = self.pending.share();
        let all = left.len();
        while !left.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = left.io_slices(&mut slices, WRITE_BYTES_MAX);
            let wrote = match self.file.append(&slices[..used]) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                other => other,
            };
            match wrote {
                Ok(wrote) => left.advance(wrote),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    let wrote = all - left.len();
                    let whole = whole_transactions(self.pending.share().split_to(wrote));
                    let is_cut = wrote == whole || self.file.cut(self.good_bytes + whole as u64).is_ok();
                    // A part that cannot be cut off stays, and the rest must follow it.
                    let kept = if is_cut { whole } else { wrote };
                    self.pending.advance(kept);
                    self.good_bytes += kept as u64;
                    // The pending bytes may have lines that are not in the journal, so this is the least.
                    let pending = self.pending.len() as u64 + self.skipped_bytes(self.written..self.taken);
                    self.written = self.written.max(self.taken.saturating_sub(pending));
                    return Err(e);
                }
            }
        }
        self.pending = Chain::new();
        self.good_bytes += all as u64;
        self.note_written(self.taken);
        Ok(())
    }
    /// The file has everything before `offset` of the journal.
    fn note_written(&mut self, offset: u64) {
        self.written = offset;
        self.skipped.retain(|range| range.end > offset);
    }
    /// Number of bytes in this range of the journal that only replicas get.
    fn skipped_bytes(&self, part: Range<u64>) -> u64 {
        let overlap =
            |range: &Range<u64>| range.end.min(part.end).saturating_sub(range.start.max(part.start));
        self.skipped.iter().map(overlap).sum()
    }
    /// The order to sync all bytes that are written.
    fn order(&mut self, now: Now) -> Order {
        self.last_sync_us = now.mono_us;
        Order { file: self.file.sync_file(), offset: self.written }
    }
    /// Writes the pending bytes and returns the order for a sync in the background.
    pub(super) fn write_and_order(&mut self, engine: &Engine, now: Now) -> io::Result<Order> {
        self.take(engine, now);
        self.write()?;
        Ok(self.order(now))
    }
    /// Takes at least all bytes before `offset` of the journal. Returns the bytes that come after `offset`.
    fn take_until(&mut self, engine: &Engine, offset: u64, now: Now) -> Chain {
        while self.taken < offset {
            self.take(engine, now);
            // Other transactions have an offset but have not put their bytes yet. No lock keeps them from putting the
            // bytes.
            engine.host.yield_now();
        }
        let after = self.taken - offset - self.skipped_bytes(offset..self.taken);
        let before = self.pending.len() - after as usize;
        let before = self.pending.split_to(before);
        std::mem::replace(&mut self.pending, before)
    }
    /// Writes all bytes before `offset` of the journal. The caller knows that no bytes follow.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn write_until(&mut self, engine: &Engine, offset: u64, now: Now) -> io::Result<()> {
        let after_offset = self.take_until(engine, offset, now);
        self.pending.push_chain(after_offset);
        self.write()
    }
    /// The manifest, which names the files that make up the data.
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    /// Continues in a new file with the bytes after `offset` of the journal. First the old file gets the bytes before
    /// `offset` and is synced. Afterwards the manifest has both files, and `base`, which is about to be written, as an
    /// obsolete file: if a crash leaves the base without a manifest that loads it, the next start removes the base.
    ///
    /// # Errors
    /// The system's error. The old file stays in use, except when the folder could not be synced.
    pub(super) fn rotate(&mut self, engine: &Engine, offset: u64, now: Now, base: &File) -> io::Result<()> {
        let after_offset = self.take_until(engine, offset, now);
        let taken = std::mem::replace(&mut self.taken, offset);
        let syncs = &engine.persist.aof.syncs;
        let sync = |order| syncs.sync_now(order, |e| engine.sync_failed(e));
        let done =
            self.write().and_then(|()| sync(self.order(now))).and_then(|()| self.next_file(engine, base));
        self.taken = taken;
        self.pending.push_chain(after_offset);
        done
    }
    /// Drops the bytes before `offset` of the journal, because the new base contains them.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn restart(&mut self, engine: &Engine, offset: u64, now: Now) -> io::Result<()> {
        self.file.cut(0)?;
        let after_offset = self.take_until(engine, offset, now);
        (self.pending, self.good_bytes, self.timestamp_s) = (after_offset, 0, 0);
        self.note_written(offset);
        Ok(())
    }
    /// Replaces all files but the last increment with a base. Returns the files that are no longer needed.
    ///
    /// # Errors
    /// The system's error. The manifest stays unchanged and the base is removed, except when the folder could not be
    /// synced. Then the manifest names the base, and the former files stay.
    pub(super) fn adopt_base(
        &mut self,
        engine: &Engine,
        base: File,
        base_bytes: u64,
    ) -> io::Result<Vec<File>> {
        let mut manifest = self.manifest.clone();
        let (name, seq) = (base.name.clone(), base.seq);
        manifest.history.retain(|file| file.name != name);
        let mut history: Vec<File> = manifest.base.replace(base).into_iter().collect();
        let last = manifest.increments.len().saturating_sub(1);
        history.extend(manifest.increments.drain(..last));
        manifest.history.extend(history);
        if let Err(why) = self.replace_manifest(manifest) {
            // No manifest loads the base. When it cannot be removed either, the next base replaces this one.
            let _ = self.folder.remove(&name);
            return Err(why);
        }
        (self.base_seq, self.before_bytes, self.tried_base) = (seq, base_bytes, None);
        self.sync_folder(engine)?;
        Ok(self.manifest.removable())
    }
    /// Clears the history in the manifest, after its files are removed.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn forget_history(&mut self, engine: &Engine) -> io::Result<()> {
        self.replace_manifest(Manifest { history: Vec::new(), ..self.manifest.clone() })?;
        self.sync_folder(engine)
    }
    /// Replaces the manifest. Until [`Writer::sync_folder`] a crash may bring the old manifest back.
    ///
    /// # Errors
    /// The system's error. The manifest stays unchanged.
    fn replace_manifest(&mut self, manifest: Manifest) -> io::Result<()> {
        super::load::replace_manifest(&*self.folder, &manifest, &self.names)?;
        self.manifest = manifest;
        Ok(())
    }
    /// Puts the new manifest on the disk. After a failure a crash may bring the old manifest back, which does not name
    /// the new file. So a failure counts as a failed sync of the file.
    fn sync_folder(&self, engine: &Engine) -> io::Result<()> {
        self.folder.sync().inspect_err(|why| engine.sync_failed(why))
    }
    fn next_file(&mut self, engine: &Engine, base: &File) -> io::Result<()> {
        let (folder, last) = (&*self.folder, self.manifest.increment_seq());
        let new = engine.new_aof_file(folder, &self.manifest, last, |seq| self.names.increment(seq))?;
        let file = new_increment(folder, &new)?;
        let mut manifest = self.manifest.clone();
        manifest.increments.push(new);
        if !manifest.history.contains(base) {
            manifest.history.push(base.clone());
        }
        self.replace_manifest(manifest)?;
        self.before_bytes += self.good_bytes;
        (self.file, self.good_bytes, self.timestamp_s) = (file, 0, 0);
        self.sync_folder(engine)
    }
}

/// The journal's bytes from `start` on, without these ranges.
fn without(mut bytes: Chain, start: u64, ranges: &[Range<u64>]) -> Chain {
    if ranges.is_empty() {
        return bytes;
    }
    let (mut kept, mut at) = (Chain::new(), start);
    for range in ranges {
        kept.push_chain(bytes.split_to((range.start - at) as usize));
        bytes.advance((range.end - range.start) as usize);
        at = range.end;
    }
    kept.push_chain(bytes);
    kept
}

/// Number of bytes of the whole transactions and commands at the start of `bytes`.
fn whole_transactions(bytes: Chain) -> usize {
    strand_aof::check::check(ChainReader(bytes), None).good_bytes as usize
}

/// Reads the bytes of a chain.
struct ChainReader(Chain);

impl io::Read for ChainReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let n = self.0.front().len().min(target.len());
        target[..n].copy_from_slice(&self.0.front()[..n]);
        self.0.advance(n);
        Ok(n)
    }
}

/// Creates the file of a new increment, whose name [`Engine::new_aof_file`] has chosen.
///
/// # Errors
/// The system's error.
pub(super) fn new_increment(folder: &dyn Folder, new: &File) -> io::Result<Box<dyn AppendFile>> {
    folder.remove(&new.name)?;
    folder.append_to(&new.name)
}

impl Engine {
    /// A new file whose number follows `seq`. A file with content in the folder that no manifest names may be data whose
    /// manifest was lost, so its name is not used. An empty file is what a killed server has left.
    ///
    /// # Errors
    /// The system's error, when it does not tell whether a file is there.
    pub(super) fn new_aof_file(
        &self,
        folder: &dyn Folder,
        manifest: &Manifest,
        mut seq: u64,
        names: impl Fn(u64) -> String,
    ) -> io::Result<File> {
        loop {
            let new = manifest.next_file(seq, &names);
            let is_used = folder.open(&new.name)?.is_some_and(|(_, bytes)| bytes > 0);
            if !is_used {
                return Ok(new);
            }
            self.host.warn(&format!(
                "The folder of the append-only file has {}, and no manifest names this file. The file is neither loaded nor \
                 changed. If it is your data, stop the server and restore the manifest; else remove the file",
                new.name
            ));
            seq = new.seq;
        }
    }
    /// Runs `work` while nobody else takes bytes of the journal, under a long lock on all shards. `work` gets true when
    /// there is an append-only file. May block.
    pub(crate) fn while_nobody_takes<R>(&self, work: impl FnOnce(bool) -> R) -> R {
        let locked = self.lock_writer_and_shards(|_| Ok::<(), Infallible>(()));
        let (guard, _long_lock) = locked.unwrap_or_else(|never| match never {});
        work(guard.is_some())
    }
    /// Waits until the call of [`Engine::while_nobody_takes`] that runs now has ended. May block.
    pub(crate) fn await_taker(&self) {
        drop(self.persist.aof.writer.lock());
    }
    /// Takes what the journal has now, for the replicas. The append-only file's writer keeps it for the file. May block.
    pub(crate) fn take_for_replicas(&self) {
        let now = self.host.now();
        match self.persist.aof.writer.lock().as_mut() {
            Some(writer) => writer.take(self, now),
            None => _ = self.take_journal(&mut Chain::new()),
        }
    }
    /// The writing thread: runs turns until the append-only file numbered `start_number` is switched off.
    pub(super) fn run_aof_thread(&self, start_number: u64) {
        while self.persist.aof.is_current_start(start_number) {
            self.write_aof(false);
            match self.persist.aof.gates.is_on() {
                // Clients that arrive during a sync share the next one.
                true => self.persist.aof.gates.sleep(CHECK_EVERY_US),
                // The journal wakes the thread when many bytes wait. Bytes that are written soon are still in the
                // processor's cache.
                false => self.wait_for_backlog(TURN_EVERY_US),
            }
            self.host.yield_now();
        }
    }
    /// Returns when the journal has much to write, or when the time is over.
    fn wait_for_backlog(&self, at_most_us: u64) {
        let (journal, backlog_signal) = (self.keyspace.journal(), &self.persist.aof.backlog_signal);
        let seen = backlog_signal.changes();
        if journal.begin_sleep() {
            backlog_signal.wait(seen, Some(at_most_us));
        }
        journal.end_sleep();
    }
    /// One turn of the writing thread; tests call it without a thread. `at_end`: everything must be on the disk
    /// afterwards. Waits for the disk only with `at_end` or `appendfsync always`.
    pub fn write_aof(&self, at_end: bool) {
        let aof = &self.persist.aof;
        let mut guard = aof.writer.lock();
        let Some(writer) = guard.as_mut() else { return };
        let (now, always) = (self.host.now(), self.always_syncs());
        // Ask for the debt before the bytes are taken, so that the sync covers all sessions that wait.
        let must_sync = at_end || aof.gates.take_owed_sync();
        writer.take(self, now);
        if !writer.pending.is_empty() && writer.retry_us.is_none_or(|at| at_end || now.mono_us >= at) {
            let began_us = self.measure_from();
            let wrote = writer.write();
            self.record_write_latency(began_us, now);
            self.handle_write_result(writer, wrote, always, now);
            self.report_late_sync(&aof.syncs, now);
        } else if writer.pending.is_empty() && writer.retry_us.is_some() {
            // A rewrite has written or dropped the bytes that could not be written.
            self.handle_write_result(writer, Ok(()), always, now);
        }
        if must_sync || always {
            let began_us = self.measure_from().filter(|_| always);
            // `sync_failed` has recorded a failure.
            let _ = aof.syncs.sync_now(writer.order(now), |e| self.sync_failed(e));
            self.record_latency(began_us, &[Event::AofFsyncAlways], now);
        } else if self.config.choice(Opt::AppendFsync) == "everysec" && !aof.syncs.is_pending() {
            let is_deferred = self.config.number(Opt::NoAppendfsyncOnRewrite) != 0
                && (aof.is_rewriting() || self.is_saving_in_background());
            if !is_deferred && now.mono_us >= writer.last_sync_us + SYNC_EVERY_US {
                aof.syncs.order_sync(writer.order(now), now);
            }
        }
        self.wake_synced_clients();
        let mut status = aof.status.lock();
        (status.bytes, status.written) = (writer.bytes(), writer.written);
    }
    /// The start time of an action that LATENCY records. `None` when LATENCY is off.
    fn measure_from(&self) -> Option<u64> {
        (self.stats.events.threshold_ms() > 0).then(|| self.host.mono_us())
    }
    fn record_latency(&self, began_us: Option<u64>, events: &[Event], now: Now) {
        let Some(began_us) = began_us else { return };
        let took_us = self.host.mono_us().saturating_sub(began_us);
        events.iter().for_each(|event| self.stats.events.note(*event, took_us, now.unix_s()));
    }
    /// Records the duration of a write. As in redis-server, the name of the event says whether a sync or a save ran at
    /// the same time.
    fn record_write_latency(&self, began_us: Option<u64>, now: Now) {
        let aof = &self.persist.aof;
        let concurrent = match (aof.syncs.is_pending(), aof.is_rewriting() || self.is_saving_in_background())
        {
            (true, _) => Event::AofWritePendingFsync,
            (false, true) => Event::AofWriteActiveChild,
            (false, false) => Event::AofWriteAlone,
        };
        self.record_latency(began_us, &[Event::AofWrite, concurrent], now);
    }
    fn report_late_sync(&self, syncs: &Syncs, now: Now) {
        if syncs.check_late(now) {
            self.host.warn(
                "Asynchronous AOF fsync is taking too long (disk is busy?). The AOF buffer is written without waiting for it",
            );
        }
    }
    fn handle_write_result(&self, writer: &mut Writer, wrote: io::Result<()>, always: bool, now: Now) {
        let status = || self.persist.aof.status.lock();
        match wrote {
            Ok(()) if writer.retry_us.take().is_some() => {
                writer.logged_us = None;
                self.host.warn("AOF write error looks solved. The server can write again.");
                let mut status = status();
                // The disk has room again, so a rewrite that is due need not wait long for the back-off of failed ones.
                status.failures = status.failures.min(1);
                if !status.has_failed_sync {
                    status.write_error = None;
                    self.persist.set(AOF_FAILED, false);
                }
            }
            Ok(()) => {}
            Err(e) => {
                let why = system_text(&e);
                writer.retry_us = Some(now.mono_us + RETRY_US);
                if writer.logged_us.is_none_or(|at| now.mono_us >= at + LOGGED_EVERY_US) {
                    writer.logged_us = Some(now.mono_us);
                    self.host.warn(&format!("Error writing to the AOF file: {why}"));
                }
                if always {
                    self.host.die(
                        "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...",
                    );
                }
                status().write_error = Some(why);
                self.persist.set(AOF_FAILED, true);
            }
        }
    }
    /// Handles a failed sync: the state of the disk is unknown.
    pub(super) fn sync_failed(&self, error: &io::Error) {
        let why = system_text(error);
        if self.always_syncs() {
            self.host.die(&format!(
                "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {why}. Exiting..."
            ));
        }
        self.host.warn(&format!(
            "Fail to fsync the AOF file: {why}. What was written in the last seconds may not be on the disk: writes are \
             refused until the file is rewritten"
        ));
        let mut status = self.persist.aof.status.lock();
        (status.write_error, status.has_failed_sync, status.scheduled) = (Some(why), true, true);
        status.failed_syncs += 1;
        self.persist.set(AOF_FAILED, true);
    }
}
