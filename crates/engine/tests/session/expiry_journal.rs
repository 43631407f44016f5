//! Random commands, transactions and scripts on data that expires all the time. A server that loads the append-only file
//! has what the first server had. Some scripts are too long for a worker: they are undone, and run again on a helper
//! thread, on copies or with their shards held.

use crate::disk::Disk;
use crate::durable::open;
use crate::fixture::{Peer, Server, words};
use fastrand::Rng;
use strand_testkit::env_number;

/// Number of sequences. The variable STRAND_SEQUENCES changes it.
const SEQUENCES: u64 = 500;
/// Number of commands, transactions and scripts of a sequence.
const STEPS: usize = 40;
const PEERS: usize = 2;
/// A loop that is longer than what a script may run on a worker.
const LONG: &str = "for i = 1, 60000 do end ";

/// Commands, with words that are replaced: K a key, F a field, V a value, N a number, T a short time in milliseconds.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K V PX T",
    "GETEX K PX T",
    "APPEND K V",
    "INCR K",
    "GETDEL K",
    "MSET K V K V",
    "HSET K F V",
    "HSETNX K F V",
    "HINCRBY K F N",
    "HDEL K F",
    "HPEXPIRE K T FIELDS 1 F",
    "HPEXPIRE K T FIELDS 2 F F",
    "HPERSIST K FIELDS 1 F",
    "HGETEX K PX T FIELDS 1 F",
    "HSETEX K PX T FIELDS 1 F V",
    "HGETDEL K FIELDS 1 F",
    "HGETALL K",
    "HLEN K",
    "EXISTS K",
    "RPUSH K V",
    "LPOP K",
    "SADD K V N",
    "SPOP K",
    "ZADD K N V",
    "ZPOPMIN K",
    "PEXPIRE K T",
    "PERSIST K",
    "DEL K",
    "RENAME K K",
    "COPY K K REPLACE",
    "SET p DUMP",
    "RESTORE K 0 PAYLOAD REPLACE",
    "RESTORE K T PAYLOAD",
];

fn choose(rng: &mut Rng, words: &[&str]) -> String {
    words[rng.usize(..words.len())].into()
}

/// The words of a random command.
fn command(rng: &mut Rng) -> Vec<String> {
    let template = TEMPLATES[rng.usize(..TEMPLATES.len())];
    let word = |word| match word {
        "K" => choose(rng, &["a", "b", "c"]),
        "F" => choose(rng, &["f", "g"]),
        "V" => choose(rng, &["x", "y", "7"]),
        "N" => choose(rng, &["1", "2"]),
        "T" => choose(rng, &["1", "2", "4"]),
        word => word.into(),
    };
    template.split(' ').map(word).collect()
}

/// A script of one to three random commands. A payload is the one at the key `p`.
fn script(rng: &mut Rng) -> String {
    let mut code = String::new();
    for _ in 0..rng.usize(1..4) {
        let words = command(rng).into_iter().map(|word| match word.as_str() {
            "DUMP" => "redis.call('DUMP', 'a') or ''".into(),
            "PAYLOAD" => "redis.call('GET', 'p') or ''".into(),
            word => format!("'{word}'"),
        });
        code += &format!("redis.pcall({}) ", words.collect::<Vec<_>>().join(", "));
        if rng.u8(..6) == 0 {
            code += LONG;
        }
    }
    code
}

/// A request: a script with its keys, or with none of them, or a command.
fn request(rng: &mut Rng) -> Vec<String> {
    let script = script(rng);
    let keys: &[&str] = match rng.u8(..8) {
        0..4 => &["4", "a", "b", "c", "p"],
        4 => &["0"],
        _ => return command(rng),
    };
    ["EVAL", &script].into_iter().chain(keys.iter().copied()).map(String::from).collect()
}

fn send(server: &Server, peer: &mut Peer, request: &[String]) {
    peer.send(server, &words(&request.iter().map(String::as_str).collect::<Vec<_>>()));
}

/// Runs a sequence. Panics when a server that loads the file has other data.
fn run(seed: u64) {
    let (mut rng, disk) = (Rng::with_seed(seed), Disk::default());
    let mut server = open(&disk, "enable-debug-command yes");
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| server.connect()).collect();
    let mut sent = Vec::new();
    for _ in 0..STEPS {
        server.advance_ms(rng.u64(0..3));
        let peer = &mut peers[rng.usize(..PEERS)];
        let requests: Vec<Vec<String>> = match rng.u8(..8) {
            0 => {
                let queued = (0..rng.usize(1..4)).map(|_| request(&mut rng));
                let [multi, exec] = ["MULTI", "EXEC"].map(|word| vec![word.into()]);
                std::iter::once(multi).chain(queued).chain([exec]).collect()
            }
            _ => vec![request(&mut rng)],
        };
        requests.iter().for_each(|request| send(&server, peer, request));
        sent.push((server.now.unix_us / 1000, requests));
    }
    server.engine.write_aof(true);
    let digest = peers[0].run(&server, "DEBUG DIGEST");
    let mut again = open(&disk, "enable-debug-command yes");
    again.now = server.now;
    let loaded = again.connect().run(&again, "DEBUG DIGEST");
    assert_eq!(loaded, digest, "{sent:#?}");
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
