//! Named limits: clients, idle time, query and output buffers, protected mode.

use crate::fixture::{End, Server, Stop};

#[test]
fn too_many_clients_are_refused() {
    let mut server = Server::with("maxclients 2");
    let (a, _b) = (server.connect(), server.connect());
    let refused = || "-ERR max number of clients reached|".to_string();
    assert_eq!(server.try_connect(true).err(), Some(refused()));
    drop(a);
    let mut c = server.connect();
    assert!(c.run(&server, "INFO stats").contains("|rejected_connections:1|"));
    assert_eq!(server.try_connect(true).err(), Some(refused()));
}

#[test]
fn protected_mode_refuses_strangers_while_there_is_no_password() {
    let mut server = Server::new();
    let refusal = server.try_connect(false).err().unwrap();
    assert!(
        refusal.starts_with(
            "-DENIED Redis is running in protected mode because protected mode is enabled and no"
        )
    );
    assert!(refusal.ends_with("in order for the server to start accepting connections from the outside.|"));
    let mut admin = server.connect();
    assert_eq!(admin.run(&server, "CONFIG SET protected-mode no"), "+OK|");
    assert!(server.try_connect(false).is_ok());
    assert_eq!(admin.run(&server, "CONFIG SET protected-mode yes requirepass x"), "+OK|");
    assert!(server.try_connect(false).is_ok());
}

#[test]
fn idle_clients_are_closed_after_timeout() {
    let mut server = Server::with("timeout 10");
    let mut peer = server.connect();
    assert_eq!(peer.session.idle_deadline_us(), Some(server.now.mono_us + 10_000_000));
    server.advance_ms(9_999);
    assert_eq!(peer.run(&server, "PING"), "+PONG|");
    server.advance_ms(9_999);
    assert_eq!(peer.drive(&server), Stop::Read);
    server.advance_ms(1);
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
}

#[test]
fn a_client_that_reads_slowly_is_not_idle() {
    let mut server = Server::with("timeout 10");
    let mut peer = server.connect();
    peer.hold_output = true;
    peer.run(&server, &format!("SET k {}", "v".repeat(100_000)));
    peer.feed(&b"GET k\r\n".repeat(10), usize::MAX);
    assert_eq!(peer.drive(&server), Stop::Flush);
    for _ in 0..5 {
        server.advance_ms(9_000);
        peer.take_output(1000);
        assert_eq!(peer.drive(&server), Stop::Flush);
    }
    server.advance_ms(10_000);
    assert_eq!(peer.drive(&server), Stop::Ended);
}

#[test]
fn a_request_over_the_query_limit_closes_the_client() {
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let mut peer = server.connect();
    peer.feed(b"*100\r\n", 99);
    let argument = [b"$20000\r\n".as_slice(), &[b'x'; 20_000], b"\r\n"].concat();
    let mut fed = 0;
    while peer.drive(&server) == Stop::Read {
        peer.feed(&argument, usize::MAX);
        fed += argument.len();
        assert!(fed < 2 << 20);
    }
    assert_eq!(peer.ended, Some(End::Abort));
    assert!(fed > 1 << 20);
    // Many small commands of the same size together are no trouble.
    let mut peer = server.connect();
    let small = b"ECHO 0123456789\r\n".repeat(100_000);
    assert_eq!(peer.send(&server, &small).len(), 100_000 * "$10|0123456789|".len());
}

#[test]
fn output_over_the_hard_limit_closes_the_client() {
    let mut server = Server::with("client-output-buffer-limit normal 100kb 0 0");
    let mut peer = server.connect();
    peer.hold_output = true;
    peer.run(&server, &format!("SET k {}", "v".repeat(60_000)));
    peer.feed(b"GET k\r\n", 99);
    assert_eq!(peer.drive(&server), Stop::Read);
    peer.feed(b"GET k\r\n", 99);
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
    assert!(
        server.connect().run(&server, "INFO stats").contains("client_output_buffer_limit_disconnections:1|")
    );
}

#[test]
fn output_over_the_soft_limit_for_too_long_closes_the_client() {
    let mut server = Server::with("client-output-buffer-limit normal 0 50kb 5");
    let mut peer = server.connect();
    peer.hold_output = true;
    peer.run(&server, &format!("SET k {}", "v".repeat(60_000)));
    peer.feed(b"GET k\r\n", 99);
    assert_eq!(peer.drive(&server), Stop::Read);
    let deadline = peer.session.idle_deadline_us().unwrap();
    server.advance_ms(5_000);
    assert_eq!(peer.drive(&server), Stop::Read);
    server.advance_ms(1);
    assert!(server.now.mono_us >= deadline);
    assert_eq!(peer.drive(&server), Stop::Ended);

    let mut peer = server.connect();
    peer.hold_output = true;
    peer.feed(b"GET k\r\n", 99);
    peer.drive(&server);
    server.advance_ms(3_000);
    peer.take_output(20_000);
    peer.drive(&server);
    assert_eq!(peer.session.idle_deadline_us(), None, "below the limit the time starts anew");
    server.advance_ms(10_000);
    assert_eq!(peer.drive(&server), Stop::Read);
}
