//! [`Inbox`]: frames for a client that its session has not taken yet.

use super::Frame;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The error when the inbox exceeds the client's output limit. The client must be closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputLimitExceeded;

/// The inbox of one client. Any thread puts frames in, and the client's session takes them out.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// True when the inbox has frames. Checked once per turn.
    filled: AtomicBool,
    held: Mutex<InboxContents>,
    bytes: AtomicU64,
    /// The hard limit of `client-output-buffer-limit pubsub`.
    bytes_max: AtomicU64,
    /// [`super::PubSub::catch_up`] has delivered its office's messages up to this number.
    caught_up: AtomicU64,
    /// Numbers of subscriptions to channels, patterns and shard channels.
    subscriptions: [AtomicU64; 3],
    /// Number of bytes that the client's subscriptions take.
    subscriptions_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct InboxContents {
    frames: Vec<Frame>,
    /// The number of frames taken out so far.
    taken: u64,
    bytes: u64,
    over: bool,
}

/// Memory of a frame besides its shared bytes.
const FRAME_BYTES: u64 = size_of::<Frame>() as u64;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            filled: false.into(),
            held: Mutex::default(),
            bytes: 0.into(),
            bytes_max: u64::MAX.into(),
            caught_up: 0.into(),
            subscriptions: Default::default(),
            subscriptions_bytes: 0.into(),
        }
    }
}

impl Inbox {
    /// Puts a frame in, for a client with `unwritten` bytes of other output. True when its session must be woken.
    pub(crate) fn put(&self, frame: Frame, unwritten: u64) -> bool {
        let mut held = self.held.lock();
        if held.over {
            return false;
        }
        let was_empty = held.frames.is_empty();
        held.bytes += frame.len() as u64 + FRAME_BYTES;
        held.frames.push(frame);
        if held.bytes + unwritten > self.bytes_max.load(Relaxed) {
            *held = InboxContents { over: true, ..InboxContents::default() };
        }
        self.bytes.store(held.bytes, Relaxed);
        self.filled.store(true, Relaxed);
        was_empty || held.over
    }
    /// True when the inbox has frames.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Relaxed)
    }
    /// Takes all frames out.
    ///
    /// # Errors
    /// When the frames exceeded the limit.
    pub(crate) fn take(&self) -> Result<Vec<Frame>, OutputLimitExceeded> {
        let mut held = self.held.lock();
        self.filled.store(false, Relaxed);
        self.bytes.store(0, Relaxed);
        if held.over {
            return Err(OutputLimitExceeded);
        }
        held.bytes = 0;
        held.taken += held.frames.len() as u64;
        Ok(std::mem::take(&mut held.frames))
    }
    /// The number of frames put in so far.
    pub(crate) fn number(&self) -> u64 {
        let held = self.held.lock();
        held.taken + held.frames.len() as u64
    }
    /// Takes out those of the first `number` frames that are still in the inbox. The session takes the other frames
    /// soon, so it is not woken.
    pub(crate) fn take_until(&self, number: u64) -> Vec<Frame> {
        let mut held = self.held.lock();
        let n = number.saturating_sub(held.taken).min(held.frames.len() as u64);
        held.taken += n;
        let frames: Vec<Frame> = held.frames.drain(..n as usize).collect();
        held.bytes -= frames.iter().map(|frame| frame.len() as u64 + FRAME_BYTES).sum::<u64>();
        frames
    }
    /// Bytes of the inbox's frames and of the client's subscriptions.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed) + self.subscriptions_bytes.load(Relaxed)
    }
    /// Bytes of the inbox's frames.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
    /// Sets the maximum number of bytes that may wait for the client. 0: no limit.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        let bytes_max = if bytes_max == 0 { u64::MAX } else { bytes_max as u64 };
        self.bytes_max.store(bytes_max, Relaxed);
    }
    pub(super) fn caught_up(&self) -> u64 {
        self.caught_up.load(Relaxed)
    }
    pub(super) fn set_caught_up(&self, post: u64) {
        self.caught_up.store(post, Relaxed);
    }
    /// Publishes the numbers of subscriptions to channels, patterns and shard channels, and their bytes.
    pub(crate) fn set_subscriptions(&self, lens: [usize; 3], bytes: usize) {
        self.subscriptions.iter().zip(lens).for_each(|(to, n)| to.store(n as u64, Relaxed));
        self.subscriptions_bytes.store(bytes as u64, Relaxed);
    }
    /// Numbers of subscriptions to channels, patterns and shard channels.
    pub(crate) fn subscriptions(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.subscriptions[i].load(Relaxed))
    }
    /// True when the client has a subscription.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions().iter().any(|n| *n > 0)
    }
}
