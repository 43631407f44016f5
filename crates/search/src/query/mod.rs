//! The query language (RediSearch's DIALECT 2). [`parser`] turns text into a [`Node`], and [`plan`] turns a
//! [`Node`] into a tantivy query.

mod affix;
pub(crate) mod dictionary;
mod excluded;
mod fuzzy;
mod metered;
pub(crate) mod parser;
mod phrase;
pub(crate) mod plan;

/// Longest query, in bytes. The value of a parameter counts once for each use.
pub(crate) const QUERY_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of a query.
pub(crate) const QUERY_DEPTH_MAX: usize = 64;
/// Maximum number of nodes of a query, each word of a phrase and of a parameter included.
pub(crate) const QUERY_NODES_MAX: usize = 4096;
/// Shortest prefix, suffix or infix, in characters. A shorter one matches nothing, as in RediSearch.
pub(crate) const AFFIX_CHARS_MIN: usize = 2;
/// Largest distance of a fuzzy term.
pub(crate) const FUZZY_DISTANCE_MAX: usize = 2;

/// Longest fuzzy term, in bytes.
pub(crate) const FUZZY_BYTES_MAX: usize = 64;
/// Maximum number of lookups of a query. A word needs one for each searched field, and one more for its stem.
pub(crate) const LOOKUPS_MAX: usize = 16_384;
/// Lookups that a prefix, suffix, infix or fuzzy term counts as. It walks the dictionary and holds one bit for each
/// document of a segment.
pub(crate) const AFFIX_LOOKUPS: usize = 256;
/// Lookups that a range counts as. It scans a column.
pub(crate) const RANGE_LOOKUPS: usize = 16;
/// Maximum number of bytes of a planned and opened query, without its results.
pub(crate) const PLAN_BYTES_MAX: usize = 64 << 20;
/// Bytes of a planned and opened lookup: its clause, its part of the score and its block of documents.
pub(crate) const LOOKUP_BYTES: usize = 4 * 1024;
/// Bytes of a union of clauses: its state for the next 4,096 documents.
pub(crate) const UNION_BYTES: usize = 20 * 1024;

/// A parsed query.
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
    /// All of these match.
    And(Vec<Node>),
    /// At least one of these matches.
    Or(Vec<Node>),
    /// `-x`
    Not(Box<Node>),
    /// `~x`: affects only the score.
    Optional(Box<Node>),
    /// `@a|b:x`: `x` in these fields.
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

/// A field's name and its position in the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldName {
    pub(crate) name: String,
    pub(crate) offset: usize,
}

/// One value between the braces of a tag query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TagValue {
    /// The whole value.
    Exact(String),
    /// A part of the value.
    Affix(AffixKind, String),
}

/// One end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// The number; infinite when the range has no limit on this side.
    pub(crate) value: f64,
    /// `(`: the range excludes the number itself.
    pub(crate) exclusive: bool,
}
