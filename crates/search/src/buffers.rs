//! [`Buffers`]: the memory of documents that are on their way into the text indexes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Limit of [`Buffers`] without `maxmemory`, in bytes.
const BYTES_MAX: usize = 64 << 20;
/// The limit is at least this, in bytes, because each commit costs time and makes a segment.
const BYTES_MIN: usize = 4 << 20;
/// With `maxmemory`, the limit is `maxmemory` divided by this number.
const MEMORY_PART: usize = 8;
/// Bytes counted for a document until it is committed, besides its text. A document takes 2 KB while it waits for the
/// writer, and less afterwards.
pub(crate) const DOCUMENT_BYTES: usize = 1024;

/// Bytes that the library allocates for the first document after a commit and frees at the next commit, whatever the
/// document and the schema are: a table of terms for 2^19 terms, and arenas. With one index of one to four fields,
/// `used_memory` of INFO grew by 13.8 MB at such a document, with four such indexes by 4 times 13.8 MB.
const WRITER_BYTES: usize = 13_500 << 10;

/// The bytes of changes that are not committed, over all text indexes. They are not data that eviction could free, and
/// end with the next commit. So eviction does not count them, and an index commits when the documents among them exceed
/// a limit.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Bytes of documents.
    bytes: AtomicUsize,
    /// Number of indexes with a document that is not committed.
    writers: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { bytes: 0.into(), writers: 0.into(), bytes_max: BYTES_MAX.into() }
    }
}

impl Buffers {
    /// Bytes of all changes that are not committed (estimated).
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) + self.writers.load(Relaxed) * WRITER_BYTES
    }
    /// Adds a document of `bytes` to an index with documents of `before` bytes, which are not committed.
    pub(crate) fn add(&self, before: usize, bytes: usize) {
        self.writers.fetch_add(usize::from(before == 0), Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
    /// Removes the documents of an index, `bytes` in all, because they are committed.
    pub(crate) fn remove(&self, bytes: usize) {
        self.writers.fetch_sub(usize::from(bytes > 0), Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
    /// True when an index must commit before it takes more.
    pub(crate) fn are_full(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max.load(Relaxed)
    }
    /// Adapts the limit to `maxmemory`, in bytes. 0: none.
    pub(crate) fn set_memory_limit(&self, limit_bytes: u64) {
        let part = usize::try_from(limit_bytes).unwrap_or(usize::MAX) / MEMORY_PART;
        let bytes_max = if limit_bytes == 0 { BYTES_MAX } else { part.clamp(BYTES_MIN, BYTES_MAX) };
        self.bytes_max.store(bytes_max, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_with_documents_counts_once_and_does_not_fill_the_buffers() {
        let buffers = Buffers::default();
        buffers.set_memory_limit(1);
        buffers.add(0, 10);
        buffers.add(10, 20);
        buffers.add(0, 5);
        assert_eq!(buffers.bytes(), 2 * WRITER_BYTES + 35);
        assert!(!buffers.are_full(), "the documents are small");
        buffers.remove(30);
        buffers.remove(0);
        assert_eq!(buffers.bytes(), WRITER_BYTES + 5);
        buffers.remove(5);
        assert_eq!(buffers.bytes(), 0);
        buffers.add(0, BYTES_MIN + 1);
        assert!(buffers.are_full());
    }
}
