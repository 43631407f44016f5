//! The main thread's loop: accepts at every door, hands each socket to the worker with the fewest, and does what signals,
//! SHUTDOWN and CONFIG SET ask for meanwhile.

use super::clock::Clock;
use super::door::{Arrival, Door, Listener};
use super::host::Request;
use super::manager::Manager;
use super::tls::Tls;
use super::worker::Worker;
use super::{changed, logging};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strand_engine::{Engine, PeerInfo, ShutdownRequest};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// How long a stopping server waits for commands in flight and for replies to be taken.
const STOP_GRACE_MS: u64 = 5_000;
/// Pause after a failed `accept` (no more descriptors): it would fail again at once.
const ACCEPT_PAUSE_MS: u64 = 50;
/// No more than one failure to accept is logged in this time.
const ACCEPT_LOG_MS: u64 = 1_000;

/// What the loop listens to besides doors, and whom it tells.
pub struct Until<'a> {
    /// What the engine asks for.
    pub inbox: UnboundedReceiver<Request>,
    pub level: &'a logging::LogLevel,
    pub signals: &'a mut Signals,
    pub manager: &'a Manager,
    pub clock: Clock,
}

/// Hands out connections until the server is told to stop; the value is the time that commands in flight have then.
///
/// # Errors
/// When the runtime cannot take over the listeners.
pub async fn accept_until_stopped(
    engine: &Arc<Engine>,
    listeners: Vec<Listener>,
    tls: &Tls,
    workers: &[Worker],
    until: Until<'_>,
) -> io::Result<Duration> {
    let Until { mut inbox, level, signals, manager, clock } = until;
    let grace = Duration::from_millis(STOP_GRACE_MS);
    // Before anybody is told that the server is there: a SIGHUP that nobody listens for would end it.
    let mut hangups = signal(SignalKind::hangup())?;
    let ready = Ready::new(&listeners, workers.len())?;
    if !engine.is_loading() {
        ready.say(manager);
    }
    let mut doors = Doors::new(listeners)?;
    let (mut paused, mut logged_at) = (false, None::<Instant>);
    let mut saving: Option<Saving> = None;
    loop {
        tokio::select! {
            accepted = doors.accept(), if !paused => match accepted {
                Ok((stream, address, door)) => hand_over(engine, tls, workers, stream, address, door),
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
                if saving.is_some() {
                    tracing::warn!("{name} again: stopping at once");
                    std::process::exit(1);
                }
                let request = engine.on_signal(name == SIGINT);
                let time = if request.now { Duration::ZERO } else { grace };
                if !engine.saves_at_end(request) {
                    tracing::info!("{name}: stopping");
                    // Nothing is saved, so nothing can fail.
                    let _ = engine.save_at_end(request, clock.now());
                    return Ok(time);
                }
                tracing::info!("{name}: saving, then stopping");
                saving = Some(Saving { name, grace: time, done: save_at_end(engine, request, clock)? });
            }
            saved = done(&mut saving) => match saved {
                (_, time, Ok(())) => return Ok(time),
                (name, _, Err(why)) => {
                    saving = None;
                    tracing::warn!("{name} received but errors trying to shut down the server: {why}");
                }
            },
            _ = hangups.recv() => match tls.reload(engine.config()) {
                Ok(true) => tracing::info!("SIGHUP: certificates are read again"),
                Ok(false) => tracing::info!("SIGHUP: no port takes TLS, there are no certificates to read"),
                Err(why) => tracing::warn!("SIGHUP: the TLS configuration stays as it was: {why}"),
            },
            request = inbox.recv() => match request {
                Some(Request::Loaded(Ok(()))) => ready.say(manager),
                Some(Request::Loaded(Err(why))) => return Err(io::Error::other(why)),
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

/// The last save, which a signal has asked for.
struct Saving {
    name: &'static str,
    /// What commands in flight have after it.
    grace: Duration,
    done: oneshot::Receiver<Result<(), String>>,
}

/// The end of the last save: the signal, the time that follows, and whether it was done. Never, when there is none.
async fn done(saving: &mut Option<Saving>) -> (&'static str, Duration, Result<(), String>) {
    match saving {
        Some(Saving { name, grace, done }) => {
            let done = done.await.unwrap_or_else(|_| Err("the save panicked".into()));
            (*name, *grace, done)
        }
        None => std::future::pending().await,
    }
}

/// Saves on a thread of its own: clients are served meanwhile.
fn save_at_end(
    engine: &Arc<Engine>,
    request: ShutdownRequest,
    clock: Clock,
) -> io::Result<oneshot::Receiver<Result<(), String>>> {
    let (tell, told) = oneshot::channel();
    let engine = engine.clone();
    std::thread::Builder::new().name("save".into()).spawn(move || {
        // Nobody listens when a second signal came first.
        let _ = tell.send(engine.save_at_end(request, clock.now()));
    })?;
    Ok(told)
}

/// Every listener, and whose turn it is.
struct Doors {
    listeners: Vec<(TcpListener, Door)>,
    next: usize,
}

impl Doors {
    fn new(listeners: Vec<Listener>) -> io::Result<Doors> {
        let listeners = listeners.into_iter().map(|l| Ok((TcpListener::from_std(l.socket)?, l.door)));
        Ok(Doors { listeners: listeners.collect::<io::Result<Vec<_>>>()?, next: 0 })
    }
    /// The next connection of any listener, taking them in turn.
    async fn accept(&mut self) -> io::Result<(StdStream, SocketAddr, Door)> {
        std::future::poll_fn(|cx| {
            for i in 0..self.listeners.len() {
                let at = (self.next + i) % self.listeners.len();
                let (listener, door) = &self.listeners[at];
                if let std::task::Poll::Ready(accepted) = listener.poll_accept(cx) {
                    self.next = at + 1;
                    return std::task::Poll::Ready(
                        accepted.and_then(|(stream, address)| Ok((stream.into_std()?, address, *door))),
                    );
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Bytes that the kernel takes from a connection beyond what it could send by now. Without a bound it takes megabytes, and
/// whenever a slow reader opens its window they are sent by whoever gives the kernel a moment: the worker, in one go.
/// While 256 MB go out on one connection the p99.9 of another's GET was 0.35 to 0.67 ms, and is 0.12 to 0.18 with it
/// (`make cliffs ARGS='--only "9 GET of a large value"'`, three pairs; quiet: 0.15 to 0.2), the transfer as fast.
const NOT_SENT_BYTES_MAX: u32 = 128 << 10;

/// Gives a new socket its options and a worker.
fn hand_over(
    engine: &Engine,
    tls: &Tls,
    workers: &[Worker],
    socket: StdStream,
    address: SocketAddr,
    door: Door,
) {
    let options = SockRef::from(&socket);
    // A socket that refuses an option is closed already: its worker will find out.
    let _ = options.set_tcp_nodelay(true);
    let _ = options.set_tcp_notsent_lowat(NOT_SENT_BYTES_MAX);
    let keepalive_s = engine.config().tcp_keepalive_s();
    if keepalive_s > 0 {
        // As redis-server: three probes in as many thirds of the time.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s))
            .with_interval(Duration::from_secs((keepalive_s / 3).max(1)))
            .with_retries(3);
        let _ = options.set_tcp_keepalive(&keepalive);
    }
    let (index, worker) = workers
        .iter()
        .enumerate()
        .min_by_key(|(_, w)| w.connections())
        .expect("a server has at least one worker");
    let peer = PeerInfo {
        addr: address.to_string(),
        laddr: socket.local_addr().map(|a| a.to_string()).unwrap_or_default(),
        fd: socket.as_raw_fd(),
        worker: index,
        local: address.ip().to_canonical().is_loopback(),
        framing: door.protocol.framing(),
    };
    let tls = if door.tls { tls.current() } else { None };
    worker.serve(Arrival { socket, peer, door, tls });
}

/// What is said when the server takes commands: where it listens, a line for each address, on the standard output, for
/// whoever started it; and a word to the service manager.
struct Ready(Vec<String>);

impl Ready {
    /// Logs that the server has started.
    fn new(listeners: &[Listener], workers: usize) -> io::Result<Ready> {
        let addresses = listeners.iter().map(Listener::address).collect::<io::Result<Vec<_>>>()?;
        let port = addresses.first().map_or(0, |a| a.port());
        tracing::info!(
            "strand {} started, port {port}, workers {workers}, pid {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        );
        let line = |(listener, address): (&Listener, SocketAddr)| {
            format!("Ready to accept {}connections on {address}", listener.door)
        };
        Ok(Ready(listeners.iter().zip(addresses).map(line).collect()))
    }
    fn say(&self, manager: &Manager) {
        let mut out = io::stdout().lock();
        for line in &self.0 {
            // A closed standard output is no reason to stop.
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
        manager.ready();
    }
}

const SIGINT: &str = "SIGINT";

/// The signals that stop a server.
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens for them from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
    /// The name of the next one.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => SIGINT,
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
