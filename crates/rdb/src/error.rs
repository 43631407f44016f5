//! [`Error`]: what can be wrong with the input. The texts name what was found and what was expected. The reader
//! knows the offset.

use std::io;

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source cannot be read.
    #[error("reading failed: {0}")]
    Io(io::Error),
    /// The input ends before the value or the file does.
    #[error("the input ends too early")]
    Truncated,
    /// The bytes violate the format. The text says how.
    #[error("{0}")]
    Corrupt(&'static str),
    /// A number in the bytes has a value that the format does not allow.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What the format allows at this place.
        expected: &'static str,
        /// The value in the input; at most `u32::MAX`, to keep this type small.
        found: u32,
    },
    /// A string is longer than [`crate::PLAIN_STRING_BYTES_MAX`].
    #[error("a string of {bytes} bytes: expected at most {}", crate::PLAIN_STRING_BYTES_MAX)]
    StringTooLong {
        /// The length that the input announces.
        bytes: u64,
    },
    /// A compressed string is longer than [`crate::STRING_BYTES_MAX`].
    #[error("a compressed string of {bytes} bytes: expected at most {}", crate::STRING_BYTES_MAX)]
    PackedStringTooLong {
        /// The length that the input announces.
        bytes: u64,
    },
    /// The input does not begin with `REDIS` or `VALKEY` and a version, as an RDB file does.
    #[error("this is not an RDB file: expected REDIS or VALKEY and a version at the beginning")]
    NotRdb,
    /// The file has an RDB version that is not supported.
    #[error(
        "RDB version {version} is not supported: expected 1 to {} (Redis) or {} (Valkey 9)",
        crate::VERSION_REDIS_MAX,
        crate::VERSION_VALKEY
    )]
    Version {
        /// The version that the file has.
        version: u16,
    },
    /// This dialect has no value type with this number.
    #[error("value type {0} is unknown")]
    UnknownType(u8),
    /// Functions in the format of release candidates of Redis 7.0. Released servers refuse them too.
    #[error("functions in the format of a release candidate of Redis 7.0 are not supported")]
    PreReleaseFunction,
    /// A module value in the format of release candidates of Redis 4.0. Only the module knows its length.
    #[error("a module's value in the format of a release candidate of Redis 4.0 is not supported")]
    PreReleaseModule,
    /// A key occurs twice in one database. Only [`crate::check`] looks for it: a reader keeps no keys.
    #[error("the key is in the file twice")]
    DuplicateKey,
    /// The stored checksum differs from the checksum of the bytes.
    #[error("wrong checksum: the bytes have {computed:#018x}, the end says {stored:#018x}")]
    Checksum {
        /// The checksum that was computed from the bytes.
        computed: u64,
        /// The checksum that is stored in the file or payload.
        stored: u64,
    },
}

impl Error {
    /// The error for the number `found`, which the format does not allow.
    pub(crate) fn unexpected(expected: &'static str, found: u64) -> Error {
        Error::Unexpected { expected, found: u32::try_from(found).unwrap_or(u32::MAX) }
    }
}

// No `#[from]`: it would make the cause a `source`, and the text already includes the cause.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
