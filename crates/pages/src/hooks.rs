//! The extent hooks: the allocator's own, except for the two that return pages to the system, which do so in
//! pieces.

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tikv_jemalloc_ctl::{Result, arenas, raw};
use tikv_jemalloc_sys::extent_hooks_t;

/// Maximum number of bytes returned at once: 16 pages of 4 KiB, which takes about 30 us in a nested virtual machine.
pub const PIECE_BYTES: usize = 64 << 10;

/// When the yields of one call have taken this long in total, the call yields less often. Beside programs that never
/// sleep, a yield takes long, and the allocator holds a lock until the call returns.
const WAITED_MAX: Duration = Duration::from_millis(10);
/// Number of pieces between two yields from then on: about 0.25 ms.
const PIECES_BETWEEN: u32 = 8;

/// An allocation above jemalloc's `oversize_threshold` (8 MiB) creates the arena for large allocations.
const OVERSIZE_BYTES: usize = 16 << 20;

/// jemalloc's name for the hooks of the first arena, which exists from the start of the process.
const HOOKS_OF_FIRST: &[u8] = b"arena.0.extent_hooks\0";

/// The original hooks. Still used for everything except returning pages.
static FORMER: OnceLock<extent_hooks_t> = OnceLock::new();
static PIECES: AtomicU64 = AtomicU64::new(0);

/// Makes every arena return pages in pieces of [`PIECE_BYTES`]. A second call has no effect.
///
/// # Errors
/// Fails if jemalloc is not the allocator, or does not return its hooks. Then nothing changes.
pub fn in_pieces() -> Result<()> {
    if FORMER.get().is_some() {
        return Ok(());
    }
    // SAFETY: jemalloc documents that the value under this name is a pointer to its hooks, and this pointer is read.
    let former: *mut extent_hooks_t = unsafe { raw::read(HOOKS_OF_FIRST)? };
    // SAFETY: hooks live as long as the arenas that have them, and nobody writes to those of the first arena.
    let former = *FORMER.get_or_init(|| unsafe { *former });
    let ours = extent_hooks_t {
        purge_lazy: former.purge_lazy.and(Some(give_back::<false>)),
        purge_forced: former.purge_forced.and(Some(give_back::<true>)),
        ..former
    };
    // Leak the hooks, because arenas keep the pointer to them forever.
    let ours: *mut extent_hooks_t = Box::leak(Box::new(ours));
    // Make the first large allocation, which creates the arena for large allocations.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(OVERSIZE_BYTES)));
    for arena in 0..arenas::narenas::read()? {
        let name = format!("arena.{arena}.extent_hooks\0");
        // This creates arenas that no thread uses yet (40 kB each). An arena that refuses keeps the original hooks.
        // SAFETY: as above, and `ours` is valid for the rest of the process.
        let _ = unsafe { raw::write(name.as_bytes(), ours) };
    }
    Ok(())
}

/// Number of pieces that were returned to the system so far.
pub fn pieces() -> u64 {
    PIECES.load(Relaxed)
}

/// The code of both hooks that return pages: returns a part of an extent to the system, piece by piece. Stops and
/// returns true when a piece fails, or when there is no original hook.
unsafe extern "C" fn give_back<const FORCED: bool>(
    hooks: *mut extent_hooks_t,
    extent: *mut c_void,
    size: usize,
    offset: usize,
    length: usize,
    arena: c_uint,
) -> bool {
    let of = |former: &extent_hooks_t| if FORCED { former.purge_forced } else { former.purge_lazy };
    let Some(former) = FORMER.get().and_then(of) else { return true };
    let (mut waited, mut pieces) = (Duration::ZERO, 0u32);
    for done in (0..length).step_by(PIECE_BYTES) {
        let bytes = PIECE_BYTES.min(length - done);
        // SAFETY: jemalloc calls this hook with a part of one of its extents, and the original hook accepts any such
        // part.
        if unsafe { former(hooks, extent, size, offset + done, bytes, arena) } {
            return true;
        }
        PIECES.fetch_add(1, Relaxed);
        pieces += 1;
        if waited < WAITED_MAX || pieces.is_multiple_of(PIECES_BETWEEN) {
            let began = Instant::now();
            std::thread::yield_now();
            waited += began.elapsed();
        }
    }
    false
}
