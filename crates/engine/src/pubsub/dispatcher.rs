//! [`Dispatcher`]: a worker's subscribers, and the messages on their way to them.

use super::congestion::Congestion;
use super::directory::matches;
use super::message::{Frame, Message, MessageKind};
use super::parted_map::PartedMap;
use super::prefix_map::PrefixMap;
use super::prefixes::Change;
use super::pressure::{Patience, is_due};
use super::{Namespace, QUEUE_BYTES_MAX, QUEUE_MESSAGES_MAX, Subscriptions, Topic};
use crate::Wake;
use crate::clients::{Client, Clients as AllClients};
use crate::tracking;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// Work of one [`Dispatcher::deliver`], in steps of matching: about 0.2 ms.
const STEPS_PER_SLICE: usize = 64 * 1024;
/// Steps that handing messages to a client counts as, and each of the messages. The client's session writes the messages
/// before the next slice. That takes about 4 microseconds, and about 4 more for each 16 KiB.
const STEPS_PER_DELIVERY: usize = 192;
const STEPS_PER_MESSAGE: usize = 64;
/// Number of bytes of a message that count as one step.
const BYTES_PER_STEP: usize = 64;
/// Maximum number of messages that are delivered together.
const BATCH_MAX: usize = 32;
/// Maximum number of changed keys that are delivered together.
const KEYS_AT_ONCE_MAX: usize = QUEUE_MESSAGES_MAX;
/// Maximum number of pairs of a key and a prefix of the key that are delivered together.
const PREFIXES_AT_ONCE_MAX: usize = 2 * KEYS_AT_ONCE_MAX;
/// Steps that a prefix of a key counts as.
const STEPS_PER_PREFIX: usize = 32;
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
    /// The first message, and the messages directly behind it that go with it. A subscriber's session gets these
    /// messages together and sends them with one write.
    fn next(&mut self, most: BatchLimits) -> Option<Vec<Arc<Message>>> {
        let front = self.messages.front()?;
        if self.at.is_at_start() {
            let most = match front.kind() {
                MessageKind::Published(_) => most.published,
                MessageKind::Change { .. } => most.changes,
            };
            let mut bytes = 0;
            let fits = |m: &&Arc<Message>| {
                bytes += m.bytes();
                bytes <= BATCH_BYTES_MAX && m.goes_with(front)
            };
            self.batch_len = self.messages.iter().take(most).take_while(fits).count().max(1);
        }
        Some(self.messages.iter().take(self.batch_len).cloned().collect())
    }
    /// True when the queue exceeds one part in `part` of one of its limits.
    fn exceeds(&self, part: usize) -> bool {
        self.messages.len() > QUEUE_MESSAGES_MAX / part || self.bytes > QUEUE_BYTES_MAX / part
    }
}

/// The maximum numbers of messages that are delivered together: published ones, and changes of keys.
#[derive(Clone, Copy)]
struct BatchLimits {
    published: usize,
    changes: usize,
}

/// How far a message was delivered: first to the subscribers of its channel, by client; then pattern after pattern. A
/// change of a key goes to prefix after prefix.
#[derive(Clone, Debug, Default)]
struct DeliveryProgress {
    /// The pattern or prefix to which the message is being delivered. `None`: the message's channel.
    name: Option<Arc<[u8]>>,
    /// Clients with smaller ids have the message.
    client: u64,
}

/// The value of `client` when all clients of the channel, pattern or prefix have the message.
const ALL: u64 = u64::MAX;

impl DeliveryProgress {
    /// True before the first delivery.
    fn is_at_start(&self) -> bool {
        self.name.is_none() && self.client == 0
    }
    /// True when `client` got the message for this subscription, or was not subscribed.
    fn is_past(&self, topic: Topic, name: &[u8], client: u64) -> bool {
        match topic {
            Topic::Pattern => self.is_past_name(name, client),
            Topic::Channel | Topic::Shard => self.name.is_some() || client < self.client,
        }
    }
    /// True when `client` got the message for this pattern or prefix, or did not have it.
    fn is_past_name(&self, name: &[u8], client: u64) -> bool {
        let Some(at) = &self.name else { return false };
        name < &**at || (name == &**at && client < self.client)
    }
    /// Goes on to `name`, unless the delivery is there already.
    fn move_to(&mut self, name: &Arc<[u8]>) {
        if self.name.as_ref() != Some(name) {
            *self = DeliveryProgress { name: Some(name.clone()), client: 0 };
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
    channels: PartedMap<Clients>,
    shard_channels: PartedMap<Clients>,
    patterns: BTreeMap<Arc<[u8]>, Clients>,
    prefixes: PrefixMap<Clients>,
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
            Topic::Channel => subscribers.channels.get_or_add(name),
            Topic::Shard => subscribers.shard_channels.get_or_add(name),
            Topic::Pattern => subscribers.patterns.entry(name.clone()).or_default(),
        };
        insert(clients, client);
    }
    /// Adds a prefix of `client`, if the client does not have it yet.
    pub(super) fn add_prefix(&self, prefix: &Arc<[u8]>, client: &Arc<Client>) {
        insert(self.subscribers.lock().prefixes.entry(prefix), client);
    }
    /// Removes the prefix of the client with the id `client`.
    pub(super) fn remove_prefix(&self, prefix: &[u8], client: u64) {
        self.subscribers.lock().prefixes.change(prefix, |clients| remove(clients, client));
    }
    /// Removes the subscription of the client with the id `client`.
    pub(super) fn remove(&self, topic: Topic, name: &[u8], client: u64) {
        let subscribers = &mut *self.subscribers.lock();
        let is_last = |clients: &mut Clients| remove(clients, client);
        match topic {
            Topic::Channel => subscribers.channels.remove_if(name, is_last),
            Topic::Shard => subscribers.shard_channels.remove_if(name, is_last),
            Topic::Pattern => {
                if subscribers.patterns.get_mut(name).is_some_and(is_last) {
                    subscribers.patterns.remove(name);
                }
            }
        }
    }
    /// Puts the messages that wait for `client`, with these subscriptions, into its inbox. Later messages go to the
    /// subscriptions that the client has then. `all` has the clients of redirections.
    pub(super) fn catch_up(&self, client: &Client, subscriptions: &Subscriptions, all: &AllClients) {
        let queue = self.queue.lock();
        let (delivered_until, first_number) = (client.inbox.caught_up(), queue.first());
        if delivered_until == queue.last {
            return;
        }
        let has_any = !subscriptions.is_empty() || !subscriptions.prefixes().is_empty();
        for (i, message) in queue.messages.iter().enumerate().filter(|_| has_any) {
            if first_number + i as u64 <= delivered_until {
                continue;
            }
            let is_untouched = i >= queue.batch_len;
            match message.kind() {
                MessageKind::Published(kind) => subscriptions.reached(kind, message.name(), |topic, name| {
                    if is_untouched || !queue.at.is_past(topic, name, client.id) {
                        client.push_frame(match topic {
                            Topic::Pattern => message.pattern_frame(name),
                            _ => message.frame().clone(),
                        });
                    }
                }),
                MessageKind::Change { by } => {
                    for prefix in subscriptions.prefixes_of(message.name()) {
                        let is_due = is_untouched || !queue.at.is_past_name(prefix, client.id);
                        if is_due && tracking::hears(client, by) {
                            let frame = message.frame().clone().with_prefix(prefix.len());
                            tracking::tell(all, client, frame);
                        }
                    }
                }
            }
        }
        client.inbox.set_caught_up(queue.last);
    }
    /// Delivers messages for the duration of a slice. `all` has the clients of redirections. `mono_us` reads the clock.
    pub(super) fn deliver(
        &self,
        congestion: &Congestion,
        all: &AllClients,
        mono_us: impl Fn() -> u64,
    ) -> Delivery {
        let mut left = STEPS_PER_SLICE;
        if self.patience.lock().lasts(mono_us()) {
            return Delivery::AfterReads;
        }
        loop {
            let most = self.subscribers.lock().batch_limits();
            let (messages, number, mut at) = {
                let mut queue = self.queue.lock();
                let Some(messages) = queue.next(most) else { return Delivery::Done };
                (messages, queue.first(), queue.at.clone())
            };
            let mut slice = Slice { left, pressed: None };
            let done = self.subscribers.lock().deliver_batch(&messages, number, all, &mut at, &mut slice);
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
    /// With pattern subscribers each published message is delivered alone: first by its channel, then by the patterns.
    fn batch_limits(&self) -> BatchLimits {
        BatchLimits {
            published: if self.patterns.is_empty() { BATCH_MAX } else { 1 },
            changes: (PREFIXES_AT_ONCE_MAX / self.prefixes.lens().max(1)).clamp(1, KEYS_AT_ONCE_MAX),
        }
    }
    /// Delivers messages that go together from `at` on. `number` is the number of the first message. `all` has the
    /// clients of redirections. False when the slice's steps are not enough.
    fn deliver_batch(
        &self,
        messages: &[Arc<Message>],
        number: u64,
        all: &AllClients,
        at: &mut DeliveryProgress,
        slice: &mut Slice,
    ) -> bool {
        match messages.first().map(|message| message.kind()) {
            None => true,
            Some(MessageKind::Published(kind)) => self.deliver_published(messages, kind, number, at, slice),
            Some(MessageKind::Change { .. }) => self.deliver_changes(messages, number, all, at, slice),
        }
    }
    /// Delivers changes of keys. A client gets one frame for all keys with its prefix.
    fn deliver_changes(
        &self,
        messages: &[Arc<Message>],
        number: u64,
        all: &AllClients,
        at: &mut DeliveryProgress,
        slice: &mut Slice,
    ) -> bool {
        let mut by_prefix: BTreeMap<&Arc<[u8]>, (&Clients, Vec<Change>)> = BTreeMap::new();
        for (message, number) in messages.iter().zip(number..) {
            let MessageKind::Change { by } = message.kind() else { continue };
            for (prefix, clients) in self.prefixes.of_key(message.name()) {
                let frame = message.frame().clone().with_prefix(prefix.len());
                let (_, changes) = by_prefix.entry(prefix).or_insert_with(|| (clients, Vec::new()));
                changes.push(Change { number, by, frame });
            }
        }
        let begin = at.name.clone();
        for (prefix, (clients, changes)) in by_prefix {
            if begin.as_ref().is_some_and(|begin| prefix < begin) {
                continue;
            }
            at.move_to(prefix);
            let joined = Change::join(&changes, |_| true);
            let steps = steps_of(joined.as_slice());
            let writers: HashSet<u64> = changes.iter().map(|change| change.by).collect();
            let hand = |client: &Arc<Client>| {
                let delivered_until = client.inbox.caught_up();
                // Only a client whose own changes are left out, or that has caught up, gets a frame of its own.
                let hears_every = tracking::hears(client, client.id) || !writers.contains(&client.id);
                let is_for_all = hears_every && delivered_until < changes[0].number;
                let own = || {
                    Change::join(&changes, |change| {
                        change.number > delivered_until && tracking::hears(client, change.by)
                    })
                };
                let frame = if is_for_all { joined.clone() } else { own() };
                if let Some(frame) = frame.filter(|_| tracking::hears(client, 0)) {
                    tracking::tell(all, client, frame);
                }
                if is_for_all { steps } else { steps * changes.len() }
            };
            if !hand_out(clients, &mut at.client, slice, hand) {
                return false;
            }
        }
        // Not before, so that each slice makes progress.
        let steps = messages.len() * self.prefixes.lens() * STEPS_PER_PREFIX;
        slice.left = slice.left.saturating_sub(steps);
        true
    }
    /// Delivers messages of one channel. Several messages together have no pattern subscribers: a client that subscribes
    /// to a pattern meanwhile catches up first.
    fn deliver_published(
        &self,
        messages: &[Arc<Message>],
        kind: Namespace,
        number: u64,
        at: &mut DeliveryProgress,
        slice: &mut Slice,
    ) -> bool {
        let [message, others @ ..] = messages else { return true };
        if at.name.is_none() {
            let topics = match kind {
                Namespace::Channel => &self.channels,
                Namespace::Shard => &self.shard_channels,
            };
            if let Some(clients) = topics.get(message.name()) {
                let frames: SmallVec<[Frame; 1]> = messages.iter().map(|m| m.frame().clone()).collect();
                if !deliver_to(clients, &frames, number, &mut at.client, slice) {
                    return false;
                }
            }
        }
        if kind == Namespace::Shard || !others.is_empty() {
            return true;
        }
        let begin = at.name.clone().map_or(Bound::Unbounded, Bound::Included);
        for (pattern, clients) in self.patterns.range::<Arc<[u8]>, _>((begin, Bound::Unbounded)) {
            at.move_to(pattern);
            if at.client == ALL || !matches(pattern, message.name(), &mut slice.left) {
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
    let steps = steps_of(frames);
    hand_out(clients, from, slice, |client| {
        let delivered_until = client.inbox.caught_up();
        for (frame, number) in frames.iter().zip(number..) {
            if delivered_until < number {
                client.push_frame(frame.clone());
            }
        }
        steps
    })
}

/// The steps that handing these frames to a client counts as.
fn steps_of(frames: &[Frame]) -> usize {
    let of_frame = |frame: &Frame| STEPS_PER_MESSAGE + frame.len() / BYTES_PER_STEP;
    STEPS_PER_DELIVERY + frames.iter().map(of_frame).sum::<usize>()
}

/// Calls `hand` with the clients whose id is at least `from`. `hand` returns the number of steps that it counts as.
/// False when the slice's steps are not enough.
fn hand_out(
    clients: &Clients,
    from: &mut u64,
    slice: &mut Slice,
    hand: impl Fn(&Arc<Client>) -> usize,
) -> bool {
    let begin = clients.partition_point(|c| c.id < *from);
    for client in &clients[begin..] {
        if slice.left == 0 {
            *from = client.id;
            return false;
        }
        slice.left = slice.left.saturating_sub(hand(client));
        if is_due(client) {
            *slice = Slice { left: 0, pressed: Some(client.clone()) };
        }
    }
    *from = ALL;
    true
}

/// Adds a client, if it is not there yet.
fn insert(clients: &mut Clients, client: &Arc<Client>) {
    if let Err(at) = clients.binary_search_by_key(&client.id, |c| c.id) {
        clients.insert(at, client.clone());
    }
}

/// Removes a client. True when none is left.
fn remove(clients: &mut Clients, client: u64) -> bool {
    if let Ok(at) = clients.binary_search_by_key(&client, |c| c.id) {
        clients.remove(at);
    }
    clients.is_empty()
}
