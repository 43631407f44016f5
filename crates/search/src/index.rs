//! [`TextIndex`]: one text index with its schema, its tantivy segments in memory and its single writer.
//!
//! Each key is one document ([`crate::document`]). The column `key` identifies it, and the column `expire` hides it after
//! its expiry time. The index stores no values; they are read from the keyspace when a result is written.
//! [`TextIndex::put`] and [`TextIndex::delete`] buffer changes. [`TextIndex::refresh`] commits and so makes them visible.
//! Every search calls it first.

use crate::buffers::{Buffers, DOCUMENT_BYTES};
use crate::directory::{Directories, IndexDirectory};
use crate::document::{DocumentValues, Fields, INDEXED_KEY_BYTES_MAX, Unindexable};
use crate::due::DueDocuments;
use crate::error::{SearchError, lossy};
use crate::merges::{MergeState, Merges, SizedSegment};
use crate::query::of_key::OfKey;
use crate::queue::{Queue, QueuedDocument};
use crate::schema::Schema;
use crate::tokenizer::TextTokenizer;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use strand_keyspace::Key;
use tantivy::indexer::{IndexWriterOptions, NoMergePolicy};
use tantivy::{IndexReader, IndexSettings, IndexWriter, ReloadPolicy, Searcher, Term};

/// Maximum memory of an index's writer, in bytes. A full buffer becomes a segment that is not visible yet.
pub(crate) const WRITER_BYTES_MAX: usize = 32 << 20;

/// One text index with its documents.
pub(crate) struct TextIndex {
    pub(crate) name: Vec<u8>,
    pub(crate) schema: Schema,
    pub(crate) fields: Fields,
    directory: IndexDirectory,
    /// Also those of the other indexes.
    directories: Arc<Directories>,
    writer: Mutex<Writer>,
    /// See [`TextIndex::key_set_bytes`]. Stored outside the lock, because INFO must not wait for a commit.
    key_set_bytes: AtomicUsize,
    reader: IndexReader,
    buffers: Arc<Buffers>,
    fingerprint: RandomState,
    failed: AtomicBool,
    /// Number of refreshes that have begun to commit. Changed by the thread that has the writer.
    refreshes_begun: AtomicU64,
    pub(crate) counts: Counts,
}

/// Counters of the index for FT.INFO.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Number of documents that could not be indexed.
    pub(crate) failures: AtomicU64,
    /// The last of these documents.
    pub(crate) last_failure: Mutex<Option<Failure>>,
    /// Number of uses of this index by FT.SEARCH and FT.INFO.
    pub(crate) uses: AtomicU64,
    /// Number of documents added since the index was created.
    pub(crate) added: AtomicU64,
    /// Number of commits of the index.
    pub(crate) commits: AtomicU64,
    /// Time spent adding and committing, in microseconds.
    pub(crate) indexing_us: AtomicU64,
}

/// A document that could not be indexed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) why: Unindexable,
    /// The document's key. `None` when the key is too long.
    pub(crate) key: Option<Box<[u8]>>,
}

struct Writer {
    tantivy: IndexWriter<QueuedDocument>,
    queue: Queue,
    /// 128-bit fingerprints of the indexed keys. A key without a fingerprint has no document, so nothing needs to be
    /// deleted: a delete costs a lookup in every segment.
    indexed: HashSet<u128>,
    /// When documents must be read again, because a field expires.
    due: DueDocuments,
    uncommitted: usize,
    committed_at_ms: i64,
    /// The number of the next document, see [`crate::document::NUMBER`].
    next_number: u64,
    /// The index's share of [`Buffers`].
    buffered_bytes: usize,
    merges: Merges,
}

impl TextIndex {
    /// An empty index.
    pub(crate) fn new(
        name: Vec<u8>,
        schema: Schema,
        buffers: Arc<Buffers>,
        directories: Arc<Directories>,
    ) -> Result<TextIndex, SearchError> {
        let (tantivy_schema, fields) = Fields::of(&schema);
        let directory = directories.create();
        // Documents store nothing, so use no compression: its thread would only add its start-up cost to every
        // commit.
        let settings =
            IndexSettings { docstore_compress_dedicated_thread: false, ..IndexSettings::default() };
        let index = tantivy::Index::create(directory.clone(), tantivy_schema, settings)?;
        index.tokenizers().register("words", TextTokenizer::new(schema.stop_words.clone(), false));
        index.tokenizers().register("stems", TextTokenizer::new(schema.stop_words.clone(), true));
        let options = IndexWriterOptions::builder()
            .memory_budget_per_thread(WRITER_BYTES_MAX)
            .num_worker_threads(1)
            .num_merge_threads(1)
            .build();
        let tantivy: IndexWriter<QueuedDocument> = index.writer_with_options(options)?;
        // A search commits the changes before it, and every commit leaves a small segment. [`Merges`] starts the merges.
        tantivy.set_merge_policy(Box::new(NoMergePolicy));
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(0)
            .try_into()?;
        Ok(TextIndex {
            name,
            schema,
            fields,
            directory,
            directories,
            writer: Mutex::new(Writer {
                tantivy,
                queue: Queue::default(),
                indexed: HashSet::new(),
                due: DueDocuments::default(),
                uncommitted: 0,
                committed_at_ms: 0,
                next_number: 0,
                buffered_bytes: 0,
                merges: Merges::default(),
            }),
            key_set_bytes: AtomicUsize::new(0),
            reader,
            buffers,
            fingerprint: RandomState::new(),
            failed: AtomicBool::new(false),
            refreshes_begun: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// Replaces the document of `key`. A document without any schema field, or with an invalid number, is removed
    /// from the index.
    ///
    /// Returns the bytes of the document's texts. A failure of the library is remembered, see [`TextIndex::has_failed`].
    pub(crate) fn put(&self, key: &Key<'_>, source: &DocumentValues) -> usize {
        let mut document = match self.fields.document(&self.schema, key.bytes, source) {
            Ok(Some(document)) => document,
            Ok(None) => {
                self.delete(key);
                return 0;
            }
            Err(why) => {
                let is_short = key.bytes.len() <= INDEXED_KEY_BYTES_MAX;
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                let failure = Failure { why, key: is_short.then(|| key.bytes.into()) };
                *self.counts.last_failure.lock() = Some(failure);
                // The document can be indexed when the field with the wrong value expires.
                self.remove(key, source.field_expires_at_ms.filter(|_| is_short));
                return 0;
            }
        };
        let mut writer = self.writer.lock();
        let fingerprint = self.fingerprint(key);
        writer.due.set(fingerprint, key.bytes, source.field_expires_at_ms);
        if !writer.indexed.insert(fingerprint) {
            self.delete_document(&writer, key);
        }
        self.measure_key_set(&writer);
        document.add_u64(self.fields.number, writer.next_number);
        writer.next_number += 1;
        let text_bytes = self.fields.text_bytes(source);
        let mut result = writer.tantivy.add_document(writer.queue.enter(document, text_bytes));
        self.buffer(&mut writer, DOCUMENT_BYTES + key.bytes.len() + text_bytes);
        // The queue limits the documents that are not indexed yet. The others are in memory, too, until the commit.
        if self.buffers.are_full() && result.is_ok() {
            result = writer.tantivy.commit();
            // After the commit, because its memory is the library's until the commit is done.
            self.unbuffer(&mut writer);
            result = result.and_then(|opstamp| self.step_merges(&mut writer, true).map(|()| opstamp));
        }
        if result.is_err() {
            self.fail();
        }
        writer.uncommitted += 1;
        self.counts.added.fetch_add(1, Ordering::Relaxed);
        text_bytes
    }

    /// Removes the document of `key`, if there is one.
    pub(crate) fn delete(&self, key: &Key<'_>) {
        self.remove(key, None);
    }
    /// Removes the document of `key`. The key is read again at this time.
    fn remove(&self, key: &Key<'_>, read_again_at_ms: Option<i64>) {
        let mut writer = self.writer.lock();
        let fingerprint = self.fingerprint(key);
        writer.due.set(fingerprint, key.bytes, read_again_at_ms);
        if writer.indexed.remove(&fingerprint) {
            self.delete_document(&writer, key);
            writer.uncommitted += 1;
        }
        self.measure_key_set(&writer);
    }
    fn buffer(&self, writer: &mut Writer, bytes: usize) {
        self.buffers.add(writer.buffered_bytes, bytes);
        writer.buffered_bytes += bytes;
    }
    fn unbuffer(&self, writer: &mut Writer) {
        self.buffers.remove(std::mem::take(&mut writer.buffered_bytes));
    }
    fn delete_document(&self, writer: &Writer, key: &Key<'_>) {
        let query = OfKey(Term::from_field_bytes(self.fields.key, key.bytes));
        if writer.tantivy.delete_query(Box::new(query)).is_err() {
            self.fail();
        }
    }

    /// True when the index has a document of `key`. Also false while another thread has the writer, because the caller holds
    /// the key's shard and must not wait for a commit.
    pub(crate) fn is_known(&self, key: &Key<'_>) -> bool {
        self.writer.try_lock().is_some_and(|writer| writer.indexed.contains(&self.fingerprint(key)))
    }

    /// True when the library failed to take a document. The index lacks the document and must be rebuilt.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
    /// Remembers that the library failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Makes all changes so far visible to [`TextIndex::searcher`]. Does nothing when there are no changes.
    pub(crate) fn refresh(&self, now_ms: i64) -> Result<(), SearchError> {
        let begun = self.refreshes_begun.load(Ordering::SeqCst);
        let mut writer = self.writer.lock();
        // A refresh that began while this call waited has made the changes of this caller visible, too.
        let is_done = self.refreshes_begun.load(Ordering::SeqCst) != begun && !self.has_failed();
        if writer.uncommitted > 0 && !is_done {
            self.refreshes_begun.fetch_add(1, Ordering::SeqCst);
            let start = std::time::Instant::now();
            if let Err(e) = writer.tantivy.commit().and_then(|_| self.reader.reload()) {
                self.fail();
                return Err(e.into());
            }
            writer.uncommitted = 0;
            self.unbuffer(&mut writer);
            self.step_merges(&mut writer, true)?;
            writer.committed_at_ms = now_ms;
            self.counts.commits.fetch_add(1, Ordering::Relaxed);
            self.counts.indexing_us.fetch_add(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Calls [`TextIndex::refresh`] when the last refresh is at least `interval_ms` old and no other thread is
    /// refreshing.
    pub(crate) fn refresh_if_old(&self, now_ms: i64, interval_ms: i64) -> Result<(), SearchError> {
        let due = match self.writer.try_lock() {
            Some(w) => w.uncommitted > 0 && now_ms.saturating_sub(w.committed_at_ms) >= interval_ms,
            None => false,
        };
        if due { self.refresh(now_ms) } else { Ok(()) }
    }

    /// Does what follows the end of a merge, if no other thread has the writer.
    pub(crate) fn follow_merges(&self) -> Result<(), SearchError> {
        match self.writer.try_lock() {
            Some(mut writer) => Ok(self.step_merges(&mut writer, false)?),
            None => Ok(()),
        }
    }
    /// After a commit, or when a merge has ended: lets go of the merged segments, measures, and starts the next merge.
    fn step_merges(&self, writer: &mut Writer, committed: bool) -> tantivy::Result<()> {
        let state = writer.merges.look();
        let is_over = matches!(state, MergeState::Ended | MergeState::Failed);
        if is_over {
            // The searcher keeps the merged segments in memory until it is loaded again. What a failed merge has written
            // belongs to no segment.
            self.reader.reload()?;
            drop(writer.tantivy.garbage_collect_files());
        }
        if is_over {
            self.directory.set_merging_bytes(0);
        }
        if committed || is_over || state == MergeState::Postponed {
            let metas = writer.tantivy.index().searchable_segment_metas()?;
            let segments = metas.into_iter().map(|meta| SizedSegment::of(meta, &self.directory));
            let segments: Vec<SizedSegment> = segments.collect();
            self.directory.set_lasting_bytes(segments.iter().map(SizedSegment::lasting_bytes).sum());
            // A merge that has failed may fail again, so the next commit starts it.
            if !matches!(state, MergeState::Failed | MergeState::Running) {
                let others_bytes = self.directories.merging_bytes();
                let bytes = writer.merges.start(&mut writer.tantivy, &segments, others_bytes);
                self.directory.set_merging_bytes(bytes);
            }
        }
        Ok(())
    }

    /// Makes the results of merges visible to [`TextIndex::searcher`].
    pub(crate) fn reload(&self) -> Result<(), SearchError> {
        Ok(self.reader.reload()?)
    }
    /// A searcher over the documents visible now.
    pub(crate) fn searcher(&self) -> Searcher {
        self.reader.searcher()
    }
    /// Number of bytes of all segments of the index.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.directory.bytes()
    }
    /// Says that searches no longer find the index, so that its bytes count as bytes that pass.
    pub(crate) fn set_dropped(&self) {
        self.directory.set_dropped();
    }
    /// Bytes of the set of indexed keys, and of the keys of documents with a field that expires.
    pub(crate) fn key_set_bytes(&self) -> usize {
        self.key_set_bytes.load(Ordering::Relaxed)
    }
    fn measure_key_set(&self, writer: &Writer) {
        self.key_set_bytes.store(writer.indexed.capacity() * 17 + writer.due.bytes, Ordering::Relaxed);
    }
    /// Takes the keys of the documents of which a field has expired.
    pub(crate) fn take_due(&self, now_ms: i64) -> Vec<Box<[u8]>> {
        let mut writer = self.writer.lock();
        let keys = writer.due.take(now_ms);
        self.measure_key_set(&writer);
        keys
    }

    /// Holds the writer until the returned value is dropped, as a commit does.
    #[cfg(test)]
    pub(crate) fn lock_writer(&self) -> impl Sized + '_ {
        self.writer.lock()
    }

    fn fingerprint(&self, key: &Key<'_>) -> u128 {
        u128::from(key.hash.0) << 64 | u128::from(self.fingerprint.hash_one(key.bytes))
    }
}

impl Drop for TextIndex {
    fn drop(&mut self) {
        self.set_dropped();
        self.buffers.remove(self.writer.get_mut().buffered_bytes);
    }
}

impl std::fmt::Debug for TextIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({}, {} documents)", lossy(&self.name), self.searcher().num_docs())
    }
}
