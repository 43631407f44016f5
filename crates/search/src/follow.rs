//! Following the keyspace: touched keys are read again and put into the indexes, so that a search sees every write
//! that was acknowledged before it.
//!
//! A write notes its key in its shard while it holds the shard's lock, so before its reply. A search first takes the
//! notes of all shards under one lock of ours ([`Search::drain`]), and whoever held that lock before has put what it
//! took into the writers; then it commits the index it reads. So nothing acknowledged can be missing. Keys are read in
//! slices of [`READ_KEYS_MAX`] under their shard's lock; values that lie in blobs of their own are shared, not copied.
//! A new index first scans the keyspace, a slice at a time, under the same lock.

use crate::error::SearchError;
use crate::grep::hold;
use crate::index::{Index, Source};
use crate::service::{Entry, Search};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use strand_chain::Blob;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Key, RecordRef, ScanCursor, ValueRef};

/// Keys read under one hold of a shard's lock.
const READ_KEYS_MAX: usize = 64;
/// Records visited by one slice of a new index's first scan (one hold of a shard's lock).
const SCAN_RECORDS: usize = 128;
/// Slices of a first scan that are done before our own lock is given to others.
const SCAN_SLICES: usize = 16;
/// How long the background scans for new indexes at a time.
const TICK_SCAN: Duration = Duration::from_millis(20);
/// Keys that the background drain takes at a time.
const TICK_KEYS_MAX: usize = 20_000;
/// How long changes wait for a search before the background commits them.
const COMMIT_INTERVAL_MS: i64 = 1000;

/// The state of following; whoever holds its lock is the one that drains.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// Where the background drain goes on.
    next_shard: usize,
}

/// How far an index's first scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// Going on from here; keys visited so far.
    At(ScanCursor, usize),
    /// All keys are in the index.
    Done,
}

impl Search {
    /// Takes the touched keys of all shards into the writers.
    pub(crate) fn drain(&self, now_ms: i64) {
        let mut follow = self.follow.lock();
        self.drain_held(&mut follow, now_ms, usize::MAX);
    }

    /// As [`Search::drain`] for who holds the lock: stops after about `keys_max` keys.
    pub(crate) fn drain_held(&self, follow: &mut Follow, now_ms: i64, keys_max: usize) {
        // Before the shards are asked: a flush while this runs is left for the next time.
        let flushes = self.keyspace.flushes();
        let shards = self.keyspace.shards();
        let mut indexes = self.entries();
        let mut keys = 0;
        let follows_trigrams = self.trigrams.len() > 0;
        for _ in 0..shards {
            if keys >= keys_max {
                return;
            }
            let shard = follow.next_shard;
            follow.next_shard = (shard + 1) % shards;
            let touched = self.keyspace.take_touched(shard);
            if touched.flushed {
                // As in RediSearch: an emptied database has no indexes.
                self.drop_all();
                indexes.clear();
            }
            keys += touched.keys.len();
            if !indexes.is_empty() {
                self.index_keys(&indexes, shard, &touched.keys, now_ms);
            }
            if follows_trigrams {
                self.trigram_keys(shard, &touched.keys, now_ms);
            }
        }
        self.flushes_seen.store(flushes, Relaxed);
    }

    /// Drops the indexes of a flushed database. All that a command needs which reads no index: it does not wait for keys
    /// to be indexed, or for another index to be committed.
    pub(crate) fn notice_flush(&self, now_ms: i64) {
        if self.keyspace.flushes() != self.flushes_seen.load(Relaxed) {
            self.drain(now_ms);
        }
    }

    /// Brings `entry` up to date: its first scan is finished, all acknowledged writes are visible.
    pub(crate) fn catch_up(
        &self,
        entry: &Entry,
        now_ms: i64,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), SearchError> {
        loop {
            {
                let _follow = self.follow.lock();
                if self.scan_slices(entry, now_ms) == Scan::Done {
                    break;
                }
            }
            if cancelled() {
                return Err(SearchError::Cancelled);
            }
            // Others (and the background) get their turn between slices.
            std::thread::yield_now();
        }
        entry.index.refresh(now_ms)
    }

    /// The background's share: a bounded drain, a part of each first scan, commits of what waited long. Does nothing
    /// where a search is at it already.
    pub(crate) fn tick_follow(&self, now_ms: i64) {
        let (entries, trigrams) = (self.entries(), self.trigrams.entries());
        if entries.is_empty() && trigrams.is_empty() {
            return;
        }
        if let Some(mut follow) = self.follow.try_lock() {
            self.drain_held(&mut follow, now_ms, TICK_KEYS_MAX);
            self.renew_worn();
        }
        let start = Instant::now();
        // Those that the drain left in place; a new one has its turn at the next tick.
        for entry in &trigrams {
            while start.elapsed() < TICK_SCAN {
                match self.follow.try_lock() {
                    Some(_follow) if self.scan_trigrams(entry, now_ms) => {}
                    _ => break,
                }
            }
            entry.index.merge_some(&std::thread::yield_now);
        }
        let start = Instant::now();
        for entry in &entries {
            while *entry.scan.lock() != Scan::Done && start.elapsed() < TICK_SCAN {
                match self.follow.try_lock() {
                    Some(_follow) => self.scan_slices(entry, now_ms),
                    None => break,
                };
            }
            // A failure is remembered by the index, and the next search builds it again.
            let _ = entry.index.refresh_if_old(now_ms, COMMIT_INTERVAL_MS);
        }
    }

    /// Some slices of the first scan. The caller holds the lock of following: a record read here cannot overwrite a
    /// newer one that a drain puts in.
    fn scan_slices(&self, entry: &Entry, now_ms: i64) -> Scan {
        let mut scan = entry.scan.lock();
        for _ in 0..SCAN_SLICES {
            let Scan::At(cursor, mut visited) = *scan else { break };
            let mut found: Vec<(Vec<u8>, Source)> = Vec::new();
            let next = self.keyspace.scan(0, cursor, SCAN_RECORDS, now_ms, &mut |record| {
                visited += 1;
                if entry.index.schema.follows(record.key())
                    && let Some(source) = read(&entry.index, record)
                {
                    found.push((record.key().to_vec(), source));
                }
            });
            for (key, source) in &found {
                entry.index.put(&self.keyspace.key(key), source);
            }
            *scan = if next == 0 { Scan::Done } else { Scan::At(next, visited) };
        }
        *scan
    }

    /// Reads `keys` of one shard and brings them into every index that follows them.
    fn index_keys(&self, entries: &[Arc<Entry>], shard: usize, keys: &[Vec<u8>], now_ms: i64) {
        for slice in keys.chunks(READ_KEYS_MAX) {
            let mut jobs: Vec<(&Index, Key<'_>, Option<Source>)> = Vec::with_capacity(slice.len());
            {
                let mut locked = self.keyspace.lock_shard(shard, now_ms);
                let mut db = locked.db(0);
                for key in slice {
                    let key = self.keyspace.key(key);
                    let record = db.peek(&key);
                    for entry in entries.iter().filter(|e| e.index.schema.follows(key.bytes)) {
                        jobs.push((&entry.index, key, record.and_then(|r| read(&entry.index, r))));
                    }
                }
            }
            for (index, key, source) in jobs {
                match source {
                    Some(source) => index.put(&key, &source),
                    None => index.delete(&key),
                }
            }
        }
    }
}

impl Search {
    /// Reads `keys` of one shard into every trigram index that covers them.
    fn trigram_keys(&self, shard: usize, keys: &[Vec<u8>], now_ms: i64) {
        let entries = self.trigrams.entries();
        for slice in keys.chunks(READ_KEYS_MAX) {
            let mut jobs = Vec::with_capacity(slice.len());
            {
                let mut locked = self.keyspace.lock_shard(shard, now_ms);
                let mut db = locked.db(0);
                for key in slice {
                    let record = db.peek(&self.keyspace.key(key));
                    for entry in entries.iter().filter(|e| key.starts_with(&e.index.prefix)) {
                        jobs.push((entry, key, record.and_then(|r| hold(r, entry.index.field.as_deref()))));
                    }
                }
            }
            for (entry, key, held) in jobs {
                match held {
                    Some(held) => self.trigrams.put(entry, &self.keyspace, key, held, now_ms),
                    None => entry.index.delete(key),
                }
            }
        }
    }
}

/// What `record` holds for `index`; `None` when it is no hash.
fn read(index: &Index, record: RecordRef<'_>) -> Option<Source> {
    let ValueRef::Hash(hash) = record.value() else { return None };
    let values = index.schema.fields.iter().map(|f| hash.get(&f.identifier).map(to_blob)).collect();
    Some(Source { expire_at_ms: record.expire_at_ms(), values })
}

/// Shares a blob, copies a slice of a packed value.
pub(crate) fn to_blob(bytes: Bytes<'_>) -> Blob {
    match bytes {
        Bytes::Slice(s) => Blob::from(s),
        Bytes::Shared(b) => b.clone(),
    }
}
