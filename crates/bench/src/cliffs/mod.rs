//! `make cliffs`: what must stay flat, measured on Strand and on redis-server in one run.
//!
//! There are three tables. *Costs* are figures of a single operation: nanoseconds per byte, allocations per
//! command, growth of memory. *Stalls* are what another client feels during an event ([`probe`] explains the
//! measurement). The third is the creep test ([`creep`]). Servers have core 0, the client core 1. `Lab` is
//! one server under measurement. A stage fills it once and runs several rows on it, first on Strand, then on
//! redis-server.

mod bytes;
mod creep;
mod crowds;
mod event;
mod frames;
mod hashes;
mod instruments;
mod keyspace;
mod large;
mod noise;
mod pauses;
pub mod probe;
mod scripts;
mod types;

use crate::report::{Report, ReportRow, grouped};
use event::EventClient;
use noise::Noise;
use pauses::Pauses;
use probe::{COLUMNS, Micros, Outcome, Probe};
use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use strand_testkit::process::{Program, Server, free_port};

/// Result of measuring a row.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Number of keys at scale 1. The constants below are the sizes of other data.
const KEYS: f64 = 2_000_000.0;
const FIELDS: f64 = 2_000_000.0;
const EXPIRING: f64 = 1_000_000.0;
const MANY: f64 = 100_000.0;
const LARGE_MB: f64 = 256.0;
const IDLE: f64 = 10_000.0;
const ARRIVALS: f64 = 5_000.0;
/// Duration of quiet probing before the event.
const QUIET: Duration = Duration::from_millis(250);
/// Maximum duration of quiet probing after the event. The quiet probing takes as long as the event took, so that the
/// quiet probes and the probes during the event meet equally many pauses of the machine.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// Time that a server gets after an event to finish its deferred work, in milliseconds.
const SETTLE_MS: u64 = 500;
/// Probing continues for this time after the event's reply, because deferred work belongs to the event.
const AFTER_MS: u64 = 100;

/// A probe that takes longer than this is checked for time that the machine took.
const SLOW_US: u64 = 100;

/// What to measure, and which binary.
#[derive(Clone, Debug)]
pub struct Options {
    /// Strand's binary.
    pub strand: PathBuf,
    /// Name of the only row to measure, or a part of names of rows.
    pub only: Option<String>,
    /// The factor by which all sizes are multiplied.
    pub scale: f64,
}

impl Options {
    fn size(&self, at_scale_1: f64) -> u64 {
        (at_scale_1 * self.scale).ceil() as u64
    }
    fn wants(&self, name: &str) -> bool {
        let exact = |only: &str| STAGES.iter().flat_map(|s| s.rows).any(|n| *n == only);
        let named = |only: &str| if exact(only) { name == only } else { name.contains(only) };
        self.only.as_deref().is_none_or(named)
    }
}

/// Rows that share one filled server.
struct Stage {
    rows: &'static [&'static str],
    options: &'static [&'static str],
    run: fn(&mut Lab<'_>) -> Result<()>,
}

const STAGES: &[Stage] = &[
    Stage { rows: bytes::ROWS, options: &[], run: bytes::run },
    Stage { rows: frames::ROWS, options: &[], run: frames::run },
    Stage { rows: keyspace::ROWS, options: &[], run: keyspace::run },
    Stage { rows: hashes::ROWS, options: &[], run: hashes::run },
    Stage { rows: types::ROWS, options: &[], run: types::run },
    Stage { rows: scripts::ROWS, options: &[], run: scripts::run },
    Stage { rows: large::ROWS, options: &[], run: large::run },
    Stage { rows: instruments::ROWS, options: &[], run: instruments::run },
    Stage { rows: crowds::ROWS, options: &["--maxclients", "12000"], run: crowds::run },
];

/// One row's result on one server.
enum Cell {
    Cost(String, Vec<(&'static str, f64)>),
    Stall(Box<Outcome>),
    Failed(String),
}

/// One server under measurement, with its results.
struct Lab<'a> {
    options: &'a Options,
    server: Server,
    /// Strand's door for HTTP, in the stage that uses it.
    http_port: u16,
    probe: Probe,
    cells: Vec<(&'static str, Cell)>,
}

impl Lab<'_> {
    /// True when the row `name` is wanted.
    fn wants(&self, name: &str) -> bool {
        self.options.wants(name)
    }

    /// Measures a cost. `name` contains the unit.
    fn cost(
        &mut self,
        name: &'static str,
        measure: impl FnOnce(&mut Self) -> Result<(String, Vec<(&'static str, f64)>)>,
    ) {
        if self.wants(name) {
            let cell = match measure(self) {
                Ok((text, figures)) => Cell::Cost(text, figures),
                Err(e) => Cell::Failed(format!("failed: {e}")),
            };
            self.cells.push((name, cell));
        }
    }

    /// Measures how `event` affects the probe: first quiet, then while the event runs `repeats` times.
    fn stall(
        &mut self,
        name: &'static str,
        repeats: usize,
        event: impl Fn(&mut EventClient, &Server) -> Result<()> + Sync,
    ) {
        if self.wants(name) {
            let quiet = self.quiet();
            self.stall_after(quiet, name, repeats, event);
        }
    }

    /// Measures as [`Lab::stall`] does, with quiet figures that were measured before.
    fn stall_after(
        &mut self,
        quiet: Result<Micros>,
        name: &'static str,
        repeats: usize,
        event: impl Fn(&mut EventClient, &Server) -> Result<()> + Sync,
    ) {
        let cell = match quiet.and_then(|quiet| self.during(quiet, repeats, &event)) {
            Ok(outcome) => Cell::Stall(Box::new(outcome)),
            Err(e) => Cell::Failed(format!("failed: {e}")),
        };
        self.cells.push((name, cell));
    }

    /// Probes a server that does nothing but answer the probes.
    fn quiet(&mut self) -> Result<Micros> {
        self.quiet_for(QUIET, Micros::new(0)?)
    }

    /// Probes a server that does nothing else for `time`, and adds the probes to `micros`.
    fn quiet_for(&mut self, time: Duration, mut micros: Micros) -> Result<Micros> {
        let (start, mut noise) = (Instant::now(), Noise::watch(&self.server)?);
        while start.elapsed() < time {
            let (_, net) = probe_once(&mut self.probe, &mut noise)?;
            micros.record(net);
        }
        Ok(micros)
    }

    /// Probes during the event and after it. Quiet probes and probes during the event are counted alike, with
    /// the quiet median as the interval between two probes.
    fn during(
        &mut self,
        quiet: Micros,
        repeats: usize,
        event: &(impl Fn(&mut EventClient, &Server) -> Result<()> + Sync),
    ) -> Result<Outcome> {
        let during = [Micros::new(quiet.at(0.5))?, Micros::new(quiet.at(0.5))?];
        let [during, net] = during;
        let mut outcome = Outcome { during, net, quiet, event_ms: Vec::new() };
        let (server, probe) = (&self.server, &mut self.probe);
        for _ in 0..repeats {
            let mut client = EventClient::connect(server)?;
            let mut noise = Noise::watch(server)?;
            let took = thread::scope(|scope| {
                let running = scope.spawn(|| {
                    event::lower_priority()?;
                    let start = Instant::now();
                    event(&mut client, server).map(|()| start.elapsed())
                });
                let mut finished_at = None;
                while finished_at.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(AFTER_MS)) {
                    if finished_at.is_none() && running.is_finished() {
                        finished_at = Some(Instant::now());
                    }
                    let (took, net) = probe_once(probe, &mut noise)?;
                    outcome.during.record(took);
                    outcome.net.record(net);
                }
                running.join().unwrap_or_else(|_| Err("the event panicked".into()))
            })?;
            outcome.event_ms.push(took.as_secs_f64() * 1000.0);
        }
        thread::sleep(Duration::from_millis(SETTLE_MS));
        let event = Duration::from_secs_f64(outcome.event_ms.iter().sum::<f64>() / 1000.0);
        outcome.quiet = self.quiet_for(event.min(QUIET_MAX), outcome.quiet)?.with_own_interval();
        Ok(outcome)
    }
}

/// Runs one probe. Returns its round trip, and the round trip minus the time that the machine took from it. The
/// counters are read directly before the probe, so time that the machine took between probes does not count.
fn probe_once(probe: &mut Probe, noise: &mut Noise) -> Result<(Duration, Duration)> {
    noise.mark();
    let took = probe.get()?;
    let taken = if took > Duration::from_micros(SLOW_US) { noise.time_taken() } else { Duration::ZERO };
    Ok((took, took.saturating_sub(taken)))
}

/// Runs every wanted row. Returns the tables of costs, of stalls, and of the creep test.
///
/// # Errors
/// When a server does not start. A row that fails says so in its cell.
pub fn run(options: &Options) -> Result<[Report; 3]> {
    let mut costs = Report::new("Costs", &["row", "strand", "redis-server"]);
    let sizes = [KEYS, FIELDS, EXPIRING, MANY, LARGE_MB].map(|s| grouped(options.size(s) as f64));
    let [keys, fields, expiring, many, large] = sizes;
    let title = format!(
        "Stalls of a GET probe in microseconds ({keys} keys, hashes of {fields} fields, {expiring} keys that expire, \
         {many} keys a command, values of {large} MB). net, quiet: without the time that other processes and the machine's \
         pauses took of the two cores; due: with the probes that a closed loop omits while it waits; event: median in ms"
    );
    let columns = [
        "quiet p99.9",
        "quiet max",
        "p99.9",
        "max",
        "net p99.9",
        "net due p99.9",
        "net max",
        "event ms",
        "probes",
    ];
    let named = |server: &str| columns.map(|c| format!("{server} {c}"));
    let all = [vec!["event".to_string()], named("strand").to_vec(), named("redis").to_vec()].concat();
    let mut stalls = Report::new(&title, &all.iter().map(String::as_str).collect::<Vec<_>>());
    if let Err(why) = Pauses::watch(&noise::CORES) {
        eprintln!("  the pauses of the machine's cores stay in all figures: {why}");
    }
    for stage in STAGES.iter().filter(|s| s.rows.iter().any(|r| options.wants(r))) {
        let mut strand = measure(options, stage, Program::Strand)?;
        let mut redis = measure(options, stage, Program::Redis)?;
        for name in stage.rows.iter().filter(|r| options.wants(r)) {
            add(&mut costs, &mut stalls, name, [take(&mut strand, name), take(&mut redis, name)]);
        }
    }
    let creep =
        if creep::is_wanted(options) { creep::run(options)? } else { Report::new("Creep", &["check"]) };
    Ok([costs, stalls, creep])
}

fn measure(options: &Options, stage: &Stage, kind: Program) -> Result<Vec<(&'static str, Cell)>> {
    let http_port = free_port()?;
    let door = http_port.to_string();
    let mut own = Vec::new();
    if kind == Program::Strand {
        own.extend(["--workers", "1"]);
        // Only the rows of the instruments are measured with the HTTP door open.
        if stage.rows == instruments::ROWS {
            own.extend(["--http-port", &door]);
        }
    }
    let server = Server::measured(kind, &options.strand, &[&own, stage.options].concat(), "0", &[])?;
    let probe = Probe::open(&server)?;
    let mut lab = Lab { options, server, http_port, probe, cells: Vec::new() };
    if let Err(e) = (stage.run)(&mut lab) {
        eprintln!("  {}: {e}", kind.name());
    }
    Ok(lab.cells)
}

fn take(cells: &mut Vec<(&'static str, Cell)>, name: &str) -> Option<Cell> {
    let at = cells.iter().position(|c| c.0 == name)?;
    Some(cells.remove(at).1)
}

fn add(costs: &mut Report, stalls: &mut Report, name: &str, cells: [Option<Cell>; 2]) {
    let mut row = ReportRow::new(&[name], format!("make cliffs ARGS='--only \"{name}\"'"));
    let is_stall = cells.iter().any(|c| matches!(c, Some(Cell::Stall(_))));
    for (server, cell) in ["strand", "redis"].iter().zip(cells) {
        let texts = match cell {
            Some(Cell::Cost(text, figures)) => {
                figures.iter().for_each(|(n, v)| row.figure(format!("{server}_{n}"), *v));
                vec![text]
            }
            Some(Cell::Stall(outcome)) => {
                outcome.figures().into_iter().for_each(|(n, v)| row.figure(format!("{server}_{n}"), v));
                outcome.figures().into_iter().map(|(_, v)| grouped(v)).collect()
            }
            Some(Cell::Failed(why)) => vec![why],
            None => vec!["-".into()],
        };
        let missing = if is_stall { COLUMNS - texts.len() } else { 0 };
        texts.into_iter().chain(vec!["-".into(); missing]).for_each(|t| row.cell(t));
    }
    if is_stall { stalls.row(row) } else { costs.row(row) }
}
