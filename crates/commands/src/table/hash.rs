//! The rows of group `hash`: fields with values.

use crate::cost::{Cost, Merge, SlowPath};
use crate::families::{conditional, hash};
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

const FIELDS: Arg =
    Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS");
const EXPIRY_CONDITION: Arg = Arg::oneof(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.optional();

/// Group `hash`, by name.
pub(crate) const HASH: &[CommandSpec] = &[
    CommandSpec::new(
        "hdel",
        "hash",
        "2.0.0",
        "O(N) with the number of fields given",
        "Deletes fields of a hash.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::string("field").multiple()])
    .history(&[("2.4.0", "Takes several fields.")])
    .exec(Exec::Estimated(hash::hdel, Cost::Arguments, SlowPath::fields(Merge::Sum))),
    CommandSpec::new(
        "hexpire",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Sets the expiry of fields, some seconds from now.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("seconds"), EXPIRY_CONDITION, FIELDS])
    .exec(Exec::Estimated(hash::hexpire, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hexpireat",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Sets the expiry of fields as a unix time in seconds.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::unix_time("unix-time-seconds"), EXPIRY_CONDITION, FIELDS])
    .exec(Exec::Estimated(hash::hexpireat, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hexpiretime",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Returns the unix times in seconds at which fields expire.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), FIELDS])
    .exec(Exec::Estimated(hash::hexpiretime, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "hgetdel",
        "hash",
        "8.0.0",
        "O(N) with the number of fields given",
        "Returns the values of fields and deletes the fields.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), FIELDS])
    .exec(Exec::Estimated(hash::hgetdel, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hgetex",
        "hash",
        "8.0.0",
        "O(N) with the number of fields given",
        "Returns the values of fields and sets their expiry.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
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
        FIELDS,
    ])
    .exec(Exec::Estimated(hash::hgetex, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hpersist",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Removes the expiry of fields.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), FIELDS])
    .exec(Exec::Estimated(hash::hpersist, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hpexpire",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Sets the expiry of fields, some milliseconds from now.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("milliseconds"), EXPIRY_CONDITION, FIELDS])
    .exec(Exec::Estimated(hash::hpexpire, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hpexpireat",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Sets the expiry of fields as a unix time in milliseconds.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::unix_time("unix-time-milliseconds"), EXPIRY_CONDITION, FIELDS])
    .exec(Exec::Estimated(hash::hpexpireat, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "hpexpiretime",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Returns the unix times in milliseconds at which fields expire.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), FIELDS])
    .exec(Exec::Estimated(hash::hpexpiretime, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "hpttl",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Returns how many milliseconds fields have left.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), FIELDS])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(hash::hpttl, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "hsetex",
        "hash",
        "8.0.0",
        "O(N) with the number of fields given",
        "Sets fields of a hash with an expiry.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        conditional::CONDITION,
        Arg::oneof("field-condition", &[Arg::word("fnx", "FNX"), Arg::word("fxx", "FXX")]).optional(),
        conditional::EXPIRATION,
        Arg::block(
            "fields",
            &[
                Arg::integer("numfields"),
                Arg::block("data", &[Arg::string("field"), Arg::string("value")]).multiple(),
            ],
        )
        .token("FIELDS"),
    ])
    .exec(Exec::Estimated(hash::hsetex, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "httl",
        "hash",
        "7.4.0",
        "O(N) with the number of fields given",
        "Returns how many seconds fields have left.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), FIELDS])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(hash::httl, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new("hexists", "hash", "2.0.0", "O(1)", "Returns whether a hash has a field.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0), Arg::string("field")])
        .exec(Exec::Inline(hash::hexists)),
    CommandSpec::new("hget", "hash", "2.0.0", "O(1)", "Returns the value of a field.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0), Arg::string("field")])
        .exec(Exec::Inline(hash::hget)),
    CommandSpec::new(
        "hgetall",
        "hash",
        "2.0.0",
        "O(N) with the size of the hash",
        "Returns all fields and values of a hash.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .tips(&["nondeterministic_output_order"])
    .exec(Exec::Estimated(hash::hgetall, Cost::Elements, SlowPath::CopyValues)),
    CommandSpec::new("hincrby", "hash", "2.0.0", "O(1)", "Adds an integer to the value of a field.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::string("field"), Arg::integer("increment")])
        .exec(Exec::Inline(hash::hincrby)),
    CommandSpec::new(
        "hincrbyfloat",
        "hash",
        "2.6.0",
        "O(1)",
        "Adds a floating point number to the value of a field.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::string("field"), Arg::double("increment")])
    .exec(Exec::Inline(hash::hincrbyfloat)),
    CommandSpec::new(
        "hkeys",
        "hash",
        "2.0.0",
        "O(N) with the size of the hash",
        "Returns all fields of a hash.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .tips(&["nondeterministic_output_order"])
    .exec(Exec::Estimated(hash::hkeys, Cost::Elements, SlowPath::CopyValues)),
    CommandSpec::new("hlen", "hash", "2.0.0", "O(1)", "Returns the number of fields of a hash.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(hash::hlen)),
    CommandSpec::new(
        "hmget",
        "hash",
        "2.0.0",
        "O(N) with the number of fields given",
        "Returns the values of several fields.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::string("field").multiple()])
    .exec(Exec::Estimated(hash::hmget, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "hmset",
        "hash",
        "2.0.0",
        "O(N) with the number of fields given",
        "Sets several fields of a hash.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("field_value", &[Arg::string("field"), Arg::string("value")]).multiple(),
    ])
    .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
    .exec(Exec::Estimated(hash::hmset, Cost::Arguments, SlowPath::field_pairs(Merge::Any))),
    CommandSpec::new(
        "hrandfield",
        "hash",
        "6.2.0",
        "O(N) with the number of fields returned",
        "Returns random fields of a hash, with their values if asked.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("options", &[Arg::integer("count"), Arg::word("withvalues", "WITHVALUES").optional()])
            .optional(),
    ])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(hash::hrandfield, Cost::CountArgument(2), SlowPath::CopyValues)),
    CommandSpec::new(
        "hscan",
        "hash",
        "2.8.0",
        "O(1) a call; O(N) for a whole walk",
        "Walks over the fields of a hash, a part with each call.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::word("novalues", "NOVALUES").optional().since("7.4.0"),
    ])
    .tips(&["nondeterministic_output"])
    .history(&[("7.4.0", "`NOVALUES`.")])
    .exec(Exec::Estimated(hash::hscan, Cost::CountOption(3), SlowPath::Own(hash::hscan_long))),
    CommandSpec::new(
        "hreplace",
        "hash",
        "0.1.0",
        "O(N) with the number of fields given",
        "Replaces the value at a key by a hash of the given fields.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        conditional::CONDITION,
        conditional::EXPIRATION,
        Arg::word("fields", "FIELDS"),
        Arg::block("field_value", &[Arg::string("field"), Arg::string("value")]).multiple(),
    ])
    .exec(Exec::Estimated(
        conditional::hreplace,
        Cost::Arguments,
        SlowPath::Own(conditional::hreplace_long),
    )),
    CommandSpec::new(
        "hset",
        "hash",
        "2.0.0",
        "O(N) with the number of fields given",
        "Sets fields of a hash, and counts the new fields.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("field_value", &[Arg::string("field"), Arg::string("value")]).multiple(),
    ])
    .history(&[("4.0.0", "Takes several fields with their values.")])
    .exec(Exec::Estimated(hash::hset, Cost::Arguments, SlowPath::field_pairs(Merge::Sum))),
    CommandSpec::new(
        "hsetnx",
        "hash",
        "2.0.0",
        "O(1)",
        "Sets a field of a hash only if the hash lacks the field.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("field"), Arg::string("value")])
    .exec(Exec::Inline(hash::hsetnx)),
    CommandSpec::new("hstrlen", "hash", "3.2.0", "O(1)", "Returns the length of a field's value.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0), Arg::string("field")])
        .exec(Exec::Inline(hash::hstrlen)),
    CommandSpec::new(
        "hvals",
        "hash",
        "2.0.0",
        "O(N) with the size of the hash",
        "Returns all values of a hash.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .tips(&["nondeterministic_output_order"])
    .exec(Exec::Estimated(hash::hvals, Cost::Elements, SlowPath::CopyValues)),
];
