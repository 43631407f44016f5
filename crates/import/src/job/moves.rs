//! Moves: a document that leaves one place and comes to another one is copied at the server, not parsed again.
//!
//! The walk that counts deletions before the run ([`super::budget`]) notes each document that leaves its place, because
//! it is removed or replaced there, and each document that comes to a place ([`Job::note_change`]). After the walk only
//! documents that come to another place stay noted ([`Job::settle_moves`]). The run looks up each document that comes
//! to a place ([`Job::moved`]). A document with an equal token has equal bytes and is not even read, where the source
//! is certain ([`Identity`]). Every other document is read, and its digest decides.
//!
//! In each container removals come after additions, and containers that lose a document come last ([`Moves::loses`]).
//! So most documents are still at their old places when they are copied. A document that must leave its place earlier
//! is laid aside ([`Job::leaves`]): copied to a key beside the dataset. A record of the dataset ([`ASIDE_NAME`]) says how
//! many such keys there may be. It is stored before the first of them, and the keys are deleted at the end of the run,
//! or by the next run if this one is cut short.
//!
//! When an archive has moved, the documents in it have moved too. A document that changes its place within an archive
//! is found when the archive is opened ([`Job::note_inner`]).
//!
//! Left out: a document that moves from one archive into another, or out of one; a run that may remove everything,
//! because it makes no such walk; sinks that cannot copy. All these documents are parsed again.
//!
//! [`Identity`]: crate::source::Identity

use super::{DEPTH_MAX, ERROR_NOTE, Job, Level, documents_in, join, view};
use crate::ImportError;
use crate::cache::texts;
use crate::container::{Builder, Container, Digest, Entry, Kind, digest};
use crate::diff::{Change, diff};
use crate::document::EXTRACTOR_VERSION;
use crate::sink::Place;
use crate::source::archive::Archive;
use crate::source::{Identity, parts};
use crate::versions::{DIGEST_NOTE, INNER_NOTE, MAYBE_NOTE};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of bytes that are kept of documents which may have moved. Documents beyond this limit are parsed
/// again.
pub const MOVES_BYTES_MAX: usize = 16 << 20;
/// Maximum number of documents that a plan notes as coming to a place. Documents beyond this limit are parsed again.
const COMING_MAX: usize = 1 << 17;
/// Bytes counted for a document in addition to its strings.
const MOVED_BYTES: usize = 320;
/// Maximum number of documents that are laid aside in one run. Documents beyond this limit are parsed again.
const ASIDE_MAX: u32 = (MOVES_BYTES_MAX / MOVED_BYTES) as u32;
/// The name of the record that says how many documents may lie aside. No container has this name.
const ASIDE_NAME: &[u8] = b"//";

/// A document that leaves its place, because it was removed there or replaced.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    /// The place where the server has the document.
    pub(super) at: Place,
    token: Vec<u8>,
    pub(super) digest: Vec<u8>,
    pub(super) size: u64,
    /// True when the document's hash has fields that are not in the list of fields.
    pub(super) more: bool,
    /// True when the document holds other documents.
    pub(super) holds: bool,
    /// True when equal tokens mean equal bytes.
    is_certain: bool,
    /// The number of coming documents that may be this document under a new path.
    wanted: u32,
}

impl Moved {
    /// The memory that the record of the document takes here, without the document's path.
    fn bytes(&self) -> usize {
        self.token.len() + self.digest.len() + MOVED_BYTES
    }

    /// True when the document that comes as `entry` has the same bytes for certain.
    pub(super) fn is_certainly(&self, entry: &Entry<'_>) -> bool {
        self.is_certain && !entry.token.is_empty() && self.token == entry.token
    }
}

/// The documents that have moved.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// True when documents are noted. False where the sink cannot copy.
    is_noting: bool,
    /// The documents that leave their places, by identity.
    leaving: HashMap<Digest, Moved>,
    /// The identities of the leaving documents, by the digest of their paths.
    by_path: HashMap<Digest, Digest>,
    /// The number of coming documents of each identity. Empty after the walk.
    coming: HashMap<Digest, u32>,
    /// Archives that leave their places, by identity. Empty after the walk.
    archives: HashMap<Digest, Vec<u8>>,
    /// Folders that are new, and where they are. Empty after the walk.
    added: Vec<(Vec<u8>, Level)>,
    /// The paths of the containers in which, or below which, one of the leaving documents is.
    losing: HashSet<Vec<u8>>,
    bytes: usize,
    /// Bytes of the data that is kept only during the walk.
    walk_bytes: usize,
    /// True when leaving documents were noted since the last [`Moves::settle`].
    is_unsettled: bool,
    /// The number of documents that were laid aside.
    aside: u32,
    /// The number of documents that may lie aside according to the record named [`ASIDE_NAME`].
    recorded: u32,
    /// Whether the sink allows copies. `None` before the sink was asked.
    may_copy: Option<bool>,
    /// Whether the sink allows documents to be laid aside. `None` before the sink was asked.
    may_lay_aside: Option<bool>,
}

impl Moves {
    /// True when documents that have moved will leave the container at `path`, or one below it.
    pub(super) fn loses(&self, path: &[u8]) -> bool {
        self.losing.contains(path)
    }

    fn is_full(&self) -> bool {
        self.bytes + self.walk_bytes >= MOVES_BYTES_MAX
    }

    fn leave(&mut self, identity: Digest, path: &[u8], mut moved: Moved) {
        if self.is_full() {
            return;
        }
        self.bytes += path.len() + moved.bytes();
        if let Some(twin) = self.leaving.get(&identity) {
            moved.wanted += twin.wanted;
        }
        self.by_path.insert(digest(path), identity);
        self.leaving.insert(identity, moved);
        self.is_unsettled = true;
    }

    fn come(&mut self, identity: Digest) {
        if self.coming.len() < COMING_MAX || self.coming.contains_key(&identity) {
            let count = self.coming.entry(identity).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Forgets the leaving documents that no coming document may be, and notes the containers that lose the other
    /// documents.
    fn settle(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        self.archives.retain(|identity, _| coming.contains_key(identity));
        for (identity, count) in coming {
            if let Some(moved) = self.leaving.get_mut(&identity) {
                moved.wanted = moved.wanted.saturating_add(count);
            }
        }
        if !std::mem::take(&mut self.is_unsettled) {
            return;
        }
        self.leaving.retain(|_, moved| moved.wanted > 0);
        self.by_path.retain(|_, identity| self.leaving.contains_key(identity));
        self.bytes = self.losing.iter().map(|path| path.len() + MOVED_BYTES).sum();
        for moved in self.leaving.values() {
            self.bytes += moved.bytes();
            let Place::Document(path) = &moved.at else { continue };
            self.bytes += path.len();
            let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
            for (at, _) in slashes {
                // When a container is in the set already, all containers above it are in the set too.
                if !self.losing.insert(path[..at].to_vec()) {
                    break;
                }
                self.bytes += at + MOVED_BYTES;
            }
        }
    }
}

/// The identity of a document. Besides the identity of the bytes, it includes the facts by which the extractor chooses,
/// and whether the document is in an archive, because documents in archives have another kind of identity.
fn key(is_inner: bool, identity: &Identity, entry: &Entry<'_>) -> Digest {
    let kind = texts::kind(entry);
    digest(&[&[u8::from(is_inner)], &(kind.len() as u32).to_le_bytes()[..], &kind, &identity.bytes].concat())
}

impl Job<'_> {
    /// Notes from now on which documents leave and which come, if the sink copies.
    pub(super) fn begin_moves(&mut self) {
        self.moves.is_noting = self.sink.copies();
    }

    /// The identity of the document `entry` of the source that is read now.
    fn identity(&self, entry: &Entry<'_>) -> Option<(Digest, bool)> {
        let identity = self.source.identity(entry)?;
        Some((key(self.within.parent().is_some(), &identity, entry), identity.is_certain))
    }

    /// Notes the change of the document at `path`.
    pub(super) fn note_change(&mut self, path: &[u8], change: &Change<'_>) {
        if !self.moves.is_noting {
            return;
        }
        let (old, new) = match *change {
            Change::Added(new) => (None, Some(new)),
            Change::Removed(old) => (Some(old), None),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Metadata { .. } | Change::Unchanged { .. } => return,
        };
        let old = old.and_then(|old| Some((old, self.identity(&old)?)));
        let new = new.and_then(|new| self.identity(&new));
        if let (Some((_, (old, _))), Some((new, _))) = (&old, &new)
            && old == new
        {
            // Perhaps only a time has changed, so the document does not count as leaving.
            return;
        }
        if let Some((old, (identity, is_certain))) = old {
            if old.get(INNER_NOTE).is_some() && !self.moves.is_full() {
                self.moves.walk_bytes += path.len() + MOVED_BYTES;
                self.moves.archives.insert(identity, path.to_vec());
            }
            self.note_leaving(path, &old, identity, is_certain, 0);
        }
        if let Some((identity, _)) = new {
            self.moves.come(identity);
        }
    }

    /// Notes a document that leaves its place, if the server has all of its fields.
    fn note_leaving(
        &mut self,
        path: &[u8],
        entry: &Entry<'_>,
        identity: Digest,
        is_certain: bool,
        wanted: u32,
    ) {
        let is_doubtful = [ERROR_NOTE, MAYBE_NOTE].iter().any(|note| entry.get(note).is_some());
        let Some(held) = entry.get(DIGEST_NOTE).filter(|_| !is_doubtful) else { return };
        let moved = Moved {
            at: Place::Document(path.to_vec()),
            token: entry.token.to_vec(),
            digest: held.to_vec(),
            size: entry.size,
            more: entry.get(super::documents::MORE_NOTE).is_some(),
            holds: entry.get(INNER_NOTE).is_some(),
            is_certain,
            wanted,
        };
        self.moves.leave(identity, path, moved);
    }

    /// Notes that the container at `path` is new. It is listed after the walk, if anything leaves.
    pub(super) fn note_added(&mut self, path: &[u8], level: Level) {
        if self.moves.is_noting && !self.moves.is_full() {
            self.moves.walk_bytes += path.len() + MOVED_BYTES;
            self.moves.added.push((path.to_vec(), level));
        }
    }

    /// Ends the walk: documents that come nowhere are forgotten.
    pub(super) fn settle_moves(&mut self) -> Result<(), ImportError> {
        let added = std::mem::take(&mut self.moves.added);
        if !self.moves.leaving.is_empty() || !self.moves.archives.is_empty() {
            for (path, level) in added {
                self.note_coming(&path, level)?;
            }
        }
        self.moves.settle();
        for (_, path) in std::mem::take(&mut self.moves.archives) {
            self.note_archive(&path, Level::default())?;
        }
        self.moves.settle();
        self.moves.walk_bytes = 0;
        if self.moves.may_copy.is_none() && !self.moves.leaving.is_empty() {
            match self.sink.may_copy(false)? {
                true => self.moves.may_copy = Some(true),
                false => self.moves = Moves::default(),
            }
        }
        Ok(())
    }

    /// Notes the documents of a new folder.
    fn note_coming(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        if self.report(path)? {
            self.sink.drain()?;
        }
        // The run reports why the folder cannot be listed.
        let Ok(listing) = self.list_ahead(path, None) else { return Ok(()) };
        for entry in view(&listing).iter() {
            if entry.kind == Kind::Document {
                if let Some((identity, _)) = self.identity(&entry) {
                    self.moves.come(identity);
                }
            } else if level.depth < DEPTH_MAX {
                let child = join(path, entry.name);
                self.note_coming(&child, level.below(&child, listing.len())?)?;
            }
        }
        Ok(())
    }

    /// Notes the documents that are recorded in an archive which has moved.
    fn note_archive(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        let Some((known, is_doubtful)) = self.recorded(path, &[])? else { return Ok(()) };
        let container = view(&known);
        if is_doubtful || container.producer() != EXTRACTOR_VERSION || level.depth > DEPTH_MAX {
            return Ok(());
        }
        let below = level.below(path, known.len())?;
        for entry in container.iter() {
            let child = join(path, entry.name);
            if let Some(identity) = Archive::identity_of(&entry).filter(|_| entry.kind == Kind::Document) {
                let is_certain = identity.is_certain;
                self.note_leaving(&child, &entry, key(true, &identity, &entry), is_certain, 1);
            }
            if entry.kind == Kind::Container || entry.get(INNER_NOTE).is_some() {
                self.note_archive(&child, below)?;
            }
        }
        Ok(())
    }

    /// Notes the documents that change their places within the archive at `path`, which has been opened just now.
    pub(super) fn note_inner(&mut self, path: &[u8], below: Level) -> Result<(), ImportError> {
        if !self.moves.is_noting {
            return Ok(());
        }
        // The walk reads records, so nothing else may be under way.
        self.drain()?;
        let Some((known, is_doubtful)) = self.recorded(path, &[])? else { return Ok(()) };
        let Ok(listing) = self.source.list(self.within.path(path), false) else { return Ok(()) };
        if documents_in(view(&known)) > 0 && !is_doubtful {
            self.walk(path, view(&known), view(&listing.blob), below)?;
        }
        self.settle_moves()
    }

    /// For each new name in a container, the noted document that may have moved there. The server still has these
    /// documents. Documents that will be replaced in this container are laid aside.
    pub(super) fn moved(
        &mut self,
        old: Container<'_>,
        new: Container<'_>,
        path: &[u8],
    ) -> Result<BTreeMap<Vec<u8>, Moved>, ImportError> {
        let mut found = BTreeMap::new();
        if self.moves.leaving.is_empty() {
            return Ok(found);
        }
        for change in diff(old, new) {
            if let Change::Updated { old, .. } = change
                && old.kind == Kind::Document
            {
                self.leaves(&join(path, old.name))?;
            }
        }
        for change in diff(old, new) {
            let entry = change.entry();
            // If it is unknown what the server has at the place, the document is sent whole.
            let is_free = match change {
                Change::Added(_) => true,
                Change::Updated { old, .. } => old.get(DIGEST_NOTE).is_some(),
                _ => false,
            };
            if entry.kind == Kind::Document
                && is_free
                && let Some((identity, _)) = self.identity(&entry)
                && let Some(moved) = self.moves.leaving.get(&identity)
            {
                found.insert(entry.name.to_vec(), moved.clone());
            }
        }
        if found.is_empty() {
            return Ok(found);
        }
        self.drain()?;
        let places: Vec<&Place> = found.values().map(|moved| &moved.at).collect();
        let mut there = self.sink.holds(&places)?.into_iter();
        found.retain(|_, _| there.next().unwrap_or_default());
        Ok(found)
    }

    /// Notes that the document that came as `entry` was copied.
    pub(super) fn has_moved(&mut self, entry: &Entry<'_>) {
        let identity = self.identity(entry);
        if let Some(moved) = identity.and_then(|(identity, _)| self.moves.leaving.get_mut(&identity)) {
            moved.wanted = moved.wanted.saturating_sub(1);
        }
    }

    /// The document at `path` is about to be removed or replaced. If a later document may be this one under a new path,
    /// the document is kept aside for that later document.
    pub(super) fn leaves(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let Some(identity) = self.moves.by_path.remove(&digest(path)) else { return Ok(()) };
        let leaving = self.moves.leaving.get(&identity);
        let Some(moved) = leaving.filter(|moved| moved.at == Place::Document(path.to_vec())) else {
            return Ok(());
        };
        let number = self.moves.aside;
        if moved.wanted == 0 || number == ASIDE_MAX || !self.may_lay_aside()? {
            self.moves.leaving.remove(&identity);
            return Ok(());
        }
        if number >= self.moves.recorded {
            let wanted = u32::try_from(self.moves.leaving.len()).unwrap_or(ASIDE_MAX);
            let room = number.saturating_add(wanted).min(ASIDE_MAX);
            self.sink.store(ASIDE_NAME, &aside_record(room))?;
            self.moves.recorded = room;
        }
        if !self.sink.lay_aside(path, number)? {
            self.moves.leaving.remove(&identity);
            return Ok(());
        }
        self.moves.aside += 1;
        if let Some(moved) = self.moves.leaving.get_mut(&identity) {
            moved.at = Place::Aside(number);
        }
        Ok(())
    }

    fn may_lay_aside(&mut self) -> Result<bool, ImportError> {
        if let Some(known) = self.moves.may_lay_aside {
            return Ok(known);
        }
        let asked = self.sink.may_copy(true)?;
        self.moves.may_lay_aside = Some(asked);
        Ok(asked)
    }

    /// Deletes the documents that an earlier run laid aside before it was cut short.
    pub(super) fn clear_old_aside(&mut self) -> Result<(), ImportError> {
        if !self.sink.copies() {
            return Ok(());
        }
        let found = self.sink.read(&[ASIDE_NAME.to_vec()])?.pop().flatten();
        let Some(found) = found else { return Ok(()) };
        let count = view(&found).iter().next().map_or(0, |entry| entry.size);
        self.moves.aside = u32::try_from(count).unwrap_or(ASIDE_MAX).min(ASIDE_MAX);
        self.clear_aside()
    }

    /// Deletes the documents that this run laid aside.
    pub(super) fn clear_aside(&mut self) -> Result<(), ImportError> {
        if self.moves.aside == 0 {
            return Ok(());
        }
        self.sink.clear_aside(self.moves.aside)?;
        self.sink.forget(&[ASIDE_NAME])?;
        (self.moves.aside, self.moves.recorded) = (0, 0);
        self.drain()
    }
}

/// The bytes of the record which says that up to `count` documents may lie aside.
fn aside_record(count: u32) -> Vec<u8> {
    let mut builder = Builder::new(EXTRACTOR_VERSION);
    let pushed = builder.push(Kind::Container, b"aside", count.into(), &[], []);
    pushed.and_then(|()| builder.finish()).expect("one short entry")
}

/// True when a container that is gone must be removed before anything is added: the documents in a new archive of its
/// name have the ids of the documents that were in the container. Where documents are listed in parts, a part of
/// another name may hold the new archive.
pub(super) fn removes_first(old: Container<'_>, new: Container<'_>, name: &[u8]) -> bool {
    let is_document = || new.find(name).is_some_and(|entry| entry.kind == Kind::Document);
    parts::has_parts(old) || parts::has_parts(new) || is_document()
}
