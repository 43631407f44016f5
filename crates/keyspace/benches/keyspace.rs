//! The cost of keys: `cargo bench -p strand-keyspace --bench keyspace [-- --json] [-- --keys N]`.
//!
//! Fills a keyspace with 16-byte keys and 64-byte values. Prints nanoseconds per operation; the longest
//! single insert, and the threshold of the longest 1 in 10,000; bytes per key, as requested from the
//! allocator and as resident; and the cost of a sweep, a SCAN and a shrinking keyspace. Then the same figures
//! for the fields of one hash. `cargo test` runs this benchmark with few keys, to check that no operation
//! moves more than a segment.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use strand_keyspace::{Collection, HashValue, Keyspace, Settings, StrRef};

/// Default number of keys, and the number in a test run.
const KEYS: usize = 1_000_000;
const TEST_KEYS: usize = 20_000;
const SHARDS: usize = 1024;
/// Maximum number of items in a segment, and so the maximum number that one operation may move.
const MOVED_MAX: usize = 896;
const VALUE: [u8; 64] = [b'v'; 64];
/// Number of requests of a pipeline whose keys are prefetched together.
const PIPELINED: usize = 16;
const NOW_MS: i64 = 1_700_000_000_000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    // `cargo bench` passes `--bench`. Without this argument the run is a test.
    let default = if has("--bench") { KEYS } else { TEST_KEYS };
    let given = args.iter().position(|a| a == "--keys").and_then(|i| args.get(i + 1)?.parse().ok());
    let mut table = Table { json: has("--json") };
    let keys = given.unwrap_or(default);
    if !table.json {
        println!("{keys} keys of 16 bytes with values of {} bytes, {SHARDS} shards\n", VALUE.len());
    }
    keyspace(&mut table, keys);
    hash(&mut table, keys);
}

fn keyspace(table: &mut Table, keys: usize) {
    let space = Keyspace::new(SHARDS, 16, [fastrand::u64(..), 2, 3, 4]);
    let order = shuffled(keys);
    let resident_before = resident_bytes();
    let insert = |space: &Keyspace, i: usize| {
        let name = name(i);
        let key = space.key(&name);
        space.lock(&[key.hash], NOW_MS).db(0).set_str(&key, StrRef::of(&VALUE), None);
    };
    let started = Cpu::now();
    let asked = allocation_counter::measure(|| (0..keys).for_each(|i| insert(&space, i)));
    table.row("insert a new key", per(started.elapsed(), keys), "ns");
    let resident = resident_bytes().saturating_sub(resident_before);
    let mut pauses: Vec<Duration> = {
        let space = Keyspace::new(SHARDS, 16, [fastrand::u64(..), 2, 3, 4]);
        let pause = |i| {
            let begun = Cpu::now();
            insert(&space, i);
            begun.elapsed()
        };
        (0..keys).map(pause).collect()
    };
    pauses.sort_unstable();
    table.row("longest insert", pauses[keys - 1].as_secs_f64() * 1e6, "us");
    table.row("longest insert but 1 in 10,000", pauses[keys - 1 - keys / 10_000].as_secs_f64() * 1e6, "us");
    let shape = space.shape(0);
    assert!(shape.moved_max <= MOVED_MAX, "{shape:?}");
    table.row("most records moved by one insert", shape.moved_max as f64, "");
    table.row("segments", shape.segments as f64, "");
    table.row("bytes per key, asked of the allocator", asked.bytes_current as f64 / keys as f64, "B");
    table.row("  of which the table", shape.heap_bytes as f64 / keys as f64, "B");
    table.row("bytes per key, resident", resident as f64 / keys as f64, "B");

    let rounds = |what: &mut dyn FnMut(usize)| {
        let started = Cpu::now();
        order.iter().for_each(|i| what(*i as usize));
        per(started.elapsed(), keys)
    };
    let get = rounds(&mut |i| {
        let name = name(i);
        let key = space.key(&name);
        black_box(space.lock(&[key.hash], NOW_MS).db(0).get(&key).is_some());
    });
    table.row("get, random order", get, "ns");
    let miss = rounds(&mut |i| {
        let name = name(i + keys);
        let key = space.key(&name);
        black_box(space.lock(&[key.hash], NOW_MS).db(0).get(&key).is_none());
    });
    table.row("get, not there", miss, "ns");
    let set = rounds(&mut |i| insert(&space, i));
    table.row("overwrite, random order", set, "ns");
    let overwrite_ahead = || {
        let started = Cpu::now();
        for some in order.chunks(PIPELINED) {
            let names: Vec<_> = some.iter().map(|i| name(*i as usize)).collect();
            let hashed: Vec<_> = names.iter().map(|name| space.key(name)).collect();
            space.prefetch(0, &hashed);
            for key in &hashed {
                space.lock(&[key.hash], NOW_MS).db(0).set_str(key, StrRef::of(&VALUE), None);
            }
        }
        per(started.elapsed(), keys)
    };
    table.row("overwrite, 16 keys prefetched", overwrite_ahead(), "ns");
    let snapshot = space.snapshot(usize::MAX, Arc::default());
    table.row("  while a snapshot keeps each record", overwrite_ahead(), "ns");
    table.row("  again, when each record is kept", overwrite_ahead(), "ns");
    table.row("  bytes of marks and kept records", snapshot.load().bytes() as f64 / keys as f64, "B");
    drop(snapshot);
    let (name, mut hot) = (name(7), 0);
    let started = Cpu::now();
    for _ in 0..keys {
        let key = space.key(&name);
        hot += usize::from(space.lock(&[key.hash], NOW_MS).db(0).get(&key).is_some());
    }
    table.row("get, the same key", per(started.elapsed(), black_box(hot)), "ns");

    let (mut cursor, mut steps, mut seen) = (0, 0, 0);
    let started = Cpu::now();
    loop {
        cursor =
            space.scan(0, cursor, 10, NOW_MS, &mut |record| seen += usize::from(!record.key().is_empty()));
        steps += 1;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, keys);
    table.row("SCAN COUNT 10, a step", per(started.elapsed(), steps), "ns");
    let mut rng = fastrand::Rng::with_seed(1);
    let started = Cpu::now();
    (0..1000).for_each(|_| drop(black_box(space.random_key(0, NOW_MS, &mut rng))));
    table.row("random key", per(started.elapsed(), 1000), "ns");

    expiry(table, &space, keys);
}

fn expiry(table: &mut Table, space: &Keyspace, keys: usize) {
    let started = Cpu::now();
    assert_eq!(space.expire_slice(NOW_MS, usize::MAX).removed, 0);
    table.row("sweep, nothing has an expiry", started.elapsed().as_secs_f64() * 1e6, "us");
    for i in 0..keys {
        let name = name(i);
        let key = space.key(&name);
        let at_ms = if i % 100 == 0 { NOW_MS + 1_000_000 } else { NOW_MS + 1000 };
        space.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, Some(at_ms));
    }
    let started = Cpu::now();
    assert_eq!(space.expire_slice(NOW_MS + 999, usize::MAX).removed, 0);
    table.row("sweep, nothing is due", started.elapsed().as_secs_f64() * 1e6, "us");
    let (mut longest, mut gone) = (Duration::ZERO, 0);
    let started = Cpu::now();
    loop {
        let begun = Cpu::now();
        let removed = space.expire_slice(NOW_MS + 1000, 400).removed;
        longest = longest.max(begun.elapsed());
        gone += removed;
        if removed == 0 {
            break;
        }
    }
    table.row("expire 99 % in slices of 400, a key", per(started.elapsed(), gone), "ns");
    table.row("longest slice", longest.as_secs_f64() * 1e6, "us");
    let shape = space.shape(0);
    assert_eq!(shape.items, keys.div_ceil(100));
    assert!(shape.moved_max <= MOVED_MAX, "{shape:?}");
    table.row("segments left", shape.segments as f64, "");
    table.row("bytes of table left", shape.heap_bytes as f64, "B");
}

fn hash(table: &mut Table, fields: usize) {
    let settings = Settings::default();
    let mut hash = HashValue::new();
    let mut longest = Duration::ZERO;
    let started = Cpu::now();
    let asked = allocation_counter::measure(|| {
        for i in 0..fields {
            let (name, value) = (name(i), &VALUE[..16]);
            let begun = Cpu::now();
            hash.set(&name, value, &settings);
            longest = longest.max(begun.elapsed());
        }
    });
    table.row("hash: set a new field (16 + 16 bytes)", per(started.elapsed(), fields), "ns");
    table.row("hash: longest set", longest.as_secs_f64() * 1e6, "us");
    table.row("hash: bytes per field, asked", asked.bytes_current as f64 / fields as f64, "B");
    table.row("hash: bytes per field, as it says", hash.heap_bytes() as f64 / fields as f64, "B");
    let order = shuffled(fields);
    let started = Cpu::now();
    for i in &order {
        black_box(hash.get(&name(*i as usize)).is_some());
    }
    table.row("hash: get, random order", per(started.elapsed(), fields), "ns");
    let started = Cpu::now();
    let sum: usize = hash.iter().map(|(field, value)| field.len() + value.len()).sum();
    table.row("hash: iterate, a field", per(started.elapsed(), fields), "ns");
    assert_eq!(sum, 32 * fields);
}

/// A key of 16 bytes.
fn name(i: usize) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = i;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}
fn shuffled(n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    fastrand::Rng::with_seed(9).shuffle(&mut order);
    order
}
fn per(time: Duration, operations: usize) -> f64 {
    time.as_secs_f64() * 1e9 / operations as f64
}
/// The process's resident memory in bytes. 0 where the kernel does not report it.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Processor time of this thread, so that other programs do not disturb the figures.
#[derive(Clone, Copy)]
struct Cpu(Duration);

impl Cpu {
    fn now() -> Cpu {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Cpu(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
    fn elapsed(self) -> Duration {
        Cpu::now().0.saturating_sub(self.0)
    }
}

struct Table {
    json: bool,
}

impl Table {
    fn row(&mut self, what: &str, figure: f64, unit: &str) {
        if self.json {
            println!(
                r#"{{"bench":"keyspace","what":"{}","figure":{figure:.1},"unit":"{unit}"}}"#,
                what.trim()
            );
        } else {
            println!("{what:<44} {figure:>14.1} {unit}");
        }
    }
}
