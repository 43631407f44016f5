//! [`Memory`]: a run asks before it holds much, where somebody counts the memory of several runs.

use crate::extract::DOCUMENT_BYTES_MAX;
use std::sync::Arc;

/// Bytes for a document that nobody is asked for.
pub const FREE_BYTES: u64 = 2 << 20;
/// What extraction holds for each byte of a document.
pub const MEMORY_FACTOR: u64 = 5;

/// What the process that extracts documents holds while it waits for one.
pub const EXTRACTOR_BYTES: u64 = 4 << 20;

/// Gives bytes to a run.
pub trait Lender: Send + Sync {
    /// Waits until the run may hold `bytes` more for the document `path`.
    fn take(&self, bytes: u64, path: &[u8]);
    /// The run holds `bytes` less.
    fn give_back(&self, bytes: u64);
    /// The containers that the run holds have `bytes` now.
    fn containers(&self, bytes: u64);
}

/// Whom a run asks; nobody by default.
#[derive(Clone, Default)]
pub struct Memory(pub Option<Arc<dyn Lender>>);

/// Bytes that are given back when this goes.
#[must_use]
pub(crate) struct Loan(Option<Arc<dyn Lender>>, u64);

impl Memory {
    /// Waits for the memory that a document of `size` bytes takes; an unknown size counts as the largest.
    pub(crate) fn for_document(&self, size: Option<u64>, path: &[u8]) -> Loan {
        let bytes = size.unwrap_or(DOCUMENT_BYTES_MAX).min(DOCUMENT_BYTES_MAX) * MEMORY_FACTOR;
        match &self.0 {
            Some(lender) if bytes > FREE_BYTES => {
                lender.take(bytes, path);
                Loan(Some(lender.clone()), bytes)
            }
            _ => Loan(None, 0),
        }
    }

    /// Waits for the memory of a process that extracts documents; `path` is the first document.
    pub(crate) fn for_extractor(&self, path: &[u8]) -> Loan {
        match &self.0 {
            Some(lender) => {
                lender.take(EXTRACTOR_BYTES, path);
                Loan(Some(lender.clone()), EXTRACTOR_BYTES)
            }
            None => Loan(None, 0),
        }
    }

    /// Tells how many bytes of containers are held.
    pub(crate) fn containers(&self, bytes: usize) {
        if let Some(lender) = &self.0 {
            lender.containers(bytes as u64);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(lender) = &self.0 {
            lender.give_back(self.1);
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Memory(lent)" } else { "Memory(free)" })
    }
}

/// Keeps a run to a number of bytes a second.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Option<u64>,
    begun: std::time::Instant,
    bytes: u64,
}

impl Throttle {
    pub(crate) fn new(rate: Option<u64>) -> Throttle {
        Throttle { rate, begun: std::time::Instant::now(), bytes: 0 }
    }

    /// `bytes` were read. Waits until the rate allows that.
    pub(crate) fn read(&mut self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        self.bytes += bytes;
        let due = std::time::Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
    }
}
