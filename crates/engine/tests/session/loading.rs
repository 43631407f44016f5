//! Loading: several threads put a snapshot into the keyspace, and append-only files are read. A file is loaded
//! completely, or an error says what is wrong.

use crate::disk::Disk;
use crate::fixture::{OnClock, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use strand_commands::serial::dataset_digest;
use strand_commands::serial::file::{Saving, save};
use strand_engine::{Engine, Load, Now, SaveError, ShutdownRequest, StartError};

const KEYS: usize = 20_000;

#[test]
fn options_that_name_the_files_wait_for_the_end_of_loading() {
    let mut server = Server::with("enable-protected-configs yes");
    let mut peer = server.connect();
    server.engine.begin_loading(100, server.now);
    let loading = "-LOADING Redis is loading the dataset in memory|";
    for line in ["CONFIG SET dir /", "CONFIG SET appendonly yes", "CONFIG SET maxmemory 0 appendonly no"] {
        assert_eq!(peer.run(&server, line), loading, "{line}");
    }
    assert_eq!(peer.run(&server, "CONFIG SET maxmemory-samples 7"), "+OK|");
}

/// Runs slices of expiry and of eviction at each look at the clock while the data is replaced, and counts these looks.
fn work_beside(hook: &OnClock, engine: Arc<Engine>, now: Now, looks: Arc<AtomicUsize>) {
    let again = hook.clone();
    *hook.lock() = Some(Box::new(move || {
        if engine.while_data_stays(|| ()).is_none() {
            engine.expire(now);
            engine.watch_memory(now);
            looks.fetch_add(1, Relaxed);
        }
        work_beside(&again, engine, now, looks);
    }));
}

/// A key whose expiry passed, and which a later command of the file keeps, survives DEBUG LOADAOF. So do keys that an
/// eviction could take.
#[test]
fn nothing_expires_or_is_evicted_while_the_data_is_replaced() {
    let config = "enable-debug-command yes\nmaxmemory-policy allkeys-lru";
    let mut server = Server::on_disk(config, Arc::new(Disk::default())).expect("the disk is empty");
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET kept x PX 1000"), "+OK|");
    (0..3000).for_each(|i| drop(peer.run(&server, &format!("SET key:{i} x"))));
    assert_eq!(peer.run(&server, "PERSIST kept"), ":1|");
    server.advance_ms(5000);
    peer.run(&server, "CONFIG SET maxmemory 100mb");
    server.used_bytes.store(200 << 20, Relaxed);
    let looks = Arc::new(AtomicUsize::new(0));
    work_beside(&server.on_clock, server.engine.clone(), server.now, looks.clone());
    let loaded = peer.run(&server, "DEBUG LOADAOF");
    server.on_clock.lock().take();
    assert_eq!(loaded, "+OK|");
    assert!(
        looks.load(Relaxed) >= 3,
        "the clock is read before the load, and after each thousand of commands"
    );
    assert_eq!(server.engine.keyspace().len(0), 3001);
    assert_eq!(peer.run(&server, "PTTL kept"), ":-1|");
}

/// The last save is repeated when data changes meanwhile, so no expiry may change data.
#[test]
fn nothing_expires_from_the_last_save_on() {
    let mut server = Server::new();
    server.connect().run(&server, "SET key x PX 1000");
    let request = ShutdownRequest { save: true, force: true, ..ShutdownRequest::default() };
    let forced = |_: &Engine, ended: &Result<(), SaveError>| assert!(ended.is_ok());
    server.engine.end_on_thread(request, forced).expect("the test has threads");
    server.advance_ms(5000);
    server.engine.expire(server.now);
    assert_eq!(server.engine.keyspace().len(0), 1);
}

/// A server with keys of two databases, and its snapshot.
fn saved() -> (Server, Vec<u8>) {
    let mut server = Server::new();
    let mut peer = server.connect();
    for i in 0..KEYS {
        let line = match i % 5 {
            0 => format!("SET key:{i} {i} PX 100000"),
            1 => format!("HSET hash:{i} a {i} b x"),
            2 => format!("RPUSH list:{i} a b {i}"),
            _ => format!("SET key:{i} value:{i}"),
        };
        peer.run(&server, &line);
        if i == KEYS / 2 {
            peer.run(&server, "SELECT 3");
        }
    }
    let file = snapshot_of(&server, &[]);
    (server, file)
}

/// The snapshot of a server. `commands`: its fields of commands that make indexes and sets of patterns.
fn snapshot_of(server: &Server, commands: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let saving = Saving {
        aux: &[],
        functions: &[],
        commands,
        compress: true,
        checksum: true,
        lru: false,
        expiry_ms: server.now.unix_ms(),
        clock_ms: &|| server.now.unix_ms(),
        pause: &|| {},
        progress: &|_| Ok(()),
    };
    let snapshot = server.engine.keyspace().snapshot(1 << 20, Default::default());
    save(Some(snapshot), &saving, &mut file).expect("memory has room");
    file
}

fn load(into: &Server, mut file: &[u8]) -> Result<(), StartError> {
    let total_bytes = file.len() as u64;
    into.engine.begin_loading(total_bytes, into.now);
    into.engine.load(Load { name: "x.rdb", source: &mut file, total_bytes, replace: false }, into.now)
}

#[test]
fn several_threads_load_what_one_reads() {
    let (server, file) = saved();
    let again = Server::new();
    load(&again, &file).expect("it is whole");
    let digest = |server: &Server| dataset_digest(server.engine.keyspace(), server.now.unix_ms()).to_hex();
    assert_eq!(digest(&again), digest(&server));
    // The loading thread finds that the key exists already.
    let mut other = Server::new();
    other.connect().run(&other, "SET key:15000 mine");
    let mut peer = other.connect();
    peer.run(&other, "SELECT 3");
    peer.run(&other, "SET key:15000 mine");
    let why = load(&other, &file).expect_err("it is there already");
    let text = why.to_string();
    assert!(text.contains("key \"key:15000\" exists already") && text.contains("offset "), "{text}");
    // A truncated file is reported, and the loading threads have ended.
    let cut = Server::new();
    let why = load(&cut, &file[..file.len() / 2]).expect_err("it is cut off");
    assert!(why.to_string().contains("x.rdb: at offset "), "{why}");
    assert!(cut.engine.is_loading());
}

/// A command in a snapshot that no version of Strand writes is logged. The rest of the snapshot is loaded.
#[test]
fn damaged_definitions_do_not_prevent_a_start() {
    let mut server = Server::new();
    server.connect().run(&server, "SET key value");
    let damaged: [&[u8]; 6] = [b"", b"x", b"3 GE", b"2 no 1 x", b"0 ", b"3 GET1 k"];
    let file = snapshot_of(&server, &damaged.map(<[u8]>::to_vec));
    let mut again = Server::new();
    load(&again, &file).expect("the data is whole");
    assert_eq!(again.connect().run(&again, "GET key"), "$5|value|");
}

/// Real files with a few bytes changed, taken out or put in are loaded or refused; nothing panics, and what is refused stays as it
/// is.
// This test reads files itself; the engine under test reads no files by itself.
#[allow(clippy::disallowed_methods)]
#[test]
fn changed_files_are_loaded_or_refused() {
    const CHANGED: usize = 300;
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../aof/tests/data");
    let read = |name: &str| std::fs::read(data.join(name)).expect("the data");
    let files = [
        read("redis-7.0.15-plain/appendonlydir/appendonly.aof.2.incr.aof"),
        read("redis-7.0.15-rdb-base/appendonlydir/appendonly.aof.3.incr.aof"),
        read("redis-6.2.16-rdb-base/appendonly.aof"),
        read("redis-head-plain/appendonlydir/appendonly.aof.2.incr.aof"),
    ];
    let manifest = b"file x.aof seq 1 type b\n";
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..CHANGED {
        let mut bytes = files[rng.usize(..files.len())].clone();
        for _ in 0..rng.usize(0..3) {
            let at = rng.usize(..bytes.len());
            match rng.u8(0..3) {
                0 => bytes[at] = rng.u8(..),
                1 => drop(bytes.drain(at..(at + rng.usize(1..40)).min(bytes.len()))),
                _ => {
                    drop(bytes.splice(
                        at..at,
                        (0..rng.usize(1..9)).map(|_| b'0' + rng.u8(..10)).collect::<Vec<_>>(),
                    ))
                }
            }
        }
        let disk = Disk::default();
        for (name, bytes) in [("appendonly.aof.manifest", &manifest[..]), ("x.aof", &bytes)] {
            disk.put(name, bytes);
        }
        match Server::on_disk("", Arc::new(disk.clone())) {
            Ok(_) => loaded += 1,
            Err(why) => {
                refused += 1;
                assert!(why.contains("x.aof") && why.contains("offset "), "{why}");
                let names = ["appendonly.aof.manifest", "x.aof"].map(String::from);
                assert_eq!(disk.names(), names);
                assert_eq!(disk.bytes("x.aof"), bytes);
            }
        }
    }
    assert!(loaded > CHANGED / 10 && refused > CHANGED / 10, "{loaded} {refused}");
}
