//! Eviction: which records go when memory runs out, a bounded number at a time.
//!
//! Redis draws `maxmemory-samples` keys for each eviction, each from another place in memory. Here a *hand* goes
//! round over all segments. A segment is a random sample of the keys. It lies together in memory, and taking
//! several victims from it lets its heap shrink, which is what gives memory back. So a round looks at whole
//! segments, and at a minimum of [`LOOKS_PER_ROUND_MIN`] records. It keeps the best candidates ([`Pool`]), one for
//! each `maxmemory-samples` records seen, and evicts candidates until enough is free. A candidate that was used
//! after it was seen is dropped, not evicted.
//!
//! When few records may go (a few expiring ones among many others), a call ends after [`EFFORT_PER_CALL`] with
//! what it found, and the next call continues there. The shards know their numbers of records, so no search is
//! needed to find out that none is left.
//!
//! Eviction holds one shard at a time, for one segment or one eviction. It skips a shard that is held elsewhere.

use crate::extendible::position_of;
use crate::journal::Placed;
use crate::record::key_expiry_ms;
use crate::shard::Shard;
use crate::{KeyEvent, Keyspace, RecordRef, Settings};
use std::sync::atomic::Ordering::Relaxed;

/// Fewest records of a round, one or two segments. In a small keyspace the best candidates are then compared with
/// all keys.
const LOOKS_PER_ROUND_MIN: usize = 256;
/// Most candidates of a round, for every value of `maxmemory-samples`.
const CANDIDATES_MAX: usize = 128;
/// With `volatile-ttl` a candidate stands for at least this many records, because this policy wants only the very
/// first to expire.
const LOOKS_PER_CANDIDATE_MIN_TTL: usize = 16;
/// Rounds of one call.
const ROUNDS_MAX: usize = 4;
/// A call stops looking after this effort. One record counts one: 10 to 100 ns, depending on how many share a
/// cache line.
const EFFORT_PER_CALL: usize = 2048;
/// Extra effort of a segment, because its memory is not cached. Skipping a shard counts one.
const EFFORT_OF_STEP: usize = 8;
/// Bytes of keys that a round copies. Beyond this limit only the key of the round's best candidate is copied.
const KEY_BYTES_PER_ROUND: usize = 64 << 10;

/// Which record goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one unused for the longest time.
    LeastRecent,
    /// The least often used one.
    LeastFrequent,
    /// Any record.
    Random,
    /// The one that expires first.
    SoonestToExpire,
}

/// `maxmemory-policy` (without noeviction) and its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Evict only records with an expiry.
    pub expiring_only: bool,
    /// Which record goes first.
    pub order: Order,
    /// `maxmemory-samples`: records looked at for each evicted one.
    pub samples: usize,
}

impl Policy {
    fn allows(&self, record: &RecordRef<'_>) -> bool {
        !self.expiring_only || key_expiry_ms(&record.0) != i64::MAX
    }
    fn looks_per_candidate(&self) -> usize {
        match self.order {
            Order::SoonestToExpire => self.samples.max(LOOKS_PER_CANDIDATE_MIN_TTL),
            Order::Random => 1,
            _ => self.samples.max(1),
        }
    }
}

/// Result of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Number of evicted records.
    pub records: usize,
    /// The policy allows no further record to be evicted.
    pub none_left: bool,
    /// Records looked at, plus some for each shard and segment. Bounded.
    pub effort: usize,
}

/// State between calls: the candidates. Used by one thread at a time.
#[derive(Debug)]
pub struct Evictor {
    pool: Pool,
    policy: Option<Policy>,
    rng: fastrand::Rng,
}

impl Evictor {
    /// Without candidates. `seed` is for the random generator.
    pub fn new(seed: u64) -> Evictor {
        Evictor { pool: Pool::default(), policy: None, rng: fastrand::Rng::with_seed(seed) }
    }
}

/// A record that may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// The highest score goes first.
    score: u64,
    /// Usage or expiry behind the score. If it has changed, the record is no longer a candidate.
    basis: u64,
    db: usize,
    /// Start and end of its key in [`Pool::keys`].
    key: (usize, usize),
}

/// A record seen in the current segment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    score: u64,
    basis: u64,
    /// Its number among the visited records.
    number: usize,
    key_bytes: usize,
}

/// The candidates of a round, the best one last.
#[derive(Debug, Default)]
struct Pool {
    candidates: Vec<Candidate>,
    keys: Vec<u8>,
    seen: Vec<Seen>,
}

impl Pool {
    fn clear(&mut self) {
        self.candidates.clear();
        self.keys.clear();
        self.keys.shrink_to(KEY_BYTES_PER_ROUND);
    }
    /// Keeps at most `best` records with the highest scores of those seen in a segment, in the order in which they
    /// were seen. The limit on key bytes may leave fewer, but at least one of the round.
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
        self.seen.sort_unstable_by_key(|seen| seen.number);
    }
    /// Adds one of the selected records.
    fn add(&mut self, seen: &Seen, db: usize, key: &[u8]) {
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

/// The value that decides about a record's turn, as it is stored.
fn basis(record: &RecordRef<'_>, order: Order) -> u64 {
    match order {
        Order::SoonestToExpire => key_expiry_ms(&record.0) as u64,
        _ => u64::from(record.0.used()),
    }
}

/// Score of a record. The highest score goes first.
fn score(
    record: &RecordRef<'_>,
    order: Order,
    now_ms: i64,
    settings: &Settings,
    rng: &mut fastrand::Rng,
) -> u64 {
    match order {
        // Expired records go first.
        _ if record.is_expired(now_ms) => u64::MAX,
        Order::LeastRecent => u64::from(record.idle_s(now_ms)),
        Order::LeastFrequent => u64::from(u8::MAX - record.frequency(now_ms, settings)),
        Order::Random => rng.u64(..u64::MAX),
        Order::SoonestToExpire => i64::MAX.abs_diff(key_expiry_ms(&record.0)),
    }
}

impl Keyspace {
    /// Evicts records by `policy` until `bytes` are free, but at most `records_max` records.
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
            evicted.effort += self.look_round(evictor, policy, EFFORT_PER_CALL - evicted.effort, now_ms);
        }
        evicted
    }
    /// Records evicted since the start or the last [`Keyspace::reset_totals`].
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total.load(Relaxed)
    }

    /// Evicts a candidate, unless it was used or lost its expiry meanwhile, or its shard is held. An expired
    /// candidate is removed but not counted as evicted.
    fn evict_one(&self, candidate: &Candidate, key: &[u8], policy: Policy, now_ms: i64) -> Option<Gone> {
        let (key, slot) = (self.key(key), self.slot(candidate.db));
        let position = position_of(key.hash.0);
        let place = &self.shards[self.shard_at(position)];
        let mut shard = place.lock.try_lock()?;
        if shard.is_promised() {
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
            self.note_gone(slot, key.bytes, &[], &mut effects);
            self.tell(slot, key.bytes, event, true, 0);
        }
        let placed = effects.and_then(|effects| self.journal().place(effects));
        let is_waited_for = shard.watchers.waiters.has_signalled();
        drop(shard);
        placed.into_iter().for_each(Placed::put);
        if is_waited_for {
            self.serve_signalled(self.shard_at(position), now_ms);
        }
        value.into_iter().for_each(|value| self.dispose(value));
        match expired {
            true => self.count_expired(1),
            false => drop(self.evicted_total.fetch_add(1, Relaxed)),
        }
        Some(Gone { bytes, expired })
    }
    /// Fills the pool with the best candidates of the next segments. Returns the effort, which exceeds
    /// `effort_max` by one segment at most.
    fn look_round(&self, evictor: &mut Evictor, policy: Policy, effort_max: usize, now_ms: i64) -> usize {
        let pool = &mut evictor.pool;
        pool.clear();
        // Another thread moves the hand.
        let Some(mut hand) = self.evict_from.try_lock() else { return 0 };
        let (mut looked_at, mut effort) = (0, 0);
        // Once around: every shard, and the starting shard twice because the round may start in its middle.
        'round: for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *hand;
            let shard_index = self.shard_at(from);
            let shard = &self.shards[shard_index];
            // Read without the lock, because thousands of shards may have no records.
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
                let seen = look_at_segment(&mut shard, slot, from, policy, pool, &mut |record| {
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
        pool.finish((looked_at / policy.looks_per_candidate()).clamp(1, CANDIDATES_MAX));
        effort
    }
}

/// A candidate that was removed.
struct Gone {
    bytes: u64,
    expired: bool,
}

/// Result of looking at one segment.
struct Look {
    /// Records seen.
    visited: usize,
    /// Records that the policy allows to evict.
    eligible: usize,
    /// Start of the next segment.
    next: Option<u64>,
}

/// Looks at one segment and puts its best records into the pool.
fn look_at_segment(
    shard: &mut Shard,
    slot: usize,
    from: u64,
    policy: Policy,
    pool: &mut Pool,
    score: &mut dyn FnMut(&RecordRef<'_>) -> u64,
) -> Look {
    let Some(table) = shard.table(slot) else { return Look { visited: 0, eligible: 0, next: None } };
    if policy.expiring_only
        && let Some(next) = table.records.without_expiry(from)
    {
        return Look { visited: 0, eligible: 0, next };
    }
    pool.seen.clear();
    let mut number = 0;
    let (_, next) = table.records.scan_step(from, usize::MAX, &mut |item| {
        let record = RecordRef(item);
        if policy.allows(&record) {
            let (score, basis) = (score(&record), basis(&record, policy.order));
            pool.seen.push(Seen { score, basis, number, key_bytes: item.key().len() });
        }
        number += 1;
    });
    let (visited, eligible) = (number, pool.seen.len());
    if eligible == 0 {
        // Its records lost their expiry. From now on the segment is skipped.
        shard.raise_expiry(slot, from);
        return Look { visited, eligible, next };
    }
    // All candidates of the round may be in this segment.
    let best = eligible.max(LOOKS_PER_ROUND_MIN).div_ceil(policy.looks_per_candidate());
    pool.select(best.min(CANDIDATES_MAX));
    let seen = std::mem::take(&mut pool.seen);
    let (mut selected, mut number) = (seen.iter().peekable(), 0);
    table.records.scan_step(from, usize::MAX, &mut |item| {
        if let Some(best) = selected.next_if(|best| best.number == number) {
            pool.add(best, slot / 2, item.key());
        }
        number += 1;
    });
    pool.seen = seen;
    Look { visited, eligible, next }
}
