//! [`Budget`]: limits the memory of one request. Bytes are counted before they are allocated.
//!
//! Data gathered from a body or from replies (a document, a chunked value, a list of keys) is taken from a budget
//! first. While the budget exists it counts as the client's memory (`tot-mem` of CLIENT LIST). It refuses bytes
//! above its limit. It counts capacities, not lengths: a buffer that doubles counts as its allocation.

use crate::pipe::Holding;

/// The error when the budget is spent. The bytes asked for were not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget;

/// Counts the bytes of one request, see the module.
pub struct Budget {
    holding: Holding,
    held: usize,
    bytes_max: usize,
}

impl Budget {
    /// Creates a budget of `bytes_max` bytes. `holding` always shows the bytes taken.
    pub fn new(holding: Holding, bytes_max: usize) -> Budget {
        Budget { holding, held: 0, bytes_max }
    }
    /// Takes `bytes` more bytes from the budget.
    ///
    /// # Errors
    /// When the total would exceed the limit. Then nothing is taken.
    pub fn take(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let held = self.held.checked_add(bytes).filter(|held| *held <= self.bytes_max).ok_or(OverBudget)?;
        self.held = held;
        self.holding.set(held);
        Ok(())
    }
    /// Returns `bytes` to the budget, after the caller has freed them.
    pub fn give(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
        self.holding.set(self.held);
    }
    /// Returns all taken bytes to the budget.
    pub fn clear(&mut self) {
        self.give(self.held);
    }
    /// Number of bytes that were taken from the budget.
    pub fn held(&self) -> usize {
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
            self.take(growth)?;
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
    fn capacities_count_before_they_grow_and_end_at_the_limit() {
        let (http_end, session_end) = pipe();
        let meter = Arc::new(AtomicU64::new(0));
        session_end.measure(meter.clone());
        let mut budget = Budget::new(http_end.holding(), 1000);
        let mut text = Vec::new();
        for i in 0..100 {
            let more = [b'x'; 10];
            budget.append(&mut text, &more).expect("within the limit");
            assert_eq!(text.len(), 10 * (i + 1));
            assert!(text.capacity() <= budget.held() && budget.held() <= 1000);
            assert_eq!(meter.load(Relaxed), budget.held() as u64);
        }
        assert_eq!(budget.append(&mut text, b"y"), Err(OverBudget));
        assert_eq!((text.len(), budget.take(1)), (1000, Err(OverBudget)));
        assert_eq!(budget.take(usize::MAX), Err(OverBudget));
        budget.give(400);
        assert_eq!((budget.take(400), budget.held()), (Ok(()), 1000));
        budget.clear();
        assert_eq!(meter.load(Relaxed), 0);
        budget.take(7).expect("within the limit");
        drop(budget);
        assert_eq!(meter.load(Relaxed), 0);
    }
}
