//! DEBUG LOADAOF: replaces the data with the content of the append-only file.

use super::AofMode;
use super::load::FoundAof;
use crate::persist::DataError;
use crate::{Engine, Now};

const FAILED: &str = "ERR Error trying to load the AOF files, check server logs.";

impl Engine {
    /// Writes all pending changes and loads the files again. Without an append-only file, loads the files that
    /// BGREWRITEAOF left. Runs on a helper thread. Commands that need the data wait meanwhile.
    ///
    /// # Errors
    /// The text of the error reply. The data loaded before the error stays.
    pub(crate) fn reload_aof(&self, now: Now) -> Result<(), &'static str> {
        self.await_rewrite();
        // Commands of a primary's stream do not look for long locks.
        let _between_commands = self.following.between_commands();
        let _held = self.hold_writes()?;
        let loaded = match self.persist.aof.mode() {
            AofMode::On => self.reload_written_files(now),
            AofMode::Off => self.load_left_files(now),
            AofMode::Starting => Err("the append-only file is not complete yet".into()),
        };
        loaded.map_err(|why| {
            self.host.warn(&format!("DEBUG LOADAOF: {why}"));
            FAILED
        })?;
        self.persist.state.lock().saved_changes = self.keyspace.changes();
        self.host.log("Append Only File loaded by DEBUG LOADAOF");
        Ok(())
    }
    fn reload_written_files(&self, now: Now) -> Result<(), String> {
        let (mut guard, _long_lock) = self.lock_writer_and_shards(|_| Ok::<(), String>(()))?;
        let writer = guard.as_mut().ok_or("there is no append-only file")?;
        let tail = self.keyspace.switch_journal(false);
        let written = writer.write_until(self, tail, now);
        let loaded = written.map_err(|e| format!("cannot write the append-only file: {e}")).and_then(|()| {
            let found = self.reopen_aof(writer.folder.clone(), writer.manifest().clone());
            self.replace_data(found, now)
        });
        self.keyspace.switch_journal(true);
        self.restart_replication();
        loaded
    }
    fn load_left_files(&self, now: Now) -> Result<(), String> {
        // Nobody can turn on the append-only file meanwhile.
        let _writer = self.persist.aof.writer.lock();
        if self.persist.aof.mode() != AofMode::Off {
            return Err("the append-only file was turned on".into());
        }
        let found = self.find_left_files().map_err(|error| error.to_string())?;
        if found.manifest.to_load().next().is_none() {
            return Err("there is no append-only file".into());
        }
        let _long_lock = self.long_locks.announce(None);
        self.without_journal(|| self.replace_data(Ok(found), now))
    }
    fn replace_data(&self, found: Result<FoundAof, DataError>, now: Now) -> Result<(), String> {
        let _replacing = self.persist.replacing.write();
        let loaded = found.and_then(|mut found| {
            self.forget_data();
            self.load_files(&mut found, now)
        });
        loaded.map_err(|error| error.to_string())
    }
}
