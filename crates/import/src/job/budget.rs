//! The plan of a run: the deletion budget, and the forecast of what the run costs.
//!
//! A run stops before it changes anything if the source has lost too many of its documents.
//!
//! A file system that is not mounted looks like an empty folder. So a run that has a record to compare with first walks
//! over the listings alone. It counts how many of the documents that the server holds would be removed, and stops when
//! that is more than [`MaxDelete`] allows. What an archive has lost is known when the archive is opened. These documents
//! are added to the count then, before the run removes any of them ([`Job::check_archive`]).
//!
//! The listings of a remote source are kept for the run ([`super::listings`]), so a folder is not asked for twice.

use super::{Job, Level, join, view};
use crate::ImportError;
use crate::container::{Container, Kind};
use crate::diff::{Change, diff};
use crate::document::EXTRACTOR_VERSION;
use crate::extract::DOCUMENT_BYTES_MAX;
use crate::memory::MEMORY_FACTOR;
use crate::sink::strand::BYTES_UNDER_WAY_MAX;
use crate::versions::{DIGEST_NOTE, INNER_NOTE, intent_name, recorded_name};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Up to this number of documents may always be removed, unless the source is empty now: it may be a folder whose disk
/// is not mounted.
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

/// The error for a text that is no [`MaxDelete`].
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
    /// Maximum memory, without the program's own.
    pub memory_bytes: u64,
    /// How long the run takes.
    pub time: Duration,
}

/// The time per document and (below) per megabyte in a forecast. A source that needs longer to list needs longer to
/// read too.
const TIME_A_DOCUMENT: Duration = Duration::from_micros(100);
const TIME_A_MEGABYTE: Duration = Duration::from_millis(40);

/// What a run would do to the documents that the server holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    /// True when the source has nothing at all.
    is_emptied: bool,
    held: u64,
    removed: u64,
    containers: u64,
    documents: u64,
    bytes: u64,
    largest: u64,
    held_bytes: usize,
}

impl Plan {
    /// Makes the forecast. `listing`: how long it took to list everything.
    fn forecast(self, listing: Duration, is_remote: bool) -> Forecast {
        let Plan { containers, documents, bytes, removed, .. } = self;
        let largest = self.largest.min(DOCUMENT_BYTES_MAX) * MEMORY_FACTOR;
        let sent = bytes.min(BYTES_UNDER_WAY_MAX as u64);
        // A request for a document takes about as long as one for a listing.
        let request = listing.checked_div(u32::try_from(containers.max(1)).unwrap_or(u32::MAX));
        let each = TIME_A_DOCUMENT + request.filter(|_| is_remote).unwrap_or_default();
        let reading = each.as_secs_f64() * documents as f64;
        let moving = TIME_A_MEGABYTE.as_secs_f64() * (bytes as f64 / 1e6);
        let time = listing + Duration::from_secs_f64(reading + moving);
        let memory_bytes = self.held_bytes as u64 * 2 + largest + sent;
        Forecast { containers, documents, bytes, removed, memory_bytes, time }
    }
}

impl MaxDelete {
    fn allows(self, plan: Plan) -> bool {
        match self {
            MaxDelete::Documents(most) => plan.removed <= most,
            MaxDelete::Percent(percent) => {
                let share = u128::from(plan.held) * u128::from(percent);
                let are_few = plan.removed <= DELETES_ALWAYS_ALLOWED;
                are_few && !plan.is_emptied || u128::from(plan.removed) * 100 <= share
            }
        }
    }
    fn check(self, plan: Plan) -> Result<(), ImportError> {
        match self.allows(plan) {
            true => Ok(()),
            false => Err(ImportError::TooManyDeletions { removed: plan.removed, held: plan.held }),
        }
    }
}

impl Job<'_> {
    /// Fails when the run would remove more documents than it may. Reports the forecast, if the options ask for it.
    /// `old` and `new` are the containers of the root.
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
        let took = started.elapsed();
        self.reports.plan(plan.documents, plan.containers, took, self.options.forecast);
        if self.options.forecast {
            self.progress.forecast(&plan.forecast(took, self.source.is_remote()));
        }
        self.planned = Some(plan);
        max.check(plan)?;
        self.settle_moves()
    }

    /// Fails when the run would remove more documents than it may, with those that the archive at `path` has lost. `old`
    /// and `new` are the containers of what lies at the top of the archive.
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
        // A document that only has another name is not lost: a message of a mailbox may be named anew.
        let added = diff(old, new).filter_map(|change| match change {
            Change::Added(entry) => Some(entry.token),
            _ => None,
        });
        let added: BTreeSet<&[u8]> = added.filter(|token| !token.is_empty()).collect();
        let renamed = diff(old, new).filter(|change| match change {
            Change::Removed(entry) => entry.get(DIGEST_NOTE).is_some() && added.contains(entry.token),
            _ => false,
        });
        self.check_removal(lost.removed.saturating_sub(renamed.count() as u64))
    }

    /// Fails when the run would remove more documents than it may, with `removed` ones of an archive.
    pub(super) fn check_removal(&mut self, removed: u64) -> Result<(), ImportError> {
        let Some(plan) = &mut self.planned else { return Ok(()) };
        plan.removed += removed;
        if removed == 0 { Ok(()) } else { self.options.max_delete.check(*plan) }
    }

    /// Notes which documents of the container, and of those below, change their places.
    pub(super) fn walk(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<(), ImportError> {
        self.plan(path, old, new, Level { notes_moves: true, ..below }, &mut Plan::default())
    }

    /// Adds what the run would do to the container's documents, and to the documents below it.
    fn plan(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        plan: &mut Plan,
    ) -> Result<(), ImportError> {
        let nothing = crate::container::Builder::new(EXTRACTOR_VERSION).finish().expect("nothing in it");
        // A document that is read again anyway is not copied.
        let notes = below.notes_moves && old.producer() == EXTRACTOR_VERSION && !below.reread;
        for change in diff(old, new) {
            let entry = change.entry();
            let is_read = match change {
                Change::Added(_) | Change::Updated { .. } => true,
                Change::Removed(_) => false,
                _ => below.reread,
            };
            if entry.kind == Kind::Document && is_read {
                // Asking for a size may take a while: some sources have no sizes in their listings.
                let size = if self.options.forecast { self.source.size(&entry).unwrap_or(0) } else { 0 };
                plan.documents += 1;
                plan.bytes += size;
                plan.largest = plan.largest.max(size);
            }
            if entry.kind == Kind::Document && notes {
                self.note_change(&join(path, entry.name), &change);
            }
            let Some(recorded) = change.recorded() else {
                if entry.kind == Kind::Container && !self.options.forecast && notes {
                    self.note_added(&join(path, entry.name), below);
                }
                if entry.kind == Kind::Container && self.options.forecast && below.depth < super::DEPTH_MAX {
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
            if recorded.kind == Kind::Document {
                let inner = recorded.get(INNER_NOTE).map_or(0, |note| super::nested::counts(note).0);
                let held = inner + u64::from(recorded.get(DIGEST_NOTE).is_some());
                plan.held += held;
                plan.removed += if removed { held } else { 0 };
                continue;
            }
            // The tree is unchanged. The root's record says how many documents it holds.
            if matches!(change, Change::Unchanged { .. }) && !recorded.token.is_empty() {
                plan.held += recorded.size;
                continue;
            }
            let child = join(path, recorded.name);
            if self.report(&child)? {
                self.sink.drain()?;
            }
            let Some((mut known, is_doubtful)) = self.recorded(&child, recorded.token)? else { continue };
            self.keep_parts(&child, &known);
            let mut deeper = below.below(&child, known.len())?;
            deeper.notes_moves &= !is_doubtful;
            plan.containers += u64::from(!removed);
            plan.held_bytes = plan.held_bytes.max(deeper.held_bytes);
            if deeper.depth > super::DEPTH_MAX {
                continue;
            }
            // What cannot be listed is not removed either.
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

    /// The record of a container, or the tree that its parent's record names; `None` where nothing is known. True: a run
    /// that was cut short may have changed what is in the container.
    pub(super) fn recorded(
        &mut self,
        path: &[u8],
        token: &[u8],
    ) -> Result<Option<(Vec<u8>, bool)>, ImportError> {
        let mut found = self.sink.read(&[recorded_name(path), intent_name(path)])?;
        let is_doubtful = found.pop().flatten().is_some();
        let recorded = found.pop().flatten().or_else(|| self.divided.get(path).cloned());
        let known = match recorded {
            Some(recorded) => Some(recorded),
            None => super::recall(&mut *self.source, &self.options.into, path, token)?,
        };
        Ok(known.map(|blob| (blob, is_doubtful)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_and_kept() {
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
