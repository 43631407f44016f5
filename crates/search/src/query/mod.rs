//! The query language (RediSearch's, DIALECT 2): text to [`Node`] ([`parser`]), [`Node`] to a tantivy query ([`plan`]).

mod affix;
pub(crate) mod dictionary;
mod excluded;
mod fuzzy;
mod metered;
pub(crate) mod parser;
mod phrase;
pub(crate) mod plan;

/// Longest query, in bytes; the values of its parameters count as often as they stand in it.
pub(crate) const QUERY_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of a query.
pub(crate) const QUERY_DEPTH_MAX: usize = 64;
/// Most nodes of a query, each word of a phrase and of a parameter included.
pub(crate) const QUERY_NODES_MAX: usize = 4096;
/// Shortest prefix, suffix or infix that is looked for, in characters; a shorter one matches nothing, as in RediSearch.
pub(crate) const AFFIX_CHARS_MIN: usize = 2;
/// Largest distance of a fuzzy term.
pub(crate) const FUZZY_DISTANCE_MAX: usize = 2;

/// Longest fuzzy term, in bytes.
pub(crate) const FUZZY_BYTES_MAX: usize = 64;
/// Most lookups that a query may become: a word is one for each field it is looked for in, and one more for its stem.
pub(crate) const LOOKUPS_MAX: usize = 16_384;
/// What a prefix, suffix, infix or fuzzy term counts as: it walks the dictionary and holds a bit for each document of a
/// segment.
pub(crate) const AFFIX_LOOKUPS: usize = 256;
/// What a range counts as: it goes through a column.
pub(crate) const RANGE_LOOKUPS: usize = 16;
/// Most bytes that a query holds when it is planned and opened, without what it finds.
pub(crate) const PLAN_BYTES_MAX: usize = 64 << 20;
/// Bytes of a lookup, planned and opened in a segment: its clause, its part of the score, its block of documents.
pub(crate) const LOOKUP_BYTES: usize = 4 * 1024;
/// Bytes of a union of clauses: what it knows of the next 4,096 documents.
pub(crate) const UNION_BYTES: usize = 20 * 1024;

/// A query as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// `*`
    All,
    /// A word, or the value of a `$parameter`.
    Word(String),
    /// `"some words"`
    Phrase(String),
    /// `te*`, `*xt`, `*ex*`
    Affix(AffixKind, String),
    /// `%word%`, `%%word%%`
    Fuzzy(u8, String),
    /// All of them.
    And(Vec<Node>),
    /// One of them.
    Or(Vec<Node>),
    /// `-x`
    Not(Box<Node>),
    /// `~x`: counts for the score only.
    Optional(Box<Node>),
    /// `@a|b:x`: text in these fields.
    In(Vec<FieldName>, Box<Node>),
    /// `@t:{a|b}`
    Tag(FieldName, Vec<TagValue>),
    /// `@n:[a b]`
    Range(FieldName, Limit, Limit),
}

/// Which side of a word is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AffixKind {
    /// `te*`
    Prefix,
    /// `*xt`
    Suffix,
    /// `*ex*`
    Infix,
}

/// A field's name and where it stands in the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldName {
    pub(crate) name: String,
    pub(crate) offset: usize,
}

/// One value between the braces of a tag.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TagValue {
    /// The whole value.
    Exact(String),
    /// A part of it.
    Affix(AffixKind, String),
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The number; infinite for none.
    pub(crate) value: f64,
    /// `(`: without the number itself.
    pub(crate) exclusive: bool,
}
