//! [`Pressure`]: a dispatcher waits for a subscriber that reads fast and still has much to read.
//!
//! A worker moves messages into an inbox faster than any socket takes them. Without the wait, a burst would exceed
//! `client-output-buffer-limit pubsub` of a subscriber that reads all the time. 5,000 bytes a message at 400 MB a second
//! did so within 0.4 s; in redis-server the publisher has to wait while the server writes to the subscriber. While the
//! dispatcher waits, its queue fills and publishers wait ([`super::congestion`]). A slow subscriber delays others by one
//! window at most, and is then left to its limit.

use crate::clients::Client;
use std::sync::Arc;

/// The dispatcher waits when more than this number of bytes waits for a subscriber, or a quarter of the subscriber's
/// limit if that is less.
const PRESSURE_BYTES_MAX: u64 = 8 << 20;
/// For a subscriber with a lower quarter the dispatcher does not wait.
const PRESSURE_BYTES_MIN: u64 = 4 << 20;
/// The dispatcher checks the subscriber's progress at the end of each window of this duration.
const WINDOW_US: u64 = 50_000;
/// A subscriber that takes fewer bytes in a window is slow. This is 64 MB a second.
const FAST_BYTES: u64 = 3_200_000;

/// The wait for one subscriber.
pub(super) struct Pressure {
    client: Arc<Client>,
    /// Start of the window, on the clock of [`crate::Now::mono_us`].
    since_us: u64,
    /// Bytes that waited for the subscriber at that time.
    bytes: u64,
}

impl Pressure {
    /// True when the dispatcher must wait for `client`. Call this after each message for it.
    pub(super) fn is_due(client: &Client) -> bool {
        let bytes = client.waiting_bytes();
        if client.inbox.is_slow() {
            if bytes < PRESSURE_BYTES_MIN {
                client.inbox.set_slow(false);
            }
            return false;
        }
        bytes > PRESSURE_BYTES_MIN && pressure_bytes(client).is_some_and(|most| bytes > most)
    }
    pub(super) fn new(client: Arc<Client>, now_us: u64) -> Pressure {
        let bytes = client.waiting_bytes();
        Pressure { client, since_us: now_us, bytes }
    }
    /// True while the dispatcher must wait.
    pub(super) fn lasts(&mut self, now_us: u64) -> bool {
        let bytes = self.client.waiting_bytes();
        if self.client.is_killed() || pressure_bytes(&self.client).is_none_or(|most| bytes <= most / 2) {
            return false;
        }
        if now_us < self.since_us + WINDOW_US {
            return true;
        }
        let is_fast = self.bytes.saturating_sub(bytes) >= FAST_BYTES;
        (self.since_us, self.bytes) = (now_us, bytes);
        self.client.inbox.set_slow(!is_fast);
        is_fast
    }
}

/// The number of waiting bytes above which the dispatcher waits for a subscriber. `None`: it never waits.
fn pressure_bytes(client: &Client) -> Option<u64> {
    let quarter = client.inbox.bytes_max() / 4;
    (quarter >= PRESSURE_BYTES_MIN).then_some(quarter.min(PRESSURE_BYTES_MAX))
}
