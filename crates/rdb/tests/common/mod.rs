//! Values as plain collections, built from parts and written again, and the bodies of the fuzz targets. Shared by
//! the tests and the fuzz targets, which include this file by its path.

#![allow(dead_code)] // Each user needs a part of it.

use std::collections::{BTreeMap, BTreeSet};

use strand_rdb::digest::{DebugDigest, ValueDigest};
use strand_rdb::file::{Event, FileReader};
use strand_rdb::packed::{Listpack, intset};
use strand_rdb::value::{StreamEntries, StreamId, StreamState, ValueKind, ValuePart};
use strand_rdb::write::{KeyHead, Splitter, StreamNode, Writer};
use strand_rdb::{Error, VERSION_FIELD_EXPIRY, VERSION_WRITTEN, dump, value_type as t};

pub type Bytes = Vec<u8>;

/// A value, in plain collections of Rust.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    String(Bytes),
    List(Vec<Bytes>),
    Set(BTreeSet<Bytes>),
    /// The scores are stored as bits, so that -0 differs from 0.
    SortedSet(BTreeMap<Bytes, u64>),
    /// A hash: each field has its value and its expiry.
    Hash(BTreeMap<Bytes, (Bytes, Option<i64>)>),
    Stream(Stream),
    Module,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    pub entries: Vec<(StreamId, Vec<(Bytes, Bytes)>)>,
    pub state: Option<StreamState>,
    pub groups: Vec<Group>,
}

/// A consumer group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub name: Bytes,
    pub last_id: StreamId,
    pub entries_read: Option<u64>,
    pub pending: Vec<(StreamId, i64, u64)>,
    pub consumers: Vec<Consumer>,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumer {
    pub name: Bytes,
    pub seen_at_ms: i64,
    pub active_at_ms: Option<i64>,
    pub pending: Vec<StreamId>,
}

impl Value {
    pub fn empty(kind: ValueKind) -> Value {
        match kind {
            ValueKind::String => Value::String(Vec::new()),
            ValueKind::List => Value::List(Vec::new()),
            ValueKind::Set => Value::Set(BTreeSet::new()),
            ValueKind::SortedSet => Value::SortedSet(BTreeMap::new()),
            ValueKind::Hash => Value::Hash(BTreeMap::new()),
            ValueKind::Stream => Value::Stream(Stream::default()),
            ValueKind::Module(_) => Value::Module,
        }
    }

    /// Adds a part. For any input, the parts must fit the kind of the value.
    pub fn add(&mut self, part: ValuePart<'_>) {
        match (self, part) {
            (Value::String(value), ValuePart::String(text)) => *value = text.into_vec(),
            (Value::List(list), ValuePart::Element(text)) => list.push(text.into_vec()),
            (Value::Set(set), ValuePart::Member(text)) => drop(set.insert(text.into_vec())),
            (Value::SortedSet(set), ValuePart::Scored { member, score }) => {
                set.insert(member.into_vec(), score.to_bits());
            }
            (Value::Hash(hash), ValuePart::Field { field, value, expires_at_ms }) => {
                hash.insert(field.into_vec(), (value.into_vec(), expires_at_ms));
            }
            (Value::Stream(stream), part) => stream.add(part),
            (value, part) => panic!("{part:?} in {value:?}"),
        }
    }

    /// The value's digest; `None` for a module value.
    pub fn digest(
        &self,
        mut start: impl FnMut(ValueKind) -> ValueDigest,
        expires: bool,
    ) -> Option<DebugDigest> {
        let mut digest;
        match self {
            Value::String(value) => {
                digest = start(ValueKind::String);
                digest.string(value);
            }
            Value::List(list) => {
                digest = start(ValueKind::List);
                list.iter().for_each(|element| digest.element(element));
            }
            Value::Set(set) => {
                digest = start(ValueKind::Set);
                set.iter().for_each(|member| digest.member(member));
            }
            Value::SortedSet(set) => {
                digest = start(ValueKind::SortedSet);
                set.iter().for_each(|(member, score)| digest.scored(member, f64::from_bits(*score)));
            }
            Value::Hash(hash) => {
                digest = start(ValueKind::Hash);
                hash.iter().for_each(|(field, (value, at))| digest.field(field, value, at.is_some()));
            }
            Value::Stream(stream) => {
                digest = start(ValueKind::Stream);
                for (id, fields) in &stream.entries {
                    digest.entry(*id);
                    fields.iter().for_each(|(field, value)| digest.entry_field(field, value));
                }
            }
            Value::Module => return None,
        }
        Some(digest.finish(expires))
    }

    /// Total bytes of all strings, and their number.
    pub fn size(&self) -> (usize, usize) {
        let sum = |lens: &mut dyn Iterator<Item = usize>| lens.fold((0, 0), |(b, n), len| (b + len, n + 1));
        match self {
            Value::String(value) => (value.len(), 1),
            Value::List(list) => sum(&mut list.iter().map(Vec::len)),
            Value::Set(set) => sum(&mut set.iter().map(Vec::len)),
            Value::SortedSet(set) => sum(&mut set.keys().map(Vec::len)),
            Value::Hash(hash) => sum(&mut hash.iter().map(|(field, (value, _))| field.len() + value.len())),
            Value::Stream(stream) => sum(&mut stream
                .entries
                .iter()
                .map(|(_, f)| f.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>())),
            Value::Module => (0, 0),
        }
    }
}

impl Stream {
    fn add(&mut self, part: ValuePart<'_>) {
        match part {
            ValuePart::Entry { id, .. } => {
                assert!(self.state.is_none() && self.entries.last().is_none_or(|(last, _)| *last < id));
                self.entries.push((id, Vec::new()));
            }
            ValuePart::EntryField { field, value } => {
                let entry = self.entries.last_mut().expect("a field follows an entry");
                entry.1.push((field.into_vec(), value.into_vec()));
            }
            ValuePart::Stream(state) => {
                assert_eq!(state.length as usize, self.entries.len());
                assert!(self.state.replace(state).is_none());
            }
            ValuePart::Group { name, last_id, entries_read } => {
                let (pending, consumers) = (Vec::new(), Vec::new());
                self.groups.push(Group { name: name.into_vec(), last_id, entries_read, pending, consumers });
            }
            ValuePart::Pending { id, delivered_at_ms, deliveries } => {
                self.group().pending.push((id, delivered_at_ms, deliveries));
            }
            ValuePart::Consumer { name, seen_at_ms, active_at_ms } => {
                let consumer =
                    Consumer { name: name.into_vec(), seen_at_ms, active_at_ms, pending: Vec::new() };
                self.group().consumers.push(consumer);
            }
            ValuePart::ConsumerPending { id } => {
                self.group().consumers.last_mut().expect("a consumer comes first").pending.push(id);
            }
            part => panic!("{part:?} in a stream"),
        }
    }
    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("a group comes first")
    }
}

/// The value of a DUMP payload.
pub fn read_payload(payload: &[u8]) -> Result<Value, Error> {
    let mut reader = dump::open(payload)?.value(StreamEntries::Single)?;
    let mut value = Value::empty(reader.kind());
    while let Some(part) = reader.next()? {
        value.add(part);
    }
    Ok(value)
}

/// Reads a payload with streams as nodes, whose content is not checked.
fn read_nodes(payload: &[u8]) {
    let Ok(mut reader) = dump::open(payload).and_then(|opened| opened.value(StreamEntries::Nodes)) else {
        return;
    };
    while let Ok(Some(_)) = reader.next() {}
}

/// A key of a file, with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub db: u64,
    pub key: Bytes,
    pub expires_at_ms: Option<i64>,
    pub idle_s: Option<u64>,
    pub freq: Option<u8>,
    pub value: Value,
}

/// The content of a whole file.
#[derive(Debug, Default)]
pub struct Dataset {
    pub version: u16,
    pub aux: Vec<(Bytes, Bytes)>,
    pub functions: Vec<Bytes>,
    pub records: Vec<Record>,
    pub checksum_verified: bool,
    pub resized: Vec<(u64, u64)>,
    pub slots: usize,
}

/// Reads a whole file, and returns the bytes after it.
pub fn read_file(bytes: &[u8]) -> Result<(Dataset, Bytes), Error> {
    let mut reader = FileReader::new(bytes, StreamEntries::Single)?;
    let mut all = Dataset { version: reader.version(), ..Dataset::default() };
    let mut db = 0;
    while let Some(event) = reader.next()? {
        match event {
            Event::Aux { name, value } => all.aux.push((name.into_vec(), value.into_vec())),
            Event::SelectDb(n) => db = n,
            Event::ResizeDb { keys, expiring } => all.resized.push((keys, expiring)),
            Event::SlotInfo { .. } | Event::SlotImport { .. } => all.slots += 1,
            Event::Function(code) => all.functions.push(code.into_vec()),
            Event::ModuleAux(_) => {}
            Event::Key { key, kind, expires_at_ms, idle_s, freq } => {
                let (key, value) = (key.into_vec(), Value::empty(kind));
                all.records.push(Record { db, key, expires_at_ms, idle_s, freq, value });
            }
            Event::Part(part) => all.records.last_mut().expect("a key comes first").value.add(part),
            Event::KeyEnd => {}
            Event::End { checksum_verified } => all.checksum_verified = checksum_verified,
        }
    }
    let (rest_of_slice, mut rest) = reader.into_source().into_parts();
    rest.extend_from_slice(rest_of_slice);
    Ok((all, rest))
}

/// The form in which a value is written: small collections packed, or every collection unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Packed,
    Unpacked,
}

/// The written type of a value. Module values are not written.
pub fn written_type(value: &Value, packing: Packing) -> u8 {
    let packed = packing == Packing::Packed;
    match value {
        Value::String(_) => t::STRING,
        Value::List(_) => t::LIST_QUICKLIST_2,
        Value::Set(set) if packed && ints(set).is_some() => t::SET_INTSET,
        Value::Set(_) => t::SET,
        Value::SortedSet(_) if packed => t::ZSET_LISTPACK,
        Value::SortedSet(_) => t::ZSET_2,
        Value::Hash(hash) if hash.values().any(|(_, at)| at.is_some()) => t::HASH_METADATA,
        Value::Hash(_) if packed => t::HASH_LISTPACK,
        Value::Hash(_) => t::HASH,
        Value::Stream(_) => t::STREAM_2,
        Value::Module => panic!("modules are not written"),
    }
}

fn ints(set: &BTreeSet<Bytes>) -> Option<Vec<i64>> {
    let int = |text: &Bytes| {
        let n: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (n.to_string().as_bytes() == text).then_some(n)
    };
    let mut ints = set.iter().map(int).collect::<Option<Vec<_>>>()?;
    ints.sort_unstable();
    Some(ints)
}

/// Writes a value after its type.
pub fn write_value(writer: &mut Writer<'_>, value: &Value, packing: Packing) {
    let value_type = written_type(value, packing);
    let mut listpack = Listpack::new();
    match value {
        Value::String(text) => writer.string(text),
        Value::List(list) => {
            let mut count = Splitter::list();
            writer.length(list.iter().filter(|e| count.begins_node(e.len())).count() as u64);
            let mut split = Splitter::list();
            for element in list {
                if split.begins_node(element.len()) && !listpack.is_empty() {
                    writer.list_node(&mut listpack);
                    listpack.clear();
                }
                listpack.push(element);
            }
            if !listpack.is_empty() {
                writer.list_node(&mut listpack);
            }
        }
        Value::Set(set) if value_type == t::SET_INTSET => writer.string(&intset::encode(&ints(set).unwrap())),
        Value::Set(set) => {
            writer.length(set.len() as u64);
            set.iter().for_each(|member| writer.string(member));
        }
        Value::SortedSet(set) => {
            let mut order: Vec<_> = set.iter().map(|(m, score)| (f64::from_bits(*score), m)).collect();
            order.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
            if value_type == t::ZSET_LISTPACK {
                for (score, member) in order {
                    listpack.push(member);
                    listpack.push_score(score);
                }
                writer.listpack(&mut listpack);
            } else {
                writer.length(set.len() as u64);
                for (score, member) in order.into_iter().rev() {
                    writer.string(member);
                    writer.score(score);
                }
            }
        }
        Value::Hash(hash) if value_type == t::HASH_METADATA => {
            let smallest = hash.values().filter_map(|(_, at)| *at).min().unwrap();
            let base = writer.hash_metadata(smallest, hash.len() as u64);
            hash.iter().for_each(|(field, (value, at))| writer.field_with_expiry(base, field, value, *at));
        }
        Value::Hash(hash) if value_type == t::HASH_LISTPACK => {
            for (field, (value, _)) in hash {
                listpack.push(field);
                listpack.push(value);
            }
            writer.listpack(&mut listpack);
        }
        Value::Hash(hash) => {
            writer.length(hash.len() as u64);
            for (field, (value, _)) in hash {
                writer.string(field);
                writer.string(value);
            }
        }
        Value::Stream(stream) => write_stream(writer, stream),
        Value::Module => panic!("modules are not written"),
    }
}

fn write_stream(writer: &mut Writer<'_>, stream: &Stream) {
    let bytes = |fields: &[(Bytes, Bytes)]| fields.iter().map(|(f, v)| f.len() + v.len()).sum::<usize>();
    let mut count = Splitter::stream();
    writer
        .length(stream.entries.iter().filter(|(_, fields)| count.begins_node(bytes(fields))).count() as u64);
    let (mut node, mut split) = (StreamNode::new(), Splitter::stream());
    for (id, fields) in &stream.entries {
        if split.begins_node(bytes(fields)) && !node.is_empty() {
            writer.stream_node(&mut node);
        }
        node.push(*id, fields.iter().map(|(f, v)| (&f[..], &v[..])));
    }
    if !node.is_empty() {
        writer.stream_node(&mut node);
    }
    writer.stream_state(&stream.state.expect("every stream has a state"), stream.groups.len() as u64);
    for group in &stream.groups {
        writer.group(&group.name, group.last_id, group.entries_read, group.pending.len() as u64);
        group.pending.iter().for_each(|(id, at, n)| writer.pending_entry(*id, *at, *n));
        writer.length(group.consumers.len() as u64);
        for consumer in &group.consumers {
            writer.consumer(&consumer.name, consumer.seen_at_ms, consumer.pending.len() as u64);
            consumer.pending.iter().for_each(|id| writer.consumer_pending(*id));
        }
    }
}

/// A DUMP payload of `value`.
pub fn write_payload(value: &Value, packing: Packing, compress: bool) -> Bytes {
    let mut writer = Writer::new(compress);
    let value_type = written_type(value, packing);
    writer.value_type(value_type);
    write_value(&mut writer, value, packing);
    dump::seal(writer, if value_type == t::HASH_METADATA { VERSION_FIELD_EXPIRY } else { VERSION_WRITTEN })
}

/// A file of `records`, which must be sorted by database.
pub fn write_file(records: &[Record], packing: Packing, compress: bool) -> Bytes {
    let (mut writer, mut file) = (Writer::new(compress), Vec::new());
    writer.header(VERSION_WRITTEN);
    writer.aux(b"redis-ver", b"7.0.15");
    for of_db in records.chunk_by(|a, b| a.db == b.db) {
        let expiring = of_db.iter().filter(|r| r.expires_at_ms.is_some()).count();
        writer.select_db(of_db[0].db, of_db.len() as u64, expiring as u64);
        for record in of_db {
            let head =
                KeyHead { expires_at_ms: record.expires_at_ms, idle_s: record.idle_s, freq: record.freq };
            writer.key(&record.key, head, written_type(&record.value, packing));
            write_value(&mut writer, &record.value, packing);
            // Empty the writer at every key, by its two ways in turns.
            if record.key.len() % 2 == 0 {
                file.extend(writer.take());
            } else {
                file.extend_from_slice(writer.pending());
                writer.clear();
            }
        }
    }
    writer.eof(true);
    file.extend(writer.take());
    file
}

/// Checks that the input's bytes justify the size of a value: LZF grows at most 88 times, and an integer of two
/// bytes may print as four. Streams are exempt, because their entries repeat the field names of their node.
fn check_size(value: &Value, input_len: usize) {
    if !matches!(value, Value::Stream(_)) {
        let (bytes, count) = value.size();
        assert!(bytes <= input_len * 88 * 6 && count <= input_len * 88, "{bytes} bytes from {input_len}");
    }
}

/// Uses random bytes as the body of a payload with a correct checksum. The first two bytes select the version and
/// the type.
pub fn fuzz_payload(data: &[u8]) {
    let [version, body @ ..] = data else { return };
    let version = [10u16, 12, 80, 9][usize::from(version % 4)];
    let mut payload = body.to_vec();
    payload.extend_from_slice(&version.to_le_bytes());
    let crc = strand_rdb::Crc64::of(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    read_nodes(&payload);
    if let Ok(value) = read_payload(&payload) {
        check_size(&value, payload.len());
        // A value that was read can be written. When it is read again, it is equal.
        if value != Value::Module {
            let again = read_payload(&write_payload(&value, Packing::Unpacked, true))
                .expect("written values can be read");
            let mut expected = value;
            normalize(&mut expected);
            assert_eq!(again, expected);
        }
    }
}

/// Uses random bytes as a file. If they end in a checksum, it is set to zero and so ignored.
pub fn fuzz_file(data: &[u8]) {
    if let Ok((all, _)) = read_file(data) {
        all.records.iter().for_each(|record| check_size(&record.value, data.len()));
    }
}

/// Removes what redis-server 7.0's format does not keep: the time when a consumer was last active, and the fact that
/// counters were derived.
pub fn normalize(value: &mut Value) {
    if let Value::Stream(stream) = value {
        stream.state.iter_mut().for_each(|state| state.counted = true);
        for consumer in stream.groups.iter_mut().flat_map(|group| &mut group.consumers) {
            consumer.active_at_ms = Some(consumer.seen_at_ms);
        }
    }
}
