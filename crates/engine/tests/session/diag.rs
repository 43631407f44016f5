//! DIAG PHASES, SLOWLOG, HOTKEYS, BIGKEYS, MEMORY and DOCTOR. Each test makes a situation and expects a report about
//! it.

use crate::disk::Disk;
use crate::fixture::{Peer, Server};
use crate::history::{json, seconds};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_diag::history::Figure;

fn find<'v>(rows: &'v Value, member: &str, value: &str) -> &'v Value {
    let found = rows.as_array().expect("an array").iter().find(|row| row[member] == value);
    found.unwrap_or_else(|| panic!("no {value} in {rows}"))
}

#[test]
fn the_waits_of_a_command_are_reported_by_phase() {
    let mut server = Server::with("slowlog-log-slower-than 500000");
    let (mut peer, mut other) = (server.connect(), server.connect());
    assert_eq!(peer.run(&server, "CLIENT PAUSE 2000 WRITE"), "+OK|");
    assert_eq!(other.run(&server, "SET k v"), "", "it is paused");
    server.advance_ms(2_500);
    other.drive(&server);
    assert_eq!(other.replies(), "+OK|");
    // A job waits for a helper thread while the clock moves.
    other.hold_jobs = true;
    assert_eq!(other.run(&server, "KEYS *"), "");
    server.step_us.store(700_000, Relaxed);
    peer.run(&server, "PING");
    let job = other.job.take().expect("it is held");
    other.session.lane_done(job.run(server.now, &|| {}));
    other.drive(&server);
    server.step_us.store(0, Relaxed);
    assert!(other.replies().starts_with("*1|"));
    let phases = json(&mut peer, &server, "DIAG PHASES");
    let (set, keys) =
        (find(&phases["commands"], "command", "set"), find(&phases["commands"], "command", "keys"));
    assert_eq!((set["parked"]["count"].as_u64(), keys["queued"]["count"].as_u64()), (Some(1), Some(1)));
    assert!(set["parked"]["max"].as_f64() >= Some(900_000.0), "{set}");
    assert!(keys["queued"]["max"].as_f64() >= Some(690_000.0), "{keys}");
    assert!(find(&phases["commands"], "command", "client|pause")["parked"].is_null());
    let log = json(&mut peer, &server, "DIAG SLOWLOG");
    let paused = log["waited"].as_array().expect("an array").iter().find(|row| row["args"][0] == "SET");
    let paused = paused.unwrap_or_else(|| panic!("{log}"));
    assert_eq!((paused["parked_on"].as_str(), paused["args"][2].as_str()), (Some("pause"), Some("v")));
    assert!(paused["parked_us"].as_u64() >= Some(2_000_000), "{paused}");
    assert_eq!(peer.run(&server, "DIAG SLOWLOG x"), "-ERR value is not an integer or out of range|");
    peer.run(&server, "SLOWLOG RESET");
    assert_eq!(json(&mut peer, &server, "DIAG SLOWLOG")["waited"], Value::Array(Vec::new()));
}

#[test]
fn a_command_that_its_session_parks_is_told_by_phase() {
    let mut server = Server::with("slowlog-log-slower-than 100000\nlogin-failures-max 1");
    let (mut peer, mut admin) = (server.connect(), server.connect());
    let woken = |peer: &mut Peer, server: &mut Server, ms: u64| {
        server.advance_ms(ms);
        peer.drive(server);
        peer.replies()
    };
    // Three waits: one is served by another client, one times out, and one is told to try again because the list is
    // long.
    assert_eq!(peer.run(&server, "BLPOP l 0"), "");
    server.advance_ms(300);
    assert_eq!(admin.run(&server, "RPUSH l a"), ":1|");
    assert_eq!(woken(&mut peer, &mut server, 0), "*2|$1|l|$1|a|");
    assert_eq!(peer.run(&server, "XREAD BLOCK 200 STREAMS s $"), "");
    assert_eq!(woken(&mut peer, &mut server, 200), "*-1|");
    // WAIT for a replica, although there is no replica.
    assert_eq!(peer.run(&server, "WAIT 1 400"), "");
    assert_eq!(woken(&mut peer, &mut server, 400), ":0|");
    // A login is delayed after failed logins.
    admin.script(&server, &[("ACL SETUSER bob on >pw +@all ~*", "+OK|")]);
    (0..2).for_each(|_| assert!(peer.run(&server, "AUTH bob no").starts_with("-WRONGPASS ")));
    assert_eq!(peer.run(&server, "AUTH bob pw"), "");
    assert_eq!(woken(&mut peer, &mut server, 500), "+OK|");

    let phases = json(&mut admin, &server, "DIAG PHASES");
    let parked = |command: &str| {
        let row = &find(&phases["commands"], "command", command)["parked"];
        (row["count"].as_u64().unwrap_or(0), row["max"].as_f64().unwrap_or(0.0))
    };
    for (command, us) in
        [("blpop", 300_000.0), ("xread", 200_000.0), ("wait", 400_000.0), ("auth", 500_000.0)]
    {
        let (count, max) = parked(command);
        assert!(count == 1 && (us * 0.9..us * 1.1).contains(&max), "{command}: {count} {max}");
    }
    for (on, count, us) in [("keys", 2, 500_000), ("replicas", 1, 400_000), ("logins", 1, 500_000)] {
        let row = find(&phases["parked_on"], "on", on);
        assert_eq!((row["count"].as_u64(), row["total"].as_u64()), (Some(count), Some(us)), "{row}");
    }
    // The log keeps waits for the server with their arguments. It does not keep a wait for a key, because its client
    // asked for it.
    let log = json(&mut admin, &server, "DIAG SLOWLOG");
    let waited: Vec<(Option<&str>, Option<&str>)> = log["waited"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|row| (row["args"][0].as_str(), row["parked_on"].as_str()))
        .collect();
    assert_eq!(waited, [(Some("AUTH"), Some("logins")), (Some("WAIT"), Some("replicas"))]);
    assert!(!log.to_string().contains("pw"), "{log}");
    assert_eq!(admin.run(&server, "CONFIG RESETSTAT"), "+OK|");
    assert_eq!(json(&mut admin, &server, "DIAG PHASES")["parked_on"], Value::Array(Vec::new()));
}

#[test]
fn a_session_that_is_told_to_try_again_counts_its_wait_once() {
    let mut server = Server::with("slowlog-log-slower-than 0");
    let (mut peer, mut admin) = (server.connect(), server.connect());
    assert_eq!(peer.run(&server, "BLMPOP 0 1 l LEFT COUNT 100000"), "");
    server.advance_ms(300);
    let elements = " e".repeat(5_000);
    assert_eq!(admin.run(&server, &format!("RPUSH l{elements}")), ":5000|");
    // 5,000 elements are too much for the pusher, so the session makes the attempt on a helper thread. The host's
    // clock differs from the clock that sessions are told, and is far ahead.
    server.step_us.store(1_000_000_000, Relaxed);
    peer.drive(&server);
    server.step_us.store(0, Relaxed);
    assert!(peer.replies().starts_with("*2|$1|l|*5000|"));
    let phases = json(&mut admin, &server, "DIAG PHASES");
    let parked = &find(&phases["commands"], "command", "blmpop")["parked"];
    assert_eq!(parked["count"], 1, "{parked}");
    let keys = find(&phases["parked_on"], "on", "keys");
    assert!(keys["count"] == 1 && keys["total"].as_u64() >= Some(300_000), "{keys}");
    let stats = admin.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_blmpop:calls=1,"), "{stats}");
    // The command's entry says how long the command waited for the key before it ran.
    let log = admin.run(&server, "SLOWLOG GET -1 PHASES");
    let (_, of_it) = log.split_once("$6|BLMPOP|").unwrap_or_else(|| panic!("{log}"));
    let (_, parked_on) = of_it.split_once("$9|parked-on|").unwrap_or_else(|| panic!("{log}"));
    assert!(parked_on.starts_with("$4|keys|"), "{parked_on}");
}

#[test]
fn figures_in_a_transaction_wait_for_no_lock_of_the_transaction() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.script(&server, &[("SET k v", "+OK|"), ("MULTI", "+OK|"), ("SET k w", "+QUEUED|")]);
    for line in ["DIAG MEMORY", "CLIENT SETNAME me", "DIAG BIGKEYS", "DIAG SYSTEM", "INFO keyspace"] {
        assert_eq!(peer.run(&server, line), "+QUEUED|");
    }
    let replies = peer.run(&server, "EXEC");
    assert!(replies.starts_with("*6|+OK|$") && replies.contains("db0:keys=1,"), "{replies:.200}");
}

#[test]
fn a_hot_key_and_a_big_key_are_found_without_a_scan() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.run(&server, "SET hot v");
    for i in 0..4_000 {
        peer.run(&server, "GET hot");
        peer.run(&server, &format!("SET cold:{i} v"));
    }
    let hot = json(&mut peer, &server, "DIAG HOTKEYS");
    let first = &hot["by_count"][0];
    assert_eq!(first["key"], "hot", "{hot}");
    let count = first["count"].as_f64().expect("a number");
    assert!((2_000.0..8_000.0).contains(&count), "{count} of 4,000");
    assert!(hot["by_count"].as_array().is_some_and(|rows| rows.len() <= 32));
    let elements: String = (0..500).map(|i| format!(" element:{i}")).collect();
    (0..40).for_each(|_| _ = peer.run(&server, &format!("RPUSH big{elements}")));
    peer.run(&server, "LRANGE big 0 -1");
    let big = json(&mut peer, &server, "DIAG BIGKEYS");
    assert_eq!(
        (big["keys"][0]["key"].as_str(), big["keys"][0]["elements"].as_u64()),
        (Some("big"), Some(20_000))
    );
    peer.run(&server, "DEL big");
    assert_ne!(json(&mut peer, &server, "DIAG BIGKEYS")["keys"][0]["key"], "big");
    assert_eq!(json(&mut peer, &server, "DIAG HOTKEYS RESET")["by_count"], Value::Array(Vec::new()));
    assert_eq!(peer.run(&server, "DIAG HOTKEYS WHAT"), "-ERR syntax error|");
}

#[test]
fn the_ledger_adds_up() {
    let mut server = Server::new();
    let mut peer = server.connect();
    (0..200).for_each(|i| _ = peer.run(&server, &format!("SET k:{i} {}", "v".repeat(300))));
    (0..50).for_each(|i| _ = peer.run(&server, &format!("RPUSH l:{i} a b c")));
    seconds(&mut server, 1);
    server.used_bytes.store(10 << 20, Relaxed);
    let memory = json(&mut peer, &server, "DIAG MEMORY");
    let purposes = memory["purposes"].as_array().expect("an array");
    let sum: i64 = purposes.iter().filter_map(|p| p["bytes"].as_i64()).sum();
    assert_eq!(sum + memory["other"].as_i64().expect("a number"), 10 << 20);
    assert!(find(&memory["purposes"], "name", "history")["bytes"].as_u64() > Some(0));
    let rss: i64 =
        memory["resident"].as_array().expect("an array").iter().filter_map(|p| p["bytes"].as_i64()).sum();
    assert_eq!(Some(rss), memory["rss"].as_i64());
    let types = &memory["data_by_type"];
    let looked_at = types["keys_looked_at"].as_u64().expect("a number");
    assert!(types["keys"] == 250 && looked_at == 250, "few keys are all looked at: {types}");
    assert!(
        find(&types["types"], "type", "string")["bytes"].as_u64()
            > find(&types["types"], "type", "list")["bytes"].as_u64()
    );
}

/// The rules of DIAG DOCTOR that report something now.
#[track_caller]
fn rules(peer: &mut Peer, server: &Server) -> Vec<String> {
    let report = json(peer, server, "DIAG DOCTOR");
    let findings = report["findings"].as_array().expect("an array");
    for finding in findings {
        assert!(report["text"].as_str().is_some_and(|t| t.contains(finding["todo"].as_str().expect("text"))));
    }
    findings.iter().filter_map(|f| f["rule"].as_str().map(String::from)).collect()
}

#[test]
fn figures_of_the_system_become_advice_and_pressure_makes_the_server_act() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let say = |server: &mut Server, figures: &[(&'static str, f64, bool)]| {
        // The counters grow at a steady rate for six seconds.
        for second in 0..6 {
            let figure = |(name, value, is_rate): &(&'static str, f64, bool)| match is_rate {
                true => Figure::rate(*name, "share", value * f64::from(second)),
                false => Figure::gauge(*name, "bytes", *value),
            };
            *server.figures.lock() = figures.iter().map(figure).collect();
            seconds(server, 1);
        }
    };
    seconds(&mut server, 2);
    assert_eq!(rules(&mut peer, &server), Vec::<String>::new());
    assert!(peer.run(&server, "DIAG DOCTOR").contains("Nothing is wrong."));
    say(&mut server, &[("disk.free", 1e8, false), ("disk.size", 1e12, false)]);
    assert_eq!(rules(&mut peer, &server), ["disk-space"]);
    for (figures, rule) in [
        (&[("host.cpu.steal", 0.5, true)][..], "steal"),
        (&[("cgroup.cpu.throttled", 0.3, true)], "throttled"),
        (&[("faults.major", 50.0, true)], "major-faults"),
    ] {
        say(&mut server, figures);
        seconds(&mut server, 1);
        assert!(rules(&mut peer, &server).contains(&rule.to_string()), "{rule}");
    }
    let report = json(&mut peer, &server, "DIAG DOCTOR");
    assert!(
        report["actions"].as_array().is_some_and(|acts| acts.iter().all(|a| a["rule"] == "disk-pressure"))
    );
    say(&mut server, &[("pressure.memory", 0.4, true)]);
    let report = json(&mut peer, &server, "DIAG DOCTOR");
    assert_eq!(find(&report["findings"], "rule", "memory-pressure")["level"], "alert");
    assert!(
        find(&report["actions"], "rule", "memory-pressure")["did"]
            .as_str()
            .is_some_and(|d| d.contains("returned"))
    );
    assert_eq!(server.purges.load(Relaxed), 1, "not with every sample");
    assert_eq!(server.shrinks.load(Relaxed), 1, "caches are dropped first");
    // Other control groups wait for memory at their own limits. The machine has enough.
    server.system_bytes.store(1 << 30, Relaxed);
    say(&mut server, &[]);
    seconds(&mut server, 40);
    for (available, own, counts) in [(0.5e9, 0.0, false), (0.1e9, 0.0, true), (0.5e9, 0.4, true)] {
        say(
            &mut server,
            &[
                ("pressure.memory", 0.4, true),
                ("cgroup.pressure.memory", own, true),
                ("host.memory.available", available, false),
            ],
        );
        let is_found = rules(&mut peer, &server).contains(&"memory-pressure".to_string());
        assert_eq!((is_found, server.purges.load(Relaxed)), (counts, 1 + usize::from(counts)));
        server.purges.store(1, Relaxed);
        say(&mut server, &[]);
        seconds(&mut server, 40);
    }
    // About 40 seconds later, DOCTOR gives another reason.
    seconds(&mut server, 40);
    say(&mut server, &[("cgroup.memory.used", 98e6, false), ("cgroup.memory.limit", 1e8, false)]);
    assert!(rules(&mut peer, &server).contains(&"cgroup-memory".to_string()));
    assert_eq!(server.purges.load(Relaxed), 2);
    // Commands that need memory were refused, and work again when memory is free.
    assert!(rules(&mut peer, &server).contains(&"memory-ceiling".to_string()));
    server.used_bytes.fetch_add(1 << 20, Relaxed);
    server.engine.watch_memory(server.now);
    assert!(peer.run(&server, "SET k v").starts_with("-OOM "));
    assert!(peer.run(&server, "GET k").starts_with("$-1"));
    assert!(peer.run(&server, "CONFIG GET maxmemory").contains("|0|"), "what is configured stays");
    say(&mut server, &[("cgroup.memory.used", 80e6, false), ("cgroup.memory.limit", 1e8, false)]);
    assert!(!rules(&mut peer, &server).contains(&"memory-ceiling".to_string()));
    assert_eq!(peer.run(&server, "SET k v"), "+OK|");
}

#[test]
fn counters_of_the_server_become_advice() {
    let mut server = Server::with("maxclients 2\nlatency-monitor-threshold 100\nenable-debug-command yes");
    let mut peer = server.connect();
    seconds(&mut server, 2);
    let has = |peer: &mut Peer, server: &Server, rule: &str| rules(peer, server).iter().any(|r| r == rule);
    assert!(!has(&mut peer, &server, "clients"));
    let _second = server.connect();
    assert!(has(&mut peer, &server, "clients"));
    assert!(server.try_connect(true).is_err());
    seconds(&mut server, 1);
    assert!(has(&mut peer, &server, "rejected"));
    // The clock goes back by an hour.
    server.now.unix_us -= 3_600_000_000;
    seconds(&mut server, 1);
    assert!(has(&mut peer, &server, "clock"));
    // The background thread looks at the workers while a command takes long.
    assert!(!has(&mut peer, &server, "stuck-worker") && !has(&mut peer, &server, "latency"));
    let (engine, mut later) = (server.engine.clone(), server.now);
    later.mono_us += 250_000;
    *server.on_clock.lock() = Some(Box::new(move || engine.tick(later)));
    server.step_us.store(300_000, Relaxed);
    peer.run(&server, "CONFIG GET port");
    server.step_us.store(0, Relaxed);
    assert!(has(&mut peer, &server, "stuck-worker") && has(&mut peer, &server, "latency"));
    let report = json(&mut peer, &server, "DIAG DOCTOR");
    assert!(
        find(&report["actions"], "rule", "stuck-worker")["did"]
            .as_str()
            .is_some_and(|d| d.contains("250 ms"))
    );
    // Set options that cause findings about memory.
    peer.run(&server, "CONFIG SET maxmemory 1mb");
    server.used_bytes.store(64 << 20, Relaxed);
    server.engine.watch_memory(server.now);
    assert!(has(&mut peer, &server, "maxmemory"));
    peer.run(&server, "CONFIG SET maxmemory 0");
    server.system_bytes.store(3 << 20, Relaxed);
    assert!(has(&mut peer, &server, "no-maxmemory"));
}

#[test]
fn evictions_and_full_buffers_become_advice() {
    let mut server = Server::with("maxmemory-policy allkeys-random");
    let (mut peer, mut slow) = (server.connect(), server.connect());
    (0..200).for_each(|i| _ = peer.run(&server, &format!("SET k:{i} v")));
    seconds(&mut server, 2);
    assert_eq!(rules(&mut peer, &server), Vec::<String>::new());
    // Memory is over the limit until some keys are evicted.
    peer.run(&server, "CONFIG SET maxmemory 1mb");
    server.used_bytes.store(64 << 20, Relaxed);
    server.engine.watch_memory(server.now);
    server.used_bytes.store(100 << 10, Relaxed);
    server.engine.watch_memory(server.now);
    seconds(&mut server, 1);
    assert_eq!(rules(&mut peer, &server), ["evicting"]);
    // The first half of a command of more than a megabyte.
    slow.feed(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1500000\r\n", usize::MAX);
    slow.feed(&[b'x'; 1 << 20], usize::MAX);
    slow.drive(&server);
    assert!(rules(&mut peer, &server).contains(&"client-buffers".to_string()));
}

#[test]
fn a_disk_that_fails_is_an_alert() {
    let disk = Disk::default();
    let mut server = Server::on_disk("appendfsync everysec", Arc::new(disk.clone())).expect("it is whole");
    server.engine.open_history();
    let mut peer = server.connect();
    seconds(&mut server, 2);
    assert_eq!(rules(&mut peer, &server), Vec::<String>::new());
    disk.set_room(Some(10));
    peer.run(&server, "SET a 1");
    server.engine.write_aof(false);
    seconds(&mut server, 40);
    let report = rules(&mut peer, &server);
    assert_eq!(report, ["persistence", "history-disk"]);
}
