//! [`Replica`]: a connection that follows this server, and what waits for its session.

use super::waiting::append_to;
use crate::clients::Client;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_chain::Chain;

/// The parts of the snapshot that a replica wants (`REPLCONF rdb-filter-only`). All by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotParts {
    /// The keys of all databases, and the definitions of indexes and sets of patterns.
    pub(crate) data: bool,
    /// The libraries of functions.
    pub(crate) functions: bool,
}

impl Default for SnapshotParts {
    fn default() -> SnapshotParts {
        SnapshotParts { data: true, functions: true }
    }
}

/// What a replica tells about itself with REPLCONF, before PSYNC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The port at which the replica listens. 0: unknown.
    pub(crate) port: u16,
    /// The address of the replica, if the replica has told it.
    pub(crate) ip: Option<String>,
    /// True when the replica wants a snapshot and no stream.
    pub(crate) wants_snapshot_only: bool,
    pub(crate) parts: SnapshotParts,
    /// True when the replica knows partial resynchronization of other streams (`capa psync2`).
    pub(crate) knows_ids: bool,
    /// True when the replica sent SYNC: it acknowledges nothing.
    pub(crate) is_silent: bool,
}

/// What a replica gets at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The snapshot is not complete.
    #[default]
    Waiting,
    /// The replica gets the snapshot.
    Loading,
    /// The replica gets the stream.
    Online,
    /// The connection has ended.
    Gone,
}

/// More waits for the replica than `client-output-buffer-limit replica` allows: this number of bytes. The connection must be
/// closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgrown(pub(crate) u64);

/// A replica. Its session takes what is ready ([`Replica::take`]).
pub(crate) struct Replica {
    pub(crate) client: Arc<Client>,
    pub(crate) facts: Facts,
    outbox: Mutex<Outbox>,
    /// The offset up to which the replica has the stream, and up to which it has the stream on its disk.
    acked: AtomicU64,
    acked_in_file: AtomicU64,
    /// The time of the last acknowledgement, on the clock of [`crate::Now::mono_us`].
    acked_us: AtomicU64,
    /// The hard limit on waiting bytes. `u64::MAX`: none.
    bytes_max: AtomicU64,
    /// The offset up to which the replica got the stream from the backlog.
    resumed_until: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    phase: Phase,
    /// Bytes that the session takes.
    ready: Chain,
    /// The stream after the snapshot, while the replica has no whole snapshot.
    later: Chain,
    /// True when `later` takes the stream.
    keeps: bool,
    /// The offset of the first byte of `later`.
    later_from: u64,
    /// Number of bytes of the stream that the replica was given. What waits beyond them belongs to the snapshot.
    stream_bytes: u64,
    /// Memory of the pieces that replicas share, besides their bytes, when `noted_bytes` waited.
    overhead_bytes: u64,
    noted_bytes: u64,
    /// True when other replicas share bytes that are ready.
    is_shared: bool,
    /// True when the connection ends after what is ready.
    is_last: bool,
    outgrown: Option<Outgrown>,
}

/// What the session takes of a replica's outbox.
pub(crate) struct Taken {
    pub(crate) bytes: Chain,
    /// True when other replicas share some of the bytes.
    pub(crate) is_shared: bool,
    /// True when the connection ends after these bytes.
    pub(crate) is_last: bool,
}

impl Outbox {
    fn bytes(&self) -> u64 {
        (self.ready.len() + self.later.len()) as u64
    }
    /// The waiting bytes to which the limits apply, while `unsent_bytes` wait in the session. The snapshot does not count:
    /// it comes from a file, and this server sends only as much of it as the replica takes.
    fn limited_bytes(&self, unsent_bytes: u64) -> u64 {
        (self.bytes() + unsent_bytes).min(self.stream_bytes)
    }
    /// Removes bytes at the front of `later`, which the snapshot contains.
    fn skip(&mut self, bytes: usize) {
        self.later.advance(bytes);
        self.later_from += bytes as u64;
        self.stream_bytes -= bytes as u64;
    }
    /// The overhead while `waiting_bytes` wait: what has left took its part with it.
    fn overhead_of(&self, waiting_bytes: u64) -> u64 {
        let left_bytes = waiting_bytes.min(self.noted_bytes);
        let part = u128::from(self.overhead_bytes) * u128::from(left_bytes);
        (part / u128::from(self.noted_bytes.max(1))) as u64
    }
    /// The chain that takes `bytes` more bytes of the stream.
    fn stream_target(&mut self, facts: &Facts, bytes: usize) -> Option<&mut Chain> {
        let target = match self.phase {
            Phase::Online => &mut self.ready,
            Phase::Waiting | Phase::Loading if self.keeps && !facts.wants_snapshot_only => &mut self.later,
            Phase::Waiting | Phase::Loading | Phase::Gone => return None,
        };
        self.stream_bytes += bytes as u64;
        Some(target)
    }
}

impl Replica {
    pub(crate) fn new(client: Arc<Client>, facts: Facts, bytes_max: usize) -> Arc<Replica> {
        let replica = Replica {
            client,
            facts,
            outbox: Mutex::default(),
            acked: AtomicU64::new(0),
            acked_in_file: AtomicU64::new(0),
            acked_us: AtomicU64::new(0),
            bytes_max: AtomicU64::new(u64::MAX),
            resumed_until: AtomicU64::new(0),
        };
        replica.set_bytes_max(bytes_max);
        Arc::new(replica)
    }
    /// Sets the hard limit on waiting bytes. 0: none.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(if bytes_max == 0 { u64::MAX } else { bytes_max as u64 }, Relaxed);
    }
    pub(crate) fn phase(&self) -> Phase {
        self.outbox.lock().phase
    }
    /// The replica's own address and port, as far as they are known.
    pub(crate) fn name(&self) -> String {
        match self.facts.port {
            0 => format!("client id #{}", self.client.id),
            port => format!("{}:{port}", self.ip()),
        }
    }
    /// The replica's address.
    pub(crate) fn ip(&self) -> &str {
        let peer = &*self.client.peer.addr;
        let of_peer = || peer.rsplit_once(':').map_or(peer, |(ip, _)| ip.trim_matches(['[', ']']));
        self.facts.ip.as_deref().unwrap_or_else(of_peer)
    }
    /// True when the replica listens at this address and port.
    pub(crate) fn is_at(&self, host: &str, port: u16) -> bool {
        self.facts.port == port && self.ip().eq_ignore_ascii_case(host)
    }
    /// Records an acknowledgement. `in_file`: the offset up to which the replica has the stream on its disk.
    pub(crate) fn acknowledge(&self, offset: u64, in_file: Option<u64>, now_us: u64) {
        self.acked.fetch_max(offset, Relaxed);
        if let Some(offset) = in_file {
            self.acked_in_file.fetch_max(offset, Relaxed);
        }
        self.acked_us.store(now_us, Relaxed);
    }
    /// The offset up to which the replica has the stream, or has it on its disk.
    pub(crate) fn acked(&self, in_file: bool) -> u64 {
        if in_file { &self.acked_in_file } else { &self.acked }.load(Relaxed)
    }
    /// Seconds since the last acknowledgement.
    pub(crate) fn lag_s(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.acked_us.load(Relaxed)) / 1_000_000
    }
    /// True when the replica's session has something to send.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting().0 > 0
    }
    /// Bytes that wait for the replica, here and in its session, and their memory besides the bytes.
    pub(super) fn waiting(&self) -> (u64, u64) {
        let outbox = self.outbox.lock();
        let waiting_bytes = outbox.bytes() + self.client.output_bytes();
        (waiting_bytes, outbox.overhead_of(waiting_bytes))
    }
    /// The waiting bytes to which `client-output-buffer-limit replica` applies: the stream, and not the snapshot.
    /// `unsent_bytes` wait in the session.
    pub(crate) fn limited_bytes(&self, unsent_bytes: usize) -> usize {
        self.outbox.lock().limited_bytes(unsent_bytes as u64) as usize
    }
    /// Takes what is ready.
    ///
    /// # Errors
    /// When too much waited.
    pub(crate) fn take(&self) -> Result<Taken, Outgrown> {
        let mut outbox = self.outbox.lock();
        match outbox.outgrown {
            Some(outgrown) => Err(outgrown),
            None => {
                // The session counts its output after this turn. The bytes must count meanwhile, too.
                let output_bytes = self.client.output_bytes() as usize + outbox.ready.len();
                self.client.set_output_bytes(output_bytes);
                Ok(Taken {
                    bytes: std::mem::take(&mut outbox.ready),
                    is_shared: std::mem::take(&mut outbox.is_shared),
                    is_last: outbox.is_last,
                })
            }
        }
    }
    /// Ends the replica. Nothing more is kept for it.
    pub(super) fn end(&self) {
        *self.outbox.lock() = Outbox { phase: Phase::Gone, ..Outbox::default() };
    }
    /// Begins to keep the stream for a replica that waits for a snapshot. `end`: the offset of the next byte.
    pub(super) fn keep_from(&self, end: u64) {
        let mut outbox = self.outbox.lock();
        (outbox.keeps, outbox.later_from) = (true, end);
    }
    /// The replica lives.
    pub(crate) fn hear(&self, now_us: u64) {
        self.acked_us.store(now_us, Relaxed);
    }
    /// Continues the stream with `bytes` of the backlog. `offsets`: those of the bytes.
    pub(super) fn resume(&self, reply: &str, bytes: Chain, offsets: Range<u64>, now_us: u64) {
        self.acknowledge(offsets.start, None, now_us);
        self.resumed_until.store(offsets.end, Relaxed);
        let mut outbox = self.outbox.lock();
        outbox.phase = Phase::Online;
        outbox.stream_bytes += (reply.len() + bytes.len()) as u64;
        outbox.ready.push_slice(reply.as_bytes());
        outbox.ready.push_links(bytes);
        outbox.is_shared = true;
    }
    /// The offset up to which the replica got the stream from the backlog, whose bytes it shares.
    pub(super) fn resumed_until(&self) -> u64 {
        self.resumed_until.load(Relaxed)
    }
    /// Gives the replica new bytes of the stream.
    pub(super) fn append(&self, bytes: &Chain) {
        self.change(|outbox| {
            if let Some(to) = outbox.stream_target(&self.facts, bytes.len()) {
                append_to(to, bytes);
            }
        });
    }
    /// Does what [`Replica::append`] does with bytes that all replicas share. `overhead_bytes`: see [`overhead`].
    ///
    /// [`overhead`]: super::waiting::overhead
    pub(super) fn append_shared(&self, bytes: &Chain, overhead_bytes: u64) {
        let unsent_bytes = self.client.output_bytes();
        self.change(|outbox| {
            outbox.is_shared = true;
            let waiting_bytes = outbox.bytes() + unsent_bytes;
            if let Some(to) = outbox.stream_target(&self.facts, bytes.len()) {
                to.push_links(bytes.share());
                outbox.overhead_bytes = outbox.overhead_of(waiting_bytes) + overhead_bytes;
                outbox.noted_bytes = waiting_bytes + bytes.len() as u64;
            }
        });
    }
    /// The moment of the snapshot: the stream after `offset` follows the snapshot. `reply` comes first.
    pub(super) fn begin_at(&self, offset: u64, reply: &str) {
        self.change(|outbox| {
            let before = offset.saturating_sub(outbox.later_from) as usize;
            // The journal's bytes before the moment may not be taken yet.
            let here = before.min(outbox.later.len());
            outbox.skip(here);
            outbox.ready.push_slice(reply.as_bytes());
        });
    }
    /// Tells a replica that waits for its snapshot that this server lives.
    pub(super) fn keep_alive(&self) {
        self.change(|outbox| {
            if outbox.phase == Phase::Waiting {
                outbox.ready.push_slice(b"\n");
            }
        });
    }
    /// The snapshot follows.
    pub(super) fn begin_snapshot(&self, header: &str) {
        self.change(|outbox| {
            if outbox.phase == Phase::Waiting {
                outbox.phase = Phase::Loading;
                outbox.ready.push_slice(header.as_bytes());
            }
        });
    }
    /// Gives the replica a part of the snapshot.
    pub(super) fn send_part(&self, bytes: &[u8]) {
        self.change(|outbox| {
            if outbox.phase == Phase::Loading {
                outbox.ready.push_slice(bytes);
            }
        });
    }
    /// The replica has the whole snapshot, and the stream after `offset` follows.
    pub(super) fn go_online(&self, offset: u64, now_us: u64) {
        self.acked_us.store(now_us, Relaxed);
        self.change(|outbox| {
            if outbox.phase != Phase::Loading {
                return;
            }
            if self.facts.wants_snapshot_only {
                outbox.is_last = true;
                return;
            }
            outbox.phase = Phase::Online;
            // What has waited may be shared.
            outbox.is_shared = true;
            let before = offset.saturating_sub(outbox.later_from) as usize;
            outbox.skip(before.min(outbox.later.len()));
            let later = std::mem::take(&mut outbox.later);
            outbox.ready.push_chain(later);
        });
    }
    /// Bytes that the session has not taken or not sent.
    pub(super) fn unsent_bytes(&self) -> u64 {
        self.outbox.lock().ready.len() as u64 + self.client.output_bytes()
    }
    /// Changes the outbox, checks the limit, and wakes the session if it has something to do.
    fn change(&self, change: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox.lock();
        let was_empty = outbox.ready.is_empty();
        change(&mut outbox);
        let bytes = outbox.limited_bytes(self.client.output_bytes());
        if bytes > self.bytes_max.load(Relaxed) && outbox.outgrown.is_none() {
            *outbox = Outbox { phase: Phase::Gone, outgrown: Some(Outgrown(bytes)), ..Outbox::default() };
        }
        let wakes = was_empty && !outbox.ready.is_empty() || outbox.outgrown.is_some() || outbox.is_last;
        drop(outbox);
        if wakes {
            self.client.wake_handle().wake();
        }
    }
}
