//! The priority of work that no worker may wait for ([`set_lowest`], [`lowest_unless_starved`]), and whether such work
//! runs at all ([`is_lowest_starved`], [`raise_starved`]).
//!
//! Beside programs that never sleep, a thread of the lowest priority gets 0.5 % of a core: with three such programs
//! on each core, `GET /v1/bundle` took 59 s (debug build, `sh -c 'while :; do :; done'` six times on two cores). A
//! bundle is wanted most on a busy machine. So on such a machine, work that somebody waits for takes the usual
//! priority. The workers there share their cores with other programs anyway.
//!
//! A machine may become busy after the work has begun. `DIAG PROFILE HEAP` took 13 to 19 s (quick build) when the six
//! programs began 30 ms after it. So each second [`raise_starved`] gives the usual priority to the threads that only
//! waited for a processor in this second; since then such a profile takes 2 to 4 s. The kernel allows this only to
//! a process with CAP_SYS_NICE or `LimitNICE=+0` (as in the package's service). Elsewhere the work remains slow.
//!
//! A thread gets the lowest priority only when there is work for it, because a killed process ends only after each
//! of its threads got the processor once more. With three programs that never sleep on two cores, the end of a killed
//! server took 175 ms while three of its threads waited at nice 19, 37 ms without them, and 12 ms with no thread above
//! nice 0 (`kill -9` and `wait` of 60 servers, debug build).

use parking_lot::Mutex;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// The nice value of threads that a worker never waits for.
const LOWEST_NICE: i32 = 19;
/// The usual nice value: the workers' own.
const USUAL_NICE: i32 = 0;
/// The nice value of the allocator's threads. A worker on the same core goes first. The threads still get some percent
/// of a core beside programs that never sleep: they hold locks that readers of the allocator's figures need. (At the
/// lowest priority they got 0.5 %, and INFO and bundles waited for half a minute.)
pub const PURGE_NICE: i32 = 10;

/// Processor time that a trial uses. It is longer than one time slice, because a new thread gets its first slice soon.
const TRIAL: Duration = Duration::from_millis(8);
/// A trial that takes longer than this got less than 4 % of a core.
const TRIAL_MAX: Duration = Duration::from_millis(200);
/// A thread that waited for a processor for this share of the time gets less than 4 % of a core.
const STARVED_SHARE: f64 = 0.96;
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

/// Gives the calling thread the lowest priority, for work that may wait as long as workers are busy.
pub fn set_lowest() {
    set(LOWEST_NICE);
}

/// Gives the calling thread the lowest priority, for work that somebody waits for. While the returned value exists,
/// [`raise_starved`] watches the thread. The thread drops the value when it ends.
pub fn lowest_unless_starved() -> Lowest {
    set_lowest();
    let tid = rustix::thread::gettid();
    let last = waited_for_processor(tid).map(|waited| (Instant::now(), waited));
    WATCHED.lock().push(Watched { tid, last, is_raised: false });
    Lowest(tid)
}

/// A thread of the lowest priority. See [`lowest_unless_starved`].
pub struct Lowest(Pid);

impl Drop for Lowest {
    fn drop(&mut self) {
        // The kernel gives the thread's number to another thread later.
        WATCHED.lock().retain(|watched| watched.tid != self.0);
    }
}

/// The threads that [`raise_starved`] watches.
static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// A thread of [`WATCHED`].
struct Watched {
    tid: Pid,
    /// The time of the last look, and how long the thread had waited for a processor until then.
    last: Option<(Instant, Duration)>,
    /// The thread has the usual priority for now.
    is_raised: bool,
}

/// Gives the usual priority to the watched threads that got less than 4 % of a core since the last call, and the lowest
/// priority to the others. Call this about once per second.
pub fn raise_starved() {
    let now = Instant::now();
    for watched in &mut *WATCHED.lock() {
        // A kernel without these figures, and one that refuses, leave the thread as it is.
        let Some(waited) = waited_for_processor(watched.tid) else { continue };
        let is_starved = watched.is_starved(now, waited);
        if is_starved != watched.is_raised {
            let nice = if is_starved { USUAL_NICE } else { LOWEST_NICE };
            // On Linux the number of a thread means this thread alone.
            let set = rustix::process::setpriority_process(Some(watched.tid), nice);
            watched.is_raised = is_starved && set.is_ok();
        }
    }
}

impl Watched {
    /// True when the thread waited for a processor nearly all the time since the last look. `waited`: how long it has
    /// waited since it exists.
    fn is_starved(&mut self, now: Instant, waited: Duration) -> bool {
        let Some((before, waited_before)) = self.last.replace((now, waited)) else { return false };
        waited.saturating_sub(waited_before) >= now.duration_since(before).mul_f64(STARVED_SHARE)
    }
}

/// How long the thread was ready to run and had no processor: the second number, in nanoseconds. `None` when the
/// kernel does not count this.
fn waited_for_processor(tid: Pid) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    text.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_processor_is_starved_and_one_that_sleeps_or_runs_is_not() {
        let tid = rustix::thread::gettid();
        let mut watched = Watched { tid, last: None, is_raised: false };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let looks = [0, 970, 1_000, 1_500, 2_460, 2_460];
        let starved: Vec<bool> = (0..)
            .zip(looks)
            .map(|(at, ms)| watched.is_starved(start + second * at, Duration::from_millis(ms)))
            .collect();
        assert_eq!(starved, [false, true, false, false, true, false]);
    }

    #[test]
    fn the_wait_of_a_thread_is_read_and_a_thread_is_watched_until_it_ends() {
        let tid = thread::spawn(|| {
            let lowest = lowest_unless_starved();
            let is_watched = |tid| WATCHED.lock().iter().any(|watched| watched.tid == tid);
            assert!(is_watched(lowest.0));
            assert!(waited_for_processor(lowest.0).is_some());
            let tid = lowest.0;
            drop(lowest);
            assert!(!is_watched(tid));
            tid
        });
        let tid = tid.join().expect("the thread ends");
        assert_eq!(waited_for_processor(tid), None);
    }
}
