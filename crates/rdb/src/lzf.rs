//! LZF, the compression of strings in RDB: short back references over a window of 8 KiB, no entropy coding.
//!
//! A control byte n below 32 announces n + 1 literal bytes. Any other control byte holds a length in its top three
//! bits (7: the next byte is added) and, with the following byte, the distance to copy from. Implemented here,
//! because the crate of that name is deprecated.

use crate::{Error, Result, STRING_BYTES_MAX};

/// Maximum number of output bytes per byte of compressed input: three bytes can produce 264.
pub const GROWTH_MAX: usize = 88;
/// Maximum number of literal bytes after one control byte.
const LITERALS_MAX: usize = 32;
/// Maximum distance from a copy back to its original, in bytes.
const DISTANCE_MAX: usize = 1 << 13;
/// Maximum length of a copy: 7 + 255 + 2.
const COPY_MAX: usize = 264;
/// Minimum length of a copy that saves bytes.
const COPY_MIN: usize = 3;
/// Number of positions at the end of a copy that are remembered, as redis-server does. It is less than [`COPY_MIN`].
const REMEMBERED: usize = 2;
/// Minimum number of slots for remembered positions, by a hash of three bytes. Short strings get few slots. The
/// number is a power of two.
const TABLE_SLOTS_MIN: usize = 1 << 8;
/// Maximum number of slots for remembered positions, a power of two.
const TABLE_SLOTS_MAX: usize = 1 << 14;

/// A buffer that is larger than this is not kept for the next string.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Number of bytes of input between two pauses: about 0.2 ms of compression.
pub const PAUSE_BYTES: usize = 64 << 10;

const CORRUPT: Error = Error::Corrupt("an LZF string that does not decompress to its announced length");

/// Decompresses `input` and appends the `len` bytes to `out`.
///
/// # Errors
/// When `input` is not the LZF form of exactly `len` bytes. `out` then has an unspecified part of them.
pub fn decompress(input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    if len > STRING_BYTES_MAX {
        return Err(Error::PackedStringTooLong { bytes: len as u64 });
    }
    // Do not trust an announced length that the input cannot produce.
    if len > input.len().saturating_mul(GROWTH_MAX) {
        return Err(CORRUPT);
    }
    let start = out.len();
    out.reserve(len);
    let mut rest = input;
    while let Some((&control, tail)) = rest.split_first() {
        rest = tail;
        let control = usize::from(control);
        let room = len - (out.len() - start);
        if control < LITERALS_MAX {
            let n = control + 1;
            if n > room || n > rest.len() {
                return Err(CORRUPT);
            }
            let (literals, tail) = rest.split_at(n);
            out.extend_from_slice(literals);
            rest = tail;
            continue;
        }
        let mut n = control >> 5;
        if n == 7 {
            let (&more, tail) = rest.split_first().ok_or(CORRUPT)?;
            n += usize::from(more);
            rest = tail;
        }
        n += 2;
        let (&low, tail) = rest.split_first().ok_or(CORRUPT)?;
        rest = tail;
        let distance = ((control & 31) << 8 | usize::from(low)) + 1;
        if n > room || distance > out.len() - start {
            return Err(CORRUPT);
        }
        let from = out.len() - distance;
        // A copy may overlap its own output. Then the copy repeats the last `distance` bytes.
        let mut left = n;
        while left > 0 {
            let piece = left.min(out.len() - from);
            out.extend_from_within(from..from + piece);
            left -= piece;
        }
    }
    if out.len() - start == len { Ok(()) } else { Err(CORRUPT) }
}

/// Compresses strings one after another and reuses its memory.
pub struct Compressor {
    /// The latest position plus one for each hash. Positions from older strings are stale; comparing the bytes
    /// detects this.
    table: Vec<u32>,
    /// The compressed form of the latest string.
    out: Vec<u8>,
}

impl Compressor {
    /// A new compressor. Its table grows with the strings, up to 64 KiB.
    pub fn new() -> Compressor {
        Compressor { table: Vec::new(), out: Vec::new() }
    }

    /// The compressed form of `input`. `None` when the form would have `bytes_max` bytes or more, or when `input`
    /// exceeds [`STRING_BYTES_MAX`]. Calls `pause` after every [`PAUSE_BYTES`] of input.
    pub fn compress(&mut self, input: &[u8], bytes_max: usize, pause: &dyn Fn()) -> Option<&[u8]> {
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
        self.out.clear();
        if input.len() > STRING_BYTES_MAX {
            return None;
        }
        let slots = input.len().next_power_of_two().clamp(TABLE_SLOTS_MIN, TABLE_SLOTS_MAX);
        if self.table.len() < slots {
            self.table.resize(slots, 0);
        }
        let bits = self.table.len().trailing_zeros();
        let (table, out) = (&mut self.table[..], &mut self.out);
        let (mut at, mut literals_from, mut pause_at) = (0, 0, PAUSE_BYTES);
        while at + COPY_MIN <= input.len() {
            if at >= pause_at {
                pause_at = at + PAUSE_BYTES;
                pause();
            }
            let slot = slot(&input[at..at + COPY_MIN], bits);
            let candidate = std::mem::replace(&mut table[slot], at as u32 + 1) as usize;
            let Some(length) = matching(input, candidate, at) else {
                at += 1;
                if out.len() + (at - literals_from) >= bytes_max {
                    return None;
                }
                continue;
            };
            put_literals(&input[literals_from..at], out);
            put_copy(at - (candidate - 1), length, out);
            if out.len() >= bytes_max {
                return None;
            }
            at += length;
            literals_from = at;
            // Remember the last positions within the copy, because a repetition often continues there. Remembering
            // every position would take longer than everything else.
            for within in at - REMEMBERED..at.min(input.len() - (COPY_MIN - 1)) {
                table[self::slot(&input[within..within + COPY_MIN], bits)] = within as u32 + 1;
            }
        }
        put_literals(&input[literals_from..], out);
        (out.len() < bytes_max).then_some(out)
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}

/// The slot of three bytes in a table of two to the power of `bits` slots.
fn slot(three: &[u8], bits: u32) -> usize {
    let value = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    (value.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
}

/// Number of bytes at `at` that repeat the bytes at `candidate - 1`; `None` when they are too few or too far away.
fn matching(input: &[u8], candidate: usize, at: usize) -> Option<usize> {
    let from = candidate.checked_sub(1)?;
    if from >= at || at - from > DISTANCE_MAX {
        return None;
    }
    let longest = (input.len() - at).min(COPY_MAX);
    let length = common_prefix(&input[from..from + longest], &input[at..at + longest]);
    (length >= COPY_MIN).then_some(length)
}

/// Length of the longest common prefix of two equally long slices. Compares a word at a time.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let ((a_words, a_rest), (b_words, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (i, (a, b)) in a_words.iter().zip(b_words).enumerate() {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return 8 * i + differing.trailing_zeros() as usize / 8;
        }
    }
    8 * a_words.len() + a_rest.iter().zip(b_rest).take_while(|(a, b)| a == b).count()
}

fn put_literals(literals: &[u8], out: &mut Vec<u8>) {
    for run in literals.chunks(LITERALS_MAX) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

fn put_copy(distance: usize, length: usize, out: &mut Vec<u8>) {
    let (length, distance) = (length - 2, distance - 1);
    let high = (distance >> 8) as u8;
    if length < 7 {
        out.push((length as u8) << 5 | high);
    } else {
        out.extend_from_slice(&[7 << 5 | high, (length - 7) as u8]);
    }
    out.push(distance as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[u8]) -> Option<usize> {
        let mut compressor = Compressor::new();
        let packed = compressor.compress(input, input.len(), &|| {})?;
        let mut out = b"before".to_vec();
        decompress(packed, input.len(), &mut out).unwrap();
        assert_eq!(&out[6..], input);
        Some(packed.len())
    }

    #[test]
    fn repetitions_shrink_and_decompress() {
        assert_eq!(round_trip(b""), None);
        assert_eq!(round_trip(b"abc"), None);
        assert!(round_trip(&[b'x'; 21]).unwrap() <= 6);
        assert!(round_trip(&[0; 100_000]).unwrap() < 100_000 / 80);
        let words = b"the quick brown fox and the quick brown dog and the lazy fox ".repeat(40);
        let packed = round_trip(&words).unwrap();
        assert!(packed < words.len() / 12, "{packed} of {}", words.len());
        let far: Vec<u8> =
            (0..20_000u32).flat_map(|n| (n.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        assert_eq!(round_trip(&far), None, "nothing repeats within reach");
    }

    #[test]
    fn a_compressor_forgets_the_previous_string() {
        let mut compressor = Compressor::new();
        for input in
            [&b"abcabcabcabcabcabcabcabc"[..], &[b'a'; 50], b"xyzxyzxyzxyzabcxyzxyzxyz", &[b'b'; 300]]
        {
            let mut out = Vec::new();
            let packed = compressor.compress(input, input.len(), &|| {}).unwrap();
            decompress(packed, input.len(), &mut out).unwrap();
            assert_eq!(out, input);
        }
    }

    #[test]
    fn wrong_input_is_refused() {
        let mut out = Vec::new();
        for (input, len) in [
            (&b"\x02ab"[..], 3), // literals cut off
            (b"\x01ab", 3),      // too few
            (b"\x02abc", 2),     // too many
            (b"\x20\x00", 3),    // a copy of nothing
            (b"\x00a\x20", 4),   // a copy without its offset
            (b"\x00a\xe0", 12),  // a long copy without its length
            (b"\x00a\xe0\xff\x00", 264),
            (b"", 1),
            (b"\x00a", usize::MAX),
            (b"\x00a", STRING_BYTES_MAX),
        ] {
            out.clear();
            assert!(decompress(input, len, &mut out).is_err(), "{input:?}");
            assert!(out.capacity() <= 1024, "{input:?} took {} bytes", out.capacity());
        }
        out.clear();
        decompress(b"\x00a\xe0\xff\x00", 265, &mut out).unwrap();
        assert_eq!(out, vec![b'a'; 265]);
    }
}
