//! Proves that the journal is complete. Several workers write at once, with expiry, eviction, transactions, scripts and
//! blocked clients. The journal then runs alone, here and in redis-server, and must make data with an equal digest.

use crate::fixture::{Peer, Server, Stop, command};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strand_chain::Chain;
use strand_commands::replay::{Replay, ReplayError, RunOther};
use strand_commands::serial::dataset_digest;
use strand_engine::Now;
use strand_keyspace::Keyspace;
use strand_testkit::generate::Generator;
use strand_testkit::process;
use strand_wire::args::Argv;
use strand_wire::client::Value;
use strand_wire::resp::{Decoded, Decoder, RequestLimits};

const THREADS: usize = 3;
const COMMANDS: usize = 8_000;
/// The test's clock is ten years ahead, so that in redis-server, which uses the real clock, nothing expires.
const AHEAD_S: i64 = 10 * 365 * 86_400;
/// Commands sent to redis-server before their replies are read.
const BATCH: usize = 200;
/// Maximum wait of a request for shards that another thread holds.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a blocked client is checked before its timeout ends.
const LOOKS: usize = 50;

/// Kinds of commands that the generator does not make.
const MORE: &[&str] = &[
    "MULTI|INCR n|SPOP set|SELECT 3|SET in3 {n} PX 20|EXEC|SELECT 0",
    "MULTI|RPUSH queue {n}|EXPIRE queue 1|EXEC",
    "EVAL \"redis.call('set', KEYS[1], ARGV[1]) return redis.call('incrbyfloat', KEYS[1], '0.25')\" 1 float {n}",
    "EVAL \"for i = 1, 20 do redis.call('lpush', KEYS[1], i) end return redis.call('spop', 'set')\" 1 queue",
    "EVAL \"redis.call('set', 'undeclared', ARGV[1]) return 1\" 1 queue {n}",
    // Too long for a worker: it runs on a draft.
    "EVAL \"for i = 1, 50000 do end redis.call('set', 'undeclared' .. ARGV[1] % 9, ARGV[1], 'EX', 50) \
     redis.call('lpush', 'queue', ARGV[1]) return redis.call('spop', 'set')\" 0 {n}",
    "SET soon {n} PX 3",
    "SETEX later 100 {n}",
    "GETEX later PX 7",
    "HSET fields a {n} b {n}",
    "PEXPIRE fields 5",
    "SADD set {n} x{n} y{n}",
    "SPOP set 2",
    "BLPOP queue other 0.01",
    "BLMOVE queue other LEFT RIGHT 0.01",
    "BZPOPMIN ranks 0.01",
    "ZADD ranks {n} m{n}",
    "INCRBYFLOAT float 1.5",
    "HINCRBYFLOAT fields a 0.1",
    "XADD log MAXLEN ~ 20 * f {n}",
    "XTRIM log MINID ~ 5",
    "XGROUP CREATE log readers 0 MKSTREAM",
    "XREADGROUP GROUP readers me COUNT 2 STREAMS log >",
    "XAUTOCLAIM log readers you 0 0",
    "SELECT 5",
    "SELECT 0",
    "SWAPDB 5 6",
    "MOVE later 5",
    "COPY queue copy DB 7 REPLACE",
    // Scores that differ: a range of members then depends on how the server searches. The long member makes the
    // second set a skip list.
    "ZADD mixed {n} m{n} 7 01 8 z|ZREMRANGEBYLEX mixed (a +|ZRANGESTORE part mixed - (n BYLEX",
    "ZADD listed {n} m{n} 7 01 8 zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "ZREMRANGEBYLEX listed [m2 (z|ZRANGESTORE part listed [m1 + BYLEX",
    "GETDEL soon",
    "DELEX float",
    "SETIF kept {n} NX",
    "MSETEX 2 one {n} two {n} PX 9",
    "LPOP queue 3",
    "LMPOP 2 other queue LEFT COUNT 2",
    "SORT queue ALPHA STORE sorted",
    "PFADD visitors {n}",
    "PFCOUNT visitors",
    "SETBIT bits {n} 1",
    "GEOADD places 13.{n} 38.{n} p{n}",
];

/// In [`LONG_TRANSACTION`], this word is replaced by a [`long_write`].
const LONG_WRITE: &str = "LONG";

/// A transaction on copies, whose changes are promised.
const LONG_TRANSACTION: &[&str] = &[
    "SELECT 5",
    "SET in5 {n}",
    "MULTI",
    "INCR in5",
    "RPUSH queue {n} x",
    LONG_WRITE,
    "SPOP set",
    "SET soon {n} PX 3",
    "PEXPIRE fields 5",
    "RENAME in5 kept",
    "DEL later",
    "EXEC",
    "SELECT 0",
    "MULTI",
    "RPUSH queue {n} x",
    "ZADD ranks {n} m{n}",
    "GETEX later PX 7",
    LONG_WRITE,
    "SPOP set",
    "INCRBYFLOAT float 1.5",
    "XADD log MAXLEN ~ 20 * f {n}",
    "SETEX later 100 {n}",
    "HINCRBYFLOAT fields a 0.1",
    "EXEC",
];

/// A write with enough keys to become a promise. Other writes use some of the keys too.
fn long_write(rng: &mut fastrand::Rng) -> String {
    let (name, options) = match rng.u8(..8) {
        0..4 => ("DEL", ""),
        4 => ("MSETNX", ""),
        5 => ("MSETEX", [" PX 5000", " KEEPTTL", " NX", " XX"][rng.usize(..4)]),
        _ => ("MSET", ""),
    };
    let shared = ["one", "two", "kept", "soon", "float", "visitors"].map(String::from);
    let filled = (0..4_200).map(|n| format!("long:{n}"));
    let mut keys: Vec<String> = shared.into_iter().chain(filled).collect();
    rng.shuffle(&mut keys);
    let words: String = keys
        .iter()
        .map(|key| if name == "DEL" { format!(" {key}") } else { format!(" {key} {}", rng.u16(..)) })
        .collect();
    let count = if name == "MSETEX" { format!(" {}", keys.len()) } else { String::new() };
    [name, &count, &words, options].concat()
}

/// The test's clock. Each command advances it.
struct Clock(AtomicI64);

impl Clock {
    fn now(&self) -> Now {
        let unix_us = self.0.fetch_add(200, Relaxed);
        Now { unix_us, mono_us: unix_us as u64 }
    }
}

/// Counts a thread that runs, until it ends or panics.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn request(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Runs one request to its end. A blocked client waits until another serves it, or its time is over.
// The real clock bounds the test, and is no part of what it tests.
#[allow(clippy::disallowed_methods)]
fn run(peer: &mut Peer, input: &[u8], clock: &Clock) {
    peer.feed(input, usize::MAX);
    let began = Instant::now();
    while began.elapsed() < WAIT_MAX {
        match peer.drive_at(clock.now()) {
            Stop::Read | Stop::Flush => return drop(peer.received_bytes()),
            Stop::Parked | Stop::Sleep(_) => std::thread::yield_now(),
            Stop::Blocked(_) => {
                for _ in 0..LOOKS {
                    std::thread::yield_now();
                    clock.now();
                }
            }
            Stop::Ended => panic!("the session ended: {}", peer.replies()),
        }
    }
    panic!("it waits for ever: {}", input.escape_ascii());
}

/// The bytes in use that do not count against the limit, such as those of scripts.
fn uncounted_bytes(peer: &mut Peer, clock: &Clock) -> u64 {
    peer.feed(b"INFO memory\r\n", usize::MAX);
    while peer.drive_at(clock.now()) != Stop::Read {
        std::thread::yield_now();
    }
    let text = String::from_utf8_lossy(&peer.received_bytes()).into_owned();
    let number = text.lines().find_map(|line| line.strip_prefix("mem_not_counted_for_evict:"));
    number.and_then(|number| number.parse().ok()).expect("a number")
}

/// The commands in the bytes of a journal.
fn requests(stream: Chain) -> Vec<Argv> {
    let (mut input, mut decoder, mut all) = (stream, Decoder::new(RequestLimits::FULL), Vec::new());
    let mut argv = Argv::new();
    loop {
        match decoder.decode(&mut input, &mut argv).expect("requests") {
            Decoded::Command => all.push(std::mem::take(&mut argv)),
            Decoded::LimitReached => {}
            Decoded::NeedsBytes => break,
        }
    }
    assert!(input.is_empty(), "{} bytes are no request", input.len());
    all
}

fn words(argv: &Argv) -> Vec<Vec<u8>> {
    argv.args().iter().map(<[u8]>::to_vec).collect()
}

fn shown(argv: &Argv) -> String {
    words(argv).iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_journal_of_several_workers_makes_the_data_again() {
    let seed = strand_testkit::env_number("STRAND_SEED", 7u64);
    let mut server = Server::with("maxmemory 1mb\nmaxmemory-policy allkeys-random\n");
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    let start_s = since_1970.as_secs() as i64 + AHEAD_S;
    let clock = Clock(AtomicI64::new(start_s * 1_000_000));
    server.used_bytes.store(0, Relaxed);
    let engine = server.engine.clone();
    assert_eq!(engine.switch_journal(true), 0);
    let mut peers: Vec<Peer> = (0..THREADS).map(|_| server.connect()).collect();
    let used_bytes = server.used_bytes.clone();
    let (mut stream, running) = (Chain::new(), AtomicUsize::new(THREADS));
    std::thread::scope(|scope| {
        for (thread, peer) in peers.iter_mut().enumerate() {
            let (clock, engine, used_bytes, running) = (&clock, &engine, &used_bytes, &running);
            scope.spawn(move || {
                let _running = Running(running);
                let mut generator =
                    Generator::new(strand_engine::TABLE.rows(), seed + thread as u64, start_s);
                let mut rng = fastrand::Rng::with_seed(seed * 31 + thread as u64);
                for n in 0..COMMANDS {
                    if rng.u16(..1_000) == 0 {
                        run(peer, &command("FLUSHDB"), clock);
                    } else if rng.u16(..300) == 0 {
                        let long = long_write(&mut rng);
                        let lines = if rng.bool() { &[LONG_WRITE][..] } else { LONG_TRANSACTION };
                        for line in lines {
                            let line =
                                line.replace(LONG_WRITE, &long).replace("{n}", &rng.u16(..500).to_string());
                            run(peer, &command(&line), clock);
                        }
                    } else if n % 2 == 0 {
                        for line in MORE[rng.usize(..MORE.len())].split('|') {
                            run(peer, &command(&line.replace("{n}", &rng.u16(..500).to_string())), clock);
                        }
                    } else {
                        run(peer, &request(&generator.command()), clock);
                    }
                    if n % 50 == 0 {
                        engine.expire(clock.now());
                    }
                    if thread == 0 && n % 100 == 0 {
                        // The allocator reports too much memory for a moment, so writes evict something.
                        for used in [(1 << 20) + 1 + uncounted_bytes(peer, clock), 0] {
                            used_bytes.store(used, Relaxed);
                            engine.watch_memory(clock.now());
                            run(peer, &command("SET one more"), clock);
                        }
                    }
                }
            });
        }
        // Take the journal's bytes while threads write, as the thread of an append-only file does.
        while running.load(Relaxed) > 0 {
            engine.keyspace().journal().take(&mut stream);
            std::thread::yield_now();
        }
    });
    // Keys whose time has come expire, and their expiries are in the journal.
    let now_ms = clock.now().unix_ms() + 150;
    while engine.keyspace().expire_slice(now_ms, usize::MAX).has_more {}
    assert_eq!(engine.keyspace().journal().take(&mut stream).end, engine.keyspace().journal().tail());
    assert_eq!(stream.len() as u64, engine.keyspace().journal().tail(), "offsets count bytes");
    let digest = dataset_digest(engine.keyspace(), now_ms).to_hex();
    let all = requests(stream);
    let names = |name: &[u8]| all.iter().filter(|argv| argv.args().at(0) == name).count();
    let counts = [names(b"EXEC"), names(b"DEL"), names(b"LPOP"), names(b"XCLAIM"), names(b"SREM")];
    let by_themselves = [engine.keyspace().evicted_total(), engine.keyspace().expired_total()];
    let is_rich = counts.iter().all(|n| *n > 20) && by_themselves.iter().all(|n| *n > 20);
    assert!(is_rich, "EXEC, DEL, LPOP, XCLAIM, SREM: {counts:?}; evicted and expired: {by_themselves:?}");

    let (twin, mut replay) = (Keyspace::new(4, 16, [5, 6, 7, 8]), Replay::new(&strand_engine::TABLE, 0));
    let redis = process::Server::redis(&["--enable-debug-command", "yes"], None).expect("redis-server");
    let mut client = redis.connect().expect("a connection");
    for batch in all.chunks(BATCH) {
        for argv in batch {
            client.send(&words(argv)).expect("it listens");
        }
        for argv in batch {
            let reply = client.reply().expect("a reply");
            let failed = match &reply {
                Value::Array(parts) => parts.iter().any(|part| matches!(part, Value::Error(_))),
                reply => matches!(reply, Value::Error(_)),
            };
            assert!(!failed, "seed {seed}: redis-server says {reply:?} to {}", shown(argv));
        }
    }
    for mut argv in all {
        let line = shown(&argv);
        let none: RunOther<'_> = &mut |_, _, _| Err(ReplayError::Refused("it".to_owned()));
        let run = replay.command(&twin, &mut argv, now_ms, none);
        let error = run.err().map(|why| why.to_string()).or(replay.first_error.take());
        assert!(error.is_none(), "seed {seed}: {error:?}: {line}");
    }
    assert_eq!(dataset_digest(&twin, now_ms).to_hex(), digest, "seed {seed}: our own data differ");
    let theirs = client.call(&["DEBUG", "DIGEST"]).expect("a digest");
    let Value::Simple(theirs) = theirs else { panic!("no digest: {theirs:?}") };
    assert_eq!(String::from_utf8_lossy(&theirs), digest, "seed {seed}: redis-server's data differ");
    drop(client);
    redis.reset_peak().ok();
}
