//! [`Txn`]: the shards that a piece of work holds, and what the work did there.
//!
//! Data is read and changed through a `Txn` alone ([`Txn::db`]). What a command replaced or removed is freed after the
//! shards are let go. How a record is found and changed is in [`crate::db`].

use crate::event::{Caller, KeptEvents, KeyEvent};
use crate::journal::effects::{Arg, Effects, EffectsMark};
use crate::journal::{Journal, Placed};
use crate::settings::{JOURNAL, LISTENER};
use crate::shard::{Clock, LockedShard, Shard};
use crate::{Db, Flushed, KeyHash, Keyspace, Value};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a piece of work that holds shards waits for one more, once: short holds take microseconds. It may wait for
/// somebody who waits for it, so it must not be long.
const ONE_MORE_PATIENCE: Duration = Duration::from_micros(100);

/// Shards held by one piece of work.
#[derive(Debug)]
pub struct Txn<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// In ascending order.
    held: SmallVec<[ShardGuard<'k>; 1]>,
    pub(crate) clock: Clock<'k>,
    /// `CLIENT NO-TOUCH`: reading does not mark records used.
    pub(crate) no_touch: bool,
    /// Reads that found a record, and that did not.
    pub(crate) lookups: Lookups,
    /// How changes are called, while somebody listens.
    pub(crate) caller: Caller,
    /// What it did, while changes are recorded.
    effects: Option<Box<Effects>>,
    /// Events that are told later: see [`Txn::keep_events`].
    kept: Option<Box<KeptEvents>>,
    /// One place inline: a SET that replaces a value allocates nothing for it.
    garbage: SmallVec<[Value; 1]>,
    /// Tables that [`Txn::flush_later`] took out.
    flushed: Vec<Flushed>,
}

/// What a piece of work did before other work was done in its place.
#[derive(Debug)]
pub(crate) struct Apart {
    kept: Option<Box<KeptEvents>>,
    effects: Option<Box<Effects>>,
}

/// What reading found: INFO's `keyspace_hits` and `keyspace_misses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// [`Db::get`] found a record.
    pub hits: u64,
    /// It found none.
    pub misses: u64,
}

#[derive(Debug)]
pub(crate) struct ShardGuard<'k> {
    shard: usize,
    slot: &'k LockedShard,
    pub(crate) guard: MutexGuard<'k, Shard>,
    /// It was written to.
    pub(crate) changed: bool,
}

impl<'k> ShardGuard<'k> {
    #[inline]
    fn lock(keyspace: &'k Keyspace, shard: usize) -> ShardGuard<'k> {
        let slot = &keyspace.shards[shard];
        ShardGuard { shard, slot, guard: slot.lock.lock(), changed: false }
    }
    #[inline]
    fn try_lock(keyspace: &'k Keyspace, shard: usize) -> Option<ShardGuard<'k>> {
        let slot = &keyspace.shards[shard];
        Some(ShardGuard { shard, slot, guard: slot.lock.try_lock()?, changed: false })
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.slot.publish(&self.guard);
        }
    }
}

impl<'k> Txn<'k> {
    /// Holds one shard; allocates nothing.
    #[inline]
    pub(crate) fn one(keyspace: &'k Keyspace, shard: usize, now_ms: i64) -> Txn<'k> {
        let mut txn = Txn::none(keyspace, now_ms);
        txn.held.push(ShardGuard::lock(keyspace, shard));
        txn
    }
    /// Holds these shards, which ascend.
    pub(crate) fn ascending(
        keyspace: &'k Keyspace,
        shards: impl Iterator<Item = usize>,
        now_ms: i64,
    ) -> Txn<'k> {
        let mut txn = Txn::none(keyspace, now_ms);
        txn.held.extend(shards.map(|shard| ShardGuard::lock(keyspace, shard)));
        debug_assert!(txn.held.windows(2).all(|w| w[0].shard < w[1].shard), "taken in ascending order");
        txn
    }
    /// Holds these shards, which ascend, if it held nothing and nobody holds any of them; else nothing. A hot path, so the
    /// result is not moved.
    #[inline]
    pub(crate) fn try_hold(&mut self, shards: impl Iterator<Item = usize>) -> bool {
        for shard in shards {
            match ShardGuard::try_lock(self.keyspace, shard) {
                Some(held) => self.held.push(held),
                None => {
                    self.held.clear();
                    return false;
                }
            }
        }
        true
    }
    /// Holds the shards of `hashes`, too, if nobody else holds one of them; false: it holds what it held before. It waits
    /// for none, so the order in which shards are taken does not matter.
    pub fn try_hold_also(&mut self, hashes: &[KeyHash]) -> bool {
        let before = self.held.len();
        for shard in self.keyspace.shards_of(hashes) {
            if self.held[..before].binary_search_by_key(&shard, |held| held.shard).is_ok() {
                continue;
            }
            match ShardGuard::try_lock(self.keyspace, shard) {
                Some(held) => self.held.push(held),
                None => {
                    self.held.truncate(before);
                    return false;
                }
            }
        }
        self.held.sort_unstable_by_key(|held| held.shard);
        true
    }
    /// As [`Txn::ascending`], holding none while it waits for another: it lets all go, waits for that one, for
    /// `patience` at most, and begins with it. `None` after `tries`.
    pub(crate) fn together(
        keyspace: &'k Keyspace,
        shards: &[usize],
        tries: usize,
        patience: Duration,
        now_ms: i64,
    ) -> Option<Txn<'k>> {
        let mut busy: Option<usize> = None;
        for _ in 0..tries {
            let mut waited = None;
            if let Some(shard) = busy {
                let slot = &keyspace.shards[shard];
                let Some(guard) = slot.lock.try_lock_for(patience) else { continue };
                waited = Some(ShardGuard { shard, slot, guard, changed: false });
            }
            let mut txn = Txn::none(keyspace, now_ms);
            busy = shards.iter().copied().find(|shard| {
                let held = waited.take_if(|held| held.shard == *shard);
                let held = held.or_else(|| ShardGuard::try_lock(keyspace, *shard));
                let is_busy = held.is_none();
                txn.held.extend(held);
                is_busy
            });
            if busy.is_none() {
                return Some(txn);
            }
        }
        None
    }
    /// Database `db` (a system one too) seen through the held shards.
    #[inline]
    pub fn db(&mut self, db: usize) -> Db<'_, 'k> {
        let slot = self.keyspace.slot(db);
        Db { txn: self, slot }
    }
    /// The time the command runs at, in unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms
    }
    /// True when what expires at that time has expired.
    pub fn has_passed(&self, at_ms: i64) -> bool {
        at_ms <= self.clock.expiry_ms
    }
    /// From here on nothing expires: what a journal says is run again, and the journal itself says what expired.
    pub fn set_replaying(&mut self) {
        self.clock.expiry_ms = i64::MIN;
    }
    /// The keyspace the shards belong to.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }
    /// From here on reading does not mark records used: `CLIENT NO-TOUCH`.
    pub fn set_no_touch(&mut self, no_touch: bool) {
        self.no_touch = no_touch;
    }

    /// True when somebody wants to be told of events, or changes are recorded. Ask with the shard held that is changed: who began
    /// to listen before the shard was taken is told.
    #[inline]
    pub fn listens(&self) -> bool {
        self.clock.settings.listens.load(Relaxed) != 0
    }
    /// A command begins, of client `by`. Where the listener wants to be told, its changes are called what `names` says: a name,
    /// and whether the command only reads. What it changes is its effect, until [`Txn::end_command`]; if it `writes`, that is got ready.
    pub fn begin_command(&mut self, names: impl FnOnce() -> (KeyEvent, bool), writes: bool, by: u64) {
        let listens = self.clock.settings.listens.load(Relaxed);
        if listens & LISTENER != 0 {
            let (event, reads) = names();
            self.call_changes(event, reads, by);
        }
        if listens & JOURNAL != 0 && (writes || self.effects.is_some()) && self.keyspace.journal().is_on() {
            self.effects.get_or_insert_with(Journal::effects).begin();
        }
    }
    /// The command ends: if it changed anything and said no effect, its arguments are its effect.
    #[inline]
    pub fn end_command<'a>(&mut self, db: usize, args: impl ExactSizeIterator<Item = Arg<'a>>) {
        if let Some(effects) = &mut self.effects {
            effects.end(db, args);
        }
    }
    /// True while changes are recorded: a command whose effect is not its arguments is to say what it is.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.effects.is_some()
    }
    /// An effect of the command at work, in place of its arguments; a command may have several.
    pub fn effect(&mut self, db: usize, args: &[Arg<'_>]) {
        if let Some(effects) = &mut self.effects {
            effects.own(db, args.iter().copied());
        }
    }
    /// What the command at work has changed so far is in its effects, or is no effect.
    pub fn no_effect(&mut self) {
        if let Some(effects) = &mut self.effects {
            effects.begin_own();
        }
    }
    /// The place behind the effects so far.
    pub fn effects_mark(&self) -> EffectsMark {
        self.effects.as_ref().map_or_else(EffectsMark::default, |effects| effects.mark())
    }
    /// From here on what is done belongs to other work: it is told at once, and has no effect. To be ended by
    /// [`Txn::put_together`].
    pub(crate) fn set_apart(&mut self) -> Apart {
        let forgotten = self.keyspace.journal().is_on().then(|| {
            let mut effects = Journal::effects();
            effects.begin_own();
            effects
        });
        Apart { kept: self.kept.take(), effects: std::mem::replace(&mut self.effects, forgotten) }
    }
    pub(crate) fn put_together(&mut self, apart: Apart) {
        (self.kept, self.effects) = (apart.kept, apart.effects);
    }
    /// True when something has an effect already, as the expiry of a key that was looked at has.
    pub fn has_effects(&self) -> bool {
        self.effects.as_ref().is_some_and(|effects| !effects.is_empty())
    }
    /// Takes over what `other` did: its effects, in place of those so far.
    pub fn take_effects_of(&mut self, mut other: Txn<'_>) {
        if let (Some(_), Some(effects)) = (&self.effects, other.effects.take()) {
            self.effects = Some(effects);
        }
    }
    /// What was done since `mark` was undone: it had no effect.
    pub fn forget_effects_since(&mut self, mark: EffectsMark) {
        if let Some(effects) = &mut self.effects {
            effects.forget_since(mark);
        }
    }
    /// Something changed in a database that SELECT reaches.
    #[inline]
    pub(crate) fn note_change(&mut self, slot: usize) {
        match &mut self.effects {
            _ if !slot.is_multiple_of(2) => {}
            Some(effects) => effects.changed(),
            // A command that reads, as a rule: PFCOUNT keeps what it has counted.
            None if self.keyspace.journal().is_on() => self.effects.insert(Journal::effects()).changed(),
            None => {}
        }
    }
    /// A key, or `fields` of it if there are any, have expired.
    pub(crate) fn note_gone(&mut self, slot: usize, key: &[u8], fields: &[Vec<u8>]) {
        if slot.is_multiple_of(2) && self.keyspace.journal().is_on() {
            self.effects.get_or_insert_with(Journal::effects).gone(slot / 2, key, fields);
        }
    }
    /// From here on changes are called `event` and are client `by`'s. `reads`: they are of a command that only reads, which
    /// looks for keys that there may not be.
    pub fn call_changes(&mut self, event: KeyEvent, reads: bool, by: u64) {
        self.caller = Caller { event, reads, by };
    }
    /// From here on changes are called `event`.
    #[inline]
    pub fn call_next(&mut self, event: KeyEvent) {
        self.caller.event = event;
    }
    /// From here on events are kept, since the work may be taken back: it ends with [`Txn::tell_events`] or
    /// [`Txn::forget_events`]. What expires is told at once, for that is not taken back.
    pub fn keep_events(&mut self) {
        self.kept = Some(Box::default());
    }
    /// How many events were kept so far, and the bytes that they take.
    pub fn kept_events(&self) -> (usize, usize) {
        self.kept.as_ref().map_or((0, 0), |kept| (kept.len(), kept.bytes()))
    }
    /// Tells the first `until` of the events that were kept.
    pub fn tell_events_until(&mut self, until: usize) {
        if let Some(kept) = &mut self.kept {
            kept.tell(self.keyspace, until);
        }
    }
    /// Tells all events that were kept; later ones are told at once.
    pub fn tell_events(&mut self) {
        self.tell_events_until(usize::MAX);
        self.kept = None;
    }
    /// The work was taken back: its events have not happened. Later ones are told at once.
    pub fn forget_events(&mut self) {
        self.kept = None;
    }
    /// Tells the listener of an event, or keeps it.
    pub(crate) fn tell(&mut self, slot: usize, key: &[u8], event: KeyEvent, changed: bool) {
        let by = self.caller.by;
        match &mut self.kept {
            Some(kept) if self.keyspace.has_listener() => kept.push(slot, key, event, changed, by),
            _ => self.keyspace.tell(slot, key, event, changed, by),
        }
    }
    /// What [`Db::get`] found so far.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// Holds nothing.
    #[inline]
    pub(crate) fn none(keyspace: &'k Keyspace, now_ms: i64) -> Txn<'k> {
        let settings = keyspace.settings();
        let clock = Clock { now_ms, expiry_ms: now_ms, lfu: settings.lfu.load(Relaxed) != 0, settings };
        Txn {
            keyspace,
            held: SmallVec::new(),
            clock,
            no_touch: false,
            lookups: Lookups::default(),
            caller: Caller::NOBODY,
            effects: None,
            kept: None,
            garbage: SmallVec::new(),
            flushed: Vec::new(),
        }
    }
}

impl Drop for Txn<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut woken = Vec::new();
        if self.held.iter().any(|held| held.guard.watchers.waiters.has_signalled())
            && !std::thread::panicking()
        {
            woken = self.serve_waiters();
        }
        if self.effects.is_some() && !std::thread::panicking() {
            self.record();
        }
        if !woken.is_empty() {
            self.held.clear();
            woken.iter().for_each(|waiter| waiter.wake());
        }
        if !self.garbage.is_empty() || !self.flushed.is_empty() {
            self.held.clear();
            self.flushed.clear();
            self.garbage.drain(..).for_each(|value| self.keyspace.dispose(value));
        }
    }
}

impl<'k> Txn<'k> {
    /// A shard for reading: as it is held, or locked for as long as `look` takes.
    pub(crate) fn with_shard<R>(&mut self, shard: usize, look: impl FnOnce(&Shard) -> R) -> R {
        match self.held.binary_search_by_key(&shard, |held| held.shard) {
            Ok(at) => look(&self.held[at].guard),
            Err(_) => look(&self.keyspace.shards[shard].lock.lock()),
        }
    }
    /// The databases that have, or had, keys or what belongs to them.
    ///
    /// # Panics
    /// When not all shards are held.
    pub fn in_use(&mut self) -> BTreeSet<usize> {
        self.all_held().flat_map(|shard| shard.tables().map(|(slot, _)| slot / 2)).collect()
    }
    /// As [`Txn::flush`]; the tables are freed when the shards are let go.
    ///
    /// # Panics
    /// When not all shards are held.
    pub fn flush_later(&mut self, db: usize) {
        let flushed = self.flush(db);
        self.flushed.push(flushed);
    }
    /// All shards, for writing.
    ///
    /// # Panics
    /// When one is not held.
    pub(crate) fn all_held(&mut self) -> impl Iterator<Item = &mut Shard> {
        assert_eq!(self.held.len(), self.keyspace.shards(), "all shards are held");
        self.held.iter_mut().map(|held| {
            held.changed = true;
            &mut *held.guard
        })
    }
    /// The held shards with their indices.
    pub(crate) fn held_shards(&self) -> impl Iterator<Item = (usize, &Shard)> {
        self.held.iter().map(|held| (held.shard, &*held.guard))
    }
    /// Gives what it did a place in the stream, lets the shards go and puts it there.
    fn record(&mut self) {
        let Some(effects) = self.effects.take() else { return };
        let placed = self.keyspace.journal().place(effects);
        self.held.clear();
        placed.into_iter().for_each(Placed::put);
    }
    /// Holds one more shard; false when somebody else has it, for longer than a moment.
    pub(crate) fn hold_one_more(&mut self, shard: usize) -> bool {
        let Err(place) = self.held.binary_search_by_key(&shard, |held| held.shard) else { return true };
        let slot = &self.keyspace.shards[shard];
        let Some(guard) = slot.lock.try_lock_for(ONE_MORE_PATIENCE) else { return false };
        self.held.insert(place, ShardGuard { shard, slot, guard, changed: false });
        true
    }
    #[inline]
    pub(crate) fn held(&mut self, shard: usize) -> &mut ShardGuard<'k> {
        let at = match &self.held[..] {
            [only] if only.shard == shard => 0,
            held => held.binary_search_by_key(&shard, |h| h.shard).expect("the key's shard is held"),
        };
        &mut self.held[at]
    }
    /// Frees a value once the shards are let go.
    #[inline]
    pub(crate) fn garbage(&mut self, value: Option<Value>) {
        if let Some(value) = value {
            self.garbage.push(value);
        }
    }
}
