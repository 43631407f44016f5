//! [`Waiters`]: the clients that wait until a key has data for them (BLPOP and similar commands). Each shard has
//! its own.
//!
//! A waiter has a [`Registration`] at each of its keys: what it wants there, and its place number, which grows with
//! each new waiter. A change of a key *signals* the key, at the place in the code where it raises the flags of
//! WATCH. Before a [`Txn`] releases its shards, it serves the waiters of the signalled keys, so no other client can
//! take the data first. The trait [`Waiter`] defines how to serve a waiter; the keyspace only knows whose place it
//! is. The cost grows with the number of waiters served, not with the number of all waiters. While nobody waits, a
//! change costs no more than the one branch for WATCH.

use crate::types::Wanted;
use crate::types::stream::{Id, StreamValue};
use crate::watch::{SlotKey, SlotKeyRef, Watchers};
use crate::{AsValue, Db, Key, KeyHash, Keyspace, Txn, ValueRef};
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of readers of one stream, or of waiters for one version, that one piece of work serves. Any
/// further readers are woken and read by themselves, each on its own worker. 512 replies take a quarter of a
/// millisecond.
pub const READERS_SERVED_MAX: usize = 512;
/// A table of waiters keeps its memory when the last waiter leaves, if the memory is for at most this many keys. A
/// queue with one worker is emptied and used again all the time.
const KEPT_KEYS_MAX: usize = 16;

/// The state of a key for which a waiter waits. [`Waiter::serve`] gets this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// The wanted data is there. The waiter may take or read it now.
    Ready,
    /// The wanted data is there, but [`READERS_SERVED_MAX`] waiters were served already. The waiter is woken and
    /// must read the data itself.
    Crowded,
    /// The stream is gone. Only for [`Wanted::Group`].
    KeyGone,
    /// The stream no longer has this group. Only for [`Wanted::Group`].
    GroupGone,
}

/// The result of [`Waiter::serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterOutcome {
    /// The waiter has its data, or an error. Its registration is removed, and it is woken after the shards are
    /// released.
    Done,
    /// The waiter had stopped waiting for another reason. Its registration is removed.
    Left,
    /// The waiter is woken and must fetch the data itself. It keeps its place, and the waiters behind it do not get
    /// the data before it.
    WokenToFetch,
    /// The waiter was woken earlier to fetch the data, and has not fetched it yet.
    AlreadyWoken,
    /// The key has not enough data for this waiter, which keeps its place. A waiter behind it may want less and may
    /// take the data.
    NotEnough,
}

/// A client that waits for keys. [`Waiter::serve`] runs while the shards of a [`Txn`] are held, so it must be quick
/// and must not wait.
pub trait Waiter: Send + Sync + fmt::Debug {
    /// Serves the waiter, because `event` happened at `key`. `tag` is the number with which the waiter registered
    /// at this key.
    fn serve(&self, txn: &mut Txn<'_>, key: &Key<'_>, tag: u32, event: WaitEvent) -> WaiterOutcome;
    /// Wakes the waiter after [`WaiterOutcome::Done`] or [`WaiterOutcome::WokenToFetch`]. Called while no shard is
    /// held.
    fn wake(&self);
}

/// A waiter's registration at one key.
#[derive(Clone, Debug)]
pub struct Registration {
    /// What the waiter wants at this key.
    pub wanted: Wanted,
    /// The number from [`Keyspace::next_place_number`]. A waiter has one number at all its keys.
    pub place_number: u64,
}

/// The sort key of a waiter at a key: first what the waiter wants, then its place number.
type Place = (Wanted, u64);

/// A waiter, with the tag of its registration.
#[derive(Clone, Debug)]
struct WaiterEntry {
    waiter: Arc<dyn Waiter>,
    tag: u32,
}

/// The waiters of one shard, by key.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    keys: HashMap<SlotKey, KeyWaiters, ahash::RandomState>,
    /// Number of registrations for [`Wanted::Group`].
    groups: usize,
    /// Changed keys whose waiters were not served yet, the oldest change first. Each has the number of the change,
    /// which counts over all shards.
    signalled: VecDeque<(u64, SlotKey)>,
    /// The keyspace's counter of place numbers. `Some` after the first waiter has registered.
    place_numbers: Option<Arc<AtomicU64>>,
}

/// The waiters of one key, in the order of their places.
#[derive(Debug, Default)]
struct KeyWaiters {
    queue: BTreeMap<Place, WaiterEntry>,
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
        waits: WaiterEntry,
        place_numbers: &Arc<AtomicU64>,
    ) {
        self.place_numbers.get_or_insert_with(|| place_numbers.clone());
        let waiting = self.keys.entry((slot, key.into())).or_default();
        let is_group = matches!(registration.wanted, Wanted::Group(_));
        let replaced = waiting.queue.insert((registration.wanted, registration.place_number), waits);
        self.groups += usize::from(is_group && replaced.is_none());
    }
    fn remove(&mut self, slot: usize, key: &[u8], registration: Registration) {
        let at = SlotKeyRef(slot, key);
        let Some(waiting) = self.keys.get_mut(&at) else { return };
        let place = (registration.wanted, registration.place_number);
        let is_group = matches!(place.0, Wanted::Group(_));
        self.groups -= usize::from(waiting.queue.remove(&place).is_some() && is_group);
        if waiting.queue.is_empty() {
            self.keys.remove(&at);
        }
        if self.keys.is_empty() && self.keys.capacity() > KEPT_KEYS_MAX {
            self.keys = HashMap::default();
        }
    }
    /// Notes that a key has changed, if somebody waits for the key.
    pub(crate) fn signal(&mut self, slot: usize, key: &[u8]) {
        let Some(waiting) = self.keys.get_mut(&SlotKeyRef(slot, key)) else { return };
        if !std::mem::replace(&mut waiting.is_signalled, true) {
            self.signalled.push_back((next_place_number(&self.place_numbers), (slot, key.into())));
        }
    }
    /// The keys of this slot for which somebody waits.
    pub(crate) fn keys_of(&self, slot: usize) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().filter(move |(of, _)| *of == slot).map(|(_, key)| &**key)
    }
    /// True when somebody waits for the key.
    pub(crate) fn has(&self, slot: usize, key: &[u8]) -> bool {
        self.keys.contains_key(&SlotKeyRef(slot, key))
    }
    /// Number of keys for which somebody waits.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
    /// Signals the keys of these slots at which somebody waits for a group. A waiter for a group is served also when its
    /// key is gone.
    pub(crate) fn signal_groups(&mut self, slots: &[usize]) {
        if self.groups > 0 {
            // `Wanted::Group` is the last variant.
            let has_group = |waiting: &KeyWaiters| {
                matches!(waiting.queue.last_key_value(), Some(((Wanted::Group(_), _), _)))
            };
            self.signal_where(|slot, _, waiting| slots.contains(&slot) && has_group(waiting));
        }
    }
    /// Signals the keys of this slot for which somebody waits and `is_there` returns true.
    pub(crate) fn signal_present(&mut self, slot: usize, is_there: impl Fn(&[u8]) -> bool) {
        self.signal_where(|of, key, _| of == slot && is_there(key));
    }
    fn signal_where(&mut self, is_meant: impl Fn(usize, &[u8], &KeyWaiters) -> bool) {
        for ((slot, key), waiting) in &mut self.keys {
            if !waiting.is_signalled && is_meant(*slot, key, waiting) {
                waiting.is_signalled = true;
                self.signalled.push_back((next_place_number(&self.place_numbers), (*slot, key.clone())));
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
    /// The first waiter at or after `from` that can be served, now that the key has `value` (`None`: the key is
    /// missing).
    fn next(&self, at: &SlotKey, value: Option<ValueRef<'_>>, from: &Bound<Place>) -> Option<ServableWaiter> {
        let queue = &self.keys.get(at)?.queue;
        let first = |low: Wanted, high: Bound<Place>| {
            let from = latest(from, (low, 0));
            // `BTreeMap::range` panics when its start is after its end.
            let begins_in = match (&from, &high) {
                (Bound::Included(from), Bound::Excluded(high)) => from < high,
                (Bound::Excluded(from), Bound::Excluded(high)) => from < high,
                _ => true,
            };
            let range = begins_in.then(|| queue.range((from, high)))?.next()?;
            Some((range.0, range.1))
        };
        let servable = |((wanted, number), waits): (&Place, &WaiterEntry), event| ServableWaiter {
            registration: Registration { wanted: wanted.clone(), place_number: *number },
            waits: waits.clone(),
            event,
        };
        if let Some(wants) = value.and_then(|value| value.serves())
            && let Some(found) = first(wants.start, Bound::Excluded((wants.end, 0)))
        {
            return Some(servable(found, WaitEvent::Ready));
        }
        let groups = Wanted::Group(Box::default());
        let Some(stream) = value.and_then(StreamValue::of) else {
            return first(groups, Bound::Unbounded).map(|found| servable(found, WaitEvent::KeyGone));
        };
        let last = stream.entries().last_entry_id().unwrap_or(Id::MIN);
        let mut next = latest(from, (groups, 0));
        while let Some(found) = queue.range((next, Bound::Unbounded)).next() {
            let Wanted::Group(name) = &found.0.0 else { break };
            match stream.group(name) {
                None => return Some(servable(found, WaitEvent::GroupGone)),
                Some(group) if last > group.last_id() => return Some(servable(found, WaitEvent::Ready)),
                Some(_) => next = Bound::Excluded((found.0.0.clone(), u64::MAX)),
            }
        }
        None
    }
}

fn next_place_number(place_numbers: &Option<Arc<AtomicU64>>) -> u64 {
    place_numbers.as_ref().map_or(0, |place_numbers| place_numbers.fetch_add(1, Relaxed))
}

/// A waiter that can be served, and the state of its key.
struct ServableWaiter {
    registration: Registration,
    waits: WaiterEntry,
    event: WaitEvent,
}

/// The later one of the two starts `from` and `low`.
fn latest(from: &Bound<Place>, low: Place) -> Bound<Place> {
    match from {
        Bound::Included(at) | Bound::Excluded(at) if *at >= low => from.clone(),
        _ => Bound::Included(low),
    }
}

impl Keyspace {
    /// The place number of a new waiter, above all existing numbers. Call this while the shards of the waiter's keys are
    /// held.
    pub fn next_place_number(&self) -> u64 {
        self.place_numbers.fetch_add(1, Relaxed)
    }
    /// Removes a waiter's registration at a key. Does nothing and returns false when somebody else holds the key's
    /// shard.
    pub fn try_leave(&self, db: usize, key: &[u8], registration: Registration) -> bool {
        let hashed = self.key(key);
        let Some(mut shard) = self.shards[self.shard_of(hashed.hash)].lock.try_lock() else { return false };
        shard.watchers.change_waiters(|waiters| waiters.remove(self.slot(db), key, registration));
        true
    }
    /// Like [`Keyspace::try_leave`], but waits for the shard.
    pub fn leave(&self, db: usize, key: &[u8], registration: Registration) {
        let mut shard = self.shards[self.shard_of(self.key(key).hash)].lock.lock();
        shard.watchers.change_waiters(|waiters| waiters.remove(self.slot(db), key, registration));
    }
    /// Like [`Db::pass_place_on`], for a caller that holds no shard. Also serves the next waiter.
    pub fn pass_place_on(&self, db: usize, key: &[u8], registration: Registration, now_ms: i64) {
        let key = self.key(key);
        self.lock(&[key.hash], now_ms).db(db).pass_place_on(&key, registration);
    }
    /// Serves the waiters of one shard's signalled keys, for code that changes a shard without a [`Txn`]. Call this
    /// while no shard is held.
    pub(crate) fn serve_signalled(&self, shard: usize, now_ms: i64) {
        drop(self.lock_shard(shard, now_ms));
    }
}

impl Db<'_, '_> {
    /// Registers a waiter at `key`. [`Waiter::serve`] gets this `tag` when the key changes.
    pub fn wait(&mut self, key: &Key<'_>, registration: Registration, waiter: Arc<dyn Waiter>, tag: u32) {
        let (slot, place_numbers) = (self.slot, &self.txn.keyspace.place_numbers);
        let watchers = &mut self.shard(key).watchers;
        watchers.change_waiters(|waiters| {
            waiters.add(slot, key.bytes, registration, WaiterEntry { waiter, tag }, place_numbers)
        });
    }
    /// Removes the registration of a waiter that was woken to fetch its data ([`WaiterOutcome::WokenToFetch`]), and
    /// serves the waiter behind it.
    pub fn pass_place_on(&mut self, key: &Key<'_>, registration: Registration) {
        let slot = self.slot;
        let watchers = &mut self.shard(key).watchers;
        // Nobody waits behind a waiter whose data is shared.
        if !registration.wanted.is_shared() {
            watchers.waiters.signal(slot, key.bytes);
        }
        watchers.change_waiters(|waiters| waiters.remove(slot, key.bytes, registration));
    }
}

impl Txn<'_> {
    /// Serves the waiters of all signalled keys in the held shards. Returns the waiters to wake after the shards
    /// are released.
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
            // This look-up removes the key if it has expired.
            Db { txn: self, slot: at.0 }.refresh(&key);
            let held = &self.shard_guard(shard).lock;
            let next = held.watchers.waiters.next(at, held.value(at.0, &key), &from);
            let Some(ServableWaiter { registration, waits: WaiterEntry { waiter, tag }, mut event }) = next
            else {
                return;
            };
            if registration.wanted.is_shared() {
                readers += 1;
                if readers > READERS_SERVED_MAX {
                    event = WaitEvent::Crowded;
                }
            }
            let served = waiter.serve(self, &key, tag, event);
            if matches!(served, WaiterOutcome::Done | WaiterOutcome::WokenToFetch) {
                woken.push(waiter);
            }
            if served == WaiterOutcome::NotEnough {
                from = Bound::Excluded((registration.wanted, registration.place_number));
                continue;
            }
            if matches!(served, WaiterOutcome::WokenToFetch | WaiterOutcome::AlreadyWoken) {
                // Of several readers of a stream, each may be woken to read. At a list, a sorted set or a group,
                // skip all waiters behind this one, because nobody may overtake it.
                let last = if registration.wanted.is_shared() { registration.place_number } else { u64::MAX };
                from = Bound::Excluded((registration.wanted, last));
                continue;
            }
            from = Bound::Included((registration.wanted.clone(), registration.place_number));
            let watchers = &mut self.shard_guard(shard).lock.watchers;
            watchers.change_waiters(|waiters| waiters.remove(at.0, &at.1, registration));
        }
    }
    /// The key with the oldest signal in the held shards, and the index of its shard.
    fn take_signal(&mut self) -> Option<(usize, SlotKey)> {
        let firsts = self
            .held_shards()
            .filter_map(|(index, shard)| shard.watchers.waiters.first_signal().map(|when| (when, index)));
        let (_, index) = firsts.min()?;
        let at = self.shard_guard(index).lock.watchers.waiters.take_signal()?;
        Some((index, at))
    }
    /// Locks the shard of this key as well, if somebody else holds it only for a short piece of work. Otherwise
    /// returns false.
    pub fn try_hold_one_more(&mut self, hash: KeyHash) -> bool {
        let shard = self.keyspace.shard_of(hash);
        self.lock_one_more(shard)
    }
}

impl Watchers {
    /// Lets `change` write to the waiters, and updates whether anybody waits.
    fn change_waiters(&mut self, change: impl FnOnce(&mut Waiters)) {
        change(&mut self.waiters);
        self.update_has_any();
    }
}

#[cfg(test)]
mod tests;
