//! [`TermsQuery`]: the documents that contain any of the terms which a walk over a field's dictionary finds.
//!
//! A bit set unites the documents of these terms. A prefix costs as much as its matching terms; a suffix or infix costs
//! one walk over the dictionary. So the number of terms needs no limit. The request's [`Meter`] counts the bytes of
//! terms, documents and the bit set. Only the bit set outlives the walk. Every match has the score 1.

use super::affix::Affix;
use super::fuzzy::Fuzzy;
use super::metered::{MeteredScorer, OPEN_STEPS};
use crate::meter::{Holding, Meter, StopReason};
use std::cell::Cell;
use std::sync::Arc;
use tantivy::postings::TermInfo;
use tantivy::query::{
    BitSetDocSet, ConstScorer, EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::termdict::TermDictionary;
use tantivy::{BitSet, DocId, InvertedIndexReader, Score, SegmentReader, TantivyError};
use tantivy_fst::Automaton;

/// A query for the documents that contain any of some terms of a field.
#[derive(Clone, Debug)]
pub(crate) struct TermsQuery {
    field: Field,
    terms: Terms,
    meter: Arc<Meter>,
}

/// Which terms to search for.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// Terms with a given text at the beginning, at the end or anywhere.
    Affix(Arc<Affix>),
    /// Terms that are within an edit distance of a word.
    Fuzzy(Arc<Fuzzy>),
    /// The terms in this list.
    Listed(Arc<[Box<[u8]>]>),
}

impl TermsQuery {
    pub(crate) fn new(field: Field, terms: Terms, meter: &Arc<Meter>) -> TermsQuery {
        TermsQuery { field, terms, meter: meter.clone() }
    }

    /// The matching documents of a segment; `None` when the request must stop.
    fn documents(&self, reader: &SegmentReader) -> tantivy::Result<Option<(BitSet, Holding)>> {
        let max_doc = reader.max_doc();
        if self.meter.step(OPEN_STEPS + max_doc as usize / 64).is_err() {
            return Ok(None);
        }
        let Ok(holding) = Holding::new(&self.meter, max_doc as usize / 8 + size_of::<u64>()) else {
            return Ok(None);
        };
        let index = reader.inverted_index(self.field)?;
        let mut union =
            TermUnion { documents: BitSet::with_max_value(max_doc), index: &index, meter: &self.meter };
        let walked = match &self.terms {
            Terms::Affix(affix) => union.walk(index.terms(), &**affix)?,
            Terms::Fuzzy(fuzzy) => union.walk(index.terms(), &**fuzzy)?,
            Terms::Listed(terms) => union.look_up(index.terms(), terms)?,
        };
        Ok(walked.ok().map(|()| (union.documents, holding)))
    }
}

/// The documents of all terms found so far.
struct TermUnion<'a> {
    documents: BitSet,
    index: &'a InvertedIndexReader,
    meter: &'a Meter,
}

impl TermUnion<'_> {
    fn walk<A: Automaton>(
        &mut self,
        dictionary: &TermDictionary,
        automaton: &A,
    ) -> tantivy::Result<Result<(), StopReason>>
    where
        A::State: Clone,
    {
        let counted =
            MeteredAutomaton { automaton, meter: self.meter, steps: Cell::new(0), is_over: Cell::new(false) };
        let mut found = dictionary.search(&counted).without_keys().into_stream()?;
        while found.advance() {
            if let Err(over) = self.add(found.value())? {
                return Ok(Err(over));
            }
        }
        Ok(self.meter.check())
    }
    fn look_up(
        &mut self,
        dictionary: &TermDictionary,
        terms: &[Box<[u8]>],
    ) -> tantivy::Result<Result<(), StopReason>> {
        for term in terms {
            if let Err(over) = self.meter.step(OPEN_STEPS + term.len()) {
                return Ok(Err(over));
            }
            if let Some(found) = dictionary.get(term)?
                && let Err(over) = self.add(&found)?
            {
                return Ok(Err(over));
            }
        }
        Ok(Ok(()))
    }
    /// Adds the documents of a term.
    fn add(&mut self, term: &TermInfo) -> tantivy::Result<Result<(), StopReason>> {
        let mut blocks = self.index.read_block_postings_from_terminfo(term, IndexRecordOption::Basic)?;
        loop {
            let documents = blocks.docs();
            if documents.is_empty() {
                return Ok(Ok(()));
            }
            if let Err(over) = self.meter.step(documents.len()) {
                return Ok(Err(over));
            }
            for document in documents {
                self.documents.insert(*document);
            }
            blocks.advance();
        }
    }
}

/// An automaton that counts the bytes it reads and stops when its request must stop. Without this wrapper, a walk that
/// finds no term would return only at the end of the dictionary.
struct MeteredAutomaton<'a, A> {
    automaton: &'a A,
    meter: &'a Meter,
    steps: Cell<usize>,
    is_over: Cell<bool>,
}

/// Number of bytes that are counted locally before the meter is updated.
const OWN_STEPS: usize = 256;

impl<A: Automaton> Automaton for MeteredAutomaton<'_, A> {
    type State = A::State;
    fn start(&self) -> A::State {
        self.automaton.start()
    }
    fn is_match(&self, state: &A::State) -> bool {
        self.automaton.is_match(state)
    }
    fn can_match(&self, state: &A::State) -> bool {
        !self.is_over.get() && self.automaton.can_match(state)
    }
    fn will_always_match(&self, state: &A::State) -> bool {
        self.automaton.will_always_match(state)
    }
    fn accept(&self, state: &A::State, byte: u8) -> A::State {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() >= OWN_STEPS {
            self.is_over.set(self.is_over.get() || self.meter.step(self.steps.take()).is_err());
        }
        self.automaton.accept(state, byte)
    }
}

impl Query for TermsQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(TermsWeight(self.clone())))
    }
}

struct TermsWeight(TermsQuery);

impl Weight for TermsWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(match self.0.documents(reader)? {
            Some((documents, holding)) => {
                let scorer = ConstScorer::new(BitSetDocSet::from(documents), boost);
                MeteredScorer::wrap(Box::new(scorer), &self.0.meter, Some(holding))
            }
            None => Box::new(EmptyScorer),
        })
    }
    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("terms of a walk are not explained".into()))
    }
}
