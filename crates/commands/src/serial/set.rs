//! Sets in Redis's format. A set whose OBJECT ENCODING is `intset` is written as sorted integers, any other one
//! member by member.

use super::build::{BadValue, Builder, MISPLACED, Serial};
use strand_keyspace::{Collection, Member, SetValue, Settings};
use strand_rdb::digest::ValueDigest;
use strand_rdb::packed::intset;
use strand_rdb::value::{ValueKind, ValuePart};
use strand_rdb::value_type::{SET, SET_INTSET};
use strand_rdb::write::Writer;

/// Maximum number of integers that are written together. A larger set is written member by member, because an
/// intset is built in memory.
const INTSET_MEMBERS_MAX: usize = 64 << 10;

impl Serial for SetValue {
    const KIND: ValueKind = ValueKind::Set;
    type Builder = SetValue;

    fn value_type(&self) -> u8 {
        if self.is_integers() && self.len() <= INTSET_MEMBERS_MAX { SET_INTSET } else { SET }
    }
    fn write(&self, writer: &mut Writer<'_>) {
        if self.value_type() == SET_INTSET {
            let integer = |member| match member {
                Member::Int(n) => Some(n),
                Member::Bytes(_) => None,
            };
            let sorted: Vec<i64> = self.iter().filter_map(integer).collect();
            return writer.string(&intset::encode(&sorted));
        }
        writer.length(self.len() as u64);
        self.iter().for_each(|member| writer.string(member.bytes(&mut [0; 20])));
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        self.iter().for_each(|member| digest.member(member.bytes(&mut Default::default())));
    }
}

impl Builder for SetValue {
    type Value = SetValue;

    fn add_part(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue> {
        let ValuePart::Member(member) = part else { return Err(MISPLACED) };
        match self.add(&member, settings) {
            true => Ok(()),
            false => Err(BadValue("the set has a member twice")),
        }
    }
    fn finish(self, _: &Settings) -> Result<SetValue, BadValue> {
        Ok(self)
    }
}
