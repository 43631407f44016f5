//! [`Subscriptions`]: the subscriptions of one client.

use super::{Namespace, message};
use std::collections::BTreeSet;
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
    /// Memory of the subscriptions in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
    /// Visits the subscriptions that a message reaches.
    pub(super) fn reached(&self, message: &message::Message, mut visit: impl FnMut(Topic, &[u8])) {
        let topic = match message.kind() {
            Namespace::Channel => Topic::Channel,
            Namespace::Shard => Topic::Shard,
        };
        if self.has(topic, message.channel()) {
            visit(topic, message.channel());
        }
        if topic == Topic::Channel {
            for pattern in self.set(Topic::Pattern) {
                if super::directory::matches(pattern, message.channel(), &mut 0) {
                    visit(Topic::Pattern, pattern);
                }
            }
        }
    }
}
