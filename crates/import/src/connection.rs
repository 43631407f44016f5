//! The connection to the server: pipelined RESP over a blocking [`Stream`] (TCP, TLS or a Unix socket).
//!
//! [`Connection::send`] appends a command, and [`Connection::receive`] returns the next reply. The caller bounds the
//! number of commands without a reply. Every wait and every reply has a bound, and every error names the address.

use crate::container::CONTAINER_BYTES_MAX;
use crate::{ImportError, Loss};
use std::io::{ErrorKind, Read, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;
use strand_chain::Chain;
use strand_dial::{DialError, DialOptions, Stream, Tls};
use strand_wire::client::{ReplyParser, Value, encode_command};

/// Maximum time to connect to one address.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of one read from the socket, and of one write to it.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time of one read from a socket that accepts no more bytes.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes of a reply that is not a container.
pub const REPLY_BYTES_MAX: usize = 4 << 20;
/// Maximum number of bytes of a reply with a container.
pub const CONTAINER_REPLY_BYTES_MAX: usize = CONTAINER_BYTES_MAX + 1024;
/// Commands are gathered in a buffer, which is sent when it holds this number of bytes.
const FLUSH_BYTES: usize = 64 * 1024;

/// A connection, authenticated and with its database selected.
#[derive(Debug)]
pub struct Connection {
    address: String,
    stream: Stream,
    out: Vec<u8>,
    input: Chain,
    parser: ReplyParser,
}

/// The server, and the user who connects.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// `host:port`, or the path of a Unix socket, which begins with `/`.
    pub address: &'a str,
    /// With TLS, if this is given. Not for a Unix socket.
    pub tls: Option<&'a Tls>,
    /// The username for AUTH, sent together with the password.
    pub username: Option<&'a str>,
    /// The password for AUTH.
    pub password: Option<&'a str>,
    /// The database number for SELECT.
    pub db: u32,
}

impl Connection {
    /// Connects, authenticates and selects the database.
    ///
    /// # Errors
    /// [`ImportError::Connect`], and what the server answers to AUTH and SELECT.
    pub fn open(target: &Target<'_>) -> Result<Connection, ImportError> {
        let stream = dial(target)
            .map_err(|error| ImportError::Connect { address: target.address.to_owned(), error })?;
        let mut this = Connection {
            address: target.address.to_owned(),
            stream,
            out: Vec::with_capacity(FLUSH_BYTES),
            input: Chain::new(),
            parser: ReplyParser::new(),
        };
        match (target.username, target.password) {
            (Some(user), Some(password)) => {
                this.expect_ok(&[&b"AUTH"[..], user.as_bytes(), password.as_bytes()])?
            }
            (None, Some(password)) => this.expect_ok(&[&b"AUTH"[..], password.as_bytes()])?,
            _ => {}
        }
        if target.db != 0 {
            this.expect_ok(&[&b"SELECT"[..], target.db.to_string().as_bytes()])?;
        }
        Ok(this)
    }

    /// Appends a command to the buffer. Writes the buffer to the socket when it has 64 KiB. Returns the number of bytes
    /// of the command.
    ///
    /// # Errors
    /// [`ImportError::Lost`].
    pub fn send<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<usize, ImportError> {
        let before = self.out.len();
        encode_command(&mut self.out, args);
        let bytes = self.out.len() - before;
        if self.out.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(bytes)
    }

    /// Writes the buffered commands, so that the server runs them now.
    ///
    /// # Errors
    /// [`ImportError::Lost`].
    pub fn flush(&mut self) -> Result<(), ImportError> {
        let written = self.stream.write_all(&self.out).and_then(|()| self.stream.flush());
        self.out.clear();
        // A huge document makes the output buffer grow. Free that memory, so that it is not held for the rest of the
        // import.
        self.out.shrink_to(2 * FLUSH_BYTES);
        written.map_err(|error| self.last_words().unwrap_or_else(|| self.lost(error)))
    }

    /// Writes the buffered commands and returns the next reply, in the order of the commands.
    ///
    /// # Errors
    /// [`ImportError::Lost`], and [`ImportError::Protocol`] when the peer does not send valid RESP.
    pub fn receive(&mut self) -> Result<Value, ImportError> {
        self.receive_within(REPLY_BYTES_MAX)
    }

    /// Does what [`Connection::receive`] does for a reply that may be a container.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_container(&mut self) -> Result<Value, ImportError> {
        self.receive_within(CONTAINER_REPLY_BYTES_MAX)
    }

    fn receive_within(&mut self, bytes_max: usize) -> Result<Value, ImportError> {
        self.flush()?;
        self.parser.set_reply_bytes_max(bytes_max);
        loop {
            let parsed = self.parser.next(&mut self.input);
            match parsed.map_err(|error| ImportError::Protocol { address: self.address.clone(), error })? {
                Some(Value::Push(_)) => {} // A push message is not the reply to a command.
                Some(value) => return Ok(value),
                None => self.read_some()?,
            }
        }
    }

    /// Sends one command and returns its reply. No other command may wait for a reply.
    ///
    /// # Errors
    /// As [`Connection::receive`]; an error reply is [`ImportError::Refused`].
    pub fn call<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<Value, ImportError> {
        self.call_within(REPLY_BYTES_MAX, args)
    }

    /// Does what [`Connection::call`] does for a reply of up to `bytes_max` bytes.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub fn call_within<T: AsRef<[u8]>>(
        &mut self,
        bytes_max: usize,
        args: &[T],
    ) -> Result<Value, ImportError> {
        self.send(args)?;
        match self.receive_within(bytes_max)? {
            Value::Error(text) => Err(refused(args, &text)),
            value => Ok(value),
        }
    }

    fn expect_ok<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<(), ImportError> {
        self.call(args).map(|_| ())
    }

    /// The error that the server sent before it closed the connection, if it sent one. For example, a server closes a
    /// connection after an argument longer than its `proto-max-bulk-len`.
    fn last_words(&mut self) -> Option<ImportError> {
        self.stream.set_read_timeout(Some(LAST_WORDS_TIMEOUT)).ok()?;
        let mut last = None;
        loop {
            match self.parser.next(&mut self.input).ok()? {
                Some(Value::Error(text)) => last = Some(text),
                Some(_) => {}
                None if self.read_some().is_err() => break,
                None => {}
            }
        }
        last.map(|text| ImportError::Lost {
            address: self.address.clone(),
            reason: Loss::Refused(String::from_utf8_lossy(&text).into_owned()),
        })
    }

    fn read_some(&mut self) -> Result<(), ImportError> {
        loop {
            let got = self.stream.read(self.input.spare());
            self.input.filled(*got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Err(self.lost(ErrorKind::UnexpectedEof.into())),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    fn lost(&self, error: std::io::Error) -> ImportError {
        let reason = match error.kind() {
            ErrorKind::UnexpectedEof => Loss::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Loss::Silent,
            _ => Loss::Io(error),
        };
        ImportError::Lost { address: self.address.clone(), reason }
    }
}

/// The error for an error reply to `args`.
pub(crate) fn refused<T: AsRef<[u8]>>(args: &[T], text: &[u8]) -> ImportError {
    let words = args.iter().take(2).map(|a| String::from_utf8_lossy(a.as_ref()).into_owned());
    // Stop at AUTH: the words after AUTH are secrets and must not appear in an error text.
    let words: Vec<_> = words.take_while(|w| w != "AUTH").collect();
    let command = if words.is_empty() { "AUTH".to_owned() } else { words.join(" ") };
    ImportError::Refused { command, text: String::from_utf8_lossy(text).into_owned() }
}

fn dial(target: &Target<'_>) -> Result<Stream, DialError> {
    let options = DialOptions { source: None, connect: Some(CONNECT_TIMEOUT), step: Some(REPLY_TIMEOUT) };
    if target.address.starts_with('/') {
        return Stream::unix(Path::new(target.address), options);
    }
    let addresses = target.address.to_socket_addrs().map_err(DialError::Unreachable)?;
    let host = target.address.rsplit_once(':').map_or(target.address, |(host, _)| host);
    // An IPv6 address stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Stream::tcp(host, addresses, target.tls, options)
}
