//! [`HotKeys`]: the most used keys by count, bytes and time, and candidates for the largest keys.
//!
//! On a worker one command in [`COMMANDS_PER_SAMPLE`] is sampled, at random distances, and stands for all of them. A command on a
//! helper thread is always sampled. The memory is bounded (three [`Sketch`]es for each of a few groups of workers)
//! for any keys: 140 KB, allocated at the start. Samples age: a sample counts half as much a minute later.

use parking_lot::Mutex;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use strand_diag::sketch::{By, Sketch, SketchRow, Weight};

/// Mean number of commands per sample.
pub(crate) const COMMANDS_PER_SAMPLE: u32 = 128;
/// Groups of workers. The workers of a group share a lock, for about 200 ns in [`COMMANDS_PER_SAMPLE`] commands.
const GROUPS: usize = 4;
/// Seconds after which a sample counts half.
const HALF_LIFE_S: u64 = 60;
/// Maximum number of keys of one command that count.
pub(crate) const KEYS_MAX: usize = 8;

/// The measures of the sketches, in the order of the sketches.
pub(crate) const MEASURES: [By; 3] = [By::Count, By::Bytes, By::Time];

/// The sketches of the most used keys. See the module.
pub(crate) struct HotKeys {
    groups: [Mutex<[Sketch; MEASURES.len()]>; GROUPS],
    aged_s: Mutex<u64>,
}

impl Default for HotKeys {
    fn default() -> HotKeys {
        let sketches = || Mutex::new(MEASURES.map(Sketch::new));
        HotKeys { groups: std::array::from_fn(|_| sketches()), aged_s: Mutex::default() }
    }
}

impl HotKeys {
    /// Adds a sample of a command on a key.
    pub(crate) fn add(&self, slot: usize, db: usize, key: &[u8], weight: &Weight) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((db, key));
        // Drop the sample when another worker has the lock, because a sample is not worth the wait.
        let Some(mut sketches) = self.groups[slot % GROUPS].try_lock() else { return };
        sketches.iter_mut().for_each(|sketch| sketch.add(hash, db, key, weight));
    }
    /// The heaviest keys of all groups, the heaviest first.
    pub(crate) fn heaviest(&self, by: By) -> Vec<SketchRow> {
        let at = MEASURES.iter().position(|kind| *kind == by).unwrap_or(0);
        let mut all = Sketch::new(by);
        self.groups.iter().for_each(|group| all.merge(&group.lock()[at]));
        all.heaviest()
    }
    /// Ages the samples when it is time.
    pub(crate) fn tick(&self, mono_s: u64) {
        let mut aged_s = self.aged_s.lock();
        if mono_s >= *aged_s + HALF_LIFE_S {
            *aged_s = mono_s;
            self.groups.iter().for_each(|group| group.lock().iter_mut().for_each(Sketch::age));
        }
    }
    /// Forgets all samples.
    pub(crate) fn clear(&self) {
        self.groups.iter().for_each(|group| group.lock().iter_mut().for_each(Sketch::clear));
    }
}

/// Commands until the first sample of a session.
pub(crate) fn first_sample(seed: u64) -> u32 {
    // A random start, so that sessions with few commands are sampled as often as others.
    fastrand::Rng::with_seed(seed).u32(0..2 * COMMANDS_PER_SAMPLE - 1)
}
