//! `RX.GREP KEYS|VALUES pattern [PREFIX p] [FIELD f] [LIMIT n] [NOCASE] [WITHVALUES]`: searches the session's
//! database with a regular expression, in time linear in the bytes read.
//!
//! KEYS searches the names of keys. VALUES searches strings, field values of hashes and streams, elements of lists,
//! and members of sets and sorted sets. VALUES with FIELD searches only that field of hashes. The reply is an array
//! of keys, unordered and without duplicates. With WITHVALUES (VALUES only) the reply is an array of rows `[key,
//! field, line]`: the first match found in the key, its field (null for a string), and the line in which the match
//! begins, cut to [`LINE_BYTES_MAX`] around that place. Without LIMIT the command returns all matches up to
//! [`MATCHES_MAX`] and [`MATCH_BYTES_MAX`]. Above these limits the command fails; it never returns a truncated
//! result.
//!
//! The keyspace is walked in slices. A slice's values are shared or copied while the shard is locked, and matched after
//! it is unlocked. A trigram index serves the search if the index covers the search (database 0, VALUES, the prefix and
//! the field) and the pattern requires trigrams. Then only the keys that the index finds are read. The index is brought
//! up to date first, so a search with an index sees every acknowledged write, as a search without one does. Text is
//! bytes, in the pattern (`\xFF`) and in the data.

use crate::error::{SearchError, lossy};
use crate::follow::to_blob;
use crate::regex::{
    Counts, DFA_BYTES_MAX, Matcher, Pattern, PatternOptions, SearchBudget, parse as parse_pattern,
};
use crate::service::Search;
use crate::trigram::{Query, TrigramIndexEntry};
use regex_syntax::hir::Hir;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_chain::Blob;
use strand_commands::call::LaneCall;
use strand_keyspace::{AsValue, Bytes, Collection, HashValue, Key, Keyspace, RecordRef, Value, ValueRef};

/// Maximum number of matches of one RX.GREP.
pub(crate) const MATCHES_MAX: usize = 1_000_000;
/// Maximum number of bytes of keys and lines that one RX.GREP returns.
pub(crate) const MATCH_BYTES_MAX: usize = 256 << 20;
/// Maximum length of the part of a line that is returned, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 1024;
/// Number of records visited while a shard is locked once.
const SLICE_RECORDS: usize = 64;
/// Number of keys found by an index whose records are prefetched together.
const SLICE_FOUND: usize = 16;
/// With an index, the full DFA may have this many bytes for each key found, and at least [`DFA_BYTES_MIN`] in total. A
/// larger DFA costs more to build than it saves.
const DFA_BYTES_PER_FOUND: usize = 64;
const DFA_BYTES_MIN: usize = 16 << 10;
/// Number of fields of a hash that are read while its shard is locked once. A larger hash is read in slices.
const SLICE_FIELDS: usize = 64;

/// Counters of all greps, for INFO.
#[derive(Debug, Default)]
pub(crate) struct GrepCounters {
    /// Number of greps that have run, also those that ended with an error.
    pub(crate) greps: AtomicU64,
    /// Number of greps that an index served.
    pub(crate) indexed: AtomicU64,
    /// Number of texts searched.
    pub(crate) searches: AtomicU64,
    /// Number of bytes of these texts.
    pub(crate) bytes: AtomicU64,
    /// Number of times that a lazy DFA's full cache was cleared.
    pub(crate) clears: AtomicU64,
    /// Number of texts on which a lazy DFA gave up, because the states that it built did not pay off.
    pub(crate) give_ups: AtomicU64,
    /// Number of texts on which a lazy DFA met a byte that it cannot handle (Unicode word boundaries).
    pub(crate) quits: AtomicU64,
    /// Number of times that a lazy DFA's nearly full cache was emptied after it gave up.
    pub(crate) resets: AtomicU64,
    /// Number of bytes in the caches of greps that are running.
    pub(crate) cache_bytes: AtomicU64,
}

/// The part of [`GrepCounters::cache_bytes`] that belongs to one running grep.
struct CacheShare<'a> {
    all: &'a AtomicU64,
    bytes: u64,
}

impl CacheShare<'_> {
    fn set(&mut self, bytes: u64) {
        self.all.fetch_add(bytes, Relaxed);
        self.all.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for CacheShare<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl GrepCounters {
    fn add(&self, c: Counts) {
        self.greps.fetch_add(1, Relaxed);
        self.searches.fetch_add(c.searches, Relaxed);
        self.bytes.fetch_add(c.bytes, Relaxed);
        self.clears.fetch_add(c.clears, Relaxed);
        self.give_ups.fetch_add(c.give_ups, Relaxed);
        self.quits.fetch_add(c.quits, Relaxed);
        self.resets.fetch_add(c.resets, Relaxed);
    }
}

/// The parsed arguments of RX.GREP.
#[derive(Debug, PartialEq)]
struct Request {
    values: bool,
    prefix: Vec<u8>,
    field: Option<Vec<u8>>,
    limit: Option<usize>,
    nocase: bool,
    with_values: bool,
}

impl Request {
    /// What to search in a record. `None`: nothing.
    fn haystack(&self, record: RecordRef<'_>) -> Option<Haystack> {
        if self.values { copy_haystack(record, self.field.as_deref()) } else { Some(Haystack::Name) }
    }
}

/// One row in the reply of RX.GREP.
struct Row {
    key: Vec<u8>,
    field: Option<Blob>,
    line: Vec<u8>,
}

/// A key's data, copied or shared while its shard was locked.
pub(crate) enum Haystack {
    Name,
    Text(Blob),
    Fields(Vec<(Option<Blob>, Blob)>),
    /// A collection that is too large to copy at once.
    Large {
        /// A list or a stream is cloned, and the clone shares its parts. The positions of a list's elements change, and
        /// the entries of one millisecond of a stream are visited together, however many there are.
        clone: Option<Value>,
        /// Heap bytes of the collection.
        bytes: usize,
    },
}

/// The documents that may match according to an index, and that index.
struct Candidates {
    entry: Arc<TrigramIndexEntry>,
    ids: Vec<u32>,
}

/// Runs RX.GREP.
pub(crate) fn run(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let request = parse(call)?;
    let mut options = PatternOptions::once(request.nocase);
    let hir = parse_pattern(call.args.at(2), options)?;
    let candidates = find_candidates(search, &request, &hir, call);
    if let Some(candidates) = &candidates {
        let worth = candidates.ids.len().saturating_mul(DFA_BYTES_PER_FOUND);
        options.dfa_bytes = worth.clamp(DFA_BYTES_MIN, DFA_BYTES_MAX);
    }
    let pattern = Pattern::from_hir(hir, options)?;
    let rows = walk(&search.keyspace, &search.grep, &request, &pattern, candidates, call)?;
    call.reply.array(rows.len());
    for row in &rows {
        if request.with_values {
            call.reply.array(3);
            call.reply.bulk(&row.key);
            match &row.field {
                Some(field) => call.reply.bulk_blob(field),
                None => call.reply.null(),
            }
            call.reply.bulk(&row.line);
        } else {
            call.reply.bulk(&row.key);
        }
    }
    Ok(())
}

/// Returns the rows of the reply and frees everything else.
fn walk(
    keyspace: &Keyspace,
    totals: &GrepCounters,
    request: &Request,
    pattern: &Pattern,
    candidates: Option<Candidates>,
    call: &LaneCall<'_>,
) -> Result<Vec<Row>, SearchError> {
    let mut walk = Walk {
        keyspace,
        request,
        db: call.db,
        now_ms: call.now_ms,
        may_read: &|key| call.may_read(key),
        pattern,
        matcher: Matcher::default(),
        caches: CacheShare { all: &totals.cache_bytes, bytes: 0 },
        // Called between slices, while no shard is locked.
        cancelled: &|| {
            call.pause();
            call.cancelled()
        },
        rows: Vec::new(),
        row_bytes: 0,
        seen: HashSet::new(),
    };
    let result = match candidates {
        Some(candidates) => {
            totals.indexed.fetch_add(1, Relaxed);
            walk.run_candidates(&candidates)
        }
        None => walk.run(),
    };
    totals.add(walk.matcher.counts);
    result.map(|()| walk.rows)
}

/// Finds candidates with an up-to-date index; `None` when no index covers the request or the pattern requires no
/// trigram.
fn find_candidates(
    search: &Search,
    request: &Request,
    pattern: &Hir,
    call: &LaneCall<'_>,
) -> Option<Candidates> {
    if !request.values || call.db != 0 || search.trigrams.len() == 0 {
        return None;
    }
    let query = Query::of(pattern)?;
    let covering = || search.trigrams.covering(&request.prefix, request.field.as_deref());
    covering()?;
    search.drain(call.now_ms);
    // If the drain met a flush, the index was replaced by an incomplete one, so look for the index again.
    let entry = covering()?;
    Some(Candidates { ids: entry.index.candidates(&query), entry })
}

fn parse(call: &LaneCall<'_>) -> Result<Request, SearchError> {
    crate::service::check_arity(call, 3)?;
    let args = call.args;
    let values = args.is(1, "VALUES");
    if !values && !args.is(1, "KEYS") {
        let text = format!("ERR Unknown argument `{}`: KEYS or VALUES is expected", lossy(args.at(1)));
        return Err(SearchError::Refused(text));
    }
    let (prefix, field) = (Vec::new(), None);
    let mut request = Request { values, prefix, field, limit: None, nocase: false, with_values: false };
    let mut at = 3;
    while at < args.len() {
        let argument = |name: &str| {
            args.get(at + 1).ok_or(SearchError::Refused(format!("ERR {name} needs an argument")))
        };
        if args.is(at, "PREFIX") {
            request.prefix = argument("PREFIX")?.to_vec();
            at += 1;
        } else if args.is(at, "FIELD") {
            request.field = Some(argument("FIELD")?.to_vec());
            at += 1;
        } else if args.is(at, "LIMIT") {
            let n = std::str::from_utf8(argument("LIMIT")?).ok().and_then(|n| n.parse::<usize>().ok());
            let wrong = || SearchError::refused("ERR LIMIT is not an integer or out of range");
            request.limit = Some(n.filter(|n| *n > 0).ok_or_else(wrong)?);
            at += 1;
        } else if args.is(at, "NOCASE") {
            request.nocase = true;
        } else if args.is(at, "WITHVALUES") {
            request.with_values = true;
        } else {
            return Err(SearchError::Refused(format!("ERR Unknown argument `{}`", lossy(args.at(at)))));
        }
        at += 1;
    }
    if request.with_values && !values {
        return Err(SearchError::refused("ERR WITHVALUES goes with VALUES only"));
    }
    if request.field.is_some() && !values {
        return Err(SearchError::refused("ERR FIELD goes with VALUES only"));
    }
    Ok(request)
}

struct Walk<'a> {
    keyspace: &'a Keyspace,
    request: &'a Request,
    db: usize,
    now_ms: i64,
    /// True when the user may read the key.
    may_read: &'a dyn Fn(&[u8]) -> bool,
    pattern: &'a Pattern,
    matcher: Matcher,
    caches: CacheShare<'a>,
    cancelled: &'a dyn Fn() -> bool,
    rows: Vec<Row>,
    row_bytes: usize,
    /// Keys already reported. A scan may visit a key twice while the table grows.
    seen: HashSet<Vec<u8>>,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<(), SearchError> {
        let request = self.request;
        let mut cursor = 0;
        // `None`: a field has expired, so the record is read again.
        let mut slice: Vec<(Vec<u8>, Option<Haystack>)> = Vec::new();
        loop {
            slice.clear();
            self.caches.set(self.matcher.cache_bytes() as u64);
            cursor = self.keyspace.scan(self.db, cursor, SLICE_RECORDS, self.now_ms, &mut |record| {
                if !record.key().starts_with(&request.prefix) {
                    return;
                }
                if has_expired_field(record, self.now_ms) {
                    slice.push((record.key().to_vec(), None));
                } else if let Some(haystack) = request.haystack(record) {
                    slice.push((record.key().to_vec(), Some(haystack)));
                }
            });
            for (key, haystack) in slice.drain(..) {
                if !(self.may_read)(&key) {
                    continue;
                }
                let haystack = haystack.or_else(|| self.read(&self.keyspace.key(&key)));
                let Some(haystack) = haystack else { continue };
                self.search_haystack(key, haystack)?;
                if request.limit.is_some_and(|l| self.rows.len() >= l) {
                    return Ok(());
                }
            }
            if cursor == 0 {
                return Ok(());
            }
            if (self.cancelled)() {
                return Err(SearchError::Cancelled);
            }
        }
    }

    /// Searches only the keys that an index found.
    fn run_candidates(&mut self, candidates: &Candidates) -> Result<(), SearchError> {
        for ids in candidates.ids.chunks(SLICE_FOUND) {
            self.caches.set(self.matcher.cache_bytes() as u64);
            let (request, may_read) = (self.request, self.may_read);
            let mut names = candidates.entry.index.keys(ids);
            names.retain(|name| name.starts_with(&request.prefix) && may_read(name));
            let keys: Vec<_> = names.iter().map(|name| self.keyspace.key(name)).collect();
            self.keyspace.prefetch(self.db, &keys);
            for key in keys {
                if let Some(haystack) = self.read(&key) {
                    self.search_haystack(key.bytes.to_vec(), haystack)?;
                }
                if request.limit.is_some_and(|l| self.rows.len() >= l) {
                    return Ok(());
                }
            }
            if (self.cancelled)() {
                return Err(SearchError::Cancelled);
            }
        }
        Ok(())
    }

    /// Looks the key up, which removes its expired fields, and copies its data.
    fn read(&self, key: &Key<'_>) -> Option<Haystack> {
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        let mut db = locked.db(self.db);
        db.peek(key).and_then(|record| self.request.haystack(record))
    }

    fn search_haystack(&mut self, key: Vec<u8>, haystack: Haystack) -> Result<(), SearchError> {
        match haystack {
            Haystack::Name => {
                if self.find(&key)?.is_some() {
                    self.report(key, None, Vec::new())?;
                }
            }
            Haystack::Text(text) => {
                if let Some(at) = self.find(&text)? {
                    let line = self.line(&text, at);
                    self.report(key, None, line)?;
                }
            }
            Haystack::Fields(fields) => {
                self.search_fields(&key, fields)?;
            }
            Haystack::Large { clone, .. } => {
                let mut cursor = 0;
                loop {
                    let mut fields = Vec::with_capacity(SLICE_FIELDS);
                    let next = next_texts(
                        (self.keyspace, self.db, self.now_ms),
                        (&key, &clone),
                        (cursor, SLICE_FIELDS),
                        &mut |field, text| fields.push((field.map(to_blob), to_blob(text))),
                    );
                    let Some(next) = next else { return Ok(()) };
                    cursor = next;
                    if self.search_fields(&key, fields)? || cursor == 0 {
                        return Ok(());
                    }
                    if (self.cancelled)() {
                        return Err(SearchError::Cancelled);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true when a field matched and was reported.
    fn search_fields(&mut self, key: &[u8], fields: Vec<(Option<Blob>, Blob)>) -> Result<bool, SearchError> {
        for (field, value) in fields {
            if let Some(at) = self.find(&value)? {
                let line = self.line(&value, at);
                self.report(key.to_vec(), field, line)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A place of the first match: its start, if the reply has lines.
    fn find(&mut self, haystack: &[u8]) -> Result<Option<usize>, SearchError> {
        self.matcher.counts.searches += 1;
        self.matcher.counts.bytes += haystack.len() as u64;
        let budget = SearchBudget::whole(self.cancelled);
        if !self.request.with_values {
            return Ok(self.matcher.is_match(self.pattern, haystack, &budget)?.then_some(0));
        }
        Ok(self.matcher.find(self.pattern, haystack, 0, &budget)?.map(|found| found.start))
    }

    fn line(&self, text: &[u8], at: usize) -> Vec<u8> {
        if self.request.with_values { line_at(text, at).to_vec() } else { Vec::new() }
    }

    fn report(&mut self, key: Vec<u8>, field: Option<Blob>, line: Vec<u8>) -> Result<(), SearchError> {
        if !self.seen.insert(key.clone()) {
            return Ok(());
        }
        self.row_bytes += key.len() + line.len() + field.as_ref().map_or(0, |f| f.len());
        if self.rows.len() == MATCHES_MAX || self.row_bytes > MATCH_BYTES_MAX {
            let text =
                format!("ERR More than {MATCHES_MAX} matches or {MATCH_BYTES_MAX} bytes of them: use LIMIT");
            return Err(SearchError::Refused(text));
        }
        self.rows.push(Row { key, field, line });
        Ok(())
    }
}

/// True when a field of the record has expired and is not yet removed. Only a look-up of the key removes it: a walk over
/// the keyspace does not.
fn has_expired_field(record: RecordRef<'_>, now_ms: i64) -> bool {
    HashValue::of(record.value()).is_some_and(|hash| hash.field_expiry_ms() <= now_ms)
}

/// Copies a record's data, so that the shard can be unlocked. A value in a blob is shared instead. `None`: the record
/// lacks the field.
pub(crate) fn copy_haystack(record: RecordRef<'_>, field: Option<&[u8]>) -> Option<Haystack> {
    Some(match (record.value(), field) {
        (ValueRef::Str(s), None) => Haystack::Text(s.to_blob()),
        (value, Some(field)) => {
            let text = to_blob(HashValue::of(value)?.get(field)?);
            Haystack::Fields(vec![(Some(Blob::from(field)), text)])
        }
        // The clone of a stream is one pointer, and one entry may have many fields.
        (stream @ ValueRef::Stream(_), None) => {
            Haystack::Large { clone: Some(stream.to_value()), bytes: stream.heap_bytes() }
        }
        (collection, None) if collection.elements() > SLICE_FIELDS => {
            let clone = matches!(collection, ValueRef::List(_)).then(|| collection.to_value());
            Haystack::Large { clone, bytes: collection.heap_bytes() }
        }
        (collection, None) => {
            let mut texts = Vec::with_capacity(collection.elements());
            collection.walk_texts(0, SLICE_FIELDS, &mut |field, text| {
                texts.push((field.map(to_blob), to_blob(text)));
            });
            Haystack::Fields(texts)
        }
    })
}

/// Reads up to `count` texts of a large collection from `cursor` on, as [`ValueRef::walk_texts`] does, from the clone
/// `clone` or from the key. Returns the next cursor. `None`: the key has no such collection any more.
pub(crate) fn next_texts(
    (keyspace, db, now_ms): (&Keyspace, usize, i64),
    (key, clone): (&[u8], &Option<Value>),
    (cursor, count): (u64, usize),
    take: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
) -> Option<u64> {
    if let Some(clone) = clone {
        return Some(clone.view().walk_texts(cursor, count, take));
    }
    let key = keyspace.key(key);
    let mut locked = keyspace.lock(&[key.hash], now_ms);
    let mut db = locked.db(db);
    let record = db.peek(&key).filter(|record| !matches!(record.value(), ValueRef::Str(_)))?;
    Some(record.value().walk_texts(cursor, count, take))
}

/// The line of `text` that has byte `at`, cut to [`LINE_BYTES_MAX`] around `at`. A line ends with its line feed, which is
/// left out.
fn line_at(text: &[u8], at: usize) -> &[u8] {
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |i| i + 1);
    let stop = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |i| at + i);
    if stop - start <= LINE_BYTES_MAX {
        return &text[start..stop];
    }
    let from = at.saturating_sub(LINE_BYTES_MAX / 2).max(start);
    &text[from..stop.min(from + LINE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_match() {
        let text = b"one\ntwo three\n\nfour";
        assert_eq!(line_at(text, 0), b"one");
        assert_eq!(line_at(text, 3), b"one");
        assert_eq!(line_at(text, 4), b"two three");
        assert_eq!(line_at(text, 12), b"two three");
        assert_eq!(line_at(text, 14), b"");
        assert_eq!(line_at(text, text.len()), b"four");
        assert_eq!(line_at(b"", 0), b"");
        assert_eq!(line_at(b"\n", 1), b"");
        let long = [vec![b'a'; 5000], b"X".to_vec(), vec![b'b'; 5000]].concat();
        let line = line_at(&long, 5000);
        assert!(line.len() == LINE_BYTES_MAX && line.contains(&b'X'));
    }
}
