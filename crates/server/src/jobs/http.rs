//! The service's HTTP interface: `/v1/jobs`, and `/metrics` for Prometheus.
//!
//! A request must carry the token of the file. Without a token in the file, the request must come from this
//! machine, and its Host header must be an IP address or localhost. A request that a browser sends for a page of another
//! site is refused. So no page can act for the browser's user.
//!
//! A connection carries one request, and has a time limit. If all places are taken, the oldest connection without a
//! permitted request gives way. So connections that only wait cannot keep users out.

use super::{Service, ServiceError, now_ms};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strand_import::jobs::{DefinitionError, Work};
use subtle_eq::is_equal;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// Maximum size of a request's body, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The path of the figures for Prometheus, and their media type.
const METRICS: &str = "/metrics";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Time limit for reading the HTTP head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for reading the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for sending a response. The list of all jobs has up to some megabytes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a connection, which carries one request.
const CONNECTION_TIMEOUT: Duration =
    Duration::from_secs(HEAD_TIMEOUT.as_secs() + BODY_TIMEOUT.as_secs() + RESPONSE_TIMEOUT.as_secs());
/// Maximum number of connections at once. For one more, the oldest connection without a permitted request ends. If all
/// have a permitted request, the further connection waits.
const CONNECTIONS_MAX: usize = 256;

/// Starts the HTTP server of the service, and returns the server's address.
pub(super) fn open(listen: &SocketAddr, service: Arc<Service>) -> Result<SocketAddr, ServiceError> {
    let failed = |error| ServiceError::Listen { address: *listen, error };
    let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let spawned = std::thread::Builder::new().name("jobs-http".to_owned()).spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket that does not block");
            accept(listener, &service).await;
        });
    });
    spawned.map_err(failed)?;
    Ok(address)
}

/// Accepts connections, and serves each connection in a task.
async fn accept(listener: tokio::net::TcpListener, service: &Arc<Service>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // The connections in the order in which they were accepted.
    let mut clients = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        clients.retain(Client::is_stranger);
        if places.available_permits() == 0
            && let Some(client) = clients.pop_front()
        {
            client.task.abort();
        }
        let place = places.clone().acquire_owned().await;
        let is_permitted = Arc::new(AtomicBool::new(false));
        let (service, permitted) = (service.clone(), is_permitted.clone());
        let task = tokio::spawn(async move {
            let answer = service_fn(|request| answer(request, service.clone(), permitted.clone()));
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
            let served = server.serve_connection(TokioIo::new(stream), answer);
            // Ignore the error, because an error of one client does not matter to the other clients.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            drop(place);
        });
        clients.push_back(Client { task: task.abort_handle(), is_permitted });
    }
}

/// A connection, as the loop that accepts connections knows it.
struct Client {
    /// The task that serves the connection.
    task: AbortHandle,
    /// True once the connection has had a permitted request.
    is_permitted: Arc<AtomicBool>,
}

impl Client {
    /// True while the connection is open and has had no permitted request.
    fn is_stranger(&self) -> bool {
        !self.task.is_finished() && !self.is_permitted.load(Ordering::Relaxed)
    }
}

/// Answers a request. Sets `is_permitted` when the client may use the service.
async fn answer(
    request: Request<Incoming>,
    service: Arc<Service>,
    is_permitted: Arc<AtomicBool>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let path = head.uri.path();
    // The response to HEAD is the response to GET. hyper leaves out the body.
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    let (status, content) = match check_access(service.token.as_deref(), header(AUTHORIZATION), header(HOST))
    {
        Err((status, text)) => (status, problem(text)),
        Ok(()) if strand_http::is_foreign(&head.headers) => {
            (StatusCode::FORBIDDEN, problem("a page of another site may not use this service"))
        }
        Ok(()) => {
            is_permitted.store(true, Ordering::Relaxed);
            match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
                Err(_) => (StatusCode::REQUEST_TIMEOUT, problem("the body did not arrive in time")),
                Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, problem("the body is too large or incomplete")),
                Ok(Ok(body)) => service.handle(method, path, &body.to_bytes()),
            }
        }
    };
    let is_metrics = status == StatusCode::OK && path == METRICS;
    let (media, text) = match content {
        Value::String(text) if is_metrics => (PROMETHEUS, text),
        content => ("application/json", format!("{content}\n")),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    match status {
        StatusCode::UNAUTHORIZED => {
            drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            drop(headers.insert(ALLOW, HeaderValue::from_static(methods_of(path))))
        }
        _ => {}
    }
    Ok(response)
}

/// The methods that a path of the service supports, as the header `Allow` lists them.
fn methods_of(path: &str) -> &'static str {
    match path.strip_prefix("/v1/jobs").map(split_path) {
        Some(("", _)) | Some((_, "errors")) | None => "GET, HEAD",
        Some((_, "")) => "GET, HEAD, PUT, DELETE",
        Some(_) => "POST",
    }
}

/// The name of the job, and what is wanted of the job, in a path below `/v1/jobs`.
fn split_path(rest: &str) -> (&str, &str) {
    let rest = rest.trim_start_matches('/');
    rest.split_once('/').unwrap_or((rest, ""))
}

/// Checks that the client may use the service. `authorization` and `host` are the headers of these names.
fn check_access(
    token: Option<&str>,
    authorization: Option<&str>,
    host: Option<&str>,
) -> Result<(), (StatusCode, &'static str)> {
    if let Some(token) = token {
        let (scheme, given) = authorization.and_then(|text| text.split_once(' ')).unwrap_or_default();
        return if scheme.eq_ignore_ascii_case("Bearer") && is_equal(given, token) {
            Ok(())
        } else {
            Err((
                StatusCode::UNAUTHORIZED,
                "expected the header `Authorization: Bearer` with the token of the configuration file",
            ))
        };
    }
    let host = host.unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let is_address = name.parse::<IpAddr>().is_ok() || name == "localhost";
    if is_address {
        Ok(())
    } else {
        Err((
            StatusCode::FORBIDDEN,
            "the Host header names another machine: expected localhost or an IP address",
        ))
    }
}

/// Compares two strings in a time that is equal for all strings of one length.
mod subtle_eq {
    pub(super) fn is_equal(a: &str, b: &str) -> bool {
        a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

fn problem(text: &str) -> Value {
    json!({"error": text})
}

impl Service {
    fn handle(self: &Arc<Self>, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let bad = |text: String| (StatusCode::BAD_REQUEST, problem(&text));
        let unsupported = || {
            let text = format!("this path supports {}", methods_of(path));
            (StatusCode::METHOD_NOT_ALLOWED, problem(&text))
        };
        if path == METRICS {
            return match *method {
                Method::GET => (StatusCode::OK, Value::String(self.lock().board.metrics())),
                _ => unsupported(),
            };
        }
        let Some(rest) = path.strip_prefix("/v1/jobs") else {
            return (
                StatusCode::NOT_FOUND,
                problem("there is nothing at this path: expected /v1/jobs or /metrics"),
            );
        };
        let (name, what) = split_path(rest);
        if name.is_empty() {
            return match *method {
                Method::GET => (StatusCode::OK, self.lock().board.list(now_ms())),
                _ => unsupported(),
            };
        }
        let mut state = self.lock();
        if state.board.definition(name).is_none() && *method != Method::PUT {
            return (StatusCode::NOT_FOUND, problem(&format!("there is no job {name:?}")));
        }
        let done = match (method, what) {
            (&Method::GET, "") => {
                return (StatusCode::OK, state.board.show(name, now_ms()).unwrap_or_default());
            }
            (&Method::GET, "errors") => {
                return (StatusCode::OK, state.board.errors(name).unwrap_or_default());
            }
            (&Method::PUT | &Method::DELETE, "") if state.fixed.contains(name) => {
                let text = format!(
                    "the job {name:?} is defined in the configuration file: change or remove it there"
                );
                return (StatusCode::CONFLICT, problem(&text));
            }
            (&Method::PUT, "") => {
                let definition = match serde_json::from_slice::<Value>(body) {
                    Ok(Value::Object(mut definition)) => {
                        definition.insert("name".to_owned(), name.into());
                        super::config::definition(definition)
                    }
                    _ => Err(DefinitionError::NoObject),
                };
                match definition {
                    Ok(definition) => state.board.put(definition, now_ms()).map(|()| Vec::new()),
                    Err(error) => return bad(error.to_string()),
                }
            }
            (&Method::DELETE, "") => state.board.remove(name),
            (&Method::POST, "run") => state.board.run(name, Work::Import).map(|()| Vec::new()),
            (&Method::POST, "retry") => state.board.run(name, Work::Retry).map(|()| Vec::new()),
            (&Method::POST, "pause") => state.board.pause(name),
            (&Method::POST, "resume") => state.board.resume(name),
            (&Method::POST, "cancel") => state.board.cancel(name),
            (_, "" | "errors" | "run" | "retry" | "pause" | "resume" | "cancel") => return unsupported(),
            _ => {
                return (
                    StatusCode::NOT_FOUND,
                    problem("unknown action: expected errors, run, retry, pause, resume or cancel"),
                );
            }
        };
        match done {
            Err(error) => (StatusCode::CONFLICT, problem(&error.to_string())),
            Ok(actions) => {
                self.apply(&mut state, actions);
                self.watch(&mut state);
                // Save the state, because an accepted change must survive the end of the service.
                state.is_dirty = true;
                let saved = self.save(&mut state);
                let shown = state.board.show(name, now_ms()).unwrap_or(Value::Null);
                drop(state);
                self.changed.notify_all();
                match saved {
                    Ok(()) => (StatusCode::OK, shown),
                    Err(why) => {
                        let text = format!(
                            "the change is in effect, but could not be saved. It is lost when the service ends: {why}"
                        );
                        (StatusCode::INSUFFICIENT_STORAGE, problem(&text))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::{Condvar, Mutex};
    use strand_import::jobs::Board;

    /// Starts the HTTP server of a service with the token `t`.
    fn opened(folder: &std::path::Path) -> SocketAddr {
        let state = State {
            board: Board::new(64 << 20, 1, Vec::new(), 0),
            processes: BTreeMap::new(),
            fixed: BTreeSet::new(),
            watched: BTreeSet::new(),
            is_dirty: false,
            save_error: None,
        };
        let service = Service {
            state: Mutex::new(state),
            changed: Condvar::new(),
            folder: folder.to_owned(),
            binary: folder.to_owned(),
            token: Some("t".to_owned()),
        };
        open(&SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(service)).unwrap()
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(CONNECTION_TIMEOUT)).unwrap();
        stream
    }

    /// Sends bytes, and reads until the service closes the connection.
    fn ask(address: SocketAddr, request: &str) -> String {
        let (mut stream, mut answer) = (connect(address), String::new());
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn strangers_do_not_keep_users_out() {
        let folder = tempfile::tempdir().unwrap();
        let address = opened(folder.path());
        let user = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n";
        let mut idle: Vec<_> = (0..CONNECTIONS_MAX + 20).map(|_| connect(address)).collect();
        assert!(ask(address, user).starts_with("HTTP/1.1 200 "));
        // The user did not wait until all idle connections had ended: the latest one is open.
        let latest = idle.last_mut().expect("there are some");
        latest.set_nonblocking(true).unwrap();
        let read = latest.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(std::io::ErrorKind::WouldBlock));
        drop(idle);
    }

    #[test]
    fn a_connection_carries_one_request() {
        let folder = tempfile::tempdir().unwrap();
        let address = opened(folder.path());
        for authorization in ["", "Authorization: bearer t\r\n"] {
            let request = format!("GET /v1/jobs HTTP/1.1\r\nHost: x\r\n{authorization}\r\n");
            let answer = ask(address, &request.repeat(2));
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
            assert!(answer.contains("connection: close\r\n"), "{answer}");
        }
    }

    #[test]
    fn statuses_come_with_their_headers() {
        let folder = tempfile::tempdir().unwrap();
        let address = opened(folder.path());
        let get = |line: &str, authorization: &str| {
            let answer = ask(address, &format!("{line} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n"));
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            (head.to_owned(), body.to_owned())
        };
        for wrong in ["", "Authorization: Bearer u\r\n", "Authorization: Basic t\r\n"] {
            let (head, _) = get("GET /v1/jobs", wrong);
            assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("www-authenticate: Bearer"), "{head}");
        }
        let token = "Authorization: BEARER t\r\n";
        for path in ["/v1/jobs", "/metrics"] {
            let ((head, none), (_, body)) =
                (get(&format!("HEAD {path}"), token), get(&format!("GET {path}"), token));
            assert!(head.starts_with("HTTP/1.1 200 ") && none.is_empty(), "{head} {none}");
            // The held memory is part of the metrics, so only the list has a fixed length.
            assert!(
                path == "/metrics" || head.contains(&format!("content-length: {}", body.len())),
                "{head}"
            );
            let (head, _) = get(&format!("PATCH {path}"), token);
            assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("allow: GET, HEAD"), "{head}");
        }
        for (path, methods) in [
            ("/v1/jobs/", "GET, HEAD"),
            ("/v1/jobs/a", "GET, HEAD, PUT, DELETE"),
            ("/v1/jobs/a/errors", "GET, HEAD"),
            ("/v1/jobs/a/run", "POST"),
        ] {
            assert_eq!(methods_of(path), methods, "{path}");
        }
    }

    #[test]
    fn requests_without_token_or_from_other_hosts_are_refused() {
        for host in ["127.0.0.1:8390", "localhost", "[::1]:8390"] {
            assert!(check_access(None, None, Some(host)).is_ok(), "{host}");
        }
        for host in [None, Some("evil.example:8390"), Some("127.0.0.1.evil.example")] {
            assert!(check_access(None, None, host).is_err(), "{host:?}");
        }
        for good in ["Bearer t", "bearer t"] {
            assert!(check_access(Some("t"), Some(good), Some("evil.example")).is_ok(), "{good}");
        }
        for bad in [None, Some("Bearer "), Some("Bearer u"), Some("t"), Some(" t"), Some("Bearer tt")] {
            let refused = check_access(Some("t"), bad, Some("localhost")).map_err(|(status, _)| status);
            assert_eq!(refused, Err(StatusCode::UNAUTHORIZED), "{bad:?}");
        }
    }
}
