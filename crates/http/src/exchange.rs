//! One exchange: a [`Request`] with what handlers need to answer it, the [`Context`] that the requests of a connection share, and
//! what an operator can set.

use crate::body::{CutShort, Outgoing, ResponseBody};
use crate::pipe::Holding;
use crate::problem::Problem;
use crate::query::Query;
use crate::session_client::{Gone, SessionClient};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, ready};

/// No request is answered while more bytes of responses than this wait for the client. Before anybody has entered the session,
/// the responses before are sent first.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// What an operator can set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest body, in bytes.
    pub body_bytes_max: u64,
    /// Longest string that the server takes, in bytes.
    pub bulk_bytes_max: usize,
    /// Longest value that gets an entity tag, in bytes.
    pub etag_bytes_max: usize,
    /// The key of entity tags: random, one for a process.
    pub etag_seed: u64,
    /// What stands before the id of a document that comes as XML.
    pub update_prefix: String,
    /// The connection comes from this machine.
    pub peer_is_local: bool,
    /// Why the server should not be asked for now; empty when it should.
    pub unready: Unready,
    /// What users may do, and their passwords, have changed when it says another number.
    pub users_version: Version,
    /// What users may do, for refusals before a body is read. The session judges every command again.
    pub rights: Rights,
    /// Waits, for what is sent again and again.
    pub sleep: Sleeper,
}

/// Says why the server should not be asked for now.
#[derive(Clone)]
pub struct Unready(pub Rc<dyn Fn() -> Vec<String>>);

impl std::fmt::Debug for Unready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unready({:?})", self.0())
    }
}

/// Says a number that moves on.
#[derive(Clone)]
pub struct Version(pub Rc<dyn Fn() -> u64>);

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Version({})", self.0())
    }
}

/// Says whether a user (first argument) may call a command (its arguments, the name first), whatever the command's keys.
pub type MayCall = dyn Fn(&[u8], &[&[u8]]) -> bool;

/// What users may do, as far as it is known before the session is asked: true where only the session knows.
#[derive(Clone)]
pub struct Rights(pub Rc<MayCall>);

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rights")
    }
}

/// Gives a future that is ready after a number of milliseconds, by the driver's clock.
#[derive(Clone)]
pub struct Sleeper(pub Rc<Sleep>);

/// From milliseconds to the future.
pub type Sleep = dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()>>>;

impl std::fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleeper")
    }
}

/// A response of ours.
pub type Response = hyper::Response<ResponseBody>;

/// A request with its query read.
pub struct Request {
    /// Its head.
    pub parts: Parts,
    /// Its query.
    pub query: Query,
    /// Its body, what was not taken of it.
    pub body: Incoming,
    /// Bytes that may still come of it.
    pub body_bytes_left: u64,
    /// What is held of the body.
    holding: Holding,
    context: Rc<Context>,
}

impl Request {
    /// With its head read.
    pub(crate) fn new(context: Rc<Context>, parts: Parts, query: Query, body: Incoming) -> Request {
        let (holding, body_bytes_left) =
            (context.session.http_end().holding(), context.settings.body_bytes_max);
        Request { parts, query, body, body_bytes_left, holding, context }
    }
    /// The media type of the body, without its parameters; empty when none is said.
    pub fn media(&self) -> String {
        let said = self.parts.headers.get(CONTENT_TYPE).and_then(|m| m.to_str().ok()).unwrap_or_default();
        said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
    /// Says how many bytes of the body are held, which count as the client's memory.
    pub fn hold(&mut self, bytes: usize) {
        self.holding.set(bytes);
    }
    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// 400 when it breaks off or its framing is broken, 408 when it stalls: what follows cannot be told from it, so the
    /// connection ends.
    pub async fn data(&mut self) -> Result<Option<Bytes>, Problem> {
        poll_fn(|cx| self.poll_data(cx)).await
    }
    /// As [`Request::data`].
    pub fn poll_data(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        loop {
            let next = Pin::new(&mut self.body).poll_frame(cx);
            if next.is_pending() && self.context.stalled.get() {
                return Poll::Ready(Err(Problem::stalled()));
            }
            match ready!(next) {
                None => return Poll::Ready(Ok(None)),
                Some(Ok(frame)) => {
                    // Trailers have nothing to say here.
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
                    return Poll::Ready(Err(Problem::bad_request("the body breaks off").closing()));
                }
            }
        }
    }
}

/// What the requests of one connection share.
pub struct Context {
    /// The session.
    pub session: SessionClient,
    /// What an operator can set.
    pub settings: Settings,
    /// Bodies on their way to the socket.
    pub outgoing: Outgoing,
    /// Requests that have begun.
    begun: Cell<u64>,
    /// Nothing has come of the request's body for too long.
    stalled: Cell<bool>,
    /// A request waits until the client has taken more of the responses before it.
    is_held_back: Cell<bool>,
    /// The connection ends after the response in hand: one without an end of its own is to end.
    is_ending: Cell<bool>,
}

impl Context {
    /// Of a new connection, with the session behind `session`.
    pub(crate) fn new(session: SessionClient, settings: Settings, outgoing: Outgoing) -> Context {
        Context {
            session,
            settings,
            outgoing,
            begun: Cell::new(0),
            stalled: Cell::new(false),
            is_held_back: Cell::new(false),
            is_ending: Cell::new(false),
        }
    }
    /// A request begins.
    pub(crate) fn begins(&self) {
        self.begun.set(self.begun.get() + 1);
        self.stalled.set(false);
    }
    /// The response in hand is the last one.
    pub(crate) fn set_ending(&self) {
        self.is_ending.set(true);
    }
    /// True when the response in hand is the last one, and is to end soon.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }
    /// Requests that have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.get()
    }
    /// Gives up waiting for the client. False when that was done before.
    pub(crate) fn give_up(&self) -> bool {
        !self.stalled.replace(true)
    }
    /// True when the request that [`Context::turn`] holds back can be answered now.
    pub(crate) fn can_go_on(&self) -> bool {
        self.is_held_back.get() && self.may_answer()
    }
    /// True when so little waits for the client that one more request may be answered.
    fn may_answer(&self) -> bool {
        let unsent_bytes = self.outgoing.unsent_bytes();
        unsent_bytes == 0 || (self.session.has_entered() && unsent_bytes <= UNSENT_BYTES_MAX)
    }
    /// Waits until the client has taken enough of the responses before this one. The driver runs the connection again then.
    ///
    /// # Errors
    /// 408 when it takes nothing for too long.
    pub(crate) async fn turn(&self) -> Result<(), Problem> {
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
    /// Refuses a request whose sender may call none of `commands`: before its body is read, so that it holds nothing.
    ///
    /// # Errors
    /// 403, with their names.
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

impl From<Gone> for CutShort {
    fn from(_: Gone) -> CutShort {
        CutShort
    }
}
