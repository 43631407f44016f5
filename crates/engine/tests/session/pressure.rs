//! What the server does by itself when memory or disk space runs out: work waits or is refused, clients are slowed,
//! and optional work, such as the history, stops first.

use crate::disk::Disk;
use crate::fixture::{Peer, Server, Stop};
use crate::history::{json, seconds};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_diag::history::Figure;

const MB: f64 = 1048576.0;

/// Makes the system report these figures, and takes a sample.
fn say(server: &mut Server, figures: &[(&'static str, f64)]) {
    *server.figures.lock() =
        figures.iter().map(|(name, value)| Figure::gauge(*name, "bytes", *value)).collect();
    seconds(server, 1);
}

/// Makes the system report this much free memory in the control group.
fn free(server: &mut Server, free_mb: f64, limit_mb: f64) {
    let used = (limit_mb - free_mb) * MB;
    say(server, &[("cgroup.memory.limit", limit_mb * MB), ("cgroup.memory.used", used)]);
}

/// Creates a hash of about 10 MB.
fn fill(server: &Server, peer: &mut Peer, key: &str) {
    let value = "v".repeat(2_000);
    for part in 0..50 {
        let fields: String = (0..100).map(|i| format!(" f{part}-{i} {value}")).collect();
        assert_eq!(peer.run(server, &format!("HSET {key}{fields}")), ":100|");
    }
}

/// A report of a stuck worker needs memory for the stack. The report never makes a system kill the server that has little.
#[test]
fn a_stuck_worker_is_reported_without_a_stack_while_memory_is_short() {
    let mut server = Server::new();
    let mut peer = server.connect();
    for (free_mb, place) in [(60.0, "no stack"), (300.0, "its stack")] {
        free(&mut server, free_mb, 512.0);
        let (engine, mut later) = (server.engine.clone(), server.now);
        later.mono_us += 250_000;
        *server.on_clock.lock() = Some(Box::new(move || engine.tick(later)));
        server.step_us.store(300_000, Relaxed);
        peer.run(&server, "CONFIG GET port");
        server.step_us.store(0, Relaxed);
        let actions = json(&mut peer, &server, "DIAG DOCTOR")["actions"].to_string();
        assert!(actions.contains("stuck-worker") && actions.contains(place), "{free_mb}: {actions}");
    }
}

/// The thread that samples everything also asks the disk. A file system that does not answer stops no writer.
#[test]
fn writers_go_on_when_the_sample_of_everything_is_late() {
    let mut server = Server::new();
    let mut peer = server.connect();
    free(&mut server, 60.0, 100.0);
    server.used_bytes.fetch_add(21 << 20, Relaxed);
    server.engine.watch_memory(server.now);
    peer.feed(b"SET k v\r\n", usize::MAX);
    assert!(matches!(peer.drive(&server), Stop::Sleep(_)), "it waits for a sample");
    let doctor = server.connect().run(&server, "MEMORY DOCTOR");
    assert!(!doctor.contains("exceeds maxmemory"), "{doctor}");
    for (late_ms, may_write) in [(1_500, false), (1_000, true)] {
        server.advance_ms(late_ms);
        server.engine.watch_memory(server.now);
        assert_eq!(matches!(peer.drive(&server), Stop::Sleep(_)), !may_write);
    }
    assert_eq!(peer.replies(), "+OK|");
}

fn has_rule(peer: &mut Peer, server: &Server, list: &str, rule: &str) -> bool {
    let reply = json(peer, server, "DIAG DOCTOR");
    reply[list].as_array().expect("an array").iter().any(|row| row["rule"] == rule)
}

/// A fast client fills a small control group between two samples.
#[test]
fn writers_wait_for_the_next_sample_while_a_control_group_has_more() {
    for policy in ["noeviction", "allkeys-random"] {
        let mut server = Server::with(&format!("maxmemory-policy {policy}"));
        let mut peer = server.connect();
        let grow = |server: &Server, mb: u64| {
            server.used_bytes.fetch_add(mb << 20, Relaxed);
            server.engine.watch_memory(server.now);
        };
        peer.script(&server, &[("SET old v", "+OK|")]);
        free(&mut server, 60.0, 100.0);
        grow(&server, 19);
        peer.script(&server, &[("SET k v", "+OK|")]);
        // More than a third of the free memory is used.
        grow(&server, 2);
        peer.feed(b"SET k w\r\n", usize::MAX);
        assert!(matches!(peer.drive(&server), Stop::Sleep(_)), "it waits");
        let mut other = server.connect();
        other.script(&server, &[("GET k", "$1|v|"), ("DEL nosuch", ":0|"), ("DBSIZE", ":2|")]);
        assert!(!has_rule(&mut other, &server, "findings", "maxmemory"));
        free(&mut server, 39.0, 100.0);
        server.advance_ms(1_000);
        peer.drive(&server);
        assert_eq!(peer.replies(), "+OK|");
        // The group is full, so no sample will show more.
        free(&mut server, 3.0, 100.0);
        grow(&server, 1);
        let reply = peer.run(&server, "SET k x");
        // All keys together are less than the bytes that the server has too many.
        assert!(reply.starts_with("-OOM "), "{reply}");
        assert_eq!(other.run(&server, "DBSIZE") == ":2|", policy == "noeviction");
        free(&mut server, 50.0, 100.0);
        peer.script(&server, &[("SET k y", "+OK|")]);
    }
}

#[test]
fn work_that_would_not_fit_is_refused_and_what_removes_is_not() {
    let mut server = Server::new();
    let mut peer = server.connect();
    fill(&server, &mut peer, "h");
    // At first the server does not know the free memory. Later enough memory is free.
    assert!(peer.run(&server, "HGETALL h").len() > 10_000_000);
    free(&mut server, 100.0, 320.0);
    assert!(peer.run(&server, "HGETALL h").len() > 10_000_000);
    free(&mut server, 14.0, 320.0);
    let reply = peer.run(&server, "HGETALL h");
    assert!(
        reply.starts_with("-OOM hgetall would need 1") && reply.contains(" MiB more than is free"),
        "{reply}"
    );
    let reply = peer.run(&server, "FT.CREATE i ON HASH SCHEMA t TEXT");
    assert!(reply.starts_with("-OOM ft.create would need "), "{reply}");
    let reply = peer.run(&server, "IMPORT.VERSION HOLD mail");
    assert_eq!(reply, "-OOM an import would need 32 MiB, 28 MiB more than is free|");
    assert!(peer.run(&server, "INFO errorstats").contains("errorstat_OOM:count=3|"));
    assert!(peer.run(&server, "INFO commandstats").contains("cmdstat_hgetall:calls=2,"));
    // With this many keys the server does not read the values. Only the names count.
    let many = format!("MGET {}", "n".repeat(1_000) + &format!(" {}", "x".repeat(990)).repeat(20_000));
    let reply = peer.run(&server, &many);
    assert!(reply.starts_with("-OOM mget would need 20 MiB, "), "{}", &reply[..reply.len().min(80)]);
    // Small commands, and commands that free memory, are accepted.
    peer.script(
        &server,
        &[("HGET h nosuch", "$-1|"), ("SET k v", "+OK|"), ("KEYS k", "*1|$1|k|"), ("DEL h", ":1|")],
    );
    free(&mut server, 100.0, 320.0);
    peer.script(&server, &[("IMPORT.VERSION HOLD mail", ":1|")]);
}

#[test]
fn a_transaction_needs_what_its_commands_need() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    fill(&server, &mut peer, "h");
    assert_eq!(peer.run(&server, &format!("RPUSH l{}", " some-element".repeat(200_000))), ":200000|");
    free(&mut server, 14.0, 320.0);
    let begin = |peer: &mut Peer, server: &Server, lines: &[&str]| {
        assert_eq!(peer.run(server, "MULTI"), "+OK|");
        lines.iter().for_each(|line| assert_eq!(peer.run(server, line), "+QUEUED|"));
    };
    let refused = "-EXECABORT Transaction discarded because of: OOM exec would need ";
    begin(&mut peer, &server, &["HGETALL h", "SET k v"]);
    let reply = peer.run(&server, "EXEC");
    assert!(reply.starts_with(refused) && reply.contains(" MiB more than is free"), "{reply}");
    assert_eq!(peer.run(&server, "EXISTS k"), ":0|", "nothing of it has run");
    // Two replies together need twice as much.
    begin(&mut peer, &server, &["HGETALL h", "HVALS h"]);
    let twice = peer.run(&server, "EXEC");
    let megabytes = |reply: &str| reply.strip_prefix(refused)?.split(' ').next()?.parse::<u64>().ok();
    assert!(megabytes(&twice) >= megabytes(&reply).map(|mb| 2 * mb - 1), "{twice} {reply}");
    // Commands that read a part of a value, create little, or remove data are still accepted.
    begin(&mut peer, &server, &["LRANGE l 0 5000", "HLEN h", "SET k v", "DEL l"]);
    assert!(peer.run(&server, "EXEC").ends_with(":5000|+OK|:1|"));
    assert_eq!(peer.run(&server, "EXISTS k l"), ":1|");
    let stats = peer.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_exec:calls=1,") && stats.contains("rejected_calls=2,"), "{stats}");

    // The transaction waits for other work, and keeps its queue and its watched keys.
    free(&mut server, 28.0, 320.0);
    for changes in [false, true] {
        other.hold_jobs = true;
        assert_eq!(other.run(&server, "HGETALL h"), "");
        assert_eq!(peer.run(&server, "WATCH k"), "+OK|");
        begin(&mut peer, &server, &["HGETALL h", "APPEND k w"]);
        peer.feed(b"EXEC\r\n", usize::MAX);
        assert!(matches!(peer.drive(&server), Stop::Sleep(_)), "it waits");
        server.advance_ms(1_000);
        assert!(matches!(peer.drive(&server), Stop::Sleep(_)), "it waits on");
        let job = other.job.take().expect("it is held");
        other.session.lane_done(job.run(server.now, &|| {}));
        other.drive(&server);
        other.replies();
        other.hold_jobs = false;
        if changes {
            assert_eq!(other.run(&server, "SET k other"), "+OK|");
        }
        server.advance_ms(1_000);
        peer.drive(&server);
        let reply = peer.replies();
        match changes {
            true => assert_eq!(reply, "*-1|"),
            false => assert!(reply.starts_with("*2|*10000|") && reply.ends_with("|:2|"), "{}", reply.len()),
        }
    }
    assert_eq!(peer.run(&server, "GET k"), "$5|other|", "the transaction is over");
    let phases = json(&mut peer, &server, "DIAG PHASES");
    let of = |row: &&serde_json::Value| row["command"] == "exec";
    let exec = phases["commands"].as_array().expect("an array").iter().find(of).expect("it ran");
    assert_eq!(exec["parked"]["count"], 2, "{exec}");
}

#[test]
fn every_command_that_leaves_its_session_asks_for_its_memory() {
    let mut server = Server::new();
    let (mut peer, mut limited) = (server.connect(), server.connect());
    for i in 0..100 {
        let parts: String = (0..100).map(|j| format!(" f{j} {}", "v".repeat(2_000))).collect();
        assert_eq!(peer.run(&server, &format!("HSET doc:{i}{parts}")), ":100|");
    }
    let entry = format!("XADD s * f {}", "v".repeat(2_000));
    (0..5_000).for_each(|_| assert!(peer.run(&server, &entry).starts_with('$')));
    peer.script(&server, &[("ACL SETUSER bob on nopass +@all ~n* ~x*", "+OK|")]);
    assert_eq!(limited.run(&server, "AUTH bob x"), "+OK|");
    let long = "local n = 0 for i = 1, 1000000 do n = n + i end return n";
    let script = format!("EVAL \"{long}\" 0");
    free(&mut server, 100.0, 320.0);
    assert_eq!(peer.run(&server, &script), ":500000500000|");
    free(&mut server, 14.0, 320.0);
    // Run a script that has moved from its worker to the lane.
    assert_eq!(peer.run(&server, &script), "-OOM eval would need 8 MiB, 4 MiB more than is free|");
    // A blocking command that would read much is refused.
    let reply = peer.run(&server, "XREAD COUNT 5000 BLOCK 0 STREAMS s 0");
    assert!(reply.starts_with("-OOM xread would need "), "{}", &reply[..reply.len().min(80)]);
    assert_eq!(peer.run(&server, "XREAD COUNT 1 BLOCK 0 STREAMS s 0").matches("$1|f|").count(), 1);
    // The rights to many keys are checked on a helper thread, so the need is estimated from the request alone.
    let many = format!("MGET {}", "n".repeat(1_000) + &format!(" {}", "x".repeat(990)).repeat(20_000));
    let reply = limited.run(&server, &many);
    assert!(reply.starts_with("-OOM mget would need 20 MiB, "), "{}", &reply[..reply.len().min(80)]);
    assert_eq!(limited.run(&server, "GET doc:1").split(' ').next(), Some("-NOPERM"));
    // A search asks for many documents. Without LIMIT it would ask for few.
    let reply = peer.run(&server, "FT.SEARCH i word LIMIT 0 100000");
    assert!(reply.starts_with("-OOM ft.search would need "), "{reply}");
    assert!(peer.run(&server, "FT.SEARCH i word").starts_with("+FT.SEARCH ran"));
    assert!(peer.run(&server, "FT.SEARCH i word LIMIT 0 10").starts_with("+FT.SEARCH ran"));
    // The need of this command is the text in its request, so it is accepted.
    assert!(peer.run(&server, "RX.MATCH set lane").starts_with("+RX.MATCH ran"));
    assert!(peer.run(&server, "INFO errorstats").contains("errorstat_OOM:count=4|"));
}

#[test]
fn work_waits_for_other_work_to_end() {
    let mut server = Server::with("slowlog-log-slower-than 500000");
    let (mut peer, mut other) = (server.connect(), server.connect());
    fill(&server, &mut peer, "h");
    free(&mut server, 28.0, 320.0);
    // Enough memory is free for one reply, but not for two.
    peer.hold_jobs = true;
    assert_eq!(peer.run(&server, "HGETALL h"), "");
    other.feed(b"HGETALL h\r\n", usize::MAX);
    assert!(matches!(other.drive(&server), Stop::Sleep(_)));
    server.advance_ms(1_000);
    assert!(matches!(other.drive(&server), Stop::Sleep(_)), "it waits on");
    let job = peer.job.take().expect("it is held");
    peer.session.lane_done(job.run(server.now, &|| {}));
    peer.drive(&server);
    assert!(peer.replies().len() > 10_000_000);
    server.advance_ms(1_000);
    // The host's clock differs from the clock that sessions are given, and is far ahead.
    server.step_us.store(1_000_000_000, Relaxed);
    other.drive(&server);
    server.step_us.store(0, Relaxed);
    assert!(other.replies().len() > 10_000_000);
    // The reply says what the command waited for.
    peer.hold_jobs = false;
    let log = json(&mut peer, &server, "DIAG SLOWLOG");
    let waited = log["waited"].as_array().expect("an array").iter().find(|row| row["args"][0] == "HGETALL");
    let waited = waited.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(waited["parked_on"], "memory");
    assert!(waited["parked_us"].as_u64() >= Some(2_000_000), "{waited}");
}

#[test]
fn work_that_waited_for_long_is_refused() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    fill(&server, &mut peer, "h");
    free(&mut server, 28.0, 320.0);
    peer.hold_jobs = true;
    assert_eq!(peer.run(&server, "HGETALL h"), "");
    other.feed(b"HGETALL h\r\n", usize::MAX);
    assert!(matches!(other.drive(&server), Stop::Sleep(_)));
    server.advance_ms(31_000);
    other.drive(&server);
    let reply = other.replies();
    assert!(reply.starts_with("-OOM hgetall would need "), "{reply}");
}

#[test]
fn the_fastest_growing_clients_are_slowed_when_memory_is_almost_used_up() {
    let mut server = Server::new();
    let (mut fast, mut slow, mut admin) = (server.connect(), server.connect(), server.connect());
    let big = format!("SET k {}", "x".repeat(600_000));
    let look = |server: &mut Server| {
        server.advance_ms(150);
        server.engine.watch_memory(server.now);
    };
    free(&mut server, 500.0, 1_000.0);
    look(&mut server);
    assert_eq!(fast.run(&server, &big), "+OK|");
    look(&mut server);
    assert!(!has_rule(&mut admin, &server, "findings", "memory-growth"), "half is free");
    // Almost nothing is free: the server measures which clients write, then slows them.
    free(&mut server, 60.0, 1_000.0);
    look(&mut server);
    assert_eq!((fast.run(&server, &big), slow.run(&server, "SET a 1")), ("+OK|".into(), "+OK|".into()));
    look(&mut server);
    assert!(has_rule(&mut admin, &server, "findings", "memory-growth"));
    assert!(has_rule(&mut admin, &server, "actions", "memory-growth"));
    assert_eq!(fast.run(&server, &big), "+OK|", "then it waits for what it wrote");
    fast.feed(&crate::fixture::command(&big), usize::MAX);
    let Stop::Sleep(until_us) = fast.drive(&server) else { panic!("it is slowed") };
    assert!((1..=1_000_000).contains(&(until_us - server.now.mono_us)));
    // Other clients are not slowed, and neither are readers.
    (0..100).for_each(|i| assert_eq!(slow.run(&server, &format!("SET a:{i} 1")), "+OK|"));
    assert_eq!(slow.run(&server, "GET a"), "$1|1|");
    server.advance_ms(1_000);
    fast.drive(&server);
    assert_eq!(fast.replies(), "+OK|", "nobody is stopped");
    // Memory is free again.
    free(&mut server, 500.0, 1_000.0);
    look(&mut server);
    assert!(!has_rule(&mut admin, &server, "findings", "memory-growth"));
    (0..5).for_each(|_| assert_eq!(fast.run(&server, &big), "+OK|"));
}

#[test]
fn a_disk_without_room_keeps_what_matters() {
    let disk = Disk::default();
    let text = "appendfsync everysec\nauto-aof-rewrite-min-size 1\nauto-aof-rewrite-percentage 1";
    let mut server = Server::on_disk(text, Arc::new(disk.clone())).expect("it is whole");
    server.engine.open_history();
    let mut peer = server.connect();
    let roomy = [("disk.free", 1e11), ("disk.size", 1e12)];
    let full = [("disk.free", 10.0), ("disk.size", 1e12)];
    say(&mut server, &roomy);
    assert!(server.engine.unready().is_empty());
    say(&mut server, &full);
    assert!(has_rule(&mut peer, &server, "actions", "disk-pressure"));
    assert!(server.engine.unready()[0].contains("full"), "{:?}", server.engine.unready());
    let reply = json(&mut peer, &server, "DIAG DOCTOR");
    assert_eq!(
        (&reply["findings"][0]["rule"], &reply["findings"][0]["level"]),
        (&"disk-space".into(), &"alert".into())
    );
    // The history does not try to write to the full disk.
    disk.set_room(Some(0));
    seconds(&mut server, 40);
    assert!(!has_rule(&mut peer, &server, "findings", "history-disk"));
    disk.set_room(None);
    // A rewrite would not fit on the disk, so it does not begin. Writes continue.
    peer.run(&server, "SET a 1");
    server.engine.write_aof(true);
    server.engine.tick(server.now);
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_bgrewrite_status:err"));
    assert_eq!(peer.run(&server, "SET a 2"), "+OK|");
    say(&mut server, &roomy);
    assert!(server.engine.unready().is_empty());
    seconds(&mut server, 60);
    server.engine.write_aof(true);
    server.engine.tick(server.now);
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_bgrewrite_status:ok"));
    assert!(server.used_bytes.load(Relaxed) > 0);
}
