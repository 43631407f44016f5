//! RX.INDEX and RX.GREP: the results with and without an index are equal, with writes of every kind in between.

use super::{World, text};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use strand_keyspace::{Collection, Value as Stored};
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

/// Runs background work until none is left.
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
fn an_index_follows_writes() {
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
    // The index does not cover these searches, or cannot speed them up.
    assert_eq!(grep(&w, "RX.GREP VALUES ticket-[0-9]"), ["mail:1", "other:1"]);
    assert_eq!(grep(&w, "RX.GREP VALUES [0-9]{2} PREFIX mail:"), ["mail:1", "mail:2"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "2");
    // The next grep sees every kind of write.
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
    // A flush empties the index, and the index continues to follow.
    drop(w.keyspace.flush(0));
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), none);
    w.set("mail:6", b"ticket-7");
    assert_eq!(grep(&w, "RX.GREP VALUES ticket PREFIX mail:"), ["mail:6"]);
    settle(&w);
    assert_eq!(figure(&w, "documents"), 1);
    assert_eq!(w.line("RX.INDEX LIST"), Value::Array(vec![Value::Bulk(b"i".to_vec())]));
    let bytes = w.search.trigrams_bytes();
    assert_eq!(w.search.indexes_bytes(), 0, "there is no text index");
    w.ok("RX.INDEX DROP i");
    assert!(bytes > 256 << 10 && w.search.trigrams_bytes() == 0, "{bytes}");
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
    for _ in 0..50 {
        w.search.tick(w.now_ms);
    }
    assert_eq!(sorted(w.line("RX.GREP VALUES 'value 199' PREFIX mail:")), ["mail:3"]);
    assert_eq!(info(&w, "regex_greps_indexed"), "2");
}

#[test]
fn wrong_arguments_of_rx_index_are_named_in_errors() {
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
        ("RX.INDEX CREATE j PREFIX a PREFIX b", "ERR Unknown argument `PREFIX`"),
        ("RX.INDEX CREATE j", "ERR wrong number of arguments for 'rx.index|create' command"),
        ("RX.INDEX LIST x", "ERR wrong number of arguments for 'rx.index|list' command"),
        ("RX.INDEX DROP", "ERR wrong number of arguments for 'rx.index|drop' command"),
        ("RX.INDEX INFO i x", "ERR wrong number of arguments for 'rx.index|info' command"),
        ("RX.INDEX DROP j", "Unknown index name"),
        ("RX.INDEX INFO j", "Unknown index name"),
        ("RX.GREP KEYS x FIELD f", "ERR FIELD goes with VALUES only"),
    ] {
        assert_eq!(w.error(line), want, "{line}");
    }
    let long = "x".repeat(4097);
    assert_eq!(
        w.error(&format!("RX.INDEX CREATE j PREFIX {long}")),
        "ERR The prefix must have at most 4096 bytes"
    );
    assert_eq!(
        w.error(&format!("RX.INDEX CREATE j PREFIX a FIELD {long}")),
        "ERR The field's name must have at most 4096 bytes"
    );
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

/// A change of a key in the test.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Set,
    Hset,
    /// Sets the fields of a hash with enough fields to be read in slices.
    HsetMany,
    Hdel,
    Del,
    Rename,
    Copy,
    Expire,
    /// Moves the clock past the expiry times.
    Wait,
    Flush,
    Swap,
    Tick,
    DropIndex,
    CreateIndex,
}

const EDITS: [Edit; 20] = [
    Edit::Set,
    Edit::Set,
    Edit::Set,
    Edit::Hset,
    Edit::Hset,
    Edit::HsetMany,
    Edit::Hdel,
    Edit::Hdel,
    Edit::Del,
    Edit::Rename,
    Edit::Rename,
    Edit::Copy,
    Edit::Expire,
    Edit::Wait,
    Edit::Flush,
    Edit::Swap,
    Edit::Tick,
    Edit::Tick,
    Edit::DropIndex,
    Edit::CreateIndex,
];

/// Applies an edit to a world with indexes or to one without.
fn edit(w: &mut World, (edit, from, to, text): &(Edit, usize, usize, String), has_indexes: bool) {
    let key = |n: &usize| format!("{}{n}", if n % 9 == 8 { "other" } else { "k" });
    let (from, to) = (key(from), key(to));
    let kind = {
        let key = w.keyspace.key(from.as_bytes());
        let mut locked = w.keyspace.lock(&[key.hash], w.now_ms);
        locked.db(0).peek(&key).map(|r| (r.expire_at_ms(), r.value().to_value()))
    };
    match edit {
        Edit::Set => w.set(&from, text.as_bytes()),
        Edit::Hset => w.hset(&from, &[("a", text), ("b", "abcabc")]),
        Edit::HsetMany => {
            let names: Vec<String> = (0..70).map(|i| format!("f{i}")).collect();
            let mut pairs: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "aab")).collect();
            pairs.push(("a", text));
            w.hset(&from, &pairs);
        }
        Edit::Hdel if matches!(&kind, Some((_, Stored::Hash(hash))) if hash.len() > 1) => w.hdel(&from, "a"),
        Edit::Del => w.del(&from),
        Edit::Rename if kind.is_some() && from != to => w.rename(&from, &to),
        Edit::Copy => {
            if let Some((expire_at_ms, value)) = kind {
                let key = w.keyspace.key(to.as_bytes());
                w.keyspace.lock(&[key.hash], w.now_ms).db(0).insert(&key, value, expire_at_ms);
            }
        }
        Edit::Expire => w.expire_at(&from, Some(w.now_ms + 5)),
        Edit::Wait => w.now_ms += 10,
        Edit::Flush => drop(w.keyspace.flush(0)),
        Edit::Swap => w.keyspace.swap(0, 1),
        Edit::Tick if has_indexes => {
            w.search.tick(w.now_ms);
        }
        Edit::DropIndex if has_indexes => drop(w.line("RX.INDEX DROP j")),
        Edit::CreateIndex if has_indexes => drop(w.line("RX.INDEX CREATE j PREFIX k FIELD a")),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn greps_find_equal_results_with_and_without_an_index(
        edits in prop::collection::vec(
            (prop::sample::select(EDITS.to_vec()), 0usize..30, 0usize..30, "[abcABC\u{e9}\n]{0,12}"), 20..150),
        patterns in prop::collection::vec(pattern(), 1..16),
        nocase: bool,
        settled: bool,
    ) {
        let (mut with, mut without) = (World::new(), World::new());
        with.ok("RX.INDEX CREATE i PREFIX k");
        let each = edits.len().div_ceil(patterns.len());
        for (p, edits) in patterns.iter().zip(edits.chunks(each)) {
            for e in edits {
                edit(&mut with, e, true);
                edit(&mut without, e, false);
            }
            if settled {
                settle(&with);
            }
            for end in [&["PREFIX", "k"][..], &["PREFIX", "k1"], &["PREFIX", "k", "FIELD", "a"], &[]] {
                let mut line = vec!["RX.GREP", "VALUES", p];
                line.extend(end);
                line.extend(nocase.then_some("NOCASE"));
                prop_assert_eq!(sorted(with.run(&line)), sorted(without.run(&line)), "{:?}", line);
            }
        }
    }
}

#[test]
fn constant_matches_are_found_during_concurrent_writes() {
    const KEYS: usize = 300;
    let w = World::new();
    let keys: Vec<String> = (0..KEYS).map(|i| format!("mail:{i}")).collect();
    keys.iter().for_each(|key| w.set(key, format!("{key} has ticket-1234").as_bytes()));
    w.ok("RX.INDEX CREATE i PREFIX mail:");
    w.ok("RX.INDEX CREATE all PREFIX ''");
    settle(&w);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = || {
            while !done.load(Relaxed) {
                w.search.tick(w.now_ms);
                std::thread::yield_now();
            }
        };
        // Rewrites each key repeatedly, so that tails become segments and segments are merged.
        let writer = || {
            for round in 0.. {
                for key in &keys {
                    w.set(key, format!("{key} has ticket-1234 in round {round}").as_bytes());
                }
                if done.load(Relaxed) {
                    break;
                }
            }
        };
        let dropper = || {
            while !done.load(Relaxed) {
                w.ok("RX.INDEX DROP i");
                w.ok("RX.INDEX CREATE i PREFIX mail:");
                std::thread::yield_now();
            }
        };
        let searcher = || -> Vec<usize> {
            let grep = || sorted(w.line("RX.GREP VALUES ticket-[0-9]{4} PREFIX mail:")).len();
            (0..60).map(|_| grep()).collect()
        };
        scope.spawn(background);
        scope.spawn(writer);
        scope.spawn(dropper);
        let searchers = [scope.spawn(searcher), scope.spawn(searcher)];
        let found = searchers.map(|s| s.join());
        // Stop the other threads before anything is asserted.
        done.store(true, Relaxed);
        for found in found {
            assert_eq!(found.expect("no panic"), [KEYS; 60]);
        }
    });
    assert_ne!(info(&w, "regex_greps_indexed"), "0");
}

#[test]
fn a_hash_too_large_to_index_is_always_searched() {
    let w = World::new();
    let value = "some words ".repeat(800);
    let fields: Vec<String> = (0..2500).map(|i| format!("f{i}")).collect();
    let pairs: Vec<(&str, &str)> = fields.iter().map(|f| (f.as_str(), value.as_str())).collect();
    w.hset("large", &pairs);
    w.hset("large", &[("last", "a ticket")]);
    w.set("small", b"a ticket");
    w.ok("RX.INDEX CREATE i PREFIX ''");
    settle(&w);
    let over = figure(&w, "text_bytes") - (16 << 20);
    assert!((1..10_000).contains(&over), "the index stops reading at 16 MiB: {over}");
    w.hset("large", &[("last", "a ticket of two")]);
    assert_eq!(figure(&w, "text_bytes"), over + (16 << 20));
    assert_eq!(figure(&w, "dead_documents"), 0, "the index does not read the hash again");
    assert!(
        w.search.trigrams_bytes() < 1 << 20,
        "it has no lists and was not copied: {}",
        w.search.trigrams_bytes()
    );
    assert_eq!(sorted(w.line("RX.GREP VALUES ticket")), ["large", "small"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES 'some words'")), ["large"]);
    assert_eq!(sorted(w.line("RX.GREP VALUES 'no such words'")), Vec::<String>::new());
    assert_eq!(info(&w, "regex_greps_indexed"), "3");
    fields[1..].iter().for_each(|field| w.hset("large", &[(field, "short")]));
    assert_eq!(sorted(w.line("RX.GREP VALUES short")), ["large"]);
    assert_eq!(figure(&w, "dead_documents"), 1, "a hash that has shrunk is indexed");
    w.del("large");
    assert_eq!((sorted(w.line("RX.GREP VALUES ticket")), figure(&w, "documents")), (vec!["small".into()], 1));
}
