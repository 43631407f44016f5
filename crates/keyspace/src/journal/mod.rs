//! [`Journal`]: the stream of all changes, in one order, at exact byte offsets.
//!
//! A transaction that changed something takes its position in the stream while it holds its shards, by one atomic
//! exchange. So the order of the stream is an order in which the transactions could have run one after the other. The
//! exchange also tells which database is selected at the position, so SELECT is in the stream only where the database
//! changes.
//! After the shards are released, the thread writes the transaction's bytes into its own *buffer*. [`Journal::take`]
//! joins the buffers in the order of the stream. One thread, the *taker*, calls it, for a file or for replicas. A
//! long range of one buffer is taken without a copy. [`effects`] describes the content of the stream. Parts of the
//! stream are only for replicas (PING, PUBLISH): a file leaves them out.
//!
//! This module writes no files. The stream does not contain the versions of imported datasets, because redis-server has
//! no such versions.

pub(crate) mod effects;
mod padding;
mod removal;

pub use effects::{Arg, EffectsMark, SentArgs};
pub use padding::padding;
pub use removal::decode_fields_expired;

pub(crate) use removal::Removal;

use effects::{Effects, Encoded, select};
use parking_lot::Mutex;
use spin::{Yield, mutex::SpinMutex};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use strand_chain::Chain;

/// Bit of the journal's alerts: more than [`WAITING_BYTES_MAX`] bytes wait for the taker, so writers must wait.
pub const JOURNAL_FULL: u16 = 32;
/// Maximum number of bytes that wait for the taker. Above this limit, writers wait.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// Number of waiting bytes at which a sleeping taker is woken.
const WAKE_BYTES: usize = 256 << 10;
/// Maximum length of a range of a buffer that is copied. Sharing the block of such a short range would cost more.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a buffer of effects that is kept for reuse.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A buffer with its lock. Its thread takes the lock once per transaction, and the taker now and then, so the lock is
/// hardly ever contended. The unlock of a spin lock is one store. An unlock that reads and writes at once would
/// wait until the bytes just written are in the cache. (`JOURNAL=1 ONLY=SET cargo bench -p strand-engine --bench
/// pipeline`, pipeline 30: with the spin lock, the journal costs a SET 62 to 102 ns in a build with link-time
/// optimisation.)
type SharedBuffer = Arc<SpinMutex<ThreadBuffer, Yield>>;

/// Source of the journals' ids. A thread has a buffer per journal, and finds it by this id.
static JOURNALS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The buffers of this thread, each with the id of the journal to which it belongs.
    static BUFFERS: RefCell<Vec<(u64, SharedBuffer)>> = const { RefCell::new(Vec::new()) };
    /// Empty effects with their allocations, for the next transaction of this thread.
    static SPARE: Cell<Option<Box<Effects>>> = const { Cell::new(None) };
}

/// The stream of all changes. The module explains it.
#[derive(Debug)]
pub struct Journal {
    id: u64,
    /// The end of the last transaction that has a position ([`Tail`]).
    tail: Aligned,
    is_on: AtomicBool,
    buffers: Mutex<Vec<SharedBuffer>>,
    /// The offset of the next byte that the taker will take.
    frontier: AtomicU64,
    /// Has the bit [`JOURNAL_FULL`] while too many bytes wait.
    alerts: OnceLock<Arc<AtomicU16>>,
    merger: Mutex<Merger>,
    is_asleep: AtomicBool,
    /// Wakes the thread that takes the journal.
    wake: OnceLock<Wake>,
    /// True while a thread waits for the next byte.
    is_awaited: AtomicBool,
    /// Wakes the thread that waits for the next byte.
    awaited_wake: OnceLock<Wake>,
}

/// A function of the server that wakes a thread, because this crate does not know the server's threads.
pub(crate) struct Wake(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// The end of the stream in one word: the offset, and the database that is selected there.
#[derive(Clone, Copy, Debug)]
struct Tail(u64);

/// Bits of a [`Tail`] for the selected database. The other 56 bits are the offset: at a gigabyte a second they last two
/// years.
const DB_BITS: u32 = 8;
/// Stands for a database whose number is this large, and for no database: the stream must select a database before its
/// next command.
const NONE_SELECTED: usize = (1 << DB_BITS) - 1;

impl Tail {
    fn new(offset: u64, db: usize) -> Tail {
        Tail(offset << DB_BITS | db.min(NONE_SELECTED) as u64)
    }
    fn offset(self) -> u64 {
        self.0 >> DB_BITS
    }
    /// The selected database, or [`NONE_SELECTED`].
    fn db(self) -> usize {
        (self.0 & NONE_SELECTED as u64) as usize
    }
    /// True when the stream must select `db` before a command for this database.
    fn needs_select(self, db: usize) -> bool {
        db >= NONE_SELECTED || self.db() != db
    }
}

/// A counter on a cache line of its own, because every writer changes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Aligned(AtomicU64);

/// The bytes that one thread has written to the journal and that the taker has not taken yet.
#[derive(Debug, Default)]
struct ThreadBuffer {
    stream: Chain,
    /// The ranges of the whole stream that are in this buffer. Their offsets ascend, because a thread ends one
    /// transaction before the next.
    ranges: VecDeque<ByteRange>,
}

/// A range of the whole stream: one or more transactions of one thread that follow each other directly.
#[derive(Clone, Copy, Debug)]
struct ByteRange {
    offset: u64,
    len: usize,
    /// True when only replicas get these bytes.
    is_for_replicas: bool,
}

impl ByteRange {
    /// Bytes for files and for replicas.
    fn new(offset: u64, len: usize) -> ByteRange {
        ByteRange { offset, len, is_for_replicas: false }
    }
    fn for_replicas(offset: u64, len: usize) -> ByteRange {
        ByteRange { offset, len, is_for_replicas: true }
    }
    fn end(self) -> u64 {
        self.offset + self.len as u64
    }
}

/// What [`Journal::take`] has taken.
#[derive(Debug, Default)]
pub struct TakenBytes {
    /// The journal's offset after the taken bytes.
    pub end: u64,
    /// The offsets of the taken bytes that only replicas get. Ascending.
    pub for_replicas: Vec<Range<u64>>,
}

/// Joins the buffers of the threads to one stream.
#[derive(Debug, Default)]
struct Merger {
    /// The offset of the next byte that is to be taken.
    frontier: u64,
    /// For each buffer, the bytes that were moved out of the buffer and wait for their turn, the oldest first.
    pending: Vec<VecDeque<ThreadBuffer>>,
}

/// A transaction that has a position in the stream, but has not written its bytes there yet.
#[derive(Debug)]
pub(crate) struct PlacedEffects<'j> {
    journal: &'j Journal,
    /// The end of the stream before the transaction.
    before: Tail,
    /// Number of bytes in the stream.
    len: usize,
    /// The effects to write. `None` after they were written.
    effects: Option<Box<Effects>>,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal {
            id: JOURNALS.fetch_add(1, Relaxed),
            tail: Aligned::default(),
            is_on: AtomicBool::new(false),
            buffers: Mutex::default(),
            frontier: AtomicU64::new(0),
            alerts: OnceLock::new(),
            merger: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            wake: OnceLock::new(),
            is_awaited: AtomicBool::new(false),
            awaited_wake: OnceLock::new(),
        }
    }
    /// True while changes are recorded.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// Turns recording on or off. Call this while all shards are held.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, SeqCst);
    }
    /// The offset after the last change. When [`Journal::take`] has returned this offset, the taker has the bytes
    /// of all changes so far.
    pub fn tail(&self) -> u64 {
        Tail(self.tail.0.load(Acquire)).offset()
    }
    /// Makes the stream select a database before its next command. Returns the offset: what begins there needs to know no
    /// database.
    pub fn select_again(&self) -> u64 {
        self.reserve(|_| (0, NONE_SELECTED)).0.offset()
    }
    /// Adds a command that changes nothing and that only replicas get.
    pub fn append_for_replicas(&self, args: &[&[u8]]) {
        let mut command = Encoded::default();
        command.command(args.iter().map(|arg| Arg::Bytes(arg)));
        let (before, len) = self.reserve(|before| (command.len(), before.db()));
        self.put(ByteRange::for_replicas(before.offset(), len), |buffer| command.move_to(buffer));
    }
    /// Reserves the next bytes of the stream. `plan` gets the end of the stream, and returns the number of bytes and the
    /// database that is selected after them. Returns the end before the bytes, and their number.
    #[inline]
    fn reserve(&self, plan: impl Fn(Tail) -> (usize, usize)) -> (Tail, usize) {
        let mut before = Tail(self.tail.0.load(Relaxed));
        loop {
            let (len, db) = plan(before);
            let after = Tail::new(before.offset() + len as u64, db);
            match self.tail.0.compare_exchange_weak(before.0, after.0, SeqCst, Relaxed) {
                Ok(_) => return (before, len),
                Err(now) => before = Tail(now),
            }
        }
    }
    /// Sets the word that gets the bit [`JOURNAL_FULL`]. Only the first call has an effect.
    pub fn set_alerts(&self, alerts: Arc<AtomicU16>) {
        let _ = self.alerts.set(alerts);
    }
    /// Adds the next bytes of the stream to `out`. Stops before a transaction that has not written its bytes yet.
    pub fn take(&self, out: &mut Chain) -> TakenBytes {
        let mut merger = self.merger.lock();
        let buffers = self.buffers.lock().clone();
        merger.pending.resize_with(buffers.len(), VecDeque::new);
        for (buffer, pending) in buffers.iter().zip(&mut merger.pending) {
            let mut buffer = buffer.lock();
            if !buffer.ranges.is_empty() {
                pending.push_back(std::mem::take(&mut *buffer));
            }
        }
        let mut for_replicas = Vec::new();
        while merger.step(out, &mut for_replicas) {}
        let end = merger.frontier;
        self.frontier.store(end, SeqCst);
        self.update_full_alert(self.waiting());
        TakenBytes { end, for_replicas }
    }
    /// Number of bytes between the taker's offset and the end of the stream.
    pub fn waiting(&self) -> usize {
        let frontier = self.frontier.load(SeqCst);
        Tail(self.tail.0.load(SeqCst)).offset().saturating_sub(frontier) as usize
    }
    fn update_full_alert(&self, waiting: usize) {
        let Some(alerts) = self.alerts.get() else { return };
        match waiting > WAITING_BYTES_MAX {
            true => alerts.fetch_or(JOURNAL_FULL, Relaxed),
            false => alerts.fetch_and(!JOURNAL_FULL, Relaxed),
        };
    }
    /// Sets the function that wakes the taker. Only the first call has an effect.
    pub fn set_wake(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(Wake(wake));
    }
    /// The taker calls this before it sleeps. From then on it is woken when many bytes wait. Returns false when
    /// many bytes wait already, so that the taker should not sleep.
    pub fn begin_sleep(&self) -> bool {
        self.is_asleep.store(true, SeqCst);
        self.waiting() < WAKE_BYTES
    }
    /// The taker calls this when it no longer sleeps.
    pub fn end_sleep(&self) {
        self.is_asleep.store(false, SeqCst);
    }
    /// The offset of the next byte that the taker will take.
    pub fn frontier(&self) -> u64 {
        self.frontier.load(SeqCst)
    }
    /// Sets the function that wakes the thread that waits for the next byte ([`Journal::begin_await`]). Only the first
    /// call has an effect.
    pub fn set_awaited_wake(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.awaited_wake.set(Wake(wake));
    }
    /// A thread calls this before it waits for the next byte. From then on the next byte wakes the thread. Bytes that have
    /// a place in the stream already may not: look at [`Journal::tail`] after this call.
    pub fn begin_await(&self) {
        self.is_awaited.store(true, SeqCst);
    }
    /// The thread no longer waits.
    pub fn end_await(&self) {
        self.is_awaited.store(false, SeqCst);
    }
    /// Wakes the thread that waits for the next byte, once.
    #[cold]
    fn wake_awaiting(&self) {
        if self.is_awaited.swap(false, SeqCst)
            && let Some(Wake(wake)) = self.awaited_wake.get()
        {
            wake();
        }
    }
    /// Wakes the taker if it sleeps. Costs one load if it does not.
    fn wake(&self) {
        if self.is_asleep.load(SeqCst)
            && let Some(Wake(wake)) = self.wake.get()
        {
            wake();
        }
    }

    /// Empty effects for a new transaction of this thread.
    pub(crate) fn effects() -> Box<Effects> {
        SPARE.take().unwrap_or_default()
    }
    /// Gives a transaction with effects its position in the stream; `None` if there are no effects. Call this while
    /// the transaction's shards are held.
    pub(crate) fn place(&self, effects: Box<Effects>) -> Option<PlacedEffects<'_>> {
        if !effects.close() {
            keep(effects);
            return None;
        }
        let databases = effects.databases();
        let bytes = effects.len() + effects.for_replicas.len();
        let (before, len) = self.reserve(|before| match databases {
            Some((first_db, last_db)) if before.needs_select(first_db) => {
                (select(first_db).len() + bytes, last_db)
            }
            Some((_, last_db)) => (bytes, last_db),
            None => (bytes, before.db()),
        });
        Some(PlacedEffects { journal: self, before, len, effects: Some(effects) })
    }
    fn put(&self, range: ByteRange, put: impl FnOnce(&mut Chain)) {
        let ByteRange { offset, len, is_for_replicas } = range;
        self.with_buffer(|buffer| {
            put(&mut buffer.stream);
            match buffer.ranges.back_mut() {
                Some(last) if last.end() == offset && last.is_for_replicas == is_for_replicas => {
                    last.len += len;
                }
                _ => buffer.ranges.push_back(range),
            }
        });
        if self.is_awaited.load(SeqCst) {
            self.wake_awaiting();
        }
        // Wake the taker if the waiting bytes exceed a limit with this transaction. The taker's offset only
        // grows, so the thread whose bytes reach the limit notices that here.
        let before = offset.saturating_sub(self.frontier.load(SeqCst)) as usize;
        if before < WAKE_BYTES && before + len >= WAKE_BYTES {
            self.wake();
        }
        if before <= WAITING_BYTES_MAX && before + len > WAITING_BYTES_MAX {
            self.update_full_alert(before + len);
        }
    }
    /// Calls `put` with this thread's buffer.
    fn with_buffer(&self, put: impl FnOnce(&mut ThreadBuffer)) {
        BUFFERS.with_borrow_mut(|buffers| {
            if let Some((_, buffer)) = buffers.iter().find(|(id, _)| *id == self.id) {
                return put(&mut buffer.lock());
            }
            let buffer = SharedBuffer::default();
            self.buffers.lock().push(buffer.clone());
            // Drop the buffers of journals that have ended.
            buffers.retain(|(_, buffer)| Arc::strong_count(buffer) > 1);
            put(&mut buffer.lock());
            buffers.push((self.id, buffer));
        });
    }
}

/// Keeps the allocations of `effects` for the next transaction of this thread.
fn keep(mut effects: Box<Effects>) {
    effects.reset();
    if effects.encoded.bytes.capacity() <= KEPT_BYTES_MAX {
        SPARE.set(Some(effects));
    }
}

impl PlacedEffects<'_> {
    /// Writes the bytes of the transaction. Call this after the shards are released.
    pub(crate) fn write(mut self) {
        if let Some(mut effects) = self.effects.take() {
            let offset = self.before.offset();
            let for_replicas = effects.for_replicas.len();
            let len = self.len - for_replicas;
            if let Some((first_db, _)) = effects.databases() {
                self.journal.put(ByteRange::new(offset, len), |buffer| {
                    if self.before.needs_select(first_db) {
                        buffer.push_slice(&select(first_db));
                    }
                    effects.put(buffer);
                });
            }
            if for_replicas > 0 {
                let range = ByteRange::for_replicas(offset + len as u64, for_replicas);
                self.journal.put(range, |buffer| effects.for_replicas.move_to(buffer));
            }
            keep(effects);
        }
    }
}

impl Drop for PlacedEffects<'_> {
    /// After a panic before the bytes were written: fills the hole in the stream with a command that changes nothing.
    /// What follows expects the transaction's last database.
    fn drop(&mut self) {
        if let Some(effects) = &self.effects {
            let selects = match effects.databases() {
                Some((_, last_db)) if self.before.needs_select(last_db) => select(last_db),
                _ => Vec::new(),
            };
            let padding = padding(self.len - selects.len());
            self.journal.put(ByteRange::new(self.before.offset(), self.len), |buffer| {
                buffer.push_slice(&selects);
                buffer.push_slice(&padding);
            });
        }
    }
}

impl Merger {
    /// Goes over the buffers once, and moves the bytes that are next in the stream to `out`. Returns false when no
    /// buffer had them.
    fn step(&mut self, out: &mut Chain, for_replicas: &mut Vec<Range<u64>>) -> bool {
        let before = self.frontier;
        for pending in &mut self.pending {
            while let Some(first) = pending.front_mut() {
                let Some(range) = first.ranges.pop_front_if(|range| range.offset == self.frontier) else {
                    if first.ranges.is_empty() {
                        pending.pop_front();
                        continue;
                    }
                    break;
                };
                first.move_to(range.len, out);
                if range.is_for_replicas {
                    for_replicas.push(range.offset..range.end());
                }
                self.frontier += range.len as u64;
            }
        }
        self.frontier != before
    }
}

impl ThreadBuffer {
    /// Moves the first `len` bytes to the end of `out`.
    fn move_to(&mut self, len: usize, out: &mut Chain) {
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
