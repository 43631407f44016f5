//! Archives among the documents. Each is opened where it lies, and imported as a folder is.
//!
//! An archive is a document that holds documents. Its own hash has its name and size. The containers in it are recorded
//! below its path, as a folder's are. The archive's entry notes how many documents it holds, and how many of them
//! failed ([`INNER_NOTE`]). An archive with an unchanged token is opened only if something in it failed or is lost. Of a
//! large mailbox the note has its [`Prefix`], too, and the digest of the record of its messages. So a mailbox that grew
//! is read from its former end on.

use super::moves::Moved;
use super::{Job, Level, documents_in, join, view};
use crate::ImportError;
use crate::container::{Container, Digest, Entry, Kind};
use crate::diff::{Change, diff};
use crate::document::FileFacts;
use crate::source::archive::{Archive, Budget, Format, Prefix, Window};
use crate::source::{FLAGS_KEY, Object, Source};
use crate::versions::{INNER_NOTE, MAYBE_NOTE};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a note: the number of documents, and the number of failures.
const COUNTS_BYTES: usize = 16;
/// Bytes of the note of a large mailbox: the numbers, the prefix, and the digest of the record.
const GROWING_BYTES: usize = COUNTS_BYTES + Prefix::BYTES + size_of::<Digest>();
/// Bytes at the beginning of a document that decide whether it is an archive.
const BEGINNING_BYTES: usize = 1024;

/// The opened archives of a folder, by name.
pub(super) type Nested = BTreeMap<Vec<u8>, Opened>;

/// An archive that was opened, or that was kept without being opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// The value of [`INNER_NOTE`]. `None` when the document is not an archive any more.
    pub(super) note: Option<Vec<u8>>,
    /// The kind of the archive's document. `None` for a mail.
    pub(super) kind: Option<&'static str>,
    /// The reason why the archive could not be opened.
    pub(super) error: Option<String>,
}

/// The archive in which the job works now.
#[derive(Default)]
pub(super) struct Within {
    /// The archive's id. Empty outside of archives.
    parent: Vec<u8>,
    depth: usize,
    budget: Option<Rc<Budget>>,
}

impl Within {
    /// The archive's id.
    pub(super) fn parent(&self) -> Option<&[u8]> {
        (self.depth > 0).then_some(&self.parent)
    }
    /// The place of `path` in the source that is read now.
    pub(super) fn path<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match self.depth {
            0 => path,
            _ => path.get(self.parent.len() + 1..).unwrap_or_default(),
        }
    }
}

/// True when containers may be recorded below the document's path.
pub(super) fn may_hold(entry: &Entry<'_>) -> bool {
    let maybe = entry.get(MAYBE_NOTE).is_some() && (Format::may_be(entry.name) || is_mail_name(entry));
    entry.kind == Kind::Document && (entry.get(INNER_NOTE).is_some() || maybe)
}

/// The numbers of documents and of failures in an archive, from its note.
pub(super) fn counts(note: &[u8]) -> (u64, u64) {
    let number = |range: std::ops::Range<usize>| {
        let bytes = note.get(range).and_then(|b| b.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    // A note of another length is not ours, so the archive is looked at again.
    match note.len() {
        COUNTS_BYTES | GROWING_BYTES => (number(0..8), number(8..16)),
        _ => (0, 1),
    }
}

/// True when a document that was opened like this may be the document `moved`. The document of an archive itself is not
/// copied, because it has only name and size.
pub(super) fn may_be(opened: Option<&Opened>, moved: &Moved) -> bool {
    let holds = opened.filter(|opened| opened.note.is_some());
    moved.holds == holds.is_some() && holds.is_none_or(|holds| holds.kind.is_none() && holds.error.is_none())
}

fn note(documents: u64, failed: u64) -> Vec<u8> {
    [documents.to_le_bytes(), failed.to_le_bytes()].concat()
}

/// What the note of a mailbox says of its earlier state: its prefix, and the digest of the record of its messages.
/// `None` for another archive, and for a short mailbox. If a message failed, the next run reads the whole mailbox.
fn earlier(note: &[u8]) -> Option<(Prefix, &[u8])> {
    let (counts, earlier) = note.split_at_checked(COUNTS_BYTES)?;
    let (prefix, record) = earlier.split_at_checked(Prefix::BYTES)?;
    (note.len() == GROWING_BYTES && self::counts(counts).1 == 0)
        .then_some((Prefix::from_bytes(prefix)?, record))
}

fn is_mail_name(entry: &Entry<'_>) -> bool {
    let flags = entry.get(FLAGS_KEY);
    FileFacts { path: &[], name: entry.name, size: 0, flags, parent: None, archive: None }.claims_mail()
}

impl Job<'_> {
    /// Removes the documents of archives that are gone. With `first`, only of those whose name a folder has now: what is
    /// in the folder has the ids of what was in the archive. Else only of the others. Documents that have moved out of
    /// the others are copied before these go.
    pub(super) fn remove_nested(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        first: bool,
    ) -> Result<(), ImportError> {
        for change in diff(old, new) {
            if let Change::Removed(entry) = change
                && may_hold(&entry)
                && new.find(entry.name).is_some_and(|entry| entry.kind == Kind::Container) == first
            {
                self.remove(&join(path, entry.name), &[], below)?;
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
            let mail = self.options.attachments && is_mail_name(&entry);
            let in_maildir = entry.get(FLAGS_KEY).is_some();
            let candidate = mail || !in_maildir && Format::may_be(entry.name);
            if entry.kind == Kind::Container || matches!(change, Change::Removed(_)) {
                continue;
            }
            let child = join(path, entry.name);
            let recorded = change.recorded().and_then(|old| old.get(INNER_NOTE));
            if !candidate {
                // An earlier run imported attachments, and this run does not.
                if let Some(note) = recorded {
                    self.check_removal(counts(note).0)?;
                    self.remove(&child, &[], below)?;
                    nested.insert(entry.name.to_vec(), Opened { note: None, kind: None, error: None });
                }
                continue;
            }
            if matches!(change, Change::Unchanged { .. } | Change::Metadata { .. }) && !below.reread {
                let Some(note) = recorded else { continue };
                let (documents, failed) = counts(note);
                if failed == 0 && self.is_complete(&child, below)? {
                    self.summary.unchanged += documents;
                    continue;
                }
            }
            let may_hold = change.recorded().is_some_and(|old| may_hold(&old));
            let mut opened = self.open_archive(path, &entry, mail, &child, below, recorded)?;
            if opened.is_none() && may_hold {
                self.check_removal(recorded.map_or(0, |note| counts(note).0))?;
                self.remove(&child, &[], below)?;
                opened = Some(Opened { note: None, kind: None, error: None });
            }
            if let Some(opened) = opened {
                nested.insert(entry.name.to_vec(), opened);
            }
        }
        Ok(nested)
    }

    /// Opens the document `entry` as an archive, and imports its content. `recorded` is the note of an earlier run that
    /// did so too. `None` when the document is not an archive, or cannot be read. When it cannot be read, the later
    /// reading of the document reports the reason.
    fn open_archive(
        &mut self,
        path: &[u8],
        entry: &Entry<'_>,
        mail: bool,
        child: &[u8],
        below: Level,
        recorded: Option<&[u8]>,
    ) -> Result<Option<Opened>, ImportError> {
        let Ok(object) = self.source.open(self.within.path(path), entry) else { return Ok(None) };
        // Bytes of an archive that lies in another one are bytes of the outermost archive.
        let object: Rc<dyn Object> = Rc::from(match self.within.parent() {
            None => self.meter.on(object),
            Some(_) => object,
        });
        let Ok(before) = object.stat() else { return Ok(None) };
        let mut beginning = vec![0; BEGINNING_BYTES];
        let Ok(got) = object.read_at(0, &mut beginning) else { return Ok(None) };
        beginning.truncate(got);
        let Some(format) = Format::of(entry.name, &beginning).or(mail.then_some(Format::Mail)) else {
            return Ok(None);
        };
        let kind = format.kind();
        let limits = self.options.archives;
        let budget = Rc::new(match &self.within.budget {
            Some(outer) => outer.within(child),
            None => Budget::new(limits, self.options.memory.clone(), child),
        });
        let opened = match self.within.depth < limits.depth {
            true => {
                let earlier =
                    recorded.and_then(earlier).filter(|_| format == Format::Mailbox && !below.reread);
                let messages = earlier.map(|earlier| self.messages_of(child, earlier)).transpose()?.flatten();
                let open = || {
                    let window = Window::whole(object.clone())?;
                    if let Some((prefix, messages)) = &messages {
                        let (window, budget) = (window.clone(), budget.clone());
                        let appended =
                            Archive::open_appended(entry.name, window, budget, prefix, view(messages))?;
                        if let Some(archive) = appended {
                            return Ok(archive);
                        }
                    }
                    Archive::open(entry.name, format, window, budget.clone())
                };
                open().map_err(|error: std::io::Error| error.to_string())
            }
            false => Err(format!("archives are nested more than {} deep", limits.depth)),
        };
        self.summary.bytes_read = self.meter.bytes();
        let archive = match opened {
            Ok(archive) if archive.is_one_mail(entry.name, format) => return Ok(None),
            Ok(archive) => archive,
            // A mail that cannot be parsed becomes a dead letter by itself.
            Err(_) if format == Format::Mail => return Ok(None),
            Err(error) => {
                // Its earlier documents stay at the server. They must count when the archive goes (`--max-delete`).
                let kept = recorded.map_or(0, |note| counts(note).0);
                return Ok(Some(Opened { note: Some(note(kept, 1)), kind, error: Some(error) }));
            }
        };
        let outer: Box<dyn Source> = std::mem::replace(&mut self.source, Box::new(archive));
        let within = Within { parent: child.to_vec(), depth: self.within.depth + 1, budget: Some(budget) };
        let within = std::mem::replace(&mut self.within, within);
        let (told, failed) = (self.summary.told(), self.summary.failed);
        let noted = if recorded.is_some() && !below.reread { self.note_inner(child, below) } else { Ok(()) };
        let imported = noted.and_then(|()| self.container(child, &[], below));
        (self.source, self.within) = (outer, within);
        let record = imported?;
        let failed = self.summary.failed - failed;
        let documents = self.summary.told() - told - failed;
        let unchanged =
            object.stat().is_ok_and(|after| after.token == before.token && after.size == before.size);
        let error = (!unchanged).then(|| "the file changed while what is in it was read".to_owned());
        let mut note = note(documents, failed + u64::from(!unchanged));
        if let (Format::Mailbox, Some(record), Ok(window)) = (format, &record, Window::whole(object))
            && let Ok(Some(prefix)) = Prefix::of(&window, before.size)
        {
            note.extend(prefix.to_bytes());
            note.extend(view(record).digest());
        }
        Ok(Some(Opened { note: Some(note), kind, error }))
    }

    /// The record of the mailbox `child`, with the prefix that it belongs to. `None` when the record is another one: a
    /// run that was cut short recorded the messages, and not the note.
    fn messages_of(
        &mut self,
        child: &[u8],
        (prefix, record): (Prefix, &[u8]),
    ) -> Result<Option<(Prefix, Vec<u8>)>, ImportError> {
        let known = self.load(child, &[])?;
        let is_it = known.recorded && !known.interrupted && view(&known.blob).digest() == *record;
        Ok(is_it.then_some((prefix, known.blob)))
    }

    /// True when the server holds every document that is recorded of the archive `path`.
    fn is_complete(&mut self, path: &[u8], level: Level) -> Result<bool, ImportError> {
        let known = self.load(path, &[])?;
        let below = level.below(path, known.blob.len())?;
        let container = view(&known.blob);
        let lost = container.iter().any(|entry| entry.get(MAYBE_NOTE).is_some());
        if !known.recorded || known.interrupted || lost || below.depth > super::DEPTH_MAX {
            return Ok(false);
        }
        let holds = |entry: &Entry<'_>| entry.kind == Kind::Container || entry.get(INNER_NOTE).is_some();
        for entry in container.iter().filter(holds) {
            if !self.is_complete(&join(path, entry.name), below)? {
                return Ok(false);
            }
        }
        self.progress.listed(path, documents_in(container));
        Ok(true)
    }
}
