//! What a command costs between decoder and socket: `cargo bench -p strand-commands --bench command [-- --json]`.
//!
//! For each command line: nanoseconds to find its row, to resolve it with its key positions, and to run it whole (hash the
//! keys, lock their shards, run the handler, encode the reply) over a keyspace of a million keys, and allocations a run.
//! `cargo test` runs it small, as a check that GET allocates nothing.

use smallvec::SmallVec;
use std::hint::black_box;
use std::time::Instant;
use strand_chain::Chain;
use strand_commands::call::Call;
use strand_commands::dispatch;
use strand_commands::spec::Handler;
use strand_keyspace::{Key, KeyHash, Keyspace};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Keys of `cargo bench` and of `cargo test`.
const KEYS: [u32; 2] = [1_000_000, 1_000];
/// Runs of one measurement, likewise.
const RUNS: [u32; 2] = [200_000, 200];
/// A cost is measured so often and the best is shown.
const ROUNDS: usize = 7;
const VALUE_BYTES: usize = 256;
/// The output is emptied after so many replies, as after a write to the socket.
const PIPELINE: u32 = 32;
const NOW_MS: i64 = 1_700_000_000_000;
const SEED: u64 = 42;

/// Command lines; `{}` is a random key of those that are there, `V` a value.
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
    // `cargo bench` passes --bench; without it this is a test run.
    let size = usize::from(!has("--bench"));
    let (json, keys, runs) = (has("--json"), KEYS[size], RUNS[size]);
    let mut bench = Bench::new();
    for line in ["SET key:{} V", "SET number:{} 1", "HSET hash:{} field V"] {
        for key in 0..keys {
            bench.run(bench_argv(line, || key).args());
        }
    }
    if !json {
        println!("{keys} keys, seed {SEED}, best of {ROUNDS}\n");
        println!(
            "{:<18} {:>10} {:>14} {:>10} {:>14}",
            "ns per command", "lookup", "resolve, keys", "whole", "allocations"
        );
    }
    let mut rng = fastrand::Rng::with_seed(SEED);
    for (name, line) in LINES {
        let argvs: Vec<Argv> = (0..runs).map(|_| bench_argv(line, || rng.u32(0..keys))).collect();
        let lookup = best(&argvs, |args| {
            black_box(dispatch::lookup(args.at(0)));
        });
        let resolve = best(&argvs, |args| {
            let found = dispatch::resolve(args).expect("a command");
            let _ = black_box(dispatch::key_positions(found.spec, args));
        });
        let whole = best(&argvs, |args| bench.run(args));
        let counted = allocation_counter::measure(|| argvs.iter().for_each(|argv| bench.run(argv.args())));
        let allocations = counted.count_total as f64 / f64::from(runs);
        // The output chain's blocks are pooled, so reading allocates nothing at all.
        assert!(name != "GET" || counted.count_total == 0, "GET allocated {} times", counted.count_total);
        assert!(name != "SET" || allocations <= 3.0, "SET allocated {allocations} times a run");
        if json {
            println!(
                r#"{{"bench":"command","name":"{name}","lookup_ns":{lookup:.2},"resolve_ns":{resolve:.2},"whole_ns":{whole:.2},"allocations":{allocations:.3}}}"#
            );
        } else {
            println!("{name:<18} {lookup:>10.1} {resolve:>14.1} {whole:>10.1} {allocations:>14.2}");
        }
    }
}

/// A keyspace and what a session would hold.
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
        let found = dispatch::resolve(args).expect("a command");
        let Handler::Data(handler) = found.spec.handler else {
            panic!("only handlers that run at once are measured")
        };
        let at = dispatch::key_positions(found.spec, args).expect("keys");
        let keys: SmallVec<[Key<'_>; 4]> = at.iter().map(|i| self.keyspace.key(args.at(*i))).collect();
        let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|k| k.hash).collect();
        let mut locked = self.keyspace.lock(&hashes, NOW_MS);
        let (keys, mut reply) = (&keys[..], Reply::new(&mut self.out, Protocol::Resp2));
        let (locked, reply, rng) = (&mut locked, &mut reply, &mut self.rng);
        handler(&mut Call { args, keys, db: 0, now_ms: NOW_MS, locked, reply, rng });
        self.replies += 1;
        if self.replies.is_multiple_of(PIPELINE) {
            self.out.clear();
        }
    }
}

fn bench_argv(line: &str, mut key: impl FnMut() -> u32) -> Argv {
    let mut argv = Argv::new();
    for word in line.split(' ') {
        match word {
            "V" => argv.push(&[b'x'; VALUE_BYTES]),
            _ if word.contains("{}") => argv.push(word.replace("{}", &format!("{:012}", key())).as_bytes()),
            _ => argv.push(word.as_bytes()),
        }
    }
    argv
}

/// Nanoseconds of `work` for one argv, in the best round.
fn best(argvs: &[Argv], mut work: impl FnMut(Args<'_>)) -> f64 {
    let round = |_| {
        let start = Instant::now();
        argvs.iter().for_each(|argv| work(argv.args()));
        start.elapsed().as_nanos() as f64 / argvs.len() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
