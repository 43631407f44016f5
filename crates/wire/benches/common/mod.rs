//! Measures processor time and the peak of the resident set. Also feeds bytes to the decoders of both benches.

use std::hint::black_box;
use strand_chain::Chain;

/// A decoder that keeps its last result.
pub trait Receiver {
    /// The free memory of the current large body.
    fn body_spare(&mut self) -> Option<&mut [u8]>;
    /// Marks `n` bytes of the large body as filled.
    fn body_filled(&mut self, n: usize);
    /// Decodes the bytes in `input`.
    fn decode(&mut self, input: &mut Chain);
}

/// The cost of receiving some strings.
pub struct Row {
    /// Processor time per byte, over all strings.
    pub ns_per_byte: f64,
    /// Peak allocation while receiving the first string, above the allocation before. Growing in place counts as
    /// moving.
    pub allocated: usize,
    /// Peak of the resident set while receiving the first string, above the resident set before.
    pub resident: usize,
}

/// Receives a string of `size` bytes `count` times. `receive_one` keeps the string.
///
/// # Panics
/// Panics if the allocation at any time exceeds the string by more than a tenth.
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

/// Feeds `size` bytes in pieces. Every piece is `chunk`, the same small buffer, so only the receiver is measured.
pub fn feed_chunks(receiver: &mut impl Receiver, input: &mut Chain, size: usize, chunk: &[u8]) {
    let mut left = size;
    while left > 0 {
        let n = left.min(chunk.len());
        feed(receiver, input, black_box(&chunk[..n]));
        left -= n;
    }
}

/// Feeds `bytes` as a connection does: into the current large body if there is one, else into the chain's tail.
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

/// Processor time of this thread in nanoseconds. It depends less on other programs than wall-clock time.
pub fn cpu_ns() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The resident set before the measured work, in bytes.
pub struct Resident(usize);

impl Resident {
    /// Resets the kernel's record of the peak. Where the kernel does not allow the reset, the measured growth is too
    /// high; where the kernel has no such record, the growth is 0.
    pub fn start() -> Resident {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Resident(status_bytes("VmRSS:"))
    }
    /// The peak minus the resident set at the start.
    pub fn growth(self) -> usize {
        status_bytes("VmHWM:").saturating_sub(self.0)
    }
}

fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}
