//! One connection: moves bytes between a socket and its [`Session`], and waits when there is nothing to move.
//!
//! [`serve`] is the task. It decides nothing about commands: it reads into the session's target, calls
//! [`Session::run`], writes the output, and follows the returned [`Turn`]. The socket is a [`Stream`]. The socket is
//! read and written directly when the runtime reports readiness, or through a ring (io_uring). A short read or write
//! means that the kernel's buffer is empty or full, so readiness is cleared at once. A request therefore costs one read
//! and one write, and no system call that only finds nothing to do.

use super::door::Arrival;
use super::stream::{Stream, Waited, refuse};
use super::tls_stream::TlsError;
use super::wake::WakeCell;
use super::worker::Context;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use strand_engine::{Session, Turn};
use strand_http::turns::step_back;
use tokio::time::Sleep;

/// Maximum number of bytes of one read or write. After moving this many bytes the task yields to the worker's
/// other connections. Fresh memory costs one page fault for each 4 KiB, and on loopback a write also runs the receiver's side
/// of TCP. While 256 MB went out, other connections waited up to 18 ms without a limit, and 0.6 ms with 256 KiB. While
/// 256 MB came in, p99.9 was 0.5 to 0.9 ms with 64 KiB, and 0.16 to 0.33 ms with 32 KiB. The transfers took equally
/// long.
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
pub type End = io::Result<&'static str>;

/// Serves one connection until it closes.
///
/// # Errors
/// Errors of the socket.
pub async fn serve(arrival: Arrival, wake: Arc<WakeCell>, context: &Context) -> End {
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
    let stream = Stream::open(socket, tls, context.ring.as_ref())?;
    drive(stream, session, wake, context).await
}

/// Moves bytes between `stream` and `session` until one of them ends.
///
/// # Errors
/// Errors of the stream.
pub async fn drive(stream: Stream, session: Session, wake: Arc<WakeCell>, context: &Context) -> End {
    let greets_until = context.clock.now().mono_us + HANDSHAKE_US_MAX;
    let greets_until = stream.is_tls().then_some(greets_until);
    stream.measure(session.unread_meter());
    let stranger = session.must_log_in();
    stream.receive_for(stranger);
    let connection = Connection {
        stream,
        session,
        wake,
        context,
        state: State::Reading,
        greets_until,
        stranger,
        fresh: true,
        unread: true,
        stuck_since_us: 0,
        unwritten: true,
        ended: false,
        given_up_at_us: None,
        timer: None,
        turns: 0,
        moved: 0,
    };
    connection.run().await
}

/// What the connection does after the session's last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The session needs more bytes.
    Reading,
    /// The session received bytes.
    Fed,
    /// The session has more to run.
    Running,
    /// The session continues when all its output has been written.
    Draining,
    /// The session waits for a lane job.
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
    greets_until: Option<u64>,
    /// True while the client must authenticate and has not done so.
    stranger: bool,
    /// True when no bytes have arrived yet.
    fresh: bool,
    /// True when the socket may have bytes, so a read is worthwhile.
    unread: bool,
    /// True when the socket may take bytes, so a write is worthwhile.
    unwritten: bool,
    /// Time since which the socket has not taken all output. 0 when the socket has taken all output.
    stuck_since_us: u64,
    /// True when the peer has closed its sending side. The peer's earlier requests are still answered.
    ended: bool,
    /// Monotonic time at which a lane job is given up, because the client has closed its sending side.
    given_up_at_us: Option<u64>,
    /// Timer for the next deadline of the state. Armed only while there is a deadline.
    timer: Option<Pin<Box<Sleep>>>,
    /// Turns since the task last yielded.
    turns: u32,
    /// Bytes read and written since the task last yielded.
    moved: usize,
}

/// The end of a wait, except events of the socket.
enum Event {
    /// The session was woken.
    Woken,
    /// A deadline of the session has passed.
    Time,
}

impl Connection<'_> {
    async fn run(mut self) -> End {
        loop {
            self.flush()?;
            // A connection that closes its socket waits until all output is sent.
            let stops = self.context.stopping() && !self.stream.is_pipe();
            let closes = matches!(self.state, State::Closing(_)) || self.ended || stops;
            let drained = self.session.output().is_empty() && (!closes || self.stream.is_sent());
            match self.state {
                State::Fed | State::Running => self.run_turn(),
                State::Draining if self.session.output_drained() => self.run_turn(),
                State::Closing(_) if drained => return self.finish("closed"),
                State::Aborted(why) => return Ok(why),
                // As in redis-server, a client that hangs up stops waiting.
                State::Reading | State::Blocked(_) if self.ended && drained => {
                    return self.finish("peer closed");
                }
                State::Reading | State::Blocked(_) if drained && stops => return self.finish("stopped"),
                _ if self.unread && self.wants_read() => {
                    self.fill()?;
                    if self.state == State::Fed
                        && !self.unread
                        && !self.context.is_busy()
                        && !self.stream.is_pipe()
                        && self.session.prefetch()
                    {
                        // Yield, so that the prefetched memory arrives meanwhile. At pipeline 1, 32 connections, 1 M
                        // keys this gives 3 to 8 % more operations per CPU-second.
                        step_back().await;
                    }
                }
                _ if !drained && self.unwritten && !self.session.output().is_empty() => {}
                _ => {
                    (self.turns, self.moved) = (0, 0);
                    match self.wait(drained).await {
                        Waited::Socket { read, write } => {
                            self.unread |= read;
                            self.unwritten |= write;
                        }
                        Waited::Gone => return Ok("peer gone"),
                        Waited::Other(Event::Woken) => self.woken(),
                        Waited::Other(Event::Time) => self.timed_out(),
                    }
                    continue;
                }
            }
            self.turns += 1;
            if self.turns >= TURNS_MAX || self.moved >= MOVED_BYTES_MAX {
                if self.moved < MOVED_BYTES_MAX {
                    self.flush()?;
                }
                (self.turns, self.moved) = (0, 0);
                self.stream.attend(self.state == State::Fed || self.wants_read());
                let _busy = self.context.busy();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Lets the session run once.
    fn run_turn(&mut self) {
        let now = self.context.clock.now();
        self.state = match self.session.run(now) {
            Turn::Read => State::Reading,
            Turn::Again => {
                // The task then writes the replies and yields to the other connections.
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
            Turn::Abort => State::Aborted("killed"),
        };
        if self.stranger && !self.session.must_log_in() {
            self.stranger = false;
            self.stream.receive_for(false);
        }
    }

    /// True while the socket should be read. Otherwise bytes wait in the socket, and when its buffer is full, the
    /// peer can send no more.
    fn wants_read(&self) -> bool {
        match self.state {
            _ if self.ended => false,
            State::Reading => true,
            State::Draining | State::AwaitsWake | State::Blocked(_) | State::Sleeping(_) => {
                self.session.wants_read()
            }
            State::Fed | State::Running | State::Closing(_) | State::Aborted(_) => false,
        }
    }

    /// Reads once into the session.
    fn fill(&mut self) -> io::Result<()> {
        let target = self.session.read_target();
        let room = target.len().min(MOVED_BYTES_MAX);
        let read = self.stream.read(&mut target[..room]);
        if self.fresh
            && let Ok((Some(n), _)) = read
        {
            self.fresh = false;
            if !self.stream.is_tls() && is_client_hello(&target[..n]) {
                self.session.received(0);
                return self.refuse_tls();
            }
        }
        if read.as_ref().is_err_and(TlsError::is) {
            // Send the TLS alert that tells the peer the reason.
            self.stream.hang_up();
        }
        self.session.received(read.as_ref().map_or(0, |(n, _)| n.unwrap_or(0)));
        let (n, dry) = read?;
        self.unread = !dry;
        match n {
            Some(0) => self.ended = true,
            Some(n) => {
                self.moved += n;
                if self.state == State::Reading {
                    self.state = State::Fed;
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
            tracing::warn!("{} sends TLS to {}, which takes none; tls-port is for it", peer.addr, peer.laddr);
        }
        self.session.output().push_slice(b"-ERR Protocol error: this port takes no TLS\r\n");
        self.state = State::Closing(self.context.clock.now().mono_us + LINGER_US);
        Ok(())
    }

    /// Writes as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        if !self.unwritten || self.session.output().is_empty() {
            return Ok(());
        }
        let bytes_max = match self.state {
            State::Closing(_) => CLOSING_BYTES_MAX,
            _ => MOVED_BYTES_MAX,
        };
        let written = self.stream.write(self.session.output(), bytes_max)?;
        self.moved += written.bytes;
        self.unwritten = !written.full;
        if written.full || self.stuck_since_us > 0 {
            self.look_at_flushing();
        }
        if written.bytes > 0
            && let State::Closing(until) = &mut self.state
        {
            *until = self.context.clock.now().mono_us + LINGER_US;
        }
        Ok(())
    }

    /// Measures for how long the socket does not take all output. Reports this time when all output is written.
    #[cold]
    fn look_at_flushing(&mut self) {
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
        if self.session.in_frame() {
            // A part of a frame has arrived. A peer with Nagle's algorithm sends the rest only after an
            // acknowledgement, so the kernel must not delay the acknowledgement. The kernel forgets this option, so set
            // the option at each of these waits.
            self.stream.acknowledge_quickly();
        }
        self.arm_timer();
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
                let given_up = self.give_up_deadline_us();
                let deadlines =
                    [until, self.session.idle_deadline_us(), self.greeting_deadline_us(), given_up];
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

    /// Handles CLIENT KILL, a finished job, a changed setting or the server's stop. The session decides what to
    /// do.
    fn woken(&mut self) {
        if let Some(done) = self.wake.take_lane() {
            self.session.lane_done(done);
        }
        self.run_turn();
    }

    fn timed_out(&mut self) {
        let now_us = self.context.clock.now().mono_us;
        let greets_too_long = self.greeting_deadline_us().is_some_and(|until| until <= now_us);
        match self.state {
            State::Closing(until) if until <= now_us => self.state = State::Aborted("killed"),
            State::Sleeping(until) if until <= now_us => self.run_turn(),
            State::Closing(_) | State::Sleeping(_) => {}
            State::AwaitsWake if self.given_up_at_us.is_some_and(|until| until <= now_us) => {
                self.state = State::Aborted("peer closed");
            }
            _ if greets_too_long => self.state = State::Aborted("no TLS handshake in time"),
            // The idle deadline has passed. The session checks again, because the deadline may have moved.
            _ => self.run_turn(),
        }
    }

    fn greeting_deadline_us(&mut self) -> Option<u64> {
        if self.greets_until.is_some() && !self.stream.is_handshaking() {
            self.greets_until = None;
        }
        self.greets_until
    }

    /// Deadline for the current job. Set while the client has closed its side, the job only reads, and the session has
    /// no further input.
    fn give_up_deadline_us(&mut self) -> Option<u64> {
        let is_left = self.ended && self.state == State::AwaitsWake && self.session.only_reads();
        self.given_up_at_us = is_left.then(|| {
            self.given_up_at_us.unwrap_or_else(|| self.context.clock.now().mono_us + HALF_CLOSED_US_MAX)
        });
        self.given_up_at_us
    }

    fn finish(&mut self, why: &'static str) -> End {
        self.stream.hang_up();
        Ok(why)
    }
}

/// True for the first bytes of a TLS client: a handshake record of version 3 with a ClientHello. These bytes are no
/// pack4 request, because as a frame they would announce 369 MB that begin with no command.
pub fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, _, _, _, 1, ..])
}
