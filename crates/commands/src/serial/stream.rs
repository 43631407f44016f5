//! Streams in Redis's format. The blocks of a stream equal Redis's nodes byte for byte, so they are written and
//! read unchanged.

use super::build::{BadValue, Builder, MISPLACED, Serial};
use std::collections::BTreeMap;
use strand_keyspace::Settings;
use strand_keyspace::types::stream::{Id, Item, Pending, StreamValue};
use strand_rdb::digest::ValueDigest;
use strand_rdb::value::{StreamId, StreamState, ValueKind, ValuePart};
use strand_rdb::value_type::STREAM_2;
use strand_rdb::write::Writer;

impl Serial for StreamValue {
    const KIND: ValueKind = ValueKind::Stream;
    type Builder = Box<StreamBuilder>;

    fn value_type(&self) -> u8 {
        STREAM_2
    }
    fn write(&self, writer: &mut Writer<'_>) {
        let entries = self.entries();
        writer.length(entries.blocks() as u64);
        for (id, listpack) in entries.raw_blocks() {
            writer.stream_listpack(written(id), listpack);
        }
        let state = StreamState {
            length: entries.len(),
            last_id: written(entries.last_id()),
            first_id: written(entries.first_id()),
            max_deleted_id: written(entries.max_deleted_id()),
            entries_added: entries.added(),
            counted: true,
        };
        writer.stream_state(&state, self.groups() as u64);
        for (name, group) in self.each_group() {
            writer.group(name, written(group.last_id()), group.entries_read(), group.pending() as u64);
            for (id, pending) in group.pending_from(Id::MIN) {
                writer.pending_entry(written(id), pending.delivered_ms, pending.deliveries);
            }
            writer.length(group.consumers() as u64);
            for consumer in group.each_consumer() {
                writer.consumer(consumer.name(), consumer.seen_ms(), consumer.pending() as u64);
                consumer.pending_from(Id::MIN).for_each(|id| writer.consumer_pending(written(id)));
            }
        }
    }
    fn add_to(&self, digest: &mut ValueDigest) {
        for entry in self.entries().range(Id::MIN, Id::MAX) {
            digest.entry(written(entry.id()));
            for (field, value) in entry.pairs() {
                digest.entry_field(&bytes(field), &bytes(value));
            }
        }
    }
}

fn bytes(item: Item<'_>) -> std::borrow::Cow<'_, [u8]> {
    match item {
        Item::Text(text) => text.into(),
        item @ Item::Int(_) => item.to_vec().into(),
    }
}

/// A stream that is being built.
#[derive(Debug, Default)]
pub(super) struct StreamBuilder {
    stream: StreamValue,
    /// The ID of the last entry that is not deleted.
    last_entry: Option<Id>,
    /// True when the file does not have the counters of the stream and its groups, so they are computed.
    derives_counters: bool,
    /// The group that is being built.
    group: Vec<u8>,
    /// The pending entries of the group that have no consumer so far: when and how often each was delivered.
    pending: BTreeMap<Id, (i64, u64)>,
    consumer: Vec<u8>,
}

const DUPLICATE_GROUP: BadValue = BadValue("the stream has a group twice");
const DUPLICATE_CONSUMER: BadValue = BadValue("a group of the stream has a consumer twice");
const NOT_PENDING: BadValue = BadValue("an entry is pending at a consumer, but not in its group");

impl Builder for Box<StreamBuilder> {
    type Value = StreamValue;

    fn add_part(&mut self, part: ValuePart<'_>, _: &Settings) -> Result<(), BadValue> {
        match part {
            ValuePart::StreamNode { id, listpack } => {
                if !self.stream.push_raw_block(to_id(id), listpack.into_vec(), &mut self.last_entry) {
                    return Err(BadValue("a node of the stream is malformed or out of order"));
                }
            }
            ValuePart::Stream(state) => self.set_state(&state)?,
            ValuePart::Group { name, last_id, entries_read } => {
                self.end_group()?;
                let last_id = to_id(last_id);
                let entries_read = match self.derives_counters {
                    true => self.stream.entries().distance_from_first(last_id),
                    false => entries_read,
                };
                if !self.stream.create_group(&name, last_id, entries_read) {
                    return Err(DUPLICATE_GROUP);
                }
                self.group = name.into_vec();
            }
            ValuePart::Pending { id, delivered_at_ms, deliveries } => {
                self.pending.insert(to_id(id), (delivered_at_ms, deliveries));
            }
            ValuePart::Consumer { name, seen_at_ms, .. } => {
                let created = self
                    .stream
                    .change_group(&self.group, |group, _| group.create_consumer(&name, seen_at_ms));
                created.flatten().ok_or(DUPLICATE_CONSUMER)?;
                self.consumer = name.into_vec();
            }
            ValuePart::ConsumerPending { id } => {
                let id = to_id(id);
                let (delivered_ms, deliveries) = self.pending.remove(&id).ok_or(NOT_PENDING)?;
                let restored = self.stream.change_group(&self.group, |group, _| {
                    let consumer = group.find_consumer(&self.consumer)?;
                    Some(group.restore_pending(id, Pending { delivered_ms, deliveries, consumer }))
                });
                if restored.flatten() != Some(true) {
                    return Err(NOT_PENDING);
                }
            }
            _ => return Err(MISPLACED),
        }
        Ok(())
    }

    /// Fails if a pending entry has no consumer.
    fn finish(self, _: &Settings) -> Result<StreamValue, BadValue> {
        self.end_group()?;
        Ok(self.stream)
    }
}

impl StreamBuilder {
    fn set_state(&mut self, state: &StreamState) -> Result<(), BadValue> {
        let entries = self.stream.entries();
        if entries.len() != state.length || entries.last_id() > to_id(state.last_id) {
            return Err(BadValue("the length or the last ID of the stream differs from that of its entries"));
        }
        self.derives_counters = !state.counted;
        self.stream.set_ids(
            to_id(state.last_id),
            Some(state.entries_added),
            Some(to_id(state.max_deleted_id)),
        );
        Ok(())
    }

    fn end_group(&self) -> Result<(), BadValue> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => Err(BadValue("a pending entry of a group belongs to no consumer")),
        }
    }
}

fn written(id: Id) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}
fn to_id(id: StreamId) -> Id {
    Id::new(id.ms, id.seq)
}
