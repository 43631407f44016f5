//! Imports the documents in archives. An archive is opened in its place, and imported like a folder.
//!
//! An archive is a document that holds documents. The archive's own hash has only its name and size. The containers in
//! the archive are recorded below the archive's path, like the containers of a folder. The archive's entry notes the
//! number of documents in the archive, and how many of them failed ([`INNER_NOTE`]). An archive with an unchanged token
//! is opened only if a document in it is missing at the server, or if a failure in it may pass
//! ([`Job::keep_archive`]). Other failures are reported again from the records. The note of a large mailbox also has
//! the mailbox's [`Prefix`] and the digest of the record of its messages. So a mailbox that only grew is read from its
//! former end on.

use super::failed::ImportMode;
use super::moves::Departure;
use super::{ERROR_NOTE, Job, Level, documents_in, join, view};
use crate::ImportError;
use crate::container::{Container, ContainerDigest, Entry, EntryKind};
use crate::diff::{Change, diff};
use crate::document::{EXTRACTOR_VERSION, is_declared_mail};
use crate::source::archive::{Archive, ArchiveBudget, Format, Prefix, Window};
use crate::source::{FLAGS_KEY, Object, ReadError, Source};
use crate::versions::{self, INNER_NOTE, MAYBE_NOTE};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::rc::Rc;

/// Bytes of the note of an archive: the number of documents, and the number of failures.
const COUNTS_BYTES: usize = 16;
/// Bytes of the note of an archive that could not be opened, and cannot be opened before it changes: the two numbers,
/// and one byte more.
const LASTING_NOTE_BYTES: usize = COUNTS_BYTES + 1;
/// Bytes of the note of a large mailbox: the two numbers, the prefix, and the digest of the record.
const MAILBOX_NOTE_BYTES: usize = COUNTS_BYTES + Prefix::BYTES + size_of::<ContainerDigest>();
/// Number of bytes at the beginning of a document that decide whether the document is an archive.
const BEGINNING_BYTES: usize = 1024;
/// Number of bytes at the beginning of a document that an error shows.
const BEGINNING_SHOWN_BYTES: usize = 24;

/// The opened archives of a folder, by name.
pub(super) type Nested = BTreeMap<Vec<u8>, Opened>;

/// An archive that was opened, or that was kept without being opened.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The value of [`INNER_NOTE`]. `None` when the document is not an archive any more.
    pub(super) note: Option<Vec<u8>>,
    /// The kind of the archive's document. `None` for a mail.
    pub(super) kind: Option<&'static str>,
    /// The reason why the archive could not be opened.
    pub(super) error: Option<String>,
}

/// Numbers of the recorded documents in an archive.
#[derive(Default)]
struct RecordedCounts {
    /// Documents that the server holds.
    held: u64,
    /// Documents that failed.
    failed: u64,
}

/// The archive whose documents the job imports now.
#[derive(Default)]
pub(super) struct CurrentArchive {
    /// The archive's document id. Empty while the job is not in an archive.
    id: Vec<u8>,
    /// Number of archives around the current documents. 0 outside of archives.
    depth: usize,
    budget: Option<Rc<ArchiveBudget>>,
    /// Number of reads of the source that had failed when the outermost archive was opened.
    failures_before: u64,
    /// True when a retry imports the whole archive, because the archive has changed or failed as a whole.
    is_whole: bool,
}

/// A document that may be an archive.
struct Candidate<'a> {
    entry: &'a Entry<'a>,
    /// True when the document may be a mail with attachments.
    mail: bool,
    /// The document's path.
    child: &'a [u8],
    /// The note of the last run that opened the document as an archive.
    recorded: Option<&'a [u8]>,
    /// See [`CurrentArchive::is_whole`].
    is_whole: bool,
}

impl CurrentArchive {
    /// True when a retry lists the whole archive, and not only the documents that failed.
    pub(super) fn is_whole(&self) -> bool {
        self.depth > 0 && self.is_whole
    }
    /// The archive's document id. `None` outside of archives.
    pub(super) fn id(&self) -> Option<&[u8]> {
        (self.depth > 0).then_some(&self.id)
    }
    /// Converts `path`, a path in the dataset, to a path in the archive. Outside of archives both are equal.
    pub(super) fn path<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match self.depth {
            0 => path,
            _ => path.get(self.id.len() + 1..).unwrap_or_default(),
        }
    }
}

/// When [`Job::remove_nested`] and [`Job::remove_children`] remove what the source has lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalPass {
    /// Before documents are added: removes what would collide with the ids of added documents.
    BeforeAdditions,
    /// After documents were added: removes everything else. Documents that moved away were copied by then.
    AfterAdditions,
}

/// True when containers may be recorded below the document's path.
pub(super) fn may_contain_documents(entry: &Entry<'_>) -> bool {
    let is_doubtful_archive =
        entry.get(MAYBE_NOTE).is_some() && (Format::is_archive_name(entry.name) || is_declared_mail(entry));
    entry.kind == EntryKind::Document && (entry.get(INNER_NOTE).is_some() || is_doubtful_archive)
}

/// True when the recorded document `entry` stands for a folder of `new` that a run was cut short in. The folder has a
/// record of its own, and the next run goes on from there.
pub(super) fn goes_on_as_folder(entry: &Entry<'_>, new: Container<'_>) -> bool {
    new.find(entry.name).is_some_and(|new| new.kind == EntryKind::Container)
        && entry.get(MAYBE_NOTE).is_some()
        && entry.get(INNER_NOTE) == Some(&unknown_counts_note()[..])
}

/// Reads the number of documents and the number of failures from an archive's note.
pub(super) fn counts(note: &[u8]) -> (u64, u64) {
    let number = |range: std::ops::Range<usize>| {
        let bytes = note.get(range).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    // No importer writes a note of another length. One failure makes the run open the archive again.
    match note.len() {
        COUNTS_BYTES | LASTING_NOTE_BYTES | MAILBOX_NOTE_BYTES => (number(0..8), number(8..16)),
        _ => (0, 1),
    }
}

/// True when the document at the new place may be the moved document `moved`. `opened` is the result of opening the
/// document at the new place as an archive. The document of an archive file is never copied: it has only name and size.
pub(super) fn matches_move(opened: Option<&Opened>, moved: &Departure) -> bool {
    let archive = opened.filter(|opened| opened.note.is_some());
    moved.is_archive == archive.is_some()
        && archive.is_none_or(|archive| archive.kind.is_none() && archive.error.is_none())
}

/// The note of an archive with this number of documents, of which `failed` failed.
fn counts_note(documents: u64, failed: u64) -> Vec<u8> {
    [documents.to_le_bytes(), failed.to_le_bytes()].concat()
}

/// The note of a document that may hold documents, after a run that was cut short: no document, and one failure. So a run
/// opens the document, or removes what is below it.
pub(crate) fn unknown_counts_note() -> Vec<u8> {
    counts_note(0, 1)
}

/// Reads from a mailbox's note the state of the mailbox at the last run: the prefix, and the digest of the record of
/// the messages. `None` for a short mailbox and for an archive of another format.
fn mailbox_state(note: &[u8]) -> Option<(Prefix, &[u8])> {
    let (_, state) = note.split_at_checked(COUNTS_BYTES)?;
    let (prefix, record) = state.split_at_checked(Prefix::BYTES)?;
    (note.len() == MAILBOX_NOTE_BYTES).then_some((Prefix::from_bytes(prefix)?, record))
}

/// The kind and the error of a document with the name of an archive, whose bytes are not those of an archive: a download
/// that was cut off, or a page of errors in the archive's place. `None` for a document that may have become something
/// else: its name has no ending of an archive, or it is an empty mailbox.
fn lost_archive(name: &[u8], beginning: &[u8]) -> Option<(&'static str, String)> {
    let kind = Format::promised_kind(name)?;
    if beginning.is_empty() && Some(kind) == Format::Mailbox.kind() {
        return None;
    }
    let shown = beginning[..beginning.len().min(BEGINNING_SHOWN_BYTES)].escape_ascii();
    let error = match beginning {
        [] => "the archive has become an empty file; the documents of the last run stay".to_owned(),
        _ => format!(
            "the archive has become a file that begins with \"{shown}\"; the documents of the last run stay"
        ),
    };
    Some((kind, error))
}

impl Job<'_> {
    /// Removes the documents of archives that the source has lost. An archive goes before the additions if a folder has
    /// its name now: a document in the folder may have the id of a document that was in the archive.
    pub(super) fn remove_nested(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        pass: RemovalPass,
    ) -> Result<(), ImportError> {
        for change in diff(old, new) {
            let Change::Removed(entry) = change else { continue };
            let is_folder_now = new.find(entry.name).is_some_and(|new| new.kind == EntryKind::Container);
            let pass_of_entry = match is_folder_now {
                true => RemovalPass::BeforeAdditions,
                false => RemovalPass::AfterAdditions,
            };
            if may_contain_documents(&entry) && pass_of_entry == pass && !goes_on_as_folder(&entry, new) {
                self.remove(&join(path, entry.name), below)?;
            }
        }
        Ok(())
    }

    /// Brings the documents in the folder's archives up to date.
    pub(super) fn nested(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<Nested, ImportError> {
        let mut nested = Nested::new();
        for change in diff(old, new) {
            let entry = change.entry();
            let mail = self.is_mail_with_attachments(&entry);
            let is_candidate = self.may_be_archive(&entry);
            if entry.kind == EntryKind::Container || matches!(change, Change::Removed(_)) {
                continue;
            }
            let child = join(path, entry.name);
            let recorded = change.recorded().and_then(|old| old.get(INNER_NOTE));
            if !is_candidate {
                // A run that was cut short may have imported attachments without a note of the mail.
                if recorded.is_none() && below.reopen && is_declared_mail(&entry) {
                    self.remove(&child, below)?;
                }
                // An earlier run imported attachments, and this run does not.
                if let Some(note) = recorded {
                    self.check_archive_removal(&child, Some(note), below)?;
                    self.remove(&child, below)?;
                    nested.insert(entry.name.to_vec(), Opened::default());
                }
                continue;
            }
            if matches!(change, Change::Unchanged { .. } | Change::Metadata { .. })
                && !below.reopens_archives()
            {
                let Some(note) = recorded else { continue };
                if self.keep_archive(&change, &child, note, below)? {
                    continue;
                }
            }
            let may_contain_documents = change.recorded().is_some_and(|old| may_contain_documents(&old));
            let old_failed = change.recorded().is_some_and(|old| old.get(ERROR_NOTE).is_some());
            let is_whole = old_failed || !matches!(change, Change::Unchanged { .. });
            let candidate = Candidate { entry: &entry, mail, child: &child, recorded, is_whole };
            let mut opened = self.open_archive(path, candidate, below)?;
            if opened.is_none() && may_contain_documents {
                self.check_archive_removal(&child, recorded, below)?;
                self.remove(&child, below)?;
                opened = Some(Opened::default());
            }
            if let Some(opened) = opened {
                nested.insert(entry.name.to_vec(), opened);
            }
        }
        Ok(nested)
    }

    /// True when the run opens the document to see whether it is an archive.
    pub(super) fn may_be_archive(&self, entry: &Entry<'_>) -> bool {
        let in_maildir = entry.get(FLAGS_KEY).is_some();
        self.is_mail_with_attachments(entry) || !in_maildir && Format::is_archive_name(entry.name)
    }

    /// True when the document may be a mail whose attachments the run imports.
    fn is_mail_with_attachments(&self, entry: &Entry<'_>) -> bool {
        self.attachments && is_declared_mail(entry)
    }

    /// Opens the candidate as an archive, and imports its content. Returns `None` when the document is not an archive.
    /// When the document cannot be read, the documents of the last run stay, and the next run opens the archive again.
    fn open_archive(
        &mut self,
        path: &[u8],
        candidate: Candidate<'_>,
        below: Level,
    ) -> Result<Option<Opened>, ImportError> {
        let Candidate { entry, mail, child, recorded, is_whole } = candidate;
        // The documents of the last run stay at the server. Keep their number in the note, so that `--max-delete` counts
        // them when the archive is removed.
        let kept = recorded.map_or(0, |note| counts(note).0);
        let failed = |job: &mut Job<'_>, kind: Option<&'static str>, error: String, lasts: bool| {
            job.kept_in_failed += kept + u64::from(recorded.is_some());
            let mut note = counts_note(kept, 1);
            note.resize(if lasts { LASTING_NOTE_BYTES } else { COUNTS_BYTES }, 1);
            Ok(Some(Opened { note: Some(note), kind, error: Some(error) }))
        };
        let failures_before = match self.archive.depth {
            0 => self.meter.failures(),
            _ => self.archive.failures_before,
        };
        let object = match self.source.open(self.archive.path(path), entry) {
            Ok(object) => object,
            Err(error) => return failed(self, None, error.to_string(), self.lasts_in_archive(&error)),
        };
        // The bytes of a nested archive are read from the outermost archive, where they are counted already.
        let object: Rc<dyn Object> = Rc::from(match self.archive.id() {
            None => self.meter.wrap(object),
            Some(_) => object,
        });
        let mut beginning = vec![0; BEGINNING_BYTES];
        let read = object.stat().and_then(|stat| Ok((stat, object.read_at(0, &mut beginning)?)));
        let (before, got) = match read {
            Ok(read) => read,
            Err(error) => {
                return failed(self, None, error.to_string(), self.lasts(&error, failures_before));
            }
        };
        beginning.truncate(got);
        let Some(format) = Format::of(entry.name, &beginning).or(mail.then_some(Format::Mail)) else {
            return match lost_archive(entry.name, &beginning) {
                Some((kind, error)) if kept > 0 => failed(self, Some(kind), error, true),
                _ => Ok(None),
            };
        };
        let kind = format.kind();
        let limits = self.options.archives;
        let budget = Rc::new(match &self.archive.budget {
            Some(outer) => outer.for_inner(child),
            None => ArchiveBudget::new(limits, self.options.memory.clone(), child),
        });
        let is_too_deep = self.archive.depth >= limits.depth;
        let too_deep = || format!("archives are nested more than {} deep", limits.depth);
        // Only the opened mail tells whether the mail has attachments.
        if is_too_deep && format != Format::Mail {
            self.summary.bytes_read = self.meter.bytes();
            return failed(self, kind, too_deep(), false);
        }
        let may_append = format == Format::Mailbox && !below.reopens_archives();
        let state = recorded.and_then(mailbox_state).filter(|_| may_append);
        let messages = state.map(|state| self.messages_of(child, state)).transpose()?.flatten();
        let open = || {
            let window = Window::whole(object.clone())?;
            if let Some((prefix, messages)) = &messages {
                let (window, budget) = (window.clone(), budget.clone());
                let appended = Archive::open_appended(entry.name, window, budget, prefix, view(messages))?;
                if let Some(archive) = appended {
                    return Ok(archive);
                }
            }
            Archive::open(entry.name, format, window, budget.clone())
        };
        let opened = open();
        self.summary.bytes_read = self.meter.bytes();
        let archive = match opened {
            Ok(archive) if archive.is_one_mail(entry.name, format) => return Ok(None),
            Ok(_) if is_too_deep => return failed(self, kind, too_deep(), false),
            Ok(archive) => archive,
            // The later reading of the mail makes a mail that cannot be parsed a failed document. A mail that could not be
            // read keeps its attachments.
            Err(error) if format == Format::Mail && error.kind() == ErrorKind::InvalidData => {
                return Ok(None);
            }
            Err(error) => {
                return failed(self, kind, error.to_string(), self.lasts(&error, failures_before));
            }
        };
        let outer_source: Box<dyn Source> = std::mem::replace(&mut self.source, Box::new(archive));
        let inner = CurrentArchive {
            id: child.to_vec(),
            depth: self.archive.depth + 1,
            budget: Some(budget),
            failures_before,
            is_whole,
        };
        let outer_archive = std::mem::replace(&mut self.archive, inner);
        if is_whole && self.options.mode == ImportMode::RetryFailed {
            self.plan_retry(kept);
        }
        let (processed_before, failed_before) = (self.summary.processed(), self.summary.failed);
        let kept_before = self.kept_in_failed;
        let noted = if recorded.is_some() && !below.reopens_archives() {
            self.note_inner(child, below)
        } else {
            Ok(())
        };
        let imported = noted.and_then(|()| self.container(child, below));
        (self.source, self.archive) = (outer_source, outer_archive);
        let record = imported?.ok();
        let failed = self.summary.failed - failed_before;
        let kept_below = self.kept_in_failed - kept_before;
        let documents = self.summary.processed() - processed_before - failed + kept_below;
        let unchanged =
            object.stat().is_ok_and(|after| after.token == before.token && after.size == before.size);
        let error = (!unchanged).then(|| "the archive changed while its documents were read".to_owned());
        let mut note = counts_note(documents, failed + u64::from(!unchanged));
        if let (Format::Mailbox, Some(record), Ok(window)) = (format, &record, Window::whole(object))
            && let Ok(Some(prefix)) = Prefix::of(&window, before.size)
        {
            note.extend(prefix.to_bytes());
            note.extend(view(record).digest());
        }
        Ok(Some(Opened { note: Some(note), kind, error }))
    }

    /// True when `error` follows from the bytes of an archive, so that reading the unchanged archive again gives the same
    /// error. False for an error of the system or of the source, and when the archive exceeds a bound, which another run
    /// may set higher. `failures_before`: see [`CurrentArchive::failures_before`].
    fn lasts(&self, error: &io::Error, failures_before: u64) -> bool {
        const OF_THE_BYTES: [ErrorKind; 4] =
            [ErrorKind::InvalidData, ErrorKind::InvalidInput, ErrorKind::UnexpectedEof, ErrorKind::Other];
        error.raw_os_error().is_none()
            && OF_THE_BYTES.contains(&error.kind())
            && self.meter.failures() == failures_before
    }

    /// True when a document in an archive could not be read, and `error` follows from the bytes of the archive.
    pub(super) fn lasts_in_archive(&self, error: &ReadError) -> bool {
        let failures_before = self.archive.failures_before;
        self.archive.depth > 0 && matches!(error, ReadError::Io(error) if self.lasts(error, failures_before))
    }

    /// The record of the messages of the mailbox `child`, with the prefix of the mailbox at that time. `None` when the
    /// record does not have the digest in the note: a run was cut short after it recorded the messages and before it
    /// recorded the note.
    fn messages_of(
        &mut self,
        child: &[u8],
        (prefix, record_digest): (Prefix, &[u8]),
    ) -> Result<Option<(Prefix, Vec<u8>)>, ImportError> {
        let known = self.load(child)?;
        let matches = known.recorded && !known.interrupted && view(&known.blob).digest() == *record_digest;
        Ok(matches.then_some((prefix, known.blob)))
    }

    /// Keeps an archive with an unchanged token without opening it, if the records say what its documents are: the server
    /// holds them, or they failed and would fail again. Counts the documents, and reports the failures again. Returns
    /// false when the run must open the archive. A retry opens each archive in which a document failed.
    fn keep_archive(
        &mut self,
        change: &Change<'_>,
        path: &[u8],
        note: &[u8],
        below: Level,
    ) -> Result<bool, ImportError> {
        let (documents, failed) = counts(note);
        if failed > 0 && self.options.mode != ImportMode::Import {
            return Ok(false);
        }
        if let Change::Unchanged { old, .. } = change
            && is_closed(old)
        {
            self.kept_in_failed += documents + 1;
            return Ok(true);
        }
        let mut recorded = RecordedCounts::default();
        let is_complete = self.is_complete(path, below, &mut recorded)?;
        // An entry whose name cannot be a path has failed, too, and has no record.
        if !is_complete || recorded.failed != failed || recorded.held > documents {
            return Ok(false);
        }
        if failed > 0 {
            self.report_failures(path, below)?;
        }
        self.summary.unchanged += recorded.held;
        self.kept_in_failed += documents - recorded.held;
        Ok(true)
    }

    /// Counts the recorded documents of the archive `path`. Returns false when the run must open the archive: the server
    /// has lost a document, or the next reading of a failed document may succeed.
    fn is_complete(
        &mut self,
        path: &[u8],
        level: Level,
        counts: &mut RecordedCounts,
    ) -> Result<bool, ImportError> {
        let known = self.load(path)?;
        let below = level.below(path, known.blob.len())?;
        let container = view(&known.blob);
        let is_outdated = versions::extractor(container) != EXTRACTOR_VERSION;
        if !known.recorded || known.interrupted || is_outdated || below.depth > super::DEPTH_MAX {
            return Ok(false);
        }
        for entry in container.iter() {
            let has_failed = entry.get(ERROR_NOTE).is_some();
            // A folder or an archive that could not be opened, unless its error lasts. Or a mail that failed beside its
            // attachments.
            let is_doubtful = has_failed && (entry.token.is_empty() || holds_documents(&entry));
            if is_doubtful || entry.get(MAYBE_NOTE).is_some() {
                return Ok(false);
            }
            if entry.kind == EntryKind::Document {
                *if has_failed { &mut counts.failed } else { &mut counts.held } += 1;
            }
        }
        for entry in container.iter().filter(holds_documents) {
            if !self.is_complete(&join(path, entry.name), below, counts)? {
                return Ok(false);
            }
        }
        self.progress.listed(path, documents_in(container));
        Ok(true)
    }

    /// Reports the failed documents of the archive `path` again, from the records that [`Job::is_complete`] checked.
    fn report_failures(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        let known = self.load(path)?;
        let below = level.below(path, known.blob.len())?;
        let container = view(&known.blob);
        for entry in container.iter().filter(holds_documents) {
            self.report_failures(&join(path, entry.name), below)?;
        }
        for entry in container.iter() {
            if let Some(reason) = entry.get(ERROR_NOTE) {
                self.fail(&join(path, entry.name), &String::from_utf8_lossy(reason));
            }
        }
        Ok(())
    }
}

/// True when the recorded entry is an archive that could not be opened, and cannot be opened before it changes. The
/// documents that an earlier run found in it stay.
fn is_closed(entry: &Entry<'_>) -> bool {
    entry.get(INNER_NOTE).is_some_and(|note| note.len() == LASTING_NOTE_BYTES)
        && entry.get(ERROR_NOTE).is_some()
}

/// True when documents are recorded below the entry of an archive's record, and the next run looks at them.
fn holds_documents(entry: &Entry<'_>) -> bool {
    entry.kind == EntryKind::Container || entry.get(INNER_NOTE).is_some() && !is_closed(entry)
}
