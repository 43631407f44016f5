//! [`Holds`]: shards that are held for long, and the sessions that wait for one of them.
//!
//! Whoever holds a shard for a bounded short time (all commands on workers, every slice on the lane) says nothing, and
//! whoever needs it then waits at its lock. A call that has to hold shards for long announces that here first: sessions
//! that need one of them are put aside, are woken when it ends and try again; their workers serve others meanwhile. A
//! command pays one look at a number for this, which is zero but for such calls.
//!
//! Announced holds do not overlap where they meet, and between one and the next the sessions that waited for the first
//! have their turn: a loop of such calls slows others down and does not starve them.

use crate::{Signal, Wake};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, Ordering::Relaxed, fence};
use strand_commands::call;

/// A hold waits this long at most for the sessions that the last one kept waiting; only a worker that stands still is as slow.
const TURN_US_MAX: u64 = 20_000;

/// A job that waits for a script looks this often whether anybody still waits for its reply.
const LOOK_EVERY_US: u64 = 50_000;

/// The long holds of one server.
pub(crate) struct Holds {
    /// How many are announced.
    count: AtomicUsize,
    state: Mutex<State>,
    /// One ended, or the sessions that were woken have all run.
    changed: Box<dyn Signal>,
}

#[derive(Default)]
struct State {
    next: u64,
    held: BTreeMap<u64, Shards>,
    /// Who has them, where that is known.
    holders: BTreeMap<u64, Arc<str>>,
    /// Those of scripts that have run for long; true: of a function.
    busy: BTreeMap<u64, bool>,
    /// By client: one that looks again while it waits is there once.
    waiting: BTreeMap<u64, Waiting>,
    /// Clients that were woken and have not run since.
    woken: BTreeSet<u64>,
}

/// A client that waits, and the hold that it met first.
struct Waiting {
    wake: Arc<dyn Wake>,
    hold: u64,
}

/// Announces holds under a name.
pub(crate) struct HoldsOf<'h, N> {
    pub(crate) holds: &'h Holds,
    /// Makes the name: only for holds that are announced.
    pub(crate) name: N,
}

impl<N: Fn() -> String> call::Holds for HoldsOf<'_, N> {
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn call::Hold + '_> {
        let hold = self.holds.announce(shards);
        self.holds.state.lock().holders.insert(hold.id, (self.name)().into());
        Box::new(hold)
    }
}

/// The shards of a hold, ascending; `None`: all.
struct Shards(Option<Vec<usize>>);

impl Shards {
    fn meets(&self, others: Option<&[usize]>) -> bool {
        match (&self.0, others) {
            (Some(held), Some(others)) => others.iter().any(|s| held.binary_search(s).is_ok()),
            _ => true,
        }
    }
}

/// An announced hold; ends when dropped, which comes after the shards are let go.
pub(crate) struct Hold<'h> {
    holds: &'h Holds,
    id: u64,
}

impl call::Hold for Hold<'_> {}

impl call::Holds for Holds {
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn call::Hold + '_> {
        Box::new(self.announce(shards))
    }
}

impl Holds {
    /// None yet. Who has to wait on a helper thread waits at `changed`.
    pub(crate) fn new(changed: Box<dyn Signal>) -> Holds {
        Holds { count: AtomicUsize::new(0), state: Mutex::default(), changed }
    }
    /// True while there is one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }
    /// Announces one on `shards` (`None`: on all), after those that it meets; lock the shards after that.
    pub(crate) fn announce(&self, mut shards: Option<Vec<usize>>) -> Hold<'_> {
        if let Some(shards) = &mut shards {
            shards.sort_unstable();
            shards.dedup();
        }
        let mut state = self.state.lock();
        loop {
            let at_most_us = match state.held.values().any(|held| held.meets(shards.as_deref())) {
                true => None,
                false if state.woken.is_empty() => break,
                false => Some(TURN_US_MAX),
            };
            let seen = self.changed.changes();
            drop(state);
            let is_told = self.changed.wait(seen, at_most_us);
            state = self.state.lock();
            if !is_told {
                state.woken.clear();
            }
        }
        let id = state.next;
        state.next += 1;
        state.held.insert(id, Shards(shards));
        self.count.store(state.held.len(), Relaxed);
        drop(state);
        // Whoever finds a shard taken by this hold finds the hold: see `meets`.
        fence(Ordering::SeqCst);
        Hold { holds: self, id }
    }
    /// True when one of `shards` (`None`: of all) is held for long; `client` is then woken when a hold ends. Asking and
    /// waiting are one step, so no end is missed.
    pub(crate) fn wait(&self, shards: Option<&[usize]>, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let mut state = self.state.lock();
        let met = state.held.iter().find(|(_, held)| held.meets(shards)).map(|(id, _)| *id);
        if let Some(hold) = met {
            state.waiting.insert(client, Waiting { wake: wake.clone(), hold });
        }
        met.is_some()
    }
    /// Who has what `client` waits for, where that is known.
    pub(crate) fn holder_for(&self, client: u64) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.holders.get(&state.waiting.get(&client)?.hold).cloned()
    }
    /// The hold of exactly these shards (`None`: of as many as there are) is a script's that has run for long: whoever waits
    /// for it is told from now on.
    pub(crate) fn call_busy(&self, shards: Option<&[usize]>, is_function: bool) {
        let mut state = self.state.lock();
        let is_it = |held: &&u64| match (&state.held[*held].0, shards) {
            (Some(held), Some(shards)) => held == shards,
            // Of those who hold everything there is one at a time, and nobody beside it.
            _ => true,
        };
        let Some(id) = state.held.keys().find(is_it).copied() else { return };
        state.busy.insert(id, is_function);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.values().for_each(|waiting| waiting.wake.wake());
        self.changed.tell();
    }
    /// For a job: waits while one of `shards` (`None`: of all) is held for long, unless by a script that has run for long;
    /// then whether that is a function. `goes_on` is asked now and then.
    pub(crate) fn await_or_busy(&self, shards: Option<&[usize]>, goes_on: impl Fn() -> bool) -> Option<bool> {
        let mut state = self.state.lock();
        loop {
            let meets = |id: &u64| state.held[id].meets(shards);
            if let Some((_, is_function)) = state.busy.iter().find(|(id, _)| meets(id)) {
                return Some(*is_function);
            }
            if !state.held.keys().any(meets) || !goes_on() {
                return None;
            }
            let seen = self.changed.changes();
            drop(state);
            self.changed.wait(seen, Some(LOOK_EVERY_US));
            state = self.state.lock();
        }
    }
    /// True when one of `shards` (`None`: of all) is held by such a script; whether that is a function.
    pub(crate) fn is_busy(&self, shards: Option<&[usize]>) -> Option<bool> {
        let state = self.state.lock();
        state.busy.iter().find(|(id, _)| state.held[*id].meets(shards)).map(|(_, is_function)| *is_function)
    }
    /// The same for a client that found one of `shards` taken.
    #[cold]
    pub(crate) fn wait_for_taken(&self, shards: &[usize], client: u64, wake: &Arc<dyn Wake>) -> bool {
        fence(Ordering::SeqCst);
        self.any() && self.wait(Some(shards), client, wake)
    }
    /// A client that waited has run, waits again, or is gone.
    pub(crate) fn has_run(&self, client: u64) {
        let mut state = self.state.lock();
        if state.woken.remove(&client) && state.woken.is_empty() {
            self.changed.tell();
        }
    }
    /// A client is gone.
    pub(crate) fn forget(&self, client: u64) {
        self.state.lock().waiting.remove(&client);
        self.has_run(client);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.holds.state.lock();
        state.held.remove(&self.id);
        state.busy.remove(&self.id);
        state.holders.remove(&self.id);
        self.holds.count.store(state.held.len(), Relaxed);
        let waiting = std::mem::take(&mut state.waiting);
        state.woken.extend(waiting.keys());
        drop(state);
        waiting.values().for_each(|waiting| waiting.wake.wake());
        self.holds.changed.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Where the threads of a test wait for each other.
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
        fn tell(&self) {
            *self.0.lock() += 1;
            self.1.notify_all();
        }
    }
    fn holds() -> Holds {
        Holds::new(Box::<Changes>::default())
    }

    #[test]
    fn who_needs_a_held_shard_is_woken_when_it_ends_and_only_he_waits() {
        let holds = holds();
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        assert!(!holds.any() && !holds.wait(None, 1, &wake));
        let (first, second) = (holds.announce(Some(vec![5, 2, 5])), holds.announce(Some(vec![9])));
        assert!(holds.any());
        assert!(!holds.wait(Some(&[1, 3, 8]), 1, &wake));
        assert!(
            holds.wait(Some(&[1, 2]), 1, &wake)
                && holds.wait(Some(&[9]), 1, &wake)
                && holds.wait(None, 2, &wake)
        );
        drop(first);
        assert_eq!(count.0.load(Relaxed), 2, "each client once");
        assert!(!holds.wait(Some(&[2]), 1, &wake) && holds.wait(Some(&[9]), 1, &wake));
        drop(second);
        assert_eq!(count.0.load(Relaxed), 3);
        assert!(!holds.any());
    }

    #[test]
    fn who_waits_for_a_busy_script_is_woken_and_told() {
        let holds = holds();
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        let (script, _other) = (holds.announce(Some(vec![1, 2])), holds.announce(Some(vec![7])));
        assert!(holds.wait(Some(&[2]), 1, &wake) && holds.is_busy(Some(&[2])).is_none());
        holds.call_busy(Some(&[1, 2]), true);
        assert_eq!((count.0.load(Relaxed), holds.is_busy(Some(&[2]))), (1, Some(true)));
        assert_eq!((holds.is_busy(Some(&[7])), holds.is_busy(None)), (None, Some(true)));
        drop(script);
        assert!(holds.is_busy(None).is_none());
    }

    #[test]
    fn a_panic_ends_a_hold() {
        let holds = holds();
        let held = std::panic::AssertUnwindSafe(&holds);
        let ended = std::panic::catch_unwind(|| {
            let _hold = held.announce(Some(vec![1]));
            panic!("on purpose");
        });
        assert!(ended.is_err() && !holds.any());
    }

    /// Begins a hold of shard 1 on a thread of its own; what comes through is that it has begun, and it ends when told.
    fn begun_elsewhere<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        holds: &'s Holds,
        order: &'s Mutex<Vec<&'static str>>,
    ) -> std::thread::ScopedJoinHandle<'s, ()> {
        let begins = std::sync::mpsc::channel();
        let handle = scope.spawn(move || {
            begins.0.send(()).expect("somebody listens");
            let _hold = holds.announce(Some(vec![1]));
            order.lock().push("second");
        });
        begins.1.recv().expect("it begins");
        handle
    }

    #[test]
    fn a_hold_waits_for_the_one_that_it_meets_and_for_those_who_waited_for_that() {
        let (holds, order) = (holds(), Mutex::new(Vec::new()));
        let wake: Arc<dyn Wake> = Arc::new(Count::default());
        std::thread::scope(|scope| {
            let first = holds.announce(Some(vec![0, 1]));
            assert!(holds.wait(Some(&[0]), 7, &wake) && holds.wait(Some(&[1]), 8, &wake));
            let _elsewhere = holds.announce(Some(vec![2]));
            let second = begun_elsewhere(scope, &holds, &order);
            order.lock().push("first");
            drop(first);
            assert!(!holds.wait(Some(&[0]), 7, &wake), "the second is not announced before the two have run");
            holds.has_run(7);
            assert!(!holds.wait(Some(&[1]), 8, &wake));
            order.lock().push("run");
            holds.forget(8);
            second.join().expect("it ends");
        });
        assert_eq!(order.into_inner(), ["first", "run", "second"]);
        assert!(!holds.any());
    }
}
