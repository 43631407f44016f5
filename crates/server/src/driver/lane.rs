//! [`LanePool`]: the helper threads that run long commands, so that no worker ever does.
//!
//! A session has at most one job here, so the queue is never longer than there are connections. [`Reclaimer`] is one
//! more thread that only drops what takes long to free.
//!
//! Helper threads have the workers' priority and yield the processor between slices (a job's `yield_now`): on a kernel
//! with a 4 ms tick that, and nothing else, keeps a worker on the same core from waiting for the end of a time slice.
//! Measured on one core with KEYS over 1 M keys in a loop, a worker's wait for the core behind a helper, p99.9 of 30,000:
//! 0.11 ms at equal priority, 0.04 to 0.07 ms at nice 10 and 19, as SCHED_BATCH and as SCHED_IDLE; without yields 4.6 ms.
//! A lower priority gains little, then, and would leave a helper waiting for other programs while it holds a shard: one
//! such wait of 9.7 ms was seen at nice 19.

use super::clock::Clock;
use super::wake::WakeCell;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use strand_engine::{LaneDone, LaneJob};

/// Helper threads for long commands, at least: a long search or two must not keep the others waiting.
const LANE_THREADS_MIN: usize = 4;
/// Helper threads for long commands, at most.
const LANE_THREADS_MAX: usize = 16;

/// How many helper threads serve `workers` workers.
pub fn lane_threads(workers: usize) -> usize {
    workers.clamp(LANE_THREADS_MIN, LANE_THREADS_MAX)
}

struct Ticket {
    job: LaneJob,
    wake: Arc<WakeCell>,
}

/// A handle to the helper threads; they end when the last handle is dropped and the queue is empty.
#[derive(Clone)]
pub struct LanePool {
    queue: Sender<Ticket>,
}

impl LanePool {
    /// Starts `threads` helper threads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(threads: usize, clock: Clock) -> io::Result<LanePool> {
        let (queue, jobs) = channel::<Ticket>();
        let jobs = Arc::new(Mutex::new(jobs));
        for i in 0..threads {
            let jobs = jobs.clone();
            thread::Builder::new().name(format!("lane-{i}")).spawn(move || serve(&jobs, clock))?;
        }
        Ok(LanePool { queue })
    }
    /// Queues `job`, whose result goes to `wake`.
    pub fn submit(&self, job: LaneJob, wake: Arc<WakeCell>) {
        if let Err(refused) = self.queue.send(Ticket { job, wake }) {
            // Only when every helper is gone, which no panic of a job can cause.
            refused.0.wake.lane_done(LaneDone::panicked());
        }
    }
}

fn serve(jobs: &Mutex<Receiver<Ticket>>, clock: Clock) {
    loop {
        // The lock is held while waiting: one helper waits in `recv`, the others for the lock.
        let next = jobs.lock().recv();
        let Ok(Ticket { job, wake }) = next else { return };
        let name = job.name();
        let done = catch_unwind(AssertUnwindSafe(|| job.run(clock.now(), &thread::yield_now)))
            .unwrap_or_else(|_| {
                tracing::error!("the command {name} panicked on a helper thread");
                LaneDone::panicked()
            });
        wake.lane_done(done);
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
