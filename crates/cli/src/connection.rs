//! [`Connection`]: a connection to a server by TCP, TLS or a Unix socket, and its replies.

use crate::options::Target;
use crate::tls::TlsError;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use strand_chain::Chain;
use strand_wire::client::{ReplyParser, Value, encode_command};

/// The end of a connection, with redis-cli's texts.
#[derive(Debug)]
pub enum Ended {
    /// The server closed the connection.
    Closed,
    /// Another failure, described by this text.
    Failed(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed => f.write_str("Server closed the connection"),
            Ended::Failed(text) => f.write_str(text),
        }
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn both(&mut self) -> &mut dyn ReadWrite {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => stream,
        }
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

/// A connection to a server.
pub struct Connection {
    stream: Stream,
    input: Chain,
    parser: ReplyParser,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server accepts a connection at this place.
    #[error("Could not connect to Redis at {place}: {}", text_of(.why))]
    Refused {
        /// The server's address, or the path of its socket.
        place: String,
        /// The system's error.
        why: io::Error,
    },
    /// The TLS options cannot be used.
    #[error("Could not negotiate a TLS connection: {0}")]
    Tls(#[from] TlsError),
    /// The server does not complete the TLS handshake.
    #[error("Could not negotiate a TLS connection: {0}")]
    Handshake(io::Error),
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn open(target: &Target) -> Result<Connection, ConnectError> {
        let stream = match &target.socket {
            Some(path) => UnixStream::connect(path)
                .map(Stream::Unix)
                .map_err(|why| ConnectError::Refused { place: path.display().to_string(), why })?,
            None => {
                let place = format!("{}:{}", target.host, target.port);
                let tcp =
                    connect(&target.host, target.port).map_err(|why| ConnectError::Refused { place, why })?;
                // Without TCP_NODELAY the connection still works, but more slowly.
                let _ = tcp.set_nodelay(true);
                match &target.tls {
                    None => Stream::Tcp(tcp),
                    Some(tls) => {
                        let state = tls.connection(&target.host)?;
                        let mut stream = StreamOwned::new(state, tcp);
                        stream.conn.complete_io(&mut stream.sock).map_err(ConnectError::Handshake)?;
                        Stream::Tls(Box::new(stream))
                    }
                }
            }
        };
        let mut parser = ReplyParser::new();
        parser.keep_double_text();
        Ok(Connection { stream, input: Chain::new(), parser })
    }
    /// Sends a command.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<(), Ended> {
        let mut out = Vec::new();
        encode_command(&mut out, args);
        self.write(&out)
    }
    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let stream = self.stream.both();
        stream.write_all(bytes).and_then(|()| stream.flush()).map_err(ended)
    }
    /// The next reply.
    ///
    /// # Errors
    /// When the connection ends first, or the bytes are not a reply.
    pub fn reply(&mut self) -> Result<Value, Ended> {
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
    pub fn buffered(&mut self) -> Result<Option<Value>, Ended> {
        self.parser.next(&mut self.input).map_err(|e| Ended::Failed(format!("Protocol error, {}", e.0)))
    }
    /// Reads the bytes that have arrived. Waits at most as long as set by [`Connection::wait_at_most`]. Returns
    /// false when nothing arrived.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn fill(&mut self) -> Result<bool, Ended> {
        let room = self.input.spare();
        match self.stream.both().read(room) {
            Ok(0) => Err(Ended::Closed),
            Ok(n) => {
                self.input.filled(n);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
            Err(e) => Err(ended(e)),
        }
    }
    /// Limits the wait of [`Connection::fill`].
    ///
    /// # Errors
    /// Errors of the system.
    pub fn wait_at_most(&self, time: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
            Stream::Tls(stream) => stream.sock.set_read_timeout(time),
        }
    }
    /// A second handle to the connection for writing, so that one thread can write while another reads; `None` for
    /// TLS.
    pub fn writer(&self) -> Option<Box<dyn Write + Send>> {
        match &self.stream {
            Stream::Tcp(stream) => Some(Box::new(stream.try_clone().ok()?)),
            Stream::Unix(stream) => Some(Box::new(stream.try_clone().ok()?)),
            Stream::Tls(_) => None,
        }
    }
    /// Sends a command and returns its reply.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn ask<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<Value, Ended> {
        self.send(args)?;
        loop {
            match self.reply()? {
                Value::Push(_) => {}
                reply => return Ok(reply),
            }
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("Name or service not known")))
}

fn ended(e: io::Error) -> Ended {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Ended::Closed,
        _ => Ended::Failed(text_of(&e)),
    }
}

/// The system's error text, without the parts that Rust adds.
fn text_of(e: &io::Error) -> String {
    let text = e.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.split(" (os error ").next().unwrap_or(text).to_string()
}
