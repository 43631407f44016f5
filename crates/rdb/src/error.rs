//! What can be wrong with input. Texts name what was found and what was expected; the offset is the reader's.

use std::io;

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source failed.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// The input ends before the value or the file does.
    #[error("the input ends too early")]
    Truncated,
    /// The bytes contradict the format: what was wrong.
    #[error("{0}")]
    Corrupt(&'static str),
    /// A string is longer than [`crate::STRING_BYTES_MAX`].
    #[error("a string of {bytes} bytes, at most {} are read", crate::STRING_BYTES_MAX)]
    StringTooLong {
        /// The length that was announced.
        bytes: u64,
    },
    /// The input does not begin as an RDB file does.
    #[error("no RDB file: it does not begin with REDIS or VALKEY and a version")]
    NotRdb,
    /// A version that is not read.
    #[error(
        "RDB version {version} is not read: 1 to {} (Redis) and {} (Valkey 9) are",
        crate::VERSION_REDIS_MAX,
        crate::VERSION_VALKEY
    )]
    Version {
        /// The version found.
        version: u16,
    },
    /// No value has this type in this dialect.
    #[error("value type {0} is unknown")]
    UnknownType(u8),
    /// Functions as release candidates of Redis 7.0 wrote them; released servers refuse them too.
    #[error("functions in the form of a release candidate of Redis 7.0 are not read")]
    PreReleaseFunction,
    /// A module's value as release candidates of Redis 4.0 wrote them, whose length nobody but the module knows.
    #[error("a module's value in the form of a release candidate of Redis 4.0 is not read")]
    PreReleaseModule,
    /// The checksum at the end differs from that of the bytes.
    #[error("wrong checksum: the bytes have {computed:#018x}, the end says {stored:#018x}")]
    Checksum {
        /// Of the bytes read.
        computed: u64,
        /// As stored.
        stored: u64,
    },
}
