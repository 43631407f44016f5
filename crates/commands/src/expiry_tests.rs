//! Random commands on few keys whose values, and fields of hashes, expire all the time. The fixture replays the journal at
//! its end: on replicas and after a restart there must be what the commands left here.

use crate::fixture::Fixture;
use fastrand::Rng;
use strand_testkit::env_number;

/// Number of sequences. The variable STRAND_SEQUENCES changes it.
const SEQUENCES: u64 = 400;
/// Number of commands of a sequence.
const COMMANDS: usize = 60;

/// Commands, with words that are replaced: K a key, F a field, V a value, N a small number, T a short time in
/// milliseconds, U a time close to now, C a condition of an expiry, P the payload of an earlier DUMP.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K V PX T",
    "SET K V XX KEEPTTL",
    "SET K N NX GET",
    "SET K V IFEQ V",
    "PSETEX K T V",
    "GETEX K PX T",
    "GETEX K PERSIST",
    "GETEX K PXAT U",
    "GETDEL K",
    "GETSET K V",
    "APPEND K V",
    "SETRANGE K N V",
    "INCRBY K N",
    "INCRBYFLOAT K 1.5",
    "MSET K V K V",
    "MSETNX K V K V",
    "MSETEX 2 K V K V PX T",
    "DELEX K IFEQ V",
    "DELIFEQ K V",
    "SETBIT K N 1",
    "BITFIELD K INCRBY u8 N 3",
    "BITOP OR K K K",
    "PFADD K V",
    "PFMERGE K K K",
    "PFCOUNT K K",
    "HSET K F V",
    "HSET K F V F N",
    "HSETNX K F V",
    "HINCRBY K F N",
    "HINCRBYFLOAT K F 0.5",
    "HDEL K F",
    "HDEL K F F",
    "HPEXPIRE K T FIELDS 1 F",
    "HPEXPIRE K T FIELDS 2 F F",
    "HPEXPIRE K T C FIELDS 1 F",
    "HPEXPIREAT K U FIELDS 1 F",
    "HPERSIST K FIELDS 1 F",
    "HGETEX K PX T FIELDS 1 F",
    "HGETEX K PERSIST FIELDS 1 F",
    "HSETEX K PX T FIELDS 1 F V",
    "HSETEX K FNX PX T FIELDS 1 F V",
    "HSETEX K FXX KEEPTTL FIELDS 1 F V",
    "HSETEX K PXAT U FIELDS 2 F V F V",
    "HGETDEL K FIELDS 1 F",
    "HGETALL K",
    "HLEN K",
    "HRANDFIELD K N",
    "HREPLACE K F V",
    "LPUSH K V V",
    "RPOP K",
    "LMOVE K K LEFT RIGHT",
    "LTRIM K 0 N",
    "LREM K 0 V",
    "LINSERT K BEFORE V N",
    "LMPOP 2 K K LEFT",
    "SADD K V N",
    "SPOP K",
    "SREM K V",
    "SMOVE K K V",
    "SINTERSTORE K K K",
    "SUNIONSTORE K K K",
    "SDIFFSTORE K K K",
    "SORT K ALPHA STORE K",
    "ZADD K N V",
    "ZADD K GT CH N V",
    "ZINCRBY K N V",
    "ZPOPMIN K",
    "ZUNIONSTORE K 2 K K",
    "ZRANGESTORE K K 0 N",
    "ZREMRANGEBYRANK K 0 0",
    "GEOADD K 1 2 V",
    "XADD K * F V",
    "XADD K MAXLEN N * F V",
    "XGROUP CREATE K g 0 MKSTREAM",
    "XREADGROUP GROUP g c COUNT N STREAMS K >",
    "XTRIM K MAXLEN N",
    "PEXPIRE K T",
    "PEXPIRE K T C",
    "PEXPIREAT K U",
    "EXPIRE K -1",
    "PERSIST K",
    "DEL K",
    "UNLINK K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "COPY K K",
    "DUMP K",
    "DUMP K",
    "RESTORE K 0 P REPLACE",
    "RESTORE K T P",
    "RESTORE K T P REPLACE IDLETIME N",
    "RESTORE K U P ABSTTL REPLACE",
    "EXISTS K K",
    "TYPE K",
];

fn word(word: &str, rng: &mut Rng, now_ms: i64, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut one_of = |words: &[&str]| words[rng.usize(..words.len())].to_owned();
    match word {
        "K" => one_of(&["a", "b", "c"]),
        "F" => one_of(&["f", "g", "h"]),
        "V" => one_of(&["x", "y", "7", "long-value-that-is-not-embedded-in-a-listpack-of-this-size-or-so"]),
        "N" => one_of(&["0", "1", "2", "9"]),
        "T" => one_of(&["1", "2", "4", "9"]),
        "C" => one_of(&["NX", "XX", "GT", "LT"]),
        "U" => (now_ms + rng.i64(-2..6)).to_string(),
        "P" if !payloads.is_empty() => return payloads[rng.usize(..payloads.len())].clone(),
        word => word.to_owned(),
    }
    .into_bytes()
}

/// Runs a sequence, and prints its commands if `shows` is true. Panics when the replay of its journal makes other data.
fn run(seed: u64, shows: bool) {
    let (mut rng, mut f, mut payloads) = (Rng::with_seed(seed), Fixture::new(), Vec::new());
    for _ in 0..COMMANDS {
        f.advance_ms(rng.i64(0..3));
        f.all_long = rng.u8(..4) == 0;
        let template = TEMPLATES[rng.usize(..TEMPLATES.len())];
        let args: Vec<_> =
            template.split(' ').map(|part| word(part, &mut rng, f.now_ms, &payloads)).collect();
        let reply = f.run_args(&args);
        if shows {
            let words: Vec<String> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
            println!("{} {} -> {}", f.now_ms, words.join(" "), reply.escape_ascii());
        }
        if template == "DUMP K" && reply.starts_with(b"$") && !reply.starts_with(b"$-1") {
            let at = reply.iter().position(|b| *b == b'\n').expect("a line") + 1;
            payloads.push(reply[at..reply.len() - 2].to_vec());
        }
    }
}

#[test]
fn the_journal_of_data_that_expires_makes_equal_data() {
    let (first, sequences) = (env_number("STRAND_SEED", 1), env_number("STRAND_SEQUENCES", SEQUENCES));
    for seed in first..first + sequences {
        let ended = std::panic::catch_unwind(|| run(seed, sequences == 1));
        assert!(
            ended.is_ok(),
            "repeat with STRAND_SEED={seed} STRAND_SEQUENCES=1 cargo test -p strand-commands --lib -- the_journal_of_data"
        );
    }
}
