//! [`Steps`]: long work in small steps, which yields to the worker's other tasks once in many steps.
//! [`wake_after_others`]: the same for code that is polled.
//!
//! Both use tokio's `yield_now`: the worker polls its sockets before the task runs again, so the requests of other
//! clients are served between two slices. A task that only wakes itself is polled up to 61 times before the sockets
//! are. A megabyte of JSON made other clients wait for 8 to 14 ms then.

use std::future::Future;
use std::pin::pin;
use std::task::Context;
use tokio::task::yield_now;

/// Wakes the current task, after the worker's other tasks have run and the sockets were polled.
pub fn wake_after_others(cx: &mut Context<'_>) {
    // The first poll arranges to wake the task, and returns `Pending`.
    let _ = pin!(yield_now()).poll(cx);
}

/// Number of steps between two yields of [`Steps`]. The steps of JSON take 40 to 60 ns each.
const STEPS_PER_SLICE: usize = 1024;

/// Counts the small steps of long work, and yields after each [`STEPS_PER_SLICE`] of them.
#[derive(Debug, Default)]
pub struct Steps(usize);

impl Steps {
    /// Counts a step, and yields if the slice has ended.
    #[inline]
    pub async fn step(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(STEPS_PER_SLICE) {
            yield_now().await;
        }
    }
}

/// Polls a future that only yields until it is ready.
#[cfg(test)]
pub(crate) fn complete<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for _ in 0..1_000_000 {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
    panic!("the future is not ready after a million polls")
}
