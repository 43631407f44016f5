//! SHUTDOWN, SIGTERM and SIGINT: running commands finish, the exit code is right, and no client waits forever.

use crate::harness::{Server, command};
use rustix::process::Signal;

#[test]
fn shutdown_ends_the_server_with_code_0() {
    let mut server = Server::start(&[]);
    let mut idle = server.connect();
    idle.call("PING", "+PONG\r\n");
    let mut client = server.connect();
    client.send(&command("SHUTDOWN NOSAVE"));
    client.expect_end();
    idle.expect_end();
    assert_eq!(server.end().code(), Some(0));
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn a_signal_lets_commands_in_flight_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
        let (mut busy, mut half) = (server.connect(), server.connect());
        busy.send(&[command("DEBUG SLEEP 0.5"), command("ECHO last")].concat());
        half.send(b"*2\r\n$3\r\nGET\r\n");
        // The worker answers this command after it has read the commands above.
        server.connect().call("PING", "+PONG\r\n");
        server.signal(signal);
        half.expect_end();
        busy.expect(b"+OK\r\n$4\r\nlast\r\n");
        busy.expect_end();
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn a_second_signal_does_not_wait() {
    let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    busy.send(&command("DEBUG SLEEP 100"));
    idle.call("PING", "+PONG\r\n");
    server.signal(Signal::TERM);
    // The first signal has been handled when the idle connection closes.
    idle.expect_end();
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(1));
}

#[test]
fn the_grace_time_is_bounded() {
    let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    busy.send(&command("DEBUG SLEEP 100"));
    idle.call("PING", "+PONG\r\n");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}
