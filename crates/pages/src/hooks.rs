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
        purge_lazy: former.purge_lazy.and(Some(purge_lazy)),
        purge_forced: former.purge_forced.and(Some(purge_forced)),
        ..former
    };
    // Arenas keep the pointer for good.
    let ours: *mut extent_hooks_t = Box::leak(Box::new(ours));
    drop(std::hint::black_box(Vec::<u8>::with_capacity(OVERSIZE_BYTES)));
    for arena in 0..arenas::narenas::read()? {
        let name = format!("arena.{arena}.extent_hooks\0");
        // One that is not in use cannot have hooks and has nothing to give back.
        // SAFETY: as above, and `ours` is valid for the rest of the process.
        let _ = unsafe { raw::write(name.as_bytes(), ours) };
    }
    Ok(())
}

/// How many pieces have been given back so far.
pub fn pieces() -> u64 {
    PIECES.load(Relaxed)
}

const HOOKS_OF_FIRST: &[u8] = b"arena.0.extent_hooks\0";

/// The type of both hooks: the hooks, an extent's address and size, offset and length of the part to give back, and the
/// arena; true when it fails.
type Purge = unsafe extern "C" fn(*mut extent_hooks_t, *mut c_void, usize, usize, usize, c_uint) -> bool;

unsafe extern "C" fn purge_lazy(
    hooks: *mut extent_hooks_t,
    extent: *mut c_void,
    size: usize,
    offset: usize,
    length: usize,
    arena: c_uint,
) -> bool {
    let former = FORMER.get().and_then(|former| former.purge_lazy);
    // SAFETY: called by jemalloc with an extent of its own, whose parts the former hook takes just as well.
    piecewise(offset, length, former, |purge, at, bytes| unsafe {
        purge(hooks, extent, size, at, bytes, arena)
    })
}

unsafe extern "C" fn purge_forced(
    hooks: *mut extent_hooks_t,
    extent: *mut c_void,
    size: usize,
    offset: usize,
    length: usize,
    arena: c_uint,
) -> bool {
    let former = FORMER.get().and_then(|former| former.purge_forced);
    // SAFETY: as for `purge_lazy`.
    piecewise(offset, length, former, |purge, at, bytes| unsafe {
        purge(hooks, extent, size, at, bytes, arena)
    })
}

/// Calls `give_back` with each part of a range; true, at once, when it fails or there is no former hook.
fn piecewise(
    offset: usize,
    length: usize,
    former: Option<Purge>,
    give_back: impl Fn(Purge, usize, usize) -> bool,
) -> bool {
    let Some(former) = former else { return true };
    for done in (0..length).step_by(PIECE_BYTES) {
        if give_back(former, offset + done, PIECE_BYTES.min(length - done)) {
            return true;
        }
        PIECES.fetch_add(1, Relaxed);
        std::thread::yield_now();
    }
    false
}
