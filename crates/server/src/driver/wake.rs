//! [`WakeCell`]: wakes a session's task.
//!
//! The causes: CLIENT KILL, CLIENT UNBLOCK, a finished lane job, data for a blocked command, a push message, the end of
//! a long lock or a pause, subscribers that caught up, the disk, a changed setting, the server's stop.

use parking_lot::Mutex;
use std::task::{Context, Poll, Waker};
use strand_engine::{LaneDone, Wake};

#[derive(Default)]
struct State {
    woken: bool,
    lane: Option<LaneDone>,
    waker: Option<Waker>,
}

/// The wake-up of one connection. Waiting for it costs no allocation and, while nothing happens, no processor time.
#[derive(Default)]
pub struct WakeCell {
    state: Mutex<State>,
}

impl WakeCell {
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
    fn wake(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.woken = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_before_the_wait_is_kept_and_two_wakes_count_once() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let cell = WakeCell::default();
        cell.wake();
        cell.wake();
        assert!(cell.poll(&mut cx).is_ready());
        assert!(cell.poll(&mut cx).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        cell.wake();
        cell.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(cell.poll(&mut cx).is_ready());
    }
}
