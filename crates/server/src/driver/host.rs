//! [`ServerHost`]: what the engine needs from the process: memory and processor figures, search, files, and the way to
//! stop.

use super::allocator;
use super::checks::Check;
use super::clock::Clock;
use super::disk::{self, DirLock};
use super::files;
use super::folder::DiskFolder;
use super::lane::Reclaimer;
use super::listening::{ListenerChange, Listening};
use super::oom_score::OomScore;
use super::peer::OtherServers;
use super::primary;
use super::profiler_memory;
use super::profiles::Profiles;
use super::signal::Changes;
use super::system::SystemWatch;
use super::threads;
use super::tls::Tls;
use parking_lot::Mutex;
use std::any::Any;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use strand_commands::call::{LaneCall, ServiceOutcome, ServiceRun, Services};
use strand_commands::migrate;
use strand_diag::history::Figure;
use strand_engine::{
    Config, CpuFacts, Dial, Folder, Host, HostFigures, HostFiles, HostLog, HostServices, HostThreads, Link,
    MemoryFacts, NoProfile, Now, OpenedFile, ProfileRequest, ScratchFile, ServiceMemory, ShutdownRequest,
    Signal, StartError, WriteFile,
};
use strand_search::Search;
use tokio::sync::mpsc::UnboundedSender;

/// Number of clock ticks per second in `/proc/self/stat`. Linux's user interface fixes this number.
pub(super) const TICKS_PER_S: u64 = 100;

/// A request for at most this number of random bytes gets all of them, and no signal interrupts the call.
const RANDOM_BYTES_AT_ONCE: usize = 256;
/// Maximum number of bytes of a script's message that are written to the log.
const SCRIPT_LOG_BYTES_MAX: usize = 4096;

/// Requests of the engine to the server's main thread.
#[derive(Debug)]
pub enum Request {
    /// SHUTDOWN asks that the server stops.
    Stop(ShutdownRequest),
    /// CONFIG SET changed this option.
    Changed(String),
    /// CONFIG SET changed where the server listens.
    Listen(ListenerChange),
    /// The snapshot is loaded. After an error the server does not start.
    Loaded(Result<(), StartError>),
}

/// How the workers drive their sockets.
#[derive(Debug)]
pub struct IoDriverCounts {
    workers: usize,
    /// Number of workers whose new connections use epoll.
    polled: AtomicUsize,
}

impl IoDriverCounts {
    /// Creates the counts for `workers` workers. With `rings` every worker tries to get a ring.
    pub fn new(workers: usize, rings: bool) -> IoDriverCounts {
        IoDriverCounts { workers, polled: AtomicUsize::new(if rings { 0 } else { workers }) }
    }
    /// True when every worker should try to get a ring. Valid only before the first worker starts.
    pub fn wants_rings(&self) -> bool {
        self.polled.load(Relaxed) == 0
    }
    /// Notes that a worker got no ring, or that its ring failed.
    pub fn count_without_ring(&self) {
        self.polled.fetch_add(1, Relaxed);
    }
    fn name(&self) -> &'static str {
        match self.polled.load(Relaxed) {
            0 => "io_uring",
            polled if polled >= self.workers => "epoll",
            _ => "io_uring,epoll",
        }
    }
}

/// Implements what the engine needs from the process.
pub struct ServerHost {
    requests: UnboundedSender<Request>,
    search: Arc<Search>,
    reclaimer: Reclaimer,
    /// Locked during a rewrite, because several helper threads may rewrite the file.
    config_file: Option<Mutex<PathBuf>>,
    /// Locked while the ACL file is written.
    acl_file: Mutex<()>,
    /// [`MemoryFacts::system_bytes`] at the last sample.
    system_bytes: AtomicU64,
    loops: Arc<IoDriverCounts>,
    tls: Arc<Tls>,
    oom_score: OomScore,
    /// Where the server listens.
    pub listening: Listening,
    clock: Clock,
    /// Lock of the snapshot, taken by the first save, or at the start with `save` points.
    snapshot_lock: Mutex<Option<DirLock>>,
    peers: OtherServers,
    system: Mutex<SystemWatch>,
    checks: OnceLock<Vec<Check>>,
    profiles: Profiles,
}

impl ServerHost {
    /// Creates a host that sends requests of the engine to `requests`.
    pub fn new(
        requests: UnboundedSender<Request>,
        search: Arc<Search>,
        reclaimer: Reclaimer,
        config_file: Option<PathBuf>,
        loops: Arc<IoDriverCounts>,
        tls: Arc<Tls>,
        clock: Clock,
    ) -> ServerHost {
        let config_file = config_file.map(Mutex::new);
        let system = SystemWatch::new();
        ServerHost {
            requests,
            search,
            reclaimer,
            config_file,
            acl_file: Mutex::new(()),
            system_bytes: AtomicU64::new(system.size_bytes()),
            loops,
            tls,
            oom_score: OomScore::default(),
            listening: Listening::default(),
            clock,
            snapshot_lock: Mutex::default(),
            peers: OtherServers::default(),
            system: Mutex::new(system),
            checks: OnceLock::new(),
            profiles: Profiles::default(),
        }
    }
    /// Logs the findings of the start checks, and keeps them.
    pub fn set_checks(&self, checks: Vec<Check>) {
        for (rule, what, todo) in &checks {
            tracing::warn!("{what}. To do: {todo}. [{rule}]");
        }
        // `set` fails only when the checks were already set, and the start sets them once.
        let _ = self.checks.set(checks);
    }
    /// Keeps other servers from writing the snapshot `name`.
    ///
    /// # Errors
    /// `WouldBlock` when another server writes it; another kind when the lock's file cannot be created.
    pub fn lock_snapshot(&self, name: &str) -> io::Result<()> {
        let mut lock = self.snapshot_lock.lock();
        let folder = std::env::current_dir()?;
        if lock.as_mut().is_some_and(|lock| lock.is_for(&folder, name)) {
            return Ok(());
        }
        let new = DirLock::acquire(&folder, name).map_err(|e| {
            let text = match e.kind() {
                io::ErrorKind::WouldBlock => format!(
                    "{e} saves to {name} in this folder: give this server another dir or \
                     dbfilename"
                ),
                _ => format!(
                    "cannot lock {name}: the lock file {name}.lock in {} cannot be used: {e}. {}",
                    folder.display(),
                    disk::advice(&e, &folder)
                ),
            };
            io::Error::new(e.kind(), text)
        })?;
        *lock = Some(new);
        let left = disk::remove_leftovers(&folder, |file| file == name);
        if left > 0 {
            tracing::info!("removed {left} unfinished snapshots of a killed server");
        }
        Ok(())
    }
    /// Releases the snapshot when the server ends.
    pub fn unlock_snapshot(&self) {
        *self.snapshot_lock.lock() = None;
    }
}

impl Services for ServerHost {
    fn search(&self) -> &dyn Any {
        &*self.search
    }
    fn migrate(&self, call: &mut LaneCall<'_>) -> ServiceOutcome {
        migrate::run(call, &self.peers, &|| self.now().unix_ms());
        ServiceOutcome::Done
    }
}

impl Host for ServerHost {
    fn multiplexing_api(&self) -> &'static str {
        self.loops.name()
    }
    fn mono_us(&self) -> u64 {
        self.clock.mono_us()
    }
    fn mono_ns(&self) -> u64 {
        self.clock.mono_ns()
    }
    fn now(&self) -> Now {
        self.clock.now()
    }
    fn die(&self, text: &str) {
        tracing::error!("{text}");
        std::process::exit(1);
    }
    fn dial(&self, primary: Dial<'_>) -> io::Result<Box<dyn Link>> {
        primary::connect(primary, self.tls.to_primary().as_ref())
    }
    fn shutdown(&self, request: ShutdownRequest) {
        // The receiver is gone only when the server is already stopping.
        let _ = self.requests.send(Request::Stop(request));
    }
    fn clients_max(&self, wanted: usize) -> usize {
        files::clients_max(wanted, self.loops.workers)
    }
    fn config_changed(&self, name: &str) {
        let _ = self.requests.send(Request::Changed(name.to_string()));
    }
    fn set_oom_score(&self, config: &Config, is_replica: bool) -> io::Result<()> {
        let set = self.oom_score.set(config, is_replica);
        set.inspect_err(|why| tracing::warn!("Unable to change oom_score_adj: {why}"))
    }
    fn listen(&self, config: &Config, needs_password: bool) -> io::Result<()> {
        let changed = self.listening.change(config, needs_password, &self.requests);
        changed.inspect_err(|why| tracing::warn!("{why}")).map_err(io::Error::other)
    }
    fn reload_tls(&self, config: &Config) -> io::Result<()> {
        self.tls
            .reload(config)
            .map(|_| ())
            .inspect_err(|why| tracing::warn!("the TLS configuration is unchanged: {why}"))
            .map_err(io::Error::other)
    }
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        for piece in bytes.chunks_mut(RANDOM_BYTES_AT_ONCE) {
            match rustix::rand::getrandom(&mut *piece, rustix::rand::GetRandomFlags::empty()) {
                Ok(n) if n == piece.len() => {}
                Ok(_) => return Err(io::Error::other("too few random bytes")),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl HostServices for ServerHost {
    fn run_service(&self, run: ServiceRun, call: &mut LaneCall<'_>) -> ServiceOutcome {
        run(self, call)
    }
    fn definitions(&self) -> Vec<Arc<Vec<Vec<u8>>>> {
        self.search.definitions()
    }
    fn client_gone(&self, client: u64) {
        self.search.client_gone(client);
    }
    fn shrink_caches(&self) {
        self.search.shrink_caches();
    }
    fn passing_bytes(&self) -> u64 {
        self.search.passing_bytes() + profiler_memory::bytes()
    }
    fn service_memory(&self) -> ServiceMemory {
        ServiceMemory {
            indexes_bytes: self.search.indexes_bytes(),
            trigrams_bytes: self.search.trigrams_bytes(),
            regexes_bytes: self.search.regexes_bytes(),
            requests_bytes: self.search.requests_bytes(),
            profiler_bytes: profiler_memory::bytes(),
        }
    }
    fn info_search(&self) -> Vec<(String, String)> {
        self.search.info()
    }
}

impl HostFiles for ServerHost {
    fn open_folder(&self, name: &str, file: &str) -> std::io::Result<Option<Arc<dyn Folder>>> {
        DiskFolder::open(name, file).map(Some)
    }
    fn change_dir(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        files::change_dir(path)
    }
    fn read_acl_file(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
    fn write_acl_file(&self, path: &str, text: &dyn Fn() -> Vec<u8>) -> io::Result<()> {
        let _one = self.acl_file.lock();
        files::replace(Path::new(path), &text(), files::ACL_FILE_MODE)
            .inspect_err(|e| tracing::warn!("cannot write the ACL file {path}: {e}"))
    }
    fn replace_file(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
        self.lock_snapshot(name)?;
        // Read the working folder once, because CONFIG SET dir may change it during the save.
        let folder = std::env::current_dir()?;
        disk::replace(&folder, name, in_parts, write)?;
        disk::sync_folder(&folder)
    }
    fn scratch_file(&self, write: &mut WriteFile<'_>) -> io::Result<Arc<dyn ScratchFile>> {
        Ok(Arc::new(disk::write_scratch(&std::env::current_dir()?, write)?))
    }
    fn open_file(&self, name: &str) -> io::Result<Option<OpenedFile>> {
        disk::open(name)
    }
    fn rewrite_config(&self, edit: &dyn Fn(&str) -> String) -> io::Result<()> {
        let Some(path) = &self.config_file else {
            return Err(io::Error::other("The server is running without a config file"));
        };
        files::rewrite(&path.lock(), edit)
    }
}

impl HostLog for ServerHost {
    fn log_tail(&self) -> Vec<u8> {
        super::logging::tail()
    }
    fn start_checks(&self) -> Vec<Check> {
        self.checks.get().cloned().unwrap_or_default()
    }
    fn script_logs(&self, level: i64, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(SCRIPT_LOG_BYTES_MAX)]);
        match level {
            0 => tracing::debug!("script: {text}"),
            1 | 2 => tracing::info!("script: {text}"),
            _ => tracing::warn!("script: {text}"),
        }
    }
    fn log(&self, text: &str) {
        tracing::info!("{text}");
    }
    fn warn(&self, text: &str) {
        tracing::warn!("{text}");
    }
}

impl HostThreads for ServerHost {
    fn worker_place(&self, worker: usize, with_stack: bool) -> String {
        let profiles = with_stack.then_some(&self.profiles);
        super::stacks::describe_thread(profiles, &format!("worker-{worker}"))
    }
    fn reclaim(&self, garbage: Box<dyn Send>) {
        self.reclaimer.reclaim(garbage);
    }
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        threads::spawn(name, work).map(drop)
    }
    fn signal(&self) -> Box<dyn Signal> {
        Box::<Changes>::default()
    }
    fn yield_now(&self) {
        std::thread::yield_now();
    }
    fn nap_us(&self, us: u64) {
        std::thread::sleep(std::time::Duration::from_micros(us));
    }
}

impl HostFigures for ServerHost {
    fn memory(&self) -> MemoryFacts {
        allocator::memory(self.system_bytes.load(Relaxed))
    }
    fn used_bytes(&self) -> u64 {
        allocator::used_bytes()
    }
    fn purge_memory(&self) {
        allocator::purge();
    }
    fn allocator_report(&self) -> String {
        allocator::report()
    }
    fn system_figures(&self) -> Vec<Figure> {
        self.profiles.tick();
        super::priority::raise_starved();
        // Without the lock, so that [`ServerHost::memory_figures`] need not wait for the disk.
        let mut figures = super::system::disk_figures();
        let mut system = self.system.lock();
        figures.extend(system.figures());
        self.system_bytes.store(system.size_bytes(), Relaxed);
        figures
    }
    fn memory_figures(&self) -> Vec<Figure> {
        self.system.lock().memory_figures()
    }
    fn system_report(&self) -> Vec<(String, String)> {
        let threads = super::system::threads();
        super::system::report(&self.profiles.stacks(&threads, false))
    }
    fn profile(&self, ask: ProfileRequest) -> Result<Vec<u8>, NoProfile> {
        self.profiles.take(ask).map_err(|error| NoProfile(error.to_string()))
    }
    fn memory_profiles(&self) -> Result<[Vec<u8>; 4], NoProfile> {
        self.profiles.memory().map_err(|error| NoProfile(error.to_string()))
    }
    fn sample_heap(&self, on: bool) {
        if let Err(why) = self.profiles.sample_heap(on) {
            tracing::warn!("{why}");
        }
    }
    fn cpu(&self) -> CpuFacts {
        let total = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let total_us = total.tv_sec as u64 * 1_000_000 + total.tv_nsec as u64 / 1000;
        let Stat { user, system, .. } = Stat::read("/proc/self/stat").unwrap_or_default();
        // The total is exact, but user time and system time are known only in clock ticks.
        let share = if user + system == 0 { 0.5 } else { user as f64 / (user + system) as f64 };
        let user_us = ((total_us as f64 * share) as u64).max(user * 1_000_000 / TICKS_PER_S).min(total_us);
        CpuFacts { system_us: total_us - user_us, user_us }
    }
}

/// What the kernel says of a process or a thread.
#[derive(Debug, Default)]
pub(super) struct Stat {
    /// It runs, or waits for a processor. It does not sleep.
    pub(super) is_ready: bool,
    /// User time, in clock ticks ([`TICKS_PER_S`]).
    pub(super) user: u64,
    /// System time, in clock ticks.
    pub(super) system: u64,
}

impl Stat {
    /// Reads a file `stat` of `/proc`.
    pub(super) fn read(path: &str) -> Option<Stat> {
        let text = fs::read_to_string(path).ok()?;
        // The second field is the program's name in parentheses and may contain anything. The state is field 3, and the
        // times are fields 14 and 15.
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let is_ready = fields.next()? == "R";
        let mut times = fields.skip(10).map_while(|ticks| ticks.parse().ok());
        Some(Stat { is_ready, user: times.next()?, system: times.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(config_file: Option<PathBuf>) -> ServerHost {
        let (requests, _) = tokio::sync::mpsc::unbounded_channel();
        let keyspace = Arc::new(strand_keyspace::Keyspace::new(1, 1, [1, 2, 3, 4]));
        ServerHost::new(
            requests,
            Search::new(keyspace),
            Reclaimer::start().expect("a thread"),
            config_file,
            Arc::new(IoDriverCounts::new(1, false)),
            Arc::default(),
            Clock::start(),
        )
    }

    #[test]
    fn info_shows_the_event_loops_that_the_workers_use() {
        let loops = IoDriverCounts::new(2, true);
        assert!(loops.wants_rings() && loops.name() == "io_uring");
        loops.count_without_ring();
        assert_eq!(loops.name(), "io_uring,epoll");
        loops.count_without_ring();
        assert_eq!(loops.name(), "epoll");
        assert_eq!(IoDriverCounts::new(2, false).name(), "epoll");
    }

    #[test]
    fn the_facts_are_plausible() {
        let held = vec![1u8; 8 << 20];
        let facts = host(None).memory();
        assert!(facts.used_bytes >= held.len() as u64, "{facts:?}");
        assert!(facts.rss_bytes > 0 && facts.rss_bytes <= facts.system_bytes, "{facts:?}");
        let mut x = 1u64;
        (0..5_000_000u64).for_each(|i| x = x.wrapping_mul(31).wrapping_add(i));
        let cpu = host(None).cpu();
        assert!(cpu.user_us + cpu.system_us > 0, "{cpu:?} {x}");
    }

    #[test]
    fn a_rewritten_file_is_replaced_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("strand.conf");
        fs::write(&path, "port 1\n").expect("a file");
        host(Some(path.clone())).rewrite_config(&|old| format!("{old}hz 20\n")).expect("rewritten");
        assert_eq!(fs::read_to_string(&path).expect("there"), "port 1\nhz 20\n");
        assert_eq!(fs::read_dir(&folder).expect("there").count(), 1);
        assert!(host(None).rewrite_config(&|_| String::new()).is_err());
    }
}
