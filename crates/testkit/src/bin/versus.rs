//! `make versus`: Strand beside Debian's redis-server in one run. Both servers have core 0, the client core 1; rounds
//! alternate between the two; the figures are medians of the rounds and the ratios of them.

use std::error::Error;
use std::path::PathBuf;
use strand_testkit::load::{self, Operation, Workload};
use strand_testkit::process::Server;
use strand_testkit::report::{Report, median};

const USAGE: &str =
    "usage: versus --strand BINARY [--keys N] [--seconds S] [--rounds N] [--only NAME] [--json]";

struct Options {
    strand: PathBuf,
    keys: u64,
    seconds: f64,
    rounds: usize,
    only: Option<String>,
    json: bool,
}

/// Name, operation, pipeline, and the ratio of operations per CPU-second that is to be reached.
const WORKLOADS: &[(&str, Operation, usize)] = &[
    ("GET p30", Operation::Get, 30),
    ("SET p30", Operation::Set, 30),
    ("20% SET p30", Operation::Mixed, 30),
    ("INCR p30", Operation::Incr, 30),
    ("HSET p30", Operation::Hset, 30),
    ("GET p1", Operation::Get, 1),
    ("SET p1", Operation::Set, 1),
    ("MGET 100 p1", Operation::Mget100, 1),
    ("PING p30", Operation::Ping, 30),
];

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    load::pin_to(1)?;
    let speed = speed(&options)?;
    let memory = memory(&options)?;
    if options.json {
        print!("{}{}", speed.json(), memory.json());
    } else {
        println!("{}\n{}", speed.table(), memory.table());
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options =
        Options { strand: PathBuf::new(), keys: 1_000_000, seconds: 1.0, rounds: 3, only: None, json: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value; {USAGE}"));
        match arg.as_str() {
            "--strand" => options.strand = value()?.into(),
            "--keys" => options.keys = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--only" => options.only = Some(value()?),
            "--json" => options.json = true,
            _ => return Err(format!("unknown argument {arg}; {USAGE}").into()),
        }
    }
    if options.strand.as_os_str().is_empty() || options.rounds == 0 {
        return Err(USAGE.into());
    }
    Ok(options)
}

fn start(options: &Options) -> Result<[Server; 2], Box<dyn Error>> {
    Ok([Server::strand(&options.strand, &["--workers", "1"], Some(0))?, Server::redis(&[], Some(0))?])
}

fn speed(options: &Options) -> Result<Report, Box<dyn Error>> {
    let title = format!(
        "Speed: 256-byte values, {} keys, 32 connections, {} rounds of {} s, one core each side",
        options.keys, options.rounds, options.seconds
    );
    let columns =
        ["workload", "strand op/cpu-s", "redis op/cpu-s", "ratio", "strand op/s", "redis op/s", "ratio wall"];
    let latency = ["strand p50/p99/p99.9 us", "redis p50/p99/p99.9 us"];
    let mut report = Report::new(&title, &[&columns[..], &latency[..]].concat());
    let servers = start(options)?;
    for s in &servers {
        load::fill(s, options.keys, 256)?;
    }
    for (name, operation, pipeline) in WORKLOADS {
        if options.only.as_deref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let load = Workload {
            operation: *operation,
            pipeline: *pipeline,
            connections: 32,
            keys: options.keys,
            value_bytes: 256,
        };
        let mut cpu = [Vec::new(), Vec::new()];
        let mut wall = [Vec::new(), Vec::new()];
        let mut trips = [Vec::new(), Vec::new()];
        for round in 0..options.rounds {
            for (i, server) in servers.iter().enumerate() {
                let m = load::run(server, load, options.seconds, round as u64)?;
                cpu[i].push(m.per_cpu_second());
                wall[i].push(m.per_second());
                trips[i].push(m.round_trips_us);
            }
        }
        let [cpu_ours, cpu_theirs] = cpu.map(|v| median(&v));
        let [ours, theirs] = wall.map(|v| median(&v));
        let quantiles = trips.map(|rounds| {
            let mut all = rounds[0].clone();
            rounds[1..].iter().for_each(|h| all += h);
            format!(
                "{}/{}/{}",
                all.value_at_quantile(0.5),
                all.value_at_quantile(0.99),
                all.value_at_quantile(0.999)
            )
        });
        let k = |x: f64| format!("{:.0}k", x / 1000.0);
        let ratio = |a: f64, b: f64| format!("{:.2}", a / b);
        let cells = [
            k(cpu_ours),
            k(cpu_theirs),
            ratio(cpu_ours, cpu_theirs),
            k(ours),
            k(theirs),
            ratio(ours, theirs),
        ];
        report.row(
            [vec![name.to_string()], cells.to_vec(), quantiles.to_vec()].concat(),
            &format!("make versus ARGS='--only \"{name}\"'"),
        );
    }
    Ok(report)
}

fn memory(options: &Options) -> Result<Report, Box<dyn Error>> {
    let title = format!(
        "Memory: resident bytes a key (key and value included), {} keys of {} bytes",
        options.keys,
        load::KEY_BYTES
    );
    let mut report = Report::new(&title, &["value bytes", "strand", "redis", "ratio"]);
    for value_bytes in [8, 64, 256] {
        if options.only.as_deref().is_some_and(|only| only != "memory") {
            continue;
        }
        let mut per_key = Vec::new();
        for server in &start(options)? {
            let before = server.status_kb("VmRSS")?;
            load::fill(server, options.keys, value_bytes)?;
            per_key.push((server.status_kb("VmRSS")? - before) as f64 * 1024.0 / options.keys as f64);
        }
        let cells = vec![
            value_bytes.to_string(),
            format!("{:.1}", per_key[0]),
            format!("{:.1}", per_key[1]),
            format!("{:.2}", per_key[0] / per_key[1]),
        ];
        report.row(cells, "make versus ARGS='--only memory'");
    }
    Ok(report)
}
