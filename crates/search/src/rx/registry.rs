//! [`Registry`]: the sets by name, and each thread's [`Seat`] at a set: its caches and counters.
//!
//! Threads share nothing that changes while they search: a thread has a slot of its own, whose lock nobody else takes
//! but who redefines a set, and finds its seats there. A redefinition raises the version, which is one shared word that
//! is only read; then it has every slot drop the seats at the old set, so that no idle thread keeps it.

use super::set::Set;
use super::stats::SeatStats;
use super::*;
use crate::error::SearchError;
use crate::regex::{Budget, Halt, MachineCache, Matcher};
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::Instant;
use strand_commands::call::{LaneCall, Place};

/// Slots: more threads than these share some.
const SLOTS: usize = 64;

/// The sets and who searches with them.
#[derive(Debug)]
pub(crate) struct Registry {
    sets: RwLock<BTreeMap<Vec<u8>, Arc<Set>>>,
    version: AtomicU64,
    slots: Box<[Slot]>,
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    version: u64,
    by_name: HashMap<Vec<u8>, Arc<Seat>>,
}

/// A thread's caches for a set.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) set: Arc<Set>,
    held: Mutex<Held>,
    pub(crate) stats: SeatStats,
}

/// What is behind a seat's lock.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) together: MachineCache,
    /// One for each pattern, made when first needed, with the bytes that it was counted as.
    matchers: Vec<(Matcher, u64)>,
    /// Those used by the search that runs.
    used: Vec<usize>,
    /// What all matchers were counted as.
    matchers_bytes: u64,
    /// What all was counted as.
    bytes: u64,
}

impl Held {
    /// The caches for the pattern at `i`.
    pub(crate) fn matcher(&mut self, set: &Set, i: usize) -> &mut Matcher {
        if self.matchers.is_empty() {
            self.matchers.resize_with(set.members.len(), Default::default);
            self.matchers_bytes = (self.matchers.len() * size_of::<(Matcher, u64)>()) as u64;
        }
        if self.used.last() != Some(&i) {
            self.used.push(i);
        }
        &mut self.matchers[i].0
    }
    /// Looks at what was used since the last time: bytes of all, counts.
    fn settle(&mut self, stats: &SeatStats) -> u64 {
        for i in self.used.drain(..) {
            let (matcher, counted) = &mut self.matchers[i];
            stats.add(&std::mem::take(&mut matcher.counts));
            let bytes = matcher.cache_bytes() as u64;
            self.matchers_bytes = self.matchers_bytes + bytes - std::mem::replace(counted, bytes);
        }
        self.together.bytes() as u64 + self.matchers_bytes
    }
}

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// This thread's slot.
fn slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, Relaxed) % SLOTS);
        }
        slot.get()
    })
}

impl Default for Registry {
    fn default() -> Registry {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Registry { sets: RwLock::default(), version: AtomicU64::new(1), slots }
    }
}

impl Registry {
    /// Adds a set, or puts it in the place of one.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn put(&self, name: &[u8], set: Set) -> Result<(), SearchError> {
        let old = {
            let mut sets = self.sets.write();
            if sets.len() == SETS_MAX && !sets.contains_key(name) {
                return Err(SearchError::refused(format!(
                    "ERR Too many sets: at most {SETS_MAX} are allowed"
                )));
            }
            let old = sets.insert(name.to_vec(), Arc::new(set));
            self.version.fetch_add(1, Release);
            old
        };
        if old.is_some() {
            self.sweep();
        }
        Ok(())
    }
    /// Removes a set; false when there is none.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let removed = {
            let mut sets = self.sets.write();
            self.version.fetch_add(1, Release);
            sets.remove(name)
        };
        self.sweep();
        removed.is_some()
    }
    /// The names, sorted.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.sets.read().keys().cloned().collect()
    }
    /// The set called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn set(&self, name: &[u8]) -> Result<Arc<Set>, SearchError> {
        self.sets.read().get(name).cloned().ok_or_else(no_such_set)
    }
    /// This thread's seat at the set called `name`.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn seat(&self, name: &[u8]) -> Result<Arc<Seat>, SearchError> {
        let mut seats = self.slots[slot()].0.lock();
        if seats.version != self.version.load(Acquire) {
            self.update(&mut seats);
        }
        if let Some(seat) = seats.by_name.get(name) {
            return Ok(seat.clone());
        }
        let set = self.set(name)?;
        let seat = Arc::new(Seat { set, held: Mutex::default(), stats: SeatStats::default() });
        seats.by_name.insert(name.to_vec(), seat.clone());
        Ok(seat)
    }
    /// All seats at `set`.
    pub(crate) fn seats_at(&self, set: &Arc<Set>) -> Vec<Arc<Seat>> {
        let at = |slot: &Slot| -> Vec<Arc<Seat>> {
            let seats = slot.0.lock();
            seats.by_name.values().filter(|s| Arc::ptr_eq(&s.set, set)).cloned().collect()
        };
        self.slots.iter().flat_map(at).collect()
    }
    /// Bytes of all caches, and of all that is compiled.
    pub(crate) fn bytes(&self) -> u64 {
        let sets = self.sets.read();
        sets.values().map(|s| s.cache_bytes.load(Relaxed) + s.compiled_bytes() as u64).sum()
    }
    /// How many sets there are.
    pub(crate) fn len(&self) -> usize {
        self.sets.read().len()
    }

    /// Has every thread forget the sets that are no more.
    fn sweep(&self) {
        self.slots.iter().for_each(|slot| self.update(&mut slot.0.lock()));
    }
    fn update(&self, seats: &mut Seats) {
        let sets = self.sets.read();
        seats.version = self.version.load(Acquire);
        seats.by_name.retain(|name, seat| sets.get(name).is_some_and(|set| Arc::ptr_eq(set, &seat.set)));
    }
}

fn no_such_set() -> SearchError {
    SearchError::refused("ERR No such set of patterns")
}

impl Seat {
    /// Runs `search` over `text` with the caches of this seat, counts what it did, and keeps to the set's memory.
    ///
    /// # Errors
    /// Those of `search`.
    pub(crate) fn search<T>(
        &self,
        call: &LaneCall<'_>,
        text: &[u8],
        search: impl FnOnce(&Set, &mut Held, &Budget<'_>) -> Result<T, Halt>,
    ) -> Result<T, SearchError> {
        let (set, start) = (&*self.set, Instant::now());
        if call.place == Place::Worker && self.stats.is_troubled() {
            return Err(Halt::Hard.into());
        }
        let cancelled = || {
            call.pause();
            call.cancelled()
        };
        let deadline = (call.place != Place::Worker).then(|| start + set.deadline);
        let budget = Budget::new(call.place, &cancelled, deadline);
        // Threads that share a slot do not wait for each other.
        let (mut own, mut spare) = (self.held.try_lock(), Held::default());
        let held = own.as_deref_mut().unwrap_or(&mut spare);
        let result = search(set, held, &budget);
        let bytes = held.settle(&self.stats);
        self.stats.searched(text.len(), start, result.as_ref().err().copied(), call.place);
        if bytes != held.bytes {
            // Added first: it must not be less than it is at any time.
            let all = set.cache_bytes.fetch_add(bytes, Relaxed) + bytes - held.bytes;
            set.cache_bytes.fetch_sub(held.bytes, Relaxed);
            held.bytes = bytes;
            if all > set.memory_bytes as u64 {
                set.cache_bytes.fetch_sub(bytes, Relaxed);
                *held = Held::default();
                self.stats.evicted();
            }
        }
        if own.is_none() {
            set.cache_bytes.fetch_sub(spare.bytes, Relaxed);
        }
        Ok(result?)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.set.cache_bytes.fetch_sub(self.held.get_mut().bytes, Relaxed);
    }
}
