//! [`Buffers`]: the memory that the kernel receives into, and the ring of descriptions that passes it to the
//! kernel.

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

/// Bytes of one buffer: the usual read size of a connection.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;
/// Number of buffers of a worker, a power of two. The buffers take 2 MiB, all resident, because the kernel uses them
/// in turn. A socket that finds no free buffer tries again in the next turn.
pub(crate) const BUFFERS: u16 = 128;
/// The buffer group named in receive requests.
pub(crate) const GROUP: u16 = 1;

/// Bytes of all buffers of the process.
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Number of bytes of all buffers of the process. They are as many with and without traffic.
pub fn buffers_bytes() -> usize {
    ALL_BYTES.load(Ordering::Relaxed)
}

/// A buffer filled by the kernel. Return it with [`Buffers::give_back`].
#[derive(Debug)]
pub(crate) struct FilledBuffer {
    id: u16,
    len: usize,
    /// Number of bytes of the buffer that were read already.
    pub(crate) read: usize,
}

/// The buffers of one ring. After the first receive they are never freed, because the kernel may write to them as
/// long as the process lives.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// `count` descriptions, read by the kernel up to the tail.
    ring: NonNull<BufRingEntry>,
    /// The memory of all buffers: `count` times [`BUFFER_BYTES`] bytes.
    memory: NonNull<u8>,
    count: u16,
    tail: u16,
}

impl Buffers {
    /// Registers `count` new buffers (a power of two) with `ring`, and gives all of them to the kernel.
    pub(crate) fn register(ring: &IoUring, count: u16) -> io::Result<Buffers> {
        let descriptions = leak(descriptions(count)?)?;
        let memory = leak(contents(count)?)?;
        // SAFETY: the memory is aligned to a page, holds that many zeroed descriptions, and is freed only when the
        // kernel has given them up.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(descriptions.as_ptr() as u64, count, GROUP, 0)
        }?;
        ALL_BYTES.fetch_add(usize::from(count) * BUFFER_BYTES, Ordering::Relaxed);
        let mut buffers = Buffers { ring: descriptions.cast(), memory, count, tail: 0 };
        (0..count).for_each(|id| buffers.give_back(FilledBuffer { id, len: 0, read: 0 }));
        Ok(buffers)
    }
    /// Takes the buffers back from the kernel and frees them. Only for a ring that has never had a request.
    pub(crate) fn free_unused(self, ring: &IoUring) -> io::Result<()> {
        ring.submitter().unregister_buf_ring(GROUP)?;
        let (descriptions, contents) = (descriptions(self.count)?, contents(self.count)?);
        // SAFETY: from `leak` with this layout; the kernel has just given them up.
        unsafe { dealloc(self.ring.as_ptr().cast(), descriptions) };
        // SAFETY: from `leak` with this layout; no request was ever there that could fill them.
        unsafe { dealloc(self.memory.as_ptr(), contents) };
        ALL_BYTES.fetch_sub(usize::from(self.count) * BUFFER_BYTES, Ordering::Relaxed);
        Ok(())
    }
    /// The buffer `id` with the `len` bytes that a completion reports.
    pub(crate) fn filled(&self, id: u16, len: usize) -> FilledBuffer {
        assert!(id < self.count && len <= BUFFER_BYTES, "the kernel reports a buffer of this ring");
        FilledBuffer { id, len, read: 0 }
    }
    /// The bytes of `buffer` that were not read yet.
    pub(crate) fn bytes(&self, buffer: &FilledBuffer) -> &[u8] {
        // SAFETY: the id is below `count`.
        let start = unsafe { self.memory.add(usize::from(buffer.id) * BUFFER_BYTES) };
        // SAFETY: zeroed when allocated and never freed; the kernel writes there only after `give_back`, which takes
        // `buffer` and needs `&mut self`, and `len` is within the buffer.
        let all = unsafe { std::slice::from_raw_parts(start.as_ptr(), buffer.len) };
        &all[buffer.read..]
    }
    /// Returns a buffer to the kernel.
    pub(crate) fn give_back(&mut self, buffer: FilledBuffer) {
        let at = usize::from(self.tail % self.count);
        // SAFETY: as in `bytes`.
        let start = unsafe { self.memory.add(usize::from(buffer.id) * BUFFER_BYTES) };
        // SAFETY: the index is below `count`.
        let mut entry = unsafe { self.ring.add(at) };
        // SAFETY: the kernel reads descriptions up to the tail only, and this one is beyond it: at most `count` are
        // out at a time, since each `FilledBuffer` is given back once. The reference lives for these three lines.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer.id);
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

/// The layout of the descriptions. The kernel requires whole pages.
fn descriptions(count: u16) -> io::Result<Layout> {
    pages(usize::from(count) * size_of::<BufRingEntry>())
}

/// The layout of the memory for all buffers.
fn contents(count: u16) -> io::Result<Layout> {
    pages(usize::from(count) * BUFFER_BYTES)
}

fn pages(bytes: usize) -> io::Result<Layout> {
    Layout::from_size_align(bytes, rustix::param::page_size()).map_err(io::Error::other)
}

/// Allocates zeroed memory that is never freed.
fn leak(layout: Layout) -> io::Result<NonNull<u8>> {
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
