//! EVAL, EVALSHA, FCALL and their read-only variants: the script, its keys, and where it runs.
//!
//! A script starts on the worker and holds the shards of its declared keys, unless its last runs were long. It stays
//! there for at most half a millisecond (see [`Run`]). A longer script is undone and runs on the lane: on a view of its
//! shards while it only reads, with a long lock on them when it writes. A script that uses an undeclared key, or all
//! keys, is undone and runs with every shard viewed or held, then and in all later runs.

use super::Session;
use super::lane::LaneJob;
use super::multi::lock;
use super::own::{Kind, kind_of};
use super::run::Next;
use crate::acl::{Acl, User};
use crate::clients::Client;
use crate::scripts::functions::Function;
use crate::scripts::run::{HeldShards, Later, Mode, OnLane, Past, Run, Stop, is_out_of_memory};
use crate::scripts::{Interpreter, Known, Routes, Running, Undo, busy_text};
use crate::stats::PerCommand;
use crate::{Engine, Now};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_chain::Chain;
use strand_commands::call::LaneCall;
use strand_commands::errors;
use strand_commands::spec::CommandSpec;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, KeyHash, Lookups, Txn};
use strand_script::{Ended, Input, Limits, Script, ScriptFlags, VM_BYTES_MAX, compile_error, sha_of};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

type Outcome = Result<Next, Vec<u8>>;

thread_local! {
    /// A chain for the reply of this thread's next script. It is empty, and keeps its block.
    static SPARE: Cell<Chain> = Cell::default();
}

/// A script text that is longer than this is compiled on the lane.
const TEXT_AT_ONCE_MAX: usize = 64 * 1024;
/// Limits of a run on a worker: growth of the interpreter, and nesting of tables.
const WORKER_LIMITS: Limits = Limits { soft_bytes: 8 << 20, depth_max: 32 };
/// Limits of a run on the lane. Its threads have a larger stack.
const LANE_LIMITS: Limits = Limits { soft_bytes: VM_BYTES_MAX, depth_max: 1000 };
/// Maximum number of arguments of a command in FUNCTION STATS.
const SHOWN_ARGS_MAX: usize = 128;

/// How a command names the script that it runs, and whether that script may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptCommand {
    by: By,
    /// True when the script may write nothing.
    read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The argument is the text of a script.
    Text,
    /// The argument is the digest of a script.
    Digest,
    /// The argument is the name of a library's function.
    Function,
}

pub(super) const EVAL: ScriptCommand = ScriptCommand { by: By::Text, read_only: false };
pub(super) const EVAL_RO: ScriptCommand = ScriptCommand { by: By::Text, read_only: true };
pub(super) const EVALSHA: ScriptCommand = ScriptCommand { by: By::Digest, read_only: false };
pub(super) const EVALSHA_RO: ScriptCommand = ScriptCommand { by: By::Digest, read_only: true };
pub(super) const FCALL: ScriptCommand = ScriptCommand { by: By::Function, read_only: false };
pub(super) const FCALL_RO: ScriptCommand = ScriptCommand { by: By::Function, read_only: true };

/// True for the commands that run scripts.
pub(super) fn runs_script(spec: &CommandSpec) -> bool {
    matches!(kind_of(spec), Kind::Script(_))
}

/// The script or function that a call runs.
enum What {
    Script(Arc<Known>),
    Function(Function),
}

/// A call of EVAL or FCALL with valid arguments.
pub(super) struct Task {
    what: What,
    /// The keys are the arguments from index 3 to before this index.
    keys_end: usize,
    /// True when the command is read-only.
    read_only: bool,
}

/// The outcome of one attempt to run a script.
enum Tried {
    /// The reply is written. The value is its error code, if it is an error.
    Done(Option<Vec<u8>>),
    /// All changes were undone; the script must restart.
    Anew(Stop),
}

impl Task {
    /// Finds the script or function of the arguments.
    ///
    /// # Errors
    /// The whole text of the error reply.
    fn of(engine: &Engine, command: ScriptCommand, args: Args<'_>) -> Result<Task, Vec<u8>> {
        let (is_function, read_only) = (command.by == By::Function, command.read_only);
        let function = match is_function {
            true => Some(engine.scripts.functions.read().find(args.at(1)).ok_or("ERR Function not found")?),
            false => None,
        };
        let number = parse_int(args.at(2));
        let number = number.ok_or(if is_function {
            "ERR Bad number of keys provided"
        } else {
            errors::NOT_AN_INTEGER
        })?;
        if number > args.len() as i64 - 3 {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        if number < 0 {
            return Err("ERR Number of keys can't be negative".into());
        }
        let what = match function {
            Some(function) => What::Function(function),
            None => What::Script(script(engine, command, args.at(1))?),
        };
        let task = Task { what, keys_end: 3 + number as usize, read_only };
        let flags = task.flags();
        if read_only && !flags.compatible && !flags.no_writes {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        Ok(task)
    }
    fn flags(&self) -> ScriptFlags {
        match &self.what {
            What::Script(known) => known.script.flags,
            What::Function(function) => function.info.flags,
        }
    }
    fn routes(&self) -> &Routes {
        match &self.what {
            What::Script(known) => &known.routes,
            What::Function(function) => &function.routes,
        }
    }
    fn name(&self) -> String {
        match &self.what {
            What::Script(known) => known.script.sha.clone(),
            What::Function(function) => String::from_utf8_lossy(&function.info.name).into_owned(),
        }
    }
    fn is_function(&self) -> bool {
        matches!(self.what, What::Function(_))
    }
    /// The shards of the declared keys, ascending.
    fn declared(&self, engine: &Engine, args: Args<'_>) -> SmallVec<[usize; 8]> {
        let keyspace = &engine.keyspace;
        let hashes: SmallVec<[KeyHash; 8]> =
            (3..self.keys_end).map(|i| keyspace.key(args.at(i)).hash).collect();
        keyspace.shards_of(&hashes)
    }
    /// The error when the script may not start.
    fn refusal(&self, out_of_memory: bool) -> Option<&'static str> {
        let flags = self.flags();
        let refused =
            out_of_memory && !flags.compatible && !flags.allow_oom && !flags.no_writes && !self.read_only;
        refused.then_some(
            "OOM allow-oom flag is not set on the script,  can not run it when used memory > 'maxmemory'",
        )
    }
    /// Runs the script with `run`. At the end writes the reply to `reply`.
    fn run(
        &self,
        vm: &mut Interpreter,
        args: Args<'_>,
        limits: Limits,
        run: &mut Run<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> Ended {
        if let Some(text) = self.refusal(run.out_of_memory) {
            reply.error(text);
            return Ended::Done;
        }
        let keys = (3..self.keys_end).map(|i| args.at(i));
        let rest = (self.keys_end..args.len()).map(|i| args.at(i));
        let input = Input { keys, args: rest, limits };
        match &self.what {
            What::Script(known) => vm.vm.run(&known.script, input, run, reply),
            What::Function(function) => vm.vm.call(&function.library, &function.info.name, input, run, reply),
        }
    }
}

/// The script of EVAL or EVALSHA.
fn script(engine: &Engine, command: ScriptCommand, text: &[u8]) -> Result<Arc<Known>, Vec<u8>> {
    if command.by == By::Digest {
        let known = if text.len() == 40 { engine.scripts.find(text) } else { None };
        return known.ok_or_else(|| b"NOSCRIPT No matching script. Please use EVAL.".to_vec());
    }
    load(engine, text, false)
}

/// Reads, compiles and keeps a script.
pub(super) fn load(engine: &Engine, text: &[u8], by_load: bool) -> Result<Arc<Known>, Vec<u8>> {
    if !by_load && let Some(known) = engine.scripts.find(sha_of(text).as_bytes()) {
        return Ok(known);
    }
    let script = Script::new(text).map_err(|text| [b"ERR ", &text[..]].concat())?;
    let mut vm = engine.scripts.take_interpreter()?;
    let compiled = vm.vm.compile(&script);
    engine.scripts.give_interpreter(vm);
    compiled.map_err(|text| compile_error(&text))?;
    engine.scripts.keep(script, by_load)
}

/// What an attempt needs besides its shards.
pub(super) struct Caller<'c> {
    pub(super) engine: &'c Engine,
    pub(super) client: &'c Client,
    pub(super) user: &'c Arc<User>,
    pub(super) db: usize,
    pub(super) now: Now,
    pub(super) rng: &'c mut fastrand::Rng,
    /// True when CLIENT CACHING came before the command.
    pub(super) caching: bool,
}

/// Where a try runs: its shards and its mode.
struct Footing<'p> {
    held: HeldShards<'p>,
    mode: Mode,
    lane: Option<OnLane<'p>>,
    past: Option<Past<'p>>,
}

/// Tries once to run the script, on `txn`.
fn attempt(
    task: &Task,
    args: Args<'_>,
    caller: &mut Caller<'_>,
    txn: &mut Txn<'_>,
    footing: Footing<'_>,
    reply: &mut Reply<'_>,
) -> Tried {
    let Footing { held, mode, lane, past } = footing;
    let engine = caller.engine;
    let mut vm = match engine.scripts.take_interpreter() {
        Ok(vm) => vm,
        Err(text) => {
            reply.error_bytes(&text);
            return Tried::Done(Some(b"ERR".to_vec()));
        }
    };
    let mut run = Run {
        engine,
        client: caller.client,
        user: caller.user,
        txn,
        held,
        mode,
        db: caller.db,
        now: caller.now,
        rng: &mut *caller.rng,
        read_only: task.read_only || task.flags().no_writes,
        flags: task.flags(),
        // As in redis-server, commands from a file ignore the memory limit.
        out_of_memory: !engine.persist.is_loading() && is_out_of_memory(engine, caller.client, caller.now),
        lane,
        past,
        copied: Vec::new(),
        undo: Undo::default(),
        wrote: false,
        steps: 0,
        elements: 0,
        stop: None,
        caching: caller.caching,
        later: Vec::new(),
    };
    let mark = run.txn.effects_mark();
    if mode != Mode::Final {
        run.txn.keep_events();
    }
    let limits = if matches!(mode, Mode::Worker | Mode::Bounded) { WORKER_LIMITS } else { LANE_LIMITS };
    let ended = task.run(&mut vm, args, limits, &mut run, reply);
    let Run { undo, stop, txn, later, .. } = run;
    engine.scripts.give_interpreter(vm);
    let Ended::Stopped(footing) = ended else {
        Later::settle(&later, engine, caller.client, txn);
        return Tried::Done(reply.error_code().map(<[u8]>::to_vec));
    };
    let stop = stop.unwrap_or(Stop::Overrun);
    let text = match (stop, mode) {
        (Stop::Killed, _) => {
            let word = if task.is_function() { "FUNCTION" } else { "SCRIPT" };
            format!("ERR Script killed by user with {word} KILL.")
        }
        (Stop::Gone, _) => "ERR the client is gone".into(),
        (_, Mode::Bounded) => {
            undo.roll_back(txn);
            txn.forget_effects_since(mark);
            txn.forget_events();
            "ERR the script runs for too long in a transaction with commands about the connection".into()
        }
        (_, Mode::Final) => "ERR the script needs more than it may have".into(),
        (stop, _) => {
            undo.roll_back(txn);
            txn.forget_effects_since(mark);
            txn.forget_events();
            return Tried::Anew(stop);
        }
    };
    // The commands that have run stay in effect.
    if mode != Mode::Bounded {
        Later::settle(&later, engine, caller.client, txn);
    }
    let footing =
        footing.map(|footing| format!(" script: {}, on {footing}.", task.name())).unwrap_or_default();
    reply.error(&(text + &footing));
    Tried::Done(Some(b"ERR".to_vec()))
}

/// Runs a script as a part of EXEC, which holds every shard.
pub(super) fn in_transaction(
    command: ScriptCommand,
    args: Args<'_>,
    mut caller: Caller<'_>,
    txn: &mut Txn<'_>,
    job: Option<(&LaneCall<'_>, u64)>,
    reply: &mut Reply<'_>,
) -> Option<Vec<u8>> {
    let task = match Task::of(caller.engine, command, args) {
        Ok(task) => task,
        Err(text) => {
            reply.error_bytes(&text);
            return reply.error_code().map(<[u8]>::to_vec);
        }
    };
    let tried = match job {
        None => {
            let footing = Footing { held: HeldShards::All, mode: Mode::Bounded, lane: None, past: None };
            attempt(&task, args, &mut caller, txn, footing, reply)
        }
        Some((call, began_us)) => {
            let engine = caller.engine;
            let running = engine.scripts.begins(running(&task, args, began_us));
            let lane =
                OnLane { running: &running, cancel: call.cancel, yield_now: call.yield_now, busy: false };
            let footing = Footing { held: HeldShards::All, mode: Mode::Final, lane: Some(lane), past: None };
            let tried = attempt(&task, args, &mut caller, txn, footing, reply);
            engine.scripts.ended(&running);
            tried
        }
    };
    match tried {
        Tried::Done(code) => code,
        Tried::Anew(_) => unreachable!("neither of these modes begins anew"),
    }
}

fn running(task: &Task, args: Args<'_>, began_us: u64) -> Running {
    Running {
        name: task.name(),
        command: args.iter().take(SHOWN_ARGS_MAX).map(<[u8]>::to_vec).collect(),
        is_function: task.is_function(),
        began_us,
        killed: AtomicBool::new(false),
        wrote: AtomicBool::new(false),
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
    let task = match Task::of(engine, command, args) {
        Ok(task) => task,
        Err(text) => return reply.error_bytes(&text),
    };
    let (client, user) = (Client::of_a_file(now), Acl::unlimited());
    let mut txn = engine.keyspace.lock_all(now.unix_ms());
    txn.set_replaying();
    let mut rng = fastrand::Rng::with_seed(engine.facts.run_id_seed);
    let mut caller = Caller { engine, client: &client, user: &user, db, now, rng: &mut rng, caching: false };
    let running = engine.scripts.begins(running(&task, args, engine.host.mono_us()));
    let (cancel, yield_now) = (AtomicBool::new(false), || engine.host.yield_now());
    let lane = OnLane { running: &running, cancel: &cancel, yield_now: &yield_now, busy: false };
    let footing = Footing { held: HeldShards::All, mode: Mode::Final, lane: Some(lane), past: None };
    // A run in this mode does not restart.
    let _ = attempt(&task, args, &mut caller, &mut txn, footing, reply);
    engine.scripts.ended(&running);
}

/// Runs a script on a helper thread.
pub(super) fn run_on_lane(
    engine: &Engine,
    call: &mut LaneCall<'_>,
    job: &LaneJob,
    user: &Arc<User>,
    now: Now,
) {
    let Kind::Script(command) = kind_of(job.spec) else { return };
    let args = call.args;
    let found;
    let task = match &job.script {
        Some(task) => task,
        None => match Task::of(engine, command, args) {
            Ok(task) => {
                found = task;
                &found
            }
            Err(text) => return call.reply.error_bytes(&text),
        },
    };
    let keyspace = call.keyspace;
    let all: Vec<usize> = (0..keyspace.shards()).collect();
    let declared = task.declared(engine, args);
    let running = engine.scripts.begins(running(task, args, engine.host.mono_us()));
    let mut rng = call.rng.fork();
    let mut out = Chain::new();
    // A client that keeps copies of keys would miss what is written after the moment of a view.
    let may_view = !job.client.tracked.keeps_copies(job.caching) && !task.routes().holds_shards();
    let mut mode = if may_view { Mode::Past } else { Mode::Lane };
    loop {
        let needs_all = task.routes().needs_all();
        if mode == Mode::Lane && needs_all {
            mode = Mode::Final;
        }
        let (held, shards) = match mode == Mode::Final || needs_all {
            true => (HeldShards::All, &all[..]),
            false => (HeldShards::Some(&declared), &declared[..]),
        };
        let footing = Footing {
            held,
            mode,
            lane: Some(OnLane {
                running: &running,
                cancel: call.cancel,
                yield_now: call.yield_now,
                busy: false,
            }),
            past: None,
        };
        let mut caller = Caller {
            engine,
            client: &job.client,
            user,
            db: call.db,
            now,
            rng: &mut rng,
            caching: job.caching,
        };
        let mut reply = Reply::bounded(&mut out, job.protocol, call.reply.room_left());
        let (tried, lookups) = match mode {
            Mode::Past => try_on_view(task, &mut caller, call, shards, footing, &mut reply),
            _ => {
                let mut txn = call.hold_shards(shards);
                txn.set_no_touch(call.no_touch);
                (attempt(task, args, &mut caller, &mut txn, footing, &mut reply), txn.lookups())
            }
        };
        call.lookups = lookups;
        match tried {
            Tried::Done(code) => {
                call.reply.raw_reply(out, code.as_deref());
                break;
            }
            Tried::Anew(stop) => {
                running.wrote.store(false, Relaxed);
                out.clear();
                mode = after(mode, stop, task.routes());
            }
        }
    }
    engine.scripts.ended(&running);
}

/// How a run on the lane restarts.
fn after(mode: Mode, stop: Stop, routes: &Routes) -> Mode {
    if stop == Stop::NeedsAll {
        routes.needed_all();
    }
    match (mode, stop) {
        (Mode::Past, Stop::NeedsAll) => Mode::Past,
        (Mode::Past, _) => {
            if stop == Stop::NeedsShards {
                routes.needed_shards();
            }
            Mode::Lane
        }
        _ => Mode::Final,
    }
}

/// Tries once to run the script on a view of `shards`, which are held only for the moment of the view.
fn try_on_view(
    task: &Task,
    caller: &mut Caller<'_>,
    call: &LaneCall<'_>,
    shards: &[usize],
    footing: Footing<'_>,
    reply: &mut Reply<'_>,
) -> (Tried, Lookups) {
    let view = call.lock_shards(shards).view_of_held(call.db);
    let read = |key: &Key<'_>| {
        let mut txn = call.lock(&[key.hash]);
        txn.set_no_touch(call.no_touch);
        let record = view.read(&mut txn, key);
        if view.is_lost(&mut txn, key) { Err(Stop::Overrun) } else { Ok(record) }
    };
    let copies = call.keyspace.aside(std::array::from_fn(|_| caller.rng.u64(..)));
    let mut txn = copies.lock_shard(0, call.now_ms);
    // The run holds nothing, so no client waits for it and it need not be marked busy.
    let lane = footing.lane.map(|lane| OnLane { busy: true, ..lane });
    let past = Some(Past { db: call.db, read: &read });
    let tried = attempt(task, call.args, caller, &mut txn, Footing { past, lane, ..footing }, reply);
    (tried, txn.lookups())
}

impl Session {
    /// EVAL, EVALSHA, FCALL and their read-only variants.
    pub(super) fn run_script(&mut self, command: ScriptCommand, args: Args<'_>, now: Now) -> Outcome {
        let caching = self.flags.caching;
        let outcome = self.try_script(command, args, now);
        // CLIENT CACHING applies to this script, also when it runs later or elsewhere.
        self.flags.caching = caching && matches!(outcome, Ok(Next::Detach | Next::Taken));
        outcome
    }
    fn try_script(&mut self, command: ScriptCommand, args: Args<'_>, now: Now) -> Outcome {
        if command.by == By::Text && args.at(1).len() > TEXT_AT_ONCE_MAX {
            return Ok(Next::Detach);
        }
        let engine = self.engine.clone();
        let task = Task::of(&engine, command, args)?;
        if task.routes().takes_lane() {
            self.leaving_script = Some(task);
            return Ok(Next::Detach);
        }
        let client = self.client.clone();
        loop {
            let needs_all = task.routes().needs_all();
            let shards = match needs_all {
                true => (0..engine.keyspace.shards()).collect(),
                false => task.declared(&engine, args),
            };
            let held = if needs_all { HeldShards::All } else { HeldShards::Some(&shards) };
            let Some(mut txn) = lock(&engine, &client, &shards, now) else {
                return match engine.long_locks.is_busy(Some(&shards)) {
                    Some(is_function) => Err(busy_text(is_function).into()),
                    None => Ok(Next::Taken),
                };
            };
            txn.set_no_touch(self.flags.no_touch);
            let mut out = SPARE.take();
            let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
            let mut reply = Reply::bounded(&mut out, self.protocol, bytes_max);
            let user = self.identity.user.clone();
            let mut caller = Caller {
                engine: &engine,
                client: &client,
                user: &user,
                db: self.db,
                now,
                rng: &mut self.rng,
                caching: self.flags.caching,
            };
            let footing = Footing { held, mode: Mode::Worker, lane: None, past: None };
            let tried = attempt(&task, args, &mut caller, &mut txn, footing, &mut reply);
            match tried {
                Tried::Done(code) => {
                    let lookups = txn.lookups();
                    self.meter.lookups.hits += lookups.hits;
                    self.meter.lookups.misses += lookups.misses;
                    drop(txn);
                    self.take_own_post();
                    self.reply().raw_of(&mut out);
                    SPARE.set(out);
                    if let Some(code) = code {
                        self.count_error(PerCommand::Failed, &code);
                    }
                    return Ok(Next::Go);
                }
                Tried::Anew(Stop::NeedsAll) if !needs_all => task.routes().needed_all(),
                Tried::Anew(_) => {
                    drop(txn);
                    task.routes().was_long();
                    self.leaving_script = Some(task);
                    return Ok(Next::Detach);
                }
            }
        }
    }
}
