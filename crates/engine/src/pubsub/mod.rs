//! Publish and subscribe: the way of a message from the publisher to all subscribers.
//!
//! Each worker has a [`Dispatcher`] with the subscriptions of its clients. The *directory* ([`Topics`], [`Patterns`])
//! has the number of subscribers of each channel and pattern at each dispatcher. A publisher reads the number of
//! receivers there. It encodes the message once and puts it into the queue of each dispatcher with receivers: one
//! message per worker, however many subscribers there are. Each dispatcher hands the message to its clients on its own
//! worker, in bounded steps ([`Engine::deliver`]). The message goes into the client's [`Inbox`], and the session takes
//! it from there between two commands.
//!
//! Guarantees, and how they are kept:
//! - *A subscriber gets a publisher's messages in order*: queues and inboxes are first in, first out.
//! - *Every counted subscriber gets the message, and no other client does*: a publisher enqueues the message while it
//!   holds the directory for reading. SUBSCRIBE and UNSUBSCRIBE hold it for writing and first take the messages for the
//!   client out of the queue ([`Dispatcher::catch_up`]). So earlier messages go to the old subscriptions, and later
//!   messages to the new ones.
//! - *A message is never inside a reply*: a session takes its messages only between commands. It takes none while
//!   one of its commands is on a helper thread, because that reply is older than the messages.
//! - *Memory is bounded*: `client-output-buffer-limit pubsub` bounds an inbox, [`QUEUE_MESSAGES_MAX`] and
//!   [`QUEUE_BYTES_MAX`] bound a queue. When a queue is full, publishers wait ([`Congestion`]). In redis-server a
//!   publisher waits too: PUBLISH lasts until all subscribers have the message. A dispatcher waits for a subscriber that
//!   reads fast and has much to read ([`pressure`]).
//!
//! A changed key goes to the clients of CLIENT TRACKING BCAST in the same way ([`prefixes`]).
//!
//! Lock order: directory, subscribers, queue, registry of clients, inbox. A keyspace shard may be locked before any of them. Not here: the
//! right to publish or subscribe (`acl`), and the session's side of a subscription (`session`).

mod congestion;
mod directory;
mod dispatcher;
mod inbox;
mod message;
mod parted_map;
mod prefix_map;
mod prefixes;
mod pressure;
mod subscriptions;

pub use dispatcher::Delivery;
pub(crate) use inbox::{Inbox, OutputLimitExceeded};
pub(crate) use message::{Frame, Payload};
pub(crate) use subscriptions::{Subscriptions, Topic};

use crate::clients::{Client, Clients};
use crate::{Engine, Wake};
use congestion::Congestion;
use directory::{Patterns, Recipients, Topics};
use dispatcher::Dispatcher;
use message::Message;
use parking_lot::RwLock;
use parted_map::remove_if;
use prefix_map::PrefixMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Maximum length of a channel name in bytes. It is bounded because every pattern is matched against the name.
pub(crate) const CHANNEL_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a channel pattern in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of messages in a dispatcher's queue. When it is full, the dispatcher must catch up before more may be
/// published.
const QUEUE_MESSAGES_MAX: usize = 1024;
/// Maximum number of bytes of messages in a dispatcher's queue.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of pattern elements that PUBLISH matches on a worker. With more elements PUBLISH runs on a helper
/// thread.
const STEPS_AT_ONCE: usize = 128 * 1024;

/// The namespace of a message's channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Channels of SUBSCRIBE, which patterns match.
    Channel,
    /// Shard channels, to which SSUBSCRIBE subscribes.
    Shard,
}

/// All subscriptions, and the messages on their way to subscribers.
pub(crate) struct PubSub {
    channels: Topics,
    shard_channels: Topics,
    patterns: RwLock<Patterns>,
    /// The prefixes of CLIENT TRACKING BCAST.
    prefixes: RwLock<PrefixMap<directory::Counts>>,
    /// Cost of matching all patterns: elements per channel, and per byte of its name.
    steps: [AtomicUsize; 2],
    /// The dispatchers, by the number of their worker.
    dispatchers: Box<[Dispatcher]>,
    congestion: Congestion,
    /// All clients of the server.
    clients: Arc<Clients>,
}

impl PubSub {
    /// Creates the state with one dispatcher per worker.
    pub(crate) fn new(workers: usize, clients: Arc<Clients>) -> PubSub {
        PubSub {
            channels: Topics::new(),
            shard_channels: Topics::new(),
            patterns: RwLock::default(),
            prefixes: RwLock::default(),
            steps: Default::default(),
            dispatchers: (0..workers.max(1)).map(|_| Dispatcher::default()).collect(),
            congestion: Congestion::default(),
            clients,
        }
    }
    /// Sends a message. Returns the number of receiving subscriptions.
    pub(crate) fn publish(&self, kind: Namespace, channel: &[u8], payload: &Payload<'_>) -> usize {
        self.recipients(kind, channel, Some(payload))
    }
    /// The number of subscriptions that would receive a message now.
    pub(crate) fn receivers(&self, kind: Namespace, channel: &[u8]) -> usize {
        self.recipients(kind, channel, None)
    }
    /// Finds the receiving subscriptions. With a payload, also sends the message to them.
    fn recipients(&self, kind: Namespace, channel: &[u8], payload: Option<&Payload<'_>>) -> usize {
        let mut recipients = Recipients::default();
        let mut from = None;
        loop {
            let topics = self.topics(kind).part(channel).read();
            let patterns = (kind == Namespace::Channel).then(|| self.patterns.read());
            // With very many patterns the lock is released now and then, so that other clients can subscribe.
            if let Some(patterns) = &patterns
                && !patterns.match_some(channel, &mut from, STEPS_AT_ONCE, &mut recipients)
            {
                continue;
            }
            if let Some(counts) = topics.get(channel) {
                recipients.add(counts);
            }
            if recipients.receivers > 0
                && let Some(payload) = payload
            {
                self.enqueue(&Arc::new(Message::new(kind, channel, payload)), &recipients);
            }
            return recipients.receivers;
        }
    }
    /// Sends a message without counting receivers. Only the workers match the patterns.
    pub(crate) fn announce(&self, channel: &[u8], payload: &Payload<'_>) {
        let mut recipients = Recipients::default();
        let (topics, patterns) = (self.channels.part(channel).read(), self.patterns.read());
        recipients.add(patterns.all());
        if let Some(counts) = topics.get(channel) {
            recipients.add(counts);
        }
        if !recipients.dispatchers.is_empty() {
            let message = Arc::new(Message::new(Namespace::Channel, channel, payload));
            self.enqueue(&message, &recipients);
        }
    }
    /// Puts a message into the queue of each dispatcher among `recipients`.
    fn enqueue(&self, message: &Arc<Message>, recipients: &Recipients) {
        for dispatcher in &recipients.dispatchers {
            self.dispatchers[*dispatcher].enqueue(message, &self.congestion);
        }
    }
    /// True when PUBLISH to a channel name of this length takes too long for a worker.
    pub(crate) fn is_long(&self, channel_bytes: usize) -> bool {
        let [whole, each] = [0, 1].map(|i| self.steps[i].load(Relaxed));
        whole.saturating_add(each.saturating_mul(channel_bytes)) > STEPS_AT_ONCE
    }
    /// Subscribes the client to `name`, which is not among its `held` subscriptions yet.
    pub(crate) fn join(&self, client: &Arc<Client>, topic: Topic, name: &Arc<[u8]>, held: &Subscriptions) {
        let (at, dispatcher) = self.dispatcher_of(client);
        let add = || {
            dispatcher.catch_up(client, held, &self.clients);
            dispatcher.add(topic, name, client);
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
                self.store_match_cost(&patterns);
                add();
            }
        }
    }
    /// Ends the client's subscription to `name`. `held` are the client's subscriptions. Afterwards all earlier
    /// messages are in the client's inbox.
    pub(crate) fn leave(&self, client: &Client, topic: Topic, name: &[u8], held: &Subscriptions) {
        let (at, dispatcher) = self.dispatcher_of(client);
        let remove = || {
            dispatcher.catch_up(client, held, &self.clients);
            dispatcher.remove(topic, name, client.id);
        };
        match topic.kind() {
            Some(kind) => {
                let mut topics = self.topics(kind).part(name).write();
                remove_if(&mut topics, name, |counts| counts.remove(at));
                remove();
            }
            None => {
                let mut patterns = self.patterns.write();
                patterns.remove(name, at);
                self.store_match_cost(&patterns);
                remove();
            }
        }
    }
    /// Puts all messages published for the client so far into its inbox.
    pub(crate) fn catch_up(&self, client: &Client, held: &Subscriptions) {
        self.dispatcher_of(client).1.catch_up(client, held, &self.clients);
    }
    /// True while publishers must wait.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.congestion.is_congested()
    }
    /// Wakes `client` when the queues are shorter. False when the queues are short already.
    pub(crate) fn wait(&self, client: &Client) -> bool {
        self.congestion.wait(client.id, client.wake_handle())
    }
    /// Visits the channels with subscribers.
    pub(crate) fn channels(&self, kind: Namespace, mut visit: impl FnMut(&[u8])) {
        self.topics(kind).each(&mut visit);
    }
    /// Number of channels with subscribers.
    pub(crate) fn channels_len(&self, kind: Namespace) -> usize {
        self.topics(kind).len()
    }
    /// Number of subscribers of a channel.
    pub(crate) fn subscribers(&self, kind: Namespace, channel: &[u8]) -> usize {
        self.topics(kind).part(channel).read().get(channel).map_or(0, directory::Counts::total)
    }
    /// Number of different patterns.
    pub(crate) fn patterns_len(&self) -> usize {
        self.patterns.read().len()
    }
    /// Bytes of messages in the dispatchers' queues.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.dispatchers.iter().map(|dispatcher| dispatcher.queued_bytes() as u64).sum()
    }

    fn topics(&self, kind: Namespace) -> &Topics {
        match kind {
            Namespace::Channel => &self.channels,
            Namespace::Shard => &self.shard_channels,
        }
    }
    /// The dispatcher of a client's worker, and its number.
    fn dispatcher_of(&self, client: &Client) -> (usize, &Dispatcher) {
        let at = client.peer.worker % self.dispatchers.len();
        (at, &self.dispatchers[at])
    }
    /// Copies the cost of matching to where [`PubSub::is_long`] reads it without a lock.
    fn store_match_cost(&self, patterns: &Patterns) {
        let (whole, each) = patterns.match_cost();
        self.steps[0].store(whole, Relaxed);
        self.steps[1].store(each, Relaxed);
    }
}

impl Engine {
    /// Registers `wake`, which is called when this worker has messages for [`Engine::deliver`]. Call it once per
    /// worker, before the worker serves a client.
    pub fn set_delivery_wake(&self, worker: usize, wake: Arc<dyn Wake>) {
        self.pubsub.dispatchers[worker % self.pubsub.dispatchers.len()].set_wake(wake);
    }
    /// Hands messages to subscribers of this worker for a fraction of a millisecond. Call it on the worker's thread.
    pub fn deliver(&self, worker: usize) -> Delivery {
        let pubsub = &self.pubsub;
        let dispatcher = &pubsub.dispatchers[worker % pubsub.dispatchers.len()];
        dispatcher.deliver(&pubsub.congestion, &pubsub.clients, || self.host.mono_us())
    }
}
