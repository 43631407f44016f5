//! [`LanePool`]: helper threads that run long commands, so that no worker does.
//!
//! A session has at most one job here. A session that ends leaves at most one job that has not started, and counts
//! as a client until this job starts. Therefore the queue is never longer than `maxclients`.
//!
//! Jobs that may take seconds (searches, LCS) have a queue of their own and only some of the threads. A long
//! HGETALL or a flush does not wait behind them, and the many searches of one owner do not delay another's
//! (`super::fair`). Hard jobs (a pattern on a text where its automaton does not help) have a queue and threads of
//! their own, at the lowest priority. These threads hold no shard, so a worker on the same core preempts them at
//! once. They start with the first hard jobs: on a busy machine, a process with a waiting thread of the lowest
//! priority takes long to end (see `super::priority`). [`Reclaimer`] is one more thread, which only frees large things.
//!
//! Helper threads have the priority of workers, and yield the processor between slices (a job's `yield_now`). On a
//! kernel with a 4 ms tick only these yields keep a worker on the same core from waiting for the end of a time
//! slice. Measured on one core with KEYS over 1 M keys in a loop, p99.9 of 30,000 waits of a worker for the core
//! behind a helper: 0.11 ms at equal priority; 0.04 to 0.07 ms at nice 10 and 19, as SCHED_BATCH and as
//! SCHED_IDLE; 4.6 ms without yields. A lower priority gains little, and it would also make a helper wait for other
//! programs while it holds a shard: one wait of 9.7 ms was seen at nice 19.

use super::clock::Clock;
use super::fair::{FairQueue, Owner, SlotKind};
use super::priority;
use super::threads;
use super::wake::WakeCell;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use strand_engine::{LaneDone, LaneJob};

/// Minimum number of helper threads for heavy jobs, so that one or two long searches do not delay the other heavy jobs.
const LANE_THREADS_MIN: usize = 4;
/// Maximum number of helper threads for heavy jobs.
const LANE_THREADS_MAX: usize = 16;
/// Size of a helper thread's stack. It is large because tables of a script may be nested a thousand deep. Only used
/// pages take memory.
const STACK_BYTES: usize = 16 << 20;

/// Number of helper threads that run the heavy jobs of `workers` workers.
pub fn lane_threads(workers: usize) -> usize {
    workers.clamp(LANE_THREADS_MIN, LANE_THREADS_MAX)
}

/// Maximum number of helper threads for hard jobs.
const HARD_THREADS_MAX: usize = 2;

/// Number of helper threads that take no heavy jobs.
const LIGHT_THREADS: usize = 2;

struct Ticket {
    job: Box<LaneJob>,
    wake: Arc<WakeCell>,
}

/// Number of extra slots beyond `heavy_max` for heavy jobs of users and addresses without a running job.
const RESERVED_SLOTS: usize = 1;

/// The jobs that wait for a thread.
#[derive(Default)]
struct Jobs {
    light: VecDeque<Ticket>,
    heavy: FairQueue<Ticket>,
    hard: FairQueue<Ticket>,
    /// Number of threads that run hard jobs.
    hard_threads: usize,
    /// True when all handles to the threads are dropped.
    closed: bool,
}

struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    hard_arrived: Condvar,
    heavy_max: usize,
    clock: Clock,
}

impl Queue {
    /// Waits for the next light or heavy job. Returns the job, with its owner if it is heavy. `None` when the threads
    /// must end.
    fn take(&self) -> Option<(Ticket, Option<Owner>)> {
        let mut jobs = self.jobs.lock();
        loop {
            // Heavy jobs go first while less than half of the heavy slots are used, so that neither heavy nor light
            // jobs starve.
            let running = jobs.heavy.running();
            let heavy_first = running < self.heavy_max.div_ceil(2);
            let slot = match heavy_first || (jobs.light.is_empty() && running < self.heavy_max) {
                true => Some(SlotKind::Any),
                false => (running < self.heavy_max + RESERVED_SLOTS).then_some(SlotKind::Reserved),
            };
            if let Some((owner, ticket)) = slot.and_then(|slot| jobs.heavy.take(slot)) {
                return Some((ticket, Some(owner)));
            }
            if let Some(ticket) = jobs.light.pop_front() {
                return Some((ticket, None));
            }
            if jobs.closed && jobs.heavy.is_empty() {
                return None;
            }
            self.changed.wait(&mut jobs);
        }
    }
    /// Waits for the next hard job. Returns its owner and the job. `None` when the threads must end.
    fn take_hard(&self) -> Option<(Owner, Ticket)> {
        let mut jobs = self.jobs.lock();
        loop {
            match jobs.hard.take(SlotKind::Any) {
                Some(next) => return Some(next),
                None if jobs.closed => return None,
                None => self.hard_arrived.wait(&mut jobs),
            }
        }
    }
    fn push(self: &Arc<Queue>, ticket: Ticket) {
        let (user, address) = ticket.job.owner();
        let owner = Owner { user, address: address.into() };
        let mut jobs = self.jobs.lock();
        let arrived = if ticket.job.is_hard() && self.has_hard_thread(&mut jobs) {
            jobs.hard.push(owner, ticket);
            &self.hard_arrived
        } else if ticket.job.is_heavy() || ticket.job.is_hard() {
            jobs.heavy.push(owner, ticket);
            &self.changed
        } else {
            jobs.light.push_back(ticket);
            &self.changed
        };
        drop(jobs);
        arrived.notify_one();
    }
    /// Starts one more thread for hard jobs, up to the maximum. False when the system has given no thread so far.
    fn has_hard_thread(self: &Arc<Queue>, jobs: &mut Jobs) -> bool {
        if jobs.hard_threads < HARD_THREADS_MAX {
            let queue = self.clone();
            let thread = thread::Builder::new().name(format!("hard-{}", jobs.hard_threads));
            let started = thread.spawn(move || {
                priority::set_lowest();
                while let Some((owner, ticket)) = queue.take_hard() {
                    serve(&queue, ticket);
                    queue.finish_hard(&owner);
                }
            });
            jobs.hard_threads += usize::from(started.is_ok());
        }
        jobs.hard_threads > 0
    }
    fn finish_heavy(&self, owner: &Owner) {
        self.jobs.lock().heavy.finish(owner);
        self.changed.notify_all();
    }
    fn finish_hard(&self, owner: &Owner) {
        self.jobs.lock().hard.finish(owner);
    }
}

/// Ends the threads when the last handle is dropped.
struct Handle(Arc<Queue>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.jobs.lock().closed = true;
        self.0.changed.notify_all();
        self.0.hard_arrived.notify_all();
    }
}

/// A handle to the helper threads. The threads end when the last handle is dropped and the queue is empty.
#[derive(Clone)]
pub struct LanePool {
    queue: Arc<Handle>,
}

impl LanePool {
    /// Starts helper threads. `heavy_max` of them run heavy jobs, and one more runs the heavy jobs of owners without a
    /// running job.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(heavy_max: usize, clock: Clock) -> io::Result<LanePool> {
        let (changed, hard_arrived) = (Condvar::new(), Condvar::new());
        let queue = Arc::new(Queue { jobs: Mutex::default(), changed, hard_arrived, heavy_max, clock });
        let pool = LanePool { queue: Arc::new(Handle(queue.clone())) };
        for i in 0..heavy_max + RESERVED_SLOTS + LIGHT_THREADS {
            let queue = queue.clone();
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            threads::spawn_by(builder, &format!("lane-{i}"), move || {
                while let Some((ticket, heavy)) = queue.take() {
                    serve(&queue, ticket);
                    if let Some(owner) = heavy {
                        queue.finish_heavy(&owner);
                    }
                }
            })?;
        }
        Ok(pool)
    }
    /// Queues `job`. Its result goes to `wake`.
    pub fn submit(&self, job: Box<LaneJob>, wake: Arc<WakeCell>) {
        self.queue.0.push(Ticket { job, wake });
    }
}

fn serve(queue: &Arc<Queue>, Ticket { job, wake }: Ticket) {
    let name = job.name();
    let result = catch_unwind(AssertUnwindSafe(|| job.try_run(queue.clock.now(), &thread::yield_now)));
    let done = match result {
        Ok(Ok(done)) => done,
        Ok(Err(job)) => return queue.push(Ticket { job, wake }),
        Err(_) => {
            tracing::error!("the command {name} panicked on a helper thread");
            LaneDone::panicked()
        }
    };
    wake.lane_done(done);
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
        threads::spawn("reclaim", move || {
            heap.into_iter().for_each(|garbage| {
                drop(garbage);
                thread::yield_now();
            });
        })?;
        Ok(Reclaimer { garbage })
    }
    /// Frees `garbage` later, on that thread.
    pub fn reclaim(&self, garbage: Box<dyn Send>) {
        // If the thread is gone (after a panic in a destructor), the failed `send` frees the garbage here.
        drop(self.garbage.send(garbage));
    }
}
