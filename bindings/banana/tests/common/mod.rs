//! Decodes Banana tokens in pieces of any size. Shared by the tests and the fuzz target, which includes this file
//! by its path.

#![allow(dead_code)] // Each user needs a part of it.

use strand_banana::{BananaError, Decoder, Limits, Token, Want, encode};
use strand_chain::Chain;

/// Feeds the first bytes of `bytes` as a session does: into the current large body if there is one. Returns the
/// number of bytes used.
fn take(decoder: &mut Decoder, input: &mut Chain, bytes: &[u8]) -> usize {
    let Some(spare) = decoder.body_spare() else {
        input.push_slice(bytes);
        return bytes.len();
    };
    assert!(input.is_empty(), "a body is offered only when the chain is drained into it");
    let n = spare.len().min(bytes.len());
    spare[..n].copy_from_slice(&bytes[..n]);
    decoder.body_filled(n);
    n
}

/// The result of decoding a stream of Banana tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokens {
    /// The tokens that were decoded.
    pub tokens: Vec<Token>,
    /// The error that ended the stream.
    pub error: Option<BananaError>,
    /// True when the stream ends inside a token.
    pub in_frame: bool,
}

/// Decodes `pieces` as a session does: large bodies go through `body_spare`.
pub fn banana_tokens<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> Tokens {
    let (mut decoder, mut input) = (Decoder::new(limits), Chain::new());
    let mut out = Tokens { tokens: Vec::new(), error: None, in_frame: false };
    for mut piece in pieces {
        while !piece.is_empty() {
            let wanted = decoder.want();
            let n = take(&mut decoder, &mut input, piece);
            piece = &piece[n..];
            loop {
                match decoder.decode(&mut input) {
                    Ok(Some(token)) => out.tokens.push(token),
                    Ok(None) => break,
                    Err(error) => {
                        // After an error, the result of `in_frame` has no meaning.
                        (out.error, out.in_frame) = (Some(error), false);
                        return out;
                    }
                }
            }
            assert!(input.is_empty(), "examined bytes are consumed");
            if let (Want::Body(before), Want::Body(after)) = (wanted, decoder.want()) {
                assert!(before > n || after + n != before, "a body that is there becomes a token");
            }
            out.in_frame = decoder.in_frame();
            assert!(decoder.depth() <= limits.depth_max);
        }
    }
    out
}

/// Encodes `tokens`.
pub fn banana_bytes(tokens: &[Token]) -> Vec<u8> {
    let mut out = Chain::new();
    tokens.iter().for_each(|token| encode(token, &mut out));
    out.slices().flatten().copied().collect()
}

/// Splits `bytes` into pieces. Their sizes repeat the list `sizes`; 0 counts as 1.
pub fn cut<'a>(mut bytes: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle().take(if sizes.is_empty() { 0 } else { usize::MAX }) {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(bytes.len().min(usize::from(*size).max(1)));
        pieces.push(piece);
        bytes = rest;
    }
    if !bytes.is_empty() {
        pieces.push(bytes);
    }
    pieces
}

/// The body of the fuzz target `banana_decode`: nothing panics, the result does not depend on how the stream is
/// split, and decoded tokens survive encoding and decoding. The first byte selects the limits, the next four the
/// sizes of the pieces.
pub fn fuzz_banana_decode(data: &[u8]) {
    let Some((head, bytes)) = data.split_at_checked(5) else { return };
    let limits = match head[0] % 2 {
        0 => Limits::default(),
        _ => Limits {
            header_bytes_max: 5,
            string_bytes_max: 50_000,
            long_bytes_max: 9,
            error_bytes_max: 20,
            list_items_max: 3,
            depth_max: 3,
        },
    };
    let whole = banana_tokens([bytes], limits);
    assert_eq!(banana_tokens(cut(bytes, &head[1..]), limits), whole);
    assert_eq!(banana_tokens(bytes.chunks(1), limits), whole);
    let again = banana_tokens([&banana_bytes(&whole.tokens)[..]], limits);
    assert_eq!((again.error, again.tokens), (None, whole.tokens));
}
