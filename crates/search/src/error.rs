//! [`SearchError`]: everything that can be wrong with a search command, with RediSearch's texts where it has one.

use crate::regex::Halt;
use crate::regex::budget::ANSWER_BYTES_MAX;
use strand_commands::call::ServiceOutcome;

/// Why a command of this crate was refused. `Display` is the error reply without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// FT.CREATE of a name that is taken.
    #[error("Index already exists")]
    IndexExists,
    /// FT.INFO and FT.DROPINDEX of a name that is not there.
    #[error("Unknown index name")]
    UnknownIndex,
    /// FT.SEARCH of a name that is not there.
    #[error("{0}: no such index")]
    NoSuchIndex(String),
    /// More indexes than [`crate::INDEXES_MAX`].
    #[error("Too many indexes: at most {0} are allowed")]
    TooManyIndexes(usize),
    /// More prefixes than all indexes together may have.
    #[error("Too many prefixes: at most {0} are allowed in all indexes")]
    TooManyPrefixes(usize),
    /// A query that does not parse: a byte offset into the query and the token there.
    #[error("Syntax error at offset {offset} near {near}")]
    Syntax {
        /// Byte offset into the query.
        offset: usize,
        /// The token that does not fit, or the last one when the query ends too early.
        near: String,
    },
    /// A part of the query language that is not here.
    #[error("{what} is not supported, at offset {offset} of the query")]
    NotInQueries {
        /// Its name.
        what: &'static str,
        /// Byte offset into the query.
        offset: usize,
    },
    /// A query over one of its limits.
    #[error("{what} exceeds maximum of {max}, at offset {offset} of the query")]
    QueryLimit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        max: usize,
        /// Byte offset into the query.
        offset: usize,
    },
    /// A `@field` that the schema does not have, or has as another type.
    #[error("Unknown field at offset {offset} near {field}")]
    UnknownField {
        /// Byte offset into the query.
        offset: usize,
        /// The name as given.
        field: String,
    },
    /// A field used as a type that it is not.
    #[error("Expected a {expected} field at offset {offset} near {field}")]
    FieldType {
        /// TEXT, TAG or NUMERIC.
        expected: &'static str,
        /// Byte offset into the query.
        offset: usize,
        /// The name as given.
        field: String,
    },
    /// `$name` without a value in PARAMS.
    #[error("No such parameter `{0}`")]
    NoSuchParameter(String),
    /// An option or field type that RediSearch has and Strand has not.
    #[error("`{0}` is not supported")]
    NotSupported(String),
    /// An option's arguments do not parse.
    #[error("Bad arguments for {name}: {why}")]
    BadArguments {
        /// The option.
        name: &'static str,
        /// RediSearch's reason.
        why: &'static str,
    },
    /// A request would hold more than it may, in bytes.
    #[error("ERR The request would hold more than {0} bytes: ask for less of it")]
    RequestTooLarge(u64),
    /// A name, or a key under a prefix, that the user's patterns do not allow.
    #[error("NOPERM this user has no permissions to access one of the keys used as arguments")]
    NoKeyPermission,
    /// What tells of all documents of an index, or ends it, by who may not read all of them.
    #[error("NOPERM User does not have the required permissions to query the index")]
    NoIndexPermission,
    /// TIMEOUT has passed.
    #[error("Timeout limit was reached")]
    Timeout,
    /// The client is gone or the server stops; nobody reads this.
    #[error("Cancelled")]
    Cancelled,
    /// A pattern that does not compile: where and why.
    #[error("ERR Bad pattern at offset {offset}: {why}")]
    Pattern {
        /// Byte offset into the pattern.
        offset: usize,
        /// The parser's reason.
        why: String,
    },
    /// It has to be done elsewhere; nothing is written yet, and nobody reads this.
    #[error("ERR it runs elsewhere")]
    Elsewhere(ServiceOutcome),
    /// Any other refusal, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The index library failed: our fault, not the client's.
    #[error("ERR The index failed: {0}")]
    Index(String),
}

impl SearchError {
    /// An option that needs an argument and has none, or whose argument does not convert.
    pub(crate) fn bad(name: &'static str, why: &'static str) -> SearchError {
        SearchError::BadArguments { name, why }
    }
    /// Any other refusal.
    pub(crate) fn refused(text: impl Into<String>) -> SearchError {
        SearchError::Refused(text.into())
    }
}

impl From<Halt> for SearchError {
    fn from(halt: Halt) -> SearchError {
        match halt {
            Halt::Cancelled => SearchError::Cancelled,
            Halt::Deadline => SearchError::refused("ERR The deadline of the set has passed"),
            Halt::Lane => SearchError::Elsewhere(ServiceOutcome::Lane),
            Halt::Hard => SearchError::Elsewhere(ServiceOutcome::Hard),
            Halt::Answer => SearchError::Refused(format!(
                "ERR The matches would have more than {ANSWER_BYTES_MAX} bytes: use LIMIT"
            )),
        }
    }
}

impl From<tantivy::TantivyError> for SearchError {
    fn from(e: tantivy::TantivyError) -> SearchError {
        SearchError::Index(e.to_string())
    }
}

impl From<std::io::Error> for SearchError {
    fn from(e: std::io::Error) -> SearchError {
        SearchError::Index(e.to_string())
    }
}

/// RediSearch's reason when an argument is missing.
pub(crate) const NO_ARGUMENT: &str = "Expected an argument, but none provided";
/// RediSearch's reason when an argument does not convert.
pub(crate) const NOT_CONVERTIBLE: &str = "Could not convert argument to expected type";
/// RediSearch's reason when an argument is outside its bounds.
pub(crate) const OUT_OF_BOUNDS: &str = "Value is outside acceptable bounds";

/// Bytes of a client as text, for error messages and for text fields: what is not UTF-8 becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
