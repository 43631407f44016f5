//! [`Registry`]: the sets by name, and each thread's [`ThreadCaches`] at a set: its caches and counters.
//!
//! Threads share nothing that changes while they search: a thread has a slot of its own, whose lock nobody else takes
//! but who redefines a set, and finds its caches there. A redefinition raises the version, which is one shared word that
//! is only read; then it has every slot drop the caches of the old set, so that no idle thread keeps it.
//!
//! When the caches of a set have grown past its memory, the thread with the most loses its caches: those that need little, as
//! threads do that see easy texts, keep it. Nothing large is freed on a worker: the [`Registry::tick`] of a helper thread
//! does that, and until then it is counted.

use super::set::Set;
use super::stats::CacheStats;
use super::*;
use crate::definitions::Words;
use crate::error::SearchError;
use crate::regex::budget::WORKER_BYTES_MAX;
use crate::regex::{Budget, Halt, MachineCache, Matcher};
use parking_lot::{Mutex, RwLock};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Instant;
use strand_commands::call::{LaneCall, RunsOn};

/// Slots: more threads than these share some.
const SLOTS: usize = 64;

/// The sets and who searches with them.
#[derive(Debug)]
pub(crate) struct Registry {
    sets: RwLock<BTreeMap<Vec<u8>, Arc<Set>>>,
    version: AtomicU64,
    slots: Box<[ThreadSlot]>,
    /// Sets that are no more, but that streams or searches still use.
    retired: Mutex<Vec<Weak<Set>>>,
    garbage: Mutex<Vec<Garbage>>,
    garbage_bytes: AtomicU64,
}

/// What is to be freed by a helper thread.
#[derive(Debug)]
enum Garbage {
    Caches(Caches),
    ThreadCaches(Arc<ThreadCaches>),
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadSlot(Mutex<ThreadSets>);

#[derive(Debug, Default)]
struct ThreadSets {
    version: u64,
    by_name: HashMap<Vec<u8>, Arc<ThreadCaches>>,
}

/// A thread's caches for a set.
#[derive(Debug)]
pub(crate) struct ThreadCaches {
    pub(crate) set: Arc<Set>,
    held: Mutex<Caches>,
    /// What the caches were counted as when the last search ended.
    bytes: AtomicU64,
    /// It is to give up its caches after the search that runs.
    is_to_evict: AtomicBool,
    pub(crate) stats: CacheStats,
}

/// What the lock of [`ThreadCaches`] guards.
#[derive(Debug, Default)]
pub(crate) struct Caches {
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

impl Caches {
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
    fn settle(&mut self, set: &Set, stats: &CacheStats) -> u64 {
        for i in self.used.drain(..) {
            set.members[i].count_reverse(set);
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
        if let Some(old) = old {
            self.retire(&old);
            self.sweep();
        }
        Ok(())
    }
    /// See [`crate::Search::definitions`].
    pub(crate) fn definitions(&self) -> Vec<Words> {
        self.sets.read().values().map(|set| set.source.clone()).collect()
    }
    /// Removes a set; false when there is none.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let removed = {
            let mut sets = self.sets.write();
            self.version.fetch_add(1, Release);
            sets.remove(name)
        };
        if let Some(removed) = &removed {
            self.retire(removed);
            self.sweep();
        }
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
    /// This thread's caches at the set called `name`.
    ///
    /// # Errors
    /// When there is none.
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
            held: Mutex::default(),
            bytes: AtomicU64::new(0),
            is_to_evict: AtomicBool::new(false),
            stats: CacheStats::default(),
        });
        thread_sets.by_name.insert(name.to_vec(), caches.clone());
        Ok(caches)
    }
    /// The caches of all threads for `set`.
    pub(crate) fn caches_at(&self, set: &Arc<Set>) -> Vec<Arc<ThreadCaches>> {
        let at = |slot: &ThreadSlot| -> Vec<Arc<ThreadCaches>> {
            let thread_sets = slot.0.lock();
            thread_sets.by_name.values().filter(|s| Arc::ptr_eq(&s.set, set)).cloned().collect()
        };
        self.slots.iter().flat_map(at).collect()
    }
    /// Bytes of all caches, and of all that is compiled: of the sets, and of those that are no more but still in use.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |set: &Set| set.cache_bytes.load(Relaxed) + set.compiled_bytes();
        let now: u64 = self.sets.read().values().map(|set| of(set)).sum();
        let retired = self.retired.lock();
        let retired: u64 = retired.iter().filter_map(Weak::upgrade).map(|set| of(&set)).sum();
        now + retired + self.garbage_bytes.load(Relaxed)
    }
    /// Frees what workers left behind; on a helper thread, some times a second.
    pub(crate) fn tick(&self) {
        let garbage = std::mem::take(&mut *self.garbage.lock());
        for garbage in garbage {
            match garbage {
                Garbage::Caches(held) => {
                    let bytes = held.bytes;
                    drop(held);
                    self.garbage_bytes.fetch_sub(bytes, Relaxed);
                }
                Garbage::ThreadCaches(caches) => drop(caches),
            }
        }
    }
    /// How many sets there are.
    pub(crate) fn len(&self) -> usize {
        self.sets.read().len()
    }

    /// Remembers a set that is no more for as long as somebody has it.
    fn retire(&self, set: &Arc<Set>) {
        let mut retired = self.retired.lock();
        retired.retain(|set| set.strong_count() > 0);
        retired.push(Arc::downgrade(set));
    }
    /// Has every thread forget the sets that are no more.
    fn sweep(&self) {
        for slot in &self.slots {
            let left = self.update(&mut slot.0.lock());
            // A worker that wants its slot does not wait for this.
            drop(left);
        }
        self.tick();
    }
    /// Brings a thread's sets up to date; returns the caches of sets that are gone.
    fn update(&self, thread_sets: &mut ThreadSets) -> Vec<Arc<ThreadCaches>> {
        let sets = self.sets.read();
        thread_sets.version = self.version.load(Acquire);
        let is_left = |name: &Vec<u8>, caches: &mut Arc<ThreadCaches>| {
            sets.get(name).is_none_or(|set| !Arc::ptr_eq(set, &caches.set))
        };
        thread_sets.by_name.extract_if(is_left).map(|(_, caches)| caches).collect()
    }
    /// A set has more caches than its memory: takes them from the thread that has most.
    fn evict(&self, set: &Arc<Set>, runs_on: RunsOn) {
        let all = self.caches_at(set);
        let Some(largest) = all.iter().max_by_key(|caches| caches.bytes.load(Relaxed)) else { return };
        match largest.held.try_lock() {
            Some(mut held) => largest.give_up(&mut held, self, runs_on),
            None => largest.is_to_evict.store(true, Relaxed),
        }
    }
}

fn no_such_set() -> SearchError {
    SearchError::refused("ERR No such set of patterns")
}

impl ThreadCaches {
    /// Runs `search` over `text` with these caches, counts what it did, and keeps to the set's memory.
    ///
    /// # Errors
    /// Those of `search`.
    pub(crate) fn search<T>(
        &self,
        registry: &Registry,
        call: &LaneCall<'_>,
        text: &[u8],
        search: impl FnOnce(&Set, &mut Caches, &Budget<'_>) -> Result<T, Halt>,
    ) -> Result<T, SearchError> {
        let (set, start) = (&*self.set, Instant::now());
        if call.runs_on == RunsOn::Worker && text.len() > WORKER_BYTES_MAX {
            self.stats.searched(text.len(), start, Some(Halt::Lane));
            return Err(Halt::Lane.into());
        }
        let cancelled = || {
            call.pause();
            call.cancelled()
        };
        let deadline = (call.runs_on != RunsOn::Worker).then(|| start + set.deadline);
        let budget = Budget::new(call.runs_on, &cancelled, deadline);
        // Threads that share a slot do not wait for each other.
        let (mut own, mut spare) = (self.held.try_lock(), Caches::default());
        let held = own.as_deref_mut().unwrap_or(&mut spare);
        let result = search(set, held, &budget);
        let bytes = held.settle(set, &self.stats);
        self.stats.searched(text.len(), start, result.as_ref().err().copied());
        let mut is_over = false;
        if bytes != held.bytes {
            // Added first: it must not be less than it is at any time.
            let all = set.cache_bytes.fetch_add(bytes, Relaxed) + bytes - held.bytes;
            set.cache_bytes.fetch_sub(held.bytes, Relaxed);
            held.bytes = bytes;
            is_over = all > set.memory_bytes as u64;
        }
        match &mut own {
            Some(held) => {
                self.bytes.store(bytes, Relaxed);
                if self.is_to_evict.load(Relaxed) {
                    self.is_to_evict.store(false, Relaxed);
                    self.give_up(held, registry, call.runs_on);
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

    /// Lets go of the caches.
    fn give_up(&self, held: &mut Caches, registry: &Registry, runs_on: RunsOn) {
        let held = std::mem::take(held);
        self.bytes.store(0, Relaxed);
        self.stats.evicted();
        registry.garbage_bytes.fetch_add(held.bytes, Relaxed);
        self.set.cache_bytes.fetch_sub(held.bytes, Relaxed);
        registry.garbage.lock().push(Garbage::Caches(held));
        if runs_on != RunsOn::Worker {
            registry.tick();
        }
    }
}

impl Drop for ThreadCaches {
    fn drop(&mut self) {
        self.set.cache_bytes.fetch_sub(self.held.get_mut().bytes, Relaxed);
    }
}
