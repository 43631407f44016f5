//! [`Copies`]: the copies of records on which a run works that holds no shard.
//!
//! A command of the run first gets copies of the records at its keys. In [`ScriptAccess::View`] all copies are of one
//! moment, and only commands that read may run. In [`ScriptAccess::Draft`] commands may write the copies, too.

use super::run::{ScriptAccess, StopReason};
use indexmap::IndexSet;
use strand_commands::long;
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::{Key, Txn, Viewed};
use strand_wire::args::Args;

/// Maximum number of copies that were only read and that a run keeps for its next commands.
const READ_COPIES_MAX: usize = 1024;

/// Reads the record at a key of the server's keyspace.
///
/// # Errors
/// Why the run must stop, because the record does not fit the records that were read before.
pub(crate) type ReadRecord<'r> = dyn Fn(&[u8]) -> Result<Option<Viewed>, StopReason> + 'r;

/// The copies of a run: see the module.
pub(crate) struct Copies<'r> {
    mode: ScriptAccess,
    /// The database whose records are read.
    db: usize,
    read: &'r ReadRecord<'r>,
    /// True when other clients have written records that were read, so that the run cannot take effect.
    are_overtaken: &'r dyn Fn() -> bool,
    /// Keys of copies that no command has written. Such a copy may be dropped and read again.
    only_read: Vec<Box<[u8]>>,
    /// Keys that commands may have written, in the order of their first use. Their state is kept to the end of the run.
    written: IndexSet<Box<[u8]>, ahash::RandomState>,
}

impl<'r> Copies<'r> {
    /// No copies yet, of the records of database `db`.
    pub(crate) fn new(
        mode: ScriptAccess,
        db: usize,
        read: &'r ReadRecord<'r>,
        are_overtaken: &'r dyn Fn() -> bool,
    ) -> Copies<'r> {
        Copies { mode, db, read, are_overtaken, only_read: Vec::new(), written: IndexSet::default() }
    }
    /// True when other clients have written records that were read, so that the run cannot take effect.
    pub(crate) fn are_overtaken(&self) -> bool {
        (self.are_overtaken)()
    }
    /// The database of the copies. A view's copies are in a keyspace with one database.
    pub(crate) fn db(&self) -> usize {
        if self.mode == ScriptAccess::View { 0 } else { self.db }
    }
    /// Copies the records at `keys`, the keys of a command, to the keyspace of `txn`.
    ///
    /// # Errors
    /// Why the run must stop.
    pub(crate) fn take(
        &mut self,
        txn: &mut Txn<'_>,
        db: usize,
        spec: &CommandSpec,
        args: Args<'_>,
        keys: &[Key<'_>],
    ) -> Result<(), StopReason> {
        let fits = match self.mode {
            ScriptAccess::Draft => long::changes_copies(spec, args),
            _ => long::reads_copies(spec),
        };
        if !fits || self.db != db {
            return Err(StopReason::NeedsShards);
        }
        let of_copies = self.db();
        if self.only_read.len() + keys.len() > READ_COPIES_MAX {
            for key in self.only_read.drain(..).filter(|key| !self.written.contains(key)) {
                let key = txn.keyspace().key(&key);
                txn.db(of_copies).take_copy(&key);
            }
        }
        for key in keys {
            if self.written.contains(key.bytes) || txn.db(of_copies).peek(key).is_some() {
                continue;
            }
            if let Some((value, expire_at_ms)) = (self.read)(key.bytes)? {
                txn.db(of_copies).put_copy(key, value, expire_at_ms);
                self.only_read.push(key.bytes.into());
            }
        }
        if spec.flags.has(Flags::WRITE) {
            self.note_written(keys);
        }
        Ok(())
    }
    /// Notes that a command may have written the copies at `keys`.
    pub(crate) fn note_written(&mut self, keys: &[Key<'_>]) {
        self.written.extend(keys.iter().map(|key| Box::from(key.bytes)));
    }
    /// Number of keys that commands may have written.
    pub(crate) fn written(&self) -> usize {
        self.written.len()
    }
    /// The keys that commands may have written, in the order of their first use.
    pub(crate) fn into_written(self) -> Vec<Box<[u8]>> {
        self.written.into_iter().collect()
    }
}
