//! [`Board`]: the scheduler of all jobs. It decides which job starts, gets memory, waits or stops next.
//!
//! A job is queued when its trigger is due, or when a user asks for a run. It starts when three conditions hold: the
//! ledger has [`JOB_BYTES`] for it, its source allows one more running job, and fewer than the maximum number of jobs
//! run. A running job requests more memory before it reads a large document. Jobs that wait are served by priority,
//! then by the time of the request. No job overtakes another job, so a job with a large request is served too. If all
//! running jobs wait for memory that other jobs hold, the board kills the job that would be served last. That job
//! starts again later, at the container where it was.

mod metrics;
mod requests;
mod state;

use super::JobError;
use super::definition::Definition;
use super::ledger::{JOB_BYTES, Ledger};
use super::schedule::{self, Trigger};
use requests::RequestTotals;
use serde_json::{Map, Value, json};
pub use state::{NoJobs, without_password};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of jobs.
pub const JOBS_MAX: usize = 10_000;
/// Maximum number of failed documents of a job's last run that are kept with their reasons.
pub const ERRORS_MAX: usize = 1000;
/// Delay before a job starts again after its process failed. The delay doubles with each failure in a row.
const RESTART_DELAY_MS_MIN: u64 = 1_000;
/// Maximum delay before a job starts again after its process failed.
const RESTART_DELAY_MS_MAX: u64 = 300_000;

/// A watched folder that changes without a pause is imported after this multiple of the job's quiet time
/// ([`Definition::watch`]).
pub const QUIET_TIMES_MAX: u64 = 10;

/// The documents that a run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// All documents that are new or have changed.
    Import,
    /// Only the documents that failed in the last run.
    Retry,
}

/// An action that the service must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process for this job, with these arguments.
    Start(String, Vec<String>),
    /// Notify this job's process that it may use the memory that it requested.
    Grant(String),
    /// Pause this job's process.
    Stop(String),
    /// Resume this job's process.
    Continue(String),
    /// Kill this job's process.
    Kill(String),
}

/// A message of a running job.
#[derive(Clone, Debug, PartialEq)]
pub enum RunReport {
    /// The run waits for this number of bytes of memory.
    Need(u64),
    /// The run gives this number of bytes of memory back.
    Free(u64),
    /// The containers of the run take this number of bytes of memory now.
    Containers(u64),
    /// The progress of the run.
    Progress(Map<String, Value>),
    /// The run's forecast.
    Forecast(Map<String, Value>),
    /// The document with this path failed for this reason.
    Failed(String, String),
    /// The run waits for its sink. The text says why.
    Waiting(String),
    /// The numbers of the whole run, at its end.
    Summary(Map<String, Value>),
    /// The reason why the run had to stop, and its HTTP requests as in a summary (null: none).
    Error(String, Value),
}

/// The limits of all jobs whose sources begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLimit {
    /// The prefix of the sources.
    pub source: String,
    /// Maximum number of these jobs that run at the same time.
    pub running: usize,
    /// Maximum number of bytes per second that all these jobs read together. `None`: no limit.
    pub rate: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Running {
    since_ms: u64,
    containers: u64,
    /// The number of bytes that the run waits for, and the ticket of the request.
    memory_request: Option<(u64, u64)>,
    /// The reason why the board ends the run. `None` while the run may continue.
    ending: Option<Ending>,
    progress: Map<String, Value>,
    forecast: Option<Map<String, Value>>,
    waiting: Option<String>,
    summary: Option<Map<String, Value>>,
    /// Why the run had to stop, and its HTTP requests.
    error: Option<(String, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Cancelled,
    Removed,
    /// The board killed the run to free memory for other jobs. It starts again later.
    Yielded,
}

#[derive(Clone, Debug)]
struct Job {
    definition: Definition,
    is_paused: bool,
    due_ms: Option<u64>,
    /// The run that waits for its start, and its ticket.
    queued: Option<(Work, u64)>,
    /// The earliest time at which the queued run may start.
    not_before_ms: u64,
    failures_in_a_row: u32,
    running: Option<Running>,
    last_start_ms: Option<u64>,
    last: Value,
    errors: VecDeque<(String, String)>,
    runs: u64,
    totals: Totals,
    /// The times of the first and the last change of the watched folder since changes last queued a run.
    changed_ms: Option<(u64, u64)>,
    /// The reason why the job's folder cannot be watched.
    unwatched: Option<String>,
}

/// Sums over all runs of a job.
#[derive(Clone, Debug, Default)]
struct Totals {
    /// The number of runs by their outcome.
    outcomes: BTreeMap<String, u64>,
    /// The sums of the numbers in the summaries.
    counted: BTreeMap<String, u64>,
    /// The HTTP requests.
    requests: RequestTotals,
}

/// All jobs.
#[derive(Debug)]
pub struct Board {
    jobs: BTreeMap<String, Job>,
    ledger: Ledger,
    running_max: usize,
    limits: Vec<SourceLimit>,
    /// The last ticket. Of requests with equal priority, the request with the lowest ticket is served first.
    last_ticket: u64,
    /// The time of the last [`Board::tick`].
    ticked_ms: u64,
    rng: fastrand::Rng,
    /// Saved jobs that could not be restored, as they were saved.
    unrestored: Vec<Value>,
}

impl Board {
    /// A board without jobs. `budget` is the memory of all jobs together, in bytes. `running_max` is the maximum number
    /// of running jobs, at least 1. `seed` initializes the random generator of the jitter.
    pub fn new(budget: u64, running_max: usize, limits: Vec<SourceLimit>, seed: u64) -> Board {
        let rng = fastrand::Rng::with_seed(seed);
        Board {
            jobs: BTreeMap::new(),
            ledger: Ledger::new(budget),
            running_max: running_max.max(1),
            limits,
            last_ticket: 0,
            ticked_ms: 0,
            rng,
            unrestored: Vec::new(),
        }
    }

    /// The names of all jobs.
    pub fn names(&self) -> Vec<String> {
        self.jobs.keys().cloned().collect()
    }

    /// The definition of a job.
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.jobs.get(name).map(|job| &job.definition)
    }

    /// Adds a job, or changes the definition of a job.
    ///
    /// # Errors
    /// When there are [`JOBS_MAX`] jobs, or when another job imports into the dataset.
    pub fn put(&mut self, definition: Definition, now_ms: u64) -> Result<(), JobError> {
        let mut others = self.jobs.values().map(|job| &job.definition);
        let is_clash =
            |other: &&Definition| other.name != definition.name && other.place() == definition.place();
        if let Some(clash) = others.find(is_clash) {
            return Err(JobError::Taken { job: clash.name.clone(), dataset: definition.into });
        }
        let name = definition.name.clone();
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&name) {
            return Err(JobError::Full);
        }
        self.unrestored.retain(|one| one["definition"]["name"] != name.as_str());
        let jitter = self.jitter_ms(definition.jitter);
        let job = self.jobs.entry(name).or_insert_with(|| Job {
            definition: definition.clone(),
            is_paused: false,
            due_ms: None,
            queued: None,
            not_before_ms: 0,
            failures_in_a_row: 0,
            running: None,
            last_start_ms: None,
            last: Value::Null,
            errors: VecDeque::new(),
            runs: 0,
            totals: Totals::default(),
            changed_ms: None,
            unwatched: None,
        });
        job.due_ms = schedule::next_ms(&definition.trigger, job.last_start_ms, now_ms, jitter);
        job.definition = definition;
        // The job was deleted while it ran. Its run still ends, and the job stays.
        if let Some(running) = &mut job.running
            && running.ending == Some(Ending::Removed)
        {
            running.ending = Some(Ending::Cancelled);
            job.queued = None;
        }
        Ok(())
    }

    fn jitter_ms(&mut self, most: Duration) -> u64 {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX - 1);
        self.rng.u64(0..=most)
    }

    fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn job(&mut self, name: &str) -> Result<&mut Job, JobError> {
        self.jobs.get_mut(name).ok_or_else(|| JobError::NoJob(name.into()))
    }

    /// Queues a run of the job now. If the job runs, it runs again afterwards.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn run(&mut self, name: &str, work: Work) -> Result<(), JobError> {
        let ticket = self.next_ticket();
        let job = self.job(name)?;
        job.not_before_ms = 0;
        job.failures_in_a_row = 0;
        match &mut job.queued {
            None => job.queued = Some((work, ticket)),
            // An import retries the failed documents, too.
            Some((queued, _)) if work == Work::Import => *queued = work,
            Some(_) => {}
        }
        Ok(())
    }

    /// Notes that the watched folder of the job changed. The job is due when the folder has not changed for the job's
    /// quiet time, and at the latest after [`QUIET_TIMES_MAX`] times the quiet time.
    pub fn note_folder_change(&mut self, name: &str, now_ms: u64) {
        if let Some(job) = self.jobs.get_mut(name).filter(|job| job.definition.watch.is_some()) {
            job.changed_ms = Some((job.changed_ms.map_or(now_ms, |(first, _)| first), now_ms));
        }
    }

    /// Notes the reason why the folder of the job cannot be watched. `None`: the folder is watched.
    pub fn set_watch_error(&mut self, name: &str, error: Option<String>) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.unwatched = error;
        }
    }

    /// The jobs whose folders must be watched, with the folders.
    pub fn watched_folders(&self) -> Vec<(String, String)> {
        let watched = self.jobs.values().map(|job| &job.definition).filter(|d| d.watch.is_some());
        watched.map(|definition| (definition.name.clone(), definition.source.clone())).collect()
    }

    /// Pauses the job: stops the process of its run, and starts no further run.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn pause(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        let was_paused = std::mem::replace(&mut job.is_paused, true);
        Ok(if job.running.is_some() && !was_paused {
            vec![Action::Stop(name.to_owned())]
        } else {
            Vec::new()
        })
    }

    /// Resumes a paused job.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn resume(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        let was_paused = std::mem::replace(&mut job.is_paused, false);
        Ok(if job.running.is_some() && was_paused {
            vec![Action::Continue(name.to_owned())]
        } else {
            Vec::new()
        })
    }

    /// Ends the job's run, and drops a queued run. Imported documents stay. The next run continues from there.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn cancel(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        job.queued = None;
        Ok(job.end(Ending::Cancelled).then(|| Action::Kill(name.to_owned())).into_iter().collect())
    }

    /// Removes the job from the board, after its run has ended. Its documents stay at the server.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn remove(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        if job.running.is_none() {
            self.jobs.remove(name);
            return Ok(Vec::new());
        }
        job.end(Ending::Removed);
        Ok(vec![Action::Kill(name.to_owned())])
    }

    /// Handles a message of a running job.
    pub fn report(&mut self, name: &str, report: RunReport) {
        let (most, ticket) = (self.ledger.request_bytes_max(), self.next_ticket());
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(running) = &mut job.running else { return };
        match report {
            RunReport::Need(bytes) => running.memory_request = Some((bytes.min(most), ticket)),
            RunReport::Free(bytes) => self.ledger.give_back(name, bytes.min(most)),
            RunReport::Containers(bytes) => {
                self.ledger.give_back(name, running.containers);
                self.ledger.force(name, bytes);
                running.containers = bytes;
            }
            RunReport::Progress(progress) => {
                running.waiting = None;
                running.progress = progress;
            }
            RunReport::Forecast(forecast) => running.forecast = Some(forecast),
            RunReport::Waiting(what) => running.waiting = Some(what),
            RunReport::Summary(summary) => running.summary = Some(summary),
            RunReport::Error(why, requests) => running.error = Some((why, requests)),
            RunReport::Failed(path, reason) => {
                if job.errors.len() < ERRORS_MAX {
                    job.errors.push_back((path, reason));
                }
            }
        }
    }

    /// Notes that a job's process has ended with this exit code. `None`: it was killed, or could not be started.
    pub fn ended(&mut self, name: &str, code: Option<i32>, now_ms: u64) {
        self.ledger.remove(name);
        let ticket = self.next_ticket();
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(running) = job.running.take() else { return };
        job.runs += 1;
        let (outcome, restarts) = match (running.ending, code) {
            (Some(Ending::Removed), _) => {
                self.jobs.remove(name);
                return;
            }
            (Some(Ending::Cancelled), _) => ("cancelled", false),
            (Some(Ending::Yielded), _) => ("made room for others", true),
            (None, Some(0 | 3)) => ("done", false),
            // Wrong usage, too many deletions, or no source: another run now would fail for the same reason.
            (None, Some(2 | 4 | 5)) => ("stopped", false),
            (None, _) => ("broke off", true),
        };
        if outcome == "done" {
            job.failures_in_a_row = 0;
        }
        if restarts && job.queued.is_none() {
            let delay = RESTART_DELAY_MS_MIN
                .saturating_mul(1 << job.failures_in_a_row.min(16))
                .min(RESTART_DELAY_MS_MAX);
            if outcome == "broke off" {
                job.not_before_ms = now_ms + delay;
                job.failures_in_a_row += 1;
            }
            job.queued = Some((Work::Import, ticket));
        }
        job.totals.add(outcome, running.summary.as_ref());
        let seconds = now_ms.saturating_sub(running.since_ms) as f64 / 1000.0;
        let mut last = json!({"outcome": outcome, "started_ms": running.since_ms, "seconds": seconds, "exit_code": code});
        if let Some((why, requests)) = running.error {
            job.totals.requests.add(&requests);
            last["error"] = why.into();
        }
        for (key, reported) in [("forecast", running.forecast), ("summary", running.summary)] {
            if let Some(reported) = reported {
                last[key] = Value::Object(reported);
            }
        }
        job.last = last;
    }

    /// Queues the jobs that are due. Returns the actions that the service must take now.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let set_back_ms = std::mem::replace(&mut self.ticked_ms, now_ms).saturating_sub(now_ms);
        if set_back_ms > 0 {
            self.adjust_to_earlier_clock(set_back_ms, now_ms);
        }
        self.queue_due_jobs(now_ms);
        let is_blocked = !self.grant(&mut actions);
        if !is_blocked {
            self.start(now_ms, &mut actions);
        }
        actions
    }

    /// When [`Board::tick`] must be called next, if no report, request or end of a job comes before.
    pub fn next_wake_ms(&self) -> Option<u64> {
        let due =
            self.jobs.values().filter(|job| job.is_idle() && !job.is_paused).filter_map(|job| job.due_ms);
        let delayed = self.jobs.values().filter(|job| job.queued.is_some() && job.not_before_ms > 0);
        let idle = self.jobs.values().filter(|job| job.is_idle() && !job.is_paused);
        let quiet = idle.filter_map(Job::quiet_ms);
        due.chain(delayed.map(|job| job.not_before_ms)).chain(quiet).min()
    }

    /// Adjusts all times after the clock was set back by `set_back_ms`, so that no job waits longer for that. Intervals
    /// keep their lengths, and the next time of a cron trigger is computed again.
    fn adjust_to_earlier_clock(&mut self, set_back_ms: u64, now_ms: u64) {
        let earlier = |at: &mut u64| *at = at.saturating_sub(set_back_ms);
        for job in self.jobs.values_mut() {
            earlier(&mut job.not_before_ms);
            job.last_start_ms.iter_mut().for_each(earlier);
            job.running.iter_mut().for_each(|running| earlier(&mut running.since_ms));
            job.changed_ms.iter_mut().for_each(|(first, last)| [first, last].into_iter().for_each(earlier));
            match &job.definition.trigger {
                Trigger::Cron(_) => {
                    job.due_ms = schedule::next_ms(&job.definition.trigger, None, now_ms, 0);
                }
                Trigger::Demand | Trigger::Every(_) => job.due_ms.iter_mut().for_each(earlier),
            }
        }
    }

    fn queue_due_jobs(&mut self, now_ms: u64) {
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now_ms);
        let due =
            |job: &Job| job.is_idle() && !job.is_paused && (is_due(job.due_ms) || is_due(job.quiet_ms()));
        let names: Vec<_> =
            self.jobs.iter().filter(|(_, job)| due(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let ticket = self.next_ticket();
            let job = self.jobs.get_mut(&name).expect("just seen");
            job.queued = Some((Work::Import, ticket));
            job.changed_ms = None;
        }
    }

    /// Grants memory to the jobs that requested it. Returns false when a job still waits for memory.
    fn grant(&mut self, actions: &mut Vec<Action>) -> bool {
        let mut requests: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(name, job)| {
                let (bytes, ticket) = job.running.as_ref()?.memory_request?;
                Some((-i64::from(job.definition.priority), ticket, name.clone(), bytes))
            })
            .collect();
        requests.sort();
        let waiting = requests.len();
        let mut granted = 0;
        for (_, _, name, bytes) in &requests {
            let is_alone = self.running() == 1;
            if !self.ledger.take(name, *bytes) {
                if !is_alone {
                    break;
                }
                self.ledger.force(name, *bytes);
            }
            granted += 1;
            let job = self.jobs.get_mut(name).expect("just seen");
            job.running.as_mut().expect("it has a request").memory_request = None;
            actions.push(Action::Grant(name.clone()));
        }
        if granted == 0 && waiting > 1 && waiting == self.running() {
            // All jobs wait for memory that other jobs hold. Kill the job that would be served last. It starts again
            // later.
            if let Some((_, _, name, _)) = requests.last()
                && self.jobs.get_mut(name).is_some_and(|job| job.end(Ending::Yielded))
            {
                actions.push(Action::Kill(name.clone()));
            }
        }
        granted == waiting
    }

    /// Starts queued jobs, as far as the memory and the limits allow.
    fn start(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let mut queued: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(name, job)| {
                let (work, ticket) = job.queued?;
                let may = job.running.is_none() && !job.is_paused && job.not_before_ms <= now_ms;
                may.then(|| (-i64::from(job.definition.priority), ticket, name.clone(), work))
            })
            .collect();
        queued.sort_by_key(|a| (a.0, a.1));
        for (_, _, name, work) in queued {
            if self.running() >= self.running_max {
                break;
            }
            let source = self.jobs[&name].definition.source.clone();
            let limits: Vec<_> =
                self.limits.iter().filter(|limit| source.starts_with(&limit.source)).cloned().collect();
            let busy = |limit: &SourceLimit| {
                let of =
                    |job: &&Job| job.running.is_some() && job.definition.source.starts_with(&limit.source);
                self.jobs.values().filter(of).count() >= limit.running.max(1)
            };
            // The source of this job is at a limit. Jobs of other sources may still start.
            if limits.iter().any(busy) {
                continue;
            }
            if !self.ledger.take(&name, JOB_BYTES) {
                break;
            }
            let jitter = self.jobs[&name].definition.jitter;
            let jitter = self.jitter_ms(jitter);
            let job = self.jobs.get_mut(&name).expect("just seen");
            let shared =
                limits.iter().filter_map(|limit| Some((limit.rate? / limit.running.max(1) as u64).max(1)));
            let rate = job.definition.rate.into_iter().chain(shared).min();
            (job.queued, job.not_before_ms, job.last_start_ms) = (None, 0, Some(now_ms));
            job.due_ms = schedule::next_ms(&job.definition.trigger, Some(now_ms), now_ms, jitter);
            job.running = Some(Running { since_ms: now_ms, ..Running::default() });
            job.errors.clear();
            actions.push(Action::Start(name, job.definition.arguments(work == Work::Retry, rate)));
        }
    }

    fn running(&self) -> usize {
        self.jobs.values().filter(|job| job.running.is_some()).count()
    }
}

impl Job {
    fn is_idle(&self) -> bool {
        self.running.is_none() && self.queued.is_none()
    }
    /// When a changed folder is imported: after its quiet time, or at the latest after [`QUIET_TIMES_MAX`] quiet times.
    fn quiet_ms(&self) -> Option<u64> {
        let (first, last) = self.changed_ms?;
        let quiet = u64::try_from(self.definition.watch?.as_millis()).unwrap_or(u64::MAX);
        let latest = first.saturating_add(quiet.saturating_mul(QUIET_TIMES_MAX));
        Some(last.saturating_add(quiet).min(latest))
    }
    /// Notes that the run is being ended. Returns true when its process must be killed: false when there is no run, or
    /// when the run is being ended already.
    fn end(&mut self, ending: Ending) -> bool {
        match &mut self.running {
            Some(running) if running.ending != Some(Ending::Removed) => {
                running.ending.replace(ending).is_none()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
