//! [`Session`]: one connection as a state machine.

use crate::{Engine, Now, PeerInfo, Wake};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strand_chain::Chain;
use strand_commands::spec::CommandSpec;
use strand_wire::args::Argv;
use strand_wire::reply::Protocol;
use strand_wire::resp::{Decoder, Limits};

/// What the driver does next. In every case: write [`Session::output`] as far as the socket takes it.
pub enum Turn {
    /// Nothing more to do: wait for bytes.
    Read,
    /// More requests are held: write, let others run, call [`Session::run`] again.
    Again,
    /// The output bound is reached: run again only when [`Session::output_drained`]. Go on reading meanwhile while
    /// [`Session::wants_read`], so that a client that writes before it reads cannot lock itself out.
    Flush,
    /// Run this on a helper thread, hand its result to [`Session::lane_done`], then run again. Until then only
    /// reading (while [`Session::wants_read`]) and writing go on; dropping the session cancels the job.
    Lane(LaneJob),
    /// A lane job is still out: as for [`Turn::Lane`], wait for it.
    Parked,
    /// Run again at this time, or when woken.
    Sleep {
        /// On the clock of [`Now::mono_us`].
        until_mono_us: u64,
    },
    /// Write what is queued (for a bounded time), then close.
    Close,
    /// Close at once: the client was killed or went over a limit.
    Abort,
}

/// One connection: bytes in, bytes out.
pub struct Session {
    engine: Arc<Engine>,
    input: Chain,
    out: Chain,
    decoder: Decoder,
}

impl Session {
    /// Opens a session and registers it as a client.
    ///
    /// # Errors
    /// The reply to send before closing: too many clients, or a foreign address in protected mode.
    pub fn open(engine: &Arc<Engine>, peer: PeerInfo, wake: Arc<dyn Wake>, rng_seed: u64, now: Now) -> Result<Session, Chain> {
        let _ = (peer, wake, rng_seed, now);
        Ok(Session { engine: engine.clone(), input: Chain::new(), out: Chain::new(), decoder: Decoder::new(Limits::FULL) })
    }
    /// The client id (CLIENT ID).
    pub fn id(&self) -> u64 {
        0
    }
    /// Where the next socket read goes: straight into a large body, or the chain's spare room. Never empty.
    pub fn read_target(&mut self) -> &mut [u8] {
        self.input.spare()
    }
    /// Says how many bytes of the last [`Session::read_target`] were filled; 0 gives the room back. Must follow it.
    pub fn received(&mut self, n: usize) {
        self.input.filled(n);
    }
    /// False while enough requests are held unexecuted: let the peer's bytes wait in the socket.
    pub fn wants_read(&self) -> bool {
        true
    }
    /// Executes a bounded number of the requests that are held.
    pub fn run(&mut self, now: Now) -> Turn {
        let _ = (now, &self.engine);
        Turn::Read
    }
    /// True when part of a request is held: arm `TCP_QUICKACK`.
    pub fn in_frame(&self) -> bool {
        self.decoder.in_frame()
    }
    /// The replies: write from the front and advance.
    pub fn output(&mut self) -> &mut Chain {
        &mut self.out
    }
    /// True when so little output is left that [`Session::run`] goes on after [`Turn::Flush`].
    pub fn output_drained(&self) -> bool {
        self.out.is_empty()
    }
    /// The parked command's result; call [`Session::run`] next.
    pub fn lane_done(&mut self, done: LaneDone) {
        let _ = done;
    }
    /// When to close the session for idleness (`timeout`), on the clock of [`Now::mono_us`]; call [`Session::run`] then.
    /// Changes with every turn.
    pub fn idle_deadline_us(&self) -> Option<u64> {
        None
    }
}

/// A command that runs on a helper thread.
pub struct LaneJob {
    argv: Argv,
    spec: &'static CommandSpec,
    protocol: Protocol,
    cancel: Arc<AtomicBool>,
}

impl LaneJob {
    /// Runs it; may take long. A panic in it must not take the helper thread down: catch it there and give the session
    /// [`LaneDone::panicked`].
    pub fn run(self, now: Now) -> LaneDone {
        let _ = (now, self.protocol, self.spec);
        LaneDone { argv: self.argv, out: Chain::new() }
    }
    /// Set it to cancel (the session does when it is dropped).
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }
    /// The command's name, for logs.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }
}

/// What came of a [`LaneJob`].
pub struct LaneDone {
    argv: Argv,
    out: Chain,
}

impl LaneDone {
    /// For a job that panicked: the client gets an error.
    pub fn panicked() -> LaneDone {
        LaneDone { argv: Argv::new(), out: Chain::new() }
    }
    /// Bytes of reply.
    pub fn reply_bytes(&self) -> usize {
        let _ = &self.argv;
        self.out.len()
    }
}
