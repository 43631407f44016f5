//! [`Ledger`]: the memory that all jobs may use together, and the memory that each job uses.

use std::collections::BTreeMap;

/// Bytes of the budget for the service itself.
pub const SERVICE_BYTES: u64 = 16 << 20;
/// Bytes that every running job gets at its start: for its program, its buffers, and documents for which it makes no
/// request ([`crate::memory::FREE_BYTES`]).
pub const JOB_BYTES: u64 = 24 << 20;
/// Minimum budget in bytes. With it, one job can run and request [`JOB_BYTES`] more.
pub const BUDGET_BYTES_MIN: u64 = SERVICE_BYTES + 2 * JOB_BYTES;

/// A budget in bytes, and the bytes that each job holds.
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
    /// The budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }
    /// Bytes that all jobs hold, and [`SERVICE_BYTES`].
    pub fn held(&self) -> u64 {
        SERVICE_BYTES + self.held.values().sum::<u64>()
    }
    /// Bytes of the budget that are free.
    pub fn free(&self) -> u64 {
        self.budget.saturating_sub(self.held())
    }
    /// Bytes that `name` holds.
    pub fn held_by(&self, name: &str) -> u64 {
        self.held.get(name).copied().unwrap_or(0)
    }
    /// Maximum number of bytes that one job can get in addition to [`JOB_BYTES`].
    pub fn request_bytes_max(&self) -> u64 {
        self.budget - SERVICE_BYTES - JOB_BYTES
    }
    /// Gives `bytes` more to `name` if the budget has so much free. Returns false when it has not.
    pub fn take(&mut self, name: &str, bytes: u64) -> bool {
        let fits = bytes <= self.free();
        if fits {
            self.force(name, bytes);
        }
        fits
    }
    /// Gives `bytes` more to `name`, even beyond the budget.
    pub fn force(&mut self, name: &str, bytes: u64) {
        *self.held.entry(name.to_owned()).or_default() += bytes;
    }
    /// Takes `bytes` back from `name`, at most all bytes that `name` holds.
    pub fn give_back(&mut self, name: &str, bytes: u64) {
        if let Some(held) = self.held.get_mut(name) {
            *held = held.saturating_sub(bytes);
        }
    }
    /// Takes all bytes back from `name`.
    pub fn remove(&mut self, name: &str) {
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
        fn never_lends_more_than_the_budget(
            steps in proptest::collection::vec((0u8..4, 0u8..5, 0u64..80 << 20), 1..200),
        ) {
            let mut ledger = Ledger::new(256 << 20);
            let mut model = BTreeMap::<String, u64>::new();
            for (action, job, bytes) in steps {
                let name = job.to_string();
                match action {
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
                        ledger.remove(&name);
                        model.remove(&name);
                    }
                }
                prop_assert_eq!(ledger.held(), SERVICE_BYTES + model.values().sum::<u64>());
                prop_assert!(ledger.held() <= ledger.budget());
            }
        }
    }
}
