//! The comparison of two sources without a server: what would an import of the second change after an import of the
//! first?
//!
//! [`compare`] walks both sources side by side, container by container, and reports each difference to a [`Progress`].
//! Where the tokens of both are made of content, equal tokens end the descent. All other documents are compared byte by
//! byte. An archive counts as one document here.

use crate::cache::{CacheCounts, CacheUse};
use crate::container::{Container, ContainerBuilder, Entry, EntryKind};
use crate::diff::{Change, diff};
use crate::filter::{Filter, FilterOptions, Filtered, Ignoring};
use crate::job::{DEPTH_MAX, join};
use crate::source::remote::RemoteOptions;
use crate::source::{self, Object, ReadError, Source, Tokens, parts};
use crate::{ImportError, OptionError, Outcome, Progress, Summary};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Number of bytes of each document that are read before the two documents are compared.
const BLOCK_BYTES: usize = 64 * 1024;

/// Compares the sources `before` and `after`. In the summary, `added` counts documents that only `after` has.
///
/// # Errors
/// [`ImportError`], when the root of a source cannot be listed. A document or folder below that cannot be read is a
/// failed document.
pub fn compare(
    before: &Path,
    after: &Path,
    filter_options: &FilterOptions,
    remote: &RemoteOptions,
    progress: &mut dyn Progress,
) -> Result<Summary, ImportError> {
    let started = Instant::now();
    source::check_options(&[before, after], remote)?;
    let open = |path: &Path| {
        let filter = Filter::new(filter_options).map_err(OptionError::Filter)?;
        let opened = source::open(path, remote);
        let shown = || source::remote::http::shown(&path.to_string_lossy()).into();
        let mut source = opened.map_err(|error| ImportError::Source { path: shown(), error })?;
        if filter_options.gitignore {
            source = Box::new(Ignoring::new(source));
        }
        Ok::<Box<dyn Source>, ImportError>(match filter {
            Some(filter) => Box::new(Filtered::new(source, filter)),
            None => source,
        })
    };
    let are_comparable = source::are_tokens_comparable(before, after);
    let (before, after) = (open(before)?, open(after)?);
    let is_content = before.tokens() == Tokens::Content && after.tokens() == Tokens::Content;
    let mut pair = Pair { before, after, is_content, are_comparable, progress, summary: Summary::default() };
    pair.container(b"", Sides::Both, 0, [None, None])?;
    let mut summary = pair.summary;
    // Both sources use the same cache. Each source counts its own reads and writes.
    let counts = [&pair.before, &pair.after].map(|source| source.cache().map(CacheUse::counts));
    summary.cache = counts.into_iter().flatten().reduce(CacheCounts::plus);
    summary.took = started.elapsed();
    Ok(summary)
}

/// Which of the two sources has a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    Before,
    After,
    Both,
}

struct Pair<'a> {
    before: Box<dyn Source>,
    after: Box<dyn Source>,
    /// True when equal tokens mean equal content.
    is_content: bool,
    /// True when unequal tokens of content mean unequal content, too.
    are_comparable: bool,
    progress: &'a mut dyn Progress,
    summary: Summary,
}

impl Pair<'_> {
    /// Compares the container at `path`, and all containers below it. `parts` has the listings of this container that
    /// the caller made already, one for each source.
    fn container(
        &mut self,
        path: &[u8],
        sides: Sides,
        depth: usize,
        parts: [Option<Vec<u8>>; 2],
    ) -> Result<(), ImportError> {
        if depth > DEPTH_MAX {
            self.count(path, Outcome::Failed(&format!("folders are nested more than {DEPTH_MAX} deep")));
            return Ok(());
        }
        let mut blobs = [Vec::new(), Vec::new()];
        let wanted = [sides != Sides::After, sides != Sides::Before];
        for (i, part) in parts.into_iter().enumerate() {
            if let Some(part) = part {
                blobs[i] = part;
                continue;
            }
            if !wanted[i] {
                blobs[i] = ContainerBuilder::empty(0);
                continue;
            }
            let source = if i == 0 { &mut self.before } else { &mut self.after };
            match source.list(path, false) {
                Ok(listing) => {
                    self.summary.skipped.add(listing.skipped);
                    blobs[i] = listing.blob;
                }
                Err(error) if depth == 0 => return Err(ImportError::List(error)),
                Err(error) => {
                    self.count(path, Outcome::Failed(&error.to_string()));
                    return Ok(());
                }
            }
            self.summary.containers += 1;
        }
        let mut divided = self.divide(path, &mut blobs)?;
        let view = |blob| Container::parse(blob).expect("built by a source");
        let (old, new) = (view(&blobs[0]), view(&blobs[1]));
        let documents = new.iter().filter(|entry| entry.kind == EntryKind::Document).count();
        self.progress.listed(path, documents as u64);
        for change in diff(old, new) {
            let entry = change.entry();
            let at = join(path, entry.name);
            if entry.kind == EntryKind::Container {
                let sides = match change {
                    Change::Added(_) => Sides::After,
                    Change::Removed(_) => Sides::Before,
                    Change::Unchanged { .. } | Change::Metadata { .. } if self.is_content => {
                        self.summary.containers_skipped += 1;
                        continue;
                    }
                    _ => Sides::Both,
                };
                let part = parts::number(entry.name);
                let parts = divided.each_mut().map(|side| side.remove(&part?));
                self.container(&at, sides, depth + 1, parts)?;
                continue;
            }
            match change {
                Change::Added(_) => self.count(&at, Outcome::Added),
                Change::Removed(_) => self.count(&at, Outcome::Removed),
                Change::Unchanged { .. } | Change::Metadata { .. } => self.count(&at, Outcome::Unchanged),
                Change::Updated { old, new } if self.are_comparable && old.token.len() == new.token.len() => {
                    self.count(&at, Outcome::Updated);
                }
                Change::Updated { old, new } => {
                    self.summary.opened += 1;
                    match self.is_same(path, &old, &new) {
                        Ok(true) => self.count(&at, Outcome::Unchanged),
                        Ok(false) => self.count(&at, Outcome::Updated),
                        Err(error) => self.count(&at, Outcome::Failed(&error.to_string())),
                    }
                }
            }
        }
        Ok(())
    }

    /// If one source lists the container in parts, divides the other source's listing into parts too. Returns the
    /// parts.
    fn divide(
        &self,
        path: &[u8],
        blobs: &mut [Vec<u8>; 2],
    ) -> Result<[BTreeMap<u8, Vec<u8>>; 2], ImportError> {
        let mut divided = [BTreeMap::new(), BTreeMap::new()];
        let has_parts = |blob: &Vec<u8>| parts::has_parts(Container::parse(blob).expect("built by a source"));
        if !blobs.iter().any(has_parts) {
            return Ok(divided);
        }
        for (blob, divided) in blobs.iter_mut().zip(&mut divided) {
            let whole = Container::parse(blob).expect("built by a source");
            let split = parts::split(whole).map_err(|error| {
                let path = PathBuf::from(OsStr::from_bytes(path));
                ImportError::List(source::ListError::Container { path, error })
            })?;
            if let Some((rest, parts)) = split {
                (*blob, *divided) = (rest, parts);
            }
        }
        Ok(divided)
    }

    /// True when the document has the same bytes in both sources.
    fn is_same(&mut self, path: &[u8], old: &Entry<'_>, new: &Entry<'_>) -> Result<bool, ReadError> {
        if let (Some(before), Some(after)) = (self.before.size(old), self.after.size(new))
            && before != after
        {
            return Ok(false);
        }
        let (before, after) = (self.before.open(path, old)?, self.after.open(path, new)?);
        let mut blocks = [vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]];
        let mut at = 0;
        loop {
            let [left, right] = &mut blocks;
            let got = [fill(&*before, at, left)?, fill(&*after, at, right)?];
            self.summary.bytes_read += (got[0] + got[1]) as u64;
            if left[..got[0]] != right[..got[1]] {
                return Ok(false);
            }
            if got[0] < BLOCK_BYTES {
                return Ok(true);
            }
            at += got[0] as u64;
        }
    }

    fn count(&mut self, path: &[u8], outcome: Outcome<'_>) {
        self.summary.count(path, outcome);
        self.progress.document(path, outcome);
    }
}

/// Reads until `into` is full, or until the object ends. Returns the number of bytes read.
fn fill(object: &dyn Object, at: u64, into: &mut [u8]) -> Result<usize, ReadError> {
    let mut done = 0;
    while done < into.len() {
        match object.read_at(at + done as u64, &mut into[done..]) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}
