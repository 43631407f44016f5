//! [`ExpiringCommands`]: random commands on few keys. The keys, and the fields of hashes, expire within milliseconds.
//!
//! [`crate::generate`] makes commands that two servers must answer equally, so nothing expires in these commands.
//! Here one server must make equal data twice: when the commands run, and when the server replays what it noted.

use crate::shrink::Command;
use fastrand::Rng;

/// Commands of each type, with words that are replaced: K a key, F a field or member of few, V a value, N a small
/// number, T a short time in milliseconds, U a unix time in milliseconds close to now, S such a time in seconds, C a
/// condition of an expiry, I an ID of a stream's entry, G a group, R a consumer, D a dataset, P the payload of an
/// earlier DUMP.
const TYPES: [&[&str]; 6] = [
    // Strings.
    &[
        "SET K V",
        "SET K V PX T",
        "SET K V XX KEEPTTL",
        "SET K N NX GET",
        "SET K V IFEQ V",
        "SETEX K 1 V",
        "SETNX K V",
        "PSETEX K T V",
        "GETEX K PX T",
        "GETEX K PERSIST",
        "GETEX K PXAT U",
        "GETDEL K",
        "GETSET K V",
        "APPEND K V",
        "SETRANGE K N V",
        "INCR K",
        "INCRBY K N",
        "DECR K",
        "DECRBY K N",
        "INCRBYFLOAT K 1.5",
        "MSET K V K V",
        "MSETNX K V K V",
        "MSETEX 2 K V K V PX T",
        "DELEX K IFEQ V",
        "DELIFEQ K V",
        "SETIF K V NX PX T",
        "SETIF K V XX KEEPTTL",
        "DELIF K XX",
        "SETBIT K N 1",
        "BITFIELD K INCRBY u8 N 3",
        "BITOP OR K K K",
        "PFADD K V",
        "PFMERGE K K K",
        "PFCOUNT K K",
    ],
    // Hashes.
    &[
        "HSET K F V",
        "HSET K F V F N",
        "HMSET K F V F N",
        "HSETNX K F V",
        "HINCRBY K F N",
        "HINCRBYFLOAT K F 0.5",
        "HDEL K F",
        "HDEL K F F",
        "HEXPIRE K 1 FIELDS 1 F",
        "HEXPIREAT K S FIELDS 1 F",
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
        "HREPLACE K FIELDS F V",
        "HREPLACE K PX T FIELDS F V",
        "HGETALL K",
        "HLEN K",
        "HRANDFIELD K N",
    ],
    // Lists.
    &[
        "LPUSH K V V",
        "RPUSH K V N V",
        "LPUSHX K V",
        "RPUSHX K V",
        "LPOP K",
        "RPOP K N",
        "RPOPLPUSH K K",
        "LMOVE K K LEFT RIGHT",
        "LMOVEM K K LEFT RIGHT COUNT N BULK",
        "LTRIM K 0 N",
        "LREM K 0 V",
        "LSET K N V",
        "LINSERT K BEFORE V N",
        "LMPOP 2 K K LEFT",
        "BLPOP K K 0.002",
        "BRPOP K 0.001",
        "BLMOVE K K LEFT RIGHT 0.003",
        "BLMOVEM K K LEFT RIGHT 0.003",
        "BRPOPLPUSH K K 0.001",
        "BLMPOP 0.002 2 K K LEFT",
    ],
    // Sets.
    &[
        "SADD K V N",
        "SADD K 1 2",
        "SPOP K",
        "SPOP K N",
        "SREM K V",
        "SMOVE K K V",
        "SINTERSTORE K K K",
        "SUNIONSTORE K K K",
        "SDIFFSTORE K K K",
        "SORT K ALPHA STORE K",
    ],
    // Sorted sets.
    &[
        "ZADD K N V",
        "ZADD K GT CH N V N F",
        "ZINCRBY K N V",
        "ZREM K V",
        "ZPOPMIN K",
        "ZPOPMAX K N",
        "ZMPOP 2 K K MAX",
        "BZPOPMIN K K 0.002",
        "BZPOPMAX K 0.001",
        "BZMPOP 0.002 1 K MIN",
        "ZUNIONSTORE K 2 K K",
        "ZINTERSTORE K 2 K K",
        "ZDIFFSTORE K 2 K K",
        "ZRANGESTORE K K 0 N",
        "ZREMRANGEBYRANK K 0 0",
        "ZREMRANGEBYSCORE K N N",
        "ZREMRANGEBYLEX K - (x",
        "GEOADD K 1 2 V",
        "GEOSEARCHSTORE K K FROMLONLAT 1 2 BYRADIUS 10 KM",
        "GEORADIUS K 1 2 10 KM STORE K",
        "GEORADIUSBYMEMBER K V 10 KM STORE K",
    ],
    // Streams.
    &[
        "XADD K * F V",
        "XADD K I F V",
        "XADD K MAXLEN N * F V",
        "XADD K NOMKSTREAM MINID I * F V",
        "XDEL K I",
        "XDELEX K DELREF IDS 1 I",
        "XDELEX K ACKED IDS 2 I I",
        "XTRIM K MAXLEN N",
        "XSETID K 9-N",
        "XGROUP CREATE K G 0 MKSTREAM",
        "XGROUP CREATECONSUMER K G R",
        "XGROUP DELCONSUMER K G R",
        "XGROUP DESTROY K G",
        "XGROUP SETID K G I",
        "XREADGROUP GROUP G R COUNT N STREAMS K >",
        "XREADGROUP GROUP G R BLOCK 2 NOACK STREAMS K >",
        "XACK K G I",
        "XACKDEL K G DELREF IDS 1 I",
        "XCLAIM K G R 0 I",
        "XCLAIM K G R 0 I JUSTID FORCE",
        "XAUTOCLAIM K G R N 0 COUNT N",
    ],
];

/// Commands on keys of every type, on databases and on datasets.
const ANY: &[&str] = &[
    "EXPIRE K 1",
    "EXPIRE K -1",
    "EXPIREAT K S",
    "PEXPIRE K T",
    "PEXPIRE K T C",
    "PEXPIREAT K U",
    "PERSIST K",
    "DEL K",
    "UNLINK K K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE",
    "COPY K K",
    "COPY K K DB 1",
    "COPY K K DB 1 REPLACE",
    "MOVE K 1",
    "MOVE K 0",
    "DUMP K",
    "DUMP K",
    "RESTORE K 0 P REPLACE",
    "RESTORE K T P",
    "RESTORE K T P REPLACE IDLETIME N",
    "RESTORE K U P ABSTTL REPLACE",
    "EXISTS K K",
    "TYPE K",
    "SWAPDB 0 1",
    "SWAPDB 0 1",
    "FLUSHDB",
    "FLUSHALL",
    "IMPORT.VERSION SET D F V",
    "IMPORT.VERSION SET D G V",
    "IMPORT.VERSION DEL D F G",
    "IMPORT.VERSION PUBLISH D V",
];

/// Number of payloads that are kept. A new payload replaces the oldest one.
const PAYLOADS_MAX: usize = 8;

/// A source of random commands that is deterministic for a seed.
#[derive(Debug)]
pub struct ExpiringCommands {
    /// The source of all choices. Tests make their own choices with it, too.
    pub rng: Rng,
    /// The type of most commands: an index in [`TYPES`].
    favourite: usize,
    /// Replies of DUMP.
    payloads: Vec<Vec<u8>>,
}

impl ExpiringCommands {
    /// Creates a source of commands. Half of the commands are of one type, so that few of them find another type.
    pub fn new(seed: u64) -> ExpiringCommands {
        let mut rng = Rng::with_seed(seed);
        let favourite = rng.usize(..TYPES.len());
        ExpiringCommands { rng, favourite, payloads: Vec::new() }
    }

    /// The next command. `now_ms` is the unix time in milliseconds.
    pub fn command(&mut self, now_ms: i64) -> Command {
        let templates = match self.rng.u8(..8) {
            0..4 => TYPES[self.favourite],
            4..7 => ANY,
            _ => TYPES[self.rng.usize(..TYPES.len())],
        };
        let template = templates[self.rng.usize(..templates.len())];
        template.split(' ').map(|word| self.word(word, now_ms)).collect()
    }

    /// Keeps the payload in the bytes of a reply to `command`, if the command is DUMP. RESTORE uses the payload later.
    pub fn note_reply(&mut self, command: &Command, reply: &[u8]) {
        let Some(after) = reply.strip_prefix(b"$").filter(|_| command[0] == b"DUMP") else { return };
        let line = after.iter().position(|byte| *byte == b'\r').unwrap_or(after.len());
        let len = std::str::from_utf8(&after[..line]).ok().and_then(|len| len.parse::<usize>().ok());
        if let Some(payload) = len.and_then(|len| after[line..].get(2..2 + len)) {
            if self.payloads.len() == PAYLOADS_MAX {
                self.payloads.remove(0);
            }
            self.payloads.push(payload.to_vec());
        }
    }

    fn word(&mut self, word: &str, now_ms: i64) -> Vec<u8> {
        let rng = &mut self.rng;
        let mut one_of = |words: &[&str]| words[rng.usize(..words.len())].to_owned();
        match word {
            "K" => one_of(&["a", "b", "c"]),
            "F" => one_of(&["f", "g", "h"]),
            "V" => {
                one_of(&["x", "y", "7", "long-value-that-is-not-embedded-in-a-listpack-of-this-size-or-so"])
            }
            "N" => one_of(&["0", "1", "2", "9"]),
            "T" => one_of(&["1", "2", "4", "9"]),
            "C" => one_of(&["NX", "XX", "GT", "LT"]),
            "I" => one_of(&["1-1", "1-2", "2-1", "3-1", "4-9"]),
            "G" => one_of(&["g1", "g2"]),
            "R" => one_of(&["c1", "c2"]),
            "D" => one_of(&["mail", "code"]),
            "U" => (now_ms + rng.i64(-2..6)).to_string(),
            "S" => (now_ms / 1000 + rng.i64(0..2)).to_string(),
            "P" if !self.payloads.is_empty() => {
                return self.payloads[rng.usize(..self.payloads.len())].clone();
            }
            word => word.to_owned(),
        }
        .into_bytes()
    }
}

/// The names of all commands in the templates, in capital letters. A container's name comes with its subcommand:
/// `XGROUP CREATE`.
pub fn names() -> Vec<String> {
    let name_of = |template: &&str| {
        let words: Vec<&str> = template.split(' ').collect();
        match words[0] {
            container @ ("XGROUP" | "IMPORT.VERSION") => format!("{container} {}", words[1]),
            name => name.into(),
        }
    };
    TYPES.iter().copied().flatten().chain(ANY).map(name_of).collect()
}
