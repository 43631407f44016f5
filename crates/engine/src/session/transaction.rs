//! [`Transaction`]: the work of EXEC on its way to a helper thread, and there.
//!
//! If all commands use only the records at their keys, the transaction runs on copies of the records and locks no
//! shard meanwhile ([`super::rehearsal`]). Otherwise it holds its shards under a long lock. A transaction also holds
//! its shards when other clients write its keys all the time.

use super::commands::database_to_select;
use super::lane::LaneJob;
use super::multi::{Queue, Queued};
use super::permit::DeniedCommand;
use super::script;
use super::session_command::{
    CommandKind, DetachedContext, InMulti, SessionCommand, in_multi_of, is_publish, kind_of,
};
use super::watch::Watch;
use crate::acl::{DenialContext, Denied, Rights, User};
use crate::clients::Client;
use crate::monitors::Caller;
use crate::stats::{CommandCounter, Stat};
use crate::{Engine, Now, system_text};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::call::{KeyRights, LaneCall};
use strand_commands::cost::{self, LONG_ELEMENTS};
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::{Key, KeyHash, Keyspace, Txn};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// What EXEC needs: the queued commands, the watched keys and the shards.
pub(super) struct Transaction {
    client: Arc<Client>,
    pub(super) engine: Arc<Engine>,
    pub(super) queue: Box<Queue>,
    /// The session's watched keys. Dropping the transaction ends the watch; unlock the shards before.
    pub(super) watch: Watch,
    shards: OnceCell<Vec<usize>>,
    /// The reply, when only the commands about the session or about the server are left to run.
    run: RefCell<Option<Vec<ReplyPart>>>,
    /// The time that the parts of EXEC have taken so far, while a part is left.
    pub(super) spent_ns: Cell<u64>,
}

/// A part of EXEC's reply.
pub(super) enum ReplyPart {
    /// The replies of commands that have run.
    Encoded(Chain),
    /// A command that the session runs, when the transaction is back from the helper thread.
    OnSession {
        /// The command's index in the queue.
        at: usize,
        /// The database at the command's place.
        db: usize,
    },
    /// A command that runs after the shards are unlocked ([`Transaction::finish`]).
    AfterUnlock {
        /// The command's index in the queue.
        at: usize,
        /// The database at the command's place.
        db: usize,
        /// The protocol at the command's place.
        protocol: Protocol,
    },
}

impl ReplyPart {
    /// True for a command that has not run yet.
    pub(super) fn is_to_run(&self) -> bool {
        !matches!(self, ReplyPart::Encoded(_))
    }
    /// The part that stands for the queued command with index `at`, when a helper thread runs the transaction. `None`
    /// when the command runs in its turn.
    pub(super) fn later(spec: &CommandSpec, at: usize, db: usize, protocol: Protocol) -> Option<ReplyPart> {
        match in_multi_of(spec)? {
            InMulti::AfterUnlock => Some(ReplyPart::AfterUnlock { at, db, protocol }),
            InMulti::Queued => Some(ReplyPart::OnSession { at, db }),
            _ => None,
        }
    }
}

/// EXEC's reply while it grows.
#[derive(Default)]
pub(super) struct ExecReplies {
    parts: Vec<ReplyPart>,
    out: Chain,
    /// Number of bytes in `parts`.
    bytes: usize,
}

impl ExecReplies {
    /// The chain for the next reply.
    pub(super) fn out(&mut self) -> &mut Chain {
        &mut self.out
    }
    /// Adds the place of a reply that is made later.
    pub(super) fn later(&mut self, part: ReplyPart) {
        self.bytes += self.out.len();
        self.parts.extend([ReplyPart::Encoded(std::mem::take(&mut self.out)), part]);
    }
    /// Number of bytes of all replies so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.out.len()
    }
    pub(super) fn into_parts(mut self) -> Vec<ReplyPart> {
        self.parts.push(ReplyPart::Encoded(self.out));
        self.parts
    }
}

/// The shards that EXEC of `queue` needs, ascending. Includes the shards of watched keys.
pub(super) fn shards_of_queue(keyspace: &Keyspace, queue: &Queue, watch: &Watch) -> Vec<usize> {
    // A command like INFO runs after EXEC has unlocked its shards, and then locks each shard. EXEC holds all shards
    // first, so no busy script holds a shard then.
    let locks_shards =
        |c: &Queued| SessionCommand::of_row(c.spec).is_some_and(|own| (own.locks_shards)(c.argv.args()));
    let needs_all =
        |c: &Queued| run::needs_all_shards(c.spec) || script::runs_script(c.spec) || locks_shards(c);
    if queue.commands.iter().any(needs_all) {
        return (0..keyspace.shards()).collect();
    }
    let keys = queue.commands.iter().flat_map(|c| run::keys_of(c.spec, c.argv.args(), keyspace));
    with_watched(keyspace, &keys.map(|key| key.hash).collect::<Vec<_>>(), watch)
}

fn with_watched(keyspace: &Keyspace, hashes: &[KeyHash], watch: &Watch) -> Vec<usize> {
    let mut shards = keyspace.shards_of(hashes).into_vec();
    shards.extend_from_slice(watch.shards());
    shards.sort_unstable();
    shards.dedup();
    shards
}

impl Drop for Transaction {
    /// Ends the watch. If the session has ended before it ran what is left, the commands about the server run on a thread
    /// of their own.
    fn drop(&mut self) {
        std::mem::take(&mut self.watch).end(&self.engine);
        let parts = self.take_run().unwrap_or_default();
        if !parts.iter().any(|part| matches!(part, ReplyPart::AfterUnlock { .. })) {
            return;
        }
        let (engine, client) = (self.engine.clone(), self.client.clone());
        let left =
            Transaction::new(engine.clone(), std::mem::take(&mut self.queue), Watch::default(), client);
        let work = move || {
            let (client, now) = (left.client.clone(), left.engine.host.now());
            parts.into_iter().for_each(|part| drop(left.finish(part, &client, now, 0)));
        };
        if let Err(why) = engine.host.spawn("exec", Box::new(work)) {
            engine.host.warn(&format!("cannot run the rest of a transaction: {}", system_text(&why)));
        }
    }
}

impl Transaction {
    pub(super) fn new(
        engine: Arc<Engine>,
        queue: Box<Queue>,
        watch: Watch,
        client: Arc<Client>,
    ) -> Transaction {
        Transaction {
            client,
            engine,
            queue,
            watch,
            shards: OnceCell::new(),
            run: RefCell::default(),
            spent_ns: Cell::new(0),
        }
    }
    /// The commands about data have run. The session, or else a helper thread, runs what is left of `parts`.
    pub(super) fn set_run(&self, parts: Vec<ReplyPart>) {
        self.run.replace(Some(parts));
    }
    /// The parts of [`Transaction::set_run`].
    pub(super) fn take_run(&self) -> Option<Vec<ReplyPart>> {
        self.run.take()
    }
    /// True when only commands about the session or about the server are left.
    pub(super) fn has_run(&self) -> bool {
        self.run.borrow().is_some()
    }
    /// The shards that the transaction needs, ascending. Includes the shards of watched keys. The duration of the first
    /// call grows with the number of keys.
    pub(super) fn shards(&self) -> &[usize] {
        self.shards.get_or_init(|| shards_of_queue(&self.engine.keyspace, &self.queue, &self.watch))
    }
    /// Sets the shards, when all keys of the commands are known.
    pub(super) fn set_shards(&self, keys: &[Key<'_>]) {
        let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
        self.shards.get_or_init(|| with_watched(&self.engine.keyspace, &hashes, &self.watch));
    }
    /// An estimate of the commands' cost in elements, from the values at their keys. A command with several keys
    /// (RENAME, SUNIONSTORE) may move a value to another key; that value counts for every later command. A queued
    /// write to a key counts for later reads of the key, and a search in the key counts all its elements.
    pub(super) fn estimate_from_data(&self, txn: &mut Txn<'_>, mut db: usize) -> usize {
        // A command that reads all keys first carries out all promises.
        let promised = match self.queue.commands.iter().any(|c| run::reads_all_keys(c.spec)) {
            true => txn.promised_keys(),
            false => 0,
        };
        if !self.queue.commands.iter().any(|c| c.spec.cost().depends_on_data()) {
            return promised;
        }
        let keyspace = txn.keyspace();
        let (mut sum, mut written, mut moved) = (promised, HashMap::new(), HashMap::new());
        let mut looks = 0;
        for Queued { spec, argv } in &self.queue.commands {
            let (cost, args) = (spec.cost(), argv.args());
            if kind_of(spec) == CommandKind::Select {
                db = database_to_select(&self.engine, args).unwrap_or(db);
            }
            let keys = run::keys_of(spec, args, keyspace);
            if cost.depends_on_data() {
                let is_written = keys.iter().any(|key| written.contains_key(&key.hash.0));
                let here = if is_written { cost::elements_after_write } else { cost::elements_at };
                let here = here(cost, args, txn, db, &keys);
                let elsewhere = moved
                    .values()
                    .map(|key| cost::elements_after_write(cost, args, txn, db, std::slice::from_ref(key)));
                sum = sum.saturating_add(here.max(elsewhere.max().unwrap_or(0)));
                looks += moved.len();
            }
            if spec.flags.has(Flags::WRITE) {
                keys.iter().for_each(|key| *written.entry(key.hash.0).or_insert(0) += args.len());
                // A command with several keys may move a value from one key to another.
                if spec.keys.len() > 1 {
                    moved.extend(keys.into_iter().map(|key| (key.hash.0, key)));
                }
            } else if cost.depends_on_data() {
                let before = keys.iter().filter_map(|key| written.get(&key.hash.0)).sum::<usize>();
                sum = sum.saturating_add(before);
            }
            // Stop the estimate here, because estimating more keys would itself take as long as the commands.
            if sum.max(looks) > LONG_ELEMENTS {
                return usize::MAX;
            }
        }
        sum
    }
    /// Takes the time anew, when all shards of the transaction are locked. Other clients may have seen keys expire since
    /// the job began.
    pub(super) fn take_time(&self, txn: &mut Txn<'_>, call: &mut LaneCall<'_>) {
        txn.set_now_ms(self.engine.time_since(call.now_ms));
        call.now_ms = txn.now_ms();
    }
    /// Runs on a helper thread: on copies if possible, otherwise with its shards under a long lock. Returns the database
    /// that the client has afterwards.
    pub(super) fn run_on_lane(
        &self,
        engine: &Arc<Engine>,
        call: &mut LaneCall<'_>,
        job: &LaneJob,
        now: Now,
    ) -> usize {
        let (keyspace, mut db) = (call.keyspace, job.db);
        if let Some(parts) = self.take_run() {
            self.write_reply(parts, call, job, now);
            return db;
        }
        if self.may_rehearse(call, job) && self.rehearse(call, job, now) {
            return db;
        }
        let mut replies = ExecReplies::default();
        let mut txn = call.hold_shards(self.shards());
        self.take_time(&mut txn, call);
        txn.set_no_touch(call.no_touch);
        if !self.watch.is_unchanged(&txn) {
            call.reply.null_array();
            return db;
        }
        let yield_now = call.yield_now;
        let mut pause = || {
            yield_now();
            true
        };
        for (at, queued) in self.queue.commands.iter().enumerate() {
            let Queued { spec, argv } = queued;
            if let Err(denied) = job.user.check(spec, argv.args(), &mut pause) {
                let text = refuse_queued(engine, &job.client, &job.user, queued, denied, now);
                Reply::new(replies.out(), job.protocol).error(&text);
                continue;
            }
            engine.remember(&job.client, job.caching, spec, argv.args());
            let rights = rights_to_found_keys(&job.user, spec, argv.args());
            let context = Context {
                db,
                protocol: job.protocol,
                reply_bytes_max: call.reply.room_left(),
                rng: &mut *call.rng,
                rights: rights.as_ref().map(|rights| rights as &dyn KeyRights),
                client: call.client,
            };
            let id = engine.stats.ids.of(spec);
            let slot = job.client.peer.worker;
            engine.stats.count(slot, id, CommandCounter::Calls, 1);
            engine.stats.add(slot, Stat::Commands, 1);
            if engine.monitors.any() {
                engine.send_to_monitors(spec, argv.args(), db, Caller::Client(&job.client), now);
            }
            if let Some(part) = ReplyPart::later(spec, at, db, job.protocol) {
                replies.later(part);
                continue;
            }
            let began_ns = engine.host.mono_ns();
            let error = match kind_of(spec) {
                CommandKind::Script(command) => {
                    let user = &job.user;
                    let rng = &mut fastrand::Rng::with_seed(context.rng.u64(..));
                    let caching = job.caching;
                    let script_context =
                        script::CallContext { engine, client: &job.client, user, db, now, rng, caching };
                    let mut reply = Reply::bounded(replies.out(), job.protocol, context.reply_bytes_max);
                    let lane_run = Some(script::LaneRun { call, began_us: engine.host.mono_us() });
                    script::in_transaction(
                        command,
                        argv.args(),
                        script_context,
                        &mut txn,
                        lane_run,
                        &mut reply,
                    )
                }
                CommandKind::Select => {
                    let mut reply = Reply::bounded(replies.out(), job.protocol, context.reply_bytes_max);
                    match database_to_select(engine, argv.args()) {
                        Ok(selected) => {
                            db = selected;
                            reply.ok();
                        }
                        Err(text) => reply.error_bytes(&text),
                    }
                    script::ReplyError::of(&reply, false)
                }
                _ => {
                    let code = match SessionCommand::of_row(spec) {
                        Some(own) => {
                            let mut reply =
                                Reply::bounded(replies.out(), job.protocol, context.reply_bytes_max);
                            let at =
                                DetachedContext { db, now, is_local: job.client.peer.local, in_exec: true };
                            own.run_detached(engine, argv.args(), at, &mut reply);
                            let code = reply.error_code().map(<[u8]>::to_vec);
                            if is_publish(spec) && code.is_none() {
                                engine.pass_message_on(argv.args(), Some(&mut txn));
                            }
                            code
                        }
                        None => run::to_end(spec, argv.args(), &mut txn, replies.out(), context),
                    };
                    code.map(|code| script::ReplyError { code, is_counted: false })
                }
            };
            let took_ns = engine.host.mono_ns().saturating_sub(began_ns);
            engine.note_lap(&job.client, spec, argv.args(), now, took_ns);
            if let Some(error) = error {
                error.count(&engine.stats, slot, id);
            }
        }
        debug_assert!(std::ptr::eq(keyspace, txn.keyspace()));
        call.lookups = txn.lookups();
        drop(txn);
        self.reply_with(replies, call, job, now);
        db
    }
    /// Writes EXEC's reply. Runs the commands that are left; if the session runs one of them, it writes the reply.
    pub(super) fn reply_with(&self, replies: ExecReplies, call: &mut LaneCall<'_>, job: &LaneJob, now: Now) {
        let fits = replies.bytes() <= call.reply.room_left();
        let parts = replies.into_parts();
        // Without its session, the transaction still runs the commands about the server.
        let may_return = fits && job.has_client();
        if may_return && parts.iter().any(|part| matches!(part, ReplyPart::OnSession { .. })) {
            return self.set_run(parts);
        }
        self.write_reply(parts, call, job, now);
    }
    fn write_reply(&self, parts: Vec<ReplyPart>, call: &mut LaneCall<'_>, job: &LaneJob, now: Now) {
        call.reply.array(self.queue.len());
        for part in parts {
            call.pause();
            let reply = self.finish(part, &job.client, now, call.reply.room_left());
            call.reply.raw(reply);
        }
    }
    /// The replies of a part, after the transaction has unlocked its shards. A reply is cut at `bytes_max` bytes. A
    /// command about a session that has ended is not run.
    pub(super) fn finish(&self, part: ReplyPart, client: &Client, now: Now, bytes_max: usize) -> Chain {
        let (at, db, protocol) = match part {
            ReplyPart::Encoded(replies) => return replies,
            ReplyPart::OnSession { .. } => return Chain::new(),
            ReplyPart::AfterUnlock { at, db, protocol } => (at, db, protocol),
        };
        let (engine, Queued { spec, argv }) = (&self.engine, &self.queue.commands[at]);
        let own = SessionCommand::of_row(spec).expect("only a session command runs after the unlocking");
        let (began_ns, mut replies) = (engine.host.mono_ns(), Chain::new());
        let mut reply = Reply::bounded(&mut replies, protocol, bytes_max);
        let context = DetachedContext { db, now, is_local: client.peer.local, in_exec: true };
        own.run_detached(engine, argv.args(), context, &mut reply);
        let (slot, id) = (client.peer.worker, engine.stats.ids.of(spec));
        if let Some(error) = script::ReplyError::of(&reply, false) {
            error.count(&engine.stats, slot, id);
        }
        let took_ns = engine.host.mono_ns().saturating_sub(began_ns);
        engine.note_lap(client, spec, argv.args(), now, took_ns);
        replies
    }
}

/// The rights of `user` to keys that a queued command finds while it runs. `None`: all rights, or the command finds
/// no keys.
pub(super) fn rights_to_found_keys(
    user: &Arc<User>,
    spec: &'static CommandSpec,
    args: Args<'_>,
) -> Option<Rights> {
    if run::needs_all_shards(spec) { Rights::of(user, spec, args) } else { None }
}

/// Records that `user` has lost the right to a queued command. Returns the text of the command's error reply.
pub(super) fn refuse_queued(
    engine: &Engine,
    client: &Client,
    user: &User,
    Queued { spec, argv }: &Queued,
    denied: Denied,
    now: Now,
) -> String {
    let text = lost_rights_error(&denied);
    engine.stats.error(client.peer.worker, b"NOPERM");
    let command = DeniedCommand { spec, args: argv.args(), denied, context: DenialContext::Multi };
    engine.deny(client, user, command, now);
    text
}

pub(super) fn lost_rights_error(denied: &Denied) -> String {
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        Denied::Interrupted => "the client is gone",
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {reason}"
    )
}
