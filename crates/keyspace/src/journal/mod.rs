//! [`Journal`]: the stream of all changes, in one order, at exact byte offsets.
//!
//! A transaction that changed something takes its position in the stream while it holds its shards, by one
//! addition. So the order of the stream is an order in which the transactions could have run one after the other.
//! After the shards are released, the thread puts the bytes into its own lane. [`Journal::take`] joins the lanes
//! in the order of the stream. One thread calls it, for a file or for replicas. A long range of one lane is taken
//! without a copy. The content of the stream is in [`effects`].
//!
//! Left out: files, and the versions of imports, which only Strand has.

pub(crate) mod effects;
mod padding;

pub use effects::{Arg, EffectsMark, Sent};
pub use padding::padding;

use effects::Effects;
use parking_lot::Mutex;
use spin::{Yield, mutex::SpinMutex};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use strand_chain::Chain;

/// Bit of a journal's alerts: more than [`WAITING_BYTES_MAX`] bytes wait to be taken, so writers must wait.
pub const JOURNAL_FULL: u8 = 32;
/// Bytes that may wait to be taken before writers wait.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// With this many bytes waiting, a sleeping taker is woken.
const WAKE_BYTES: usize = 256 << 10;
/// A range of a lane up to this length is copied, because sharing its block would cost more.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Larger buffers of effects are not kept for reuse.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A lane with its lock. Its thread locks the lane once for each transaction, and the taker now and then, so the lock
/// is almost never held. Its unlock is one store: an unlock that reads and writes at once would wait until the bytes
/// are in the cache (`JOURNAL=1 ONLY=SET cargo bench -p strand-engine --bench pipeline`, pipeline 30: the journal costs a SET
/// 62 to 102 ns in a build with link-time optimisation).
type SharedLane = Arc<SpinMutex<Lane, Yield>>;

/// Numbers the journals of the process, so that a thread finds its lane in each.
static JOURNALS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Lanes of this thread, by journal.
    static LANES: RefCell<Vec<(u64, SharedLane)>> = const { RefCell::new(Vec::new()) };
    /// Reusable effects for the next transaction of this thread.
    static SPARE: Cell<Option<Box<Effects>>> = const { Cell::new(None) };
}

/// The stream of changes.
#[derive(Debug)]
pub struct Journal {
    id: u64,
    /// The offset after the last transaction that has its position.
    tail: Aligned,
    is_on: AtomicBool,
    lanes: Mutex<Vec<SharedLane>>,
    /// Offset of the next byte to take.
    frontier: AtomicU64,
    /// Where [`JOURNAL_FULL`] is set and cleared.
    alerts: OnceLock<Arc<AtomicU8>>,
    merger: Mutex<Merger>,
    is_asleep: AtomicBool,
    /// Wakes the taker.
    wake: OnceLock<Wake>,
}

/// What wakes the taker; of its caller, because this crate knows no threads.
struct Wake(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// On a cache line of its own, because every writer changes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned(AtomicU64);

/// The bytes that one thread has put and that are not taken yet.
#[derive(Debug, Default)]
struct Lane {
    stream: Chain,
    /// The ranges in `stream`, in the order of offsets, because a thread ends one transaction before the next.
    ranges: VecDeque<ByteRange>,
}

/// Transactions that are adjacent in the whole stream.
#[derive(Clone, Copy, Debug)]
struct ByteRange {
    offset: u64,
    len: usize,
}

/// Joins the lanes.
#[derive(Debug, Default)]
struct Merger {
    /// Offset of the next byte to take.
    frontier: u64,
    /// Bytes taken out of each lane, the oldest first.
    taken: Vec<VecDeque<Lane>>,
}

/// The position of a transaction in the stream. Its bytes are not put yet.
#[derive(Debug)]
pub(crate) struct Placed<'j> {
    journal: &'j Journal,
    offset: u64,
    len: usize,
    /// `None` after the bytes were put.
    effects: Option<Box<Effects>>,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal {
            id: JOURNALS.fetch_add(1, Relaxed),
            tail: Aligned::default(),
            is_on: AtomicBool::new(false),
            lanes: Mutex::default(),
            frontier: AtomicU64::new(0),
            alerts: OnceLock::new(),
            merger: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            wake: OnceLock::new(),
        }
    }
    /// True while changes are recorded.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// Turns recording on or off. Call it with all shards held.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, SeqCst);
    }
    /// The offset after the last change. The bytes that [`Journal::take`] returns up to this offset hold all
    /// changes so far.
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Acquire)
    }
    /// Sets the place for [`JOURNAL_FULL`]. Only the first call has an effect.
    pub fn set_alerts(&self, alerts: Arc<AtomicU8>) {
        let _ = self.alerts.set(alerts);
    }
    /// Adds the next bytes of the stream to `out`, and returns the offset after them. Stops at a transaction that
    /// has not put its bytes yet.
    pub fn take(&self, out: &mut Chain) -> u64 {
        let mut merger = self.merger.lock();
        let lanes = self.lanes.lock().clone();
        merger.taken.resize_with(lanes.len(), VecDeque::new);
        for (lane, taken) in lanes.iter().zip(&mut merger.taken) {
            let mut lane = lane.lock();
            if !lane.ranges.is_empty() {
                taken.push_back(std::mem::take(&mut *lane));
            }
        }
        while merger.step(out) {}
        let frontier = merger.frontier;
        self.frontier.store(frontier, SeqCst);
        self.look_whether_full(self.waiting());
        frontier
    }
    /// Bytes that have a position and are not taken.
    fn waiting(&self) -> usize {
        let frontier = self.frontier.load(SeqCst);
        self.tail.0.load(SeqCst).saturating_sub(frontier) as usize
    }
    fn look_whether_full(&self, waiting: usize) {
        let Some(alerts) = self.alerts.get() else { return };
        match waiting > WAITING_BYTES_MAX {
            true => alerts.fetch_or(JOURNAL_FULL, Relaxed),
            false => alerts.fetch_and(!JOURNAL_FULL, Relaxed),
        };
    }
    /// Sets what wakes the taker. Only the first call has an effect.
    pub fn set_wake(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(Wake(wake));
    }
    /// The taker is about to sleep: from here on it is woken when many bytes wait to be taken. False: they wait already.
    pub fn begins_sleep(&self) -> bool {
        self.is_asleep.store(true, SeqCst);
        self.waiting() < WAKE_BYTES
    }
    /// The taker sleeps no more.
    pub fn ends_sleep(&self) {
        self.is_asleep.store(false, SeqCst);
    }
    /// Wakes the taker. Costs one load when it is awake.
    fn wake(&self) {
        if self.is_asleep.load(SeqCst)
            && let Some(Wake(wake)) = self.wake.get()
        {
            wake();
        }
    }

    /// Empty effects for a transaction of this thread.
    pub(crate) fn effects() -> Box<Effects> {
        SPARE.take().unwrap_or_default()
    }
    /// Gives a transaction its position, if it has effects. Call it with the transaction's shards held.
    pub(crate) fn place(&self, mut effects: Box<Effects>) -> Option<Placed<'_>> {
        if !effects.close() {
            keep(effects);
            return None;
        }
        let len = effects.len();
        let offset = self.tail.0.fetch_add(len as u64, SeqCst);
        Some(Placed { journal: self, offset, len, effects: Some(effects) })
    }
    fn put(&self, offset: u64, len: usize, put: impl FnOnce(&mut Chain)) {
        self.with_lane(|lane| {
            put(&mut lane.stream);
            match lane.ranges.back_mut() {
                Some(last) if last.offset + last.len as u64 == offset => last.len += len,
                _ => lane.ranges.push_back(ByteRange { offset, len }),
            }
        });
        // The thread that puts the byte over the limit sees that, because the frontier only grows.
        let before = offset.saturating_sub(self.frontier.load(SeqCst)) as usize;
        if before < WAKE_BYTES && before + len >= WAKE_BYTES {
            self.wake();
        }
        if before <= WAITING_BYTES_MAX && before + len > WAITING_BYTES_MAX {
            self.look_whether_full(before + len);
        }
    }
    /// Calls `put` with this thread's lane.
    fn with_lane(&self, put: impl FnOnce(&mut Lane)) {
        LANES.with_borrow_mut(|lanes| {
            if let Some((_, lane)) = lanes.iter().find(|(id, _)| *id == self.id) {
                return put(&mut lane.lock());
            }
            let lane = SharedLane::default();
            self.lanes.lock().push(lane.clone());
            // Drop the lanes of journals that have ended.
            lanes.retain(|(_, lane)| Arc::strong_count(lane) > 1);
            put(&mut lane.lock());
            lanes.push((self.id, lane));
        });
    }
}

/// Keeps effects for the next transaction of this thread.
fn keep(mut effects: Box<Effects>) {
    effects.reset();
    if effects.encoded.bytes.capacity() <= KEPT_BYTES_MAX {
        SPARE.set(Some(effects));
    }
}

impl Placed<'_> {
    /// Puts the bytes. Call it after the shards are released.
    pub(crate) fn put(mut self) {
        if let Some(mut effects) = self.effects.take() {
            self.journal.put(self.offset, self.len, |lane| effects.put(lane));
            keep(effects);
        }
    }
}

impl Drop for Placed<'_> {
    /// After a panic between position and bytes, fills the hole with a command that changes nothing.
    fn drop(&mut self) {
        if self.effects.is_some() {
            let len = self.len;
            self.journal.put(self.offset, len, |lane| lane.push_slice(&padding(len)));
        }
    }
}

impl Merger {
    /// Takes the ranges at the frontier out of one lane after the other. Returns false when there was none.
    fn step(&mut self, out: &mut Chain) -> bool {
        let before = self.frontier;
        for taken in &mut self.taken {
            while let Some(first) = taken.front_mut() {
                let Some(stretch) = first.ranges.pop_front_if(|stretch| stretch.offset == self.frontier)
                else {
                    if first.ranges.is_empty() {
                        taken.pop_front();
                        continue;
                    }
                    break;
                };
                first.give(stretch.len, out);
                self.frontier += stretch.len as u64;
            }
        }
        self.frontier != before
    }
}

impl Lane {
    /// Moves the first `len` bytes to the end of `out`.
    fn give(&mut self, len: usize, out: &mut Chain) {
        if len == self.stream.len() {
            return out.push_chain(std::mem::take(&mut self.stream));
        }
        if len > COPIED_BYTES_MAX {
            return out.push_chain(self.stream.split_to(len));
        }
        let mut left = len;
        for slice in self.stream.slices() {
            let part = &slice[..slice.len().min(left)];
            out.push_slice(part);
            left -= part.len();
            if left == 0 {
                break;
            }
        }
        self.stream.advance(len);
    }
}

#[cfg(test)]
mod tests;
