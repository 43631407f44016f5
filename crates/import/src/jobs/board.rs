//! [`Board`]: all jobs, and the decision which of them starts, gets memory, waits or stops next.
//!
//! A job is due by its trigger, or because somebody asked for a run. The job then waits until the ledger has
//! [`JOB_BYTES`] for it, until its source may be asked by one more job, and until fewer jobs run than may. A running job
//! asks for more memory before it reads a large document. Jobs that wait are served by priority, then by the time of
//! asking. No job overtakes another one, so a job that needs much gets its turn too. If all running jobs wait for one
//! another, the board ends the last of them. That job begins again later, at the container it was in.

mod metrics;
mod requests;
mod told;

use super::JobError;
use super::definition::Definition;
use super::ledger::{JOB_BYTES, Ledger};
use super::schedule::{self, Trigger};
use requests::RequestTotals;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of jobs.
pub const JOBS_MAX: usize = 10_000;
/// Failures of a job's last run that are kept with their reasons.
pub const ERRORS_MAX: usize = 1000;
/// The pause before a job that broke off is begun again. It doubles with each time.
const AGAIN_FIRST_MS: u64 = 1_000;
/// The longest pause before such a job is begun again.
const AGAIN_MAX_MS: u64 = 300_000;

/// A folder that does not get quiet is imported after this multiple of its job's quiet time.
pub const QUIET_TIMES_MAX: u64 = 10;

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Import what changed.
    Import,
    /// Read only the failed documents again.
    Retry,
}

/// An action that the service must take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin this job, with these words as its command.
    Start(String, Vec<String>),
    /// Tell this job that it has got the memory it asked for.
    Grant(String),
    /// Pause this job where it is.
    Stop(String),
    /// Let this job go on.
    Continue(String),
    /// End this job.
    Kill(String),
}

/// A message of a running job.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The run waits for these bytes.
    Need(u64),
    /// The run gives these bytes back.
    Free(u64),
    /// The containers that the run holds have these bytes.
    Containers(u64),
    /// The progress of the run.
    Progress(Map<String, Value>),
    /// The run's forecast.
    Forecast(Map<String, Value>),
    /// A document failed.
    Failed(String, String),
    /// The run waits for its sink.
    Waiting(String),
    /// The figures of the whole run.
    Summary(Map<String, Value>),
    /// The reason why the run had to stop, and its HTTP requests in the form of a summary (null: none).
    Error(String, Value),
}

/// The limits for all sources with a prefix: jobs at once, and bytes per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLimit {
    /// The beginning of the names of these sources.
    pub source: String,
    /// Maximum number of these jobs that run at once.
    pub running: usize,
    /// Bytes per second of all these jobs together.
    pub rate: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Running {
    since_ms: u64,
    containers: u64,
    /// The number of bytes that the run waits for, and the run's place in the queue.
    asking: Option<(u64, u64)>,
    /// The outcome of a run that was made to end.
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
    /// The run was ended to make room for others, and begins again later.
    Yielded,
}

#[derive(Clone, Debug)]
struct Job {
    definition: Definition,
    is_paused: bool,
    due_ms: Option<u64>,
    /// The work that waits to be begun, and its place in the queue.
    wanted: Option<(Work, u64)>,
    /// The earliest time at which the wanted work may begin.
    not_before_ms: u64,
    broken: u32,
    running: Option<Running>,
    last_start_ms: Option<u64>,
    last: Value,
    errors: VecDeque<(String, String)>,
    runs: u64,
    totals: Totals,
    /// The times of the first and of the last change of the job's folder since the last run that such changes made due.
    stirred: Option<(u64, u64)>,
    /// The reason why the job's folder is not watched, although it should be.
    unwatched: Option<String>,
}

/// The sums over the runs of a job.
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
    turn: u64,
    /// The time of the last [`Board::tick`].
    ticked_ms: u64,
    rng: fastrand::Rng,
}

impl Board {
    /// A board without jobs. `seed` is for the random generator of the jitter.
    pub fn new(budget: u64, running_max: usize, limits: Vec<SourceLimit>, seed: u64) -> Board {
        let rng = fastrand::Rng::with_seed(seed);
        Board {
            jobs: BTreeMap::new(),
            ledger: Ledger::new(budget),
            running_max: running_max.max(1),
            limits,
            turn: 0,
            ticked_ms: 0,
            rng,
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
    /// There are [`JOBS_MAX`] jobs, or another job fills this dataset.
    pub fn put(&mut self, definition: Definition, now_ms: u64) -> Result<(), JobError> {
        let place = |d: &Definition| (d.into.clone(), d.server.clone(), d.to.clone());
        let clash = self.jobs.values().find(|job| {
            job.definition.name != definition.name && place(&job.definition) == place(&definition)
        });
        if let Some(clash) = clash {
            return Err(JobError::Taken { job: clash.definition.name.clone(), dataset: definition.into });
        }
        let name = definition.name.clone();
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&name) {
            return Err(JobError::Full);
        }
        let jitter = self.jitter_ms(definition.jitter);
        let job = self.jobs.entry(name).or_insert_with(|| Job {
            definition: definition.clone(),
            is_paused: false,
            due_ms: None,
            wanted: None,
            not_before_ms: 0,
            broken: 0,
            running: None,
            last_start_ms: None,
            last: Value::Null,
            errors: VecDeque::new(),
            runs: 0,
            totals: Totals::default(),
            stirred: None,
            unwatched: None,
        });
        job.due_ms = schedule::next_ms(&definition.trigger, job.last_start_ms, now_ms, jitter);
        job.definition = definition;
        Ok(())
    }

    fn jitter_ms(&mut self, most: Duration) -> u64 {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX - 1);
        self.rng.u64(0..=most)
    }

    fn turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn job(&mut self, name: &str) -> Result<&mut Job, JobError> {
        self.jobs.get_mut(name).ok_or_else(|| JobError::NoJob(name.into()))
    }

    /// Asks for a run of the job now. A running job is not begun a second time. It runs again when it is done.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn run(&mut self, name: &str, work: Work) -> Result<(), JobError> {
        let turn = self.turn();
        let job = self.job(name)?;
        job.not_before_ms = 0;
        job.broken = 0;
        if job.wanted.is_none() {
            job.wanted = Some((work, turn));
        }
        Ok(())
    }

    /// Notes that the folder of the job changed. The job is due when the folder is quiet for the time in the definition,
    /// and after [`QUIET_TIMES_MAX`] times as long in any case.
    pub fn stir(&mut self, name: &str, now_ms: u64) {
        if let Some(job) = self.jobs.get_mut(name).filter(|job| job.definition.watch.is_some()) {
            job.stirred = Some((job.stirred.map_or(now_ms, |(first, _)| first), now_ms));
        }
    }

    /// Notes why the folder of the job is not watched. `None`: the folder is watched.
    pub fn watching(&mut self, name: &str, error: Option<String>) {
        if let Some(job) = self.jobs.get_mut(name) {
            job.unwatched = error;
        }
    }

    /// The jobs whose folders must be watched, with the folders.
    pub fn watched(&self) -> Vec<(String, String)> {
        let watched = self.jobs.values().map(|job| &job.definition).filter(|d| d.watch.is_some());
        watched.map(|definition| (definition.name.clone(), definition.source.clone())).collect()
    }

    /// Pauses the job's run where it is, and begins no further run.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn pause(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        let was = std::mem::replace(&mut job.is_paused, true);
        Ok(if job.running.is_some() && !was { vec![Action::Stop(name.to_owned())] } else { Vec::new() })
    }

    /// Lets the job go on.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn resume(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        let was = std::mem::replace(&mut job.is_paused, false);
        Ok(if job.running.is_some() && was { vec![Action::Continue(name.to_owned())] } else { Vec::new() })
    }

    /// Ends the job's run, and the runs that wait. What is done stays. The next run goes on from there.
    ///
    /// # Errors
    /// When there is no such job.
    pub fn cancel(&mut self, name: &str) -> Result<Vec<Action>, JobError> {
        let job = self.job(name)?;
        job.wanted = None;
        Ok(job.end(Ending::Cancelled).then(|| Action::Kill(name.to_owned())).into_iter().collect())
    }

    /// Forgets the job. Its documents stay where they are.
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

    /// Takes a message of a running job.
    pub fn report(&mut self, name: &str, report: Report) {
        let (most, turn) = (self.ledger.most(), self.turn());
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(running) = &mut job.running else { return };
        match report {
            Report::Need(bytes) => running.asking = Some((bytes.min(most), turn)),
            Report::Free(bytes) => self.ledger.give_back(name, bytes.min(most)),
            Report::Containers(bytes) => {
                self.ledger.give_back(name, running.containers);
                self.ledger.force(name, bytes);
                running.containers = bytes;
            }
            Report::Progress(progress) => {
                running.waiting = None;
                running.progress = progress;
            }
            Report::Forecast(forecast) => running.forecast = Some(forecast),
            Report::Waiting(what) => running.waiting = Some(what),
            Report::Summary(summary) => running.summary = Some(summary),
            Report::Error(why, requests) => running.error = Some((why, requests)),
            Report::Failed(path, reason) => {
                if job.errors.len() < ERRORS_MAX {
                    job.errors.push_back((path, reason));
                }
            }
        }
    }

    /// Notes that a job's process has ended with this exit code. `None`: it was killed, or did not begin.
    pub fn ended(&mut self, name: &str, code: Option<i32>, now_ms: u64) {
        self.ledger.leave(name);
        let turn = self.turn();
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(running) = job.running.take() else { return };
        job.runs += 1;
        let (outcome, is_again) = match (running.ending, code) {
            (Some(Ending::Removed), _) => {
                self.jobs.remove(name);
                return;
            }
            (Some(Ending::Cancelled), _) => ("cancelled", false),
            (Some(Ending::Yielded), _) => ("made room for others", true),
            (None, Some(0 | 3)) => ("done", false),
            // Wrong usage, too many deletions, or no source: a new run now would end in the same way.
            (None, Some(2 | 4 | 5)) => ("stopped", false),
            (None, _) => ("broke off", true),
        };
        if outcome == "done" {
            job.broken = 0;
        }
        if is_again && job.wanted.is_none() {
            let pause = AGAIN_FIRST_MS.saturating_mul(1 << job.broken.min(16)).min(AGAIN_MAX_MS);
            if outcome == "broke off" {
                job.not_before_ms = now_ms + pause;
                job.broken += 1;
            }
            job.wanted = Some((Work::Import, turn));
        }
        job.totals.add(outcome, running.summary.as_ref());
        let seconds = now_ms.saturating_sub(running.since_ms) as f64 / 1000.0;
        let mut last = json!({"outcome": outcome, "started_ms": running.since_ms, "seconds": seconds, "exit_code": code});
        if let Some((why, requests)) = running.error {
            job.totals.requests.add(&requests);
            last["error"] = why.into();
        }
        for (key, told) in [("forecast", running.forecast), ("summary", running.summary)] {
            if let Some(told) = told {
                last[key] = Value::Object(told);
            }
        }
        job.last = last;
    }

    /// Decides what must be done now.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let back_ms = std::mem::replace(&mut self.ticked_ms, now_ms).saturating_sub(now_ms);
        if back_ms > 0 {
            self.set_back(back_ms, now_ms);
        }
        self.note_due(now_ms);
        let is_blocked = !self.grant(&mut actions);
        if !is_blocked {
            self.start(now_ms, &mut actions);
        }
        actions
    }

    /// The earliest time at which [`Board::tick`] has something to do, if nothing happens before.
    pub fn wakes_ms(&self) -> Option<u64> {
        let due =
            self.jobs.values().filter(|job| job.is_idle() && !job.is_paused).filter_map(|job| job.due_ms);
        let again = self.jobs.values().filter(|job| job.wanted.is_some() && job.not_before_ms > 0);
        let stirred = self.jobs.values().filter(|job| job.is_idle() && !job.is_paused);
        let stirred = stirred.filter_map(Job::quiet_ms);
        due.chain(again.map(|job| job.not_before_ms)).chain(stirred).min()
    }

    /// Notes that the clock was set back by `back_ms`. Nothing waits longer for that: lengths of time stay as they are,
    /// and cron's fields are read anew.
    fn set_back(&mut self, back_ms: u64, now_ms: u64) {
        let earlier = |at: &mut u64| *at = at.saturating_sub(back_ms);
        for job in self.jobs.values_mut() {
            earlier(&mut job.not_before_ms);
            job.last_start_ms.iter_mut().for_each(earlier);
            job.running.iter_mut().for_each(|running| earlier(&mut running.since_ms));
            job.stirred.iter_mut().for_each(|(first, last)| [first, last].into_iter().for_each(earlier));
            match &job.definition.trigger {
                Trigger::Cron(_) => {
                    job.due_ms = schedule::next_ms(&job.definition.trigger, None, now_ms, 0);
                }
                Trigger::Demand | Trigger::Every(_) => job.due_ms.iter_mut().for_each(earlier),
            }
        }
    }

    fn note_due(&mut self, now_ms: u64) {
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now_ms);
        let due =
            |job: &Job| job.is_idle() && !job.is_paused && (is_due(job.due_ms) || is_due(job.quiet_ms()));
        let names: Vec<_> =
            self.jobs.iter().filter(|(_, job)| due(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let turn = self.turn();
            let job = self.jobs.get_mut(&name).expect("just seen");
            job.wanted = Some((Work::Import, turn));
            job.stirred = None;
        }
    }

    /// Gives memory to the jobs that ask. Returns false when a job still waits.
    fn grant(&mut self, actions: &mut Vec<Action>) -> bool {
        let mut asking: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(name, job)| {
                let (bytes, turn) = job.running.as_ref()?.asking?;
                Some((-i64::from(job.definition.priority), turn, name.clone(), bytes))
            })
            .collect();
        asking.sort();
        let waiting = asking.len();
        let mut granted = 0;
        for (_, _, name, bytes) in &asking {
            let is_alone = self.running() == 1;
            if !self.ledger.take(name, *bytes) {
                if !is_alone {
                    break;
                }
                self.ledger.force(name, *bytes);
            }
            granted += 1;
            let job = self.jobs.get_mut(name).expect("just seen");
            job.running.as_mut().expect("it asks").asking = None;
            actions.push(Action::Grant(name.clone()));
        }
        if granted == 0 && waiting > 1 && waiting == self.running() {
            // All jobs wait for memory that other jobs hold. The job that would be served last is ended, and begins
            // again later.
            if let Some((_, _, name, _)) = asking.last()
                && self.jobs.get_mut(name).is_some_and(|job| job.end(Ending::Yielded))
            {
                actions.push(Action::Kill(name.clone()));
            }
        }
        granted == waiting
    }

    /// Begins the jobs that wait and that fit.
    fn start(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let mut wanted: Vec<_> = self
            .jobs
            .iter()
            .filter_map(|(name, job)| {
                let (work, turn) = job.wanted?;
                let may = job.running.is_none() && !job.is_paused && job.not_before_ms <= now_ms;
                may.then(|| (-i64::from(job.definition.priority), turn, name.clone(), work))
            })
            .collect();
        wanted.sort_by_key(|a| (a.0, a.1));
        for (_, _, name, work) in wanted {
            if self.running() >= self.running_max {
                break;
            }
            let source = self.jobs[&name].definition.source.clone();
            let limit = self.limits.iter().find(|limit| source.starts_with(&limit.source)).cloned();
            let busy = |limit: &SourceLimit| {
                let of =
                    |job: &&Job| job.running.is_some() && job.definition.source.starts_with(&limit.source);
                self.jobs.values().filter(of).count() >= limit.running.max(1)
            };
            // The source of this job is at its limit. Jobs of other sources may still begin.
            if limit.as_ref().is_some_and(busy) {
                continue;
            }
            if !self.ledger.take(&name, JOB_BYTES) {
                break;
            }
            let jitter = self.jobs[&name].definition.jitter;
            let jitter = self.jitter_ms(jitter);
            let job = self.jobs.get_mut(&name).expect("just seen");
            let shared = limit.and_then(|limit| Some(limit.rate? / limit.running.max(1) as u64));
            let rate = job.definition.rate.into_iter().chain(shared).min();
            (job.wanted, job.not_before_ms, job.last_start_ms) = (None, 0, Some(now_ms));
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
        self.running.is_none() && self.wanted.is_none()
    }
    /// The time at which the changed folder counts as quiet, or has changed for too long.
    fn quiet_ms(&self) -> Option<u64> {
        let (first, last) = self.stirred?;
        let quiet = u64::try_from(self.definition.watch?.as_millis()).unwrap_or(u64::MAX);
        let at_last = first.saturating_add(quiet.saturating_mul(QUIET_TIMES_MAX));
        Some(last.saturating_add(quiet).min(at_last))
    }
    /// Marks the run as one that ends. Returns false when there is no run, or when it ends already.
    fn end(&mut self, ending: Ending) -> bool {
        match &mut self.running {
            Some(running) if running.ending != Some(Ending::Removed) => {
                let was = running.ending.replace(ending);
                was.is_none()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
