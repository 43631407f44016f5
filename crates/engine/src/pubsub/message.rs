//! [`Message`]: what was published, encoded once; [`Frame`]: what a subscriber is sent of it.

use super::Kind;
use std::ops::Range;
use strand_chain::{Blob, Chain};
use strand_wire::args::Args;
use strand_wire::digits::Digits;
use strand_wire::reply::{Protocol, SHARE_BYTES_MIN};

/// The text of a message.
pub(crate) enum Payload<'a> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// Long, and shared.
    Blob(Blob),
}

impl<'a> Payload<'a> {
    /// Argument `i` of a command.
    pub(crate) fn of(args: Args<'a>, i: usize) -> Payload<'a> {
        match args.large(i) {
            Some(blob) if blob.len() >= SHARE_BYTES_MIN => Payload::Blob(blob.clone()),
            _ => Payload::Bytes(args.at(i)),
        }
    }
}

/// A message on its way.
#[derive(Debug)]
pub(super) struct Message {
    kind: Kind,
    /// What subscribers of the channel are sent.
    frame: Frame,
    /// Where in the frame's head the channel begins, as a bulk string; what follows is the same for subscribers of patterns.
    rest_at: usize,
    /// The channel's bytes there.
    channel: Range<usize>,
}

impl Message {
    pub(super) fn new(kind: Kind, channel: &[u8], payload: &Payload<'_>) -> Message {
        let word: &[u8] = match kind {
            Kind::Channel => b"3\r\n$7\r\nmessage\r\n",
            Kind::Shard => b"3\r\n$8\r\nsmessage\r\n",
        };
        let copied = match payload {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Blob(_) => 0,
        };
        let mut head = Blob::with_capacity(word.len() + channel.len() + copied + 2 * HEADER_BYTES);
        head.extend_from_slice(word);
        let rest_at = head.len();
        header(&mut head, channel.len());
        let channel_at = head.len();
        head.extend_from_slice(channel);
        head.extend_from_slice(b"\r\n");
        let body = match payload {
            Payload::Bytes(bytes) => {
                header(&mut head, bytes.len());
                head.extend_from_slice(bytes);
                head.extend_from_slice(b"\r\n");
                None
            }
            Payload::Blob(blob) => {
                header(&mut head, blob.len());
                Some(blob.clone())
            }
        };
        Message {
            kind,
            frame: Frame { head, body, shape: Shape::Message },
            rest_at,
            channel: channel_at..channel_at + channel.len(),
        }
    }
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }
    pub(super) fn channel(&self) -> &[u8] {
        &self.frame.head[self.channel.clone()]
    }
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.frame.len() + size_of::<Message>()
    }
    /// What subscribers of its channel are sent.
    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }
    /// What subscribers of a pattern are sent.
    pub(super) fn pattern_frame(&self, pattern: &[u8]) -> Frame {
        let word = b"4\r\n$8\r\npmessage\r\n";
        let rest = &self.frame.head[self.rest_at..];
        let mut head = Blob::with_capacity(word.len() + pattern.len() + rest.len() + HEADER_BYTES);
        head.extend_from_slice(word);
        header(&mut head, pattern.len());
        head.extend_from_slice(pattern);
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(rest);
        Frame { head, body: self.frame.body.clone(), shape: Shape::Message }
    }
}

/// Room for `$`, a number, and two line ends.
const HEADER_BYTES: usize = 25;

/// `$` and a length on a line.
fn header(out: &mut Blob, len: usize) {
    out.extend_from_slice(b"$");
    out.extend_from_slice(Digits::unsigned(len as u64).as_slice());
    out.extend_from_slice(b"\r\n");
}

/// A push in both protocols: all but its first byte, which is `*` in RESP2 and `>` in RESP3. Shared by all who are sent it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    head: Blob,
    /// A long text at the end; its line end follows.
    body: Option<Blob>,
    shape: Shape,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A message.
    Message,
    /// Which keys have changed, as an array in RESP; empty: all. `redirected`: those that another client has read.
    Invalidation { redirected: bool },
    /// The client to which invalidations are redirected is gone. In RESP3 alone.
    BrokenRedirect,
    /// A line that is whole, with its first byte.
    Line,
}

/// What comes before the keys in RESP2: it is a message to whoever listens to this channel, or to any.
const INVALIDATED: &[u8] = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";

impl Frame {
    /// Bytes on the wire, without the first.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.len() + 2)
    }
    /// A line of MONITOR.
    pub(crate) fn line(line: &[u8]) -> Frame {
        Frame { head: Blob::from(line), body: None, shape: Shape::Line }
    }
    /// `key` has changed.
    pub(crate) fn invalidation(key: &[u8]) -> Frame {
        let mut head = Blob::with_capacity(key.len() + HEADER_BYTES);
        head.extend_from_slice(b"*1\r\n");
        header(&mut head, key.len());
        head.extend_from_slice(key);
        head.extend_from_slice(b"\r\n");
        Frame { head, body: None, shape: Shape::Invalidation { redirected: false } }
    }
    /// All keys have.
    pub(crate) fn invalidation_of_all() -> Frame {
        Frame { head: Blob::new(), body: None, shape: Shape::Invalidation { redirected: false } }
    }
    /// The same invalidation for the client that gets it in the other's place.
    pub(crate) fn redirected(self) -> Frame {
        Frame { shape: Shape::Invalidation { redirected: true }, ..self }
    }
    /// Invalidations cannot be sent to this client any more.
    pub(crate) fn broken_redirect(client: u64) -> Frame {
        let mut head = Blob::from("2\r\n$21\r\ntracking-redir-broken\r\n:");
        head.extend_from_slice(Digits::unsigned(client).as_slice());
        head.extend_from_slice(b"\r\n");
        Frame { head, body: None, shape: Shape::BrokenRedirect }
    }
    /// Writes it for a client that speaks `protocol` and has subscribed to something, or not. An invalidation is nothing to a
    /// client of RESP2, unless it is another's and the client is in subscriber mode.
    pub(crate) fn write(&self, out: &mut Chain, protocol: Protocol, subscribed: bool) {
        match (self.shape, protocol) {
            (Shape::Message, Protocol::Resp3) | (Shape::BrokenRedirect, Protocol::Resp3) => {
                out.push_slice(b">")
            }
            (Shape::Message, Protocol::Resp2) => out.push_slice(b"*"),
            (Shape::Line, _) => {}
            (Shape::Invalidation { .. }, Protocol::Resp3) => {
                out.push_slice(b">2\r\n$10\r\ninvalidate\r\n");
                if self.head.is_empty() {
                    out.push_slice(b"_\r\n");
                }
            }
            (Shape::Invalidation { redirected: true }, Protocol::Resp2) if subscribed => {
                out.push_slice(INVALIDATED);
                if self.head.is_empty() {
                    out.push_slice(b"$-1\r\n");
                }
            }
            _ => return,
        }
        if self.head.len() < SHARE_BYTES_MIN {
            out.push_slice(&self.head);
        } else {
            out.push_blob(self.head.clone());
        }
        if let Some(body) = &self.body {
            out.push_blob(body.clone());
            out.push_slice(b"\r\n");
        }
    }
}
