//! Sorted sets in Redis's format. A sorted set whose OBJECT ENCODING is `listpack` is written packed, any other one
//! member by member, beginning with the highest score.

use super::build::{BadValue, Builder, MISPLACED, Serial};
use strand_chain::Blob;
use strand_keyspace::types::zset::{Set, ZSetValue};
use strand_keyspace::{Collection, Settings};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::Listpack;
use strand_rdb::value::{ValueKind, ValuePart};
use strand_rdb::value_type::{ZSET_2, ZSET_LISTPACK};
use strand_rdb::write::Writer;

/// Maximum size of a sorted set that is written packed. A larger one is written member by member, because a
/// listpack is built in memory.
const LISTPACK_BYTES_MAX: usize = 64 << 10;

/// OBJECT ENCODING of a packed sorted set.
const PACKED: &str = "listpack";

impl Serial for ZSetValue {
    const KIND: ValueKind = ValueKind::SortedSet;
    type Builder = ZSetBuilder;

    fn value_type(&self) -> u8 {
        let packed = self.encoding() == PACKED && self.heap_bytes() <= LISTPACK_BYTES_MAX;
        if packed { ZSET_LISTPACK } else { ZSET_2 }
    }
    fn write(&self, writer: &mut Writer<'_>) {
        if self.value_type() == ZSET_LISTPACK {
            let mut listpack = Listpack::new();
            for (member, score) in self.iter(0) {
                listpack.push(&member);
                listpack.push_score(score);
            }
            return writer.listpack(&mut listpack);
        }
        writer.length(self.len() as u64);
        for (member, score) in self.iter_back(self.len()) {
            writer.string(&member);
            writer.score(score);
        }
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        self.iter(0).for_each(|(member, score)| digest.scored(&member, score));
    }
}

/// A sorted set that is being built.
///
/// It begins packed, and may become large before all members are added. As in redis-server, a packed sorted set
/// cannot have the score minus zero, but a large one can. So the builder remembers members with minus zero, in case
/// the set becomes large.
#[derive(Debug)]
pub(super) struct ZSetBuilder {
    set: ZSetValue,
    /// Members with the score minus zero that were added while the sorted set was packed.
    minus_zeros: Vec<Box<[u8]>>,
}

impl Default for ZSetBuilder {
    fn default() -> ZSetBuilder {
        ZSetBuilder { set: ZSetValue::new(), minus_zeros: Vec::new() }
    }
}

impl Builder for ZSetBuilder {
    type Value = ZSetValue;

    fn add_part(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue> {
        let ValuePart::Scored { member, score } = part else { return Err(MISPLACED) };
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
    fn finish(self, settings: &Settings) -> Result<ZSetValue, BadValue> {
        let ZSetBuilder { mut set, minus_zeros } = self;
        if set.encoding() != PACKED {
            for member in minus_zeros {
                // Remove the member first. Setting minus zero where zero is would change nothing.
                set.remove(&member);
                set.set(&*member, -0.0, settings);
            }
        }
        Ok(set)
    }
}
