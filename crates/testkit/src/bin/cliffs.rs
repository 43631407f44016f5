//! `make cliffs`: what must stay flat, measured on Strand and on redis-server in the same run. Servers have core 0, the
//! client core 1. One row a cliff; the figures are this machine's, the comparison is the point.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use strand_testkit::fill::{self, Content};
use strand_testkit::load;
use strand_testkit::process::{Kind, Server};
use strand_testkit::report::{Report, Row as Cells, median};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: cliffs --strand BINARY [--keys N] [--only NAME] [--json]";
/// A probe never waits longer than this for its reply.
const PROBE_MS_MAX: u64 = 30_000;

struct Options {
    strand: PathBuf,
    keys: u64,
    only: Option<String>,
    json: bool,
}

type Row = fn(&Server, &Options) -> Result<String>;

/// Row, what it measures, and how.
const ROWS: &[(&str, &str, Row)] = &[
    ("1 chunks", "SET in 4 KiB chunks, ns/byte at 1 / 8 / 64 MB; peak growth at 64 MB", large_value),
    ("1 bytewise", "SET byte by byte, server CPU ns/byte at 32 / 256 kB", bytewise),
    ("2 naive", "write-write-read client with Nagle: p50 / p99 us", naive_client),
    ("5 half frame", "CPU ms a second with 200 half commands held", half_frames),
    ("7 growth", "GET probe while keys are added: p99.9 / max us", growth),
    ("9 keys", "GET probe during KEYS *: quiet p99.9, during p99.9 / max us", keys_event),
    ("9 hgetall", "the same during HGETALL of 1 M fields", hgetall_event),
    ("9 del", "the same during DEL of a hash of 1 M fields", del_event),
    ("9 get64m", "the same while another client GETs 64 MB", get_event),
    ("9 flushall", "the same during FLUSHALL", flush_event),
    ("11 pipeline", "GET probe beside a client that pipelines 10,000 commands: p50 / p99 us", pipeline),
    ("11 deaf", "resident MB gained by a client that asks for 1 GB and never reads", deaf_client),
];

fn main() -> Result<()> {
    let options = options()?;
    load::pin_to(1)?;
    let title = format!("Cliffs: {} keys, one core each side", options.keys);
    let mut report = Report::new(&title, &["row", "measures", "strand", "redis-server"]);
    for (name, measures, row) in ROWS {
        if options.only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let mut cells = Cells::new(&[name, measures], format!("make cliffs ARGS='--only \"{name}\"'"));
        for kind in [Kind::Strand, Kind::Redis] {
            let server = match kind {
                Kind::Strand => Server::strand(&options.strand, &["--workers", "1"], Some(0))?,
                Kind::Redis => Server::redis(&[], Some(0))?,
            };
            cells.cell(row(&server, &options)?);
        }
        report.row(cells);
    }
    print!("{}", if options.json { report.json() } else { report.table() });
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options { strand: PathBuf::new(), keys: 1_000_000, only: None, json: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value; {USAGE}"));
        match arg.as_str() {
            "--strand" => options.strand = value()?.into(),
            "--keys" => options.keys = value()?.parse()?,
            "--only" => options.only = Some(value()?),
            "--json" => options.json = true,
            _ => return Err(format!("unknown argument {arg}; {USAGE}").into()),
        }
    }
    if options.strand.as_os_str().is_empty() { Err(USAGE.into()) } else { Ok(options) }
}

fn large_value(server: &Server, _: &Options) -> Result<String> {
    let mut figures = Vec::new();
    let mut growth = 0.0;
    for megabytes in [1usize, 8, 64] {
        let bytes = megabytes << 20;
        let repeats = (64 / megabytes).min(15);
        let mut ns_per_byte = Vec::new();
        for _ in 0..repeats {
            call(server, &[b"DEL", b"big"])?;
            server.reset_peak()?;
            let before_kb = server.status_kb("VmRSS")?;
            let start = Instant::now();
            set_in_chunks(server, bytes, 4096)?;
            ns_per_byte.push(start.elapsed().as_nanos() as f64 / bytes as f64);
            growth = server.status_kb("VmHWM")?.saturating_sub(before_kb) as f64 * 1024.0 / bytes as f64;
        }
        figures.push(median(&ns_per_byte));
    }
    let ratio = figures[2] / figures[0];
    Ok(format!("{:.2} / {:.2} / {:.2} ({ratio:.2}x); {growth:.2}x", figures[0], figures[1], figures[2]))
}

fn bytewise(server: &Server, _: &Options) -> Result<String> {
    let mut figures = Vec::new();
    for bytes in [32 << 10, 256 << 10] {
        let before = server.cpu()?;
        set_in_chunks(server, bytes, 1)?;
        figures.push((server.cpu()? - before).as_nanos() as f64 / bytes as f64);
    }
    Ok(format!("{:.0} / {:.0} ({:.2}x)", figures[0], figures[1], figures[1] / figures[0]))
}

fn set_in_chunks(server: &Server, bytes: usize, chunk: usize) -> Result<()> {
    let mut stream = connect(server)?;
    stream.write_all(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${bytes}\r\n").as_bytes())?;
    let block = vec![b'x'; chunk];
    (0..bytes / chunk).try_for_each(|_| stream.write_all(&block))?;
    stream.write_all(b"\r\n")?;
    expect(&mut stream, b"+OK\r\n")
}

/// The client that costs 40 ms a request elsewhere: header and body in two writes, Nagle on, then a read.
fn naive_client(server: &Server, _: &Options) -> Result<String> {
    let mut stream = connect(server)?;
    stream.set_nodelay(false)?;
    let mut micros = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n")?;
        stream.write_all(b"hello\r\n")?;
        expect(&mut stream, b"+OK\r\n")?;
        micros.push(start.elapsed().as_micros() as f64);
    }
    micros.sort_by(f64::total_cmp);
    Ok(format!("{} / {}", micros[100], micros[198]))
}

fn half_frames(server: &Server, _: &Options) -> Result<String> {
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(server)?;
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhalf")?;
        held.push(stream);
    }
    call(server, &[b"PING"])?;
    thread::sleep(Duration::from_millis(300));
    let before = server.cpu()?;
    thread::sleep(Duration::from_secs(2));
    Ok(format!("{:.2}", (server.cpu()? - before).as_secs_f64() * 1000.0 / 2.0))
}

fn growth(server: &Server, options: &Options) -> Result<String> {
    let (mut filler, mut probe) = (connect(server)?, Probe::open(server)?);
    let mut micros = Vec::new();
    for first in (0..options.keys).step_by(20) {
        let batch: String = (first..first + 20)
            .map(|k| format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{k:012}\r\n$5\r\nhello\r\n"))
            .collect();
        filler.write_all(batch.as_bytes())?;
        micros.push(probe.get()?);
        expect(&mut filler, "+OK\r\n".repeat(20).as_bytes())?;
    }
    Ok(quantiles(&mut micros, &[0.999, 1.0]))
}

fn keys_event(server: &Server, options: &Options) -> Result<String> {
    fill::keys(server, options.keys, Content::Bytes(64))?;
    during(server, &[b"KEYS", b"*"])
}

fn hgetall_event(server: &Server, options: &Options) -> Result<String> {
    big_hash(server, options.keys)?;
    during(server, &[b"HGETALL", b"hash"])
}

fn del_event(server: &Server, options: &Options) -> Result<String> {
    big_hash(server, options.keys)?;
    during(server, &[b"DEL", b"hash"])
}

fn get_event(server: &Server, _: &Options) -> Result<String> {
    set_in_chunks(server, 64 << 20, 1 << 16)?;
    during(server, &[b"GET", b"big"])
}

fn flush_event(server: &Server, options: &Options) -> Result<String> {
    fill::keys(server, options.keys, Content::Bytes(64))?;
    during(server, &[b"FLUSHALL", b"SYNC"])
}

fn big_hash(server: &Server, fields: u64) -> Result<()> {
    let mut stream = connect(server)?;
    for first in (0..fields).step_by(100) {
        let mut command = String::from("*202\r\n$4\r\nHSET\r\n$4\r\nhash\r\n");
        (first..first + 100).for_each(|f| command += &format!("$14\r\nfield:{f:08}\r\n$8\r\n{f:08}\r\n"));
        stream.write_all(command.as_bytes())?;
        expect(&mut stream, b":100\r\n")?;
    }
    Ok(())
}

/// Probes with GET while `event` runs on another connection, which a thread of its own reads to the end.
fn during(server: &Server, event: &[&[u8]]) -> Result<String> {
    let mut probe = Probe::open(server)?;
    let mut quiet = (0..5_000).map(|_| probe.get()).collect::<Result<Vec<_>>>()?;
    let mut stream = connect(server)?;
    let mut request = Vec::new();
    strand_wire::client::encode_command(&mut request, &[event, &[]].concat());
    // The PING behind the event answers when the event's reply has gone out in full.
    request.extend_from_slice(b"*2\r\n$4\r\nPING\r\n$8\r\nfinished\r\n");
    let reader = thread::spawn(move || -> std::io::Result<()> {
        stream.write_all(&request)?;
        let (mut buffer, mut tail) = (vec![0; 1 << 18], Vec::new());
        while !tail.ends_with(b"finished\r\n") {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            tail.extend_from_slice(&buffer[n.saturating_sub(10)..n]);
            tail.drain(..tail.len().saturating_sub(10));
        }
        Ok(())
    });
    let mut busy = Vec::new();
    while !reader.is_finished() || busy.len() < 100 {
        busy.push(probe.get()?);
    }
    reader.join().map_err(|_| "the reader panicked")??;
    Ok(format!("{}, {}", quantiles(&mut quiet, &[0.999]), quantiles(&mut busy, &[0.999, 1.0])))
}

fn pipeline(server: &Server, options: &Options) -> Result<String> {
    fill::keys(server, options.keys.min(100_000), Content::Bytes(64))?;
    let (mut greedy, mut probe) = (connect(server)?, Probe::open(server)?);
    let batch = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000001\r\n".repeat(10_000);
    let reply = 10_000 * (5 + 64 + 2);
    let mut micros = Vec::new();
    for _ in 0..20 {
        let mut sender = greedy.try_clone()?;
        let bytes = batch.clone();
        let writer = thread::spawn(move || sender.write_all(bytes.as_bytes()));
        let mut left = reply;
        greedy.set_nonblocking(true)?;
        let mut buffer = vec![0; 1 << 16];
        while left > 0 {
            match greedy.read(&mut buffer) {
                Ok(0) => return Err("the server closed".into()),
                Ok(n) => left -= n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => micros.push(probe.get()?),
                Err(e) => return Err(e.into()),
            }
        }
        greedy.set_nonblocking(false)?;
        writer.join().map_err(|_| "the writer panicked")??;
    }
    Ok(quantiles(&mut micros, &[0.5, 0.99]))
}

/// 16 GETs of 64 MB, none of which is read.
fn deaf_client(server: &Server, _: &Options) -> Result<String> {
    set_in_chunks(server, 64 << 20, 1 << 16)?;
    let before = server.status_kb("VmRSS")?;
    let mut stream = connect(server)?;
    stream.write_all("*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(16).as_bytes())?;
    thread::sleep(Duration::from_millis(1500));
    Ok(format!("{:.0}", server.status_kb("VmRSS")?.saturating_sub(before) as f64 / 1024.0))
}

struct Probe(TcpStream);

impl Probe {
    fn open(server: &Server) -> Result<Probe> {
        Ok(Probe(connect(server)?))
    }
    /// One GET of a key that is not there; microseconds.
    fn get(&mut self) -> Result<f64> {
        let start = Instant::now();
        self.0.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nprobe\r\n")?;
        expect(&mut self.0, b"$-1\r\n")?;
        Ok(start.elapsed().as_nanos() as f64 / 1000.0)
    }
}

fn quantiles(micros: &mut [f64], wanted: &[f64]) -> String {
    micros.sort_by(f64::total_cmp);
    let at = |q: &f64| format!("{:.0}", micros[((micros.len() as f64 * q) as usize).min(micros.len() - 1)]);
    wanted.iter().map(at).collect::<Vec<_>>().join(" / ")
}

fn connect(server: &Server) -> Result<TcpStream> {
    let stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_millis(PROBE_MS_MAX)))?;
    Ok(stream)
}

fn call(server: &Server, args: &[&[u8]]) -> Result<()> {
    server.connect()?.call(args)?;
    Ok(())
}

fn expect(stream: &mut TcpStream, reply: &[u8]) -> Result<()> {
    let mut buffer = vec![0; reply.len()];
    stream.read_exact(&mut buffer)?;
    if buffer == reply {
        Ok(())
    } else {
        Err(format!("unexpected reply {:?}", String::from_utf8_lossy(&buffer)).into())
    }
}
