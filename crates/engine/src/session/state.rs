//! What a [`super::Session`] consists of besides its buffers: the user, flags, meters, and what it waits for.

use super::blocked::Blocked;
use super::lane;
use crate::acl::User;
use std::sync::Arc;
use strand_chain::Chain;
use strand_commands::spec::CommandSpec;
use strand_keyspace::Lookups;

/// The user that a session acts for.
pub(super) struct Identity {
    pub(super) user: Arc<User>,
    pub(super) authenticated: bool,
    /// Not authenticated, or a user with limited rights: the gate checks each command.
    pub(super) guarded: bool,
    /// The user was removed: the session ends.
    pub(super) is_removed: bool,
    /// When the login in hand may be tried, on the clock of [`Now::mono_us`]: too many have failed before.
    pub(super) login_at_us: Option<u64>,
}

/// What the client has asked of its connection.
#[derive(Default)]
pub(super) struct ClientFlags {
    /// CLIENT NO-EVICT.
    pub(super) no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub(super) no_touch: bool,
    /// CLIENT CACHING was called for the next command.
    pub(super) caching: bool,
    /// A service may keep something for this client.
    pub(super) uses_service: bool,
}

/// What a turn may do and has done.
#[derive(Default)]
pub(super) struct TurnMeter {
    /// Elements of work left in this turn.
    pub(super) work_left: isize,
    /// Requests ahead whose keys were prefetched.
    pub(super) looked_ahead: usize,
    /// Bytes came since the last turn.
    pub(super) active: bool,
    pub(super) input_bytes: u64,
    pub(super) reads: u64,
    /// What reading found in this turn.
    pub(super) lookups: Lookups,
}

/// Whether the client reads its replies.
pub(super) struct OutputWatch {
    /// The session stops while more output than this is unwritten.
    pub(super) bytes_max: usize,
    /// Output left by the last turn: less of it now means that the client reads.
    pub(super) left: usize,
    /// Since when no output left while the session is stopped.
    pub(super) stalled_since_us: u64,
    /// Since when the output is over its soft limit.
    pub(super) over_soft_since_us: Option<u64>,
}

/// Replies that wait for the append-only file.
#[derive(Default)]
pub(super) struct DiskWait {
    /// Replies wait until the file is on the disk up to this offset of the stream of changes.
    pub(super) offset: Option<u64>,
    /// What is handed out meanwhile: nothing.
    pub(super) kept_back: Chain,
    /// Since when replies have waited; 0 when they do not.
    pub(super) since_us: u64,
}

/// Commands that are looked at for [`crate::diag`]'s heaviest keys.
pub(super) struct Sample {
    /// Commands until the next one.
    pub(super) next: u32,
    /// The command in hand is one.
    pub(super) is_on: bool,
    /// Bytes of replies when it began.
    pub(super) out_bytes: usize,
}

/// A command in hand that has been run before and found that it must wait.
#[derive(Default)]
pub(super) struct Again {
    pub(super) is_retry: bool,
    /// MONITOR's clients were told of the command before.
    pub(super) is_told: bool,
}

/// What a session is waiting for.
pub(super) enum State {
    /// Nothing.
    Ready,
    /// Its output to drain.
    Draining,
    /// The end of a CLIENT PAUSE or of a long hold on a shard; the command in hand comes then.
    Postponed,
    /// Data, or a time.
    Blocked(Box<Blocked>),
    /// A time (DEBUG SLEEP); then `+OK`.
    Sleeping { until_us: u64 },
    /// Its job on the lane.
    OnLane { handle: Arc<lane::JobHandle>, spec: &'static CommandSpec },
    /// The driver to write the rest and close.
    Closing,
    /// The driver to close.
    Aborted,
}

/// What `login-timeout` runs for.
pub(super) enum Awaited {
    /// Nothing: a request has been served, or nobody asked.
    Nothing,
    /// The login, where there must be one; else the first byte, for which there is time.
    Login { since_us: u64 },
    /// The rest of the head of the first request, where nobody must log in.
    Head { since_us: u64 },
}

/// Which replies the client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mute {
    /// All.
    No,
    /// None.
    Off,
    /// Not the next command's.
    SkipNext,
    /// Not this command's.
    Skip,
}
