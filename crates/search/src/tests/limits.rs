//! Limits of one request: requests built to use much memory or time. Each test bounds the peak memory of the
//! process that serves the request, and the time it continues after its deadline.

use super::World;
use std::process::Command;
use strand_wire::client::Value;

/// The variable with the name of the test that the child process runs.
const ALONE: &str = "STRAND_TEST_ALONE";
/// Maximum address space of a child process, in KiB, so that a failing test does not exhaust the machine's memory.
const ALONE_KIB_MAX: usize = 3 << 20;
/// A child process that takes longer than this is killed.
const ALONE_SECONDS_MAX: usize = 300;

/// Runs `prepare` and then `request` in a child process, and checks that `request` raises the peak of resident
/// memory by at most `bytes_max`. `test` is the path of the calling test.
#[track_caller]
fn alone<T>(test: &str, bytes_max: usize, prepare: impl FnOnce() -> T, request: impl FnOnce(&T)) {
    if std::env::var(ALONE).is_ok_and(|name| name == test) {
        let prepared = prepare();
        // Writing 5 to this file resets the peak.
        std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
        let before = peak_bytes();
        request(&prepared);
        let grown = peak_bytes() - before;
        assert!(grown <= bytes_max, "{grown} bytes more, at most {bytes_max} are expected");
        return;
    }
    let limited = format!(
        "ulimit -v {ALONE_KIB_MAX}; exec timeout {ALONE_SECONDS_MAX} \"$0\" --exact {test} --nocapture"
    );
    let exe = std::env::current_exe().expect("the test's own path");
    let child =
        Command::new("sh").arg("-c").arg(limited).arg(exe).env(ALONE, test).output().expect("a shell");
    let said = [child.stdout, child.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(child.status.success() && said.contains("1 passed"), "{}: {said}", child.status);
}

/// The peak of this process's resident memory.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") << 10
}

#[track_caller]
fn refused(reply: Value, want: &str) {
    match reply {
        Value::Error(text) => assert_eq!(String::from_utf8_lossy(&text), want),
        other => panic!("{want} is expected, not {:.200}", format!("{other:?}")),
    }
}

/// A keyspace with one document and a text index `i`.
fn one_document() -> World {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA t TEXT u TEXT");
    w.hset("k", &[("t", "some words"), ("u", "of two fields")]);
    assert_eq!(w.keys("i words").0, 1);
    w
}

#[test]
fn the_expansion_of_parameters_is_limited() {
    alone("tests::limits::the_expansion_of_parameters_is_limited", 32 << 20, one_document, |w| {
        let words = "ab cd ef ".repeat(7_000);
        let query = "$a ".repeat(30);
        let reply = w.run(&["FT.SEARCH", "i", &query, "PARAMS", "2", "a", &words]);
        refused(reply, "Length of all parameters exceeds maximum of 65536, at offset 4 of the query");
    });
}

#[test]
fn words_are_not_collected_beyond_the_limit() {
    alone("tests::limits::words_are_not_collected_beyond_the_limit", 48 << 20, one_document, |w| {
        for query in ["$a", "\"$a\"", "@t:$a"] {
            let words = "ab cd ef ".repeat(7_000);
            let query = query.replace("\"$a\"", &format!("\"{words}\""));
            let reply = w.run(&["FT.SEARCH", "i", &query, "PARAMS", "2", "a", &words]);
            let Value::Error(text) = reply else { panic!("{query} is refused") };
            assert!(String::from_utf8_lossy(&text).contains("exceeds maximum of"), "{text:?}");
        }
    });
}

/// The largest query that can be planned. All its words exist, so each opens its list.
#[test]
fn the_largest_query_stays_within_its_memory() {
    let prepare = || {
        let w = World::new();
        let fields: Vec<String> = (0..4).map(|i| format!("f{i} TEXT NOSTEM")).collect();
        w.ok(&format!("FT.CREATE i SCHEMA {}", fields.join(" ")));
        let words: Vec<String> = (0..4096).map(|i| format!("word{i}")).collect();
        let text = words.join(" ");
        for k in ["k", "l", "m"] {
            w.hset(k, &[("f0", &text), ("f1", &text), ("f2", &text), ("f3", &text)]);
        }
        assert_eq!(w.keys("i word1").0, 3);
        (w, words)
    };
    let allowed = crate::query::PLAN_BYTES_MAX;
    alone("tests::limits::the_largest_query_stays_within_its_memory", allowed, prepare, |(w, words)| {
        for query in
            [words[..1800].join(" "), words[..1800].join("|"), format!("\"{}\"", words[..4000].join(" "))]
        {
            let reply = w.run(&["FT.SEARCH", "i", &query, "NOCONTENT"]);
            let Value::Array(found) = reply else { panic!("{reply:?}") };
            assert_eq!(found.len(), 4);
        }
        assert_eq!(
            w.search.requests_bytes.load(std::sync::atomic::Ordering::Relaxed),
            0,
            "all is given back"
        );
    });
}

#[test]
fn fuzzy_terms_hold_no_tables() {
    alone("tests::limits::fuzzy_terms_hold_no_tables", 16 << 20, one_document, |w| {
        let term = |i: usize| format!("%%{}{i:02}%%", "x".repeat(62));
        let query: Vec<String> = (0..30).map(term).collect();
        let reply = w.run(&["FT.SEARCH", "i", &query.join("|"), "NOCONTENT"]);
        assert_eq!(reply, Value::Array(vec![Value::Int(0)]));
    });
}

#[test]
fn fields_are_returned_once() {
    let prepare = || {
        let w = World::new();
        w.ok("FT.CREATE i SCHEMA t TEXT");
        (0..200).for_each(|i| w.hset(&format!("k{i}"), &[("t", "dog"), ("v", "value")]));
        assert_eq!(w.keys("i dog").0, 200);
        w
    };
    alone("tests::limits::fields_are_returned_once", 32 << 20, prepare, |w| {
        let ask = |fields: &[String]| {
            let mut words: Vec<String> =
                ["FT.SEARCH", "i", "dog", "LIMIT", "0", "200", "RETURN"].map(String::from).into();
            words.push(fields.len().to_string());
            words.extend_from_slice(fields);
            w.run(&words)
        };
        let Value::Array(all) = ask(&vec!["v".to_string(); 20_000]) else { panic!("no array") };
        assert_eq!(all.len(), 401);
        let once = Value::Array(vec![Value::Bulk(b"v".to_vec()), Value::Bulk(b"value".to_vec())]);
        assert!(all[2] == once, "each field once");
        let different: Vec<String> = (0..1025).map(|i| format!("f{i}")).collect();
        assert!(matches!(ask(&different[..1024]), Value::Array(_)));
        refused(ask(&different), "Bad arguments for RETURN: Value is outside acceptable bounds");
    });
}

#[test]
fn classes_are_weighed_before_they_are_made() {
    alone("tests::limits::classes_are_weighed_before_they_are_made", 24 << 20, World::new, |w| {
        let refusal = "ERR The pattern is too big: its classes have too many characters";
        let letters: String = (0..20_000u32).filter_map(|i| char::from_u32(0x4e00 + 2 * i)).collect();
        for pattern in [
            format!("(?iu){}", r"\pL".repeat(2_000)),
            format!("(?i:x)(?:(?u:{}))", r"\p{Any}".repeat(100)),
            format!("(?iu){}", r"[\x{0}-\x{10FFFF}]".repeat(100)),
            format!("[{letters}]"),
        ] {
            refused(w.run(&["RX.CHECK", &pattern]), refusal);
            refused(w.run(&["RX.SET", "s", "ID", "a", &pattern]), refusal);
            refused(w.run(&["RX.GREP", "KEYS", &pattern]), refusal);
        }
        assert!(matches!(w.run(&["RX.CHECK", r"(?iu)\pL+ \p{Greek}+\s*[\w--\d]"]), Value::Array(_)));
    });
}

#[test]
fn the_classes_of_a_set_are_weighed_together() {
    alone("tests::limits::the_classes_of_a_set_are_weighed_together", 112 << 20, World::new, |w| {
        let mut set = vec!["RX.SET".to_string(), "s".into(), "DEADLINE".into(), "60000".into()];
        (0..20)
            .for_each(|i| set.extend(["ID".into(), i.to_string(), format!("(?iu){}", r"\pL".repeat(150))]));
        let Value::Error(text) = w.run(&set) else { panic!("refused") };
        assert!(String::from_utf8_lossy(&text).starts_with("ERR The pattern is too big"), "{text:?}");
    });
}

/// Queries that find little or nothing but pass many documents, positions, terms or column values.
#[test]
fn every_kind_of_query_checks_the_deadline() {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA t TEXT NOSTEM n NUMERIC");
    let long = "c ".repeat(400);
    for i in 0..2000 {
        let text = if i % 2 == 0 {
            format!("aa even{i} zero")
        } else {
            format!("bb odd{i} {}", if i < 40 { &long } else { "" })
        };
        w.hset(&format!("k{i}"), &[("t", &text), ("n", &i.to_string())]);
    }
    assert_eq!(w.keys("i aa").0, 1000);
    let many = |clause: &str, times: usize| vec![clause; times].join("|");
    for query in [
        many("(aa bb)", 500),
        many("(aa -zero)", 500),
        many("(aa @n:[1999 1999])", 300),
        // The range lies between two values. If it lay outside of all values, the column would not be read.
        many("@n:[0.2 0.8]", 900),
        many("*nosuchend", 60),
        many("%%eveny9z%%", 60),
        format!("\"{}\"", "c ".repeat(120)),
    ] {
        let reply = w.run(&["FT.SEARCH", "i", &query, "TIMEOUT", "1", "NOCONTENT"]);
        assert_eq!(reply, Value::Error(b"Timeout limit was reached".to_vec()), "{query:.40}");
        // A deadline does not limit which queries are allowed.
        assert!(matches!(w.run(&["FT.SEARCH", "i", &query, "NOCONTENT"]), Value::Array(_)), "{query:.40}");
    }
}
