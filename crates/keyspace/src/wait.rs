//! [`Waiters`]: the clients that wait until a key has something for them (BLPOP and similar commands), per shard.
//!
//! A waiter has a [`Registration`] at each of its keys: what it wants there, and a number for its turn. A change
//! of the key signals it, where the flags of WATCH are raised. A [`Txn`] serves the signalled keys before it
//! releases its shards, so nobody else sees the data that a waiter takes. [`Waiter`] defines how to serve a
//! waiter. The keyspace only knows whose turn it is, and its cost grows with the waiters served, not with all
//! waiters. While nobody waits, a change costs the one branch of WATCH.

use crate::types::stream::Id;
use crate::watch::Watchers;
use crate::{Db, HashValue, Key, KeyHash, Keyspace, Txn, ValueRef};
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Readers of one stream, or waiters for one version, that one piece of work serves. Later readers are told to read
/// by themselves, each on its own worker. This many replies take a quarter of a millisecond.
pub const READERS_SERVED_MAX: usize = 512;

/// What a waiter wants at a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// A published version of a dataset with this number or a higher one ([`PUBLISHED_FIELD`]).
    Version(u64),
    /// A list.
    List,
    /// A sorted set.
    ZSet,
    /// Entries of a stream above this ID.
    After(Id),
    /// Entries of a stream that the group of this name has not read.
    Group(Box<[u8]>),
}

/// The field of a dataset's hash, in a system database, that lists the dataset's published versions. It begins with
/// the number of the newest one in decimal digits.
pub const PUBLISHED_FIELD: &[u8] = b"/published";

impl Wanted {
    /// True when any number of waiters can be served with one piece of data. No waiter waits behind another one then.
    fn is_shared(&self) -> bool {
        matches!(self, Wanted::After(_) | Wanted::Version(_))
    }
}

/// The number of the newest published version in a dataset's hash; 0 when there is none.
fn published(hash: &HashValue) -> u64 {
    let Some(list) = hash.get(PUBLISHED_FIELD) else { return 0 };
    let digits = list.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// What happened at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The wanted data is there.
    Ready,
    /// The wanted data is there, but too many waiters were served already. The waiter must fetch it.
    Crowded,
    /// The stream is gone. Only for [`Wanted::Group`].
    KeyGone,
    /// The stream no longer has this group. Only for [`Wanted::Group`].
    GroupGone,
}

/// Result of serving a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterOutcome {
    /// The waiter has what it waited for. It leaves this key, and is woken after the shards are released.
    Done,
    /// The waiter no longer waits, for another reason. It leaves this key.
    Left,
    /// The waiter is woken and must fetch the data. It keeps its place, and the waiters after it wait for it.
    Told,
    /// The waiter was told before and has not come yet.
    Comes,
    /// The data is not enough for the waiter, which keeps its place. The waiters after it may have the data.
    TooLittle,
}

/// A client that waits. Called with the shards of a [`Txn`] held, so it must be quick and must not wait.
pub trait Waiter: Send + Sync + fmt::Debug {
    /// `event` happened at `key`, where the waiter registered with this `tag`.
    fn serve(&self, txn: &mut Txn<'_>, key: &Key<'_>, tag: u32, event: Event) -> WaiterOutcome;
    /// Wakes the waiter after it was served or told to come. Called while no shard is held.
    fn wake(&self);
}

/// A waiter's registration at one key.
#[derive(Clone, Debug)]
pub struct Registration {
    /// What the waiter wants there.
    pub wanted: Wanted,
    /// The turn from [`Keyspace::next_turn`], equal at all keys of the waiter.
    pub turn: u64,
}

/// A key of one database: slot and bytes.
type SlotKey = (usize, Box<[u8]>);
/// What is wanted, and the number of the turn.
type Turn = (Wanted, u64);

/// A waiter with its tag.
#[derive(Clone, Debug)]
struct Waits {
    waiter: Arc<dyn Waiter>,
    tag: u32,
}

/// The waiters of one shard.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: HashMap<SlotKey, Waiting, ahash::RandomState>,
    /// Keys that changed, in order: the number of the change (over all shards), and the key.
    signalled: VecDeque<(u64, SlotKey)>,
    /// The keyspace's counter of turns, after the first waiter came.
    turns: Option<Arc<AtomicU64>>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: BTreeMap<Turn, Waits>,
    is_signalled: bool,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    #[inline]
    pub(crate) fn has_signalled(&self) -> bool {
        !self.signalled.is_empty()
    }
    fn add(
        &mut self,
        slot: usize,
        key: &[u8],
        registration: Registration,
        waits: Waits,
        turns: &Arc<AtomicU64>,
    ) {
        self.turns.get_or_insert_with(|| turns.clone());
        let waiting = self.keys.entry((slot, key.into())).or_default();
        waiting.queue.insert((registration.wanted, registration.turn), waits);
    }
    fn remove(&mut self, slot: usize, key: &[u8], registration: Registration) {
        let at = (slot, Box::from(key));
        let Some(waiting) = self.keys.get_mut(&at) else { return };
        waiting.queue.remove(&(registration.wanted, registration.turn));
        if waiting.queue.is_empty() {
            self.keys.remove(&at);
        }
        if self.keys.is_empty() {
            self.keys = HashMap::default();
        }
    }
    /// Signals a changed key.
    pub(crate) fn signal(&mut self, slot: usize, key: &[u8]) {
        let at = (slot, Box::from(key));
        let Some(waiting) = self.keys.get_mut(&at) else { return };
        if !std::mem::replace(&mut waiting.is_signalled, true) {
            self.signalled.push_back((next_turn(&self.turns), at));
        }
    }
    /// The keys of this slot that somebody waits for.
    pub(crate) fn keys_of(&self, slot: usize) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().filter(move |(of, _)| *of == slot).map(|(_, key)| &**key)
    }
    /// Signals every key of these slots.
    pub(crate) fn signal_slots(&mut self, slots: &[usize]) {
        for ((slot, key), waiting) in &mut self.keys {
            if slots.contains(slot) && !std::mem::replace(&mut waiting.is_signalled, true) {
                self.signalled.push_back((next_turn(&self.turns), (*slot, key.clone())));
            }
        }
    }
    fn first_signal(&self) -> Option<u64> {
        self.signalled.front().map(|(when, _)| *when)
    }
    fn take_signal(&mut self) -> Option<SlotKey> {
        let (_, at) = self.signalled.pop_front()?;
        if let Some(waiting) = self.keys.get_mut(&at) {
            waiting.is_signalled = false;
        }
        Some(at)
    }
    /// The next waiter at a key with `value`, starting at `from`.
    fn next(&self, at: &SlotKey, value: Option<ValueRef<'_>>, from: &Bound<Turn>) -> Option<Next> {
        let queue = &self.keys.get(at)?.queue;
        let first = |low: Wanted, high: Bound<Turn>| {
            let from = latest(from, (low, 0));
            // `range` panics when the start is after the end.
            let begins_in = match (&from, &high) {
                (Bound::Included(from), Bound::Excluded(high)) => from < high,
                (Bound::Excluded(from), Bound::Excluded(high)) => from < high,
                _ => true,
            };
            let range = begins_in.then(|| queue.range((from, high)))?.next()?;
            Some((range.0, range.1))
        };
        let turn = |((wanted, turn), waits): (&Turn, &Waits), event| Next {
            registration: Registration { wanted: wanted.clone(), turn: *turn },
            waits: waits.clone(),
            event,
        };
        let groups = Wanted::Group(Box::default());
        match value {
            Some(ValueRef::List(_)) => {
                if let Some(found) = first(Wanted::List, Bound::Excluded((Wanted::ZSet, 0))) {
                    return Some(turn(found, Event::Ready));
                }
            }
            Some(ValueRef::ZSet(_)) => {
                if let Some(found) = first(Wanted::ZSet, Bound::Excluded((Wanted::After(Id::MIN), 0))) {
                    return Some(turn(found, Event::Ready));
                }
            }
            Some(ValueRef::Stream(stream)) => {
                let last = stream.entries().last_entry_id().unwrap_or(Id::MIN);
                let readers = first(Wanted::After(Id::MIN), Bound::Excluded((Wanted::After(last), 0)));
                if let Some(found) = readers {
                    return Some(turn(found, Event::Ready));
                }
                let mut next = latest(from, (groups, 0));
                while let Some(found) = queue.range((next, Bound::Unbounded)).next() {
                    let Wanted::Group(name) = &found.0.0 else { break };
                    match stream.group(name) {
                        None => return Some(turn(found, Event::GroupGone)),
                        Some(group) if last > group.last_id() => return Some(turn(found, Event::Ready)),
                        Some(_) => next = Bound::Excluded((found.0.0.clone(), u64::MAX)),
                    }
                }
                return None;
            }
            Some(ValueRef::Hash(hash)) => {
                let after = Wanted::Version(published(hash).saturating_add(1));
                if let Some(found) = first(Wanted::Version(0), Bound::Excluded((after, 0))) {
                    return Some(turn(found, Event::Ready));
                }
            }
            None | Some(ValueRef::Str(_) | ValueRef::Set(_)) => {}
        }
        first(groups, Bound::Unbounded).map(|found| turn(found, Event::KeyGone))
    }
}

fn next_turn(turns: &Option<Arc<AtomicU64>>) -> u64 {
    turns.as_ref().map_or(0, |turns| turns.fetch_add(1, Relaxed))
}

/// The next waiter.
struct Next {
    registration: Registration,
    waits: Waits,
    event: Event,
}

/// The later one of both starts.
fn latest(from: &Bound<Turn>, low: Turn) -> Bound<Turn> {
    match from {
        Bound::Included(at) | Bound::Excluded(at) if *at >= low => from.clone(),
        _ => Bound::Included(low),
    }
}

impl Keyspace {
    /// The turn of a new waiter, later than all existing turns. Call it with the shards of the waiter's keys held.
    pub fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Relaxed)
    }
    /// Removes a waiter's registration. Returns false when the shard is held.
    pub fn try_leave(&self, db: usize, key: &[u8], registration: Registration) -> bool {
        let hashed = self.key(key);
        let Some(mut shard) = self.shards[self.shard_of(hashed.hash)].lock.try_lock() else { return false };
        shard.watchers.change_waiters(|waiters| waiters.remove(self.slot(db), key, registration));
        true
    }
    /// As [`Keyspace::try_leave`], but waits for the shard.
    pub fn leave(&self, db: usize, key: &[u8], registration: Registration) {
        let mut shard = self.shards[self.shard_of(self.key(key).hash)].lock.lock();
        shard.watchers.change_waiters(|waiters| waiters.remove(self.slot(db), key, registration));
    }
    /// As [`Db::leave_turn`], but waits for the shard. Serves the next waiter.
    pub fn leave_turn(&self, db: usize, key: &[u8], registration: Registration, now_ms: i64) {
        let key = self.key(key);
        self.lock(&[key.hash], now_ms).db(db).leave_turn(&key, registration);
    }
    /// Serves the signalled keys of a shard that was changed without a [`Txn`]. Call it while no shard is held.
    pub(crate) fn serve_signalled(&self, shard: usize, now_ms: i64) {
        drop(self.lock_shard(shard, now_ms));
    }
}

impl Db<'_, '_> {
    /// Registers a waiter at `key`. Changes of the key pass `tag` back to it.
    pub fn wait(&mut self, key: &Key<'_>, registration: Registration, waiter: Arc<dyn Waiter>, tag: u32) {
        let (slot, turns) = (self.slot, &self.txn.keyspace.turns);
        let watchers = &mut self.shard(key).watchers;
        watchers.change_waiters(|waiters| {
            waiters.add(slot, key.bytes, registration, Waits { waiter, tag }, turns)
        });
    }
    /// Removes the registration of a waiter that was told to come ([`WaiterOutcome::Told`]), and lets the next
    /// waiter have its turn.
    pub fn leave_turn(&mut self, key: &Key<'_>, registration: Registration) {
        let slot = self.slot;
        let watchers = &mut self.shard(key).watchers;
        // Nobody waits behind a reader.
        if !registration.wanted.is_shared() {
            watchers.waiters.signal(slot, key.bytes);
        }
        watchers.change_waiters(|waiters| waiters.remove(slot, key.bytes, registration));
    }
}

impl Txn<'_> {
    /// Serves the waiters of changed keys. Wake the returned ones after the shards are released.
    #[cold]
    pub(crate) fn serve_waiters(&mut self) -> Vec<Arc<dyn Waiter>> {
        let mut woken = Vec::new();
        while let Some((shard, at)) = self.take_signal() {
            self.serve_key(shard, &at, &mut woken);
        }
        woken
    }
    fn serve_key(&mut self, shard: usize, at: &SlotKey, woken: &mut Vec<Arc<dyn Waiter>>) {
        let key = self.keyspace.key(&at.1);
        let (mut from, mut readers) = (Bound::Unbounded, 0);
        loop {
            // A look-up removes an expired key.
            Db { txn: self, slot: at.0 }.look(&key);
            let held = &self.held(shard).guard;
            let turn = held.watchers.waiters.next(at, held.value(at.0, &key), &from);
            let Some(Next { registration, waits: Waits { waiter, tag }, mut event }) = turn else { return };
            if registration.wanted.is_shared() {
                readers += 1;
                if readers > READERS_SERVED_MAX {
                    event = Event::Crowded;
                }
            }
            let served = waiter.serve(self, &key, tag, event);
            if matches!(served, WaiterOutcome::Done | WaiterOutcome::Told) {
                woken.push(waiter);
            }
            if served == WaiterOutcome::TooLittle {
                from = Bound::Excluded((registration.wanted, registration.turn));
                continue;
            }
            if matches!(served, WaiterOutcome::Told | WaiterOutcome::Comes) {
                // Each reader may come by itself. At a list, a sorted set or a group nobody may overtake.
                let last = if registration.wanted.is_shared() { registration.turn } else { u64::MAX };
                from = Bound::Excluded((registration.wanted, last));
                continue;
            }
            from = Bound::Included((registration.wanted.clone(), registration.turn));
            let watchers = &mut self.held(shard).guard.watchers;
            watchers.change_waiters(|waiters| waiters.remove(at.0, &at.1, registration));
        }
    }
    /// The key that was signalled first, and its shard.
    fn take_signal(&mut self) -> Option<(usize, SlotKey)> {
        let firsts = self
            .held_shards()
            .filter_map(|(index, shard)| shard.watchers.waiters.first_signal().map(|when| (when, index)));
        let (_, index) = firsts.min()?;
        let at = self.held(index).guard.watchers.waiters.take_signal()?;
        Some((index, at))
    }
    /// Also holds the shard of this key. Returns false when that stays held for longer than a short piece of work.
    pub fn also_hold(&mut self, hash: KeyHash) -> bool {
        let shard = self.keyspace.shard_of(hash);
        self.hold_one_more(shard)
    }
}

impl Watchers {
    /// Lets `change` write to the waiters.
    fn change_waiters(&mut self, change: impl FnOnce(&mut Waiters)) {
        change(&mut self.waiters);
        self.look_whether_any();
    }
}

#[cfg(test)]
mod tests;
