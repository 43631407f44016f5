//! Where the memory is, by [`Purpose`], and how much of it there may be: `maxmemory`.
//!
//! Against the limit counts what the allocator has given out, as in Redis. To ask it costs some 25 us with the arenas of
//! two cores and more with more, so only [`Memory::look`] does, on a background thread, every few milliseconds where the
//! limit is near. In between the data's own sum tells what was added: `used = allocated then + (data now - data then)`.
//! So a write compares two numbers, and whatever the data's sum does not see (buffers, indexes) counts at the next look.

use crate::MemoryFacts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The error of a command that may need memory when there is none.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Keys, values and the tables they are in.
    Data,
    /// Text indexes.
    Indexes,
    /// Requests and replies of the clients.
    Clients,
    /// Arguments and replies of commands on helper threads.
    Jobs,
    /// Interpreters of scripts and what they hold.
    Scripts,
    /// What is kept only to be fast.
    Caches,
    /// Deleted values that a helper thread has not freed yet.
    Garbage,
    /// Changes that are on their way to the append-only file.
    Journal,
    /// What a snapshot has kept of records that were written before their turn.
    Snapshots,
    /// Figures over time.
    History,
    /// Histograms of commands.
    Statistics,
    /// What the process held when it was ready, before any data.
    Startup,
}

impl Purpose {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Purpose; PURPOSES] = [
        Purpose::Data,
        Purpose::Indexes,
        Purpose::Clients,
        Purpose::Jobs,
        Purpose::Scripts,
        Purpose::Caches,
        Purpose::Garbage,
        Purpose::Journal,
        Purpose::Snapshots,
        Purpose::History,
        Purpose::Statistics,
        Purpose::Startup,
    ];
    /// What it is, for readers.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Purpose::Data => "keys, values and their tables",
            Purpose::Indexes => "text indexes and trigrams",
            Purpose::Clients => "requests and replies of clients",
            Purpose::Jobs => "arguments and replies of long commands",
            Purpose::Scripts => "interpreters and scripts",
            Purpose::Caches => "pattern caches and spare blocks, given up under pressure",
            Purpose::Garbage => "deleted values that are being freed",
            Purpose::Journal => "changes on their way to the append-only file",
            Purpose::Snapshots => "records kept for a snapshot that is being written",
            Purpose::History => "figures over time",
            Purpose::Statistics => "histograms of commands",
            Purpose::Startup => "what the process needs to start",
        }
    }
    /// The name, as figures have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Data => "data",
            Purpose::Indexes => "indexes",
            Purpose::Clients => "clients",
            Purpose::Jobs => "jobs",
            Purpose::Scripts => "scripts",
            Purpose::Caches => "caches",
            Purpose::Garbage => "garbage",
            Purpose::Journal => "journal",
            Purpose::Snapshots => "snapshots",
            Purpose::History => "history",
            Purpose::Statistics => "statistics",
            Purpose::Startup => "startup",
        }
    }
}

/// Number of [`Purpose`]s.
pub(crate) const PURPOSES: usize = Purpose::Startup as usize + 1;

/// Where all the memory is that the allocator has given out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    pub(crate) facts: MemoryFacts,
    pub(crate) shares: Shares,
}

impl Ledger {
    /// Bytes held for a purpose.
    pub(crate) fn share(&self, purpose: Purpose) -> u64 {
        self.shares[purpose as usize]
    }
    /// What no purpose explains: what the allocator rounds up, and small things. Negative: more is counted than was given
    /// out, as what is counted and what is given out are not read in one moment.
    pub(crate) fn other_bytes(&self) -> i64 {
        self.facts.used_bytes as i64 - self.shares.iter().sum::<u64>() as i64
    }
}

/// Bytes by purpose.
pub(crate) type Shares = [u64; PURPOSES];

/// The limit, and what was seen at the last look.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What may be used: the lesser of the two below; 0 is no limit.
    limit_bytes: AtomicU64,
    /// `maxmemory`; 0 is none.
    configured_bytes: AtomicU64,
    /// What may be used while the system is about to run out of memory; 0 otherwise.
    ceiling_bytes: AtomicU64,
    /// Clients are slowed or looked at, see [`crate::headroom`].
    is_paced: AtomicBool,
    /// There is a limit, or clients are slowed.
    is_watched: AtomicBool,
    /// The data may grow to this until the limit is reached. Negative: even without any data it would be over.
    data_bytes_max: AtomicI64,
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    startup_bytes: AtomicU64,
    /// Of the purposes that are counted by [`Charge`]s.
    charged: [AtomicU64; PURPOSES],
    /// Values that a helper thread is to free, and those that it has freed.
    pending_values: AtomicU64,
    freed_values: AtomicU64,
    /// Since when it has been over the limit, on the clock of [`crate::Now::mono_us`]; 0 when it is not.
    over_since_us: AtomicU64,
    /// How long it was over the limit in all, before that.
    over_us: AtomicU64,
}

impl Memory {
    pub(crate) fn new(startup_bytes: u64) -> Memory {
        Memory {
            limit_bytes: 0.into(),
            configured_bytes: 0.into(),
            ceiling_bytes: 0.into(),
            is_paced: false.into(),
            is_watched: false.into(),
            data_bytes_max: i64::MAX.into(),
            used_bytes: startup_bytes.into(),
            peak_bytes: startup_bytes.into(),
            startup_bytes: startup_bytes.into(),
            charged: Default::default(),
            pending_values: 0.into(),
            freed_values: 0.into(),
            over_since_us: 0.into(),
            over_us: 0.into(),
        }
    }
    /// True while there is a limit.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit_bytes.load(Relaxed) != 0
    }
    /// True while commands that may need memory must pass a gate: for a limit, or because clients are slowed.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }
    /// Clients are slowed, or looked at, from now on, or no more.
    pub(crate) fn watch(&self, on: bool) {
        self.is_paced.store(on, Relaxed);
        self.choose_limit();
    }
    /// `maxmemory`, or the ceiling where that is less; 0 is no limit.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }
    /// `maxmemory`; 0 is none.
    pub(crate) fn configured_bytes(&self) -> u64 {
        self.configured_bytes.load(Relaxed)
    }
    /// What may be used for as long as the system has no more; 0 otherwise.
    pub(crate) fn ceiling_bytes(&self) -> u64 {
        self.ceiling_bytes.load(Relaxed)
    }
    /// Sets `maxmemory`; a look must follow.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.configured_bytes.store(bytes, Relaxed);
        self.choose_limit();
    }
    /// Sets or removes the ceiling; a look must follow.
    pub(crate) fn set_ceiling(&self, bytes: u64) {
        self.ceiling_bytes.store(bytes, Relaxed);
        self.choose_limit();
    }
    fn choose_limit(&self) {
        let limits = [self.configured_bytes(), self.ceiling_bytes()];
        let least = limits.into_iter().filter(|bytes| *bytes > 0).min();
        self.limit_bytes.store(least.unwrap_or(0), Relaxed);
        self.is_watched.store(least.is_some() || self.is_paced.load(Relaxed), Relaxed);
    }
    /// How far over the limit it is while the data is `data_bytes`.
    #[inline]
    pub(crate) fn over_bytes(&self, data_bytes: u64) -> u64 {
        (data_bytes as i64).saturating_sub(self.data_bytes_max.load(Relaxed)).max(0) as u64
    }
    /// How far below the limit it is.
    pub(crate) fn spare_bytes(&self, data_bytes: u64) -> i64 {
        self.data_bytes_max.load(Relaxed).saturating_sub(data_bytes as i64).max(0)
    }
    /// Takes note of what the allocator has given out while the data was `data_bytes`, and so much of the rest garbage.
    pub(crate) fn look(&self, allocated_bytes: u64, data_bytes: u64, garbage_bytes: u64) {
        self.used_bytes.store(allocated_bytes, Relaxed);
        self.peak_bytes.fetch_max(allocated_bytes, Relaxed);
        let max = match self.limit_bytes() {
            0 => i64::MAX,
            // Garbage is as good as free: nothing else must go for it.
            limit => {
                let kept = allocated_bytes.saturating_sub(garbage_bytes);
                (limit.min(i64::MAX as u64) as i64).saturating_add(data_bytes as i64 - kept as i64)
            }
        };
        self.data_bytes_max.store(max, Relaxed);
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
    /// How long it has been over the limit: in all, and now, in microseconds.
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
        self.freed_values.store(0, Relaxed);
    }
    /// Values that a helper thread is to free, and those that it has freed.
    pub(crate) fn lazily_freed(&self) -> (u64, u64) {
        (self.pending_values.load(Relaxed), self.freed_values.load(Relaxed))
    }
    /// Given out by the allocator at the last look.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }
    /// The most that was ever seen, with what is seen now.
    pub(crate) fn peak_bytes(&self, now_bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(now_bytes, Relaxed).max(now_bytes)
    }
    /// The process is ready, and has no data yet.
    pub(crate) fn is_ready(&self, allocated_bytes: u64) {
        self.startup_bytes.store(allocated_bytes, Relaxed);
    }
    /// Given out when the server started.
    pub(crate) fn startup_bytes(&self) -> u64 {
        self.startup_bytes.load(Relaxed)
    }
    /// Bytes held by the charges of a purpose.
    pub(crate) fn charged(&self, purpose: Purpose) -> u64 {
        self.charged[purpose as usize].load(Relaxed)
    }
}

/// Bytes counted for a purpose for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    purpose: Purpose,
    bytes: u64,
    /// Values to be freed by then.
    values: u64,
}

impl Charge {
    pub(crate) fn new(memory: &Arc<Memory>, purpose: Purpose, bytes: u64) -> Charge {
        memory.charged[purpose as usize].fetch_add(bytes, Relaxed);
        Charge { memory: memory.clone(), purpose, bytes, values: 0 }
    }
    /// For so many values that a helper thread frees.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_looks_the_data_tells_what_was_added() {
        let memory = Memory::new(100);
        memory.look(1 << 40, 5, 0);
        assert_eq!((memory.over_bytes(1 << 40), memory.peak_bytes(0)), (0, 1 << 40), "no limit");
        memory.set_limit(1000);
        memory.look(900, 500, 0);
        assert_eq!([500, 600, 601, 700].map(|data| memory.over_bytes(data)), [0, 0, 1, 100]);
        // Something else grew: less is left for the data.
        memory.look(1200, 550, 0);
        assert_eq!([300, 350, 550].map(|data| memory.over_bytes(data)), [0, 0, 200]);
        // All data would not be enough.
        memory.look(5000, 550, 0);
        assert_eq!([0, 550].map(|data| memory.over_bytes(data)), [3450, 4000]);
        memory.set_limit(u64::MAX);
        memory.look(5000, 550, 0);
        assert_eq!(memory.over_bytes(1 << 40), 0);
    }

    #[test]
    fn garbage_is_as_good_as_free() {
        let memory = Arc::new(Memory::new(0));
        memory.set_limit(1000);
        memory.look(1500, 800, 600);
        assert_eq!(memory.over_bytes(800), 0);
        memory.look(1500, 800, 0);
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
        assert_eq!(memory.over_us(150), (50, 50));
    }
}
