//! `strand jobs serve`: runs imports as processes. The [`Board`] of `strand_import::jobs` decides which run starts,
//! waits or stops.
//!
//! A run of a job is a process of this program (`strand import --supervised`). The memory of a run is freed with its
//! process. A run can be stopped and killed at any moment, and its records stay. A run reports its progress as lines
//! of JSON on its standard output, and waits for `grant` on its standard input before it reads a large document. The
//! run ends when its standard input ends. [`watching`] notices when a folder changes. [`http`] is the interface for
//! users, [`client`] its client side, and [`config`] the file.

pub mod client;
pub mod config;
mod error;
mod http;
mod process;
mod watching;

use config::Config;
pub use error::ServiceError;
use process::Process;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strand_import::jobs::{Action, Board, RunReport};

/// Maximum sleep of the service.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Name of the file in the state folder that has the jobs' state.
const STATE_FILE: &str = "jobs.json";
/// The name of the state until all of it is on the disk.
const STATE_FILE_NEW: &str = "jobs.json.new";

/// The service behind `strand jobs serve`.
pub struct Service {
    state: Mutex<State>,
    changed: Condvar,
    folder: PathBuf,
    binary: PathBuf,
    token: Option<String>,
}

struct State {
    board: Board,
    processes: BTreeMap<String, Process>,
    /// Names of the jobs that the definitions file defines.
    fixed: BTreeSet<String>,
    /// The watched jobs: name and source of each job.
    watched: BTreeSet<(String, String)>,
    is_dirty: bool,
    /// Why the state could not be saved last time.
    save_error: Option<String>,
}

/// Runs the service until the process is ended.
///
/// # Errors
/// When the file, the folder or the address cannot be used.
pub fn serve(path: &Path) -> Result<(), ServiceError> {
    let config = Config::read(path)?;
    let folder = config.state.clone();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| ServiceError::File { path, error }
    };
    std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let lock = std::fs::File::create(folder.join("lock")).map_err(failed(&folder.join("lock")))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ServiceError::Busy { folder }),
        Err(TryLockError::Error(error)) => {
            return Err(ServiceError::File { path: folder.join("lock"), error });
        }
    }
    let now = now_ms();
    let mut board = Board::new(config.memory, config.running, config.limits, now);
    let mut fixed = BTreeSet::new();
    for definition in config.jobs {
        fixed.insert(definition.name.clone());
        board.put(definition, now)?;
    }
    let state_file = folder.join(STATE_FILE);
    match std::fs::read(&state_file) {
        Ok(saved) => {
            let refused = |error| ServiceError::State { path: state_file.clone(), error };
            let saved: Value = serde_json::from_slice(&saved).map_err(refused)?;
            let was_fixed: BTreeSet<String> = saved["fixed"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|n| n.as_str().map(str::to_owned))
                .collect();
            // Jobs that were removed from the file are dropped. Jobs added by HTTP stay.
            let restored = board.restore(&saved, |definition| !was_fixed.contains(&definition.name), now);
            let problems =
                restored.map_err(|error| refused(serde_json::Error::io(std::io::Error::other(error))))?;
            for problem in problems {
                say!("strand jobs: {problem}; it stays in {}", state_file.display());
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&state_file)(error)),
    }
    let binary = std::env::current_exe().map_err(ServiceError::Program)?;
    let state = State {
        board,
        processes: BTreeMap::new(),
        fixed,
        watched: BTreeSet::new(),
        is_dirty: true,
        save_error: None,
    };
    let service = Arc::new(Service {
        state: Mutex::new(state),
        changed: Condvar::new(),
        folder,
        binary,
        token: config.token,
    });
    let door = http::open(&config.listen, service.clone())?;
    say!("strand jobs: listening at http://{door}/v1/jobs, jobs: {}", service.lock().board.names().len());
    service.run();
    drop(lock);
    Ok(())
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Service {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics that holds it")
    }

    /// Carries out the board's decisions until the process ends.
    fn run(self: &Arc<Self>) {
        let mut state = self.lock();
        self.watch(&mut state);
        loop {
            let now = now_ms();
            let actions = state.board.tick(now);
            if !actions.is_empty() {
                self.apply(&mut state, actions);
                continue;
            }
            // The next turn tries again.
            let _ = self.save(&mut state);
            let wakes = state.board.next_wake_ms().filter(|at| *at > now);
            let sleep = wakes.map_or(SLEEP_MAX, |at| Duration::from_millis(at - now).min(SLEEP_MAX));
            state = self.changed.wait_timeout(state, sleep).expect("nothing panics that holds it").0;
        }
    }

    fn apply(self: &Arc<Self>, state: &mut State, actions: Vec<Action>) {
        for action in actions {
            state.is_dirty = true;
            match action {
                Action::Start(name, words) => {
                    match Process::start(&self.binary, &words, name.clone(), self.clone()) {
                        Ok(process) => drop(state.processes.insert(name, process)),
                        Err(error) => {
                            let why = format!("cannot start the process of the run: {error}");
                            state.board.report(&name, RunReport::Error(why, Value::Null));
                            state.board.ended(&name, None, now_ms());
                        }
                    }
                }
                Action::Grant(name) => state.with(&name, Process::grant),
                Action::Stop(name) => state.with(&name, Process::stop),
                Action::Continue(name) => state.with(&name, Process::resume),
                Action::Kill(name) => state.with(&name, Process::kill),
            }
        }
    }

    /// Handles a report of a job's process.
    fn report(&self, name: &str, report: RunReport) {
        self.lock().board.report(name, report);
        self.changed.notify_all();
    }

    /// Handles the end of a job's process.
    fn run_ended(&self, name: &str, code: Option<i32>) {
        let mut state = self.lock();
        state.processes.remove(name);
        state.board.ended(name, code, now_ms());
        state.is_dirty = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Writes the persistent state, if anything changed. After a failure, prints the error, if it is another than the
    /// last one, and keeps the state marked as changed, so the next call tries again.
    ///
    /// # Errors
    /// The state is not saved. The text says why.
    fn save(&self, state: &mut State) -> Result<(), String> {
        if !std::mem::take(&mut state.is_dirty) {
            return Ok(());
        }
        let mut saved = state.board.save();
        saved["fixed"] = state.fixed.iter().cloned().collect();
        // A fixed name, so that a service that is killed leaves at most one such file. The state may have passwords.
        let (new, path) = (self.folder.join(STATE_FILE_NEW), self.folder.join(STATE_FILE));
        let written = || -> std::io::Result<()> {
            let mut options = std::fs::File::options();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(saved.to_string().as_bytes())?;
            file.sync_data()?;
            std::fs::rename(&new, &path)
        };
        let result =
            written().map_err(|error| format!("cannot write {}, trying again: {error}", path.display()));
        state.is_dirty = result.is_err();
        if let Err(why) = &result
            && state.save_error.as_ref() != Some(why)
        {
            say!("strand jobs: {why}");
        }
        state.save_error = result.clone().err();
        result
    }
}

impl State {
    fn with(&mut self, name: &str, act: impl FnOnce(&mut Process)) {
        if let Some(process) = self.processes.get_mut(name) {
            act(process);
        }
    }
}
