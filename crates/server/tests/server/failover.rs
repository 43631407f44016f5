//! A replica becomes a primary: the other replicas, their replicas and the former primary continue with what they lack.

use crate::aof::{persist_all, shut_down};
use crate::following::{follow, write, write_while_primary};
use crate::harness::{Server, comes_true};
use crate::replicas::{await_online, field};
use crate::saving::{Link, call, folder, link, start};
use strand_testkit::process::{Server as Peer, free_port};

/// Options of a server whose stream has nothing but its clients' writes, so that no PING is in one stream and not in
/// another.
const QUIET: &[&str] = &["--repl-ping-replica-period", "3600", "--repl-backlog-size", "64mb"];

/// The data of each of these servers becomes equal to the data of the first one.
pub fn await_equal(links: &mut [&mut Link]) {
    let [first, others @ ..] = links else { panic!("no server") };
    persist_all(first);
    let digest = call(first, &["DEBUG", "DIGEST"]);
    for other in others {
        let became_equal = || comes_true(|| call(other, &["DEBUG", "DIGEST"]) == digest);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(became_equal)).is_err() {
            panic!("{} | {}", differences(first, other), differences(other, first));
        }
    }
}

/// The first keys whose values are not those of `other`.
fn differences(link: &mut Link, other: &mut Link) -> String {
    let mut found = Vec::new();
    for db in 0..16 {
        let db = db.to_string();
        for link in [&mut *link, &mut *other] {
            call(link, &["SELECT", &db]);
        }
        let Ok(strand_wire::client::Value::Array(keys)) = link.call(&["KEYS", "*"]) else { continue };
        for key in keys.into_iter().map(crate::saving::text) {
            let [a, b] = [&mut *link, &mut *other].map(|link| call(link, &["DEBUG", "DIGEST-VALUE", &key]));
            if a != b {
                let [a, b] = [&mut *link, &mut *other]
                    .map(|link| ["TYPE", "PEXPIRETIME", "DUMP"].map(|command| call(link, &[command, &key])));
                found.push(format!("{db} {key:?} {a:?} {b:?}"));
            }
        }
    }
    found.truncate(10);
    format!("{found:#?} {}", call(link, &["INFO", "replication"]))
}

/// The ids and offsets of INFO.
pub fn ids(link: &mut Link) -> [String; 4] {
    ["master_replid", "master_repl_offset", "master_replid2", "second_repl_offset"]
        .map(|name| field(link, name))
}

/// The numbers of full and of accepted partial synchronizations.
fn syncs(link: &mut Link) -> (String, String) {
    (field(link, "sync_full"), field(link, "sync_partial_ok"))
}

fn promote(link: &mut Link) {
    assert_eq!(call(link, &["REPLICAOF", "NO", "ONE"]), "OK");
}

#[test]
fn a_change_of_the_primary_costs_no_replica_all_data() {
    let folders: Vec<_> = (0..4).map(|_| folder()).collect();
    let start = |at: usize, more: &[&str]| start(folders[at].path(), &[QUIET, more].concat());
    // The third follows the second after the change, and the fourth always follows the third.
    let servers = [start(0, &[]), start(1, &["--appendonly", "yes"]), start(2, &[]), start(3, &[])];
    let redis =
        Peer::redis(&["--repl-ping-replica-period", "3600"], None).expect("redis-server is installed");
    let ports: Vec<u16> = servers.iter().map(|server| server.address.port()).collect();
    let mut links: Vec<Link> = servers.iter().map(link).collect();
    let [first, second, third, fourth] = &mut links[..] else { panic!("four") };
    let mut redis_link = redis.connect().expect("it listens");
    call(first, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    for replica in [&mut *second, third, &mut redis_link] {
        follow(replica, ports[0]);
    }
    follow(fourth, ports[2]);
    write(first, 1);
    await_equal(&mut [first, second, third, fourth, &mut redis_link]);
    let [id, offset, ..] = ids(first);
    for replica in [&mut *second, third, fourth, &mut redis_link] {
        comes_true(|| ids(replica)[..2] == [id.clone(), offset.clone()]);
    }

    // The second becomes the primary. Its stream goes on under a new id, and the former id is valid up to here.
    promote(second);
    write(second, 2);
    let next = (offset.parse::<u64>().expect("a number") + 1).to_string();
    let [new_id, _, second_id, second_offset] = ids(second);
    assert_ne!(new_id, id);
    assert_eq!((second_id, second_offset), (id, next));
    for replica in [&mut *third, &mut redis_link, first] {
        follow(replica, ports[1]);
    }
    write(second, 3);
    await_equal(&mut [second, first, third, fourth, &mut redis_link]);
    assert_eq!(call(second, &["WAIT", "3", "60000"]), "3");
    assert_eq!(syncs(second), ("0".into(), "3".into()));
    // The replica of a replica has learnt the new id.
    assert_eq!(syncs(third), ("1".into(), "1".into()));
    let [.., offset] = [&mut *first, third, fourth, &mut redis_link].map(|replica| {
        comes_true(|| ids(replica)[0] == new_id);
        ids(replica)[1].clone()
    });
    assert_eq!(ids(second)[1], offset);

    // A former primary that has a write more than the new one gets all data.
    promote(third);
    follow(&mut redis_link, ports[2]);
    call(second, &["SET", "only", "here"]);
    follow(second, ports[2]);
    write(third, 4);
    await_equal(&mut [third, second, fourth, &mut redis_link]);
    assert_eq!(call(second, &["EXISTS", "only"]), "0");
    assert_eq!(syncs(third).0, "2");
    // The append-only file of the second has been its own all the time.
    comes_true(|| {
        field(second, "aof_rewrite_in_progress") == "0" && field(second, "aof_rewrite_scheduled") == "0"
    });
    let digest = call(second, &["DEBUG", "DIGEST"]);
    let [_, server, ..] = servers;
    shut_down(server);
    let again = crate::saving::start(folders[1].path(), &["--appendonly", "yes"]);
    assert_eq!(call(&mut link(&again), &["DEBUG", "DIGEST"]), digest);
}

#[test]
fn redis_server_and_strand_take_over_from_each_other() {
    let folder = folder();
    let strand = start(folder.path(), QUIET);
    let options = ["--repl-ping-replica-period", "3600", "--repl-backlog-size", "64mb"];
    let peers = [0, 1].map(|_| Peer::redis(&options, None).expect("redis-server is installed"));
    let mut ours = link(&strand);
    let [mut one, mut two] = [0, 1].map(|at: usize| peers[at].connect().expect("it listens"));
    let [port, port_one, port_two] =
        [strand.address.port(), peers[0].address.port(), peers[1].address.port()];
    // A redis-server is the primary, Strand follows, and a redis-server follows Strand.
    follow(&mut ours, port_one);
    follow(&mut two, port);
    write(&mut one, 11);
    await_equal(&mut [&mut one, &mut ours, &mut two]);
    // Strand takes over: from redis-server, which continues as a replica.
    promote(&mut ours);
    follow(&mut one, port);
    write(&mut ours, 12);
    await_equal(&mut [&mut ours, &mut one, &mut two]);
    assert_eq!(syncs(&mut ours), ("1".into(), "2".into()));
    // A redis-server takes over from Strand.
    promote(&mut two);
    follow(&mut ours, port_two);
    follow(&mut one, port_two);
    write(&mut two, 13);
    await_equal(&mut [&mut two, &mut ours, &mut one]);
    assert_eq!(syncs(&mut two), ("0".into(), "2".into()));
}

#[test]
fn an_interrupted_full_synchronization_leaves_no_stream_to_continue() {
    let folders = [folder(), folder()];
    let [primary, other] = [0, 1].map(|at: usize| start(folders[at].path(), QUIET));
    let (mut first, mut second) = (link(&primary), link(&other));
    call(&mut first, &["DEBUG", "POPULATE", "1000"]);
    follow(&mut second, primary.address.port());
    let before = ids(&mut second);
    // A snapshot that is no RDB file replaces nothing.
    let fake = send_snapshot(&mut second, "");
    comes_true(|| other.folder.log_text().contains("snapshot of 0 bytes cannot be loaded"));
    call(&mut second, &["REPLICAOF", "NO", "ONE"]);
    fake.join().expect("it ends");
    assert_eq!(call(&mut second, &["DBSIZE"]), "1000");
    let fake = send_snapshot(&mut second, "REDIS0009 and nonsense");
    comes_true(|| other.folder.log_text().contains("the snapshot is damaged"));
    promote(&mut second);
    fake.join().expect("it ends");
    let after = ids(&mut second);
    assert_ne!(after[0], before[0]);
    assert_eq!(after[2..], ["0".repeat(40), "-1".to_owned()]);
    assert_eq!(call(&mut second, &["DBSIZE"]), "0");
    // A replica of the former primary does not continue here.
    follow(&mut first, other.address.port());
    assert_eq!(call(&mut first, &["DBSIZE"]), "0");
    let _: &Server = &primary;
}

/// Lets `replica` follow a program that sends this snapshot once.
fn send_snapshot(replica: &mut Link, snapshot: &'static str) -> std::thread::JoinHandle<()> {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let sender = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let (mut lines, mut out) = (BufReader::new(stream.try_clone().expect("a socket")), stream);
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let reply = match line.trim_end() {
                "PING" => "+PONG\r\n".to_owned(),
                "REPLCONF" => "+OK\r\n".to_owned(),
                "PSYNC" => {
                    format!("+FULLRESYNC {} 7\r\n${}\r\n{snapshot}", "f".repeat(40), snapshot.len())
                }
                _ => continue,
            };
            out.write_all(reply.as_bytes()).expect("it reads");
        }
    });
    call(replica, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    sender
}

#[test]
fn data_is_equal_after_changes_of_the_primary_under_load() {
    let folders: Vec<_> = (0..3).map(|_| folder()).collect();
    let servers: Vec<Server> = folders
        .iter()
        .zip(["yes", "no", "yes"])
        .map(|(at, aof)| start(at.path(), &["--appendonly", aof]))
        .collect();
    let redis = Peer::redis(&[], None).expect("redis-server is installed");
    let mut redis_link = redis.connect().expect("it listens");
    let mut links: Vec<Link> = servers.iter().map(link).collect();
    let port = |at: usize| servers[at].address.port();
    for at in [1, 2] {
        follow(&mut links[at], port(0));
    }
    follow(&mut redis_link, port(0));
    for round in 0..4 {
        let (old, new, other) = (round % 3, (round + 1) % 3, (round + 2) % 3);
        let before = ids(&mut links[new]);
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let mut client = link(&servers[old]);
                // On a replica a PFCOUNT would store its count in the value, which the other servers would not get.
                scope.spawn(move || write_while_primary(&mut client, 100 + 10 * round as u64 + seed));
            }
            comes_true(|| ids(&mut links[new])[1] != before[1]);
            promote(&mut links[new]);
            follow(&mut links[other], port(new));
            follow(&mut redis_link, port(new));
            follow(&mut links[old], port(new));
        });
        write(&mut links[new], 200 + round as u64);
        let [first, second, third] = &mut links[..] else { panic!("three") };
        let mut ordered = [first, second, third];
        ordered.rotate_left(new);
        let [first, second, third] = ordered;
        await_equal(&mut [first, second, third, &mut redis_link]);
    }
}

/// Increments a counter until the server is a replica. Returns the number of acknowledged increments.
fn count_until_read_only(server: &Server) -> u64 {
    let mut client = link(server);
    let mut acknowledged = 0;
    loop {
        let reply = call(&mut client, &["INCR", "counter"]);
        match reply.parse::<u64>() {
            Ok(_) => acknowledged += 1,
            Err(_) => {
                assert!(reply.starts_with("READONLY"), "{reply}");
                return acknowledged;
            }
        }
    }
}

fn await_role(link: &mut Link, role: &str) {
    comes_true(|| field(link, "role") == role);
    if role == "slave" {
        comes_true(|| field(link, "master_link_status") == "up");
    }
}

#[test]
fn failover_loses_no_acknowledged_write_and_costs_nobody_all_data() {
    let folders = [folder(), folder()];
    let servers = [start(folders[0].path(), &["--appendonly", "yes"]), start(folders[1].path(), &[])];
    let redis = Peer::redis(&[], None).expect("redis-server is installed");
    let (mut first, mut second) = (link(&servers[0]), link(&servers[1]));
    let mut third = redis.connect().expect("it listens");
    let ports = [servers[0].address.port(), servers[1].address.port(), redis.address.port()];
    follow(&mut second, ports[0]);
    follow(&mut third, ports[0]);
    await_online(&mut first, 2);
    let port = |at: usize| ports[at].to_string();
    // Strand takes over from Strand, under load.
    let acknowledged: u64 = std::thread::scope(|scope| {
        let clients = [0, 1, 2].map(|_| scope.spawn(|| count_until_read_only(&servers[0])));
        comes_true(|| call(&mut second, &["GET", "counter"]).parse().is_ok_and(|n: u64| n > 500));
        assert_eq!(call(&mut first, &["FAILOVER", "TO", "127.0.0.1", &port(1), "TIMEOUT", "60000"]), "OK");
        let again = call(&mut first, &["FAILOVER"]);
        assert_eq!(again, "ERR FAILOVER already in progress.");
        assert_eq!(
            call(&mut first, &["REPLICAOF", "NO", "ONE"]),
            "ERR REPLICAOF not allowed while failing over."
        );
        clients.map(|client| client.join().expect("it counts")).into_iter().sum()
    });
    await_role(&mut first, "slave");
    await_role(&mut second, "master");
    assert_eq!(call(&mut second, &["GET", "counter"]), acknowledged.to_string());
    assert_eq!(syncs(&mut second), ("0".into(), "1".into()));
    assert_eq!(field(&mut first, "master_failover_state"), "no-failover");
    // redis-server takes over from Strand, and Strand from redis-server.
    follow(&mut third, ports[1]);
    await_online(&mut second, 2);
    assert_eq!(call(&mut second, &["FAILOVER", "TO", "127.0.0.1", &port(2)]), "OK");
    await_role(&mut second, "slave");
    await_role(&mut third, "master");
    // A server that misses two changes of the primary gets all data. The first server has seen the last one now.
    comes_true(|| ids(&mut first)[0] == ids(&mut third)[0]);
    await_role(&mut first, "slave");
    call(&mut third, &["INCR", "counter"]);
    assert_eq!(call(&mut third, &["FAILOVER", "TO", "127.0.0.1", &port(1)]), "OK");
    await_role(&mut third, "slave");
    await_role(&mut second, "master");
    assert_eq!(call(&mut second, &["INCR", "counter"]), (acknowledged + 2).to_string());
    // The first server has followed the second one all the time, also while that was a replica.
    await_role(&mut first, "slave");
    await_equal(&mut [&mut second, &mut first, &mut third]);
    assert_eq!(syncs(&mut second).0, "0");
}

#[test]
fn failover_that_is_given_up_lets_writes_go_on() {
    let folder = folder();
    let strand = start(folder.path(), &[]);
    let own = Peer::redis(&[], None).expect("redis-server is installed");
    let replicas = [0, 1].map(|_| Peer::redis(&["--enable-debug-command", "yes"], None).expect("installed"));
    let mut primaries = [link(&strand), own.connect().expect("it listens")];
    let mut links = [0, 1].map(|at: usize| replicas[at].connect().expect("it listens"));
    follow(&mut links[0], strand.address.port());
    follow(&mut links[1], own.address.port());
    let mut both = |words: &[&str]| {
        let [ours, theirs] = primaries.each_mut().map(|primary| call(primary, words));
        assert_eq!(ours, theirs, "{words:?}");
        ours
    };
    for words in [
        &["FAILOVER", "FORCE"][..],
        &["FAILOVER", "FORCE", "TIMEOUT", "10"],
        &["FAILOVER", "TO", "127.0.0.1", "1"],
        &["FAILOVER", "TO", "nowhere", "1", "FORCE", "TIMEOUT", "10"],
        &["FAILOVER", "TO", "127.0.0.1", "x"],
        &["FAILOVER", "TIMEOUT", "-1"],
        &["FAILOVER", "ABORT"],
        &["PSYNC", "?", "-1", "FAILOVER"],
    ] {
        assert!(both(words).starts_with("ERR"), "{words:?}");
    }
    // The replicas acknowledge nothing while they sleep.
    let sleepers = links.map(|mut link| {
        std::thread::spawn(move || {
            call(&mut link, &["DEBUG", "SLEEP", "4"]);
            link
        })
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(both(&["SET", "k", "1"]), "OK");
    assert_eq!(both(&["FAILOVER", "TIMEOUT", "300"]), "OK");
    // The write waits for the end of the time.
    assert_eq!(both(&["SET", "k", "2"]), "OK");
    assert_eq!(both(&["FAILOVER"]), "OK");
    assert_eq!(both(&["GET", "k"]), "2");
    for primary in &mut primaries {
        assert_eq!(field(primary, "master_failover_state"), "waiting-for-sync");
        assert_eq!(call(primary, &["FAILOVER", "ABORT"]), "OK");
        assert_eq!(call(primary, &["SET", "k", "3"]), "OK");
        assert_eq!(field(primary, "role"), "master");
    }
    for sleeper in sleepers {
        let mut replica = sleeper.join().expect("it wakes");
        comes_true(|| call(&mut replica, &["GET", "k"]) == "3");
    }
}

/// A server on this port whose data is in `folder`, without an append-only file.
fn at_port(folder: &std::path::Path, port: u16, more: &[&str]) -> Server {
    let port = port.to_string();
    let dir = folder.to_str().expect("a plain path");
    let options = ["--port", &port, "--dir", dir, "--http-port", "0", "--bind", "127.0.0.1"];
    let options = [&options[..], &["--enable-debug-command", "yes"], QUIET, more].concat();
    let server = Server::start_as(&options, "");
    comes_true(|| field(&mut link(&server), "loading") == "0");
    server
}

fn shut_down_with_save(mut server: Server) {
    link(&server).send(&["SHUTDOWN", "SAVE"]).expect("sent");
    assert!(server.end().success());
}

#[test]
fn a_restart_costs_no_replica_all_data() {
    let folders = [folder(), folder()];
    let (port, other_port) = (free_port().expect("a port"), free_port().expect("a port"));
    let server = at_port(folders[0].path(), port, &[]);
    let redis =
        Peer::redis(&["--repl-ping-replica-period", "3600"], None).expect("redis-server is installed");
    let replica = at_port(folders[1].path(), other_port, &[]);
    let mut first = link(&server);
    let (mut second, mut third) = (link(&replica), redis.connect().expect("it listens"));
    call(&mut first, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    follow(&mut second, port);
    follow(&mut third, port);
    write(&mut first, 21);
    call(&mut first, &["SELECT", "7"]);
    call(&mut first, &["SET", "expires", "while the server is down", "PX", "600000"]);
    await_equal(&mut [&mut first, &mut second, &mut third]);
    call(&mut first, &["SELECT", "7"]);
    assert_eq!(call(&mut first, &["PEXPIRE", "expires", "300"]), "1");
    assert_eq!(call(&mut first, &["WAIT", "2", "60000"]), "2");
    let [id, ..] = ids(&mut first);
    // The primary restarts: its replicas continue.
    shut_down_with_save(server);
    std::thread::sleep(std::time::Duration::from_millis(400));
    let server = at_port(folders[0].path(), port, &[]);
    let mut first = link(&server);
    comes_true(|| syncs(&mut first).1 == "2");
    let [_, _, second_id, _] = ids(&mut first);
    assert_eq!((syncs(&mut first).0, second_id), ("0".into(), id));
    write(&mut first, 22);
    await_equal(&mut [&mut first, &mut second, &mut third]);
    call(&mut third, &["SELECT", "7"]);
    assert_eq!(call(&mut third, &["EXISTS", "expires"]), "0");
    // A replica restarts: it continues.
    shut_down_with_save(replica);
    write(&mut first, 23);
    let replica = at_port(folders[1].path(), other_port, &["--replicaof", "127.0.0.1", &port.to_string()]);
    let mut second = link(&replica);
    comes_true(|| field(&mut second, "master_link_status") == "up");
    await_equal(&mut [&mut first, &mut second, &mut third]);
    assert_eq!(syncs(&mut first), ("0".into(), "3".into()));
}

#[test]
fn replicas_continue_after_a_start_from_the_other_servers_file() {
    let (folder, other) = (folder(), folder());
    let dir = folder.path().to_str().expect("a plain path");
    let redis = || {
        let options = ["--dir", dir, "--repl-ping-replica-period", "3600"];
        let redis = Peer::redis(&options, None).expect("redis-server is installed");
        let link = redis.connect().expect("it listens");
        (redis, link)
    };
    let replica = start(other.path(), QUIET);
    let mut second = link(&replica);
    let (peer, mut first) = redis();
    follow(&mut second, peer.address.port());
    write(&mut first, 31);
    await_equal(&mut [&mut first, &mut second]);
    // redis-server ends, and Strand starts from its file.
    assert_eq!(call(&mut first, &["SAVE"]), "OK");
    drop(peer);
    let strand = start(folder.path(), QUIET);
    let mut first = link(&strand);
    follow(&mut second, strand.address.port());
    write(&mut first, 32);
    await_equal(&mut [&mut first, &mut second]);
    assert_eq!(syncs(&mut first), ("0".into(), "1".into()));
    // The other way.
    shut_down_with_save(strand);
    let (peer, mut first) = redis();
    follow(&mut second, peer.address.port());
    write(&mut first, 33);
    await_equal(&mut [&mut first, &mut second]);
    assert_eq!(syncs(&mut first), ("0".into(), "1".into()));
}

#[test]
fn a_primary_that_was_a_replica_for_a_moment_goes_on_with_its_stream() {
    let folders = [folder(), folder()];
    let server = start(folders[0].path(), &["--repl-backlog-ttl", "2"]);
    let replica = start(folders[1].path(), &[]);
    let (mut first, mut second) = (link(&server), link(&replica));
    follow(&mut second, server.address.port());
    for round in 0..20 {
        // The second command arrives before the thread of the first one has begun.
        for words in [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]] {
            first.send(words).expect("sent");
        }
        (0..2).for_each(|_| assert_eq!(crate::saving::text(first.reply().expect("a reply")), "OK"));
        call(&mut first, &["SET", "round", &round.to_string()]);
        assert_eq!(call(&mut first, &["WAIT", "1", "60000"]), "1");
        assert_eq!(call(&mut second, &["GET", "round"]), round.to_string());
    }
    // FAILOVER that is given up at once leaves a primary, too, and perhaps a second one.
    let port = replica.address.port().to_string();
    for _ in 0..5 {
        assert_eq!(call(&mut first, &["FAILOVER", "TO", "127.0.0.1", &port]), "OK");
        let aborted = call(&mut first, &["FAILOVER", "ABORT"]);
        comes_true(|| field(&mut first, "master_failover_state") == "no-failover");
        // On a busy machine the replica may have accepted before.
        if aborted != "OK" {
            promote(&mut first);
        }
        if field(&mut second, "role") == "master" {
            follow(&mut second, server.address.port());
        }
        assert_eq!(call(&mut first, &["SET", "k", "v"]), "OK");
        assert_eq!(call(&mut first, &["WAIT", "1", "60000"]), "1");
    }
    // `repl-backlog-ttl` begins when the server becomes a primary.
    promote(&mut second);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    follow(&mut first, replica.address.port());
    std::thread::sleep(std::time::Duration::from_millis(1000));
    promote(&mut first);
    let id = ids(&mut first)[2].clone();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert_eq!(ids(&mut first)[2], id);
    assert_ne!(id, "0".repeat(40));
}

#[test]
fn waits_and_failovers_do_not_lock_each_other() {
    let folder = folder();
    let server = start(folder.path(), &[]);
    let redis = Peer::redis(&[], None).expect("redis-server is installed");
    let mut replica = redis.connect().expect("it listens");
    follow(&mut replica, server.address.port());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let mut client = link(&server);
            scope.spawn(move || {
                for _ in 0..300 * (1 + n % 2 * 9) {
                    match n % 2 {
                        0 => _ = [call(&mut client, &["INCR", "n"]), call(&mut client, &["WAIT", "1", "5"])],
                        _ => assert!(
                            call(&mut client, &["FAILOVER", "TO", "127.0.0.9", "9"]).starts_with("ERR")
                        ),
                    }
                }
            });
        }
    });
    assert_eq!(call(&mut link(&server), &["GET", "n"]), "600");
}

#[test]
fn a_position_that_cannot_be_used_is_given_up() {
    let folders = [folder(), folder()];
    let options = ["--databases", "300"];
    let server = start(folders[0].path(), &[QUIET, &options].concat());
    let (port, other_port) = (server.address.port(), free_port().expect("a port"));
    let replica = at_port(folders[1].path(), other_port, &options);
    let (mut first, mut second) = (link(&server), link(&replica));
    follow(&mut second, port);
    // The position is in a database whose number the journal does not know, and FAILOVER works.
    call(&mut first, &["SELECT", "260"]);
    call(&mut first, &["SET", "k", "v"]);
    for (from, to, to_port) in [(0, 1, other_port), (1, 0, port)] {
        let both = [&mut first, &mut second];
        await_online(both[from], 1);
        assert_eq!(call(both[from], &["FAILOVER", "TO", "127.0.0.1", &to_port.to_string()]), "OK");
        await_role(both[from], "slave");
        await_role(both[to], "master");
    }
    assert_eq!(syncs(&mut first).0, "1");
    call(&mut first, &["SELECT", "12"]);
    call(&mut first, &["SET", "gone", "soon"]);
    call(&mut first, &["DEL", "gone"]);
    call(&mut first, &["SELECT", "260"]);
    call(&mut first, &["DEL", "k"]);
    call(&mut first, &["SELECT", "12"]);
    call(&mut first, &["SET", "gone", "soon"]);
    call(&mut first, &["DEL", "gone"]);
    assert_eq!(call(&mut first, &["WAIT", "1", "60000"]), "1");
    shut_down_with_save(replica);
    // The position is in a database that the server does not have.
    let follows = ["--replicaof", "127.0.0.1", &port.to_string()];
    let replica = at_port(folders[1].path(), other_port, &[&["--databases", "4"], &follows[..]].concat());
    let mut second = link(&replica);
    comes_true(|| field(&mut second, "master_link_status") == "up");
    assert!(!replica.folder.log_text().contains("panic"), "{}", replica.folder.log_text());
}
