//! `make durable`: the cost of keeping data on a disk, beside Debian's redis-server in one run.
//!
//! The server has core 0 and the client core 1, unless a row says that the server has all cores. The files of all
//! servers are on one file system: that of `--dir`, else that of temporary files. Rounds alternate between the
//! servers. Figures are medians of the rounds, and a ratio is the median of the rounds' ratios.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strand_bench::fill::{self, Content};
use strand_bench::load::{self, RequestKind, Workload};
use strand_bench::machine::Machine;
use strand_bench::options::Options as Common;
use strand_bench::report::{self, Report, ReportRow, grouped, median};
use strand_testkit::process::{Program, Server};
use strand_wire::client::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: durable --strand BINARY [--keys N] [--load-keys N] [--seconds S] [--rounds N] [--dir DIR] \
     [--only everysec|always|load|bgsave] [--json]";
const KINDS: [Program; 2] = [Program::Strand, Program::Redis];
const ONE_CORE: &str = "0";

/// Maximum wait for loading a file or writing a snapshot.
const WAIT_MAX: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of clock ticks per second, the unit of times in `/proc/PID/stat` on Linux.
const TICKS_A_SECOND: f64 = 100.0;
/// Number of bytes of a small value.
const SMALL: usize = 8;
/// Number of bytes of a value in the rows with writers.
const VALUE: usize = 256;
/// While a snapshot is written, clients write for this many seconds between two checks whether it is done.
const PIECE_S: f64 = 0.1;
/// For this long clients write before a snapshot.
const QUIET: Duration = Duration::from_secs(1);

struct Options {
    common: Common,
    load_keys: u64,
    dir: PathBuf,
}

fn main() -> Result<()> {
    let options = options()?;
    let (machine, start) = (Machine::here(&options.common.strand), Instant::now());
    // Before this thread is pinned, because then it has one core.
    let cores = std::thread::available_parallelism()?.get();
    let all_cores = format!("0-{}", cores - 1);
    load::pin_to(1)?;
    let wants = |name: &str| options.common.only.as_deref().is_none_or(|only| only == name);
    let mut reports = Vec::new();
    if wants("everysec") {
        reports.push(everysec(&options, &all_cores)?);
    }
    if wants("always") {
        reports.push(always(&options, cores / 2)?);
    }
    if wants("load") {
        reports.extend(loading(&options, &all_cores)?);
    }
    if wants("bgsave") {
        reports.push(bgsave(&options, &all_cores)?);
    }
    report::print(&machine, &reports, start.elapsed(), options.common.json);
    Ok(())
}

/// Measures equal loads without an append-only file, and with a file that is synced every second.
fn everysec(options: &Options, all_cores: &str) -> Result<Report> {
    let title = format!(
        "An append-only file with appendfsync everysec: {VALUE}-byte values, {} keys, 32 connections, pipeline 30, {} \
         rounds of {} s; operations a CPU-second, and what the file costs of them and of operations a second",
        grouped(options.common.keys as f64),
        options.common.rounds,
        options.common.seconds
    );
    let each = ["without", "with", "costs", "costs wall"];
    let named = |server: &str| each.map(|column| format!("{server} {column}"));
    let first = ["workload", "cores"].map(String::from).to_vec();
    let all = [first, named("strand").to_vec(), named("redis").to_vec()].concat();
    let mut report = Report::new(&title, &all.iter().map(String::as_str).collect::<Vec<_>>());
    for cores in [ONE_CORE, all_cores] {
        let folders = [folder(options)?, folder(options)?];
        let mut servers = Vec::new();
        for (kind, folder) in KINDS.into_iter().zip(&folders) {
            let file = append_only(folder.path(), "everysec");
            servers.push(start(options, kind, &[], cores)?);
            servers.push(start(options, kind, &file.each_ref().map(String::as_str), cores)?);
        }
        for server in &servers {
            fill::keys(server, options.common.keys, Content::Bytes(VALUE))?;
        }
        for (name, operation) in [("SET p30", RequestKind::Set), ("20% SET p30", RequestKind::Mixed)] {
            let load = Workload { operation, pipeline: 30, ..writers(options, VALUE) };
            let mut row = ReportRow::new(&[name, cores_name(cores)], reproduce("everysec"));
            everysec_row(options, &servers, load, &mut row)?;
            report.row(row);
        }
    }
    Ok(report)
}

/// Fills a row of [`everysec`]. Of each two servers the first has no append-only file.
fn everysec_row(options: &Options, servers: &[Server], load: Workload, row: &mut ReportRow) -> Result<()> {
    let (mut cpu, mut wall) = (vec![Vec::new(); servers.len()], vec![Vec::new(); servers.len()]);
    for round in 0..options.common.rounds {
        for turn in 0..servers.len() {
            let i = (round + turn) % servers.len();
            let measured = load::run(&servers[i], load, options.common.seconds, round as u64)?;
            cpu[i].push(measured.per_cpu_second());
            wall[i].push(measured.per_second());
        }
    }
    for (i, kind) in KINDS.into_iter().enumerate() {
        let costs = |of: &[Vec<f64>]| {
            let ratios: Vec<f64> = of[2 * i + 1].iter().zip(&of[2 * i]).map(|(a, b)| 1.0 - a / b).collect();
            median(&ratios)
        };
        row.cell(grouped(median(&cpu[2 * i])));
        row.cell(grouped(median(&cpu[2 * i + 1])));
        row.cell(percent(costs(&cpu)));
        row.cell(percent(costs(&wall)));
        row.figure(format!("{}_costs", kind.name()), costs(&cpu));
        row.figure(format!("{}_costs_wall", kind.name()), costs(&wall));
    }
    Ok(())
}

/// Measures writes whose replies wait for the disk. The server has one core and one worker, and one thread of clients has
/// another core. On a machine of four cores and more, the server then has the first `half` of the cores and its default
/// number of workers, and a thread of clients is on each other core.
fn always(options: &Options, half: usize) -> Result<Report> {
    let title = format!(
        "appendfsync always: SET, {VALUE}-byte values, pipeline 1, {} rounds of {} s; each client sends its next request \
         on reply, or the clients of a thread send in step",
        options.common.rounds, options.common.seconds
    );
    let mut report = Report::new(
        &title,
        &[
            "server's cores",
            "connections",
            "send",
            "strand op/s",
            "redis op/s",
            "ratio",
            "strand p99 us",
            "redis p99 us",
        ],
    );
    let one = (ONE_CORE.to_string(), vec![1]);
    let many = (half > 1).then(|| (format!("0-{}", half - 1), (half..2 * half).collect()));
    for (cores, clients) in std::iter::once(one).chain(many) {
        let folders = [folder(options)?, folder(options)?];
        let mut servers = Vec::new();
        for (kind, folder) in KINDS.into_iter().zip(&folders) {
            let file = append_only(folder.path(), "always");
            let start = if clients.len() == 1 { start } else { start_as_given };
            servers.push(start(options, kind, &file.each_ref().map(String::as_str), &cores)?);
        }
        let cores = clients.len().to_string();
        for connections in [1, 32, 200] {
            let clients = &clients[..connections.min(clients.len())];
            // A single connection sends on reply in both cases.
            for in_step in [false, true].into_iter().take(connections) {
                let send = if in_step { "in step" } else { "on reply" };
                let first = [&cores, &connections.to_string(), send];
                let mut row = ReportRow::new(&first, reproduce("always"));
                let load = Workload { connections: connections / clients.len(), ..writers(options, VALUE) };
                always_row(options, &servers, load, clients, in_step, &mut row)?;
                report.row(row);
            }
        }
    }
    Ok(report)
}

/// Fills a row of [`always`]. `clients`: the cores of the threads of clients, each with `load`.
fn always_row(
    options: &Options,
    servers: &[Server],
    load: Workload,
    clients: &[usize],
    in_step: bool,
    row: &mut ReportRow,
) -> Result<()> {
    let mut wall = [Vec::new(), Vec::new()];
    let mut trips = [load::histogram()?, load::histogram()?];
    for round in 0..options.common.rounds {
        for turn in 0..2 {
            let i = (round + turn) % 2;
            let run = if in_step { load::run_on } else { load::run_on_reply };
            let measured = run(&servers[i], load, options.common.seconds, clients)?;
            wall[i].push(measured.per_second());
            trips[i] += &measured.round_trips_us;
        }
    }
    let ratios: Vec<f64> = wall[0].iter().zip(&wall[1]).map(|(a, b)| a / b).collect();
    wall.iter().for_each(|figures| row.cell(grouped(median(figures))));
    row.cell(format!("{:.2}", median(&ratios)));
    row.figure("ratio", median(&ratios));
    trips.iter().for_each(|trips| row.cell(grouped(trips.value_at_quantile(0.99) as f64)));
    Ok(())
}

/// Measures the sizes of the files that both servers write for equal data, and the time in which both load
/// redis-server's files.
fn loading(options: &Options, all_cores: &str) -> Result<[Report; 2]> {
    let keys = options.load_keys;
    let data = format!("{} strings of {SMALL} bytes", grouped(keys as f64));
    let mut sizes =
        Report::new(&format!("Files: {data}, bytes"), &["file", "strand", "redis", "strand to redis"]);
    let folders = [folder(options)?, folder(options)?];
    let (mut snapshots, mut journals) = (Vec::new(), Vec::new());
    for (kind, folder) in KINDS.into_iter().zip(&folders) {
        let file = append_only(folder.path(), "no");
        let server = start(options, kind, &file.each_ref().map(String::as_str), ONE_CORE)?;
        fill::keys(&server, keys, Content::Bytes(SMALL))?;
        // BGSAVE, because a client may not wait long enough for the reply to SAVE.
        call_ok(&server, &["BGSAVE"])?;
        wait_for_field(&server, "rdb_bgsave_in_progress", "0")?;
        server.shut_down()?;
        snapshots.push(std::fs::metadata(folder.path().join("dump.rdb"))?.len());
        journals.push(bytes_in(&folder.path().join("appendonlydir"))?);
        std::fs::remove_dir_all(folder.path().join("appendonlydir"))?;
    }
    for (name, bytes) in [("RDB", snapshots), ("append-only", journals)] {
        let mut row = ReportRow::new(&[name], reproduce("load"));
        bytes.iter().for_each(|bytes| row.cell(grouped(*bytes as f64)));
        row.cell(format!("{:.3}", bytes[0] as f64 / bytes[1] as f64));
        row.figure("ratio", bytes[0] as f64 / bytes[1] as f64);
        sizes.row(row);
    }
    let title = format!("Loading redis-server's RDB file: {data}, 3 rounds");
    let columns =
        ["cores", "strand keys/s", "strand keys/cpu-s", "redis keys/s", "redis keys/cpu-s", "ratio"];
    let mut report = Report::new(&title, &columns);
    let dir = folders[1].path().to_string_lossy().into_owned();
    for cores in [ONE_CORE, all_cores] {
        let (mut wall, mut cpu) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for round in 0..3 {
            for turn in 0..2 {
                let i = (round + turn) % 2;
                let began = Instant::now();
                let server = start_as_given(options, KINDS[i], &["--dir", &dir], cores)?;
                wait_for_field(&server, "loading", "0")?;
                wall[i].push(keys as f64 / began.elapsed().as_secs_f64());
                cpu[i].push(keys as f64 / cpu_s(&server)?);
                match server.connect()?.call(&["DBSIZE"])? {
                    Value::Int(n) if n as u64 == keys => {}
                    other => return Err(format!("{other:?} keys of {keys} are loaded").into()),
                }
            }
        }
        let ratios: Vec<f64> = wall[0].iter().zip(&wall[1]).map(|(a, b)| a / b).collect();
        let mut row = ReportRow::new(&[cores_name(cores)], reproduce("load"));
        for i in 0..2 {
            row.cell(grouped(median(&wall[i])));
            row.cell(grouped(median(&cpu[i])));
        }
        row.cell(format!("{:.2}", median(&ratios)));
        row.figure("ratio", median(&ratios));
        report.row(row);
    }
    Ok([sizes, report])
}

/// Measures clients that write without pause while a snapshot is written.
fn bgsave(options: &Options, all_cores: &str) -> Result<Report> {
    let keys = 2 * options.common.keys;
    let title = format!(
        "BGSAVE of {} keys of {VALUE} bytes beside 32 connections that SET, pipeline 30, medians of 3",
        grouped(keys as f64)
    );
    let columns = ["server", "cores", "SET/s before", "SET/s beside it", "less", "memory gained", "seconds"];
    let mut report = Report::new(&title, &columns);
    for cores in [ONE_CORE, all_cores] {
        for kind in KINDS {
            let folder = folder(options)?;
            let dir = folder.path().to_string_lossy().into_owned();
            let server = start(options, kind, &["--dir", &dir], cores)?;
            fill::keys(&server, keys, Content::Bytes(VALUE))?;
            let load = Workload { pipeline: 30, keys, ..writers(options, VALUE) };
            let (mut before, mut beside, mut less) = (Vec::new(), Vec::new(), Vec::new());
            let (mut gained, mut seconds) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                // Both loads run in pieces, because opening the connections of a piece takes time.
                let quiet = writes_per_second(&server, load, |began| Ok(began.elapsed() >= QUIET))?.0;
                let resident_kb = server.status_kb("VmRSS")?;
                server.reset_peak()?;
                call_ok(&server, &["BGSAVE"])?;
                let (during, took_s) = writes_per_second(&server, load, |began| {
                    if began.elapsed() > WAIT_MAX {
                        return Err("the snapshot does not end".into());
                    }
                    Ok(info(&server, "rdb_bgsave_in_progress")? == "0")
                })?;
                let peak_kb = server.status_kb("VmHWM")?;
                // redis-server's child process has ended, so the amount of memory that it copied is read from
                // INFO.
                let copied_kb = match kind {
                    Program::Strand => 0,
                    Program::Redis => info(&server, "rdb_last_cow_size")?.parse::<u64>()? >> 10,
                };
                let more_kb = peak_kb.saturating_sub(resident_kb) + copied_kb;
                gained.push(more_kb as f64 / resident_kb as f64);
                before.push(quiet);
                beside.push(during);
                less.push(1.0 - during / quiet);
                seconds.push(took_s);
            }
            let mut row = ReportRow::new(&[kind.name(), cores_name(cores)], reproduce("bgsave"));
            row.cell(grouped(median(&before)));
            row.cell(grouped(median(&beside)));
            row.cell(percent(median(&less)));
            row.cell(percent(median(&gained)));
            row.cell(format!("{:.1}", median(&seconds)));
            row.figure("less", median(&less));
            row.figure("memory_gained", median(&gained));
            report.row(row);
        }
    }
    Ok(report)
}

/// Writes in pieces until `is_over`, which gets the start and is called after each piece. Returns the writes per second
/// and the duration in seconds.
fn writes_per_second(
    server: &Server,
    load: Workload,
    is_over: impl Fn(Instant) -> Result<bool>,
) -> Result<(f64, f64)> {
    let (began, mut operations) = (Instant::now(), 0);
    loop {
        operations += load::run(server, load, PIECE_S, operations)?.operations;
        if is_over(began)? {
            let seconds = began.elapsed().as_secs_f64();
            return Ok((operations as f64 / seconds, seconds));
        }
    }
}

fn cores_name(cores: &str) -> &'static str {
    if cores == ONE_CORE { "one" } else { "all" }
}

fn writers(options: &Options, value_bytes: usize) -> Workload {
    Workload {
        operation: RequestKind::Set,
        pipeline: 1,
        connections: 32,
        keys: options.common.keys,
        value_bytes,
    }
}

fn append_only(dir: &Path, fsync: &str) -> [String; 8] {
    let dir = dir.to_string_lossy();
    // Turn automatic rewriting off, because a rewrite would disturb the measurement.
    let words =
        ["--dir", &dir, "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"];
    words.map(String::from)
}

fn start(options: &Options, kind: Program, more: &[&str], cores: &str) -> Result<Server> {
    let workers: &[&str] = if kind == Program::Strand { &["--workers", "1"] } else { &[] };
    let server = start_as_given(options, kind, &[workers, more].concat(), cores)?;
    wait_for_field(&server, "loading", "0")?;
    Ok(server)
}

fn start_as_given(options: &Options, kind: Program, more: &[&str], cores: &str) -> Result<Server> {
    Ok(Server::measured(kind, &options.common.strand, more, cores, &[])?)
}

fn folder(options: &Options) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("strand-durable-").tempdir_in(&options.dir)?)
}

fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in std::fs::read_dir(folder)? {
        bytes += file?.metadata()?.len();
    }
    Ok(bytes)
}

/// CPU time of the process, including threads that have ended.
fn cpu_s(server: &Server) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.pid()))?;
    // The program's name, which may contain spaces, ends at the last bracket. User and system time are the
    // 12th and 13th field after that bracket.
    let after_name = text.rsplit_once(')').ok_or("/proc/PID/stat has no name in brackets")?.1;
    let ticks: Vec<f64> = after_name.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    Ok(ticks.iter().sum::<f64>() / TICKS_A_SECOND)
}

/// Calls a command, and fails on an error reply.
fn call_ok(server: &Server, words: &[&str]) -> Result<()> {
    match server.connect()?.call(words)? {
        Value::Error(why) => Err(String::from_utf8_lossy(&why).into_owned().into()),
        _ => Ok(()),
    }
}

/// A field of INFO.
fn info(server: &Server, field: &str) -> Result<String> {
    let reply = match server.connect()?.call(&["INFO", "persistence"])? {
        Value::Bulk(text) | Value::Verbatim(_, text) => String::from_utf8_lossy(&text).into_owned(),
        other => return Err(format!("INFO answers {other:?}").into()),
    };
    let value = reply.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.ok_or_else(|| format!("INFO has no {field}"))?.to_string())
}

fn wait_for_field(server: &Server, field: &str, value: &str) -> Result<()> {
    let began = Instant::now();
    while info(server, field)? != value {
        if began.elapsed() > WAIT_MAX {
            return Err(format!("{field} is not {value} after {} s", WAIT_MAX.as_secs()).into());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn reproduce(name: &str) -> String {
    format!("make durable ARGS='--only {name}'")
}

fn options() -> Result<Options> {
    let defaults =
        Common { strand: PathBuf::new(), keys: 1_000_000, seconds: 1.0, rounds: 5, only: None, json: false };
    let (mut load_keys, mut dir) = (10_000_000, std::env::temp_dir());
    let common = defaults.read(std::env::args().skip(1), USAGE, |option, values| {
        match option {
            "--load-keys" => load_keys = values.of(option)?,
            "--dir" => dir = values.of(option)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let known = ["everysec", "always", "load", "bgsave"];
    if load_keys == 0 || common.only.as_deref().is_some_and(|only| !known.contains(&only)) {
        return Err(USAGE.into());
    }
    Ok(Options { common, load_keys, dir })
}
