//! How far memory grows: a counting allocator, and the kernel's figures for the process.

#![allow(unsafe_code)] // A global allocator cannot be written without; it only counts and passes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD: AtomicUsize = AtomicUsize::new(0);
static HELD_MAX: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting the bytes held now and at most.
pub struct CountingAllocator;

impl CountingAllocator {
    fn add(bytes: usize) {
        let held = HELD.fetch_add(bytes, Relaxed) + bytes;
        HELD_MAX.fetch_max(held, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of the caller's.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CountingAllocator::add(layout.size());
        // SAFETY: passed on under the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CountingAllocator::add(layout.size());
        // SAFETY: passed on under the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: passed on under the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Counted as if it always moved: both are held while it copies.
        CountingAllocator::add(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: passed on under the caller's contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Growth of memory over a stretch of work, in bytes.
#[derive(Clone, Copy)]
pub struct Growth {
    /// As the allocator counts: the most held at once, beyond what was held at the start.
    pub allocated: usize,
    /// As the kernel counts: the peak of the resident set, beyond the resident set at the start. 0 where the kernel does
    /// not tell.
    pub resident: usize,
}

impl Growth {
    /// Starts a stretch: the figures are those before it.
    pub fn start() -> Growth {
        let allocated = HELD.load(Relaxed);
        HELD_MAX.store(allocated, Relaxed);
        // 5: the kernel forgets its peak. Where it may not be written the peak of the whole process shows.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Growth { allocated, resident: status_bytes("VmRSS:") }
    }
    /// Ends the stretch that began with `self`.
    pub fn end(&self) -> Growth {
        Growth {
            allocated: HELD_MAX.load(Relaxed).saturating_sub(self.allocated),
            resident: status_bytes("VmHWM:").saturating_sub(self.resident),
        }
    }
}

fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}
