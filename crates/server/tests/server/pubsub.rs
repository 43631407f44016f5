//! Messages over real sockets: the same bytes as from redis-server, and subscribers on several workers that are written to
//! while they are slow, come and go.

use crate::harness::{Client, Server, comes_true, command};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strand_testkit::process::Server as Process;

/// How long the stress goes on.
const STRESS_MS: u64 = 800;

fn message(channel: &str, text: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{text}\r\n", channel.len(), text.len())
}

#[track_caller]
fn subscribe(server: &Server, channel: &str) -> Client {
    let mut client = server.connect();
    let reply = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len());
    client.call(&format!("SUBSCRIBE {channel}"), &reply);
    client
}

/// Steps of three connections: which one sends what. After each, what every connection is sent is compared.
const STEPS: &[(usize, &str)] = &[
    (0, "SUBSCRIBE a b"),
    (1, "PSUBSCRIBE a?* ?"),
    (2, "PUBLISH a hello"),
    (2, "PUBLISH b hello"),
    (2, "PUBLISH abc hello"),
    (0, "PSUBSCRIBE [ab]"),
    (2, "PUBLISH a twice"),
    (0, "PING"),
    (0, "PING text"),
    (0, "GET a"),
    (2, "PUBSUB NUMSUB a b c"),
    (2, "PUBSUB NUMPAT"),
    (1, "SSUBSCRIBE a s"),
    (2, "SPUBLISH a sharded"),
    (2, "PUBLISH s nobody"),
    (2, "MULTI"),
    (2, "PUBLISH a one"),
    (2, "SPUBLISH a two"),
    (2, "SET k v"),
    (2, "EXEC"),
    (1, "SUNSUBSCRIBE s"),
    (1, "PUNSUBSCRIBE nosuch ?"),
    (2, "PUBLISH b last"),
    (0, "UNSUBSCRIBE a"),
    (2, "PUBLISH ab pattern-only"),
    (0, "RESET"),
    (2, "PUBLISH ab left"),
    (0, "GET k"),
    (1, "QUIT"),
    (2, "PUBLISH a nobody"),
];

/// Runs the steps; the lines that each connection was sent. The last message is followed by steps without any, so it has come
/// by the end.
fn transcript(address: std::net::SocketAddr, protocol: u8) -> Vec<String> {
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        if protocol == 3 {
            client.send(&command("HELLO 3"));
            // As many lines as the map has.
            while client.line() != "*0" {}
        }
    }
    let mut out = vec![String::new(); clients.len()];
    for (i, (who, words)) in STEPS.iter().enumerate() {
        clients[*who].send(&command(words));
        // A mark at each connection that still takes commands: by its answer the step is done.
        for (at, client) in clients.iter_mut().enumerate() {
            let gone = at == 1 && STEPS[..=i].contains(&(1, "QUIT"));
            let last = |word: &str| STEPS[..=i].iter().rposition(|step| step.1 == word);
            let queues = at == 2 && last("MULTI") > last("EXEC");
            if gone || queues {
                continue;
            }
            let mark = format!("mark-{i}");
            client.send(&command(&format!("PING {mark}")));
            let mut line = client.line();
            while line != mark {
                out[at] += &line;
                out[at].push('\n');
                line = client.line();
            }
        }
    }
    out
}

/// Without the answers to the marks: with several workers a message may come before or after one.
fn without_pings(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    let mut i = 0;
    while i < lines.len() {
        match &lines[i..] {
            ["*2", "$4", "pong", rest @ ..] => {
                i += 3 + usize::from(rest.first().is_some_and(|l| l.starts_with("$6") || l.starts_with("$7")))
            }
            [head, ..] if head.starts_with("$6") || head.starts_with("$7") => {
                // A mark's header, unless its text follows.
                if lines.get(i + 1).is_some_and(|next| !next.starts_with(['*', '$', '>', ':', '+', '-'])) {
                    out.extend([lines[i].to_string(), lines[i + 1].to_string()]);
                    i += 1;
                }
                i += 1;
            }
            _ => {
                out.push(lines[i].to_string());
                i += 1;
            }
        }
    }
    out
}

#[test]
fn subscribers_are_sent_what_redis_server_sends() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    for workers in ["1", "3"] {
        for protocol in [2, 3] {
            let ours = Process::strand(Path::new(crate::harness::STRAND), &["--workers", workers], None)
                .expect("strand starts");
            let (a, b) = (transcript(ours.address, protocol), transcript(theirs.address, protocol));
            for (at, (a, b)) in a.iter().zip(&b).enumerate() {
                assert_eq!(
                    without_pings(a),
                    without_pings(b),
                    "connection {at}, {workers} workers, RESP{protocol}"
                );
            }
        }
    }
}

#[test]
fn subscribers_of_all_workers_get_every_message_in_order() {
    let server = Server::start(&["--workers", "3"]);
    let mut subscribers: Vec<_> = (0..30).map(|_| subscribe(&server, "ch")).collect();
    let mut publishers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut batch = Vec::new();
    for round in 0..200 {
        batch.extend_from_slice(&command(&format!("PUBLISH ch {round:04}")));
    }
    publishers[0].send(&batch);
    let want: String = (0..200).map(|round| message("ch", &format!("{round:04}"))).collect();
    subscribers.iter_mut().for_each(|s| s.expect(want.as_bytes()));
    publishers[0].expect(":30\r\n".repeat(200).as_bytes());
    // Nothing comes twice: the next thing is the next message.
    publishers[1].call("PUBLISH ch end", ":30\r\n");
    subscribers.iter_mut().for_each(|s| s.expect(message("ch", "end").as_bytes()));
    publishers[2].call("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:30\r\n");
    drop(subscribers);
    comes_true(|| publishers[2].line_of("PUBLISH ch nobody", 0) == ":0");
}

/// A subscriber that reads nothing is closed at the limit of its class; the others, on its worker too, hear everything.
#[test]
fn a_subscriber_that_reads_nothing_holds_up_nobody() {
    let limit = "client-output-buffer-limit";
    let server = Server::start(&["--workers", "2", &format!("--{limit}"), "pubsub", "4mb", "0", "0"]);
    let mut slow: Vec<_> = (0..4).map(|_| subscribe(&server, "ch")).collect();
    let mut reader = subscribe(&server, "ch");
    let mut publisher = server.connect();
    let text = "x".repeat(100_000);
    let mut reached = 5;
    for round in 0..2_000 {
        let reply = publisher.line_of(&format!("PUBLISH ch {text}"), 0);
        reached = reply[1..].parse::<usize>().expect("a number");
        reader.expect(message("ch", &text).as_bytes());
        if reached == 1 {
            break;
        }
        assert!(round < 1_999, "the slow ones are never closed");
    }
    assert_eq!(reached, 1);
    let closed = publisher.bulk("INFO stats");
    assert!(closed.contains("client_output_buffer_limit_disconnections:4"), "{closed}");
    slow.iter_mut().for_each(|s| {
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut s.stream, &mut rest);
        assert!(rest.len() < 64 << 20);
    });
}

/// Clients subscribe, publish and unsubscribe at random on several workers: whoever publishes to a channel that it alone
/// listens to gets exactly what it was told.
#[test]
fn counts_are_right_while_others_come_and_go() {
    let server = Server::start(&["--workers", "3"]);
    let done = AtomicBool::new(false);
    /// Ends the others, in a panic too.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let end = Instant::now() + Duration::from_millis(STRESS_MS);
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                let mut noise = server.connect();
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    let ack = |word: &str, left: u32| {
                        format!("*3\r\n${}\r\n{word}\r\n$3\r\nall\r\n:{left}\r\n", word.len())
                    };
                    noise.send(&command("SUBSCRIBE all"));
                    read_to(&mut noise, &ack("subscribe", 1));
                    if n % 3 == id % 3 {
                        noise = server.connect();
                        continue;
                    }
                    noise.send(&command("UNSUBSCRIBE all"));
                    read_to(&mut noise, &ack("unsubscribe", 0));
                }
            });
        }
        let _ends = Ends(&done);
        let mut listener = subscribe(&server, "own");
        listener.call("SUBSCRIBE all", "*3\r\n$9\r\nsubscribe\r\n$3\r\nall\r\n:2\r\n");
        let mut publisher = server.connect();
        let mut n = 0;
        while Instant::now() < end {
            n += 1;
            publisher.call(&format!("PUBLISH own {n}"), ":1\r\n");
            let reached = publisher.line_of(&format!("PUBLISH all {n}"), 0);
            // Connections that were just closed may be among them.
            assert!(reached[1..].parse::<u32>().expect("a number") >= 1, "{reached}");
            let both = message("own", &n.to_string()) + &message("all", &n.to_string());
            listener.expect(both.as_bytes());
        }
        assert!(n > 10, "{n} rounds");
    });
    let mut client = server.connect();
    comes_true(|| client.line_of("PUBLISH all x", 0) == ":0");
}

/// Reads on until the bytes `end` have come; messages may come before them, and nothing after.
fn read_to(client: &mut Client, end: &str) {
    let last = end.rsplit("\r\n").nth(1).expect("lines").to_string();
    let word = end.split("\r\n").nth(2).expect("lines").to_string();
    let mut seen = false;
    loop {
        let line = client.line();
        seen |= line == word;
        if seen && line == last {
            return;
        }
    }
}
