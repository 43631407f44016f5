//! Runs the fuzz target's body with structured random input. Also checks that decoding inverts encoding.

mod common;

use common::{banana_bytes, banana_tokens, cut, fuzz_banana_decode};
use proptest::prelude::*;
use strand_banana::{BananaError, Kind, LARGE_BODY_BYTES_MIN, Limits, Token};

/// Number of test cases. `PROPTEST_CASES` sets another number.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Any token except OPEN and CLOSE, whose numbers must match.
fn token() -> impl Strategy<Value = Token> {
    let number = prop_oneof![0..300u64, any::<u32>().prop_map(u64::from), any::<u64>()];
    let bytes =
        |max| prop::collection::vec(any::<u8>(), 0..max).prop_map(|b| strand_chain::Blob::from(&b[..]));
    prop_oneof![
        any::<i64>().prop_map(Token::integer),
        (0..9u8, number).prop_map(|(kind, n)| match kind {
            0 => Token::Int(n),
            1 => Token::Neg(n),
            2 => Token::Vocab(n),
            3 => Token::Abort(n),
            4 => Token::Ping(n),
            5 => Token::Pong(n),
            _ => Token::List(n % 641),
        }),
        any::<u64>().prop_map(|bits| Token::Float(f64::from_bits(bits))),
        bytes(200).prop_map(Token::String),
        arg().prop_map(|b| Token::String(b.into())),
        bytes(40).prop_map(Token::LongInt),
        bytes(40).prop_map(Token::LongNeg),
        bytes(40).prop_map(Token::Error),
    ]
}

fn banana_piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => token().prop_map(|token| banana_bytes(&[token])),
        4 => (0..6u8, 0..16u8).prop_map(|(n, kind)| vec![n, 0x80 | kind]),
        1 => prop::collection::vec(0..0x80u8, 0..70),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ]
}

fn stream(piece: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let head = prop::collection::vec(any::<u8>(), 5..6);
    (head, prop::collection::vec(piece, 0..12)).prop_map(|(head, pieces)| [head, pieces.concat()].concat())
}

fn arg() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        6 => 0..300usize,
        1 => LARGE_BODY_BYTES_MIN - 2..LARGE_BODY_BYTES_MIN + 2,
        1 => 16_000..70_000usize,
    ];
    (len, any::<u8>()).prop_map(|(len, seed)| (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn tokens_decode_equally_in_any_pieces(data in stream(banana_piece())) {
        fuzz_banana_decode(&data);
    }

    #[test]
    fn encoded_tokens_decode_unchanged(
        mut tokens in prop::collection::vec(token(), 0..12),
        depth in 0..5u64,
        sizes in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let at = tokens.len() / 2;
        tokens.splice(at..at, (0..depth).flat_map(|n| [Token::Open(n), Token::String("list".into())]));
        tokens.extend((0..depth).rev().map(Token::Close));
        let bytes = banana_bytes(&tokens);
        let outcome = banana_tokens(cut(&bytes, &sizes), Limits::default());
        prop_assert_eq!((outcome.error, outcome.in_frame), (None, false));
        prop_assert!(outcome.tokens == tokens);
    }
}

/// The error that ends a stream of `bytes`.
fn banana_error(bytes: &[u8]) -> Option<BananaError> {
    banana_tokens(bytes.chunks(1), Limits::default()).error
}

#[test]
fn banana_limits_and_faults() {
    let long = |n: usize, kind: Kind| [vec![0; n], vec![kind.byte()]].concat();
    assert_eq!(banana_error(&long(64, Kind::Int)), None, "zeros may follow");
    assert_eq!(banana_error(&long(65, Kind::Int)), Some(BananaError::HeaderTooLong { bytes_max: 64 }));
    assert_eq!(banana_error(b"\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x01\0\0\x81"), None, "2^64 - 1");
    assert_eq!(
        banana_error(b"\0\0\0\0\0\0\0\0\0\x02\x82"),
        Some(BananaError::NumberTooLarge(Kind::String)),
        "2^64"
    );
    assert_eq!(banana_error(b"\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x84"), None, "ignored in this token");
    for byte in [0x8b, 0x8c, 0x90, 0xff] {
        assert_eq!(banana_error(&[byte]), Some(BananaError::UnknownType(byte)));
    }
    for (bytes, kind, len, max) in [
        (&b"\x01\0\0\0\x02\x82"[..], Kind::String, (512 << 20) + 1, 512 << 20),
        (b"\x01\0\x04\x85", Kind::LongInt, 65_537, 65_536),
        (b"\x01\0\x04\x86", Kind::LongNeg, 65_537, 65_536),
        (b"\x69\x07\x8d", Kind::Error, 1001, 1000),
        (b"\x01\x05\x80", Kind::List, 641, 640),
    ] {
        // The length is checked before any byte of the body arrives.
        assert_eq!(banana_error(bytes), Some(BananaError::Oversized { kind, len, max }), "{kind:?}");
    }
    let list = b"\x04\x82list";
    assert_eq!(banana_error(b"\x05\x88\x06\x88"), Some(BananaError::NoIndex(Kind::Open)));
    assert_eq!(banana_error(b"\x05\x88\x05\x89"), Some(BananaError::NoIndex(Kind::Close)));
    assert_eq!(banana_error(b"\x05\x88\x8e\x05\x8a\x05\x89"), None, "a PING, then an ABORT");
    assert_eq!(
        banana_error(&[b"\x05\x88", &list[..], b"\x04\x89"].concat()),
        Some(BananaError::CloseMismatch { got: 4, expected: Some(5) })
    );
    assert_eq!(banana_error(b"\x89"), Some(BananaError::CloseMismatch { got: 0, expected: None }));
    let deep = [b"\x88", &list[..]].concat().repeat(10_001);
    assert_eq!(banana_error(&deep), Some(BananaError::TooDeep { depth_max: 10_000 }));
    assert_eq!(banana_error(&deep[..10_000 * 7]), None);
    let texts = [BananaError::UnknownType(0x8b), BananaError::CloseMismatch { got: 4, expected: None }];
    assert_eq!(
        texts.map(|e| e.to_string()),
        ["Invalid Type Byte 0x8b", "lost sync, got CLOSE(4) but expecting none"]
    );
}

#[test]
fn every_kind_of_token_has_its_byte() {
    for byte in 0..=255u8 {
        let kind = Kind::from_byte(byte);
        assert!(kind.is_none_or(|kind| kind.byte() == byte && Kind::ALL.contains(&kind)));
    }
    let names: Vec<_> = Kind::ALL.iter().map(|kind| (kind.byte(), kind.name())).collect();
    assert_eq!(names.len(), 14);
    assert!(names.is_sorted() && names.contains(&(0x85, "LONGINT")));
}

/// Runs inputs that failed in the past, and the seeds of the fuzz target.
#[test]
fn seeds() {
    for head in [[0, 1, 2, 3, 4], [1, 0, 0, 255, 7], [2, 9, 9, 9, 9]] {
        for body in
            [&b""[..], b"\0\x88\x04\x82list\x01\x81\0\x89", b"\x05\x82ab", b"\x84\x3f\xf8", b"\x01\x85"]
        {
            fuzz_banana_decode(&[&head, body].concat());
        }
    }
}
