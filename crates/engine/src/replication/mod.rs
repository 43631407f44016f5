//! Replication: other servers follow this one.
//!
//! A replica gets a snapshot of one moment, and then the bytes of the stream that follow that moment. The last
//! `repl-backlog-size` bytes are kept for replicas that come back (*partial resynchronization*). [`stream`] says where
//! the bytes come from: the journal, or the primary of a server that is a replica itself. [`Replica`] is a replica and
//! what waits for its session. [`feed`] is the thread that passes the journal's bytes on, [`sync`] makes and sends
//! snapshots, [`acks`] has the commands that wait for replicas (WAIT), and [`failover`] changes roles. The commands of
//! replicas (REPLCONF, PSYNC) are in [`crate::session`].
//!
//! While the stream is kept for replicas, replication is *on*: from the first replica on, until `repl-backlog-ttl`
//! seconds after the last one has left, and always on a replica. The lock of the append-only file's writer orders the
//! takers of the journal ([`Engine::while_nobody_takes`]). Locks are taken in this order: the lock of the command that a
//! primary's stream applies, the writer's, a long lock on shards, the state of [`crate::following`], `State`, and then a
//! replica's outbox or the stream's id. [`crate::following`] is the other direction.

mod acks;
mod failover;
mod feed;
mod info;
mod replica;
mod stream;
mod sync;
mod waiting;

pub(crate) use acks::AckWait;
pub(crate) use failover::{FailoverPhase, FailoverRequest};
pub(crate) use info::{figures, replica_lines};
pub(crate) use replica::{Facts, Outgrown, Phase, Replica, SnapshotParts, Taken};
pub(crate) use waiting::append_to;

use crate::config::Opt;
use crate::persist::WriteRefusal;
use crate::{Engine, Host, Signal};
use acks::Acks;
use failover::Failover;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use strand_chain::Chain;
use strand_keyspace::Txn;
use strand_keyspace::journal::TakenBytes;
use strand_wire::args::Args;
use stream::Stream;
use waiting::{copy_to, overhead, shared_form};

/// The replicas, and the newest part of the stream. See the module.
pub(crate) struct Replication {
    /// True while the stream is kept for replicas.
    is_on: AtomicBool,
    state: Mutex<State>,
    acks: Acks,
    failover: Failover,
    /// Signalled when the feeding thread has something to do.
    work: Arc<dyn Signal>,
    /// True when a command waits for acknowledgements, so that the replicas must be asked for them.
    wants_acks: AtomicBool,
    pub(crate) totals: Totals,
}

/// Counts since the start, for INFO.
#[derive(Default)]
pub(crate) struct Totals {
    /// Full synchronizations.
    pub(crate) full: AtomicU64,
    /// Accepted partial resynchronizations.
    pub(crate) partial_ok: AtomicU64,
    /// Refused partial resynchronizations.
    pub(crate) partial_err: AtomicU64,
    /// Bytes that were sent to replicas.
    pub(crate) output_bytes: AtomicU64,
    /// Bytes that have come from a primary.
    pub(crate) input_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The last bytes of the stream.
    backlog: Chain,
    /// The stream's offset after the backlog.
    end: u64,
    stream: Stream,
    /// All replicas, the oldest first.
    replicas: Vec<Arc<Replica>>,
    /// The replicas that wait for the next snapshot.
    waiting: Vec<Arc<Replica>>,
    /// True while a thread makes snapshots for replicas.
    is_syncing: bool,
    /// The time on the clock of [`crate::Now::mono_us`] since which no replica is connected.
    alone_since_us: Option<u64>,
}

impl State {
    /// The stream's offset of the first byte of the backlog.
    fn start(&self) -> u64 {
        self.end - self.backlog.len() as u64
    }
    /// Keeps new bytes of the stream and gives them to the replicas. `end`: the stream's offset after them.
    fn append(&mut self, bytes: &Chain, end: u64, backlog_bytes_max: usize) {
        // The backlog has blocks of its own, so that what waits is memory besides the backlog.
        let skipped = bytes.len().saturating_sub(backlog_bytes_max);
        if skipped > 0 {
            self.backlog.clear();
        }
        let mut kept = bytes.share();
        kept.advance(skipped);
        copy_to(&mut self.backlog, &kept);
        self.end = end;
        let excess = self.backlog.len().saturating_sub(backlog_bytes_max);
        self.backlog.advance(excess);
        let Some((last, others)) = self.replicas.split_last() else { return };
        // See the module `waiting`.
        match others.is_empty() {
            true => last.append(bytes),
            false => {
                let piece = shared_form(bytes);
                let overhead_bytes = overhead(&piece, self.replicas.len());
                self.replicas.iter().for_each(|replica| replica.append_shared(&piece, overhead_bytes));
            }
        }
    }
}

impl Replication {
    pub(crate) fn new(host: &dyn Host) -> Replication {
        Replication {
            is_on: AtomicBool::new(false),
            state: Mutex::default(),
            acks: Acks::default(),
            failover: Failover::default(),
            work: host.signal().into(),
            wants_acks: AtomicBool::new(false),
            totals: Totals::default(),
        }
    }
    /// True while the stream is kept for replicas.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }
    /// True while the stream is the journal, so that the journal must be on.
    pub(crate) fn needs_journal(&self) -> bool {
        self.is_on() && !self.state.lock().stream.is_from_primary
    }
    /// The function with which the journal wakes the feeding thread.
    pub(crate) fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let work = self.work.clone();
        Box::new(move || work.notify())
    }
    /// CONFIG RESETSTAT.
    pub(crate) fn reset_totals(&self) {
        let Totals { full, partial_ok, partial_err, output_bytes, input_bytes } = &self.totals;
        [full, partial_ok, partial_err, output_bytes, input_bytes]
            .iter()
            .for_each(|total| total.store(0, Relaxed));
    }
    /// Number of replicas.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().replicas.len()
    }
    /// Bytes of the backlog.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        if self.is_on() { self.state.lock().backlog.len() as u64 } else { 0 }
    }
    /// Memory of what waits for the replicas, besides the backlog.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        if !self.is_on() {
            return 0;
        }
        let state = self.state.lock();
        let of_replica = |replica: &Arc<Replica>| {
            let (waiting, overhead) = replica.waiting();
            // A replica that came back shares what it got of the backlog.
            let first = state.end.saturating_sub(waiting).max(state.start());
            waiting - replica.resumed_until().saturating_sub(first).min(waiting) + overhead
        };
        // Replicas share the bytes of the stream.
        state.replicas.iter().map(of_replica).max().unwrap_or(0)
    }
}

impl Engine {
    /// Takes the next bytes of the journal. All takers of the journal call this, with the lock of the append-only file's
    /// writer.
    pub(crate) fn take_journal(&self, out: &mut Chain) -> TakenBytes {
        let taken = self.keyspace.journal().take(out);
        if self.replication.is_on() && !out.is_empty() {
            let backlog_bytes_max = self.config.number(Opt::ReplBacklogSize) as usize;
            self.replication.state.lock().append_journal(out, taken.end, backlog_bytes_max);
        }
        taken
    }
    /// True when this server's replicas get the messages that its clients publish. A replica's own replicas only get the
    /// primary's stream.
    pub(crate) fn passes_messages_on(&self) -> bool {
        self.replication.is_on() && !self.following.is_on()
    }
    /// Adds a PUBLISH or SPUBLISH to the stream of the replicas. With `txn`, replicas run it after the effects of this
    /// transaction, and otherwise now.
    pub(crate) fn pass_message_on(&self, args: Args<'_>, txn: Option<&mut Txn<'_>>) {
        if !self.passes_messages_on() {
            return;
        }
        let command = [args.at(0), args.at(1), args.at(2)];
        match txn {
            // A script that reads a view has the transaction of a draft.
            Some(txn) if std::ptr::eq(txn.keyspace(), &*self.keyspace) => txn.append_for_replicas(&command),
            _ => self.keyspace.journal().append_for_replicas(&command),
        }
    }
    /// `PSYNC`: continues a replica's stream after an interruption, if the backlog has what the replica lacks. `offset`: the
    /// number of the next byte that the replica wants; the stream's first byte is 1.
    pub(crate) fn resume_replica(&self, replica: &Arc<Replica>, id: &[u8], offset: i64) -> bool {
        let mut state = self.replication.state.lock();
        let current = self.replication_id.lock().clone();
        let from = offset.checked_sub(1).and_then(|at| u64::try_from(at).ok());
        let Some(from) = from.filter(|at| (state.start()..=state.end).contains(at)) else { return false };
        let second = state.stream.second.as_ref();
        let is_known = current.as_bytes() == id
            || second.is_some_and(|(second, end)| second.as_bytes() == id && from <= *end);
        if !self.replication.is_on() || !is_known {
            return false;
        }
        let reply = match replica.facts.knows_ids {
            true => format!("+CONTINUE {current}\r\n"),
            false => "+CONTINUE\r\n".into(),
        };
        let mut bytes = state.backlog.share();
        bytes.advance((from - state.start()) as usize);
        let sent_bytes = bytes.len();
        replica.resume(&reply, bytes, from..state.end, self.host.mono_us());
        state.replicas.push(replica.clone());
        state.alone_since_us = None;
        drop(state);
        self.host.log(&format!(
            "Partial resynchronization request from {} accepted. Sending {sent_bytes} bytes of backlog starting from offset \
             {offset}.",
            replica.name(),
        ));
        self.replicas_changed();
        self.acknowledged();
        true
    }
    /// Ends a replica, because its connection has ended.
    pub(crate) fn forget_replica(&self, replica: &Arc<Replica>) {
        replica.end();
        let mut state = self.replication.state.lock();
        let is_same = |other: &Arc<Replica>| Arc::ptr_eq(other, replica);
        state.replicas.retain(|other| !is_same(other));
        state.waiting.retain(|other| !is_same(other));
        if state.replicas.is_empty() {
            state.alone_since_us = Some(self.host.mono_us());
        }
        drop(state);
        self.host.log(&format!("Connection with replica {} lost.", replica.name()));
        self.replicas_changed();
    }
    /// Disconnects all replicas, and gives the stream a new id: the data was replaced without the journal. The replicas
    /// come back and get all data.
    pub(crate) fn restart_replication(&self) {
        if !self.replication.is_on() {
            return;
        }
        let mut state = self.replication.state.lock();
        // As in redis-server, DEBUG RELOAD on a replica changes nothing about the stream.
        if state.stream.is_from_primary {
            return;
        }
        state.backlog = Chain::new();
        state.stream.second = None;
        state.disconnect();
        *self.replication_id.lock() = self.new_replication_id();
    }
    /// A new id of a stream: 40 hexadecimal digits.
    pub(crate) fn new_replication_id(&self) -> String {
        let mut bytes = [0; 20];
        // Without randomness from the system, the clock makes ids of one process differ.
        if self.host.random_bytes(&mut bytes).is_err() {
            let mut rng = fastrand::Rng::with_seed(self.facts.run_id_seed ^ self.host.mono_us());
            rng.fill(&mut bytes);
        }
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
    /// Call this when replicas or their acknowledgements have changed, the options about them, or whether this server is a
    /// replica. Refuses writes while it is one, or while too few replicas are near (`min-replicas-to-write`).
    pub(crate) fn replicas_changed(&self) {
        let wanted = self.config.number(Opt::MinReplicasToWrite);
        // The lock orders the decisions of several threads.
        let state = self.replication.state.lock();
        let (follows, is_read_only) = (self.following.is_on(), self.is_read_only_replica());
        let listens_differently = self.following.own_keys.set_noting(follows && !is_read_only);
        let near = self.near_replicas(&state).unwrap_or(usize::MAX);
        let refusal = match follows {
            true if is_read_only => WriteRefusal::ReadOnlyReplica,
            false if i64::try_from(near).is_ok_and(|near| near < wanted) => WriteRefusal::TooFewReplicas,
            _ => WriteRefusal::None,
        };
        self.persist.set_replication(follows, refusal);
        drop(state);
        if listens_differently {
            self.update_key_listeners();
        }
    }
    /// Number of replicas that have acknowledged within `min-replicas-max-lag` seconds. `None`: the options demand none.
    fn near_replicas(&self, state: &State) -> Option<usize> {
        let lag_s_max = self.config.number(Opt::MinReplicasMaxLag);
        if self.config.number(Opt::MinReplicasToWrite) <= 0 || lag_s_max <= 0 {
            return None;
        }
        let now_us = self.host.mono_us();
        let is_near = |replica: &&Arc<Replica>| {
            replica.phase() == Phase::Online && replica.lag_s(now_us) <= lag_s_max as u64
        };
        Some(state.replicas.iter().filter(is_near).count())
    }
}
