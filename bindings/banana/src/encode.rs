//! [`encode`] and [`Encoder`]: write tokens into a chain, byte for byte like Foolscap.

use crate::{Limits, Token};
use strand_chain::{Blob, Chain};

/// A body of at least this length is appended as a shared blob, without a copy.
const SHARED_BYTES_MIN: usize = 4 * 1024;
/// Maximum length of a header: a number of 64 bits has 10 digits of 7 bits.
const HEADER_BYTES: usize = 10;

/// Appends `token` to `out`. Only the first 1,000 bytes of an ERROR are sent, because a peer accepts no more.
pub fn encode(token: &Token, out: &mut Chain) {
    match token {
        Token::Float(value) => {
            let mut bytes = [token.kind().byte(); 9];
            bytes[1..].copy_from_slice(&value.to_be_bytes());
            out.push_slice(&bytes);
        }
        Token::Error(text) => {
            let text = &text[..text.len().min(Limits::default().error_bytes_max)];
            header(text.len() as u64, token.kind().byte(), out);
            out.push_slice(text);
        }
        // The number of a PING or PONG is optional, and Foolscap omits a zero.
        Token::Ping(0) | Token::Pong(0) => out.push_slice(&[token.kind().byte()]),
        _ => {
            header(token.header(), token.kind().byte(), out);
            token.bytes().into_iter().for_each(|bytes| body(bytes, out));
        }
    }
}

/// Appends a header: `n` in base 128, least significant digit first, and the type byte.
fn header(mut n: u64, type_byte: u8, out: &mut Chain) {
    let mut bytes = [0; HEADER_BYTES + 1];
    let mut len = 0;
    loop {
        bytes[len] = (n & 0x7f) as u8;
        len += 1;
        n >>= 7;
        if n == 0 {
            break;
        }
    }
    bytes[len] = type_byte;
    out.push_slice(&bytes[..=len]);
}

fn body(bytes: &Blob, out: &mut Chain) {
    if bytes.len() < SHARED_BYTES_MIN {
        out.push_slice(bytes);
    } else {
        out.push_blob(bytes.clone());
    }
}

/// Numbers the sequences of one connection. Each OPEN gets the next number; its CLOSE and ABORT repeat it.
#[derive(Debug, Default)]
pub struct Encoder {
    opened: u64,
    open: Vec<u64>,
}

impl Encoder {
    /// An encoder for a new connection.
    pub fn new() -> Encoder {
        Encoder::default()
    }
    /// Starts a sequence. `index` is its type (`list`, `dict`). Returns its number.
    pub fn open(&mut self, index: &str, out: &mut Chain) -> u64 {
        let number = self.opened;
        self.opened += 1;
        self.open.push(number);
        encode(&Token::Open(number), out);
        encode(&Token::String(index.into()), out);
        number
    }
    /// Ends the innermost sequence. Returns false and appends nothing when none is open.
    pub fn close(&mut self, out: &mut Chain) -> bool {
        let number = self.open.pop();
        number.into_iter().for_each(|n| encode(&Token::Close(n), out));
        number.is_some()
    }
    /// Aborts and ends the innermost sequence. Returns false when none is open.
    pub fn abort(&mut self, out: &mut Chain) -> bool {
        self.open.last().into_iter().for_each(|n| encode(&Token::Abort(*n), out));
        self.close(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(token: Token) -> Vec<u8> {
        let mut out = Chain::new();
        encode(&token, &mut out);
        out.slices().flatten().copied().collect()
    }

    #[test]
    fn numbers_use_the_smallest_type() {
        for (n, bytes) in [
            (0, &b"\x00\x81"[..]),
            (1, b"\x01\x81"),
            (128, b"\x00\x01\x81"),
            (130, b"\x02\x01\x81"),
            (0x7fff_ffff, b"\x7f\x7f\x7f\x7f\x07\x81"),
            (0x8000_0000, b"\x04\x85\x80\x00\x00\x00"),
            (i64::MAX, b"\x08\x85\x7f\xff\xff\xff\xff\xff\xff\xff"),
            (-1, b"\x01\x83"),
            (-0x8000_0000, b"\x00\x00\x00\x00\x08\x83"),
            (-0x8000_0001, b"\x04\x86\x80\x00\x00\x01"),
            (i64::MIN, b"\x08\x86\x80\x00\x00\x00\x00\x00\x00\x00"),
        ] {
            assert_eq!(encoded(Token::integer(n)), bytes, "{n}");
            assert_eq!(Token::integer(n).as_i128(), Some(i128::from(n)));
        }
        assert_eq!(Token::LongInt(Blob::from(&[0xff; 16][..])).as_i128(), None, "more than 128 bits hold");
        assert_eq!(Token::Ping(0).as_i128(), None);
    }

    #[test]
    fn bodies_and_optional_numbers() {
        assert_eq!(encoded(Token::String("abc".into())), b"\x03\x82abc");
        assert_eq!(encoded(Token::String(Blob::new())), b"\x00\x82");
        assert_eq!(encoded(Token::Float(1.5)), b"\x84\x3f\xf8\0\0\0\0\0\0");
        assert_eq!(encoded(Token::Ping(0)), b"\x8e");
        assert_eq!(encoded(Token::Pong(200)), b"\x48\x01\x8f");
        assert_eq!(encoded(Token::Open(0)), b"\x00\x88");
        assert_eq!(encoded(Token::Int(u64::MAX)), b"\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x01\x81");
        let long = encoded(Token::Error(Blob::from(vec![b'x'; 5000])));
        assert_eq!(
            (long.len(), &long[..3]),
            (1003, &b"\x68\x07\x8d"[..]),
            "cut to the length that a peer accepts"
        );
    }

    #[test]
    fn a_long_string_is_not_copied() {
        let (value, mut out) = (Blob::from(vec![b'v'; SHARED_BYTES_MIN]), Chain::new());
        encode(&Token::String(value.clone()), &mut out);
        assert!(out.slices().any(|s| std::ptr::eq(s, value.as_slice())));
    }

    #[test]
    fn sequences_are_numbered() {
        let (mut encoder, mut out) = (Encoder::new(), Chain::new());
        assert!(!encoder.close(&mut out) && out.is_empty(), "nothing is open");
        assert_eq!((encoder.open("list", &mut out), encoder.open("dict", &mut out)), (0, 1));
        assert!(encoder.abort(&mut out));
        assert_eq!(encoder.open("set", &mut out), 2);
        assert!(encoder.close(&mut out) && encoder.close(&mut out) && !encoder.abort(&mut out));
        assert_eq!(
            out.front(),
            b"\x00\x88\x04\x82list\x01\x88\x04\x82dict\x01\x8a\x01\x89\x02\x88\x03\x82set\x02\x89\x00\x89"
        );
    }
}
