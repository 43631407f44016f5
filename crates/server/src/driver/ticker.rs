//! The background threads: active expiry, samples, and the text indexes that follow the data.

use super::clock::Clock;
use super::threads;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use strand_engine::Engine;

/// Pause after a round that panicked.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);
/// Interval at which the text indexes look for writes. A search also looks before it starts.
const SEARCH_TICK_MS: u64 = 100;

/// Interval between two samples of the history.
const SAMPLE_US: u64 = 1_000_000;

/// While many keys have expired, expiry pauses for the duration of its last slice, times this factor, so expiry takes
/// a quarter of a core, as in redis-server.
const EXPIRE_PAUSE_FACTOR: u64 = 3;
/// Minimum pause of expiry, in microseconds.
const EXPIRE_PAUSE_US_MIN: u64 = 200;

/// The watch over the memory limit pauses for its own duration, times this factor, so the watch takes half a core while
/// it evicts.
const WATCH_PAUSE_FACTOR: u64 = 1;

/// Repeats work on a separate thread until this value is dropped.
pub struct Ticker {
    /// True when the thread must end.
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts a thread that calls `work` and pauses for the returned time.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(name: &str, mut work: impl FnMut() -> Duration + Send + 'static) -> io::Result<Ticker> {
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = ends.clone();
        let thread = threads::spawn(name, move || {
            while !is_over.load(SeqCst) {
                // The panic hook logs a panic. The next round may succeed.
                let pause = catch_unwind(AssertUnwindSafe(&mut work)).unwrap_or(PAUSE_AFTER_PANIC);
                // The work may have taken the unpark of the drop.
                if !is_over.load(SeqCst) {
                    // Ends early when somebody unparks the thread, also if that happened before.
                    std::thread::park_timeout(pause);
                }
            }
        })?;
        Ok(Ticker { ends, thread: Some(thread) })
    }
    /// A function that ends a pause of the thread, so that the next round begins at once.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let thread = self.thread.as_ref().map(|thread| thread.thread().clone());
        move || thread.iter().for_each(Thread::unpark)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Ignore a panic in the thread, which was logged.
            let _ = thread.join();
        }
    }
}

/// Starts the thread for the engine's regular work, `hz` times per second, and for active expiry, more often while much
/// has expired.
///
/// # Errors
/// When the system gives no thread.
pub fn engine_ticker(engine: Arc<Engine>, clock: Clock) -> io::Result<Ticker> {
    let mut next_tick_us = 0;
    Ticker::start("ticker", move || {
        let now = clock.now();
        let more = if now.mono_us >= next_tick_us {
            engine.tick(now);
            next_tick_us = now.mono_us + 1_000_000 / engine.config().hz().max(1);
            engine.expire(clock.now())
        } else {
            engine.expire(now)
        };
        let ended_us = clock.now().mono_us;
        let rest_us = next_tick_us.saturating_sub(ended_us);
        let pause_us = match more {
            true => ((ended_us - now.mono_us) * EXPIRE_PAUSE_FACTOR).max(EXPIRE_PAUSE_US_MIN).min(rest_us),
            false => rest_us,
        };
        Duration::from_micros(pause_us)
    })
}

/// Starts the thread that watches the memory limit, and evicts in slices while the limit is exceeded. The watch has a
/// thread of its own so that it need not wait for expiry. It asks the allocator often when the limit is near.
///
/// # Errors
/// When the system gives no thread.
pub fn memory_ticker(engine: Arc<Engine>, clock: Clock) -> io::Result<Ticker> {
    Ticker::start("memory", move || {
        let now = clock.now();
        let pause_us = engine.watch_memory(now);
        let took_us = clock.now().mono_us - now.mono_us;
        Duration::from_micros(pause_us.max(took_us * WATCH_PAUSE_FACTOR))
    })
}

/// Starts the thread that lets the text indexes follow the data while nobody searches. Writers that wait for the indexes
/// wake the thread.
///
/// # Errors
/// When the system gives no thread.
pub fn search_ticker(
    search: Arc<strand_search::Search>,
    engine: Arc<Engine>,
    clock: Clock,
) -> io::Result<Ticker> {
    let ticking = engine.clone();
    let ticker = Ticker::start("search", move || {
        search.set_memory_limit(ticking.memory_limit_bytes());
        // The tick reads keys that were changed, and such a read removes an expired key.
        let is_behind = ticking.while_data_stays(|| search.tick(clock.now().unix_ms()));
        Duration::from_millis(if is_behind == Some(true) { 0 } else { SEARCH_TICK_MS })
    })?;
    engine.keyspace().set_touched_wake(Box::new(ticker.waker()));
    Ok(ticker)
}

/// Starts the thread that takes a sample of everything at each full second.
///
/// # Errors
/// When the system gives no thread.
pub fn history_ticker(engine: Arc<Engine>, clock: Clock) -> io::Result<Ticker> {
    Ticker::start("history", move || {
        engine.sample(clock.now());
        let into_second_us = clock.now().mono_us % SAMPLE_US;
        Duration::from_micros(SAMPLE_US - into_second_us)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_panic_does_not_end_the_work_and_a_drop_ends_a_pause() {
        let (said, heard) = channel();
        let mut round = 0;
        let ticker = Ticker::start("test", move || {
            round += 1;
            said.send(round).expect("the test listens");
            if round == 1 {
                panic!("on purpose");
            }
            Duration::from_secs(if round == 2 { 0 } else { 3600 })
        });
        let ticker = ticker.expect("a thread");
        assert_eq!(heard.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
        let wake = ticker.waker();
        wake();
        assert_eq!(heard.recv(), Ok(4), "a wake ends the pause");
        drop(ticker);
        assert!(heard.recv().is_err());
    }
}
