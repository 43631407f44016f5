//! A worker: one thread, one event loop, and its connections for their whole life.
//!
//! [`Worker`] is the acceptor's handle. [`Shared`] is what all workers use, and [`Context`] belongs to one worker.

use super::clock::Clock;
use super::connection;
use super::departures::Departures;
use super::door::{Arrival, Protocol};
use super::host::IoDriverCounts;
use super::http;
use super::lane::LanePool;
use super::socket::drive;
use super::threads;
use super::tls_stream::TlsStreamError;
use super::wake::{WakeCell, WakeQueue};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strand_engine::{Config, Delivery, Engine, Wake};
use strand_ring::Ring;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

/// Maximum number of new connections that a worker takes in one turn. In a burst of thousands, existing connections
/// then wait only a fraction of a millisecond at a time.
const ARRIVALS_PER_TURN_MAX: usize = 16;

/// With `io-driver auto`, a connection begins polled while its worker has at most this many connections. Polling was
/// cheaper with 2 connections, equal with 17, and dearer with 32 ([`super::socket`] has figures).
const POLLED_CONNECTIONS: usize = 4;

/// Maximum number of warnings about peers in an interval.
const WARNINGS_MAX: u32 = 10;
/// Length of the interval of [`WARNINGS_MAX`], in milliseconds.
const WARN_MS: u64 = 10_000;
/// Pause of the delivery of messages while a subscriber has much to read.
const READS_PAUSE: Duration = Duration::from_millis(1);

/// What every worker shares.
#[derive(Clone)]
pub struct Shared {
    /// The engine that all workers share.
    pub engine: Arc<Engine>,
    /// The clock of the server.
    pub clock: Clock,
    /// The threads of the lanes.
    pub lanes: LanePool,
    /// How each worker drives its sockets.
    pub loops: Arc<IoDriverCounts>,
    /// See [`polled_max`].
    pub polled_max: usize,
}

/// Number of connections up to which a worker does not use its ring.
pub fn polled_max(config: &Config) -> usize {
    if config.io_driver() == "auto" { POLLED_CONNECTIONS } else { 0 }
}

/// Messages to a worker.
enum Message {
    /// Serve this connection.
    Serve(Arrival),
    /// Wake every connection, to check its settings again.
    RecheckSettings,
    /// Finish running commands, but end after this time at the latest.
    Stop(Duration),
}

/// The acceptor's handle to a worker thread.
pub struct Worker {
    messages: UnboundedSender<Message>,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts worker number `index`, which tries for an io_uring with `rings`. Waits until the worker has its
    /// buffers, so that a server that takes connections has allocated what it needs for them.
    ///
    /// # Errors
    /// When the system gives no thread or no event queue.
    pub fn start(index: usize, shared: Shared, rings: bool) -> io::Result<Worker> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (messages, inbox) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let thread = threads::spawn(&format!("worker-{index}"), move || {
            let ring = rings.then(|| start_ring(index, &shared.loops)).flatten();
            let context = Rc::new(Context {
                ring,
                engine: shared.engine,
                clock: shared.clock,
                lanes: shared.lanes,
                loops: shared.loops,
                polled_max: shared.polled_max,
                stopping: Cell::new(false),
                busy: Cell::new(0),
                prefetching: Cell::new(0),
                without_session: Cell::new(0),
                connections: count,
                all_closed: Notify::new(),
                wakes: RefCell::default(),
                wake_queue: Arc::default(),
                next_id: Cell::new(0),
                departures: Departures::default(),
                rng: RefCell::new(fastrand::Rng::new()),
                warnings: Cell::new(None),
            });
            // Notify the thread that starts this worker, because that thread waits until the worker is ready.
            let _ = ready.send(());
            // Dropping the tasks ends the remaining connections when the grace time is over.
            LocalSet::new().block_on(&runtime, run_worker(index, inbox, context));
        })?;
        is_ready.recv().map_err(|_| io::Error::other(format!("worker {index} ended before it was ready")))?;
        Ok(Worker { messages, connections, thread })
    }
    /// Number of connections that were assigned to this worker and have not ended yet.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
    /// Assigns a connection to this worker.
    pub fn serve(&self, arrival: Arrival) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        // If the worker is gone, the server stops, and the socket is closed here.
        let _ = self.messages.send(Message::Serve(arrival));
    }
    /// Makes every connection check its settings again.
    pub fn recheck_settings(&self) {
        let _ = self.messages.send(Message::RecheckSettings);
    }
    /// Makes the worker finish what is in flight within `grace`, then end.
    pub fn stop(&self, grace: Duration) {
        let _ = self.messages.send(Message::Stop(grace));
    }
    /// Waits for the end of the worker.
    pub fn join(self) {
        // The panic hook has logged a panic of the worker itself.
        let _ = self.thread.join();
    }
}

/// What the connections of one worker share.
pub struct Context {
    pub(super) engine: Arc<Engine>,
    pub(super) clock: Clock,
    pub(super) lanes: LanePool,
    ring: Option<Ring>,
    loops: Arc<IoDriverCounts>,
    polled_max: usize,
    stopping: Cell<bool>,
    /// Number of connections that yielded and have more to do.
    busy: Cell<usize>,
    /// Number of connections that yielded while memory for their request arrives.
    prefetching: Cell<usize>,
    /// Number of HTTP connections without a session.
    without_session: Cell<usize>,
    connections: Arc<AtomicUsize>,
    all_closed: Notify,
    wakes: RefCell<HashMap<u64, Arc<WakeCell>>>,
    /// The woken tasks that wait for their turn.
    wake_queue: Arc<WakeQueue>,
    next_id: Cell<u64>,
    pub(super) departures: Departures,
    rng: RefCell<fastrand::Rng>,
    /// Start of the current interval, and the number of warnings in the interval.
    warnings: Cell<Option<(Instant, u32)>>,
}

impl Context {
    /// True when the server stops: finish running commands and close.
    pub fn stopping(&self) -> bool {
        self.stopping.get()
    }
    /// The ring, if the worker has one and should use it for its connections now.
    pub(super) fn ring_in_use(&self) -> Option<&Ring> {
        self.ring.as_ref().filter(|ring| self.wakes.borrow().len() > self.polled_max && !ring.has_failed())
    }
    /// Counts a connection that has more to do, while the returned value lives.
    pub fn busy(&self) -> Counted<'_> {
        Counted::begin(&self.busy)
    }
    /// True when a connection has more to do. A task that yields now waits for a whole turn of that connection.
    pub fn is_busy(&self) -> bool {
        self.busy.get() > 0
    }
    /// Counts a connection that yields while memory for its request arrives, while the returned value lives.
    pub fn prefetching(&self) -> Counted<'_> {
        Counted::begin(&self.prefetching)
    }
    /// True while a connection has yielded with a request that it has not executed.
    pub fn is_prefetching(&self) -> bool {
        self.prefetching.get() > 0
    }
    /// Counts a connection without a session, while the returned value lives. `None` when there are `max` already.
    pub fn without_session(&self, max: usize) -> Option<Counted<'_>> {
        (self.without_session.get() < max).then(|| Counted::begin(&self.without_session))
    }
    /// A seed for a session's randomness.
    pub fn seed(&self) -> u64 {
        self.rng.borrow_mut().u64(..)
    }
    /// True when one more warning about a peer may be logged. The limit keeps faults of peers from filling the log.
    pub fn may_warn(&self) -> bool {
        let (since, count) = match self.warnings.get() {
            Some((since, count)) if since.elapsed() < Duration::from_millis(WARN_MS) => (since, count),
            _ => (Instant::now(), 0),
        };
        self.warnings.set(Some((since, count.saturating_add(1))));
        count < WARNINGS_MAX
    }
    fn wake_all(&self) {
        self.wakes.borrow().values().for_each(|w| w.wake());
    }
}

/// Counts a connection while this value lives: see [`Context::busy`], [`Context::prefetching`] and [`Context::without_session`].
pub struct Counted<'c> {
    count: &'c Cell<usize>,
}

impl Counted<'_> {
    fn begin(count: &Cell<usize>) -> Counted<'_> {
        count.set(count.get() + 1);
        Counted { count }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

fn start_ring(index: usize, loops: &IoDriverCounts) -> Option<Ring> {
    match Ring::start() {
        Ok(ring) => Some(ring),
        Err(e) => {
            loops.count_without_ring();
            tracing::warn!("worker {index} has no io_uring ({e}) and uses epoll");
            None
        }
    }
}

async fn run_worker(index: usize, mut inbox: UnboundedReceiver<Message>, context: Rc<Context>) {
    let wake_queue = context.wake_queue.clone();
    wake_queue.own();
    if let Some(ring) = context.ring.clone() {
        let (loops, wake_queue) = (context.loops.clone(), wake_queue.clone());
        tokio::task::spawn_local(async move {
            if let Err(e) = drive(&ring, || wake_queue.wake_tasks()).await {
                ring.fail(&e);
                loops.count_without_ring();
                tracing::error!("io_uring failed: {e}; its connections are closed, new ones use epoll");
            }
        });
    }
    tokio::task::spawn_local(async move { wake_queue.serve().await });
    let of_departures = context.clone();
    tokio::task::spawn_local(async move { of_departures.departures.serve().await });
    tokio::task::spawn_local(deliver_messages(index, context.clone()));
    let mut arrivals = 0;
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Serve(arrival) => {
                context.departures.arrived();
                let guard = Guard::new(&context);
                tokio::task::spawn_local(serve_connection(arrival, guard));
                arrivals += 1;
                if arrivals == ARRIVALS_PER_TURN_MAX {
                    arrivals = 0;
                    tokio::task::yield_now().await;
                }
            }
            Message::RecheckSettings => context.wake_all(),
            Message::Stop(grace) => {
                context.stopping.set(true);
                context.wake_all();
                let _ = tokio::time::timeout(grace, async {
                    while !context.wakes.borrow().is_empty() {
                        context.all_closed.notified().await;
                    }
                })
                .await;
                return;
            }
        }
    }
}

/// Delivers published messages to the subscribers among the worker's connections. Between deliveries the task yields to
/// the connections.
async fn deliver_messages(index: usize, context: Rc<Context>) {
    let wake = Arc::new(WakeCell::new(&context.wake_queue));
    context.engine.set_delivery_wake(index, wake.clone());
    loop {
        match context.engine.deliver(index) {
            Delivery::Done => std::future::poll_fn(|cx| wake.poll(cx)).await,
            Delivery::More => {
                let _busy = context.busy();
                tokio::task::yield_now().await;
            }
            Delivery::AfterReads => tokio::time::sleep(READS_PAUSE).await,
        }
    }
}

async fn serve_connection(arrival: Arrival, guard: Guard) {
    let (address, at, door) = (arrival.peer.addr.clone(), arrival.peer.laddr.clone(), arrival.door);
    let served = match door.protocol {
        Protocol::Http => http::serve(arrival, guard.wake.clone(), &guard.context).await,
        Protocol::Resp | Protocol::Pack4 => {
            connection::serve(arrival, guard.wake.clone(), &guard.context).await
        }
    };
    match served {
        Ok(end) => tracing::debug!("{door}connection from {address} at {at}: {end}"),
        Err(e) if TlsStreamError::is(&e) && guard.context.may_warn() => {
            tracing::warn!("{door}connection from {address} at {at}: {e}");
        }
        Err(e) => tracing::debug!("{door}connection from {address} at {at}: {e}"),
    }
}

/// Counts a connection while its task lives, even if the task panics.
struct Guard {
    context: Rc<Context>,
    wake: Arc<WakeCell>,
    id: u64,
}

impl Guard {
    fn new(context: &Rc<Context>) -> Guard {
        let id = context.next_id.get();
        context.next_id.set(id + 1);
        let wake = Arc::new(WakeCell::new(&context.wake_queue));
        context.wakes.borrow_mut().insert(id, wake.clone());
        Guard { context: context.clone(), wake, id }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut wakes = self.context.wakes.borrow_mut();
        wakes.remove(&self.id);
        self.context.connections.fetch_sub(1, Ordering::Relaxed);
        if wakes.is_empty() {
            self.context.all_closed.notify_one();
        }
    }
}
