//! What a handler sees: a [`Call`] when the command runs at once, with the shards of its keys locked, or a
//! [`LaneCall`] when the command runs on a helper thread and locks shards itself.

use crate::events;
use crate::spec::{Access, CommandSpec};
use crate::wait::Wait;
use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Key, KeyHash, Keyspace, Lookups, Txn};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// One command at work. `txn` holds the shards of all keys that the key specs find.
pub struct Call<'a, 'k> {
    /// The arguments. Index 0 is the command's name; the name of a subcommand is index 1.
    pub args: Args<'a>,
    /// The keys in `args` in the order of the key specs, hashed.
    pub keys: &'a [Key<'a>],
    /// The session's database.
    pub db: usize,
    /// Unix milliseconds.
    pub now_ms: i64,
    /// The held shards: `txn.db(db)`.
    pub txn: &'a mut Txn<'k>,
    /// Where the reply goes.
    pub reply: &'a mut Reply<'a>,
    /// The source of random numbers. The driver seeds it, so a simulation can be repeated.
    pub rng: &'a mut fastrand::Rng,
    /// What the user may do with keys that the key specs do not find. `None` allows everything.
    pub rights: Option<&'a dyn KeyRights>,
    /// What a blocking command waits for when it finds nothing. The handler fills this in.
    pub wait: Option<Wait>,
}

impl Call<'_, '_> {
    /// True while changes are recorded. A command whose arguments do not say what it did (a duration, a random choice)
    /// must then record its effect with [`Call::effect`].
    pub(crate) fn is_recorded(&self) -> bool {
        self.txn.is_recorded()
    }
    /// Records what the command did, in place of its arguments. A command may have several effects.
    pub(crate) fn effect(&mut self, args: &[Arg<'_>]) {
        self.txn.effect(self.db, args);
    }
}

/// How often a lane call tries to lock its shards, with a wait after each try. Then it announces a long lock.
const TRIES: usize = 16;
const PATIENCE: Duration = Duration::from_millis(1);
/// Tries after the long lock was announced. From then on the call keeps each shard that it has locked.
const HOLD_TRIES: usize = 10_000;

/// Announces long locks of shards, so that no session waits for such a shard on its worker.
pub trait LongLocks {
    /// Waits until no other long lock covers one of `shards` (`None`: all shards), then announces one on them. Lock the
    /// shards after this call, and unlock them before the guard is dropped.
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_>;
}

/// An announced long lock. It ends when it is dropped.
pub trait LongLock {}

/// Announces nothing. For callers that use a keyspace alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl LongLocks for Alone {
    fn begin(&self, _shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_> {
        Box::new(Alone)
    }
}
impl LongLock for Alone {}

/// Shards that a lane call holds, with or without an announced long lock.
pub struct LaneTxn<'a> {
    // Dropped before the long lock ends.
    txn: Txn<'a>,
    _long_lock: Option<Box<dyn LongLock + 'a>>,
}

impl<'a> Deref for LaneTxn<'a> {
    type Target = Txn<'a>;
    fn deref(&self) -> &Txn<'a> {
        &self.txn
    }
}
impl DerefMut for LaneTxn<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.txn
    }
}

/// What a user may do with keys that a command finds by itself (the results of a search) and not in its arguments.
pub trait KeyRights {
    /// True when all of `access` to `key` is allowed.
    fn may(&self, key: &[u8], access: Access) -> bool;
    /// True when all of `access` is allowed to every key that begins with `prefix`. Judged by the user's patterns
    /// alone: the pattern `app:*` allows the prefixes `app:` and `app:mail:`.
    fn may_all(&self, prefix: &[u8], access: Access) -> bool;
}

/// The thread that a service's command runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// On a worker, whose other sessions wait meanwhile: some hundred microseconds at most.
    Worker,
    /// On a helper thread, where other jobs wait behind the command.
    Lane,
    /// On a helper thread that only runs expensive commands.
    Hard,
}

/// The outcome of a service's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The command is done and its reply is written.
    Done,
    /// The command costs too much for a worker. Nothing is written; run it again on the lane.
    Lane,
    /// The command costs too much for the lane, where other jobs wait. Nothing is written; run it again on the hard
    /// lane.
    Hard,
}

/// The services outside this crate. The rows of their commands call them through this trait.
pub trait Services {
    /// Text search and regular expressions. The rows of group search know the concrete type.
    fn search(&self) -> &dyn Any;
    /// Runs MIGRATE, which talks to another server.
    fn migrate(&self, call: &mut LaneCall<'_>) -> ServiceOutcome;
}

/// A command of a service.
pub type ServiceRun = fn(&dyn Services, &mut LaneCall<'_>) -> ServiceOutcome;

/// One command on the lane. Nothing is locked; the command locks shards for moments, and other commands run in between.
pub struct LaneCall<'a> {
    /// The arguments; index 0 is the command's name.
    pub args: Args<'a>,
    /// The client's id.
    pub client: u64,
    /// The command's row. Events of its changes take their names from the row; without a row they have no name.
    pub spec: Option<&'static CommandSpec>,
    /// The thread that the command runs on. Only services read this.
    pub runs_on: RunsOn,
    /// The session's database.
    pub db: usize,
    /// Unix milliseconds at the start of the command.
    pub now_ms: i64,
    /// The data.
    pub keyspace: &'a Keyspace,
    /// Announces the command's long locks.
    pub long_locks: &'a dyn LongLocks,
    /// Where the reply goes.
    pub reply: &'a mut Reply<'a>,
    /// Randomness.
    pub rng: &'a mut fastrand::Rng,
    /// Set when the client is gone or the server stops. Check it between slices with [`LaneCall::cancelled`].
    pub cancel: &'a Arc<AtomicBool>,
    /// `CLIENT NO-TOUCH`.
    pub no_touch: bool,
    /// What the user may do with keys that the command finds itself. `None` allows everything. The keys that the key
    /// specs find are checked before the command starts.
    pub rights: Option<&'a dyn KeyRights>,
    /// Hits and misses of the reads.
    pub lookups: Lookups,
    /// The blocking command found nothing and would wait ([`Call::wait`]).
    pub waits: bool,
    /// Yields the processor. [`LaneCall::pause`] calls it between slices, with no shard locked.
    pub yield_now: &'a dyn Fn(),
}

impl<'a> LaneCall<'a> {
    /// Locks the shards of `hashes` for a short time: all or none, so that a wait for one shard holds no other shard.
    /// If they do not become free together in time, a long lock is announced that keeps them free.
    pub fn lock(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        match self.keyspace.lock_together(hashes, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.named(LaneTxn { txn, _long_lock: None }),
            None => self.hold(hashes),
        }
    }
    /// Announces a long lock on the shards of `hashes` and locks them.
    pub fn hold(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        let long_lock =
            self.long_locks.begin(Some(hashes.iter().map(|h| self.keyspace.shard_of(*h)).collect()));
        // A worker on this core that checked before the announcement ends its command now. Workers on other cores
        // see the announcement.
        self.pause();
        let txn = self.keyspace.lock_together(hashes, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock(hashes, self.now_ms));
        self.named(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// Like [`LaneCall::lock`], for shards by index, in ascending order.
    pub fn lock_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        match self.keyspace.lock_shards_together(shards, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.named(LaneTxn { txn, _long_lock: None }),
            None => self.hold_shards(shards),
        }
    }
    /// Announces a long lock on shards given by index, in ascending order, and locks them.
    pub fn hold_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        let long_lock = self.long_locks.begin(Some(shards.to_vec()));
        self.pause();
        let txn = self.keyspace.lock_shards_together(shards, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock_shards(shards, self.now_ms));
        self.named(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// Gives the command's changes their event names.
    fn named<'t>(&self, mut txn: LaneTxn<'t>) -> LaneTxn<'t> {
        self.begin(&mut txn);
        txn
    }
    /// Begins the command on `txn`.
    pub(crate) fn begin(&self, txn: &mut Txn<'_>) {
        if let Some(spec) = self.spec {
            events::begin(spec, txn, self.client);
        }
    }
    /// Announces a long lock on every shard and locks them all.
    pub fn hold_every_shard(&self) -> LaneTxn<'a> {
        let long_lock = self.long_locks.begin(None);
        self.pause();
        self.named(LaneTxn { txn: self.keyspace.lock_all(self.now_ms), _long_lock: Some(long_lock) })
    }
    /// True when the client is gone, or when the reply is longer than the client's output limit.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.reply.is_over()
    }
    /// True when the user may read this key's value and may know that the key exists.
    pub fn may_read(&self, key: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.may(key, Access::READ))
    }
    /// True when the user may read every key that begins with `prefix`.
    pub fn may_read_all(&self, prefix: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.may_all(prefix, Access::READ))
    }
    /// True when the user may change or remove this key.
    pub fn may_write(&self, key: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.may(key, Access::WRITE))
    }
    /// Yields the processor between two slices. Hold no shard.
    pub fn pause(&self) {
        (self.yield_now)();
    }
}
