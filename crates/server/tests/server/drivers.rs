//! The drivers of sockets: the promises of `io-driver`, with each driver that the kernel allows. (All tests of
//! this folder can run with another driver: `STRAND_IO_DRIVER=epoll cargo test -p strand-server --test server`.)

use crate::harness::{Client, Server, comes_true, command, is_true_within, numbered};
use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

const DRIVERS: [&str; 3] = ["epoll", "io_uring", "auto"];

/// Runs `test` with a server for each driver. If the kernel refuses a driver, the server must log that and use the
/// other driver.
fn each(test: impl Fn(Server)) {
    for driver in DRIVERS {
        let server =
            Server::start(&["--workers", "1", "--enable-debug-command", "yes", "--io-driver", driver]);
        let info = server.connect().bulk("INFO server");
        let used = if driver == "auto" { "io_uring" } else { driver };
        if !info.contains(&format!("multiplexing_api:{used}\r\n")) {
            assert!(info.contains("multiplexing_api:epoll\r\n"), "{info}");
            assert!(server.folder.log_text().contains("using epoll"), "{}", server.folder.log_text());
        }
        let config = format!("*2\r\n$9\r\nio-driver\r\n${}\r\n{driver}\r\n", driver.len());
        server.connect().call("CONFIG GET io-driver", &config);
        test(server);
    }
}

/// A request of these words, which may contain spaces.
fn words(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    strand_wire::client::encode_command(&mut bytes, words);
    bytes
}

fn ping(client: &mut Client) {
    client.call("PING", "+PONG\r\n");
}

/// Waits until only `watch` is connected.
fn expect_alone(watch: &mut Client) {
    let is_alone = || watch.bulk("INFO clients").contains("connected_clients:1\r\n");
    let alone = is_true_within(Duration::from_secs(10), is_alone);
    assert!(alone, "{}", watch.bulk("CLIENT LIST"));
}

#[test]
fn pipelines_of_many_clients_are_answered_in_order() {
    each(|server| {
        let mut clients: Vec<_> = (0..500).map(|_| server.connect()).collect();
        for round in 0..3 {
            for (i, client) in clients.iter_mut().enumerate() {
                let requests = (0..30).flat_map(|j| command(&format!("ECHO {i}:{j}:{round}")));
                client.send(&requests.collect::<Vec<u8>>());
            }
            for (i, client) in clients.iter_mut().enumerate() {
                for j in 0..30 {
                    let text = format!("{i}:{j}:{round}");
                    client.expect(format!("${}\r\n{text}\r\n", text.len()).as_bytes());
                }
            }
        }
        let mut watch = server.connect();
        drop(clients);
        expect_alone(&mut watch);
    });
}

#[test]
fn connections_keep_their_bytes_when_others_arrive() {
    const LEN: usize = 32 << 20;
    each(|server| {
        let value = numbered(LEN);
        let mut pusher = server.connect();
        pusher.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LEN}\r\n").as_bytes());
        pusher.send(&value);
        pusher.send(b"\r\n");
        pusher.expect(b"+OK\r\n");
        // One client is blocked, one has sent half of a request, and one does not read its replies.
        let [mut blocked, mut half, mut slow] = [(); 3].map(|()| server.connect());
        blocked.send(&command("BLPOP q 0"));
        comes_true(|| pusher.bulk("INFO clients").contains("blocked_clients:1\r\n"));
        let (first, middle, rest) = (b"*2\r\n$4\r\nE", b"CH", b"O\r\n$2\r\nhi\r\n");
        half.send(first);
        slow.send(&command("GET k").repeat(2));
        let mut others: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for round in 0..3 {
            others.iter_mut().for_each(ping);
            // The parts of the request, and the changed setting, let the clients wait again while there are many.
            if round == 0 {
                half.send(middle);
                pusher.call("CONFIG SET timeout 1000", "+OK\r\n");
            }
            if round == 2 {
                half.send(rest);
                half.expect(b"$2\r\nhi\r\n");
                pusher.call("RPUSH q x", ":1\r\n");
                blocked.expect(b"*2\r\n$1\r\nq\r\n$1\r\nx\r\n");
            }
        }
        for _ in 0..2 {
            slow.expect(format!("${LEN}\r\n").as_bytes());
            slow.expect(&value);
            slow.expect(b"\r\n");
        }
        [pusher, blocked, half, slow].iter_mut().for_each(ping);
    });
}

#[test]
fn a_large_value_survives_set_and_get() {
    const LEN: usize = 64 << 20;
    each(|server| {
        let value = numbered(LEN);
        let (mut client, mut other) = (server.connect(), server.connect());
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LEN}\r\n").as_bytes());
        let (half, rest) = value.split_at(LEN / 2);
        client.send(half);
        ping(&mut other);
        client.send(rest);
        client.send(b"\r\n");
        client.expect(b"+OK\r\n");
        client.send(&command("GET k").repeat(2));
        // Nothing is read for a while. The server waits and serves others.
        ping(&mut other);
        for _ in 0..2 {
            client.expect(format!("${LEN}\r\n").as_bytes());
            client.expect(&value);
            client.expect(b"\r\n");
        }
        ping(&mut client);
    });
}

#[test]
fn a_long_read_is_aborted_when_its_client_half_closes() {
    // Create 32 documents of 32,000 words. A phrase of 4,000 words can start at 28,000 words of each, so a search needs
    // 3.6 G steps: several times the 2 s after which the server aborts the search.
    const DOCS: usize = 32;
    let (text, phrase) = ("b ".repeat(32_000), format!("\"{}\"", "b ".repeat(4_000)));
    each(|server| {
        let mut watch = server.connect();
        watch.send(&words(&["FT.CREATE", "i", "PREFIX", "1", "d:", "SCHEMA", "t", "TEXT"]));
        watch.expect(b"+OK\r\n");
        (0..DOCS).for_each(|i| watch.send(&words(&["HSET", &format!("d:{i}"), "t", &text])));
        watch.expect(&b":1\r\n".repeat(DOCS)[..]);
        watch.call("FT.SEARCH i b LIMIT 0 0", &format!("*1\r\n:{DOCS}\r\n"));
        let mut client = server.connect();
        client.send(&words(&["FT.SEARCH", "i", &phrase, "NOCONTENT"]));
        client.stream.shutdown(Shutdown::Write).expect("connected");
        client.expect_end();
        expect_alone(&mut watch);
        // The job has ended with its client.
        comes_true(|| {
            let before = server.cpu();
            watch.call("PING", "+PONG\r\n");
            std::thread::sleep(Duration::from_millis(20));
            server.cpu() - before < Duration::from_millis(10)
        });
    });
}

#[test]
fn a_half_closed_peer_gets_all_its_replies() {
    each(|server| {
        let mut client = server.connect();
        let value = "v".repeat(1 << 20);
        client.send(&command(&format!("SET k {value}")));
        let mut requests = command("DEBUG SLEEP 0.05");
        requests.extend(command("GET k").repeat(20));
        client.send(&requests);
        client.stream.shutdown(Shutdown::Write).expect("connected");
        client.expect(b"+OK\r\n+OK\r\n");
        let reply = format!("${}\r\n{value}\r\n", value.len());
        (0..20).for_each(|_| client.expect(reply.as_bytes()));
        client.expect_end();
        // This is sent after a request that has a reply, and is followed by bytes that nobody will read.
        let mut client = server.connect();
        client.send(&[command("GET k"), command("QUIT"), vec![b'x'; 40_000]].concat());
        client.expect(reply.as_bytes());
        client.expect(b"+OK\r\n");
        client.expect_end();
    });
}

#[test]
fn peers_that_reset_are_removed_in_every_state() {
    each(|server| {
        let mut watch = server.connect();
        let value = "v".repeat(1 << 20);
        watch.call(&format!("SET k {value}"), "+OK\r\n");
        for i in 0..80 {
            let mut client = server.connect();
            ping(&mut client);
            // The reset comes after more bytes than the server reads ahead of a blocked command, or after the end of
            // the peer's side.
            let (half, ahead) = (i >= 40, i % 16 >= 12);
            let request = match i % 4 {
                // The client ends while it is idle, in the middle of a request, with an unread reply, or in a blocked
                // command.
                0 => vec![],
                1 => b"*3\r\n$3\r\nSET\r\n$1\r\nq\r\n$1000000\r\nabc".to_vec(),
                2 => command("GET k").repeat(20),
                _ => command("DEBUG SLEEP 60"),
            };
            client.send(&request);
            if ahead {
                client.send(&command("PING").repeat(20_000));
            }
            if half {
                client.stream.shutdown(Shutdown::Write).expect("connected");
                // The only worker has polled its sockets since the reset, so it has seen the reset.
                (0..4).for_each(|_| watch.call("EXISTS q", ":0\r\n"));
            }
            if i % 8 == 6 {
                client.expect(b"$1048576\r\n");
            }
            // Without lingering the peer gets a reset instead of an end.
            socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
        }
        expect_alone(&mut watch);
        watch.call("EXISTS q", ":0\r\n");
    });
}

#[test]
fn clients_that_never_read_delay_nobody_and_are_closed_at_their_limit() {
    each(|server| {
        let mut other = server.connect();
        let value = "v".repeat(256 << 10);
        other.call(&format!("SET k {value}"), "+OK\r\n");
        other.send(&words(&["CONFIG", "SET", "client-output-buffer-limit", "normal 64mb 0 0"]));
        other.expect(b"+OK\r\n");
        // This client begins to read after all.
        let mut late = server.connect();
        late.send(&command("GET k").repeat(200));
        let mut deaf = server.connect();
        deaf.stream.set_nonblocking(true).expect("a TCP socket");
        let requests = command("GET k").repeat(2_000);
        let (mut sent, end) = (0, Instant::now() + Duration::from_secs(60));
        loop {
            match deaf.stream.write(&requests[sent % requests.len()..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => ping(&mut other),
                // The server has closed the connection.
                Err(_) => break,
            }
            assert!(sent < 100 << 20, "{sent} bytes are taken from a client that does not read");
            assert!(Instant::now() < end, "a client that never reads is served for ever");
        }
        assert!(server.memory("VmRSS") < 300 << 20, "{} bytes resident", server.memory("VmRSS"));
        (0..200).for_each(|_| late.expect(format!("${}\r\n{value}\r\n", value.len()).as_bytes()));
        drop((late, deaf));
        expect_alone(&mut other);
    });
}

#[test]
fn the_server_stops_with_output_under_way() {
    each(|mut server| {
        let (mut busy, mut half) = (server.connect(), server.connect());
        let value = "v".repeat(4 << 20);
        busy.call(&format!("SET k {value}"), "+OK\r\n");
        half.send(b"*2\r\n$3\r\nGET\r\n");
        busy.send(&command("GET k"));
        busy.expect(b"$4194304\r\n");
        server.signal(rustix::process::Signal::TERM);
        half.expect_end();
        busy.expect(format!("{value}\r\n").as_bytes());
        busy.expect_end();
        assert_eq!(server.end().code(), Some(0));
    });
}

#[test]
fn unread_replies_are_counted_and_bounded() {
    each(|server| {
        let mut watch = server.connect();
        let value = "v".repeat(64 << 10);
        watch.call(&format!("SET k {value}"), "+OK\r\n");
        // A client that has read its replies holds no memory.
        let mut reader = server.connect();
        assert_eq!(reader.bulk("GET k").len(), value.len());
        comes_true(|| {
            let list = watch.bulk("CLIENT LIST");
            list.lines().any(|line| line.contains(" omem=0 tot-mem=0 ") && line.contains(" cmd=get "))
        });
        drop(reader);
        expect_alone(&mut watch);
        let mut deaf: Vec<_> = (0..20).map(|_| server.connect()).collect();
        for client in &mut deaf {
            client.stream.set_nonblocking(true).expect("a TCP socket");
            let requests = command("GET k").repeat(50_000);
            let mut sent = 0;
            while sent < requests.len()
                && let Ok(n) = client.stream.write(&requests[sent..])
            {
                sent += n;
            }
        }
        let mut list = String::new();
        comes_true(|| {
            list = watch.bulk("CLIENT LIST");
            list.lines().filter(|line| line.contains("cmd=get")).count() == deaf.len()
        });
        let field = |line: &str, name: &str| -> u64 {
            let words = line.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
            words.expect(name).parse().expect(name)
        };
        for line in list.lines().filter(|line| line.contains("cmd=get")) {
            let known: u64 = ["qbuf", "argv-mem", "omem"].iter().map(|name| field(line, name)).sum();
            let outside = field(line, "tot-mem") - known;
            assert!(outside < 4 << 20, "{line}");
        }
        drop(deaf);
        expect_alone(&mut watch);
    });
}

/// Connections close a few at a time. A blocked client that was killed takes no element meanwhile.
#[test]
fn a_crowd_of_killed_clients_takes_no_element() {
    const CROWD: usize = 300;
    each(|server| {
        let mut crowd: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
        crowd.iter_mut().for_each(|client| client.send(&command("BLPOP q 0")));
        let mut admin = server.connect();
        comes_true(|| admin.bulk("INFO clients").contains(&format!("blocked_clients:{CROWD}\r\n")));
        admin.call("CLIENT KILL TYPE normal", &format!(":{CROWD}\r\n"));
        // Each element is pushed in a turn of its own, while the crowd leaves.
        for n in 1..=50 {
            admin.call("RPUSH q x", &format!(":{n}\r\n"));
        }
        expect_alone(&mut admin);
        admin.call("LLEN q", ":50\r\n");
    });
}
