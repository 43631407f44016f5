//! A script on a helper thread: on a view of its shards while it only reads, or with its shards locked.

use super::{Attempt, CallContext, KILLED, Placement, ScriptCall, attempt, gone_text, running};
use crate::acl::User;
use crate::scripts::run::{HeldShards, LaneChecks, ScriptAccess, StopReason, ViewReader};
use crate::scripts::{Routes, Running, busy_text};
use crate::session::gates::NO_AUTH;
use crate::session::lane::{LaneJob, LaneWrite};
use crate::session::session_command::{CommandKind, kind_of};
use crate::{Engine, Now};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_chain::Chain;
use strand_commands::call::{LaneCall, LaneTxn, NotLocked};
use strand_keyspace::{Key, Lookups, View};
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
    // A client that keeps copies of keys would miss what is written after the moment of a view.
    let may_view =
        !job.client.tracked.keeps_copies(job.caching) && !script_call.routes().starts_with_shards();
    let mut mode = if may_view { ScriptAccess::View } else { ScriptAccess::Lane };
    loop {
        // The locks of the run before this one are gone.
        running.is_busy.store(false, Relaxed);
        let needs_all = script_call.routes().needs_all_shards();
        if mode == ScriptAccess::Lane && needs_all {
            mode = ScriptAccess::Final;
        }
        // Any run that holds shards counts, because it keeps the data from being saved.
        let counted = (mode != ScriptAccess::View).then(|| LaneWrite::of_begun(&job.engine, may_wait));
        if matches!(counted, Some(None)) {
            call.reply.error(if running.fate.is_killed() { KILLED } else { gone_text(engine) });
            break;
        }
        let (held, shards) = match mode == ScriptAccess::Final || needs_all {
            true => (HeldShards::All, &all[..]),
            false => (HeldShards::Some(&declared), &declared[..]),
        };
        let placement = Placement {
            held,
            mode,
            lane: Some(LaneChecks {
                running: &running,
                cancel: call.cancel,
                yield_now: call.yield_now,
                busy: false,
                in_exec: false,
            }),
            view_reader: None,
        };
        let data = match mode {
            ScriptAccess::View => call
                .lock_shards_unless_busy(shards, &may_wait)
                .map(|mut txn| Data::View(txn.view_of_held(call.db))),
            _ => call.hold_shards_unless_busy(shards, &may_wait).map(Data::Held),
        };
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
                mode = mode_after(mode, stop, script_call.routes());
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
fn stop_reason(why: NotLocked, running: &Running) -> StopReason {
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
    /// Held shards.
    Held(LaneTxn<'k>),
}

/// The error of a run that has changed nothing and does not restart. `None`: the run restarts.
fn end_text(stop: StopReason, engine: &Engine) -> Option<&'static str> {
    match stop {
        StopReason::Busy { is_function } => Some(busy_text(is_function)),
        StopReason::Killed => Some(KILLED),
        StopReason::ClientGone => Some(gone_text(engine)),
        StopReason::Overrun | StopReason::NeedsAllShards | StopReason::NeedsShards | StopReason::NoUndo => {
            None
        }
    }
}

/// How a run on the lane restarts.
fn mode_after(mode: ScriptAccess, stop: StopReason, routes: &Routes) -> ScriptAccess {
    if stop == StopReason::NeedsAllShards {
        routes.record_all_shards_need();
    }
    match (mode, stop) {
        (ScriptAccess::View, StopReason::NeedsAllShards) => ScriptAccess::View,
        (ScriptAccess::View, _) => {
            if stop == StopReason::NeedsShards {
                routes.record_shard_need();
            }
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
    let read = |key: &Key<'_>| {
        let locked = call.lock_shards_unless_busy(&[call.keyspace.shard_of(key.hash)], may_wait);
        let mut txn = locked.map_err(|why| stop_reason(why, running))?;
        txn.set_no_touch(call.no_touch);
        let record = view.read(&mut txn, key);
        if view.is_lost(&mut txn, key) { Err(StopReason::Overrun) } else { Ok(record) }
    };
    let copies = call.keyspace.scratch(std::array::from_fn(|_| context.rng.u64(..)));
    let mut txn = copies.lock_shard(0, call.now_ms);
    // The run holds nothing, so no client waits for it and it need not be marked busy.
    let lane = placement.lane.map(|lane| LaneChecks { busy: true, ..lane });
    let view_reader = Some(ViewReader { db: call.db, read: &read });
    let outcome = attempt(
        script_call,
        call.args,
        context,
        &mut txn,
        Placement { view_reader, lane, ..placement },
        reply,
    );
    (outcome, txn.lookups())
}
