//! Eviction: which records go when memory runs out, a bounded number of them at a time.
//!
//! Redis draws `maxmemory-samples` keys for each eviction, each from another place in memory. Here a *hand* goes round
//! over all segments: a segment is a random sample of the keys, it lies together, and taking several victims from it
//! lets its heap shrink, which is what gives memory back. So a round looks at whole segments, at some hundred records at
//! least, keeps the best candidates ([`Pool`]), one for each `maxmemory-samples` records seen, and evicts from those
//! until enough is free. A candidate that was used since it was seen is dropped, not evicted.
//!
//! One shard is held at a time, for a segment or for an eviction; one that somebody else holds is passed by.

use crate::shard::Shard;
use crate::{Keyspace, RecordRef, Settings};
use std::sync::atomic::Ordering::Relaxed;

/// A round looks at this many records at least, so that a keyspace of few keys has its best candidates compared with
/// all others. One segment, or two.
const LOOKS_PER_ROUND_MIN: usize = 256;
/// Most candidates of a round, whatever `maxmemory-samples` says.
const CANDIDATES_MAX: usize = 128;
/// With `volatile-ttl` there is one candidate for this many records at most: it is about the first, not about many.
const LOOKS_PER_CANDIDATE_MIN_TTL: usize = 16;
/// Rounds of one call.
const ROUNDS_MAX: usize = 4;
/// Segments without a record that may go which a round passes by at most.
const STEPS_PER_ROUND_MAX: usize = 4096;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The longest unused.
    LeastRecent,
    /// The least often used.
    LeastFrequent,
    /// Any.
    Random,
    /// Those that expire first.
    SoonestToExpire,
}

/// `maxmemory-policy` but for noeviction, with its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only records that have an expiry.
    pub volatile_only: bool,
    /// Whose turn it is.
    pub order: Order,
    /// `maxmemory-samples`: records looked at for each evicted.
    pub samples: usize,
}

impl Policy {
    fn looks_per_candidate(&self) -> usize {
        match self.order {
            Order::SoonestToExpire => self.samples.max(LOOKS_PER_CANDIDATE_MIN_TTL),
            Order::Random => 1,
            _ => self.samples.max(1),
        }
    }
}

/// What one call evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Records.
    pub records: usize,
    /// There was no record that the policy allows to evict.
    pub none_left: bool,
}

/// What goes on from call to call: the candidates. Of one thread at a time.
#[derive(Debug)]
pub struct Evictor {
    pool: Pool,
    policy: Option<Policy>,
    rng: fastrand::Rng,
}

impl Evictor {
    /// Without candidates; chance begins at `seed`.
    pub fn new(seed: u64) -> Evictor {
        Evictor { pool: Pool::default(), policy: None, rng: fastrand::Rng::with_seed(seed) }
    }
}

/// A record that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// The higher the sooner it goes.
    score: u64,
    /// What its score was made of: when that has changed it is no candidate any more.
    basis: u64,
    db: usize,
    /// Where its key begins and ends among the pool's.
    key: (usize, usize),
}

/// The candidates of a round, the best one last.
#[derive(Debug, Default)]
struct Pool {
    candidates: Vec<Candidate>,
    keys: Vec<u8>,
    /// Of the segment in hand: score, basis, number of the record among those visited.
    seen: Vec<(u64, u64, usize)>,
}

impl Pool {
    fn clear(&mut self) {
        self.candidates.clear();
        self.keys.clear();
    }
    /// Of those seen in a segment, only this many of the best stay, in the order in which they were seen.
    fn select(&mut self, best: usize) {
        if best < self.seen.len() {
            let at = self.seen.len() - best;
            self.seen.select_nth_unstable_by_key(at, |seen| seen.0);
            self.seen.drain(..at);
            self.seen.sort_unstable_by_key(|seen| seen.2);
        }
    }
    /// Takes one of those that were selected.
    fn add(&mut self, (score, basis, _): (u64, u64, usize), db: usize, key: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.candidates.push(Candidate { score, basis, db, key: (start, self.keys.len()) });
    }
    /// At the end of a round: this many of the best stay.
    fn finish(&mut self, best: usize) {
        self.candidates.sort_unstable_by_key(|c| c.score);
        let surplus = self.candidates.len().saturating_sub(best);
        self.candidates.drain(..surplus);
    }
}

/// What decides about a record's turn, as it lies in memory.
fn basis(record: &RecordRef<'_>, order: Order) -> u64 {
    match order {
        Order::SoonestToExpire => record.0.deadline_ms() as u64,
        _ => u64::from(record.0.used()),
    }
}

/// A record's turn: the higher the sooner.
fn score(
    record: &RecordRef<'_>,
    order: Order,
    now_ms: i64,
    settings: &Settings,
    rng: &mut fastrand::Rng,
) -> u64 {
    match order {
        // Who is dead already goes before anybody else.
        _ if record.is_expired(now_ms) => u64::MAX,
        Order::LeastRecent => u64::from(record.idle_s(now_ms)),
        Order::LeastFrequent => u64::from(u8::MAX - record.frequency(now_ms, settings)),
        Order::Random => rng.u64(..u64::MAX),
        Order::SoonestToExpire => i64::MAX.abs_diff(record.0.deadline_ms()),
    }
}

impl Keyspace {
    /// Evicts records by `policy` until `bytes` are free, `records_max` records at most.
    pub fn evict(
        &self,
        evictor: &mut Evictor,
        policy: Policy,
        records_max: usize,
        bytes: u64,
        now_ms: i64,
    ) -> Evicted {
        if evictor.policy != Some(policy) {
            evictor.pool.clear();
            evictor.policy = Some(policy);
        }
        let (mut evicted, mut freed) = (Evicted::default(), 0);
        for _ in 0..ROUNDS_MAX {
            while evicted.records < records_max && freed < bytes {
                let Some(candidate) = evictor.pool.candidates.pop() else { break };
                let key = &evictor.pool.keys[candidate.key.0..candidate.key.1];
                if let Some(bytes) = self.evict_one(&candidate, key, policy.order, now_ms) {
                    evicted.records += 1;
                    freed += bytes;
                }
            }
            if evicted.records >= records_max || freed >= bytes {
                break;
            }
            if self.look_round(evictor, policy, now_ms) && evictor.pool.candidates.is_empty() {
                evicted.none_left = true;
                break;
            }
        }
        evicted
    }
    /// Records evicted since the start.
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total.load(Relaxed)
    }

    /// Evicts a candidate, unless it was used meanwhile or somebody holds its shard; the bytes that this freed.
    fn evict_one(&self, candidate: &Candidate, key: &[u8], order: Order, now_ms: i64) -> Option<u64> {
        let key = self.key(key);
        let shard = &self.shards[self.shard_of(key.hash)];
        let before = shard.data_bytes();
        let mut locked = self.try_lock(&[key.hash], now_ms)?;
        let mut db = locked.db(candidate.db);
        if basis(&db.peek(&key)?, order) != candidate.basis {
            return None;
        }
        db.evict(&key);
        drop(locked);
        self.evicted_total.fetch_add(1, Relaxed);
        Some(before.saturating_sub(shard.data_bytes()) as u64)
    }
    /// Fills the pool with the best candidates of the segments that are next. True when that were all of them.
    fn look_round(&self, evictor: &mut Evictor, policy: Policy, now_ms: i64) -> bool {
        let pool = &mut evictor.pool;
        pool.clear();
        // Another thread is at it.
        let Some(mut hand) = self.evict_from.try_lock() else { return false };
        let (mut looked_at, mut passed_by, mut steps) = (0, false, 0);
        let mut all = true;
        // Once around: every shard, and the one it starts in the middle of twice.
        'round: for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *hand;
            let shard_index = self.shard_at(from);
            loop {
                if looked_at >= LOOKS_PER_ROUND_MIN || steps >= STEPS_PER_ROUND_MAX {
                    *hand = (slot, from);
                    all = false;
                    break 'round;
                }
                let Some(shard) = self.shards[shard_index].lock.try_lock() else {
                    passed_by = true;
                    break;
                };
                if slot >= shard.slots() {
                    break;
                }
                steps += 1;
                let (looked, next) =
                    self.look_at_segment(&shard, slot, from, policy, now_ms, pool, &mut evictor.rng);
                looked_at += looked;
                // Only what clients can reach: system companions are at the odd places.
                (slot, from) = next.map_or((slot + 2, self.start_of(shard_index)), |from| (slot, from));
            }
            *hand = (0, self.start_of((shard_index + 1) & (self.shards.len() - 1)));
        }
        pool.finish((looked_at / policy.looks_per_candidate()).clamp(1, CANDIDATES_MAX));
        all && !passed_by
    }
    /// Looks at one segment: how many of its records may go, and where the next one begins.
    #[allow(clippy::too_many_arguments)]
    fn look_at_segment(
        &self,
        shard: &Shard,
        slot: usize,
        from: u64,
        policy: Policy,
        now_ms: i64,
        pool: &mut Pool,
        rng: &mut fastrand::Rng,
    ) -> (usize, Option<u64>) {
        let Some(table) = shard.table(slot) else { return (0, None) };
        if policy.volatile_only {
            if table.volatile == 0 {
                return (0, None);
            }
            if let Some(next) = table.records.without_deadline(from) {
                return (0, next);
            }
        }
        pool.seen.clear();
        let mut number = 0;
        let (_, next) = table.records.scan_step(from, usize::MAX, &mut |item| {
            let record = RecordRef(item);
            if !policy.volatile_only || record.0.deadline_ms() != i64::MAX {
                let score = score(&record, policy.order, now_ms, &self.settings, rng);
                pool.seen.push((score, basis(&record, policy.order), number));
            }
            number += 1;
        });
        let looked_at = pool.seen.len();
        // All of the round's candidates may be here.
        let best = looked_at.max(LOOKS_PER_ROUND_MIN).div_ceil(policy.looks_per_candidate());
        pool.select(best.min(CANDIDATES_MAX));
        let seen = std::mem::take(&mut pool.seen);
        let (mut selected, mut number) = (seen.iter().peekable(), 0);
        table.records.scan_step(from, usize::MAX, &mut |item| {
            if let Some(best) = selected.next_if(|best| best.2 == number) {
                pool.add(*best, slot / 2, item.key());
            }
            number += 1;
        });
        pool.seen = seen;
        (looked_at, next)
    }
}
