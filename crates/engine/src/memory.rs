//! Memory accounting: the memory of each [`Purpose`], and the limit `maxmemory`.
//!
//! As in Redis, the limit applies to the bytes that the program uses. What the allocator keeps ready for each thread does
//! not count (nor in Redis), and buffers of the network that wait for bytes do not: a small limit would be used up by
//! them. Reading the number costs about 25 us with the arenas of two cores, and more with more cores. Only
//! [`Memory::record_sample`] reads it, on a background thread, every few milliseconds when the limit is near. Between two
//! samples the sum of the data tells the growth: `used = used then + (data now - data then)`. A write compares two
//! numbers. Memory outside that sum (buffers, indexes) counts at the next sample.

use crate::MemoryFacts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Over the limit, spare blocks of the network buffers are freed at this interval. A busy server soon needs them again.
const BLOCKS_FREED_EVERY_US: u64 = 100_000;

/// The error of a command that may need memory when none is left.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The purpose of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Keys, values and the tables they are in.
    Data,
    /// Text indexes.
    Indexes,
    /// Trigram indexes.
    Trigrams,
    /// Compiled regular expressions and the caches of their searches.
    Regexes,
    /// Requests and replies of the clients, without replicas.
    Clients,
    /// The backlog, and what waits for replicas.
    Replication,
    /// Arguments and replies of commands on helper threads, drafts of scripts, and what running text searches need.
    Jobs,
    /// Interpreters of scripts and what they hold.
    Scripts,
    /// Deleted values that a helper thread has yet to free.
    Garbage,
    /// Changes that are not yet in the append-only file.
    Journal,
    /// Records kept for a snapshot because a write came before the saver.
    Snapshots,
    /// History figures.
    History,
    /// Histograms of commands.
    Statistics,
    /// Profiles, stacks, and what the profiler keeps.
    Profiler,
    /// The memory of the process when it was ready, before any data.
    Startup,
}

impl Purpose {
    /// All purposes, in the order of their numbers.
    pub(crate) const ALL: [Purpose; PURPOSES] = [
        Purpose::Data,
        Purpose::Indexes,
        Purpose::Trigrams,
        Purpose::Regexes,
        Purpose::Clients,
        Purpose::Replication,
        Purpose::Jobs,
        Purpose::Scripts,
        Purpose::Garbage,
        Purpose::Journal,
        Purpose::Snapshots,
        Purpose::History,
        Purpose::Statistics,
        Purpose::Profiler,
        Purpose::Startup,
    ];
    /// The description for users.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Purpose::Data => "keys, values and their tables",
            Purpose::Indexes => "text indexes",
            Purpose::Trigrams => "trigram indexes of RX.INDEX",
            Purpose::Regexes => "compiled regular expressions and the caches of their searches",
            Purpose::Clients => "requests and replies of clients",
            Purpose::Replication => "the backlog, and the stream that waits for replicas",
            Purpose::Jobs => {
                "arguments and replies of long commands, copies that long scripts change, and what running text searches need"
            }
            Purpose::Scripts => "interpreters and scripts",
            Purpose::Garbage => "deleted values that are being freed",
            Purpose::Journal => "changes on their way to the append-only file",
            Purpose::Snapshots => "records kept for a snapshot that is being written",
            Purpose::History => "figures over time",
            Purpose::Statistics => "histograms of commands",
            Purpose::Profiler => {
                "profiles and stacks of the program, and what the profiler keeps after the first one"
            }
            Purpose::Startup => "what the process needs to start",
        }
    }
    /// The name in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Data => "data",
            Purpose::Indexes => "indexes",
            Purpose::Trigrams => "trigrams",
            Purpose::Regexes => "regexes",
            Purpose::Clients => "clients",
            Purpose::Replication => "replication",
            Purpose::Jobs => "jobs",
            Purpose::Scripts => "scripts",
            Purpose::Garbage => "garbage",
            Purpose::Journal => "journal",
            Purpose::Snapshots => "snapshots",
            Purpose::History => "history",
            Purpose::Statistics => "statistics",
            Purpose::Profiler => "profiler",
            Purpose::Startup => "startup",
        }
    }
}

/// Number of [`Purpose`]s.
pub(crate) const PURPOSES: usize = Purpose::Startup as usize + 1;

/// All memory in use, by purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    pub(crate) facts: MemoryFacts,
    pub(crate) shares: Shares,
}

impl Ledger {
    /// Bytes held for the purpose.
    pub(crate) fn share(&self, purpose: Purpose) -> u64 {
        self.shares[purpose as usize]
    }
    /// Bytes that no purpose explains: rounding of the allocator and small objects. Negative when more is counted
    /// than given out, because the two are not read at one moment.
    pub(crate) fn other_bytes(&self) -> i64 {
        self.facts.used_bytes as i64 - self.shares.iter().sum::<u64>() as i64
    }
}

/// Bytes by purpose.
pub(crate) type Shares = [u64; PURPOSES];

/// The limit, and the figures of the last sample.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The effective limit: the lesser of the next two. 0: no limit.
    limit_bytes: AtomicU64,
    /// `maxmemory`. 0: none.
    configured_bytes: AtomicU64,
    /// The limit while the system is about to run out of memory, else 0.
    ceiling_bytes: AtomicU64,
    /// The limit until the next sample of the system, so that the data does not fill the control group before. 0: none.
    group_bytes: AtomicU64,
    /// True when the next sample of the system will raise `group_bytes`, because the group has free memory.
    group_has_more: AtomicBool,
    /// True when `group_bytes` leaves less room for data than the other limits, by the last sample of the memory in use.
    group_is_tighter: AtomicBool,
    /// The least of all limits. 0: none.
    enforced_bytes: AtomicU64,
    /// True while clients are slowed or checked, see [`crate::headroom`].
    has_slowed_clients: AtomicBool,
    /// True while a limit is set, or clients are slowed.
    is_watched: AtomicBool,
    /// The data size at which the limit is reached. Negative: the server would be over the limit without any data.
    data_bytes_max: AtomicI64,
    /// Bytes over the limit because the limit was lowered: the least excess that a sample has shown since then.
    lowered_excess_bytes: AtomicU64,
    /// The time of the last sample, on the clock of [`crate::Now::mono_us`].
    pub(crate) sampled_us: AtomicU64,
    /// The time at which spare blocks were freed last, on the same clock.
    blocks_freed_us: AtomicU64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    startup_bytes: AtomicU64,
    /// Bytes of clients that were closed when `maxmemory-clients` was checked last.
    pub(crate) leaving_bytes: AtomicU64,
    /// Bytes of drafts ([`DraftCharge`]).
    pub(crate) drafts_bytes: AtomicU64,
    /// Bytes of the purposes that are counted by [`Charge`]s.
    charged: [AtomicU64; PURPOSES],
    /// Values that a helper thread has yet to free, and values that it has freed.
    pending_values: AtomicU64,
    freed_values: AtomicU64,
    /// Start of the time over the limit, on the clock of [`crate::Now::mono_us`]. 0 when under the limit.
    over_since_us: AtomicU64,
    /// Total time over the limit before `over_since_us`.
    over_us: AtomicU64,
}

impl Memory {
    pub(crate) fn new(startup_bytes: u64) -> Memory {
        Memory {
            limit_bytes: 0.into(),
            configured_bytes: 0.into(),
            ceiling_bytes: 0.into(),
            group_bytes: 0.into(),
            group_has_more: false.into(),
            group_is_tighter: false.into(),
            enforced_bytes: 0.into(),
            has_slowed_clients: false.into(),
            is_watched: false.into(),
            data_bytes_max: i64::MAX.into(),
            lowered_excess_bytes: 0.into(),
            sampled_us: 0.into(),
            blocks_freed_us: 0.into(),
            used_bytes: startup_bytes.into(),
            peak_bytes: startup_bytes.into(),
            startup_bytes: startup_bytes.into(),
            leaving_bytes: 0.into(),
            drafts_bytes: 0.into(),
            charged: Default::default(),
            pending_values: 0.into(),
            freed_values: 0.into(),
            over_since_us: 0.into(),
            over_us: 0.into(),
        }
    }
    /// True while a limit is set.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.enforced_bytes() != 0
    }
    /// The limit that counts for commands: [`Memory::limit_bytes`] or that of [`Memory::set_group_limit`], the lesser. 0: none.
    #[inline]
    pub(crate) fn enforced_bytes(&self) -> u64 {
        self.enforced_bytes.load(Relaxed)
    }
    /// True while commands that may need memory must pass a gate: a limit is set, or clients are slowed.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }
    /// Starts or stops the slowing and checking of clients.
    pub(crate) fn watch(&self, on: bool) {
        self.has_slowed_clients.store(on, Relaxed);
        self.choose_limit();
    }
    /// `maxmemory` or the ceiling, the lesser. 0: no limit.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }
    /// `maxmemory`. 0: none.
    pub(crate) fn configured_bytes(&self) -> u64 {
        self.configured_bytes.load(Relaxed)
    }
    /// The limit while the system has no more memory, else 0.
    pub(crate) fn ceiling_bytes(&self) -> u64 {
        self.ceiling_bytes.load(Relaxed)
    }
    /// Sets `maxmemory`. Call [`Memory::record_sample`] afterwards.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.configured_bytes.store(bytes, Relaxed);
        self.choose_limit();
    }
    /// Sets or removes the ceiling. Call [`Memory::record_sample`] afterwards.
    pub(crate) fn set_ceiling(&self, bytes: u64) {
        self.ceiling_bytes.store(bytes, Relaxed);
        self.choose_limit();
    }
    /// Sets or removes the limit until the next sample of the system. `has_more`: that sample will raise the limit. Returns
    /// true when the limit is another one than before. Then call [`Memory::record_sample`].
    pub(crate) fn set_group_limit(&self, bytes: u64, has_more: bool) -> bool {
        self.group_has_more.store(has_more, Relaxed);
        let is_new = self.group_bytes.swap(bytes, Relaxed) != bytes;
        if is_new {
            self.choose_limit();
        }
        is_new
    }
    /// True when only the limit until the next sample of the system stops the data, and that sample will raise the limit.
    /// Writers wait for the sample. They are not refused, and no key is evicted.
    pub(crate) fn is_limit_passing(&self) -> bool {
        self.group_has_more.load(Relaxed) && self.group_is_tighter.load(Relaxed)
    }
    fn choose_limit(&self) {
        let least_of = |limits: [u64; 2]| limits.into_iter().filter(|bytes| *bytes > 0).min();
        let limit = least_of([self.configured_bytes(), self.ceiling_bytes()]).unwrap_or(0);
        self.limit_bytes.store(limit, Relaxed);
        let least = least_of([limit, self.group_bytes.load(Relaxed)]);
        let former = self.enforced_bytes.swap(least.unwrap_or(0), Relaxed);
        if least.is_some_and(|bytes| former == 0 || bytes < former) {
            // The next sample shows how much memory is over the new limit.
            self.lowered_excess_bytes.store(u64::MAX, Relaxed);
        }
        self.is_watched.store(least.is_some() || self.has_slowed_clients.load(Relaxed), Relaxed);
    }
    /// Bytes over the limit when the data has `data_bytes`.
    #[inline]
    pub(crate) fn over_bytes(&self, data_bytes: u64) -> u64 {
        (data_bytes as i64).saturating_sub(self.data_bytes_max.load(Relaxed)).max(0) as u64
    }
    /// Bytes over the limit because the limit was lowered, and not because the data has grown. Eviction takes them away.
    /// Until then no writer waits for these bytes: the eviction of gigabytes takes seconds.
    pub(crate) fn lowered_excess_bytes(&self) -> u64 {
        self.lowered_excess_bytes.load(Relaxed)
    }
    /// Bytes below the limit when the data has `data_bytes`.
    pub(crate) fn spare_bytes(&self, data_bytes: u64) -> i64 {
        self.data_bytes_max.load(Relaxed).saturating_sub(data_bytes as i64).max(0)
    }
    /// Records the bytes that were in use when the data had `data_bytes`. `uncounted_bytes` of them do not count
    /// against `maxmemory`: nothing is evicted for them. `garbage_bytes` of these are free in a moment. The kernel counts
    /// all the others, so they count against the limit until the next sample of the system.
    pub(crate) fn record_sample(
        &self,
        used_bytes: u64,
        data_bytes: u64,
        uncounted_bytes: u64,
        garbage_bytes: u64,
    ) {
        self.used_bytes.store(used_bytes, Relaxed);
        self.peak_bytes.fetch_max(used_bytes, Relaxed);
        let max_of = |limit: u64, not_counted: u64| match limit {
            0 => i64::MAX,
            limit => {
                let kept = used_bytes.saturating_sub(not_counted);
                (limit.min(i64::MAX as u64) as i64).saturating_add(data_bytes as i64 - kept as i64)
            }
        };
        let own_max = max_of(self.limit_bytes(), uncounted_bytes);
        let group_max = max_of(self.group_bytes.load(Relaxed), garbage_bytes);
        self.group_is_tighter.store(group_max < own_max, Relaxed);
        self.data_bytes_max.store(own_max.min(group_max), Relaxed);
        self.lowered_excess_bytes.fetch_min(self.over_bytes(data_bytes), Relaxed);
    }
    /// True when the spare blocks of the network buffers were not freed for a while. Then call this again after
    /// [`BLOCKS_FREED_EVERY_US`] at the earliest.
    pub(crate) fn may_free_blocks(&self, now_us: u64) -> bool {
        let freed_us = self.blocks_freed_us.load(Relaxed);
        let may = now_us >= freed_us + BLOCKS_FREED_EVERY_US;
        if may {
            self.blocks_freed_us.store(now_us, Relaxed);
        }
        may
    }
    /// Counts the time over the limit.
    pub(crate) fn count_time(&self, over: bool, now_us: u64) {
        let since = self.over_since_us.load(Relaxed);
        match over {
            true if since == 0 => self.over_since_us.store(now_us.max(1), Relaxed),
            false if since != 0 => {
                self.over_us.fetch_add(now_us.saturating_sub(since), Relaxed);
                self.over_since_us.store(0, Relaxed);
            }
            _ => {}
        }
    }
    /// Time over the limit in microseconds: in total, and since the limit was last passed.
    pub(crate) fn over_us(&self, now_us: u64) -> (u64, u64) {
        let current = match self.over_since_us.load(Relaxed) {
            0 => 0,
            since => now_us.saturating_sub(since),
        };
        (self.over_us.load(Relaxed) + current, current)
    }
    /// CONFIG RESETSTAT.
    pub(crate) fn reset_stat(&self) {
        self.over_us.store(0, Relaxed);
        self.over_since_us.store(0, Relaxed);
        self.freed_values.store(0, Relaxed);
    }
    /// Values that a helper thread has yet to free, and values that it has freed.
    pub(crate) fn lazily_freed(&self) -> (u64, u64) {
        (self.pending_values.load(Relaxed), self.freed_values.load(Relaxed))
    }
    /// Bytes in use at the last sample.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }
    /// The peak, including the value `now_bytes`.
    pub(crate) fn peak_bytes(&self, now_bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(now_bytes, Relaxed).max(now_bytes)
    }
    /// Records the memory of the ready process before it has data.
    pub(crate) fn record_startup(&self, bytes: u64) {
        self.startup_bytes.store(bytes, Relaxed);
    }
    /// Bytes in use when the server was ready.
    pub(crate) fn startup_bytes(&self) -> u64 {
        self.startup_bytes.load(Relaxed)
    }
    /// Bytes held by the charges of a purpose.
    pub(crate) fn charged(&self, purpose: Purpose) -> u64 {
        self.charged[purpose as usize].load(Relaxed)
    }
}

/// Counts bytes for a purpose until this value is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    purpose: Purpose,
    bytes: u64,
    /// The number of values that the drop counts as freed.
    values: u64,
}

impl Charge {
    pub(crate) fn new(memory: &Arc<Memory>, purpose: Purpose, bytes: u64) -> Charge {
        memory.charged[purpose as usize].fetch_add(bytes, Relaxed);
        Charge { memory: memory.clone(), purpose, bytes, values: 0 }
    }
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
    /// A charge for `values` values that a helper thread frees.
    pub(crate) fn garbage(memory: &Arc<Memory>, bytes: u64, values: u64) -> Charge {
        memory.pending_values.fetch_add(values, Relaxed);
        let mut charge = Charge::new(memory, Purpose::Garbage, bytes);
        charge.values = values;
        charge
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.pending_values.fetch_sub(self.values, Relaxed);
        self.memory.freed_values.fetch_add(self.values, Relaxed);
        self.memory.charged[self.purpose as usize].fetch_sub(self.bytes, Relaxed);
    }
}

/// Counts the bytes of a draft for [`Purpose::Jobs`]. They do not count against the limit, because no key must be evicted
/// for copies that are gone soon.
#[derive(Debug)]
pub(crate) struct DraftCharge(Charge);

impl DraftCharge {
    pub(crate) fn new(memory: &Arc<Memory>, bytes: u64) -> DraftCharge {
        memory.drafts_bytes.fetch_add(bytes, Relaxed);
        DraftCharge(Charge::new(memory, Purpose::Jobs, bytes))
    }
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Drop for DraftCharge {
    fn drop(&mut self) {
        self.0.memory.drafts_bytes.fetch_sub(self.0.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_samples_the_data_size_shows_the_growth() {
        let memory = Memory::new(100);
        memory.record_sample(1 << 40, 5, 0, 0);
        assert_eq!((memory.over_bytes(1 << 40), memory.peak_bytes(0)), (0, 1 << 40), "no limit");
        memory.set_limit(1000);
        memory.record_sample(900, 500, 0, 0);
        assert_eq!([500, 600, 601, 700].map(|data| memory.over_bytes(data)), [0, 0, 1, 100]);
        // Other memory grew, so less is left for the data.
        memory.record_sample(1200, 550, 0, 0);
        assert_eq!([300, 350, 550].map(|data| memory.over_bytes(data)), [0, 0, 200]);
        // Freeing all data would not be enough.
        memory.record_sample(5000, 550, 0, 0);
        assert_eq!([0, 550].map(|data| memory.over_bytes(data)), [3450, 4000]);
        memory.set_limit(u64::MAX);
        memory.record_sample(5000, 550, 0, 0);
        assert_eq!(memory.over_bytes(1 << 40), 0);
    }

    #[test]
    fn the_excess_of_a_lowered_limit_only_falls() {
        let memory = Memory::new(0);
        memory.set_limit(1000);
        memory.record_sample(900, 900, 0, 0);
        memory.record_sample(1100, 1100, 0, 0);
        assert_eq!(memory.lowered_excess_bytes(), 0, "the data has grown");
        memory.set_limit(100);
        let excesses = [1100, 800, 900, 90, 300].map(|bytes| {
            memory.record_sample(bytes, bytes, 0, 0);
            memory.lowered_excess_bytes()
        });
        assert_eq!(excesses, [1000, 700, 700, 0, 0]);
        memory.set_limit(200);
        memory.record_sample(300, 300, 0, 0);
        assert_eq!(memory.lowered_excess_bytes(), 0, "the limit was raised");
    }

    /// What eviction does not free is memory, too, and the kernel counts it.
    #[test]
    fn the_limit_of_a_group_counts_what_maxmemory_does_not() {
        let memory = Memory::new(0);
        memory.set_limit(1000);
        memory.set_group_limit(1000, true);
        memory.record_sample(900, 500, 300, 100);
        assert_eq!(
            [700, 701].map(|data| memory.over_bytes(data)),
            [0, 1],
            "of 900 bytes, 100 are free in a moment"
        );
        assert!(memory.is_limit_passing());
        memory.set_group_limit(2000, true);
        memory.record_sample(900, 500, 300, 100);
        assert_eq!([900, 901].map(|data| memory.over_bytes(data)), [0, 1], "maxmemory is tighter");
        assert!(!memory.is_limit_passing());
    }

    #[test]
    fn garbage_counts_as_free_memory() {
        let memory = Arc::new(Memory::new(0));
        memory.set_limit(1000);
        memory.record_sample(1500, 800, 600, 0);
        assert_eq!(memory.over_bytes(800), 0);
        memory.record_sample(1500, 800, 0, 0);
        assert_eq!(memory.over_bytes(800), 500);
        let charge = Charge::garbage(&memory, 600, 2);
        assert_eq!((memory.charged(Purpose::Garbage), memory.lazily_freed()), (600, (2, 0)));
        drop(charge);
        assert_eq!((memory.charged(Purpose::Garbage), memory.lazily_freed()), (0, (0, 2)));
    }

    #[test]
    fn the_time_over_the_limit_adds_up() {
        let memory = Memory::new(0);
        for (over, now_us) in [(false, 5), (true, 10), (true, 20), (false, 30), (true, 100)] {
            memory.count_time(over, now_us);
        }
        assert_eq!(memory.over_us(140), (60, 40));
        memory.reset_stat();
        assert_eq!(memory.over_us(150), (0, 0));
        memory.count_time(true, 160);
        assert_eq!(memory.over_us(170), (10, 10));
    }
}
