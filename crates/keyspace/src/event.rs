//! [`KeyEvent`]: what happened to a key, by redis-server's names. [`Listener`]: the receiver of these events.
//!
//! The code that changes a record tells the listener at the place where it notes the change for WATCH, while it
//! holds the key's shard. So the events of a key come in the order of its changes. While nobody listens, this
//! costs one branch on a number ([`crate::Settings::listens`]). A command names its changes in advance
//! ([`crate::Txn::call_changes`]). The record layer itself names only a new key (`new`), a removed key (`del`), an
//! expired or evicted key, a look-up of a missing key (`keymiss`), and expired fields of a hash (`hexpired`).

use crate::Keyspace;
use std::collections::VecDeque;
use std::fmt::Debug;

/// A class of events, which is a letter of `notify-keyspace-events`.
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
    /// redis-server's name of the event. Empty for a change that is not an event.
    pub name: &'static str,
}

#[allow(missing_docs)]
impl KeyEvent {
    /// A change without a name.
    pub const NONE: KeyEvent = KeyEvent::of(Class::Generic, "");
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

/// Receives what happens to keys. Called with the key's shard held, so an implementation must be quick and must
/// not look at data.
pub trait Listener: Send + Sync + Debug {
    /// `event` happened to `key` of database `db`. `changed` says that the value, the expiry or the existence of
    /// the key changed. `by` is the client of the command; 0 is none.
    fn tell(&self, db: usize, key: &[u8], event: KeyEvent, changed: bool, by: u64);
    /// Whole databases changed, by a flush or a swap.
    fn tell_all(&self);
}

/// The name of a command's changes, and the client of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) event: KeyEvent,
    /// The command only reads, so a look-up of a missing key is an event.
    pub(crate) reads: bool,
    pub(crate) by: u64,
}

impl Caller {
    pub(crate) const NOBODY: Caller = Caller { event: KeyEvent::NONE, reads: false, by: 0 };
}

/// An event that is told later, or never.
#[derive(Debug)]
struct Kept {
    slot: usize,
    key: Box<[u8]>,
    event: KeptEvent,
}

/// What happened to the key of a kept event: the arguments of [`Keyspace::tell`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptEvent {
    pub(crate) event: KeyEvent,
    pub(crate) changed: bool,
    pub(crate) by: u64,
}

/// Events of work that may be undone: see [`crate::Txn::keep_events`].
#[derive(Debug, Default)]
pub(crate) struct KeptEvents {
    events: VecDeque<Kept>,
    /// Number of events already told.
    told: usize,
    bytes: usize,
}

impl KeptEvents {
    /// Keeps an event for a later [`Keyspace::tell`].
    pub(crate) fn push(&mut self, slot: usize, key: &[u8], event: KeptEvent) {
        self.bytes += size_of::<Kept>() + key.len();
        self.events.push_back(Kept { slot, key: key.into(), event });
    }
    /// The events that were not told, each with its slot and its key.
    pub(crate) fn into_events(self) -> impl Iterator<Item = (usize, Box<[u8]>, KeptEvent)> {
        self.events.into_iter().map(|Kept { slot, key, event }| (slot, key, event))
    }
    /// Number of events so far, told ones included.
    pub(crate) fn len(&self) -> usize {
        self.told + self.events.len()
    }
    /// Bytes of all events so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Tells the first `until` events, except those already told.
    pub(crate) fn tell(&mut self, keyspace: &Keyspace, until: usize) {
        let n = until.saturating_sub(self.told).min(self.events.len());
        self.told += n;
        for kept in self.events.drain(..n) {
            let KeptEvent { event, changed, by } = kept.event;
            keyspace.tell(kept.slot, &kept.key, event, changed, by);
        }
    }
}
