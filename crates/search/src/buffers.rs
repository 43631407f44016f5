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

/// The bytes of changes that are not committed, over all text indexes. They are not data that eviction could free, and
/// end with the next commit. So eviction does not count them, and an index commits when they exceed a limit.
#[derive(Debug)]
pub(crate) struct Buffers {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(BYTES_MAX) }
    }
}

impl Buffers {
    /// Bytes of all changes that are not committed (estimated).
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
    pub(crate) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }
    /// True when an index must commit before it takes more.
    pub(crate) fn are_full(&self) -> bool {
        self.bytes() > self.bytes_max.load(Relaxed)
    }
    /// Adapts the limit to `maxmemory`, in bytes. 0: none.
    pub(crate) fn set_memory_limit(&self, limit_bytes: u64) {
        let part = usize::try_from(limit_bytes).unwrap_or(usize::MAX) / MEMORY_PART;
        let bytes_max = if limit_bytes == 0 { BYTES_MAX } else { part.clamp(BYTES_MIN, BYTES_MAX) };
        self.bytes_max.store(bytes_max, Relaxed);
    }
}
