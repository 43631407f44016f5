//! [`Connection`]: an HTTP connection as a future, built from hyper, a pipe to a session, and the routes.
//!
//! Requests of a connection are answered in order, one at a time: hyper reads the next head when the last response
//! is sent. hyper refuses broken heads, conflicting lengths, bad chunking and heads over [`HEAD_BYTES_MAX`] (400,
//! 431). This crate answers everything else; errors are problem documents.

use crate::auth::credentials;
use crate::body::Outgoing;
use crate::exchange::{Context, Request, Response, Settings};
use crate::origin;
use crate::pipe::{Holding, HttpEnd};
use crate::problem::{PROBLEM_JSON, Problem};
use crate::query::Query;
use crate::request_body::RequestBody;
use crate::route::Found;
use crate::routes;
use crate::session_client::SessionClient;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};

/// Maximum length of an HTTP head, in bytes. Also the maximum number of bytes that are read ahead of a request.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of header lines of a request.
pub const HEADERS_MAX: usize = 100;
/// Maximum `Content-Length` that the HTTP parser reads. The parser answers the two larger numbers of 64 bits as it
/// answers a large head, and its response does not tell which of the limits was passed.
const CONTENT_LENGTH_MAX: u64 = u64::MAX - 2;

/// Serves HTTP on one connection.
pub struct Connection<I: hyper::rt::Read + hyper::rt::Write + Unpin> {
    inner: http1::Connection<I, Server>,
    context: Rc<Context>,
}

impl<I: hyper::rt::Read + hyper::rt::Write + Unpin> Connection<I> {
    /// Serves `io` with the session behind `http_end`. `io` must share `outgoing`.
    pub fn new(io: I, http_end: HttpEnd, settings: Settings, outgoing: Outgoing) -> Connection<I> {
        let context = Rc::new(Context::new(SessionClient::new(http_end), settings, outgoing));
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).half_close(false);
        builder.keep_alive(context.settings.refusal.is_none());
        let inner = builder.serve_connection(io, Server { context: context.clone() });
        Connection { inner, context }
    }
    /// Ends the connection after the current response, or at once when there is none.
    pub fn end_gracefully(&mut self) {
        self.context.set_ending();
        Pin::new(&mut self.inner).graceful_shutdown();
    }
    /// Number of requests that have started. Changes with every request.
    pub fn requests(&self) -> u64 {
        self.context.requests_started()
    }
    /// True while the session has unread commands.
    pub fn has_unread_commands(&self) -> bool {
        self.context.session.http_end().is_waiting()
    }
    /// True when a request that waited until the client reads can continue. Poll the connection again then.
    pub fn can_continue(&self) -> bool {
        self.context.can_continue()
    }
    /// True after a successful login, until a login fails.
    pub fn is_logged_in(&self) -> bool {
        self.context.session.is_logged_in()
    }
    /// True while a request is being answered.
    pub fn is_answering(&self) -> bool {
        // The connection and the service hold one reference each. A request that is being answered holds a third.
        Rc::strong_count(&self.context) > 2
    }
    /// True while the session works or the response pauses, so the client can only wait.
    pub fn is_busy(&self) -> bool {
        self.context.session.is_working() || self.context.is_pausing()
    }
    /// True when the session has ended.
    pub fn has_lost_session(&self) -> bool {
        self.context.session.http_end().has_session_ended()
    }
    /// Stops waiting for the rest of a request's body. The request is answered with 408 and the connection ends.
    /// Returns false when no request is being answered.
    pub fn stop_waiting(&mut self) -> bool {
        self.is_answering() && self.context.stop_waiting()
    }
    /// A counter for response bytes that wait for the socket.
    pub fn holding(&self) -> Holding {
        self.context.session.http_end().holding()
    }
}

impl<I: hyper::rt::Read + hyper::rt::Write + Unpin> Future for Connection<I> {
    type Output = hyper::Result<()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<hyper::Result<()>> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

/// A whole response for a connection that gets no session. `reply` is the error reply with the reason.
pub fn refusal(reply: &[u8]) -> Vec<u8> {
    last_response(&problem_of_refusal(reply))
}

/// True when the error reply `reply` refuses the address of the client, and not only a further session.
pub fn is_denial(reply: &[u8]) -> bool {
    reply.strip_prefix(b"-").unwrap_or(reply).starts_with(b"DENIED")
}

/// The problem for a request that needs a session, on a connection that gets none. `reply` is the error reply.
fn problem_of_refusal(reply: &[u8]) -> Problem {
    let text = reply.strip_prefix(b"-").unwrap_or(reply).trim_ascii();
    match is_denial(text) {
        true => Problem::of_reply(text),
        false => Problem::new(StatusCode::SERVICE_UNAVAILABLE, String::from_utf8_lossy(text)),
    }
}

/// Adds a problem document to a bodyless response of the HTTP parser; `None` for any other response. `is_hello`:
/// the parser failed on the start of a TLS handshake.
pub fn of_parser(head: &[u8], is_hello: bool) -> Option<Vec<u8>> {
    let is_refusal = head.starts_with(b"HTTP/1.1 4");
    let find = |text: &[u8]| memchr::memmem::find(head, text).filter(|_| is_refusal);
    // Check that `head` is exactly one HTTP head, without a body.
    find(b"\r\n\r\n").filter(|end| end + 4 == head.len())?;
    find(b"\r\ncontent-length: 0\r\n")?;
    let status = StatusCode::from_bytes(head.get(9..12)?).ok()?;
    let detail = match status {
        _ if is_hello => "this port does not accept TLS".to_string(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
            format!(
                "the head of a request has at most {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} lines, \
                 and its Content-Length is at most {CONTENT_LENGTH_MAX}"
            )
        }
        _ => "this is not an HTTP/1.1 request, or the end of the request is ambiguous".to_string(),
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

/// Connects hyper with the routes, for one connection.
struct Server {
    context: Rc<Context>,
}

impl Service<hyper::Request<Incoming>> for Server {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>>>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let context = self.context.clone();
        context.start_request();
        let (parts, body) = request.into_parts();
        let body = RequestBody::new(body, &parts.headers);
        Box::pin(async move {
            let answered = match context.wait_for_reader().await {
                Ok(()) => answer(context.clone(), parts, body.clone()).await,
                Err(problem) => Err(problem),
            };
            let mut response = answered.unwrap_or_else(Problem::response);
            if !response.headers().contains_key(CONNECTION) && !body.read_rest(&context).await {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            origin::forbid_embedding(response.headers_mut());
            Ok(response)
        })
    }
}

async fn answer(context: Rc<Context>, parts: Parts, body: RequestBody) -> Result<Response, Problem> {
    // The door decodes no body (RFC 9112, section 6.1). Several headers count as one list.
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let is_known = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    if !is_known {
        let detail = "the Transfer-Encoding is not supported: expected chunked";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail).closing());
    }
    // A body whose encoding is dropped would be stored as a value that nobody can read.
    let mut encodings = parts.headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let detail = "the Content-Encoding is not supported: expected identity, or no such header";
        return Err(
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).header(ACCEPT_ENCODING, "identity")
        );
    }
    origin::check(&parts, context.settings.peer_is_local)?;
    let Found { route, rest } = routes::find(&parts.method, parts.uri.path())?;
    let bytes_max = context.settings.body_bytes_max;
    if body.size_hint().lower() > bytes_max {
        return Err(Problem::too_large(bytes_max));
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    if route.needs_session {
        if let Some(reply) = &context.settings.refusal {
            return Err(problem_of_refusal(reply).closing());
        }
        let db = query.number("db", 0, 0, i32::MAX as u64)?;
        let version = context.settings.users_version.0();
        context.session.log_in(credentials(&parts.headers)?, version, db).await?;
    }
    let request = Request::new(context.clone(), parts, query, body);
    (route.run)(context, request, rest).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_responses_of_the_parser_get_a_problem_document() {
        let bare =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let text = |head: &str, hello| {
            of_parser(head.as_bytes(), hello).map(|r| String::from_utf8(r).expect("text"))
        };
        let long = text(bare, false).expect("the parser's");
        assert!(
            long.starts_with("HTTP/1.1 431 ") && long.contains("\"status\":431") && long.contains("65536")
        );
        assert!(text(bare, true).expect("the parser's").contains("does not accept TLS"));
        let ok = "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        let ours = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
        for other in [ok, ours, &format!("{ours}{ok}"), &format!("{bare}{ok}"), "HTTP/1.1 4", ""] {
            assert_eq!(text(other, false), None, "{other}");
        }
    }
}
