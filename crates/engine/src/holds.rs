//! [`Holds`]: shards that are held for long, and the sessions that wait for one of them.
//!
//! Whoever holds a shard for a bounded short time (all commands on workers, every slice on the lane) says nothing, and
//! whoever needs it then waits at its lock. A call that has to hold shards for long announces that here first: sessions
//! that need one of them are put aside, are woken when it ends and try again; their workers serve others meanwhile. A
//! command pays one look at a number for this, which is zero but for such calls.

use crate::Wake;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The long holds of one server.
#[derive(Default)]
pub(crate) struct Holds {
    /// How many there are.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// The shards of each hold, ascending.
    held: BTreeMap<u64, Vec<usize>>,
    /// By client: one that looks again while it waits is there once.
    waiting: BTreeMap<u64, Arc<dyn Wake>>,
}

/// An announced hold; ends when dropped, which comes after the shards are let go.
pub(crate) struct Hold<'h> {
    holds: &'h Holds,
    id: u64,
}

impl Holds {
    /// True while there is one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }
    /// Announces one; lock the shards after that.
    pub(crate) fn begin(&self, mut shards: Vec<usize>) -> Hold<'_> {
        shards.sort_unstable();
        shards.dedup();
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.held.insert(id, shards);
        self.count.store(state.held.len(), Relaxed);
        Hold { holds: self, id }
    }
    /// True when one of `shards` (`None`: of all) is held for long; `client` is then woken when a hold ends. Asking and
    /// waiting are one step, so no end is missed.
    pub(crate) fn wait(&self, shards: Option<&[usize]>, client: u64, wake: &Arc<dyn Wake>) -> bool {
        let mut state = self.state.lock();
        let meets = |held: &Vec<usize>| match shards {
            None => true,
            Some(shards) => shards.iter().any(|s| held.binary_search(s).is_ok()),
        };
        let waits = state.held.values().any(meets);
        if waits {
            state.waiting.insert(client, wake.clone());
        }
        waits
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut state = self.holds.state.lock();
        state.held.remove(&self.id);
        self.holds.count.store(state.held.len(), Relaxed);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.values().for_each(|wake| wake.wake());
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

    #[test]
    fn who_needs_a_held_shard_is_woken_when_it_ends_and_only_he_waits() {
        let holds = Holds::default();
        let count = Arc::new(Count::default());
        let wake: Arc<dyn Wake> = count.clone();
        assert!(!holds.any() && !holds.wait(None, 1, &wake));
        let (first, second) = (holds.begin(vec![5, 2, 5]), holds.begin(vec![9]));
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
    fn a_panic_ends_a_hold() {
        let holds = Holds::default();
        let held = std::panic::AssertUnwindSafe(&holds);
        let ended = std::panic::catch_unwind(|| {
            let _hold = held.begin(vec![1]);
            panic!("on purpose");
        });
        assert!(ended.is_err() && !holds.any());
    }
}
