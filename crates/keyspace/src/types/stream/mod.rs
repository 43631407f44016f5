//! [`StreamValue`]: entries by ID, and the consumer groups that read them.
//!
//! [`Entries`] keeps the entries in blocks that equal Redis's listpacks byte for byte ([`block`]). A [`Group`]
//! keeps the entries that were delivered to its consumers and not acknowledged yet. Both are ordered maps of shared
//! nodes ([`map`]). So a clone is one pointer, and a write to a shared stream copies the few nodes and the one
//! block on its path. This module knows no command and no clock.

mod block;
mod entries;
mod group;
mod id;
mod listpack;
mod map;
#[cfg(test)]
mod tests;

pub use block::StreamEntry;
pub use entries::{BLOCK_BYTES_MAX, Entries, NotAdded, Trim};
pub use group::{Claim, Consumer, ConsumerId, Group, Name, Pending};
pub use id::Id;
pub use listpack::Item;

use super::string::format_int;
use super::{Bytes, Collection, Piece, Wanted};
use crate::Settings;
use map::SharedMap;
use std::ops::Range;
use triomphe::Arc;

/// A stream. Unlike other collections, it stays when its last entry is removed.
#[derive(Debug, Clone, Default)]
pub struct StreamValue(Arc<Stream>);

#[derive(Debug, Clone, Default)]
struct Stream {
    entries: Entries,
    groups: SharedMap<Name, Group>,
    /// Heap bytes of the groups and of their names.
    group_bytes: usize,
    group_parts: usize,
}

impl StreamValue {
    /// An empty stream.
    pub fn new() -> StreamValue {
        StreamValue::default()
    }
    /// The entries of the stream.
    pub fn entries(&self) -> &Entries {
        &self.0.entries
    }
    /// Number of groups of the stream.
    pub fn groups(&self) -> usize {
        self.0.groups.len()
    }
    /// The groups in order of name.
    pub fn each_group(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        self.0.groups.iter().map(|(name, group)| (&**name, group))
    }
    /// The group with this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.0.groups.get(name)
    }
    /// XINFO's `lag`: number of entries that the group has not read yet, if that is known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let entries = self.entries();
        if entries.added() == 0 {
            return Some(0);
        }
        let read = match group.entries_read() {
            Some(read) if !entries.has_tombstone_from(group.last_id()) => read,
            _ => entries.distance_from_first(group.last_id())?,
        };
        Some((entries.added() as i64).wrapping_sub(read as i64))
    }

    /// Adds an entry. `settings` says when a block is full.
    ///
    /// # Errors
    /// Fails if `id` is not above the last ID, or when the entry is too large. Nothing changes then.
    pub fn append<'p, P>(&mut self, id: Id, pairs: P, settings: &Settings) -> Result<(), NotAdded>
    where
        P: ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    {
        self.write().entries.append(id, pairs, settings)
    }
    /// Deletes the entry `id`. Returns true when it existed. In groups where the entry is pending, it stays
    /// pending.
    pub fn delete(&mut self, id: Id) -> bool {
        self.write().entries.delete(id)
    }
    /// Removes the oldest entries and returns their number. `approximate`: removes only whole blocks. `limit`:
    /// removes at most this many entries, unless it is 0.
    pub fn trim(&mut self, trim: Trim, approximate: bool, limit: u64) -> u64 {
        self.write().entries.trim(trim, approximate, limit)
    }
    /// For XSETID and for stored streams: sets the last ID and, if given, the number of entries ever added and the
    /// highest deleted ID.
    pub fn set_ids(&mut self, last: Id, added: Option<u64>, max_deleted: Option<Id>) {
        self.write().entries.set_ids(last, added, max_deleted);
    }
    /// Adds a block of entries in Redis's storage format. When the block is malformed or its entries do not follow
    /// the existing ones, changes nothing and returns false. `last_entry`: the ID of the last entry that exists, `None` when
    /// there is none. The call keeps this ID up to date.
    pub fn push_raw_block(&mut self, master: Id, list: Vec<u8>, last_entry: &mut Option<Id>) -> bool {
        self.write().entries.push_raw_block(master, list, last_entry)
    }
    /// Adds a group. Returns false when the name is taken.
    pub fn create_group(&mut self, name: &[u8], last_id: Id, entries_read: Option<u64>) -> bool {
        if self.group(name).is_some() {
            return false;
        }
        let stream = self.write();
        let group = Group::new(last_id, entries_read);
        stream.group_bytes += group::name_bytes(name) + group.heap_bytes();
        stream.group_parts += 1 + group.parts();
        stream.groups.insert(Name::from(name), group);
        true
    }
    /// Removes a group. Returns false when there is no group with this name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        if self.group(name).is_none() {
            return false;
        }
        let stream = self.write();
        let Some(group) = stream.groups.remove(name) else { return false };
        stream.group_bytes -= group::name_bytes(name) + group.heap_bytes();
        stream.group_parts -= 1 + group.parts();
        true
    }
    /// Lets `change` write to a group, and passes it the entries as well. `None` when there is no group with this
    /// name.
    pub fn change_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&mut Group, &Entries) -> R,
    ) -> Option<R> {
        self.group(name)?;
        let stream = self.write();
        let group = stream.groups.get_mut(name)?;
        stream.group_bytes -= group.heap_bytes();
        stream.group_parts -= group.parts();
        let result = change(group, &stream.entries);
        stream.group_bytes += group.heap_bytes();
        stream.group_parts += group.parts();
        Some(result)
    }
    /// The stream for writing. If a snapshot shares the stream, its head is copied first.
    fn write(&mut self) -> &mut Stream {
        Arc::make_mut(&mut self.0)
    }
}

impl Collection for StreamValue {
    const TYPE_NAME: &'static str = "stream";
    const STAYS_WHEN_EMPTY: bool = true;

    fn len(&self) -> usize {
        self.entries().len() as usize
    }
    fn encoding(&self) -> &'static str {
        "stream"
    }
    fn heap_bytes(&self) -> usize {
        const COUNT_BYTES: usize = 8;
        let stream = &self.0;
        let groups = stream.groups.heap_bytes() + stream.group_bytes;
        COUNT_BYTES + size_of::<Stream>() + stream.entries.heap_bytes() + groups
    }
    fn parts(&self) -> usize {
        1 + self.0.entries.parts() + self.0.groups.parts() + self.0.group_parts
    }
    /// The texts are the values of entries. The cursor is a time in milliseconds, and all entries of one
    /// millisecond are visited together.
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64 {
        let (mut visited, mut last_ms) = (0, cursor);
        for entry in self.entries().range(Id::new(cursor, 0), Id::MAX) {
            let ms = entry.id().ms;
            if visited >= count && ms != last_ms {
                return ms;
            }
            last_ms = ms;
            for (field, value) in entry.pairs() {
                let (mut field_digits, mut value_digits) = ([0; 20], [0; 20]);
                let field = text_of(field, &mut field_digits);
                visit(Some(Bytes::Slice(field)), Bytes::Slice(text_of(value, &mut value_digits)));
                visited += 1;
            }
        }
        0
    }
    fn serves(&self) -> Option<Range<Wanted>> {
        let last = self.entries().last_entry_id().unwrap_or(Id::MIN);
        Some(Wanted::After(Id::MIN)..Wanted::After(last))
    }
    fn is_unchanged(&self, since: &StreamValue) -> bool {
        Arc::ptr_eq(&self.0, &since.0)
    }
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        // A snapshot shares the stream, and will free it later.
        let Ok(stream) = Arc::try_unwrap(self.0) else { return };
        stream.entries.into_pieces(hand_out);
        stream.groups.into_each(&mut |_, group| group.into_pieces(hand_out));
    }
}

fn text_of<'a>(item: Item<'a>, digits: &'a mut [u8; 20]) -> &'a [u8] {
    match item {
        Item::Int(n) => format_int(n, digits),
        Item::Text(text) => text,
    }
}
