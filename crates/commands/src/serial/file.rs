//! [`save`] and [`load`]: RDB files of a whole keyspace, over any writer or reader. The caller chooses the file and the
//! time, and handles functions and errors.
//!
//! A save has the data as of the moment of its [`Snapshot`], and needs memory for one slice of records. A load needs
//! memory for one string, the value under construction, and a [`Batch`] of keys. The caller's `put` brings the batches
//! into the keyspace, on any thread.

use super::batch::Batch;
use super::{BadValue, Builder, build, system, value_type, write};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use strand_keyspace::{Keyspace, Saved, Snapshot, ValueRef};
use strand_rdb::file::{Event, FileReader};
use strand_rdb::value::{Kind, ModuleId, StreamEntries};
use strand_rdb::write::{KeyHead, Writer};
use strand_rdb::{Error, VERSION_WRITTEN};

/// What is saved, and how.
pub struct Saving<'a> {
    /// Names and values at the beginning of the file.
    pub aux: &'a [(&'a str, String)],
    /// Codes of function libraries.
    pub functions: &'a [Vec<u8>],
    /// Commands that make again what is not data, encoded by [`system::encode_command`].
    pub commands: &'a [Vec<u8>],
    /// `rdbcompression`: compress strings that become smaller by it.
    pub compress: bool,
    /// `rdbchecksum`: end the file with a checksum.
    pub checksum: bool,
    /// True writes when each key was last used (`maxmemory-policy` is an LRU policy). False writes how often, under an
    /// LFU policy.
    pub lru: bool,
    /// Unix milliseconds. Keys that have expired by then are left out.
    pub now_ms: i64,
    /// Called about every 64 KiB.
    pub pause: &'a dyn Fn(),
    /// Called after each slice with the number of keys so far. An error ends the save.
    pub progress: &'a dyn Fn(u64) -> io::Result<()>,
}

/// Writes all databases to `out` as an RDB file of version 10. Returns the number of keys.
///
/// # Errors
/// The errors of `out` and of [`Saving::progress`]. The file is then incomplete.
pub fn save(mut snapshot: Snapshot<'_>, saving: &Saving<'_>, out: &mut dyn Write) -> io::Result<u64> {
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
    let (mut keys, mut slice, mut place) = (0, Vec::new(), FileProgress::default());
    while snapshot.next(&mut slice) {
        // A part is freed here, where that may take a while. Most of it is shared.
        for part in slice.drain(..) {
            keys += put_part(&part, &snapshot, saving, &mut place, &mut writer);
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

/// The writer's position in the file.
#[derive(Default)]
struct FileProgress {
    db: Option<usize>,
    /// Databases whose sizes have been written.
    told: BTreeSet<usize>,
}

/// Writes records, without those that have expired. Returns the number of written keys that clients see.
fn put_part(
    part: &Saved,
    snapshot: &Snapshot<'_>,
    saving: &Saving<'_>,
    place: &mut FileProgress,
    writer: &mut Writer<'_>,
) -> u64 {
    let (keyspace, now_ms) = (snapshot.keyspace(), saving.now_ms);
    let under_lfu = keyspace.settings().lfu.load(std::sync::atomic::Ordering::Relaxed) != 0;
    let mut keys = 0;
    for record in part.records() {
        let expires_at_ms = record.expire_at_ms();
        if expires_at_ms.is_some_and(|at| at <= now_ms) {
            continue;
        }
        if part.is_system() {
            let field = system::encode(part.db(), record.key(), record.value(), saving.pause);
            writer.aux(system::NAME, &field);
            continue;
        }
        if place.db != Some(part.db()) {
            select(part.db(), snapshot, place, writer);
        }
        let head = KeyHead {
            expires_at_ms,
            idle_s: saving.lru.then(|| record.idle_s(now_ms).into()),
            freq: under_lfu.then(|| record.frequency(now_ms, keyspace.settings())),
        };
        put_key(record.key(), head, record.value(), writer);
        keys += 1;
    }
    keys
}

/// Selects a database. Records that were written before their turn may return to an earlier database.
fn select(db: usize, snapshot: &Snapshot<'_>, place: &mut FileProgress, writer: &mut Writer<'_>) {
    place.db = Some(db);
    match snapshot.databases().get(&db) {
        Some(keys) if place.told.insert(db) => {
            writer.select_db(db as u64, keys.all as u64, keys.expiring as u64);
        }
        _ => writer.back_to_db(db as u64),
    }
}

fn put_key(key: &[u8], head: KeyHead, value: ValueRef<'_>, writer: &mut Writer<'_>) {
    writer.key(key, head, value_type(value));
    write(value, writer);
}

/// What a file contained.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Keys given to `put`.
    pub keys: u64,
    /// Expired keys, which were skipped.
    pub expired: u64,
    /// Keys with empty collections, which were skipped.
    pub empty: u64,
    /// Codes of function libraries.
    pub functions: Vec<Vec<u8>>,
    /// True when the file has a checksum. It was right.
    pub checksum_verified: bool,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes after the end of the file that were read with its last bytes.
    pub rest: Vec<u8>,
}

/// Why a file was not loaded, and where.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset}: {problem}")]
pub struct NotLoaded {
    /// The bytes read so far.
    pub offset: u64,
    /// What is wrong.
    pub problem: Problem,
}

/// See [`NotLoaded`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The bytes are not an RDB file, or are damaged.
    #[error(transparent)]
    File(#[from] Error),
    /// The file has the key twice, or the key existed before.
    #[error("key {0:?} is there already")]
    Duplicate(String),
    /// A database that the server does not have.
    #[error("database {number}; the server has {databases}")]
    Database {
        /// The number in the file.
        number: u64,
        /// Number of databases of the keyspace.
        databases: usize,
    },
    /// The value contradicts itself, or its type does not exist here.
    #[error("key {key:?}: {what}")]
    Value {
        /// The key.
        key: String,
        /// The problem.
        what: BadValue,
    },
    /// A record of Strand's own in a form that this version does not know.
    #[error("a field {} that this version does not know", String::from_utf8_lossy(system::NAME))]
    System,
    /// A value of a module.
    #[error("key {key:?} has a value of module {module}, which is not there")]
    Module {
        /// The key.
        key: String,
        /// The module's type.
        module: ModuleId,
    },
}

/// Parts of a large value between two reports of progress.
const PARTS_PER_PROGRESS: usize = 512;

/// Fewest bytes of a key with its value in a file.
const KEY_BYTES_MIN: u64 = 4;

/// How a file is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Unix milliseconds.
    pub now_ms: i64,
    /// True keeps expired keys until somebody reads them: the file is the base of an append-only file, whose commands
    /// may name these keys. False skips them.
    pub keep_expired: bool,
    /// True replaces existing keys. False makes them an error.
    pub replace: bool,
    /// Length of the file in bytes. Memory for the keys that it announces is prepared only as far as that many could be in it.
    pub file_bytes: u64,
}

impl Loading {
    /// True for a key that has expired and is passed.
    fn passes(&self, head: KeyHead) -> bool {
        !self.keep_expired && head.expires_at_ms.is_some_and(|at| at <= self.now_ms)
    }
}

/// What is reported while a file is loaded.
pub enum Progress<'a> {
    /// A name and a value about the file.
    Aux(&'a [u8], &'a [u8]),
    /// Reported after each key, and now and then within a large value.
    Read {
        /// Bytes of the file so far.
        bytes: u64,
        /// Keys so far, without skipped ones.
        keys: u64,
    },
}

/// Puts a batch of keys into the keyspace, or passes it to a thread that does.
pub type PutBatch<'p> = dyn FnMut(Batch) -> Result<(), NotLoaded> + 'p;

/// Loads the file from `reader` into `keyspace`, in addition to what is there. `put` gets all keys ([`Batch::put`]), in
/// the order of the file.
///
/// # Errors
/// What is wrong with the file, or the error of `put`. `put` has got the keys before that place.
pub fn load<R: Read>(
    reader: R,
    keyspace: &Keyspace,
    loading: Loading,
    progress: &mut dyn FnMut(Progress<'_>),
    put: &mut PutBatch<'_>,
) -> Result<Loaded, NotLoaded> {
    let reader = FileReader::new(reader, StreamEntries::Nodes);
    let mut reader = reader.map_err(|e| NotLoaded { offset: 0, problem: e.into() })?;
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

/// Why the reading stopped.
enum Stopped {
    /// The problem at this place of the file.
    Here(Problem),
    /// The error of `put`.
    ByPut(NotLoaded),
}

impl From<Problem> for Stopped {
    fn from(problem: Problem) -> Stopped {
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
    // The key under construction. `None` while the parts of a skipped key pass by.
    let (mut key, mut head, mut builder) = (Vec::<u8>::new(), KeyHead::default(), None);
    let mut events = 0usize;
    while let Some(event) = reader.next()? {
        let key_ended = matches!(event, Event::KeyEnd | Event::Key { kind: Kind::String, .. });
        match event {
            Event::SelectDb(number) => {
                let known = usize::try_from(number).ok().filter(|n| *n < databases);
                db = known.ok_or(Problem::Database { number, databases })?;
            }
            Event::Key { key: of, kind: Kind::Module(module), .. } => {
                return Err(Problem::Module { key: shown(&of), module }.into());
            }
            // Most keys of most files: no value is built, the batch gets the bytes.
            Event::Key { key: of, kind: Kind::String, expires_at_ms, idle_s, freq } => {
                head = KeyHead { expires_at_ms, idle_s, freq };
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
                let new = Builder::new(kind).map_err(|what| Problem::Value { key: shown(&of), what })?;
                key.clear();
                key.extend_from_slice(&of);
                builder = Some(new);
                head = KeyHead { expires_at_ms, idle_s, freq };
            }
            Event::Part(part) => {
                if let Some(building) = &mut builder {
                    let added = building.add(part, keyspace.settings());
                    added.map_err(|what| Problem::Value { key: shown(&key), what })?;
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
                Some(Err(what)) => return Err(Problem::Value { key: shown(&key), what }.into()),
                None => {}
            },
            Event::Function(code) => loaded.functions.push(code.into_vec()),
            Event::Aux { name, value } if *name == *system::NAME => put_system(keyspace, &value, loading)?,
            Event::Aux { name, value } => progress(Progress::Aux(&name, &value)),
            Event::ResizeDb { keys, .. } => {
                let most = loading.file_bytes.saturating_sub(reader.offset()) / KEY_BYTES_MIN;
                keyspace.expect(db, keys.min(most) as usize);
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

/// Puts a record of a system database into the keyspace.
fn put_system(keyspace: &Keyspace, field: &[u8], loading: Loading) -> Result<(), Problem> {
    let (db, key, value) = system::decode(field, keyspace.settings(), &|| {}).ok_or(Problem::System)?;
    let databases = keyspace.databases();
    if db >= databases {
        return Err(Problem::Database { number: db as u64, databases });
    }
    let key = keyspace.key(key);
    keyspace.lock(&[key.hash], loading.now_ms).db(keyspace.system_db(db)).insert(&key, value, None);
    Ok(())
}

/// A key as messages show it.
pub(super) fn shown(key: &[u8]) -> String {
    const BYTES_MAX: usize = 128;
    String::from_utf8_lossy(&key[..key.len().min(BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests;
