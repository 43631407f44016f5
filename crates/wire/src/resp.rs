//! [`Decoder`]: RESP requests (multibulk and inline), resumable; no byte is scanned twice. STARTING VERSION.

use crate::args::Argv;
use strand_chain::Chain;

/// Bounds on one request; named after redis-server's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest bulk argument in bytes (`proto-max-bulk-len`, 512 MB).
    pub bulk_bytes_max: usize,
    /// Most arguments in one command (1,048,576; 10 before authentication).
    pub args_max: usize,
    /// Longest inline request or header line in bytes (64 KiB).
    pub inline_bytes_max: usize,
}

impl Limits {
    /// For a session that may run commands.
    pub const FULL: Limits = Limits { bulk_bytes_max: 512 << 20, args_max: 1024 * 1024, inline_bytes_max: 64 * 1024 };
    /// Before authentication: 10 arguments of 16 KiB.
    pub const UNAUTHENTICATED: Limits = Limits { bulk_bytes_max: 16 * 1024, args_max: 10, inline_bytes_max: 64 * 1024 };
}

/// What a call of [`Decoder::decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// `argv` holds a whole command; clear it before the next call.
    Command,
    /// More bytes are needed; what was recognised is kept.
    Incomplete,
}

/// The peer broke the protocol: the session sends `-ERR Protocol error: <text>` and closes.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(pub String);

/// A resumable request decoder, one per session.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
}

impl Decoder {
    /// With `limits`.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits }
    }
    /// Changes the limits from the next request on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }
    /// Consumes bytes from `input` towards one command in `argv`.
    ///
    /// # Errors
    /// [`ProtocolError`] with redis-server's text.
    pub fn decode(&mut self, _input: &mut Chain, _argv: &mut Argv) -> Result<Progress, ProtocolError> {
        Err(ProtocolError("not built yet".into()))
    }
    /// True when part of a request has been consumed or examined: the driver arms `TCP_QUICKACK` then.
    pub fn in_frame(&self) -> bool {
        false
    }
    /// Where the socket may read straight into, while a large body is under way (and the chain is empty).
    pub fn body_spare(&mut self) -> Option<&mut [u8]> {
        None
    }
    /// Says that `n` bytes of the last `body_spare()` were filled.
    pub fn body_filled(&mut self, _n: usize) {}
}
