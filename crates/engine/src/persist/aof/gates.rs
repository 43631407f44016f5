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
    Ordering::{Acquire, Relaxed, SeqCst},
};

/// The sessions whose replies wait for the disk. See the module.
pub(crate) struct Gates {
    /// True while replies must wait.
    is_on: AtomicBool,
    /// True when sessions began to wait before `appendfsync` was changed from `always`. No later sync may come by itself.
    owes_sync: AtomicBool,
    /// True while the files are complete. Before that, no bytes count as safe.
    is_complete: AtomicBool,
    /// The journal offset of the end of the bytes on the disk.
    synced: AtomicU64,
    waiting: Mutex<Waiting>,
    /// Signalled when a session starts to wait.
    arrived: Box<dyn Signal>,
}

/// The reason why a session waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Replies must wait.
    Replies,
    /// WAITAOF.
    Command,
}

#[derive(Default)]
struct Waiting {
    /// False while there is no append-only file.
    is_open: bool,
    /// The waiting sessions, by offset, client and reason. A session may wait with WAITAOF and with replies at once.
    sessions: BTreeMap<(u64, u64, Reason), Arc<dyn Wake>>,
}

impl Gates {
    /// Starts with no waiting session and with nothing on the disk.
    pub(super) fn new(arrived: Box<dyn Signal>) -> Gates {
        Gates {
            is_on: AtomicBool::new(false),
            owes_sync: AtomicBool::new(false),
            is_complete: AtomicBool::new(false),
            synced: AtomicU64::new(0),
            waiting: Mutex::default(),
            arrived,
        }
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
    /// True when everything before `offset` of the journal is on the disk, in complete files.
    pub(crate) fn is_safe(&self, offset: u64) -> bool {
        self.is_complete.load(SeqCst) && self.synced.load(SeqCst) >= offset
    }
    /// Registers `wake` for a session with replies that must wait. `wake` is called when everything before `offset` of
    /// the journal is on the disk. False when nothing is registered, because all these bytes already are on the disk or
    /// there is no append-only file.
    pub(crate) fn wait(&self, offset: u64, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let waits = self.register(offset, client, Reason::Replies, wake);
        if waits && !self.is_on.load(SeqCst) {
            self.owes_sync.store(true, SeqCst);
        }
        waits
    }
    /// Does what [`Gates::wait`] does, and leaves the time of the next sync to `appendfsync`.
    pub(crate) fn wait_synced(&self, offset: u64, client: u64, wake: &Arc<dyn Wake>) -> bool {
        self.register(offset, client, Reason::Command, wake)
    }
    /// Ends a wait of [`Gates::wait_synced`] that may be over already.
    pub(crate) fn forget_synced(&self, offset: u64, client: u64) {
        self.waiting.lock().sessions.remove(&(offset, client, Reason::Command));
    }
    fn register(&self, offset: u64, client: u64, reason: Reason, wake: &Arc<dyn Wake>) -> bool {
        if self.is_safe(offset) {
            return false;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.is_open {
            return false;
        }
        waiting.sessions.insert((offset, client, reason), wake.clone());
        drop(waiting);
        // The disk may have reached the offset meanwhile.
        if !self.is_safe(offset) {
            self.arrived.notify();
            return true;
        }
        self.waiting.lock().sessions.remove(&(offset, client, reason));
        false
    }
    /// Records that everything before `offset` of the journal is on the disk. Wakes the sessions that waited for this.
    pub(super) fn set_synced(&self, offset: u64) {
        self.synced.store(offset, SeqCst);
        let mut waiting = self.waiting.lock();
        let later = waiting.sessions.split_off(&(offset, u64::MAX, Reason::Command));
        let woken = std::mem::replace(&mut waiting.sessions, later);
        drop(waiting);
        wake_together(woken.values());
    }
    /// There is an append-only file whose first base is not complete. Sessions may wait, but no reply has to.
    pub(super) fn begin(&self) {
        self.is_complete.store(false, SeqCst);
        self.waiting.lock().is_open = true;
    }
    /// The append-only file is complete. `replies_wait`: replies must wait from now on. Replies that already wait are sent
    /// after the next sync in any case.
    pub(super) fn open(&self, replies_wait: bool) {
        let did_wait = self.is_on.swap(replies_wait, SeqCst);
        let was_complete = self.is_complete.swap(true, SeqCst);
        let mut waiting = self.waiting.lock();
        waiting.is_open = true;
        if did_wait && !replies_wait && !waiting.sessions.is_empty() {
            self.owes_sync.store(true, SeqCst);
        }
        drop(waiting);
        if !was_complete {
            self.set_synced(self.synced());
        }
    }
    /// There is no append-only file any more. Wakes all sessions.
    pub(super) fn close(&self) {
        self.is_on.store(false, SeqCst);
        self.is_complete.store(false, SeqCst);
        let mut waiting = self.waiting.lock();
        waiting.is_open = false;
        let woken = std::mem::take(&mut waiting.sessions);
        drop(waiting);
        wake_together(woken.values());
    }
    /// True, once, when sessions wait for a sync that must be made whatever `appendfsync` says.
    pub(super) fn take_owed_sync(&self) -> bool {
        self.owes_sync.load(Relaxed) && self.owes_sync.swap(false, SeqCst)
    }
    /// Sleeps until a session waits, or until the timeout.
    pub(super) fn sleep(&self, at_most_us: u64) {
        let seen = self.arrived.changes();
        if self.waiting.lock().sessions.is_empty() {
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
        assert!(!gates.wait(10, 1, &wake), "there is no file");
        gates.open(true);
        gates.set_synced(10);
        assert!(!gates.wait(10, 1, &wake), "it is there");
        for (offset, client) in [(11, 1), (20, 2), (20, 3), (21, 4)] {
            assert!(gates.wait(offset, client, &wake));
        }
        gates.set_synced(10);
        assert_eq!(woken(), 0);
        gates.set_synced(20);
        assert_eq!(woken(), 3);
        assert!(!gates.take_owed_sync());
        gates.open(false);
        assert_eq!(woken(), 3, "what waits is not on the disk");
        assert!(gates.take_owed_sync() && !gates.take_owed_sync());
        assert!(gates.wait_synced(100, 1, &wake) && !gates.take_owed_sync());
        assert!(gates.wait(100, 2, &wake) && gates.take_owed_sync());
        gates.forget_synced(100, 1);
        assert!(gates.wait_synced(100, 1, &wake));
        // One client waits for two reasons.
        assert!(gates.wait(100, 1, &wake));
        gates.close();
        assert_eq!(woken(), 7);
        assert!(!gates.wait(100, 1, &wake) && !gates.wait_synced(100, 1, &wake));
    }
}
