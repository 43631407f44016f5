//! Loads a snapshot. The server already answers, with LOADING except for commands that report on its state.

use super::loaders::Loaders;
use super::{AofMode, DataError, LOADING, REPLACING};
use crate::config::Opt;
use crate::following::Position;
use crate::scripts::busy_text;
use crate::session::load_library;
use crate::{Engine, Now, StartError, TABLE, system_text};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_chain::Chain;
use strand_commands::call::{LaneCall, RunsOn};
use strand_commands::serial::file::{self, Progress};
use strand_commands::serial::{Batch, system};
use strand_commands::spec::{Exec, Flags};
use strand_keyspace::Lookups;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Argv;
use strand_wire::reply::{Protocol, Reply};

/// Time between two log lines about the progress.
const LOGGED_US: u64 = 5_000_000;
/// Keys between two readings of the clock.
const KEYS_PER_CLOCK_READ: u64 = 1024;
/// Maximum number of bytes of a damaged field that are logged.
const SHOWN_BYTES_MAX: usize = 60;
/// The name of the auxiliary field with the id of a stream of replication.
const REPL_ID: &[u8] = b"repl-id";
/// The offset of a file that names none.
const NO_OFFSET: u64 = u64::MAX;
/// The auxiliary fields are in this many bytes at the start of a file. The fields of Strand's services may follow later.
const HEAD_BYTES: u64 = 1024;

/// A snapshot to load.
pub struct Load<'a> {
    /// The snapshot's name, for the log.
    pub name: &'a str,
    /// The snapshot's content.
    pub source: &'a mut dyn Read,
    /// The snapshot's length in bytes.
    pub total_bytes: u64,
    /// True: existing keys are replaced. False: an existing key is an error.
    pub replace: bool,
}

/// Options of DEBUG RELOAD.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reload {
    /// The option MERGE: loaded keys replace existing ones.
    pub(crate) merge: bool,
    /// NOFLUSH: the data is not flushed first.
    pub(crate) no_flush: bool,
    /// NOSAVE: the data is not saved first; the existing file is loaded.
    pub(crate) no_save: bool,
}

/// Writes wait while this value exists: see [`Engine::hold_writes`].
pub(super) struct HeldWrites<'e>(&'e Engine);

impl Drop for HeldWrites<'_> {
    fn drop(&mut self) {
        self.0.persist.set(REPLACING, false);
    }
}

impl Engine {
    /// Starts LOADING: commands that need the data get this error until [`Engine::load`] is done. Call it before the
    /// first client.
    pub fn begin_loading(&self, total_bytes: u64, now: Now) {
        let loading = &self.persist.loading;
        loading.started_s.store(now.unix_s(), Relaxed);
        loading.total_bytes.store(total_bytes, Relaxed);
        loading.loaded_bytes.store(0, Relaxed);
        *loading.position.lock() = Position { offset: NO_OFFSET, ..Position::default() };
        self.persist.set(LOADING, true);
    }
    /// True while the dataset is loading.
    pub fn is_loading(&self) -> bool {
        self.persist.is_loading()
    }
    /// Loads a snapshot into the empty keyspace and ends LOADING.
    ///
    /// # Errors
    /// The problem with the file, its place, and advice. The keys before that place are loaded, and LOADING
    /// continues.
    pub fn load(&self, load: Load<'_>, now: Now) -> Result<(), StartError> {
        let Load { name, source, total_bytes, replace } = load;
        let mut head = Vec::new();
        let read = (&mut *source).take(HEAD_BYTES).read_to_end(&mut head);
        read.map_err(|why| StartError::Data(DataError::System(why)))?;
        // The stream of replication has the removal of keys that have expired.
        let is_of_stream = head.windows(REPL_ID.len()).any(|part| part == REPL_ID);
        let mut source = head.chain(source);
        let load = Load { name, source: &mut source, total_bytes, replace };
        let loaded = self.load_part(load, None, is_of_stream, now).map_err(StartError::Data)?;
        self.record_loaded(&loaded);
        self.continue_loaded_stream();
        self.persist.set(LOADING, false);
        Ok(())
    }
    /// The loaded file may say at which position of a stream of replication its data is. A replica continues the stream
    /// from there, and the replicas of a primary continue here.
    fn continue_loaded_stream(&self) {
        let position = std::mem::take(&mut *self.persist.loading.position.lock());
        // Strand and redis-server write all fields of a position.
        if !position.is_known() || position.offset == NO_OFFSET || position.db >= self.keyspace.databases() {
            return;
        }
        if let Err(why) = self.continue_stream(position) {
            self.host.warn(&format!("cannot continue the stream of replication: {}", system_text(&why)));
        }
    }
    fn record_loaded(&self, loaded: &file::Loaded) {
        let mut state = self.persist.state.lock();
        (state.loaded_keys, state.expired_keys) = (loaded.keys, loaded.expired);
        // The loaded data is on the disk.
        state.saved_changes = self.keyspace.changes();
    }
    /// DEBUG RELOAD, on a helper thread. Commands that need the data wait meanwhile.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn reload(&self, reload: Reload, now: Now) -> Result<(), &'static str> {
        // A rewrite needs its own long lock, so it must end before this lock begins.
        self.await_rewrite();
        // Commands of a primary's stream do not look for long locks.
        let _between_commands = self.following.between_commands();
        let _held = self.hold_writes()?;
        let _long_lock = self.long_locks.announce(None);
        if !reload.no_save {
            self.save_under_lock(now)?;
        }
        // The append-only file has the data already, except for what the options change, and the next base has
        // everything. So the journal is off during the reload.
        self.without_journal(|| self.reload_under_lock(reload, now))
    }
    /// Makes writes wait, until the returned value is dropped, and waits for the writes that have begun. Their clients get
    /// replies, so the data that is saved next must have these writes. Call this with
    /// [`Following::between_commands`](crate::following::Following::between_commands) held, so that one thread at a time
    /// holds writes.
    ///
    /// # Errors
    /// The BUSY error, when a long-running script holds shards.
    pub(super) fn hold_writes(&self) -> Result<HeldWrites<'_>, &'static str> {
        // Writes go on while a script keeps the data from being replaced.
        drop(self.long_locks.announce(None));
        self.persist.set(REPLACING, true);
        let held = HeldWrites(self);
        let mut busy = None;
        self.await_begun_writes(|| {
            busy = self.long_locks.is_busy(None);
            busy.is_none()
        });
        busy.map_or(Ok(held), |is_function| Err(busy_text(is_function)))
    }
    /// Replaces the data with `replace`, which the journal does not record. Replicas of this server are disconnected, and
    /// a new base of the append-only file is scheduled.
    pub(super) fn without_journal<T, E>(&self, replace: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if !self.keyspace.journal().is_on() {
            return replace();
        }
        self.keyspace.switch_journal(false);
        let done = replace();
        if done.is_ok() {
            self.persist.aof.note_replaced();
        }
        self.keyspace.switch_journal(true);
        self.restart_replication();
        // After a failure, the append-only file has data that memory lacks. A new base would lose this data. Without such
        // a file, the journal is for replicas.
        if done.is_ok() && self.persist.aof.mode() != AofMode::Off {
            self.schedule_bgrewriteaof();
        }
        done
    }
    fn reload_under_lock(&self, reload: Reload, now: Now) -> Result<(), &'static str> {
        let _replacing = self.persist.replacing.write();
        if !reload.no_flush {
            self.forget_data();
        }
        let name = self.config.dbfilename();
        let failed = |why: DataError| {
            self.host.warn(&why.to_string());
            "ERR Error trying to load the RDB dump"
        };
        let (mut source, total_bytes) = self
            .host
            .open_file(&name)
            .and_then(|file| file.ok_or_else(|| io::Error::other("the file does not exist")))
            .map_err(|e| failed(DataError::System(e)))?;
        let load = Load { name: &name, source: &mut *source, total_bytes, replace: reload.merge };
        // The commands of the primary that follow may need keys that have expired.
        let loaded = self.load_part(load, None, self.following.is_on(), now).map_err(failed)?;
        self.record_loaded(&loaded);
        Ok(())
    }
    /// Replaces the data with the snapshot of a primary. Clients get LOADING meanwhile. Replicas of this server are
    /// disconnected. Returns the database that the stream after the snapshot has selected. May block. Call
    /// [`Engine::await_rewrite`] before.
    ///
    /// # Errors
    /// The problem with the snapshot. No data is left in memory. The append-only file keeps the former data.
    pub(crate) fn load_from_primary(
        &self,
        source: &mut dyn Read,
        total_bytes: u64,
        now: Now,
    ) -> Result<usize, DataError> {
        let _long_lock = self.long_locks.announce(None);
        self.begin_loading(total_bytes, now);
        let loaded = self.without_journal(|| {
            let _replacing = self.persist.replacing.write();
            self.forget_data();
            let load = Load { name: "the primary's snapshot", source, total_bytes, replace: false };
            self.load_part(load, None, true, now).inspect_err(|_| self.forget_data())
        });
        self.persist.set(LOADING, false);
        loaded.map(|_| self.persist.loading.position.lock().db)
    }
    /// Removes all keys and functions, before a file is loaded again.
    pub(super) fn forget_data(&self) {
        drop(self.keyspace.lock_all(0).flush_each(0..self.keyspace.databases()));
        *self.scripts.functions.write() = Arc::default();
    }
    /// Loads the RDB at the start of an append-only file. Returns the bytes that were read beyond it, and their
    /// offset. `before`: bytes of the other files.
    pub(super) fn load_preamble(
        &self,
        name: &str,
        source: &mut dyn Read,
        before: u64,
        total_bytes: u64,
        now: Now,
    ) -> Result<(Vec<u8>, u64), DataError> {
        let load = Load { name, source, total_bytes, replace: false };
        let loaded = self.load_part(load, Some(before), true, now)?;
        let mut state = self.persist.state.lock();
        (state.loaded_keys, state.expired_keys) = (loaded.keys, loaded.expired);
        drop(state);
        Ok((loaded.rest, loaded.bytes))
    }
    /// `before`: the data is the start of an append-only file, after this many bytes of other files. `keep_expired`: load keys
    /// that have expired, because commands that follow may need them.
    fn load_part(
        &self,
        load: Load<'_>,
        before: Option<u64>,
        keep_expired: bool,
        now: Now,
    ) -> Result<file::Loaded, DataError> {
        let Load { name, source, total_bytes, replace } = load;
        let (began_us, mut logged_us, mut looked_keys, mut delayed_keys) = (self.host.mono_us(), 0, 0, 0);
        let mut commands = Vec::new();
        let file_bytes = total_bytes;
        let verify_checksum = self.config.number(Opt::RdbChecksum) != 0;
        let loading =
            file::Loading { now_ms: now.unix_ms(), keep_expired, replace, file_bytes, verify_checksum };
        // With `replace` the records are put in the order of the file, without threads.
        let loaders = if replace { None } else { Loaders::begin(self) };
        let mut report_progress = |progress: Progress<'_>| match progress {
            Progress::Aux(system::COMMAND, command) => commands.push(command.to_vec()),
            Progress::Aux(name, value) => self.log_aux(name, value, now),
            Progress::Read { bytes, keys } => {
                let bytes = before.unwrap_or(0) + bytes;
                self.persist.loading.loaded_bytes.store(bytes, Relaxed);
                let delay_us = self.config.number(Opt::KeyLoadDelay).max(0) as u64;
                if delay_us > 0 && keys > delayed_keys {
                    self.host.nap_us((keys - delayed_keys) * delay_us);
                }
                delayed_keys = keys;
                if keys < looked_keys + KEYS_PER_CLOCK_READ {
                    return;
                }
                looked_keys = keys;
                self.host.yield_now();
                let took_us = self.host.mono_us().saturating_sub(began_us);
                if took_us >= logged_us + LOGGED_US {
                    logged_us = took_us;
                    let percent = bytes as f64 * 100.0 / total_bytes.max(1) as f64;
                    let seconds = took_us / 1_000_000;
                    self.host
                        .log(&format!("loading {name}: {percent:.0} %, {keys} keys in {seconds} seconds"));
                }
            }
        };
        let mut put = |batch: Batch| match &loaders {
            Some(loaders) => loaders.put(batch, &self.keyspace),
            None => batch.put(&self.keyspace),
        };
        let loaded = file::load(source, &self.keyspace, loading, &mut report_progress, &mut put);
        let ended = loaders.map_or(Ok(()), |loaders| loaders.finish(&self.keyspace));
        let loaded = loaded.and_then(|loaded| ended.map(|()| loaded)).map_err(|e| {
            let file::NotLoaded { offset, problem } = e;
            let name = name.into();
            match before {
                Some(_) => {
                    let manifest = super::aof::manifest_path(&self.config);
                    DataError::Preamble { name, offset, problem, manifest }
                }
                None => DataError::Snapshot { name, offset, problem },
            }
        })?;
        let seconds = self.host.mono_us().saturating_sub(began_us) as f64 / 1e6;
        self.host.log(&format!(
            "Done loading RDB, keys loaded: {}, keys expired: {}, empty keys skipped: {}.",
            loaded.keys, loaded.expired, loaded.empty
        ));
        self.host.log(&format!("DB loaded from disk: {seconds:.3} seconds ({name})"));
        for code in &loaded.functions {
            if let Err(text) = load_library(self, code) {
                let text = text.escape_ascii();
                self.host
                    .warn(&format!("cannot load a function library of {name}: {text}. The library is kept"));
            }
        }
        for command in &commands {
            match system::decode_command(command) {
                Some(words) => self.define(&words, now),
                None => self.host.warn(&format!(
                    "ignored the field {} of {name}: {} bytes that begin with {:?}. Expected words, each written as its \
                     length, a space and its bytes",
                    system::COMMAND.escape_ascii(),
                    command.len(),
                    command[..command.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
                )),
            }
        }
        Ok(loaded)
    }
    /// Recreates an index or a pattern set. A failure is logged and does not prevent the start.
    pub(crate) fn define(&self, words: &[&[u8]], now: Now) {
        let failed = |why: &str| {
            let shown = words.iter().take(3).map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>();
            self.host.warn(&format!(
                "cannot run the command \"{} ...\" from the snapshot or append-only file: {why}",
                shown.join(" ")
            ));
        };
        let argv = Argv::from_slices(words);
        let spec = match TABLE.resolve(argv.args()) {
            Ok(found) => found.spec,
            Err(_) => return failed("this version does not have this command"),
        };
        let service = match spec.exec {
            Exec::Service(service) if spec.flags.has(Flags::DEFINES) => service,
            _ => return failed("the command creates neither an index nor a set of patterns"),
        };
        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let mut call = LaneCall {
            args: argv.args(),
            client: 0,
            spec: Some(spec),
            runs_on: RunsOn::Lane,
            db: 0,
            now_ms: now.unix_ms(),
            keyspace: &self.keyspace,
            long_locks: &self.long_locks,
            reply: &mut reply,
            rng: &mut fastrand::Rng::with_seed(0),
            cancel: &Arc::default(),
            no_touch: true,
            rights: None,
            lookups: Lookups::default(),
            error_is_counted: false,
            waits: false,
            yield_now: &|| self.host.yield_now(),
        };
        let _ = self.host.run_service(service, &mut call);
        if let Some(code) = call.reply.error_code().map(<[u8]>::to_vec) {
            failed(&format!("error {}", code.escape_ascii()));
        }
    }
    fn log_aux(&self, name: &[u8], value: &[u8], now: Now) {
        let number = || parse_int(value).unwrap_or(0);
        match name {
            b"redis-ver" | b"valkey-ver" => {
                self.host.log(&format!("Loading RDB produced by version {}", value.escape_ascii()));
            }
            b"ctime" => self.host.log(&format!("RDB age {} seconds", (now.unix_s() - number()).max(0))),
            b"repl-stream-db" => {
                self.persist.loading.position.lock().db = usize::try_from(number()).unwrap_or(0);
            }
            REPL_ID => {
                self.persist.loading.position.lock().id = String::from_utf8_lossy(value).into_owned();
            }
            b"repl-offset" => {
                self.persist.loading.position.lock().offset = u64::try_from(number()).unwrap_or(NO_OFFSET);
            }
            b"used-mem" => self.persist.loading.used_mem.store(number().max(0) as u64, Relaxed),
            _ => {}
        }
    }
}
