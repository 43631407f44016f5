//! The priority of work that no worker may wait for ([`set_lowest`]), and whether such work runs at all
//! ([`is_lowest_starved`]).
//!
//! Beside programs that never sleep, a thread of the lowest priority gets 0.5 % of a core: with three such programs
//! on each core, `GET /v1/bundle` took 59 s (debug build, `sh -c 'while :; do :; done'` six times on two cores). A
//! bundle is wanted most on a busy machine. So on such a machine, work that somebody waits for takes the usual
//! priority. The workers there share their cores with other programs anyway.
//!
//! A thread gets the lowest priority only when there is work for it, because a killed process ends only after each
//! of its threads got the processor once more. With three programs that never sleep on two cores, the end of a killed
//! server took 175 ms while three of its threads waited at nice 19, 37 ms without them, and 12 ms with no thread above
//! nice 0 (`kill -9` and `wait` of 60 servers, debug build).

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

/// Processor time that a trial uses. It is longer than one time slice, because a new thread gets its first slice soon.
const TRIAL: Duration = Duration::from_millis(8);
/// A trial that takes longer than this got less than 4 % of a core.
const TRIAL_MAX: Duration = Duration::from_millis(200);
/// The result of a trial is valid for this time.
const RESULT_VALID: Duration = Duration::from_secs(2);

/// The time of the last trial, and its result.
static LAST_TRIAL: Mutex<Option<(Instant, bool)>> = Mutex::new(None);

/// Gives the calling thread a nice value. If the system refuses, the thread works at the usual priority.
pub fn set(nice: i32) {
    // On Linux a call without an id affects only the calling thread. After a failure, workers on
    // this core wait longer.
    let _ = rustix::process::setpriority_process(None, nice);
}

/// Gives the calling thread the lowest priority.
pub fn set_lowest() {
    set(LOWEST_NICE);
}

/// True when a thread of the lowest priority gets less than 4 % of a core now. Blocks the caller for 8 to 200 ms,
/// unless the last trial was a moment ago.
pub fn is_lowest_starved() -> bool {
    let mut last = LAST_TRIAL.lock();
    match *last {
        Some((at, is_lowest_starved)) if at.elapsed() < RESULT_VALID => is_lowest_starved,
        _ => last.insert((Instant::now(), run_trial())).1,
    }
}

/// Runs a trial. A thread cannot take its priority back, so the trial has a thread of its own.
fn run_trial() -> bool {
    let (done, over) = sync_channel(1);
    let trial = move || {
        set_lowest();
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
