//! [`Stream`]: a connection's socket, driven by one of two event loops.
//!
//! *Polled*: the runtime (epoll) reports when a read or write is worthwhile, and this module reads or writes at once.
//! *Ring*: an io_uring receives and sends for many sockets with one system call; [`drive`] is its task. Encrypted
//! connections are polled even beside a ring, because their bytes must pass through rustls either way. With `io-driver
//! auto`, a connection begins polled while its worker has few connections. When the worker has more, connections of
//! RESP and pack4 join the ring before their next wait ([`Stream::join_ring`]), and stay there. A connection of HTTP
//! stays as it began.
//!
//! Measured in pairs (`make versus ARGS='--beside "--io-driver epoll"'`: two servers, alternating rounds, server
//! and client on a core each, 32 connections, 256-byte values, 1 M keys). The table has operations per server
//! CPU-second in the last of three runs, and the ratios of all three runs (7, 9 and 9 rounds; the machine was
//! shared, in the second run most of all):
//!
//! | workload | io_uring | epoll | ratios |
//! |---|---|---|---|
//! | GET, pipeline 30 | 1,537 k | 1,335 k | 1.19, 1.14, 1.14 |
//! | SET, pipeline 30 | 1,405 k | 1,345 k | 1.09, 1.10, 1.06 |
//! | 20 % SET, pipeline 30 | 1,298 k | 1,135 k | 1.20, 1.18, 1.13 |
//! | INCR, pipeline 30 | 1,126 k | 991 k | 1.25, 1.19, 1.10 |
//! | HSET, pipeline 30 | 522 k | 491 k | 1.15, 1.06, 1.05 |
//! | GET, pipeline 1 | 92 k | 91 k | 1.19, 1.08, 1.09 |
//! | SET, pipeline 1 | 127 k | 109 k | 1.08, 1.11, 1.18 |
//! | MGET of 100 | 20.2 k | 18.1 k | 1.09, 1.05, 1.11 |
//! | PING, pipeline 30 | 3,833 k | 3,309 k | 1.19, 1.18, 1.16 |
//!
//! io_uring saves the system calls of many connections. A single connection at pipeline 1 pays for the detour through
//! the ring: 25 to 26 us of CPU per request instead of 23 to 24, and 1 to 6 us more per round trip. PUBLISH to one
//! subscriber takes 14 % more. That is why `auto` polls a few connections. Values of 256 MB cost the same with both: 180
//! to 200 ms of CPU for a SET into fresh memory, 50 into used
//! memory, 80 to 110 for a GET. Both drivers read them from the socket into their own memory. (Through the ring's
//! buffers a SET took 40 to 75 ms more.) 5,000 connections that are opened and closed, and 10,000 idle connections,
//! also cost the same.

use super::tls_stream::{self, TlsStream};
use super::turns::yield_to_ready_tasks;
use rustls::{ServerConfig, ServerConnection};
use socket2::SockRef;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream as StdStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use strand_chain::Chain;
use strand_http::pipe::SessionEnd;
use strand_ring::{Ready, Ring, RingSocket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

/// Maximum number of slices of one vectored write.
const WRITE_SLICES_MAX: usize = 64;
/// Maximum number of bytes of input that are read and dropped at the end, so that unread input does not cause a reset
/// that loses the last reply.
const DISCARD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes that are received ahead of a task whose peer has not authenticated. The kernel stops after
/// the buffer that reaches this limit.
const STRANGER_BYTES_MAX: usize = 4 * 1024;

/// The flag `MSG_DONTWAIT`.
const DONT_WAIT: i32 = 0x40;

/// One accepted socket.
pub enum Stream {
    /// A socket that this module reads and writes when the runtime reports readiness.
    Polled(TcpStream),
    /// A socket for which a ring receives and sends.
    Ring(RingSocket),
    /// A polled socket with encryption.
    Tls(Box<TlsStream>),
    /// No socket, but the session's end of a pipe to the HTTP side.
    Pipe(SessionEnd),
}

/// Result of a write.
pub struct Written {
    /// Number of bytes taken from the output.
    pub bytes: usize,
    /// True when the stream takes no more bytes now.
    pub is_full: bool,
}

impl Stream {
    /// Makes a stream of a socket: encrypted if `tls` is given, otherwise driven by `ring`, if one is given.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn open(
        socket: StdStream,
        tls: Option<Arc<ServerConfig>>,
        ring: Option<&Ring>,
    ) -> io::Result<Stream> {
        if let Some(config) = tls {
            let stream = TlsStream::new(TcpStream::from_std(socket)?, config)?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        Ok(match ring {
            Some(ring) => Stream::Ring(ring.attach(socket)?),
            None => Stream::Polled(TcpStream::from_std(socket)?),
        })
    }
    /// True for a socket that the runtime polls, and that a ring could drive.
    pub fn is_polled(&self) -> bool {
        matches!(self, Stream::Polled(_))
    }
    /// Moves a polled socket to `ring`, with its descriptor. The caller then sets the meter and the receive limit again.
    /// Any other stream stays as it is.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn join_ring(self, ring: &Ring) -> io::Result<Stream> {
        match self {
            Stream::Polled(stream) => Ok(Stream::Ring(ring.attach(stream.into_std()?)?)),
            Stream::Ring(_) | Stream::Tls(_) | Stream::Pipe(_) => Ok(self),
        }
    }
    fn socket(&self) -> Option<SockRef<'_>> {
        match self {
            Stream::Polled(stream) => Some(SockRef::from(stream)),
            Stream::Ring(port) => Some(SockRef::from(port.socket())),
            Stream::Tls(stream) => Some(SockRef::from(stream.socket())),
            Stream::Pipe(_) => None,
        }
    }
    /// True for a pipe in memory: the session need not wait for the pipe, and no peer can disconnect.
    pub fn is_pipe(&self) -> bool {
        matches!(self, Stream::Pipe(_))
    }
    /// Makes the stream report the number of unread bytes it holds to `meter`.
    pub fn measure(&self, meter: Arc<AtomicU64>) {
        match self {
            Stream::Polled(_) | Stream::Tls(_) => {}
            Stream::Ring(port) => port.measure(meter),
            Stream::Pipe(end) => end.measure(meter),
        }
    }
    /// Number of bytes that the stream has received from the peer and the task has not yet read.
    pub fn unread_bytes(&self) -> usize {
        match self {
            Stream::Ring(port) => port.unread_bytes(),
            Stream::Polled(_) | Stream::Tls(_) | Stream::Pipe(_) => 0,
        }
    }
    /// Sets how many bytes a ring may receive before the task reads them: very few for a `stranger` (a peer that has
    /// not authenticated), otherwise the usual number.
    pub fn set_receive_limit(&self, stranger: bool) {
        if let Stream::Ring(port) = self {
            port.receive_ahead(stranger.then_some(STRANGER_BYTES_MAX));
        }
    }
    /// Call this before the task yields to other tasks. `reading`: the task's next step is to read.
    pub fn prepare_to_yield(&mut self, reading: bool) {
        match self {
            Stream::Polled(_) | Stream::Tls(_) => {}
            Stream::Ring(port) => port.attend(reading),
            Stream::Pipe(end) => end.end_turn(),
        }
    }
    /// Asks the kernel not to delay the next acknowledgement.
    pub fn acknowledge_quickly(&self) {
        let _ = self.socket().map(|socket| socket.set_tcp_quickack(true));
    }
    /// Reads once into `target`. The second value is true when there is no more data now.
    ///
    /// # Errors
    /// Errors of the socket. Nothing to read is not an error but `None`.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<(Option<usize>, bool)> {
        let room = target.len();
        let read = match self {
            Stream::Polled(stream) => (&*SockRef::from(&*stream)).read(target).map(|n| (n, n < room)),
            Stream::Ring(port) => port.read(target),
            Stream::Tls(stream) => stream.read(target),
            Stream::Pipe(end) => return Ok(end.read(target)),
        };
        let (n, dry) = match read {
            Ok((n, dry)) => (Some(n), dry),
            Err(e) if e.kind() == ErrorKind::WouldBlock => (None, true),
            Err(e) if e.kind() == ErrorKind::Interrupted => (None, false),
            Err(e) => return Err(e),
        };
        match self {
            Stream::Polled(stream) if dry => clear_readiness(stream, Interest::READABLE),
            Stream::Tls(stream) if dry => clear_readiness(stream.socket(), Interest::READABLE),
            _ => {}
        }
        Ok((n, dry))
    }
    /// Writes at most `bytes_max` bytes from the front of `output`.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn write(&mut self, output: &mut Chain, bytes_max: usize) -> io::Result<Written> {
        match self {
            Stream::Polled(stream) => {
                let written = write_some(stream, output, bytes_max)?;
                output.advance(written.bytes);
                if written.is_full {
                    clear_readiness(stream, Interest::WRITABLE);
                }
                Ok(written)
            }
            Stream::Ring(port) => match port.write(output, bytes_max) {
                Ok(bytes) => Ok(Written { bytes, is_full: false }),
                Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Written { bytes: 0, is_full: true }),
                Err(e) => Err(e),
            },
            Stream::Tls(stream) => {
                let written = stream.write(output, bytes_max)?;
                if !stream.is_sent() {
                    clear_readiness(stream.socket(), Interest::WRITABLE);
                }
                Ok(written)
            }
            Stream::Pipe(end) => {
                let bytes = end.write(output, bytes_max);
                Ok(Written { bytes, is_full: bytes == 0 })
            }
        }
    }
    /// True when all taken bytes have reached the kernel.
    pub fn is_sent(&self) -> bool {
        match self {
            Stream::Polled(_) | Stream::Pipe(_) => true,
            Stream::Ring(port) => port.is_sent(),
            Stream::Tls(stream) => stream.is_sent(),
        }
    }
    /// True during the TLS handshake, before which nothing is read or written.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Stream::Polled(_) | Stream::Ring(_) | Stream::Pipe(_) => false,
            Stream::Tls(stream) => stream.is_handshaking(),
        }
    }
    /// True when the stream is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }
    /// Returns whether a read and whether a write may succeed now. Otherwise the task is woken when one may succeed.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>, reading: bool, writing: bool) -> (bool, bool) {
        match self {
            Stream::Polled(stream) => (
                reading && stream.poll_read_ready(cx).is_ready(),
                writing && stream.poll_write_ready(cx).is_ready(),
            ),
            Stream::Tls(stream) => {
                let (socket, tls) = stream.parts();
                if !send_encrypted(socket, tls, cx) {
                    // The next read or write returns the error.
                    return (reading, writing);
                }
                (reading && socket.poll_read_ready(cx).is_ready(), writing && !tls.wants_write())
            }
            Stream::Ring(port) => {
                let ready = port.poll(cx, reading, writing);
                (reading && ready.read, writing && ready.write)
            }
            Stream::Pipe(end) => (reading && end.can_read(), writing && end.can_write()),
        }
    }
    /// Tells the other end of a pipe whether the session's command waits for data.
    pub fn set_blocked(&self, is_blocked: bool) {
        if let Stream::Pipe(end) = self {
            end.set_blocked(is_blocked);
        }
    }
    /// Waits until a read or a write, if wanted, is worthwhile, or until `other` is ready. When neither is wanted,
    /// waits until the socket is broken. A peer that closed only its sending side is not gone, because it still
    /// wants its replies.
    pub async fn wait<E>(
        &mut self,
        reading: bool,
        writing: bool,
        mut other: impl FnMut(&mut Context<'_>) -> Poll<E>,
    ) -> Waited<E> {
        // A read or a write would notice that the peer is gone. If neither is wanted, watch for the peer's end.
        let watching = !reading && !writing;
        let stream = match self {
            Stream::Polled(stream) => stream,
            Stream::Tls(stream) => return wait_for_tls(stream, reading, writing, other).await,
            Stream::Ring(port) => {
                return poll_fn(|cx| {
                    if let Poll::Ready(other) = other(cx) {
                        return Poll::Ready(Waited::Other(other));
                    }
                    let Ready { read, write, gone } = port.poll(cx, reading, writing);
                    Waited::of(reading && read, writing && write, watching && gone)
                })
                .await;
            }
            Stream::Pipe(end) => {
                return poll_fn(|cx| {
                    if let Poll::Ready(other) = other(cx) {
                        return Poll::Ready(Waited::Other(other));
                    }
                    Waited::of(
                        reading && end.can_read(),
                        writing && end.can_write(),
                        watching && end.is_closed(),
                    )
                })
                .await;
            }
        };
        let mut broken = pin!(broken(stream, watching));
        poll_fn(|cx| {
            if let Poll::Ready(other) = other(cx) {
                return Poll::Ready(Waited::Other(other));
            }
            let read = reading && stream.poll_read_ready(cx).is_ready();
            let write = writing && stream.poll_write_ready(cx).is_ready();
            Waited::of(read, write, broken.as_mut().poll(cx).is_ready())
        })
        .await
    }
    /// Closes the sending side, and drops a limited amount of unread input.
    pub fn hang_up(&mut self) {
        if let Stream::Tls(stream) = self {
            stream.send_close_notify();
        }
        self.socket().into_iter().for_each(hang_up);
    }
}

/// Does what [`Stream::wait`] does, for an encrypted stream. During the wait this function sends encrypted bytes that
/// wait for the socket.
async fn wait_for_tls<E>(
    stream: &mut TlsStream,
    reading: bool,
    writing: bool,
    mut other: impl FnMut(&mut Context<'_>) -> Poll<E>,
) -> Waited<E> {
    let (socket, tls) = stream.parts();
    let mut broken = pin!(broken(socket, !reading && !writing));
    poll_fn(|cx| {
        if let Poll::Ready(other) = other(cx) {
            return Poll::Ready(Waited::Other(other));
        }
        if !send_encrypted(socket, tls, cx) {
            return Poll::Ready(Waited::Gone);
        }
        let read = reading && socket.poll_read_ready(cx).is_ready();
        let write = writing && !tls.wants_write();
        Waited::of(read, write, broken.as_mut().poll(cx).is_ready())
    })
    .await
}

/// Sends encrypted bytes that wait for the socket. Returns false when the socket is broken.
fn send_encrypted(socket: &TcpStream, tls: &mut ServerConnection, cx: &mut Context<'_>) -> bool {
    while tls.wants_write() && socket.poll_write_ready(cx).is_ready() {
        match tls_stream::send(socket, tls) {
            Ok(true) => {}
            Ok(false) => clear_readiness(socket, Interest::WRITABLE),
            Err(_) => return false,
        }
    }
    true
}

/// Ready when a socket that is watched breaks.
async fn broken(socket: &TcpStream, watching: bool) {
    // If the runtime refuses to watch the socket, the socket never counts as broken.
    if !watching || socket.ready(Interest::ERROR).await.is_err() {
        std::future::pending().await
    }
}

/// The reason for the end of a wait.
pub enum Waited<E> {
    /// The socket is ready for a read or a write.
    Socket {
        /// True when the caller should read from the socket.
        read: bool,
        /// True when the caller should write to the socket.
        write: bool,
    },
    /// Both directions of the connection are closed.
    Gone,
    /// The other future has completed, with this output.
    Other(E),
}

impl<E> Waited<E> {
    fn of(read: bool, write: bool, gone: bool) -> Poll<Waited<E>> {
        match (read || write, gone) {
            (true, _) => Poll::Ready(Waited::Socket { read, write }),
            (false, true) => Poll::Ready(Waited::Gone),
            (false, false) => Poll::Pending,
        }
    }
}

/// Sends the reason to a socket that is refused, and closes the socket.
pub fn refuse(socket: &StdStream, reply: &[u8]) {
    // A short text fits into the socket's buffer, because nothing was sent before. Ignore an error, because the peer
    // may be gone.
    let _ = (&*SockRef::from(socket)).write(reply);
    hang_up(SockRef::from(socket));
}

fn hang_up(socket: SockRef<'_>) {
    let _ = socket.shutdown(Shutdown::Write);
    let mut dropped = [MaybeUninit::uninit(); 8 * 1024];
    for _ in 0..DISCARD_BYTES_MAX / dropped.len() {
        // Do not wait for bytes: a ring's socket is in blocking mode.
        match socket.recv_with_flags(&mut dropped, DONT_WAIT) {
            Ok(n) if n > 0 => {}
            _ => return,
        }
    }
}

/// One write of the first slices of `output`. For a single slice a plain write is cheaper than a vectored one.
fn write_some(stream: &TcpStream, output: &Chain, bytes_max: usize) -> io::Result<Written> {
    let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let n = output.io_slices(&mut slices, bytes_max);
    let offered: usize = slices[..n].iter().map(|s| s.len()).sum();
    let socket = SockRef::from(stream);
    let written = match &slices[..n] {
        [one] => (&*socket).write(one),
        several => (&*socket).write_vectored(several),
    };
    match written {
        Ok(bytes) => Ok(Written { bytes, is_full: bytes < offered }),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Written { bytes: 0, is_full: true }),
        Err(e) if e.kind() == ErrorKind::Interrupted => Ok(Written { bytes: 0, is_full: false }),
        Err(e) => Err(e),
    }
}

/// Clears the readiness that a short read or write has used up. Call it directly after that, before any `await`.
/// The runtime takes new events only after this task has returned to it, so no event is lost here.
fn clear_readiness(stream: &TcpStream, interest: Interest) {
    let _ = stream.try_io(interest, || Err::<(), _>(ErrorKind::WouldBlock.into()));
}

/// Submits the requests of a worker's tasks to its ring, and wakes the tasks with results, for the worker's whole
/// life. Calls `between` once a turn.
///
/// # Errors
/// When the ring fails. Its connections can no longer be served.
pub async fn drive(ring: &Ring, between: impl Fn()) -> io::Result<()> {
    // The function is deprecated because some types return a wrong descriptor. `OwnedFd` always returns its own.
    #[expect(deprecated)]
    let descriptor = AsyncFd::with_interest(ring.descriptor()?, Interest::READABLE)?;
    loop {
        let has_worked = ring.turn()?;
        between();
        if has_worked {
            // Yield twice: the woken tasks first read and prefetch, then run. After that the ring submits their replies
            // at once.
            yield_to_ready_tasks().await;
            yield_to_ready_tasks().await;
            continue;
        }
        poll_fn(|cx| {
            if ring.poll_work(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            descriptor.poll_read_ready(cx).map_ok(|mut guard| guard.clear_ready())
        })
        .await?;
    }
}
