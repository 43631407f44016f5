//! [`RingSocket`]: one socket on a ring.

use crate::Ring;
use crate::ring::RequestKind;
use crate::slot::RECEIVED_BYTES_MAX;
use std::io;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Context;
use strand_chain::Chain;

/// A read into a target of at least this length belongs to a large value.
const LARGE_BYTES_MIN: usize = 32 * 1024;
/// After this many bytes of a large value, the rest is read from the socket directly into its memory. This saves
/// the copy from the shared buffers.
const DIRECT_BYTES_MIN: usize = 256 * 1024;
/// Maximum number of bytes of one send, because the kernel counts them in 32 bits.
const SENT_BYTES_MAX: usize = 1 << 30;

/// What a port is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// [`RingSocket::read`] will return bytes, the end or an error.
    pub read: bool,
    /// [`RingSocket::write`] will take bytes or return an error.
    pub write: bool,
    /// The connection is broken.
    pub gone: bool,
}

/// One socket on a ring.
pub struct RingSocket {
    ring: Ring,
    socket: Rc<TcpStream>,
    index: usize,
}

impl RingSocket {
    pub(crate) fn new(ring: Ring, socket: Rc<TcpStream>, index: usize) -> RingSocket {
        RingSocket { ring, socket, index }
    }
    /// The socket, for its options. Only the ring reads and writes it.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
    /// Keeps `meter` equal to [`RingSocket::unread_bytes`].
    pub fn measure(&self, meter: Arc<AtomicU64>) {
        let mut inner = self.ring.inner.borrow_mut();
        let slot = inner.slot(self.index);
        slot.meter = Some(meter);
        slot.measure();
    }
    /// Unread bytes held in the port's own memory.
    pub fn unread_bytes(&self) -> usize {
        self.ring.inner.borrow_mut().slot(self.index).spilled.len()
    }
    /// Limits how far the next receives run ahead of the task, to `bytes` plus the rest of the last buffer, if the
    /// kernel supports limits. `None` restores the usual limit, which is also the upper bound.
    pub fn receive_ahead(&self, bytes: Option<usize>) {
        let bytes = bytes.unwrap_or(RECEIVED_BYTES_MAX).clamp(1, RECEIVED_BYTES_MAX);
        self.ring.inner.borrow_mut().slot(self.index).received_bytes_max = bytes;
    }
    /// Copies received bytes into `target`. The second value is true when no more bytes are ready.
    ///
    /// # Errors
    /// Errors of the socket; [`io::ErrorKind::WouldBlock`] when nothing was received.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<(usize, bool)> {
        let mut inner = self.ring.inner.borrow_mut();
        let inner = &mut *inner;
        let slot = inner.slots[self.index].as_mut().expect("the slot of an open port exists");
        let mut read = slot.read_unread(target, &mut inner.buffers);
        read += slot.read_socket(&self.socket, &mut target[read..]);
        slot.large_bytes = if target.len() < LARGE_BYTES_MIN { 0 } else { slot.large_bytes + read };
        if slot.large_bytes >= DIRECT_BYTES_MIN && slot.receiving && !slot.stopping {
            slot.stopping = true;
            inner.cancel(self.index, RequestKind::Receive);
        }
        let slot = inner.slot(self.index);
        match read {
            0 if target.is_empty() || slot.ended => Ok((0, true)),
            0 => Err(slot.error.map_or(io::ErrorKind::WouldBlock.into(), io::Error::from_raw_os_error)),
            _ => Ok((read, !slot.is_readable())),
        }
    }
    /// Takes bytes from the front of `out`, up to `bytes_max` and from one slice, and sends them. Returns their
    /// number.
    ///
    /// # Errors
    /// Fails with an error of the socket or of an earlier send; [`io::ErrorKind::WouldBlock`] while a send is in
    /// progress.
    pub fn write(&mut self, out: &mut Chain, bytes_max: usize) -> io::Result<usize> {
        let mut inner = self.ring.inner.borrow_mut();
        let slot = inner.slot(self.index);
        if let Some(error) = slot.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        if !slot.sending.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = out.front().len().min(bytes_max).min(SENT_BYTES_MAX);
        if n == out.len() {
            // Usually all bytes are taken, so swap the chains and thereby their allocations.
            std::mem::swap(out, &mut slot.sending);
        } else if n > 0 {
            slot.sending = out.split_to(n);
        }
        if n > 0 {
            inner.send(self.index, !out.is_empty());
        }
        Ok(n)
    }
    /// True when no send is in progress: all bytes that were taken are sent, or their send has failed.
    pub fn is_sent(&self) -> bool {
        self.ring.inner.borrow_mut().slot(self.index).is_sent()
    }
    /// Sets whether the task is about to read, like [`RingSocket::poll`]. Call it before the task yields. Bytes for a
    /// port that does not read are copied out of the shared buffers, and soon the port stops receiving.
    pub fn attend(&mut self, reading: bool) {
        let mut inner = self.ring.inner.borrow_mut();
        let inner = &mut *inner;
        let slot = inner.slots[self.index].as_mut().expect("the slot of an open port exists");
        slot.attend(reading, &mut inner.buffers);
        inner.stop_if_overfull(self.index);
    }
    /// What the port is ready for. Wakes the task when the port becomes ready for `reading` or `writing`, or when its
    /// connection breaks.
    pub fn poll(&mut self, cx: &mut Context<'_>, reading: bool, writing: bool) -> Ready {
        self.attend(reading);
        let mut inner = self.ring.inner.borrow_mut();
        let slot = inner.slot(self.index);
        slot.writing = writing;
        if !slot.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            slot.waker = Some(cx.waker().clone());
        }
        let ready = Ready { read: slot.is_readable(), write: slot.is_sent(), gone: slot.is_gone() };
        if reading {
            if ready.read || slot.receiving || slot.starved {
                return ready;
            }
            match slot.large_bytes >= DIRECT_BYTES_MIN {
                true if slot.awaiting => {}
                true => inner.wait_for_bytes(self.index),
                false => inner.receive(self.index),
            }
        } else if !writing && !slot.receiving && !slot.watching && !ready.gone {
            // A receive or send in progress reports a broken connection. Without one, a watch must report it, even
            // after the end of the peer's side.
            inner.watch(self.index);
        }
        ready
    }
}

impl Drop for RingSocket {
    fn drop(&mut self) {
        let mut inner = self.ring.inner.borrow_mut();
        let inner = &mut *inner;
        let slot = inner.slots[self.index].as_mut().expect("the slot of an open port exists");
        slot.close(&mut inner.buffers);
        let out = [
            (slot.receiving, RequestKind::Receive),
            (!slot.sending.is_empty(), RequestKind::Send),
            (slot.watching, RequestKind::Watch),
            (slot.awaiting, RequestKind::Await),
        ];
        out.iter().filter(|(is_out, _)| *is_out).for_each(|(_, kind)| inner.cancel(self.index, *kind));
        inner.release(self.index);
    }
}
