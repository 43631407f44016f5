//! The differences between framings: [`Requests`] decodes, [`Replies`] holds encoded replies. The rest of a session
//! does not depend on the framing.

use super::{ReplyMode, SessionSettings};
use crate::Framing;
use crate::pubsub::Frame;
use strand_chain::Chain;
use strand_wire::args::Argv;
use strand_wire::pack4;
use strand_wire::reply::{Protocol, Reply};
use strand_wire::resp::{self, Decoded};

/// A request that cannot be decoded.
pub(super) struct UndecodableRequest {
    /// The text of the error reply.
    pub(super) text: Vec<u8>,
    /// True when the start of the next request is known.
    pub(super) is_recoverable: bool,
}

/// The decoder of a session's requests, for its framing.
pub(super) enum Requests {
    Resp(resp::Decoder),
    Pack4(Box<pack4::Decoder>),
}

impl Requests {
    pub(super) fn new(framing: Framing, settings: &SessionSettings, authenticated: bool) -> Requests {
        let limits = settings.limits(authenticated);
        match framing {
            Framing::Resp => Requests::Resp(resp::Decoder::new(limits)),
            Framing::Pack4 => {
                Requests::Pack4(Box::new(pack4::Decoder::new(limits, settings.frame_bytes_max())))
            }
        }
    }
    pub(super) fn set_limits(&mut self, settings: &SessionSettings, authenticated: bool) {
        let limits = settings.limits(authenticated);
        match self {
            Requests::Resp(decoder) => decoder.set_limits(limits),
            Requests::Pack4(decoder) => decoder.set_limits(limits, settings.frame_bytes_max()),
        }
    }
    /// Decodes a request. `counted_bytes` is the caller's count of bytes of the current request. Dropped bytes are
    /// subtracted from it.
    #[inline]
    pub(super) fn decode(
        &mut self,
        input: &mut Chain,
        argv: &mut Argv,
        counted_bytes: &mut usize,
    ) -> Result<Decoded, UndecodableRequest> {
        match self {
            Requests::Resp(decoder) => decoder
                .decode(input, argv)
                .map_err(|e| UndecodableRequest { text: e.message(), is_recoverable: false }),
            Requests::Pack4(decoder) => decode_frame(decoder, input, argv, counted_bytes),
        }
    }
    #[inline]
    pub(super) fn look_ahead<'a>(
        &self,
        front: &'a [u8],
        requests_max: usize,
        find_key: fn(&[u8]) -> usize,
        visit: &mut dyn FnMut(resp::RequestPreview<'a>),
    ) -> usize {
        match self {
            Requests::Resp(_) => resp::look_ahead(front, requests_max, find_key, visit),
            Requests::Pack4(_) => pack4::look_ahead(front, requests_max, find_key, visit),
        }
    }
    #[inline]
    pub(super) fn in_frame(&self) -> bool {
        match self {
            Requests::Resp(decoder) => decoder.in_request(),
            Requests::Pack4(decoder) => decoder.in_frame(),
        }
    }
    /// Bytes taken from the input that are not decoded yet.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Requests::Resp(_) => 0,
            Requests::Pack4(decoder) => decoder.undecoded_bytes(),
        }
    }
    /// Stops decoding requests.
    pub(super) fn end(&mut self) {
        match self {
            Requests::Resp(_) => {}
            Requests::Pack4(decoder) => decoder.end(),
        }
    }
    #[inline]
    pub(super) fn body_spare(&mut self) -> Option<&mut [u8]> {
        match self {
            Requests::Resp(decoder) => decoder.body_spare(),
            Requests::Pack4(decoder) => decoder.body_spare(),
        }
    }
    pub(super) fn body_filled(&mut self, n: usize) {
        match self {
            Requests::Resp(decoder) => decoder.body_filled(n),
            Requests::Pack4(decoder) => decoder.body_filled(n),
        }
    }
}

/// Decodes a frame. This is a function of its own, so that only RESP's decoder is inlined into the session's loop.
#[inline(never)]
fn decode_frame(
    decoder: &mut pack4::Decoder,
    input: &mut Chain,
    argv: &mut Argv,
    counted_bytes: &mut usize,
) -> Result<Decoded, UndecodableRequest> {
    let decoded = decoder.decode(input, argv);
    *counted_bytes = counted_bytes.saturating_sub(decoder.take_dropped_bytes());
    decoded.map_err(|e| UndecodableRequest { text: e.message(), is_recoverable: !e.is_lost() })
}

/// The encoded output of a session.
pub(super) struct Replies {
    /// The bytes that are ready to be written to the socket.
    pub(super) out: Chain,
    /// The reply of the current command, for a framing that needs the length before the first byte.
    reply: Chain,
    /// The chain for replies that the client does not want (CLIENT REPLY).
    sink: Chain,
    /// Which replies the client wants (CLIENT REPLY).
    pub(super) reply_mode: ReplyMode,
    framing: Framing,
}

impl Replies {
    pub(super) fn new(framing: Framing) -> Replies {
        Replies {
            out: Chain::new(),
            reply: Chain::new(),
            sink: Chain::new(),
            reply_mode: ReplyMode::On,
            framing,
        }
    }
    /// The chain for this command's reply.
    #[inline]
    pub(super) fn target(&mut self) -> &mut Chain {
        match (self.reply_mode, self.framing) {
            (ReplyMode::On | ReplyMode::SkipNext, Framing::Resp) => &mut self.out,
            (ReplyMode::On | ReplyMode::SkipNext, Framing::Pack4) => &mut self.reply,
            (ReplyMode::Off | ReplyMode::Skip, _) => &mut self.sink,
        }
    }
    /// The chain for acknowledgements of subscriptions. A client gets them even with CLIENT REPLY OFF.
    pub(super) fn push_target(&mut self) -> &mut Chain {
        match self.framing {
            Framing::Resp => &mut self.out,
            Framing::Pack4 => &mut self.reply,
        }
    }
    /// Sets the earlier replies aside, so that [`Replies::take_reply`] can take the reply of the next command.
    pub(super) fn set_aside(&mut self) -> Chain {
        self.sink = Chain::new();
        std::mem::take(self.push_target())
    }
    /// Takes the reply of the command that ran since [`Replies::set_aside`], and puts the earlier replies back. CLIENT
    /// REPLY changes the target, so the reply is taken from the target of now. Pushes that the client gets while replies
    /// are off are no part of the reply.
    pub(super) fn take_reply(&mut self, mut earlier: Chain) -> Chain {
        let reply = std::mem::take(self.target());
        let target = self.push_target();
        earlier.push_chain(std::mem::take(target));
        *target = earlier;
        reply
    }
    /// Appends a push. Only between two replies.
    pub(super) fn push(&mut self, frame: &Frame, protocol: Protocol, subscribed: bool) {
        frame.write(self.push_target(), protocol, subscribed);
        if self.framing != Framing::Resp && !self.reply.is_empty() {
            seal(&mut self.out, &mut self.reply);
        }
    }
    /// The maximum number of bytes in the target when `bytes_max` bytes may wait for the client.
    #[inline]
    pub(super) fn bytes_max(&self, bytes_max: usize) -> usize {
        match self.framing {
            Framing::Resp => bytes_max,
            Framing::Pack4 => bytes_max.saturating_sub(self.out.len()).min(pack4::FRAME_BYTES_MAX),
        }
    }
    /// The maximum number of bytes of a reply that is made elsewhere, while the waiting output drains.
    pub(super) fn job_bytes_max(&self, bytes_max: usize) -> usize {
        match self.framing {
            Framing::Resp => bytes_max,
            Framing::Pack4 => bytes_max.min(pack4::FRAME_BYTES_MAX),
        }
    }
    /// True when the client wants the reply of the current command.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::On | ReplyMode::SkipNext)
    }
    /// True when a reply of this length cannot be sent.
    pub(super) fn is_too_long(&self, bytes: usize) -> bool {
        self.framing == Framing::Pack4 && bytes > pack4::FRAME_BYTES_MAX
    }
    /// Number of bytes of all output that is held.
    pub(super) fn len(&self) -> usize {
        self.out.len() + self.reply.len() + self.sink.len()
    }
    /// Ends the current command: CLIENT REPLY advances.
    #[inline]
    pub(super) fn end_command(&mut self) {
        if self.reply_mode == ReplyMode::On && self.framing == Framing::Resp {
            return;
        }
        self.seal();
        self.reply_mode = match self.reply_mode {
            ReplyMode::SkipNext => ReplyMode::Skip,
            ReplyMode::Skip => ReplyMode::On,
            same => same,
        };
    }
    /// Completes the reply of the current command.
    #[inline(never)]
    pub(super) fn seal(&mut self) {
        self.sink.clear();
        if self.framing != Framing::Resp && !self.reply.is_empty() {
            seal(&mut self.out, &mut self.reply);
        }
    }
}

/// Appends a reply as a frame. A reply that does not fit into a frame becomes an error.
fn seal(out: &mut Chain, reply: &mut Chain) {
    if !pack4::seal(out, reply) {
        reply.clear();
        Reply::new(reply, Protocol::Resp2).error("ERR the reply is longer than a frame can be");
        pack4::seal(out, reply);
    }
}

/// The reply to a connection that is refused.
pub(super) fn refusal(framing: Framing, text: &str) -> Chain {
    let (mut out, mut reply) = (Chain::new(), Chain::new());
    Reply::new(&mut reply, Protocol::Resp2).error(text);
    match framing {
        Framing::Resp => return reply,
        Framing::Pack4 => seal(&mut out, &mut reply),
    }
    out
}
