//! The rows of group `generic`: commands on keys of any type.

use crate::cost::{Cost, Merge, SlowPath};
use crate::families::{conditional, dump, expiry, generic, keyspace_wide, sort};
use crate::many_key_writes;
use crate::spec::{Arg, BeginSearch, CommandSpec, Exec, FindKeys, Flags as F, KeyFlags as K, KeySpec};

const SORT_PATTERNS: KeySpec = KeySpec::unknown(None, &[K::RO, K::ACCESS])
    .notes("The keys of `BY` and `GET`, whose names are made of the elements.");
const SORT_LIMIT: Arg =
    Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional();
const SORT_GET: Arg = Arg::key_pattern("pattern", 1).token("GET").optional().multiple().multiple_token();
const SORT_ORDER: Arg = Arg::oneof("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional();

/// The condition of EXPIRE, EXPIREAT, PEXPIRE and PEXPIREAT.
const EXPIRE_CONDITION: Arg = Arg::oneof(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.optional()
.since("7.0.0");
/// The history of EXPIRE, EXPIREAT, PEXPIRE and PEXPIREAT.
const EXPIRE_HISTORY: &[(&str, &str)] = &[("7.0.0", "`NX`, `XX`, `GT` and `LT`.")];

/// The arguments of RESTORE and RESTORE-ASKING.
pub(super) const RESTORE_ARGS: &[Arg] = &[
    Arg::key("key", 0),
    Arg::integer("ttl"),
    Arg::string("serialized-value"),
    Arg::word("replace", "REPLACE").optional().since("3.0.0"),
    Arg::word("absttl", "ABSTTL").optional().since("5.0.0"),
    Arg::integer("seconds").token("IDLETIME").optional().since("5.0.0"),
    Arg::integer("frequency").token("FREQ").optional().since("5.0.0"),
];
/// The history of RESTORE and RESTORE-ASKING.
pub(super) const RESTORE_HISTORY: &[(&str, &str)] =
    &[("3.0.0", "Takes `REPLACE`."), ("5.0.0", "Takes `ABSTTL`."), ("5.0.0", "Takes `IDLETIME` and `FREQ`.")];

/// Group `generic`, by name.
pub(crate) const GENERIC: &[CommandSpec] = &[
    CommandSpec::new(
        "copy",
        "generic",
        "6.2.0",
        "O(N), N elements of the value; O(1) for a string",
        "Copies a key with its value and expiry to another key.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS]), KeySpec::one(2, &[K::OW, K::UPDATE])])
    .args(&[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::integer("destination-db").token("DB").optional(),
        Arg::word("replace", "REPLACE").optional(),
    ])
    .exec(Exec::Inline(generic::copy)),
    CommandSpec::new(
        "del",
        "generic",
        "1.0.0",
        "O(N), N keys and the elements of their collections",
        "Removes keys.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RM, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple()])
    .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
    .exec(Exec::Estimated(generic::del, Cost::Arguments, SlowPath::Own(many_key_writes::remove_all))),
    CommandSpec::new(
        "delif",
        "generic",
        "0.1.0",
        "O(N), N the length of the current string",
        "Removes a key only if its current string has, or lacks, one of the given digests.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[
        Arg::key("key", 0),
        conditional::CONDITION,
        conditional::SEED,
        conditional::LIMIT,
        conditional::MATCH,
        conditional::NOMATCH,
    ])
    .exec(Exec::Estimated(conditional::delif, Cost::StringBytes, SlowPath::Locked)),
    CommandSpec::new(
        "dump",
        "generic",
        "2.6.0",
        "O(N) with the elements of the value and their bytes",
        "Returns the value of a key in Redis's own format.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(dump::dump, Cost::Serialized, SlowPath::Own(dump::dump_long))),
    CommandSpec::new("exists", "generic", "1.0.0", "O(N), N keys", "Counts the given keys that exist.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::range(1, -1, 1, &[K::RO])])
        .args(&[Arg::key("key", 0).multiple()])
        .history(&[("3.0.3", "Several keys in one call.")])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .exec(Exec::Estimated(generic::exists, Cost::Arguments, SlowPath::View(Merge::Sum))),
    CommandSpec::new(
        "expire",
        "generic",
        "1.0.0",
        "O(1)",
        "Sets the expiry of a key, some seconds from now.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("seconds"), EXPIRE_CONDITION])
    .history(EXPIRE_HISTORY)
    .exec(Exec::Inline(expiry::expire)),
    CommandSpec::new(
        "expireat",
        "generic",
        "1.2.0",
        "O(1)",
        "Sets the expiry of a key as a unix time in seconds.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::unix_time("unix-time-seconds"), EXPIRE_CONDITION])
    .history(EXPIRE_HISTORY)
    .exec(Exec::Inline(expiry::expireat)),
    CommandSpec::new(
        "expiretime",
        "generic",
        "7.0.0",
        "O(1)",
        "Returns the unix time in seconds at which a key expires.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .exec(Exec::Inline(expiry::expiretime)),
    CommandSpec::new(
        "keys",
        "generic",
        "1.0.0",
        "O(N), N keys in the database",
        "Lists the keys that match a pattern.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::pattern("pattern")])
    .acl(&["keyspace", "read", "slow", "dangerous"])
    .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
    .exec(Exec::Walk(keyspace_wide::keys))
    .in_exec(keyspace_wide::keys_in_exec),
    CommandSpec::new(
        "migrate",
        "generic",
        "2.6.0",
        "O(N), N elements of the values, at both servers",
        "Moves keys to another server.",
    )
    .flags(&[F::WRITE, F::MOVABLEKEYS])
    .keys(&[
        KeySpec::one(3, &[K::RW, K::ACCESS, K::DELETE]),
        KeySpec::new(
            &[K::RW, K::ACCESS, K::DELETE, K::INCOMPLETE],
            BeginSearch::Keyword("KEYS", -2),
            FindKeys::Range { last: -1, step: 1, limit: 0 },
        ),
    ])
    .args(&[
        Arg::string("host"),
        Arg::integer("port"),
        Arg::oneof("key-selector", &[Arg::key("key", 0), Arg::word("empty-string", "")]),
        Arg::integer("destination-db"),
        Arg::integer("timeout"),
        Arg::word("copy", "COPY").optional().since("3.0.0"),
        Arg::word("replace", "REPLACE").optional().since("3.0.0"),
        Arg::oneof(
            "authentication",
            &[
                Arg::string("auth").token("AUTH").since("4.0.7"),
                Arg::block("auth2", &[Arg::string("username"), Arg::string("password")])
                    .token("AUTH2")
                    .since("6.0.0"),
            ],
        )
        .optional(),
        Arg::key("keys", 1).token("KEYS").optional().multiple().since("3.0.6"),
    ])
    .history(&[
        ("3.0.0", "`COPY` and `REPLACE`."),
        ("3.0.6", "`KEYS`."),
        ("4.0.7", "`AUTH`."),
        ("6.0.0", "`AUTH2`."),
    ])
    .tips(&["nondeterministic_output"])
    .acl(&["keyspace", "write", "slow", "dangerous"])
    .exec(Exec::Service(|services, call| services.migrate(call))),
    CommandSpec::new("move", "generic", "1.0.0", "O(1)", "Moves a key to another database.")
        .flags(&[F::WRITE, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::integer("db")])
        .exec(Exec::Inline(generic::move_)),
    CommandSpec::new(
        "object",
        "generic",
        "2.2.3",
        "By subcommand",
        "Groups the commands that show how a value is stored.",
    )
    .arity(-2)
    .acl(&["slow"])
    .subcommands(&[
        CommandSpec::sub(
            "encoding",
            "generic",
            "2.2.3",
            "O(1)",
            "Names the internal form of the value at a key.",
        )
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(generic::object_encoding)),
        CommandSpec::sub(
            "freq",
            "generic",
            "4.0.0",
            "O(1)",
            "Returns how often a key was used, on a logarithmic scale.",
        )
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(generic::object_freq)),
        CommandSpec::sub("help", "generic", "6.2.0", "O(1)", "Lists the subcommands of OBJECT.")
            .flags(&[F::LOADING, F::STALE])
            .exec(Exec::Inline(generic::object_help)),
        CommandSpec::sub(
            "idletime",
            "generic",
            "2.2.3",
            "O(1)",
            "Returns for how many seconds a key was not used.",
        )
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(generic::object_idletime)),
        CommandSpec::sub(
            "refcount",
            "generic",
            "2.2.3",
            "O(1)",
            "Returns how many references the value at a key has.",
        )
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(generic::object_refcount)),
    ]),
    CommandSpec::new("persist", "generic", "2.2.0", "O(1)", "Removes the expiry of a key.")
        .flags(&[F::WRITE, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(expiry::persist)),
    CommandSpec::new(
        "pexpire",
        "generic",
        "2.6.0",
        "O(1)",
        "Sets the expiry of a key, some milliseconds from now.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("milliseconds"), EXPIRE_CONDITION])
    .history(EXPIRE_HISTORY)
    .exec(Exec::Inline(expiry::pexpire)),
    CommandSpec::new(
        "pexpireat",
        "generic",
        "2.6.0",
        "O(1)",
        "Sets the expiry of a key as a unix time in milliseconds.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::unix_time("unix-time-milliseconds"), EXPIRE_CONDITION])
    .history(EXPIRE_HISTORY)
    .exec(Exec::Inline(expiry::pexpireat)),
    CommandSpec::new(
        "pexpiretime",
        "generic",
        "7.0.0",
        "O(1)",
        "Returns the unix time in milliseconds at which a key expires.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0)])
    .exec(Exec::Inline(expiry::pexpiretime)),
    CommandSpec::new("pttl", "generic", "2.6.0", "O(1)", "Returns how many milliseconds a key has left.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0)])
        .history(&[("2.8.0", "Returns -2 when there is no such key.")])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(expiry::pttl)),
    CommandSpec::new("randomkey", "generic", "1.0.0", "O(1)", "Returns a random key.")
        .flags(&[F::READONLY])
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .exec(Exec::Estimated(keyspace_wide::randomkey, Cost::Shards, SlowPath::Locked)),
    CommandSpec::new(
        "rename",
        "generic",
        "1.0.0",
        "O(1)",
        "Gives a key another name, and replaces the key that has that name.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::OW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::key("newkey", 1)])
    .exec(Exec::Inline(generic::rename)),
    CommandSpec::new(
        "renamenx",
        "generic",
        "1.0.0",
        "O(1)",
        "Gives a key another name, only if no key has that name.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::OW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::key("newkey", 1)])
    .history(&[("3.2.0", "Renaming a key to its own name is no error any more.")])
    .exec(Exec::Inline(generic::renamenx)),
    CommandSpec::new(
        "restore",
        "generic",
        "2.6.0",
        "O(N) with the elements of the value and their bytes; O(N*log(N)) for a sorted set",
        "Creates a key from a value that DUMP returned.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE])])
    .args(RESTORE_ARGS)
    .acl(&["keyspace", "write", "slow", "dangerous"])
    .history(RESTORE_HISTORY)
    .exec(Exec::Estimated(dump::restore, Cost::Payload(3), SlowPath::Own(dump::restore_long))),
    CommandSpec::new(
        "scan",
        "generic",
        "2.8.0",
        "O(1) a call, O(N) for all N keys",
        "Walks over the keys, a part with each call.",
    )
    .flags(&[F::READONLY])
    .args(&[
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::string("type").token("TYPE").optional().since("6.0.0"),
    ])
    .history(&[("6.0.0", "`TYPE`.")])
    .tips(&["nondeterministic_output", "request_policy:special"])
    .exec(Exec::Estimated(
        keyspace_wide::scan,
        Cost::CountOption(2),
        SlowPath::Own(keyspace_wide::scan_long),
    )),
    CommandSpec::new(
        "sort",
        "generic",
        "1.0.0",
        "O(N+M*log(M)) with the elements of the value and those returned",
        "Sorts the elements of a list, set or sorted set, and returns or stores them.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .acl(&["write", "set", "sortedset", "list", "slow", "dangerous"])
    .keys(&[
        KeySpec::one(1, &[K::RO, K::ACCESS]),
        SORT_PATTERNS,
        KeySpec::unknown(Some(sort::destination), &[K::OW, K::UPDATE])
            .notes("The key after `STORE`. This option may stand anywhere among the options."),
    ])
    .args(&[
        Arg::key("key", 0),
        Arg::key_pattern("pattern", 1).token("BY").optional(),
        SORT_LIMIT,
        SORT_GET,
        SORT_ORDER,
        Arg::word("sorting", "ALPHA").optional(),
        Arg::key("destination", 2).token("STORE").optional(),
    ])
    .exec(Exec::Estimated(sort::sort, Cost::Sort, SlowPath::Own(sort::sort_long))),
    CommandSpec::new(
        "sort_ro",
        "generic",
        "7.0.0",
        "O(N+M*log(M)) with the elements of the value and those returned",
        "Sorts the elements of a list, set or sorted set, and returns them.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .acl(&["read", "set", "sortedset", "list", "slow", "dangerous"])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS]), SORT_PATTERNS])
    .args(&[
        Arg::key("key", 0),
        Arg::key_pattern("pattern", 1).token("BY").optional(),
        SORT_LIMIT,
        SORT_GET,
        SORT_ORDER,
        Arg::word("sorting", "ALPHA").optional(),
    ])
    .exec(Exec::Estimated(sort::sort_ro, Cost::Sort, SlowPath::Own(sort::sort_ro_long))),
    CommandSpec::new(
        "touch",
        "generic",
        "3.2.1",
        "O(N), N keys",
        "Marks keys as used just now, and counts the keys that exist.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RO])])
    .args(&[Arg::key("key", 0).multiple()])
    .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
    .exec(Exec::Estimated(generic::touch, Cost::Arguments, SlowPath::View(Merge::Sum))),
    CommandSpec::new("ttl", "generic", "1.0.0", "O(1)", "Returns how many seconds a key has left.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0)])
        .history(&[("2.8.0", "Returns -2 when there is no such key.")])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Inline(expiry::ttl)),
    CommandSpec::new("type", "generic", "1.0.0", "O(1)", "Names the type of the value at a key.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(generic::type_)),
    CommandSpec::new(
        "unlink",
        "generic",
        "4.0.0",
        "O(1) a key; freeing is left to the background",
        "Removes keys and frees their memory in the background.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RM, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple()])
    .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
    .exec(Exec::Estimated(generic::unlink, Cost::Arguments, SlowPath::Own(many_key_writes::remove_all))),
];
