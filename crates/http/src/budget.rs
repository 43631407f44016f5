//! [`RequestBudget`]: limits the memory of one request. Bytes are counted before they are allocated.
//!
//! Data gathered from a body or from replies (a document, a chunked value, a list of keys) is reserved in a
//! budget first. The reserved bytes count as the client's memory (`tot-mem` of CLIENT LIST) while the budget exists. A
//! budget refuses bytes above its limit. It counts capacities, not lengths: a buffer whose capacity doubles counts with
//! the doubled capacity.

use crate::pipe::Holding;

/// The error when a reservation would exceed the budget's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget;

/// Counts the bytes of one request, see the module.
pub struct RequestBudget {
    holding: Holding,
    held: usize,
    bytes_max: usize,
}

impl RequestBudget {
    /// Creates a budget of `bytes_max` bytes. `holding` always shows the reserved bytes.
    pub fn new(holding: Holding, bytes_max: usize) -> RequestBudget {
        RequestBudget { holding, held: 0, bytes_max }
    }
    /// Reserves `bytes` more bytes. Call this before the bytes are allocated.
    ///
    /// # Errors
    /// When the total would exceed the limit. Then nothing is reserved.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let held = self.held.checked_add(bytes).filter(|held| *held <= self.bytes_max).ok_or(OverBudget)?;
        self.held = held;
        self.holding.set(held);
        Ok(())
    }
    /// Releases `bytes` reserved bytes, after the caller has freed them.
    pub fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        self.holding.set(self.held);
    }
    /// Releases all reserved bytes.
    pub fn release_all(&mut self) {
        self.release(self.held);
    }
    /// Number of reserved bytes.
    pub fn reserved(&self) -> usize {
        self.held
    }
    /// Appends `more` to `to`, whose capacity this budget counts. The capacity doubles if the limit allows it.
    ///
    /// # Errors
    /// When the bytes exceed the limit. Then nothing is appended.
    pub fn append(&mut self, to: &mut Vec<u8>, more: &[u8]) -> Result<(), OverBudget> {
        let (len, capacity) = (to.len(), to.capacity());
        let needed = len.checked_add(more.len()).ok_or(OverBudget)?;
        if needed > capacity {
            let doubled = capacity.min(self.bytes_max - self.held);
            let growth = doubled.max(needed - capacity);
            self.reserve(growth)?;
            to.reserve_exact(capacity + growth - len);
        }
        to.extend_from_slice(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::pipe;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn capacity_is_reserved_before_it_grows_and_ends_at_the_limit() {
        let (http_end, session_end) = pipe();
        let meter = Arc::new(AtomicU64::new(0));
        session_end.measure(meter.clone());
        let mut budget = RequestBudget::new(http_end.holding(), 1000);
        let mut text = Vec::new();
        for i in 0..100 {
            let more = [b'x'; 10];
            budget.append(&mut text, &more).expect("within the limit");
            assert_eq!(text.len(), 10 * (i + 1));
            assert!(text.capacity() <= budget.reserved() && budget.reserved() <= 1000);
            assert_eq!(meter.load(Relaxed), budget.reserved() as u64);
        }
        assert_eq!(budget.append(&mut text, b"y"), Err(OverBudget));
        assert_eq!((text.len(), budget.reserve(1)), (1000, Err(OverBudget)));
        assert_eq!(budget.reserve(usize::MAX), Err(OverBudget));
        budget.release(400);
        assert_eq!((budget.reserve(400), budget.reserved()), (Ok(()), 1000));
        budget.release_all();
        assert_eq!(meter.load(Relaxed), 0);
        budget.reserve(7).expect("within the limit");
        drop(budget);
        assert_eq!(meter.load(Relaxed), 0);
    }
}
