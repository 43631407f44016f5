//! Hostile and long scripts beside other clients, and how they end. The corpus (`scripting.txt`) compares the
//! replies of scripts with redis-server.

use crate::harness::{Client, Server, comes_true};
use std::sync::atomic::{AtomicBool, Ordering};
use strand_wire::client::Value;

/// Sends EVAL of a script that contains spaces.
pub fn eval(client: &mut Client, script: &str, rest: &[&str]) {
    let words = [&["EVAL", script], rest].concat();
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|w| out.push_str(&format!("${}\r\n{w}\r\n", w.len())));
    client.send(out.as_bytes());
}

/// True when a script has run for a millisecond on a helper thread.
pub fn runs_a_script(server: &Server) -> bool {
    let mut client = strand_testkit::client::Client::connect(server.address).expect("it listens");
    let Value::Array(stats) = client.call(&["FUNCTION", "STATS"]).expect("a reply") else { return false };
    let Some(Value::Array(running)) = stats.get(1) else { return false };
    matches!(running.last(), Some(Value::Int(duration_ms)) if *duration_ms > 0)
}

/// Scripts that would each take a worker forever, or all memory.
const HOSTILE: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end",
    "local function f(n) return f(n + 1) + 1 end return f(1)",
    "return ('x'):rep(1e12)",
    "return string.find(('a'):rep(100000), ('a*'):rep(30) .. 'b')",
    "local t = {} t[1] = t t[2] = t return cjson.encode(t)",
    "coroutine.wrap(function() while true do pcall(error) end end)()",
];

#[test]
fn hostile_scripts_delay_no_other_client() {
    let server = Server::start(&["--workers", "1"]);
    let mut other = server.connect();
    let mut killer = server.connect();
    for script in HOSTILE {
        let mut hostile = server.connect();
        // Pass no key, so that the script holds no shard, which another key might share.
        eval(&mut hostile, script, &["0"]);
        for i in 0..50 {
            other.call(&format!("SET other:{i} x"), "+OK\r\n");
        }
        // The script ends by an error of its own, or because it is killed. While it is on its way to a helper thread,
        // there is nothing to kill.
        let ended = AtomicBool::new(false);
        let line = std::thread::scope(|scope| {
            let (ended, killer) = (&ended, &mut killer);
            scope.spawn(move || {
                comes_true(|| {
                    killer.line_of("SCRIPT KILL", 0);
                    ended.load(Ordering::Relaxed)
                });
            });
            let line = hostile.line();
            ended.store(true, Ordering::Relaxed);
            line
        });
        assert!(line.starts_with('-'), "{script}: {line}");
        other.call("PING", "+PONG\r\n");
    }
}

#[test]
fn a_long_script_is_atomic_busy_and_killed_only_before_it_writes() {
    let server = Server::start(&["--workers", "1", "--busy-reply-threshold", "20"]);
    let (mut long, mut other) = (server.connect(), server.connect());
    // OBJECT makes the script hold the key's shard. A script that only uses records holds no shard.
    eval(&mut long, "redis.call('object', 'encoding', KEYS[1]) while true do end", &["1", "k"]);
    // Clients that need the key get BUSY after some time. All others are served.
    let busy = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    comes_true(|| {
        other.send(b"GET k\r\n");
        let line = other.line();
        assert!(line == busy || line == "$-1", "{line}");
        line == busy
    });
    let others = (0..100).filter(|i| {
        other.send(format!("SET elsewhere:{i} 1\r\n").as_bytes());
        other.line() == "+OK"
    });
    assert!(others.count() > 50, "those of other shards");
    let doctor = other.bulk("DIAG DOCTOR");
    assert!(doctor.contains("\"busy-script\"") && doctor.contains("Send SCRIPT KILL"), "{doctor}");
    assert!(other.bulk("INFO search").contains("search_keys_waiting:"), "INFO waits for no shard");
    other.call("FUNCTION KILL", &format!("{busy}\r\n"));
    other.call("SCRIPT KILL", "+OK\r\n");
    let ended = long.line();
    assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL... script: "), "{ended}");
    assert!(ended.ends_with(", on @user_script:1."), "{ended}");
    other.call("SCRIPT KILL", "-NOTBUSY No scripts in execution right now.\r\n");
    // A script that has written is not killed, and all its writes become visible together.
    // The kill may come before the first write or after the end, so try again.
    let unkillable = (0..50).any(|_| {
        other.call("FLUSHDB", "+OK\r\n");
        is_unkillable_after_it_wrote(&mut long, &mut other, busy)
    });
    assert!(unkillable, "SCRIPT KILL came in time in none of 50 runs");
}

/// Runs a script that writes, and tries to kill it. Returns true if the server refused to kill the script.
fn is_unkillable_after_it_wrote(long: &mut Client, other: &mut Client, busy: &str) -> bool {
    let script = "redis.call('object', 'encoding', KEYS[1]) for i = 1, 200000 do redis.call('incr', KEYS[1]) end return \
                  redis.call('get', KEYS[1])";
    eval(long, script, &["1", "n"]);
    let mut unkillable = false;
    loop {
        other.send(b"SCRIPT KILL\r\n");
        let line = other.line();
        if line == "+OK" {
            assert!(!unkillable, "a script that has written was killed");
            let ended = long.line();
            assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{ended}");
            other.call("EXISTS n", ":0\r\n");
            return false;
        }
        unkillable |= line.starts_with("-UNKILLABLE");
        other.send(b"GET n\r\n");
        let seen = other.line();
        if seen == "$6" {
            assert_eq!(other.line(), "200000");
            assert_eq!([long.line(), long.line()], ["$6", "200000"]);
            return unkillable;
        }
        assert!(seen == "$-1" || seen == busy, "{seen}");
    }
}

#[test]
fn a_long_reading_script_delays_nobody() {
    let server = Server::start(&["--workers", "1", "--busy-reply-threshold", "1"]);
    let (mut long, mut other) = (server.connect(), server.connect());
    other.call("SET k v", "+OK\r\n");
    eval(&mut long, "while redis.call('get', KEYS[1]) == redis.call('get', 'k') do end", &["1", "k"]);
    comes_true(|| runs_a_script(&server));
    for i in 0..1000 {
        other.call(&format!("SET k {i}"), "+OK\r\n");
        other.call("DBSIZE", ":1\r\n");
    }
    other.call("SCRIPT KILL", "+OK\r\n");
    let ended = long.line();
    assert!(ended.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{ended}");
}

#[test]
fn long_commands_get_busy_during_a_long_script() {
    let server = Server::start(&["--workers", "2", "--busy-reply-threshold", "200"]);
    let (mut long, mut killer) = (server.connect(), server.connect());
    killer.call("SET k v", "+OK\r\n");
    eval(&mut long, "redis.call('object', 'encoding', KEYS[1]) while true do end", &["1", "k"]);
    let many: Vec<String> = (0..5000).map(|i| format!("key:{i}")).collect();
    let values: Vec<String> = many.iter().map(|key| format!("{key} v")).collect();
    // The script holds its shard. A command that runs before the script is busy waits for the shard until the script
    // has ended.
    comes_true(|| runs_a_script(&server));
    // Some of these commands arrive before the script is busy, and some after. Each gets BUSY.
    let mut waiting: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let lines = [
        format!("DEL k {}", many.join(" ")),
        format!("MSETNX k v {}", values.join(" ")),
        format!("MGET {} k", many.join(" ")),
        "KEYS *".into(),
        "FLUSHALL".into(),
        "SORT k".into(),
        "LCS k other".into(),
        "FT._LIST".into(),
    ];
    for round in 0..2 {
        for (client, line) in waiting.iter_mut().zip(&lines) {
            client.send(&crate::harness::command(line));
        }
        for (client, line) in waiting.iter_mut().zip(&lines) {
            let reply = client.line();
            let name = line.split(' ').next();
            assert!(reply.starts_with("-BUSY Redis is busy running a script."), "{round} {name:?}: {reply}");
        }
    }
    // The keys of these two are known only while they run. The script had written something, which is undone.
    assert!(killer.line_of("SORT none BY k*", 0).starts_with("-BUSY "));
    eval(
        &mut killer,
        "redis.call('set', KEYS[1], 1) return redis.call('object', 'encoding', 'k')",
        &["1", "undone"],
    );
    assert!(killer.line().starts_with("-BUSY "));
    killer.call("EXISTS undone", ":0\r\n");
    killer.call("SCRIPT KILL", "+OK\r\n");
    assert!(long.line().starts_with("-ERR Script killed"));
    killer.call("GET k", "$1\r\nv\r\n");
    assert_eq!(waiting[0].line_of(&lines[0], 0), ":1");
}

/// The only worker serves everybody else, whatever the others ask for. Only SHUTDOWN NOSAVE ends a script that has
/// written, and nothing of the script is in the append-only file.
#[test]
fn a_busy_script_that_has_written_stops_nobody_else_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a plain path");
    let options =
        ["--workers", "1", "--busy-reply-threshold", "20", "--dir", dir, "--enable-debug-command", "yes"];
    let files = ["--appendonly", "yes", "--save", ""];
    let mut server = Server::start(&[&options[..], &files[..]].concat());
    let (mut long, mut queued) = (server.connect(), server.connect());
    queued.call("SET before 1", "+OK\r\n");
    queued.call("MULTI", "+OK\r\n");
    queued.call("GET k", "+QUEUED\r\n");
    eval(
        &mut long,
        "redis.call('dbsize') while true do redis.call('incr', KEYS[1]) redis.call('get', 'undeclared') end",
        &["1", "k"],
    );
    let mut other = server.connect();
    comes_true(|| {
        other.send(b"GET k\r\n");
        other.line().starts_with("-BUSY")
    });
    for line in [
        "WATCH k",
        "INFO",
        "INFO keyspace",
        "INFO keysizes",
        "MEMORY STATS",
        "MEMORY USAGE k",
        "DEBUG OBJECT k",
        "DEBUG DIGEST",
        "DEBUG RELOAD",
        "SAVE",
        "DBSIZE",
        "KEYS *",
        "FLUSHALL",
        "SWAPDB 0 1",
        "DIAG MEMORY",
        "BLPOP k 1",
        "MIGRATE 127.0.0.1 1 k 0 1",
        "CONFIG SET appendonly no",
        "SHUTDOWN",
        "SHUTDOWN SAVE",
    ] {
        let mut client = server.connect();
        client.send(&crate::harness::command(line));
        let reply = client.line();
        assert!(reply.starts_with("-BUSY Redis is busy running a script."), "{line}: {reply}");
        other.call("PING", "+PONG\r\n");
    }
    let aborted = "-EXECABORT Transaction discarded because of: BUSY Redis is busy";
    queued.send(b"EXEC\r\n");
    let reply = queued.line();
    assert!(reply.starts_with(aborted), "{reply}");
    // These run on the worker, because of the commands about the connection and the server.
    for commands in [&["EVAL 'return 1' 0", "PING"][..], &["INFO"], &["GET k", "PING"]] {
        queued.call("MULTI", "+OK\r\n");
        commands.iter().for_each(|command| queued.call(command, "+QUEUED\r\n"));
        queued.send(b"EXEC\r\n");
        let reply = queued.line();
        assert!(reply.starts_with(aborted), "{commands:?}: {reply}");
        other.call("PING", "+PONG\r\n");
    }
    other.send(b"SCRIPT KILL\r\n");
    assert!(other.line().starts_with("-UNKILLABLE"));
    other.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(server.end().success());
    let again = Server::start(&[&options[..], &files[..]].concat());
    let mut client = again.connect();
    comes_true(|| client.line_of("EXISTS before", 0) == ":1");
    client.call("EXISTS k", ":0\r\n");
}

/// A busy script keeps the save of SIGTERM from beginning. Others write meanwhile, and SHUTDOWN NOSAVE ends the server
/// without the save.
#[test]
fn sigterm_beside_a_busy_script_lets_others_write_and_shutdown_nosave_ends_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a plain path");
    let options = ["--busy-reply-threshold", "20", "--dir", dir, "--save", "3600 1"];
    let mut server = Server::start(&options);
    let (mut long, mut other, mut last) = (server.connect(), server.connect(), server.connect());
    // The destination of a waiting command is the script's key.
    let mut waiting = server.connect();
    waiting.send(b"BLMOVE source k LEFT LEFT 0\r\n");
    comes_true(|| other.bulk("INFO clients").contains("blocked_clients:1"));
    let script = "redis.call('object', 'encoding', KEYS[1]) redis.call('set', KEYS[1], 1) while true do end";
    eval(&mut long, script, &["1", "k"]);
    comes_true(|| other.line_of("GET k", 0).starts_with("-BUSY"));
    other.call("RPUSH source x", ":1\r\n");
    server.signal(rustix::process::Signal::TERM);
    comes_true(|| server.folder.log_text().contains("SIGTERM: saving"));
    // Some of these keys may lie in the script's shard.
    let written = (0..20).filter(|i| other.line_of(&format!("SET other:{i} x"), 0) == "+OK");
    assert!(written.count() > 10);
    last.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(server.end().success());
    assert!(!folder.path().join("dump.rdb").exists(), "nothing is saved");
    let reply = waiting.try_line();
    assert!(reply.as_ref().is_none_or(|line| !line.starts_with("-BUSY")), "{reply:?}");
}

#[test]
fn a_transaction_with_messages_and_a_long_script_runs_whole() {
    for workers in ["1", "2"] {
        let server = Server::start(&["--workers", workers]);
        let (mut client, mut subscriber) = (server.connect(), server.connect());
        subscriber.call("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        client.call("MULTI", "+OK\r\n");
        client.call("PUBLISH c first", "+QUEUED\r\n");
        let script = "for i = 1, 100000 do redis.call('incr', KEYS[1]) end redis.call('publish', 'c', 'second') return \
                      redis.call('get', KEYS[1])";
        eval(&mut client, script, &["1", "n"]);
        assert_eq!(client.line(), "+QUEUED");
        for line in ["PING", "ECHO hi", "SPUBLISH c x", "PUBLISH c last", "GET n"] {
            client.call(line, "+QUEUED\r\n");
        }
        let replies = "*7\r\n:1\r\n$6\r\n100000\r\n+PONG\r\n$2\r\nhi\r\n:0\r\n:1\r\n$6\r\n100000\r\n";
        client.call("EXEC", replies);
        for text in ["first", "second", "last"] {
            let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{text}\r\n", text.len());
            subscriber.expect(message.as_bytes());
        }
    }
}

#[test]
fn a_restarted_script_has_run_once() {
    let server = Server::start(&["--workers", "2"]);
    let mut client = server.connect();
    // The script uses an undeclared key after a write.
    for i in 1..=5 {
        eval(
            &mut client,
            "redis.call('incr', KEYS[1]) redis.call('rpush', KEYS[1] .. ':list', 'x') return redis.call('llen', KEYS[1] .. \
             ':list')",
            &["1", "counter"],
        );
        assert_eq!(client.line(), format!(":{i}"));
    }
    client.call("GET counter", "$1\r\n5\r\n");
    // After a write, the script becomes too long for a worker, in all possible ways.
    for (i, tail) in [
        "for i = 1, 3000000 do end",
        "for i = 1, 20000 do redis.call('get', KEYS[1]) end",
        "redis.call('keys', '*')",
        "local s = ('x'):rep(5000000)",
    ]
    .iter()
    .enumerate()
    {
        let script = format!(
            "local n = redis.call('incr', KEYS[1]) redis.call('hset', KEYS[2], 'f', n) {tail} return n"
        );
        eval(&mut client, &script, &["2", "long", "hash"]);
        assert_eq!(client.line(), format!(":{}", i + 1), "{tail}");
        client.call("HGET hash f", &format!("$1\r\n{}\r\n", i + 1));
    }
    // Undoing a script also restores expiries and types.
    client.call("SET e 1 PX 1000000", "+OK\r\n");
    eval(
        &mut client,
        "local ttl = redis.call('pttl', KEYS[1]) redis.call('set', KEYS[1], 'other') for i = 1, 3000000 do end return ttl > 0",
        &["1", "e"],
    );
    assert_eq!(client.line(), ":1");
}

#[test]
fn an_endless_script_ends_with_its_client() {
    let server = Server::start(&["--workers", "1"]);
    let mut other = server.connect();
    let mut gone = server.connect();
    eval(&mut gone, "while true do end", &["0"]);
    comes_true(|| runs_a_script(&server));
    drop(gone);
    comes_true(|| {
        other.send(b"SCRIPT KILL\r\n");
        other.line().starts_with("-NOTBUSY")
    });
}

#[test]
fn rights_are_equal_inside_and_outside_scripts() {
    let server = Server::start(&["--workers", "1"]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER u on nopass ~mine:* +eval +get +set +multi +exec", "+OK\r\n");
    let mut user = server.connect();
    user.call("AUTH u x", "+OK\r\n");
    eval(&mut user, "return redis.call('set', 'mine:a', 1)", &["0"]);
    assert_eq!(user.line(), "+OK");
    for (script, text) in [
        ("return redis.call('set', 'other', 1)", "can't access at least one of the keys"),
        ("return redis.call('del', 'mine:a')", "can't run this command or subcommand"),
        ("return redis.pcall('del', 'mine:a')", "can't run this command or subcommand"),
    ] {
        eval(&mut user, script, &["0"]);
        let line = user.line();
        assert!(line.contains(text), "{line}");
    }
    eval(
        &mut user,
        "return {redis.acl_check_cmd('set', 'mine:a', 1), redis.acl_check_cmd('del', 'mine:a')}",
        &["0"],
    );
    user.expect(b"*2\r\n:1\r\n$-1\r\n");
    eval(&mut user, "return 1", &["1", "other"]);
    assert!(user.line().starts_with("-NOPERM"));
}

#[test]
fn a_script_that_runs_again_counts_its_changes_once() {
    let server = Server::start(&["--save", ""]);
    let mut client = server.connect();
    let mut after = |script: &str, reply: &[u8]| {
        eval(&mut client, script, &["1", "a"]);
        client.expect(reply);
        let info = client.bulk("INFO persistence");
        let changes = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        changes.expect("INFO has it").trim().to_owned()
    };
    let undeclared = "redis.call('set', KEYS[1], '1') return redis.call('set', 'b', '2')";
    assert_eq!(after(undeclared, b"+OK\r\n"), "2");
    let long = "redis.call('set', KEYS[1], '3') for i = 1, 1000000 do end return redis.call('del', KEYS[1])";
    assert_eq!(after(long, b":1\r\n"), "4");
}
