//! [`Inbox`]: frames for a client that its session has not taken yet.

use super::Frame;
use super::pressure::Pace;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// The error when the inbox exceeds the client's output limit. The client must be closed. Has the number of bytes that
/// waited for the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputLimitExceeded(pub(crate) u64);

/// The inbox of one client. Any thread puts frames in, and the client's session takes them out.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// True when the inbox has frames. Checked once per turn.
    filled: AtomicBool,
    contents: Mutex<InboxContents>,
    /// [`InboxContents::bytes`] as of the last [`Inbox::put`] or [`Inbox::take`], readable without the lock.
    bytes: AtomicU64,
    /// The hard limit of `client-output-buffer-limit pubsub`.
    bytes_max: AtomicU64,
    /// The [`Pace`].
    pace: AtomicU8,
    /// [`super::PubSub::catch_up`] has delivered its dispatcher's messages up to this number.
    caught_up: AtomicU64,
    /// Numbers of subscriptions to channels, patterns and shard channels.
    subscriptions: [AtomicU64; 3],
    /// Number of bytes that the client's subscriptions take.
    subscriptions_bytes: AtomicU64,
}

/// The part of an inbox under its lock.
#[derive(Debug, Default)]
struct InboxContents {
    frames: Vec<Frame>,
    /// The number of frames taken out so far.
    taken: u64,
    /// Number of bytes that the frames take.
    bytes: u64,
    /// The number of bytes that waited when the frames exceeded the limit. They were dropped, and no more frames are taken
    /// in.
    over_limit: Option<u64>,
}

/// Memory of a frame besides its shared bytes.
const FRAME_BYTES: u64 = size_of::<Frame>() as u64;

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            filled: false.into(),
            contents: Mutex::default(),
            bytes: 0.into(),
            bytes_max: u64::MAX.into(),
            pace: AtomicU8::new(Pace::Unknown as u8),
            caught_up: 0.into(),
            subscriptions: Default::default(),
            subscriptions_bytes: 0.into(),
        }
    }
}

impl Inbox {
    /// Puts a frame in, for a client with `unwritten` bytes of other output. True when its session must be woken.
    pub(crate) fn put(&self, frame: Frame, unwritten: u64) -> bool {
        let mut contents = self.contents.lock();
        if contents.over_limit.is_some() {
            return false;
        }
        let was_empty = contents.frames.is_empty();
        contents.bytes += frame.len() as u64 + FRAME_BYTES;
        contents.frames.push(frame);
        let waiting_bytes = contents.bytes + unwritten;
        if waiting_bytes > self.bytes_max.load(Relaxed) {
            *contents = InboxContents { over_limit: Some(waiting_bytes), ..InboxContents::default() };
        }
        self.bytes.store(contents.bytes, Relaxed);
        self.filled.store(true, Relaxed);
        was_empty || contents.over_limit.is_some()
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
        let mut contents = self.contents.lock();
        self.filled.store(false, Relaxed);
        self.bytes.store(0, Relaxed);
        if let Some(waiting_bytes) = contents.over_limit {
            return Err(OutputLimitExceeded(waiting_bytes));
        }
        contents.bytes = 0;
        contents.taken += contents.frames.len() as u64;
        let frames = std::mem::take(&mut contents.frames);
        drop(contents);
        Ok(Frame::join_prefixes(frames))
    }
    /// The number of frames put in so far.
    pub(crate) fn number(&self) -> u64 {
        let contents = self.contents.lock();
        contents.taken + contents.frames.len() as u64
    }
    /// Takes out those of the first `number` frames that are still in the inbox. The session takes the other frames
    /// soon, so it is not woken.
    pub(crate) fn take_until(&self, number: u64) -> Vec<Frame> {
        let mut contents = self.contents.lock();
        let n = number.saturating_sub(contents.taken).min(contents.frames.len() as u64);
        contents.taken += n;
        let frames: Vec<Frame> = contents.frames.drain(..n as usize).collect();
        contents.bytes -= frames.iter().map(|frame| frame.len() as u64 + FRAME_BYTES).sum::<u64>();
        drop(contents);
        Frame::join_prefixes(frames)
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
    /// The maximum number of bytes that may wait for the client. `u64::MAX`: no limit.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }
    /// How fast the client reads.
    pub(super) fn pace(&self) -> Pace {
        match self.pace.load(Relaxed) {
            0 => Pace::Unknown,
            1 => Pace::Fast,
            _ => Pace::Slow,
        }
    }
    /// Sets what [`Inbox::pace`] returns.
    pub(super) fn set_pace(&self, pace: Pace) {
        self.pace.store(pace as u8, Relaxed);
    }
    /// The number of the last message that [`super::PubSub::catch_up`] has delivered.
    pub(super) fn caught_up(&self) -> u64 {
        self.caught_up.load(Relaxed)
    }
    /// Sets the number that [`Inbox::caught_up`] returns.
    pub(super) fn set_caught_up(&self, number: u64) {
        self.caught_up.store(number, Relaxed);
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
