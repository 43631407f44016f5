//! FAILOVER: this server and one of its replicas change their roles, and no acknowledged write is lost.
//!
//! 1. Writes of clients wait ([`crate::pause`]), until a replica has acknowledged the whole stream.
//! 2. This server follows that replica, and sends it `PSYNC id offset FAILOVER`. The replica becomes a primary
//!    ([`Engine::become_primary_for`]) and continues the stream.
//! 3. The waiting writes get the error of a replica. Their clients connect to the new primary.
//!
//! The thread `failover` makes the first step, the thread `replica-link` the second.

use super::Phase;
use crate::following::Takeover;
use crate::{Engine, system_text};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Time between two looks at the replicas.
const LOOK_EVERY_US: u64 = 5_000;

/// What FAILOVER asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailoverRequest {
    /// The address and port of the replica to take over. `None`: the first one that has the whole stream.
    pub(crate) target: Option<(String, u16)>,
    pub(crate) timeout_ms: Option<u64>,
    /// True when the target takes over at the end of the time although it lacks a part of the stream.
    pub(crate) force: bool,
}

/// The progress of FAILOVER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FailoverPhase {
    #[default]
    Off,
    /// Writes wait until a replica has the whole stream.
    WaitsForReplica,
    /// This server follows the replica, which has not accepted yet.
    InProgress,
}

impl FailoverPhase {
    /// The name in INFO.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailoverPhase::Off => "no-failover",
            FailoverPhase::WaitsForReplica => "waiting-for-sync",
            FailoverPhase::InProgress => "failover-in-progress",
        }
    }
}

/// The current FAILOVER.
#[derive(Default)]
pub(super) struct Failover {
    /// The phase, and the number of the FAILOVER.
    state: Mutex<(FailoverPhase, u64)>,
    /// True unless the phase is off. For threads that may not wait for the lock.
    is_on: AtomicBool,
}

impl Failover {
    /// True while a FAILOVER is under way.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }
    /// True while the FAILOVER with this number waits for a replica.
    fn waits(&self, number: u64) -> bool {
        *self.state.lock() == (FailoverPhase::WaitsForReplica, number)
    }
    /// Sets the phase to off. `number`: only of this FAILOVER. Returns the phase before.
    fn end(&self, number: Option<u64>) -> FailoverPhase {
        let mut state = self.state.lock();
        if number.is_some_and(|number| number != state.1) {
            return FailoverPhase::Off;
        }
        self.is_on.store(false, SeqCst);
        std::mem::take(&mut state.0)
    }
}

impl Engine {
    pub(crate) fn failover_phase(&self) -> FailoverPhase {
        self.replication.failover.state.lock().0
    }
    /// True while a FAILOVER is under way: from the pause of writes until another server is the primary.
    pub(crate) fn is_failing_over(&self) -> bool {
        self.replication.failover.is_on()
    }
    /// `FAILOVER`: begins a change of the roles.
    ///
    /// # Errors
    /// The error reply: why no replica can take over.
    pub(crate) fn begin_failover(self: &Arc<Self>, request: FailoverRequest) -> Result<(), String> {
        let replicas = self.replication.state.lock().replicas.clone();
        let mut state = self.replication.failover.state.lock();
        if state.0 != FailoverPhase::Off {
            return Err("ERR FAILOVER already in progress.".into());
        }
        if self.following.is_on() {
            return Err("ERR FAILOVER is not valid when server is a replica.".into());
        }
        if replicas.is_empty() {
            return Err("ERR FAILOVER requires connected replicas.".into());
        }
        if request.force && (request.timeout_ms.is_none() || request.target.is_none()) {
            return Err(
                "ERR FAILOVER with force option requires both a timeout and target HOST and IP.".into()
            );
        }
        if let Some((host, port)) = &request.target {
            let found = replicas.iter().find(|replica| replica.is_at(host, *port));
            let found = found.ok_or("ERR FAILOVER target HOST and PORT is not a replica.")?;
            if found.phase() != Phase::Online {
                return Err("ERR FAILOVER target replica is not online.".into());
            }
        }
        *state = (FailoverPhase::WaitsForReplica, state.1 + 1);
        let number = state.1;
        self.replication.failover.is_on.store(true, SeqCst);
        self.pause.set_for_failover(true);
        drop(state);
        self.host.log("FAILOVER requested: writes wait until a replica has all of them");
        let engine = self.clone();
        let spawned = self.host.spawn("failover", Box::new(move || engine.run_failover(&request, number)));
        spawned.map_err(|why| {
            self.end_failover(number);
            format!("ERR cannot begin: {}", system_text(&why))
        })
    }
    /// The thread: waits for a replica, and then follows it.
    fn run_failover(self: &Arc<Self>, request: &FailoverRequest, number: u64) {
        let until_us =
            request.timeout_ms.map(|ms| self.host.mono_us().saturating_add(ms.saturating_mul(1000)));
        // Writes that were admitted before the pause are in the stream after this.
        self.await_turns();
        let (host, port, offset) = loop {
            if !self.replication.failover.waits(number) {
                return;
            }
            if until_us.is_some_and(|until_us| self.host.mono_us() >= until_us) {
                match (&request.target, request.force) {
                    (Some((host, port)), true) => {
                        self.host.log(&format!("Failover to {host}:{port} time out exceeded, failing over."));
                        break (host.clone(), *port, None);
                    }
                    _ => {
                        let _ = self.abort_failover(Some(number), "Replica never caught up before timeout");
                        return;
                    }
                }
            }
            if self.lane_writes.load(SeqCst) == 0
                && let Some(found) = self.whole_replica(request)
            {
                break found;
            }
            self.host.nap_us(LOOK_EVERY_US);
        };
        self.host.log(&format!("Failover target is {host}:{port}"));
        let followed = {
            // FAILOVER ABORT comes before this or after it.
            let mut state = self.replication.failover.state.lock();
            if *state != (FailoverPhase::WaitsForReplica, number) {
                return;
            }
            state.0 = FailoverPhase::InProgress;
            self.follow(&host, port, Some(Takeover { number, offset }))
        };
        if let Err(why) = followed {
            let _ = self.abort_failover(Some(number), &system_text(&why));
        }
    }
    /// The address and port of a replica that may take over and that has acknowledged the whole stream, and the end of the
    /// stream.
    fn whole_replica(&self, request: &FailoverRequest) -> Option<(String, u16, Option<u64>)> {
        let end = self.stream_end();
        let state = self.replication.state.lock();
        let is_whole = |replica: &&Arc<super::Replica>| {
            let is_target = request.target.as_ref().is_none_or(|(host, port)| replica.is_at(host, *port));
            let speaks =
                replica.phase() == Phase::Online && !replica.facts.is_silent && replica.facts.port != 0;
            is_target && speaks && replica.acked(false) == end
        };
        let replica = state.replicas.iter().find(is_whole)?;
        Some((replica.ip().to_owned(), replica.facts.port, Some(end)))
    }
    /// The replica has taken over by the FAILOVER with this number: waiting writes go on.
    pub(crate) fn end_failover(&self, number: u64) {
        self.replication.failover.end(Some(number));
        self.let_writes_go_on();
    }
    /// Ends the pause of writes, unless another FAILOVER has begun.
    fn let_writes_go_on(&self) {
        {
            let state = self.replication.failover.state.lock();
            if state.0 != FailoverPhase::Off {
                return;
            }
            self.pause.set_for_failover(false);
        }
        self.clients.wake_all();
    }
    /// Gives the change of the roles up: this server stays or becomes the primary. The replica may have accepted already:
    /// then both are primaries. `number`: only the FAILOVER with this number. May block.
    ///
    /// # Errors
    /// The error reply of `FAILOVER ABORT`, when there is no change.
    pub(crate) fn abort_failover(&self, number: Option<u64>, why: &str) -> Result<(), String> {
        match self.replication.failover.end(number) {
            FailoverPhase::Off => return Err("ERR No failover in progress.".into()),
            FailoverPhase::WaitsForReplica => {}
            FailoverPhase::InProgress => self.stop_following(),
        }
        self.host.log(&format!("Failover aborted: {why}"));
        self.let_writes_go_on();
        Ok(())
    }
    /// `PSYNC id offset FAILOVER`: the primary of this server wants this server to take over. Starts a thread for the
    /// change. Then [`crate::following::Following::is_on`] becomes false.
    ///
    /// # Errors
    /// The error reply: this server follows no primary, or not this stream.
    pub(crate) fn become_primary_for(&self, id: &[u8]) -> Result<(), String> {
        if !self.following.is_on() {
            return Err("ERR PSYNC FAILOVER can't be sent to a master.".into());
        }
        if self.replication_id.lock().as_bytes() != id {
            return Err("ERR PSYNC FAILOVER replid must match my replid.".into());
        }
        let Some(engine) = self.me() else { return Err("ERR the server stops".into()) };
        let spawned = self.host.spawn("failover", Box::new(move || engine.stop_following()));
        spawned.map_err(|why| format!("ERR cannot begin: {}", system_text(&why)))
    }
}
