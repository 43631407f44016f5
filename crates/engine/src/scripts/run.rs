//! [`ScriptRun`]: one run of a script on its locked shards: the commands that the script may call, and when the run must
//! stop.
//!
//! A first attempt ([`ScriptAccess::Worker`]) holds the shards of the declared keys and keeps overwritten records
//! ([`Txn::save_for_undo`]). If it needs an undeclared key, its changes are undone, and it restarts on the worker with
//! every shard held. If it is too long for a worker, its changes are undone, and it restarts on the lane. There it
//! holds no shard while it only reads ([`ScriptAccess::View`]): each command runs on copies of the records of one
//! moment. At its first write the script restarts on a draft ([`ScriptAccess::Draft`]): it still holds no shard, and
//! its changes take effect together at its end. If other clients write what it reads, it restarts. If they do so again
//! and again, or if one of its commands cannot run on copies, the script restarts with the declared shards held
//! ([`ScriptAccess::Lane`]), or with every shard held ([`ScriptAccess::Final`]). A run with every shard held does not
//! restart, and only SCRIPT KILL stops it. So no run waits for a shard while it holds another, no worker blocks, and a
//! script is still atomic.

use super::copies::Copies;
use super::deferred::{ActionKind, DeferredAction};
use super::{RunCounts, Running};
use crate::acl::{DenialContext, Denied, Rights, User};
use crate::admission::Admission;
use crate::clients::Client;
use crate::memory::{Charge, DraftCharge};
use crate::monitors::Caller;
use crate::pubsub::{CHANNEL_BYTES_MAX, Namespace, Payload};
use crate::session::{DeniedCommand, DetachedContext, InScripts, SessionCommand, database_to_select};
use crate::{Engine, Now, TABLE};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_chain::Chain;
use strand_commands::call::KeyRights;
use strand_commands::cost::{self, LONG_BYTES, LONG_ELEMENTS};
use strand_commands::dispatch::{self, Resolved};
use strand_commands::introspect::key_accesses;
use strand_commands::listing::Listing;
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_commands::wait::refusal_in_script;
use strand_keyspace::{Key, Txn};
use strand_script::{CallOutcome, Host, ScriptFlags, VM_BYTES_MAX};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Steps of a run on a worker: about half a millisecond.
const WORKER_STEPS_MAX: u64 = 40_000;
/// Elements of the commands of a run on a worker.
const WORKER_ELEMENTS_MAX: usize = LONG_ELEMENTS;

/// Where a run executes, and whether it may restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptAccess {
    /// On a worker, for a short time. May restart.
    Worker,
    /// Part of EXEC on a worker. As [`ScriptAccess::Worker`], but a long run is an error.
    Bounded,
    /// On the lane, on copies of the records of one moment ([`Copies`]), with nothing held. Only reads. May restart.
    View,
    /// On the lane, on a draft, with nothing held: the commands read and write copies ([`Copies`]), and the changes
    /// take effect at the end. May restart.
    Draft,
    /// On the lane. May restart with every shard held.
    Lane,
    /// On the lane with every shard held. Runs to its end.
    Final,
}

/// Why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The run is too long for a worker.
    Overrun,
    /// The run needs an undeclared key.
    NeedsAllShards,
    /// A run in [`ScriptAccess::View`] writes. Or a command of a run on copies needs more than the records at its keys.
    NeedsShards,
    /// Other clients have written what the run needs: records that it has read, or more records than a view keeps.
    Overtaken,
    /// The record that the run is about to overwrite cannot be kept for an undo.
    NoUndo,
    /// SCRIPT KILL or FUNCTION KILL has stopped the run.
    Killed,
    /// No client waits for the run, or the server stops.
    ClientGone,
    /// The run needs a shard that a long-running script has.
    Busy {
        /// True when that script is a function.
        is_function: bool,
    },
}

/// The shards that a run holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeldShards<'h> {
    /// Only these shards, in ascending order.
    Some(&'h [usize]),
    All,
}

impl HeldShards<'_> {
    /// True when the run holds this shard.
    pub(crate) fn has(self, shard: usize) -> bool {
        match self {
            HeldShards::Some(shards) => shards.binary_search(&shard).is_ok(),
            HeldShards::All => true,
        }
    }
}

/// What a run on a helper thread checks now and then.
pub(crate) struct LaneChecks<'r> {
    pub(crate) running: &'r Arc<Running>,
    /// True when the session of the run has ended.
    pub(crate) cancel: &'r AtomicBool,
    pub(crate) yield_now: &'r dyn Fn(),
    /// When the run got its shards, on the clock of [`Now::mono_us`]. `busy-reply-threshold` counts from then.
    pub(crate) began_us: u64,
    /// True when the run has lasted `busy-reply-threshold`, so that its long lock, if it has one, is marked busy.
    pub(crate) busy: bool,
    /// True when the run is a part of EXEC, whose other commands may have written.
    pub(crate) in_exec: bool,
}

/// One run of a script or function.
pub(crate) struct ScriptRun<'r, 'k> {
    pub(crate) engine: &'r Engine,
    pub(crate) client: &'r Client,
    pub(crate) user: &'r Arc<User>,
    pub(crate) txn: &'r mut Txn<'k>,
    pub(crate) held: HeldShards<'r>,
    pub(crate) mode: ScriptAccess,
    pub(crate) db: usize,
    pub(crate) now: Now,
    pub(crate) rng: &'r mut fastrand::Rng,
    /// True when the run may not write.
    pub(crate) read_only: bool,
    pub(crate) flags: ScriptFlags,
    /// True when memory was over the limit when the run began.
    pub(crate) out_of_memory: bool,
    pub(crate) lane: Option<LaneChecks<'r>>,
    /// Set in [`ScriptAccess::View`] and [`ScriptAccess::Draft`]. Then `txn` holds a keyspace of copies.
    pub(crate) copies: Option<Copies<'r>>,
    pub(crate) wrote: bool,
    pub(crate) steps: u64,
    pub(crate) elements: usize,
    pub(crate) stop: Option<StopReason>,
    /// True when CLIENT CACHING came before the command.
    pub(crate) caching: bool,
    /// The bytes of the interpreter that were charged before the run.
    pub(crate) vm_charged_bytes: u64,
    /// The bytes by which the interpreter has grown since.
    pub(crate) grown: Option<Charge>,
    /// What the draft of the run takes.
    pub(crate) draft: Option<DraftCharge>,
    /// Actions that wait until the run is done.
    pub(crate) deferred: Vec<DeferredAction>,
    pub(crate) counts: RunCounts,
}

/// Maximum number of delayed messages of a run that may restart, and of their bytes.
const PUBLISHED_MAX: usize = 1024;
const PUBLISHED_BYTES_MAX: usize = 1 << 20;
/// Maximum number of keys that the run reads after writing them, for a client that keeps copies of keys.
const REMEMBERED_MAX: usize = 4096;
/// Maximum number of bytes of the events of a run that may be undone.
const EVENTS_BYTES_MAX: usize = 4 << 20;
/// Maximum number of bytes of the events and effects of a run on a draft.
const DRAFT_NOTES_BYTES_MAX: usize = 256 << 20;

/// The error of a command that scripts may not call.
pub(crate) const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";
const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const WRONG_ARITY: &str = "ERR Wrong number of args calling Redis command from script";

/// SELECT in a script. Applies to the commands that the script calls afterwards.
pub(crate) fn select(run: &mut ScriptRun<'_, '_>, argv: &Argv, reply: &mut Reply<'_>) -> CallOutcome {
    match database_to_select(run.engine, argv.args()) {
        Ok(db) => {
            run.db = db;
            reply.ok();
        }
        Err(text) => reply.error_bytes(&text),
    }
    CallOutcome::Replied
}

/// LASTSAVE in a script.
pub(crate) fn last_save(run: &mut ScriptRun<'_, '_>, _argv: &Argv, reply: &mut Reply<'_>) -> CallOutcome {
    reply.int(run.engine.persist.last_save_s());
    CallOutcome::Replied
}

/// TIME in a script. As in redis-server 7.0, only the time of expiry stands still during a run.
pub(crate) fn time(run: &mut ScriptRun<'_, '_>, _argv: &Argv, reply: &mut Reply<'_>) -> CallOutcome {
    reply.array(2);
    let unix_us = run.now.unix_us_at(run.engine.host.mono_us());
    reply.bulk_int(unix_us.div_euclid(1_000_000));
    reply.bulk_int(unix_us.rem_euclid(1_000_000));
    CallOutcome::Replied
}

/// The row of a command that a script names, for any number of arguments. `None`: there is no such command.
fn resolve(argv: &Argv) -> Option<Resolved> {
    let args = argv.args();
    let spec = TABLE.lookup(args.at(0))?;
    match args.get(1) {
        Some(word) if !spec.subcommands.is_empty() => {
            Some(Resolved { spec: dispatch::subcommand(spec, word)?, container: Some(spec) })
        }
        _ => Some(Resolved { spec, container: None }),
    }
}

/// True when a command changes keys outside its key specs.
fn writes_elsewhere(spec: &CommandSpec) -> bool {
    run::needs_all_shards(spec) || matches!(spec.name, "copy" | "move") || spec.group == "import"
}

impl ScriptRun<'_, '_> {
    fn stopped(&mut self, why: StopReason) -> CallOutcome {
        self.stop = Some(why);
        CallOutcome::Stop
    }
    fn may_restart(&self) -> bool {
        self.mode != ScriptAccess::Final
    }
    fn is_on_worker(&self) -> bool {
        matches!(self.mode, ScriptAccess::Worker | ScriptAccess::Bounded)
    }
    /// Why the command may not run. The checks have redis-server's order.
    fn refusal(&self, spec: &'static CommandSpec, argv: &Argv) -> Option<Cow<'static, str>> {
        if spec.flags.has(Flags::NOSCRIPT) && !self.engine.scripts.deny_is_disabled.load(Relaxed) {
            return Some(NOT_ALLOWED.into());
        }
        if !spec.flags.has(Flags::STALE) && self.engine.is_data_stale() {
            return Some("ERR Can not execute the command on a stale replica".into());
        }
        match self.user.check(spec, argv.args(), &mut || true) {
            Ok(()) => {}
            Err(denied) => {
                let text = match denied {
                    Denied::Command => {
                        "ERR The user executing the script can't run this command or subcommand"
                    }
                    Denied::Key(_) => {
                        "ERR The user executing the script can't access at least one of the keys mentioned in the \
                         command arguments"
                    }
                    Denied::Channel(_) => {
                        "ERR The user executing the script can't publish to the channel mentioned in the command"
                    }
                    Denied::Interrupted => "ERR the client is gone",
                };
                let (args, context) = (argv.args(), DenialContext::Script);
                let command = DeniedCommand { spec, args, denied, context };
                self.engine.deny(self.client, self.user, command, self.now);
                return Some(text.into());
            }
        }
        // As in redis-server, also PUBLISH and PFCOUNT, because CLIENT PAUSE WRITE lets read-only scripts run.
        if self.read_only && (spec.flags.has(Flags::WRITE) || spec.flags.has(Flags::MAY_REPLICATE)) {
            return Some("ERR Write commands are not allowed from read-only scripts.".into());
        }
        // As in redis-server, a script that has written something goes on.
        if spec.flags.has(Flags::WRITE)
            && !self.wrote
            && !self.txn.is_replaying()
            && let Some(text) = self.engine.persist.write_refusal()
        {
            return Some(text);
        }
        if self.out_of_memory && !self.flags.allow_oom && !self.wrote && spec.flags.has(Flags::DENYOOM) {
            return Some(crate::memory::OUT_OF_MEMORY.into());
        }
        refusal_in_script(spec, argv.args())
    }
    /// Runs a command on data for the script.
    fn data(&mut self, spec: &'static CommandSpec, argv: &Argv, resp3: bool, out: &mut Chain) -> CallOutcome {
        let args = argv.args();
        let keyspace = self.txn.keyspace();
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        if let Some(copies) = &mut self.copies
            && let Some(listing) = Listing::of_names(spec, args)
        {
            let began_ns = self.engine.host.mono_ns();
            let mut reply = Reply::bounded(out, protocol, VM_BYTES_MAX);
            if let Err(why) = copies.list(self.txn, self.db, listing, &mut reply) {
                return self.stopped(why);
            }
            self.count_call(spec, args, began_ns, None);
            return self.replied(out);
        }
        let keys = run::keys_of(spec, args, keyspace);
        if let Some(copies) = &mut self.copies {
            if let Err(why) = copies.take(self.txn, self.db, spec, args, &keys) {
                return self.stopped(why);
            }
        } else if matches!(self.held, HeldShards::Some(_)) {
            let is_held = |key: &Key<'_>| self.held.has(keyspace.shard_of(key.hash));
            if run::needs_all_shards(spec) || !keys.iter().all(is_held) {
                return self.stopped(StopReason::NeedsAllShards);
            }
        }
        if self.is_on_worker() {
            let mut elements = spec.cost().elements(args, keyspace.shards());
            if elements <= LONG_ELEMENTS && spec.cost().depends_on_data() {
                elements = cost::elements_at(spec.cost(), args, self.txn, self.db, &keys);
            }
            if run::reads_all_keys(spec) {
                // The command first carries out all promises.
                elements = elements.saturating_add(self.txn.promised_keys());
            }
            self.elements = self.elements.saturating_add(elements);
            if self.elements > WORKER_ELEMENTS_MAX {
                return self.stopped(StopReason::Overrun);
            }
        }
        let writes = spec.flags.has(Flags::WRITE);
        // PFCOUNT keeps its count in the value.
        let may_write = writes || spec.flags.has(Flags::MAY_REPLICATE);
        let is_limited = may_write || self.mode == ScriptAccess::Draft;
        if is_limited && self.may_restart() && !self.may_be_undone(spec, &keys) {
            return self.stopped(StopReason::NoUndo);
        }
        if spec.flags.has(Flags::READONLY)
            && self.client.tracked.keeps_copies(self.caching)
            && !self.remember(spec, args)
        {
            return self.stopped(StopReason::NoUndo);
        }
        if writes {
            let may_write = self.lane.as_ref().is_none_or(|lane| match self.mode {
                // No client sees what is written to a draft, so such a run may still be killed.
                ScriptAccess::Draft => {
                    lane.running.has_draft.store(true, Relaxed);
                    true
                }
                _ => lane.running.fate.begin_write(),
            });
            if !may_write {
                return self.stopped(StopReason::Killed);
            }
            self.wrote = true;
        }
        let rights = if run::needs_all_shards(spec) { Rights::of(self.user, spec, args) } else { None };
        let context = Context {
            client: self.client.id,
            db: self.copies.as_ref().map_or(self.db, Copies::db),
            protocol,
            reply_bytes_max: VM_BYTES_MAX,
            rng: &mut *self.rng,
            rights: rights.as_ref().map(|rights| rights as &dyn KeyRights),
        };
        let began_ns = self.engine.host.mono_ns();
        self.txn.advance_now_ms(self.now.unix_us_at(began_ns / 1000).div_euclid(1000));
        let events_before = self.txn.kept_events().0;
        let error = run::with_keys(spec, args, &keys, self.txn, out, context).error;
        if let Some(copies) = &mut self.copies
            && self.txn.kept_events().0 > events_before
        {
            // PFCOUNT only reads, but it keeps the count in the value.
            copies.note_written(&keys);
        }
        self.count_call(spec, args, began_ns, error.as_deref());
        if self.is_on_worker() && out.len() > LONG_BYTES {
            return self.stopped(StopReason::Overrun);
        }
        self.replied(out)
    }
    /// The outcome of a command with this reply.
    fn replied(&mut self, out: &Chain) -> CallOutcome {
        if out.len() > VM_BYTES_MAX {
            return self.refused(None, "ERR the reply is too long for a script");
        }
        CallOutcome::Replied
    }
    /// True when the changes of the next command, which writes `keys`, can be undone.
    fn may_be_undone(&mut self, spec: &CommandSpec, keys: &[Key<'_>]) -> bool {
        let events_bytes = self.txn.kept_events().1;
        match self.mode {
            // A run on a view only changes copies.
            ScriptAccess::View => true,
            ScriptAccess::Draft => events_bytes + self.txn.effects_bytes() <= DRAFT_NOTES_BYTES_MAX,
            _ => {
                !writes_elsewhere(spec)
                    && events_bytes <= EVENTS_BYTES_MAX
                    && self.txn.save_for_undo(self.db, keys)
            }
        }
    }
    /// Remembers that the client keeps copies of the keys that it is about to read. False: too many keys for a run
    /// that may restart.
    #[cold]
    fn remember(&mut self, spec: &'static CommandSpec, args: Args<'_>) -> bool {
        for (at, _) in key_accesses(spec, args) {
            let key = args.at(at);
            // The invalidation of a key that the run wrote is sent at the end of the run, and the copy is newer than
            // that change.
            if !(self.may_restart() && self.txn.is_saved_for_undo(self.db, key)) {
                self.engine.tracking.remember(self.client, key);
                continue;
            }
            let events_before = self.txn.kept_events().0;
            let is_of_key = |deferred: &DeferredAction| match &deferred.action {
                ActionKind::Remember(remembered) => **remembered == *key,
                ActionKind::Publish(..) => false,
            };
            let mut newest =
                self.deferred.iter().rev().take_while(|deferred| deferred.events_before == events_before);
            if !newest.any(is_of_key) {
                if self.deferred.len() >= REMEMBERED_MAX {
                    return false;
                }
                self.deferred
                    .push(DeferredAction { events_before, action: ActionKind::Remember(key.into()) });
            }
        }
        true
    }
    /// Runs a session command that scripts may call.
    fn session(
        &mut self,
        spec: &'static CommandSpec,
        own: &SessionCommand,
        argv: &Argv,
        resp3: bool,
        out: &mut Chain,
    ) -> CallOutcome {
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut reply = Reply::new(out, protocol);
        let began_ns = self.engine.host.mono_ns();
        match own.in_scripts {
            InScripts::Runs(run) => {
                let outcome = run(self, argv, &mut reply);
                if !matches!(outcome, CallOutcome::Replied) {
                    return outcome;
                }
            }
            InScripts::Detached => {
                own.run_detached(
                    self.engine,
                    argv.args(),
                    DetachedContext {
                        db: self.db,
                        now: self.now,
                        is_local: self.client.peer.local,
                        in_exec: false,
                    },
                    &mut reply,
                );
            }
            InScripts::Refused => return self.refused(Some(spec), NOT_ALLOWED),
        }
        self.count_call(spec, argv.args(), began_ns, reply.error_code());
        CallOutcome::Replied
    }
    /// PUBLISH. A run that may restart keeps its messages until it is done.
    pub(crate) fn publish(&mut self, kind: Namespace, argv: &Argv, reply: &mut Reply<'_>) -> CallOutcome {
        let args = argv.args();
        let channel = args.at(1);
        if channel.len() > CHANNEL_BYTES_MAX {
            reply.error(&format!("ERR a channel may have at most {CHANNEL_BYTES_MAX} bytes"));
            return CallOutcome::Replied;
        }
        let pubsub = &self.engine.pubsub;
        if self.is_on_worker() && kind == Namespace::Channel && pubsub.is_long(channel.len()) {
            return self.stopped(StopReason::Overrun);
        }
        // The notifications of a draft's changes come after its messages.
        if self.mode == ScriptAccess::Draft && self.engine.notices.listens() {
            return self.stopped(StopReason::NeedsShards);
        }
        let receivers = if self.may_restart() {
            let published = self.deferred.iter().filter_map(|deferred| match &deferred.action {
                ActionKind::Publish(_, argv) => Some(argv.heap_bytes()),
                ActionKind::Remember(_) => None,
            });
            let (messages, bytes) = published.fold((0, 0), |(n, sum), bytes| (n + 1, sum + bytes));
            if messages == PUBLISHED_MAX || bytes + args.at(2).len() > PUBLISHED_BYTES_MAX {
                return self.stopped(StopReason::NoUndo);
            }
            let copy: Vec<&[u8]> = args.iter().collect();
            let action = ActionKind::Publish(kind, Argv::from_slices(&copy));
            self.deferred.push(DeferredAction { events_before: self.txn.kept_events().0, action });
            pubsub.receivers(kind, channel)
        } else {
            let receivers = pubsub.publish(kind, channel, &Payload::of(args, 2));
            self.engine.pass_message_on(args, Some(&mut *self.txn));
            receivers
        };
        reply.int(receivers as i64);
        CallOutcome::Replied
    }
    /// Checks of long runs: yields, stops when killed, and tells the sessions that wait for the shards once the run is
    /// busy. False: the run must stop.
    fn check_interrupts(&mut self) -> bool {
        let threshold_us = self.engine.busy_threshold_us();
        let Some(lane) = &mut self.lane else { return true };
        (lane.yield_now)();
        let why = if lane.running.fate.is_killed() {
            Some(StopReason::Killed)
        } else if lane.cancel.load(Relaxed) && !self.wrote
            || self.engine.scripts.stopping.load(Relaxed) && (lane.busy || !self.wrote && !lane.in_exec)
        {
            // A script that has written something ends by itself, unless the script is busy.
            Some(StopReason::ClientGone)
        } else if self.copies.as_ref().is_some_and(Copies::are_overtaken) {
            Some(StopReason::Overtaken)
        } else {
            None
        };
        if why.is_some() {
            self.stop = why;
            return false;
        }
        if !lane.busy && threshold_us > 0 {
            let ran_us = self.engine.host.mono_us().saturating_sub(lane.began_us);
            if ran_us >= threshold_us {
                lane.busy = true;
                let shards = match self.held {
                    HeldShards::Some(shards) => Some(shards),
                    HeldShards::All => None,
                };
                // A run on copies holds no long lock. Another run's lock may be on exactly these shards.
                let is_busy = self.copies.is_none()
                    && self.engine.long_locks.mark_busy(shards, lane.running.is_function);
                lane.running.is_busy.store(is_busy, Relaxed);
            }
        }
        true
    }
}

impl Host for ScriptRun<'_, '_> {
    fn call(&mut self, argv: &Argv, resp3: bool, out: &mut Chain) -> CallOutcome {
        let Some(found) = resolve(argv) else { return self.refused(None, UNKNOWN) };
        let spec = found.spec;
        if !found.arity_fits(argv.args().len()) {
            return self.refused(Some(spec), WRONG_ARITY);
        }
        if let Some(text) = self.refusal(spec, argv) {
            return self.refused(Some(spec), &text);
        }
        if self.engine.monitors.any() {
            self.engine.send_to_monitors(spec, argv.args(), self.db, Caller::Script, self.now);
        }
        match spec.exec {
            Exec::Session(held) => self.session(spec, SessionCommand::of(held), argv, resp3, out),
            _ if run::handler(spec).is_some() => self.data(spec, argv, resp3, out),
            _ => self.refused(Some(spec), NOT_ALLOWED),
        }
    }
    fn is_permitted(&mut self, argv: &Argv) -> Option<bool> {
        let spec = resolve(argv)?.spec;
        Some(self.user.check(spec, argv.args(), &mut || true).is_ok())
    }
    fn log(&mut self, level: i64, text: &[u8]) {
        self.engine.host.script_logs(level, text);
    }
    fn may_continue(&mut self, steps: u64, vm_bytes: usize) -> bool {
        self.steps += steps;
        self.charge_interpreter(vm_bytes as u64);
        self.charge_draft();
        if self.is_on_worker() && self.steps > WORKER_STEPS_MAX {
            self.stop = Some(StopReason::Overrun);
            return false;
        }
        self.check_interrupts()
    }
}

/// True when scripts may not run commands that need memory now.
pub(crate) fn is_out_of_memory(engine: &Engine, client: &Client, now: Now) -> bool {
    engine.memory.is_limited() && engine.admit(client.peer.worker, 0, now) == Admission::Refused
}
