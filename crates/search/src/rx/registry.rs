//! [`Registry`]: maps names to sets. For each set that it uses, a thread has a [`ThreadCaches`]: its caches and
//! counters.
//!
//! Searching threads share no changing data. Each thread finds its caches in its own slot. Only a redefinition takes
//! another thread's slot lock. A redefinition raises the version, one shared word that searches only read. The
//! redefinition then drops the caches of the old set from every slot, so that no idle thread keeps the set alive.
//!
//! When the caches of a set exceed its memory, the thread with the most bytes loses its caches. Threads that search
//! easy texts need little and keep theirs. A worker never frees a large cache: [`Registry::tick`] frees the cache on a
//! helper thread, and its bytes are counted until then.

use super::set::Set;
use super::stats::CacheStats;
use super::*;
use crate::definitions::Words;
use crate::error::SearchError;
use crate::regex::budget::WORKER_BYTES_MAX;
use crate::regex::{Halt, MachineCache, Matcher, SearchBudget};
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Instant;
use strand_commands::call::{LaneCall, RunsOn};

/// Number of slots for threads. When there are more threads, some threads share a slot.
const SLOTS: usize = 64;

/// The sets, and the caches of all threads.
#[derive(Debug)]
pub(crate) struct Registry {
    sets: RwLock<BTreeMap<Vec<u8>, Arc<Set>>>,
    version: AtomicU64,
    slots: Box<[ThreadSlot]>,
    /// Sets that were replaced or deleted, and that streams or searches still use.
    retired: Mutex<Vec<Weak<Set>>>,
    garbage: Mutex<Vec<Garbage>>,
    garbage_bytes: AtomicU64,
}

/// Memory that a helper thread must free.
#[derive(Debug)]
enum Garbage {
    Caches(Caches),
    ThreadCaches(Arc<ThreadCaches>),
}

/// The sets that one thread uses. Aligned to its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadSlot(Mutex<ThreadSets>);

#[derive(Debug, Default)]
struct ThreadSets {
    version: u64,
    by_name: HashMap<Vec<u8>, Arc<ThreadCaches>>,
}

/// A thread's caches for one set.
#[derive(Debug)]
pub(crate) struct ThreadCaches {
    pub(crate) set: Arc<Set>,
    caches: Mutex<Caches>,
    /// Bytes of the caches at the end of the last search that used them.
    bytes: AtomicU64,
    /// True when the caches must be dropped after the running search.
    is_to_evict: AtomicBool,
    pub(crate) stats: CacheStats,
}

/// The data behind the lock of [`ThreadCaches`].
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) combined: MachineCache,
    /// The matcher of each pattern, created on first use, and its counted bytes.
    matchers: Vec<(Matcher, u64)>,
    /// Indices of the matchers that the running search used.
    used: Vec<usize>,
    /// Number of counted bytes of all matchers together.
    matchers_bytes: u64,
    /// Number of counted bytes of the whole caches.
    bytes: u64,
}

impl Caches {
    /// The caches for pattern number `i`.
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
    /// Updates the counters of the matchers used since the last call. Returns the bytes of the caches.
    fn settle(&mut self, set: &Set, stats: &CacheStats) -> u64 {
        for i in self.used.drain(..) {
            set.members[i].count_reverse(set);
            let (matcher, counted) = &mut self.matchers[i];
            stats.add(&std::mem::take(&mut matcher.counts));
            let bytes = matcher.cache_bytes() as u64;
            self.matchers_bytes = self.matchers_bytes + bytes - std::mem::replace(counted, bytes);
        }
        self.combined.bytes() as u64 + self.matchers_bytes
    }
}

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The number of this thread's slot.
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
        let slots = (0..SLOTS).map(|_| ThreadSlot::default()).collect();
        Registry {
            sets: RwLock::default(),
            version: AtomicU64::new(1),
            slots,
            retired: Mutex::default(),
            garbage: Mutex::default(),
            garbage_bytes: AtomicU64::new(0),
        }
    }
}

impl Registry {
    /// Adds a set, or replaces the set with this name.
    ///
    /// # Errors
    /// When there are too many sets.
    pub(crate) fn put(&self, name: &[u8], set: Set, record: impl FnOnce()) -> Result<(), SearchError> {
        let old = {
            let mut sets = self.sets.write();
            if sets.len() == SETS_MAX && !sets.contains_key(name) {
                return Err(SearchError::refused(format!(
                    "ERR Too many sets: at most {SETS_MAX} are allowed"
                )));
            }
            record();
            let old = sets.insert(name.to_vec(), Arc::new(set));
            self.version.fetch_add(1, Release);
            old
        };
        if let Some(old) = old {
            self.retire(&old);
            self.sweep();
        }
        Ok(())
    }
    /// The RX.SET commands of all sets: see [`crate::Search::definitions`].
    pub(crate) fn definitions(&self) -> Vec<Arc<Words>> {
        self.sets.read().values().map(|set| set.source.clone()).collect()
    }
    /// Removes a set. Returns false when it does not exist. Calls `record` under the lock of the sets, if it exists.
    pub(crate) fn remove(&self, name: &[u8], record: impl FnOnce()) -> bool {
        let removed = {
            let mut sets = self.sets.write();
            self.version.fetch_add(1, Release);
            let removed = sets.remove(name);
            if removed.is_some() {
                record();
            }
            removed
        };
        if let Some(removed) = &removed {
            self.retire(removed);
            self.sweep();
        }
        removed.is_some()
    }
    /// The names of all sets, sorted.
    pub(crate) fn names(&self) -> Vec<Vec<u8>> {
        self.sets.read().keys().cloned().collect()
    }
    /// The set with this name.
    ///
    /// # Errors
    /// When no set has this name.
    pub(crate) fn set(&self, name: &[u8]) -> Result<Arc<Set>, SearchError> {
        self.sets.read().get(name).cloned().ok_or_else(no_such_set)
    }
    /// This thread's caches for the set with this name.
    ///
    /// # Errors
    /// When no set has this name.
    pub(crate) fn caches(&self, name: &[u8]) -> Result<Arc<ThreadCaches>, SearchError> {
        let mut thread_sets = self.slots[slot()].0.lock();
        if thread_sets.version != self.version.load(Acquire) {
            let left = self.update(&mut thread_sets);
            self.garbage.lock().extend(left.into_iter().map(Garbage::ThreadCaches));
        }
        if let Some(caches) = thread_sets.by_name.get(name) {
            return Ok(caches.clone());
        }
        let set = self.set(name)?;
        let caches = Arc::new(ThreadCaches {
            set,
            caches: Mutex::default(),
            bytes: AtomicU64::new(0),
            is_to_evict: AtomicBool::new(false),
            stats: CacheStats::default(),
        });
        thread_sets.by_name.insert(name.to_vec(), caches.clone());
        Ok(caches)
    }
    /// The caches that all threads have for `set`.
    pub(crate) fn caches_at(&self, set: &Arc<Set>) -> Vec<Arc<ThreadCaches>> {
        let at = |slot: &ThreadSlot| -> Vec<Arc<ThreadCaches>> {
            let thread_sets = slot.0.lock();
            thread_sets.by_name.values().filter(|s| Arc::ptr_eq(&s.set, set)).cloned().collect()
        };
        self.slots.iter().flat_map(at).collect()
    }
    /// Bytes of all caches and of all compiled sets, including old sets that are still in use.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |set: &Set| set.cache_bytes.load(Relaxed) + set.compiled_bytes();
        let now: u64 = self.sets.read().values().map(|set| of(set)).sum();
        let retired = self.retired.lock();
        let retired: u64 = retired.iter().filter_map(Weak::upgrade).map(|set| of(&set)).sum();
        now + retired + self.garbage_bytes.load(Relaxed)
    }
    /// Drops the caches of all threads, for memory pressure. Searches fill new caches. A thread that is searching drops
    /// its caches after the search. Call it on a helper thread.
    pub(crate) fn shrink(&self) {
        let sets: Vec<Arc<Set>> = self.sets.read().values().cloned().collect();
        for caches in sets.iter().flat_map(|set| self.caches_at(set)) {
            caches.drop_now_or_later(self, RunsOn::Lane);
        }
    }
    /// Frees the memory that workers left behind. Called several times per second on a helper thread.
    pub(crate) fn tick(&self) {
        let garbage = std::mem::take(&mut *self.garbage.lock());
        for garbage in garbage {
            match garbage {
                Garbage::Caches(locked) => {
                    let bytes = locked.bytes;
                    drop(locked);
                    self.garbage_bytes.fetch_sub(bytes, Relaxed);
                }
                Garbage::ThreadCaches(caches) => drop(caches),
            }
        }
    }
    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.read().len()
    }

    /// Remembers a replaced or deleted set while it is still in use.
    fn retire(&self, set: &Arc<Set>) {
        let mut retired = self.retired.lock();
        retired.retain(|set| set.strong_count() > 0);
        retired.push(Arc::downgrade(set));
    }
    /// Drops the caches of old sets from every slot.
    fn sweep(&self) {
        for slot in &self.slots {
            let left = self.update(&mut slot.0.lock());
            // Free the caches after the slot is unlocked, so that the worker of the slot does not wait.
            drop(left);
        }
        self.tick();
    }
    /// Brings the sets of a thread up to date. Returns the caches of sets that no longer exist.
    fn update(&self, thread_sets: &mut ThreadSets) -> Vec<Arc<ThreadCaches>> {
        let sets = self.sets.read();
        thread_sets.version = self.version.load(Acquire);
        let is_left = |name: &Vec<u8>, caches: &mut Arc<ThreadCaches>| {
            sets.get(name).is_none_or(|set| !Arc::ptr_eq(set, &caches.set))
        };
        thread_sets.by_name.extract_if(is_left).map(|(_, caches)| caches).collect()
    }
    /// Drops the caches of the thread with the most bytes. Called when the caches of `set` exceed its memory.
    fn evict(&self, set: &Arc<Set>, runs_on: RunsOn) {
        let all = self.caches_at(set);
        let Some(largest) = all.iter().max_by_key(|caches| caches.bytes.load(Relaxed)) else { return };
        largest.drop_now_or_later(self, runs_on);
    }
}

fn no_such_set() -> SearchError {
    SearchError::refused("ERR No such set of patterns")
}

impl ThreadCaches {
    /// Runs `search` over `text` with these caches, counts its work, and enforces the set's memory limit.
    ///
    /// # Errors
    /// The errors of `search`.
    pub(crate) fn search<T>(
        &self,
        registry: &Registry,
        call: &LaneCall<'_>,
        text: &[u8],
        search: impl FnOnce(&Set, &mut Caches, &SearchBudget<'_>) -> Result<T, Halt>,
    ) -> Result<T, SearchError> {
        let (set, start) = (&*self.set, Instant::now());
        if call.runs_on == RunsOn::Worker && text.len() > WORKER_BYTES_MAX {
            self.stats.record_search(text.len(), start, Some(Halt::MoveToLane));
            return Err(Halt::MoveToLane.into());
        }
        let cancelled = || {
            call.pause();
            call.cancelled()
        };
        let deadline = (call.runs_on != RunsOn::Worker).then(|| start + set.deadline);
        let budget = SearchBudget::new(call.runs_on, &cancelled, deadline);
        // Threads that share a slot never wait for each other: when one uses the caches, the other uses new ones.
        let (mut own, mut spare) = (self.caches.try_lock(), Caches::default());
        let locked = own.as_deref_mut().unwrap_or(&mut spare);
        let result = search(set, locked, &budget);
        let bytes = locked.settle(set, &self.stats);
        self.stats.record_search(text.len(), start, result.as_ref().err().copied());
        let mut is_over = false;
        if bytes != locked.bytes {
            // Add before subtracting, because the sum must never be too small, not even for a moment.
            let all = set.cache_bytes.fetch_add(bytes, Relaxed) + bytes - locked.bytes;
            set.cache_bytes.fetch_sub(locked.bytes, Relaxed);
            locked.bytes = bytes;
            is_over = all > set.memory_bytes as u64;
        }
        match &mut own {
            Some(locked) => {
                self.bytes.store(bytes, Relaxed);
                if self.is_to_evict.load(Relaxed) {
                    self.is_to_evict.store(false, Relaxed);
                    self.give_up(locked, registry, call.runs_on);
                }
            }
            None => {
                set.cache_bytes.fetch_sub(spare.bytes, Relaxed);
            }
        }
        drop(own);
        if is_over {
            registry.evict(&self.set, call.runs_on);
        }
        Ok(result?)
    }

    /// Drops the caches of this thread, and counts the eviction. Caches that a search uses are dropped after the
    /// search.
    fn drop_now_or_later(&self, registry: &Registry, runs_on: RunsOn) {
        match self.caches.try_lock() {
            Some(mut locked) => self.give_up(&mut locked, registry, runs_on),
            None => self.is_to_evict.store(true, Relaxed),
        }
    }
    /// Drops the caches `locked`, and counts the eviction.
    fn give_up(&self, locked: &mut Caches, registry: &Registry, runs_on: RunsOn) {
        let locked = std::mem::take(locked);
        self.bytes.store(0, Relaxed);
        self.stats.evicted();
        registry.garbage_bytes.fetch_add(locked.bytes, Relaxed);
        self.set.cache_bytes.fetch_sub(locked.bytes, Relaxed);
        registry.garbage.lock().push(Garbage::Caches(locked));
        if runs_on != RunsOn::Worker {
            registry.tick();
        }
    }
}

impl Drop for ThreadCaches {
    fn drop(&mut self) {
        self.set.cache_bytes.fetch_sub(self.caches.get_mut().bytes, Relaxed);
    }
}
