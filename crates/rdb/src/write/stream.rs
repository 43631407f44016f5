//! Writes streams: nodes of entries, then the stream's state, its groups and their consumers.

use super::Writer;
use crate::packed::Listpack;
use crate::value::{StreamId, StreamState};

/// Flag of an entry: its field names equal the names of the node's first entry.
const SAME_FIELDS: i64 = 2;

/// A node under construction: consecutive entries of a stream.
#[derive(Debug, Default)]
pub struct StreamNode {
    id: StreamId,
    entries: i64,
    /// The field names of the first entry, each after its length.
    names: Vec<u8>,
    names_count: usize,
    master: Listpack,
    body: Listpack,
}

impl StreamNode {
    /// An empty node.
    pub fn new() -> StreamNode {
        StreamNode::default()
    }
    /// True when the node has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Appends an entry with the names and values of its fields. IDs must ascend.
    pub fn push<'a>(&mut self, id: StreamId, fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) {
        let count = fields.clone().count();
        if self.is_empty() {
            self.id = id;
            self.names.clear();
            self.names_count = count;
            fields.clone().for_each(|(name, _)| put_name(name, &mut self.names));
        }
        let same_fields = count == self.names_count && {
            let mut rest = &self.names[..];
            fields.clone().all(|(name, _)| take_name(name, &mut rest))
        };
        self.entries += 1;
        let items = if same_fields { count + 3 } else { 2 * count + 4 };
        self.body.push_int(if same_fields { SAME_FIELDS } else { 0 });
        self.body.push_int(id.ms.wrapping_sub(self.id.ms) as i64);
        self.body.push_int(id.seq.wrapping_sub(self.id.seq) as i64);
        if !same_fields {
            self.body.push_int(count as i64);
        }
        for (name, value) in fields {
            if !same_fields {
                self.body.push(name);
            }
            self.body.push(value);
        }
        self.body.push_int(items as i64);
    }
}

fn put_name(name: &[u8], names: &mut Vec<u8>) {
    names.extend_from_slice(&name.len().to_le_bytes());
    names.extend_from_slice(name);
}

/// True when `name` is the next name in `names`. Then skips this name.
fn take_name(name: &[u8], names: &mut &[u8]) -> bool {
    let rest = names.strip_prefix(&name.len().to_le_bytes()).and_then(|rest| rest.strip_prefix(name));
    match rest {
        Some(rest) => {
            *names = rest;
            true
        }
        None => false,
    }
}

impl Writer<'_> {
    /// Writes a node and empties it.
    pub fn stream_node(&mut self, node: &mut StreamNode) {
        self.string(&node.id.to_bytes());
        node.master.clear();
        node.master.push_int(node.entries);
        node.master.push_int(0); // None of them is deleted.
        node.master.push_int(node.names_count as i64);
        let mut names = &node.names[..];
        while let Some((len, rest)) = names.split_first_chunk() {
            let (name, rest) = rest.split_at(usize::from_le_bytes(*len));
            node.master.push(name);
            names = rest;
        }
        node.master.push_int(0);
        node.master.append(&node.body);
        self.listpack(&mut node.master);
        node.body.clear();
        node.entries = 0;
    }

    /// Writes a node whose entries are already a listpack. The first entry has ID `id`.
    pub fn stream_listpack(&mut self, id: StreamId, entries: &[u8]) {
        self.string(&id.to_bytes());
        self.string(entries);
    }

    /// Writes the stream's state besides its entries. `groups` groups follow.
    pub fn stream_state(&mut self, state: &StreamState, groups: u64) {
        self.length(state.length);
        self.id(state.last_id);
        self.id(state.first_id);
        self.id(state.max_deleted_id);
        self.length(state.entries_added);
        self.length(groups);
    }
    /// Writes a consumer group. Its `pending` entries follow, then the number of its consumers ([`Writer::length`]),
    /// then the consumers.
    pub fn group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>, pending: u64) {
        self.string(name);
        self.id(last_id);
        self.length(entries_read.unwrap_or(u64::MAX));
        self.length(pending);
    }
    /// Writes a pending entry of the group. IDs must ascend.
    pub fn pending_entry(&mut self, id: StreamId, delivered_at_ms: i64, deliveries: u64) {
        self.out.extend_from_slice(&id.to_bytes());
        self.i64_le(delivered_at_ms);
        self.length(deliveries);
    }
    /// Writes a consumer. Its `pending` IDs follow, each with [`Writer::consumer_pending`].
    pub fn consumer(&mut self, name: &[u8], seen_at_ms: i64, pending: u64) {
        self.string(name);
        self.i64_le(seen_at_ms);
        self.length(pending);
    }
    /// Writes the ID of a pending entry of the consumer. IDs must ascend.
    pub fn consumer_pending(&mut self, id: StreamId) {
        self.out.extend_from_slice(&id.to_bytes());
    }

    fn id(&mut self, id: StreamId) {
        self.length(id.ms);
        self.length(id.seq);
    }
}
