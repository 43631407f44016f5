//! [`Connection`]: an HTTP connection as a future, over hyper, a pipe to a session, and the routes.
//!
//! Requests of a connection are answered in order, one at a time: hyper reads the next head when a response has gone out.
//! Broken heads, conflicting lengths, bad chunking and heads over [`HEAD_BYTES_MAX`] are hyper's to refuse (400, 431);
//! everything else is answered here, errors as problem documents.

use crate::auth::credentials;
use crate::body::{CutShort, Outgoing, ResponseBody};
use crate::link::{Gone, Link};
use crate::origin;
use crate::pipe::{Front, Holding};
use crate::problem::{PROBLEM_JSON, Problem};
use crate::query::Query;
use crate::routes::{self, Found};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::Service;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, ready};

/// Longest head of a request, in bytes; also what is read ahead of a connection.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most header lines of a request.
pub const HEADERS_MAX: usize = 100;

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
    /// What users may do, and their passwords, have changed when it says another number.
    pub users_version: Version,
    /// What users may do, for refusals before a body is read. The session judges every command again.
    pub rights: Rights,
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
    pub link: Link,
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
}

impl Context {
    /// True when so little waits for the client that one more request may be answered.
    fn may_answer(&self) -> bool {
        let unsent_bytes = self.outgoing.unsent_bytes();
        unsent_bytes == 0 || (self.link.has_entered() && unsent_bytes <= UNSENT_BYTES_MAX)
    }
    /// Waits until the client has taken enough of the responses before this one. The driver runs the connection again then.
    ///
    /// # Errors
    /// 408 when it takes nothing for too long.
    async fn turn(&self) -> Result<(), Problem> {
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
        if commands.is_empty() || self.link.with_user(may) {
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

/// Serves HTTP.
pub struct Connection<I: hyper::rt::Read + hyper::rt::Write + Unpin> {
    inner: http1::Connection<I, Server>,
    context: Rc<Context>,
}

impl<I: hyper::rt::Read + hyper::rt::Write + Unpin> Connection<I> {
    /// Serves what comes over `io`, with the session behind `front`. `outgoing` is shared with `io`.
    pub fn new(io: I, front: Front, settings: Settings, outgoing: Outgoing) -> Connection<I> {
        let context = Rc::new(Context {
            link: Link::new(front),
            settings,
            outgoing,
            begun: Cell::new(0),
            stalled: Cell::new(false),
            is_held_back: Cell::new(false),
        });
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).half_close(false);
        let inner = builder.serve_connection(io, Server { context: context.clone() });
        Connection { inner, context }
    }
    /// Ends the connection after the response in hand, at once when there is none.
    pub fn end_gracefully(&mut self) {
        Pin::new(&mut self.inner).graceful_shutdown();
    }
    /// Requests that have begun: moves with every one of them.
    pub fn requests(&self) -> u64 {
        self.context.begun.get()
    }
    /// True while commands wait that the session has not read.
    pub fn has_asked(&self) -> bool {
        self.context.link.front().is_waiting()
    }
    /// True when a request that waited for the client to read can be answered now: poll the connection again.
    pub fn can_go_on(&self) -> bool {
        self.context.is_held_back.get() && self.context.may_answer()
    }
    /// True once a request has entered the session, and until one may not.
    pub fn has_entered(&self) -> bool {
        self.context.link.has_entered()
    }
    /// True while a request is being answered.
    pub fn is_answering(&self) -> bool {
        // The connection's, the service's, and the request's own.
        Rc::strong_count(&self.context) > 2
    }
    /// True while the session works: the client can do nothing but wait.
    pub fn is_busy(&self) -> bool {
        self.context.link.is_at_work()
    }
    /// True when there is no session any more.
    pub fn has_lost_session(&self) -> bool {
        self.context.link.front().is_gone()
    }
    /// Gives up waiting for the rest of a request's body: it is answered with 408, and the connection ends. False when
    /// no request is being answered.
    pub fn give_up(&mut self) -> bool {
        self.is_answering() && !self.context.stalled.replace(true)
    }
    /// For saying how many bytes of responses wait for the socket.
    pub fn holding(&self) -> Holding {
        self.context.link.front().holding()
    }
}

impl<I: hyper::rt::Read + hyper::rt::Write + Unpin> Future for Connection<I> {
    type Output = hyper::Result<()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

/// A whole response for a connection that gets no session; `reply` is the error that says why.
pub fn refusal(reply: &[u8]) -> Vec<u8> {
    let text = reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii();
    let problem = match text.starts_with(b"DENIED") {
        true => Problem::of_reply(text),
        false => Problem::new(StatusCode::SERVICE_UNAVAILABLE, String::from_utf8_lossy(text)),
    };
    last_response(&problem)
}

/// What the parser's own response becomes, which has no body: the same with a problem document. `None` for any other.
/// `is_hello`: what it could not read was the begin of TLS.
pub fn of_parser(head: &[u8], is_hello: bool) -> Option<Vec<u8>> {
    let is_refusal = head.starts_with(b"HTTP/1.1 4");
    let find = |text: &[u8]| memchr::memmem::find(head, text).filter(|_| is_refusal);
    // All of what is to be written is one head.
    find(b"\r\n\r\n").filter(|end| end + 4 == head.len())?;
    find(b"\r\ncontent-length: 0\r\n")?;
    let status = StatusCode::from_bytes(head.get(9..12)?).ok()?;
    let detail = match status {
        _ if is_hello => "this port takes no TLS".to_string(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
            format!("the head of a request has at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} lines")
        }
        _ => "this is no request of HTTP/1.1, or where it ends is in doubt".to_string(),
    };
    Some(last_response(&Problem::new(status, detail)))
}

/// A whole response, after which the connection is closed.
fn last_response(problem: &Problem) -> Vec<u8> {
    let (status, document) = (problem.status, problem.document().to_string());
    let [(policy, own), (options, nosniff)] = origin::EMBEDDING;
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n{policy}: {own}\r\n\
         {options}: {nosniff}\r\nconnection: close\r\n\r\n{document}",
        document.len()
    )
    .into_bytes()
}

/// hyper's view of the routes.
struct Server {
    context: Rc<Context>,
}

impl Service<hyper::Request<Incoming>> for Server {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>>>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let context = self.context.clone();
        context.begun.set(context.begun.get() + 1);
        context.stalled.set(false);
        Box::pin(async move {
            let answered = match context.turn().await {
                Ok(()) => answer(context, request).await,
                Err(problem) => Err(problem),
            };
            let mut response = answered.unwrap_or_else(Problem::response);
            origin::forbid_embedding(response.headers_mut());
            Ok(response)
        })
    }
}

async fn answer(context: Rc<Context>, request: hyper::Request<Incoming>) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    origin::check(&parts, context.settings.peer_is_local)?;
    let Found { route, rest } = routes::find(&parts.method, parts.uri.path())?;
    let bytes_max = context.settings.body_bytes_max;
    if body.size_hint().lower() > bytes_max {
        return Err(Problem::too_large(bytes_max));
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    if route.needs_session {
        let db = query.number("db", 0, 0, i32::MAX as u64)?;
        let version = context.settings.users_version.0();
        context.link.enter(credentials(&parts.headers)?, version, db).await?;
    }
    let holding = context.link.front().holding();
    let request =
        Request { parts, query, body, body_bytes_left: bytes_max, holding, context: context.clone() };
    (route.run)(context, request, rest).await
}

impl From<Gone> for CutShort {
    fn from(_: Gone) -> CutShort {
        CutShort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parsers_own_answers_are_given_a_document() {
        let bare =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let text = |head: &str, hello| {
            of_parser(head.as_bytes(), hello).map(|r| String::from_utf8(r).expect("text"))
        };
        let long = text(bare, false).expect("the parser's");
        assert!(
            long.starts_with("HTTP/1.1 431 ") && long.contains("\"status\":431") && long.contains("65536")
        );
        assert!(text(bare, true).expect("the parser's").contains("takes no TLS"));
        let ok = "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        let ours = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
        for other in [ok, ours, &format!("{ours}{ok}"), &format!("{bare}{ok}"), "HTTP/1.1 4", ""] {
            assert_eq!(text(other, false), None, "{other}");
        }
    }
}
