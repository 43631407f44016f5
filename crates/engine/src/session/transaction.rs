//! [`Transaction`]: the work of EXEC on its way to a helper thread, and there.
//!
//! A transaction on a helper thread holds its shards under a long lock. One that only reads values runs on copies of
//! the records and holds no lock meanwhile.

use super::lane::LaneJob;
use super::multi::{Queue, Queued};
use super::own::{Kind, kind_of};
use super::script;
use super::watch::Watch;
use crate::acl::{Denied, Rights, User};
use crate::monitors::Caller;
use crate::stats::PerCommand;
use crate::{Engine, Now};
use std::collections::HashMap;
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::call::{KeyRights, LaneCall};
use strand_commands::cost::{self, LONG_ELEMENTS};
use strand_commands::long::{self, Copies};
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::{Key, Keyspace, Txn};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Most keys of a transaction that runs on copies of their records. With more keys the copies cost as much as the
/// commands.
const COPIED_KEYS_MAX: usize = 1024;

/// The work of EXEC.
pub(super) struct Transaction {
    pub(super) engine: Arc<Engine>,
    pub(super) commands: Vec<Queued>,
    /// The session's watched keys. Dropping the transaction ends the watch; unlock the shards before.
    pub(super) watch: Watch,
    /// The needed shards, ascending.
    pub(super) shards: Vec<usize>,
    /// Heap bytes of the commands.
    pub(super) bytes: usize,
    pub(super) flags: u32,
}

impl Drop for Transaction {
    fn drop(&mut self) {
        std::mem::take(&mut self.watch).end(&self.engine);
    }
}

impl Transaction {
    /// Turns it back into the queue, for an EXEC that has to wait.
    pub(super) fn into_queue(mut self) -> Queue {
        let (commands, bytes, flags) = (std::mem::take(&mut self.commands), self.bytes, self.flags);
        Queue { commands, bytes, flags, broken: false }
    }
    /// The needed shards, ascending.
    pub(super) fn shards(&self) -> &[usize] {
        &self.shards
    }
    /// An estimate of the commands' cost in elements, from the values at their keys. A command with several keys
    /// (RENAME, SUNIONSTORE) may move a value to another key; that value counts for every later command. A queued
    /// write to a key counts for later reads of the key.
    pub(super) fn elements_in_data(&self, txn: &mut Txn<'_>, db: usize) -> usize {
        if !self.commands.iter().any(|c| c.spec.cost().is_in_the_data()) {
            return 0;
        }
        let keyspace = txn.keyspace();
        let (mut sum, mut written, mut moved) = (0usize, HashMap::new(), Vec::new());
        let mut looks = 0;
        for Queued { spec, argv } in &self.commands {
            let (cost, args) = (spec.cost(), argv.args());
            let keys = long::keys(spec, args, keyspace);
            if cost.is_in_the_data() {
                let here = cost::elements_at(cost, args, txn, db, &keys);
                let elsewhere =
                    moved.iter().map(|key| cost::elements_at(cost, args, txn, db, std::slice::from_ref(key)));
                sum = sum.saturating_add(here.max(elsewhere.max().unwrap_or(0)));
                looks += moved.len();
            }
            if spec.flags.has(Flags::WRITE) {
                keys.iter().for_each(|key| *written.entry(key.hash.0).or_insert(0) += args.len());
                // Sources and destinations of a move.
                if spec.keys.len() > 1 {
                    moved.extend(keys);
                }
            } else if cost.is_in_the_data() {
                let before = keys.iter().filter_map(|key| written.get(&key.hash.0)).sum::<usize>();
                sum = sum.saturating_add(before);
            }
            // Estimating more keys would itself take as long.
            if sum.max(looks) > LONG_ELEMENTS {
                return usize::MAX;
            }
        }
        sum
    }
    /// The keys of a transaction that only reads values at few keys, so that copies of the records suffice.
    fn keys_to_copy<'a>(&'a self, keyspace: &Keyspace) -> Option<Vec<Key<'a>>> {
        let is_few = self.commands.len() <= COPIED_KEYS_MAX;
        if !is_few || !self.commands.iter().all(|queued| long::reads_copies(queued.spec)) {
            return None;
        }
        let keys =
            self.commands.iter().flat_map(|Queued { spec, argv }| long::keys(spec, argv.args(), keyspace));
        let keys: Vec<Key<'_>> = keys.take(COPIED_KEYS_MAX + 1).collect();
        (keys.len() <= COPIED_KEYS_MAX).then_some(keys)
    }
    /// Runs on copies of the records at `keys`. The shards are locked only while the copies are made.
    fn run_on_copies(
        &self,
        keys: &[Key<'_>],
        engine: &Arc<Engine>,
        call: &mut LaneCall<'_>,
        job: &LaneJob,
        now: Now,
    ) {
        let mut txn = call.hold_shards(&self.shards);
        txn.set_no_touch(call.no_touch);
        if !self.watch.is_unchanged(&txn) {
            return call.reply.null_array();
        }
        let copies = Copies::of(keys, &mut txn, call);
        for Queued { spec, argv } in &self.commands {
            // Remembered while the shards are locked, so that a later change sends an invalidation.
            if job.user.check(spec, argv.args(), &mut || true).is_ok() {
                engine.remember(&job.client, job.caching, spec, argv.args());
            }
        }
        drop(txn);
        let slot = job.client.peer.worker;
        call.reply.array(self.commands.len());
        for Queued { spec, argv } in &self.commands {
            let mut reply = Chain::new();
            if let Err(denied) = job.user.check(spec, argv.args(), &mut || true) {
                Reply::new(&mut reply, job.protocol).error(&no_longer_allowed(denied));
                call.reply.raw(reply);
                continue;
            }
            let id = engine.stats.ids.of(spec);
            engine.stats.command(slot, id, PerCommand::Calls, 1);
            if engine.monitors.any() {
                engine.tell_monitors(spec, argv.args(), job.db, Caller::Client(&job.client), now);
            }
            let began_ns = engine.host.mono_ns();
            match copies.run(spec, argv.args(), call, &mut reply) {
                Ok(lookups) => {
                    call.lookups.hits += lookups.hits;
                    call.lookups.misses += lookups.misses;
                }
                Err(text) => {
                    let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
                    engine.stats.error(slot, code);
                    engine.stats.command(slot, id, PerCommand::Failed, 1);
                }
            }
            let took_ns = engine.host.mono_ns().saturating_sub(began_ns);
            engine.note_lap(&job.client, spec, argv.args(), now, took_ns);
            call.reply.raw(reply);
            if call.reply.is_over() {
                break;
            }
        }
    }
    /// Runs on a helper thread: on copies if they suffice, otherwise with its shards under a long lock.
    pub(super) fn run_on_lane(&self, engine: &Arc<Engine>, call: &mut LaneCall<'_>, job: &LaneJob, now: Now) {
        let keyspace = call.keyspace;
        if let Some(keys) = self.keys_to_copy(keyspace) {
            return self.run_on_copies(&keys, engine, call, job, now);
        }
        let mut out = Chain::new();
        let mut txn = call.hold_shards(&self.shards);
        txn.set_no_touch(call.no_touch);
        if !self.watch.is_unchanged(&txn) {
            return call.reply.null_array();
        }
        for Queued { spec, argv } in &self.commands {
            if let Err(denied) = job.user.check(spec, argv.args(), &mut || true) {
                Reply::new(&mut out, job.protocol).error(&no_longer_allowed(denied));
                continue;
            }
            engine.remember(&job.client, job.caching, spec, argv.args());
            let rights = rights_beyond(&job.user, spec, argv.args());
            let context = Context {
                db: job.db,
                protocol: job.protocol,
                reply_bytes_max: call.reply.room_left(),
                rng: &mut *call.rng,
                rights: rights.as_ref().map(|rights| rights as &dyn KeyRights),
                client: call.client,
            };
            let id = engine.stats.ids.of(spec);
            let slot = job.client.peer.worker;
            engine.stats.command(slot, id, PerCommand::Calls, 1);
            if engine.monitors.any() {
                engine.tell_monitors(spec, argv.args(), job.db, Caller::Client(&job.client), now);
            }
            let began_ns = engine.host.mono_ns();
            let failed = match kind_of(spec) {
                Kind::Script(command) => {
                    let user = &job.user;
                    let rng = &mut fastrand::Rng::with_seed(context.rng.u64(..));
                    let caching = job.caching;
                    let caller =
                        script::Caller { engine, client: &job.client, user, db: job.db, now, rng, caching };
                    let mut reply = Reply::bounded(&mut out, job.protocol, context.reply_bytes_max);
                    let job = Some((&*call, engine.host.mono_us()));
                    script::in_transaction(command, argv.args(), caller, &mut txn, job, &mut reply)
                }
                _ => run::whole(spec, argv.args(), &mut txn, &mut out, context),
            };
            let took_ns = engine.host.mono_ns().saturating_sub(began_ns);
            engine.note_lap(&job.client, spec, argv.args(), now, took_ns);
            if let Some(code) = failed {
                engine.stats.error(slot, &code);
                engine.stats.command(slot, id, PerCommand::Failed, 1);
            }
        }
        debug_assert!(std::ptr::eq(keyspace, txn.keyspace()));
        call.lookups = txn.lookups();
        drop(txn);
        call.reply.array(self.commands.len());
        call.reply.raw(out);
    }
}

/// The rights of `user` to keys that a queued command finds while it runs. `None`: all rights, or the command finds
/// no keys.
pub(super) fn rights_beyond(user: &Arc<User>, spec: &'static CommandSpec, args: Args<'_>) -> Option<Rights> {
    if run::needs_all_shards(spec) { Rights::of(user, spec, args) } else { None }
}

pub(super) fn no_longer_allowed(denied: Denied) -> String {
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments to the command",
        Denied::Unfinished => "the client is gone",
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {reason}"
    )
}
