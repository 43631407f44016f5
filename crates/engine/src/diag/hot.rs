//! [`HotKeys`]: the keys that are used most, by count, bytes and time; and candidates for the largest.
//!
//! One command in [`EVERY`] on a worker is looked at, at distances drawn by chance, and counts for all of them;
//! what runs on a helper thread is
//! looked at each time. What is kept is bounded (three [`Sketch`]es for each of a few groups of workers), whatever the keys
//! are (140 KB from the start on, and nothing is allocated later), and ages: what was seen counts half as much a minute later.

use parking_lot::Mutex;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use strand_diag::sketch::{By, Row, Sketch, Weight};

/// One command in so many is looked at, in the mean.
pub(crate) const EVERY: u32 = 128;
/// Groups of workers: those of one group share a lock, for some 200 ns in [`EVERY`] commands.
const GROUPS: usize = 4;
/// Seconds after which what was seen counts half.
const HALF_LIFE_S: u64 = 60;
/// Most keys of one command that are counted.
pub(crate) const KEYS_MAX: usize = 8;

/// By what they are kept, and in which order.
pub(crate) const KINDS: [By; 3] = [By::Count, By::Bytes, By::Time];

/// See the module.
pub(crate) struct HotKeys {
    groups: [Mutex<[Sketch; KINDS.len()]>; GROUPS],
    aged_s: Mutex<u64>,
}

impl Default for HotKeys {
    fn default() -> HotKeys {
        let sketches = || Mutex::new(KINDS.map(Sketch::new));
        HotKeys { groups: std::array::from_fn(|_| sketches()), aged_s: Mutex::default() }
    }
}

impl HotKeys {
    /// A command on a key was seen.
    pub(crate) fn add(&self, slot: usize, db: usize, key: &[u8], weight: &Weight) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((db, key));
        // A sample that would wait for another worker is worth less than the wait.
        let Some(mut sketches) = self.groups[slot % GROUPS].try_lock() else { return };
        sketches.iter_mut().for_each(|sketch| sketch.add(hash, db, key, weight));
    }
    /// The heaviest first, of all groups.
    pub(crate) fn heaviest(&self, by: By) -> Vec<Row> {
        let at = KINDS.iter().position(|kind| *kind == by).unwrap_or(0);
        let mut all = Sketch::new(by);
        self.groups.iter().for_each(|group| all.merge(&group.lock()[at]));
        all.heaviest()
    }
    /// Ages what was seen, when it is time to.
    pub(crate) fn tick(&self, mono_s: u64) {
        let mut aged_s = self.aged_s.lock();
        if mono_s >= *aged_s + HALF_LIFE_S {
            *aged_s = mono_s;
            self.groups.iter().for_each(|group| group.lock().iter_mut().for_each(Sketch::age));
        }
    }
    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.groups.iter().for_each(|group| group.lock().iter_mut().for_each(Sketch::clear));
    }
}

/// Commands until the first of a session that is looked at.
pub(crate) fn first_sample(seed: u64) -> u32 {
    // Sessions that live for a few commands only are looked at as often as others.
    fastrand::Rng::with_seed(seed).u32(0..2 * EVERY - 1)
}
