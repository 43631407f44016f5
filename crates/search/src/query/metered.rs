//! [`Metered`]: a wrapper that counts the steps of a query's leaves.
//!
//! A tantivy scorer continues until it finds a document. For an intersection, an exclusion or a range, that may
//! mean passing every document of a segment. Here each leaf counts its steps and ends when its request's [`Meter`]
//! says so, and every query built of such leaves ends soon after. The result is then incomplete, so the caller must
//! ask the meter.

use super::plan::Boxed;
use crate::meter::{Holding, Meter};
use std::sync::Arc;
use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SeekDangerResult, SegmentReader, TERMINATED, TantivyError};

/// Number of steps counted for opening a leaf in a segment: one dictionary lookup and one block read.
pub(super) const OPEN_STEPS: usize = 64;
/// Number of steps that a leaf counts locally before it updates its meter.
const OWN_STEPS: u32 = 256;
/// Number of documents that the scan of a column passes in the time of one step.
const COLUMN_DOCS_PER_STEP: usize = 8;

/// A leaf of a query that counts its steps.
#[derive(Debug)]
pub(super) struct Metered {
    query: Boxed,
    meter: Arc<Meter>,
    /// True when the leaf scans a column, and so passes documents without returning them.
    scans_column: bool,
}

impl Metered {
    /// Wraps a leaf that walks a list of documents.
    pub(super) fn list(query: Boxed, meter: &Arc<Meter>) -> Boxed {
        Box::new(Metered { query, meter: meter.clone(), scans_column: false })
    }
    /// Wraps a leaf that scans a column.
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
        self.meter.step(OPEN_STEPS).map_err(|_| stopped_error())?;
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
        Ok(MeteredScorer::wrap(self.weight.scorer(reader, boost)?, &self.meter, None))
    }
    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        self.weight.explain(reader, doc)
    }
}

/// The error that ends the preparation of a stopped query. No client reads it.
pub(super) fn stopped_error() -> TantivyError {
    TantivyError::InternalError("the request is over".into())
}

/// A scorer that counts its steps and ends when its request must stop.
pub(super) struct MeteredScorer {
    scorer: Box<dyn Scorer>,
    meter: Arc<Meter>,
    left: u32,
    is_over: bool,
    /// Counts the scorer's memory in the meter until the scorer is dropped.
    _holding: Option<Holding>,
}

impl MeteredScorer {
    /// Wraps `scorer`. `holding` is released with the wrapper.
    pub(super) fn wrap(
        scorer: Box<dyn Scorer>,
        meter: &Arc<Meter>,
        holding: Option<Holding>,
    ) -> Box<dyn Scorer> {
        let meter = meter.clone();
        Box::new(MeteredScorer { scorer, meter, left: OWN_STEPS, is_over: false, _holding: holding })
    }
    /// Counts one step. Returns false when the request must stop.
    #[inline]
    fn may_continue(&mut self) -> bool {
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
        if self.may_continue() { self.scorer.advance() } else { TERMINATED }
    }
    fn seek(&mut self, target: DocId) -> DocId {
        if self.may_continue() { self.scorer.seek(target) } else { TERMINATED }
    }
    fn seek_danger(&mut self, target: DocId) -> SeekDangerResult {
        match self.may_continue() {
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
