//! [`Blob`]: a byte string in one allocation, shared by reference count.
//!
//! A blob is a thin pointer to a header (count, length, capacity), and the bytes follow the header. `Option<Blob>`
//! has the same size. The empty blob without capacity points to a static header and allocates nothing. Handles
//! share the bytes. Writing needs the only handle, and methods that write copy the bytes first when there are
//! others.
//!
//! Ranges of a blob are not here (see the links of a chain), nor is the reuse of blocks (see `pool`).

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error, realloc};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Bytes of a blob's allocation in addition to its capacity.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// A blob up to this capacity doubles when it grows. A larger blob grows by a quarter, so that a value of many
/// megabytes does not reserve as many megabytes more.
const DOUBLING_BYTES_MAX: usize = 1 << 20;
/// Minimum capacity after a blob has grown.
const GROWN_BYTES_MIN: usize = 64 - HEADER_BYTES;
/// Maximum number of handles to one blob. Only a loop that leaks handles can exceed it: the process aborts before the
/// count overflows.
const HANDLES_MAX: usize = isize::MAX as usize;

/// The allocator has no memory, or the size exceeds the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("out of memory")
    }
}
impl std::error::Error for OutOfMemory {}

/// The data in front of the bytes.
#[repr(C)]
struct Header {
    /// Number of handles to this allocation. The count of the static empty header stays 1.
    count: AtomicUsize,
    /// Initialised bytes of the value; at most `capacity`. Only the single handle writes it.
    len: usize,
    /// Capacity in bytes; 0 only in the static empty header.
    capacity: usize,
}

/// The shared header of all blobs without capacity.
static EMPTY: Header = Header { count: AtomicUsize::new(1), len: 0, capacity: 0 };

/// A byte string in one allocation. Cloning shares the bytes; writing needs a unique blob (see [`Blob::make_mut`]).
pub struct Blob {
    /// Points to [`EMPTY`] or to an allocation of [`layout`]`(capacity)` that this handle keeps alive, with provenance
    /// over all of it.
    header: NonNull<Header>,
}

const _: () = assert!(size_of::<Option<Blob>>() == 8);

// SAFETY: a handle on another thread reads the header and the bytes, as this one does, and counts atomically. Writes to
// either happen only through `&mut` on a handle seen to be the only one with Acquire, which orders them after all that
// other threads did with handles they dropped (dropping is Release).
unsafe impl Send for Blob {}
// SAFETY: as for Send: `&Blob` gives shared reads and atomic counting only.
unsafe impl Sync for Blob {}

impl Blob {
    /// An empty blob; allocates nothing.
    #[inline]
    pub const fn new() -> Blob {
        // SAFETY: a reference is not null. The pointer is never written through: a header without capacity has no room
        // to write bytes to and no length but 0.
        let header = unsafe { NonNull::new_unchecked(ptr::addr_of!(EMPTY).cast_mut()) };
        Blob { header }
    }
    /// Prefetches the header and the first bytes, `bytes` bytes in all.
    #[inline]
    pub fn prefetch(&self, bytes: usize) {
        // SAFETY: the header is alive as long as this handle.
        crate::prefetch::prefetch(unsafe { self.header.as_ref() }, bytes);
    }
    /// An empty blob with room for `capacity` bytes. For a size chosen by a peer use [`Blob::try_with_capacity`].
    ///
    /// Running out of memory ends the process, as for a `Vec`.
    pub fn with_capacity(capacity: usize) -> Blob {
        Blob::try_with_capacity(capacity).unwrap_or_else(|OutOfMemory| no_memory(capacity))
    }
    /// An empty blob with room for `capacity` bytes.
    ///
    /// # Errors
    /// Fails if the allocator has no memory.
    pub fn try_with_capacity(capacity: usize) -> Result<Blob, OutOfMemory> {
        if capacity == 0 {
            return Ok(Blob::new());
        }
        let layout = layout(capacity)?;
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { alloc(layout) };
        Blob::in_memory(memory, 0, capacity)
    }
    /// A blob of `len` zero bytes.
    ///
    /// # Errors
    /// Fails if the allocator has no memory.
    pub fn try_zeroed(len: usize) -> Result<Blob, OutOfMemory> {
        if len == 0 {
            return Ok(Blob::new());
        }
        let layout = layout(len)?;
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        Blob::in_memory(memory, len, len)
    }
    /// Length of the blob in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.header().len
    }
    /// True when the blob is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of bytes that fit into the allocation.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.header().capacity
    }
    /// The bytes of the blob.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised, lie in the allocation that this handle keeps alive, and are
        // not written while `self` is borrowed (writing needs `&mut` on the only handle).
        unsafe { slice::from_raw_parts(self.bytes(), self.len()) }
    }
    /// True when no other handle shares the allocation.
    #[inline]
    pub fn is_unique(&self) -> bool {
        // Acquire: pairs with the Release of other handles' drops, so their reads end before our writes. With a
        // count of 1 `self` is the only handle, and it cannot be cloned while it is borrowed mutably.
        self.header().count.load(Ordering::Acquire) == 1
    }
    /// The bytes for writing; `None` when another handle shares them.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: the first `len` bytes are initialised and in the allocation; `self` is its only handle and is
        // borrowed mutably. For the empty header the slice is empty, at the one-past-the-end of a static.
        Some(unsafe { slice::from_raw_parts_mut(self.bytes(), self.len()) })
    }
    /// The bytes for writing. Copies them first when they are shared.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            *self = Blob::from(self.as_slice());
        }
        self.get_mut().expect("unique or just copied")
    }
    /// Appends bytes. The capacity grows geometrically. A shared blob is copied first. Running out of memory ends
    /// the process.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        // SAFETY: `reserve` made the allocation unique, with that much room; `bytes` is borrowed, so it lies elsewhere.
        unsafe { self.append(bytes) };
    }
    /// Does what [`Blob::extend_from_slice`] does, but may fail.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The blob is unchanged.
    pub fn try_extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.try_reserve(bytes.len())?;
        // SAFETY: `try_reserve` made the allocation unique, with that much room; `bytes` is borrowed, so it lies
        // elsewhere.
        unsafe { self.append(bytes) };
        Ok(())
    }
    /// Sets the length and fills new bytes with `fill`. A shared blob is copied first. Running out of memory ends
    /// the process.
    pub fn resize(&mut self, len: usize, fill: u8) {
        self.try_resize(len, fill).unwrap_or_else(|OutOfMemory| no_memory(len));
    }
    /// Does what [`Blob::resize`] does, but may fail.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The blob is unchanged.
    pub fn try_resize(&mut self, len: usize, fill: u8) -> Result<(), OutOfMemory> {
        let old = self.len();
        if len <= old {
            self.truncate(len);
            return Ok(());
        }
        self.try_reserve(len - old)?;
        // SAFETY: `old` is at most the capacity.
        let end = unsafe { self.bytes().add(old) };
        // SAFETY: `try_reserve` made the allocation unique, with `len - old` bytes of room after `old`.
        unsafe { ptr::write_bytes(end, fill, len - old) };
        // SAFETY: unique, not the static header (it has room), and the bytes up to `len` are initialised now.
        unsafe { self.set_len(len) };
        Ok(())
    }
    /// Shortens the blob to `len` bytes. Of a shared blob only these bytes are copied.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        if self.is_unique() {
            // SAFETY: unique, not the static header (it was longer), and the bytes up to `len` are initialised.
            unsafe { self.set_len(len) };
        } else {
            *self = Blob::from(&self[..len]);
        }
    }
    /// Makes room for `additional` more bytes. The capacity grows geometrically. A shared blob is copied. Running
    /// out of memory ends the process.
    #[inline]
    pub fn reserve(&mut self, additional: usize) {
        if self.capacity() - self.len() < additional || !self.is_unique() {
            self.grow(additional).unwrap_or_else(|OutOfMemory| no_memory(additional));
        }
    }
    /// Does what [`Blob::reserve`] does, but may fail.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The blob is unchanged.
    #[inline]
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), OutOfMemory> {
        if self.capacity() - self.len() < additional || !self.is_unique() {
            self.grow(additional)?;
        }
        Ok(())
    }
    /// Sets the capacity to the larger of `capacity` and the length. Works in place when the blob is
    /// unique and the allocator supports it.
    ///
    /// # Errors
    /// Fails if the allocator has no memory. The blob is unchanged.
    pub fn try_set_capacity(&mut self, capacity: usize) -> Result<(), OutOfMemory> {
        let capacity = capacity.max(self.len());
        if capacity == self.capacity() && self.is_unique() {
            return Ok(());
        }
        if capacity == 0 || self.capacity() == 0 || !self.is_unique() {
            let mut copy = Blob::try_with_capacity(capacity)?;
            // SAFETY: `copy` is new, so unique, and has room for at least `len` bytes.
            unsafe { copy.append(self) };
            *self = copy;
            return Ok(());
        }
        let (old, new) = (layout(self.capacity())?, layout(capacity)?);
        let memory = self.header.as_ptr().cast::<u8>();
        // SAFETY: `memory` was allocated with `old` by this allocator, `self` is its only handle, and the new size is
        // not 0 and was checked by `layout`.
        let memory = unsafe { realloc(memory, old, new.size()) };
        self.header = NonNull::new(memory.cast::<Header>()).ok_or(OutOfMemory)?;
        // SAFETY: `realloc` moved the header along; the allocation is unique and may be written.
        unsafe { (*self.header.as_ptr()).capacity = capacity };
        Ok(())
    }
    /// Returns unused capacity to the allocator, if the blob is unique.
    pub fn shrink_to_fit(&mut self) {
        if self.is_unique() {
            // When shrinking fails, the blob keeps its capacity.
            let _ = self.try_set_capacity(self.len());
        }
    }
    /// Heap bytes of this blob, header included, whether shared or not.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self.capacity() {
            0 => 0,
            capacity => HEADER_BYTES + capacity,
        }
    }

    /// Takes over `memory` from the allocator. It is null or has [`layout`]`(capacity)`, with `capacity` > 0 and
    /// `len` initialised bytes after the header.
    #[inline]
    fn in_memory(memory: *mut u8, len: usize, capacity: usize) -> Result<Blob, OutOfMemory> {
        let header = NonNull::new(memory.cast::<Header>()).ok_or(OutOfMemory)?;
        // SAFETY: the allocation is new, aligned for a header and large enough for one.
        unsafe { header.write(Header { count: AtomicUsize::new(1), len, capacity }) };
        Ok(Blob { header })
    }
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header is initialised and kept alive by this handle; its plain fields are written only through
        // `&mut` on the only handle.
        unsafe { self.header.as_ref() }
    }
    /// The address of the blob's first byte.
    #[inline]
    fn bytes(&self) -> *mut u8 {
        // SAFETY: one header past the start is inside the allocation, or its one-past-the-end (the static header).
        unsafe { self.header.as_ptr().add(1).cast::<u8>() }
    }
    /// # Safety
    /// The blob is unique, is not the static header, and its first `len` bytes are initialised and within its capacity.
    #[inline]
    unsafe fn set_len(&mut self, len: usize) {
        // SAFETY: by this function's contract nobody else reads or writes the header.
        unsafe { (*self.header.as_ptr()).len = len };
    }
    /// # Safety
    /// The blob is unique, has room for `more`, and `more` lies outside its allocation.
    #[inline]
    unsafe fn append(&mut self, more: &[u8]) {
        if more.is_empty() {
            return;
        }
        let len = self.len();
        // SAFETY: the length is within the capacity.
        let end = unsafe { self.bytes().add(len) };
        // SAFETY: there is room for `more` after `len`, and it does not overlap.
        unsafe { ptr::copy_nonoverlapping(more.as_ptr(), end, more.len()) };
        // SAFETY: unique; there was room, so it is not the static header; the bytes are initialised now.
        unsafe { self.set_len(len + more.len()) };
    }
    #[cold]
    fn grow(&mut self, additional: usize) -> Result<(), OutOfMemory> {
        let needed = self.len().checked_add(additional).ok_or(OutOfMemory)?;
        let old = self.capacity();
        if needed <= old {
            return self.try_set_capacity(needed);
        }
        let grown = old.saturating_add(if old < DOUBLING_BYTES_MAX { old } else { old / 4 });
        self.try_set_capacity(needed.max(grown).max(GROWN_BYTES_MIN))
    }
    #[cold]
    fn free(&mut self) {
        if self.capacity() == 0 {
            return;
        }
        let layout = layout(self.capacity()).expect("it was allocated with this layout");
        // SAFETY: allocated with this layout, and this was the last handle.
        unsafe { dealloc(self.header.as_ptr().cast::<u8>(), layout) };
    }
}

impl Clone for Blob {
    #[inline]
    fn clone(&self) -> Blob {
        // All threads share the static header. Counting in it would make them compete for its cache line.
        if self.capacity() != 0 {
            // Relaxed: the new handle comes from an existing one, so the count cannot reach 0 meanwhile. The code
            // that passes a handle to another thread provides the necessary ordering.
            let before = self.header().count.fetch_add(1, Ordering::Relaxed);
            if before > HANDLES_MAX {
                std::process::abort();
            }
        }
        Blob { header: self.header }
    }
}

impl Drop for Blob {
    #[inline]
    fn drop(&mut self) {
        // A count of 1 cannot change: this is the only handle. The check saves a locked instruction.
        if !self.is_unique() {
            // Release: this handle's reads end before the last handle frees the memory.
            if self.header().count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // Acquire: all other handles' reads ended before the free below.
            fence(Ordering::Acquire);
        }
        self.free();
    }
}

/// The layout of an allocation with `capacity` bytes.
#[inline]
fn layout(capacity: usize) -> Result<Layout, OutOfMemory> {
    let size = HEADER_BYTES.checked_add(capacity).ok_or(OutOfMemory)?;
    Layout::from_size_align(size, align_of::<Header>()).map_err(|_| OutOfMemory)
}

#[cold]
fn no_memory(capacity: usize) -> ! {
    match layout(capacity) {
        Ok(layout) => handle_alloc_error(layout),
        Err(OutOfMemory) => panic!("a blob of {capacity} bytes is beyond the address space"),
    }
}
