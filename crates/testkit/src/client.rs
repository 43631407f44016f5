//! [`Client`]: a blocking RESP client over one socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use strand_chain::Chain;
use strand_wire::client::{ReplyParser, Value, encode_command};

/// Maximum wait for a reply, in milliseconds, in any test.
const REPLY_MS_MAX: u64 = 60_000;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: Chain,
    parser: ReplyParser,
}

impl Client {
    /// Connects, with `TCP_NODELAY`.
    ///
    /// # Errors
    /// When the server does not accept.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_millis(REPLY_MS_MAX))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX)))?;
        Ok(Client { stream, input: Chain::new(), parser: ReplyParser::new() })
    }

    /// Distinguishes the nulls `$-1`, `*-1` and `_` in the replies from now on.
    pub fn keep_null_kinds(&mut self) {
        self.parser.keep_null_kinds();
    }

    /// The socket, for tests that send raw bytes.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// When the connection ends or the reply is not RESP.
    pub fn call<T: AsRef<[u8]>>(&mut self, args: &[T]) -> io::Result<Value> {
        self.send(args)?;
        self.reply()
    }

    /// Sends one command.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn send<T: AsRef<[u8]>>(&mut self, args: &[T]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, args);
        self.stream.write_all(&bytes)
    }

    /// Sends bytes one at a time, each in its own packet as far as the kernel allows.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn send_bytewise(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes.iter().try_for_each(|b| self.stream.write_all(&[*b]))
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server closed, `InvalidData` when the reply is not RESP.
    pub fn reply(&mut self) -> io::Result<Value> {
        loop {
            match self.parser.next(&mut self.input) {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => {}
                Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
            }
            let n = match self.stream.read(self.input.spare()) {
                Ok(n) => n,
                Err(e) => {
                    self.input.filled(0);
                    return Err(e);
                }
            };
            self.input.filled(n);
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
