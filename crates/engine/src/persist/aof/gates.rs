//! [`Gates`]: holds back replies about changes that are not on the disk yet.
//!
//! With `appendfsync always` a session reads the journal's tail at the end of a turn that ran commands. All changes
//! that it wrote or saw lie before this offset. Its replies wait until the disk has reached the offset.
//!
//! One sync serves all sessions that wait when it begins, and the next one begins at once. So clients that only wait
//! for replies form two groups, and the commands of one group run while the disk works for the other. Letting the
//! sessions of the sync before come back first (PostgreSQL's `commit_delay`) was tried: 45,000 operations per second
//! instead of 57,000 for 32 clients that send in step (`make durable ARGS='--only always'`). All sessions of a sync are
//! woken together: [`wake_together`] says why.

use crate::host::wake_together;
use crate::{Signal, Wake};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// The sessions whose replies wait for the disk. See the module.
pub(crate) struct Gates {
    /// True while replies must wait.
    is_on: AtomicBool,
    /// The journal offset of the end of the bytes on the disk.
    synced: AtomicU64,
    /// The waiting sessions, by offset and client.
    waiting: Mutex<BTreeMap<(u64, u64), Arc<dyn Wake>>>,
    /// Signalled when a session starts to wait.
    arrived: Box<dyn Signal>,
}

impl Gates {
    /// Starts with no waiting session and with nothing on the disk.
    pub(super) fn new(arrived: Box<dyn Signal>) -> Gates {
        Gates { is_on: AtomicBool::new(false), synced: AtomicU64::new(0), waiting: Mutex::default(), arrived }
    }
    /// True while replies must wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// The journal offset of the end of the bytes on the disk.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Acquire)
    }
    /// Registers `wake`, which is called when everything before `offset` of the journal is on the disk. False when
    /// nothing is registered, because all these bytes already are on the disk or replies need not wait.
    pub(crate) fn wait(&self, offset: u64, client: u64, wake: &Arc<dyn Wake>) -> bool {
        if !self.is_on() {
            return false;
        }
        self.wait_synced(offset, client, wake)
    }
    /// Does what [`Gates::wait`] does, even while replies need not wait.
    pub(crate) fn wait_synced(&self, offset: u64, client: u64, wake: &Arc<dyn Wake>) -> bool {
        if self.synced() >= offset {
            return false;
        }
        self.waiting.lock().insert((offset, client), wake.clone());
        // The disk may have reached the offset meanwhile.
        if self.synced.load(SeqCst) < offset {
            self.arrived.notify();
            return true;
        }
        self.waiting.lock().remove(&(offset, client));
        false
    }
    /// Records that everything before `offset` of the journal is on the disk. Wakes the sessions that waited for this.
    pub(super) fn set_synced(&self, offset: u64) {
        self.synced.store(offset, SeqCst);
        let mut waiting = self.waiting.lock();
        let later = waiting.split_off(&(offset, u64::MAX));
        let woken = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        wake_together(woken.values());
    }
    /// Sets whether replies must wait from now on.
    pub(super) fn switch(&self, on: bool) {
        self.is_on.store(on, Release);
        if !on {
            let woken = std::mem::take(&mut *self.waiting.lock());
            wake_together(woken.values());
        }
    }
    /// Sleeps until a session waits, or until the timeout.
    pub(super) fn sleep(&self, at_most_us: u64) {
        let seen = self.arrived.changes();
        if self.waiting.lock().is_empty() {
            self.arrived.wait(seen, Some(at_most_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A signal for a test in which no thread sleeps.
    struct NoOne;
    impl Signal for NoOne {
        fn changes(&self) -> u64 {
            0
        }
        fn wait(&self, _seen: u64, _at_most_us: Option<u64>) -> bool {
            panic!("nobody sleeps")
        }
        fn notify(&self) {}
    }

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn queue(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_waiting_session_is_woken_at_its_offset() {
        let gates = Gates::new(Box::new(NoOne));
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        let woken = || count.0.load(Relaxed);
        assert!(!gates.wait(10, 1, &wake), "it is off");
        gates.switch(true);
        gates.set_synced(10);
        assert!(!gates.wait(10, 1, &wake), "it is there");
        for (offset, client) in [(11, 1), (20, 2), (20, 3), (21, 4)] {
            assert!(gates.wait(offset, client, &wake));
        }
        gates.set_synced(10);
        assert_eq!(woken(), 0);
        gates.set_synced(20);
        assert_eq!(woken(), 3);
        gates.switch(false);
        assert_eq!(woken(), 4);
        assert!(!gates.wait(100, 1, &wake));
        assert!(gates.wait_synced(100, 1, &wake));
    }
}
