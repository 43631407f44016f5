//! [`PartedMap`]: a value for each channel, in a hash map of many parts. A hash map that grows moves all its entries at
//! once. With 900,000 channels in one map, one SUBSCRIBE took 263 ms. Here one part grows at a time, and a part whose
//! entries are removed gives memory back.

use ahash::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Number of parts. With a million entries, a part that grows moves about 4,000 of them, in about 0.2 ms.
pub(super) const PARTS: usize = 256;

/// A part: all entries whose names have one value of their hash's middle bits.
pub(super) type Part<V> = HashMap<Arc<[u8]>, V, RandomState>;

/// A value for each name.
#[derive(Debug)]
pub(super) struct PartedMap<V> {
    parts: Box<[Part<V>]>,
    hasher: RandomState,
}

impl<V> Default for PartedMap<V> {
    fn default() -> PartedMap<V> {
        PartedMap { parts: (0..PARTS).map(|_| Part::default()).collect(), hasher: RandomState::new() }
    }
}

impl<V: Default> PartedMap<V> {
    /// The value of `name`.
    pub(super) fn get(&self, name: &[u8]) -> Option<&V> {
        self.parts[part_of(&self.hasher, name)].get(name)
    }
    /// The value of `name`, which is added if it is missing.
    pub(super) fn get_or_add(&mut self, name: &Arc<[u8]>) -> &mut V {
        self.parts[part_of(&self.hasher, name)].entry(name.clone()).or_default()
    }
    /// Lets `change` change the value of `name`, if there is one, and removes the value when `change` returns true.
    pub(super) fn remove_if(&mut self, name: &[u8], change: impl FnOnce(&mut V) -> bool) {
        remove_if(&mut self.parts[part_of(&self.hasher, name)], name, change);
    }
}

/// The part of `name`.
pub(super) fn part_of(hasher: &impl BuildHasher, name: &[u8]) -> usize {
    hasher.hash_one(name) as usize % PARTS
}

/// [`PartedMap::remove_if`] for one part. A part of which little is left gives memory back.
pub(super) fn remove_if<V>(part: &mut Part<V>, name: &[u8], change: impl FnOnce(&mut V) -> bool) {
    if part.get_mut(name).is_some_and(change) {
        part.remove(name);
        if part.len() < part.capacity() / 8 {
            part.shrink_to(2 * part.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_what_was_added_and_gives_memory_back() {
        let mut map = PartedMap::<usize>::default();
        let names: Vec<Arc<[u8]>> =
            (0..100_000).map(|i| format!("channel:{i}").into_bytes().into()).collect();
        for (i, name) in names.iter().enumerate() {
            *map.get_or_add(name) = i;
        }
        assert!(names.iter().enumerate().all(|(i, name)| map.get(name) == Some(&i)));
        let largest = map.parts.iter().map(HashMap::len).max().expect("there are parts");
        assert!(largest < 2 * names.len() / PARTS, "{largest} entries are in one part");
        for (i, name) in names.iter().enumerate() {
            map.remove_if(name, |value| *value == i && i > 0);
        }
        assert_eq!((map.get(&names[0]), map.get(&names[1])), (Some(&0), None));
        let capacity: usize = map.parts.iter().map(HashMap::capacity).sum();
        assert!(capacity < 8 * PARTS, "room for {capacity} entries is left");
    }
}
