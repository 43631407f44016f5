//! The driver's side of the engine: the time, facts about the process and the peer, and [`Host`], the services that
//! need the system.

use crate::folder::Folder;
use crate::{Config, NoProfile};
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use strand_commands::call::{LaneCall, ServiceOutcome, ServiceRun};
use strand_diag::history::Figure;

/// The time, read by the driver once per turn.
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
    /// Microseconds since 1970 at a later moment, which [`Now::mono_us`]'s clock shows as `mono_us`.
    pub(crate) fn unix_us_at(&self, mono_us: u64) -> i64 {
        self.unix_us + mono_us.saturating_sub(self.mono_us) as i64
    }
    /// Seconds since 1970.
    pub fn unix_s(&self) -> i64 {
        self.unix_us.div_euclid(1_000_000)
    }
}

/// The request of DIAG PROFILE. `folded` selects text with one line per stack; otherwise the profile has pprof's
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileRequest {
    /// Memory in use, by the place that allocated it.
    Heap {
        /// True: folded text. False: pprof.
        folded: bool,
    },
    /// All allocations since the start, also the freed ones.
    Allocs {
        /// True: folded text. False: pprof.
        folded: bool,
    },
    /// Starts to sample processor time. The answer is the number of the profile.
    CpuStart {
        /// The duration that the client plans, in seconds.
        seconds: u64,
    },
    /// Stops the sampling. The answer is the profile.
    CpuStop {
        /// The number from [`ProfileRequest::CpuStart`].
        id: u64,
        /// True: folded text. False: pprof.
        folded: bool,
    },
}

/// A file that is open for reading, and its length in bytes.
pub type OpenedFile = (Box<dyn Read + Send>, u64);

/// A function that writes the content of a file.
pub type WriteFile<'w> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'w;

/// How this server connects to its primary.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'a> {
    /// The primary's host name or address.
    pub host: &'a str,
    /// The primary's port.
    pub port: u16,
    /// The connection uses TLS (`tls-replication`).
    pub tls: bool,
    /// The address that the connection comes from (`bind-source-addr`). `None`: the system chooses.
    pub source: Option<IpAddr>,
    /// Limits the connection's beginning, and each write.
    pub timeout: Duration,
}

/// A connection to another server.
pub trait Link: Read + Write + Send {
    /// Limits the time of a read. A read that takes longer fails with `WouldBlock` or `TimedOut`.
    ///
    /// # Errors
    /// The system's error.
    fn set_read_timeout(&self, time: Duration) -> io::Result<()>;
    /// The other server, for CLIENT LIST.
    fn peer(&self) -> PeerInfo {
        PeerInfo::default()
    }
}

/// A file without a name, which is gone when this is dropped. Any number of threads may read it.
pub trait ScratchFile: Send + Sync {
    /// The file's length in bytes.
    fn bytes(&self) -> u64;
    /// Reads bytes from offset `at` on, and returns their number. 0: the file ends there. May block.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, target: &mut [u8], at: u64) -> io::Result<usize>;
}

/// What the driver does for the engine. Worker and helper threads call these methods. A method must not block, except
/// [`HostServices::run_service`] on a helper thread and the methods that run on helper threads only:
/// [`Host::reload_tls`], [`HostFiles::change_dir`], [`HostFiles::rewrite_config`], the methods of the ACL file, and
/// those marked "may block".
pub trait Host: HostServices + HostFiles + HostLog + HostThreads + HostFigures + Send + Sync {
    /// How sockets are driven: `epoll`, `io_uring`, or both.
    fn multiplexing_api(&self) -> &'static str {
        "epoll"
    }
    /// The time on the clock of [`Now::mono_us`], read now.
    fn mono_us(&self) -> u64 {
        0
    }
    /// The time on the clock of [`Now::mono_us`] in nanoseconds, read now. Called at the boundary between two
    /// commands.
    fn mono_ns(&self) -> u64 {
        self.mono_us() * 1000
    }
    /// The time, read now.
    fn now(&self) -> Now {
        Now { unix_us: 0, mono_us: self.mono_us() }
    }
    /// Ends the process at once and logs `text`. Called when the server can no longer keep a promise to its clients.
    fn die(&self, text: &str) {
        self.warn(text);
    }
    /// Connects to a primary. May block.
    ///
    /// # Errors
    /// The system's error, or the reason why there is no TLS.
    fn dial(&self, primary: Dial<'_>) -> io::Result<Box<dyn Link>> {
        let _ = primary;
        Err(io::Error::other("the host makes no connections"))
    }
    /// SHUTDOWN: stop gracefully.
    fn shutdown(&self, request: ShutdownRequest);
    /// The number of clients that the system allows when `wanted` clients are configured.
    fn clients_max(&self, wanted: usize) -> usize {
        wanted
    }
    /// CONFIG SET changed this option. The users of the option outside the engine (logging, sockets) read it again.
    fn config_changed(&self, name: &str) {
        let _ = name;
    }
    /// Applies `oom-score-adj` to the process.
    ///
    /// # Errors
    /// When the system refuses. The reason is logged.
    fn set_oom_score(&self, config: &Config, is_replica: bool) -> io::Result<()> {
        let _ = (config, is_replica);
        Ok(())
    }
    /// Listens where `config` says, and nowhere else. Connections stay. `needs_password`: nobody may do anything without a
    /// password.
    ///
    /// # Errors
    /// When an address is not available. Then nothing has changed, and the reason is logged.
    fn listen(&self, config: &Config, needs_password: bool) -> io::Result<()> {
        let _ = (config, needs_password);
        Ok(())
    }
    /// CONFIG SET changed `tls-*` options. The host uses the new values from now on. Reads files; runs on a helper
    /// thread.
    ///
    /// # Errors
    /// The reason for the log. The old values stay in use.
    fn reload_tls(&self, config: &Config) -> io::Result<()> {
        let _ = config;
        Ok(())
    }
    /// Fills `bytes` with cryptographically secure randomness.
    ///
    /// # Errors
    /// When the system has none.
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// The services outside the engine: text search and regular expressions.
pub trait HostServices {
    /// Runs a command of a service outside the engine (search) on a helper thread. A command with
    /// [`strand_commands::cost::Cost::Text`] runs on the worker first.
    fn run_service(&self, run: ServiceRun, call: &mut LaneCall<'_>) -> ServiceOutcome;
    /// The commands that recreate the definitions of the services (indexes, pattern sets). Called while all shards are
    /// held, so it waits for no shard.
    fn definitions(&self) -> Vec<Arc<Vec<Vec<u8>>>> {
        Vec::new()
    }
    /// Reports that a client that used a service has disconnected.
    fn client_gone(&self, client: u64) {
        let _ = client;
    }
    /// Bytes that do not count against `maxmemory`, because no eviction frees them: what indexes free by themselves, and
    /// what the profiler keeps. Called up to some hundred times per second.
    fn passing_bytes(&self) -> u64 {
        0
    }
    /// The memory of the services.
    fn service_memory(&self) -> ServiceMemory {
        ServiceMemory::default()
    }
    /// Drops caches of the services, because memory is short. Runs on a helper thread.
    fn shrink_caches(&self) {}
    /// The lines of `INFO search` about the services: (name, value).
    fn info_search(&self) -> Vec<(String, String)>;
}

/// Files. These methods run on helper threads and may block.
pub trait HostFiles {
    /// Opens the folder `name` of the working folder for the append-only file `file`. Creates a missing folder.
    /// `None`: the host keeps no files. May block.
    ///
    /// # Errors
    /// The system's error. Also an error when another server uses the folder.
    fn open_folder(&self, name: &str, file: &str) -> io::Result<Option<Arc<dyn Folder>>> {
        let _ = (name, file);
        Ok(None)
    }
    /// CONFIG SET dir: changes the working folder and returns its absolute path. Runs on a helper thread.
    ///
    /// # Errors
    /// The system's error.
    fn change_dir(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        Ok(path.into())
    }
    /// Reads the ACL file. Runs on a helper thread, or before the first client.
    ///
    /// # Errors
    /// The system's error.
    fn read_acl_file(&self, path: &str) -> io::Result<Vec<u8>>;
    /// Replaces the ACL file with the text of `text`, atomically. Runs on a helper thread. Concurrent calls run one
    /// after another, and each calls `text` when its turn comes. Therefore the last writer writes the newest text.
    ///
    /// # Errors
    /// The reason, for the log.
    fn write_acl_file(&self, path: &str, text: &dyn Fn() -> Vec<u8>) -> io::Result<()>;
    /// Replaces the file `name` of the working folder with the output of `write`, atomically and only after the new
    /// content is on the disk. `in_parts`: the content is synced in parts while it is written, so that the last sync
    /// is short. May block.
    ///
    /// # Errors
    /// The reason, for the log. The old file stays unchanged.
    fn replace_file(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
        let _ = (name, in_parts, write);
        Err(io::Error::other("the host keeps no files"))
    }
    /// Writes the output of `write` to a file without a name in the working folder. The file is not synced. May block.
    ///
    /// # Errors
    /// The system's error, or the error of `write`.
    fn scratch_file(&self, write: &mut WriteFile<'_>) -> io::Result<Arc<dyn ScratchFile>> {
        let _ = write;
        Err(io::Error::other("the host keeps no files"))
    }
    /// Opens the file `name` of the working folder and returns it with its length. `None` when the file is missing.
    ///
    /// # Errors
    /// The system's error.
    fn open_file(&self, name: &str) -> io::Result<Option<OpenedFile>> {
        let _ = name;
        Ok(None)
    }
    /// CONFIG REWRITE: reads the configuration file, passes its text to `edit` and replaces the file with the result.
    ///
    /// # Errors
    /// The reason, for the client.
    fn rewrite_config(&self, edit: &dyn Fn(&str) -> String) -> io::Result<()> {
        let _ = edit;
        Err(io::Error::other("the host keeps no configuration file"))
    }
}

/// The log.
pub trait HostLog {
    /// The newest lines of the log.
    fn log_tail(&self) -> Vec<u8> {
        Vec::new()
    }
    /// The system settings that the start found unsuitable: rule, finding, advice.
    fn start_checks(&self) -> Vec<(&'static str, String, String)> {
        Vec::new()
    }
    /// `redis.log` in a script. The level is 0 (debug) to 3 (warning).
    fn script_logs(&self, level: i64, text: &[u8]) {
        let _ = (level, text);
    }
    /// Writes a line to the log, at the level of progress.
    fn log(&self, text: &str) {
        let _ = text;
    }
    /// Writes a line to the log, at the level of problems that an administrator must know.
    fn warn(&self, text: &str) {
        self.log(text);
    }
}

/// Maximum number of bytes that the stack of a worker takes: a table of 84 MB from the first stack on, and the names of
/// functions, 35 to 45 MB for two seconds.
pub const STACK_BYTES: u64 = 128 << 20;

/// Threads, and waiting. The engine never blocks a thread itself: it waits through these methods and [`Signal`].
pub trait HostThreads {
    /// Where a worker's thread is now, in the kernel and, if `with_stack`, in the program. For a log line. Empty when the
    /// system does not report it. The stack may take [`STACK_BYTES`].
    fn worker_place(&self, worker: usize, with_stack: bool) -> String {
        let _ = (worker, with_stack);
        String::new()
    }
    /// Drops `garbage` on a helper thread, because freeing it takes long.
    fn reclaim(&self, garbage: Box<dyn Send>);
    /// Runs `work` on a new thread.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let _ = name;
        work();
        Ok(())
    }
    /// A new signal for threads that may block.
    fn signal(&self) -> Box<dyn Signal>;
    /// Yields the processor. May block.
    fn yield_now(&self) {}
    /// Sleeps. May block.
    fn nap_us(&self, us: u64) {
        let _ = us;
    }
}

/// Figures and profiles of the process and the machine.
pub trait HostFigures {
    /// The allocator's figures.
    fn memory(&self) -> MemoryFacts;
    /// [`MemoryFacts::used_bytes`] alone. Called up to some hundred times per second.
    fn used_bytes(&self) -> u64 {
        self.memory().used_bytes
    }
    /// Returns freed pages to the system at once. Runs on a helper thread.
    fn purge_memory(&self) {}
    /// The allocator's own report. Runs on a helper thread.
    fn allocator_report(&self) -> String {
        String::new()
    }
    /// The system's figures about the process and the machine, for the history. May block.
    fn system_figures(&self) -> Vec<Figure> {
        Vec::new()
    }
    /// Those of [`HostFigures::system_figures`] that are about the memory of the machine and of the control groups. Asks no
    /// disk.
    fn memory_figures(&self) -> Vec<Figure> {
        Vec::new()
    }
    /// The system's report about the process and the machine as names and texts. May block.
    fn system_report(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Takes, starts or stops a profile and returns the bytes of the answer. May block.
    ///
    /// # Errors
    /// When no profile can be taken.
    fn profile(&self, ask: ProfileRequest) -> Result<Vec<u8>, NoProfile> {
        let _ = ask;
        Err(NoProfile("ERR this host takes no profiles".into()))
    }
    /// The memory profiles of one moment, as DIAG PROFILE HEAP and ALLOCS return them: allocs folded, allocs as pprof,
    /// heap folded, heap as pprof. May block.
    ///
    /// # Errors
    /// When no profile can be taken.
    fn memory_profiles(&self) -> Result<[Vec<u8>; 4], NoProfile> {
        Err(NoProfile("ERR this host takes no profiles".into()))
    }
    /// Switches the sampling of allocations on or off.
    fn sample_heap(&self, on: bool) {
        let _ = on;
    }
    /// Processor time used so far.
    fn cpu(&self) -> CpuFacts;
}

/// Memory as the allocator and the kernel see it, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    /// Bytes that the program uses.
    pub used_bytes: u64,
    /// Free memory that is kept ready for the program, besides `used_bytes`: by the allocator for each thread, and as
    /// buffers of the network.
    pub ready_bytes: u64,
    /// Bytes of the pages that are in use by the allocator (jemalloc's `active`).
    pub active_bytes: u64,
    /// Bytes of the allocator's resident pages.
    pub resident_bytes: u64,
    /// Resident set of the process.
    pub rss_bytes: u64,
    /// Memory of the machine, or the lowest limit of the process's control groups if that limit is lower.
    pub system_bytes: u64,
}

impl MemoryFacts {
    /// Bytes that are used or kept ready (jemalloc's `allocated`).
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.used_bytes + self.ready_bytes
    }
}

/// Memory of the services outside the engine, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceMemory {
    /// Text indexes.
    pub indexes_bytes: u64,
    /// Trigram indexes.
    pub trigrams_bytes: u64,
    /// Compiled regular expressions and the caches of their searches.
    pub regexes_bytes: u64,
    /// Planned queries and results of running text searches.
    pub requests_bytes: u64,
    /// Profiles, stacks, and what the profiler keeps.
    pub profiler_bytes: u64,
}

/// Processor time in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuFacts {
    /// Processor time in the kernel.
    pub system_us: u64,
    /// Processor time in user mode.
    pub user_us: u64,
}

/// SHUTDOWN's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// `NOW`: do not give clients time to finish.
    pub now: bool,
    /// `FORCE`: stop although an error occurs.
    pub force: bool,
    /// `SAVE`: save also without save points.
    pub save: bool,
    /// `NOSAVE`: do not save.
    pub nosave: bool,
    /// True when a signal asks, and not SHUTDOWN.
    pub by_signal: bool,
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

/// The framing of requests and replies on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// RESP without frames. Requests may also be inline.
    #[default]
    Resp,
    /// RESP inside frames (`strand_wire::pack4`).
    Pack4,
}

/// The peer of a session.
#[derive(Clone, Debug, Default)]
pub struct PeerInfo {
    /// `ip:port` of the peer, as CLIENT LIST shows it (`[v6]:port`). `file:0` for a Unix socket.
    pub addr: String,
    /// `ip:port` of the server's end of the connection. `file:0` for a Unix socket.
    pub laddr: String,
    /// The socket's descriptor number, for CLIENT LIST only.
    pub fd: i32,
    /// The worker that serves the peer.
    pub worker: usize,
    /// True when the peer is on this machine (loopback or Unix socket).
    pub local: bool,
    /// True when the connection is a Unix socket.
    pub unix: bool,
    /// The framing of the connection.
    pub framing: Framing,
}

impl PeerInfo {
    /// The peer as MONITOR shows it: the address, or `unix:file`.
    pub(crate) fn shown_in_monitor(&self) -> Cow<'_, str> {
        match self.addr.strip_suffix(":0") {
            Some(file) if self.unix => format!("unix:{file}").into(),
            _ => self.addr.as_str().into(),
        }
    }
}

/// Wakes the task that drives a session. Any thread may call it, any number of times. The task then calls
/// [`crate::Session::run`], whatever the session waits for.
pub trait Wake: Send + Sync {
    /// Wakes the task.
    fn wake(&self) {
        self.queue();
        self.wake_queued();
    }
    /// Prepares to wake the task. The task may wait until [`Wake::wake_queued`] of any task of its thread is called.
    fn queue(&self);
    /// Lets the task's thread wake all its tasks for which [`Wake::queue`] was called.
    fn wake_queued(&self) {}
}

/// Wakes many tasks, each thread once. If a thread and the caller share a core, a wake for each task would let the thread
/// run the first task, and sleep again before the caller wakes the second.
pub(crate) fn wake_together<'w>(wakes: impl Iterator<Item = &'w Arc<dyn Wake>>) {
    let wakes: Vec<_> = wakes.collect();
    wakes.iter().for_each(|wake| wake.queue());
    wakes.iter().for_each(|wake| wake.wake_queued());
}

/// A condition that threads wait for and other threads signal. A waiting thread reads [`Signal::changes`], checks its
/// condition, and only then calls [`Signal::wait`], so that it misses no change in between.
pub trait Signal: Send + Sync {
    /// The number of changes so far.
    fn changes(&self) -> u64;
    /// Waits until there are more than `seen` changes, at most `at_most_us`. False after a timeout.
    fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool;
    /// Reports a change, and wakes the waiting threads.
    fn notify(&self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Records its calls, with its name, in a list that several share.
    struct Recorder(&'static str, Arc<Mutex<Vec<String>>>);
    impl Recorder {
        fn record(&self, call: &str) {
            self.1.lock().push(format!("{call} {}", self.0));
        }
    }
    impl Wake for Recorder {
        fn queue(&self) {
            self.record("queue");
        }
        fn wake_queued(&self) {
            self.record("wake_queued");
        }
    }

    #[test]
    fn many_tasks_are_queued_before_the_first_thread_is_woken() {
        let calls = Arc::default();
        let wakes = ["a", "b"].map(|name| Arc::new(Recorder(name, Arc::clone(&calls))) as Arc<dyn Wake>);
        wake_together(wakes.iter());
        assert_eq!(*calls.lock(), ["queue a", "queue b", "wake_queued a", "wake_queued b"]);
    }
}
