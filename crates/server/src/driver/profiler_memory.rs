//! The memory of profiles and stacks, in an arena of the allocator of its own, so that its size is known.
//!
//! The profiler's library keeps its table of samples (84 MB) from the first profile until the process ends, and the names
//! of functions take 35 to 45 MB while a profile is made. No key may be evicted for this memory, so it does not count
//! against `maxmemory`. [`within`] runs the work that allocates it. [`bytes`] is its size.

use std::sync::OnceLock;
use tikv_jemalloc_ctl::{Access, AsName};

/// The index of the arena. `None` when the allocator could not create it: then the memory counts as other memory.
static ARENA: OnceLock<Option<Arena>> = OnceLock::new();

/// The arena, and the names of its two figures in the allocator's control interface.
struct Arena {
    index: u32,
    figures: [String; 2],
}

impl Arena {
    fn create() -> Option<Arena> {
        let index: u32 = b"arenas.create\0".name().read().ok()?;
        let figure = |size: &str| format!("stats.arenas.{index}.{size}.allocated\0");
        Some(Arena { index, figures: [figure("small"), figure("large")] })
    }
    /// Bytes that the arena has given out, as of the allocator's last epoch.
    fn bytes(&self) -> u64 {
        let read = |figure: &String| figure.as_bytes().name().read().unwrap_or(0usize) as u64;
        self.figures.iter().map(read).sum()
    }
}

/// Runs `work`. What `work` allocates on this thread comes from the profiler's arena.
pub fn within<T>(work: impl FnOnce() -> T) -> T {
    within_arena(ARENA.get_or_init(Arena::create).as_ref(), work)
}

/// Bytes that the arena has given out, as of the allocator's last epoch.
pub fn bytes() -> u64 {
    ARENA.get().and_then(Option::as_ref).map_or(0, Arena::bytes)
}

fn within_arena<T>(arena: Option<&Arena>, work: impl FnOnce() -> T) -> T {
    let _usual = arena.and_then(|arena| ArenaSwitch::to(arena.index));
    work()
}

/// While this exists, the thread allocates from another arena. The drop gives the thread its own arena back.
struct ArenaSwitch {
    own: u32,
}

impl ArenaSwitch {
    fn to(index: u32) -> Option<ArenaSwitch> {
        empty_thread_cache();
        let own = b"thread.arena\0".name().read().ok()?;
        b"thread.arena\0".name().write(index).ok()?;
        Some(ArenaSwitch { own })
    }
}

impl Drop for ArenaSwitch {
    fn drop(&mut self) {
        empty_thread_cache();
        // The thread came from this arena, so the arena exists.
        let _ = b"thread.arena\0".name().write(self.own);
    }
}

/// Gives the free memory that the allocator keeps ready for this thread back to its arena. Otherwise the other arena would
/// keep a part of it, and the part would count twice: `stats.arenas.N.small.allocated` has it, and so have the bytes of
/// the caches of threads.
fn empty_thread_cache() {
    let enabled = || b"thread.tcache.enabled\0".name();
    if enabled().read() == Ok(true) {
        // To disable the cache empties it. A failure only makes a figure inexact.
        let _ = enabled().write(false);
        let _ = enabled().write(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_work_is_counted_until_it_is_freed() {
        // Other tests allocate in the arena of the process.
        let arena = Arena::create().expect("jemalloc creates arenas");
        let counted = || {
            tikv_jemalloc_ctl::epoch::advance().expect("jemalloc has statistics");
            arena.bytes()
        };
        let own: u32 = b"thread.arena\0".name().read().expect("the thread has an arena");
        let before = counted();
        let (large, many) = within_arena(Some(&arena), || {
            (vec![1u8; 5 << 20], (0..20_000).map(|i| vec![i as u8; 300]).collect::<Vec<_>>())
        });
        let outside = vec![1u8; 64 << 20];
        let now = counted() - before;
        let made = (large.len() + many.len() * 320) as u64;
        assert!((made..made + (4 << 20)).contains(&now), "{now} of {made}");
        assert_eq!(b"thread.arena\0".name().read(), Ok(own));
        drop((large, many, outside));
        assert!(counted() < before + (2 << 20));
    }
}
