//! Streams: listpacks of entries, then the stream's state, then its groups with their pending entries.
//!
//! A node is a listpack with the ID of its first entry. It starts with a master entry: the numbers of live and
//! deleted entries, and the first entry's field names. The entries follow. Their IDs are relative to the node's ID,
//! and field names equal to the master's are left out.

use super::{StreamState, ValuePart};
use crate::packed::{PackedEntry, listpack};
use crate::primitive as p;
use crate::source::Source;
use crate::{Error, Result, Text, value_type as t};

const BAD_ENTRY: Error = Error::Corrupt("a stream entry that does not match the master entry of its node");
const BAD_ORDER: Error = Error::Corrupt("stream IDs that do not ascend");

/// The form in which the entries of streams are yielded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEntries {
    /// One by one and checked, as [`ValuePart::Entry`] and [`ValuePart::EntryField`].
    #[default]
    Single,
    /// Many entries together, as [`ValuePart::StreamNode`]. A loader that keeps Redis's form must check them.
    Nodes,
}

/// Flags of an entry in a node.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// The ID of a stream entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unix milliseconds, unless the client chose another number.
    pub ms: u64,
    /// Number of the entry within its millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The ID zero, which is less than the ID of any entry.
    pub const ZERO: StreamId = StreamId { ms: 0, seq: 0 };

    /// Both numbers of the ID, big endian. The bytes sort like the IDs.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
    /// The ID that these 16 bytes encode.
    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// The position is before a node.
    #[default]
    Node,
    /// The position is inside a node, before an entry.
    Entry,
    /// The position is inside an entry, before a field.
    Field {
        left: u64,
        same_fields: bool,
        items: i64,
    },
    Group,
    Pending {
        left: u64,
    },
    Consumer,
    ConsumerPending {
        left: u64,
    },
    Done,
}

/// Reads one stream at a time and reuses its memory.
#[derive(Debug, Default)]
pub(super) struct StreamReader {
    entries: StreamEntries,
    value_type: u8,
    step: Step,
    nodes_left: u64,
    groups_left: u64,
    consumers_left: u64,
    node: StreamId,
    /// The listpack of the current node.
    blob: Vec<u8>,
    /// The position in the listpack.
    cursor: Option<listpack::Cursor>,
    /// The start of the master's field names in the listpack.
    master: Option<listpack::Cursor>,
    /// The position of the master's name for the next field.
    names: Option<listpack::Cursor>,
    master_fields: u64,
    /// Number of live entries that the node announces and that are not read yet.
    live_left: i64,
    deleted_left: i64,
    /// The latest ID over all nodes.
    previous: Option<StreamId>,
    first_live: Option<StreamId>,
    /// Number of live entries over all nodes.
    live: u64,
    previous_pending: Option<StreamId>,
    state: Option<StreamState>,
    memory: Vec<u8>,
}

impl StreamReader {
    pub(super) fn new(entries: StreamEntries) -> StreamReader {
        StreamReader { entries, ..StreamReader::default() }
    }

    pub(super) fn begin(&mut self, value_type: u8, source: &mut impl Source) -> Result<()> {
        let (blob, memory) = (std::mem::take(&mut self.blob), std::mem::take(&mut self.memory));
        *self = StreamReader {
            value_type,
            nodes_left: p::length(source)?,
            blob,
            memory,
            ..StreamReader::new(self.entries)
        };
        Ok(())
    }

    pub(super) fn next(&mut self, source: &mut impl Source) -> Result<Option<ValuePart<'_>>> {
        loop {
            match self.step {
                Step::Node if self.nodes_left == 0 => {
                    self.step = Step::Group;
                    return self.read_state(source).map(|state| Some(ValuePart::Stream(state)));
                }
                Step::Node => {
                    self.nodes_left -= 1;
                    self.read_node(source)?;
                    if self.entries == StreamEntries::Nodes {
                        let listpack = p::take_text(&mut self.blob);
                        return Ok(Some(ValuePart::StreamNode { id: self.node, listpack }));
                    }
                    self.read_master()?;
                    self.step = Step::Entry;
                }
                Step::Entry => match self.read_entry()? {
                    Some((id, fields)) => return Ok(Some(ValuePart::Entry { id, fields })),
                    None => self.step = Step::Node,
                },
                Step::Field { left: 0, items, .. } => {
                    self.end_entry(items)?;
                    self.step = Step::Entry;
                }
                Step::Field { left, same_fields, items } => {
                    self.step = Step::Field { left: left - 1, same_fields, items };
                    return self.read_field(same_fields).map(Some);
                }
                Step::Group if self.groups_left == 0 => self.step = Step::Done,
                Step::Group => {
                    self.groups_left -= 1;
                    return self.read_group(source).map(Some);
                }
                Step::Pending { left: 0 } => {
                    self.consumers_left = p::length(source)?;
                    self.step = Step::Consumer;
                }
                Step::Pending { left } => {
                    self.step = Step::Pending { left: left - 1 };
                    let id = self.read_pending_id(source)?;
                    let (delivered_at_ms, deliveries) = (p::i64_le(source)?, p::length(source)?);
                    return Ok(Some(ValuePart::Pending { id, delivered_at_ms, deliveries }));
                }
                Step::Consumer if self.consumers_left == 0 => self.step = Step::Group,
                Step::Consumer => {
                    self.consumers_left -= 1;
                    return self.read_consumer(source).map(Some);
                }
                Step::ConsumerPending { left: 0 } => self.step = Step::Consumer,
                Step::ConsumerPending { left } => {
                    self.step = Step::ConsumerPending { left: left - 1 };
                    let id = self.read_pending_id(source)?;
                    return Ok(Some(ValuePart::ConsumerPending { id }));
                }
                Step::Done => return Ok(None),
            }
        }
    }

    /// Reads a node's ID and its listpack.
    fn read_node(&mut self, source: &mut impl Source) -> Result<()> {
        p::string_into(source, &mut self.blob)?;
        let id: [u8; 16] = self.blob[..]
            .try_into()
            .map_err(|_| Error::Corrupt("a stream node whose key is not an ID of 16 bytes"))?;
        self.node = StreamId::from_bytes(id);
        p::string_into(source, &mut self.blob)
    }

    /// Reads the node's master entry.
    fn read_master(&mut self) -> Result<()> {
        self.cursor = Some(listpack::Cursor::new(&self.blob)?);
        let (live, deleted, fields) = (self.int()?, self.int()?, self.int()?);
        self.master_fields = u64::try_from(fields)
            .map_err(|_| Error::Corrupt("a stream node with a negative number of fields"))?;
        self.master = self.cursor;
        for _ in 0..fields {
            self.item()?;
        }
        if self.int()? != 0 || live < 0 || deleted < 0 {
            return Err(Error::Corrupt(
                "a stream node whose master entry does not end with 0, or has a negative count",
            ));
        }
        (self.live_left, self.deleted_left) = (live, deleted);
        Ok(())
    }

    /// The next live entry; `None` at the node's end.
    fn read_entry(&mut self) -> Result<Option<(StreamId, u64)>> {
        loop {
            let Some(first) = self.entry_of_node()? else {
                if (self.live_left, self.deleted_left) != (0, 0) {
                    return Err(Error::Corrupt(
                        "a stream node whose counts differ from its number of entries",
                    ));
                }
                return Ok(None);
            };
            let PackedEntry::Int(flags) = first else { return Err(BAD_ENTRY) };
            let (ms, seq) = (self.int()?, self.int()?);
            // A difference is stored as the bits of an unsigned number, and so may wrap around.
            let id = StreamId {
                ms: self.node.ms.wrapping_add(ms as u64),
                seq: self.node.seq.wrapping_add(seq as u64),
            };
            if id < self.node || self.previous.is_some_and(|previous| previous >= id) {
                return Err(BAD_ORDER);
            }
            self.previous = Some(id);
            let same_fields = flags & SAME_FIELDS != 0;
            let (fields, items) = if same_fields {
                (self.master_fields, self.master_fields.checked_add(3))
            } else {
                let fields = u64::try_from(self.int()?).map_err(|_| BAD_ENTRY)?;
                (fields, fields.checked_mul(2).and_then(|n| n.checked_add(4)))
            };
            let items = items.and_then(|n| i64::try_from(n).ok()).ok_or(BAD_ENTRY)?;
            if fields == 0 {
                return Err(Error::Corrupt("a stream entry without fields"));
            }
            if flags & DELETED == 0 {
                self.live_left -= 1;
                self.live += 1;
                self.first_live.get_or_insert(id);
                self.names = self.master;
                self.step = Step::Field { left: fields, same_fields, items };
                return Ok(Some((id, fields)));
            }
            self.deleted_left -= 1;
            for _ in 0..if same_fields { fields } else { fields * 2 } {
                self.item()?;
            }
            self.end_entry(items)?;
        }
    }

    /// Reads the number at an entry's end, which allows walking backwards.
    fn end_entry(&mut self, items: i64) -> Result<()> {
        if self.int()? == items { Ok(()) } else { Err(BAD_ENTRY) }
    }

    fn read_field(&mut self, same_fields: bool) -> Result<ValuePart<'_>> {
        let (cursor, names) = (self.cursor.as_mut().ok_or(BAD_ENTRY)?, self.names.as_mut().ok_or(BAD_ENTRY)?);
        let from = if same_fields { names } else { &mut *cursor };
        let field = from.next(&self.blob)?.ok_or(BAD_ENTRY)?;
        let value = cursor.next(&self.blob)?.ok_or(BAD_ENTRY)?;
        Ok(ValuePart::EntryField { field: field.text(), value: value.text() })
    }

    fn read_state(&mut self, source: &mut impl Source) -> Result<StreamState> {
        let (length, last_id) = (p::length(source)?, read_id(source)?);
        let first_live = self.first_live.unwrap_or(StreamId::ZERO);
        let mut state = StreamState {
            length,
            last_id,
            first_id: first_live,
            max_deleted_id: StreamId::ZERO,
            entries_added: length,
            counted: self.value_type != t::STREAM,
        };
        if state.counted {
            state.first_id = read_id(source)?;
            state.max_deleted_id = read_id(source)?;
            state.entries_added = p::length(source)?;
        }
        if self.entries == StreamEntries::Single && length != self.live {
            return Err(Error::Corrupt("a stream whose length differs from its number of entries"));
        }
        if self.previous.is_some_and(|previous| previous > last_id) {
            return Err(Error::Corrupt("a stream whose last ID is less than an entry's"));
        }
        self.groups_left = p::length(source)?;
        self.state = Some(state);
        Ok(state)
    }

    fn read_group(&mut self, source: &mut impl Source) -> Result<ValuePart<'_>> {
        /// The stored number for "unknown": all bits are set.
        const UNKNOWN: u64 = u64::MAX;
        p::string_into(source, &mut self.memory)?;
        let last_id = read_id(source)?;
        let entries_read = if self.value_type == t::STREAM {
            let state = self.state.as_ref().filter(|_| self.entries == StreamEntries::Single);
            state.and_then(|state| entries_read_estimate(state, last_id))
        } else {
            Some(p::length(source)?).filter(|n| *n != UNKNOWN)
        };
        self.previous_pending = None;
        self.step = Step::Pending { left: p::length(source)? };
        Ok(ValuePart::Group { name: Text::Borrowed(&self.memory), last_id, entries_read })
    }

    fn read_consumer(&mut self, source: &mut impl Source) -> Result<ValuePart<'_>> {
        p::string_into(source, &mut self.memory)?;
        let seen_at_ms = p::i64_le(source)?;
        let active_at_ms = match self.value_type {
            t::STREAM_3 => Some(p::i64_le(source)?).filter(|ms| *ms != -1),
            _ => Some(seen_at_ms),
        };
        self.previous_pending = None;
        self.step = Step::ConsumerPending { left: p::length(source)? };
        Ok(ValuePart::Consumer { name: Text::Borrowed(&self.memory), seen_at_ms, active_at_ms })
    }

    fn read_pending_id(&mut self, source: &mut impl Source) -> Result<StreamId> {
        let id = StreamId::from_bytes(p::array(source)?);
        if self.previous_pending.is_some_and(|previous| previous >= id) {
            return Err(BAD_ORDER);
        }
        self.previous_pending = Some(id);
        Ok(id)
    }

    fn entry_of_node(&mut self) -> Result<Option<PackedEntry<'_>>> {
        self.cursor.as_mut().ok_or(BAD_ENTRY)?.next(&self.blob)
    }
    fn item(&mut self) -> Result<PackedEntry<'_>> {
        self.entry_of_node()?.ok_or(BAD_ENTRY)
    }
    fn int(&mut self) -> Result<i64> {
        match self.item()? {
            PackedEntry::Int(n) => Ok(n),
            PackedEntry::Bytes(_) => Err(BAD_ENTRY),
        }
    }
}

fn read_id(source: &mut impl Source) -> Result<StreamId> {
    Ok(StreamId { ms: p::length(source)?, seq: p::length(source)? })
}

/// The number of entries that a group of an older stream has read, derived as redis-server does when it loads such a
/// stream. Known only when the group is at one of the ends of the stream.
fn entries_read_estimate(stream: &StreamState, last_id: StreamId) -> Option<u64> {
    if stream.entries_added == 0 {
        return Some(0);
    }
    if last_id >= stream.last_id {
        return (last_id == stream.last_id).then_some(stream.entries_added);
    }
    if stream.length == 0 {
        return Some(stream.entries_added);
    }
    let before_first = stream.entries_added - stream.length;
    match last_id.cmp(&stream.first_id) {
        std::cmp::Ordering::Less => Some(before_first),
        std::cmp::Ordering::Equal => Some(before_first + 1),
        std::cmp::Ordering::Greater => None,
    }
}
