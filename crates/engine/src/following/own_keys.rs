//! [`OwnKeys`]: the keys that clients write to a replica that accepts writes (`replica-read-only no`).
//!
//! On a replica no key expires by itself, because the primary's stream has the removals. It has none of the keys that
//! only this server has. So each key that a client writes is noted, and its expiry is looked up at the next tick. Keys
//! that expire are kept in the order of their expiries until they are removed.

use crate::Engine;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of written keys, and of expired ones, that one tick looks at.
const KEYS_PER_TICK: usize = 10_000;

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
    /// Keys that clients have written since the last tick.
    written: Vec<OwnKey>,
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
    /// Begins or ends the noting of keys. Keys that were noted before stay until they have expired.
    pub(super) fn set_noting(&self, on: bool) {
        self.is_noting.store(on, Relaxed);
    }
    /// Notes a key that a client has written. The caller may hold the key's shard.
    pub(crate) fn note(&self, db: usize, key: &[u8]) {
        self.state.lock().written.push((db, key.into()));
    }
    /// Number of keys that expire.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().expiries.len()
    }
    /// Forgets all keys, because keys expire by themselves from now on.
    pub(super) fn forget(&self) {
        *self.state.lock() = State::default();
    }
    /// The keys of which to look up the expiry at `now_ms`: those that were written, and those that expire by then. At most
    /// [`KEYS_PER_TICK`] of each.
    fn due(&self, now_ms: i64) -> Vec<OwnKey> {
        let mut state = self.state.lock();
        let written = state.written.len().min(KEYS_PER_TICK);
        let mut due: Vec<OwnKey> = state.written.drain(..written).collect();
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
