//! [`Subscriptions`]: the subscriptions of one client.

use super::Namespace;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The subscription is to a channel.
    Channel,
    /// The subscription is to all channels that match a pattern.
    Pattern,
    /// The subscription is to a shard channel.
    Shard,
}

impl Topic {
    /// The kind of channel. `None` for a pattern.
    pub(super) fn kind(self) -> Option<Namespace> {
        match self {
            Topic::Channel => Some(Namespace::Channel),
            Topic::Pattern => None,
            Topic::Shard => Some(Namespace::Shard),
        }
    }
}

/// Memory of a subscription besides its name: its entries in this set, in the directory and at the dispatcher.
const SUBSCRIPTION_BYTES: usize = 160;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The subscribed names, indexed by [`Topic`].
    sets: [BTreeSet<Arc<[u8]>>; 3],
    /// Memory of the subscriptions.
    bytes: usize,
    /// The prefixes of CLIENT TRACKING BCAST. They do not overlap, but the empty prefix may stand beside others.
    prefixes: BTreeSet<Arc<[u8]>>,
    /// Memory of the prefixes.
    prefixes_bytes: usize,
}

impl Subscriptions {
    /// The subscribed names of one kind, in order.
    pub(crate) fn set(&self, topic: Topic) -> &BTreeSet<Arc<[u8]>> {
        &self.sets[topic as usize]
    }
    /// The number of subscriptions by [`Topic`].
    pub(crate) fn lens(&self) -> [usize; 3] {
        [0, 1, 2].map(|i| self.sets[i].len())
    }
    /// Number of subscriptions of all kinds.
    pub(crate) fn len(&self) -> usize {
        self.lens().iter().sum()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.iter().all(BTreeSet::is_empty)
    }
    /// Memory of the subscriptions in bytes, without the prefixes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// The prefixes of CLIENT TRACKING BCAST, in order.
    pub(crate) fn prefixes(&self) -> &BTreeSet<Arc<[u8]>> {
        &self.prefixes
    }
    /// Memory of the prefixes in bytes.
    pub(crate) fn prefixes_bytes(&self) -> usize {
        self.prefixes_bytes
    }
    /// Adds a prefix that is not in the set yet.
    pub(crate) fn add_prefix(&mut self, prefix: Arc<[u8]>) {
        self.prefixes_bytes += prefix.len() + SUBSCRIPTION_BYTES;
        self.prefixes.insert(prefix);
    }
    /// Removes a prefix, if the client has one, and returns it.
    pub(crate) fn take_prefix(&mut self) -> Option<Arc<[u8]>> {
        let prefix = self.prefixes.pop_first()?;
        self.prefixes_bytes -= prefix.len() + SUBSCRIPTION_BYTES;
        Some(prefix)
    }
    /// The prefixes that `key` begins with.
    pub(super) fn prefixes_of(&self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        let every = self.prefixes.first().filter(|prefix| prefix.is_empty());
        // No other prefix stands between the one that `key` begins with and `key`: the two would overlap.
        let until_key = (Bound::Unbounded, Bound::Included(key));
        let last = self.prefixes.range::<[u8], _>(until_key).next_back();
        let last = last.filter(|prefix| !prefix.is_empty() && key.starts_with(prefix));
        every.into_iter().chain(last).map(|prefix| &**prefix)
    }
    /// True when the client subscribes to `name`.
    pub(crate) fn has(&self, topic: Topic, name: &[u8]) -> bool {
        self.set(topic).contains(name)
    }
    /// Adds a subscription that is not in the set yet.
    pub(crate) fn add(&mut self, topic: Topic, name: Arc<[u8]>) {
        self.bytes += name.len() + SUBSCRIPTION_BYTES;
        self.sets[topic as usize].insert(name);
    }
    /// Removes a subscription, if the client has it.
    pub(crate) fn remove(&mut self, topic: Topic, name: &[u8]) {
        if self.sets[topic as usize].remove(name) {
            self.bytes -= name.len() + SUBSCRIPTION_BYTES;
        }
    }
    /// The client's last channel. Without channels, its last pattern, and without patterns its last shard channel.
    pub(crate) fn last(&self) -> Option<(Topic, Arc<[u8]>)> {
        let of = |topic: Topic| Some((topic, self.set(topic).last()?.clone()));
        of(Topic::Channel).or_else(|| of(Topic::Pattern)).or_else(|| of(Topic::Shard))
    }
    /// Visits the subscriptions that a message on `channel` reaches.
    pub(super) fn reached(&self, kind: Namespace, channel: &[u8], mut visit: impl FnMut(Topic, &[u8])) {
        let topic = match kind {
            Namespace::Channel => Topic::Channel,
            Namespace::Shard => Topic::Shard,
        };
        if self.has(topic, channel) {
            visit(topic, channel);
        }
        if topic == Topic::Channel {
            for pattern in self.set(Topic::Pattern) {
                if super::directory::matches(pattern, channel, &mut 0) {
                    visit(Topic::Pattern, pattern);
                }
            }
        }
    }
}
