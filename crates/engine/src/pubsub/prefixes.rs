//! The way of an invalidation to the clients of CLIENT TRACKING BCAST.
//!
//! A changed key is a message like a published one: it goes once to each dispatcher with a client that has a prefix
//! of the key, and the dispatcher tells its clients. The dispatcher takes many keys together and sends one frame for
//! each prefix, so a client pays for the batches and not for the keys. Without the dispatchers the writer's worker
//! handed each key to each client: with 1,000 clients that took 100 microseconds a write.

use super::directory::Recipients;
use super::message::{Frame, Message};
use super::{PubSub, Subscriptions};
use crate::clients::Client;
use std::sync::Arc;

/// A changed key on its way to the clients with one prefix.
pub(super) struct Change {
    /// The number of the message in the dispatcher's queue.
    pub(super) number: u64,
    /// The client that changed the key. 0: none.
    pub(super) by: u64,
    pub(super) frame: Frame,
}

impl Change {
    /// The one frame with the keys of those changes for which `wanted` is true. `None`: no such change.
    pub(super) fn join(changes: &[Change], wanted: impl Fn(&Change) -> bool) -> Option<Frame> {
        let frames = changes.iter().filter(|change| wanted(change)).map(|change| change.frame.clone());
        Frame::join_prefixes(frames.collect()).pop()
    }
}

impl PubSub {
    /// Tells the clients with a prefix of `key` that client `by` (0: none) changed the key.
    pub(crate) fn announce_change(&self, key: &[u8], by: u64) {
        let prefixes = self.prefixes.read();
        if prefixes.len() == 0 {
            return;
        }
        let mut recipients = Recipients::default();
        prefixes.of_key(key).for_each(|(_, counts)| recipients.add(counts));
        if recipients.receivers > 0 {
            self.enqueue(&Arc::new(Message::change(key, by)), &recipients);
        }
    }
    /// Gives the client a prefix that it does not have yet. `held` are its subscriptions and its other prefixes.
    pub(crate) fn join_prefix(&self, client: &Arc<Client>, prefix: &Arc<[u8]>, held: &Subscriptions) {
        let (at, dispatcher) = self.dispatcher_of(client);
        let mut prefixes = self.prefixes.write();
        prefixes.entry(prefix).add(at);
        dispatcher.catch_up(client, held, &self.clients);
        dispatcher.add_prefix(prefix, client);
    }
    /// Takes a prefix from the client. `held` are its subscriptions and all its prefixes. Afterwards the earlier changes
    /// are in the client's inbox.
    pub(crate) fn leave_prefix(&self, client: &Client, prefix: &[u8], held: &Subscriptions) {
        let (at, dispatcher) = self.dispatcher_of(client);
        let mut prefixes = self.prefixes.write();
        prefixes.change(prefix, |counts| counts.remove(at));
        dispatcher.catch_up(client, held, &self.clients);
        dispatcher.remove_prefix(prefix, client.id);
    }
    /// Number of different prefixes.
    pub(crate) fn prefixes_len(&self) -> usize {
        self.prefixes.read().len()
    }
}
