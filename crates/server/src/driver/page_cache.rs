//! [`PageCache`]: returns the pages of synced files to the system.
//!
//! A running server writes its files and does not read them. If their pages stayed in the page cache, they would fill
//! the machine's memory, and each write would go to a page that was not used for long. In a virtual machine the host
//! must first find memory for that page: 1 GB written costs 1 second of processor time. A page that was returned is
//! used again by the next write: 0.2 seconds.

use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Minimum number of bytes dropped from the page cache in one call, because `appendfsync always` syncs after every few
/// commands.
const DROPPED_BYTES_MIN: u64 = 1 << 20;
/// Size of a page. The file's last, incomplete page stays in the cache, because the next write adds to that page.
const PAGE_BYTES: u64 = 4096;

/// The part of a file that was dropped from the page cache.
#[derive(Debug, Default)]
pub struct PageCache {
    dropped_bytes: AtomicU64,
}

impl PageCache {
    /// Drops the synced part of the file from the page cache. `synced`: the number of bytes that are on the disk. Only
    /// one thread at a time may call this. The system may keep the pages, which does no harm.
    pub fn drop_synced(&self, file: &File, synced: u64) {
        let (from, end) = (self.dropped_bytes.load(Relaxed), synced - synced % PAGE_BYTES);
        if end < from {
            // The file was truncated meanwhile.
            self.dropped_bytes.store(end, Relaxed);
        } else if end - from >= DROPPED_BYTES_MIN {
            let _ = fadvise(file, from, NonZeroU64::new(end - from), Advice::DontNeed);
            self.dropped_bytes.store(end, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    /// A file whose pages were dropped still has its bytes, and a truncated file can be continued.
    #[test]
    fn dropped_pages_are_still_in_the_file() {
        let mut file = tempfile::tempfile().expect("a file");
        let cache = PageCache::default();
        let mut written = Vec::new();
        for (n, bytes) in [5, 3 << 20, 70_001, 2 << 20, 1].into_iter().enumerate() {
            let piece = vec![n as u8 + 1; bytes];
            file.write_all(&piece).expect("room");
            written.extend(piece);
            file.sync_data().expect("a disk");
            cache.drop_synced(&file, written.len() as u64);
        }
        assert_eq!(cache.dropped_bytes.load(Relaxed), (5 << 20) + 70_005 - ((5 << 20) + 70_005) % PAGE_BYTES);
        file.set_len(100).expect("ours");
        cache.drop_synced(&file, 100);
        assert_eq!(cache.dropped_bytes.load(Relaxed), 0);
        file.set_len(0).expect("ours");
        file.rewind().expect("ours");
        file.write_all(&written).expect("room");
        cache.drop_synced(&file, written.len() as u64);
        let mut read = Vec::new();
        file.rewind().expect("ours");
        file.read_to_end(&mut read).expect("readable");
        assert!(read == written, "other bytes came back");
    }
}
