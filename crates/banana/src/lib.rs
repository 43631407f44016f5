//! Banana: the token layer of Foolscap's wire protocol (docs/formats/banana.md), over the chain.
//!
//! A token is a header (a number in base 128), a type byte, and for some types a body. [`Kind`] is the registry of types,
//! [`Token`] one token, [`Decoder`] takes tokens from a chain and [`Encoder`] puts them into one. What tokens mean to
//! objects (slicers, references, the vocabulary) is left out, except that OPEN and CLOSE are held to match.
//!
//! **Invariant:** knows nothing of ours but the chain: it can stand beside the Python binding. No door of the server speaks it.

mod decode;
mod encode;

pub use decode::{Decoder, LARGE_BODY_BYTES_MIN, Want};
pub use encode::{Encoder, encode};

use strand_chain::Blob;

/// The largest INT (2^31 - 1); NEG goes one further. What is beyond is sent as LONGINT or LONGNEG.
pub const INT_MAX: u64 = (1 << 31) - 1;

/// What stands after a type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLen {
    /// Nothing: the header is the value.
    None,
    /// As many bytes as the header says.
    Header,
    /// Eight bytes; a header is of no meaning.
    Eight,
}

/// One macro list: type byte, name, body.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $byte:literal, $name:literal, $body:ident;)*) => {
        /// A type of token. Its numbers are on the wire: they never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $kind = $byte,)* }

        impl Kind {
            /// Every type, by type byte.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
            /// The type that a type byte names.
            #[inline]
            pub fn from_byte(byte: u8) -> Option<Kind> {
                match byte { $($byte => Some(Kind::$kind),)* _ => None }
            }
            /// Foolscap's name for it.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
            /// What follows its type byte.
            #[inline]
            pub fn body(self) -> BodyLen {
                match self { $(Kind::$kind => BodyLen::$body,)* }
            }
        }
    };
}

kinds! {
    /// A list of so many items, of the old dialect: sent only to find out that the peer speaks it.
    List = 0x80, "LIST", None;
    /// A number from 0 on.
    Int = 0x81, "INT", None;
    /// A byte string.
    String = 0x82, "STRING", Header;
    /// A number from 0 down.
    Neg = 0x83, "NEG", None;
    /// An IEEE double, most significant byte first.
    Float = 0x84, "FLOAT", Eight;
    /// A number from 0 on of any size, most significant byte first.
    LongInt = 0x85, "LONGINT", Header;
    /// A number from 0 down of any size, most significant byte of its magnitude first.
    LongNeg = 0x86, "LONGNEG", Header;
    /// A string by its index in the vocabulary.
    Vocab = 0x87, "VOCAB", None;
    /// Begins a sequence.
    Open = 0x88, "OPEN", None;
    /// Ends the sequence of the same number.
    Close = 0x89, "CLOSE", None;
    /// The sequence of this number is not to be used; its CLOSE follows all the same.
    Abort = 0x8A, "ABORT", None;
    /// What the peer found wrong, in ASCII, before it closes.
    Error = 0x8D, "ERROR", Header;
    /// Asks for a PONG of the same number.
    Ping = 0x8E, "PING", None;
    /// Answers a PING.
    Pong = 0x8F, "PONG", None;
}

impl Kind {
    /// Its type byte.
    #[inline]
    pub fn byte(self) -> u8 {
        self as u8
    }
}

/// One token. Two are equal when they are encoded alike: NaNs of the same bits are.
#[derive(Clone, Debug)]
pub enum Token {
    /// [`Kind::List`]: how many items.
    List(u64),
    /// [`Kind::Int`]
    Int(u64),
    /// [`Kind::Neg`]: the magnitude.
    Neg(u64),
    /// [`Kind::String`]
    String(Blob),
    /// [`Kind::Float`]
    Float(f64),
    /// [`Kind::LongInt`]: the magnitude, most significant byte first.
    LongInt(Blob),
    /// [`Kind::LongNeg`]: the magnitude, most significant byte first.
    LongNeg(Blob),
    /// [`Kind::Vocab`]: the index.
    Vocab(u64),
    /// [`Kind::Open`]: which OPEN of the connection it is, from 0.
    Open(u64),
    /// [`Kind::Close`]: the number of its OPEN.
    Close(u64),
    /// [`Kind::Abort`]: the number of its OPEN.
    Abort(u64),
    /// [`Kind::Error`]: the peer closes after it.
    Error(Blob),
    /// [`Kind::Ping`]: any number.
    Ping(u64),
    /// [`Kind::Pong`]: the number of the PING.
    Pong(u64),
}

impl Token {
    /// `n` in the token that Foolscap sends it in: INT and NEG for 32 bits, LONGINT and LONGNEG beyond.
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
    /// The number of an INT, NEG, LONGINT or LONGNEG, when 128 bits hold it.
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
    /// Its type.
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
    /// The number that its header holds: a value, an index, a length; 0 for a FLOAT, which has none.
    pub fn header(&self) -> u64 {
        match self {
            Token::List(n) | Token::Int(n) | Token::Neg(n) | Token::Vocab(n) | Token::Open(n) => *n,
            Token::Close(n) | Token::Abort(n) | Token::Ping(n) | Token::Pong(n) => *n,
            Token::String(b) | Token::LongInt(b) | Token::LongNeg(b) | Token::Error(b) => b.len() as u64,
            Token::Float(_) => 0,
        }
    }
    /// The body of a type whose header says its length.
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

/// Bounds on what a peer may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest header in bytes, the zeros at its end included (64, as in Foolscap).
    pub header_bytes_max: usize,
    /// Longest STRING in bytes (512 MiB; Foolscap leaves it to the schema).
    pub string_bytes_max: usize,
    /// Longest LONGINT or LONGNEG in bytes (64 KiB: half a million bits).
    pub long_bytes_max: usize,
    /// Longest ERROR in bytes (1,000, as in Foolscap).
    pub error_bytes_max: usize,
    /// Most items that a LIST may announce (640, the specification's).
    pub list_items_max: usize,
    /// Most sequences open at once (10,000: Foolscap's own bound on what it sends). Each costs 8 bytes.
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

/// The peer broke the protocol or a limit: the text goes out in an ERROR token, then the connection is closed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BananaError {
    /// More header bytes than [`Limits::header_bytes_max`].
    #[error("token prefix is limited to {bytes_max} bytes")]
    HeaderTooLong {
        /// The limit.
        bytes_max: usize,
    },
    /// A header's number is over 2^64 - 1.
    #[error("number too large in a {} token", .0.name())]
    NumberTooLarge(Kind),
    /// No type has this byte.
    #[error("Invalid Type Byte 0x{0:x}")]
    UnknownType(u8),
    /// A length or count over its limit.
    #[error("oversized {} token: {len}, at most {max}", .kind.name())]
    Oversized {
        /// Its type.
        kind: Kind,
        /// What the header says.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// The first token of a sequence must say what it is.
    #[error("OPEN token followed by {}", .0.name())]
    NoIndex(Kind),
    /// A CLOSE of another number than the OPEN it ends.
    #[error("lost sync, got CLOSE({got}) but expecting {}", expected.map_or("none".into(), |n| n.to_string()))]
    CloseMismatch {
        /// Its number.
        got: u64,
        /// The number of the innermost sequence, if one is open.
        expected: Option<u64>,
    },
    /// More sequences open at once than [`Limits::depth_max`].
    #[error("more than {depth_max} sequences open at once")]
    TooDeep {
        /// The limit.
        depth_max: usize,
    },
    /// The allocator gives no more for a body.
    #[error("no memory for a {} token of this length", .0.name())]
    NoMemory(Kind),
}
