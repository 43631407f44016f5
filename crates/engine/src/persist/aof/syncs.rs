//! [`Syncs`]: how far the disk has come, and who brings it there.
//!
//! With `appendfsync everysec` a thread of its own syncs. So a slow disk keeps nobody from writing, and what is written outlives
//! the process. With `always`, at a rewrite and at the end the caller syncs in place. One sync goes on at a time, and its failure
//! is noted before the next begins: the system tells of a failure once, and the next sync may say that all is well.

use super::Mode;
use crate::folder::SyncFile;
use crate::{Engine, Now};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The thread looks by itself after so long whether the file was switched off.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A sync that is under way for so long while there is more to write is late.
const LATE_US: u64 = 2_000_000;

/// See the module.
#[derive(Default)]
pub(super) struct Syncs {
    state: Mutex<State>,
    /// The thread may find an order.
    ordered: Condvar,
    /// A sync has ended.
    ended: Condvar,
    /// INFO's `aof_delayed_fsync`.
    late: AtomicU64,
}

#[derive(Default)]
struct State {
    /// What nobody has begun yet.
    order: Option<Order>,
    /// The thread is at it.
    is_busy: bool,
    /// When the order was given that is open or under way, or was last found late.
    since_us: u64,
    /// The offset in the stream behind what was synced.
    synced: u64,
}

/// A sync that brings all before `offset` of the stream to the disk.
pub(super) struct Order {
    pub(super) file: Arc<dyn SyncFile>,
    pub(super) offset: u64,
}

impl Syncs {
    /// An order is open or under way.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        state.is_busy || state.order.is_some()
    }
    /// How often a sync was late.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }
    /// The offset in the stream behind what was synced.
    pub(super) fn synced(&self) -> u64 {
        self.state.lock().synced
    }
    /// The stream begins at `offset` for a new file.
    pub(super) fn begin_at(&self, offset: u64) {
        self.state.lock().synced = offset;
    }
    /// To be done by the thread; the order before is done or taken back.
    pub(super) fn give(&self, order: Order, now: Now) {
        let mut state = self.state.lock();
        if order.offset > state.synced {
            (state.order, state.since_us) = (Some(order), now.mono_us);
            self.ordered.notify_all();
        }
    }
    /// Something was written. True: a sync is late, which is told once in [`LATE_US`].
    pub(super) fn look_whether_late(&self, now: Now) -> bool {
        let mut state = self.state.lock();
        let is_late = (state.is_busy || state.order.is_some()) && now.mono_us >= state.since_us + LATE_US;
        if is_late {
            state.since_us = now.mono_us;
            self.late.fetch_add(1, Relaxed);
        }
        is_late
    }
    /// Syncs in the caller's place. `noted` gets a failure before another sync can begin.
    pub(super) fn in_place(&self, order: Order, noted: impl FnOnce(&io::Error)) -> io::Result<()> {
        let mut state = self.state.lock();
        // What nobody has begun is in this one.
        state.order = None;
        while state.is_busy {
            self.ended.wait(&mut state);
        }
        if state.synced >= order.offset {
            return Ok(());
        }
        state.is_busy = true;
        drop(state);
        self.run(order, noted)
    }
    fn run(&self, order: Order, noted: impl FnOnce(&io::Error)) -> io::Result<()> {
        let done = order.file.sync();
        if let Err(e) = &done {
            noted(e);
        }
        let mut state = self.state.lock();
        state.is_busy = false;
        if done.is_ok() {
            state.synced = state.synced.max(order.offset);
        }
        self.ended.notify_all();
        // With `always` there is none: the thread sleeps on.
        if state.order.is_some() {
            self.ordered.notify_all();
        }
        done
    }
    /// The open order; after `at_most` there may be none.
    fn take(&self, at_most: Duration) -> Option<Order> {
        let mut state = self.state.lock();
        if (state.order.is_none() || state.is_busy) && !at_most.is_zero() {
            self.ordered.wait_for(&mut state, at_most);
        }
        if state.is_busy {
            return None;
        }
        let order = state.order.take();
        state.is_busy = order.is_some();
        order
    }
}

impl Engine {
    /// The thread that syncs: turns until the append-only file that it was begun for is switched off.
    pub(super) fn run_sync_thread(&self, begun: u64) {
        while self.persist.aof.goes_on(begun) {
            self.sync_ordered(LOOK_EVERY);
        }
    }
    /// One turn of the thread that syncs, for a test that has no thread. False: there was nothing to do.
    pub fn sync_aof(&self) -> bool {
        self.sync_ordered(Duration::ZERO)
    }
    fn sync_ordered(&self, at_most: Duration) -> bool {
        let syncs = &self.persist.aof.syncs;
        let Some(order) = syncs.take(at_most) else { return false };
        if syncs.run(order, |e| self.sync_failed(e)).is_ok() {
            self.tell_synced();
        }
        true
    }
    /// Lets go who waited for what is on the disk by now, once that is proven.
    pub(super) fn tell_synced(&self) {
        let aof = &self.persist.aof;
        let synced = aof.syncs.synced();
        // Before there is a base nothing is safe.
        if aof.gates.synced() < synced && aof.mode() == Mode::On && !aof.status.lock().is_unproven {
            aof.gates.set_synced(synced);
        }
    }
}
