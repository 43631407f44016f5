//! [`LanePool`]: the helper threads that run long commands, so that no worker ever does.
//!
//! A session has at most one job here, so the queue is never longer than there are connections. [`Reclaimer`] is one
//! more thread that only drops what takes long to free.

use super::clock::Clock;
use super::wake::WakeCell;
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use strand_engine::{LaneDone, LaneJob};

/// Helper threads for long commands, at least.
const LANE_THREADS_MIN: usize = 2;
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
        thread::Builder::new().name("reclaim".into()).spawn(move || heap.into_iter().for_each(drop))?;
        Ok(Reclaimer { garbage })
    }
    /// Frees `garbage`, later and elsewhere.
    pub fn reclaim(&self, garbage: Box<dyn Send>) {
        // Without the thread (a destructor panicked) it is freed here.
        drop(self.garbage.send(garbage));
    }
}
