//! The pipe between an HTTP connection and its session, in memory: requests in one direction, replies in the other.
//!
//! The HTTP side has the [`HttpEnd`]. The session has the [`SessionEnd`], which behaves like a socket. Both
//! directions are bounded, so neither side can run ahead. Replies move as chains that share their blocks. Large
//! parts of a request are queued as they came from the network and copied once, to their place in the session. One
//! task ([`Joined`]) owns both ends and runs them in turn until neither has anything to do. So the pipe needs no
//! wakers and no locks.

use crate::turns::wake_after_others;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;
use strand_chain::Chain;
use strand_wire::events::LINE_BYTES_MAX;

/// When more than this many request bytes are unread, the HTTP side stops sending.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// When more than this many reply bytes are unread, the session's writes are refused.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;
/// The same limit while a line is incomplete: one byte more than the longest line with its end, so that a longer line is
/// found to be too long.
const REPLY_LINE_BYTES_MAX: usize = LINE_BYTES_MAX + 3;
/// Request parts of at least this length are queued without a copy. Shorter parts are copied.
const QUEUE_BYTES_MIN: usize = 1024;
/// Maximum number of rounds of both sides in one turn of the task, before other tasks run. A small request takes one
/// round.
const ROUNDS_MAX: usize = 32;
/// Maximum duration of a turn of the task, in microseconds. A single poll of a side may take longer.
const TURN_US_MAX: u128 = 200;
/// Maximum number of bytes through a pipe in one turn of the task.
const MOVED_BYTES_MAX: usize = 64 * 1024;

/// A piece of the requests, as it arrived from the network.
enum RequestChunk {
    Copied(Chain),
    Queued(Bytes),
}

#[derive(Default)]
struct Shared {
    requests: RefCell<VecDeque<RequestChunk>>,
    request_bytes: Cell<usize>,
    replies: RefCell<Chain>,
    /// True when the replies begin with a line whose end has not arrived, so the session's writes need more room.
    needs_line: Cell<bool>,
    /// True when no more requests will come.
    closed: Cell<bool>,
    /// True when no more replies will come.
    has_session_ended: Cell<bool>,
    /// True while the session's command waits for data, as BLPOP does.
    is_session_blocked: Cell<bool>,
    /// True when bytes went through the pipe since this was last checked.
    moved: Cell<bool>,
    /// Number of bytes that went through the pipe in this turn of the task.
    moved_bytes: Cell<usize>,
    /// True when the session side asked to end this turn of the task.
    has_yielded: Cell<bool>,
    /// Number of turns of the task.
    turns: Cell<u64>,
    /// Bytes of requests and responses held on the HTTP side: the sum of its [`Holding`]s.
    held: Cell<usize>,
    meter: RefCell<Option<Arc<AtomicU64>>>,
}

impl Shared {
    /// When more than this many reply bytes are unread, the session's writes are refused.
    fn reply_bytes_max(&self) -> usize {
        if self.needs_line.get() { REPLY_LINE_BYTES_MAX } else { REPLY_BYTES_MAX }
    }
    fn count(&self, request_bytes: usize) {
        self.request_bytes.set(request_bytes);
        self.moved.set(true);
        self.tell();
    }
    fn tell(&self) {
        if let Some(meter) = &*self.meter.borrow() {
            let bytes = self.request_bytes.get() + self.replies.borrow().len() + self.held.get();
            meter.store(bytes as u64, Relaxed);
        }
    }
}

/// The HTTP side's end of the pipe. Dropping this end ends the requests.
pub struct HttpEnd(Rc<Shared>);

/// Bytes held by a part of the HTTP side. These bytes count as the client's memory until the `Holding` is dropped.
pub struct Holding {
    shared: Rc<Shared>,
    bytes: usize,
}

impl Holding {
    /// Sets the number of bytes that this part holds.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if before != bytes {
            self.shared.held.set(self.shared.held.get() - before + bytes);
            self.shared.tell();
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The session's end of the pipe. Dropping this end ends the replies.
pub struct SessionEnd(Rc<Shared>);

/// Creates a pipe.
pub fn pipe() -> (HttpEnd, SessionEnd) {
    let shared = Rc::new(Shared::default());
    (HttpEnd(shared.clone()), SessionEnd(shared))
}

impl HttpEnd {
    /// Appends a copy of `bytes` to the requests.
    pub fn push(&self, bytes: &[u8]) {
        let mut requests = self.0.requests.borrow_mut();
        match requests.back_mut() {
            Some(RequestChunk::Copied(chain)) => chain.push_slice(bytes),
            _ => {
                let mut chain = Chain::new();
                chain.push_slice(bytes);
                requests.push_back(RequestChunk::Copied(chain));
            }
        }
        drop(requests);
        self.0.count(self.0.request_bytes.get() + bytes.len());
    }
    /// Appends `bytes` to the requests. Long `bytes` are not copied.
    pub fn push_bytes(&self, bytes: Bytes) {
        if bytes.len() < QUEUE_BYTES_MIN {
            return self.push(&bytes);
        }
        let len = bytes.len();
        self.0.moved_bytes.set(self.0.moved_bytes.get() + len);
        self.0.requests.borrow_mut().push_back(RequestChunk::Queued(bytes));
        self.0.count(self.0.request_bytes.get() + len);
    }
    /// Creates a counter for bytes held on the HTTP side.
    pub fn holding(&self) -> Holding {
        Holding { shared: self.0.clone(), bytes: 0 }
    }
    /// True while the HTTP side may send more, because the session has not too many unread bytes.
    pub fn has_room(&self) -> bool {
        self.0.request_bytes.get() < REQUEST_BYTES_MAX
    }
    /// True while the session has unread requests.
    pub fn is_waiting(&self) -> bool {
        self.0.request_bytes.get() > 0
    }
    /// True while there are unread replies.
    pub fn has_replies(&self) -> bool {
        !self.0.replies.borrow().is_empty()
    }
    /// Calls `take` with the replies that have arrived.
    pub fn take<T>(&self, take: impl FnOnce(&mut Chain) -> T) -> T {
        let mut replies = self.0.replies.borrow_mut();
        let before = replies.len();
        let taken = take(&mut replies);
        let took = replies.len() != before;
        drop(replies);
        if took {
            self.0.count(self.0.request_bytes.get());
        }
        taken
    }
    /// Says whether the replies that have arrived are the beginning of one line. A line is read only as a whole, so a line
    /// may be longer than [`REPLY_BYTES_MAX`].
    pub fn set_needs_line(&self, needs_line: bool) {
        let is_full = needs_line && self.0.replies.borrow().len() >= REPLY_BYTES_MAX;
        if self.0.needs_line.replace(is_full) != is_full {
            self.0.moved.set(true);
        }
    }
    /// Ends the requests. The session sees the end of its input.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.0.moved.set(true);
    }
    /// True when the session has ended: no replies follow the ones that have arrived.
    pub fn has_session_ended(&self) -> bool {
        self.0.has_session_ended.get()
    }
}

impl Drop for HttpEnd {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.0.has_session_ended.set(true);
        self.0.moved.set(true);
    }
}

impl SessionEnd {
    /// Keeps `meter` equal to the number of bytes in the pipe.
    pub fn measure(&self, meter: Arc<AtomicU64>) {
        *self.0.meter.borrow_mut() = Some(meter);
    }
    /// Reads into `target`. Returns the number of bytes read, `None` when nothing has arrived, or 0 at the end of the
    /// requests. The second value is true when no more bytes can be read now.
    pub fn read(&mut self, target: &mut [u8]) -> (Option<usize>, bool) {
        let mut requests = self.0.requests.borrow_mut();
        let mut n = 0;
        while n < target.len() {
            let Some(chunk) = requests.front_mut() else { break };
            let slice = match chunk {
                RequestChunk::Copied(chain) => chain.front(),
                RequestChunk::Queued(bytes) => bytes,
            };
            let now = slice.len().min(target.len() - n);
            target[n..n + now].copy_from_slice(&slice[..now]);
            n += now;
            let empty = match chunk {
                RequestChunk::Copied(chain) => {
                    chain.advance(now);
                    chain.is_empty()
                }
                RequestChunk::Queued(bytes) => {
                    *bytes = bytes.split_off(now);
                    bytes.is_empty()
                }
            };
            if empty {
                requests.pop_front();
            }
        }
        let dry = requests.is_empty() && !self.0.closed.get();
        drop(requests);
        if n > 0 {
            self.0.count(self.0.request_bytes.get() - n);
            return (Some(n), dry);
        }
        (self.0.closed.get().then_some(0), dry)
    }
    /// Moves up to `bytes_max` bytes from the front of `output` into the pipe without copying them. Returns the
    /// number of moved bytes: 0 when the pipe is full.
    pub fn write(&mut self, output: &mut Chain, bytes_max: usize) -> usize {
        let room = self.0.reply_bytes_max().saturating_sub(self.0.replies.borrow().len());
        let n = output.len().min(bytes_max).min(room);
        if n > 0 {
            self.0.replies.borrow_mut().push_chain(output.split_to(n));
            self.0.moved_bytes.set(self.0.moved_bytes.get() + n);
            self.0.count(self.0.request_bytes.get());
        }
        n
    }
    /// True when [`SessionEnd::read`] would not return `None`.
    pub fn can_read(&self) -> bool {
        self.0.request_bytes.get() > 0 || self.0.closed.get()
    }
    /// True when [`SessionEnd::write`] would take bytes.
    pub fn can_write(&self) -> bool {
        self.0.replies.borrow().len() < self.0.reply_bytes_max()
    }
    /// Ends this turn of the task: the session yields to other sessions of its worker.
    pub fn end_turn(&self) {
        self.0.has_yielded.set(true);
    }
    /// Notes whether the session's command waits for data, as BLPOP does.
    pub fn set_blocked(&self, is_blocked: bool) {
        if self.0.is_session_blocked.replace(is_blocked) != is_blocked {
            self.0.moved.set(true);
        }
    }
    /// True when no more requests will come.
    pub fn is_closed(&self) -> bool {
        self.0.closed.get()
    }
    /// A view of the traffic, for the task that runs both ends.
    pub fn watch(&self) -> PipeTraffic {
        PipeTraffic(self.0.clone())
    }
}

/// Watches the traffic of a pipe.
#[derive(Clone)]
pub struct PipeTraffic(Rc<Shared>);

impl PipeTraffic {
    /// The number of the current turn of the task. Code that limits its work per turn starts again when the number
    /// changes.
    pub fn turn(&self) -> u64 {
        self.0.turns.get()
    }
    /// True while the session's command waits for data, as BLPOP does.
    pub fn is_session_blocked(&self) -> bool {
        self.0.is_session_blocked.get()
    }
    fn begin(&self) {
        self.0.turns.set(self.0.turns.get() + 1);
        self.0.moved_bytes.set(0);
        self.0.has_yielded.set(false);
    }
    fn moved(&self) -> bool {
        self.0.moved.take()
    }
    fn is_over(&self) -> bool {
        self.0.has_yielded.get() || self.0.moved_bytes.get() >= MOVED_BYTES_MAX
    }
}

/// Joins two futures, one at each end of a pipe, to one future. Each of the two is polled again while the other one
/// moves bytes. The joined future ends with the HTTP side. If the session side ends first, its result is passed to
/// `ended` once.
pub struct Joined<F, B: Future, E> {
    http_side: Pin<Box<F>>,
    session_side: Option<Pin<Box<B>>>,
    watch: PipeTraffic,
    ended: E,
}

impl<F: Future, B: Future, E: FnMut(B::Output) -> Option<F::Output>> Joined<F, B, E> {
    /// Joins two futures. `ended` may end the joined future.
    pub fn new(http_side: F, session_side: B, watch: PipeTraffic, ended: E) -> Joined<F, B, E> {
        Joined { http_side: Box::pin(http_side), session_side: Some(Box::pin(session_side)), watch, ended }
    }
}

impl<F: Future, B: Future, E: FnMut(B::Output) -> Option<F::Output> + Unpin> Future for Joined<F, B, E> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let began = Instant::now();
        this.watch.begin();
        for _ in 0..ROUNDS_MAX {
            this.watch.moved();
            if let Poll::Ready(done) = this.http_side.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            if let Some(session_side) = &mut this.session_side
                && let Poll::Ready(end) = session_side.as_mut().poll(cx)
            {
                this.session_side = None;
                if let Some(done) = (this.ended)(end) {
                    return Poll::Ready(done);
                }
            }
            if !this.watch.moved() {
                return Poll::Pending;
            }
            if this.watch.is_over() || began.elapsed().as_micros() >= TURN_US_MAX {
                break;
            }
        }
        wake_after_others(cx);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_chain::Blob;

    #[test]
    fn requests_keep_their_order() {
        let (http_end, mut session_end) = pipe();
        assert_eq!(session_end.read(&mut [0; 4]), (None, true));
        http_end.push(b"head ");
        http_end.push_bytes(Bytes::from_static(b"short "));
        http_end.push_bytes(Bytes::from(vec![b'v'; 3000]));
        http_end.push(b" tail");
        let mut all = Vec::new();
        loop {
            let mut piece = [0; 700];
            let (n, dry) = session_end.read(&mut piece);
            all.extend_from_slice(&piece[..n.expect("there is more")]);
            if dry {
                break;
            }
        }
        assert_eq!(all, [&b"head short "[..], &[b'v'; 3000], b" tail"].concat());
        http_end.push(b"x");
        drop(http_end);
        assert_eq!(session_end.read(&mut [0; 4]), (Some(1), false));
        assert_eq!(session_end.read(&mut [0; 4]), (Some(0), false), "the end");
        assert!(session_end.is_closed() && session_end.can_read());
    }

    #[test]
    fn replies_are_shared_and_bounded() {
        let (http_end, mut session_end) = pipe();
        let meter = Arc::new(AtomicU64::new(0));
        session_end.measure(meter.clone());
        let blob = Blob::from(vec![b'v'; 2 * REPLY_BYTES_MAX]);
        let mut out = Chain::new();
        out.push_blob(blob.clone());
        assert_eq!(session_end.write(&mut out, 100_000), 100_000);
        assert_eq!(session_end.write(&mut out, usize::MAX), REPLY_BYTES_MAX - 100_000);
        assert_eq!((session_end.write(&mut out, 1), session_end.can_write()), (0, false));
        assert_eq!(meter.load(Relaxed), REPLY_BYTES_MAX as u64);
        let (mut one, mut other) = (http_end.holding(), http_end.holding());
        one.set(10);
        other.set(20);
        one.set(15);
        assert_eq!(meter.load(Relaxed), REPLY_BYTES_MAX as u64 + 35);
        drop(other);
        assert_eq!(meter.load(Relaxed), REPLY_BYTES_MAX as u64 + 15);
        drop(one);
        assert_eq!(meter.load(Relaxed), REPLY_BYTES_MAX as u64);
        http_end.take(|replies| {
            assert!(replies.slices().all(|s| blob.as_slice().as_ptr_range().contains(&s.as_ptr())));
            replies.advance(1);
        });
        assert!(session_end.can_write());
        drop(session_end);
        assert!(http_end.has_session_ended());
    }

    #[test]
    fn a_line_has_more_room_than_other_replies() {
        let (http_end, mut session_end) = pipe();
        let mut out = Chain::new();
        out.push_blob(Blob::from(vec![b'x'; 2 * LINE_BYTES_MAX]));
        http_end.set_needs_line(true);
        assert_eq!(session_end.write(&mut out, usize::MAX), REPLY_BYTES_MAX, "the pipe was not full");
        http_end.set_needs_line(true);
        assert!(session_end.can_write());
        assert_eq!(session_end.write(&mut out, usize::MAX), REPLY_LINE_BYTES_MAX - REPLY_BYTES_MAX);
        http_end.set_needs_line(false);
        assert!(!session_end.can_write());
    }

    #[test]
    fn both_ends_run_in_one_turn_until_no_bytes_move() {
        let (http_end, mut session_end) = pipe();
        let watch = session_end.watch();
        let asks = async move {
            for i in 0..5u8 {
                http_end.push(&[i]);
                let reply = std::future::poll_fn(|_| {
                    http_end.take(|replies| match replies.is_empty() {
                        true => Poll::Pending,
                        false => {
                            let first = replies.front()[0];
                            replies.advance(1);
                            Poll::Ready(first)
                        }
                    })
                });
                assert_eq!(reply.await, i + 1);
            }
            "asked"
        };
        let answers = std::future::poll_fn(move |_| {
            loop {
                let mut byte = [0];
                match session_end.read(&mut byte) {
                    (Some(1), _) => {
                        let mut out = Chain::new();
                        out.push_slice(&[byte[0] + 1]);
                        session_end.write(&mut out, 1);
                        // Yield at some of the bytes.
                        if byte[0] == 3 {
                            session_end.end_turn();
                        }
                    }
                    (Some(_), _) => return Poll::Ready("ended"),
                    (None, _) => return Poll::Pending,
                }
            }
        });
        let mut both = Joined::new(asks, answers, watch, |_| None);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut both).poll(&mut cx).is_pending(), "the session rested");
        // A turn also ends when its time is over, so a busy machine may need several turns.
        let end = (0..1000).map(|_| Pin::new(&mut both).poll(&mut cx)).find(Poll::is_ready);
        assert_eq!(end, Some(Poll::Ready("asked")));
    }
}
