//! [`Excluded`]: a wrapper that makes any query safe to exclude.
//!
//! tantivy 0.27 asks an excluded scorer about documents before its current position. tantivy's phrase scorer asserts
//! that this never happens, and its intersections do not promise an answer. The wrapper's scorer keeps its own position
//! and answers such questions itself.

use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SeekDangerResult, SegmentReader};

/// A query whose matches are excluded (`MustNot`).
#[derive(Debug)]
pub(crate) struct Excluded(pub(crate) Box<dyn Query>);

impl Clone for Excluded {
    fn clone(&self) -> Excluded {
        Excluded(self.0.box_clone())
    }
}

impl Query for Excluded {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(ExcludedWeight(self.0.weight(scoring)?)))
    }
}

struct ExcludedWeight(Box<dyn Weight>);

impl Weight for ExcludedWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(Box::new(ExcludedScorer(self.0.scorer(reader, boost)?)))
    }
    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        self.0.explain(reader, doc)
    }
}

struct ExcludedScorer(Box<dyn Scorer>);

impl DocSet for ExcludedScorer {
    fn advance(&mut self) -> DocId {
        self.0.advance()
    }
    fn seek(&mut self, target: DocId) -> DocId {
        self.0.seek(target)
    }
    fn seek_danger(&mut self, target: DocId) -> SeekDangerResult {
        let mut doc = self.0.doc();
        if doc < target {
            doc = self.0.seek(target);
        }
        if doc == target { SeekDangerResult::Found } else { SeekDangerResult::SeekLowerBound(doc) }
    }
    fn doc(&self) -> DocId {
        self.0.doc()
    }
    fn size_hint(&self) -> u32 {
        self.0.size_hint()
    }
    fn cost(&self) -> u64 {
        self.0.cost()
    }
}

impl Scorer for ExcludedScorer {
    fn score(&mut self) -> Score {
        self.0.score()
    }
}
