//! Values of each type are written and read: the digests must be equal, and contradictory bytes must be refused.

use super::ValueBuilder;
use super::build::{Builder, Serial};
use crate::fixture::START_MS;
use strand_keyspace::types::list::{End, ListValue};
use strand_keyspace::types::stream::{Id, StreamValue};
use strand_keyspace::types::zset::ZSetValue;
use strand_keyspace::{Collection, Settings};
use strand_rdb::digest::{DebugDigest, ValueDigest};
use strand_rdb::value::{StreamEntries, ValueKind, ValuePart};
use strand_rdb::write::Writer;
use strand_rdb::{Text, dump};

/// Encodes a value, and builds it again from the bytes.
fn through_bytes<T: Serial>(value: &T) -> T {
    let settings = Settings::default();
    let mut writer = Writer::new(true);
    writer.value_type(value.value_type());
    value.write(&mut writer);
    let payload = dump::seal(writer, strand_rdb::VERSION_WRITTEN);
    let mut reader = dump::open(&payload).unwrap().value(StreamEntries::Nodes).unwrap();
    assert_eq!(reader.kind(), T::KIND);
    let mut builder = T::Builder::default();
    while let Some(part) = reader.next().unwrap() {
        builder.add_part(part, &settings).unwrap();
    }
    let again = builder.finish(&settings).unwrap();
    assert_eq!(digest(&again), digest(value));
    again
}

fn digest<T: Serial>(value: &T) -> DebugDigest {
    let mut digest = ValueDigest::new(T::KIND);
    value.add_to(&mut digest);
    digest.finish(false)
}

#[test]
fn lists_survive_their_bytes() {
    for (n, len) in [(0, 0), (1, 5), (50, 100), (5000, 20), (40, 9000), (2, 70_000)] {
        let mut value = ListValue::new();
        (0..n).for_each(|i| value.push(End::Back, &*format!("{i}{}", "x".repeat(len)).into_bytes()));
        (0..n / 2).for_each(|i| value.push(End::Front, &*i.to_string().into_bytes()));
        let again = through_bytes(&value);
        let all = |list: &ListValue| list.iter(0).map(|e| e.to_vec()).collect::<Vec<_>>();
        assert_eq!(all(&again), all(&value));
    }
}

/// A listpack has at most 4 GiB. The limit of this test is small, so that its elements are, too.
#[test]
fn large_elements_of_a_list_are_nodes_of_their_own() {
    const LARGE: usize = 10_000;
    let lens = [LARGE, 3, 4, LARGE - 1, LARGE, LARGE + 1, 5];
    let mut value = ListValue::new();
    lens.iter().for_each(|len| value.push(End::Back, &*vec![b'x'; *len]));
    let mut writer = Writer::new(false);
    writer.value_type(value.value_type());
    super::list::write(&value, &mut writer, LARGE);
    let payload = dump::seal(writer, strand_rdb::VERSION_WRITTEN);
    let mut reader = dump::open(&payload).unwrap().value(StreamEntries::Nodes).unwrap();
    let mut again = Vec::new();
    while let Some(part) = reader.next().unwrap() {
        let ValuePart::Element(element) = part else { panic!("a list has elements") };
        again.push(element.len());
    }
    assert_eq!(again, lens);
    // A node that is one element begins with 1, and its length, of four bytes here, follows.
    let plain = |len: usize| [&[1, 0x40 | (len >> 8) as u8, len as u8][..], b"xxxx"].concat();
    let found = |len: usize| payload.windows(7).filter(|bytes| *bytes == plain(len)).count();
    assert_eq!([LARGE - 1, LARGE, LARGE + 1].map(found), [0, 2, 1]);
}

#[test]
fn sorted_sets_survive_their_bytes() {
    let settings = Settings::default();
    for n in [0usize, 1, 100, 129, 5000] {
        let mut value = ZSetValue::new();
        for i in 0..n {
            let score = [i as f64 / 3.0, -(i as f64), f64::INFINITY, 1e300][i % 4];
            value.set(&*format!("member{i}").into_bytes(), score, &settings);
        }
        let again = through_bytes(&value);
        let all = |set: &ZSetValue| set.iter(0).map(|(m, s)| (m.to_vec(), s)).collect::<Vec<_>>();
        assert_eq!(all(&again), all(&value));
        assert_eq!(again.encoding(), value.encoding());
    }
    let mut twice = <ZSetValue as Serial>::Builder::default();
    let mut add =
        |score| twice.add_part(ValuePart::Scored { member: Text::Borrowed(b"m"), score }, &settings);
    add(1.0).unwrap();
    add(1.0).unwrap_err();
    add(2.0).unwrap_err();
}

/// The member that makes the set large has the lowest score, so a file has it last.
#[test]
fn a_large_sorted_set_keeps_its_minus_zero() {
    let (settings, long) = (Settings::default(), [b'x'; 100]);
    let mut value = ZSetValue::new();
    value.set(&long[..], -1.0, &settings);
    value.set(&b"a"[..], -0.0, &settings);
    value.set(&b"b"[..], 0.0, &settings);
    let again = through_bytes(&value);
    let signs: Vec<_> = again.iter(0).map(|(_, score)| score.is_sign_negative()).collect();
    assert_eq!((again.encoding(), signs), ("skiplist", vec![true, true, false]));
}

/// A builder refuses the parts of another type, so a mistake in a reader loses no data silently.
#[test]
fn parts_of_another_type_are_refused() {
    let text = || Text::Borrowed(b"text");
    let parts = || {
        [
            (ValueKind::String, ValuePart::String(text())),
            (ValueKind::List, ValuePart::Element(text())),
            (ValueKind::Set, ValuePart::Member(text())),
            (ValueKind::SortedSet, ValuePart::Scored { member: text(), score: 1.0 }),
            (ValueKind::Hash, ValuePart::Field { field: text(), value: text(), expires_at_ms: None }),
        ]
    };
    let kinds = parts().map(|(kind, _)| kind).into_iter().chain([ValueKind::Stream]);
    for kind in kinds {
        for (of, part) in parts() {
            let added = ValueBuilder::new(kind).unwrap().add(part, &Settings::default());
            assert_eq!(added.is_ok(), of == kind, "a part of a {} in a {}", of.type_name(), kind.type_name());
        }
    }
}

/// A stream with some thousand entries, some of them deleted, and with two groups that have pending entries.
fn a_stream() -> StreamValue {
    let (settings, mut value) = (Settings::default(), StreamValue::new());
    for i in 0..3000u64 {
        let fields = [(&b"name"[..], &b"value"[..]), (b"n", b"12")];
        let number = i.to_string();
        let other = [(&b"other"[..], number.as_bytes())];
        let id = Id::new(1000 + i, i % 3);
        let done = match i % 5 {
            0 => value.append(id, other.into_iter(), &settings),
            _ => value.append(id, fields.into_iter(), &settings),
        };
        done.unwrap();
    }
    (0..3000).step_by(7).for_each(|i| assert!(value.delete(Id::new(1000 + i, i % 3))));
    assert!(value.create_group(b"first", Id::new(1100, 1), None));
    assert!(value.create_group(b"second", Id::new(2000, 0), Some(500)));
    value.change_group(b"second", |group, _| {
        let (a, b) = (group.see_consumer(b"a", START_MS), group.see_consumer(b"b", START_MS + 1));
        (1100..1200)
            .for_each(|ms| group.deliver(Id::new(ms, 0), if ms % 2 == 0 { a } else { b }, START_MS + 2));
    });
    value
}

#[test]
fn streams_survive_their_bytes() {
    for value in [StreamValue::new(), a_stream()] {
        let again = through_bytes(&value);
        let bytes = |stream: &StreamValue| {
            let mut writer = Writer::new(false);
            stream.write(&mut writer);
            writer.take()
        };
        assert_eq!(bytes(&again), bytes(&value), "state, groups and blocks");
        assert_eq!(again.parts(), value.parts());
    }
}

#[test]
fn streams_that_contradict_themselves_are_refused() {
    let id = |ms| strand_rdb::value::StreamId { ms, seq: 0 };
    let name = || Text::Borrowed(b"name");
    let group = || ValuePart::Group { name: name(), last_id: id(1), entries_read: None };
    let consumer = || ValuePart::Consumer { name: name(), seen_at_ms: 1, active_at_ms: None };
    let pending = |ms| ValuePart::Pending { id: id(ms), delivered_at_ms: 1, deliveries: 1 };
    let built = |parts: Vec<ValuePart<'_>>| {
        let (settings, mut builder) = (Settings::default(), <StreamValue as Serial>::Builder::default());
        parts.into_iter().try_for_each(|part| builder.add_part(part, &settings))?;
        builder.finish(&settings).map(drop)
    };
    built(vec![
        group(),
        pending(1),
        pending(2),
        consumer(),
        ValuePart::ConsumerPending { id: id(2) },
        ValuePart::ConsumerPending { id: id(1) },
    ])
    .unwrap();
    for parts in [
        vec![group(), group()],
        vec![group(), consumer(), consumer()],
        vec![group(), pending(1)],
        vec![group(), pending(1), consumer()],
        vec![group(), consumer(), ValuePart::ConsumerPending { id: id(1) }],
        vec![
            group(),
            pending(1),
            consumer(),
            ValuePart::ConsumerPending { id: id(1) },
            ValuePart::ConsumerPending { id: id(1) },
        ],
        vec![ValuePart::StreamNode { id: id(5), listpack: Text::Borrowed(b"\x07\0\0\0\0\0\xff") }],
        vec![ValuePart::Element(name())],
    ] {
        built(parts).unwrap_err();
    }
}
