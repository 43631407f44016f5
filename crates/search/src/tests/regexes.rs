//! The regex service: definitions, searches at every place, redefinition, streams, limits.

use super::{World, text};
use crate::rx;
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::call::{RunsOn, ServiceOutcome};
use strand_wire::client::Value;

/// A short form of a reply: strings unchanged, arrays in brackets.
fn short(value: &Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Null => "nil".into(),
        Value::Array(all) => format!("[{}]", all.iter().map(short).collect::<Vec<_>>().join(" ")),
        Value::Error(text) => format!("!{}", String::from_utf8_lossy(text)),
        other => text(other),
    }
}

fn line(w: &World, line: &str) -> String {
    short(&w.line(line))
}

/// A number from RX.STATS or RX.CHECK.
fn number(w: &World, command: &str, name: &str) -> i64 {
    let Value::Array(all) = w.line(command) else { panic!("{command}") };
    let at = all.chunks(2).find(|pair| text(&pair[0]) == name).expect(name);
    match &at[1] {
        Value::Int(n) => *n,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn the_cost_of_replacements_and_groups_is_bounded() {
    let w = World::new();
    w.ok("RX.SET all DEADLINE 600000 ID a (?s).+");
    let (text, times) = ("x".repeat(1 << 20), "$0".repeat(2_000));
    let Value::Error(error) = w.run(&["RX.REPLACE", "all", &text, &times]) else { panic!("refused") };
    assert!(String::from_utf8_lossy(&error).contains("would have more than"), "{error:?}");
    let reply = w.serve(&["RX.REPLACE", "all", &text[..4096], &"y".repeat(2 << 20)], RunsOn::Worker);
    assert_eq!(reply, Err(ServiceOutcome::Lane));
    let Value::Error(error) = w.run(&["RX.SET", "groups", "ID", "a", &"()".repeat(300)]) else {
        panic!("refused")
    };
    assert!(String::from_utf8_lossy(&error).contains("Too many groups"), "{error:?}");
    assert_eq!(w.run(&["RX.CHECK", &"()".repeat(300)]), Value::Error(error), "what RX.SET refuses");
}

#[test]
fn sets_are_defined_listed_and_removed() {
    let w = World::new();
    assert_eq!(line(&w, "RX.LIST"), "[]");
    w.ok("RX.SET logs ID err 'error: .*' ID num '[0-9]+'");
    w.ok("RX.SET a ID 1 x NOCASE UNICODE MEMORY 8388608 DEADLINE 50");
    assert_eq!(line(&w, "RX.LIST"), "[a logs]");
    assert_eq!(line(&w, "RX.MATCH logs 'error: none'"), "[err]");
    assert_eq!(line(&w, "RX.MATCH logs 'error: 17'"), "[err num]");
    assert_eq!(line(&w, "RX.MATCH logs nothing"), "[]");
    assert_eq!(line(&w, "RX.MATCH a X"), "[1]");
    w.ok("RX.SET logs ID only no");
    assert_eq!(line(&w, "RX.MATCH logs 'error: no'"), "[only]");
    assert_eq!(line(&w, "RX.DEL logs none a"), "2");
    assert_eq!(line(&w, "RX.LIST"), "[]");
    assert_eq!(w.error("RX.MATCH logs x"), "ERR No such set of patterns");
    assert_eq!(w.error("RX.STATS logs"), "ERR No such set of patterns");
}

#[test]
fn matches_spans_groups_and_replacements() {
    let w = World::new();
    w.ok("RX.SET d ID date '(?P<y>[0-9]{4})-([0-9]{2})(-[0-9]{2})?' ID word '[a-z]+'");
    for runs_on in [RunsOn::Worker, RunsOn::Lane, RunsOn::Hard] {
        let w = World { runs_on, ..reopened(&w) };
        assert_eq!(
            line(&w, "RX.FINDALL d 'on 2026-11-21, 1999-01'"),
            "[[date 2026-11-21] [date 1999-01] [word on]]"
        );
        assert_eq!(line(&w, "RX.FINDALL d 'on 2026-11' SPANS"), "[[date 3 10] [word 0 2]]");
        assert_eq!(line(&w, "RX.FINDALL d 'a b c' LIMIT 2"), "[[word a] [word b]]");
        assert_eq!(line(&w, "RX.CAPTURES d 'at 2026-11'"), "[[date [0 2026-11 y 2026 2 11]] [word [0 at]]]");
        assert_eq!(line(&w, "RX.CAPTURES d 'at 2026-11' LIMIT 1"), "[[date [0 2026-11 y 2026 2 11]]]");
        assert_eq!(line(&w, "RX.REPLACE d '2026-11 or 1999-01' '<$2/${y}>'"), "<11/2026> </> <01/1999>");
        assert_eq!(line(&w, "RX.REPLACE d 'a b c' z LIMIT 2"), "z z c");
        assert_eq!(line(&w, "RX.REPLACE d '...' z"), "...");
    }
    w.ok("RX.SET e ID e 'x*'");
    assert_eq!(line(&w, "RX.FINDALL e axxb SPANS"), "[[e 0 0] [e 1 3] [e 4 4]]");
    assert_eq!(line(&w, "RX.REPLACE e axxb -"), "-a-b-");
}

/// Opens another world with the same search service.
fn reopened(w: &World) -> World {
    World { keyspace: w.keyspace.clone(), search: w.search.clone(), ..World::new() }
}

#[test]
fn hard_searches_move_off_the_worker_with_an_equal_result() {
    let w = World::new();
    w.ok("RX.SET h ID p '(?s)(?:a.{5}b|a.{9}b|a.{13}b|b.{15}a|[ab].{19}a)c' ID q '[ab]*a[ab]{18}d' MEMORY 4194304 DEADLINE 600000");
    let rng = &mut fastrand::Rng::with_seed(11);
    let mut hard: Vec<u8> = (0..16_384).map(|_| b"ab"[rng.usize(..2)]).collect();
    let easy = vec![b'x'; 200];
    let serve = |text: &[u8], runs_on| w.serve(&[b"RX.MATCH", &b"h"[..], text], runs_on);
    assert_eq!(serve(&easy, RunsOn::Worker).map(|v| short(&v)), Ok("[]".into()));
    assert_eq!(
        serve(&hard, RunsOn::Worker),
        Err(ServiceOutcome::Lane),
        "a cache that is empty need not mean much"
    );
    for _ in 0..40 {
        let text: Vec<u8> = (0..16_384).map(|_| b"ab"[rng.usize(..2)]).collect();
        assert!(serve(&text, RunsOn::Worker).is_err());
    }
    assert_eq!(serve(&hard, RunsOn::Worker), Err(ServiceOutcome::Hard));
    assert_eq!(serve(&hard, RunsOn::Hard).map(|v| short(&v)), Ok("[]".into()));
    hard.extend_from_slice(b"c");
    let found = serve(&hard, RunsOn::Hard).map(|v| short(&v)).expect("done");
    assert!(found == "[p]" || found == "[]", "{found}");
    let long = vec![b'x'; 600 << 10];
    assert_eq!(serve(&long, RunsOn::Worker), Err(ServiceOutcome::Lane));
    assert_eq!(serve(&long, RunsOn::Lane).map(|v| short(&v)), Ok("[]".into()));
    assert!(number(&w, "RX.STATS h", "moved_to_hard_lane") >= 1);
    assert!(number(&w, "RX.STATS h", "moved_to_lane") >= 2);
    assert_eq!(number(&w, "RX.STATS h", "searches"), 4);
    // Hard texts do not move easy texts to another place.
    let mut hards = 0;
    for _ in 0..200 {
        let text: Vec<u8> = (0..16_384).map(|_| b"ab"[rng.usize(..2)]).collect();
        hards += u32::from(serve(&text, RunsOn::Worker) == Err(ServiceOutcome::Hard));
        assert_eq!(serve(&easy, RunsOn::Worker).map(|v| short(&v)), Ok("[]".into()));
    }
    assert!(hards > 150, "{hards}");
}

#[test]
fn a_deadline_ends_a_search() {
    let w = World { runs_on: RunsOn::Hard, ..World::new() };
    w.ok("RX.SET h ID p '[ab]*a[ab]{400}c' DEADLINE 1");
    let rng = &mut fastrand::Rng::with_seed(1);
    let hard: Vec<u8> = (0..1 << 20).map(|_| b"ab"[rng.usize(..2)]).collect();
    let reply = w.run(&[b"RX.MATCH", &b"h"[..], &hard]);
    assert_eq!(short(&reply), "!ERR The search took longer than the DEADLINE of the set");
    assert_eq!(number(&w, "RX.STATS h", "deadlines"), 1);
}

#[test]
fn caches_are_counted_and_go_with_their_set() {
    let w = World::new();
    let before = w.search.regexes_bytes();
    let rng = &mut fastrand::Rng::with_seed(2);
    let text: Vec<u8> = (0..4096).map(|_| b"ab"[rng.usize(..2)]).collect();
    for round in 0..12 {
        w.ok(&format!("RX.SET s ID {round} '[ab]*a[ab]{{18}}c'"));
        w.run(&[b"RX.MATCH", &b"s"[..], &text]);
        assert!(number(&w, "RX.STATS s", "cache_bytes") > 1000);
    }
    let one = w.search.regexes_bytes() - before;
    assert!(one < 8 << 20, "{one} bytes after 12 definitions");
    assert_eq!(line(&w, "RX.DEL s"), "1");
    assert_eq!(w.search.regexes_bytes(), before);
}

#[test]
fn caches_are_dropped_on_request_and_fill_again() {
    let w = World::new();
    w.ok("RX.SET s ID p '[ab]*a[ab]{18}c'");
    let rng = &mut fastrand::Rng::with_seed(2);
    let text: Vec<u8> = (0..4096).map(|_| b"ab"[rng.usize(..2)]).collect();
    let search = || short(&w.run(&[b"RX.MATCH", &b"s"[..], &text]));
    let first = search();
    let (compiled, cached) =
        (number(&w, "RX.STATS s", "compiled_bytes") as u64, number(&w, "RX.STATS s", "cache_bytes"));
    assert!(cached > 1000 && w.search.regexes_bytes() > compiled + 1000, "{cached}");
    w.search.shrink_caches();
    assert_eq!((number(&w, "RX.STATS s", "cache_bytes"), w.search.regexes_bytes()), (0, compiled));
    assert_eq!(search(), first);
    assert!(number(&w, "RX.STATS s", "cache_bytes") > 1000);
}

#[test]
fn a_stream_counts_the_ends_that_it_does_not_show() {
    let w = World::new();
    let patterns: Vec<String> = (0..100).map(|i| format!("ID p{i} {}", ["a", "[ab]"][i % 2])).collect();
    w.ok(&format!("RX.SET s {}", patterns.join(" ")));
    line(&w, "RX.STREAM OPEN s");
    let text = format!("RX.STREAM FEED 1 {}", "ab".repeat(200));
    // The last byte ends its matches when a byte follows. 199 times a, and 199 times b.
    let reply = line(&w, &text);
    assert!(
        reply.starts_with(&format!("[400 {} [[p0 1] [p1 1] [p2 1]", 200 * 100 + 199 * 50)),
        "{reply:.80}"
    );
    assert_eq!(reply.matches("[p").count(), 10_000);
    let last = line(&w, "RX.STREAM CLOSE 1");
    assert!(last.starts_with("[400 50 [[p1 400] [p3 400]"), "{last:.80}");
}

#[test]
fn streams_report_ends_across_pieces() {
    let mut w = World::new();
    w.ok("RX.SET s ID ab 'ab+' ID end 'c$' ID start ^x");
    w.ok(r"RX.SET b ID w '\bcat\b'");
    assert_eq!(line(&w, "RX.STREAM OPEN s"), "1");
    assert_eq!(line(&w, "RX.STREAM OPEN b"), "2");
    assert_eq!(line(&w, "RX.STREAM FEED 1 xa"), "[2 1 [[start 1]]]");
    assert_eq!(
        line(&w, "RX.STREAM FEED 1 bb"),
        "[4 1 [[ab 3]]]",
        "the second end is seen when a byte follows"
    );
    assert_eq!(line(&w, "RX.STREAM FEED 1 ''"), "[4 0 []]");
    assert_eq!(line(&w, "RX.STREAM FEED 1 xc"), "[6 1 [[ab 4]]]");
    assert_eq!(line(&w, "RX.STREAM CLOSE 1"), "[6 1 [[end 6]]]");
    assert_eq!(w.error("RX.STREAM FEED 1 x"), "ERR No such stream");
    assert_eq!(line(&w, "RX.STREAM FEED 2 'a ca'"), "[4 0 []]");
    assert_eq!(line(&w, "RX.STREAM FEED 2 't, '"), "[7 1 [[w 5]]]");
    // A stream keeps the set with which it was opened.
    w.ok("RX.SET b ID other dog");
    assert_eq!(line(&w, "RX.STREAM FEED 2 'cat '"), "[11 1 [[w 10]]]");
    w.client = 2;
    assert_eq!(w.error("RX.STREAM CLOSE 2"), "ERR No such stream", "it is another client's");
    w.search.client_gone(1);
    w.client = 1;
    assert_eq!(w.error("RX.STREAM CLOSE 2"), "ERR No such stream");
    w.search.tick(w.now_ms);
    for _ in 0..64 {
        line(&w, "RX.STREAM OPEN s");
    }
    assert_eq!(w.error("RX.STREAM OPEN s"), "ERR Too many streams: at most 64 are open at a time");
    let open = w.search.streams.bytes();
    assert!(open > 64 * 16, "{open}");
    w.search.client_gone(1);
    assert_eq!(w.error("RX.STREAM FEED 3 x"), "ERR No such stream");
    assert_eq!((w.search.streams.len(), w.search.streams.bytes()), (64, open), "freed on a helper thread");
    w.search.tick(w.now_ms);
    assert_eq!(w.search.streams.bytes(), 0);
    w.cancel.store(true, Relaxed);
    assert_eq!(w.error("RX.STREAM OPEN s"), "Cancelled", "nobody would close it");
    assert_eq!(w.search.streams.len(), 0);
}

#[test]
fn a_set_is_counted_while_a_stream_keeps_it() {
    let w = World::new();
    let before = w.search.regexes_bytes();
    w.ok("RX.SET s ID p [a-z]{1,60}[0-9]");
    let with_set = w.search.regexes_bytes();
    assert_eq!(line(&w, "RX.STREAM OPEN s"), "1");
    let with_stream = w.search.regexes_bytes();
    assert!(with_stream > with_set + 1000, "{with_stream}");
    assert_eq!(line(&w, "RX.DEL s"), "1");
    assert_eq!(w.search.regexes_bytes(), with_stream);
    assert_eq!(line(&w, "RX.STREAM FEED 1 'ab1 '"), "[4 1 [[p 3]]]");
    assert_eq!(line(&w, "RX.STREAM CLOSE 1"), "[4 0 []]");
    assert_eq!(w.search.regexes_bytes(), before);
    // Automata that are compiled on first use are counted, too.
    w.ok("RX.SET s ID p [a-z]{1,60}[0-9]");
    let without = w.search.regexes_bytes();
    assert_eq!(line(&w, "RX.MATCH s ab1"), "[p]");
    let caches = number(&w, "RX.STATS s", "cache_bytes") as u64;
    assert_eq!(w.search.regexes_bytes(), without + caches);
    assert_eq!(line(&w, "RX.FINDALL s ab1"), "[[p ab1]]");
    let caches = number(&w, "RX.STATS s", "cache_bytes") as u64;
    assert!(w.search.regexes_bytes() > without + caches + 1000);
}

#[test]
fn the_thread_with_the_largest_caches_drops_them() {
    let w = World::new();
    let patterns = ["[ab]*a[ab]{18}c", "b[ab]{17}d", "[ab]a[ab]{16}e"];
    let ids: String = patterns.iter().enumerate().map(|(i, p)| format!(" ID {i} {p}")).collect();
    w.ok(&format!("RX.SET s{ids} MEMORY 4194304 DEADLINE 60000"));
    let rng = &mut fastrand::Rng::with_seed(4);
    let easy = vec![b'x'; 1000];
    let match_at = |text: &[u8], runs_on| w.serve(&[b"RX.MATCH", &b"s"[..], text], runs_on);
    for _ in 0..3 {
        assert!(match_at(&easy, RunsOn::Worker).is_ok());
    }
    let built = number(&w, "RX.STATS s", "states_built");
    // The other thread stands for one of the hard lane. Its caches need more memory than the set may have, but this
    // thread's caches need little.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                let hard: Vec<u8> = (0..96 << 10).map(|_| b"ab"[rng.usize(..2)]).collect();
                let budget = World { runs_on: RunsOn::Hard, ..reopened(&w) };
                assert_eq!(short(&budget.run(&[b"RX.FINDALL", &b"s"[..], &hard])), "[]");
            }
        });
    });
    assert!(number(&w, "RX.STATS s", "cache_evictions") > 0);
    let built_there = number(&w, "RX.STATS s", "states_built");
    assert!(built_there > built);
    assert!(match_at(&easy, RunsOn::Worker).is_ok());
    assert_eq!(number(&w, "RX.STATS s", "states_built"), built_there, "this thread has kept its states");
    let used = w.search.regexes_bytes();
    assert!(used < 24 << 20, "{used}");
}

#[test]
fn rx_check_reports_the_properties_of_patterns() {
    let w = World::new();
    let check = |line: &str, name: &str| number(&w, line, name);
    assert_eq!(check("RX.CHECK 'ticket-([0-9]+)'", "groups"), 1);
    assert_eq!(check("RX.CHECK 'ticket-([0-9]+)'", "indexable"), 1);
    assert_eq!(check("RX.CHECK '[0-9]+'", "indexable"), 0);
    assert_eq!(check(r"RX.CHECK '\bx' UNICODE", "prone_to_quit"), 1);
    assert_eq!(check(r"RX.CHECK '\bx' NOCASE", "prone_to_quit"), 0);
    let reply = line(&w, "RX.CHECK 'ticket-([0-9]+)'");
    assert!(
        reply.starts_with("[engine full-dfa literal_prefix ticket- literal ticket- trigrams "),
        "{reply}"
    );
    let reply = line(&w, "RX.CHECK '[ab]*a[ab]{18}c'");
    assert!(reply.starts_with("[engine lazy-dfa literal_prefix nil literal nil trigrams ("), "{reply}");
    assert_eq!(w.error("RX.CHECK a(b"), "ERR Bad pattern at offset 1: unclosed group");
}

#[test]
fn wrong_arguments_of_rx_set_and_kin_are_named_in_errors() {
    let w = World::new();
    w.ok("RX.SET s ID p x DEADLINE 600000");
    for (line, want) in [
        ("RX.SET s ID p", "ERR wrong number of arguments for 'rx.set' command"),
        ("RX.SET s UNICODE NOCASE UNICODE", "ERR A set needs at least one pattern: ID id pattern"),
        ("RX.SET s ID p x ID q", "ERR ID needs an id and a pattern"),
        ("RX.SET s ID p x ID p y", "ERR Duplicate id `p`"),
        ("RX.SET s ID '' x", "ERR The id must have 1 to 256 bytes"),
        ("RX.SET s ID p x BOGUS", "ERR Unknown argument `BOGUS`"),
        ("RX.SET s ID p x MEMORY 1", "ERR MEMORY is not an integer from 4194304 to 4294967296"),
        ("RX.SET s ID p x DEADLINE 0", "ERR DEADLINE is not an integer from 1 to 600000"),
        ("RX.SET s ID p x ID q a(b", "ERR Bad pattern at offset 1: unclosed group, in `q`"),
        ("RX.SET s ID p a{1000}{1000}", "ERR The pattern is too big: its automaton exceeds 4194304 bytes"),
        ("RX.FINDALL s x LIMIT 0", "ERR LIMIT is not an integer from 1 to 100000"),
        ("RX.FINDALL s x BOGUS", "ERR Unknown argument `BOGUS`"),
        ("RX.CAPTURES s x LIMIT", "ERR LIMIT needs an argument"),
        ("RX.CAPTURES s x LIMIT 1 x", "ERR Unknown argument `x`"),
        ("RX.REPLACE s x", "ERR wrong number of arguments for 'rx.replace' command"),
        ("RX.STREAM OPEN none", "ERR No such set of patterns"),
        ("RX.STREAM FEED x y", "ERR No such stream"),
        ("RX.CHECK x BOGUS", "ERR Unknown argument `BOGUS`"),
    ] {
        assert_eq!(w.error(line), want, "{line}");
    }
    assert_eq!(line(&w, "RX.MATCH s x"), "[p]", "what was refused changed nothing");
    w.ok(r"RX.SET u ID p '\bx' UNICODE");
    let refusal = "ERR Unicode word boundaries are not supported in streams: use (?-u:\\b)";
    assert_eq!(w.error("RX.STREAM OPEN u"), refusal);
    let many = "x ".repeat(rx::MATCHES_MAX + 1);
    let reply = w.run(&["RX.FINDALL", "s", &many]);
    assert_eq!(short(&reply), "!ERR More than 100000 matches: use LIMIT");
    let mut args: Vec<String> = vec!["RX.SET".into(), "m".into()];
    for i in 0..=rx::PATTERNS_MAX {
        args.extend(["ID".into(), i.to_string(), "x".into()]);
    }
    assert_eq!(short(&w.run(&args)), "!ERR Too many patterns: at most 1024 are allowed in a set");
}
