//! [`FairQueue`]: a queue of jobs for a limited number of slots. The many jobs of one owner do not delay the few jobs
//! of another.
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
pub(super) struct FairQueue<T> {
    /// For each owner that has at least one job: its waiting and running jobs.
    owners: BTreeMap<Owner, OwnerQueue<T>>,
    /// Number of running jobs by user. Users without a running job have no entry.
    users: BTreeMap<u64, usize>,
    running: usize,
    waiting: usize,
    arrivals: u64,
}

#[derive(Debug)]
struct OwnerQueue<T> {
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
    Reserved,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { owners: BTreeMap::new(), users: BTreeMap::new(), running: 0, waiting: 0, arrivals: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Adds a job that waits.
    pub(super) fn push(&mut self, owner: Owner, job: T) {
        let queue =
            self.owners.entry(owner).or_insert_with(|| OwnerQueue { waiting: VecDeque::new(), running: 0 });
        queue.waiting.push_back((self.arrivals, job));
        self.arrivals += 1;
        self.waiting += 1;
    }
    /// Takes the next job that may have the slot. The job counts as running until [`FairQueue::finish`].
    pub(super) fn take(&mut self, slot: SlotKind) -> Option<(Owner, T)> {
        let of_user = |owner: &Owner| self.users.get(&owner.user).copied().unwrap_or(0);
        let waiting = self.owners.iter().filter_map(|(owner, queue)| {
            let (arrival, _) = queue.waiting.front()?;
            let rank = (of_user(owner), queue.running, *arrival);
            (slot == SlotKind::Any || rank.0 == 0 || rank.1 == 0).then_some((rank, owner))
        });
        let owner = waiting.min()?.1.clone();
        let queue = self.owners.get_mut(&owner)?;
        let (_, job) = queue.waiting.pop_front()?;
        queue.running += 1;
        self.waiting -= 1;
        self.running += 1;
        *self.users.entry(owner.user).or_default() += 1;
        Some((owner, job))
    }
    /// Notes that a taken job of `owner` has ended.
    pub(super) fn finish(&mut self, owner: &Owner) {
        let Some(queue) = self.owners.get_mut(owner).filter(|queue| queue.running > 0) else { return };
        queue.running -= 1;
        if queue.running == 0 && queue.waiting.is_empty() {
            self.owners.remove(owner);
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
    fn the_owner_with_the_fewest_running_jobs_is_next() {
        let mut fair = FairQueue::default();
        (0..5).for_each(|i| fair.push(owner(1, "a"), i));
        fair.push(owner(1, "b"), 10);
        fair.push(owner(2, "a"), 20);
        fair.push(owner(2, "a"), 21);
        let order: Vec<i32> = std::iter::from_fn(|| fair.take(SlotKind::Any).map(|(_, job)| job)).collect();
        assert_eq!(order, [0, 20, 10, 21, 1, 2, 3, 4]);
        assert_eq!((fair.running(), fair.is_empty()), (8, true));
    }

    #[test]
    fn one_slot_is_reserved_for_owners_without_a_running_job() {
        let mut fair = FairQueue::default();
        (0..5).for_each(|i| fair.push(owner(1, "a"), i));
        assert_eq!(fair.take(SlotKind::Any), Some((owner(1, "a"), 0)));
        assert_eq!(fair.take(SlotKind::Reserved), None);
        fair.push(owner(1, "b"), 10);
        assert_eq!(fair.take(SlotKind::Reserved), Some((owner(1, "b"), 10)), "another address of the user");
        fair.push(owner(2, "a"), 20);
        assert_eq!(fair.take(SlotKind::Reserved), Some((owner(2, "a"), 20)), "another user");
        fair.finish(&owner(1, "a"));
        assert_eq!(fair.take(SlotKind::Reserved), Some((owner(1, "a"), 1)));
    }

    #[test]
    fn an_owner_without_jobs_is_forgotten() {
        let (mut fair, rng) = (FairQueue::default(), &mut fastrand::Rng::with_seed(5));
        let mut running = Vec::new();
        for i in 0..2_000 {
            fair.push(owner(rng.u64(..4), ["a", "b"][rng.usize(..2)]), i);
            if rng.bool() {
                running.extend(fair.take(SlotKind::Any).map(|(owner, _)| owner));
            }
            if rng.bool() && !running.is_empty() {
                fair.finish(&running.swap_remove(rng.usize(..running.len())));
            }
        }
        running.extend(std::iter::from_fn(|| fair.take(SlotKind::Any).map(|(owner, _)| owner)));
        assert_eq!(fair.running(), running.len());
        running.iter().for_each(|owner| fair.finish(owner));
        assert!(fair.owners.is_empty() && fair.users.is_empty() && fair.running() == 0 && fair.is_empty());
    }
}
