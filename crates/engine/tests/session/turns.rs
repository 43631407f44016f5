//! Turns: bounded work and output, large values, and pipelines, which change no reply.

use crate::fixture::{Peer, Server, Stop, bytes, command};
use strand_engine::{
    COMMANDS_PER_TURN_MAX, OUTPUT_BYTES_MAX, READ_AHEAD_BYTES_MAX, Turn, UNAUTHENTICATED_READ_AHEAD_BYTES_MAX,
};

#[test]
fn a_turn_executes_a_bounded_number_of_commands() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.feed(&b"INCR n\r\n".repeat(COMMANDS_PER_TURN_MAX * 3 + 7), usize::MAX);
    let mut counts = Vec::new();
    loop {
        let turn = peer.session.run(server.now);
        counts.push(bytes(peer.session.output()).iter().filter(|b| **b == b':').count());
        peer.take_output(usize::MAX);
        match turn {
            Turn::Again => {}
            Turn::Read => break,
            _ => panic!("neither"),
        }
    }
    assert_eq!(counts, [COMMANDS_PER_TURN_MAX, COMMANDS_PER_TURN_MAX, COMMANDS_PER_TURN_MAX, 7]);
}

#[test]
fn a_turn_does_a_bounded_amount_of_work() {
    let mut server = Server::new();
    let (mut peer, mut counter) = (server.connect(), server.connect());
    let fields: String = (0..4000).map(|f| format!(" f{f} v")).collect();
    peer.run(&server, &format!("HSET h{fields}"));
    let exists = format!("EXISTS{}", " k".repeat(4000));
    peer.run(&server, "CLIENT REPLY OFF");
    for (line, name, per_turn) in [
        (exists.as_str(), "exists", 3),
        ("SCAN 0 COUNT 4096 MATCH none", "scan", 2),
        ("HSCAN h 0 MATCH none COUNT 4096", "hscan", 2),
        ("HGETALL h", "hgetall", 3),
        ("HRANDFIELD h -2000", "hrandfield", 5),
        ("INFO", "info", 60),
    ] {
        let calls = 100;
        peer.feed(&command(line).repeat(calls), usize::MAX);
        let calls_so_far = |counter: &mut Peer| {
            let stats = counter.run(&server, "INFO commandstats");
            let line = stats
                .split('|')
                .find(|l| l.starts_with(&format!("cmdstat_{name}:calls=")))
                .map(str::to_string);
            line.map_or(0, |l| l.split(['=', ',']).nth(1).unwrap().parse::<usize>().unwrap())
        };
        let mut before = calls_so_far(&mut counter);
        let wanted = before + calls;
        while before < wanted {
            let turn = peer.session.run(server.now);
            let now = calls_so_far(&mut counter);
            assert!(
                matches!(turn, Turn::Again | Turn::Read) && now - before <= per_turn,
                "{name}: {}",
                now - before
            );
            before = now;
        }
    }
}

#[test]
fn a_long_request_is_decoded_in_several_turns() {
    let mut server = Server::new();
    let (mut peer, mut busy) = (server.connect(), server.connect());
    busy.run(&server, "PING");
    let arguments = 100_000;
    peer.feed(&command(&format!("EXISTS{}", " k".repeat(arguments - 1))), usize::MAX);
    let mut turns = 0;
    while !matches!(peer.session.run(server.now), Turn::Lane(_)) {
        turns += 1;
        assert!(peer.session.in_request());
    }
    // A turn also takes all arguments that one block contains.
    assert!((arguments / 20_000..arguments / 4096 + 1).contains(&turns), "{turns}");
}

#[test]
fn output_that_is_not_read_stops_execution_but_not_reading() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let value = "v".repeat(10_000);
    peer.run(&server, &format!("SET k {value}"));
    peer.hold_output = true;
    let gets = 500;
    peer.feed(&b"GET k\r\nINCR n\r\n".repeat(gets), usize::MAX);
    assert_eq!(peer.drive(&server), Stop::Flush);
    let held = peer.session.output().len();
    assert!((OUTPUT_BYTES_MAX..OUTPUT_BYTES_MAX + 20_000).contains(&held), "{held}");
    assert_eq!(peer.drive(&server), Stop::Flush, "nothing is executed until it has drained");
    assert_eq!(peer.session.output().len(), held);
    assert!(peer.session.wants_read(), "the client may still send");
    peer.feed(b"PING\r\n", 99);
    let mut stops = 0;
    while peer.drive(&server) == Stop::Flush {
        peer.take_output(100_000);
        stops += 1;
        assert!(stops < 1000);
    }
    peer.take_output(usize::MAX);
    let replies = peer.replies();
    assert_eq!(replies.matches("$10000|").count(), gets);
    assert!(replies.ends_with(&format!(":{gets}|+PONG|")));
}

#[test]
fn requests_are_held_up_to_a_bound() {
    let mut server = Server::new();
    let mut peer = server.connect();
    peer.hold_jobs = true;
    peer.feed(b"KEYS *\r\n", 99);
    assert_eq!(peer.drive(&server), Stop::Parked);
    assert_eq!(read_ahead(&mut peer), READ_AHEAD_BYTES_MAX);
}

/// Feeds the session while it wants bytes. Returns the number of bytes that the session took.
fn read_ahead(peer: &mut Peer) -> usize {
    let block = vec![b'\n'; 16 * 1024];
    let mut fed = 0;
    while peer.session.wants_read() {
        peer.feed(&block, usize::MAX);
        fed += block.len();
        assert!(fed <= READ_AHEAD_BYTES_MAX);
    }
    fed
}

#[test]
fn requests_are_held_within_the_query_limit() {
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let mut peer = server.connect();
    peer.hold_jobs = true;
    peer.feed(b"KEYS *\r\n", 99);
    assert_eq!(peer.drive(&server), Stop::Parked);
    assert_eq!(read_ahead(&mut peer), 1 << 20);
}

#[test]
fn few_requests_are_held_before_authentication() {
    let mut server = Server::with("requirepass secret");
    let mut peer = server.connect();
    peer.hold_output = true;
    while peer.drive(&server) != Stop::Flush {
        peer.feed(b"PING\r\n", usize::MAX);
    }
    assert_eq!(read_ahead(&mut peer), UNAUTHENTICATED_READ_AHEAD_BYTES_MAX);
}

#[test]
fn empty_requests_count_against_the_turn_and_not_against_the_query_limit() {
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let mut peer = server.connect();
    peer.feed(&vec![b'\n'; 4 << 20], usize::MAX);
    peer.feed(b"PING\r\n", usize::MAX);
    let mut turns = 0;
    while matches!(peer.session.run(server.now), Turn::Again) {
        turns += 1;
    }
    assert!(turns >= 16, "{turns}");
    peer.take_output(usize::MAX);
    assert_eq!((peer.replies().as_str(), peer.ended), ("+PONG|", None));
    // The length of an unfinished request is counted from the request's own first byte.
    peer.feed(&vec![b'\n'; 2 << 20], usize::MAX);
    peer.feed(b"*2\r\n", usize::MAX);
    assert_eq!(peer.drive(&server), Stop::Read);
}

#[test]
fn a_half_frame_costs_nothing_and_says_so() {
    let mut server = Server::new();
    let mut peer = server.connect();
    assert!(!peer.session.in_request());
    peer.feed(b"*2\r\n$3\r\nGET\r\n$1\r\n", 3);
    for _ in 0..5 {
        assert_eq!(peer.drive(&server), Stop::Read);
        assert!(peer.session.in_request());
    }
    assert_eq!(peer.send(&server, b"k\r\n"), "$-1|");
    assert!(!peer.session.in_request());
}

#[test]
fn a_large_value_is_received_in_place_and_shared_with_the_output() {
    let mut server = Server::new();
    let mut peer = server.connect();
    let value = vec![b'x'; 3 << 20];
    let mut set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    set.extend_from_slice(&value);
    set.extend_from_slice(b"\r\n");
    for piece in set.chunks(64 * 1024) {
        peer.feed(piece, usize::MAX);
        assert_eq!(peer.drive(&server), Stop::Read);
    }
    assert_eq!(peer.replies(), "+OK|");
    // Two clients read at once. Their output chains share the stored bytes.
    let mut other = server.connect();
    let mut addresses = Vec::new();
    for p in [&mut peer, &mut other] {
        p.hold_output = true;
        p.feed(b"GET k\r\n", 99);
        assert_eq!(p.drive(&server), Stop::Flush);
        let out = p.session.output();
        let big = out.slices().max_by_key(|s| s.len()).unwrap();
        assert_eq!(big.len(), value.len());
        addresses.push(big.as_ptr() as usize);
    }
    assert_eq!(addresses[0], addresses[1], "one allocation, shared");
    // A write during the sending does not change bytes that are being sent.
    assert_eq!(server.connect().run(&server, "SETRANGE k 0 yyyy"), format!(":{}|", value.len()));
    let out = bytes(other.session.output());
    assert!(out.ends_with(b"xxxx\r\n") && !out.contains(&b'y'));
}

#[test]
fn a_pipeline_is_the_same_as_its_commands_one_by_one() {
    let mut rng = fastrand::Rng::with_seed(20);
    let lines: Vec<String> = (0..600)
        .map(|_| {
            let key = rng.u32(0..20);
            match rng.u32(0..7) {
                0 => format!("SET k{key} {}", rng.u32(0..100)),
                1 => format!("GET k{key}"),
                2 => format!("INCR n{key}"),
                3 => format!("HSET h{key} f{} v", rng.u32(0..5)),
                4 => format!("MGET k{key} n{key} h{key}"),
                5 => format!("DEL k{key} h{key}"),
                _ => format!("HGET n{key} f"),
            }
        })
        .collect();
    let one_by_one = {
        let mut server = Server::new();
        let mut peer = server.connect();
        lines.iter().map(|l| peer.run(&server, l)).collect::<String>()
    };
    let mut server = Server::new();
    let mut peer = server.connect();
    let all: Vec<u8> = lines.iter().flat_map(|l| command(l)).collect();
    assert_eq!(peer.send(&server, &all), one_by_one);
}

/// Requests cut into random pieces, with random damage: the session answers or closes, and never panics; undamaged, the
/// replies do not depend on the cuts.
#[test]
fn random_cuts_and_damage_do_no_harm() {
    let lines = [
        "SET k v",
        "GET k",
        "HELLO 3",
        "HSET h f v",
        "KEYS *",
        "CLIENT REPLY SKIP",
        "INFO",
        "CONFIG GET *",
        "PING x",
        "HELLO 2",
    ];
    for seed in 0..150 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut requests: Vec<u8> = (0..30).flat_map(|_| command(lines[rng.usize(..lines.len())])).collect();
        let damaged = seed % 2 == 1;
        for _ in 0..if damaged { rng.usize(1..4) } else { 0 } {
            let at = rng.usize(..requests.len());
            requests[at] = rng.u8(..);
        }
        let mut replies = Vec::new();
        for cut in [usize::MAX, 1 + rng.usize(..200)] {
            let mut server = Server::new();
            let mut peer = server.connect();
            for piece in requests.chunks(cut.min(requests.len())) {
                if peer.ended.is_none() {
                    peer.feed(piece, usize::MAX);
                    while peer.drive(&server) == Stop::Flush {}
                }
            }
            replies.push((peer.replies(), peer.ended));
        }
        // INFO shows the number of reads, so replies are compared without numbers.
        let shown = |r: &str| r.replace(|c: char| c.is_ascii_digit(), "");
        assert_eq!(shown(&replies[0].0), shown(&replies[1].0), "seed {seed}");
        assert_eq!(replies[0].1, replies[1].1, "seed {seed}");
    }
}
