//! [`Tracking`]: the clients that keep copies of keys (CLIENT TRACKING), and their invalidations.
//!
//! By default a key that a client reads is remembered, just before the read. The first change of the key sends an
//! invalidation to all its readers and forgets them. A change is reported while the key's shard is locked
//! ([`crate::notices`]). A client that read the old value is already remembered then, because it is remembered before it
//! locks the shard. Invalidations go into the client's inbox. Its session opens the inbox between two commands, and not
//! while a reply is on its way from a helper thread. So an invalidation never overtakes the reply that it belongs to.
//!
//! With BCAST a client gets an invalidation for every key with one of its prefixes. These invalidations take the way of
//! published messages ([`crate::pubsub`]).
//!
//! Bounds: `tracking-table-max-keys`. While the table has more keys, random keys are invalidated and forgotten: a few by
//! each read that adds a key, the rest by the regular work ([`Tracking::forget_excess`]). A key that is too long to be
//! remembered ([`KEY_BYTES_MAX`]) is invalidated at once, after the reply, so that no client keeps a copy of it.

use crate::Engine;
use crate::clients::{Client, Clients};
use crate::pubsub::Frame;
use indexmap::IndexMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use strand_commands::introspect::key_accesses;
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;

/// Parts of the table. Each has its own lock.
const PARTS: usize = 64;
/// Keys with more bytes are not remembered.
const KEY_BYTES_MAX: usize = 1024;
/// Maximum number of keys that a read forgets, that CONFIG SET forgets, and that the regular work forgets in a turn.
const FORGOTTEN_PER_READ: usize = 4;
const FORGOTTEN_PER_CONFIG_SET: usize = 256;
pub(crate) const FORGOTTEN_PER_TICK: usize = 10_000;
/// When a key reaches this number of readers, and at each doubling, readers that have disconnected are forgotten.
const READERS_MIN: usize = 64;
/// Maximum number of prefixes of a client, and of bytes of one prefix.
pub(crate) const PREFIXES_MAX: usize = 1024;
pub(crate) const PREFIX_BYTES_MAX: usize = 1024;

/// A client's tracking options as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackingFlags(u32);

#[allow(missing_docs)]
impl TrackingFlags {
    pub(crate) const OFF: TrackingFlags = TrackingFlags(0);
    pub(crate) const ON: TrackingFlags = TrackingFlags(1);
    pub(crate) const BCAST: TrackingFlags = TrackingFlags(1 << 1);
    pub(crate) const OPTIN: TrackingFlags = TrackingFlags(1 << 2);
    pub(crate) const OPTOUT: TrackingFlags = TrackingFlags(1 << 3);
    pub(crate) const NOLOOP: TrackingFlags = TrackingFlags(1 << 4);
    /// The client that gets the redirected invalidations has disconnected.
    pub(crate) const BROKEN: TrackingFlags = TrackingFlags(1 << 5);

    pub(crate) fn has(self, other: TrackingFlags) -> bool {
        self.0 & other.0 == other.0
    }
    pub(crate) fn with(self, other: TrackingFlags) -> TrackingFlags {
        TrackingFlags(self.0 | other.0)
    }
}

/// One client's tracking state, readable by all threads.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    mode: AtomicU32,
    /// The client that gets the invalidations instead. 0: none.
    redirect: AtomicU64,
    /// True when the client had a copy of the last key that it was about to read, before it read the key.
    had_copy: AtomicBool,
}

impl Tracked {
    pub(crate) fn mode(&self) -> TrackingFlags {
        TrackingFlags(self.mode.load(Relaxed))
    }
    pub(crate) fn redirect(&self) -> u64 {
        self.redirect.load(Relaxed)
    }
    /// True when the keys that the client reads are remembered. `caching`: CLIENT CACHING came before the command.
    pub(crate) fn keeps_copies(&self, caching: bool) -> bool {
        let mode = self.mode();
        let reads = mode.has(TrackingFlags::ON) && !mode.has(TrackingFlags::BCAST);
        reads && (!mode.has(TrackingFlags::OPTIN) || caching) && !(mode.has(TrackingFlags::OPTOUT) && caching)
    }
}

impl Engine {
    /// Remembers the keys that `client` is about to read. Call this before a command that may read keys. `caching`:
    /// CLIENT CACHING came before the command.
    pub(crate) fn remember(
        &self,
        client: &Client,
        caching: bool,
        spec: &'static CommandSpec,
        args: Args<'_>,
    ) {
        if client.tracked.keeps_copies(caching) && spec.flags.has(Flags::READONLY) {
            for (at, _) in key_accesses(spec, args) {
                self.tracking.remember(client, args.at(at));
            }
        }
    }
}

/// The readers of each key. An index map, because a random key of the map is forgotten without a search.
type ReaderPart = IndexMap<Box<[u8]>, Readers>;
/// The ids of the clients that have read a key.
type Readers = SmallVec<[u64; 2]>;

/// The clients that keep copies of keys, and the keys that they have read.
pub(crate) struct Tracking {
    clients: Arc<Clients>,
    parts: Vec<Mutex<ReaderPart>>,
    hasher: RandomState,
    on: AtomicUsize,
    keys: AtomicUsize,
    items: AtomicUsize,
    keys_max: AtomicUsize,
    /// Counts the keys that were taken out at random.
    turn: AtomicUsize,
}

impl Tracking {
    pub(crate) fn new(clients: Arc<Clients>) -> Tracking {
        Tracking {
            clients,
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            on: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
        }
    }
    /// `tracking-table-max-keys`; 0 is no limit.
    pub(crate) fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Relaxed);
        self.forget_excess(FORGOTTEN_PER_CONFIG_SET);
    }
    /// Number of tracked clients.
    pub(crate) fn clients_len(&self) -> usize {
        self.on.load(Relaxed)
    }
    /// The number of remembered keys, and of all their readers.
    pub(crate) fn remembered(&self) -> (usize, usize) {
        (self.keys.load(Relaxed), self.items.load(Relaxed))
    }
    /// Turns tracking on, or changes its options.
    pub(crate) fn turn_on(&self, client: &Client, mode: TrackingFlags, redirect: u64) {
        if !client.tracked.mode().has(TrackingFlags::ON) {
            self.on.fetch_add(1, Relaxed);
        }
        client.tracked.redirect.store(redirect, Relaxed);
        client.tracked.mode.store(mode.with(TrackingFlags::ON).0, Relaxed);
    }
    /// Turns tracking off for a client. When no other client tracks, all keys are forgotten. Their memory is returned,
    /// because freeing it may take long.
    #[must_use]
    pub(crate) fn turn_off(&self, client: &Client) -> Option<Box<dyn Send>> {
        let is_last = client.tracked.mode().has(TrackingFlags::ON) && self.on.fetch_sub(1, Relaxed) == 1;
        client.tracked.redirect.store(0, Relaxed);
        client.tracked.mode.store(TrackingFlags::OFF.0, Relaxed);
        is_last.then(|| self.forget_all(|| self.clients_len() == 0))
    }
    /// Remembers that the client is about to read `key`.
    pub(crate) fn remember(&self, client: &Client, key: &[u8]) {
        if key.len() > KEY_BYTES_MAX {
            return self.tell_reader(client.id, &Frame::invalidation(key), 0);
        }
        let mut part = self.parts[self.part_of(key)].lock();
        let readers = part.get_mut(key);
        let had_copy = readers.as_ref().is_some_and(|readers| readers.contains(&client.id));
        client.tracked.had_copy.store(had_copy, Relaxed);
        let readers = match readers {
            Some(readers) => readers,
            None => {
                self.keys.fetch_add(1, Relaxed);
                part.entry(key.into()).or_default()
            }
        };
        if had_copy {
            return;
        }
        if readers.len() >= READERS_MIN && readers.len().is_power_of_two() {
            let before = readers.len();
            readers.retain(|id| self.clients.get(*id).is_some());
            self.items.fetch_sub(before - readers.len(), Relaxed);
        }
        readers.push(client.id);
        self.items.fetch_add(1, Relaxed);
        drop(part);
        self.forget_excess(FORGOTTEN_PER_READ);
    }
    /// While the table has too many keys, invalidates and forgets `at_most` random keys.
    pub(crate) fn forget_excess(&self, at_most: usize) {
        let keys_max = self.keys_max.load(Relaxed);
        for _ in 0..at_most {
            if keys_max == 0 || self.keys.load(Relaxed) <= keys_max {
                return;
            }
            let Some((key, readers)) = self.take_any() else { return };
            self.tell_readers(&key, &readers, 0);
        }
    }
    /// Takes a random key out of the table.
    fn take_any(&self) -> Option<(Box<[u8]>, Readers)> {
        let turn = self.turn.fetch_add(1, Relaxed);
        (0..PARTS).find_map(|step| {
            let mut part = self.parts[turn.wrapping_add(step) % PARTS].lock();
            let at = self.hasher.hash_one(turn) as usize % part.len().max(1);
            let taken = part.swap_remove_index(at)?;
            if part.len() < part.capacity() / 8 {
                let len = part.len();
                part.shrink_to(2 * len);
            }
            Some(taken)
        })
    }
    /// Tells the readers of `key` that client `by` (0: none) changed the key. `by_reading`: `by` ran a command that only
    /// reads. Then `by` has been noted as a reader, and stays one. It is told only of a copy that it had before.
    pub(crate) fn changed(&self, key: &[u8], by: u64, by_reading: bool) {
        if self.keys.load(Relaxed) > 0 {
            let mut part = self.parts[self.part_of(key)].lock();
            let mut readers = part.swap_remove(key);
            if by_reading
                && let Some(readers) = &mut readers
                && let Some(at) = readers.iter().position(|reader| *reader == by)
            {
                match self.clients.get(by).is_some_and(|client| client.tracked.had_copy.load(Relaxed)) {
                    true => _ = self.items.fetch_add(1, Relaxed),
                    false => _ = readers.swap_remove(at),
                }
                part.insert(key.into(), SmallVec::from_slice(&[by]));
                self.keys.fetch_add(1, Relaxed);
            }
            drop(part);
            if let Some(readers) = readers {
                self.tell_readers(key, &readers, by);
            }
        }
    }
    /// Reports that whole databases were flushed or swapped.
    pub(crate) fn all_changed(&self) {
        drop(self.forget_all(|| true));
        let frame = Frame::invalidation_of_all();
        for client in self.clients.all().iter().filter(|client| hears(client, 0)) {
            tell(&self.clients, client, frame.clone());
        }
    }
    /// Forgets the keys of each part for which `may` is true. `may` is asked under the part's lock: a client that turned
    /// tracking on before is counted when its first key arrives in the part. Returns what was forgotten.
    fn forget_all(&self, may: impl Fn() -> bool) -> Box<dyn Send> {
        let forget = |part: &Mutex<ReaderPart>| {
            let mut part = part.lock();
            let old = if may() { std::mem::take(&mut *part) } else { ReaderPart::default() };
            drop(part);
            self.keys.fetch_sub(old.len(), Relaxed);
            self.items.fetch_sub(old.values().map(SmallVec::len).sum(), Relaxed);
            old
        };
        let forgotten: Vec<ReaderPart> = self.parts.iter().map(forget).collect();
        Box::new(forgotten)
    }
    fn tell_readers(&self, key: &[u8], readers: &[u64], by: u64) {
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(readers.len(), Relaxed);
        let frame = Frame::invalidation(key);
        for client in readers {
            self.tell_reader(*client, &frame, by);
        }
    }
    fn tell_reader(&self, client: u64, frame: &Frame, by: u64) {
        let Some(client) = self.clients.get(client) else { return };
        // As in redis-server, a client that has changed to BCAST hears no more of the keys that it has read before.
        if !client.tracked.mode().has(TrackingFlags::BCAST) && hears(&client, by) {
            tell(&self.clients, &client, frame.clone());
        }
    }
    fn part_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % PARTS
    }
}

/// True when `client` wants to hear of the changes that client `by` (0: none) makes.
pub(crate) fn hears(client: &Client, by: u64) -> bool {
    let mode = client.tracked.mode();
    mode.has(TrackingFlags::ON) && !(mode.has(TrackingFlags::NOLOOP) && by == client.id)
}

/// Sends an invalidation to a client, or to the client of its redirection. `all` are the clients of the server.
pub(crate) fn tell(all: &Clients, client: &Client, frame: Frame) {
    match client.tracked.redirect() {
        0 => client.push_frame(frame),
        to => match all.get(to) {
            Some(target) => target.push_frame(frame.redirected()),
            None => {
                client.tracked.mode.fetch_or(TrackingFlags::BROKEN.0, Relaxed);
                client.push_frame(Frame::broken_redirect(to));
            }
        },
    }
}
