//! What replicas get and send, with exact bytes. The feeding thread does not run: the tests run its turns.

use crate::fixture::{End, Peer, Server, Stop, command};
use strand_engine::Framing;

const PSYNC: &str = "PSYNC ? -1";

/// The id of the stream.
fn id(server: &mut Server) -> String {
    info(server, "master_replid")
}

/// A field of INFO.
fn info(server: &mut Server, field: &str) -> String {
    let all = server.connect().run(server, "INFO");
    let line = all.split('|').find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {all}")).into()
}

/// What the peer has received after a turn of the feeding thread.
fn hears(peer: &mut Peer, server: &Server) -> String {
    server.engine.feed_replicas();
    peer.drive(server);
    peer.replies()
}

/// A replica that has its snapshot, and the stream's offset after the snapshot.
fn replica(server: &mut Server) -> (Peer, u64) {
    let mut peer = server.connect();
    assert_eq!(peer.run(server, "REPLCONF listening-port 7000 capa eof capa psync2"), "+OK|");
    peer.feed(&command(PSYNC), usize::MAX);
    peer.drive(server);
    peer.drive(server);
    let got = peer.replies();
    let (head, snapshot) = got.split_once('|').expect("a line");
    let words: Vec<&str> = head.split(' ').collect();
    assert_eq!((words[0], words[1]), ("+FULLRESYNC", &*id(server)), "{got}");
    assert!(snapshot.starts_with('$') && snapshot.contains("|REDIS0010"), "{got}");
    let offset = words[2].parse().expect("a number");
    peer.run(server, &format!("REPLCONF ACK {offset}"));
    (peer, offset)
}

#[test]
fn a_replica_gets_a_snapshot_and_then_the_effects() {
    let mut server = Server::new();
    let mut client = server.connect();
    client.run(&server, "SET before 1");
    let (mut peer, offset) = replica(&mut server);
    client.run(&server, "SET after 1 EX 100");
    client.run(&server, "GET after");
    client.run(&server, "DEL missing");
    // As in redis-server, the stream selects a database after a snapshot.
    let set = "*2|$6|SELECT|$1|0|*5|$3|SET|$5|after|$1|1|$4|PXAT|$13|1700000100123|";
    assert_eq!(hears(&mut peer, &server), set);
    client.run(&server, "SELECT 3");
    client.run(&server, "SADD set a");
    let added = "*2|$6|SELECT|$1|3|*3|$4|SADD|$3|set|$1|a|";
    assert_eq!(hears(&mut peer, &server), added);
    // `|` stands for two bytes.
    let bytes = |text: &str| (text.len() + text.matches('|').count()) as u64;
    let end = offset + bytes(set) + bytes(added);
    assert_eq!(info(&mut server, "master_repl_offset"), end.to_string());
    let shown = format!("ip=127.0.0.1,port=7000,state=online,offset={offset},lag=0");
    assert_eq!(info(&mut server, "slave0"), shown);
    assert_eq!(peer.run(&server, &format!("REPLCONF ACK {end}")), "");
    let role = format!("*3|$6|master|:{end}|*1|*3|$9|127.0.0.1|$4|7000|${}|{end}|", end.to_string().len());
    assert_eq!(client.run(&server, "ROLE"), role);
    assert_eq!(info(&mut server, "connected_slaves"), "1");
    let listed = client.run(&server, "CLIENT LIST TYPE replica");
    assert!(listed.contains(" flags=S ") && listed.contains("cmd=replconf"), "{listed}");
    assert_eq!(client.run(&server, "CLIENT KILL TYPE slave"), ":1|");
    assert_eq!(peer.drive(&server), Stop::Ended);
    drop(peer);
    assert_eq!(info(&mut server, "connected_slaves"), "0");
}

#[test]
fn a_replica_comes_back_to_what_it_lacks_while_the_backlog_has_it() {
    let mut server = Server::with("repl-backlog-size 16kb");
    let (peer, offset) = replica(&mut server);
    drop(peer);
    let mut client = server.connect();
    client.run(&server, "SET a 1");
    server.engine.feed_replicas();
    let id = id(&mut server);
    let resume = |server: &mut Server, line: String| {
        let mut peer = server.connect();
        peer.run(server, "REPLCONF capa psync2");
        let reply = peer.run(server, &line);
        peer.drive(server);
        reply + &peer.replies()
    };
    let set = "*2|$6|SELECT|$1|0|*3|$3|SET|$1|a|$1|1|";
    assert_eq!(resume(&mut server, format!("PSYNC {id} {}", offset + 1)), format!("+CONTINUE {id}|{set}"));
    assert_eq!(resume(&mut server, format!("PSYNC {id} {}", offset + 1 + 50)), format!("+CONTINUE {id}|"));
    // This part of the stream does not exist yet, or belongs to another stream, or is not kept any more.
    let full = |reply: String| assert!(reply.starts_with("+FULLRESYNC"), "{reply}");
    full(resume(&mut server, format!("PSYNC {id} {}", offset + 1 + 51)));
    full(resume(&mut server, format!("PSYNC {} {}", "0".repeat(40), offset + 1)));
    full(resume(&mut server, format!("PSYNC {id} 0")));
    client.run(&server, &format!("SET b {}", "x".repeat(16 << 10)));
    server.engine.feed_replicas();
    full(resume(&mut server, format!("PSYNC {id} {}", offset + 1)));
    assert_eq!(info(&mut server, "repl_backlog_histlen"), "16384");
    assert_eq!(info(&mut server, "sync_partial_ok"), "2");
    assert_eq!(info(&mut server, "sync_partial_err"), "4");
    assert_eq!(info(&mut server, "sync_full"), "5");
    // Without `capa psync2` the reply has no id.
    let end: u64 = info(&mut server, "master_repl_offset").parse().expect("a number");
    let reply = server.connect().run(&server, &format!("PSYNC {id} {}", end + 1));
    assert_eq!(reply, "+CONTINUE|");
}

#[test]
fn waits_end_when_enough_replicas_have_the_writes() {
    let mut server = Server::new();
    let (mut first, _) = replica(&mut server);
    let (mut second, _) = replica(&mut server);
    let mut client = server.connect();
    client.run(&server, "SET a 1");
    assert_eq!(client.run(&server, "WAIT 0 0"), ":0|");
    server.engine.feed_replicas();
    let end: u64 = info(&mut server, "master_repl_offset").parse().expect("a number");
    client.feed(&command("WAIT 2 0"), usize::MAX);
    assert_eq!(client.drive(&server), Stop::Blocked(None));
    first.run(&server, &format!("REPLCONF ACK {end}"));
    assert_eq!(client.drive(&server), Stop::Blocked(None), "one replica is not enough");
    second.run(&server, &format!("REPLCONF ACK {}", end - 1));
    assert_eq!(client.drive(&server), Stop::Blocked(None), "a byte is missing");
    second.run(&server, &format!("REPLCONF ACK {end}"));
    assert_eq!((client.drive(&server), client.replies().as_str()), (Stop::Read, ":2|"));
    assert_eq!(client.run(&server, "WAIT 1 0"), ":2|");
    client.feed(&command("WAIT 3 50"), usize::MAX);
    assert!(matches!(client.drive(&server), Stop::Blocked(Some(_))));
    server.advance_ms(51);
    assert_eq!((client.drive(&server), client.replies().as_str()), (Stop::Read, ":2|"));
    // On the disks of the replicas.
    client.feed(&command("WAITAOF 0 1 0"), usize::MAX);
    assert_eq!(client.drive(&server), Stop::Blocked(None));
    first.run(&server, &format!("REPLCONF ACK {end} FACK {end}"));
    assert_eq!((client.drive(&server), client.replies().as_str()), (Stop::Read, "*2|:0|:1|"));
}

#[test]
fn writes_need_enough_replicas() {
    let mut server = Server::with("min-replicas-to-write 1");
    let mut client = server.connect();
    let refusal = "-NOREPLICAS Not enough good replicas to write.|";
    client.script(&server, &[("SET a 1", refusal), ("GET a", "$-1|"), ("PING", "+PONG|")]);
    let in_script = client.run(&server, "EVAL \"return redis.call('set', 'a', 1)\" 1 a");
    assert!(in_script.starts_with(&refusal[..refusal.len() - 1]), "{in_script}");
    let (peer, _) = replica(&mut server);
    assert_eq!(client.run(&server, "SET a 1"), "+OK|");
    client.script(
        &server,
        &[
            ("CONFIG SET min-replicas-to-write 2", "+OK|"),
            ("SET a 1", refusal),
            ("CONFIG SET min-replicas-max-lag 0", "+OK|"),
            ("SET a 1", "+OK|"),
            ("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 10", "+OK|"),
        ],
    );
    drop(peer);
    assert_eq!(client.run(&server, "SET a 1"), refusal);
}

#[test]
fn a_replica_that_does_not_read_is_disconnected() {
    let mut server = Server::with("client-output-buffer-limit replica 1mb 0 0\nrepl-backlog-size 1mb");
    let (mut peer, _) = replica(&mut server);
    peer.hold_output = true;
    let mut client = server.connect();
    let large = format!("SET large {}", "x".repeat(300_000));
    for _ in 0..3 {
        client.run(&server, &large);
        server.engine.feed_replicas();
        assert_eq!(peer.drive(&server), Stop::Read);
    }
    client.run(&server, &large);
    server.engine.feed_replicas();
    assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)));
    assert_eq!(info(&mut server, "client_output_buffer_limit_disconnections"), "1");
}

#[test]
fn the_snapshot_does_not_count_towards_the_limits() {
    for limits in ["replica 300kb 0 0", "replica 0 150kb 1"] {
        let mut server = Server::with(&format!(
            "client-output-buffer-limit {limits}\nrepl-backlog-size 16kb\nrdbcompression no"
        ));
        let mut client = server.connect();
        for i in 0..3 {
            client.run(&server, &format!("SET large{i} {}", "x".repeat(300_000)));
        }
        let mut peer = server.connect();
        peer.hold_output = true;
        peer.feed(&command(PSYNC), usize::MAX);
        for _ in 0..3 {
            peer.drive(&server);
            server.advance_ms(1000);
        }
        assert_eq!(peer.ended, None, "{limits}");
        assert!(peer.session.output().len() > 900_000, "{limits}");
        // The stream counts, also while the snapshot waits before it.
        for _ in 0..2 {
            client.run(&server, &format!("SET after {}", "x".repeat(200_000)));
            server.engine.feed_replicas();
            peer.drive(&server);
            server.advance_ms(1100);
        }
        assert_eq!(peer.ended, Some(End::Abort), "{limits}");
        let logged = server.logged.lock().iter().any(|line| line.contains("class=slave"));
        assert!(logged, "{limits}");
    }
}

#[test]
fn replaced_data_begins_a_new_stream() {
    let mut server = Server::with("enable-debug-command yes");
    let (mut peer, offset) = replica(&mut server);
    let before = id(&mut server);
    // The test's host keeps no files, so the reload fails, and data may be lost.
    let reloaded = server.connect().run(&server, "DEBUG RELOAD NOSAVE");
    assert!(reloaded.starts_with("-ERR"), "{reloaded}");
    assert_eq!(peer.drive(&server), Stop::Ended);
    drop(peer);
    assert_ne!(id(&mut server), before);
    let mut peer = server.connect();
    peer.run(&server, &format!("PSYNC {before} {}", offset + 1));
    peer.drive(&server);
    let again = peer.replies();
    assert!(again.starts_with("+FULLRESYNC"), "{again}");
}

#[test]
fn wrong_uses_are_refused() {
    let mut server = Server::new();
    let mut client = server.connect();
    client.script(
        &server,
        &[
            ("REPLCONF listening-port", "-ERR syntax error|"),
            ("REPLCONF listening-port x", "-ERR value is not an integer or out of range|"),
            ("REPLCONF nonsense 1", "-ERR Unrecognized REPLCONF option: nonsense|"),
            ("REPLCONF rdb-filter-only keys", "-ERR Unsupported rdb-filter-only option: keys|"),
            ("REPLCONF rdb-filter-only functions", "+OK|"),
            ("REPLCONF rdb-filter-only \"\"", "+OK|"),
            ("REPLCONF rdb-only 2", "-ERR value is out of range, value must between 0 and 1|"),
            // No replica.
            ("REPLCONF ACK 5", ""),
            ("REPLCONF GETACK *", ""),
            ("PSYNC ? x", "-ERR value is not an integer or out of range|"),
            ("PSYNC ? -1 FAILOVER", "-ERR PSYNC FAILOVER can't be sent to a master.|"),
            ("MULTI", "+OK|"),
            ("PSYNC ? -1", "-ERR Command not allowed inside a transaction|"),
            ("DISCARD", "+OK|"),
        ],
    );
    let long = format!("REPLCONF ip-address {}", "1".repeat(256));
    assert_eq!(
        client.run(&server, &long),
        "-ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes|"
    );
    let pipelined = [command("PING"), command(PSYNC)].concat();
    assert_eq!(
        client.send(&server, &pipelined),
        "+PONG|-ERR SYNC and PSYNC are invalid with pending output|"
    );
    let mut framed = server.try_connect_by(Framing::Pack4, true).expect("the server takes it");
    let reply = framed.send(&server, b"\0\0\0\x0aPSYNC ? -1");
    assert!(reply.ends_with("-ERR SYNC and PSYNC need a connection without frames|"), "{reply}");
    assert_eq!(info(&mut server, "connected_slaves"), "0");
    // A reply to a replica would be a part of the stream.
    let (mut peer, _) = replica(&mut server);
    assert_eq!(peer.run(&server, "REPLCONF capa eof"), "");
    assert_eq!(peer.run(&server, PSYNC), "");
    for bad in ["GET a", "NOSUCH", "SYNC x", "REPLCONF nonsense 1", "ECHO"] {
        let (mut peer, _) = replica(&mut server);
        assert_eq!(peer.run(&server, bad), "", "{bad}");
        assert_eq!((peer.drive(&server), peer.ended), (Stop::Ended, Some(End::Abort)), "{bad}");
    }
    // Messages would be a part of the stream, too.
    let mut subscriber = server.connect();
    subscriber.run(&server, "HELLO 3");
    subscriber.run(&server, "SUBSCRIBE ch");
    let refused = "-ERR SYNC and PSYNC need a connection without subscriptions and tracking|";
    assert_eq!(subscriber.run(&server, PSYNC), refused);
    let mut monitor = server.connect();
    monitor.run(&server, "MONITOR");
    assert_eq!(monitor.run(&server, PSYNC), "");
}

#[test]
fn a_replica_that_loads_or_is_paused_lives() {
    let mut server = Server::with("repl-timeout 3");
    let (mut peer, offset) = replica(&mut server);
    let lag = |server: &mut Server| info(server, "slave0").rsplit_once('=').expect("a lag").1.to_owned();
    server.advance_ms(2000);
    assert_eq!(lag(&mut server), "2");
    assert_eq!(peer.send(&server, b"\n"), "");
    assert_eq!(lag(&mut server), "0", "an empty line shows that it lives");
    server.connect().run(&server, "CLIENT PAUSE 2500 ALL");
    server.advance_ms(2000);
    peer.run(&server, &format!("REPLCONF ACK {offset}"));
    server.advance_ms(600);
    assert_eq!(lag(&mut server), "0", "a pause stops no acknowledgement");
}

#[test]
fn a_wait_for_the_disk_and_replicas_goes_on_when_a_replica_leaves() {
    let mut server = Server::new();
    let (mut first, end) = replica(&mut server);
    let (mut second, _) = replica(&mut server);
    let mut client = server.connect();
    client.feed(&command("WAIT 2 0"), usize::MAX);
    first.run(&server, &format!("REPLCONF ACK {end}"));
    second.run(&server, &format!("REPLCONF ACK {end}"));
    drop(second);
    // The session notices only now, and a replica is missing again.
    assert_eq!(client.drive(&server), Stop::Blocked(None));
    let (mut third, end) = replica(&mut server);
    third.run(&server, &format!("REPLCONF ACK {end}"));
    assert_eq!((client.drive(&server), client.replies().as_str()), (Stop::Read, ":2|"));
}

/// The thread that connects to the primary does not run, so the server is a replica without a connection.
#[test]
fn a_replica_is_read_only_and_keeps_expired_keys() {
    let read_only = "-READONLY You can't write against a read only replica.|";
    let mut server = Server::with("enable-debug-command yes");
    let mut client = server.connect();
    client.script(
        &server,
        &[
            ("SET k v", "+OK|"),
            ("SET short v PX 100", "+OK|"),
            ("REPLICAOF 10.0.0.1 x", "-ERR Invalid master port|"),
            ("REPLICAOF 10.0.0.1 70000", "-ERR Invalid master port|"),
            ("REPLICAOF 10.0.0.1 6379", "+OK|"),
            ("REPLICAOF 10.0.0.1 6379", "+OK Already connected to specified master|"),
            ("SET k w", read_only),
            ("DEL k", read_only),
            ("BLPOP l 0", read_only),
            ("GET k", "$1|v|"),
            ("PING", "+PONG|"),
            ("ROLE", "*5|$5|slave|$8|10.0.0.1|:6379|$7|connect|:-1|"),
            ("CONFIG GET replicaof", "*2|$9|replicaof|$13|10.0.0.1 6379|"),
            ("MULTI", "+OK|"),
            ("SET k w", read_only),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
            ("EVAL \"return redis.call('get', 'k')\" 1 k", "$1|v|"),
        ],
    );
    let in_script = client.run(&server, "EVAL \"return redis.call('set', 'k', 'w')\" 1 k");
    assert!(in_script.starts_with(&read_only[..read_only.len() - 1]), "{in_script}");
    let wait = client.run(&server, "WAIT 0 0");
    assert!(wait.starts_with("-ERR WAIT cannot be used with replica instances."), "{wait}");
    let wait = client.run(&server, "WAITAOF 0 0 0");
    let why = "Please also note that writes to replicas are just local and are not propagated.";
    assert_eq!(wait, format!("-ERR WAITAOF cannot be used with replica instances. {why}|"));
    assert!(client.run(&server, "HELLO 2").contains("|$4|role|$7|replica|"));
    let fields = client.run(&server, "INFO replication");
    assert!(
        fields.contains("|role:slave|master_host:10.0.0.1|master_port:6379|master_link_status:down|"),
        "{fields}"
    );
    // The key has expired: it is missing, and stays until the primary says that it is gone.
    server.advance_ms(200);
    client.script(&server, &[("GET short", "$-1|"), ("EXISTS short k", ":1|"), ("DBSIZE", ":2|")]);
    server.engine.tick(server.now);
    client.script(
        &server,
        &[
            ("DBSIZE", ":2|"),
            ("CONFIG SET replica-serve-stale-data no", "+OK|"),
            ("GET k", "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.|"),
            (
                "EVAL \"#!lua flags=allow-stale,no-writes\\nreturn redis.pcall('get', 'k').err\" 0",
                "$50|ERR Can not execute the command on a stale replica|",
            ),
            // Also when clients may write.
            ("CONFIG SET replica-read-only no", "+OK|"),
            ("GET k", "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.|"),
            ("CONFIG SET replica-read-only yes", "+OK|"),
            ("REPLICAOF NO ONE", "+OK|"),
            ("CONFIG GET replicaof", "*2|$9|replicaof|$0||"),
            ("ROLE", "*3|$6|master|:0|*0|"),
            ("SETNX short w", ":1|"),
            ("GET short", "$1|w|"),
            ("DBSIZE", ":2|"),
        ],
    );
    // As Sentinel does: the role is changed within a transaction.
    let lines = ["MULTI", "REPLICAOF 10.0.0.1 6379", "CLIENT KILL TYPE normal", "EXEC"];
    let sent: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
    assert_eq!(client.send(&server, &sent), "+OK|+QUEUED|+QUEUED|*2|+OK|:0|");
    assert_eq!(client.run(&server, "SET k w"), read_only);
}
