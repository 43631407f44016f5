//! What the engine is told and lent by the driver: times, facts, and the [`Host`] with everything that needs the outside.

use crate::Config;
use crate::folder::Folder;
use std::io::{self, Read, Write};
use std::sync::Arc;
use strand_commands::call::{LaneCall, ServiceOutcome};
use strand_commands::spec::ServiceCommand;
use strand_diag::history::Figure;

/// The time, read by the driver once a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since 1970.
    pub unix_us: i64,
    /// Microseconds of a clock that never goes back (any origin).
    pub mono_us: u64,
}

impl Now {
    /// Milliseconds since 1970.
    pub fn unix_ms(&self) -> i64 {
        self.unix_us.div_euclid(1000)
    }
    /// Seconds since 1970.
    pub fn unix_s(&self) -> i64 {
        self.unix_us.div_euclid(1_000_000)
    }
}

/// What DIAG PROFILE asks for. `folded`: as text with a line for each stack, and not in the form of pprof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileAsk {
    /// Memory that is in use, by where it was asked for.
    Heap {
        /// See the type.
        folded: bool,
    },
    /// All memory that was ever asked for.
    Allocs {
        /// See the type.
        folded: bool,
    },
    /// Begin to sample processor time; the answer is the number of the profile.
    CpuStart {
        /// How long the client means to wait.
        seconds: u64,
    },
    /// End it; the answer is the profile.
    CpuStop {
        /// Its number.
        id: u64,
        /// See the type.
        folded: bool,
    },
}

/// A file that is open for reading, and its length in bytes.
pub type OpenedFile = (Box<dyn Read + Send>, u64);

/// Writes a file.
pub type WriteFile<'w> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'w;

/// What the driver does for the engine. Called from worker and helper threads alike; must not block, except
/// [`Host::reload_tls`], [`Host::change_dir`], [`Host::rewrite_config`] and those of the ACL file, which run on a helper thread only, and
/// [`Host::run_service`] where the call's place is one.
pub trait Host: Send + Sync {
    /// Runs a command of a service outside the engine (search): on a helper thread, or where its row says that its cost is
    /// in a text ([`strand_commands::cost::Cost::Text`]) on the worker first.
    fn run_service(&self, command: ServiceCommand, call: &mut LaneCall<'_>) -> ServiceOutcome;
    /// The commands that make what the services have (indexes, sets of patterns) again. On a thread that may be slow.
    fn definitions(&self, now_ms: i64) -> Vec<Vec<Vec<u8>>> {
        let _ = now_ms;
        Vec::new()
    }
    /// A client is gone that has used a service.
    fn client_gone(&self, client: u64) {
        let _ = client;
    }
    /// What the allocator says.
    fn memory(&self) -> MemoryFacts;
    /// Of that, what the allocator has given out: asked for up to some hundred times a second.
    fn allocated_bytes(&self) -> u64 {
        self.memory().used_bytes
    }
    /// Gives freed pages back to the system at once; on a helper thread.
    fn purge_memory(&self) {}
    /// The allocator's own report; on a helper thread.
    fn allocator_report(&self) -> String {
        String::new()
    }
    /// What the services hold.
    fn service_memory(&self) -> ServiceMemory {
        ServiceMemory::default()
    }
    /// How sockets are driven: `epoll`, `io_uring`, or both.
    fn multiplexing_api(&self) -> &'static str {
        "epoll"
    }
    /// The time on the clock of [`Now::mono_us`], read now.
    fn mono_us(&self) -> u64 {
        0
    }
    /// The same in nanoseconds: asked where one command ends and another begins.
    fn mono_ns(&self) -> u64 {
        self.mono_us() * 1000
    }
    /// The time, read now.
    fn now(&self) -> Now {
        Now { unix_us: 0, mono_us: self.mono_us() }
    }
    /// Ends the process at once, with this line in the log: what it has promised it cannot keep.
    fn die(&self, text: &str) {
        self.log(text);
    }
    /// Opens the folder `name` of the working folder for the append-only file `file`, and makes the folder where it is not
    /// there; `None`: the host keeps no files. On a thread that may be slow.
    ///
    /// # Errors
    /// Those of the system; also when another server has it.
    fn open_folder(&self, name: &str, file: &str) -> io::Result<Option<Arc<dyn Folder>>> {
        let _ = (name, file);
        Ok(None)
    }
    /// What the system says of the process and of the machine, for the history; on a thread that may be slow.
    fn system_figures(&self) -> Vec<Figure> {
        Vec::new()
    }
    /// What the system says of the process and of the machine, in its own words: names and texts. On a thread that may be slow.
    fn system_report(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Takes a profile, or begins or ends one; the bytes of the answer. On a thread that may be slow.
    ///
    /// # Errors
    /// An error reply.
    fn profile(&self, ask: ProfileAsk) -> Result<Vec<u8>, String> {
        let _ = ask;
        Err("ERR this host takes no profiles".into())
    }
    /// Samples allocations from now on, or no more.
    fn sample_heap(&self, on: bool) {
        let _ = on;
    }
    /// The newest lines of the log.
    fn log_tail(&self) -> Vec<u8> {
        Vec::new()
    }
    /// What of the system's settings was found wanting at the start: rule, what is so, what to do.
    fn start_checks(&self) -> Vec<(&'static str, String, String)> {
        Vec::new()
    }
    /// Where a worker's thread is, as the system says it, for a line of the log; empty where it does not.
    fn worker_place(&self, worker: usize) -> String {
        let _ = worker;
        String::new()
    }
    /// Processor time used so far.
    fn cpu(&self) -> CpuFacts;
    /// SHUTDOWN was asked for: stop gracefully.
    fn shutdown(&self, request: ShutdownRequest);
    /// More `INFO search` lines: (name, value).
    fn info_search(&self) -> Vec<(String, String)>;
    /// Drop this on a helper thread: freeing it takes a while.
    fn reclaim(&self, garbage: Box<dyn Send>);
    /// `redis.log` of a script: level 0 (debug) to 3 (warning).
    fn script_logs(&self, level: i64, text: &[u8]) {
        let _ = (level, text);
    }
    /// How many clients the system allows when so many are wanted.
    fn clients_max(&self, wanted: usize) -> usize {
        wanted
    }
    /// CONFIG SET changed this option: whoever acts on it outside the engine (logging, sockets) looks at it again.
    fn config_changed(&self, name: &str) {
        let _ = name;
    }
    /// CONFIG SET gave `tls-*` options other values: use them from now on. Reads files; on a helper thread.
    ///
    /// # Errors
    /// Why they cannot be used, for the log: those before are still in use.
    fn reload_tls(&self, config: &Config) -> Result<(), String> {
        let _ = config;
        Ok(())
    }
    /// CONFIG SET dir: make this the working folder; what it is then, whole. On a helper thread.
    ///
    /// # Errors
    /// Why not, as the system says it.
    fn change_dir(&self, path: &[u8]) -> Result<Vec<u8>, String> {
        Ok(path.into())
    }
    /// Somebody could not log in: for the log, in which no peer can leave as many lines as it likes. `user` is who it wanted to
    /// be, if there is such a user: what is typed in place of a name may be a password.
    fn login_failed(&self, peer: &PeerInfo, user: Option<&[u8]>) {
        let _ = (peer, user);
    }
    /// Fills `bytes` with randomness that nobody can guess.
    ///
    /// # Errors
    /// When the system has none.
    fn random_bytes(&self, bytes: &mut [u8]) -> Result<(), String>;
    /// Reads the ACL file; on a helper thread, or before anybody is served.
    ///
    /// # Errors
    /// Why it could not be read, as the system says it.
    fn read_acl_file(&self, path: &str) -> Result<Vec<u8>, String>;
    /// Puts what `text` gives in the place of the ACL file, in one step; on a helper thread. Of several at a time each asks
    /// for the text when its turn has come, so that the last one to write has the newest.
    ///
    /// # Errors
    /// Why it could not be written, for the log.
    fn write_acl_file(&self, path: &str, text: &dyn Fn() -> Vec<u8>) -> Result<(), String>;
    /// A line for the log.
    fn log(&self, text: &str) {
        let _ = text;
    }
    /// Runs `work` on a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<(), String> {
        let _ = name;
        work();
        Ok(())
    }
    /// For threads that may be slow: what they wait at for each other.
    fn signal(&self) -> Box<dyn Signal>;
    /// Lets others have the processor; on a thread that may be slow.
    fn yield_now(&self) {}
    /// Waits; on a thread that may be slow.
    fn nap_us(&self, us: u64) {
        let _ = us;
    }
    /// Puts what `write` writes in the place of the file `name` of the working folder, in one step and once it is on the disk;
    /// `in_parts`: what is written goes to the disk now and then, so that not all of it is left for the end. On a thread that
    /// may be slow.
    ///
    /// # Errors
    /// Why not, for the log: the file is as it was before.
    fn replace_file(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> Result<(), String> {
        let _ = (name, in_parts, write);
        Err("the host keeps no files".into())
    }
    /// Opens the file `name` of the working folder, and tells its length; `None` when it is not there.
    ///
    /// # Errors
    /// Why not, as the system says it.
    fn open_file(&self, name: &str) -> Result<Option<OpenedFile>, String> {
        let _ = name;
        Ok(None)
    }
    /// CONFIG REWRITE: read the configuration file, pass its text to `edit`, put what it returns in its place.
    ///
    /// # Errors
    /// Why it could not be written, as the client shall see it.
    fn rewrite_config(&self, edit: &dyn Fn(&str) -> String) -> Result<(), String> {
        let _ = edit;
        Err("the host keeps no configuration file".into())
    }
}

/// Memory as the allocator and the kernel see it, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    /// Allocated by the program.
    pub used_bytes: u64,
    /// In pages the allocator holds active.
    pub active_bytes: u64,
    /// Resident pages of the allocator.
    pub resident_bytes: u64,
    /// Resident set of the process.
    pub rss_bytes: u64,
    /// Physical memory of the machine (or its cgroup).
    pub system_bytes: u64,
}

/// What the services outside the engine hold, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceMemory {
    /// Text indexes.
    pub indexes_bytes: u64,
    /// What is kept only to be fast.
    pub caches_bytes: u64,
}

/// Processor time in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuFacts {
    /// In the kernel.
    pub system_us: u64,
    /// In user mode.
    pub user_us: u64,
}

/// SHUTDOWN's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// `NOW`: do not wait for anybody.
    pub now: bool,
    /// `FORCE`: stop whatever fails.
    pub force: bool,
    /// `SAVE`: save whatever the configuration says.
    pub save: bool,
    /// `NOSAVE`: do not save.
    pub nosave: bool,
}

/// Facts about the process that do not change.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// Process id.
    pub pid: u32,
    /// Seed of the 40 hexadecimal digits of `run_id`.
    pub run_id_seed: u64,
    /// Path of the binary.
    pub executable: String,
    /// Path of the configuration file; empty when there is none.
    pub config_file: String,
    /// `uname`'s "sysname release machine".
    pub os: String,
    /// Worker threads.
    pub workers: usize,
    /// The allocator's name and version, as `INFO memory` shows it.
    pub allocator: String,
}

/// How requests and replies are told apart on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// They follow each other, in RESP; requests may be plain lines too.
    #[default]
    Resp,
    /// Each is in a frame of its own (`strand_wire::pack4`), in RESP again.
    Pack4,
}

/// Who is at the other end of a session.
#[derive(Clone, Debug, Default)]
pub struct PeerInfo {
    /// `ip:port` of the peer, as CLIENT LIST shows it (`[v6]:port`).
    pub addr: String,
    /// `ip:port` of our end.
    pub laddr: String,
    /// The socket's descriptor number, for CLIENT LIST only.
    pub fd: i32,
    /// The worker that serves it.
    pub worker: usize,
    /// True when the peer is on this machine (loopback or unix socket).
    pub local: bool,
    /// How it speaks.
    pub framing: Framing,
}

/// Wakes the task that drives a session; called from any thread, any number of times. The task then calls
/// [`crate::Session::run`], whatever it was waiting for.
pub trait Wake: Send + Sync {
    /// Wakes it.
    fn wake(&self);
}

/// Where threads that may be slow wait for a change that another thread makes. Who waits reads [`Signal::changes`], looks whether
/// what it waits for is there, and only then waits: no change in between is missed.
pub trait Signal: Send + Sync {
    /// How many changes there were.
    fn changes(&self) -> u64;
    /// Waits until there were more changes than `seen`, for so long at most; false: the time is over.
    fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool;
    /// Something has changed.
    fn tell(&self);
}
