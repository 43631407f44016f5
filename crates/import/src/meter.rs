//! [`Meter`]: counts the bytes that a run reads of its source, and limits the bytes per second.

use crate::source::{Object, Stat};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum time without a read that allows more bytes later.
const CREDIT_MAX: Duration = Duration::from_secs(1);

/// The bytes that a run has read of its source.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Maximum number of bytes per second.
    rate: Option<u64>,
    /// When the rate allows the bytes so far.
    due: Cell<Instant>,
    bytes: Cell<u64>,
    /// Number of reads that failed.
    failures: Cell<u64>,
}

impl Meter {
    pub(crate) fn new(rate: Option<u64>) -> Rc<Meter> {
        Rc::new(Meter { rate, due: Cell::new(Instant::now()), bytes: Cell::new(0), failures: Cell::new(0) })
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Number of reads of wrapped objects that failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Wraps `object`, so that the meter counts its bytes. Each read waits until the rate allows its bytes.
    pub(crate) fn wrap(self: &Rc<Meter>, object: Box<dyn Object>) -> Box<dyn Object> {
        Box::new(Metered { object, meter: self.clone() })
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
        if let Some(rate) = self.rate {
            let now = Instant::now();
            self.due.set(due(self.due.get(), now, bytes as u64, rate));
            std::thread::sleep(self.due.get().saturating_duration_since(now));
        }
    }
}

/// When the rate allows `bytes` more than the bytes that are allowed at `previous`. After a pause the run does not catch
/// up: at most [`CREDIT_MAX`] of the pause counts.
fn due(previous: Instant, now: Instant, bytes: u64, rate: u64) -> Instant {
    let earliest = now.checked_sub(CREDIT_MAX).unwrap_or(now);
    previous.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64)
}

struct Metered {
    object: Box<dyn Object>,
    meter: Rc<Meter>,
}

impl Metered {
    fn count_failure(&self) {
        self.meter.failures.set(self.meter.failures.get() + 1);
    }
}

impl Object for Metered {
    fn stat(&self) -> io::Result<Stat> {
        self.object.stat().inspect_err(|_| self.count_failure())
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let got = self.object.read_at(offset, into).inspect_err(|_| self.count_failure())?;
        self.meter.count(got);
        Ok(got)
    }
    fn is_exact(&self) -> bool {
        self.object.is_exact()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_allows_one_second_of_bytes_at_most() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(due(begun, begun, 2000, 1000), begun + 2 * second);
        assert_eq!(due(begun + second, begun, 500, 1000), begun + second * 3 / 2);
        let later = begun + 60 * second;
        assert_eq!(due(begun, later, 1000, 1000), later);
        assert_eq!(due(begun, later, 3000, 1000), later + 2 * second);
    }
}
