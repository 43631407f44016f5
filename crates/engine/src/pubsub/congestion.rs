//! [`Congestion`]: offices that have to catch up, and who waits for that before it publishes.

use crate::Wake;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// How many offices have too much in their queues, and whom to wake when one of them has not any more.
#[derive(Default)]
pub(super) struct Congestion {
    full: AtomicUsize,
    waiting: Mutex<BTreeMap<u64, Arc<dyn Wake>>>,
}

impl Congestion {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.full.load(SeqCst) > 0
    }
    /// An office has too much.
    pub(super) fn begins(&self) {
        self.full.fetch_add(1, SeqCst);
    }
    /// An office has caught up. Hold no lock of its.
    pub(super) fn ends(&self) {
        self.full.fetch_sub(1, SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.values().for_each(|wake| wake.wake());
    }
    /// Has `wake` called at the next end; false when no office has too much.
    pub(super) fn wait(&self, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let mut waiting = self.waiting.lock();
        // Under the lock: an end that comes later finds the entry.
        if !self.is_there() {
            return false;
        }
        waiting.insert(client, wake.clone());
        true
    }
}
