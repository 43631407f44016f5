//! The priority of work that no worker may wait for ([`lower`]), and whether such work runs at all ([`starves`]).
//!
//! Beside programs that never sleep, a thread of the lowest priority gets 0.5 % of a core: with three such programs on
//! each core, `GET /v1/bundle` took 59 s (debug build, `sh -c 'while :; do :; done'` six times on two cores). A bundle is
//! wanted most on a busy machine. So work that somebody waits for takes the usual priority there, and disturbs workers
//! that share their cores anyway.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// The nice value of threads that a worker never waits for.
const LOWEST_NICE: i32 = 19;
/// The nice value of the allocator's threads. A worker on the same core goes first. The threads still get some percent
/// of a core beside programs that never sleep: they hold locks that readers of the allocator's figures need. (At the
/// lowest priority they got 0.5 %, and INFO and bundles waited for half a minute.)
pub const PURGE_NICE: i32 = 10;

/// Processor time of a trial: several time slices, because the system gives every new thread its first slice soon.
const TRIAL: Duration = Duration::from_millis(8);
/// A trial that takes longer than this got less than 4 % of a core.
const TRIAL_MAX: Duration = Duration::from_millis(200);
/// The result of a trial holds for this time.
const HOLDS: Duration = Duration::from_secs(2);

/// The time of the last trial, and its result.
static LAST: Mutex<Option<(Instant, bool)>> = Mutex::new(None);

/// Gives the calling thread a nice value. If the system refuses, the thread works at the usual priority.
pub fn set(nice: i32) {
    // On Linux a call without an id affects only the calling thread. A failure only means longer waits for others.
    let _ = rustix::process::setpriority_process(None, nice);
}

/// Gives the calling thread the lowest priority.
pub fn lower() {
    set(LOWEST_NICE);
}

/// True when a thread of the lowest priority gets less than 4 % of a core now. Blocks the caller for 8 to 200 ms, unless
/// the last trial was a moment ago.
pub fn starves() -> bool {
    let mut last = LAST.lock();
    match *last {
        Some((at, starves)) if at.elapsed() < HOLDS => starves,
        _ => last.insert((Instant::now(), is_slow())).1,
    }
}

/// Runs a trial. A thread cannot take its priority back, so the trial has a thread of its own.
fn is_slow() -> bool {
    let (done, over) = sync_channel(1);
    let trial = move || {
        lower();
        let until = processor_time() + TRIAL;
        while processor_time() < until {
            std::hint::spin_loop();
        }
        // The caller may have stopped waiting.
        let _ = done.send(());
    };
    thread::Builder::new().name("trial".into()).spawn(trial).is_ok() && over.recv_timeout(TRIAL_MAX).is_err()
}

/// The processor time that the calling thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}
