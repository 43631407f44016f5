//! Waits that no key ends: WAIT and WAITAOF. A [`Ticket`] ends at its timeout, or when the disk has reached an offset of
//! the journal ([`DiskWaiter`]).

use super::{Blocked, Phase, Ticket, WaitEnd, deadline_us};
use crate::persist::AofMode;
use crate::session::Session;
use crate::session::run::NextStep;
use crate::session::waits::ParkReason;
use crate::{Engine, Now, Wake};
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::spec::CommandSpec;
use strand_wire::args::Argv;
use strand_wire::reply::Reply;

/// The error of WAITAOF without an append-only file.
pub(in crate::session) const NO_AOF: &str =
    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// Writes the reply at the end of a wait without a result. Takes [`KeylessWait::offset`].
pub(super) type WriteEmptyReply = fn(&Engine, u64, &mut Reply<'_>);

/// A wait that no key ends: its duration in milliseconds and its reply.
pub(in crate::session) struct KeylessWait {
    pub(in crate::session) timeout_ms: u64,
    pub(in crate::session) write_reply: WriteEmptyReply,
    /// The journal offset of the end of the writes that the client asks about.
    pub(in crate::session) offset: u64,
    /// True when the wait also ends when the disk has reached the offset.
    pub(in crate::session) until_synced: bool,
}

impl KeylessWait {
    /// The reply as it is now, when the command cannot wait.
    pub(in crate::session) fn write_now(&self, engine: &Engine, reply: &mut Reply<'_>) {
        (self.write_reply)(engine, self.offset, reply);
    }
}

/// Ends a wait for the disk when the disk has reached an offset.
struct DiskWaiter {
    ticket: Arc<Ticket>,
    write_reply: WriteEmptyReply,
    offset: u64,
}

impl Wake for DiskWaiter {
    fn queue(&self) {
        let mut phase = self.ticket.phase.lock();
        if !matches!(*phase, Phase::Waiting(_)) {
            return;
        }
        let engine = &self.ticket.engine;
        let end = match engine.persist.aof.mode() {
            AofMode::Off => WaitEnd::Error(NO_AOF),
            AofMode::Starting | AofMode::On => {
                let mut out = Chain::new();
                (self.write_reply)(engine, self.offset, &mut Reply::new(&mut out, self.ticket.protocol));
                let frame_number = self.ticket.client.inbox.number();
                WaitEnd::Served { out, error: None, is_over: false, tag: 0, frame_number }
            }
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
        let KeylessWait { timeout_ms, write_reply, offset, until_synced } = *wait;
        if until_synced {
            let wake: Arc<dyn Wake> = Arc::new(DiskWaiter { ticket: ticket.clone(), write_reply, offset });
            if !self.engine.persist.aof.gates.wait_synced(offset, self.client.id, &wake) {
                wake.wake();
            }
        }
        let blocked = Blocked {
            ticket,
            registrations: Vec::new(),
            place_number: 0,
            bytes: 0,
            deadline_us: deadline_us(now, timeout_ms),
            reason: if until_synced { ParkReason::Disk } else { ParkReason::Replicas },
            since_us: now.mono_us,
            args,
            write_empty: write_reply,
            offset,
        };
        self.block(blocked, true)
    }
}
