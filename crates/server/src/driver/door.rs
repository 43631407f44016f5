//! [`Door`]: a way into the server. What differs between doors is here and in the stream and the framing that they choose;
//! limits, client list, timeouts, logs and counters see the connections of all doors alike.
//!
//! [`open`] listens at every door that the configuration names and gives a [`Listener`] for each address; a connection
//! that comes through one is an [`Arrival`].

use super::listen;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use strand_engine::{Config, PeerInfo};

/// What is spoken at a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2 and RESP3.
    Resp,
}

/// A way into the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// What is spoken there.
    pub protocol: Protocol,
}

impl fmt::Display for Door {
    /// As it stands before `connections` in "Ready to accept connections"; nothing for plain RESP, which redis-server
    /// names no further either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Resp => f.write_str(""),
        }
    }
}

/// A socket that listens, at a door.
pub struct Listener {
    /// The socket.
    pub socket: StdListener,
    /// Where its connections come in.
    pub door: Door,
}

impl Listener {
    /// Its address, the port that was picked included.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection that was accepted.
pub struct Arrival {
    /// Its socket.
    pub socket: StdStream,
    /// Who is at the other end.
    pub peer: PeerInfo,
    /// Where it came in.
    pub door: Door,
}

/// Listens at every door that `config` names.
///
/// # Errors
/// When an address cannot be had; the text is for the user.
pub fn open(config: &Config) -> Result<Vec<Listener>, String> {
    let doors = [("port", config.port(), Door { protocol: Protocol::Resp })];
    let mut listeners = Vec::new();
    for (option, port, door) in doors {
        let sockets = listen::listen(&config.bind(), port, config.tcp_backlog() as i32, option)
            .map_err(|e| e.to_string())?;
        listeners.extend(sockets.into_iter().map(|socket| Listener { socket, door }));
    }
    Ok(listeners)
}
