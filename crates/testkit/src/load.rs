//! A load generator for one core: many connections in lockstep, pipelined batches, replies counted and not parsed.
//!
//! Each turn writes one batch to every connection, then reads every connection until its replies are complete. So the
//! server always has work of other connections while one is read, and the generator costs less than the server.

use crate::process::Server;
use fastrand::Rng;
use hdrhistogram::Histogram;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Keys are `key:` and twelve digits: 16 bytes.
pub const KEY_BYTES: usize = 16;

/// What one request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `PING`.
    Ping,
    /// `GET key`.
    Get,
    /// `SET key value`.
    Set,
    /// 20 % SET, 80 % GET.
    Mixed,
    /// `INCR counter`, on keys of their own.
    Incr,
    /// `HSET hash field value`, on keys of their own.
    Hset,
    /// `MGET` of 100 keys.
    Mget100,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What is asked.
    pub operation: Operation,
    /// Requests in one batch.
    pub pipeline: usize,
    /// Connections.
    pub connections: usize,
    /// Keys that are drawn from, uniformly.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

/// What a run measured.
#[derive(Debug)]
pub struct Measured {
    /// Requests answered.
    pub operations: u64,
    /// Wall time.
    pub wall: Duration,
    /// The server's CPU time, all its threads.
    pub cpu: Duration,
    /// Round trips of batches, in microseconds.
    pub round_trips_us: Histogram<u64>,
}

impl Measured {
    /// Requests per second of the wall clock.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.wall.as_secs_f64()
    }
    /// Requests per second of the server's CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.operations as f64 / self.cpu.as_secs_f64()
    }
}

/// Sets every key `0..keys` once, so that a GET finds what it asks for.
///
/// # Errors
/// When the server goes away or answers with an error.
pub fn fill(server: &Server, keys: u64, value_bytes: usize) -> io::Result<()> {
    let mut stream = connect(server)?;
    let value = value(value_bytes);
    let mut out = Vec::new();
    for first in (0..keys).step_by(1000) {
        out.clear();
        let last = (first + 1000).min(keys);
        (first..last).for_each(|k| set(&mut out, k, &value));
        stream.write_all(&out)?;
        read_lines(&mut stream, (last - first) as usize)?;
    }
    Ok(())
}

/// Runs `load` for `seconds` of the wall clock.
///
/// # Errors
/// When the server goes away or answers with an error.
pub fn run(server: &Server, load: Workload, seconds: f64, seed: u64) -> io::Result<Measured> {
    let mut streams = (0..load.connections).map(|_| connect(server)).collect::<io::Result<Vec<_>>>()?;
    let (value, mut rng, mut out) = (value(load.value_bytes), Rng::with_seed(seed), Vec::new());
    let mut pending = vec![(0usize, Instant::now()); streams.len()];
    let mut round_trips_us = Histogram::new_with_max(60_000_000, 3).map_err(io::Error::other)?;
    let mut operations = 0;
    let (cpu, start) = (server.cpu()?, Instant::now());
    while start.elapsed().as_secs_f64() < seconds {
        for (stream, pending) in streams.iter_mut().zip(&mut pending) {
            out.clear();
            let lines = (0..load.pipeline).map(|_| request(&mut out, load, &value, &mut rng)).sum();
            *pending = (lines, Instant::now());
            stream.write_all(&out)?;
        }
        for (stream, (lines, sent)) in streams.iter_mut().zip(&pending) {
            read_lines(stream, *lines)?;
            round_trips_us.record(sent.elapsed().as_micros() as u64).map_err(io::Error::other)?;
        }
        operations += (load.pipeline * load.connections) as u64;
    }
    Ok(Measured { operations, wall: start.elapsed(), cpu: server.cpu()? - cpu, round_trips_us })
}

/// Pins this thread (and those it starts) to one core.
///
/// # Errors
/// When the kernel refuses.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

fn connect(server: &Server) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| b'a' + (i % 26) as u8).collect()
}

/// Appends one request; returns how many lines its reply has.
fn request(out: &mut Vec<u8>, load: Workload, value: &[u8], rng: &mut Rng) -> usize {
    let key = rng.u64(0..load.keys);
    match load.operation {
        Operation::Ping => {
            out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            1
        }
        Operation::Get => get(out, key),
        Operation::Set => {
            set(out, key, value);
            1
        }
        Operation::Mixed if rng.u8(0..5) == 0 => {
            set(out, key, value);
            1
        }
        Operation::Mixed => get(out, key),
        Operation::Incr => {
            out.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n$16\r\n");
            push_key(out, b"cnt:", key % 100_000);
            out.extend_from_slice(b"\r\n");
            1
        }
        Operation::Hset => {
            out.extend_from_slice(b"*4\r\n$4\r\nHSET\r\n$16\r\n");
            push_key(out, b"hsh:", key % 100_000);
            out.extend_from_slice(b"\r\n$7\r\nfield:");
            out.push(b'0' + (key % 5) as u8);
            bulk(out, value);
            1
        }
        Operation::Mget100 => {
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

fn get(out: &mut Vec<u8>, key: u64) -> usize {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
    push_key(out, b"key:", key);
    out.extend_from_slice(b"\r\n");
    2
}

fn set(out: &mut Vec<u8>, key: u64, value: &[u8]) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    push_key(out, b"key:", key);
    bulk(out, value);
}

fn bulk(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(format!("\r\n${}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn push_key(out: &mut Vec<u8>, prefix: &[u8; 4], mut n: u64) {
    let mut key = [b'0'; KEY_BYTES];
    key[..4].copy_from_slice(prefix);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&key);
}

/// Reads until `lines` newlines came; no value holds one.
fn read_lines(stream: &mut TcpStream, mut lines: usize) -> io::Result<()> {
    let mut buffer = [0; 64 * 1024];
    while lines > 0 {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if buffer[0] == b'-' {
            return Err(io::Error::other(String::from_utf8_lossy(&buffer[..n.min(200)]).into_owned()));
        }
        let seen = buffer[..n].iter().map(|b| usize::from(*b == b'\n')).sum::<usize>();
        lines = lines.checked_sub(seen).ok_or_else(|| io::Error::other("more replies than requests"))?;
    }
    Ok(())
}
