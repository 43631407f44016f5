//! [`SocketState`]: what the ring keeps for a port, and beyond it until the kernel is done.

use crate::buffers::{BUFFER_BYTES, Buffers, FilledBuffer};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::collections::VecDeque;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use strand_chain::Chain;

/// A standing receive ends with the buffer that brings it to so many bytes, where the kernel knows limits, unless the port is
/// told less. The next is asked for when all was read, so a port holds no more.
pub(crate) const RECEIVED_BYTES_MAX: usize = 128 * 1024;
/// Unread bytes of a port whose task does not read; with more of them the receiving stops.
pub(crate) const UNREAD_BYTES_MAX: usize = 32 * 1024;
/// Unread bytes, whole buffers counted, of a port whose task reads; with more of them the receiving stops until it has:
/// where the kernel knows no limits.
const READER_BYTES_MAX: usize = 256 * 1024;
/// `ENOBUFS`, `ECANCELED`, `EINVAL`: the standing request ended, not the socket.
const NO_BUFFERS: i32 = -105;
const CANCELED: i32 = -125;
const REFUSED: i32 = -22;
/// `POLLERR`, `POLLHUP`.
const POLL_ERROR: i32 = 8;
const POLL_HANG_UP: i32 = 16;
/// `EPIPE`.
const BROKEN_PIPE: i32 = 32;

/// See the module's description.
pub(crate) struct SocketState {
    /// Closed when the slot is freed: until then no other socket gets its number, which requests may name. Given up when
    /// the ring fails.
    pub(crate) socket: Option<Rc<TcpStream>>,
    /// Received and still in the kernel's buffers: for a task that is about to read.
    pub(crate) held: VecDeque<FilledBuffer>,
    /// Received before that, and copied out.
    pub(crate) spilled: Chain,
    /// Where its length is told.
    pub(crate) meter: Option<Arc<AtomicU64>>,
    /// The standing receive is out.
    pub(crate) receiving: bool,
    /// It has, or the last one had, a limit.
    limited: bool,
    /// That limit, in bytes.
    pub(crate) received_bytes_max: usize,
    /// It is being cancelled.
    pub(crate) stopping: bool,
    /// It found no buffer; it is asked again in the next turn.
    pub(crate) starved: bool,
    /// What the send that is out reads; empty when there is none.
    pub(crate) sending: Chain,
    /// The standing request that tells when the connection breaks is out. Once asked for it stays: the end of the peer's
    /// side does not end it.
    pub(crate) watching: bool,
    /// It has told that.
    hung_up: bool,
    /// A request that tells when bytes come into the socket is out.
    pub(crate) awaiting: bool,
    /// It has told that, or that reading will tell an error.
    arrived: bool,
    /// Bytes read into large targets, one after the other.
    pub(crate) large_bytes: usize,
    pub(crate) ended: bool,
    pub(crate) error: Option<i32>,
    pub(crate) waker: Option<Waker>,
    pub(crate) reading: bool,
    pub(crate) writing: bool,
    pub(crate) closed: bool,
    /// Requests that the kernel has or will have.
    pub(crate) requests: usize,
}

impl SocketState {
    pub(crate) fn new(socket: Rc<TcpStream>, error: Option<i32>) -> SocketState {
        SocketState {
            socket: Some(socket),
            held: VecDeque::new(),
            spilled: Chain::new(),
            meter: None,
            receiving: false,
            limited: false,
            received_bytes_max: RECEIVED_BYTES_MAX,
            stopping: false,
            starved: false,
            sending: Chain::new(),
            watching: false,
            hung_up: false,
            awaiting: false,
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
    pub(crate) fn receives(&mut self, limited: bool) {
        self.receiving = true;
        self.limited = limited;
        self.arrived = false;
    }
    /// The kernel refuses a receive with a limit: to be asked for without one.
    pub(crate) fn is_limit_refused(&self, result: i32) -> bool {
        result == REFUSED && self.limited
    }
    /// Something was received. True when the port found no buffer and is to be asked again in the next turn.
    pub(crate) fn received(
        &mut self,
        held: Option<FilledBuffer>,
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
            result if self.is_limit_refused(result) => {}
            error => self.error = Some(-error),
        }
        if self.closed {
            self.drop_unread(buffers);
        } else if !self.reading {
            self.spill(buffers);
        }
        // Without more to come the task asks again, if only to be told of the connection's end; one that found no buffer
        // in the next turn.
        if ((self.reading || !more) && !self.starved) || self.error.is_some() {
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
        let unread_bytes = self.spilled.len() + self.held.len() * BUFFER_BYTES;
        let bytes_max = if self.reading { READER_BYTES_MAX } else { UNREAD_BYTES_MAX };
        let over = self.receiving && !self.stopping && unread_bytes > bytes_max;
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
    /// The watch has something to tell: the connection broke, or the peer only ended its side, which is no news to those
    /// who read and nothing to the others.
    pub(crate) fn watched(&mut self, result: i32, more: bool) {
        self.watching = more;
        match result {
            CANCELED => {}
            ..0 => self.broken(-result),
            events => self.hung_up |= events & (POLL_ERROR | POLL_HANG_UP) != 0,
        }
        if self.hung_up || !more {
            self.wake();
        }
    }
    /// Bytes have come into the socket, or an end or error that reading tells after them.
    pub(crate) fn awaited(&mut self, result: i32) {
        self.awaiting = false;
        match result {
            CANCELED => {}
            ..0 => self.broken(-result),
            _ => self.arrived = true,
        }
        if self.reading {
            self.wake();
        }
    }
    pub(crate) fn broken(&mut self, error: i32) {
        self.error.get_or_insert(error);
        self.wake();
    }
    /// Nobody may use it any more, but what the kernel may still read or name stays.
    pub(crate) fn close(&mut self, buffers: &mut Buffers) {
        self.closed = true;
        self.reading = false;
        self.waker = None;
        self.drop_unread(buffers);
    }
    /// The task says that it reads, or that it does not.
    pub(crate) fn attend(&mut self, reading: bool, buffers: &mut Buffers) {
        self.reading = reading;
        if !reading {
            self.spill(buffers);
        }
    }
    /// Reads what came before all else into `target`.
    pub(crate) fn read_unread(&mut self, target: &mut [u8], buffers: &mut Buffers) -> usize {
        let mut read = 0;
        if !self.spilled.is_empty() {
            while read < target.len() && !self.spilled.is_empty() {
                let front = self.spilled.front();
                let n = front.len().min(target.len() - read);
                target[read..read + n].copy_from_slice(&front[..n]);
                self.spilled.advance(n);
                read += n;
            }
            self.measure();
        }
        while read < target.len()
            && let Some(held) = self.held.front_mut()
        {
            let bytes = buffers.bytes(held);
            let n = bytes.len().min(target.len() - read);
            target[read..read + n].copy_from_slice(&bytes[..n]);
            held.read += n;
            read += n;
            if n == bytes.len() {
                self.held.pop_front().into_iter().for_each(|held| buffers.give(held));
            }
        }
        read
    }
    /// Reads from the socket itself, when there is something and nobody else does.
    pub(crate) fn read_socket(&mut self, socket: &TcpStream, target: &mut [u8]) -> usize {
        if target.is_empty() || !self.is_direct() || self.ended || self.error.is_some() {
            return 0;
        }
        match rustix::net::recv(socket, &mut *target, RecvFlags::DONTWAIT) {
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
    pub(crate) fn spill(&mut self, buffers: &mut Buffers) {
        if self.held.is_empty() {
            return;
        }
        while let Some(held) = self.held.pop_front() {
            self.spilled.push_slice(buffers.bytes(&held));
            buffers.give(held);
        }
        self.measure();
    }
    fn drop_unread(&mut self, buffers: &mut Buffers) {
        self.held.drain(..).for_each(|held| buffers.give(held));
        self.spilled.clear();
        self.measure();
    }
    pub(crate) fn measure(&self) {
        self.meter.iter().for_each(|meter| meter.store(self.spilled.len() as u64, Ordering::Relaxed));
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
    pub(crate) fn is_readable(&self) -> bool {
        self.is_direct()
            || !self.spilled.is_empty()
            || !self.held.is_empty()
            || self.ended
            || self.error.is_some()
    }
    /// No send is out whose end is worth waiting for.
    pub(crate) fn is_sent(&self) -> bool {
        self.sending.is_empty() || self.error.is_some()
    }
    pub(crate) fn is_gone(&self) -> bool {
        self.hung_up || self.error.is_some()
    }
}
