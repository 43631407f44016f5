//! Blocks for reuse: a free list per thread, so that a connection holds a block only while bytes lie in it.
//!
//! A pooled block is a unique blob of [`BLOCK_BYTES`], initialised over its whole length (zeroed once, when it was
//! allocated; later it holds whatever it held). Any blob of that shape may be given back. Blocks may wander between
//! threads; each list is bounded.

use crate::Blob;
use crate::blob::HEADER_BYTES;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes a block holds: with its header an allocation of 16 KiB. That is what redis-server reads at a time, holds a
/// pipeline of 30 commands with 256-byte values in one piece, and stays within a core's first-level cache.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024 - HEADER_BYTES;
/// Free blocks that a thread keeps: 1 MiB.
const FREE_BLOCKS_MAX: usize = 64;

thread_local! {
    static FREE: RefCell<FreeList> = RefCell::new(FreeList::new());
}

/// How many blocks the lists of all threads hold.
static COUNTS: Mutex<Vec<Weak<AtomicUsize>>> = Mutex::new(Vec::new());

/// One thread's list. Its length is seen from outside, and written by its thread alone.
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
        let block = self.blocks.pop();
        self.count.store(self.blocks.len(), Relaxed);
        block
    }
    #[inline]
    fn push(&mut self, block: Blob) {
        if self.blocks.len() < FREE_BLOCKS_MAX {
            self.blocks.push(block);
            self.count.store(self.blocks.len(), Relaxed);
        }
    }
}

/// Bytes of the free blocks of all threads.
pub fn pooled_bytes() -> usize {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks: usize = counts.iter().filter_map(Weak::upgrade).map(|count| count.load(Relaxed)).sum();
    blocks * (BLOCK_BYTES + HEADER_BYTES)
}

/// A block, unique and of length [`BLOCK_BYTES`]; what it holds is of no meaning. A want of memory ends the process.
#[inline]
pub(crate) fn take() -> Blob {
    // Where the thread is ending its list is gone.
    FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_else(allocate)
}

/// Keeps `blob` for [`take`] if it has the shape of a block and there is room, and drops it otherwise.
#[inline]
pub(crate) fn give(blob: Blob) {
    if blob.capacity() == BLOCK_BYTES && blob.len() == BLOCK_BYTES && blob.is_unique() {
        // A failure drops the blob with the closure.
        let _ = FREE.try_with(|free| free.borrow_mut().push(blob));
    }
}

/// Blocks in this thread's list.
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

    /// The only test that may look at the count of all threads: the others' threads only add to it, and theirs goes with
    /// them.
    #[test]
    fn free_blocks_of_a_thread_are_counted_while_it_lives() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let blocks: Vec<_> = (0..FREE_BLOCKS_MAX + 3).map(|_| take()).collect();
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
