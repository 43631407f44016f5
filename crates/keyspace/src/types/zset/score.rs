//! The encoding of a score: an integer in as few bytes as it needs, and any other number as its eight bytes.
//!
//! If the first byte is below [`SMALL`], it is the score itself. Otherwise it is [`SMALL`] plus the number of bytes
//! that follow: one to seven for a little-endian integer, or the eight bytes of the double. So no score is rounded,
//! and `-0` stays `-0`.

use std::ops::Deref;

/// The integers from 0 to `SMALL - 1` are encoded as one byte.
const SMALL: u8 = 240;
/// A double holds all integers up to this one exactly.
const INTEGER_MAX: f64 = (1u64 << 53) as f64;

/// An encoded score.
pub(super) struct EncodedScore {
    bytes: [u8; 9],
    len: usize,
}

impl EncodedScore {
    /// The score in nine bytes, whatever its value. Separators use this form. They are few, and while all have
    /// equal lengths, a search among them needs no sums of lengths.
    pub(super) fn whole(score: f64) -> EncodedScore {
        let mut bytes = [SMALL + 8; 9];
        bytes[1..].copy_from_slice(&score.to_le_bytes());
        EncodedScore { bytes, len: 9 }
    }
    /// The shortest encoding of a score.
    pub(super) fn of(score: f64) -> EncodedScore {
        let mut bytes = [0; 9];
        let n = score as i64;
        let is_integer = score.abs() <= INTEGER_MAX && (n as f64).to_bits() == score.to_bits();
        if !is_integer {
            return EncodedScore::whole(score);
        }
        if (0..i64::from(SMALL)).contains(&n) {
            bytes[0] = n as u8;
            return EncodedScore { bytes, len: 1 };
        }
        // The number of bits, and one bit for the sign.
        let bits = 65 - if n < 0 { !n } else { n }.leading_zeros();
        let len = bits.div_ceil(8) as usize;
        bytes[0] = SMALL + len as u8;
        bytes[1..].copy_from_slice(&n.to_le_bytes());
        EncodedScore { bytes, len: 1 + len }
    }
}

impl Deref for EncodedScore {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The score at the start of `bytes`, and the bytes after it.
///
/// # Panics
/// Panics if the bytes were not written by [`EncodedScore::of`] or [`EncodedScore::whole`].
#[inline]
pub(super) fn read(bytes: &[u8]) -> (f64, &[u8]) {
    let (first, rest) = (bytes[0], &bytes[1..]);
    if first < SMALL {
        return (f64::from(first), rest);
    }
    let len = usize::from(first - SMALL);
    // If the member is long enough, read eight bytes by one load. A copy of `len` bytes that was read back as
    // one number took a third of a search.
    if let Some(word) = rest.first_chunk() {
        let (word, rest) = (i64::from_le_bytes(*word), &rest[len..]);
        let unused = 64 - 8 * len as u32;
        let score = if unused == 0 { f64::from_bits(word as u64) } else { (word << unused >> unused) as f64 };
        return (score, rest);
    }
    let (number, rest) = rest.split_at(len);
    let number = number.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte));
    // Shift left and then right, to extend the sign.
    let unused = 64 - 8 * len as u32;
    ((number << unused >> unused) as f64, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_score_comes_back_bit_for_bit() {
        let mut scores =
            vec![0.0, -0.0, 0.5, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 1e300];
        for shift in 0..63 {
            for near in [-2, -1, 0, 1, 2] {
                let n = (1i64 << shift).saturating_add(near) as f64;
                scores.extend([n, -n, n + 0.5, n * 1e-3]);
            }
        }
        for score in scores {
            for member in [&b""[..], b"m", b"member", b"a longer member"] {
                for written in [EncodedScore::of(score), EncodedScore::whole(score)] {
                    let bytes = [&*written, member].concat();
                    let (back, rest) = read(&bytes);
                    assert_eq!((back.to_bits(), rest), (score.to_bits(), member), "{score}");
                }
            }
        }
    }

    #[test]
    fn integers_are_short() {
        for (score, len) in [
            (0.0, 1),
            (239.0, 1),
            (240.0, 3),
            (-1.0, 2),
            (-128.0, 2),
            (-129.0, 3),
            (1e6, 4),
            (1.7e9, 5),
            (0.1, 9),
            (-0.0, 9),
        ] {
            assert_eq!(EncodedScore::of(score).len(), len, "{score}");
        }
    }
}
