//! The run of an import. The run imports folder by folder, child folders first.
//!
//! [`run`] is the entry. For each folder the run compares the recorded container at the server ([`crate::versions`])
//! with the source's listing. If anything differs, the run first stores the listing as the *intent*: after a run
//! that is cut short, the next run knows every document that may be at the server. Child folders are imported next,
//! then the folder's own documents. At most [`BYTES_UNDER_WAY_MAX`] bytes and [`COMMANDS_UNDER_WAY_MAX`] commands wait
//! for replies. When all replies have arrived, the run records the new container. One HSET sets all fields of a
//! document, and one HDEL deletes the fields that the document lacks, so no reader ever finds the document missing.
//! [`crate::sink`] sends the commands.
//!
//! Some sources make their tokens of content ([`Tokens::Content`]). The run does not open a child container with an
//! unchanged token of such a source.

mod budget;
mod checks;
mod divided;
mod documents;
mod failed;
mod listings;
mod moves;
mod nested;
mod reports;

pub use crate::sink::strand::{BYTES_UNDER_WAY_MAX, COMMANDS_UNDER_WAY_MAX};
pub use budget::{DELETES_ALWAYS_ALLOWED, Forecast, MaxDelete};
pub use checks::check_source;
pub use failed::ImportMode;
pub use listings::LISTINGS_KEPT_BYTES_MAX;
pub use moves::MOVES_BYTES_MAX;
pub(crate) use nested::unknown_counts_note;
pub use reports::Pace;

use crate::cache::CacheUse;
use crate::container::{Container, ContainerBuilder, ContainerError, Entry, EntryKind};
use crate::diff::{Change, diff};
use crate::document::EXTRACTOR_VERSION;
use crate::error::{Bound, OptionError};
use crate::extract::child::Extractor;
use crate::filter::{Filter, Filtered, Ignoring};
use crate::index::TextIndex;
use crate::meter::Meter;
use crate::sink::{self, Sink};
use crate::source::{Listing, Source, Tokens, parts};
use crate::versions::{
    self, DIGEST_NOTE, INNER_NOTE, KnownContainer, MAYBE_NOTE, intent_name, recorded_name,
};
use crate::{ImportError, ImportOptions, Outcome, Progress, Summary, source};
use budget::Plan;
use divided::Divided;
use listings::Listings;
use moves::Moves;
use nested::{CurrentArchive, RemovalPass};
use reports::Reports;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum depth of nested folders. A deeper folder becomes a failed document.
pub const DEPTH_MAX: usize = 128;
/// Maximum number of bytes of containers that a run holds at once: the containers from the root down to the current
/// folder.
pub const CONTAINERS_HELD_BYTES_MAX: usize = 1 << 30;
/// Longest name of a dataset in bytes.
pub const DATASET_BYTES_MAX: usize = 256;
/// The note that holds the reason of a failed document.
pub(crate) const ERROR_NOTE: &[u8] = b"~error";

/// Imports `options.source` into the server. Blocks until the import is done.
///
/// # Errors
/// [`ImportError`], when the run had to stop. Documents that failed are not an error: they are in the [`Summary`].
pub fn run(options: &ImportOptions, progress: &mut dyn Progress) -> Result<Summary, ImportError> {
    let started = Instant::now();
    let dry_run = options.dry_run || options.mode == ImportMode::Verify;
    let mut options = ImportOptions { dry_run, ..options.clone() };
    if options.mode == ImportMode::Verify {
        // A verification must read the source itself, not the cache.
        options.remote.cache = None;
    }
    let options = &options;
    checks::check(options)?;
    source::check_options(&[options.source.as_path()], &options.remote)?;
    // A URL may have a password in it.
    let shown = || source::remote::http::shown(&options.source.to_string_lossy()).into();
    let source_error = |error| ImportError::Source { path: shown(), error };
    let filter = Filter::new(&options.filter).map_err(OptionError::Filter)?;
    let mut source = source::open(&options.source, &options.remote).map_err(source_error)?;
    if options.filter.gitignore {
        source = Box::new(Ignoring::new(source));
    }
    if let Some(filter) = filter {
        source = Box::new(Filtered::new(source, filter));
    }
    let sink = sink::open(options)?;
    let mut job = Job {
        sink,
        source,
        options,
        progress,
        summary: Summary { into: options.into.clone(), ..Summary::default() },
        buffer: Vec::new(),
        documents_delta: 0,
        archive: CurrentArchive::default(),
        kept_in_failed: 0,
        meter: Meter::new(options.rate),
        divided: Divided::default(),
        moves: Moves::default(),
        reports: Reports::new(options.report_every),
        extractor: Extractor::new(options.extractor.clone(), options.memory.clone()),
        planned: None,
        attachments: options.attachments,
        listings: Listings::default(),
    };
    job.clear_old_stash()?;
    let root = job.container(b"", Level::default())?;
    job.clear_stash()?;
    job.check_dry_run()?;
    job.summary.version = root.ok().map(|blob| view(&blob).digest());
    job.report_end()?;
    job.summary.token = job.sink.finish(job.summary.version.as_ref())?;
    let mut summary = job.summary;
    summary.extractors = job.extractor.started();
    summary.cache = job.source.cache().map(CacheUse::counts);
    summary.took = started.elapsed();
    Ok(summary)
}

/// What a container inherits from the containers above it.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Number of containers above.
    depth: usize,
    /// Bytes of the containers above, which the run holds.
    held_bytes: usize,
    /// True when every document is read again: the extractor has changed since the last run, or the run verifies.
    reread: bool,
    /// True when the run opens every container, because tokens, or the numbers of documents in the containers, cannot
    /// be trusted.
    open_all: bool,
    /// True when every archive is opened again: the last run imported attachments, and this run does not, or the reverse.
    reopen: bool,
    /// In the plan: true when a run was cut short in the container above. Then its tokens are not trusted.
    interrupted: bool,
    /// In the plan: true when the number of documents below is known already, from the root's record.
    is_held_known: bool,
    /// True when the plan notes which documents disappear from a path or appear at a path: see [`moves`].
    notes_moves: bool,
}

impl Level {
    /// True when archives are opened again even if they are unchanged.
    fn reopens_archives(self) -> bool {
        self.reread || self.reopen
    }

    /// The level of the child containers of the container at `path`, which has `bytes`.
    fn below(self, path: &[u8], bytes: usize) -> Result<Level, ImportError> {
        let held_bytes = self.held_bytes.saturating_add(bytes);
        if held_bytes > CONTAINERS_HELD_BYTES_MAX {
            return Err(too_much(path, Bound::HeldBytes));
        }
        Ok(Level { depth: self.depth + 1, held_bytes, ..self })
    }
}

/// The result of a child container.
struct Child {
    /// The container's token in its parent's record. Empty when the next run must open the container.
    token: Vec<u8>,
    /// Number of documents in the container and in the containers below it. Counted only for the root's children, and
    /// only in sources with [`Tokens::Content`].
    documents: u64,
    /// The reason why the container could not be imported.
    error: Option<String>,
}

struct Job<'a> {
    sink: Box<dyn Sink>,
    source: Box<dyn Source>,
    options: &'a ImportOptions,
    progress: &'a mut dyn Progress,
    summary: Summary,
    buffer: Vec<u8>,
    /// Number of documents in the new containers minus the number in the old containers, over all opened containers.
    documents_delta: i64,
    archive: CurrentArchive,
    /// Number of documents of the last run that stay, because this run could not read the archive in which they are. The
    /// archive's own document counts, too.
    kept_in_failed: u64,
    meter: Rc<Meter>,
    /// The parts of containers that are recorded in one piece and listed in parts.
    divided: Divided,
    moves: Moves,
    reports: Reports,
    extractor: Extractor,
    /// The plan of the run, if one was made. Opening an archive adds the documents that the archive has lost.
    planned: Option<Plan>,
    /// What the root's record will say about attachments.
    attachments: bool,
    /// The listings that the plan made. The run uses them instead of listing the folders again.
    listings: Listings,
}

impl Job<'_> {
    /// Imports the container at `path` and all containers below it. Returns the new blob, or the reason why the container
    /// failed.
    fn container(&mut self, path: &[u8], mut level: Level) -> Result<Result<Vec<u8>, String>, ImportError> {
        if level.depth > DEPTH_MAX {
            return Ok(Err(
                self.fail_container(path, format!("folders are nested more than {DEPTH_MAX} deep"))
            ));
        }
        let mut known = self.load(path)?;
        self.keep_parts(path, &known.blob);
        let retry = self.options.mode == ImportMode::RetryFailed;
        if retry && self.archive.id().is_none() {
            self.check_retry(&known)?;
        }
        let listed = if retry && known.recorded && !self.archive.is_whole() {
            self.list_failed(path, &known)
        } else {
            self.list(path, &known.blob)
        };
        let listing = match listed {
            Ok(listing) => listing,
            Err(error) if level.depth == 0 => return Err(ImportError::List(error)),
            Err(error) => return Ok(Err(self.fail_container(path, error.to_string()))),
        };
        if let Some(warning) = self.source.warning() {
            self.progress.warning(&warning);
        }
        if let Some(reason) = self.reserved(&listing.blob) {
            return Ok(Err(self.fail_container(path, reason)));
        }
        self.summary.containers += 1;
        self.summary.skipped.add(listing.skipped);
        let is_divided = self.divide(path, &mut known.blob, &listing.blob)?;
        let (old, new) = (view(&known.blob), view(&listing.blob));
        let verify = self.options.mode == ImportMode::Verify;
        if level.depth == 0 {
            level.reread |= verify;
            // A retry reads only the failed documents, and records what was imported before.
            self.attachments = if retry { versions::has_attachments(old) } else { self.options.attachments };
            level.open_all |= self.options.recheck;
        }
        if level.depth == 0 || !retry {
            // Below the root, these are so in a container that could not be read when the setting or the extractor changed.
            let differs = known.recorded && versions::has_attachments(old) != self.attachments;
            let was_cut = known.intent_producer.is_some_and(|cut| versions::is_mixed(cut, self.attachments));
            level.reopen |= differs || was_cut;
            level.reread |= versions::extractor(old) != EXTRACTOR_VERSION;
            level.open_all |= level.reopen;
        }
        self.documents_delta += documents_in(new) as i64 - documents_in(old) as i64;
        self.reports.listed += documents_in(new);
        if !known.recorded && old.is_empty() && self.archive.id().is_none() {
            self.reports.found(documents_in(new));
        }
        self.report(path)?;
        // The plan reads records next, so no other command may wait for a reply.
        self.drain()?;
        self.progress.listed(path, documents_in(new));
        for (name, reason) in &listing.refused {
            self.fail(&join(path, name), reason);
        }
        // The run stores an intent before it changes a document: if the run is cut short, it is unknown whether the
        // server has the old document, the new document, or none. The intent includes documents that an earlier run
        // left in this state. With content tokens, an updated child needs an intent too: until the parent's record has
        // the new token, the next run must not trust the old token.
        let is_planned = known.is_known() || self.options.forecast;
        if level.depth == 0 && is_planned && self.options.mode == ImportMode::Import {
            let below = level.below(path, known.blob.len())?;
            self.check_plan(old, new, Level { notes_moves: true, interrupted: known.interrupted, ..below })?;
        }
        if self.archive.id() == Some(path) && known.is_known() && self.options.mode != ImportMode::Verify {
            self.check_archive(path, old, new, level.below(path, known.blob.len())?)?;
        }
        if level.depth == 0 && self.options.index && self.options.mode != ImportMode::Verify {
            match self.sink.ensure_index()? {
                TextIndex::Created => self.progress.index_created(&self.options.into),
                TextIndex::OverOtherKeys => self.progress.index_over_other_keys(&self.options.into),
                TextIndex::Existed => {}
            }
        }
        let is_content = self.source.tokens() == Tokens::Content;
        // If a run that opens the archives again is cut short, the next run must do so, too.
        let needs_intent = is_divided
            || level.reopen
            || diff(old, new).any(|change| {
                let is_container = change.entry().kind == EntryKind::Container;
                !matches!(change, Change::Unchanged { .. })
                    && (!is_container || is_content || !matches!(change, Change::Updated { .. }))
            });
        if needs_intent {
            let intent = versions::intent(&known, &listing.blob, self.attachments, level.reopen)
                .map_err(|error| versions::damaged(&self.options.into, path, error))?;
            self.sink.store(&intent_name(path), &intent)?;
            // The server may refuse the intent, for example without memory. Then no document may be sent.
            self.drain()?;
        }
        let below = level.below(path, known.blob.len() + listing.blob.len())?;
        self.options.memory.containers(below.held_bytes);
        let changed = self.change(path, &known, new, below, level.reread, needs_intent);
        if let Err(error) = &changed
            && self.sink.is_flushed(error)
        {
            // The intents are gone with the database's former data, and documents were sent after the flush. A container
            // that needed no intent gets one, too: it leads to the containers below. The run has failed already, so an
            // error here changes nothing.
            let intent = versions::intent(&known, &listing.blob, self.attachments, level.reopen);
            if let Ok(intent) = intent {
                let _ = self.sink.store(&intent_name(path), &intent).and_then(|()| self.sink.drain());
            }
        }
        changed.map(Ok)
    }

    fn fail_container(&mut self, path: &[u8], reason: String) -> String {
        self.fail(path, &reason);
        reason
    }

    /// Changes the documents of the container at `path`, and of the containers below it, to what `new` lists. Then
    /// records the container. Returns the new blob.
    fn change(
        &mut self,
        path: &[u8],
        known: &KnownContainer,
        new: Container<'_>,
        below: Level,
        reread: bool,
        has_intent: bool,
    ) -> Result<Vec<u8>, ImportError> {
        let old = view(&known.blob);
        self.remove_nested(path, old, new, below, RemovalPass::BeforeAdditions)?;
        self.remove_children(path, old, new, below, RemovalPass::BeforeAdditions)?;
        let children = self.children(path, known, new, below)?;
        let nested = self.nested(path, old, new, below)?;
        let blob = self.documents(path, old, new, &children, &nested, reread)?;
        self.remove_nested(path, old, new, below, RemovalPass::AfterAdditions)?;
        self.remove_children(path, old, new, below, RemovalPass::AfterAdditions)?;
        self.commit(path, known, &blob, has_intent)?;
        Ok(blob)
    }

    /// Reads what the server has of the container at `path`.
    fn load(&mut self, path: &[u8]) -> Result<KnownContainer, ImportError> {
        // A folder's documents are sent after its children are done. So only commands about containers wait for replies
        // here, and no sink refuses these.
        self.drain()?;
        let part = self.divided.take(path);
        versions::load(&mut *self.sink, &self.options.into, path, part)
    }

    /// Waits for the replies to all commands. Call this only when no document waits for its reply: this function
    /// ignores documents that the sink refuses.
    fn drain(&mut self) -> Result<(), ImportError> {
        let rejected = self.sink.drain()?;
        debug_assert!(rejected.is_empty());
        Ok(())
    }

    /// Lists the folder at `path`, whose record is `recorded`. If a file changed so recently that a further change
    /// could leave its stamp equal, waits for that window to pass and lists the folder again.
    fn list(&mut self, path: &[u8], recorded: &[u8]) -> Result<Listing, source::ListError> {
        if self.archive.id().is_none()
            && let Some(listing) = self.listings.take(path, recorded)
        {
            return Ok(listing);
        }
        let path = self.archive.path(path);
        let listing = self.source.list(path, false)?;
        if listing.racy_for_ns == 0 || self.options.dry_run {
            return Ok(listing);
        }
        std::thread::sleep(Duration::from_nanos(listing.racy_for_ns.unsigned_abs()));
        self.source.list(path, true)
    }

    /// Imports the child containers. Returns the result of each child in `new`, in the order of names.
    fn children(
        &mut self,
        path: &[u8],
        known: &KnownContainer,
        new: Container<'_>,
        below: Level,
    ) -> Result<Vec<Child>, ImportError> {
        let changes =
            || diff(view(&known.blob), new).filter(|change| change.is_container() && !change.is_removed());
        let mut children: Vec<Option<Child>> = changes().map(|_| None).collect();
        // Import containers that lose documents last: a document that moved out of such a container is copied before it
        // is removed.
        for loses in [false, true] {
            for (i, change) in changes().enumerate() {
                let child = join(path, change.entry().name);
                // While the first pass runs, the run may learn that a container of this pass loses documents.
                if children[i].is_some() || self.moves.loses_documents(&child) != loses {
                    continue;
                }
                // A retry does not list a folder again that could not be listed.
                let failed = change.recorded().and_then(|old| Some((old, old.get(ERROR_NOTE)?)));
                if let (Some((old, why)), ImportMode::RetryFailed) = (failed, self.options.mode) {
                    let why = self.fail_container(&child, String::from_utf8_lossy(why).into_owned());
                    let (token, documents) = (old.token.to_vec(), old.size);
                    children[i] = Some(Child { token, documents, error: Some(why) });
                    continue;
                }
                children[i] = Some(match change {
                    // Do not trust the token after a run that was cut short: it may have changed documents below.
                    Change::Unchanged { old, .. }
                        if !known.interrupted && !below.reread && !below.open_all =>
                    {
                        self.summary.containers_skipped += 1;
                        if below.depth == 1 {
                            self.summary.unchanged += old.size;
                        }
                        Child { token: old.token.to_vec(), documents: old.size, error: None }
                    }
                    _ => self.child(&child, change, known.interrupted, below)?,
                });
            }
        }
        Ok(children.into_iter().map(|child| child.expect("it loses documents or not")).collect())
    }

    /// Removes the child containers that the source has lost and that `pass` removes.
    fn remove_children(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        pass: RemovalPass,
    ) -> Result<(), ImportError> {
        for change in diff(old, new) {
            if let Change::Removed(entry) = change
                && entry.kind == EntryKind::Container
                && moves::removal_pass(old, new, entry.name) == pass
            {
                self.remove(&join(path, entry.name), below)?;
            }
        }
        Ok(())
    }

    /// Imports a child container that may have changed.
    fn child(
        &mut self,
        path: &[u8],
        change: Change<'_>,
        interrupted: bool,
        below: Level,
    ) -> Result<Child, ImportError> {
        let (old, new) = (change.recorded(), change.entry());
        // With content tokens, the record of the root has the number of documents below each of its children. The new
        // number is the old number plus the change in opened containers. If the old number cannot be trusted, the run
        // opens every container and counts all documents.
        let counts = self.source.tokens() == Tokens::Content && below.depth == 1;
        let is_trusted = !interrupted && old.is_none_or(|old| is_counted(&old, &new));
        let below = Level { open_all: below.open_all || counts && !is_trusted, ..below };
        let (processed_before, delta_before) = (self.summary.processed(), self.documents_delta);
        let blob = match self.container(path, below)? {
            Ok(blob) => blob,
            Err(error) => return Ok(Child { token: Vec::new(), documents: 0, error: Some(error) }),
        };
        if self.source.tokens() == Tokens::Stamps {
            let token = view(&blob).digest().to_vec();
            return Ok(Child { token, documents: 0, error: None });
        }
        let mut documents = 0;
        if counts {
            let processed = self.summary.processed() - processed_before;
            documents = processed;
            if !below.open_all {
                let counted = old.map_or(0, |old| old.size as i64) + self.documents_delta - delta_before;
                documents = u64::try_from(counted).unwrap_or(processed);
                self.summary.unchanged += documents.saturating_sub(processed);
            }
        }
        let token = if is_clean(view(&blob)) { new.token.to_vec() } else { Vec::new() };
        Ok(Child { token, documents, error: None })
    }

    /// Removes a folder that the source has lost: first the folders and archives in it, then its documents and its
    /// record.
    fn remove(&mut self, path: &[u8], level: Level) -> Result<(), ImportError> {
        let known = self.load(path)?;
        // No run records a container at this depth, so another program wrote such a record.
        if level.depth > DEPTH_MAX && known.is_known() {
            return Err(too_much(path, Bound::Depth));
        }
        let below = level.below(path, known.blob.len())?;
        let old = view(&known.blob);
        self.documents_delta -= documents_in(old) as i64;
        if known.recorded {
            // An empty intent makes all documents doubtful: if this run is cut short and the source has the folder
            // again, the next run sends all of its documents.
            let nothing = ContainerBuilder::empty(EXTRACTOR_VERSION);
            self.sink.store(&intent_name(path), &nothing)?;
            self.drain()?;
        }
        for child in old.iter().filter(|e| e.kind == EntryKind::Container) {
            self.remove(&join(path, child.name), below)?;
        }
        for document in old.iter().filter(|e| nested::may_contain_documents(e)) {
            self.remove(&join(path, document.name), below)?;
        }
        for document in old.iter().filter(|e| e.kind == EntryKind::Document) {
            self.remove_document(path, &join(path, document.name), document)?;
        }
        self.remove_in_place_of_folders(path, old, view(&ContainerBuilder::empty(EXTRACTOR_VERSION)))?;
        self.sink.drain()?;
        if known.is_known() {
            self.sink.forget(&[&recorded_name(path), &intent_name(path)])?;
            self.sink.drain()?;
        }
        Ok(())
    }

    /// Records the new container if it differs from the recorded container. Then drops the intent.
    fn commit(
        &mut self,
        path: &[u8],
        known: &KnownContainer,
        blob: &[u8],
        has_intent: bool,
    ) -> Result<(), ImportError> {
        // A retry may have sent documents that failed again for an equal reason. The reply to the record also says whether
        // the database was flushed meanwhile.
        let is_retry = has_intent && self.options.mode == ImportMode::RetryFailed;
        if !known.recorded || known.interrupted || is_retry || known.blob != blob {
            self.sink.store(&recorded_name(path), blob)?;
            self.summary.recorded += u64::from(!self.options.dry_run);
        }
        if has_intent || known.interrupted {
            // The server may refuse the record, for example without memory, and would still drop the intent.
            self.sink.drain()?;
            self.sink.forget(&[&intent_name(path)])?;
        }
        self.sink.drain().map(|_| ())
    }

    fn count(&mut self, path: &[u8], outcome: Outcome<'_>) {
        self.summary.count(path, outcome);
        self.progress.document(path, outcome);
    }

    fn fail(&mut self, path: &[u8], reason: &str) {
        self.count(path, Outcome::Failed(reason));
    }
}

/// With content tokens: true when the recorded entry of a child of the root has the number of documents below it. `new` is
/// the listed entry.
fn is_counted(old: &Entry<'_>, new: &Entry<'_>) -> bool {
    match old.token.is_empty() {
        true => old.size > 0,
        false => old.token.len() == new.token.len(),
    }
}

fn documents_in(container: Container<'_>) -> u64 {
    container.iter().filter(|e| e.kind == EntryKind::Document).count() as u64
}

/// True when the server holds every document of the container and of the containers below it, in the version that the
/// token stands for.
fn is_clean(container: Container<'_>) -> bool {
    container.iter().all(|entry| {
        let is_held = entry.kind == EntryKind::Container || entry.get(DIGEST_NOTE).is_some();
        let is_complete = entry.get(INNER_NOTE).is_none_or(|note| nested::counts(note).1 == 0);
        is_held
            && is_complete
            && !entry.token.is_empty()
            && entry.get(ERROR_NOTE).is_none()
            && entry.get(MAYBE_NOTE).is_none()
    })
}

/// Parses a container that was checked when it was read, or that this process built.
fn view(blob: &[u8]) -> Container<'_> {
    Container::parse(blob).expect("checked or built here")
}

/// The path of the entry `name` in the container `path`. If `path` is a part of a container, the name of the part is
/// not in the result.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let path = parts::divide(path).map_or(path, |(above, _)| above);
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn too_much(path: &[u8], bound: Bound) -> ImportError {
    ImportError::TooMuch { path: String::from_utf8_lossy(path).into_owned(), bound }
}

fn record_error(path: &[u8]) -> impl FnOnce(ContainerError) -> ImportError {
    let path = String::from_utf8_lossy(path).into_owned();
    |error| ImportError::Record { path, error }
}
