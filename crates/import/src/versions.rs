//! The server's records of a dataset: the recorded containers, and the intents of runs that were cut short.
//!
//! A dataset's version has up to two containers for each folder. The *recorded* container says which documents the
//! server certainly holds. Its name is the folder's path, or `.` for the root. The *intent* is the listing of a run
//! that has begun to change the folder and has not ended. Its name is the path and a slash. [`load`] merges both, so a
//! run knows every document that may be at the server, even a document that an interrupted run added and the source has
//! lost since. [`load`] also asks the server which recorded documents exist, so that a run restores documents that were
//! evicted or deleted.

use crate::ImportError;
use crate::connection::{Connection, refused};
use crate::container::{Container, ContainerBuilder, ContainerError, Entry, EntryKind};
use crate::document::{EXTRACTOR_VERSION, is_declared_mail};
use crate::job::{join, unknown_counts_note};
use crate::sink::Sink;
use crate::source::FLAGS_KEY;
use std::borrow::Cow;
use std::collections::HashSet;
use strand_wire::client::Value;

/// Number of keys in one EXISTS.
const KEYS_PER_EXISTS: usize = 64;
/// Maximum number of EXISTS or TYPE commands without a reply. Their replies fit into the socket's buffers, so the
/// server never waits for the importer to read.
const QUERIES_IN_FLIGHT_MAX: usize = 64;

/// The command that reads and writes versions.
pub const COMMAND: &str = "IMPORT.VERSION";
/// The note with the digest of a document's bytes. An entry has the note exactly when the server holds the document.
pub const DIGEST_NOTE: &[u8] = b"~digest";
/// The note of a document that holds other documents: the number of these documents (8 bytes), and how many of them
/// failed (8 bytes).
pub const INNER_NOTE: &[u8] = b"~inner";
/// The note of a doubtful entry: the server may or may not hold its document. For a container: the server may hold a
/// document in the container's place.
pub const MAYBE_NOTE: &[u8] = b"~maybe";
/// The value of [`MAYBE_NOTE`] when it is unknown whether the server has the document's key.
pub(crate) const UNKNOWN: &[u8] = b"1";
/// The value of [`MAYBE_NOTE`] when the server has the document's key. The document may be of any version.
const PRESENT: &[u8] = b"2";
/// The value of [`MAYBE_NOTE`] when the sink cannot tell which documents it has.
const UNTOLD: &[u8] = b"3";

/// True when the server has the key of the document. A run that sends the document updates it.
pub(crate) fn is_present(entry: &Entry<'_>) -> bool {
    entry.get(DIGEST_NOTE).is_some() || entry.get(MAYBE_NOTE) == Some(PRESENT)
}

/// True when the removal of the document counts as a loss: the sink has the document, or cannot tell.
pub(crate) fn may_be_lost(entry: &Entry<'_>) -> bool {
    is_present(entry) || entry.get(MAYBE_NOTE) == Some(UNTOLD)
}

/// This bit of a record's producer says that the run imported attachments.
const ATTACHMENTS: u16 = 1 << 15;

const _: () = assert!(EXTRACTOR_VERSION < MIXED);

/// The producer of a record.
pub(crate) fn producer(attachments: bool) -> u16 {
    if attachments { EXTRACTOR_VERSION | ATTACHMENTS } else { EXTRACTOR_VERSION }
}

/// This bit of an intent's producer says that the run adds or removes attachments. So at the server some
/// mails may have their attachments, and others may not.
const MIXED: u16 = 1 << 14;

/// The intent of a container with this listing, and what the run does with attachments. The intent includes the documents
/// of an earlier intent.
pub(crate) fn intent<'a>(
    known: &KnownContainer,
    listing: &'a [u8],
    attachments: bool,
    is_mixed: bool,
) -> Result<Cow<'a, [u8]>, ContainerError> {
    let intent = match known.interrupted {
        true => Cow::Owned(merge(&known.blob, listing)?),
        false => Cow::Borrowed(listing),
    };
    if !attachments && !is_mixed {
        return Ok(intent);
    }
    let producer = producer(attachments) | if is_mixed { MIXED } else { 0 };
    with_producer(Container::parse(&intent)?, producer).map(Cow::Owned)
}

/// The blob of a container that differs only in its producer.
fn with_producer(container: Container<'_>, producer: u16) -> Result<Vec<u8>, ContainerError> {
    let mut builder = ContainerBuilder::new(producer);
    container.iter().try_for_each(|entry| push_unchanged(&mut builder, &entry))?;
    builder.finish()
}

/// True when the run with this producer of the intent was cut short, and a run with `attachments` must open every mail of
/// the container again.
pub(crate) fn is_mixed(intent_producer: u16, attachments: bool) -> bool {
    intent_producer & MIXED != 0 || (intent_producer & ATTACHMENTS != 0) != attachments
}

/// The container as if an extractor of version 0 had made its documents. A run then sends every document again.
///
/// # Errors
/// Those of [`ContainerBuilder`]; none for a container that was parsed.
pub(crate) fn outdated(container: Container<'_>) -> Result<Vec<u8>, ContainerError> {
    with_producer(container, container.producer() & (ATTACHMENTS | MIXED))
}

/// The version of the extractor that made the fields of the container's documents.
pub(crate) fn extractor(container: Container<'_>) -> u16 {
    container.producer() & !(ATTACHMENTS | MIXED)
}

/// True when the run that recorded the container imported attachments.
pub(crate) fn has_attachments(container: Container<'_>) -> bool {
    container.producer() & ATTACHMENTS != 0
}

/// The name under which the container at `path` is recorded.
pub fn recorded_name(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path.to_vec() }
}

/// The name of the container's intent. No recorded name ends in a slash.
pub fn intent_name(path: &[u8]) -> Vec<u8> {
    let mut name = recorded_name(path);
    name.push(b'/');
    name
}

/// What a run knows about one container before the run changes it.
#[derive(Debug)]
pub struct KnownContainer {
    /// The recorded container. Empty when nothing was recorded.
    pub blob: Vec<u8>,
    /// True when the server has a record of the container.
    pub recorded: bool,
    /// True when a run was cut short in this container. Then `blob` is the merge of record and intent.
    pub interrupted: bool,
    /// The producer of the intent, if a run was cut short in this container. See [`intent`].
    pub intent_producer: Option<u16>,
}

impl KnownContainer {
    /// True when the server has a record or an intent of the container.
    pub(crate) fn is_known(&self) -> bool {
        self.recorded || self.interrupted
    }
}

/// Reads the record of the container `path`, and asks the server which of its documents exist. `part`: if `path` is a
/// part of a container that was recorded in one piece, the entries of that record that belong to this part. No command
/// may wait for a reply.
///
/// # Errors
/// [`ImportError`]. A damaged container is [`ImportError::Damaged`].
pub(crate) fn load(
    records: &mut dyn Sink,
    dataset: &str,
    path: &[u8],
    part: Option<Vec<u8>>,
) -> Result<KnownContainer, ImportError> {
    let names = [recorded_name(path), intent_name(path)];
    let mut found = records.read(&names)?;
    let intent = found.pop().flatten();
    let recorded = found.pop().flatten();
    let (is_recorded, interrupted) = (recorded.is_some(), intent.is_some());
    let mut blob = recorded.or(part).unwrap_or_else(|| ContainerBuilder::empty(EXTRACTOR_VERSION));
    let mut intent_producer = None;
    if let Some(intent) = intent {
        intent_producer = Container::parse(&intent).ok().map(|intent| intent.producer());
        blob = merge(&blob, &intent).map_err(|error| damaged(dataset, &names[1], error))?;
    }
    if let Some(with) = with_presence(records, dataset, path, &blob)? {
        blob = with;
    }
    Ok(KnownContainer { blob, recorded: is_recorded, interrupted, intent_producer })
}

/// Reads the containers of these names in one pipeline. No command may wait for a reply on the connection.
///
/// # Errors
/// As [`load`].
pub(crate) fn read(
    connection: &mut Connection,
    dataset: &str,
    names: &[Vec<u8>],
) -> Result<Vec<Option<Vec<u8>>>, ImportError> {
    for name in names {
        connection.send(&[COMMAND.as_bytes(), b"GET", dataset.as_bytes(), name])?;
    }
    let mut blobs = Vec::with_capacity(names.len());
    for name in names {
        // Read all replies before the first is checked: an early return would leave replies unread on the connection.
        blobs.push((name, connection.receive_container()?));
    }
    let check = |(name, value): (&Vec<u8>, Value)| match value {
        Value::Null => Ok(None),
        Value::Bulk(blob) => {
            Container::parse(&blob).map_err(|error| damaged(dataset, name, error))?;
            Ok(Some(blob))
        }
        Value::Error(text) => Err(refused(&[COMMAND, "GET"], &text)),
        other => Err(unexpected(&other)),
    };
    blobs.into_iter().map(check).collect()
}

/// Reads the recorded container of `path`, without the intent of a run that was cut short. No command may wait for a
/// reply on the connection.
///
/// # Errors
/// As [`load`].
pub(crate) fn recorded(
    connection: &mut Connection,
    dataset: &str,
    path: &[u8],
) -> Result<Option<Vec<u8>>, ImportError> {
    Ok(read(connection, dataset, &[recorded_name(path)])?.pop().flatten())
}

/// Merges the recorded container with the intent of a run that was cut short. That run may have added, sent or removed
/// some documents. Their entries get [`MAYBE_NOTE`] and no token, so the next run sends these documents whole, or
/// removes them.
pub(crate) fn merge(recorded: &[u8], intent: &[u8]) -> Result<Vec<u8>, ContainerError> {
    let (recorded, intent) = (Container::parse(recorded)?, Container::parse(intent)?);
    let is_mixed = intent.producer() & MIXED != 0;
    let may_hold_documents = unknown_counts_note();
    let mut builder = ContainerBuilder::new(recorded.producer());
    for entry in recorded.iter() {
        let intended = intent.find(entry.name);
        let has_other_kind = intended.is_some_and(|intended| intended.kind != entry.kind);
        let untouched = intended.is_some_and(|intended| {
            let facts = |e: &Entry<'_>| (e.kind, e.token.to_vec(), e.get(FLAGS_KEY).map(<[u8]>::to_vec));
            !entry.token.is_empty() && facts(&intended) == facts(&entry)
        });
        // An intent of a second run that was cut short has the doubts of the first one as notes.
        let has_doubt =
            |note| has_other_kind || intended.is_some_and(|intended| intended.get(note).is_some());
        // Below the document there may be documents of a folder in its place, or attachments.
        let may_hold = has_doubt(INNER_NOTE) || is_mixed && is_declared_mail(&entry);
        let may_hold = may_hold && entry.get(INNER_NOTE).is_none();
        match entry.kind {
            EntryKind::Container if has_doubt(MAYBE_NOTE) => {
                push_with(&mut builder, &entry, MAYBE_NOTE, UNKNOWN)?
            }
            EntryKind::Container => push_unchanged(&mut builder, &entry)?,
            EntryKind::Document if untouched && may_hold => {
                push_with(&mut builder, &entry, INNER_NOTE, &may_hold_documents)?;
            }
            EntryKind::Document if untouched => push_unchanged(&mut builder, &entry)?,
            EntryKind::Document => {
                let inner = may_hold.then_some(&may_hold_documents[..]);
                push_doubtful(&mut builder, &entry, inner)?;
            }
        }
    }
    for entry in intent.iter().filter(|e| recorded.find(e.name).is_none()) {
        push_doubtful(&mut builder, &entry, None)?;
    }
    builder.finish()
}

/// Adds the entry unchanged.
fn push_unchanged(builder: &mut ContainerBuilder, entry: &Entry<'_>) -> Result<(), ContainerError> {
    builder.push(entry.kind, entry.name, entry.size, entry.token, entry.pairs())
}

/// Adds the entry with one more note.
fn push_with(
    builder: &mut ContainerBuilder,
    entry: &Entry<'_>,
    note: &[u8],
    value: &[u8],
) -> Result<(), ContainerError> {
    let pairs = entry.pairs().filter(|(key, _)| *key != note).chain([(note, value)]);
    builder.push(entry.kind, entry.name, entry.size, entry.token, pairs)
}

/// Adds the entry with [`MAYBE_NOTE`], and with `inner` as [`INNER_NOTE`] if it has none. Its token, its
/// other notes and its metadata are dropped, except the flags, which tell that the document is a mail.
fn push_doubtful(
    builder: &mut ContainerBuilder,
    entry: &Entry<'_>,
    inner: Option<&[u8]>,
) -> Result<(), ContainerError> {
    let flags = entry.get(FLAGS_KEY).map(|flags| (FLAGS_KEY, flags));
    let inner = entry.get(INNER_NOTE).or(inner).map(|note| (INNER_NOTE, note));
    let pairs = flags.into_iter().chain([(MAYBE_NOTE, UNKNOWN)]).chain(inner);
    builder.push(entry.kind, entry.name, entry.size, &[], pairs)
}

/// Asks the server which documents of the container exist. Returns the container with [`MAYBE_NOTE`] on the missing
/// documents, with [`PRESENT`] on the doubtful documents that exist, and with [`UNKNOWN`] on those that do not. `None` when
/// no entry changes.
fn with_presence(
    records: &mut dyn Sink,
    dataset: &str,
    path: &[u8],
    blob: &[u8],
) -> Result<Option<Vec<u8>>, ImportError> {
    let container = Container::parse(blob).map_err(|error| damaged(dataset, path, error))?;
    let is_held = |entry: &Entry<'_>| entry.get(DIGEST_NOTE).is_some();
    let is_doubtful = |entry: &Entry<'_>| entry.get(MAYBE_NOTE).is_some();
    let asked: Vec<Entry<'_>> = container.iter().filter(|e| is_held(e) || is_doubtful(e)).collect();
    let names: Vec<&[u8]> = asked.iter().map(|entry| entry.name).collect();
    let missing = records.missing(path, &names)?;
    let found = if missing.is_some() { PRESENT } else { UNTOLD };
    let missing = missing.unwrap_or_default();
    if missing.is_empty() && !asked.iter().any(is_doubtful) {
        return Ok(None);
    }
    let push = |builder: &mut ContainerBuilder, entry: Entry<'_>| match missing.contains(entry.name) {
        true if entry.kind == EntryKind::Container => push_with(builder, &entry, MAYBE_NOTE, UNKNOWN),
        true => push_doubtful(builder, &entry, None),
        false if is_doubtful(&entry) => push_with(builder, &entry, MAYBE_NOTE, found),
        _ => push_unchanged(builder, &entry),
    };
    let mut builder = ContainerBuilder::new(container.producer());
    let pushed = container.iter().try_for_each(|entry| push(&mut builder, entry));
    let finished = pushed.and_then(|()| builder.finish());
    finished.map(Some).map_err(|error| damaged(dataset, path, error))
}

/// Asks which of the documents `names` of the container `path` are missing at the server. No command may wait for a
/// reply on the connection.
///
/// # Errors
/// As [`load`].
pub(crate) fn missing<'a>(
    connection: &mut Connection,
    dataset: &str,
    path: &[u8],
    names: &[&'a [u8]],
) -> Result<HashSet<&'a [u8]>, ImportError> {
    let key = |name: &[u8]| [dataset.as_bytes(), b":", &join(path, name)].concat();
    let mut missing = HashSet::new();
    for names in names.chunks(KEYS_PER_EXISTS * QUERIES_IN_FLIGHT_MAX) {
        // First many keys in one EXISTS, then one EXISTS for each key of a group of which a key is missing.
        let groups: Vec<_> = names.chunks(KEYS_PER_EXISTS).collect();
        let keys_of_groups = groups.iter().map(|names| names.iter().map(|name| key(name)).collect());
        let incomplete: Vec<_> = groups
            .iter()
            .zip(count_existing(connection, keys_of_groups)?)
            .filter(|(names, existing)| names.len() as i64 != *existing)
            .flat_map(|(names, _)| names.iter().copied())
            .collect();
        for names in incomplete.chunks(QUERIES_IN_FLIGHT_MAX) {
            let existing = count_existing(connection, names.iter().map(|name| vec![key(name)]))?;
            let with_counts = names.iter().copied().zip(existing);
            missing.extend(with_counts.filter(|(_, existing)| *existing == 0).map(|(name, _)| name));
        }
    }
    Ok(missing)
}

/// Returns for each key whether it is a hash. No command may wait for a reply on the connection.
///
/// # Errors
/// As [`load`].
pub(crate) fn are_hashes(connection: &mut Connection, keys: &[Vec<u8>]) -> Result<Vec<bool>, ImportError> {
    let mut replies = Vec::with_capacity(keys.len());
    for keys in keys.chunks(QUERIES_IN_FLIGHT_MAX) {
        for key in keys {
            connection.send(&[&b"TYPE"[..], key])?;
        }
        // Read all replies before the first is checked: an early return would leave replies unread on the connection.
        for _ in keys {
            replies.push(connection.receive()?);
        }
    }
    let check = |value| match value {
        Value::Simple(name) => Ok(name == b"hash"[..]),
        Value::Error(text) => Err(refused(&["TYPE"], &text)),
        other => Err(unexpected(&other)),
    };
    replies.into_iter().map(check).collect()
}

/// Sends one EXISTS for each group of keys. Returns for each group the number of its keys that exist.
fn count_existing(
    connection: &mut Connection,
    groups: impl Iterator<Item = Vec<Vec<u8>>>,
) -> Result<Vec<i64>, ImportError> {
    let mut sent = 0;
    for keys in groups {
        let words: Vec<&[u8]> = [&b"EXISTS"[..]].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
        connection.send(&words)?;
        sent += 1;
    }
    // Read all replies before the first is checked: an early return would leave replies unread on the connection.
    let replies = (0..sent).map(|_| connection.receive()).collect::<Result<Vec<_>, _>>()?;
    let count = |value| match value {
        Value::Int(n) => Ok(n),
        Value::Error(text) => Err(refused(&["EXISTS"], &text)),
        other => Err(unexpected(&other)),
    };
    replies.into_iter().map(count).collect()
}

pub(crate) fn damaged(dataset: &str, name: &[u8], error: ContainerError) -> ImportError {
    let path = String::from_utf8_lossy(name).into_owned();
    ImportError::Damaged { dataset: dataset.to_owned(), path, error }
}

/// The error for a reply of the wrong kind.
pub(crate) fn unexpected(value: &Value) -> ImportError {
    let kind = match value {
        Value::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
        Value::Int(n) => format!(":{n}"),
        Value::Bulk(bytes) => format!("a bulk string of {} bytes", bytes.len()),
        _ => "an aggregate".to_owned(),
    };
    ImportError::Refused { command: COMMAND.to_owned(), text: format!("unexpected reply: {kind}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_trusts_only_what_the_cut_run_did_not_touch() {
        let digest = [(&b"~digest"[..], &b"d"[..])];
        let mut recorded = ContainerBuilder::new(3);
        for name in [&b"changed"[..], b"gone", b"same"] {
            recorded.push(EntryKind::Document, name, 1, b"t", digest).unwrap();
        }
        let mut intent = ContainerBuilder::new(0);
        intent.push(EntryKind::Document, b"changed", 2, b"u", []).unwrap();
        intent.push(EntryKind::Container, b"new", 0, b"v", []).unwrap();
        intent.push(EntryKind::Document, b"same", 1, b"t", []).unwrap();
        let merged = merge(&recorded.finish().unwrap(), &intent.finish().unwrap()).unwrap();
        let merged = Container::parse(&merged).unwrap();
        assert_eq!((merged.len(), merged.producer()), (4, 3));
        for (i, (name, token)) in
            [("changed", ""), ("gone", ""), ("new", ""), ("same", "t")].into_iter().enumerate()
        {
            let entry = merged.entry(i);
            assert_eq!((entry.name, entry.token), (name.as_bytes(), token.as_bytes()));
            assert_eq!(entry.get(b"~digest").is_some(), name == "same", "{name}");
            assert_eq!(entry.get(MAYBE_NOTE).is_some(), name != "same", "{name}");
        }
    }

    #[test]
    fn names_of_the_root_and_of_folders() {
        assert_eq!((recorded_name(b""), intent_name(b"")), (b".".to_vec(), b"./".to_vec()));
        assert_eq!((recorded_name(b"a/b"), intent_name(b"a/b")), (b"a/b".to_vec(), b"a/b/".to_vec()));
    }
}
