//! [`TlsStream`]: an encrypted connection, driven by readiness as a polled one is.
//!
//! Decides nothing: bytes of the socket go through rustls into the session's target, and back. Both directions are
//! bounded by rustls's own buffers: a record in, [`SENT_BYTES_MAX`] out.

use super::stream::Written;
use rustls::{AlertDescription, Error, InvalidMessage, ServerConfig, ServerConnection};
use socket2::SockRef;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use strand_chain::Chain;
use tokio::net::TcpStream;

/// Bytes that are encrypted ahead of what the socket takes.
const SENT_BYTES_MAX: usize = 64 * 1024;
/// Slices handed over at a time.
const SLICES_MAX: usize = 64;

/// The peer and we do not agree on TLS.
#[derive(Debug)]
pub struct TlsError(Error);

impl TlsError {
    /// True when `error` is one.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<TlsError>())
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                f.write_str("TLS: what the client sends is none; this port takes TLS only")
            }
            Error::AlertReceived(AlertDescription::UnknownCA) => {
                f.write_str("TLS: the client does not know who signed tls-cert-file")
            }
            Error::AlertReceived(alert) => write!(f, "TLS: the client refuses ({alert:?})"),
            Error::NoCertificatesPresented => {
                f.write_str("TLS: the client has no certificate (tls-auth-clients)")
            }
            Error::InvalidCertificate(why) => write!(f, "TLS: the client's certificate is refused: {why}"),
            other => write!(f, "TLS: {other}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// An encrypted connection.
pub struct TlsStream {
    socket: TcpStream,
    tls: ServerConnection,
}

/// Reads the socket for rustls, and sees when it is dry.
struct Tap<'a> {
    socket: SockRef<'a>,
    dry: bool,
}

impl Read for Tap<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = (&*self.socket).read(target);
        self.dry = match &read {
            Ok(n) => *n < target.len(),
            Err(e) => e.kind() == ErrorKind::WouldBlock,
        };
        read
    }
}

impl TlsStream {
    /// Takes over a socket; nothing is sent before the client's first words.
    ///
    /// # Errors
    /// When rustls finds the configuration to be of no use.
    pub fn new(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let mut tls = ServerConnection::new(config).map_err(|e| io::Error::other(TlsError(e)))?;
        tls.set_buffer_limit(Some(SENT_BYTES_MAX));
        Ok(TlsStream { socket, tls })
    }
    /// The socket beneath.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
    /// True until keys are agreed on.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }
    /// Reads once into `target`, which may take several reads of the socket; the second value says that there is no more
    /// now. 0 bytes are the end: a read of its own, also when it came with the last bytes.
    ///
    /// # Errors
    /// Those of the socket ([`ErrorKind::WouldBlock`] when there is nothing) and [`TlsError`], the peer told of it.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<(usize, bool)> {
        let (mut filled, mut dry) = (0, false);
        loop {
            match self.tls.reader().read(&mut target[filled..]) {
                Ok(0) => return Ok((filled, filled == 0)),
                Ok(n) => {
                    filled += n;
                    if filled == target.len() {
                        return Ok((filled, false));
                    }
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // Many clients go without a word; requests have ends of their own.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok((filled, filled == 0)),
                Err(e) => return Err(e),
            }
            match dry {
                true if filled > 0 => return Ok((filled, true)),
                true => return Err(ErrorKind::WouldBlock.into()),
                false => {}
            }
            let mut tap = Tap { socket: SockRef::from(&self.socket), dry: false };
            let read = self.tls.read_tls(&mut tap);
            dry = tap.dry;
            match read {
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                Err(e) => return Err(e),
            }
            let processed = self.tls.process_new_packets();
            // Answers of the handshake, or the alert that says what is wrong.
            let sent = self.send();
            if let Err(error) = processed {
                return Err(io::Error::new(ErrorKind::InvalidData, TlsError(error)));
            }
            sent?;
        }
    }
    /// Takes bytes from the front of `output`, `bytes_max` at most.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn write(&mut self, output: &mut Chain, bytes_max: usize) -> io::Result<Written> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let n = output.io_slices(&mut slices, bytes_max);
        let bytes = self.tls.writer().write_vectored(&slices[..n])?;
        output.advance(bytes);
        let sent = self.send()?;
        Ok(Written { bytes, full: !sent || bytes == 0 })
    }
    /// True when nothing that was taken waits for the socket.
    pub fn is_sent(&self) -> bool {
        !self.tls.wants_write()
    }
    /// Gives the socket what waits for it; false when it takes no more now.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self) -> io::Result<bool> {
        send(&self.socket, &mut self.tls)
    }
    /// The socket and what encrypts, apart.
    pub fn parts(&mut self) -> (&TcpStream, &mut ServerConnection) {
        (&self.socket, &mut self.tls)
    }
    /// Says that no more is sent.
    pub fn say_end(&mut self) {
        self.tls.send_close_notify();
        // A peer that is gone misses it.
        let _ = self.send();
    }
}

/// See [`TlsStream::send`].
pub fn send(socket: &TcpStream, tls: &mut ServerConnection) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut &*SockRef::from(socket)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
