//! Strand as a replica: of redis-server, of Strand, in a chain, and under Redis Sentinel.

use crate::aof::{persist_all, shut_down};
use crate::harness::{Server, comes_true, generator};
use crate::replicas::{await_online, field};
use crate::saving::{Link, call, folder, link, start};
use std::time::{SystemTime, UNIX_EPOCH};
use strand_testkit::process::{Server as Peer, free_port};
use strand_wire::client::Value;

/// Random commands of a client.
const COMMANDS: usize = 6_000;

pub fn follow(replica: &mut Link, port: u16) {
    assert_eq!(call(replica, &["REPLICAOF", "127.0.0.1", &port.to_string()]), "OK");
    comes_true(|| field(replica, "master_link_status") == "up");
}

/// True when the server's reply has this text. False also when the server closes the connection.
fn replies(server: &Server, request: &[&str], text: &str) -> bool {
    let reply = link(server).call(request);
    reply.is_ok_and(|reply| crate::saving::text(reply).contains(text))
}

pub fn write(client: &mut Link, seed: u64) {
    assert!(write_while_primary(client, seed), "the server is a replica, or closes the connection");
}

/// Does what [`write`] does, until the server is a replica. False when it became one.
pub fn write_while_primary(client: &mut Link, seed: u64) -> bool {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64;
    let mut generator = generator(seed, now_s);
    (0..COMMANDS).all(|_| {
        let reply = client.call(&generator.command());
        reply.is_ok_and(|reply| !matches!(reply, Value::Error(text) if text.starts_with(b"READONLY")))
    })
}

/// The replica has everything that was written to the primary.
pub fn check_equal(primary: &mut Link, replica: &mut Link) {
    persist_all(primary);
    assert_eq!(call(primary, &["WAIT", "1", "60000"]), "1");
    let digest = call(primary, &["DEBUG", "DIGEST"]);
    assert_eq!(call(replica, &["DEBUG", "DIGEST"]), digest);
}

#[test]
fn redis_server_is_followed_with_equal_data_and_its_stream_is_kept_in_the_append_only_file() {
    // The snapshot's end is known by its length, or by a mark.
    for (seed, diskless) in [(1, "no"), (2, "yes")] {
        let options = [
            "--repl-diskless-sync",
            diskless,
            "--repl-diskless-sync-delay",
            "0",
            "--repl-backlog-size",
            "64mb",
        ];
        let redis = Peer::redis(&options, None).expect("redis-server is installed");
        let mut primary = redis.connect().expect("it listens");
        let folder = folder();
        let server = start(folder.path(), &["--appendonly", "yes"]);
        let mut replica = link(&server);
        call(&mut replica, &["SET", "old", "data"]);
        write(&mut primary, seed);
        follow(&mut replica, redis.address.port());
        assert_eq!(call(&mut replica, &["EXISTS", "old"]), "0");
        write(&mut primary, seed + 10);
        check_equal(&mut primary, &mut replica);
        // After interruptions the stream continues where it was.
        for round in 0..3 {
            await_online(&mut primary, 1);
            assert_eq!(call(&mut primary, &["CLIENT", "KILL", "TYPE", "replica"]), "1");
            write(&mut primary, seed + 20 + round);
        }
        comes_true(|| field(&mut replica, "master_link_status") == "up");
        check_equal(&mut primary, &mut replica);
        assert_eq!(field(&mut primary, "sync_full"), "1");
        // Messages arrive, too.
        let mut subscriber = link(&server);
        call(&mut subscriber, &["SUBSCRIBE", "news"]);
        call(&mut primary, &["PUBLISH", "news", "hello"]);
        assert!(
            format!("{:?}", subscriber.reply().expect("a message")).contains("[104, 101, 108, 108, 111]")
        );
        // What the replica has is on its disk.
        assert_eq!(call(&mut replica, &["REPLICAOF", "NO", "ONE"]), "OK");
        let digest = call(&mut replica, &["DEBUG", "DIGEST"]);
        shut_down(server);
        let again = start(folder.path(), &["--appendonly", "yes"]);
        assert_eq!(call(&mut link(&again), &["DEBUG", "DIGEST"]), digest, "diskless {diskless}");
    }
}

#[test]
fn a_chain_has_equal_data_and_what_only_strand_has() {
    let folders = [folder(), folder(), folder()];
    let servers: Vec<Server> =
        folders.iter().map(|folder| start(folder.path(), &["--masterauth", "secret"])).collect();
    let mut links: Vec<Link> = servers.iter().map(link).collect();
    for link in &mut links {
        assert_eq!(call(link, &["CONFIG", "SET", "requirepass", "secret"]), "OK");
        assert_eq!(call(link, &["AUTH", "secret"]), "OK");
    }
    let [first, middle, last] = &mut links[..] else { panic!("three") };
    call(first, &["FT.CREATE", "texts", "PREFIX", "1", "doc:", "SCHEMA", "body", "TEXT"]);
    call(first, &["HSET", "doc:1", "body", "before"]);
    follow(middle, servers[0].address.port());
    follow(last, servers[1].address.port());
    write(first, 5);
    call(first, &["HSET", "doc:2", "body", "after"]);
    call(first, &["HSET", "fields", "a", "1", "b", "2"]);
    call(first, &["HPEXPIRE", "fields", "50", "FIELDS", "1", "a"]);
    comes_true(|| call(first, &["HGETALL", "fields"]).matches("Bulk").count() == 2);
    check_equal(first, middle);
    check_equal_of_middle(middle, last);
    // A replica that follows the end of the chain alone is a primary again.
    assert_eq!(call(middle, &["REPLICAOF", "NO", "ONE"]), "OK");
    call(middle, &["SET", "own", "write"]);
    assert_eq!(call(middle, &["WAIT", "1", "60000"]), "1");
    assert_eq!(call(last, &["GET", "own"]), "write");
    assert_eq!(call(first, &["EXISTS", "own"]), "0");
    // A wrong password is said in the log, and the data stays.
    let wrong = start(folder().path(), &["--masterauth", "wrong"]);
    let mut client = link(&wrong);
    call(&mut client, &["SET", "k", "v"]);
    call(&mut client, &["REPLICAOF", "127.0.0.1", &servers[0].address.port().to_string()]);
    comes_true(|| wrong.folder.log_text().contains("Unable to AUTH to MASTER: -WRONGPASS"));
    assert_eq!(call(&mut client, &["GET", "k"]), "v");
}

fn check_equal_of_middle(middle: &mut Link, last: &mut Link) {
    let digest = call(middle, &["DEBUG", "DIGEST"]);
    comes_true(|| call(last, &["DEBUG", "DIGEST"]) == digest);
}

#[test]
fn a_configured_replica_follows_at_its_start_and_its_role_is_written_to_the_file() {
    let redis = Peer::redis(&[], None).expect("redis-server is installed");
    let mut primary = redis.connect().expect("it listens");
    call(&mut primary, &["SET", "k", "v"]);
    let folder = folder();
    let file = folder.path().join("replica.conf");
    let port = redis.address.port();
    std::fs::write(&file, format!("replicaof 127.0.0.1 {port}\nsave \"\"\n")).expect("a file");
    let path = file.to_str().expect("a plain path");
    let server = Server::start_as(&[path, "--port", "0", "--http-port", "0", "--bind", "127.0.0.1"], "");
    let mut replica = link(&server);
    comes_true(|| call(&mut replica, &["GET", "k"]) == "v");
    assert_eq!(call(&mut replica, &["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(call(&mut replica, &["CONFIG", "REWRITE"]), "OK");
    let text = std::fs::read_to_string(&file).expect("there");
    assert!(!text.contains(&port.to_string()) && !text.contains("replicaof"), "{text}");
    follow(&mut replica, port);
    assert_eq!(call(&mut replica, &["CONFIG", "REWRITE"]), "OK");
    let text = std::fs::read_to_string(&file).expect("there");
    assert!(text.contains(&format!("replicaof 127.0.0.1 {port}")), "{text}");
}

/// Sentinel finds that the primary is gone, and makes the replica a primary. The old primary comes back as a replica.
#[test]
fn sentinel_fails_over_between_two_strands() {
    let folders = [folder(), folder()];
    let mut servers: Vec<Server> =
        folders.iter().map(|folder| start(folder.path(), &["--appendonly", "yes"])).collect();
    let ports: Vec<u16> = servers.iter().map(|server| server.address.port()).collect();
    let mut replica = link(&servers[1]);
    follow(&mut replica, ports[0]);
    let mut primary = link(&servers[0]);
    await_online(&mut primary, 1);
    call(&mut primary, &["SET", "k", "v"]);
    assert_eq!(call(&mut primary, &["WAIT", "1", "60000"]), "1");

    let at = folder();
    let port = free_port().expect("loopback has ports");
    let file = at.path().join("sentinel.conf");
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 2000\n\
         sentinel failover-timeout main 5000\n",
        at.path().display(),
        ports[0]
    );
    std::fs::write(&file, text).expect("a file");
    let log = std::fs::File::create(at.path().join("log")).expect("a file");
    let mut sentinel = std::process::Command::new("redis-server")
        .arg(&file)
        .arg("--sentinel")
        .stdout(log)
        .spawn()
        .expect("redis-server is installed");
    let log = || std::fs::read_to_string(at.path().join("log")).unwrap_or_default();
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        comes_true(|| log().contains(&format!("+slave slave 127.0.0.1:{}", ports[1])));
        drop(primary);
        drop(servers.remove(0));
        comes_true(|| {
            log().contains(&format!("+switch-master main 127.0.0.1 {} 127.0.0.1 {}", ports[0], ports[1]))
        });
        // Sentinel has closed the connections of clients, so that they look for the new primary.
        comes_true(|| replies(&servers[0], &["SET", "k", "w"], "OK"));
        // The old primary starts again, and Sentinel makes it a replica.
        let dir = folders[0].path().to_str().expect("a plain path");
        let old = Server::start_as(
            &[
                "--port",
                &ports[0].to_string(),
                "--dir",
                dir,
                "--appendonly",
                "yes",
                "--save",
                "",
                "--http-port",
                "0",
                "--bind",
                "127.0.0.1",
            ],
            "",
        );
        comes_true(|| replies(&old, &["GET", "k"], "w"));
        // Sentinel closes the connections of clients when it has sent REPLICAOF.
        comes_true(|| replies(&old, &["SET", "k", "x"], "READONLY"));
    }));
    let _ = sentinel.kill();
    let _ = sentinel.wait();
    if let Err(panic) = seen {
        eprintln!("Sentinel's log: {}", log());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_replica_of_a_replica_of_redis_server_selects_the_database_of_the_stream() {
    let top = Peer::redis(&[], None).expect("redis-server is installed");
    let middle = Peer::redis(&[], None).expect("redis-server is installed");
    let (mut first, mut second) = (top.connect().expect("it listens"), middle.connect().expect("it listens"));
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut replica = link(&server);
    follow(&mut second, top.address.port());
    call(&mut first, &["SELECT", "5"]);
    call(&mut first, &["SET", "before", "1"]);
    // Without this, the middle server may not have the command before the snapshot.
    assert_eq!(call(&mut first, &["WAIT", "1", "60000"]), "1");
    follow(&mut replica, middle.address.port());
    // The stream does not select a database again.
    call(&mut first, &["SET", "after", "2"]);
    call(&mut replica, &["SELECT", "5"]);
    comes_true(|| call(&mut replica, &["GET", "after"]) == "2");
    assert_eq!(call(&mut replica, &["DBSIZE"]), "2");
}

#[test]
fn clients_of_a_new_replica_do_not_wait_write_or_read_stale_data() {
    let redis = Peer::redis(&[], None).expect("redis-server is installed");
    let mut primary = redis.connect().expect("it listens");
    let folder = folder();
    let server = start(folder.path(), &[]);
    let (mut replica, mut waiting) = (link(&server), link(&server));
    waiting.send(&["BLPOP", "list", "0"]).expect("it is sent");
    comes_true(|| call(&mut replica, &["INFO", "clients"]).contains("blocked_clients:1"));
    follow(&mut replica, redis.address.port());
    let ended = format!("{:?}", waiting.reply());
    let text: Vec<u8> = b"UNBLOCKED force unblock from blocking operation".to_vec();
    assert!(ended.contains(format!("{text:?}").trim_matches(['[', ']'])), "{ended}");
    assert!(waiting.call(&["PING"]).is_err(), "the connection is closed");
    call(&mut primary, &["RPUSH", "list", "x", "y"]);
    check_equal(&mut primary, &mut replica);
    // No server follows itself, because its data is not its primary's.
    let own = server.address.port();
    assert_eq!(call(&mut replica, &["REPLICAOF", "127.0.0.1", &own.to_string()]), "OK");
    comes_true(|| server.folder.log_text().contains("-NOMASTERLINK"));
    assert_eq!(call(&mut replica, &["CONFIG", "SET", "replica-serve-stale-data", "no"]), "OK");
    for stale in [&["GET", "list"][..], &["EVAL", "return 1", "0"], &["LRANGE", "list", "0", "-1"]] {
        let refused = call(&mut replica, stale);
        assert!(refused.contains("MASTERDOWN"), "{stale:?}: {refused}");
    }
    assert_eq!(call(&mut replica, &["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(call(&mut replica, &["LLEN", "list"]), "2");
}

/// As in redis-server, the connection to the primary is a client, and its commands count.
#[test]
fn the_primary_is_a_client_of_its_replica() {
    for primary_is_redis in [true, false] {
        let redis =
            Peer::redis(&["--repl-diskless-sync-delay", "0"], None).expect("redis-server is installed");
        let folders = [folder(), folder()];
        let strand = start(folders[0].path(), &[]);
        let (mut primary, port) = match primary_is_redis {
            true => (redis.connect().expect("it listens"), redis.address.port()),
            false => (link(&strand), strand.address.port()),
        };
        call(&mut primary, &["CONFIG", "SET", "repl-ping-replica-period", "3600"]);
        let server = start(folders[1].path(), &[]);
        let mut replica = link(&server);
        follow(&mut replica, port);
        let listed = call(&mut replica, &["CLIENT", "LIST", "TYPE", "master"]);
        let line = format!(" addr=127.0.0.1:{port} laddr=127.0.0.1:");
        assert!(listed.contains(&line) && listed.contains(" flags=M "), "{listed}");
        assert!(listed.contains(" user=(superuser) ") && listed.lines().count() == 1, "{listed}");
        assert_eq!(field(&mut replica, "connected_clients"), "2");
        for request in
            [&["SET", "k", "0"][..], &["INCR", "k"], &["MULTI"], &["INCR", "k"], &["INCR", "k"], &["EXEC"]]
        {
            call(&mut primary, request);
        }
        comes_true(|| call(&mut replica, &["GET", "k"]) == "3");
        let stats = call(&mut replica, &["INFO", "commandstats"]);
        for (command, calls) in [("set", 1), ("incr", 3), ("multi", 1), ("exec", 1)] {
            assert!(stats.contains(&format!("cmdstat_{command}:calls={calls},")), "{command}: {stats}");
        }
        // CLIENT PAUSE stops the primary's commands. They arrive meanwhile.
        let before = field(&mut replica, "slave_repl_offset");
        assert_eq!(call(&mut replica, &["CLIENT", "PAUSE", "60000", "WRITE"]), "OK");
        call(&mut primary, &["INCR", "k"]);
        let end = field(&mut primary, "master_repl_offset");
        comes_true(|| field(&mut replica, "slave_read_repl_offset") == end);
        assert_eq!(
            (call(&mut replica, &["GET", "k"]), field(&mut replica, "slave_repl_offset")),
            ("3".into(), before)
        );
        assert_eq!(call(&mut replica, &["CLIENT", "UNPAUSE"]), "OK");
        comes_true(|| call(&mut replica, &["GET", "k"]) == "4");
        // A killed connection comes back to where it was.
        let syncs = field(&mut primary, "sync_full");
        for kill in
            [&["CLIENT", "KILL", "TYPE", "master"][..], &["CLIENT", "KILL", &format!("127.0.0.1:{port}")]]
        {
            let id = |replica: &mut Link| {
                let listed = call(replica, &["CLIENT", "LIST", "TYPE", "master"]);
                listed.split(' ').next().unwrap_or_default().to_string()
            };
            let before = id(&mut replica);
            assert!(matches!(&*call(&mut replica, kill), "1" | "OK"), "{kill:?}");
            comes_true(|| ![&before, ""].contains(&&*id(&mut replica)));
            comes_true(|| field(&mut replica, "master_link_status") == "up");
        }
        call(&mut primary, &["INCR", "k"]);
        comes_true(|| call(&mut replica, &["GET", "k"]) == "5");
        assert_eq!(field(&mut primary, "sync_full"), syncs);
        assert_eq!(call(&mut replica, &["REPLICAOF", "NO", "ONE"]), "OK");
        comes_true(|| call(&mut replica, &["CLIENT", "LIST", "TYPE", "master"]).is_empty());
    }
}

/// MONITOR on a replica shows what the primary sends, as in redis-server.
#[test]
fn monitor_shows_the_stream_of_the_primary() {
    let redis =
        || Peer::redis(&["--repl-diskless-sync-delay", "0"], None).expect("redis-server is installed");
    let (primary, other) = (redis(), redis());
    let folder = folder();
    let server = start(folder.path(), &[]);
    let port = primary.address.port();
    let mut client = primary.connect().expect("it listens");
    call(&mut client, &["CONFIG", "SET", "repl-ping-replica-period", "3600"]);
    let mut replicas = [link(&server), other.connect().expect("it listens")];
    replicas.iter_mut().for_each(|replica| follow(replica, port));
    // redis-server sends a replica the stream after its first acknowledgement.
    comes_true(|| call(&mut client, &["INFO", "replication"]).matches("state=online").count() == 2);
    let mut watchers = [link(&server), other.connect().expect("it listens")];
    for watcher in &mut watchers {
        assert_eq!(call(watcher, &["MONITOR"]), "OK");
    }
    for request in [
        &["SET", "k", "v"][..],
        &["SELECT", "3"],
        &["MULTI"],
        &["SET", "k", "0"],
        &["INCR", "k"],
        &["SELECT", "4"],
        &["SET", "k", "1"],
        &["EXEC"],
        &["EVAL", "redis.call('SET', 'a', 1) redis.call('INCR', 'a') return 1", "0"],
        &["PUBLISH", "channel", "message"],
        &["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)"],
        &["WAIT", "2", "0"],
        &["SET", "last", ""],
    ] {
        call(&mut client, request);
    }
    let [ours, theirs] = watchers.map(|mut watcher| {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains("last")) {
            let line = crate::saving::text(watcher.reply().expect("a line"));
            let (time, rest) = line.split_once(' ').expect("a time");
            assert!(time.parse::<f64>().is_ok_and(|s| s > 1.6e9), "{line}");
            // Clients of the test's own links are shown, too.
            if rest.contains(&format!("127.0.0.1:{port}]")) {
                lines.push(rest.to_owned());
            }
        }
        lines
    });
    assert_eq!(ours, theirs);
    assert!(ours.len() > 10 && ours.iter().any(|line| line.starts_with("[4 ")), "{ours:?}");
}

/// A field that is due is missing for the clients of a replica before its primary removes the field.
#[test]
fn due_fields_are_hidden_until_the_primary_removes_them() {
    let folders = [folder(), folder()];
    let debug = ["--enable-debug-command", "yes"];
    let servers = [0, 1].map(|at: usize| start(folders[at].path(), &debug));
    let [mut primary, mut replica] = servers.each_ref().map(link);
    follow(&mut replica, servers[0].address.port());
    assert_eq!(call(&mut primary, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), "OK");
    call(&mut primary, &["HSET", "hash", "a", "1", "b", "2", "c", "3"]);
    call(&mut primary, &["HPEXPIRE", "hash", "50", "FIELDS", "2", "a", "b"]);
    call(&mut primary, &["HSET", "all", "a", "1"]);
    call(&mut primary, &["HPEXPIRE", "all", "50", "FIELDS", "1", "a"]);
    assert_eq!(call(&mut primary, &["WAIT", "1", "60000"]), "1");
    comes_true(|| {
        call(&mut replica, &["HLEN", "hash"]) == "1" && call(&mut replica, &["EXISTS", "all"]) == "0"
    });
    assert_eq!(call(&mut replica, &["HGET", "hash", "a"]), "Null");
    assert_eq!(call(&mut replica, &["HGET", "hash", "c"]), "3");
    // The primary's own look removes the fields at both servers, and a field may come back.
    assert_eq!(call(&mut primary, &["HINCRBY", "hash", "a", "5"]), "5");
    assert_eq!(call(&mut primary, &["HLEN", "all"]), "0");
    comes_true(|| call(&mut replica, &["DBSIZE"]) == "1");
    comes_true(|| call(&mut replica, &["HGET", "hash", "a"]) == "5");
    check_equal(&mut primary, &mut replica);
}

/// The primary keeps a field while its replica is behind and hides the field. The snapshot of the replica has the field.
#[test]
fn a_snapshot_of_a_replica_has_the_fields_that_are_hidden_from_clients() {
    let folders = [folder(), folder(), folder()];
    let servers = [0, 1, 2].map(|at: usize| start(folders[at].path(), &[]));
    let [mut primary, mut replica, mut below] = servers.each_ref().map(link);
    follow(&mut replica, servers[0].address.port());
    call(&mut primary, &["HSET", "hash", "a", "1", "b", "2"]);
    call(&mut primary, &["RPUSH", "list", "1", "2"]);
    for (key, weight) in [("w1", "2"), ("w2", "1")] {
        call(&mut primary, &["HSET", key, "w", weight, "other", "1"]);
        call(&mut primary, &["HPEXPIRE", key, "1500", "FIELDS", "1", "w"]);
    }
    call(&mut primary, &["HPEXPIRE", "hash", "1500", "FIELDS", "1", "a"]);
    assert_eq!(call(&mut primary, &["WAIT", "1", "60000"]), "1");
    // The replica is behind from now on.
    assert_eq!(call(&mut replica, &["CLIENT", "PAUSE", "60000", "WRITE"]), "OK");
    for key in ["hash", "w1", "w2"] {
        let field = if key == "hash" { "a" } else { "w" };
        call(&mut primary, &["HPERSIST", key, "FIELDS", "1", field]);
    }
    // The replica's own sort must see the weights that its clients do not see.
    assert_eq!(call(&mut primary, &["SORT", "list", "BY", "w*->w", "STORE", "sorted"]), "2");
    assert_eq!(call(&mut primary, &["HLEN", "hash"]), "2");
    comes_true(|| ["hash", "w1", "w2"].iter().all(|key| call(&mut replica, &["HLEN", key]) == "1"));
    follow(&mut below, servers[1].address.port());
    assert_eq!(call(&mut replica, &["CLIENT", "UNPAUSE"]), "OK");
    for link in [&mut replica, &mut below] {
        comes_true(|| call(link, &["EXISTS", "sorted"]) == "1" && call(link, &["HLEN", "hash"]) == "2");
    }
    check_equal(&mut primary, &mut replica);
    check_equal_of_middle(&mut replica, &mut below);
}

/// As in redis-server, what clients write to a replica stays there, and expires there.
#[test]
fn a_replica_may_accept_writes_of_its_own() {
    let folders = [folder(), folder(), folder()];
    let debug = ["--enable-debug-command", "yes"];
    let servers = [0, 1, 2].map(|at: usize| start(folders[at].path(), &debug));
    let [mut primary, mut replica, mut below] = servers.each_ref().map(link);
    follow(&mut replica, servers[0].address.port());
    follow(&mut below, servers[1].address.port());
    assert_eq!(
        call(&mut replica, &["SET", "own", "1"]),
        "READONLY You can't write against a read only replica."
    );
    assert_eq!(call(&mut replica, &["CONFIG", "SET", "replica-read-only", "no"]), "OK");
    assert_eq!(field(&mut replica, "slave_read_only"), "0");
    // The primary does not remove this key, so the replica keeps it.
    assert_eq!(call(&mut primary, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]), "OK");
    assert_eq!(call(&mut primary, &["SET", "theirs", "1", "PX", "50"]), "OK");
    assert_eq!(call(&mut primary, &["SET", "both", "1"]), "OK");
    comes_true(|| call(&mut replica, &["GET", "both"]) == "1");
    for (request, reply) in [
        (&["SET", "own", "1", "PX", "1"][..], "OK"),
        (&["INCR", "both"], "2"),
        (&["EXPIRE", "both", "1000"], "1"),
        (&["EVAL", "return redis.call('SET', 'script', '1', 'PX', 1)", "0"], "OK"),
        (&["RPUSH", "list", "a"], "1"),
        (&["MULTI"], "OK"),
        (&["HSET", "hash", "f", "v"], "QUEUED"),
        (&["PEXPIRE", "hash", "1"], "QUEUED"),
    ] {
        assert_eq!(call(&mut replica, request), reply, "{request:?}");
    }
    call(&mut replica, &["EXEC"]);
    // `theirs`, `both` and `list` stay. `theirs` expires after 50 ms, which may be later than the other keys.
    comes_true(|| {
        call(&mut replica, &["DBSIZE"]) == "3"
            && call(&mut replica, &["EXISTS", "theirs", "both", "list"]) == "2"
    });
    // An expired key of the primary is missing for a write, too.
    assert_eq!(call(&mut replica, &["INCR", "theirs"]), "1");
    assert_eq!(call(&mut replica, &["TTL", "theirs"]), "-1");
    assert_eq!(
        (call(&mut below, &["EXISTS", "list", "theirs"]), call(&mut below, &["GET", "both"])),
        ("0".into(), "1".into())
    );
    assert_eq!(call(&mut replica, &["LMOVE", "list", "list2", "LEFT", "LEFT"]), "a");
    assert_eq!(call(&mut replica, &["CONFIG", "SET", "replica-read-only", "yes"]), "OK");
    assert!(call(&mut replica, &["DEL", "both"]).starts_with("READONLY"));
    // The stream goes on.
    assert_eq!(call(&mut primary, &["SET", "both", "3"]), "OK");
    comes_true(|| call(&mut below, &["GET", "both"]) == "3" && call(&mut replica, &["TTL", "both"]) == "-1");
}

/// WAITAOF: a replica tells its primary up to where the stream is on its disk.
#[test]
fn a_replica_acknowledges_what_is_on_its_disk() {
    let folders = [folder(), folder()];
    let servers = [0, 1].map(|at: usize| start(folders[at].path(), &[]));
    let [mut primary, mut replica] = servers.each_ref().map(link);
    follow(&mut replica, servers[0].address.port());
    let at_replica = |primary: &mut Link, timeout_ms: &str| {
        call(primary, &["SET", "key", "value"]);
        primary.call(&["WAITAOF", "0", "1", timeout_ms]).expect("a reply")
    };
    // Without a file of its own, the replica has nothing on its disk.
    assert_eq!(at_replica(&mut primary, "300"), Value::Array(vec![Value::Int(0), Value::Int(0)]));
    for fsync in ["everysec", "always"] {
        call(&mut replica, &["CONFIG", "SET", "appendfsync", fsync]);
        call(&mut replica, &["CONFIG", "SET", "appendonly", "yes"]);
        assert_eq!(at_replica(&mut primary, "60000"), Value::Array(vec![Value::Int(0), Value::Int(1)]));
    }
}
