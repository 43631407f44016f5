//! Pauses of the machine's cores. On a shared host a guest's cores stop for 0.3 to 10 ms several times a second.
//! No counter shows this, because for the guest's kernel the current thread has run.
//!
//! A timer interrupt on each core, every [`TICK_NS`] at any load (Linux's `cpu-clock` through
//! `perf_event_open(2)`), notes the time. Missing ticks mean that the core took no interrupts ([`Gaps`]). A server
//! cannot cause that from user space, nor by a long system call, because the kernel disables interrupts only for
//! microseconds.
//!
//! The timer may also leave an idle core asleep, or wake it late. So during the measurement each core has a
//! thread of the scheduler's idle class ([`IdleSpinners`]), which gives way to every other thread at once, and the
//! core is never idle. (With these threads 199,000 ticks of 200,000 arrive, and the p99.9 of a quiet probe is
//! 0.12 ms. Without them 113,000 ticks arrive, and the p99.9 is 0.19 ms.)
//!
//! The timer needs the right to watch whole cores (root, or `kernel.perf_event_paranoid` of 0), and
//! util-linux's `chrt`.

use super::Result;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two ticks of a core.
const TICK_NS: u64 = 100_000;
/// When the time between two ticks is at least this long, the core paused between them.
const GAP_NS_MIN: u64 = TICK_NS * 5 / 2;
/// Size of the buffer that the kernel writes ticks into: room for the ticks of two seconds, at 24 bytes each.
const RING_BYTES: usize = 512 << 10;
/// The kernel's record type for a tick.
const SAMPLE: u32 = 9;

/// The pauses of some cores since the start.
pub(super) struct Pauses {
    cores: Vec<Core>,
    _awake: IdleSpinners,
}

impl Pauses {
    /// Starts the ticks of `cores`, and keeps the cores awake.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub(super) fn watch(cores: &[usize]) -> Result<Pauses> {
        let ticking = cores.iter().map(|core| Core::open(*core)).collect::<Result<_>>()?;
        Ok(Pauses { cores: ticking, _awake: IdleSpinners::keep(cores)? })
    }

    /// Drops the pauses that were noted so far.
    pub(super) fn mark(&mut self) {
        self.cores.iter_mut().for_each(|core| {
            core.read();
            core.pauses.clear();
        });
    }

    /// Time since `since_ns` (by [`now_ns`]) in which at least one core stood still.
    pub(super) fn since(&mut self, since_ns: u64) -> Duration {
        let mut pauses = Vec::new();
        for core in &mut self.cores {
            core.read();
            pauses.append(&mut core.pauses);
        }
        Duration::from_nanos(total_length_in(pauses, since_ns..now_ns()))
    }
}

/// The time now by the clock that stamps the ticks, in nanoseconds.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The tick buffer of one core.
struct Core {
    ticks: Sampler,
    gaps: Gaps,
    pauses: Vec<Range<u64>>,
}

impl Core {
    fn open(core: usize) -> Result<Core> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder.any_pid().one_cpu(core).include_kernel().sample_period(TICK_NS);
        builder.sample(SampleFlag::TIME).clockid(Clock::MONOTONIC);
        let mut ticks = builder.build()?.sampled(RING_BYTES)?;
        ticks.enable()?;
        Ok(Core { ticks, gaps: Gaps::default(), pauses: Vec::new() })
    }

    /// Reads the ticks since the last call.
    fn read(&mut self) {
        while let Some(record) = self.ticks.next_record() {
            let time: Option<[u8; 8]> =
                (record.ty() == SAMPLE).then(|| record.to_vec().try_into().ok()).flatten();
            match time {
                Some(time) => self.pauses.extend(self.gaps.tick(u64::from_ne_bytes(time))),
                None => self.gaps.mark_doubtful(),
            }
        }
    }
}

/// Finds missing ticks in the sequence of a core's ticks.
#[derive(Default)]
struct Gaps {
    last_ns: Option<u64>,
    /// True when ticks after the last one may be missing although the core did not pause, because the kernel dropped
    /// ticks.
    doubtful: bool,
}

impl Gaps {
    /// Adds a tick. Returns the pause before this tick, which starts when the first missing tick was due.
    fn tick(&mut self, at_ns: u64) -> Option<Range<u64>> {
        let last_ns = self.last_ns.replace(at_ns)?;
        let doubtful = std::mem::take(&mut self.doubtful);
        let is_gap = at_ns.saturating_sub(last_ns) >= GAP_NS_MIN && !doubtful;
        is_gap.then_some(last_ns + TICK_NS..at_ns)
    }
    /// Notes that the kernel may have dropped ticks before the next one.
    fn mark_doubtful(&mut self) {
        self.doubtful = true;
    }
}

/// Length of the part of `window` that lies in at least one of `ranges`.
fn total_length_in(mut ranges: Vec<Range<u64>>, window: Range<u64>) -> u64 {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut sum, mut from) = (0, window.start);
    for range in ranges {
        let (start, end) = (range.start.max(from), range.end.min(window.end));
        if start < end {
            sum += end - start;
            from = end;
        }
    }
    sum
}

/// One thread for each core that runs when no other thread does. Drop ends the threads.
struct IdleSpinners {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl IdleSpinners {
    fn keep(cores: &[usize]) -> Result<IdleSpinners> {
        let mut awake = IdleSpinners { ends: Arc::default(), threads: Vec::new() };
        for core in cores {
            let (mut only, ends) = (CpuSet::new(), awake.ends.clone());
            only.set(*core);
            let (say, said) = std::sync::mpsc::sync_channel(1);
            awake.threads.push(thread::Builder::new().name("awake".into()).spawn(move || {
                let settled = sched_setaffinity(None, &only).map_err(Into::into).and_then(|()| idle_class());
                let is_settled = settled.is_ok();
                if say.send(settled).is_ok() && is_settled {
                    while !ends.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            })?);
            said.recv()??;
        }
        Ok(awake)
    }
}

impl Drop for IdleSpinners {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // A thread of the scheduler's idle class runs, and so ends, as soon as this thread sleeps in `join`.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Puts the calling thread into the scheduler's idle class.
fn idle_class() -> Result<()> {
    let thread = gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("chrt: {}", String::from_utf8_lossy(&done.stderr).trim()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ticks_are_a_pause() {
        let mut gaps = Gaps::default();
        let mut at = |us: u64| gaps.tick(us * 1000);
        assert_eq!([at(0), at(100), at(201), at(449)], [None, None, None, None]);
        assert_eq!(at(1449), Some(549_000..1_449_000));
        assert_eq!(at(1549), None);
        gaps.mark_doubtful();
        assert_eq!(gaps.tick(9_000_000), None, "the kernel said that it leaves ticks out");
        assert_eq!(gaps.tick(10_000_000), Some(9_100_000..10_000_000));
    }

    #[test]
    fn simultaneous_pauses_of_both_cores_count_once() {
        assert_eq!(total_length_in(vec![], 0..100), 0);
        assert_eq!(total_length_in(vec![50..70, 10..30, 20..40], 0..100), 50);
        assert_eq!(total_length_in(vec![10..30, 12..20, 90..120], 15..100), 25);
        assert_eq!(total_length_in(vec![0..10, 200..300], 15..100), 0);
    }
}
