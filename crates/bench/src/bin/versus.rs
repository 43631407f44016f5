//! `make versus`: Strand beside Debian's redis-server in one run. Both servers have core 0, the client core 1.
//!
//! Short rounds alternate between the two servers, and each round reverses the order of the one before. So other
//! load on the machine affects both alike. Figures are medians of the rounds, and a ratio is the median of the
//! rounds' ratios.
//!
//! With `--beside OPTIONS` the other server is Strand too, started with these options (`--beside "--io-driver
//! io_uring"`), and only speed is measured.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strand_bench::exchange::{self, Exchange};
use strand_bench::fill::{self, Collection, Content};
use strand_bench::load::{self, LoadResult};
use strand_bench::machine::Machine;
use strand_bench::options::Options as Common;
use strand_bench::report::{self, Report, ReportRow, grouped, median};
use strand_bench::workloads::WORKLOADS;
use strand_testkit::process::{Program, Server};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: versus --strand BINARY [--keys N] [--seconds S] [--rounds N] [--only NAME] [--beside OPTIONS] \
     [--json]";
const KINDS: [Program; 2] = [Program::Strand, Program::Redis];

/// Number of PINGs sent before memory is read: 14 MB, which is what goes through the buffers during a fill.
const WARM_UP: u64 = 1_000_000;
/// Interval between two reads of the memory while it settles.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// Number of equal reads after which the memory counts as settled.
const SETTLED_READS: usize = 4;
/// Maximum number of reads while the memory settles.
const READS_MAX: usize = 20;

struct Options {
    common: Common,
    beside: Option<String>,
}

/// Above this number of connections the servers do not alternate: first come all rounds of one server, with
/// only that server's connections open, because a process may often open only 20,000 files.
const ALTERNATING_CONNECTIONS_MAX: usize = 5_000;

/// Name and kind of each row with exchanges between clients.
const EXCHANGES: &[(&str, exchange::ExchangeKind)] = &[
    ("PUBLISH to 1", exchange::ExchangeKind::Publish(1, 30)),
    ("PUBLISH to 100", exchange::ExchangeKind::Publish(100, 30)),
    ("PUBLISH to 10000", exchange::ExchangeKind::Publish(10_000, 10)),
    ("BLPOP hand-over", exchange::ExchangeKind::HandOver),
];

/// Name and content of each memory row. The third value is the number of bytes of payload (key and value).
const CONTENTS: &[(&str, Content, usize)] = &[
    ("memory 8 B", Content::Bytes(8), 24),
    ("memory 64 B", Content::Bytes(64), 80),
    ("memory 256 B", Content::Bytes(256), 272),
    ("memory 8 B + TTL", Content::ExpiringBytes(8), 24),
    ("memory 64 B + TTL", Content::ExpiringBytes(64), 80),
    ("memory 256 B + TTL", Content::ExpiringBytes(256), 272),
    ("memory integer", Content::Integer, 23),
    ("memory hash of 5", Content::Hash5, 101),
    ("memory hash of 50", Content::Few(Collection::Hash, 50), 16 + 50 * 10 + 90),
    ("memory list of 5", Content::Few(Collection::List, 5), 16 + 5 * 10),
    ("memory list of 50", Content::Few(Collection::List, 50), 16 + 50 * 10),
    ("memory set of 5", Content::Few(Collection::Set, 5), 16 + 5 * 10),
    ("memory set of 50", Content::Few(Collection::Set, 50), 16 + 50 * 10),
    ("memory zset of 5", Content::Few(Collection::ZSet, 5), 16 + 5 * 10),
    ("memory zset of 50", Content::Few(Collection::ZSet, 50), 16 + 50 * 10),
    ("memory stream of 5", Content::Few(Collection::Stream, 5), 16 + 5 * 10),
    ("memory stream of 50", Content::Few(Collection::Stream, 50), 16 + 50 * 10),
    ("memory a list element", Content::One(Collection::List), 16),
    ("memory a set member", Content::One(Collection::Set), 16),
    ("memory a zset member", Content::One(Collection::ZSet), 16),
    ("memory a hash field", Content::One(Collection::Hash), 16),
    ("memory a stream entry", Content::One(Collection::Stream), 16),
];

/// Number of keys of a row. Large keys get fewer, so that they fit on a machine with a few gigabytes.
fn keys_of(options: &Options, content: Content) -> u64 {
    match content {
        Content::Few(_, elements) if elements > 10 => options.common.keys.div_ceil(10),
        _ => options.common.keys,
    }
}

fn main() -> Result<()> {
    let options = options()?;
    let (machine, start) = (Machine::here(&options.common.strand), Instant::now());
    load::pin_to(1)?;
    let mut reports = vec![speed(&options)?];
    if options.beside.is_none() {
        reports.push(memory(&options)?);
    }
    report::print(&machine, &reports, start.elapsed(), options.common.json);
    Ok(())
}

fn options() -> Result<Options> {
    let defaults =
        Common { strand: PathBuf::new(), keys: 1_000_000, seconds: 0.5, rounds: 7, only: None, json: false };
    let mut beside = None;
    let common = defaults.read(std::env::args().skip(1), USAGE, |option, values| {
        if option != "--beside" {
            return Ok(false);
        }
        beside = Some(values.of(option)?);
        Ok(true)
    })?;
    Ok(Options { common, beside })
}

/// Whether `--only` selects the row `name`. `--only` takes the name of a row or, if no row has this name, a
/// part of names.
fn wanted(options: &Options, name: &str) -> bool {
    let all = || {
        let speeds = WORKLOADS.iter().map(|row| row.name).chain(EXCHANGES.iter().map(|e| e.0));
        speeds.chain(CONTENTS.iter().map(|c| c.0))
    };
    let exact = |only: &str| all().any(|name| name == only);
    options
        .common
        .only
        .as_deref()
        .is_none_or(|only| if exact(only) { name == only } else { name.contains(only) })
}

fn start(options: &Options, kind: Program) -> Result<Server> {
    let workers: &[&str] = if kind == Program::Strand { &["--workers", "1"] } else { &[] };
    Ok(Server::measured(kind, &options.common.strand, workers, "0", &[])?)
}

/// The server that Strand is compared with.
fn start_other(options: &Options) -> Result<Server> {
    let Some(beside) = &options.beside else { return start(options, Program::Redis) };
    let args: Vec<&str> = ["--workers", "1"].into_iter().chain(beside.split_whitespace()).collect();
    Ok(Server::measured(Program::Strand, &options.common.strand, &args, "0", &[])?)
}

/// The name of the server that Strand is compared with, for the JSON.
fn other_name(options: &Options) -> &'static str {
    if options.beside.is_some() { "other" } else { "redis" }
}

fn reproduce(options: &Options, name: &str) -> String {
    let beside = options.beside.as_ref().map(|b| format!(" --beside \"{b}\"")).unwrap_or_default();
    format!("make versus ARGS='--only \"{name}\"{beside}'")
}

fn speed(options: &Options) -> Result<Report> {
    let title = format!(
        "Speed: 256-byte values, {} keys, 32 connections, {} alternating rounds of {} s, one core each side",
        grouped(options.common.keys as f64),
        options.common.rounds,
        options.common.seconds
    );
    let other = options.beside.as_deref().unwrap_or("redis");
    let columns = [
        "workload",
        "strand op/cpu-s",
        &format!("{other} op/cpu-s"),
        "ratio",
        "strand op/s",
        &format!("{other} op/s"),
        "ratio wall",
        "strand p50/p99/p99.9 us",
        &format!("{other} p50/p99/p99.9 us"),
    ];
    let mut report = Report::new(&title, &columns);
    let rows: Vec<_> = WORKLOADS.iter().filter(|row| wanted(options, row.name)).collect();
    let exchanges: Vec<_> = EXCHANGES.iter().filter(|e| wanted(options, e.0)).collect();
    if rows.is_empty() && exchanges.is_empty() {
        return Ok(report);
    }
    let servers = [start(options, Program::Strand)?, start_other(options)?];
    if !rows.is_empty() {
        for server in &servers {
            fill::keys(server, options.common.keys, Content::Bytes(256))?;
        }
    }
    for row in rows {
        let load = row.load(options.common.keys);
        let mut measure = |i: usize, seconds, seed| Ok(load::run(&servers[i], load, seconds, seed)?);
        report.row(speed_row(options, row.name, true, &mut measure)?);
    }
    for (name, kind) in exchanges {
        let alternates = kind.connections() <= ALTERNATING_CONNECTIONS_MAX;
        let mut each = [None, None];
        let mut measure = |i: usize, seconds, _| {
            if !alternates {
                each[1 - i] = None;
            }
            if each[i].is_none() {
                each[i] = Some(Exchange::open(&servers[i], *kind)?);
            }
            let exchange: &mut Exchange = each[i].as_mut().ok_or("it was opened")?;
            Ok(exchange.run(&servers[i], seconds)?)
        };
        report.row(speed_row(options, name, alternates, &mut measure)?);
    }
    Ok(report)
}

/// A row of rounds. `measure` gets the server's number, the seconds and a seed, and loads this server for
/// these seconds. With `alternates` the servers take turns, otherwise all rounds of one server come first.
fn speed_row(
    options: &Options,
    name: &str,
    alternates: bool,
    measure: &mut dyn FnMut(usize, f64, u64) -> Result<LoadResult>,
) -> Result<ReportRow> {
    let (mut cpu, mut wall) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut trips = [load::histogram()?, load::histogram()?];
    let rounds = options.common.rounds;
    let turns: Vec<usize> = match alternates {
        true => (0..rounds).flat_map(|round| [round % 2, (round + 1) % 2]).collect(),
        false => [vec![0; rounds], vec![1; rounds]].concat(),
    };
    for i in turns {
        let round = cpu[i].len();
        if round == 0 {
            // An uncounted round creates the row's own keys and warms up caches.
            measure(i, (options.common.seconds / 4.0).min(0.2), 1)?;
        }
        let measured = measure(i, options.common.seconds, round as u64)?;
        cpu[i].push(measured.per_cpu_second());
        wall[i].push(measured.per_second());
        trips[i] += &measured.round_trips_us;
    }
    let (mut row, other) = (ReportRow::new(&[name], reproduce(options, name)), other_name(options));
    for (unit, [ours, theirs]) in [("per_cpu_second", &cpu), ("per_second", &wall)] {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        let (a, b, ratio) = (median(ours), median(theirs), median(&ratios));
        [grouped(a), grouped(b), format!("{ratio:.2}")].into_iter().for_each(|c| row.cell(c));
        row.figure(format!("strand_{unit}"), a);
        row.figure(format!("{other}_{unit}"), b);
        row.figure(format!("ratio_{unit}"), ratio);
    }
    for (kind, trips) in ["strand", other].iter().zip(&trips) {
        let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
        let values = quantiles.map(|(name, q)| {
            let value = trips.value_at_quantile(q);
            row.figure(format!("{kind}_{name}_us"), value as f64);
            grouped(value as f64)
        });
        row.cell(values.join(" / "));
    }
    Ok(row)
}

/// Resident memory without the pages of files. A run touches about 1 MB of the program's text for the first time,
/// which is not a cost of the keys. `VmRSS` includes this text: with it, an element of a list of 1,000,000 seemed to
/// take 0.97 of redis-server's memory; without it, the element takes 0.90.
const ANONYMOUS: &str = "RssAnon";

fn memory(options: &Options) -> Result<Report> {
    let title = format!(
        "Memory: growth of resident anonymous memory, bytes a key (key and content included), {} keys of {} bytes (a tenth of \
         them for values of 50 elements; one key for \"a member\" and similar rows); right after the fill, and settled (ratio, overhead)",
        grouped(options.common.keys as f64),
        fill::KEY_BYTES
    );
    let columns = ["content", "payload", "strand", "redis", "ratio", "strand overhead", "redis overhead"];
    let at_once = ["strand at once", "redis at once"];
    let mut report = Report::new(&title, &[&columns[..], &at_once[..]].concat());
    for (name, content, payload) in CONTENTS.iter().filter(|c| wanted(options, c.0)) {
        let (mut at_once, mut settled) = ([0.0; 2], [0.0; 2]);
        for (i, kind) in KINDS.into_iter().enumerate() {
            let server = start(options, kind)?;
            // The buffers of connections take equal memory for one key and for a million.
            fill::pings(&server, WARM_UP)?;
            let before_kb = server.status_kb(ANONYMOUS)?;
            let keys = keys_of(options, *content);
            fill::keys(&server, keys, *content)?;
            let per_key = |kb: u64| kb.saturating_sub(before_kb) as f64 * 1024.0 / keys as f64;
            at_once[i] = per_key(server.status_kb(ANONYMOUS)?);
            settled[i] = per_key(settled_kb(&server)?);
        }
        let [ours, theirs] = settled;
        let mut row = ReportRow::new(&[name, &payload.to_string()], reproduce(options, name));
        let overhead = |bytes: f64| bytes - *payload as f64;
        let cells = [ours, theirs, ours / theirs, overhead(ours), overhead(theirs)];
        for (cell, digits) in cells.into_iter().chain(at_once).zip([1, 1, 2, 1, 1, 1, 1]) {
            row.cell(format!("{cell:.digits$}"));
        }
        row.figure("strand_bytes_per_key", ours);
        row.figure("redis_bytes_per_key", theirs);
        row.figure("ratio", ours / theirs);
        row.figure("strand_bytes_per_key_at_once", at_once[0]);
        row.figure("redis_bytes_per_key_at_once", at_once[1]);
        report.row(row);
    }
    Ok(report)
}

/// Resident anonymous memory after the allocator has returned its free pages: constant in [`SETTLED_READS`] reads, or
/// after [`READS_MAX`] reads.
fn settled_kb(server: &Server) -> Result<u64> {
    let (mut kb, mut same) = (server.status_kb(ANONYMOUS)?, 0);
    for _ in 0..READS_MAX {
        std::thread::sleep(READ_INTERVAL);
        let now = server.status_kb(ANONYMOUS)?;
        // Timers and statistics change the memory by about a tenth of a percent.
        same = if now.abs_diff(kb) <= kb / 1000 { same + 1 } else { 0 };
        kb = now;
        if same == SETTLED_READS {
            break;
        }
    }
    Ok(kb)
}
