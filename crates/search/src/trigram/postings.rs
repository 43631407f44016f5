//! [`Segment`]: an immutable range of documents and, for each trigram, the list of documents that contain it.
//!
//! A trigram in few documents is one list. A trigram in many documents is *split*: it has one list for each byte
//! that follows it. If many documents also share these four bytes, the list is split once more by the fifth byte. A
//! longer literal therefore selects few documents even if its trigrams are common.
//!
//! A merge may meet a trigram that is split in one part and not in another. The merged trigram then has both kinds
//! of list: documents of the part that was not split are in its *rest*, the others in the split lists. A merge
//! rejoins lists that are too short to be split in the merged segment.

use super::grams::{GRAM_BYTES, Gram, gram};
use super::rice::{Reader, Writer};
use std::ops::Range;
use std::sync::Arc;

/// The list of three bytes is split when at least one document in 16 contains them. For the list of four bytes the
/// share is one in 8.
const SPLIT_SHARE: u32 = 16;
/// A segment with fewer documents than this will be merged. For its lists, the shares at [`SPLIT_SHARE`] are halved.
const SMALL_DOCUMENTS: u32 = 4096;
/// Lists shorter than this are never split.
const SPLIT_POSTINGS_MIN: u32 = 8;
/// Number of low bits of a pair for [`Segment::build`] that hold the document's position in the segment.
pub(crate) const PLACE_BITS: u32 = 24;
/// In [`Segment::counts`], the bits from here up hold 5 minus the number of bytes of the list's gram.
const MISSING_SHIFT: u32 = 30;
const COUNT_MASK: u32 = (1 << MISSING_SHIFT) - 1;
/// Number of postings that can be read in the time in which one posting of several lists is sorted.
const SORTED_COST: usize = 5;
/// Maximum number of segments merged at once.
pub(crate) const PARTS_MAX: usize = 8;
/// Number of postings that are decoded between two pauses.
const PIECE_POSTINGS: usize = 1 << 15;

/// Lists of documents for a range of document numbers. Never changes.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The first document number of the range.
    pub(crate) first: u32,
    /// Number of document numbers in the range.
    pub(crate) documents: u32,
    /// The gram of each list, ascending. Missing bytes are 0, so the list of a shorter gram comes first.
    grams: Vec<Gram>,
    /// Where each list begins in `bits`, in bytes.
    starts: Vec<u32>,
    /// For each list, the number of its documents and, above [`MISSING_SHIFT`], the number of missing bytes.
    counts: Vec<u32>,
    bits: Vec<u8>,
}

/// The lists that together hold all documents with three, four or five given bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lists {
    /// The rest lists of the first three and of the first four bytes. They also hold documents with other bytes
    /// after these.
    rests: [Option<usize>; 2],
    /// The lists whose grams are exactly the given bytes.
    own: Range<usize>,
    /// Sum of the lengths of all lists. A document may be in several lists.
    count: usize,
}

impl Segment {
    /// Builds a segment from sorted, unique pairs: a gram, and in the low [`PLACE_BITS`] the document's distance
    /// from `first`.
    pub(crate) fn build(first: u32, documents: u32, pairs: &[u64]) -> Segment {
        let mut builder = Builder::new(first, documents);
        builder.build(pairs, 3, &mut Vec::new());
        builder.finish()
    }

    /// Merges at most [`PARTS_MAX`] neighbouring segments into one and drops the documents for which `is_dead` is
    /// true.
    pub(crate) fn merge(
        parts: &[Arc<Segment>],
        is_dead: &dyn Fn(u32) -> bool,
        pause: &dyn Fn(),
    ) -> Option<Segment> {
        let (first, last) = (parts.first()?, parts.last()?);
        let mut builder = Builder::new(first.first, last.first + last.documents - first.first);
        let merge = Merge { parts, is_dead };
        let mut all: Group = std::array::from_fn(|i| 0..parts.get(i).map_or(0, |p| p.grams.len()));
        let (mut list, mut passed) = (Vec::new(), 0);
        while let Some(group) = merge.next(&mut all, 3) {
            passed += merge.count(&group);
            builder.merge(&merge, group, 3, &mut list);
            if passed >= PIECE_POSTINGS {
                passed = 0;
                pause();
            }
        }
        Some(builder.finish())
    }

    /// Number of postings in `lists`.
    fn count(&self, lists: Range<usize>) -> usize {
        self.counts[lists].iter().map(|c| (c & COUNT_MASK) as usize).sum()
    }

    /// Separates the list whose gram has exactly `bytes` bytes, if it is the first of `lists`, from the other
    /// lists.
    fn own(&self, lists: Range<usize>, bytes: usize) -> (Option<usize>, Range<usize>) {
        let is = |i: &usize| self.counts[*i] >> MISSING_SHIFT == (GRAM_BYTES - bytes) as u32;
        let own = lists.clone().next().filter(is);
        (own, lists.start + usize::from(own.is_some())..lists.end)
    }

    /// The sublist of `lists` whose grams start with the first `n` bytes of `bytes`.
    fn beginning(&self, lists: Range<usize>, bytes: &[u8], n: usize) -> Range<usize> {
        let missing = 8 * (GRAM_BYTES - n);
        let wanted = gram(bytes) >> missing;
        let grams = &self.grams[lists.clone()];
        let from = grams.partition_point(|g| g >> missing < wanted);
        // The matching range is short, so its end is found by galloping.
        let (mut near, is) = (1, |g: &Gram| g >> missing == wanted);
        while grams[from..].get(near).is_some_and(is) {
            near *= 2;
        }
        let len = grams[from..grams.len().min(from + near)].partition_point(is);
        lists.start + from..lists.start + from + len
    }

    /// The lists of documents that contain `bytes` (three to five bytes). `None` when no document does.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<Lists> {
        let mut own = self.beginning(0..self.grams.len(), bytes, 3);
        let mut rests = [None; 2];
        for (n, rest) in (3..bytes.len()).zip(&mut rests) {
            (*rest, own) = self.own(own, n);
            own = self.beginning(own, bytes, n + 1);
        }
        let count =
            rests.iter().flatten().map(|i| self.count(*i..i + 1)).sum::<usize>() + self.count(own.clone());
        (count > 0).then_some(Lists { rests, own, count })
    }

    /// Replaces the content of `out` by the documents of these lists, ascending and unique.
    pub(crate) fn decode_all(&self, lists: &Lists, out: &mut Vec<u32>) {
        out.clear();
        let all = lists.rests.into_iter().flatten().chain(lists.own.clone());
        all.for_each(|list| self.decode(list, out));
        if lists.lists() > 1 {
            out.sort_unstable();
            out.dedup();
        }
    }

    /// Appends the documents of a list to `out`, ascending.
    fn decode(&self, list: usize, out: &mut Vec<u32>) {
        let count = self.counts[list] & COUNT_MASK;
        Reader::new(&self.bits, self.starts[list] as usize).list(self.first, self.documents, count, out);
    }

    /// Heap bytes of the segment.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.grams.capacity() * 8
            + (self.starts.capacity() + self.counts.capacity()) * 4
            + self.bits.capacity()
    }
}

impl Lists {
    fn lists(&self) -> usize {
        self.own.len() + self.rests.iter().flatten().count()
    }
    /// Cost of reading these lists: the number of postings of a single list that are read in this time. Several lists
    /// cost more, because they must be sorted together.
    pub(crate) fn cost(&self) -> usize {
        self.count * if self.lists() > 1 { SORTED_COST } else { 1 }
    }
    /// True when reading these lists costs no more than reading the list of a shorter gram.
    pub(crate) fn are_few(&self) -> bool {
        self.own.len() <= 1
    }
}

/// For each part, a range of neighbouring lists.
type Group = [Range<usize>; PARTS_MAX];

/// The segments of one merge.
struct Merge<'m> {
    parts: &'m [Arc<Segment>],
    is_dead: &'m dyn Fn(u32) -> bool,
}

impl Merge<'_> {
    /// Removes the lists with the lowest first `n` bytes from the front of `lists` and returns them.
    fn next(&self, lists: &mut Group, n: usize) -> Option<Group> {
        let missing = 8 * (GRAM_BYTES - n);
        let each = || self.parts.iter().zip(lists.iter());
        let lowest = each().filter_map(|(p, l)| p.grams[l.clone()].first()).min()? >> missing;
        let same = |p: &Segment, l: &Range<usize>| {
            l.start + p.grams[l.clone()].iter().take_while(|g| **g >> missing == lowest).count()
        };
        let mut group = Group::default();
        for ((part, lists), own) in self.parts.iter().zip(lists).zip(&mut group) {
            let end = same(part, lists);
            *own = std::mem::replace(&mut lists.start, end)..end;
        }
        Some(group)
    }

    fn count(&self, lists: &[Range<usize>]) -> usize {
        self.parts.iter().zip(lists).map(|(p, l)| p.count(l.clone())).sum()
    }

    /// Replaces the content of `out` by the documents of these lists, ascending and unique. Returns the first `n`
    /// bytes that their grams share.
    fn combine(&self, lists: &Group, n: usize, out: &mut Vec<u32>) -> Gram {
        out.clear();
        let mut gram = 0;
        let missing = 8 * (GRAM_BYTES - n);
        for (part, lists) in self.parts.iter().zip(lists) {
            let from = out.len();
            for list in lists.clone() {
                part.decode(list, out);
                gram = part.grams[list] >> missing << missing;
            }
            if lists.len() > 1 {
                out[from..].sort_unstable();
            }
        }
        out.dedup();
        out.retain(|d| !(self.is_dead)(*d));
        gram
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
    /// True when a gram of `n` bytes with this many postings must be split.
    fn is_split(&self, postings: usize, n: usize) -> bool {
        let documents = self.segment.documents;
        let share = if n == 3 { SPLIT_SHARE } else { SPLIT_SHARE / 2 };
        let share = if documents < SMALL_DOCUMENTS { 2 * share } else { share };
        n < GRAM_BYTES && postings >= (documents / share).max(SPLIT_POSTINGS_MIN) as usize
    }
    /// Adds the lists of `pairs`, grouped by the first `n` bytes of their grams.
    fn build(&mut self, pairs: &[u64], n: usize, list: &mut Vec<u32>) {
        let missing = 8 * (GRAM_BYTES - n);
        let begin = |pair: u64| pair >> PLACE_BITS >> missing;
        for same in pairs.chunk_by(|a, b| begin(*a) == begin(*b)) {
            if self.is_split(same.len(), n) {
                self.build(same, n + 1, list);
                continue;
            }
            let place = |pair: &u64| self.segment.first + (*pair as u32 & ((1 << PLACE_BITS) - 1));
            list.clear();
            list.extend(same.iter().map(place));
            list.sort_unstable();
            list.dedup();
            self.list(begin(same[0]) << missing, n, list);
        }
    }
    /// Adds the lists of `group`, which share their first `n` bytes.
    fn merge(&mut self, merge: &Merge<'_>, mut group: Group, n: usize, list: &mut Vec<u32>) {
        if !self.is_split(merge.count(&group), n) {
            let gram = merge.combine(&group, n, list);
            return self.list(gram, n, list);
        }
        let mut rests = group.clone();
        for ((part, lists), rest) in merge.parts.iter().zip(&mut group).zip(&mut rests) {
            (_, *lists) = part.own(lists.clone(), n);
            rest.end = lists.start;
        }
        let gram = merge.combine(&rests, n, list);
        self.list(gram, n, list);
        while let Some(group) = merge.next(&mut group, n + 1) {
            self.merge(merge, group, n + 1, list);
        }
    }
    /// Adds a list for the first `n` bytes of `gram`.
    fn list(&mut self, gram: Gram, n: usize, documents: &[u32]) {
        if documents.is_empty() {
            return;
        }
        self.segment.grams.push(gram);
        self.segment.starts.push(self.bits.list(self.segment.first, self.segment.documents, documents));
        self.segment.counts.push(documents.len() as u32 | ((GRAM_BYTES - n) as u32) << MISSING_SHIFT);
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
    use std::collections::{BTreeMap, BTreeSet};

    /// The documents of each gram: a plain model to compare with.
    type Twin = BTreeMap<Gram, BTreeSet<u32>>;

    const TEXTS: [(&[u8; 3], f64); 4] = [(b"the", 0.0), (b"her", 0.05), (b"zyx", 0.001), (b"qqq", 1.0)];
    const NEXT: [u8; 4] = [0, b'a', b'z', 255];

    fn segment(first: u32, documents: u32, share: f64, twin: &mut Twin, rng: &mut fastrand::Rng) -> Segment {
        let mut pairs = Vec::new();
        for (text, own) in TEXTS {
            for place in 0..documents {
                for _ in 0..if rng.f64() < own.max(if own == 0.0 { share } else { 0.0 }) {
                    rng.u8(1..4)
                } else {
                    0
                } {
                    // Draw the first of the four bytes often enough that its lists are split, too.
                    let next = NEXT[rng.usize(..4).saturating_sub(rng.usize(..3))];
                    let gram = gram(&[text[0], text[1], text[2], next, NEXT[rng.usize(..4)]]);
                    pairs.push(gram << PLACE_BITS | u64::from(place));
                    twin.entry(gram).or_default().insert(first + place);
                }
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        Segment::build(first, documents, &pairs)
    }

    /// Asserts that a lookup finds all documents of the model, in ascending order, and no others where no rest list
    /// is involved.
    fn check(segment: &Segment, twin: &Twin, is_dead: &dyn Fn(u32) -> bool) {
        let texts = TEXTS.map(|t| t.0.to_vec()).into_iter().chain([b"non".to_vec()]);
        let longer = |t: Vec<u8>| NEXT.iter().chain(b"b").map(move |b| [&t[..], &[*b]].concat());
        let texts: Vec<Vec<u8>> = texts.collect();
        let fours: Vec<Vec<u8>> = texts.iter().cloned().flat_map(longer).collect();
        let fives: Vec<Vec<u8>> = fours.iter().cloned().flat_map(longer).collect();
        let of = |bytes: &[u8]| -> BTreeSet<u32> {
            let missing = 8 * (GRAM_BYTES - bytes.len());
            let lists = twin.iter().filter(|(g, _)| *g >> missing == gram(bytes) >> missing);
            lists.flat_map(|l| l.1).copied().filter(|d| !is_dead(*d)).collect()
        };
        let mut got = Vec::new();
        for bytes in texts.iter().chain(&fours).chain(&fives) {
            let (want, of_trigram) = (of(bytes), of(&bytes[..3]));
            let lists = segment.find(bytes);
            match &lists {
                Some(lists) => segment.decode_all(lists, &mut got),
                None => got.clear(),
            }
            assert!(got.is_sorted_by(|a, b| a < b), "ascending, each once");
            let got: BTreeSet<u32> = got.iter().copied().collect();
            assert!(got.is_superset(&want) && of_trigram.is_superset(&got), "{bytes:?}");
            let is_exact = lists.is_none_or(|l| l.rests == [None; 2]);
            assert!(!is_exact || got == want, "{bytes:?}");
        }
    }

    #[test]
    fn documents_are_found_in_built_and_in_merged_segments() {
        let (rng, twin) = (&mut fastrand::Rng::with_seed(9), &mut Twin::new());
        // `the` is split in some of the parts and not in the others.
        let (mut parts, mut first) = (Vec::new(), 7);
        for (documents, share) in [(1, 1.0), (200, 0.9), (3000, 0.01), (2500, 0.025), (5000, 0.3), (1, 0.0)] {
            let mut own = Twin::new();
            let part = segment(first, documents, share, &mut own, rng);
            check(&part, &own, &|_| false);
            own.into_iter().for_each(|(gram, list)| twin.entry(gram).or_default().extend(list));
            parts.push(Arc::new(part));
            first += documents;
        }
        let merged = Arc::new(Segment::merge(&parts, &|_| false, &|| {}).expect("some"));
        check(&merged, twin, &|_| false);
        let the = merged.find(b"the\0z").expect("there");
        assert!(
            the.rests.iter().all(Option::is_some) && the.own.len() == 1,
            "split twice, not in all: {the:?}"
        );
        let zyx = merged.find(b"zyxza").expect("there");
        assert!(zyx.own.is_empty() && zyx.are_few(), "rare: not split");
        let even = Segment::merge(&parts, &|d| d % 2 == 1, &|| {}).expect("some");
        check(&even, twin, &|d| d % 2 == 1);
        // Most documents are dead: too few are left to be split, and the rest lists are empty.
        let few = Segment::merge(&[merged], &|d| d % 1000 != 0, &|| {}).expect("some");
        check(&few, twin, &|d| d % 1000 != 0);
        let none = Segment::merge(&[Arc::new(few)], &|_| true, &|| {}).expect("some");
        assert!(none.heap_bytes() < 64 && none.find(b"the").is_none());
        assert!(Segment::merge(&[], &|_| true, &|| {}).is_none());
    }
}
