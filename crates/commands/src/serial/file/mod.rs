//! [`save`] and [`load`]: RDB files of a whole keyspace, on any writer or reader. The caller chooses the file and
//! the time, and handles functions and errors.
//!
//! A save has the data as of the moment of its [`Snapshot`]. It needs memory for one slice of records. A load needs
//! memory for one string, for the value that is being built, and for a [`Batch`] of keys. The caller's `put` stores
//! the batches in the keyspace, on any thread.

use super::batch::Batch;
use super::{BadValue, ValueBuilder, build, system, value_type, write};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use strand_keyspace::{Keyspace, Snapshot, SnapshotRecords, Value, ValueRef};
use strand_rdb::file::{Event, FileReader};
use strand_rdb::value::{ModuleId, StreamEntries, ValueKind};
use strand_rdb::write::{KeyHead, Writer};
use strand_rdb::{Error, VERSION_WRITTEN};

/// What is saved, and how.
pub struct Saving<'a> {
    /// Auxiliary fields (name and value) at the start of the file.
    pub aux: &'a [(&'a str, String)],
    /// Source texts of function libraries.
    pub functions: &'a [Vec<u8>],
    /// Commands that make indexes and sets of patterns again when the file is loaded, encoded by
    /// [`system::encode_command`].
    pub commands: &'a [Vec<u8>],
    /// `rdbcompression`: compress strings that become shorter by it.
    pub compress: bool,
    /// `rdbchecksum`: write a checksum at the end of the file.
    pub checksum: bool,
    /// True: the file says when each key was last used (`maxmemory-policy` is an LRU policy). False: the file says
    /// how often each key was used, if the policy is an LFU policy.
    pub lru: bool,
    /// Time of the save, in unix milliseconds. Keys that have expired by then are left out. `i64::MIN`: all keys are
    /// saved.
    pub expiry_ms: i64,
    /// The clock, in unix milliseconds. The file has the idle time of each key when the key is written. That may be long
    /// after the save began, and clients use keys meanwhile.
    pub clock_ms: &'a dyn Fn() -> i64,
    /// Called after about every 64 KiB.
    pub pause: &'a dyn Fn(),
    /// Called after each slice with the number of keys saved so far. If it returns an error, the save ends.
    pub progress: &'a dyn Fn(u64) -> io::Result<()>,
}

/// Writes all databases to `out` as an RDB file of version 10. Without a snapshot the file has no keys. Returns the number
/// of keys.
///
/// # Errors
/// An error of `out` or of [`Saving::progress`]. The file is incomplete then.
pub fn save(mut snapshot: Option<Snapshot<'_>>, saving: &Saving<'_>, out: &mut dyn Write) -> io::Result<u64> {
    let failed: RefCell<Option<io::Error>> = RefCell::new(None);
    let out = RefCell::new(out);
    let mut sink = |bytes: &[u8]| {
        let mut failed = failed.borrow_mut();
        if failed.is_none() {
            *failed = out.borrow_mut().write_all(bytes).err();
        }
    };
    let mut writer = Writer::into_sink(saving.compress, saving.pause, &mut sink);
    writer.header(VERSION_WRITTEN);
    saving.aux.iter().for_each(|(name, value)| writer.aux(name.as_bytes(), value.as_bytes()));
    saving.commands.iter().for_each(|command| writer.aux(system::COMMAND, command));
    saving.functions.iter().for_each(|code| writer.function(code));
    let (mut keys, mut slice, mut progress) = (0, Vec::new(), FileProgress::default());
    while let Some(snapshot) = &mut snapshot
        && snapshot.next(&mut slice)
    {
        // A part that is not used again is freed on this thread, because no client waits for it. Freeing is cheap: the
        // keyspace still uses most of the part's memory.
        for part in slice.drain(..) {
            keys += write_records(&part, snapshot, saving, &mut progress, &mut writer);
            snapshot.take_back(part);
        }
        if let Some(e) = failed.borrow_mut().take() {
            return Err(e);
        }
        (saving.progress)(keys)?;
    }
    writer.eof(saving.checksum);
    let rest = writer.take();
    drop(writer);
    match failed.into_inner() {
        Some(e) => Err(e),
        None => out.into_inner().write_all(&rest).map(|()| keys),
    }
}

/// What the save has written so far.
#[derive(Default)]
struct FileProgress {
    db: Option<usize>,
    /// The databases whose numbers of keys were written.
    announced: BTreeSet<usize>,
}

/// Writes records, except those that have expired. Returns the number of written keys that clients can reach.
fn write_records(
    part: &SnapshotRecords,
    snapshot: &Snapshot<'_>,
    saving: &Saving<'_>,
    progress: &mut FileProgress,
    writer: &mut Writer<'_>,
) -> u64 {
    let (keyspace, now_ms) = (snapshot.keyspace(), (saving.clock_ms)());
    let under_lfu = keyspace.settings().lfu.load(std::sync::atomic::Ordering::Relaxed) != 0;
    let mut keys = 0;
    for record in part.records() {
        let expires_at_ms = record.expire_at_ms();
        if expires_at_ms.is_some_and(|at| at <= saving.expiry_ms) {
            continue;
        }
        if part.is_system() {
            let field = system::encode(part.db(), record.key(), record.value(), saving.pause);
            writer.aux(system::NAME, &field);
            continue;
        }
        if progress.db != Some(part.db()) {
            select(part.db(), snapshot, progress, writer);
        }
        let head = KeyHead {
            expires_at_ms,
            idle_s: saving.lru.then(|| record.idle_s(now_ms).into()),
            freq: under_lfu.then(|| record.frequency(now_ms, keyspace.settings())),
        };
        let copy = record.value().with_hidden_fields();
        put_key(record.key(), head, copy.as_ref().map_or(record.value(), Value::view), writer);
        keys += 1;
    }
    keys
}

/// Selects a database in the file. A record that was changed before the save reached it comes late, so an earlier
/// database may be selected again.
fn select(db: usize, snapshot: &Snapshot<'_>, progress: &mut FileProgress, writer: &mut Writer<'_>) {
    progress.db = Some(db);
    match snapshot.databases().get(&db) {
        Some(keys) if progress.announced.insert(db) => {
            writer.select_db(db as u64, keys.all as u64, keys.expiring as u64);
        }
        _ => writer.back_to_db(db as u64),
    }
}

fn put_key(key: &[u8], head: KeyHead, value: ValueRef<'_>, writer: &mut Writer<'_>) {
    writer.key(key, head, value_type(value));
    write(value, writer);
}

/// What a loaded file has contained.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Number of keys that `put` has got.
    pub keys: u64,
    /// Number of keys that had expired and were skipped.
    pub expired: u64,
    /// Number of keys with an empty collection, which were skipped.
    pub empty: u64,
    /// Source texts of function libraries.
    pub functions: Vec<Vec<u8>>,
    /// True when the file has a checksum, which was correct.
    pub checksum_verified: bool,
    /// Number of bytes in the file.
    pub bytes: u64,
    /// Bytes that follow the end of the RDB data and were read together with it.
    pub rest: Vec<u8>,
}

/// Why a file was not loaded, and at which offset.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset}: {problem}")]
pub struct NotLoaded {
    /// Number of bytes read until the problem was found.
    pub offset: u64,
    /// What is wrong with the file.
    pub problem: RdbProblem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbProblem {
    /// The bytes are not an RDB file, or are damaged.
    #[error(transparent)]
    File(#[from] Error),
    /// The file has this key twice, or the key existed before.
    #[error("key {0:?} exists already")]
    Duplicate(String),
    /// The file has a database that the server does not have.
    #[error("database {number} does not exist; the server has {databases} (option \"databases\")")]
    Database {
        /// Number of the database in the file.
        number: u64,
        /// Number of databases of the keyspace.
        databases: usize,
    },
    /// The parts of the value contradict each other, or Strand does not have the type.
    #[error("key {key:?}: {what}")]
    Value {
        /// The key, as messages show it.
        key: String,
        /// What is wrong with the value.
        what: BadValue,
    },
    /// A record that only Strand writes, in a form that this version does not know.
    #[error(
        "field {} has a form that this version does not know; load the file with the version that wrote it",
        String::from_utf8_lossy(system::NAME)
    )]
    System,
    /// The value belongs to a Redis module.
    #[error("key {key:?} has a value of the Redis module {module}; Strand does not load modules")]
    Module {
        /// The key, as messages show it.
        key: String,
        /// The module that has the type.
        module: ModuleId,
    },
}

/// Number of parts of a large value between two reports of progress.
const PARTS_PER_PROGRESS: usize = 512;

/// Minimum number of bytes that a key and its value take in a file.
const KEY_BYTES_MIN: u64 = 4;

/// How a file is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Time of the load, in unix milliseconds.
    pub now_ms: i64,
    /// True: expired keys are loaded, because the file is the base of an append-only file, whose commands may name
    /// these keys. They are removed when somebody reads them. False: expired keys are skipped.
    pub keep_expired: bool,
    /// True: a loaded key replaces an existing one. False: an existing key is an error.
    pub replace: bool,
    /// Length of the file in bytes. The file announces a number of keys, and memory is prepared only for as many as
    /// its length allows.
    pub file_bytes: u64,
    /// False: a wrong checksum at the end of the file is ignored.
    pub verify_checksum: bool,
}

impl Loading {
    /// True when the key has expired and must be skipped.
    fn passes(&self, head: KeyHead) -> bool {
        !self.keep_expired && head.expires_at_ms.is_some_and(|at| at <= self.now_ms)
    }
}

/// Progress of a load.
pub enum Progress<'a> {
    /// An auxiliary field: name and value.
    Aux(&'a [u8], &'a [u8]),
    /// Reported after each key, and several times within a large value.
    Read {
        /// Number of bytes read so far.
        bytes: u64,
        /// Number of keys loaded so far, without skipped ones.
        keys: u64,
    },
}

/// Checks that `start`, the first bytes of a file, begins an RDB file of a version that [`load`] reads.
///
/// # Errors
/// What is wrong with the bytes.
pub fn check_header(start: &[u8]) -> Result<(), RdbProblem> {
    FileReader::new(start, StreamEntries::Nodes)?;
    Ok(())
}

/// Stores a batch of keys in the keyspace, or passes it to a thread that does so.
pub type PutBatch<'p> = dyn FnMut(Batch) -> Result<(), NotLoaded> + 'p;

/// Loads a file from `reader` into `keyspace`, in addition to the data that is there already. `put` gets all keys,
/// in the order of the file, and stores them ([`Batch::put`]).
///
/// # Errors
/// Fails if the file is damaged or does not fit the keyspace, or with the error of `put`. The keys before that place
/// were passed to `put`.
pub fn load<R: Read>(
    reader: R,
    keyspace: &Keyspace,
    loading: Loading,
    progress: &mut dyn FnMut(Progress<'_>),
    put: &mut PutBatch<'_>,
) -> Result<Loaded, NotLoaded> {
    let reader = FileReader::new(reader, StreamEntries::Nodes);
    let mut reader = reader.map_err(|e| NotLoaded { offset: 0, problem: e.into() })?;
    if !loading.verify_checksum {
        reader.ignore_checksum();
    }
    let (mut loaded, mut batch) = (Loaded::default(), Batch::new(loading, 0));
    let read = load_all(&mut reader, keyspace, loading, progress, &mut loaded, &mut batch, put);
    let offset = reader.offset();
    match read {
        Ok(()) => {
            put(batch)?;
            loaded.bytes = offset;
            loaded.rest = reader.into_source().into_parts().1;
            Ok(loaded)
        }
        Err(Stopped::Here(problem)) => {
            put(batch)?;
            Err(NotLoaded { offset, problem })
        }
        Err(Stopped::ByPut(error)) => Err(error),
    }
}

/// Why the reader stopped.
enum Stopped {
    /// There is this problem with the file at the current offset.
    Here(RdbProblem),
    /// `put` returned this error.
    ByPut(NotLoaded),
}

impl From<RdbProblem> for Stopped {
    fn from(problem: RdbProblem) -> Stopped {
        Stopped::Here(problem)
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Here(error.into())
    }
}

fn load_all<R: Read>(
    reader: &mut FileReader<R>,
    keyspace: &Keyspace,
    loading: Loading,
    progress: &mut dyn FnMut(Progress<'_>),
    loaded: &mut Loaded,
    batch: &mut Batch,
    put: &mut PutBatch<'_>,
) -> Result<(), Stopped> {
    let (databases, mut db) = (keyspace.databases(), 0);
    // The key whose value is being built. The builder is `None` while the parts of a skipped key are read.
    let (mut key, mut head, mut builder) = (Vec::<u8>::new(), KeyHead::default(), None);
    let mut events = 0usize;
    while let Some(event) = reader.next()? {
        let key_ended = matches!(event, Event::KeyEnd | Event::Key { kind: ValueKind::String, .. });
        match event {
            Event::SelectDb(number) => {
                let known = usize::try_from(number).ok().filter(|n| *n < databases);
                db = known.ok_or(RdbProblem::Database { number, databases })?;
            }
            Event::Key { key: of, kind: ValueKind::Module(module), .. } => {
                return Err(RdbProblem::Module { key: shown(&of), module }.into());
            }
            // The most frequent case: no value is built, the batch gets the bytes of the string.
            Event::Key { key: of, kind: ValueKind::String, expires_at_ms, idle_s, freq } => {
                head = KeyHead { expires_at_ms: expiry(expires_at_ms), idle_s, freq };
                key.clear();
                key.extend_from_slice(&of);
                let text = reader.string_value()?;
                if loading.passes(head) {
                    loaded.expired += 1;
                } else {
                    loaded.keys += 1;
                    batch.add_string(db, &key, head, text);
                    let offset = reader.offset();
                    if batch.ends_at(offset) {
                        put(batch.take(offset)).map_err(Stopped::ByPut)?;
                    }
                }
            }
            Event::Key { key: of, kind, expires_at_ms, idle_s, freq } => {
                let new =
                    ValueBuilder::new(kind).map_err(|what| RdbProblem::Value { key: shown(&of), what })?;
                key.clear();
                key.extend_from_slice(&of);
                builder = Some(new);
                head = KeyHead { expires_at_ms: expiry(expires_at_ms), idle_s, freq };
            }
            Event::Part(part) => {
                if let Some(building) = &mut builder {
                    let added = building.add(part, keyspace.settings());
                    added.map_err(|what| RdbProblem::Value { key: shown(&key), what })?;
                }
            }
            Event::KeyEnd => match builder.take().map(|value| value.finish(keyspace.settings())) {
                Some(Ok(value)) => {
                    if loading.passes(head) {
                        loaded.expired += 1;
                        keyspace.dispose(value);
                    } else {
                        loaded.keys += 1;
                        batch.add(db, &key, head, value);
                        let offset = reader.offset();
                        if batch.ends_at(offset) {
                            put(batch.take(offset)).map_err(Stopped::ByPut)?;
                        }
                    }
                }
                Some(Err(build::EMPTY)) => loaded.empty += 1,
                Some(Err(what)) => return Err(RdbProblem::Value { key: shown(&key), what }.into()),
                None => {}
            },
            Event::Function(code) => loaded.functions.push(code.into_vec()),
            Event::Aux { name, value } if *name == *system::NAME => put_system(keyspace, &value, loading)?,
            Event::Aux { name, value } => progress(Progress::Aux(&name, &value)),
            Event::ResizeDb { keys, .. } => {
                let most = loading.file_bytes.saturating_sub(reader.offset()) / KEY_BYTES_MIN;
                keyspace.reserve_keys(db, keys.min(most) as usize);
            }
            Event::SlotInfo { .. } | Event::SlotImport { .. } | Event::ModuleAux(_) => {}
            Event::End { checksum_verified } => loaded.checksum_verified = checksum_verified,
        }
        events += 1;
        if key_ended || events.is_multiple_of(PARTS_PER_PROGRESS) {
            progress(Progress::Read { bytes: reader.offset(), keys: loaded.keys });
        }
    }
    Ok(())
}

/// The expiry of a record: -1 means none, as in redis-server. The largest number means none in the keyspace.
fn expiry(at_ms: Option<i64>) -> Option<i64> {
    at_ms.filter(|at_ms| *at_ms != -1).map(|at_ms| at_ms.min(i64::MAX - 1))
}

/// Stores a record of a system companion in the keyspace.
fn put_system(keyspace: &Keyspace, field: &[u8], loading: Loading) -> Result<(), RdbProblem> {
    let (db, key, value) = system::decode(field, keyspace.settings(), &|| {}).ok_or(RdbProblem::System)?;
    let databases = keyspace.databases();
    if db >= databases {
        return Err(RdbProblem::Database { number: db as u64, databases });
    }
    let key = keyspace.key(key);
    keyspace.lock(&[key.hash], loading.now_ms).db(keyspace.system_db(db)).insert(&key, value, None);
    Ok(())
}

/// A key in the form in which messages show it.
pub(super) fn shown(key: &[u8]) -> String {
    const BYTES_MAX: usize = 128;
    String::from_utf8_lossy(&key[..key.len().min(BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests;
