//! [`Index`]: the trigrams of the values under a prefix, and which keys may match a [`Query`].
//!
//! A document is a key as it was when it was read last; its number is never used again. New documents are in the *tail*,
//! with their trigrams as they are; a tail that is long enough becomes a [`Segment`], and segments of a size are merged, off
//! the lock. Documents that were replaced or deleted are marked, and dropped by merges. When most numbers are of such
//! documents, the index says that it should be built anew.

use super::postings::Segment;
use super::query::{Gram, Query, fold};
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A tail with so many trigrams becomes a segment.
const TAIL_GRAMS_MAX: usize = 256 << 10;
/// So many neighbouring segments of a size are merged.
const FAN_OUT: usize = 8;
/// Segments of more bytes are not merged: positions in them have 32 bits.
const MERGED_BYTES_MAX: usize = 1 << 30;
/// Of a value with more text than this, in bytes, no trigrams are taken: it is looked at by every search.
pub(crate) const INDEXED_BYTES_MAX: usize = 16 << 20;
/// A list so many times as long as the candidates left costs more to read than they do to look at.
const LIST_PER_CANDIDATE_MAX: usize = 300;
/// Numbers of documents that are no more, on top of four for each that is.
const DEAD_MAX: usize = 200_000;

/// A trigram index.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) prefix: Vec<u8>,
    /// Only this field of hashes; without: strings, and all fields.
    pub(crate) field: Option<Vec<u8>>,
    inner: Mutex<Inner>,
    merging: AtomicBool,
    tail_grams_max: usize,
    hasher: RandomState,
    /// Searches that it was used for.
    pub(crate) uses: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The documents' keys, one after the other, and where each ends.
    keys: Vec<u8>,
    ends: Vec<u64>,
    /// Bytes of text of each.
    sizes: Vec<u32>,
    dead: Vec<u64>,
    dead_count: usize,
    text_bytes: u64,
    by_key: HashTable<u32>,
    segments: Vec<Arc<Segment>>,
    /// Documents from here on are in the tail.
    tail_first: u32,
    /// Their trigrams, sorted; `None` for one that is dead or always looked at.
    tail: Vec<Option<Box<[Gram]>>>,
    tail_grams: usize,
    /// Documents that are always looked at.
    always: Vec<u32>,
}

/// Figures for RX.INDEX INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) documents: usize,
    pub(crate) text_bytes: u64,
    pub(crate) bytes: usize,
    pub(crate) segments: usize,
    pub(crate) tail_documents: usize,
    pub(crate) dead: usize,
}

/// Which of all trigrams a text has: 2 MiB.
#[derive(Debug)]
pub(crate) struct Scratch {
    seen: Vec<u64>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { seen: vec![0; 1 << 18] }
    }
}

impl Scratch {
    /// The trigrams of `texts`, each once, sorted.
    pub(crate) fn grams<'t>(&mut self, texts: impl Iterator<Item = &'t [u8]>) -> Box<[Gram]> {
        let mut out = Vec::new();
        for text in texts {
            let mut gram = 0;
            for (i, byte) in text.iter().enumerate() {
                gram = (gram << 8 | Gram::from(fold(*byte))) & 0xff_ffff;
                if i >= 2 {
                    let (word, bit) = (&mut self.seen[gram as usize / 64], 1u64 << (gram % 64));
                    if *word & bit == 0 {
                        *word |= bit;
                        out.push(gram);
                    }
                }
            }
        }
        out.iter().for_each(|gram| self.seen[*gram as usize / 64] = 0);
        out.sort_unstable();
        out.into_boxed_slice()
    }
    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.seen.len() * 8
    }
}

impl Index {
    /// An empty index.
    pub(crate) fn new(prefix: Vec<u8>, field: Option<Vec<u8>>) -> Index {
        Index {
            prefix,
            field,
            inner: Mutex::default(),
            merging: AtomicBool::new(false),
            tail_grams_max: TAIL_GRAMS_MAX,
            hasher: RandomState::new(),
            uses: AtomicU64::new(0),
        }
    }

    /// Puts a document in the place of the one that the key had. Without trigrams it is always looked at.
    pub(crate) fn put(&self, key: &[u8], grams: Option<Box<[Gram]>>, text_bytes: usize) {
        let inner = &mut *self.inner.lock();
        self.remove(inner, key);
        let id = inner.ends.len() as u32;
        inner.keys.extend_from_slice(key);
        inner.ends.push(inner.keys.len() as u64);
        inner.sizes.push(text_bytes.min(u32::MAX as usize) as u32);
        inner.text_bytes += text_bytes as u64;
        if inner.dead.len() * 64 <= id as usize {
            inner.dead.push(0);
        }
        let Inner { by_key, keys, ends, .. } = inner;
        let hash = |id: &u32| self.hasher.hash_one(key_at(keys, ends, *id));
        by_key.insert_unique(self.hasher.hash_one(key), id, hash);
        if grams.is_none() {
            inner.always.push(id);
        }
        inner.tail_grams += grams.as_ref().map_or(0, |g| g.len());
        inner.tail.push(grams);
        if inner.tail_grams >= self.tail_grams_max {
            inner.flush();
        }
    }

    /// Forgets a key's document.
    pub(crate) fn delete(&self, key: &[u8]) {
        self.remove(&mut self.inner.lock(), key);
    }

    fn remove(&self, inner: &mut Inner, key: &[u8]) {
        let Inner { by_key, keys, ends, .. } = inner;
        let same = |id: &u32| key_at(keys, ends, *id) == key;
        let Ok(entry) = by_key.find_entry(self.hasher.hash_one(key), same) else { return };
        let (id, _) = entry.remove();
        inner.dead[id as usize / 64] |= 1 << (id % 64);
        inner.dead_count += 1;
        inner.text_bytes -= u64::from(inner.sizes[id as usize]);
        if let Some(place) = id.checked_sub(inner.tail_first) {
            inner.tail_grams -= inner.tail[place as usize].take().map_or(0, |g| g.len());
        }
        inner.always.retain(|always| *always != id);
    }

    /// Documents that may match, by their numbers, ascending.
    pub(crate) fn candidates(&self, query: &Query) -> Vec<u32> {
        self.uses.fetch_add(1, Relaxed);
        let inner = self.inner.lock();
        let mut found = inner.always.clone();
        for segment in &inner.segments {
            match in_segment(segment, query) {
                Some(ids) => found.extend(ids),
                None => found.extend(segment.first..segment.first + segment.documents),
            }
        }
        for (place, grams) in inner.tail.iter().enumerate() {
            if grams.as_ref().is_some_and(|grams| has(grams, query)) {
                found.push(inner.tail_first + place as u32);
            }
        }
        found.retain(|id| !inner.is_dead(*id));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Their keys.
    pub(crate) fn keys(&self, ids: &[u32]) -> Vec<Vec<u8>> {
        let inner = self.inner.lock();
        ids.iter().map(|id| key_at(&inner.keys, &inner.ends, *id).to_vec()).collect()
    }

    /// Merges some neighbouring segments, if there are any to be merged; true when there may be more. The lock is held only
    /// to look and to put the result in place.
    pub(crate) fn merge_some(&self, pause: &dyn Fn()) -> bool {
        if self.merging.swap(true, Relaxed) {
            return false;
        }
        let picked = {
            let inner = self.inner.lock();
            inner.pick().map(|at| (inner.segments[at.clone()].to_vec(), inner.dead.clone(), at))
        };
        let merged = picked.is_some();
        if let Some((parts, dead, at)) = picked {
            let is_dead = |id: u32| dead.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1);
            let one = Segment::merge(&parts, &is_dead, pause).map(Arc::new);
            let mut inner = self.inner.lock();
            // Segments are added behind these only, and nobody else merges.
            inner.segments.splice(at, one);
        }
        self.merging.store(false, Relaxed);
        merged
    }

    /// True when it holds mostly what is no more.
    pub(crate) fn is_worn(&self) -> bool {
        let inner = self.inner.lock();
        inner.dead_count > DEAD_MAX + 4 * inner.by_key.len()
    }

    /// How it stands.
    pub(crate) fn figures(&self) -> Figures {
        let inner = self.inner.lock();
        let segments: usize = inner.segments.iter().map(|s| s.heap_bytes()).sum();
        let documents = inner.keys.capacity()
            + (inner.ends.capacity() + inner.dead.capacity()) * 8
            + (inner.sizes.capacity() + inner.always.capacity()) * 4
            + inner.by_key.allocation_size();
        let tail = inner.tail_grams * 4 + inner.tail.capacity() * size_of::<Option<Box<[Gram]>>>();
        Figures {
            documents: inner.by_key.len(),
            text_bytes: inner.text_bytes,
            bytes: segments + documents + tail,
            segments: inner.segments.len(),
            tail_documents: inner.tail.len(),
            dead: inner.dead_count,
        }
    }
}

impl Inner {
    fn is_dead(&self, id: u32) -> bool {
        self.dead[id as usize / 64] >> (id % 64) & 1 == 1
    }
    /// Makes a segment of the tail.
    fn flush(&mut self) {
        let mut pairs = Vec::with_capacity(self.tail_grams);
        for (place, grams) in self.tail.drain(..).enumerate() {
            let id = u64::from(self.tail_first) + place as u64;
            pairs.extend(grams.iter().flat_map(|g| g.iter()).map(|gram| u64::from(*gram) << 32 | id));
        }
        pairs.sort_unstable();
        let next = self.ends.len() as u32;
        self.segments.push(Arc::new(Segment::build(self.tail_first, next - self.tail_first, &pairs)));
        (self.tail_first, self.tail_grams) = (next, 0);
    }
    /// Which segments to merge: so many of a size, or one that is mostly dead.
    fn pick(&self) -> Option<std::ops::Range<usize>> {
        // None is as large as all others together: each document is merged a number of times that is a logarithm.
        let gains = |all: &[Arc<Segment>]| {
            let sizes = all.iter().map(|s| s.heap_bytes());
            let sum = sizes.clone().sum::<usize>();
            sizes.max().is_some_and(|max| 2 * max <= sum) && sum < MERGED_BYTES_MAX
        };
        let run = self.segments.windows(FAN_OUT).position(gains);
        let mostly_dead = || {
            let dead = |s: &Segment| (s.first..s.first + s.documents).filter(|id| self.is_dead(*id)).count();
            // Its numbers stay, so it is judged by what it has gained once already: nothing is left of it.
            self.segments.iter().position(|s| s.heap_bytes() > 64 && dead(s) == s.documents as usize)
        };
        run.map(|at| at..at + FAN_OUT).or_else(|| mostly_dead().map(|at| at..at + 1))
    }
}

fn key_at<'k>(keys: &'k [u8], ends: &[u64], id: u32) -> &'k [u8] {
    let start = (id as usize).checked_sub(1).map_or(0, |before| ends[before]);
    &keys[start as usize..ends[id as usize] as usize]
}

/// The documents of a segment that may match; `None`: all.
fn in_segment(segment: &Segment, query: &Query) -> Option<Vec<u32>> {
    match query {
        Query::All => None,
        Query::Gram(gram) => {
            let mut out = Vec::new();
            if let Some((list, _)) = segment.find(*gram) {
                segment.decode(list, &mut out);
            }
            Some(out)
        }
        Query::Or(all) => {
            let mut out = Vec::new();
            for q in all {
                out.extend(in_segment(segment, q)?);
            }
            out.sort_unstable();
            out.dedup();
            Some(out)
        }
        Query::And(all) => {
            let mut lists = Vec::new();
            for q in all {
                if let Query::Gram(gram) = q {
                    let Some(found) = segment.find(*gram) else { return Some(Vec::new()) };
                    lists.push(found);
                }
            }
            // The shortest first: what is left costs little to look at.
            lists.sort_unstable_by_key(|l| l.1);
            let (mut left, mut list) = (None::<Vec<u32>>, Vec::new());
            for (at, count) in lists {
                if left.as_ref().is_some_and(|l| l.len() * LIST_PER_CANDIDATE_MAX < count as usize) {
                    break;
                }
                list.clear();
                segment.decode(at, &mut list);
                left = Some(left.map_or_else(|| list.clone(), |left| both(left, &list)));
            }
            for q in all.iter().filter(|q| !matches!(q, Query::Gram(_))) {
                if left.as_ref().is_some_and(Vec::is_empty) {
                    break;
                }
                if let Some(found) = in_segment(segment, q) {
                    left = Some(left.map_or_else(|| found.clone(), |left| both(left, &found)));
                }
            }
            left
        }
    }
}

/// What two ascending lists have in common.
fn both(mut a: Vec<u32>, b: &[u32]) -> Vec<u32> {
    let mut at = 0;
    a.retain(|id| {
        at += b[at..].iter().take_while(|other| *other < id).count();
        b.get(at) == Some(id)
    });
    a
}

/// True when trigrams fulfil a query.
fn has(grams: &[Gram], query: &Query) -> bool {
    match query {
        Query::All => true,
        Query::Gram(gram) => grams.binary_search(gram).is_ok(),
        Query::And(all) => all.iter().all(|q| has(grams, q)),
        Query::Or(all) => all.iter().any(|q| has(grams, q)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::{Budget, Matcher, Options, Pattern};
    use std::collections::{BTreeMap, BTreeSet};

    /// Texts of a few words, so that patterns match some of them.
    fn text(rng: &mut fastrand::Rng) -> Vec<u8> {
        const WORDS: [&str; 10] =
            ["ticket", "Ticket-12", "error", "warning", "abc", "bcd", "mail", "\u{e9}t\u{e9}", "x", "1234"];
        let words = (0..rng.usize(..6)).map(|_| WORDS[rng.usize(..WORDS.len())]).collect::<Vec<_>>();
        words.join(["", " ", "-", "\n"][rng.usize(..4)]).into_bytes()
    }

    #[test]
    fn whatever_matches_is_a_candidate_through_segments_merges_and_deletes() {
        const PATTERNS: [&str; 12] = [
            "ticket",
            "(?i)TICKET-[0-9]",
            "error|warning",
            "abc.*bcd",
            "(abc)+(bcd)?",
            "[abc]b[cd]d?",
            "ma(il|ld)",
            "\u{e9}t",
            "x1234|^mail$",
            "t{2}",
            "nothing here",
            "(?:ticket|error)(?:warning)*mail",
        ];
        let rng = &mut fastrand::Rng::with_seed(31);
        let index = Index { tail_grams_max: 300, ..Index::new(Vec::new(), None) };
        let (mut scratch, mut now) = (Scratch::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let (mut most_segments, mut narrow) = (0, 0);
        for round in 0..60 {
            for _ in 0..50 {
                let key = format!("k{}", rng.usize(..400)).into_bytes();
                if rng.usize(..5) == 0 {
                    index.delete(&key);
                    now.remove(&key);
                } else {
                    let text = text(rng);
                    let grams = (rng.usize(..50) > 0).then(|| scratch.grams([&text[..]].into_iter()));
                    index.put(&key, grams, text.len());
                    now.insert(key, text);
                }
            }
            most_segments = most_segments.max(index.figures().segments);
            if round % 7 == 0 {
                while index.merge_some(&|| {}) {}
            }
            let pattern =
                Pattern::new(PATTERNS[rng.usize(..12)].as_bytes(), Options::once(false)).expect("compiles");
            let Some(query) = Query::of(&pattern.hir) else { continue };
            let found = index.keys(&index.candidates(&query));
            assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "each once");
            assert!(found.iter().all(|k| now.contains_key(k)), "only what is there");
            narrow += usize::from(found.len() < now.len() / 2);
            let mut m = Matcher::default();
            for (key, text) in &now {
                let end = m.find_end(&pattern, text, true, &Budget::whole(&|| false)).expect("done");
                let is_there = end.is_none() || found.contains(key);
                assert!(is_there, "round {round}: {query} misses {:?}", text.escape_ascii());
            }
        }
        let f = index.figures();
        assert!(most_segments > 8 && f.segments <= 24 && narrow > 20, "{most_segments}, {f:?}, {narrow}");
        let text_bytes = now.values().map(|t| t.len() as u64).sum();
        assert_eq!((f.documents, f.text_bytes), (now.len(), text_bytes));
        now.keys().for_each(|k| index.delete(k));
        while index.merge_some(&|| {}) {}
        assert!(index.candidates(&Query::All).is_empty());
    }
}
