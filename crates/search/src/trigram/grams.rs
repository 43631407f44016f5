//! [`Gram`]: a trigram and the two bytes after it. [`Scratch`] extracts the grams of a text.
//!
//! A trigram alone selects little in ordinary text: most mails contain `her`, `ere`, `edi` and `ita` somewhere, but few
//! contain `hereditary`. A gram therefore keeps two more bytes. A segment keeps those two bytes for the trigrams that
//! many documents contain (see [`super::postings`]). ASCII letters are indexed in lower case, so one index serves
//! case-sensitive and case-insensitive searches.

use std::sync::Arc;

/// Five bytes of a text, the first one most significant. Bytes past the end of the text are 0.
pub(crate) type Gram = u64;
/// Number of bytes of a [`Gram`].
pub(crate) const GRAM_BYTES: usize = 5;
/// Number of bits of a [`Gram`].
pub(crate) const GRAM_BITS: u32 = 40;

/// Maximum number of grams of a document. A document with more grams is in no list: every search reads it.
pub(crate) const DOCUMENT_GRAMS_MAX: usize = 1 << 19;
const MASK: Gram = (1 << GRAM_BITS) - 1;
/// Number of elements of [`Scratch::seen`].
const PLACES: usize = 1 << 15;
/// Duplicates among the grams are removed when this many unsorted grams have been gathered.
const ROUGH_GRAMS_MAX: usize = 1 << 16;

/// Turns an ASCII letter into lower case.
pub(crate) fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// The gram of three to five bytes, which must be folded. Missing bytes are 0.
pub(crate) fn gram(text: &[u8]) -> Gram {
    (0..GRAM_BYTES).fold(0, |gram, i| gram << 8 | Gram::from(text.get(i).copied().unwrap_or(0)))
}

/// Gathers the grams of one document, which may consist of several texts. Its buffers, half a megabyte, are kept
/// between documents.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// A hash table of recent grams: the low bits are the last gram with that hash, the high bits its document.
    seen: Vec<u64>,
    document: u64,
    found: Vec<Gram>,
    /// Number of grams at the start of `found` that are sorted and unique.
    sorted: usize,
    too_many: bool,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { seen: vec![0; PLACES], document: 1, found: Vec::new(), sorted: 0, too_many: false }
    }
}

impl Scratch {
    /// Adds the grams of a text to the grams of the document.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let mut gram: Gram = 0;
        for (i, byte) in text.iter().enumerate() {
            gram = (gram << 8 | Gram::from(fold(*byte))) & MASK;
            if i >= GRAM_BYTES - 1 {
                self.add_gram(gram);
            }
        }
        // Also add the last four bytes and the last three bytes, if the text is long enough.
        for missing in 1..=GRAM_BYTES - 3 {
            if text.len() >= GRAM_BYTES - missing {
                self.add_gram(gram << (8 * missing) & MASK);
            }
        }
    }

    /// True when the document has too many grams, so further texts change nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.too_many
    }

    #[inline]
    fn add_gram(&mut self, gram: Gram) {
        let place = &mut self.seen[(gram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize];
        let now = self.document << GRAM_BITS | gram;
        if *place == now || self.too_many {
            return;
        }
        *place = now;
        if self.found.len() - self.sorted == ROUGH_GRAMS_MAX.max(self.sorted) {
            self.sort();
            self.too_many = self.sorted > DOCUMENT_GRAMS_MAX;
        }
        self.found.push(gram);
    }

    fn sort(&mut self) {
        self.found.sort_unstable();
        self.found.dedup();
        self.sorted = self.found.len();
    }

    /// The grams of the document, unordered, with a few duplicates; `None` when there are too many. Resets the
    /// scratch for the next document.
    pub(crate) fn take(&mut self) -> Option<Arc<[Gram]>> {
        if self.sorted > 0 {
            self.sort();
        }
        let is_fine = !self.too_many && self.found.len() <= DOCUMENT_GRAMS_MAX;
        let grams = is_fine.then(|| self.found.as_slice().into());
        self.found.clear();
        self.found.shrink_to(ROUGH_GRAMS_MAX);
        (self.sorted, self.too_many) = (0, false);
        self.document += 1;
        if self.document >> (u64::BITS - GRAM_BITS) > 0 {
            self.seen.fill(0);
            self.document = 1;
        }
        grams
    }

    /// Heap bytes kept between two documents.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.seen.capacity() + self.found.capacity()) * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn taken(scratch: &mut Scratch, texts: &[&[u8]]) -> BTreeSet<Gram> {
        texts.iter().for_each(|t| scratch.add(t));
        scratch.take().expect("few").iter().copied().collect()
    }

    #[test]
    fn grams_are_folded_and_end_with_their_text() {
        let s = &mut Scratch::default();
        let abcd = [gram(b"abcd\0"), gram(b"bcd")];
        assert_eq!(
            taken(s, &[b"aBCd", b"xy", b"ABC"]),
            [&abcd[..], &[gram(b"abc")]].concat().into_iter().collect()
        );
        assert_eq!(
            taken(s, &[b"abcdefg"]),
            ["abcde", "bcdef", "cdefg", "defg", "efg"].map(|t| gram(t.as_bytes())).into()
        );
        assert_eq!(taken(s, &[b"abcde"]), ["abcde", "bcde", "cde"].map(|t| gram(t.as_bytes())).into());
        assert_eq!(taken(s, &[b"ab", b"cd", b""]), BTreeSet::new(), "no gram spans two texts");
        assert_eq!(taken(s, &[b"aaaaaaa"]), ["aaaaa", "aaaa", "aaa"].map(|t| gram(t.as_bytes())).into());
    }

    #[test]
    fn documents_stay_separate_when_their_numbers_wrap() {
        let s = &mut Scratch::default();
        s.document = (1 << (u64::BITS - GRAM_BITS)) - 3;
        for _ in 0..6 {
            assert_eq!(taken(s, &[b"abcd"]).len(), 2);
        }
        assert!(s.document < 10);
    }

    #[test]
    fn long_texts_have_all_grams_or_none() {
        let (s, rng) = (&mut Scratch::default(), &mut fastrand::Rng::with_seed(3));
        let text: Vec<u8> = (0..400_000).map(|_| b'a' + rng.u8(..20)).collect();
        let want = text.windows(GRAM_BYTES).map(gram).chain([3, 4].map(|n| gram(&text[text.len() - n..])));
        let want = want.collect::<BTreeSet<_>>();
        assert!(want.len() > 2 * ROUGH_GRAMS_MAX);
        assert_eq!(taken(s, &[&text]), want);
        let text: Vec<u8> = (0..2_000_000).map(|_| rng.u8(..)).collect();
        s.add(&text);
        assert!(s.found.capacity() <= 8 * DOCUMENT_GRAMS_MAX, "memory stays in bounds");
        assert_eq!(s.take(), None);
        assert!(s.heap_bytes() <= (PLACES + ROUGH_GRAMS_MAX) * 8);
        assert_eq!(taken(s, &[b"abcd"]).len(), 2);
    }
}
