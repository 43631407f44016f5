//! A server on a Unix socket: what it serves, how its clients are shown, and what happens to the file.

use crate::harness::{Client, STRAND, Server, comes_true, command};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use strand_testkit::process;

/// The name of the socket, in the server's folder.
const NAME: &str = "s.sock";

/// A server on a Unix socket and on a port. `port 0` would mean no port.
fn start(options: &[&str]) -> (Server, PathBuf) {
    let beside = ["--unixsocket", NAME, "--http-port", "0", "--save", ""];
    let (server, _) = Server::start_doors(&[], &[&beside[..], options].concat());
    let path = server.folder.0.join(NAME);
    (server, path)
}

/// The fields `addr`, `laddr` and `flags` of each client in a reply of CLIENT LIST.
fn shown(list: &str) -> Vec<Vec<&str>> {
    let is_wanted = |field: &&str| ["addr=", "laddr=", "flags="].iter().any(|name| field.starts_with(name));
    let mut clients: Vec<Vec<&str>> =
        list.lines().map(|line| line.split(' ').filter(is_wanted).collect()).collect();
    // Which of two clients is accepted first is not promised.
    clients.sort_unstable();
    clients
}

/// Replies about the Unix socket that are the same in redis-server: of CONFIG, of CLIENT LIST, and a line of MONITOR.
fn replies_at(path: &Path) -> String {
    let mut client = Client::connect_unix(path);
    let mut monitor = Client::connect_unix(path);
    monitor.call("MONITOR", "+OK\r\n");
    client.send(&command("CONFIG GET unixsocket*"));
    let mut options: Vec<String> = (0..9).map(|_| client.line()).collect();
    // redis-server gives the options in the order of its table of hashes.
    options.sort_unstable();
    client.send(&command("CONFIG SET unixsocket other"));
    let refused = client.line();
    let list = client.bulk("CLIENT LIST");
    client.call("SET k v", "+OK\r\n");
    let mut line = monitor.line();
    while !line.contains("\"SET\"") {
        line = monitor.line();
    }
    let after_time = line.split_once(' ').expect("a time").1;
    client.call(&format!("CLIENT KILL ADDR {NAME}:0 SKIPME yes"), ":1\r\n");
    monitor.expect_end();
    format!("{options:?} {refused} {:?} {after_time}", shown(&list))
}

#[test]
fn clients_of_a_unix_socket_are_shown_as_in_redis_server() {
    let (_server, path) = start(&["--unixsocketperm", "770"]);
    let beside = tempfile::tempdir().expect("a folder");
    let dir = beside.path().to_str().expect("text");
    let redis = ["--dir", dir, "--unixsocket", NAME, "--unixsocketperm", "770"];
    let redis = process::Server::redis(&redis, None).expect("redis-server starts");
    assert_eq!(replies_at(&path), replies_at(&beside.path().join(NAME)));
    drop(redis);
}

#[test]
fn a_unix_socket_serves_what_a_port_serves_with_each_driver() {
    for driver in ["epoll", "io_uring", "auto"] {
        let (server, path) = start(&["--io-driver", driver, "--workers", "2"]);
        let mut crowd: Vec<Client> = (0..100).map(|_| Client::connect_unix(&path)).collect();
        for (i, client) in crowd.iter_mut().enumerate() {
            client.call(&format!("SET k{i} {i}"), "+OK\r\n");
        }
        server.connect().call("GET k99", "$2\r\n99\r\n");

        // A large value passes both ways, and many requests at once are answered in their order.
        let large = "v".repeat(16 << 20);
        let client = &mut crowd[0];
        client.send(
            &[
                format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${}\r\n", large.len()).as_bytes(),
                large.as_bytes(),
                b"\r\n",
            ]
            .concat(),
        );
        client.expect(b"+OK\r\n");
        assert!(client.bulk("GET large") == large, "{driver}: the value differs");
        client.send(&command("INCR n").repeat(10_000));
        (1..=10_000).for_each(|i| client.expect(format!(":{i}\r\n").as_bytes()));

        crowd[1].call("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        crowd[2].call("PUBLISH c m", ":1\r\n");
        crowd[1].expect(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");

        // A client that has sent everything gets its replies, and then the end.
        crowd[3].send(&command("GET k3").repeat(3));
        crowd[3].stream.shutdown(Shutdown::Write).expect("it is open");
        crowd[3].expect(b"$1\r\n3\r\n$1\r\n3\r\n$1\r\n3\r\n");
        crowd[3].expect_end();
        drop(crowd);
        comes_true(|| server.connect().bulk("INFO clients").contains("connected_clients:1\r\n"));
    }
}

#[test]
fn clients_of_a_unix_socket_are_local() {
    let (_server, path) = start(&["--enable-debug-command", "local"]);
    Client::connect_unix(&path).call("DEBUG SET-ACTIVE-EXPIRE 1", "+OK\r\n");
}

#[test]
fn the_file_has_its_permissions_and_goes_with_the_server() {
    let (mut server, path) = start(&["--unixsocketperm", "660", "--enable-protected-configs", "yes"]);
    let found = std::fs::symlink_metadata(&path).expect("the file is there");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o660);
    server.connect().call("CONFIG SET dir /", "+OK\r\n");
    server.signal(rustix::process::Signal::TERM);
    server.end();
    assert!(!path.exists(), "the file is still there");
    assert!(!server.folder.0.join("s.sock.lock").exists(), "the lock is still there");
}

/// A server with no door but the Unix socket.
struct PortLess(Child);

impl Drop for PortLess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_unix_socket_can_be_the_only_door_and_replaces_what_a_killed_server_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    let start = |doors: &[&str]| {
        let child = Command::new(STRAND)
            .args(["serve", "--save", "", "--unixsocket", NAME])
            .args(doors)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        PortLess(child.expect("the built binary starts"))
    };
    // As in redis-server, an empty `bind` means no TCP port, whatever its number is.
    for (doors, port) in [(["--port", "0", "--http-port", "0"], 0), (["--bind", "", "--port", "7"], 7)] {
        let server = start(&doors);
        comes_true(|| std::os::unix::net::UnixStream::connect(&path).is_ok());
        let mut client = Client::connect_unix(&path);
        client.call("CONFIG GET port", &format!("*2\r\n$4\r\nport\r\n$1\r\n{port}\r\n"));
        assert!(client.bulk("INFO server").contains(&format!("tcp_port:{port}\r\n")));
        assert_eq!(shown(&client.bulk("CLIENT LIST"))[0], ["addr=s.sock:0", "laddr=s.sock:0", "flags=U"]);
        drop(server);
        assert!(path.exists(), "a killed server removes nothing");
    }
}

#[test]
fn a_server_does_not_start_on_a_file_or_on_the_socket_of_another_server() {
    let (server, path) = start(&[]);
    let name = path.to_str().expect("text");
    let log = Server::try_start(&["--unixsocket", name]).err().expect("the socket is in use");
    assert!(log.contains(name) && log.contains("another program listens on it"), "{log}");
    Client::connect_unix(&path).call("PING", "+PONG\r\n");

    let file = server.folder.write("notes", "precious");
    let log = Server::try_start(&["--unixsocket", &file]).err().expect("it is a file");
    assert!(log.contains("not a socket"), "{log}");
    assert_eq!(std::fs::read_to_string(&file).expect("kept"), "precious");
}
