//! [`Door`]: a way into the server. The differences between doors are only here, and in the stream and the framing that
//! a door chooses. Limits, client list, timeouts, logs and counters treat the connections of all doors alike.
//!
//! [`open`] listens at every configured door and returns a [`Listener`] for each address. A connection accepted
//! there is an [`Arrival`].

use super::ServeError;
use super::listen::{self, BindError};
use super::unix_socket::{self, UnixSocket};
use rustls::ServerConfig;
use std::fmt;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use strand_engine::{Config, Framing, PeerInfo};

/// The protocol of a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The protocol is RESP2 or RESP3.
    Resp,
    /// The protocol is RESP2 or RESP3, in frames.
    Pack4,
    /// HTTP/1.1. Each connection has a session that speaks RESP to the HTTP side.
    Http,
}

impl Protocol {
    /// How requests and replies are framed.
    pub fn framing(self) -> Framing {
        match self {
            Protocol::Resp | Protocol::Http => Framing::Resp,
            Protocol::Pack4 => Framing::Pack4,
        }
    }
}

/// A way into the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// The protocol spoken at the door.
    pub protocol: Protocol,
    /// True when the protocol runs over TLS.
    pub tls: bool,
}

impl Door {
    /// The door of redis-server's clients.
    pub const PLAIN: Door = Door { protocol: Protocol::Resp, tls: false };
}

impl fmt::Display for Door {
    /// The text before "connections on 127.0.0.1:6379". Empty for RESP without TLS, else the kind of door and a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "TLS " } else { "" })?;
        f.write_str(match self.protocol {
            Protocol::Resp => "",
            Protocol::Pack4 => "pack4 ",
            Protocol::Http => "http ",
        })
    }
}

/// A listening socket of a door.
pub struct Listener {
    /// The listening socket itself.
    pub socket: ListenerSocket,
    /// The door of the listener's connections.
    pub door: Door,
}

/// A listening socket of any kind.
pub enum ListenerSocket {
    /// A socket on a TCP port.
    Tcp(StdListener),
    /// A socket that is a file.
    Unix(UnixSocket),
}

impl Listener {
    /// The address of the socket with the port in use, or the name of its file.
    pub fn address(&self) -> String {
        match &self.socket {
            ListenerSocket::Tcp(socket) => socket.local_addr().map_or(String::new(), |a| a.to_string()),
            ListenerSocket::Unix(socket) => socket.file.name.clone(),
        }
    }
    /// Where the listener is. `None` for a file.
    pub fn place(&self) -> Option<Place> {
        match &self.socket {
            ListenerSocket::Tcp(socket) => {
                Some(Place { door: self.door, address: socket.local_addr().ok()? })
            }
            ListenerSocket::Unix(_) => None,
        }
    }
    /// The port in use. `None` for a file.
    pub fn port(&self) -> Option<u16> {
        self.place().map(|place| place.address.port())
    }
}

/// A door at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The door.
    pub door: Door,
    /// The address, with its port.
    pub address: SocketAddr,
}

/// A place at which the options want the server to listen.
#[derive(Debug)]
pub struct Wanted {
    /// The place.
    pub place: Place,
    /// The entry of `bind`.
    entry: String,
    /// The option with the port.
    option: &'static str,
}

impl Wanted {
    /// Listens there. `None` when the machine does not have an optional address, or another program has the default port
    /// of HTTP.
    ///
    /// # Errors
    /// When the address is not available.
    pub fn open(&self, backlog: i32) -> Result<Option<Listener>, BindError> {
        let Place { door, address } = self.place;
        match listen::listen_on(address, &self.entry, backlog, self.option) {
            Ok(socket) => Ok(socket.map(|socket| tcp(socket, door))),
            Err(e)
                if address.port() == HTTP_PORT_DEFAULT
                    && door.protocol == Protocol::Http
                    && e.is_in_use() =>
            {
                tracing::warn!("HTTP is not served: {e}");
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Listens again at a place that the server has left. `None`, and a line in the log, when that fails.
pub fn open_again(place: &Place, backlog: i32) -> Option<Listener> {
    let entry = place.address.ip().to_string();
    let opened = listen::listen_on(place.address, &entry, backlog, "bind");
    let socket = opened.inspect_err(|why| tracing::warn!("{why}")).ok()??;
    Some(tcp(socket, place.door))
}

/// The places on TCP that the options want. A port 0 is none.
///
/// # Errors
/// When an entry of `bind` is no address, or the machine has none of them.
pub fn wanted(config: &Config, needs_password: bool) -> Result<Vec<Wanted>, BindError> {
    let bind = config.bind();
    let http = http_doors(config);
    let http_bind = match http.iter().any(|(_, port, _)| *port > 0) {
        true => http_bind(config, needs_password),
        false => Vec::new(),
    };
    let doors = resp_doors(config).into_iter().map(|door| (door, &bind));
    let doors = doors.chain(http.into_iter().map(|door| (door, &http_bind)));
    let mut wanted = Vec::new();
    for ((option, port, door), bind) in doors.filter(|((_, port, _), _)| *port > 0) {
        let before = wanted.len();
        for entry in bind {
            if let Some(address) = listen::address_of(entry, port, option)? {
                wanted.push(Wanted { place: Place { door, address }, entry: entry.clone(), option });
            }
        }
        if wanted.len() == before && !bind.is_empty() {
            return Err(listen::none_of(bind, port, option));
        }
    }
    Ok(wanted)
}

/// The option, the port and the door of each protocol but HTTP. A port 0 is none.
fn resp_doors(config: &Config) -> [(&'static str, u16, Door); 4] {
    [
        ("port", config.port(), Door::PLAIN),
        ("tls-port", config.tls_port(), Door { protocol: Protocol::Resp, tls: true }),
        ("pack4-port", config.pack4_port(), Door { protocol: Protocol::Pack4, tls: false }),
        ("tls-pack4-port", config.tls_pack4_port(), Door { protocol: Protocol::Pack4, tls: true }),
    ]
}

/// As [`resp_doors`], for HTTP.
fn http_doors(config: &Config) -> [(&'static str, u16, Door); 2] {
    [
        ("http-port", config.http_port(), Door { protocol: Protocol::Http, tls: false }),
        ("tls-http-port", config.tls_http_port(), Door { protocol: Protocol::Http, tls: true }),
    ]
}

/// An accepted connection.
pub struct Arrival {
    /// The connection's socket: TCP, or a Unix socket in the type of TCP. The streams use only what both kinds have,
    /// and ignore the errors of TCP's options.
    pub socket: StdStream,
    /// The peer of the connection.
    pub peer: PeerInfo,
    /// The door through which the connection came.
    pub door: Door,
    /// The TLS configuration, at a door with TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Listens at every configured door except HTTP, which needs the users first ([`open_http`]). `port 0` means a
/// free port if there is no other door, and no door otherwise. With `unixsocket`, an empty `bind` means no TCP, as in
/// redis-server.
///
/// # Errors
/// When an address or the file of `unixsocket` is not available.
pub fn open(config: &Config) -> Result<Vec<Listener>, ServeError> {
    let [plain, others @ ..] = resp_doors(config);
    let others = others.into_iter().filter(|(_, port, _)| *port > 0).collect::<Vec<_>>();
    let file = config.unix_socket();
    let plain = (plain.1 > 0 || (others.is_empty() && file.is_none())).then_some(plain);
    let backlog = config.tcp_backlog() as i32;
    let mut listeners = Vec::new();
    let doors = plain.into_iter().chain(others).filter(|_| serves_tcp(config));
    for (option, port, door) in doors {
        let sockets = listen::listen(&config.bind(), port, backlog, option)?;
        listeners.extend(sockets.into_iter().map(|socket| tcp(socket, door)));
    }
    if let Some(path) = file {
        let socket = unix_socket::listen(&path, config.unix_socket_mode(), backlog)?;
        listeners.push(Listener { socket: ListenerSocket::Unix(socket), door: Door::PLAIN });
    }
    Ok(listeners)
}

/// False when `bind` names no address, and clients come through the file of `unixsocket`.
fn serves_tcp(config: &Config) -> bool {
    !config.bind().is_empty() || config.unix_socket().is_none()
}

fn tcp(socket: StdListener, door: Door) -> Listener {
    Listener { socket: ListenerSocket::Tcp(socket), door }
}

/// Default port of HTTP. Only the default port may be taken by another server: then this server starts without HTTP.
const HTTP_PORT_DEFAULT: u16 = 8379;

/// True, and a line in the log, when another program has the default port of HTTP.
fn is_default_in_use(error: &BindError, door: Door) -> bool {
    let is_so = door.protocol == Protocol::Http && error.port() == HTTP_PORT_DEFAULT && error.is_in_use();
    if is_so {
        tracing::warn!("HTTP is not served: {error}");
    }
    is_so
}

/// Listens for HTTP on the addresses of `bind`. Addresses beyond loopback are used only when
/// `needs_password` is true (requirepass and the ACL users allow nothing without a password), or when protected-mode is
/// off.
///
/// # Errors
/// When an address is not available.
pub fn open_http(config: &Config, needs_password: bool) -> Result<Vec<Listener>, BindError> {
    let bind = http_bind(config, needs_password);
    let mut listeners = Vec::new();
    let doors = http_doors(config).into_iter().filter(|(_, port, _)| *port > 0 && serves_tcp(config));
    for (option, port, door) in doors {
        match listen::listen(&bind, port, config.tcp_backlog() as i32, option) {
            Ok(sockets) => listeners.extend(sockets.into_iter().map(|socket| tcp(socket, door))),
            Err(e) if is_default_in_use(&e, door) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(listeners)
}

/// The addresses for HTTP.
fn http_bind(config: &Config, needs_password: bool) -> Vec<String> {
    let bind = config.bind();
    if needs_password || !config.is_protected() || bind.iter().all(|b| listen::is_loopback(b)) {
        return bind;
    }
    tracing::info!("HTTP is served on loopback only: the default user needs no password");
    loopback_of(bind)
}

/// The loopback addresses of `bind`, or the default loopback addresses if `bind` has none.
fn loopback_of(mut bind: Vec<String>) -> Vec<String> {
    bind.retain(|name| listen::is_loopback(name));
    match bind.is_empty() {
        true => vec!["127.0.0.1".into(), "-::1".into()],
        false => bind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_listens_beyond_loopback_only_with_a_password_or_without_protected_mode() {
        for (lines, needs_password, beyond) in [
            (&["bind 127.0.0.1 192.0.2.1"][..], false, false),
            (&["bind 127.0.0.1 192.0.2.1"], true, true),
            (&["bind 127.0.0.1 192.0.2.1", "protected-mode no"], false, true),
        ] {
            let config = Config::default();
            for line in lines {
                config.load_text(line).expect("an option");
            }
            let bind = http_bind(&config, needs_password);
            assert_eq!(bind.contains(&"192.0.2.1".to_string()), beyond, "{lines:?} {needs_password}");
        }
    }

    #[test]
    fn loopback_of_keeps_only_loopback_addresses() {
        let kept = |names: &[&str]| loopback_of(names.iter().map(|n| n.to_string()).collect());
        assert_eq!(kept(&["127.0.0.1", "-::1"]), ["127.0.0.1", "-::1"]);
        assert_eq!(kept(&["192.0.2.1", "127.0.0.7", "-192.0.2.2"]), ["127.0.0.7"]);
        for beyond in ["*", "::*", "0.0.0.0", "192.0.2.1", "no.such.name.invalid"] {
            assert_eq!(kept(&[beyond]), ["127.0.0.1", "-::1"], "{beyond}");
        }
        assert_eq!(kept(&["::ffff:127.0.0.1"]), ["::ffff:127.0.0.1"]);
    }
}
