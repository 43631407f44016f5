//! The client side of the service, for the command line.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time limit of each step: connecting, reading and writing.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Why the service did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The connection cannot be opened, or broke.
    #[error("cannot reach the service at {address}: {error}")]
    Io {
        /// The address of the service.
        address: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// The name of the host has no address.
    #[error("the host of {0} has no address")]
    NoAddress(String),
    /// Another program answers at this address.
    #[error("the program that answers at {0} is not `strand jobs serve`: check the address")]
    NoService(String),
    /// The service's own error.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to the service at `address`, and returns its answer.
///
/// # Errors
/// When the service cannot be reached, or answers with an error.
pub fn ask(
    address: &str,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, AskError> {
    let failed = |error| AskError::Io { address: address.to_owned(), error };
    // A name may have addresses of both families, and the service listens at one of them.
    let mut connected = Err(AskError::NoAddress(address.to_owned()));
    for resolved in address.to_socket_addrs().map_err(failed)? {
        connected =
            TcpStream::connect_timeout(&resolved, TIMEOUT).map(|stream| (resolved, stream)).map_err(failed);
        if connected.is_ok() {
            break;
        }
    }
    let (resolved, mut stream) = connected?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {resolved}\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
    // The service either sends a length or closes the connection. It never sends chunks.
    let odd = || AskError::NoService(address.to_owned());
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(odd)?;
    let (head, body) = answer.split_at(at + 4);
    let status = std::str::from_utf8(head).ok().and_then(|head| head.split(' ').nth(1)?.parse::<u16>().ok());
    let said: Value = serde_json::from_slice(body).map_err(|_| odd())?;
    match status {
        Some(200) => Ok(said),
        _ => Err(said["error"].as_str().map_or_else(odd, |text| AskError::Refused(text.to_owned()))),
    }
}
