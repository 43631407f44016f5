//! [`Merges`]: when segments of a text index are merged, and what the index's memory would be without merges.
//!
//! A merge takes memory for a while: the new segment, and the old segments until the searcher has let go of them. The
//! library's own merges begin and end unseen. Under a memory limit, keys would be evicted for this memory, although the
//! end of the merge frees it. So the index starts each merge itself, one at a time, and knows when the merge ends.

use crate::queue::QueuedDocument;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tantivy::directory::Directory;
use tantivy::index::{SegmentComponent, SegmentId, SegmentMeta};
use tantivy::indexer::{LogMergePolicy, MergeCandidate, MergePolicy};
use tantivy::{FutureResult, IndexWriter};

/// A segment is rewritten when more than this share of its documents is deleted.
const DELETED_SHARE_MAX: f64 = 0.3;
/// A merge of several segments makes a segment of at most this part of all documents. So a merge needs memory for a part
/// of the index only.
const MERGED_PART: usize = 4;
/// A merge may always make a segment of this number of documents.
const MERGED_DOCUMENTS_MIN: usize = 10_000;

/// The files of a segment. A segment may lack some of them.
const PARTS: [SegmentComponent; 7] = [
    SegmentComponent::Postings,
    SegmentComponent::Positions,
    SegmentComponent::Terms,
    SegmentComponent::Store,
    SegmentComponent::FastFields,
    SegmentComponent::FieldNorms,
    SegmentComponent::Delete,
];

/// The merges of one index. One merge runs at a time.
#[derive(Default)]
pub(crate) struct Merges {
    running: Option<Running>,
}

struct Running {
    result: FutureResult<Option<SegmentMeta>>,
    /// Bytes of the segments that are merged.
    bytes: usize,
}

/// What a look at the running merge has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeState {
    /// No merge runs.
    None,
    /// A merge runs.
    Running,
    /// A merge has ended since the last look.
    Ended,
    /// A merge has failed since the last look, and has left the segments as they were. Do not start it again at once.
    Failed,
}

impl Merges {
    /// Looks whether the running merge has ended.
    pub(crate) fn look(&mut self) -> MergeState {
        let Some(running) = &mut self.running else { return MergeState::None };
        match Pin::new(&mut running.result).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => MergeState::Running,
            Poll::Ready(result) => {
                self.running = None;
                if result.is_ok() { MergeState::Ended } else { MergeState::Failed }
            }
        }
    }
    /// Starts the most useful merge of `segments` in `directory`, if no merge runs. Returns true when a merge was started.
    pub(crate) fn start(
        &mut self,
        writer: &mut IndexWriter<QueuedDocument>,
        segments: &[SegmentMeta],
        directory: &dyn Directory,
    ) -> bool {
        let chosen = if self.running.is_none() { choose(segments) } else { Vec::new() };
        if !chosen.is_empty() {
            let merged = segments.iter().filter(|segment| chosen.contains(&segment.id()));
            let bytes = merged.map(|segment| segment_bytes(directory, segment)).sum();
            self.running = Some(Running { result: writer.merge(&chosen), bytes });
        }
        !chosen.is_empty()
    }
    /// Bytes of the segments that are merged now. 0: no merge runs.
    pub(crate) fn running_bytes(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.bytes)
    }
}

/// The segments to merge. Many small segments come first, because each search visits all segments. Then comes the
/// segment with the most deleted documents, so that memory stays in proportion to the documents.
fn choose(segments: &[SegmentMeta]) -> Vec<SegmentId> {
    let documents = |segment: &SegmentMeta| segment.num_docs() as usize;
    let documents_max =
        (segments.iter().map(documents).sum::<usize>() / MERGED_PART).max(MERGED_DOCUMENTS_MIN);
    let mut by_size = LogMergePolicy::default();
    // A segment of half the size can be merged with another one.
    by_size.set_max_docs_before_merge(documents_max / 2);
    // The last candidate has the smallest segments.
    if let Some(MergeCandidate(ids)) = by_size.compute_merge_candidates(segments).pop() {
        let mut chosen: Vec<&SegmentMeta> =
            segments.iter().filter(|segment| ids.contains(&segment.id())).collect();
        chosen.sort_by_key(|segment| documents(segment));
        let mut sum = 0;
        let fitting = chosen.iter().take_while(|segment| {
            sum += documents(segment);
            sum <= documents_max
        });
        return fitting.map(|segment| segment.id()).collect();
    }
    let share =
        |segment: &&SegmentMeta| f64::from(segment.num_deleted_docs()) / f64::from(segment.max_doc().max(1));
    let dead = segments.iter().filter(|segment| share(segment) > DELETED_SHARE_MAX);
    dead.max_by_key(|segment| segment.num_deleted_docs())
        .map(|segment| vec![segment.id()])
        .unwrap_or_default()
}

/// Bytes of the files of a segment.
fn segment_bytes(directory: &dyn Directory, segment: &SegmentMeta) -> usize {
    let files = PARTS.iter().map(|part| segment.relative_path(part.clone()));
    files.filter_map(|path| Some(directory.get_file_handle(&path).ok()?.len())).sum()
}

/// Bytes of `segments` without the part of deleted documents, which a merge will free.
pub(crate) fn live_bytes(directory: &dyn Directory, segments: &[SegmentMeta]) -> usize {
    let live = |segment: &SegmentMeta| {
        let documents = u128::from(segment.max_doc().max(1));
        let bytes = segment_bytes(directory, segment) as u128;
        (bytes * u128::from(segment.num_docs()) / documents) as usize
    };
    segments.iter().map(live).sum()
}
