//! What a handler sees: [`Call`] for commands that run at once on keys whose shards are held, [`LaneCall`] for those
//! that run on a helper thread, shard by shard.

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

/// One command at work. The shards of all its keys (by its key specs) are held in `txn`.
pub struct Call<'a, 'k> {
    /// The arguments; index 0 is the command's name (a subcommand's name is index 1).
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
    /// Randomness (seeded by the driver, so that a simulation repeats).
    pub rng: &'a mut fastrand::Rng,
    /// What the user may do with keys that are not among the arguments, for commands whose key specs do not find all keys;
    /// `None` is everything.
    pub rights: Option<&'a dyn KeyRights>,
    /// What a blocking command that found nothing would wait for; the handler fills it in.
    pub wait: Option<Wait>,
}

impl Call<'_, '_> {
    /// True while changes are recorded. A command whose arguments do not say what it did (they name a duration, or leave a
    /// choice to chance) is to say its effect then ([`Call::effect`]).
    pub(crate) fn is_recorded(&self) -> bool {
        self.txn.is_recorded()
    }
    /// What the command did, in place of its arguments; a command may have several effects.
    pub(crate) fn effect(&mut self, args: &[Arg<'_>]) {
        self.txn.effect(self.db, args);
    }
}

/// A lane call that finds a shard locked tries this often, and waits this long each time. Then it announces a long lock.
const TRIES: usize = 16;
const PATIENCE: Duration = Duration::from_millis(1);
/// Tries once the long lock is announced. From then on the call keeps the shards that it has locked.
const HOLD_TRIES: usize = 10_000;

/// Where a long lock of shards is announced, so that no other client stops behind it.
pub trait LongLocks {
    /// Waits until no other long lock is on one of `shards` (`None`: of all) and announces one on them. Lock the shards after
    /// this call, and unlock them before the guard is dropped.
    fn begin(&self, shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_>;
}

/// An announced long lock; ends when it is dropped.
pub trait LongLock {}

/// For callers that are alone with a keyspace: announces nothing.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl LongLocks for Alone {
    fn begin(&self, _shards: Option<Vec<usize>>) -> Box<dyn LongLock + '_> {
        Box::new(Alone)
    }
}
impl LongLock for Alone {}

/// Shards that a lane call holds, announced or not.
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

/// What a user may do with keys that a command finds by itself (a search's results), not by its arguments.
pub trait KeyRights {
    /// True when all of `access` to `key` is allowed.
    fn may(&self, key: &[u8], access: Access) -> bool;
    /// True when all of `access` is allowed to every key that begins with `prefix`, as far as that can be told from the
    /// user's patterns without trying keys: a pattern `app:*` says it of `app:` and of `app:mail:`.
    fn may_all(&self, prefix: &[u8], access: Access) -> bool;
}

/// The thread that a service's command runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// On a worker, with its other sessions waiting: some hundred microseconds at most.
    Worker,
    /// On a helper thread, with other jobs waiting behind it.
    Lane,
    /// On a helper thread for what nothing waits behind but its like.
    Hard,
}

/// What became of a service's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// It is done; its reply is written.
    Done,
    /// It is too much for a worker. Nothing is written: run it again on the lane.
    Lane,
    /// It is too much for those who wait behind it. Nothing is written: run it again on the hard lane.
    Hard,
}

/// The services outside this crate, where the rows of their commands find them.
pub trait Services {
    /// Text search and regular expressions; the rows that need it know its type.
    fn search(&self) -> &dyn Any;
    /// Runs MIGRATE: another server is spoken to.
    fn migrate(&self, call: &mut LaneCall<'_>) -> ServiceOutcome;
}

/// A command of a service.
pub type ServiceRun = fn(&dyn Services, &mut LaneCall<'_>) -> ServiceOutcome;

/// One command on the slow lane: nothing is held; it takes shards one at a time and lets others in between.
pub struct LaneCall<'a> {
    /// The arguments; index 0 is the command's name.
    pub args: Args<'a>,
    /// The client's id.
    pub client: u64,
    /// The command's row, by which its changes are called; without, they have no name.
    pub spec: Option<&'static CommandSpec>,
    /// The thread that the command runs on; read by services alone.
    pub runs_on: RunsOn,
    /// The session's database.
    pub db: usize,
    /// Unix milliseconds when the command was taken up.
    pub now_ms: i64,
    /// The data.
    pub keyspace: &'a Keyspace,
    /// Where its long locks are announced.
    pub long_locks: &'a dyn LongLocks,
    /// Where the reply goes.
    pub reply: &'a mut Reply<'a>,
    /// Randomness.
    pub rng: &'a mut fastrand::Rng,
    /// Set when the client is gone or the server stops: look at it between slices, see [`LaneCall::cancelled`].
    pub cancel: &'a Arc<AtomicBool>,
    /// `CLIENT NO-TOUCH`.
    pub no_touch: bool,
    /// What the user may do with which keys; `None` is everything. The keys that the row's specs find have been checked
    /// before; this is for keys that the command finds itself.
    pub rights: Option<&'a dyn KeyRights>,
    /// What reading found.
    pub lookups: Lookups,
    /// A blocking command found nothing, and would wait ([`Call::wait`]).
    pub waits: bool,
    /// Lets others have the processor; called between slices by [`LaneCall::pause`], with no shard held.
    pub yield_now: &'a dyn Fn(),
}

impl<'a> LaneCall<'a> {
    /// Locks the shards of `hashes`, to be let go soon: all or none, so that while it waits for one that somebody holds
    /// nobody waits for the others. Where they are not free together for long enough, they are kept free for it.
    pub fn lock(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        match self.keyspace.lock_together(hashes, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.named(LaneTxn { txn, _long_lock: None }),
            None => self.hold(hashes),
        }
    }
    /// Locks the shards of `hashes` for long, which is announced before.
    pub fn hold(&self, hashes: &[KeyHash]) -> LaneTxn<'a> {
        let long_lock =
            self.long_locks.begin(Some(hashes.iter().map(|h| self.keyspace.shard_of(*h)).collect()));
        // Workers on this core that looked just before have done what they are at; those on others will see it.
        self.pause();
        let txn = self.keyspace.lock_together(hashes, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock(hashes, self.now_ms));
        self.named(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// As [`LaneCall::lock`], for shards by their indices, which ascend.
    pub fn lock_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        match self.keyspace.lock_shards_together(shards, TRIES, PATIENCE, self.now_ms) {
            Some(txn) => self.named(LaneTxn { txn, _long_lock: None }),
            None => self.hold_shards(shards),
        }
    }
    /// Locks shards by their indices, which ascend, for long, which is announced before.
    pub fn hold_shards(&self, shards: &[usize]) -> LaneTxn<'a> {
        let long_lock = self.long_locks.begin(Some(shards.to_vec()));
        self.pause();
        let txn = self.keyspace.lock_shards_together(shards, HOLD_TRIES, PATIENCE, self.now_ms);
        let txn = txn.unwrap_or_else(|| self.keyspace.lock_shards(shards, self.now_ms));
        self.named(LaneTxn { txn, _long_lock: Some(long_lock) })
    }
    /// Has the command's changes called by their name.
    fn named<'t>(&self, mut txn: LaneTxn<'t>) -> LaneTxn<'t> {
        self.begin(&mut txn);
        txn
    }
    /// The command begins on `txn`.
    pub(crate) fn begin(&self, txn: &mut Txn<'_>) {
        if let Some(spec) = self.spec {
            events::begin(spec, txn, self.client);
        }
    }
    /// Locks every shard, which is announced before.
    pub fn hold_every_shard(&self) -> LaneTxn<'a> {
        let long_lock = self.long_locks.begin(None);
        self.pause();
        self.named(LaneTxn { txn: self.keyspace.lock_all(self.now_ms), _long_lock: Some(long_lock) })
    }
    /// True when nobody waits for the reply any more, or it has become longer than the client may have waiting.
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.reply.is_over()
    }
    /// True when the user may read this key's value, and may know of it.
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
    /// Between two slices: lets others have the processor. Hold no shard.
    pub fn pause(&self) {
        (self.yield_now)();
    }
}
