//! Connections to a primary that this server follows.

use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::time::Duration;
use strand_dial::{DialError, Stream, Timeouts};
use strand_engine::Link;

/// Connects to a primary. `timeout` limits the connection's beginning and each write.
///
/// # Errors
/// Errors of the system.
pub fn connect(host: &str, port: u16, timeout: Duration) -> io::Result<Box<dyn Link>> {
    let timeouts = Timeouts { connect: Some(timeout), step: Some(timeout) };
    match Stream::tcp(host, (host, port).to_socket_addrs()?, None, timeouts) {
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
