//! [`KeyEvent`]: what happened to a key, by redis-server's names; [`Listener`]: who wants to know.
//!
//! Whoever changes a record tells the listener where it notes the change for WATCH, with the key's shard held: so events of a key
//! come in the order of its changes. While nobody listens, that is one branch on a number ([`crate::Settings::listens`]).
//! What a change is called, the command says beforehand ([`crate::Txn::call_changes`]); the record layer itself knows only that a
//! key was made (`new`), removed (`del`), expired or evicted, was looked for in vain (`keymiss`), or that fields of a hash expired
//! (`hexpired`).

use crate::Keyspace;
use std::collections::VecDeque;
use std::fmt::Debug;

/// A class of events: a letter of `notify-keyspace-events`.
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
    /// Its class.
    pub class: Class,
    /// redis-server's name of it; empty: it has none, and is no event.
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

/// Who wants to know what happens to keys. Called with the key's shard held, so it must be quick and may not look at data.
pub trait Listener: Send + Sync + Debug {
    /// `event` happened to `key` of database `db`; `changed` when its value, its expiry or its being there changed.
    /// `by` is the client whose command did it; 0 is none.
    fn tell(&self, db: usize, key: &[u8], event: KeyEvent, changed: bool, by: u64);
    /// Whole databases changed, by a flush or a swap.
    fn tell_all(&self);
}

/// How a command's changes are called, and whose they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) event: KeyEvent,
    /// It only reads: a key that is looked for in vain is an event.
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
    event: KeyEvent,
    changed: bool,
    by: u64,
}

/// Events of work that may be taken back: see [`crate::Txn::keep_events`].
#[derive(Debug, Default)]
pub(crate) struct KeptEvents {
    events: VecDeque<Kept>,
    /// How many were told already.
    told: usize,
    bytes: usize,
}

impl KeptEvents {
    /// As [`Keyspace::tell`], later.
    pub(crate) fn push(&mut self, slot: usize, key: &[u8], event: KeyEvent, changed: bool, by: u64) {
        self.bytes += size_of::<Kept>() + key.len();
        self.events.push_back(Kept { slot, key: key.into(), event, changed, by });
    }
    /// How many there were.
    pub(crate) fn len(&self) -> usize {
        self.told + self.events.len()
    }
    /// What they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Tells the first `until` of them, as far as they are not told.
    pub(crate) fn tell(&mut self, keyspace: &Keyspace, until: usize) {
        let n = until.saturating_sub(self.told).min(self.events.len());
        self.told += n;
        for kept in self.events.drain(..n) {
            keyspace.tell(kept.slot, &kept.key, kept.event, kept.changed, kept.by);
        }
    }
}
