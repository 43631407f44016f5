//! One exchange: a [`Request`] with everything a handler needs, the [`Context`] shared by the requests of a
//! connection, and the [`Settings`] of the operator.

use crate::Bundler;
use crate::body::{Outgoing, ResponseBody, TruncatedBody};
use crate::pipe::Holding;
use crate::problem::Problem;
use crate::query::Query;
use crate::request_body::RequestBody;
use crate::session_client::{Gone, SessionClient};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{self, Poll, ready};

/// No request is answered while more response bytes than this wait for the client. Before the first login on a
/// connection, all earlier responses must be sent first.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The settings that the operator can change, and the hooks into the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum length of a request's body, in bytes.
    pub body_bytes_max: u64,
    /// Maximum length of a string that the server accepts, in bytes.
    pub bulk_bytes_max: usize,
    /// Maximum length of a command that has not arrived completely, in bytes.
    pub query_bytes_max: usize,
    /// Maximum length of a value that gets an entity tag, in bytes.
    pub etag_bytes_max: usize,
    /// The key of entity tags: random for each process.
    pub etag_seed: u64,
    /// Key prefix of documents that arrive as XML.
    pub update_prefix: String,
    /// True when the client is on this machine.
    pub peer_is_local: bool,
    /// Returns the reasons why the server is not ready; empty when the server is ready.
    pub unready: Unready,
    /// A number that changes when the rights or passwords of users change.
    pub users_version: UsersVersion,
    /// The rights of users, for refusals before a body is read. The session checks every command again.
    pub rights: Rights,
    /// Creates the pauses between repeated events.
    pub sleep: Sleeper,
    /// The function that makes diagnostic bundles.
    pub bundler: Bundler,
    /// Why the connection has no session: an error reply. Such a connection answers one request, and runs only the
    /// routes that need no session.
    pub refusal: Option<Vec<u8>>,
}

/// Returns the reasons why the server is not ready; empty when the server is ready.
#[derive(Clone)]
pub struct Unready(pub Rc<dyn Fn() -> Vec<String>>);

impl std::fmt::Debug for Unready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unready({:?})", self.0())
    }
}

/// Returns a version number, which changes with every change of the versioned data.
#[derive(Clone)]
pub struct UsersVersion(pub Rc<dyn Fn() -> u64>);

impl std::fmt::Debug for UsersVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Version({})", self.0())
    }
}

/// Returns whether a user (first argument) may call a command (its arguments, name first), regardless of its keys.
pub type MayCall = dyn Fn(&[u8], &[&[u8]]) -> bool;

/// A check of a user's rights before the session checks each command. Returns true when only the session can decide.
#[derive(Clone)]
pub struct Rights(pub Rc<MayCall>);

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rights")
    }
}

/// Creates a future that is ready after some milliseconds of the driver's clock.
#[derive(Clone)]
pub struct Sleeper(pub Rc<Sleep>);

/// Returns a future that is ready after this number of milliseconds.
pub type Sleep = dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()>>>;

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleeper")
    }
}

/// A response of this crate.
pub type Response = hyper::Response<ResponseBody>;

/// A request with its query parsed.
pub struct Request {
    /// The head of the request.
    pub parts: Parts,
    /// The parsed query of the URI.
    pub query: Query,
    /// The part of the body that was not read yet.
    pub body: RequestBody,
    /// Maximum number of bytes that the rest of the body may have.
    pub body_bytes_left: u64,
    /// Counts the bytes of the body that are held in memory.
    holding: Holding,
    context: Rc<Context>,
}

impl Request {
    /// Creates a request from its HTTP head, query and body.
    pub(crate) fn new(context: Rc<Context>, parts: Parts, query: Query, body: RequestBody) -> Request {
        let (holding, body_bytes_left) =
            (context.session.http_end().holding(), context.settings.body_bytes_max);
        Request { parts, query, body, body_bytes_left, holding, context }
    }
    /// The media type of the body without its parameters; empty when the header is missing.
    pub fn media(&self) -> String {
        let said = self.parts.headers.get(CONTENT_TYPE).and_then(|m| m.to_str().ok()).unwrap_or_default();
        said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
    /// Sets the number of bytes of the body that are held. Held bytes count as the client's memory.
    pub fn hold(&mut self, bytes: usize) {
        self.holding.set(bytes);
    }
    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// 400 when the body is cut short or its framing is broken, 408 when it stalls. The start of the next request
    /// is then unknown, so the connection ends.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Problem> {
        poll_fn(|cx| self.poll_data(cx)).await
    }
    /// The poll form of [`Request::data`].
    pub fn poll_data(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        loop {
            let next = self.body.poll_frame(cx);
            if next.is_pending() && self.context.stalled.get() {
                return Poll::Ready(Err(Problem::stalled()));
            }
            match ready!(next) {
                None => return Poll::Ready(Ok(None)),
                Some(Ok(frame)) => {
                    // Ignore trailers.
                    let Ok(data) = frame.into_data() else { continue };
                    let len = data.len() as u64;
                    return Poll::Ready(match self.body_bytes_left.checked_sub(len) {
                        Some(left) => {
                            self.body_bytes_left = left;
                            Ok(Some(data))
                        }
                        None => {
                            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long").closing())
                        }
                    });
                }
                Some(Err(_)) => {
                    return Poll::Ready(Err(Problem::bad_request(
                        "the body ends early, or its chunks are malformed",
                    )
                    .closing()));
                }
            }
        }
    }
}

/// The state shared by the requests of a connection.
pub struct Context {
    /// The client of the connection's session.
    pub session: SessionClient,
    /// The settings of the operator.
    pub settings: Settings,
    /// The output: response bodies on their way to the socket.
    pub outgoing: Outgoing,
    /// Number of requests that have started.
    requests_started: Cell<u64>,
    /// True when the client took too long: to send the body, or to read the earlier responses.
    stalled: Cell<bool>,
    /// True while a request waits for the client to read earlier responses.
    is_held_back: Cell<bool>,
    /// True while [`Context::pause`] waits.
    is_pausing: Cell<bool>,
    /// True when the connection ends after the current response. An endless response must end then.
    is_ending: Cell<bool>,
}

impl Context {
    /// The context of a new connection.
    pub(crate) fn new(session: SessionClient, settings: Settings, outgoing: Outgoing) -> Context {
        Context {
            session,
            settings,
            outgoing,
            requests_started: Cell::new(0),
            stalled: Cell::new(false),
            is_held_back: Cell::new(false),
            is_pausing: Cell::new(false),
            is_ending: Cell::new(false),
        }
    }
    /// Counts a request that starts.
    pub(crate) fn start_request(&self) {
        self.requests_started.set(self.requests_started.get() + 1);
        self.stalled.set(false);
    }
    /// Makes the current response the last one of the connection.
    pub(crate) fn set_ending(&self) {
        self.is_ending.set(true);
    }
    /// True when the current response is the last one of the connection. An endless response must then end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }
    /// Waits for `ms` milliseconds. Returns false, perhaps earlier, when the current response is the last one of the
    /// connection.
    pub(crate) async fn pause(&self, ms: u64) -> bool {
        let mut sleep = pin!((self.settings.sleep.0)(ms));
        poll_fn(|cx| {
            let is_over = sleep.as_mut().poll(cx).is_ready();
            self.is_pausing.set(!is_over && !self.is_ending());
            match (self.is_ending(), is_over) {
                (true, _) => Poll::Ready(false),
                (false, true) => Poll::Ready(true),
                (false, false) => Poll::Pending,
            }
        })
        .await
    }
    /// True while a response pauses and the client has read everything so far.
    pub(crate) fn is_pausing(&self) -> bool {
        self.is_pausing.get() && self.outgoing.unsent_bytes() == 0
    }
    /// Number of requests that have started.
    pub(crate) fn requests_started(&self) -> u64 {
        self.requests_started.get()
    }
    /// Makes the current request fail with 408 instead of waiting for its client any longer. Returns false when this
    /// was already called for this request.
    pub(crate) fn stop_waiting(&self) -> bool {
        !self.stalled.replace(true)
    }
    /// True when the client took too long to send the body, or to read the earlier responses.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.get()
    }
    /// True when the request that waits in [`Context::wait_for_reader`] can continue.
    pub(crate) fn can_continue(&self) -> bool {
        self.is_held_back.get() && self.may_answer()
    }
    /// True when one more request may be answered, because few enough response bytes are unsent.
    fn may_answer(&self) -> bool {
        let unsent_bytes = self.outgoing.unsent_bytes();
        unsent_bytes == 0 || (self.session.is_logged_in() && unsent_bytes <= UNSENT_BYTES_MAX)
    }
    /// Waits until the client has read enough of the earlier responses. The driver then runs the connection again.
    ///
    /// # Errors
    /// 408 when the client reads nothing for too long.
    pub(crate) async fn wait_for_reader(&self) -> Result<(), Problem> {
        poll_fn(|_| {
            let (may, gives_up) = (self.may_answer(), self.stalled.get());
            self.is_held_back.set(!may && !gives_up);
            match (may, gives_up) {
                (true, _) => Poll::Ready(Ok(())),
                (false, true) => Poll::Ready(Err(Problem::stalled())),
                (false, false) => Poll::Pending,
            }
        })
        .await
    }
    /// Refuses a request when the sender may call none of `commands`. Called before the body is read, so a refused
    /// request holds no memory.
    ///
    /// # Errors
    /// 403 with the names of the commands.
    pub fn check_rights(&self, commands: &[&[&[u8]]]) -> Result<(), Problem> {
        let may = |user: &[u8]| commands.iter().any(|command| (self.settings.rights.0)(user, command));
        if commands.is_empty() || self.session.with_user(may) {
            return Ok(());
        }
        let name = |command: &&[&[u8]]| String::from_utf8_lossy(command[0]).to_ascii_lowercase();
        let names: Vec<String> = commands.iter().map(name).collect();
        let text = match names.as_slice() {
            [name] => format!("NOPERM this user has no permissions to run the '{name}' command"),
            names => format!("NOPERM this user has no permissions to run any of {}", names.join(", ")),
        };
        Err(Problem::of_reply(text.as_bytes()))
    }
}

impl From<Gone> for TruncatedBody {
    fn from(_: Gone) -> TruncatedBody {
        TruncatedBody
    }
}
