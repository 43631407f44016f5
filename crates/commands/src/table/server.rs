//! The rows of group `server`: commands about the server.

use crate::cost::{Cost, SlowPath};
use crate::families::{keyspace_wide, memory};
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec, SessionCommand as S};

const LATENCY_TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

/// Group `server`, by name.
pub(crate) static SERVER: &[CommandSpec] = &[
    CommandSpec::new(
        "bgrewriteaof",
        "server",
        "1.0.0",
        "O(1)",
        "Writes the append-only file anew, without what is of no use any more, in the background.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING])
    .exec(Exec::Session(S::BgRewriteAof)),
    CommandSpec::new("bgsave", "server", "1.0.0", "O(1)", "Writes a snapshot to the disk in the background.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING])
        .args(&[Arg::word("schedule", "SCHEDULE").optional().since("3.2.2")])
        .arity(-1)
        .history(&[("3.2.2", "`SCHEDULE`.")])
        .exec(Exec::Session(S::BgSave)),
    CommandSpec::new("command", "server", "2.8.13", "O(N), N commands", "Describes all commands.")
        .flags(&[F::LOADING, F::STALE])
        .arity(-1)
        .acl(&["slow", "connection"])
        .tips(&["nondeterministic_output_order"])
        .subcommands(&[
            CommandSpec::sub("count", "server", "2.8.13", "O(1)", "Counts the commands.")
                .flags(&[F::LOADING, F::STALE])
                .acl(&["slow", "connection"])
                .exec(Exec::Session(S::CommandCount)),
            CommandSpec::sub("docs", "server", "7.0.0", "O(N), N commands asked for", "Documents commands.")
                .flags(&[F::LOADING, F::STALE])
                .args(&[Arg::string("command-name").optional().multiple()])
                .acl(&["slow", "connection"])
                .tips(&["nondeterministic_output_order"])
                .exec(Exec::Session(S::CommandDocs)),
            CommandSpec::sub(
                "getkeys",
                "server",
                "2.8.13",
                "O(N), N arguments",
                "Picks the keys out of a whole command.",
            )
            .flags(&[F::LOADING, F::STALE])
            .arity(-4)
            .acl(&["slow", "connection"])
            .exec(Exec::Session(S::CommandGetKeys)),
            CommandSpec::sub(
                "getkeysandflags",
                "server",
                "7.0.0",
                "O(N), N arguments",
                "Picks the keys out of a whole command and tells what it does to each.",
            )
            .flags(&[F::LOADING, F::STALE])
            .arity(-4)
            .acl(&["slow", "connection"])
            .exec(Exec::Session(S::CommandGetKeysAndFlags)),
            CommandSpec::sub("help", "server", "5.0.0", "O(1)", "Lists the subcommands of COMMAND.")
                .flags(&[F::LOADING, F::STALE])
                .acl(&["slow", "connection"])
                .exec(Exec::Session(S::CommandHelp)),
            CommandSpec::sub(
                "info",
                "server",
                "2.8.13",
                "O(N), N commands asked for",
                "Describes the given commands.",
            )
            .flags(&[F::LOADING, F::STALE])
            .args(&[Arg::string("command-name").optional().multiple()])
            .acl(&["slow", "connection"])
            .history(&[("7.0.0", "Without names it describes all commands.")])
            .tips(&["nondeterministic_output_order"])
            .exec(Exec::Session(S::CommandInfo)),
            CommandSpec::sub("list", "server", "7.0.0", "O(N), N commands", "Lists the names of commands.")
                .flags(&[F::LOADING, F::STALE])
                .args(&[Arg::oneof(
                    "filterby",
                    &[
                        Arg::string("module-name").token("MODULE"),
                        Arg::string("category").token("ACLCAT"),
                        Arg::pattern("pattern").token("PATTERN"),
                    ],
                )
                .token("FILTERBY")
                .optional()])
                .acl(&["slow", "connection"])
                .tips(&["nondeterministic_output_order"])
                .exec(Exec::Session(S::CommandList)),
        ])
        .exec(Exec::Session(S::Command)),
    CommandSpec::container(
        "config",
        "server",
        "2.0.0",
        "Groups the commands about the configuration.",
        &[
            CommandSpec::sub(
                "get",
                "server",
                "2.0.0",
                "O(N), N parameters",
                "Reads configuration parameters that match patterns.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[Arg::block("parameter", &[Arg::string("parameter")]).multiple()])
            .history(&[("7.0.0", "Several patterns in one call.")])
            .exec(Exec::Session(S::ConfigGet)),
            CommandSpec::sub("help", "server", "5.0.0", "O(1)", "Lists the subcommands of CONFIG.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(S::ConfigHelp)),
            CommandSpec::sub(
                "resetstat",
                "server",
                "2.0.0",
                "O(1)",
                "Sets the counters that INFO shows back to zero.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(S::ConfigResetStat)),
            CommandSpec::sub(
                "rewrite",
                "server",
                "2.8.0",
                "O(1)",
                "Writes the configuration in effect into its file.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(S::ConfigRewrite)),
            CommandSpec::sub(
                "set",
                "server",
                "2.0.0",
                "O(N), N parameters",
                "Changes configuration parameters while the server runs.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[
                Arg::block("parameter_value", &[Arg::string("parameter"), Arg::string("value")]).multiple()
            ])
            .history(&[("7.0.0", "Several parameters in one call.")])
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .exec(Exec::Session(S::ConfigSet)),
        ],
    ),
    CommandSpec::new("dbsize", "server", "1.0.0", "O(1)", "Counts the keys of the database.")
        .flags(&[F::READONLY, F::FAST])
        .acl(&["keyspace", "read", "fast"])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .exec(Exec::Estimated(keyspace_wide::dbsize, Cost::Shards, SlowPath::Held)),
    CommandSpec::new("debug", "server", "1.0.0", "By subcommand", "Helps to test the server.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE, F::PROTECTED])
        .arity(-2)
        .doc_flags(&["syscmd"])
        .exec(Exec::Session(S::Debug)),
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
    .whole(keyspace_wide::flushall_whole),
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
    .whole(keyspace_wide::flushdb_whole),
    CommandSpec::new(
        "info",
        "server",
        "1.0.0",
        "O(1)",
        "Reports the state of the server, section by section.",
    )
    .flags(&[F::LOADING, F::STALE])
    .args(&[Arg::string("section").optional().multiple()])
    .acl(&["slow", "dangerous"])
    .history(&[("7.0.0", "Several sections in one call.")])
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .exec(Exec::Session(S::Info)),
    CommandSpec::new("lastsave", "server", "1.0.0", "O(1)", "Tells when the last snapshot was written.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .acl(&["admin", "fast", "dangerous"])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Session(S::LastSave)),
    CommandSpec::container(
        "latency",
        "server",
        "2.8.13",
        "Groups the commands about what takes long.",
        &[
            CommandSpec::sub("doctor", "server", "2.8.13", "O(1)", "Says in words what has taken long.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(S::LatencyDoctor)),
            CommandSpec::sub("graph", "server", "2.8.13", "O(1)", "Draws the samples of an event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event")])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(S::LatencyGraph)),
            CommandSpec::sub("help", "server", "2.8.13", "O(1)", "Lists the subcommands of LATENCY.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(S::LatencyHelp)),
            CommandSpec::sub(
                "histogram",
                "server",
                "7.0.0",
                "O(N), N commands that were called",
                "Tells how many calls of commands took how long.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[Arg::string("command").optional().multiple()])
            .tips(LATENCY_TIPS)
            .exec(Exec::Session(S::LatencyHistogram)),
            CommandSpec::sub("history", "server", "2.8.13", "O(1)", "Lists the samples of an event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event")])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(S::LatencyHistory)),
            CommandSpec::sub("latest", "server", "2.8.13", "O(1)", "Lists the newest sample of every event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(S::LatencyLatest)),
            CommandSpec::sub("reset", "server", "2.8.13", "O(1)", "Forgets the samples of events.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event").optional().multiple()])
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .exec(Exec::Session(S::LatencyReset)),
        ],
    ),
    CommandSpec::new("lolwut", "server", "5.0.0", "O(1)", "Draws something and tells the version.")
        .flags(&[F::READONLY, F::FAST])
        .args(&[Arg::integer("version").token("VERSION").optional()])
        .exec(Exec::Session(S::Lolwut)),
    CommandSpec::container(
        "memory",
        "server",
        "4.0.0",
        "Groups the commands about memory.",
        &[
            CommandSpec::sub(
                "doctor",
                "server",
                "4.0.0",
                "O(N), N clients",
                "Says what is remarkable about the memory.",
            )
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .exec(Exec::Session(S::MemoryDoctor)),
            CommandSpec::sub("help", "server", "4.0.0", "O(1)", "Lists the subcommands of MEMORY.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Inline(memory::help)),
            CommandSpec::sub(
                "malloc-stats",
                "server",
                "4.0.0",
                "By the allocator's arenas",
                "Shows the allocator's own report.",
            )
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .exec(Exec::Session(S::MemoryMallocStats)),
            CommandSpec::sub(
                "purge",
                "server",
                "4.0.0",
                "By the pages freed",
                "Gives freed pages back to the system at once.",
            )
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .exec(Exec::Session(S::MemoryPurge)),
            CommandSpec::sub("stats", "server", "4.0.0", "O(N), N clients", "Tells what memory is used for.")
                .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
                .exec(Exec::Session(S::MemoryStats)),
            CommandSpec::sub(
                "usage",
                "server",
                "4.0.0",
                "O(1)",
                "Tells how many bytes a key takes in memory.",
            )
            .flags(&[F::READONLY])
            .keys(&[KeySpec::one(2, &[K::RO])])
            .args(&[Arg::key("key", 0), Arg::integer("count").token("SAMPLES").optional()])
            .exec(Exec::Inline(memory::usage)),
        ],
    ),
    CommandSpec::new(
        "monitor",
        "server",
        "1.0.0",
        "O(1) for each command",
        "Tells of every command that anybody calls.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
    .exec(Exec::Session(S::Monitor)),
    CommandSpec::new(
        "save",
        "server",
        "1.0.0",
        "O(N), N keys",
        "Writes a snapshot to the disk and waits for it.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING, F::NO_MULTI])
    .exec(Exec::Session(S::Save)),
    CommandSpec::new("shutdown", "server", "1.0.0", "O(1)", "Stops the server.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE, F::NO_MULTI, F::ALLOW_BUSY])
        .args(&[
            Arg::oneof("nosave_save", &[Arg::word("nosave", "NOSAVE"), Arg::word("save", "SAVE")]).optional(),
            Arg::word("now", "NOW").optional().since("7.0.0"),
            Arg::word("force", "FORCE").optional().since("7.0.0"),
            Arg::word("abort", "ABORT").optional().since("7.0.0"),
        ])
        .history(&[("7.0.0", "`NOW`, `FORCE` and `ABORT`.")])
        .exec(Exec::Session(S::Shutdown)),
    CommandSpec::container(
        "slowlog",
        "server",
        "2.2.12",
        "Groups the commands about slow commands.",
        &[
            CommandSpec::sub(
                "get",
                "server",
                "2.2.12",
                "O(N), N entries in the reply",
                "Lists the newest slow commands.",
            )
            .flags(&[F::ADMIN, F::LOADING, F::STALE])
            .args(&[Arg::integer("count").optional(), Arg::word("phases", "PHASES").optional()])
            .history(&[("4.0.0", "The address and the name of the client.")])
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .exec(Exec::Session(S::SlowlogGet)),
            CommandSpec::sub("help", "server", "6.2.0", "O(1)", "Lists the subcommands of SLOWLOG.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(S::SlowlogHelp)),
            CommandSpec::sub("len", "server", "2.2.12", "O(1)", "Counts the slow commands that are kept.")
                .flags(&[F::ADMIN, F::LOADING, F::STALE])
                .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
                .exec(Exec::Session(S::SlowlogLen)),
            CommandSpec::sub("reset", "server", "2.2.12", "O(N), N entries", "Forgets all slow commands.")
                .flags(&[F::ADMIN, F::LOADING, F::STALE])
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .exec(Exec::Session(S::SlowlogReset)),
        ],
    ),
    CommandSpec::new("swapdb", "server", "4.0.0", "O(1)", "Exchanges two databases.")
        .flags(&[F::WRITE, F::FAST])
        .args(&[Arg::integer("index1"), Arg::integer("index2")])
        .acl(&["keyspace", "write", "fast", "dangerous"])
        .exec(Exec::Walk(keyspace_wide::swapdb))
        .whole(keyspace_wide::swapdb_whole),
    CommandSpec::new("time", "server", "2.6.0", "O(1)", "Tells the server's clock.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Session(S::Time)),
];
