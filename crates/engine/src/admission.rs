//! [`Admission`] of commands at the memory limit: [`Engine::admit`] before a command, [`Engine::watch_memory`] in the
//! background.
//!
//! A command that may need memory first evicts a few records. The number is small, so no client waits long, and the
//! command runs even when more eviction is needed. The background continues to evict. Writers that are faster than
//! the background wait, one by one. So memory exceeds the limit by little, and read-only clients notice nothing.

use crate::config::Opt;
use crate::memory::{Charge, Ledger, Purpose, Shares};
use crate::session::CutOff;
use crate::stats::Stat;
use crate::timing::Event;
use crate::{Engine, Now};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use strand_keyspace::{Evicted, Evictor, Order, Policy, Value};

/// Maximum number of records that a command evicts, with the default tenacity.
const RECORDS_PER_COMMAND: usize = 16;
/// Maximum number of records that a command evicts with full tenacity: about a millisecond.
const RECORDS_PER_COMMAND_MAX: usize = 1024;
/// Maximum number of records that the background evicts in one slice.
const RECORDS_PER_SLICE: usize = 256;
/// A worker checks the data's size again after it wrote this many bytes.
const SPARE_BYTES_MAX: i64 = 64 << 10;
/// Each write counts as at least this many bytes.
const WRITE_BYTES_MIN: i64 = SPARE_BYTES_MAX / 32;
/// Before a command with arguments of at least this size, the allocator is asked for the memory in use. The arguments
/// are already received, and their bytes alone may exceed the limit.
const HUGE_BYTES_MIN: i64 = 1 << 20;
/// No command is refused by a sample that is older than this. A sample costs 25 us.
const OLD_SAMPLE_US: u64 = 1_000;
/// Writers wait for eviction when memory exceeds the limit by more than the limit divided by this number, or by more
/// than [`OVER_BYTES_MIN`] if that is larger. What exceeds a limit only because the limit was lowered does not count.
const OVER_PART: u64 = 32;
/// Writers wait only when memory exceeds the limit by more than this many bytes. See [`OVER_PART`].
const OVER_BYTES_MIN: u64 = 16 << 20;
/// The least effective value of `maxmemory-clients`, as in redis-server: with less, no client could set a larger one.
const CLIENTS_BYTES_MIN: u64 = 128 << 10;
/// Time until a waiting writer checks again.
const WAIT_US: u64 = 1000;
/// Time until a writer checks again that waits for the next sample of the system.
pub(crate) const SAMPLE_WAIT_US: u64 = 20_000;
/// Eviction continues until memory is below the limit by the limit divided by this number. So the next writes do not
/// reach the limit at once.
const SLACK_PART: u64 = 512;
/// Eviction continues to at most this many bytes below the limit.
const SLACK_BYTES_MAX: u64 = 256 << 10;
/// Changes on their way to the append-only file take up to their bytes divided by this number in addition, because many
/// blocks of the journal are not full. A fifth was seen.
const JOURNAL_ROUNDING_PART: u64 = 4;
/// What waits for replicas takes up to its bytes divided by this number in addition. A twelfth was seen, with 500 MB of
/// values of 5,000 bytes: it evicted all keys of a server with a limit of 40 MB.
const REPLICA_ROUNDING_PART: u64 = 8;
/// Maximum number of bytes for the allocator's rounding of what scripts hold.
const ROUNDING_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of bytes by which running scripts may grow before they are charged.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// Number of copies of [`WorkerMemory`]. The workers share them.
const SLOTS: usize = 16;

/// Pause of the background in microseconds while there is no limit, or memory is far below the limit.
const PAUSE_FAR_US: u64 = 100_000;
/// Pause of the background in microseconds while nine tenths of the limit are used.
const PAUSE_NEAR_US: u64 = 10_000;
/// Pause of the background in microseconds while memory is over the limit.
const PAUSE_OVER_US: u64 = 500;

/// Number of big values that are freed together. The freeing thread yields the processor after each group.
const RECLAIM_VALUES: usize = 8;

/// The bytes that a worker may still write, and its evictor. Each has its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerMemory {
    /// Bytes that the worker may write before it checks the data's size again.
    spare_bytes: AtomicI64,
    /// [`strand_keyspace::Keyspace::leaps`] when the worker used its spare last. After a further leap the worker has no
    /// spare: the result of a command may be much larger than its arguments.
    leaps: AtomicU64,
    evictor: Mutex<Evictor>,
}

/// The [`WorkerMemory`] of each slot of workers, and of the background.
pub(crate) fn worker_memories(seed: u64) -> Box<[WorkerMemory]> {
    let memory = |i| WorkerMemory {
        spare_bytes: 0.into(),
        leaps: 0.into(),
        evictor: Mutex::new(Evictor::new(seed ^ i)),
    };
    (0..=SLOTS as u64).map(memory).collect()
}

/// Whether a command that may need memory may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The command may run.
    Granted,
    /// The command must wait: memory is far over the limit, and eviction is running.
    Later {
        /// When to ask again, on the clock of [`Now::mono_us`].
        at_us: u64,
    },
    /// The command may not run, because nothing can be evicted.
    Refused,
}

impl Engine {
    /// Decides whether a command may run that makes the data grow by up to `bytes` (its arguments, and what SETRANGE and
    /// similar commands put before an offset), and evicts if necessary. As in redis-server, nothing is
    /// evicted or denied while CLIENT PAUSE stops writes. Call this while [`crate::memory::Memory::is_limited`].
    pub(crate) fn admit(&self, worker: usize, bytes: usize, now: Now) -> Admission {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let worker_memory = &self.worker_memories[worker % SLOTS];
        // Two workers may share a copy and lose one of two changes. The next check of the data's size corrects that.
        let left = worker_memory.spare_bytes.load(Relaxed).saturating_sub(bytes.max(WRITE_BYTES_MIN));
        let leaps = self.keyspace.leaps();
        if worker_memory.leaps.load(Relaxed) != leaps {
            worker_memory.leaps.store(leaps, Relaxed);
            worker_memory.spare_bytes.store(0, Relaxed);
        } else if left >= 0 {
            worker_memory.spare_bytes.store(left, Relaxed);
            return Admission::Granted;
        }
        if bytes >= HUGE_BYTES_MIN {
            self.sample_memory();
        }
        match self.admit_slow(worker_memory, bytes, now) {
            // Memory that is no data may have become free since the last sample.
            Admission::Refused if self.sample_is_old() => {
                self.sample_memory();
                self.admit_slow(worker_memory, bytes, now)
            }
            admission => admission,
        }
    }
    fn sample_is_old(&self) -> bool {
        let sampled_us = self.memory.sampled_us.load(Relaxed);
        self.host.mono_us().saturating_sub(sampled_us) >= OLD_SAMPLE_US
    }
    #[cold]
    fn admit_slow(&self, worker_memory: &WorkerMemory, bytes: i64, now: Now) -> Admission {
        let is_paused = self.pause.is_set() && self.pause.waits_until(true, now.mono_us).is_some();
        if is_paused || self.ignores_maxmemory() {
            return Admission::Granted;
        }
        let mut data_bytes = self.keyspace.data_bytes() as u64;
        let over = self.memory.over_bytes(data_bytes);
        if over > 0 && self.memory.is_limit_passing() {
            return Admission::Later { at_us: now.mono_us + SAMPLE_WAIT_US };
        }
        if over > 0 {
            let Some(policy) = self.eviction_policy() else { return Admission::Refused };
            // If this lock fails, another worker is evicting with this evictor.
            if let Some(mut evictor) = worker_memory.evictor.try_lock() {
                let records_max = records_per_command(self.config.number(Opt::MaxMemoryEvictionTenacity));
                let wanted = over + slack(self.memory.enforced_bytes());
                let Some(done) = self.evict(&mut evictor, policy, records_max, wanted, now) else {
                    return Admission::Granted;
                };
                self.reclaim();
                if done.none_left && done.records == 0 && self.garbage_bytes() == 0 {
                    return Admission::Refused;
                }
            }
            data_bytes = self.keyspace.data_bytes() as u64;
            let over = self.memory.over_bytes(data_bytes);
            let allowed = OVER_BYTES_MIN.max(self.memory.enforced_bytes() / OVER_PART);
            if over > allowed.saturating_add(self.memory.lowered_excess_bytes()) {
                return Admission::Later { at_us: now.mono_us + WAIT_US };
            }
        }
        let share = self.memory.spare_bytes(data_bytes) / (2 * self.facts.workers.max(1) as i64);
        // The data grows by the command only after this.
        worker_memory.spare_bytes.store(share.min(SPARE_BYTES_MAX).saturating_sub(bytes), Relaxed);
        Admission::Granted
    }
    /// Background work at the memory limit: asks the allocator, and evicts a slice when memory is over the limit.
    /// Call it from one thread, again after the returned number of microseconds.
    pub fn watch_memory(&self, now: Now) -> u64 {
        // The clients come first, so that the sample counts no memory of those that are closed.
        let closed_clients = self.evict_clients();
        self.sample_late_headroom(now);
        self.sample_memory_and_echo(now);
        self.slow_clients(now);
        let pause_us = match closed_clients.is_some() || self.headroom.is_low() {
            true => PAUSE_NEAR_US,
            false => PAUSE_FAR_US,
        };
        self.reclaim();
        if closed_clients.is_some_and(|closed| closed > 0) {
            // The closed clients have more memory than is counted for them. No key is evicted for it.
            return PAUSE_OVER_US;
        }
        let over = self.memory.over_bytes(self.keyspace.data_bytes() as u64);
        let is_passing = self.memory.is_limit_passing();
        if over > 0 && self.memory.may_free_blocks(now.mono_us) {
            // Free blocks do not count. But a server at its limit should hold little besides its data.
            strand_chain::free_pooled();
        }
        self.memory.count_time(over > 0 && !is_passing, now.mono_us);
        let (used, limit) = (self.memory.used_bytes(), self.memory.enforced_bytes());
        if limit == 0 || used < limit / 10 * 9 {
            return pause_us;
        }
        let paused = self.pause.waits_until(true, now.mono_us).is_some();
        if over > 0 {
            self.forget_spare();
        }
        if over == 0 || paused || is_passing {
            return PAUSE_NEAR_US;
        }
        let Some(policy) = self.eviction_policy() else { return PAUSE_NEAR_US };
        let mut evictor = self.worker_memories[SLOTS].evictor.lock();
        let wanted = over + slack(limit);
        let done = self.evict(&mut evictor, policy, RECORDS_PER_SLICE, wanted, now);
        self.reclaim();
        let Some(done) = done else { return PAUSE_NEAR_US };
        // A slice that found no record to evict may be followed by one that finds some, because a slice checks a
        // bounded number of records.
        if done.none_left { PAUSE_NEAR_US } else { PAUSE_OVER_US }
    }
    /// Evicts records. `None`: as in redis-server, nothing is evicted while data is loaded from a file, nor by a replica.
    fn evict(
        &self,
        evictor: &mut Evictor,
        policy: Policy,
        records_max: usize,
        wanted: u64,
        now: Now,
    ) -> Option<Evicted> {
        // The primary decides what is evicted.
        if self.ignores_maxmemory() {
            return None;
        }
        let began_us = self.host.mono_us();
        let slice = || self.keyspace.evict(evictor, policy, records_max, wanted, now.unix_ms());
        let done = self.while_data_stays(slice)?;
        let took_us = self.host.mono_us().saturating_sub(began_us);
        self.stats.events.note(Event::EvictionCycle, took_us, now.unix_s());
        if done.records > 0 {
            self.echo.note_eviction(now);
        }
        Some(done)
    }
    /// Enforces `maxmemory-clients`. Returns the number of clients that it closes. `None`: that limit is not set.
    pub(crate) fn evict_clients(&self) -> Option<usize> {
        let limit = self.clients_bytes_max();
        let evicted = limit.map(|bytes_max| self.clients.evict(bytes_max)).unwrap_or_default();
        self.memory.leaving_bytes.store(evicted.leaving_bytes, Relaxed);
        let bytes_max = limit?;
        self.stats.add(0, Stat::ClientEvictions, evicted.clients.len() as u64);
        for (client, held_bytes) in &evicted.clients {
            let (held_bytes, all_bytes) = (*held_bytes, evicted.all_bytes);
            self.log_cut_off(client, CutOff::Memory { held_bytes, all_bytes, bytes_max });
        }
        Some(evicted.clients.len())
    }
    /// `maxmemory-clients` in bytes, if that limit is set.
    pub(crate) fn clients_bytes_max(&self) -> Option<u64> {
        let bytes = match self.config.number(Opt::MaxMemoryClients) {
            0 => None,
            // A percentage of `maxmemory` is no limit while `maxmemory` is 0.
            percent @ ..0 => match self.memory.limit_bytes() {
                0 => None,
                limit => Some((u128::from(limit) * u128::from(percent.unsigned_abs()) / 100) as u64),
            },
            bytes => Some(bytes as u64),
        };
        bytes.map(|bytes| bytes.max(CLIENTS_BYTES_MIN))
    }
    /// Makes each worker check the data's size before its next write.
    pub(crate) fn forget_spare(&self) {
        self.worker_memories.iter().for_each(|worker_memory| worker_memory.spare_bytes.store(0, Relaxed));
    }
    /// Asks the allocator for the memory in use.
    pub(crate) fn sample_memory(&self) {
        // The data's size is read first: bytes written between the two readings count twice. In the other order they
        // would not count.
        let data_bytes = self.keyspace.data_bytes() as u64;
        let (kept_bytes, garbage_bytes) = (self.persist.kept_bytes(), self.freed_soon_bytes());
        let moving_bytes = self.moving_bytes();
        let used_bytes = self.host.used_bytes();
        // The figures are not of one moment: bytes that were freed meanwhile are only in the first sum, new ones only in the
        // second. Large values share their bytes with the changes that are on their way, so that these bytes are data.
        let moving_bytes = moving_bytes.max(self.moving_bytes()).min(used_bytes.saturating_sub(data_bytes));
        let uncounted_bytes =
            kept_bytes + garbage_bytes + self.resting_bytes() + moving_bytes + self.echo.bytes();
        self.memory.record_sample(used_bytes, data_bytes, uncounted_bytes, garbage_bytes);
        if self.memory.is_limited() {
            self.memory.sampled_us.store(self.host.mono_us(), Relaxed);
        }
    }
    /// Bytes that are no longer data and not freed yet. They wait in the keyspace or on a helper thread.
    fn garbage_bytes(&self) -> u64 {
        // Records kept for a snapshot are freed once they are written, so no key must be evicted for them.
        self.persist.kept_bytes() + self.freed_soon_bytes()
    }
    /// [`Engine::garbage_bytes`] without the records that are kept for a snapshot: free in a moment.
    fn freed_soon_bytes(&self) -> u64 {
        self.keyspace.garbage_bytes() as u64 + self.memory.charged(Purpose::Garbage)
    }
    /// Bytes in use that do not count against the limit, for INFO.
    pub(crate) fn uncounted_bytes(&self) -> u64 {
        self.garbage_bytes() + self.resting_bytes() + self.moving_bytes() + self.echo.bytes()
    }
    /// What a service frees by itself, a profile, clients that are being closed, drafts of scripts, and the interpreters of
    /// scripts, because their garbage is not freed at once. The allocator's figures of a profile are those of its last
    /// reading, so read the memory in use first.
    fn resting_bytes(&self) -> u64 {
        let leaving_bytes = self.memory.leaving_bytes.load(Relaxed);
        let drafts_bytes = self.memory.drafts_bytes.load(Relaxed);
        self.host.passing_bytes() + leaving_bytes + drafts_bytes + self.interpreters_bytes()
    }
    /// Memory of the changes that are on their way to the append-only file and to replicas.
    fn moving_bytes(&self) -> u64 {
        let (journal_bytes, replica_bytes) = (self.journal_bytes(), self.replication.waiting_bytes());
        let rounding_bytes = journal_bytes / JOURNAL_ROUNDING_PART + replica_bytes / REPLICA_ROUNDING_PART;
        journal_bytes + replica_bytes + rounding_bytes
    }
    /// Bytes of the changes that are in no file yet, and that replicas were not given yet.
    fn journal_bytes(&self) -> u64 {
        let journal = self.keyspace.journal();
        self.persist.aof.pending_bytes(journal.tail()).max(journal.waiting() as u64)
    }
    /// What the interpreters of scripts take, or may take before they are charged again.
    fn interpreters_bytes(&self) -> u64 {
        let charged_bytes = self.memory.charged(Purpose::Scripts);
        // Lua counts the bytes that it asks for. The allocator rounds up the small ones by at most a quarter.
        let rounding_bytes = (charged_bytes / 4).min(ROUNDING_BYTES_MAX);
        // One instruction of a running script may double a table.
        let growth_bytes = match self.scripts.is_any_running() {
            true => charged_bytes.min(GROWTH_BYTES_MAX),
            false => 0,
        };
        charged_bytes + rounding_bytes + growth_bytes
    }
    /// Hands deleted, replaced or evicted big values to the host, which frees them on a helper thread.
    pub(crate) fn reclaim(&self) {
        let mut garbage = self.keyspace.take_garbage();
        while !garbage.is_empty() {
            let values = garbage.split_off(garbage.len().saturating_sub(RECLAIM_VALUES));
            let bytes = values.iter().map(|value| value.heap_bytes() as u64).sum();
            let charge = Arc::new(Charge::garbage(&self.memory, bytes, values.len() as u64));
            let mut strings = Vec::new();
            for value in values {
                match value {
                    Value::Str(_) => strings.push(value),
                    // The piece comes first in the pair, so that it is freed before the charge ends.
                    collection => collection
                        .into_pieces(&mut |piece| self.host.reclaim(Box::new((piece, charge.clone())))),
                }
            }
            self.host.reclaim(Box::new((strings, charge)));
        }
    }
    /// The limit of memory in bytes: `maxmemory`, or less if the system has less. 0: none.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.memory.limit_bytes()
    }
    /// Records the memory in use when the server is ready, before it has data.
    pub fn record_startup_memory(&self) {
        self.memory.record_startup(self.host.used_bytes());
    }
    /// The memory of the process, by purpose.
    pub(crate) fn ledger(&self) -> Ledger {
        // Some shares are figures of the allocator, as of its last reading. So this reading comes first.
        let facts = self.host.memory();
        Ledger { shares: self.shares(), facts }
    }
    /// Number of bytes, by purpose.
    fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        let services = self.host.service_memory();
        let clients = self.clients.all();
        let clients = clients.iter().filter(|client| !client.is_replica.load(Relaxed));
        for (purpose, bytes) in [
            (Purpose::Data, self.keyspace.data_bytes() as u64),
            (Purpose::Indexes, services.indexes_bytes),
            (Purpose::Trigrams, services.trigrams_bytes),
            (Purpose::Regexes, services.regexes_bytes),
            (Purpose::Clients, clients.map(|c| c.held_bytes()).sum::<u64>() + self.pubsub.queued_bytes()),
            (Purpose::Replication, self.replication.backlog_bytes() + self.replication.waiting_bytes()),
            (Purpose::Jobs, self.memory.charged(Purpose::Jobs) + services.requests_bytes),
            (Purpose::Scripts, self.memory.charged(Purpose::Scripts) + self.scripts.size().1 as u64),
            (Purpose::Garbage, self.freed_soon_bytes()),
            (Purpose::Journal, self.journal_bytes()),
            (Purpose::Snapshots, self.persist.kept_bytes()),
            (Purpose::History, self.diag.bytes()),
            (Purpose::Statistics, self.stats.histogram_bytes()),
            (Purpose::Profiler, services.profiler_bytes),
            (Purpose::Startup, self.memory.startup_bytes()),
        ] {
            shares[purpose as usize] = bytes;
        }
        shares
    }
    /// `maxmemory-policy`; `None` for noeviction.
    fn eviction_policy(&self) -> Option<Policy> {
        let samples = self.config.number(Opt::MaxMemorySamples) as usize;
        let of = |expiring_only, order| Some(Policy { expiring_only, order, samples });
        match self.config.choice(Opt::MaxMemoryPolicy) {
            "volatile-lru" => of(true, Order::LeastRecent),
            "volatile-lfu" => of(true, Order::LeastFrequent),
            "volatile-random" => of(true, Order::Random),
            "volatile-ttl" => of(true, Order::SoonestToExpire),
            "allkeys-lru" => of(false, Order::LeastRecent),
            "allkeys-lfu" => of(false, Order::LeastFrequent),
            "allkeys-random" => of(false, Order::Random),
            _ => None,
        }
    }
}

/// Bytes that eviction frees beyond the limit.
fn slack(limit_bytes: u64) -> u64 {
    (limit_bytes / SLACK_PART).min(SLACK_BYTES_MAX)
}

/// `maxmemory-eviction-tenacity`. In Redis this option sets a time: 500 us at 10, less in proportion below 10,
/// and 15 % more per step above 10. Here it sets the number of records that are evicted in about that time. The number
/// has a maximum, so that other clients do not notice the eviction.
fn records_per_command(tenacity: i64) -> usize {
    let records = match tenacity {
        0..=10 => RECORDS_PER_COMMAND as f64 * tenacity as f64 / 10.0,
        _ => RECORDS_PER_COMMAND as f64 * 1.15f64.powi((tenacity - 10) as i32),
    };
    (records.ceil() as usize).clamp(1, RECORDS_PER_COMMAND_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_bounded_at_both_ends() {
        let records = [0, 1, 5, 10, 20, 50, 100].map(records_per_command);
        assert_eq!(records, [1, 2, 8, 16, 65, 1024, 1024]);
    }
}
