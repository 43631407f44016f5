//! The simulated world: tasks that the seed interrupts and continues, a clock, and the [`Host`] of the engine.
//!
//! A connection, a job on a helper thread and a thread of the engine are a coroutine each. They may be interrupted
//! where a real thread may be and no shard is locked: between their steps, where the engine reads the clock, where a
//! job yields, and where the engine waits for a [`Signal`]. (While a task holds shards, no other task can use them, so
//! an interruption there would show nothing.)

use super::client::{Client, Wire};
use super::plan::{KEYS, last_looks, rescue};
use super::{Failure, Run};
use fastrand::Rng;
use generator::{Generator, Gn};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use strand_commands::call::{LaneCall, ServiceOutcome, ServiceRun};
use strand_engine::{
    Config, CpuFacts, Engine, Host, HostFigures, HostFiles, HostLog, HostServices, HostThreads, LaneJob,
    MemoryFacts, Now, PeerInfo, ServerFacts, Session, ShutdownRequest, Signal, Turn,
};
use strand_keyspace::{Keyspace, Value};
use strand_testkit::linearizability::{Call, Request, Step};
use strand_wire::client::Value as Answer;

const UNIX_US: i64 = 1_700_000_000_000_000;
/// Stack of a coroutine in words: 2 MiB, of which only used pages take memory.
const STACK_WORDS: usize = 1 << 18;
/// A seed that takes more steps than this counts as stuck.
const STEPS_MAX: usize = 400_000;
/// A seed that takes more simulated microseconds than this counts as stuck.
const TIME_US_MAX: u64 = 20_000_000;
/// Number of steps between two checks whether clients wait forever.
const STEPS_PER_CHECK: usize = 1000;
/// Maximum number of times that clients which wait forever are rescued.
const RESCUES_MAX: usize = 30;

/// A planted bug, to see that the check finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The fault: an overwritten value comes back.
    LostUpdate,
    /// EXEC lets other clients in between its commands.
    TornTransaction,
    /// The fault: a session is not woken.
    LostWake,
    /// The fault: the engine's clock runs at half speed.
    SlowClock,
}

/// What a task waits for.
enum Need {
    /// Nothing. The task may continue.
    Go,
    /// A connection: it waits to be woken, for bytes if it takes some, or for a time.
    Wire { input: bool, until_us: Option<u64> },
    /// A count: the task waits until it differs from `seen`, or for a time.
    Change { count: Arc<AtomicU64>, seen: u64, until_us: Option<u64> },
}

/// What tasks, host and clients share.
pub struct Shared {
    clock_us: AtomicU64,
    rng: Mutex<Rng>,
    keyspace: Arc<Keyspace>,
    garbage: Mutex<Vec<Box<dyn Send>>>,
    new_tasks: Mutex<Vec<Task>>,
    interruptions: AtomicUsize,
    pub fault: Option<Fault>,
}

impl Shared {
    fn now(&self) -> Now {
        let mono_us = match self.fault {
            Some(Fault::SlowClock) => self.clock_us.load(Relaxed) / 2,
            _ => self.clock_us.load(Relaxed),
        };
        Now { unix_us: UNIX_US + mono_us as i64, mono_us }
    }
    /// The clients' clock.
    pub fn unix_ns(&self) -> u64 {
        (UNIX_US as u64 + self.clock_us.load(Relaxed)) * 1000
    }
    fn chance(&self, one_in: u32) -> bool {
        self.rng.lock().u32(0..one_in) == 0
    }
    /// True when no task holds a shard.
    fn is_free(&self) -> bool {
        let all: Vec<usize> = (0..self.keyspace.shards()).collect();
        self.keyspace.try_lock_shards(&all, &mut self.keyspace.unlocked(0))
    }
    /// A point at which the task may be interrupted.
    fn pause(&self, need: Need) {
        if generator::is_generator() && self.is_free() {
            self.interruptions.fetch_add(1, Relaxed);
            suspend(need);
        }
    }
}

/// Runs other tasks until this one is chosen again.
#[expect(deprecated, reason = "the host is called from deep within: it has no scope")]
fn suspend(need: Need) {
    generator::yield_with(Some(need));
}

struct SimHost(Arc<Shared>);

/// A counter on whose value tasks wait.
struct Count {
    shared: Arc<Shared>,
    count: Arc<AtomicU64>,
}

impl Signal for Count {
    fn changes(&self) -> u64 {
        self.count.load(SeqCst)
    }
    fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool {
        let until_us = at_most_us.map(|us| self.shared.clock_us.load(Relaxed) + us);
        suspend(Need::Change { count: self.count.clone(), seen, until_us });
        self.changes() != seen
    }
    fn notify(&self) {
        self.count.fetch_add(1, SeqCst);
    }
}

impl Host for SimHost {
    fn mono_us(&self) -> u64 {
        if self.0.chance(4) {
            self.0.pause(Need::Go);
        }
        self.0.now().mono_us
    }
    fn now(&self) -> Now {
        self.0.now()
    }
    fn shutdown(&self, _request: ShutdownRequest) {}
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.0.rng.lock().fill(bytes);
        Ok(())
    }
}

impl HostServices for SimHost {
    fn run_service(&self, _run: ServiceRun, call: &mut LaneCall<'_>) -> ServiceOutcome {
        call.reply.error("ERR no services here");
        ServiceOutcome::Done
    }
    fn info_search(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl HostFiles for SimHost {
    fn read_acl_file(&self, _path: &str) -> io::Result<Vec<u8>> {
        Err(io::Error::other("there are no files"))
    }
    fn write_acl_file(&self, _path: &str, _text: &dyn Fn() -> Vec<u8>) -> io::Result<()> {
        Err(io::Error::other("there are no files"))
    }
}

impl HostLog for SimHost {}

impl HostThreads for SimHost {
    fn reclaim(&self, garbage: Box<dyn Send>) {
        self.0.garbage.lock().push(garbage);
    }
    fn spawn(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.0.new_tasks.lock().push(Task::new(None, work));
        Ok(())
    }
    fn signal(&self) -> Box<dyn Signal> {
        Box::new(Count { shared: self.0.clone(), count: Arc::default() })
    }
    fn yield_now(&self) {
        self.0.pause(Need::Go);
    }
    fn nap_us(&self, us: u64) {
        let until_us = Some(self.0.clock_us.load(Relaxed) + us);
        self.0.pause(Need::Change { count: Arc::default(), seen: 0, until_us });
    }
}

impl HostFigures for SimHost {
    fn memory(&self) -> MemoryFacts {
        MemoryFacts::default()
    }
    fn cpu(&self) -> CpuFacts {
        CpuFacts::default()
    }
}

/// A coroutine that stands for a thread of the real server.
struct Task {
    body: Generator<'static, (), Option<Need>>,
    need: Need,
    wire: Option<Arc<Wire>>,
}

impl Task {
    fn new(wire: Option<Arc<Wire>>, work: impl FnOnce() + Send + 'static) -> Task {
        let body = Gn::new_opt(STACK_WORDS, move || {
            work();
            None
        });
        Task { body, need: Need::Go, wire }
    }
    fn is_ready(&self, now_us: u64) -> bool {
        let is_time = |until_us: &Option<u64>| until_us.is_some_and(|until_us| until_us <= now_us);
        match (&self.need, &self.wire) {
            (Need::Wire { input, until_us }, Some(wire)) => {
                let comes = *input && !wire.to_server.lock().is_empty();
                comes || wire.woken.load(Relaxed) || wire.closed.load(Relaxed) || is_time(until_us)
            }
            (Need::Change { count, seen, until_us }, _) => count.load(SeqCst) != *seen || is_time(until_us),
            _ => true,
        }
    }
    fn until_us(&self) -> Option<u64> {
        match &self.need {
            Need::Wire { until_us, .. } | Need::Change { until_us, .. } => *until_us,
            Need::Go => None,
        }
    }
}

/// The engine's side of a connection, like the driver's.
fn serve(
    shared: &Arc<Shared>,
    engine: &Arc<Engine>,
    wire: &Arc<Wire>,
    peer: PeerInfo,
    jobs: &Arc<AtomicUsize>,
) {
    let seed = shared.rng.lock().u64(..);
    let Ok(mut session) = Session::open(engine, peer, wire.clone(), seed, shared.now()) else { return };
    let mut need = Need::Wire { input: true, until_us: None };
    loop {
        if session.output().is_empty() {
            suspend(std::mem::replace(&mut need, Need::Go));
        } else {
            let out = session.output();
            let bytes: Vec<u8> = out.slices().flatten().copied().collect();
            let n = shared.rng.lock().usize(1..=bytes.len());
            out.advance(n);
            wire.to_client.lock().extend(&bytes[..n]);
            shared.pause(Need::Go);
        }
        if wire.closed.load(Relaxed) {
            return;
        }
        wire.woken.store(false, Relaxed);
        if let Some(done) = wire.done.lock().take() {
            session.lane_done(done);
        }
        feed(shared, &mut session, wire);
        let turn = session.run(shared.now());
        let input = session.wants_read();
        need = match turn {
            Turn::Read => Need::Wire { input: true, until_us: None },
            Turn::Again | Turn::Flush => Need::Go,
            Turn::Lane(job) => {
                jobs.fetch_add(1, Relaxed);
                run_apart(shared, job, wire.clone());
                Need::Wire { input, until_us: None }
            }
            Turn::AwaitWake => Need::Wire { input, until_us: None },
            Turn::Blocked { until_mono_us } => Need::Wire { input, until_us: until_mono_us },
            Turn::Sleep { until_mono_us } => Need::Wire { input, until_us: Some(until_mono_us) },
            Turn::Close | Turn::Abort => return,
        };
    }
}

/// Gives the session a piece of the received bytes.
fn feed(shared: &Shared, session: &mut Session, wire: &Wire) {
    let mut bytes = wire.to_server.lock();
    if bytes.is_empty() || !session.wants_read() {
        return;
    }
    let mut rng = shared.rng.lock();
    // Often feed all bytes, so that pipelines run in one turn.
    let n = if rng.bool() { bytes.len() } else { rng.usize(1..=bytes.len()) };
    drop(rng);
    let target = session.read_target();
    let n = n.min(target.len());
    bytes.drain(..n).zip(target).for_each(|(byte, place)| *place = byte);
    session.received(n);
}

/// Runs the job on a helper thread.
fn run_apart(shared: &Arc<Shared>, job: Box<LaneJob>, wire: Arc<Wire>) {
    let host = shared.clone();
    let work = move || {
        host.pause(Need::Go);
        let done = job.run(host.now(), &|| host.pause(Need::Go));
        *wire.done.lock() = Some(done);
        wire.woken.store(true, Relaxed);
    };
    shared.new_tasks.lock().push(Task::new(None, work));
}

pub struct World {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
    rng: Rng,
    tasks: Vec<Task>,
    clients: Vec<Client>,
    workers: usize,
    connections: u32,
    pipelines: u64,
    hang_ups: usize,
    jobs: Arc<AtomicUsize>,
    history: Vec<Call<Request>>,
    trace: u64,
    /// An overwritten value that comes back later: its key and the value.
    overwritten: Option<(usize, Value)>,
}

impl World {
    pub fn new(seed: u64, fault: Option<Fault>) -> World {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.usize(1..=4);
        let keyspace = Arc::new(Keyspace::new(1 << rng.u32(0..4), 1, [rng.u64(..), 2, 3, 4]));
        let shared = Arc::new(Shared {
            clock_us: AtomicU64::new(5_000_000),
            rng: Mutex::new(Rng::with_seed(rng.u64(..))),
            keyspace: keyspace.clone(),
            garbage: Mutex::default(),
            new_tasks: Mutex::default(),
            interruptions: AtomicUsize::new(0),
            fault,
        });
        let facts = ServerFacts { workers, ..ServerFacts::default() };
        let host = Arc::new(SimHost(shared.clone()));
        let engine = Engine::new(Config::new(), keyspace, host, facts, shared.now());
        let (clients, calls, hang_ups) = (rng.usize(2..=6), rng.usize(4..20), rng.usize(..2));
        let mut world = World {
            shared,
            engine,
            rng,
            tasks: Vec::new(),
            clients: Vec::new(),
            workers,
            connections: 0,
            pipelines: 0,
            hang_ups,
            jobs: Arc::default(),
            history: Vec::new(),
            trace: seed,
            overwritten: None,
        };
        for _ in 0..clients {
            let client = world.connect(calls, Vec::new());
            world.clients.push(client);
        }
        world
    }
    /// Connects a client that will take `steps` steps.
    fn connect(&mut self, steps: usize, first: Vec<Step>) -> Client {
        self.connections += 1;
        let wire = Wire::new(self.shared.fault == Some(Fault::LostWake) && self.rng.bool());
        let peer = PeerInfo {
            addr: format!("127.0.0.1:{}", 40_000 + self.connections),
            laddr: "127.0.0.1:6379".into(),
            worker: self.connections as usize % self.workers,
            local: true,
            ..PeerInfo::default()
        };
        let (shared, engine, line, jobs) =
            (self.shared.clone(), self.engine.clone(), wire.clone(), self.jobs.clone());
        let task = Task::new(Some(wire.clone()), move || serve(&shared, &engine, &line, peer, &jobs));
        self.tasks.push(task);
        Client::new(self.connections, wire, steps, first)
    }
    /// Runs until all clients are done, and then reads all keys.
    pub fn run(mut self) -> Result<Run, Failure> {
        let mut steps = self.until_done()?;
        let looks = last_looks();
        let last = self.connect(looks.len(), looks);
        self.clients.push(last);
        steps += self.until_done()?;
        for client in &mut self.clients {
            client.hang_up();
        }
        // The remaining tasks end by themselves. No further client connects.
        self.hang_ups = 0;
        for _ in 0..STEPS_MAX {
            if self.tasks.is_empty() {
                break;
            }
            self.step();
        }
        if !self.tasks.is_empty() {
            return Err(Failure::Stuck(format!("{} tasks are left", self.tasks.len())));
        }
        let waits = |is_served: bool| {
            let is_it = |call: &&Call<Request>| {
                call.operation.step.waits_ms().is_some() && (call.reply != Some(Answer::Null)) == is_served
            };
            self.history.iter().filter(is_it).count()
        };
        Ok(Run {
            trace: self.trace,
            steps,
            interruptions: self.shared.interruptions.load(Relaxed),
            jobs: self.jobs.load(Relaxed),
            waits: (waits(true), waits(false)),
            history: self.history,
        })
    }
    fn until_done(&mut self) -> Result<usize, Failure> {
        let (until_us, mut rescues) = (self.shared.clock_us.load(Relaxed) + TIME_US_MAX, 0);
        for step in 0..STEPS_MAX {
            if self.clients.iter().all(Client::is_done) {
                return Ok(step);
            }
            if self.shared.clock_us.load(Relaxed) > until_us {
                break;
            }
            if step % STEPS_PER_CHECK == STEPS_PER_CHECK - 1
                && rescues < RESCUES_MAX
                && !self.clients.iter().any(Client::can_send)
            {
                rescues += 1;
                let steps = rescue();
                let rescuer = self.connect(steps.len(), steps);
                self.clients.push(rescuer);
            }
            self.step();
        }
        let waiting = self.clients.iter().filter(|client| client.is_waiting());
        Err(Failure::Stuck(waiting.map(Client::waits_for).collect::<Vec<_>>().join("; ")))
    }
    /// Takes one decision.
    fn step(&mut self) {
        let passed_us = match self.rng.u8(0..40) {
            0 => self.rng.u64(100..3000),
            _ => self.rng.u64(1..20),
        };
        let now_us = self.shared.clock_us.fetch_add(passed_us, Relaxed) + passed_us;
        let choice = self.rng.u8(0..100);
        self.trace = (self.trace ^ u64::from(choice) ^ passed_us << 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match choice {
            0..30 => self.act(),
            30..33 => self.engine.tick(self.shared.now()),
            33..36 => {
                let worker = self.rng.usize(..self.workers);
                self.engine.deliver(worker);
            }
            36..40 => {
                let garbage = self.shared.garbage.lock().pop();
                drop(garbage);
            }
            40 if self.hang_ups > 0 && self.rng.u8(0..5) == 0 => self.hang_up(),
            41..44 if self.shared.fault == Some(Fault::LostUpdate) => self.lose_update(),
            _ => self.resume(now_us),
        }
    }
    /// Lets a client act.
    fn act(&mut self) {
        let at = self.rng.usize(..self.clients.len());
        let client = &mut self.clients[at];
        if client.can_send() {
            self.pipelines += 1;
            client.send(&mut self.rng, &self.shared, self.pipelines);
        } else {
            let answered = client.read(&mut self.rng, &self.shared);
            self.history.extend(answered.into_iter().map(Call::at_timeout));
        }
    }
    fn hang_up(&mut self) {
        self.hang_ups -= 1;
        let at = self.rng.usize(..self.clients.len());
        let lost = self.clients[at].hang_up();
        self.history.extend(lost);
        let left = self.clients[at].left;
        self.clients[at] = self.connect(left, Vec::new());
    }
    /// Continues a task.
    fn resume(&mut self, now_us: u64) {
        self.tasks.append(&mut self.shared.new_tasks.lock());
        let ready: Vec<usize> = (0..self.tasks.len()).filter(|at| self.tasks[*at].is_ready(now_us)).collect();
        if ready.is_empty() {
            // Unless clients send something, no task has work before the next deadline.
            let next_us = self.tasks.iter().filter_map(Task::until_us).min();
            if let Some(next_us) = next_us.filter(|next_us| *next_us > now_us && self.rng.bool()) {
                self.shared.clock_us.store(next_us, Relaxed);
            }
            return;
        }
        let at = ready[self.rng.usize(..ready.len())];
        let task = &mut self.tasks[at];
        self.trace = (self.trace ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match task.body.resume().flatten() {
            Some(need) => task.need = need,
            None => _ = self.tasks.swap_remove(at),
        }
    }
    /// Plants a bug: an old value of a key comes back.
    fn lose_update(&mut self) {
        if !self.shared.is_free() {
            return;
        }
        let now_ms = self.shared.now().unix_ms();
        let keyspace = &self.shared.keyspace;
        let at = self.overwritten.as_ref().map_or(self.rng.usize(..KEYS), |(key, _)| *key);
        let name = format!("k{at}");
        let key = keyspace.key(name.as_bytes());
        let mut txn = keyspace.lock(&[key.hash], now_ms);
        let mut db = txn.db(0);
        match self.overwritten.take() {
            Some((_, old)) => _ = db.insert(&key, old, None),
            None => self.overwritten = db.peek(&key).map(|record| (at, record.value().to_value())),
        }
    }
}
