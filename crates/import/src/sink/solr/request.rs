//! Update requests to Solr. The body of a request is sent while it is made, over persistent connections.
//!
//! The HTTP client runs on a thread of its own. The importer's thread pushes chunks, and waits for answers. The length
//! of a body is not known in advance, so the body has the chunked transfer coding of HTTP/1.1.

use crate::requests::SentRequest;
use bytes::Bytes;
use http_body::{Body, Frame};
use reqwest::Url;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time from the end of the request to the response. It is also the maximum time for which the server may
/// accept no bytes of the request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Minimum time to wait for a response, also when no patience is left.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// TCP keepalive: a connection without traffic is probed after this time, and then at this interval.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Maximum time for which an unused connection is kept. Solr keeps it longer.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of chunks of a body that wait to be sent.
const CHUNKS_WAITING_MAX: usize = 8;
/// Maximum number of bytes of a response that are kept.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum number of characters of a response that are reported.
const REPORTED_CHARS_MAX: usize = 500;

/// The HTTP status and the text of a response, or the reason why there is no response.
pub(super) type Answer = Result<(u16, String), NoAnswer>;

/// Why there is no response to a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// The library's error with its causes, without the URL.
    #[error("{0}")]
    Http(String),
    /// The response says success, but it is not Solr's: a page for a login, for instance.
    #[error("{status}: the response is not Solr's: expected JSON with responseHeader.status 0, not {text}")]
    NotSolr { status: u16, text: String },
    /// The server did not take the request, or did not respond to it, within this time.
    #[error("the server did not answer within {:.0} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The client's thread ended before the response arrived.
    #[error("the HTTP client stopped before the server answered")]
    Stopped,
}

/// Sends requests to the servers of a collection.
pub(super) struct Client {
    client: reqwest::Client,
    handle: tokio::runtime::Handle,
    /// The thread ends when this sender is dropped.
    _stop: oneshot::Sender<()>,
    servers: Vec<Url>,
    server: usize,
}

/// A request that is not sent completely, or whose response has not arrived.
#[derive(Debug)]
pub(super) struct Pending {
    body: Option<mpsc::Sender<Bytes>>,
    answer: oneshot::Receiver<Answer>,
    handle: tokio::runtime::Handle,
    /// Ends the request.
    task: tokio::task::AbortHandle,
    /// The time for which the server took no chunk, when the request was ended for that reason.
    silent: Option<Duration>,
}

impl Client {
    /// Starts the thread of the client.
    pub(super) fn open(servers: &[Url]) -> std::io::Result<Client> {
        // Fails if the process has a provider already. Then that provider is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(ANSWER_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_user_timeout(ANSWER_TIMEOUT)
            .pool_idle_timeout(IDLE_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("strand/", env!("CARGO_PKG_VERSION")));
        let client = client.build().map_err(std::io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        std::thread::Builder::new().name("solr".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Client { client, handle, _stop: stop, servers: servers.to_vec(), server: 0 })
    }

    /// Sends the next request to the next server.
    pub(super) fn next_server(&mut self) {
        self.server = (self.server + 1) % self.servers.len();
    }

    /// The server that gets the requests now, without user and password.
    pub(super) fn shown(&self) -> String {
        let mut url = self.servers[self.server].clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.to_string()
    }

    /// Host and port of the server that gets the requests now.
    fn host(&self) -> String {
        let url = &self.servers[self.server];
        let host = url.host_str().unwrap_or_default();
        url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Begins a request whose body follows in chunks.
    pub(super) fn begin(&self) -> Pending {
        let (body, chunks) = mpsc::channel(CHUNKS_WAITING_MAX);
        let (answer_sender, answer) = oneshot::channel();
        let mut url = self.servers[self.server].clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push("update");
        }
        url.set_query(Some("wt=json"));
        let request = self.client.post(url).header("Content-Type", "text/xml; charset=utf-8");
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let request = request.body(reqwest::Body::wrap(Chunks { chunks, sent_bytes: sent_bytes.clone() }));
        let sent_request = SentRequest::new("POST", &self.host(), 0);
        let task = self.handle.spawn(async move {
            let _ = answer_sender.send(send_request(request, sent_request, &sent_bytes).await);
        });
        let (handle, task) = (self.handle.clone(), task.abort_handle());
        Pending { body: Some(body), answer, handle, task, silent: None }
    }

    /// Sends a message and waits for the response, at most for `limit` in all: see [`Pending::answer`].
    pub(super) fn send(&self, message: Vec<u8>, limit: Duration) -> Answer {
        let (begun, mut pending) = (Instant::now(), self.begin());
        pending.push(message, limit);
        pending.end();
        pending.answer(limit.saturating_sub(begun.elapsed()))
    }
}

impl Pending {
    /// Adds a chunk to the body. Waits at most for `limit` until the server takes earlier chunks, with the bounds of
    /// [`Pending::answer`]. If the request has failed already, or fails now, the chunk is dropped: [`Pending::answer`]
    /// returns the reason.
    pub(super) fn push(&mut self, chunk: Vec<u8>, limit: Duration) {
        let limit = bounded(limit);
        let Some(body) = &self.body else { return };
        let sent = self.handle.block_on(async { tokio::time::timeout(limit, body.send(chunk.into())).await });
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.body = None,
            Err(_) => {
                // The request must not end as if its body were whole.
                self.task.abort();
                self.silent = Some(limit);
                self.body = None;
            }
        }
    }

    /// Ends the body.
    pub(super) fn end(&mut self) {
        self.body = None;
    }

    /// Waits for the response, at most for `limit`. The wait is never shorter than [`ANSWER_TIMEOUT_MIN`], and never
    /// longer than [`ANSWER_TIMEOUT`].
    pub(super) fn answer(mut self, limit: Duration) -> Answer {
        self.end();
        if let Some(silent) = self.silent {
            return Err(NoAnswer::Silent(silent));
        }
        let (limit, answer) = (bounded(limit), &mut self.answer);
        let answered = self.handle.block_on(async { tokio::time::timeout(limit, answer).await });
        match answered {
            Ok(answer) => answer.unwrap_or(Err(NoAnswer::Stopped)),
            Err(_) => {
                self.task.abort();
                Err(NoAnswer::Silent(limit))
            }
        }
    }
}

fn bounded(limit: Duration) -> Duration {
    limit.clamp(ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT)
}

async fn send_request(
    request: reqwest::RequestBuilder,
    mut sent_request: SentRequest,
    sent_bytes: &AtomicU64,
) -> Answer {
    let answered = request.send().await;
    sent_request.add_sent_bytes(sent_bytes.load(Relaxed));
    let mut response = answered.map_err(failed)?;
    let status = response.status().as_u16();
    sent_request.answered(status, response.content_length());
    let mut text = Vec::new();
    // Read the response to its end, so that the connection can be used again.
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        let room = ANSWER_BYTES_MAX.saturating_sub(text.len());
        text.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    if (200..300).contains(&status) && !is_success(&text) {
        return Err(NoAnswer::NotSolr { status, text: message(&text) });
    }
    Ok((status, message(&text)))
}

/// True when a response with a status of success is Solr's, and says that Solr has done what was requested.
fn is_success(text: &[u8]) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let status = parsed.as_ref().and_then(|answer| answer.get("responseHeader")?.get("status")?.as_i64());
    status == Some(0)
}

/// Solr's error message in a response, or the beginning of a response without such a message, as one line.
fn message(text: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(text).ok();
    let message = parsed.as_ref().and_then(|answer| answer.get("error")?.get("msg")?.as_str());
    let message = message.map_or_else(|| String::from_utf8_lossy(text), Into::into);
    message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REPORTED_CHARS_MAX).collect()
}

/// The text of the library's error and of its causes, without the URL, which may have a password in it.
fn failed(error: reqwest::Error) -> NoAnswer {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    // Report at most ten causes.
    for _ in 0..10 {
        let Some(inner) = cause else { break };
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    NoAnswer::Http(text)
}

/// A body whose chunks arrive over a channel.
struct Chunks {
    chunks: mpsc::Receiver<Bytes>,
    /// Bytes that were given to the connection.
    sent_bytes: Arc<AtomicU64>,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = ready!(self.chunks.poll_recv(cx));
        let bytes = chunk.as_ref().map_or(0, Bytes::len);
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_program_is_no_success() {
        assert!(is_success(br#"{"responseHeader":{"status":0,"QTime":3}}"#));
        for other in ["<html>Log in</html>", "", "{}", "0", r#"{"responseHeader":{"status":500}}"#] {
            assert!(!is_success(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn errors_include_solrs_message() {
        let answer = br#"{"responseHeader":{"status":400},"error":{"msg":"ERROR: [doc=x]\n unknown field","code":400}}"#;
        assert_eq!(message(answer), "ERROR: [doc=x] unknown field");
        assert_eq!(message(b"<html>\n no </html>"), "<html> no </html>");
        assert_eq!(message(&[b'x'; 9000]).len(), REPORTED_CHARS_MAX);
    }
}
