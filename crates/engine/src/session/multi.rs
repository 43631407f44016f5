//! Transactions: MULTI queues commands, EXEC runs them at one moment, WATCH makes EXEC depend on keys.
//!
//! EXEC locks the shards of all keys of all queued commands; it locks every shard when a command needs more than its
//! keys. It runs the commands one after the other and unlocks the shards after the last one. A transaction that costs
//! much, by its arguments or by the data, runs on a helper thread ([`super::transaction`]). The session then runs the
//! commands about itself (CLIENT SETNAME) when the transaction is back. A command about the session that the commands
//! after it depend on (HELLO, AUTH, SUBSCRIBE) keeps its transaction on the worker. Commands about the server (INFO,
//! CONFIG) run on a helper thread after the shards are unlocked. All replies are in the right place.

use super::data::lock_contended_shards;
use super::lane::is_hard_pattern;
use super::laps::{Laps, may_be_slow};
use super::run::NextStep;
use super::session_command::{
    CommandKind, DetachedContext, InMulti, SessionCommand, in_multi_of, is_publish,
};
use super::transaction::{ExecReplies, ReplyPart, Transaction, refuse_queued, rights_to_found_keys};
use super::{Session, State, Turn, script};
use crate::clients::Client;
use crate::monitors::Caller;
use crate::scripts::busy_text;
use crate::stats::CommandCounter;
use crate::{Engine, Now, TABLE};
use strand_chain::Chain;
use strand_commands::call::{KeyRights, RunsOn};
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::dispatch::Resolved;
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::Txn;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Reply};

/// What a command of this file returns.
type Outcome = Result<NextStep, ErrorText>;

/// The error of an EXEC that was refused with the error `why`.
pub(super) fn abort_text(why: &[u8]) -> Vec<u8> {
    let why = why.strip_prefix(b"ERR ").unwrap_or(why);
    [b"EXECABORT Transaction discarded because of: ", why].concat()
}

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const NOT_ALLOWED: &str = "ERR Command not allowed inside a transaction";
const NO_WAIT: &str = "ERR this command must wait now, and a command inside a transaction cannot wait";
/// Minimum cost of one queued command, in elements.
const COMMAND_ELEMENTS: usize = 1;

/// Maximum number of commands that the memory of EXEC is estimated by.
const GROWING_SAMPLES_MAX: usize = 128;
/// Maximum number of bytes of queued commands that a worker frees.
const FREED_BYTES_MAX: usize = 1 << 20;
/// A new queue has room for this many commands.
const INITIAL_COMMANDS: usize = 16;

/// A command that was queued since MULTI.
pub(super) struct Queued {
    pub(super) spec: &'static CommandSpec,
    pub(super) argv: Argv,
}

/// The commands since MULTI.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) commands: Vec<Queued>,
    pub(super) bytes: usize,
    /// All flags that at least one of the commands has.
    pub(super) flags: u32,
    /// The cost of the commands, as far as it is known without the data.
    pub(super) elements: usize,
    /// Number of commands whose cost grows with the data or is long. The memory of EXEC is estimated by these.
    pub(super) growing_commands: usize,
    /// The indexes of the first [`GROWING_SAMPLES_MAX`] of them that have few arguments.
    pub(super) growing_samples: Vec<u32>,
    /// True when a command runs a script, matches a pattern that may take long, is about the server, or always runs
    /// without the session.
    pub(super) starts_on_lane: bool,
    /// True when a command runs on the session in its turn.
    pub(super) needs_session: bool,
    /// True when a command could not be queued, so EXEC runs none.
    pub(super) is_broken: bool,
}

impl Queue {
    /// True when EXEC runs on a helper thread, whatever the data is.
    pub(super) fn runs_on_lane(&self) -> bool {
        !self.needs_session && (self.starts_on_lane || self.elements > LONG_ELEMENTS)
    }
    /// Number of heap bytes of the queued arguments.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
    /// Number of queued commands.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

impl Session {
    /// `MULTI`. Reply: OK.
    pub(super) fn multi(&mut self) -> Outcome {
        if self.queue.is_some() {
            return Err(b"ERR MULTI calls can not be nested".to_vec());
        }
        let commands = Vec::with_capacity(INITIAL_COMMANDS);
        self.queue = Some(Box::new(Queue { commands, ..Queue::default() }));
        self.update_guard();
        self.reply().ok();
        Ok(NextStep::Continue)
    }
    /// `DISCARD`. Reply: OK.
    pub(super) fn discard(&mut self) -> Outcome {
        if self.queue.is_none() {
            return Err(b"ERR DISCARD without MULTI".to_vec());
        }
        self.end_transaction();
        self.reply().ok();
        Ok(NextStep::Continue)
    }
    /// Drops the queued commands and the watched keys.
    pub(super) fn end_transaction(&mut self) {
        self.drop_queue();
        self.flags.caching = false;
        self.unwatch_all();
        self.update_guard();
    }
    /// Drops the queued commands. Very many of them are freed on a helper thread.
    pub(super) fn drop_queue(&mut self) {
        if let Some(queue) = self.queue.take()
            && (queue.len() > LONG_ELEMENTS || queue.bytes() > FREED_BYTES_MAX)
        {
            self.engine.host.reclaim(queue);
        }
    }
    /// Call this when a command is refused. CLIENT CACHING applies to the command after it, also to a refused one.
    pub(super) fn forget_caching(&mut self) {
        self.flags.caching &= self.queue.is_some() || self.argv.args().is(0, "CLIENT");
    }
    /// Called when a command is refused. Its transaction, if any, will not run.
    pub(super) fn break_queue(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_broken = true;
        }
    }
    /// True when the command is queued instead of run.
    #[inline]
    pub(super) fn queues(&self, spec: &CommandSpec) -> bool {
        let runs =
            || SessionCommand::of_row(spec).is_some_and(|own| matches!(own.in_multi, InMulti::Immediate));
        self.queue.is_some() && !runs()
    }
    /// Queues the current command, which has passed the gates.
    pub(super) fn enqueue(&mut self, found: &Resolved) -> NextStep {
        let spec = found.spec;
        if !is_allowed(spec, self.argv.args()) {
            return self.reject(spec, NOT_ALLOWED.as_bytes());
        }
        self.last_command = self.engine.stats.ids.of(spec);
        // The reason for a refusal may come later than this command.
        let flags = script::declared_flags(&self.engine, spec, self.argv.args());
        let check_elements = self.check_elements(spec, self.argv.args());
        let argv = self.argv.take();
        let is_dirty = self.watch.is_dirty();
        let queue = self.queue.as_mut().expect("a transaction has begun");
        // As in redis-server, a command that EXEC will not run is not kept.
        if is_dirty || queue.is_broken {
            self.reply().queued();
            self.end_command();
            return NextStep::Continue;
        }
        queue.bytes += argv.heap_bytes() + size_of::<Queued>();
        queue.flags |= flags.0;
        let cost = spec.cost();
        let elements = cost.elements(argv.args(), self.engine.keyspace.shards());
        if cost.depends_on_data() || elements > LONG_ELEMENTS {
            queue.growing_commands += 1;
            let is_sample =
                argv.args().len() <= LONG_ELEMENTS && queue.growing_samples.len() < GROWING_SAMPLES_MAX;
            queue.growing_samples.extend(u32::try_from(queue.commands.len()).ok().filter(|_| is_sample));
        }
        // EXEC checks the rights again.
        queue.elements = queue
            .elements
            .saturating_add(elements)
            .saturating_add(check_elements)
            .saturating_add(COMMAND_ELEMENTS);
        let is_script = script::runs_script(spec);
        queue.starts_on_lane |= is_script || is_hard_pattern(spec, argv.args());
        if let Some(own) = SessionCommand::of_row(spec) {
            queue.starts_on_lane |= own.is_always_detached || matches!(own.in_multi, InMulti::AfterUnlock);
            queue.needs_session |= matches!(own.in_multi, InMulti::QueuedForSession | InMulti::QueuedIf(_));
        }
        queue.commands.push(Queued { spec, argv });
        if queue.bytes > self.settings.query_bytes_max {
            let held_bytes = queue.bytes;
            self.end_transaction();
            return NextStep::Stop(self.abort_over_query_limit(held_bytes));
        }
        self.reply().queued();
        self.end_command();
        NextStep::Continue
    }
    /// `EXEC`. Reply: an array of the commands' replies, or null when a watched key has changed.
    pub(super) fn exec(&mut self, now: Now) -> Outcome {
        let Some(queue) = self.queue.take() else {
            self.flags.caching = false;
            return Err(b"ERR EXEC without MULTI".to_vec());
        };
        if queue.is_broken {
            self.queue = Some(queue);
            self.end_transaction();
            return Err(ABORTED.into());
        }
        let (elements, may_leave) = (queue.elements, !queue.needs_session);
        if queue.runs_on_lane() {
            self.outgoing_transaction = Some(self.transaction(queue));
            self.update_guard();
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        let client = self.client.clone();
        // The transaction is dropped after the shards are unlocked, also after a panic.
        let mut transaction = self.transaction(queue);
        let Some(mut txn) = lock(&engine, &client, transaction.shards(), now) else {
            // The whole transaction waits, and EXEC is retried.
            self.watch = std::mem::take(&mut transaction.watch);
            self.queue = Some(std::mem::take(&mut transaction.queue));
            return Ok(NextStep::ShardLocked);
        };
        if may_leave && transaction.estimate_from_data(&mut txn, self.db) > LONG_ELEMENTS {
            drop(txn);
            self.outgoing_transaction = Some(transaction);
            self.update_guard();
            return Ok(NextStep::Detach);
        }
        txn.set_no_touch(self.flags.no_touch);
        let is_unchanged = transaction.watch.is_unchanged(&txn);
        self.exec_len = Some(transaction.queue.len());
        let parts = if is_unchanged {
            self.run_queued(&transaction.queue.commands, &mut txn, now)
        } else {
            Vec::new()
        };
        self.count_lookups(txn.lookups());
        drop(txn);
        self.exec_len = None;
        self.flags.caching = false;
        self.update_guard();
        if !is_unchanged {
            self.reply().null_array();
            return Ok(NextStep::Continue);
        }
        self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
        Ok(self.reply_to_exec(transaction, parts, now))
    }
    /// Continues EXEC, whose transaction is back from a helper thread.
    pub(super) fn resume_exec(&mut self, transaction: Transaction, now: Now) -> NextStep {
        let spec = TABLE.lookup(b"EXEC").expect("EXEC is in the table");
        let began_ns = self.engine.host.mono_ns();
        let spent_ns = transaction.spent_ns.get();
        let parts = transaction.take_run().unwrap_or_default();
        self.exec_len = Some(transaction.queue.len());
        let parts = parts.into_iter().map(|part| match part {
            ReplyPart::OnSession { at, db } => {
                ReplyPart::Encoded(self.run_later(&transaction.queue.commands[at], db, now))
            }
            part => part,
        });
        let parts = parts.collect();
        self.exec_len = None;
        let spent_ns = spent_ns + self.engine.host.mono_ns().saturating_sub(began_ns);
        transaction.spent_ns.set(spent_ns);
        let next = self.reply_to_exec(transaction, parts, now);
        if let NextStep::Detach = next {
            return NextStep::Stop(Turn::Lane(self.lane_job(spec, RunsOn::Lane)));
        }
        self.engine.note_lap(&self.client, spec, self.argv.args(), now, spent_ns);
        if self.engine.monitors.any() {
            let caller = Caller::Client(&self.client);
            self.engine.send_to_monitors(spec, self.argv.args(), self.db, caller, now);
        }
        self.argv.clear();
        self.end_command();
        next
    }
    /// Runs a session command of a transaction that a helper thread has run. `db` is the database at the command's
    /// place. Returns the reply.
    fn run_later(&mut self, Queued { spec, argv }: &Queued, db: usize, now: Now) -> Chain {
        let own = SessionCommand::of_row(spec).expect("only session commands are left to the session");
        let began_ns = self.engine.host.mono_ns();
        let (mut out, db_after) = (Chain::new(), std::mem::replace(&mut self.db, db));
        let code = self.run_session_command(own, argv.args(), &mut out, now);
        self.db = db_after;
        self.count_failed(self.engine.stats.ids.of(spec), code.as_deref());
        let took_ns = self.engine.host.mono_ns().saturating_sub(began_ns);
        self.engine.note_lap(&self.client, spec, argv.args(), now, took_ns);
        out
    }
    /// Writes EXEC's reply, unless a command is left to run.
    fn reply_to_exec(&mut self, transaction: Transaction, parts: Vec<ReplyPart>, now: Now) -> NextStep {
        // A command about the server may take long, or wait for shards that a script holds.
        if parts.iter().any(ReplyPart::is_to_run) {
            // A queued CLIENT KILL may have ended this session. It gets the whole reply first.
            self.flags.ends_after_exec = matches!(self.state, State::Closing);
            transaction.set_run(parts);
            self.outgoing_transaction = Some(transaction);
            return NextStep::Detach;
        }
        let client = self.client.clone();
        self.reply().array(transaction.queue.len());
        for part in parts {
            let reply = transaction.finish(part, &client, now, usize::MAX);
            self.reply().raw(reply);
        }
        // A queued CLIENT KILL may have ended this session.
        if matches!(self.state, State::Closing) { NextStep::Stop(self.close()) } else { NextStep::Continue }
    }

    /// Runs the queued commands on `txn`, one after the other.
    fn run_queued(&mut self, commands: &[Queued], txn: &mut Txn<'_>, now: Now) -> Vec<ReplyPart> {
        let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
        let mut replies = ExecReplies::default();
        let (mut laps, slot) = (Laps::default(), self.slot());
        self.update_info_for_denials();
        for (at, queued) in commands.iter().enumerate() {
            let Queued { spec, argv } = queued;
            let id = self.engine.stats.ids.of(spec);
            if !self.identity.user.is_unrestricted()
                && let Err(denied) = self.identity.user.check(spec, argv.args(), &mut || true)
            {
                let text =
                    refuse_queued(&self.engine, &self.client, &self.identity.user, queued, denied, now);
                Reply::new(replies.out(), self.protocol).error(&text);
                continue;
            }
            self.tally.call(id, self.client.peer.worker, &self.engine.stats);
            let alone = self.settings.shared_lap_bytes_max == 0 || may_be_slow(spec, argv.args());
            if self.engine.monitors.any() {
                self.engine.send_to_monitors(spec, argv.args(), self.db, Caller::Client(&self.client), now);
            }
            laps.begin(&self.engine, slot, id, alone, now);
            let own = SessionCommand::of_row(spec);
            match own.map(|own| (own, own.kind)) {
                Some((_, CommandKind::Script(command))) => {
                    let (engine, client, user) =
                        (self.engine.clone(), self.client.clone(), self.identity.user.clone());
                    let context = script::CallContext {
                        engine: &engine,
                        client: &client,
                        user: &user,
                        db: self.db,
                        now,
                        rng: &mut self.rng,
                        caching: self.flags.caching,
                    };
                    let mut reply = Reply::bounded(replies.out(), self.protocol, bytes_max);
                    let error = script::in_transaction(command, argv.args(), context, txn, None, &mut reply);
                    if let Some(error) = error {
                        error.count(&engine.stats, self.slot(), id);
                    }
                }
                Some((own, _)) if matches!(own.in_multi, InMulti::AfterUnlock) => {
                    laps.take_back();
                    replies.later(ReplyPart::AfterUnlock { at, db: self.db, protocol: self.protocol });
                }
                Some((own, _)) => {
                    let code = self.run_session_command(own, argv.args(), replies.out(), now);
                    if is_publish(spec) && code.is_none() {
                        self.engine.pass_message_on(argv.args(), Some(txn));
                    }
                    self.count_failed(id, code.as_deref());
                }
                None => {
                    self.engine.remember(&self.client, self.flags.caching, spec, argv.args());
                    let rights = rights_to_found_keys(&self.identity.user, spec, argv.args());
                    let context = Context {
                        db: self.db,
                        protocol: self.protocol,
                        reply_bytes_max: bytes_max,
                        rng: &mut self.rng,
                        rights: rights.as_ref().map(|rights| rights as &dyn KeyRights),
                        client: self.client.id,
                    };
                    let code = run::to_end(spec, argv.args(), txn, replies.out(), context);
                    self.count_failed(id, code.as_deref());
                }
            }
            if alone {
                laps.end_noted(&self.engine, &self.client, spec, argv.args(), now);
            }
        }
        laps.pause(&self.engine, slot, now);
        replies.into_parts()
    }
    /// Runs a session command that touches no data. Its reply goes to `out`. Returns the code of an error.
    fn run_session_command(
        &mut self,
        own: &SessionCommand,
        args: Args<'_>,
        out: &mut Chain,
        now: Now,
    ) -> Option<Vec<u8>> {
        let earlier = self.replies.set_aside();
        let outcome = own.run(self, args, now);
        let mut chain = self.replies.take_reply(earlier);
        let mut reply = Reply::new(&mut chain, self.protocol);
        match outcome {
            Ok(NextStep::Detach) => {
                let engine = self.engine.clone();
                let at =
                    DetachedContext { db: self.db, now, is_local: self.client.peer.local, in_exec: true };
                own.run_detached(&engine, args, at, &mut reply);
            }
            Ok(NextStep::Block(wait)) => wait.write_now(&self.engine, &mut reply),
            // No command of EXEC can wait.
            Ok(NextStep::Park(..) | NextStep::Yield | NextStep::ShardLocked) => reply.error(NO_WAIT),
            Ok(NextStep::Continue | NextStep::Stop(_)) => {}
            Err(text) => reply.error_bytes(&text),
        }
        let code = reply.error_code().map(<[u8]>::to_vec);
        out.push_chain(chain);
        code
    }
    /// Counts a queued command that ended with an error of this code.
    fn count_failed(&self, id: u32, code: Option<&[u8]>) {
        if let Some(code) = code {
            self.engine.stats.error(self.slot(), code);
            self.engine.stats.count(self.slot(), id, CommandCounter::Failed, 1);
        }
    }
    fn transaction(&mut self, queue: Box<Queue>) -> Transaction {
        Transaction::new(self.engine.clone(), queue, std::mem::take(&mut self.watch), self.client.clone())
    }
}

/// True when the command may be queued. The command runs whole on data, or it is a session command that does not end
/// or block the session.
fn is_allowed(spec: &CommandSpec, args: Args<'_>) -> bool {
    if spec.flags.has(Flags::NO_MULTI) {
        return false;
    }
    match in_multi_of(spec) {
        Some(InMulti::Refused) => false,
        Some(InMulti::QueuedIf(is_allowed)) => is_allowed(args),
        Some(_) => true,
        None => run::handler(spec).is_some(),
    }
}

/// Locks shards, which must ascend. `None` when one is under a long lock. The client is then woken as
/// [`LongLocks::wait_past_gate`](crate::long_locks::LongLocks::wait_past_gate) says.
pub(super) fn lock<'k>(engine: &'k Engine, client: &Client, shards: &[usize], now: Now) -> Option<Txn<'k>> {
    let long_locks = &engine.long_locks;
    if long_locks.any() && long_locks.wait_past_gate(shards, client.id, client.wake_handle()) {
        return None;
    }
    let mut txn = engine.keyspace.unlocked(now.unix_ms());
    let locked = engine.keyspace.try_lock_shards(shards, &mut txn)
        || lock_contended_shards(engine, client, shards, &mut txn);
    locked.then_some(txn)
}

/// The outcome of a command for which [`lock`] has found one of `shards` under a long lock: BUSY beside a long-running
/// script. Else the command is tried again when the client is woken.
pub(super) fn outcome_of_locked(engine: &Engine, shards: &[usize]) -> Result<NextStep, ErrorText> {
    match engine.long_locks.is_busy(Some(shards)) {
        Some(is_function) => Err(busy_text(is_function).into()),
        None => Ok(NextStep::ShardLocked),
    }
}
