//! [`Port`]: one socket on a ring, and the [`Slot`] in which the ring keeps what is under way for it.

use crate::Ring;
use crate::buffers::{Buffers, Held};
use crate::ring::Kind;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::rc::Rc;
use std::task::{Context, Waker};
use strand_chain::Chain;

/// Bytes that are copied out for a task that does not read them; then the receiving stops until it has.
const SPILLED_BYTES_MAX: usize = 64 * 1024;
/// A target of at least this length is part of a large value.
const LARGE_BYTES_MIN: usize = 32 * 1024;
/// A large value of which so much has come is read from the socket itself into its own memory, without the copy that the
/// kernel's buffers cost.
const DIRECT_BYTES_MIN: usize = 256 * 1024;
/// Buffers that one port may hold.
const HELD_MAX: usize = 8;
/// `ENOBUFS`, `ECANCELED`: the standing request ended, not the socket.
const NO_BUFFERS: i32 = -105;
const CANCELED: i32 = -125;
/// `POLLIN`, `POLLERR`, `POLLHUP`.
const POLL_IN: i32 = 1;
const POLL_ERROR: i32 = 8;
const POLL_HANG_UP: i32 = 16;
/// `EPIPE`.
const BROKEN_PIPE: i32 = 32;

/// What the ring keeps for a port, and beyond it until the kernel is done.
pub(crate) struct Slot {
    /// Closed when the slot is freed: until then no other socket gets its number, which requests may name.
    pub(crate) socket: Rc<TcpStream>,
    /// Received and still in the kernel's buffers: for a task that is about to read.
    held: VecDeque<Held>,
    /// Received before that, and copied out.
    spilled: Chain,
    /// The standing receive is out.
    receiving: bool,
    /// It is being cancelled.
    stopping: bool,
    /// It found no buffer; it is asked again in the next turn.
    starved: bool,
    /// What the send that is out reads; empty when there is none.
    sending: Chain,
    /// A request that tells when the connection breaks is out, and of these events.
    watching: Option<i32>,
    /// It has told that the peer ended its side, which reading will find too.
    ended_unread: bool,
    /// It has told that bytes are in the socket.
    arrived: bool,
    /// Bytes read into large targets, one after the other.
    large_bytes: usize,
    ended: bool,
    error: Option<i32>,
    waker: Option<Waker>,
    reading: bool,
    writing: bool,
    pub(crate) closed: bool,
    /// Requests that the kernel has or will have.
    pub(crate) requests: usize,
}

impl Slot {
    pub(crate) fn new(socket: Rc<TcpStream>, error: Option<i32>) -> Slot {
        Slot {
            socket,
            held: VecDeque::new(),
            spilled: Chain::new(),
            receiving: false,
            stopping: false,
            starved: false,
            sending: Chain::new(),
            watching: None,
            ended_unread: false,
            arrived: false,
            large_bytes: 0,
            ended: false,
            error,
            waker: None,
            reading: false,
            writing: false,
            closed: false,
            requests: 0,
        }
    }
    /// The standing receive is asked for: nobody else reads from the socket from now on.
    pub(crate) fn receives(&mut self) {
        self.receiving = true;
        self.arrived = false;
    }
    pub(crate) fn watches(&mut self, events: i32) {
        self.watching = Some(events);
    }
    /// Something was received. True when the port found no buffer and is to be asked again in the next turn.
    pub(crate) fn received(
        &mut self,
        held: Option<Held>,
        result: i32,
        more: bool,
        buffers: &mut Buffers,
    ) -> bool {
        self.receiving = more;
        self.stopping &= more;
        self.held.extend(held);
        match result {
            1.. => {}
            0 => self.ended = true,
            NO_BUFFERS => self.starved = !self.closed,
            CANCELED => {}
            error => self.error = Some(-error),
        }
        if !self.reading || self.held.len() > HELD_MAX {
            self.spill(buffers);
        }
        // Without more to come the task asks again; one that found no buffer in the next turn.
        if (self.reading && !self.starved) || self.error.is_some() {
            self.wake();
        }
        self.starved
    }
    /// The next turn has come: the task asks again for what it wants to read.
    pub(crate) fn no_longer_starved(&mut self) {
        self.starved = false;
        self.wake();
    }
    /// True once when so much has come unread that the receiving has to stop.
    pub(crate) fn is_overfull(&mut self) -> bool {
        let over = self.receiving && !self.stopping && self.spilled.len() >= SPILLED_BYTES_MAX;
        self.stopping |= over;
        over
    }
    /// The send that was out has ended.
    pub(crate) fn sent(&mut self, result: i32) {
        let len = self.sending.len();
        self.sending.clear();
        if result < 0 {
            self.broken(-result);
        } else if (result as usize) < len {
            // The request was to send all of it.
            self.broken(BROKEN_PIPE);
        } else if self.writing {
            self.wake();
        }
    }
    /// The watch has ended: the connection broke, the peer ended its side, or the port is being closed.
    pub(crate) fn watched(&mut self, result: i32) {
        self.watching = None;
        if result <= 0 {
            return;
        }
        if result & (POLL_ERROR | POLL_HANG_UP) != 0 {
            return self.broken(BROKEN_PIPE);
        }
        if result & POLL_IN != 0 {
            self.arrived = true;
        } else {
            // The peer has ended its side: another watch would tell that at once, again and again.
            self.ended_unread = true;
        }
        if self.reading {
            self.wake();
        }
    }
    pub(crate) fn broken(&mut self, error: i32) {
        self.error.get_or_insert(error);
        self.wake();
    }
    /// What the send that is out reads.
    pub(crate) fn sending(&self) -> &Chain {
        &self.sending
    }
    /// Reads from the socket itself.
    fn receive_into(&mut self, target: &mut [u8]) -> usize {
        match rustix::net::recv(&*self.socket, &mut *target, RecvFlags::DONTWAIT) {
            Ok((n, _)) => {
                self.arrived = n == target.len();
                self.ended = n == 0;
                n
            }
            Err(Errno::INTR) => 0,
            Err(Errno::AGAIN) => {
                self.arrived = false;
                0
            }
            Err(e) => {
                self.error = Some(e.raw_os_error());
                0
            }
        }
    }
    /// Copies what is in the kernel's buffers, so that they can serve others.
    fn spill(&mut self, buffers: &mut Buffers) {
        while let Some(held) = self.held.pop_front() {
            self.spilled.push_slice(buffers.bytes(&held));
            buffers.give(held);
        }
    }
    pub(crate) fn drop_held(&mut self, buffers: &mut Buffers) {
        self.held.drain(..).for_each(|held| buffers.give(held));
    }
    /// Drops the slot but for what the kernel may still read.
    pub(crate) fn leak(self) {
        std::mem::forget(self.sending);
    }
    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
    /// Bytes are in the socket, and no request takes them from there.
    fn is_direct(&self) -> bool {
        self.arrived && !self.receiving
    }
    fn is_readable(&self) -> bool {
        self.is_direct()
            || !self.spilled.is_empty()
            || !self.held.is_empty()
            || self.ended
            || self.error.is_some()
    }
}

/// What a port is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// [`Port::read`] gives bytes, the end or an error.
    pub read: bool,
    /// [`Port::write`] takes bytes or gives an error.
    pub write: bool,
    /// The connection is broken.
    pub gone: bool,
}

/// One socket on a ring.
pub struct Port {
    ring: Ring,
    socket: Rc<TcpStream>,
    index: usize,
}

impl Port {
    pub(crate) fn new(ring: Ring, socket: Rc<TcpStream>, index: usize) -> Port {
        Port { ring, socket, index }
    }
    /// The socket, for its options; it is read and written by the ring only.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
    /// Copies received bytes into `target`; the second value says that there are no more now.
    ///
    /// # Errors
    /// Those of the socket; [`io::ErrorKind::WouldBlock`] when nothing was received.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<(usize, bool)> {
        let mut inner = self.ring.inner.borrow_mut();
        let inner = &mut *inner;
        let slot = inner.slots[self.index].as_mut().expect("the port lives");
        let mut read = 0;
        while read < target.len() && !slot.spilled.is_empty() {
            let front = slot.spilled.front();
            let n = front.len().min(target.len() - read);
            target[read..read + n].copy_from_slice(&front[..n]);
            slot.spilled.advance(n);
            read += n;
        }
        while read < target.len()
            && let Some(held) = slot.held.front_mut()
        {
            let bytes = inner.buffers.bytes(held);
            let n = bytes.len().min(target.len() - read);
            target[read..read + n].copy_from_slice(&bytes[..n]);
            held.read += n;
            read += n;
            if n == bytes.len() {
                slot.held.pop_front().into_iter().for_each(|held| inner.buffers.give(held));
            }
        }
        if read < target.len() && slot.is_direct() && !slot.ended && slot.error.is_none() {
            read += slot.receive_into(&mut target[read..]);
        }
        slot.large_bytes = if target.len() < LARGE_BYTES_MIN { 0 } else { slot.large_bytes + read };
        if slot.large_bytes >= DIRECT_BYTES_MIN && slot.receiving && !slot.stopping {
            slot.stopping = true;
            inner.cancel(self.index, Kind::Receive);
        }
        let slot = inner.slot(self.index);
        match read {
            0 if target.is_empty() || slot.ended => Ok((0, true)),
            0 => Err(slot.error.map_or(io::ErrorKind::WouldBlock.into(), io::Error::from_raw_os_error)),
            _ => Ok((read, !slot.is_readable())),
        }
    }
    /// Takes over bytes from the front of `out`, `bytes_max` at most and of one slice, and sends them. Says how many.
    ///
    /// # Errors
    /// Those of the socket, of an earlier send too; [`io::ErrorKind::WouldBlock`] while a send is under way.
    pub fn write(&mut self, out: &mut Chain, bytes_max: usize) -> io::Result<usize> {
        let mut inner = self.ring.inner.borrow_mut();
        let slot = inner.slots[self.index].as_mut().expect("the port lives");
        if let Some(error) = slot.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        if !slot.sending.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = out.front().len().min(bytes_max);
        if n == out.len() {
            // The usual case: the two change places, and so do their allocations.
            std::mem::swap(out, &mut slot.sending);
        } else if n > 0 {
            slot.sending = out.split_to(n);
        }
        if n > 0 {
            inner.send(self.index, !out.is_empty());
        }
        Ok(n)
    }
    /// True when all that was taken over was sent.
    pub fn is_sent(&self) -> bool {
        let inner = self.ring.inner.borrow();
        inner.slots[self.index].as_ref().is_none_or(|slot| slot.sending.is_empty())
    }
    /// What the port is ready for. The task is woken when it becomes ready for what it says it waits for, or breaks.
    pub fn poll(&mut self, cx: &mut Context<'_>, reading: bool, writing: bool) -> Ready {
        let mut inner = self.ring.inner.borrow_mut();
        let inner = &mut *inner;
        let slot = inner.slots[self.index].as_mut().expect("the port lives");
        (slot.reading, slot.writing) = (reading, writing);
        if !slot.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            slot.waker = Some(cx.waker().clone());
        }
        if !reading {
            slot.spill(&mut inner.buffers);
        }
        let ready =
            Ready { read: slot.is_readable(), write: slot.sending.is_empty(), gone: slot.error.is_some() };
        let closed = slot.ended || ready.gone;
        if reading && !ready.read && !slot.receiving && !slot.starved && !closed {
            match slot.watching {
                None if slot.large_bytes >= DIRECT_BYTES_MIN => inner.watch(self.index, POLL_IN),
                Some(POLL_IN) if slot.large_bytes >= DIRECT_BYTES_MIN => {}
                _ => inner.receive(self.index),
            }
        } else if !reading
            && !writing
            && !slot.receiving
            && slot.watching.is_none()
            && !closed
            && !slot.ended_unread
        {
            inner.watch(self.index, 0);
        }
        ready
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut inner = self.ring.inner.borrow_mut();
        let slot = inner.slots[self.index].as_mut().expect("the port lives");
        slot.closed = true;
        slot.waker = None;
        let (receiving, sending, watching) =
            (slot.receiving, !slot.sending.is_empty(), slot.watching.is_some());
        let out = [(receiving, Kind::Receive), (sending, Kind::Send), (watching, Kind::Watch)];
        out.iter().filter(|(is_out, _)| *is_out).for_each(|(_, kind)| inner.cancel(self.index, *kind));
        inner.release(self.index);
    }
}
