//! Runs every case of `corpus/*.txt` whole, split in two at every byte, and byte by byte.
//!
//! A case is a block of lines. `case NAME` comes first, then any of `unauthenticated`, `send STRING...`, `argv
//! STRING...` (one line for each expected command), `error TEXT` (the final error), `open` (the stream ends inside
//! a request). A STRING is `"..."` with `\r \n \t \\ \" \xHH`, or `N*"..."` for N repetitions. Lines that start
//! with `#` are comments.

mod common;

use common::{Outcome, decode};
use std::path::Path;
use strand_wire::resp::RequestLimits;

/// A longer case is split only near its ends and at some places between.
const EVERY_CUT_BYTES_MAX: usize = 1000;
/// Distance between the split places inside a long case.
const CUT_STRIDE: usize = 4999;
/// Split places at each end of a long case.
const ENDS_BYTES: usize = 60;

struct Case {
    name: String,
    limits: RequestLimits,
    bytes: Vec<u8>,
    expected: Outcome,
}

#[test]
fn every_case_at_every_split() {
    let cases = read_cases();
    assert!(cases.len() > 50, "the corpus is there");
    for case in &cases {
        let bytes = &case.bytes[..];
        let check = |how: &str, pieces: &[&[u8]]| {
            let outcome = decode(pieces.iter().copied(), case.limits);
            assert_eq!(outcome, case.expected, "case {} {how}", case.name);
        };
        check("whole", &[bytes]);
        for size in [1, 2, 3] {
            check(&format!("in pieces of {size}"), &bytes.chunks(size).collect::<Vec<_>>());
        }
        for at in 0..=bytes.len() {
            let near_end = at < ENDS_BYTES || bytes.len() - at < ENDS_BYTES;
            if near_end || bytes.len() <= EVERY_CUT_BYTES_MAX || at % CUT_STRIDE == 0 {
                let (left, right) = bytes.split_at(at);
                check(&format!("cut at {at}"), &[left, right]);
            }
        }
    }
}

fn read_cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> =
        folder.read_dir().expect("the corpus is there").map(|e| e.expect("readable").path()).collect();
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text file");
        for (number, line) in text.lines().enumerate() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let place = format!("{}:{}", file.display(), number + 1);
            if word == "case" {
                let expected = Outcome { commands: Vec::new(), error: None, in_frame: false };
                let name = format!("'{rest}' at {place}");
                cases.push(Case { name, limits: RequestLimits::FULL, bytes: Vec::new(), expected });
                continue;
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let case = cases.last_mut().unwrap_or_else(|| panic!("{place}: a line before the first case"));
            let outcome = &mut case.expected;
            match word {
                "unauthenticated" => case.limits = RequestLimits::UNAUTHENTICATED,
                "send" => case.bytes.extend(strings(rest, &place).concat()),
                "argv" => outcome.commands.push(strings(rest, &place)),
                "error" => outcome.error = Some(rest.to_owned()),
                "open" => outcome.in_frame = true,
                _ => panic!("{place}: what is '{word}'?"),
            }
        }
    }
    cases
}

/// The strings of a line.
fn strings(line: &str, place: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (count, quoted) = match rest.split_once("*\"") {
            Some((n, quoted)) if !n.contains('"') => {
                (n.parse().unwrap_or_else(|_| panic!("{place}: a count")), quoted)
            }
            _ => (1, rest.strip_prefix('"').unwrap_or_else(|| panic!("{place}: a quote"))),
        };
        let (text, after) = unquote(quoted, place);
        found.push(text.repeat(count));
        rest = after.trim_start();
    }
    found
}

/// The bytes up to the closing quote, and what follows it.
fn unquote<'a>(text: &'a str, place: &str) -> (Vec<u8>, &'a str) {
    let mut bytes = Vec::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (bytes, &text[at + 1..]),
            '\\' => bytes.push(match chars.next().map(|(_, c)| c) {
                Some('r') => b'\r',
                Some('n') => b'\n',
                Some('t') => b'\t',
                Some('x') => {
                    chars.nth(1);
                    u8::from_str_radix(&text[at + 2..at + 4], 16).unwrap_or_else(|_| panic!("{place}: hex"))
                }
                Some(c @ ('"' | '\\')) => c as u8,
                _ => panic!("{place}: an escape"),
            }),
            c => bytes.extend(c.to_string().as_bytes()),
        }
    }
    panic!("{place}: no closing quote")
}
