//! IMPORT.VERSION KEEP: text indexes keep versions of datasets, so that a client can search a past version.
//!
//! A kept version ([`KeptVersion`]) is a searcher that the index made when the command ran. The library's segments
//! never change, so the searcher shares all segments that are still in the index. A version costs the memory of the
//! segments that were merged or emptied since, and one bit per document for each segment that changed. The values of
//! keys are not kept: a result shows fields only if its key was not written since the version
//! ([`PastSearch::is_unchanged`]). Versions are in memory only, and end with the index.

use crate::document::{INDEXED_KEY_BYTES_MAX, NUMBER};
use crate::error::{SearchError, lossy};
use crate::meter::{Meter, StopReason};
use crate::service::{Search, TextIndexEntry};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strand_commands::call::LaneCall;
use strand_commands::dataset_versions::{self, VERSION_BYTES_MAX};
use tantivy::index::SegmentId;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet, Searcher, TERMINATED, Term};

/// Maximum number of versions of one dataset that an index keeps.
pub(crate) const KEPT_MAX: usize = 64;
/// Maximum number of datasets of which an index keeps versions. With more datasets, the oldest version of all goes.
pub(crate) const DATASETS_KEPT_MAX: usize = 1024;
/// Number of versions that IMPORT.VERSION KEEP keeps when COUNT is missing: the newest version and the one before.
const KEPT_DEFAULT: usize = 2;
/// After this time IMPORT.VERSION KEEP stops passing keys to the index writers and replies null. The client repeats the
/// command until the reply is a number.
const KEEP_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of changed keys that IMPORT.VERSION KEEP passes to the index writers at once.
const KEEP_BYTES: usize = 8 << 20;
/// Maximum number of times that measuring an index starts again because a merge removed a segment.
const MEASURE_TRIES_MAX: usize = 100;
/// Number of steps that the meter counts for the look-up of a key in a segment.
const LOOKUP_STEPS: usize = 64;

/// One version of a dataset in an index.
pub(crate) struct KeptVersion {
    dataset: Vec<u8>,
    pub(crate) name: Vec<u8>,
    version: Version,
    /// The segments of the searcher, each with its size in bytes.
    segments: Vec<(SegmentId, u64)>,
}

/// The documents of an index at a moment.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) searcher: Searcher,
    /// The moment (Unix time): a document that expires later is in the version.
    pub(crate) at_ms: i64,
}

impl std::fmt::Debug for KeptVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptVersion({} of {})", lossy(&self.name), lossy(&self.dataset))
    }
}

impl KeptVersion {
    /// Bytes of the names and of the list of segments, without the segments.
    fn own_bytes(&self) -> usize {
        size_of::<KeptVersion>() + self.dataset.len() + self.name.len() + size_of_val(&self.segments[..])
    }
}

impl TextIndexEntry {
    /// Bytes of the segments that the index has dropped and only kept versions still use, and of the names of kept
    /// versions.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let kept = self.kept.lock();
        if kept.is_empty() {
            return 0;
        }
        let mut only_kept: HashMap<SegmentId, u64> =
            kept.iter().flat_map(|kept| kept.segments.iter().copied()).collect();
        for reader in self.index.searcher().segment_readers() {
            only_kept.remove(&reader.segment_id());
        }
        only_kept.values().sum::<u64>() + kept.iter().map(|kept| kept.own_bytes() as u64).sum::<u64>()
    }

    /// True when a prefix of the index includes documents of `dataset`.
    fn follows(&self, dataset: &[u8]) -> bool {
        // Keys that are as long as that are not indexed.
        if dataset.len() >= INDEXED_KEY_BYTES_MAX {
            return false;
        }
        let documents = [dataset, b":"].concat();
        let overlaps = |prefix: &Vec<u8>| prefix.starts_with(&documents) || documents.starts_with(prefix);
        self.index.schema.prefixes.iter().any(overlaps)
    }
}

/// `IMPORT.VERSION KEEP dataset version [COUNT count]`: each index of the dataset keeps its present state as `version`,
/// and at most `count` versions of the dataset. COUNT 0 drops all versions of the dataset.
///
/// Reply: the number of indexes that keep the version. Null when the command must be repeated, because too many changes
/// are not indexed yet.
///
/// # Errors
/// When an argument is wrong, or when the client no longer waits.
pub(crate) fn keep(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let (dataset, name) = (call.args.at(2), call.args.at(3));
    let count = match call.args.len() {
        4 => KEPT_DEFAULT,
        6 if call.args.is(4, "COUNT") => {
            let count = std::str::from_utf8(call.args.at(5)).ok().and_then(|text| text.parse().ok());
            let bad = || SearchError::Refused(format!("ERR COUNT is a number from 0 to {KEPT_MAX}"));
            count.filter(|count| *count <= KEPT_MAX).ok_or_else(bad)?
        }
        _ => return Err(SearchError::refused("ERR syntax error")),
    };
    if call.db != 0 {
        call.reply.int(0);
        return Ok(());
    }
    if count == 0 {
        for entry in search.entries().iter().filter(|entry| entry.follows(dataset)) {
            entry.kept.lock().retain(|kept| kept.dataset != dataset);
        }
        call.reply.int(0);
        return Ok(());
    }
    if name.len() > VERSION_BYTES_MAX {
        let text = format!("ERR The version id must have at most {VERSION_BYTES_MAX} bytes");
        return Err(SearchError::Refused(text));
    }
    let begun = Instant::now();
    while search.keyspace.touched_bytes() > KEEP_BYTES {
        search.drain_locked(&mut search.follow.lock(), call.now_ms, KEEP_BYTES);
        if call.cancelled() {
            return Err(SearchError::Cancelled);
        }
        if begun.elapsed() > KEEP_TIME_MAX {
            call.reply.null();
            return Ok(());
        }
        call.pause();
    }
    search.drain(call.now_ms);
    let mut indexes = 0;
    for entry in search.entries().iter().filter(|entry| entry.follows(dataset)) {
        let cancel = call.cancel;
        let check = || if cancel.load(Ordering::Relaxed) { Err(StopReason::Cancelled) } else { Ok(()) };
        search.catch_up(entry, call.now_ms, &check)?;
        let (searcher, segments) = measure(entry)?;
        let version = Version { searcher, at_ms: call.now_ms };
        let mut kept = entry.kept.lock();
        kept.retain(|kept| kept.dataset != dataset || kept.name != name);
        kept.push(KeptVersion { dataset: dataset.to_vec(), name: name.to_vec(), version, segments });
        // Drop the oldest versions of the dataset beyond `count`. The oldest come first.
        let versions = kept.iter().filter(|kept| kept.dataset == dataset).count();
        let mut excess = versions.saturating_sub(count);
        kept.retain(|kept| {
            let is_dropped = excess > 0 && kept.dataset == dataset;
            excess -= usize::from(is_dropped);
            !is_dropped
        });
        while datasets(&kept) > DATASETS_KEPT_MAX {
            kept.remove(0);
        }
        indexes += 1;
    }
    call.reply.int(indexes);
    Ok(())
}

/// Number of datasets of these versions.
fn datasets(kept: &[KeptVersion]) -> usize {
    kept.iter().map(|kept| &kept.dataset[..]).collect::<HashSet<_>>().len()
}

/// Returns the index's present searcher and the sizes of its segments in bytes. A merge may remove a segment's files
/// before they are measured. Then the documents are in another segment, and measuring starts again.
fn measure(entry: &TextIndexEntry) -> Result<(Searcher, Vec<(SegmentId, u64)>), SearchError> {
    let mut tries = 0;
    loop {
        let searcher = entry.index.searcher();
        let segments = searcher.segment_readers().iter();
        let segments = segments.map(|r| Ok((r.segment_id(), r.space_usage()?.total().get_bytes())));
        match segments.collect::<std::io::Result<_>>() {
            Ok(segments) => return Ok((searcher, segments)),
            Err(error) if tries == MEASURE_TRIES_MAX => return Err(error.into()),
            Err(_) => tries += 1,
        }
        entry.index.reload()?;
    }
}

/// A kept version. `token_or_name` is a version name (`dataset@number`) or a version id.
///
/// # Errors
/// When the index does not keep the version, or the user may not read the dataset.
pub(crate) fn find(
    search: &Search,
    entry: &TextIndexEntry,
    call: &LaneCall<'_>,
    token_or_name: &[u8],
) -> Result<Version, SearchError> {
    let (dataset, name) = match dataset_versions::parse_token(token_or_name) {
        None => (None, token_or_name.to_vec()),
        Some((dataset, number)) => {
            if !call.may_read(dataset) {
                return Err(SearchError::NoKeyPermission);
            }
            let versions = dataset_versions::read(&search.keyspace, call.db, dataset, call.now_ms);
            if versions.first().is_none_or(|last| last.number < number) {
                let text = format!("ERR version {} is not published yet", lossy(token_or_name));
                return Err(SearchError::Refused(text));
            }
            let found = versions.into_iter().find(|version| version.number == number);
            (Some(dataset), found.map(|version| version.name).unwrap_or_default())
        }
    };
    let kept = entry.kept.lock();
    let matches = |kept: &&KeptVersion| {
        kept.name == name && dataset.is_none_or(|of| of == kept.dataset) && call.may_read(&kept.dataset)
    };
    let not_kept =
        || SearchError::Refused(format!("ERR the index does not keep version {}", lossy(token_or_name)));
    kept.iter().rev().find(matches).map(|kept| kept.version.clone()).ok_or_else(not_kept)
}

/// A search in a past version of an index.
pub(crate) struct PastSearch<'a> {
    /// The index as it was at the version.
    pub(crate) past: Searcher,
    /// Makes all acknowledged writes visible, and returns the index as it is then.
    pub(crate) refresh: &'a dyn Fn() -> Result<Searcher, SearchError>,
    /// The index's field that holds the key.
    pub(crate) key: Field,
}

impl PastSearch<'_> {
    /// True when the key `key` was not written between the version and `present`.
    pub(crate) fn is_unchanged(
        &self,
        present: &Searcher,
        key: &[u8],
        meter: &Meter,
    ) -> Result<bool, SearchError> {
        let present = document_number(present, self.key, key, meter)?;
        Ok(present.is_some() && present == document_number(&self.past, self.key, key, meter)?)
    }
}

/// The number ([`NUMBER`]) of the document at `key` in `searcher`. `None` when `searcher` has no such document.
fn document_number(
    searcher: &Searcher,
    field: Field,
    key: &[u8],
    meter: &Meter,
) -> Result<Option<u64>, SearchError> {
    let term = Term::from_field_bytes(field, key);
    for reader in searcher.segment_readers() {
        meter.step(LOOKUP_STEPS)?;
        let postings = reader.inverted_index(field)?.read_postings(&term, IndexRecordOption::Basic)?;
        let Some(mut postings) = postings else { continue };
        let mut doc = postings.doc();
        while doc != TERMINATED {
            if !reader.is_deleted(doc) {
                return Ok(reader.fast_fields().u64(NUMBER)?.first(doc));
            }
            doc = postings.advance();
        }
    }
    Ok(None)
}
