//! The slow lane: a [`LaneJob`] takes a command to a helper thread, a [`LaneDone`] brings back its result.

use super::blocked::TOO_MANY_KEYS;
use super::gates::NO_AUTH;
use super::multi::abort_text;
use super::permit::DeniedCommand;
use super::phases::{Parked, Waits};
use super::script;
use super::session_command::{CommandKind, DetachedContext, SessionCommand, kind_of};
use super::transaction::Transaction;
use crate::acl::{DenialContext, Rights, User};
use crate::clients::Client;
use crate::headroom::Reservation;
use crate::long_locks::LongLocksOf;
use crate::memory::{Charge, Purpose};
use crate::monitors::Caller;
use crate::scripts::busy_text;
use crate::{Engine, Now};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use strand_chain::Chain;
use strand_commands::call::{KeyRights, LaneCall, RunsOn, ServiceOutcome};
use strand_commands::cost::{self, Cost, LONG_ELEMENTS};
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_commands::{glob, long, run};
use strand_keyspace::Lookups;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// What a job on the lane and its session share.
pub(super) struct JobHandle {
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) input: Mutex<JobInput>,
}

/// What the session gives to the job.
pub(super) struct JobInput {
    /// The arguments and their charge, until the job begins.
    pub(super) args: Option<(Argv, Charge)>,
    /// True when the session ended before the job began.
    pub(super) is_abandoned: bool,
}

/// A command that runs on a helper thread while its session waits.
pub struct LaneJob {
    pub(super) engine: Arc<Engine>,
    pub(super) handle: Arc<JobHandle>,
    pub(super) spec: &'static CommandSpec,
    pub(super) db: usize,
    pub(super) protocol: Protocol,
    pub(super) rng_seed: u64,
    pub(super) no_touch: bool,
    pub(super) reply_bytes_max: usize,
    pub(super) client: Arc<Client>,
    /// The user when the command arrived; from the begin of the job on, the user of that moment.
    pub(super) user: Arc<User>,
    /// The rights check that the job makes first.
    pub(super) check: LaneCheck,
    pub(super) runs_on: RunsOn,
    /// True when the command matches a pattern that may take long.
    pub(super) hard_pattern: bool,
    /// True when CLIENT CACHING came before the command.
    pub(super) caching: bool,
    /// The transaction that EXEC runs.
    pub(super) transaction: Option<Transaction>,
    /// The script that EVAL or FCALL runs, if the session found it.
    pub(super) script: Option<script::ScriptCall>,
    /// When the session sent the job to the lane, in nanoseconds on the clock of [`Now`], and its waits before that.
    pub(super) sent_ns: u64,
    pub(super) parked: Option<Box<Parked>>,
    /// Memory reserved for the job.
    pub(super) reservation: Option<Reservation>,
    /// Counts the job since it was sent, if it may write and is not heavy.
    pub(super) write: Option<LaneWrite>,
}

/// A rights check that is too long for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneCheck {
    /// The session has checked the rights. The job checks them anew if the user has changed since.
    IsDone,
    /// The job checks the rights, then runs the command.
    ThenRun,
    /// The job only checks the rights. Then the session continues with the command: it runs the command itself, or
    /// queues it.
    ThenReturn(DenialContext),
}

/// The error of a command that the end of the server has stopped.
pub(super) const IS_ENDING: &str = "ERR the server is shutting down";
/// Time between two looks whether writes may begin, or have ended.
const LOOK_EVERY_US: u64 = 1_000;

/// Counts a job that may write, so that a server that ends, replaces its data or hands its role over can wait for the
/// writes that were admitted before ([`Engine::await_begun_writes`]).
///
/// A short job counts from the moment at which the session sends the job. A heavy job may wait for hours until it begins,
/// and a script may read for hours. So a heavy job counts from its beginning, and a script while it may write
/// ([`script::run_on_lane`]). While no write may begin, both wait at that point.
pub(super) struct LaneWrite(Arc<Engine>);

impl LaneWrite {
    fn begin(engine: &Arc<Engine>) -> LaneWrite {
        engine.lane_writes.fetch_add(1, SeqCst);
        LaneWrite(engine.clone())
    }
    /// Begins to count a job that is about to be sent, if the job may write and is not heavy.
    pub(super) fn of_sent(job: &LaneJob) -> Option<LaneWrite> {
        (job.may_write() && !job.is_heavy()).then(|| LaneWrite::begin(&job.engine))
    }
    /// Begins to count a heavy job or a script. Waits while no write may begin, because the server ends, replaces its
    /// data or hands its role over. `None`: the job must not write, because the server has ended or `may_wait` is false.
    pub(super) fn of_begun(engine: &Arc<Engine>, may_wait: impl Fn() -> bool) -> Option<LaneWrite> {
        loop {
            let write = LaneWrite::begin(engine);
            if !engine.persist.holds_writes() && !engine.is_failing_over() {
                return Some(write);
            }
            drop(write);
            if !may_wait() || engine.scripts.stopping.load(Relaxed) {
                return None;
            }
            engine.host.nap_us(LOOK_EVERY_US);
        }
    }
}

impl Drop for LaneWrite {
    fn drop(&mut self) {
        self.0.lane_writes.fetch_sub(1, SeqCst);
    }
}

impl Engine {
    /// Waits for the workers' turns and the jobs that may write ([`LaneWrite`]). Call this when no further write can begin.
    /// False: `goes_on` was false before.
    pub(crate) fn await_begun_writes(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        self.await_turns();
        while self.lane_writes.load(SeqCst) > 0 {
            if !goes_on() {
                return false;
            }
            self.host.nap_us(LOOK_EVERY_US);
        }
        true
    }
}

/// True when the command matches keys or elements against a pattern that may take long.
pub(super) fn is_hard_pattern(spec: &CommandSpec, args: Args<'_>) -> bool {
    matches!(spec.cost(), Cost::Keyspace | Cost::CountOption(_)) && args.skip(1).iter().any(glob::is_hard)
}

/// True when a command runs although its client has gone. A client may send a command and disconnect; on a worker the
/// command would have run before the disconnect.
pub(super) fn runs_without_client(spec: &CommandSpec) -> bool {
    let is_exec = kind_of(spec) == CommandKind::Exec;
    is_exec
        || (script::runs_script(spec) && !spec.flags.has(Flags::READONLY))
        || spec.flags.has(Flags::WRITE)
        || spec.flags.has(Flags::ADMIN)
}

impl LaneJob {
    /// Runs the job; may take long. Between slices the job calls `yield_now`, because a helper thread may share its
    /// processor with a worker. The caller must catch a panic, so that the helper thread survives, and give the
    /// session [`LaneDone::panicked`].
    pub fn run(self: Box<Self>, now: Now, yield_now: &dyn Fn()) -> LaneDone {
        let mut job = self;
        loop {
            match job.try_run(now, yield_now) {
                Ok(done) => return done,
                Err(hard) => job = hard,
            }
        }
    }
    /// True when the job's command may write. A script counts by itself: see [`LaneWrite`].
    fn may_write(&self) -> bool {
        let flags =
            self.transaction.as_ref().map_or(self.spec.flags, |t| Flags(self.spec.flags.0 | t.queue.flags));
        // An EXEC with scripts may write without a queued command that writes.
        let runs_scripts = self.transaction.is_some() && flags.has(Flags::MAY_REPLICATE);
        let only_checks = matches!(self.check, LaneCheck::ThenReturn(_));
        !only_checks && (flags.has(Flags::WRITE) || runs_scripts)
    }
    /// True while the job may wait for its shards: a client waits for the reply, or the command needs no client.
    pub(super) fn may_wait(&self) -> bool {
        runs_without_client(self.spec) || self.has_client()
    }
    /// True while the session waits for the job.
    pub(super) fn has_client(&self) -> bool {
        !self.handle.cancel.load(Relaxed)
    }
    /// Waits for the long locks on the shards that the job needs, so that the job then runs with the rights and the time
    /// of that moment: another client may have taken rights away meanwhile. Returns `Some` when a long-running script
    /// holds the shards; true for a function. The job also waits for a script that may become long, and then gets the
    /// BUSY error, too. A job that may need any shard waits only for scripts.
    fn await_shards(&self, args: Args<'_>) -> Option<bool> {
        let engine = &self.engine;
        let wait = |shards| engine.long_locks.wait_or_find_busy(shards, || self.may_wait());
        let wait_for_scripts = || engine.scripts.is_any_running().then(|| wait(None)).flatten();
        match (&self.transaction, self.spec.exec) {
            (Some(transaction), _) if transaction.has_run() => None,
            (Some(transaction), _) => wait(Some(transaction.shards())),
            _ if cost::locks_all(self.spec) => wait(None),
            _ if self.spec.cost() == Cost::Keyspace => wait_for_scripts(),
            _ if cost::may_read_other_keys(self.spec, args) => engine.long_locks.is_busy(None),
            (None, Exec::Session(held)) if (SessionCommand::of(held).locks_shards)(args) => wait(None),
            // A search reads the hashes at any keys.
            (None, Exec::Service(_)) if self.spec.keys.is_empty() => wait_for_scripts(),
            (None, exec)
                if script::runs_script(self.spec)
                    || exec.on_keys().is_some()
                    || matches!(exec, Exec::Heavy(_) | Exec::Service(_) | Exec::ServiceOnText(..)) =>
            {
                let keys = run::keys_of(self.spec, args, &engine.keyspace);
                let shards: Vec<usize> = keys.iter().map(|key| engine.keyspace.shard_of(key.hash)).collect();
                wait(Some(&shards))
            }
            _ => None,
        }
    }
    /// Does what [`LaneJob::run`] does, but stops when the job turns out to be hard and is not yet on the hard lane.
    ///
    /// # Errors
    /// The job, for the hard lane.
    pub fn try_run(mut self: Box<Self>, now: Now, yield_now: &dyn Fn()) -> Result<LaneDone, Box<LaneJob>> {
        let mut out = Chain::new();
        let JobInput { args, is_abandoned } =
            std::mem::replace(&mut *self.handle.input.lock(), JobInput { args: None, is_abandoned: false });
        if is_abandoned {
            self.engine.clients.uncount_orphaned_command();
        }
        // Arguments are missing when the session ended before the job began. Then no client waits for the reply.
        let Some((argv, charge)) = args else {
            return Ok(LaneDone::without_command(out));
        };
        let began_ns = self.engine.host.mono_ns();
        let waited = self.record_waits(began_ns);
        let args = argv.args();
        // The time and the rights of the moment after the wait, not of the moment before it.
        let (busy, now_ms) = match self.engine.long_locks.any() {
            true => (self.await_shards(args), self.engine.time_since(now.unix_ms())),
            false => (None, now.unix_ms()),
        };
        let user = self.engine.acl.current(&self.user);
        let is_same_user = user.as_ref().is_some_and(|user| Arc::ptr_eq(user, &self.user));
        if let Some(user) = &user {
            self.user = user.clone();
        }
        let LaneJob { engine, handle, spec, runs_on, .. } = &*self;
        let (spec, runs_on) = (*spec, *runs_on);
        let mut reply = Reply::bounded(&mut out, self.protocol, self.reply_bytes_max);
        let long_locks = LongLocksOf { long_locks: &engine.long_locks, name: || self.title() };
        let rng = &mut fastrand::Rng::with_seed(self.rng_seed);
        let rights = user.as_ref().and_then(|user| Rights::of(user, spec, args));
        let mut call = LaneCall {
            spec: Some(spec),
            args,
            client: self.client.id,
            runs_on,
            db: self.db,
            now_ms,
            keyspace: &engine.keyspace,
            long_locks: &long_locks,
            reply: &mut reply,
            rng,
            cancel: &handle.cancel,
            no_touch: self.no_touch,
            rights: rights.as_ref().map(|r| r as &dyn KeyRights),
            lookups: Lookups::default(),
            error_is_counted: false,
            waits: false,
            yield_now,
        };
        let has_run = self.transaction.as_ref().is_some_and(Transaction::has_run);
        let flags =
            self.transaction.as_ref().map_or(spec.flags, |transaction| Flags(transaction.queue.flags));
        let writes = flags.has(Flags::WRITE);
        // The data of a transaction that has run is written already.
        let begun = (self.write.is_none() && self.may_write() && !has_run)
            .then(|| LaneWrite::of_begun(&self.engine, || self.may_wait()));
        let refusal = match busy {
            Some(is_function) => Some(busy_text(is_function).into()),
            None if matches!(begun, Some(None)) => Some(IS_ENDING.into()),
            None if writes && !has_run => engine.persist.write_refusal(),
            None => None,
        };
        let rights_check = match &user {
            None if has_run => RightsCheck::Unchanged,
            None => {
                // The user was removed and the session ends. Only an administrator's query still waits for a reply.
                call.reply.error(NO_AUTH);
                RightsCheck::Denied
            }
            Some(_) if self.check == LaneCheck::IsDone && (is_same_user || has_run) => RightsCheck::Unchanged,
            Some(user) => {
                let mut may_continue = || {
                    yield_now();
                    self.may_wait()
                };
                match user.check(spec, args, &mut may_continue) {
                    Ok(()) => match self.check {
                        LaneCheck::IsDone => RightsCheck::Unchanged,
                        LaneCheck::ThenRun => RightsCheck::Granted,
                        LaneCheck::ThenReturn(_) => RightsCheck::GrantedToSession,
                    },
                    Err(denied) => {
                        let context = match self.check {
                            LaneCheck::ThenReturn(context) => context,
                            LaneCheck::IsDone | LaneCheck::ThenRun => DenialContext::Toplevel,
                        };
                        let command = DeniedCommand { spec, args, denied, context };
                        call.reply.error_bytes(&engine.deny(&self.client, user, command, now));
                        RightsCheck::Denied
                    }
                }
            }
        };
        let runs = !matches!(rights_check, RightsCheck::Denied | RightsCheck::GrantedToSession);
        if runs && (rights_check == RightsCheck::Granted || args.len() > LONG_ELEMENTS) {
            engine.remember(&self.client, self.caching, spec, args);
        }
        if rights_check == RightsCheck::Granted && engine.monitors.any() {
            engine.send_to_monitors(spec, args, self.db, Caller::Client(&self.client), now);
        }
        let (mut served, mut db) = (ServiceOutcome::Done, self.db);
        match spec.exec {
            _ if !runs => {}
            _ if refusal.is_some() => {
                let text = refusal.as_deref().unwrap_or_default();
                let is_exec = kind_of(spec) == CommandKind::Exec;
                call.reply.error_bytes(&if is_exec { abort_text(text.as_bytes()) } else { text.into() });
            }
            Exec::Session(_) if kind_of(spec) == CommandKind::Exec => {
                let transaction = self.transaction.as_ref().expect("a job of EXEC has its transaction");
                db = transaction.run_on_lane(engine, &mut call, &self, now);
                if engine.monitors.any() && !transaction.has_run() {
                    engine.send_to_monitors(spec, args, db, Caller::Client(&self.client), now);
                }
            }
            Exec::Walk(run) | Exec::Heavy(run) => run(&mut call),
            Exec::Service(service) | Exec::ServiceOnText(service, _) => {
                served = engine.host.run_service(service, &mut call);
            }
            Exec::Session(_) if script::runs_script(spec) => {
                let user = user.as_ref().expect("the user exists: the rights check did not deny it");
                script::run_on_lane(engine, &mut call, &self, user, now);
            }
            Exec::Session(command) => {
                SessionCommand::of(command).run_detached(
                    engine,
                    args,
                    DetachedContext { db: self.db, now, is_local: self.client.peer.local, in_exec: false },
                    call.reply,
                );
            }
            Exec::Inline(_) | Exec::Estimated(..) => long::run(spec, &mut call),
            Exec::Container => unreachable!("a container has no job of its own"),
        }
        if served != ServiceOutcome::Done && runs_on != RunsOn::Hard && self.may_wait() {
            handle.input.lock().args = Some((argv, charge));
            self.runs_on = RunsOn::Hard;
            return Err(self);
        }
        let (mut error, lookups) = (call.reply.error_code().map(<[u8]>::to_vec), call.lookups);
        let (is_cut, error_is_counted) = (call.reply.exceeds_limit(), call.error_is_counted);
        let call_bytes = argv.heap_bytes();
        let mut must_block = call.waits && error.is_none();
        // The session tries the command again, as after a wait.
        let returns = rights_check == RightsCheck::GrantedToSession;
        must_block |= returns;
        // Refuse to wait: a later try on the worker would go back to the lane forever, or block the worker.
        if must_block && !returns && args.len() > LONG_ELEMENTS {
            out.clear();
            let mut reply = Reply::new(&mut out, self.protocol);
            reply.error(TOO_MANY_KEYS);
            error = reply.error_code().map(<[u8]>::to_vec);
            must_block = false;
        }
        if rights_check != RightsCheck::Denied && !must_block {
            let transaction = self.transaction.as_ref();
            let spent_ns = transaction.map_or(0, |transaction| transaction.spent_ns.get());
            let took_ns = spent_ns + engine.host.mono_ns().saturating_sub(began_ns);
            engine.note_waits(&self.client, spec, args, now, &waited);
            match transaction.filter(|transaction| transaction.has_run()) {
                // The lap is noted when nothing is left.
                Some(transaction) => transaction.spent_ns.set(took_ns),
                None => {
                    engine.sample_long(&self.client, spec, args, self.db, took_ns, call_bytes);
                    engine.note_waited_lap(&self.client, spec, args, now, took_ns, waited);
                }
            }
        }
        // Free memory now, because a long command frees much memory and the next tick is too late.
        engine.reclaim();
        drop(charge);
        // Large arguments are freed here, not on the worker.
        let mut argv = argv;
        let is_left = self.transaction.as_ref().is_some_and(Transaction::has_run);
        if !must_block && !is_left {
            argv.clear();
        }
        let bytes = argv.heap_bytes() + out.heap_bytes();
        let charge = Some(Charge::new(&engine.memory, Purpose::Jobs, bytes as u64));
        let selected_db = (db != self.db).then_some(db);
        let transaction = self.transaction.take_if(|_| is_left);
        Ok(LaneDone {
            argv,
            out,
            lookups,
            error,
            error_is_counted,
            is_cut,
            must_block,
            rights_check,
            selected_db,
            transaction,
            charge,
        })
    }
    /// The waits before the job began. Counts the time in the queue.
    fn record_waits(&self, began_ns: u64) -> Waits {
        let queued_ns = began_ns.saturating_sub(self.sent_ns);
        self.engine.stats.queued.add(0, self.engine.stats.ids.of(self.spec), queued_ns, 1);
        let sent = Now { mono_us: self.sent_ns / 1000, ..Now::default() };
        let waits = Waits::of(self.parked.as_deref(), sent);
        if waits.reason.is_some() {
            self.engine.note_parked(self.engine.stats.ids.of(self.spec), &waits);
        }
        Waits { queued_us: queued_ns / 1000, ..waits }
    }
    /// The job's name, for clients that wait for its shards.
    fn title(&self) -> String {
        format!("{} of client {} ({})", self.spec.name, self.client.id, self.client.peer.addr)
    }
    /// The flag that cancels the job. The session sets the flag when the session is dropped.
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.handle.cancel.clone()
    }
    /// True when the job may take seconds: a command with its own budget, or a check of many long keys. Other jobs
    /// should not queue behind it.
    pub fn is_heavy(&self) -> bool {
        self.check != LaneCheck::IsDone
            || self.hard_pattern
            || script::runs_script(self.spec)
            || matches!(self.spec.cost(), Cost::Budget | Cost::Text(_))
    }
    /// True when the job is known to be hard. Only other hard jobs should queue behind it.
    pub fn is_hard(&self) -> bool {
        self.runs_on == RunsOn::Hard
    }
    /// The job's owner: the user's number, and the client's address without the port.
    pub fn owner(&self) -> (u64, &str) {
        let address = self.client.peer.addr.as_str();
        (self.user.id(), address.rsplit_once(':').map_or(address, |(host, _port)| host))
    }
    /// The command's name, for logs.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }
}

/// What the check of rights has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RightsCheck {
    /// The rights were checked before and have not changed.
    Unchanged,
    /// The job checked the rights, and the user has them. The session has not counted the call yet.
    Granted,
    /// The job has only checked the rights, and the user has them. The session continues with the command.
    GrantedToSession,
    /// The user may not run the command.
    Denied,
}

/// The result of a [`LaneJob`].
pub struct LaneDone {
    pub(super) argv: Argv,
    pub(super) out: Chain,
    pub(super) lookups: Lookups,
    pub(super) error: Option<Vec<u8>>,
    /// True when the error is already in the statistics.
    pub(super) error_is_counted: bool,
    /// True when the reply is cut: it exceeded the client's output limit at the start of the job.
    pub(super) is_cut: bool,
    /// True when the job is a blocking command that found nothing.
    pub(super) must_block: bool,
    pub(super) rights_check: RightsCheck,
    /// The client's new database, when a transaction has selected one.
    pub(super) selected_db: Option<usize>,
    /// The transaction, when the session runs what is left of it.
    pub(super) transaction: Option<Transaction>,
    /// Charge for the arguments and the reply, until the session takes them.
    pub(super) charge: Option<Charge>,
}

impl LaneDone {
    /// The result of a job that panicked: the client gets an error.
    pub fn panicked() -> LaneDone {
        let mut out = Chain::new();
        Reply::new(&mut out, Protocol::Resp2).error("ERR the command failed inside the server, see its log");
        LaneDone { error: Some(b"ERR".to_vec()), ..LaneDone::without_command(out) }
    }
    /// The result of a job that ran no command.
    fn without_command(out: Chain) -> LaneDone {
        LaneDone {
            argv: Argv::new(),
            out,
            lookups: Lookups::default(),
            error: None,
            error_is_counted: false,
            is_cut: false,
            must_block: false,
            rights_check: RightsCheck::Unchanged,
            selected_db: None,
            transaction: None,
            charge: None,
        }
    }
    /// Number of bytes of the job's reply.
    pub fn reply_bytes(&self) -> usize {
        self.out.len()
    }
}
