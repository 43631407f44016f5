//! [`Loaders`]: threads that put records into the keyspace while one thread reads them from a file.
//!
//! When enough batches wait for the threads, the reading thread puts a batch itself, so no thread idles. With one
//! worker there are no loader threads.

use crate::{Engine, Signal};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use strand_commands::serial::Batch;
use strand_commands::serial::file::NotLoaded;
use strand_keyspace::Keyspace;

/// Maximum number of threads besides the reading thread.
const THREADS_MAX: usize = 8;
/// Maximum number of waiting batches per thread. A batch has up to 1 MiB of the file.
const WAITING_PER_THREAD: usize = 1;

/// The threads. See the module. Dropping this value ends the threads.
pub(super) struct Loaders {
    shared: Arc<Shared>,
    waiting_max: usize,
}

struct Shared {
    state: Mutex<State>,
    changed: Box<dyn Signal>,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Batch>,
    /// Number of batches that are being put into the keyspace.
    active: usize,
    is_closed: bool,
    /// The first error of a batch.
    first_error: Option<NotLoaded>,
    has_panicked: bool,
}

impl Loaders {
    /// Starts the threads. `None`: the server has one worker, and the reading thread puts the records itself.
    pub(super) fn begin(engine: &Engine) -> Option<Loaders> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: engine.host.signal() });
        let wanted = engine.facts.workers.saturating_sub(1).min(THREADS_MAX);
        let spawned = (0..wanted).take_while(|at| {
            let (shared, keyspace) = (shared.clone(), engine.keyspace.clone());
            engine.host.spawn(&format!("load-{at}"), Box::new(move || shared.run_loader(&keyspace))).is_ok()
        });
        let threads = spawned.count();
        (threads > 0).then(|| Loaders { shared, waiting_max: threads * WAITING_PER_THREAD })
    }
    /// Hands over a batch.
    ///
    /// # Errors
    /// The error of an earlier batch.
    pub(super) fn put(&self, batch: Batch, keyspace: &Keyspace) -> Result<(), NotLoaded> {
        let mut state = self.shared.state.lock();
        if let Some(error) = state.first_error.take() {
            return Err(error);
        }
        if state.batches.len() < self.waiting_max {
            state.batches.push_back(batch);
            drop(state);
            self.shared.changed.notify();
            return Ok(());
        }
        drop(state);
        batch.put(keyspace)
    }
    /// Returns when all batches are put.
    ///
    /// # Errors
    /// The error of a batch.
    ///
    /// # Panics
    /// When a thread has panicked.
    pub(super) fn finish(self, keyspace: &Keyspace) -> Result<(), NotLoaded> {
        while self.shared.put_one(keyspace) {}
        let mut state = self.shared.state.lock();
        while state.active > 0 {
            state = self.shared.wait(state);
        }
        assert!(!state.has_panicked, "a thread that puts keys into the keyspace has panicked");
        state.first_error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Loaders {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        state.batches.clear();
        drop(state);
        self.shared.changed.notify();
    }
}

impl Shared {
    /// Unlocks the state until something has changed.
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let seen = self.changed.changes();
        drop(state);
        self.changed.wait(seen, None);
        self.state.lock()
    }
    fn run_loader(&self, keyspace: &Keyspace) {
        loop {
            if self.put_one(keyspace) {
                continue;
            }
            let mut state = self.state.lock();
            while state.batches.is_empty() {
                if state.is_closed {
                    return;
                }
                state = self.wait(state);
            }
        }
    }
    /// Puts one batch. False when none waits.
    fn put_one(&self, keyspace: &Keyspace) -> bool {
        let mut state = self.state.lock();
        let Some(batch) = state.batches.pop_front() else { return false };
        state.active += 1;
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| batch.put(keyspace)));
        let mut state = self.state.lock();
        state.active -= 1;
        match done {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                state.first_error.get_or_insert(error);
            }
            Err(_) => state.has_panicked = true,
        }
        let is_idle = state.active == 0;
        drop(state);
        if is_idle {
            self.changed.notify();
        }
        true
    }
}
