//! `strand import --supervised`, which `strand jobs serve` starts: reports progress as lines of JSON, and asks the
//! service for memory before it allocates much.

use super::import::ImportArgs;
use super::json::{self, Line};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::env;
use std::io::BufRead;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use strand_import::memory::{Lender, Memory};
use strand_import::{Destination, Forecast, Outcome, Pace, Progress};

/// Minimum time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The memory of containers is reported after it has changed by this many bytes.
const CONTAINERS_STEP_BYTES: u64 = 1 << 20;

/// The environment variables with the source and the sink of a run, if these have a password. All users of a machine see
/// the arguments of a process, and only its own user sees its environment.
pub const SOURCE_VARIABLE: &str = "STRAND_JOB_SOURCE";
/// See [`SOURCE_VARIABLE`].
pub const TO_VARIABLE: &str = "STRAND_JOB_TO";

/// Puts the source and the sink with their passwords in the place of those in the arguments.
///
/// # Errors
/// The sink in the environment is not valid.
pub fn take_passwords(args: &mut ImportArgs) -> Result<(), <Destination as FromStr>::Err> {
    if let Some(source) = env::var_os(SOURCE_VARIABLE) {
        args.source = source.into();
    }
    if let Ok(to) = env::var(TO_VARIABLE) {
        args.to = Some(to.parse()?);
    }
    Ok(())
}

/// Starts the thread that reads the service's grants of memory from the standard input. The process exits when that
/// input ends, which means that the service has ended.
pub fn memory() -> Memory {
    // A paused run is stopped, so it does not see the end of its input. The kernel's signal ends a stopped process, too.
    // The thread that starts the runs lives as long as the service.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        say!("strand import: a pause of this run may outlast the service: {error}");
    }
    let (grant, grants) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line == "grant" => {
                    let _ = grant.send(());
                }
                _ => break,
            }
        }
        // End the run, because no process reads its output any more. The records of the run stay.
        std::process::exit(1);
    });
    Memory(Some(Arc::new(ServiceMemory { grants: Mutex::new(grants), containers: AtomicU64::new(0) })))
}

struct ServiceMemory {
    grants: Mutex<mpsc::Receiver<()>>,
    containers: AtomicU64,
}

impl Lender for ServiceMemory {
    fn take(&self, bytes: u64, path: &[u8]) {
        let grants = self.grants.lock().expect("nothing panics that holds it");
        Line::event("need").number("bytes", bytes).path(path).print();
        // An error means that the service has ended. Then the thread that reads grants exits the process.
        let _ = grants.recv();
    }
    fn give_back(&self, bytes: u64) {
        Line::event("free").number("bytes", bytes).print();
    }
    fn containers(&self, bytes: u64) {
        let reported = self.containers.load(Ordering::Relaxed);
        if bytes.abs_diff(reported) >= CONTAINERS_STEP_BYTES {
            self.containers.store(bytes, Ordering::Relaxed);
            Line::event("containers").number("bytes", bytes).print();
        }
    }
}

/// Reports failures at once, and progress at intervals.
pub struct Supervised {
    pace: Pace,
    last_report_at: Option<Instant>,
}

impl Supervised {
    /// Creates a reporter for a new run.
    pub fn new() -> Supervised {
        Supervised { pace: Pace::default(), last_report_at: None }
    }

    fn report(&mut self, path: &[u8]) {
        if self.last_report_at.is_none_or(|last_report_at| last_report_at.elapsed() >= REPORT_EVERY) {
            self.last_report_at = Some(Instant::now());
            json::pace_line(&self.pace).path(path).print();
        }
    }
}

impl Progress for Supervised {
    fn listed(&mut self, path: &[u8], documents: u64) {
        self.pace.listed += documents;
        self.report(path);
    }
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        self.pace.done += u64::from(outcome != Outcome::Removed);
        match outcome {
            Outcome::Failed(reason) => json::print_failed(path, reason),
            _ => self.report(path),
        }
    }
    fn pace(&mut self, path: &[u8], pace: &Pace) {
        // Keep the numbers counted here, which are newer than those in `pace`.
        let Pace { listed, done, .. } = self.pace;
        self.pace = Pace { listed, done, ..*pace };
        self.report(path);
    }
    fn forecast(&mut self, forecast: &Forecast) {
        json::print_forecast(forecast);
    }
}
