//! Parts of a [`super::Session`] besides its buffers: the user, flags, meters, and what the session waits for.

use super::blocked::Blocked;
use super::lane;
use super::transaction::Transaction;
use crate::acl::User;
use std::sync::{Arc, OnceLock};
use strand_chain::Chain;
use strand_commands::spec::CommandSpec;
use strand_keyspace::Lookups;

/// The user that a session acts for.
pub(super) struct Identity {
    pub(super) user: Arc<User>,
    pub(super) authenticated: bool,
    /// True when the client is not authenticated, or the user has limited rights. The gate then checks each command.
    pub(super) guarded: bool,
    /// True when the user was removed. The session then ends.
    pub(super) is_removed: bool,
    /// The earliest time for the current login, on the clock of [`crate::Now::mono_us`], after too many failed logins.
    pub(super) login_at_us: Option<u64>,
}

/// Options that the client set for its connection.
#[derive(Default)]
pub(super) struct ClientFlags {
    /// Set by CLIENT NO-EVICT.
    pub(super) no_evict: bool,
    /// Set by CLIENT NO-TOUCH.
    pub(super) no_touch: bool,
    /// True when CLIENT CACHING was called for the next command.
    pub(super) caching: bool,
    /// True when a command of the EXEC that is under way has ended the session, which gets EXEC's reply first.
    pub(super) ends_after_exec: bool,
    /// True when a service may keep state for this client.
    pub(super) uses_service: bool,
}

/// The budget of a turn, and what the turn has counted.
#[derive(Default)]
pub(super) struct TurnMeter {
    /// Elements of work left in this turn.
    pub(super) work_left: isize,
    /// Number of requests until the next look-ahead.
    pub(super) requests_until_look_ahead: usize,
    /// True when bytes arrived since the last turn.
    pub(super) active: bool,
    pub(super) input_bytes: u64,
    /// Bytes of the replies that helper threads made since the last turn.
    pub(super) lane_reply_bytes: u64,
    pub(super) reads: u64,
    /// Numbers of key lookups in this turn that found a record, and that did not.
    pub(super) lookups: Lookups,
}

/// Tracks whether the client reads its replies.
pub(super) struct OutputWatch {
    /// The session stops executing while more output is unwritten.
    pub(super) bytes_max: usize,
    /// Unwritten output after the last turn. When less is unwritten now, the client reads.
    pub(super) unwritten: usize,
    /// Start of the time without progress while the session is stopped.
    pub(super) stalled_since_us: u64,
    /// Start of the time over the soft output limit.
    pub(super) over_soft_since_us: Option<u64>,
}

/// Replies that wait for the append-only file.
#[derive(Default)]
pub(super) struct DiskWait {
    /// Replies wait until the append-only file is on the disk up to this journal offset.
    pub(super) offset: Option<u64>,
    /// The chain that the driver gets during the wait. It is always empty.
    pub(super) empty_output: Chain,
    /// Start of the wait. 0 when no replies wait.
    pub(super) since_us: u64,
}

/// Sampling of commands for [`crate::diag`]'s heaviest keys.
pub(super) struct Sample {
    /// Number of commands until the next sample. 0 when the current command is the sample.
    pub(super) next: u32,
    /// Number of reply bytes when the current command began.
    pub(super) out_bytes: usize,
}

impl Sample {
    /// True when the current command is a sample.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.next == 0
    }
}

/// State of the current command if it ran before and had to wait.
#[derive(Default)]
pub(super) struct RetryState {
    pub(super) is_retry: bool,
    /// True when MONITOR's clients have already got the command.
    pub(super) sent_to_monitors: bool,
    /// True when CLIENT CACHING came before the command. The gate has taken the flag from the session.
    pub(super) caching: bool,
    /// True when a helper thread has found that the user may run the command.
    pub(super) is_granted: bool,
}

/// The outcome of a SHUTDOWN on a thread of its own, as soon as there is one. True: the server stops.
pub(super) type ShutdownOutcome = Arc<OnceLock<bool>>;

/// What a session is waiting for.
pub(super) enum State {
    /// The session waits for nothing and can run the next command.
    Ready,
    /// The session waits until its output has drained.
    Draining,
    /// The current command is parked ([`ParkReason`](super::phases::ParkReason) says why), or runs on in the next turn.
    Parked,
    /// The session waits for data, or for a timeout.
    Blocked(Box<Blocked>),
    /// The session sleeps until a time (DEBUG SLEEP). The reply is then `+OK`.
    Sleeping { until_us: u64 },
    /// The session waits for its job on the lane. `is_admin`: the job runs an administrator's command, alone or in EXEC.
    OnLane { handle: Arc<lane::JobHandle>, spec: &'static CommandSpec, is_admin: bool },
    /// A helper thread has run EXEC's commands about data. The session runs what is left.
    ExecResumes(Box<Transaction>),
    /// The driver writes the output for the last time, and then closes the connection.
    Closing,
    /// The driver closes the connection at once.
    Aborted,
}

/// What the client must do before `login-timeout` passes.
pub(super) enum LoginWait {
    /// The client must do nothing: a request was served, or the door sets no limit.
    Nothing,
    /// The client must log in, if a password is set. Otherwise the session waits for the first byte, without a limit.
    Login { since_us: u64 },
    /// The client needs no login. The head of its first HTTP request is not complete yet.
    Head { since_us: u64 },
}

/// Which replies the client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyMode {
    /// The client wants all replies.
    On,
    /// The client wants no replies.
    Off,
    /// The client does not want the reply of the next command.
    SkipNext,
    /// The client does not want the reply of this command.
    Skip,
}
