//! [`Planner`]: turns a parsed query and a schema into a tantivy query.
//!
//! A word is searched by its stem, and scores higher where it occurs exactly. With VERBATIM, in quotes and in
//! NOSTEM fields it is searched exactly. Stop words are dropped from the query as from the index. Words, lookups
//! and bytes are counted before a clause is created, and planning stops at the limit.

use super::affix::Affix;
use super::dictionary::{Terms, TermsQuery};
use super::excluded::Excluded;
use super::fuzzy::Fuzzy;
use super::metered::Metered;
use super::phrase::PhraseQuery;
use super::{
    AFFIX_CHARS_MIN, AFFIX_LOOKUPS, AffixKind, FieldName, LOOKUP_BYTES, LOOKUPS_MAX, Limit, Node,
    PLAN_BYTES_MAX, QUERY_NODES_MAX, RANGE_LOOKUPS, TagValue, UNION_BYTES,
};
use crate::document::Fields;
use crate::error::SearchError;
use crate::meter::Meter;
use crate::schema::{FieldKind, Schema};
use crate::tokenizer::{Words, lower, stem};
use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use tantivy::Term;
use tantivy::query::{
    AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, Occur, Query, RangeQuery, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};

/// What the planner of a query needs to know.
pub(crate) struct Planner<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) fields: &'a Fields,
    /// VERBATIM: words are not stemmed.
    pub(crate) verbatim: bool,
    /// NOSTOPWORDS: stop words stay in the query.
    pub(crate) keep_stop_words: bool,
    /// INFIELDS: the fields in which words without a `@field` are searched.
    pub(crate) in_fields: Option<Vec<usize>>,
    /// The meter of the request.
    pub(crate) meter: &'a Arc<Meter>,
    /// The size of the plan so far.
    pub(crate) planned: Planned,
}

/// The size of a plan, to which limits apply.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    words: Cell<usize>,
    lookups: Cell<usize>,
    bytes: Cell<usize>,
}

/// A boxed tantivy query.
pub(crate) type Boxed = Box<dyn Query>;

impl Planner<'_> {
    /// Plans the whole query. A query of only stop words matches nothing.
    ///
    /// # Errors
    /// For unknown fields and fields of another type, with their offset.
    pub(crate) fn plan(&self, node: &Node) -> Result<Boxed, SearchError> {
        let text_fields = match &self.in_fields {
            Some(fields) => fields.clone(),
            None => (0..self.schema.fields.len()).filter(|i| self.fields.words[*i].is_some()).collect(),
        };
        Ok(self.node(node, &text_fields)?.unwrap_or_else(|| Box::new(EmptyQuery)))
    }
    /// Plans FILTER: a numeric range on the field with number `field`.
    ///
    /// # Errors
    /// When the query exceeds its limits.
    pub(crate) fn filter(&self, field: usize, min: Limit, max: Limit) -> Result<Boxed, SearchError> {
        self.spend(RANGE_LOOKUPS, LOOKUP_BYTES)?;
        Ok(match self.fields.numbers[field] {
            Some(f) => {
                let range = Metered::column(range(f, min, max), self.meter);
                Box::new(ConstScoreQuery::new(range, 0.0))
            }
            None => Box::new(EmptyQuery),
        })
    }
    /// Plans INKEYS: the documents of these keys.
    ///
    /// # Errors
    /// When the keys have too many bytes.
    pub(crate) fn keys(&self, keys: &[&[u8]]) -> Result<Boxed, SearchError> {
        let bytes = keys.iter().map(|key| size_of::<Box<[u8]>>() + key.len()).sum();
        self.meter.hold(bytes)?;
        let terms = Terms::Listed(keys.iter().map(|key| Box::from(*key)).collect());
        let keys = TermsQuery::new(self.fields.key, terms, self.meter);
        Ok(Box::new(ConstScoreQuery::new(Box::new(keys), 0.0)))
    }

    /// Counts `lookups` and `bytes` of clauses before they are created.
    fn spend(&self, lookups: usize, bytes: usize) -> Result<(), SearchError> {
        let Planned { lookups: all_lookups, bytes: all_bytes, .. } = &self.planned;
        all_lookups.set(all_lookups.get().saturating_add(lookups));
        all_bytes.set(all_bytes.get().saturating_add(bytes));
        let over = |what, max| Err(SearchError::QueryLimit { what, max, offset: 0 });
        if all_lookups.get() > LOOKUPS_MAX {
            return over("Query terms times fields", LOOKUPS_MAX);
        }
        if all_bytes.get() > PLAN_BYTES_MAX {
            return over("Query memory", PLAN_BYTES_MAX);
        }
        Ok(self.meter.hold(bytes)?)
    }

    /// Plans a node. `None`: the node has only stop words.
    fn node(&self, node: &Node, fields: &[usize]) -> Result<Option<Boxed>, SearchError> {
        Ok(match node {
            Node::All => Some(Box::new(AllQuery)),
            Node::Word(text) => {
                let mut all = Vec::new();
                self.each_word(text, &mut |word| {
                    all.push((Occur::Must, self.word(word, fields)?));
                    Ok(())
                })?;
                combine(all)
            }
            Node::Phrase(text) => self.phrase(text, fields)?,
            Node::Affix(kind, text) => {
                let text = literal(text);
                if text.chars().count() < AFFIX_CHARS_MIN {
                    return Ok(Some(Box::new(EmptyQuery)));
                }
                self.meter.hold(Affix::bytes(text.len()))?;
                Some(self.terms(Terms::Affix(Arc::new(Affix::new(*kind, text.as_bytes()))), fields)?)
            }
            Node::Fuzzy(distance, text) => {
                let text = literal(text);
                self.meter.hold(Fuzzy::bytes(text.len()))?;
                Some(self.terms(Terms::Fuzzy(Arc::new(Fuzzy::new(&text, *distance))), fields)?)
            }
            Node::And(nodes) => {
                let mut all = Vec::with_capacity(nodes.len());
                for n in nodes {
                    let (occur, inner) = match n {
                        Node::Not(inner) => (Occur::MustNot, &**inner),
                        Node::Optional(inner) => (Occur::Should, &**inner),
                        n => (Occur::Must, n),
                    };
                    all.extend(self.node(inner, fields)?.map(|q| (occur, q)));
                }
                combine(all)
            }
            Node::Or(nodes) => {
                let mut any = Vec::with_capacity(nodes.len());
                for n in nodes {
                    any.extend(self.node(n, fields)?);
                }
                self.union(any)?
            }
            Node::Not(inner) => self.node(inner, fields)?.and_then(|q| combine(vec![(Occur::MustNot, q)])),
            Node::Optional(inner) => {
                self.node(inner, fields)?.and_then(|q| combine(vec![(Occur::Should, q)]))
            }
            Node::In(names, inner) => {
                let mut some = Vec::with_capacity(names.len());
                for name in names {
                    let field = self.field(name, "TEXT", |k| matches!(k, FieldKind::Text { .. }))?;
                    if self.fields.words[field].is_some()
                        && self.in_fields.as_ref().is_none_or(|i| i.contains(&field))
                    {
                        some.push(field);
                    }
                }
                self.node(inner, &some)?
            }
            Node::Tag(name, values) => Some(self.tags(name, values)?),
            Node::Range(name, min, max) => {
                let field = self.field(name, "NUMERIC", |k| matches!(k, FieldKind::Numeric))?;
                if self.schema.fields[field].no_index {
                    return Ok(Some(Box::new(EmptyQuery)));
                }
                Some(self.filter(field, *min, *max)?)
            }
        })
    }

    fn field(
        &self,
        name: &FieldName,
        expected: &'static str,
        is: fn(&FieldKind) -> bool,
    ) -> Result<usize, SearchError> {
        let plain = literal_case(&name.name);
        let field = self.schema.field(plain.as_bytes());
        let field =
            field.ok_or_else(|| SearchError::UnknownField { offset: name.offset, field: plain.clone() })?;
        if !is(&self.schema.fields[field].kind) {
            return Err(SearchError::FieldType { expected, offset: name.offset, field: plain });
        }
        Ok(field)
    }

    /// Calls `each` for the words of a part of the query, in the form that the index stores.
    fn each_word(
        &self,
        text: &str,
        each: &mut dyn FnMut(&str) -> Result<(), SearchError>,
    ) -> Result<(), SearchError> {
        let (mut words, mut word) = (Words::new(text), String::new());
        while words.next_into(&mut word).is_some() {
            if !self.keep_stop_words && self.schema.stop_words.contains(&word) {
                continue;
            }
            self.planned.words.set(self.planned.words.get() + 1);
            if self.planned.words.get() > QUERY_NODES_MAX {
                return Err(SearchError::QueryLimit { what: "Query terms", max: QUERY_NODES_MAX, offset: 0 });
            }
            each(&word)?;
        }
        Ok(())
    }

    fn word(&self, word: &str, fields: &[usize]) -> Result<Boxed, SearchError> {
        let stems = fields.iter().filter(|f| !self.verbatim && self.fields.stems[**f].is_some()).count();
        let lookups = fields.len() + stems;
        self.spend(lookups, lookups.saturating_mul(LOOKUP_BYTES + word.len()))?;
        let stemmed = (stems > 0).then(|| stem(word));
        self.for_each_field(fields, |f| {
            let exact = self.exact(f, word);
            match (&stemmed, self.fields.stems[f]) {
                (Some(stemmed), Some(stems)) => {
                    let stem = self.term(Term::from_field_text(stems, stemmed), IndexRecordOption::WithFreqs);
                    Box::new(BooleanQuery::new(vec![(Occur::Must, stem), (Occur::Should, exact)]))
                }
                _ => exact,
            }
        })
    }

    fn exact(&self, field: usize, word: &str) -> Boxed {
        self.term(Term::from_field_text(self.text_field(field), word), IndexRecordOption::WithFreqs)
    }

    fn term(&self, term: Term, option: IndexRecordOption) -> Boxed {
        Metered::list(Box::new(TermQuery::new(term, option)), self.meter)
    }

    /// The tantivy field with the exact words of TEXT field number `field`.
    fn text_field(&self, field: usize) -> Field {
        self.fields.words[field].expect("a text field")
    }

    fn phrase(&self, text: &str, fields: &[usize]) -> Result<Option<Boxed>, SearchError> {
        let mut words = Vec::new();
        self.each_word(text, &mut |word| {
            self.spend(fields.len(), fields.len().saturating_mul(LOOKUP_BYTES + word.len()))?;
            words.push(word.to_string());
            Ok(())
        })?;
        let (Some(first), Some(field)) = (words.first(), fields.first()) else {
            return Ok((!words.is_empty()).then(|| Box::new(EmptyQuery) as Boxed));
        };
        if words.len() == 1 {
            return self.for_each_field(fields, |f| self.exact(f, first)).map(Some);
        }
        let phrase = PhraseQuery::new(self.text_field(*field), &words, self.meter);
        self.for_each_field(fields, |f| Box::new(phrase.in_field(self.text_field(f)))).map(Some)
    }

    /// A query for the documents with any of some terms in any of the text fields.
    fn terms(&self, terms: Terms, fields: &[usize]) -> Result<Boxed, SearchError> {
        self.spend(fields.len().saturating_mul(AFFIX_LOOKUPS), fields.len().saturating_mul(LOOKUP_BYTES))?;
        self.for_each_field(fields, |f| {
            Box::new(TermsQuery::new(self.text_field(f), terms.clone(), self.meter))
        })
    }

    /// The weighted union of one query for each text field.
    fn for_each_field(&self, fields: &[usize], query: impl Fn(usize) -> Boxed) -> Result<Boxed, SearchError> {
        let any = fields.iter().map(|f| match self.schema.fields[*f].kind {
            FieldKind::Text { weight, .. } if weight != 1.0 => {
                Box::new(BoostQuery::new(query(*f), weight as f32)) as Boxed
            }
            _ => query(*f),
        });
        Ok(self.union(any.collect())?.unwrap_or_else(|| Box::new(EmptyQuery)))
    }

    fn union(&self, mut any: Vec<Boxed>) -> Result<Option<Boxed>, SearchError> {
        match any.len() {
            0 => Ok(None),
            1 => Ok(Some(any.swap_remove(0))),
            _ => {
                self.spend(0, UNION_BYTES)?;
                Ok(Some(Box::new(BooleanQuery::new(any.into_iter().map(|q| (Occur::Should, q)).collect()))))
            }
        }
    }

    fn tags(&self, name: &FieldName, values: &[TagValue]) -> Result<Boxed, SearchError> {
        let number = self.field(name, "TAG", |k| matches!(k, FieldKind::Tag { .. }))?;
        let (Some(field), FieldKind::Tag { case_sensitive, .. }) =
            (self.fields.tags[number], &self.schema.fields[number].kind)
        else {
            return Ok(Box::new(EmptyQuery));
        };
        let fold = |v: &str| if *case_sensitive { v.to_string() } else { lower(v) };
        let mut any = Vec::with_capacity(values.len());
        for value in values {
            any.push(match value {
                TagValue::Exact(v) => {
                    self.spend(1, LOOKUP_BYTES + v.len())?;
                    self.term(Term::from_field_text(field, &fold(v)), IndexRecordOption::Basic)
                }
                TagValue::Affix(_, v) if v.chars().count() < AFFIX_CHARS_MIN => Box::new(EmptyQuery) as Boxed,
                TagValue::Affix(kind, v) => {
                    self.spend(AFFIX_LOOKUPS, LOOKUP_BYTES + Affix::bytes(v.len()))?;
                    self.tag_affix(field, *kind, &fold(v))
                }
            });
        }
        let any = self.union(any)?.unwrap_or_else(|| Box::new(EmptyQuery));
        Ok(Box::new(ConstScoreQuery::new(any, 1.0)))
    }

    fn tag_affix(&self, field: Field, kind: AffixKind, text: &str) -> Boxed {
        let terms = Terms::Affix(Arc::new(Affix::new(kind, text.as_bytes())));
        Box::new(TermsQuery::new(field, terms, self.meter))
    }
}

/// Combines the clauses of one conjunction. If no clause is positive, the conjunction starts from all documents.
fn combine(mut clauses: Vec<(Occur, Boxed)>) -> Option<Boxed> {
    if clauses.is_empty() {
        return None;
    }
    if !clauses.iter().any(|(o, _)| *o == Occur::Must) {
        clauses.push((Occur::Must, Box::new(AllQuery)));
    }
    if clauses.len() == 1 {
        return Some(clauses.swap_remove(0).1);
    }
    let excluded = |(occur, q)| match occur {
        Occur::MustNot => (occur, Box::new(Excluded(q)) as Boxed),
        _ => (occur, q),
    };
    let clauses = clauses.into_iter().map(excluded).collect();
    Some(Box::new(BooleanQuery::new(clauses)))
}

fn range(field: tantivy::schema::Field, min: Limit, max: Limit) -> Boxed {
    let bound = |l: Limit| {
        // Adding 0.0 turns -0.0 into 0.0. In a column -0.0 sorts before 0.0, but for a user they are equal, and the
        // index contains no -0.0.
        let term = Term::from_field_f64(field, l.value + 0.0);
        if l.exclusive { Bound::Excluded(term) } else { Bound::Included(term) }
    };
    if min.value > max.value || (min.value == max.value && (min.exclusive || max.exclusive)) {
        return Box::new(EmptyQuery);
    }
    Box::new(RangeQuery::new(bound(min), bound(max)))
}

/// A word of the query, unescaped and in lower case, for values that bypass the tokenizer.
fn literal(text: &str) -> String {
    lower(&literal_case(text))
}

/// A word of the query as in [`literal`], but with its case unchanged.
fn literal_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}
