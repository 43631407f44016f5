//! redis-server as a replica of Strand: it gets all data and every change, on one stream and on several workers.

use crate::aof::{persist_all, shut_down, text};
use crate::harness::{Server, comes_true, generator};
use crate::saving::{Link, call, folder, link, start};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use strand_testkit::process::Server as Peer;
use strand_wire::client::Value;

/// Clients that write at the same time, and the commands of each.
const WRITERS: u64 = 3;
const COMMANDS: usize = 4_000;

/// Starts a redis-server that follows `primary`.
fn follower(primary: &Server) -> (Peer, Link) {
    let options = ["--replicaof", "127.0.0.1", &primary.address.port().to_string()].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let redis = Peer::redis(&options, None).expect("redis-server is installed");
    let link = redis.connect().expect("it listens");
    (redis, link)
}

/// A field of INFO.
pub fn field(link: &mut Link, field: &str) -> String {
    let all = call(link, &["INFO", "everything"]);
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {all}")).to_string()
}

pub fn await_online(client: &mut Link, replicas: usize) {
    let online = |client: &mut Link| {
        call(client, &["INFO", "replication"]).lines().filter(|line| line.contains("state=online")).count()
    };
    comes_true(|| online(client) == replicas);
}

/// All replicas have everything that was written, and equal data.
fn check_equal(client: &mut Link, followers: &mut [&mut Link]) {
    persist_all(client);
    let count = followers.len().to_string();
    assert_eq!(call(client, &["WAIT", &count, "60000"]), count);
    let digest = call(client, &["DEBUG", "DIGEST"]);
    for follower in followers {
        assert_eq!(call(follower, &["DEBUG", "DIGEST"]), digest);
    }
}

/// Random commands of several clients.
fn write(server: &Server, round: u64) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let mut client = link(server);
                let mut generator = generator(round * WRITERS + writer, now_s);
                for _ in 0..COMMANDS {
                    client.call(&generator.command()).expect("a reply");
                }
            });
        }
    });
}

#[test]
fn replicas_have_equal_data_under_load_after_interruptions_and_with_an_append_only_file() {
    let folder = folder();
    let server = start(folder.path(), &["--repl-backlog-size", "64mb"]);
    let mut client = link(&server);
    call(&mut client, &["DEBUG", "POPULATE", "20000", "key", "100"]);
    call(
        &mut client,
        &[
            "FUNCTION",
            "LOAD",
            "#!lua name=lib\nredis.register_function{function_name='f', \
        callback=function() return 7 end, flags={'no-writes'}}",
        ],
    );
    // The first replica comes before the writes, the second comes during them.
    let (_redis, mut first) = follower(&server);
    let (_other, mut second) = thread::scope(|scope| {
        let writes = scope.spawn(|| write(&server, 0));
        await_online(&mut client, 1);
        let other = follower(&server);
        writes.join().expect("the writers end");
        other
    });
    await_online(&mut client, 2);
    check_equal(&mut client, &mut [&mut first, &mut second]);
    assert_eq!(call(&mut second, &["FCALL_RO", "f", "0"]), "7");

    // Interruptions: the replicas come back and get what they lack.
    thread::scope(|scope| {
        scope.spawn(|| write(&server, 1));
        for round in 1..=3 {
            await_online(&mut client, 2);
            assert_eq!(call(&mut client, &["CLIENT", "KILL", "TYPE", "replica"]), "2");
            comes_true(|| field(&mut client, "sync_partial_ok") == (2 * round).to_string());
        }
    });
    check_equal(&mut client, &mut [&mut first, &mut second]);
    assert_eq!(field(&mut client, "sync_full"), "2");

    // The append-only file takes the journal, too, and is switched on and off meanwhile.
    thread::scope(|scope| {
        scope.spawn(|| write(&server, 2));
        for mode in ["yes", "no", "yes"] {
            assert_eq!(call(&mut client, &["CONFIG", "SET", "appendonly", mode]), "OK");
        }
    });
    check_equal(&mut client, &mut [&mut first, &mut second]);
    comes_true(|| field(&mut client, "aof_rewrite_in_progress") == "0");
    let digest = call(&mut client, &["DEBUG", "DIGEST"]);
    call(&mut client, &["SET", "last", "write"]);
    let last = call(&mut client, &["DEBUG", "DIGEST"]);
    assert_ne!(last, digest);

    // The end of the server waits for the replicas. The append-only file has all changes, and the commands that are only
    // for replicas change nothing.
    shut_down(server);
    comes_true(|| field(&mut first, "master_link_status") == "down");
    for follower in [&mut first, &mut second] {
        assert_eq!(call(follower, &["DEBUG", "DIGEST"]), last);
    }
    let server = start(folder.path(), &["--appendonly", "yes"]);
    assert_eq!(call(&mut link(&server), &["DEBUG", "DIGEST"]), last);
}

#[test]
fn clients_take_a_snapshot_and_show_the_stream() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    call(&mut client, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    let port = server.address.port().to_string();
    let path = folder.path().join("copy.rdb");
    // The client of Redis and that of Strand, from Strand and from redis-server with a length and with a mark.
    let redis = Peer::redis(&["--repl-diskless-sync-delay", "0"], None).expect("redis-server is installed");
    let mut other = redis.connect().expect("it listens");
    call(&mut other, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    let other_port = redis.address.port().to_string();
    let strand = env!("CARGO_BIN_EXE_strand");
    let clients = [
        ("redis-cli", None, &port),
        (strand, Some("cli"), &port),
        (strand, Some("cli"), &other_port),
        (strand, Some("cli"), &other_port),
    ];
    for (nth, (program, word, port)) in clients.iter().enumerate() {
        let diskless = if nth == 3 { "no" } else { "yes" };
        call(&mut other, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        let mut command = std::process::Command::new(program);
        let copied = command.args(*word).args(["-p", port, "--rdb"]).arg(&path).output();
        let copied = copied.expect("redis-cli is installed");
        assert!(copied.status.success(), "{copied:?}");
        let said = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(said.contains("Transfer finished with success"), "{said}");
        let check = std::process::Command::new("redis-check-rdb").arg(&path).output().expect("installed");
        let text = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(check.status.success() && text.contains("1000 keys read"), "{text}");
    }
    // The functions without the keys. redis-cli does not shorten a longer file.
    std::fs::remove_file(&path).expect("it is there");
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    for link in [&mut client, &mut other] {
        assert_eq!(call(link, &["FUNCTION", "LOAD", library]), "lib");
    }
    for (program, word, port) in &clients[..3] {
        let mut command = std::process::Command::new(program);
        let copied = command.args(*word).args(["-p", port, "--functions-rdb"]).arg(&path).output();
        assert!(copied.as_ref().is_ok_and(|copied| copied.status.success()), "{copied:?}");
        let copy = std::fs::read(&path).expect("it was written");
        assert!(
            copy.len() < 1000 && String::from_utf8_lossy(&copy).contains("name=lib"),
            "{} bytes",
            copy.len()
        );
        let check = std::process::Command::new("redis-check-rdb").arg(&path).output().expect("installed");
        let text = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(check.status.success() && text.contains("0 keys read"), "{text}");
    }
    // The stream, as redis-cli shows it.
    let mut shows = std::process::Command::new(strand)
        .args(["cli", "-p", &port, "--replica"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    await_online(&mut client, 1);
    call(&mut client, &["SET", "k", "a value"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(shows.stdout.take().expect("a pipe")));
    let shown = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("a value")));
    assert_eq!(shown.expect("a line").expect("text"), "\"SET\",\"k\",\"a value\"");
    shows.kill().and_then(|()| shows.wait()).expect("it ends");
    // The file for the replica had no name.
    let names = std::fs::read_dir(folder.path()).expect("it is there").flatten();
    let names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| name == "copy.rdb" || name == "strand-history"), "{names:?}");
}

/// The next message for the subscriber: channel and text.
fn message(subscriber: &mut Link) -> (String, String) {
    let Value::Array(words) = subscriber.reply().expect("a message") else { panic!("no message") };
    let mut texts = words.into_iter().map(text);
    assert!(texts.next().is_some_and(|kind| kind.ends_with("message")));
    (texts.next().expect("a channel"), texts.next().expect("a text"))
}

#[test]
fn subscribers_of_replicas_get_messages_after_the_writes_before_them() {
    let folders = [folder(), folder()];
    let server = start(folders[0].path(), &["--appendonly", "yes"]);
    let mut client = link(&server);
    let (redis, redis_link) = follower(&server);
    let strand = start(folders[1].path(), &[]);
    let mut strand_link = link(&strand);
    call(&mut strand_link, &["REPLICAOF", "127.0.0.1", &server.address.port().to_string()]);
    await_online(&mut client, 2);
    let mut replicas = [(redis.connect().expect("it listens"), redis_link), (link(&strand), strand_link)];
    for (subscriber, _) in &mut replicas {
        for words in [["SUBSCRIBE", "c"], ["SSUBSCRIBE", "s"]] {
            assert!(matches!(subscriber.call(&words).expect("a reply"), Value::Array(_)));
        }
    }
    let mut must = |words: &[&str]| {
        let reply = call(&mut client, words);
        assert!(!reply.starts_with("Error"), "{words:?}: {reply}");
    };
    must(&["SET", "k", "1"]);
    must(&["PUBLISH", "c", "1"]);
    // In EXEC, on the worker, and as a long one on a helper thread with its shards held.
    for (value, members) in [("2", 1), ("3", 3000)] {
        let members: Vec<String> = (0..members).map(|member| member.to_string()).collect();
        let mut add = vec!["SADD", "set"];
        add.extend(members.iter().map(String::as_str));
        for words in [&["MULTI"], &add[..], &["PUBLISH", "c", value], &add, &["SET", "k", value], &["EXEC"]] {
            must(words);
        }
    }
    // A script that may restart publishes at its end, and a script that only publishes reads a view.
    must(&["EVAL", "redis.call('publish','c','4') redis.call('set',KEYS[1],'4')", "1", "k"]);
    must(&[
        "EVAL",
        "for i = 1, 1e6 do end redis.call('get', KEYS[1]) redis.call('publish','c','5')",
        "1",
        "k",
    ]);
    must(&["SPUBLISH", "s", "last"]);
    for (subscriber, reader) in &mut replicas {
        for want in ["1", "2", "3", "4", "5"] {
            assert_eq!(message(subscriber), ("c".into(), want.into()));
            let read: u64 = call(reader, &["GET", "k"]).parse().expect("a number");
            assert!(read >= want.parse::<u64>().expect("a number").min(4), "{want} {read}");
        }
        assert_eq!(message(subscriber), ("s".into(), "last".into()));
    }
    // A client of a replica reaches the replica's subscribers only.
    let (subscriber, replica) = &mut replicas[1];
    assert_eq!(call(replica, &["PUBLISH", "c", "here"]), "1");
    assert_eq!(message(subscriber), ("c".into(), "here".into()));
    assert_eq!(call(&mut client, &["WAIT", "2", "60000"]), "2");
    // The append-only file has the writes only, and its offsets are right.
    assert_eq!(call(&mut client, &["BGREWRITEAOF"]), "Background append only file rewriting started");
    comes_true(|| field(&mut client, "aof_rewrite_in_progress") == "0");
    call(&mut client, &["PUBLISH", "c", "6"]);
    call(&mut client, &["INCR", "k"]);
    let digest = call(&mut client, &["DEBUG", "DIGEST"]);
    shut_down(server);
    for entry in std::fs::read_dir(folders[0].path().join("appendonlydir")).expect("it is there").flatten() {
        let bytes = std::fs::read(entry.path()).expect("it can be read");
        for only_for_replicas in [&b"PUBLISH"[..], b"publish", b"PING", b"GETACK"] {
            assert!(!bytes.windows(only_for_replicas.len()).any(|part| part == only_for_replicas));
        }
    }
    let server = start(folders[0].path(), &["--appendonly", "yes"]);
    assert_eq!(call(&mut link(&server), &["DEBUG", "DIGEST"]), digest);
}

#[test]
fn bytes_that_only_replicas_get_hold_no_client_back() {
    let folder = folder();
    let options = ["--appendonly", "yes", "--appendfsync", "always", "--repl-ping-replica-period", "1"];
    let server = start(folder.path(), &options);
    let mut client = link(&server);
    let (_redis, _follower) = follower(&server);
    await_online(&mut client, 1);
    for fsync in ["always", "everysec"] {
        assert_eq!(call(&mut client, &["CONFIG", "SET", "appendfsync", fsync]), "OK");
        assert_eq!(call(&mut client, &["SET", "k", "v"]), "OK");
        for _ in 0..1000 {
            client.send(&["PUBLISH", "c", &"m".repeat(1000)]).expect("sent");
        }
        (0..1000).for_each(|_| assert_eq!(text(client.reply().expect("a reply")), "0"));
        let synced = client.call(&["WAITAOF", "1", "0", "60000"]).expect("a reply");
        assert_eq!(synced, Value::Array(vec![Value::Int(1), Value::Int(0)]));
        assert_eq!(call(&mut client, &["WAIT", "1", "60000"]), "1");
        comes_true(|| field(&mut client, "aof_buffer_length") == "0");
    }
}

#[test]
fn the_first_replica_gets_writes_while_the_first_base_of_the_file_waits() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    call(&mut client, &["DEBUG", "POPULATE", "1000"]);
    for words in
        [&["CONFIG", "SET", "rdb-key-save-delay", "3000"][..], &["CONFIG", "SET", "appendonly", "yes"]]
    {
        assert_eq!(call(&mut client, words), "OK");
        if words[2] == "rdb-key-save-delay" {
            call(&mut client, &["BGSAVE"]);
        }
    }
    let (_redis, mut follower) = follower(&server);
    comes_true(|| field(&mut client, "connected_slaves") == "1");
    call(&mut client, &["SET", "x", "1"]);
    await_online(&mut client, 1);
    call(&mut client, &["SET", "y", "2"]);
    assert_eq!(call(&mut client, &["WAIT", "1", "60000"]), "1");
    comes_true(|| call(&mut follower, &["GET", "y"]) == "2");
    assert_eq!(call(&mut follower, &["GET", "x"]), "1");
}
