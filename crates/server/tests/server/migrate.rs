//! MIGRATE to and from a real redis-server: the moved data, the replies, and the waits.

use crate::harness::{STRAND, comes_true};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use strand_testkit::client::Client;
use strand_testkit::process::{Server, free_port};
use strand_wire::client::Value;

fn strand(options: &[&str]) -> Server {
    Server::strand(Path::new(STRAND), options, None).expect("strand starts")
}

fn redis(options: &[&str]) -> Server {
    Server::redis(options, None).expect("redis-server is installed (make setup) and starts")
}

fn call(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
    client.call(&words).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// A key of each type and form: its name, the commands that create it, and the command that reads all of it.
fn values() -> Vec<(&'static str, Vec<String>, &'static str)> {
    let many = |command: &str, each: &dyn Fn(usize) -> String| {
        let words: Vec<String> = (0..3000).map(each).collect();
        vec![format!("{command} {}", words.join(" "))]
    };
    vec![
        ("text", vec!["SET text some-text".into()], "GET text"),
        ("number", vec!["SET number 42".into()], "GET number"),
        ("bits", vec!["SETBIT bits 8000000 1".into()], "BITCOUNT bits"),
        ("few", vec!["RPUSH few a b 1".into()], "LRANGE few 0 -1"),
        ("list", many("RPUSH list", &|i| format!("element-{i}")), "LRANGE list 0 -1"),
        ("ints", vec!["SADD ints 3 1 2".into()], "SMEMBERS ints"),
        ("set", many("SADD set", &|i| format!("member-{i}")), "SORT set ALPHA"),
        ("small", vec!["HSET small f v g w".into()], "HGETALL small"),
        ("hash", many("HSET hash", &|i| format!("field-{i} {i}")), "HGET hash field-2999"),
        ("scores", vec!["ZADD scores 1.5 a -inf b".into()], "ZRANGE scores 0 -1 WITHSCORES"),
        ("zset", many("ZADD zset", &|i| format!("{i} m{i}")), "ZRANGE zset 0 -1 WITHSCORES"),
        ("log", many("PFADD log", &|i| format!("x{i}")), "PFCOUNT log"),
        (
            "stream",
            vec![
                "XADD stream 1-1 f v g w".into(),
                "XADD stream 2-1 f v".into(),
                "XGROUP CREATE stream g 0".into(),
                "XREADGROUP GROUP g c COUNT 1 STREAMS stream >".into(),
            ],
            "XRANGE stream - +",
        ),
    ]
}

#[test]
fn every_type_migrates_to_redis_server_and_back() {
    let (ours, theirs) = (strand(&[]), redis(&[]));
    let (mut here, mut there) = (ours.connect().expect("answers"), theirs.connect().expect("answers"));
    let mut read = Vec::new();
    for (key, commands, question) in values() {
        for command in &commands {
            assert!(!matches!(call(&mut here, command), Value::Error(_)), "{key}");
        }
        assert_eq!(call(&mut here, &format!("PEXPIREAT {key} 4152300156125")), Value::Int(1));
        read.push(call(&mut here, question));
    }
    let to = |server: &Server, rest: &str| format!("MIGRATE 127.0.0.1 {} {rest}", server.address.port());
    for (key, ..) in values() {
        assert_eq!(call(&mut here, &to(&theirs, &format!("{key} 0 5000"))), ok(), "{key}");
    }
    assert_eq!(call(&mut here, "DBSIZE"), Value::Int(0));
    for ((key, _, question), read) in values().iter().zip(&read) {
        assert_eq!(call(&mut there, question), *read, "{key} at redis-server");
        // The remaining time to live was transferred, too.
        let Value::Int(left_ms) = call(&mut there, &format!("PTTL {key}")) else { panic!("{key}") };
        assert!(left_ms > 1_000_000_000, "{key}: {left_ms}");
    }
    let keys: Vec<&str> = values().iter().map(|(key, ..)| *key).collect();
    let back = to(&ours, &format!("'' 3 5000 KEYS {} nosuch", keys.join(" ")));
    assert_eq!(call(&mut there, &back), ok());
    assert_eq!(call(&mut there, "DBSIZE"), Value::Int(0));
    assert_eq!(call(&mut here, "SELECT 3"), ok());
    for ((key, _, question), read) in values().iter().zip(&read) {
        assert_eq!(call(&mut here, question), *read, "{key} is back");
    }
    let Value::Array(pending) = call(&mut here, "XPENDING stream g") else { panic!("no group") };
    assert_eq!(pending[0], Value::Int(1));
}

/// Requests for both servers. `{port}` is the port of a third server, `{wrong}` one without a listener, `{mute}`
/// one that never replies, and `{gone}` one that closes at once.
const ASKED: &[&str] = &[
    "MIGRATE 127.0.0.1 {port} nosuch 0 1000",
    "MIGRATE 127.0.0.1 {port} '' 0 1000 KEYS nosuch nosuch2",
    "MIGRATE 127.0.0.1 {port} a 0 1000 FOO",
    "MIGRATE 127.0.0.1 {port} a 0 1000 KEYS a",
    "MIGRATE 127.0.0.1 {port} a 0 1000 AUTH",
    "MIGRATE 127.0.0.1 {port} a 0 1000 AUTH2 x",
    "MIGRATE 127.0.0.1 {port} a x 1000",
    "MIGRATE 127.0.0.1 {port} a 0 x",
    "MIGRATE 127.0.0.1 {port} a x y",
    "MIGRATE 127.0.0.1 {port} a 0",
    "MIGRATE 127.0.0.1 {port} a 0 1000 COPY",
    "GET a",
    "MIGRATE 127.0.0.1 {port} a 0 1000",
    "GET a",
    "MIGRATE 127.0.0.1 {port} a 0 -5 replace",
    "GET a",
    "MIGRATE 127.0.0.1 {port} b 99 1000",
    "MIGRATE 127.0.0.1 {port} b 0 1000 AUTH wrong",
    "MIGRATE 127.0.0.1 {port} b 0 1000 AUTH2 nobody wrong",
    "MIGRATE 127.0.0.1 {port} '' 0 1000 REPLACE KEYS b nosuch c",
    "EXISTS b c",
    "MIGRATE 127.0.0.1 {port} '' 0 1000 KEYS e f",
    "EXISTS e f",
    "MIGRATE 127.0.0.1 {wrong} d 0 100",
    "MIGRATE 127.0.0.1 {mute} d 0 50",
    "MIGRATE 127.0.0.1 {gone} d 0 1000",
    "GET d",
    "COMMAND GETKEYS MIGRATE h 1 a 0 1000 AUTH keys",
    "COMMAND GETKEYS MIGRATE h 1 '' 0 1000 COPY KEYS a keys b",
];

#[test]
fn migrate_replies_equal_redis_server_s() {
    let (ours, theirs, third) = (strand(&[]), redis(&[]), redis(&[]));
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone_at = gone.local_addr().expect("bound");
    std::thread::spawn(move || {
        for connection in gone.incoming() {
            // Read the request, which arrives whole.
            let _ = connection.expect("somebody connects").read(&mut [0; 4096]);
        }
    });
    let ports = [
        ("{port}", third.address.port()),
        ("{wrong}", free_port().expect("loopback has ports")),
        ("{mute}", mute.local_addr().expect("bound").port()),
        ("{gone}", gone_at.port()),
    ];
    let answers: Vec<Vec<Value>> = [&ours, &theirs]
        .iter()
        .map(|server| {
            let mut target = third.connect().expect("answers");
            call(&mut target, "FLUSHALL");
            call(&mut target, "SET f taken");
            let mut client = server.connect().expect("answers");
            for key in ["a", "b", "c", "d", "e", "f"] {
                assert_eq!(call(&mut client, &format!("SET {key} value-of-{key}")), ok());
            }
            let ask = |line: &&str| {
                let line =
                    ports.iter().fold(line.to_string(), |l, (name, p)| l.replace(name, &p.to_string()));
                call(&mut client, &line)
            };
            let mut said: Vec<Value> = ASKED.iter().map(ask).collect();
            said.extend(["MGET a b c d e f", "DBSIZE"].map(|line| call(&mut target, line)));
            said
        })
        .collect();
    for (i, (ours, theirs)) in answers[0].iter().zip(&answers[1]).enumerate() {
        assert_eq!(ours, theirs, "{}", ASKED.get(i).unwrap_or(&"at the target"));
    }
}

#[test]
fn migrate_authenticates_to_the_target() {
    let (ours, theirs) = (strand(&[]), redis(&["--requirepass", "secret"]));
    let mut here = ours.connect().expect("answers");
    let port = theirs.address.port();
    call(&mut here, "MSET a 1 b 2");
    let refused = call(&mut here, &format!("MIGRATE 127.0.0.1 {port} a 0 1000"));
    let text = b"ERR Target instance replied with error: NOAUTH Authentication required.".to_vec();
    assert_eq!(refused, Value::Error(text));
    assert_eq!(call(&mut here, &format!("MIGRATE 127.0.0.1 {port} a 0 1000 AUTH secret")), ok());
    assert_eq!(call(&mut here, &format!("MIGRATE 127.0.0.1 {port} b 0 1000 AUTH2 default secret")), ok());
    assert_eq!(call(&mut here, "EXISTS a b"), Value::Int(0));
}

#[test]
fn a_slow_target_delays_no_other_client() {
    let ours = strand(&["--workers", "1"]);
    let (mut here, mut other) = (ours.connect().expect("answers"), ours.connect().expect("answers"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    call(&mut here, "MSET gone x gone2 x");
    call(&mut here, "SET short x PX 200");
    call(&mut here, "SET key before");
    let keys = ["KEYS", "gone", "gone2", "short", "key"];
    let request = ["MIGRATE", "127.0.0.1", &port.to_string(), "", "0", "600000", "REPLACE"];
    here.send(&[&request[..], &keys].concat()).expect("sent");
    let (mut connection, _) = silent.accept().expect("it connects");
    let mut request = Vec::new();
    let mut read_until = |what: &[u8]| {
        comes_true(|| {
            let mut more = [0; 4096];
            let n = connection.read(&mut more).expect("it sends");
            request.extend_from_slice(&more[..n]);
            request.windows(what.len()).any(|w| w == what)
        });
        request.clear();
    };
    read_until(b"before");
    // The shards are let go although the other server is silent.
    assert_eq!(call(&mut other, "GET key"), Value::Bulk(b"before".to_vec()));
    assert_eq!(call(&mut other, "SET key after"), ok());
    assert_eq!(call(&mut other, "PING"), Value::Simple(b"PONG".to_vec()));
    assert_eq!(call(&mut other, "DEL gone gone2"), Value::Int(2));
    comes_true(|| call(&mut other, "EXISTS short") == Value::Int(0));
    // The other server has the former value, and clients may have written it there. So both values stay.
    let mut answering = silent_writer(&connection);
    answering(&b"+OK\r\n".repeat(1 + keys.len() - 1));
    let text = "ERR key was written while the target instance stored it, so it is on both servers now. gone, gone2 were removed \
                while the target instance stored them, so they are only on the target instance now";
    assert_eq!(here.reply().expect("it ends"), Value::Error(text.into()));
    assert_eq!(call(&mut other, "GET key"), Value::Bulk(b"after".to_vec()));
}

/// The other server counts a TTL from the arrival of the key, so the last keys of a long MIGRATE live no longer than the first.
#[test]
fn a_slow_link_lengthens_no_ttl() {
    const DELAY: Duration = Duration::from_millis(20);
    let (ours, theirs) = (strand(&[]), strand(&[]));
    let (mut here, mut there) = (ours.connect().expect("answers"), theirs.connect().expect("answers"));
    let slow = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = slow.local_addr().expect("bound").port();
    let target = theirs.address;
    let names: Vec<String> = (0..640).map(|n| format!("key{n}")).collect();
    let Value::Array(time) = call(&mut here, "TIME") else { panic!("no time") };
    let Value::Bulk(seconds) = &time[0] else { panic!("{time:?}") };
    let expiry_ms = (String::from_utf8_lossy(seconds).parse::<i64>().expect("a number") + 600) * 1000;
    for name in &names {
        assert_eq!(call(&mut here, &format!("SET {name} x PXAT {expiry_ms}")), ok());
    }
    // This thread ends with the test, also if nothing connects.
    std::thread::spawn(move || {
        let (mut from, _) = slow.accept().expect("it connects");
        let mut to = std::net::TcpStream::connect(target).expect("it listens");
        let (mut back, mut replies) = (to.try_clone().expect("open"), from.try_clone().expect("open"));
        std::thread::spawn(move || std::io::copy(&mut back, &mut replies));
        let mut piece = [0; 1 << 16];
        while let Ok(n) = from.read(&mut piece)
            && n > 0
        {
            std::thread::sleep(DELAY);
            to.write_all(&piece[..n]).expect("it takes them");
        }
    });
    let begun = std::time::Instant::now();
    let moving = format!("MIGRATE 127.0.0.1 {port} '' 0 30000 KEYS {}", names.join(" "));
    assert_eq!(call(&mut here, &moving), ok());
    let took_ms = begun.elapsed().as_millis() as i64;
    let Value::Int(at_ms) = call(&mut there, "PEXPIRETIME key639") else { panic!("no expiry") };
    assert!((0..took_ms / 2).contains(&(at_ms - expiry_ms)), "{} of {took_ms}", at_ms - expiry_ms);
}

/// While a key is moved, clients write it on both servers as soon as they see it there. No acknowledged write is lost.
#[test]
fn no_write_is_lost_while_a_key_is_moved() {
    for theirs in [strand(&[]), redis(&[])] {
        let ours = strand(&["--workers", "2"]);
        let (mut here, mut there) = (ours.connect().expect("answers"), theirs.connect().expect("answers"));
        let port = theirs.address.port();
        let long = "x".repeat(3_000_000);
        let counters: Vec<String> = (0..40).map(|n| format!("counter{n}")).collect();
        for counter in &counters {
            call(&mut here, &format!("SET {counter} 0"));
        }
        call(&mut here, &format!("SET long {long}"));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let script =
            "if redis.call('exists', KEYS[1]) == 1 then return redis.call('incr', KEYS[1]) end return 0";
        let increments = |address: std::net::SocketAddr| {
            let (mut client, mut done) =
                (Client::connect(address).expect("answers"), vec![0i64; counters.len()]);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for (nth, counter) in counters.iter().enumerate() {
                    let reply = client.call(&["EVAL", script, "1", counter]).expect("a reply");
                    assert!(matches!(reply, Value::Int(_)), "{reply:?}");
                    done[nth] += i64::from(reply != Value::Int(0));
                }
            }
            done
        };
        let (here_done, there_done) = std::thread::scope(|scope| {
            let (a, b) =
                (scope.spawn(|| increments(ours.address)), scope.spawn(|| increments(theirs.address)));
            let names = counters.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            let moving = format!("MIGRATE 127.0.0.1 {port} '' 0 30000 KEYS {names} long");
            assert_eq!(call(&mut here, &moving), ok());
            std::thread::sleep(Duration::from_millis(20));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            (a.join().expect("no panic"), b.join().expect("no panic"))
        });
        assert_eq!(call(&mut here, "DBSIZE"), Value::Int(0));
        for (nth, counter) in counters.iter().enumerate() {
            let Value::Bulk(text) = call(&mut there, &format!("GET {counter}")) else {
                panic!("{counter} is there")
            };
            let value: i64 = String::from_utf8_lossy(&text).parse().expect("a number");
            assert_eq!(value, here_done[nth] + there_done[nth], "{counter}");
        }
        assert_eq!(call(&mut there, "STRLEN long"), Value::Int(3_000_000));
    }
}

/// A large value that changes while it is sent is sent again, over a new connection.
#[test]
fn a_large_value_that_changes_meanwhile_is_sent_again() {
    let ours = strand(&[]);
    let (mut here, mut other) = (ours.connect().expect("answers"), ours.connect().expect("answers"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = target.local_addr().expect("bound").port().to_string();
    let mut rng = fastrand::Rng::with_seed(1);
    // More than the buffers of the sockets can take.
    let long: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(16 << 20).collect();
    here.call(&[&b"SET"[..], b"long", &long]).expect("a reply");
    here.send(&["MIGRATE", "127.0.0.1", &port, "long", "0", "600000", "REPLACE"]).expect("sent");
    let (mut first, _) = target.accept().expect("it connects");
    let mut request = vec![0; 1000];
    first.read_exact(&mut request).expect("it sends");
    assert_eq!(
        call(&mut other, "APPEND long more"),
        Value::Int(long.len() as i64 + 4),
        "it waits for nobody"
    );
    // The first command ends without its last byte, so the other server stores nothing.
    first.read_to_end(&mut request).expect("it sends");
    assert!(request.ends_with(b"\r\n$7\r\nREPLACE\r"));
    let (mut second, _) = target.accept().expect("it connects");
    let mut request = Vec::new();
    comes_true(|| {
        let mut more = vec![0; 1 << 20];
        let n = second.read(&mut more).expect("it sends");
        request.extend_from_slice(&more[..n]);
        request.ends_with(b"\r\n$7\r\nREPLACE\r\n")
    });
    assert!(request.windows(4).any(|bytes| bytes == b"more"));
    silent_writer(&second)(b"+OK\r\n+OK\r\n");
    assert_eq!(here.reply().expect("it ends"), ok());
    assert_eq!(call(&mut other, "EXISTS long"), Value::Int(0));
}

fn silent_writer(connection: &std::net::TcpStream) -> impl FnMut(&[u8]) + use<> {
    let mut writer = connection.try_clone().expect("a socket");
    move |bytes| std::io::Write::write_all(&mut writer, bytes).expect("it reads")
}

#[test]
fn an_invalid_target_is_an_error() {
    let ours = strand(&[]);
    let mut here = ours.connect().expect("answers");
    call(&mut here, "SET key value");
    let not_connected = Value::Error(b"IOERR error or timeout connecting to the client".to_vec());
    let not_sent = Value::Error(b"IOERR error or timeout writing to target instance".to_vec());
    for (host, port, error) in [
        ("", "1", &not_connected),
        ("\u{1}", "1", &not_connected),
        ("\u{1}", "x", &not_connected),
        ("127.0.0.1", "-1", &not_connected),
        ("127.0.0.1", "", &not_sent),
        ("127.0.0.1", "x", &not_sent),
        ("127.0.0.1", "70000", &not_sent),
        ("127.0.0.1", "0", &not_sent),
    ] {
        let reply = here.call(&["MIGRATE", host, port, "key", "0", "100"]).expect("it answers");
        assert_eq!(reply, *error, "{host:?} {port:?}");
    }
    assert_eq!(call(&mut here, "GET key"), Value::Bulk(b"value".to_vec()));
}

/// Sends one MIGRATE on each of two connections at a time, for each of 40 keys. Returns the replies of each key.
fn migrate_twice(ours: &Server, theirs: &Server) -> Vec<[Value; 2]> {
    let mut clients = [0; 2].map(|_| ours.connect().expect("answers"));
    let one = |key: usize| {
        let command = format!("MIGRATE 127.0.0.1 {} key{key} 0 5000 REPLACE", theirs.address.port());
        std::thread::scope(|scope| {
            let calls = clients.each_mut().map(|client| scope.spawn(|| call(client, &command)));
            calls.map(|call| call.join().expect("no panic"))
        })
    };
    (0..40).map(one).collect()
}

#[test]
fn no_key_is_lost_by_two_migrates_at_a_time() {
    let (ours, theirs) = (strand(&[]), redis(&[]));
    let (mut here, mut there) = (ours.connect().expect("answers"), theirs.connect().expect("answers"));
    (0..40).for_each(|key| drop(call(&mut here, &format!("SET key{key} value"))));
    for replies in migrate_twice(&ours, &theirs) {
        let no_key = Value::Simple(b"NOKEY".to_vec());
        assert!(replies == [ok(), no_key.clone()] || replies == [no_key, ok()], "{replies:?}");
    }
    assert_eq!((call(&mut here, "DBSIZE"), call(&mut there, "DBSIZE")), (Value::Int(0), Value::Int(40)));
}

#[test]
fn no_key_is_lost_that_is_named_twice() {
    let (ours, theirs) = (strand(&[]), redis(&[]));
    let (mut here, mut there) = (ours.connect().expect("answers"), theirs.connect().expect("answers"));
    call(&mut here, "SET a 1");
    let port = theirs.address.port();
    assert_eq!(call(&mut here, &format!("MIGRATE 127.0.0.1 {port} '' 0 5000 REPLACE KEYS a a b a")), ok());
    assert_eq!(
        (call(&mut here, "DBSIZE"), call(&mut there, "GET a")),
        (Value::Int(0), Value::Bulk(b"1".to_vec()))
    );
}

#[test]
fn no_key_is_lost_that_migrates_to_its_own_server_or_back_at_the_same_time() {
    let (ours, other) = (strand(&[]), strand(&[]));
    let (mut here, mut there) = (ours.connect().expect("answers"), other.connect().expect("answers"));
    let long = "x".repeat(5000);
    // A RESTORE that the target has received runs after the timeout, so each round has a key of its own.
    for (me, value) in [("me1", "1"), ("me2", "text"), ("me3", &long)] {
        call(&mut here, &format!("SET {me} {value}"));
        let own = format!("MIGRATE 127.0.0.1 {} {me} 0 200 REPLACE", ours.address.port());
        assert!(matches!(call(&mut here, &own), Value::Error(_)), "as redis-server, after the timeout");
        assert_eq!(call(&mut here, &format!("GET {me}")), Value::Bulk(value.as_bytes().to_vec()));
        // Each of two servers sends an equal value to the other one.
        call(&mut there, &format!("SET {me} {value}"));
        let back = format!("MIGRATE 127.0.0.1 {} {me} 0 200 REPLACE", ours.address.port());
        let to = format!("MIGRATE 127.0.0.1 {} {me} 0 200 REPLACE", other.address.port());
        std::thread::scope(|scope| {
            scope.spawn(|| call(&mut here, &to));
            scope.spawn(|| call(&mut there, &back));
        });
        let copies = [&mut here, &mut there].map(|client| call(client, &format!("EXISTS {me}")));
        assert!(copies.contains(&Value::Int(1)), "{copies:?}");
    }
}

#[test]
fn a_stream_whose_group_changes_meanwhile_stays() {
    let ours = strand(&[]);
    let (mut here, mut other) = (ours.connect().expect("answers"), ours.connect().expect("answers"));
    let target = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = target.local_addr().expect("bound").port().to_string();
    call(&mut here, "XADD stream 1-1 field value");
    here.send(&["MIGRATE", "127.0.0.1", &port, "stream", "0", "600000", "REPLACE"]).expect("sent");
    let (mut connection, _) = target.accept().expect("it connects");
    let writer = silent_writer(&connection);
    let mut await_restore = || {
        let mut request = Vec::new();
        comes_true(|| {
            let mut more = [0; 4096];
            let n = connection.read(&mut more).expect("it sends");
            request.extend_from_slice(&more[..n]);
            request.ends_with(b"\r\n$7\r\nREPLACE\r\n")
        });
        request.len()
    };
    await_restore();
    assert_eq!(call(&mut other, "XGROUP CREATE stream group $"), ok());
    let mut answering = writer;
    answering(b"+OK\r\n+OK\r\n");
    let Value::Error(text) = here.reply().expect("it ends") else {
        panic!("the group is not on the other server")
    };
    assert!(text.starts_with(b"ERR stream was written while the target instance stored it"));
    assert_eq!(call(&mut other, "EXISTS stream"), Value::Int(1));
}
