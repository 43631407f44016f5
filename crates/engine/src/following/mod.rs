//! Following: this server is a replica of another one (REPLICAOF).
//!
//! The thread `replica-link` ([`link`]) connects to the primary, gets a snapshot where the data here cannot be continued
//! ([`snapshot`]), and runs the commands of the stream on the keyspace. It acknowledges the stream once a second, and
//! connects again after an interruption. [`strand_commands::replay`] runs the commands, as for an append-only file.
//!
//! While the server follows, clients may only read. Keys do not expire and are not evicted by themselves: the stream has
//! the removals. A key whose expiry has passed is missing for clients. With `replica-read-only no` clients may write, and
//! the keys that they write expire ([`own_keys`]). Their writes are in no stream of replication. An append-only file gets
//! what the stream changes from this server's own journal. Replicas of this server get the primary's bytes
//! ([`crate::replication`]).
//!
//! The position in the stream outlives the connection and the primary: another primary of the same stream may continue
//! from it. A command is applied, and then the position moves, both under one lock ([`Following::between_commands`]).

mod client;
mod info;
mod link;
mod own_keys;
mod snapshot;
mod wire;

pub(crate) use info::{fields, role, unreachable_primary};
pub(crate) use own_keys::OwnKeys;

use crate::config::Opt;
use crate::{Engine, Host, Signal, system_text};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use strand_chain::Chain;

/// The primary, and how far this server follows it. See the module.
pub(crate) struct Following {
    is_on: AtomicBool,
    state: Mutex<State>,
    /// True from REPLICAOF until the writes that were admitted before are done. Clients may not write meanwhile, also with
    /// `replica-read-only no`.
    is_settling: AtomicBool,
    pub(crate) own_keys: Arc<OwnKeys>,
    /// Locked while a command or a snapshot of the primary is applied, and until [`State::position`] has it.
    applying: Mutex<()>,
    /// Signalled when the link must look at the state.
    changed: Arc<dyn Signal>,
}

#[derive(Default)]
struct State {
    /// The primary's host and port. `None`: this server follows no other.
    primary: Option<(String, u16)>,
    /// The primary that REPLICAOF NO ONE has removed. This server is its replica until clients may write.
    former: Option<(String, u16)>,
    /// How many times a primary was set. The thread of an earlier primary ends.
    number: u64,
    /// Until the primary has been asked to take over, and has accepted.
    takeover: Option<Takeover>,
    phase: Phase,
    position: Position,
    /// The last bytes before `position`, which the replicas of this server have not got yet.
    unpassed: Chain,
    /// The end of what has arrived of the stream, while the stream arrives.
    read_offset: u64,
    /// The time of the last byte from the primary, on the clock of [`crate::Now::mono_us`].
    heard_us: u64,
    /// The time since which there is no connection. `None`: there was none to this primary yet.
    down_since_us: Option<u64>,
    /// Bytes of the snapshot that have arrived, and all of them, if the primary has told the number.
    snapshot_bytes: u64,
    snapshot_bytes_all: Option<u64>,
}

/// How a replica is asked to take over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takeover {
    /// The number of the FAILOVER.
    pub(crate) number: u64,
    /// The end of what the replica has acknowledged. If this server's stream has more when writes have ended, the
    /// replica is not asked. `None`: the replica takes over in any case.
    pub(crate) offset: Option<u64>,
}

/// The end of the part of the primary's stream that the data here has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    /// The stream's id. Empty: the data here is of no stream.
    pub(crate) id: String,
    pub(crate) offset: u64,
    /// The database that the stream has selected.
    pub(crate) db: usize,
}

impl Position {
    /// True when the data is of a stream.
    pub(crate) fn is_known(&self) -> bool {
        !self.id.is_empty()
    }
    /// The auxiliary fields of an RDB file whose data is at this position.
    pub(crate) fn aux_fields(&self) -> Vec<(&'static str, String)> {
        if !self.is_known() {
            return Vec::new();
        }
        vec![
            ("repl-stream-db", self.db.to_string()),
            ("repl-id", self.id.clone()),
            ("repl-offset", self.offset.to_string()),
        ]
    }
}

/// The state of the connection to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is no connection.
    #[default]
    Down,
    /// The connection begins.
    Connecting,
    /// The snapshot arrives or is loaded.
    Snapshot,
    /// The stream arrives.
    Connected,
}

impl State {
    /// The data here is of no stream from now on.
    fn lose_position(&mut self) {
        (self.position, self.unpassed) = (Position::default(), Chain::new());
    }
    /// Sets or removes the primary. The position stays, because another primary may be able to continue from it.
    fn set_primary(&mut self, primary: Option<(String, u16)>) {
        let (number, position) = (self.number + 1, std::mem::take(&mut self.position));
        let unpassed = std::mem::take(&mut self.unpassed);
        // A second REPLICAOF NO ONE finds no primary.
        let former = self.primary.take().or_else(|| self.former.take()).filter(|_| primary.is_none());
        *self = State { primary, former, number, position, unpassed, ..State::default() };
    }
}

impl Following {
    pub(crate) fn new(host: &dyn Host) -> Following {
        Following {
            is_on: AtomicBool::new(false),
            state: Mutex::default(),
            is_settling: AtomicBool::new(false),
            own_keys: Arc::default(),
            applying: Mutex::default(),
            changed: host.signal().into(),
        }
    }
    /// True while this server is a replica.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }
    /// Keeps commands of the primary's stream from being applied, while the result lives. May block.
    pub(crate) fn between_commands(&self) -> MutexGuard<'_, ()> {
        self.applying.lock()
    }
    /// Does what [`Following::between_commands`] does, but does not wait.
    pub(crate) fn try_between_commands(&self) -> Option<MutexGuard<'_, ()>> {
        self.applying.try_lock()
    }
    /// True while the primary with this number is followed.
    fn is_current(&self, number: u64) -> bool {
        self.state.lock().number == number
    }
    /// Changes the state, unless another primary was set.
    fn update(&self, number: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        if state.number == number {
            change(&mut state);
        }
    }
}

impl Engine {
    /// `REPLICAOF host port`. False when this server follows that primary already. `takeover`: that server is a replica of
    /// this one and is asked to take over.
    pub(crate) fn follow(
        self: &Arc<Self>,
        host: &str,
        port: u16,
        takeover: Option<Takeover>,
    ) -> std::io::Result<bool> {
        let number = {
            let mut state = self.following.state.lock();
            if state.primary.as_ref().is_some_and(|(h, p)| h.eq_ignore_ascii_case(host) && *p == port) {
                return Ok(false);
            }
            let number = state.number + 1;
            self.following.is_settling.store(true, SeqCst);
            state.set_primary(Some((host.to_owned(), port)));
            state.takeover = takeover;
            self.config.set_primary(Some((host, port)));
            self.set_following(&state);
            number
        };
        self.replicas_changed();
        self.following.changed.notify();
        self.host.log(&format!("Following {host}:{port}"));
        let engine = self.clone();
        let spawned = self.host.spawn("replica-link", Box::new(move || engine.run_link(number)));
        if spawned.is_err() {
            self.stop_following();
        }
        spawned.map(|()| true)
    }
    /// Follows the primary of the option `replicaof`, if there is one. Call it when the data is loaded.
    pub fn follow_configured(self: &Arc<Self>) {
        let Some((host, port)) = self.config.primary() else { return };
        if let Err(why) = self.follow(&host, port, None) {
            self.host.warn(&format!("cannot follow {host}:{port}: {}", system_text(&why)));
        }
    }
    /// At the start, before clients: the data is at this position of a stream. A server with `replicaof` continues the
    /// stream. The replicas of another server continue at this position.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn continue_stream(&self, position: Position) -> std::io::Result<()> {
        self.begin_stream_of_primary(&position)?;
        let (Some((host, port)), Some(engine)) = (self.config.primary(), self.me()) else {
            self.begin_own_stream(true);
            return Ok(());
        };
        // The server is a replica before its first client, because the data must not change any more.
        self.following.state.lock().position = position;
        engine.follow(&host, port, None).map(drop).inspect_err(|_| {
            self.following.state.lock().lose_position();
            self.begin_own_stream(false);
        })
    }
    /// `REPLICAOF NO ONE`: this server accepts writes again. Its data stays. Waits for the command of the stream that runs
    /// now. May block.
    pub(crate) fn stop_following(&self) {
        {
            let mut state = self.following.state.lock();
            state.set_primary(None);
            self.config.set_primary(None);
        }
        self.following.changed.notify();
        let _applied = self.following.applying.lock();
        let is_of_stream = {
            let mut state = self.following.state.lock();
            // Another client may have set a primary meanwhile, or has ended the following.
            if state.primary.is_some() || !self.following.is_on() {
                return;
            }
            self.pass_on(&mut state);
            state.position.is_known()
        };
        // Clients may write from the next step on, so the stream is this server's own before.
        self.begin_own_stream(is_of_stream);
        {
            let mut state = self.following.state.lock();
            // Another client may have set a primary meanwhile.
            if state.primary.is_none() {
                state.lose_position();
            }
            self.set_following(&state);
        }
        self.replicas_changed();
        self.host.log("MASTER MODE enabled: this server is a primary now");
    }
    /// The position in the primary's stream, when the replicas of this server have got the stream up to this position.
    /// `None`: the stream of this server is its own. The caller keeps commands from being applied.
    pub(crate) fn passed_position(&self) -> Option<Position> {
        let mut state = self.following.state.lock();
        if !state.position.is_known() || state.primary.is_none() {
            return None;
        }
        self.pass_on(&mut state);
        Some(state.position.clone())
    }
    /// Gives the replicas of this server what they have not got yet of the applied stream.
    fn pass_on(&self, state: &mut State) {
        if !state.unpassed.is_empty() {
            self.pass_stream_on(&std::mem::take(&mut state.unpassed), state.position.offset);
        }
    }
    /// True when this server is a replica whose data is not, or not yet, its primary's.
    pub(crate) fn has_lost_primary(&self) -> bool {
        self.following.is_on() && self.following.state.lock().phase != Phase::Connected
    }
    /// True while the primary decides how large the data is (`replica-ignore-maxmemory`).
    pub(crate) fn ignores_maxmemory(&self) -> bool {
        self.following.is_on() && self.config.number(Opt::ReplicaIgnoreMaxmemory) != 0
    }
    /// Sets the flags that other threads read. Call it under the state's lock, so that the flags are of the last change.
    fn set_following(&self, state: &State) {
        let on = state.primary.is_some();
        self.following.is_on.store(on, SeqCst);
        self.keyspace.settings().keeps_expired.store(on.into(), SeqCst);
        // The host has logged the reason of a failure.
        let _ = self.set_oom_score();
        if !on {
            if self.following.own_keys.set_noting(false) {
                self.update_key_listeners();
            }
            self.following.own_keys.forget();
        }
    }
    /// True when clients may not write, because this server is a replica.
    pub(crate) fn is_read_only_replica(&self) -> bool {
        let is_read_only = self.config.number(Opt::ReplicaReadOnly) != 0;
        self.following.is_on() && (is_read_only || self.following.is_settling.load(SeqCst))
    }
    /// True when clients may not read, because there is no connection to the primary (`replica-serve-stale-data no`).
    pub(crate) fn is_data_stale(&self) -> bool {
        self.config.number(Opt::ReplicaServeStaleData) == 0 && self.has_lost_primary()
    }
}
