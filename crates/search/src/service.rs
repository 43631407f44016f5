//! [`Search`]: the service that runs the commands of this crate.

use crate::buffers::Buffers;
use crate::definitions::{Words, words};
use crate::directory::Directories;
use crate::error::{SearchError, lossy};
use crate::follow::{Follow, Scan};
use crate::grep::GrepCounters;
use crate::index::TextIndex;
use crate::pace::Pace;
use crate::schema::Schema;
use crate::trigram::{self, Trigrams};
use crate::versions::KeptVersion;
use crate::{exec, info, rx};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strand_commands::call::{LaneCall, ServiceOutcome};
use strand_keyspace::journal::Arg;
use strand_keyspace::{KeyEvent, Keyspace, TRACKED_PREFIXES_MAX, ValueRef};
use strand_wire::reply::Reply;

/// Maximum number of text indexes. Each has a writer thread, a merge thread and their buffers.
pub const INDEXES_MAX: usize = 64;

/// Maximum number of prefixes of all text indexes together. The keyspace tracks a limited number, and each trigram
/// index needs one.
pub(crate) const PREFIXES_IN_ALL_MAX: usize = TRACKED_PREFIXES_MAX - trigram::INDEXES_MAX;
/// Longest name of a text index, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Keys that FT.DROPINDEX DD deletes between two checks for cancellation.
const DELETE_KEYS_SLICE: usize = 256;

/// The service behind `FT.*` and `RX.*`. Created once and shared by all helper threads.
#[derive(Debug)]
pub struct Search {
    pub(crate) keyspace: Arc<Keyspace>,
    indexes: RwLock<BTreeMap<Vec<u8>, Arc<TextIndexEntry>>>,
    pub(crate) follow: Mutex<Follow>,
    /// Number of calls of [`Search::drain`] that have begun to read all shards. Changed under the follow lock.
    pub(crate) drains_begun: AtomicU64,
    /// Time for merges of trigram segments that the pace of the indexes does not know yet, in microseconds.
    pub(crate) merges_us: AtomicU64,
    pub(crate) buffers: Arc<Buffers>,
    directories: Arc<Directories>,
    pub(crate) grep: GrepCounters,
    pub(crate) regexes: rx::Registry,
    pub(crate) streams: rx::Streams,
    pub(crate) trigrams: Trigrams,
    /// Bytes held by running requests, see [`crate::meter::Meter`].
    pub(crate) requests_bytes: Arc<AtomicU64>,
    /// [`Keyspace::flushes`] as read before the last drain of all shards.
    pub(crate) flushes_seen: AtomicU64,
}

/// A text index and the progress of its first scan.
#[derive(Debug)]
pub(crate) struct TextIndexEntry {
    pub(crate) index: TextIndex,
    pub(crate) scan: Mutex<Scan>,
    /// Versions of datasets that can still be searched, the newest last.
    pub(crate) kept: Mutex<Vec<KeptVersion>>,
    /// The FT.CREATE command that creates the index anew: the given one without SKIPINITIALSCAN.
    definition: Arc<Words>,
}

impl TextIndexEntry {
    fn new(index: TextIndex, scan: Scan, definition: Arc<Words>) -> TextIndexEntry {
        TextIndexEntry { index, scan: Mutex::new(scan), kept: Mutex::default(), definition }
    }
}

impl Search {
    /// A service without indexes over `keyspace`.
    pub fn new(keyspace: Arc<Keyspace>) -> Arc<Search> {
        keyspace.set_touched_bytes_max(Pace::default().waiting_bytes_max());
        Arc::new(Search {
            keyspace,
            indexes: RwLock::default(),
            follow: Mutex::default(),
            drains_begun: AtomicU64::new(0),
            merges_us: AtomicU64::new(0),
            buffers: Arc::default(),
            directories: Arc::default(),
            grep: GrepCounters::default(),
            regexes: rx::Registry::default(),
            streams: rx::Streams::default(),
            trigrams: Trigrams::default(),
            requests_bytes: Arc::default(),
            flushes_seen: AtomicU64::new(0),
        })
    }

    /// Frees everything kept for a client that has disconnected.
    pub fn client_gone(&self, client: u64) {
        self.streams.client_gone(client);
    }

    /// Runs the background work: some milliseconds while little changes, a second for each trigram index beside fast
    /// writers, and longer for the merge of a large one. Call it about ten times per second on a helper thread. `now_ms`
    /// is unix milliseconds. True when work is left, so that the next call should follow at once: writers may wait for it.
    pub fn tick(&self, now_ms: i64) -> bool {
        let is_behind = self.tick_follow(now_ms);
        self.regexes.tick();
        self.streams.tick();
        is_behind
    }

    /// Adapts the memory of documents on their way into the indexes to `maxmemory`, in bytes. 0: no limit.
    pub fn set_memory_limit(&self, limit_bytes: u64) {
        self.buffers.set_memory_limit(limit_bytes);
    }

    /// Drops what only makes searches faster: the caches of pattern sets. Call it on a helper thread.
    pub fn shrink_caches(&self) {
        self.regexes.shrink();
    }

    /// The lines of INFO: name and value.
    pub fn info(&self) -> Vec<(String, String)> {
        info::lines(self)
    }

    /// Bytes of all text indexes: segments, those of kept versions too, sets of keys, documents that are on their way into
    /// the indexes, and what is left of dropped indexes.
    pub fn indexes_bytes(&self) -> u64 {
        let texts = self.entries();
        let texts =
            texts.iter().map(|e| (e.index.segment_bytes() + e.index.key_set_bytes()) as u64 + e.kept_bytes());
        texts.sum::<u64>() + self.buffered_bytes() + self.directories.dropped_bytes() as u64
    }

    /// Bytes of documents that are on their way into the text indexes (estimated). The next commits free them.
    fn buffered_bytes(&self) -> u64 {
        self.buffers.bytes() as u64
    }

    /// Bytes that the indexes free by themselves (estimated): documents on their way into a text index, deleted documents
    /// that the next merges drop, merges, and dropped indexes. No eviction frees them.
    pub fn passing_bytes(&self) -> u64 {
        self.buffered_bytes() + self.directories.passing_bytes() as u64 + self.trigrams.passing_bytes()
    }

    /// Bytes of all trigram indexes.
    pub fn trigrams_bytes(&self) -> u64 {
        self.trigrams.bytes()
    }

    /// Bytes of compiled regular expressions and of the caches of their searches: sets of patterns, streams, and
    /// running greps.
    pub fn regexes_bytes(&self) -> u64 {
        self.grep.cache_bytes.load(Ordering::Relaxed) + self.regexes.bytes() + self.streams.bytes()
    }

    /// Bytes of running text searches: planned queries and results.
    pub fn requests_bytes(&self) -> u64 {
        self.requests_bytes.load(Ordering::Relaxed)
    }

    /// All text indexes, sorted by name.
    pub(crate) fn entries(&self) -> Vec<Arc<TextIndexEntry>> {
        self.indexes.read().values().cloned().collect()
    }
    /// The index called `name`.
    pub(crate) fn entry(&self, name: &[u8]) -> Option<Arc<TextIndexEntry>> {
        self.indexes.read().get(name).cloned()
    }
    /// The index called `name`. If the library has failed in this index, an empty index first replaces it, and scans
    /// the keyspace again.
    pub(crate) fn healthy_entry(&self, name: &[u8]) -> Result<Option<Arc<TextIndexEntry>>, SearchError> {
        let Some(entry) = self.entry(name) else { return Ok(None) };
        if !entry.index.has_failed() {
            return Ok(Some(entry));
        }
        let index = self.new_index(name, entry.index.schema.clone())?;
        let definition = entry.definition.clone();
        let fresh = Arc::new(TextIndexEntry::new(index, Scan::At(0, 0), definition));
        let _follow = self.follow.lock();
        let mut indexes = self.indexes.write();
        Ok(indexes.get_mut(name).map(|now| {
            // Another search may have replaced it already.
            if Arc::ptr_eq(now, &entry) {
                now.index.set_dropped();
                *now = fresh;
            }
            now.clone()
        }))
    }
    fn new_index(&self, name: &[u8], schema: Schema) -> Result<TextIndex, SearchError> {
        TextIndex::new(name.to_vec(), schema, self.buffers.clone(), self.directories.clone())
    }
    /// Drops every text index and empties the trigram indexes. Called when database 0 was emptied or swapped.
    pub(crate) fn drop_all(&self) {
        let dropped = std::mem::take(&mut *self.indexes.write());
        dropped.values().for_each(|entry| entry.index.set_dropped());
        self.trigrams.rebuild_all();
        if !dropped.is_empty() {
            self.track();
        }
    }

    /// See [`Search::definitions`].
    pub(crate) fn text_definitions(&self) -> Vec<Arc<Words>> {
        // The next drain drops the indexes of a database 0 that was emptied.
        if self.has_unseen_flush() {
            return Vec::new();
        }
        self.indexes.read().values().map(|entry| entry.definition.clone()).collect()
    }

    pub(crate) fn create(&self, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
        check_arity(call, 3)?;
        if call.db != 0 {
            return Err(SearchError::refused("Cannot create index on db != 0"));
        }
        let name = call.args.at(1);
        if name.len() > NAME_BYTES_MAX {
            let text = format!("ERR The name must have at most {NAME_BYTES_MAX} bytes");
            return Err(SearchError::Refused(text));
        }
        let schema = {
            // An existing index is reported before a schema that does not parse, as in RediSearch.
            self.notice_flush(call.now_ms);
            if self.entry(name).is_some() {
                return Err(SearchError::IndexExists);
            }
            Schema::parse(call.args)?
        };
        if !schema.prefixes.iter().all(|prefix| call.may_read_all(prefix)) {
            return Err(SearchError::NoKeyPermission);
        }
        let scan = if schema.skips_initial_scan.is_empty() { Scan::At(0, 0) } else { Scan::Done };
        let given = words(call.args);
        let mut definition = given.clone();
        schema.skips_initial_scan.iter().rev().for_each(|at| drop(definition.remove(*at)));
        let index = self.new_index(name, schema)?;
        let mut follow = self.follow.lock();
        {
            // A flush needs all shards, so while one shard is held, the journal gets no flush. A flush that is in the
            // journal before this command must not drop the index, and one behind this command must.
            let mut held = self.keyspace.lock_shard(0, call.now_ms);
            while self.has_unseen_flush() {
                drop(held);
                self.drain_locked(&mut follow, call.now_ms, usize::MAX);
                held = self.keyspace.lock_shard(0, call.now_ms);
            }
            let mut indexes = self.indexes.write();
            if indexes.contains_key(name) {
                return Err(SearchError::IndexExists);
            }
            if indexes.len() == INDEXES_MAX {
                return Err(SearchError::TooManyIndexes(INDEXES_MAX));
            }
            let others: usize = indexes.values().map(|e| e.index.schema.prefixes.len()).sum();
            if others + index.schema.prefixes.len() > PREFIXES_IN_ALL_MAX {
                return Err(SearchError::TooManyPrefixes(PREFIXES_IN_ALL_MAX));
            }
            self.record(&given);
            indexes.insert(name.to_vec(), Arc::new(TextIndexEntry::new(index, scan, Arc::new(definition))));
            drop(indexes);
            held.track(&self.prefixes());
        }
        // Tracking starts before the scan, so that no write between the two is missed.
        self.track();
        call.reply.ok();
        Ok(())
    }

    pub(crate) fn drop_index(&self, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
        check_arity(call, 2)?;
        let delete = match call.args.get(2) {
            None => false,
            Some(w) if w.eq_ignore_ascii_case(b"DD") && call.args.len() == 3 => true,
            Some(w) => return Err(SearchError::refused(format!("Unknown argument `{}`", lossy(w)))),
        };
        self.notice_flush(call.now_ms);
        let name = call.args.at(1);
        let entry = self.healthy_entry(name)?.ok_or(SearchError::UnknownIndex)?;
        if !exec::may_read_all(&entry.index, call) {
            return Err(SearchError::NoIndexPermission);
        }
        // Like every write, the command runs to its end, also when its client is gone.
        if delete {
            self.drain(call.now_ms);
            self.catch_up(&entry, call.now_ms, &|| Ok(()))?;
        }
        {
            let _follow = self.follow.lock();
            let mut indexes = self.indexes.write();
            // Another client may have dropped and recreated the index meanwhile.
            if indexes.get(name).is_some_and(|e| Arc::ptr_eq(e, &entry)) {
                indexes.remove(name);
                entry.index.set_dropped();
                // With DD, each hash that is deleted below is a further command in the journal.
                self.record(&[b"FT.DROPINDEX".to_vec(), name.to_vec()]);
            }
            drop(indexes);
            self.track();
        }
        if delete {
            exec::each_slice_of_keys(&entry.index.searcher(), DELETE_KEYS_SLICE, |keys| {
                call.pause();
                self.delete_hashes(call, keys);
                true
            })?;
        }
        call.reply.ok();
        Ok(())
    }

    /// Deletes the hashes at `keys`. A hash that the user may not write is kept.
    fn delete_hashes(&self, call: &LaneCall<'_>, keys: &[Vec<u8>]) {
        for key in keys.iter().filter(|key| call.may_write(key)) {
            let key = self.keyspace.key(key);
            let mut txn = call.lock(&[key.hash]);
            txn.begin_command(|| (KeyEvent::NONE, false), true, call.client);
            if txn.db(0).peek(&key).is_some_and(|r| matches!(r.value(), ValueRef::Hash(_))) {
                txn.db(0).delete(&key);
                txn.effect(0, &[Arg::Bytes(b"DEL"), Arg::Bytes(key.bytes)]);
            }
        }
    }

    pub(crate) fn info_index(&self, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
        check_arity(call, 2)?;
        self.drain(call.now_ms);
        let entry = self.healthy_entry(call.args.at(1))?.ok_or(SearchError::UnknownIndex)?;
        if !exec::may_read_all(&entry.index, call) {
            return Err(SearchError::NoIndexPermission);
        }
        entry.index.refresh(call.now_ms)?;
        entry.index.counts.uses.fetch_add(1, Ordering::Relaxed);
        info::reply(self, &entry, call.reply);
        Ok(())
    }

    pub(crate) fn list(&self, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
        self.notice_flush(call.now_ms);
        let entries = self.entries();
        call.reply.set(entries.len());
        for entry in &entries {
            call.reply.bulk(&entry.index.name);
        }
        Ok(())
    }

    /// Sets the prefixes of the keys that the keyspace must note.
    pub(crate) fn track(&self) {
        let reads_values = self.trigrams.entries().iter().any(|entry| entry.index.field.is_none());
        self.keyspace.set_followers_read_hashes_only(!reads_values);
        self.keyspace.track(&self.prefixes());
    }
    /// The prefixes of all indexes.
    fn prefixes(&self) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> =
            self.entries().iter().flat_map(|e| e.index.schema.prefixes.iter().cloned()).collect();
        prefixes.extend(self.trigrams.entries().iter().map(|e| e.index.prefix.clone()));
        prefixes
    }
}

/// The arity error of a command whose table row promises at least `at_least` arguments.
pub(crate) fn check_arity(call: &LaneCall<'_>, at_least: usize) -> Result<(), SearchError> {
    if call.args.len() < at_least {
        let name = lossy(call.args.at(0)).to_lowercase();
        return Err(SearchError::refused(format!("ERR wrong number of arguments for '{name}' command")));
    }
    Ok(())
}

/// Refuses the name of a set or an index that the user may not change. Names are checked like keys.
///
/// # Errors
/// When the user may not change it.
pub(crate) fn check_may_change(call: &LaneCall<'_>, name: &[u8]) -> Result<(), SearchError> {
    if call.may_write(name) { Ok(()) } else { Err(SearchError::NoKeyPermission) }
}

/// Refuses the name of a set that the user may not use. Names are checked like keys.
///
/// # Errors
/// When the user may not use it.
pub(crate) fn check_may_use(call: &LaneCall<'_>, name: &[u8]) -> Result<(), SearchError> {
    if call.may_read(name) { Ok(()) } else { Err(SearchError::NoKeyPermission) }
}

/// Turns a command's result into its outcome. An error becomes the reply: it is always found before the first byte of
/// the reply is written.
pub(crate) fn finish(result: Result<(), SearchError>, call: &mut LaneCall<'_>) -> ServiceOutcome {
    match result {
        Ok(()) => ServiceOutcome::Done,
        Err(SearchError::MoveTo(place)) => place,
        Err(e) => {
            reply_error(call.reply, &e);
            ServiceOutcome::Done
        }
    }
}

fn reply_error(reply: &mut Reply<'_>, error: &SearchError) {
    reply.error(&error.to_string());
}
