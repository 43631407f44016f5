//! [`WakeCell`]: wakes a session's task, from any thread. [`WakeQueue`]: the woken tasks of one worker that wait for
//! their turn.
//!
//! The causes: CLIENT KILL, CLIENT UNBLOCK, a finished lane job, data for a blocked command, a push message, the end of
//! a long lock or a pause, subscribers that caught up, the disk, a changed setting, the server's stop.
//!
//! tokio keeps a queue of its own for wakes from other threads. While the worker has tasks that it woke itself, tokio
//! takes one task of 31 from that queue. So under load the replies of `appendfsync always` waited for six syncs instead
//! of two. Therefore the worker takes the tasks of its [`WakeQueue`] itself. `redis-benchmark -c 32 -t set -d 256` on a
//! guest with two cores, in requests a second:
//!
//! | cores of the server | tokio's queue | a [`WakeQueue`] | redis-server |
//! |---|---|---|---|
//! | one | 6,326 | 31,253 | 37,024 |
//! | two | 14,800 | 31,768 | 30,450 |
//!
//! A worker wakes a crowd in groups of [`WAKES_IN_GROUP_MAX`] tasks, so that the crowd does not keep other clients
//! waiting: it wakes one group directly, and then one from the queue in each turn (a worker with a ring: two).
//! Another client's PING, while XADD woke 3,000 clients in XREAD, took 100 ms without this limit, and 7 ms with it
//! (redis-server: 31 ms).

use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use strand_engine::{LaneDone, Wake};
use tokio::task::yield_now;

/// Maximum number of tasks that a worker wakes at once. A woken task takes 10 to 30 us.
const WAKES_IN_GROUP_MAX: usize = 64;

thread_local! {
    /// The queue of the worker that this thread runs; null on other threads. Only compared, never read.
    static OF_THIS_THREAD: Cell<*const WakeQueue> = const { Cell::new(std::ptr::null()) };
}

/// The tasks of one worker that other threads woke, and those that the worker woke itself beyond
/// [`WAKES_IN_GROUP_MAX`].
#[derive(Default)]
pub struct WakeQueue {
    tasks: Mutex<QueuedTasks>,
    /// False when no task is queued.
    has_tasks: AtomicBool,
    /// Number of tasks that the worker woke directly since [`WakeQueue::serve`], or a turn of the ring that found no task,
    /// set this number to 0. Only the worker's thread uses this number.
    woken_directly: AtomicUsize,
}

#[derive(Default)]
struct QueuedTasks {
    woken: VecDeque<Waker>,
    /// The task that runs [`WakeQueue::serve`], while the task waits.
    taker: Option<Waker>,
}

impl WakeQueue {
    /// Makes this the queue of the calling thread, which polls all the tasks. The thread wakes a few of them directly.
    pub fn own(&self) {
        OF_THIS_THREAD.set(self);
    }
    /// Wakes up to [`WAKES_IN_GROUP_MAX`] queued tasks. Only the worker's thread calls this.
    pub fn wake_tasks(&self) {
        if !self.has_tasks.load(Relaxed) {
            self.woken_directly.store(0, Relaxed);
            return;
        }
        let woken: Vec<Waker> = {
            let mut tasks = self.tasks.lock();
            let n = tasks.woken.len().min(WAKES_IN_GROUP_MAX);
            self.has_tasks.store(tasks.woken.len() > n, Relaxed);
            tasks.woken.drain(..n).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }
    /// Wakes queued tasks, for the worker's whole life.
    pub async fn serve(&self) {
        loop {
            poll_fn(|cx| {
                let mut tasks = self.tasks.lock();
                if !tasks.woken.is_empty() {
                    return Poll::Ready(());
                }
                tasks.taker = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            self.wake_tasks();
            // Let the woken tasks run, and the requests of other clients.
            yield_now().await;
            self.woken_directly.store(0, Relaxed);
        }
    }
    /// True when the calling thread may wake a task of this queue directly.
    fn may_wake_directly(&self) -> bool {
        if !std::ptr::eq(OF_THIS_THREAD.get(), self) {
            return false;
        }
        let woken = self.woken_directly.load(Relaxed);
        self.woken_directly.store(woken + 1, Relaxed);
        woken < WAKES_IN_GROUP_MAX
    }
    fn push(&self, task: Waker) {
        let mut tasks = self.tasks.lock();
        tasks.woken.push_back(task);
        self.has_tasks.store(true, Relaxed);
    }
    /// Wakes the worker if tasks are queued.
    fn wake_taker(&self) {
        if !self.has_tasks.load(Relaxed) {
            return;
        }
        let taker = {
            let mut tasks = self.tasks.lock();
            if tasks.woken.is_empty() { None } else { tasks.taker.take() }
        };
        taker.into_iter().for_each(Waker::wake);
    }
}

#[derive(Default)]
struct State {
    woken: bool,
    lane: Option<LaneDone>,
    waker: Option<Waker>,
}

/// The wake-up of one connection. Waiting for it costs no allocation and, while nothing happens, no processor time.
pub struct WakeCell {
    state: Mutex<State>,
    queue: Arc<WakeQueue>,
}

impl WakeCell {
    /// The wake-up of a task that the owner of `queue` polls.
    pub fn new(queue: &Arc<WakeQueue>) -> WakeCell {
        WakeCell { state: Mutex::default(), queue: queue.clone() }
    }
    /// Ready once, after any number of wake-ups. Later calls wait for the next wake-up.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.woken) {
            return Poll::Ready(());
        }
        if !state.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
    /// Stores the result of the session's lane job and wakes the session's task.
    pub fn lane_done(&self, done: LaneDone) {
        self.state.lock().lane = Some(done);
        self.wake();
    }
    /// Takes the result of the lane job, if the job has finished.
    pub fn take_lane(&self) -> Option<LaneDone> {
        self.state.lock().lane.take()
    }
}

impl Wake for WakeCell {
    fn queue(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.woken = true;
            state.waker.take()
        };
        match waker {
            Some(waker) if self.queue.may_wake_directly() => waker.wake(),
            Some(waker) => self.queue.push(waker),
            None => {}
        }
    }
    fn wake_queued(&self) {
        self.queue.wake_taker();
    }
}

impl std::fmt::Debug for WakeCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WakeCell(woken: {})", self.state.lock().woken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_before_the_wait_is_kept_and_two_wakes_count_once() {
        let queue = Arc::new(WakeQueue::default());
        queue.own();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let cell = WakeCell::new(&queue);
        cell.wake();
        cell.wake();
        assert!(cell.poll(&mut cx).is_ready());
        assert!(cell.poll(&mut cx).is_pending());
        assert_eq!(count.get(), 0);
        cell.wake();
        cell.wake();
        assert_eq!(count.get(), 1);
        assert!(cell.poll(&mut cx).is_ready());
    }

    #[test]
    fn a_crowd_is_woken_in_several_turns() {
        let queue = Arc::new(WakeQueue::default());
        queue.own();
        let (server, tasks) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let server_waker = Waker::from(server.clone());
        let mut serve = Box::pin(queue.serve());
        let mut poll_server = || serve.as_mut().poll(&mut Context::from_waker(&server_waker)).is_pending();
        let cells: Vec<WakeCell> = (0..3 * WAKES_IN_GROUP_MAX + 1).map(|_| WakeCell::new(&queue)).collect();
        let task_waker = Waker::from(tasks.clone());
        let begin_waits = || {
            let mut cx = Context::from_waker(&task_waker);
            cells.iter().filter(|cell| cell.poll(&mut cx).is_pending()).count()
        };
        assert_eq!((poll_server(), begin_waits()), (true, cells.len()));
        cells.iter().for_each(|cell| cell.queue());
        cells.iter().for_each(|cell| cell.wake_queued());
        assert_eq!((server.get(), tasks.get()), (1, WAKES_IN_GROUP_MAX), "the first are woken directly");
        // Outside a runtime, a yield wakes the task at once.
        assert!(poll_server());
        assert_eq!((server.get(), tasks.get()), (2, 2 * WAKES_IN_GROUP_MAX));
        assert!(poll_server());
        assert_eq!((server.get(), tasks.get()), (3, 3 * WAKES_IN_GROUP_MAX));
        assert!(poll_server());
        assert_eq!((server.get(), tasks.get()), (4, cells.len()));
        assert!(poll_server());
        assert_eq!((server.get(), begin_waits()), (4, 0));
        // The next turn begins.
        assert_eq!(begin_waits(), cells.len());
        cells[..2].iter().for_each(|cell| cell.wake());
        assert_eq!(tasks.get(), cells.len() + 2);
        // A worker with a ring calls this once a turn.
        cells[2..].iter().for_each(|cell| cell.wake());
        assert_eq!(tasks.get(), cells.len() + WAKES_IN_GROUP_MAX);
        queue.wake_tasks();
        assert_eq!(tasks.get(), cells.len() + 2 * WAKES_IN_GROUP_MAX);
    }

    #[test]
    fn another_thread_wakes_the_worker_once_for_all_tasks() {
        let queue = Arc::new(WakeQueue::default());
        queue.own();
        let (server, tasks) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let server_waker = Waker::from(server.clone());
        let mut serve = Box::pin(queue.serve());
        let mut poll_server = || serve.as_mut().poll(&mut Context::from_waker(&server_waker)).is_pending();
        let cells: Vec<WakeCell> = (0..3).map(|_| WakeCell::new(&queue)).collect();
        let task_waker = Waker::from(tasks.clone());
        let ready_cells = || {
            let mut cx = Context::from_waker(&task_waker);
            cells.iter().filter(|cell| cell.poll(&mut cx).is_ready()).count()
        };
        assert!(poll_server());
        assert_eq!(ready_cells(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cells.iter().for_each(|cell| cell.queue());
                assert_eq!((server.get(), tasks.get()), (0, 0), "the tasks are only queued");
                cells.iter().for_each(|cell| cell.wake_queued());
                assert_eq!((server.get(), tasks.get()), (1, 0));
            });
        });
        assert!(poll_server());
        assert_eq!((server.get(), tasks.get()), (2, 3), "the server yields");
        assert!(poll_server());
        assert_eq!((ready_cells(), ready_cells()), (3, 0));
        // The worker may take the tasks before its serving task runs.
        std::thread::scope(|scope| {
            scope.spawn(|| cells[0].wake());
        });
        queue.wake_tasks();
        assert_eq!((server.get(), tasks.get()), (3, 4));
        assert!(poll_server(), "it finds nothing and waits on");
        std::thread::scope(|scope| {
            scope.spawn(|| cells[1].wake());
        });
        assert_eq!(server.get(), 4);
    }
}
