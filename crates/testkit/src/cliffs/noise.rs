//! How much of a slow probe was the machine's fault: the kernel counts for every thread how long it ran and how long it was
//! ready to run and did not (`schedstat`), and for every core how long it was idle (`cpuidle`).
//!
//! Of a probe's time this takes away, of the server's core, what the thread that serves the probe waited for it while no
//! other thread of the server ran (a lane thread that takes the worker's core *is* the server's fault); of the client's
//! core, what the probe's own thread waited for it; and once, the greater of what the two cores lost otherwise: time in
//! which a core was not idle and none of the two programs ran. That is what the hypervisor takes from a busy core (the
//! kernel leaves it out of a thread's time); guests' cores stand still for 2 to 9 ms several times a minute. What it takes
//! from an idle core, by waking it late, looks like idleness and stays in the figures, as it all does on a machine that
//! does not count idle time.
//!
//! A thread's counters stand still while it runs undisturbed. So they are read by a thread on the server's core
//! ([`Sampler`]): once that runs, nobody else does. Those of the mark may be old, which makes the server's time longer.

use super::Result;
use crate::process::{Kind, Server};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The cores of the server and of the client.
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// A shorter time is not worth waking a thread on the server's core to see what was stolen of it.
const STOLEN_MIN: Duration = Duration::from_micros(400);

/// The counters of a server's threads and of the calling one.
pub(super) struct Noise {
    server: Arc<ServerFiles>,
    sampler: Sampler,
    client: ClientFiles,
    last: (ServerSide, ClientSide),
}

impl Noise {
    /// Opens the counters; the server's threads are those it has now.
    pub(super) fn watch(server: &Server) -> Result<Noise> {
        let (server, client) = (Arc::new(ServerFiles::open(server)?), ClientFiles::open()?);
        let last = (server.now(), client.now());
        Ok(Noise { sampler: Sampler::start(server.clone())?, server, client, last })
    }

    /// From here on it is counted.
    pub(super) fn mark(&mut self) {
        self.last = (self.server.now(), self.client.now());
    }

    /// What the machine took of `took`, the time since the mark; a new mark.
    pub(super) fn taken(&mut self, took: Duration) -> Duration {
        let may_be_stolen = took >= STOLEN_MIN;
        let sampled = if may_be_stolen { self.sampler.sample() } else { None };
        let server = sampled.unwrap_or_else(|| self.server.now());
        let (before, now) = (self.last, (server, self.client.now()));
        self.last = now;
        let since = |before: u64, now: u64| now.saturating_sub(before);
        let by_own_threads = since(before.0.others_ran_ns, now.0.others_ran_ns);
        let waited =
            since(before.0.serving_waited_ns, now.0.serving_waited_ns).saturating_sub(by_own_threads);
        let at_the_client = since(before.1.own_waited_ns, now.1.own_waited_ns);
        let stolen = |[before, now]: [Core; 2], waited_ns: u64| {
            let (Some(idle), Some(idle_before)) = (now.idle_ns, before.idle_ns) else { return 0 };
            let window = now.at.saturating_duration_since(before.at).as_nanos() as u64;
            let used = since(before.ran_ns, now.ran_ns) + since(idle_before, idle) + waited_ns;
            window.saturating_sub(used)
        };
        let stolen = stolen([before.0.core, now.0.core], waited)
            .max(stolen([before.1.core, now.1.core], at_the_client));
        Duration::from_nanos(waited + at_the_client + if may_be_stolen { stolen } else { 0 })
    }
}

/// A core, as far as one program uses it.
#[derive(Clone, Copy)]
struct Core {
    at: Instant,
    ran_ns: u64,
    /// `None`: nobody counts it.
    idle_ns: Option<u64>,
}

#[derive(Clone, Copy)]
struct ServerSide {
    serving_waited_ns: u64,
    others_ran_ns: u64,
    core: Core,
}

#[derive(Clone, Copy)]
struct ClientSide {
    own_waited_ns: u64,
    core: Core,
}

/// The counters of a server's threads and of its core.
struct ServerFiles {
    serving: Vec<File>,
    others: Vec<File>,
    idle: Vec<File>,
}

impl ServerFiles {
    fn open(server: &Server) -> Result<ServerFiles> {
        let (mut serving, mut others) = (Vec::new(), Vec::new());
        for task in std::fs::read_dir(format!("/proc/{}/task", server.pid()))? {
            let path = task?.path();
            let name = std::fs::read_to_string(path.join("comm"))?;
            let serves = match server.kind {
                Kind::Strand => name.starts_with("worker"),
                Kind::Redis => path.ends_with(server.pid().to_string()),
            };
            let counters = File::open(path.join("schedstat"))?;
            if serves { serving.push(counters) } else { others.push(counters) }
        }
        Ok(ServerFiles { serving, others, idle: idle_files(SERVER_CORE)? })
    }

    fn now(&self) -> ServerSide {
        let sum = |files: &[File], field| files.iter().map(|f| counter(f, field)).sum::<u64>();
        let others_ran_ns = sum(&self.others, RAN);
        let ran_ns = sum(&self.serving, RAN) + others_ran_ns;
        let core = Core { at: Instant::now(), ran_ns, idle_ns: idle_ns(&self.idle) };
        ServerSide { serving_waited_ns: sum(&self.serving, WAITED), others_ran_ns, core }
    }
}

/// The counters of the calling thread and of the client's core.
struct ClientFiles {
    own: File,
    idle: Vec<File>,
}

impl ClientFiles {
    fn open() -> Result<ClientFiles> {
        Ok(ClientFiles { own: File::open("/proc/thread-self/schedstat")?, idle: idle_files(CLIENT_CORE)? })
    }

    fn now(&self) -> ClientSide {
        let ran = clock_gettime(ClockId::ProcessCPUTime);
        let ran_ns = Duration::new(ran.tv_sec as u64, ran.tv_nsec as u32).as_nanos() as u64;
        let core = Core { at: Instant::now(), ran_ns, idle_ns: idle_ns(&self.idle) };
        ClientSide { own_waited_ns: counter(&self.own, WAITED), core }
    }
}

/// A thread on the server's core that reads the server's counters when asked; it ends with its handle.
struct Sampler {
    ask: SyncSender<()>,
    answers: Receiver<ServerSide>,
}

impl Sampler {
    fn start(server: Arc<ServerFiles>) -> Result<Sampler> {
        let (ask, asked) = sync_channel::<()>(1);
        let (answer, answers) = sync_channel(1);
        thread::Builder::new().name("sampler".into()).spawn(move || {
            let mut cores = CpuSet::new();
            cores.set(SERVER_CORE);
            // Where it may not, what it reads is older, and less is taken away.
            let _ = rustix::thread::sched_setaffinity(None, &cores);
            while asked.recv().is_ok() && answer.send(server.now()).is_ok() {}
        })?;
        Ok(Sampler { ask, answers })
    }

    fn sample(&self) -> Option<ServerSide> {
        self.ask.send(()).ok()?;
        self.answers.recv().ok()
    }
}

/// Fields of `schedstat`.
const RAN: usize = 0;
const WAITED: usize = 1;

/// A thread that has ended counts nothing.
fn counter(file: &File, field: usize) -> u64 {
    number(file, field).unwrap_or(0)
}

/// The times a core has spent in each kind of idleness, in microseconds; none where nobody counts them.
fn idle_files(core: usize) -> Result<Vec<File>> {
    let states = format!("/sys/devices/system/cpu/cpu{core}/cpuidle");
    if !Path::new(&states).exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for state in std::fs::read_dir(states)? {
        files.push(File::open(state?.path().join("time"))?);
    }
    Ok(files)
}

fn idle_ns(files: &[File]) -> Option<u64> {
    let times: Option<Vec<u64>> = files.iter().map(|f| number(f, 0)).collect();
    times.filter(|t| !t.is_empty()).map(|t| t.iter().sum::<u64>() * 1000)
}

fn number(file: &File, field: usize) -> Option<u64> {
    let mut text = [0; 96];
    let n = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..n]).ok()?.split_whitespace().nth(field)?.parse().ok()
}
