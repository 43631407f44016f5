//! Figures and slow commands for an OpenTelemetry collector (`otlp-endpoint`), over HTTP, in OTLP's JSON.
//!
//! The messages are small and sent every [`STEP`]. The opentelemetry crates would add 49 others for two JSON
//! bodies. An unreachable collector costs only a timeout on this thread. Its messages are lost, which is
//! acceptable.

use super::ticker::Ticker;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use strand_engine::config::http_parts;
use strand_engine::{Engine, OtlpCursor};

/// Time between two messages.
const STEP: Duration = Duration::from_secs(5);
/// Time limit of each step: connecting, reading and writing.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a response that are read, because only the first line of the response is used.
const ANSWER_BYTES_MAX: usize = 256;

/// Starts the thread that sends messages while `otlp-endpoint` is set.
///
/// # Errors
/// When the system gives no thread.
pub fn ticker(engine: Arc<Engine>) -> io::Result<Ticker> {
    let mut cursor = OtlpCursor::default();
    let mut last_error = None;
    Ticker::start("otlp", move || {
        let endpoint = engine.config().otlp_endpoint();
        if endpoint.is_empty() {
            return STEP;
        }
        let bodies =
            [("/v1/metrics", engine.otlp_metrics()), ("/v1/traces", engine.otlp_traces(&mut cursor))];
        let sent = bodies.iter().filter_map(|(path, body)| Some((path, body.as_ref()?)));
        let result = sent.map(|(path, body)| post(&endpoint, path, body)).find_map(Result::err);
        let result = result.map(|error| error.to_string());
        // Log an error only when it differs from the last one.
        if result != last_error {
            match &result {
                Some(why) => {
                    tracing::warn!("the OpenTelemetry collector {endpoint} cannot be reached: {why}")
                }
                None => tracing::info!("the OpenTelemetry collector {endpoint} can be reached again"),
            }
            last_error = result;
        }
        STEP
    })
}

/// Why a message did not reach the collector.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("the host name of otlp-endpoint has no address")]
    NoAddress,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the collector answered {line:?}: expected the status 200", line = .0.escape_default().to_string())]
    Status(String),
}

fn post(endpoint: &str, path: &str, body: &str) -> Result<(), PostError> {
    let Some((host, prefix)) = http_parts(endpoint) else {
        unreachable!("the value of otlp-endpoint has been checked")
    };
    let address = host.to_socket_addrs()?.next().ok_or(PostError::NoAddress)?;
    let mut stream = TcpStream::connect_timeout(&address, STEP_TIMEOUT)?;
    stream
        .set_write_timeout(Some(STEP_TIMEOUT))
        .and_then(|()| stream.set_read_timeout(Some(STEP_TIMEOUT)))?;
    let head = format!(
        "POST {prefix}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut length = 0;
    while length < answer.len() && !answer[..length].contains(&b'\n') {
        match stream.read(&mut answer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    let answer = String::from_utf8_lossy(&answer[..length]);
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        _ => Err(PostError::Status(line.to_owned())),
    }
}
