//! [`Ring`]: submits requests and passes completions to their ports.

use crate::buffers::{BUFFER_BYTES, BUFFERS, Buffers, GROUP};
use crate::port::RingSocket;
use crate::slot::{RECEIVED_BYTES_MAX, SocketState, UNREAD_BYTES_MAX};
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{Builder, IoUring, cqueue, opcode, squeue};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};

/// Size of the submission queue. Further requests wait in `Inner::queue`.
const ENTRIES: u32 = 1024;
/// Size of the completion queue. It exceeds the number of requests that are likely to complete in one turn. The
/// kernel keeps further completions.
const COMPLETIONS: u32 = 8192;
/// Maximum number of tasks that a turn wakes because their peers have ended. So the other tasks need not wait for
/// thousands of connections that end in one moment. Each new port lets one more task be woken.
const ENDS_PER_TURN_MAX: usize = 64;
/// A turn that finds this many ends enters the kernel again, until the kernel has no more. The kernel gives about 20
/// completions at a time, in the order of arrival, so the requests of the other ports are behind the ends of the crowd.
const CROWD: usize = 16;
/// Maximum number of times that a turn enters the kernel again.
const ENTERS_PER_TURN_MAX: usize = 64;
/// `IORING_ENTER_GETEVENTS`: run pending completions.
const ENTER_GETEVENTS: u32 = 1;
/// `MSG_NOSIGNAL`: a closed peer is an error, not a signal.
const NO_SIGNAL: i32 = 0x4000;
/// `MSG_WAITALL`: a send completes when all bytes are sent.
const ALL: i32 = 0x100;
/// `MSG_MORE`: another send follows at once.
const MORE: i32 = 0x8000;
/// Offset of a receive's limit in a request (`optlen`).
const LIMIT_OFFSET: usize = 44;
/// `POLLIN`: the descriptor can be read.
const POLL_IN: u32 = 1;

/// The kind of a request. Its user data is the kind and the slot's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum RequestKind {
    /// Receives bytes into shared buffers, again and again (the standing receive).
    Receive,
    /// Sends bytes.
    Send,
    /// Cancels another request.
    Cancel,
    /// Reports when the connection breaks.
    Watch,
    /// Reports once when bytes arrive in the socket.
    Await,
}
const KINDS: [RequestKind; 5] =
    [RequestKind::Receive, RequestKind::Send, RequestKind::Cancel, RequestKind::Watch, RequestKind::Await];

fn user_data(index: usize, kind: RequestKind) -> u64 {
    (index * KINDS.len()) as u64 + kind as u64
}

/// The io_uring of one thread, and its ports.
#[derive(Clone)]
pub struct Ring {
    pub(crate) inner: Rc<RefCell<Inner>>,
}

pub(crate) struct Inner {
    ring: IoUring,
    /// The descriptor that the kernel signals for completions while the driver waits.
    event: OwnedFd,
    pub(crate) buffers: Buffers,
    pub(crate) slots: Vec<Option<SocketState>>,
    free: Vec<usize>,
    /// Requests that were not submitted yet.
    queue: VecDeque<squeue::Entry>,
    /// Ports that found no free buffer.
    starved: Vec<usize>,
    /// The tasks whose peers have ended, and that were not woken for this yet. Until then, other events of their ports
    /// do not wake them, either.
    ended: VecDeque<Waker>,
    /// The task that calls `turn`. It is woken when there is work.
    driver: Option<Waker>,
    completions: Vec<(u64, i32, u32)>,
    /// True while the kernel accepts a byte limit for standing receives.
    limits: bool,
    /// The kernel's error after which the ring failed.
    failed: Option<i32>,
}

fn builder() -> Builder {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    builder.setup_clamp().setup_cqsize(COMPLETIONS);
    builder
}

fn set_up(buffers: u16) -> io::Result<(IoUring, OwnedFd, Buffers)> {
    let ring = builder().build(ENTRIES)?;
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    ring.submitter().register_eventfd(event.as_raw_fd())?;
    let buffers = Buffers::register(&ring, buffers)?;
    Ok((ring, event, buffers))
}

/// Sets a limit on a receive request: a standing receive ends after `bytes` bytes. Linux supports this since 6.17;
/// older kernels refuse the request.
fn limit(entry: &mut squeue::Entry, bytes: usize) {
    const { assert!(LIMIT_OFFSET + size_of::<u32>() <= size_of::<squeue::Entry>()) };
    // SAFETY: the field is in the request.
    let field = unsafe { (&raw mut *entry).cast::<u8>().add(LIMIT_OFFSET) };
    // SAFETY: a request is plain numbers, and the field has the alignment of its type. (The crate has no name for it.)
    unsafe { field.cast::<u32>().write(bytes as u32) };
}

impl Ring {
    /// Checks that the kernel can set up a ring with everything [`Ring::start`] needs.
    ///
    /// # Errors
    /// Fails if the kernel forbids it or is too old (before 6.1).
    pub fn probe() -> io::Result<()> {
        let (ring, _event, buffers) = set_up(1)?;
        buffers.free_unused(&ring)
    }
    /// Sets up a ring. Only the calling thread may use it.
    ///
    /// # Errors
    /// Fails if the kernel forbids it or is too old (before 6.1).
    pub fn start() -> io::Result<Ring> {
        let (ring, event, buffers) = set_up(BUFFERS)?;
        let inner = Inner {
            ring,
            event,
            buffers,
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            starved: Vec::new(),
            ended: VecDeque::new(),
            driver: None,
            completions: Vec::new(),
            limits: true,
            failed: None,
        };
        Ok(Ring { inner: Rc::new(RefCell::new(inner)) })
    }
    /// A descriptor that becomes readable when [`Ring::turn`] has work, if [`Ring::poll_work`] was pending. Watch it
    /// edge-triggered and never read it. (Polling the ring's own descriptor does not report completions while no thread
    /// waits in the ring.)
    ///
    /// # Errors
    /// Fails if the process has no free descriptors.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.inner.borrow().event.try_clone()
    }
    /// Maximum number of unread bytes of a port. It is known after the first receive, and is smaller if the kernel
    /// supports limits (6.17).
    pub fn unread_bytes_max(&self) -> usize {
        match self.inner.borrow().limits {
            // The last buffer may start just below the limit.
            true => RECEIVED_BYTES_MAX + BUFFER_BYTES,
            false => UNREAD_BYTES_MAX + usize::from(BUFFERS) * BUFFER_BYTES,
        }
    }
    /// True unless the kernel has refused a receive with a limit. Only then [`RingSocket::receive_ahead`] has an effect.
    pub fn knows_limits(&self) -> bool {
        self.inner.borrow().limits
    }
    /// True when the ring has failed. Its ports then only return that error.
    pub fn has_failed(&self) -> bool {
        self.inner.borrow().failed.is_some()
    }
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn attach(&self, socket: TcpStream) -> io::Result<RingSocket> {
        // On a blocking descriptor a request without data waits in the kernel; on a non-blocking one it fails.
        socket.set_nonblocking(false)?;
        let socket = Rc::new(socket);
        let mut inner = self.inner.borrow_mut();
        let index = inner.free.pop().unwrap_or(inner.slots.len());
        if index == inner.slots.len() {
            inner.slots.push(None);
        }
        // Ports end at least as fast as new ones come.
        inner.ended.pop_front().into_iter().for_each(Waker::wake);
        let error = inner.failed;
        inner.slots[index] = Some(SocketState::new(socket.clone(), error));
        drop(inner);
        Ok(RingSocket::new(self.clone(), socket, index))
    }
    /// Submits queued requests and wakes the tasks of ports with completions. Returns true when there was work or
    /// more is left: let the tasks run, then call again. Otherwise wait for the descriptor or for
    /// [`Ring::poll_work`].
    ///
    /// # Errors
    /// Errors of the kernel, and panics. The ring has then failed, and the connections of its ports are closed.
    pub fn turn(&self) -> io::Result<bool> {
        // One task drives the ring. If a panic ended only this task, all other tasks would wait forever.
        let turned = catch_unwind(AssertUnwindSafe(|| self.inner.borrow_mut().turn()));
        turned
            .unwrap_or_else(|_| Err(io::Error::other("a turn of the io_uring ring panicked")))
            .inspect_err(|e| self.fail(e))
    }
    /// Fails the ring. Its ports return `error` from now on, and their connections are closed.
    pub fn fail(&self, error: &io::Error) {
        self.inner.borrow_mut().fail(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    }
    /// Ready when there is work for [`Ring::turn`]. Otherwise the next request wakes the task, and the next completion
    /// makes the descriptor readable.
    pub fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.borrow_mut();
        if !inner.queue.is_empty()
            || !inner.starved.is_empty()
            || !inner.ended.is_empty()
            || inner.completes_soon()
        {
            return Poll::Ready(());
        }
        inner.driver = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Inner {
    fn turn(&mut self) -> io::Result<bool> {
        if let Some(error) = self.failed {
            return Err(io::Error::from_raw_os_error(error));
        }
        // The completions of this turn need no signal. A signal would only make the next wait return at once.
        self.ring.completion().disable_eventfd();
        if !self.starved.is_empty() {
            // Copy unread bytes out of the shared buffers, so that the ports without a buffer can have those buffers.
            self.slots.iter_mut().flatten().for_each(|slot| slot.spill(&mut self.buffers));
        }
        for index in std::mem::take(&mut self.starved) {
            if let Some(slot) = &mut self.slots[index] {
                slot.no_longer_starved();
            }
        }
        let mut completed = self.enter_and_complete()?;
        for _ in 0..ENTERS_PER_TURN_MAX {
            if self.ended.len() < CROWD || !self.kernel_has_more() {
                break;
            }
            completed |= self.enter_and_complete()?;
        }
        let ends = self.ended.len().min(ENDS_PER_TURN_MAX);
        self.ended.drain(..ends).for_each(Waker::wake);
        Ok(completed
            || ends > 0
            || !self.queue.is_empty()
            || !self.ring.submission().is_empty()
            || self.kernel_has_more())
    }
    /// Enters the kernel, and handles the completions. True when there were completions.
    fn enter_and_complete(&mut self) -> io::Result<bool> {
        self.enter()?;
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completion().map(|c| (c.user_data(), c.result(), c.flags())));
        let completed = !completions.is_empty();
        for (data, result, flags) in completions.drain(..) {
            let (index, kind) = (data as usize / KINDS.len(), KINDS[data as usize % KINDS.len()]);
            self.complete(index, kind, result, flags);
        }
        self.completions = completions;
        Ok(completed)
    }
    /// Lets the kernel signal the descriptor from now on. True when a completion came before that.
    fn completes_soon(&mut self) -> bool {
        self.ring.completion().enable_eventfd();
        // The kernel first notes a completion and then looks whether to signal. So look only after the line above is
        // visible to the kernel.
        fence(Ordering::SeqCst);
        !self.ring.completion().is_empty() || self.kernel_has_more()
    }
    /// True when the kernel needs to be entered.
    fn kernel_has_more(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }
    fn enter(&mut self) -> io::Result<()> {
        loop {
            let mut submission = self.ring.submission();
            while !submission.is_full()
                && let Some(entry) = self.queue.pop_front()
            {
                // SAFETY: the only requests with an address are sends, whose bytes the slot keeps until the completion:
                // it is freed only when no request is out, and what it sends is leaked when the ring ends before that.
                let pushed = unsafe { submission.push(&entry) };
                pushed.expect("there is room");
            }
            let queued = submission.len() as u32;
            drop(submission);
            if queued == 0 && !self.kernel_has_more() {
                return Ok(());
            }
            // SAFETY: no argument is passed, and every queued request keeps the conditions of `push`.
            let entered = unsafe { self.ring.submitter().enter::<()>(queued, 0, ENTER_GETEVENTS, None) };
            match entered {
                Ok(_) if self.queue.is_empty() => return Ok(()),
                Ok(taken) if taken > 0 => {}
                Ok(_) => return Ok(()),
                // The call was interrupted by a signal, or the kernel lacks memory or room for completions. Requests
                // that the kernel did not take stay queued.
                Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => return Ok(()),
                    _ => return Err(e),
                },
            }
        }
    }
    fn complete(&mut self, index: usize, kind: RequestKind, result: i32, flags: u32) {
        let Inner { slots, buffers, starved, limits, ended, .. } = self;
        let slot = slots[index].as_mut().expect("a slot with requests exists");
        let more = cqueue::more(flags);
        match kind {
            RequestKind::Receive => {
                *limits &= !slot.is_limit_refused(result);
                if result == 0 {
                    ended.extend(slot.waker.take());
                }
                let buffer =
                    cqueue::buffer_select(flags).map(|id| buffers.filled(id, result.max(0) as usize));
                if slot.received(buffer, result, more, buffers) {
                    starved.push(index);
                }
                self.stop_if_overfull(index);
            }
            RequestKind::Send => slot.sent(result),
            RequestKind::Watch => {
                slot.watched(result, more);
                if slot.closed && more {
                    // The watch reported something just before it was cancelled.
                    self.cancel(index, RequestKind::Watch);
                }
            }
            RequestKind::Await => slot.awaited(result),
            // The request that was to be cancelled ended first, or it cannot be cancelled now. An open port tries
            // again if needed. The connection of a closed port is shut down, because its requests did not end.
            RequestKind::Cancel if result < 0 && slot.requests > 1 => match &slot.socket {
                Some(socket) if slot.closed => drop(socket.shutdown(Shutdown::Both)),
                _ => slot.stopping = false,
            },
            RequestKind::Cancel => {}
        }
        if !more {
            self.slots[index].as_mut().expect("a slot exists until it is freed").requests -= 1;
        }
        self.release(index);
    }
    /// Frees the slot and its socket when its port is gone and the kernel has released it.
    pub(crate) fn release(&mut self, index: usize) {
        let slot = self.slots[index].as_mut().expect("a slot exists until it is freed");
        if slot.closed && slot.requests == 0 {
            self.slots[index] = None;
            self.free.push(index);
        }
    }
    /// Queues a receive for the port's socket, with a limit if the kernel supports limits.
    pub(crate) fn receive(&mut self, index: usize) {
        let fd = self.fd(index);
        let limits = self.limits;
        self.slot(index).receives(limits);
        let bytes_max = self.slot(index).received_bytes_max;
        let mut entry = opcode::RecvMulti::new(fd, GROUP).build();
        if limits {
            limit(&mut entry, bytes_max);
        }
        self.push(index, RequestKind::Receive, entry);
    }
    /// Queues a send of the first slice of `sending`. The slot keeps the bytes until the completion.
    pub(crate) fn send(&mut self, index: usize, more: bool) {
        let fd = self.fd(index);
        // The bytes lie in a blob that does not move with the chain, and a chain's bytes are never changed.
        let front = self.slot(index).sending.front();
        let flags = NO_SIGNAL | ALL | if more { MORE } else { 0 };
        let entry = opcode::Send::new(fd, front.as_ptr(), front.len() as u32).flags(flags).build();
        self.push(index, RequestKind::Send, entry);
    }
    /// Queues the watch, which reports when the connection breaks. (A receive in progress reports it too.)
    pub(crate) fn watch(&mut self, index: usize) {
        let fd = self.fd(index);
        self.slot(index).watching = true;
        // The kernel always reports errors, hang-ups and the end of the peer's side, so no event is named.
        self.push(index, RequestKind::Watch, opcode::PollAdd::new(fd, 0).multi(true).build());
    }
    /// Queues one report when bytes are in the socket.
    pub(crate) fn wait_for_bytes(&mut self, index: usize) {
        let fd = self.fd(index);
        self.slot(index).awaiting = true;
        self.push(index, RequestKind::Await, opcode::PollAdd::new(fd, POLL_IN).build());
    }
    /// Cancels the standing receive when the port has too many unread bytes.
    pub(crate) fn stop_if_overfull(&mut self, index: usize) {
        if self.slot(index).is_overfull() {
            self.cancel(index, RequestKind::Receive);
        }
    }
    /// Cancels the port's request of this kind, if there is one.
    pub(crate) fn cancel(&mut self, index: usize, kind: RequestKind) {
        let of = CancelBuilder::user_data(user_data(index, kind));
        self.push(index, RequestKind::Cancel, opcode::AsyncCancel2::new(of).build());
    }
    pub(crate) fn slot(&mut self, index: usize) -> &mut SocketState {
        self.slots[index].as_mut().expect("the slot of an open port exists")
    }
    /// A slot keeps its socket open while a request names it. A slot without a socket belongs to a failed ring,
    /// which submits nothing.
    fn fd(&mut self, index: usize) -> Fd {
        Fd(self.slot(index).socket.as_ref().map_or(-1, |socket| socket.as_raw_fd()))
    }
    fn push(&mut self, index: usize, kind: RequestKind, entry: squeue::Entry) {
        if self.failed.is_some() {
            return;
        }
        self.slot(index).requests += 1;
        self.queue.push_back(entry.user_data(user_data(index, kind)));
        self.driver.take().into_iter().for_each(Waker::wake);
    }
    /// Closes all connections, because no completions will arrive. Slots with requests in the kernel are never
    /// freed.
    fn fail(&mut self, error: i32) {
        self.failed = Some(error);
        self.queue.clear();
        self.ended.drain(..).for_each(Waker::wake);
        for slot in self.slots.iter_mut().flatten() {
            // Requests in the kernel keep the connection, but not the descriptor. Requests that were not submitted
            // are dropped. Shutting down may fail when the peer is gone, which is fine.
            slot.socket.take().into_iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
            slot.broken(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Leak the slots, because the kernel may still read the bytes of a send.
        self.slots.drain(..).flatten().for_each(SocketState::leak);
    }
}

#[cfg(test)]
mod tests;
