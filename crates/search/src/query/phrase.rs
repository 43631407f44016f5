//! [`PhraseQuery`]: words in sequence. The request's meter counts the positions that are read.
//!
//! tantivy's own phrase query reads all positions of all words of a document in one step. With thousands of words
//! and a document of millions of positions this takes minutes and cannot be stopped. Here each word's positions are
//! counted before they are read, the document's rarest word comes first, and a word that occurs several times in
//! the phrase has one list of documents. Scores equal tantivy's (BM25 of the phrase).

use super::metered::{MeteredScorer, OPEN_STEPS, stopped_error};
use crate::meter::{Holding, Meter};
use std::sync::Arc;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::query::{Bm25Weight, EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, TantivyError, Term};

/// Number of bytes of an open list of documents with positions: decoded blocks of 128.
pub(super) const POSTINGS_BYTES: usize = 3 * 1024;
/// Number of bytes that one position takes.
const POSITION_BYTES: usize = size_of::<u32>();

/// A query for documents that contain some words in sequence in one field.
#[derive(Clone, Debug)]
pub(super) struct PhraseQuery {
    field: Field,
    /// The distinct words of the phrase.
    words: Arc<[String]>,
    /// The word at each place of the phrase, as an index into `words`.
    places: Arc<[u32]>,
    meter: Arc<Meter>,
}

impl PhraseQuery {
    /// A query for the phrase of `words`, at least one word, in `field`.
    pub(super) fn new(field: Field, words: &[String], meter: &Arc<Meter>) -> PhraseQuery {
        let mut different: Vec<String> = words.to_vec();
        different.sort_unstable();
        different.dedup();
        let place = |word| different.binary_search(word).unwrap_or_default() as u32;
        let places = words.iter().map(place).collect();
        PhraseQuery { field, words: different.into(), places, meter: meter.clone() }
    }
    /// A query for this phrase in another field.
    pub(super) fn in_field(&self, field: Field) -> PhraseQuery {
        PhraseQuery { field, ..self.clone() }
    }
    fn term(&self, word: u32) -> Term {
        Term::from_field_text(self.field, &self.words[word as usize])
    }
}

impl Query for PhraseQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        self.meter.step(OPEN_STEPS * self.places.len()).map_err(|_| stopped_error())?;
        let similarity = match scoring {
            EnableScoring::Enabled { statistics_provider, .. } => {
                let terms: Vec<Term> = self.places.iter().map(|word| self.term(*word)).collect();
                Some(Bm25Weight::for_terms(statistics_provider, &terms)?)
            }
            EnableScoring::Disabled { .. } => None,
        };
        Ok(Box::new(PhraseWeight { phrase: self.clone(), similarity }))
    }
}

struct PhraseWeight {
    phrase: PhraseQuery,
    /// The weight with which scores are computed. `None` when scores are not needed.
    similarity: Option<Bm25Weight>,
}

impl Weight for PhraseWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let PhraseQuery { field, words, meter, .. } = &self.phrase;
        let is_within_limit = meter.step(OPEN_STEPS * words.len()).is_ok();
        let holding = Holding::new(meter, words.len() * POSTINGS_BYTES).ok().filter(|_| is_within_limit);
        let Some(holding) = holding else { return Ok(Box::new(EmptyScorer)) };
        let index = reader.inverted_index(*field)?;
        let mut lists = Vec::with_capacity(words.len());
        for word in 0..words.len() {
            let term = self.phrase.term(word as u32);
            let Some(list) = index.read_postings(&term, IndexRecordOption::WithFreqsAndPositions)? else {
                return Ok(Box::new(EmptyScorer));
            };
            lists.push(list);
        }
        let norms = match self.similarity {
            Some(_) => Some(reader.get_fieldnorms_reader(*field)?),
            None => None,
        };
        let mut by_length: Vec<usize> = (0..lists.len()).collect();
        by_length.sort_by_key(|list| lists[*list].doc_freq());
        let mut scorer = PhraseScorer {
            lists,
            by_length,
            places: self.phrase.places.clone(),
            order: Vec::with_capacity(self.phrase.places.len()),
            meter: meter.clone(),
            similarity: self.similarity.as_ref().map(|s| s.boost_by(boost)),
            norms,
            doc: 0,
            count: 0,
            starts: Positions::default(),
            read: Positions::default(),
        };
        scorer.doc = scorer.find(0);
        Ok(MeteredScorer::wrap(Box::new(scorer), meter, Some(holding)))
    }
    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("phrases are not explained".into()))
    }
}

/// The positions in one document. A meter counts their memory.
#[derive(Default)]
struct Positions {
    all: Vec<u32>,
    holding: Option<Holding>,
}

impl Positions {
    /// Makes room for `n` positions. Returns false when the request has no memory left.
    fn make_room(&mut self, n: usize, meter: &Arc<Meter>) -> bool {
        self.all.clear();
        if self.all.capacity() < n {
            // Free the old positions before more memory is allocated.
            (self.all, self.holding) = (Vec::new(), None);
            let Ok(holding) = Holding::new(meter, n * POSITION_BYTES) else { return false };
            (self.all, self.holding) = (Vec::with_capacity(n), Some(holding));
        }
        true
    }
}

struct PhraseScorer {
    /// For each word, the list of its documents.
    lists: Vec<SegmentPostings>,
    /// Indices into `lists`, the shortest list first.
    by_length: Vec<usize>,
    places: Arc<[u32]>,
    /// The order in which the places of the phrase are checked in a document.
    order: Vec<u32>,
    meter: Arc<Meter>,
    similarity: Option<Bm25Weight>,
    norms: Option<FieldNormReader>,
    doc: DocId,
    /// Number of occurrences of the phrase in `doc`. When scores are not needed, any number above 0.
    count: u32,
    /// The offsets at which the phrase may start.
    starts: Positions,
    /// The positions of one word of the phrase.
    read: Positions,
}

impl PhraseScorer {
    /// The first document from `target` on that contains the phrase.
    fn find(&mut self, mut target: DocId) -> DocId {
        'documents: while target < TERMINATED {
            if self.meter.step(self.by_length.len()).is_err() {
                break;
            }
            for list in &self.by_length {
                let list = &mut self.lists[*list];
                let doc = if list.doc() < target { list.seek(target) } else { list.doc() };
                if doc > target {
                    target = doc;
                    continue 'documents;
                }
            }
            self.count = self.count_here();
            if self.count > 0 {
                return target;
            }
            target += 1;
        }
        TERMINATED
    }

    /// Number of occurrences of the phrase in the current document of all lists.
    fn count_here(&mut self) -> u32 {
        let PhraseScorer { lists, places, order, meter, starts, read, .. } = self;
        if meter.step(places.len()).is_err() {
            return 0;
        }
        let count = |place: u32| lists[places[place as usize] as usize].term_freq();
        order.clear();
        order.extend(0..places.len() as u32);
        order.sort_by_key(|place| count(*place));
        for (n, place) in order.iter().enumerate() {
            let positions: &mut Positions = if n == 0 { &mut *starts } else { &mut *read };
            let list = &mut lists[places[*place as usize] as usize];
            let many = list.term_freq() as usize;
            if meter.step(many).is_err() || !positions.make_room(many, meter) {
                return 0;
            }
            list.positions(&mut positions.all);
            // A word that occurs before its place in the phrase starts no phrase.
            if n == 0 {
                positions.all.retain(|at| at >= place);
                positions.all.iter_mut().for_each(|at| *at -= place);
            } else {
                keep_common(&mut starts.all, &read.all, *place);
            }
            if starts.all.is_empty() {
                return 0;
            }
        }
        starts.all.len() as u32
    }
}

/// Keeps the `starts` for which `start + place` is in `positions`. Both lists ascend.
fn keep_common(starts: &mut Vec<u32>, positions: &[u32], place: u32) {
    let mut at = 0;
    starts.retain(|start| {
        let wanted = u64::from(*start) + u64::from(place);
        while positions.get(at).is_some_and(|p| u64::from(*p) < wanted) {
            at += 1;
        }
        positions.get(at).is_some_and(|p| u64::from(*p) == wanted)
    });
}

impl DocSet for PhraseScorer {
    fn advance(&mut self) -> DocId {
        if self.doc < TERMINATED {
            self.doc = self.find(self.doc + 1);
        }
        self.doc
    }
    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc < target {
            self.doc = self.find(target);
        }
        self.doc
    }
    fn doc(&self) -> DocId {
        self.doc
    }
    fn size_hint(&self) -> u32 {
        let rarest = self.by_length.first().map_or(0, |list| self.lists[*list].doc_freq());
        // Use tantivy's estimate: of the documents with all words, few have the words in sequence.
        rarest / (10 * self.places.len() as u32)
    }
    fn cost(&self) -> u64 {
        let rarest = self.by_length.first().map_or(0, |list| self.lists[*list].doc_freq());
        u64::from(rarest) * 10 * self.places.len() as u64
    }
}

impl Scorer for PhraseScorer {
    fn score(&mut self) -> Score {
        match (&self.similarity, &self.norms) {
            (Some(similarity), Some(norms)) => similarity.score(norms.fieldnorm_id(self.doc), self.count),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_kept_where_a_word_follows() {
        let mut starts = vec![0, 3, 7, u32::MAX];
        keep_common(&mut starts, &[2, 4, 9, 12], 2);
        assert_eq!(starts, [0, 7]);
        keep_common(&mut starts, &[], 1);
        assert!(starts.is_empty());
    }
}
