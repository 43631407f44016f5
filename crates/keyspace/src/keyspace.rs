//! [`Keyspace`]: all shards, and the operations that visit every shard. Most of these operations lock one shard at
//! a time.

use crate::event::ExpiredCounts;
use crate::extendible::{Content, POSITION_BITS, Shape, position_of};
use crate::journal::effects::{Arg, Effects};
use crate::journal::{Journal, Removal, Wake};
use crate::record::prefetch_outside;
use crate::shard::{KeyPositions, LockedShard, Shard, Table};
use crate::tracking::Followed;
use crate::types::Parts;
use crate::watch::WatchList;
use crate::{
    Changed, JOURNAL, KeyEvent, LISTENER, Listener, PrefixSet, Settings, Touched, Txn, Value, WatchFlag,
};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU16, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Bytes of a record that are prefetched. If a record is longer, the processor's own prefetcher loads the rest.
const PREFETCH_BYTES: usize = 5 * strand_chain::CACHE_LINE_BYTES;
/// Maximum number of dependent loads between a hash's record and the data that a look-up of a field reads.
const PREFETCH_STEPS: usize = 4;
/// Number of keys that are prefetched together. Their shards are all held meanwhile, for about a microsecond.
const PREFETCH_KEYS: usize = 16;
/// Maximum number of shards. A shard's index takes 16 of a position's bits, and the other bits suffice for
/// segments.
const SHARDS_MAX: usize = 1 << 16;

/// The keyed hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub u64);

/// A key with its hash, computed once per command.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes of the key.
    pub bytes: &'a [u8],
    /// The hash of the key's bytes.
    pub hash: KeyHash,
}

/// The cursor of SCAN: a position in the order of hashes. 0 means both the start and the end. A cursor is below
/// 2^40, so the number types of all clients can hold it.
pub type ScanCursor = u64;

/// All data of the server.
///
/// SELECT reaches databases `0..databases()`. Each database has a *system companion* ([`Keyspace::system_db`]), a
/// second database that SELECT cannot reach. The companion holds Strand's own state about the data (versions of
/// imports), so a flush or a swap of the database applies to its companion, too.
#[derive(Debug)]
pub struct Keyspace {
    pub(crate) shards: Box<[LockedShard]>,
    /// Hashes keys. Clients choose the keys, so the hash is keyed with 256 secret bits of this process, and a
    /// client cannot compute which keys collide. The cursors of SCAN show parts of hashes, but only to users who
    /// may read all keys. If a client does find keys with equal positions, only their segment grows past
    /// its size and becomes slower.
    hasher: ahash::RandomState,
    /// Seed of the hasher that a snapshot uses for its marks.
    mark_seed: u64,
    /// Number of snapshots whose kept records exceed their budgets.
    pub(crate) snapshots_over: Arc<Mutex<usize>>,
    /// Number of views created so far.
    pub(crate) views: AtomicU64,
    /// Bytes that all views of all keys ([`Txn::view_of_held`]) keep together.
    pub(crate) view_bytes: Arc<AtomicUsize>,
    databases: usize,
    base_bits: u8,
    pub(crate) settings: Settings,
    pub(crate) expired_total: AtomicU64,
    expired_fields_total: AtomicU64,
    /// Number of calls of [`Keyspace::record`].
    pub(crate) other_changes: AtomicU64,
    /// Number of flushes and swaps of each database that was flushed or swapped.
    pub(crate) flushes: Mutex<BTreeMap<usize, u64>>,
    /// The flags of all clients that watch keys.
    pub(crate) watches: Mutex<WatchList>,
    /// One counter that numbers waiters (BLPOP) and changes of keys with waiters. A lower number came earlier.
    pub(crate) place_numbers: Arc<AtomicU64>,
    /// Slot and position at which active expiry continues.
    pub(crate) expire_from: Mutex<(usize, u64)>,
    pub(crate) evicted_total: AtomicU64,
    /// See [`Keyspace::leaps`].
    pub(crate) leaps: Arc<AtomicU64>,
    /// Slot and position at which eviction continues.
    pub(crate) evict_from: Mutex<(usize, u64)>,
    /// Big values that wait for [`Keyspace::take_garbage`].
    garbage: Mutex<Vec<Value>>,
    pub(crate) followed: Arc<Followed>,
    listener: OnceLock<Arc<dyn Listener>>,
    journal: Journal,
    /// Bytes of the values in `garbage`, plus the bytes of the flushed tables ([`Flushed`]) that are not
    /// freed yet.
    pub(crate) garbage_bytes: Arc<AtomicUsize>,
}

/// The tables of a flushed database ([`Keyspace::flush`]). Dropping this value frees the tables.
#[derive(Debug)]
pub struct Flushed {
    pub(crate) tables: Vec<Table>,
    pub(crate) garbage_bytes: Arc<AtomicUsize>,
}

impl Flushed {
    /// Frees one of the tables. Returns its bytes, or `None` when no table is left.
    pub fn free_one(&mut self) -> Option<usize> {
        let table = self.tables.pop()?;
        let bytes = table.records.heap_bytes();
        drop(table);
        self.garbage_bytes.fetch_sub(bytes, Relaxed);
        Some(bytes)
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        while self.free_one().is_some() {}
    }
}

/// The numbers of keys in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// All keys, including expired keys that were not removed yet.
    pub all: usize,
    /// Number of keys with an expiry.
    pub expiring: usize,
    /// Sum of the expiries of all keys with an expiry, in milliseconds since 1970.
    pub expiries_ms: i128,
    /// Number of hashes with fields that expire.
    pub mortal: usize,
}

impl Keys {
    /// Mean time to live of the keys with an expiry, in milliseconds. 0 when no key has an expiry.
    pub fn mean_ttl_ms(&self, now_ms: i64) -> i64 {
        let mean_ms = if self.expiring == 0 { return 0 } else { self.expiries_ms / self.expiring as i128 };
        (mean_ms - i128::from(now_ms)).clamp(0, i64::MAX.into()) as i64
    }
}

impl Keyspace {
    /// A keyspace of `shards` shards (rounded up to a power of two, at most 65,536) and `databases` databases,
    /// with hashes keyed by `seed`.
    pub fn new(shards: usize, databases: usize, seed: [u64; 4]) -> Keyspace {
        let shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let base_bits = shards.trailing_zeros() as u8;
        let [a, b, c, d] = seed;
        crate::types::hash::key_fields_with(seed);
        let hasher = ahash::RandomState::with_seeds(a, b, c, d);
        let leaps = Arc::<AtomicU64>::default();
        let shard = |i: u64| Shard::new(base_bits, KeyPositions(hasher.clone()), a ^ i << 32 | i);
        Keyspace {
            shards: (0..shards as u64).map(|i| LockedShard::new(shard(i), leaps.clone())).collect(),
            hasher,
            mark_seed: b ^ d.rotate_left(17),
            snapshots_over: Arc::default(),
            views: AtomicU64::new(0),
            view_bytes: Arc::default(),
            databases,
            base_bits,
            settings: Settings::default(),
            expired_total: AtomicU64::new(0),
            expired_fields_total: AtomicU64::new(0),
            other_changes: AtomicU64::new(0),
            flushes: Mutex::default(),
            watches: Mutex::default(),
            place_numbers: Arc::default(),
            expire_from: Mutex::new((0, 0)),
            evicted_total: AtomicU64::new(0),
            leaps,
            evict_from: Mutex::new((0, 0)),
            garbage: Mutex::default(),
            followed: Arc::default(),
            listener: OnceLock::new(),
            journal: Journal::new(),
            garbage_bytes: Arc::default(),
        }
    }
    /// An empty keyspace of one shard and one database, with the tunables of this keyspace. A command uses it to
    /// work on copies of values while nobody else can see them.
    pub fn scratch(&self, seed: [u64; 4]) -> Keyspace {
        self.scratch_with(1, seed)
    }
    /// Like [`Keyspace::scratch`], with this number of databases.
    pub(crate) fn scratch_with(&self, databases: usize, seed: [u64; 4]) -> Keyspace {
        Keyspace { settings: self.settings.quiet(), ..Keyspace::new(1, databases, seed) }
    }
    /// Sets the listener. It receives events while [`Settings::listens`] has the bit [`LISTENER`]. Only the first
    /// call has an effect.
    pub fn set_listener(&self, listener: Arc<dyn Listener>) {
        let _ = self.listener.set(listener);
    }
    /// True while the listener wants events or the journal records changes.
    #[inline]
    pub(crate) fn listens(&self) -> bool {
        self.settings.listens.load(Relaxed) != 0
    }
    /// True while the listener wants events.
    pub fn has_listener(&self) -> bool {
        self.settings.listens.load(Relaxed) & LISTENER != 0
    }
    /// The journal: the stream of all changes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
    /// Starts or stops the recording of changes in the journal. All shards are held meanwhile, so every transaction
    /// is recorded either whole or not at all. Returns the journal's offset at that moment. The next command
    /// of the stream selects its database.
    pub fn switch_journal(&self, on: bool) -> u64 {
        let _all = self.lock_all(0);
        self.journal.switch(on);
        match on {
            true => self.settings.listens.fetch_or(JOURNAL, SeqCst),
            false => self.settings.listens.fetch_and(!JOURNAL, SeqCst),
        };
        self.journal.select_again()
    }
    /// Records in the journal a command that changes something other than keys, and counts it as a change.
    pub fn record<'a>(&self, args: impl Iterator<Item = &'a [u8]>) {
        self.other_changes.fetch_add(1, Relaxed);
        let mut txn = self.unlocked(0);
        txn.begin_command(|| (KeyEvent::NONE, false), true, 0);
        let args: Vec<Arg<'_>> = args.map(Arg::Bytes).collect();
        txn.effect(0, &args);
    }
    /// Records in `effects` what expiry or eviction has removed of a key. The recorded commands stay independent of each
    /// other. For code that holds a shard without a [`Txn`].
    pub(crate) fn record_removal(
        &self,
        slot: usize,
        key: &[u8],
        removal: &Removal,
        effects: &mut Option<Box<Effects>>,
    ) {
        if slot.is_multiple_of(2) && self.journal.is_on() {
            let effects = effects.get_or_insert_with(Journal::effects);
            effects.mark_independent();
            effects.record_removal(slot / 2, key, removal);
        }
    }
    /// Reports an event to the listener. `slot` is the slot of the key's database.
    #[cold]
    pub(crate) fn report(&self, slot: usize, key: &[u8], event: KeyEvent, changed: Changed, client: u64) {
        // The system companions have no events.
        if slot.is_multiple_of(2)
            && self.has_listener()
            && let Some(listener) = self.listener.get()
        {
            listener.report(slot / 2, key, event, changed == Changed::Yes, client);
        }
    }
    /// Reports that databases were flushed or swapped, also while the listener wants no events: what it remembers about
    /// keys is no longer true.
    #[cold]
    pub(crate) fn report_all(&self) {
        if let Some(listener) = self.listener.get() {
            listener.report_all();
        }
    }
    /// The tunables of this keyspace.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Number of databases that SELECT reaches.
    pub fn databases(&self) -> usize {
        self.databases
    }
    /// Index of the system companion of `db`.
    pub fn system_db(&self, db: usize) -> usize {
        self.databases + db
    }
    /// Number of shards of the keyspace.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }
    /// Hashes a key.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: KeyHash(self.hasher.hash_one(bytes)) }
    }
    /// Index of the shard of a key with this hash. The top bits of a hash give the shard.
    #[inline]
    pub fn shard_of(&self, hash: KeyHash) -> usize {
        self.shard_at(position_of(hash.0))
    }
    /// The position of a key with this hash. In the order of positions, the keys of a shard follow each other, and
    /// so do the keys of a segment.
    #[inline]
    pub fn place_of(&self, hash: KeyHash) -> u64 {
        position_of(hash.0)
    }
    /// Locks the shards of these keys, each once, in ascending order.
    #[inline]
    pub fn lock(&self, hashes: &[KeyHash], now_ms: i64) -> Txn<'_> {
        match hashes {
            [hash] => Txn::one(self, self.shard_of(*hash), now_ms),
            _ => Txn::ascending(self, self.shards_of(hashes).into_iter(), now_ms),
        }
    }
    /// Like [`Keyspace::lock`], but returns `None` when somebody else holds one of the shards.
    pub fn try_lock(&self, hashes: &[KeyHash], now_ms: i64) -> Option<Txn<'_>> {
        let mut txn = self.unlocked(now_ms);
        self.try_lock_into(hashes, &mut txn).then_some(txn)
    }
    /// A `Txn` that holds no shard. [`Keyspace::try_lock_into`] adds shards to it.
    #[inline]
    pub fn unlocked(&self, now_ms: i64) -> Txn<'_> {
        Txn::none(self, now_ms)
    }
    /// Like [`Keyspace::try_lock`], but adds the shards to a `txn` that holds none. When it returns false, `txn`
    /// still holds none.
    #[inline]
    pub fn try_lock_into<'k>(&'k self, hashes: &[KeyHash], txn: &mut Txn<'k>) -> bool {
        match hashes {
            [hash] => txn.try_lock(std::iter::once(self.shard_of(*hash))),
            _ => txn.try_lock(self.shards_of(hashes).into_iter()),
        }
    }
    /// Locks the shards of these keys without ever waiting while it holds a shard, so nobody else waits behind this
    /// call. It waits for a busy shard for at most `patience`, and gives up (`None`) after `tries` attempts.
    pub fn lock_together(
        &self,
        hashes: &[KeyHash],
        tries: usize,
        patience: Duration,
        now_ms: i64,
    ) -> Option<Txn<'_>> {
        Txn::lock_together(self, &self.shards_of(hashes), tries, patience, now_ms)
    }
    /// Prefetches the records of `keys` and the first bytes of their values. Then a batch of commands waits for
    /// memory once instead of once per key. This is only a hint: shards that somebody else holds are skipped.
    pub fn prefetch(&self, db: usize, keys: &[Key<'_>]) {
        let slot = self.slot(db);
        for keys in keys.chunks(PREFETCH_KEYS) {
            self.prefetch_few(slot, keys);
        }
    }
    fn prefetch_few(&self, slot: usize, keys: &[Key<'_>]) {
        // Take all locks before the first load. A processor starts no load before an earlier atomic operation is
        // done: if a lock were taken between two keys, their cache misses would not overlap.
        let mut guards: SmallVec<[(usize, MutexGuard<'_, Shard>); PREFETCH_KEYS]> = SmallVec::new();
        let mut places: SmallVec<[(u8, u64); PREFETCH_KEYS]> = SmallVec::new();
        for key in keys {
            let position = position_of(key.hash.0);
            let shard = self.shard_at(position);
            let at = guards.iter().position(|(guards, _)| *guards == shard).or_else(|| {
                guards.push((shard, self.shards[shard].lock.try_lock()?));
                Some(guards.len() - 1)
            });
            places.extend(at.map(|at| (at as u8, position)));
        }
        let records = |at: u8| guards[usize::from(at)].1.table(slot).map(|table| &table.records);
        for (at, position) in &places {
            if let Some(records) = records(*at) {
                records.prefetch(*position, PREFETCH_BYTES);
            }
            guards[usize::from(*at)].1.prefetch_keepers(slot, *position);
        }
        for step in 0..PREFETCH_STEPS {
            let mut more = false;
            for (at, position) in &places {
                let item = records(*at).and_then(|records| records.candidate(*position));
                more |= item.is_some_and(|item| prefetch_outside(item, step));
            }
            if !more {
                return;
            }
        }
    }
    /// Like [`Keyspace::prefetch`], for several commands that look up parts (such as fields) of the value at one key.
    /// Returns false when there is nothing to prefetch: the value is small enough to be in the cache, or has no such
    /// parts. Returns true when it has prefetched, or when somebody else holds the shard, so that the value is
    /// unknown.
    pub fn prefetch_parts(&self, db: usize, key: &Key<'_>, parts: &[Parts<'_>]) -> bool {
        let position = position_of(key.hash.0);
        let Some(shard) = self.shards[self.shard_at(position)].lock.try_lock() else { return true };
        let records = shard.table(self.slot(db)).map(|table| &table.records);
        match records.and_then(|records| records.candidate(position)).map(|item| item.content()) {
            Some(Content::Outside(value)) => value.view().prefetch_parts(parts),
            Some(Content::Int(_) | Content::Bytes(..)) | None => false,
        }
    }
    /// Locks one shard, given by its index.
    pub fn lock_shard(&self, shard: usize, now_ms: i64) -> Txn<'_> {
        Txn::one(self, shard, now_ms)
    }
    /// Locks every shard, in ascending order. For short work that must see the whole keyspace at one moment.
    pub fn lock_all(&self, now_ms: i64) -> Txn<'_> {
        Txn::ascending(self, 0..self.shards.len(), now_ms)
    }
    /// Number of segments, entries of directories, and bytes of the tables of `db`.
    pub fn shape(&self, db: usize) -> Shape {
        let slot = self.slot(db);
        let shape_of = |table: &Table| Shape { heap_bytes: table.sums(slot).bytes, ..table.records.shape() };
        let shape = |shard: &LockedShard| shard.lock.lock().table(slot).map_or(Shape::default(), shape_of);
        self.shards.iter().map(shape).fold(Shape::default(), Shape::and)
    }
    /// Prepares an empty database for about `keys` keys that are about to be loaded. Costs one byte per three keys.
    pub fn reserve_keys(&self, db: usize, keys: usize) {
        let (slot, each) = (self.slot(db), keys / self.shards.len());
        for (at, shard) in self.shards.iter().enumerate() {
            let mut held = shard.lock.lock();
            held.change_table(slot, |table| table.records.reserve_items(self.start_of(at), each));
            shard.publish(&held);
        }
    }
    /// Like [`Txn::flush`], in a transaction of its own.
    pub fn flush(&self, db: usize) -> Flushed {
        self.lock_all(0).flush(db)
    }
    /// Like [`Txn::swap`], in a transaction of its own.
    pub fn swap(&self, a: usize, b: usize) {
        self.lock_all(0).swap(a, b);
    }
    /// Keys that expired since the start or the last [`Keyspace::reset_totals`].
    pub fn expired_total(&self) -> u64 {
        self.expired_total.load(Relaxed)
    }
    /// Fields of hashes that expired since the start or the last [`Keyspace::reset_totals`].
    pub fn expired_fields_total(&self) -> u64 {
        self.expired_fields_total.load(Relaxed)
    }
    /// Resets the counts of evicted and expired data to zero.
    pub fn reset_totals(&self) {
        self.expired_total.store(0, Relaxed);
        self.expired_fields_total.store(0, Relaxed);
        self.evicted_total.store(0, Relaxed);
    }
    /// Sets the prefixes of the tracked keys, in database 0. An empty prefix tracks all keys. Without prefixes
    /// nothing is tracked, and the touched keys that were not taken yet are dropped.
    pub fn track(&self, prefixes: &[Vec<u8>]) {
        let prefixes = PrefixSet::new(prefixes.iter().map(Vec::as_slice).collect());
        for shard in &self.shards {
            shard.lock.lock().changed_keys.follow(&prefixes, &self.followed);
        }
        self.followed.set_prefixes(prefixes);
    }
    /// True when a change of `key` of database 0 is noted as touched.
    pub fn tracks(&self, key: &[u8]) -> bool {
        self.followed.tracks(key)
    }
    /// While [`Keyspace::touched_bytes`] is more than `bytes`, the alerts have the bit
    /// [`TOUCHED_FULL`](crate::TOUCHED_FULL). Default: no limit.
    pub fn set_touched_bytes_max(&self, bytes: usize) {
        self.followed.set_touched_bytes_max(bytes);
    }
    /// Sets the function that wakes the follower when that bit is set. It is called while a shard is held, so it must only
    /// signal. Only the first call has an effect.
    pub fn set_touched_wake(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.followed.set_wake(Wake(wake));
    }
    /// `hashes_only`: the followers read no records but hashes, so touched keys of other types count as few bytes.
    pub fn set_followers_read_hashes_only(&self, hashes_only: bool) {
        self.followed.set_reads_hashes_only(hashes_only);
    }
    /// Sets the word that gets the bit [`TOUCHED_FULL`](crate::TOUCHED_FULL). Only the first call has an effect.
    pub fn set_touched_alerts(&self, alerts: Arc<AtomicU16>) {
        self.followed.set_alerts(alerts);
    }
    /// Number of flushes and swaps of database `db` so far. While the number of database 0 stays the same, no shard
    /// sets [`Touched::flushed`].
    pub fn flushes(&self, db: usize) -> u64 {
        self.flushes.lock().get(&db).copied().unwrap_or(0)
    }
    pub(crate) fn count_flush(&self, db: usize) {
        *self.flushes.lock().entry(db).or_default() += 1;
    }
    /// The tracked keys of one shard that were touched since the last call for this shard. They count in
    /// [`Keyspace::touched_len`] until the returned value is dropped.
    pub fn take_touched(&self, shard: usize) -> Touched {
        self.shards[shard].lock.lock().changed_keys.take()
    }
    /// Marks every tracked key of one shard as touched, for the first scan of a new index.
    pub fn touch_all(&self, shard: usize) {
        let mut held = self.shards[shard].lock.lock();
        let shard = &mut *held;
        shard.note_each();
    }
    /// Number of tracked keys, over all shards, that were touched, and not taken and finished yet. Waits for no shard.
    pub fn touched_len(&self) -> usize {
        self.followed.touched()
    }
    /// Bytes of these keys, see [`Touched::bytes`].
    pub fn touched_bytes(&self) -> usize {
        self.followed.touched_bytes()
    }
    /// Frees a small value at once. Keeps a big value until [`Keyspace::take_garbage`].
    pub fn dispose(&self, value: Value) {
        if value.is_big() {
            self.garbage_bytes.fetch_add(value.heap_bytes(), Relaxed);
            self.garbage.lock().push(value);
        }
    }
    /// Takes the big values that were deleted, replaced or expired. Call this regularly, and drop the values on a
    /// thread that may be slow.
    pub fn take_garbage(&self) -> Vec<Value> {
        let garbage = std::mem::take(&mut *self.garbage.lock());
        self.garbage_bytes.fetch_sub(garbage.iter().map(Value::heap_bytes).sum(), Relaxed);
        garbage
    }
    /// Bytes of big values that wait for [`Keyspace::take_garbage`], and of flushed tables that are not freed yet.
    pub fn garbage_bytes(&self) -> usize {
        self.garbage_bytes.load(Relaxed)
    }

    /// The slot of a database: the number of its table within a shard. Its system companion has `slot ^ 1`.
    #[inline]
    pub(crate) fn slot(&self, db: usize) -> usize {
        assert!(db < 2 * self.databases, "there is no database {db}");
        if db < self.databases { 2 * db } else { 2 * (db - self.databases) + 1 }
    }
    /// Index of the shard that holds a position.
    #[inline]
    pub(crate) fn shard_at(&self, position: u64) -> usize {
        (position >> (POSITION_BITS - u32::from(self.base_bits))) as usize
    }
    /// The first position of a shard.
    pub(crate) fn start_of(&self, shard: usize) -> u64 {
        (shard as u64) << (POSITION_BITS - u32::from(self.base_bits))
    }
    /// A hasher, independent of the hash that places keys.
    pub(crate) fn mark_hasher(&self) -> ahash::RandomState {
        let seed = self.mark_seed;
        ahash::RandomState::with_seeds(seed, !seed, seed.rotate_left(31), seed ^ 0x9e37_79b9_7f4a_7c15)
    }
    pub(crate) fn count_expired(&self, counts: ExpiredCounts) {
        self.expired_total.fetch_add(counts.keys as u64, Relaxed);
        self.expired_fields_total.fetch_add(counts.fields as u64, Relaxed);
    }
    /// Like [`Keyspace::try_lock_into`], with the indices of shards, in ascending order.
    pub fn try_lock_shards<'k>(&'k self, shards: &[usize], txn: &mut Txn<'k>) -> bool {
        txn.try_lock(shards.iter().copied())
    }
    /// Like [`Keyspace::lock_together`], with the indices of shards, in ascending order.
    pub fn lock_shards_together(
        &self,
        shards: &[usize],
        tries: usize,
        patience: Duration,
        now_ms: i64,
    ) -> Option<Txn<'_>> {
        Txn::lock_together(self, shards, tries, patience, now_ms)
    }
    /// Locks the shards with these indices, which must ascend.
    pub fn lock_shards(&self, shards: &[usize], now_ms: i64) -> Txn<'_> {
        Txn::ascending(self, shards.iter().copied(), now_ms)
    }
    /// Ends [`Db::watch`](crate::Db::watch): changes of the key no longer raise `flag`.
    pub fn unwatch(&self, db: usize, key: &[u8], flag: &WatchFlag) {
        let slot = self.slot(db);
        self.shards[self.shard_of(self.key(key).hash)].lock.lock().watchers.remove(slot, key, flag);
    }
    /// Like [`Keyspace::unwatch`], but does nothing and returns false when somebody else holds the key's shard.
    pub fn try_unwatch(&self, db: usize, key: &[u8], flag: &WatchFlag) -> bool {
        let slot = self.slot(db);
        let Some(mut shard) = self.shards[self.shard_of(self.key(key).hash)].lock.try_lock() else {
            return false;
        };
        shard.watchers.remove(slot, key, flag);
        true
    }
    /// Indices of the shards of these keys, in ascending order, each once.
    pub fn shards_of(&self, hashes: &[KeyHash]) -> SmallVec<[usize; 8]> {
        let mut shards: SmallVec<[usize; 8]> = hashes.iter().map(|h| self.shard_of(*h)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}
