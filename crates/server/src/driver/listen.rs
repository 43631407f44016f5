//! Listening sockets: redis-server's `bind` syntax, and errors that name address and port.

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// The error for an address on which the server cannot listen.
#[derive(Debug)]
pub struct BindError {
    address: String,
    port: u16,
    option: &'static str,
    source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BindError { address, port, option, source } = self;
        match source.kind() {
            ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address} port {port}: the port is in use by another program; choose one with --{option}"
                )
            }
            ErrorKind::AddrNotAvailable => {
                write!(
                    f,
                    "cannot listen on {address} port {port}: this machine has no such address; choose one with --bind"
                )
            }
            ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "cannot listen on {address} port {port}: permission denied (ports below 1024 need privileges)"
                )
            }
            _ if address.is_empty() => write!(f, "cannot listen on port {port}: {source}"),
            _ => write!(f, "cannot listen on {address} port {port}: {source}"),
        }
    }
}

impl BindError {
    /// The port on which the server cannot listen.
    pub fn port(&self) -> u16 {
        self.port
    }
    /// True when another program has the port.
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == ErrorKind::AddrInUse
    }
}

/// No `source`, because the text includes the cause.
impl std::error::Error for BindError {}

/// Listens on every address of `bind`: `127.0.0.1`, `::1`, `*` for all of IPv4, `::*` for all of IPv6, or a host
/// name. An entry with a leading `-` is skipped when the machine does not have it. With `port` 0 the first address
/// picks a free port, and the others use that port. `option` is the source of the port, for errors.
///
/// # Errors
/// When a required address is not available, or no address is.
pub fn listen(
    bind: &[String],
    mut port: u16,
    backlog: i32,
    option: &'static str,
) -> Result<Vec<TcpListener>, BindError> {
    let picked = port == 0;
    let mut listeners = Vec::new();
    for entry in bind {
        let is_optional = entry.starts_with('-');
        let Some(address) = address_of(entry, port, option)? else { continue };
        match listen_on(address, entry, backlog, option) {
            Ok(None) => {}
            Ok(Some(listener)) => {
                if port == 0 {
                    port = listener.local_addr().map_or(0, |a| a.port());
                }
                listeners.push(listener);
            }
            Err(e) if is_optional && picked && e.is_in_use() => {
                tracing::debug!("not listening on {entry}: {e}");
            }
            Err(e) => return Err(e),
        }
    }
    match listeners.is_empty() {
        true => Err(none_of(bind, port, option)),
        false => Ok(listeners),
    }
}

/// The error for a `bind` of which the machine has no address.
pub fn none_of(bind: &[String], port: u16, option: &'static str) -> BindError {
    let why = match bind {
        [] => "`bind` names no address: expected at least one, for example 127.0.0.1",
        _ => "this machine has none of the addresses of `bind`",
    };
    let source = io::Error::new(ErrorKind::InvalidInput, why);
    BindError { address: bind.join(" "), port, option, source }
}

/// The address of an entry of `bind` with this port. `None` when the machine does not have an optional address.
///
/// # Errors
/// When the entry is no address, and no name of one.
pub fn address_of(entry: &str, port: u16, option: &'static str) -> Result<Option<SocketAddr>, BindError> {
    let name = entry.strip_prefix('-').unwrap_or(entry);
    match resolve(name, port) {
        Ok(address) => Ok(Some(address)),
        Err(e) if name != entry && is_absent(&e) => Ok(None),
        Err(source) => Err(BindError { address: name.to_string(), port, option, source }),
    }
}

/// Listens on an address that [`address_of`] has found for this entry of `bind`. `None` when the machine does not have an
/// optional address.
///
/// # Errors
/// When the address is not available.
pub fn listen_on(
    address: SocketAddr,
    entry: &str,
    backlog: i32,
    option: &'static str,
) -> Result<Option<TcpListener>, BindError> {
    match open(address, backlog) {
        Ok(listener) => Ok(Some(listener)),
        Err(e) if entry.starts_with('-') && is_absent(&e) => Ok(None),
        Err(source) => {
            let name = entry.strip_prefix('-').unwrap_or(entry).to_string();
            Err(BindError { address: name, port: address.port(), option, source })
        }
    }
}

/// True when an entry of `bind` is a loopback address.
pub fn is_loopback(entry: &str) -> bool {
    let name = entry.strip_prefix('-').unwrap_or(entry);
    resolve(name, 0).is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

fn resolve(name: &str, port: u16) -> io::Result<SocketAddr> {
    let ip = match name {
        "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => {
            let first = (name, port).to_socket_addrs()?.next();
            return first.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"));
        }
    };
    Ok(SocketAddr::new(ip, port))
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// True when the machine lacks the address or the whole protocol.
fn is_absent(e: &io::Error) -> bool {
    // EAFNOSUPPORT, EPROTONOSUPPORT and ENOPROTOOPT have no kind of their own.
    const NOT_SUPPORTED: [i32; 3] = [97, 93, 92];
    matches!(e.kind(), ErrorKind::AddrNotAvailable | ErrorKind::Unsupported)
        || e.raw_os_error().is_some_and(|code| NOT_SUPPORTED.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn a_free_port_is_shared_by_the_addresses() {
        let listeners = listen(&addresses(&["127.0.0.1", "127.0.0.2"]), 0, 16, "port").expect("loopback");
        let ports: Vec<u16> = listeners.iter().map(|l| l.local_addr().expect("bound").port()).collect();
        assert_eq!(ports.len(), 2);
        assert!(ports[0] != 0 && ports[0] == ports[1]);
    }

    #[test]
    fn an_absent_address_is_an_error_unless_optional() {
        // 192.0.2.0/24 is reserved for documentation, so no machine has it.
        let error = listen(&addresses(&["192.0.2.1"]), 0, 16, "port").expect_err("absent");
        assert!(error.to_string().contains("192.0.2.1"), "{error}");
        assert_eq!(
            listen(&addresses(&["127.0.0.1", "-192.0.2.1"]), 0, 16, "port").expect("one is there").len(),
            1
        );
        assert!(listen(&addresses(&["-192.0.2.1"]), 0, 16, "port").is_err());
        let error = listen(&[], 6379, 16, "port").expect_err("none").to_string();
        assert!(error.starts_with("cannot listen on port 6379: `bind` names no address"), "{error}");
    }

    #[test]
    fn a_busy_port_is_named() {
        let held = listen(&addresses(&["127.0.0.1"]), 0, 16, "port").expect("loopback");
        let port = held[0].local_addr().expect("bound").port();
        let error = listen(&addresses(&["127.0.0.1"]), port, 16, "port").expect_err("busy").to_string();
        assert!(
            error.contains("127.0.0.1") && error.contains(&port.to_string()) && error.contains("in use"),
            "{error}"
        );
    }
}
