//! Blocking commands: BLPOP and related commands, XREAD and XREADGROUP with BLOCK, WAIT.
//!
//! [`Session::blocking`] makes one attempt. An attempt without a result leaves a [`Ticket`] at the keys while their
//! shards are locked, and the session is parked. The *pusher* is the thread that puts something at one of the keys.
//! Before the pusher unlocks the shard, it serves the ticket ([`Waiter`]): it makes the attempt in the session's place,
//! and wakes the session, which finds the reply. The pusher, the timeout and CLIENT UNBLOCK race for the ticket's lock.
//! The first one decides.
//!
//! Some attempts are too much for the pusher: a shard under a long lock, thousands of elements, changed rights. The
//! pusher then notifies the session, which makes the attempt itself. The session keeps its place in the queue
//! meanwhile.

mod keyless;

pub(super) use keyless::{KeylessWait, NO_AOF};

use super::multi::lock;
use super::phases::ParkReason;
use super::run::NextStep;
use super::{Session, State, Turn};
use crate::acl::User;
use crate::clients::Client;
use crate::stats::CommandCounter;
use crate::{Engine, Now};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::cost::{self, LONG_ELEMENTS};
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Flags};
use strand_commands::wait::{Narrower, Wait};
use strand_keyspace::{Key, KeyHash, Registration, Txn, WaitEvent, Waiter, WaiterOutcome, Wanted};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Longest timeout in milliseconds: a century. A longer timeout means no timeout.
const TIMEOUT_MS_MAX: u64 = 100 * 365 * 86_400_000;
/// Approximate memory of a wait at one key, without the key's bytes: entries in two tables and in a list.
const REGISTRATION_BYTES: usize = 256;
/// The error for a call with too many arguments. It may not block, because the shards of all its keys would stay
/// locked for too long.
pub(super) const TOO_MANY_KEYS: &str = "ERR too many keys to wait for";

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
const KEY_GONE: &str = "UNBLOCKED the stream key no longer exists";
const ROLE_CHANGED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
const GROUP_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

/// The waiting command of a blocked client. It is registered at the command's keys until the wait ends.
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    client: Arc<Client>,
    spec: &'static CommandSpec,
    db: usize,
    /// The database of the keys at which the client waits: `db` or its system companion.
    keys_db: usize,
    protocol: Protocol,
    no_touch: bool,
    /// True when CLIENT CACHING came before the command.
    caching: bool,
    user: Arc<User>,
    reply_bytes_max: usize,
    phase: Mutex<Phase>,
}

pub(super) enum Phase {
    /// The client waits to be served.
    Waiting(Argv),
    /// The session must make the attempt itself. It was notified at this time, in unix milliseconds.
    SessionMustTry(Argv, i64),
    /// The wait is over.
    Ended(WaitEnd),
}

/// How a wait ended.
pub(super) enum WaitEnd {
    /// Served. `out`: the reply. `error`: its error code. `is_over`: the reply was cut. `tag`: the tag of the served
    /// key. `frame_number`: the number of frames, since the client connected, that come before the reply.
    Served { out: Chain, error: Option<Vec<u8>>, is_over: bool, tag: u32, frame_number: u64 },
    /// The wait ended with this error.
    Error(&'static str),
    /// This server became a replica. The session ends with an error.
    RoleChanged,
    /// The timeout has passed.
    TimedOut,
    /// The session has ended.
    SessionClosed,
}

/// The result of an attempt for the session.
enum Attempt {
    /// The wait is over.
    Ended(WaitEnd),
    /// The wait continues: there are not enough elements.
    NotEnough,
    /// The session must make the attempt itself.
    NeedsSession,
}

/// The session's part of a wait.
pub(super) struct Blocked {
    ticket: Arc<Ticket>,
    /// The keys at which the client waits. Each entry has the tag, the key and the registration.
    registrations: Vec<(u32, Box<[u8]>, Registration)>,
    place_number: u64,
    /// Heap bytes that the waits at these keys take, here and in the shards.
    bytes: usize,
    deadline_us: Option<u64>,
    /// The cause of the wait, and its start on the clock of [`Now::mono_us`].
    reason: ParkReason,
    since_us: u64,
    /// The arguments of a wait that no key ends, for the list of commands that waited.
    args: Option<Argv>,
    /// The wait, if no key ends it.
    keyless: Option<KeylessWait>,
}

impl Blocked {
    pub(super) fn ticket(&self) -> Arc<Ticket> {
        self.ticket.clone()
    }
    /// Number of heap bytes of the wait's registrations.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Ticket {
    /// The lock on the ticket, if the ticket is not served. While the caller keeps the lock, nothing serves the ticket.
    /// `None`: the ticket is served.
    pub(super) fn lock_if_unserved(&self) -> Option<MutexGuard<'_, Phase>> {
        let phase = self.phase.lock();
        (!matches!(*phase, Phase::Ended(WaitEnd::Served { .. }))).then_some(phase)
    }
    /// CLIENT UNBLOCK. False when the ticket is already served.
    pub(crate) fn unblock(&self, with_error: bool) -> bool {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Waiting(_)) {
            return false;
        }
        *phase = Phase::Ended(if with_error { WaitEnd::Error(UNBLOCKED) } else { WaitEnd::TimedOut });
        drop(phase);
        self.wake();
        true
    }
    /// Ends the wait because this server became a replica.
    pub(crate) fn end_by_role(&self) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Waiting(_)) {
            *phase = Phase::Ended(WaitEnd::RoleChanged);
            drop(phase);
            self.wake();
        }
    }
    /// Makes the attempt with the key in argument `at`.
    fn attempt(&self, txn: &mut Txn<'_>, args: Args<'_>, at: u32) -> Attempt {
        // The session refuses the command on a replica.
        if self.spec.flags.has(Flags::WRITE) && self.engine.is_read_only_replica() {
            return Attempt::NeedsSession;
        }
        let user = self.engine.acl.current(&self.user);
        if user.is_none_or(|user| !Arc::ptr_eq(&user, &self.user)) {
            return Attempt::NeedsSession;
        }
        let narrow = Narrower::new(self.spec, args).call(at as usize);
        let (args, keyspace) = (narrow.as_ref().map_or(args, Argv::args), txn.keyspace());
        let keys = run::keys_of(self.spec, args, keyspace);
        if !keys.iter().all(|key| txn.try_hold_one_more(key.hash))
            || is_long(self.spec, args, txn, self.db, &keys)
        {
            return Attempt::NeedsSession;
        }
        txn.set_no_touch(self.no_touch);
        let mut out = Chain::new();
        let context = Context {
            db: self.db,
            protocol: self.protocol,
            reply_bytes_max: self.reply_bytes_max,
            rng: &mut fastrand::Rng::with_seed(self.client.id),
            rights: None,
            client: self.client.id,
        };
        // The change that serves the client may have invalidated its copy of the key. The client reads the key again
        // now, so the client is remembered again.
        let frame_number = self.client.inbox.number();
        self.engine.remember(&self.client, self.caching, self.spec, args);
        let ran = run::with_keys(self.spec, args, &keys, txn, &mut out, context);
        if ran.wait.is_some() {
            // BLMOVEM waits until the list has more elements.
            return Attempt::NotEnough;
        }
        // The reply waits for the client's worker. With a block of 16 KiB for each reply, an RPUSH that served 3,000
        // clients took 30 to 40 ms. Without, 6 ms.
        let out = out.fitted();
        Attempt::Ended(WaitEnd::Served { out, error: ran.error, is_over: ran.is_over, tag: at, frame_number })
    }
}

impl Waiter for Ticket {
    fn serve(&self, txn: &mut Txn<'_>, _key: &Key<'_>, tag: u32, event: WaitEvent) -> WaiterOutcome {
        let mut phase = self.phase.lock();
        let argv = match &mut *phase {
            Phase::Waiting(argv) => argv,
            Phase::SessionMustTry(..) => return WaiterOutcome::AlreadyWoken,
            Phase::Ended(_) => return WaiterOutcome::Left,
        };
        if self.client.is_killed() {
            return WaiterOutcome::Left;
        }
        let attempt = match event {
            WaitEvent::Ready => self.attempt(txn, argv.args(), tag),
            WaitEvent::Crowded => Attempt::NeedsSession,
            WaitEvent::KeyGone => Attempt::Ended(WaitEnd::Error(KEY_GONE)),
            WaitEvent::GroupGone => Attempt::Ended(WaitEnd::Error(GROUP_GONE)),
        };
        match attempt {
            Attempt::Ended(end) => {
                *phase = Phase::Ended(end);
                WaiterOutcome::Done
            }
            Attempt::NotEnough => WaiterOutcome::NotEnough,
            Attempt::NeedsSession => {
                *phase = Phase::SessionMustTry(std::mem::take(argv), txn.now_ms());
                WaiterOutcome::WokenToFetch
            }
        }
    }
    fn wake(&self) {
        self.client.wake_handle().wake();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({} of client {})", self.spec.name, self.client.id)
    }
}

/// True when the command is too long to run at once under locked shards.
fn is_long(spec: &CommandSpec, args: Args<'_>, txn: &mut Txn<'_>, db: usize, keys: &[Key<'_>]) -> bool {
    if !spec.cost().depends_on_data() {
        return false;
    }
    let narrower = Narrower::new(spec, args);
    let each = narrower.keys().iter().zip(keys).map(|(at, key)| {
        // Each key is estimated by itself, because each stream of a call has its own ID. An attempt without a result
        // must not count as long: it would go to a helper thread and back forever.
        let one = narrower.call(*at);
        let args = one.as_ref().map_or(args, Argv::args);
        cost::elements_at(spec.cost(), args, txn, db, std::slice::from_ref(key))
    });
    each.fold(0, usize::saturating_add) > LONG_ELEMENTS
}

/// Registrations at keys that could not be removed at once.
struct LateUnregistration {
    ticket: Arc<Ticket>,
    registrations: Vec<(u32, Box<[u8]>, Registration)>,
    /// The session was notified at this time (unix milliseconds) to make the attempt, and did not make it. The next
    /// waiter is served.
    notified_ms: Option<i64>,
}

impl Drop for LateUnregistration {
    fn drop(&mut self) {
        let (keyspace, db) = (&*self.ticket.engine.keyspace, self.ticket.keys_db);
        for (_, key, registration) in self.registrations.drain(..) {
            match self.notified_ms {
                Some(notified_ms) => keyspace.pass_place_on(db, &key, registration, notified_ms),
                None => keyspace.leave(db, &key, registration),
            }
        }
    }
}

impl Session {
    /// Runs a command that waits when it finds nothing.
    pub(super) fn blocking(&mut self, spec: &'static CommandSpec, now: Now) -> NextStep {
        let next = self.try_blocking(spec, now);
        // CLIENT CACHING applies to this command, also when the command runs later.
        self.flags.caching &= matches!(self.state, State::Parked);
        next
    }
    fn try_blocking(&mut self, spec: &'static CommandSpec, now: Now) -> NextStep {
        // The wait of a session that must make the attempt itself.
        let own_attempt = self.own_attempt.take();
        self.last_command = self.engine.stats.ids.of(spec);
        self.begin_lap(spec, now);
        let elements = self.elements(spec);
        self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
        if elements > LONG_ELEMENTS {
            self.laps.take_back();
            self.own_attempt = own_attempt;
            return self.send_to_lane(spec, now);
        }
        let (engine, client) = (self.engine.clone(), self.client.clone());
        let keyspace = &*engine.keyspace;
        let current = std::mem::take(&mut self.argv);
        let args = current.args();
        let keys = run::keys_of(spec, args, keyspace);
        let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
        let Some(mut txn) = lock(&engine, &client, &keyspace.shards_of(&hashes), now) else {
            drop(keys);
            self.laps.take_back();
            (self.argv, self.own_attempt, self.state) = (current, own_attempt, State::Parked);
            return NextStep::Stop(Turn::AwaitWake);
        };
        if is_long(spec, args, &mut txn, self.db, &keys) {
            drop(keys);
            drop(txn);
            self.laps.take_back();
            (self.argv, self.own_attempt) = (current, own_attempt);
            return self.send_to_lane(spec, now);
        }
        if own_attempt.is_none() {
            self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
        }
        txn.set_no_touch(self.flags.no_touch);
        let mut out = Chain::new();
        let context = Context {
            db: self.db,
            protocol: self.protocol,
            reply_bytes_max: self.replies.job_bytes_max(self.settings.reply_bytes_max),
            rng: &mut self.rng,
            rights: None,
            client: self.client.id,
        };
        let mut ran = run::with_keys(spec, args, &keys, &mut txn, &mut out, context);
        drop(keys);
        let deadline_us = match (&own_attempt, &ran.wait) {
            (Some(own_attempt), _) => own_attempt.deadline_us,
            (None, wait) => wait.as_ref().and_then(|wait| deadline_us(now, wait.timeout_ms)),
        };
        let is_late = own_attempt.is_some() && deadline_us.is_some_and(|at| at <= now.mono_us);
        if let Some(wait) = ran.wait.take_if(|_| !is_late) {
            let number =
                own_attempt.as_ref().map_or_else(|| keyspace.next_place_number(), |own| own.place_number);
            // A wait for a version by name may go on with another number. The old number's place would stay forever.
            for (_, key, registration) in own_attempt.iter().flat_map(|own| &own.registrations) {
                if !wait.wanted.iter().any(|(_, wanted)| *wanted == registration.wanted) {
                    let keys_db = own_attempt.as_ref().map_or(self.db, |own| own.ticket.keys_db);
                    txn.db(keys_db).pass_place_on(&keyspace.key(key), registration.clone());
                }
            }
            let mut blocked = self.leave_ticket(spec, current, wait, number, deadline_us, &mut txn);
            let since_us = own_attempt.as_ref().map(|own| own.since_us);
            blocked.since_us = since_us.or_else(|| self.postponed_since_us()).unwrap_or(now.mono_us);
            drop(txn);
            return self.block(blocked, own_attempt.is_none());
        }
        if ran.wait.is_some() {
            out.clear();
            Reply::new(&mut out, self.protocol).null_array();
        }
        if let Some(mut own_attempt) = own_attempt {
            // The next waiters are served under the same lock on the shards.
            for (_, key, registration) in own_attempt.registrations.drain(..) {
                txn.db(own_attempt.ticket.keys_db).pass_place_on(&keyspace.key(&key), registration);
            }
            self.finish_block(*own_attempt, None);
        }
        let lookups = txn.lookups();
        self.meter.lookups.hits += lookups.hits;
        self.meter.lookups.misses += lookups.misses;
        drop(txn);
        self.argv = current;
        self.end_lap(spec, now);
        self.argv.clear();
        if !self.append_reply(out, ran.error, ran.is_over) {
            return NextStep::Stop(Turn::Abort);
        }
        self.end_command();
        NextStep::Continue
    }
    /// Leaves a ticket at the keys that `argv` waits for. Their shards are locked.
    fn leave_ticket(
        &self,
        spec: &'static CommandSpec,
        argv: Argv,
        wait: Wait,
        place_number: u64,
        deadline_us: Option<u64>,
        txn: &mut Txn<'_>,
    ) -> Blocked {
        let registrations = |(at, wanted): (usize, Wanted)| {
            (at as u32, Box::from(argv.args().at(at)), Registration { wanted, place_number })
        };
        let registrations: Vec<_> = wait.wanted.into_iter().map(registrations).collect();
        let bytes = registrations
            .iter()
            .map(|(_, key, _): &(_, Box<[u8]>, _)| REGISTRATION_BYTES + 2 * key.len())
            .sum();
        let keyspace = txn.keyspace();
        let keys_db = if wait.of_system { keyspace.system_db(self.db) } else { self.db };
        let ticket = self.ticket(spec, wait.argv.unwrap_or(argv), keys_db);
        for (tag, key, registration) in &registrations {
            txn.db(keys_db).wait(&keyspace.key(key), registration.clone(), ticket.clone(), *tag);
        }
        Blocked {
            ticket,
            registrations,
            place_number,
            bytes,
            deadline_us,
            reason: ParkReason::Keys,
            since_us: 0,
            args: None,
            keyless: None,
        }
    }
    /// Checks the ticket of the blocked session. `Some`: the session continues to wait, or must do something else
    /// first.
    pub(super) fn check_ticket(&mut self, now: Now) -> Option<Turn> {
        let State::Blocked(blocked) = &self.state else { return None };
        let deadline_us = blocked.deadline_us;
        let mut phase = blocked.ticket.phase.lock();
        if matches!(*phase, Phase::Waiting(_)) {
            if deadline_us.is_none_or(|at| now.mono_us < at) {
                return Some(Turn::Blocked { until_mono_us: deadline_us });
            }
            *phase = Phase::Ended(WaitEnd::TimedOut);
        }
        let end = match &mut *phase {
            // The ticket stays in the phase `SessionMustTry` while the session makes the attempt.
            Phase::SessionMustTry(argv, _) => Err(std::mem::take(argv)),
            Phase::Ended(end) => Ok(std::mem::replace(end, WaitEnd::SessionClosed)),
            Phase::Waiting(_) => unreachable!("handled above"),
        };
        drop(phase);
        let State::Blocked(blocked) = std::mem::replace(&mut self.state, State::Ready) else { return None };
        self.last_active_us = now.mono_us;
        match end {
            Err(argv) => {
                self.argv = argv;
                self.record_key_wait(blocked.since_us);
                self.flags.caching |= blocked.ticket.caching;
                self.own_attempt = Some(blocked);
                let next = self.execute(now);
                self.end_own_attempt();
                self.record_park(now);
                match next {
                    NextStep::Stop(turn) => Some(turn),
                    _ => None,
                }
            }
            Ok(end) => {
                let (spec, args) = (blocked.ticket.spec, blocked.args.as_ref().map(Argv::args));
                self.record_block(spec, args, blocked.reason, blocked.since_us, now);
                self.finish_wait(*blocked, end)
            }
        }
    }
    fn finish_wait(&mut self, blocked: Blocked, end: WaitEnd) -> Option<Turn> {
        let (keyless, mut served) = (blocked.keyless, None);
        if let WaitEnd::Served { tag, .. } = &end {
            served = Some(*tag);
        }
        self.finish_block(blocked, served);
        match end {
            WaitEnd::Served { out, error, is_over, frame_number, .. } => {
                self.take_messages_until(frame_number);
                if !self.append_reply(out, error, is_over) {
                    return Some(Turn::Abort);
                }
                self.take_messages();
            }
            WaitEnd::Error(text) => self.fail(CommandCounter::Failed, text.as_bytes()),
            // As in redis-server, the client connects again, perhaps to the new primary.
            WaitEnd::RoleChanged => {
                self.fail(CommandCounter::Failed, ROLE_CHANGED.as_bytes());
                self.end_command();
                return Some(self.close());
            }
            WaitEnd::TimedOut | WaitEnd::SessionClosed => {
                let engine = self.engine.clone();
                match keyless {
                    Some(wait) => wait.write_now(&engine, &mut self.reply()),
                    None => self.reply().null_array(),
                }
            }
        }
        self.end_command();
        None
    }
    /// Ends the wait of a session that had to make the attempt itself, unless the attempt is still under way. Call
    /// this after each point at which the session may have made the attempt.
    pub(super) fn end_own_attempt(&mut self) {
        let is_under_way = matches!(self.state, State::Parked | State::OnLane { .. } | State::Blocked(_));
        if !is_under_way && let Some(own_attempt) = self.own_attempt.take() {
            self.finish_block(*own_attempt, None);
        }
    }
    /// Ends all waits, because the session ends.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(own_attempt) = self.own_attempt.take() {
            self.finish_block(*own_attempt, None);
        }
        if matches!(self.state, State::Blocked(_))
            && let State::Blocked(blocked) = std::mem::replace(&mut self.state, State::Ready)
        {
            self.finish_block(*blocked, None);
        }
    }
    fn ticket(&self, spec: &'static CommandSpec, argv: Argv, keys_db: usize) -> Arc<Ticket> {
        Arc::new(Ticket {
            engine: self.engine.clone(),
            client: self.client.clone(),
            spec,
            db: self.db,
            keys_db,
            protocol: self.protocol,
            no_touch: self.flags.no_touch,
            caching: self.flags.caching,
            user: self.identity.user.clone(),
            reply_bytes_max: self.replies.job_bytes_max(self.settings.reply_bytes_max),
            phase: Mutex::new(Phase::Waiting(argv)),
        })
    }
    /// Starts to wait with a ticket. `is_new`: the session has not waited for this command before.
    fn block(&mut self, blocked: Blocked, is_new: bool) -> NextStep {
        let until_mono_us = blocked.deadline_us;
        if is_new {
            self.engine.clients.count_blocked(until_mono_us.is_some());
        }
        self.client.set_ticket(Some(blocked.ticket.clone()));
        self.state = State::Blocked(Box::new(blocked));
        NextStep::Stop(Turn::Blocked { until_mono_us })
    }
    /// Ends a wait and leaves its places. The place that was served is already gone.
    fn finish_block(&mut self, blocked: Blocked, served: Option<u32>) {
        let Blocked { ticket, mut registrations, deadline_us, keyless, .. } = blocked;
        if let Some(wait) = keyless {
            wait.forget(&self.engine, self.client.id);
        }
        self.client.set_ticket(None);
        self.engine.clients.uncount_blocked(deadline_us.is_some());
        let phase = std::mem::replace(&mut *ticket.phase.lock(), Phase::Ended(WaitEnd::SessionClosed));
        let notified_ms = match phase {
            Phase::SessionMustTry(_, notified_ms) => Some(notified_ms),
            Phase::Waiting(_) | Phase::Ended(_) => None,
        };
        registrations.retain(|(tag, key, registration)| {
            let leave = || self.engine.keyspace.try_leave(ticket.keys_db, key, registration.clone());
            served != Some(*tag) && (notified_ms.is_some() || !leave())
        });
        if !registrations.is_empty() {
            // A shard is locked, perhaps for long. A helper thread waits for it, not the worker.
            self.engine.host.reclaim(Box::new(LateUnregistration { ticket, registrations, notified_ms }));
        }
    }
    /// Sends a reply that was made elsewhere. False when the reply is too long, which ends the session.
    fn append_reply(&mut self, out: Chain, error: Option<Vec<u8>>, is_over: bool) -> bool {
        if let Some(code) = error {
            self.count_error(CommandCounter::Failed, &code);
        }
        // The limit may have changed since the reply was made.
        if is_over && self.replies.is_wanted() && !self.replies.is_too_long(out.len()) {
            self.abort_over_output_limit(out.len());
            return false;
        }
        self.reply().raw(out);
        true
    }
}

/// The end of a wait that begins now, on the clock of [`Now::mono_us`]. `None`: no timeout.
fn deadline_us(now: Now, timeout_ms: u64) -> Option<u64> {
    (1..=TIMEOUT_MS_MAX).contains(&timeout_ms).then(|| now.mono_us + timeout_ms * 1000)
}
