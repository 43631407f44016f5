//! [`OfKey`]: the document of one key, for deletes.
//!
//! tantivy keeps every delete until the next commit, and the last group of deletes for longer. tantivy's own `TermQuery`
//! holds 1.3 KB for each, because it computes scores (38,000 deletes held 42 MB). This query holds the key only.

use tantivy::query::{ConstScorer, EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, Score, SegmentReader, TantivyError, Term};

/// The documents that have a term: for a term of the column `key`, at most one that is not deleted.
#[derive(Clone, Debug)]
pub(crate) struct OfKey(pub(crate) Term);

impl Query for OfKey {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(OfKeyWeight(self.0.clone())))
    }
}

struct OfKeyWeight(Term);

impl Weight for OfKeyWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let terms = reader.inverted_index(self.0.field())?;
        Ok(match terms.read_postings(&self.0, IndexRecordOption::Basic)? {
            Some(documents) => Box::new(ConstScorer::new(documents, boost)),
            None => Box::new(EmptyScorer),
        })
    }
    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("deletes are not explained".into()))
    }
}
