//! No request takes more than its share: every command with hostile shapes of its arguments, at every door.
//!
//! One client sends a shape. A probe on the only worker sends PING until the shape is answered. The time that the
//! worker's thread computes between two answers of the probe is how long other clients wait. The process's peak
//! memory is what it holds. The kernel counts both, so a busy machine does not change them.

use crate::harness::{Client, Server, command};
use crate::http::request;
use crate::pack4::frame;
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use strand_commands::spec::CommandSpec;
use strand_engine::TABLE;
use strand_testkit::hostile::{INDEX, KEYS, Shape, some_shapes};
use strand_wire::client::encode_command;

/// Maximum time for which other clients wait, as a multiple of the worker's time for the longest plain request of the
/// shapes' size.
const STAND_FACTOR_MAX: u32 = 4;
/// Maximum number of bytes that one request may add to the process's memory.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// The test's client abandons a shape that takes longer than this, in milliseconds. The wait of other clients is still
/// checked.
const PATIENCE_MS: u64 = 1_000;
/// Maximum processor time of all threads after the client has left. The limits of an `FT.SEARCH` end it within a
/// small part of this time, even in a debug build.
const ABANDONED_CPU_MAX: Duration = Duration::from_millis(1_000);
/// The process is idle when all threads together compute less than the first time within the second.
const IDLE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));
/// A job of a client that left ends, and frees its helper thread, within this time.
const END_MS_MAX: u64 = 120_000;
/// How often a shape that costs too much is repeated.
const AGAIN_MAX: usize = 2;
/// The test sends every 256th shape. `make hostile` sends all shapes to a release build.
const EVERY: usize = 256;
/// Number of elements of the collections at the keys.
const ELEMENTS: usize = 4_000;
/// Length of the long field and member in bytes. The string is shorter.
const LONG_BYTES: usize = 1 << 20;
/// Sent after each request. Its reply marks the end of the answer.
const MARK: &str = "the-end-of-this-shape";

/// Commands that are not sent, each with the reason.
const NOT_SENT: &[(&str, &str)] = &[
    ("client reply", "the mark would not be answered"),
    ("client pause", "others stand because the operator says so"),
    ("debug", "is for those who may stop the server"),
    ("flushall", "takes away what the others work on"),
    ("flushdb", "as flushall"),
    ("multi", "the mark would be queued; a transaction runs the commands that are sent here"),
    ("pfselftest", "takes its second whatever is asked"),
    (
        "psubscribe",
        "the mark is refused to a subscriber; the limits of a client's channels have tests of their own",
    ),
    ("quit", "ends the connection"),
    ("shutdown", "ends the server"),
    ("ssubscribe", "as psubscribe"),
    ("subscribe", "as psubscribe"),
    ("swapdb", "takes away what the others work on"),
];

/// A server with large values at the keys, and what measures it.
struct Site {
    server: Server,
    doors: Vec<SocketAddr>,
    probe: Client,
    worker: String,
}

/// The cost of a shape.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// The longest time that the worker's thread computed while the probe waited.
    stood: Duration,
    held_bytes: u64,
    /// Processor time of all threads after the client has left without an answer.
    abandoned: Duration,
}

impl Cost {
    fn least(self, other: Cost) -> Cost {
        Cost {
            stood: self.stood.min(other.stood),
            held_bytes: self.held_bytes.min(other.held_bytes),
            abandoned: self.abandoned.min(other.abandoned),
        }
    }
}

impl Site {
    fn new() -> Site {
        let (server, doors) = Server::start_doors(
            &["--pack4-port", "--http-port"],
            &["--workers", "1", "--slowlog-max-len", "0"],
        );
        let mut admin = server.connect();
        fill(&mut admin);
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it lives");
        let worker = tasks
            .map(|task| task.expect("a thread").path())
            .find(|task| {
                std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
            })
            .expect("a worker")
            .join("schedstat");
        let probe = server.connect();
        Site { server, doors, probe, worker: worker.display().to_string() }
    }
    fn worker_cpu(&self) -> Duration {
        let text = std::fs::read_to_string(&self.worker).expect("it lives");
        Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
    }
    /// Measures the cost until `answered` returns true, or until the client gives up.
    fn watch(&mut self, mut answered: impl FnMut() -> bool) -> Cost {
        let clear = format!("/proc/{}/clear_refs", self.server.pid());
        std::fs::write(clear, "5").expect("our own child");
        let before = self.server.memory("VmRSS");
        let end = Instant::now() + Duration::from_millis(PATIENCE_MS);
        let mut stood = Duration::ZERO;
        loop {
            let is_over = answered() || Instant::now() >= end;
            let from = self.worker_cpu();
            self.probe.call("PING", "+PONG\r\n");
            stood = stood.max(self.worker_cpu() - from);
            if is_over {
                break;
            }
        }
        let held_bytes = self.server.memory("VmHWM").saturating_sub(before);
        Cost { stood, held_bytes, abandoned: Duration::ZERO }
    }
    /// Sends `bytes` to a door. The answer ends with `end`, or with the connection.
    fn cost(&mut self, door: usize, bytes: &[u8], end: &[u8]) -> Cost {
        let address = if door == 0 { self.server.address } else { self.doors[door - 1] };
        let mut stream = TcpStream::connect(address).expect("it accepts");
        stream.set_nonblocking(true).expect("a TCP socket");
        let (mut sent, mut tail, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
        let mut is_answered = false;
        let mut cost = self.watch(|| {
            while sent < bytes.len() {
                match stream.write(&bytes[sent..]) {
                    Ok(n) => sent += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => sent = bytes.len(),
                }
            }
            loop {
                match stream.read(&mut buffer) {
                    Ok(n @ 1..) => {
                        tail.extend_from_slice(&buffer[..n]);
                        tail.drain(..tail.len().saturating_sub(end.len()));
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        is_answered = tail == end;
                        return is_answered;
                    }
                    Ok(0) | Err(_) => {
                        is_answered = true;
                        return true;
                    }
                }
            }
        });
        // Send a reset, because after a normal end the client might still read.
        let reset = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        reset.expect("a TCP socket");
        drop(stream);
        if !is_answered {
            cost.abandoned = self.cpu_until_idle();
        }
        cost
    }
    /// Processor time of all threads until they are idle, or until it exceeds the limit for a client that left.
    fn cpu_until_idle(&self) -> Duration {
        let (from, end) = (self.server.cpu(), Instant::now() + Duration::from_millis(END_MS_MAX));
        let mut last = from;
        loop {
            std::thread::sleep(IDLE.1);
            let now = self.server.cpu();
            // When a thread ends, the sum loses its time.
            let (lately, in_all) = (now.saturating_sub(last), now.saturating_sub(from));
            if lately < IDLE.0 || in_all > ABANDONED_CPU_MAX || Instant::now() >= end {
                return in_all;
            }
            last = now;
        }
    }
    /// Sends a shape to a door: 0 RESP, 1 pack4, 2 HTTP.
    fn shape(&mut self, shape: &Shape, door: usize) -> Cost {
        let (mut words, mut mark) = (Vec::new(), Vec::new());
        encode_command(&mut words, &shape.words);
        encode_command(&mut mark, &["ECHO", MARK]);
        let reply = format!("${}\r\n{MARK}\r\n", MARK.len());
        match door {
            0 => self.cost(door, &[words, mark].concat(), reply.as_bytes()),
            1 => self.cost(door, &[frame(&words), frame(&mark)].concat(), reply.as_bytes()),
            _ => {
                let words: Vec<_> = shape.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                let body = serde_json::to_vec(&[words]).expect("strings");
                let head = "Content-Type: application/json\r\nConnection: close\r\n";
                self.cost(door, &request("POST /v1/commands", head, &body), b"no answer ends so")
            }
        }
    }
}

/// Creates a large value of each type, a text index and a set of patterns.
fn fill(admin: &mut Client) {
    let long = "a".repeat(LONG_BYTES);
    let mut bytes = Vec::new();
    let mut send = |words: &[&str]| encode_command(&mut bytes, words);
    send(&["SET", "pure:string", &long[..LONG_BYTES / 16]]);
    send(&["SET", &long[..LONG_BYTES / 4], "at a long key"]);
    send(&["HSET", "pure:hash", &long, &long]);
    send(&["SADD", "pure:set", &long]);
    send(&["ZADD", "pure:zset", "1", &long]);
    send(&["RPUSH", "pure:list", &long]);
    for i in 0..ELEMENTS {
        let n = &i.to_string();
        send(&["HSET", "pure:hash", n, "value"]);
        send(&["SADD", "pure:set", n]);
        send(&["ZADD", "pure:zset", n, n]);
        send(&["RPUSH", "pure:list", n]);
        send(&["XADD", "pure:stream", &format!("{}-1", i + 1), "field", "value"]);
        send(&["PFADD", "pure:hll", n]);
        send(&["GEOADD", "pure:geo", &format!("{}.5", i % 180), &format!("{}.5", i % 80), n]);
        send(&["SET", &format!("many:{i}"), n]);
        if i < 1000 {
            send(&["HSET", &format!("doc:{i}"), "body", &format!("word word{i} a b a"), "tag", "x"]);
        }
    }
    for i in 0..20 {
        send(&["HSET", &format!("doc:long:{i}"), "body", &"common a b ".repeat(LONG_BYTES / 16 / 11)]);
    }
    // The phrase consists of equal words, so it can start at each word.
    send(&["HSET", "doc:equal", "body", &"b ".repeat(LONG_BYTES / 32)]);
    send(&["FT.CREATE", INDEX, "PREFIX", "1", "doc:", "SCHEMA", "body", "TEXT", "tag", "TAG"]);
    send(&["RX.SET", INDEX, "ID", "1", "a+b", "ID", "2", "common"]);
    send(&["RX.INDEX", "CREATE", INDEX, "PREFIX", "doc:"]);
    send(&["PING"]);
    admin.send(&bytes);
    while admin.line() != "+PONG" {}
    admin.send(&command("FT.SEARCH big:index b LIMIT 0 0"));
    crate::harness::comes_true(|| {
        let found = admin.line() == "*1" && admin.line() == ":1021";
        if !found {
            admin.send(&command("FT.SEARCH big:index b LIMIT 0 0"));
        }
        found
    });
}

/// Restores the data of [`fill`].
fn restore(admin: &mut Client) {
    let mut copied = Vec::new();
    for (_, key) in KEYS {
        let pure = key.replace("big:", "pure:");
        admin.send(&command(&format!("COPY {pure} {key} REPLACE")));
        copied.push(admin.line());
    }
    assert!(copied.iter().all(|line| line == ":1"), "{copied:?}");
    admin.send(&command("UNLINK made:here member"));
    admin.line();
}

fn commands() -> impl Iterator<Item = (&'static CommandSpec, Option<&'static CommandSpec>)> {
    TABLE.rows().iter().flat_map(|spec| {
        let alone = spec.subcommands.is_empty().then_some((spec, None));
        alone.into_iter().chain(spec.subcommands.iter().map(move |sub| (sub, Some(spec))))
    })
}

#[test]
fn no_request_exceeds_its_budget_of_time_and_memory() {
    let mut site = Site::new();
    let mut admin = site.server.connect();
    admin.stream.set_read_timeout(Some(Duration::from_millis(END_MS_MAX))).expect("not zero");
    // Measure plain requests of this size: one with many words, and one with a long word.
    let plain: Vec<Shape> = [vec![b"x".to_vec(); 16 << 10], vec![vec![b'x'; 1 << 20]]]
        .into_iter()
        .map(|words| Shape { name: "plain".into(), words: [vec![b"DEL".to_vec()], words].concat() })
        .collect();
    let base: Vec<_> = (0..3).flat_map(|door| plain.iter().map(move |shape| (door, shape))).collect();
    let base = base.into_iter().map(|(door, shape)| site.shape(shape, door).stood).max().expect("some");
    let every = strand_testkit::env_number("STRAND_HOSTILE_EVERY", EVERY);
    let is_over = |cost: &Cost| {
        cost.stood > base * STAND_FACTOR_MAX
            || cost.held_bytes > HELD_BYTES_MAX
            || cost.abandoned > ABANDONED_CPU_MAX
    };
    let is_shown = std::env::var("STRAND_TEST_SHOW").is_ok();
    let (mut seen, mut sent, mut all) = (0, 0, Vec::new());
    for (spec, container) in commands() {
        let name = container.map_or(spec.name.to_string(), |c| format!("{} {}", c.name, spec.name));
        if NOT_SENT.iter().any(|(not, _)| name == *not || container.is_some_and(|c| c.name == *not)) {
            continue;
        }
        // To find a cause, STRAND_HOSTILE_ONLY selects the shapes of a command, or one shape, by the beginning of
        // their names. One shape also needs STRAND_HOSTILE_EVERY=1.
        let only = std::env::var("STRAND_HOSTILE_ONLY").unwrap_or_default();
        if !only.starts_with(&name) && !name.starts_with(&only) {
            continue;
        }
        restore(&mut admin);
        let from = Instant::now();
        let some = some_shapes(spec, container, &mut || {
            seen += 1;
            seen % every == 0
        });
        for shape in some.into_iter().filter(|shape| shape.name.starts_with(&only)) {
            sent += 1;
            // Send fewer shapes to the other doors, because these lead to the same commands.
            let doors = if sent % 8 == 0 { 0..3 } else { 0..1 };
            for door in doors {
                let mut cost = site.shape(&shape, door);
                // An expensive shape is expensive each time. A single high cost may be other work on the worker.
                for _ in 0..AGAIN_MAX {
                    if is_over(&cost) {
                        restore(&mut admin);
                        cost = cost.least(site.shape(&shape, door));
                    }
                }
                all.push((cost, format!("{} at door {door}", shape.name)));
            }
        }
        // A shape that was given up must not leave anything that delays the next one.
        admin.send(&command("KEYS nobody-has-this-key"));
        let answer = admin.try_line();
        if is_shown {
            eprintln!("{name}: {sent} of {seen} shapes, {:?}, {answer:?}", from.elapsed());
        }
        assert_eq!(answer.as_deref(), Some("*0"), "KEYS after {name}");
    }
    let offences: Vec<_> = all.iter().filter(|(cost, _)| is_over(cost)).collect();
    if is_shown {
        all.sort_by_key(|(cost, ..)| std::cmp::Reverse(cost.stood));
        all.iter().take(60).for_each(|line| eprintln!("{line:?}"));
        all.sort_by_key(|(cost, ..)| std::cmp::Reverse(cost.held_bytes));
        all.iter().take(40).for_each(|line| eprintln!("{line:?}"));
        all.sort_by_key(|(cost, ..)| std::cmp::Reverse(cost.abandoned));
        all.iter().take(10).for_each(|line| eprintln!("{line:?}"));
        eprintln!("base {base:?} sent {} of {seen}", all.len());
        return;
    }
    assert!(all.len() > seen / every, "{} shapes are not all", all.len());
    assert!(offences.is_empty(), "a plain request costs {base:?}, these more: {offences:#?}");
}
