//! A long EXEC that no other client waits for: its commands run on copies of the records, and their changes are
//! promised at one moment.
//!
//! 1. At one moment the shards of all keys are locked: the watched keys are checked, and a [`View`] begins. Then the
//!    shards are unlocked.
//! 2. The commands run on a draft ([`strand_keyspace::Keyspace::draft`]). The records at the commands' keys are copied
//!    into the draft slice by slice, as they were at that moment.
//! 3. At a second moment the shards are locked again. If no other client wrote one of the keys since the first moment,
//!    and none of the keys and fields expired meanwhile, the transaction happens now: its changes are promised
//!    ([`strand_keyspace::Promises`]), and its effects go to the journal. Otherwise the rehearsal restarts. Of a
//!    rehearsal that restarts, no client has seen anything, and nothing is counted.
//! 4. The promises are carried out, slice by slice.
//!
//! A transaction that only reads happens at the first moment, and is done after the second step.

use super::lane::LaneJob;
use super::multi::Queued;
use super::session_command::SessionCommand;
use super::transaction::{ExecReplies, ReplyPart, Transaction, lost_rights_error, refuse_queued};
use crate::Now;
use crate::acl::Denied;
use crate::monitors::Caller;
use crate::stats::{CommandCounter, Stat};
use std::collections::HashSet;
use strand_commands::call::{LaneCall, LaneTxn};
use strand_commands::long::{self, SLICE_ARGUMENTS};
use strand_commands::run::{self, Context};
use strand_commands::spec::Flags;
use strand_keyspace::journal::EffectsMark;
use strand_keyspace::{Key, KeyHash, Promises, Txn, View, Viewed};
use strand_wire::reply::Reply;

/// Number of tries on copies. If other clients wrote one of the keys during each try, the transaction or the script locks
/// its shards instead.
pub(super) const TRIES: usize = 4;

/// The keys that the commands need.
struct Needs<'a> {
    /// Each key once, in the order of its first use.
    keys: Vec<Key<'a>>,
    /// For each command, the number of keys that this command and the commands before it need.
    ends: Vec<usize>,
}

/// The outcome of one command of the transaction.
struct RehearsedCommand {
    took_ns: u64,
    /// The error code of an error reply.
    failed: Option<Box<[u8]>>,
    /// What the user may not do. The command then did not run.
    denied: Option<Denied>,
}

/// The commands have run on copies.
struct Rehearsed {
    replies: ExecReplies,
    outcomes: Vec<RehearsedCommand>,
    /// The earliest expiry of the copied records and of their fields.
    first_expiry_ms: Option<i64>,
}

/// The outcome of one attempt to run the transaction.
enum Rehearsal {
    /// The replies of the commands, and the outcome of each command.
    Done(ExecReplies, Vec<RehearsedCommand>),
    /// A watched key had changed.
    Dirty,
    /// Another client wrote one of the keys, or one of the keys or fields expired.
    Overtaken,
}

impl Transaction {
    /// True when the transaction's commands may run on copies of the records at their keys.
    pub(super) fn may_rehearse(&self, call: &LaneCall<'_>, job: &LaneJob) -> bool {
        // A client that keeps copies of keys may read a key after the transaction's own change of the key. When that
        // change is carried out, it would invalidate the client's copy, although the copy is current.
        let reads_what_it_writes = Flags(self.queue.flags).has(Flags::READONLY)
            && self.writes()
            && job.client.tracked.keeps_copies(job.caching);
        let fits = |(nth, Queued { spec, argv }): (usize, &Queued)| {
            pause_at(nth, call);
            match SessionCommand::of_row(spec) {
                // The command waits for busy scripts before the transaction begins ([`super::transaction`]).
                Some(own) if (own.locks_shards)(argv.args()) => false,
                Some(_) => ReplyPart::later(spec, nth, job.db, job.protocol).is_some(),
                None => long::changes_copies(spec, argv.args()),
            }
        };
        !reads_what_it_writes && self.queue.commands.iter().enumerate().all(fits)
    }
    fn writes(&self) -> bool {
        Flags(self.queue.flags).has(Flags::WRITE)
    }
    /// Runs the transaction on copies. False: other clients wrote its keys during every try, so the transaction has not
    /// run.
    pub(super) fn rehearse(&self, call: &mut LaneCall<'_>, job: &LaneJob, now: Now) -> bool {
        let needs = self.needs(call);
        self.set_shards(&needs.keys);
        for _ in 0..TRIES {
            call.now_ms = self.engine.time_since(call.now_ms);
            let draft = call.keyspace.draft(std::array::from_fn(|_| call.rng.u64(..)));
            let mut on_draft = draft.lock_shard(0, call.now_ms);
            let rehearsal = self.try_on(&mut on_draft, &needs, call, job);
            match rehearsal {
                Rehearsal::Done(replies, outcomes) => {
                    on_draft.tell_events_at(call.keyspace);
                    call.lookups = on_draft.lookups();
                    self.count(outcomes, call, job, now);
                    drop(on_draft);
                    self.reply_with(replies, call, job, now);
                    return true;
                }
                Rehearsal::Dirty => {
                    on_draft.forget();
                    call.reply.null_array();
                    return true;
                }
                Rehearsal::Overtaken => on_draft.forget(),
            }
        }
        false
    }
    fn needs(&self, call: &LaneCall<'_>) -> Needs<'_> {
        let (mut keys, mut ends, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for (nth, Queued { spec, argv }) in self.queue.commands.iter().enumerate() {
            pause_at(nth, call);
            let all = run::keys_of(spec, argv.args(), call.keyspace);
            keys.extend(all.iter().filter(|key| known.insert(key.bytes)));
            ends.push(keys.len());
        }
        Needs { keys, ends }
    }
    /// Tries once to run the transaction on copies.
    fn try_on(
        &self,
        on_draft: &mut Txn<'_>,
        needs: &Needs<'_>,
        call: &mut LaneCall<'_>,
        job: &LaneJob,
    ) -> Rehearsal {
        let keyspace = call.keyspace;
        // Removes expired records and carries out older promises at the keys. Later, both would count as changes of the
        // keys.
        in_slices(call, job.db, &needs.keys, |txn, key| _ = txn.db(job.db).peek(key));
        let wanted = keyspace.view_keys(&needs.keys);
        let mut txn = call.lock_shards(self.shards());
        self.take_time(&mut txn, call);
        on_draft.set_now_ms(call.now_ms);
        if !self.watch.is_unchanged(&txn) {
            return Rehearsal::Dirty;
        }
        let view = txn.view(job.db, wanted);
        drop(txn);
        on_draft.keep_events_of_copies(keyspace);
        // A transaction that only reads happens at the moment of the view. But a client that keeps copies of keys must
        // hear of every later change, and its reads are remembered only from now on.
        let is_over_now = !self.writes() && !job.client.tracked.keeps_copies(job.caching);
        let ran = self.run_commands(on_draft, needs, &view, is_over_now, call, job);
        let Some(Rehearsed { replies, outcomes, first_expiry_ms }) = ran else {
            return Rehearsal::Overtaken;
        };
        let mut promises = on_draft.take_promises(keyspace, job.db, &|| call.pause());
        if !self.writes() {
            // PFCOUNT only reads, but it has stored its count in the copy.
            promises = Promises::default();
            on_draft.forget_effects_since(EffectsMark::default());
        }
        if is_over_now {
            return Rehearsal::Done(replies, outcomes);
        }
        let is_promised = |(nth, key): &(usize, &Key<'_>)| {
            pause_at(*nth, call);
            promises.has(keyspace, key)
        };
        let promised: Vec<Key<'_>> =
            needs.keys.iter().enumerate().filter(is_promised).map(|(_, key)| *key).collect();
        let mut txn = call.lock_shards(self.shards());
        self.take_time(&mut txn, call);
        if !self.watch.is_unchanged(&txn) {
            return Rehearsal::Dirty;
        }
        let is_recorded = on_draft.keyspace().journal().is_on();
        if !view.is_unchanged(&txn) || keyspace.journal().is_on() != is_recorded {
            return Rehearsal::Overtaken;
        }
        // The commands saw each key as of the moment of the view. Since then, another client may have found that a key
        // or field expired.
        if first_expiry_ms.is_some_and(|at_ms| txn.has_passed(at_ms)) {
            return Rehearsal::Overtaken;
        }
        txn.take_effects_of(on_draft);
        txn.promise(job.db, promises);
        drop(txn);
        drop(view);
        in_slices(call, job.db, &promised, |txn, key| _ = txn.db(job.db).peek(key));
        Rehearsal::Done(replies, outcomes)
    }
    /// Runs the commands on the draft. `None`: another client has written one of the keys, and `is_over_now` is false.
    fn run_commands<'k>(
        &self,
        on_draft: &mut Txn<'_>,
        needs: &Needs<'_>,
        view: &View<'k>,
        is_over_now: bool,
        call: &mut LaneCall<'k>,
        job: &LaneJob,
    ) -> Option<Rehearsed> {
        let commands = &self.queue.commands;
        let (mut replies, mut outcomes) = (ExecReplies::default(), Vec::with_capacity(commands.len()));
        let mut first_expiry_ms = None;
        let (mut copied, mut next) = (0, 0);
        while next < commands.len() {
            let fit = needs.ends[next + 1..].iter().take_while(|end| **end - copied <= SLICE_ARGUMENTS);
            let end = next + 1 + fit.take(SLICE_ARGUMENTS).count();
            let missing = &needs.keys[copied..needs.ends[end - 1]];
            copied += missing.len();
            let is_unchanged = copy(on_draft, missing, view, &mut first_expiry_ms, call, job);
            if !is_unchanged && !is_over_now {
                return None;
            }
            for (at, queued) in commands.iter().enumerate().take(end).skip(next) {
                outcomes.push(self.run_command(at, queued, on_draft, &mut replies, call, job));
            }
            next = end;
            if is_over_now && replies.bytes() > call.reply.room_left() {
                break;
            }
            call.pause();
        }
        Some(Rehearsed { replies, outcomes, first_expiry_ms })
    }
    fn run_command(
        &self,
        at: usize,
        Queued { spec, argv }: &Queued,
        on_draft: &mut Txn<'_>,
        replies: &mut ExecReplies,
        call: &mut LaneCall<'_>,
        job: &LaneJob,
    ) -> RehearsedCommand {
        let yield_now = call.yield_now;
        let mut pause = || {
            yield_now();
            true
        };
        if let Err(denied) = job.user.check(spec, argv.args(), &mut pause) {
            Reply::new(replies.out(), job.protocol).error(&lost_rights_error(&denied));
            return RehearsedCommand { took_ns: 0, failed: None, denied: Some(denied) };
        }
        if let Some(part) = ReplyPart::later(spec, at, job.db, job.protocol) {
            replies.later(part);
            return RehearsedCommand { took_ns: 0, failed: None, denied: None };
        }
        self.engine.remember(&job.client, job.caching, spec, argv.args());
        let context = Context {
            db: job.db,
            protocol: job.protocol,
            reply_bytes_max: call.reply.room_left(),
            rng: &mut *call.rng,
            rights: None,
            client: call.client,
        };
        let began_ns = self.engine.host.mono_ns();
        let pause = || {
            yield_now();
            true
        };
        let outcome = run::with_pauses(spec, argv.args(), on_draft, replies.out(), &pause, context);
        let took_ns = self.engine.host.mono_ns().saturating_sub(began_ns);
        RehearsedCommand { took_ns, failed: outcome.error.map(Vec::into_boxed_slice), denied: None }
    }
    /// Counts the commands that have run, and sends them to the clients in MONITOR.
    fn count(&self, outcomes: Vec<RehearsedCommand>, call: &LaneCall<'_>, job: &LaneJob, now: Now) {
        let (engine, slot) = (&self.engine, job.client.peer.worker);
        for (nth, (queued, outcome)) in self.queue.commands.iter().zip(outcomes).enumerate() {
            let Queued { spec, argv } = queued;
            pause_at(nth, call);
            if let Some(denied) = outcome.denied {
                refuse_queued(engine, &job.client, &job.user, queued, denied, now);
                continue;
            }
            let id = engine.stats.ids.of(spec);
            engine.stats.count(slot, id, CommandCounter::Calls, 1);
            engine.stats.add(slot, Stat::Commands, 1);
            if engine.monitors.any() {
                engine.send_to_monitors(spec, argv.args(), job.db, Caller::Client(&job.client), now);
            }
            if ReplyPart::later(spec, nth, job.db, job.protocol).is_none() {
                engine.note_lap(&job.client, spec, argv.args(), now, outcome.took_ns);
            }
            if let Some(code) = &outcome.failed {
                engine.stats.error(slot, code);
                engine.stats.count(slot, id, CommandCounter::Failed, 1);
            }
        }
    }
}

/// Copies the records at `keys` to the draft, as they were at the moment of the view. `first_expiry_ms` becomes the
/// earliest expiry of all copied records and of their fields. False: another client has written one of the view's keys.
fn copy<'k>(
    on_draft: &mut Txn<'_>,
    keys: &[Key<'_>],
    view: &View<'k>,
    first_expiry_ms: &mut Option<i64>,
    call: &LaneCall<'k>,
    job: &LaneJob,
) -> bool {
    let mut is_unchanged = true;
    for keys in keys.chunks(SLICE_ARGUMENTS) {
        let mut txn = slice(call, job.db, keys);
        txn.set_no_touch(call.no_touch);
        let records: Vec<Option<Viewed>> = keys.iter().map(|key| view.read(&mut txn, key)).collect();
        is_unchanged &= view.is_unchanged(&txn);
        drop(txn);
        for (key, record) in keys.iter().zip(records) {
            if let Some((value, expire_at_ms)) = record {
                let expiries_ms = [*first_expiry_ms, expire_at_ms, value.first_field_expiry_ms()];
                *first_expiry_ms = expiries_ms.into_iter().flatten().min();
                let key = on_draft.keyspace().key(key.bytes);
                on_draft.db(job.db).put_copy(&key, value, expire_at_ms);
            }
        }
    }
    is_unchanged
}

/// Pauses before each slice of a walk over many items. `nth` is the index of the next item.
fn pause_at(nth: usize, call: &LaneCall<'_>) {
    if nth.is_multiple_of(SLICE_ARGUMENTS) {
        call.pause();
    }
}

/// Calls `each` for each of the keys, slice by slice. The shards of a slice's keys are locked meanwhile.
pub(super) fn in_slices(
    call: &LaneCall<'_>,
    db: usize,
    keys: &[Key<'_>],
    mut each: impl FnMut(&mut Txn<'_>, &Key<'_>),
) {
    for keys in keys.chunks(SLICE_ARGUMENTS) {
        let mut txn = slice(call, db, keys);
        keys.iter().for_each(|key| each(&mut txn, key));
    }
}

/// Locks the shards of a slice's keys, after a pause.
fn slice<'k>(call: &LaneCall<'k>, db: usize, keys: &[Key<'_>]) -> LaneTxn<'k> {
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    call.pause();
    call.keyspace.prefetch(db, keys);
    call.lock(&hashes)
}
