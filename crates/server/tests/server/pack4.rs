//! The door for frames in a real server: what it shares with the door for RESP, and what framing must not cost.

use crate::harness::{Client, Server, comes_true, command};
use std::net::SocketAddr;

fn start(options: &[&str]) -> (Server, SocketAddr) {
    let (server, doors) = Server::start_doors(&["--pack4-port"], options);
    (server, doors[0])
}

pub fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

#[test]
fn both_doors_have_the_same_data_and_the_same_client_list() {
    let (server, address) = start(&["--workers", "2"]);
    let (mut plain, mut framed) = (server.connect(), Client::connect(address));
    framed.send(&[frame(b"CLIENT SETNAME framed"), frame(&command("SET k v")), frame(b"GET k")].concat());
    framed.expect(&[frame(b"+OK\r\n"), frame(b"+OK\r\n"), frame(b"$1\r\nv\r\n")].concat());
    plain.call("GET k", "$1\r\nv\r\n");
    let list = plain.bulk("CLIENT LIST");
    let line = list.lines().find(|l| l.contains("name=framed")).expect("it is listed");
    assert!(line.contains(&format!(" laddr={address} ")), "{line}");
    assert!(list.contains(&format!(" laddr={} ", server.address)), "{list}");
    plain.call(&format!("CLIENT KILL LADDR {address}"), ":1\r\n");
    framed.expect_end();
    assert!(plain.bulk("CLIENT LIST").lines().count() == 1);
}

#[test]
fn limits_count_the_connections_of_all_doors() {
    let (server, address) = start(&["--maxclients", "2", "--timeout", "1"]);
    let (mut plain, mut framed) = (server.connect(), Client::connect(address));
    plain.call("PING", "+PONG\r\n");
    framed.send(&frame(b"PING"));
    framed.expect(&frame(b"+PONG\r\n"));
    let mut third = Client::connect(address);
    third.expect(&frame(b"-ERR max number of clients reached\r\n"));
    third.expect_end();
    // Both connections are idle, and are closed because of that.
    framed.expect_end();
    plain.expect_end();
    comes_true(|| server.connect().bulk("INFO clients").contains("connected_clients:1\r\n"));
}

#[test]
fn a_large_value_costs_no_more_memory_in_a_frame() {
    const BYTES: usize = 64 << 20;
    let (server, address) = start(&["--workers", "1"]);
    let mut client = Client::connect(address);
    client.send(&frame(b"PING"));
    client.expect(&frame(b"+PONG\r\n"));
    let before = server.memory("VmRSS");
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BYTES}\r\n");
    client.send(&((head.len() + BYTES + 2) as u32).to_be_bytes());
    client.send(head.as_bytes());
    let block = [b'x'; 1 << 16];
    (0..BYTES / block.len()).for_each(|_| client.send(&block));
    client.send(b"\r\n");
    client.expect(&frame(b"+OK\r\n"));
    let grown = server.memory("VmHWM") - before;
    assert!(grown < BYTES as u64 * 11 / 10, "{grown} bytes for a value of {BYTES}");
    client.send(&frame(b"STRLEN big"));
    client.expect(&frame(format!(":{BYTES}\r\n").as_bytes()));
    client.send(&[frame(b"GET big"), frame(b"PING")].concat());
    let reply = format!("${BYTES}\r\n");
    client.expect(&((reply.len() + BYTES + 2) as u32).to_be_bytes());
    client.expect(reply.as_bytes());
    (0..BYTES / block.len()).for_each(|_| client.expect(&block));
    client.expect(b"\r\n");
    client.expect(&frame(b"+PONG\r\n"));
    let grown = server.memory("VmHWM") - before;
    assert!(grown < BYTES as u64 * 11 / 10, "{grown} bytes when it was read");
}

#[test]
fn a_client_without_frames_gets_an_error_and_others_are_served() {
    let (server, address) = start(&[]);
    let mut framed = Client::connect(address);
    for stranger in [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut client = Client::connect(address);
        client.send(stranger);
        assert!(client.line().contains("does the client send frames?"));
        client.expect_end();
        framed.send(&frame(b"PING"));
        framed.expect(&frame(b"+PONG\r\n"));
    }
    // A frame that is never completed blocks nobody.
    let mut half = Client::connect(address);
    half.send(&[0, 0, 1, 0, b'*']);
    framed.send(&frame(b"PING"));
    framed.expect(&frame(b"+PONG\r\n"));
    drop(half);
    server.costs_nothing();
}
