//! A command on keys: its cost, its locks, its handler. Every GET and SET runs through this code.

use super::Session;
use crate::acl::Rights;
use crate::clients::Client;
use crate::stats::CommandCounter;
use crate::{Engine, Now};
use smallvec::SmallVec;
use std::time::Duration;
use strand_commands::call::{Call, KeyRights};
use strand_commands::cost::{self, LONG_BYTES, LONG_ELEMENTS};
use strand_commands::dispatch;
use strand_commands::run;
use strand_commands::spec::{CommandSpec, Flags, KeySpec};
use strand_keyspace::{Key, KeyHash, Txn};
use strand_wire::reply::Reply;

/// Keys of a command that are prefetched before the first lookup.
const PREFETCH_KEYS: usize = 128;
/// How a command waits for a locked shard: for this long, [`TRIES_PER_CHECK`] times, then it checks for a long lock.
/// After [`CHECKS_MAX`] checks it waits without a limit. Short locks take microseconds.
const TRY_TIMEOUT: Duration = Duration::from_micros(100);
const TRIES_PER_CHECK: usize = 4;
const CHECKS_MAX: usize = 10_000;

/// The outcome of a command on keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DataOutcome {
    /// The command is done.
    Done,
    /// The command is too long for a worker, as its data shows. It has had no effect.
    TooLong,
    /// A needed shard is under a long lock. The command has had no effect, and the session will be woken.
    ShardLocked,
}

impl Session {
    /// The cost of the current command, from its arguments.
    pub(super) fn elements(&self, spec: &'static CommandSpec) -> usize {
        spec.cost().elements(self.argv.args(), self.engine.keyspace.shards())
    }

    /// Runs a command on keys with a variable cost.
    pub(super) fn estimated(
        &mut self,
        spec: &'static CommandSpec,
        handler: fn(&mut Call<'_, '_>),
        now: Now,
    ) -> DataOutcome {
        let elements = self.elements(spec);
        self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
        if elements > LONG_ELEMENTS { DataOutcome::TooLong } else { self.data::<true>(spec, handler, now) }
    }

    /// Runs a command on keys: locks their shards and calls the handler. `ESTIMATED`: its cost is variable.
    #[inline]
    pub(super) fn data<const ESTIMATED: bool>(
        &mut self,
        spec: &'static CommandSpec,
        handler: fn(&mut Call<'_, '_>),
        now: Now,
    ) -> DataOutcome {
        let args = self.argv.args();
        let keyspace = &*self.engine.keyspace;
        let mut keys: SmallVec<[Key<'_>; 4]> = SmallVec::new();
        let now_ms = now.unix_ms();
        let hidden = self.is_guarded() && spec.keys.iter().any(KeySpec::has_hidden_keys);
        let rights = if hidden { Rights::of(&self.identity.user, spec, args) } else { None };
        let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
        let out = self.replies.target();
        let out_before = out.len();
        let mut reply = Reply::bounded(out, self.protocol, bytes_max);
        let counts_copies = ESTIMATED && spec.cost().counts_values() && spec.flags.has(Flags::READONLY);
        if counts_copies {
            reply = reply.copying(LONG_BYTES);
        }
        let mut txn = keyspace.unlocked(now_ms);
        let taken = match dispatch::only_key(spec, args) {
            Some(at) => {
                let key = keyspace.key(args.at(at));
                keys.push(key);
                keyspace.try_lock_into(&[key.hash], &mut txn)
            }
            None => {
                let positions = dispatch::keys_to_lock(spec, args);
                keys.extend(positions.iter().map(|at| keyspace.key(args.at(*at))));
                keyspace.prefetch(self.db, &keys[..keys.len().min(PREFETCH_KEYS)]);
                let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|k| k.hash).collect();
                keyspace.try_lock_into(&hashes, &mut txn)
            }
        };
        if !taken && !lock_contended(&self.engine, &self.client, &keys, &mut txn) {
            return DataOutcome::ShardLocked;
        }
        if ESTIMATED && spec.cost().depends_on_data() {
            let elements = cost::elements_at(spec.cost(), args, &mut txn, self.db, &keys);
            self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
            if elements > LONG_ELEMENTS {
                return DataOutcome::TooLong;
            }
        }
        if self.flags.no_touch {
            txn.set_no_touch(true);
        }
        let mut call = Call {
            args,
            keys: &keys,
            db: self.db,
            now_ms: txn.now_ms(),
            txn: &mut txn,
            reply: &mut reply,
            rng: &mut self.rng,
            rights: rights.as_ref().map(|rights| rights as &dyn KeyRights),
            wait: None,
        };
        run::execute(spec, handler, &mut call, self.client.id);
        if counts_copies && call.reply.exceeds_limit() {
            // The command has only read, so it can be undone by dropping its reply.
            let mut all = std::mem::take(out);
            *out = all.split_to(out_before);
            return DataOutcome::TooLong;
        }
        let lookups = call.txn.lookups();
        self.meter.lookups.hits += lookups.hits;
        self.meter.lookups.misses += lookups.misses;
        if let Some(code) = call.reply.error_code() {
            let stats = &self.engine.stats;
            stats.error(self.client.peer.worker, code);
            stats.count(self.client.peer.worker, self.last_command, CommandCounter::Failed, 1);
        }
        DataOutcome::Done
    }
}

/// Locks the shards of `keys` when another thread holds one of them: see [`lock_contended_shards`].
#[cold]
fn lock_contended<'k>(engine: &'k Engine, client: &Client, keys: &[Key<'_>], txn: &mut Txn<'k>) -> bool {
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|k| k.hash).collect();
    lock_contended_shards(engine, client, &engine.keyspace.shards_of(&hashes), txn)
}

/// Locks `shards`, which must ascend, when another thread holds one of them. False when that shard is under a long
/// lock: the client is then woken at the end of the long lock. The gate has checked for long locks before, but one may
/// have begun since then. A thread that holds several shards must not wait for a long lock here.
#[cold]
pub(super) fn lock_contended_shards<'k>(
    engine: &'k Engine,
    client: &Client,
    shards: &[usize],
    txn: &mut Txn<'k>,
) -> bool {
    let (keyspace, now_ms) = (&*engine.keyspace, txn.now_ms());
    for _ in 0..CHECKS_MAX {
        if engine.long_locks.wait_for_locked(shards, client.id, client.wake_handle()) {
            return false;
        }
        if let Some(all) = keyspace.lock_shards_together(shards, TRIES_PER_CHECK, TRY_TIMEOUT, now_ms) {
            *txn = all;
            return true;
        }
    }
    *txn = keyspace.lock_shards(shards, now_ms);
    true
}
