//! The main thread's loop. It accepts connections at every door and passes each socket to the worker with the
//! fewest. It also handles signals, SHUTDOWN and CONFIG SET.

use super::ServeError;
use super::door::{Arrival, Door, Listener, ListenerSocket, Place};
use super::host::Request;
use super::listening::ListenerChange;
use super::manager::Manager;
use super::tls::Tls;
use super::unix_socket::SocketFile;
use super::worker::Worker;
use super::{apply_change, logging};
use rustix::process::Signal;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use strand_engine::{Engine, PeerInfo, SaveError, ShutdownRequest};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// Time that a stopping server gives to commands that are running and to replies that are not sent.
const STOP_GRACE_MS: u64 = 5_000;
/// Pause after a failed `accept` (no descriptors left), because another `accept` would fail at once.
const ACCEPT_PAUSE_MS: u64 = 50;
/// Minimum time between two log lines about a failed `accept`.
const ACCEPT_LOG_MS: u64 = 1_000;

/// Time for which connections wait in the kernel while the data is loaded. Small data is loaded within this time, so a
/// client that connects as soon as the port is open gets no LOADING error. redis-server, too, loads the first 2 MB of
/// data before it answers.
const LOADING_HOLD_MS: u64 = 200;

/// What the accept loop uses besides the doors and workers: requests, signals, the log level, the service manager.
pub struct AcceptContext<'a> {
    /// Requests of the engine.
    pub inbox: UnboundedReceiver<Request>,
    pub level: &'a logging::LogLevel,
    pub signals: &'a mut Signals,
    pub manager: &'a Manager,
}

/// Accepts connections until the server must stop. Returns the time that running commands then have to finish.
///
/// # Errors
/// When the runtime cannot take over the listeners, or the data cannot be loaded.
pub async fn accept_until_stopped(
    engine: &Arc<Engine>,
    listeners: Vec<Listener>,
    tls: &Tls,
    workers: &[Worker],
    context: AcceptContext<'_>,
) -> Result<Duration, ServeError> {
    let AcceptContext { mut inbox, level, signals, manager } = context;
    let grace = Duration::from_millis(STOP_GRACE_MS);
    // The handler is set before the server reports that it is ready, because a SIGHUP without a handler would end the
    // server.
    let mut hangups = signal(SignalKind::hangup())?;
    // redis-server survives this signal, which its watchdog uses.
    let _alarms = signal(SignalKind::alarm())?;
    // With a handler, a file that grows beyond the limit (`ulimit -f`) is an error of the write, as on a full disk.
    let _large_files = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let mut ready = Some(Ready::new(&listeners, workers.len()));
    if !engine.is_loading() {
        announce(&mut ready, engine, manager);
    }
    let mut doors = Doors::new(listeners)?;
    let mut holds_for_loading = engine.is_loading();
    let mut end_of_hold = pin!(tokio::time::sleep(Duration::from_millis(LOADING_HOLD_MS)));
    let (mut paused, mut logged_at) = (false, None::<Instant>);
    let mut saving: Option<FinalSave> = None;
    loop {
        tokio::select! {
            accepted = doors.accept(), if !paused && !holds_for_loading => match accepted {
                Ok(accepted) => assign_to_worker(engine, tls, workers, accepted),
                Err(e) => {
                    paused = true;
                    if logged_at.is_none_or(|at| at.elapsed() >= Duration::from_millis(ACCEPT_LOG_MS)) {
                        tracing::warn!("cannot accept a connection: {e}");
                        logged_at = Some(Instant::now());
                    }
                }
            },
            () = tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)), if paused => paused = false,
            () = &mut end_of_hold, if holds_for_loading => holds_for_loading = false,
            name = signals.next() => {
                if saving.as_ref().is_some_and(|saving| !saving.given_up.load(Relaxed)) {
                    signal_while_stopping(name);
                    continue;
                }
                let request = engine.on_signal(name == SIGINT);
                let time = if request.now { Duration::ZERO } else { grace };
                match engine.end_at_once(request) {
                    Some(Ok(())) => {
                        tracing::info!("{name}: stopping");
                        return Ok(time);
                    }
                    Some(Err(why)) => refuse_to_stop(name, &why),
                    None => {
                        tracing::info!("{name}: saving, then stopping");
                        match end_on_thread(engine, request) {
                            Ok((given_up, done)) => saving = Some(FinalSave { name, grace: time, given_up, done }),
                            Err(why) => refuse_to_stop(name, &SaveError::Failed(format!("the system cannot start a thread: {why}"))),
                        }
                    }
                }
            }
            saved = final_save(&mut saving) => match saved {
                (_, time, Ok(())) => return Ok(time),
                (name, _, Err(why)) => {
                    saving = None;
                    refuse_to_stop(name, &why);
                }
            },
            _ = hangups.recv() => match tls.reload(engine.config()) {
                Ok(true) => tracing::info!("SIGHUP: the certificates were reloaded"),
                Ok(false) => tracing::info!("SIGHUP: neither a port nor tls-replication uses TLS, so there are no certificates to reload"),
                Err(why) => tracing::warn!("SIGHUP: the TLS configuration is unchanged: {why}"),
            },
            request = inbox.recv() => match request {
                Some(Request::Loaded(Ok(()))) => {
                    holds_for_loading = false;
                    announce(&mut ready, engine, manager);
                }
                Some(Request::Loaded(Err(error))) => return Err(error.into()),
                Some(Request::Listen(change)) => doors.change(change),
                Some(Request::Changed(name)) => apply_change(engine, workers, level, &name),
                Some(Request::Stop(request)) => {
                    tracing::info!("SHUTDOWN: stopping");
                    return Ok(if request.now { Duration::ZERO } else { grace });
                }
                // `recv` never returns `None`, because the engine holds the sender for its whole life.
                None => return Ok(grace),
            },
        }
    }
}

/// Handles a signal of a server that is already stopping. As in redis-server, SIGINT ends the process at once, because a person
/// insists. SIGTERM changes nothing, because service managers repeat the signal, and data that is being saved would be lost.
pub fn signal_while_stopping(name: &str) {
    if name == SIGINT {
        tracing::warn!("{name}: the server was stopping, and ends at once, without a save");
        std::process::exit(1);
    }
    tracing::info!(
        "{name}: the server is already stopping. To end the server at once, without a save, send SIGINT"
    );
}

/// Logs that the server goes on after the signal `name`.
fn refuse_to_stop(name: &str, why: &SaveError) {
    if matches!(why, SaveError::Aborted) {
        return tracing::info!("{name}: the server goes on, because a client sent SHUTDOWN ABORT");
    }
    tracing::warn!("{name}: the server goes on, because it cannot stop: {why}");
}

/// The final save that a signal started.
struct FinalSave {
    name: &'static str,
    /// Time that running commands get after the save.
    grace: Duration,
    /// Set when the save is given up: another signal begins anew.
    given_up: Arc<AtomicBool>,
    done: Outcome,
}

/// Waits for the end of the final save. Returns the signal's name, the grace time and the result of the save. Never
/// ready without a save.
async fn final_save(saving: &mut Option<FinalSave>) -> (&'static str, Duration, Result<(), SaveError>) {
    match saving {
        Some(FinalSave { name, grace, done, .. }) => {
            let done = done
                .await
                .unwrap_or_else(|_| Err(SaveError::Failed("the server is already stopping".into())));
            (*name, *grace, done)
        }
        None => std::future::pending().await,
    }
}

/// Starts the final save on a separate thread, while the workers still serve clients.
fn end_on_thread(engine: &Arc<Engine>, request: ShutdownRequest) -> io::Result<(Arc<AtomicBool>, Outcome)> {
    let (sender, outcome) = oneshot::channel();
    // The message is lost only after a second signal, because the main thread then no longer waits for the save.
    let given_up = engine.end_on_thread(request, move |_, ended| _ = sender.send(ended.clone()))?;
    Ok((given_up, outcome))
}

/// The outcome of an end of the server, when there is one.
type Outcome = oneshot::Receiver<Result<(), SaveError>>;

/// All listeners, and the index of the listener that is asked first for the next connection.
struct Doors {
    listeners: Vec<(AsyncListener, Door)>,
    next: usize,
}

/// A listener of the runtime.
enum AsyncListener {
    Tcp(TcpListener),
    /// The file comes first, as in [`UnixSocket`]: the drop removes it while the socket still listens.
    ///
    /// [`UnixSocket`]: super::unix_socket::UnixSocket
    Unix(SocketFile, UnixListener),
}

/// A new connection.
struct Accepted {
    socket: StdStream,
    /// The addresses of the peer and of the server's end, as [`PeerInfo`] has them.
    addr: String,
    laddr: String,
    is_local: bool,
    is_unix: bool,
    door: Door,
}

impl Doors {
    fn new(listeners: Vec<Listener>) -> io::Result<Doors> {
        let listeners = listeners.into_iter().map(|l| Ok((AsyncListener::new(l.socket)?, l.door)));
        Ok(Doors { listeners: listeners.collect::<io::Result<Vec<_>>>()?, next: 0 })
    }
    /// Closes some listeners and adds others.
    fn change(&mut self, mut change: ListenerChange) {
        let is_closed = |listener: &AsyncListener, door: &Door| {
            listener.address().is_some_and(|address| change.closed.contains(&Place { door: *door, address }))
        };
        self.listeners.retain(|(listener, door)| !is_closed(listener, door));
        for Listener { socket, door } in std::mem::take(&mut change.opened) {
            match AsyncListener::new(socket) {
                Ok(listener) => {
                    if let Some(address) = listener.address() {
                        tracing::info!("Ready to accept {door}connections on {address}");
                    }
                    self.listeners.push((listener, door));
                }
                // The runtime has no room for the socket, so the system is out of memory.
                Err(why) => tracing::warn!("cannot accept {door}connections: {why}"),
            }
        }
    }
    /// Waits for the next connection of any listener. The listeners take turns.
    async fn accept(&mut self) -> io::Result<Accepted> {
        std::future::poll_fn(|cx| {
            for i in 0..self.listeners.len() {
                let at = (self.next + i) % self.listeners.len();
                let (listener, door) = &self.listeners[at];
                if let Poll::Ready(accepted) = listener.poll_accept(*door, cx) {
                    self.next = at + 1;
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl AsyncListener {
    fn new(socket: ListenerSocket) -> io::Result<AsyncListener> {
        Ok(match socket {
            ListenerSocket::Tcp(socket) => AsyncListener::Tcp(TcpListener::from_std(socket)?),
            ListenerSocket::Unix(socket) => {
                AsyncListener::Unix(socket.file, UnixListener::from_std(socket.listener)?)
            }
        })
    }
    /// The address, with its port. `None` for a file.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            AsyncListener::Tcp(listener) => listener.local_addr().ok(),
            AsyncListener::Unix(..) => None,
        }
    }
    fn poll_accept(&self, door: Door, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        Poll::Ready(Ok(match self {
            AsyncListener::Tcp(listener) => {
                let (socket, address) = ready!(listener.poll_accept(cx))?;
                let socket = socket.into_std()?;
                let laddr = socket.local_addr().map(|a| a.to_string()).unwrap_or_default();
                let is_local = address.ip().to_canonical().is_loopback();
                Accepted { socket, addr: address.to_string(), laddr, is_local, is_unix: false, door }
            }
            AsyncListener::Unix(file, listener) => {
                let (socket, _) = ready!(listener.poll_accept(cx))?;
                let socket = OwnedFd::from(socket.into_std()?).into();
                // As in redis-server, both ends have the name of the file.
                let addr = format!("{}:0", file.name);
                Accepted { socket, laddr: addr.clone(), addr, is_local: true, is_unix: true, door }
            }
        }))
    }
}

/// Maximum number of unsent bytes that the kernel buffers for a connection (TCP_NOTSENT_LOWAT). Without a limit the
/// kernel takes megabytes. When a slow reader then opens its window, the kernel sends them all at once, on the
/// worker's time. While 256 MB went out on one connection, p99.9 of GET on another was 0.35 to 0.67 ms; with the
/// limit it is 0.12 to 0.18 ms, and the transfer is as fast (`make cliffs ARGS='--only "9 GET of a large value"'`,
/// three pairs; without load: 0.15 to 0.2 ms).
const NOT_SENT_BYTES_MAX: u32 = 128 << 10;

/// Sets the options of a new socket and assigns a worker.
fn assign_to_worker(engine: &Engine, tls: &Tls, workers: &[Worker], accepted: Accepted) {
    let Accepted { socket, addr, laddr, is_local, is_unix, door } = accepted;
    if !is_unix {
        set_tcp_options(&socket, engine.config().tcp_keepalive_s());
    }
    let (index, worker) = workers
        .iter()
        .enumerate()
        .min_by_key(|(_, w)| w.connections())
        .expect("a server has at least one worker");
    let peer = PeerInfo {
        addr,
        laddr,
        fd: socket.as_raw_fd(),
        worker: index,
        local: is_local,
        unix: is_unix,
        framing: door.protocol.framing(),
    };
    let tls = if door.tls { tls.current() } else { None };
    worker.serve(Arrival { socket, peer, door, tls });
}

fn set_tcp_options(socket: &StdStream, keepalive_s: u64) {
    let options = SockRef::from(socket);
    // Errors do not matter: a socket that refuses an option is already closed, and the worker will notice.
    let _ = options.set_tcp_nodelay(true);
    let _ = options.set_tcp_notsent_lowat(NOT_SENT_BYTES_MAX);
    if keepalive_s > 0 {
        // As in redis-server, three probes follow, each a third of `tcp-keepalive` after the one before.
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s))
            .with_interval(Duration::from_secs((keepalive_s / 3).max(1)))
            .with_retries(3);
        let _ = options.set_tcp_keepalive(&keepalive);
    }
}

/// The report that the server accepts connections: one line per address.
struct Ready(Vec<String>);

impl Ready {
    /// Logs that the server has started.
    fn new(listeners: &[Listener], workers: usize) -> Ready {
        let port = listeners.first().and_then(Listener::port).unwrap_or(0);
        tracing::info!(
            "strand {} started, port {port}, workers {workers}, pid {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        );
        let line = |l: &Listener| format!("Ready to accept {}connections on {}", l.door, l.address());
        Ready(listeners.iter().map(line).collect())
    }
}

/// Reports once that the server accepts connections. Loading may end before the loop of [`accept_until_stopped`] begins, and
/// the message about its end still comes.
fn announce(ready: &mut Option<Ready>, engine: &Engine, manager: &Manager) {
    let Some(Ready(lines)) = ready.take() else { return };
    // The standard output has the plain lines, because scripts wait for them. A log of plain lines is on the standard error,
    // at the same terminal, so it would only repeat them.
    let config = engine.config();
    let is_log_elsewhere = !config.logfile().is_empty() || config.log_format() == "json";
    let mut out = io::stdout().lock();
    for line in &lines {
        if is_log_elsewhere {
            tracing::info!("{line}");
        }
        // A closed standard output does not stop the server.
        let _ = writeln!(out, "{line}");
    }
    let _ = out.flush();
    manager.ready();
}

const SIGINT: &str = "SIGINT";

/// The signals that stop a server.
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Starts listening for the signals.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => SIGINT,
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
