//! [`Trigrams`]: the trigram indexes by name, and RX.INDEX. Keeps the indexes in step with the keyspace.

use super::grams::Scratch;
use super::index::{INDEXED_BYTES_MAX, Share, Totals, TrigramIndex};
use crate::definitions::{Words, words};
use crate::error::{SearchError, lossy};
use crate::follow::{SCAN_TIME, Scan};
use crate::grep::{Haystack, copy_haystack, next_texts};
use crate::service::{Search, check_may_change};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use strand_commands::call::LaneCall;
use strand_keyspace::{Bytes, Keyspace, TRACKED_PREFIX_BYTES_MAX, Value};

/// Maximum number of trigram indexes.
pub(crate) const INDEXES_MAX: usize = 64;
/// Maximum length of an index's name, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Maximum length of a prefix and of a field name, in bytes.
const PREFIX_BYTES_MAX: usize = TRACKED_PREFIX_BYTES_MAX;
/// Number of records that one slice of a first scan visits while the shard is locked once.
const SCAN_RECORDS: usize = 64;
/// Number of fields of a large hash that are read while its shard is locked once.
const FIELDS_SLICE: usize = 64;

/// A trigram index and the progress of its first scan.
#[derive(Debug)]
pub(crate) struct TrigramIndexEntry {
    pub(crate) index: TrigramIndex,
    scan: Mutex<Scan>,
    is_whole: AtomicBool,
}

impl TrigramIndexEntry {
    fn new(index: TrigramIndex) -> Arc<TrigramIndexEntry> {
        Arc::new(TrigramIndexEntry {
            index,
            scan: Mutex::new(Scan::At(0, 0)),
            is_whole: AtomicBool::new(false),
        })
    }
    /// True when the first scan is complete: every key is in the index.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }
    /// True when the index covers a search of values under `prefix`, either of one `field` or of all fields.
    fn covers(&self, prefix: &[u8], field: Option<&[u8]>) -> bool {
        prefix.starts_with(&self.index.prefix)
            && self.index.field.as_deref().is_none_or(|own| Some(own) == field)
    }
    fn put(&self, scratch: &mut Scratch, keyspace: &Keyspace, key: &[u8], haystack: Haystack, now_ms: i64) {
        // A collection that was too large stays without grams until its memory shrinks below the limit for texts. Each
        // write would otherwise read it up to the limit again.
        if let Haystack::Large { bytes, .. } = &haystack
            && *bytes > INDEXED_BYTES_MAX
            && self.index.is_unindexed(key)
        {
            return;
        }
        let mut bytes = 0;
        // Returns false when the document gets no grams, so the rest of it need not be read.
        let mut add = |text: &[u8]| {
            bytes += text.len();
            let fits = bytes <= INDEXED_BYTES_MAX;
            if fits {
                scratch.add(text);
            }
            fits && !scratch.is_full()
        };
        let is_there = match haystack {
            Haystack::Name => true,
            Haystack::Text(text) => {
                add(&text);
                true
            }
            Haystack::Fields(fields) => {
                fields.iter().all(|(_, text)| add(text));
                true
            }
            Haystack::Large { clone, .. } => for_each_text(keyspace, key, &clone, now_ms, &mut add),
        };
        let grams = scratch.take().filter(|_| bytes <= INDEXED_BYTES_MAX);
        match is_there {
            true => self.index.put(key, grams, bytes),
            false => self.index.delete(key),
        }
    }
}

/// Passes the texts of a large collection to `add`, a slice at a time, until `add` returns false. Returns false when the
/// key is no longer a collection. If a field changes between slices, the write notes the key and the index reads it again.
fn for_each_text(
    keyspace: &Keyspace,
    key: &[u8],
    clone: &Option<Value>,
    now_ms: i64,
    add: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let (mut cursor, mut texts) = (0, Vec::with_capacity(FIELDS_SLICE));
    loop {
        let mut take = |_: Option<Bytes<'_>>, text: Bytes<'_>| texts.push(crate::follow::to_blob(text));
        let next = next_texts((keyspace, 0, now_ms), (key, clone), (cursor, FIELDS_SLICE), &mut take);
        let Some(next) = next else { return false };
        cursor = next;
        let goes_on = texts.drain(..).all(|text| add(&text));
        if cursor == 0 || !goes_on {
            return true;
        }
    }
}

/// All trigram indexes.
#[derive(Debug, Default)]
pub(crate) struct Trigrams {
    indexes: RwLock<BTreeMap<Vec<u8>, Arc<TrigramIndexEntry>>>,
    /// Number of indexes. Stored outside the lock, like `totals`, so that INFO waits for no lock.
    len: AtomicUsize,
    totals: Totals,
    /// The buffers for gathering grams, and the counter of their bytes. Created with the first index.
    scratch: Mutex<Option<(Box<Scratch>, Share)>>,
}

impl Trigrams {
    /// The RX.INDEX CREATE commands of all indexes: see [`Search::definitions`].
    pub(crate) fn definitions(&self) -> Vec<Arc<Words>> {
        let of = |(name, entry): (&Vec<u8>, &Arc<TrigramIndexEntry>)| {
            let mut words: Words = [&b"RX.INDEX"[..], b"CREATE", name, b"PREFIX", &entry.index.prefix]
                .map(<[u8]>::to_vec)
                .into();
            if let Some(field) = &entry.index.field {
                words.extend([b"FIELD".to_vec(), field.clone()]);
            }
            Arc::new(words)
        };
        self.indexes.read().iter().map(of).collect()
    }
    /// All trigram indexes.
    pub(crate) fn entries(&self) -> Vec<Arc<TrigramIndexEntry>> {
        self.indexes.read().values().cloned().collect()
    }
    /// The most specific complete index for a search of values under `prefix`.
    pub(crate) fn covering(&self, prefix: &[u8], field: Option<&[u8]>) -> Option<Arc<TrigramIndexEntry>> {
        let indexes = self.indexes.read();
        let covering = indexes.values().filter(|e| e.covers(prefix, field) && e.is_whole());
        covering.max_by_key(|e| (e.index.prefix.len(), e.index.field.is_some())).cloned()
    }
    /// Empties all indexes and scans again. Called after the database was emptied or swapped.
    pub(crate) fn rebuild_all(&self) {
        self.rebuild(&|_| true);
    }
    /// Replaces each index for which `is_old` is true by an empty one that scans again.
    fn rebuild(&self, is_old: &dyn Fn(&TrigramIndexEntry) -> bool) {
        let mut old = Vec::new();
        for entry in self.indexes.write().values_mut().filter(|e| is_old(e)) {
            let new = TrigramIndexEntry::new(entry.index.empty_copy());
            old.push(std::mem::replace(entry, new));
        }
        // Freeing an index may take long. The lock is released already, so no thread waits for it.
        drop(old);
    }
    /// Number of bytes of all trigram indexes.
    pub(crate) fn bytes(&self) -> u64 {
        self.totals.bytes.load(Relaxed)
    }
    /// Bytes that the trigram indexes free by themselves, see [`Totals::passing_bytes`].
    pub(crate) fn passing_bytes(&self) -> u64 {
        self.totals.passing_bytes.load(Relaxed)
    }
    /// Number of trigram indexes.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }
    /// Puts a key's value into an index. `haystack` is the value as copied under the shard's lock.
    pub(crate) fn put(
        &self,
        entry: &TrigramIndexEntry,
        keyspace: &Keyspace,
        key: &[u8],
        haystack: Haystack,
        now_ms: i64,
    ) {
        let mut scratch = self.scratch.lock();
        let (scratch, share) =
            scratch.get_or_insert_with(|| (Box::default(), Share::of(self.totals.bytes.clone())));
        entry.put(scratch, keyspace, key, haystack, now_ms);
        share.set(scratch.heap_bytes());
    }
}

impl Search {
    /// Runs slices of an index's first scan for about [`SCAN_TIME`]. The caller holds the follow lock.
    pub(crate) fn scan_trigrams(&self, entry: &TrigramIndexEntry, now_ms: i64) {
        let mut scan = entry.scan.lock();
        let begun = Instant::now();
        while begun.elapsed() < SCAN_TIME {
            let Scan::At(cursor, mut visited) = *scan else { break };
            let mut found = Vec::new();
            let next = self.keyspace.scan(0, cursor, SCAN_RECORDS, now_ms, &mut |record| {
                visited += 1;
                if record.key().starts_with(&entry.index.prefix)
                    // A key that was written since the index exists is indexed already, or waits to be indexed again.
                    && !entry.index.is_known(record.key())
                    && let Some(haystack) = copy_haystack(record, entry.index.field.as_deref())
                {
                    found.push((record.key().to_vec(), haystack));
                }
            });
            for (key, haystack) in found {
                self.trigrams.put(entry, &self.keyspace, &key, haystack, now_ms);
            }
            *scan = if next == 0 { Scan::Done } else { Scan::At(next, visited) };
            entry.is_whole.store(next == 0, Relaxed);
        }
    }

    /// Replaces each mostly dead index by an empty one that scans again. The caller holds the follow lock.
    pub(crate) fn rebuild_mostly_dead(&self) {
        if self.trigrams.entries().iter().any(|e| e.is_whole() && e.index.is_mostly_dead()) {
            self.trigrams.rebuild(&|e| e.is_whole() && e.index.is_mostly_dead());
        }
    }
}

/// `RX.INDEX CREATE name PREFIX prefix [FIELD field]`: indexes the values under the prefix in the background. Until
/// the first scan is complete, RX.GREP reads all values.
///
/// # Errors
/// When the name is taken or the arguments are wrong.
pub(crate) fn create(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let args = call.args;
    let name = args.at(2);
    let mut field = None;
    match args.len() {
        n if n < 5 => {}
        _ if !args.is(3, "PREFIX") => return Err(unknown(call, 3)),
        5 => {}
        _ if !args.is(5, "FIELD") => return Err(unknown(call, 5)),
        6 => return Err(SearchError::refused("ERR FIELD needs an argument")),
        7 => field = Some(args.at(6).to_vec()),
        _ => return Err(unknown(call, 7)),
    }
    if call.db != 0 {
        return Err(SearchError::refused("ERR Cannot create an index on a database other than 0"));
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(SearchError::Refused(format!("ERR The name must have 1 to {NAME_BYTES_MAX} bytes")));
    }
    let too_long = |what: &str, bytes: &[u8]| {
        let error = || SearchError::Refused(format!("ERR {what} must have at most {PREFIX_BYTES_MAX} bytes"));
        if bytes.len() > PREFIX_BYTES_MAX { Err(error()) } else { Ok(()) }
    };
    too_long("The prefix", args.at(4))?;
    too_long("The field's name", field.as_deref().unwrap_or_default())?;
    check_may_change(call, name)?;
    if !call.may_read_all(args.at(4)) {
        return Err(SearchError::NoKeyPermission);
    }
    let _follow = search.follow.lock();
    {
        let mut indexes = search.trigrams.indexes.write();
        if indexes.contains_key(name) {
            return Err(SearchError::IndexExists);
        }
        if indexes.len() == INDEXES_MAX {
            return Err(SearchError::TooManyIndexes(INDEXES_MAX));
        }
        let index = TrigramIndex::new(args.at(4).to_vec(), field, search.trigrams.totals.clone());
        search.record(&words(args));
        indexes.insert(name.to_vec(), TrigramIndexEntry::new(index));
        search.trigrams.len.store(indexes.len(), Relaxed);
    }
    search.track();
    call.reply.ok();
    Ok(())
}

/// `RX.INDEX DROP name`.
///
/// # Errors
/// When there is no such index.
pub(crate) fn drop_index(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_may_change(call, call.args.at(2))?;
    let _follow = search.follow.lock();
    let dropped = {
        let mut indexes = search.trigrams.indexes.write();
        let dropped = indexes.remove(call.args.at(2)).ok_or(SearchError::UnknownIndex)?;
        search.record(&words(call.args));
        search.trigrams.len.store(indexes.len(), Relaxed);
        dropped
    };
    // A running search may keep the index a little longer.
    drop(dropped);
    if search.trigrams.len() == 0 {
        *search.trigrams.scratch.lock() = None;
    }
    search.track();
    call.reply.ok();
    Ok(())
}

/// `RX.INDEX LIST`. Reply: the names of the indexes that the user may read, sorted.
///
/// # Errors
/// None of its own.
pub(crate) fn list(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let mut names: Vec<Vec<u8>> = search.trigrams.indexes.read().keys().cloned().collect();
    names.retain(|name| call.may_read(name));
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

/// `RX.INDEX INFO name`. Reply: a map with the coverage, the size and the progress of the index.
///
/// # Errors
/// When there is no such index.
pub(crate) fn info(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    search.drain(call.now_ms);
    let entry =
        search.trigrams.indexes.read().get(call.args.at(2)).cloned().ok_or(SearchError::UnknownIndex)?;
    // Sums and counts reveal something about each document. The fewer documents there are, the more they reveal.
    if !call.may_read_all(&entry.index.prefix) {
        return Err(SearchError::NoIndexPermission);
    }
    let (index, f, is_whole) = (&entry.index, entry.index.figures(), entry.is_whole());
    call.reply.map(10);
    call.reply.bulk(b"prefix");
    call.reply.bulk(&index.prefix);
    call.reply.bulk(b"field");
    match &index.field {
        Some(field) => call.reply.bulk(field),
        None => call.reply.null(),
    }
    for (name, n) in [
        ("documents", f.documents as u64),
        ("text_bytes", f.text_bytes),
        ("index_bytes", f.bytes as u64),
        ("segments", f.segments as u64),
        ("tail_documents", f.tail_documents as u64),
        ("dead_documents", f.dead as u64),
        ("scanning", u64::from(!is_whole)),
        ("uses", index.uses.load(Relaxed)),
    ] {
        call.reply.bulk(name.as_bytes());
        call.reply.int(n as i64);
    }
    Ok(())
}

fn unknown(call: &LaneCall<'_>, at: usize) -> SearchError {
    SearchError::Refused(format!("ERR Unknown argument `{}`", lossy(call.args.at(at))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn info_waits_for_no_lock_of_an_index() {
        let search = Search::new(Arc::new(Keyspace::new(8, 16, [1, 2, 3, 4])));
        let entry =
            TrigramIndexEntry::new(TrigramIndex::new(Vec::new(), None, search.trigrams.totals.clone()));
        search.trigrams.put(
            &entry,
            &search.keyspace,
            b"key",
            Haystack::Text("some text".as_bytes().into()),
            0,
        );
        let before = (search.info(), search.trigrams_bytes());
        assert!(before.1 > 0);
        let _held = (entry.index.lock_all(), entry.scan.lock(), search.follow.lock());
        let _held = (search.trigrams.indexes.write(), search.trigrams.scratch.lock());
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = search.clone();
        // Run this on a thread of its own. A thread that never returns is abandoned.
        std::thread::spawn(move || sender.send((other.info(), other.trigrams_bytes())));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(before));
    }
}
