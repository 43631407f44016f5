//! A *draft*: a keyspace of copies on which a transaction runs while no shard is held. Afterwards the changes in
//! the draft become [`Promises`] for the real keyspace, and the effects become effects of the [`Txn`] that makes
//! the promises.
//!
//! [`Keyspace::draft`] makes an empty draft. The caller copies into it the records that the transaction uses. The
//! transaction runs on one [`Txn`] of the draft, which keeps its events. [`Txn::take_promises`] then collects the
//! changed records, each with its events. The caller checks whether the copied records are still current
//! ([`crate::View::is_unchanged`]).
//!
//! Left out: the usage of keys. However often the transaction used a key, its record in the keyspace counts one
//! use.

use crate::event::{KeptEvent, KeptEvents};
use crate::promise::{PromisedChange, Promises};
use crate::{Changed, Db, JOURNAL, Key, KeyHash, Keyspace, LISTENER, RecordRef, Txn, Value, Viewed};
use hashbrown::HashTable;
use std::sync::atomic::Ordering::Relaxed;

/// `take_promises` calls `pause` once per this number of keys.
const PAUSE_KEYS: usize = 128;

/// The state of one key after a transaction in a draft, and the key's events.
#[derive(Debug)]
pub(crate) struct DraftedKey {
    /// The record after the transaction. `None`: the key does not exist any more.
    record: Option<Viewed>,
    /// What the transaction changed: never [`Changed::No`].
    changed: Changed,
    /// Events of the key, in the order of the transaction.
    events: Vec<KeptEvent>,
}

/// A key that had events in the draft.
struct KeyWithEvents {
    key: Box<[u8]>,
    hash: KeyHash,
    changed: Changed,
    events: Vec<KeptEvent>,
}

impl DraftedKey {
    /// True when the key exists after the transaction.
    pub(crate) fn leaves_record(&self) -> bool {
        self.record.is_some()
    }
    /// True when clients that watch the key must hear of the change.
    pub(crate) fn outdates_watches(&self) -> bool {
        self.changed == Changed::Yes
    }
}

impl Keyspace {
    /// An empty draft of this keyspace: one shard, with the databases and the tunables of this keyspace. A draft
    /// always collects events. It records effects if this keyspace records changes now.
    pub fn draft(&self, seed: [u64; 4]) -> Keyspace {
        let draft = self.scratch_with(self.databases(), seed);
        let is_recorded = self.journal().is_on();
        draft.journal().switch(is_recorded);
        draft.settings().listens.store(if is_recorded { LISTENER | JOURNAL } else { LISTENER }, Relaxed);
        draft
    }
}

impl Txn<'_> {
    /// Moves the changed records of database `db` out of a draft, as promises for the keyspace `of`. The events of
    /// keys that did not change stay in this transaction, for [`Txn::tell_events_at`]. Calls `pause` once per
    /// [`PAUSE_KEYS`] keys.
    ///
    /// # Panics
    /// Panics if events were not kept ([`Txn::keep_events_of_copies`]), or when an event belongs to another database.
    pub fn take_promises(&mut self, of: &Keyspace, db: usize, pause: &dyn Fn()) -> Promises {
        let kept = self.kept.take().expect("a draft keeps its events");
        let expired = kept.expired;
        let effects = self.effects.take();
        let mut touched = Vec::<KeyWithEvents>::new();
        let mut places = HashTable::<usize>::new();
        for (nth, (slot, key, event)) in kept.into_events().enumerate() {
            assert_eq!(slot, of.slot(db), "a draft is of one database");
            if nth.is_multiple_of(PAUSE_KEYS) {
                pause();
            }
            let hash = of.key(&key).hash;
            let is_it = |at: &usize| touched[*at].key == key;
            let at = places.find(hash.0, is_it).copied().unwrap_or_else(|| {
                let at = touched.len();
                touched.push(KeyWithEvents { key, hash, changed: Changed::No, events: Vec::new() });
                places.insert_unique(hash.0, at, |at| touched[*at].hash.0);
                at
            });
            touched[at].changed = touched[at].changed.max(event.changed);
            touched[at].events.push(event);
        }
        let (mut promises, mut others) = (Promises::default(), KeptEvents::default());
        for (nth, KeyWithEvents { key, hash, changed, events }) in touched.into_iter().enumerate() {
            if nth.is_multiple_of(PAUSE_KEYS) {
                pause();
            }
            if changed != Changed::No {
                let of_draft = self.keyspace.key(&key);
                let taken = self.db(db).take_copy(&of_draft);
                let record = taken.map(|taken| (taken.value, taken.expire_at_ms));
                let made = Box::new(DraftedKey { record, changed, events });
                promises.push(of, &Key { bytes: &key, hash }, PromisedChange::Drafted(made));
            } else {
                events.into_iter().for_each(|event| others.push(of.slot(db), &key, event));
            }
        }
        others.expired = expired;
        (self.kept, self.effects) = (Some(Box::new(others)), effects);
        promises
    }
    /// Reports the kept events, and counts the kept expiries, at `keyspace`, the keyspace that the draft was made of.
    pub fn tell_events_at(&mut self, keyspace: &Keyspace) {
        if let Some(mut kept) = self.kept.take() {
            kept.report(keyspace, usize::MAX);
            keyspace.count_expired(kept.expired);
        }
    }
    /// Bytes of the recorded effects.
    pub fn effects_bytes(&self) -> usize {
        self.effects.as_ref().map_or(0, |effects| effects.encoded.bytes.len())
    }
    /// Bytes of all data in the held shards, now. [`Keyspace::data_bytes`] counts the changes of a transaction at its end.
    pub fn held_data_bytes(&self) -> usize {
        self.held_shards().map(|(_, shard)| shard.sums().bytes).sum()
    }
    /// Drops the events and effects of a draft that is not used.
    pub fn forget(&mut self) {
        (self.kept, self.effects) = (None, None);
    }
}

impl Db<'_, '_> {
    /// The record at `key` in a keyspace of copies. This look-up counts neither as a hit nor as a miss, and the listener
    /// does not learn of a miss.
    pub fn copy_at(&mut self, key: &Key<'_>) -> Option<RecordRef<'_>> {
        let at = self.locate(key)?;
        self.record(key, at)
    }
    /// Stores what a transaction made of `key`, and reports the events of the transaction.
    pub(crate) fn make(&mut self, key: &Key<'_>, made: DraftedKey) {
        let slot = self.slot;
        let changes_before = self.changed(key).changes;
        // Suppress the events of the `insert` or `delete` below. The events of the transaction replace them.
        self.txn.keep_events();
        match made.record {
            Some((value, _)) if made.changed == Changed::Beside => self.replace_beside(key, value),
            Some((value, expire_at_ms)) => _ = self.insert(key, value, expire_at_ms),
            None => _ = self.delete(key),
        }
        self.txn.forget_events();
        let changes: u64 = made.events.iter().map(|kept| kept.changes).sum();
        self.changed(key).changes = changes_before + changes;
        for KeptEvent { event, changed, client, .. } in made.events {
            self.txn.keyspace.report(slot, key.bytes, event, changed, client);
        }
    }
    /// Replaces the value at `key` by one that differs only beside its elements. So no watch and no copy of a client is
    /// outdated. Clients that wait for the key try again, because their group may be gone.
    fn replace_beside(&mut self, key: &Key<'_>, value: Value) {
        let Some(at) = self.locate(key) else { return };
        let former = self.change_value(key, at, |held| std::mem::replace(held, value));
        self.txn.garbage(former);
        self.signal_waiters(key);
    }
}

#[cfg(test)]
mod tests;
