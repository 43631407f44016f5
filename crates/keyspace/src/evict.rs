//! Eviction: which records go when memory runs out, a bounded number of them at a time.
//!
//! Redis draws `maxmemory-samples` keys for each eviction, each from another place in memory. Here a *hand* goes round
//! over all segments: a segment is a random sample of the keys, it lies together, and taking several victims from it
//! lets its heap shrink, which is what gives memory back. So a round looks at whole segments, at some hundred records at
//! least, keeps the best candidates ([`Pool`]), one for each `maxmemory-samples` records seen, and evicts from those
//! until enough is free. A candidate that was used since it was seen is dropped, not evicted.
//!
//! Where few records may go (expiring ones among many that are not), a call ends after [`EFFORT_PER_CALL`] with what it
//! found, and the next one goes on from there. That nothing is left is not found out by looking: the shards say how many
//! records they have.
//!
//! One shard is held at a time, for a segment or for an eviction; one that somebody else holds is passed by.

use crate::extendible::position_of;
use crate::journal::Placed;
use crate::record::key_expiry_ms;
use crate::shard::Shard;
use crate::{KeyEvent, Keyspace, RecordRef, Settings};
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
/// A call looks no further after this much: a record looked at counts one, each of some 10 to 100 ns by how many of them
/// share a cache line.
const EFFORT_PER_CALL: usize = 2048;
/// What a segment counts besides: its memory is met for the first time. A shard that is passed by counts one.
const EFFORT_OF_STEP: usize = 8;
/// Of keys that a round copies; beyond that, only that of its best candidate.
const KEY_BYTES_PER_ROUND: usize = 64 << 10;

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
    pub expiring_only: bool,
    /// Whose turn it is.
    pub order: Order,
    /// `maxmemory-samples`: records looked at for each evicted.
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

/// What one call evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Records.
    pub records: usize,
    /// There was no record that the policy allows to evict.
    pub none_left: bool,
    /// Records looked at, and some more for each shard and segment: bounded.
    pub effort: usize,
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

/// A record seen in the segment in hand.
#[derive(Clone, Copy, Debug)]
struct Seen {
    score: u64,
    basis: u64,
    /// Among those visited.
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
    /// Of those seen in a segment, only this many of the best stay, in the order in which they were seen: as many as
    /// have room for their keys, and one if none has.
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
    /// Takes one of those that were selected.
    fn add(&mut self, seen: &Seen, db: usize, key: &[u8]) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key = (start, self.keys.len());
        self.candidates.push(Candidate { score: seen.score, basis: seen.basis, db, key });
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
        Order::SoonestToExpire => key_expiry_ms(&record.0) as u64,
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
        Order::SoonestToExpire => i64::MAX.abs_diff(key_expiry_ms(&record.0)),
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
    /// Records evicted since the start, or since [`Keyspace::reset_totals`].
    pub fn evicted_total(&self) -> u64 {
        self.evicted_total.load(Relaxed)
    }

    /// Evicts a candidate, unless it was used or lost its expiry meanwhile, or somebody holds its shard. One that has
    /// expired is gone for good, too, but not evicted.
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
    /// Fills the pool with the best candidates of the segments that are next; the effort, which passes `effort_max` by a
    /// segment at most.
    fn look_round(&self, evictor: &mut Evictor, policy: Policy, effort_max: usize, now_ms: i64) -> usize {
        let pool = &mut evictor.pool;
        pool.clear();
        // Another thread is at it.
        let Some(mut hand) = self.evict_from.try_lock() else { return 0 };
        let (mut looked_at, mut effort) = (0, 0);
        // Once around: every shard, and the one it starts in the middle of twice.
        'round: for _ in 0..=self.shards.len() {
            let (mut slot, mut from) = *hand;
            let shard_index = self.shard_at(from);
            let shard = &self.shards[shard_index];
            // Asked without its lock: there may be thousands that have nothing.
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

/// A record that was a candidate and is gone.
struct Gone {
    bytes: u64,
    expired: bool,
}

/// What was met in a segment.
struct Look {
    /// Records.
    visited: usize,
    /// Those of them that may go.
    eligible: usize,
    /// Where the next segment begins.
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
        // Its records lost their expiry; from now on it is passed by.
        shard.raise_expiry(slot, from);
        return Look { visited, eligible, next };
    }
    // All of the round's candidates may be here.
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
