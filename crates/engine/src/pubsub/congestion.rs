//! [`Congestion`]: dispatchers with a full queue, and the publishers that wait for them.

use crate::Wake;
use crate::host::wake_together;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The number of dispatchers with a full queue, and the handles to wake when one of them has caught up.
#[derive(Default)]
pub(super) struct Congestion {
    full: AtomicUsize,
    waiting: Mutex<BTreeMap<u64, Arc<dyn Wake>>>,
}

impl Congestion {
    #[inline]
    pub(super) fn is_congested(&self) -> bool {
        self.full.load(SeqCst) > 0
    }
    /// Records that a dispatcher's queue is full.
    pub(super) fn begin(&self) {
        self.full.fetch_add(1, SeqCst);
    }
    /// Records that a dispatcher has caught up. The caller must hold none of the dispatcher's locks.
    pub(super) fn end(&self) {
        self.full.fetch_sub(1, SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        wake_together(waiting.values());
    }
    /// Calls `wake` when the next dispatcher catches up. False when no queue is full.
    pub(super) fn wait(&self, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let mut waiting = self.waiting.lock();
        // Check under the lock, so that a dispatcher that catches up later finds the entry.
        if !self.is_congested() {
            return false;
        }
        waiting.insert(client, wake.clone());
        true
    }
}
