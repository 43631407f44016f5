//! The query language (RediSearch's DIALECT 2). [`parser`] turns text into a [`Node`], and [`plan`] turns a
//! [`Node`] into a tantivy query.

mod affix;
pub(crate) mod dictionary;
mod excluded;
mod fuzzy;
mod metered;
pub(crate) mod of_key;
pub(crate) mod parser;
mod phrase;
pub(crate) mod plan;

/// Maximum length of a query, in bytes. The value of a parameter counts once for each use.
pub(crate) const QUERY_BYTES_MAX: usize = 64 * 1024;
/// Maximum nesting of a query.
pub(crate) const QUERY_DEPTH_MAX: usize = 64;
/// Maximum number of nodes of a query, each word of a phrase and of a parameter included.
pub(crate) const QUERY_NODES_MAX: usize = 4096;
/// Minimum length of a prefix, suffix or infix, in characters. A shorter one matches nothing, as in RediSearch.
pub(crate) const AFFIX_CHARS_MIN: usize = 2;
/// Maximum distance of a fuzzy term.
pub(crate) const FUZZY_DISTANCE_MAX: usize = 2;

/// Maximum length of a fuzzy term, in bytes.
pub(crate) const FUZZY_BYTES_MAX: usize = 64;
/// Maximum number of lookups of a query. A word needs one lookup for each searched field, and another lookup for its
/// stem.
pub(crate) const LOOKUPS_MAX: usize = 16_384;
/// Number of lookups that a prefix, suffix, infix or fuzzy term counts as, because it walks the dictionary and holds
/// one bit for each document of a segment.
pub(crate) const AFFIX_LOOKUPS: usize = 256;
/// Number of lookups that a range counts as, because it scans a column.
pub(crate) const RANGE_LOOKUPS: usize = 16;
/// Maximum number of bytes of a planned and opened query, without its results.
pub(crate) const PLAN_BYTES_MAX: usize = 64 << 20;
/// Number of bytes of a planned and opened lookup: its clause, its part of the score and its block of documents.
pub(crate) const LOOKUP_BYTES: usize = 4 * 1024;
/// Number of bytes of a union of clauses: its state for the next 4,096 documents.
pub(crate) const UNION_BYTES: usize = 20 * 1024;

/// A node of a parsed query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// `*`: every document matches
    All,
    /// A word, or the value of a `$parameter`.
    Word(String),
    /// A phrase: `"some words"`
    Phrase(String),
    /// A prefix, suffix or infix: `te*`, `*xt`, `*ex*`
    Affix(AffixKind, String),
    /// A fuzzy term: `%word%`, `%%word%%`
    Fuzzy(u8, String),
    /// Matches when all of these nodes match.
    And(Vec<Node>),
    /// Matches when at least one of these nodes matches.
    Or(Vec<Node>),
    /// `-x`: the node does not match
    Not(Box<Node>),
    /// `~x`: the node affects only the score
    Optional(Box<Node>),
    /// `@a|b:x`: the node `x` is searched in these fields
    In(Vec<FieldName>, Box<Node>),
    /// A tag query: `@t:{a|b}`
    Tag(FieldName, Vec<TagValue>),
    /// A range: `@n:[a b]`
    Range(FieldName, Limit, Limit),
}

/// On which side of an affix more characters may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AffixKind {
    /// More characters may follow: `te*`
    Prefix,
    /// More characters may precede: `*xt`
    Suffix,
    /// More characters may precede and follow: `*ex*`
    Infix,
}

/// A field's name and its position in the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldName {
    pub(crate) name: String,
    pub(crate) offset: usize,
}

/// One value between the braces of a tag query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TagValue {
    /// The tag must be exactly this text.
    Exact(String),
    /// The tag begins with, ends with or contains this text.
    Affix(AffixKind, String),
}

impl TagValue {
    /// The value `text`. `follows`: more characters may precede it. `goes_on`: more characters may follow it.
    fn of(text: String, follows: bool, goes_on: bool) -> TagValue {
        match (follows, goes_on) {
            (false, false) => TagValue::Exact(text),
            (false, true) => TagValue::Affix(AffixKind::Prefix, text),
            (true, false) => TagValue::Affix(AffixKind::Suffix, text),
            (true, true) => TagValue::Affix(AffixKind::Infix, text),
        }
    }
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The number; infinite when the range has no limit on this side.
    pub(crate) value: f64,
    /// True with `(`: the range excludes the number itself.
    pub(crate) exclusive: bool,
}
