//! Eviction: which records are removed when memory runs out. Each call evicts a bounded number.
//!
//! Redis draws `maxmemory-samples` keys for each eviction, each from another place in memory. Strand looks at whole
//! segments instead, one after the other around the whole keyspace; the *hand* is the place where the next look
//! begins. A segment is a random sample of the keys, because the hash places them. Its records lie together in
//! memory. And if several records of one segment are evicted, the segment's heap can shrink, which is what frees
//! memory.
//!
//! A *round* looks at segments until it has seen at least [`LOOKS_PER_ROUND_MIN`] records that may be evicted. It
//! keeps the best candidates ([`Pool`]): one per `maxmemory-samples` records seen. Then candidates are evicted
//! until enough memory is free. A candidate that was used after the round saw it is dropped instead of evicted.
//!
//! When only few records may be evicted (a few with an expiry among many without), a segment knows their places
//! ([`crate::extendible`], `expiring`). A call stops after [`EFFORT_PER_CALL`]. It evicts what it has found, and the
//! next call continues from there. Each shard knows how many records may be evicted, so a call that finds none left
//! needs no search.
//!
//! Eviction holds one shard at a time, for one segment or for one evicted record. It skips a shard that somebody
//! else holds.

use crate::event::{ExpiredCounts, NO_CLIENT};
use crate::extendible::{Item, LISTED_MAX, position_of};
use crate::journal::{PlacedEffects, Removal};
use crate::record::{Value, key_expiry_ms};
use crate::shard::Shard;
use crate::{Changed, KeyEvent, Keyspace, RecordRef, Settings};
use std::sync::atomic::Ordering::Relaxed;

/// Minimum number of records that a round looks at: one or two segments. In a small keyspace that is every key, so
/// the best candidates are the best of all keys.
const LOOKS_PER_ROUND_MIN: usize = 256;
/// Maximum number of candidates per round, for every value of `maxmemory-samples`.
const CANDIDATES_MAX: usize = 128;
/// Minimum number of records seen per candidate under `volatile-ttl`. That policy is to evict only the keys that
/// expire first.
const LOOKS_PER_CANDIDATE_MIN_TTL: usize = 16;
/// Maximum number of rounds per call of [`Keyspace::evict`].
const ROUNDS_MAX: usize = 4;
/// Effort after which a call stops looking. The unit is one record looked at, which takes 10 to 100 ns. The time
/// depends on how many records share a cache line.
const EFFORT_PER_CALL: usize = 2048;
/// Effort per segment, in addition to its records, because its memory is not cached. A skipped shard has effort 1.
const EFFORT_OF_STEP: usize = 8;
/// Maximum number of key bytes that a round copies. Only the first candidate of a round may exceed it.
const KEY_BYTES_PER_ROUND: usize = 64 << 10;

/// Which record is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The record that was not used for the longest time.
    LeastRecent,
    /// The record that is used least often is evicted first.
    LeastFrequent,
    /// Any record may be evicted first.
    Random,
    /// The record that expires first is evicted first.
    SoonestToExpire,
}

/// `maxmemory-policy` (other than noeviction) and `maxmemory-samples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// True when only records with an expiry may be evicted (`volatile-...`).
    pub expiring_only: bool,
    /// Which record is evicted first.
    pub order: Order,
    /// `maxmemory-samples`: number of records looked at per evicted record.
    pub samples: usize,
}

impl Policy {
    fn allows(&self, record: &RecordRef<'_>) -> bool {
        !self.expiring_only || key_expiry_ms(&record.0) != i64::MAX
    }
    fn records_per_candidate(&self) -> usize {
        match self.order {
            Order::SoonestToExpire => self.samples.max(LOOKS_PER_CANDIDATE_MIN_TTL),
            Order::Random => 1,
            _ => self.samples.max(1),
        }
    }
}

/// Result of one call of [`Keyspace::evict`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Number of evicted records.
    pub records: usize,
    /// True when the policy allows no further record to be evicted.
    pub none_left: bool,
    /// Records looked at, plus a constant per segment and per shard. Bounded.
    pub effort: usize,
}

/// The candidates, kept from one call of [`Keyspace::evict`] to the next. One thread uses an evictor at a time.
#[derive(Debug)]
pub struct Evictor {
    pool: Pool,
    policy: Option<Policy>,
    rng: fastrand::Rng,
}

impl Evictor {
    /// An evictor without candidates. `seed` is for the random generator of `allkeys-random` and `volatile-random`.
    pub fn new(seed: u64) -> Evictor {
        Evictor { pool: Pool::default(), policy: None, rng: fastrand::Rng::with_seed(seed) }
    }
}

/// A record that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// The candidate with the highest score is evicted first.
    score: u64,
    /// The usage or expiry from which the score was computed. If the record has another value now, it is no longer
    /// a candidate.
    basis: u64,
    db: usize,
    /// Start and end of the candidate's key in [`Pool::keys`].
    key: (usize, usize),
}

/// A record seen in the segment that the round looks at now.
#[derive(Clone, Copy, Debug)]
struct SeenRecord {
    score: u64,
    basis: u64,
    /// Index of the record in the order in which the segment was visited.
    visit_index: usize,
    key_bytes: usize,
}

/// The candidates of a round, with the highest score last.
#[derive(Debug, Default)]
struct Pool {
    candidates: Vec<Candidate>,
    keys: Vec<u8>,
    seen: Vec<SeenRecord>,
}

impl Pool {
    fn clear(&mut self) {
        self.candidates.clear();
        self.keys.clear();
        self.keys.shrink_to(KEY_BYTES_PER_ROUND);
    }
    /// Keeps of the records seen in a segment the `best` ones with the highest scores, in the order in which they
    /// were visited. Keeps fewer when their keys would exceed [`KEY_BYTES_PER_ROUND`], but at least one per round.
    fn select(&mut self, best: usize) {
        if best < self.seen.len() {
            let at = self.seen.len() - best;
            self.seen.select_nth_unstable_by_key(at, |seen| seen.score);
            self.seen.drain(..at);
        }
        let room = KEY_BYTES_PER_ROUND.saturating_sub(self.keys.len());
        if self.seen.iter().map(|seen| seen.key_bytes).sum::<usize>() > room {
            self.seen.sort_unstable_by_key(|seen| std::cmp::Reverse(seen.score));
            let (mut bytes, mut first) = (0, self.candidates.is_empty());
            self.seen.retain(|seen| {
                let fits = first || bytes + seen.key_bytes <= room;
                bytes += if fits { seen.key_bytes } else { 0 };
                first = false;
                fits
            });
        }
        self.seen.sort_unstable_by_key(|seen| seen.visit_index);
    }
    /// Adds a record that [`Pool::select`] has kept to the candidates.
    fn add(&mut self, seen: &SeenRecord, db: usize, key: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key = (start, self.keys.len());
        self.candidates.push(Candidate { score: seen.score, basis: seen.basis, db, key });
    }
    /// Ends a round and keeps the `best` candidates.
    fn finish(&mut self, best: usize) {
        self.candidates.sort_unstable_by_key(|c| c.score);
        let surplus = self.candidates.len().saturating_sub(best);
        self.candidates.drain(..surplus);
    }
}

/// The stored value that decides when a record is evicted: its expiry under `volatile-ttl`, else its usage.
fn basis(record: &RecordRef<'_>, order: Order) -> u64 {
    match order {
        Order::SoonestToExpire => key_expiry_ms(&record.0) as u64,
        _ => u64::from(record.0.usage()),
    }
}

/// Score of a record. The record with the highest score is evicted first.
fn score(
    record: &RecordRef<'_>,
    order: Order,
    now_ms: i64,
    settings: &Settings,
    rng: &mut fastrand::Rng,
) -> u64 {
    match order {
        // An expired record has the highest score.
        _ if record.is_expired(now_ms) => u64::MAX,
        Order::LeastRecent => u64::from(record.idle_s(now_ms)),
        Order::LeastFrequent => u64::from(u8::MAX - record.frequency(now_ms, settings)),
        Order::Random => rng.u64(..u64::MAX),
        Order::SoonestToExpire => i64::MAX.abs_diff(key_expiry_ms(&record.0)),
    }
}

impl Keyspace {
    /// Evicts records by `policy` until `bytes` bytes are freed or `records_max` records are gone. Frees less when
    /// the effort of a call is spent, or when the policy allows no further record.
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
        let (mut evicted, mut freed, mut removed) = (Evicted::default(), 0, 0);
        let mut rounds = 0;
        loop {
            while removed < records_max && freed < bytes {
                let Some(candidate) = evictor.pool.candidates.pop() else { break };
                let key = &evictor.pool.keys[candidate.key.0..candidate.key.1];
                if let Some(gone) = self.evict_one(&candidate, key, policy, now_ms) {
                    removed += 1;
                    freed += gone.bytes;
                    evicted.records += usize::from(!gone.expired);
                }
            }
            if removed >= records_max || freed >= bytes {
                break;
            }
            if self.shards.iter().all(|shard| shard.records(policy.expiring_only) == 0) {
                evicted.none_left = true;
                break;
            }
            if rounds == ROUNDS_MAX || evicted.effort >= EFFORT_PER_CALL {
                break;
            }
            rounds += 1;
            evicted.effort += self.scan_round(evictor, policy, EFFORT_PER_CALL - evicted.effort, now_ms);
        }
        evicted
    }
    /// Records evicted since the start or the last [`Keyspace::reset_totals`].
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total.load(Relaxed)
    }

    /// Evicts a candidate. Returns `None` when its record was used or lost its expiry since the round, or when
    /// somebody else holds its shard. An expired candidate is removed, and counts as expired.
    fn evict_one(
        &self,
        candidate: &Candidate,
        key: &[u8],
        policy: Policy,
        now_ms: i64,
    ) -> Option<FreedRecord> {
        let (key, slot) = (self.key(key), self.slot(candidate.db));
        let position = position_of(key.hash.0);
        let place = &self.shards[self.shard_at(position)];
        let mut shard = place.lock.try_lock()?;
        if shard.has_promises() {
            return None;
        }
        let table = shard.table(slot)?;
        let at = table.records.locate(position, key.bytes)?;
        let record = RecordRef(table.records.at(at));
        let expired = record.is_expired(now_ms);
        let stays = basis(&record, policy.order) != candidate.basis || !policy.allows(&record);
        if stays && !expired {
            return None;
        }
        let before = shard.sums().bytes;
        let value = shard.remove(slot, at, &key);
        shard.trim(slot, position);
        let bytes = before.saturating_sub(shard.sums().bytes) as u64;
        place.publish(&shard);
        let mut effects = None;
        if self.listens() {
            let event = if expired { KeyEvent::EXPIRED } else { KeyEvent::EVICTED };
            self.record_removal(slot, key.bytes, &Removal::Key, &mut effects);
            self.report(slot, key.bytes, event, Changed::Yes, NO_CLIENT);
        }
        let placed = effects.and_then(|effects| self.journal().place(effects));
        let is_waited_for = shard.watchers.waiters.has_signalled();
        drop(shard);
        placed.into_iter().for_each(PlacedEffects::write);
        if is_waited_for {
            self.serve_signalled(self.shard_at(position), now_ms);
        }
        value.into_iter().for_each(|value| self.dispose(value));
        match expired {
            true => self.count_expired(ExpiredCounts { keys: 1, fields: 0 }),
            false => drop(self.evicted_total.fetch_add(1, Relaxed)),
        }
        Some(FreedRecord { bytes, expired })
    }
    /// Runs a round: fills the pool with the best candidates of the segments at the hand. Returns the effort, which
    /// may exceed `effort_max` by one segment.
    fn scan_round(&self, evictor: &mut Evictor, policy: Policy, effort_max: usize, now_ms: i64) -> usize {
        let pool = &mut evictor.pool;
        pool.clear();
        // Another thread is moving the hand.
        let Some(mut hand) = self.evict_from.try_lock() else { return 0 };
        let (mut looked_at, mut effort) = (0, 0);
        // Visit every shard once, and the first shard a second time, because the hand may be in the middle of
        // that shard.
        'round: for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *hand;
            let shard_index = self.shard_at(from);
            let shard = &self.shards[shard_index];
            // `records` takes no lock. Thousands of shards may have no records that can be evicted, so this
            // check must be cheap.
            while shard.records(policy.expiring_only) > 0 {
                if looked_at >= LOOKS_PER_ROUND_MIN || effort >= effort_max {
                    *hand = (slot, from);
                    break 'round;
                }
                effort += EFFORT_OF_STEP;
                let Some(mut shard) = shard.lock.try_lock() else { break };
                let Some((next, _)) = shard.next_table(slot, policy.expiring_only) else { break };
                if next != slot {
                    (slot, from) = (next, self.start_of(shard_index));
                }
                let seen = scan_segment(&mut shard, slot, from, policy, pool, &mut |record| {
                    score(record, policy.order, now_ms, &self.settings, &mut evictor.rng)
                });
                looked_at += seen.eligible;
                effort += seen.visited;
                (slot, from) = seen.next.map_or((slot + 1, self.start_of(shard_index)), |from| (slot, from));
            }
            effort += 1;
            *hand = (0, self.start_of((shard_index + 1) & (self.shards.len() - 1)));
            if effort >= effort_max {
                break;
            }
        }
        pool.finish((looked_at / policy.records_per_candidate()).clamp(1, CANDIDATES_MAX));
        effort
    }
}

/// What the removal of one evicted record freed.
struct FreedRecord {
    bytes: u64,
    expired: bool,
}

/// Result of looking at one segment.
struct SegmentScan {
    /// Number of records in the segment.
    visited: usize,
    /// Number of these records that the policy allows to evict.
    eligible: usize,
    /// Start of the next segment. `None` at the end of the shard.
    next: Option<u64>,
}

/// Looks at one segment, and adds its best records to the pool.
fn scan_segment(
    shard: &mut Shard,
    slot: usize,
    from: u64,
    policy: Policy,
    pool: &mut Pool,
    score: &mut dyn FnMut(&RecordRef<'_>) -> u64,
) -> SegmentScan {
    let Some(table) = shard.table(slot) else { return SegmentScan { visited: 0, eligible: 0, next: None } };
    if policy.expiring_only
        && let Some(next) = table.records.without_expiry(from)
    {
        return SegmentScan { visited: 0, eligible: 0, next };
    }
    pool.seen.clear();
    let mut is_listed = false;
    let mut visit = |visit: &mut dyn FnMut(Item<'_, Value>)| {
        let few = policy.expiring_only.then(|| table.records.visit_few_expiring(from, visit)).flatten();
        is_listed = few.is_some();
        few.unwrap_or_else(|| table.records.scan_step(from, usize::MAX, visit))
    };
    let (mut visit_index, mut expiring) = (0, 0);
    let (visited, next) = visit(&mut |item| {
        let record = RecordRef(item);
        expiring += usize::from(record.0.expiry_ms() != i64::MAX);
        if policy.allows(&record) {
            let (score, basis) = (score(&record), basis(&record, policy.order));
            pool.seen.push(SeenRecord { score, basis, visit_index, key_bytes: item.key().len() });
        }
        visit_index += 1;
    });
    let eligible = pool.seen.len();
    // All candidates of the round may come from this segment.
    let best = eligible.max(LOOKS_PER_ROUND_MIN).div_ceil(policy.records_per_candidate());
    pool.select(best.min(CANDIDATES_MAX));
    let seen = std::mem::take(&mut pool.seen);
    let (mut selected, mut visit_index) = (seen.iter().peekable(), 0);
    visit(&mut |item| {
        if let Some(best) = selected.next_if(|best| best.visit_index == visit_index) {
            pool.add(best, slot / 2, item.key());
        }
        visit_index += 1;
    });
    pool.seen = seen;
    // Lets later rounds skip the segment, or look at few records of it.
    let list = match is_listed {
        true => expiring < visited,
        false => policy.expiring_only && expiring <= LISTED_MAX,
    };
    if list {
        shard.list_expiring(slot, from);
    }
    SegmentScan { visited, eligible, next }
}
