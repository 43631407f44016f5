//! Connections to a primary that this server follows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::Duration;
use strand_dial::{DialError, DialOptions, Stream, Tls};
use strand_engine::{Dial, Link, PeerInfo};

/// Connects to a primary. `tls` is used if the connection is to use TLS.
///
/// # Errors
/// Errors of the system, and the reasons why there is no TLS.
pub fn connect(primary: Dial<'_>, tls: Option<&Tls>) -> io::Result<Box<dyn Link>> {
    let Dial { host, port, source, timeout, .. } = primary;
    if primary.tls && tls.is_none() {
        return Err(io::Error::other("tls-replication is on, and its certificates could not be used"));
    }
    let tls = tls.filter(|_| primary.tls);
    let options = DialOptions { source, connect: Some(timeout), step: Some(timeout) };
    match Stream::tcp(host, (host, port).to_socket_addrs()?, tls, options) {
        Ok(stream) => Ok(Box::new(Primary(stream))),
        Err(DialError::Unreachable(error) | DialError::Handshake(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// A connection to a primary.
struct Primary(Stream);

impl Link for Primary {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(time))
    }
    fn peer(&self) -> PeerInfo {
        let Some(socket) = self.0.tcp_socket() else { return PeerInfo::default() };
        let (addr, laddr) = (socket.peer_addr().ok(), socket.local_addr().ok());
        let shown = |addr: Option<SocketAddr>| addr.map(|addr| addr.to_string()).unwrap_or_default();
        PeerInfo {
            local: addr.is_some_and(|addr| addr.ip().is_loopback()),
            addr: shown(addr),
            laddr: shown(laddr),
            fd: socket.as_raw_fd(),
            ..PeerInfo::default()
        }
    }
}

impl Read for Primary {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.0.read(target)
    }
}

impl Write for Primary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
