//! What one client asks for must not be felt by the others: one worker serves them all here.

use crate::harness::{Server, command};
use std::time::{Duration, Instant};

/// No neighbour of a long command waits longer for its reply (a debug build on a busy machine).
const NEIGHBOUR_MS_MAX: u64 = 500;

#[test]
fn debug_sleep_stops_nobody_else() {
    let server = Server::start(&["--workers", "1", "--enable-debug-command", "yes"]);
    let (mut sleeper, mut other) = (server.connect(), server.connect());
    let start = Instant::now();
    sleeper.send(&[command("DEBUG SLEEP 1"), command("ECHO after")].concat());
    for _ in 0..20 {
        other.call("PING", "+PONG\r\n");
    }
    assert!(start.elapsed() < Duration::from_millis(NEIGHBOUR_MS_MAX), "{:?}", start.elapsed());
    sleeper.expect(b"+OK\r\n$5\r\nafter\r\n");
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn keys_and_flushall_run_beside_the_others() {
    const KEYS: usize = 20_000;
    let server = Server::start(&["--workers", "1"]);
    let (mut long, mut other) = (server.connect(), server.connect());
    let sets: Vec<u8> = (0..KEYS).flat_map(|i| command(&format!("SET key:{i:08} {i}"))).collect();
    long.send(&sets);
    long.expect(&b"+OK\r\n".repeat(KEYS));
    let mut worst = Duration::ZERO;
    for words in ["KEYS *", "KEYS *a*b*c*", "FLUSHALL"] {
        long.send(&command(words));
        for _ in 0..10 {
            let start = Instant::now();
            other.call("GET other", "$-1\r\n");
            worst = worst.max(start.elapsed());
        }
    }
    assert!(worst < Duration::from_millis(NEIGHBOUR_MS_MAX), "{worst:?}");
    assert_eq!(long.line(), format!("*{KEYS}"));
    for _ in 0..KEYS {
        assert_eq!(long.line(), "$12");
        assert!(long.line().starts_with("key:"));
    }
    long.expect(b"*0\r\n+OK\r\n");
    long.call("DBSIZE", ":0\r\n");
}

#[test]
fn a_greedy_pipeline_does_not_starve_a_neighbour() {
    let server = Server::start(&["--workers", "1"]);
    let mut greedy = server.connect();
    let mut other = server.connect();
    let batch = command("PING").repeat(20_000);
    let reader = std::thread::scope(|scope| {
        let mut stream = greedy.stream.try_clone().expect("a socket");
        let writer = scope.spawn(move || std::io::Write::write_all(&mut stream, &batch));
        let mut worst = Duration::ZERO;
        for _ in 0..20 {
            let start = Instant::now();
            other.call("PING", "+PONG\r\n");
            worst = worst.max(start.elapsed());
        }
        greedy.expect(&b"+PONG\r\n".repeat(20_000));
        writer.join().expect("no panic").expect("all taken");
        worst
    });
    assert!(reader < Duration::from_millis(NEIGHBOUR_MS_MAX), "{reader:?}");
}

#[test]
fn client_kill_reaches_a_connection_in_every_state() {
    let server = Server::start(&["--workers", "2", "--enable-debug-command", "yes"]);
    let mut killer = server.connect();
    for state in ["", "*2\r\n$3\r\nGET\r\n$100\r\nab", "DEBUG SLEEP 15\r\n"] {
        let mut victim = server.connect();
        victim.send(&command("CLIENT ID"));
        let id = victim.line();
        victim.send(state.as_bytes());
        killer.call(&format!("CLIENT KILL ID {}", &id[1..]), ":1\r\n");
        let start = Instant::now();
        victim.expect_end();
        assert!(start.elapsed() < Duration::from_secs(5), "state {state:?} took {:?}", start.elapsed());
    }
}
