//! The history: DIAG's reports, the file across restarts, a full disk, and clocks that go back.

use crate::disk::Disk;
use crate::fixture::{Peer, Server};
use serde_json::Value;
use std::sync::Arc;
use strand_diag::history::{Figure, HEADER, Recorder, Stamp};

/// The JSON of a DIAG command.
#[track_caller]
pub fn json(peer: &mut Peer, server: &Server, line: &str) -> Value {
    let reply = peer.run(server, line);
    let text = reply.split_once('|').expect("a bulk string").1.trim_end_matches('|');
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {reply}"))
}

/// The values of a series.
fn values(table: &Value, name: &str) -> Vec<Option<f64>> {
    let series = table["series"].as_array().expect("an array").iter().find(|s| s["name"] == name);
    let values = series.unwrap_or_else(|| panic!("{name} in {table}"))["values"].as_array();
    values.expect("an array").iter().map(Value::as_f64).collect()
}

pub fn seconds(server: &mut Server, n: u64) {
    for _ in 0..n {
        server.advance_ms(1000);
        server.engine.sample(server.now);
    }
}

#[test]
fn the_history_has_a_row_for_each_second() {
    let mut server = Server::new();
    let mut peer = server.connect();
    seconds(&mut server, 1);
    for i in 0..7 {
        assert_eq!(peer.run(&server, &format!("SET k:{i} v")), "+OK|");
    }
    peer.run(&server, "GET k:1");
    peer.run(&server, "GET none");
    peer.run(&server, "LPUSH l a b c");
    seconds(&mut server, 2);
    let table = json(&mut peer, &server, "DIAG HISTORY SERIES ops.*,keys.*,clients.connected,memory.data");
    assert_eq!(table["step_s"], 1);
    assert_eq!(table["times_ms"].as_array().map(Vec::len), Some(3));
    for (name, last) in [
        ("ops.string", [None, Some(9.0), Some(0.0)]),
        ("ops.list", [None, Some(1.0), Some(0.0)]),
        ("keys.hits", [None, Some(1.0), Some(0.0)]),
        ("keys.misses", [None, Some(1.0), Some(0.0)]),
        ("keys.count", [Some(0.0), Some(8.0), Some(8.0)]),
        ("clients.connected", [Some(1.0), Some(1.0), Some(1.0)]),
    ] {
        assert_eq!(values(&table, name), last, "{name}");
    }
    assert!(values(&table, "memory.data")[2] > Some(0.0));
    let live = json(&mut peer, &server, "DIAG LIVE SERIES keys.count");
    assert_eq!(live["values"]["keys.count"], 8);
    // Slow commands appear in the percentiles of the second in which they ran.
    server.step_us.store(3_000, std::sync::atomic::Ordering::Relaxed);
    peer.run(&server, "LRANGE l 0 -1");
    seconds(&mut server, 1);
    let table = json(&mut peer, &server, "DIAG HISTORY SERIES latency.*");
    let p99 = values(&table, "latency.list.p99");
    assert!(p99[3] >= Some(3_000.0), "{p99:?}");
    // CONFIG RESETSTAT does not appear as a burst.
    peer.run(&server, "CONFIG RESETSTAT");
    seconds(&mut server, 1);
    let table = json(&mut peer, &server, "DIAG HISTORY SERIES ops.list");
    assert_eq!(values(&table, "ops.list").last(), Some(&Some(0.0)));
}

#[test]
fn bad_questions_are_refused_and_only_an_administrator_may_ask() {
    let mut server = Server::new();
    let mut peer = server.connect();
    seconds(&mut server, 2);
    for (line, reply) in [
        ("DIAG HISTORY FROM", "-ERR syntax error|"),
        ("DIAG HISTORY STEP 0", "-ERR STEP must be a whole number from 1 to 1099511627776|"),
        ("DIAG HISTORY points 10001", "-ERR POINTS must be a whole number from 1 to 10000|"),
        (
            "DIAG HISTORY FROM 99999999999999999",
            "-ERR FROM must be a whole number from -1099511627776 to 1099511627776|",
        ),
        ("DIAG HISTORY WHAT 1", "-ERR syntax error|"),
        ("DIAG LIVE x", "-ERR syntax error|"),
        ("DIAG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try DIAG HELP.|"),
    ] {
        assert_eq!(peer.run(&server, line), reply, "{line}");
    }
    let far = json(&mut peer, &server, "DIAG HISTORY FROM 1099511627776 TO -1");
    assert_eq!(far["times_ms"].as_array().map(Vec::len), Some(0));
    peer.run(&server, "ACL SETUSER ann on nopass ~* +@all -@admin");
    peer.run(&server, "AUTH ann x");
    for line in ["DIAG HISTORY", "DIAG LIVE", "DIAG SERIES"] {
        assert!(peer.run(&server, line).starts_with("-NOPERM "), "{line}");
    }
}

/// The history's file of a Strand that counted trigram indexes as indexes, and regular expressions as caches.
fn file_of_an_older_strand() -> Vec<u8> {
    let mut recorder = Recorder::default();
    for s in 0..46 {
        let at = Stamp { unix_ms: 1_000_000_000 + s * 1000, mono_ms: s as u64 * 1000 };
        let figures = [("memory.data", 5.0), ("memory.indexes", 700.0), ("memory.caches", 300.0)];
        recorder.record(at, &figures.map(|(name, bytes)| Figure::gauge(name, "bytes", bytes)));
    }
    let mut file = Vec::new();
    recorder.history().save(&mut file).expect("writing to a vector cannot fail");
    file
}

#[test]
fn the_history_of_an_older_strand_continues_with_the_purposes_of_today() {
    let disk = Disk::default();
    disk.put("history", &file_of_an_older_strand());
    for (starts, rows) in [(1, 5), (2, 8)] {
        let mut server = Server::on_disk("", Arc::new(disk.clone())).expect("the disk is whole");
        server.engine.open_history();
        let mut peer = server.connect();
        seconds(&mut server, 31 + 15 * (starts - 1));
        let line = "DIAG HISTORY FROM 1 TO 9999999999 STEP 15 SERIES memory.*";
        let table = json(&mut peer, &server, line);
        assert_eq!(table["times_ms"].as_array().map(Vec::len), Some(rows), "{table}");
        assert_eq!(values(&table, "memory.indexes")[..3], [Some(700.0); 3]);
        assert_eq!(values(&table, "memory.caches")[..3], [Some(300.0); 3]);
        for name in ["memory.trigrams", "memory.regexes"] {
            let of_name = values(&table, name);
            assert_eq!(of_name[..3], [None; 3], "{name}: the older Strand did not count it");
            assert!(of_name[3..].iter().all(Option::is_some), "{name}: {of_name:?}");
        }
        let state = json(&mut peer, &server, "DIAG SERIES");
        assert_eq!((&state["on_disk"], &state["figures_without_a_series"]), (&true.into(), &0.into()));
    }
}

#[test]
fn a_file_of_another_format_is_replaced() {
    let disk = Disk::default();
    let mut file = file_of_an_older_strand();
    file[HEADER.len() - 1] += 1;
    disk.put("history", &file);
    let mut server = Server::on_disk("", Arc::new(disk.clone())).expect("the disk is whole");
    server.engine.open_history();
    seconds(&mut server, 31);
    assert!(disk.bytes("history").starts_with(HEADER), "the file is of this format now");
}

#[test]
fn the_history_is_there_after_a_restart_and_a_full_disk_costs_its_time_only() {
    let disk = Disk::default();
    let start = || {
        let server = Server::on_disk("", Arc::new(disk.clone())).expect("the disk is whole");
        server.engine.open_history();
        server
    };
    let mut server = start();
    let mut peer = server.connect();
    seconds(&mut server, 61);
    let state = json(&mut peer, &server, "DIAG SERIES");
    assert_eq!((state["on_disk"].as_bool(), state["levels"][1]["rows"].as_u64()), (Some(true), Some(4)));
    // The disk becomes full in the middle of a row.
    disk.set_room(Some(100));
    seconds(&mut server, 60);
    let state = json(&mut peer, &server, "DIAG SERIES");
    assert_eq!(state["on_disk"], false);
    assert!(state["disk_trouble"].as_str().is_some_and(|t| t.contains("No space left")), "{state}");
    assert_eq!(peer.run(&server, "GET k"), "$-1|", "it serves");
    // The server is killed while the disk is full. The rows written before survive.
    drop((peer, server));
    disk.set_room(None);
    let mut server = start();
    let mut peer = server.connect();
    assert_eq!(json(&mut peer, &server, "DIAG SERIES")["levels"][1]["rows"], 4);
    seconds(&mut server, 31);
    let state = json(&mut peer, &server, "DIAG SERIES");
    assert_eq!((state["on_disk"].as_bool(), state["levels"][1]["rows"].as_u64()), (Some(true), Some(6)));
    drop((peer, server));
    let mut server = start();
    let mut peer = server.connect();
    let table = json(&mut peer, &server, "DIAG HISTORY FROM 1 STEP 15 SERIES clients.connected");
    assert_eq!(values(&table, "clients.connected"), [Some(1.0); 6]);
    // The clock is an hour earlier than at the last row. All rows stay, in the order in which they were recorded.
    server.now.unix_us -= 3_600_000_000;
    seconds(&mut server, 16);
    let table =
        json(&mut peer, &server, "DIAG HISTORY FROM 1 TO 9999999999 STEP 15 SERIES clients.connected");
    let times = table["times_ms"].as_array().expect("an array");
    assert_eq!(times.len(), 7);
    assert!(times[6].as_i64() < times[5].as_i64());
}
