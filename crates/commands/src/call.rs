//! The inputs of a handler. A command that runs at once gets a [`Call`], with the shards of its keys locked. A command
//! that runs on a helper thread gets a [`LaneCall`], and locks shards itself.

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

/// The input of a handler that runs at once. `txn` holds the shards of all keys that the key specs find.
pub struct Call<'a, 'k> {
    /// The arguments of the command. Index 0 is the command's name, and index 1 is the subcommand's name if there
    /// is one.
    pub args: Args<'a>,
    /// The keys among the arguments, with their hashes, in the order of the key specs.
    pub keys: &'a [Key<'a>],
    /// The session's database.
    pub db: usize,
    /// Time of the command, in unix milliseconds.
    pub now_ms: i64,
    /// The held shards. `txn.db(db)` gives access to the data.
    pub txn: &'a mut Txn<'k>,
    /// The command writes its reply here.
    pub reply: &'a mut Reply<'a>,
    /// The source of random numbers. The driver seeds it, so a simulation can be repeated.
    pub rng: &'a mut fastrand::Rng,
    /// The user's rights to keys that the key specs do not find. `None` allows everything.
    pub rights: Option<&'a dyn KeyRights>,
    /// The handler of a blocking command that finds nothing stores here what the client waits for.
    pub wait: Option<Wait>,
}

impl Call<'_, '_> {
    /// True while changes are recorded. A command whose arguments do not say what it did (a duration, a random choice)
    /// must then record its effect with [`Call::effect`].
    pub(crate) fn is_recorded(&self) -> bool {
        self.txn.is_recorded()
    }
    /// Records an effect of the command, in place of its arguments. A command may record several effects.
    pub(crate) fn effect(&mut self, args: &[Arg<'_>]) {
        self.txn.effect(self.db, args);
    }
}

/// Number of attempts in which a lane call waits for its shards. After the last one it announces a long lock.
const TRIES: usize = 16;
/// Longest wait for a busy shard in one attempt.
const PATIENCE: Duration = Duration::from_millis(1);
/// Number of attempts after a long lock was announced. After the last attempt, the call waits for one shard
/// after the other, and keeps the shards that it has locked.
const HOLD_TRIES: usize = 10_000;

/// Announces long locks. A session that needs an announced shard is parked, so its worker does not wait.
pub trait LongLocks {
    /// Waits until no other long lock covers any of `shards` (`None`: all shards), then announces a long lock on
    /// them. The caller locks the shards after this call, and unlocks them before it drops the guard.
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_>;
    /// Does what [`LongLocks::begin`] does, but does not wait for a long-running script. Calls `may_wait` at intervals.
    ///
    /// # Errors
    /// Why no long lock is announced.
    fn begin_unless_busy(
        &self,
        shards: Option<Vec<usize>>,
        may_wait: &dyn Fn() -> bool,
    ) -> Result<Box<dyn LongLock + '_>, NotLocked>;
}

/// Why a call that does not wait for ever has not locked its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLocked {
    /// A long-running script has one of the shards.
    Busy {
        /// True when the script is a function.
        is_function: bool,
    },
    /// The caller may not wait any more.
    GivenUp,
}

/// An announced long lock. It ends when it is dropped.
pub trait LongLock {}

/// Announces nothing, for callers that share the keyspace with nobody.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl LongLocks for Alone {
    fn begin(&self, _shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_> {
        Box::new(Alone)
    }
    fn begin_unless_busy(
        &self,
        shards: Option<Vec<usize>>,
        _may_wait: &dyn Fn() -> bool,
    ) -> Result<Box<dyn LongLock + '_>, NotLocked> {
        Ok(self.begin(shards))
    }
}
impl LongLock for Alone {}

/// Shards that a lane call holds, with or without an announced long lock.
pub struct LaneTxn<'a> {
    // The fields are dropped in this order, so the shards are unlocked before the long lock ends.
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

/// A user's rights to keys that are not among a command's arguments, but that the command finds (a search).
pub trait KeyRights {
    /// True when the user may use `key` in every way that `access` names.
    fn allows(&self, key: &[u8], access: Access) -> bool;
    /// True when the user may use every key that begins with `prefix` in every way that `access` names. Only the
    /// user's patterns count: the pattern `app:*` allows the prefixes `app:` and `app:mail:`.
    fn allows_prefix(&self, prefix: &[u8], access: Access) -> bool;
}

/// The thread on which a service's command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// A worker. Its other sessions wait meanwhile, so the command may take a few hundred microseconds at most.
    Worker,
    /// A helper thread. Other jobs may wait behind the command.
    Lane,
    /// A helper thread that runs only expensive commands.
    Hard,
}

/// The outcome of a service's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The command is done and its reply is written.
    Done,
    /// The command costs too much for a worker. It has written nothing; run it again on the lane.
    Lane,
    /// The command costs too much for the lane, where other jobs wait. It has written nothing; run it again on the
    /// hard lane.
    Hard,
}

/// The services that other crates implement. Commands of a service call it through this trait.
pub trait Services {
    /// Text search and regular expressions. The commands of the group `search` know the concrete type.
    fn search(&self) -> &dyn Any;
    /// Runs MIGRATE, for which the service talks to another server.
    fn migrate(&self, call: &mut LaneCall<'_>) -> ServiceOutcome;
}

/// The function that runs a command of a service.
pub type ServiceRun = fn(&dyn Services, &mut LaneCall<'_>) -> ServiceOutcome;

/// The input of a handler that runs on the lane. The command begins without a lock. It locks shards for
/// short times, so other commands run in between.
pub struct LaneCall<'a> {
    /// The arguments of the command. Index 0 is the command's name.
    pub args: Args<'a>,
    /// The client's id.
    pub client: u64,
    /// The command's row, from which the events of its changes get their names. `None`: the events have no names.
    pub spec: Option<&'static CommandSpec>,
    /// The thread on which the command runs. Only services read this.
    pub runs_on: RunsOn,
    /// The session's database.
    pub db: usize,
    /// Time at the start of the command, in unix milliseconds.
    pub now_ms: i64,
    /// The keyspace with the data of all databases.
    pub keyspace: &'a Keyspace,
    /// Announces the command's long locks.
    pub long_locks: &'a dyn LongLocks,
    /// The command writes its reply here.
    pub reply: &'a mut Reply<'a>,
    /// The source of random numbers.
    pub rng: &'a mut fastrand::Rng,
    /// True when the client is gone or the server stops. A command asks [`LaneCall::cancelled`] between its slices.
    pub cancel: &'a Arc<AtomicBool>,
    /// `CLIENT NO-TOUCH`: reads do not mark records as used.
    pub no_touch: bool,
    /// The user's rights to keys that are not among the arguments. `None` allows everything. The keys among
    /// the arguments were checked before the command started.
    pub rights: Option<&'a dyn KeyRights>,
    /// Number of reads that found a record, and of reads that did not.
    pub lookups: Lookups,
    /// True when the error in the reply is already in the statistics. That is so for the error of a command that a
    /// script called.
    pub error_is_counted: bool,
    /// True after a blocking command has found nothing ([`Call::wait`]).
    pub waits: bool,
    /// Yields the processor. [`LaneCall::pause`] calls this between slices, while no shard is locked.
    pub yield_now: &'a dyn Fn(),
}

impl<'a> LaneCall<'a> {
    /// Locks the shards of `hashes`, for a short time. It never waits for a shard while it holds another one. If it
    /// does not get all of them in time, it announces a long lock, so that they become free.
    pub fn lock(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        match self.keyspace.lock_together(hashes, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.with_event_names(LaneTxn { txn, _long_lock: None }),
            None => self.hold(hashes),
        }
    }
    /// Announces a long lock on the shards of `hashes` and locks them.
    pub fn hold(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        let long_lock =
            self.long_locks.begin(Some(hashes.iter().map(|h| self.keyspace.shard_of(*h)).collect()));
        // A worker on this core may have checked for long locks before the announcement. This pause lets the worker
        // end its command. Workers on other cores run meanwhile.
        self.pause();
        let txn = self.keyspace.lock_together(hashes, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock(hashes, self.now_ms));
        self.with_event_names(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// Like [`LaneCall::lock`], with the indices of shards, in ascending order.
    pub fn lock_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        match self.keyspace.lock_shards_together(shards, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.with_event_names(LaneTxn { txn, _long_lock: None }),
            None => self.hold_shards(shards),
        }
    }
    /// Like [`LaneCall::hold`], with the indices of shards, in ascending order.
    pub fn hold_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        self.hold_shards_under(self.long_locks.begin(Some(shards.to_vec())), shards)
    }
    /// Like [`LaneCall::hold_shards`], but does not wait for a long-running script. Calls `may_wait` at intervals.
    ///
    /// # Errors
    /// Why the shards are not locked.
    pub fn hold_shards_unless_busy(
        &self,
        shards: &[usize],
        may_wait: &dyn Fn() -> bool,
    ) -> Result<LaneTxn<'a>, NotLocked> {
        let long_lock = self.long_locks.begin_unless_busy(Some(shards.to_vec()), may_wait)?;
        Ok(self.hold_shards_under(long_lock, shards))
    }
    /// Like [`LaneCall::lock_shards`], but does not wait for a long-running script. Calls `may_wait` at intervals.
    ///
    /// # Errors
    /// Why the shards are not locked.
    pub fn lock_shards_unless_busy(
        &self,
        shards: &[usize],
        may_wait: &dyn Fn() -> bool,
    ) -> Result<LaneTxn<'a>, NotLocked> {
        match self.keyspace.lock_shards_together(shards, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => Ok(self.with_event_names(LaneTxn { txn, _long_lock: None })),
            None => self.hold_shards_unless_busy(shards, may_wait),
        }
    }
    fn hold_shards_under(&self, long_lock: Box<dyn LongLock + 'a>, shards: &[usize]) -> LaneTxn<'a> {
        self.pause();
        let txn = self.keyspace.lock_shards_together(shards, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock_shards(shards, self.now_ms));
        self.with_event_names(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// Sets the event names of the command's changes in `txn`.
    fn with_event_names<'t>(&self, mut txn: LaneTxn<'t>) -> LaneTxn<'t> {
        self.begin(&mut txn);
        txn
    }
    /// Begins the command in the transaction `txn`, so that changes get the command's event names.
    pub(crate) fn begin(&self, txn: &mut Txn<'_>) {
        if let Some(spec) = self.spec {
            events::begin(spec, txn, self.client);
        }
    }
    /// Announces a long lock on all shards and locks them.
    pub fn hold_every_shard(&self) -> LaneTxn<'a> {
        let long_lock = self.long_locks.begin(None);
        self.pause();
        self.with_event_names(LaneTxn {
            txn: self.keyspace.lock_all(self.now_ms),
            _long_lock: Some(long_lock),
        })
    }
    /// True when the client is gone, when the server stops, or when the reply exceeds the client's output limit.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.reply.exceeds_limit()
    }
    /// True when the user may read the value of this key, and so may learn whether the key exists.
    pub fn may_read(&self, key: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.allows(key, Access::READ))
    }
    /// True when the user may read every key that begins with `prefix`.
    pub fn may_read_all(&self, prefix: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.allows_prefix(prefix, Access::READ))
    }
    /// True when the user may change or remove this key.
    pub fn may_write(&self, key: &[u8]) -> bool {
        self.rights.is_none_or(|r| r.allows(key, Access::WRITE))
    }
    /// Yields the processor between two slices. Call this while no shard is held.
    pub fn pause(&self) {
        (self.yield_now)();
    }
}
