//! [`Merges`]: when segments of a text index are merged, and what the index's memory would be without merges.
//!
//! A merge takes memory for a while: the new segment, and the old segments until the searcher has let go of them. The
//! library's own merges begin and end unseen. Under a memory limit, keys would be evicted for this memory, although the
//! end of the merge frees it. So the index starts each merge itself, one at a time, and knows when the merge ends. Merges
//! have limits in bytes, because a merge takes up to two and a half times the bytes of its segments.

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
/// A merge takes several segments of at most this part of the index's bytes together.
const MERGED_PART: usize = 4;
/// A merge may always take several segments of this number of bytes together. Larger merges of several indexes run one
/// after the other.
const MERGED_BYTES_MIN: usize = 4 << 20;

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
    running: Option<FutureResult<Option<SegmentMeta>>>,
    /// True when the next merge waits for the merge of another index.
    is_postponed: bool,
}

/// What a look at the running merge has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeState {
    /// No merge runs or waits.
    None,
    /// No merge runs, and one waits for the merge of another index.
    Postponed,
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
        let Some(running) = &mut self.running else {
            return if self.is_postponed { MergeState::Postponed } else { MergeState::None };
        };
        match Pin::new(running).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => MergeState::Running,
            Poll::Ready(result) => {
                self.running = None;
                if result.is_ok() { MergeState::Ended } else { MergeState::Failed }
            }
        }
    }
    /// Starts the most useful merge of `segments`, if no merge runs. `others_bytes`: the bytes of the segments that other
    /// indexes merge now. Returns the bytes of the segments that are merged now, 0 without a merge.
    pub(crate) fn start(
        &mut self,
        writer: &mut IndexWriter<QueuedDocument>,
        segments: &[SizedSegment],
        others_bytes: usize,
    ) -> usize {
        let chosen = choose(segments);
        let bytes = chosen.iter().map(|segment| segment.bytes).sum();
        self.is_postponed = bytes > MERGED_BYTES_MIN && others_bytes > MERGED_BYTES_MIN;
        if chosen.is_empty() || self.is_postponed {
            return 0;
        }
        let ids: Vec<SegmentId> = chosen.iter().map(|segment| segment.meta.id()).collect();
        self.running = Some(writer.merge(&ids));
        bytes
    }
}

/// A segment and the bytes of its files.
pub(crate) struct SizedSegment {
    meta: SegmentMeta,
    bytes: usize,
}

impl SizedSegment {
    pub(crate) fn of(meta: SegmentMeta, directory: &dyn Directory) -> SizedSegment {
        let files = PARTS.iter().map(|part| meta.relative_path(part.clone()));
        let bytes = files.filter_map(|path| Some(directory.get_file_handle(&path).ok()?.len())).sum();
        SizedSegment { meta, bytes }
    }
    /// Bytes that stay when the merges that are due are done.
    pub(crate) fn lasting_bytes(&self) -> usize {
        let (documents, all) = (u128::from(self.meta.num_docs()), u128::from(self.meta.max_doc().max(1)));
        if self.is_mostly_deleted() { (self.bytes as u128 * documents / all) as usize } else { self.bytes }
    }
    /// True when the segment must be rewritten, because of its deleted documents.
    fn is_mostly_deleted(&self) -> bool {
        let deleted = f64::from(self.meta.num_deleted_docs());
        deleted > f64::from(self.meta.max_doc()) * DELETED_SHARE_MAX
    }
}

/// The segments to merge. Many small segments come first, because each search visits all segments. Then comes the
/// segment with the most deleted documents, so that memory stays in proportion to the documents.
fn choose(segments: &[SizedSegment]) -> Vec<&SizedSegment> {
    let all_bytes: usize = segments.iter().map(|segment| segment.bytes).sum();
    let bytes_max = (all_bytes / MERGED_PART).max(MERGED_BYTES_MIN);
    // A segment of half the size can be merged with another one.
    let small: Vec<&SizedSegment> =
        segments.iter().filter(|segment| segment.bytes <= bytes_max / 2).collect();
    let metas: Vec<SegmentMeta> = small.iter().map(|segment| segment.meta.clone()).collect();
    let mut by_size = LogMergePolicy::default();
    by_size.set_max_docs_before_merge(usize::MAX);
    // The last candidate has the smallest segments.
    if let Some(MergeCandidate(ids)) = by_size.compute_merge_candidates(&metas).pop() {
        let mut chosen = small;
        chosen.retain(|segment| ids.contains(&segment.meta.id()));
        chosen.sort_by_key(|segment| segment.bytes);
        let mut sum = 0;
        let fits = |segment: &&SizedSegment| {
            sum += segment.bytes;
            sum <= bytes_max
        };
        return chosen.into_iter().take_while(fits).collect();
    }
    let deleted = segments.iter().filter(|segment| segment.is_mostly_deleted());
    deleted.max_by_key(|segment| segment.meta.num_deleted_docs()).into_iter().collect()
}
