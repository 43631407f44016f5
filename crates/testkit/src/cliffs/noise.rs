//! How much of a slow probe was the machine's fault: the kernel counts for every thread how long it was ready to run and
//! did not (`schedstat`).
//!
//! Of a probe's time this takes away what the thread that serves the probe waited for its core while no other thread of
//! the server ran (a lane thread that takes the worker's core *is* the server's fault), and what the probe's own thread
//! waited for core 1. What a hypervisor takes is not seen here and stays in the figures.

use super::Result;
use crate::process::{Kind, Server};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The counters of a server's threads and of the calling one.
pub(super) struct Noise {
    serving: Vec<File>,
    others: Vec<File>,
    own: File,
    last: Counters,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    serving_waited_ns: u64,
    others_ran_ns: u64,
    own_waited_ns: u64,
}

impl Noise {
    /// Opens the counters; the server's threads are those it has now.
    pub(super) fn watch(server: &Server) -> Result<Noise> {
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
        let own = File::open("/proc/thread-self/schedstat")?;
        let mut noise = Noise { serving, others, own, last: Counters::default() };
        noise.mark();
        Ok(noise)
    }

    /// From here on it is counted.
    pub(super) fn mark(&mut self) {
        self.last = self.now();
    }

    /// What the machine took since the mark; a new mark.
    pub(super) fn taken(&mut self) -> Duration {
        let now = self.now();
        let waited = now.serving_waited_ns.saturating_sub(self.last.serving_waited_ns);
        let by_own_threads = now.others_ran_ns.saturating_sub(self.last.others_ran_ns);
        let at_the_client = now.own_waited_ns.saturating_sub(self.last.own_waited_ns);
        self.last = now;
        Duration::from_nanos(waited.saturating_sub(by_own_threads) + at_the_client)
    }

    fn now(&self) -> Counters {
        let sum = |files: &[File], field| files.iter().map(|f| counter(f, field)).sum();
        Counters {
            serving_waited_ns: sum(&self.serving, WAITED),
            others_ran_ns: sum(&self.others, RAN),
            own_waited_ns: counter(&self.own, WAITED),
        }
    }
}

/// Fields of `schedstat`.
const RAN: usize = 0;
const WAITED: usize = 1;

/// A thread that has ended counts nothing.
fn counter(file: &File, field: usize) -> u64 {
    let mut text = [0; 96];
    let n = file.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..n]).unwrap_or_default();
    text.split_whitespace().nth(field).and_then(|n| n.parse().ok()).unwrap_or(0)
}
