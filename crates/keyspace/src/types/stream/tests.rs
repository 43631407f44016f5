//! Streams are compared with plain vectors and maps. Snapshots of streams must not change while the streams are
//! written.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The content of a stream in plain types.
#[derive(Debug, Clone, Default, PartialEq)]
struct Twin {
    entries: BTreeMap<Id, Fields>,
    last: Id,
    max_deleted: Id,
    added: u64,
    groups: BTreeMap<Vec<u8>, TwinGroup>,
}
#[derive(Debug, Clone, Default, PartialEq)]
struct TwinGroup {
    last: Id,
    /// By ID: the consumer, the time of the last delivery, and the number of deliveries.
    pending: BTreeMap<Id, (Vec<u8>, i64, u64)>,
    consumers: BTreeMap<Vec<u8>, i64>,
}

fn append(stream: &mut StreamValue, id: Id, fields: &Fields, settings: &Settings) -> Result<(), NotAdded> {
    stream.append(id, fields.iter().map(|(f, v)| (&f[..], &v[..])), settings)
}
fn fields_of(entry: &StreamEntry<'_>) -> Fields {
    let fields: Fields = entry.pairs().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
    assert_eq!(fields.len(), entry.len());
    fields
}
fn twin_of(stream: &StreamValue) -> Twin {
    let entries = stream.entries();
    let all: BTreeMap<_, _> = entries.range(Id::MIN, Id::MAX).map(|e| (e.id(), fields_of(&e))).collect();
    assert_eq!((all.len() as u64, all.is_empty()), (entries.len(), entries.is_empty()));
    assert_eq!(entries.first_id(), all.keys().next().copied().unwrap_or_default());
    let mut groups = BTreeMap::new();
    for (name, group) in stream.each_group() {
        let name_of = |id| group.consumer(id).expect("it has the entry").name().to_vec();
        let pending: BTreeMap<_, _> = group
            .pending_from(Id::MIN)
            .map(|(id, p)| (id, (name_of(p.consumer), p.delivered_ms, p.deliveries)))
            .collect();
        assert_eq!((pending.len(), group.last_pending()), (group.pending(), pending.keys().last().copied()));
        let mut consumers = BTreeMap::new();
        for consumer in group.each_consumer() {
            let own: Vec<Id> = consumer.pending_from(Id::MIN).collect();
            assert!(own.iter().eq(pending.iter().filter(|(_, p)| p.0 == consumer.name()).map(|(id, _)| id)));
            assert_eq!(own.len(), consumer.pending());
            consumers.insert(consumer.name().to_vec(), consumer.seen_ms());
        }
        assert_eq!(consumers.len(), group.consumers());
        groups.insert(name.to_vec(), TwinGroup { last: group.last_id(), pending, consumers });
    }
    let (last, max_deleted, added) = (entries.last_id(), entries.max_deleted_id(), entries.added());
    Twin { entries: all, last, max_deleted, added, groups }
}

#[derive(Debug, Clone)]
enum Op {
    /// Number of entries to add, and which fields they have.
    Add(u8, u8),
    /// Deletes the entry at this share of all entries, in 256ths.
    Delete(u8),
    TrimLen(u8),
    TrimId(u8),
    /// Numbers of the group and the consumer, and number of entries to read.
    Read(u8, u8, u8),
    Acknowledge(u8, u8),
    Claim(u8, u8, u8),
    DeleteConsumer(u8, u8),
    RemoveGroup(u8),
    Snapshot,
}
fn op() -> impl Strategy<Value = Op> {
    use Op::*;
    prop_oneof![
        8 => (any::<u8>(), 0..4u8).prop_map(|(n, kind)| Add(n, kind)),
        4 => any::<u8>().prop_map(Delete),
        1 => any::<u8>().prop_map(TrimLen),
        1 => any::<u8>().prop_map(TrimId),
        6 => (0..3u8, 0..3u8, any::<u8>()).prop_map(|(g, c, n)| Read(g, c, n)),
        6 => (0..3u8, any::<u8>()).prop_map(|(g, at)| Acknowledge(g, at)),
        3 => (0..3u8, 0..3u8, any::<u8>()).prop_map(|(g, c, at)| Claim(g, c, at)),
        1 => (0..3u8, 0..3u8).prop_map(|(g, c)| DeleteConsumer(g, c)),
        1 => (0..3u8).prop_map(RemoveGroup),
        2 => Just(Snapshot),
    ]
}
/// The key at this share of all keys, in 256ths.
fn at_share<V>(map: &BTreeMap<Id, V>, share: u8) -> Option<Id> {
    map.keys().nth(map.len() * usize::from(share) / 256).copied()
}

struct StreamAndTwin {
    stream: StreamValue,
    twin: Twin,
    settings: Settings,
    clock: i64,
}

impl StreamAndTwin {
    fn group(&mut self, number: u8) -> Vec<u8> {
        let name = format!("g{number}").into_bytes();
        let new = self.stream.create_group(&name, Id::MIN, Some(0));
        assert_eq!(new, !self.twin.groups.contains_key(&name));
        self.twin.groups.entry(name.clone()).or_default();
        name
    }
    fn run(&mut self, op: &Op) {
        self.clock += 1;
        match *op {
            Op::Add(many, kind) => (0..many).for_each(|i| self.add(i, kind)),
            Op::Delete(share) => {
                let Some(id) = at_share(&self.twin.entries, share) else { return };
                assert!(self.stream.delete(id) && !self.stream.delete(id));
                self.twin.entries.remove(&id);
                self.twin.max_deleted = self.twin.max_deleted.max(id);
            }
            Op::TrimLen(len) => self.trim(Trim::MaxLen(u64::from(len) * 4)),
            Op::TrimId(share) => {
                let id = at_share(&self.twin.entries, share / 2).unwrap_or(Id::MAX);
                self.trim(Trim::MinId(id));
            }
            Op::Read(group, consumer, many) => {
                let (name, consumer) = (self.group(group), format!("c{consumer}").into_bytes());
                let twin = self.twin.groups.get_mut(&name).expect("just made");
                twin.consumers.insert(consumer.clone(), self.clock);
                let from = twin.last.next().expect("not the greatest");
                let read: Vec<Id> =
                    self.twin.entries.range(from..).take(many.into()).map(|(id, _)| *id).collect();
                for id in &read {
                    twin.pending.insert(*id, (consumer.clone(), self.clock, 1));
                    twin.last = *id;
                }
                let clock = self.clock;
                let got = self.stream.change_group(&name, |group, entries| {
                    let consumer = group.see_consumer(&consumer, clock);
                    let new = entries.range(group.last_id().next().expect("not the greatest"), Id::MAX);
                    let ids: Vec<Id> = new.take(many.into()).map(|e| e.id()).collect();
                    for id in &ids {
                        group.advance(*id, entries);
                        group.deliver(*id, consumer, clock);
                    }
                    ids
                });
                assert_eq!(got, Some(read));
            }
            Op::Acknowledge(group, share) => {
                let name = self.group(group);
                let twin = self.twin.groups.get_mut(&name).expect("just made");
                let Some(id) = at_share(&twin.pending, share) else { return };
                twin.pending.remove(&id);
                let both = self.stream.change_group(&name, |g, _| (g.acknowledge(id), g.acknowledge(id)));
                assert_eq!(both, Some((true, false)));
            }
            Op::Claim(group, consumer, share) => {
                let (name, consumer) = (self.group(group), format!("c{consumer}").into_bytes());
                let twin = self.twin.groups.get_mut(&name).expect("just made");
                let Some(id) = at_share(&twin.pending, share) else { return };
                let pending = twin.pending.get_mut(&id).expect("just found");
                let until_ms = self.clock - i64::from(share % 8);
                let taken = pending.1 <= until_ms;
                if taken {
                    *pending = (consumer.clone(), self.clock, pending.2 + u64::from(share.is_multiple_of(2)));
                }
                twin.consumers.insert(consumer.clone(), self.clock);
                let claim = Claim {
                    delivered_until_ms: Some(until_ms),
                    delivered_ms: self.clock,
                    deliveries: None,
                    keep_deliveries: share % 2 == 1,
                    force: false,
                };
                let got = self.stream.change_group(&name, |group, _| {
                    let consumer = group.see_consumer(&consumer, self.clock);
                    group.claim(id, consumer, &claim)
                });
                assert_eq!(got, Some(taken));
            }
            Op::DeleteConsumer(group, consumer) => {
                let (name, consumer) = (self.group(group), format!("c{consumer}").into_bytes());
                let twin = self.twin.groups.get_mut(&name).expect("just made");
                let before = twin.pending.len();
                twin.pending.retain(|_, p| p.0 != consumer);
                let want = twin.consumers.remove(&consumer).map(|_| before - twin.pending.len());
                assert_eq!(self.stream.change_group(&name, |g, _| g.delete_consumer(&consumer)), Some(want));
            }
            Op::RemoveGroup(group) => {
                let name = format!("g{group}").into_bytes();
                assert_eq!(self.stream.remove_group(&name), self.twin.groups.remove(&name).is_some());
            }
            Op::Snapshot => {}
        }
    }
    fn add(&mut self, i: u8, kind: u8) {
        let last = self.twin.last;
        let id = if i.is_multiple_of(3) {
            Id::new(last.ms + 1, 0)
        } else {
            last.next().expect("not the greatest")
        };
        let value = vec![b'v'; usize::from(i) * usize::from(kind)];
        let fields: Fields = match kind {
            0 => vec![(b"f".to_vec(), i.to_string().into_bytes())],
            1 => vec![(b"f".to_vec(), value), (b"12".to_vec(), b"-7".to_vec())],
            2 => vec![(vec![i; 3], value); 2],
            _ => vec![(b"g".to_vec(), value)],
        };
        assert_eq!(append(&mut self.stream, last, &fields, &self.settings), Err(NotAdded::IdTooSmall));
        assert_eq!(append(&mut self.stream, id, &fields, &self.settings), Ok(()));
        self.twin.entries.insert(id, fields);
        (self.twin.last, self.twin.added) = (id, self.twin.added + 1);
    }
    fn trim(&mut self, trim: Trim) {
        // Approximate trimming removes whole blocks. It must remove no entry that exact trimming would keep.
        let before = self.stream.entries().len();
        let blocks = self.stream.entries().blocks();
        let whole = self.stream.trim(trim, true, 0);
        let gone = blocks - self.stream.entries().blocks();
        assert!(self.stream.entries().len() == before - whole && (whole > 0) == (gone > 0));
        let exact = self.stream.trim(trim, false, 0);
        let keep = |id: &Id, later: usize| match trim {
            Trim::MaxLen(max) => (later as u64) < max,
            Trim::MinId(min) => *id >= min,
        };
        let mut later = self.twin.entries.len();
        self.twin.entries.retain(|id, _| {
            later -= 1;
            keep(id, later)
        });
        assert_eq!(before - whole - exact, self.twin.entries.len() as u64);
    }
}

/// Checks that the running sums of a stream equal those of a stream that is rebuilt from its stored form.
fn check_sums(stream: &StreamValue) {
    let (mut again, mut last) = (StreamValue::new(), None);
    for (master, list) in stream.entries().raw_blocks() {
        let mut close = Vec::with_capacity(list.len());
        close.extend_from_slice(list);
        assert!(again.push_raw_block(master, close, &mut last), "{master} follows");
    }
    let entries = stream.entries();
    again.set_ids(entries.last_id(), Some(entries.added()), Some(entries.max_deleted_id()));
    let mut want = twin_of(stream);
    want.groups.clear();
    assert_eq!(twin_of(&again), want);
    // The heap bytes may differ only by the spare room in the last block and in nodes.
    let spare = 2 * 4096 + entries.blocks() * 64;
    let groups = stream.0.groups.heap_bytes() + stream.0.group_bytes;
    assert!(stream.heap_bytes() - groups <= again.heap_bytes() + spare, "{stream:?}");
    assert!(again.heap_bytes() <= stream.heap_bytes() + spare);
    let bytes: usize = stream.0.groups.iter().map(|(name, g)| group::name_bytes(name) + g.heap_bytes()).sum();
    let parts: usize = stream.0.groups.iter().map(|(_, g)| 1 + g.parts()).sum();
    assert_eq!((stream.0.group_bytes, stream.0.group_parts), (bytes, parts));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn does_what_maps_do(
        ops in prop::collection::vec(op(), 1..120),
        node_entries in prop_oneof![Just(100u64), Just(0), 1..8u64],
        node_bytes in prop_oneof![Just(4096u64), 64..512u64],
        bounds in prop::collection::vec((0..3000u64, 0..4u64), 4),
    ) {
        let settings = Settings::default();
        settings.stream_node_max_entries.store(node_entries, Relaxed);
        settings.stream_node_max_bytes.store(node_bytes, Relaxed);
        let mut both = StreamAndTwin { stream: StreamValue::new(), twin: Twin::default(), settings, clock: 1_000 };
        let mut snapshot = (both.stream.clone(), both.twin.clone());
        for op in &ops {
            both.run(op);
            if matches!(op, Op::Snapshot) {
                prop_assert_eq!(&twin_of(&snapshot.0), &snapshot.1);
                prop_assert_eq!(&twin_of(&both.stream), &both.twin);
                check_sums(&both.stream);
                snapshot = (both.stream.clone(), both.twin.clone());
            }
        }
        prop_assert_eq!(&twin_of(&snapshot.0), &snapshot.1);
        prop_assert_eq!(&twin_of(&both.stream), &both.twin);
        check_sums(&both.stream);
        let entries = both.stream.entries();
        prop_assert_eq!(entries.last_entry_id(), both.twin.entries.keys().last().copied());
        for pair in bounds.windows(2) {
            let [start, end] = [pair[0], pair[1]].map(|(ms, seq)| Id::new(ms, seq));
            let want: Vec<Id> = match start <= end {
                true => both.twin.entries.range(start..=end).map(|(id, _)| *id).collect(),
                false => Vec::new(),
            };
            let there: Vec<Id> = entries.range(start, end).map(|e| e.id()).collect();
            let mut back: Vec<Id> = entries.range_back(start, end).map(|e| e.id()).collect();
            back.reverse();
            let (weighed, bytes) = entries.weigh(start, end, u64::MAX);
            prop_assert!(weighed >= want.len() as u64 && bytes >= want.len());
            for max in [0, 7, u64::MAX] {
                prop_assert_eq!(entries.count(start, end, max), max.min(want.len() as u64));
            }
            prop_assert!(there == want && back == want);
            let found = entries.get(start).map(|e| fields_of(&e));
            prop_assert_eq!(found.as_ref(), both.twin.entries.get(&start));
        }
        let (mut cursor, mut walked) = (0, Vec::new());
        loop {
            cursor = both.stream.walk_texts(cursor, 5, &mut |field, value| {
                walked.push((field.expect("a field").to_vec(), value.to_vec()));
            });
            if cursor == 0 {
                break;
            }
        }
        prop_assert!(walked.iter().eq(both.twin.entries.values().flatten()));
        let mut pieces = 0;
        drop(snapshot);
        let parts = both.stream.parts();
        both.stream.into_pieces(&mut |_| pieces += 1);
        prop_assert!(pieces <= parts);
    }

    /// Whatever bytes are given as a stored block, they are refused, or the block is usable.
    #[test]
    fn a_mutated_block_is_refused_or_consistent(
        kinds in prop::collection::vec((0..30u8, 0..3u8), 1..20),
        deletes in prop::collection::vec(any::<u8>(), 0..4),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let (stream, twin) = (StreamValue::new(), Twin::default());
        let mut both = StreamAndTwin { stream, twin, settings: Settings::default(), clock: 1 };
        kinds.iter().for_each(|(i, kind)| both.add(*i, *kind));
        deletes.iter().for_each(|share| both.run(&Op::Delete(*share)));
        let raw: Vec<(Id, Vec<u8>)> = both.stream.entries().raw_blocks().map(|(m, l)| (m, l.to_vec())).collect();
        for (master, mut list) in raw {
            let place = at.index(list.len());
            list[place] = byte;
            let mut stream = StreamValue::new();
            if !stream.push_raw_block(master, list, &mut None) {
                prop_assert_eq!(stream.entries().blocks(), 0);
                continue;
            }
            let twin = twin_of(&stream);
            stream.entries().radix_nodes();
            prop_assert!(append(&mut stream, Id::MAX, &vec![(b"f".to_vec(), b"v".to_vec())], &both.settings).is_ok());
            for id in twin.entries.keys() {
                prop_assert!(stream.delete(*id));
            }
            prop_assert_eq!(stream.entries().len(), 1);
        }
    }
}

/// A stream of one block with these entries, and the bytes of the block.
fn one_block(ids: &[Id]) -> (StreamValue, Vec<u8>) {
    let (mut stream, settings) = (StreamValue::new(), Settings::default());
    let value = vec![(b"f".to_vec(), b"v".to_vec())];
    ids.iter().for_each(|id| append(&mut stream, *id, &value, &settings).expect("it is above"));
    let bytes = stream.entries().raw_blocks().next().expect("a block").1.to_vec();
    (stream, bytes)
}

/// A restored block may store the flags of an entry with more bytes than needed. They shrink when the entry is deleted.
#[test]
fn entries_with_wide_flags_are_trimmed() {
    /// Offset of the first entry's flags: the header, three small integers, the field and a zero are before them.
    const FLAGS_AT: usize = 6 + 2 + 2 + 2 + 3 + 2;
    let ids = [Id::new(1, 0), Id::new(1, 1), Id::new(1, 2)];
    let (_, mut list) = one_block(&ids);
    assert_eq!(list[FLAGS_AT..FLAGS_AT + 2], [2, 1]);
    list.splice(FLAGS_AT..FLAGS_AT + 2, [0xf4, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
    let total = list.len() as u32;
    list[..4].copy_from_slice(&total.to_le_bytes());
    let mut stream = StreamValue::new();
    assert!(stream.push_raw_block(ids[0], list, &mut None));
    assert_eq!(stream.trim(Trim::MaxLen(1), false, 0), 2);
    let left: Vec<(Id, usize)> =
        stream.entries().range(Id::MIN, Id::MAX).map(|e| (e.id(), e.len())).collect();
    assert_eq!(left, [(ids[2], 1)]);
    check_sums(&stream);
}

#[test]
fn blocks_without_entries_are_restored_in_order() {
    let dead = {
        let (mut stream, _) = one_block(&[Id::new(1, 0), Id::new(1, 1)]);
        assert!(stream.delete(Id::new(1, 1)));
        // This trim leaves the block, because the deleted entry is not below its ID.
        assert_eq!(stream.trim(Trim::MinId(Id::new(1, 1)), false, 0), 1);
        stream.entries().raw_blocks().next().expect("a block").1.to_vec()
    };
    let live = one_block(&[Id::new(1, 0), Id::new(1, 1)]).1;
    let (mut stream, mut last) = (StreamValue::new(), None);
    for (ms, list, last_entry) in
        [(1, &dead, None), (2, &dead, None), (3, &live, Some(Id::new(3, 1))), (4, &dead, Some(Id::new(3, 1)))]
    {
        assert!(stream.push_raw_block(Id::new(ms, 0), list.clone(), &mut last), "{ms}");
        assert_eq!(last, last_entry);
    }
    assert_eq!((stream.entries().len(), stream.entries().first_id()), (2, Id::new(3, 0)));
    // A block that is there already, and one before the last block.
    for ms in [4, 3, 1] {
        assert!(!stream.push_raw_block(Id::new(ms, 0), dead.clone(), &mut last), "{ms}");
    }
    assert_eq!(stream.entries().blocks(), 4);
}

#[test]
fn a_snapshot_of_a_huge_stream_costs_a_pointer_and_a_write_a_path() {
    let settings = Settings::default();
    let mut stream = StreamValue::new();
    let value = vec![(b"field".to_vec(), vec![b'x'; 16])];
    (1..=50_000).for_each(|i| append(&mut stream, Id::new(i, 0), &value, &settings).expect("it is above"));
    let per_entry = stream.heap_bytes() / 50_000;
    assert!((20..=32).contains(&per_entry), "{per_entry} bytes an entry; redis-server has 32");
    let snapshot = stream.clone();
    assert_eq!(snapshot.heap_bytes(), stream.heap_bytes());
    let counted = allocation_counter::measure(|| {
        append(&mut stream, Id::new(50_001, 0), &value, &settings).expect("it is above");
    });
    assert!(counted.bytes_total < 32 * 1024, "{counted:?}");
    assert_eq!((snapshot.entries().len(), stream.entries().len()), (50_000, 50_001));
    let pending = allocation_counter::measure(|| {
        stream.create_group(b"g", Id::MIN, Some(0));
        stream.change_group(b"g", |group, entries| {
            let consumer = group.see_consumer(b"c", 1);
            entries.range(Id::MIN, Id::MAX).for_each(|entry| group.deliver(entry.id(), consumer, 1));
        });
    });
    let per_entry = pending.bytes_current / 50_001;
    assert!((40..=70).contains(&per_entry), "{per_entry} bytes a pending entry; redis-server has 140");
}
