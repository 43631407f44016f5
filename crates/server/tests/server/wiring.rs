//! The parts are connected: search follows the data, expiry works in the background, INFO has the process's
//! figures.

use crate::harness::{Server, command, is_true_within};
use std::time::Duration;

#[test]
fn a_search_sees_every_write_acknowledged_before_it() {
    let server = Server::start(&["--workers", "2"]);
    let (mut writer, mut reader) = (server.connect(), server.connect());
    writer.call("FT.CREATE idx ON HASH PREFIX 1 doc: SCHEMA title TEXT", "+OK\r\n");
    for i in 1..=20 {
        writer.call(&format!("HSET doc:{i} title strand{i}"), ":1\r\n");
        let id = format!("doc:{i}");
        let found = format!("*2\r\n:1\r\n${}\r\n{id}\r\n", id.len());
        reader.call(&format!("FT.SEARCH idx strand{i} NOCONTENT"), &found);
    }
    writer.call("DEL doc:7", ":1\r\n");
    reader.call("FT.SEARCH idx strand7 NOCONTENT", "*1\r\n:0\r\n");
    reader.call("FT._LIST", "*1\r\n$3\r\nidx\r\n");
    writer.call("SET key ticket-1234", "+OK\r\n");
    reader.send(&command("RX.GREP VALUES ticket-[0-9]{4} LIMIT 10"));
    assert!(reader.line().starts_with('*'));
}

#[test]
fn expired_keys_are_removed_without_being_accessed() {
    const KEYS: usize = 10_000;
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    let sets: Vec<u8> = (0..KEYS).flat_map(|i| command(&format!("SET key:{i} v PX 1"))).collect();
    client.send(&sets);
    client.expect(&b"+OK\r\n".repeat(KEYS));
    // Ten ticks with 2,000 keys each would take at least a second. The limit allows for a busy machine.
    let is_empty = is_true_within(Duration::from_secs(10), || {
        client.send(&command("DBSIZE"));
        client.line() == ":0"
    });
    assert!(is_empty, "{}", client.bulk("INFO keyspace"));
}

#[test]
fn info_has_the_figures_of_the_process() {
    let server = Server::start(&["--workers", "2"]);
    let mut client = server.connect();
    let info = client.bulk("INFO everything");
    let number = |name: &str| {
        let line =
            info.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {info}"));
        line.trim_start_matches(':').parse::<f64>().unwrap_or_else(|_| panic!("{name} is {line}"))
    };
    assert_eq!(number("process_id"), f64::from(server.pid()));
    assert_eq!(number("tcp_port"), f64::from(server.address.port()));
    assert!(number("used_memory") > 100_000.0 && number("used_memory_rss") > 1_000_000.0);
    assert!(number("total_system_memory") >= number("used_memory_rss"));
    assert!(number("used_cpu_user") + number("used_cpu_sys") > 0.0);
}

#[test]
fn the_slow_log_sees_every_door_and_every_thread() {
    let options = ["--workers", "1", "--slowlog-log-slower-than", "0", "--enable-debug-command", "yes"];
    let (server, doors) = Server::start_doors(&["--pack4-port"], &options);
    let mut framed = crate::harness::Client::connect(doors[0]);
    framed.send(&crate::pack4::frame(b"CLIENT SETNAME framed"));
    framed.expect(&crate::pack4::frame(b"+OK\r\n"));
    let mut plain = server.connect();
    plain.call("KEYS none", "*0\r\n");
    plain.call("DEBUG SLEEP 0.01", "+OK\r\n");
    plain.call("GET none", "$-1\r\n");
    let names: Vec<String> = {
        plain.send(&command("SLOWLOG GET"));
        assert_eq!(plain.line(), "*4");
        (0..4).map(|_| slow_entry(&mut plain)).collect()
    };
    assert_eq!(names, ["GET none", "DEBUG SLEEP 0.01", "KEYS none", "CLIENT SETNAME framed framed"]);
}

/// Reads an entry: the words, and the client's name if it has one.
fn slow_entry(client: &mut crate::harness::Client) -> String {
    assert_eq!(client.line(), "*6");
    let numbers: Vec<i64> = (0..3).map(|_| client.line()[1..].parse().expect("a number")).collect();
    let count = client.line()[1..].parse::<usize>().expect("a count");
    let mut words: Vec<String> = (0..count).map(|_| (client.line(), client.line()).1).collect();
    assert!(words[0] != "DEBUG" || numbers[2] >= 10_000, "{numbers:?}");
    let (_, address) = (client.line(), client.line());
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let (_, name) = (client.line(), client.line());
    words.extend(Some(name).filter(|n| !n.is_empty()));
    words.join(" ")
}
