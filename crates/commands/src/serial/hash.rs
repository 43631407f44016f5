//! Hashes in Redis's format. A hash whose OBJECT ENCODING is `listpack` is written packed, any other one field by
//! field. A hash whose fields expire has a form of its own.

use strand_keyspace::{Collection, HashValue};
use strand_rdb::packed::Listpack;
use strand_rdb::value_type::{HASH, HASH_LISTPACK, HASH_METADATA};
use strand_rdb::write::Writer;

/// Maximum size of a hash that is written packed. A larger one is written field by field, because a listpack is
/// built in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

pub(super) fn value_type(hash: &HashValue) -> u8 {
    if hash.next_expiry_ms() != i64::MAX {
        return HASH_METADATA;
    }
    let packed = hash.encoding() == "listpack" && hash.heap_bytes() <= LISTPACK_BYTES_MAX;
    if packed { HASH_LISTPACK } else { HASH }
}

pub(super) fn write(hash: &HashValue, writer: &mut Writer<'_>) {
    if value_type(hash) == HASH_METADATA {
        let smallest_ms = hash.expiries().next().map_or(0, |(_, expiry_ms)| expiry_ms);
        let base = writer.hash_metadata(smallest_ms, hash.len() as u64);
        for (field, value) in hash.iter() {
            writer.field_with_expiry(base, &field, &value, hash.expiry_ms(&field).flatten());
        }
        return;
    }
    if value_type(hash) == HASH_LISTPACK {
        let mut listpack = Listpack::new();
        for (field, value) in hash.iter() {
            listpack.push(&field);
            listpack.push(&value);
        }
        return writer.listpack(&mut listpack);
    }
    writer.length(hash.len() as u64);
    for (field, value) in hash.iter() {
        writer.string(&field);
        writer.string(&value);
    }
}
