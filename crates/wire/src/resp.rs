//! [`Decoder`]: RESP requests (multibulk and inline) from a chain to an [`Argv`].
//!
//! The decoder can resume at every byte. Recognised parts are consumed at once and kept in its state, so an
//! incomplete request costs nothing when more of it arrives. The common case is a command that lies whole in the
//! chain's front slice: it is recognised in one pass and copied once (`take_front`). Everything else goes through a
//! state machine that reads each byte once. A body of [`LARGE_BODY_BYTES_MIN`] or more is received directly into
//! its own blob.
//!
//! The decoder is as lenient as redis-server: it does not check the byte after a header's CR and the two bytes
//! after a body.

use crate::args::Argv;
use crate::header::{Header, TooLong, short_number};
use crate::inline;
use strand_chain::{Body, Chain, OutOfMemory};

/// A bulk argument of at least this length gets its own allocation, and the socket reads directly into it.
pub const LARGE_BODY_BYTES_MIN: usize = 32 * 1024;
/// Maximum number of arguments of a command before authentication.
pub const UNAUTHENTICATED_ARGS_MAX: usize = 10;
/// Maximum length of a bulk argument before authentication, in bytes.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a request before authentication, in bytes: HELLO with the longest allowed name and password.
pub const UNAUTHENTICATED_REQUEST_BYTES_MAX: usize = 40 * 1024;

/// Maximum number of empty requests (an empty line, `*0`) that one call of [`Decoder::decode`] skips.
const EMPTY_REQUESTS_MAX: usize = 256;

/// Maximum number of arguments that one call of [`Decoder::decode`] takes. A call may take a few more, if they lie in
/// one block.
pub const ARGS_PER_CALL_MAX: usize = 4096;

/// Maximum number of bytes that are taken from the input at once: twice the size of an input block, and much less
/// than a block of an argv.
const FRONT_BYTES_MAX: usize = 32 * 1024;

/// Limits of one request, named like redis-server's.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Maximum length of a bulk argument in bytes (`proto-max-bulk-len`, 512 MB).
    pub bulk_bytes_max: usize,
    /// Maximum number of arguments in one command (1,048,576).
    pub args_max: usize,
    /// Maximum length of an inline request or a header line in bytes (64 KiB).
    pub inline_bytes_max: usize,
    /// False before authentication: [`UNAUTHENTICATED_ARGS_MAX`] and [`UNAUTHENTICATED_BULK_BYTES_MAX`] also apply,
    /// with their own error texts.
    pub authenticated: bool,
}

impl RequestLimits {
    /// The limits of an authenticated session.
    pub const FULL: RequestLimits = RequestLimits {
        bulk_bytes_max: 512 << 20,
        args_max: 1024 * 1024,
        inline_bytes_max: 64 * 1024,
        authenticated: true,
    };
    /// The limits before authentication: 10 arguments of 16 KiB.
    pub const UNAUTHENTICATED: RequestLimits = RequestLimits { authenticated: false, ..RequestLimits::FULL };
}

/// The result of a call of [`Decoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// `argv` holds a whole command; clear it before the next call. If `argv` is empty, the call has skipped as many
    /// empty requests as it may (`EMPTY_REQUESTS_MAX`), and returns so that other clients are served.
    Command,
    /// More bytes are needed. Everything recognised is kept.
    NeedsBytes,
    /// The call has taken as many arguments as it may ([`ARGS_PER_CALL_MAX`]), and returns so that other clients are
    /// served. More bytes are ready for the next call.
    LimitReached,
}

/// The peer broke the protocol. The session sends `-ERR Protocol error: <text>` and closes. Each character of the
/// text is one byte of the message, because the text may quote bytes of the peer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(pub String);

impl ProtocolError {
    /// The text of the error reply (`ERR Protocol error: ...`), byte for byte like redis-server's, for
    /// [`Reply::error_bytes`].
    ///
    /// [`Reply::error_bytes`]: crate::reply::Reply::error_bytes
    pub fn message(&self) -> Vec<u8> {
        "ERR Protocol error: ".chars().chain(self.0.chars()).map(|c| c as u8).collect()
    }
    #[cold]
    pub(crate) fn new(text: &str) -> ProtocolError {
        ProtocolError(text.into())
    }
}

/// The position of the next byte within a request.
#[derive(Debug)]
enum State {
    /// At the start of a request, or inside an inline request, which stays in the chain until its line is complete.
    Start,
    /// Inside the line of a `*` header.
    Count(Header),
    /// At the start of an argument's header.
    Argument,
    /// Inside the line of an argument's header.
    Length(Header),
    /// Inside a small argument, with the number of missing bytes.
    Small(usize),
    /// Inside a large argument.
    Large(Body),
    /// After an argument, with the number of CRLF bytes to skip.
    End(usize),
}

/// Some arguments of a request, found by [`look_ahead`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPreview<'a> {
    /// The first key, which is the second argument of most commands.
    pub key: &'a [u8],
    /// The third argument, which is often a field or a member. Empty when it is missing.
    pub third: &'a [u8],
    /// The last argument of the request.
    pub last: &'a [u8],
}

/// Looks ahead without consuming. Visits each of the first `requests_max` requests that lie whole in `front`, have
/// the usual form and have a second argument. Returns the number of whole requests, including those without a
/// second argument. Stops at anything unusual: the result is a hint. `find_key` returns the index of the first key, from
/// a command's name; it is called only for requests of more than three arguments.
pub fn look_ahead<'a>(
    front: &'a [u8],
    requests_max: usize,
    find_key: fn(&[u8]) -> usize,
    visit: &mut dyn FnMut(RequestPreview<'a>),
) -> usize {
    let mut at = 0;
    for seen in 0..requests_max {
        let Some(next) = visit_request(front, at, find_key, visit) else { return seen };
        at = next;
    }
    requests_max
}

/// A request of at most this many arguments has its key at index 1.
const KEY_AT_ONE_MAX: usize = 3;

/// Visits the request at `at`. Returns the start of the next request.
#[inline]
pub(crate) fn visit_request<'a>(
    front: &'a [u8],
    at: usize,
    find_key: fn(&[u8]) -> usize,
    visit: &mut dyn FnMut(RequestPreview<'a>),
) -> Option<usize> {
    if *front.get(at)? != b'*' {
        return None;
    }
    let (arguments, mut at) = short_number(front, at + 1)?;
    let (mut ahead, mut key_at) = (RequestPreview::default(), 1);
    for i in 0..arguments {
        if *front.get(at)? != b'$' {
            return None;
        }
        let (len, begin) = short_number(front, at + 1)?;
        at = begin + len + 2;
        if at > front.len() {
            return None;
        }
        ahead.last = &front[begin..begin + len];
        match i {
            0 if arguments > KEY_AT_ONE_MAX => key_at = find_key(ahead.last),
            2 => ahead.third = ahead.last,
            _ => {}
        }
        if i == key_at {
            ahead.key = ahead.last;
        }
    }
    if arguments > 1 {
        visit(ahead);
    }
    Some(at)
}

/// A resumable request decoder, one per session.
#[derive(Debug)]
pub struct Decoder {
    limits: RequestLimits,
    state: State,
    /// Number of arguments of the current command that are not complete.
    args_left: usize,
    /// True while part of a request is held here or in the chain.
    in_request: bool,
}

impl Decoder {
    /// A decoder with `limits`.
    pub fn new(limits: RequestLimits) -> Decoder {
        Decoder { limits, state: State::Start, args_left: 0, in_request: false }
    }
    /// Changes the limits. They apply to the headers read from now on.
    pub fn set_limits(&mut self, limits: RequestLimits) {
        self.limits = limits;
    }
    /// Consumes bytes from `input` until `argv` holds one command. The caller clears `argv` after a command and
    /// otherwise passes it unchanged. Empty requests are skipped, up to a limit per call.
    ///
    /// # Errors
    /// [`ProtocolError`] with redis-server's text. The decoder cannot be used after an error.
    #[inline]
    pub fn decode(&mut self, input: &mut Chain, argv: &mut Argv) -> Result<Decoded, ProtocolError> {
        if matches!(self.state, State::Start | State::Argument) {
            let (consumed, whole) = self.take_front(input.front(), argv);
            input.advance(consumed);
            if whole {
                return Ok(Decoded::Command);
            }
        }
        self.decode_slowly(input, argv)
    }
    /// True when part of a request has been consumed or examined. The driver then sets `TCP_QUICKACK`.
    pub fn in_request(&self) -> bool {
        self.in_request
    }
    /// Drops the current request.
    pub(crate) fn reset(&mut self) {
        (self.state, self.args_left, self.in_request) = (State::Start, 0, false);
    }
    /// The memory for the socket to read into while a large body arrives and the chain is empty. `None` also when
    /// no memory is left. The bytes then go to the chain, and [`Decoder::decode`] reports the error.
    pub fn body_spare(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            State::Large(body) if body.remaining() > 0 => body.try_spare().ok(),
            _ => None,
        }
    }
    /// Marks `n` bytes of the last `body_spare()` as filled.
    ///
    /// # Panics
    /// Panics if there was no `body_spare()` or `n` exceeds its length.
    pub fn body_filled(&mut self, n: usize) {
        match &mut self.state {
            State::Large(body) => body.filled(n),
            _ => assert_eq!(n, 0, "body_spare() came first"),
        }
    }

    /// Takes arguments from `front` while they lie in it whole and are ordinary: within the limits, no large body,
    /// lengths in the usual form. Leaves anything else to the state machine. Returns the number of bytes taken and
    /// whether the command is complete.
    ///
    /// Always inlined into the path of small requests: this saves about 35 instructions per request.
    #[inline(always)]
    pub(crate) fn take_front(&mut self, front: &[u8], argv: &mut Argv) -> (usize, bool) {
        let front = &front[..front.len().min(FRONT_BYTES_MAX)];
        if !argv.reserve(front.len()) {
            return (0, false);
        }
        let (args_max, bulk_max) = self.ordinary();
        let mut at = 0;
        let mut left = self.args_left;
        if let State::Start = self.state {
            if front.first() != Some(&b'*') {
                return (0, false);
            }
            match short_number(front, 1) {
                Some((n, after)) if n > 0 && n <= args_max => (left, at) = (n, after),
                _ => return (0, false),
            }
        }
        let from = at;
        let shift = argv.position().wrapping_sub(from);
        while left > 0 {
            if front.get(at) != Some(&b'$') {
                break;
            }
            let Some((n, start)) = short_number(front, at + 1) else { break };
            let end = start + n + 2;
            if n > bulk_max || end > front.len() {
                break;
            }
            argv.push_span(shift.wrapping_add(start), n);
            at = end;
            left -= 1;
        }
        argv.append(&front[from..at]);
        self.args_left = left;
        self.in_request = left > 0;
        self.state = if left > 0 { State::Argument } else { State::Start };
        (at, left == 0)
    }

    /// The largest number of arguments and the largest length that need no further check.
    #[inline]
    fn ordinary(&self) -> (usize, usize) {
        let (mut args, mut bulk) =
            (self.limits.args_max, self.limits.bulk_bytes_max.min(LARGE_BODY_BYTES_MIN - 1));
        if !self.limits.authenticated {
            args = args.min(UNAUTHENTICATED_ARGS_MAX);
            bulk = bulk.min(UNAUTHENTICATED_BULK_BYTES_MAX);
        }
        (args, bulk)
    }

    /// Decodes the whole grammar, a byte or a body at a time.
    #[inline(never)]
    fn decode_slowly(&mut self, input: &mut Chain, argv: &mut Argv) -> Result<Decoded, ProtocolError> {
        let (mut empty_requests, mut taken) = (0, 0);
        loop {
            if taken >= ARGS_PER_CALL_MAX {
                self.in_request = true;
                return Ok(Decoded::LimitReached);
            }
            if empty_requests == EMPTY_REQUESTS_MAX {
                self.in_request = false;
                return Ok(Decoded::Command);
            }
            if input.is_empty() {
                let body_done = matches!(&self.state, State::Large(body) if body.remaining() == 0);
                if !body_done {
                    self.in_request = !matches!(self.state, State::Start);
                    return Ok(Decoded::NeedsBytes);
                }
            }
            match &mut self.state {
                State::Start if input.front()[0] == b'*' => self.state = State::Count(Header::default()),
                State::Start => {
                    let Some(line_len) = input.find(b'\n', self.limits.inline_bytes_max + 1) else {
                        if input.len() > self.limits.inline_bytes_max {
                            return Err(ProtocolError::new("too big inline request"));
                        }
                        self.in_request = true;
                        return Ok(Decoded::NeedsBytes);
                    };
                    inline::take_line(input, line_len, argv)?;
                    if !argv.is_empty() {
                        self.in_request = false;
                        return Ok(Decoded::Command);
                    }
                    empty_requests += 1;
                }
                State::Count(header) => {
                    let done = header.take(input, self.limits.inline_bytes_max);
                    let header = *header;
                    if done.map_err(|TooLong| ProtocolError::new("too big mbulk count string"))? {
                        let n = self.judge_count(&header)?;
                        self.args_left = n;
                        self.state = if n == 0 { State::Start } else { State::Argument };
                        empty_requests += usize::from(n == 0);
                    }
                }
                // The argument that was split over two blocks is complete now, so the next arguments may lie in one
                // slice again.
                State::Argument => {
                    let left = self.args_left;
                    let (consumed, whole) = self.take_front(input.front(), argv);
                    input.advance(consumed);
                    if whole {
                        return Ok(Decoded::Command);
                    }
                    taken += left - self.args_left;
                    if consumed == 0 {
                        self.state = State::Length(Header::default());
                    }
                }
                State::Length(header) => {
                    let done = header.take(input, self.limits.inline_bytes_max);
                    let header = *header;
                    if done.map_err(|TooLong| ProtocolError::new("too big bulk count string"))? {
                        let n = self.judge_length(&header)?;
                        self.state = if n >= LARGE_BODY_BYTES_MIN || !argv.reserve(n) {
                            State::Large(Body::new(n))
                        } else {
                            argv.push_span(argv.position(), n);
                            State::Small(n)
                        };
                    }
                }
                State::Small(0) => self.state = State::End(2),
                State::Small(left) => {
                    let front = input.front();
                    let n = front.len().min(*left);
                    argv.append(&front[..n]);
                    *left -= n;
                    input.advance(n);
                }
                State::Large(body) if body.remaining() == 0 => {
                    let State::Large(body) = std::mem::replace(&mut self.state, State::End(2)) else {
                        unreachable!("matched above")
                    };
                    argv.push_blob(body.into_blob());
                }
                State::Large(body) => {
                    let n = body.try_fill_from(input.front()).map_err(|OutOfMemory| {
                        ProtocolError::new("no memory for a bulk argument of this length")
                    })?;
                    input.advance(n);
                }
                State::End(left) => {
                    let n = input.len().min(*left);
                    *left -= n;
                    let ended = *left == 0;
                    input.advance(n);
                    if ended {
                        taken += 1;
                        self.args_left -= 1;
                        self.state = if self.args_left == 0 { State::Start } else { State::Argument };
                        if self.args_left == 0 {
                            self.in_request = false;
                            return Ok(Decoded::Command);
                        }
                    }
                }
            }
        }
    }

    /// Checks a `*` header. Returns the number of arguments; 0 for an empty request.
    fn judge_count(&self, header: &Header) -> Result<usize, ProtocolError> {
        let max = self.limits.args_max as i64;
        match header.number() {
            Some(n) if n <= 0 => Ok(0),
            Some(n) if n <= max => {
                if n > UNAUTHENTICATED_ARGS_MAX as i64 && !self.limits.authenticated {
                    return Err(ProtocolError::new("unauthenticated multibulk length"));
                }
                Ok(n as usize)
            }
            _ => Err(ProtocolError::new("invalid multibulk length")),
        }
    }

    /// Checks a `$` header. Returns the length.
    fn judge_length(&self, header: &Header) -> Result<usize, ProtocolError> {
        if header.first() != b'$' {
            return Err(ProtocolError(format!("expected '$', got '{}'", header.first() as char)));
        }
        match header.number() {
            Some(n) if n >= 0 && n <= self.limits.bulk_bytes_max as i64 => {
                if n > UNAUTHENTICATED_BULK_BYTES_MAX as i64 && !self.limits.authenticated {
                    return Err(ProtocolError::new("unauthenticated bulk length"));
                }
                Ok(n as usize)
            }
            _ => Err(ProtocolError::new("invalid bulk length")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `pieces` in order. Returns the commands, and the error that ended the stream.
    fn decode(pieces: &[&[u8]], limits: RequestLimits) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
        let (mut decoder, mut input, mut argv) = (Decoder::new(limits), Chain::new(), Argv::new());
        let mut commands = Vec::new();
        for piece in pieces {
            input.push_slice(piece);
            loop {
                match decoder.decode(&mut input, &mut argv) {
                    Ok(Decoded::NeedsBytes) => break,
                    Ok(Decoded::LimitReached) => {}
                    Ok(Decoded::Command) => {
                        commands.push(argv.args().iter().map(<[u8]>::to_vec).collect());
                        argv.clear();
                    }
                    Err(error) => return (commands, Some(error.to_string())),
                }
            }
        }
        (commands, None)
    }

    #[test]
    fn pipeline_at_every_split() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a\\x41\"\r\n*0\r\n\r\n*1\r\n$0\r\n\r\n";
        let whole = decode(&[bytes], RequestLimits::FULL);
        assert_eq!(
            whole.0,
            [vec![b"GET".to_vec(), b"k".to_vec()], vec![b"PING".to_vec(), b"aA".to_vec()], vec![vec![]]]
        );
        for cut in 0..=bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(decode(&[left, right], RequestLimits::FULL), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single, RequestLimits::FULL), whole);
    }

    #[test]
    fn a_quoted_byte_stays_that_byte() {
        let error = Decoder::new(RequestLimits::FULL).decode(&mut chain(b"*1\r\n\xe9\r\n"), &mut Argv::new());
        assert_eq!(error.expect_err("no dollar").message(), b"ERR Protocol error: expected '$', got '\xe9'");
    }

    #[test]
    fn a_header_without_a_first_byte_is_quoted_by_its_line_end() {
        let error = Decoder::new(RequestLimits::FULL).decode(&mut chain(b"*1\r\n\r\n"), &mut Argv::new());
        let mut out = Chain::new();
        let mut reply = crate::reply::Reply::new(&mut out, crate::reply::Protocol::Resp2);
        reply.error_bytes(&error.expect_err("no dollar").message());
        assert_eq!(out.front(), b"-ERR Protocol error: expected '$', got ' '\r\n");
    }

    #[test]
    fn a_call_skips_a_bounded_number_of_empty_requests() {
        for empty in [&b"\n"[..], b"  \r\n", b"*0\r\n", b"*-1\r\n"] {
            let (mut decoder, mut argv) = (Decoder::new(RequestLimits::FULL), Argv::new());
            let mut input = chain(&[&empty.repeat(2 * EMPTY_REQUESTS_MAX + 3), &b"PING\r\n"[..]].concat());
            for calls in 1..=2 {
                let before = input.len();
                assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
                assert_eq!(
                    (before - input.len(), argv.is_empty()),
                    (EMPTY_REQUESTS_MAX * empty.len(), true),
                    "{calls}"
                );
                assert!(!decoder.in_request());
            }
            assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
            assert_eq!((input.len(), argv.args().at(0)), (0, &b"PING"[..]));
        }
    }

    fn chain(bytes: &[u8]) -> Chain {
        let mut chain = Chain::new();
        chain.push_slice(bytes);
        chain
    }

    #[test]
    fn large_body_is_read_straight_into_its_blob() {
        let value = vec![7u8; 3 * LARGE_BODY_BYTES_MIN];
        let (mut decoder, mut input, mut argv) =
            (Decoder::new(RequestLimits::FULL), Chain::new(), Argv::new());
        input.push_slice(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", value.len()).as_bytes());
        input.push_slice(&value[..10]);
        assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::NeedsBytes));
        assert!(input.is_empty() && decoder.in_request());
        let mut at = 10;
        while let Some(spare) = decoder.body_spare() {
            let n = spare.len().min(1000).min(value.len() - at);
            spare[..n].copy_from_slice(&value[at..at + n]);
            decoder.body_filled(n);
            at += n;
        }
        assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::NeedsBytes));
        input.push_slice(b"\r\n");
        assert_eq!(decoder.decode(&mut input, &mut argv), Ok(Decoded::Command));
        assert_eq!(argv.args().at(1), value);
        assert!(!decoder.in_request());
    }

    #[test]
    fn look_ahead_sees_the_keys_of_whole_ordinary_requests() {
        let two =
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$2\r\nbb\r\n$3\r\nxyz\r\n";
        for (tail, requests) in
            [(&b""[..], 3), (b"*2\r\n$3\r\nGET\r\n$5\r\nab", 3), (b"PING\r\n", 3), (b"*02\r\n", 3)]
        {
            let front = [two, tail].concat();
            let mut keys: Vec<&[u8]> = Vec::new();
            assert_eq!(look_ahead(&front, 10, |_| 1, &mut |ahead| keys.push(ahead.key)), requests);
            assert_eq!(keys, [&b"a"[..], b"bb"]);
        }
        assert_eq!(look_ahead(two, 1, |_| 1, &mut |ahead| assert_eq!(ahead.key, b"a")), 1);
        // `look_ahead` must never read beyond the slice.
        for end in 0..two.len() {
            look_ahead(&two[..end], 10, |_| 1, &mut |ahead| assert!(ahead.key.len() <= 2));
        }
        let huge = b"*9999999\r\n$9999999\r\nx";
        assert_eq!(look_ahead(huge, 10, |_| 1, &mut |_| panic!("no key in it")), 0);
    }

    #[test]
    fn a_call_takes_a_bounded_number_of_arguments() {
        let arguments = 3 * ARGS_PER_CALL_MAX;
        let text = format!("*{arguments}\r\n{}", "$2\r\nab\r\n".repeat(arguments));
        let (mut decoder, mut input, mut argv) =
            (Decoder::new(RequestLimits::FULL), Chain::new(), Argv::new());
        // No piece holds a whole argument, so the fast path takes no argument.
        for piece in text.as_bytes().chunks(3) {
            input.push_blob(piece.into());
        }
        let mut calls = Vec::new();
        while calls.last() != Some(&arguments) {
            let progress = decoder.decode(&mut input, &mut argv);
            calls.push(argv.len());
            let want = if argv.len() == arguments { Decoded::Command } else { Decoded::LimitReached };
            assert_eq!(progress, Ok(want));
            assert_eq!(decoder.in_request(), want == Decoded::LimitReached);
        }
        assert_eq!(calls, [1, 2, 3].map(|n| n * ARGS_PER_CALL_MAX));
    }
}
