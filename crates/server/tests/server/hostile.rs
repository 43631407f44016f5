//! Malicious input: colliding keys, wrong lengths.

use crate::harness::{Server, command, is_true_within};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The order in which SCAN visits the keys.
fn scan_order(server: &Server) -> Vec<String> {
    let mut client = server.connect();
    client.send(&command("SCAN 0 COUNT 1000"));
    assert_eq!((client.line(), client.line()), ("*2".into(), "$1".into()));
    assert_eq!(client.line(), "0", "one call walks them all");
    let count = client.line()[1..].parse::<usize>().expect("a count");
    (0..count).map(|_| (client.line(), client.line()).1).collect()
}

#[test]
fn the_hash_is_keyed_by_the_process() {
    // SCAN visits keys in hash order. If the order were equal to that of another process, a stranger could find
    // colliding keys.
    let orders: Vec<Vec<String>> = (0..2)
        .map(|_| {
            let server = Server::start(&["--workers", "1"]);
            let sets: Vec<u8> = (0..200).flat_map(|i| command(&format!("SET key:{i} v"))).collect();
            let mut client = server.connect();
            client.send(&sets);
            client.expect(&b"+OK\r\n".repeat(200));
            let order = scan_order(&server);
            assert_eq!(order, scan_order(&server), "one process keeps its order");
            order
        })
        .collect();
    assert_eq!(orders[0].iter().collect::<HashSet<_>>(), orders[1].iter().collect::<HashSet<_>>());
    assert_ne!(orders[0], orders[1]);
}

/// 8,192 keys with one hash under h * 33 + c, a common unkeyed hash: 13 pairs of letters, each `Ez` or `FY`.
fn colliding_keys() -> impl Iterator<Item = String> {
    (0..1u32 << 13).map(|n| (0..13).map(|bit| if n >> bit & 1 == 0 { "Ez" } else { "FY" }).collect())
}

#[test]
fn keys_that_collide_under_a_common_hash_cost_no_more_than_others() {
    let hash = |key: &str| key.bytes().fold(5381u64, |h, c| h.wrapping_mul(33).wrapping_add(u64::from(c)));
    assert_eq!(colliding_keys().map(|k| hash(&k)).collect::<HashSet<_>>().len(), 1);
    let harmless = (0..1u32 << 13).map(|n| format!("some-harmless-key-{n:08}"));
    let mut spent = Vec::new();
    for keys in [harmless.collect::<Vec<_>>(), colliding_keys().collect()] {
        let server = Server::start(&["--workers", "1"]);
        let mut client = server.connect();
        let before = server.cpu();
        for verb in ["SET", "GET"] {
            // Use the keys as keys, and as the fields of one hash.
            let value = if verb == "SET" { " v" } else { "" };
            let requests: Vec<u8> = keys
                .iter()
                .flat_map(|k| [format!("{verb} {k}{value}"), format!("H{verb} hash {k}{value}")])
                .flat_map(|words| command(&words))
                .collect();
            let reply: &[u8] = if verb == "SET" { b"+OK\r\n:1\r\n" } else { b"$1\r\nv\r\n$1\r\nv\r\n" };
            client.send(&requests);
            client.expect(&reply.repeat(keys.len()));
        }
        spent.push(server.cpu() - before);
    }
    assert!(spent[1] < spent[0] * 4, "harmless {:?}, made to collide {:?}", spent[0], spent[1]);
}

/// The whole answer until the server closes.
fn answer(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    // A server that closes at the first error may reset the bytes sent after it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        reply.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn wrong_lengths_get_redis_server_s_replies() {
    let strand = Server::start(&["--workers", "1"]);
    let redis = strand_testkit::process::Server::redis(&[], None).expect("redis-server is installed");
    let cases: &[&[u8]] = &[
        // The length is longer than the data.
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nshort\r\n",
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"*1048576\r\n$4\r\nPING\r\n",
        b"*1\r\n$536870912\r\nPING\r\n",
        // The length is shorter than the data.
        b"*2\r\n$3\r\nGET\r\n$1\r\nkey\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n$4\r\nPING\r\n",
        b"*2\r\n$3\r\nGET\r\n$0\r\nk\r\n",
        // The length is invalid or too large.
        b"*2\r\n$3\r\nGET\r\n$-1\r\n",
        b"*-1\r\n*1\r\n$4\r\nPING\r\n",
        b"*0\r\n*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$3\r\nGET\r\n$1x\r\nk\r\n",
        b"*2x\r\n",
        b"*\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$18446744073709551617\r\n",
        b"*18446744073709551617\r\n",
        b"*1\r\n$+4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*1\r\n:4\r\nPING\r\n",
    ];
    for case in cases {
        let (ours, theirs) = (answer(strand.address, case), answer(redis.address, case));
        assert_eq!(ours, theirs, "to {}", case.escape_ascii());
    }
    strand.connect().call("PING", "+PONG\r\n");
    strand.connect().call("DBSIZE", ":0\r\n");
}

#[test]
fn an_incomplete_value_takes_only_the_memory_of_its_received_bytes() {
    const CAME: usize = 4 << 20;
    let server = Server::start(&["--workers", "1"]);
    let before = server.memory("VmRSS");
    let mut half: Vec<_> = (0..8)
        .map(|i| {
            let mut client = server.connect();
            client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\n{i}\r\n$536870912\r\n").as_bytes());
            client.send(&vec![b'x'; CAME]);
            client
        })
        .collect();
    server.connect().call("DBSIZE", ":0\r\n");
    let grown = server.memory("VmRSS").saturating_sub(before);
    assert!(grown < (8 * CAME as u64) * 3, "{grown} bytes for {} that came", 8 * CAME);
    // The memory is freed when the peers close.
    half.clear();
    let alone = || server.connect().bulk("INFO clients").contains("connected_clients:1\r\n");
    assert!(is_true_within(Duration::from_secs(10), alone), "the half commands' connections are still there");
    server.connect().call("DBSIZE", ":0\r\n");
}
