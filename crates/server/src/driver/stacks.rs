//! The stacks of threads in the program, taken while they run: for a report of a stuck worker, and for a bundle.
//!
//! The sampler of processor time has a signal handler that records the stack of the thread it runs on. This module
//! sends the signal to one thread after the other, by a descriptor of the thread. The kernel has these descriptors
//! since Linux 6.9. On older kernels there are no stacks, and the report says so. There is also no stack of a thread
//! that blocks the signal (the allocator's own) or that is in an uninterruptible call.

use super::profiles::Profiles;
use super::symbols::{NoNames, Symbols, on_names_thread};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use strand_diag::profile::Frame;
use strand_engine::STACK_BYTES;

/// Maximum number of threads whose stacks one call takes.
const THREADS_MAX: usize = 256;
/// Time to wait for the stack of one thread before the next thread is asked. A thread that waits for a processor may
/// need longer, so a thread without an answer is asked again after all others.
const THREAD_WAIT: Duration = Duration::from_millis(50);
/// Maximum time to wait for all stacks of a call.
const ALL_MAX: Duration = Duration::from_secs(2);
/// Time between two checks whether the handler has recorded a stack.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
/// The sampler also has a clock of processor time. One tick per second on it disturbs no thread.
const TICKS_HZ: i32 = 1;
/// Maximum number of functions of a stack in a log line. The innermost functions show what the thread does.
const LINE_FRAMES_MAX: usize = 16;
/// The handler's function. The frames up to this function, and the next frame, which returns from the handler, are not
/// the thread's own.
const HANDLER: &str = "perf_signal_handler";

/// The stack of each thread that answered: the functions, innermost first, by thread id.
pub type Stacks = HashMap<i32, Vec<Frame>>;

/// Why there are no stacks.
#[derive(Debug, thiserror::Error)]
pub enum StacksError {
    /// A profile of processor time is being taken. Stacks and profiles need the same signal handler.
    #[error("no stacks: a profile of processor time is being taken")]
    Sampled,
    /// The sampler does not start.
    #[error("there are no stacks of the program: {0}")]
    Sampler(pprof::Error),
    /// A thread cannot be asked for its stack.
    #[error("there are no stacks of the program: {0}")]
    Signal(io::Error),
    /// The names of the functions cannot be looked up.
    #[error(transparent)]
    Names(#[from] NoNames),
}

/// The stacks of these threads of the process. `at_once`: start the sampler on the calling thread, because the threads
/// may soon leave the state that is to be seen. The caller must not sample processor time at the same time.
///
/// # Errors
/// When the sampler does not start, or the kernel has no descriptors of threads.
pub fn take(threads: &[i32], at_once: bool) -> Result<Stacks, StacksError> {
    // Do not unwind from these libraries, because they contain the unwinder, which must not be entered while it is
    // interrupted. The C library is allowed: waiting threads are in it, and its tables are found without a lock.
    let builder = ProfilerGuardBuilder::default().frequency(TICKS_HZ).blocklist(&["libgcc", "vdso"]);
    // The sampler reads the tables of names when it starts.
    let guard = if at_once { builder.build() } else { on_names_thread(move || builder.build())? };
    let guard = guard.map_err(StacksError::Sampler)?;
    let mut found = Vec::new();
    let (mut seen, until) = (HashSet::new(), Instant::now() + ALL_MAX);
    let mut left: VecDeque<i32> = threads.iter().take(THREADS_MAX).copied().collect();
    while Instant::now() < until
        && let Some(tid) = left.pop_front()
    {
        match sample(&guard, tid, &mut seen) {
            Ok(Some(addresses)) => found.push((tid, addresses)),
            Ok(None) => left.push_back(tid),
            // Leave the thread out, because it has ended.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            Err(e) => return Err(StacksError::Signal(e)),
        }
    }
    Ok(on_names_thread(move || {
        drop(guard);
        let mut symbols = Symbols::default();
        found
            .into_iter()
            .map(|(tid, addresses)| (tid, without_handler_frames(symbols.frames(&addresses))))
            .collect()
    })?)
}

/// Sends the signal to the thread `tid`, and waits until the handler has recorded the stack. `seen`: the threads that
/// were recorded before. A record has the name of its thread and not its `tid`. So the name decides whether a record is
/// this thread's, and not the stack of another thread that answered late. Threads with equal names may be mistaken.
///
/// # Errors
/// `ESRCH` when there is no such thread, and any other error of the system calls.
fn sample(guard: &ProfilerGuard<'_>, tid: i32, seen: &mut HashSet<u64>) -> io::Result<Option<Vec<usize>>> {
    let pid = Pid::from_raw(tid).ok_or(rustix::io::Errno::SRCH)?;
    let descriptor = pidfd_open(pid, of_thread())?;
    let Some(name) = thread_name(tid) else { return Err(rustix::io::Errno::SRCH.into()) };
    let until = Instant::now() + THREAD_WAIT;
    while Instant::now() < until {
        // A handler that finds the record in use records nothing, so the signal is sent again.
        pidfd_send_signal(&descriptor, Signal::PROF)?;
        for _ in 0..8 {
            thread::sleep(CHECK_INTERVAL);
            let report = guard.report().build_unresolved().map_err(io::Error::other)?;
            let its = report.data.keys().find(|stack| {
                let is_its = stack.thread_name.get(..stack.thread_name_length) == Some(&name[..]);
                is_its && !seen.contains(&stack.thread_id)
            });
            if let Some(stack) = its {
                seen.insert(stack.thread_id);
                // The outermost function of a thread has the return address 0.
                let addresses = stack.frames.iter().map(|frame| frame.ip() as usize);
                return Ok(Some(addresses.filter(|at| *at != 0).collect()));
            }
        }
    }
    Ok(None)
}

/// The name of the thread `tid` of this process. `None` when the thread has ended.
fn thread_name(tid: i32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(name)
}

/// The kernel's flag PIDFD_THREAD, which has the value of O_EXCL. With this flag the descriptor refers to one thread.
fn of_thread() -> PidfdFlags {
    PidfdFlags::from_bits_retain(OFlags::EXCL.bits())
}

/// Removes the frames of the signal handler, so that the thread's own frames are left.
fn without_handler_frames(mut frames: Vec<Frame>) -> Vec<Frame> {
    if let Some(at) = frames.iter().rposition(|frame| frame.function.contains(HANDLER)) {
        frames.drain(..(at + 2).min(frames.len()));
    }
    frames
}

/// Where the thread `name` is, in the kernel and in the program, as text for a log line. Empty when there is no such
/// thread. Without `profiles` the text has no stack, and says why.
pub fn describe_thread(profiles: Option<&Profiles>, name: &str) -> String {
    let Some((tid, place)) = super::system::thread_place(name) else { return String::new() };
    let Some(profiles) = profiles else {
        return format!("{place}; no stack: too little memory is free for {} MiB", STACK_BYTES >> 20);
    };
    let stacks = profiles.stacks(&[tid], true);
    let stack = match stacks.as_ref().map(|all| all.get(&tid)) {
        Ok(Some(frames)) => {
            let names: Vec<&str> =
                frames.iter().take(LINE_FRAMES_MAX).map(|frame| frame.function.as_str()).collect();
            format!("its stack: {}", names.join(" < "))
        }
        Ok(None) => "the thread did not answer the signal that asks for its stack".into(),
        Err(why) => why.to_string(),
    };
    format!("{place}; {stack}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use strand_engine::ProfileRequest;

    #[inline(never)]
    fn a_function_that_waits(wait: &Receiver<()>) -> bool {
        wait.recv().is_err()
    }

    #[inline(never)]
    fn a_function_that_works(wait: &Receiver<()>) -> u64 {
        let mut x = 1u64;
        while wait.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            x = x.wrapping_mul(31).wrapping_add(7);
        }
        x
    }

    #[test]
    fn stacks_show_the_functions_of_waiting_and_working_threads() {
        let (sender, tids) = channel();
        let (wait_end, waits) = channel();
        let (work_end, works) = channel();
        let send_tid = |sender: &Sender<i32>| sender.send(rustix::thread::gettid().as_raw_nonzero().get());
        let named = |name: &str| thread::Builder::new().name(name.into());
        let second_sender = sender.clone();
        let waiting = named("stacks-waits").spawn(move || {
            send_tid(&sender).expect("the test listens");
            a_function_that_waits(&waits)
        });
        let working = named("stacks-works").spawn(move || {
            send_tid(&second_sender).expect("the test listens");
            a_function_that_works(&works)
        });
        let mut threads: Vec<i32> = tids.iter().take(2).collect();
        // Add a number that no thread has.
        threads.push(i32::MAX);
        let profiles = Profiles::default();
        let shows = |stacks: &Stacks, name: &str| {
            stacks.values().flatten().any(|frame| frame.function.contains(&format!("a_function_that_{name}")))
        };
        // The first signals may arrive before the threads have entered their functions.
        let stacks = (0..1_000).find_map(|_| match profiles.stacks(&threads, false) {
            Ok(stacks) if !shows(&stacks, "waits") || !shows(&stacks, "works") => None,
            done => Some(done),
        });
        let line = describe_thread(None, "stacks-works");
        assert!(
            line.contains("in state R") && line.contains("no stack: too little memory is free for 128 MiB"),
            "{line}"
        );
        let line = describe_thread(Some(&profiles), "stacks-works");
        drop((wait_end, work_end));
        waiting.map(|thread| thread.join()).expect("a thread").expect("it ends");
        working.map(|thread| thread.join()).expect("a thread").expect("it ends");
        if pidfd_open(rustix::thread::gettid(), of_thread()).is_err() {
            let why = stacks.expect("an answer").expect_err("the kernel is older").to_string();
            assert!(why.contains("no stacks of the program") && line.contains(&why), "{why} {line}");
            return;
        }
        let stacks =
            stacks.expect("both functions are found").expect("the kernel has descriptors of threads");
        assert!(!stacks.values().flatten().any(|frame| frame.function.contains(HANDLER)), "{stacks:?}");
        assert!(
            line.starts_with("; the thread is in state R") && line.contains("a_function_that_works"),
            "{line}"
        );
        assert_eq!(describe_thread(Some(&profiles), "no-such-thread"), "");
        // This is no separate test, because stacks and CPU profiles need the same signal handler.
        let id = profiles.take(ProfileRequest::CpuStart { seconds: 1 }).expect("no other profile is taken");
        let why = profiles.stacks(&threads, false).expect_err("it is busy");
        assert!(matches!(why, StacksError::Sampled), "{why}");
        let id = String::from_utf8(id).expect("a number").parse().expect("a number");
        assert!(profiles.take(ProfileRequest::CpuStop { id, folded: true }).is_ok());
    }
}
