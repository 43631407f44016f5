//! The server's scripts and functions, the interpreters that run them, and the current runs.
//!
//! All sessions share [`Scripts`]. A script is kept under its digest. [`Routes`] records its runs and decides where
//! it runs next. Each thread keeps one interpreter for its next script, so an interpreter is never locked. Libraries of
//! functions are in [`functions`].

mod charges;
pub(crate) mod copies;
mod counts;
pub(crate) mod deferred;
pub(crate) mod functions;
pub(crate) mod run;

pub(crate) use counts::RunCounts;

use crate::config::Opt;
use crate::memory::{Charge, Memory, Purpose};
use functions::Functions;
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use strand_script::{Script, Vm};
use strand_wire::reply::ErrorText;

/// An interpreter that has grown by more bytes than this is not reused.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// The memory ledger is updated when an interpreter's size has changed by more than this, not after each run.
const CHARGE_STEP_BYTES: u64 = 64 << 10;
/// Maximum number of scripts known only from EVAL. Each further script pushes out the oldest of them. Scripts of SCRIPT
/// LOAD stay.
pub(crate) const EVAL_SCRIPTS_MAX: usize = 500;
/// Maximum number of bytes of scripts from SCRIPT LOAD.
pub(crate) const LOADED_BYTES_MAX: usize = 256 << 20;
/// After a run that was too long for a worker, this many runs of the script go directly to the lane. Then a worker
/// tries again. After a run on the lane that wrote, this many runs begin on a draft. After a run on the lane that had to
/// hold its shards, this many runs hold their shards from their beginning.
const LANE_RUNS: u32 = 64;

/// What earlier runs of a script or a function showed.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// The number of next runs that go directly to the lane.
    lane_runs: AtomicU32,
    /// The number of next runs on the lane that begin on a draft.
    drafting_runs: AtomicU32,
    /// The number of next runs on the lane that hold their shards from their beginning.
    holding_runs: AtomicU32,
    /// True when the script used an undeclared key, or all keys. It then runs with every shard held.
    needs_all_shards: AtomicBool,
}

impl Routes {
    /// True when this run should go directly to the lane.
    pub(crate) fn starts_on_lane(&self) -> bool {
        take_one(&self.lane_runs)
    }
    /// True when this run on the lane should hold its shards from its beginning.
    pub(crate) fn starts_with_shards(&self) -> bool {
        take_one(&self.holding_runs)
    }
    /// True when this run on the lane should begin on a draft.
    pub(crate) fn starts_on_draft(&self) -> bool {
        take_one(&self.drafting_runs)
    }
    pub(crate) fn record_write(&self) {
        self.drafting_runs.store(LANE_RUNS, Relaxed);
    }
    pub(crate) fn record_shard_need(&self) {
        self.holding_runs.store(LANE_RUNS, Relaxed);
    }
    pub(crate) fn record_long_run(&self) {
        self.lane_runs.store(LANE_RUNS, Relaxed);
    }
    pub(crate) fn needs_all_shards(&self) -> bool {
        self.needs_all_shards.load(Relaxed)
    }
    pub(crate) fn record_all_shards_need(&self) {
        self.needs_all_shards.store(true, Relaxed);
    }
}

/// Takes one run from `runs`. False when `runs` is 0.
fn take_one(runs: &AtomicU32) -> bool {
    let left = runs.load(Relaxed);
    if left > 0 {
        runs.store(left - 1, Relaxed);
    }
    left > 0
}

/// A script in the cache, and where its runs go.
#[derive(Debug)]
pub(crate) struct CachedScript {
    pub(crate) script: Script,
    pub(crate) routes: Routes,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<String, (Arc<CachedScript>, bool), ahash::RandomState>,
    /// Digests of the scripts known only from EVAL, oldest first.
    by_eval: VecDeque<String>,
    loaded_bytes: usize,
    bytes: usize,
}

/// A script or function that runs on a helper thread.
#[derive(Debug)]
pub(crate) struct Running {
    /// The script's digest or the function's name.
    pub(crate) name: String,
    /// The command and its arguments.
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) is_function: bool,
    pub(crate) began_us: u64,
    /// Whether the run has written, or must end.
    pub(crate) fate: Fate,
    /// Clients that need the run's keys get BUSY.
    pub(crate) is_busy: AtomicBool,
    /// True when the run has written to a draft, whose changes have not taken effect.
    pub(crate) has_draft: AtomicBool,
}

/// Whether a run has written or was killed. A run is never both: a killed run must not begin to write, and a run that has
/// written is not killed.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicU8);

/// The run has written nothing, and may go on.
const READING: u8 = 0;
const WROTE: u8 = 1;
/// SCRIPT KILL or FUNCTION KILL came before the first write.
const KILLED: u8 = 2;

impl Fate {
    /// True when the run must end.
    pub(crate) fn is_killed(&self) -> bool {
        self.0.load(Relaxed) == KILLED
    }
    /// Notes that the run is about to write. False: the run was killed, and must not write.
    pub(crate) fn begin_write(&self) -> bool {
        self.0.compare_exchange(READING, WROTE, Relaxed, Relaxed) != Err(KILLED)
    }
    /// Ends the run at its next check. False: the run has written.
    fn kill(&self) -> bool {
        self.0.compare_exchange(READING, KILLED, Relaxed, Relaxed) != Err(WROTE)
    }
    /// Notes that all writes of the run were undone.
    pub(crate) fn forget_writes(&self) {
        let _ = self.0.compare_exchange(WROTE, READING, Relaxed, Relaxed);
    }
}

/// The scripting state that all sessions share.
pub(crate) struct Scripts {
    cache: RwLock<Cache>,
    pub(crate) functions: RwLock<Arc<Functions>>,
    /// The number of calls of SCRIPT FLUSH. An interpreter that has seen fewer drops its compiled scripts.
    flushes: AtomicU64,
    running: Mutex<Vec<Arc<Running>>>,
    /// True when SHUTDOWN was requested. All runs stop.
    pub(crate) stopping: AtomicBool,
    /// Set by DEBUG SET-DISABLE-DENY-SCRIPTS.
    pub(crate) deny_is_disabled: AtomicBool,
    memory: Arc<Memory>,
}

/// An interpreter, and the state of the server's scripts at its last update.
pub(crate) struct Interpreter {
    pub(crate) vm: Vm,
    flushes: u64,
    functions_version: u64,
    /// The memory ledger of the server to which the interpreter belongs, because a test may have several servers on
    /// one thread.
    memory: Arc<Memory>,
    charged_bytes: u64,
    charge: Charge,
}

impl Interpreter {
    /// The bytes of the interpreter in the memory ledger, as of the end of its last run.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }
}

thread_local! {
    /// The interpreter of this thread while no script runs here.
    static IDLE: Cell<Option<Box<Interpreter>>> = const { Cell::new(None) };
}

/// The error when a script is not kept.
pub(crate) const TOO_MANY: &str = "ERR too many bytes of scripts are loaded: SCRIPT FLUSH makes room";

impl Scripts {
    pub(crate) fn new(memory: Arc<Memory>) -> Scripts {
        Scripts {
            cache: RwLock::default(),
            functions: RwLock::default(),
            flushes: AtomicU64::new(0),
            running: Mutex::default(),
            stopping: AtomicBool::new(false),
            deny_is_disabled: AtomicBool::new(false),
            memory,
        }
    }
    /// The script with this digest in upper or lower case.
    pub(crate) fn find(&self, sha: &[u8]) -> Option<Arc<CachedScript>> {
        let cache = self.cache.read();
        let sha = std::str::from_utf8(sha).ok()?;
        if let Some((known, _)) = cache.scripts.get(sha) {
            return Some(known.clone());
        }
        cache.scripts.get(&sha.to_ascii_lowercase()).map(|(known, _)| known.clone())
    }
    /// Keeps a script that compiles. `loaded`: it comes from SCRIPT LOAD.
    ///
    /// # Errors
    /// When the scripts of SCRIPT LOAD have too many bytes.
    pub(crate) fn keep(&self, script: Script, loaded: bool) -> Result<Arc<CachedScript>, ErrorText> {
        let mut cache = self.cache.write();
        let (sha, bytes) = (script.sha.clone(), script.heap_bytes());
        let loaded_bytes = cache.loaded_bytes;
        if let Some((known, was_loaded)) = cache.scripts.get_mut(&sha) {
            let known = known.clone();
            if loaded && !*was_loaded {
                if loaded_bytes + bytes > LOADED_BYTES_MAX {
                    return Err(TOO_MANY.into());
                }
                *was_loaded = true;
                cache.loaded_bytes += bytes;
                cache.by_eval.retain(|other| *other != sha);
            }
            return Ok(known);
        }
        if loaded && loaded_bytes + bytes > LOADED_BYTES_MAX {
            return Err(TOO_MANY.into());
        }
        let known = Arc::new(CachedScript { script, routes: Routes::default() });
        cache.scripts.insert(sha.clone(), (known.clone(), loaded));
        cache.bytes += bytes;
        if loaded {
            cache.loaded_bytes += bytes;
            return Ok(known);
        }
        cache.by_eval.push_back(sha);
        if cache.by_eval.len() > EVAL_SCRIPTS_MAX
            && let Some(oldest) = cache.by_eval.pop_front()
            && let Some((gone, _)) = cache.scripts.remove(&oldest)
        {
            cache.bytes -= gone.script.heap_bytes();
        }
        Ok(known)
    }
    /// SCRIPT FLUSH. Returns the memory to free.
    pub(crate) fn flush(&self) -> Box<dyn Send> {
        self.flushes.fetch_add(1, Relaxed);
        strand_script::reset_cjson();
        let cache = std::mem::take(&mut *self.cache.write());
        Box::new(cache)
    }
    /// The number of kept scripts and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let cache = self.cache.read();
        (cache.scripts.len(), cache.bytes)
    }

    /// This thread's interpreter, or a new one.
    ///
    /// # Errors
    /// When there is no memory for one.
    pub(crate) fn take_interpreter(&self) -> Result<Box<Interpreter>, ErrorText> {
        let idle = IDLE.take().filter(|idle| Arc::ptr_eq(&idle.memory, &self.memory));
        let mut taken = match idle {
            Some(idle) => idle,
            None => self.new_interpreter()?,
        };
        let flushes = self.flushes.load(Relaxed);
        if taken.flushes != flushes {
            taken.vm.forget_scripts();
            taken.flushes = flushes;
        }
        let functions = self.functions.read();
        if taken.functions_version != functions.version() {
            taken.vm.retain_libraries(|library| functions.has(library));
            taken.functions_version = functions.version();
        }
        drop(functions);
        Ok(taken)
    }
    fn new_interpreter(&self) -> Result<Box<Interpreter>, ErrorText> {
        let vm = Vm::new().map_err(|why| format!("ERR no interpreter for the script: {why}"))?;
        let charged_bytes = vm.used_bytes() as u64;
        let charge = Charge::new(&self.memory, Purpose::Scripts, charged_bytes);
        let (flushes, functions_version) = (self.flushes.load(Relaxed), self.functions.read().version());
        let memory = self.memory.clone();
        Ok(Box::new(Interpreter { vm, flushes, functions_version, memory, charged_bytes, charge }))
    }
    /// Keeps an interpreter for this thread's next script, unless it has grown too much.
    pub(crate) fn return_interpreter(&self, mut given: Box<Interpreter>) {
        if given.vm.grown_bytes() > KEPT_BYTES_MAX {
            return;
        }
        let bytes = given.vm.used_bytes() as u64;
        if bytes.abs_diff(given.charged_bytes) > CHARGE_STEP_BYTES {
            given.charge = Charge::new(&self.memory, Purpose::Scripts, bytes);
            given.charged_bytes = bytes;
        }
        IDLE.set(Some(given));
    }

    /// Registers a run on a helper thread.
    pub(crate) fn begin_run(&self, running: Running) -> Arc<Running> {
        let running = Arc::new(running);
        self.running.lock().push(running.clone());
        running
    }
    pub(crate) fn end_run(&self, run: &Arc<Running>) {
        self.running.lock().retain(|running| !Arc::ptr_eq(running, run));
    }
    /// True while a run is on a helper thread.
    pub(crate) fn is_any_running(&self) -> bool {
        !self.running.lock().is_empty()
    }
    /// The runs whose keys other clients wait for in vain: they get BUSY.
    pub(crate) fn busy(&self) -> Vec<Arc<Running>> {
        self.running.lock().iter().filter(|run| run.is_busy.load(Relaxed)).cloned().collect()
    }
    /// True while a run that began at most `recent_us` before `now_us` has written to a draft. This run may soon be done.
    pub(crate) fn has_recent_draft(&self, now_us: u64, recent_us: u64) -> bool {
        let is_recent = |run: &Running| now_us.saturating_sub(run.began_us) <= recent_us;
        self.running.lock().iter().any(|run| run.has_draft.load(Relaxed) && is_recent(run))
    }
    /// The run that has lasted longest so far.
    pub(crate) fn longest(&self) -> Option<Arc<Running>> {
        self.running.lock().iter().min_by_key(|running| running.began_us).cloned()
    }
    /// SCRIPT KILL and FUNCTION KILL: stops every run of the kind that has written nothing.
    ///
    /// # Errors
    /// redis-server's text when no run can be stopped.
    pub(crate) fn kill(&self, functions: bool) -> Result<(), ErrorText> {
        let running = self.running.lock();
        if running.is_empty() {
            return Err("NOTBUSY No scripts in execution right now.".into());
        }
        let killed = running.iter().filter(|run| run.is_function == functions && run.fate.kill()).count();
        if killed > 0 {
            return Ok(());
        }
        if running.iter().any(|run| run.is_function == functions) {
            return Err(UNKILLABLE.into());
        }
        Err(busy_text(!functions).into())
    }
}

impl crate::Engine {
    /// `busy-reply-threshold` in microseconds. 0: no script is ever busy.
    pub(crate) fn busy_threshold_us(&self) -> u64 {
        self.config.number(Opt::BusyReplyThreshold).max(0) as u64 * 1_000
    }
}

const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
                          wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";

/// redis-server's error while a script runs for long.
pub(crate) fn busy_text(is_function: bool) -> &'static str {
    if is_function {
        "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
    } else {
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        Script::new(text.as_bytes()).expect("a script")
    }

    #[test]
    fn scripts_of_eval_go_and_those_of_load_stay() {
        let scripts = Scripts::new(Arc::new(Memory::new(0)));
        let loaded = scripts.keep(script("return 'loaded'"), true).expect("room").script.sha.clone();
        let first = scripts.keep(script("return 'first'"), false).expect("room").script.sha.clone();
        for i in 0..EVAL_SCRIPTS_MAX {
            scripts.keep(script(&format!("return {i}")), false).expect("room");
        }
        assert!(scripts.find(loaded.to_ascii_uppercase().as_bytes()).is_some());
        assert!(scripts.find(first.as_bytes()).is_none());
        assert_eq!(scripts.size().0, EVAL_SCRIPTS_MAX + 1);
        drop(scripts.flush());
        assert_eq!(scripts.size(), (0, 0));
        let huge = "x".repeat(LOADED_BYTES_MAX);
        assert!(scripts.keep(script(&huge), true).is_err());
    }

    #[test]
    fn a_long_script_goes_to_the_lane_for_a_while() {
        let routes = Routes::default();
        assert!(!routes.starts_on_lane());
        routes.record_long_run();
        assert_eq!((0..1000).filter(|_| routes.starts_on_lane()).count(), LANE_RUNS as usize);
    }

    #[test]
    fn only_what_has_written_nothing_is_killed() {
        let scripts = Scripts::new(Arc::new(Memory::new(0)));
        let text = |done: Result<(), ErrorText>| String::from_utf8(done.expect_err("no")).expect("text");
        assert!(text(scripts.kill(false)).starts_with("NOTBUSY"));
        let run = scripts.begin_run(Running {
            name: "x".into(),
            command: Vec::new(),
            is_function: false,
            began_us: 1,
            fate: Fate::default(),
            is_busy: AtomicBool::new(false),
            has_draft: AtomicBool::default(),
        });
        assert!(run.fate.begin_write());
        assert!(text(scripts.kill(false)).starts_with("UNKILLABLE"));
        assert!(text(scripts.kill(true)).contains("SCRIPT KILL"));
        run.fate.forget_writes();
        assert!(scripts.kill(false).is_ok() && run.fate.is_killed() && !run.fate.begin_write());
        scripts.end_run(&run);
        assert!(scripts.longest().is_none());
    }
}
