//! [`TlsStream`]: an encrypted connection. It is driven by readiness, like a polled stream.
//!
//! Bytes of the socket go through rustls into the session's target. Output goes the other way. rustls's buffers bound
//! both directions: one record in, [`SENT_BYTES_MAX`] out.

use super::socket::Written;
use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible, ServerConfig, ServerConnection};
use socket2::SockRef;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use strand_chain::Chain;
use tokio::net::TcpStream;

/// Maximum number of encrypted bytes that wait for the socket.
const SENT_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of slices of one vectored write.
const SLICES_MAX: usize = 64;

/// A TLS error between peer and server.
#[derive(Debug)]
pub struct TlsStreamError(Error);

impl TlsStreamError {
    /// True when `error` is a [`TlsStreamError`].
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<TlsStreamError>())
    }
}

impl fmt::Display for TlsStreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                f.write_str("TLS: the client does not speak TLS; this port accepts only TLS")
            }
            Error::AlertReceived(AlertDescription::UnknownCA) => {
                f.write_str("TLS: the client does not trust the authority that signed tls-cert-file")
            }
            Error::AlertReceived(alert) => {
                write!(f, "TLS: the client ended the handshake with the alert {alert:?}")
            },
            // Clients of TLS 1.2 and 1.3 name their signature algorithms.
            Error::PeerIncompatible(
                PeerIncompatible::SignatureAlgorithmsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => f.write_str(
                "TLS: the client offers no version that this server allows. Expected TLS 1.2 or 1.3, as tls-protocols says",
            ),
            Error::PeerIncompatible(
                PeerIncompatible::NoCipherSuitesInCommon | PeerIncompatible::NoKxGroupsInCommon,
            ) => f.write_str(
                "TLS: the client offers no cipher with a key exchange by ECDHE that this server allows (tls-ciphers, \
                 tls-ciphersuites)",
            ),
            Error::NoCertificatesPresented => {
                f.write_str("TLS: the client has no certificate (tls-auth-clients)")
            }
            refusal if strand_dial::may_sign_others(refusal) => f.write_str(
                "TLS: the client's certificate is refused. Either it is a CA certificate (CA:TRUE) that is not itself in \
                 tls-ca-cert-file or tls-ca-cert-dir, or its extended key usage does not allow clients",
            ),
            Error::InvalidCertificate(why) => write!(f, "TLS: the client's certificate is refused: {why}"),
            other => write!(f, "TLS: {other}"),
        }
    }
}

impl std::error::Error for TlsStreamError {}

/// An encrypted connection.
pub struct TlsStream {
    socket: TcpStream,
    tls: ServerConnection,
}

/// Reads the socket for rustls, and notes when the socket has no more data.
struct SocketReader<'a> {
    socket: SockRef<'a>,
    dry: bool,
}

impl Read for SocketReader<'_> {
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
    /// Takes over a socket. Nothing is sent before the client's first message.
    ///
    /// # Errors
    /// When rustls rejects the configuration.
    pub fn new(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let mut tls = ServerConnection::new(config).map_err(|e| io::Error::other(TlsStreamError(e)))?;
        tls.set_buffer_limit(Some(SENT_BYTES_MAX));
        Ok(TlsStream { socket, tls })
    }
    /// The underlying socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
    /// True until the handshake is done.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }
    /// Fills `target`, with one or several reads of the socket. Returns the number of bytes, and true when no more
    /// data is there now. A count of 0 means the end of the stream. The end is never returned together with data.
    ///
    /// # Errors
    /// Errors of the socket ([`ErrorKind::WouldBlock`] without data), and [`TlsStreamError`], after an alert was sent to
    /// the peer.
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
                // Many clients close without a TLS alert. Accept that, because requests mark their own ends.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok((filled, filled == 0)),
                Err(e) => return Err(e),
            }
            match dry {
                true if filled > 0 => return Ok((filled, true)),
                true => return Err(ErrorKind::WouldBlock.into()),
                false => {}
            }
            let mut tap = SocketReader { socket: SockRef::from(&self.socket), dry: false };
            let read = self.tls.read_tls(&mut tap);
            dry = tap.dry;
            match read {
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                Err(e) => return Err(e),
            }
            let processed = self.tls.process_new_packets();
            // Send replies of the handshake, or the TLS alert that tells the peer the reason.
            let sent = self.send();
            if let Err(error) = processed {
                return Err(io::Error::new(ErrorKind::InvalidData, TlsStreamError(error)));
            }
            sent?;
        }
    }
    /// Takes at most `bytes_max` bytes from the front of `output`.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn write(&mut self, output: &mut Chain, bytes_max: usize) -> io::Result<Written> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let n = output.io_slices(&mut slices, bytes_max);
        let bytes = self.tls.writer().write_vectored(&slices[..n])?;
        output.advance(bytes);
        let sent = self.send()?;
        Ok(Written { bytes, is_full: !sent || bytes == 0 })
    }
    /// True when no taken bytes wait for the socket.
    pub fn is_sent(&self) -> bool {
        !self.tls.wants_write()
    }
    /// Sends waiting bytes to the socket. Returns false when the socket takes no more now.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn send(&mut self) -> io::Result<bool> {
        send(&self.socket, &mut self.tls)
    }
    /// The socket and the TLS state, separately.
    pub fn parts(&mut self) -> (&TcpStream, &mut ServerConnection) {
        (&self.socket, &mut self.tls)
    }
    /// Sends a TLS close alert.
    pub fn send_close_notify(&mut self) {
        self.tls.send_close_notify();
        // The peer may be gone already, so an error of the socket does not matter.
        let _ = self.send();
    }
}

/// Sends encrypted bytes to the socket: see [`TlsStream::send`].
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
