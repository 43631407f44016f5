//! The plan of a run: the limit of deletions, and the forecast of the run's cost.
//!
//! A file system that is not mounted looks like an empty folder. An import of it would remove all documents. So a run
//! with records first lists the source without changing anything, and counts how many of the server's documents it
//! would remove. If [`MaxDelete`] does not allow this number, the run stops. The documents that an archive has lost are
//! not known before the archive is opened. Opening adds them to the count, before any of them is removed
//! ([`Job::check_archive`]). The source may also change after the plan, or the plan could not list a folder that the run
//! can list. So the run counts what it removes, and stops before it exceeds the limit ([`Job::check_document`]).
//!
//! The plan keeps the listings of a remote source for the run ([`super::listings`]), so the run lists no folder twice.

use super::failed::ImportMode;
use super::{Job, Level, join, view};
use crate::ImportError;
use crate::container::{Container, ContainerBuilder, EntryKind};
use crate::diff::{Change, diff};
use crate::document::EXTRACTOR_VERSION;
use crate::extract::DOCUMENT_BYTES_MAX;
use crate::memory::MEMORY_FACTOR;
use crate::sink::strand::BYTES_UNDER_WAY_MAX;
use crate::source::Tokens;
use crate::versions::{self, INNER_NOTE, MAYBE_NOTE, intent_name, recorded_name};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A run may always remove up to this number of documents, unless the source is empty: an empty folder may be a disk
/// that is not mounted.
pub const DELETES_ALWAYS_ALLOWED: u64 = 100;

/// How much of a dataset one run may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxDelete {
    /// A number of documents.
    Documents(u64),
    /// A percentage of the documents that the server holds. Up to [`DELETES_ALWAYS_ALLOWED`] documents are allowed in
    /// any case, unless the source is empty.
    Percent(u8),
}

impl Default for MaxDelete {
    fn default() -> MaxDelete {
        MaxDelete::Percent(20)
    }
}

/// The error for a text that is not a [`MaxDelete`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected a number of documents, or 0% to 100%")]
pub struct MaxDeleteError(String);

impl std::str::FromStr for MaxDelete {
    type Err = MaxDeleteError;
    fn from_str(text: &str) -> Result<MaxDelete, MaxDeleteError> {
        let expected = || MaxDeleteError(text.to_owned());
        match text.strip_suffix('%') {
            Some(number) => match number.parse() {
                Ok(percent @ 0..=100) => Ok(MaxDelete::Percent(percent)),
                _ => Err(expected()),
            },
            None => text.parse().map(MaxDelete::Documents).map_err(|_| expected()),
        }
    }
}

/// The forecast of what a run costs, made from its listings before it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Containers that are listed.
    pub containers: u64,
    /// Documents that are read, without documents in archives.
    pub documents: u64,
    /// Bytes of these documents.
    pub bytes: u64,
    /// Documents that are removed.
    pub removed: u64,
    /// Maximum memory of the run, without the memory that the program itself needs.
    pub memory_bytes: u64,
    /// Duration of the run.
    pub time: Duration,
}

/// The time in a forecast to read and send one document. For a remote source, the time of one request is added.
const TIME_PER_DOCUMENT: Duration = Duration::from_micros(100);
/// The time in a forecast to read and send one megabyte.
const TIME_PER_MEGABYTE: Duration = Duration::from_millis(40);

/// What a run would do to the documents that the server holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    /// True when the source has no document any more.
    is_emptied: bool,
    /// True when the source has documents that the server does not have, as far as the plan has looked.
    has_new_documents: bool,
    /// True when the source has folders that the server does not have.
    has_new_folders: bool,
    /// Number of documents that the server holds.
    held: u64,
    /// True when the server holds a document that the run does not remove.
    has_kept: bool,
    /// Number of documents that the run removes.
    removed: u64,
    /// Number of messages in archives that only get another name: the run removes the old name, and nothing is lost.
    renamed: u64,
    /// Number of documents that the run has removed.
    removed_now: u64,
    /// Number of containers that the run lists.
    containers: u64,
    /// Number of documents that the run reads.
    documents: u64,
    /// Bytes of these documents.
    bytes: u64,
    /// Bytes of the largest of these documents.
    largest: u64,
    /// Maximum number of bytes of containers that the run holds at once.
    held_bytes: usize,
}

impl Plan {
    /// Makes the forecast. `listing`: the time that the plan's listings took.
    fn forecast(self, listing: Duration, is_remote: bool) -> Forecast {
        let Plan { containers, documents, bytes, removed, .. } = self;
        let largest = self.largest.min(DOCUMENT_BYTES_MAX) * MEMORY_FACTOR;
        let sent = bytes.min(BYTES_UNDER_WAY_MAX as u64);
        // Assume that a request for a document takes as long as a request for a listing.
        let request = listing.checked_div(u32::try_from(containers.max(1)).unwrap_or(u32::MAX));
        let per_document = TIME_PER_DOCUMENT + request.filter(|_| is_remote).unwrap_or_default();
        let for_documents = per_document.as_secs_f64() * documents as f64;
        let for_bytes = TIME_PER_MEGABYTE.as_secs_f64() * (bytes as f64 / 1e6);
        let time = listing + Duration::from_secs_f64(for_documents + for_bytes);
        let memory_bytes = self.held_bytes as u64 * 2 + largest + sent;
        Forecast { containers, documents, bytes, removed, memory_bytes, time }
    }
}

impl MaxDelete {
    fn allows(self, plan: Plan) -> bool {
        match self {
            MaxDelete::Percent(100) => true,
            MaxDelete::Documents(most) => plan.removed <= most,
            MaxDelete::Percent(percent) => {
                let share = u128::from(plan.held) * u128::from(percent);
                let are_few = plan.removed <= DELETES_ALWAYS_ALLOWED;
                are_few && !plan.is_emptied || u128::from(plan.removed) * 100 <= share
            }
        }
    }
}

impl Job<'_> {
    /// Makes the plan. Fails when the run would remove more documents than the options allow. Reports the forecast if
    /// the options ask for it. `old` and `new` are the recorded and the listed container of the root.
    pub(super) fn check_plan(
        &mut self,
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<(), ImportError> {
        let max = self.options.max_delete;
        let started = Instant::now();
        if max == MaxDelete::Percent(100) && !self.options.forecast {
            return Ok(());
        }
        let mut plan = Plan { is_emptied: new.is_empty(), containers: 1, ..Plan::default() };
        self.begin_moves();
        self.plan(&[], old, new, below, &mut plan)?;
        // Also empty: folders are left in the source, and no documents. Of new folders, the plan knows the names only: an
        // empty disk may have a folder `lost+found`.
        let loses_all = plan.removed > 0 && !plan.has_kept && !plan.has_new_documents;
        plan.is_emptied |= loses_all && !(plan.has_new_folders && self.lists_document(&[], new, 0)?);
        let took = started.elapsed();
        self.reports.plan(plan.documents, plan.containers, took, self.options.forecast);
        if self.options.forecast {
            self.progress.forecast(&plan.forecast(took, self.source.is_remote()));
        }
        self.planned = Some(plan);
        self.check_planned()?;
        self.settle_moves()
    }

    /// Plans a retry of an archive with `held` documents. A retry has no plan of the source, so `--max-delete` is a share
    /// of the documents in these archives.
    pub(super) fn plan_retry(&mut self, held: u64) {
        self.planned.get_or_insert_with(Plan::default).held += held;
    }

    /// Adds the documents that the archive at `path` has lost to the plan. Fails when the run would then remove more
    /// documents than the options allow. `old` and `new` are the recorded and the listed root of the archive.
    pub(super) fn check_archive(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<(), ImportError> {
        if self.planned.is_none() {
            return Ok(());
        }
        let mut lost = Plan::default();
        self.plan(path, old, new, Level { notes_moves: false, ..below }, &mut lost)?;
        // A renamed document is not lost: a message of a mailbox can get a new name.
        let mut added: BTreeMap<&[u8], u64> = BTreeMap::new();
        for change in diff(old, new) {
            if let Change::Added(entry) = change
                && !entry.token.is_empty()
            {
                *added.entry(entry.token).or_default() += 1;
            }
        }
        // Two lost messages with equal bytes need two new names.
        let is_renamed = |change: &Change<'_>| match change {
            Change::Removed(entry) if versions::may_be_lost(entry) => match added.get_mut(entry.token) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    true
                }
                _ => false,
            },
            _ => false,
        };
        let renamed = (diff(old, new).filter(is_renamed).count() as u64).min(lost.removed);
        if let Some(plan) = &mut self.planned {
            plan.renamed += renamed;
        }
        self.check_removal(lost.removed - renamed)
    }

    /// Counts a document that the run is about to remove. Fails when the plan did not expect this removal, and the options
    /// do not allow it.
    pub(super) fn check_document(&mut self) -> Result<(), ImportError> {
        let (mode, max) = (self.options.mode, self.options.max_delete);
        let Some(plan) = self.planned.as_mut().filter(|_| mode == ImportMode::Import) else { return Ok(()) };
        if plan.removed_now == plan.removed + plan.renamed {
            plan.removed += 1;
            if !max.allows(*plan) {
                let held = plan.held;
                return Err(ImportError::LostMeanwhile { gone: self.gone()?, held });
            }
        }
        plan.removed_now += 1;
        Ok(())
    }

    /// Fails when the run would remove more documents than the options allow. A dry run first shows what it would remove:
    /// see [`Job::check_dry_run`].
    fn check_planned(&mut self) -> Result<(), ImportError> {
        if self.options.dry_run { Ok(()) } else { self.check_deletions() }
    }

    /// At the end of a dry run, does what [`Job::check_planned`] does in other runs.
    pub(super) fn check_dry_run(&mut self) -> Result<(), ImportError> {
        if self.options.dry_run { self.check_deletions() } else { Ok(()) }
    }

    fn check_deletions(&mut self) -> Result<(), ImportError> {
        match self.planned {
            Some(plan) if !self.options.max_delete.allows(plan) => {
                let Plan { removed, held, .. } = plan;
                Err(ImportError::TooManyDeletions { removed, held, gone: self.gone()? })
            }
            _ => Ok(()),
        }
    }

    /// Number of documents that the run has removed: none in a dry run, and none in an atomic run, which is undone. Waits
    /// until the removals are at the server, because an error says the number.
    fn gone(&mut self) -> Result<u64, ImportError> {
        self.sink.drain()?;
        let removed_now = self.planned.map_or(0, |plan| plan.removed_now);
        Ok(if self.options.dry_run || self.options.atomic { 0 } else { removed_now })
    }

    /// Adds the documents of the archive `path` to the plan, all of which the run is about to remove. `note`: the archive's
    /// recorded numbers.
    pub(super) fn check_archive_removal(
        &mut self,
        path: &[u8],
        note: Option<&[u8]>,
        below: Level,
    ) -> Result<(), ImportError> {
        let removed = match note.map(super::nested::counts) {
            _ if self.planned.is_none() => return Ok(()),
            Some((documents, 0)) => documents,
            // A document whose text could not be extracted failed, and is at the server.
            _ => {
                let mut lost = Plan::default();
                self.plan_lost_archive(path, below, &mut lost)?;
                lost.removed
            }
        };
        self.check_removal(removed)
    }

    /// Adds all documents of the recorded archive `path` to `plan`, as removed.
    fn plan_lost_archive(&mut self, path: &[u8], below: Level, plan: &mut Plan) -> Result<(), ImportError> {
        let Some((known, interrupted)) = self.known(path)? else { return Ok(()) };
        let deeper = Level { notes_moves: false, interrupted, ..below.below(path, known.len())? };
        if deeper.depth > super::DEPTH_MAX {
            return Ok(());
        }
        let nothing = ContainerBuilder::empty(EXTRACTOR_VERSION);
        self.plan(path, view(&known), view(&nothing), deeper, plan)
    }

    /// True when the server holds a document of the recorded container `path`, or of a container below it.
    fn holds_documents(&mut self, path: &[u8], depth: usize) -> Result<bool, ImportError> {
        let Some((known, _)) = self.known(path)?.filter(|_| depth <= super::DEPTH_MAX) else {
            return Ok(false);
        };
        let record = view(&known);
        if record.iter().any(|entry| entry.kind == EntryKind::Document && versions::may_be_lost(&entry)) {
            return Ok(true);
        }
        for folder in record.iter().filter(|entry| entry.kind == EntryKind::Container) {
            if self.holds_documents(&join(path, folder.name), depth + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when the listed container `path`, or one below it, has a document. What cannot be listed has none.
    fn lists_document(
        &mut self,
        path: &[u8],
        listed: Container<'_>,
        depth: usize,
    ) -> Result<bool, ImportError> {
        if listed.iter().any(|entry| entry.kind == EntryKind::Document) {
            return Ok(true);
        }
        for folder in listed.iter().filter(|_| depth < super::DEPTH_MAX) {
            let child = join(path, folder.name);
            if self.report(&child)? {
                self.sink.drain()?;
            }
            let Ok(listing) = self.list_ahead(&child, None) else { continue };
            if self.lists_document(&child, view(&listing), depth + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds `removed` documents of an archive to the plan. Fails when the run would then remove more documents than the
    /// options allow.
    pub(super) fn check_removal(&mut self, removed: u64) -> Result<(), ImportError> {
        let Some(plan) = &mut self.planned else { return Ok(()) };
        plan.removed += removed;
        if removed == 0 { Ok(()) } else { self.check_planned() }
    }

    /// Notes which documents of the container and of all containers below it have moved: see [`super::moves`].
    pub(super) fn note_moves_below(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<(), ImportError> {
        self.plan(path, old, new, Level { notes_moves: true, ..below }, &mut Plan::default())
    }

    /// Adds to `plan` what the run would do to the documents of the container and of all containers below it.
    fn plan(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        plan: &mut Plan,
    ) -> Result<(), ImportError> {
        let nothing = ContainerBuilder::empty(EXTRACTOR_VERSION);
        // If documents are read again anyway, they are not copied, so moves are not noted.
        let notes = below.notes_moves && versions::extractor(old) == EXTRACTOR_VERSION && !below.reread;
        for change in diff(old, new) {
            let entry = change.entry();
            if let Change::Added(added) = change {
                let is_document = added.kind == EntryKind::Document;
                *if is_document { &mut plan.has_new_documents } else { &mut plan.has_new_folders } = true;
            }
            let is_read = match change {
                Change::Added(_) | Change::Updated { .. } => true,
                Change::Removed(_) => false,
                _ => below.reread,
            };
            if entry.kind == EntryKind::Document && is_read {
                // Ask for a size only if it is needed: some sources have no sizes in their listings, and must look it
                // up.
                let size = if self.options.forecast { self.source.size(&entry).unwrap_or(0) } else { 0 };
                plan.documents += 1;
                plan.bytes += size;
                plan.largest = plan.largest.max(size);
            }
            if entry.kind == EntryKind::Document && notes {
                self.note_change(&join(path, entry.name), &change);
            }
            let Some(recorded) = change.recorded() else {
                if entry.kind == EntryKind::Container && !self.options.forecast && notes {
                    self.note_added(&join(path, entry.name), below);
                }
                if entry.kind == EntryKind::Container
                    && self.options.forecast
                    && below.depth < super::DEPTH_MAX
                {
                    let child = join(path, entry.name);
                    let Ok(listing) = self.list_ahead(&child, None) else { continue };
                    let deeper = below.below(&child, listing.len())?;
                    plan.containers += 1;
                    plan.held_bytes = plan.held_bytes.max(deeper.held_bytes);
                    self.plan(&child, view(&nothing), view(&listing), deeper, plan)?;
                }
                continue;
            };
            let removed = matches!(change, Change::Removed(_));
            if recorded.kind == EntryKind::Document {
                let note = recorded.get(INNER_NOTE).map(super::nested::counts);
                // A run that was cut short may have imported documents of an archive before it noted their number. And a
                // document whose text could not be extracted failed, and is at the server.
                let walks = removed
                    && !super::nested::goes_on_as_folder(&recorded, new)
                    && super::nested::may_contain_documents(&recorded)
                    && note.is_none_or(|(documents, failed)| documents == 0 || failed > 0);
                let inner = note.filter(|_| !walks).map_or(0, |(documents, _)| documents);
                // The server may have a doubtful document, too. What a run that was cut short left was looked up already.
                let is_doubtful = removed && !below.interrupted && recorded.get(MAYBE_NOTE).is_some();
                let is_held = versions::may_be_lost(&recorded) || is_doubtful;
                let held = inner + u64::from(is_held);
                plan.held += if below.is_held_known { 0 } else { held };
                plan.removed += if removed { held } else { 0 };
                plan.has_kept |= held > 0 && !removed;
                if walks {
                    self.plan_lost_archive(&join(path, recorded.name), below, plan)?;
                }
                continue;
            }
            // With content tokens, the root's record has the number of documents below each of its children. Deeper
            // records have no such number.
            let has_count = self.source.tokens() == Tokens::Content && below.depth == 1;
            let is_counted = has_count && !below.interrupted && super::is_counted(&recorded, &entry);
            if is_counted {
                plan.held += recorded.size;
            }
            let opens = below.interrupted || below.reread || below.open_all;
            if matches!(change, Change::Unchanged { .. }) && !recorded.token.is_empty() && !opens {
                plan.has_kept =
                    plan.has_kept || self.holds_documents(&join(path, recorded.name), below.depth)?;
                continue;
            }
            let child = join(path, recorded.name);
            if self.report(&child)? {
                self.sink.drain()?;
            }
            let Some((mut known, is_doubtful)) = self.known(&child)? else { continue };
            self.keep_parts(&child, &known);
            let mut deeper = below.below(&child, known.len())?;
            deeper.notes_moves &= !is_doubtful;
            deeper.interrupted = is_doubtful;
            deeper.is_held_known |= is_counted;
            deeper.open_all |= has_count && !is_counted;
            plan.containers += u64::from(!removed);
            plan.held_bytes = plan.held_bytes.max(deeper.held_bytes);
            if deeper.depth > super::DEPTH_MAX {
                continue;
            }
            // The run probably fails to list the folder, too, and then removes none of its documents.
            let listed = match removed {
                true => None,
                false => {
                    match self.list_ahead(&child, Some(&known).filter(|_| !is_doubtful).map(Vec::as_slice)) {
                        Ok(listing) => Some(listing),
                        Err(_) => continue,
                    }
                }
            };
            if let Some(listing) = &listed {
                self.divide(&child, &mut known, listing)?;
            }
            self.plan(&child, view(&known), view(listed.as_ref().unwrap_or(&nothing)), deeper, plan)?;
        }
        Ok(())
    }

    /// Returns what is known about a container, if a run has recorded it or was cut short in it: its record, or the merge of
    /// record and intent. The flag is true when a run was cut short in it. No command may wait for a reply.
    fn known(&mut self, path: &[u8]) -> Result<Option<(Vec<u8>, bool)>, ImportError> {
        match self.record_and_doubt(path)? {
            (_, true) => {
                let part = self.divided.get(path).cloned();
                let known = versions::load(&mut *self.sink, &self.options.into, path, part)?;
                Ok(Some((known.blob, true)))
            }
            (recorded, false) => Ok(recorded.map(|blob| (blob, false))),
        }
    }

    /// Returns the record of a container, if there is one. The flag is true when a run was cut short in the container:
    /// then the server may hold other documents than the record says.
    pub(super) fn recorded(&mut self, path: &[u8]) -> Result<Option<(Vec<u8>, bool)>, ImportError> {
        let (recorded, is_doubtful) = self.record_and_doubt(path)?;
        Ok(recorded.map(|blob| (blob, is_doubtful)))
    }

    fn record_and_doubt(&mut self, path: &[u8]) -> Result<(Option<Vec<u8>>, bool), ImportError> {
        let mut found = self.sink.read(&[recorded_name(path), intent_name(path)])?;
        let is_doubtful = found.pop().flatten().is_some();
        let recorded = found.pop().flatten().or_else(|| self.divided.get(path).cloned());
        Ok((recorded, is_doubtful))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_parsed_and_enforced() {
        assert_eq!("20%".parse(), Ok(MaxDelete::default()));
        assert_eq!("0".parse(), Ok(MaxDelete::Documents(0)));
        for bad in ["", "x", "101%", "-1", "1.5%"] {
            assert!(bad.parse::<MaxDelete>().is_err(), "{bad:?}");
        }
        let plan = |held, removed| Plan { held, removed, ..Plan::default() };
        assert!(
            MaxDelete::Percent(20).allows(plan(1000, 200)) && !MaxDelete::Percent(20).allows(plan(1000, 201))
        );
        assert!(
            MaxDelete::Percent(0).allows(plan(100, 100)) && !MaxDelete::Percent(0).allows(plan(101, 101))
        );
        let cost = Plan { containers: 2, documents: 10, bytes: 2_000_000, largest: 9, ..Plan::default() };
        let [near, far] = [false, true].map(|remote| cost.forecast(Duration::from_secs(1), remote));
        assert!(near.time >= Duration::from_secs(1) && far.time >= near.time + Duration::from_secs(5));
        assert_eq!((near.documents, near.bytes, near.memory_bytes), (10, 2_000_000, 45 + 2_000_000));
        assert!(MaxDelete::Documents(3).allows(plan(9, 3)) && !MaxDelete::Documents(3).allows(plan(9, 4)));
    }
}
