//! Values as Redis's bytes and back: what DUMP, RESTORE, MIGRATE, DEBUG DIGEST and RDB files have in common.
//!
//! [`value_type`] and [`write()`] go one way, a [`Builder`] takes the parts that a reader yields and makes a value of them,
//! and [`digest_of`] tells values apart as Redis does. The bytes themselves are `strand_rdb`'s. Every match on the types is
//! exhaustive: a new type adds an arm to each of the three and a variant to [`Builder`].

mod build;
mod hash;
pub mod list;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod zset;

pub use build::{BadValue, Builder};
pub use strand_rdb::digest;

use digest::{Digest, Type, ValueDigest};
use strand_keyspace::ValueRef;
use strand_rdb::write::Writer;
use strand_rdb::{VERSION_WRITTEN, dump};

/// The number of the form in which [`write()`] writes `value`; it stands before the value, and before the key in a file.
pub fn value_type(value: ValueRef<'_>) -> u8 {
    match value {
        ValueRef::Str(_) => strand_rdb::value_type::STRING,
        ValueRef::Hash(hash) => hash::value_type(hash),
    }
}

/// Writes `value`, without its type. The writer pauses, if it was made to.
pub fn write(value: ValueRef<'_>, writer: &mut Writer<'_>) {
    match value {
        ValueRef::Str(s) => writer.string(s.bytes(&mut Default::default())),
        ValueRef::Hash(hash) => hash::write(hash, writer),
    }
}

/// The DUMP payload of `value`. `pause` is called between pieces of work.
pub fn payload(value: ValueRef<'_>, pause: &dyn Fn()) -> Vec<u8> {
    let mut writer = Writer::pausing(true, pause);
    writer.value_type(value_type(value));
    write(value, &mut writer);
    dump::seal(writer, VERSION_WRITTEN)
}

/// The digest of `value`, alone ([`ValueDigest::new`]) or with its key ([`ValueDigest::of_key`]), as `start` says.
pub fn digest_of(value: ValueRef<'_>, expires: bool, start: impl FnOnce(Type) -> ValueDigest) -> Digest {
    let digest = match value {
        ValueRef::Str(s) => {
            let mut digest = start(Type::String);
            digest.string(s.bytes(&mut Default::default()));
            digest
        }
        ValueRef::Hash(hash) => {
            let mut digest = start(Type::Hash);
            hash.iter().for_each(|(field, value)| digest.field(&field, &value, false));
            digest
        }
    };
    digest.finish(expires)
}
