//! Streams in Redis's format. The blocks of a stream equal Redis's nodes byte for byte, so they are written and
//! read unchanged.

use super::BadValue;
use std::collections::BTreeMap;
use strand_keyspace::types::stream::{Id, Item, Pending, StreamValue};
use strand_rdb::digest::ValueDigest;
use strand_rdb::value::{Part, StreamId, StreamState};
use strand_rdb::write::Writer;

/// Writes the stream, without its type number.
pub fn write(stream: &StreamValue, writer: &mut Writer<'_>) {
    let entries = stream.entries();
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
    writer.stream_state(&state, stream.groups() as u64);
    for (name, group) in stream.each_group() {
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

/// Adds the stream to a digest.
pub fn digest(stream: &StreamValue, digest: &mut ValueDigest) {
    for entry in stream.entries().range(Id::MIN, Id::MAX) {
        digest.entry(written(entry.id()));
        for (field, value) in entry.pairs() {
            digest.entry_field(&bytes(field), &bytes(value));
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
pub struct StreamBuilder {
    stream: StreamValue,
    /// True when the file does not have the counters of the stream and its groups, so they are computed.
    derived: bool,
    /// The group that is being built.
    group: Vec<u8>,
    /// The pending entries of the group that have no consumer so far: when and how often each was delivered.
    pending: BTreeMap<Id, (i64, u64)>,
    consumer: Vec<u8>,
}

const NO_GROUP: BadValue = BadValue("a stream's group twice");
const NO_CONSUMER: BadValue = BadValue("a group's consumer twice");
const NOT_PENDING: BadValue = BadValue("a consumer's entry that is not pending in its group");

impl StreamBuilder {
    /// Adds a part.
    ///
    /// # Errors
    /// When the part does not fit the parts added before.
    pub fn add(&mut self, part: Part<'_>) -> Result<(), BadValue> {
        match part {
            Part::StreamNode { id, listpack } => {
                if !self.stream.push_raw_block(held(id), listpack.into_vec()) {
                    return Err(BadValue("a stream's node that is malformed or out of order"));
                }
            }
            Part::Stream(state) => self.set_state(&state)?,
            Part::Group { name, last_id, entries_read } => {
                self.end_group()?;
                let last_id = held(last_id);
                let entries_read = match self.derived {
                    true => self.stream.entries().distance_from_first(last_id),
                    false => entries_read,
                };
                if !self.stream.create_group(&name, last_id, entries_read) {
                    return Err(NO_GROUP);
                }
                self.group = name.into_vec();
            }
            Part::Pending { id, delivered_at_ms, deliveries } => {
                self.pending.insert(held(id), (delivered_at_ms, deliveries));
            }
            Part::Consumer { name, seen_at_ms, .. } => {
                let created = self
                    .stream
                    .change_group(&self.group, |group, _| group.create_consumer(&name, seen_at_ms));
                created.flatten().ok_or(NO_CONSUMER)?;
                self.consumer = name.into_vec();
            }
            Part::ConsumerPending { id } => {
                let id = held(id);
                let (delivered_ms, deliveries) = self.pending.remove(&id).ok_or(NOT_PENDING)?;
                let restored = self.stream.change_group(&self.group, |group, _| {
                    let consumer = group.find_consumer(&self.consumer)?;
                    Some(group.restore_pending(id, Pending { delivered_ms, deliveries, consumer }))
                });
                if restored.flatten() != Some(true) {
                    return Err(NOT_PENDING);
                }
            }
            _ => return Err(super::build::MISPLACED),
        }
        Ok(())
    }

    /// Ends the building and returns the stream.
    ///
    /// # Errors
    /// When a pending entry has no consumer.
    pub fn finish(self) -> Result<StreamValue, BadValue> {
        self.end_group()?;
        Ok(self.stream)
    }

    fn set_state(&mut self, state: &StreamState) -> Result<(), BadValue> {
        let entries = self.stream.entries();
        if entries.len() != state.length || entries.last_id() > held(state.last_id) {
            return Err(BadValue("a stream whose length or last ID is not that of its entries"));
        }
        self.derived = !state.counted;
        self.stream.set_ids(held(state.last_id), Some(state.entries_added), Some(held(state.max_deleted_id)));
        Ok(())
    }

    fn end_group(&self) -> Result<(), BadValue> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => Err(BadValue("a group's pending entry that belongs to no consumer")),
        }
    }
}

fn written(id: Id) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}
fn held(id: StreamId) -> Id {
    Id::new(id.ms, id.seq)
}
