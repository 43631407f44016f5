//! [`Patience`]: a dispatcher waits for a subscriber that reads fast and still has much to read.
//!
//! A worker moves messages into an inbox faster than any socket takes them. Without the wait, a burst would exceed
//! `client-output-buffer-limit pubsub` of a subscriber that reads all the time. Messages of 5,000 bytes at 400 MB a
//! second exceeded the limit within 0.4 s. In redis-server the publisher waits while the server writes to the
//! subscriber. In Strand the dispatcher's queue fills while the dispatcher waits, and then
//! publishers wait ([`super::congestion`]).
//!
//! A subscriber that reads too little during a window of the wait is slow. The dispatcher no longer waits for it, and
//! the output limit applies. A window that a slow subscriber wastes delays all other subscribers, so a dispatcher
//! wastes only few windows, whatever the number of its slow subscribers.

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
/// The window after many wasted ones, for a subscriber that was fast before.
const SHORT_WINDOW_US: u64 = 5_000;
/// Number of windows that a dispatcher may waste at once.
const WASTED_MAX: u64 = 2;
/// After this time the dispatcher may waste one more window.
const REFILL_US: u64 = 500_000;

/// How fast a subscriber reads, as far as its dispatcher knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Pace {
    Unknown,
    Fast,
    /// The dispatcher does not wait for the subscriber.
    Slow,
}

/// The waits of one dispatcher.
#[derive(Default)]
pub(super) struct Patience {
    wait: Option<Pressure>,
    /// Number of wasted windows that still count, and the time from which they count.
    wasted: u64,
    since_us: u64,
}

impl Patience {
    /// Begins to wait for `client`, or leaves the client to its limit.
    pub(super) fn begin(&mut self, client: Arc<Client>, now_us: u64) {
        let refilled = now_us.saturating_sub(self.since_us) / REFILL_US;
        if refilled > 0 || self.wasted == 0 {
            (self.wasted, self.since_us) = (self.wasted.saturating_sub(refilled), now_us);
        }
        let window_us = match client.inbox.pace() {
            _ if self.wasted < WASTED_MAX => WINDOW_US,
            Pace::Fast => SHORT_WINDOW_US,
            Pace::Unknown | Pace::Slow => return client.inbox.set_pace(Pace::Slow),
        };
        let bytes = client.waiting_bytes();
        self.wait = Some(Pressure { client, window_us, since_us: now_us, bytes });
    }
    /// True while the dispatcher must wait.
    pub(super) fn lasts(&mut self, now_us: u64) -> bool {
        let Some(wait) = &mut self.wait else { return false };
        let lasts = wait.lasts(now_us);
        if !lasts {
            self.wasted += u64::from(wait.client.inbox.pace() == Pace::Slow);
            self.wait = None;
        }
        lasts
    }
}

/// The wait for one subscriber.
struct Pressure {
    client: Arc<Client>,
    window_us: u64,
    /// Start of the window, on the clock of [`crate::Now::mono_us`].
    since_us: u64,
    /// Bytes that waited for the subscriber at that time.
    bytes: u64,
}

impl Pressure {
    fn lasts(&mut self, now_us: u64) -> bool {
        let bytes = self.client.waiting_bytes();
        if self.client.is_killed() {
            return false;
        }
        if pressure_bytes(&self.client).is_none_or(|most| bytes <= most / 2) {
            self.client.inbox.set_pace(Pace::Fast);
            return false;
        }
        if now_us < self.since_us + self.window_us {
            return true;
        }
        let is_fast = self.bytes.saturating_sub(bytes) * WINDOW_US >= FAST_BYTES * self.window_us;
        (self.since_us, self.bytes) = (now_us, bytes);
        self.client.inbox.set_pace(if is_fast { Pace::Fast } else { Pace::Slow });
        is_fast
    }
}

/// True when the dispatcher should wait for `client`. Call this after each message for it.
pub(super) fn is_due(client: &Client) -> bool {
    let bytes = client.waiting_bytes();
    if client.inbox.pace() == Pace::Slow {
        if bytes < PRESSURE_BYTES_MIN {
            client.inbox.set_pace(Pace::Unknown);
        }
        return false;
    }
    bytes > PRESSURE_BYTES_MIN
        && pressure_bytes(client).is_some_and(|most| bytes > most)
        && !client.is_killed()
}

/// The number of waiting bytes above which the dispatcher waits for a subscriber. `None`: it never waits.
fn pressure_bytes(client: &Client) -> Option<u64> {
    let quarter = client.inbox.bytes_max() / 4;
    (quarter >= PRESSURE_BYTES_MIN).then_some(quarter.min(PRESSURE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Namespace, Payload};
    use super::*;
    use crate::Now;

    /// A subscriber with a limit of 32 MiB for whom 9 MiB wait.
    fn subscriber() -> Arc<Client> {
        let client = Arc::new(Client::for_file(Now { unix_us: 0, mono_us: 0 }));
        client.inbox.set_bytes_max(32 << 20);
        give(&client);
        client
    }
    fn give(client: &Client) {
        let bytes = vec![b'x'; 9 << 20];
        let message = Message::new(Namespace::Channel, b"c", &Payload::Bytes(&bytes));
        client.push_frame(message.frame().clone());
    }
    fn take(client: &Client) {
        client.inbox.take().expect("the limit is higher");
    }
    /// The time for which `patience` waits for `client`, in steps of a millisecond from `now_us` on.
    fn waits_us(patience: &mut Patience, client: &Arc<Client>, now_us: u64) -> u64 {
        assert!(is_due(client));
        patience.begin(client.clone(), now_us);
        (0..).map(|step| step * 1000).find(|us| !patience.lasts(now_us + us)).expect("it ends")
    }

    #[test]
    fn many_slow_subscribers_delay_nobody_for_long() {
        let (mut patience, mut now_us) = (Patience::default(), 1_000_000);
        let clients: Vec<_> = (0..40).map(|_| subscriber()).collect();
        for client in &clients {
            now_us += waits_us(&mut patience, client, now_us);
            assert!(client.inbox.pace() == Pace::Slow && !is_due(client), "left to its limit");
        }
        assert_eq!(now_us - 1_000_000, WASTED_MAX * WINDOW_US);
        // Later another one may be waited for, and one that has read is no longer slow.
        let other = subscriber();
        assert_eq!(waits_us(&mut patience, &other, now_us + REFILL_US), WINDOW_US);
        take(&other);
        assert!(!is_due(&other) && other.inbox.pace() == Pace::Unknown);
    }

    #[test]
    fn a_fast_subscriber_is_waited_for_after_many_slow_ones() {
        let (mut patience, now_us) = (Patience::default(), 1_000_000);
        let fast = subscriber();
        patience.begin(fast.clone(), now_us);
        assert!(patience.lasts(now_us + 10));
        take(&fast);
        assert!(!patience.lasts(now_us + 20) && fast.inbox.pace() == Pace::Fast);
        for slow in [subscriber(), subscriber(), subscriber()] {
            waits_us(&mut patience, &slow, now_us + 20);
        }
        give(&fast);
        assert_eq!(waits_us(&mut patience, &fast, now_us + 30), SHORT_WINDOW_US);
    }
}
