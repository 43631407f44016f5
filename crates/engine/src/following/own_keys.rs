//! [`OwnKeys`]: the keys that clients write to a replica that accepts writes (`replica-read-only no`).
//!
//! On a replica no key expires by itself, because the primary's stream has the removals. It has none of the keys that
//! only this server has. So each key of which a client sets the expiry is noted, and the expiry is looked up at the next
//! tick. Keys that expire are kept in the order of their expiries until they are removed. As in redis-server, a flush and
//! a snapshot of the primary forget the keys.

use crate::Engine;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_keyspace::KeyEvent;

/// Maximum number of written keys, and of expired ones, that one tick looks at.
const KEYS_PER_TICK: usize = 10_000;

/// The events after which a key may have an expiry that a client has set.
const EVENTS: [&str; 5] = ["expire", "restore", "copy_to", "rename_to", "move_to"];

/// The number of a database, and the name of a key.
type OwnKey = (usize, Arc<[u8]>);

/// See the module.
#[derive(Default)]
pub(crate) struct OwnKeys {
    /// True while this server is a replica that accepts writes.
    is_noting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Keys of which clients may have set the expiry since the last tick.
    written: HashSet<OwnKey, ahash::RandomState>,
    /// The keys that expire, with their expiries in unix milliseconds.
    expiries: HashMap<OwnKey, i64, ahash::RandomState>,
    in_order: BTreeSet<(i64, OwnKey)>,
}

impl State {
    fn set(&mut self, key: OwnKey, expiry_ms: Option<i64>) {
        if let Some(before) = self.expiries.remove(&key) {
            self.in_order.remove(&(before, key.clone()));
        }
        if let Some(expiry_ms) = expiry_ms {
            self.in_order.insert((expiry_ms, key.clone()));
            self.expiries.insert(key, expiry_ms);
        }
    }
}

impl OwnKeys {
    /// True while keys are to be noted.
    pub(crate) fn is_noting(&self) -> bool {
        self.is_noting.load(Relaxed)
    }
    /// Begins or ends the noting of keys. Keys that were noted before stay until they have expired. True when this is a
    /// change.
    pub(crate) fn set_noting(&self, on: bool) -> bool {
        self.is_noting.swap(on, Relaxed) != on
    }
    /// Notes a key, if the event says that a client may have set its expiry. The caller may hold the key's shard.
    pub(crate) fn note(&self, db: usize, key: &[u8], event: KeyEvent) {
        if EVENTS.contains(&event.name) {
            self.state.lock().written.insert((db, key.into()));
        }
    }
    /// Number of keys that expire.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().expiries.len()
    }
    /// Forgets all keys.
    pub(crate) fn forget(&self) {
        *self.state.lock() = State::default();
    }
    /// The keys of which to look up the expiry at `now_ms`: those that were written, and those that expire by then. At most
    /// [`KEYS_PER_TICK`] of each.
    fn due(&self, now_ms: i64) -> Vec<OwnKey> {
        let mut state = self.state.lock();
        let mut due: Vec<OwnKey> = state.written.extract_if(|_| true).take(KEYS_PER_TICK).collect();
        let expired = state.in_order.iter().take_while(|(expiry_ms, _)| *expiry_ms <= now_ms);
        due.extend(expired.take(KEYS_PER_TICK).map(|(_, key)| key.clone()));
        due
    }
}

impl Engine {
    /// Removes keys that have expired and that clients have written to this replica.
    pub(crate) fn expire_own_keys(&self, now_ms: i64) {
        for (db, key) in self.following.own_keys.due(now_ms) {
            let expiry_ms = self.keyspace.expire_kept(db, &key, now_ms);
            self.following.own_keys.state.lock().set((db, key), expiry_ms);
        }
    }
}
