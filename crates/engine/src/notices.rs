//! [`Notices`]: passes the keyspace's events to their listeners: keyspace notifications, client tracking, and the own keys
//! of a replica.
//!
//! Events are sent while the key's shard is locked, so the events of a key are published in the order of its changes.
//! One message goes to each worker with a subscriber of the channel or of any pattern. The worker matches the
//! patterns.

use crate::following::OwnKeys;
use crate::pubsub::{CHANNEL_BYTES_MAX, Payload, PubSub};
use crate::tracking::Tracking;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_keyspace::{KeyEvent, Listener, NO_CLIENT};

/// What passes events of keys to their listeners.
pub(crate) struct Notices {
    pubsub: Arc<PubSub>,
    tracking: Arc<Tracking>,
    own_keys: Arc<OwnKeys>,
    /// `notify-keyspace-events`: a bit for each letter.
    letters: AtomicU64,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Notices(letters: {:x})", self.letters.load(Relaxed))
    }
}

/// Every letter, by the number of its bit.
const LETTERS: &[u8] = b"g$lshzxetdKEmn";
/// The number of letters that `A` stands for.
const LETTERS_IN_A: usize = 10;

/// The bit of a letter. 0 for an unknown letter.
fn bit(letter: u8) -> u64 {
    LETTERS.iter().position(|known| *known == letter).map_or(0, |at| 1 << at)
}

impl Notices {
    pub(crate) fn new(pubsub: Arc<PubSub>, tracking: Arc<Tracking>, own_keys: Arc<OwnKeys>) -> Notices {
        Notices { pubsub, tracking, own_keys, letters: AtomicU64::new(0) }
    }
    /// Sets the value of `notify-keyspace-events`.
    pub(crate) fn set_letters(&self, letters: &[u8]) {
        let bits_of = |letter: &u8| if *letter == b'A' { (1 << LETTERS_IN_A) - 1 } else { bit(*letter) };
        let bits = letters.iter().fold(0, |bits, letter| bits | bits_of(letter));
        self.letters.store(bits, Relaxed);
    }
    /// True while somebody listens to events.
    pub(crate) fn listens(&self) -> bool {
        self.letters.load(Relaxed) & (bit(b'K') | bit(b'E')) != 0
            || self.tracking.clients_len() > 0
            || self.own_keys.is_noting()
    }
    fn notify(&self, db: usize, key: &[u8], event: KeyEvent) {
        let letters = self.letters.load(Relaxed);
        if event.name.is_empty() || letters & bit(event.class as u8) == 0 {
            return;
        }
        if letters & bit(b'K') != 0 {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            if channel.len() <= CHANNEL_BYTES_MAX {
                self.pubsub.announce(&channel, &Payload::Bytes(event.name.as_bytes()));
            }
        }
        if letters & bit(b'E') != 0 {
            let channel = format!("__keyevent@{db}__:{}", event.name);
            self.pubsub.announce(channel.as_bytes(), &Payload::Bytes(key));
        }
    }
}

impl Listener for Notices {
    fn report(&self, db: usize, key: &[u8], event: KeyEvent, changed: bool, by: u64) {
        self.notify(db, key, event);
        if changed && self.tracking.clients_len() > 0 {
            self.tracking.changed(key, by, event == KeyEvent::CACHED);
            self.pubsub.announce_change(key, by);
        }
        // The primary's stream has no client.
        if by != NO_CLIENT && self.own_keys.is_noting() {
            self.own_keys.note(db, key, event);
        }
    }
    fn report_all(&self) {
        self.tracking.all_changed();
        self.own_keys.forget();
    }
}
