//! The rows of group `string`: commands on strings.

use crate::cost::{Cost, Merge, SlowPath};
use crate::families::{conditional, string};
use crate::many_key_writes;
use crate::spec::{Arg, BeginSearch, CommandSpec, Exec, FindKeys, Flags as F, KeyFlags as K, KeySpec};

/// Group `string`, by name.
pub(crate) const STRING: &[CommandSpec] = &[
    CommandSpec::new(
        "append",
        "string",
        "2.0.0",
        "O(1) for a short addition, amortised",
        "Appends bytes to a string. Creates the string if the key does not exist.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("value")])
    .exec(Exec::Estimated(string::append, Cost::Append, SlowPath::Locked)),
    CommandSpec::new("decr", "string", "1.0.0", "O(1)", "Subtracts one from the integer at a key.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(string::decr)),
    CommandSpec::new("decrby", "string", "1.0.0", "O(1)", "Subtracts a number from the integer at a key.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::integer("decrement")])
        .exec(Exec::Inline(string::decrby)),
    CommandSpec::new(
        "delex",
        "string",
        "8.4.0",
        "O(N), N the length of the string, if the command compares it",
        "Removes a key, optionally only if its string equals, or differs from, a value or digest.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::oneof("condition", &[IFEQ, IFNE, IFDEQ, IFDNE]).optional()])
    .exec(Exec::Estimated(string::delex, Cost::StringBytes, SlowPath::Locked)),
    CommandSpec::new(
        "delifeq",
        "string",
        "8.4.0",
        "O(N), N the length of the string",
        "Removes a key only if its string equals the given string.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::string("value")])
    .exec(Exec::Estimated(string::delifeq, Cost::StringBytes, SlowPath::Locked)),
    CommandSpec::new(
        "digest",
        "string",
        "8.4.0",
        "O(N), N the length of the string",
        "Returns the hash of a string as hexadecimal digits.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .exec(Exec::Estimated(string::digest, Cost::StringBytes, SlowPath::CopyValues)),
    CommandSpec::new("get", "string", "1.0.0", "O(1)", "Returns the string at a key.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(string::get)),
    CommandSpec::new("getdel", "string", "6.2.0", "O(1)", "Returns the string at a key and removes the key.")
        .flags(&[F::WRITE, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(string::getdel)),
    CommandSpec::new(
        "getex",
        "string",
        "6.2.0",
        "O(1)",
        "Returns the string at a key, and can change the key's expiry.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[
        KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE]).notes("Written when an option changes the expiry")
    ])
    .args(&[
        Arg::key("key", 0),
        Arg::oneof(
            "expiration",
            &[
                Arg::integer("seconds").token("EX"),
                Arg::integer("milliseconds").token("PX"),
                Arg::unix_time("unix-time-seconds").token("EXAT"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT"),
                Arg::word("persist", "PERSIST"),
            ],
        )
        .optional(),
    ])
    .exec(Exec::Inline(string::getex)),
    CommandSpec::new(
        "getrange",
        "string",
        "2.4.0",
        "O(N), N bytes of the reply",
        "Returns the bytes between two offsets of a string.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::integer("start"), Arg::integer("end")])
    .exec(Exec::Inline(string::getrange)),
    CommandSpec::new(
        "getset",
        "string",
        "1.0.0",
        "O(1)",
        "Sets the string at a key and returns the old string.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::string("value")])
    .deprecated("6.2.0", "SET with GET")
    .exec(Exec::Inline(string::getset)),
    CommandSpec::new("incr", "string", "1.0.0", "O(1)", "Adds one to the integer at a key.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(string::incr)),
    CommandSpec::new("incrby", "string", "1.0.0", "O(1)", "Adds a number to the integer at a key.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::integer("increment")])
        .exec(Exec::Inline(string::incrby)),
    CommandSpec::new(
        "incrbyfloat",
        "string",
        "2.6.0",
        "O(1)",
        "Adds a floating point number to the number at a key.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::double("increment")])
    .exec(Exec::Inline(string::incrbyfloat)),
    CommandSpec::new(
        "lcs",
        "string",
        "7.0.0",
        "O(N*M), N and M the lengths of the strings",
        "Finds the longest subsequence that two strings share.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::range(1, 1, 1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key1", 0),
        Arg::key("key2", 0),
        Arg::word("len", "LEN").optional(),
        Arg::word("idx", "IDX").optional(),
        Arg::integer("len").token("MINMATCHLEN").optional(),
        Arg::word("withmatchlen", "WITHMATCHLEN").optional(),
    ])
    .exec(Exec::Heavy(string::lcs)),
    CommandSpec::new("mget", "string", "1.0.0", "O(N), N keys", "Returns the strings at several keys.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::range(1, -1, 1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0).multiple()])
        .tips(&["request_policy:multi_shard"])
        .exec(Exec::Estimated(string::mget, Cost::Arguments, SlowPath::View(Merge::Append))),
    CommandSpec::new("mset", "string", "1.0.1", "O(N), N keys", "Sets several keys at once.")
        .flags(&[F::WRITE, F::DENYOOM])
        .keys(&[KeySpec::range(1, -1, 2, &[K::OW, K::UPDATE])])
        .args(&[Arg::block("key_value", &[Arg::key("key", 0), Arg::string("value")]).multiple()])
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .exec(Exec::Estimated(string::mset, Cost::Arguments, SlowPath::Own(many_key_writes::set_all))),
    CommandSpec::new(
        "msetex",
        "string",
        "8.4.0",
        "O(N), N keys",
        "Sets several keys at once, with one expiry for all keys.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::new(
        &[K::OW, K::UPDATE],
        BeginSearch::Index(1),
        FindKeys::KeyNumber { number: 0, first: 1, step: 2 },
    )])
    .args(&[
        Arg::integer("numkeys"),
        Arg::block("data", &[Arg::key("key", 0), Arg::string("value")]).multiple(),
        conditional::CONDITION,
        conditional::EXPIRATION,
    ])
    .exec(Exec::Estimated(
        string::msetex,
        Cost::Arguments,
        SlowPath::Own(many_key_writes::set_all_with_options),
    )),
    CommandSpec::new(
        "msetnx",
        "string",
        "1.0.1",
        "O(N), N keys",
        "Sets several keys at once, only if none of the keys exists.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::range(1, -1, 2, &[K::OW, K::INSERT])])
    .args(&[Arg::block("key_value", &[Arg::key("key", 0), Arg::string("value")]).multiple()])
    .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
    .exec(Exec::Estimated(
        string::msetnx,
        Cost::Arguments,
        SlowPath::Own(many_key_writes::set_all_if_none_exists),
    )),
    CommandSpec::new(
        "psetex",
        "string",
        "2.6.0",
        "O(1)",
        "Sets a string that expires after some milliseconds.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("milliseconds"), Arg::string("value")])
    .exec(Exec::Inline(string::psetex)),
    CommandSpec::new(
        "set",
        "string",
        "1.0.0",
        "O(1)",
        "Sets the string at a key, whatever value the key had.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(
        &[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE, K::VARIABLE]).notes("Also read when GET is given")],
    )
    .args(&[
        Arg::key("key", 0),
        Arg::string("value"),
        Arg::oneof(
            "condition",
            &[
                Arg::word("nx", "NX"),
                Arg::word("xx", "XX"),
                IFEQ.since("8.1.0"),
                IFNE.since("8.4.0"),
                IFDEQ.since("8.4.0"),
                IFDNE.since("8.4.0"),
            ],
        )
        .optional()
        .since("2.6.12"),
        Arg::word("get", "GET").optional().since("6.2.0"),
        Arg::oneof(
            "expiration",
            &[
                Arg::integer("seconds").token("EX").since("2.6.12"),
                Arg::integer("milliseconds").token("PX").since("2.6.12"),
                Arg::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                Arg::word("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ])
    .history(&[
        ("2.6.12", "`EX`, `PX`, `NX` and `XX`."),
        ("6.0.0", "`KEEPTTL`."),
        ("6.2.0", "`GET`, `EXAT` and `PXAT`."),
        ("7.0.0", "`NX` and `GET` together."),
        ("8.1.0", "`IFEQ`, as in Valkey."),
        ("8.4.0", "`IFNE`, `IFDEQ` and `IFDNE`."),
    ])
    .exec(Exec::Inline(string::set)),
    CommandSpec::new("setex", "string", "2.0.0", "O(1)", "Sets a string that expires after some seconds.")
        .flags(&[F::WRITE, F::DENYOOM])
        .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::integer("seconds"), Arg::string("value")])
        .exec(Exec::Inline(string::setex)),
    CommandSpec::new(
        "setif",
        "string",
        "0.1.0",
        "O(N), N the length of the current string",
        "Sets a string only if the current string has, or lacks, one of the given digests.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("value"),
        conditional::CONDITION,
        conditional::SEED,
        conditional::LIMIT,
        conditional::MATCH,
        conditional::NOMATCH,
        conditional::EXPIRATION,
    ])
    .exec(Exec::Estimated(conditional::setif, Cost::StringBytes, SlowPath::Locked)),
    CommandSpec::new(
        "setnx",
        "string",
        "1.0.0",
        "O(1)",
        "Sets the string at a key, only if the key does not exist.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::OW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("value")])
    .exec(Exec::Inline(string::setnx)),
    CommandSpec::new(
        "setrange",
        "string",
        "2.2.0",
        "O(M), M bytes written",
        "Overwrites part of a string from an offset on, padding with zero bytes.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("offset"), Arg::string("value")])
    .exec(Exec::Estimated(string::setrange, Cost::Overwrite, SlowPath::Locked)),
    CommandSpec::new("strlen", "string", "2.2.0", "O(1)", "Returns how many bytes the string at a key has.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(string::strlen)),
    CommandSpec::new(
        "substr",
        "string",
        "1.0.0",
        "O(N), N bytes of the reply",
        "Returns the bytes between two offsets of a string (the old name of GETRANGE).",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::integer("start"), Arg::integer("end")])
    .deprecated("2.0.0", "GETRANGE")
    .exec(Exec::Inline(string::substr)),
];

const IFEQ: Arg = Arg::string("ifeq-value").token("IFEQ");
const IFNE: Arg = Arg::string("ifne-value").token("IFNE");
const IFDEQ: Arg = Arg::string("ifdeq-digest").token("IFDEQ");
const IFDNE: Arg = Arg::string("ifdne-digest").token("IFDNE");
