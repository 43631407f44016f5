//! Lists of ascending numbers, Rice-coded: [`Writer`] and [`Reader`].
//!
//! A list is the gaps between its numbers: a unary quotient and `k` low bits, where `k` follows from how many there are,
//! so it is not stored. That is within a bit or so of the least possible for gaps of that mean: some two bits for a trigram
//! that half the documents have, ten for one in a thousand. Each list begins at a byte.

/// Bytes behind the last list, so that eight can be read from any position.
const PADDING_BYTES: usize = 8;
/// Longest run of ones that is written as such; a longer quotient is an escape and the number in 32 bits.
const QUOTIENT_MAX: u32 = 40;

/// The low bits of a gap: the logarithm of the mean gap's 0.69.
fn low_bits(room: u32, count: u32) -> u32 {
    let mean = (u64::from(room) / u64::from(count.max(1))).saturating_sub(1) * 69 / 100;
    if mean < 2 { 0 } else { mean.ilog2() }
}

/// Writes lists one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl Writer {
    /// Adds a list of ascending numbers out of the `room` from `first` on; where it begins, in bytes.
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
    /// At most 41 bits, the lowest first.
    #[inline]
    fn put(&mut self, bits: u64, n: u32) {
        self.held |= bits << self.held_bits;
        self.held_bits += n;
        if self.held_bits >= 16 {
            // All eight bytes are written and those that are not full yet taken back: that is one store.
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
    /// All lists.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.align();
        self.bytes.extend_from_slice(&[0; PADDING_BYTES]);
        self.bytes.shrink_to_fit();
        self.bytes
    }
}

/// Reads what a [`Writer`] has written.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

impl Reader<'_> {
    /// At the list that begins at this byte.
    pub(crate) fn new(bytes: &[u8], start: usize) -> Reader<'_> {
        Reader { bytes, at: start * 8 }
    }
    /// Adds its `count` numbers to `out`.
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
    /// The next 57 bits or more.
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
    fn lists_come_back_whatever_their_density() {
        let rng = &mut fastrand::Rng::with_seed(9);
        for (first, room) in [(5, 1), (0, 10), (77, 3000), (1 << 31, 70_000), (3, 1 << 30)] {
            let (mut writer, mut lists) = (Writer::default(), Vec::new());
            for share in [1.0, 0.97, 0.5, 0.01, 0.0002] {
                let has = |_: &u32| share == 1.0 || rng.f64() < share;
                lists.push((first..first + room.min(70_000)).filter(has).collect::<Vec<u32>>());
            }
            // A gap as wide as it gets.
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
