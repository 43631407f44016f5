//! [`Fair`]: a queue of jobs for a limited number of slots. The many jobs of one owner do not delay the few jobs of
//! another.
//!
//! The job of the owner with the fewest running jobs is next. The user counts first, then the address, then the
//! time of arrival. One extra slot is kept for owners without a running job, so that one user's slow jobs,
//! abandoned ones included, never take all slots.

use std::collections::{BTreeMap, VecDeque};

/// Owner of a job: the number of its user, and the client's address without port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) user: u64,
    pub(super) address: Box<str>,
}

/// The waiting jobs, and the number of running jobs of each owner.
#[derive(Debug)]
pub(super) struct Fair<T> {
    /// For each owner that has at least one job: its waiting and running jobs.
    lines: BTreeMap<Owner, Line<T>>,
    /// Number of running jobs by user. Users without a running job have no entry.
    users: BTreeMap<u64, usize>,
    running: usize,
    waiting: usize,
    arrivals: u64,
}

#[derive(Debug)]
struct Line<T> {
    /// The waiting jobs of an owner, each with the number of its arrival.
    waiting: VecDeque<(u64, T)>,
    running: usize,
}

/// Which owners may use a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// A slot that is open to every owner.
    Any,
    /// A slot that is open only to a user or an address without a running job.
    Kept,
}

impl<T> Default for Fair<T> {
    fn default() -> Fair<T> {
        Fair { lines: BTreeMap::new(), users: BTreeMap::new(), running: 0, waiting: 0, arrivals: 0 }
    }
}

impl<T> Fair<T> {
    /// Adds a job that waits.
    pub(super) fn push(&mut self, owner: Owner, job: T) {
        let line = self.lines.entry(owner).or_insert_with(|| Line { waiting: VecDeque::new(), running: 0 });
        line.waiting.push_back((self.arrivals, job));
        self.arrivals += 1;
        self.waiting += 1;
    }
    /// Takes the next job that may have the slot. The job counts as running until [`Fair::ended`].
    pub(super) fn take(&mut self, slot: SlotKind) -> Option<(Owner, T)> {
        let of_user = |owner: &Owner| self.users.get(&owner.user).copied().unwrap_or(0);
        let waiting = self.lines.iter().filter_map(|(owner, line)| {
            let (arrival, _) = line.waiting.front()?;
            let place = (of_user(owner), line.running, *arrival);
            (slot == SlotKind::Any || place.0 == 0 || place.1 == 0).then_some((place, owner))
        });
        let owner = waiting.min()?.1.clone();
        let line = self.lines.get_mut(&owner)?;
        let (_, job) = line.waiting.pop_front()?;
        line.running += 1;
        self.waiting -= 1;
        self.running += 1;
        *self.users.entry(owner.user).or_default() += 1;
        Some((owner, job))
    }
    /// Notes that a taken job of `owner` has ended.
    pub(super) fn ended(&mut self, owner: &Owner) {
        let Some(line) = self.lines.get_mut(owner).filter(|line| line.running > 0) else { return };
        line.running -= 1;
        if line.running == 0 && line.waiting.is_empty() {
            self.lines.remove(owner);
        }
        self.running -= 1;
        if let Some(running) = self.users.get_mut(&owner.user) {
            *running -= 1;
            if *running == 0 {
                self.users.remove(&owner.user);
            }
        }
    }
    /// Number of running jobs.
    pub(super) fn running(&self) -> usize {
        self.running
    }
    /// True when no job waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: u64, address: &str) -> Owner {
        Owner { user, address: address.into() }
    }

    #[test]
    fn who_has_fewest_running_comes_next() {
        let mut fair = Fair::default();
        (0..5).for_each(|i| fair.push(owner(1, "a"), i));
        fair.push(owner(1, "b"), 10);
        fair.push(owner(2, "a"), 20);
        fair.push(owner(2, "a"), 21);
        let order: Vec<i32> = std::iter::from_fn(|| fair.take(SlotKind::Any).map(|(_, job)| job)).collect();
        assert_eq!(order, [0, 20, 10, 21, 1, 2, 3, 4]);
        assert_eq!((fair.running(), fair.is_empty()), (8, true));
    }

    #[test]
    fn a_slot_is_kept_for_who_has_none_running() {
        let mut fair = Fair::default();
        (0..5).for_each(|i| fair.push(owner(1, "a"), i));
        assert_eq!(fair.take(SlotKind::Any), Some((owner(1, "a"), 0)));
        assert_eq!(fair.take(SlotKind::Kept), None);
        fair.push(owner(1, "b"), 10);
        assert_eq!(fair.take(SlotKind::Kept), Some((owner(1, "b"), 10)), "another address of the user");
        fair.push(owner(2, "a"), 20);
        assert_eq!(fair.take(SlotKind::Kept), Some((owner(2, "a"), 20)), "another user");
        fair.ended(&owner(1, "a"));
        assert_eq!(fair.take(SlotKind::Kept), Some((owner(1, "a"), 1)));
    }

    #[test]
    fn nothing_is_kept_of_who_has_no_job() {
        let (mut fair, rng) = (Fair::default(), &mut fastrand::Rng::with_seed(5));
        let mut running = Vec::new();
        for i in 0..2_000 {
            fair.push(owner(rng.u64(..4), ["a", "b"][rng.usize(..2)]), i);
            if rng.bool() {
                running.extend(fair.take(SlotKind::Any).map(|(owner, _)| owner));
            }
            if rng.bool() && !running.is_empty() {
                fair.ended(&running.swap_remove(rng.usize(..running.len())));
            }
        }
        running.extend(std::iter::from_fn(|| fair.take(SlotKind::Any).map(|(owner, _)| owner)));
        assert_eq!(fair.running(), running.len());
        running.iter().for_each(|owner| fair.ended(owner));
        assert!(fair.lines.is_empty() && fair.users.is_empty() && fair.running() == 0 && fair.is_empty());
    }
}
