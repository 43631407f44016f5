//! The memory of the process: jemalloc's figures and report, the kernel's figures, and the way to return free pages.
//!
//! jemalloc's figures are those of its last epoch. Without jemalloc's statistics they are 0.

use std::fs;
use std::io;
use strand_engine::MemoryFacts;
use tikv_jemalloc_ctl::{Access, AsName};

/// The memory of the process now. `system_bytes`: see [`MemoryFacts::system_bytes`].
pub(super) fn memory(system_bytes: u64) -> MemoryFacts {
    let (used_bytes, ready_bytes) = given_out();
    MemoryFacts {
        used_bytes,
        ready_bytes,
        active_bytes: tikv_jemalloc_ctl::stats::active::read().unwrap_or(0) as u64,
        resident_bytes: tikv_jemalloc_ctl::stats::resident::read().unwrap_or(0) as u64,
        rss_bytes: kilobytes("/proc/self/status", "VmRSS:").unwrap_or(0),
        system_bytes,
    }
}

/// [`MemoryFacts::used_bytes`]. Faster than [`memory`].
pub(super) fn used_bytes() -> u64 {
    given_out().0
}

/// Returns the free pages of all arenas to the system.
pub(super) fn purge() {
    // Setting an arena's decay time to 0 returns all free memory of the arena to the system.
    let arenas = tikv_jemalloc_ctl::arenas::narenas::read().unwrap_or(0);
    for i in 0..arenas {
        let name = format!("arena.{i}.dirty_decay_ms\0");
        let decay: tikv_jemalloc_ctl::Result<isize> = name.as_bytes().name().read();
        if let Ok(decay_ms) = decay
            && name.as_bytes().name().write(0isize).is_ok()
        {
            let _ = name.as_bytes().name().write(decay_ms);
        }
    }
}

/// jemalloc's own report.
pub(super) fn report() -> String {
    let mut report = YieldingReport::default();
    // Writing to a vector cannot fail.
    let _ = tikv_jemalloc_ctl::stats_print::stats_print(&mut report, Default::default());
    String::from_utf8_lossy(&report.text).into_owned()
}

/// Memory of the machine. 0: unknown.
pub(super) fn machine_bytes() -> u64 {
    kilobytes("/proc/meminfo", "MemTotal:").unwrap_or(0)
}

/// Bytes that the program uses, and bytes that are kept ready: by jemalloc's thread caches, for the rings of the workers, and
/// as free blocks of other connections. jemalloc's `allocated` is the sum. Begins an epoch of jemalloc's figures.
fn given_out() -> (u64, u64) {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    let allocated = tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0) as u64;
    // 4096 is jemalloc's index for all arenas together (MALLCTL_ARENAS_ALL).
    let thread_caches = b"stats.arenas.4096.tcache_bytes\0".name().read().unwrap_or(0usize) as u64;
    let ready = thread_caches + (strand_chain::pooled_bytes() + strand_ring::buffers_bytes()) as u64;
    (allocated.saturating_sub(ready), ready)
}

/// The allocator's report takes 2 ms. The thread yields now and then, because a worker may wait for this core.
#[derive(Default)]
struct YieldingReport {
    text: Vec<u8>,
    writes: usize,
}

/// Number of writes of the report between two yields.
const WRITES_A_TURN: usize = 32;

impl io::Write for YieldingReport {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.writes += 1;
        if self.writes.is_multiple_of(WRITES_A_TURN) {
            std::thread::yield_now();
        }
        self.text.extend_from_slice(piece);
        Ok(piece.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The peak of the process's memory, from the kernel.
pub fn peak_bytes() -> u64 {
    kilobytes("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// The value of a line `name   123 kB` in a file of `/proc`, in bytes.
fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
