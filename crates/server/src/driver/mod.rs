//! The driver: joins sockets, threads and clocks to the engine's machines.
//!
//! [`serve`] runs a server until it is told to stop: the main thread accepts and hands each socket to the
//! [`worker`] with the fewest; [`connection`] is the task that moves one socket's bytes; [`lane`] has the helper threads
//! for long commands; [`ticker`] the background work; [`host`] what the engine asks of the process.

mod clock;
mod connection;
mod files;
mod host;
mod lane;
mod listen;
mod logging;
mod stream;
mod ticker;
mod wake;
mod worker;

use clock::Clock;
use host::{Loops, Request, ServerHost};
use lane::{LanePool, Reclaimer, lane_threads};
use socket2::{SockRef, TcpKeepalive};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strand_engine::{Config, Engine, PeerInfo, ServerFacts};
use strand_keyspace::Keyspace;
use strand_search::Search;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use worker::{Shared, Worker};

/// How long a stopping server waits for commands in flight and for replies to be taken.
const STOP_GRACE_MS: u64 = 5_000;
/// Pause after a failed `accept` (no more descriptors): it would fail again at once.
const ACCEPT_PAUSE_MS: u64 = 50;
/// Shards for each worker unless `shards` says otherwise: two workers rarely meet at one.
const SHARDS_PER_WORKER: usize = 64;
/// No more than one failure to accept is logged in this time.
const ACCEPT_LOG_MS: u64 = 1_000;
/// Most worker threads, whatever is asked for.
const WORKERS_MAX: usize = 256;

/// Runs a server with `config` until SIGINT, SIGTERM or SHUTDOWN. `config_file` is what CONFIG REWRITE writes to.
///
/// # Errors
/// When it cannot start; the text is for the user.
pub fn serve(config: Config, config_file: Option<PathBuf>) -> Result<(), String> {
    let level = logging::start(&config.loglevel(), &config.logfile())
        .map_err(|e| format!("cannot open the log file {}: {e}", config.logfile()))?;
    logging::log_panics();
    allow_clients(&config)?;
    let listeners = listen::listen(&config.bind(), config.port(), config.tcp_backlog() as i32)
        .map_err(|e| e.to_string())?;
    if config.port() == 0 {
        // INFO and CONFIG GET tell the port that was picked.
        let port = listeners[0].local_addr().map_or(0, |a| a.port());
        settle(&config, &format!("port {port}"))?;
    }
    // Freed pages go back to the system even when nobody allocates.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    start(config, config_file, listeners, level).map_err(|e| format!("cannot start: {e}"))
}

fn start(
    config: Config,
    config_file: Option<PathBuf>,
    listeners: Vec<StdListener>,
    level: logging::LogLevel,
) -> io::Result<()> {
    let clock = Clock::start();
    let workers = worker_count(&config);
    let shards = match config.shards() {
        0 => workers * SHARDS_PER_WORKER,
        n => n,
    };
    let keyspace =
        Arc::new(Keyspace::new(shards, config.databases(), [os_seed(), os_seed(), os_seed(), os_seed()]));
    let (requests, inbox) = unbounded_channel();
    let search = Search::new(keyspace.clone());
    let loops = Arc::new(Loops::new(workers, wants_rings(&config)));
    let host = Arc::new(ServerHost::new(
        requests,
        search.clone(),
        Reclaimer::start()?,
        config_file.clone(),
        loops.clone(),
    ));
    let engine = Engine::new(config, keyspace, host, facts(workers, config_file), clock.now());
    engine.load_users().map_err(io::Error::other)?;
    let lanes = LanePool::start(lane_threads(workers), clock)?;
    let shared = Shared { engine: engine.clone(), clock, lanes, loops };
    let rings = shared.loops.wants_rings();
    let workers =
        (0..workers).map(|i| Worker::start(i, shared.clone(), rings)).collect::<io::Result<Vec<_>>>()?;
    let tickers = [
        ticker::engine_ticker(engine.clone(), clock)?,
        ticker::memory_ticker(engine.clone(), clock)?,
        ticker::search_ticker(search, clock)?,
    ];

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        // One set of listeners for both phases: no signal can fall between them.
        let mut signals = Signals::new()?;
        let grace = accept_until_stopped(&engine, listeners, &workers, inbox, &level, &mut signals).await?;
        stop(workers, grace, &mut signals).await
    })?;
    // Freeing every key would take seconds in which nobody is served; the kernel takes the memory back at once.
    std::mem::forget((engine.clone(), tickers));
    tracing::info!("stopped");
    Ok(())
}

/// Lets the workers finish what is in flight; a second signal does not wait for that.
async fn stop(workers: Vec<Worker>, grace: Duration, signals: &mut Signals) -> io::Result<()> {
    workers.iter().for_each(|w| w.stop(grace));
    let (done, joined) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        workers.into_iter().for_each(Worker::join);
        // Nobody listens when a second signal came first.
        let _ = done.send(());
    })?;
    tokio::select! {
        _ = joined => Ok(()),
        name = signals.next() => {
            tracing::warn!("{name} again: stopping at once");
            std::process::exit(1);
        }
    }
}

/// Hands out connections until the server is told to stop; the value is the time that commands in flight have then.
async fn accept_until_stopped(
    engine: &Arc<Engine>,
    listeners: Vec<StdListener>,
    workers: &[Worker],
    mut inbox: UnboundedReceiver<Request>,
    level: &logging::LogLevel,
    signals: &mut Signals,
) -> io::Result<Duration> {
    let grace = Duration::from_millis(STOP_GRACE_MS);
    let listeners = listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>()?;
    announce(&listeners, workers.len())?;
    let (mut next, mut paused, mut logged_at) = (0, false, None::<Instant>);
    loop {
        tokio::select! {
            accepted = accept_any(&listeners, &mut next), if !paused => match accepted {
                Ok((stream, address)) => hand_over(engine, workers, stream, address),
                Err(e) => {
                    paused = true;
                    if logged_at.is_none_or(|at| at.elapsed() >= Duration::from_millis(ACCEPT_LOG_MS)) {
                        tracing::warn!("cannot accept a connection: {e}");
                        logged_at = Some(Instant::now());
                    }
                }
            },
            () = tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)), if paused => paused = false,
            name = signals.next() => {
                tracing::info!("{name}: stopping");
                return Ok(grace);
            }
            request = inbox.recv() => match request {
                Some(Request::Changed(name)) => changed(engine, workers, level, &name),
                Some(Request::Stop(request)) => {
                    tracing::info!("SHUTDOWN: stopping");
                    return Ok(if request.now { Duration::ZERO } else { grace });
                }
                // The engine holds the sender for as long as it lives.
                None => return Ok(grace),
            },
        }
    }
}

/// The next connection of any listener, taking them in turn.
async fn accept_any(listeners: &[TcpListener], next: &mut usize) -> io::Result<(StdStream, SocketAddr)> {
    std::future::poll_fn(|cx| {
        for i in 0..listeners.len() {
            let at = (*next + i) % listeners.len();
            if let std::task::Poll::Ready(accepted) = listeners[at].poll_accept(cx) {
                *next = at + 1;
                return std::task::Poll::Ready(
                    accepted.and_then(|(stream, address)| Ok((stream.into_std()?, address))),
                );
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Gives a new socket its options and a worker.
fn hand_over(engine: &Engine, workers: &[Worker], stream: StdStream, address: SocketAddr) {
    let socket = SockRef::from(&stream);
    // A socket that refuses an option is closed already: its worker will find out.
    let _ = socket.set_tcp_nodelay(true);
    let keepalive_s = engine.config().tcp_keepalive_s();
    if keepalive_s > 0 {
        // As redis-server: three probes in as many thirds of the time.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s))
            .with_interval(Duration::from_secs((keepalive_s / 3).max(1)))
            .with_retries(3);
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
    let (index, worker) = workers
        .iter()
        .enumerate()
        .min_by_key(|(_, w)| w.connections())
        .expect("a server has at least one worker");
    let peer = PeerInfo {
        addr: address.to_string(),
        laddr: stream.local_addr().map(|a| a.to_string()).unwrap_or_default(),
        fd: stream.as_raw_fd(),
        worker: index,
        local: address.ip().to_canonical().is_loopback(),
    };
    worker.serve(stream, peer);
}

/// What CONFIG SET changes outside the engine.
fn changed(engine: &Engine, workers: &[Worker], level: &logging::LogLevel, name: &str) {
    match name {
        "loglevel" => level.set(&engine.config().loglevel()),
        "timeout" => workers.iter().for_each(Worker::poke),
        _ => {}
    }
}

/// One line to the log and, for whoever started the server, where it listens on the standard output.
fn announce(listeners: &[TcpListener], workers: usize) -> io::Result<()> {
    let addresses = listeners.iter().map(|l| l.local_addr()).collect::<io::Result<Vec<_>>>()?;
    let port = addresses.first().map_or(0, |a| a.port());
    tracing::info!(
        "strand {} started, port {port}, workers {workers}, pid {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let mut out = io::stdout().lock();
    for address in addresses {
        // A closed standard output is no reason to stop.
        let _ = writeln!(out, "Ready to accept connections on {address}");
    }
    let _ = out.flush();
    Ok(())
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// True when sockets are to be driven by io_uring and the kernel lets us.
fn wants_rings(config: &Config) -> bool {
    if config.io_driver() != "io_uring" {
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

/// Lowers `maxclients` to what the system's limit of open files allows, as redis-server does, and says so.
fn allow_clients(config: &Config) -> Result<(), String> {
    let wanted = config.maxclients();
    let allowed = files::clients_max(wanted, worker_count(config));
    if allowed < wanted {
        tracing::warn!("maxclients is lowered from {wanted} to {allowed}: see `ulimit -n`");
        settle(config, &format!("maxclients {allowed}"))?;
    }
    Ok(())
}

/// Sets an option to what the system gave, so that INFO and CONFIG GET tell it.
fn settle(config: &Config, line: &str) -> Result<(), String> {
    config.load(line, &mut |_| Err("nothing is included here".into())).map_err(|e| e.to_string())
}

fn worker_count(config: &Config) -> usize {
    let wanted = match config.workers() {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    };
    wanted.min(WORKERS_MAX)
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
    // "5.3.0-0-g..." as jemalloc words it; INFO shows the number.
    let version = tikv_jemalloc_ctl::version::read().unwrap_or_default();
    format!("jemalloc-{}", version.split('-').next().unwrap_or_default())
}

/// 64 bits that nobody outside can guess: std keys its hashers from the system's randomness.
fn os_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
