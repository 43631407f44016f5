//! Blocks for reuse: a free list per thread, so that a connection holds a block only while bytes lie in it.
//!
//! A pooled block is a unique blob of [`BLOCK_BYTES`], initialised over its whole length (zeroed once, when it was
//! allocated; later it holds whatever it held). Any blob of that shape may be given back. Blocks may wander between
//! threads; each list is bounded.

use crate::Blob;
use crate::blob::HEADER_BYTES;
use std::cell::RefCell;

/// Bytes a block holds: with its header an allocation of 16 KiB. That is what redis-server reads at a time, holds a
/// pipeline of 30 commands with 256-byte values in one piece, and stays within a core's first-level cache.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024 - HEADER_BYTES;
/// Free blocks that a thread keeps: 1 MiB.
const FREE_BLOCKS_MAX: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Blob>> = const { RefCell::new(Vec::new()) };
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
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_BLOCKS_MAX {
                free.push(blob);
            }
        });
    }
}

/// Blocks in this thread's list.
#[cfg(test)]
pub(crate) fn free_blocks() -> usize {
    FREE.with(|free| free.borrow().len())
}

#[cold]
fn allocate() -> Blob {
    let mut block = Blob::with_capacity(BLOCK_BYTES);
    block.resize(BLOCK_BYTES, 0);
    block
}
