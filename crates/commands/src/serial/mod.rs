//! Converts between values and Redis's bytes, for DUMP, RESTORE, MIGRATE, DEBUG DIGEST and RDB files.
//!
//! [`value_type`] and [`write()`] encode a value. A [`ValueBuilder`] makes a value from the parts that a reader
//! returns. The reader is the other half: `ValueReader` in `crates/rdb/src/value/mod.rs`.
//! [`digest_of`] computes Redis's digest of a value. The formats themselves are in `strand_rdb`. Each collection has one
//! module here, which implements [`Serial`]. The compiler asks for that module when a type is added.

mod batch;
mod build;
pub mod file;
mod hash;
mod list;
mod set;
mod stream;
pub mod system;
#[cfg(test)]
mod tests;
mod zset;

pub use batch::Batch;
pub use build::{BadValue, ValueBuilder};
pub use strand_rdb::digest;

use build::Serial;
use digest::{DatasetDigest, DebugDigest, ValueDigest};
use strand_keyspace::{Keyspace, Settings, Value, ValueRef};
use strand_rdb::value::{StreamEntries, ValueKind};
use strand_rdb::write::Writer;
use strand_rdb::{VERSION_FIELD_EXPIRY, VERSION_WRITTEN, dump};

/// Generates the functions that choose the form of a value's type, from the list of collection types.
macro_rules! forms {
    ($($(#[$doc:meta])* $variant:ident($collection:ty),)*) => {
        /// The type number of the form in which [`write()`] encodes `value`. In a payload it is before the value, and
        /// in a file before the key.
        pub fn value_type(value: ValueRef<'_>) -> u8 {
            match value {
                ValueRef::Str(_) => strand_rdb::value_type::STRING,
                $(ValueRef::$variant(collection) => collection.value_type(),)*
            }
        }

        /// Encodes `value`, without its type number. The writer pauses if it was set up to pause.
        pub fn write(value: ValueRef<'_>, writer: &mut Writer<'_>) {
            match value {
                ValueRef::Str(s) => writer.string(s.bytes(&mut Default::default())),
                $(ValueRef::$variant(collection) => collection.write(writer),)*
            }
        }

        /// The digest of `value`. `start` decides whether it is of the value alone ([`ValueDigest::new`]) or of the
        /// value with its key ([`ValueDigest::of_key`]).
        pub fn digest_of(
            value: ValueRef<'_>,
            expires: bool,
            start: impl FnOnce(ValueKind) -> ValueDigest,
        ) -> DebugDigest {
            let digest = match value {
                ValueRef::Str(s) => {
                    let mut digest = start(ValueKind::String);
                    digest.string(s.bytes(&mut Default::default()));
                    digest
                }
                $(ValueRef::$variant(collection) => {
                    let mut digest = start(<$collection>::KIND);
                    collection.add_to(&mut digest);
                    digest
                })*
            };
            digest.finish(expires)
        }
    };
}
strand_keyspace::collections!(forms);

/// The DUMP payload of `value`. Calls `pause` between pieces of work.
pub fn payload(value: ValueRef<'_>, pause: &dyn Fn()) -> Vec<u8> {
    let mut writer = Writer::pausing(true, pause);
    let value_type = value_type(value);
    writer.value_type(value_type);
    write(value, &mut writer);
    let has_expiries = value_type == strand_rdb::value_type::HASH_METADATA;
    dump::seal(writer, if has_expiries { VERSION_FIELD_EXPIRY } else { VERSION_WRITTEN })
}

/// Number of parts of a value that are processed between two pauses.
const PARTS_PER_SLICE: usize = 64;

/// Why a payload was not restored.
#[derive(Debug, thiserror::Error)]
pub enum NotRestored {
    /// The version or the checksum of the payload is wrong.
    #[error(transparent)]
    Payload(strand_rdb::Error),
    /// The bytes of the payload do not encode a value.
    #[error(transparent)]
    Format(strand_rdb::Error),
    /// The parts in the payload make no value.
    #[error(transparent)]
    Value(#[from] BadValue),
}

/// The value in a DUMP payload. Calls `pause` between pieces of work.
///
/// # Errors
/// Fails if the payload has no value. Nothing is kept then.
pub fn of_payload(payload: &[u8], settings: &Settings, pause: &dyn Fn()) -> Result<Value, NotRestored> {
    let opened = dump::open(payload).map_err(NotRestored::Payload)?;
    let mut reader = opened.value(StreamEntries::Nodes).map_err(NotRestored::Format)?;
    let mut builder = ValueBuilder::new(reader.kind())?;
    let mut parts = 0usize;
    while let Some(part) = reader.next().map_err(NotRestored::Format)? {
        builder.add(part, settings)?;
        parts += 1;
        if parts.is_multiple_of(PARTS_PER_SLICE) {
            pause();
        }
    }
    Ok(builder.finish(settings)?)
}

/// The digest of all databases. A change that is made during the call may be in the digest or not.
pub fn dataset_digest(keyspace: &Keyspace, now_ms: i64) -> DebugDigest {
    let mut all = DatasetDigest::default();
    for db in 0..keyspace.databases() {
        let mut begun = false;
        for shard in 0..keyspace.shards() {
            let mut large = Vec::new();
            keyspace.for_each_in_shard(shard, db, now_ms, &mut |record| {
                if !begun {
                    all.database(db as u32);
                    begun = true;
                }
                let (value, expires) = (record.value(), record.expire_at_ms().is_some());
                if is_large(value) {
                    large.push((record.key().to_vec(), value.to_value(), expires));
                } else {
                    all.key(digest_of(value, expires, |of| ValueDigest::of_key(record.key(), of)));
                }
            });
            for (key, value, expires) in large {
                all.key(digest_of(value.view(), expires, |of| ValueDigest::of_key(&key, of)));
                keyspace.dispose(value);
            }
        }
    }
    all.finish()
}

/// True when the value is cloned first, because reading it would keep its shard locked for too long.
fn is_large(value: ValueRef<'_>) -> bool {
    const ELEMENTS_MAX: usize = 64;
    const BYTES_MAX: usize = 8 << 10;
    value.elements() > ELEMENTS_MAX || value.heap_bytes() > BYTES_MAX
}
