//! One connection: moves bytes between a socket and its [`Session`], and waits when there is nothing to move.
//!
//! [`serve`] is the task. It decides nothing about commands: it reads into the session's target, calls
//! [`Session::run`], writes the output, and does what the [`Turn`] says. The socket is a [`Stream`]: read and written
//! directly when the runtime says that it is worth trying, or by a ring. A read or write that came up short has emptied
//! or filled the kernel's buffer, so readiness is cleared there and then: a request costs one read and one write, and
//! no system call that only learns that there is nothing to do.

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

/// Bytes of one read or write, and bytes moved after which the task lets the worker's other connections go first. Fresh
/// memory costs a page fault for each 4 KiB, and on loopback a write runs the receiver's side of TCP too. While 256 MB went
/// out, others waited for up to 18 ms with no bound and 0.6 ms with 256 KiB; while they came in, p99.9 was 0.5 to 0.9 ms
/// with 64 KiB and 0.16 to 0.33 with 32; the transfers took as long with either.
const MOVED_BYTES_MAX: usize = 32 * 1024;
/// Turns (of reading, running or writing) after which the task lets the worker's other connections go first.
const TURNS_MAX: u32 = 16;
/// Bytes of one write while closing: its end is what tells that the peer takes anything at all, so a peer is slow only
/// below 1.6 kB/s.
const CLOSING_BYTES_MAX: usize = 8 * 1024;
/// How long a closing connection waits for its peer to take some of the last replies, in microseconds.
const LINGER_US: u64 = 5_000_000;
/// A client that ended its side may still read, so what it asked for is answered. A read on a lane that takes longer than
/// this after the end is given up: most such clients have closed their socket, and TCP says both alike.
const HALF_CLOSED_US_MAX: u64 = 2_000_000;
/// How long the two ends may take to agree on keys (TLS), in microseconds.
pub const HANDSHAKE_US_MAX: u64 = 10_000_000;

/// Why a connection ended; shown in the log at debug level.
pub type End = io::Result<&'static str>;

/// Serves one connection until it closes.
///
/// # Errors
/// Those of the socket.
pub async fn serve(arrival: Arrival, wake: Arc<WakeCell>, context: &Context) -> End {
    let Arrival { socket, peer, tls, .. } = arrival;
    let opened = Session::open(&context.engine, peer, wake.clone(), context.seed(), context.clock.now());
    let mut session = match opened {
        Ok(session) => session,
        Err(refusal) => {
            // As redis-server: who has agreed on no keys yet could not read why.
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

/// Moves the bytes between `stream` and `session` until one of them ends.
///
/// # Errors
/// Those of the stream.
pub async fn drive(stream: Stream, session: Session, wake: Arc<WakeCell>, context: &Context) -> End {
    let greets_until = context.clock.now().mono_us + HANDSHAKE_US_MAX;
    let greets_until = stream.is_tls().then_some(greets_until);
    stream.measure(session.unread_meter());
    let stranger = session.is_stranger();
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

/// What the session said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It wants more bytes.
    Reading,
    /// It was given some.
    Fed,
    /// It has more to run.
    Running,
    /// It runs on when its output has drained.
    Draining,
    /// It waits for a lane job.
    AwaitsWake,
    /// Its command waits for data, or until then, in monotonic microseconds.
    Blocked(Option<u64>),
    /// It sleeps until then, in monotonic microseconds.
    Sleeping(u64),
    /// It ends when its output has drained, or then, in monotonic microseconds.
    Closing(u64),
    /// It ends now, for this reason.
    Aborted(&'static str),
}

struct Connection<'c> {
    stream: Stream,
    session: Session,
    wake: Arc<WakeCell>,
    context: &'c Context,
    state: State,
    /// Until then the keys must be agreed on; none once they are.
    greets_until: Option<u64>,
    /// Nobody has authenticated, and somebody must.
    stranger: bool,
    /// Nothing has come yet.
    fresh: bool,
    /// The socket may hold bytes: reading is worth a try.
    unread: bool,
    /// The socket may take bytes: writing is worth a try.
    unwritten: bool,
    /// Since when the socket has not taken all that is to be sent; 0 when it has.
    stuck_since_us: u64,
    /// The peer has ended its side; what it asked for before that is still answered.
    ended: bool,
    /// The monotonic time at which a job is given up because its client ended its side; none while that does not matter.
    given_up_at_us: Option<u64>,
    /// Armed only while something has a deadline.
    timer: Option<Pin<Box<Sleep>>>,
    /// Turns since this task last let the others go first.
    turns: u32,
    /// Bytes moved since then.
    moved: usize,
}

/// What a wait ended with, the socket aside.
enum Event {
    /// Somebody woke the session.
    Woken,
    /// The deadline passed.
    Time,
}

impl Connection<'_> {
    async fn run(mut self) -> End {
        loop {
            self.flush()?;
            // Who closes the socket waits until all is out.
            let stops = self.context.stopping() && !self.stream.is_pipe();
            let closes = matches!(self.state, State::Closing(_)) || self.ended || stops;
            let drained = self.session.output().is_empty() && (!closes || self.stream.is_sent());
            match self.state {
                State::Fed | State::Running => self.run_turn(),
                State::Draining if self.session.output_drained() => self.run_turn(),
                State::Closing(_) if drained => return self.finish("closed"),
                State::Aborted(why) => return Ok(why),
                // As in redis-server, who hangs up waits no more.
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
                        // At pipeline 1, 32 connections, 1 M keys: 3 to 8 % more operations per CPU-second.
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
                // Write, then let the others go first.
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
        if self.stranger && !self.session.is_stranger() {
            self.stranger = false;
            self.stream.receive_for(false);
        }
    }

    /// True while bytes may be taken from the socket; otherwise they wait there, which in the end stops the peer.
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
            // The alert that says why is on its way.
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

    /// The peer takes this port for one with TLS: nothing that it sends means anything here.
    fn refuse_tls(&mut self) -> io::Result<()> {
        if self.context.may_warn() {
            let peer = self.session.peer();
            tracing::warn!("{} sends TLS to {}, which takes none; tls-port is for it", peer.addr, peer.laddr);
        }
        self.session.output().push_slice(b"-ERR Protocol error: this port takes no TLS\r\n");
        self.state = State::Closing(self.context.clock.now().mono_us + LINGER_US);
        Ok(())
    }

    /// Writes what the socket takes.
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

    /// The socket takes no more for now, or did so before: how long that lasts is told when all is out.
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

    /// Waits for whatever can move this connection on.
    async fn wait(&mut self, drained: bool) -> Waited<Event> {
        if self.session.in_frame() {
            // The rest of a frame is on its way: do not let the kernel hold back the acknowledgement that a peer with
            // Nagle's algorithm waits for before it sends it. The option is not sticky, so it is set at each such wait.
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

    /// Arms the timer when the state has a deadline. An armed timer that is too early is left alone: it costs one
    /// look when it fires, and re-arming it at each command would cost more.
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

    /// CLIENT KILL, a finished job, a changed setting or the server's stop: the session knows what to make of it.
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
            // The idle deadline, perhaps moved on meanwhile: the session looks again.
            _ => self.run_turn(),
        }
    }

    fn greeting_deadline_us(&mut self) -> Option<u64> {
        if self.greets_until.is_some() && !self.stream.is_handshaking() {
            self.greets_until = None;
        }
        self.greets_until
    }

    /// When the job that the session waits for is given up: while the client has ended its side, and nothing else came
    /// before that.
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

/// True for the first bytes of a TLS client: a handshake record of version 3 with a ClientHello in it. As a frame they would
/// be one of 369 MB that begins no command.
pub fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, _, _, _, 1, ..])
}
