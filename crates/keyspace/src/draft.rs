//! A *draft*: a keyspace of copies on which a transaction runs with no shard held. What it changed there becomes
//! [`Promises`], and its effects become those of the work that makes them.
//!
//! [`Keyspace::draft`] makes the empty keyspace, into which the caller puts copies of the records that the transaction
//! uses. The transaction runs on one [`Txn`] of the draft, which keeps its events. [`Txn::take_promises`] collects
//! the records that changed, each with the events of its changes. Whether the copies are still current is for the
//! caller to decide ([`crate::View::is_unchanged`]).
//!
//! Left out: how a key was used. The record in the keyspace counts one more use, however often the transaction used it.

use crate::event::{KeptEvent, KeptEvents};
use crate::promise::{Becomes, Promises};
use crate::{Db, JOURNAL, Key, KeyHash, Keyspace, LISTENER, Txn, Viewed};
use hashbrown::HashTable;
use std::sync::atomic::Ordering::Relaxed;

/// Keys between two pauses.
const PAUSE_KEYS: usize = 128;

/// What a transaction has made of a key.
#[derive(Debug)]
pub(crate) struct Made {
    /// `None`: the key is gone.
    record: Option<Viewed>,
    /// Events of the key, in order.
    events: Vec<KeptEvent>,
}

/// A key with events.
struct Touched {
    key: Box<[u8]>,
    hash: KeyHash,
    changed: bool,
    events: Vec<KeptEvent>,
}

impl Keyspace {
    /// An empty keyspace of one shard, with the databases and the tunables of this one. It notes effects if this one
    /// records changes now, and events always.
    pub fn draft(&self, seed: [u64; 4]) -> Keyspace {
        let draft = self.beside(self.databases(), seed);
        let is_recorded = self.journal().is_on();
        draft.journal().switch(is_recorded);
        draft.settings().listens.store(if is_recorded { LISTENER | JOURNAL } else { LISTENER }, Relaxed);
        draft
    }
}

impl Txn<'_> {
    /// Takes out of a draft the records of database `db` that this transaction has changed, as promises for the
    /// keyspace `of`. The events of other keys stay kept. Calls `pause` now and then.
    ///
    /// # Panics
    /// When events were not kept ([`Txn::keep_events`]), or those of another database.
    pub fn take_promises(&mut self, of: &Keyspace, db: usize, pause: &dyn Fn()) -> Promises {
        let kept = self.kept.take().expect("a draft keeps its events");
        let effects = self.effects.take();
        let mut touched = Vec::<Touched>::new();
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
                touched.push(Touched { key, hash, changed: false, events: Vec::new() });
                places.insert_unique(hash.0, at, |at| touched[*at].hash.0);
                at
            });
            touched[at].changed |= event.changed;
            touched[at].events.push(event);
        }
        let (mut promises, mut others) = (Promises::default(), KeptEvents::default());
        for (nth, Touched { key, hash, changed, events }) in touched.into_iter().enumerate() {
            if nth.is_multiple_of(PAUSE_KEYS) {
                pause();
            }
            if changed {
                let of_draft = self.keyspace.key(&key);
                let taken = self.db(db).remove(&of_draft);
                let record = taken.map(|taken| (taken.value, taken.expire_at_ms));
                let made = Box::new(Made { record, events });
                promises.push(of, &Key { bytes: &key, hash }, Becomes::Made(made));
            } else {
                events.into_iter().for_each(|event| others.push(of.slot(db), &key, event));
            }
        }
        (self.kept, self.effects) = (Some(Box::new(others)), effects);
        promises
    }
    /// Tells the kept events to the listener of `keyspace`.
    pub fn tell_events_at(&mut self, keyspace: &Keyspace) {
        if let Some(mut kept) = self.kept.take() {
            kept.tell(keyspace, usize::MAX);
        }
    }
    /// Drops events and effects, because the draft is not used.
    pub fn forget(&mut self) {
        (self.kept, self.effects) = (None, None);
    }
}

impl Db<'_, '_> {
    /// Puts in place what a transaction has made of a key, and tells the events of the transaction.
    pub(crate) fn make(&mut self, key: &Key<'_>, made: Made) {
        let slot = self.slot;
        let changes_before = self.changed(key).changes;
        // The transaction's own events are told in place of those of this change.
        self.txn.keep_events();
        match made.record {
            Some((value, expire_at_ms)) => _ = self.insert(key, value, expire_at_ms),
            None => _ = self.delete(key),
        }
        self.txn.forget_events();
        let changes = made.events.iter().filter(|event| event.changed).count();
        self.changed(key).changes = changes_before + changes as u64;
        for KeptEvent { event, changed, by } in made.events {
            self.txn.keyspace.tell(slot, key.bytes, event, changed, by);
        }
    }
}

#[cfg(test)]
mod tests;
