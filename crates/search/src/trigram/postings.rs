//! [`Segment`]: for each trigram of a range of documents, which of them have it.
//!
//! A list is the gaps between its documents' numbers, Rice-coded: a unary quotient and `k` low bits, where `k` follows from
//! how many there are, so it is not stored. That is within a bit or so of the least possible for gaps of that mean: some
//! two bits for a trigram that half the documents have, ten for one in a thousand.

use super::query::Gram;
use std::sync::Arc;

/// Bits behind the last list, so that eight bytes can be read from any position.
const PADDING_BYTES: usize = 8;
/// Longest run of ones that is written as such; a longer quotient is an escape and the number in 32 bits.
const QUOTIENT_MAX: u32 = 40;
/// Postings decoded between two pauses.
const PIECE_POSTINGS: usize = 1 << 15;

/// Immutable lists of documents.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its documents' numbers begin here ...
    pub(crate) first: u32,
    /// ... and it has room for so many.
    pub(crate) documents: u32,
    grams: Vec<Gram>,
    /// Where each list begins in `bits`, in bytes.
    starts: Vec<u32>,
    counts: Vec<u32>,
    bits: Vec<u8>,
}

impl Segment {
    /// From pairs of a trigram (the upper half) and a document's number, sorted.
    pub(crate) fn build(first: u32, documents: u32, pairs: &[u64]) -> Segment {
        let mut writer = Writer::new(first, documents);
        let mut list = Vec::new();
        for same in pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
            list.clear();
            list.extend(same.iter().map(|p| *p as u32));
            writer.list((same[0] >> 32) as Gram, &list);
        }
        writer.finish()
    }

    /// Neighbouring segments as one, without the documents that `is_dead`.
    pub(crate) fn merge(
        parts: &[Arc<Segment>],
        is_dead: &dyn Fn(u32) -> bool,
        pause: &dyn Fn(),
    ) -> Option<Segment> {
        let (first, last) = (parts.first()?, parts.last()?);
        let mut writer = Writer::new(first.first, last.first + last.documents - first.first);
        let mut at = vec![0usize; parts.len()];
        let (mut list, mut passed) = (Vec::new(), 0);
        while let Some(gram) = parts.iter().zip(&at).filter_map(|(p, at)| p.grams.get(*at)).min().copied() {
            list.clear();
            for (part, at) in parts.iter().zip(&mut at) {
                if part.grams.get(*at) == Some(&gram) {
                    part.decode(*at, &mut list);
                    *at += 1;
                }
            }
            passed += list.len();
            list.retain(|d| !is_dead(*d));
            if !list.is_empty() {
                writer.list(gram, &list);
            }
            if passed >= PIECE_POSTINGS {
                passed = 0;
                pause();
            }
        }
        Some(writer.finish())
    }

    /// Which list is that of `gram`, and how many documents it has.
    pub(crate) fn find(&self, gram: Gram) -> Option<(usize, u32)> {
        let at = self.grams.binary_search(&gram).ok()?;
        Some((at, self.counts[at]))
    }

    /// Adds the documents of a list to `out`, ascending.
    pub(crate) fn decode(&self, list: usize, out: &mut Vec<u32>) {
        let count = self.counts[list];
        let k = low_bits(self.documents, count);
        let mut reader = Reader { bits: &self.bits, at: self.starts[list] as usize * 8 };
        let mut next = self.first;
        out.reserve(count as usize);
        for _ in 0..count {
            let document = next + reader.gap(k);
            out.push(document);
            next = document + 1;
        }
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.grams.capacity() + self.starts.capacity() + self.counts.capacity()) * 4 + self.bits.capacity()
    }
}

/// The low bits of a gap: the logarithm of the mean gap's 0.69.
fn low_bits(documents: u32, count: u32) -> u32 {
    let mean = (u64::from(documents) / u64::from(count.max(1))).saturating_sub(1) * 69 / 100;
    if mean < 2 { 0 } else { mean.ilog2() }
}

struct Writer {
    segment: Segment,
    held: u64,
    held_bits: u32,
}

impl Writer {
    fn new(first: u32, documents: u32) -> Writer {
        let (grams, starts, counts, bits) = Default::default();
        Writer { segment: Segment { first, documents, grams, starts, counts, bits }, held: 0, held_bits: 0 }
    }
    fn list(&mut self, gram: Gram, documents: &[u32]) {
        self.align();
        self.segment.grams.push(gram);
        self.segment.starts.push(self.segment.bits.len() as u32);
        self.segment.counts.push(documents.len() as u32);
        let k = low_bits(self.segment.documents, documents.len() as u32);
        let mut next = self.segment.first;
        for document in documents {
            let gap = document - next;
            next = document + 1;
            let quotient = gap >> k;
            if quotient < QUOTIENT_MAX {
                self.put((1u64 << quotient) - 1, quotient + 1);
                self.put(u64::from(gap) & ((1 << k) - 1), k);
            } else {
                self.put((1u64 << QUOTIENT_MAX) - 1, QUOTIENT_MAX);
                self.put(u64::from(gap), 32);
            }
        }
    }
    /// At most 41 bits, the lowest first.
    fn put(&mut self, bits: u64, n: u32) {
        self.held |= bits << self.held_bits;
        self.held_bits += n;
        while self.held_bits >= 8 {
            self.segment.bits.push(self.held as u8);
            self.held >>= 8;
            self.held_bits -= 8;
        }
    }
    fn align(&mut self) {
        if self.held_bits > 0 {
            self.put(0, 8 - self.held_bits);
        }
    }
    fn finish(mut self) -> Segment {
        self.align();
        let s = &mut self.segment;
        s.bits.extend_from_slice(&[0; PADDING_BYTES]);
        s.bits.shrink_to_fit();
        s.grams.shrink_to_fit();
        s.starts.shrink_to_fit();
        s.counts.shrink_to_fit();
        self.segment
    }
}

struct Reader<'a> {
    bits: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next 57 bits or more.
    #[inline]
    fn window(&self) -> u64 {
        let bytes = self.bits.get(self.at / 8..).and_then(|b| b.first_chunk::<8>());
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

    fn lists(segment: &Segment) -> Vec<(Gram, Vec<u32>)> {
        let list = |i: usize| {
            let mut out = Vec::new();
            segment.decode(i, &mut out);
            (segment.grams[i], out)
        };
        (0..segment.grams.len()).map(list).collect()
    }

    #[test]
    fn lists_come_back_whatever_their_density_and_merged() {
        let rng = &mut fastrand::Rng::with_seed(9);
        let (mut all, mut parts, mut first) = (Vec::<(Gram, Vec<u32>)>::new(), Vec::new(), 5);
        for documents in [1, 10, 3000, 70_000] {
            let mut pairs = Vec::new();
            for (gram, share) in [(7u32, 1.0), (9, 0.5), (1 << 20, 0.01), (0xff_ffff, 0.0002)] {
                let has = |_: &u32| share == 1.0 || rng.f64() < share;
                pairs.extend(
                    (first..first + documents).filter(has).map(|d| u64::from(gram) << 32 | u64::from(d)),
                );
            }
            // A gap as wide as it gets.
            pairs.extend([first, first + documents - 1].map(|d| 11u64 << 32 | u64::from(d)));
            pairs.sort_unstable();
            pairs.dedup();
            for pair in &pairs {
                let gram = (pair >> 32) as Gram;
                match all.iter_mut().find(|l| l.0 == gram) {
                    Some(list) => list.1.push(*pair as u32),
                    None => all.push((gram, vec![*pair as u32])),
                }
            }
            parts.push(Arc::new(Segment::build(first, documents, &pairs)));
            first += documents;
        }
        all.sort();
        let merged = Segment::merge(&parts, &|_| false, &|| {}).expect("some");
        assert_eq!(lists(&merged), all);
        let last = lists(&parts[3]);
        assert!(last.iter().all(|l| all.iter().any(|a| a.0 == l.0 && a.1.ends_with(&l.1))));
        let even = Segment::merge(&parts, &|d| d % 2 == 1, &|| {}).expect("some");
        all.iter_mut().for_each(|l| l.1.retain(|d| d % 2 == 0));
        all.retain(|l| !l.1.is_empty());
        assert_eq!(lists(&even), all);
        let (at, count) = merged.find(9).expect("there");
        assert!(merged.find(8).is_none() && count > 30_000 && merged.grams[at] == 9);
        assert!(merged.heap_bytes() < 73_000 / 8 + 73_000 * 3 / 16 + 4000, "{} bytes", merged.heap_bytes());
    }
}
