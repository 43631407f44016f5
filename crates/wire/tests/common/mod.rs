//! Feeds requests and replies to their decoders in pieces of any size. Shared by the corpus test, the property
//! tests and the fuzz targets, which include this file by its path.

#![allow(dead_code)] // Each user needs a part of it.

use strand_chain::Chain;
use strand_wire::args::Argv;
use strand_wire::client::{ReplyParser, Value};
use strand_wire::pack4;
use strand_wire::resp::{Decoded, Decoder, RequestLimits};

/// A decoder that receives large bodies into its own memory.
trait WantsBody {
    fn body_spare(&mut self) -> Option<&mut [u8]>;
    fn body_filled(&mut self, n: usize);
}

macro_rules! wants_body {
    ($($decoder:ty),*) => {$(
        impl WantsBody for $decoder {
            fn body_spare(&mut self) -> Option<&mut [u8]> {
                <$decoder>::body_spare(self)
            }
            fn body_filled(&mut self, n: usize) {
                <$decoder>::body_filled(self, n);
            }
        }
    )*};
}
wants_body!(Decoder, pack4::Decoder);

/// Feeds the first bytes of `bytes` as a session does: into the current large body if there is one. Returns the
/// number of bytes used.
fn take(decoder: &mut impl WantsBody, input: &mut Chain, bytes: &[u8]) -> usize {
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

/// The result of decoding a stream of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The arguments of each decoded command.
    pub commands: Vec<Vec<Vec<u8>>>,
    /// The error that ended the stream.
    pub error: Option<String>,
    /// True when the stream ends inside a request.
    pub in_frame: bool,
}

/// Decodes `pieces` as a session does: large bodies go through `body_spare`.
pub fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: RequestLimits) -> Outcome {
    let (mut decoder, mut input, mut argv) = (Decoder::new(limits), Chain::new(), Argv::new());
    let mut outcome = Outcome { commands: Vec::new(), error: None, in_frame: false };
    for mut piece in pieces {
        while !piece.is_empty() {
            piece = &piece[take(&mut decoder, &mut input, piece)..];
            loop {
                match decoder.decode(&mut input, &mut argv) {
                    Ok(Decoded::NeedsBytes) => break,
                    Ok(Decoded::LimitReached) => {}
                    Ok(Decoded::Command) => {
                        assert!(!argv.is_empty(), "empty requests are skipped");
                        outcome.commands.push(argv.args().iter().map(<[u8]>::to_vec).collect());
                        argv.clear();
                    }
                    Err(error) => {
                        // After an error, the result of `in_frame` has no meaning.
                        (outcome.error, outcome.in_frame) = (Some(error.to_string()), false);
                        return outcome;
                    }
                }
            }
            // Only an inline request may wait in the chain for the end of its line.
            assert!(input.is_empty() || input.examined() == input.len(), "nothing is left unexamined");
            outcome.in_frame = decoder.in_request();
        }
    }
    outcome
}

/// The result of parsing a stream of replies: the values, and the final error.
pub fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Value>, Option<String>) {
    let (mut parser, mut input, mut values) = (ReplyParser::new(), Chain::new(), Vec::new());
    for piece in pieces {
        input.push_slice(piece);
        loop {
            match parser.next(&mut input) {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => return (values, Some(error.to_string())),
            }
        }
    }
    (values, None)
}

/// One result of a pack4 decoder: the words of a command, or the text of an error and whether it ends the stream.
pub type Found = Result<Vec<Vec<u8>>, (String, bool)>;

/// The results of a pack4 decoder for `pieces`, and whether it ended inside a frame.
pub fn decode_frames<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: RequestLimits,
    frame_bytes_max: usize,
) -> (Vec<Found>, bool) {
    let mut decoder = pack4::Decoder::new(limits, frame_bytes_max);
    let (mut input, mut argv, mut found) = (Chain::new(), Argv::new(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            piece = &piece[take(&mut decoder, &mut input, piece)..];
            loop {
                match decoder.decode(&mut input, &mut argv) {
                    Ok(Decoded::NeedsBytes) => break,
                    Ok(Decoded::LimitReached) => {}
                    Ok(Decoded::Command) if argv.is_empty() => {}
                    Ok(Decoded::Command) => {
                        found.push(Ok(argv.args().iter().map(<[u8]>::to_vec).collect()));
                        argv.clear();
                    }
                    Err(error) => {
                        assert!(argv.is_empty());
                        found.push(Err((error.to_string(), error.is_lost())));
                        if error.is_lost() {
                            return (found, false);
                        }
                    }
                }
            }
        }
    }
    (found, decoder.in_frame())
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

/// Small limits that short inputs can reach.
const TIGHT: RequestLimits =
    RequestLimits { bulk_bytes_max: 100_000, args_max: 20, inline_bytes_max: 40, authenticated: true };

/// The body of the fuzz target `resp_decode`: nothing panics, and the result does not depend on how the stream is
/// split. The first byte selects the limits, the next four the sizes of the pieces.
pub fn fuzz_resp_decode(data: &[u8]) {
    let Some((head, bytes)) = data.split_at_checked(5) else { return };
    let limits = match head[0] % 3 {
        0 => RequestLimits::FULL,
        1 => TIGHT,
        _ => RequestLimits { authenticated: false, ..TIGHT },
    };
    let whole = decode([bytes], limits);
    assert_eq!(decode(cut(bytes, &head[1..]), limits), whole);
    assert_eq!(decode(bytes.chunks(1), limits), whole);
}

/// The body of the fuzz target `pack4_decode`: nothing panics, the result does not depend on how the stream is
/// split, and a frame is one command or one error for any content. The first byte selects the limits, the next four
/// the sizes of pieces and frames.
pub fn fuzz_pack4_decode(data: &[u8]) {
    let Some((head, bytes)) = data.split_at_checked(5) else { return };
    let (limits, frame_bytes_max) = match head[0] % 3 {
        0 => (RequestLimits::FULL, 1 << 30),
        1 => (TIGHT, 90_000),
        _ => (RequestLimits { authenticated: false, ..TIGHT }, 90_000),
    };
    let decode = |pieces: Vec<&[u8]>| decode_frames(pieces, limits, frame_bytes_max);
    // The unchanged bytes, including their lengths.
    let whole = decode(vec![bytes]);
    assert_eq!(decode(cut(bytes, &head[1..])), whole);
    assert_eq!(decode(bytes.chunks(1).collect()), whole);
    // The same bytes in frames with correct lengths, followed by a PING.
    let bodies = cut(bytes, &head[1..]);
    let mut frames = Vec::new();
    for body in bodies.iter().copied().chain([&b"PING"[..]]) {
        frames.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frames.extend_from_slice(body);
    }
    let whole = decode(vec![&frames]);
    assert_eq!(decode(cut(&frames, &head[1..])), whole);
    let (found, in_frame) = whole;
    if !found.iter().any(|f| matches!(f, Err((_, true)))) {
        assert!(!in_frame);
        assert_eq!(found.len(), bodies.len() + 1);
        assert_eq!(found.last(), Some(&Ok(vec![b"PING".to_vec()])));
    }
}

/// The body of the fuzz target `client_reply`, for the client's parser. The first four bytes select the sizes of
/// the pieces.
pub fn fuzz_client_reply(data: &[u8]) {
    let Some((head, bytes)) = data.split_at_checked(4) else { return };
    // Compare the printed form: a NaN does not equal itself.
    let whole = format!("{:?}", parse([bytes]));
    assert_eq!(format!("{:?}", parse(cut(bytes, head))), whole);
    assert_eq!(format!("{:?}", parse(bytes.chunks(1))), whole);
}
