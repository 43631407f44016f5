//! The cost of following: bulk indexing, the first search after a write, searches with nothing to follow, RX.GREP.
//!
//! `cargo bench -p strand-search -- 200000` uses that many documents. `cargo test` uses a few documents.

mod common;

use common::{NOW_MS, run};
use std::sync::Arc;
use std::time::Duration;
use strand_keyspace::{HashValue, Keyspace, Value};
use strand_search::Search;

/// A document shaped like a mail: about 60 words out of 20,000, few of them frequent.
fn put(keyspace: &Keyspace, i: usize, rng: &mut fastrand::Rng) {
    let mut words = |n: usize| {
        (0..n).map(|_| format!("word{}", (20_000f64.powf(rng.f64())) as u64)).collect::<Vec<_>>().join(" ")
    };
    let (subject, body) = (words(6), words(54));
    let key = format!("mail:{i}");
    let key = keyspace.key(key.as_bytes());
    let mut hash = HashValue::new();
    let from = format!("user{}@example.org", i % 500);
    let date = (1_600_000_000 + i).to_string();
    for (f, v) in [("subject", &subject), ("body", &body), ("from", &from), ("date", &date)] {
        hash.set(f.as_bytes(), v.as_bytes(), keyspace.settings());
    }
    keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, Value::Hash(hash), None);
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |p: usize| times[(times.len() - 1) * p / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.3} ms, p99 {:.3} ms", at(50), at(99))
}

fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let given = std::env::args().filter_map(|a| a.parse::<usize>().ok()).next();
    let documents = given.unwrap_or(if is_bench { 50_000 } else { 200 });
    let rounds = if is_bench { 200 } else { 3 };
    let keyspace = Arc::new(Keyspace::new(128, 16, [1, 2, 3, 4]));
    let search = Search::new(keyspace.clone());
    let rng = &mut fastrand::Rng::with_seed(5);
    let go = |line: &[&str]| run(&keyspace, &search, line).0;
    let find = |query: &str| go(&["FT.SEARCH", "mail", query, "LIMIT", "0", "10"]);

    (0..documents).for_each(|i| put(&keyspace, i, rng));
    go(&[
        "FT.CREATE",
        "mail",
        "PREFIX",
        "1",
        "mail:",
        "SCHEMA",
        "subject",
        "TEXT",
        "WEIGHT",
        "2",
        "SORTABLE",
        "body",
        "TEXT",
        "from",
        "TAG",
        "date",
        "NUMERIC",
        "SORTABLE",
    ]);
    let took = find("*");
    println!("first scan: {documents} documents, {:.0} documents/s", documents as f64 / took.as_secs_f64());

    (0..documents).for_each(|i| put(&keyspace, i, rng));
    let took = find("*");
    println!("all rewritten, then one search: {:.0} documents/s", documents as f64 / took.as_secs_f64());

    for batch in [1, 10, 100, 1000] {
        let mut times = Vec::new();
        for _ in 0..rounds.min(20_000 / batch) {
            (0..batch).for_each(|_| put(&keyspace, rng.usize(..documents), rng));
            times.push(find("word7"));
        }
        println!("search after {batch} writes: {}", percentiles(times));
    }
    for query in [
        "*",
        "word7",
        "word7 word30",
        "word7 | word30",
        "\"word1 word2\"",
        "word19*",
        "@from:{user7@example.org}",
        "@date:[1600000100 1600000200]",
        "word3 -word5",
    ] {
        let times = (0..rounds).map(|_| find(query)).collect();
        println!("search {query}: {}", percentiles(times));
    }
    let sorted = |by: &str| go(&["FT.SEARCH", "mail", "*", "SORTBY", by, "LIMIT", "0", "10"]);
    for by in ["date", "subject"] {
        println!("search * SORTBY {by}: {}", percentiles((0..rounds.min(20)).map(|_| sorted(by)).collect()));
    }
    for pattern in ["word19999x", "word1[0-9]{4} word7\\b", "(?s)(?:d.{5}w|o.{9}w|r.{13}w)1x"] {
        let took = go(&["RX.GREP", "VALUES", pattern]);
        println!(
            "grep {pattern}: {:.1} ms, {:.0} keys/s",
            took.as_secs_f64() * 1e3,
            documents as f64 / took.as_secs_f64()
        );
    }
    for (name, value) in search.info() {
        println!("{name}:{value}");
    }
}
