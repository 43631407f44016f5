//! One client's requests must not affect other clients. In these tests one worker serves all clients.

use crate::harness::{Server, comes_true, command};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn debug_sleep_delays_no_other_client() {
    let server = Server::start(&["--workers", "1", "--enable-debug-command", "yes"]);
    let (mut sleeper, mut other) = (server.connect(), server.connect());
    let start = Instant::now();
    sleeper.send(&[command("DEBUG SLEEP 1"), command("ECHO after")].concat());
    sleeper.expect(b"+OK\r\n$5\r\nafter\r\n");
    assert!(start.elapsed() >= Duration::from_secs(1));
    // Start a sleep that would outlast every test.
    sleeper.send(&command("DEBUG SLEEP 1000"));
    for _ in 0..20 {
        other.call("PING", "+PONG\r\n");
    }
    assert!(other.bulk("CLIENT LIST").contains("cmd=debug"));
}

#[test]
fn keys_and_flushall_run_beside_the_others() {
    const KEYS: usize = 20_000;
    let server = Server::start(&["--workers", "1"]);
    let (mut long, mut other) = (server.connect(), server.connect());
    let sets: Vec<u8> = (0..KEYS).flat_map(|i| command(&format!("SET key:{i:08} {i}"))).collect();
    long.send(&sets);
    long.expect(&b"+OK\r\n".repeat(KEYS));
    for words in ["KEYS *", "KEYS *a*b*c*", "FLUSHALL"] {
        long.send(&command(words));
        for _ in 0..10 {
            other.call("GET other", "$-1\r\n");
        }
    }
    assert_eq!(long.line(), format!("*{KEYS}"));
    for _ in 0..KEYS {
        assert_eq!(long.line(), "$12");
        assert!(long.line().starts_with("key:"));
    }
    long.expect(b"*0\r\n+OK\r\n");
    long.call("DBSIZE", ":0\r\n");
}

#[test]
fn an_endless_pipeline_does_not_starve_a_neighbour() {
    let server = Server::start(&["--workers", "1"]);
    let (greedy, mut other) = (server.connect(), server.connect());
    let batch = command("PING").repeat(2000);
    let mut writing = greedy.stream.try_clone().expect("a socket");
    let mut reading = greedy.stream.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        // Both threads run until their connection is closed.
        scope.spawn(move || while writing.write_all(&batch).is_ok() {});
        scope.spawn(move || while reading.read(&mut [0; 64 << 10]).is_ok_and(|n| n > 0) {});
        for _ in 0..200 {
            other.call("PING", "+PONG\r\n");
        }
        greedy.stream.shutdown(Shutdown::Both).expect("it is open");
    });
}

#[test]
fn client_kill_reaches_a_connection_in_every_state() {
    let server = Server::start(&["--workers", "2", "--enable-debug-command", "yes"]);
    let mut killer = server.connect();
    for state in ["", "*2\r\n$3\r\nGET\r\n$100\r\nab", "DEBUG SLEEP 1000\r\n"] {
        let mut victim = server.connect();
        victim.send(&command("CLIENT ID"));
        let id = victim.line();
        victim.send(state.as_bytes());
        killer.call(&format!("CLIENT KILL ID {}", &id[1..]), ":1\r\n");
        victim.expect_end();
    }
}

#[test]
fn light_lane_jobs_do_not_wait_for_heavy_ones() {
    const HEAVY: usize = 24;
    let server = Server::start(&[]);
    let mut light = server.connect();
    let (a, b) = ("ab".repeat(3000), "ba".repeat(3000));
    light.call(&format!("MSET a {a} b {b}"), "+OK\r\n");
    let mut heavy: Vec<_> = (0..HEAVY).map(|_| server.connect()).collect();
    for client in &mut heavy {
        client.send(&[command("LCS a b LEN"), command("INCR done")].concat());
    }
    let all_called = format!("cmdstat_lcs:calls={HEAVY},");
    comes_true(|| light.bulk("INFO commandstats").contains(&all_called));
    light.call("KEYS none", "*0\r\n");
    // In a queue shared with the heavy jobs, this command would have come after all but the last few of them.
    light.send(&command("INCRBY done 0"));
    let done: usize = light.line()[1..].parse().expect("a number");
    assert!(done < HEAVY / 2, "{done} of {HEAVY} came before it");
}

/// One worker executes requests of several connections in the order in which they arrived. A request with a key waits for
/// its memory, and one without a key does not overtake it.
#[test]
fn requests_of_two_connections_run_in_the_order_of_arrival() {
    const ROUNDS: usize = 300;
    let server = Server::start(&["--workers", "1"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    let mut in_order = 0;
    for _ in 0..ROUNDS {
        second.send(&command("UNLINK k"));
        second.line();
        first.send(&command("SET k v"));
        second.send(&command("DBSIZE"));
        in_order += usize::from(second.line() == ":1");
        first.expect(b"+OK\r\n");
    }
    // The kernel may delay a packet.
    assert!(in_order * 10 >= ROUNDS * 9, "{in_order} of {ROUNDS}");
}
