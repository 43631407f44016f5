//! [`Dispatcher`]: a worker's subscribers, and the messages on their way to them.

use super::congestion::Congestion;
use super::directory::matches;
use super::message::{Frame, Message};
use super::pressure::{Patience, is_due};
use super::{Namespace, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX, Subscriptions, Topic};
use crate::Wake;
use crate::clients::Client;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Work of one [`Dispatcher::deliver`], in steps of matching: about 0.2 ms.
const STEPS_PER_SLICE: usize = 64 * 1024;
/// Steps that handing a message to a client counts as.
const STEPS_PER_DELIVERY: usize = 64;
/// Maximum number of messages that are delivered together.
const BATCH_MAX: usize = 32;
/// Maximum number of bytes of messages that are delivered together, unless one message is longer.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A queue that was full counts as full until its content is at most its limits divided by this number.
const RELIEF_PART: usize = 2;

/// The dispatcher of one worker: it delivers messages to the worker's subscribers.
#[derive(Default)]
pub(super) struct Dispatcher {
    queue: Mutex<Queue>,
    subscribers: Mutex<Subscribers>,
    /// The waits for subscribers that read fast.
    patience: Mutex<Patience>,
    /// Wakes the worker when the queue gets its first message.
    wake: OnceLock<Arc<dyn Wake>>,
}

/// Messages in the order of publication. Their numbers are consecutive.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Arc<Message>>,
    /// The number of the last message in the queue.
    last: u64,
    /// Number of bytes of all messages in the queue.
    bytes: usize,
    /// The progress of the first message and of those delivered together with it.
    at: DeliveryProgress,
    /// The number of messages that are delivered together.
    batch_len: usize,
    /// True from the time the queue exceeds a limit until it is down to one part in [`RELIEF_PART`].
    is_full: bool,
}

impl Queue {
    /// The number of the queue's first message.
    fn first(&self) -> u64 {
        self.last + 1 - self.messages.len() as u64
    }
    /// The first message, and the messages of the same channel directly behind it. A subscriber's session gets these
    /// messages together and sends them with one write.
    fn next(&mut self, is_alone: bool) -> Option<Vec<Arc<Message>>> {
        let front = self.messages.front()?;
        if self.at.is_at_start() {
            let most = if is_alone { 1 } else { BATCH_MAX };
            let mut bytes = 0;
            let is_same = |m: &&Arc<Message>| {
                bytes += m.bytes();
                bytes <= BATCH_BYTES_MAX && m.kind() == front.kind() && m.channel() == front.channel()
            };
            self.batch_len = self.messages.iter().take(most).take_while(is_same).count().max(1);
        }
        Some(self.messages.iter().take(self.batch_len).cloned().collect())
    }
    /// True when the queue exceeds one part in `part` of one of its limits.
    fn exceeds(&self, part: usize) -> bool {
        self.messages.len() > QUEUE_MESSAGES_MAX / part || self.bytes > QUEUE_BYTES_MAX / part
    }
}

/// How far a message was delivered: first to the subscribers of its channel, by client; then pattern after pattern.
#[derive(Clone, Debug, Default)]
struct DeliveryProgress {
    /// The pattern to which the message is being delivered. `None`: the message's channel.
    pattern: Option<Arc<[u8]>>,
    /// Clients with smaller ids have the message.
    client: u64,
}

/// The value of `client` when all clients of the channel or pattern have the message.
const ALL: u64 = u64::MAX;

impl DeliveryProgress {
    /// True before the first delivery.
    fn is_at_start(&self) -> bool {
        self.pattern.is_none() && self.client == 0
    }
    /// True when `client` got the message for this subscription, or was not subscribed.
    fn is_past(&self, topic: Topic, name: &[u8], client: u64) -> bool {
        match (&self.pattern, topic) {
            (None, Topic::Pattern) => false,
            (Some(_), Topic::Channel | Topic::Shard) => true,
            (None, _) => client < self.client,
            (Some(at), Topic::Pattern) => name < &**at || (name == &**at && client < self.client),
        }
    }
}

/// What is left of a slice.
struct Slice {
    /// Steps of matching.
    left: usize,
    /// The subscriber that the dispatcher must wait for. Then no step is left.
    pressed: Option<Arc<Client>>,
}

/// How a slice of deliveries ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing is left to deliver.
    Done,
    /// Messages are left: let other tasks run, then continue.
    More,
    /// Messages are left, and a subscriber has much to read first: continue about a millisecond later.
    AfterReads,
}

/// The clients of a channel or pattern, ordered by id.
type Clients = Vec<Arc<Client>>;

/// The clients of a dispatcher and their subscriptions.
#[derive(Default)]
struct Subscribers {
    channels: HashMap<Arc<[u8]>, Clients, ahash::RandomState>,
    shard_channels: HashMap<Arc<[u8]>, Clients, ahash::RandomState>,
    patterns: BTreeMap<Arc<[u8]>, Clients>,
}

impl Dispatcher {
    /// Registers the handle that wakes the worker. Later calls do nothing.
    pub(super) fn set_wake(&self, wake: Arc<dyn Wake>) {
        // One worker attends a dispatcher, and calls this once.
        let _ = self.wake.set(wake);
    }
    /// Bytes of the messages in the queue.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.lock().bytes
    }
    /// Puts a message into the queue.
    pub(super) fn enqueue(&self, message: &Arc<Message>, congestion: &Congestion) {
        let was_empty = {
            let mut queue = self.queue.lock();
            queue.last += 1;
            queue.bytes += message.bytes();
            queue.messages.push_back(message.clone());
            if !queue.is_full && queue.exceeds(1) {
                queue.is_full = true;
                congestion.begin();
            }
            queue.messages.len() == 1
        };
        if was_empty && let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }
    /// Adds a subscription of `client`, if the client does not have it yet.
    pub(super) fn add(&self, topic: Topic, name: &Arc<[u8]>, client: &Arc<Client>) {
        let mut subscribers = self.subscribers.lock();
        let clients = match topic {
            Topic::Channel => subscribers.channels.entry(name.clone()).or_default(),
            Topic::Shard => subscribers.shard_channels.entry(name.clone()).or_default(),
            Topic::Pattern => subscribers.patterns.entry(name.clone()).or_default(),
        };
        if let Err(at) = clients.binary_search_by_key(&client.id, |c| c.id) {
            clients.insert(at, client.clone());
        }
    }
    /// Removes the subscription of the client with the id `client`.
    pub(super) fn remove(&self, topic: Topic, name: &[u8], client: u64) {
        let subscribers = &mut *self.subscribers.lock();
        let is_left = |clients: Option<&mut Clients>| {
            clients.is_some_and(|clients| {
                if let Ok(at) = clients.binary_search_by_key(&client, |c| c.id) {
                    clients.remove(at);
                }
                clients.is_empty()
            })
        };
        match topic {
            Topic::Channel if is_left(subscribers.channels.get_mut(name)) => {
                subscribers.channels.remove(name);
            }
            Topic::Shard if is_left(subscribers.shard_channels.get_mut(name)) => {
                subscribers.shard_channels.remove(name);
            }
            Topic::Pattern if is_left(subscribers.patterns.get_mut(name)) => {
                subscribers.patterns.remove(name);
            }
            _ => {}
        }
    }
    /// Puts the messages that wait for `client`, with these subscriptions, into its inbox. Later messages go to the
    /// subscriptions that the client has then.
    pub(super) fn catch_up(&self, client: &Client, subscriptions: &Subscriptions) {
        let queue = self.queue.lock();
        let (delivered_until, first_number) = (client.inbox.caught_up(), queue.first());
        if delivered_until == queue.last {
            return;
        }
        for (i, message) in queue.messages.iter().enumerate().filter(|_| !subscriptions.is_empty()) {
            if first_number + i as u64 <= delivered_until {
                continue;
            }
            subscriptions.reached(message, |topic, name| {
                if i >= queue.batch_len || !queue.at.is_past(topic, name, client.id) {
                    client.push_frame(match topic {
                        Topic::Pattern => message.pattern_frame(name),
                        _ => message.frame().clone(),
                    });
                }
            });
        }
        client.inbox.set_caught_up(queue.last);
    }
    /// Delivers messages for the duration of a slice. `mono_us` reads the clock.
    pub(super) fn deliver(&self, congestion: &Congestion, mono_us: impl Fn() -> u64) -> Delivery {
        let mut left = STEPS_PER_SLICE;
        if self.patience.lock().lasts(mono_us()) {
            return Delivery::AfterReads;
        }
        loop {
            // With pattern subscribers each message is delivered alone: first by its channel, then by the patterns.
            let is_alone = !self.subscribers.lock().patterns.is_empty();
            let (messages, number, mut at) = {
                let mut queue = self.queue.lock();
                let Some(messages) = queue.next(is_alone) else { return Delivery::Done };
                (messages, queue.first(), queue.at.clone())
            };
            let mut slice = Slice { left, pressed: None };
            let done = self.subscribers.lock().deliver_batch(&messages, number, &mut at, &mut slice);
            left = slice.left;
            let is_pressed = slice.pressed.is_some();
            if let Some(client) = slice.pressed {
                self.patience.lock().begin(client, mono_us());
            }
            let mut queue = self.queue.lock();
            if !done {
                queue.at = at;
                return if is_pressed { Delivery::AfterReads } else { Delivery::More };
            }
            queue.messages.drain(..messages.len());
            queue.bytes -= messages.iter().map(|message| message.bytes()).sum::<usize>();
            queue.at = DeliveryProgress::default();
            let is_relieved = queue.is_full && !queue.exceeds(RELIEF_PART);
            queue.is_full &= !is_relieved;
            let more = !queue.messages.is_empty();
            drop(queue);
            if is_relieved {
                congestion.end();
            }
            match more {
                false => return Delivery::Done,
                true if is_pressed => return Delivery::AfterReads,
                true if left == 0 => return Delivery::More,
                true => {}
            }
        }
    }
}

impl Subscribers {
    /// Delivers messages of one channel from `at` on. `number` is the number of the first message. False when `left`
    /// steps are not enough. Several messages together have no pattern subscribers: a client that subscribes to a
    /// pattern meanwhile catches up first.
    fn deliver_batch(
        &self,
        messages: &[Arc<Message>],
        number: u64,
        at: &mut DeliveryProgress,
        slice: &mut Slice,
    ) -> bool {
        let [message, others @ ..] = messages else { return true };
        if at.pattern.is_none() {
            let topics = match message.kind() {
                Namespace::Channel => &self.channels,
                Namespace::Shard => &self.shard_channels,
            };
            if let Some(clients) = topics.get(message.channel()) {
                let frames: SmallVec<[Frame; 1]> = messages.iter().map(|m| m.frame().clone()).collect();
                if !deliver_to(clients, &frames, number, &mut at.client, slice) {
                    return false;
                }
            }
        }
        if message.kind() == Namespace::Shard || !others.is_empty() {
            return true;
        }
        let begin = at.pattern.clone().map_or(Bound::Unbounded, Bound::Included);
        for (pattern, clients) in self.patterns.range::<Arc<[u8]>, _>((begin, Bound::Unbounded)) {
            if at.pattern.as_ref() != Some(pattern) {
                *at = DeliveryProgress { pattern: Some(pattern.clone()), client: 0 };
            }
            if at.client == ALL || !matches(pattern, message.channel(), &mut slice.left) {
                at.client = ALL;
            } else if !deliver_to(clients, &[message.pattern_frame(pattern)], number, &mut at.client, slice) {
                return false;
            }
            if slice.left == 0 {
                return false;
            }
        }
        true
    }
}

/// Hands frames to those of `clients` that do not have them yet. `number` is the number of the first frame's message.
/// False when `left` steps are not enough.
fn deliver_to(clients: &Clients, frames: &[Frame], number: u64, from: &mut u64, slice: &mut Slice) -> bool {
    let begin = clients.partition_point(|c| c.id < *from);
    for client in &clients[begin..] {
        if slice.left == 0 {
            *from = client.id;
            return false;
        }
        slice.left = slice.left.saturating_sub(STEPS_PER_DELIVERY * frames.len());
        let delivered_until = client.inbox.caught_up();
        for (frame, number) in frames.iter().zip(number..) {
            if delivered_until < number {
                client.push_frame(frame.clone());
            }
        }
        if is_due(client) {
            *slice = Slice { left: 0, pressed: Some(client.clone()) };
        }
    }
    *from = ALL;
    true
}
