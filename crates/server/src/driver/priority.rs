//! The priority of work that no worker may wait for ([`set_lowest`], [`lowest_unless_starved`]), and whether such work
//! runs at all ([`is_lowest_starved`], [`raise_starved`]).
//!
//! Beside programs that never sleep, a thread of the lowest priority gets 0.5 % of a core: with three such programs
//! on each core, `GET /v1/bundle` took 59 s (debug build, `sh -c 'while :; do :; done'` six times on two cores). A
//! bundle is wanted most on a busy machine. So on such a machine, work that somebody waits for takes the usual
//! priority. The workers there share their cores with other programs anyway.
//!
//! A machine may become busy after the work has begun. `DIAG PROFILE HEAP` took 13 to 19 s (quick build) when the six
//! programs began 30 ms after it. So [`raise_starved`] looks each second for threads that have work and hardly run, and
//! gives them their usual priority until their work ends; since then such a profile takes 1.9 to 2.2 s. The kernel
//! allows this only to a process with CAP_SYS_NICE or `LimitNICE=+0` (as in the package's service). Elsewhere the work
//! remains slow.
//!
//! A thread gets the lowest priority only when there is work for it, because a killed process ends only after each
//! of its threads got the processor once more. With three programs that never sleep on two cores, the end of a killed
//! server took 175 ms while three of its threads waited at nice 19, 37 ms without them, and 12 ms with no thread above
//! nice 0 (`kill -9` and `wait` of 60 servers, debug build).

use super::host::{Stat, TICKS_PER_S};
use parking_lot::Mutex;
use rustix::process::Pid;
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
/// A thread that has work and gets less than this share of a core is starved.
const STARVED_SHARE: f64 = 0.04;
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
    let tid = rustix::thread::gettid();
    let usual_nice = rustix::process::getpriority_process(None).unwrap_or(LOWEST_NICE);
    set_lowest();
    WATCHED.lock().push(Watched { tid, usual_nice, last: None, is_raised: false });
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
    /// The nice value that the thread had before.
    usual_nice: i32,
    /// The time of the last look, and what was seen.
    last: Option<(Instant, Seen)>,
    /// The thread has its usual priority for now.
    is_raised: bool,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The thread runs, or waits for a processor. It does not sleep.
    is_ready: bool,
    /// The processor time that the thread has used.
    ran: Duration,
}

/// Gives their usual priority to the watched threads that have work and got less than 4 % of a core since the last call,
/// until their work ends. Call this about once per second.
pub fn raise_starved() {
    let now = Instant::now();
    for watched in &mut *WATCHED.lock() {
        let Some(seen) = Seen::of_thread(watched.tid) else { continue };
        let is_raised = watched.is_to_be_raised(now, seen);
        if is_raised != watched.is_raised {
            let nice = if is_raised { watched.usual_nice } else { LOWEST_NICE };
            // On Linux the number of a thread means this thread alone. A kernel that refuses leaves the thread as it is.
            let set = rustix::process::setpriority_process(Some(watched.tid), nice);
            watched.is_raised = is_raised && set.is_ok();
        }
    }
}

impl Watched {
    /// `seen`: what is seen `now`. The thread must be ready at two looks, because a thread that has just begun has not run
    /// either.
    fn is_to_be_raised(&mut self, now: Instant, seen: Seen) -> bool {
        let Some((before, last)) = self.last.replace((now, seen)) else { return false };
        let ran = seen.ran.saturating_sub(last.ran);
        let is_starved = ran < now.duration_since(before).mul_f64(STARVED_SHARE);
        seen.is_ready && last.is_ready && (self.is_raised || is_starved)
    }
}

impl Seen {
    /// Looks at a thread. The kernel's figures about waits (`schedstat`) say nothing of a wait before it ends.
    fn of_thread(tid: Pid) -> Option<Seen> {
        let stat = Stat::read(&format!("/proc/self/task/{tid}/stat"))?;
        let ran = Duration::from_millis((stat.user + stat.system) * 1000 / TICKS_PER_S);
        Some(Seen { is_ready: stat.is_ready, ran })
    }
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
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_work_and_no_processor_is_raised_until_its_work_ends() {
        let tid = rustix::thread::gettid();
        let mut watched = Watched { tid, usual_nice: 0, last: None, is_raised: false };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        // Has just begun; starved twice; runs; sleeps; begins again; runs.
        let looks = [(true, 0), (true, 39), (true, 40), (true, 500), (false, 510), (true, 520), (true, 570)];
        let raised: Vec<bool> = (0..)
            .zip(looks)
            .map(|(at, (is_ready, ms))| {
                let seen = Seen { is_ready, ran: Duration::from_millis(ms) };
                watched.is_raised = watched.is_to_be_raised(start + second * at, seen);
                watched.is_raised
            })
            .collect();
        assert_eq!(raised, [false, true, true, true, false, false, false]);
    }

    #[test]
    fn a_thread_is_seen_and_watched_until_it_ends() {
        let thread = thread::Builder::new().name("a) R 1 2".into()).spawn(|| {
            let lowest = lowest_unless_starved();
            let tid = lowest.0;
            let is_watched = || WATCHED.lock().iter().any(|watched| watched.tid == tid);
            assert!(is_watched());
            while processor_time() < Duration::from_millis(50) {}
            let seen = Seen::of_thread(tid).expect("the thread is there");
            assert!(seen.is_ready && seen.ran >= Duration::from_millis(30), "{seen:?}");
            drop(lowest);
            assert!(!is_watched());
            tid
        });
        let tid = thread.expect("it starts").join().expect("the thread ends");
        assert!(Seen::of_thread(tid).is_none());
    }
}
