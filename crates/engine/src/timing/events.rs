//! [`Events`]: events longer than `latency-monitor-threshold`. Keeps the newest samples of each kind, at most one per second.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Samples kept for each kind, as in redis-server.
pub(crate) const SAMPLES_MAX: usize = 160;

/// The kinds of latency events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A command without the FAST flag.
    Command,
    /// A command with the FAST flag.
    FastCommand,
    /// A command's wait for a helper thread.
    CommandQueued,
    /// A command's wait for another cause: a shard, a pause, memory.
    CommandParked,
    /// A slice of active expiry.
    ExpireCycle,
    /// Eviction to make room under `maxmemory`.
    EvictionCycle,
    /// A write to the append-only file. The next three kinds are counted as this kind, too.
    AofWrite,
    /// A write to the append-only file while neither a sync nor a snapshot nor a rewrite ran.
    AofWriteAlone,
    /// A write to the append-only file during a sync.
    AofWritePendingFsync,
    /// A write to the append-only file during a snapshot or a rewrite.
    AofWriteActiveChild,
    /// A sync of `appendfsync always`.
    AofFsyncAlways,
}

impl Event {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Event; 11] = [
        Event::Command,
        Event::FastCommand,
        Event::CommandQueued,
        Event::CommandParked,
        Event::ExpireCycle,
        Event::EvictionCycle,
        Event::AofWrite,
        Event::AofWriteAlone,
        Event::AofWritePendingFsync,
        Event::AofWriteActiveChild,
        Event::AofFsyncAlways,
    ];

    /// The name of the kind in LATENCY's replies.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Event::Command => "command",
            Event::FastCommand => "fast-command",
            Event::CommandQueued => "command-queued",
            Event::CommandParked => "command-parked",
            Event::ExpireCycle => "expire-cycle",
            Event::EvictionCycle => "eviction-cycle",
            Event::AofWrite => "aof-write",
            Event::AofWriteAlone => "aof-write-alone",
            Event::AofWritePendingFsync => "aof-write-pending-fsync",
            Event::AofWriteActiveChild => "aof-write-active-child",
            Event::AofFsyncAlways => "aof-fsync-always",
        }
    }
    /// The kind with this name.
    pub(crate) fn named(name: &[u8]) -> Option<Event> {
        Event::ALL.into_iter().find(|event| event.name().as_bytes() == name)
    }
}

/// One sample: when an event ended, and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) unix_s: i64,
    pub(crate) took_ms: u64,
}

/// The samples of one kind of event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// The samples, the oldest first. Never empty.
    pub(crate) samples: VecDeque<Sample>,
    /// The longest duration since the last LATENCY RESET, in milliseconds.
    pub(crate) most_ms: u64,
}

/// The samples of all kinds of events.
#[derive(Default)]
pub(crate) struct Events {
    series: Mutex<[Option<Series>; Event::ALL.len()]>,
    /// The option `latency-monitor-threshold`. 0: never.
    threshold_ms: AtomicU64,
}

impl Events {
    pub(crate) fn set_threshold_ms(&self, threshold_ms: u64) {
        self.threshold_ms.store(threshold_ms, Relaxed);
    }
    pub(crate) fn threshold_ms(&self) -> u64 {
        self.threshold_ms.load(Relaxed)
    }
    /// Records an event that took `took_us` and ended at `unix_s`, if it is over the threshold.
    #[inline]
    pub(crate) fn note(&self, event: Event, took_us: u64, unix_s: i64) {
        let threshold_ms = self.threshold_ms.load(Relaxed);
        if threshold_ms > 0 && took_us / 1000 >= threshold_ms {
            self.keep(event, Sample { unix_s, took_ms: took_us / 1000 });
        }
    }
    #[cold]
    fn keep(&self, event: Event, sample: Sample) {
        let mut all = self.series.lock();
        let series = all[event as usize].get_or_insert_default();
        series.most_ms = series.most_ms.max(sample.took_ms);
        match series.samples.back_mut() {
            // Of each second, keep only the longest sample.
            Some(last) if last.unix_s == sample.unix_s => last.took_ms = last.took_ms.max(sample.took_ms),
            _ => {
                if series.samples.len() == SAMPLES_MAX {
                    series.samples.pop_front();
                }
                series.samples.push_back(sample);
            }
        }
    }
    /// The samples of one kind of event.
    pub(crate) fn of(&self, event: Event) -> Option<Series> {
        self.series.lock()[event as usize].clone()
    }
    /// Removes the samples of a kind. True when the kind had samples.
    pub(crate) fn reset(&self, event: Event) -> bool {
        self.series.lock()[event as usize].take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_event_of_each_second_and_the_newest_seconds_are_kept() {
        let events = Events::default();
        events.note(Event::Command, 1_000_000, 1);
        assert!(events.of(Event::Command).is_none(), "nothing is long while there is no threshold");
        events.set_threshold_ms(10);
        for (took_us, unix_s) in [(9_999, 1), (10_000, 1), (30_999, 1), (20_000, 1), (11_000, 2)] {
            events.note(Event::Command, took_us, unix_s);
        }
        let series = events.of(Event::Command).expect("some were long");
        let samples: Vec<_> = series.samples.iter().map(|s| (s.unix_s, s.took_ms)).collect();
        assert_eq!((samples, series.most_ms), (vec![(1, 30), (2, 11)], 30));
        (3..200).for_each(|s| events.note(Event::Command, 12_000, s));
        let series = events.of(Event::Command).expect("they are there");
        assert_eq!((series.samples.len(), series.samples[0].unix_s, series.most_ms), (SAMPLES_MAX, 40, 30));
        assert!(events.reset(Event::Command) && !events.reset(Event::Command));
        assert!(Event::ALL.into_iter().all(|e| Event::named(e.name().as_bytes()) == Some(e)));
    }
}
