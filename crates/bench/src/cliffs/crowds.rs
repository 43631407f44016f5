//! Many commands at once, many connections at once, and connections with half a command.

use super::{ARRIVALS, IDLE, Lab, MANY, Result};
use crate::fill::{self, push_key};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use strand_testkit::process::Server;

const PIPELINE: &str = "11 pipelines of 10000 commands";
const ARRIVE: &str = "11 5000 connections arrive in a second";
const LEAVE: &str = "11 5000 connections leave at once";
const IDLE_STALL: &str = "11 10000 idle connections";
const IDLE_MEMORY: &str = "11 an idle connection: memory, bytes";
const IDLE_CPU: &str = "11 10000 idle connections: CPU, ms a second";
const HALF_CPU: &str = "5 200 half commands held: CPU, ms a second";

pub(super) const ROWS: &[&str] = &[HALF_CPU, PIPELINE, ARRIVE, LEAVE, IDLE_STALL, IDLE_MEMORY, IDLE_CPU];

/// Time for which idle connections are watched.
const WATCH_MS: u64 = 1000;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let (commands, arrivals) = (lab.options.size(MANY / 10.0), lab.options.size(ARRIVALS));
    lab.cost(HALF_CPU, |lab| half_commands(&lab.server));
    let mut pipeline = Vec::new();
    for k in 0..commands {
        pipeline.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
        push_key(&mut pipeline, b"prb:", k % 10_000);
        pipeline.extend_from_slice(b"\r\n");
    }
    lab.stall(PIPELINE, 5, |client, _| (0..4).try_for_each(|_| client.pipeline(&pipeline).map(drop)));
    let crowd = Mutex::new(Vec::new());
    lab.stall(ARRIVE, 1, |_, server| arrive(server, arrivals, &crowd));
    if lab.wants(LEAVE) && lock(&crowd).is_empty() {
        arrive(&lab.server, arrivals, &crowd)?;
    }
    lab.stall(LEAVE, 1, |_, _| {
        lock(&crowd).clear();
        Ok(())
    });
    if [IDLE_STALL, IDLE_MEMORY, IDLE_CPU].iter().any(|row| lab.wants(row)) {
        idle(lab)?;
    }
    Ok(())
}

fn idle(lab: &mut Lab<'_>) -> Result<()> {
    let wanted = lab.options.size(IDLE);
    let quiet = lab.quiet();
    let before_kb = lab.server.status_kb("VmRSS")?;
    let held = (0..wanted).map(|_| greet(&lab.server)).collect::<Result<Vec<_>>>()?;
    lab.cost(IDLE_MEMORY, |lab| {
        let grown_kb = lab.server.status_kb("VmRSS")?.saturating_sub(before_kb);
        let bytes = grown_kb as f64 * 1024.0 / wanted as f64;
        Ok((format!("{bytes:.0}"), vec![("bytes", bytes)]))
    });
    lab.cost(IDLE_CPU, |lab| cpu_per_second(&lab.server));
    if lab.wants(IDLE_STALL) {
        lab.stall_after(quiet, IDLE_STALL, 1, |_, _| {
            thread::sleep(Duration::from_millis(WATCH_MS));
            Ok(())
        });
    }
    drop(held);
    Ok(())
}

type Crowd = Mutex<Vec<TcpStream>>;

fn lock(crowd: &Crowd) -> MutexGuard<'_, Vec<TcpStream>> {
    crowd.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds `count` connections to `crowd`, spread evenly over a second if the server keeps up. Each connection
/// gets one reply.
fn arrive(server: &Server, count: u64, crowd: &Crowd) -> Result<()> {
    let (start, mut held) = (Instant::now(), lock(crowd));
    for n in 0..count {
        let due = Duration::from_secs_f64(n as f64 / count as f64);
        thread::sleep(due.saturating_sub(start.elapsed()));
        held.push(greet(server)?);
    }
    Ok(())
}

/// Opens a connection, and lets the server reply on it once.
fn greet(server: &Server) -> Result<TcpStream> {
    let mut stream = fill::connect(server)?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    if &reply == b"+PONG\r\n" { Ok(stream) } else { Err(String::from_utf8_lossy(&reply).into()) }
}

fn half_commands(server: &Server) -> Result<(String, Vec<(&'static str, f64)>)> {
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stream = greet(server)?;
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nhalf")?;
        held.push(stream);
    }
    greet(server)?;
    let figure = cpu_per_second(server);
    drop(held);
    figure
}

/// The CPU time that the server takes per second without requests.
fn cpu_per_second(server: &Server) -> Result<(String, Vec<(&'static str, f64)>)> {
    thread::sleep(Duration::from_millis(300));
    let (before, start) = (server.cpu()?, Instant::now());
    thread::sleep(Duration::from_millis(WATCH_MS));
    let ms = (server.cpu()? - before).as_secs_f64() * 1000.0 / start.elapsed().as_secs_f64();
    Ok((format!("{ms:.2}"), vec![("cpu_ms_per_second", ms)]))
}
