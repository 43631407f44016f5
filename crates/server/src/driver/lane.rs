//! [`LanePool`]: the helper threads that run long commands, so that no worker ever does.
//!
//! A session has at most one job here, and one that goes leaves at most one that has not begun and counts as a client
//! until it has; so the queue is never longer than there may be connections. What may take seconds (searches, LCS) has its
//! own queue and some of the threads: a long HGETALL or a flush does not wait behind it. [`Reclaimer`] is one more thread
//! that only drops what takes long to free.
//!
//! Helper threads have the workers' priority and yield the processor between slices (a job's `yield_now`): on a kernel
//! with a 4 ms tick that, and nothing else, keeps a worker on the same core from waiting for the end of a time slice.
//! Measured on one core with KEYS over 1 M keys in a loop, a worker's wait for the core behind a helper, p99.9 of 30,000:
//! 0.11 ms at equal priority, 0.04 to 0.07 ms at nice 10 and 19, as SCHED_BATCH and as SCHED_IDLE; without yields 4.6 ms.
//! A lower priority gains little, then, and would leave a helper waiting for other programs while it holds a shard: one
//! such wait of 9.7 ms was seen at nice 19.

use super::clock::Clock;
use super::wake::WakeCell;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use strand_engine::{LaneDone, LaneJob};

/// Helper threads for heavy jobs, at least: a long search or two must not keep the others waiting.
const LANE_THREADS_MIN: usize = 4;
/// Helper threads for heavy jobs, at most.
const LANE_THREADS_MAX: usize = 16;

/// How many helper threads run heavy jobs of `workers` workers.
pub fn lane_threads(workers: usize) -> usize {
    workers.clamp(LANE_THREADS_MIN, LANE_THREADS_MAX)
}

/// Helper threads that take no heavy job.
const LIGHT_THREADS: usize = 2;

struct Ticket {
    job: LaneJob,
    wake: Arc<WakeCell>,
}

/// The jobs that wait, and whether one more of the heavy ones may run.
#[derive(Default)]
struct Jobs {
    light: VecDeque<Ticket>,
    heavy: VecDeque<Ticket>,
    heavy_running: usize,
    /// No handle is left.
    closed: bool,
}

struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    heavy_max: usize,
}

impl Queue {
    /// The next job and whether it is a heavy one, when there is one; `None` at the end.
    fn take(&self) -> Option<(Ticket, bool)> {
        let mut jobs = self.jobs.lock();
        loop {
            // Neither kind starves the other.
            let heavy_first = jobs.heavy_running < self.heavy_max.div_ceil(2);
            let heavy = heavy_first || (jobs.light.is_empty() && jobs.heavy_running < self.heavy_max);
            if heavy && let Some(ticket) = jobs.heavy.pop_front() {
                jobs.heavy_running += 1;
                return Some((ticket, true));
            }
            if let Some(ticket) = jobs.light.pop_front() {
                return Some((ticket, false));
            }
            if jobs.closed && jobs.heavy.is_empty() {
                return None;
            }
            self.changed.wait(&mut jobs);
        }
    }
    fn heavy_ended(&self) {
        self.jobs.lock().heavy_running -= 1;
        self.changed.notify_all();
    }
}

/// Ends the threads when the last handle goes.
struct Handle(Arc<Queue>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.jobs.lock().closed = true;
        self.0.changed.notify_all();
    }
}

/// A handle to the helper threads; they end when the last handle is dropped and the queue is empty.
#[derive(Clone)]
pub struct LanePool {
    queue: Arc<Handle>,
}

impl LanePool {
    /// Starts helper threads, of which `heavy_max` run heavy jobs.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(heavy_max: usize, clock: Clock) -> io::Result<LanePool> {
        let queue = Arc::new(Queue { jobs: Mutex::default(), changed: Condvar::new(), heavy_max });
        let pool = LanePool { queue: Arc::new(Handle(queue.clone())) };
        for i in 0..heavy_max + LIGHT_THREADS {
            let queue = queue.clone();
            thread::Builder::new().name(format!("lane-{i}")).spawn(move || serve(&queue, clock))?;
        }
        Ok(pool)
    }
    /// Queues `job`, whose result goes to `wake`.
    pub fn submit(&self, job: LaneJob, wake: Arc<WakeCell>) {
        let Queue { jobs, changed, .. } = &*self.queue.0;
        let is_heavy = job.is_heavy();
        let ticket = Ticket { job, wake };
        let mut jobs = jobs.lock();
        match is_heavy {
            true => jobs.heavy.push_back(ticket),
            false => jobs.light.push_back(ticket),
        }
        drop(jobs);
        changed.notify_one();
    }
}

fn serve(queue: &Queue, clock: Clock) {
    while let Some((Ticket { job, wake }, is_heavy)) = queue.take() {
        let name = job.name();
        let done = catch_unwind(AssertUnwindSafe(|| job.run(clock.now(), &thread::yield_now)))
            .unwrap_or_else(|_| {
                tracing::error!("the command {name} panicked on a helper thread");
                LaneDone::panicked()
            });
        wake.lane_done(done);
        if is_heavy {
            queue.heavy_ended();
        }
    }
}

/// A handle to the thread that frees large things.
#[derive(Clone)]
pub struct Reclaimer {
    garbage: Sender<Box<dyn Send>>,
}

impl Reclaimer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start() -> io::Result<Reclaimer> {
        let (garbage, heap) = channel::<Box<dyn Send>>();
        thread::Builder::new().name("reclaim".into()).spawn(move || {
            heap.into_iter().for_each(|garbage| {
                drop(garbage);
                thread::yield_now();
            });
        })?;
        Ok(Reclaimer { garbage })
    }
    /// Frees `garbage`, later and elsewhere.
    pub fn reclaim(&self, garbage: Box<dyn Send>) {
        // Without the thread (a destructor panicked) it is freed here.
        drop(self.garbage.send(garbage));
    }
}
