//! Hashes: packed while OBJECT ENCODING says so, else field by field.

use strand_keyspace::{Collection, HashValue};
use strand_rdb::packed::Listpack;
use strand_rdb::value_type::{HASH, HASH_LISTPACK};
use strand_rdb::write::Writer;

/// A packed hash of more bytes is written field by field: a listpack is made in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

pub(super) fn value_type(hash: &HashValue) -> u8 {
    let packed = hash.encoding() == "listpack" && hash.heap_bytes() <= LISTPACK_BYTES_MAX;
    if packed { HASH_LISTPACK } else { HASH }
}

pub(super) fn write(hash: &HashValue, writer: &mut Writer<'_>) {
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
