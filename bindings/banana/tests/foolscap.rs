//! Compares Banana with the real Foolscap in both directions. Recorded streams (tests/foolscap/streams, made by
//! tests/foolscap/peer.py) always run. Live streams run if scripts/setup.sh has installed Foolscap into .venv
//! (`STRAND_PYTHON` names another Python). Foolscap's receiver prints the tokens it reads, and the test prints its
//! tokens in the same format.

mod common;

use common::{banana_bytes, banana_tokens, cut};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use strand_banana::{BananaError, Encoder, Limits, Token, encode};
use strand_chain::{Blob, Chain};

/// A longer string is printed as its length and checksum.
const STRING_BYTES_SHOWN: usize = 64;

#[test]
fn recorded_streams_decode_and_encode_like_foolscap() {
    let mut seen = 0;
    for file in fs::read_dir(folder().join("streams")).expect("streams are in the tree") {
        let path = file.expect("a folder entry").path();
        if path.extension().is_none_or(|e| e != "banana") {
            continue;
        }
        let bytes = fs::read(&path).expect("a stream");
        let outcome = banana_tokens([&bytes[..]], Limits::default());
        assert_eq!((&outcome.error, outcome.in_frame), (&None, false), "{path:?}");
        let lines = fs::read_to_string(path.with_extension("tokens")).expect("its tokens");
        assert_eq!(printed(&outcome.tokens), lines, "{path:?}");
        // Both sides number sequences in the same way, so Strand's encoding of these tokens equals Foolscap's.
        assert!(banana_bytes(&outcome.tokens) == bytes, "{path:?}");
        for sizes in [&[1][..], &[2, 3], &[64, 1, 65], &[255]] {
            assert!(banana_tokens(cut(&bytes, sizes), Limits::default()) == outcome, "{path:?} by {sizes:?}");
        }
        // Split the stream once at every place. Split a long stream only around the start of each token.
        let step = bytes.len() / 2000 + 1;
        for at in (0..bytes.len()).step_by(step) {
            let (left, right) = bytes.split_at(at);
            assert!(banana_tokens([left, right], Limits::default()) == outcome, "{path:?} at {at}");
        }
        seen += 1;
    }
    assert_eq!(seen, 6, "numbers, strings, objects, control, vocabulary, old_list");
}

#[test]
fn the_recording_equals_foolscaps_current_output() {
    let Some(python) = python() else { return };
    let fresh = tempfile::tempdir().expect("a temporary folder");
    let fresh = fresh.path();
    let done = Command::new(python).arg(folder().join("peer.py")).arg("record").arg(fresh).status();
    assert!(done.expect("Python runs").success());
    for file in fs::read_dir(folder().join("streams")).expect("streams are in the tree") {
        let recorded = file.expect("a folder entry").path();
        let again = fresh.join(recorded.file_name().expect("a file"));
        assert!(fs::read(&recorded).ok() == fs::read(&again).ok(), "{recorded:?}: record again");
    }
}

#[test]
fn foolscap_reads_our_output() {
    let Some(python) = python() else { return };
    let mut random = generator(7);
    let mut all: Vec<Vec<Token>> = (0..200).map(|_| tokens(&mut random)).collect();
    for len in [40_000, 1 << 20, 8 << 20] {
        all.push(vec![Token::String(pattern(len)), Token::integer(1)]);
    }
    for chunk in ["4096", "61"] {
        let streams: Vec<Vec<u8>> = all.iter().map(|tokens| banana_bytes(tokens)).collect();
        // Foolscap would take long to receive a large string byte by byte.
        let streams = if chunk == "61" { &streams[..200] } else { &streams[..] };
        let answer = ask(&python, &["read", chunk], streams);
        let expected: String = all[..streams.len()].iter().map(|t| printed(t) + ".\n").collect();
        assert!(answer == expected, "in chunks of {chunk}: {}", first_difference(&answer, &expected));
    }
}

#[test]
fn foolscap_builds_objects_from_our_output() {
    let Some(python) = python() else { return };
    let (mut encoder, mut out) = (Encoder::new(), Chain::new());
    let put = |out: &mut Chain, token: Token| encode(&token, out);
    encoder.open("list", &mut out);
    put(&mut out, Token::integer(1 << 40));
    put(&mut out, Token::integer(-7));
    encoder.open("tuple", &mut out);
    put(&mut out, Token::String("bytes".into()));
    put(&mut out, Token::Float(0.5));
    encoder.close(&mut out);
    let dict = encoder.open("dict", &mut out);
    put(&mut out, Token::String("key".into()));
    encoder.open("unicode", &mut out);
    put(&mut out, Token::String("gr\u{fc}n".into()));
    encoder.close(&mut out);
    encoder.close(&mut out);
    encoder.open("reference", &mut out);
    put(&mut out, Token::integer(dict as i64));
    encoder.close(&mut out);
    encoder.close(&mut out);
    let stream: Vec<u8> = out.slices().flatten().copied().collect();
    let answer = ask(&python, &["objects"], &[stream]);
    let dict = "{b'key': 'gr\u{fc}n'}";
    assert_eq!(answer, format!("[1099511627776, -7, (b'bytes', 0.5), {dict}, {dict}]\n"));
}

#[test]
fn we_refuse_the_input_that_foolscap_refuses() {
    let Some(python) = python() else { return };
    let header = |n: usize, byte: u8| [vec![0; n], vec![byte]].concat();
    let streams = [
        header(65, 0x81),
        vec![0x8b],
        vec![0x8c],
        vec![0x90],
        vec![0xff],
        b"\0\x88\x01\x88".to_vec(),
        [b"\x69\x07\x8d", &[b'e'; 1001][..]].concat(),
    ];
    for stream in &streams {
        assert!(banana_tokens([&stream[..]], Limits::default()).error.is_some(), "{stream:?}");
    }
    let answer = ask(&python, &["read", "1"], &streams);
    assert_eq!(answer, "REFUSED\n.\n".repeat(streams.len()));
    // Input that only one side accepts: lists of the old dialect, and numbers over 64 bits without a body.
    let large = [vec![0x7f; 20], vec![0x81]].concat();
    assert!(matches!(
        banana_tokens([&large[..]], Limits::default()).error,
        Some(BananaError::NumberTooLarge(_))
    ));
    assert!(ask(&python, &["read", "9"], &[large]).starts_with("INTEGER 0x"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foolscap")
}

/// The Python that has Foolscap. `None`: the live tests say that it is missing, and are skipped.
fn python() -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let python = std::env::var_os("STRAND_PYTHON").map_or(venv, PathBuf::from);
    let found = Command::new(&python).args(["-c", "import foolscap"]).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    eprintln!("not run: {} has no foolscap (scripts/setup.sh installs it)", python.display());
    None
}

/// The output of peer.py for `streams`.
fn ask(python: &Path, args: &[&str], streams: &[Vec<u8>]) -> String {
    let mut command = Command::new(python);
    command.arg(folder().join("peer.py")).args(args).env("PYTHONIOENCODING", "utf-8");
    let mut peer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
    let mut stdin = peer.stdin.take().expect("piped");
    let bytes: Vec<u8> =
        streams.iter().flat_map(|s| [&(s.len() as u32).to_be_bytes()[..], s].concat()).collect();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let out = peer.wait_with_output().expect("peer.py ends");
    writer.join().expect("no panic").expect("peer.py reads all input");
    assert!(out.status.success());
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// The output of peer.py for these tokens.
fn printed(tokens: &[Token]) -> String {
    tokens.iter().filter_map(line).map(|line| line + "\n").collect()
}

fn line(token: &Token) -> Option<String> {
    Some(match token {
        Token::Pong(_) => return None,
        Token::List(_) => "REFUSED".into(),
        Token::Int(n) => format!("INTEGER {n:#x}"),
        Token::Neg(0) => "INTEGER 0x0".into(),
        Token::Neg(n) => format!("INTEGER -{n:#x}"),
        Token::LongInt(bytes) => format!("INTEGER {}", magnitude(bytes)),
        Token::LongNeg(bytes) if bytes.iter().all(|b| *b == 0) => "INTEGER 0x0".into(),
        Token::LongNeg(bytes) => format!("INTEGER -{}", magnitude(bytes)),
        Token::String(s) if s.is_empty() => "STRING".into(),
        Token::String(s) if s.len() <= STRING_BYTES_SHOWN => format!("STRING {}", hex(s)),
        Token::String(s) => format!("STRING {} bytes {:08x}", s.len(), crc32(s)),
        Token::Float(f) => format!("FLOAT {}", hex(&f.to_be_bytes())),
        Token::Vocab(n) => format!("VOCAB {n}"),
        Token::Open(n) => format!("OPEN {n}"),
        Token::Close(n) => format!("CLOSE {n}"),
        Token::Abort(_) => "ABORT".into(),
        Token::Error(text) if text.is_empty() => "ERROR".into(),
        Token::Error(text) => format!("ERROR {}", hex(text)),
        Token::Ping(n) => format!("PING {n}"),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A number in hex, as Python prints it.
fn magnitude(bytes: &[u8]) -> String {
    let digits = hex(bytes);
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}

/// zlib's CRC-32, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 }))
        .collect();
    !bytes.iter().fold(!0, |c, b| table[usize::from(c as u8 ^ b)] ^ (c >> 8))
}

fn pattern(len: usize) -> Blob {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>().into()
}

/// A small random generator. Every run produces the same streams.
fn generator(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// A random valid stream: each sequence starts with a word and is closed.
fn tokens(random: &mut impl FnMut(u64) -> u64) -> Vec<Token> {
    let (mut tokens, mut open, mut opened) = (Vec::new(), Vec::new(), 0);
    for _ in 0..random(60) {
        let number = random(1 << 31) >> random(31);
        let len = (random(9000) >> random(14)) as usize;
        let token = match random(14) {
            0 => Token::Int(number),
            1 => Token::Neg(number),
            2 => Token::integer((number << random(33)) as i64),
            3 => Token::integer(-((number << random(33)) as i64)),
            4 => Token::Float(f64::from_bits(number << 32 | number)),
            5 => Token::LongInt(pattern(len % 400)),
            6 => Token::LongNeg(pattern(len % 400)),
            7 => Token::Vocab(number),
            8 => Token::Ping(number),
            9 => Token::Pong(number),
            10 if !open.is_empty() => Token::Close(open.pop().expect("one is open")),
            11 if !open.is_empty() => Token::Abort(*open.last().expect("one is open")),
            12 => {
                tokens.push(Token::Open(opened));
                open.push(opened);
                opened += 1;
                Token::String("index".into())
            }
            _ => Token::String(pattern(len)),
        };
        tokens.push(token);
    }
    tokens.extend(open.into_iter().rev().map(Token::Close));
    // An ERROR comes last, because Foolscap closes the connection after it.
    if random(4) == 0 {
        tokens.push(Token::Error(pattern(random(1001) as usize)));
    }
    tokens
}

fn first_difference(got: &str, expected: &str) -> String {
    let differ = got.lines().zip(expected.lines()).enumerate().find(|(_, (a, b))| a != b);
    differ.map_or("the lengths differ".into(), |(n, (a, b))| format!("line {n}: {a:.200} and {b:.200}"))
}
