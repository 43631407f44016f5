//! Strings as bitmaps: counts, searches and combinations of bits, and integers of any width at any bit offset
//! ([`FieldType`]).
//!
//! Bit 0 is the most significant bit of byte 0, as in redis-server. All functions are pure and take time
//! proportional to the bytes passed. Callers pass a long string in pieces. Arguments and replies are handled
//! by the commands.

use std::ops::Range;

/// Size of the stack buffer for the second bitmap that some operations of [`BitOperation::combine`] need, in bytes.
const SCRATCH_BYTES: usize = 4096;

/// Number of 1 bits in `bytes`.
pub fn count(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 = words.iter().map(|w| u64::from(u64::from_ne_bytes(*w).count_ones())).sum();
    words + rest.iter().map(|b| u64::from(b.count_ones())).sum::<u64>()
}

/// Number of 1 bits of `bytes` within `range`, a range of bits.
///
/// # Panics
/// Panics if `range` is not within `bytes`.
pub fn count_within(bytes: &[u8], range: Range<u64>) -> u64 {
    let Some((first, last)) = edges(&range) else { return 0 };
    let (head, tail) = (mask_from(range.start), mask_until(range.end));
    if first == last {
        return u64::from((bytes[first] & head & tail).count_ones());
    }
    let ends = (bytes[first] & head).count_ones() + (bytes[last] & tail).count_ones();
    u64::from(ends) + count(&bytes[first + 1..last])
}

/// Offset of the first bit within `range` that equals `bit`.
///
/// # Panics
/// Panics if `range` is not within `bytes`.
pub fn find(bytes: &[u8], bit: bool, range: Range<u64>) -> Option<u64> {
    let (first, last) = edges(&range)?;
    // The search below looks for ones. To find a zero, invert the bytes.
    let flip = if bit { 0 } else { 0xff };
    let in_byte = |at: usize, mask: u8| {
        let hits = (bytes[at] ^ flip) & mask;
        (hits != 0).then(|| at as u64 * 8 + u64::from(hits.leading_zeros()))
    };
    let (head, tail) = (mask_from(range.start), mask_until(range.end));
    if first == last {
        return in_byte(first, head & tail);
    }
    if let Some(found) = in_byte(first, head) {
        return Some(found);
    }
    let skip = u64::from_ne_bytes([flip; 8]);
    let (words, _) = bytes[first + 1..last].as_chunks::<8>();
    let same = words.iter().take_while(|w| u64::from_ne_bytes(**w) == skip).count();
    let from = first + 1 + same * 8;
    (from..last).find_map(|at| in_byte(at, 0xff)).or_else(|| in_byte(last, tail))
}

/// The bit at `offset`; 0 past the end of `bytes`.
pub fn get(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (offset % 8)) != 0)
}

/// Sets the bit at `offset` and returns the former bit.
///
/// # Panics
/// Panics if `offset` is past the end of `bytes`.
pub fn set(bytes: &mut [u8], offset: u64, bit: bool) -> bool {
    let (at, mask) = ((offset / 8) as usize, 0x80 >> (offset % 8));
    let before = bytes[at] & mask != 0;
    bytes[at] = if bit { bytes[at] | mask } else { bytes[at] & !mask };
    before
}

/// First and last byte of a range of bits. `None` when the range is empty.
fn edges(range: &Range<u64>) -> Option<(usize, usize)> {
    (range.start < range.end).then(|| ((range.start / 8) as usize, ((range.end - 1) / 8) as usize))
}
/// Mask of the bits of a byte from bit `start` to the byte's end.
fn mask_from(start: u64) -> u8 {
    0xff >> (start % 8)
}
/// Mask of the bits of a byte before bit `end`.
fn mask_until(end: u64) -> u8 {
    0xff << ((8 - end % 8) % 8)
}

/// The operations of BITOP. A shorter string is padded with zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// The result has the bits that are 1 in all strings.
    And,
    /// The result has the bits that are 1 in any string.
    Or,
    /// Bits that are 1 in an odd number of strings.
    Xor,
    /// The result has the bits that are 0 in the only string.
    Not,
    /// Bits that are 1 in the first string and in no other.
    Diff,
    /// Bits that are 0 in the first string and 1 in another.
    Diff1,
    /// Bits that are 1 in the first string and in another.
    AndOr,
    /// The result has the bits that are 1 in exactly one string.
    One,
}

impl BitOperation {
    /// The operation named by an argument of BITOP, in any ASCII case.
    pub fn from_word(word: &[u8]) -> Option<BitOperation> {
        const WORDS: [(&str, BitOperation); 8] = [
            ("and", BitOperation::And),
            ("or", BitOperation::Or),
            ("xor", BitOperation::Xor),
            ("not", BitOperation::Not),
            ("diff", BitOperation::Diff),
            ("diff1", BitOperation::Diff1),
            ("andor", BitOperation::AndOr),
            ("one", BitOperation::One),
        ];
        WORDS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|(_, op)| *op)
    }
    /// Fills `out` with the bytes of the combined string, starting with byte `at` of that string.
    pub fn combine(self, sources: &[&[u8]], at: usize, out: &mut [u8]) {
        let mut scratch = [0; SCRATCH_BYTES];
        for (i, out) in out.chunks_mut(SCRATCH_BYTES).enumerate() {
            let at = at + i * SCRATCH_BYTES;
            self.combine_piece(sources, at, out, &mut scratch);
        }
    }

    fn combine_piece(self, sources: &[&[u8]], at: usize, out: &mut [u8], scratch: &mut [u8; SCRATCH_BYTES]) {
        let piece = |source: usize| -> &[u8] {
            let bytes = sources[source].get(at..).unwrap_or_default();
            &bytes[..bytes.len().min(out.len())]
        };
        let Some((first, others)) = (!sources.is_empty()).then(|| (piece(0), 1..sources.len())) else {
            return out.fill(0);
        };
        let len = out.len();
        let pieces: smallvec::SmallVec<[&[u8]; 8]> = others.map(piece).collect();
        out[..first.len()].copy_from_slice(first);
        out[first.len()..].fill(0);
        match self {
            BitOperation::Not => each(out, |byte| !byte),
            BitOperation::And => {
                for other in pieces {
                    merge(&mut out[..other.len()], other, |a, b| a & b);
                    out[other.len()..].fill(0);
                }
            }
            BitOperation::Or => {
                pieces.iter().for_each(|other| merge(&mut out[..other.len()], other, |a, b| a | b))
            }
            BitOperation::Xor => {
                pieces.iter().for_each(|other| merge(&mut out[..other.len()], other, |a, b| a ^ b))
            }
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr => {
                let any = &mut scratch[..len];
                any.fill(0);
                pieces.iter().for_each(|other| merge(&mut any[..other.len()], other, |a, b| a | b));
                match self {
                    BitOperation::Diff => merge(out, any, |first, any| first & !any),
                    BitOperation::Diff1 => merge(out, any, |first, any| !first & any),
                    _ => merge(out, any, |first, any| first & any),
                }
            }
            BitOperation::One => {
                let twice = &mut scratch[..len];
                twice.fill(0);
                for other in pieces {
                    let (out, twice) = (&mut out[..other.len()], &mut twice[..other.len()]);
                    for ((once, twice), byte) in out.iter_mut().zip(twice).zip(other) {
                        *twice |= *once & byte;
                        *once |= byte;
                    }
                }
                merge(out, twice, |once, twice| once & !twice);
            }
        }
    }
}

fn each(out: &mut [u8], change: impl Fn(u8) -> u8) {
    out.iter_mut().for_each(|byte| *byte = change(*byte));
}
/// Applies `change` to each pair of bytes. A loop that the compiler can vectorise.
fn merge(out: &mut [u8], other: &[u8], change: impl Fn(u8, u8) -> u8) {
    out.iter_mut().zip(other).for_each(|(a, b)| *a = change(*a, *b));
}

/// The type of an integer of BITFIELD: `i1` to `i64`, `u1` to `u63`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    signed: bool,
    bits: u8,
}

/// What BITFIELD does with a number that does not fit its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// On overflow, keeps the low bits of the number.
    Wrap,
    /// On overflow, takes the nearest number that fits.
    Saturate,
    /// On overflow, stores nothing.
    Fail,
}

impl FieldType {
    /// The type with this sign and width. `None` when redis-server has no such type.
    pub fn new(signed: bool, bits: u64) -> Option<FieldType> {
        let most = if signed { 64 } else { 63 };
        (1..=most).contains(&bits).then_some(FieldType { signed, bits: bits as u8 })
    }
    /// Width of the field in bits.
    pub fn bits(self) -> u64 {
        self.bits.into()
    }
    /// The integer of this type at bit `offset`. Bits past the end of `bytes` are 0.
    pub fn get(self, bytes: &[u8], offset: u64) -> i64 {
        let raw = (window(bytes, offset) << (offset % 8)) >> (128 - u32::from(self.bits));
        self.sign(raw as u64)
    }
    /// Writes `value`, which must fit, at bit `offset`.
    ///
    /// # Panics
    /// Panics if the last bit of the integer is past the end of `bytes`.
    pub fn put(self, bytes: &mut [u8], offset: u64, value: i64) {
        let (at, width) = ((offset / 8) as usize, u32::from(self.bits));
        let shift = 128 - width - (offset % 8) as u32;
        let mask = (u128::MAX >> (128 - width)) << shift;
        let new = (window(bytes, offset) & !mask) | (((value as u128) << shift) & mask);
        let touched = ((offset % 8) as usize + usize::from(self.bits)).div_ceil(8);
        bytes[at..at + touched].copy_from_slice(&new.to_be_bytes()[..touched]);
    }
    /// The number to store for `value`: `value` itself if it fits, else what `overflow` says. `None` for
    /// [`Overflow::Fail`].
    pub fn fit(self, value: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = match self.signed {
            true => (-1i128 << (self.bits - 1), (1i128 << (self.bits - 1)) - 1),
            false => (0, (1i128 << self.bits) - 1),
        };
        if (least..=most).contains(&value) {
            return Some(value as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.sign(value as u64 & (u64::MAX >> (64 - u32::from(self.bits))))),
            Overflow::Saturate => Some(value.clamp(least, most) as i64),
            Overflow::Fail => None,
        }
    }
    /// The number that SET stores for the argument `value`, before [`FieldType::fit`]. An unsigned type reads a
    /// negative argument as a large number, as redis-server does. A signed type does so, too, if the distance from
    /// the argument to the type's largest number needs more than 64 bits. Such an argument saturates at the largest
    /// number.
    pub fn set_argument(self, value: i64) -> i128 {
        let most = i64::MAX >> (64 - self.bits.max(1));
        match self.signed {
            true if self.bits == 64 || most.checked_sub(value).is_some() => value.into(),
            true => i128::from(value) + (1 << 64),
            false => (value as u64).into(),
        }
    }

    /// The integer of this type that has these low bits.
    fn sign(self, raw: u64) -> i64 {
        let unused = 64 - u32::from(self.bits);
        if self.signed { ((raw << unused) as i64) >> unused } else { raw as i64 }
    }
}

/// 16 bytes as a big-endian number, starting with the byte that holds bit `offset`. Bytes past the end are 0.
fn window(bytes: &[u8], offset: u64) -> u128 {
    let rest = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let mut window = [0; 16];
    let len = rest.len().min(window.len());
    window[..len].copy_from_slice(&rest[..len]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(bytes: &[u8]) -> Vec<bool> {
        (0..bytes.len() as u64 * 8).map(|at| get(bytes, at)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn counts_and_finds_what_a_look_at_each_bit_does(
            // Also use long runs of equal bytes, which the search skips by words.
            parts in prop::collection::vec((prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..30usize), 0..6),
            ends in any::<(u16, u16)>(),
        ) {
            let bytes: Vec<u8> = parts.into_iter().flat_map(|(byte, times)| vec![byte; times]).collect();
            let all = bits(&bytes);
            let at = |end: u16| if all.is_empty() { 0 } else { usize::from(end) % (all.len() + 1) };
            let (from, to) = (at(ends.0), at(ends.1));
            let range = from as u64..to as u64;
            let within = all.get(from..to).unwrap_or_default();
            prop_assert_eq!(count(&bytes), all.iter().filter(|b| **b).count() as u64);
            prop_assert_eq!(count_within(&bytes, range.clone()), within.iter().filter(|b| **b).count() as u64);
            for bit in [false, true] {
                let want = within.iter().position(|b| *b == bit).map(|i| (from + i) as u64);
                prop_assert_eq!(find(&bytes, bit, range.clone()), want);
            }
        }

        #[test]
        fn combines_as_each_bit_by_itself(
            sources in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
            from in 0..20usize,
        ) {
            let views: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let len = sources.iter().map(Vec::len).max().unwrap_or(0);
            for (word, rule) in [
                ("AND", (|first, others, all| first && others == all - 1) as fn(bool, usize, usize) -> bool),
                ("or", |first, others, _| first || others > 0),
                ("Xor", |first, others, _| (others + usize::from(first)) % 2 == 1),
                ("diff", |first, others, _| first && others == 0),
                ("DIFF1", |first, others, _| !first && others > 0),
                ("andor", |first, others, _| first && others > 0),
                ("one", |first, others, _| others + usize::from(first) == 1),
            ] {
                let op = BitOperation::from_word(word.as_bytes()).expect("a known word");
                let mut out = vec![0xaa; len.saturating_sub(from)];
                op.combine(&views, from, &mut out);
                for i in 0..out.len() as u64 * 8 {
                    let bit = from as u64 * 8 + i;
                    let others = views[1..].iter().filter(|s| get(s, bit)).count();
                    prop_assert_eq!(get(&out, i), rule(get(views[0], bit), others, views.len()), "{} {}", word, bit);
                }
            }
        }

        #[test]
        fn fields_of_any_width_come_back_and_leave_their_neighbours(
            mut bytes in prop::collection::vec(any::<u8>(), 0..24),
            signed in any::<bool>(), width in 1..65u64, offset in 0..100u64, value in any::<i64>(),
        ) {
            let Some(kind) = FieldType::new(signed, width) else {
                prop_assert!(!signed && width == 64);
                return Ok(());
            };
            let read = |bytes: &[u8]| {
                let raw = (0..width).fold(0u64, |n, i| n << 1 | u64::from(get(bytes, offset + i)));
                if signed && get(bytes, offset) { raw as i64 | (-1i64).checked_shl(width as u32).unwrap_or(0) } else { raw as i64 }
            };
            prop_assert_eq!(kind.get(&bytes, offset), read(&bytes));
            bytes.resize(bytes.len().max((offset + width).div_ceil(8) as usize), 0x55);
            let before = bits(&bytes);
            let fitted = kind.fit(kind.set_argument(value), Overflow::Wrap).expect("wraps");
            kind.put(&mut bytes, offset, fitted);
            prop_assert_eq!(kind.get(&bytes, offset), fitted);
            for (i, bit) in before.iter().enumerate().filter(|(i, _)| !(offset..offset + width).contains(&(*i as u64))) {
                prop_assert_eq!(get(&bytes, i as u64), *bit, "bit {} of another field", i);
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit() {
        let kind = |signed, bits| FieldType::new(signed, bits).expect("a type");
        let (i8, u8, i64) = (kind(true, 8), kind(false, 8), kind(true, 64));
        for (kind, value, wrapped, saturated) in [
            (i8, 128, -128, 127),
            (i8, -129, 127, -128),
            (i8, 300, 44, 127),
            (u8, 256, 0, 255),
            (u8, -1, 255, 0),
            (u8, u8.set_argument(-1), 255, 255),
            (i64, i128::from(i64::MAX) + 1, i64::MIN, i64::MAX),
            (i64, i128::from(i64::MIN) - 1, i64::MAX, i64::MIN),
            (kind(false, 63), 1i128 << 63, 0, i64::MAX),
        ] {
            assert_eq!(kind.fit(value, Overflow::Wrap), Some(wrapped), "{kind:?} {value}");
            assert_eq!(kind.fit(value, Overflow::Saturate), Some(saturated), "{kind:?} {value}");
            assert_eq!(kind.fit(value, Overflow::Fail), None, "{kind:?} {value}");
        }
        assert_eq!(i8.fit(-128, Overflow::Fail), Some(-128));
        assert!(FieldType::new(false, 64).is_none() && FieldType::new(true, 0).is_none());
        assert!(FieldType::new(true, 65).is_none() && FieldType::new(true, u64::MAX).is_none());
    }

    #[test]
    fn not_and_pieces_longer_than_the_scratch() {
        let long: Vec<u8> = (0..3 * SCRATCH_BYTES + 5).map(|i| i as u8).collect();
        let mut out = vec![0; long.len()];
        BitOperation::Not.combine(&[&long], 0, &mut out);
        assert!(out.iter().zip(&long).all(|(a, b)| *a == !*b));
        BitOperation::AndOr.combine(&[&long, &long[..SCRATCH_BYTES + 1]], 0, &mut out);
        assert_eq!(out[..SCRATCH_BYTES + 1], long[..SCRATCH_BYTES + 1]);
        assert!(out[SCRATCH_BYTES + 1..].iter().all(|b| *b == 0));
        let mut bytes = [0u8; 2];
        assert!(!set(&mut bytes, 9, true) && set(&mut bytes, 9, true) && bytes == [0, 0x40]);
        assert!(set(&mut bytes, 9, false) && !get(&bytes, 9) && !get(&bytes, u64::MAX));
    }
}
