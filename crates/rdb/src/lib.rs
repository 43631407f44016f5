//! Redis's serialization: values as bytes and back, in RDB files and DUMP payloads, and Redis's digests of values.
//!
//! Reading: [`file::FileReader`] turns a file into [`file::Event`]s, [`dump::open`] checks a DUMP payload, and both hand
//! the bytes of a value to [`value::ValueReader`], which yields [`value::Part`]s: one element, field or stream entry at a
//! time. Bytes come from a [`source::Source`]: a slice, or anything that implements `Read`. At most one string (a key,
//! an element, or a packed blob of them) is in memory at once, and never before its bytes have arrived.
//!
//! Writing: [`write::Writer`] appends to a buffer that its owner empties whenever it likes. It writes what redis-server
//! 7.0 reads (RDB version 10); only hashes whose fields expire need version 12.
//!
//! [`check::check`] reads a whole file and counts. Digests: [`digest`] is the algorithm of DEBUG DIGEST and DEBUG DIGEST-VALUE.
//!
//! What is not checked here: that keys, members, fields and pending entries are unique, and that a consumer's pending
//! entry is in its group's list. Both need the whole collection, so whoever builds the value checks them.
//!
//! **Invariant:** knows bytes and plain values; no keyspace, no files, no sockets, no clocks. No input makes it panic,
//! recurse without bound, or take memory that the input's bytes do not justify (an LZF string grows at most 88 times).

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

/// The RDB version that is written: redis-server 7.0's.
pub const VERSION_WRITTEN: u16 = 10;
/// The RDB version that hashes with expiring fields need: Redis 7.4's.
pub const VERSION_FIELD_EXPIRY: u16 = 12;
/// The newest version of Redis's own that is read: that of Redis 7.4 to 8.2.
pub const VERSION_REDIS_MAX: u16 = 12;
/// Valkey 9.0's version, the only one of Valkey's own that is read.
pub const VERSION_VALKEY: u16 = 80;
/// A string of more bytes, whole or before its decompression, is refused: redis-server's `proto-max-bulk-len`.
pub const STRING_BYTES_MAX: usize = 512 << 20;

/// Whose type numbers the bytes use: 22 means one thing in Redis 7.4's release candidates and another in Valkey 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis, and Valkey up to 8.
    Redis,
    /// Valkey 9.
    Valkey,
}

impl Dialect {
    /// The dialect of RDB version `version`; `None` when that version is not read. No server writes version 0, but
    /// redis-server reads a payload of that version.
    pub fn of_version(version: u16) -> Option<Dialect> {
        match version {
            0..=VERSION_REDIS_MAX => Some(Dialect::Redis),
            VERSION_VALKEY => Some(Dialect::Valkey),
            _ => None,
        }
    }
}
