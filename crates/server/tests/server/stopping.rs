//! SHUTDOWN, SIGTERM and SIGINT: running commands finish, the exit code is right, no client waits forever, and every
//! write that was answered is in the files.

use crate::following::follow;
use crate::harness::{Client, Server, comes_true, command};
use crate::replicas::field;
use crate::saving::call;
use crate::scripts::{eval, runs_a_script};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::time::Duration;
use strand_testkit::process::Server as Peer;

#[test]
fn shutdown_ends_the_server_with_code_0() {
    let mut server = Server::start(&[]);
    let mut idle = server.connect();
    idle.call("PING", "+PONG\r\n");
    let mut client = server.connect();
    client.send(&command("SHUTDOWN NOSAVE"));
    client.expect_end();
    idle.expect_end();
    assert_eq!(server.end().code(), Some(0));
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn a_signal_lets_commands_in_flight_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
        let (mut busy, mut half) = (server.connect(), server.connect());
        busy.send(&[command("DEBUG SLEEP 0.5"), command("ECHO last")].concat());
        half.send(b"*2\r\n$3\r\nGET\r\n");
        // The worker answers this command after it has read the commands above.
        server.connect().call("PING", "+PONG\r\n");
        server.signal(signal);
        half.expect_end();
        busy.expect(b"+OK\r\n$4\r\nlast\r\n");
        busy.expect_end();
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn sigint_ends_a_stopping_server_at_once_and_sigterm_does_not() {
    for first in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
        let (mut busy, mut idle) = (server.connect(), server.connect());
        busy.send(&command("DEBUG SLEEP 100"));
        idle.call("PING", "+PONG\r\n");
        server.signal(first);
        // The first signal has been handled when the idle connection closes.
        idle.expect_end();
        server.signal(Signal::TERM);
        comes_true(|| server.folder.log_text().contains("SIGTERM: the server is already stopping"));
        server.signal(Signal::INT);
        assert_eq!(server.end().code(), Some(1));
    }
}

/// As in redis-server, where SIGINT during the save ends the process ("You insist"), and SIGTERM does not.
#[test]
fn a_repeated_sigterm_leaves_the_last_save_alone_and_sigint_ends_the_server() {
    for (first, second, saves) in [
        (Signal::TERM, Signal::TERM, true),
        (Signal::INT, Signal::TERM, true),
        (Signal::TERM, Signal::INT, false),
        (Signal::INT, Signal::INT, false),
    ] {
        let mut server = Server::start(&["--rdb-key-save-delay", "100000", "--save", "3600 1000"]);
        let mut client = server.connect();
        // With the delay, the save takes so long that the second signal comes meanwhile.
        (0..100).for_each(|i| client.call(&format!("SET key:{i} x"), "+OK\r\n"));
        server.signal(first);
        comes_true(|| server.folder.log_text().contains(": saving"));
        server.signal(second);
        if saves {
            comes_true(|| server.folder.log_text().contains("SIGTERM: the server is already stopping"));
            client.call("CONFIG SET rdb-key-save-delay 0", "+OK\r\n");
        }
        assert_eq!(server.end().code(), Some(if saves { 0 } else { 1 }), "{first:?}, {second:?}");
        assert_eq!(server.folder.0.join("dump.rdb").exists(), saves, "{first:?}, {second:?}");
    }
}

#[test]
fn an_incomplete_head_of_http_gets_no_grace_time() {
    let options = ["--enable-debug-command", "yes", "--workers", "1", "--save", ""];
    let (mut server, doors) = Server::start_doors(&["--http-port"], &options);
    let (mut busy, mut half) = (server.connect(), Client::connect(doors[0]));
    half.send(b"GET /v1/keys/k HTTP/1.1\r\nHost: ");
    busy.send(&command("DEBUG SLEEP 100"));
    server.connect().call("PING", "+PONG\r\n");
    server.signal(Signal::TERM);
    half.expect_end();
    // SIGINT comes before the end of the grace time.
    server.signal(Signal::INT);
    assert_eq!(server.end().code(), Some(1));
}

#[test]
fn a_paused_command_of_a_client_that_is_gone_never_begins() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call("CLIENT PAUSE 1000000 WRITE", "+OK\r\n");
    let accepted = |admin: &mut Client| {
        let stats = admin.bulk("INFO stats");
        let field = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        field.and_then(|n| n.parse::<u64>().ok()).expect("a number")
    };
    let before = accepted(&mut admin);
    for _ in 0..5 {
        server.connect().send(&command("INCR n"));
    }
    comes_true(|| accepted(&mut admin) == before + 5);
    comes_true(|| admin.bulk("INFO clients").contains("connected_clients:1\r"));
    admin.call("CLIENT UNPAUSE", "+OK\r\n");
    admin.call("EXISTS n", ":0\r\n");
}

#[test]
fn a_command_that_a_pause_keeps_from_beginning_gets_no_grace_time() {
    let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
    let (mut busy, mut paused) = (server.connect(), server.connect());
    busy.send(&command("DEBUG SLEEP 100"));
    paused.call("CLIENT PAUSE 100000 WRITE", "+OK\r\n");
    paused.send(&command("SET k v"));
    // The worker answers this command after it has read the commands above.
    server.connect().call("PING", "+PONG\r\n");
    server.signal(Signal::TERM);
    paused.expect_end();
    // The busy client still has its grace time, so this is a second signal and not one to a server that has ended.
    server.signal(Signal::INT);
    assert_eq!(server.end().code(), Some(1));
}

#[test]
fn the_grace_time_is_bounded() {
    let mut server = Server::start(&["--enable-debug-command", "yes", "--workers", "1"]);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    busy.send(&command("DEBUG SLEEP 100"));
    idle.call("PING", "+PONG\r\n");
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}

/// A request that increments the counter `n:{n}`.
pub struct Increment {
    request: Vec<u8>,
    /// The number of lines of the reply before the line with the counter, and after that line.
    lines: (usize, usize),
}

/// Number of further commands in [`Increment::in_long_exec`]. With them, EXEC is too long for a worker.
const PADDING: usize = 5_000;

impl Increment {
    fn by_command(n: usize) -> Increment {
        Increment { request: command(&format!("INCR n:{n}")), lines: (0, 0) }
    }
    fn in_script(n: usize) -> Increment {
        let text = "return redis.call('incr', KEYS[1])";
        let request = format!("*4\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$1\r\n1\r\n$3\r\nn:{n}\r\n", text.len());
        Increment { request: request.into_bytes(), lines: (0, 0) }
    }
    /// In an EXEC that runs on a helper thread, on copies of its records.
    pub fn in_long_exec(n: usize) -> Increment {
        let padding = command(&format!("INCR pad:{n}")).repeat(PADDING);
        let request = [command("MULTI"), command(&format!("INCR n:{n}")), padding, command("EXEC")].concat();
        Increment { request, lines: (1 + 1 + PADDING + 1, PADDING) }
    }
    /// Sends the request until the connection ends or `goes_on` is false. Returns the last counter in a reply.
    pub fn repeat(&self, client: &mut Client, goes_on: impl Fn() -> bool) -> u64 {
        let mut answered = 0;
        while goes_on() {
            // The server may close the connection at any time.
            let sent = client.stream.write_all(&self.request).is_ok();
            let (before, after) = self.lines;
            let lines: Option<Vec<String>> = (0..=before + after).map(|_| client.try_line()).collect();
            let Some(lines) = lines.filter(|_| sent) else { break };
            answered = lines[before].strip_prefix(':').and_then(|n| n.parse().ok()).expect("a number");
        }
        answered
    }
}

/// Clients write by commands, scripts and long transactions, one reply after the other, until the server ends. Every write
/// that was answered is there after the next start, and at most one more for each client.
#[test]
fn what_was_answered_before_the_end_is_in_the_files() {
    const WRITERS: usize = 6;
    let increment = |n: usize| match n % 3 {
        0 => Increment::by_command(n),
        1 => Increment::in_script(n),
        _ => Increment::in_long_exec(n),
    };
    for (files, end) in [
        (["--appendonly", "yes", "--save", ""], Some("SHUTDOWN")),
        (["--appendonly", "no", "--save", "900 1"], Some("SHUTDOWN")),
        (["--appendonly", "no", "--save", "900 1"], Some("SHUTDOWN")),
        (["--appendonly", "no", "--save", "900 1"], None),
        (["--appendonly", "no", "--save", "900 1"], None),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().to_str().expect("a plain path");
        let options = [&["--workers", "2", "--dir", dir][..], &files].concat();
        let mut server = Server::start(&options);
        let (first, last) = std::thread::scope(|scope| {
            let write = |n: usize| {
                let (mut client, increment) = (server.connect(), increment(n));
                move || increment.repeat(&mut client, || true)
            };
            let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(write(n))).collect();
            std::thread::sleep(Duration::from_millis(200));
            match end {
                Some(end) => server.connect().send(&command(end)),
                None => server.signal(Signal::TERM),
            }
            let answered: Vec<u64> = writers.into_iter().map(|w| w.join().expect("it ends")).collect();
            (answered[0], answered)
        });
        assert!(first > 0 && server.end().success());
        let again = Server::start(&options);
        let mut client = again.connect();
        crate::harness::comes_true(|| client.line_of("PING", 0) == "+PONG");
        for (n, answered) in last.into_iter().enumerate() {
            let found: u64 = client.bulk(&format!("GET n:{n}")).parse().expect("a number");
            assert!(
                (answered..=answered + 1).contains(&found),
                "{files:?}: {answered} answered, {found} found"
            );
        }
    }
}

/// A script that computes for a while, and then writes its key.
const COMPUTES: &str = "for i = 1, 1e7 do end return redis.call('set', KEYS[1], 'x')";

/// The end waits for the EXEC, and cuts no part of it.
#[test]
fn a_script_in_exec_is_not_cut_by_the_end() {
    for files in [["--appendonly", "yes", "--save", ""], ["--appendonly", "no", "--save", "900 1"]] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().to_str().expect("a plain path");
        let options =
            [&["--workers", "2", "--dir", dir, "--busy-reply-threshold", "60000"][..], &files].concat();
        let mut server = Server::start(&options);
        let (mut client, mut admin) = (server.connect(), server.connect());
        client.call("MULTI", "+OK\r\n");
        client.call("SET a 1", "+QUEUED\r\n");
        eval(&mut client, COMPUTES, &["1", "b"]);
        client.expect(b"+QUEUED\r\n");
        client.call("SET c 1", "+QUEUED\r\n");
        client.send(&command("EXEC"));
        comes_true(|| runs_a_script(&server));
        admin.send(&command("SHUTDOWN"));
        client.expect(b"*3\r\n+OK\r\n+OK\r\n+OK\r\n");
        assert!(server.end().success());
        let again = Server::start(&options);
        let mut client = again.connect();
        comes_true(|| client.line_of("PING", 0) == "+PONG");
        client.call("EXISTS a b c", ":3\r\n");
    }
}

/// Scripts that have yet to write wait while the server ends, and take all threads for heavy jobs. FT.CREATE, which also
/// writes, waits for one of these threads. Neither keeps the server from its end.
#[test]
fn waiting_scripts_and_a_waiting_heavy_write_let_the_server_end() {
    for reload in [false, true] {
        let never_busy = ["--busy-reply-threshold", "60000"];
        let options = ["--workers", "1", "--save", "900 1", "--enable-debug-command", "yes"];
        let options = [&options[..], &never_busy].concat();
        let mut server = Server::start(&options);
        server.connect().call("SET k v", "+OK\r\n");
        let mut scripts: Vec<_> = (0..6).map(|_| server.connect()).collect();
        for (n, client) in scripts.iter_mut().enumerate() {
            eval(client, COMPUTES, &["1", &format!("key:{n}")]);
        }
        comes_true(|| runs_a_script(&server));
        server.connect().send(&command("FT.CREATE index ON HASH PREFIX 1 d: SCHEMA t TEXT"));
        if reload {
            server.connect().call("DEBUG RELOAD", "+OK\r\n");
            scripts.iter_mut().for_each(|client| client.expect(b"+OK\r\n"));
        }
        server.signal(Signal::TERM);
        assert!(server.end().success());
    }
}

/// A script becomes busy after the server has accepted SHUTDOWN. The SHUTDOWN fails, and clients go on.
#[test]
fn a_script_that_becomes_busy_ends_the_wait_of_shutdown() {
    let options = ["--workers", "1", "--save", "900 1", "--busy-reply-threshold", "1000"];
    let mut server = Server::start(&options);
    let (mut long, mut admin, mut other) = (server.connect(), server.connect(), server.connect());
    let script =
        "redis.call('object', 'encoding', KEYS[1]) redis.call('set', KEYS[1], 'x') while true do end";
    eval(&mut long, script, &["1", "k"]);
    comes_true(|| runs_a_script(&server));
    let reply = admin.line_of("SHUTDOWN", 0);
    assert!(
        ["-ERR Errors trying to SHUTDOWN", "-BUSY"].iter().any(|text| reply.starts_with(text)),
        "{reply}"
    );
    // Some of these keys may lie in the script's shard.
    let written = (0..20).filter(|i| other.line_of(&format!("SET other:{i} x"), 0) == "+OK");
    assert!(written.count() > 10);
    assert!(other.line_of("GET k", 0).starts_with("-BUSY"));
    admin.send(&command("SHUTDOWN NOSAVE"));
    assert!(server.end().success());
}

/// Sends a signal to another server.
fn signal(peer: &Peer, signal: Signal) {
    let pid = Pid::from_raw(peer.pid() as i32).expect("a child's pid");
    kill_process(pid, signal).expect("it lives");
}

/// A replica that acknowledges nothing keeps the server from stopping, until SHUTDOWN ABORT or the replica's next
/// acknowledgement. redis-server is beside it as a primary, and is a replica of each.
#[test]
fn the_wait_for_replicas_can_be_aborted() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a plain path");
    let options = ["--save", "", "--shutdown-timeout", "1000"];
    let mut server = Server::start(&[&options[..], &["--dir", dir]].concat());
    let redis = Peer::redis(&options, None).expect("redis-server is installed");
    let primaries = [server.address, redis.address];
    for (primary, address) in primaries.into_iter().enumerate() {
        let connect = || strand_testkit::client::Client::connect(address).expect("it listens");
        let replica = Peer::redis(&[], None).expect("redis-server is installed");
        let mut replica_link = replica.connect().expect("it listens");
        follow(&mut replica_link, address.port());
        let (mut admin, mut writer) = (connect(), connect());
        assert_eq!(call(&mut admin, &["SHUTDOWN", "ABORT"]), "ERR No shutdown in progress.");
        let left_ms = |admin: &mut crate::saving::Link| {
            let all = call(admin, &["INFO", "server"]);
            let line = all.lines().find_map(|line| line.strip_prefix("shutdown_in_milliseconds:"));
            line.map(|left| left.parse::<u64>().expect("a number"))
        };
        for by_signal in [false, true] {
            signal(&replica, Signal::STOP);
            assert_eq!(call(&mut admin, &["SET", "k", "before"]), "OK");
            let mut ending = connect();
            match (by_signal, primary) {
                (false, _) => ending.send(&["SHUTDOWN"]).expect("sent"),
                (true, 0) => server.signal(Signal::TERM),
                (true, _) => signal(&redis, Signal::TERM),
            }
            comes_true(|| left_ms(&mut admin).is_some());
            assert!((900_000..=1_000_000).contains(&left_ms(&mut admin).expect("it waits")));
            // Writes wait, and reads do not.
            writer.send(&["SET", "k", "after"]).expect("sent");
            for _ in 0..500 {
                assert_eq!(call(&mut admin, &["GET", "k"]), "before");
            }
            assert_eq!(call(&mut admin, &["SHUTDOWN", "ABORT"]), "OK");
            if !by_signal {
                let reply = crate::saving::text(ending.reply().expect("a reply"));
                assert_eq!(reply, "ERR Errors trying to SHUTDOWN. Check logs.");
            }
            assert_eq!(crate::saving::text(writer.reply().expect("a reply")), "OK");
            assert_eq!((call(&mut admin, &["GET", "k"]), left_ms(&mut admin)), ("after".into(), None));
            if by_signal && primary == 0 {
                // An end that was given up does not count: a signal begins a new one.
                server.signal(Signal::TERM);
                comes_true(|| left_ms(&mut admin).is_some());
                assert_eq!(call(&mut admin, &["SHUTDOWN", "ABORT"]), "OK");
                comes_true(|| left_ms(&mut admin).is_none());
            }
            signal(&replica, Signal::CONT);
            assert_eq!(call(&mut admin, &["WAIT", "1", "60000"]), "1");
        }
        // The server stops as soon as the replica has everything.
        signal(&replica, Signal::STOP);
        assert_eq!(call(&mut admin, &["SET", "k", "last"]), "OK");
        admin.send(&["SHUTDOWN"]).expect("sent");
        let mut other = connect();
        comes_true(|| left_ms(&mut other).is_some());
        signal(&replica, Signal::CONT);
        assert!(admin.reply().is_err(), "the connection ends");
        assert_eq!(call(&mut replica_link, &["GET", "k"]), "last");
        assert_eq!(field(&mut replica_link, "role"), "slave");
    }
    assert!(server.end().success());
}

/// Several SHUTDOWNs share one save. One that insists on no save takes their place.
#[test]
fn shutdowns_at_the_same_time_make_one_end() {
    for insists in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().to_str().expect("a plain path");
        let options = ["--save", "3600 1", "--rdb-key-save-delay", "8000", "--dir", dir];
        let mut server = Server::start(&options);
        let mut client = server.connect();
        for key in 0..200 {
            client.call(&format!("SET {key} v"), "+OK\r\n");
        }
        let mut others = Vec::new();
        for blocked in 1..=15 {
            let mut other = server.connect();
            other.send(&command("SHUTDOWN"));
            others.push(other);
            comes_true(|| {
                client.bulk("INFO clients").contains(&format!("\r\nblocked_clients:{blocked}\r\n"))
            });
        }
        if insists {
            client.send(&command("SHUTDOWN NOSAVE"));
        }
        others.iter_mut().for_each(Client::expect_end);
        assert!(server.end().success());
        let files = std::fs::read_dir(folder.path()).expect("it is there").flatten();
        let names: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
        assert_eq!(names.contains(&"dump.rdb".to_string()), !insists, "{names:?}");
        if !insists {
            let again = Server::start(&options);
            let mut client = again.connect();
            comes_true(|| client.line_of("DBSIZE", 0) == ":200");
        }
    }
}
