//! What following costs: bulk indexing, the first search after a write, searches with nothing to follow, RX.GREP.
//!
//! `cargo bench -p strand-search -- 200000` takes that many documents; as a test it runs with a few.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use strand_chain::Chain;
use strand_commands::call::LaneCall;
use strand_commands::spec::ServiceCommand;
use strand_keyspace::{HashValue, Keyspace, Value};
use strand_search::Search;
use strand_wire::args::Argv;
use strand_wire::reply::{Protocol, Reply};

const NOW_MS: i64 = 1_700_000_000_000;

fn run(keyspace: &Keyspace, search: &Search, command: ServiceCommand, line: &[&str]) -> Duration {
    let argv = Argv::from_slices(line);
    let mut out = Chain::new();
    let start = Instant::now();
    search.run(
        command,
        &mut LaneCall {
            args: argv.args(),
            client: 1,
            place: strand_commands::call::Place::Lane,
            db: 0,
            now_ms: NOW_MS,
            keyspace,
            holds: &strand_commands::call::Alone,
            reply: &mut Reply::new(&mut out, Protocol::Resp2),
            rng: &mut fastrand::Rng::with_seed(1),
            cancel: &AtomicBool::new(false),
            no_touch: false,
            rights: None,
            lookups: Default::default(),
            yield_now: &|| {},
        },
    );
    let took = start.elapsed();
    let head: Vec<u8> = out.slices().flatten().copied().take(200).collect();
    assert!(!head.starts_with(b"-"), "{line:?}: {}", String::from_utf8_lossy(&head));
    took
}

/// A document of a mail's shape: some 60 words out of 20,000, few of them frequent.
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
    let go = |command, line: &[&str]| run(&keyspace, &search, command, line);
    let find = |query: &str| go(ServiceCommand::FtSearch, &["FT.SEARCH", "mail", query, "LIMIT", "0", "10"]);

    (0..documents).for_each(|i| put(&keyspace, i, rng));
    go(
        ServiceCommand::FtCreate,
        &[
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
        ],
    );
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
    let sorted = |by: &str| {
        go(ServiceCommand::FtSearch, &["FT.SEARCH", "mail", "*", "SORTBY", by, "LIMIT", "0", "10"])
    };
    for by in ["date", "subject"] {
        println!("search * SORTBY {by}: {}", percentiles((0..rounds.min(20)).map(|_| sorted(by)).collect()));
    }
    for pattern in ["word19999x", "word1[0-9]{4} word7\\b", "(?s)(?:d.{5}w|o.{9}w|r.{13}w)1x"] {
        let took = go(ServiceCommand::RxGrep, &["RX.GREP", "VALUES", pattern]);
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
