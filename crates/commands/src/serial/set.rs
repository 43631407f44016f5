//! Sets in Redis's format. A set whose OBJECT ENCODING is `intset` is written as sorted integers, any other one
//! member by member.

use strand_keyspace::{Collection, Member, SetValue};
use strand_rdb::packed::intset;
use strand_rdb::value_type::{SET, SET_INTSET};
use strand_rdb::write::Writer;

/// Maximum number of integers that are written together. A larger set is written member by member, because an
/// intset is built in memory.
const INTSET_MEMBERS_MAX: usize = 64 << 10;

pub(super) fn value_type(set: &SetValue) -> u8 {
    if set.is_integers() && set.len() <= INTSET_MEMBERS_MAX { SET_INTSET } else { SET }
}

pub(super) fn write(set: &SetValue, writer: &mut Writer<'_>) {
    if value_type(set) == SET_INTSET {
        let integer = |member| match member {
            Member::Int(n) => Some(n),
            Member::Bytes(_) => None,
        };
        let sorted: Vec<i64> = set.iter().filter_map(integer).collect();
        return writer.string(&intset::encode(&sorted));
    }
    writer.length(set.len() as u64);
    set.iter().for_each(|member| writer.string(member.bytes(&mut [0; 20])));
}
