//! The driver: connects sockets, threads and clocks to the engine's state machines.
//!
//! [`serve`] runs a server until it is stopped. The main thread [`accept`]s at every [`door`] and passes each socket to
//! the [`worker`] with the fewest connections. [`connection`] is the task of one socket. [`lane`] has the helper
//! threads for long commands, [`http`] connects an HTTP connection and a session, [`ticker`] does background work, and
//! [`host`] is what the engine needs from the process.

mod accept;
mod allocations;
pub mod allocator;
mod checks;
mod clock;
mod connection;
mod control_group;
mod departures;
mod disk;
mod door;
mod error;
mod fair;
mod files;
mod folder;
mod host;
mod http;
mod lane;
mod listen;
mod listening;
mod log_lines;
mod logging;
mod manager;
mod oom_score;
mod otlp;
mod page_cache;
mod peer;
mod primary;
pub mod priority;
mod profiler_memory;
mod profiles;
mod signal;
mod socket;
mod stacks;
mod symbols;
mod system;
mod threads;
mod ticker;
mod tls;
mod tls_stream;
mod turns;
mod unix_socket;
mod wake;
mod worker;

use accept::{AcceptContext, Signals, accept_until_stopped, signal_while_stopping};
use clock::Clock;
use door::{Door, Listener};
pub use error::ServeError;
use host::{IoDriverCounts, Request, ServerHost};
use lane::{LanePool, Reclaimer, lane_threads};
use manager::Manager;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strand_engine::config::{ConfigError, find, text};
use strand_engine::{Config, DataError, Engine, FoundAof, Load, OpenedFile, ServerFacts, StartError};
use strand_keyspace::Keyspace;
use strand_search::Search;
use tls::Tls;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use worker::{Shared, Worker};

/// Default number of shards for each worker. While a worker prefetches, it holds up to 16 shards, and other workers wait
/// for them. With 64, 256 and 1,024 shards for each of eight workers, `make scaling` showed 790,000, 850,000 and 885,000
/// operations a CPU-second (means of two runs on 16 cores, which differed by a tenth).
const SHARDS_PER_WORKER: usize = 256;
/// Default maximum number of shards, unless the workers need more. DBSIZE and RANDOMKEY, which visit each shard, run on a
/// worker up to this number of shards (`LONG_ELEMENTS`).
const DEFAULT_SHARDS_MAX: usize = 4096;
/// Default minimum number of shards for each worker.
const SHARDS_PER_WORKER_MIN: usize = 64;
/// Maximum number of worker threads.
const WORKERS_MAX: usize = 256;

/// Maximum wait for an aborted save, in milliseconds. An aborted save ends after its current slice, unless the disk
/// hangs.
const SAVE_END_MS_MAX: usize = 5_000;

/// Runs a server with `config` until SIGINT, SIGTERM or SHUTDOWN. CONFIG REWRITE writes to `config_file`.
///
/// # Errors
/// When it cannot start.
pub fn serve(config: Config, config_file: Option<PathBuf>) -> Result<(), ServeError> {
    enter_dir(&config)?;
    let level =
        logging::start(&config).map_err(|error| ServeError::LogFile { file: config.logfile(), error })?;
    logging::log_panics();
    log_ineffective_options(&config);
    let clients = allow_clients(&config)?;
    let tls = Tls::start(&config).map_err(ServeError::Tls)?;
    let listeners = door::open(&config)?;
    if config.port() == 0
        && let Some(picked) = listeners.iter().filter(|l| l.door == Door::PLAIN).find_map(Listener::port)
    {
        // Set the option, so that INFO and CONFIG GET show the port that the system picked.
        set_option(&config, &format!("port {picked}"))?;
    }
    give_back_freed_pages();
    let workers = worker_count(&config);
    start(config, config_file, listeners, Arc::new(tls), level, clients)
        .map_err(|error| error.with_open_files(workers))
}

/// Starts threads of the allocator that return freed pages to the system even when nobody allocates. They work in
/// small pieces and at a low priority, so that no worker on the same core waits for them.
fn give_back_freed_pages() {
    if let Err(e) = strand_pages::in_pieces() {
        tracing::warn!(
            "cannot return freed memory in small pieces, so clients may wait for milliseconds: {e}"
        );
    }
    let start = || {
        priority::set(priority::PURGE_NICE);
        // A thread inherits the priority of the thread that starts it. So end the threads from the process start
        // first.
        let _ = tikv_jemalloc_ctl::background_thread::write(false);
        let _ = tikv_jemalloc_ctl::background_thread::write(true);
    };
    // If the thread cannot start, the allocating threads return pages themselves.
    if let Ok(starter) = std::thread::Builder::new().name("purge".into()).spawn(start) {
        let _ = starter.join();
    }
}

fn start(
    config: Config,
    config_file: Option<PathBuf>,
    mut listeners: Vec<Listener>,
    tls: Arc<Tls>,
    level: logging::LogLevel,
    clients: (usize, usize),
) -> Result<(), ServeError> {
    let clock = Clock::start();
    let workers = worker_count(&config);
    let shards = match config.shards() {
        0 => default_shards(workers),
        n => n,
    };
    let keyspace =
        Arc::new(Keyspace::new(shards, config.databases(), [os_seed(), os_seed(), os_seed(), os_seed()]));
    let (requests, inbox) = unbounded_channel();
    let search = Search::new(keyspace.clone());
    let loops = Arc::new(IoDriverCounts::new(workers, wants_rings(&config)));
    let loaded = requests.clone();
    let host = Arc::new(ServerHost::new(
        requests,
        search.clone(),
        Reclaimer::start()?,
        config_file.clone(),
        loops.clone(),
        tls.clone(),
        clock,
    ));
    let engine = Engine::new(config, keyspace, host.clone(), facts(workers, config_file), clock.now());
    engine.load_users()?;
    // The host has logged the reason of a failure.
    let _ = engine.set_oom_score();
    engine.open_history();
    engine.sample_heap();
    host.set_checks(checks::Settings::read(engine.config().tcp_backlog(), clients).findings());
    lock_snapshot(&engine, &host)?;
    let data = find_data(&engine, clock)?;
    listeners.extend(door::open_http(engine.config(), engine.needs_password())?);
    host.listening.note(&listeners);
    let lanes = LanePool::start(lane_threads(workers), clock)?;
    let polled_max = worker::polled_max(engine.config());
    let shared = Shared { engine: engine.clone(), clock, lanes, loops, polled_max };
    let rings = shared.loops.wants_rings();
    let workers =
        (0..workers).map(|i| Worker::start(i, shared.clone(), rings)).collect::<io::Result<Vec<_>>>()?;
    let tickers = [
        ticker::engine_ticker(engine.clone(), clock)?,
        ticker::memory_ticker(engine.clone(), clock)?,
        ticker::search_ticker(search, engine.clone(), clock)?,
        ticker::history_ticker(engine.clone(), clock)?,
        otlp::ticker(engine.clone())?,
    ];

    engine.record_startup_memory();
    load_data(engine.clone(), data, clock, loaded)?;
    let _watchdog = manager::watchdog(engine.clone(), clock)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let manager = Manager::new(engine.config());
    runtime.block_on(async {
        // Serving and stopping use one set of signal handlers, so that no signal between them is lost.
        let mut signals = Signals::new()?;
        let until = AcceptContext { inbox, level: &level, signals: &mut signals, manager: &manager };
        let grace = accept_until_stopped(&engine, listeners, &tls, &workers, until).await?;
        manager.stopping();
        Ok::<(), ServeError>(stop(workers, grace, &mut signals).await?)
    })?;
    let written = engine.end_aof();
    end_saves(&engine);
    host.unlock_snapshot();
    // Do not free the keys: that would take seconds without service, and the kernel takes the memory back at once.
    std::mem::forget((engine.clone(), tickers));
    written.map_err(ServeError::Unsaved)?;
    tracing::info!("Strand is now ready to exit, bye bye...");
    Ok(())
}

/// Locks the snapshot for this server from the start, if there are `save` points. A server with default save
/// points leaves the snapshot to the server that has the lock.
fn lock_snapshot(engine: &Engine, host: &ServerHost) -> Result<(), ServeError> {
    let config = engine.config();
    if config.save_points().is_empty() {
        return Ok(());
    }
    match host.lock_snapshot(&config.dbfilename()) {
        Err(why) if why.kind() == io::ErrorKind::WouldBlock && config.has_default_save_points() => {
            tracing::warn!("{why}. This server writes no snapshots: it has set its option save to \"\"");
            let emptied = config.set(&[(b"save", b"")], false);
            emptied.map(drop).map_err(|e| ServeError::SavePoints(e.to_string()))
        }
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => Err(why.into()),
        Err(why) => {
            // As in redis-server, the server starts anyway. The save fails later, and writers then get the error of the
            // save.
            tracing::warn!("snapshots cannot be written: {why}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Where the data comes from at the start.
enum Data {
    /// There is no data.
    None,
    Snapshot(OpenedFile),
    /// The data is in an append-only file. As in redis-server, no snapshot is loaded then.
    Aof(FoundAof),
}

/// Finds the data to load. If there is data, clients get the loading error from then on.
fn find_data(engine: &Engine, clock: Clock) -> Result<Data, StartError> {
    if engine.wants_aof() {
        let found = engine.find_aof()?;
        engine.begin_loading(found.total_bytes(), clock.now());
        if found.total_bytes() == 0 {
            warn_of_unread_snapshot(&engine.config().dbfilename());
        }
        return Ok(Data::Aof(found));
    }
    let name = engine.config().dbfilename();
    let file = disk::open(&name).map_err(|why| {
        let path = std::env::current_dir().unwrap_or_default().join(&name);
        let why = disk::with_path(why, &path);
        StartError::Files(DataError::OpenSnapshot { name: name.clone(), why })
    })?;
    let Some(file) = file else { return Ok(Data::None) };
    engine.begin_loading(file.1, clock.now());
    Ok(Data::Snapshot(file))
}

/// Logs that the snapshot is not read, if there is one: with `appendonly`, all data is in the append-only file, which is empty.
/// As in redis-server, the server then starts without data, and its next save replaces the snapshot.
fn warn_of_unread_snapshot(name: &str) {
    if matches!(disk::open(name), Ok(Some((_, bytes))) if bytes > 0) {
        tracing::warn!(
            "{name} is not read, because appendonly is yes and there is no append-only file with data. The server starts without \
             data, and its next save replaces {name}. To load {name}, send SHUTDOWN NOSAVE, start with --appendonly no, then \
             send CONFIG SET appendonly yes"
        );
    }
}

/// Loads the data on a separate thread, and notifies the main thread.
fn load_data(
    engine: Arc<Engine>,
    data: Data,
    clock: Clock,
    loaded: UnboundedSender<Request>,
) -> io::Result<()> {
    if matches!(data, Data::None) {
        engine.follow_configured();
        return Ok(());
    }
    let work = move || {
        let load = || match data {
            Data::None => Ok(()),
            Data::Aof(found) => engine.start_aof(found, clock.now()),
            Data::Snapshot((mut source, total_bytes)) => {
                let name = engine.config().dbfilename();
                let load = Load { name: &name, source: &mut *source, total_bytes, replace: false };
                engine.load(load, clock.now())
            }
        };
        let done = catch_unwind(AssertUnwindSafe(load));
        let done = done.unwrap_or(Err(StartError::Data(DataError::Panicked)));
        if done.is_ok() {
            engine.follow_configured();
        }
        // The receiver is gone when the server is already stopping.
        let _ = loaded.send(Request::Loaded(done));
    };
    threads::spawn("load", work).map(drop)
}

/// Waits for the end of an aborted background save or rewrite, because each still removes its temporary file.
fn end_saves(engine: &Engine) {
    for _ in 0..SAVE_END_MS_MAX {
        if !engine.is_saving_or_rewriting() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets the workers finish running commands. SIGINT ends the process at once.
async fn stop(workers: Vec<Worker>, grace: Duration, signals: &mut Signals) -> io::Result<()> {
    workers.iter().for_each(|w| w.stop(grace));
    let (done, mut joined) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        workers.into_iter().for_each(Worker::join);
        // This fails only when the process ends meanwhile, and the main thread no longer waits.
        let _ = done.send(());
    })?;
    loop {
        tokio::select! {
            _ = &mut joined => return Ok(()),
            name = signals.next() => signal_while_stopping(name),
        }
    }
}

/// Changes to the folder of the option `dir`, and sets the option to the process's absolute working folder.
fn enter_dir(config: &Config) -> Result<(), ServeError> {
    let dir = config.dir();
    let here = files::change_dir(&dir).map_err(|error| {
        let dir = String::from_utf8_lossy(&dir).into_owned();
        ServeError::Folder { dir, error }
    })?;
    Ok(set_option(config, &format!("dir {}", text::quote(&here)))?)
}

/// Logs the given options that have no effect: one line for each that changes something in redis-server, and one
/// line for all that have their defaults.
fn log_ineffective_options(config: &Config) {
    let (defaults, others): (Vec<_>, Vec<_>) = config.notes().into_iter().partition(|note| note.is_default);
    others.iter().for_each(|note| tracing::warn!("{note}"));
    if !defaults.is_empty() {
        let names: Vec<_> = defaults.iter().map(|note| note.name.as_str()).collect();
        tracing::info!("options without effect, which have their default values: {}", names.join(", "));
    }
}

/// Applies a CONFIG SET of an option that the driver uses: log, TLS, timeouts, profiling.
fn apply_change(engine: &Engine, workers: &[Worker], level: &logging::LogLevel, name: &str) {
    match name {
        "loglevel" | "log-levels" => level.set(&engine.config().loglevel(), &engine.config().log_levels()),
        "heap-profiling" => engine.sample_heap(),
        "timeout" => workers.iter().for_each(Worker::recheck_settings),
        name => {
            if let Some(why) = find(name.as_bytes()).and_then(|option| option.spec().no_effect) {
                tracing::warn!("CONFIG SET: {name} has no effect: {why}");
            }
        }
    }
}

/// True when io_uring may be used and the kernel allows it.
fn wants_rings(config: &Config) -> bool {
    if config.io_driver() == "epoll" {
        return false;
    }
    match strand_ring::Ring::probe() {
        Ok(()) => true,
        Err(e) => {
            tracing::info!("the kernel does not allow io_uring ({e}): using epoll");
            false
        }
    }
}

/// Lowers `maxclients` to what the limit of open files allows, as redis-server does, and logs that. Returns the
/// wanted and the allowed number.
fn allow_clients(config: &Config) -> Result<(usize, usize), ConfigError> {
    let wanted = config.maxclients();
    let allowed = files::clients_max(wanted, worker_count(config));
    if allowed < wanted {
        tracing::warn!("maxclients is lowered from {wanted} to {allowed}: see `ulimit -n`");
        set_option(config, &format!("maxclients {allowed}"))?;
    }
    Ok((wanted, allowed))
}

/// Sets an option to the value in use, so that INFO and CONFIG GET show this value.
fn set_option(config: &Config, line: &str) -> Result<(), ConfigError> {
    config.load_text(line)
}

fn worker_count(config: &Config) -> usize {
    let wanted = match config.workers() {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    wanted.min(WORKERS_MAX)
}

/// Number of shards for `workers` workers. The keyspace rounds the number up to a power of two.
fn default_shards(workers: usize) -> usize {
    (workers * SHARDS_PER_WORKER).min(DEFAULT_SHARDS_MAX).max(workers * SHARDS_PER_WORKER_MIN)
}

fn facts(workers: usize, config_file: Option<PathBuf>) -> ServerFacts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    ServerFacts {
        pid: std::process::id(),
        run_id_seed: os_seed(),
        executable: std::env::current_exe().map(|p| p.display().to_string()).unwrap_or_default(),
        config_file: config_file.map(|p| p.display().to_string()).unwrap_or_default(),
        os: format!(
            "{} {} {}",
            read("/proc/sys/kernel/ostype"),
            read("/proc/sys/kernel/osrelease"),
            std::env::consts::ARCH
        ),
        workers,
        allocator: allocator_name(),
    }
}

fn allocator_name() -> String {
    // jemalloc reports "5.3.0-0-g...". INFO shows only the number.
    let version = tikv_jemalloc_ctl::version::read().unwrap_or_default();
    format!("jemalloc-{}", version.split('-').next().unwrap_or_default())
}

/// 64 unpredictable bits. std keys its hashers from the system's randomness.
fn os_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_workers_get_fewer_shards_each() {
        let shards = [1, 3, 16, 64, 65, 256].map(default_shards);
        assert_eq!(shards, [256, 768, 4096, 4096, 4160, 16_384]);
    }
}
