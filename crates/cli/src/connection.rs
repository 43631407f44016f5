//! [`Connection`]: a connection to a server by TCP, TLS or a Unix socket, and its replies.

use crate::options::Target;
use crate::tls::TlsOptions;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::Duration;
use strand_chain::Chain;
use strand_dial::{DialError, DialOptions, Stream, TlsError};
use strand_wire::client::{ReplyParser, Value, encode_command};
use strand_wire::replica::{LineTooLong, take_line};

/// Why a command got no usable reply. Where redis-cli has a text, the text is redis-cli's.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The server closed the connection.
    #[error("Server closed the connection")]
    Closed,
    /// The server closed a connection without TLS before it sent a reply.
    #[error("Server closed the connection (if this is a TLS port, use --tls)")]
    ClosedAtOnce,
    /// The system could not read from or write to the connection.
    #[error("{}", system_text(.0))]
    Io(io::Error),
    /// The standard input, whose commands `--pipe` sends, cannot be read.
    #[error("Error reading from stdin: {}", system_text(.0))]
    Stdin(io::Error),
    /// The bytes from the server are not a reply of RESP.
    #[error("Protocol error, {0}")]
    Protocol(String),
    /// The server replied with this error.
    #[error("{0}")]
    ErrorReply(String),
    /// The reply has another type than a string.
    #[error("unexpected reply: expected a string")]
    NotAString,
    /// The server refused SCAN with this error.
    #[error("SCAN error: {0}")]
    ScanRefused(String),
    /// The file of a snapshot cannot be written.
    #[error("cannot write {}: {}", path.display(), system_text(error))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A snapshot cannot be written.
    #[error("cannot write the snapshot: {}", system_text(.0))]
    Output(io::Error),
    /// The reply of SCAN is not an array of a cursor and keys.
    #[error("Non ARRAY response from SCAN!")]
    NotAPage,
}

/// A connection to a server.
pub struct Connection {
    stream: Stream,
    input: Chain,
    parser: ReplyParser,
    /// True until the first reply, over TCP without TLS. A port with TLS sends an alert, which is no reply, and closes.
    may_lack_tls: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server accepts a connection at this address or socket.
    #[error("Could not connect to Redis at {address}: {}", system_text(.error))]
    Unreachable {
        /// The server's address, or the path of its socket.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// The TLS options cannot be used. No `source`, because the text includes the cause.
    #[error("Could not negotiate a TLS connection: {0}")]
    Tls(TlsError),
    /// The server does not complete the TLS handshake.
    #[error("Could not negotiate a TLS connection: {0}")]
    Handshake(io::Error),
}

impl Connection {
    /// Connects to the server, and completes the TLS handshake if TLS is requested.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn open(target: &Target) -> Result<Connection, ConnectError> {
        let options = DialOptions::default();
        let (address, dialed) = match &target.socket {
            Some(path) => (path.display().to_string(), Stream::unix(path, options)),
            None => {
                let (host, port) = (target.host.as_str(), target.port);
                let tls = target.tls.as_ref().map(TlsOptions::read).transpose().map_err(ConnectError::Tls)?;
                let dialed = (host, port)
                    .to_socket_addrs()
                    .map_err(DialError::Unreachable)
                    .and_then(|found| Stream::tcp(host, found, tls.as_ref(), options));
                (format!("{host}:{port}"), dialed)
            }
        };
        let stream = dialed.map_err(|error| match error {
            DialError::Unreachable(error) => ConnectError::Unreachable { address, error },
            DialError::Tls(error) => ConnectError::Tls(error),
            DialError::Handshake(error) => ConnectError::Handshake(error),
        })?;
        let mut parser = ReplyParser::new();
        parser.keep_double_text();
        let may_lack_tls = target.socket.is_none() && target.tls.is_none();
        Ok(Connection { stream, input: Chain::new(), parser, may_lack_tls })
    }
    /// Sends a command.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<(), ConnectionError> {
        let mut out = Vec::new();
        encode_command(&mut out, args);
        self.write(&out)
    }
    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(connection_error)
    }
    /// The next reply.
    ///
    /// # Errors
    /// When the connection ends first, or the bytes are not a reply.
    pub fn reply(&mut self) -> Result<Value, ConnectionError> {
        loop {
            if let Some(value) = self.buffered()? {
                return Ok(value);
            }
            self.fill()?;
        }
    }
    /// The next reply, if it has arrived.
    ///
    /// # Errors
    /// When the bytes are not a reply.
    pub fn buffered(&mut self) -> Result<Option<Value>, ConnectionError> {
        let reply = self.parser.next(&mut self.input).map_err(|e| ConnectionError::Protocol(e.0))?;
        self.may_lack_tls &= reply.is_none();
        Ok(reply)
    }
    /// Reads the bytes that have arrived. Waits at most as long as set by [`Connection::wait_at_most`]. Returns
    /// false when nothing arrived.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn fill(&mut self) -> Result<bool, ConnectionError> {
        let free = self.input.spare();
        match self.stream.read(free) {
            Ok(0) if self.may_lack_tls => Err(ConnectionError::ClosedAtOnce),
            Ok(0) => Err(ConnectionError::Closed),
            Ok(n) => {
                self.input.filled(n);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(e) => Err(connection_error(e)),
        }
    }
    /// The next line without its end. Empty lines, with which a server shows that it lives, are skipped.
    ///
    /// # Errors
    /// When the connection ends first, or the line is too long.
    pub fn line(&mut self) -> Result<Vec<u8>, ConnectionError> {
        loop {
            let line = take_line(&mut self.input).map_err(|LineTooLong| {
                ConnectionError::Protocol("a line of the server is too long".into())
            })?;
            match line {
                Some(line) => return Ok(line),
                None => _ = self.fill()?,
            }
        }
    }
    /// Some of the next bytes: at least one, and at most `bytes_max`.
    ///
    /// # Errors
    /// When the connection ends first.
    pub fn take_bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, ConnectionError> {
        while self.input.is_empty() {
            self.fill()?;
        }
        let front = self.input.front();
        let taken = front[..front.len().min(bytes_max)].to_vec();
        self.input.advance(taken.len());
        Ok(taken)
    }
    /// Limits the wait of [`Connection::fill`].
    ///
    /// # Errors
    /// Errors of the system.
    pub fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(time)
    }
    /// A second handle to the connection for writing, so that one thread can write while another reads. `None` for TLS,
    /// or when the system cannot clone the socket.
    pub fn writer(&self) -> Option<Box<dyn Write + Send>> {
        self.stream.writer()
    }
    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn ask<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<Value, ConnectionError> {
        self.send(args)?;
        loop {
            match self.reply()? {
                Value::Push(_) => {}
                reply => return Ok(reply),
            }
        }
    }
}

fn connection_error(e: io::Error) -> ConnectionError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => ConnectionError::Closed,
        _ => ConnectionError::Io(e),
    }
}

/// The system's error text without the prefix and the error number that Rust adds, as redis-cli prints it.
fn system_text(e: &io::Error) -> String {
    let text = e.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.split(" (os error ").next().unwrap_or(text).to_string()
}
