//! FT.SEARCH: brings the index up to date, plans the query, walks the matches of every segment, keeps the best and
//! writes the reply.
//!
//! Every match is counted, so the total is exact. A heap per segment keeps the best `offset + count` matches, so memory
//! grows with the requested page, not with the number of matches. Within a segment, matches are compared by column
//! values and by the ordinals of keys and strings; ordinals sort like their strings. Only the kept matches are resolved
//! to bytes. The merge of the segments' results compares these bytes. Equal values are ordered by key, so a page does
//! not depend on how the documents are spread over segments.

use crate::document::{EXPIRE, KEY, SORT_VALUE_BYTES_MAX, number_column, sort_column};
use crate::error::SearchError;
use crate::index::TextIndex;
use crate::meter::Meter;
use crate::options::{SearchOptions, SortBy};
use crate::query::parser;
use crate::query::plan::{Planned, Planner};
use crate::reply;
use crate::schema::{FieldKind, parse_number};
use crate::service::{Search, check_arity};
use crate::versions::{self, PastSearch};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, atomic};
use std::time::Instant;
use strand_commands::call::{KeyRights, LaneCall};
use strand_commands::spec::Access;
use strand_keyspace::{Keyspace, ValueRef};
use tantivy::columnar::{BytesColumn, StrColumn};
use tantivy::fastfield::Column;
use tantivy::query::{BooleanQuery, EnableScoring, Occur, Query};
use tantivy::{DocId, DocSet, Score, Searcher, SegmentReader, TERMINATED, f64_to_u64, u64_to_f64};

/// The score of every result when the user may not read every document of the index.
const CONSTANT_SCORE: Score = 1.0;
/// Number of steps counted for visiting a match.
const MATCH_STEPS: usize = 2;
/// Number of steps counted for reading the key or the hash of a match.
const HASH_STEPS: usize = 64;

/// One result of a search.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) key: Vec<u8>,
    pub(crate) score: f64,
    pub(crate) sort: SortValue,
}

impl Hit {
    /// Memory that the result takes, in bytes.
    fn bytes(&self) -> usize {
        let sort = if let SortValue::Text(text) = &self.sort { text.len() } else { 0 };
        size_of::<Hit>() + self.key.len() + sort
    }
}

/// The value by which a result is sorted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SortValue {
    /// The value is the score of the result.
    Score,
    /// The value is a number.
    Number(f64),
    /// The value is a text.
    Text(Vec<u8>),
    /// The document lacks the field. Missing values come last in both directions.
    Missing,
}

/// Runs FT.SEARCH.
pub(crate) fn search(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let begun = Instant::now();
    check_arity(call, 3)?;
    search.drain(call.now_ms);
    let name = call.args.at(1);
    let entry =
        search.healthy_entry(name)?.ok_or_else(|| SearchError::NoSuchIndex(crate::error::lossy(name)))?;
    let index = &entry.index;
    let options = SearchOptions::parse(call.args, &index.schema)?;
    let meter = Meter::new(call.cancel, &search.requests_bytes);
    options.deadline(begun).into_iter().for_each(|deadline| meter.end_at(deadline));
    let query = plan(index, call.args.at(2), &options, &meter)?;
    let past = options.version.map(|version| versions::find(search, &entry, call, version)).transpose()?;
    if past.is_some() && options.sort.is_some_and(|sort| sort.needs_hashes(&index.schema)) {
        return Err(SearchError::NotSupported("VERSION with SORTBY of a field that is not SORTABLE".into()));
    }

    let now_ms = call.now_ms;
    let catch_up = || search.catch_up(&entry, now_ms, &|| meter.check_now());
    catch_up()?;
    index.counts.uses.fetch_add(1, atomic::Ordering::Relaxed);
    meter.check_now()?;
    let scan = Scan {
        // As in the past, documents that have expired since the version are results.
        now_ms: past.as_ref().map_or(call.now_ms, |past| past.at_ms),
        sort: options.sort,
        keep: if options.count == 0 { 0 } else { options.offset + options.count },
        with_scores: options.with_scores || options.sort.is_none() && options.count > 0,
        scores_are_constant: !may_read_all(index, call),
        ..Scan::of_keys(search, index, call, &meter)
    };
    let present = index.searcher();
    let (total, hits) = scan.run(past.as_ref().map_or(&present, |past| &past.searcher), &*query)?;
    drop(query);
    let page = hits.into_iter().skip(options.offset).take(options.count).collect();
    let refresh = || {
        search.drain(now_ms);
        catch_up()?;
        Ok(index.searcher())
    };
    let past = past.map(|past| PastSearch { past: past.searcher, refresh: &refresh, key: index.fields.key });
    reply::write(&search.keyspace, &options, past.as_ref(), total, page, &meter, call)
}

/// Plans the query `text` with the filters of `options`.
pub(crate) fn plan(
    index: &TextIndex,
    text: &[u8],
    options: &SearchOptions<'_>,
    meter: &Arc<Meter>,
) -> Result<Box<dyn Query>, SearchError> {
    let node = parser::parse(&String::from_utf8_lossy(text), &options.params)?;
    let planner = Planner {
        schema: &index.schema,
        fields: &index.fields,
        verbatim: options.verbatim,
        keep_stop_words: options.no_stop_words,
        in_fields: options.in_fields.clone(),
        meter,
        planned: Planned::default(),
    };
    let mut query = planner.plan(&node)?;
    for (field, min, max) in &options.filters {
        query = both(query, planner.filter(*field, *min, *max)?);
    }
    if let Some(keys) = &options.keys {
        query = both(query, planner.keys(keys)?);
    }
    Ok(query)
}

/// True when the user may read every key that the index follows. The index's figures are then no secret.
pub(crate) fn may_read_all(index: &TextIndex, call: &LaneCall<'_>) -> bool {
    index.schema.prefixes.iter().all(|prefix| call.may_read_all(prefix))
}

/// Passes the keys of all documents to `take`, `slice` of them at a time, until `take` returns false.
pub(crate) fn each_slice_of_keys(
    searcher: &Searcher,
    slice: usize,
    mut take: impl FnMut(&[Vec<u8>]) -> bool,
) -> Result<(), SearchError> {
    let mut keys = Vec::with_capacity(slice);
    for reader in searcher.segment_readers() {
        let Some(column) = reader.fast_fields().bytes(KEY)? else { continue };
        for doc in reader.doc_ids_alive() {
            keys.extend(key_of(&column, doc)?);
            if keys.len() >= slice {
                if !take(&keys) {
                    return Ok(());
                }
                keys.clear();
            }
        }
    }
    take(&keys);
    Ok(())
}

fn both(query: Box<dyn Query>, also: Box<dyn Query>) -> Box<dyn Query> {
    Box::new(BooleanQuery::new(vec![(Occur::Must, query), (Occur::Must, also)]))
}

/// One walk over the matches.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    keyspace: &'a Keyspace,
    index: &'a TextIndex,
    sort: Option<SortBy>,
    /// Number of best results to keep.
    keep: usize,
    with_scores: bool,
    /// Documents that expire until then are no matches.
    pub(crate) now_ms: i64,
    pub(crate) meter: &'a Arc<Meter>,
    /// The rights of a user who may not read every key. Documents that the user may not read are neither returned nor
    /// counted.
    rights: Option<&'a dyn KeyRights>,
    /// True when every result has [`CONSTANT_SCORE`]. BM25 counts the words of all documents, so real scores would
    /// reveal words of documents that the user may not read.
    scores_are_constant: bool,
}

/// A match within a segment that may be among the best. The smallest candidate is the best.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// True when the document lacks the sort field. Such documents come last.
    missing: bool,
    /// The sort value as an integer with the same order, inverted for descending order.
    rank: u64,
    /// Ordinal of the document's key in the segment.
    key_ord: u64,
    doc: DocId,
    score: Score,
}

impl Candidate {
    fn order(&self) -> (bool, u64, u64) {
        (self.missing, self.rank, self.key_ord)
    }
}
impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.order() == other.order()
    }
}
impl Eq for Candidate {}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Where the sort values of a segment's documents come from.
enum SortSource {
    Score,
    Number(Column<f64>),
    Text(Option<StrColumn>),
    /// The field is not SORTABLE. Its values are read from the hashes.
    Hashes,
}

impl<'a> Scan<'a> {
    /// A walk that keeps no results and needs no scores.
    pub(crate) fn of_keys<'c: 'a>(
        search: &'a Search,
        index: &'a TextIndex,
        call: &LaneCall<'c>,
        meter: &'a Arc<Meter>,
    ) -> Scan<'a> {
        Scan {
            keyspace: &search.keyspace,
            index,
            sort: None,
            keep: 0,
            with_scores: false,
            now_ms: call.now_ms,
            meter,
            rights: call.rights,
            scores_are_constant: true,
        }
    }

    /// The walk at another moment.
    pub(crate) fn at(self, now_ms: i64) -> Scan<'a> {
        Scan { now_ms, ..self }
    }

    /// Returns the number of matches and the best matches, best first.
    fn run(&self, searcher: &Searcher, query: &dyn Query) -> Result<(usize, Vec<Hit>), SearchError> {
        let scoring = match self.with_scores && !self.scores_are_constant {
            true => EnableScoring::enabled_from_searcher(searcher),
            false => EnableScoring::disabled_from_searcher(searcher),
        };
        let weight = query.weight(scoring);
        self.meter.check()?;
        let weight = weight?;
        let (mut total, mut best) = (0, Vec::new());
        for reader in searcher.segment_readers() {
            let source = self.source(reader)?;
            let keys = reader.fast_fields().bytes(KEY)?;
            let Some(keys) = keys else { continue };
            if let SortSource::Hashes = source {
                let mut heap = BinaryHeap::new();
                total += self.walk(reader, &*weight, &keys, &mut |doc, score| {
                    if self.keep > 0 {
                        self.keep_by_hash(&mut heap, &keys, doc, score)?;
                    }
                    Ok(())
                })?;
                best.extend(heap.into_iter().map(|ranked: Ranked| ranked.0));
            } else {
                let mut heap = BinaryHeap::new();
                total += self.walk(reader, &*weight, &keys, &mut |doc, score| {
                    self.keep_by_column(&mut heap, &source, &keys, doc, score)
                })?;
                let candidates_bytes = heap.len() * size_of::<Candidate>();
                for candidate in heap {
                    best.extend(self.resolve(candidate, &source, &keys)?);
                }
                self.meter.release(candidates_bytes);
            }
            best.sort_by(|a, b| self.compare(a, b));
            let dropped = best.drain(best.len().min(self.keep)..);
            self.meter.release(dropped.map(|hit| hit.bytes()).sum());
        }
        Ok((total, best))
    }

    /// Calls `visit` for each live match. Returns the number of live matches.
    pub(crate) fn walk(
        &self,
        reader: &SegmentReader,
        weight: &dyn tantivy::query::Weight,
        keys: &BytesColumn,
        visit: &mut dyn FnMut(DocId, Score) -> Result<(), SearchError>,
    ) -> Result<usize, SearchError> {
        let expire = reader.fast_fields().column_opt::<i64>(EXPIRE)?;
        let alive = reader.alive_bitset();
        let mut scorer = weight.scorer(reader, 1.0)?;
        let mut total = 0;
        let mut doc = scorer.doc();
        while doc != TERMINATED {
            self.meter.step(MATCH_STEPS)?;
            let is_dead = alive.is_some_and(|a| a.is_deleted(doc))
                || expire.as_ref().and_then(|e| e.first(doc)).is_some_and(|at| at <= self.now_ms);
            if !is_dead && self.may_read(keys, doc)? {
                total += 1;
                let score = match (self.with_scores, self.scores_are_constant) {
                    (false, _) => 0.0,
                    (true, true) => CONSTANT_SCORE,
                    (true, false) => scorer.score(),
                };
                visit(doc, score)?;
            }
            doc = scorer.advance();
        }
        // A scorer also ends early when the request must stop. Check for that, because the result is then incomplete.
        self.meter.check()?;
        Ok(total)
    }

    fn may_read(&self, keys: &BytesColumn, doc: DocId) -> Result<bool, SearchError> {
        let Some(rights) = self.rights else { return Ok(true) };
        let Some(key) = key_of(keys, doc)? else { return Ok(false) };
        self.meter.step(key.len())?;
        Ok(rights.allows(&key, Access::READ))
    }

    fn source(&self, reader: &SegmentReader) -> Result<SortSource, SearchError> {
        let Some(sort) = self.sort else { return Ok(SortSource::Score) };
        let spec = sort.spec(&self.index.schema);
        Ok(match spec.kind {
            FieldKind::Numeric => SortSource::Number(reader.fast_fields().f64(&number_column(sort.field))?),
            _ if spec.sortable => SortSource::Text(reader.fast_fields().str(&sort_column(sort.field))?),
            _ => SortSource::Hashes,
        })
    }

    fn keep_by_column(
        &self,
        heap: &mut BinaryHeap<Candidate>,
        source: &SortSource,
        keys: &BytesColumn,
        doc: DocId,
        score: Score,
    ) -> Result<(), SearchError> {
        if self.keep == 0 {
            return Ok(());
        }
        let value = match source {
            // Scores are never negative, so their bits sort like the scores. The inversion puts the highest score
            // first.
            SortSource::Score => Some(!self.shown_score(score).to_bits()),
            SortSource::Number(column) => column.first(doc).map(f64_to_u64),
            SortSource::Text(column) => column.as_ref().and_then(|c| c.ords().first(doc)),
            SortSource::Hashes => None,
        };
        let descending = self.sort.is_some_and(|s| s.descending);
        let missing = value.is_none();
        let rank = value.map_or(0, |v| if descending { !v } else { v });
        if heap.len() == self.keep {
            let worst = heap.peek().expect("keep is not 0");
            if (missing, rank) > (worst.missing, worst.rank) {
                return Ok(());
            }
        }
        let key_ord = keys.ords().first(doc).unwrap_or(u64::MAX);
        let candidate = Candidate { missing, rank, key_ord, doc, score };
        if heap.len() < self.keep {
            self.meter.hold(size_of::<Candidate>())?;
            heap.push(candidate);
        } else if let Some(mut worst) = heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
        Ok(())
    }

    fn keep_by_hash(
        &self,
        heap: &mut BinaryHeap<Ranked>,
        keys: &BytesColumn,
        doc: DocId,
        score: Score,
    ) -> Result<(), SearchError> {
        self.meter.step(HASH_STEPS)?;
        let Some(key) = key_of(keys, doc)? else { return Ok(()) };
        let spec = self.sort.expect("sorted by a field").spec(&self.index.schema);
        let found = self.keyspace.key(&key);
        let mut locked = self.keyspace.lock(&[found.hash], self.now_ms);
        let sort = match locked.db(0).peek(&found).map(|r| r.value()) {
            Some(ValueRef::Hash(hash)) => match (hash.get(&spec.identifier), &spec.kind) {
                (None, _) => SortValue::Missing,
                (Some(v), FieldKind::Numeric) => {
                    parse_number(&v).map_or(SortValue::Missing, SortValue::Number)
                }
                (Some(v), _) => SortValue::Text(v[..v.len().min(SORT_VALUE_BYTES_MAX)].to_vec()),
            },
            _ => SortValue::Missing,
        };
        drop(locked);
        let hit = Hit { key, score: self.shown_score(score), sort };
        let descending = self.sort.is_some_and(|s| s.descending);
        self.meter.hold(hit.bytes())?;
        heap.push(Ranked(hit, descending));
        if heap.len() > self.keep
            && let Some(Ranked(dropped, _)) = heap.pop()
        {
            self.meter.release(dropped.bytes());
        }
        Ok(())
    }

    fn resolve(
        &self,
        c: Candidate,
        source: &SortSource,
        keys: &BytesColumn,
    ) -> Result<Option<Hit>, SearchError> {
        let Some(key) = key_of(keys, c.doc)? else { return Ok(None) };
        let rank = if self.sort.is_some_and(|s| s.descending) { !c.rank } else { c.rank };
        let sort = match source {
            _ if c.missing => SortValue::Missing,
            SortSource::Number(_) => SortValue::Number(u64_to_f64(rank)),
            SortSource::Text(Some(column)) => {
                let mut text = String::new();
                column.ord_to_str(rank, &mut text)?;
                SortValue::Text(text.into_bytes())
            }
            _ => SortValue::Score,
        };
        let hit = Hit { key, score: self.shown_score(c.score), sort };
        self.meter.step(HASH_STEPS)?;
        self.meter.hold(hit.bytes())?;
        Ok(Some(hit))
    }

    /// The score that clients see, and that orders the results. Finite and not negative, also when weights overflow.
    fn shown_score(&self, score: Score) -> f64 {
        f64::from(score.clamp(0.0, Score::MAX)) * self.index.schema.score
    }

    fn compare(&self, a: &Hit, b: &Hit) -> Ordering {
        compare(a, b, self.sort.is_some_and(|s| s.descending))
    }
}

/// Orders two results by value, then by key.
fn compare(a: &Hit, b: &Hit, descending: bool) -> Ordering {
    let turn = |o: Ordering| if descending { o.reverse() } else { o };
    let by_value = match (&a.sort, &b.sort) {
        (SortValue::Score, SortValue::Score) => b.score.total_cmp(&a.score),
        (SortValue::Number(x), SortValue::Number(y)) => turn(x.total_cmp(y)),
        (SortValue::Text(x), SortValue::Text(y)) => turn(x.cmp(y)),
        (SortValue::Missing, SortValue::Missing) => Ordering::Equal,
        (SortValue::Missing, _) => Ordering::Greater,
        (_, SortValue::Missing) => Ordering::Less,
        // Values of different kinds never meet, because all results of one search are sorted by one field or by
        // score.
        _ => Ordering::Equal,
    };
    by_value.then_with(|| a.key.cmp(&b.key))
}

/// A result, and whether the sort is descending. The top of a heap of such results is the worst result.
struct Ranked(Hit, bool);

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Ranked {}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        compare(&self.0, &other.0, self.1)
    }
}

/// The key of a document.
pub(crate) fn key_of(column: &BytesColumn, doc: DocId) -> Result<Option<Vec<u8>>, SearchError> {
    let Some(ord) = column.ords().first(doc) else { return Ok(None) };
    let mut key = Vec::new();
    Ok(column.ord_to_bytes(ord, &mut key)?.then_some(key))
}
