//! The rows of commands about other servers and about modules. This server has no cluster and no modules, and answers
//! as a redis-server without them does.

use super::super::{alone, replicas};
use crate::session::session_command::{CommandKind, InFiles, InMulti, InScripts, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

const ADMIN: &[F] = &[F::ADMIN, F::NOSCRIPT, F::STALE, F::NO_ASYNC_LOADING];
const OF_MODULES: &[F] = &[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING, F::PROTECTED];
const OF_REPLICAS: &[F] = &[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING, F::NO_MULTI];

/// How every subcommand of CLUSTER runs: with an error as its reply.
const NO_CLUSTER: &SessionCommand = &SessionCommand::at_once(|_, _, _| Err(alone::NO_CLUSTER.into()))
    .or_detached(|_, _, _, _| Err(alone::NO_CLUSTER.into()))
    .in_scripts(InScripts::Detached);

/// How REPLICAOF runs: on a helper thread, because it may wait for a command of the primary's stream.
const REPLICA_OF: &SessionCommand =
    &SessionCommand::detached(|engine, args, _, reply| replicas::replica_of(engine, args, reply))
        .in_multi(InMulti::AfterUnlock);

/// The arguments of REPLICAOF.
const MASTER: &[Arg] = &[Arg::oneof(
    "args",
    &[
        Arg::block("host-port", &[Arg::string("host"), Arg::integer("port")]),
        Arg::block("no-one", &[Arg::word("no", "NO"), Arg::word("one", "ONE")]),
    ],
)];

/// The row of a subcommand of CLUSTER that only reads.
const fn cluster_read(name: &'static str, since: &'static str, summary: &'static str) -> CommandSpec {
    CommandSpec::sub(name, "cluster", since, "O(1)", summary)
        .flags(&[F::STALE])
        .exec(Exec::Session(NO_CLUSTER))
}

/// The row of a subcommand of CLUSTER that changes something.
const fn cluster_change(name: &'static str, since: &'static str, summary: &'static str) -> CommandSpec {
    cluster_read(name, since, summary).flags(&[F::ADMIN, F::STALE, F::NO_ASYNC_LOADING])
}

/// The row of a subcommand of CLUSTER that only reads, for administrators.
const fn cluster_inspection(name: &'static str, since: &'static str, summary: &'static str) -> CommandSpec {
    cluster_read(name, since, summary).flags(&[F::ADMIN, F::STALE])
}

const VARIES: &[&str] = &["nondeterministic_output"];
const SLOT: Arg = Arg::integer("slot");
const SLOTS: &[Arg] = &[Arg::integer("slot").multiple()];
const RANGES: &[Arg] =
    &[Arg::block("start-slot_end-slot", &[Arg::integer("start-slot"), Arg::integer("end-slot")]).multiple()];
const NODE: &[Arg] = &[Arg::string("node-id")];

/// Group `cluster`, by name.
pub(super) const CLUSTER: &[CommandSpec] = &[
    CommandSpec::new(
        "asking",
        "cluster",
        "3.0.0",
        "O(1)",
        "Allows the next command to use a slot that is being moved.",
    )
    .flags(&[F::FAST])
    .acl(&["fast", "connection"])
    .exec(Exec::Session(NO_CLUSTER)),
    CommandSpec::container(
        "cluster",
        "cluster",
        "3.0.0",
        "Groups the commands about a cluster.",
        &[
            cluster_change("addslots", "3.0.0", "Gives slots to this node.").args(SLOTS),
            cluster_change("addslotsrange", "7.0.0", "Gives ranges of slots to this node.").args(RANGES),
            cluster_change("bumpepoch", "3.0.0", "Advances the epoch of the configuration.").tips(VARIES),
            cluster_inspection(
                "count-failure-reports",
                "3.0.0",
                "Counts the nodes that report a node as failing.",
            )
            .tips(VARIES)
            .args(NODE),
            cluster_read("countkeysinslot", "3.0.0", "Counts the keys of a slot.").args(&[SLOT]),
            cluster_change("delslots", "3.0.0", "Takes slots from this node.").args(SLOTS),
            cluster_change("delslotsrange", "7.0.0", "Takes ranges of slots from this node.").args(RANGES),
            cluster_change("failover", "3.0.0", "Makes a replica take over from its primary.").args(&[
                Arg::oneof("options", &[Arg::word("force", "FORCE"), Arg::word("takeover", "TAKEOVER")])
                    .optional(),
            ]),
            cluster_change("flushslots", "3.0.0", "Takes all slots from this node."),
            cluster_change("forget", "3.0.0", "Forgets a node.").args(NODE),
            cluster_read("getkeysinslot", "3.0.0", "Lists keys of a slot.")
                .tips(VARIES)
                .args(&[SLOT, Arg::integer("count")]),
            cluster_read("help", "5.0.0", "Lists the subcommands of CLUSTER.").flags(&[F::LOADING, F::STALE]),
            cluster_read("info", "3.0.0", "Returns the state of the cluster.").tips(VARIES),
            cluster_read("keyslot", "3.0.0", "Returns the slot to which a key belongs.")
                .args(&[Arg::string("key")]),
            cluster_read("links", "7.0.0", "Lists the connections between nodes.").tips(VARIES),
            cluster_change("meet", "3.0.0", "Introduces two nodes to each other.").args(&[
                Arg::string("ip"),
                Arg::integer("port"),
                Arg::integer("cluster_bus_port").optional().since("4.0.0"),
            ]),
            cluster_read("myid", "3.0.0", "Returns the name of this node."),
            cluster_read("nodes", "3.0.0", "Returns what this node knows of the cluster.").tips(VARIES),
            cluster_inspection("replicas", "5.0.0", "Lists the replicas of a master.")
                .tips(VARIES)
                .args(NODE),
            cluster_change("replicate", "3.0.0", "Makes this node a replica of a master.").args(NODE),
            cluster_change("reset", "3.0.0", "Takes this node out of the cluster.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::STALE])
                .args(&[Arg::oneof("hard_soft", &[Arg::word("hard", "HARD"), Arg::word("soft", "SOFT")])
                    .optional()]),
            cluster_change("saveconfig", "3.0.0", "Writes the state of the cluster to the disk."),
            cluster_change("set-config-epoch", "3.0.0", "Sets the epoch of a new node.")
                .args(&[Arg::integer("config-epoch")]),
            cluster_change("setslot", "3.0.0", "Binds a slot to a node.").args(&[
                SLOT,
                Arg::oneof(
                    "subcommand",
                    &[
                        Arg::string("node-id").token("IMPORTING"),
                        Arg::string("node-id").token("MIGRATING"),
                        Arg::string("node-id").token("NODE"),
                        Arg::word("stable", "STABLE"),
                    ],
                ),
            ]),
            cluster_read("shards", "7.0.0", "Returns which nodes have which slots.").tips(VARIES),
            cluster_inspection("slaves", "3.0.0", "Lists the replicas of a master.")
                .deprecated("5.0.0", "`CLUSTER REPLICAS`")
                .tips(VARIES)
                .args(NODE),
            cluster_read("slots", "3.0.0", "Returns which nodes have which slots.")
                .deprecated("7.0.0", "`CLUSTER SHARDS`")
                .tips(VARIES),
        ],
    ),
    CommandSpec::new("readonly", "cluster", "3.0.0", "O(1)", "Allows reads at a replica of a cluster.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .acl(&["fast", "connection"])
        .exec(Exec::Session(NO_CLUSTER)),
    CommandSpec::new("readwrite", "cluster", "3.0.0", "O(1)", "Ends the effect of READONLY.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .acl(&["fast", "connection"])
        .exec(Exec::Session(NO_CLUSTER)),
];

/// The rows about replicas and modules, by name. They belong to group `server`.
pub(super) const OTHERS: &[CommandSpec] = &[
    CommandSpec::new("failover", "server", "6.2.0", "O(1)", "Makes a replica take over from this server.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::STALE])
        .args(&[
            Arg::block(
                "target",
                &[Arg::string("host"), Arg::integer("port"), Arg::word("force", "FORCE").optional()],
            )
            .token("TO")
            .optional(),
            Arg::word("abort", "ABORT").optional(),
            Arg::integer("milliseconds").token("TIMEOUT").optional(),
        ])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, _, reply| replicas::failover(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
    CommandSpec::container(
        "module",
        "server",
        "4.0.0",
        "Groups the commands about modules.",
        &[
            CommandSpec::sub("help", "server", "5.0.0", "O(1)", "Lists the subcommands of MODULE.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.module_help()))),
            CommandSpec::sub("list", "server", "4.0.0", "O(N), N modules", "Lists the modules.")
                .flags(&[F::ADMIN, F::NOSCRIPT])
                .tips(&["nondeterministic_output_order"])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.module_list()))),
            CommandSpec::sub("load", "server", "4.0.0", "O(1)", "Always fails: modules are not loaded.")
                .flags(OF_MODULES)
                .args(&[Arg::string("path"), Arg::string("arg").optional().multiple()])
                .exec(Exec::Session(&SessionCommand::at_once(|_, _, _| Err(alone::NOT_LOADED.into())))),
            CommandSpec::sub("loadex", "server", "7.0.0", "O(1)", "Always fails: modules are not loaded.")
                .flags(OF_MODULES)
                .args(&[
                    Arg::string("path"),
                    Arg::block("configs", &[Arg::string("name"), Arg::string("value")])
                        .token("CONFIG")
                        .optional()
                        .multiple()
                        .multiple_token(),
                    Arg::block("args", &[Arg::string("arg")]).token("ARGS").optional().multiple(),
                ])
                .exec(Exec::Session(&SessionCommand::at_once(|_, _, _| Err(alone::NOT_LOADED.into())))),
            CommandSpec::sub(
                "unload",
                "server",
                "4.0.0",
                "O(1)",
                "Always fails: there are no modules to unload.",
            )
            .flags(OF_MODULES)
            .args(&[Arg::string("name")])
            .exec(Exec::Session(&SessionCommand::at_once(|_, _, _| Err(alone::NOT_UNLOADED.into())))),
        ],
    ),
    CommandSpec::new("psync", "server", "2.8.0", "O(1)", "Begins the stream that a replica reads.")
        .flags(OF_REPLICAS)
        .args(&[Arg::string("replicationid"), Arg::integer("offset")])
        .arity(-3)
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, now| session.psync(args, now))
                .kind(CommandKind::Replication),
        )),
    CommandSpec::new(
        "replconf",
        "server",
        "3.0.0",
        "O(1)",
        "Carries messages between a replica and its primary.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE, F::ALLOW_BUSY])
    .arity(-1)
    .doc_flags(&["syscmd"])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.replconf(args, now))
            .kind(CommandKind::Replication)
            .in_files(InFiles::ChangesNothing),
    )),
    CommandSpec::new(
        "replicaof",
        "server",
        "5.0.0",
        "O(1)",
        "Makes this server a replica, or a master again.",
    )
    .flags(ADMIN)
    .args(MASTER)
    .exec(Exec::Session(REPLICA_OF)),
    CommandSpec::new(
        "role",
        "server",
        "2.8.12",
        "O(1)",
        "Returns whether this server is a master, and its replicas.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST])
    .acl(&["admin", "fast", "dangerous"])
    .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.role()))),
    CommandSpec::new("slaveof", "server", "1.0.0", "O(1)", "Makes this server a replica, or a master again.")
        .flags(ADMIN)
        .deprecated("5.0.0", "`REPLICAOF`")
        .args(MASTER)
        .exec(Exec::Session(REPLICA_OF)),
    CommandSpec::new("sync", "server", "1.0.0", "O(1)", "Begins the stream that a replica reads.")
        .flags(OF_REPLICAS)
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, now| session.psync(args, now))
                .kind(CommandKind::Replication),
        )),
];
