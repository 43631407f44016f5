//! Work that may be undone. [`Undo`]: the former records of the keys that the work has written. The events of the work, and
//! the expiries of these keys, are kept until the work is done ([`Txn::keep_events`]).

use crate::event::{KeptEvent, KeptEvents, NO_CLIENT, Undoable};
use crate::shard::FieldsExpired;
use crate::{Changed, Db, Key, Keyspace, Txn, Value, ValueRef};
use std::collections::BTreeMap;

/// Maximum number of keys with a kept record.
const KEYS_MAX: usize = 1024;
/// Maximum number of bytes of a kept string. The write of a longer string would copy the string, because its former
/// value is kept.
const STRING_BYTES_MAX: usize = 1 << 20;
/// Maximum number of elements of a kept collection, except a list. A larger collection has many parts: to share all of them
/// takes long (0.4 ms for 4 M members of a set). A list is shared as a whole, whatever its length is.
const ELEMENTS_MAX: usize = 1 << 22;

/// The value and expiry of a key. `None`: the key did not exist.
type PreviousRecord = Option<(Value, Option<i64>)>;

/// The former records, by slot and key.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    former: BTreeMap<(usize, Box<[u8]>), PreviousRecord>,
}

impl Undo {
    /// Keeps the records at `keys`. False: the records are too many or too large.
    fn save(&mut self, txn: &mut Txn<'_>, db: usize, keys: &[Key<'_>]) -> bool {
        let slot = txn.keyspace.slot(db);
        for key in keys {
            let place = (slot, Box::from(key.bytes));
            if self.former.contains_key(&place) {
                continue;
            }
            let mut at = txn.db(db);
            let record = at.peek(key);
            let too_much = record.as_ref().is_some_and(|record| match record.value() {
                ValueRef::Str(text) => text.len() > STRING_BYTES_MAX,
                ValueRef::List(_) => false,
                collection => collection.elements() > ELEMENTS_MAX,
            });
            if too_much || self.former.len() == KEYS_MAX {
                return false;
            }
            let former = record.map(|record| (record.value().to_value(), record.expire_at_ms()));
            self.former.insert(place, former);
        }
        true
    }
    /// True when the record at this key is kept.
    pub(crate) fn has(&self, slot: usize, key: &[u8]) -> bool {
        !self.former.is_empty() && self.former.contains_key(&(slot, Box::from(key)))
    }
    /// Restores all kept records.
    fn roll_back(self, txn: &mut Txn<'_>) {
        for ((slot, bytes), former) in self.former {
            let key = txn.keyspace.key(&bytes);
            let mut db = Db { txn, slot };
            match former {
                Some((value, expire_at_ms)) => _ = db.insert(&key, value, expire_at_ms),
                None => _ = db.delete(&key),
            }
        }
    }
}

impl Txn<'_> {
    /// Keeps events from here on instead of reporting them, because the work may be undone. End this with
    /// [`Txn::report_events`], [`Txn::undo`] or [`Txn::forget_events`]. The expiry of a key is still reported at once,
    /// unless [`Txn::save_for_undo`] has kept the key's record: the expiry of other keys is never undone.
    pub fn keep_events(&mut self) {
        self.kept = Some(Box::default());
    }
    /// Like [`Txn::keep_events`], for work on copies of records of `keyspace`: keeps the expiry of every key. If nobody
    /// listens to events of `keyspace` now, one event of each changed key is kept.
    pub fn keep_events_of_copies(&mut self, keyspace: &Keyspace) {
        self.kept = Some(Box::new(KeptEvents::of_copies(!keyspace.has_listener())));
    }
    /// Number of events kept so far (those already reported included), and their bytes.
    pub fn kept_events(&self) -> (usize, usize) {
        self.kept.as_ref().map_or((0, 0), |kept| (kept.len(), kept.bytes()))
    }
    /// Reports the first `until` kept events to the listener.
    pub fn report_events_until(&mut self, until: usize) {
        if let Some(kept) = &mut self.kept {
            kept.report(self.keyspace, until);
        }
    }
    /// Reports all kept events to the listener. Later events are reported at once.
    pub fn report_events(&mut self) {
        self.report_events_until(usize::MAX);
        if let Some(kept) = self.kept.take() {
            self.keyspace.count_expired(kept.expired);
        }
    }
    /// Drops the kept events, because the work was undone. Later events are reported at once.
    pub fn forget_events(&mut self) {
        self.kept = None;
    }
    /// Keeps the records at `keys`, which the work is about to write, for [`Txn::undo`]. False: the records are too many
    /// or too large, or events are not kept ([`Txn::keep_events`]).
    pub fn save_for_undo(&mut self, db: usize, keys: &[Key<'_>]) -> bool {
        let Some(Undoable::Keys(undo)) = self.kept.as_mut().map(|kept| &mut kept.undoable) else {
            return false;
        };
        let mut undo = std::mem::take(undo);
        let is_saved = undo.save(self, db, keys);
        if let Some(kept) = &mut self.kept {
            kept.undoable = Undoable::Keys(undo);
        }
        is_saved
    }
    /// True when [`Txn::save_for_undo`] has kept the record at this key.
    pub fn is_saved_for_undo(&self, db: usize, key: &[u8]) -> bool {
        let slot = self.keyspace.slot(db);
        self.kept.as_ref().is_some_and(|kept| kept.undoable.has(slot, key))
    }
    /// Restores the records of [`Txn::save_for_undo`], and drops the kept events. Later events are reported at once.
    pub fn undo(&mut self) {
        // A key that the work made may expire when it is replaced. That expiry is part of the work, too.
        if let Some(kept) = &mut self.kept
            && let Undoable::Keys(undo) = std::mem::replace(&mut kept.undoable, Undoable::All)
        {
            undo.roll_back(self);
        }
        self.forget_events();
    }
    /// Reports and counts what the expiry of a key or of its fields has changed, or keeps the expiry: see
    /// [`Txn::keep_events`].
    pub(crate) fn report_expiry(&mut self, slot: usize, key: &[u8], expired: &FieldsExpired) {
        let keyspace = self.keyspace;
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.undoable.has(slot, key));
        if self.listens() {
            for (event, gone) in expired.events() {
                if let Some(removal) = gone {
                    self.record_removal(slot, key, removal, is_kept);
                }
                // The expiry is no change of the client that finds it. CLIENT TRACKING with NOLOOP must tell that client.
                let kept_event = KeptEvent::new(event, Changed::Yes, NO_CLIENT);
                match &mut self.kept {
                    Some(kept) if is_kept => kept.push(slot, key, kept_event),
                    _ => keyspace.report(slot, key, event, Changed::Yes, NO_CLIENT),
                }
            }
        }
        match &mut self.kept {
            Some(kept) if is_kept => kept.expired += expired.counts(),
            _ => keyspace.count_expired(expired.counts()),
        }
    }
}
