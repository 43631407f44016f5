//! Follows the keyspace: reads touched keys again and updates the indexes, so a search sees every write that was
//! acknowledged before it.
//!
//! A write notes its key in the shard while it holds the shard's lock, before its reply is sent. A search takes the
//! notes of all shards under the *follow lock* ([`Search::drain`]). A thread that held the follow lock earlier has
//! already passed its notes to the index writers. The search then commits the index that it reads, so no acknowledged
//! write is missing.
//!
//! Keys are read in slices of [`READ_KEYS_MAX`] under their shard's lock. Values in blobs are shared, not copied. A
//! new index first scans the keyspace, a slice at a time, under the follow lock.

use crate::document::DocumentValues;
use crate::error::SearchError;
use crate::grep::copy_haystack;
use crate::index::TextIndex;
use crate::meter::StopReason;
use crate::pace::Pace;
use crate::service::{Search, TextIndexEntry};
use crate::trigram::TrigramIndexEntry;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};
use strand_chain::Blob;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Key, RecordRef, ScanCursor, ValueRef};

/// Maximum number of keys read while a shard is locked once.
const READ_KEYS_MAX: usize = 64;
/// Number of records that one slice of a first scan visits while a shard is locked once.
const SCAN_RECORDS: usize = 128;
/// Maximum number of fields read while a shard is locked once, but all fields of one key are read. Each field of a packed
/// hash costs a walk over the hash.
const READ_FIELDS_MAX: usize = 1024;
/// Time for a first scan after which the follow lock is released for other threads.
pub(crate) const SCAN_TIME: Duration = Duration::from_millis(20);
/// Maximum time for which one background tick passes changed keys to the indexes. The rest is left to the next tick.
const TICK_DRAIN: Duration = Duration::from_millis(100);
/// The background waits at most this long for a search that has the follow lock.
const LOCK_WAIT: Duration = Duration::from_millis(500);
/// Maximum time that one background tick spends on first scans.
const TICK_SCAN: Duration = Duration::from_millis(100);
/// Maximum time that one background tick spends on the merges of a trigram index, besides the merge that it has begun.
const TICK_MERGE: Duration = Duration::from_millis(500);
/// After merging for this long, the background looks at the changed keys. A merge of a large index takes seconds, and
/// writers may wait for the indexes.
const MERGE_PART: Duration = Duration::from_millis(60);
/// After this many milliseconds the background commits changes that no search has committed.
const COMMIT_INTERVAL_MS: i64 = 1000;

/// The state that the follow lock protects. The thread that holds the lock drains the shards.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// The shard at which the background drain continues.
    next_shard: usize,
    pace: Pace,
}

/// Progress of an index's first scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// The cursor to continue from, and the number of keys visited so far.
    At(ScanCursor, usize),
    /// All keys are in the index.
    Done,
}

impl Search {
    /// Passes the touched keys of all shards to the index writers.
    pub(crate) fn drain(&self, now_ms: i64) {
        let begun = self.drains_begun.load(SeqCst);
        let mut follow = self.follow.lock();
        // While this call waited, another one may have begun and ended. Many searches at a time then wait no longer than
        // two: each takes as long as writers may be ahead.
        if self.drains_begun.load(SeqCst) == begun {
            self.drains_begun.store(begun + 1, SeqCst);
            self.drain_locked(&mut follow, now_ms, usize::MAX);
        }
    }

    /// Does what [`Search::drain`] does, for a caller that holds the follow lock. Stops after about `bytes_max` bytes of
    /// changed keys.
    pub(crate) fn drain_locked(&self, follow: &mut Follow, now_ms: i64, bytes_max: usize) {
        follow.pace.note(0, 0, Duration::from_micros(self.merges_us.swap(0, Relaxed)));
        // Read the number of flushes before the shards are drained, so that a flush during this drain is left to the
        // next drain.
        let flushes = self.keyspace.flushes(0);
        let shards = self.keyspace.shards();
        let (mut taken, mut bytes, mut visited, mut flushed) = (Vec::new(), 0, 0, false);
        // Take the keys of all shards before the first key is indexed: what is written from now on is left to the next
        // drain.
        while visited < shards && bytes < bytes_max {
            let shard = follow.next_shard;
            follow.next_shard = (shard + 1) % shards;
            let touched = self.keyspace.take_touched(shard);
            visited += 1;
            flushed |= touched.flushed;
            bytes += touched.bytes;
            if !touched.keys.is_empty() {
                taken.push((shard, touched));
            }
        }
        if flushed {
            // Like RediSearch, drop the indexes of an emptied database.
            self.drop_all();
        }
        let (entries, trigrams) = (self.entries(), self.trigrams.entries());
        let entries: Vec<&TextIndexEntry> = entries.iter().map(|entry| &**entry).collect();
        for (shard, touched) in taken {
            let begun = Instant::now();
            let text_bytes = self.index_keys(&entries, shard, &touched.keys, now_ms);
            self.trigram_keys(&trigrams, shard, &touched.keys, now_ms);
            follow.pace.note(touched.bytes, text_bytes, begun.elapsed());
            self.keyspace.set_touched_bytes_max(follow.pace.waiting_bytes_max());
        }
        if visited == shards {
            self.flushes_seen.store(flushes, Relaxed);
        }
    }

    /// Drops the indexes of a flushed database. This is enough for a command that reads no index. Such a command does
    /// not wait until keys are indexed or another index is committed.
    pub(crate) fn notice_flush(&self, now_ms: i64) {
        if self.has_unseen_flush() {
            self.drain(now_ms);
        }
    }
    /// True when database 0 was emptied since the last drain. The next drain drops the indexes.
    pub(crate) fn has_unseen_flush(&self) -> bool {
        self.keyspace.flushes(0) != self.flushes_seen.load(Relaxed)
    }

    /// Brings `entry` up to date: finishes its first scan and makes all acknowledged writes visible. `check` fails when the
    /// request must stop.
    pub(crate) fn catch_up(
        &self,
        entry: &TextIndexEntry,
        now_ms: i64,
        check: &dyn Fn() -> Result<(), StopReason>,
    ) -> Result<(), SearchError> {
        loop {
            {
                let mut follow = self.follow.lock();
                let begun = Instant::now();
                if self.scan_slices(entry, now_ms) == Scan::Done {
                    self.read_due(entry, now_ms);
                    break;
                }
                // Writers wait while many changed keys wait, and must not wait for the whole scan. So the changed keys get
                // half of the time.
                let bytes_max = follow.pace.bytes_within(begun.elapsed());
                self.drain_locked(&mut follow, now_ms, bytes_max);
            }
            check()?;
            // Other threads, such as the one with the background work, take the lock between two slices.
            std::thread::yield_now();
        }
        entry.index.refresh(now_ms)
    }

    /// One tick of the background work: a bounded drain, a part of each first scan, merges, and commits of old changes.
    /// True when work is left, so that the next tick should follow at once.
    pub(crate) fn tick_follow(&self, now_ms: i64) -> bool {
        let (entries, trigrams) = (self.entries(), self.trigrams.entries());
        if entries.is_empty() && trigrams.is_empty() {
            return false;
        }
        let start = Instant::now();
        let mut is_behind = loop {
            // Between two parts, a search gets the lock.
            let Some(mut follow) = self.follow.try_lock_for(LOCK_WAIT) else { break false };
            let part = follow.pace.part_bytes();
            self.drain_locked(&mut follow, now_ms, part);
            let left = self.keyspace.touched_bytes();
            if left <= part || start.elapsed() > TICK_DRAIN {
                self.rebuild_mostly_dead();
                break left > part;
            }
        };
        // `trigrams` and `entries` are the indexes that existed before the drain. A new index is scanned at the next
        // tick.
        for entry in &trigrams {
            let scan = || self.scan_trigrams(entry, now_ms);
            is_behind |= self.continue_scan(Instant::now(), &|| entry.is_whole(), &scan);
            is_behind |= self.merge_trigrams(entry, now_ms);
        }
        let start = Instant::now();
        for entry in &entries {
            let is_done = || *entry.scan.lock() == Scan::Done;
            let scan = || {
                self.scan_slices(entry, now_ms);
            };
            self.continue_scan(start, &is_done, &scan);
            // The index remembers this failure, and the next search rebuilds the index.
            let _ = entry.index.refresh_if_old(now_ms, COMMIT_INTERVAL_MS);
            let _ = entry.index.follow_merges();
        }
        is_behind
    }

    /// Continues a first scan, in parts under the follow lock, until [`TICK_SCAN`] after `begun`. True when the scan is not
    /// complete.
    fn continue_scan(&self, begun: Instant, is_done: &dyn Fn() -> bool, scan_part: &dyn Fn()) -> bool {
        while !is_done() {
            if begun.elapsed() >= TICK_SCAN {
                return true;
            }
            let Some(_follow) = self.follow.try_lock_for(LOCK_WAIT) else { return true };
            scan_part();
        }
        false
    }
    /// Merges segments of a trigram index. Every drain makes segments, so the time for merges is a part of the pace. True
    /// when another merge may be due.
    fn merge_trigrams(&self, entry: &TrigramIndexEntry, now_ms: i64) -> bool {
        let begun = Instant::now();
        let (part_begun, drained) = (Cell::new(begun), Cell::new(Duration::ZERO));
        let pause = || {
            std::thread::yield_now();
            if part_begun.get().elapsed() < MERGE_PART {
                return;
            }
            let drain_begun = Instant::now();
            if let Some(mut follow) = self.follow.try_lock() {
                let part = follow.pace.part_bytes();
                self.drain_locked(&mut follow, now_ms, part);
            }
            drained.set(drained.get() + drain_begun.elapsed());
            part_begun.set(Instant::now());
        };
        let is_behind = loop {
            match entry.index.merge_some(&pause) {
                false => break false,
                true if begun.elapsed() > TICK_MERGE => break true,
                true => {}
            }
        };
        let merging = begun.elapsed().saturating_sub(drained.get());
        self.merges_us.fetch_add(merging.as_micros() as u64, Relaxed);
        is_behind
    }

    /// Runs some slices of a first scan. The caller holds the follow lock, so a record read here cannot overwrite a
    /// newer one from a drain.
    fn scan_slices(&self, entry: &TextIndexEntry, now_ms: i64) -> Scan {
        let mut scan = entry.scan.lock();
        let records_max = keys_per_lock(entry.index.schema.fields.len(), SCAN_RECORDS);
        let begun = Instant::now();
        // The documents may be large.
        let mut records = 1;
        while begun.elapsed() < SCAN_TIME {
            let slice_begun = Instant::now();
            let Scan::At(cursor, mut visited) = *scan else { break };
            let mut found: Vec<(Vec<u8>, DocumentValues)> = Vec::new();
            let next = self.keyspace.scan(0, cursor, records, now_ms, &mut |record| {
                visited += 1;
                if entry.index.schema.follows(record.key())
                    // A key that was written since the index exists is indexed already, or waits to be indexed again.
                    && !entry.index.is_known(&self.keyspace.key(record.key()))
                    && let Some(source) = read(&entry.index, record)
                {
                    found.push((record.key().to_vec(), source));
                }
            });
            for (key, source) in &found {
                entry.index.put(&self.keyspace.key(key), source);
            }
            *scan = if next == 0 { Scan::Done } else { Scan::At(next, visited) };
            if slice_begun.elapsed() < SCAN_TIME / 8 {
                records = (records * 2).min(records_max);
            }
        }
        *scan
    }

    /// Reads the documents again of which a field has expired. Usually the expiry itself has removed the field and
    /// noted the key before. It does not while clients are paused. The caller holds the follow lock.
    fn read_due(&self, entry: &TextIndexEntry, now_ms: i64) {
        for key in entry.index.take_due(now_ms) {
            let shard = self.keyspace.shard_of(self.keyspace.key(&key).hash);
            self.index_keys(&[entry], shard, &[key], now_ms);
        }
    }

    /// Reads `keys` of one shard and updates every text index that follows them. Returns the bytes of the indexed texts.
    fn index_keys<K: AsRef<[u8]>>(
        &self,
        entries: &[&TextIndexEntry],
        shard: usize,
        keys: &[K],
        now_ms: i64,
    ) -> usize {
        let mut text_bytes = 0;
        if entries.is_empty() {
            return text_bytes;
        }
        let fields = entries.iter().map(|entry| entry.index.schema.fields.len()).sum();
        for slice in keys.chunks(keys_per_lock(fields, READ_KEYS_MAX)) {
            let mut jobs: Vec<(&TextIndex, Key<'_>, Option<DocumentValues>)> =
                Vec::with_capacity(slice.len());
            {
                let mut locked = self.keyspace.lock_shard(shard, now_ms);
                let mut db = locked.db(0);
                for key in slice {
                    let key = self.keyspace.key(key.as_ref());
                    let record = db.peek(&key);
                    for entry in entries.iter().filter(|e| e.index.schema.follows(key.bytes)) {
                        jobs.push((&entry.index, key, record.and_then(|r| read(&entry.index, r))));
                    }
                }
            }
            for (index, key, source) in jobs {
                match source {
                    Some(source) => text_bytes += index.put(&key, &source),
                    None => index.delete(&key),
                }
            }
        }
        text_bytes
    }
}

impl Search {
    /// Reads `keys` of one shard and updates every trigram index that covers them.
    fn trigram_keys(&self, entries: &[Arc<TrigramIndexEntry>], shard: usize, keys: &[Vec<u8>], now_ms: i64) {
        if entries.is_empty() {
            return;
        }
        for slice in keys.chunks(READ_KEYS_MAX) {
            let mut jobs = Vec::with_capacity(slice.len());
            {
                let mut locked = self.keyspace.lock_shard(shard, now_ms);
                let mut db = locked.db(0);
                for key in slice {
                    let record = db.peek(&self.keyspace.key(key));
                    for entry in entries.iter().filter(|e| key.starts_with(&e.index.prefix)) {
                        jobs.push((
                            entry,
                            key,
                            record.and_then(|r| copy_haystack(r, entry.index.field.as_deref())),
                        ));
                    }
                }
            }
            for (entry, key, haystack) in jobs {
                match haystack {
                    Some(haystack) => self.trigrams.put(entry, &self.keyspace, key, haystack, now_ms),
                    None => entry.index.delete(key),
                }
            }
        }
    }
}

/// Number of keys that are read while a shard is locked once, when `fields` fields of each are read: at most `keys_max`.
fn keys_per_lock(fields: usize, keys_max: usize) -> usize {
    (READ_FIELDS_MAX / fields.max(1)).clamp(1, keys_max)
}

/// Reads the fields that `index` needs from `record`; `None` when the record is not a hash.
fn read(index: &TextIndex, record: RecordRef<'_>) -> Option<DocumentValues> {
    let ValueRef::Hash(hash) = record.value() else { return None };
    let fields = index.schema.fields.iter().map(|field| &field.identifier);
    let values: Vec<_> = fields.clone().map(|field| hash.get(field).map(to_blob)).collect();
    let present = fields.zip(&values).filter(|(_, value)| value.is_some());
    let field_expires_at_ms = present.filter_map(|(field, _)| hash.expiry_ms(field).flatten()).min();
    Some(DocumentValues { expire_at_ms: record.expire_at_ms(), field_expires_at_ms, values })
}

/// Shares the bytes of a blob and copies the bytes of a packed value.
pub(crate) fn to_blob(bytes: Bytes<'_>) -> Blob {
    match bytes {
        Bytes::Slice(s) => Blob::from(s),
        Bytes::Shared(b) => b.clone(),
    }
}

#[test]
fn many_fields_mean_few_keys_per_lock() {
    let keys = [0, 1, 8, 9, 100, 1024, 64 * 1024].map(|fields| keys_per_lock(fields, SCAN_RECORDS));
    assert_eq!(keys, [128, 128, 128, 113, 10, 1, 1]);
}
