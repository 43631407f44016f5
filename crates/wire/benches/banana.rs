//! What receiving one Banana string costs: `cargo bench -p strand-wire --bench banana [-- --json]`.
//!
//! One string of each size arrives in chunks, as from a socket: processor time per byte, and how far memory grew beyond
//! what was held before, as the allocator counts it and as the kernel does. `make foolscap` shows it beside Foolscap's own
//! receiver. `cargo test` runs it with small sizes, as a check that the promised bounds hold.

mod common;

use common::{Resident, cpu_ns};
use std::hint::black_box;
use strand_chain::{Blob, Chain};
use strand_wire::banana::{Decoder, Limits, Token, encode};

const SIZES: [usize; 4] = [40_000, 1_000_000, 8_000_000, 64_000_000];
/// Sizes that `cargo test` runs, in a debug build.
const TEST_SIZES: [usize; 3] = [40_000, 1_000_000, 3_000_000];
const CHUNKS: [usize; 3] = [1, 4096, 65_536];
/// A row receives so many bytes in all, in strings that are kept: memory is fresh for each.
const ROW_BYTES: usize = 64_000_000;
/// Least and most strings in a row.
const ROW_STRINGS: (usize, usize) = (2, 500);

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    // `cargo bench` passes --bench; without it this is a test run.
    let full = has("--bench");
    let json = has("--json");
    let sizes: &[usize] = if full { &SIZES } else { &TEST_SIZES };
    if !json {
        println!(
            "{:>10} {:>7} {:>9} {:>17} {:>16}",
            "string", "chunk", "ns/byte", "allocator growth", "resident growth"
        );
    }
    for &size in sizes {
        for chunk in CHUNKS {
            let strings = if full { (ROW_BYTES / size).clamp(ROW_STRINGS.0, ROW_STRINGS.1) } else { 1 };
            let row = receive(size, chunk, strings);
            let bound = size + size / 10 + (1 << 20);
            assert!(row.allocated <= bound, "{size} in {chunk}: {} held at once", row.allocated);
            if json {
                println!(
                    concat!(
                        r#"{{"bench":"banana","string_bytes":{},"chunk_bytes":{},"ns_per_byte":{:.4},"#,
                        r#""allocated_bytes":{},"resident_bytes":{}}}"#
                    ),
                    size, chunk, row.ns_per_byte, row.allocated, row.resident
                );
            } else {
                println!(
                    "{size:>10} {chunk:>7} {:>9.3} {:>17} {:>16}",
                    row.ns_per_byte, row.allocated, row.resident
                );
            }
        }
    }
}

struct Row {
    ns_per_byte: f64,
    /// The most that the allocator held at once beyond what it held before; growing in place counts as moving.
    allocated: usize,
    /// How far the peak of the resident set rose above the resident set before.
    resident: usize,
}

/// Receives `strings` strings of `size` bytes in `chunk`s and keeps them. Time is that of all, growth that of the first.
fn receive(size: usize, chunk: usize, strings: usize) -> Row {
    let mut head = Chain::new();
    encode(&Token::String(Blob::from(vec![b'v'; size])), &mut head);
    let header_len = head.len() - size;
    let head = head.front()[..header_len].to_vec();
    // The peer's bytes come from one small buffer: what is measured is the receiver.
    let source = vec![b'v'; chunk];
    let (mut decoder, mut input) = (Decoder::new(Limits::default()), Chain::new());
    let mut kept = Vec::with_capacity(strings);
    let mut receive_one = || {
        assert_eq!(feed(&mut decoder, &mut input, &head), None);
        let mut left = size;
        let mut token = None;
        while left > 0 {
            let n = left.min(chunk);
            token = feed(&mut decoder, &mut input, black_box(&source[..n]));
            left -= n;
        }
        kept.push(token.expect("the string is whole"));
    };
    let started = cpu_ns();
    let resident = Resident::start();
    let allocated = allocation_counter::measure(&mut receive_one).bytes_max as usize;
    let resident = resident.growth();
    (1..strings).for_each(|_| receive_one());
    let ns = cpu_ns() - started;
    assert!(kept.iter().all(|token| matches!(token, Token::String(string) if string.len() == size)));
    Row { ns_per_byte: ns / (size * strings) as f64, allocated, resident }
}

/// Hands `bytes` over as a connection reads: into the body where one is under way, into the chain's tail otherwise.
/// Returns the token that they completed.
fn feed(decoder: &mut Decoder, input: &mut Chain, mut bytes: &[u8]) -> Option<Token> {
    let mut token = None;
    while !bytes.is_empty() {
        let n;
        if let Some(spare) = decoder.body_spare() {
            n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            decoder.body_filled(n);
        } else {
            let spare = input.spare();
            n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            input.filled(n);
        }
        bytes = &bytes[n..];
        token = decoder.decode(input).expect("it is Banana");
    }
    token
}
