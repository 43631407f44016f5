//! A script on a helper thread: on a view of its shards while it only reads, on a draft, or with its shards locked.

use super::draft::attempt_on_draft;
use super::{Attempt, CallContext, KILLED, Placement, ScriptCall, attempt, gone_text, running};
use crate::acl::User;
use crate::scripts::copies::{Copies, Originals};
use crate::scripts::run::{HeldShards, LaneChecks, ScriptAccess, StopReason};
use crate::scripts::{Routes, Running, busy_text};
use crate::session::gates::NO_AUTH;
use crate::session::lane::{LaneJob, LaneWrite};
use crate::session::rehearsal::TRIES;
use crate::session::session_command::{CommandKind, kind_of};
use crate::{Engine, Now};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_chain::Chain;
use strand_commands::call::{LaneCall, LaneTxn, NotLocked};
use strand_keyspace::{Lookups, View};
use strand_wire::reply::Reply;

/// Runs a script on a helper thread.
pub(in crate::session) fn run_on_lane(
    engine: &Engine,
    call: &mut LaneCall<'_>,
    job: &LaneJob,
    user: &Arc<User>,
    now: Now,
) {
    let CommandKind::Script(command) = kind_of(job.spec) else { return };
    let args = call.args;
    let found;
    let script_call = match &job.script {
        Some(script_call) => script_call,
        None => match ScriptCall::of(engine, command, args) {
            Ok(script_call) => {
                found = script_call;
                &found
            }
            Err(text) => return call.reply.error_bytes(&text),
        },
    };
    let keyspace = call.keyspace;
    let all: Vec<usize> = (0..keyspace.shards()).collect();
    let declared = script_call.declared(engine, args);
    let running = engine.scripts.begin_run(running(script_call, args, engine.host.mono_us()));
    let may_wait = || may_wait(engine, job, &running);
    let mut rng = call.rng.fork();
    let mut out = Chain::new();
    let routes = script_call.routes();
    // A client that keeps copies of keys would miss what is written after the moment of a view.
    let mut mode = match job.client.tracked.keeps_copies(job.caching) || routes.starts_with_shards() {
        true => ScriptAccess::Lane,
        false if routes.starts_on_draft() => ScriptAccess::Draft,
        false => ScriptAccess::View,
    };
    let mut drafts = 0;
    loop {
        // The locks of the run before this one are gone.
        running.is_busy.store(false, Relaxed);
        running.has_draft.store(false, Relaxed);
        let needs_all = routes.needs_all_shards();
        if mode == ScriptAccess::Lane && needs_all {
            mode = ScriptAccess::Final;
        }
        let holds_shards = !matches!(mode, ScriptAccess::View | ScriptAccess::Draft);
        // Any run that holds shards counts, because it keeps the data from being saved.
        let counted = holds_shards.then(|| LaneWrite::of_begun(&job.engine, may_wait));
        if matches!(counted, Some(None)) {
            call.reply.error(if running.fate.is_killed() { KILLED } else { gone_text(engine) });
            break;
        }
        let uses_all = needs_all || matches!(mode, ScriptAccess::Final | ScriptAccess::Draft);
        let (held, shards) = match uses_all {
            true => (HeldShards::All, &all[..]),
            false => (HeldShards::Some(&declared), &declared[..]),
        };
        let data = match mode {
            ScriptAccess::View => call
                .lock_shards_unless_busy(shards, &may_wait)
                .map(|mut txn| Data::View(txn.view_of_held(call.db))),
            ScriptAccess::Draft => {
                call.now_ms = engine.time_since(call.now_ms);
                Ok(Data::Draft)
            }
            _ => call.hold_shards_unless_busy(shards, &may_wait).map(Data::Held),
        };
        let lane = LaneChecks {
            running: &running,
            cancel: call.cancel,
            yield_now: call.yield_now,
            began_us: engine.host.mono_us(),
            busy: false,
            in_exec: false,
        };
        let placement = Placement::on_data(held, mode, Some(lane));
        // The script may have waited for its shards, and another client may have taken rights away meanwhile.
        let Some(user) = engine.acl.current(user) else {
            drop(data);
            call.reply.error(NO_AUTH);
            break;
        };
        let mut context = CallContext {
            engine,
            client: &job.client,
            user: &user,
            db: call.db,
            now,
            rng: &mut rng,
            caching: job.caching,
        };
        let mut reply = Reply::bounded(&mut out, job.protocol, call.reply.room_left());
        let (outcome, lookups) = match data {
            Ok(Data::View(view)) => {
                attempt_on_view(script_call, &mut context, call, &view, placement, &mut reply, &may_wait)
            }
            Ok(Data::Draft) => {
                drafts += 1;
                let done =
                    attempt_on_draft(script_call, &mut context, call, job, placement, &mut reply, &may_wait);
                if engine.memory.is_limited() {
                    // What was a draft at the last sample, and did not count then, is data now.
                    engine.sample_memory();
                }
                done
            }
            Ok(Data::Held(mut txn)) => {
                txn.set_no_touch(call.no_touch);
                (attempt(script_call, args, &mut context, &mut txn, placement, &mut reply), txn.lookups())
            }
            Err(why) => (Attempt::Restart(stop_reason(why, &running)), Lookups::default()),
        };
        call.lookups = lookups;
        match outcome {
            Attempt::Done(error) => {
                call.reply.raw_reply(out, error.as_ref().map(|error| &*error.code));
                call.error_is_counted = error.is_some_and(|error| error.is_counted);
                break;
            }
            Attempt::Restart(stop) => {
                if let Some(text) = end_text(stop, engine) {
                    call.reply.error(text);
                    break;
                }
                running.fate.forget_writes();
                out.clear();
                let may_draft = drafts < TRIES && !is_slow(engine, &running);
                mode = mode_after(mode, stop, may_draft, routes);
            }
        }
    }
    engine.scripts.end_run(&running);
}

/// True while a run may wait for its shards.
fn may_wait(engine: &Engine, job: &LaneJob, running: &Running) -> bool {
    !running.fate.is_killed() && !engine.scripts.stopping.load(Relaxed) && job.may_wait()
}

/// Why a run that did not get its shards ends.
pub(super) fn stop_reason(why: NotLocked, running: &Running) -> StopReason {
    match why {
        NotLocked::Busy { is_function } => StopReason::Busy { is_function },
        NotLocked::GivenUp if running.fate.is_killed() => StopReason::Killed,
        NotLocked::GivenUp => StopReason::ClientGone,
    }
}

/// What an attempt runs on.
enum Data<'k> {
    /// A view. Its shards were held only for the moment of the view.
    View(View<'k>),
    /// A draft, which copies the records when they are needed.
    Draft,
    /// Held shards.
    Held(LaneTxn<'k>),
}

/// The error of a run that has changed nothing and does not restart. `None`: the run restarts.
fn end_text(stop: StopReason, engine: &Engine) -> Option<&'static str> {
    match stop {
        StopReason::Busy { is_function } => Some(busy_text(is_function)),
        StopReason::Killed => Some(KILLED),
        StopReason::ClientGone => Some(gone_text(engine)),
        StopReason::Overrun
        | StopReason::NeedsAllShards
        | StopReason::NeedsShards
        | StopReason::Overtaken
        | StopReason::NoUndo => None,
    }
}

/// True when the script has run for `busy-reply-threshold`. Then it should not run many times more.
fn is_slow(engine: &Engine, running: &Running) -> bool {
    let threshold_us = engine.busy_threshold_us();
    threshold_us > 0 && engine.host.mono_us().saturating_sub(running.began_us) >= threshold_us
}

/// How a run on the lane restarts. `may_draft`: the script may be tried on a draft once more.
fn mode_after(mode: ScriptAccess, stop: StopReason, may_draft: bool, routes: &Routes) -> ScriptAccess {
    if stop == StopReason::NeedsAllShards {
        routes.record_all_shards_need();
    }
    match (mode, stop) {
        (ScriptAccess::View, StopReason::NeedsAllShards) => ScriptAccess::View,
        (ScriptAccess::View, StopReason::NeedsShards) => {
            routes.record_write();
            ScriptAccess::Draft
        }
        (ScriptAccess::View, StopReason::Overtaken) => ScriptAccess::Draft,
        (ScriptAccess::View, _) => ScriptAccess::Lane,
        (ScriptAccess::Draft, StopReason::Overtaken) if may_draft => ScriptAccess::Draft,
        (ScriptAccess::Draft, _) => {
            routes.record_shard_need();
            ScriptAccess::Lane
        }
        _ => ScriptAccess::Final,
    }
}

/// Makes one attempt to run the script on a view.
fn attempt_on_view<'k>(
    script_call: &ScriptCall,
    context: &mut CallContext<'_>,
    call: &LaneCall<'k>,
    view: &View<'k>,
    placement: Placement<'_>,
    reply: &mut Reply<'_>,
    may_wait: &dyn Fn() -> bool,
) -> (Attempt, Lookups) {
    let lane = placement.lane.as_ref().expect("a view belongs to a run on the lane");
    let running = lane.running;
    let held = placement.held;
    let read = |key: &[u8]| {
        let key = call.keyspace.key(key);
        let shard = call.keyspace.shard_of(key.hash);
        if !held.has(shard) {
            return Err(StopReason::NeedsAllShards);
        }
        let locked = call.lock_shards_unless_busy(&[shard], may_wait);
        let mut txn = locked.map_err(|why| stop_reason(why, running))?;
        txn.set_no_touch(call.no_touch);
        let record = view.read(&mut txn, &key);
        if view.is_lost(&mut txn, &key) { Err(StopReason::Overtaken) } else { Ok(record) }
    };
    let copies = call.keyspace.scratch(std::array::from_fn(|_| context.rng.u64(..)));
    let mut txn = copies.lock_shard(0, call.now_ms);
    // The run holds nothing, so no client waits for it and it need not be marked busy.
    let lane = placement.lane.map(|lane| LaneChecks { busy: true, ..lane });
    let originals = Originals { read: &read, list: None, are_overtaken: &|| false, may_continue: &|| Ok(()) };
    let copies = Some(Copies::new(ScriptAccess::View, call.db, originals));
    let placement = Placement { copies, lane, ..placement };
    let outcome = attempt(script_call, call.args, context, &mut txn, placement, reply);
    (outcome, txn.lookups())
}
