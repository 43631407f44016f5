//! [`Copies`]: the copies of records on which a run works that holds no shard.
//!
//! A command of the run first gets copies of the records at its keys. In [`ScriptAccess::View`] all copies are of one
//! moment, and only commands that read may run. In [`ScriptAccess::Draft`] commands may write the copies, too. KEYS and
//! SCAN then list the keys of the server's keyspace, with the changes of the run ([`Copies::list`]).

use super::run::{ScriptAccess, StopReason};
use indexmap::IndexMap;
use std::cell::Cell;
use std::sync::Arc;
use strand_commands::listing::{KeySource, Listing, asks_for};
use strand_commands::long;
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::{Key, Names, RecordRef, ScanCursor, Txn, Viewed};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Maximum number of copies that were only read and that a run keeps for its next commands.
const READ_COPIES_MAX: usize = 1024;
/// Maximum number of different patterns for which a run lists keys. Other clients' new keys are compared with each.
const PATTERNS_MAX: usize = 16;

/// Reads the record at a key of the server's keyspace.
///
/// # Errors
/// Why the run must stop, because the record does not fit the records that were read before.
pub(crate) type ReadRecord<'r> = dyn Fn(&[u8]) -> Result<Option<Viewed>, StopReason> + 'r;

/// Visits about `count` records of the server's keyspace from a cursor on, for a listing of these names. Returns the next
/// cursor; `None` at the end.
///
/// # Errors
/// Why the run must stop.
pub(crate) type ListRecords<'r> = dyn Fn(
        ScanCursor,
        usize,
        &Names,
        &mut dyn FnMut(&RecordRef<'_>) -> bool,
    ) -> Result<Option<ScanCursor>, StopReason>
    + 'r;

/// How a run gets the records of the server's keyspace.
pub(crate) struct Originals<'r> {
    pub(crate) read: &'r ReadRecord<'r>,
    /// `None`: the run cannot list keys.
    pub(crate) list: Option<&'r ListRecords<'r>>,
    /// True when other clients have written records that were read, so that the run cannot take effect.
    pub(crate) are_overtaken: &'r dyn Fn() -> bool,
    /// Called now and then during a long comparison with a pattern. An error: why the run must stop.
    pub(crate) may_continue: &'r dyn Fn() -> Result<(), StopReason>,
}

/// What is known of a key that commands of the run may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// The key existed before the run.
    Exists,
    Missing,
}

/// The copies of a run: see the module.
pub(crate) struct Copies<'r> {
    mode: ScriptAccess,
    /// The database whose records are read.
    db: usize,
    originals: Originals<'r>,
    /// The names for which the run has listed keys, with their patterns.
    listed: Vec<(Arc<[u8]>, Names)>,
    /// Keys of copies that no command has written. Such a copy may be dropped and read again.
    only_read: Vec<Box<[u8]>>,
    /// Keys that commands may have written, in the order of their first use. Their state is kept to the end of the run.
    written: IndexMap<Box<[u8]>, Before, ahash::RandomState>,
}

impl<'r> Copies<'r> {
    /// No copies yet, of the records of database `db`.
    pub(crate) fn new(mode: ScriptAccess, db: usize, originals: Originals<'r>) -> Copies<'r> {
        Copies {
            mode,
            db,
            originals,
            listed: Vec::new(),
            only_read: Vec::new(),
            written: IndexMap::default(),
        }
    }
    /// True when other clients have written records that were read, so that the run cannot take effect.
    pub(crate) fn are_overtaken(&self) -> bool {
        (self.originals.are_overtaken)()
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
            for key in self.only_read.drain(..).filter(|key| !self.written.contains_key(key)) {
                let key = txn.keyspace().key(&key);
                txn.db(of_copies).take_copy(&key);
            }
        }
        let writes = spec.flags.has(Flags::WRITE);
        for key in keys {
            if self.written.contains_key(key.bytes) {
                continue;
            }
            let is_copied = txn.db(of_copies).copy_at(key).is_some();
            let original = if is_copied { None } else { (self.originals.read)(key.bytes)? };
            let before = if is_copied || original.is_some() { Before::Exists } else { Before::Missing };
            if let Some((value, expire_at_ms)) = original {
                txn.db(of_copies).put_copy(key, value, expire_at_ms);
                self.only_read.push(key.bytes.into());
            }
            if writes {
                self.written.insert(key.bytes.into(), before);
            }
        }
        Ok(())
    }
    /// Notes that a command that only reads has written the copies at `keys`, which exist.
    pub(crate) fn note_written(&mut self, keys: &[Key<'_>]) {
        for key in keys {
            self.written.entry(key.bytes.into()).or_insert(Before::Exists);
        }
    }
    /// Runs KEYS or SCAN of database `db`.
    ///
    /// # Errors
    /// Why the run must stop.
    pub(crate) fn list(
        &mut self,
        txn: &mut Txn<'_>,
        db: usize,
        listing: Listing<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), StopReason> {
        let list = self.originals.list.filter(|_| self.db == db).ok_or(StopReason::NeedsShards)?;
        let pattern = listing.pattern();
        let known = self.listed.iter().find(|(of, _)| **of == *pattern).map(|(_, names)| names.clone());
        let names = match known {
            Some(names) => names,
            None if self.listed.len() == PATTERNS_MAX => return Err(StopReason::NeedsShards),
            None => {
                let of = Arc::<[u8]>::from(pattern);
                let filter_of = of.clone();
                let names = Names::new(move |name| asks_for(&filter_of, name));
                self.listed.push((of, names.clone()));
                names
            }
        };
        let mut source = ListedKeys { copies: self, txn, list, names, stop: Cell::default() };
        listing.run(&mut source, reply);
        source.stop.get().map_or(Ok(()), Err)
    }
    /// Number of keys that commands may have written.
    pub(crate) fn written(&self) -> usize {
        self.written.len()
    }
    /// The keys that commands may have written, in the order of their first use.
    pub(crate) fn into_written(self) -> Vec<Box<[u8]>> {
        self.written.into_keys().collect()
    }
}

/// The keys of the server's keyspace, with the changes of the run.
struct ListedKeys<'l, 'r, 'k> {
    copies: &'l Copies<'r>,
    txn: &'l mut Txn<'k>,
    list: &'r ListRecords<'r>,
    names: Names,
    /// Why the run must stop.
    stop: Cell<Option<StopReason>>,
}

impl KeySource for ListedKeys<'_, '_, '_> {
    /// The keys that the run has added come last.
    fn step(
        &mut self,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(&RecordRef<'_>) -> bool,
    ) -> Option<ScanCursor> {
        let (copies, txn) = (self.copies, &mut *self.txn);
        let keyspace = txn.keyspace();
        let mut exists = |name: &[u8]| txn.db(copies.db()).copy_at(&keyspace.key(name)).is_some();
        let (mut from, mut visited) = (cursor, 0);
        loop {
            let next = (self.list)(from, count, &self.names, &mut |record| {
                visited += 1;
                let name = record.key();
                let stays = match copies.written.get(name) {
                    None => true,
                    Some(Before::Exists) => exists(name),
                    // On a replica, a record whose fields have all expired counts as missing. The key comes last.
                    Some(Before::Missing) => false,
                };
                stays && visit(record)
            });
            match next {
                Ok(None) => break,
                Ok(Some(next)) if visited > 0 => return Some(next),
                // An empty segment, or promises were carried out instead.
                Ok(Some(next)) => from = next,
                Err(why) => {
                    self.stop.set(Some(why));
                    return None;
                }
            }
        }
        let added = copies.written.iter().filter(|(_, before)| **before == Before::Missing);
        for (name, _) in added {
            if let Some(record) = txn.db(copies.db()).copy_at(&keyspace.key(name)) {
                visit(&record);
            }
        }
        Some(0)
    }
    fn may_continue(&self) -> bool {
        let stop = (self.copies.originals.may_continue)().err();
        self.stop.set(stop);
        stop.is_none()
    }
}
