//! Checking a file: all of it is read and nothing kept but counts. What `strand check rdb` prints.

use std::collections::BTreeMap;
use std::io::Read;

use crate::file::{Event, FileReader};
use crate::value::{Kind, StreamEntries};
use crate::{Dialect, Error};

/// So much of a file's name-value pairs is kept.
const AUX_KEPT_MAX: usize = 64;
const AUX_BYTES_MAX: usize = 256;
/// So many modules' names are kept.
const MODULES_KEPT_MAX: usize = 64;
/// Of the latest key, so much is kept.
const KEY_BYTES_MAX: usize = 256;

/// What a file has, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its RDB version; 0 when there is no header.
    pub version: u16,
    /// Valkey's own form.
    pub valkey: bool,
    /// Bytes read, which is where an error was noticed.
    pub bytes: u64,
    /// What the file says of itself.
    pub aux: Vec<(String, String)>,
    /// Keys, and keys that expire, of each database.
    pub databases: BTreeMap<u64, (u64, u64)>,
    /// Keys and elements of each type, by Redis's name of the type.
    pub types: BTreeMap<&'static str, (u64, u64)>,
    /// Libraries of functions.
    pub functions: u64,
    /// Modules that have values or other data in the file.
    pub modules: BTreeMap<String, u64>,
    /// The file has a checksum, and it is right.
    pub checksum_verified: bool,
    /// The latest key, for an error's message.
    pub key: Option<String>,
}

/// Reads a whole file: its report, which at an error says how far it was read. `progress` is called with the bytes read.
///
/// Every value's format is checked, streams' entries too; that elements of a collection differ is not.
pub fn check<R: Read>(reader: R, progress: &mut dyn FnMut(u64)) -> (Report, Result<(), Error>) {
    let (report, done) = check_file(reader, progress);
    (report, done.map(drop))
}

/// As [`check`], for a file that something follows, which begins with the bytes that are given back and goes on in the
/// reader.
pub fn check_start<R: Read>(reader: R) -> (Report, Result<(R, Vec<u8>), Error>) {
    let (report, done) = check_file(reader, &mut |_| {});
    (report, done.map(|file| file.into_source().into_parts()))
}

fn check_file<R: Read>(reader: R, progress: &mut dyn FnMut(u64)) -> (Report, Result<FileReader<R>, Error>) {
    let mut report = Report::default();
    let mut file = match FileReader::new(reader, StreamEntries::Single) {
        Ok(file) => file,
        Err(e) => return (report, Err(e)),
    };
    report.version = file.version();
    report.valkey = file.dialect() == Dialect::Valkey;
    let done = read(&mut file, &mut report, progress);
    report.bytes = file.offset();
    (report, done.map(|()| file))
}

fn read<R: Read>(
    file: &mut FileReader<R>,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    /// Events between two looks at the progress.
    const PROGRESS_EVENTS: u64 = 4096;
    let (mut db, mut name, mut elements, mut events) = (0, "", 0, 0u64);
    while let Some(event) = file.next()? {
        match event {
            Event::Aux { name, value } => {
                if report.aux.len() < AUX_KEPT_MAX {
                    report.aux.push((shown(&name, AUX_BYTES_MAX), shown(&value, AUX_BYTES_MAX)));
                }
            }
            Event::SelectDb(number) => db = number,
            Event::Function(_) => report.functions += 1,
            Event::ModuleAux(module) => count_module(report, module.to_string()),
            Event::Key { key, kind, expires_at_ms, .. } => {
                report.key = Some(shown(&key, KEY_BYTES_MAX));
                let of_db = report.databases.entry(db).or_default();
                of_db.0 += 1;
                of_db.1 += u64::from(expires_at_ms.is_some());
                (name, elements) = (type_name(kind), 0);
                if let Kind::Module(module) = kind {
                    count_module(report, module.to_string());
                }
            }
            Event::Part(_) => elements += 1,
            Event::KeyEnd => {
                let of_type = report.types.entry(name).or_default();
                of_type.0 += 1;
                of_type.1 += elements;
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

fn count_module(report: &mut Report, name: String) {
    if report.modules.len() < MODULES_KEPT_MAX || report.modules.contains_key(&name) {
        *report.modules.entry(name).or_default() += 1;
    }
}

fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::List => "list",
        Kind::Set => "set",
        Kind::SortedSet => "zset",
        Kind::Hash => "hash",
        Kind::Stream => "stream",
        Kind::Module(_) => "module",
    }
}

/// The beginning of `bytes` as a message has it: printable, control characters escaped.
fn shown(bytes: &[u8], bytes_max: usize) -> String {
    bytes[..bytes.len().min(bytes_max)].escape_ascii().to_string()
}
