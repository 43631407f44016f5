//! [`Decoder`]: tokens from a chain. It wants a header (a bounded look at the front) or a body (of known length), by turns.
//!
//! Resumable at every byte: digits and body bytes are consumed as they come and kept in the decoder's state, so none is
//! looked at twice. A length is judged before the first byte of its body is kept, and memory follows what really arrives.

use crate::{BananaError, BodyLen, Kind, Limits, Token};
use strand_chain::{Body, Chain, OutOfMemory};

/// A body at least this long can be read by the socket straight into its own blob (see [`Decoder::body_spare`]).
pub const LARGE_BODY_BYTES_MIN: usize = 32 * 1024;

/// What comes next on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A header or the rest of one, and a type byte.
    Header,
    /// So many bytes of a body.
    Body(usize),
}

/// A header in the making: the little end came first.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    value: u64,
    /// Digits so far.
    digits: usize,
    /// A digit did not fit into `value`.
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
    /// Numbers of the sequences that are open, the innermost last.
    open: Vec<u64>,
    /// The last token was an OPEN: what it opens is to be said next.
    index_due: bool,
}

impl Decoder {
    /// With `limits`.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, state: State::Header(Header::default()), open: Vec::new(), index_due: false }
    }
    /// Consumes bytes from `input` up to the end of the next token; `None` when more are needed.
    ///
    /// # Errors
    /// [`BananaError`]. The decoder is of no use afterwards.
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
    /// What comes next: a header, or how much of a body.
    pub fn want(&self) -> Want {
        match &self.state {
            State::Header(_) => Want::Header,
            State::Body { body, .. } => Want::Body(body.remaining()),
            State::Float { bytes, filled } => Want::Body(bytes.len() - filled),
        }
    }
    /// True when part of a token has been consumed: the driver arms `TCP_QUICKACK` then.
    pub fn in_frame(&self) -> bool {
        !matches!(self.state, State::Header(Header { digits: 0, .. }))
    }
    /// Sequences that are open.
    pub fn depth(&self) -> usize {
        self.open.len()
    }
    /// Where the socket may read straight into, while a large body is under way (and the chain is empty). None too when
    /// there is no memory for more of it: what is read into the chain instead makes [`Decoder::decode`] say so.
    pub fn body_spare(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            State::Body { body, large: true, .. } if body.remaining() > 0 => body.try_spare().ok(),
            _ => None,
        }
    }
    /// Says that `n` bytes of the last `body_spare()` were filled.
    ///
    /// # Panics
    /// When there was no `body_spare()` or `n` is more than it gave.
    pub fn body_filled(&mut self, n: usize) {
        match &mut self.state {
            State::Body { body, large: true, .. } => body.filled(n),
            _ => assert_eq!(n, 0, "body_spare() came first"),
        }
    }

    /// A header and a type byte are there: the token, or `None` with the state set to take its body.
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

    /// Holds OPEN and CLOSE to match. PING and PONG may come anywhere.
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
    /// Takes the digits at the start of `bytes` in; says how many there are.
    #[inline]
    fn take(&mut self, bytes: &[u8]) -> usize {
        for (i, &byte) in bytes.iter().enumerate() {
            if byte >= 0x80 {
                return i;
            }
            let shift = 7 * self.digits.min(64) as u32;
            // Zeros may be added at the end of any number; other digits have to fit.
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
