//! A snapshot is put into the keyspace by several threads: all of it, or what is wrong is told.

use crate::fixture::Server;
use strand_commands::serial::dataset_digest;
use strand_commands::serial::file::{Saving, save};
use strand_engine::Load;

const KEYS: usize = 20_000;

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
    let mut file = Vec::new();
    let saving = Saving {
        aux: &[],
        functions: &[],
        commands: &[],
        compress: true,
        checksum: true,
        lru: false,
        now_ms: server.now.unix_ms(),
        pause: &|| {},
        progress: &|_| Ok(()),
    };
    let snapshot = server.engine.keyspace().snapshot(1 << 20, Default::default());
    save(snapshot, &saving, &mut file).expect("memory has room");
    (server, file)
}

fn load(into: &Server, mut file: &[u8]) -> Result<(), String> {
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
    // A key that is there already is found by whichever thread puts it.
    let mut other = Server::new();
    other.connect().run(&other, "SET key:15000 mine");
    let mut peer = other.connect();
    peer.run(&other, "SELECT 3");
    peer.run(&other, "SET key:15000 mine");
    let why = load(&other, &file).expect_err("it is there already");
    assert!(why.contains("key \"key:15000\" is there already") && why.contains("offset "), "{why}");
    // What is cut off is told, and the threads have ended.
    let cut = Server::new();
    let why = load(&cut, &file[..file.len() / 2]).expect_err("it is cut off");
    assert!(why.contains("x.rdb: at offset "), "{why}");
    assert!(cut.engine.is_loading());
}
