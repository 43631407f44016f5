//! [`Syncs`]: the progress of the disk, and the thread that syncs.
//!
//! With `appendfsync everysec` a separate thread syncs. So a slow disk does not stop writes, and written bytes survive
//! the end of the process. With `always`, at a rewrite and at the end, the caller syncs in place. One sync runs at a
//! time, and its failure is recorded before the next one begins: the system reports a failure once, and the next sync
//! may succeed.

use super::AofMode;
use crate::folder::SyncFile;
use crate::{Engine, Host, Now, Signal};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often the thread checks by itself whether the file was switched off.
const CHECK_EVERY_US: u64 = 200_000;
/// A sync that takes this long while more bytes are written is late.
const LATE_US: u64 = 2_000_000;

/// The state of syncs. See the module.
pub(super) struct Syncs {
    state: Mutex<State>,
    /// Signalled when the thread may find an order.
    ordered: Box<dyn Signal>,
    /// Signalled when a sync has ended.
    ended: Box<dyn Signal>,
    /// The field `aof_delayed_fsync` of INFO: the number of late syncs.
    late: AtomicU64,
}

#[derive(Default)]
struct State {
    /// An order to sync that no thread has taken yet.
    order: Option<Order>,
    /// True while a sync is running.
    is_busy: bool,
    /// When the open or running order was made, or was last found late.
    since_us: u64,
    /// The journal offset of the end of the synced bytes.
    synced: u64,
}

/// An order to sync everything before `offset` of the journal.
pub(super) struct Order {
    pub(super) file: Arc<dyn SyncFile>,
    pub(super) offset: u64,
}

impl Syncs {
    pub(super) fn new(host: &dyn Host) -> Syncs {
        Syncs {
            state: Mutex::default(),
            ordered: host.signal(),
            ended: host.signal(),
            late: AtomicU64::new(0),
        }
    }
    /// True while an order is open or running.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        state.is_busy || state.order.is_some()
    }
    /// The number of late syncs.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }
    /// The journal offset of the end of the synced bytes.
    pub(super) fn synced(&self) -> u64 {
        self.state.lock().synced
    }
    /// Starts at journal offset `offset` with a new file.
    pub(super) fn begin_at(&self, offset: u64) {
        self.state.lock().synced = offset;
    }
    /// Orders a sync from the syncing thread. The previous order must be done or dropped.
    pub(super) fn order_sync(&self, order: Order, now: Now) {
        let mut state = self.state.lock();
        if order.offset > state.synced {
            (state.order, state.since_us) = (Some(order), now.mono_us);
            drop(state);
            self.ordered.notify();
        }
    }
    /// Call this after a write. True when a sync is late, at most once per [`LATE_US`].
    pub(super) fn check_late(&self, now: Now) -> bool {
        let mut state = self.state.lock();
        let is_late = (state.is_busy || state.order.is_some()) && now.mono_us >= state.since_us + LATE_US;
        if is_late {
            state.since_us = now.mono_us;
            self.late.fetch_add(1, Relaxed);
        }
        is_late
    }
    /// Syncs on the caller's thread. A failed sync calls `on_failure` before another sync can begin.
    pub(super) fn sync_now(&self, order: Order, on_failure: impl FnOnce(&io::Error)) -> io::Result<()> {
        let mut state = self.state.lock();
        // If an order waits for a thread, this sync carries out the order, too.
        state.order = None;
        while state.is_busy {
            let seen = self.ended.changes();
            drop(state);
            self.ended.wait(seen, None);
            state = self.state.lock();
        }
        if state.synced >= order.offset {
            return Ok(());
        }
        state.is_busy = true;
        drop(state);
        self.run(order, on_failure)
    }
    fn run(&self, order: Order, on_failure: impl FnOnce(&io::Error)) -> io::Result<()> {
        let done = order.file.sync();
        if let Err(e) = &done {
            on_failure(e);
        }
        let mut state = self.state.lock();
        state.is_busy = false;
        if done.is_ok() {
            state.synced = state.synced.max(order.offset);
        }
        let has_order = state.order.is_some();
        drop(state);
        self.ended.notify();
        // With `always` there is no order, and the thread sleeps on.
        if has_order {
            self.ordered.notify();
        }
        done
    }
    /// Waits up to `at_most_us` for the open order and takes it.
    fn wait_for_order(&self, at_most_us: u64) -> Option<Order> {
        let mut state = self.state.lock();
        if (state.order.is_none() || state.is_busy) && at_most_us > 0 {
            let seen = self.ordered.changes();
            drop(state);
            self.ordered.wait(seen, Some(at_most_us));
            state = self.state.lock();
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
    /// The syncing thread: runs turns until the append-only file numbered `start_number` is switched off. The thread
    /// belongs to the host and may block. It holds no lock while [`SyncFile::sync`] waits for the disk.
    pub(super) fn run_sync_thread(&self, start_number: u64) {
        while self.persist.aof.is_current_start(start_number) {
            self.sync_ordered(CHECK_EVERY_US);
        }
    }
    /// One turn of the syncing thread; tests call it without a thread. False when there was no order.
    pub fn sync_aof(&self) -> bool {
        self.sync_ordered(0)
    }
    fn sync_ordered(&self, at_most_us: u64) -> bool {
        let syncs = &self.persist.aof.syncs;
        let Some(order) = syncs.wait_for_order(at_most_us) else { return false };
        if syncs.run(order, |e| self.sync_failed(e)).is_ok() {
            self.wake_synced_clients();
        }
        true
    }
    /// Wakes clients that wait for bytes that are now on the disk, unless a sync has failed and its bytes may be
    /// missing on the disk.
    pub(super) fn wake_synced_clients(&self) {
        let aof = &self.persist.aof;
        let synced = aof.syncs.synced();
        // Before the first base is complete, no bytes count as safe.
        if aof.gates.synced() < synced && aof.mode() == AofMode::On && !aof.status.lock().has_failed_sync {
            aof.gates.set_synced(synced);
        }
    }
}
