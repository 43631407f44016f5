//! [`prefetch`]: requests memory before it is needed, so that several cache misses overlap.

/// Bytes of a cache line on the processors that Strand is built for.
pub const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor to load the `bytes` bytes at `at` into the cache. Only a hint: nothing is read, and addresses
/// after the value are harmless. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T: ?Sized>(at: &T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..bytes).step_by(CACHE_LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(at).cast::<i8>().wrapping_add(offset);
        // SAFETY: prefetching reads nothing and faults on no address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, bytes);
}
