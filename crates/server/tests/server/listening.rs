//! CONFIG SET of `bind` and of ports: the server listens elsewhere, and its connections stay. redis-server is beside it.

use crate::harness::{Server, comes_true};
use crate::saving::{Link, call};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use strand_testkit::client::Client;
use strand_testkit::process::{Server as Peer, free_port};

/// True when a server answers PING at this address.
fn answers(address: SocketAddr) -> bool {
    let link = Client::connect(address);
    link.is_ok_and(|mut link| link.call(&["PING"]).is_ok_and(|reply| crate::saving::text(reply) == "PONG"))
}

fn refuses(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

fn set(link: &mut Link, option: &str, value: &str) -> String {
    call(link, &["CONFIG", "SET", option, value])
}

#[test]
fn the_port_and_the_addresses_change_as_in_redis() {
    let strand = Server::start(&["--bind", "127.0.0.1"]);
    let redis = Peer::redis(&["--bind", "127.0.0.1"], None).expect("redis-server is installed");
    for address in [strand.address, redis.address] {
        let mut link = Client::connect(address).expect("it listens");
        let first = address.port();
        let at = |ip: &str, port: u16| SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port);
        // Another port. The connection stays.
        let second = free_port().expect("a port");
        assert_eq!(set(&mut link, "port", &second.to_string()), "OK");
        assert!(answers(at("127.0.0.1", second)));
        comes_true(|| refuses(at("127.0.0.1", first)));
        assert_eq!(crate::replicas::field(&mut link, "tcp_port"), second.to_string());
        // A port of another program: nothing changes.
        let other = TcpListener::bind(at("127.0.0.1", 0)).expect("loopback has ports");
        let busy = other.local_addr().expect("bound").port();
        assert_eq!(
            set(&mut link, "port", &busy.to_string()),
            "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs."
        );
        assert!(answers(at("127.0.0.1", second)));
        // More and fewer addresses, one that the machine does not have, and one that it need not have.
        assert_eq!(set(&mut link, "bind", "127.0.0.2 127.0.0.1"), "OK");
        assert!(answers(at("127.0.0.1", second)) && answers(at("127.0.0.2", second)));
        assert_eq!(
            set(&mut link, "bind", "127.0.0.3 192.0.2.1"),
            "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses."
        );
        assert!(answers(at("127.0.0.2", second)) && refuses(at("127.0.0.3", second)));
        assert_eq!(set(&mut link, "bind", "-192.0.2.1 127.0.0.2"), "OK");
        comes_true(|| refuses(at("127.0.0.1", second)));
        assert!(answers(at("127.0.0.2", second)));
        // Both at the same time. The system does not give this port to clients, so nobody takes the port below.
        let third = free_port().expect("a port");
        let both = ["CONFIG", "SET", "bind", "127.0.0.1", "port", &third.to_string()];
        assert_eq!(call(&mut link, &both), "OK");
        assert!(answers(at("127.0.0.1", third)));
        comes_true(|| refuses(at("127.0.0.2", second)));
        // No port: only the connection is left. Then the way back.
        assert_eq!(set(&mut link, "port", "0"), "OK");
        comes_true(|| refuses(at("127.0.0.1", third)));
        assert_eq!(set(&mut link, "port", &third.to_string()), "OK");
        assert!(answers(at("127.0.0.1", third)));
    }
}

/// The ports that only Strand has. A later option of the command that fails brings the former ports back.
#[test]
fn every_door_opens_and_closes_while_the_server_runs() {
    let server = Server::start(&["--bind", "127.0.0.1", "--http-port", "0"]);
    let mut link = Client::connect(server.address).expect("it listens");
    let ip = server.address.ip();
    let port = free_port().expect("a port");
    for option in ["http-port", "pack4-port"] {
        assert!(refuses(SocketAddr::new(ip, port)));
        assert_eq!(set(&mut link, option, &port.to_string()), "OK");
        assert!(TcpStream::connect((ip, port)).is_ok(), "{option}");
        assert_eq!(set(&mut link, option, "0"), "OK");
        comes_true(|| refuses(SocketAddr::new(ip, port)));
    }
    // No certificate is set, so TLS cannot begin.
    let refused = set(&mut link, "tls-port", &port.to_string());
    assert!(refused.ends_with("Unable to update TLS configuration. Check server logs."), "{refused}");
    assert!(refuses(SocketAddr::new(ip, port)) && answers(server.address));
    let refused = call(&mut link, &["CONFIG", "SET", "port", &port.to_string(), "dir", "/no/such/folder"]);
    assert!(refused.starts_with("ERR CONFIG SET failed"), "{refused}");
    assert!(refuses(SocketAddr::new(ip, port)) && answers(server.address));
}
