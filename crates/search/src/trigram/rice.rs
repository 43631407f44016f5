//! Rice-coded lists of ascending numbers: [`Writer`] and [`Reader`].
//!
//! A list stores the gaps between its numbers. A gap is a unary quotient and `k` low bits. `k` is derived from the
//! length of the list, so it is not stored. The size is within about one bit per number of the optimum for gaps of
//! that mean: about two bits for a trigram in half of all documents, ten bits for a trigram in one of a thousand.
//! Each list starts at a byte boundary.

/// Padding after the last list, so that a reader can load eight bytes at any position.
const PADDING_BYTES: usize = 8;
/// Maximum unary quotient. A gap with a larger quotient is written as an escape and 32 bits.
const QUOTIENT_MAX: u32 = 40;

/// `k`, the number of low bits of a gap: the logarithm of 0.69 times the mean gap.
fn low_bits(room: u32, count: u32) -> u32 {
    let mean = (u64::from(room) / u64::from(count.max(1))).saturating_sub(1) * 69 / 100;
    if mean < 2 { 0 } else { mean.ilog2() }
}

/// Writes lists of numbers one after another.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl Writer {
    /// Adds a list of ascending numbers from `first..first + room`. Returns the byte at which the list starts.
    pub(crate) fn list(&mut self, first: u32, room: u32, numbers: &[u32]) -> u32 {
        self.align();
        let start = self.bytes.len() as u32;
        let k = low_bits(room, numbers.len() as u32);
        let mut next = first;
        for number in numbers {
            let gap = number - next;
            next = number + 1;
            let quotient = gap >> k;
            let low = u64::from(gap) & ((1 << k) - 1);
            if quotient + k < QUOTIENT_MAX {
                self.put(((1u64 << quotient) - 1) | (low << (quotient + 1)), quotient + 1 + k);
            } else if quotient < QUOTIENT_MAX {
                self.put((1u64 << quotient) - 1, quotient + 1);
                self.put(low, k);
            } else {
                self.put((1u64 << QUOTIENT_MAX) - 1, QUOTIENT_MAX);
                self.put(u64::from(gap), 32);
            }
        }
        start
    }
    /// Appends the low `n` bits of `bits`, at most 41, lowest bit first.
    #[inline]
    fn put(&mut self, bits: u64, n: u32) {
        self.held |= bits << self.held_bits;
        self.held_bits += n;
        if self.held_bits >= 16 {
            // Write all eight bytes and truncate the incomplete ones: this compiles to one store.
            let full = self.held_bits / 8;
            let len = self.bytes.len() + full as usize;
            self.bytes.extend_from_slice(&self.held.to_le_bytes());
            self.bytes.truncate(len);
            self.held >>= full * 8;
            self.held_bits %= 8;
        }
    }
    fn align(&mut self) {
        if self.held_bits > 0 {
            let full = self.held_bits.div_ceil(8) as usize;
            self.bytes.extend_from_slice(&self.held.to_le_bytes()[..full]);
            (self.held, self.held_bits) = (0, 0);
        }
    }
    /// Returns the bytes of all lists.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.align();
        self.bytes.extend_from_slice(&[0; PADDING_BYTES]);
        self.bytes.shrink_to_fit();
        self.bytes
    }
}

/// Reads the lists of a [`Writer`].
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Position of the reader in `bytes`, counted in bits.
    at: usize,
}

impl Reader<'_> {
    /// A reader of the list that starts at byte `start`.
    pub(crate) fn new(bytes: &[u8], start: usize) -> Reader<'_> {
        Reader { bytes, at: start * 8 }
    }
    /// Appends the `count` numbers of the list to `out`.
    pub(crate) fn list(&mut self, first: u32, room: u32, count: u32, out: &mut Vec<u32>) {
        let k = low_bits(room, count);
        let mut next = first;
        out.reserve(count as usize);
        for _ in 0..count {
            let number = next + self.gap(k);
            out.push(number);
            next = number + 1;
        }
    }
    /// The next bits, at least 57.
    #[inline]
    fn window(&self) -> u64 {
        let bytes = self.bytes.get(self.at / 8..).and_then(|b| b.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b)) >> (self.at % 8)
    }
    #[inline]
    fn gap(&mut self, k: u32) -> u32 {
        let quotient = self.window().trailing_ones();
        if quotient < QUOTIENT_MAX {
            self.at += quotient as usize + 1;
            let low = self.window() & ((1 << k) - 1);
            self.at += k as usize;
            return quotient << k | low as u32;
        }
        self.at += QUOTIENT_MAX as usize;
        let gap = self.window() as u32;
        self.at += 32;
        gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_density_decode_back() {
        let rng = &mut fastrand::Rng::with_seed(9);
        for (first, room) in [(5, 1), (0, 10), (77, 3000), (1 << 31, 70_000), (3, 1 << 30)] {
            let (mut writer, mut lists) = (Writer::default(), Vec::new());
            for share in [1.0, 0.97, 0.5, 0.01, 0.0002] {
                let has = |_: &u32| share == 1.0 || rng.f64() < share;
                lists.push((first..first + room.min(70_000)).filter(has).collect::<Vec<u32>>());
            }
            // Add the widest gap that is possible.
            lists.push(if room > 1 { vec![first, first + room - 1] } else { vec![first] });
            let starts: Vec<u32> = lists.iter().map(|l| writer.list(first, room, l)).collect();
            let bytes = writer.finish();
            for (start, list) in starts.into_iter().zip(lists) {
                let mut got = Vec::new();
                Reader::new(&bytes, start as usize).list(first, room, list.len() as u32, &mut got);
                assert!(got == list, "{first} {room} {} numbers", list.len());
            }
        }
    }
}
