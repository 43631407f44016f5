//! Several workers, many clients, few keys. Histories of single keys are linearizable, commands on several keys
//! are atomic for every reader, and no lock order blocks the server.

use crate::harness::Server;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strand_testkit::client::Client;
use strand_testkit::linearizability::{self, Call, Operation, Recorder};
use strand_wire::client::Value;

const CLIENTS: u64 = 8;
/// Duration of each stress in milliseconds. The clock ends it, so on a slow machine it does less, but does not take
/// longer. `make kills` sets STRAND_STRESS_MS to more.
const STRESS_MS: u64 = 600;
/// The watchdog: maximum wait for a reply, in seconds. A longer wait means that a lock is never released.
const REPLY_S_MAX: u64 = 15;

fn connect(server: &Server) -> Client {
    let mut client = Client::connect(server.address).expect("the server accepts");
    client.stream().set_read_timeout(Some(Duration::from_secs(REPLY_S_MAX))).expect("not zero");
    client
}

/// Runs `client` on `CLIENTS` threads, each with its own connection and random numbers, until the time is over.
/// Returns the results of all calls, in order for each thread.
fn stress<T: Send>(server: &Server, client: impl Fn(&mut Client, &mut Rng, u64) -> T + Sync) -> Vec<T> {
    let stress_ms = strand_testkit::env_number("STRAND_STRESS_MS", STRESS_MS);
    let end = Instant::now() + Duration::from_millis(stress_ms);
    let failed = AtomicBool::new(false);
    let body = |id: u64| {
        let (mut connection, mut rng, mut out) = (connect(server), Rng::with_seed(id), Vec::new());
        while Instant::now() < end && !failed.load(Ordering::Relaxed) {
            let call = std::panic::AssertUnwindSafe(|| client(&mut connection, &mut rng, id));
            match std::panic::catch_unwind(call) {
                Ok(value) => out.push(value),
                Err(panic) => {
                    failed.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            }
        }
        out
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|id| scope.spawn(move || body(id))).collect();
        threads.into_iter().flat_map(|t| t.join().expect("no client failed")).collect()
    })
}

fn random_operation(rng: &mut Rng) -> Operation {
    // Use few different texts, so that a wrong order is not hidden. Use SET and DEL often, so that no value grows
    // long.
    let text = rng.u32(0..1000).to_string().into_bytes();
    let field = vec![rng.u8(b'a'..=b'c')];
    match rng.u8(0..20) {
        0..5 => Operation::Get,
        5..8 => Operation::Set(text),
        8 => Operation::SetNx(text),
        9 => Operation::GetSet(text),
        10..12 => Operation::Append(text),
        12..14 => Operation::Incr,
        14..16 => Operation::Del,
        16..18 => Operation::HSet(field, text),
        _ => Operation::HGet(field),
    }
}

/// A random operation on lists, blocking commands and transactions. Slightly more elements are taken than put, so
/// that some clients block and no list grows long.
fn random_list_operation(rng: &mut Rng) -> Operation {
    let text = rng.u32(0..1000).to_string().into_bytes();
    match rng.u8(0..22) {
        0..7 => Operation::RPush(text),
        7..10 => Operation::LPop,
        10..14 => Operation::BlPop(rng.u32(1..6)),
        14 => Operation::LLen,
        15 => Operation::Del,
        16 => Operation::Set(text),
        17 => Operation::Exec(vec![Operation::Incr, Operation::Get, Operation::Del]),
        18 => Operation::Exec(vec![Operation::BlPop(5), Operation::RPush(text), Operation::LLen]),
        19 => Operation::Exec(vec![Operation::Del, Operation::RPush(text.clone()), Operation::RPush(text)]),
        _ => Operation::Exec(vec![Operation::RPush(text), Operation::LLen, Operation::LPop]),
    }
}

#[test]
fn every_key_has_a_linear_history() {
    have_linear_histories(random_operation);
}

#[test]
fn every_list_has_a_linear_history_with_waits_and_transactions() {
    have_linear_histories(random_list_operation);
}

fn have_linear_histories(random: fn(&mut Rng) -> Operation) {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let server = Server::start(&["--workers", "4"]);
    let recorder = Recorder::start();
    let batches = stress(&server, |client, rng, id| {
        // Every other client pipelines, so that batches of several workers meet.
        let length = if id % 2 == 0 { 1 } else { rng.usize(2..5) };
        let calls: Vec<_> = (0..length).map(|_| (KEYS[rng.usize(..KEYS.len())], random(rng))).collect();
        let seen = recorder.run(client, &calls);
        assert!(seen.iter().all(|c| c.reply.is_some()), "no reply in {REPLY_S_MAX} s");
        calls.into_iter().map(|(key, _)| key).zip(seen).collect::<Vec<_>>()
    });
    let mut histories: BTreeMap<&str, Vec<Call>> = BTreeMap::new();
    batches.into_iter().flatten().for_each(|(key, call)| histories.entry(key).or_default().push(call));
    for (key, history) in &histories {
        let most = linearizability::check(history).unwrap_or_else(|e| panic!("key {key}: {e}"));
        println!("{key}: {} calls, at most {most} configurations", history.len());
    }
    assert!(histories.values().map(Vec::len).sum::<usize>() > 200, "too little was tried");
}

/// The command `name` with the keys `prefix0..prefixN` in random order, each followed by `value` if there is a value.
fn multi(name: &str, prefix: &str, keys: usize, value: Option<&str>, rng: &mut Rng) -> Vec<String> {
    let mut order: Vec<usize> = (0..keys).collect();
    rng.shuffle(&mut order);
    let words = order.into_iter().flat_map(|k| {
        let key = format!("{prefix}{k}");
        std::iter::once(key).chain(value.map(str::to_string))
    });
    std::iter::once(name.to_string()).chain(words).collect()
}

/// MSET, MGET, DEL and EXISTS of the same `keys` keys. A reader sees all of a write or nothing of it.
fn assert_keys_change_atomically(keys: usize) {
    let server = Server::start(&["--workers", "4"]);
    stress(&server, |client, rng, id| {
        let words = match id % 4 {
            0 => multi("MSET", "k", keys, Some(&rng.u32(..).to_string()), rng),
            1 if rng.u8(0..4) == 0 => multi("DEL", "k", keys, None, rng),
            1 => multi("EXISTS", "k", keys, None, rng),
            _ => multi("MGET", "k", keys, None, rng),
        };
        let reply = client.call(&words).expect("a reply in time");
        match (words[0].as_str(), reply) {
            ("MSET", reply) => assert_eq!(reply, Value::Simple(b"OK".to_vec())),
            ("MGET", Value::Array(items)) => {
                let mixed = items.iter().find(|v| **v != items[0]);
                assert_eq!(mixed, None, "beside {:?}", items[0]);
            }
            (_, Value::Int(n)) => assert!(n == 0 || n == keys as i64, "{} counts {n} of {keys}", words[0]),
            (_, other) => panic!("{other:?}"),
        }
    });
}

#[test]
fn eight_keys_are_written_read_and_removed_atomically() {
    assert_keys_change_atomically(8);
}

#[test]
fn two_thousand_keys_are_written_read_and_removed_atomically() {
    // With 2,000 keys, MSET has 4,000 arguments, nearly `LONG_ELEMENTS`. With more, MSET makes promises, which the
    // lane carries out.
    assert_keys_change_atomically(2000);
}

#[test]
fn five_thousand_keys_are_written_read_and_removed_atomically() {
    assert_keys_change_atomically(5000);
}

#[test]
fn a_renamed_key_always_has_exactly_one_name() {
    const NAMES: usize = 4;
    let server = Server::start(&["--workers", "4"]);
    connect(&server).call(&["SET", "n0", "token"]).expect("a reply");
    let moved = stress(&server, |client, rng, id| {
        if id % 2 == 0 {
            let (from, to) = (format!("n{}", rng.usize(..NAMES)), format!("n{}", rng.usize(..NAMES)));
            let name = if from < to { "RENAME" } else { "RENAMENX" };
            return i64::from(!matches!(client.call(&[name, &from, &to]).expect("in time"), Value::Error(_)));
        }
        let reply = client.call(&multi("EXISTS", "n", NAMES, None, rng)).expect("in time");
        assert_eq!(reply, Value::Int(1), "the token is there once");
        0
    });
    assert!(moved.into_iter().sum::<i64>() > 10, "it was never moved");
}

#[test]
fn no_order_of_keys_deadlocks_the_server() {
    let server = Server::start(&["--workers", "4"]);
    let replies = stress(&server, |client, rng, id| {
        let (a, b) = (format!("k{}", rng.usize(..6)), format!("k{}", rng.usize(..6)));
        let pair = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        let words = match rng.u8(0..14) {
            // Run long commands: with promises, on a view, or with all their shards held.
            0 if id > 5 => match rng.u8(0..4) {
                0 => multi("MSETNX", "l", 3000, Some("x"), rng),
                1 => multi("MGET", "l", 5000, None, rng),
                2 => multi("MSET", "l", 3000, Some("y"), rng),
                _ => multi("DEL", "l", 5000, None, rng),
            },
            0..2 => multi("MSET", "k", 6, Some("v"), rng),
            2..4 => multi("MGET", "k", 6, None, rng),
            4 => multi("DEL", "k", 6, None, rng),
            5 => multi("MSETNX", "k", 6, Some("w"), rng),
            6 => multi("UNLINK", "k", 6, None, rng),
            7 => multi("TOUCH", "k", 6, None, rng),
            8 => pair(&["RENAME", &a, &b]),
            9 => pair(&["COPY", &a, &b, "REPLACE"]),
            10 => pair(&["COPY", &a, &b, "DB", "1", "REPLACE"]),
            11 => pair(&["MOVE", &a, "1"]),
            12 => pair(&["LCS", &a, &b]),
            // Only a few clients run commands that take every shard, because such commands wait long for each other.
            _ if id < 3 => match rng.u8(0..6) {
                0 => pair(&["FLUSHDB"]),
                1 => pair(&["FLUSHALL"]),
                2 => pair(&["KEYS", "*"]),
                3 => pair(&["SWAPDB", "0", "1"]),
                4 => pair(&["RANDOMKEY"]),
                _ => pair(&["SCAN", "0", "COUNT", "1000"]),
            },
            _ => pair(&["DBSIZE"]),
        };
        let reply = client.call(&words);
        assert!(reply.is_ok(), "{words:?}: {reply:?}");
    });
    assert!(replies.len() > 100, "only {} commands", replies.len());
    assert!(connect(&server).call(&["DBSIZE"]).is_ok());
}
