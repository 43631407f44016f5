//! The rows of group `server` that are about the data, and those of MEMORY's subcommands that are.

use crate::cost::{Cost, SlowPath};
use crate::families::{dump, keyspace_wide, memory};
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};
use crate::table::generic::{RESTORE_ARGS, RESTORE_HISTORY};

/// The rows of group `server`, by name.
pub(crate) const SERVER: &[CommandSpec] = &[
    CommandSpec::new("dbsize", "server", "1.0.0", "O(1)", "Counts the keys of the database.")
        .flags(&[F::READONLY, F::FAST])
        .acl(&["keyspace", "read", "fast"])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .exec(Exec::Estimated(keyspace_wide::dbsize, Cost::Shards, SlowPath::Locked)),
    CommandSpec::new(
        "flushall",
        "server",
        "1.0.0",
        "O(N), N keys in all databases",
        "Removes every key of every database.",
    )
    .flags(&[F::WRITE])
    .args(&[Arg::oneof(
        "async",
        &[Arg::word("async", "ASYNC").since("4.0.0"), Arg::word("sync", "SYNC").since("6.2.0")],
    )
    .optional()])
    .acl(&["keyspace", "write", "slow", "dangerous"])
    .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .exec(Exec::Walk(keyspace_wide::flushall))
    .in_exec(keyspace_wide::flushall_in_exec),
    CommandSpec::new(
        "flushdb",
        "server",
        "1.0.0",
        "O(N), N keys in the database",
        "Removes every key of the database.",
    )
    .flags(&[F::WRITE])
    .args(&[Arg::oneof(
        "async",
        &[Arg::word("async", "ASYNC").since("4.0.0"), Arg::word("sync", "SYNC").since("6.2.0")],
    )
    .optional()])
    .acl(&["keyspace", "write", "slow", "dangerous"])
    .history(&[("4.0.0", "`ASYNC`."), ("6.2.0", "`SYNC`.")])
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .exec(Exec::Walk(keyspace_wide::flushdb))
    .in_exec(keyspace_wide::flushdb_in_exec),
    CommandSpec::new(
        "restore-asking",
        "server",
        "3.0.0",
        "As RESTORE",
        "Creates a key from a value that DUMP returned, for a slot that is being moved.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::ASKING])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE])])
    .args(RESTORE_ARGS)
    .acl(&["keyspace", "write", "slow", "dangerous"])
    .doc_flags(&["syscmd"])
    .history(RESTORE_HISTORY)
    .exec(Exec::Estimated(dump::restore, Cost::Payload(3), SlowPath::Own(dump::restore_long))),
    CommandSpec::new("swapdb", "server", "4.0.0", "O(1)", "Exchanges two databases.")
        .flags(&[F::WRITE, F::FAST])
        .args(&[Arg::integer("index1"), Arg::integer("index2")])
        .acl(&["keyspace", "write", "fast", "dangerous"])
        .exec(Exec::Walk(keyspace_wide::swapdb))
        .in_exec(keyspace_wide::swapdb_in_exec),
];

/// MEMORY with the subcommands that are about the data. The engine adds its own.
pub const MEMORY: CommandSpec = CommandSpec::container(
    "memory",
    "server",
    "4.0.0",
    "Groups the commands about memory.",
    &[
        CommandSpec::sub("help", "server", "4.0.0", "O(1)", "Lists the subcommands of MEMORY.")
            .flags(&[F::LOADING, F::STALE])
            .exec(Exec::Inline(memory::help)),
        CommandSpec::sub("usage", "server", "4.0.0", "O(1)", "Returns how many bytes a key takes in memory.")
            .flags(&[F::READONLY])
            .keys(&[KeySpec::one(2, &[K::RO])])
            .args(&[Arg::key("key", 0), Arg::integer("count").token("SAMPLES").optional()])
            .exec(Exec::Inline(memory::usage)),
    ],
);
