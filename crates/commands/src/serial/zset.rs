//! Sorted sets in Redis's format. A sorted set whose OBJECT ENCODING is `listpack` is written packed, any other one
//! member by member, beginning with the highest score.

use super::BadValue;
use strand_chain::Blob;
use strand_keyspace::types::zset::{Set, ZSetValue};
use strand_keyspace::{Collection, Settings};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::value_type::{ZSET_2, ZSET_LISTPACK};
use strand_rdb::write::Writer;

/// Maximum size of a sorted set that is written packed. A larger one is written member by member, because a
/// listpack is built in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

/// OBJECT ENCODING of a packed sorted set.
const PACKED: &str = "listpack";

/// The type number of the form in which the sorted set is written.
pub fn value_type(set: &ZSetValue) -> u8 {
    let packed = set.encoding() == PACKED && set.heap_bytes() <= LISTPACK_BYTES_MAX;
    if packed { ZSET_LISTPACK } else { ZSET_2 }
}

/// Writes the sorted set, without its type number.
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

/// Adds the sorted set to a digest.
pub fn digest(set: &ZSetValue, digest: &mut ValueDigest) {
    set.iter(0).for_each(|(member, score)| digest.scored(&member, score));
}

/// A sorted set that is being built.
///
/// It begins packed, and may become large before all members are added. As in redis-server, a packed sorted set
/// cannot have the score minus zero, but a large one can. So the builder remembers members with minus zero, in case
/// the set becomes large.
#[derive(Debug)]
pub struct ZSetBuilder {
    set: ZSetValue,
    /// Members with the score minus zero that were added while the sorted set was packed.
    minus_zeros: Vec<Box<[u8]>>,
}

impl Default for ZSetBuilder {
    fn default() -> ZSetBuilder {
        ZSetBuilder { set: ZSetValue::new(), minus_zeros: Vec::new() }
    }
}

impl ZSetBuilder {
    /// Adds a member.
    ///
    /// # Errors
    /// Fails if the sorted set has the member already.
    pub fn add(&mut self, member: Text<'_>, score: f64, settings: &Settings) -> Result<(), BadValue> {
        if score == 0.0 && score.is_sign_negative() && self.set.encoding() == PACKED {
            self.minus_zeros.push((*member).into());
        }
        let done = match member {
            Text::Owned(bytes) => self.set.set(&Blob::from(bytes), score, settings),
            member => self.set.set(&*member, score, settings),
        };
        match done {
            Set::Added => Ok(()),
            Set::Updated | Set::Unchanged => Err(BadValue("the sorted set has a member twice")),
        }
    }
    /// Ends the building and returns the sorted set.
    pub fn finish(self, settings: &Settings) -> ZSetValue {
        let ZSetBuilder { mut set, minus_zeros } = self;
        if set.encoding() != PACKED {
            for member in minus_zeros {
                // Remove the member first. Setting minus zero where zero is would change nothing.
                set.remove(&member);
                set.set(&*member, -0.0, settings);
            }
        }
        set
    }
}
