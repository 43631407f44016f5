//! RX.GREP over a real keyspace.

use super::{Prefix, Stored, World, only, text};
use crate::grep::{Haystack, copy_haystack};
use strand_commands::spec::Access;
use strand_keyspace::types::stream::{Id, StreamValue};
use strand_wire::client::Value;

fn world() -> World {
    let w = World::new();
    w.set("mail:1", b"subject: ticket-1234\nbody \xff\xfe");
    w.set("mail:2", b"nothing here");
    w.set("count", b"1234");
    w.hset("mail:3", &[("subject", "Re: TICKET-5678"), ("body", "line one\nsee ticket-5678 now\nend")]);
    w
}

fn sorted(value: Value) -> Vec<String> {
    let Value::Array(all) = value else { panic!("{value:?}") };
    let mut keys: Vec<String> = all.iter().map(text).collect();
    keys.sort();
    keys
}

#[test]
fn rx_grep_finds_keys_and_values() {
    let w = world();
    assert_eq!(sorted(w.line("RX.GREP KEYS ^mail:")), ["mail:1", "mail:2", "mail:3"]);
    assert_eq!(sorted(w.line("RX.GREP keys [13]$ PREFIX mail:")), ["mail:1", "mail:3"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket-[0-9]{4}")), ["mail:1", "mail:3"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES 1234")), ["count", "mail:1"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES ^TICKET NOCASE")), Vec::<String>::new());
    assert_eq!(sorted(w.line("RX.GREP VALUES TICKET-5 NOCASE PREFIX mail:")), ["mail:3"]);
    assert_eq!(sorted(w.line(r"RX.GREP VALUES \xff\xfe$")), ["mail:1"]);
    assert_eq!(sorted(w.line("RX.GREP KEYS . LIMIT 2")).len(), 2);
    assert_eq!(sorted(w.line("RX.GREP VALUES nothing PREFIX none")), Vec::<String>::new());
}

#[test]
fn unreadable_keys_are_not_searched() {
    let mut w = world();
    w.rights = only(Prefix("mail:3", Access::READ));
    assert_eq!(sorted(w.line("RX.GREP KEYS .")), ["mail:3"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket-[0-9]{4}")), ["mail:3"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES 1234")), Vec::<String>::new());
    w.rights = only(Prefix("", Access::WRITE));
    assert_eq!(sorted(w.line("RX.GREP KEYS .")), Vec::<String>::new());
    // Keys that an index found are filtered by rights, too.
    w.rights = None;
    w.ok("RX.INDEX CREATE trigrams PREFIX mail:");
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket-[0-9]{4} PREFIX mail:")), ["mail:1", "mail:3"]);
    w.rights = only(Prefix("mail:3", Access::READ));
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket-[0-9]{4} PREFIX mail:")), ["mail:3"]);
}

#[test]
fn with_values_returns_field_and_line() {
    let w = world();
    let row = |key: &str, field: Value, line: &[u8]| {
        Value::Array(vec![Value::Bulk(key.into()), field, Value::Bulk(line.to_vec())])
    };
    assert_eq!(
        w.line("RX.GREP VALUES ticket-[0-9]+ WITHVALUES PREFIX mail:3"),
        Value::Array(vec![row("mail:3", Value::Bulk(b"body".to_vec()), b"see ticket-5678 now")])
    );
    assert_eq!(
        w.line("RX.GREP VALUES ticket-[0-9]+ WITHVALUES PREFIX mail:1"),
        Value::Array(vec![row("mail:1", Value::Null, b"subject: ticket-1234")])
    );
}

#[test]
fn large_hashes_and_many_keys() {
    let w = World::new();
    let fields: Vec<(String, String)> = (0..3000).map(|i| (format!("f{i}"), format!("value {i}."))).collect();
    let pairs: Vec<(&str, &str)> = fields.iter().map(|(f, v)| (f.as_str(), v.as_str())).collect();
    w.hset("large", &pairs);
    (0..1000).for_each(|i| w.set(&format!("k{i}"), format!("value {i}!").as_bytes()));
    assert_eq!(sorted(w.line("RX.GREP VALUES '2999[.]'")), ["large"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES value")).len(), 1001, "each key once");
    assert_eq!(sorted(w.line("RX.GREP VALUES '99[!]$'")).len(), 10);
}

#[test]
fn streams_are_searched_in_a_clone() {
    let (w, mut stream) = (World::new(), StreamValue::new());
    for i in 0..3 {
        let value = format!("value {i}.");
        let pairs = [(&b"field"[..], value.as_bytes())].into_iter();
        stream.append(Id::new(1, i), pairs, w.keyspace.settings()).expect("a new entry");
    }
    let key = w.keyspace.key(b"events");
    w.keyspace.lock(&[key.hash], w.now_ms).db(0).insert(&key, Stored::Stream(stream), None);
    assert_eq!(sorted(w.line("RX.GREP VALUES 'value 2'")), ["events"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES 'value 3'")), Vec::<String>::new());
    let mut locked = w.keyspace.lock(&[key.hash], w.now_ms);
    let haystack = locked.db(0).peek(&key).and_then(|record| copy_haystack(record, None));
    // A walk visits all entries of a millisecond together, so it must not hold the shard.
    assert!(matches!(haystack, Some(Haystack::Large { clone: Some(_), .. })));
}

#[test]
fn expired_fields_are_not_searched() {
    // The first look-up of a key removes its expired fields, so each search has its own keys.
    for line in ["RX.GREP VALUES secret FIELD body", "RX.GREP VALUES secret", "RX.GREP KEYS gone"] {
        let mut w = world();
        for (key, field) in [("mail:3", "body"), ("gone", "body"), ("gone", "subject")] {
            w.hset(key, &[(field, "a secret")]);
            w.expire_field_at(key, field, w.now_ms + 1000);
        }
        assert!(sorted(w.line(line)).contains(&"gone".to_string()), "{line}");
        w.now_ms += 1000;
        assert_eq!(sorted(w.line(line)), Vec::<String>::new(), "{line}");
        assert_eq!(sorted(w.line("RX.GREP VALUES TICKET-5678")), ["mail:3"], "the other field stays");
    }
}

#[test]
fn databases_expiry_and_cancelling() {
    let mut w = world();
    w.expire_at("mail:2", Some(w.now_ms + 1000));
    w.now_ms += 1000;
    assert_eq!(sorted(w.line("RX.GREP KEYS ^mail:")), ["mail:1", "mail:3"]);
    w.db = 5;
    assert_eq!(sorted(w.line("RX.GREP KEYS .")), Vec::<String>::new());
    w.db = 0;
    (0..500).for_each(|i| w.set(&format!("k{i}"), b"x"));
    w.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(w.error("RX.GREP KEYS nomatch"), "Cancelled");
}

#[test]
fn wrong_arguments_of_rx_grep_are_named_in_errors() {
    let w = world();
    for (line, want) in [
        ("RX.GREP NAMES x", "ERR Unknown argument `NAMES`: KEYS or VALUES is expected"),
        ("RX.GREP KEYS x BOGUS", "ERR Unknown argument `BOGUS`"),
        ("RX.GREP KEYS x LIMIT", "ERR LIMIT needs an argument"),
        ("RX.GREP KEYS x LIMIT 0", "ERR LIMIT is not an integer or out of range"),
        ("RX.GREP KEYS x PREFIX", "ERR PREFIX needs an argument"),
        ("RX.GREP KEYS x WITHVALUES", "ERR WITHVALUES goes with VALUES only"),
        ("RX.GREP KEYS a(b", "ERR Bad pattern at offset 1: unclosed group"),
    ] {
        assert_eq!(w.error(line), want, "{line}");
    }
}

#[test]
fn counters_are_shown() {
    let w = world();
    w.line("RX.GREP KEYS mail");
    let info = w.search.info();
    let get = |name: &str| info.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(get("regex_greps"), Some("1"));
    assert_eq!(get("regex_searches"), Some("4"));
    assert_eq!(get("regex_give_ups"), Some("0"));
}
