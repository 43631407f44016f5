//! Runs the bodies of the fuzz targets with structured random input. Also checks that decoding inverts encoding.

mod common;

use common::{cut, decode, fuzz_client_reply, fuzz_pack4_decode, fuzz_resp_decode, parse};
use proptest::prelude::*;
use strand_wire::client::encode_command;
use strand_wire::resp::{LARGE_BODY_BYTES_MIN, RequestLimits};

/// `PROPTEST_CASES` overrides the number of cases.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Parts of requests, valid and broken, so that random input passes the first byte.
fn request_piece() -> impl Strategy<Value = Vec<u8>> {
    let command = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6).prop_map(|args| {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &args);
        bytes
    });
    let word = prop::sample::select(vec![
        "*",
        "$",
        "\r\n",
        "\n",
        "\r",
        "\"",
        "'",
        "\\x4",
        " ",
        "-1",
        "0",
        "1",
        "3",
        "12",
        "40000",
        "*1\r\n",
        "*3\r\n$1\r\n",
        "$3\r\nabc\r\n",
        "PING\r\n",
        "GET 'a b'\r\n",
        "*0\r\n",
        "*1\r\n$40000\r\n",
    ]);
    prop_oneof![
        4 => command,
        4 => word.prop_map(|w| w.as_bytes().to_vec()),
        1 => (0..45_000usize).prop_map(|n| vec![b'v'; n]),
        1 => prop::collection::vec(any::<u8>(), 0..30),
    ]
}

/// Frames with correct lengths, lengths slightly off, and random lengths.
fn frame_piece() -> impl Strategy<Value = Vec<u8>> {
    let off = prop_oneof![6 => Just(0i64), 1 => -3..4i64, 1 => any::<i32>().prop_map(i64::from)];
    let bodies = prop::collection::vec(request_piece(), 0..3).prop_map(|pieces| pieces.concat());
    prop_oneof![
        8 => (bodies, off).prop_map(|(body, off)| {
            [&((body.len() as i64 + off) as u32).to_be_bytes()[..], &body].concat()
        }),
        1 => request_piece(),
    ]
}

fn reply_piece() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "+OK\r\n",
        "-ERR x\r\n",
        ":1\r\n",
        "$3\r\nabc\r\n",
        "$-1\r\n",
        "*2\r\n",
        "%1\r\n",
        "~2\r\n",
        ">1\r\n",
        "|1\r\n",
        "#t\r\n",
        ",1.5\r\n",
        ",nan\r\n",
        "(12\r\n",
        "=5\r\ntxt:a\r\n",
        "!3\r\nERR\r\n",
        "_\r\n",
        "*0\r\n",
        "$",
        "\r\n",
        "*",
        "1",
        "-",
    ]);
    prop_oneof![
        8 => word.prop_map(|w| w.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..10),
    ]
}

fn stream(piece: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let head = prop::collection::vec(any::<u8>(), 5..6);
    (head, prop::collection::vec(piece, 0..12)).prop_map(|(head, pieces)| [head, pieces.concat()].concat())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn requests_decode_equally_in_any_pieces(data in stream(request_piece())) {
        fuzz_resp_decode(&data);
    }

    #[test]
    fn frames_decode_equally_in_any_pieces(data in stream(frame_piece())) {
        fuzz_pack4_decode(&data);
    }

    #[test]
    fn replies_parse_equally_in_any_pieces(data in stream(reply_piece())) {
        fuzz_client_reply(&data);
    }

    #[test]
    fn encoded_values_decode_back(
        commands in prop::collection::vec(prop::collection::vec(arg(), 1..8), 1..4),
        sizes in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|args| encode_command(&mut bytes, args));
        let outcome = decode(cut(&bytes, &sizes), RequestLimits::FULL);
        prop_assert!(outcome.error.is_none() && !outcome.in_frame);
        prop_assert!(outcome.commands == commands);
    }
}

fn arg() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        6 => 0..300usize,
        1 => LARGE_BODY_BYTES_MIN - 2..LARGE_BODY_BYTES_MIN + 2,
        1 => 16_000..70_000usize,
    ];
    (len, any::<u8>()).prop_map(|(len, seed)| (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect())
}

/// Inputs that failed in the past, and the seeds of the fuzz targets.
#[test]
fn inputs_that_failed_once_and_the_fuzz_seeds_pass() {
    for head in [[0, 1, 2, 3, 4], [1, 0, 0, 255, 7], [2, 9, 9, 9, 9]] {
        for body in [
            "",
            "*",
            "*1\r\n$4\r\nPING\r\n",
            "GET 'a",
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$33000\r\nabc",
            "\0\r\n",
        ] {
            fuzz_resp_decode(&[&head, body.as_bytes()].concat());
            fuzz_pack4_decode(&[&head, body.as_bytes()].concat());
            fuzz_pack4_decode(&[&head, &(body.len() as u32).to_be_bytes()[..], body.as_bytes()].concat());
        }
        for body in ["", "*2\r\n:1\r\n%1\r\n+a\r\n", "$5\r\nab", "|1\r\n+a\r\n:1\r\n"] {
            fuzz_client_reply(&[&head[1..], body.as_bytes()].concat());
        }
    }
    assert_eq!(parse([&b"+OK\r\n"[..]]).0.len(), 1);
}
