//! Moves: when a document has moved within the source, the server copies it to the new key, so that the importer need
//! not parse it again.
//!
//! The plan ([`super::budget`]) notes departures and arrivals ([`Job::note_change`]). A departure is a document that is
//! removed or replaced at its path. An arrival is a document that is added or replaced at a path. After the plan only
//! departures with a matching arrival are kept ([`Job::settle_moves`]). The run looks up a departure for each arrival
//! ([`Job::find_moves`]). If the source is certain that equal tokens mean equal bytes ([`Identity`]), the arrival is
//! copied without being read. Otherwise the arrival is read, and copied if its digest equals the departure's.
//!
//! In each container removals follow additions, and containers with departures are imported last
//! ([`Moves::loses_documents`]). So most documents are still at their old keys when they are copied. A document that
//! must be changed earlier is stashed first ([`Job::stash_before_change`]): the server copies it to a key outside of
//! the dataset. A record ([`STASH_NAME`]) has the maximum number of stashed documents. It is stored before the first
//! document is stashed. The stash is deleted at the end of the run, or by the next run if this run is cut short.
//!
//! When an archive has moved, the documents in it have moved too. Moves within an archive are found when the archive is
//! opened ([`Job::note_inner`]).
//!
//! Documents are parsed again, and not copied, in these cases: the document moved from an archive to a place outside of
//! that archive; the run may remove everything, so it makes no plan; the sink cannot copy.
//!
//! [`Identity`]: crate::source::Identity

use super::nested::RemovalPass;
use super::{DEPTH_MAX, ERROR_NOTE, Job, Level, documents_in, join, view};
use crate::ImportError;
use crate::cache::texts;
use crate::container::{Container, ContainerBuilder, ContainerDigest, Entry, EntryKind, digest};
use crate::diff::{Change, diff};
use crate::document::EXTRACTOR_VERSION;
use crate::sink::Place;
use crate::source::archive::Archive;
use crate::source::{Identity, parts};
use crate::versions::{self, DIGEST_NOTE, INNER_NOTE, MAYBE_NOTE};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of bytes of notes about documents that may have moved. Documents beyond this limit are parsed again.
pub const MOVES_BYTES_MAX: usize = 16 << 20;
/// Maximum number of identities of arrivals that a plan notes. Documents beyond this limit are parsed again.
const ARRIVALS_MAX: usize = 1 << 17;
/// Bytes counted for a departure in addition to its strings.
const NOTE_BYTES: usize = 320;
/// Maximum number of documents that one run stashes. Documents beyond this limit are parsed again.
const STASHED_MAX: u32 = (MOVES_BYTES_MAX / NOTE_BYTES) as u32;
/// The name of the record with the maximum number of stashed documents. No container has this name.
const STASH_NAME: &[u8] = b"//";

/// A departure: a document that the run removes or replaces at its path.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    /// The place where the server has the document.
    pub(super) place: Place,
    token: Vec<u8>,
    pub(super) digest: Vec<u8>,
    pub(super) size: u64,
    /// True when the document's hash has fields that are not in the list of fields.
    pub(super) has_extra_fields: bool,
    /// True when the document holds other documents.
    pub(super) is_archive: bool,
    /// True when equal tokens mean equal bytes.
    is_certain: bool,
    /// The number of arrivals that may be this document at a new path.
    arrivals: u32,
}

impl Departure {
    /// The memory for this value, without the document's path.
    fn bytes(&self) -> usize {
        self.token.len() + self.digest.len() + NOTE_BYTES
    }

    /// True when the arrival `entry` certainly has the bytes of this document.
    pub(super) fn has_same_bytes_as(&self, entry: &Entry<'_>) -> bool {
        self.is_certain && !entry.token.is_empty() && self.token == entry.token
    }
}

/// The departures and arrivals of a run.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// True when departures and arrivals are noted. False when the sink cannot copy.
    is_noting: bool,
    /// The departures, by identity.
    departures: HashMap<ContainerDigest, Departure>,
    /// The identities of the departures, by the digest of their paths.
    by_path: HashMap<ContainerDigest, ContainerDigest>,
    /// The number of arrivals of each identity. Empty after the plan.
    arrivals: HashMap<ContainerDigest, u32>,
    /// The paths of archives that are departures, by identity. Empty after the plan.
    archives: HashMap<ContainerDigest, Vec<u8>>,
    /// The paths and levels of new folders. Empty after the plan.
    added: Vec<(Vec<u8>, Level)>,
    /// The paths of all containers with a departure in them or below them.
    losing: HashSet<Vec<u8>>,
    /// Bytes of the departures and of `losing`.
    bytes: usize,
    /// Bytes of `archives` and `added`, which are kept only during the plan.
    plan_bytes: usize,
    /// True when departures were noted since the last [`Moves::settle`].
    is_unsettled: bool,
    /// The number of stashed documents.
    stashed: u32,
    /// The number in the record named [`STASH_NAME`].
    recorded: u32,
    /// True when the sink allows copies. `None` before the sink was asked.
    may_copy: Option<bool>,
    /// True when the sink allows copies to the stash. `None` before the sink was asked.
    may_stash: Option<bool>,
}

impl Moves {
    /// True when the container at `path`, or a container below it, has a departure with an arrival elsewhere.
    pub(super) fn loses_documents(&self, path: &[u8]) -> bool {
        self.losing.contains(path)
    }

    fn is_full(&self) -> bool {
        self.bytes + self.plan_bytes >= MOVES_BYTES_MAX
    }

    fn add_departure(&mut self, identity: ContainerDigest, path: &[u8], mut moved: Departure) {
        if self.is_full() {
            return;
        }
        self.bytes += path.len() + moved.bytes();
        if let Some(twin) = self.departures.get(&identity) {
            moved.arrivals += twin.arrivals;
        }
        self.by_path.insert(digest(path), identity);
        self.departures.insert(identity, moved);
        self.is_unsettled = true;
    }

    fn add_arrival(&mut self, identity: ContainerDigest) {
        if self.arrivals.len() < ARRIVALS_MAX || self.arrivals.contains_key(&identity) {
            let count = self.arrivals.entry(identity).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Drops the departures without an arrival of the same identity. Notes the containers of all other departures.
    fn settle(&mut self) {
        let arrivals = std::mem::take(&mut self.arrivals);
        self.archives.retain(|identity, _| arrivals.contains_key(identity));
        for (identity, count) in arrivals {
            if let Some(moved) = self.departures.get_mut(&identity) {
                moved.arrivals = moved.arrivals.saturating_add(count);
            }
        }
        if !std::mem::take(&mut self.is_unsettled) {
            return;
        }
        self.departures.retain(|_, moved| moved.arrivals > 0);
        self.by_path.retain(|_, identity| self.departures.contains_key(identity));
        self.bytes = self.losing.iter().map(|path| path.len() + NOTE_BYTES).sum();
        for moved in self.departures.values() {
            self.bytes += moved.bytes();
            let Place::Document(path) = &moved.place else { continue };
            self.bytes += path.len();
            let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
            for (at, _) in slashes {
                // When a container is in the set already, all containers above it are in the set too.
                if !self.losing.insert(path[..at].to_vec()) {
                    break;
                }
                self.bytes += at + NOTE_BYTES;
            }
        }
    }
}

/// The key under which departures and arrivals are matched. It includes the identity of the bytes and the facts from
/// which the extractor chooses a format. It also includes whether the document is in an archive, because documents in
/// archives have identities of another kind.
fn move_key(is_inner: bool, identity: &Identity, entry: &Entry<'_>) -> ContainerDigest {
    let kind = texts::kind(entry);
    digest(&[&[u8::from(is_inner)], &(kind.len() as u32).to_le_bytes()[..], &kind, &identity.bytes].concat())
}

impl Job<'_> {
    /// Starts to note departures and arrivals, if the sink can copy.
    pub(super) fn begin_moves(&mut self) {
        self.moves.is_noting = self.sink.can_copy();
    }

    /// The identity of the document `entry` in the current source or archive, and whether equal tokens mean equal
    /// bytes.
    fn identity(&self, entry: &Entry<'_>) -> Option<(ContainerDigest, bool)> {
        let identity = self.source.identity(entry)?;
        Some((move_key(self.archive.id().is_some(), &identity, entry), identity.is_certain))
    }

    /// Notes the departure and the arrival that the change of the document at `path` makes.
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
            // Perhaps only a time has changed. The bytes may be equal, so this is no departure.
            return;
        }
        if let Some((old, (identity, is_certain))) = old {
            if old.get(INNER_NOTE).is_some() && !self.moves.is_full() {
                self.moves.plan_bytes += path.len() + NOTE_BYTES;
                self.moves.archives.insert(identity, path.to_vec());
            }
            self.note_departure(path, &old, identity, is_certain, 0);
        }
        if let Some((identity, _)) = new {
            self.moves.add_arrival(identity);
        }
    }

    /// Notes a departure, if the server has all fields of the document.
    fn note_departure(
        &mut self,
        path: &[u8],
        entry: &Entry<'_>,
        identity: ContainerDigest,
        is_certain: bool,
        arrivals: u32,
    ) {
        let is_doubtful = [ERROR_NOTE, MAYBE_NOTE].iter().any(|note| entry.get(note).is_some());
        let Some(held) = entry.get(DIGEST_NOTE).filter(|_| !is_doubtful) else { return };
        let moved = Departure {
            place: Place::Document(path.to_vec()),
            token: entry.token.to_vec(),
            digest: held.to_vec(),
            size: entry.size,
            has_extra_fields: entry.get(super::documents::EXTRA_FIELDS_NOTE).is_some(),
            is_archive: entry.get(INNER_NOTE).is_some(),
            is_certain,
            arrivals,
        };
        self.moves.add_departure(identity, path, moved);
    }

    /// Notes that the container at `path` is new. It is listed after the plan, if there are departures.
    pub(super) fn note_added(&mut self, path: &[u8], level: Level) {
        if self.moves.is_noting && !self.moves.is_full() {
            self.moves.plan_bytes += path.len() + NOTE_BYTES;
            self.moves.added.push((path.to_vec(), level));
        }
    }

    /// Ends the plan's notes: drops departures without an arrival.
    pub(super) fn settle_moves(&mut self) -> Result<(), ImportError> {
        let added = std::mem::take(&mut self.moves.added);
        if !self.moves.departures.is_empty() || !self.moves.archives.is_empty() {
            for (path, level) in added {
                self.note_arrivals(&path, level)?;
            }
        }
        self.moves.settle();
        for (_, path) in std::mem::take(&mut self.moves.archives) {
            self.note_archive(&path, Level::default())?;
        }
        self.moves.settle();
        self.moves.plan_bytes = 0;
        if self.moves.may_copy.is_none() && !self.moves.departures.is_empty() {
            match self.sink.may_copy(false)? {
                true => self.moves.may_copy = Some(true),
                false => self.moves = Moves::default(),
            }
        }
        Ok(())
    }

    /// Notes the documents of a new folder, and of all folders below it, as arrivals.
    fn note_arrivals(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        if self.report(path)? {
            self.sink.drain()?;
        }
        // The run reports why the folder cannot be listed.
        let Ok(listing) = self.list_ahead(path, None) else { return Ok(()) };
        for entry in view(&listing).iter() {
            if entry.kind == EntryKind::Document {
                if let Some((identity, _)) = self.identity(&entry) {
                    self.moves.add_arrival(identity);
                }
            } else if level.depth < DEPTH_MAX {
                let child = join(path, entry.name);
                self.note_arrivals(&child, level.below(&child, listing.len())?)?;
            }
        }
        Ok(())
    }

    /// Notes the recorded documents of an archive that has moved as departures.
    fn note_archive(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        let Some((known, is_doubtful)) = self.recorded(path)? else { return Ok(()) };
        let container = view(&known);
        if is_doubtful || versions::extractor(container) != EXTRACTOR_VERSION || level.depth > DEPTH_MAX {
            return Ok(());
        }
        let below = level.below(path, known.len())?;
        for entry in container.iter() {
            let child = join(path, entry.name);
            if let Some(identity) = Archive::identity_of(&entry).filter(|_| entry.kind == EntryKind::Document)
            {
                let is_certain = identity.is_certain;
                self.note_departure(&child, &entry, move_key(true, &identity, &entry), is_certain, 1);
            }
            if entry.kind == EntryKind::Container || entry.get(INNER_NOTE).is_some() {
                self.note_archive(&child, below)?;
            }
        }
        Ok(())
    }

    /// Notes the departures and arrivals within the archive at `path`. Call this after the archive was opened.
    pub(super) fn note_inner(&mut self, path: &[u8], below: Level) -> Result<(), ImportError> {
        if !self.moves.is_noting {
            return Ok(());
        }
        // The records are read next, so no command may wait for a reply.
        self.drain()?;
        let Some((known, is_doubtful)) = self.recorded(path)? else { return Ok(()) };
        let Ok(listing) = self.source.list(self.archive.path(path), false) else { return Ok(()) };
        if documents_in(view(&known)) > 0 && !is_doubtful {
            self.note_moves_below(path, view(&known), view(&listing.blob), below)?;
        }
        self.settle_moves()
    }

    /// Returns for each arrival in a container the departure that may have moved there, by the arrival's name. Only
    /// departures that the server still has are returned. Stashes departures that this container replaces.
    pub(super) fn find_moves(
        &mut self,
        old: Container<'_>,
        new: Container<'_>,
        path: &[u8],
    ) -> Result<BTreeMap<Vec<u8>, Departure>, ImportError> {
        let mut found = BTreeMap::new();
        if self.moves.departures.is_empty() {
            return Ok(found);
        }
        for change in diff(old, new) {
            if let Change::Updated { old, .. } = change
                && old.kind == EntryKind::Document
            {
                self.stash_before_change(&join(path, old.name))?;
            }
        }
        for change in diff(old, new) {
            let entry = change.entry();
            // If it is unknown which document the server has at the path, the new document is sent and not copied.
            let is_copyable = match change {
                Change::Added(_) => true,
                Change::Updated { old, .. } => old.get(DIGEST_NOTE).is_some(),
                _ => false,
            };
            if entry.kind == EntryKind::Document
                && is_copyable
                && let Some((identity, _)) = self.identity(&entry)
                && let Some(moved) = self.moves.departures.get(&identity)
            {
                found.insert(entry.name.to_vec(), moved.clone());
            }
        }
        if found.is_empty() {
            return Ok(found);
        }
        self.drain()?;
        let places: Vec<&Place> = found.values().map(|moved| &moved.place).collect();
        let mut exist = self.sink.holds(&places)?.into_iter();
        found.retain(|_, _| exist.next().unwrap_or_default());
        Ok(found)
    }

    /// Notes that the server copied the arrival `entry`.
    pub(super) fn note_copied(&mut self, entry: &Entry<'_>) {
        let identity = self.identity(entry);
        if let Some(moved) = identity.and_then(|(identity, _)| self.moves.departures.get_mut(&identity)) {
            moved.arrivals = moved.arrivals.saturating_sub(1);
        }
    }

    /// Call this before the document at `path` is removed or replaced. If the document is a departure whose arrival was
    /// not imported yet, stashes the document.
    pub(super) fn stash_before_change(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let Some(identity) = self.moves.by_path.remove(&digest(path)) else { return Ok(()) };
        let leaving = self.moves.departures.get(&identity);
        let Some(moved) = leaving.filter(|moved| moved.place == Place::Document(path.to_vec())) else {
            return Ok(());
        };
        let number = self.moves.stashed;
        if moved.arrivals == 0 || number == STASHED_MAX || !self.may_stash()? {
            self.moves.departures.remove(&identity);
            return Ok(());
        }
        if number >= self.moves.recorded {
            let wanted = u32::try_from(self.moves.departures.len()).unwrap_or(STASHED_MAX);
            let room = number.saturating_add(wanted).min(STASHED_MAX);
            self.sink.store(STASH_NAME, &stash_record(room))?;
            self.moves.recorded = room;
        }
        if !self.sink.stash(path, number)? {
            self.moves.departures.remove(&identity);
            return Ok(());
        }
        self.moves.stashed += 1;
        if let Some(moved) = self.moves.departures.get_mut(&identity) {
            moved.place = Place::Stash(number);
        }
        Ok(())
    }

    fn may_stash(&mut self) -> Result<bool, ImportError> {
        if let Some(known) = self.moves.may_stash {
            return Ok(known);
        }
        let asked = self.sink.may_copy(true)?;
        self.moves.may_stash = Some(asked);
        Ok(asked)
    }

    /// Deletes the documents that an earlier run stashed before it was cut short.
    pub(super) fn clear_old_stash(&mut self) -> Result<(), ImportError> {
        if !self.sink.can_copy() {
            return Ok(());
        }
        let found = self.sink.read(&[STASH_NAME.to_vec()])?.pop().flatten();
        let Some(found) = found else { return Ok(()) };
        let count = view(&found).iter().next().map_or(0, |entry| entry.size);
        self.moves.stashed = u32::try_from(count).unwrap_or(STASHED_MAX).min(STASHED_MAX);
        self.clear_stash()
    }

    /// Deletes the documents that this run stashed.
    pub(super) fn clear_stash(&mut self) -> Result<(), ImportError> {
        if self.moves.stashed == 0 {
            return Ok(());
        }
        self.sink.clear_stash(self.moves.stashed)?;
        self.sink.forget(&[STASH_NAME])?;
        (self.moves.stashed, self.moves.recorded) = (0, 0);
        self.drain()
    }
}

/// The record which says that up to `count` documents may be stashed.
fn stash_record(count: u32) -> Vec<u8> {
    let mut builder = ContainerBuilder::new(EXTRACTOR_VERSION);
    let pushed = builder.push(EntryKind::Container, b"aside", count.into(), &[], []);
    pushed.and_then(|()| builder.finish()).expect("one short entry")
}

/// When the container `name`, which the source has lost, must be removed. It is removed before the additions if it may
/// have become an archive: documents in the new archive have the ids of documents that were in the container. If
/// documents are listed in parts, the new archive may be in a part of another name.
pub(super) fn removal_pass(old: Container<'_>, new: Container<'_>, name: &[u8]) -> RemovalPass {
    let is_document = || new.find(name).is_some_and(|entry| entry.kind == EntryKind::Document);
    match parts::has_parts(old) || parts::has_parts(new) || is_document() {
        true => RemovalPass::BeforeAdditions,
        false => RemovalPass::AfterAdditions,
    }
}
