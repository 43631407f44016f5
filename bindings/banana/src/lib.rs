//! Banana: the token layer of Foolscap's wire protocol (docs/formats/banana.md), over the chain.
//!
//! A token is a header (a number in base 128), a type byte and, for some types, a body. [`Kind`] lists the types,
//! [`Token`] is one token, [`Decoder`] reads tokens from a chain, and [`Encoder`] writes them into one. The meaning
//! of tokens for objects (slicers, references, the vocabulary) is left out, but OPEN and CLOSE must match.
//!
//! **Invariant:** this crate knows nothing about the rest of Strand except the chain, so it can also serve the
//! Python binding. No port of the server speaks Banana.

mod decode;
mod encode;

pub use decode::{Decoder, LARGE_BODY_BYTES_MIN, Want};
pub use encode::{Encoder, encode};

use strand_chain::Blob;

/// The largest number in an INT (2^31 - 1). The largest magnitude in a NEG is one larger. Numbers beyond are sent as
/// LONGINT or LONGNEG.
pub const INT_MAX: u64 = (1 << 31) - 1;

/// The data after a type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// No data: the number in the header is the value.
    None,
    /// As many bytes as the number in the header.
    Header,
    /// Eight bytes. The header has no meaning.
    Eight,
}

/// The list of all types: type byte, name, body. A macro makes the enum and the functions from this list.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $byte:literal, $name:literal, $body:ident;)*) => {
        /// A type of token. The type bytes are part of the protocol and never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $kind = $byte,)* }

        impl Kind {
            /// Every type, by type byte.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
            /// The type with this type byte.
            #[inline]
            pub fn from_byte(byte: u8) -> Option<Kind> {
                match byte { $($byte => Some(Kind::$kind),)* _ => None }
            }
            /// Foolscap's name of the type.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
            /// The data after the type byte.
            #[inline]
            pub fn body(self) -> BodyLen {
                match self { $(Kind::$kind => BodyLen::$body,)* }
            }
        }
    };
}

kinds! {
    /// A list of this many items, in the old dialect. Sent only to find out whether the peer speaks it.
    List = 0x80, "LIST", None;
    /// A number of at least 0.
    Int = 0x81, "INT", None;
    /// A byte string.
    String = 0x82, "STRING", Header;
    /// A number of at most 0.
    Neg = 0x83, "NEG", None;
    /// An IEEE double, most significant byte first.
    Float = 0x84, "FLOAT", Eight;
    /// A number of at least 0 of any size, most significant byte first.
    LongInt = 0x85, "LONGINT", Header;
    /// A number of at most 0 of any size: its magnitude, most significant byte first.
    LongNeg = 0x86, "LONGNEG", Header;
    /// A string by its index in the vocabulary.
    Vocab = 0x87, "VOCAB", None;
    /// Starts a sequence.
    Open = 0x88, "OPEN", None;
    /// Ends a sequence. The header has the number of the matching OPEN.
    Close = 0x89, "CLOSE", None;
    /// The sequence with this number is invalid. Its CLOSE still follows.
    Abort = 0x8A, "ABORT", None;
    /// The error that the peer found, in ASCII. The peer then closes the connection.
    Error = 0x8D, "ERROR", Header;
    /// Requests a PONG with this number.
    Ping = 0x8E, "PING", None;
    /// The reply to a PING.
    Pong = 0x8F, "PONG", None;
}

impl Kind {
    /// The type byte.
    #[inline]
    pub fn byte(self) -> u8 {
        self as u8
    }
}

/// One token. Tokens are equal when their encodings are: NaNs with equal bits are equal.
#[derive(Clone, Debug)]
pub enum Token {
    /// [`Kind::List`]: the number of items.
    List(u64),
    /// [`Kind::Int`]: the number.
    Int(u64),
    /// [`Kind::Neg`]: the magnitude.
    Neg(u64),
    /// [`Kind::String`]: the bytes.
    String(Blob),
    /// [`Kind::Float`]: the number.
    Float(f64),
    /// [`Kind::LongInt`]: the magnitude, most significant byte first.
    LongInt(Blob),
    /// [`Kind::LongNeg`]: the magnitude, most significant byte first.
    LongNeg(Blob),
    /// [`Kind::Vocab`]: the index of the string in the vocabulary.
    Vocab(u64),
    /// [`Kind::Open`]: the number of this OPEN on the connection, from 0.
    Open(u64),
    /// [`Kind::Close`]: the number of the matching OPEN.
    Close(u64),
    /// [`Kind::Abort`]: the number of the matching OPEN.
    Abort(u64),
    /// [`Kind::Error`]: the peer then closes the connection.
    Error(Blob),
    /// [`Kind::Ping`]: any number.
    Ping(u64),
    /// [`Kind::Pong`]: the number of the PING.
    Pong(u64),
}

impl Token {
    /// `n` in the token that Foolscap uses for it: INT and NEG for 32 bits, LONGINT and LONGNEG beyond.
    pub fn integer(n: i64) -> Token {
        let magnitude = n.unsigned_abs();
        match n >= 0 {
            true if magnitude <= INT_MAX => Token::Int(magnitude),
            false if magnitude <= INT_MAX + 1 => Token::Neg(magnitude),
            positive => {
                let bytes = magnitude.to_be_bytes();
                let blob = Blob::from(&bytes[magnitude.leading_zeros() as usize / 8..]);
                if positive { Token::LongInt(blob) } else { Token::LongNeg(blob) }
            }
        }
    }
    /// The number in an INT, NEG, LONGINT or LONGNEG, if it fits into 128 bits.
    pub fn as_i128(&self) -> Option<i128> {
        let magnitude = |bytes: &[u8]| {
            let zeros = bytes.iter().take_while(|b| **b == 0).count();
            let bytes = &bytes[zeros..];
            (bytes.len() < 16).then(|| bytes.iter().fold(0, |n, b| n << 8 | i128::from(*b)))
        };
        match self {
            Token::Int(n) => Some(i128::from(*n)),
            Token::Neg(n) => Some(-i128::from(*n)),
            Token::LongInt(bytes) => magnitude(bytes),
            Token::LongNeg(bytes) => magnitude(bytes).map(|n: i128| -n),
            _ => None,
        }
    }
    /// The type of the token.
    pub fn kind(&self) -> Kind {
        match self {
            Token::List(_) => Kind::List,
            Token::Int(_) => Kind::Int,
            Token::Neg(_) => Kind::Neg,
            Token::String(_) => Kind::String,
            Token::Float(_) => Kind::Float,
            Token::LongInt(_) => Kind::LongInt,
            Token::LongNeg(_) => Kind::LongNeg,
            Token::Vocab(_) => Kind::Vocab,
            Token::Open(_) => Kind::Open,
            Token::Close(_) => Kind::Close,
            Token::Abort(_) => Kind::Abort,
            Token::Error(_) => Kind::Error,
            Token::Ping(_) => Kind::Ping,
            Token::Pong(_) => Kind::Pong,
        }
    }
    /// The number in the header: a value, an index or a length; 0 for a FLOAT, which has none.
    pub fn header(&self) -> u64 {
        match self {
            Token::List(n) | Token::Int(n) | Token::Neg(n) | Token::Vocab(n) | Token::Open(n) => *n,
            Token::Close(n) | Token::Abort(n) | Token::Ping(n) | Token::Pong(n) => *n,
            Token::String(b) | Token::LongInt(b) | Token::LongNeg(b) | Token::Error(b) => b.len() as u64,
            Token::Float(_) => 0,
        }
    }
    /// The body, for types whose header is its length.
    pub fn bytes(&self) -> Option<&Blob> {
        match self {
            Token::String(b) | Token::LongInt(b) | Token::LongNeg(b) | Token::Error(b) => Some(b),
            _ => None,
        }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        match (self, other) {
            (Token::Float(a), Token::Float(b)) => a.to_bits() == b.to_bits(),
            _ => (self.kind(), self.header(), self.bytes()) == (other.kind(), other.header(), other.bytes()),
        }
    }
}
impl Eq for Token {}

/// Limits on the input from a peer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of a header in bytes, including zeros at its end (64, as in Foolscap).
    pub header_bytes_max: usize,
    /// Maximum length of a STRING in bytes (512 MiB; in Foolscap the schema decides).
    pub string_bytes_max: usize,
    /// Maximum length of a LONGINT or LONGNEG in bytes (64 KiB: half a million bits).
    pub long_bytes_max: usize,
    /// Maximum length of an ERROR in bytes (1,000, as in Foolscap).
    pub error_bytes_max: usize,
    /// Maximum number of items of a LIST (640, from the specification).
    pub list_items_max: usize,
    /// Maximum number of open sequences (10,000, Foolscap's own limit for what it sends). Each open sequence takes 8
    /// bytes.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes_max: 64,
            string_bytes_max: 512 << 20,
            long_bytes_max: 64 << 10,
            error_bytes_max: 1000,
            list_items_max: 640,
            depth_max: 10_000,
        }
    }
}

/// The peer broke the protocol or a limit. The text is sent in an ERROR token, then the connection is closed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BananaError {
    /// The header exceeds [`Limits::header_bytes_max`].
    #[error("token prefix is limited to {bytes_max} bytes")]
    HeaderTooLong {
        /// The maximum length of a header in bytes.
        bytes_max: usize,
    },
    /// The number in a header exceeds 2^64 - 1.
    #[error("number too large in a {} token", .0.name())]
    NumberTooLarge(Kind),
    /// No type has this type byte.
    #[error("Invalid Type Byte 0x{0:x}")]
    UnknownType(u8),
    /// A length or count exceeds its limit.
    #[error("oversized {} token: {len}, at most {max}", .kind.name())]
    Oversized {
        /// The type of the token.
        kind: Kind,
        /// The number in the header of the token.
        len: u64,
        /// The maximum length or number for this type.
        max: usize,
    },
    /// The first token of a sequence must be its type, as a string.
    #[error("OPEN token followed by {}", .0.name())]
    NoIndex(Kind),
    /// The number of a CLOSE differs from that of the innermost open sequence.
    #[error("lost sync, got CLOSE({got}) but expecting {}", expected.map_or("none".into(), |n| n.to_string()))]
    CloseMismatch {
        /// The number of the CLOSE.
        got: u64,
        /// The number of the innermost open sequence, if a sequence is open.
        expected: Option<u64>,
    },
    /// The open sequences exceed [`Limits::depth_max`].
    #[error("more than {depth_max} sequences open at once")]
    TooDeep {
        /// The maximum number of open sequences.
        depth_max: usize,
    },
    /// The allocator has no memory for a body.
    #[error("no memory for a {} token of this length", .0.name())]
    NoMemory(Kind),
}
