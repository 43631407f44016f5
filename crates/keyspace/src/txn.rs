//! [`Txn`]: the shards that a piece of work holds, and the effects of the work.
//!
//! Data is read and changed only through a `Txn` ([`Txn::db`]). The values that a command has replaced or removed
//! are freed after the shards are released. [`crate::db`] has the look-ups and the changes of records.

use crate::Changed;
use crate::event::{EventSource, KeptEvent, KeptEvents, KeyEvent};
use crate::journal::effects::{Arg, Effects, EffectsMark, SentArgs};
use crate::journal::{Journal, PlacedEffects, Removal};
use crate::settings::{JOURNAL, LISTENER};
use crate::shard::{Clock, LockedShard, Shard};
use crate::{Db, Flushed, KeyHash, Keyspace, PrefixSet, Value};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Maximum time that work which holds shards waits for one more shard. Short locks take microseconds. The owner of
/// that shard may be waiting for a shard that this work holds, so the wait must be short.
const ONE_MORE_PATIENCE: Duration = Duration::from_micros(100);

/// A transaction takes the later time of another transaction if that time is later by at most this. A larger difference
/// means that the system's clock was set back.
const LATE_MS_MAX: i64 = 10_000;

/// Maximum number of bytes to which a replayed command may extend a string: the longest string that a snapshot may have.
pub const REPLAYED_STRING_BYTES_MAX: u64 = 64 << 30;

/// The shards that one piece of work holds.
#[derive(Debug)]
pub struct Txn<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// The held shards, in ascending order of their indices.
    guards: SmallVec<[ShardGuard<'k>; 1]>,
    pub(crate) clock: Clock<'k>,
    /// `CLIENT NO-TOUCH`: reads do not mark records as used.
    pub(crate) no_touch: bool,
    /// True when expired keys are removed even if [`crate::Settings::keeps_expired`] is set.
    pub(crate) removes_kept: bool,
    /// True while a script runs.
    runs_script: bool,
    /// Counts of reads that found a record, and of reads that did not.
    pub(crate) lookups: Lookups,
    /// The event name of the command's changes, and the client. Set while the listener wants events.
    pub(crate) caller: EventSource,
    /// The effects so far. `Some` while changes are recorded.
    pub(crate) effects: Option<Box<Effects>>,
    /// Events that are reported later: see [`Txn::keep_events`].
    pub(crate) kept: Option<Box<KeptEvents>>,
    /// Values to free after the shards are released. One value has room inline, so a SET that replaces a
    /// value allocates nothing here.
    garbage: SmallVec<[Value; 1]>,
    /// Tables of flushed databases ([`Txn::flush_later`]), to free after the shards are released.
    flushed: Vec<Flushed>,
}

/// The effects and events of a piece of work, put aside while other work runs in the same transaction.
#[derive(Debug)]
pub(crate) struct SuspendedEffects {
    kept: Option<Box<KeptEvents>>,
    effects: Option<Box<Effects>>,
}

/// The counts of changes of a transaction's shards at a moment: see [`Txn::changes_mark`].
#[derive(Clone, Debug)]
pub struct ChangesMark(SmallVec<[u64; 4]>);

/// Results of reads: INFO's `keyspace_hits` and `keyspace_misses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Number of calls of [`Db::get`] that found a record.
    pub hits: u64,
    /// Number of calls of [`Db::get`] that found no record.
    pub misses: u64,
}

#[derive(Debug)]
pub(crate) struct ShardGuard<'k> {
    shard: usize,
    locked_shard: &'k LockedShard,
    pub(crate) lock: MutexGuard<'k, Shard>,
    /// True when the shard was written to. Then its sums are published when the shard is released.
    pub(crate) changed: bool,
}

impl<'k> ShardGuard<'k> {
    #[inline]
    fn lock(keyspace: &'k Keyspace, shard: usize) -> ShardGuard<'k> {
        let locked_shard = &keyspace.shards[shard];
        ShardGuard { shard, locked_shard, lock: locked_shard.lock.lock(), changed: false }
    }
    #[inline]
    fn try_lock(keyspace: &'k Keyspace, shard: usize) -> Option<ShardGuard<'k>> {
        let locked_shard = &keyspace.shards[shard];
        Some(ShardGuard { shard, locked_shard, lock: locked_shard.lock.try_lock()?, changed: false })
    }
}

impl Drop for ShardGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            self.locked_shard.publish(&self.lock);
        }
    }
}

impl<'k> Txn<'k> {
    /// A transaction that holds one shard. Allocates nothing.
    #[inline]
    pub(crate) fn one(keyspace: &'k Keyspace, shard: usize, now_ms: i64) -> Txn<'k> {
        let mut txn = Txn::none(keyspace, now_ms);
        txn.guards.push(ShardGuard::lock(keyspace, shard));
        txn.take_latest_time();
        txn
    }
    /// A transaction that holds these shards, given in ascending order.
    pub(crate) fn ascending(
        keyspace: &'k Keyspace,
        shards: impl Iterator<Item = usize>,
        now_ms: i64,
    ) -> Txn<'k> {
        let mut txn = Txn::none(keyspace, now_ms);
        txn.guards.extend(shards.map(|shard| ShardGuard::lock(keyspace, shard)));
        debug_assert!(txn.guards.windows(2).all(|w| w[0].shard < w[1].shard), "taken in ascending order");
        txn.take_latest_time();
        txn
    }
    /// Locks these shards, given in ascending order, for a transaction that holds none. When somebody else holds
    /// one of them, returns false and holds none. It changes `self` instead of returning a `Txn`, because this is
    /// the hot path and a `Txn` is slow to move.
    #[inline]
    pub(crate) fn try_lock(&mut self, shards: impl Iterator<Item = usize>) -> bool {
        for shard in shards {
            match ShardGuard::try_lock(self.keyspace, shard) {
                Some(guard) => self.guards.push(guard),
                None => {
                    self.guards.clear();
                    return false;
                }
            }
        }
        self.take_latest_time();
        true
    }
    /// Locks the shards of `hashes` as well. When somebody else holds one of them, returns false and holds the same
    /// shards as before. It never waits, so the order of the shards does not matter.
    pub fn try_lock_more(&mut self, hashes: &[KeyHash]) -> bool {
        let before = self.guards.len();
        for shard in self.keyspace.shards_of(hashes) {
            if self.guards[..before].binary_search_by_key(&shard, |guard| guard.shard).is_ok() {
                continue;
            }
            match ShardGuard::try_lock(self.keyspace, shard) {
                Some(guard) => self.guards.push(guard),
                None => {
                    self.guards.truncate(before);
                    return false;
                }
            }
        }
        self.guards.sort_unstable_by_key(|guard| guard.shard);
        self.take_latest_time();
        true
    }
    /// Like [`Txn::ascending`], but never waits while it holds a shard. When a shard is busy, it releases all
    /// shards, waits at most `patience` for the busy one, and takes that one first. Returns `None` after `tries`
    /// attempts.
    pub(crate) fn lock_together(
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
                let locked_shard = &keyspace.shards[shard];
                let Some(guard) = locked_shard.lock.try_lock_for(patience) else { continue };
                waited = Some(ShardGuard { shard, locked_shard, lock: guard, changed: false });
            }
            let mut txn = Txn::none(keyspace, now_ms);
            busy = shards.iter().copied().find(|shard| {
                let guard = waited.take_if(|guard| guard.shard == *shard);
                let guard = guard.or_else(|| ShardGuard::try_lock(keyspace, *shard));
                let is_busy = guard.is_none();
                txn.guards.extend(guard);
                is_busy
            });
            if busy.is_none() {
                txn.take_latest_time();
                return Some(txn);
            }
        }
        None
    }
    /// Gives this transaction the latest time that a transaction on one of its shards has had. Workers read the clock
    /// at different moments, and the system may stop a thread between its look at the clock and its lock. So without
    /// this a client could meet a key after its expiry, although another client has already seen a later time on the
    /// shard. (The times of a shard are a logical clock: Lamport, "Time, clocks, and the ordering of events in a
    /// distributed system", 1978.)
    #[inline]
    fn take_latest_time(&mut self) {
        // Under load, the transaction before this one mostly had an equal time.
        if self.guards.iter().any(|guard| guard.lock.latest_ms != self.clock.now_ms) {
            self.exchange_times();
        }
    }
    #[inline(never)]
    fn exchange_times(&mut self) {
        let now_ms = self.clock.now_ms;
        let latest_ms = self.guards.iter().map(|guard| guard.lock.latest_ms).max().unwrap_or(now_ms);
        if latest_ms > now_ms && latest_ms.saturating_sub(now_ms) <= LATE_MS_MAX {
            self.clock.now_ms = latest_ms;
            // Expiry stays off during a replay.
            if self.clock.expiry_ms != i64::MIN {
                self.clock.set_expiry(latest_ms);
            }
        }
        for guard in &mut self.guards {
            guard.lock.latest_ms = guard.lock.latest_ms.max(self.clock.now_ms);
        }
    }
    /// Database `db` (or a system companion), seen through the held shards.
    #[inline]
    pub fn db(&mut self, db: usize) -> Db<'_, 'k> {
        let slot = self.keyspace.slot(db);
        Db { txn: self, slot }
    }
    /// Time of the command, in unix milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms
    }
    /// Makes the transaction happen at this time. Call it after a long wait for the shards, and before any key is looked
    /// up.
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.clock.now_ms = now_ms;
        self.clock.set_expiry(now_ms);
        self.take_latest_time();
    }
    /// Moves the time from which commands count relative expiries to `now_ms`, if that is later. What has expired stays
    /// as of the transaction's begin, as redis-server 7.0 does in a script.
    #[inline]
    pub fn advance_now_ms(&mut self, now_ms: i64) {
        if now_ms > self.clock.now_ms {
            self.clock.now_ms = now_ms;
            for guard in &mut self.guards {
                guard.lock.latest_ms = guard.lock.latest_ms.max(now_ms);
            }
        }
    }
    /// True when data with the expiry `at_ms` has expired for this transaction.
    pub fn has_passed(&self, at_ms: i64) -> bool {
        at_ms <= self.clock.expiry_ms
    }
    /// True when a command that sets the expiry `at_ms` deletes the data instead. False during a replay. Differs from
    /// [`Txn::has_passed`] after [`Txn::advance_now_ms`].
    pub fn is_past(&self, at_ms: i64) -> bool {
        at_ms <= self.clock.now_ms && self.clock.expiry_ms != i64::MIN
    }
    /// Turns expiry off, for the replay of a journal, because the journal itself records which data expired.
    pub fn set_replaying(&mut self) {
        self.clock.set_expiry(i64::MIN);
    }
    /// True after [`Txn::set_replaying`].
    pub fn is_replaying(&self) -> bool {
        self.clock.expiry_ms == i64::MIN
    }
    /// Maximum number of bytes to which a command may extend a string: `proto-max-bulk-len`. While a file is replayed,
    /// the limit is [`REPLAYED_STRING_BYTES_MAX`], because the option may be smaller now than when the file was written.
    pub fn string_bytes_max(&self) -> u64 {
        match self.clock.expiry_ms {
            i64::MIN => REPLAYED_STRING_BYTES_MAX,
            _ => self.keyspace.settings().proto_max_bulk_len.load(Relaxed),
        }
    }
    /// The keyspace to which the shards belong.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }
    /// Sets whether reads leave the usage of records unchanged (`CLIENT NO-TOUCH`).
    pub fn set_no_touch(&mut self, no_touch: bool) {
        self.no_touch = no_touch;
    }

    /// Sets whether the commands are those of a script.
    pub fn set_runs_script(&mut self, runs_script: bool) {
        self.runs_script = runs_script;
    }
    /// True while a script runs.
    pub fn runs_script(&self) -> bool {
        self.runs_script
    }

    /// True when the listener wants events or when changes are recorded. Call this while the shard of the
    /// change is held, so that the result counts everybody who began to listen before the shard was locked.
    #[inline]
    pub fn listens(&self) -> bool {
        self.clock.settings.listens.load(Relaxed) != 0
    }
    /// Begins a command of `client`. `names` is called if the listener wants events, and returns the event name
    /// of the command's changes and whether the command only reads. If changes are recorded, the changes until
    /// [`Txn::end_command`] are the command's effect. Room for the effect is prepared if the command `writes`.
    pub fn begin_command(&mut self, names: impl FnOnce() -> (KeyEvent, bool), writes: bool, client: u64) {
        let listens = self.clock.settings.listens.load(Relaxed);
        if listens & LISTENER != 0 {
            let (event, reads) = names();
            self.set_event_source(event, reads, client);
        }
        if listens & JOURNAL != 0 && (writes || self.effects.is_some()) && self.keyspace.journal().is_on() {
            self.effects.get_or_insert_with(Journal::effects).begin();
        }
    }
    /// Ends a command. If the command changed something and named no effect, its arguments are the effect, and
    /// `sent` is called to get them.
    #[inline]
    pub fn end_command<'a, I>(&mut self, db: usize, sent: impl FnOnce() -> SentArgs<'a, I>)
    where
        I: ExactSizeIterator<Item = Arg<'a>>,
    {
        // What is looked up from here on, before the next command, is no read of this command.
        self.caller.reads = false;
        if let Some(effects) = &mut self.effects {
            effects.end(db, sent);
        }
    }
    /// True while changes are recorded. A command whose effect is not equal to its arguments must then name the
    /// effect.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.effects.is_some()
    }
    /// Records an effect of the current command, in place of the command's arguments. A command may record several.
    pub fn effect(&mut self, db: usize, args: &[Arg<'_>]) {
        if let Some(effects) = &mut self.effects {
            effects.record_own(db, args.iter().copied());
        }
    }
    /// Declares that the changes of the current command so far need no further effect.
    pub fn no_effect(&mut self) {
        if let Some(effects) = &mut self.effects {
            effects.begin_own();
        }
    }
    /// Adds a command that changes nothing and that only replicas get. Replicas run it after the effects of this
    /// transaction. Without a journal, nothing is added.
    pub fn append_for_replicas(&mut self, args: &[&[u8]]) {
        if self.keyspace.journal().is_on() {
            let effects = self.effects.get_or_insert_with(Journal::effects);
            effects.add_for_replicas(args.iter().map(|arg| Arg::Bytes(arg)));
        }
    }
    /// The position after the effects recorded so far, for [`Txn::forget_effects_since`].
    pub fn effects_mark(&self) -> EffectsMark {
        self.effects.as_ref().map_or_else(EffectsMark::default, |effects| effects.mark())
    }
    /// Begins other work in this transaction. The events of that work are reported at once, and it has no effects.
    /// End it with [`Txn::resume_effects`].
    pub(crate) fn suspend_effects(&mut self) -> SuspendedEffects {
        let forgotten = self.keyspace.journal().is_on().then(|| {
            let mut effects = Journal::effects();
            effects.begin_own();
            effects
        });
        SuspendedEffects { kept: self.kept.take(), effects: std::mem::replace(&mut self.effects, forgotten) }
    }
    pub(crate) fn resume_effects(&mut self, suspended: SuspendedEffects) {
        (self.kept, self.effects) = (suspended.kept, suspended.effects);
    }
    /// True when some effect was recorded already, such as the expiry of a key that the command looked up.
    pub fn has_effects(&self) -> bool {
        self.effects.as_ref().is_some_and(|effects| !effects.is_empty())
    }
    /// Takes the effects of `other`, if it has any, and drops its own.
    pub fn take_effects_of(&mut self, other: &mut Txn<'_>) {
        if let Some(effects) = other.effects.take() {
            self.effects = Some(effects);
        }
    }
    /// Writes the effects so far to the journal now, while the shards are held, and not at the end of the transaction.
    /// A later [`Journal::tail`] is behind them.
    pub fn record_effects(&mut self) {
        let Some(effects) = self.effects.take() else { return };
        self.keyspace.journal().place(effects).into_iter().for_each(PlacedEffects::write);
    }
    /// Drops the effects recorded since `mark`, because the changes were undone.
    pub fn forget_effects_since(&mut self, mark: EffectsMark) {
        if let Some(effects) = &mut self.effects {
            effects.forget_since(mark);
        }
    }
    /// The counts of changes of the held shards, for [`Txn::uncount_changes_since`].
    pub fn changes_mark(&self) -> ChangesMark {
        ChangesMark(self.guards.iter().map(|guard| guard.lock.changes).collect())
    }
    /// Does not count the changes since `mark`, because they were undone. The held shards must still be those of the
    /// mark.
    pub fn uncount_changes_since(&mut self, mark: &ChangesMark) {
        debug_assert_eq!(self.guards.len(), mark.0.len(), "a mark of other shards");
        for (guard, changes) in self.guards.iter_mut().zip(&mark.0) {
            guard.lock.changes = *changes;
        }
    }
    /// Notes that the current command changed something. A change in a system companion does not count.
    #[inline]
    pub(crate) fn note_change(&mut self, slot: usize) {
        match &mut self.effects {
            _ if !slot.is_multiple_of(2) => {}
            Some(effects) => effects.changed(),
            // A change without a command that `writes`. Usually the command only reads, like PFCOUNT, which
            // caches its count.
            None if self.keyspace.journal().is_on() => self.effects.insert(Journal::effects()).changed(),
            None => {}
        }
    }
    /// Records what expiry has removed of a key. `comes_back`: the key's former record comes back when the work is undone.
    pub(crate) fn record_removal(&mut self, slot: usize, key: &[u8], removal: &Removal, comes_back: bool) {
        if slot.is_multiple_of(2) && self.keyspace.journal().is_on() {
            let effects = self.effects.get_or_insert_with(Journal::effects);
            match comes_back {
                true => effects.add_removal(slot / 2, key, removal),
                false => effects.record_removal(slot / 2, key, removal),
            }
        }
    }
    /// Sets the event name of changes from here on to `event`, and the client of these changes to `client`. `reads`:
    /// the command only reads, so its look-ups of missing keys are events.
    pub fn set_event_source(&mut self, event: KeyEvent, reads: bool, client: u64) {
        self.caller = EventSource { event, reads, client };
    }
    /// Sets the event name of changes from here on.
    #[inline]
    pub fn set_event(&mut self, event: KeyEvent) {
        self.caller.event = event;
    }
    /// Reports an event to the listener, or keeps it while events are kept.
    pub(crate) fn report(&mut self, slot: usize, key: &[u8], event: KeyEvent, changed: Changed) {
        let client = self.caller.client;
        match &mut self.kept {
            Some(kept) if self.keyspace.has_listener() => {
                kept.push(slot, key, KeptEvent::new(event, changed, client))
            }
            _ => self.keyspace.report(slot, key, event, changed, client),
        }
    }
    /// Counts of the calls of [`Db::get`] so far.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// A transaction that holds no shard.
    #[inline]
    pub(crate) fn none(keyspace: &'k Keyspace, now_ms: i64) -> Txn<'k> {
        let settings = keyspace.settings();
        let clock = Clock::at(now_ms, settings);
        Txn {
            keyspace,
            guards: SmallVec::new(),
            clock,
            no_touch: false,
            removes_kept: false,
            runs_script: false,
            lookups: Lookups::default(),
            caller: EventSource::NOBODY,
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
        // A GET passes four branches here, and the rest is a call: 55 instructions less (callgrind).
        if self.effects.is_some()
            || !self.garbage.is_empty()
            || !self.flushed.is_empty()
            || self.guards.iter().any(|guard| guard.lock.watchers.waiters.has_signalled())
        {
            self.finish();
        }
    }
}

impl<'k> Txn<'k> {
    /// Does the work that remains when the transaction ends: serves waiters, records the effects, releases the shards,
    /// and then wakes clients and frees values.
    #[inline(never)]
    fn finish(&mut self) {
        let mut woken = Vec::new();
        if self.guards.iter().any(|guard| guard.lock.watchers.waiters.has_signalled())
            && !std::thread::panicking()
        {
            woken = self.serve_waiters();
        }
        if self.effects.is_some() && !std::thread::panicking() {
            self.record();
        }
        if !woken.is_empty() {
            self.guards.clear();
            woken.iter().for_each(|waiter| waiter.wake());
        }
        if !self.garbage.is_empty() || !self.flushed.is_empty() {
            self.guards.clear();
            self.flushed.clear();
            self.garbage.drain(..).for_each(|value| self.keyspace.dispose(value));
        }
    }
    /// Calls `look` with a shard. A shard that this transaction does not hold is locked while `look` runs.
    pub(crate) fn with_shard<R>(&mut self, shard: usize, look: impl FnOnce(&Shard) -> R) -> R {
        match self.guards.binary_search_by_key(&shard, |guard| guard.shard) {
            Ok(at) => look(&self.guards[at].lock),
            Err(_) => look(&self.keyspace.shards[shard].lock.lock()),
        }
    }
    /// The databases that have a table, or whose system companion has one.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn in_use(&mut self) -> BTreeSet<usize> {
        self.all_held().flat_map(|shard| shard.tables().map(|(slot, _)| slot / 2)).collect()
    }
    /// Like [`Txn::flush_each`], but frees the tables itself, after the shards are released.
    ///
    /// # Panics
    /// Panics if not all shards are held.
    pub fn flush_later(&mut self, dbs: impl IntoIterator<Item = usize>) {
        let flushed = self.flush_each(dbs);
        self.flushed.extend(flushed);
    }
    /// Does what [`Keyspace::track`] does, for the held shards only. The caller calls [`Keyspace::track`] as soon as this
    /// transaction has ended.
    pub fn track(&mut self, prefixes: &[Vec<u8>]) {
        let prefixes = PrefixSet::new(prefixes.iter().map(Vec::as_slice).collect());
        let followed = &self.keyspace.followed;
        self.guards.iter_mut().for_each(|guard| guard.lock.changed_keys.follow(&prefixes, followed));
    }
    /// All shards, for writing.
    ///
    /// # Panics
    /// Panics if some shard is not held.
    pub(crate) fn all_held(&mut self) -> impl Iterator<Item = &mut Shard> {
        assert_eq!(self.guards.len(), self.keyspace.shards(), "all shards are held");
        self.guards.iter_mut().map(|guard| {
            guard.changed = true;
            &mut *guard.lock
        })
    }
    /// The held shards with their indices.
    pub(crate) fn held_shards(&self) -> impl Iterator<Item = (usize, &Shard)> {
        self.guards.iter().map(|guard| (guard.shard, &*guard.lock))
    }
    /// Takes a position in the journal for the effects, releases the shards, and then writes the effects to that
    /// position.
    fn record(&mut self) {
        let Some(effects) = self.effects.take() else { return };
        let placed = self.keyspace.journal().place(effects);
        self.guards.clear();
        placed.into_iter().for_each(PlacedEffects::write);
    }
    /// Locks one more shard. Returns false when somebody else holds the shard for longer than
    /// [`ONE_MORE_PATIENCE`].
    pub(crate) fn lock_one_more(&mut self, shard: usize) -> bool {
        let Err(place) = self.guards.binary_search_by_key(&shard, |guard| guard.shard) else { return true };
        let locked_shard = &self.keyspace.shards[shard];
        let Some(guard) = locked_shard.lock.try_lock_for(ONE_MORE_PATIENCE) else { return false };
        self.guards.insert(place, ShardGuard { shard, locked_shard, lock: guard, changed: false });
        self.take_latest_time();
        true
    }
    #[inline]
    pub(crate) fn shard_guard(&mut self, shard: usize) -> &mut ShardGuard<'k> {
        let at = self.place_of(shard);
        &mut self.guards[at]
    }
    pub(crate) fn held_shard(&self, shard: usize) -> &Shard {
        &self.guards[self.place_of(shard)].lock
    }
    /// The index of the shard's guard.
    #[inline]
    fn place_of(&self, shard: usize) -> usize {
        match &self.guards[..] {
            [only] if only.shard == shard => 0,
            guards => guards.binary_search_by_key(&shard, |h| h.shard).expect("the key's shard is held"),
        }
    }
    /// Keeps a value, to free it after the shards are released.
    #[inline]
    pub(crate) fn garbage(&mut self, value: Option<Value>) {
        if let Some(value) = value {
            self.garbage.push(value);
        }
    }
}
