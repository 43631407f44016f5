//! Container diff: 10,000 entries a side with five key/value pairs each, the comparison of promise 4.
//!
//! Prints entries per second for parse + diff together, and what building costs. Run with `cargo bench -p
//! strand-import`; `--json` prints one line of JSON; under `cargo test --benches` it runs tiny.

use std::hint::black_box;
use std::time::{Duration, Instant};
use strand_import::container::{Container, ContainerBuilder, EntryKind};
use strand_import::diff::{Change, diff};

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    let (entries, rounds) = if has("--bench") { (10_000, 300) } else { (200, 3) };
    let (old, new) = (build(entries, false), build(entries, true));

    let started = Instant::now();
    let mut changed = 0;
    for _ in 0..rounds {
        let old = Container::parse(black_box(&old)).expect("built above");
        let new = Container::parse(black_box(&new)).expect("built above");
        changed = diff(old, new).filter(|c| !matches!(c, Change::Unchanged { .. })).count();
    }
    let compared = per_second(2 * entries * rounds, started.elapsed());

    let (old, new) = (Container::parse(&old).expect("built"), Container::parse(&new).expect("built"));
    let started = Instant::now();
    for _ in 0..rounds {
        black_box(diff(black_box(old), black_box(new)).count());
    }
    let merged = per_second(2 * entries * rounds, started.elapsed());

    let started = Instant::now();
    for _ in 0..rounds.div_ceil(10) {
        black_box(build(entries, true));
    }
    let built = per_second(entries * rounds.div_ceil(10), started.elapsed());
    let bytes = new.blob().len() as f64 / entries as f64;
    if has("--json") {
        println!(
            "{{\"bench\":\"import_diff\",\"entries\":{entries},\"changed\":{changed},\"check_and_diff_per_s\":{compared:.0},\
             \"diff_per_s\":{merged:.0},\"build_per_s\":{built:.0},\"bytes_per_entry\":{bytes:.1}}}"
        );
    } else {
        println!(
            "container diff, {entries} entries a side, 5 pairs each, {changed} changed, {bytes:.0} bytes/entry"
        );
        println!("  check both and diff {compared:>12.0} entries/s");
        println!("  diff alone          {merged:>12.0} entries/s");
        println!("  build               {built:>12.0} entries/s");
    }
}

/// One side; the new one has 1% updated, 1% removed and 1% added. Written in an order far from the sorted one.
fn build(entries: usize, new: bool) -> Vec<u8> {
    let mut builder = ContainerBuilder::with_capacity(1, entries, entries * 200);
    for i in 0..entries {
        let i = i * 7919 % entries;
        let name = match i % 100 {
            50 if new => format!("added-{i:08}.eml"),
            _ => format!("message-{i:08}.eml"),
        };
        let mut token = [0u8; 32];
        token[..8].copy_from_slice(&(i as u64 + u64::from(new && i % 100 == 25)).to_le_bytes());
        let pairs: [(&[u8], &[u8]); 5] = [
            (b"owner", b"archive"),
            (b"group", b"mail"),
            (b"mode", b"0644"),
            (b"type", b"message/rfc822"),
            (b"~digest", &token[..16]),
        ];
        builder.push(EntryKind::Document, name.as_bytes(), 4096, &token, pairs).expect("within the limits");
    }
    builder.finish().expect("names differ")
}

fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
