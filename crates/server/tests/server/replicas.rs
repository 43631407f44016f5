//! redis-server as a replica of Strand: it gets all data and every change, on one stream and on several workers.

use crate::aof::{persist_all, shut_down};
use crate::harness::{Server, comes_true, generator};
use crate::saving::{Link, call, folder, link, start};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use strand_testkit::process::Server as Peer;

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
fn redis_cli_takes_a_snapshot_and_shows_the_stream() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    call(&mut client, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    let port = server.address.port().to_string();
    let path = folder.path().join("copy.rdb");
    let copied = std::process::Command::new("redis-cli").args(["-p", &port, "--rdb"]).arg(&path).output();
    let copied = copied.expect("redis-cli is installed");
    assert!(copied.status.success(), "{copied:?}");
    let check = std::process::Command::new("redis-check-rdb").arg(&path).output().expect("installed");
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success() && text.contains("1000 keys read"), "{text}");
    // The file for the replica had no name.
    let names = std::fs::read_dir(folder.path()).expect("it is there").flatten();
    let names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| name == "copy.rdb" || name == "strand-history"), "{names:?}");
}
