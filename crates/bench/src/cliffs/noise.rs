//! The part of a slow probe that the machine caused.
//!
//! For every thread the kernel counts how long the thread was ready to run but did not run (`schedstat`). Two waits
//! are the fault of other programs, and are subtracted from a probe's time: the probe's thread waits for its core, and
//! the serving thread waits for its core while no other thread of the server runs. (When a lane thread takes the
//! worker's core, that is the server's fault.) If a core stood still ([`super::pauses`]) for longer than both waits
//! together, the time of the pauses is subtracted instead. Waits and pauses are never added, because they may
//! overlap.

use super::Result;
use super::pauses::{Pauses, now_ns};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use strand_testkit::process::{Program, Server};

/// The core of the server, and the core of the client.
pub(super) const CORES: [usize; 2] = [0, 1];

/// Counters of the server's threads, of the calling thread, and of the cores.
pub(super) struct Noise {
    server: ServerFiles,
    client: File,
    /// The pauses of these cores. `None` when the kernel does not allow to watch them.
    pauses: Option<Pauses>,
    marked_ns: u64,
    last: CounterSnapshot,
}

/// The values of counters at one moment, in nanoseconds.
#[derive(Clone, Copy)]
struct CounterSnapshot {
    serving_waited: u64,
    others_ran: u64,
    client_waited: u64,
}

impl Noise {
    /// Opens the counters, for the current threads of the server.
    pub(super) fn watch(server: &Server) -> Result<Noise> {
        let (server, client) = (ServerFiles::open(server)?, File::open("/proc/thread-self/schedstat")?);
        let last = CounterSnapshot { serving_waited: 0, others_ran: 0, client_waited: 0 };
        let mut noise = Noise { server, client, pauses: Pauses::watch(&CORES).ok(), marked_ns: 0, last };
        noise.mark();
        Ok(noise)
    }

    /// Reads the counters. [`Noise::time_taken`] counts from the last call of `mark`.
    pub(super) fn mark(&mut self) {
        self.last = self.now();
        self.pauses.iter_mut().for_each(Pauses::mark);
        self.marked_ns = now_ns();
    }

    /// The time since [`Noise::mark`] that other programs or the host took from the server and the probe.
    pub(super) fn time_taken(&mut self) -> Duration {
        let (before, now) = (self.last, self.now());
        let by_own_threads = now.others_ran.saturating_sub(before.others_ran);
        let at_the_server = now.serving_waited.saturating_sub(before.serving_waited);
        let at_the_client = now.client_waited.saturating_sub(before.client_waited);
        let waited = Duration::from_nanos(at_the_server.saturating_sub(by_own_threads) + at_the_client);
        let paused = self.pauses.as_mut().map_or(Duration::ZERO, |pauses| pauses.since(self.marked_ns));
        waited.max(paused)
    }

    fn now(&self) -> CounterSnapshot {
        let sum = |files: &[File], field| files.iter().map(|f| counter(f, field)).sum();
        CounterSnapshot {
            serving_waited: sum(&self.server.serving, WAITED),
            others_ran: sum(&self.server.other_threads, RAN),
            client_waited: counter(&self.client, WAITED),
        }
    }
}

/// The counter files of a server's threads.
struct ServerFiles {
    serving: Vec<File>,
    other_threads: Vec<File>,
}

impl ServerFiles {
    fn open(server: &Server) -> Result<ServerFiles> {
        let (mut serving, mut other_threads) = (Vec::new(), Vec::new());
        for task in std::fs::read_dir(format!("/proc/{}/task", server.pid()))? {
            let path = task?.path();
            let name = std::fs::read_to_string(path.join("comm"))?;
            let serves = match server.kind {
                Program::Strand => name.starts_with("worker"),
                Program::Redis => path.ends_with(server.pid().to_string()),
            };
            let counters = File::open(path.join("schedstat"))?;
            if serves { serving.push(counters) } else { other_threads.push(counters) }
        }
        Ok(ServerFiles { serving, other_threads })
    }
}

/// Positions of the fields of `schedstat`.
const RAN: usize = 0;
const WAITED: usize = 1;

/// The value of a counter. 0 for a thread that has ended.
fn counter(file: &File, field: usize) -> u64 {
    let read = || {
        let mut text = [0; 96];
        let n = file.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..n]).ok()?.split_whitespace().nth(field)?.parse().ok()
    };
    read().unwrap_or(0)
}
