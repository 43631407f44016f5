//! [`LongLocks`]: shards that stay locked for long, and the sessions that wait for one of them.
//!
//! Most code locks a shard for microseconds: each command on a worker, each slice on the lane. That code announces
//! nothing, and other threads wait at the shard's lock. A call that locks shards for long announces a long lock here
//! before it locks them. A session that needs one of these shards is parked, and its worker serves other sessions.
//! The session is woken and tries again when the long lock ends. For this a command pays one load of a counter, which
//! is zero while no long lock is announced.
//!
//! Two long locks on one shard are never announced at the same time. Between two long locks, each session that waited
//! for the first lock runs once. So a loop of long calls slows other clients down and does not starve them.

use crate::host::wake_together;
use crate::{Signal, Wake};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, Ordering::Relaxed, fence};
use strand_commands::call::{self, NotLocked};

/// A long lock waits at most this long for the sessions that waited for the previous long lock. It waits that long only
/// if a worker is blocked.
const WAITERS_US_MAX: u64 = 20_000;

/// Interval at which a waiting job checks whether it should still wait.
const CHECK_EVERY_US: u64 = 50_000;

/// The long locks of one server.
pub(crate) struct LongLocks {
    /// The number of announced long locks.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Signalled when a long lock ends, and when all woken sessions have run.
    changed: Box<dyn Signal>,
}

#[derive(Default)]
struct State {
    next: u64,
    announced: BTreeMap<u64, Shards>,
    /// The names of the holders by the id of the long lock, where the names are known.
    holders: BTreeMap<u64, Arc<str>>,
    /// Long locks of long-running scripts by id. True: the script is a function.
    busy: BTreeMap<u64, bool>,
    /// The waiting clients. Keyed by client, so a client that waits again has one entry.
    waiting: BTreeMap<u64, Waiting>,
    /// Clients that were woken and have not run since then.
    woken: BTreeSet<u64>,
}

impl State {
    /// True when a long lock is on one of `shards` (`None`: on any).
    fn overlaps(&self, shards: Option<&[usize]>) -> bool {
        self.announced.values().any(|held| held.overlap(shards))
    }
    /// `Some` when a long-running script has one of `shards` (`None`: any). True: the script is a function.
    fn busy_on(&self, shards: Option<&[usize]>) -> Option<bool> {
        let mut busy = self.busy.iter().filter(|(id, _)| self.announced[*id].overlap(shards));
        busy.next().map(|(_, is_function)| *is_function)
    }
}

/// A waiting client, and the first long lock that it met.
struct Waiting {
    wake: Arc<dyn Wake>,
    lock_id: u64,
}

/// Announces long locks under a name.
pub(crate) struct LongLocksOf<'h, N> {
    pub(crate) long_locks: &'h LongLocks,
    /// Makes the holder's name. Called for each announced long lock.
    pub(crate) name: N,
}

impl<N: Fn() -> String> LongLocksOf<'_, N> {
    fn name<'h>(&self, long_lock: LongLock<'h>) -> Box<dyn call::LongLock + 'h> {
        long_lock.long_locks.state.lock().holders.insert(long_lock.id, (self.name)().into());
        Box::new(long_lock)
    }
}

impl<N: Fn() -> String> call::LongLocks for LongLocksOf<'_, N> {
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn call::LongLock + '_> {
        self.name(self.long_locks.announce(shards))
    }
    fn begin_unless_busy(
        &self,
        shards: Option<Vec<usize>>,
        may_wait: &dyn Fn() -> bool,
    ) -> Result<Box<dyn call::LongLock + '_>, NotLocked> {
        Ok(self.name(self.long_locks.announce_unless_busy(shards, may_wait)?))
    }
}

/// The shards of a long lock, ascending. `None`: all.
struct Shards(Option<Vec<usize>>);

impl Shards {
    fn overlap(&self, others: Option<&[usize]>) -> bool {
        match (&self.0, others) {
            (Some(held), Some(others)) => others.iter().any(|s| held.binary_search(s).is_ok()),
            _ => true,
        }
    }
}

/// An announced long lock. Dropping this value ends the long lock. Unlock the shards before.
pub(crate) struct LongLock<'h> {
    long_locks: &'h LongLocks,
    id: u64,
}

impl call::LongLock for LongLock<'_> {}

impl call::LongLocks for LongLocks {
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn call::LongLock + '_> {
        Box::new(self.announce(shards))
    }
    fn begin_unless_busy(
        &self,
        shards: Option<Vec<usize>>,
        may_wait: &dyn Fn() -> bool,
    ) -> Result<Box<dyn call::LongLock + '_>, NotLocked> {
        Ok(Box::new(self.announce_unless_busy(shards, may_wait)?))
    }
}

impl LongLocks {
    /// Starts without a long lock. Helper threads wait at `changed`.
    pub(crate) fn new(changed: Box<dyn Signal>) -> LongLocks {
        LongLocks { count: AtomicUsize::new(0), state: Mutex::default(), changed }
    }
    /// True while a long lock is announced.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }
    /// Announces a long lock on `shards` (`None`: on all). First waits for the end of every long lock on one of them.
    /// Lock the shards after this call.
    pub(crate) fn announce(&self, shards: Option<Vec<usize>>) -> LongLock<'_> {
        match self.announce_while(shards, |_| Ok::<(), Infallible>(())) {
            Ok(long_lock) => long_lock,
            Err(never) => match never {},
        }
    }
    /// Does what [`LongLocks::announce`] does, and calls `check` at intervals while another long lock is on one of the
    /// shards. `check` gets `Some` when a long-running script has one of the shards; the value tells whether the script
    /// is a function.
    ///
    /// # Errors
    /// The error of `check`, which ends the wait.
    pub(crate) fn announce_while<E>(
        &self,
        mut shards: Option<Vec<usize>>,
        check: impl Fn(Option<bool>) -> Result<(), E>,
    ) -> Result<LongLock<'_>, E> {
        if let Some(shards) = &mut shards {
            shards.sort_unstable();
            shards.dedup();
        }
        let mut state = self.state.lock();
        loop {
            let is_held = state.overlaps(shards.as_deref());
            if !is_held && state.woken.is_empty() {
                break;
            }
            let seen = self.changed.changes();
            let busy = state.busy_on(shards.as_deref());
            drop(state);
            if is_held {
                check(busy)?;
            }
            let has_changed =
                self.changed.wait(seen, Some(if is_held { CHECK_EVERY_US } else { WAITERS_US_MAX }));
            state = self.state.lock();
            if !has_changed && !is_held {
                state.woken.clear();
            }
        }
        Ok(self.enter(state, shards))
    }
    /// Does what [`LongLocks::announce`] does, but does not wait for a long-running script. Calls `may_wait` at intervals.
    ///
    /// # Errors
    /// Why no long lock is announced.
    pub(crate) fn announce_unless_busy(
        &self,
        shards: Option<Vec<usize>>,
        may_wait: impl Fn() -> bool,
    ) -> Result<LongLock<'_>, NotLocked> {
        self.announce_while(shards, |busy| match busy {
            Some(is_function) => Err(NotLocked::Busy { is_function }),
            None if may_wait() => Ok(()),
            None => Err(NotLocked::GivenUp),
        })
    }
    /// Announces a long lock on `shards` (`None`: on all) if nobody has to be waited for.
    pub(crate) fn try_announce(&self, shards: Option<Vec<usize>>) -> Option<LongLock<'_>> {
        let state = self.state.lock();
        (!state.overlaps(shards.as_deref()) && state.woken.is_empty()).then(|| self.enter(state, shards))
    }
    fn enter(&self, mut state: MutexGuard<'_, State>, shards: Option<Vec<usize>>) -> LongLock<'_> {
        let id = state.next;
        state.next += 1;
        state.announced.insert(id, Shards(shards));
        self.count.store(state.announced.len(), Relaxed);
        drop(state);
        // A thread that finds a shard locked by this caller also finds the long lock: see `wait_for_locked`.
        fence(Ordering::SeqCst);
        LongLock { long_locks: self, id }
    }
    /// True when a long lock is on one of `shards` (`None`: on any). `client` is then woken when a long lock ends.
    /// The check and the entry are one step, so no end is missed.
    pub(crate) fn wait(&self, shards: Option<&[usize]>, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let mut state = self.state.lock();
        let met = state.announced.iter().find(|(_, held)| held.overlap(shards)).map(|(id, _)| *id);
        if let Some(lock_id) = met {
            state.waiting.insert(client, Waiting { wake: wake.clone(), lock_id });
        }
        met.is_some()
    }
    /// The name of the holder that `client` waits for, where known.
    pub(crate) fn holder_for(&self, client: u64) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.holders.get(&state.waiting.get(&client)?.lock_id).cloned()
    }
    /// Marks the long lock on exactly these shards (`None`: on all) as that of a long-running script. Clients that
    /// wait for it get BUSY from now on. False if there is no such lock.
    pub(crate) fn mark_busy(&self, shards: Option<&[usize]>, is_function: bool) -> bool {
        let mut state = self.state.lock();
        let is_this_lock = |held: &&u64| match (&state.announced[*held].0, shards) {
            (Some(held), Some(shards)) => held == shards,
            // A long lock on all shards is the only long lock.
            _ => true,
        };
        let Some(id) = state.announced.keys().find(is_this_lock).copied() else { return false };
        state.busy.insert(id, is_function);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        wake_together(waiting.values().map(|waiting| &waiting.wake));
        self.changed.notify();
        true
    }
    /// For a job: waits for the end of the long locks that are now on one of `shards` (`None`: on any). Returns early for
    /// a long-running script, and tells whether that script is a function. Calls `may_wait` at intervals.
    pub(crate) fn wait_or_find_busy(
        &self,
        shards: Option<&[usize]>,
        may_wait: impl Fn() -> bool,
    ) -> Option<bool> {
        let mut state = self.state.lock();
        // A long lock that is announced later does not extend the wait, so other clients cannot make the job wait forever.
        let met: Vec<u64> =
            state.announced.iter().filter(|(_, held)| held.overlap(shards)).map(|(id, _)| *id).collect();
        loop {
            let busy = state.busy_on(shards);
            let is_over = !met.iter().any(|id| state.announced.contains_key(id));
            if busy.is_some() || is_over || !may_wait() {
                return busy;
            }
            let seen = self.changed.changes();
            drop(state);
            self.changed.wait(seen, Some(CHECK_EVERY_US));
            state = self.state.lock();
        }
    }
    /// `Some` when a long-running script holds one of `shards` (`None`: any). The value tells whether the script is a
    /// function.
    pub(crate) fn is_busy(&self, shards: Option<&[usize]>) -> Option<bool> {
        self.state.lock().busy_on(shards)
    }
    /// [`LongLocks::wait`] for a client that found one of `shards` locked.
    #[cold]
    pub(crate) fn wait_for_locked(&self, shards: &[usize], client: u64, wake: &Arc<dyn Wake>) -> bool {
        fence(Ordering::SeqCst);
        self.any() && self.wait_past_gate(shards, client, wake)
    }
    /// [`LongLocks::wait`] for a client that has passed the gate for long locks. If the long lock is already marked as
    /// that of a long-running script, nobody would wake the client before the script ends. So the client is then woken
    /// at once, and gets BUSY at the gate.
    pub(crate) fn wait_past_gate(&self, shards: &[usize], client: u64, wake: &Arc<dyn Wake>) -> bool {
        let waits = self.wait(Some(shards), client, wake);
        if waits && self.is_busy(Some(shards)).is_some() {
            wake.wake();
        }
        waits
    }
    /// Call this when a woken client has run, waits again, or has gone.
    pub(crate) fn client_has_run(&self, client: u64) {
        let mut state = self.state.lock();
        if state.woken.remove(&client) && state.woken.is_empty() {
            self.changed.notify();
        }
    }
    /// Call this when a client has gone.
    pub(crate) fn forget(&self, client: u64) {
        self.state.lock().waiting.remove(&client);
        self.client_has_run(client);
    }
}

impl Drop for LongLock<'_> {
    fn drop(&mut self) {
        let mut state = self.long_locks.state.lock();
        state.announced.remove(&self.id);
        state.busy.remove(&self.id);
        state.holders.remove(&self.id);
        self.long_locks.count.store(state.announced.len(), Relaxed);
        let waiting = std::mem::take(&mut state.waiting);
        state.woken.extend(waiting.keys());
        drop(state);
        wake_together(waiting.values().map(|waiting| &waiting.wake));
        self.long_locks.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn queue(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A signal for the threads of a test. The test stands in for the host.
    #[allow(clippy::disallowed_types)]
    #[derive(Default)]
    struct Changes(Mutex<u64>, parking_lot::Condvar);
    impl Signal for Changes {
        fn changes(&self) -> u64 {
            *self.0.lock()
        }
        fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool {
            let (mut count, at_most) =
                (self.0.lock(), std::time::Duration::from_micros(at_most_us.unwrap_or(1_000_000)));
            self.1.wait_while_for(&mut count, |count| *count == seen, at_most);
            *count != seen || at_most_us.is_none()
        }
        fn notify(&self) {
            *self.0.lock() += 1;
            self.1.notify_all();
        }
    }
    fn long_locks() -> LongLocks {
        LongLocks::new(Box::<Changes>::default())
    }

    #[test]
    fn a_client_waits_for_a_shard_with_a_long_lock_and_is_woken_at_its_end() {
        let long_locks = long_locks();
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        assert!(!long_locks.any() && !long_locks.wait(None, 1, &wake));
        let (first, second) = (long_locks.announce(Some(vec![5, 2, 5])), long_locks.announce(Some(vec![9])));
        assert!(long_locks.any());
        assert!(!long_locks.wait(Some(&[1, 3, 8]), 1, &wake));
        assert!(
            long_locks.wait(Some(&[1, 2]), 1, &wake)
                && long_locks.wait(Some(&[9]), 1, &wake)
                && long_locks.wait(None, 2, &wake)
        );
        drop(first);
        assert_eq!(count.0.load(Relaxed), 2, "each client once");
        assert!(!long_locks.wait(Some(&[2]), 1, &wake) && long_locks.wait(Some(&[9]), 1, &wake));
        drop(second);
        assert_eq!(count.0.load(Relaxed), 3);
        assert!(!long_locks.any());
    }

    #[test]
    fn a_session_that_waits_for_a_busy_script_is_woken_with_an_error() {
        let long_locks = long_locks();
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        let (script, _other) = (long_locks.announce(Some(vec![1, 2])), long_locks.announce(Some(vec![7])));
        assert!(long_locks.wait(Some(&[2]), 1, &wake) && long_locks.is_busy(Some(&[2])).is_none());
        long_locks.mark_busy(Some(&[1, 2]), true);
        assert_eq!((count.0.load(Relaxed), long_locks.is_busy(Some(&[2]))), (1, Some(true)));
        assert_eq!((long_locks.is_busy(Some(&[7])), long_locks.is_busy(None)), (None, Some(true)));
        // The gate rejects this client. A client that has passed the gate before is woken to meet the gate again.
        assert!(long_locks.wait(Some(&[2]), 1, &wake) && count.0.load(Relaxed) == 1);
        assert!(long_locks.wait_for_locked(&[2], 1, &wake) && count.0.load(Relaxed) == 2);
        drop(script);
        assert!(long_locks.is_busy(None).is_none());
    }

    #[test]
    fn a_panic_ends_a_long_lock() {
        let long_locks = long_locks();
        let held = std::panic::AssertUnwindSafe(&long_locks);
        let ended = std::panic::catch_unwind(|| {
            let _long_lock = held.announce(Some(vec![1]));
            panic!("on purpose");
        });
        assert!(ended.is_err() && !long_locks.any());
    }

    /// Announces a long lock on shard 1 on another thread.
    fn begun_elsewhere<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        long_locks: &'s LongLocks,
        order: &'s Mutex<Vec<&'static str>>,
    ) -> std::thread::ScopedJoinHandle<'s, ()> {
        let begins = std::sync::mpsc::channel();
        let handle = scope.spawn(move || {
            begins.0.send(()).expect("somebody listens");
            let _long_lock = long_locks.announce(Some(vec![1]));
            order.lock().push("second");
        });
        begins.1.recv().expect("it begins");
        handle
    }

    #[test]
    fn a_long_lock_waits_for_the_one_that_it_meets_and_for_the_clients_of_that_one() {
        let (long_locks, order) = (long_locks(), Mutex::new(Vec::new()));
        let wake: Arc<dyn Wake> = Arc::new(Count::default());
        std::thread::scope(|scope| {
            let first = long_locks.announce(Some(vec![0, 1]));
            assert!(long_locks.wait(Some(&[0]), 7, &wake) && long_locks.wait(Some(&[1]), 8, &wake));
            let _elsewhere = long_locks.announce(Some(vec![2]));
            let second = begun_elsewhere(scope, &long_locks, &order);
            order.lock().push("first");
            drop(first);
            assert!(
                !long_locks.wait(Some(&[0]), 7, &wake),
                "the second is not announced before the two have run"
            );
            long_locks.client_has_run(7);
            assert!(!long_locks.wait(Some(&[1]), 8, &wake));
            order.lock().push("run");
            long_locks.forget(8);
            second.join().expect("it ends");
        });
        assert_eq!(order.into_inner(), ["first", "run", "second"]);
        assert!(!long_locks.any());
    }
}
