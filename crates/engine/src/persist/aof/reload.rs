//! DEBUG LOADAOF: replaces the data with the content of the append-only file.

use super::AofMode;
use crate::{Engine, Now};

const FAILED: &str = "ERR Error trying to load the AOF files, check server logs.";

impl Engine {
    /// Writes all pending changes and loads the files again. Runs on a helper thread. Commands that need the data
    /// wait meanwhile.
    ///
    /// # Errors
    /// The text of the error reply. The data loaded before the error stays.
    pub(crate) fn reload_aof(&self, now: Now) -> Result<(), &'static str> {
        let failed = |why: String| {
            self.host.log(&why);
            FAILED
        };
        self.await_rewrite();
        // Lock in the order in which a rewrite locks.
        let mut guard = self.persist.aof.writer.lock();
        let writer = guard.as_mut().filter(|_| self.persist.aof.mode() == AofMode::On);
        let writer = writer.ok_or_else(|| failed("DEBUG LOADAOF: there is no append-only file".into()))?;
        let _long_lock = self.long_locks.announce(None);
        let tail = self.keyspace.switch_journal(false);
        let written = writer.write_until(self, tail, now);
        let done = match written {
            Err(e) => Err(format!("DEBUG LOADAOF: cannot write the append-only file: {e}")),
            Ok(()) => {
                let found = self.reopen_aof(writer.folder.clone(), writer.manifest().clone());
                let loaded = found.and_then(|mut found| {
                    (0..self.keyspace.databases()).for_each(|db| drop(self.keyspace.flush(db)));
                    self.load_files(&mut found, now)
                });
                loaded.map_err(|error| error.to_string())
            }
        };
        self.keyspace.switch_journal(true);
        done.map_err(failed)?;
        self.persist.state.lock().saved_changes = self.keyspace.changes();
        self.host.log("Append Only File loaded by DEBUG LOADAOF");
        Ok(())
    }
}
