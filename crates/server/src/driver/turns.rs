//! [`yield_to_ready_tasks`]: lets a task yield to the tasks of its thread that are ready. For long work, use tokio's
//! `yield_now`: after that call the thread polls its sockets, too.

use std::future::poll_fn;
use std::task::Poll;

/// Queues this task behind the tasks that are ready, without polling the sockets in between. Prefetched memory arrives
/// during the call.
#[inline]
pub(super) async fn yield_to_ready_tasks() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn yielding_waits_once_and_wakes_its_task_at_once() {
        let wakes = Arc::new(Wakes::default());
        let waker = wakes.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut step = Box::pin(yield_to_ready_tasks());
        assert!(step.as_mut().poll(&mut cx).is_pending());
        assert_eq!(wakes.0.load(Relaxed), 1);
        assert!(step.as_mut().poll(&mut cx).is_ready());
    }
}
