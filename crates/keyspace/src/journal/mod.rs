//! [`Journal`]: the stream of all changes, in one order, at exact offsets in bytes.
//!
//! A transaction that changed something asks for its place in the stream while it holds its shards: one addition says the
//! place. So the stream's order is an order in which the transactions may have run one after the other. The bytes are put
//! into a lane of the transaction's thread when the shards are let go. [`Journal::take`] joins the lanes in the stream's
//! order; one thread calls it, for a file or for replicas. What the stream says is in [`effects`].
//!
//! Left out: files, and the imports' versions, which only Strand knows.

pub(crate) mod effects;
mod padding;

pub use effects::{Arg, EffectsMark};
pub use padding::padding;

use effects::{Effects, Encoded};
use parking_lot::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strand_chain::Chain;

/// Bit of a journal's alerts: more than [`WAITING_BYTES_MAX`] waits to be taken, and writers are to wait.
pub const JOURNAL_FULL: u8 = 32;
/// Most bytes that wait to be taken before writers wait.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// With more bytes waiting to be taken, a taker that sleeps is woken.
const WAKE_BYTES: usize = 256 << 10;
/// Effects and lanes with more room than this do not keep it.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Numbers the journals of the process, so that a thread knows its lane in each.
static JOURNALS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread's lanes, by journal.
    static LANES: RefCell<Vec<(u64, Arc<Mutex<Lane>>)>> = const { RefCell::new(Vec::new()) };
    /// Effects that the next transaction of this thread uses.
    static SPARE: Cell<Option<Box<Effects>>> = const { Cell::new(None) };
}

/// The stream of changes.
#[derive(Debug)]
pub struct Journal {
    id: u64,
    /// The offset behind the last transaction that has its place.
    tail: Aligned,
    is_on: AtomicBool,
    lanes: Mutex<Vec<Arc<Mutex<Lane>>>>,
    /// Bytes in the lanes.
    waiting: AtomicUsize,
    /// Where [`JOURNAL_FULL`] is set and taken back.
    alerts: OnceLock<Arc<AtomicU8>>,
    merger: Mutex<Merger>,
    is_asleep: AtomicBool,
    asleep: Mutex<()>,
    wake: Condvar,
}

/// On a cache line of its own: every writer changes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned(AtomicU64);

/// What one thread has put and nobody has taken yet.
#[derive(Debug, Default)]
struct Lane {
    encoded: Encoded,
    /// In the order of their offsets: a thread ends one transaction before the next.
    records: VecDeque<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    offset: u64,
    /// Behind its last byte and its last blob, in the lane.
    bytes_end: usize,
    blobs_end: usize,
}

/// Joins the lanes.
#[derive(Debug, Default)]
struct Merger {
    /// The offset of the next byte to take.
    frontier: u64,
    /// What was taken out of each lane, oldest first, with the places that are reached in it.
    taken: Vec<VecDeque<Taken>>,
}

#[derive(Debug)]
struct Taken {
    lane: Lane,
    bytes_at: usize,
    blobs_at: usize,
}

/// The place of a transaction in the stream; its bytes are still to be put.
#[derive(Debug)]
pub(crate) struct Placed<'j> {
    journal: &'j Journal,
    offset: u64,
    len: usize,
    /// `None` when they are put.
    effects: Option<Box<Effects>>,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal {
            id: JOURNALS.fetch_add(1, Relaxed),
            tail: Aligned::default(),
            is_on: AtomicBool::new(false),
            lanes: Mutex::default(),
            waiting: AtomicUsize::new(0),
            alerts: OnceLock::new(),
            merger: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            asleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }
    /// True while changes are recorded.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// Call with all shards held.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, SeqCst);
    }
    /// The offset behind the last change: what [`Journal::take`] gives up to here holds all changes until now.
    pub fn tail(&self) -> u64 {
        self.tail.0.load(Acquire)
    }
    /// Where [`JOURNAL_FULL`] is to be set; the first call counts.
    pub fn set_alerts(&self, alerts: Arc<AtomicU8>) {
        let _ = self.alerts.set(alerts);
    }
    /// Adds the bytes that come next in the stream to `out`; the offset behind them. Bytes behind those of a transaction
    /// that is about to put its own are left for the next call.
    pub fn take(&self, out: &mut Chain) -> u64 {
        let mut merger = self.merger.lock();
        let before = merger.frontier;
        let lanes = self.lanes.lock().clone();
        merger.taken.resize_with(lanes.len(), VecDeque::new);
        for (lane, taken) in lanes.iter().zip(&mut merger.taken) {
            let mut lane = lane.lock();
            if !lane.records.is_empty() {
                taken.push_back(Taken { lane: std::mem::take(&mut *lane), bytes_at: 0, blobs_at: 0 });
            }
        }
        while merger.step(out) {}
        let frontier = merger.frontier;
        let taken = (frontier - before) as usize;
        self.look_whether_full(self.waiting.fetch_sub(taken, SeqCst) - taken);
        frontier
    }
    fn look_whether_full(&self, waiting: usize) {
        let Some(alerts) = self.alerts.get() else { return };
        match waiting > WAITING_BYTES_MAX {
            true => alerts.fetch_or(JOURNAL_FULL, Relaxed),
            false => alerts.fetch_and(!JOURNAL_FULL, Relaxed),
        };
    }
    /// Sleeps until somebody calls [`Journal::wake`], much waits to be taken, or the time is over.
    pub fn sleep(&self, at_most: Duration) {
        let mut asleep = self.asleep.lock();
        self.is_asleep.store(true, SeqCst);
        if self.waiting.load(SeqCst) < WAKE_BYTES {
            self.wake.wait_for(&mut asleep, at_most);
        }
        self.is_asleep.store(false, SeqCst);
    }
    /// Wakes who sleeps in [`Journal::sleep`]; costs a look when nobody does.
    pub fn wake(&self) {
        if self.is_asleep.load(SeqCst) {
            // A taker that is about to sleep sleeps by then.
            drop(self.asleep.lock());
            self.wake.notify_all();
        }
    }

    /// Effects for a transaction of this thread, empty.
    pub(crate) fn effects() -> Box<Effects> {
        SPARE.take().unwrap_or_default()
    }
    /// Gives a transaction its place, if there is anything to put. Call with its shards held.
    pub(crate) fn place(&self, mut effects: Box<Effects>) -> Option<Placed<'_>> {
        if !effects.close() {
            keep(effects);
            return None;
        }
        let len = effects.len();
        let offset = self.tail.0.fetch_add(len as u64, AcqRel);
        Some(Placed { journal: self, offset, len, effects: Some(effects) })
    }
    fn put(&self, offset: u64, len: usize, put: impl FnOnce(&mut Encoded)) {
        // Counted before anybody can take them.
        let before = self.waiting.fetch_add(len, SeqCst);
        let lane = self.lane();
        let mut lane = lane.lock();
        put(&mut lane.encoded);
        let (bytes_end, blobs_end) = (lane.encoded.bytes.len(), lane.encoded.blobs.len());
        lane.records.push_back(Record { offset, bytes_end, blobs_end });
        drop(lane);
        if before < WAKE_BYTES && before + len >= WAKE_BYTES {
            self.wake();
        }
        if before <= WAITING_BYTES_MAX && before + len > WAITING_BYTES_MAX {
            self.look_whether_full(before + len);
        }
    }
    /// This thread's lane.
    fn lane(&self) -> Arc<Mutex<Lane>> {
        LANES.with_borrow_mut(|lanes| {
            if let Some((_, lane)) = lanes.iter().find(|(id, _)| *id == self.id) {
                return lane.clone();
            }
            let lane = Arc::<Mutex<Lane>>::default();
            self.lanes.lock().push(lane.clone());
            // Those of journals that have ended.
            lanes.retain(|(_, lane)| Arc::strong_count(lane) > 1);
            lanes.push((self.id, lane.clone()));
            lane
        })
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
    /// Puts the bytes. Call when the shards are let go.
    pub(crate) fn put(mut self) {
        if let Some(mut effects) = self.effects.take() {
            self.journal.put(self.offset, self.len, |lane| effects.put(lane));
            keep(effects);
        }
    }
}

impl Drop for Placed<'_> {
    /// A panic came between the place and the bytes: a command that changes nothing fills the hole.
    fn drop(&mut self) {
        if self.effects.is_some() {
            let len = self.len;
            self.journal.put(self.offset, len, |lane| lane.bytes.extend(padding(len)));
        }
    }
}

impl Merger {
    /// Takes the records at the frontier out of one lane after the other; false: there was none.
    fn step(&mut self, out: &mut Chain) -> bool {
        let before = self.frontier;
        for taken in &mut self.taken {
            while let Some(first) = taken.front_mut() {
                let Some(record) = first.lane.records.pop_front_if(|record| record.offset == self.frontier)
                else {
                    if first.lane.records.is_empty() {
                        taken.pop_front();
                        continue;
                    }
                    break;
                };
                self.frontier += first.give(record, out);
            }
        }
        self.frontier != before
    }
}

impl Taken {
    /// Adds a record's bytes to `out`; how many they are.
    fn give(&mut self, record: Record, out: &mut Chain) -> u64 {
        let before = out.len();
        let Encoded { bytes, blobs, .. } = &mut self.lane.encoded;
        for (place, blob) in &mut blobs[self.blobs_at..record.blobs_end] {
            out.push_slice(&bytes[self.bytes_at..*place]);
            self.bytes_at = *place;
            out.push_blob(std::mem::take(blob));
        }
        out.push_slice(&bytes[self.bytes_at..record.bytes_end]);
        (self.bytes_at, self.blobs_at) = (record.bytes_end, record.blobs_end);
        (out.len() - before) as u64
    }
}

#[cfg(test)]
mod tests;
