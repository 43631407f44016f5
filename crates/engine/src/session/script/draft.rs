//! A script on a draft: it holds no shard while it runs, and all its changes take effect at its end.
//!
//! 1. The commands of the script run on a draft ([`strand_keyspace::Keyspace::draft`]). Before a command runs, the
//!    records at its keys are copied into the draft, and the keys are noted ([`ReadSet`]). KEYS and SCAN note the names
//!    that they ask for. If another client writes one of these keys, or adds or removes a key with one of these names, the
//!    run is overtaken: it stops and restarts. No client has seen anything of the run.
//! 2. At the end of the script the shards of all its keys are locked for a short time. If the run was not overtaken and
//!    none of the records has expired, the script happens now: its changes are promised ([`strand_keyspace::Promises`]),
//!    its effects go to the journal, and its messages are sent.
//! 3. The promises are carried out, slice by slice.
//!
//! [`crate::session::rehearsal`] runs EXEC on a draft, with keys that are known in advance.

use super::on_lane::stop_reason;
use super::{Attempt, CallContext, DraftedRun, Placement, ScriptCall, attempt, report};
use crate::acl::User;
use crate::scripts::Running;
use crate::scripts::copies::{Copies, Originals};
use crate::scripts::run::{ScriptAccess, StopReason};
use crate::session::lane::{LaneJob, LaneWrite};
use crate::session::rehearsal::in_slices;
use std::cell::RefCell;
use std::sync::Arc;
use strand_commands::call::{LaneCall, NotLocked};
use strand_commands::long::SLICE_ARGUMENTS;
use strand_keyspace::journal::EffectsMark;
use strand_keyspace::{Key, Lookups, Names, Promises, ReadSet, RecordRef, Txn};
use strand_wire::reply::Reply;

/// Maximum number of keys that a run on a draft may use. A noted key takes 16 to 40 bytes.
const KEYS_MAX: usize = 1 << 20;

/// Makes one attempt to run the script on a draft.
pub(super) fn attempt_on_draft(
    script_call: &ScriptCall,
    context: &mut CallContext<'_>,
    call: &LaneCall<'_>,
    job: &LaneJob,
    placement: Placement<'_>,
    reply: &mut Reply<'_>,
    may_wait: &dyn Fn() -> bool,
) -> (Attempt, Lookups) {
    let lane = placement.lane.expect("a draft belongs to a run on the lane");
    let running = lane.running;
    let reads = RefCell::new(call.keyspace.read_set(call.db));
    let read = |key: &[u8]| {
        let mut reads = reads.borrow_mut();
        if reads.len() >= KEYS_MAX {
            return Err(StopReason::NoUndo);
        }
        let key = call.keyspace.key(key);
        let locked = call.lock_shards_unless_busy(&[call.keyspace.shard_of(key.hash)], may_wait);
        let mut txn = locked.map_err(|why| stop_reason(why, running))?;
        txn.set_no_touch(call.no_touch);
        let record = reads.read(&mut txn, &key);
        if reads.is_overtaken() { Err(StopReason::Overtaken) } else { Ok(record) }
    };
    let may_continue = || {
        call.pause();
        if may_wait() { Ok(()) } else { Err(stop_reason(NotLocked::GivenUp, running)) }
    };
    let list = |cursor, count, names: &Names, visit: &mut dyn FnMut(&RecordRef<'_>) -> bool| {
        may_continue()?;
        let locked = call.lock_shards_unless_busy(&[call.keyspace.shard_of_cursor(cursor)], may_wait);
        let mut txn = locked.map_err(|why| stop_reason(why, running))?;
        let mut reads = reads.borrow_mut();
        let next = reads.list(&mut txn, cursor, count, names, visit);
        if reads.is_overtaken() { Err(StopReason::Overtaken) } else { Ok(next) }
    };
    let draft = call.keyspace.draft(std::array::from_fn(|_| context.rng.u64(..)));
    let mut on_draft = draft.lock_shard(0, call.now_ms);
    let user = context.user.clone();
    let end = End { call, job, user: &user, running, may_wait };
    let commit = |on_draft: &mut Txn<'_>, run: DraftedRun| end.commit(on_draft, &run, &reads.borrow());
    let are_overtaken = || reads.borrow().is_overtaken();
    let originals = Originals {
        read: &read,
        list: Some(&list),
        are_overtaken: &are_overtaken,
        may_continue: &may_continue,
    };
    let copies = Copies::new(ScriptAccess::Draft, call.db, originals);
    let placement = Placement { copies: Some(copies), lane: Some(lane), commit: Some(&commit), ..placement };
    let outcome = attempt(script_call, call.args, context, &mut on_draft, placement, reply);
    (outcome, on_draft.lookups())
}

/// What the end of a run on a draft needs.
struct End<'e, 'k> {
    call: &'e LaneCall<'k>,
    job: &'e LaneJob,
    user: &'e Arc<User>,
    running: &'e Arc<Running>,
    may_wait: &'e dyn Fn() -> bool,
}

impl<'k> End<'_, 'k> {
    /// Makes the changes of the run take effect now.
    ///
    /// # Errors
    /// Why they cannot. Then nothing has changed.
    fn commit(
        &self,
        on_draft: &mut Txn<'_>,
        run: &DraftedRun,
        reads: &ReadSet<'k>,
    ) -> Result<(), StopReason> {
        let End { call, job, running, .. } = self;
        let (engine, keyspace) = (&job.engine, call.keyspace);
        let mut promises = on_draft.take_promises(keyspace, call.db, &|| call.pause());
        if !run.wrote {
            // PFCOUNT only reads, but it has stored its count in the copy.
            promises = Promises::default();
            on_draft.forget_effects_since(EffectsMark::default());
        }
        if promises.is_empty() && !on_draft.has_effects() && run.deferred.is_empty() {
            // The records were read one after the other. The run happens at its last read, so all must be alive then.
            if reads.has_expired(engine.time_since(call.now_ms)) {
                return Err(StopReason::Overtaken);
            }
            on_draft.tell_events_at(keyspace);
            return Ok(());
        }
        let Some(_write) = LaneWrite::of_begun(engine, self.may_wait) else {
            return Err(stop_reason(NotLocked::GivenUp, running));
        };
        let locked = call.lock_shards_unless_busy(reads.shards(), self.may_wait);
        let mut txn = locked.map_err(|why| stop_reason(why, running))?;
        txn.set_now_ms(engine.time_since(call.now_ms));
        let is_recorded = on_draft.keyspace().journal().is_on();
        let is_current = reads.is_current(&txn) && keyspace.journal().is_on() == is_recorded;
        // The script runs again, and then gets the refusal.
        let is_refused = run.wrote && engine.persist.write_refusal().is_some();
        let is_same_user = engine.acl.current(self.user).is_some_and(|now| Arc::ptr_eq(&now, self.user));
        if !is_current || is_refused || !is_same_user {
            return Err(StopReason::Overtaken);
        }
        if run.wrote && !running.fate.begin_write() {
            return Err(StopReason::Killed);
        }
        txn.take_effects_of(on_draft);
        txn.promise(call.db, promises);
        report(&run.deferred, ScriptAccess::Draft, engine, &job.client, &mut txn);
        drop(txn);
        self.carry_out(&run.written, reads);
        on_draft.tell_events_at(keyspace);
        Ok(())
    }
    /// Carries out the promises of the changes.
    fn carry_out(&self, written: &[Box<[u8]>], reads: &ReadSet<'k>) {
        let (call, keyspace) = (self.call, self.call.keyspace);
        if self.job.engine.notices.listens() {
            // Notifications come in the order of the script.
            let keys: Vec<Key<'_>> = written.iter().map(|key| keyspace.key(key)).collect();
            return in_slices(call, call.db, &keys, |txn, key| _ = txn.db(call.db).peek(key));
        }
        // Otherwise shard by shard, because that needs less locking. A script that sets 1 M keys took 4.7 s of processor
        // time instead of 6.4 s (together with `PositionSet`; /proc/PID/stat, two-core guest).
        for shard in reads.shards() {
            loop {
                call.pause();
                if !call.lock_shards(&[*shard]).carry_out_promises_of(*shard, SLICE_ARGUMENTS) {
                    break;
                }
            }
        }
    }
}
