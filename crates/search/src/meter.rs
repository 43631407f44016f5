//! [`Meter`]: the memory and work limits of one request.
//!
//! Memory that a request needs (a planned query, a set of documents, results) is added to its meter before it is
//! allocated, and refused above [`REQUEST_BYTES_MAX`]. [`crate::Search::requests_bytes`] is the held bytes of all
//! meters. Code that walks data counts its steps. Every [`STEPS_PER_CHECK`] steps the meter checks the deadline,
//! checks whether the client still waits, and yields the processor. The scorers of a query share the meter and end
//! early once the request must stop. The caller that walks them must then call [`Meter::check`] before it uses the
//! result.

use crate::error::SearchError;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Maximum number of bytes that one request holds at a time.
pub(crate) const REQUEST_BYTES_MAX: u64 = 256 << 20;
/// Number of steps between two checks of the deadline and of the client. A step is a document passed, a position read
/// or a byte of a dictionary's terms: 5 to 50 ns each.
pub(crate) const STEPS_PER_CHECK: u64 = 4096;

/// Why a request must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StopReason {
    /// The client no longer waits.
    Cancelled = 1,
    /// The request's TIMEOUT has passed.
    Timeout = 2,
    /// The request would hold more than [`REQUEST_BYTES_MAX`].
    Memory = 3,
}

impl From<StopReason> for SearchError {
    fn from(over: StopReason) -> SearchError {
        match over {
            StopReason::Cancelled => SearchError::Cancelled,
            StopReason::Timeout => SearchError::Timeout,
            StopReason::Memory => SearchError::RequestTooLarge(REQUEST_BYTES_MAX),
        }
    }
}

/// Counters of one request.
#[derive(Debug)]
pub(crate) struct Meter {
    cancel: Arc<AtomicBool>,
    deadline: OnceLock<Instant>,
    /// Number of bytes held by all requests together.
    all_bytes: Arc<AtomicU64>,
    /// Number of bytes held by this request.
    bytes: AtomicU64,
    steps: AtomicU64,
    /// Step count at which the next check is due.
    next_check_at: AtomicU64,
    /// Why the request must stop, as a [`StopReason`], or 0.
    over: AtomicU8,
}

impl Meter {
    /// A meter for a request that stops when `cancel` is set. The bytes that it holds are added to `all_bytes`.
    pub(crate) fn new(cancel: &Arc<AtomicBool>, all_bytes: &Arc<AtomicU64>) -> Arc<Meter> {
        Arc::new(Meter {
            cancel: cancel.clone(),
            deadline: OnceLock::new(),
            all_bytes: all_bytes.clone(),
            bytes: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            next_check_at: AtomicU64::new(STEPS_PER_CHECK),
            over: AtomicU8::new(0),
        })
    }
    /// Sets the deadline. A later call has no effect.
    pub(crate) fn end_at(&self, deadline: Instant) {
        // `set` fails when the deadline was set before, which is no error.
        let _ = self.deadline.set(deadline);
    }
    /// Counts `bytes` before they are allocated.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), StopReason> {
        self.check()?;
        if self.bytes.load(Relaxed).saturating_add(bytes as u64) > REQUEST_BYTES_MAX {
            return Err(self.stop(StopReason::Memory));
        }
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.all_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(())
    }
    /// Counts `bytes` as freed.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Relaxed);
        self.all_bytes.fetch_sub(bytes as u64, Relaxed);
    }
    /// Counts `steps` of work, done or about to be done.
    #[inline]
    pub(crate) fn step(&self, steps: usize) -> Result<(), StopReason> {
        // Only one thread works for a request, so a load and a store are enough.
        let all = self.steps.load(Relaxed) + steps as u64;
        self.steps.store(all, Relaxed);
        if all >= self.next_check_at.load(Relaxed) { self.check_now() } else { self.check() }
    }
    /// Fails with the reason when the request must stop.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), StopReason> {
        match self.over.load(Relaxed) {
            0 => Ok(()),
            1 => Err(StopReason::Cancelled),
            2 => Err(StopReason::Timeout),
            _ => Err(StopReason::Memory),
        }
    }
    /// Checks the deadline and the client now.
    #[cold]
    pub(crate) fn check_now(&self) -> Result<(), StopReason> {
        self.next_check_at.store(self.steps.load(Relaxed) + STEPS_PER_CHECK, Relaxed);
        self.check()?;
        std::thread::yield_now();
        if self.cancel.load(Relaxed) {
            return Err(self.stop(StopReason::Cancelled));
        }
        match self.deadline.get() {
            Some(deadline) if Instant::now() >= *deadline => Err(self.stop(StopReason::Timeout)),
            _ => Ok(()),
        }
    }
    fn stop(&self, over: StopReason) -> StopReason {
        self.over.store(over as u8, Relaxed);
        over
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes.load(Relaxed), Relaxed);
    }
}

/// Bytes that a meter counts until this value is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    meter: Arc<Meter>,
    bytes: usize,
}

impl Holding {
    /// Counts `bytes` as held until the value is dropped.
    pub(crate) fn new(meter: &Arc<Meter>, bytes: usize) -> Result<Holding, StopReason> {
        meter.hold(bytes)?;
        Ok(Holding { meter: meter.clone(), bytes })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.meter.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_held_bytes_and_refuses_too_many() {
        let (cancel, all) = (Arc::default(), Arc::default());
        let (one, other) = (Meter::new(&cancel, &all), Meter::new(&cancel, &all));
        one.hold(100).unwrap();
        let holding = Holding::new(&other, 1000).unwrap();
        assert_eq!(all.load(Relaxed), 1100);
        drop(holding);
        one.release(40);
        assert_eq!(all.load(Relaxed), 60);
        assert_eq!(one.hold(REQUEST_BYTES_MAX as usize), Err(StopReason::Memory));
        assert_eq!((one.check(), one.step(1)), (Err(StopReason::Memory), Err(StopReason::Memory)));
        assert_eq!(other.hold(REQUEST_BYTES_MAX as usize), Ok(()), "each has its own bound");
        drop((one, other));
        assert_eq!(all.load(Relaxed), 0);
    }

    #[test]
    fn a_meter_checks_for_a_stop_after_its_steps() {
        let (cancel, all): (Arc<AtomicBool>, _) = (Arc::default(), Arc::default());
        let meter = Meter::new(&cancel, &all);
        cancel.store(true, Relaxed);
        assert_eq!(meter.step(STEPS_PER_CHECK as usize - 1), Ok(()));
        assert_eq!(meter.step(1), Err(StopReason::Cancelled));
        assert_eq!(meter.check(), Err(StopReason::Cancelled));
        let meter = Meter::new(&Arc::default(), &all);
        meter.end_at(Instant::now());
        assert_eq!(meter.step(STEPS_PER_CHECK as usize), Err(StopReason::Timeout));
    }
}
