//! Redis's serialization format: values in RDB files and DUMP payloads, read and written, and Redis's digests of
//! values.
//!
//! Reading: [`file::FileReader`] turns a file into [`file::Event`]s, and [`dump::open`] checks a DUMP payload. Both
//! pass the bytes of a value to [`value::ValueReader`], which yields [`value::ValuePart`]s: one element, field or stream
//! entry at a time. Bytes come from a [`source::Source`]: a slice, or anything that implements `Read`. At most one
//! string (a key, an element, or a packed blob of elements) is in memory at once, and its memory grows only with
//! the bytes that have arrived.
//!
//! Writing: [`write::Writer`] appends to a buffer that its owner empties at any time. It writes the format of
//! redis-server 7.0 (RDB version 10). Only hashes with expiring fields need version 12.
//!
//! [`check::check`] reads a whole file and counts its contents. [`digest`] is the algorithm of DEBUG DIGEST and
//! DEBUG DIGEST-VALUE.
//!
//! Not checked here: that keys, members, fields and pending entries are unique, and that a consumer's pending entry
//! is in its group's list. Both checks need the whole collection, so the code that builds the value makes them.
//!
//! **Invariant:** this crate knows bytes and plain values, but no keyspace, no files, no sockets and no clocks. No
//! input makes it panic, recurse without limit, or use more memory than the input's bytes justify (an LZF string
//! grows at most 88 times).

pub mod check;
mod checksum;
pub mod digest;
pub mod dump;
mod error;
pub mod file;
pub mod lzf;
pub mod packed;
mod primitive;
pub mod source;
mod text;
pub mod value;
pub mod value_type;
pub mod write;

pub use checksum::Crc64;
pub use error::{Error, Result};
pub use text::Text;

/// The RDB version that Strand writes: the version of redis-server 7.0.
pub const VERSION_WRITTEN: u16 = 10;
/// The RDB version for hashes with expiring fields, the version of Redis 7.4.
pub const VERSION_FIELD_EXPIRY: u16 = 12;
/// The newest RDB version of Redis that Strand reads: the version of Redis 7.4 to 8.2.
pub const VERSION_REDIS_MAX: u16 = 12;
/// The RDB version of Valkey 9.0, the only version of Valkey's own format that Strand reads.
pub const VERSION_VALKEY: u16 = 80;
/// Maximum length of a string that is compressed, before and after: redis-server's default of `proto-max-bulk-len`. A
/// longer string is written without compression.
pub const STRING_BYTES_MAX: usize = 512 << 20;
/// Maximum length of a string that is not compressed. `proto-max-bulk-len` may allow strings longer than
/// [`STRING_BYTES_MAX`]. Reading one takes only the memory of the bytes that arrive.
pub const PLAIN_STRING_BYTES_MAX: usize = 64 << 30;

/// The dialect of type numbers. 22 means one thing in Redis 7.4's release candidates and another in Valkey 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect of Redis, and of Valkey up to version 8.
    Redis,
    /// The dialect of Valkey 9.
    Valkey,
}

impl Dialect {
    /// The dialect of RDB version `version`; `None` for an unsupported version. No server writes version 0, but
    /// redis-server reads payloads with it.
    pub fn of_version(version: u16) -> Option<Dialect> {
        match version {
            0..=VERSION_REDIS_MAX => Some(Dialect::Redis),
            VERSION_VALKEY => Some(Dialect::Valkey),
            _ => None,
        }
    }
}
