//! Reusable blocks: each thread has a free list, so a connection holds a block only while it contains bytes.
//!
//! A pooled block is a unique blob of [`BLOCK_BYTES`], initialised over its whole length: zeroed when it was
//! allocated, later with any old content. Any blob of this shape may be returned. Blocks may move between threads:
//! one thread fills the stream of changes, and another one frees it. A full list gives blocks to a list of all
//! threads, where an empty list finds them. Each list is bounded.

use crate::Blob;
use crate::blob::HEADER_BYTES;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of a block. With its header the allocation has 16 KiB. That is redis-server's read size, holds a pipeline
/// of 30 commands with 256-byte values, and fits into a core's first-level cache.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024 - HEADER_BYTES;
/// Maximum number of free blocks of a thread: 1 MiB.
const FREE_BLOCKS_MAX: usize = 64;
/// Number of blocks that a thread gives to the list of all threads, or takes from that list, at once.
const BATCH_BLOCKS: usize = 32;
/// Maximum number of batches in the list of all threads: 8 MiB.
const BATCHES_MAX: usize = 16;

thread_local! {
    static FREE: RefCell<FreeList> = RefCell::new(FreeList::new());
}

/// Blocks of threads that free more than they take, in batches of [`BATCH_BLOCKS`].
static BATCHES: Mutex<Vec<Vec<Blob>>> = Mutex::new(Vec::new());
/// The lengths of the free lists of all threads.
static COUNTS: Mutex<Vec<Weak<AtomicUsize>>> = Mutex::new(Vec::new());

/// One thread's free list. Other threads read its length; only its own thread writes it.
struct FreeList {
    blocks: Vec<Blob>,
    count: Arc<AtomicUsize>,
}

impl FreeList {
    fn new() -> FreeList {
        let count = Arc::new(AtomicUsize::new(0));
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|count| count.strong_count() > 0);
        counts.push(Arc::downgrade(&count));
        FreeList { blocks: Vec::new(), count }
    }
    #[inline]
    fn pop(&mut self) -> Option<Blob> {
        let block = self.blocks.pop().or_else(|| self.take_batch());
        self.count.store(self.blocks.len(), Relaxed);
        block
    }
    #[inline]
    fn push(&mut self, block: Blob) {
        if self.blocks.len() == FREE_BLOCKS_MAX {
            self.give_batch();
        }
        self.blocks.push(block);
        self.count.store(self.blocks.len(), Relaxed);
    }
    #[cold]
    fn take_batch(&mut self) -> Option<Blob> {
        self.blocks = batches().pop()?;
        self.blocks.pop()
    }
    #[cold]
    fn give_batch(&mut self) {
        // The blocks at the start of the list were not used for the longest time.
        let batch: Vec<Blob> = self.blocks.drain(..BATCH_BLOCKS).collect();
        let mut batches = batches();
        if batches.len() < BATCHES_MAX {
            batches.push(batch);
        } else {
            // Free the blocks without the lock.
            drop(batches);
        }
    }
}

fn batches() -> MutexGuard<'static, Vec<Vec<Blob>>> {
    BATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of bytes in all free blocks of the process.
pub fn pooled_bytes() -> usize {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_threads: usize = counts.iter().filter_map(Weak::upgrade).map(|count| count.load(Relaxed)).sum();
    let shared = batches().len() * BATCH_BLOCKS;
    (of_threads + shared) * (BLOCK_BYTES + HEADER_BYTES)
}

/// Frees the blocks in the list of all threads. The lists of single threads, 1 MiB at most each, stay.
pub fn free_pooled() {
    let freed = std::mem::take(&mut *batches());
    // The lock is released already, so no thread waits for the allocator.
    drop(freed);
}

/// A unique block of length [`BLOCK_BYTES`] with any content. Running out of memory ends the process.
#[inline]
pub(crate) fn take() -> Blob {
    // The list of a thread that is ending no longer exists.
    FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_else(allocate)
}

/// Keeps `blob` for [`take`] if it has the shape of a block and the list has room. Otherwise drops it.
#[inline]
pub(crate) fn give(blob: Blob) {
    if blob.capacity() == BLOCK_BYTES && blob.len() == BLOCK_BYTES && blob.is_unique() {
        // On failure the closure drops the blob.
        let _ = FREE.try_with(|free| free.borrow_mut().push(blob));
    }
}

/// Number of free blocks in this thread's list.
#[cfg(test)]
pub(crate) fn free_blocks() -> usize {
    FREE.with(|free| free.borrow().blocks.len())
}

#[cold]
fn allocate() -> Blob {
    let mut block = Blob::with_capacity(BLOCK_BYTES);
    block.resize(BLOCK_BYTES, 0);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_all_threads_is_freed_on_request() {
        let thread = std::thread::spawn(|| {
            let blocks: Vec<_> = (0..FREE_BLOCKS_MAX + 1).map(|_| take()).collect();
            let first = blocks[0].as_ptr();
            blocks.into_iter().for_each(give);
            // One block too many for the list: the first blocks are in the list of all threads.
            assert_eq!(free_blocks(), FREE_BLOCKS_MAX + 1 - BATCH_BLOCKS);
            free_pooled();
            assert!(!batches().iter().flatten().any(|block| block.as_ptr() == first));
            assert_eq!(free_blocks(), FREE_BLOCKS_MAX + 1 - BATCH_BLOCKS, "the thread's own list stays");
        });
        thread.join().expect("no panic");
    }

    /// Threads of other tests only add to the count of all threads, and when they end, their blocks no longer count.
    #[test]
    fn free_blocks_of_a_thread_are_counted_while_it_lives() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let blocks: Vec<_> = (0..FREE_BLOCKS_MAX).map(|_| take()).collect();
            blocks.into_iter().for_each(give);
            tell.send(free_blocks()).expect("the test waits");
            let _ = ended.recv();
        });
        assert_eq!(told.recv(), Ok(FREE_BLOCKS_MAX));
        assert!(pooled_bytes() >= FREE_BLOCKS_MAX * (BLOCK_BYTES + HEADER_BYTES));
        drop(end);
        thread.join().expect("no panic");
    }
}
