//! The directory: how many subscribers channels and patterns have at each office.

use ahash::RandomState;
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use strand_commands::glob;

/// Parts of the channels, each with a lock of its own: publishers of different channels do not meet.
const PARTS: usize = 16;

/// Elements that matching a pattern counts for at least.
const PATTERN_STEPS: usize = 8;

/// Subscribers by office.
#[derive(Debug, Default)]
pub(super) struct Counts(SmallVec<[(u32, u32); 2]>);

impl Counts {
    pub(super) fn add(&mut self, office: usize) {
        match self.0.iter_mut().find(|(at, _)| *at == office as u32) {
            Some((_, n)) => *n += 1,
            None => self.0.push((office as u32, 1)),
        }
    }
    /// True when nobody is left.
    pub(super) fn remove(&mut self, office: usize) -> bool {
        if let Some(i) = self.0.iter().position(|(at, _)| *at == office as u32) {
            self.0[i].1 -= 1;
            if self.0[i].1 == 0 {
                self.0.swap_remove(i);
            }
        }
        self.0.is_empty()
    }
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(_, n)| *n as usize).sum()
    }
}

/// Whom a message goes to.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Subscriptions.
    pub(super) receivers: usize,
    /// Offices that have any.
    pub(super) offices: SmallVec<[usize; 8]>,
}

impl Reach {
    pub(super) fn add(&mut self, counts: &Counts) {
        self.receivers += counts.total();
        for (office, _) in &counts.0 {
            if !self.offices.contains(&(*office as usize)) {
                self.offices.push(*office as usize);
            }
        }
    }
}

/// Channels with subscribers.
pub(super) type Part = HashMap<Arc<[u8]>, Counts, RandomState>;

/// All channels of a kind.
pub(super) struct Topics {
    parts: [RwLock<Part>; PARTS],
    hasher: RandomState,
}

impl Topics {
    pub(super) fn new() -> Topics {
        Topics { parts: Default::default(), hasher: RandomState::new() }
    }
    /// The part that a channel is in.
    pub(super) fn part(&self, channel: &[u8]) -> &RwLock<Part> {
        &self.parts[self.hasher.hash_one(channel) as usize % PARTS]
    }
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.read().len()).sum()
    }
    pub(super) fn each(&self, visit: &mut dyn FnMut(&[u8])) {
        for part in &self.parts {
            part.read().keys().for_each(|channel| visit(channel));
        }
    }
}

/// All patterns.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    by_pattern: BTreeMap<Arc<[u8]>, Counts>,
    all: Counts,
    /// See [`Patterns::effort`].
    effort: (usize, usize),
}

impl Patterns {
    pub(super) fn len(&self) -> usize {
        self.by_pattern.len()
    }
    pub(super) fn add(&mut self, pattern: &Arc<[u8]>, office: usize) {
        if !self.by_pattern.contains_key(pattern) {
            let (whole, each) = glob::effort(pattern);
            self.effort = (self.effort.0 + whole + PATTERN_STEPS, self.effort.1 + each);
        }
        self.by_pattern.entry(pattern.clone()).or_default().add(office);
        self.all.add(office);
    }
    pub(super) fn remove(&mut self, pattern: &[u8], office: usize) {
        self.all.remove(office);
        if self.by_pattern.get_mut(pattern).is_some_and(|counts| counts.remove(office)) {
            self.by_pattern.remove(pattern);
            let (whole, each) = glob::effort(pattern);
            self.effort = (self.effort.0 - whole - PATTERN_STEPS, self.effort.1 - each);
        }
    }
    /// The subscribers of all of them.
    pub(super) fn all(&self) -> &Counts {
        &self.all
    }
    /// What matching all of them takes, in elements: for a channel, and for each of its bytes.
    pub(super) fn effort(&self) -> (usize, usize) {
        self.effort
    }
    /// Adds those behind `from` that match `channel` to `reach`; false when it stopped after about `steps` elements, and
    /// `from` says where.
    pub(super) fn match_some(
        &self,
        channel: &[u8],
        from: &mut Option<Arc<[u8]>>,
        steps: usize,
        reach: &mut Reach,
    ) -> bool {
        let mut left = steps;
        let begin = from.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (pattern, counts) in self.by_pattern.range::<Arc<[u8]>, _>((begin, Bound::Unbounded)) {
            if matches(pattern, channel, &mut left) {
                reach.add(counts);
            }
            if left == 0 {
                *from = Some(pattern.clone());
                return false;
            }
        }
        true
    }
}

/// True when `pattern` takes `channel`; takes what that took off `left`.
pub(super) fn matches(pattern: &[u8], channel: &[u8], left: &mut usize) -> bool {
    let mut took = PATTERN_STEPS;
    let count = |steps| {
        took += steps;
        true
    };
    // A lone star takes every channel: as in redis-server, but for the empty one.
    let fits = glob::matches_counted(pattern, channel, false, count).unwrap_or(false);
    *left = left.saturating_sub(took);
    fits
}
