//! [`Watch`]: the keys that a session watches. The cost for EXEC does not grow with their number.
//!
//! A change of a watched key raises the session's flag. An expiry is a change by time, and its time is known when the
//! key is watched: EXEC compares it with the clock and reads no key. WATCH of very many keys runs in slices, one per
//! turn. A helper thread removes the entries in the shards when they are many, or when a shard is locked. A flag
//! raised there meanwhile has no effect.

use super::multi::{lock, outcome_of_locked};
use super::run::NextStep;
use super::{Progress, Session};
use crate::{Engine, Host, Now};
use smallvec::SmallVec;
use std::sync::Arc;
use strand_keyspace::{KeyHash, Keyspace, Txn, WatchFlag};
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

/// Keys that a session begins to watch in one turn: about 0.2 milliseconds.
const WATCHED_AT_ONCE_MAX: usize = 256;
/// Keys that a worker stops watching at once: about 10 microseconds. The helper thread yields the processor after as
/// many keys.
const UNWATCHED_AT_ONCE_MAX: usize = 64;
/// Approximate memory of a watched key, here and in its shard, without the key's bytes.
const PLACE_BYTES: usize = 128;

/// The watched keys of a session.
#[derive(Default)]
pub(super) struct Watch {
    keys: Vec<(usize, Box<[u8]>)>,
    flag: WatchFlag,
    /// The shards of the watched keys, in ascending order.
    shards: Vec<usize>,
    /// The earliest expiry of the watched keys and of their fields, in unix milliseconds.
    expires_ms: Option<i64>,
    bytes: usize,
}

impl Watch {
    /// True when no key is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    /// True when a key has changed. EXEC then runs nothing.
    pub(super) fn is_dirty(&self) -> bool {
        !self.keys.is_empty() && self.flag.has_changed()
    }
    /// False when a watched key has changed or expired. Lock the shards of these keys before the call.
    pub(super) fn is_unchanged(&self, txn: &Txn<'_>) -> bool {
        !self.is_dirty() && !self.expires_ms.is_some_and(|at_ms| txn.has_passed(at_ms))
    }
    /// The shards of the watched keys, in ascending order.
    pub(super) fn shards(&self) -> &[usize] {
        &self.shards
    }
    /// Heap bytes of the keys, here and in their shards.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    fn add(&mut self, txn: &mut Txn<'_>, db: usize, name: &[u8]) {
        let key = txn.keyspace().key(name);
        let watched = txn.db(db).watch(&key, &self.flag);
        if !watched.is_new {
            return;
        }
        self.expires_ms = [self.expires_ms, watched.expires_ms].into_iter().flatten().min();
        let shard = txn.keyspace().shard_of(key.hash);
        if let Err(place) = self.shards.binary_search(&shard) {
            self.shards.insert(place, shard);
        }
        self.bytes += name.len() + PLACE_BYTES;
        self.keys.push((db, name.into()));
    }
    /// Removes the flag from every key. The caller must hold no shard.
    pub(super) fn end(mut self, engine: &Engine) {
        let keyspace = &engine.keyspace;
        if self.keys.len() <= UNWATCHED_AT_ONCE_MAX {
            self.keys.retain(|(db, key)| !keyspace.try_unwatch(*db, key, &self.flag));
        }
        if !self.keys.is_empty() {
            let (keys, flag, host) = (self.keys, self.flag, engine.host.clone());
            engine.host.reclaim(Box::new(Unwatched { keyspace: keyspace.clone(), keys, flag, host }));
        }
    }
}

/// Keys that are no longer watched. Dropping this removes their entries one after the other, and lets others run in
/// between: a worker on the same core waited 22 ms for the end of 100,000 keys.
struct Unwatched {
    keyspace: Arc<Keyspace>,
    keys: Vec<(usize, Box<[u8]>)>,
    flag: WatchFlag,
    host: Arc<dyn Host>,
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        for (i, (db, key)) in self.keys.drain(..).enumerate() {
            if i.is_multiple_of(UNWATCHED_AT_ONCE_MAX) {
                self.host.yield_now();
            }
            self.keyspace.unwatch(db, &key, &self.flag);
        }
    }
}

impl Session {
    /// `WATCH key [key ...]`. Reply: OK.
    pub(super) fn watch(&mut self, args: Args<'_>, now: Now) -> Result<NextStep, ErrorText> {
        if self.queue.is_some() {
            return Err(b"ERR WATCH inside MULTI is not allowed".to_vec());
        }
        let engine = self.engine.clone();
        let keyspace = &*engine.keyspace;
        let begin = self.progress.done.max(1);
        let end = begin.saturating_add(WATCHED_AT_ONCE_MAX).min(args.len());
        let names: SmallVec<[&[u8]; 8]> = args.skip(begin).iter().take(end - begin).collect();
        let hashes: SmallVec<[KeyHash; 8]> = names.iter().map(|key| keyspace.key(key).hash).collect();
        let shards = keyspace.shards_of(&hashes);
        let Some(mut txn) = lock(&engine, &self.client, &shards, now) else {
            // The gate does not look at the shards of very many keys.
            return outcome_of_locked(&engine, &shards);
        };
        if self.watch.is_empty() {
            *self.client.watch_flag.lock() = self.watch.flag.clone();
        }
        names.iter().for_each(|name| self.watch.add(&mut txn, self.db, name));
        drop(txn);
        if end < args.len() {
            self.progress.done = end;
            return Ok(NextStep::Yield);
        }
        self.progress = Progress::default();
        self.reply().ok();
        Ok(NextStep::Continue)
    }
    /// `UNWATCH`. Reply: OK.
    pub(super) fn unwatch(&mut self) -> Result<NextStep, ErrorText> {
        self.unwatch_all();
        self.reply().ok();
        Ok(NextStep::Continue)
    }
    /// Stops watching all keys.
    pub(super) fn unwatch_all(&mut self) {
        std::mem::take(&mut self.watch).end(&self.engine);
    }
}
