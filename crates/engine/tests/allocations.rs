//! Promises about memory: the request path allocates nothing for GET and at most once for SET of a small value
//! (promise 6 of the design); long work does not take much memory.

#[path = "session/fixture.rs"]
mod fixture;

use fixture::{Peer, Server, Stop};

/// Commands in a pipeline, as a client sends them.
const PIPELINE: usize = 100;

/// Number of allocations from the arrival of the bytes until the reply is written.
fn allocations(server: &Server, peer: &mut Peer, input: &[u8]) -> u64 {
    let counted = allocation_counter::measure(|| {
        peer.feed(input, usize::MAX);
        assert_eq!(peer.drive(server), Stop::Read);
        let len = peer.session.output().len();
        peer.session.output().advance(len);
    });
    counted.count_total
}

#[test]
fn the_hot_path_allocates_nothing_for_get_and_once_for_set() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.hold_output = true;
    for i in 0..PIPELINE {
        let input = fixture::command(&format!("SET key:{i} {}", "v".repeat(256)));
        allocations(&server, &mut peer, &input);
    }
    let gets: Vec<u8> = (0..PIPELINE).flat_map(|i| fixture::command(&format!("GET key:{i}"))).collect();
    let sets: Vec<u8> =
        (0..PIPELINE).flat_map(|i| fixture::command(&format!("SET key:{i} {}", "w".repeat(256)))).collect();
    // The first rounds fill the pools and the buffers that later rounds reuse.
    for input in [&gets, &sets, &gets, &sets] {
        allocations(&server, &mut peer, input);
    }
    let (for_gets, for_sets) =
        (allocations(&server, &mut peer, &gets), allocations(&server, &mut peer, &sets));
    println!("{PIPELINE} GET: {for_gets} allocations; {PIPELINE} SET: {for_sets}");
    assert_eq!(for_gets, 0);
    assert!(for_sets <= PIPELINE as u64, "{for_sets}");
}

#[test]
fn comparing_strings_takes_no_memory_to_speak_of() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let (a, b) = ("ab".repeat(2500), "ba".repeat(2500));
    peer.run(&server, &format!("MSET a {a} b {b}"));
    for line in ["LCS a b LEN", "LCS a b", "LCS a b IDX"] {
        let used = allocation_counter::measure(|| drop(peer.run(&server, line)));
        // redis-server's table of all pairs of prefixes would take 100 MB.
        assert!(used.bytes_max < 1 << 20, "{line}: {}", used.bytes_max);
    }
}
