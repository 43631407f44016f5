//! [`Buffers`]: the memory that the kernel receives into, and the ring of descriptions by which it is given to it.

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes of one buffer: what a connection reads at a time.
const BUFFER_BYTES: usize = 16 * 1024;
/// Buffers, a power of two: 4 MiB a worker. A socket that finds none is asked again in the next turn.
const BUFFERS: u16 = 256;
/// The group that receive requests name.
pub(crate) const GROUP: u16 = 1;
/// The kernel wants the descriptions on a page of their own.
const PAGE_BYTES: usize = 4096;

/// A buffer that the kernel has filled; give it back with [`Buffers::give`].
#[derive(Debug)]
pub(crate) struct Held {
    id: u16,
    len: usize,
    /// Bytes of it that were read.
    pub(crate) read: usize,
}

/// The buffers of one ring. Never freed: the kernel may write to them as long as the process lives.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// [`BUFFERS`] descriptions, read by the kernel up to the tail.
    ring: NonNull<BufRingEntry>,
    /// [`BUFFERS`] times [`BUFFER_BYTES`] bytes.
    memory: NonNull<u8>,
    tail: u16,
}

impl Buffers {
    /// Registers new buffers with `ring` and gives all of them to the kernel.
    pub(crate) fn register(ring: &IoUring) -> io::Result<Buffers> {
        let descriptions = leak(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let memory = leak(usize::from(BUFFERS) * BUFFER_BYTES)?;
        // SAFETY: the memory is aligned to a page, holds that many zeroed descriptions, and is never freed.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(descriptions.as_ptr() as u64, BUFFERS, GROUP, 0)
        }?;
        let mut buffers = Buffers { ring: descriptions.cast(), memory, tail: 0 };
        (0..BUFFERS).for_each(|id| buffers.give(Held { id, len: 0, read: 0 }));
        Ok(buffers)
    }
    /// What a completion says that the kernel has put into buffer `id`.
    pub(crate) fn held(&self, id: u16, len: usize) -> Held {
        assert!(id < BUFFERS && len <= BUFFER_BYTES, "the kernel fills the buffers that it was given");
        Held { id, len, read: 0 }
    }
    /// The bytes of `held` that were not read.
    pub(crate) fn bytes(&self, held: &Held) -> &[u8] {
        // SAFETY: the id is below `BUFFERS`.
        let start = unsafe { self.memory.add(usize::from(held.id) * BUFFER_BYTES) };
        // SAFETY: zeroed when allocated and never freed; the kernel writes there only after `give`, which takes `held`
        // and needs `&mut self`, and `len` is within the buffer.
        let all = unsafe { std::slice::from_raw_parts(start.as_ptr(), held.len) };
        &all[held.read..]
    }
    /// Gives a buffer back to the kernel.
    pub(crate) fn give(&mut self, held: Held) {
        let at = usize::from(self.tail % BUFFERS);
        // SAFETY: as in `bytes`.
        let start = unsafe { self.memory.add(usize::from(held.id) * BUFFER_BYTES) };
        // SAFETY: the index is below `BUFFERS`.
        let mut entry = unsafe { self.ring.add(at) };
        // SAFETY: the kernel reads descriptions up to the tail only, and this one is beyond it: at most `BUFFERS` are
        // out at a time, since each `Held` is given back once. The reference lives for these three lines.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(held.id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the pointer is that of the first description.
        let tail = unsafe { BufRingEntry::tail(self.ring.as_ptr()) };
        // SAFETY: aligned, never freed, and only this thread and the kernel (atomically) touch it. It lies in a part of
        // the first description that the setters above leave alone.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the kernel, which reads the tail with Acquire, sees the description.
        tail.store(self.tail, Ordering::Release);
    }
}

/// Zeroed memory on pages of its own, for good.
fn leak(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(io::Error::other)?;
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
