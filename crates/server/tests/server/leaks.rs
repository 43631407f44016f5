//! Work that is repeated must not take more memory each time.

use crate::harness::{Client, Server};

/// Commits before the first measurement: caches and pools are full then.
const WARM_UP: usize = 100;
/// Commits between the two measurements. When the allocator kept the counts of each thread that has ended, they took 4 KB a
/// commit.
const COMMITS: usize = 500;
const GROWTH_BYTES_MAX: i64 = 1_000_000;

#[test]
fn commits_of_a_text_index_leave_no_memory_behind() {
    let server = Server::start(&["--workers", "1"]);
    let mut client = server.connect();
    client.call("FT.CREATE i PREFIX 1 d: SCHEMA t TEXT", "+OK\r\n");
    client.call("HSET d:1 t word", ":1\r\n");
    commit(&mut client, 0..WARM_UP);
    let before = unexplained_bytes(&mut client);
    commit(&mut client, WARM_UP..WARM_UP + COMMITS);
    let after = unexplained_bytes(&mut client);
    assert!(after - before < GROWTH_BYTES_MAX, "{before} bytes grew to {after}");
}

/// The first search after a change commits the index. A commit of the search library ends a thread.
fn commit(client: &mut Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        client.call(&format!("HSET d:1 t word{number}"), ":0\r\n");
        client.call(&format!("FT.SEARCH i word{number} LIMIT 0 0"), "*1\r\n:1\r\n");
    }
}

/// Memory in use without a named purpose.
fn unexplained_bytes(client: &mut Client) -> i64 {
    let told: serde_json::Value = serde_json::from_str(&client.bulk("DIAG MEMORY")).expect("JSON");
    told["other"].as_i64().expect("a number")
}
