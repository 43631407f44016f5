//! One connection: moves bytes between a socket and its [`Session`], and waits when there is nothing to move.
//!
//! [`serve`] is the task. It decides nothing about commands: it reads into the session's target, calls
//! [`Session::run`], writes the output, and follows the returned [`Turn`]. The socket is a [`Stream`]. The socket is
//! read and written directly when the runtime reports readiness, or through a ring (io_uring). A short read or write
//! means that the kernel's buffer is empty or full, so readiness is cleared at once. A request therefore costs one read
//! and one write, and no system call that only finds nothing to do.

use super::door::Arrival;
use super::socket::{Stream, Waited, refuse};
use super::tls_stream::TlsStreamError;
use super::turns::yield_to_ready_tasks;
use super::wake::WakeCell;
use super::worker::Context;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use strand_engine::{Session, Turn};
use strand_ring::Ring;
use tokio::time::Sleep;

/// Maximum number of bytes of one read or write. After moving this many bytes the task yields to the worker's other
/// connections. Fresh memory costs one page fault for each 4 KiB, and on loopback a write also runs the receiver's
/// side of TCP. While 256 MB went out, other connections waited up to 18 ms without a limit, and 0.6 ms with 256 KiB.
/// While 256 MB came in, p99.9 was 0.5 to 0.9 ms with 64 KiB, and 0.16 to 0.33 ms with 32 KiB. The transfers took
/// equally long.
const MOVED_BYTES_MAX: usize = 32 * 1024;
/// Number of turns (of reading, running or writing) after which the task yields to the worker's other connections.
const TURNS_MAX: u32 = 16;
/// Number of bytes of one write while closing. The end of a write shows that the peer still reads, so only a peer
/// below 1.6 kB/s counts as stuck.
const CLOSING_BYTES_MAX: usize = 8 * 1024;
/// Time that a closing connection waits for its peer to take some of the last replies, in microseconds.
const LINGER_US: u64 = 5_000_000;
/// A client that closed its sending side may still read, so its requests are answered. But a read-only lane job that
/// takes longer than this after the close is given up: most of these clients have closed the whole socket, and TCP does
/// not show the difference.
const HALF_CLOSED_US_MAX: u64 = 2_000_000;
/// Time limit of a TLS handshake, in microseconds.
pub const HANDSHAKE_US_MAX: u64 = 10_000_000;

/// Reason for the end of a connection, logged at debug level.
pub type ConnectionEnd = io::Result<&'static str>;

/// Serves one connection until it closes.
///
/// # Errors
/// Errors of the socket.
pub async fn serve(arrival: Arrival, wake: Arc<WakeCell>, context: &Context) -> ConnectionEnd {
    let Arrival { socket, peer, tls, .. } = arrival;
    let opened = Session::open(&context.engine, peer, wake.clone(), context.seed(), context.clock.now());
    let mut session = match opened {
        Ok(session) => session,
        Err(refusal) => {
            // As in redis-server, a client of TLS gets no reason, because it could not read the reason before the
            // handshake.
            if tls.is_none() {
                refuse(&socket, refusal.front());
            }
            return Ok("refused");
        }
    };
    session.await_login(context.clock.now());
    let stream = Stream::open(socket, tls, context.ring_in_use())?;
    drive(stream, session, wake, context).await
}

/// Moves bytes between `stream` and `session` until one of them ends.
///
/// # Errors
/// Errors of the stream.
pub async fn drive(
    stream: Stream,
    session: Session,
    wake: Arc<WakeCell>,
    context: &Context,
) -> ConnectionEnd {
    let handshake_until_us = context.clock.now().mono_us + HANDSHAKE_US_MAX;
    let handshake_until_us = stream.is_tls().then_some(handshake_until_us);
    stream.measure(session.unread_meter());
    let stranger = session.must_log_in();
    stream.set_receive_limit(stranger);
    let mut connection = Connection {
        stream,
        session,
        wake,
        context,
        state: State::Reading,
        handshake_until_us,
        is_unauthenticated: stranger,
        awaits_first_byte: true,
        may_read: true,
        stuck_since_us: 0,
        may_write: true,
        has_peer_closed: false,
        abandon_job_at_us: None,
        timer: None,
        turns: 0,
        moved_bytes: 0,
    };
    loop {
        let end = match connection.run().await {
            Ok(Left::ForRing(ring)) => {
                connection = connection.join_ring(ring)?;
                continue;
            }
            Ok(Left::Finished(why)) => (Ok(why), true),
            Ok(Left::Ended(why)) => (Ok(why), false),
            Err(error) => (Err(error), false),
        };
        return connection.close(end).await;
    }
}

/// Why [`Connection::run`] returns.
enum Left<'c> {
    /// The connection moves to this ring and goes on.
    ForRing(&'c Ring),
    /// The connection closes, and the peer may still read.
    Finished(&'static str),
    /// The connection closes.
    Ended(&'static str),
}

/// What the connection does after the session's last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The session needs more bytes.
    Reading,
    /// The session received bytes.
    HasInput,
    /// The session has more to run.
    Running,
    /// The session continues when all its output has been written.
    Draining,
    /// The session waits for a wake-up: for a lane job, a long lock, subscribers or the disk.
    AwaitsWake,
    /// The command waits for data, until this monotonic time in microseconds, if any.
    Blocked(Option<u64>),
    /// The session sleeps until this monotonic time in microseconds.
    Sleeping(u64),
    /// The connection closes when its output has drained, or at this monotonic time in microseconds.
    Closing(u64),
    /// The connection closes now, for this reason.
    Aborted(&'static str),
}

struct Connection<'c> {
    stream: Stream,
    session: Session,
    wake: Arc<WakeCell>,
    context: &'c Context,
    state: State,
    /// Deadline of the TLS handshake. `None` when the handshake is done.
    handshake_until_us: Option<u64>,
    /// True while the client must authenticate and has not done so.
    is_unauthenticated: bool,
    /// True when no bytes have arrived yet.
    awaits_first_byte: bool,
    /// True when the socket may have bytes, so a read is worthwhile.
    may_read: bool,
    /// True when the socket may take bytes, so a write is worthwhile.
    may_write: bool,
    /// Monotonic time since which output waits for the socket, in microseconds; 0 when no output waits.
    stuck_since_us: u64,
    /// True when the peer has closed its sending side. The peer's earlier requests are still answered.
    has_peer_closed: bool,
    /// Monotonic time at which a lane job is abandoned, in microseconds, because the client has closed its sending
    /// side.
    abandon_job_at_us: Option<u64>,
    /// Timer for the next deadline of the state. Armed only while there is a deadline.
    timer: Option<Pin<Box<Sleep>>>,
    /// Turns since the task last yielded.
    turns: u32,
    /// Bytes read and written since the task last yielded.
    moved_bytes: usize,
}

/// The end of a wait, except events of the socket.
enum Event {
    /// The session was woken.
    Woken,
    /// A deadline of the session has passed.
    Time,
}

impl<'c> Connection<'c> {
    /// Serves the session until the connection ends or moves to a ring.
    async fn run(&mut self) -> io::Result<Left<'c>> {
        loop {
            self.flush()?;
            // A connection that closes its socket waits until all output is sent.
            let stops = self.context.stopping() && !self.stream.is_pipe();
            let closes = matches!(self.state, State::Closing(_)) || self.has_peer_closed || stops;
            let drained = self.session.output().is_empty() && (!closes || self.stream.is_sent());
            match self.state {
                State::HasInput | State::Running => self.run_turn(),
                State::Draining if self.session.output_drained() => self.run_turn(),
                State::Closing(_) if drained => return Ok(Left::Finished("closed")),
                State::Aborted(why) => return Ok(Left::Ended(why)),
                // As in redis-server, a client that hangs up stops waiting.
                State::Reading | State::Blocked(_) if self.has_peer_closed && drained => {
                    return Ok(Left::Finished("peer closed"));
                }
                State::Reading | State::Blocked(_) if drained && stops => {
                    return Ok(Left::Finished("stopped"));
                }
                // The command has not begun. As in redis-server, a paused command of a client that hangs up never begins.
                State::Sleeping(_)
                    if drained && (stops || self.has_peer_closed) && self.session.waits_for_pause() =>
                {
                    return Ok(Left::Finished(if stops { "stopped" } else { "peer closed" }));
                }
                _ if self.may_read && self.wants_read() => {
                    self.fill()?;
                    if self.state == State::HasInput && !self.may_read && !self.stream.is_pipe() {
                        // Yield, so that the prefetched memory arrives meanwhile. At pipeline 1, 32 connections, 1 M
                        // keys this gives 3 to 8 % more operations per CPU-second.
                        let prefetches = !self.context.is_busy() && self.session.prefetch();
                        // A request without a key does not overtake those that have yielded: beside a SET of another
                        // connection that had arrived before, 97 % of DBSIZEs ran first.
                        if prefetches || self.context.is_prefetching() {
                            let _prefetching = self.context.prefetching();
                            yield_to_ready_tasks().await;
                        }
                    }
                }
                _ if !drained && self.may_write && !self.session.output().is_empty() => {}
                _ => {
                    if self.stream.is_polled()
                        && let Some(ring) = self.context.ring_in_use()
                    {
                        return Ok(Left::ForRing(ring));
                    }
                    (self.turns, self.moved_bytes) = (0, 0);
                    match self.wait(drained).await {
                        Waited::Socket { read, write } => {
                            self.may_read |= read;
                            self.may_write |= write;
                        }
                        Waited::Gone => return Ok(Left::Ended("peer gone")),
                        Waited::Other(Event::Woken) => self.handle_wake(),
                        Waited::Other(Event::Time) => self.handle_deadline(),
                    }
                    continue;
                }
            }
            self.turns += 1;
            if self.turns >= TURNS_MAX || self.moved_bytes >= MOVED_BYTES_MAX {
                if self.moved_bytes < MOVED_BYTES_MAX {
                    self.flush()?;
                }
                (self.turns, self.moved_bytes) = (0, 0);
                self.stream.prepare_to_yield(self.state == State::HasInput || self.wants_read());
                let _busy = self.context.busy();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Moves the polled stream to `ring`.
    fn join_ring(self, ring: &Ring) -> io::Result<Self> {
        let stream = self.stream.join_ring(ring)?;
        stream.measure(self.session.unread_meter());
        stream.set_receive_limit(self.is_unauthenticated);
        Ok(Connection { stream, may_read: true, may_write: true, ..self })
    }

    /// Lets the session run once.
    fn run_turn(&mut self) {
        let now = self.context.clock.now();
        self.state = match self.session.run(now) {
            Turn::Read => State::Reading,
            Turn::Again => {
                // Count this turn as the last one, so that the task writes the replies and yields to the other
                // connections.
                self.turns = TURNS_MAX;
                State::Running
            }
            Turn::Flush => State::Draining,
            Turn::Lane(job) => {
                self.context.lanes.submit(job, self.wake.clone());
                State::AwaitsWake
            }
            Turn::AwaitWake => State::AwaitsWake,
            Turn::Blocked { until_mono_us } => State::Blocked(until_mono_us),
            Turn::Sleep { until_mono_us } => State::Sleeping(until_mono_us),
            Turn::Close => match self.state {
                State::Closing(until) => State::Closing(until),
                _ => State::Closing(now.mono_us + LINGER_US),
            },
            Turn::Abort => State::Aborted(self.session.abort_reason()),
        };
        if self.is_unauthenticated && !self.session.must_log_in() {
            self.is_unauthenticated = false;
            self.stream.set_receive_limit(false);
        }
    }

    /// True while the socket should be read. While it is false, bytes wait in the socket's buffer, and a peer that
    /// fills the buffer must wait.
    fn wants_read(&self) -> bool {
        match self.state {
            _ if self.has_peer_closed => false,
            State::Reading => true,
            State::Draining | State::AwaitsWake | State::Blocked(_) | State::Sleeping(_) => {
                self.session.wants_read()
            }
            State::HasInput | State::Running | State::Closing(_) | State::Aborted(_) => false,
        }
    }

    /// Reads once into the session.
    fn fill(&mut self) -> io::Result<()> {
        let target = self.session.read_target();
        let room = target.len().min(MOVED_BYTES_MAX);
        let read = self.stream.read(&mut target[..room]);
        if self.awaits_first_byte
            && let Ok((Some(n), _)) = read
        {
            self.awaits_first_byte = false;
            if !self.stream.is_tls() && is_client_hello(&target[..n]) {
                self.session.received(0);
                return self.refuse_tls();
            }
        }
        if read.as_ref().is_err_and(TlsStreamError::is) {
            // Send the TLS alert that tells the peer the reason.
            self.stream.hang_up();
        }
        self.session.received(read.as_ref().map_or(0, |(n, _)| n.unwrap_or(0)));
        let (n, dry) = read?;
        self.may_read = !dry;
        match n {
            Some(0) => self.has_peer_closed = true,
            Some(n) => {
                self.moved_bytes += n;
                if self.state == State::Reading {
                    self.state = State::HasInput;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Refuses a peer that speaks TLS to this port without TLS. Its bytes have no meaning here.
    fn refuse_tls(&mut self) -> io::Result<()> {
        if self.context.may_warn() {
            let peer = self.session.peer();
            tracing::warn!(
                "{} sends TLS to {}, which is not a TLS port: see tls-port",
                peer.addr,
                peer.laddr
            );
        }
        self.session.output().push_slice(b"-ERR Protocol error: this port does not accept TLS\r\n");
        self.state = State::Closing(self.context.clock.now().mono_us + LINGER_US);
        Ok(())
    }

    /// Writes as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        if !self.may_write || self.session.output().is_empty() {
            return Ok(());
        }
        let bytes_max = match self.state {
            State::Closing(_) => CLOSING_BYTES_MAX,
            _ => MOVED_BYTES_MAX,
        };
        let written = self.stream.write(self.session.output(), bytes_max)?;
        self.session.output_written();
        self.moved_bytes += written.bytes;
        self.may_write = !written.is_full;
        if written.is_full || self.stuck_since_us > 0 {
            self.measure_stuck_output();
        }
        if written.bytes > 0
            && let State::Closing(until) = &mut self.state
        {
            *until = self.context.clock.now().mono_us + LINGER_US;
        }
        Ok(())
    }

    /// Measures how long output waits for the socket. Reports this time to the engine when all output is written.
    #[cold]
    fn measure_stuck_output(&mut self) {
        let now_us = self.context.clock.now().mono_us;
        match (self.session.output().is_empty(), self.stuck_since_us) {
            (false, 0) => self.stuck_since_us = now_us,
            (true, since_us) if since_us > 0 => {
                self.context.engine.flushed(self.session.id(), now_us.saturating_sub(since_us));
                self.stuck_since_us = 0;
            }
            _ => {}
        }
    }

    /// Waits for any event that lets this connection continue.
    async fn wait(&mut self, drained: bool) -> Waited<Event> {
        if self.session.in_request() {
            // A part of a frame has arrived. A peer with Nagle's algorithm sends the rest only after an
            // acknowledgement, so the kernel must not delay the acknowledgement. The kernel forgets this option, so set
            // the option at each of these waits.
            self.stream.acknowledge_quickly();
        }
        self.arm_timer();
        self.stream.set_blocked(matches!(self.state, State::Blocked(_)));
        let reading = self.wants_read();
        let Connection { stream, wake, timer, .. } = self;
        let other = |cx: &mut std::task::Context<'_>| {
            if wake.poll(cx).is_ready() {
                return Poll::Ready(Event::Woken);
            }
            match timer {
                Some(timer) => timer.as_mut().poll(cx).map(|()| Event::Time),
                None => Poll::Pending,
            }
        };
        stream.wait(reading, !drained, other).await
    }

    /// Arms the timer when the state has a deadline. A timer that will fire too early is left alone: it costs one check
    /// when it fires, and re-arming it at each command would cost more.
    fn arm_timer(&mut self) {
        let deadline = match self.state {
            State::Sleeping(until) | State::Closing(until) => Some(until),
            state => {
                let until = if let State::Blocked(until) = state { until } else { None };
                let given_up = self.abandon_job_deadline_us();
                let deadlines =
                    [until, self.session.idle_deadline_us(), self.handshake_deadline_us(), given_up];
                deadlines.into_iter().flatten().min()
            }
        };
        let Some(deadline) = deadline else {
            self.timer = None;
            return;
        };
        let at = self.context.clock.instant(deadline);
        match &mut self.timer {
            Some(timer) if !timer.is_elapsed() && timer.deadline() <= at => {}
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    /// Handles a wake-up ([`super::wake`] lists the causes). The session decides what to do.
    fn handle_wake(&mut self) {
        if let Some(done) = self.wake.take_lane() {
            self.session.lane_done(done);
        }
        self.run_turn();
    }

    fn handle_deadline(&mut self) {
        let now_us = self.context.clock.now().mono_us;
        let is_handshake_late = self.handshake_deadline_us().is_some_and(|until| until <= now_us);
        match self.state {
            State::Closing(until) if until <= now_us => self.state = State::Aborted("killed"),
            State::Sleeping(until) if until <= now_us => self.run_turn(),
            State::Closing(_) | State::Sleeping(_) => {}
            State::AwaitsWake if self.abandon_job_at_us.is_some_and(|until| until <= now_us) => {
                self.state = State::Aborted("peer closed");
            }
            _ if is_handshake_late => self.state = State::Aborted("no TLS handshake in time"),
            // The idle deadline has passed. The session checks again, because the deadline may have moved.
            _ => self.run_turn(),
        }
    }

    fn handshake_deadline_us(&mut self) -> Option<u64> {
        if self.handshake_until_us.is_some() && !self.stream.is_handshaking() {
            self.handshake_until_us = None;
        }
        self.handshake_until_us
    }

    /// The time at which the current lane job is abandoned. `Some` while the client has closed its sending side, the
    /// job only reads, and the session has no further input.
    fn abandon_job_deadline_us(&mut self) -> Option<u64> {
        let is_left = self.has_peer_closed && self.state == State::AwaitsWake && self.session.only_reads();
        self.abandon_job_at_us = is_left.then(|| {
            self.abandon_job_at_us.unwrap_or_else(|| self.context.clock.now().mono_us + HALF_CLOSED_US_MAX)
        });
        self.abandon_job_at_us
    }

    /// Closes the connection when its turn comes. `end`: why it ends, and whether the peer may still read.
    async fn close(mut self, (end, hangs_up): (ConnectionEnd, bool)) -> ConnectionEnd {
        // The engine forgets the session at once: otherwise a blocked command could take an element from a list.
        self.session.leave_engine();
        if !self.stream.is_pipe() && !self.context.stopping() {
            self.stream.prepare_to_yield(false);
            self.context.departures.turn().await;
        }
        if hangs_up {
            self.stream.hang_up();
        }
        end
    }
}

/// True for the first bytes of a TLS client: a handshake record of version 3 with a ClientHello. These bytes are no
/// pack4 request, because as a frame they would announce 369 MB that begin with no command.
pub fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, _, _, _, 1, ..])
}
