//! [`Ledger`]: the bytes that all jobs may hold together, and how many of them each job holds.

use std::collections::BTreeMap;

/// Bytes of the budget that the service itself needs.
pub const SERVICE_BYTES: u64 = 16 << 20;
/// Bytes that a running job holds before it reads a large document: for its program, its buffers, and documents up to
/// [`crate::memory::FREE_BYTES`].
pub const JOB_BYTES: u64 = 24 << 20;
/// Minimum budget. With it, one job can run and ask for more memory.
pub const BUDGET_BYTES_MIN: u64 = SERVICE_BYTES + 2 * JOB_BYTES;

/// The bytes of a budget, and their holders.
#[derive(Clone, Debug)]
pub struct Ledger {
    budget: u64,
    held: BTreeMap<String, u64>,
}

impl Ledger {
    /// An empty ledger. A budget below [`BUDGET_BYTES_MIN`] is raised to it.
    pub fn new(budget: u64) -> Ledger {
        Ledger { budget: budget.max(BUDGET_BYTES_MIN), held: BTreeMap::new() }
    }
    /// The budget.
    pub fn budget(&self) -> u64 {
        self.budget
    }
    /// Bytes that are held. The service's own bytes are included.
    pub fn held(&self) -> u64 {
        SERVICE_BYTES + self.held.values().sum::<u64>()
    }
    /// Bytes that nobody holds.
    pub fn free(&self) -> u64 {
        self.budget.saturating_sub(self.held())
    }
    /// Bytes that `name` holds.
    pub fn of(&self, name: &str) -> u64 {
        self.held.get(name).copied().unwrap_or(0)
    }
    /// Maximum number of bytes that one job can get in addition to [`JOB_BYTES`].
    pub fn most(&self) -> u64 {
        self.budget - SERVICE_BYTES - JOB_BYTES
    }
    /// Gives `bytes` more to `name` if that many bytes are free. Returns whether they were given.
    pub fn take(&mut self, name: &str, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.force(name, bytes);
        }
        fits
    }
    /// Gives `bytes` more to `name`, even if they are not free.
    pub fn force(&mut self, name: &str, bytes: u64) {
        *self.held.entry(name.to_owned()).or_default() += bytes;
    }
    /// Takes `bytes` back from `name`, at most what `name` holds.
    pub fn give_back(&mut self, name: &str, bytes: u64) {
        if let Some(held) = self.held.get_mut(name) {
            *held = held.saturating_sub(bytes);
        }
    }
    /// Forgets `name` and all its bytes.
    pub fn leave(&mut self, name: &str) {
        self.held.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn never_gives_what_is_not_there(steps in proptest::collection::vec((0u8..4, 0u8..5, 0u64..80 << 20), 1..200)) {
            let mut ledger = Ledger::new(256 << 20);
            let mut model = BTreeMap::<String, u64>::new();
            for (what, who, bytes) in steps {
                let name = who.to_string();
                match what {
                    0 | 1 => {
                        let fits = SERVICE_BYTES + model.values().sum::<u64>() + bytes <= 256 << 20;
                        prop_assert_eq!(ledger.take(&name, bytes), fits);
                        if fits {
                            *model.entry(name).or_default() += bytes;
                        }
                    }
                    2 => {
                        ledger.give_back(&name, bytes);
                        model.entry(name).and_modify(|held| *held = held.saturating_sub(bytes));
                    }
                    _ => {
                        ledger.leave(&name);
                        model.remove(&name);
                    }
                }
                prop_assert_eq!(ledger.held(), SERVICE_BYTES + model.values().sum::<u64>());
                prop_assert!(ledger.held() <= ledger.budget());
            }
        }
    }
}
