//! [`SocketState`]: the ring's state of a port. It outlives the port until the kernel has released everything.

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

/// Limit of a standing receive: the receive ends with the buffer that reaches this many bytes. Used if the kernel
/// supports limits, unless the port sets a smaller limit. The next receive starts when everything is read, so a port
/// holds no more than this.
pub(crate) const RECEIVED_BYTES_MAX: usize = 128 * 1024;
/// A port whose task does not read stops receiving above this many unread bytes.
pub(crate) const UNREAD_BYTES_MAX: usize = 32 * 1024;
/// A port whose task reads stops receiving above this many unread bytes, whole buffers counted, until these bytes are
/// read. Only needed on kernels without limits.
const READER_BYTES_MAX: usize = 256 * 1024;
/// `ENOBUFS`, `ECANCELED`, `EINVAL`: the standing request ended, but the socket did not.
const NO_BUFFERS: i32 = -105;
const CANCELED: i32 = -125;
const REFUSED: i32 = -22;
/// `POLLERR` and `POLLHUP`: the connection is broken.
const POLL_ERROR: i32 = 8;
const POLL_HANG_UP: i32 = 16;
/// `EPIPE`: the peer has closed the connection.
const BROKEN_PIPE: i32 = 32;

/// The ring's state of a port.
pub(crate) struct SocketState {
    /// Closed when the slot is freed. Until then no other socket can get this descriptor number, which requests may
    /// name. `None` after the ring has failed.
    pub(crate) socket: Option<Rc<TcpStream>>,
    /// Received bytes in shared buffers, for a task that is about to read.
    pub(crate) filled_buffers: VecDeque<FilledBuffer>,
    /// Older received bytes, copied out of the shared buffers.
    pub(crate) spilled: Chain,
    /// A counter that always gets the length of `spilled`.
    pub(crate) meter: Option<Arc<AtomicU64>>,
    /// True while the standing receive is in the kernel.
    pub(crate) receiving: bool,
    /// True when the current or last standing receive has a limit.
    limited: bool,
    /// The limit of the next standing receive, in bytes.
    pub(crate) received_bytes_max: usize,
    /// True while the standing receive is being cancelled.
    pub(crate) stopping: bool,
    /// True when the receive found no free buffer. It starts again in the next turn.
    pub(crate) starved: bool,
    /// The bytes of the send in progress; empty when there is none.
    pub(crate) sending: Chain,
    /// True while the watch for a broken connection is in the kernel. The watch stays after the end of the peer's
    /// side.
    pub(crate) watching: bool,
    /// True when the watch has reported a broken connection.
    hung_up: bool,
    /// True while a request waits for bytes in the socket.
    pub(crate) awaiting: bool,
    /// True when bytes, an end or an error wait in the socket.
    arrived: bool,
    /// Consecutive bytes read into large targets.
    pub(crate) large_bytes: usize,
    pub(crate) ended: bool,
    pub(crate) error: Option<i32>,
    pub(crate) waker: Option<Waker>,
    pub(crate) reading: bool,
    pub(crate) writing: bool,
    pub(crate) closed: bool,
    /// Requests that are queued or in the kernel.
    pub(crate) requests: usize,
}

impl SocketState {
    pub(crate) fn new(socket: Rc<TcpStream>, error: Option<i32>) -> SocketState {
        SocketState {
            socket: Some(socket),
            filled_buffers: VecDeque::new(),
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
    /// Notes that the standing receive has started. From now on only the ring reads from the socket.
    pub(crate) fn receives(&mut self, limited: bool) {
        self.receiving = true;
        self.limited = limited;
        self.arrived = false;
    }
    /// True when the kernel refused the receive because of its limit. The next receive has no limit.
    pub(crate) fn is_limit_refused(&self, result: i32) -> bool {
        result == REFUSED && self.limited
    }
    /// Handles a completed receive. Returns true when the port found no free buffer and must try again in the next
    /// turn.
    pub(crate) fn received(
        &mut self,
        buffer: Option<FilledBuffer>,
        result: i32,
        more: bool,
        buffers: &mut Buffers,
    ) -> bool {
        self.receiving = more;
        self.stopping &= more;
        self.filled_buffers.extend(buffer);
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
        // When the receive has ended, wake the task to start another one, also to learn of the connection's end. A
        // port without a free buffer waits for the next turn.
        if ((self.reading || !more) && !self.starved) || self.error.is_some() {
            self.wake();
        }
        self.starved
    }
    /// Called when the next turn has started: wakes the task, so that it receives again.
    pub(crate) fn no_longer_starved(&mut self) {
        self.starved = false;
        self.wake();
    }
    /// True once when too many bytes are unread, so that receiving must stop.
    pub(crate) fn is_overfull(&mut self) -> bool {
        let unread_bytes = self.spilled.len() + self.filled_buffers.len() * BUFFER_BYTES;
        let bytes_max = if self.reading { READER_BYTES_MAX } else { UNREAD_BYTES_MAX };
        let over = self.receiving && !self.stopping && unread_bytes > bytes_max;
        self.stopping |= over;
        over
    }
    /// Handles the result of the send.
    pub(crate) fn sent(&mut self, result: i32) {
        let len = self.sending.len();
        self.sending.clear();
        if result < 0 {
            self.broken(-result);
        } else if (result as usize) < len {
            // A send must send all bytes. A shorter send counts as a broken connection.
            self.broken(BROKEN_PIPE);
        } else if self.writing {
            self.wake();
        }
    }
    /// Handles a report of the watch. Either the connection broke, or only the peer's side ended: a reading task
    /// learns of the end by reading, and other tasks do not need it.
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
    /// Handles a report that the socket has bytes, or an end or error that reading will return.
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
    /// Closes the slot to its port. Everything that the kernel may still read or name stays.
    pub(crate) fn close(&mut self, buffers: &mut Buffers) {
        self.closed = true;
        self.reading = false;
        self.waker = None;
        self.drop_unread(buffers);
    }
    /// Sets whether the task is about to read.
    pub(crate) fn attend(&mut self, reading: bool, buffers: &mut Buffers) {
        self.reading = reading;
        if !reading {
            self.spill(buffers);
        }
    }
    /// Reads the oldest unread bytes into `target`.
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
            && let Some(buffer) = self.filled_buffers.front_mut()
        {
            let bytes = buffers.bytes(buffer);
            let n = bytes.len().min(target.len() - read);
            target[read..read + n].copy_from_slice(&bytes[..n]);
            buffer.read += n;
            read += n;
            if n == bytes.len() {
                self.filled_buffers.pop_front().into_iter().for_each(|buffer| buffers.give_back(buffer));
            }
        }
        read
    }
    /// Reads directly from the socket, if it has bytes and no receive is in progress.
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
    /// Copies the bytes that are in shared buffers to `spilled`, so that other ports can use the buffers.
    pub(crate) fn spill(&mut self, buffers: &mut Buffers) {
        if self.filled_buffers.is_empty() {
            return;
        }
        while let Some(buffer) = self.filled_buffers.pop_front() {
            self.spilled.push_slice(buffers.bytes(&buffer));
            buffers.give_back(buffer);
        }
        self.measure();
    }
    fn drop_unread(&mut self, buffers: &mut Buffers) {
        self.filled_buffers.drain(..).for_each(|buffer| buffers.give_back(buffer));
        self.spilled.clear();
        self.measure();
    }
    pub(crate) fn measure(&self) {
        self.meter.iter().for_each(|meter| meter.store(self.spilled.len() as u64, Ordering::Relaxed));
    }
    /// Drops the slot except for the memory that the kernel may still read.
    pub(crate) fn leak(self) {
        std::mem::forget(self.sending);
    }
    fn wake(&mut self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
    /// True when bytes are in the socket and no receive request takes them.
    fn is_direct(&self) -> bool {
        self.arrived && !self.receiving
    }
    pub(crate) fn is_readable(&self) -> bool {
        self.is_direct()
            || !self.spilled.is_empty()
            || !self.filled_buffers.is_empty()
            || self.ended
            || self.error.is_some()
    }
    /// True when no send is in progress, or the connection is broken.
    pub(crate) fn is_sent(&self) -> bool {
        self.sending.is_empty() || self.error.is_some()
    }
    pub(crate) fn is_gone(&self) -> bool {
        self.hung_up || self.error.is_some()
    }
}
