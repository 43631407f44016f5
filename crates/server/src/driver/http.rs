//! One HTTP connection. One task runs its socket, which `strand_http` serves, and its session.
//!
//! [`serve`] opens a session as for any client and connects it to the HTTP side by a pipe in memory.
//! [`connection::drive`] drives the session as any other. hyper reads and writes through a [`Socket`]. The socket
//! collects written bytes and sends them when hyper waits for the peer, so pipelined requests cost one write together.
//! It also passes large bodies on without a copy.

use super::connection::{self, ConnectionEnd, HANDSHAKE_US_MAX, is_client_hello};
use super::door::Arrival;
use super::socket::{Stream, refuse};
use super::tls_stream::TlsStreamError;
use super::wake::WakeCell;
use super::worker::Context;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::cell::RefCell;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;
use strand_chain::Chain;
use strand_engine::{Engine, Session};
use strand_http::body::Outgoing;
use strand_http::pipe::{Holding, Joined, PipeTraffic, pipe};
use strand_http::turns::wake_after_others;
use strand_http::{Connection, Rights, Settings, Sleeper, Unready, UsersVersion};
use tokio::time::{Instant, Sleep};

/// Maximum number of bytes read or written in one turn of the task.
const MOVED_BYTES_MAX: usize = 64 * 1024;
/// While this many bytes are unsent, hyper must wait.
const OUT_BYTES_MAX: usize = 128 * 1024;
/// When this many bytes are unsent, they are sent, even if hyper has more to do.
const SEND_BYTES_MIN: usize = 32 * 1024;
/// Maximum number of bytes of one read before the first login. Further bytes of the client wait in the kernel.
const STRANGER_READ_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of bytes read ahead of hyper while a command waits for data. Behind more bytes of the client, the end
/// of the connection is not seen.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of connections of a worker that have no session, because `maxclients` clients are connected. These
/// connections are for requests that need no session. An orchestrator asks in this way for the server's health: without an
/// answer, the orchestrator would end a healthy server. `RESERVED_PER_WORKER` of [`super::files`] counts these connections.
const WITHOUT_SESSION_MAX: usize = 4;
/// Maximum time in milliseconds in which a connection without a session must send its request. The same time is left for
/// the response.
const WITHOUT_SESSION_MS_MAX: u64 = 1_000;

/// Serves one connection until it closes.
///
/// # Errors
/// Errors of the socket.
pub async fn serve(arrival: Arrival, wake: Arc<WakeCell>, context: &Context) -> ConnectionEnd {
    let Arrival { socket, peer, tls, .. } = arrival;
    let (peer_is_local, addresses) = (peer.local, [peer.addr.clone(), peer.laddr.clone()]);
    let opened = Session::open(&context.engine, peer, wake.clone(), context.seed(), context.clock.now());
    let config = context.engine.config();
    let mut settings = settings(&context.engine, peer_is_local);
    let mut login_timeout = Duration::from_secs(config.login_timeout_s());
    // Counts the connection while it lives, if it has no session.
    let mut without_session = None;
    let session = match opened {
        Ok(session) => Some(session),
        Err(reply) => {
            without_session = match strand_http::is_denial(reply.front()) {
                true => None,
                false => context.without_session(WITHOUT_SESSION_MAX),
            };
            if without_session.is_none() {
                // Send no reason, because the client could not read it before the TLS handshake.
                if tls.is_none() {
                    refuse(&socket, &strand_http::refusal(reply.front()));
                }
                return Ok("refused");
            }
            settings.refusal = Some(reply.front().to_vec());
            login_timeout = Duration::from_millis(WITHOUT_SESSION_MS_MAX);
            None
        }
    };
    let (http_end, session_end) = pipe();
    let watch = session_end.watch();
    let outgoing = Outgoing::default();
    let stream = Stream::open(socket, tls, context.ring_in_use())?;
    stream.set_receive_limit(true);
    let greeting =
        stream.is_tls().then(|| Box::pin(tokio::time::sleep(Duration::from_micros(HANDSHAKE_US_MAX))));
    let socket = Rc::new(RefCell::new(Socket::new(stream, outgoing.clone(), watch.clone())));
    let connection = Connection::new(Io(socket.clone()), http_end, settings, outgoing);
    let side = HttpSide {
        socket,
        context,
        addresses,
        is_ending: false,
        greeting,
        waiting: connection.holding(),
        idle: IdleWatch::new(Duration::from_secs(config.http_keepalive_s())),
        client_deadline: ClientDeadline::new(login_timeout),
        watch: watch.clone(),
        turn: 0,
        connection,
    };
    let session = async move {
        match session {
            Some(session) => connection::drive(Stream::Pipe(session_end), session, wake, context).await,
            None => {
                // The pipe stays open: its end would end the connection before the request.
                let _pipe = session_end;
                // A wake polls the HTTP side again, which ends when the server stops.
                std::future::poll_fn(|cx| {
                    while wake.poll(cx).is_ready() {}
                    Poll::Pending
                })
                .await
            }
        }
    };
    // A killed session ends the connection at once. After the normal end of a session the connection first sends the
    // last response.
    let end = Joined::new(side, session, watch, |end: ConnectionEnd| match end {
        Ok("killed") => Some(Ok("killed")),
        _ => None,
    })
    .await;
    drop(without_session);
    end
}

fn settings(engine: &Arc<Engine>, peer_is_local: bool) -> Settings {
    let (config, of, asked, state) = (engine.config(), engine.clone(), engine.clone(), engine.clone());
    static ETAG_SEED: OnceLock<u64> = OnceLock::new();
    Settings {
        body_bytes_max: config.http_body_bytes_max(),
        bulk_bytes_max: config.bulk_bytes_max(),
        query_bytes_max: config.query_bytes_max(),
        etag_bytes_max: config.http_etag_bytes_max(),
        // std keys its hashers from the system's randomness.
        etag_seed: *ETAG_SEED.get_or_init(|| RandomState::new().build_hasher().finish()),
        update_prefix: config.http_update_prefix(),
        peer_is_local,
        unready: Unready(Rc::new(move || state.unready())),
        users_version: UsersVersion(Rc::new(move || of.config().generation())),
        rights: Rights(Rc::new(move |user, command| asked.may_call(user, command))),
        sleep: Sleeper(Rc::new(|ms| Box::pin(tokio::time::sleep(Duration::from_millis(ms))))),
        bundler: crate::bundle::of_session::bundler(),
        refusal: None,
    }
}

/// The HTTP side of a connection.
struct HttpSide<'c> {
    connection: Connection<Io>,
    socket: Rc<RefCell<Socket>>,
    context: &'c Context,
    /// The peer's address and the local address.
    addresses: [String; 2],
    is_ending: bool,
    /// Deadline of the TLS handshake. `None` when the handshake is done.
    greeting: Option<Pin<Box<Sleep>>>,
    idle: IdleWatch,
    client_deadline: ClientDeadline,
    /// Counts the bytes that wait to be sent, and the received bytes that wait for hyper.
    waiting: Holding,
    watch: PipeTraffic,
    /// The turn of the task in which the clock was last checked.
    turn: u64,
}

impl Future for HttpSide<'_> {
    type Output = ConnectionEnd;
    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<ConnectionEnd> {
        let this = self.get_mut();
        // Without a session (for example after its idle timeout) no more requests are possible.
        let ends = this.context.stopping() || this.connection.has_lost_session();
        if ends && !std::mem::replace(&mut this.is_ending, true) {
            this.connection.end_gracefully();
        }
        this.socket.borrow_mut().set_logged_in(this.connection.is_logged_in());
        loop {
            let begun = this.connection.requests();
            if let Poll::Ready(done) = Pin::new(&mut this.connection).poll(cx) {
                if this.socket.borrow().is_client_hello_seen && this.context.may_warn() {
                    let [peer, here] = &this.addresses;
                    tracing::warn!("{peer} sends TLS to {here}, which is not a TLS port: see tls-http-port");
                }
                return Poll::Ready(match (done, this.socket.borrow_mut().tls_error.take()) {
                    (_, Some(e)) => Err(e),
                    (Ok(()), None) => Ok("closed"),
                    (Err(e), None) => Err(io::Error::other(e)),
                });
            }
            let mut socket = this.socket.borrow_mut();
            // The session usually answers a new request at once. The new response can then go out together with the
            // waiting bytes.
            let more = this.connection.requests() != begun && this.connection.has_unread_commands();
            if !more || socket.out.len() >= SEND_BYTES_MIN {
                socket.send()?;
            }
            if !this.connection.can_continue() && !socket.poll_ready(cx) {
                break;
            }
        }
        // As in redis-server, a client that hangs up stops waiting, and so does every client when the server stops.
        let waits_in_vain = this.socket.borrow().has_peer_closed || this.context.stopping();
        if waits_in_vain && this.watch.is_session_blocked() {
            return Poll::Ready(Ok("stopped waiting"));
        }
        // An incomplete head gets no grace time, as an incomplete command gets none.
        if this.context.stopping() && !this.connection.is_answering() && this.socket.borrow().out.is_empty() {
            return Poll::Ready(Ok("the server stops"));
        }
        let alive = {
            let socket = this.socket.borrow();
            this.waiting.set(socket.out.len() + socket.input.len() + socket.stream.unread_bytes());
            (this.connection.requests(), socket.sent + socket.received)
        };
        // One check per turn is enough to be woken in time.
        if std::mem::replace(&mut this.turn, this.watch.turn()) == this.watch.turn() {
            return Poll::Pending;
        }
        if let Some(greeting) = &mut this.greeting {
            if !this.socket.borrow().stream.is_handshaking() {
                this.greeting = None;
            } else if greeting.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok("no TLS handshake in time"));
            }
        }
        let is_logged_in = this.connection.is_logged_in();
        let (is_sent, received) = (this.socket.borrow().out.is_empty(), this.socket.borrow().received);
        // Until the client has read a response, it need not send the next head.
        let answers = this.connection.is_answering() || !is_sent;
        if this.client_deadline.poll(cx, is_logged_in, answers, received).is_ready() {
            if !this.connection.stop_waiting() {
                return Poll::Ready(Ok(if is_logged_in {
                    "no head in time"
                } else {
                    "not authenticated in time"
                }));
            }
            // End the connection after the current response. The client gets one more time limit to take the response.
            this.is_ending = true;
            this.connection.end_gracefully();
            cx.waker().wake_by_ref();
        }
        if this.idle.poll(cx, alive, this.connection.is_busy()).is_ready() {
            if !this.connection.stop_waiting() {
                return Poll::Ready(Ok("idle"));
            }
            // Send the response with the reason. The client gets one more timeout to take the response.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Ends an idle connection. It checks once per `timeout`, so that a request costs nothing. A connection that was idle
/// from one check to the next has waited for one to two timeouts.
struct IdleWatch {
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    seen: (u64, u64),
}

impl IdleWatch {
    fn new(timeout: Duration) -> IdleWatch {
        IdleWatch { timeout, timer: None, seen: (0, 0) }
    }
    /// Ready when the connection had no activity for longer than the timeout. `alive` changes with every activity. With
    /// `busy` the session is working, and the connection does not count as idle.
    fn poll(&mut self, cx: &mut task::Context<'_>, alive: (u64, u64), busy: bool) -> Poll<()> {
        if self.timeout.is_zero() {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + self.timeout);
            if std::mem::replace(&mut self.seen, alive) == alive && !busy {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Ends a connection whose client takes too long to authenticate or to send a head. The limit runs from the connect
/// until a request has logged the session in, and from the first byte of a head until its request starts. A client
/// that sends single bytes does not extend the limit. What arrives while a response is under way does not count, so a part
/// of a head from then is only limited by the idle timeout.
struct ClientDeadline {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Start of the current wait for the client. `None` while nothing is expected from the client.
    since: Option<Instant>,
    /// Total bytes received when the last request was answered. Later bytes belong to the next HTTP head.
    received: u64,
}

impl ClientDeadline {
    fn new(limit: Duration) -> ClientDeadline {
        ClientDeadline { limit, timer: None, since: None, received: 0 }
    }
    /// Ready when the time limit is over. The next wait then starts with the full limit.
    fn poll(
        &mut self,
        cx: &mut task::Context<'_>,
        is_logged_in: bool,
        answers: bool,
        received: u64,
    ) -> Poll<()> {
        if answers {
            self.received = received;
        }
        let awaits = !is_logged_in || received > self.received;
        if !awaits || self.limit.is_zero() {
            // Do not disarm the timer. It costs one check when it fires.
            self.since = None;
            return Poll::Pending;
        }
        let due = *self.since.get_or_insert_with(Instant::now) + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= due {
                self.since = Some(now);
                timer.as_mut().reset(now + self.limit);
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// The socket, as hyper sees it.
struct Socket {
    stream: Stream,
    /// True when a request has logged the session in.
    is_logged_in: bool,
    /// The chain into which the socket is read. Between reads it has only bytes that were read ahead of hyper.
    input: Chain,
    /// True when a read ahead of hyper has found the end of the peer's bytes.
    has_peer_closed: bool,
    /// Bytes that wait to be sent.
    out: Chain,
    outgoing: Outgoing,
    watch: PipeTraffic,
    /// True when a read from the socket is worthwhile.
    may_read: bool,
    /// True when a write to the socket is worthwhile.
    may_write: bool,
    /// True when hyper waits for bytes.
    wants_read: bool,
    /// True when hyper waits until everything is sent.
    wants_all_sent: bool,
    /// Number of bytes moved in this turn of the task.
    moved_bytes: usize,
    turn: u64,
    /// Total number of bytes sent.
    sent: u64,
    /// Total number of bytes received.
    received: u64,
    /// Why the TLS handshake failed, if it failed.
    tls_error: Option<io::Error>,
    /// True when the peer began with TLS, which this door does not take.
    is_client_hello_seen: bool,
}

impl Socket {
    fn new(stream: Stream, outgoing: Outgoing, watch: PipeTraffic) -> Socket {
        Socket {
            stream,
            is_logged_in: false,
            input: Chain::new(),
            has_peer_closed: false,
            out: Chain::new(),
            outgoing,
            watch,
            may_read: true,
            may_write: true,
            wants_read: false,
            wants_all_sent: false,
            moved_bytes: 0,
            turn: 0,
            sent: 0,
            received: 0,
            tls_error: None,
            is_client_hello_seen: false,
        }
    }
    /// Notes whether a request has logged the session in. Before a login the socket gets little buffer space.
    fn set_logged_in(&mut self, is_logged_in: bool) {
        if std::mem::replace(&mut self.is_logged_in, is_logged_in) != is_logged_in {
            self.stream.set_receive_limit(!is_logged_in);
        }
    }
    /// Number of bytes that may still be moved in this turn.
    fn bytes_left_in_turn(&mut self) -> usize {
        if std::mem::replace(&mut self.turn, self.watch.turn()) != self.watch.turn() {
            self.moved_bytes = 0;
        }
        MOVED_BYTES_MAX.saturating_sub(self.moved_bytes)
    }
    /// Sends as much as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while self.may_write && !self.out.is_empty() {
            let room = self.bytes_left_in_turn();
            if room == 0 {
                return Ok(());
            }
            let written = self.stream.write(&mut self.out, room)?;
            self.moved_bytes += written.bytes;
            self.sent += written.bytes as u64;
            self.may_write = !written.is_full;
            self.outgoing.set_unsent(self.out.len());
        }
        Ok(())
    }
    /// True when hyper can continue at once, because a read or write that hyper waits for is possible. Otherwise the
    /// task is woken later.
    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> bool {
        let reading = std::mem::take(&mut self.wants_read);
        let ending = std::mem::take(&mut self.wants_all_sent);
        let writing = !self.out.is_empty();
        if self.bytes_left_in_turn() == 0 {
            if reading || writing || ending {
                // Let the worker's other connections run first.
                self.stream.prepare_to_yield(reading);
                wake_after_others(cx);
            }
            return false;
        }
        if reading && self.may_read {
            return true;
        }
        let looks_ahead = !reading && self.watch.is_session_blocked() && self.look_ahead();
        // `out` may have bytes although the socket takes more: they wait for a response that follows at once.
        let blocked = writing && !self.may_write;
        let (read, write) = self.stream.poll_ready(cx, reading || looks_ahead, blocked || ending);
        self.may_read |= read;
        self.may_write |= write;
        read || write
    }
    /// Reads ahead of hyper, which has enough bytes and so does not see that the peer has closed the connection. Returns
    /// true when a later read may find more.
    fn look_ahead(&mut self) -> bool {
        while self.may_read && !self.has_peer_closed && self.input.len() < AHEAD_BYTES_MAX {
            let room = self.bytes_left_in_turn().min(AHEAD_BYTES_MAX - self.input.len());
            if room == 0 {
                return true;
            }
            // An error is the end, too. The reason does not matter to a peer that is gone.
            self.has_peer_closed = matches!(self.read(room), Err(_) | Ok(Some(0)));
        }
        !self.has_peer_closed && self.input.len() < AHEAD_BYTES_MAX
    }
    /// Reads up to `room` bytes of the socket into `input`. Returns their number: 0 at the end of the peer's bytes, `None`
    /// when there are none now.
    fn read(&mut self, room: usize) -> io::Result<Option<usize>> {
        let target = self.input.spare();
        let room = room.min(target.len());
        let read = self.stream.read(&mut target[..room]);
        let n = read.as_ref().map_or(0, |(n, _)| n.unwrap_or(0));
        self.input.filled(n);
        let (read, dry) = read?;
        self.may_read = !dry;
        self.moved_bytes += n;
        if self.received == 0 && !self.stream.is_tls() {
            self.is_client_hello_seen = is_client_hello(self.input.front());
        }
        self.received += n as u64;
        Ok(read)
    }
}

/// hyper's handle to the socket.
struct Io(Rc<RefCell<Socket>>);

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &mut *self.0.borrow_mut();
        if !socket.input.is_empty() {
            let n = socket.input.front().len().min(buf.remaining());
            buf.put_slice(&socket.input.front()[..n]);
            socket.input.advance(n);
            return Poll::Ready(Ok(()));
        }
        while socket.may_read {
            let most = if socket.is_logged_in { usize::MAX } else { STRANGER_READ_BYTES_MAX };
            let room = socket.bytes_left_in_turn().min(buf.remaining()).min(most);
            if room == 0 {
                break;
            }
            let read = match socket.read(room) {
                Err(e) if TlsStreamError::is(&e) => {
                    // Send the TLS alert, which tells the peer the reason.
                    socket.stream.hang_up();
                    socket.tls_error = Some(e);
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                read => read?,
            };
            if read.is_some() {
                // hyper also reads 0 bytes as the end of the stream.
                buf.put_slice(socket.input.front());
                socket.input.clear();
                return Poll::Ready(Ok(()));
            }
        }
        socket.wants_read = true;
        Poll::Pending
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut task::Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = &mut *self.0.borrow_mut();
        if socket.out.len() >= OUT_BYTES_MAX {
            socket.send()?;
            if socket.out.len() >= OUT_BYTES_MAX {
                return Poll::Pending;
            }
        }
        // hyper's parser answers a bad request with a response without a body. `of_parser` recognises these responses
        // and adds a body.
        if let [one] = bufs
            && let Some(response) = strand_http::of_parser(one, socket.is_client_hello_seen)
        {
            socket.out.push_slice(&response);
            return Poll::Ready(Ok(one.len()));
        }
        let taken = socket.outgoing.push(bufs, &mut socket.out);
        socket.outgoing.set_unsent(socket.out.len());
        Poll::Ready(Ok(taken))
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    /// Does nothing, because written bytes are sent when hyper has nothing else to do.
    fn poll_flush(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        let socket = &mut *self.0.borrow_mut();
        socket.send()?;
        if socket.out.is_empty() && socket.stream.is_sent() {
            socket.stream.hang_up();
            return Poll::Ready(Ok(()));
        }
        socket.wants_all_sent = true;
        Poll::Pending
    }
}
