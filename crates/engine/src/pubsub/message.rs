//! [`Message`]: a published message, encoded once. [`Frame`]: the bytes for a subscriber.

use super::Namespace;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use strand_chain::{Blob, Chain};
use strand_wire::args::Args;
use strand_wire::digits::Digits;
use strand_wire::reply::{Protocol, SHARE_BYTES_MIN};

/// The payload of a message.
pub(crate) enum Payload<'a> {
    /// Short bytes, which are copied into the message.
    Bytes(&'a [u8]),
    /// A long payload, which the message shares.
    Blob(Blob),
}

impl<'a> Payload<'a> {
    /// Makes a payload from argument `i` of a command.
    pub(crate) fn of(args: Args<'a>, i: usize) -> Payload<'a> {
        match args.large(i) {
            Some(blob) if blob.len() >= SHARE_BYTES_MIN => Payload::Blob(blob.clone()),
            _ => Payload::Bytes(args.at(i)),
        }
    }
}

/// A message on its way to subscribers.
#[derive(Debug)]
pub(super) struct Message {
    kind: MessageKind,
    /// The frame for subscribers of the channel.
    frame: Frame,
    /// Offset in the frame's head at which the name begins, as a bulk string. From there on, the frames for
    /// subscribers of patterns have the same bytes.
    rest_at: usize,
    /// The name's bytes in the frame's head.
    name: Range<usize>,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// The message was published on the channel of its name.
    Published(Namespace),
    /// The client `by` (0: none) changed the key of the message's name.
    Change { by: u64 },
}

impl Message {
    /// Encodes a message.
    pub(super) fn new(kind: Namespace, channel: &[u8], payload: &Payload<'_>) -> Message {
        let word: &[u8] = match kind {
            Namespace::Channel => b"3\r\n$7\r\nmessage\r\n",
            Namespace::Shard => b"3\r\n$8\r\nsmessage\r\n",
        };
        let copied = match payload {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Blob(_) => 0,
        };
        let mut head = Blob::with_capacity(word.len() + channel.len() + copied + 2 * HEADER_BYTES);
        head.extend_from_slice(word);
        let rest_at = head.len();
        header(&mut head, b"", channel.len());
        let channel_at = head.len();
        head.extend_from_slice(channel);
        let body = match payload {
            Payload::Bytes(bytes) => {
                header(&mut head, LINE_END, bytes.len());
                head.extend_from_slice(bytes);
                head.extend_from_slice(b"\r\n");
                None
            }
            Payload::Blob(blob) => {
                header(&mut head, LINE_END, blob.len());
                Some(blob.clone())
            }
        };
        Message {
            kind: MessageKind::Published(kind),
            frame: Frame { head, body, shape: Shape::Message },
            rest_at,
            name: channel_at..channel_at + channel.len(),
        }
    }
    /// A message about a key that client `by` (0: none) changed.
    pub(super) fn change(key: &[u8], by: u64) -> Message {
        let frame = Frame::invalidation(key);
        let end = frame.head.len() - LINE_END.len();
        Message { kind: MessageKind::Change { by }, frame, rest_at: 0, name: end - key.len()..end }
    }
    /// What the message is about.
    pub(super) fn kind(&self) -> MessageKind {
        self.kind
    }
    /// The name of the channel, or the key.
    pub(super) fn name(&self) -> &[u8] {
        &self.frame.head[self.name.clone()]
    }
    /// True when a client gets both messages from one delivery: they are about keys, or of one channel.
    pub(super) fn goes_with(&self, other: &Message) -> bool {
        match (self.kind, other.kind) {
            (MessageKind::Change { .. }, MessageKind::Change { .. }) => true,
            _ => self.kind == other.kind && self.name() == other.name(),
        }
    }
    /// Bytes that the message holds.
    pub(super) fn bytes(&self) -> usize {
        self.frame.len() + size_of::<Message>()
    }
    /// The frame for subscribers of its channel.
    pub(super) fn frame(&self) -> &Frame {
        &self.frame
    }
    /// The frame for subscribers of a pattern.
    pub(super) fn pattern_frame(&self, pattern: &[u8]) -> Frame {
        let word = b"4\r\n$8\r\npmessage\r\n";
        let rest = &self.frame.head[self.rest_at..];
        let mut head = Blob::with_capacity(word.len() + pattern.len() + rest.len() + HEADER_BYTES);
        head.extend_from_slice(word);
        header(&mut head, b"", pattern.len());
        head.extend_from_slice(pattern);
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(rest);
        Frame { head, body: self.frame.body.clone(), shape: Shape::Message }
    }
}

/// Room for `$`, a number, and two line ends.
const HEADER_BYTES: usize = 25;

const LINE_END: &[u8] = b"\r\n";

/// Appends `before` and a line with `$` and a length, in one piece: a piece of its own for each part took a third of the
/// instructions of [`Message::new`] (callgrind).
fn header(out: &mut Blob, before: &[u8], len: usize) {
    let (digits, at) = (Digits::unsigned(len as u64), before.len() + 1);
    let digits = digits.as_slice();
    let mut line = [b'$'; HEADER_BYTES];
    line[..before.len()].copy_from_slice(before);
    line[at..at + digits.len()].copy_from_slice(digits);
    line[at + digits.len()..][..LINE_END.len()].copy_from_slice(LINE_END);
    out.extend_from_slice(&line[..at + digits.len() + LINE_END.len()]);
}

/// A push without its first byte, which is `*` in RESP2 and `>` in RESP3. All its receivers share it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The bytes before `body`. Without a `body`, all bytes.
    head: Blob,
    /// A long payload at the end of the message, without its line end.
    body: Option<Blob>,
    shape: Shape,
}

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The frame contains a message.
    Message,
    /// The frame contains the changed keys as bulk strings.
    Invalidation(Invalidation),
    /// The client of a redirection has disconnected. Only in RESP3.
    BrokenRedirect,
    /// A complete line, including its first byte.
    Line,
}

/// What an invalidation says besides the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Invalidation {
    /// The number of keys. 0: all keys have changed.
    keys: usize,
    /// Another client tracks the keys.
    is_redirected: bool,
    /// With BCAST: number of bytes of the client's prefix that the keys begin with. `None`: the client has read the key.
    prefix_bytes: Option<usize>,
}

impl Invalidation {
    /// Writes the count of the keys, or `all_keys`.
    fn write_count(self, out: &mut Chain, all_keys: &[u8]) {
        if self.keys == 0 {
            return out.push_slice(all_keys);
        }
        out.push_slice(b"*");
        out.push_slice(Digits::unsigned(self.keys as u64).as_slice());
        out.push_slice(LINE_END);
    }
}

/// The first bytes of an invalidation in RESP2. The invalidation is a message on this channel; any subscriber gets
/// it.
const INVALIDATED: &[u8] = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";

impl Frame {
    /// Bytes on the wire, without the first byte.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.len() + 2)
    }
    /// A frame with a line of MONITOR.
    pub(crate) fn line(line: &[u8]) -> Frame {
        Frame { head: Blob::from(line), body: None, shape: Shape::Line }
    }
    /// A frame that invalidates `key`.
    pub(crate) fn invalidation(key: &[u8]) -> Frame {
        let mut head = Blob::with_capacity(key.len() + HEADER_BYTES);
        header(&mut head, b"", key.len());
        head.extend_from_slice(key);
        head.extend_from_slice(b"\r\n");
        let shape = Shape::Invalidation(Invalidation { keys: 1, ..Invalidation::default() });
        Frame { head, body: None, shape }
    }
    /// A frame that invalidates all keys.
    pub(crate) fn invalidation_of_all() -> Frame {
        Frame { head: Blob::new(), body: None, shape: Shape::Invalidation(Invalidation::default()) }
    }
    /// The invalidation for the client of a redirection.
    pub(crate) fn redirected(mut self) -> Frame {
        self.change_invalidation(|invalidation| invalidation.is_redirected = true);
        self
    }
    /// The invalidation for a client that hears of all keys with a prefix of this length.
    pub(crate) fn with_prefix(mut self, prefix_bytes: usize) -> Frame {
        self.change_invalidation(|invalidation| invalidation.prefix_bytes = Some(prefix_bytes));
        self
    }
    fn change_invalidation(&mut self, change: impl FnOnce(&mut Invalidation)) {
        if let Shape::Invalidation(invalidation) = &mut self.shape {
            change(invalidation);
        }
    }
    /// Joins invalidations of one key and one prefix that follow each other, as redis-server sends one message for each
    /// prefix. A key is named once. Invalidations of several keys stay as they are: joining them for each client took 1 s
    /// for 1,000 clients and 20,000 keys.
    pub(super) fn join_prefixes(frames: Vec<Frame>) -> Vec<Frame> {
        if !frames.windows(2).any(|two| two.iter().all(|frame| frame.prefix().is_some())) {
            return frames;
        }
        let mut joined: Vec<Frame> = Vec::new();
        // Of the frames that follow each other: the place of each prefix in `joined`, and the keys.
        let (mut places, mut keys) = (HashMap::new(), HashSet::new());
        for frame in &frames {
            let Some(prefix) = frame.prefix() else {
                places.clear();
                keys.clear();
                joined.push(frame.clone());
                continue;
            };
            let place = *places.entry(prefix).or_insert(joined.len());
            if !keys.insert((place, &frame.head[..])) {
                continue;
            }
            match joined.get_mut(place) {
                None => joined.push(frame.clone()),
                Some(earlier) => {
                    earlier.head.extend_from_slice(&frame.head);
                    earlier.change_invalidation(|invalidation| invalidation.keys += 1);
                }
            }
        }
        joined
    }
    /// With BCAST and a single key: whether the invalidation is redirected, and the prefix that its key has.
    fn prefix(&self) -> Option<(bool, &[u8])> {
        let Shape::Invalidation(Invalidation { keys: 1, is_redirected, prefix_bytes: Some(bytes) }) =
            self.shape
        else {
            return None;
        };
        let key_at = self.head.iter().position(|byte| *byte == b'\n')? + 1;
        Some((is_redirected, self.head.get(key_at..key_at + bytes)?))
    }
    /// Tells a client that the target of its redirection has disconnected.
    pub(crate) fn broken_redirect(client: u64) -> Frame {
        let mut head = Blob::from("2\r\n$21\r\ntracking-redir-broken\r\n:");
        head.extend_from_slice(Digits::unsigned(client).as_slice());
        head.extend_from_slice(b"\r\n");
        Frame { head, body: None, shape: Shape::BrokenRedirect }
    }
    /// Writes the frame for a client with this protocol. `subscribed`: the client has subscriptions. A RESP2 client
    /// gets only redirected invalidations, and only with subscriptions.
    pub(crate) fn write(&self, out: &mut Chain, protocol: Protocol, subscribed: bool) {
        match (self.shape, protocol) {
            (Shape::Message, Protocol::Resp3) | (Shape::BrokenRedirect, Protocol::Resp3) => {
                out.push_slice(b">")
            }
            (Shape::Message, Protocol::Resp2) => out.push_slice(b"*"),
            (Shape::Line, _) => {}
            (Shape::Invalidation(invalidation), Protocol::Resp3) => {
                out.push_slice(b">2\r\n$10\r\ninvalidate\r\n");
                invalidation.write_count(out, b"_\r\n");
            }
            (Shape::Invalidation(invalidation), Protocol::Resp2)
                if invalidation.is_redirected && subscribed =>
            {
                out.push_slice(INVALIDATED);
                invalidation.write_count(out, b"$-1\r\n");
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
