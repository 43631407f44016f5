//! Publish and subscribe over real sockets: Strand sends the bytes that redis-server sends, also to slow, new and
//! leaving subscribers on several workers.

use crate::harness::{Client, Server, comes_true, command};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strand_testkit::process::Server as Process;

/// Duration of the stress.
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

/// The steps of three connections: each is the connection's number and its command. After each step, the output of
/// every connection is compared.
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

/// Runs the steps. Returns the lines that each connection received. The last steps cause no messages, so the last
/// message has arrived by the end.
fn transcript(address: std::net::SocketAddr, protocol: u8, steps: &[(usize, &str)]) -> Vec<Vec<String>> {
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        if protocol == 3 {
            client.send(&command("HELLO 3"));
            // Read as many lines as the map has.
            while client.line() != "*0" {}
        }
    }
    let id = clients[1].line_of("CLIENT ID", 0);
    let mut out = vec![Vec::new(); clients.len()];
    for (i, (who, words)) in steps.iter().enumerate() {
        words.split(';').for_each(|words| clients[*who].send(&command(&words.replace("{1}", &id[1..]))));
        // Send a mark to each connection that still takes commands. When all marks are answered, the step is done.
        for (at, client) in clients.iter_mut().enumerate() {
            let gone = at == 1 && steps[..=i].contains(&(1, "QUIT"));
            let last = |word: &str| steps[..=i].iter().rposition(|step| step.1 == word);
            let queues = at == 2 && last("MULTI") > last("EXEC");
            if gone || queues {
                continue;
            }
            answers(client, &format!("mark-{i}"), &mut out[at]);
        }
    }
    // A message of another worker may come after the marks, but comes before the end of the connection.
    if steps.contains(&(1, "QUIT")) {
        out[1].extend(std::iter::from_fn(|| clients[1].try_line()));
    }
    out
}

/// Appends to `out` the lines before the answer to this mark.
fn answers(client: &mut Client, mark: &str, out: &mut Vec<String>) {
    client.send(&command(&format!("PING {mark}")));
    loop {
        let line = client.line();
        if line == mark {
            break;
        }
        out.push(line);
    }
    // Remove the mark's length, and the reply format of a RESP2 subscriber around the mark.
    out.pop();
    if out.ends_with(&["*2", "$4", "pong"].map(String::from)) {
        out.truncate(out.len() - 3);
    }
}

/// Number of lines of the value at the start of `lines`.
fn value_lines(lines: &[String]) -> usize {
    let Some(head) = lines.first() else { return 0 };
    let n = head.get(1..).and_then(|n| n.parse::<usize>().ok());
    match (head.as_bytes().first(), n) {
        (Some(b'$'), Some(_)) => 2.min(lines.len()),
        (Some(kind @ (b'*' | b'>' | b'~' | b'%')), Some(n)) => {
            let values = if *kind == b'%' { 2 * n } else { n };
            (0..values).fold(1, |at, _| at + value_lines(&lines[at.min(lines.len())..]))
        }
        _ => 1,
    }
}

/// Puts the replies before the messages, because with several workers a message of another connection may come before
/// or after a reply.
fn apart(lines: &[String]) -> Vec<String> {
    let (mut replies, mut messages) = (Vec::new(), Vec::new());
    let mut rest = lines;
    while !rest.is_empty() {
        let (value, tail) = rest.split_at(value_lines(rest).min(rest.len()));
        let is_message = value
            .get(2)
            .is_some_and(|kind| ["message", "pmessage", "smessage", "invalidate"].contains(&kind.as_str()));
        if is_message { &mut messages } else { &mut replies }.extend_from_slice(value);
        rest = tail;
    }
    [replies, messages].concat()
}

/// Fails when the connections received different lines.
#[track_caller]
fn assert_same(ours: &[Vec<String>], theirs: &[Vec<String>], workers: &str, protocol: u8) {
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let (mut a, mut b) = (a.clone(), b.clone());
        if workers != "1" {
            (a, b) = (apart(&a), apart(&b));
        }
        assert_eq!(a, b, "connection {at}, {workers} workers, RESP{protocol}");
    }
}

#[test]
fn subscribers_receive_redis_server_s_bytes() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    for workers in ["1", "3"] {
        for protocol in [2, 3] {
            let ours = Process::strand(Path::new(crate::harness::STRAND), &["--workers", workers], None)
                .expect("strand starts");
            let (a, b) =
                (transcript(ours.address, protocol, STEPS), transcript(theirs.address, protocol, STEPS));
            assert_same(&a, &b, workers, protocol);
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
    // Nothing comes twice: the next line is the next message.
    publishers[1].call("PUBLISH ch end", ":30\r\n");
    subscribers.iter_mut().for_each(|s| s.expect(message("ch", "end").as_bytes()));
    publishers[2].call("PUBSUB NUMSUB ch", "*2\r\n$2\r\nch\r\n:30\r\n");
    drop(subscribers);
    comes_true(|| publishers[2].line_of("PUBLISH ch nobody", 0) == ":0");
}

/// A subscriber that does not read is closed at the limit of its class. All other subscribers, even on its worker,
/// receive everything.
#[test]
fn a_subscriber_that_never_reads_delays_nobody() {
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

/// Clients subscribe, publish and unsubscribe at random on several workers. A publisher whose channel only it listens
/// to receives exactly the counted messages.
/// The publisher is faster than any socket. It waits for the subscriber, so the subscriber never has more than its limit
/// (32 MiB by default) to read.
#[test]
fn a_subscriber_that_reads_all_the_time_is_never_closed() {
    const MESSAGES: usize = 20_000;
    const BATCH: usize = 200;
    let server = Server::start(&["--workers", "1"]);
    let mut subscriber = subscribe(&server, "ch");
    let text = "x".repeat(5_000);
    let (publish, expected) = (command(&format!("PUBLISH ch {text}")), message("ch", &text));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut publisher = server.connect();
            let batch = publish.repeat(BATCH);
            for _ in 0..MESSAGES / BATCH {
                publisher.send(&batch);
            }
            publisher.expect(&b":1\r\n".repeat(MESSAGES));
        });
        let expected = expected.repeat(BATCH);
        for _ in 0..MESSAGES / BATCH {
            subscriber.expect(expected.as_bytes());
        }
    });
}

#[test]
fn publish_counts_are_right_while_subscribers_change() {
    let server = Server::start(&["--workers", "3"]);
    let done = AtomicBool::new(false);
    /// Ends the other threads, even after a panic.
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
            // The number may include connections that were just closed.
            assert!(reached[1..].parse::<u32>().expect("a number") >= 1, "{reached}");
            let both = message("own", &n.to_string()) + &message("all", &n.to_string());
            listener.expect(both.as_bytes());
        }
        assert!(n > 10, "{n} rounds");
    });
    let mut client = server.connect();
    comes_true(|| client.line_of("PUBLISH all x", 0) == ":0");
}

/// Reads until the bytes `end` arrive. Messages may come before these bytes, and nothing may come after.
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

#[test]
fn messages_published_before_quit_arrive_before_the_end() {
    let server = Server::start(&["--workers", "3"]);
    let mut publisher = server.connect();
    for round in 0..100 {
        let mut subscriber = subscribe(&server, "ch");
        publisher.call(&format!("PUBLISH ch {round}"), ":1\r\n");
        subscriber.send(&command("QUIT"));
        subscriber.expect(message("ch", &round.to_string()).as_bytes());
        subscriber.expect(b"+OK\r\n");
    }
}

/// Steps of clients that cache values, in RESP3 and with a second connection that receives invalidations in RESP2.
/// `{1}` is the number of connection 1.
const COPIES: &[(usize, &str)] = &[
    (0, "CLIENT TRACKING ON"),
    (0, "GET a;MGET a b;HGETALL h"),
    (2, "SET a 1"),
    (2, "SET a 2"),
    (2, "MSET b 1 c 1"),
    (2, "HSET h f v"),
    (0, "GET a"),
    (2, "EXPIRE a 100"),
    (0, "GET a"),
    (2, "RENAME a d"),
    (0, "GET d"),
    (2, "DEL nosuch"),
    (2, "DEL d"),
    (0, "GET a;SET a own"),
    (0, "CLIENT TRACKING ON NOLOOP"),
    (0, "GET a;SET a own"),
    (0, "GET a"),
    (2, "SET a theirs"),
    (0, "MULTI;GET a;EXEC"),
    (2, "SET a again"),
    (0, "EXISTS a;TTL a;TYPE b"),
    (2, "SET b x"),
    (2, "SET a x"),
    (0, "SADD s 1;SMEMBERS s;LRANGE l 0 -1"),
    (2, "SREM s 1"),
    (2, "RPUSH l 1"),
    (0, "EVAL return(redis.call('get',KEYS[1])) 1 a"),
    (2, "SET a x"),
    (0, "EVAL_RO return(redis.call('mget',KEYS[1],KEYS[2])) 2 a b"),
    (2, "SET a x"),
    (2, "SET b x"),
    (0, "EVAL redis.call('get',KEYS[1])return(redis.call('set',KEYS[1],'own')) 1 a"),
    (2, "SET a x"),
    (0, "EVAL redis.call('set',KEYS[1],'own')return(redis.call('get',KEYS[1])) 1 a"),
    (2, "SET a x"),
    (0, "MULTI;GET c;EVAL return(redis.call('get',KEYS[1])) 1 a;EXEC"),
    (2, "SET a x"),
    (2, "SET c x"),
    (0, "CLIENT TRACKING OFF;CLIENT TRACKING ON"),
    (0, "EVAL redis.call('set',KEYS[1],'own')return(redis.call('get',KEYS[1])) 1 a"),
    (
        0,
        "EVAL redis.call('get',KEYS[1])for\ti=1,300000\tdo\tend\treturn(redis.call('set',KEYS[1],'own')) 1 a",
    ),
    (2, "SET a x"),
    (
        0,
        "EVAL redis.call('set',KEYS[1],'own')for\ti=1,300000\tdo\tend\treturn(redis.call('get',KEYS[1])) 1 a",
    ),
    (2, "SET a x"),
    (0, "CLIENT TRACKING OFF;GET a"),
    (2, "SET a y"),
    (0, "CLIENT TRACKING ON OPTIN"),
    (0, "GET a"),
    (2, "SET a z"),
    (0, "CLIENT CACHING YES;GET a;GET b"),
    (2, "SET a z"),
    (2, "SET b z"),
    (
        0,
        "CLIENT CACHING YES;EVAL return(redis.call('get',KEYS[1])) 1 a;EVAL return(redis.call('get',KEYS[1])) 1 b",
    ),
    (2, "SET a z"),
    (2, "SET b z"),
    (0, "CLIENT CACHING YES;EVALSHA nosuch 0;GET a"),
    (2, "SET a z"),
    (0, "CLIENT CACHING YES;XREAD COUNT 1 BLOCK 1 STREAMS x 0-0;GET b"),
    (2, "XADD x 1-1 f v"),
    (2, "SET b z"),
    (0, "CLIENT CACHING YES;MULTI;GET a;GET b;EXEC;GET c"),
    (2, "SET a z"),
    (2, "SET b z"),
    (2, "SET c z"),
    (0, "CLIENT TRACKING OFF;CLIENT TRACKING ON OPTOUT;GET a;CLIENT CACHING NO;GET b"),
    (2, "SET a z"),
    (2, "SET b z"),
    (0, "CLIENT TRACKING OFF;CLIENT TRACKING ON BCAST PREFIX user: PREFIX obj:"),
    (2, "SET user:1 x"),
    (2, "SET none x"),
    (2, "DEL user:1"),
    (2, "SET obj: x"),
    (0, "SET user:2 own"),
    (0, "CLIENT TRACKING OFF;CLIENT TRACKING ON BCAST NOLOOP"),
    (0, "SET user:2 own"),
    (2, "SET anything x"),
    (0, "CLIENT TRACKING OFF;CLIENT TRACKING ON;GET a"),
    (2, "FLUSHALL"),
    (0, "CLIENT TRACKING OFF"),
    (1, "SUBSCRIBE __redis__:invalidate"),
    (0, "CLIENT TRACKING ON REDIRECT {1}"),
    (0, "GET a;GET b"),
    (2, "SET a x"),
    (0, "GET a;SET a own"),
    (2, "FLUSHALL"),
    (0, "GET b"),
    (1, "QUIT"),
    (2, "PING"),
];

#[test]
fn invalidations_equal_redis_server_s() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    for workers in ["1", "3"] {
        for protocol in [3, 2] {
            let ours = Process::strand(Path::new(crate::harness::STRAND), &["--workers", workers], None);
            let ours = ours.expect("strand starts");
            let (a, b) =
                (transcript(ours.address, protocol, COPIES), transcript(theirs.address, protocol, COPIES));
            assert_same(&a, &b, workers, protocol);
        }
    }
}
