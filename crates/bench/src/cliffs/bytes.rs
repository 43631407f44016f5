//! Input bytes and allocations: rows 1, 2 and 6 of the design's table.

use super::{Lab, Result};
use crate::fill::{self, push_key, read_lines};
use crate::report::{grouped, median};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use strand_testkit::process::{Program, Server};

const CHUNKS: &str = "1 SET in 4 KiB chunks, ns/byte at 1 / 8 / 64 MB";
const CHUNKS_MEMORY: &str = "1 peak memory gained, of the 64 MB";
const BYTEWISE: &str = "1 SET byte by byte, CPU ns/byte at 32 / 256 kB";
const NAIVE: &str = "2 write-write-read with Nagle on, us p50 / p99";
const GET: &str = "6 allocations a GET";
const SET: &str = "6 allocations a SET of 64 bytes";

pub(super) const ROWS: &[&str] = &[CHUNKS, CHUNKS_MEMORY, BYTEWISE, NAIVE, GET, SET];

const NAIVE_ROUNDS: usize = 100;
/// The second of two runs whose allocations are compared sends this many more commands.
const COUNTED: u64 = 200_000;

type Figures = (String, Vec<(&'static str, f64)>);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let mut growth = None;
    if lab.wants(CHUNKS) || lab.wants(CHUNKS_MEMORY) {
        lab.cost(CHUNKS, |lab| {
            let (figures, grown) = chunks(&lab.server)?;
            growth = Some(grown);
            Ok(figures)
        });
        let growth = growth.map_or_else(|| chunks(&lab.server).map(|c| c.1), Ok)?;
        lab.cost(CHUNKS_MEMORY, |_| Ok((format!("{growth:.2}x"), vec![("growth", growth)])));
    }
    lab.cost(BYTEWISE, |lab| bytewise(&lab.server));
    lab.cost(NAIVE, |lab| naive(&lab.server));
    for (row, set) in [(GET, false), (SET, true)] {
        lab.cost(row, |lab| {
            let few = allocations(lab, set, 10_000)?;
            let many = allocations(lab, set, 10_000 + COUNTED)?;
            let each = (many - few) / COUNTED as f64;
            // The allocator's own bookkeeping differs between the two runs by less than 1/200 of an
            // allocation per command.
            Ok((format!("{:.2}", each.max(0.0)), vec![("allocations", each)]))
        });
    }
    Ok(())
}

fn chunks(server: &Server) -> Result<(Figures, f64)> {
    let (mut figures, mut growth) = (Vec::new(), 0.0);
    for (megabytes, repeats) in [(1usize, 15), (8, 8), (64, 1)] {
        let (bytes, mut ns_per_byte) = (megabytes << 20, Vec::new());
        for _ in 0..repeats {
            server.connect()?.call(&["DEL", "big"])?;
            server.reset_peak()?;
            let before_kb = server.status_kb("VmRSS")?;
            let start = Instant::now();
            set_in_chunks(server, bytes, 4096)?;
            ns_per_byte.push(start.elapsed().as_nanos() as f64 / bytes as f64);
            growth = server.status_kb("VmHWM")?.saturating_sub(before_kb) as f64 * 1024.0 / bytes as f64;
        }
        figures.push(median(&ns_per_byte));
    }
    let [a, b, c] = [figures[0], figures[1], figures[2]];
    let named = vec![("ns_per_byte_1_mb", a), ("ns_per_byte_8_mb", b), ("ns_per_byte_64_mb", c)];
    Ok(((format!("{a:.2} / {b:.2} / {c:.2}"), named), growth))
}

fn bytewise(server: &Server) -> Result<Figures> {
    let mut figures = Vec::new();
    for bytes in [32 << 10, 256 << 10] {
        let before = server.cpu()?;
        set_in_chunks(server, bytes, 1)?;
        figures.push((server.cpu()? - before).as_nanos() as f64 / bytes as f64);
    }
    let named = vec![("ns_per_byte_32_kb", figures[0]), ("ns_per_byte_256_kb", figures[1])];
    Ok((format!("{:.0} / {:.0}", figures[0], figures[1]), named))
}

fn set_in_chunks(server: &Server, bytes: usize, chunk: usize) -> Result<()> {
    let mut stream = fill::connect(server)?;
    stream.write_all(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${bytes}\r\n").as_bytes())?;
    let block = vec![b'x'; chunk];
    (0..bytes / chunk).try_for_each(|_| stream.write_all(&block))?;
    stream.write_all(b"\r\n")?;
    expect_ok(&mut stream)
}

/// A client that takes 40 ms per request on other servers: header and body in two writes, with Nagle's
/// algorithm, then a read.
fn naive(server: &Server) -> Result<Figures> {
    let mut stream = fill::connect(server)?;
    stream.set_nodelay(false)?;
    let mut micros = Vec::new();
    for _ in 0..NAIVE_ROUNDS {
        let start = Instant::now();
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n")?;
        stream.write_all(b"hello\r\n")?;
        expect_ok(&mut stream)?;
        micros.push(start.elapsed().as_micros() as f64);
    }
    micros.sort_by(f64::total_cmp);
    let (p50, p99) = (micros[NAIVE_ROUNDS / 2], micros[NAIVE_ROUNDS - 2]);
    Ok((format!("{} / {}", grouped(p50), grouped(p99)), vec![("p50_us", p50), ("p99_us", p99)]))
}

fn expect_ok(stream: &mut TcpStream) -> Result<()> {
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    if &reply == b"+OK\r\n" { Ok(()) } else { Err(String::from_utf8_lossy(&reply).into()) }
}

/// All allocations in the life of a server that receives `commands`. Both servers use jemalloc, which counts them
/// and prints the counts at exit on request.
fn allocations(lab: &Lab<'_>, set: bool, commands: u64) -> Result<f64> {
    const KEYS: u64 = 1000;
    let kind = lab.server.kind;
    let options: &[&str] = if kind == Program::Strand { &["--workers", "1"] } else { &[] };
    let asked = [("_RJEM_MALLOC_CONF", "stats_print:true"), ("MALLOC_CONF", "stats_print:true")];
    let server = Server::measured(kind, &lab.options.strand, options, "0", &asked)?;
    fill::keys(&server, KEYS, fill::Content::Bytes(64))?;
    let (mut stream, mut buffer, value) = (fill::connect(&server)?, vec![0; 1 << 16], fill::value(64));
    let mut batch = Vec::new();
    for first in (0..commands).step_by(100) {
        batch.clear();
        for k in (first..first + 100).map(|k| k % KEYS) {
            if set {
                fill::set(&mut batch, k, &value);
            } else {
                batch.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
                push_key(&mut batch, b"key:", k);
                batch.extend_from_slice(b"\r\n");
            }
        }
        stream.write_all(&batch)?;
        read_lines(&mut stream, if set { 100 } else { 200 }, &mut buffer)?;
    }
    let log = server.shut_down()?;
    // The first line that matches is the sum of all arenas: allocated, nmalloc, its rate, ndalloc, its rate,
    // nrequests.
    let line =
        log.lines().find_map(|l| l.trim().strip_prefix("total:")).ok_or("no statistics of jemalloc")?;
    let requests = line.split_whitespace().nth(5).and_then(|n| n.parse().ok());
    requests.ok_or_else(|| format!("not jemalloc's line: {line}").into())
}
