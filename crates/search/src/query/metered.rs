//! [`Metered`]: a wrapper that has the leaves of a query count what they do.
//!
//! tantivy's scorers go on until they find a document, which for an intersection, an exclusion or a range may mean passing
//! every document of a segment. Each leaf counts its steps here, and ends when its request's [`Meter`] is over: whatever
//! is made of leaves then ends soon after. The result is then not whole, and whoever walks it asks the meter.

use super::plan::Boxed;
use crate::meter::{Holding, Meter};
use std::sync::Arc;
use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SeekDangerResult, SegmentReader, TERMINATED, TantivyError};

/// What opening a leaf in a segment counts as, in steps: a look into the dictionary, and a block read.
pub(super) const OPEN_STEPS: usize = 64;
/// Steps that a leaf counts by itself before it tells its meter.
const OWN_STEPS: u32 = 256;
/// A column's scan passes so many documents in the time of a step.
const COLUMN_DOCS_PER_STEP: usize = 8;

/// A leaf of a query that counts its steps.
#[derive(Debug)]
pub(super) struct Metered {
    query: Boxed,
    meter: Arc<Meter>,
    /// It goes through a column, whose cost no document shows.
    scans_column: bool,
}

impl Metered {
    /// A leaf that has a list of documents.
    pub(super) fn list(query: Boxed, meter: &Arc<Meter>) -> Boxed {
        Box::new(Metered { query, meter: meter.clone(), scans_column: false })
    }
    /// A leaf that goes through a column.
    pub(super) fn column(query: Boxed, meter: &Arc<Meter>) -> Boxed {
        Box::new(Metered { query, meter: meter.clone(), scans_column: true })
    }
}

impl Clone for Metered {
    fn clone(&self) -> Metered {
        Metered { query: self.query.box_clone(), meter: self.meter.clone(), scans_column: self.scans_column }
    }
}

impl Query for Metered {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        self.meter.step(OPEN_STEPS).map_err(|_| ended())?;
        let Metered { meter, scans_column, .. } = self.clone();
        Ok(Box::new(MeteredWeight { weight: self.query.weight(scoring)?, meter, scans_column }))
    }
}

struct MeteredWeight {
    weight: Box<dyn Weight>,
    meter: Arc<Meter>,
    scans_column: bool,
}

impl Weight for MeteredWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let column_docs = if self.scans_column { reader.max_doc() as usize } else { 0 };
        if self.meter.step(OPEN_STEPS + column_docs / COLUMN_DOCS_PER_STEP).is_err() {
            return Ok(Box::new(EmptyScorer));
        }
        Ok(MeteredScorer::over(self.weight.scorer(reader, boost)?, &self.meter, None))
    }
    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        self.weight.explain(reader, doc)
    }
}

/// The error that ends the preparation of a query whose meter is over; nobody reads it.
pub(super) fn ended() -> TantivyError {
    TantivyError::InternalError("the request is over".into())
}

/// A scorer that counts its steps, and ends when its meter is over.
pub(super) struct MeteredScorer {
    scorer: Box<dyn Scorer>,
    meter: Arc<Meter>,
    left: u32,
    is_over: bool,
    /// What the scorer holds.
    _holding: Option<Holding>,
}

impl MeteredScorer {
    /// Wraps `scorer`, for which `holding` is held as long as it is there.
    pub(super) fn over(
        scorer: Box<dyn Scorer>,
        meter: &Arc<Meter>,
        holding: Option<Holding>,
    ) -> Box<dyn Scorer> {
        let meter = meter.clone();
        Box::new(MeteredScorer { scorer, meter, left: OWN_STEPS, is_over: false, _holding: holding })
    }
    /// Counts one step; false when it is over.
    #[inline]
    fn goes_on(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.left = OWN_STEPS;
            self.is_over |= self.meter.step(OWN_STEPS as usize).is_err();
        }
        !self.is_over
    }
}

impl DocSet for MeteredScorer {
    fn advance(&mut self) -> DocId {
        if self.goes_on() { self.scorer.advance() } else { TERMINATED }
    }
    fn seek(&mut self, target: DocId) -> DocId {
        if self.goes_on() { self.scorer.seek(target) } else { TERMINATED }
    }
    fn seek_danger(&mut self, target: DocId) -> SeekDangerResult {
        match self.goes_on() {
            true => self.scorer.seek_danger(target),
            false => SeekDangerResult::SeekLowerBound(TERMINATED),
        }
    }
    fn doc(&self) -> DocId {
        if self.is_over { TERMINATED } else { self.scorer.doc() }
    }
    fn size_hint(&self) -> u32 {
        self.scorer.size_hint()
    }
    fn cost(&self) -> u64 {
        self.scorer.cost()
    }
}

impl Scorer for MeteredScorer {
    fn score(&mut self) -> Score {
        if self.is_over { 0.0 } else { self.scorer.score() }
    }
}
