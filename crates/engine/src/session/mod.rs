//! [`Session`]: one connection as a state machine.
//!
//! The driver reads into [`Session::read_target`], calls [`Session::run`] and obeys the [`Turn`]. [`run`](mod@run)
//! executes commands, [`lane`] makes jobs of slow commands, [`commands`] has the commands that belong to sessions. A
//! session knows no socket and no clock: the driver passes bytes and times.

mod blocked;
mod commands;
mod cut_off;
mod data;
mod framing;
mod gates;
mod lane;
mod laps;
mod look_ahead;
mod multi;
mod needs;
mod on_lane;
mod permit;
mod phases;
mod rehearsal;
mod run;
mod samples;
mod script;
mod session_command;
mod settings;
mod state;
mod subscriptions;
mod transaction;
mod watch;

pub(crate) use blocked::Ticket;
pub(crate) use commands::{GROUPS as SESSION_GROUPS, REDIS_VERSION, database_to_select, load_library};
pub(crate) use cut_off::CutOff;
pub use lane::{LaneDone, LaneJob};
pub(crate) use permit::DeniedCommand;
pub(crate) use phases::{PARK_REASONS, ParkReason, Waits};
pub(crate) use script::replay as replay_script;
pub(crate) use session_command::{CommandKind, DetachedContext, InFiles, InScripts, SessionCommand, kind_of};

use crate::clients::{Client, ClientFacts};
use crate::pubsub::Subscriptions;
use crate::stats::{Stat, Tally};
use crate::{Engine, Now, PeerInfo, Wake};
use blocked::Blocked;
use commands::ReplicaSession;
use framing::{Replies, Requests};
use laps::Laps;
use multi::Queue;
use phases::Parked;
use settings::SessionSettings;
use state::{
    ClientFlags, DiskWait, Identity, LoginWait, OutputWatch, ReplyMode, RetryState, Sample, ShutdownOutcome,
    State, TurnMeter,
};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strand_chain::Chain;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};
use subscriptions::Progress;
use transaction::Transaction;
use watch::Watch;

/// Maximum number of commands that a session executes in one turn. Larger commands end the turn earlier.
pub const COMMANDS_PER_TURN_MAX: usize = 256;
/// A session with more unwritten output executes nothing until the output has drained.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// When a client neither reads nor lets the server read for this long, the session executes more requests although its
/// output has not drained. Such a client writes all its requests before it reads the first reply, and waits until the
/// server takes them. redis-server never stops executing. The session continues within `client-output-buffer-limit` and
/// `maxmemory-clients`, until the client has read everything.
const STALL_US: u64 = 100_000;
/// A session over its output bound continues when at most one part in `OUTPUT_RESUME_PART` of the bound is left.
const OUTPUT_RESUME_PART: usize = 4;
/// When at most this many bytes are unwritten, an authenticated session continues.
pub const OUTPUT_RESUME_BYTES: usize = OUTPUT_BYTES_MAX / OUTPUT_RESUME_PART;
/// A session with this many bytes of unexecuted requests reads no more. The limit is generous: a client may send all
/// its requests before it reads the first reply, and requests need less room than their replies.
pub const READ_AHEAD_BYTES_MAX: usize = 64 << 20;
/// The value of [`READ_AHEAD_BYTES_MAX`] before authentication, while a password is set. An unknown client gets
/// little memory.
pub const UNAUTHENTICATED_READ_AHEAD_BYTES_MAX: usize = 32 * 1024;
/// The value of [`OUTPUT_BYTES_MAX`] before authentication, while a password is set.
pub const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// `login-timeout` does not end a first request that is longer than this, because its head has arrived and the rest
/// is a body.
const FIRST_HEAD_BYTES_MAX: usize = 64 * 1024;

/// The driver's next step. Before every step the driver writes [`Session::output`] as far as the socket accepts it.
pub enum Turn {
    /// The session has nothing more to do and waits for bytes.
    Read,
    /// More requests are held. Write, let other sessions run, call [`Session::run`] again.
    Again,
    /// The output bound is reached. Run again only when [`Session::output_drained`]. Read on while
    /// [`Session::wants_read`], so that a client that writes before it reads does not deadlock.
    Flush,
    /// Run this job on a helper thread, hand its result to [`Session::lane_done`], then run again. Meanwhile only
    /// read (while [`Session::wants_read`]) and write. Dropping the session cancels the job.
    Lane(Box<LaneJob>),
    /// A lane job is out, the reply waits for the disk, or the next command waits for a long lock or for subscribers.
    /// Wait for the wake-up. Read and write as for [`Turn::Lane`].
    AwaitWake,
    /// The current command waits for data. Run again after a wake-up or at this time. Read on while
    /// [`Session::wants_read`]. Drop the session when the client disconnects.
    Blocked {
        /// On the clock of [`Now::mono_us`]. `None`: no timeout.
        until_mono_us: Option<u64>,
    },
    /// Run again at this time or after a wake-up. Read on while [`Session::wants_read`].
    Sleep {
        /// The end of the pause, on the clock of [`Now::mono_us`].
        until_mono_us: u64,
    },
    /// Write the queued output (for a bounded time), then close.
    Close,
    /// Close at once: the client was killed, was idle for too long, or exceeded a limit.
    Abort,
}

/// A session: one connection, which turns received bytes into reply bytes.
pub struct Session {
    engine: Arc<Engine>,
    client: Arc<Client>,
    input: Chain,
    replies: Replies,
    requests: Requests,
    /// The current command. It is whole during execution, partly filled between reads, else empty.
    argv: Argv,
    state: State,
    /// Why the session was aborted, for the log.
    abort_reason: &'static str,
    db: usize,
    protocol: Protocol,
    identity: Identity,
    flags: ClientFlags,
    settings: SessionSettings,
    rng: fastrand::Rng,
    meter: TurnMeter,
    output: OutputWatch,
    disk: DiskWait,
    sample: Sample,
    retry: RetryState,
    tally: Tally,
    laps: Laps,
    /// What the current command waits for, or has waited for.
    parked: Option<Box<Parked>>,
    /// Number of the last command, for CLIENT LIST.
    last_command: u32,
    /// Bytes received since the last whole command. `client-query-buffer-limit` bounds them.
    request_bytes: usize,
    /// True when the last [`Session::read_target`] was in a large body.
    reading_body: bool,
    last_active_us: u64,
    /// What the client must do before `login-timeout` passes.
    login_wait: LoginWait,
    /// The commands queued since MULTI.
    queue: Option<Box<Queue>>,
    /// The keys of WATCH.
    watch: Watch,
    /// A transaction for a helper thread, between EXEC and the job.
    outgoing_transaction: Option<Transaction>,
    /// The number of commands of the transaction whose commands the session executes.
    exec_len: Option<usize>,
    subscriptions: Subscriptions,
    /// The progress of the current SUBSCRIBE or UNSUBSCRIBE.
    progress: Progress,
    /// The wait of a session that must make the attempt itself (see [`blocked`]). The session keeps its place in the
    /// queue until it has made the attempt.
    own_attempt: Option<Box<Blocked>>,
    /// A script that is about to move to a helper thread.
    outgoing_script: Option<script::ScriptCall>,
    /// What the client has told about itself as a replica, and its stream.
    replica: Option<Box<ReplicaSession>>,
    /// The outcome of the SHUTDOWN that this session waits for.
    shutdown: Option<ShutdownOutcome>,
}

impl Session {
    /// Opens a session and registers it as a client.
    ///
    /// # Errors
    /// The reply to send before closing: too many clients, or a remote address in protected mode.
    pub fn open(
        engine: &Arc<Engine>,
        peer: PeerInfo,
        wake: Arc<dyn Wake>,
        rng_seed: u64,
        now: Now,
    ) -> Result<Session, Chain> {
        let (slot, framing) = (peer.worker, peer.framing);
        let settings = SessionSettings::of(engine);
        let refusal = if settings.protects && !settings.default_password && !peer.local {
            Some(PROTECTED_MODE)
        } else {
            None
        };
        let max = engine.config.maxclients();
        let client = match refusal {
            Some(text) => Err(text),
            None => engine.clients.add(peer, wake, max, now).ok_or(MAX_CLIENTS),
        };
        let client = client.map_err(|text| {
            engine.stats.add(slot, Stat::Rejected, 1);
            framing::refusal(framing, text)
        })?;
        engine.stats.add(slot, Stat::Connections, 1);
        let authenticated = !settings.password;
        let mut session = Session {
            engine: engine.clone(),
            client,
            input: Chain::new(),
            replies: Replies::new(framing),
            requests: Requests::new(framing, &settings, authenticated),
            argv: Argv::new(),
            state: State::Ready,
            abort_reason: "killed",
            db: 0,
            protocol: Protocol::Resp2,
            identity: Identity {
                user: engine.acl.default_user(),
                authenticated,
                guarded: true,
                is_removed: false,
                login_at_us: None,
            },
            flags: ClientFlags::default(),
            meter: TurnMeter::default(),
            output: OutputWatch {
                bytes_max: OUTPUT_BYTES_MAX,
                unwritten: 0,
                stalled_since_us: now.mono_us,
                over_soft_since_us: None,
            },
            disk: DiskWait::default(),
            sample: Sample { next: crate::diag::first_sample(rng_seed), out_bytes: 0 },
            retry: RetryState::default(),
            settings,
            rng: fastrand::Rng::with_seed(rng_seed),
            tally: Tally::default(),
            laps: Laps::default(),
            parked: None,
            last_command: u32::MAX,
            request_bytes: 0,
            reading_body: false,
            last_active_us: now.mono_us,
            login_wait: LoginWait::Nothing,
            queue: None,
            watch: Watch::default(),
            outgoing_transaction: None,
            exec_len: None,
            subscriptions: Subscriptions::default(),
            progress: Progress::default(),
            own_attempt: None,
            outgoing_script: None,
            replica: None,
            shutdown: None,
        };
        session.update_guard();
        session.update_inbox_limit();
        Ok(session)
    }
    /// Starts `login-timeout`. It runs until the client has logged in (where it must) and has sent a whole request.
    /// Call it before the first turn, for a door with one session per connection.
    pub fn await_login(&mut self, now: Now) {
        self.login_wait = LoginWait::Login { since_us: now.mono_us };
    }
    /// The client id (CLIENT ID).
    pub fn id(&self) -> u64 {
        self.client.id
    }
    /// The peer of the connection.
    pub fn peer(&self) -> &PeerInfo {
        &self.client.peer
    }
    /// The target of the next socket read: the body of a large argument, or the spare room of the chain. Never empty.
    pub fn read_target(&mut self) -> &mut [u8] {
        self.reading_body = false;
        if self.input.is_empty()
            && let Some(body) = self.requests.body_spare()
        {
            self.reading_body = true;
            return body;
        }
        self.input.spare()
    }
    /// Reports how many bytes of the last [`Session::read_target`] were filled. 0 returns the room. Must follow each
    /// `read_target`.
    pub fn received(&mut self, n: usize) {
        if std::mem::take(&mut self.reading_body) {
            self.requests.body_filled(n);
        } else {
            self.input.filled(n);
        }
        self.request_bytes += n;
        self.meter.input_bytes += n as u64;
        self.meter.reads += u64::from(n > 0);
        self.meter.active |= n > 0;
    }
    /// False while the session holds its limit of unexecuted requests. The peer's bytes then wait in the socket.
    pub fn wants_read(&self) -> bool {
        let bytes_max = match self.must_log_in() {
            false => READ_AHEAD_BYTES_MAX.min(self.settings.query_bytes_max),
            true => UNAUTHENTICATED_READ_AHEAD_BYTES_MAX,
        };
        self.input.len() < bytes_max && !matches!(self.state, State::Closing | State::Aborted)
    }
    /// True while part of a request is held. The driver then arms `TCP_QUICKACK`.
    pub fn in_request(&self) -> bool {
        self.requests.in_frame()
    }
    /// The counter of the peer's bytes that are held outside the session. They count as the client's memory.
    pub fn unread_meter(&self) -> Arc<AtomicU64> {
        self.client.unread_bytes.clone()
    }
    /// The replies. The driver writes from the front and advances.
    pub fn output(&mut self) -> &mut Chain {
        if self.disk.offset.is_some() { &mut self.disk.empty_output } else { &mut self.replies.out }
    }
    /// Call this after a write of [`Session::output`]. Bytes that were written do not count as the client's memory.
    pub fn output_written(&self) {
        self.client.set_output_bytes(self.replies.out.len());
    }
    /// Why the session was aborted ([`Turn::Abort`]), for the log.
    pub fn abort_reason(&self) -> &'static str {
        self.abort_reason
    }
    /// True when [`Session::run`] continues after [`Turn::Flush`].
    pub fn output_drained(&self) -> bool {
        self.replies.out.len() <= self.output.bytes_max / OUTPUT_RESUME_PART
    }
    /// When to call [`Session::run`] without an event, on the clock of [`Now::mono_us`]. The client is then idle
    /// (`timeout`), has not logged in (`login-timeout`), is over its soft output limit for too long, or waits for the
    /// server to execute before it reads. Changes with every turn.
    pub fn idle_deadline_us(&self) -> Option<u64> {
        let soft_us = self.settings.output(self.output_class()).soft_us;
        let soft_limit_deadline =
            self.output.over_soft_since_us.map(|since| since.saturating_add(soft_us + 1));
        let deadlines = [
            self.timeout_deadline_us(),
            self.login_deadline_us(),
            soft_limit_deadline,
            self.stall_deadline_us(),
        ];
        deadlines.into_iter().flatten().min()
    }
    /// When the session executes more requests although its output has not drained: input and output are full, and
    /// the client neither reads nor sends.
    fn stall_deadline_us(&self) -> Option<u64> {
        let is_stalled = matches!(self.state, State::Draining) && !self.wants_read() && !self.must_log_in();
        is_stalled.then(|| self.output.stalled_since_us.saturating_add(STALL_US))
    }
    /// True while CLIENT PAUSE keeps a command from beginning.
    pub fn waits_for_pause(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.is_pause())
    }
    /// When the session stops waiting for a login or for the rest of the first request.
    fn login_deadline_us(&self) -> Option<u64> {
        let (since_us, is_awaited) = match (&self.login_wait, &self.state) {
            (LoginWait::Login { since_us }, State::Ready | State::Draining | State::Parked) => {
                (since_us, self.must_log_in())
            }
            (LoginWait::Head { since_us }, State::Ready) => {
                (since_us, (1..=FIRST_HEAD_BYTES_MAX).contains(&self.request_bytes))
            }
            _ => return None,
        };
        let timeout_us = self.settings.login_timeout_us;
        (is_awaited && timeout_us > 0).then(|| since_us.saturating_add(timeout_us))
    }
    /// True while a password is set and the client is not authenticated. The client may run few commands and gets
    /// little memory.
    pub fn must_log_in(&self) -> bool {
        !self.identity.authenticated && self.settings.password
    }
    fn timeout_deadline_us(&self) -> Option<u64> {
        // Subscribers, MONITOR clients and replicas are not idle.
        let is_idle = matches!(self.state, State::Ready | State::Draining)
            && self.settings.timeout_us > 0
            && !self.is_subscriber()
            && !self.is_monitor()
            && !self.is_replica();
        is_idle.then(|| self.last_active_us.saturating_add(self.settings.timeout_us))
    }

    /// The index of the counters of this session's worker.
    fn slot(&self) -> usize {
        self.client.peer.worker
    }
    /// The writer of this command's reply.
    fn reply(&mut self) -> Reply<'_> {
        let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
        Reply::bounded(self.replies.target(), self.protocol, bytes_max)
    }
    /// True while the session executes the commands of a transaction.
    fn in_exec(&self) -> bool {
        self.exec_len.is_some()
    }
    /// Does what [`Session::update_client_info`] does. Counts the current command as redis-server does: its bytes are
    /// still in the query buffer.
    fn update_client_info_for_command(&self, args: Args<'_>) {
        self.update_client_info();
        self.client.update_request(self.request_bytes, args.iter().map(<[u8]>::len).sum());
    }
    /// Does what [`Session::update_client_info`] does, before a script or a transaction of a user whose commands may be
    /// denied: the entry of ACL LOG then shows EVAL or EXEC, and not the command before.
    fn update_info_for_denials(&self) {
        if !self.identity.user.is_unrestricted() {
            self.update_client_info();
        }
    }
    fn update_client_info(&self) {
        let decoded_bytes = self.request_bytes.saturating_sub(self.input.len());
        // As in redis-server, the arguments of an incomplete request count as input.
        let (input_bytes, args_bytes) = match &self.state {
            State::Ready => (self.request_bytes, 0),
            State::Blocked(blocked) => (self.input.len(), decoded_bytes + blocked.bytes()),
            _ => (self.input.len(), decoded_bytes),
        };
        self.client.update(ClientFacts {
            last_us: self.last_active_us,
            command: self.last_command,
            db: self.db,
            resp3: self.protocol == Protocol::Resp3,
            no_evict: self.flags.no_evict,
            no_touch: self.flags.no_touch,
            input_bytes,
            args_bytes,
            queued_bytes: self.queue.as_ref().map_or(0, |queue| queue.bytes()) + self.watch.bytes(),
            watches: !self.watch.is_empty(),
            paused: self.waits_for_pause(),
            queued: self.queue.as_ref().map(|queue| queue.len()).or(self.exec_len),
            output_bytes: self.replies.out.len(),
        });
    }
}

impl Session {
    /// Takes the session out of the engine: it no longer waits, subscribes, watches or is listed. Call this when the
    /// connection ends, before it waits to be closed. Later calls have no effect.
    pub fn leave_engine(&mut self) {
        self.cancel_job();
        self.stop_waiting();
        if self.flags.uses_service {
            // Call this after `cancel_job`, so that a running job sees its cancellation before it starts more work
            // for this client.
            self.engine.host.client_gone(self.client.id);
        }
        self.drop_queue();
        self.unwatch_all();
        self.turn_tracking_off();
        self.end_subscriptions();
        self.leave_monitor();
        self.leave_replication();
        self.engine.long_locks.forget(self.client.id);
        self.engine.clients.remove(self.client.id);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave_engine();
    }
}

const MAX_CLIENTS: &str = "ERR max number of clients reached";

/// redis-server's error for a remote client while no password is set.
const PROTECTED_MODE: &str = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for \
    the default user. In this mode connections are only accepted from the loopback interface. If you want to \
    connect from external computers to Redis you may adopt one of the following solutions: 1) Just disable \
    protected mode sending the command 'CONFIG SET protected-mode no' from the loopback interface by \
    connecting to Redis from the same host the server is running, however MAKE SURE Redis is not publicly \
    accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) \
    Alternatively you can just disable the protected mode by editing the Redis configuration file, and \
    setting the protected mode option to 'no', and then restarting the server. 3) If you started the server \
    manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an \
    authentication password for the default user. NOTE: You only need to do one of the above things in order \
    for the server to start accepting connections from the outside.";
