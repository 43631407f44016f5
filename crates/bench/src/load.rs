//! A load generator for one core: many connections, pipelined batches. Replies are counted but not parsed.
//!
//! In step ([`run`]), each turn writes one batch to every connection, then reads every connection until its replies are
//! complete. So while one connection is read, the server always has work from others. The generator costs less than
//! the server. On reply ([`run_on_reply`]), each connection sends its next batch when its replies are complete, as
//! redis-benchmark does. This load shows what happens when a server holds replies back and then releases many together.

use crate::fill::{self, Collection, push_key, read_lines};
use fastrand::Rng;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use strand_testkit::process::Server;
use strand_wire::client::encode_command;

/// Number of keys that INCR and HSET write to. No other operation uses these keys.
const COUNTER_KEYS: u64 = 100_000;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `PING`.
    Ping,
    /// `GET key`.
    Get,
    /// `SET key value`.
    Set,
    /// 20 % of the requests are SET, 80 % are GET.
    Mixed,
    /// `INCR counter`, on keys that only INCR and HSET use.
    Incr,
    /// `HSET hash field value`, on separate keys with five fields each.
    Hset,
    /// `MGET` of 100 keys.
    Mget100,
    /// `MSET` of 10 keys.
    Mset10,
    /// `LPUSH list value`.
    Lpush,
    /// `RPUSH list value`.
    Rpush,
    /// `LPOP list`. Each batch begins with an `LPUSH` of as many elements as the batch takes, so the list
    /// never runs out.
    Lpop,
    /// `RPOP list`. Each batch begins with an `LPUSH`, as for [`RequestKind::Lpop`].
    Rpop,
    /// `LRANGE list 0 n-1` of a list of [`LIST_ELEMENTS`].
    Lrange(usize),
    /// `SADD set element:n`.
    Sadd,
    /// `SPOP set`. Each batch begins with an `SADD` of as many members as the batch takes.
    Spop,
    /// `ZADD zset score element:n`.
    Zadd,
    /// `ZPOPMIN zset`. Each batch begins with a `ZADD` of as many members as the batch takes.
    ZpopMin,
    /// `XADD stream * field value`.
    Xadd,
    /// `EVALSHA` of [`GET_SCRIPT`] with one key.
    EvalGet,
    /// `MULTI`, ten `INCR`, `EXEC`: one operation.
    Multi10,
}

/// The script of [`RequestKind::EvalGet`], and its digest.
const GET_SCRIPT: &str = "return redis.call('get',KEYS[1])";
const GET_SCRIPT_SHA1: &[u8] = b"fd758d1589d044dd850a6f05d52f2eefd27f033f";

/// Number of elements of the list that LRANGE reads.
pub const LIST_ELEMENTS: u64 = 10_000;
/// The key that all operations on a collection use.
const COLLECTION: &str = "bench";

impl RequestKind {
    /// True for operations on one collection. Each run creates this collection again.
    fn has_collection(self) -> bool {
        !matches!(
            self,
            RequestKind::Ping
                | RequestKind::Get
                | RequestKind::Set
                | RequestKind::Mixed
                | RequestKind::Incr
                | RequestKind::Hset
                | RequestKind::Mget100
                | RequestKind::Mset10
                | RequestKind::EvalGet
                | RequestKind::Multi10
        )
    }
    /// The command that adds as many elements as a batch of `requests` requests takes. `next` numbers the
    /// members.
    fn refill_command(self, requests: usize, value: &[u8], next: &mut u64) -> Option<Vec<Vec<u8>>> {
        let mut member = || {
            *next += 1;
            format!("element:{next:012}").into_bytes()
        };
        let mut words: Vec<Vec<u8>> = Vec::new();
        match self {
            RequestKind::Lpop | RequestKind::Rpop => {
                words.extend([b"LPUSH".to_vec(), COLLECTION.into()]);
                words.extend((0..requests).map(|_| value.to_vec()));
            }
            RequestKind::Spop => {
                words.extend([b"SADD".to_vec(), COLLECTION.into()]);
                words.extend((0..requests).map(|_| member()));
            }
            RequestKind::ZpopMin => {
                words.extend([b"ZADD".to_vec(), COLLECTION.into()]);
                (0..requests).for_each(|i| words.extend([i.to_string().into_bytes(), member()]));
            }
            _ => return None,
        }
        Some(words)
    }
}

/// What a generator sends: which requests, over how many connections, to which keys.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Kind of request.
    pub operation: RequestKind,
    /// Number of requests in one batch.
    pub pipeline: usize,
    /// Number of connections.
    pub connections: usize,
    /// Number of keys, drawn uniformly.
    pub keys: u64,
    /// Number of bytes of a value.
    pub value_bytes: usize,
}

/// The results of a run.
#[derive(Debug)]
pub struct LoadResult {
    /// Number of answered requests.
    pub operations: u64,
    /// Wall time of the run.
    pub wall: Duration,
    /// CPU time of all the server's threads, except those that ended during the run.
    pub cpu: Duration,
    /// Histogram of the round trips of batches, in microseconds.
    pub round_trips_us: Histogram<u64>,
}

impl LoadResult {
    /// Requests per second of wall time.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.wall.as_secs_f64()
    }
    /// Requests per second of the server's CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.operations as f64 / self.cpu.as_secs_f64()
    }
}

/// Runs `load` for `seconds` of wall time.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn run(server: &Server, load: Workload, seconds: f64, seed: u64) -> io::Result<LoadResult> {
    prepare(server, load)?;
    let mut clients = Clients::open(server, load, seed)?;
    let (cpu, start) = (server.cpu()?, Instant::now());
    clients.run(seconds)?;
    let (wall, cpu) = (start.elapsed(), server.cpu()?.saturating_sub(cpu));
    Ok(LoadResult { operations: clients.operations, wall, cpu, round_trips_us: clients.round_trips_us })
}

/// Sends `requests` requests of `load`, rounded up to whole turns of all connections. Equal arguments send equal bytes.
/// Returns the number of requests sent.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn run_requests(server: &Server, load: Workload, requests: u64, seed: u64) -> io::Result<u64> {
    prepare(server, load)?;
    let mut clients = Clients::open(server, load, seed)?;
    let mut buffers = TurnBuffers::new(load);
    while clients.operations < requests {
        clients.turn(&mut buffers)?;
    }
    Ok(clients.operations)
}

/// Creates what the requests of `load` need besides keys: an empty or filled collection, the script.
fn prepare(server: &Server, load: Workload) -> io::Result<()> {
    if load.operation.has_collection() {
        server.connect()?.call(&["DEL", COLLECTION])?;
    }
    if let RequestKind::Lrange(_) = load.operation {
        fill::collection(server, COLLECTION, Collection::List, LIST_ELEMENTS)?;
    }
    if load.operation == RequestKind::EvalGet {
        server.connect()?.call(&["SCRIPT", "LOAD", GET_SCRIPT])?;
    }
    Ok(())
}

/// Runs `load` as [`run`] does, but from one thread on each of `cores`. Each thread has its own connections.
///
/// # Errors
/// When the server goes away or returns an error, or the kernel refuses a core.
pub fn run_on(server: &Server, load: Workload, seconds: f64, cores: &[usize]) -> io::Result<LoadResult> {
    on_cores(server, load, cores, |clients| clients.run(seconds))
}

/// Does what [`run_on`] does, but each connection sends its next batch as soon as it has its replies.
///
/// # Errors
/// When the server goes away or returns an error, or the kernel refuses a core.
pub fn run_on_reply(
    server: &Server,
    load: Workload,
    seconds: f64,
    cores: &[usize],
) -> io::Result<LoadResult> {
    on_cores(server, load, cores, |clients| clients.run_on_reply(seconds))
}

fn on_cores(
    server: &Server,
    load: Workload,
    cores: &[usize],
    run: impl Fn(&mut Clients) -> io::Result<()> + Sync,
) -> io::Result<LoadResult> {
    let opened = cores.iter().map(|core| Clients::open(server, load, *core as u64));
    let opened = opened.collect::<io::Result<Vec<_>>>()?;
    let (cpu, start) = (server.cpu()?, Instant::now());
    let all = std::thread::scope(|scope| {
        let run = &run;
        let one = |(mut clients, core): (Clients, usize)| {
            scope.spawn(move || {
                pin_to(core)?;
                run(&mut clients).map(|()| clients)
            })
        };
        let threads: Vec<_> = opened.into_iter().zip(cores.iter().copied()).map(one).collect();
        let joined =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))));
        joined.collect::<io::Result<Vec<_>>>()
    })?;
    let (wall, cpu) = (start.elapsed(), server.cpu()?.saturating_sub(cpu));
    let operations = all.iter().map(|c| c.operations).sum();
    let mut round_trips_us = histogram()?;
    all.iter().for_each(|c| round_trips_us += &c.round_trips_us);
    Ok(LoadResult { operations, wall, cpu, round_trips_us })
}

/// Pins this thread, and the threads it starts, to one core.
///
/// # Errors
/// When the kernel refuses.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// A histogram of microseconds, up to a minute.
///
/// # Errors
/// Never, with these bounds.
pub fn histogram() -> io::Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?;
    histogram.auto(true);
    Ok(histogram)
}

/// The connections of one generator thread.
struct Clients {
    load: Workload,
    streams: Vec<TcpStream>,
    value: Vec<u8>,
    rng: Rng,
    operations: u64,
    /// Number that was given to the last added member.
    member: u64,
    round_trips_us: Histogram<u64>,
}

impl Clients {
    fn open(server: &Server, load: Workload, seed: u64) -> io::Result<Clients> {
        let streams = (0..load.connections).map(|_| fill::connect(server)).collect::<io::Result<Vec<_>>>()?;
        let (value, rng) = (fill::value(load.value_bytes), Rng::with_seed(seed));
        Ok(Clients { load, streams, value, rng, operations: 0, member: 0, round_trips_us: histogram()? })
    }

    fn run(&mut self, seconds: f64) -> io::Result<()> {
        let (mut buffers, start) = (TurnBuffers::new(self.load), Instant::now());
        while start.elapsed().as_secs_f64() < seconds {
            self.turn(&mut buffers)?;
        }
        Ok(())
    }

    /// Sends a batch over each connection as soon as the replies to its last one are complete.
    fn run_on_reply(&mut self, seconds: f64) -> io::Result<()> {
        let (mut buffers, start) = (TurnBuffers::new(self.load), Instant::now());
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (at, stream) in self.streams.iter().enumerate() {
            epoll::add(&epoll, stream, EventData::new_u64(at as u64), EventFlags::IN)?;
        }
        let mut events = Vec::with_capacity(self.streams.len());
        (0..self.streams.len()).try_for_each(|at| self.send(at, &mut buffers))?;
        while start.elapsed().as_secs_f64() < seconds {
            let wait_max = Timespec { tv_sec: fill::READ_S_MAX as i64, tv_nsec: 0 };
            if epoll::wait(&epoll, spare_capacity(&mut events), Some(&wait_max))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for event in events.drain(..) {
                let at = event.data.u64() as usize;
                self.receive(at, &mut buffers)?;
                self.operations += self.load.pipeline as u64;
                self.send(at, &mut buffers)?;
            }
        }
        Ok(())
    }

    /// Writes one batch to every connection, then reads all replies.
    fn turn(&mut self, buffers: &mut TurnBuffers) -> io::Result<()> {
        (0..self.streams.len()).try_for_each(|at| self.send(at, buffers))?;
        (0..self.streams.len()).try_for_each(|at| self.receive(at, buffers))?;
        self.operations += (self.load.pipeline * self.load.connections) as u64;
        Ok(())
    }

    /// Writes one batch to a connection.
    fn send(&mut self, at: usize, TurnBuffers { out, pending, .. }: &mut TurnBuffers) -> io::Result<()> {
        out.clear();
        let requests = 0..self.load.pipeline;
        let supply = self.load.operation.refill_command(self.load.pipeline, &self.value, &mut self.member);
        supply.iter().for_each(|words| encode_command(out, words));
        let lines: usize = requests.map(|_| request(out, self.load, &self.value, &mut self.rng)).sum();
        pending[at] = (lines + supply.iter().len(), Instant::now());
        self.streams[at].write_all(out)
    }

    /// Reads a connection until the replies to its batch are complete.
    fn receive(&mut self, at: usize, buffers: &mut TurnBuffers) -> io::Result<()> {
        let (lines, sent) = buffers.pending[at];
        read_lines(&mut self.streams[at], lines, &mut buffers.buffer)?;
        self.round_trips_us.record(sent.elapsed().as_micros() as u64).map_err(io::Error::other)
    }
}

/// Memory that the turns of [`Clients`] reuse.
struct TurnBuffers {
    /// The bytes of one batch of requests.
    out: Vec<u8>,
    /// Memory into which replies are read.
    buffer: Vec<u8>,
    /// For each connection: the lines that its replies will have, and when the batch was sent.
    pending: Vec<(usize, Instant)>,
}

impl TurnBuffers {
    fn new(load: Workload) -> TurnBuffers {
        let pending = vec![(0, Instant::now()); load.connections];
        TurnBuffers { out: Vec::new(), buffer: vec![0; 64 << 10], pending }
    }
}

fn incr(out: &mut Vec<u8>, key: u64) {
    out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n$16\r\n");
    push_key(out, b"cnt:", key % COUNTER_KEYS);
    out.extend_from_slice(b"\r\n");
}

/// Appends one request. Returns the number of lines of its reply.
fn request(out: &mut Vec<u8>, load: Workload, value: &[u8], rng: &mut Rng) -> usize {
    let key = rng.u64(0..load.keys);
    match load.operation {
        RequestKind::Ping => {
            out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            1
        }
        RequestKind::Set => {
            fill::set(out, key, value);
            1
        }
        RequestKind::Mixed if rng.u8(0..5) == 0 => {
            fill::set(out, key, value);
            1
        }
        RequestKind::Mixed | RequestKind::Get => {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
            push_key(out, b"key:", key);
            out.extend_from_slice(b"\r\n");
            2
        }
        RequestKind::Incr => {
            incr(out, key);
            1
        }
        RequestKind::EvalGet => {
            out.extend_from_slice(b"*4\r\n$7\r\nEVALSHA\r\n$40\r\n");
            out.extend_from_slice(GET_SCRIPT_SHA1);
            out.extend_from_slice(b"\r\n$1\r\n1\r\n$16\r\n");
            push_key(out, b"key:", key);
            out.extend_from_slice(b"\r\n");
            2
        }
        RequestKind::Multi10 => {
            out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
            (0..10).for_each(|_| incr(out, rng.u64(0..load.keys)));
            out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
            // The lines of OK, ten times QUEUED, and an array of ten integers.
            22
        }
        RequestKind::Hset => {
            out.extend_from_slice(b"*4\r\n$4\r\nHSET\r\n$16\r\n");
            push_key(out, b"hsh:", key % COUNTER_KEYS);
            out.extend_from_slice(b"\r\n$7\r\nfield:");
            out.push(b'0' + (key % 5) as u8);
            fill::bulk(out, value);
            1
        }
        RequestKind::Lpush | RequestKind::Rpush => {
            let name: &[u8] = if load.operation == RequestKind::Lpush { b"LPUSH" } else { b"RPUSH" };
            encode_command(out, &[name, COLLECTION.as_bytes(), value]);
            1
        }
        RequestKind::Lpop | RequestKind::Rpop | RequestKind::Spop => {
            let name: &[u8] = match load.operation {
                RequestKind::Lpop => b"LPOP",
                RequestKind::Rpop => b"RPOP",
                _ => b"SPOP",
            };
            encode_command(out, &[name, COLLECTION.as_bytes()]);
            2
        }
        RequestKind::Lrange(elements) => {
            let last = (elements - 1).to_string();
            encode_command(out, &[&b"LRANGE"[..], COLLECTION.as_bytes(), b"0", last.as_bytes()]);
            1 + 2 * elements
        }
        RequestKind::Sadd => {
            let member = format!("element:{key:012}");
            encode_command(out, &[&b"SADD"[..], COLLECTION.as_bytes(), member.as_bytes()]);
            1
        }
        RequestKind::Zadd => {
            let (score, member) = (rng.u32(..).to_string(), format!("element:{key:012}"));
            encode_command(out, &[&b"ZADD"[..], COLLECTION.as_bytes(), score.as_bytes(), member.as_bytes()]);
            1
        }
        RequestKind::ZpopMin => {
            encode_command(out, &[&b"ZPOPMIN"[..], COLLECTION.as_bytes()]);
            5
        }
        RequestKind::Xadd => {
            encode_command(out, &[&b"XADD"[..], COLLECTION.as_bytes(), b"*", b"myfield", value]);
            2
        }
        RequestKind::Mset10 => {
            out.extend_from_slice(b"*21\r\n$4\r\nMSET");
            for _ in 0..10 {
                out.extend_from_slice(b"\r\n$16\r\n");
                push_key(out, b"key:", rng.u64(0..load.keys));
                out.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
            }
            out.extend_from_slice(b"\r\n");
            1
        }
        RequestKind::Mget100 => {
            out.extend_from_slice(b"*101\r\n$4\r\nMGET\r\n");
            for _ in 0..100 {
                out.extend_from_slice(b"$16\r\n");
                push_key(out, b"key:", rng.u64(0..load.keys));
                out.extend_from_slice(b"\r\n");
            }
            201
        }
    }
}
