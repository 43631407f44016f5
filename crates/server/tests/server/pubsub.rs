//! Publish and subscribe over real sockets: the same bytes as from redis-server, and slow, new and leaving
//! subscribers on several workers.

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

/// Steps of three connections: the connection and its command. After each step, the output of every connection is
/// compared.
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

/// Runs the steps, and returns the lines sent to each connection. Steps without messages follow the last message,
/// so it has arrived by the end.
fn transcript(address: std::net::SocketAddr, protocol: u8, steps: &[(usize, &str)]) -> Vec<Vec<String>> {
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        if protocol == 3 {
            client.send(&command("HELLO 3"));
            // As many lines as the map has.
            while client.line() != "*0" {}
        }
    }
    let id = clients[1].line_of("CLIENT ID", 0);
    let mut out = vec![Vec::new(); clients.len()];
    for (i, (who, words)) in steps.iter().enumerate() {
        words.split(';').for_each(|words| clients[*who].send(&command(&words.replace("{1}", &id[1..]))));
        // A mark at each connection that still takes commands. When it is answered, the step is done.
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
    out
}

/// Adds the lines before the answer to this mark.
fn answers(client: &mut Client, mark: &str, out: &mut Vec<String>) {
    client.send(&command(&format!("PING {mark}")));
    loop {
        let line = client.line();
        if line == mark {
            break;
        }
        out.push(line);
    }
    // The mark's length, and the reply format of a RESP2 subscriber around it.
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

/// Replies first, then messages, because with several workers a message of another connection may come before or
/// after a reply.
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
fn subscribers_are_sent_what_redis_server_sends() {
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

/// A subscriber that does not read is closed at the limit of its class. The others, even on its worker, receive
/// everything.
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

/// Clients subscribe, publish and unsubscribe at random on several workers. A publisher to a channel that only it
/// listens to receives exactly the counted messages.
#[test]
fn counts_are_right_while_others_come_and_go() {
    let server = Server::start(&["--workers", "3"]);
    let done = AtomicBool::new(false);
    /// Ends the others, even in a panic.
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
            // May include connections that were just closed.
            assert!(reached[1..].parse::<u32>().expect("a number") >= 1, "{reached}");
            let both = message("own", &n.to_string()) + &message("all", &n.to_string());
            listener.expect(both.as_bytes());
        }
        assert!(n > 10, "{n} rounds");
    });
    let mut client = server.connect();
    comes_true(|| client.line_of("PUBLISH all x", 0) == ":0");
}

/// Reads on until the bytes `end`. Messages may come before them, and nothing after.
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

/// Commands with named changes, in the order of redis-server's events.
const CHANGES: &[&str] = &[
    "SET s 1",
    "SET s 2",
    "SET s 3 EX 100",
    "SET s 4 KEEPTTL",
    "SET s 4 XX GET",
    "SET s 5 NX",
    "SETEX s 100 v",
    "PSETEX s 100000 v",
    "SETNX s v",
    "SETNX t v",
    "GETSET s 1",
    "GETDEL t",
    "GETEX s EX 100",
    "GETEX s PERSIST",
    "GETEX s PERSIST",
    "GETEX s EXAT 1",
    "MSET a 1 b 2",
    "MSETNX a 1 c 2",
    "MSETNX c 1 d 2",
    "APPEND a xyz",
    "SETRANGE a 1 zz",
    "SETRANGE a 0 \"\"",
    "INCR b",
    "DECRBY b 3",
    "INCRBYFLOAT b 1.5",
    "SETBIT bits 7 1",
    "BITFIELD bits SET u8 0 2",
    "BITOP OR bits2 bits a",
    "BITOP AND bits2 no1 no2",
    "PFADD hll a b",
    "PFADD hll a b",
    "PFMERGE hll2 hll",
    "DEL a nosuch",
    "UNLINK b c d",
    "SET k v",
    "EXPIRE k 100",
    "PEXPIRE k 100000 NX",
    "PERSIST k",
    "PERSIST k",
    "EXPIRE k -1",
    "SET k v",
    "SET l v",
    "RENAME k l",
    "RENAMENX l m",
    "SET l v",
    "RENAMENX l m",
    "COPY l n",
    "COPY l n",
    "COPY l n REPLACE",
    "COPY l n DB 1",
    "MOVE l 1",
    "MOVE n 1",
    "SELECT 1",
    "MOVE n 0",
    "DEL l",
    "SELECT 0",
    "HSET h f v",
    "HSET h f v g w",
    "HSETNX h f x",
    "HSETNX h i x",
    "HMSET h f 1",
    "HINCRBY h f 2",
    "HINCRBYFLOAT h f 1.5",
    "HDEL h g nosuch",
    "HDEL h nosuch",
    "HDEL h f i",
    "LPUSH q 1 2",
    "RPUSH q 3",
    "LPUSHX nosuch 1",
    "RPUSHX q 4",
    "LINSERT q BEFORE 3 x",
    "LINSERT q BEFORE no x",
    "LSET q 0 z",
    "LREM q 0 x",
    "LREM q 0 no",
    "LTRIM q 0 10",
    "LPOP q",
    "RPOP q 1",
    "LMOVE q q LEFT RIGHT",
    "LMOVE q p LEFT RIGHT",
    "RPOPLPUSH q p",
    "RPOPLPUSH nosuch p",
    "LMPOP 2 nosuch p LEFT COUNT 10",
    "SADD u 1 2 3",
    "SADD u 1",
    "SREM u 1 9",
    "SREM u 9",
    "SMOVE u w 2",
    "SMOVE u w nosuch",
    "SMOVE u w 3",
    "SPOP w",
    "SADD w 1 2 3",
    "SPOP w 10",
    "SADD w 1 2",
    "SADD x 2 3",
    "SINTERSTORE y w x",
    "SUNIONSTORE y w x",
    "SDIFFSTORE y w x",
    "SINTERSTORE y w nosuch",
    "ZADD z 1 a 2 b 3 c",
    "ZADD z 1 a",
    "ZADD z XX 1 nosuch",
    "ZADD z INCR 1 a",
    "ZINCRBY z 1 a",
    "ZREM z a",
    "ZREM z a",
    "ZPOPMIN z",
    "ZPOPMAX z 5",
    "ZADD z 1 a 2 b 3 c 4 d",
    "ZMPOP 1 z MIN COUNT 1",
    "ZMPOP 1 z MAX",
    "ZREMRANGEBYSCORE z 9 10",
    "ZREMRANGEBYRANK z 0 0",
    "ZADD z 0 a 0 b 0 c",
    "ZREMRANGEBYLEX z [a [a",
    "ZREMRANGEBYSCORE z 0 0",
    "ZADD z 1 a",
    "ZUNIONSTORE z2 1 z",
    "ZINTERSTORE z2 2 z w",
    "ZDIFFSTORE z2 1 z",
    "ZRANGESTORE z3 z 0 -1",
    "ZRANGESTORE z3 nosuch 0 -1",
    "ZUNIONSTORE z2 1 nosuch",
    "GEOADD g 13 38 P 15 37 C",
    "GEOADD g 13 38 P",
    "GEORADIUS g 15 37 200 km STORE g2",
    "GEOSEARCHSTORE g2 g FROMLONLAT 15 37 BYRADIUS 1 m",
    "XADD st 1-1 f v",
    "XADD st MAXLEN 1 2-1 f v",
    "XADD st MAXLEN 9 3-1 f v",
    "XTRIM st MAXLEN 1",
    "XTRIM st MAXLEN 1",
    "XADD st 4-1 f v",
    "XDEL st 4-1",
    "XDEL st 9-1",
    "XSETID st 9-1",
    "XGROUP CREATE st gr 0",
    "XGROUP CREATE st2 gr $ MKSTREAM",
    "XGROUP SETID st gr 0",
    "XGROUP CREATECONSUMER st gr c1",
    "XGROUP CREATECONSUMER st gr c1",
    "XREADGROUP GROUP gr c2 STREAMS st >",
    "XREADGROUP GROUP gr c2 STREAMS st 0",
    "XACK st gr 3-1",
    "XCLAIM st gr c3 0 3-1 FORCE",
    "XAUTOCLAIM st gr c4 0 0",
    "XGROUP DELCONSUMER st gr c1",
    "XGROUP DESTROY st gr",
    "XGROUP DESTROY st gr",
    "MULTI",
    "SET tx 1",
    "INCR tx",
    "LPUSH txl a",
    "RPOP txl",
    "EXEC",
    "RPUSH sl 3 1 2",
    "SORT sl STORE sorted",
    "SORT nosuch STORE sorted",
    "FLUSHALL",
];

/// Commands that only read, on missing keys.
const MISSES: &[&str] = &[
    "SET s v",
    "GET nosuch",
    "GET s",
    "EXISTS nosuch s",
    "TTL nosuch",
    "TYPE nosuch",
    "HGET nosuch f",
    "MGET nosuch s",
    "LRANGE nosuch 0 -1",
    "OBJECT ENCODING nosuch",
    "STRLEN nosuch",
    "SMEMBERS nosuch",
    "ZSCORE nosuch m",
    "XLEN nosuch",
    "DEL nosuch",
    "INCR s2",
    "LPOP nosuch",
    "TOUCH nosuch",
    "FLUSHALL",
];

/// Every event of the commands for a subscriber of all channels, until the message `end`.
fn events(address: std::net::SocketAddr, letters: &str, lines: &[&str]) -> Vec<String> {
    let (mut listener, mut client) = (Client::connect(address), Client::connect(address));
    client.call(&format!("CONFIG SET notify-keyspace-events {letters}"), "+OK\r\n");
    listener.send(&command("PSUBSCRIBE __key*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut batch = Vec::new();
    for line in lines {
        let words: Vec<String> = line.split(' ').map(|word| word.trim_matches('"').to_string()).collect();
        batch.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        words.iter().for_each(|w| batch.extend_from_slice(format!("${}\r\n{w}\r\n", w.len()).as_bytes()));
    }
    client.send(&batch);
    client.send(&command("PUBLISH __key_end end"));
    let mut found = Vec::new();
    loop {
        // *4 $8 pmessage $6 __key* $n channel $m text
        let lines: Vec<String> = (0..9).map(|_| listener.line()).collect();
        if lines[6] == "__key_end" {
            return found;
        }
        found.push(format!("{} {}", lines[6], lines[8]));
    }
}

#[test]
fn keys_have_the_events_that_they_have_in_redis_server() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    let ours =
        Process::strand(Path::new(crate::harness::STRAND), &["--workers", "2"], None).expect("strand starts");
    for (letters, lines) in [
        ("AKE", CHANGES),
        ("KEA$n", CHANGES),
        ("Eg", CHANGES),
        ("K$lsh", CHANGES),
        ("Kz", CHANGES),
        ("Etn", CHANGES),
        ("KEm", MISSES),
    ] {
        let (ours, theirs) = (events(ours.address, letters, lines), events(theirs.address, letters, lines));
        let first =
            ours.iter().zip(&theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
        let around = |all: &[String]| all[first.saturating_sub(2)..(first + 4).min(all.len())].to_vec();
        assert!(
            ours == theirs,
            "{letters}: event {first} of {}: {:?}, redis-server: {:?}",
            theirs.len(),
            around(&ours),
            around(&theirs)
        );
        assert!(!ours.is_empty(), "{letters}");
    }
}

/// Scripts that start on a worker, are undone there, and run elsewhere. Their events come once and in order, with
/// the scripts' own messages.
const SCRIPTS: &[&str] = &[
    "EVAL redis.call('set',KEYS[1],'v')redis.call('publish','__key_own','m')redis.call('incr',KEYS[2]) 2 a n",
    "EVAL redis.call('set',KEYS[1],'v')redis.call('incr',KEYS[2])for\ti=1,300000\tdo\tend\tredis.call('del',KEYS[1]) 2 a n",
    "EVAL redis.call('incr',KEYS[1])redis.call('publish','__key_own','m')redis.call('rpush','list','x') 1 n",
    "EVAL redis.call('rpop','list')redis.call('incr',KEYS[1])redis.call('get','nosuch') 1 n",
    "EVAL redis.call('set',KEYS[1],'v')redis.call('flushall')redis.call('set',KEYS[1],'w') 1 a",
    "EVAL redis.call('incr',KEYS[1])return(redis.call('incr',KEYS[2])) 2 n a",
    "EVAL for\ti=1,2000\tdo\tredis.call('incr',KEYS[1])end 1 n",
    "EVAL for\ti=1,50000\tdo\tredis.call('incr',KEYS[1])end 1 n",
    "DEL n a",
];

#[test]
fn scripts_have_their_events_once_wherever_they_run() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    let ours =
        Process::strand(Path::new(crate::harness::STRAND), &["--workers", "2"], None).expect("strand starts");
    let (ours, theirs) = (events(ours.address, "AKE", SCRIPTS), events(theirs.address, "AKE", SCRIPTS));
    let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    assert_eq!(first.map(|at| (at, &ours[at], &theirs[at])), None);
    assert_eq!(ours.len(), theirs.len());
}

/// A blocked call, and the command that serves it.
const SERVED: &[(&str, &str)] = &[
    ("BLPOP l 0", "RPUSH l 1"),
    ("BRPOP l 0", "RPUSH l 1 2"),
    ("BLMOVE a b LEFT RIGHT 0", "RPUSH a 1"),
    ("BRPOPLPUSH a b 0", "LPUSH a 1 2"),
    ("BLMPOP 0 2 x y LEFT COUNT 2", "RPUSH y 1 2 3"),
    ("BZPOPMIN z 0", "ZADD z 1 m"),
    ("BZPOPMAX z 0", "ZADD z 1 m 2 n"),
    ("BZMPOP 0 1 zz MIN", "ZADD zz 1 m"),
    ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XADD s 1-1 f v"),
    ("XREAD BLOCK 0 STREAMS s $", "XADD s 2-1 f v"),
];

/// The events of each step of [`SERVED`].
fn served_events(address: std::net::SocketAddr) -> Vec<String> {
    let (mut listener, mut pusher) = (Client::connect(address), Client::connect(address));
    pusher.call("CONFIG SET notify-keyspace-events AKE", "+OK\r\n");
    pusher.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    listener.send(&command("PSUBSCRIBE __key*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut found = Vec::new();
    for (wait, push) in SERVED {
        let mut waiter = Client::connect(address);
        waiter.send(&command(wait));
        comes_true(|| pusher.bulk("INFO clients").contains("blocked_clients:1"));
        pusher.send(&command(push));
        let reply = pusher.line();
        if reply.starts_with('$') {
            pusher.line();
        }
        // It is served.
        waiter.line();
        pusher.send(&command("PUBLISH __key_end end"));
        pusher.line();
        loop {
            let lines: Vec<String> = (0..9).map(|_| listener.line()).collect();
            if lines[6] == "__key_end" {
                break;
            }
            found.push(format!("{wait}: {} {}", lines[6], lines[8]));
        }
    }
    found
}

#[test]
fn what_serves_who_waits_has_the_events_that_it_has_in_redis_server() {
    let theirs = Process::redis(&[], None).expect("redis-server is installed (make setup) and starts");
    for workers in ["1", "3"] {
        let ours = Process::strand(Path::new(crate::harness::STRAND), &["--workers", workers], None);
        let ours = served_events(ours.expect("strand starts").address);
        assert!(ours.len() > 2 * SERVED.len());
        assert_eq!(ours, served_events(theirs.address), "{workers} workers");
        Client::connect(theirs.address).call("FLUSHALL", "+OK\r\n");
    }
}

#[test]
fn what_was_published_before_a_subscriber_quits_comes_before_the_end() {
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

#[test]
fn keys_that_expire_or_are_evicted_are_told_of() {
    let server = Server::start(&[
        "--workers",
        "2",
        "--enable-debug-command",
        "yes",
        "--notify-keyspace-events",
        "Exe",
    ]);
    let mut listener = server.connect();
    listener.send(&command("PSUBSCRIBE __keyevent@*"));
    (0..6).for_each(|_| _ = listener.line());
    let mut client = server.connect();
    // Nobody looks at the first key, so active expiry finds it. A look-up finds the second.
    client.call("SET lone v PX 1", "+OK\r\n");
    let (mut channel, mut key) = (String::new(), String::new());
    let mut next = |listener: &mut Client| {
        (0..7).for_each(|_| channel = listener.line());
        (0..2).for_each(|_| key = listener.line());
        format!("{channel} {key}")
    };
    assert_eq!(next(&mut listener), "__keyevent@0__:expired lone");
    client.call("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n");
    client.call("SELECT 3", "+OK\r\n");
    client.call("SET looked-at v PX 1", "+OK\r\n");
    comes_true(|| client.line_of("EXISTS looked-at", 0) == ":0");
    assert_eq!(next(&mut listener), "__keyevent@3__:expired looked-at");
    client.call("CONFIG SET maxmemory-policy allkeys-random", "+OK\r\n");
    client.call("SET victim v", "+OK\r\n");
    client.call("CONFIG SET maxmemory 1", "+OK\r\n");
    client.send(&command("SET more v"));
    assert_eq!(next(&mut listener), "__keyevent@3__:evicted victim");
}

/// Steps on hashes with expiring fields, and the events of Redis 7.4.
const FIELDS: &[(&str, &str)] = &[
    ("HSET h a 1 b 2 c 3", "hset"),
    ("HPEXPIREAT h 4152300156125 FIELDS 2 a b", "hexpire"),
    ("HPERSIST h FIELDS 1 a", "hpersist"),
    ("HPEXPIREAT h 1 FIELDS 1 a", "hdel"),
    ("HGETEX h EX 1000 FIELDS 2 b c", "hexpire"),
    ("HGETEX h PERSIST FIELDS 2 b nosuch", "hpersist"),
    ("HGETEX h PXAT 1 FIELDS 2 b b", "hdel"),
    ("HGETEX h FIELDS 1 c", ""),
    ("HSETEX h EX 1000 FIELDS 2 d 1 e 2", "hset hexpire"),
    ("HSETEX h FIELDS 1 d 1", "hset"),
    ("HSETEX h PXAT 1 FIELDS 1 d 1", "hset hdel"),
    ("HGETDEL h FIELDS 2 e e", "hdel"),
    ("HPEXPIRE h 0 FIELDS 1 c", "hdel del"),
    ("HSETEX h PX 1 FIELDS 2 a 1 b 2", "hset hexpire hexpired del"),
    ("HSET h lasting v", "hset"),
    ("HSETEX h PX 1 FIELDS 2 a 1 b 2", "hset hexpire hexpired"),
];

#[test]
fn fields_that_expire_are_told_of() {
    let server = Server::start(&["--workers", "2", "--notify-keyspace-events", "KEA"]);
    let (mut listener, mut client) = (server.connect(), server.connect());
    listener.send(&command("PSUBSCRIBE __keyspace@0__:h"));
    (0..6).for_each(|_| _ = listener.line());
    for (step, events) in FIELDS {
        client.send(&command(step));
        for event in events.split(' ').filter(|event| !event.is_empty()) {
            assert_eq!((0..9).map(|_| listener.line()).last().as_deref(), Some(event), "{step}");
        }
    }
    // No unexpected event came.
    client.send(&command("DEL h"));
    assert_eq!((0..9).map(|_| listener.line()).last().as_deref(), Some("del"));
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
fn clients_that_keep_copies_are_told_what_redis_server_tells() {
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
