//! [`KeyEvent`]: what happened to a key, by redis-server's names. [`Listener`]: the receiver of these events.
//!
//! The code that changes a record reports the event to the listener while it holds the key's shard. So the events
//! of a key come in the order of the changes. Without a listener and without a journal, the report of a
//! change costs one branch ([`crate::Settings::listens`]).
//!
//! A command names its changes in advance ([`crate::Txn::set_event_source`]). The keyspace itself names only these
//! events: a new key (`new`), a deleted key (`del`), an expired or evicted key, a look-up of a missing key
//! (`keymiss`), and expired fields of a hash (`hexpired`).

use crate::undo::Undo;
use crate::{Changed, Keyspace};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::AddAssign;

/// A class of events. Each class is one letter of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Class {
    Generic = b'g' as isize,
    String = b'$' as isize,
    List = b'l' as isize,
    Set = b's' as isize,
    Hash = b'h' as isize,
    SortedSet = b'z' as isize,
    Expired = b'x' as isize,
    Evicted = b'e' as isize,
    Stream = b't' as isize,
    Miss = b'm' as isize,
    New = b'n' as isize,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// Class of the event.
    pub class: Class,
    /// redis-server's name of the event. Empty for a change that causes no event.
    pub name: &'static str,
}

#[allow(missing_docs)]
impl KeyEvent {
    /// A change that causes no event.
    pub const NONE: KeyEvent = KeyEvent::of(Class::Generic, "");
    /// A change by a command that only reads: PFCOUNT keeps the estimate in the value.
    pub const CACHED: KeyEvent = KeyEvent::of(Class::Miss, "");
    pub const DEL: KeyEvent = KeyEvent::of(Class::Generic, "del");
    pub const EXPIRE: KeyEvent = KeyEvent::of(Class::Generic, "expire");
    pub const PERSIST: KeyEvent = KeyEvent::of(Class::Generic, "persist");
    pub const FIELDS_EXPIRED: KeyEvent = KeyEvent::of(Class::Hash, "hexpired");
    pub const NEW: KeyEvent = KeyEvent::of(Class::New, "new");
    pub const EXPIRED: KeyEvent = KeyEvent::of(Class::Expired, "expired");
    pub const EVICTED: KeyEvent = KeyEvent::of(Class::Evicted, "evicted");
    pub const MISS: KeyEvent = KeyEvent::of(Class::Miss, "keymiss");

    pub const fn of(class: Class, name: &'static str) -> KeyEvent {
        KeyEvent { class, name }
    }
}

/// Receives the events of keys. Its methods run while the key's shard is held, so they must be quick and must not
/// access the keyspace.
pub trait Listener: Send + Sync + Debug {
    /// `event` happened to `key` of database `db`. `changed`: the value, the expiry or the existence of the key
    /// changed. `client`: the client that ran the command; 0 when no client did.
    fn report(&self, db: usize, key: &[u8], event: KeyEvent, changed: bool, client: u64);
    /// One or more whole databases changed, by a flush or a swap.
    fn report_all(&self);
}

/// The client of a change that no client made, such as an expiry.
pub const NO_CLIENT: u64 = 0;

/// What the events of a command have in common: the name of its changes, and its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventSource {
    pub(crate) event: KeyEvent,
    /// True when the command only reads. Then its look-up of a missing key is an event (`keymiss`).
    pub(crate) reads: bool,
    pub(crate) client: u64,
}

impl EventSource {
    pub(crate) const NOBODY: EventSource =
        EventSource { event: KeyEvent::NONE, reads: false, client: NO_CLIENT };
}

/// A kept event: it is reported later, or never.
#[derive(Debug)]
struct QueuedEvent {
    slot: usize,
    key: Box<[u8]>,
    event: KeptEvent,
}

/// The arguments of [`Keyspace::report`] for a kept event, without slot and key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptEvent {
    pub(crate) event: KeyEvent,
    pub(crate) changed: Changed,
    pub(crate) client: u64,
    /// Number of changes that count for a save ([`Keyspace::changes`]). More than 1 for merged events.
    pub(crate) changes: u64,
}

impl KeptEvent {
    pub(crate) fn new(event: KeyEvent, changed: Changed, client: u64) -> KeptEvent {
        let counts = changed != Changed::No && client != NO_CLIENT;
        KeptEvent { event, changed, client, changes: counts.into() }
    }
}

/// What an undo takes back. The expiry of such a key is part of the work: it is kept like the work's events. Every other
/// expiry happens for good, and is reported at once.
#[derive(Debug)]
pub(crate) enum Undoable {
    /// The keys with a kept record.
    Keys(Undo),
    /// Every key: the work runs on copies.
    All,
}

impl Default for Undoable {
    fn default() -> Undoable {
        Undoable::Keys(Undo::default())
    }
}

impl Undoable {
    pub(crate) fn has(&self, slot: usize, key: &[u8]) -> bool {
        match self {
            Undoable::Keys(undo) => undo.has(slot, key),
            Undoable::All => true,
        }
    }
}

/// Numbers of keys and of fields of hashes that expired.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExpiredCounts {
    pub(crate) keys: usize,
    pub(crate) fields: usize,
}

impl AddAssign for ExpiredCounts {
    fn add_assign(&mut self, other: ExpiredCounts) {
        self.keys += other.keys;
        self.fields += other.fields;
    }
}

/// Events of work that may be undone, kept until the work is done: see [`crate::Txn::keep_events`].
#[derive(Debug, Default)]
pub(crate) struct KeptEvents {
    pub(crate) undoable: Undoable,
    /// The keys and fields whose expiry is kept.
    pub(crate) expired: ExpiredCounts,
    events: VecDeque<QueuedEvent>,
    /// Set if nobody listens, so that one event of each changed key is enough. The places of the keys in `events`.
    places: Option<HashTable<usize>>,
    hasher: ahash::RandomState,
    /// Number of events that were reported already. They are no longer in `events`.
    reported: usize,
    bytes: usize,
}

impl KeptEvents {
    /// No events yet, of work on copies. `merges`: the changes of a key become one event, and events without a change are
    /// dropped, because nobody listens now. Who begins to listen during the work hears of each changed key once.
    pub(crate) fn of_copies(merges: bool) -> KeptEvents {
        let places = merges.then(HashTable::new);
        KeptEvents { undoable: Undoable::All, places, ..KeptEvents::default() }
    }
    /// Keeps an event, so that [`Keyspace::report`] can report it later.
    pub(crate) fn push(&mut self, slot: usize, key: &[u8], event: KeptEvent) {
        if let Some(places) = &mut self.places {
            if event.changed == Changed::No {
                return;
            }
            let (events, hasher) = (&mut self.events, &self.hasher);
            let is_it = |at: &usize| events[*at].slot == slot && *events[*at].key == *key;
            if let Some(at) = places.find(hasher.hash_one(key), is_it) {
                let known = &mut events[*at].event;
                let changed = known.changed.max(event.changed);
                *known = KeptEvent { changed, changes: known.changes + event.changes, ..event };
                return;
            }
            let rehash = |at: &usize| hasher.hash_one(&*events[*at].key);
            places.insert_unique(hasher.hash_one(key), events.len(), rehash);
        }
        self.bytes += size_of::<QueuedEvent>() + key.len();
        self.events.push_back(QueuedEvent { slot, key: key.into(), event });
    }
    /// The events that were not reported, each with its slot and its key.
    pub(crate) fn into_events(self) -> impl Iterator<Item = (usize, Box<[u8]>, KeptEvent)> {
        self.events.into_iter().map(|QueuedEvent { slot, key, event }| (slot, key, event))
    }
    /// Number of events so far, including those already reported.
    pub(crate) fn len(&self) -> usize {
        self.reported + self.events.len()
    }
    /// Bytes of all events so far, including those already reported.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Reports the first `until` events to the listener, except those already reported.
    pub(crate) fn report(&mut self, keyspace: &Keyspace, until: usize) {
        let n = until.saturating_sub(self.reported).min(self.events.len());
        self.reported += n;
        for kept in self.events.drain(..n) {
            let KeptEvent { event, changed, client, .. } = kept.event;
            keyspace.report(kept.slot, &kept.key, event, changed, client);
        }
    }
}
