//! Sorted sets: packed while OBJECT ENCODING says so, else member by member from the highest score down.

use super::BadValue;
use strand_chain::Blob;
use strand_keyspace::types::zset::{Set, ZSetValue};
use strand_keyspace::{Collection, Settings};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::value_type::{ZSET_2, ZSET_LISTPACK};
use strand_rdb::write::Writer;

/// A packed sorted set of more bytes is written member by member: a listpack is made in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

/// The form it is written in.
pub fn value_type(set: &ZSetValue) -> u8 {
    let packed = set.encoding() == "listpack" && set.heap_bytes() <= LISTPACK_BYTES_MAX;
    if packed { ZSET_LISTPACK } else { ZSET_2 }
}

/// Writes it, without its type.
pub fn write(set: &ZSetValue, writer: &mut Writer<'_>) {
    if value_type(set) == ZSET_LISTPACK {
        let mut listpack = Listpack::new();
        for (member, score) in set.iter(0) {
            listpack.push(&member);
            listpack.push_score(score);
        }
        return writer.listpack(&mut listpack);
    }
    writer.length(set.len() as u64);
    for (member, score) in set.iter_back(set.len()) {
        writer.string(&member);
        writer.score(score);
    }
}

/// Adds it to a digest.
pub fn digest(set: &ZSetValue, digest: &mut ValueDigest) {
    set.iter(0).for_each(|(member, score)| digest.scored(&member, score));
}

/// Adds a member.
///
/// # Errors
/// When it is there already.
pub fn add(set: &mut ZSetValue, member: Text<'_>, score: f64, settings: &Settings) -> Result<(), BadValue> {
    let done = match member {
        Text::Owned(bytes) => set.set(&Blob::from(bytes), score, settings),
        member => set.set(&*member, score, settings),
    };
    match done {
        Set::Added => Ok(()),
        Set::Updated | Set::Unchanged => Err(BadValue("a sorted set with a member twice")),
    }
}
