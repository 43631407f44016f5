//! Named limits: clients, idle time, query and output buffers, protected mode.

use crate::fixture::{End, Server, Stop, command};
use strand_engine::UNAUTHENTICATED_OUTPUT_BYTES_MAX;

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
fn a_client_without_a_login_is_closed_at_the_login_timeout() {
    for (line, piece) in [("", 1), ("AUTH x\r\n", 1), ("PING\r\n", 6)] {
        let mut server = Server::with("requirepass secret\nlogin-timeout 30");
        let mut peer = server.connect();
        peer.session.await_login(server.now);
        assert_eq!(peer.session.idle_deadline_us(), Some(server.now.mono_us + 30_000_000));
        let mut bytes = line.as_bytes().chunks(piece).cycle();
        for _ in 0..29 {
            server.advance_ms(1_000);
            let piece = if line == "AUTH x\r\n" { Some(&b" "[..]) } else { bytes.next() };
            peer.feed(piece.unwrap_or_default(), usize::MAX);
            assert_eq!(peer.drive(&server), Stop::Read, "{line}");
        }
        server.advance_ms(1_000);
        peer.feed(b" ", usize::MAX);
        assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)), "{line}");
    }
}

#[test]
fn the_login_timeout_spares_logged_in_clients_and_long_requests() {
    let mut server = Server::with("requirepass secret\nlogin-timeout 30");
    let (mut known, mut late) = (server.connect(), server.connect());
    known.session.await_login(server.now);
    late.session.await_login(server.now);
    assert_eq!(known.run(&server, "AUTH secret"), "+OK|");
    assert_eq!(known.session.idle_deadline_us(), None);
    server.advance_ms(29_999);
    assert_eq!(late.run(&server, "AUTH secret"), "+OK|");
    server.advance_ms(60_000);
    assert_eq!((known.run(&server, "PING"), late.run(&server, "PING")), ("+PONG|".into(), "+PONG|".into()));

    // Without a password: a client may be idle forever before its first request, but may not leave that request
    // unfinished.
    let mut server = Server::with("login-timeout 30");
    let (mut idle, mut part, mut long) = (server.connect(), server.connect(), server.connect());
    for peer in [&mut idle, &mut part, &mut long] {
        peer.session.await_login(server.now);
        assert_eq!(peer.session.idle_deadline_us(), None);
    }
    part.feed(b"*2\r\n$4\r\nECHO\r\n$10\r\n12345", 99);
    long.feed(&[&b"*2\r\n$4\r\nECHO\r\n$100000\r\n"[..], &[b'x'; 70_000]].concat(), 4096);
    for peer in [&mut idle, &mut part, &mut long] {
        assert_eq!(peer.drive(&server), Stop::Read);
    }
    assert_eq!(part.session.idle_deadline_us(), Some(server.now.mono_us + 30_000_000));
    server.advance_ms(30_000);
    assert_eq!(part.drive(&server), Stop::Ended);
    assert_eq!((idle.drive(&server), long.drive(&server)), (Stop::Read, Stop::Read));
    long.feed(&[&[b'x'; 30_000][..], b"\r\n"].concat(), 4096);
    long.drive(&server);
    assert!(long.replies().starts_with("$100000|xxx"));
    assert_eq!(idle.run(&server, "PING"), "+PONG|");

    let mut server = Server::with("requirepass secret\nlogin-timeout 0");
    let mut peer = server.connect();
    peer.session.await_login(server.now);
    server.advance_ms(1 << 40);
    assert_eq!(peer.drive(&server), Stop::Read);
}

#[test]
fn little_memory_is_held_for_a_client_before_its_login() {
    let mut server = Server::with("requirepass secret");
    let mut peer = server.connect();
    peer.feed(b"*10\r\n", 99);
    let argument = [&b"$16384\r\n"[..], &[b'x'; 16_384], b"\r\n"].concat();
    let mut fed = 0;
    while peer.drive(&server) == Stop::Read {
        peer.feed(&argument, usize::MAX);
        fed += argument.len();
        assert!(fed < 64 * 1024);
    }
    assert_eq!(peer.replies(), "-ERR Protocol error: unauthenticated request length|");
    // A name and a password of the greatest lengths are accepted.
    let mut peer = server.connect();
    let long = "x".repeat(16_384);
    assert!(peer.run(&server, &format!("HELLO 3 AUTH {long} {long}")).starts_with("-WRONGPASS"));
    // The client does not read these replies.
    let mut peer = server.connect();
    peer.hold_output = true;
    peer.feed(&b"PING\r\n".repeat(2_000), usize::MAX);
    assert_eq!(peer.drive(&server), Stop::Flush);
    assert!(peer.session.output().len() < UNAUTHENTICATED_OUTPUT_BYTES_MAX + 100);
    peer.hold_output = false;
    assert_eq!(peer.drive(&server), Stop::Read);
    assert_eq!(peer.replies().matches("NOAUTH").count(), 2_000);
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
    // Many small commands are accepted although they have this size together.
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

#[test]
fn a_client_that_sends_all_before_it_reads_is_served() {
    // Here the server stops reading ahead at the query limit.
    let mut server = Server::with("client-query-buffer-limit 1mb\nmaxmemory-clients 100mb");
    let mut peer = server.connect();
    peer.hold_output = true;
    let request = [&b"*2\r\n$4\r\nECHO\r\n$20000\r\n"[..], &[b'x'; 20_000], b"\r\n"].concat();
    let feed = |peer: &mut crate::fixture::Peer| (0..60).for_each(|_| peer.feed(&request, usize::MAX));
    feed(&mut peer);
    assert_eq!(peer.drive(&server), Stop::Flush);
    assert!(!peer.session.wants_read() || peer.session.output().len() > 256 << 10);
    feed(&mut peer);
    assert!(!peer.session.wants_read());
    // The server waits while output leaves, because then the client reads.
    for _ in 0..5 {
        assert_eq!(peer.session.idle_deadline_us(), Some(server.now.mono_us + 100_000));
        server.advance_ms(99);
        peer.take_output(1);
        assert_eq!(peer.drive(&server), Stop::Flush);
    }
    server.advance_ms(100);
    assert_eq!(peer.drive(&server), Stop::Read);
    assert!(peer.session.output().len() > 2 << 20);
    // Once the session has begun to execute, it continues at once ...
    feed(&mut peer);
    assert_eq!(peer.drive(&server), Stop::Read);
    peer.take_output(usize::MAX);
    assert_eq!(peer.received_bytes().len(), 180 * b"$20000\r\n\r\n".len() + 180 * 20_000);
    // ... until the client has read everything.
    feed(&mut peer);
    assert_eq!(peer.drive(&server), Stop::Flush);
}

#[test]
fn the_log_names_the_clients_that_are_cut_off() {
    let limits = "client-output-buffer-limit normal 100kb 50kb 5\nclient-output-buffer-limit pubsub 100kb 0 0\n\
                  client-query-buffer-limit 1mb\nmaxmemory-clients 2mb\ntimeout 60";
    let mut server = Server::with(limits);
    let mut admin = server.connect();
    admin.run(&server, &format!("SET secret {}", "v".repeat(60_000)));
    let ended = |peer: &crate::fixture::Peer| assert_eq!(peer.ended, Some(End::Abort));
    let line = |server: &Server| server.logged.lock().pop().expect("a line");
    let slow = |server: &mut Server, name: &str, request: &str, n: usize| {
        let mut peer = server.connect();
        peer.run(server, &format!("CLIENT SETNAME {name}"));
        peer.hold_output = true;
        (0..n).for_each(|_| peer.feed(&command(request), usize::MAX));
        peer.drive(server);
        peer
    };
    ended(&slow(&mut server, "hard", "GET secret", 2));
    let found = line(&server);
    let who = "warning: Closed client id=2 addr=127.0.0.1:40002 name=hard user=default class=normal: ";
    assert!(found.starts_with(who), "{found}");
    let why = " bytes, the hard limit of 102400 bytes is reached (client-output-buffer-limit normal)";
    assert!(found.ends_with(why) && !found.contains("secret") && !found.contains("GET"), "{found}");

    let mut peer = slow(&mut server, "soft", "GET secret", 1);
    server.advance_ms(6_000);
    peer.drive(&server);
    ended(&peer);
    drop(peer);
    let found = line(&server);
    let why = "60010 bytes, over the soft limit of 51200 bytes for more than 5 s (client-output-buffer-limit normal)";
    assert!(found.contains("name=soft") && found.ends_with(why), "{found}");

    let mut peer = slow(&mut server, "listener", "SUBSCRIBE channel", 1);
    for _ in 0..3 {
        admin.run(&server, &format!("PUBLISH channel {}", "m".repeat(50_000)));
    }
    peer.hears(&server);
    ended(&peer);
    drop(peer);
    let found = line(&server);
    let why = "the hard limit of 102400 bytes is reached (client-output-buffer-limit pubsub)";
    assert!(found.contains("name=listener user=default class=pubsub: ") && found.ends_with(why), "{found}");

    let part = [&b"*1\r\n$2000000\r\n"[..], &vec![b'x'; 1_100_000]].concat();
    let mut peer = server.connect();
    peer.feed(&part, usize::MAX);
    peer.drive(&server);
    ended(&peer);
    drop(peer);
    let found = line(&server);
    let why = "its unfinished request or transaction has 1100014 bytes, at most 1048576 bytes are allowed (client-query-buffer-limit)";
    assert!(found.ends_with(why), "{found}");
    let mut peer = server.connect();
    peer.run(&server, "MULTI");
    for _ in 0..12 {
        peer.feed(&command(&format!("SET k {}", "x".repeat(100_000))), usize::MAX);
        peer.drive(&server);
    }
    ended(&peer);
    drop(peer);
    assert!(line(&server).contains("(client-query-buffer-limit)"));

    admin.run(&server, "CONFIG SET maxmemory-clients 1mb client-query-buffer-limit 1gb");
    let mut peer = server.connect();
    peer.feed(&part, usize::MAX);
    peer.drive(&server);
    peer.drive(&server);
    ended(&peer);
    drop(peer);
    let found = line(&server);
    assert!(found.starts_with("Closed client id=") && found.contains(": it held 11000"), "{found}");
    assert!(found.ends_with(" bytes, at most 1048576 bytes are allowed (maxmemory-clients)"), "{found}");

    // An idle client is no problem, so the log has no line about it.
    let mut peer = server.connect();
    server.advance_ms(61_000);
    peer.drive(&server);
    ended(&peer);
    assert_eq!(peer.session.abort_reason(), "idle for too long");
    assert_eq!(*server.logged.lock(), [""; 0]);
}

#[test]
fn few_of_many_clients_that_are_cut_off_are_logged() {
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let part = [&b"*1\r\n$2000000\r\n"[..], &vec![b'x'; 1_100_000]].concat();
    for _ in 0..25 {
        let mut peer = server.connect();
        peer.feed(&part, usize::MAX);
        peer.drive(&server);
        assert_eq!(peer.ended, Some(End::Abort));
    }
    assert_eq!(server.logged.lock().len(), 10);
    // The host's clock moves when it has been read. No further client needs to be closed.
    server.step_us.store(2_000_000, std::sync::atomic::Ordering::Relaxed);
    (0..3).for_each(|_| server.engine.tick(server.now));
    let logged = server.logged.lock();
    assert_eq!(logged[10], "warning: 15 more clients were closed because of a limit and not logged");
    assert_eq!(logged.len(), 11);
}

#[test]
fn a_client_over_the_limit_of_all_clients_is_closed_at_once() {
    let mut server = Server::with("maxmemory-clients 1mb");
    let mut admin = server.connect();
    let half_request = |bytes: usize| [b"*1\r\n$2000000\r\n".as_slice(), &vec![b'x'; bytes]].concat();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.feed(&half_request(600_000), usize::MAX);
    a.drive(&server);
    assert!(admin.run(&server, "CLIENT LIST").contains(" qbuf=600014 qbuf-free=0 argv-mem=0 "));
    assert_eq!(a.ended, None);
    b.feed(&half_request(1_100_000), usize::MAX);
    b.drive(&server);
    b.drive(&server);
    assert_eq!((a.ended, b.ended), (None, Some(End::Abort)));
    // A lower limit takes effect at once, too.
    admin.run(&server, "CONFIG SET maxmemory-clients 500kb");
    a.drive(&server);
    assert_eq!(a.ended, Some(End::Abort));
    assert!(admin.run(&server, "INFO stats").contains("|evicted_clients:2|"));
    // Prefixes of CLIENT TRACKING count.
    let mut c = server.connect();
    let prefixes: Vec<String> = (0..1000).map(|i| format!("PREFIX {i:0>1000}")).collect();
    c.run(&server, &format!("CLIENT TRACKING ON BCAST {}", prefixes.join(" ")));
    c.drive(&server);
    assert_eq!(c.ended, Some(End::Abort));
}

#[test]
fn the_clients_that_hold_most_are_closed_at_their_limit() {
    let mut server = Server::with("maxmemory-clients 1mb");
    let mut admin = server.connect();
    admin.run(&server, &format!("SET k {}", "v".repeat(200_000)));
    let mut peers: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for (i, peer) in peers.iter_mut().enumerate() {
        peer.hold_output = true;
        if i == 3 {
            peer.run(&server, "CLIENT NO-EVICT ON");
        }
        // The clients have 200, 400, 600 and 800 KB of replies. 800 KB is more than a session holds at once.
        for _ in 0..=i {
            peer.feed(b"GET k\r\n", 99);
            peer.drive(&server);
        }
    }
    assert!(server.engine.watch_memory(server.now) <= 10_000, "it is looked at soon again");
    let ends: Vec<_> = peers.iter_mut().map(|peer| (peer.drive(&server), peer.ended).1).collect();
    assert_eq!(ends[3], None, "it is not to be evicted");
    assert_eq!(ends[2], Some(End::Abort));
    let stats = admin.run(&server, "INFO stats");
    let evicted = ends.iter().filter(|end| end.is_some()).count();
    assert!(stats.contains(&format!("|evicted_clients:{evicted}|")), "{stats}");
    // The limit is a share of maxmemory. Without maxmemory there is no limit.
    assert_eq!(admin.run(&server, "CONFIG SET maxmemory-clients 5%"), "+OK|");
    assert_eq!(server.engine.watch_memory(server.now), 100_000);
    assert_eq!(admin.run(&server, "CONFIG SET maxmemory 1gb"), "+OK|");
    assert_eq!(server.engine.watch_memory(server.now), 10_000);
}
