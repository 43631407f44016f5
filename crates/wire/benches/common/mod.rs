//! Measuring: processor time and the peak of the resident set.

/// Processor time of this thread in nanoseconds: what others do on the machine shows less in it than in the clock.
pub fn cpu_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The resident set before a stretch of work, in bytes.
pub struct Resident(usize);

impl Resident {
    /// Makes the kernel forget the peak so far. Where it does not let us (or there is none of it) figures are too high
    /// (or 0).
    pub fn start() -> Resident {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Resident(status_bytes("VmRSS:"))
    }
    /// How far the peak rose above it.
    pub fn growth(self) -> usize {
        status_bytes("VmHWM:").saturating_sub(self.0)
    }
}

fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}
