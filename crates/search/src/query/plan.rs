//! [`Planner`]: a parsed query and a schema to a tantivy query.
//!
//! A word is looked for by its stem (and scores higher where it stands exactly), or exactly with VERBATIM, in quotes
//! and in NOSTEM fields. Stop words drop out of the query as they do from the index.

use super::affix::AffixQuery;
use super::excluded::Excluded;
use super::{AFFIX_CHARS_MIN, AFFIX_LOOKUPS, FieldName, LOOKUPS_MAX, Limit, Node, TagValue};
use crate::error::SearchError;
use crate::index::Fields;
use crate::schema::{FieldKind, Schema};
use crate::tokenizer::{Words, push_lower, stem};
use std::cell::Cell;
use std::ops::Bound;
use tantivy::Term;
use tantivy::query::{
    AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, FuzzyTermQuery, Occur, PhraseQuery,
    Query, RangeQuery, TermQuery,
};
use tantivy::schema::IndexRecordOption;

/// What a query is planned against.
pub(crate) struct Planner<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) fields: &'a Fields,
    /// VERBATIM: no stems.
    pub(crate) verbatim: bool,
    /// NOSTOPWORDS: stop words stay in the query.
    pub(crate) keep_stop_words: bool,
    /// INFIELDS: where words without a `@field` are looked for.
    pub(crate) in_fields: Option<Vec<usize>>,
    /// Lookups planned so far.
    pub(crate) lookups: Cell<usize>,
}

/// A boxed tantivy query.
pub(crate) type Boxed = Box<dyn Query>;

impl Planner<'_> {
    /// The whole query; one of stop words only matches nothing.
    ///
    /// # Errors
    /// For unknown fields and fields of another type, with their offset.
    pub(crate) fn plan(&self, node: &Node) -> Result<Boxed, SearchError> {
        let text_fields = match &self.in_fields {
            Some(fields) => fields.clone(),
            None => (0..self.schema.fields.len()).filter(|i| self.fields.words[*i].is_some()).collect(),
        };
        let query = self.node(node, &text_fields)?;
        if self.lookups.get() > LOOKUPS_MAX {
            return Err(SearchError::QueryLimit {
                what: "Query terms times fields",
                max: LOOKUPS_MAX,
                offset: 0,
            });
        }
        Ok(query.unwrap_or_else(|| Box::new(EmptyQuery)))
    }
    /// FILTER: a numeric range on a field by its number.
    pub(crate) fn filter(&self, field: usize, min: Limit, max: Limit) -> Boxed {
        match self.fields.numbers[field] {
            Some(f) => Box::new(ConstScoreQuery::new(range(f, min, max), 0.0)),
            None => Box::new(EmptyQuery),
        }
    }

    /// `None`: nothing but stop words.
    fn node(&self, node: &Node, fields: &[usize]) -> Result<Option<Boxed>, SearchError> {
        Ok(match node {
            Node::All => Some(Box::new(AllQuery)),
            Node::Word(text) => {
                let words = self.words(text);
                let all = words.iter().map(|w| (Occur::Must, self.word(w, fields))).collect();
                combine(all)
            }
            Node::Phrase(text) => self.phrase(&self.words(text), fields),
            Node::Affix(kind, text) => {
                let text = literal(text);
                if text.chars().count() < AFFIX_CHARS_MIN {
                    return Ok(Some(Box::new(EmptyQuery)));
                }
                Some(self.each_costing(AFFIX_LOOKUPS, fields, |f| {
                    Box::new(AffixQuery::new(self.fields.words[f].expect("a text field"), *kind, &text))
                }))
            }
            Node::Fuzzy(distance, text) => {
                let text = literal(text);
                Some(self.each_costing(AFFIX_LOOKUPS, fields, |f| {
                    let term = Term::from_field_text(self.fields.words[f].expect("a text field"), &text);
                    Box::new(FuzzyTermQuery::new(term, *distance, false))
                }))
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
                union(any)
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
                Some(self.filter(field, *min, *max))
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

    /// The words of a piece of the query as the index has them.
    fn words(&self, text: &str) -> Vec<String> {
        let (mut words, mut word, mut out) = (Words::new(text), String::new(), Vec::new());
        while words.next_into(&mut word).is_some() {
            if self.keep_stop_words || !self.schema.stop_words.contains(&word) {
                out.push(word.clone());
            }
        }
        out
    }

    fn word(&self, word: &str, fields: &[usize]) -> Boxed {
        let stemmed = (!self.verbatim).then(|| stem(word));
        self.each(fields, |f| {
            let exact = self.exact(f, word);
            match (&stemmed, self.fields.stems[f]) {
                (Some(stemmed), Some(stems)) => {
                    let stem = term(Term::from_field_text(stems, stemmed));
                    Box::new(BooleanQuery::new(vec![(Occur::Must, stem), (Occur::Should, exact)]))
                }
                _ => exact,
            }
        })
    }

    fn exact(&self, field: usize, word: &str) -> Boxed {
        term(Term::from_field_text(self.fields.words[field].expect("a text field"), word))
    }

    fn phrase(&self, words: &[String], fields: &[usize]) -> Option<Boxed> {
        match words {
            [] => None,
            [one] => Some(self.each(fields, |f| self.exact(f, one))),
            _ => Some(self.each_costing(words.len(), fields, |f| {
                let field = self.fields.words[f].expect("a text field");
                let terms = words.iter().map(|w| Term::from_field_text(field, w)).collect();
                Box::new(PhraseQuery::new(terms))
            })),
        }
    }

    /// The union of one query for each text field, weighted.
    fn each(&self, fields: &[usize], query: impl Fn(usize) -> Boxed) -> Boxed {
        self.each_costing(1, fields, query)
    }

    /// As [`Planner::each`] for queries of `lookups` lookups; past the limit nothing more is built.
    fn each_costing(&self, lookups: usize, fields: &[usize], query: impl Fn(usize) -> Boxed) -> Boxed {
        self.lookups.set(self.lookups.get().saturating_add(fields.len().saturating_mul(lookups)));
        if self.lookups.get() > LOOKUPS_MAX {
            return Box::new(EmptyQuery);
        }
        let any = fields.iter().map(|f| match self.schema.fields[*f].kind {
            FieldKind::Text { weight, .. } if weight != 1.0 => {
                Box::new(BoostQuery::new(query(*f), weight as f32)) as Boxed
            }
            _ => query(*f),
        });
        union(any.collect()).unwrap_or_else(|| Box::new(EmptyQuery))
    }

    fn tags(&self, name: &FieldName, values: &[TagValue]) -> Result<Boxed, SearchError> {
        let number = self.field(name, "TAG", |k| matches!(k, FieldKind::Tag { .. }))?;
        let (Some(field), FieldKind::Tag { case_sensitive, .. }) =
            (self.fields.tags[number], &self.schema.fields[number].kind)
        else {
            return Ok(Box::new(EmptyQuery));
        };
        let cost = |v: &TagValue| if matches!(v, TagValue::Exact(_)) { 1 } else { AFFIX_LOOKUPS };
        self.lookups.set(self.lookups.get().saturating_add(values.iter().map(cost).sum()));
        if self.lookups.get() > LOOKUPS_MAX {
            return Ok(Box::new(EmptyQuery));
        }
        let fold = |v: &str| if *case_sensitive { v.to_string() } else { v.to_lowercase() };
        let any = values.iter().map(|v| match v {
            TagValue::Exact(v) => {
                Box::new(TermQuery::new(Term::from_field_text(field, &fold(v)), IndexRecordOption::Basic))
                    as Boxed
            }
            TagValue::Affix(_, v) if v.chars().count() < AFFIX_CHARS_MIN => Box::new(EmptyQuery),
            TagValue::Affix(kind, v) => Box::new(AffixQuery::new(field, *kind, &fold(v))),
        });
        let any = union(any.collect()).unwrap_or_else(|| Box::new(EmptyQuery));
        Ok(Box::new(ConstScoreQuery::new(any, 1.0)))
    }
}

/// Clauses of one conjunction; one without a positive clause starts from all documents.
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

fn union(mut any: Vec<Boxed>) -> Option<Boxed> {
    match any.len() {
        0 => None,
        1 => Some(any.swap_remove(0)),
        _ => Some(Box::new(BooleanQuery::new(any.into_iter().map(|q| (Occur::Should, q)).collect()))),
    }
}

fn term(term: Term) -> Boxed {
    Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs))
}

fn range(field: tantivy::schema::Field, min: Limit, max: Limit) -> Boxed {
    let bound = |l: Limit| {
        // -0.0 sorts before 0.0 in the column; to a user they are one number, and the index holds no -0.0.
        let term = Term::from_field_f64(field, l.value + 0.0);
        if l.exclusive { Bound::Excluded(term) } else { Bound::Included(term) }
    };
    if min.value > max.value || (min.value == max.value && (min.exclusive || max.exclusive)) {
        return Box::new(EmptyQuery);
    }
    Box::new(RangeQuery::new(bound(min), bound(max)))
}

/// A word of the query with its escapes resolved, lower-cased: for what does not go through the tokenizer.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    literal_case(text).chars().for_each(|c| push_lower(&mut out, c));
    out
}

/// As [`literal`], in its own case.
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
