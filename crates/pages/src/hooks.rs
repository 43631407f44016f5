//! The extent hooks: the allocator's own, but for the two that give pages back, which call those piece by piece.

use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tikv_jemalloc_ctl::{Result, arenas, raw};
use tikv_jemalloc_sys::extent_hooks_t;

/// Longest range that is given back at once: 16 pages of 4 KiB, some 30 us in a guest in a guest.
pub const PIECE_BYTES: usize = 64 << 10;

/// An allocation of more than jemalloc's `oversize_threshold` (8 MiB) makes the arena of such allocations.
const OVERSIZE_BYTES: usize = 16 << 20;

/// jemalloc's name of the hooks of the first arena, which begins with the process.
const HOOKS_OF_FIRST: &[u8] = b"arena.0.extent_hooks\0";

/// What the hooks were before, and are for everything but giving back.
static FORMER: OnceLock<extent_hooks_t> = OnceLock::new();
static PIECES: AtomicU64 = AtomicU64::new(0);

/// From now on every arena gives pages back in pieces of [`PIECE_BYTES`]. Called again, it does nothing.
///
/// # Errors
/// When jemalloc is not the allocator, or does not tell its hooks. Then all is as it was.
pub fn in_pieces() -> Result<()> {
    if FORMER.get().is_some() {
        return Ok(());
    }
    // SAFETY: jemalloc documents the value under this name as a pointer to its hooks, which is what is read.
    let former: *mut extent_hooks_t = unsafe { raw::read(HOOKS_OF_FIRST)? };
    // SAFETY: hooks live as long as the arenas that have them, and nobody writes to those of the first arena.
    let former = *FORMER.get_or_init(|| unsafe { *former });
    let ours = extent_hooks_t {
        purge_lazy: former.purge_lazy.and(Some(give_back::<false>)),
        purge_forced: former.purge_forced.and(Some(give_back::<true>)),
        ..former
    };
    // Arenas keep the pointer for good.
    let ours: *mut extent_hooks_t = Box::leak(Box::new(ours));
    // The arena of large allocations begins with the first of them.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(OVERSIZE_BYTES)));
    for arena in 0..arenas::narenas::read()? {
        let name = format!("arena.{arena}.extent_hooks\0");
        // Arenas that no thread uses yet begin by this (40 kB each); one that refuses goes on as before.
        // SAFETY: as above, and `ours` is valid for the rest of the process.
        let _ = unsafe { raw::write(name.as_bytes(), ours) };
    }
    Ok(())
}

/// How many pieces have been given back so far.
pub fn pieces() -> u64 {
    PIECES.load(Relaxed)
}

/// Both hooks: gives back a part of an extent of some size; true, at once, when it fails or there is no former hook.
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
    for done in (0..length).step_by(PIECE_BYTES) {
        let bytes = PIECE_BYTES.min(length - done);
        // SAFETY: jemalloc calls this with a part of an extent of its own; the former hook takes parts of that just as well.
        if unsafe { former(hooks, extent, size, offset + done, bytes, arena) } {
            return true;
        }
        PIECES.fetch_add(1, Relaxed);
        std::thread::yield_now();
    }
    false
}
