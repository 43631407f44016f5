//! [`SetValue`]: members without order. A small set is one small allocation, and a large set is a table.
//!
//! Redis's rules decide the reply of OBJECT ENCODING: `intset` while all members are integers and there are at most
//! `set-max-intset-entries` of them, and `hashtable` otherwise. A `hashtable` of a few short strings is in fact
//! stored packed. 50 members of 16 bytes take 900 bytes in one allocation; in redis-server 7.0 they take about
//! 4,000 bytes in 101 allocations.

mod small;
#[cfg(test)]
mod tests;

use super::fields::Fields;
use super::string::{IntBuffer, format_int, parse_int};
use super::{Bytes, Collection, Parts, Piece};
use crate::Settings;
use small::Small;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum number of members of a packed set of strings. Up to this limit and the next one, a linear search costs
/// less than the cache misses of a look-up in a table, as for hashes.
const PACKED_MEMBERS_MAX: usize = 64;
/// Maximum number of bytes of a packed set of strings.
const PACKED_BYTES_MAX: usize = 2048;
/// Maximum length of a member in a packed set. One byte stores the length.
const PACKED_MEMBER_BYTES_MAX: usize = 64;
/// Maximum number of integers in a sorted array, whatever `set-max-intset-entries` is, because each new
/// integer moves all higher integers.
const INTEGERS_MAX: u64 = 1 << 28;

/// A set. The clone of a large set is a snapshot that shares all segments. A write copies only the segments that it
/// changes.
#[derive(Debug, Clone)]
pub struct SetValue(Form);

#[derive(Debug, Clone)]
enum Form {
    Small(Small),
    /// A table of fields. Each member is a field with an empty value.
    Table(Box<Fields>),
}

/// A member as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member<'a> {
    /// The member is a canonical decimal integer.
    Int(i64),
    /// Any other bytes. In a set that is not stored as integers, also the text of an integer.
    Bytes(&'a [u8]),
}

impl<'a> Member<'a> {
    /// The bytes of the member. If it is an integer, its text is written to `buffer`.
    pub fn bytes<'b>(&self, buffer: &'b mut IntBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Member::Int(n) => format_int(*n, buffer),
            Member::Bytes(bytes) => bytes,
        }
    }
    /// A copy of the member's bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes(&mut [0; 20]).to_vec()
    }
}

impl Default for SetValue {
    fn default() -> SetValue {
        SetValue(Form::Small(Small::default()))
    }
}

impl SetValue {
    /// An empty set, which is stored as integers.
    pub fn new() -> SetValue {
        SetValue::default()
    }
    /// True when the set has `member`.
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.0 {
            Form::Small(small) if small.is_integers() => {
                parse_int(member).is_some_and(|n| small.find_int(n).is_ok())
            }
            Form::Small(small) => small.find(member).is_some(),
            Form::Table(members) => members.get(member).is_some(),
        }
    }
    /// Adds `member`. Returns true when it is new. At the thresholds in `settings` the set changes its form, and it
    /// never changes back.
    pub fn add(&mut self, member: &[u8], settings: &Settings) -> bool {
        if let Form::Small(small) = &mut self.0 {
            if small.is_integers() {
                if let Some(n) = parse_int(member) {
                    let added = small.add_int(n);
                    if added
                        && small.len() as u64
                            > settings.set_max_intset_entries.load(Relaxed).min(INTEGERS_MAX)
                    {
                        self.leave_integers(0);
                    }
                    return added;
                }
                self.leave_integers(member.len());
            }
            if let Form::Small(small) = &mut self.0 {
                if small.find(member).is_some() {
                    return false;
                }
                if is_packable(small.len() + 1, small.used_bytes() + 1 + member.len(), member.len()) {
                    small.push(member);
                    return true;
                }
                self.make_table();
            }
        }
        match &mut self.0 {
            Form::Table(members) => members.add(member),
            Form::Small(_) => unreachable!("made a table above"),
        }
    }
    /// Removes `member`. Returns true when it existed.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.0 {
            Form::Small(small) if small.is_integers() => {
                parse_int(member).is_some_and(|n| small.remove_int(n))
            }
            Form::Small(small) => small.remove(member),
            Form::Table(members) => members.remove(member),
        }
    }
    /// All members. Integers come in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Member<'_>> {
        let (small, table) = match &self.0 {
            Form::Small(small) => (Some(small), None),
            Form::Table(members) => (None, Some(members)),
        };
        let table = table.into_iter().flat_map(|members| members.iter()).map(|(member, _)| member_of(member));
        small.into_iter().flat_map(Small::iter).chain(table)
    }
    /// SSCAN with Redis's guarantee: calls `visit` for about `count` members, starting at `cursor`. Returns the
    /// next cursor; 0 at the end. A small set is visited whole. The cost grows with `count` plus one segment.
    pub fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Member<'_>)) -> u64 {
        match &self.0 {
            Form::Small(small) => {
                small.iter().for_each(visit);
                0
            }
            Form::Table(members) => members.scan(cursor, count, &mut |member, _| visit(member_of(member))),
        }
    }
    /// A random member, all with equal chance. `None` when the set is empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<Member<'_>> {
        match &self.0 {
            Form::Small(small) if small.len() == 0 => None,
            Form::Small(small) => small.nth(rng.usize(..small.len())),
            Form::Table(members) => members.random(rng).map(|(member, _)| member_of(member)),
        }
    }
    /// True when all members are stored as integers, in ascending order.
    pub fn is_integers(&self) -> bool {
        matches!(&self.0, Form::Small(small) if small.is_integers())
    }
    /// True when one of the two was cloned from the other and neither was changed since. Compares small sets by
    /// content, and large sets by one pointer per segment.
    pub fn is_same(&self, other: &SetValue) -> bool {
        match (&self.0, &other.0) {
            (Form::Small(a), Form::Small(b)) => a.is_same(b),
            (Form::Table(a), Form::Table(b)) => a.is_same(b),
            (Form::Small(_), Form::Table(_)) | (Form::Table(_), Form::Small(_)) => false,
        }
    }

    /// Changes a set of integers to a set of strings: a packed one if there is room for one more member of
    /// `more_bytes` bytes, and a table otherwise.
    fn leave_integers(&mut self, more_bytes: usize) {
        let Form::Small(small) = &self.0 else { return };
        const TEXT_BYTES_MAX: usize = 20;
        let bytes = (small.len() + 1) * (1 + TEXT_BYTES_MAX) + more_bytes;
        if !is_packable(small.len() + 1, bytes, more_bytes) {
            return self.make_table();
        }
        let mut strings = Small::strings();
        small.iter().for_each(|member| strings.push(member.bytes(&mut [0; 20])));
        self.0 = Form::Small(strings);
    }
    fn make_table(&mut self) {
        let mut members = Fields::new();
        for member in self.iter() {
            members.add(member.bytes(&mut [0; 20]));
        }
        self.0 = Form::Table(Box::new(members));
    }
}

impl Collection for SetValue {
    const TYPE_NAME: &'static str = "set";

    fn len(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.len(),
            Form::Table(members) => members.len(),
        }
    }
    fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Small(small) if small.is_integers() => "intset",
            _ => "hashtable",
        }
    }
    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.heap_bytes(),
            Form::Table(members) => size_of::<Fields>() + members.heap_bytes(),
        }
    }
    fn parts(&self) -> usize {
        match &self.0 {
            Form::Small(_) => 2,
            Form::Table(members) => members.segment_parts(),
        }
    }
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64 {
        self.scan(cursor, count, &mut |member| visit(None, Bytes::Slice(member.bytes(&mut [0; 20]))))
    }
    fn is_unchanged(&self, since: &SetValue) -> bool {
        self.is_same(since)
    }
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        match self.0 {
            Form::Small(_) => {}
            Form::Table(members) => members.into_pieces().for_each(|segments| hand_out(Box::new(segments))),
        }
    }
    #[inline]
    fn prefetch(&self, step: usize) -> bool {
        match (&self.0, step) {
            (Form::Small(small), 0) => small.prefetch(),
            (Form::Small(_), _) => {}
            (Form::Table(members), 0) => strand_chain::prefetch(&**members, size_of::<Fields>()),
            (Form::Table(members), 1) => members.prefetch(),
            (Form::Table(members), _) => members.prefetch_items(),
        }
        matches!(self.0, Form::Table(_)) && step < 2
    }
    /// The member is the third word of SADD, SREM and SISMEMBER. Prefetches the members of 16 requests together.
    /// Without this, SADD at pipeline 30 to a set of a million spent a third of its time waiting for these members
    /// (`versus --only SADD`).
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        match &self.0 {
            Form::Small(_) => false,
            Form::Table(members) => {
                members.prefetch_all(parts.iter().map(|part| part.third).filter(|part| !part.is_empty()))
            }
        }
    }
}

/// True when a set may be packed that has this number of members, this total of bytes, and a new member of this
/// length.
fn is_packable(members: usize, bytes: usize, longest: usize) -> bool {
    members <= PACKED_MEMBERS_MAX && bytes <= PACKED_BYTES_MAX && longest <= PACKED_MEMBER_BYTES_MAX
}

fn member_of(field: Bytes<'_>) -> Member<'_> {
    match field {
        Bytes::Slice(bytes) => Member::Bytes(bytes),
        Bytes::Shared(blob) => Member::Bytes(blob),
    }
}
