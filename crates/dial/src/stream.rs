//! [`Stream`]: an open connection.

use crate::anchored::may_sign_others;
use crate::tls::{Tls, TlsError};
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a connection waits, and from where it comes. `None` leaves the choice to the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DialOptions {
    /// The own address of a TCP connection. If the system refuses the address, the system chooses.
    pub source: Option<IpAddr>,
    /// Maximum time to connect to one address.
    pub connect: Option<Duration>,
    /// Maximum time of one read from the socket, and of one write to it.
    pub step: Option<Duration>,
}

/// A connection to a server.
#[derive(Debug)]
pub enum Stream {
    /// By TCP.
    Tcp(TcpStream),
    /// By a Unix socket.
    Unix(UnixStream),
    /// By TLS over TCP.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No server accepts a connection.
    #[error("{0}")]
    Unreachable(io::Error),
    /// The host cannot be a server's name in TLS. No `source`, because the text includes the cause.
    #[error("{0}")]
    Tls(TlsError),
    /// The server does not complete the TLS handshake.
    #[error("{0}")]
    Handshake(io::Error),
}

/// The error of a handshake, with a sentence in place of rustls's name for two frequent causes.
fn readable(error: io::Error) -> io::Error {
    let text = match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS at this port"
        }
        Some(cause) if may_sign_others(cause) => {
            "the server's certificate is a CA certificate (CA:TRUE) that is not itself trusted for a server. To trust this \
             certificate itself, name its file with --cacert (a replica: tls-ca-cert-file)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

impl Stream {
    /// Connects to the first of `addresses` that accepts a connection. With `tls`, completes a TLS handshake with the
    /// server named `host`.
    ///
    /// # Errors
    /// [`DialError`]. Without an address the error is [`DialError::Unreachable`].
    pub fn tcp(
        host: &str,
        addresses: impl IntoIterator<Item = SocketAddr>,
        tls: Option<&Tls>,
        options: DialOptions,
    ) -> Result<Stream, DialError> {
        let tcp = connect(addresses, options).map_err(DialError::Unreachable)?;
        let Some(tls) = tls else { return Ok(Stream::Tcp(tcp)) };
        let mut stream = StreamOwned::new(tls.connection(host).map_err(DialError::Tls)?, tcp);
        stream.conn.complete_io(&mut stream.sock).map_err(|e| DialError::Handshake(readable(e)))?;
        Ok(Stream::Tls(Box::new(stream)))
    }
    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// [`DialError::Unreachable`].
    pub fn unix(path: &Path, options: DialOptions) -> Result<Stream, DialError> {
        let open = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(options.step)?;
            stream.set_write_timeout(options.step)?;
            Ok(stream)
        };
        open().map(Stream::Unix).map_err(DialError::Unreachable)
    }
    /// Limits the time of a read.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn set_read_timeout(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(time),
            Stream::Unix(stream) => stream.set_read_timeout(time),
            Stream::Tls(stream) => stream.sock.set_read_timeout(time),
        }
    }
    /// The connection's TCP socket. `None` for a Unix socket.
    pub fn tcp_socket(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
            Stream::Tls(stream) => Some(&stream.sock),
        }
    }
    /// A second handle for writing, so that one thread can write while another reads. `None` for TLS, or when the
    /// system cannot clone the socket.
    pub fn writer(&self) -> Option<Box<dyn Write + Send>> {
        match self {
            Stream::Tcp(stream) => Some(Box::new(stream.try_clone().ok()?)),
            Stream::Unix(stream) => Some(Box::new(stream.try_clone().ok()?)),
            Stream::Tls(_) => None,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

/// Over TLS, bytes may wait in memory until a flush.
impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.flush(),
            Stream::Unix(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

fn connect(addresses: impl IntoIterator<Item = SocketAddr>, options: DialOptions) -> io::Result<TcpStream> {
    let mut last = None;
    for address in addresses {
        let from_source = options.source.filter(|source| source.is_ipv4() == address.is_ipv4());
        let connected = match from_source {
            Some(source) => connect_from(source, address, options.connect)
                .or_else(|_| connect_to(address, options.connect)),
            None => connect_to(address, options.connect),
        };
        match connected {
            Ok(stream) => {
                // Without TCP_NODELAY the connection still works, but more slowly.
                let _ = stream.set_nodelay(true);
                stream.set_read_timeout(options.step)?;
                stream.set_write_timeout(options.step)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("Name or service not known")))
}

fn connect_to(address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
    match timeout {
        Some(time) => TcpStream::connect_timeout(&address, time),
        None => TcpStream::connect(address),
    }
}

fn connect_from(source: IpAddr, address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    match timeout {
        Some(time) => socket.connect_timeout(&address.into(), time)?,
        None => socket.connect(&address.into())?,
    }
    Ok(socket.into())
}
