//! A run of `strand jobs serve`: reports its progress as lines of JSON, and asks before it takes memory.

use super::json::{self, Line};
use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use strand_import::memory::{Lender, Memory};
use strand_import::{Forecast, Outcome, Pace, Progress};

/// Minimum time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The memory of containers is reported after it has changed by this many bytes.
const CONTAINERS_STEP_BYTES: u64 = 1 << 20;

/// Listens to the service, which grants memory. The run ends when the service is gone.
pub fn memory() -> Memory {
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
    Memory(Some(Arc::new(Asking { grants: Mutex::new(grants), containers: AtomicU64::new(0) })))
}

struct Asking {
    grants: Mutex<mpsc::Receiver<()>>,
    containers: AtomicU64,
}

impl Lender for Asking {
    fn take(&self, bytes: u64, path: &[u8]) {
        let grants = self.grants.lock().expect("nothing panics that holds it");
        Line::event("need").number("bytes", bytes).path(path).print();
        // When the service ends, this process ends too.
        let _ = grants.recv();
    }
    fn give_back(&self, bytes: u64) {
        Line::event("free").number("bytes", bytes).print();
    }
    fn containers(&self, bytes: u64) {
        let told = self.containers.load(Ordering::Relaxed);
        if bytes.abs_diff(told) >= CONTAINERS_STEP_BYTES {
            self.containers.store(bytes, Ordering::Relaxed);
            Line::event("containers").number("bytes", bytes).print();
        }
    }
}

/// Reports failures at once, and progress at intervals.
pub struct Supervised {
    pace: Pace,
    told: Option<Instant>,
}

impl Supervised {
    /// Creates a reporter for a new run.
    pub fn new() -> Supervised {
        Supervised { pace: Pace::default(), told: None }
    }

    fn report(&mut self, path: &[u8]) {
        if self.told.is_none_or(|told| told.elapsed() >= REPORT_EVERY) {
            self.told = Some(Instant::now());
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
