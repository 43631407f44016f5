//! [`Decoder`]: reads tokens from a chain. Headers (a bounded number of bytes) and bodies (of known length)
//! alternate.
//!
//! The decoder can resume at every byte. Digits and body bytes are consumed as they arrive and kept in its state,
//! so no byte is read twice. A length is checked before the first byte of its body is kept, and memory grows only
//! with the bytes that arrive.

use crate::{BananaError, BodyLen, Kind, Limits, Token};
use strand_chain::{Body, Chain, OutOfMemory};

/// The socket can read a body of at least this length directly into its own blob (see [`Decoder::body_spare`]).
pub const LARGE_BODY_BYTES_MIN: usize = 32 * 1024;

/// The next part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A header, of which some bytes may have arrived, and a type byte.
    Header,
    /// The body of a token, of which this number of bytes is missing.
    Body(usize),
}

/// An incomplete header. The least significant digit comes first.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    value: u64,
    /// Number of digits that have arrived.
    digits: usize,
    /// True when a digit did not fit into `value`.
    overflow: bool,
}

#[derive(Debug)]
enum State {
    Header(Header),
    Body { kind: Kind, body: Body, large: bool },
    Float { bytes: [u8; 8], filled: usize },
}

/// A resumable token decoder, one per connection and direction.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    /// The number of each open sequence, innermost last.
    open: Vec<u64>,
    /// True when the last token was an OPEN: the next token must say what it opens.
    index_due: bool,
}

impl Decoder {
    /// A decoder with `limits`.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, state: State::Header(Header::default()), open: Vec::new(), index_due: false }
    }
    /// Consumes bytes from `input` up to the end of the next token; `None` when more are needed.
    ///
    /// # Errors
    /// [`BananaError`]. The decoder cannot be used after an error.
    pub fn decode(&mut self, input: &mut Chain) -> Result<Option<Token>, BananaError> {
        loop {
            match &mut self.state {
                State::Header(header) => {
                    let front = input.front();
                    if front.is_empty() {
                        return Ok(None);
                    }
                    let room = self.limits.header_bytes_max - header.digits;
                    let digits = header.take(&front[..front.len().min(room)]);
                    let type_byte = front.get(digits).copied();
                    let Some(byte) = type_byte else {
                        input.advance(digits);
                        continue;
                    };
                    if byte < 0x80 {
                        let bytes_max = self.limits.header_bytes_max;
                        return Err(BananaError::HeaderTooLong { bytes_max });
                    }
                    let header = *header;
                    input.advance(digits + 1);
                    self.state = State::Header(Header::default());
                    if let Some(token) = self.begin(header, byte)? {
                        return Ok(Some(token));
                    }
                }
                State::Body { kind, body, .. } => {
                    let kind = *kind;
                    if body.remaining() > 0 {
                        let front = input.front();
                        if front.is_empty() {
                            return Ok(None);
                        }
                        let n = body.try_fill_from(front);
                        input.advance(n.map_err(|OutOfMemory| BananaError::NoMemory(kind))?);
                        continue;
                    }
                    let done = std::mem::replace(&mut self.state, State::Header(Header::default()));
                    let State::Body { body, .. } = done else { unreachable!("matched above") };
                    return Ok(Some(with_body(kind, body)));
                }
                State::Float { bytes, filled } => {
                    let front = input.front();
                    if front.is_empty() {
                        return Ok(None);
                    }
                    let n = front.len().min(bytes.len() - *filled);
                    bytes[*filled..][..n].copy_from_slice(&front[..n]);
                    *filled += n;
                    let value = (*filled == bytes.len()).then(|| f64::from_be_bytes(*bytes));
                    input.advance(n);
                    if let Some(value) = value {
                        self.state = State::Header(Header::default());
                        return Ok(Some(Token::Float(value)));
                    }
                }
            }
        }
    }
    /// The next part of the input: a header, or the missing bytes of a body.
    pub fn want(&self) -> Want {
        match &self.state {
            State::Header(_) => Want::Header,
            State::Body { body, .. } => Want::Body(body.remaining()),
            State::Float { bytes, filled } => Want::Body(bytes.len() - filled),
        }
    }
    /// True when part of a token has been consumed. The driver then sets `TCP_QUICKACK`.
    pub fn in_frame(&self) -> bool {
        !matches!(self.state, State::Header(Header { digits: 0, .. }))
    }
    /// Number of open sequences.
    pub fn depth(&self) -> usize {
        self.open.len()
    }
    /// The memory for the socket to read into while a large body arrives and the chain is empty. `None` also when
    /// no memory is left. The bytes then go to the chain, and [`Decoder::decode`] reports the error.
    pub fn body_spare(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            State::Body { body, large: true, .. } if body.remaining() > 0 => body.try_spare().ok(),
            _ => None,
        }
    }
    /// Marks `n` bytes of the last `body_spare()` as filled.
    ///
    /// # Panics
    /// When there was no `body_spare()` or `n` exceeds its length.
    pub fn body_filled(&mut self, n: usize) {
        match &mut self.state {
            State::Body { body, large: true, .. } => body.filled(n),
            _ => assert_eq!(n, 0, "body_spare() came first"),
        }
    }

    /// Handles a complete header with its type byte. Returns the token, or `None` when its body follows.
    fn begin(&mut self, header: Header, byte: u8) -> Result<Option<Token>, BananaError> {
        let kind = Kind::from_byte(byte).ok_or(BananaError::UnknownType(byte))?;
        if header.overflow && kind.body() != BodyLen::Eight {
            return Err(BananaError::NumberTooLarge(kind));
        }
        let n = header.value;
        self.nest(kind, n)?;
        let oversized = |max| Err(BananaError::Oversized { kind, len: n, max });
        let max = match kind {
            Kind::String => self.limits.string_bytes_max,
            Kind::LongInt | Kind::LongNeg => self.limits.long_bytes_max,
            Kind::Error => self.limits.error_bytes_max,
            Kind::List => self.limits.list_items_max,
            _ => usize::MAX,
        };
        match kind.body() {
            BodyLen::Header | BodyLen::None if n > max as u64 => oversized(max),
            BodyLen::Header => {
                let len = n as usize;
                self.state = State::Body { kind, body: Body::new(len), large: len >= LARGE_BODY_BYTES_MIN };
                Ok(None)
            }
            BodyLen::Eight => {
                self.state = State::Float { bytes: [0; 8], filled: 0 };
                Ok(None)
            }
            BodyLen::None => Ok(Some(without_body(kind, n))),
        }
    }

    /// Checks that OPEN and CLOSE match. PING and PONG may occur anywhere.
    fn nest(&mut self, kind: Kind, n: u64) -> Result<(), BananaError> {
        if matches!(kind, Kind::Ping | Kind::Pong | Kind::Error) {
            return Ok(());
        }
        if self.index_due && matches!(kind, Kind::Open | Kind::Close) {
            return Err(BananaError::NoIndex(kind));
        }
        self.index_due = kind == Kind::Open;
        match kind {
            Kind::Open if self.open.len() >= self.limits.depth_max => {
                return Err(BananaError::TooDeep { depth_max: self.limits.depth_max });
            }
            Kind::Open => self.open.push(n),
            Kind::Close => {
                let expected = self.open.pop();
                if expected != Some(n) {
                    return Err(BananaError::CloseMismatch { got: n, expected });
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Header {
    /// Consumes the digits at the start of `bytes`. Returns how many digits that were.
    #[inline]
    fn take(&mut self, bytes: &[u8]) -> usize {
        for (i, &byte) in bytes.iter().enumerate() {
            if byte >= 0x80 {
                return i;
            }
            let shift = 7 * self.digits.min(64) as u32;
            // A number may end with any number of zero digits. Other digits must fit into 64 bits.
            if byte != 0 {
                let digit = u64::from(byte);
                self.overflow |= shift >= u64::BITS || digit << shift >> shift != digit;
                self.value |= if shift < u64::BITS { digit << shift } else { 0 };
            }
            self.digits += 1;
        }
        bytes.len()
    }
}

fn without_body(kind: Kind, n: u64) -> Token {
    match kind {
        Kind::List => Token::List(n),
        Kind::Int => Token::Int(n),
        Kind::Neg => Token::Neg(n),
        Kind::Vocab => Token::Vocab(n),
        Kind::Open => Token::Open(n),
        Kind::Close => Token::Close(n),
        Kind::Abort => Token::Abort(n),
        Kind::Ping => Token::Ping(n),
        Kind::Pong => Token::Pong(n),
        Kind::String | Kind::LongInt | Kind::LongNeg | Kind::Error | Kind::Float => {
            unreachable!("{} has a body", kind.name())
        }
    }
}

fn with_body(kind: Kind, body: Body) -> Token {
    let blob = body.into_blob();
    match kind {
        Kind::LongInt => Token::LongInt(blob),
        Kind::LongNeg => Token::LongNeg(blob),
        Kind::Error => Token::Error(blob),
        _ => Token::String(blob),
    }
}
