//! The cost of a command inside a session, from its bytes in the read target to its reply in the output chain,
//! without sockets. Measures nanoseconds of processor time per command, for pipelines of 30 and of 1, with 256-byte
//! values.
//!
//! `cargo bench -p strand-engine` measures 1,000,000 keys. `KEYS=n` sets another number, `ONLY=GET` selects one kind
//! of command, `COMMANDS=n` sets the number of measured commands and `PIPELINE=n` one depth. `CLOCK=no valgrind
//! --tool=callgrind --toggle-collect='pipeline::run'` with two numbers of commands gives the instructions of one
//! command; the clock is not read then, because valgrind hides what rustix reads. The script of EVALSHA and the
//! function of FCALL call GET. `JOURNAL=1` measures what the journal costs writers when no file takes the journal: each
//! kind of write with the journal and without, in turns. `cargo test` runs a tiny round. Keys come from a fixed seed.
//! The sum of reply bytes is printed, so that two runs can be compared.

#[path = "../tests/session/fixture.rs"]
mod fixture;

use fixture::{Peer, Server};
use rustix::time::{ClockId, clock_gettime};
use strand_chain::Chain;

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 256;
const COMMANDS: usize = 1_500_000;
/// A library with a function that calls GET.
const LIBRARY: &str = "FUNCTION LOAD \"#!lua name=bench\\nredis.register_function('read', function(keys) \
                       return redis.call('get',keys[1]) end)\"";
/// With `JOURNAL`: number of turns of each kind. The cheapest turn counts.
const TURNS: usize = 5;
/// The journal is emptied after this many batches, outside of what is measured, because in a server another thread
/// does this.
const BATCHES_TILL_TAKEN: usize = 64;

fn main() {
    // Without `--bench` this is a test run, and a tiny round proves that the bench works.
    let measuring = std::env::args().any(|a| a == "--bench");
    let from_environment = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (keys, commands) = match measuring {
        true => (
            from_environment("KEYS").unwrap_or(KEYS),
            from_environment("COMMANDS").map_or(COMMANDS, |n| n as usize),
        ),
        false => (1000, 3000),
    };
    let mut server = Server::new();
    let mut peer = server.connect();
    let value = "v".repeat(VALUE_BYTES);
    for i in 0..keys {
        run(&server, &mut peer, &fixture::command(&format!("SET key:{i:012} {value}")));
    }
    println!("{keys} keys, {VALUE_BYTES}-byte values, {commands} commands each");
    let loaded = peer.run(&server, "SCRIPT LOAD \"return redis.call('get',KEYS[1])\"");
    let digest = loaded.split('|').nth(1).expect("a digest");
    peer.run(&server, LIBRARY);
    type Line<'l> = &'l dyn Fn(u64, &str) -> String;
    let only = std::env::var("ONLY").unwrap_or_default();
    let workloads: [(&str, Line<'_>); 7] = [
        ("PING", &|_, _| "PING".into()),
        ("GET", &|key, _| format!("GET key:{key:012}")),
        ("SET", &|key, value| format!("SET key:{key:012} {value}")),
        ("80% GET 20% SET", &|key, value| match key % 5 {
            0 => format!("SET key:{key:012} {value}"),
            _ => format!("GET key:{key:012}"),
        }),
        ("INCR", &|key, _| format!("INCR n:{:012}", key % 1000)),
        ("EVALSHA", &|key, _| format!("EVALSHA {digest} 1 key:{key:012}")),
        ("FCALL", &|key, _| format!("FCALL read 1 key:{key:012}")),
    ];
    let depths = from_environment("PIPELINE").map_or(vec![30, 1], |depth| vec![depth as usize]);
    let by_turns = std::env::var_os("JOURNAL").is_some() || !measuring;
    for (name, line) in workloads.into_iter().filter(|w| w.0.contains(&only)) {
        for pipeline in depths.iter().copied() {
            let mut rng = fastrand::Rng::with_seed(30);
            let batches: Vec<Vec<u8>> = (0..commands / pipeline)
                .map(|_| {
                    (0..pipeline).flat_map(|_| fixture::command(&line(rng.u64(0..keys), &value))).collect()
                })
                .collect();
            if by_turns && (name.contains("SET") || name == "INCR") {
                let [without, with] = journal(&server, &mut peer, &batches).map(|ns| ns / pipeline as f64);
                let more = (with / without - 1.0) * 100.0;
                println!(
                    "{name:16} pipeline {pipeline:2}: {without:6.1} ns without the journal, {with:6.1} with: {more:+.1} %"
                );
                continue;
            }
            let start = processor_ns();
            let replied: usize = batches.iter().map(|batch| run(&server, &mut peer, batch)).sum();
            let ns = (processor_ns() - start) as f64 / (batches.len() * pipeline) as f64;
            println!("{name:16} pipeline {pipeline:2}: {ns:6.1} ns a command ({replied} reply bytes)");
        }
    }
}

/// Nanoseconds per command of a batch without the journal, and with the journal.
fn journal(server: &Server, peer: &mut Peer, batches: &[Vec<u8>]) -> [f64; 2] {
    let mut least = [f64::MAX; 2];
    for _ in 0..TURNS {
        for (is_on, least) in [false, true].into_iter().zip(&mut least) {
            let begin = server.engine.switch_journal(is_on);
            let mut ns = 0;
            for some in batches.chunks(BATCHES_TILL_TAKEN) {
                let start = processor_ns();
                for batch in some {
                    run(server, peer, batch);
                }
                ns += processor_ns() - start;
                server.engine.keyspace().journal().take(&mut Chain::new());
            }
            let end = server.engine.switch_journal(false);
            assert_eq!(end > begin, is_on, "it records what changes, when it is on");
            *least = least.min(ns as f64 / batches.len() as f64);
        }
    }
    least
}

/// Processor time of this thread in nanoseconds. Other programs on the machine do not count.
fn processor_ns() -> i64 {
    if std::env::var_os("CLOCK").is_some_and(|clock| clock == "no") {
        return 0;
    }
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Feeds one batch to the session and takes the replies. Returns the number of reply bytes.
#[inline(never)]
fn run(server: &Server, peer: &mut Peer, input: &[u8]) -> usize {
    peer.feed(input, usize::MAX);
    let mut replied = 0;
    loop {
        let turn = peer.session.run(server.now);
        let len = peer.session.output().len();
        peer.session.output().advance(len);
        replied += len;
        if matches!(turn, strand_engine::Turn::Read) {
            return replied;
        }
    }
}
