//! The directory: the number of subscribers of each channel and pattern at each dispatcher.

use super::parted_map::{PARTS, Part, part_of};
use ahash::RandomState;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use strand_commands::glob;

/// Minimum number of elements that matching a pattern counts as.
const PATTERN_STEPS: usize = 8;

/// Numbers of subscribers of one channel or pattern. Each entry has a dispatcher's number and its subscribers.
#[derive(Debug, Default)]
pub(super) struct Counts(SmallVec<[(u32, u32); 2]>);

impl Counts {
    /// Adds a subscriber at `dispatcher`.
    pub(super) fn add(&mut self, dispatcher: usize) {
        match self.0.iter_mut().find(|(at, _)| *at == dispatcher as u32) {
            Some((_, n)) => *n += 1,
            None => self.0.push((dispatcher as u32, 1)),
        }
    }
    /// Removes a subscriber. True when none is left.
    pub(super) fn remove(&mut self, dispatcher: usize) -> bool {
        if let Some(i) = self.0.iter().position(|(at, _)| *at == dispatcher as u32) {
            self.0[i].1 -= 1;
            if self.0[i].1 == 0 {
                self.0.swap_remove(i);
            }
        }
        self.0.is_empty()
    }
    /// Number of subscribers at all dispatchers.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, n)| *n as usize).sum()
    }
}

/// Which subscriptions a message reaches.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// Number of subscriptions that the message reaches.
    pub(super) receivers: usize,
    /// The dispatchers that have subscribers for the message.
    pub(super) dispatchers: SmallVec<[usize; 8]>,
}

impl Recipients {
    /// Adds the subscribers of a channel or pattern.
    pub(super) fn add(&mut self, counts: &Counts) {
        self.receivers += counts.total();
        for (dispatcher, _) in &counts.0 {
            if !self.dispatchers.contains(&(*dispatcher as usize)) {
                self.dispatchers.push(*dispatcher as usize);
            }
        }
    }
}

/// All channels of a kind, divided into parts. Each part has its own lock, so publishers of different channels rarely
/// meet.
pub(super) struct Topics {
    parts: Box<[RwLock<Part<Counts>>]>,
    hasher: RandomState,
}

impl Topics {
    pub(super) fn new() -> Topics {
        Topics { parts: (0..PARTS).map(|_| RwLock::default()).collect(), hasher: RandomState::new() }
    }
    /// The part of a channel.
    pub(super) fn part(&self, channel: &[u8]) -> &RwLock<Part<Counts>> {
        &self.parts[part_of(&self.hasher, channel)]
    }
    /// Number of channels with subscribers.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.read().len()).sum()
    }
    /// Visits the channels with subscribers. A visit may take long, so no lock is held meanwhile.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&[u8])) {
        for part in self.parts.iter() {
            let channels: Vec<Arc<[u8]>> = part.read().keys().cloned().collect();
            channels.iter().for_each(|channel| visit(channel));
        }
    }
}

/// All patterns that have subscribers.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    by_pattern: BTreeMap<Arc<[u8]>, Counts>,
    /// The subscribers of all patterns.
    all: Counts,
    /// Elements to match all patterns: see [`Patterns::match_cost`].
    match_cost: (usize, usize),
}

impl Patterns {
    /// Number of different patterns.
    pub(super) fn len(&self) -> usize {
        self.by_pattern.len()
    }
    /// Adds a subscriber of `pattern` at `dispatcher`.
    pub(super) fn add(&mut self, pattern: &Arc<[u8]>, dispatcher: usize) {
        if !self.by_pattern.contains_key(pattern) {
            let (whole, each) = glob::effort(pattern);
            self.match_cost = (self.match_cost.0 + whole + PATTERN_STEPS, self.match_cost.1 + each);
        }
        self.by_pattern.entry(pattern.clone()).or_default().add(dispatcher);
        self.all.add(dispatcher);
    }
    /// Removes a subscriber of `pattern` at `dispatcher`.
    pub(super) fn remove(&mut self, pattern: &[u8], dispatcher: usize) {
        self.all.remove(dispatcher);
        if self.by_pattern.get_mut(pattern).is_some_and(|counts| counts.remove(dispatcher)) {
            self.by_pattern.remove(pattern);
            let (whole, each) = glob::effort(pattern);
            self.match_cost = (self.match_cost.0 - whole - PATTERN_STEPS, self.match_cost.1 - each);
        }
    }
    /// The subscribers of all patterns.
    pub(super) fn all(&self) -> &Counts {
        &self.all
    }
    /// The cost of matching all patterns, in elements: per channel, and per byte of its name.
    pub(super) fn match_cost(&self) -> (usize, usize) {
        self.match_cost
    }
    /// Adds the matching patterns after `from` to `recipients`. False when it stopped after about `steps` elements;
    /// `from` is then the place to continue.
    pub(super) fn match_some(
        &self,
        channel: &[u8],
        from: &mut Option<Arc<[u8]>>,
        steps: usize,
        recipients: &mut Recipients,
    ) -> bool {
        let mut left = steps;
        let begin = from.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (pattern, counts) in self.by_pattern.range::<Arc<[u8]>, _>((begin, Bound::Unbounded)) {
            if matches(pattern, channel, &mut left) {
                recipients.add(counts);
            }
            if left == 0 {
                *from = Some(pattern.clone());
                return false;
            }
        }
        true
    }
}

/// True when `pattern` matches `channel`. Subtracts the tried elements from `left`.
pub(super) fn matches(pattern: &[u8], channel: &[u8], left: &mut usize) -> bool {
    let mut took = PATTERN_STEPS;
    let count = |steps| {
        took += steps;
        true
    };
    // As in redis-server, a lone star matches every channel except the empty one.
    let fits = glob::matches_counted(pattern, channel, false, count).unwrap_or(false);
    *left = left.saturating_sub(took);
    fits
}
