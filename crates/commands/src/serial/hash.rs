//! Hashes in Redis's format. A hash whose OBJECT ENCODING is `listpack` is written packed, any other one field by
//! field. A hash whose fields expire has a form of its own.

use super::build::{BadValue, Builder, MISPLACED, Serial};
use strand_chain::Blob;
use strand_keyspace::{Collection, HashValue, Settings};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::value::{ValueKind, ValuePart};
use strand_rdb::value_type::{HASH, HASH_LISTPACK, HASH_METADATA};
use strand_rdb::write::Writer;

/// Maximum size of a hash that is written packed. A larger one is written field by field, because a listpack is
/// built in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

impl Serial for HashValue {
    const KIND: ValueKind = ValueKind::Hash;
    type Builder = HashValue;

    fn value_type(&self) -> u8 {
        if self.field_expiry_ms() != i64::MAX {
            return HASH_METADATA;
        }
        let packed = self.encoding() == "listpack" && self.heap_bytes() <= LISTPACK_BYTES_MAX;
        if packed { HASH_LISTPACK } else { HASH }
    }
    fn write(&self, writer: &mut Writer<'_>) {
        if self.value_type() == HASH_METADATA {
            let smallest_ms = self.expiries().next().map_or(0, |(_, expiry_ms)| expiry_ms);
            let base = writer.hash_metadata(smallest_ms, self.len() as u64);
            for (field, value) in self.iter() {
                writer.field_with_expiry(base, &field, &value, self.expiry_ms(&field).flatten());
            }
            return;
        }
        if self.value_type() == HASH_LISTPACK {
            let mut listpack = Listpack::new();
            for (field, value) in self.iter() {
                listpack.push(&field);
                listpack.push(&value);
            }
            return writer.listpack(&mut listpack);
        }
        writer.length(self.len() as u64);
        for (field, value) in self.iter() {
            writer.string(&field);
            writer.string(&value);
        }
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        let expires = |field: &[u8]| self.expiry_ms(field).flatten().is_some();
        self.iter().for_each(|(field, value)| digest.field(&field, &value, expires(&field)));
    }
}

impl Builder for HashValue {
    type Value = HashValue;

    fn add_part(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue> {
        let ValuePart::Field { field, value, expires_at_ms } = part else { return Err(MISPLACED) };
        let new = match value {
            Text::Owned(bytes) => self.set(&field, &Blob::from(bytes), settings),
            value => self.set(&field, &*value, settings),
        };
        if !new {
            return Err(BadValue("the hash has a field twice"));
        }
        if expires_at_ms.is_some() {
            self.set_expiry(&field, expires_at_ms, settings);
        }
        Ok(())
    }
    fn finish(self, _: &Settings) -> Result<HashValue, BadValue> {
        Ok(self)
    }
}
