//! RX.INDEX and what it does for RX.GREP: the same results as without, whatever is written in between.

use super::{World, text};
use proptest::prelude::*;
use strand_wire::client::Value;

fn sorted(value: Value) -> Vec<String> {
    let Value::Array(all) = value else { panic!("{value:?}") };
    let mut keys: Vec<String> = all.iter().map(text).collect();
    keys.sort();
    keys
}

fn info(w: &World, name: &str) -> String {
    let info = w.search.info();
    info.into_iter().find(|(n, _)| n == name).map(|(_, v)| v).expect(name)
}

fn figure(w: &World, name: &str) -> i64 {
    let Value::Array(all) = w.line("RX.INDEX INFO i") else { panic!("no map") };
    let at = all.chunks(2).find(|pair| text(&pair[0]) == name).expect(name);
    match &at[1] {
        Value::Int(n) => *n,
        other => panic!("{name}: {other:?}"),
    }
}

/// Lets the background finish.
fn settle(w: &World) {
    for _ in 0..1000 {
        w.search.tick(w.now_ms);
        if figure(w, "scanning") == 0 {
            return;
        }
    }
    panic!("the first scan does not end");
}

#[test]
fn an_index_follows_what_is_written() {
    let mut w = World::new();
    w.set("mail:1", b"see ticket-1234");
    w.hset("mail:2", &[("subject", "Ticket-77"), ("body", "nothing")]);
    w.set("other:1", b"ticket-1 elsewhere");
    w.ok("RX.INDEX CREATE i PREFIX mail:");
    let grep = |w: &World, line: &str| sorted(w.line(line));
    let none = Vec::<String>::new();
    assert_eq!(grep(&w, "RX.GREP VALUES ticket-[0-9] PREFIX mail:"), ["mail:1"], "before the scan is done");
    assert_eq!(info(&w, "regex_greps_indexed"), "0");
    settle(&w);
    assert_eq!((figure(&w, "documents"), figure(&w, "text_bytes")), (2, 31));
    assert_eq!(grep(&w, "RX.GREP VALUES ticket-[0-9] PREFIX mail:"), ["mail:1"]);
    assert_eq!(grep(&w, "RX.GREP VALUES TICKET NOCASE PREFIX mail:"), ["mail:1", "mail:2"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "2");
    // What it does not cover, or cannot help with.
    assert_eq!(grep(&w, "RX.GREP VALUES ticket-[0-9]"), ["mail:1", "other:1"]);
    assert_eq!(grep(&w, "RX.GREP VALUES [0-9]{2} PREFIX mail:"), ["mail:1", "mail:2"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "2");
    // Every kind of write is seen by the next grep.
    w.set("mail:3", b"a new ticket-9");
    w.set("mail:1", b"no more");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:3"]);
    w.hset("mail:2", &[("body", "ticket-5")]);
    w.rename("mail:3", "mail:4");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:2", "mail:4"]);
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail: FIELD body"), ["mail:2"]);
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail: FIELD subject"), none);
    w.hdel("mail:2", "body");
    w.del("mail:4");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), none);
    w.set("mail:5", b"ticket-6");
    w.expire_at("mail:5", Some(w.now_ms + 10));
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:5"]);
    w.now_ms += 10;
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), none);
    // An emptied database empties it, and it goes on.
    drop(w.keyspace.flush(0));
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), none);
    w.set("mail:6", b"ticket-7");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:6"]);
    settle(&w);
    assert_eq!(figure(&w, "documents"), 1);
    assert_eq!(w.line("RX.INDEX LIST"), Value::Array(vec![Value::Bulk(b"i".to_vec())]));
    let bytes = w.search.indexes_bytes();
    w.ok("RX.INDEX DROP i");
    assert!(bytes > 256 << 10 && w.search.indexes_bytes() == 0, "{bytes}");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:6"]);
}

#[test]
fn an_index_of_one_field_and_one_of_all() {
    let w = World::new();
    w.hset("mail:1", &[("subject", "the ticket"), ("body", "an error")]);
    w.hset("mail:2", &[("subject", "the error"), ("body", "a ticket")]);
    let many: Vec<(String, String)> =
        (0..200).map(|i| (format!("f{i}"), format!("value {i} ticket"))).collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|(f, v)| (f.as_str(), v.as_str())).collect();
    w.hset("mail:3", &pairs);
    w.set("mail:4", b"ticket");
    w.ok("RX.INDEX CREATE i PREFIX mail: FIELD subject");
    settle(&w);
    assert_eq!(figure(&w, "documents"), 2, "two have the field");
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket FIELD subject PREFIX mail:")), ["mail:1"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "1");
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket PREFIX mail:")).len(), 4);
    assert_eq!(info(&w, "regex_greps_indexed"), "1");
    w.ok("RX.INDEX CREATE all PREFIX ''");
    (0..50).for_each(|_| w.search.tick(w.now_ms));
    assert_eq!(sorted(w.line("RX.GREP VALUES 'value 199' PREFIX mail:")), ["mail:3"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "2");
}

#[test]
fn refusals() {
    let mut w = World::new();
    w.ok("RX.INDEX CREATE i PREFIX a");
    for (line, want) in [
        ("RX.INDEX CREATE i PREFIX a", "Index already exists"),
        ("RX.INDEX CREATE j PREFIX", "ERR wrong number of arguments for 'rx.index|create' command"),
        ("RX.INDEX CREATE j SUFFIX a", "ERR Unknown argument `SUFFIX`"),
        ("RX.INDEX CREATE j PREFIX a FIELD", "ERR FIELD needs an argument"),
        ("RX.INDEX CREATE j PREFIX a FOO b", "ERR Unknown argument `FOO`"),
        ("RX.INDEX CREATE j PREFIX a FIELD b c", "ERR Unknown argument `c`"),
        ("RX.INDEX CREATE '' PREFIX a", "ERR The name must have 1 to 256 bytes"),
        ("RX.INDEX DROP j", "Unknown index name"),
        ("RX.INDEX INFO j", "Unknown index name"),
        ("RX.GREP KEYS x FIELD f", "ERR FIELD goes with VALUES only"),
    ] {
        assert_eq!(w.error(line), want, "{line}");
    }
    for i in 1..64 {
        w.ok(&format!("RX.INDEX CREATE n{i} PREFIX a"));
    }
    assert_eq!(w.error("RX.INDEX CREATE n64 PREFIX a"), "Too many indexes: at most 64 are allowed");
    w.db = 3;
    let refusal = "ERR Cannot create an index on a database other than 0";
    assert_eq!(w.error("RX.INDEX CREATE j PREFIX a"), refusal);
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "abc", "cab", "bca", "a", "b", ".", "[ab]", "[a-c]{2}", "aab", "bcc", "^", "$", "(?i:ABC)", r"\bab",
        "\u{e9}a",
    ]);
    leaf.prop_map(String::from).prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|v| v.concat()),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|v| format!("(?:{})", v.join("|"))),
            (inner, prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "{2,}"]))
                .prop_map(|(p, q)| format!("(?:{p}){q}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn greps_find_the_same_with_and_without(
        texts in prop::collection::vec("[abcABC\u{e9}\n]{0,12}", 1..40),
        edits in prop::collection::vec((0usize..40, "[abcABC\u{e9}]{0,12}", 0u8..4), 0..20),
        patterns in prop::collection::vec(pattern(), 1..12),
        nocase: bool,
    ) {
        let (with, without) = (World::new(), World::new());
        with.ok("RX.INDEX CREATE i PREFIX k");
        for w in [&with, &without] {
            texts.iter().enumerate().for_each(|(i, t)| w.set(&format!("k{i}"), t.as_bytes()));
        }
        settle(&with);
        let mut edits = edits.iter();
        for p in &patterns {
            let line = ["RX.GREP", "VALUES", p, "PREFIX", "k"].into_iter().chain(nocase.then_some("NOCASE"));
            let line: Vec<&str> = line.collect();
            prop_assert_eq!(sorted(with.run(&line)), sorted(without.run(&line)), "{}", p);
            let Some((i, text, how)) = edits.next() else { continue };
            for w in [&with, &without] {
                match how {
                    0 => w.del(&format!("k{i}")),
                    1 => w.hset(&format!("kh{i}"), &[("a", text), ("b", "abcabc")]),
                    _ => w.set(&format!("k{i}"), text.as_bytes()),
                }
            }
        }
    }
}
