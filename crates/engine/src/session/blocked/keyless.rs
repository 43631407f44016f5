//! Waits that no key ends: WAIT and WAITAOF. A [`Ticket`] ends at its timeout, or when the disk and enough replicas have
//! reached an offset of the journal ([`KeylessWaiter`]).

use super::{Blocked, Phase, Ticket, WaitEnd, deadline_us};
use crate::persist::AofMode;
use crate::replication::AckWait;
use crate::session::Session;
use crate::session::phases::ParkReason;
use crate::session::run::NextStep;
use crate::{Engine, Now, Wake};
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::spec::CommandSpec;
use strand_wire::args::Argv;
use strand_wire::reply::Reply;

/// The error of WAITAOF without an append-only file.
pub(in crate::session) const NO_AOF: &str =
    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// A wait that no key ends: its duration in milliseconds, its reply, and what ends it.
#[derive(Clone, Copy)]
pub(in crate::session) struct KeylessWait {
    pub(in crate::session) timeout_ms: u64,
    /// Writes the reply. Takes `offset`.
    pub(in crate::session) write_reply: fn(&Engine, u64, &mut Reply<'_>),
    /// The journal offset of the end of the writes that the client asks about.
    pub(in crate::session) offset: u64,
    /// True when this server's disk must have the offset.
    pub(in crate::session) until_synced: bool,
    /// The number of replicas that must have the offset.
    pub(in crate::session) replicas: usize,
    /// True when the replicas must have the offset on their disks.
    pub(in crate::session) in_file: bool,
}

impl KeylessWait {
    /// True when the disk and enough replicas have the offset.
    pub(in crate::session) fn is_over(&self, engine: &Engine) -> bool {
        let is_synced = !self.until_synced || engine.persist.aof.gates.is_safe(self.offset);
        is_synced && (self.replicas == 0 || engine.replicas_at(self.offset, self.in_file) >= self.replicas)
    }
    /// The reply as it is now, when the command cannot wait.
    pub(in crate::session) fn write_now(&self, engine: &Engine, reply: &mut Reply<'_>) {
        (self.write_reply)(engine, self.offset, reply);
    }
    fn acks(&self, client: u64) -> AckWait {
        let KeylessWait { in_file, replicas, offset, .. } = *self;
        AckWait { in_file, replicas, offset, client }
    }
    /// Takes the wait of this client out of the engine.
    pub(super) fn forget(&self, engine: &Engine, client: u64) {
        if self.until_synced {
            engine.persist.aof.gates.forget_synced(self.offset, client);
        }
        if self.replicas > 0 {
            engine.forget_acks(self.acks(client));
        }
    }
}

/// Ends a wait when it is over. The disk and the replicas call this, each once.
struct KeylessWaiter {
    ticket: Arc<Ticket>,
    wait: KeylessWait,
}

impl Wake for KeylessWaiter {
    fn queue(&self) {
        let mut phase = self.ticket.phase.lock();
        if !matches!(*phase, Phase::Waiting(_)) {
            return;
        }
        let engine = &self.ticket.engine;
        let end = if self.wait.until_synced && engine.persist.aof.mode() == AofMode::Off {
            WaitEnd::Error(NO_AOF)
        } else if self.wait.is_over(engine) {
            let mut out = Chain::new();
            self.wait.write_now(engine, &mut Reply::new(&mut out, self.ticket.protocol));
            let frame_number = self.ticket.client.inbox.number();
            WaitEnd::Served { out, error: None, is_over: false, tag: 0, frame_number }
        } else {
            return;
        };
        *phase = Phase::Ended(end);
        drop(phase);
        self.ticket.client.wake_handle().queue();
    }
    fn wake_queued(&self) {
        self.ticket.client.wake_handle().wake_queued();
    }
}

impl Session {
    /// Starts a wait that no key ends, for the session's current command.
    pub(in crate::session) fn block_keyless(
        &mut self,
        spec: &'static CommandSpec,
        wait: &KeylessWait,
        now: Now,
    ) -> NextStep {
        let argv = std::mem::take(&mut self.argv);
        let args = Some(Argv::from_slices(&argv.args().iter().collect::<Vec<_>>()));
        let ticket = self.ticket(spec, argv, self.db);
        let wake: Arc<dyn Wake> = Arc::new(KeylessWaiter { ticket: ticket.clone(), wait: *wait });
        let mut ends_now = false;
        if wait.until_synced {
            ends_now = !self.engine.persist.aof.gates.wait_synced(wait.offset, self.client.id, &wake);
        }
        if wait.replicas > 0 {
            self.engine.await_acks(wait.acks(self.client.id), wake.clone());
        }
        if ends_now {
            wake.wake();
        }
        let blocked = Blocked {
            ticket,
            registrations: Vec::new(),
            place_number: 0,
            bytes: 0,
            deadline_us: deadline_us(now, wait.timeout_ms),
            reason: if wait.replicas > 0 { ParkReason::Replicas } else { ParkReason::Disk },
            since_us: now.mono_us,
            args,
            keyless: Some(*wait),
        };
        self.block(blocked, true)
    }
}
