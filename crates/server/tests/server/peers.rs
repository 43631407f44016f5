//! Clients that are large, slow, impolite or gone.

use crate::harness::{Client, Server, command, is_true_within};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = Server::start(&["--workers", "2"]);
    let mut client = server.connect();
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for i in 0..3000 {
        requests.extend(command(&format!("SET key:{i} value-{i}")));
        requests.extend(command(&format!("GET key:{i}")));
        let value = format!("value-{i}");
        replies.extend(format!("+OK\r\n${}\r\n{value}\r\n", value.len()).into_bytes());
    }
    client.send(&requests);
    client.expect(&replies);
    client.send(b"PING\r\nECHO inline\r\n");
    client.expect(b"+PONG\r\n$6\r\ninline\r\n");
}

#[test]
fn every_split_of_a_request_is_the_same_request() {
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    let request = command("ECHO some-text");
    for at in 1..request.len() {
        client.send(&request[..at]);
        client.send(&request[at..]);
        client.expect(b"$9\r\nsome-text\r\n");
    }
    for byte in &request {
        client.send(&[*byte]);
    }
    client.expect(b"$9\r\nsome-text\r\n");
}

#[test]
fn idle_connections_and_half_frames_cost_nothing() {
    let server = Server::start(&["--workers", "1", "--hz", "1"]);
    let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.call("PING", "+PONG\r\n");
        let half =
            [&b"*2\r\n$3\r\nGET\r\n$100\r\nabc"[..], b"*1\r\n$100000\r\nxy", b"GET half-an-inline", b""]
                [i % 4];
        client.send(half);
    }
    // The last halves were read before a later connection was served.
    server.connect().call("PING", "+PONG\r\n");
    server.costs_nothing();
    // A frame of which half has arrived continues where it stopped.
    let mut rest = vec![b'd'; 97];
    rest.extend_from_slice(b"\r\n");
    clients[0].send(&rest);
    clients[0].expect(b"$-1\r\n");
}

#[test]
fn a_naive_client_is_not_stalled() {
    // Nagle's algorithm is on. Header and body are written separately, and then the client waits for the reply. If
    // the server did not acknowledge promptly inside a frame, each round would wait for a delayed acknowledgement, as
    // it does with a server that does not set this option.
    let server = Server::start(&["--workers", "1"]);
    let ours = naive_round(server.address, 40);
    let plain = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = plain.local_addr().expect("it is bound");
    let plain = std::thread::spawn(move || {
        let (mut stream, _) = plain.accept()?;
        let mut request = vec![0; NAIVE_PARTS.iter().map(|p| p.len()).sum()];
        // Serve until the client has disconnected.
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"+OK\r\n")?;
        }
        std::io::Result::Ok(())
    });
    let stalled = naive_round(address, 20);
    plain.join().expect("no panic").expect("it is read");
    assert!(ours < stalled / 2, "{ours:?} for a round, {stalled:?} at a plain server");
}

/// One SET, in the three writes of a simple client.
const NAIVE_PARTS: [&[u8]; 3] = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200\r\n", &[b'v'; 200], b"\r\n"];

/// The median time of a round trip.
fn naive_round(address: SocketAddr, rounds: usize) -> Duration {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    let mut took = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        NAIVE_PARTS.iter().for_each(|part| stream.write_all(part).expect("taken"));
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"+OK\r\n");
        took.push(start.elapsed());
    }
    took.sort();
    took[rounds / 2]
}

#[test]
fn absurd_lengths_end_the_connection_with_an_error() {
    let server = Server::start(&["--workers", "1"]);
    let cases: &[(&[u8], &[u8])] = &[
        (b"*99999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$99999999999\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\nPING\r\n", b"-ERR Protocol error: expected '$', got 'P'\r\n"),
        (b"ECHO \"unbalanced\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n"),
    ];
    for (request, reply) in cases {
        let mut client = server.connect();
        client.send(request);
        client.expect(reply);
        client.expect_end();
    }
    // A declared length does not allocate memory: each of these requests announces a gigabyte.
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nx");
            client
        })
        .collect();
    server.connect().call("PING", "+PONG\r\n");
    assert!(server.memory("VmRSS") < 200 << 20, "{} bytes resident", server.memory("VmRSS"));
    drop(clients);
}

#[test]
fn vanished_clients_are_removed() {
    let server = Server::start(&["--workers", "2"]);
    for i in 0..40 {
        let mut client = server.connect();
        client.send(
            [&b"*2\r\n$3\r\nGET\r\n$10"[..], b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$70000\r\nabc", b"PING"][i % 3],
        );
    }
    let mut watch = server.connect();
    let alone = || watch.bulk("INFO clients").contains("connected_clients:1\r\n");
    assert!(is_true_within(Duration::from_secs(10), alone), "{}", watch.bulk("CLIENT LIST"));
    watch.call("EXISTS k", ":0\r\n");
}

#[test]
fn a_client_that_half_closes_still_gets_its_replies() {
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    client.send(b"SET k v\r\nKEYS *\r\nGET k\r\n");
    client.stream.shutdown(Shutdown::Write).expect("connected");
    client.expect(b"+OK\r\n*1\r\n$1\r\nk\r\n$1\r\nv\r\n");
    client.expect_end();
}

#[test]
fn a_large_value_in_small_chunks_takes_its_own_size_in_memory() {
    const LEN: usize = 64 << 20;
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    client.call("SET small v", "+OK\r\n");
    let before = server.memory("VmHWM");
    client.send(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${LEN}\r\n").as_bytes());
    let chunk = [b'z'; 4096];
    (0..LEN / chunk.len()).for_each(|_| client.send(&chunk));
    client.send(b"\r\n");
    client.expect(b"+OK\r\n");
    let grown = server.memory("VmHWM") - before;
    // The peak may have 1.1 times the value and 1 MB, plus 4 MB for what an unoptimised build and the test's other
    // commands touch.
    assert!(grown <= LEN as u64 * 11 / 10 + (5 << 20), "the peak grew by {grown} bytes");
    client.call("STRLEN large", &format!(":{LEN}\r\n"));
    client.call("GETRANGE large 67108860 -1", "$4\r\nzzzz\r\n");
}

#[test]
fn two_hundred_connections_are_served() {
    let server = Server::start(&["--workers", "2"]);
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for round in 0..3 {
        clients.iter_mut().for_each(|c| c.send(&command(&format!("INCRBY n {}", round + 1))));
        clients.iter_mut().for_each(|c| assert!(c.line().starts_with(':')));
    }
    clients[199].call("GET n", "$4\r\n1200\r\n");
}

#[test]
fn a_client_above_maxclients_gets_an_error() {
    let server = Server::start(&["--maxclients", "2"]);
    let (mut one, mut two) = (server.connect(), server.connect());
    one.call("PING", "+PONG\r\n");
    two.call("PING", "+PONG\r\n");
    let mut three = server.connect();
    three.expect(b"-ERR max number of clients reached\r\n");
    three.expect_end();
    two.call("PING", "+PONG\r\n");
}

#[test]
fn replies_of_a_client_that_does_not_read_take_little_memory() {
    // The values are shorter than those that replies share, so every reply is a copy, and unbounded output would show
    // in memory.
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    let value = "v".repeat(8000);
    client.call(&format!("SET k {value}"), "+OK\r\n");
    let before = server.memory("VmRSS");
    let request = command("GET k");
    let batch: Vec<u8> = request.iter().copied().cycle().take(request.len() * 100).collect();
    client.stream.set_write_timeout(Some(Duration::from_millis(500))).expect("not zero");
    let (mut sent, mut blocked) = (0usize, false);
    // All replies together would have 400 MB.
    while sent < request.len() * 50_000 && !blocked {
        match client.stream.write(&batch[sent % request.len()..]) {
            Ok(n) => sent += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => blocked = true,
            Err(e) => panic!("{e}"),
        }
    }
    let grown = server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for one client that does not read");
    // Other clients are served meanwhile, and a client that finally reads gets every reply.
    server.connect().call("PING", "+PONG\r\n");
    let reply = format!("$8000\r\n{value}\r\n");
    (0..sent / request.len()).for_each(|_| client.expect(reply.as_bytes()));
}

#[test]
fn an_idle_client_is_closed_after_the_timeout() {
    let server = Server::start(&["--workers", "1"]);
    let (mut idle, mut busy) = (server.connect(), server.connect());
    idle.call("PING", "+PONG\r\n");
    // The change also applies to a waiting connection.
    busy.call("CONFIG SET timeout 1", "+OK\r\n");
    idle.expect_end();
    busy.stream.shutdown(Shutdown::Both).expect("connected");
}

#[test]
fn a_client_that_sends_everything_first_gets_redis_server_s_replies() {
    // Number of requests. They have more bytes than the buffers of the kernel and both limits of a session together.
    const REQUESTS: usize = 3_000;
    const BYTES: usize = 64 << 10;
    let request = [format!("*2\r\n$4\r\nECHO\r\n${BYTES}\r\n").as_bytes(), &[b'x'; BYTES], b"\r\n"].concat();
    let reply = [format!("${BYTES}\r\n").as_bytes(), &[b'x'; BYTES], b"\r\n"].concat();
    let ours = Server::start(&["--workers", "1"]);
    let theirs = strand_testkit::process::Server::redis(&[], None).expect("redis-server is installed");
    for address in [theirs.address, ours.address] {
        let mut client = Client::connect(address);
        (0..REQUESTS).for_each(|_| client.send(&request));
        (0..REQUESTS).for_each(|_| client.expect(&reply));
        client.call("PING", "+PONG\r\n");
    }
}
