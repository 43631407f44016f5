//! The shape of replies in both protocols.

use super::World;
use crate::document::INDEXED_KEY_BYTES_MAX;
use strand_wire::client::Value;
use strand_wire::reply::Protocol;

fn bulk(s: &str) -> Value {
    Value::Bulk(s.as_bytes().to_vec())
}
fn simple(s: &str) -> Value {
    Value::Simple(s.as_bytes().to_vec())
}

fn world(protocol: Protocol) -> World {
    let mut w = World::new();
    w.protocol = protocol;
    w.hset("k:1", &[("t", "dog"), ("n", "2")]);
    w.ok("FT.CREATE i SCHEMA t TEXT n NUMERIC SORTABLE");
    w
}

#[test]
fn resp2_is_flat() {
    let w = world(Protocol::Resp2);
    assert_eq!(
        w.line("FT.SEARCH i * SORTBY n WITHSORTKEYS WITHSCORES RETURN 1 t"),
        Value::Array(vec![
            Value::Int(1),
            bulk("k:1"),
            bulk("1"),
            bulk("#2"),
            Value::Array(vec![bulk("t"), bulk("dog")])
        ])
    );
    assert_eq!(w.line("FT.SEARCH i cat"), Value::Array(vec![Value::Int(0)]));
    for (number, key) in [("1e308", "#1e+308"), ("0.1", "#0.10000000000000001"), ("-3", "#-3")] {
        w.hset("k:1", &[("n", number)]);
        let expected = Value::Array(vec![Value::Int(1), bulk("k:1"), bulk(key)]);
        assert_eq!(w.line("FT.SEARCH i * SORTBY n WITHSORTKEYS NOCONTENT"), expected);
    }
}

#[test]
fn resp3_is_a_map() {
    let w = world(Protocol::Resp3);
    let hit = Value::Map(vec![
        (simple("id"), bulk("k:1")),
        (simple("score"), Value::Double(1.0)),
        (simple("sortkey"), bulk("#2")),
        (simple("extra_attributes"), Value::Map(vec![(bulk("t"), bulk("dog"))])),
        (simple("values"), Value::Array(vec![])),
    ]);
    assert_eq!(
        w.line("FT.SEARCH i * SORTBY n WITHSORTKEYS WITHSCORES RETURN 1 t"),
        Value::Map(vec![
            (simple("attributes"), Value::Array(vec![])),
            (simple("total_results"), Value::Int(1)),
            (simple("format"), simple("STRING")),
            (simple("results"), Value::Array(vec![hit])),
            (simple("warning"), Value::Array(vec![])),
        ])
    );
    assert_eq!(w.line("FT._LIST"), Value::Set(vec![bulk("i")]));
    let Value::Map(info) = w.line("FT.INFO i") else { panic!() };
    assert!(info.contains(&(simple("num_docs"), Value::Double(1.0))), "{info:?}");
    let errors = |failures, why: &str, key: &str| {
        let pairs = vec![
            (simple("indexing failures"), Value::Double(failures)),
            (simple("last indexing error"), bulk(why)),
            (simple("last indexing error key"), bulk(key)),
        ];
        (simple("Index Errors"), Value::Map(pairs))
    };
    assert!(info.contains(&errors(0.0, "N/A", "N/A")), "{info:?}");
    w.hset("k:2", &[("n", "two")]);
    let Value::Map(info) = w.line("FT.INFO i") else { panic!() };
    assert!(info.contains(&errors(1.0, "the value of the field n is not a number", "k:2")), "{info:?}");
    let long = format!("k:{}", "x".repeat(INDEXED_KEY_BYTES_MAX));
    w.hset(&long, &[("n", "2")]);
    let Value::Map(info) = w.line("FT.INFO i") else { panic!() };
    let why = "the key has 61442 bytes, and at most 61440 are possible";
    assert!(info.contains(&errors(2.0, why, "N/A")), "{info:?}");
}
