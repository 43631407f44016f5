//! Checks a file: reads all of it and keeps only counts. `strand check rdb` prints the result.

use std::collections::BTreeMap;
use std::io::Read;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::file::{Event, FileReader};
use crate::value::{StreamEntries, ValueKind};
use crate::{Dialect, Error};

/// Maximum number of name-value pairs kept of a file.
const AUX_KEPT_MAX: usize = 64;
const AUX_BYTES_MAX: usize = 256;
/// Maximum number of module names kept.
const MODULES_KEPT_MAX: usize = 64;
/// Maximum number of bytes kept of the latest key.
const KEY_BYTES_MAX: usize = 256;

/// The contents of a file, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The file's RDB version; 0 when the file has no header.
    pub version: u16,
    /// True when the file is in Valkey's own format.
    pub valkey: bool,
    /// Number of bytes read. After an error, the position at which the error was noticed.
    pub bytes: u64,
    /// The name-value pairs that describe the file.
    pub aux: Vec<(String, String)>,
    /// For each database: the number of keys, and the number of keys that expire.
    pub databases: BTreeMap<u64, (u64, u64)>,
    /// For each type, by Redis's name: the number of keys, and the number of their elements.
    pub types: BTreeMap<&'static str, (u64, u64)>,
    /// Number of function libraries.
    pub functions: u64,
    /// Modules with values or other data in the file.
    pub modules: BTreeMap<String, u64>,
    /// True when the file has a checksum and it is correct.
    pub checksum_verified: bool,
    /// The latest key, for an error message.
    pub key: Option<String>,
}

/// Reads a whole file. The report of a broken file covers the part before the error. `progress` is called with the
/// number of bytes read.
///
/// The format of every value is checked, including the entries of streams. A key that occurs twice in one database is
/// an error, as it is for a server that loads the file. A server skips keys that expired before `now_ms`, and empty
/// collections, so these may occur twice. Duplicate elements of a collection are not detected.
pub fn check<R: Read>(reader: R, now_ms: i64, progress: &mut dyn FnMut(u64)) -> (Report, Result<(), Error>) {
    let (report, done) = check_file(reader, now_ms, progress);
    (report, done.map(drop))
}

/// Checks a file that is followed by other data, as [`check`] does. Returns the first bytes of that data and the
/// reader with the rest. A server loads expired keys of this file too, because commands after the file may name them.
pub fn check_start<R: Read>(reader: R) -> (Report, Result<(R, Vec<u8>), Error>) {
    let (report, done) = check_file(reader, i64::MIN, &mut |_| {});
    (report, done.map(|file| file.into_source().into_parts()))
}

fn check_file<R: Read>(
    reader: R,
    now_ms: i64,
    progress: &mut dyn FnMut(u64),
) -> (Report, Result<FileReader<R>, Error>) {
    let mut report = Report::default();
    let mut file = match FileReader::new(reader, StreamEntries::Single) {
        Ok(file) => file,
        Err(e) => return (report, Err(e)),
    };
    report.version = file.version();
    report.valkey = file.dialect() == Dialect::Valkey;
    let done = read(&mut file, now_ms, &mut report, progress);
    report.bytes = file.offset();
    (report, done.map(|()| file))
}

fn read<R: Read>(
    file: &mut FileReader<R>,
    now_ms: i64,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    /// Number of events between two calls of `progress`.
    const PROGRESS_EVENTS: u64 = 4096;
    let (mut db, mut name, mut elements, mut events) = (0, "", 0, 0u64);
    // The mark of the latest key, if a server would load the key.
    let (mut seen, mut mark, mut may_be_empty) = (Seen::new(), None, false);
    while let Some(event) = file.next()? {
        match event {
            Event::Aux { name, value } => {
                if report.aux.len() < AUX_KEPT_MAX {
                    report.aux.push((printable(&name, AUX_BYTES_MAX), printable(&value, AUX_BYTES_MAX)));
                }
            }
            Event::SelectDb(number) => db = number,
            Event::Function(_) => report.functions += 1,
            Event::ModuleAux(module) => count_module(report, module.to_string()),
            Event::Key { key, kind, expires_at_ms, .. } => {
                report.key = Some(printable(&key, KEY_BYTES_MAX));
                let of_db = report.databases.entry(db).or_default();
                of_db.0 += 1;
                of_db.1 += u64::from(expires_at_ms.is_some());
                (name, elements) = (kind.type_name(), 0);
                let is_loaded = expires_at_ms.is_none_or(|at| at > now_ms);
                mark = is_loaded.then(|| seen.mark(db, &key));
                may_be_empty = kind.may_be_empty();
                if let ValueKind::Module(module) = kind {
                    count_module(report, module.to_string());
                }
            }
            Event::Part(_) => elements += 1,
            Event::KeyEnd => {
                let of_type = report.types.entry(name).or_default();
                of_type.0 += 1;
                of_type.1 += elements;
                let is_loaded = may_be_empty || elements > 0;
                if let Some(mark) = mark.filter(|_| is_loaded)
                    && !seen.add(mark)
                {
                    return Err(Error::DuplicateKey);
                }
            }
            Event::ResizeDb { .. } | Event::SlotInfo { .. } | Event::SlotImport { .. } => {}
            Event::End { checksum_verified } => report.checksum_verified = checksum_verified,
        }
        events += 1;
        if events.is_multiple_of(PROGRESS_EVENTS) {
            progress(file.offset());
        }
    }
    report.key = None;
    Ok(())
}

/// The keys so far, as marks of 16 bytes each. Each key takes bytes of the file,
/// so the memory is in proportion to the file.
struct Seen {
    hashers: [RandomState; 2],
    marks: HashTable<u128>,
}

impl Seen {
    fn new() -> Seen {
        Seen { hashers: [RandomState::new(), RandomState::new()], marks: HashTable::new() }
    }
    /// 128 bits of keyed hash. Two keys have equal marks with a chance of less than 2^-60 in a file of 2^34 keys.
    fn mark(&self, db: u64, key: &[u8]) -> u128 {
        let [a, b] = &self.hashers;
        u128::from(a.hash_one((db, key))) << 64 | u128::from(b.hash_one((db, key)))
    }
    /// Adds the mark of a key. False when the mark was added before.
    fn add(&mut self, mark: u128) -> bool {
        let is_new = self.marks.find(mark as u64, |known| *known == mark).is_none();
        if is_new {
            self.marks.insert_unique(mark as u64, mark, |mark| *mark as u64);
        }
        is_new
    }
}

fn count_module(report: &mut Report, name: String) {
    if report.modules.len() < MODULES_KEPT_MAX || report.modules.contains_key(&name) {
        *report.modules.entry(name).or_default() += 1;
    }
}

/// The start of `bytes` for a message: printable, with control characters escaped.
fn printable(bytes: &[u8], bytes_max: usize) -> String {
    bytes[..bytes.len().min(bytes_max)].escape_ascii().to_string()
}
