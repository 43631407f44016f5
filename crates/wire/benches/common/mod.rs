//! Measuring: processor time and the peak of the resident set; and what both benches receive by.

use std::hint::black_box;
use strand_chain::Chain;

/// A decoder and what it has decoded last.
pub trait Receiver {
    /// Where the rest of a large body goes.
    fn body_spare(&mut self) -> Option<&mut [u8]>;
    /// So much of it was filled.
    fn body_filled(&mut self, n: usize);
    /// Decodes what is there.
    fn decode(&mut self, input: &mut Chain);
}

/// What receiving some strings cost.
pub struct Row {
    /// Processor time of all of them.
    pub ns_per_byte: f64,
    /// The most that the allocator held at once beyond what it held before, in the first; growing in place counts as moving.
    pub allocated: usize,
    /// How far the peak of the resident set rose above the resident set before, in the first.
    pub resident: usize,
}

/// Receives a string of `size` bytes `count` times; `receive_one` keeps it.
///
/// # Panics
/// When more than a tenth of it is held besides it at once.
pub fn measure(size: usize, count: usize, mut receive_one: impl FnMut()) -> Row {
    let started = cpu_ns();
    let resident = Resident::start();
    let allocated = allocation_counter::measure(&mut receive_one).bytes_max as usize;
    let resident = resident.growth();
    (1..count).for_each(|_| receive_one());
    let ns_per_byte = (cpu_ns() - started) / (size * count) as f64;
    assert!(allocated <= size + size / 10 + (1 << 20), "{size} bytes: {allocated} held at once");
    Row { ns_per_byte, allocated, resident }
}

/// Hands over `size` bytes in pieces as long as `chunk`, whose bytes they are: one small buffer, so that what is measured is
/// the receiver.
pub fn feed_chunks(receiver: &mut impl Receiver, input: &mut Chain, size: usize, chunk: &[u8]) {
    let mut left = size;
    while left > 0 {
        let n = left.min(chunk.len());
        feed(receiver, input, black_box(&chunk[..n]));
        left -= n;
    }
}

/// Hands `bytes` over as a connection reads: into the body where one is under way, into the chain's tail otherwise.
pub fn feed(receiver: &mut impl Receiver, input: &mut Chain, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n;
        if let Some(spare) = receiver.body_spare() {
            n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            receiver.body_filled(n);
        } else {
            let spare = input.spare();
            n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            input.filled(n);
        }
        bytes = &bytes[n..];
        receiver.decode(input);
    }
}

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
