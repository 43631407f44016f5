//! Blocking commands: BLPOP and related commands, XREAD and XREADGROUP with BLOCK, WAIT.
//!
//! [`Session::blocking`] makes one attempt. An attempt without a result leaves a [`Ticket`] at the keys while their
//! shards are locked, and the session is parked. A writer that puts something at one of the keys serves the ticket
//! before it unlocks the shard ([`Waiter`]). The writer makes the attempt for the session and wakes it, and the
//! session finds the reply. The pusher, the timeout and CLIENT UNBLOCK race for the ticket's lock. The first one
//! decides.
//!
//! Some attempts are too much for the pusher: a shard under a long lock, thousands of elements, changed rights. The
//! pusher then tells the session to make the attempt itself. The session keeps its place in the queue meanwhile.

use super::multi::lock;
use super::run::NextStep;
use super::waits::ParkReason;
use super::{Session, State, Turn};
use crate::acl::User;
use crate::clients::Client;
use crate::stats::PerCommand;
use crate::{Engine, Now, Wake};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::cost::{self, LONG_ELEMENTS};
use strand_commands::run::{self, Context};
use strand_commands::spec::CommandSpec;
use strand_commands::wait::{Wait, narrowed};
use strand_commands::{dispatch, long};
use strand_keyspace::{Key, KeyHash, Registration, Txn, WaitEvent, Waiter, WaiterOutcome, Wanted};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Longest timeout: a century. A longer one means no timeout.
const TIMEOUT_MS_MAX: u64 = 100 * 365 * 86_400_000;
/// Approximate memory of a wait at one key, without the key's bytes: entries in two tables and in a list.
const PLACE_BYTES: usize = 256;
/// The error for a call with too many arguments. It may not block, because the shards of all its keys would stay
/// locked for too long.
pub(super) const TOO_MANY_KEYS: &str = "ERR too many keys to wait for";

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
const KEY_GONE: &str = "UNBLOCKED the stream key no longer exists";
const GROUP_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

/// What a blocked client leaves at its keys.
pub(crate) struct Ticket {
    engine: Arc<Engine>,
    client: Arc<Client>,
    spec: &'static CommandSpec,
    db: usize,
    /// The database of the keys at which the client waits: `db` or its system companion.
    places_db: usize,
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
    /// The session must make the attempt itself. It was told at this time, in unix milliseconds.
    Coming(Argv, i64),
    /// The wait is over.
    Over(WaitEnd),
}

/// How a wait ended.
pub(super) enum WaitEnd {
    /// Served: the reply, its error code, whether it was cut, the place that was served, and the number of posts to
    /// the client that come before the reply.
    Served { out: Chain, error: Option<Vec<u8>>, is_over: bool, tag: u32, post: u64 },
    /// The wait ended with this error.
    Error(&'static str),
    /// The timeout has passed.
    TimedOut,
    /// The session has ended.
    Left,
}

/// The result of an attempt for the session.
enum Attempt {
    /// The wait is over.
    Over(WaitEnd),
    /// The wait continues: there are not enough elements.
    TooLittle,
    /// The session must make the attempt itself.
    ForSession,
}

/// The session's part of a wait.
pub(super) struct Blocked {
    ticket: Arc<Ticket>,
    /// The keys at which the client waits. Each entry has the tag, the key and the registration.
    places: Vec<(u32, Box<[u8]>, Registration)>,
    turn: u64,
    /// Heap bytes that the waits at these keys take, here and in the shards.
    bytes: usize,
    until_us: Option<u64>,
    /// What the session waits for, and since when on the clock of [`Now::mono_us`].
    on: ParkReason,
    since_us: u64,
    /// The arguments of a wait that no key ends, for the list of commands that waited.
    args: Option<Argv>,
    /// Writes the reply when the timeout ends the wait.
    nothing: WriteEmptyReply,
}

/// Writes the reply of a wait without a result.
pub(super) type WriteEmptyReply = fn(&mut Reply<'_>);

/// A wait that no key ends: its duration in milliseconds and its reply.
pub(super) struct KeylessWait {
    pub(super) timeout_ms: u64,
    pub(super) nothing: WriteEmptyReply,
    /// The wait also ends, with this reply, when the append-only file is on the disk up to this journal offset.
    pub(super) synced: Option<(u64, WriteEmptyReply)>,
}

/// Ends a wait for the disk when the disk has reached an offset.
struct OnDisk {
    ticket: Arc<Ticket>,
    reply: WriteEmptyReply,
}

impl Wake for OnDisk {
    fn wake(&self) {
        let mut phase = self.ticket.phase.lock();
        if !matches!(*phase, Phase::Waiting(_)) {
            return;
        }
        let mut out = Chain::new();
        (self.reply)(&mut Reply::new(&mut out, self.ticket.protocol));
        let post = self.ticket.client.inbox.number();
        *phase = Phase::Over(WaitEnd::Served { out, error: None, is_over: false, tag: 0, post });
        drop(phase);
        self.ticket.client.wake_handle().wake();
    }
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
    pub(super) fn not_served(&self) -> Option<MutexGuard<'_, Phase>> {
        let phase = self.phase.lock();
        (!matches!(*phase, Phase::Over(WaitEnd::Served { .. }))).then_some(phase)
    }
    /// CLIENT UNBLOCK. False when the ticket is already served.
    pub(crate) fn unblock(&self, with_error: bool) -> bool {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Waiting(_)) {
            return false;
        }
        *phase = Phase::Over(if with_error { WaitEnd::Error(UNBLOCKED) } else { WaitEnd::TimedOut });
        drop(phase);
        self.wake();
        true
    }
    /// Makes the attempt with the key in argument `at`.
    fn attempt(&self, txn: &mut Txn<'_>, args: Args<'_>, at: u32) -> Attempt {
        let user = self.engine.acl.current(&self.user);
        if user.is_none_or(|user| !Arc::ptr_eq(&user, &self.user)) {
            return Attempt::ForSession;
        }
        let argv = narrowed(self.spec, args, at as usize);
        let (args, keyspace) = (argv.args(), txn.keyspace());
        let keys = long::keys(self.spec, args, keyspace);
        if !keys.iter().all(|key| txn.try_hold_one_more(key.hash))
            || is_long(self.spec, args, txn, self.db, &keys)
        {
            return Attempt::ForSession;
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
        let post = self.client.inbox.number();
        self.engine.remember(&self.client, self.caching, self.spec, args);
        let ran = run::to_end_or_wait(self.spec, args, txn, &mut out, context);
        if ran.wait.is_some() {
            // BLMOVEM waits until the list has more elements.
            return Attempt::TooLittle;
        }
        Attempt::Over(WaitEnd::Served { out, error: ran.error, is_over: ran.is_over, tag: at, post })
    }
}

impl Waiter for Ticket {
    fn serve(&self, txn: &mut Txn<'_>, _key: &Key<'_>, tag: u32, event: WaitEvent) -> WaiterOutcome {
        let mut phase = self.phase.lock();
        let argv = match &mut *phase {
            Phase::Waiting(argv) => argv,
            Phase::Coming(..) => return WaiterOutcome::AlreadyWoken,
            Phase::Over(_) => return WaiterOutcome::Left,
        };
        if self.client.is_killed() {
            return WaiterOutcome::Left;
        }
        let attempt = match event {
            WaitEvent::Ready => self.attempt(txn, argv.args(), tag),
            WaitEvent::Crowded => Attempt::ForSession,
            WaitEvent::KeyGone => Attempt::Over(WaitEnd::Error(KEY_GONE)),
            WaitEvent::GroupGone => Attempt::Over(WaitEnd::Error(GROUP_GONE)),
        };
        match attempt {
            Attempt::Over(over) => {
                *phase = Phase::Over(over);
                WaiterOutcome::Done
            }
            Attempt::TooLittle => WaiterOutcome::NotEnough,
            Attempt::ForSession => {
                *phase = Phase::Coming(std::mem::take(argv), txn.now_ms());
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
    let positions = dispatch::keys_to_lock(spec, args);
    let each = positions.iter().zip(keys).map(|(at, key)| {
        // Each key is estimated by itself, because each stream of a call has its own ID. An attempt without a result
        // must not count as long: it would go to a helper thread and back for ever.
        let one = narrowed(spec, args, *at);
        cost::elements_at(spec.cost(), one.args(), txn, db, std::slice::from_ref(key))
    });
    each.fold(0, usize::saturating_add) > LONG_ELEMENTS
}

/// Registrations at keys that could not be removed at once.
struct LateUnregistration {
    ticket: Arc<Ticket>,
    places: Vec<(u32, Box<[u8]>, Registration)>,
    /// The session was told at this time (unix milliseconds) to make the attempt and did not. The next waiter gets
    /// its turn.
    told_ms: Option<i64>,
}

impl Drop for LateUnregistration {
    fn drop(&mut self) {
        let (keyspace, db) = (&*self.ticket.engine.keyspace, self.ticket.places_db);
        for (_, key, place) in self.places.drain(..) {
            match self.told_ms {
                Some(told_ms) => keyspace.leave_turn(db, &key, place, told_ms),
                None => keyspace.leave(db, &key, place),
            }
        }
    }
}

impl Session {
    /// Runs a command that waits when it finds nothing.
    pub(super) fn blocking(&mut self, spec: &'static CommandSpec, now: Now) -> NextStep {
        let next = self.try_blocking(spec, now);
        // CLIENT CACHING applies to this command, also when the command runs later.
        self.flags.caching &= matches!(self.state, State::Postponed);
        next
    }
    fn try_blocking(&mut self, spec: &'static CommandSpec, now: Now) -> NextStep {
        // The wait of a session that was told to make the attempt itself.
        let coming = self.coming.take();
        self.last_command = self.engine.stats.ids.of(spec);
        self.lap_begins(spec, now);
        let elements = self.elements(spec);
        self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
        if elements > LONG_ELEMENTS {
            self.laps.take_back();
            self.coming = coming;
            return self.send_to_lane(spec, now);
        }
        let (engine, client) = (self.engine.clone(), self.client.clone());
        let keyspace = &*engine.keyspace;
        let in_hand = std::mem::take(&mut self.argv);
        let args = in_hand.args();
        let keys = long::keys(spec, args, keyspace);
        let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
        let Some(mut txn) = lock(&engine, &client, &keyspace.shards_of(&hashes), now) else {
            drop(keys);
            self.laps.take_back();
            (self.argv, self.coming, self.state) = (in_hand, coming, State::Postponed);
            return NextStep::Stop(Turn::AwaitWake);
        };
        let too_long = is_long(spec, args, &mut txn, self.db, &keys);
        drop(keys);
        if too_long {
            drop(txn);
            self.laps.take_back();
            (self.argv, self.coming) = (in_hand, coming);
            return self.send_to_lane(spec, now);
        }
        if coming.is_none() {
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
        let mut ran = run::to_end_or_wait(spec, args, &mut txn, &mut out, context);
        let until_us = match (&coming, &ran.wait) {
            (Some(coming), _) => coming.until_us,
            (None, wait) => wait.as_ref().and_then(|wait| until(now, wait.timeout_ms)),
        };
        let is_late = coming.is_some() && until_us.is_some_and(|until_us| until_us <= now.mono_us);
        if let Some(wait) = ran.wait.take_if(|_| !is_late) {
            let turn = coming.as_ref().map_or_else(|| keyspace.next_turn(), |coming| coming.turn);
            // A wait for a version by name may continue as a wait for another number. The place of the old number would
            // stay for ever.
            for (_, key, place) in coming.iter().flat_map(|coming| &coming.places) {
                if !wait.wanted.iter().any(|(_, wanted)| *wanted == place.wanted) {
                    let places_db = coming.as_ref().map_or(self.db, |coming| coming.ticket.places_db);
                    txn.db(places_db).leave_turn(&keyspace.key(key), place.clone());
                }
            }
            let mut blocked = self.leave_ticket(spec, in_hand, wait, turn, until_us, &mut txn);
            let since_us = coming.as_ref().map(|coming| coming.since_us);
            blocked.since_us = since_us.or_else(|| self.postponed_since_us()).unwrap_or(now.mono_us);
            drop(txn);
            return self.block(blocked, coming.is_none());
        }
        if ran.wait.is_some() {
            out.clear();
            Reply::new(&mut out, self.protocol).null_array();
        }
        if let Some(mut coming) = coming {
            // The next waiters are served under the same lock on the shards.
            for (_, key, place) in coming.places.drain(..) {
                txn.db(coming.ticket.places_db).leave_turn(&keyspace.key(&key), place);
            }
            self.unblocked(*coming, None);
        }
        let lookups = txn.lookups();
        self.meter.lookups.hits += lookups.hits;
        self.meter.lookups.misses += lookups.misses;
        drop(txn);
        self.argv = in_hand;
        self.lap_ends(spec, now);
        self.argv.clear();
        if !self.take_reply(out, ran.error, ran.is_over) {
            return NextStep::Stop(Turn::Abort);
        }
        self.command_ends();
        NextStep::Continue
    }
    /// Leaves a ticket at the keys that `argv` waits for. Their shards are locked.
    fn leave_ticket(
        &self,
        spec: &'static CommandSpec,
        argv: Argv,
        wait: Wait,
        turn: u64,
        until_us: Option<u64>,
        txn: &mut Txn<'_>,
    ) -> Blocked {
        let places = |(at, wanted): (usize, Wanted)| {
            (at as u32, Box::from(argv.args().at(at)), Registration { wanted, turn })
        };
        let places: Vec<_> = wait.wanted.into_iter().map(places).collect();
        let bytes = places.iter().map(|(_, key, _): &(_, Box<[u8]>, _)| PLACE_BYTES + 2 * key.len()).sum();
        let keyspace = txn.keyspace();
        let places_db = if wait.of_system { keyspace.system_db(self.db) } else { self.db };
        let ticket = self.ticket(spec, wait.argv.unwrap_or(argv), places_db);
        for (tag, key, place) in &places {
            txn.db(places_db).wait(&keyspace.key(key), place.clone(), ticket.clone(), *tag);
        }
        let nothing: WriteEmptyReply = |reply| reply.null_array();
        Blocked {
            ticket,
            places,
            turn,
            bytes,
            until_us,
            on: ParkReason::Keys,
            since_us: 0,
            args: None,
            nothing,
        }
    }
    /// Starts a wait that no key ends, for the session's current command.
    pub(super) fn block_for(&mut self, spec: &'static CommandSpec, wait: &KeylessWait, now: Now) -> NextStep {
        let argv = std::mem::take(&mut self.argv);
        let words: Vec<&[u8]> = argv.args().iter().collect();
        let args = Some(Argv::from_slices(&words));
        let ticket = self.ticket(spec, argv, self.db);
        if let Some((offset, reply)) = wait.synced {
            let wake: Arc<dyn Wake> = Arc::new(OnDisk { ticket: ticket.clone(), reply });
            if !self.engine.persist.aof.gates.wait_synced(offset, self.client.id, &wake) {
                wake.wake();
            }
        }
        let until_us = until(now, wait.timeout_ms);
        let on = if wait.synced.is_some() { ParkReason::Disk } else { ParkReason::Replicas };
        let (places, since_us, nothing) = (Vec::new(), now.mono_us, wait.nothing);
        self.block(Blocked { ticket, places, turn: 0, bytes: 0, until_us, on, since_us, args, nothing }, true)
    }
    /// Checks the ticket of the blocked session. `Some`: the session continues to wait, or must do something else
    /// first.
    pub(super) fn look_at_ticket(&mut self, now: Now) -> Option<Turn> {
        let State::Blocked(blocked) = &self.state else { return None };
        let until_us = blocked.until_us;
        let mut phase = blocked.ticket.phase.lock();
        if matches!(*phase, Phase::Waiting(_)) {
            if until_us.is_none_or(|until_us| now.mono_us < until_us) {
                return Some(Turn::Blocked { until_mono_us: until_us });
            }
            *phase = Phase::Over(WaitEnd::TimedOut);
        }
        let over = match &mut *phase {
            // The ticket stays in the phase `Coming` while the session makes the attempt.
            Phase::Coming(argv, _) => Err(std::mem::take(argv)),
            Phase::Over(over) => Ok(std::mem::replace(over, WaitEnd::Left)),
            Phase::Waiting(_) => unreachable!("seen to above"),
        };
        drop(phase);
        let State::Blocked(blocked) = std::mem::replace(&mut self.state, State::Ready) else { return None };
        self.last_active_us = now.mono_us;
        match over {
            Err(argv) => {
                self.argv = argv;
                self.has_waited_for_keys(blocked.since_us);
                self.coming = Some(blocked);
                let next = self.execute(now);
                self.has_come();
                self.was_parked(now);
                match next {
                    NextStep::Stop(turn) => Some(turn),
                    _ => None,
                }
            }
            Ok(over) => {
                let (spec, args) = (blocked.ticket.spec, blocked.args.as_ref().map(Argv::args));
                self.was_blocked(spec, args, blocked.on, blocked.since_us, now);
                self.wait_ends(*blocked, over)
            }
        }
    }
    fn wait_ends(&mut self, blocked: Blocked, over: WaitEnd) -> Option<Turn> {
        let (nothing, mut served) = (blocked.nothing, None);
        if let WaitEnd::Served { tag, .. } = &over {
            served = Some(*tag);
        }
        self.unblocked(blocked, served);
        match over {
            WaitEnd::Served { out, error, is_over, post, .. } => {
                self.take_post_until(post);
                if !self.take_reply(out, error, is_over) {
                    return Some(Turn::Abort);
                }
                self.take_post();
            }
            WaitEnd::Error(text) => self.fail(PerCommand::Failed, text.as_bytes()),
            WaitEnd::TimedOut | WaitEnd::Left => nothing(&mut self.reply()),
        }
        self.command_ends();
        None
    }
    /// Call this after a session that was told to make the attempt may have made it. Ends its wait, unless the
    /// attempt is still under way.
    pub(super) fn has_come(&mut self) {
        let on_its_way = matches!(self.state, State::Postponed | State::OnLane { .. } | State::Blocked(_));
        if !on_its_way && let Some(coming) = self.coming.take() {
            self.unblocked(*coming, None);
        }
    }
    /// Ends all waits, because the session ends.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.unblocked(*coming, None);
        }
        if matches!(self.state, State::Blocked(_))
            && let State::Blocked(blocked) = std::mem::replace(&mut self.state, State::Ready)
        {
            self.unblocked(*blocked, None);
        }
    }
    fn ticket(&self, spec: &'static CommandSpec, argv: Argv, places_db: usize) -> Arc<Ticket> {
        Arc::new(Ticket {
            engine: self.engine.clone(),
            client: self.client.clone(),
            spec,
            db: self.db,
            places_db,
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
        let until_mono_us = blocked.until_us;
        if is_new {
            self.engine.clients.blocked(until_mono_us.is_some());
        }
        self.client.set_ticket(Some(blocked.ticket.clone()));
        self.state = State::Blocked(Box::new(blocked));
        NextStep::Stop(Turn::Blocked { until_mono_us })
    }
    /// Ends a wait and leaves its places. The place that was served is already gone.
    fn unblocked(&mut self, blocked: Blocked, served: Option<u32>) {
        let Blocked { ticket, mut places, until_us, .. } = blocked;
        self.client.set_ticket(None);
        self.engine.clients.unblocked(until_us.is_some());
        let phase = std::mem::replace(&mut *ticket.phase.lock(), Phase::Over(WaitEnd::Left));
        let told_ms = match phase {
            Phase::Coming(_, told_ms) => Some(told_ms),
            Phase::Waiting(_) | Phase::Over(_) => None,
        };
        places.retain(|(tag, key, place)| {
            let has_left =
                told_ms.is_none() && self.engine.keyspace.try_leave(ticket.places_db, key, place.clone());
            served != Some(*tag) && !has_left
        });
        if !places.is_empty() {
            // A shard is locked, perhaps for long. A helper thread waits for it, not the worker.
            self.engine.host.reclaim(Box::new(LateUnregistration { ticket, places, told_ms }));
        }
    }
    /// Sends a reply that was made elsewhere. False when the reply is too long, which ends the session.
    fn take_reply(&mut self, out: Chain, error: Option<Vec<u8>>, is_over: bool) -> bool {
        if let Some(code) = error {
            self.count_error(PerCommand::Failed, &code);
        }
        // The limit may have changed since the reply was made.
        if is_over && self.replies.is_wanted() && !self.replies.is_too_long(out.len()) {
            self.over_output_limit();
            return false;
        }
        self.reply().raw(out);
        true
    }
}

/// The end of a wait that begins now, on the clock of [`Now::mono_us`]. `None`: no timeout.
fn until(now: Now, timeout_ms: u64) -> Option<u64> {
    (1..=TIMEOUT_MS_MAX).contains(&timeout_ms).then(|| now.mono_us + timeout_ms * 1000)
}
