//! [`Segment`]: for each trigram of a range of documents, which of them have it.
//!
//! A trigram that few documents have is one *plain* list. One that many have is *split*: a list for each byte that
//! follows it, so that a longer literal finds few documents although its trigrams are in many. A merge may meet a trigram
//! that is split in one part and plain in another: then it has lists of both kinds, and each document is in the plain one
//! or in split ones. What is split too thinly for the merged size becomes plain.

use super::grams::{Gram, Trigram};
use super::rice::{Reader, Writer};
use std::ops::Range;
use std::sync::Arc;

/// A trigram is split when one document in so many has it ...
const SPLIT_SHARE: u32 = 16;
/// ... or half of that in a segment with fewer documents than this, which will be merged, ...
const SMALL_DOCUMENTS: u32 = 4096;
/// ... and at least so many have it.
const SPLIT_POSTINGS_MIN: u32 = 8;
/// Marks a plain list in [`Segment::counts`].
const PLAIN: u32 = 1 << 31;
/// Postings decoded between two pauses.
const PIECE_POSTINGS: usize = 1 << 15;

/// Immutable lists of documents.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its documents' numbers begin here ...
    pub(crate) first: u32,
    /// ... and it has room for so many.
    pub(crate) documents: u32,
    /// Of each list, ascending: the gram, or of a plain one the trigram and 0 (before the split one with 0).
    grams: Vec<Gram>,
    /// Where each list begins in `bits`, in bytes.
    starts: Vec<u32>,
    /// How many documents each has, and [`PLAIN`].
    counts: Vec<u32>,
    bits: Vec<u8>,
}

/// Lists of a segment, one or more: which documents have a trigram, or a gram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lists {
    /// One list, and neighbouring ones.
    plain: Option<usize>,
    split: Range<usize>,
    /// Documents in all of them; one may be in several.
    pub(crate) count: u32,
}

impl Segment {
    /// From pairs of a gram (the upper half) and a document's number, sorted, each once.
    pub(crate) fn build(first: u32, documents: u32, pairs: &[u64]) -> Segment {
        let mut builder = Builder::new(first, documents);
        let mut list = Vec::new();
        for of_trigram in pairs.chunk_by(|a, b| a >> 40 == b >> 40) {
            let trigram = (of_trigram[0] >> 40) as Trigram;
            if builder.is_split(of_trigram.len()) {
                for of_gram in of_trigram.chunk_by(|a, b| a >> 32 == b >> 32) {
                    list.clear();
                    list.extend(of_gram.iter().map(|p| *p as u32));
                    builder.list((of_gram[0] >> 32) as Gram, 0, &list);
                }
            } else {
                list.clear();
                list.extend(of_trigram.iter().map(|p| *p as u32));
                list.sort_unstable();
                list.dedup();
                builder.list(trigram << 8, PLAIN, &list);
            }
        }
        builder.finish()
    }

    /// Neighbouring segments as one, without the documents that `is_dead`.
    pub(crate) fn merge(
        parts: &[Arc<Segment>],
        is_dead: &dyn Fn(u32) -> bool,
        pause: &dyn Fn(),
    ) -> Option<Segment> {
        let (first, last) = (parts.first()?, parts.last()?);
        let mut builder = Builder::new(first.first, last.first + last.documents - first.first);
        let mut at = vec![0usize; parts.len()];
        let (mut list, mut passed) = (Vec::new(), 0);
        let next = |at: &[usize]| parts.iter().zip(at).filter_map(|(p, at)| p.grams.get(*at)).min().copied();
        while let Some(gram) = next(&at) {
            let trigram = gram >> 8;
            let ends: Vec<usize> = parts.iter().zip(&at).map(|(p, at)| p.end_of(trigram, *at)).collect();
            let ranges = || parts.iter().zip(at.iter().zip(&ends));
            let count: usize = ranges().map(|(p, (at, end))| p.count(*at..*end)).sum();
            if builder.is_split(count) {
                // Plain lists first: each is the first of its part's.
                let mut heads = at.clone();
                for plain in [PLAIN, 0] {
                    while let Some(gram) = lowest(parts, &heads, &ends, plain) {
                        list.clear();
                        for ((part, head), end) in parts.iter().zip(&mut heads).zip(&ends) {
                            if *head < *end && part.is(*head, gram, plain) {
                                part.decode(*head, &mut list);
                                *head += 1;
                            }
                        }
                        list.retain(|d| !is_dead(*d));
                        builder.list(gram, plain, &list);
                    }
                }
            } else {
                list.clear();
                for (part, (at, end)) in ranges() {
                    let from = list.len();
                    (*at..*end).for_each(|i| part.decode(i, &mut list));
                    if end - at > 1 {
                        list[from..].sort_unstable();
                    }
                }
                list.dedup();
                list.retain(|d| !is_dead(*d));
                builder.list(trigram << 8, PLAIN, &list);
            }
            at = ends;
            passed += count;
            if passed >= PIECE_POSTINGS {
                passed = 0;
                pause();
            }
        }
        Some(builder.finish())
    }

    /// Where the lists of a trigram end that begin at `at`.
    fn end_of(&self, trigram: Trigram, at: usize) -> usize {
        at + self.grams[at..].iter().take_while(|g| **g >> 8 == trigram).count()
    }

    /// True when that list is of this gram and kind.
    fn is(&self, list: usize, gram: Gram, plain: u32) -> bool {
        self.grams[list] == gram && self.counts[list] & PLAIN == plain
    }

    /// Postings in lists.
    fn count(&self, lists: Range<usize>) -> usize {
        self.counts[lists].iter().map(|c| (c & !PLAIN) as usize).sum()
    }

    /// Where documents are that have a trigram, and behind it `next` if that is known; `None`: nowhere. Then they are all in
    /// these lists, and of a plain trigram also others.
    pub(crate) fn find(&self, trigram: Trigram, next: Option<u8>) -> Option<Lists> {
        let from = self.grams.partition_point(|g| *g < trigram << 8);
        let plain = (*self.grams.get(from)? == trigram << 8 && self.counts[from] & PLAIN > 0).then_some(from);
        let from = from + usize::from(plain.is_some());
        let split = match next {
            None => from..self.end_of(trigram, from),
            Some(next) => {
                let gram = trigram << 8 | Gram::from(next);
                // At most 256 are of this trigram.
                let near = &self.grams[from..self.grams.len().min(from + 256)];
                near.binary_search(&gram).map_or(from..from, |i| from + i..from + i + 1)
            }
        };
        let count = plain.map_or(0, |i| self.count(i..i + 1)) + self.count(split.clone());
        (count > 0).then_some(Lists { plain, split, count: count.min(u32::MAX as usize) as u32 })
    }

    /// Which documents are in these lists, ascending, each once, in the place of what `out` had.
    pub(crate) fn decode_all(&self, lists: &Lists, out: &mut Vec<u32>) {
        out.clear();
        let all = lists.plain.into_iter().chain(lists.split.clone());
        all.for_each(|list| self.decode(list, out));
        if lists.split.len() + usize::from(lists.plain.is_some()) > 1 {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// Adds the documents of a list to `out`, ascending.
    fn decode(&self, list: usize, out: &mut Vec<u32>) {
        let count = self.counts[list] & !PLAIN;
        Reader::new(&self.bits, self.starts[list] as usize).list(self.first, self.documents, count, out);
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        (self.grams.capacity() + self.starts.capacity() + self.counts.capacity()) * 4 + self.bits.capacity()
    }
}

/// The lowest gram of the lists at these places, in front of the ends, that are plain or that are not.
fn lowest(parts: &[Arc<Segment>], heads: &[usize], ends: &[usize], plain: u32) -> Option<Gram> {
    let heads = parts.iter().zip(heads).zip(ends).filter(|((_, head), end)| head < end);
    let grams = heads.map(|((part, head), _)| (part.grams[*head], part.counts[*head] & PLAIN));
    grams.filter(|g| g.1 == plain).map(|g| g.0).min()
}

impl Lists {
    /// True when whoever is in them has the trigram with the byte behind it, or that byte was not asked for.
    pub(crate) fn are_plain(&self) -> bool {
        self.split.is_empty()
    }
}

struct Builder {
    segment: Segment,
    bits: Writer,
}

impl Builder {
    fn new(first: u32, documents: u32) -> Builder {
        let (grams, starts, counts, bits) = Default::default();
        let segment = Segment { first, documents, grams, starts, counts, bits };
        Builder { segment, bits: Writer::default() }
    }
    /// True when a trigram with so many postings is split.
    fn is_split(&self, postings: usize) -> bool {
        let documents = self.segment.documents;
        let share = documents / if documents < SMALL_DOCUMENTS { 2 * SPLIT_SHARE } else { SPLIT_SHARE };
        postings >= share.max(SPLIT_POSTINGS_MIN) as usize
    }
    fn list(&mut self, gram: Gram, plain: u32, documents: &[u32]) {
        if documents.is_empty() {
            return;
        }
        self.segment.grams.push(gram);
        self.segment.starts.push(self.bits.list(self.segment.first, self.segment.documents, documents));
        self.segment.counts.push(documents.len() as u32 | plain);
    }
    fn finish(mut self) -> Segment {
        let s = &mut self.segment;
        s.bits = self.bits.finish();
        s.grams.shrink_to_fit();
        s.starts.shrink_to_fit();
        s.counts.shrink_to_fit();
        self.segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigram::grams::trigram;
    use std::collections::{BTreeMap, BTreeSet};

    /// Of each gram the documents, as a plain twin has them.
    type Twin = BTreeMap<Gram, BTreeSet<u32>>;

    fn segment(first: u32, documents: u32, share: f64, twin: &mut Twin, rng: &mut fastrand::Rng) -> Segment {
        let mut pairs = Vec::new();
        for (text, share) in [(b"the", share), (b"her", 0.05), (b"zyx", 0.001), (b"qqq", 1.0)] {
            for document in first..first + documents {
                for _ in 0..if rng.f64() < share { rng.u8(1..4) } else { 0 } {
                    let next = [0, b'a', b'b', b'z', 255][rng.usize(..5)];
                    pairs.push(u64::from(trigram(text) << 8 | Gram::from(next)) << 32 | u64::from(document));
                }
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        for pair in &pairs {
            twin.entry((pair >> 32) as Gram).or_default().insert(*pair as u32);
        }
        Segment::build(first, documents, &pairs)
    }

    /// What is found has all that there is, is ascending, and is exact where the trigram is split.
    fn check(segment: &Segment, twin: &Twin, is_dead: &dyn Fn(u32) -> bool) {
        let mut got = Vec::new();
        for text in [b"the", b"her", b"zyx", b"qqq", b"non"] {
            let trigram = trigram(text);
            let of = |gram: Gram| twin.get(&gram).into_iter().flatten().copied().filter(|d| !is_dead(*d));
            let of_trigram: BTreeSet<u32> = (0..256).flat_map(|next| of(trigram << 8 | next)).collect();
            for next in (0..=255).map(Some).chain([None]) {
                let want =
                    next.map_or(of_trigram.clone(), |n: u8| of(trigram << 8 | Gram::from(n)).collect());
                let lists = segment.find(trigram, next);
                match &lists {
                    Some(lists) => segment.decode_all(lists, &mut got),
                    None => got.clear(),
                }
                assert!(got.is_sorted_by(|a, b| a < b), "ascending, each once");
                let got: BTreeSet<u32> = got.iter().copied().collect();
                assert!(got.is_superset(&want) && of_trigram.is_superset(&got), "{text:?} {next:?}");
                let is_exact = next.is_none() || lists.is_none_or(|l| l.plain.is_none());
                assert!(!is_exact || got == want, "{text:?} {next:?}");
            }
        }
    }

    #[test]
    fn documents_are_found_in_what_is_built_and_in_what_is_merged() {
        let (rng, twin) = (&mut fastrand::Rng::with_seed(9), &mut Twin::new());
        // `the` is split in some parts and plain in others.
        let (mut parts, mut first) = (Vec::new(), 7);
        for (documents, share) in [(1, 1.0), (200, 0.9), (3000, 0.01), (5000, 0.3), (1, 0.0), (4000, 0.001)] {
            let mut own = Twin::new();
            let part = segment(first, documents, share, &mut own, rng);
            check(&part, &own, &|_| false);
            own.into_iter().for_each(|(gram, list)| twin.entry(gram).or_default().extend(list));
            parts.push(Arc::new(part));
            first += documents;
        }
        let merged = Arc::new(Segment::merge(&parts, &|_| false, &|| {}).expect("some"));
        check(&merged, twin, &|_| false);
        let the = merged.find(trigram(b"the"), Some(b'z')).expect("there");
        assert!(the.plain.is_some() && the.split.len() == 1 && !the.are_plain(), "{the:?}");
        let zyx = merged.find(trigram(b"zyx"), Some(b'z')).expect("there");
        assert!(zyx.are_plain(), "rare: not split");
        let even = Segment::merge(&parts, &|d| d % 2 == 1, &|| {}).expect("some");
        check(&even, twin, &|d| d % 2 == 1);
        // Most are dead: what is left is too few to be split, and nothing is left of the rest.
        let few = Segment::merge(&[merged], &|d| d % 1000 != 0, &|| {}).expect("some");
        check(&few, twin, &|d| d % 1000 != 0);
        let none = Segment::merge(&[Arc::new(few)], &|_| true, &|| {}).expect("some");
        assert!(none.heap_bytes() < 64 && none.find(trigram(b"the"), None).is_none());
        assert!(Segment::merge(&[], &|_| true, &|| {}).is_none());
    }
}
