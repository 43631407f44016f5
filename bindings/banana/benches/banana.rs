//! The cost of receiving one Banana string: `cargo bench -p strand-banana --bench banana [-- --json]`.
//!
//! One string of each size arrives in chunks, as from a socket. The bench shows processor time per byte, and the
//! memory growth according to the allocator and to the kernel. `make foolscap` shows the result beside Foolscap's
//! own receiver. `cargo test` runs small sizes and checks the promised bounds.

#[path = "../../../crates/wire/benches/common/mod.rs"]
mod common;

use common::{Receiver, Row, feed, feed_chunks, measure};
use strand_banana::{Decoder, Limits, Token, encode};
use strand_chain::{Blob, Chain};

const SIZES: [usize; 4] = [40_000, 1_000_000, 8_000_000, 64_000_000];
/// Sizes that `cargo test` runs, in a debug build.
const TEST_SIZES: [usize; 3] = [40_000, 1_000_000, 3_000_000];
const CHUNKS: [usize; 3] = [1, 4096, 65_536];
/// Number of bytes received for each row. The strings are kept, so each string uses fresh memory.
const ROW_BYTES: usize = 64_000_000;
/// Minimum and maximum number of strings of a row.
const ROW_STRINGS: (usize, usize) = (2, 500);

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    // `cargo bench` passes `--bench`. Without this argument the run is a test.
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

/// Receives `strings` strings of `size` bytes in `chunk`s and keeps them.
fn receive(size: usize, chunk: usize, strings: usize) -> Row {
    let mut head = Chain::new();
    encode(&Token::String(Blob::from(vec![b'v'; size])), &mut head);
    let header_len = head.len() - size;
    let head = head.front()[..header_len].to_vec();
    let source = vec![b'v'; chunk];
    let mut peer = Peer { decoder: Decoder::new(Limits::default()), token: None };
    let (mut input, mut kept) = (Chain::new(), Vec::with_capacity(strings));
    let row = measure(size, strings, || {
        feed(&mut peer, &mut input, &head);
        assert_eq!(peer.token, None);
        feed_chunks(&mut peer, &mut input, size, &source);
        kept.push(peer.token.take().expect("the string is whole"));
    });
    assert!(kept.iter().all(|token| matches!(token, Token::String(string) if string.len() == size)));
    row
}

struct Peer {
    decoder: Decoder,
    token: Option<Token>,
}

impl Receiver for Peer {
    fn body_spare(&mut self) -> Option<&mut [u8]> {
        self.decoder.body_spare()
    }
    fn body_filled(&mut self, n: usize) {
        self.decoder.body_filled(n);
    }
    fn decode(&mut self, input: &mut Chain) {
        self.token = self.decoder.decode(input).expect("it is Banana");
    }
}
