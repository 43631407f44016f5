//! `make scaling`: the headline workload with 1, 2, 4, 8 and 16 workers, for machines with enough cores.
//!
//! N workers have the cores 0..N. The clients have the next N cores, with one thread of 32 connections each. On a
//! machine with fewer cores, servers and clients share all cores, and the row says so. Operations per CPU-second
//! then still show the cost of another worker, but operations per second show nothing. redis-server, with
//! its one thread, is measured beside each row.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;
use strand_bench::fill::{self, Content};
use strand_bench::load::{self, RequestKind, Workload};
use strand_bench::machine::Machine;
use strand_bench::report::{self, Report, ReportRow, grouped, median};
use strand_testkit::process::{Program, Server};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str =
    "usage: scaling --strand BINARY [--workers N,N,...] [--keys N] [--seconds S] [--rounds N] [--json]";
const CONNECTIONS_PER_THREAD: usize = 32;

struct Options {
    strand: PathBuf,
    workers: Vec<usize>,
    keys: u64,
    seconds: f64,
    rounds: usize,
    json: bool,
}

fn main() -> Result<()> {
    let options = options()?;
    let (machine, start) = (Machine::here(&options.strand), Instant::now());
    let cores = std::thread::available_parallelism()?.get();
    let title = format!(
        "Scaling: 20% SET, pipeline 30, 256-byte values, {} keys, {CONNECTIONS_PER_THREAD} connections a client thread, \
         {} rounds of {} s",
        grouped(options.keys as f64),
        options.rounds,
        options.seconds
    );
    let columns = ["workers", "cores", "op/s", "to 1 worker", "op/cpu-s", "to 1 worker", "p50/p99/p99.9 us"];
    let mut report = Report::new(&title, &[&columns[..], &["redis op/s", "redis op/cpu-s"]].concat());
    let redis = Server::measured(Program::Redis, &options.strand, &[], "0", &[])?;
    fill::keys(&redis, options.keys, Content::Bytes(256))?;
    let mut first = None;
    for workers in options.workers.iter().copied().filter(|w| *w <= cores) {
        let row = measure(&options, workers, cores, &redis, &mut first)?;
        report.row(row);
    }
    report::print(&machine, &[report], start.elapsed(), options.json);
    Ok(())
}

fn measure(
    options: &Options,
    workers: usize,
    cores: usize,
    redis: &Server,
    first: &mut Option<(f64, f64)>,
) -> Result<ReportRow> {
    let apart = workers * 2 <= cores;
    let servers_cores = if apart { format!("0-{}", workers - 1) } else { format!("0-{}", cores - 1) };
    let clients: Vec<usize> = (0..workers).map(|c| if apart { workers + c } else { c }).collect();
    let count = workers.to_string();
    let strand =
        Server::measured(Program::Strand, &options.strand, &["--workers", &count], &servers_cores, &[])?;
    fill::keys(&strand, options.keys, Content::Bytes(256))?;
    let load = Workload {
        operation: RequestKind::Mixed,
        pipeline: 30,
        connections: CONNECTIONS_PER_THREAD,
        keys: options.keys,
        value_bytes: 256,
    };
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut trips = load::histogram()?;
    for _ in 0..options.rounds {
        let measured = load::run_on(&strand, load, options.seconds, &clients)?;
        trips += &measured.round_trips_us;
        ours[0].push(measured.per_second());
        ours[1].push(measured.per_cpu_second());
        let measured = load::run_on(redis, load, options.seconds, &clients[..1])?;
        theirs[0].push(measured.per_second());
        theirs[1].push(measured.per_cpu_second());
    }
    let [wall, cpu] = ours.map(|v| median(&v));
    let (wall_first, cpu_first) = *first.get_or_insert((wall, cpu));
    let reproduce = format!("make scaling ARGS='--workers {workers}'");
    let mut row = ReportRow::new(&[&count, if apart { "apart" } else { "shared" }], reproduce);
    let quantiles = [0.5, 0.99, 0.999].map(|q| grouped(trips.value_at_quantile(q) as f64)).join(" / ");
    let ratios = [wall / wall_first, cpu / cpu_first].map(|r| format!("{r:.2}"));
    let [ratio_wall, ratio_cpu] = ratios;
    [grouped(wall), ratio_wall, grouped(cpu), ratio_cpu, quantiles].into_iter().for_each(|c| row.cell(c));
    theirs.iter().for_each(|v| row.cell(grouped(median(v))));
    row.figure("strand_per_second", wall);
    row.figure("strand_per_cpu_second", cpu);
    row.figure("redis_per_second", median(&theirs[0]));
    row.figure("redis_per_cpu_second", median(&theirs[1]));
    Ok(row)
}

fn options() -> Result<Options> {
    let workers = vec![1, 2, 4, 8, 16];
    let mut options =
        Options { strand: PathBuf::new(), workers, keys: 1_000_000, seconds: 1.0, rounds: 5, json: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value; {USAGE}"));
        match arg.as_str() {
            "--strand" => options.strand = value()?.into(),
            "--workers" => {
                options.workers =
                    value()?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
            }
            "--keys" => options.keys = value()?.parse()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--json" => options.json = true,
            _ => return Err(format!("unknown argument {arg}; {USAGE}").into()),
        }
    }
    let sane = options.workers.iter().all(|w| *w > 0) && options.rounds > 0 && options.keys > 0;
    if options.strand.as_os_str().is_empty() || !sane {
        return Err(USAGE.into());
    }
    Ok(options)
}
