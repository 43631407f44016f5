//! Blocking commands over real sockets and several workers: redis-server's replies, no element lost or duplicated,
//! and no trace of clients that left.

use crate::harness::{Server, comes_true, command};
use rustix::process::Signal;
use std::net::Shutdown;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use strand_testkit::client::Client;
use strand_testkit::process;
use strand_wire::client::Value;

/// The watchdog: maximum wait for a reply, in seconds.
const REPLY_S_MAX: u64 = 20;

fn connect(server: &Server) -> Client {
    bounded(Client::connect(server.address).expect("the server accepts"))
}
fn bounded(mut client: Client) -> Client {
    client.stream().set_read_timeout(Some(Duration::from_secs(REPLY_S_MAX))).expect("not zero");
    client
}
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}
fn call(client: &mut Client, line: &str) -> Value {
    client.call(&words(line)).unwrap_or_else(|e| panic!("{line}: {e}"))
}
fn blocked_clients(control: &mut Client) -> usize {
    let info = match call(control, "INFO clients") {
        Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|n| n.parse().ok()).expect("INFO counts them")
}

/// True when CLIENT LIST shows this client as blocked.
fn is_blocked(control: &mut Client, id: i64) -> bool {
    let line = match call(control, &format!("CLIENT LIST ID {id}")) {
        Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    let flags = line.split(' ').find_map(|field| field.strip_prefix("flags="));
    flags.expect("it is listed").contains('b')
}

/// Runs steps of the form `CLIENT COMMAND`. With `+` after the client the command must block, and the step waits
/// for that. Returns what each client has read when none is blocked any more.
fn play(connect: &mut dyn FnMut() -> Client, steps: &[&str], protocol: &str) -> Vec<Vec<Value>> {
    let mut control = connect();
    call(&mut control, "FLUSHALL");
    let mut clients: Vec<Client> = (0..4).map(|_| connect()).collect();
    let mut open = [0; 4];
    let mut ids = Vec::new();
    for client in &mut clients {
        call(client, &format!("HELLO {protocol}"));
        match call(client, "CLIENT ID") {
            Value::Int(id) => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    let mut seen: Vec<Vec<Value>> = vec![Vec::new(); 4];
    for step in steps {
        let (who, line) = step.split_once(' ').expect("a client and a command");
        let client: usize = who.trim_end_matches('+').parse().expect("a number");
        // If this client blocks again, its earlier command has been served.
        while who.ends_with('+') && open[client] > 0 {
            seen[client].push(clients[client].reply().unwrap_or_else(|e| panic!("{step}: {e}")));
            open[client] -= 1;
        }
        clients[client].send(&words(line)).expect("the server takes it");
        open[client] += 1;
        if who.ends_with('+') {
            comes_true(|| is_blocked(&mut control, ids[client]));
        } else {
            while open[client] > 0 {
                seen[client].push(clients[client].reply().unwrap_or_else(|e| panic!("{step}: {e}")));
                open[client] -= 1;
            }
        }
    }
    for (client, (open, seen)) in clients.iter_mut().zip(open.iter().zip(&mut seen)) {
        seen.extend((0..*open).map(|_| client.reply().expect("nobody waits in the end")));
    }
    comes_true(|| blocked_clients(&mut control) == 0);
    seen
}

/// Scenes to play. In each, client 0 acts and the others wait.
const SCENES: &[&[&str]] = &[
    &["1+ BLPOP a b 0", "2+ BRPOP b a 0", "0 RPUSH b 1 2 3", "0 LRANGE b 0 -1"],
    &["1+ BLPOP a b 0", "0 MULTI", "0 RPUSH b 1", "0 RPUSH a 2", "0 EXEC", "0 LRANGE a 0 -1", "0 EXISTS b"],
    &["1+ BLPOP a 0", "0 MULTI", "0 RPUSH a 1", "0 DEL a", "0 EXEC", "0 RPUSH a 2"],
    &["1+ BLPOP a 0", "2+ BZPOPMIN a 0", "0 ZADD a 1 m 2 n", "0 TYPE a", "0 DEL a", "0 LPUSH a x"],
    &["1+ BLMOVE a b LEFT RIGHT 0", "2+ BLMOVE b c LEFT RIGHT 0", "3+ BLPOP c 0", "0 RPUSH a 1", "0 DBSIZE"],
    &["0 SET d x", "1+ BLMOVE a d LEFT LEFT 0", "0 RPUSH a 1", "0 LRANGE a 0 -1"],
    &["1+ BLMPOP 0 2 a b LEFT COUNT 2", "2+ BLMPOP 0 1 b RIGHT COUNT 9", "0 RPUSH b 1 2 3 4 5", "0 EXISTS b"],
    &[
        "1+ BZMPOP 0 2 a b MAX COUNT 2",
        "2+ BZPOPMAX b 0",
        "0 ZADD b 1 m 2 n 3 o 4 p",
        "0 ZRANGE b 0 -1 WITHSCORES",
    ],
    &["1+ BRPOPLPUSH a a 0", "0 RPUSH a 1 2", "0 LRANGE a 0 -1"],
    &["1+ BLPOP a 0", "0 RPUSH x 1", "0 RENAME x a", "0 DBSIZE"],
    &["1+ BLPOP a 0", "0 SELECT 1", "0 RPUSH a 1", "0 SWAPDB 0 1", "0 DBSIZE"],
    &["1+ BLPOP a 0", "0 SELECT 1", "0 RPUSH a 1", "0 MOVE a 0", "0 DBSIZE"],
    &["1+ BLPOP a 0", "0 SELECT 1", "0 RPUSH a 1", "0 COPY a a DB 0", "0 DBSIZE"],
    &["1 BLPOP a 0.03", "2 XREAD BLOCK 30 STREAMS a $", "3 BLMOVE a b LEFT LEFT 0.03"],
    &["1 WAIT 1 30", "0 WAIT 0 0", "2 BZMPOP 0.03 1 a MIN", "3 BRPOPLPUSH a b 0.03"],
    &[
        "1+ XREAD BLOCK 0 STREAMS s t $ $",
        "2+ XREAD BLOCK 0 COUNT 1 STREAMS t 0",
        "0 XADD t 1-1 f v",
        "0 XADD s 1-2 f v",
    ],
    &["1+ XREAD BLOCK 0 STREAMS s 5-0", "0 XADD s 4-0 f v", "0 XADD s 5-0 f v", "0 XADD s 6-0 f v"],
    &[
        "0 XGROUP CREATE s g $ MKSTREAM",
        "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
        "2+ XREADGROUP GROUP g b BLOCK 0 NOACK STREAMS s >",
        "0 XADD s 1-1 f v",
        "0 XADD s 1-2 f v",
        "0 XPENDING s g",
        "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
        "0 XGROUP DESTROY s g",
    ],
    &["0 XGROUP CREATE s g $ MKSTREAM", "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >", "0 DEL s"],
    &["0 XGROUP CREATE s g $ MKSTREAM", "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >", "0 SET s x"],
    &["0 XGROUP CREATE s g $ MKSTREAM", "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >", "0 FLUSHALL"],
    &["0 XGROUP CREATE s g $ MKSTREAM", "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >", "0 PEXPIRE s 20"],
    &["0 XGROUP CREATE s g $ MKSTREAM", "1+ XREADGROUP GROUP g a BLOCK 0 STREAMS s >", "0 RENAME s t"],
    &["0 SET k x", "0 BLPOP k 0", "0 BLPOP none k 0", "0 BZPOPMIN k 0", "0 BLMOVE k d LEFT LEFT 0"],
    &[
        "0 BLPOP k -1",
        "0 BLPOP k inf",
        "0 BLPOP k 1e400",
        "0 BLPOP k nan",
        "0 BLPOP k 9223372036854775807",
        "0 BLPOP k",
    ],
    &[
        "0 BLMOVE a b UP LEFT x",
        "0 BLMOVE a b LEFT LEFT x",
        "0 BRPOPLPUSH a b x",
        "0 WAIT x x",
        "0 WAIT 1 x",
        "0 WAIT 1 -1",
    ],
    &[
        "0 BLMPOP x 1 a LEFT",
        "0 BLMPOP 0 0 a LEFT",
        "0 BLMPOP 0 2 a LEFT",
        "0 BLMPOP 0 1 a UP",
        "0 BLMPOP 0 1 a LEFT COUNT 0",
    ],
    &[
        "0 BZMPOP -1 1 a MIN",
        "0 BZMPOP 0 x a MIN",
        "0 BZMPOP 0 1 a LEFT",
        "0 BZMPOP 0 1 a MIN COUNT 1 COUNT 1",
    ],
    &["0 XREAD BLOCK x STREAMS a 0", "0 XREAD BLOCK -1 STREAMS a 0", "0 XREAD BLOCK 0 STREAMS a >"],
    &[
        "0 MULTI",
        "0 BLPOP a 0",
        "0 BLMOVE a b LEFT LEFT 0",
        "0 BZPOPMAX a 0",
        "0 XREAD BLOCK 0 STREAMS a $",
        "0 WAIT 1 0",
        "0 EXEC",
    ],
    &["0 COMMAND INFO blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop xread xreadgroup wait"],
    &[
        "0 COMMAND GETKEYS BLMPOP 0 2 a b LEFT",
        "0 COMMAND GETKEYS BLPOP a b c 0",
        "0 COMMAND GETKEYSANDFLAGS BLMOVE a b LEFT LEFT 0",
    ],
];

#[test]
fn blocked_clients_get_redis_server_s_replies() {
    let server = Server::start(&["--workers", "3"]);
    let redis = process::Server::redis(&[], None).expect("redis-server is installed");
    for protocol in ["2", "3"] {
        for scene in SCENES {
            let ours = play(&mut || connect(&server), scene, protocol);
            let theirs = play(&mut || bounded(redis.connect().expect("it accepts")), scene, protocol);
            assert_eq!(ours, theirs, "RESP{protocol}: {scene:?}");
        }
    }
}

#[test]
fn no_element_is_lost_or_taken_twice() {
    const ELEMENTS: usize = 3000;
    const TAKERS: usize = 6;
    /// An element that is not taken until then is lost.
    const TIME_MAX: Duration = Duration::from_secs(60);
    let server = Server::start(&["--workers", "4"]);
    let (taken, began) = (Mutex::new(Vec::new()), Instant::now());
    let push = |client: &mut Client, i: usize, rng: &mut fastrand::Rng| {
        let key = ["a", "b", "c"][rng.usize(..3)];
        match rng.u8(..4) {
            0 => {
                call(client, "MULTI");
                call(client, &format!("RPUSH {key} {i}"));
                call(client, "PING");
                assert!(matches!(call(client, "EXEC"), Value::Array(replies) if replies.len() == 2));
            }
            1 => drop(
                call(client, &format!("LPUSH x{i} {i}"))
                    .eq(&call(client, &format!("LMOVE x{i} {key} LEFT LEFT"))),
            ),
            _ => drop(call(client, &format!("RPUSH {key} {i}"))),
        }
    };
    std::thread::scope(|scope| {
        for id in 0..TAKERS {
            let (server, taken) = (&server, &taken);
            scope.spawn(move || {
                let (mut client, mut rng) = (connect(server), fastrand::Rng::with_seed(id as u64));
                loop {
                    let reply = match rng.u8(..6) {
                        0 => call(&mut client, "BRPOP c b a 1"),
                        1 => call(&mut client, "BLMPOP 1 3 b a c LEFT COUNT 2"),
                        // Move the element in two steps, through a list of this client's own.
                        2 => match call(&mut client, &format!("BLMOVE a own{id} LEFT LEFT 0.02")) {
                            Value::Bulk(_) => {
                                call(&mut client, &format!("BLPOP own{id} {}", TIME_MAX.as_secs()))
                            }
                            _ => continue,
                        },
                        3 => call(&mut client, "BLPOP a b 0.001"),
                        _ => call(&mut client, "BLPOP a b c 1"),
                    };
                    let mut taken = taken.lock().expect("no client failed");
                    let add = |value: Value| match value {
                        Value::Bulk(text) => taken.push(String::from_utf8(text).expect("a number")),
                        Value::Array(items) => items.into_iter().for_each(|item| match item {
                            Value::Bulk(text) => taken.push(String::from_utf8(text).expect("a number")),
                            other => panic!("{other:?}"),
                        }),
                        other => panic!("{other:?}"),
                    };
                    match reply {
                        Value::Array(items) => items.into_iter().skip(1).for_each(add),
                        Value::Null => {}
                        other => panic!("{other:?}"),
                    }
                    if taken.len() >= ELEMENTS {
                        return;
                    }
                    assert!(began.elapsed() < TIME_MAX, "only {} elements of {ELEMENTS} came", taken.len());
                }
            });
        }
        for id in 0..3 {
            let (server, push) = (&server, &push);
            scope.spawn(move || {
                let (mut client, mut rng) = (connect(server), fastrand::Rng::with_seed(100 + id as u64));
                (0..ELEMENTS).filter(|i| i % 3 == id).for_each(|i| push(&mut client, i, &mut rng));
            });
        }
    });
    let mut taken: Vec<usize> =
        taken.into_inner().expect("no client failed").iter().map(|i| i.parse().expect("a number")).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..ELEMENTS).collect::<Vec<_>>());
    let mut control = connect(&server);
    assert_eq!(call(&mut control, "DBSIZE"), Value::Int(0));
    comes_true(|| blocked_clients(&mut control) == 0);
}

#[test]
fn a_disconnected_client_is_no_longer_blocked() {
    let server = Server::start(&["--workers", "2"]);
    let mut control = connect(&server);
    for how in [Shutdown::Both, Shutdown::Write] {
        let mut waiter = server.connect();
        waiter.send(&[command("PING"), command("BLPOP k 0"), command("PING")].concat());
        waiter.expect(b"+PONG\r\n");
        comes_true(|| blocked_clients(&mut control) == 1);
        waiter.stream.shutdown(how).expect("a socket");
        comes_true(|| blocked_clients(&mut control) == 0);
        if how == Shutdown::Write {
            waiter.expect_end();
        }
        assert_eq!(call(&mut control, "RPUSH k x"), Value::Int(1));
        assert_eq!(call(&mut control, "LPOP k"), Value::Bulk(b"x".to_vec()));
    }
}

#[test]
fn many_blocked_clients_cost_no_time_and_do_not_delay_the_stop() {
    let mut server = Server::start(&["--workers", "2"]);
    let mut control = connect(&server);
    let mut waiters: Vec<_> = (0..500).map(|_| server.connect()).collect();
    for waiter in &mut waiters {
        waiter.send(&command("BLPOP k l 0"));
    }
    comes_true(|| blocked_clients(&mut control) == 500);
    server.costs_nothing();
    assert_eq!(call(&mut control, "RPUSH k x"), Value::Int(1));
    assert_eq!(call(&mut control, "EXISTS k"), Value::Int(0));
    comes_true(|| blocked_clients(&mut control) == 499);
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}
