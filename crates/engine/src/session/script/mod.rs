//! EVAL, EVALSHA, FCALL and their read-only variants: the script, its keys, and where it runs.
//!
//! A script starts on the worker and holds the shards of its declared keys, unless its last runs were long. It stays
//! there for at most half a millisecond (see [`ScriptRun`]). A longer script is undone and runs on the lane: on a view of its
//! shards while it only reads, on a draft when it writes ([`draft`]), and with a long lock on its shards if a draft does
//! not do. A script that uses an undeclared key, or all keys, is undone and runs with every shard viewed or held, then
//! and in all later runs.

mod call;
mod draft;
mod on_lane;

use super::Session;
use super::lane::IS_ENDING;
use super::multi::{lock, outcome_of_locked};
use super::run::NextStep;
use super::session_command::{CommandKind, kind_of};
use crate::acl::{Acl, User};
use crate::clients::Client;
use crate::scripts::copies::Copies;
use crate::scripts::deferred::DeferredAction;
use crate::scripts::run::{HeldShards, LaneChecks, ScriptAccess, ScriptRun, StopReason, is_out_of_memory};
use crate::scripts::{Fate, RunCounts, Running};
use crate::stats::{CommandCounter, Stats};
use crate::{Engine, Now};
pub(super) use call::{ScriptCall, load};
pub(super) use on_lane::run_on_lane;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_chain::Chain;
use strand_commands::call::LaneCall;
use strand_commands::spec::{CommandSpec, Flags};
use strand_keyspace::Txn;
use strand_script::{RunEnd, VM_BYTES_MAX, VmLimits};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

type Outcome = Result<NextStep, ErrorText>;

thread_local! {
    /// A chain for the reply of this thread's next script. It is empty, and keeps its block.
    static SPARE: Cell<Chain> = Cell::default();
}

/// A script or a library with a longer text is compiled and run on the lane.
const TEXT_AT_ONCE_MAX: usize = 64 * 1024;
/// Limits of a run on a worker: growth of the interpreter, and nesting of tables.
const WORKER_LIMITS: VmLimits = VmLimits { soft_bytes: 4 << 20, depth_max: 32 };
/// Limits of a run on the lane. Its threads have a larger stack.
const LANE_LIMITS: VmLimits = VmLimits { soft_bytes: VM_BYTES_MAX, depth_max: 1000 };
/// Maximum number of arguments of a command in FUNCTION STATS.
const SHOWN_ARGS_MAX: usize = 128;

/// True when the command runs a script or function that declares the flag `no-writes`. Compiles nothing.
pub(super) fn declares_no_writes(engine: &Engine, spec: &'static CommandSpec, args: Args<'_>) -> bool {
    let CommandKind::Script(command) = kind_of(spec) else { return false };
    call::declared_flags(engine, command, args.at(1))
        .is_some_and(|flags| !flags.compatible && flags.no_writes)
}

/// True when the command runs a script or function that declares the flag `allow-stale`. Compiles nothing.
pub(super) fn declares_allow_stale(engine: &Engine, spec: &'static CommandSpec, args: Args<'_>) -> bool {
    let CommandKind::Script(command) = kind_of(spec) else { return false };
    call::declared_flags(engine, command, args.at(1))
        .is_some_and(|flags| !flags.compatible && flags.allow_stale)
}

/// The flags of a command that runs a script, as far as a refusal depends on them now ([`declared_flags`]).
pub(super) fn effective_flags(engine: &Engine, spec: &'static CommandSpec, args: Args<'_>) -> Flags {
    let is_limited = engine.persist.alerts() != 0 || engine.memory.is_limited();
    if is_limited { declared_flags(engine, spec, args) } else { spec.flags }
}

/// The flags of a command. If the command runs a script that declares flags, the script decides about WRITE and
/// DENYOOM.
pub(super) fn declared_flags(engine: &Engine, spec: &'static CommandSpec, args: Args<'_>) -> Flags {
    let CommandKind::Script(command) = kind_of(spec) else { return spec.flags };
    let declared = call::declared_flags(engine, command, args.at(1));
    let Some(declared) = declared.filter(|flags| !flags.compatible) else { return spec.flags };
    let mut flags = spec.flags.0 & !(Flags::WRITE.0 | Flags::DENYOOM.0);
    if !declared.no_writes {
        flags |= Flags::WRITE.0;
    }
    if !declared.no_writes && !declared.allow_oom {
        flags |= Flags::DENYOOM.0;
    }
    Flags(flags)
}

/// How a command names the script that it runs, and whether that script may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptCommand {
    by: ScriptSource,
    /// True when the script may write nothing.
    read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptSource {
    /// The argument is the text of a script.
    Text,
    /// The argument is the digest of a script.
    Digest,
    /// The argument is the name of a library's function.
    Function,
}

pub(super) const EVAL: ScriptCommand = ScriptCommand { by: ScriptSource::Text, read_only: false };
pub(super) const EVAL_RO: ScriptCommand = ScriptCommand { by: ScriptSource::Text, read_only: true };
pub(super) const EVALSHA: ScriptCommand = ScriptCommand { by: ScriptSource::Digest, read_only: false };
pub(super) const EVALSHA_RO: ScriptCommand = ScriptCommand { by: ScriptSource::Digest, read_only: true };
pub(super) const FCALL: ScriptCommand = ScriptCommand { by: ScriptSource::Function, read_only: false };
pub(super) const FCALL_RO: ScriptCommand = ScriptCommand { by: ScriptSource::Function, read_only: true };

/// True for the commands that run scripts.
pub(super) fn runs_script(spec: &CommandSpec) -> bool {
    matches!(kind_of(spec), CommandKind::Script(_))
}

const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
const CLIENT_GONE: &str = "ERR the client is gone";

/// The error of a run that nobody waits for, or that the end of the server has stopped.
fn gone_text(engine: &Engine) -> &'static str {
    if engine.scripts.stopping.load(Relaxed) { IS_ENDING } else { CLIENT_GONE }
}

/// The outcome of one attempt to run a script.
enum Attempt {
    /// The reply is written. It may be an error.
    Done(Option<ReplyError>),
    /// All changes were undone; the script must restart.
    Restart(StopReason),
}

/// The error that is the reply of a script, or of another command of a transaction.
pub(super) struct ReplyError {
    pub(super) code: Vec<u8>,
    /// True for the error of a command that the script called. This error is already in the statistics.
    pub(super) is_counted: bool,
}

impl ReplyError {
    /// The error of this reply, if it is one.
    pub(super) fn of(reply: &Reply<'_>, is_counted: bool) -> Option<ReplyError> {
        Some(ReplyError { code: reply.error_code()?.to_vec(), is_counted })
    }
    /// Counts the error, and the failed call of command `id`.
    pub(super) fn count(&self, stats: &Stats, slot: usize, id: u32) {
        if !self.is_counted {
            stats.error(slot, &self.code);
        }
        stats.count(slot, id, CommandCounter::Failed, 1);
    }
}

/// What an attempt needs besides its shards.
pub(super) struct CallContext<'c> {
    pub(super) engine: &'c Engine,
    pub(super) client: &'c Client,
    pub(super) user: &'c Arc<User>,
    pub(super) db: usize,
    pub(super) now: Now,
    pub(super) rng: &'c mut fastrand::Rng,
    /// True when CLIENT CACHING came before the command.
    pub(super) caching: bool,
}

/// Where an attempt runs: its shards and its mode.
struct Placement<'p> {
    held: HeldShards<'p>,
    mode: ScriptAccess,
    lane: Option<LaneChecks<'p>>,
    /// The copies on which the attempt runs. `None`: it runs on the data.
    copies: Option<Copies<'p>>,
    /// Makes the changes of an attempt on a draft take effect.
    commit: Option<&'p Commit<'p>>,
}

impl<'p> Placement<'p> {
    /// An attempt that runs on the data.
    fn on_data(held: HeldShards<'p>, mode: ScriptAccess, lane: Option<LaneChecks<'p>>) -> Placement<'p> {
        Placement { held, mode, lane, copies: None, commit: None }
    }
}

/// Makes the changes of a draft take effect.
///
/// # Errors
/// Why they cannot. Then nothing has changed.
type Commit<'c> = dyn Fn(&mut Txn<'_>, DraftedRun) -> Result<(), StopReason> + 'c;

/// What a script has done on a draft, besides the changes in the draft's transaction.
struct DraftedRun {
    /// True when the script called a command that writes.
    wrote: bool,
    /// The keys that the script may have written.
    written: Vec<Box<[u8]>>,
    deferred: Vec<DeferredAction>,
}

/// Makes one attempt to run the script, on `txn`.
fn attempt(
    script_call: &ScriptCall,
    args: Args<'_>,
    context: &mut CallContext<'_>,
    txn: &mut Txn<'_>,
    placement: Placement<'_>,
    reply: &mut Reply<'_>,
) -> Attempt {
    let Placement { held, mode, lane, copies, commit } = placement;
    let engine = context.engine;
    let mut vm = match engine.scripts.take_interpreter() {
        Ok(vm) => vm,
        Err(text) => {
            reply.error_bytes(&text);
            return Attempt::Done(ReplyError::of(reply, false));
        }
    };
    let mut run = ScriptRun {
        engine,
        client: context.client,
        user: context.user,
        txn,
        held,
        mode,
        db: context.db,
        now: context.now,
        rng: &mut *context.rng,
        read_only: script_call.is_read_only(),
        flags: script_call.flags(),
        // As in redis-server, commands from a file ignore the memory limit.
        out_of_memory: !engine.persist.is_loading() && is_out_of_memory(engine, context.client, context.now),
        lane,
        copies,
        wrote: false,
        steps: 0,
        elements: 0,
        stop: None,
        caching: context.caching,
        vm_charged_bytes: vm.charged_bytes(),
        grown: None,
        draft: None,
        deferred: Vec::new(),
        counts: RunCounts::default(),
    };
    let (mark, changes) = (run.txn.effects_mark(), run.txn.changes_mark());
    match mode {
        ScriptAccess::Final => {}
        ScriptAccess::Draft => run.txn.keep_events_of_copies(&engine.keyspace),
        _ => run.txn.keep_events(),
    }
    let limits = if matches!(mode, ScriptAccess::Worker | ScriptAccess::Bounded) {
        WORKER_LIMITS
    } else {
        LANE_LIMITS
    };
    run.txn.set_runs_script(true);
    let ended = script_call.run(&mut vm, args, limits, &mut run, reply);
    // The charge of the draft lasts until its changes have taken effect.
    let ScriptRun { stop, txn, mut deferred, counts, copies, wrote, grown, draft: _draft, .. } = run;
    txn.set_runs_script(false);
    engine.scripts.return_interpreter(vm);
    // A large interpreter is freed now.
    drop(grown);
    let RunEnd::Stopped(position) = ended else {
        match commit {
            None => report(&deferred, mode, engine, context.client, txn),
            Some(commit) => {
                let written = copies.map(Copies::into_written).unwrap_or_default();
                if let Err(why) = commit(txn, DraftedRun { wrote, written, deferred }) {
                    txn.forget();
                    return Attempt::Restart(why);
                }
            }
        }
        counts.add_to(&engine.stats, context.client.peer.worker);
        return Attempt::Done(ReplyError::of(reply, ended == RunEnd::CommandFailed));
    };
    if mode == ScriptAccess::Draft {
        txn.forget();
        deferred.clear();
    }
    let stop = stop.unwrap_or(StopReason::Overrun);
    let take_back = |txn: &mut Txn<'_>| {
        txn.undo();
        txn.uncount_changes_since(&changes);
        txn.forget_effects_since(mark);
    };
    let text = match (stop, mode) {
        // As in redis-server, the text is the same for FUNCTION KILL.
        (StopReason::Killed, _) => KILLED.into(),
        (StopReason::ClientGone, _) => {
            // A script that has written is cut only when the server ends. As in redis-server, the append-only file then
            // has nothing of the script.
            match mode {
                ScriptAccess::Final => txn.forget_effects_since(mark),
                _ => take_back(txn),
            }
            gone_text(engine).into()
        }
        (_, ScriptAccess::Bounded) => {
            take_back(txn);
            "ERR the script takes too long for a transaction that also has commands about the connection. Move these \
             commands out of the transaction"
                .into()
        }
        (_, ScriptAccess::Final) => format!(
            "ERR the script needs more than {} bytes of memory, or nests tables more than {} deep",
            limits.soft_bytes, limits.depth_max
        ),
        (stop, _) => {
            take_back(txn);
            return Attempt::Restart(stop);
        }
    };
    // The commands that have run stay in effect.
    if mode != ScriptAccess::Bounded {
        counts.add_to(&engine.stats, context.client.peer.worker);
        report(&deferred, mode, engine, context.client, txn);
    }
    let position = position
        .map(|position| format!(" script: {}, on {position}.", script_call.name()))
        .unwrap_or_default();
    reply.error(&(text + &position));
    Attempt::Done(ReplyError::of(reply, false))
}

/// At the end of a run: sends its messages and events. With `appendfsync always`, a receiver's messages wait until
/// everything before the journal's end is on the disk. So the run's writes must be in the journal before, except in
/// EXEC, whose commands are in the journal together.
fn report(
    deferred: &[DeferredAction],
    mode: ScriptAccess,
    engine: &Engine,
    client: &Client,
    txn: &mut Txn<'_>,
) {
    let is_whole = matches!(mode, ScriptAccess::Worker | ScriptAccess::Lane | ScriptAccess::Draft);
    if is_whole && engine.persist.aof.gates.is_on() {
        txn.record_effects();
    }
    DeferredAction::run_all(deferred, engine, client, txn);
}

/// A transaction runs to its end, also when its client is gone. Otherwise a script would be cut, and the commands after
/// the script would run.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// A script that runs on a helper thread as a part of EXEC.
pub(super) struct LaneRun<'r, 'k> {
    pub(super) call: &'r LaneCall<'k>,
    /// When the run began, on the clock of [`Now::mono_us`].
    pub(super) began_us: u64,
}

/// Runs a script as a part of EXEC, which holds every shard. `lane_run` is `None` on a worker.
pub(super) fn in_transaction(
    command: ScriptCommand,
    args: Args<'_>,
    mut context: CallContext<'_>,
    txn: &mut Txn<'_>,
    lane_run: Option<LaneRun<'_, '_>>,
    reply: &mut Reply<'_>,
) -> Option<ReplyError> {
    let script_call = match ScriptCall::of(context.engine, command, args) {
        Ok(script_call) => script_call,
        Err(text) => {
            reply.error_bytes(&text);
            return ReplyError::of(reply, false);
        }
    };
    let outcome = match lane_run {
        None => {
            let placement = Placement::on_data(HeldShards::All, ScriptAccess::Bounded, None);
            attempt(&script_call, args, &mut context, txn, placement, reply)
        }
        Some(LaneRun { call, began_us }) => {
            let engine = context.engine;
            let running = engine.scripts.begin_run(running(&script_call, args, began_us));
            let lane = LaneChecks {
                running: &running,
                cancel: &GOES_ON,
                yield_now: call.yield_now,
                began_us,
                busy: false,
                in_exec: true,
            };
            let placement = Placement::on_data(HeldShards::All, ScriptAccess::Final, Some(lane));
            let outcome = attempt(&script_call, args, &mut context, txn, placement, reply);
            engine.scripts.end_run(&running);
            outcome
        }
    };
    match outcome {
        Attempt::Done(error) => error,
        Attempt::Restart(_) => unreachable!("neither of these modes restarts"),
    }
}

fn running(script_call: &ScriptCall, args: Args<'_>, began_us: u64) -> Running {
    Running {
        name: script_call.name(),
        command: args.iter().take(SHOWN_ARGS_MAX).map(<[u8]>::to_vec).collect(),
        is_function: script_call.is_function(),
        began_us,
        fate: Fate::default(),
        is_busy: AtomicBool::new(false),
        has_draft: AtomicBool::new(false),
    }
}

/// Runs a script from an append-only file, on data that no client sees yet.
pub(crate) fn replay(
    engine: &Engine,
    command: ScriptCommand,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) {
    let script_call = match ScriptCall::of(engine, command, args) {
        Ok(script_call) => script_call,
        Err(text) => return reply.error_bytes(&text),
    };
    let (client, user) = (Client::for_file(now), Acl::unlimited());
    let mut txn = engine.keyspace.lock_all(now.unix_ms());
    txn.set_replaying();
    let mut rng = fastrand::Rng::with_seed(engine.facts.run_id_seed);
    let mut context =
        CallContext { engine, client: &client, user: &user, db, now, rng: &mut rng, caching: false };
    let running = engine.scripts.begin_run(running(&script_call, args, engine.host.mono_us()));
    let (cancel, yield_now) = (AtomicBool::new(false), || engine.host.yield_now());
    let lane = LaneChecks {
        running: &running,
        cancel: &cancel,
        yield_now: &yield_now,
        began_us: running.began_us,
        busy: false,
        in_exec: false,
    };
    let placement = Placement::on_data(HeldShards::All, ScriptAccess::Final, Some(lane));
    // A run in this mode does not restart.
    let _ = attempt(&script_call, args, &mut context, &mut txn, placement, reply);
    engine.scripts.end_run(&running);
}

impl Session {
    /// EVAL, EVALSHA, FCALL and their read-only variants.
    pub(super) fn run_script(&mut self, command: ScriptCommand, args: Args<'_>, now: Now) -> Outcome {
        let caching = self.flags.caching;
        let outcome = self.try_script(command, args, now);
        // CLIENT CACHING applies to this script, also when it runs later or elsewhere.
        self.flags.caching = caching && matches!(outcome, Ok(NextStep::Detach | NextStep::ShardLocked));
        outcome
    }
    fn try_script(&mut self, command: ScriptCommand, args: Args<'_>, now: Now) -> Outcome {
        if command.by == ScriptSource::Text && args.at(1).len() > TEXT_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        let script_call = ScriptCall::of(&engine, command, args)?;
        // This thread's interpreter may not have compiled the text yet. 16 MB took 210 to 265 ms.
        if script_call.routes().starts_on_lane() || script_call.text_bytes() > TEXT_AT_ONCE_MAX {
            self.outgoing_script = Some(script_call);
            return Ok(NextStep::Detach);
        }
        let client = self.client.clone();
        self.update_info_for_denials();
        loop {
            let needs_all = script_call.routes().needs_all_shards();
            let shards = match needs_all {
                true => (0..engine.keyspace.shards()).collect(),
                false => script_call.declared(&engine, args),
            };
            let held = if needs_all { HeldShards::All } else { HeldShards::Some(&shards) };
            let Some(mut txn) = lock(&engine, &client, &shards, now) else {
                return outcome_of_locked(&engine, &shards);
            };
            txn.set_no_touch(self.flags.no_touch);
            let mut out = SPARE.take();
            let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
            let mut reply = Reply::bounded(&mut out, self.protocol, bytes_max);
            let user = self.identity.user.clone();
            let mut context = CallContext {
                engine: &engine,
                client: &client,
                user: &user,
                db: self.db,
                now,
                rng: &mut self.rng,
                caching: self.flags.caching,
            };
            let placement = Placement::on_data(held, ScriptAccess::Worker, None);
            let outcome = attempt(&script_call, args, &mut context, &mut txn, placement, &mut reply);
            match outcome {
                Attempt::Done(error) => {
                    let lookups = txn.lookups();
                    self.meter.lookups.hits += lookups.hits;
                    self.meter.lookups.misses += lookups.misses;
                    drop(txn);
                    self.take_own_messages();
                    self.reply().raw_of(&mut out);
                    SPARE.set(out);
                    if let Some(error) = error {
                        error.count(&engine.stats, self.slot(), self.last_command);
                    }
                    return Ok(NextStep::Continue);
                }
                Attempt::Restart(StopReason::NeedsAllShards) if !needs_all => {
                    script_call.routes().record_all_shards_need()
                }
                Attempt::Restart(_) => {
                    drop(txn);
                    script_call.routes().record_long_run();
                    self.outgoing_script = Some(script_call);
                    return Ok(NextStep::Detach);
                }
            }
        }
    }
}
