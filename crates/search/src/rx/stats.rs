//! [`CacheStats`]: counters of a thread's searches with a set. RX.STATS adds them up.
//!
//! Only the owner of the caches writes, so an update is a load and a store. A reader may miss the latest search.

use super::registry::ThreadCaches;
use crate::error::SearchError;
use crate::regex::{Counts, Halt};
use crate::service::{Search, check_arity, check_may_use};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use strand_commands::call::LaneCall;

/// Number of buckets of the histogram of nanoseconds per byte: below 1, below 2, below 4 and so on, and one bucket
/// for higher values.
const BUCKETS: usize = 20;
/// Texts with fewer bytes than this are not timed, because their time per byte means nothing.
const TIMED_BYTES_MIN: usize = 64;

/// The counters of one [`ThreadCaches`].
#[derive(Debug, Default)]
pub(crate) struct CacheStats {
    searches: AtomicU64,
    bytes: AtomicU64,
    builds: AtomicU64,
    clears: AtomicU64,
    give_ups: AtomicU64,
    quits: AtomicU64,
    resets: AtomicU64,
    simulations: AtomicU64,
    to_lane: AtomicU64,
    to_hard: AtomicU64,
    deadlines: AtomicU64,
    evictions: AtomicU64,
    ns_per_byte: [AtomicU64; BUCKETS],
}

fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.store(counter.load(Relaxed) + n, Relaxed);
    }
}

impl CacheStats {
    /// Adds the counts of an engine.
    pub(crate) fn add(&self, c: &Counts) {
        for (counter, n) in [
            (&self.builds, c.builds),
            (&self.clears, c.clears),
            (&self.give_ups, c.give_ups),
            (&self.quits, c.quits),
            (&self.resets, c.resets),
            (&self.simulations, c.simulations),
        ] {
            add(counter, n);
        }
    }
    /// Counts a search that has ended or moves to another thread.
    pub(crate) fn record_search(&self, bytes: usize, start: Instant, halt: Option<Halt>) {
        match halt {
            Some(Halt::MoveToLane) => return add(&self.to_lane, 1),
            Some(Halt::MoveToHardLane) => return add(&self.to_hard, 1),
            Some(Halt::Deadline) => add(&self.deadlines, 1),
            Some(Halt::Cancelled) => return,
            Some(Halt::ReplyTooLarge) | None => {}
        }
        add(&self.searches, 1);
        add(&self.bytes, bytes as u64);
        if bytes >= TIMED_BYTES_MIN {
            let ns = start.elapsed().as_nanos() as u64 / bytes as u64;
            let bucket = (u64::BITS - ns.leading_zeros()) as usize;
            add(&self.ns_per_byte[bucket.min(BUCKETS - 1)], 1);
        }
    }
    /// Counts a drop of the caches because the set exceeded its memory.
    pub(crate) fn evicted(&self) {
        add(&self.evictions, 1);
    }
}

/// Writes the reply of RX.STATS.
///
/// # Errors
/// When the set does not exist.
pub(crate) fn stats(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 2)?;
    check_may_use(call, call.args.at(1))?;
    let set = search.regexes.set(call.args.at(1))?;
    let caches = search.regexes.caches_at(&set);
    let sum =
        |f: fn(&CacheStats) -> &AtomicU64| caches.iter().map(|s| f(&s.stats).load(Relaxed)).sum::<u64>();
    let full = set.machines().filter(|m| m.is_full()).count();
    let hopeless = set.machines().filter(|m| m.is_hopeless()).count();
    let tier = set.machines().filter(|m| !m.is_full()).map(|m| m.tier_bytes()).max().unwrap_or(0);
    let numbers = [
        ("patterns", set.members.len() as u64),
        ("unicode", u64::from(set.unicode)),
        ("nocase", u64::from(set.nocase)),
        ("compile_us", set.compile_us),
        ("compiled_bytes", set.compiled_bytes()),
        ("cache_bytes", set.cache_bytes.load(Relaxed)),
        ("memory_bytes_max", set.memory_bytes as u64),
        ("deadline_ms", set.deadline.as_millis() as u64),
        ("machines", set.machines().count() as u64),
        ("machines_full", full as u64),
        ("machines_hopeless", hopeless as u64),
        ("cache_tier_bytes", tier as u64),
        ("threads", caches.len() as u64),
        ("searches", sum(|s| &s.searches)),
        ("bytes", sum(|s| &s.bytes)),
        ("states_built", sum(|s| &s.builds)),
        ("cache_clears", sum(|s| &s.clears)),
        ("cache_resets", sum(|s| &s.resets)),
        ("cache_evictions", sum(|s| &s.evictions)),
        ("give_ups", sum(|s| &s.give_ups)),
        ("quits", sum(|s| &s.quits)),
        ("simulations", sum(|s| &s.simulations)),
        ("moved_to_lane", sum(|s| &s.to_lane)),
        ("moved_to_hard_lane", sum(|s| &s.to_hard)),
        ("deadlines", sum(|s| &s.deadlines)),
    ];
    let histogram = histogram(&caches);
    call.reply.map(numbers.len() + 3);
    for (name, n) in numbers {
        call.reply.bulk(name.as_bytes());
        call.reply.int(n as i64);
    }
    for (name, share) in [("ns_per_byte_p50", 0.5), ("ns_per_byte_p99", 0.99), ("ns_per_byte_max", 1.0)] {
        call.reply.bulk(name.as_bytes());
        call.reply.int(quantile(&histogram, share) as i64);
    }
    Ok(())
}

fn histogram(caches: &[Arc<ThreadCaches>]) -> [u64; BUCKETS] {
    let mut all = [0; BUCKETS];
    for caches in caches {
        caches.stats.ns_per_byte.iter().zip(&mut all).for_each(|(n, sum)| *sum += n.load(Relaxed));
    }
    all
}

/// The upper end of the bucket that contains the quantile `share`; 0 when the histogram is empty.
fn quantile(histogram: &[u64; BUCKETS], share: f64) -> u64 {
    let wanted = (histogram.iter().sum::<u64>() as f64 * share).ceil() as u64;
    let mut seen = 0;
    histogram
        .iter()
        .position(|n| {
            seen += n;
            wanted > 0 && seen >= wanted
        })
        .map_or(0, |bucket| 1 << bucket)
}
