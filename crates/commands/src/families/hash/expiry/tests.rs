//! Fields that expire: transcripts and payloads of redis-server, and what becomes of such fields in the keyspace.

use crate::fixture::{Fixture, START_MS};
use crate::serial::digest::ValueDigest;
use crate::serial::digest_of;
use std::sync::atomic::Ordering::Relaxed;
use strand_wire::reply::Protocol;

/// Replies of redis-server of October 2024. Transactions, scripts and notifications are left out.
const TRANSCRIPTS: [(&str, &str); 9] = [
    ("active", include_str!("../../../../../testkit/transcripts/hexpire-active.txt")),
    ("basic", include_str!("../../../../../testkit/transcripts/hexpire-basic.txt")),
    ("conditions", include_str!("../../../../../testkit/transcripts/hexpire-conditions.txt")),
    ("errors", include_str!("../../../../../testkit/transcripts/hexpire-errors.txt")),
    ("hashtable", include_str!("../../../../../testkit/transcripts/hexpire-hashtable.txt")),
    ("lazy", include_str!("../../../../../testkit/transcripts/hexpire-lazy.txt")),
    ("order", include_str!("../../../../../testkit/transcripts/hexpire-order.txt")),
    ("overwrite", include_str!("../../../../../testkit/transcripts/hexpire-overwrite.txt")),
    ("past", include_str!("../../../../../testkit/transcripts/hexpire-past.txt")),
];
/// In redis-server these commands count an expired field until it is removed.
const COUNT_IN_REDIS: [&str; 3] = ["HLEN", "EXISTS", "TYPE"];

#[test]
fn the_transcripts_of_redis_are_answered_alike() {
    let mut compared = 0;
    for (scenario, text) in TRANSCRIPTS {
        for (protocol, mark) in [(Protocol::Resp2, "  resp2 1: "), (Protocol::Resp3, "  resp3 1: ")] {
            let mut f = Fixture::new();
            f.protocol = protocol;
            let mut last: Option<(String, Vec<u8>)> = None;
            for line in text.lines() {
                if let Some(ms) = line.strip_prefix("!sleep ") {
                    f.advance_ms(ms.parse().expect("milliseconds"));
                    f.keyspace.expire_slice(f.now_ms, if scenario == "lazy" { 0 } else { usize::MAX });
                } else if let Some(command) = line.strip_prefix("> 1> ") {
                    last = run(&mut f, command).map(|reply| (command.to_owned(), reply));
                } else if let (Some(wanted), Some((command, reply))) = (line.strip_prefix(mark), &last) {
                    let counts = COUNT_IN_REDIS.iter().any(|name| command.starts_with(name));
                    if scenario == "lazy" && counts {
                        continue;
                    }
                    let (reply, wanted) = (String::from_utf8_lossy(reply), literal(wanted));
                    assert_eq!(reply, String::from_utf8_lossy(&wanted), "{scenario}: {command}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 350, "{compared}");
}

/// Runs a command. Returns `None` for a command that Strand answers differently.
fn run(f: &mut Fixture, command: &str) -> Option<Vec<u8>> {
    let args = words(command);
    match args[0].as_slice() {
        b"DEBUG" => None,
        b"SELECT" => {
            f.db = std::str::from_utf8(&args[1]).ok()?.parse().ok()?;
            None
        }
        b"CONFIG" => {
            let entries = std::str::from_utf8(&args[3]).ok()?.parse().ok()?;
            f.keyspace.settings().hash_max_listpack_entries.store(entries, Relaxed);
            None
        }
        _ => Some(f.run_args(&args)),
    }
}

/// Splits a line into words as redis-cli does.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, end) = match rest.strip_prefix('"') {
            Some(inside) => {
                let (word, used) = unescaped(inside, '"');
                (word, used + 2)
            }
            None => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), end)
            }
        };
        words.push(word);
        rest = rest[end..].trim_start();
    }
    words
}

/// Parses a bytes literal of Python.
fn literal(text: &str) -> Vec<u8> {
    let text = text.trim_end().strip_prefix('b').expect("a bytes literal");
    let quote = text.chars().next().expect("a quote");
    unescaped(&text[1..], quote).0
}

/// The bytes of a literal up to the closing `quote`, and the length of their text.
fn unescaped(text: &str, quote: char) -> (Vec<u8>, usize) {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while bytes[at] != quote as u8 {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        at += 2;
        out.push(match bytes[at - 1] {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'x' => {
                at += 2;
                u8::from_str_radix(&text[at - 2..at], 16).expect("two hexadecimal digits")
            }
            other => other,
        });
    }
    (out, at)
}

#[test]
fn an_expired_field_is_gone_for_every_command() {
    let mut f = Fixture::new();
    f.script(&[
        ("HSET h a 1 b 2 c 3", ":3|"),
        ("HPEXPIRE h 10 FIELDS 2 a b", "*2|:1|:1|"),
        ("PEXPIRE h 100", ":1|"),
        ("HPTTL h FIELDS 1 a", "*1|:10|"),
        ("PTTL h", ":100|"),
    ]);
    f.advance_ms(10);
    f.script(&[
        ("HLEN h", ":1|"),
        ("HKEYS h", "*1|$1|c|"),
        ("PTTL h", ":90|"),
        ("HINCRBY h a 5", ":5|"),
        ("HPTTL h FIELDS 3 a b c", "*3|:-1|:-2|:-1|"),
        ("HPEXPIRE h 10 FIELDS 2 a c", "*2|:1|:1|"),
        ("PERSIST h", ":1|"),
        ("PTTL h", ":-1|"),
    ]);
    f.advance_ms(10);
    f.script(&[("EXISTS h", ":0|"), ("HLEN h", ":0|")]);
    assert_eq!(f.keyspace.len(0), 0);
    assert_eq!((f.keyspace.expiring_len(0), f.keyspace.in_use()[&0].mortal), (0, 0));
}

#[test]
fn journal_names_the_time_when_very_many_fields_expire_together() {
    const FIELDS: usize = 2_000;
    for (expiring, names_time) in [(1_000, false), (FIELDS, true)] {
        let mut f = Fixture::new();
        for i in 0..FIELDS {
            f.run(&format!("HSET h f{i} 1"));
        }
        f.run("HSET h stays 1 later 1");
        let fields: Vec<String> = (0..expiring).map(|i| format!("f{i}")).collect();
        f.run(&format!("HPEXPIRE h 10 FIELDS {expiring} {}", fields.join(" ")));
        f.run("HPEXPIRE h 20 FIELDS 1 later");
        f.advance_ms(10);
        let left = FIELDS - expiring + 2;
        f.script(&[
            ("HINCRBY h f0 5", ":5|"),
            ("HPERSIST h FIELDS 2 f0 f1", "*2|:-1|:-2|"),
            ("HLEN h", &format!(":{}|", left + 1)),
            ("COPY h copy", ":1|"),
            ("HSETNX copy f2 x", ":1|"),
            ("HDEL copy f3", ":0|"),
            ("HLEN copy", &format!(":{}|", left + 2)),
        ]);
        let effects = f.effects();
        let message = format!("ECHO $37 strand-fields-expired {} h", START_MS + 10);
        assert_eq!(effects.contains(&message), names_time, "{expiring} fields");
        assert_eq!(effects.contains("HDEL $1 h $"), !names_time, "{expiring} fields");
    }
}

#[test]
fn active_expiry_removes_fields_and_keys() {
    let mut f = Fixture::new();
    for i in 0..20 {
        f.run(&format!("HSET h{i} a 1 b 2"));
        f.run(&format!("HPEXPIRE h{i} {} FIELDS 1 a", 10 + i % 2 * 10));
        f.run(&format!("PEXPIRE h{i} {}", if i < 4 { 15 } else { 1000 }));
    }
    assert_eq!((f.keyspace.expiring_len(0), f.keyspace.in_use()[&0].mortal), (20, 20));
    f.advance_ms(10);
    f.keyspace.expire_slice(f.now_ms, usize::MAX);
    assert_eq!((f.keyspace.len(0), f.keyspace.in_use()[&0].mortal), (20, 10));
    f.advance_ms(5);
    f.keyspace.expire_slice(f.now_ms, usize::MAX);
    assert_eq!((f.keyspace.len(0), f.keyspace.in_use()[&0].mortal), (16, 8));
    f.advance_ms(5);
    f.keyspace.expire_slice(f.now_ms, usize::MAX);
    assert_eq!((f.keyspace.len(0), f.keyspace.in_use()[&0].mortal), (16, 0));
    assert_eq!(f.keyspace.expiring_len(0), 16);
    f.advance_ms(1000);
    f.keyspace.expire_slice(f.now_ms, usize::MAX);
    assert_eq!((f.keyspace.len(0), f.keyspace.expiring_len(0)), (0, 0));
}

#[test]
fn fields_are_read_and_written_with_their_expiry() {
    let mut f = Fixture::new();
    f.script(&[
        ("HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1|"),
        ("HTTL h FIELDS 2 a b", "*2|:10|:10|"),
        ("HSETEX h FNX FIELDS 2 b 3 c 3", ":0|"),
        ("HSETEX h FXX FIELDS 2 b 3 c 3", ":0|"),
        ("HSETEX h FXX KEEPTTL FIELDS 1 b 3", ":1|"),
        ("HSETEX h FIELDS 1 a 4", ":1|"),
        ("HTTL h FIELDS 2 a b", "*2|:-1|:10|"),
        ("HSETEX h NX FIELDS 1 a 5", ":0|"),
        ("HSETEX none XX FIELDS 1 a 5", ":0|"),
        ("HGETEX h FIELDS 3 a b c", "*3|$1|4|$1|3|$-1|"),
        ("HGETEX h PX 5000 FIELDS 2 a c", "*2|$1|4|$-1|"),
        ("HPTTL h FIELDS 2 a b", "*2|:5000|:10000|"),
        ("HGETEX h PERSIST FIELDS 1 b", "*1|$1|3|"),
        ("HPTTL h FIELDS 1 b", "*1|:-1|"),
        ("HGETDEL h FIELDS 3 b b x", "*3|$1|3|$-1|$-1|"),
        ("HGETEX h EX 0 FIELDS 1 a", "*1|$1|4|"),
        ("EXISTS h", ":0|"),
        ("HSETEX h PXAT 1 FIELDS 1 a 1", ":1|"),
        ("EXISTS h", ":0|"),
        ("HGETDEL h FIELDS 1 a", "*1|$-1|"),
        ("SET s v", "+OK|"),
        ("HGETDEL s FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
}

/// The texts of Redis 8.0.
#[test]
fn the_arguments_of_hgetex_and_hsetex_are_checked_as_redis_checks_them() {
    let mut f = Fixture::new();
    let wrong_arity = |command| format!("-ERR wrong number of arguments for '{command}' command|");
    let [get_arity, set_arity] = ["hgetex", "hsetex"].map(wrong_arity);
    let no_fields = "-ERR Mandatory argument FIELDS is missing or not at the right position|";
    let (negative, too_late) =
        ("-ERR invalid expire time, must be >= 0|", "-ERR invalid expire time in 'hgetex' command|");
    let one_condition = "-ERR Only one of FXX or FNX arguments can be specified|";
    let one_expiry = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|";
    let (no_integer, no_number) =
        ("-ERR value is not an integer or out of range|", "-ERR invalid number of fields|");
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    f.script(&[
        ("HGETEX h EX 1 PX 1 FIELDS 1 a", no_fields),
        ("HGETEX h PERSIST 1 FIELDS 1 a", no_fields),
        ("HGETEX h XFIELDX 1 a", no_fields),
        ("HGETEX h PXAT 1 1", &get_arity),
        ("HGETEX h EX 100 FIELDS", &get_arity),
        ("HGETEX h EX -1 FIELDS 1 a", negative),
        ("HGETEX h EX x 1", no_integer),
        ("HGETEX h PXAT 9223372036854775807 FIELDS 1 a", too_late),
        ("HGETEX h FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments|"),
        ("HGETEX h FIELDS 0 a", "-ERR Number of fields must be a positive integer|"),
        ("HSETEX h FNX FXX FIELDS 1 a 1", one_condition),
        ("HSETEX h FXX FXX EX 1 FIELDS 1 a 1", one_condition),
        ("HSETEX h EX 1 KEEPTTL FIELDS 1 a 1", one_expiry),
        ("HSETEX h KEEPTTL PXAT 1 FIELDS 1 a 1", one_expiry),
        ("HSETEX h NX XX FIELDS 1 a 1", "-ERR syntax error|"),
        ("HSETEX h 1 FIELDS 1 a 1", "-ERR unknown argument: 1|"),
        ("HSETEX h EXAT -1 1 a b", negative),
        ("HSETEX h EX FIELDS 1 a 1", no_integer),
        ("HSETEX h FXX FNX2 FXX EX", "-ERR unknown argument: FNX2|"),
        ("HSETEX h FNX KEEPTTL XX EX", one_expiry),
        ("HSETEX h FNX XX KEEPTTL", &set_arity),
        ("HSETEX h FIELDS 2 a 1 b", &set_arity),
        ("HSETEX h FIELDS 3 a 1 b 2", &set_arity),
        ("HSETEX h FIELDS 1 a 1 b", &set_arity),
        ("HSETEX h KEEPTTL FIELDS 1 a", &set_arity),
        ("HSETEX h FIELDS 0 a 1", no_number),
        ("HSETEX h FIELDS x a 1", no_number),
        ("SET s v", "+OK|"),
        ("HSETEX s FIELDS 0 a 1", no_number),
        ("HSETEX s FIELDS 1 a 1", wrong_type),
        ("HGETEX s EX -1 FIELDS 1 a", wrong_type),
        ("EXISTS h", ":0|"),
    ]);
}

#[test]
fn expiries_travel_with_the_value() {
    let mut f = Fixture::new();
    f.script(&[
        ("HSET h a 1 b 2", ":2|"),
        ("HPEXPIRE h 50 FIELDS 1 a", "*1|:1|"),
        ("PEXPIRE h 500", ":1|"),
        ("COPY h i", ":1|"),
        ("RENAME h j", "+OK|"),
        ("HPTTL i FIELDS 2 a b", "*2|:50|:-1|"),
        ("HPTTL j FIELDS 1 a", "*1|:50|"),
        ("PTTL j", ":500|"),
    ]);
    let dump = f.run_args(&["DUMP", "j"]);
    let body = &dump[dump.iter().position(|b| *b == b'\n').expect("a bulk string") + 1..dump.len() - 2];
    assert_eq!(f.run_args(&[b"RESTORE".as_slice(), b"k", b"0", body]), b"+OK\r\n");
    f.script(&[("HPTTL k FIELDS 2 a b", "*2|:50|:-1|"), ("PTTL k", ":-1|")]);
    f.advance_ms(50);
    f.script(&[
        ("HGETALL i", "*2|$1|b|$1|2|"),
        ("HGETALL j", "*2|$1|b|$1|2|"),
        ("HGETALL k", "*2|$1|b|$1|2|"),
        ("PTTL i", ":450|"),
        ("SET i v KEEPTTL", "+OK|"),
        ("PTTL i", ":450|"),
    ]);
    assert_eq!(f.keyspace.in_use()[&0].mortal, 0);
}

#[test]
fn a_watched_key_changes_when_a_field_expires() {
    let mut f = Fixture::new();
    f.script(&[("HSET h a 1 b 2", ":2|"), ("HPEXPIRE h 10 FIELDS 1 a", "*1|:1|")]);
    let flag = strand_keyspace::WatchFlag::default();
    let key = f.keyspace.key(b"h");
    f.keyspace.lock(&[key.hash], f.now_ms).db(0).watch(&key, &flag);
    f.advance_ms(9);
    f.run("HLEN h");
    assert!(!flag.has_changed());
    f.advance_ms(1);
    f.run("HLEN h");
    assert!(flag.has_changed());
}

/// Payloads of redis-server, in both its forms of hashes whose fields expire. The value must have the digest that
/// it has in redis-server, and must have it after another DUMP and RESTORE, too.
#[test]
fn payloads_of_redis_are_restored() {
    let lines = include_str!("../../../../../rdb/tests/data/dump-redis-head.jsonl").lines();
    let mut restored = 0;
    for line in lines {
        let text = |name: &str| {
            let from = line.find(&format!("\"{name}\":\""))? + name.len() + 4;
            Some(&line[from..from + line[from..].find('"')?])
        };
        let hex = text("dump_hex").expect("a payload");
        let (true, Some(wanted)) = (hex.starts_with("18") || hex.starts_with("19"), text("digest_value"))
        else {
            continue;
        };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
        let mut payload: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        for round in 0..2 {
            let mut f = Fixture::new();
            assert_eq!(f.run_args(&[b"RESTORE".as_slice(), b"h", b"0", &payload]), b"+OK\r\n", "{wanted}");
            let key = f.keyspace.key(b"h");
            let mut txn = f.keyspace.lock(&[key.hash], f.now_ms);
            let value = txn.db(0).peek(&key).expect("it is there").value().to_value();
            drop(txn);
            let digest = digest_of(value.view(), false, ValueDigest::new);
            assert_eq!(digest.to_hex(), wanted, "round {round}");
            let dump = f.run_args(&["DUMP", "h"]);
            let head = dump.iter().position(|b| *b == b'\n').expect("a bulk string") + 1;
            payload = dump[head..dump.len() - 2].to_vec();
        }
        restored += 1;
    }
    assert!(restored >= 7, "{restored}");
}
