//! Publish and subscribe: how a message gets from whoever publishes it to all who have subscribed.
//!
//! Each worker has an [`Office`] with the subscriptions of its clients. The *directory* ([`Topics`], [`Patterns`]) says how
//! many subscribers a channel or pattern has at each office. A publisher looks there, which tells the number of receivers,
//! and puts the message, encoded once, into the queue of each office that has any: one message a worker, however many
//! subscribers there are. Each office hands the message to its clients on its own worker, some at a time
//! ([`PubSub::deliver`]): into the client's [`Inbox`], from which its session takes it between two commands.
//!
//! What is promised, and how:
//! - *A subscriber gets a publisher's messages in order*: queues and inboxes are first in, first out.
//! - *Whoever is counted gets the message, and nobody else does*: a publisher posts while it holds the directory for
//!   reading; who subscribes or unsubscribes holds it for writing and is first given what waits in the queue for it
//!   ([`Office::catch_up`]), so what is posted before counts with the old subscriptions, and what is posted later with the
//!   new ones.
//! - *A message never stands inside a reply*: sessions take their post between commands only, and not while a command of
//!   theirs is on a helper thread: a reply that is on its way is older than what happened since.
//! - *Memory is bounded*: an inbox by `client-output-buffer-limit pubsub`; the queues by [`POSTS_MAX`] and
//!   [`POST_BYTES_MAX`]: when one is full, whoever would publish waits ([`Congestion`]), as it would in redis-server, where
//!   PUBLISH lasts until all have their message.
//!
//! Locks are taken in this order: directory, members, queue, inbox. A shard of the keyspace may be held before any of
//! them. Left out: who may publish or subscribe (`acl`), and what a subscription is to a session (`session`).

mod congestion;
mod directory;
mod inbox;
mod message;
mod office;
mod subscriptions;

pub(crate) use inbox::Inbox;
pub(crate) use message::{Frame, Payload};
pub(crate) use subscriptions::{Subscriptions, Topic};

use crate::clients::Client;
use crate::{Engine, Wake};
use congestion::Congestion;
use directory::{Patterns, Reach, Topics};
use message::Message;
use office::Office;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Longest name of a channel, in bytes: every pattern is matched against it.
pub(crate) const CHANNEL_BYTES_MAX: usize = 16 * 1024;
/// Longest pattern of channels, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 4 * 1024;
/// Messages in the queue of an office that has to catch up before more may be published.
const POSTS_MAX: usize = 1024;
/// Their bytes.
const POST_BYTES_MAX: usize = 16 << 20;
/// Elements of patterns that PUBLISH tries on a worker; with more it runs on a helper thread.
const STEPS_AT_ONCE: usize = 128 * 1024;

/// Which names a message is sent under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Channels of SUBSCRIBE, which patterns match.
    Channel,
    /// Shard channels of SSUBSCRIBE.
    Shard,
}

/// Who has subscribed to what, and what is on its way to them.
pub(crate) struct PubSub {
    channels: Topics,
    shard_channels: Topics,
    patterns: RwLock<Patterns>,
    /// What matching all patterns takes: elements for a channel, and for each of its bytes.
    steps: [AtomicUsize; 2],
    offices: Box<[Office]>,
    congestion: Congestion,
}

impl PubSub {
    /// With an office for each worker.
    pub(crate) fn new(workers: usize) -> PubSub {
        PubSub {
            channels: Topics::new(),
            shard_channels: Topics::new(),
            patterns: RwLock::default(),
            steps: Default::default(),
            offices: (0..workers.max(1)).map(|_| Office::default()).collect(),
            congestion: Congestion::default(),
        }
    }
    /// Sends a message; the number of subscriptions that it reaches.
    pub(crate) fn publish(&self, kind: Kind, channel: &[u8], payload: &Payload<'_>) -> usize {
        self.reach(kind, channel, Some(payload))
    }
    /// The number of subscriptions that a message would reach now.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.reach(kind, channel, None)
    }
    fn reach(&self, kind: Kind, channel: &[u8], payload: Option<&Payload<'_>>) -> usize {
        let mut reach = Reach::default();
        let mut from = None;
        loop {
            let topics = self.topics(kind).part(channel).read();
            let patterns = (kind == Kind::Channel).then(|| self.patterns.read());
            // With very many patterns the lock is let go now and then: others want to subscribe meanwhile.
            if let Some(patterns) = &patterns
                && !patterns.match_some(channel, &mut from, STEPS_AT_ONCE, &mut reach)
            {
                continue;
            }
            if let Some(counts) = topics.get(channel) {
                reach.add(counts);
            }
            if reach.receivers > 0
                && let Some(payload) = payload
            {
                let message = Arc::new(Message::new(kind, channel, payload));
                reach
                    .offices
                    .iter()
                    .for_each(|office| self.offices[*office].post(&message, &self.congestion));
            }
            return reach.receivers;
        }
    }
    /// Sends a message for which nobody needs the number of receivers: patterns are matched by the workers alone.
    pub(crate) fn announce(&self, channel: &[u8], payload: &Payload<'_>) {
        let mut reach = Reach::default();
        let (topics, patterns) = (self.channels.part(channel).read(), self.patterns.read());
        reach.add(patterns.all());
        if let Some(counts) = topics.get(channel) {
            reach.add(counts);
        }
        if !reach.offices.is_empty() {
            let message = Arc::new(Message::new(Kind::Channel, channel, payload));
            reach.offices.iter().for_each(|office| self.offices[*office].post(&message, &self.congestion));
        }
    }
    /// True when PUBLISH to a channel with a name of so many bytes takes too long for a worker.
    pub(crate) fn is_long(&self, channel_bytes: usize) -> bool {
        let [whole, each] = [0, 1].map(|i| self.steps[i].load(Relaxed));
        whole.saturating_add(each.saturating_mul(channel_bytes)) > STEPS_AT_ONCE
    }
    /// The client subscribes to `name`, which is not among its `held` subscriptions yet.
    pub(crate) fn join(&self, client: &Arc<Client>, topic: Topic, name: &Arc<[u8]>, held: &Subscriptions) {
        let (at, office) = self.office_of(client);
        let add = || {
            office.catch_up(client, held);
            office.add(topic, name, client);
        };
        match topic.kind() {
            Some(kind) => {
                let mut topics = self.topics(kind).part(name).write();
                topics.entry(name.clone()).or_default().add(at);
                add();
            }
            None => {
                let mut patterns = self.patterns.write();
                patterns.add(name, at);
                self.tell_steps(&patterns);
                add();
            }
        }
    }
    /// The client, which holds these subscriptions, ends the one to `name`. What was published before is in its inbox.
    pub(crate) fn leave(&self, client: &Client, topic: Topic, name: &[u8], held: &Subscriptions) {
        let (at, office) = self.office_of(client);
        let remove = || {
            office.catch_up(client, held);
            office.remove(topic, name, client.id);
        };
        match topic.kind() {
            Some(kind) => {
                let mut topics = self.topics(kind).part(name).write();
                if topics.get_mut(name).is_some_and(|counts| counts.remove(at)) {
                    topics.remove(name);
                }
                remove();
            }
            None => {
                let mut patterns = self.patterns.write();
                patterns.remove(name, at);
                self.tell_steps(&patterns);
                remove();
            }
        }
    }
    /// Puts what has been published for the client so far into its inbox.
    pub(crate) fn catch_up(&self, client: &Client, held: &Subscriptions) {
        self.office_of(client).1.catch_up(client, held);
    }
    /// True while whoever would publish has to wait.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.congestion.is_there()
    }
    /// Has `client` woken when the queues are shorter; false when they are by now.
    pub(crate) fn wait(&self, client: &Client) -> bool {
        self.congestion.wait(client.id, client.wake_handle())
    }
    /// The channels that somebody has subscribed to.
    pub(crate) fn channels(&self, kind: Kind, mut visit: impl FnMut(&[u8])) {
        self.topics(kind).each(&mut visit);
    }
    /// Number of channels that somebody has subscribed to.
    pub(crate) fn channels_len(&self, kind: Kind) -> usize {
        self.topics(kind).len()
    }
    /// Number of subscribers of a channel.
    pub(crate) fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.topics(kind).part(channel).read().get(channel).map_or(0, directory::Counts::total)
    }
    /// Number of different patterns.
    pub(crate) fn patterns_len(&self) -> usize {
        self.patterns.read().len()
    }
    /// Bytes of messages that wait in the offices.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.offices.iter().map(|office| office.queued_bytes() as u64).sum()
    }

    fn topics(&self, kind: Kind) -> &Topics {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Shard => &self.shard_channels,
        }
    }
    /// The office of a client's worker, and its number.
    fn office_of(&self, client: &Client) -> (usize, &Office) {
        let at = client.peer.worker % self.offices.len();
        (at, &self.offices[at])
    }
    fn tell_steps(&self, patterns: &Patterns) {
        let (whole, each) = patterns.effort();
        self.steps[0].store(whole, Relaxed);
        self.steps[1].store(each, Relaxed);
    }
}

impl Engine {
    /// Has `wake` called when there are messages for [`Engine::deliver`] of this worker. To be called once a worker, before
    /// it serves anybody.
    pub fn attend_office(&self, worker: usize, wake: Arc<dyn Wake>) {
        self.pubsub.offices[worker % self.pubsub.offices.len()].attend(wake);
    }
    /// Hands messages to subscribers of this worker, for a fraction of a millisecond; on its thread. True when there are
    /// more: let others run and call it again.
    pub fn deliver(&self, worker: usize) -> bool {
        let pubsub = &self.pubsub;
        pubsub.offices[worker % pubsub.offices.len()].deliver(&pubsub.congestion)
    }
}
