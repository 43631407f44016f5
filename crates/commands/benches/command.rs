//! What a command costs between decoder and socket: `cargo bench -p strand-commands --bench command [-- --json]`.
//!
//! For each command line, the bench shows how many nanoseconds it takes to fill an argv with the line, to find the
//! row, to resolve the line to its row and its key positions, and to run the whole command over a keyspace of a
//! million keys (hash the keys, lock their shards, run the handler, encode the reply). Every time includes the
//! filling of the argv. The whole run also includes the resolving. The last column has the number of allocations per
//! run. A million keys do not fit into the caches, so most of the time of a whole run is memory latency. `cargo test`
//! runs the bench with few keys, and checks that GET allocates nothing.

use smallvec::SmallVec;
use std::hint::black_box;
use std::time::UNIX_EPOCH;
use strand_chain::Chain;
use strand_commands::call::Call;
use strand_commands::dispatch;
use strand_commands::table::{GROUPS, Table};
use strand_keyspace::{Key, KeyHash, Keyspace};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

static TABLE: Table = strand_commands::table!(GROUPS);

/// Number of keys under `cargo bench`, and under `cargo test`.
const KEYS: [u32; 2] = [1_000_000, 1_000];
/// Number of runs of one measurement under `cargo bench`, and under `cargo test`.
const RUNS: [u32; 2] = [200_000, 200];
/// Number of times that a cost is measured. The best result is shown.
const ROUNDS: usize = 7;
const VALUE_BYTES: usize = 256;
const KEY_DIGITS: usize = 12;
/// Number of replies in one pipeline. After this number the output is emptied, as after a write to the socket.
const PIPELINE: u32 = 32;
const NOW_MS: i64 = 1_700_000_000_000;
const SEED: u64 = 42;

/// Names and command lines. `{}` stands for a random key that exists, and `V` for a value.
const LINES: [(&str, &str); 8] = [
    ("GET", "GET key:{}"),
    ("SET", "SET key:{} V"),
    ("SET EX", "SET key:{} V EX 1000"),
    ("INCR", "INCR number:{}"),
    ("STRLEN", "STRLEN key:{}"),
    ("MGET of 4", "MGET key:{} key:{} key:{} key:{}"),
    ("HGET", "HGET hash:{} field"),
    ("OBJECT ENCODING", "OBJECT ENCODING key:{}"),
];

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    // `cargo bench` passes --bench. Without this flag it is a run of `cargo test`.
    let size = usize::from(!has("--bench"));
    let (json, keys, runs) = (has("--json"), KEYS[size], RUNS[size]);
    let mut bench = Bench::new();
    let mut argv = Argv::new();
    for line in ["SET key:{} V", "SET number:{} 1", "HSET hash:{} field V"] {
        for key in 0..keys {
            fill(&mut argv, line, || key);
            bench.run(argv.args());
        }
    }
    if !json {
        println!("{keys} keys, seed {SEED}, best of {ROUNDS}\n");
        let heads = ["fill", "find the row", "resolve, keys", "whole", "allocations"];
        println!(
            "{:<18} {:>8} {:>14} {:>14} {:>10} {:>14}",
            "ns per command", heads[0], heads[1], heads[2], heads[3], heads[4]
        );
    }
    let mut rng = fastrand::Rng::with_seed(SEED);
    for (name, line) in LINES {
        let mut cost = |work: &mut dyn FnMut(Args<'_>)| {
            best(runs, || {
                fill(&mut argv, line, || rng.u32(0..keys));
                work(argv.args());
            })
        };
        let filled = cost(&mut |args| {
            black_box(args);
        });
        let lookup = cost(&mut |args| {
            black_box(TABLE.lookup(args.at(0)));
        });
        let resolve = cost(&mut |args| {
            let found = TABLE.resolve(args).expect("a command");
            let _ = black_box(dispatch::key_positions(found.spec, args));
        });
        let whole = cost(&mut |args| bench.run(args));
        let counted = allocation_counter::measure(|| {
            for _ in 0..runs {
                fill(&mut argv, line, || rng.u32(0..keys));
                bench.run(argv.args());
            }
        });
        let allocations = counted.count_total as f64 / f64::from(runs);
        // The blocks of the output chain come from a pool, so a command that reads allocates nothing at all.
        assert!(name != "GET" || counted.count_total == 0, "GET allocated {} times", counted.count_total);
        assert!(name != "SET" || allocations <= 2.0, "SET allocated {allocations} times a run");
        if json {
            let costs = format!(
                r#""fill_ns":{filled:.2},"lookup_ns":{lookup:.2},"resolve_ns":{resolve:.2},"whole_ns":{whole:.2}"#
            );
            println!(r#"{{"bench":"command","name":"{name}",{costs},"allocations":{allocations:.3}}}"#);
        } else {
            println!(
                "{name:<18} {filled:>8.1} {lookup:>14.1} {resolve:>14.1} {whole:>10.1} {allocations:>14.2}"
            );
        }
    }
}

/// A keyspace, and what a session would have in order to run commands.
struct Bench {
    keyspace: Keyspace,
    out: Chain,
    rng: fastrand::Rng,
    replies: u32,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            keyspace: Keyspace::new(64, 16, [1, 2, 3, 4]),
            out: Chain::new(),
            rng: fastrand::Rng::with_seed(SEED),
            replies: 0,
        }
    }
    /// Runs one command as the engine does.
    fn run(&mut self, args: Args<'_>) {
        let found = TABLE.resolve(args).expect("a command");
        let handler = found.spec.exec.on_keys().expect("only commands on keys are measured");
        let at = dispatch::key_positions(found.spec, args).expect("keys");
        let keys: SmallVec<[Key<'_>; 4]> = at.iter().map(|i| self.keyspace.key(args.at(*i))).collect();
        let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|k| k.hash).collect();
        let mut txn = self.keyspace.lock(&hashes, NOW_MS);
        let (keys, mut reply) = (&keys[..], Reply::new(&mut self.out, Protocol::Resp2));
        let (txn, reply, rng) = (&mut txn, &mut reply, &mut self.rng);
        handler(&mut Call { args, keys, db: 0, now_ms: NOW_MS, txn, reply, rng, rights: None, wait: None });
        self.replies += 1;
        if self.replies.is_multiple_of(PIPELINE) {
            self.out.clear();
        }
    }
}

/// Fills `argv` with a line. Allocates nothing when `argv` has enough capacity already.
fn fill(argv: &mut Argv, line: &str, mut key: impl FnMut() -> u32) {
    argv.clear();
    for word in line.split(' ') {
        if word == "V" {
            argv.push(&[b'x'; VALUE_BYTES]);
        } else if let Some(prefix) = word.strip_suffix("{}") {
            let mut name = [b'0'; 24];
            name[..prefix.len()].copy_from_slice(prefix.as_bytes());
            let (mut n, end) = (key(), prefix.len() + KEY_DIGITS);
            for digit in name[prefix.len()..end].iter_mut().rev() {
                *digit = b'0' + (n % 10) as u8;
                n /= 10;
            }
            argv.push(&name[..end]);
        } else {
            argv.push(word.as_bytes());
        }
    }
}

/// The processor time of this thread, where the kernel reports it, because a busy machine hardly changes it. The time
/// of day elsewhere.
fn cpu_ns() -> u128 {
    let of_thread = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let first = of_thread.as_deref().and_then(|text| text.split(' ').next()?.parse().ok());
    first.unwrap_or_else(|| UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos()))
}

/// Number of nanoseconds that one call of `work` takes in the best round.
fn best(runs: u32, mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = cpu_ns();
        (0..runs).for_each(|_| work());
        (cpu_ns() - start) as f64 / f64::from(runs)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
