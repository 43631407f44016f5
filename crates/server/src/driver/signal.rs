//! [`Changes`]: a counter of changes that helper threads can wait on.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};
use strand_engine::Signal;

/// The number of changes so far, and the threads that wait for the next change.
#[derive(Default)]
pub struct Changes {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal for Changes {
    fn changes(&self) -> u64 {
        *self.count.lock()
    }
    fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool {
        let mut count = self.count.lock();
        let same = |count: &mut u64| *count == seen;
        let Some(at_most_us) = at_most_us else {
            self.changed.wait_while(&mut count, same);
            return true;
        };
        let until = Instant::now() + Duration::from_micros(at_most_us);
        let waited = self.changed.wait_while_until(&mut count, same, until);
        !waited.timed_out() || *count != seen
    }
    fn notify(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_the_wait_even_if_it_came_first() {
        let changes = Changes::default();
        let seen = changes.changes();
        assert!(!changes.wait(seen, Some(1)), "nothing has changed");
        changes.notify();
        assert!(changes.wait(seen, None), "it came before the wait");
        let seen = changes.changes();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait(seen, None));
            changes.notify();
            assert!(waits.join().expect("it ends"));
        });
    }
}
