//! RX.GREP with and without a trigram index. The texts are real mails if `../shared/data` beside the repository (or
//! STRAND_DATA) has them, repeated up to a number of megabytes: `cargo bench -p strand-search --bench grep -- 300`.
//! `cargo test` runs this benchmark with a few texts. A second number sets how many rare words are searched, each
//! with and without NOCASE.

mod common;

use common::{NOW_MS, run};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strand_keyspace::{Keyspace, Str, Value};
use strand_search::Search;
use strand_wire::client::Value as Reply;

/// A pattern is selective when at most one value in this many matches.
const SELECTIVE: usize = 500;
/// Number of generated texts when there are no mails.
const MADE: usize = 500;

/// The mails, or generated texts of similar shape.
fn mails(is_bench: bool) -> (Vec<Vec<u8>>, &'static str) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("STRAND_DATA").map_or(root, PathBuf::from);
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let mut texts = Vec::new();
    for name in ["mail-easy-ham-1.tar.gz", "mail-spam-1.tar.gz"] {
        let archive = data.join(name);
        if !is_bench || !archive.exists() {
            continue;
        }
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
        assert!(unpacked.is_ok_and(|s| s.success()), "tar unpacks {}", archive.display());
    }
    let mut folders = vec![folder.path().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => texts.extend(std::fs::read(entry.path())),
            }
        }
    }
    if !texts.is_empty() {
        return (texts, "mails");
    }
    let rng = &mut fastrand::Rng::with_seed(4);
    let mut text = || {
        let words = (0..200).map(|_| format!("word{}", (20_000f64.powf(rng.f64())) as u64));
        words.collect::<Vec<_>>().join(" ").into_bytes()
    };
    ((0..MADE).map(|_| text()).collect(), "made texts (the mails are not there)")
}

/// Up to `n` words that occur in one or two texts.
fn rare_words(texts: &[Vec<u8>], n: usize) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::<&[u8], usize>::new();
    for text in texts {
        let words = text.split(|b| !b.is_ascii_alphanumeric());
        let own: std::collections::BTreeSet<&[u8]> = words.filter(|w| (8..=14).contains(&w.len())).collect();
        own.into_iter().for_each(|w| *counts.entry(w).or_default() += 1);
    }
    let is_word = |w: &[u8]| w.iter().all(u8::is_ascii_lowercase) || w.starts_with(b"word");
    let rare: Vec<&[u8]> =
        counts.into_iter().filter(|(w, n)| *n <= 2 && is_word(w)).map(|(w, _)| w).collect();
    rare.iter()
        .step_by((rare.len() / n).max(1))
        .take(n)
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let mut given = std::env::args().filter_map(|a| a.parse::<usize>().ok());
    let bytes_max = given.next().unwrap_or(if is_bench { 100 } else { 1 }) << 20;
    let words = given.next().unwrap_or(5).max(1);
    let rounds = if is_bench { 7 } else { 1 };
    let (texts, what) = mails(is_bench);
    let keyspace = Arc::new(Keyspace::new(128, 16, [1, 2, 3, 4]));
    let search = Search::new(keyspace.clone());
    let (mut bytes, mut n) = (0, 0);
    while bytes < bytes_max {
        let text = &texts[n % texts.len()];
        let key = format!("mail:{n}");
        let key = keyspace.key(key.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, Value::Str(Str::from_slice(text)), None);
        (bytes, n) = (bytes + text.len(), n + 1);
    }
    println!("{n} values of {} {what}, {} MB", texts.len(), bytes >> 20);

    // First search for words that occur in one or two texts. Then search for patterns that match, or whose parts
    // match, many texts.
    let words = rare_words(&texts, words);
    let mut patterns: Vec<String> = words.iter().map(|w| format!("{w}[a-z]{{0,3}}\\b")).collect();
    patterns.extend(words.iter().map(|w| format!("(?i){w}")));
    patterns.push("(?i)viagra.{1,40}free".into());
    patterns.push("unsubscribe-[0-9a-f]{6}@".into());
    patterns.push("(?i)x-mailer: [a-z ]{1,20} 9\\.[0-9]".into());
    patterns.push(r"[0-9]{1,3}\.[0-9]{1,3}\.254\.[0-9]{1,3}".into());
    let looked_at = || {
        let info = search.info();
        let n = info.iter().find(|(name, _)| name == "regex_searches").expect("a line of INFO");
        n.1.parse::<usize>().expect("a number")
    };
    let grep = |pattern: &str| {
        let line = ["RX.GREP", "VALUES", pattern, "PREFIX", "mail:"];
        let before = looked_at();
        let mut runs: Vec<(Duration, Reply)> = (0..rounds).map(|_| run(&keyspace, &search, &line)).collect();
        runs.sort_by_key(|r| r.0);
        let candidates = (looked_at() - before) / rounds;
        let (took, reply) = runs.swap_remove(runs.len() / 2);
        let Reply::Array(keys) = reply else { panic!("no array") };
        let mut keys: Vec<String> = keys.iter().map(|k| format!("{k:?}")).collect();
        keys.sort();
        (took, keys, candidates)
    };
    let scanned: Vec<_> = patterns.iter().map(|p| grep(p)).collect();
    run(&keyspace, &search, &["RX.INDEX", "CREATE", "mails", "PREFIX", "mail:"]);
    let figure = |name: &str| {
        let (_, Reply::Array(all)) = run(&keyspace, &search, &["RX.INDEX", "INFO", "mails"]) else {
            panic!()
        };
        let at = all.chunks(2).find(|p| p[0] == Reply::Bulk(name.into())).expect("a figure");
        if let Reply::Int(n) = at[1] { n as f64 } else { f64::NAN }
    };
    let start = Instant::now();
    for _ in 0..1_000_000 {
        search.tick(NOW_MS);
        if figure("scanning") == 0.0 {
            break;
        }
    }
    let scanned_in = start.elapsed().as_secs_f64();
    for _ in 0..100 {
        search.tick(NOW_MS);
    }
    println!("indexed in {scanned_in:.1} s, {:.1} MB/s", bytes as f64 / 1e6 / scanned_in);
    println!(
        "index: {:.3} of the text ({:.1} MB in {} segments)",
        figure("index_bytes") / figure("text_bytes"),
        figure("index_bytes") / 1e6,
        figure("segments"),
    );
    let mut times = Vec::new();
    for (pattern, (before, want, _)) in patterns.iter().zip(scanned) {
        let (after, keys, candidates) = grep(pattern);
        assert_eq!(keys, want, "{pattern}: the same keys both ways");
        let [before_ms, after_ms] = [before, after].map(|t| t.as_secs_f64() * 1e3);
        let is_selective = keys.len() * SELECTIVE <= n;
        times.extend(is_selective.then_some(before_ms / after_ms));
        println!(
            "grep {pattern}: {} keys of {candidates} looked at, scan {before_ms:.1} ms, index {after_ms:.2} ms, {:.0} times faster{}",
            keys.len(),
            before_ms / after_ms,
            if is_selective { "" } else { " (not selective)" }
        );
    }
    times.sort_by(f64::total_cmp);
    if let [least, ..] = times[..] {
        let median = times[times.len() / 2];
        println!("{} selective patterns: at least {least:.0} times faster, median {median:.0}", times.len());
    }
}
