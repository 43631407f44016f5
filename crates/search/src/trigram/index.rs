//! [`TrigramIndex`]: the trigrams of all values under a prefix. It answers which keys may match a [`Query`].
//!
//! A document is the value of a key when the index last read it. Document numbers are never reused. New documents go to
//! the *tail*, which keeps their grams uncompressed. A full tail becomes a [`Segment`], and segments of similar size
//! are merged. Both happen without the lock that searches take. Only the result is put in place under this lock.
//! Replaced and deleted documents are marked dead, and merges drop them. Their numbers and keys stay. When most numbers
//! or most bytes of keys are those of dead documents, [`TrigramIndex::is_mostly_dead`] asks for the index to be rebuilt.

use super::grams::{GRAM_BITS, Gram};
use super::lookup;
use super::postings::{PARTS_MAX, PLACE_BITS, Segment};
use super::query::Query;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A tail with this number of grams becomes a segment.
const TAIL_GRAMS_MAX: usize = 256 << 10;
/// A tail with this number of documents becomes a segment.
const TAIL_DOCUMENTS_MAX: usize = 4096;
/// Number of neighbouring segments of similar size that are merged.
const FAN_OUT: usize = PARTS_MAX;
/// Maximum size of a merged segment in bytes, because offsets in a segment have 32 bits.
const MERGED_BYTES_MAX: usize = 1 << 30;
/// A value with more text than this, in bytes, gets no trigrams: every search reads it.
pub(crate) const INDEXED_BYTES_MAX: usize = 16 << 20;
/// Number of dead document numbers that are allowed besides four for each live document.
const DEAD_MAX: usize = 200_000;
/// Number of bytes of dead documents' keys that are allowed besides four for each byte of a live document's key.
const DEAD_KEY_BYTES_MAX: usize = 16 << 20;

/// A trigram index with its documents.
#[derive(Debug)]
pub(crate) struct TrigramIndex {
    pub(crate) prefix: Vec<u8>,
    /// Index only this field of hashes. `None`: strings, and all fields of collections.
    pub(crate) field: Option<Vec<u8>>,
    /// Held while a document is put or deleted, and while the tail becomes a segment.
    writer: Mutex<()>,
    inner: Mutex<Inner>,
    merging: AtomicBool,
    tail_grams_max: usize,
    hasher: RandomState,
    /// Number of searches that used this index.
    pub(crate) uses: AtomicU64,
    bytes: Share,
    /// The bytes that the index frees by itself, see [`TrigramIndex::measure`].
    passing_bytes: Share,
    /// Bytes that a merge and a flush need while they run.
    working_bytes: AtomicUsize,
}

/// Counters to which each trigram index adds its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// All bytes.
    pub(crate) bytes: Arc<AtomicU64>,
    /// Bytes that the indexes free by themselves, so that no eviction frees them: dead documents in segments, and what
    /// merges need.
    pub(crate) passing_bytes: Arc<AtomicU64>,
}

/// The size of one part of the trigram indexes, in bytes. The sizes of all parts are added to one counter, which INFO
/// reads without a lock.
#[derive(Debug, Default)]
pub(crate) struct Share {
    all: Arc<AtomicU64>,
    own: AtomicU64,
}

impl Share {
    /// A part of 0 bytes that counts into `all`.
    pub(crate) fn of(all: Arc<AtomicU64>) -> Share {
        Share { all, own: AtomicU64::new(0) }
    }
    /// Sets the size of this part, in bytes.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.own.swap(bytes as u64, Relaxed);
        // The addition wraps when the part shrinks, which is correct.
        self.all.fetch_add((bytes as u64).wrapping_sub(before), Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The keys of all documents, one after another. `ends` has the end of each key.
    keys: Vec<u8>,
    ends: Vec<u64>,
    /// For each document, the number of bytes of its text.
    sizes: Vec<u32>,
    dead: Vec<u64>,
    dead_count: usize,
    /// Number of bytes of the dead documents' keys in `keys`.
    dead_key_bytes: usize,
    text_bytes: u64,
    by_key: HashTable<u32>,
    parts: Vec<Part>,
    parts_bytes: usize,
    /// The first document number of the tail.
    tail_first: u32,
    /// The grams of each tail document; `None` for a dead document and for a document that every search reads.
    tail: Vec<Option<Arc<[Gram]>>>,
    tail_grams: usize,
    /// Numbers of the documents without grams, ascending. Every search reads them.
    unindexed: Vec<u32>,
}

/// A segment and the number of its live documents.
#[derive(Clone, Debug)]
struct Part {
    segment: Arc<Segment>,
    /// Number of live documents when the segment was made.
    alive_at_build: u32,
    /// Number of documents that are live now.
    alive: u32,
}

impl Part {
    /// True when the segment must be rewritten, because of its dead documents.
    fn is_mostly_dead(&self) -> bool {
        2 * self.alive < self.alive_at_build
    }
}

/// The figures that RX.INDEX INFO shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) documents: usize,
    pub(crate) text_bytes: u64,
    pub(crate) bytes: usize,
    pub(crate) segments: usize,
    pub(crate) tail_documents: usize,
    pub(crate) dead: usize,
}

impl TrigramIndex {
    /// An empty index. Its size counts into `totals` while the index exists.
    pub(crate) fn new(prefix: Vec<u8>, field: Option<Vec<u8>>, totals: Totals) -> TrigramIndex {
        TrigramIndex {
            prefix,
            field,
            writer: Mutex::default(),
            inner: Mutex::default(),
            merging: AtomicBool::new(false),
            tail_grams_max: TAIL_GRAMS_MAX,
            hasher: RandomState::new(),
            uses: AtomicU64::new(0),
            bytes: Share::of(totals.bytes),
            passing_bytes: Share::of(totals.passing_bytes),
            working_bytes: AtomicUsize::new(0),
        }
    }

    /// An empty index with the prefix and the field of this one.
    pub(crate) fn empty_copy(&self) -> TrigramIndex {
        let totals = Totals { bytes: self.bytes.all.clone(), passing_bytes: self.passing_bytes.all.clone() };
        TrigramIndex::new(self.prefix.clone(), self.field.clone(), totals)
    }

    /// Replaces the key's document. A document without grams is read by every search.
    pub(crate) fn put(&self, key: &[u8], grams: Option<Arc<[Gram]>>, text_bytes: usize) {
        let _writer = self.writer.lock();
        let is_full = {
            let inner = &mut *self.inner.lock();
            self.remove(inner, key);
            let id = inner.ends.len() as u32;
            inner.keys.extend_from_slice(key);
            inner.ends.push(inner.keys.len() as u64);
            inner.sizes.push(text_bytes.min(u32::MAX as usize) as u32);
            inner.text_bytes += u64::from(inner.sizes[id as usize]);
            if inner.dead.len() * 64 <= id as usize {
                inner.dead.push(0);
            }
            let Inner { by_key, keys, ends, .. } = inner;
            let hash = |id: &u32| self.hasher.hash_one(key_at(keys, ends, *id));
            by_key.insert_unique(self.hasher.hash_one(key), id, hash);
            if grams.is_none() {
                inner.unindexed.push(id);
            }
            inner.tail_grams += grams.as_ref().map_or(0, |g| g.len());
            inner.tail.push(grams);
            self.measure(inner);
            inner.tail_grams >= self.tail_grams_max || inner.tail.len() >= TAIL_DOCUMENTS_MAX
        };
        if is_full {
            self.flush();
        }
    }

    /// True when the key has a document, and the document has no grams.
    pub(crate) fn is_unindexed(&self, key: &[u8]) -> bool {
        let inner = self.inner.lock();
        self.id_of(&inner, key).is_some_and(|id| inner.unindexed.binary_search(id).is_ok())
    }

    /// Marks the key's document dead.
    pub(crate) fn delete(&self, key: &[u8]) {
        let _writer = self.writer.lock();
        let inner = &mut *self.inner.lock();
        self.remove(inner, key);
        self.measure(inner);
    }
    /// Adds the index's bytes to the totals.
    fn measure(&self, inner: &Inner) {
        let working_bytes = self.working_bytes.load(Relaxed);
        self.bytes.set(inner.heap_bytes() + working_bytes);
        self.passing_bytes.set(inner.dead_segment_bytes() + working_bytes);
    }
    /// Counts the bytes that a merge or a flush needs, until [`TrigramIndex::end_work`].
    fn begin_work(&self, inner: &Inner, bytes: usize) {
        self.working_bytes.fetch_add(bytes, Relaxed);
        self.measure(inner);
    }
    fn end_work(&self, inner: &Inner, bytes: usize) {
        self.working_bytes.fetch_sub(bytes, Relaxed);
        self.measure(inner);
    }

    fn remove(&self, inner: &mut Inner, key: &[u8]) {
        let Inner { by_key, keys, ends, .. } = inner;
        let same = |id: &u32| key_at(keys, ends, *id) == key;
        let Ok(entry) = by_key.find_entry(self.hasher.hash_one(key), same) else { return };
        let (id, _) = entry.remove();
        inner.dead[id as usize / 64] |= 1 << (id % 64);
        inner.dead_count += 1;
        inner.dead_key_bytes += key.len();
        inner.text_bytes -= u64::from(inner.sizes[id as usize]);
        match id.checked_sub(inner.tail_first) {
            Some(place) => inner.tail_grams -= inner.tail[place as usize].take().map_or(0, |g| g.len()),
            None => {
                let at = inner.parts.partition_point(|p| p.segment.first <= id);
                if let Some(part) = at.checked_sub(1).and_then(|at| inner.parts.get_mut(at)) {
                    part.alive -= 1;
                }
            }
        }
        if let Ok(at) = inner.unindexed.binary_search(&id) {
            inner.unindexed.remove(at);
        }
    }

    /// Turns the tail into a segment. The caller holds the writer lock; searches continue meanwhile.
    fn flush(&self) {
        let (first, tail, grams) = {
            let inner = self.inner.lock();
            self.begin_work(&inner, pairs_bytes(inner.tail_grams));
            (inner.tail_first, inner.tail.clone(), inner.tail_grams)
        };
        let mut pairs = Vec::with_capacity(grams);
        for (place, grams) in (0..).zip(&tail) {
            pairs.extend(grams.iter().flat_map(|g| g.iter()).map(|gram| gram << PLACE_BITS | place));
        }
        sort_by_gram(&mut pairs);
        pairs.dedup();
        let segment = Arc::new(Segment::build(first, tail.len() as u32, &pairs));
        drop(pairs);
        let mut inner = self.inner.lock();
        inner.parts_bytes += segment.heap_bytes();
        let alive = alive_of(&segment, &inner.dead);
        inner.parts.push(Part { segment, alive_at_build: alive, alive });
        inner.tail_first += tail.len() as u32;
        // The writer lock keeps the tail unchanged, so the segment has all its documents.
        inner.tail.clear();
        inner.tail_grams = 0;
        self.end_work(&inner, pairs_bytes(grams));
    }

    /// Numbers of the documents that may match, ascending.
    pub(crate) fn candidates(&self, query: &Query) -> Vec<u32> {
        self.uses.fetch_add(1, Relaxed);
        // Read once which documents are dead. A document that dies later stays a candidate, because its key may have
        // a new document.
        let (mut found, parts, dead) = {
            let inner = self.inner.lock();
            let tail = (inner.tail_first..).zip(&inner.tail);
            let fits =
                tail.filter(|(_, grams)| grams.as_ref().is_some_and(|grams| lookup::satisfies(grams, query)));
            let found: Vec<u32> = inner.unindexed.iter().copied().chain(fits.map(|(id, _)| id)).collect();
            (found, inner.parts.clone(), inner.dead.clone())
        };
        for Part { segment, .. } in &parts {
            match lookup::candidates(segment, query) {
                Some(ids) => found.extend(ids),
                None => found.extend(segment.first..segment.first + segment.documents),
            }
        }
        found.retain(|id| !is_dead(&dead, *id));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The keys of the documents `ids`.
    pub(crate) fn keys(&self, ids: &[u32]) -> Vec<Vec<u8>> {
        let inner = self.inner.lock();
        ids.iter().map(|id| key_at(&inner.keys, &inner.ends, *id).to_vec()).collect()
    }

    /// True when the index has a document of `key`. Also false while another thread has the lock, because the caller holds
    /// the key's shard and must not wait.
    pub(crate) fn is_known(&self, key: &[u8]) -> bool {
        self.inner.try_lock().is_some_and(|inner| self.id_of(&inner, key).is_some())
    }
    /// The number of the key's document.
    fn id_of<'a>(&self, inner: &'a Inner, key: &[u8]) -> Option<&'a u32> {
        let Inner { by_key, keys, ends, .. } = inner;
        by_key.find(self.hasher.hash_one(key), |id| key_at(keys, ends, *id) == key)
    }

    /// Merges some neighbouring segments if a merge is due. Returns true when another merge may be due. The lock is
    /// held only to choose the segments and to put the result in place.
    pub(crate) fn merge_some(&self, pause: &dyn Fn()) -> bool {
        if self.merging.swap(true, Relaxed) {
            return false;
        }
        let picked = {
            let inner = &mut *self.inner.lock();
            // A segment without a live document needs no merge.
            inner.parts.retain(|part| part.alive > 0);
            inner.measure_parts();
            self.measure(inner);
            inner.pick().map(|at| {
                let parts: Vec<_> = inner.parts[at.clone()].iter().map(|p| p.segment.clone()).collect();
                // The new segment exists beside the old ones for a while.
                let bytes: usize = parts.iter().map(|segment| segment.heap_bytes()).sum();
                self.begin_work(inner, bytes);
                (parts, inner.dead.clone(), at, bytes)
            })
        };
        let merged = picked.is_some();
        if let Some((segments, dead, at, bytes)) = picked {
            let part = Segment::merge(&segments, &|id| is_dead(&dead, id), pause).map(|segment| {
                let alive = alive_of(&segment, &dead);
                Part { segment: Arc::new(segment), alive_at_build: alive, alive }
            });
            let mut inner = self.inner.lock();
            // Other threads only append segments behind these segments, and only this thread merges. Documents may
            // have died meanwhile, so count the live ones again.
            let alive = inner.parts[at.clone()].iter().map(|p| p.alive).sum();
            inner.parts.splice(at, part.map(|p| Part { alive, ..p }));
            inner.measure_parts();
            drop(segments);
            self.end_work(&inner, bytes);
        }
        self.merging.store(false, Relaxed);
        merged
    }

    /// True when most document numbers, or most bytes of keys, are those of dead documents.
    pub(crate) fn is_mostly_dead(&self) -> bool {
        let inner = self.inner.lock();
        let live_key_bytes = inner.keys.len() - inner.dead_key_bytes;
        inner.dead_count > DEAD_MAX + 4 * inner.by_key.len()
            || inner.dead_key_bytes > DEAD_KEY_BYTES_MAX + 4 * live_key_bytes
    }

    /// Holds both locks until the returned value is dropped.
    #[cfg(test)]
    pub(crate) fn lock_all(&self) -> impl Sized + '_ {
        (self.writer.lock(), self.inner.lock())
    }

    /// The figures for RX.INDEX INFO.
    pub(crate) fn figures(&self) -> Figures {
        let inner = self.inner.lock();
        Figures {
            documents: inner.by_key.len(),
            text_bytes: inner.text_bytes,
            bytes: inner.heap_bytes(),
            segments: inner.parts.len(),
            tail_documents: inner.tail.len(),
            dead: inner.dead_count,
        }
    }
}

impl Inner {
    /// Heap bytes, computed from counters in constant time.
    fn heap_bytes(&self) -> usize {
        let documents = self.keys.capacity()
            + (self.ends.capacity() + self.dead.capacity()) * 8
            + (self.sizes.capacity() + self.unindexed.capacity()) * 4
            + self.by_key.allocation_size();
        let tail = self.tail_grams * size_of::<Gram>()
            + self.tail.capacity() * size_of::<Option<Arc<[Gram]>>>()
            + self.tail.len() * 2 * size_of::<usize>();
        self.parts_bytes + self.parts.capacity() * size_of::<Part>() + documents + tail
    }
    fn measure_parts(&mut self) {
        self.parts_bytes = self.parts.iter().map(|part| part.segment.heap_bytes()).sum();
    }
    /// Bytes of dead documents (estimated) in the segments that a merge will rewrite because of them. Other segments keep
    /// their dead documents, perhaps for ever.
    fn dead_segment_bytes(&self) -> usize {
        let of = |part: &Part| {
            let dead = u64::from(part.alive_at_build.saturating_sub(part.alive));
            (part.segment.heap_bytes() as u64 * dead / u64::from(part.alive_at_build.max(1))) as usize
        };
        self.parts.iter().filter(|part| part.is_mostly_dead()).map(of).sum()
    }
    /// The segments to merge: [`FAN_OUT`] segments of similar size, or one segment whose documents are mostly dead.
    fn pick(&self) -> Option<std::ops::Range<usize>> {
        // A merge is due only if no segment is larger than the others together. So each document is merged a
        // logarithmic number of times.
        let gains = |all: &[Part]| {
            let sizes = all.iter().map(|p| p.segment.heap_bytes());
            let sum = sizes.clone().sum::<usize>();
            sizes.max().is_some_and(|max| 2 * max <= sum) && sum < MERGED_BYTES_MAX
        };
        let run = self.parts.windows(FAN_OUT).position(gains);
        let mostly_dead = || self.parts.iter().position(Part::is_mostly_dead);
        run.map(|at| at..at + FAN_OUT).or_else(|| mostly_dead().map(|at| at..at + 1))
    }
}

/// Bytes that a flush of this number of grams needs: the pairs, and as much again to sort them.
fn pairs_bytes(grams: usize) -> usize {
    2 * grams * size_of::<u64>()
}

fn is_dead(dead: &[u64], id: u32) -> bool {
    dead.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
}

fn alive_of(segment: &Segment, dead: &[u64]) -> u32 {
    (segment.first..segment.first + segment.documents).filter(|id| !is_dead(dead, *id)).count() as u32
}

fn key_at<'k>(keys: &'k [u8], ends: &[u64], id: u32) -> &'k [u8] {
    let start = (id as usize).checked_sub(1).map_or(0, |before| ends[before]);
    &keys[start as usize..ends[id as usize] as usize]
}

/// Sorts pairs by gram, 10 bits per pass. The sort is stable.
fn sort_by_gram(pairs: &mut Vec<u64>) {
    const BITS: u32 = GRAM_BITS / 4;
    let mut other = vec![0; pairs.len()];
    for shift in (0..4).map(|pass| PLACE_BITS + pass * BITS) {
        let digit = |pair: u64| (pair >> shift) as usize & ((1 << BITS) - 1);
        let mut places = [0usize; 1 << BITS];
        pairs.iter().for_each(|pair| places[digit(*pair)] += 1);
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        for pair in pairs.iter() {
            let place = &mut places[digit(*pair)];
            other[*place] = *pair;
            *place += 1;
        }
        std::mem::swap(pairs, &mut other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::{Matcher, Pattern, PatternOptions, SearchBudget};
    use crate::trigram::grams::Scratch;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn pairs_are_sorted_by_gram_and_stay_in_order() {
        let rng = &mut fastrand::Rng::with_seed(5);
        let mut pairs: Vec<u64> = (0..5000)
            .map(|i| (rng.u64(..1 << GRAM_BITS) >> rng.u32(..GRAM_BITS)) << PLACE_BITS | i)
            .collect();
        let mut want = pairs.clone();
        want.sort_unstable();
        sort_by_gram(&mut pairs);
        assert_eq!(pairs, want);
        sort_by_gram(&mut Vec::new());
    }

    /// Texts made of a few words, so that the patterns match some of them.
    fn text(rng: &mut fastrand::Rng) -> Vec<u8> {
        const WORDS: [&str; 10] =
            ["ticket", "Ticket-12", "error", "warning", "abc", "bcd", "mail", "\u{e9}t\u{e9}", "x", "1234"];
        let words = (0..rng.usize(..6)).map(|_| WORDS[rng.usize(..WORDS.len())]).collect::<Vec<_>>();
        words.join(["", " ", "-", "\n"][rng.usize(..4)]).into_bytes()
    }

    #[test]
    fn every_match_stays_a_candidate_through_merges_and_deletes() {
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
        let totals = Totals { bytes: Arc::new(AtomicU64::new(7)), ..Totals::default() };
        let mut index = TrigramIndex::new(Vec::new(), None, totals.clone());
        let (all_bytes, passing_bytes) = (totals.bytes, totals.passing_bytes);
        let mut most_passing_bytes = 0;
        index.tail_grams_max = 300;
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
                    scratch.add(&text);
                    let grams = scratch.take().filter(|_| rng.usize(..50) > 0);
                    index.put(&key, grams, text.len());
                    now.insert(key, text);
                }
            }
            most_segments = most_segments.max(index.figures().segments);
            most_passing_bytes = most_passing_bytes.max(passing_bytes.load(Relaxed));
            assert!(passing_bytes.load(Relaxed) <= all_bytes.load(Relaxed));
            if round % 7 == 0 {
                while index.merge_some(&|| {}) {}
            }
            let pattern = Pattern::new(PATTERNS[rng.usize(..12)].as_bytes(), PatternOptions::once(false))
                .expect("compiles");
            let Some(query) = Query::of(&pattern.hir) else { continue };
            let found = index.keys(&index.candidates(&query));
            assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len(), "each once");
            assert!(found.iter().all(|k| now.contains_key(k)), "candidates exist");
            narrow += usize::from(found.len() < now.len() / 2);
            let mut m = Matcher::default();
            for (key, text) in &now {
                let matches = m.is_match(&pattern, text, &SearchBudget::whole(&|| false)).expect("done");
                let is_there = !matches || found.contains(key);
                assert!(is_there, "round {round}: {query} misses {:?}", text.escape_ascii());
            }
        }
        let f = index.figures();
        assert!(most_passing_bytes > 0, "documents died");
        assert!(most_segments > 8 && f.segments <= 24 && narrow > 20, "{most_segments}, {f:?}, {narrow}");
        let text_bytes = now.values().map(|t| t.len() as u64).sum();
        assert_eq!((f.documents, f.text_bytes), (now.len(), text_bytes));
        now.keys().for_each(|k| index.delete(k));
        while index.merge_some(&|| {}) {}
        assert!(index.candidates(&Query::All).is_empty());
        let f = index.figures();
        assert!(f.segments == 0 && f.text_bytes == 0, "{f:?}: what is dead is dropped");
        assert_eq!(all_bytes.load(Relaxed), 7 + f.bytes as u64);
        drop(index);
        assert_eq!((all_bytes.load(Relaxed), passing_bytes.load(Relaxed)), (7, 0));
    }

    #[test]
    fn an_index_with_many_bytes_of_dead_keys_is_mostly_dead() {
        let index = TrigramIndex::new(Vec::new(), None, Totals::default());
        let key = vec![b'k'; 1 << 20];
        let puts = DEAD_KEY_BYTES_MAX / key.len() + 4;
        (0..=puts).for_each(|_| index.put(&key, None, 1));
        assert!(!index.is_mostly_dead(), "four bytes for each live byte are allowed");
        index.put(&key, None, 1);
        assert!(index.is_mostly_dead());
    }
}
