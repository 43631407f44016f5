//! pack4: RESP in frames, for clients that can frame bytes but have no RESP parser (`docs/formats/pack4.md`).
//!
//! A frame is a length (four bytes, big-endian) and that many bytes. A client's frame holds one command (RESP, or a
//! plain line), a server's frame one reply. [`Decoder`] turns frames into an [`Argv`]. It passes exactly the bytes of
//! one frame to [`resp::Decoder`], as they arrive, so a large argument is still received directly into its own blob.
//! [`seal`] turns a reply into a frame. A frame whose length does not fit its content is a [`FrameError`]. The error
//! affects only this frame, unless the length itself is invalid.

use crate::args::Argv;
use crate::resp::{self, Decoded, ProtocolError, RequestLimits};
use strand_chain::Chain;

/// Number of bytes that store a frame's length.
pub const LENGTH_BYTES: usize = 4;
/// Maximum length of a frame, the largest number that four bytes can express.
pub const FRAME_BYTES_MAX: usize = u32::MAX as usize;
/// Maximum length of a frame before authentication: the arguments of the longest request allowed then, with their
/// headers.
pub const UNAUTHENTICATED_FRAME_BYTES_MAX: usize = resp::UNAUTHENTICATED_REQUEST_BYTES_MAX;
/// Maximum length of a line end after a plain line.
const LINE_END_BYTES_MAX: usize = 2;
/// Replies up to this length are copied behind their frame's length. Longer replies are linked without a copy.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// An error in a frame.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The frame's length is 0.
    #[error("Protocol error: a frame of 0 bytes")]
    Empty,
    /// The frame's length exceeds the limit.
    #[error(
        "Protocol error: a frame of {len} bytes, at most {max} are allowed; does the client send frames?"
    )]
    TooLong {
        /// The length that the frame announces.
        len: usize,
        /// The maximum length of a frame.
        max: usize,
    },
    /// The frame holds a plain line, but is longer than a plain line may be. Most likely the client sends RESP
    /// without frames.
    #[error(
        "Protocol error: a frame of {len} bytes without a RESP command, at most {max} are allowed; does the client send frames?"
    )]
    LineTooLong {
        /// The length that the frame announces.
        len: usize,
        /// The maximum length of a frame.
        max: usize,
    },
    /// The frame contains no command, only empty requests.
    #[error("Protocol error: no command in a frame of {len} bytes")]
    NoCommand {
        /// The length of the frame.
        len: usize,
    },
    /// The frame ends before its command is complete.
    #[error("Protocol error: a frame of {len} bytes ends inside its command")]
    Short {
        /// The length of the frame.
        len: usize,
    },
    /// The frame has bytes after its command.
    #[error("Protocol error: a frame of {len} bytes goes on after its command")]
    Long {
        /// The length of the frame.
        len: usize,
    },
    /// The frame's content is not RESP.
    #[error(transparent)]
    Resp(#[from] ProtocolError),
}

impl FrameError {
    /// The error reply's text, for [`Reply::error_bytes`].
    ///
    /// [`Reply::error_bytes`]: crate::reply::Reply::error_bytes
    pub fn message(&self) -> Vec<u8> {
        match self {
            FrameError::Resp(error) => error.message(),
            other => format!("ERR {other}").into_bytes(),
        }
    }
    /// True when the length itself is invalid. The start of the next frame is then unknown, so the connection ends.
    /// After any other error the decoder continues with the next frame.
    pub fn is_lost(&self) -> bool {
        matches!(self, FrameError::TooLong { .. } | FrameError::LineTooLong { .. })
    }
}

/// The position of the next byte within a frame. `len` is the frame's length.
#[derive(Clone, Copy, Debug)]
enum Frame {
    /// Inside the length field. An incomplete length stays in the input.
    Length,
    /// At the first byte after the length.
    First { len: usize },
    /// Inside a plain line. An incomplete line stays in the input.
    Line { len: usize },
    /// Inside a command. `left` bytes of the frame are missing.
    Command { len: usize, left: usize },
    /// Inside the rest of a refused frame. `left` bytes are missing.
    Refused { left: usize },
}

/// A resumable decoder of request frames, one per session.
#[derive(Debug)]
pub struct Decoder {
    resp: resp::Decoder,
    line_bytes_max: usize,
    frame_bytes_max: usize,
    frame: Frame,
    /// Bytes of the current frame that are taken from the input and not decoded.
    undecoded: Chain,
    /// Dropped bytes of refused frames since the last query.
    dropped_bytes: usize,
    in_frame: bool,
}

impl Decoder {
    /// A decoder with `limits` for commands and `frame_bytes_max` for frames. Before authentication the frame limit
    /// is [`UNAUTHENTICATED_FRAME_BYTES_MAX`].
    pub fn new(limits: RequestLimits, frame_bytes_max: usize) -> Decoder {
        let mut decoder = Decoder {
            resp: resp::Decoder::new(limits),
            line_bytes_max: 0,
            frame_bytes_max: 0,
            frame: Frame::Length,
            undecoded: Chain::new(),
            dropped_bytes: 0,
            in_frame: false,
        };
        decoder.set_limits(limits, frame_bytes_max);
        decoder
    }
    /// Changes the limits. They apply to the headers and lengths read from now on.
    pub fn set_limits(&mut self, limits: RequestLimits, frame_bytes_max: usize) {
        self.resp.set_limits(limits);
        self.line_bytes_max = limits.inline_bytes_max + LINE_END_BYTES_MAX;
        self.frame_bytes_max = match limits.authenticated {
            true => frame_bytes_max.min(FRAME_BYTES_MAX),
            false => frame_bytes_max.min(UNAUTHENTICATED_FRAME_BYTES_MAX),
        };
    }
    /// Consumes bytes from `input` and decodes the command of one frame into `argv`, like
    /// [`resp::Decoder::decode`].
    ///
    /// # Errors
    /// [`FrameError`], with an empty `argv`. The next call continues after the frame, unless
    /// [`FrameError::is_lost`]: then the decoder cannot be used.
    #[inline]
    pub fn decode(&mut self, input: &mut Chain, argv: &mut Argv) -> Result<Decoded, FrameError> {
        if let Frame::Length = self.frame
            && self.take_front(input, argv)
        {
            return Ok(Decoded::Command);
        }
        let decoded = self.decode_slowly(input, argv);
        self.in_frame = match self.frame {
            Frame::Length => !input.is_empty() && decoded == Ok(Decoded::NeedsBytes),
            _ => true,
        };
        decoded
    }
    /// True when part of a frame has been consumed or examined. The driver then sets `TCP_QUICKACK`.
    pub fn in_frame(&self) -> bool {
        self.in_frame
    }
    /// Bytes taken from the input and not decoded. While there are any, [`Decoder::decode`] may find a command
    /// without new input.
    pub fn undecoded_bytes(&self) -> usize {
        self.undecoded.len()
    }
    /// Dropped bytes of refused frames since the last call.
    pub fn take_dropped_bytes(&mut self) -> usize {
        std::mem::take(&mut self.dropped_bytes)
    }
    /// Drops the undecoded bytes. The decoder then decodes nothing more.
    pub fn end(&mut self) {
        self.undecoded.clear();
    }
    /// [`resp::Decoder::body_spare`], limited to the end of the frame.
    pub fn body_spare(&mut self) -> Option<&mut [u8]> {
        match self.frame {
            Frame::Command { left, .. } if left > 0 && self.undecoded.is_empty() => {
                let spare = self.resp.body_spare()?;
                let n = spare.len().min(left);
                Some(&mut spare[..n])
            }
            _ => None,
        }
    }
    /// Marks `n` bytes of the last `body_spare()` as filled.
    ///
    /// # Panics
    /// Panics if there was no `body_spare()` or `n` exceeds its length.
    pub fn body_filled(&mut self, n: usize) {
        match &mut self.frame {
            Frame::Command { left, .. } if n <= *left => *left -= n,
            _ => assert_eq!(n, 0, "body_spare() came first"),
        }
        self.resp.body_filled(n);
    }

    /// Takes a frame in the usual case: it lies whole in the front slice, and one ordinary command fills it. Leaves
    /// any other frame to [`Decoder::decode_slowly`].
    #[inline]
    fn take_front(&mut self, input: &mut Chain, argv: &mut Argv) -> bool {
        let front = input.front();
        let Some((length, rest)) = front.split_first_chunk::<LENGTH_BYTES>() else { return false };
        let len = u32::from_be_bytes(*length) as usize;
        if len > rest.len() || len > self.frame_bytes_max || rest.first() != Some(&b'*') {
            return false;
        }
        let (consumed, whole) = self.resp.take_front(&rest[..len], argv);
        if !whole {
            if consumed > 0 {
                input.advance(LENGTH_BYTES + consumed);
                self.frame = Frame::Command { len, left: len - consumed };
            }
            return false;
        }
        if consumed < len {
            // Start again with an empty argv: the slow path finds the error.
            argv.clear();
            self.resp.reset();
            return false;
        }
        input.advance(LENGTH_BYTES + len);
        self.in_frame = false;
        true
    }

    #[inline(never)]
    fn decode_slowly(&mut self, input: &mut Chain, argv: &mut Argv) -> Result<Decoded, FrameError> {
        loop {
            match self.frame {
                Frame::Length => {
                    let mut length = [0; LENGTH_BYTES];
                    if !input.peek(&mut length) {
                        return Ok(Decoded::NeedsBytes);
                    }
                    let (len, max) = (u32::from_be_bytes(length) as usize, self.frame_bytes_max);
                    if len > max {
                        return Err(FrameError::TooLong { len, max });
                    }
                    input.advance(LENGTH_BYTES);
                    if len == 0 {
                        return Err(FrameError::Empty);
                    }
                    self.frame = Frame::First { len };
                }
                Frame::First { len } => match input.front().first() {
                    None => return Ok(Decoded::NeedsBytes),
                    Some(b'*') => self.frame = Frame::Command { len, left: len },
                    Some(_) if len > self.line_bytes_max => {
                        return Err(FrameError::LineTooLong { len, max: self.line_bytes_max });
                    }
                    Some(_) => self.frame = Frame::Line { len },
                },
                Frame::Line { len } if input.len() < len => return Ok(Decoded::NeedsBytes),
                Frame::Line { len } => {
                    self.undecoded = input.split_to(len);
                    if self.undecoded.slices().last().and_then(<[u8]>::last) != Some(&b'\n') {
                        self.undecoded.push_slice(b"\n");
                    }
                    self.frame = Frame::Command { len, left: 0 };
                }
                Frame::Command { len, left } => return self.command(input, argv, len, left),
                Frame::Refused { left } => {
                    let n = left.min(input.len());
                    input.advance(n);
                    self.dropped_bytes += n;
                    self.frame = match left - n {
                        0 => Frame::Length,
                        left => Frame::Refused { left },
                    };
                    if left > n {
                        return Ok(Decoded::NeedsBytes);
                    }
                }
            }
        }
    }

    /// Continues with the command of a frame of `len` bytes. `left` of them are not taken from the input.
    fn command(
        &mut self,
        input: &mut Chain,
        argv: &mut Argv,
        len: usize,
        left: usize,
    ) -> Result<Decoded, FrameError> {
        let n = left.min(input.len());
        if n > 0 && n == input.len() && self.undecoded.is_empty() {
            std::mem::swap(&mut self.undecoded, input);
        } else if n > 0 {
            self.undecoded.push_chain(input.split_to(n));
        }
        let left = left - n;
        self.frame = Frame::Command { len, left };
        let ends = |undecoded: &Chain| left == 0 && undecoded.is_empty();
        let decoded = self.resp.decode(&mut self.undecoded, argv);
        let error = match decoded {
            Ok(Decoded::Command) if !argv.is_empty() && ends(&self.undecoded) => {
                self.frame = Frame::Length;
                return Ok(Decoded::Command);
            }
            Ok(Decoded::Command) if !argv.is_empty() => FrameError::Long { len },
            Ok(Decoded::Command) if !ends(&self.undecoded) => return Ok(Decoded::Command),
            Ok(Decoded::Command) => FrameError::NoCommand { len },
            Ok(Decoded::NeedsBytes) if left > 0 => return Ok(Decoded::NeedsBytes),
            Ok(Decoded::NeedsBytes) if self.resp.in_request() => FrameError::Short { len },
            Ok(Decoded::NeedsBytes) => FrameError::NoCommand { len },
            Ok(Decoded::LimitReached) => return Ok(Decoded::LimitReached),
            Err(error) => FrameError::Resp(error),
        };
        argv.clear();
        self.resp.reset();
        self.undecoded.clear();
        self.frame = if left > 0 { Frame::Refused { left } } else { Frame::Length };
        Err(error)
    }
}

/// Does what [`resp::look_ahead`] does, for frames.
pub fn look_ahead<'a>(
    front: &'a [u8],
    requests_max: usize,
    find_key: fn(&[u8]) -> usize,
    visit: &mut dyn FnMut(resp::RequestPreview<'a>),
) -> usize {
    let mut at = 0;
    for seen in 0..requests_max {
        let Some(next) = resp::visit_request(front, at + LENGTH_BYTES, find_key, visit) else { return seen };
        at = next;
    }
    requests_max
}

/// Appends `reply` to `out` as a frame and empties `reply`. Returns false and does nothing when the reply is too
/// long for a frame.
pub fn seal(out: &mut Chain, reply: &mut Chain) -> bool {
    let Ok(len) = u32::try_from(reply.len()) else { return false };
    out.push_slice(&len.to_be_bytes());
    if reply.len() <= COPY_BYTES_MAX {
        reply.slices().for_each(|s| out.push_slice(s));
        reply.clear();
    } else {
        out.push_chain(std::mem::take(reply));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::LARGE_BODY_BYTES_MIN;

    fn frame(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_be_bytes()[..], body].concat()
    }

    /// Decodes `pieces`. Returns the words of each command, or the error.
    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: RequestLimits) -> Vec<String> {
        let (mut decoder, mut input) = (Decoder::new(limits, 1 << 30), Chain::new());
        let (mut argv, mut out) = (Argv::new(), Vec::new());
        for piece in pieces {
            input.push_slice(piece);
            loop {
                match decoder.decode(&mut input, &mut argv) {
                    Ok(Decoded::NeedsBytes) => break,
                    Ok(Decoded::LimitReached) => {}
                    Ok(Decoded::Command) => {
                        let words: Vec<_> = argv.args().iter().map(String::from_utf8_lossy).collect();
                        out.push(words.join(" "));
                        argv.clear();
                    }
                    Err(error) => {
                        assert!(argv.is_empty());
                        out.push(String::from_utf8_lossy(&error.message()).into_owned());
                        if error.is_lost() {
                            return out;
                        }
                    }
                }
            }
        }
        out
    }

    #[test]
    fn commands_wrong_lengths_and_lines_at_every_split() {
        let cases: &[(&[u8], &str)] = &[
            (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "GET k"),
            (b"PING", "PING"),
            (b"PING\n", "PING"),
            (b"SET k 'a b'\r\n", "SET k a b"),
            (b"", "ERR Protocol error: a frame of 0 bytes"),
            (b"\r\n", "ERR Protocol error: no command in a frame of 2 bytes"),
            (b"*0\r\n", "ERR Protocol error: no command in a frame of 4 bytes"),
            (b"*1\r\n$4\r\nPING", "ERR Protocol error: a frame of 12 bytes ends inside its command"),
            (b"*1\r\n", "ERR Protocol error: a frame of 4 bytes ends inside its command"),
            (
                b"*1\r\n$4\r\nPING\r\n\r\n",
                "ERR Protocol error: a frame of 16 bytes goes on after its command",
            ),
            (
                b"*1\r\n$4\r\nPING\r\nPING\r\n",
                "ERR Protocol error: a frame of 20 bytes goes on after its command",
            ),
            (b"PING\r\nPING\r\n", "ERR Protocol error: a frame of 12 bytes goes on after its command"),
            (b"*1\r\n:4\r\nPING\r\n", "ERR Protocol error: expected '$', got ':'"),
            (b"GET 'a", "ERR Protocol error: unbalanced quotes in request"),
            (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", "SET k v"),
        ];
        let bytes: Vec<u8> = cases.iter().flat_map(|(body, _)| frame(body)).collect();
        let want: Vec<&str> = cases.iter().map(|(_, want)| *want).collect();
        assert_eq!(decode([&bytes[..]], RequestLimits::FULL), want);
        for cut in 0..=bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(decode([left, right], RequestLimits::FULL), want, "cut at {cut}");
        }
        assert_eq!(decode(bytes.chunks(1), RequestLimits::FULL), want);
    }

    #[test]
    fn an_invalid_length_ends_the_connection() {
        let lost = |bytes: &[u8], limits| {
            let out = decode([bytes, &frame(b"PING")], limits);
            assert_eq!(out.len(), 1, "{out:?}");
            out[0].clone()
        };
        let text =
            "a frame of 1346981447 bytes, at most 1073741824 are allowed; does the client send frames?";
        assert!(lost(b"PING\r\n", RequestLimits::FULL).ends_with(text));
        let text = "a frame of 707857674 bytes without a RESP command, at most 65538 are allowed; does the client send frames?";
        assert!(lost(b"*1\r\n$4\r\nPING\r\n", RequestLimits::FULL).ends_with(text));
        assert!(lost(&[0, 3, 0, 0], RequestLimits::UNAUTHENTICATED).contains("at most 40960 are"));
    }

    #[test]
    fn a_large_argument_is_read_into_its_blob_and_never_past_its_frame() {
        let value = vec![7u8; 3 * LARGE_BODY_BYTES_MIN];
        let head = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", value.len());
        for missing in [0, 2, 1000] {
            let len = head.len() + value.len() + 2 - missing;
            let mut decoder = Decoder::new(RequestLimits::FULL, 1 << 30);
            let (mut input, mut argv) = (Chain::new(), Argv::new());
            input.push_slice(&(len as u32).to_be_bytes());
            input.push_slice(head.as_bytes());
            input.push_slice(&value[..10]);
            assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::NeedsBytes));
            assert!(input.is_empty() && decoder.in_frame());
            let mut at = 10;
            while let Some(spare) = decoder.body_spare() {
                let n = spare.len().min(1000);
                spare[..n].copy_from_slice(&value[at..at + n]);
                decoder.body_filled(n);
                at += n;
            }
            assert_eq!(at, value.len().min(len - head.len()));
            input.push_slice(&b"\r\n"[..2 - missing.min(2)]);
            input.push_slice(&frame(b"PING"));
            if missing == 0 {
                assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
                assert_eq!(argv.args().at(1), value);
                assert!(argv.args().large(1).is_some() && !decoder.in_frame());
                argv.clear();
            } else {
                assert_eq!(decoder.decode(&mut input, &mut argv), Err(FrameError::Short { len }));
            }
            assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
            assert_eq!(argv.args().at(0), b"PING");
        }
    }

    #[test]
    fn the_rest_of_a_refused_frame_is_dropped() {
        let (mut decoder, mut input, mut argv) =
            (Decoder::new(RequestLimits::FULL, 1 << 30), Chain::new(), Argv::new());
        input.push_slice(&(1u32 << 29).to_be_bytes());
        input.push_slice(b"*1\r\n$4\r\nPING\r\n");
        let len = 1 << 29;
        assert_eq!(decoder.decode(&mut input, &mut argv), Err(FrameError::Long { len }));
        let block = [b'x'; 1 << 16];
        let mut left = len - 14;
        while left > 0 {
            let n = left.min(block.len());
            input.push_slice(&block[..n]);
            left -= n;
            assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::NeedsBytes));
            assert!(input.is_empty() && decoder.in_frame() == (left > 0));
        }
        input.push_slice(&frame(b"PING"));
        assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
    }

    #[test]
    fn replies_are_sealed_short_and_long() {
        let mut out = Chain::new();
        for len in [0, 5, COPY_BYTES_MAX, 100_000] {
            let mut reply = Chain::new();
            reply.push_slice(&vec![b'r'; len]);
            assert!(seal(&mut out, &mut reply) && reply.is_empty());
            let mut length = [0; LENGTH_BYTES];
            assert!(out.peek(&mut length));
            assert_eq!((u32::from_be_bytes(length) as usize, out.len()), (len, len + LENGTH_BYTES));
            out.clear();
        }
    }

    #[test]
    fn looking_ahead_sees_the_keys_in_frames() {
        let two =
            [frame(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), frame(b"*2\r\n$3\r\nGET\r\n$2\r\nbb\r\n")].concat();
        let mut keys: Vec<&[u8]> = Vec::new();
        assert_eq!(look_ahead(&two, 10, |_| 1, &mut |ahead| keys.push(ahead.key)), 2);
        assert_eq!(keys, [&b"a"[..], b"bb"]);
        for end in 0..two.len() {
            look_ahead(&two[..end], 10, |_| 1, &mut |ahead| assert!(ahead.key.len() <= 2));
        }
    }
}
