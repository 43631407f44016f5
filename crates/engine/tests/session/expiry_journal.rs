//! Random commands, transactions and scripts on data that expires all the time. A server that loads the append-only file
//! has what the first server had. Some scripts are too long for a worker: they are undone, and run again on a helper
//! thread, on copies or with their shards held. Some commands wait.

use crate::disk::Disk;
use crate::durable::open;
use crate::fixture::{Peer, Server};
use std::sync::Arc;
use strand_testkit::dataset::{self, text_of};
use strand_testkit::differential::words;
use strand_testkit::env_number;
use strand_testkit::expiring::ExpiringCommands;
use strand_testkit::shrink::Command;
use strand_wire::client::encode_command;

/// Number of sequences. The variable STRAND_SEQUENCES changes it.
const SEQUENCES: u64 = 500;
/// Number of commands, transactions and scripts of a sequence.
const STEPS: usize = 40;
const PEERS: usize = 2;
/// Number of databases that the commands use.
const DATABASES: usize = 2;
/// Longer than the timeouts of the commands that wait.
const WAIT_MS: u64 = 10;
/// A loop that is longer than what a script may run on a worker.
const LONG: &str = "for i = 1, 60000 do end ";

/// A text of Lua with these bytes.
fn lua_string(bytes: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b' '..=b'~' if !b"'\\".contains(byte) => char::from(*byte).to_string(),
        byte => format!("\\{byte:03}"),
    };
    format!("'{}'", bytes.iter().map(one).collect::<String>())
}

/// A script of one to three random commands.
fn script(commands: &mut ExpiringCommands, now_ms: i64) -> String {
    let mut code = String::new();
    if commands.rng.u8(..8) == 0 {
        code += "redis.call('SELECT', 1) ";
    }
    for _ in 0..commands.rng.usize(1..4) {
        let args: Vec<String> = commands.command(now_ms).iter().map(|arg| lua_string(arg)).collect();
        code += &format!("redis.pcall({}) ", args.join(", "));
        if commands.rng.u8(..6) == 0 {
            code += LONG;
        }
    }
    code
}

/// A request: a script with its keys, or with none of them, or a command.
fn request(commands: &mut ExpiringCommands, now_ms: i64) -> Command {
    let keys = match commands.rng.u8(..8) {
        0..3 => &["3", "a", "b", "c"][..],
        3 => &["0"],
        4 => return words(&["SELECT", if commands.rng.bool() { "0" } else { "1" }]),
        _ => return commands.command(now_ms),
    };
    let script = script(commands, now_ms).into_bytes();
    [b"EVAL".to_vec(), script].into_iter().chain(words(keys)).collect()
}

/// Runs a command, and returns the bytes of its reply.
fn reply_to(server: &Server, peer: &mut Peer, request: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_command(&mut bytes, request);
    peer.feed(&bytes, usize::MAX);
    peer.drive(server);
    peer.received_bytes()
}

/// Everything that the server has. The peer's database is another one afterwards.
fn lines(server: &Server, peer: &mut Peer) -> Vec<String> {
    let mut out = Vec::new();
    for db in 0..DATABASES {
        reply_to(server, peer, &words(&["SELECT", &db.to_string()]));
        out.push(format!("database {db}"));
        out.extend(dataset::lines(&mut |command| reply_to(server, peer, command)));
        for dataset in ["mail", "code"] {
            for question in ["LOG", "LIST"] {
                let reply = reply_to(server, peer, &words(&["IMPORT.VERSION", question, dataset]));
                out.push(format!("{question} {dataset} -> {}", reply.escape_ascii()));
            }
        }
    }
    out
}

/// Runs a sequence. Panics when a server that loads the file has other data.
fn run(seed: u64) {
    let (mut commands, disk) = (ExpiringCommands::new(seed), Disk::default());
    let mut server = open(&disk, "");
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| server.connect()).collect();
    let mut sent = Vec::new();
    for _ in 0..STEPS {
        server.advance_ms(commands.rng.u64(0..3));
        let now_ms = server.now.unix_us / 1000;
        let peer = commands.rng.usize(..PEERS);
        let requests: Vec<Command> = match commands.rng.u8(..8) {
            0 => {
                let queued: Vec<Command> =
                    (0..commands.rng.usize(1..4)).map(|_| request(&mut commands, now_ms)).collect();
                std::iter::once(words(&["MULTI"])).chain(queued).chain([words(&["EXEC"])]).collect()
            }
            _ => vec![request(&mut commands, now_ms)],
        };
        for request in &requests {
            let reply = reply_to(&server, &mut peers[peer], request);
            commands.note_reply(request, &reply);
            sent.push(format!("{now_ms} peer {peer}: {} -> {}", text_of(request), reply.escape_ascii()));
        }
    }
    // Commands that still wait end by their timeouts.
    server.advance_ms(WAIT_MS);
    peers.iter_mut().for_each(|peer| _ = peer.drive(&server));
    server.engine.write_aof(true);
    let mut reader = server.connect();
    let left = lines(&server, &mut reader);
    let mut again = Server::on_disk_at("", Arc::new(disk), server.now).expect("the disk is whole");
    let mut reader = again.connect();
    let loaded = lines(&again, &mut reader);
    let only = |of: &[String], than: &[String]| {
        of.iter().filter(|line| !than.contains(line)).cloned().collect::<Vec<_>>()
    };
    let (lost, new) = (only(&left, &loaded), only(&loaded, &left));
    assert!(lost.is_empty() && new.is_empty(), "{sent:#?}\nlost: {lost:#?}\nnew: {new:#?}");
    let logged = again.logged.lock();
    assert!(logged.iter().all(|line| !line.contains("failed")), "{logged:?} after {sent:#?}");
}

#[test]
fn a_restarted_server_has_what_expired_data_left() {
    let first = env_number("STRAND_SEED", 1);
    for seed in first..first + env_number("STRAND_SEQUENCES", SEQUENCES) {
        let ended = std::panic::catch_unwind(|| run(seed));
        assert!(
            ended.is_ok(),
            "repeat with STRAND_SEED={seed} STRAND_SEQUENCES=1 cargo test -p strand-engine --test session -- expiry_journal"
        );
    }
}
