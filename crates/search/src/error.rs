//! [`SearchError`]: all errors of the search commands, with RediSearch's texts where RediSearch has one.

use crate::regex::Halt;
use crate::regex::budget::REPLY_BYTES_MAX;
use strand_commands::call::ServiceOutcome;

/// Why a command of this crate was refused. `Display` is the error reply without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// FT.CREATE with the name of an existing index.
    #[error("Index already exists")]
    IndexExists,
    /// FT.INFO or FT.DROPINDEX with an unknown index name.
    #[error("Unknown index name")]
    UnknownIndex,
    /// FT.SEARCH with an unknown index name.
    #[error("{0}: no such index")]
    NoSuchIndex(String),
    /// There would be more indexes than [`crate::INDEXES_MAX`].
    #[error("Too many indexes: at most {0} are allowed")]
    TooManyIndexes(usize),
    /// There would be more prefixes than all indexes together may have.
    #[error("Too many prefixes: at most {0} are allowed in all indexes")]
    TooManyPrefixes(usize),
    /// A query that does not parse. Names the byte offset and the token there.
    #[error("Syntax error at offset {offset} near {near}")]
    Syntax {
        /// Byte offset of the error in the query.
        offset: usize,
        /// The token that does not fit, or the last token when the query ends too early.
        near: String,
    },
    /// A part of the query language that Strand does not support.
    #[error("{what} is not supported, at offset {offset} of the query")]
    NotInQueries {
        /// The name of the part of the query.
        what: &'static str,
        /// Byte offset of that part in the query.
        offset: usize,
    },
    /// The query exceeds one of its limits.
    #[error("{what} exceeds maximum of {max}, at offset {offset} of the query")]
    QueryLimit {
        /// What the query has too many of.
        what: &'static str,
        /// The maximum number of what the query has too many of.
        max: usize,
        /// Byte offset in the query at which the limit is exceeded.
        offset: usize,
    },
    /// A `@field` that the schema lacks.
    #[error("Unknown field at offset {offset} near {field}")]
    UnknownField {
        /// Byte offset of the field in the query.
        offset: usize,
        /// The field's name, as the client gave it.
        field: String,
    },
    /// A field used with a type that it does not have.
    #[error("Expected a {expected} field at offset {offset} near {field}")]
    FieldType {
        /// The type that is expected: TEXT, TAG or NUMERIC.
        expected: &'static str,
        /// Byte offset of the field in the query.
        offset: usize,
        /// The field's name, as the client gave it.
        field: String,
    },
    /// `$name` without a value in PARAMS.
    #[error("No such parameter `{0}`")]
    NoSuchParameter(String),
    /// An option or a field type that RediSearch has and Strand lacks.
    #[error("`{0}` is not supported")]
    NotSupported(String),
    /// An option's arguments do not parse.
    #[error("Bad arguments for {name}: {why}")]
    BadArguments {
        /// Name of the option.
        name: &'static str,
        /// The reason, in RediSearch's words.
        why: &'static str,
    },
    /// The request would need more memory than allowed, in bytes.
    #[error("ERR The request needs more than {0} bytes of memory: request less data")]
    RequestTooLarge(u64),
    /// The user's key patterns do not allow this name, or keys under this prefix.
    #[error("NOPERM this user has no permissions to access one of the keys used as arguments")]
    NoKeyPermission,
    /// The command reveals figures of all documents of an index, or drops the index, and the user may not read all
    /// documents.
    #[error("NOPERM User does not have the required permissions to query the index")]
    NoIndexPermission,
    /// The time of the option TIMEOUT has passed.
    #[error("Timeout limit was reached")]
    Timeout,
    /// The client is gone or the server stops. No client reads this error.
    #[error("Cancelled")]
    Cancelled,
    /// A pattern does not compile. Says where and why.
    #[error("ERR Bad pattern at offset {offset}: {why}")]
    Pattern {
        /// Byte offset of the error in the pattern.
        offset: usize,
        /// The reason, in the parser's words.
        why: String,
    },
    /// The command must run on another thread. Nothing is written yet, and no client reads this error.
    #[error("ERR it runs elsewhere")]
    MoveTo(ServiceOutcome),
    /// Any other refusal. The text is the whole error reply.
    #[error("{0}")]
    Refused(String),
    /// tantivy failed. The server is at fault, not the client. The next command that uses the index builds it again.
    #[error("ERR The index failed: {0}. The next command that uses the index builds it again")]
    Index(String),
}

impl SearchError {
    /// The error for an option without its argument, or with an argument that does not convert.
    pub(crate) fn bad_arguments(name: &'static str, why: &'static str) -> SearchError {
        SearchError::BadArguments { name, why }
    }
    /// Any other refusal, with the whole text of the error reply.
    pub(crate) fn refused(text: impl Into<String>) -> SearchError {
        SearchError::Refused(text.into())
    }
}

impl From<Halt> for SearchError {
    fn from(halt: Halt) -> SearchError {
        match halt {
            Halt::Cancelled => SearchError::Cancelled,
            Halt::Deadline => SearchError::refused("ERR The search took longer than the DEADLINE of the set"),
            Halt::MoveToLane => SearchError::MoveTo(ServiceOutcome::Lane),
            Halt::MoveToHardLane => SearchError::MoveTo(ServiceOutcome::Hard),
            Halt::ReplyTooLarge => SearchError::Refused(format!(
                "ERR The matches would have more than {REPLY_BYTES_MAX} bytes: use LIMIT"
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

/// A client's bytes as text, for error messages and for text fields. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
