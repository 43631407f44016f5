//! [`Gram`]: a trigram with the byte behind it, and [`Scratch`], which takes them out of texts.
//!
//! A trigram alone says little of ordinary text: most mails have `her`, `ere`, `edi` and `ita` somewhere, one has
//! `hereditary`. So a text's grams keep one byte more, and a segment keeps that byte of the trigrams that many documents
//! have (see [`super::postings`]). ASCII letters count as small ones, so one index serves both kinds of search.

use std::sync::Arc;

/// Three bytes, the first the most significant, and the byte behind them, 0 at the end of the text.
pub(crate) type Gram = u32;
/// Three bytes, the first the most significant.
pub(crate) type Trigram = u32;

/// A document with more grams is not worth its lists: every search looks at it.
pub(crate) const DOCUMENT_GRAMS_MAX: usize = 1 << 19;
/// Places of [`Scratch::seen`].
const PLACES: usize = 1 << 15;
/// So many grams are rid of what is there twice before more are added.
const ROUGH_GRAMS_MAX: usize = 1 << 16;

/// ASCII letters small.
pub(crate) fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// The trigram at the beginning of three folded bytes.
pub(crate) fn trigram(text: &[u8]) -> Trigram {
    Trigram::from(text[0]) << 16 | Trigram::from(text[1]) << 8 | Trigram::from(text[2])
}

/// Gathers the grams of one document, which may have several texts. Room for it is kept: 256 KiB.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// At a hash of each gram, the gram seen last and in which document.
    seen: Vec<(Gram, u32)>,
    document: u32,
    found: Vec<Gram>,
    /// So many of `found`, at its beginning, are sorted and each there once.
    sorted: usize,
    too_many: bool,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { seen: vec![(0, 0); PLACES], document: 1, found: Vec::new(), sorted: 0, too_many: false }
    }
}

impl Scratch {
    /// Adds the grams of a text to the document's.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let mut gram: Gram = 0;
        for (i, byte) in text.iter().enumerate() {
            gram = gram << 8 | Gram::from(fold(*byte));
            if i >= 3 {
                self.one(gram);
            }
        }
        if text.len() >= 3 {
            self.one(gram << 8);
        }
    }

    #[inline]
    fn one(&mut self, gram: Gram) {
        let place = &mut self.seen[(gram.wrapping_mul(0x9e37_79b1) >> 17) as usize];
        if *place == (gram, self.document) || self.too_many {
            return;
        }
        *place = (gram, self.document);
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

    /// The document's grams, in no order, a few of them twice; `None` when there are too many. The next document may begin.
    pub(crate) fn take(&mut self) -> Option<Arc<[Gram]>> {
        if self.sorted > 0 {
            self.sort();
        }
        let is_fine = !self.too_many && self.found.len() <= DOCUMENT_GRAMS_MAX;
        let grams = is_fine.then(|| self.found.as_slice().into());
        self.found.clear();
        self.found.shrink_to(ROUGH_GRAMS_MAX);
        (self.sorted, self.too_many) = (0, false);
        self.document = self.document.checked_add(1).unwrap_or_else(|| {
            self.seen.fill((0, 0));
            1
        });
        grams
    }

    /// Bytes of heap between two documents.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.seen.capacity() * size_of::<(Gram, u32)>() + self.found.capacity() * size_of::<Gram>()
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
        let gram = |text: &[u8; 4]| Gram::from_be_bytes(*text);
        assert_eq!(
            taken(s, &[b"aBCd", b"xy", b"ABC"]),
            [gram(b"abcd"), gram(b"bcd\0"), gram(b"abc\0")].into()
        );
        assert_eq!(taken(s, &[b"ab", b"cd", b""]), BTreeSet::new(), "nothing is left over, texts are apart");
        assert_eq!(taken(s, &[b"aaaaaaa"]), [gram(b"aaaa"), gram(b"aaa\0")].into());
    }

    #[test]
    fn long_texts_have_each_gram_or_are_given_up() {
        let (s, rng) = (&mut Scratch::default(), &mut fastrand::Rng::with_seed(3));
        let text: Vec<u8> = (0..600_000).map(|_| b'a' + rng.u8(..20)).collect();
        let want = text
            .windows(4)
            .map(|w| Gram::from_be_bytes(w.try_into().unwrap()))
            .chain([trigram(&text[text.len() - 3..]) << 8]);
        let want = want.collect::<BTreeSet<_>>();
        assert!(want.len() > 2 * ROUGH_GRAMS_MAX);
        assert_eq!(taken(s, &[&text]), want);
        let text: Vec<u8> = (0..2_000_000).map(|_| rng.u8(..)).collect();
        s.add(&text);
        assert!(s.found.capacity() <= 8 * DOCUMENT_GRAMS_MAX, "memory stays in bounds");
        assert_eq!(s.take(), None);
        assert!(s.heap_bytes() <= PLACES * 8 + ROUGH_GRAMS_MAX * 4);
        assert_eq!(taken(s, &[b"abcd"]).len(), 2);
    }
}
