//! The rows of group `connection`: commands about the connection.

use crate::spec::{Arg, CommandSpec, Flags as F, Handler, SessionCommand};

/// Group `connection`, by name.
pub(crate) static CONNECTION: &[CommandSpec] = &[
    CommandSpec {
        name: "auth",
        arity: -2,
        flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY]),
        acl: &["fast", "connection"],
        summary: "Proves who is connected, by password.",
        since: "1.0.0",
        group: "connection",
        complexity: "O(N), N passwords of the user",
        history: &[("6.0.0", "A user name may come first.")],
        args: &[Arg::string("username").optional().since("6.0.0"), Arg::string("password")],
        handler: Handler::Session(SessionCommand::Auth),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "client",
        arity: -2,
        acl: &["slow"],
        summary: "Groups the commands about connections.",
        since: "2.4.0",
        group: "connection",
        complexity: "By subcommand",
        subcommands: &[
            CommandSpec {
                name: "getname",
                arity: 2,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Tells the name this connection was given.",
                since: "2.6.9",
                group: "connection",
                complexity: "O(1)",
                handler: Handler::Session(SessionCommand::ClientGetName),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "help",
                arity: 2,
                flags: F::all(&[F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Lists the subcommands of CLIENT.",
                since: "5.0.0",
                group: "connection",
                complexity: "O(1)",
                handler: Handler::Session(SessionCommand::ClientHelp),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "id",
                arity: 2,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Tells the number of this connection.",
                since: "5.0.0",
                group: "connection",
                complexity: "O(1)",
                handler: Handler::Session(SessionCommand::ClientId),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "info",
                arity: 2,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Describes this connection.",
                since: "6.2.0",
                group: "connection",
                complexity: "O(1)",
                tips: &["nondeterministic_output"],
                handler: Handler::Session(SessionCommand::ClientInfo),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "kill",
                arity: -3,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Closes connections that match.",
                since: "2.4.0",
                group: "connection",
                complexity: "O(N), N connections",
                history: &[
                    ("2.8.12", "Filters by name and value."),
                    ("2.8.12", "`ID` filter."),
                    ("3.2.0", "`TYPE` knows `master`."),
                    ("5.0.0", "`TYPE` says `replica`; `slave` still works."),
                    ("6.2.0", "`LADDR` filter."),
                ],
                args: &[Arg::oneof(
                    "filter",
                    &[
                        Arg::string("ip:port").deprecated_since("2.8.12"),
                        Arg::oneof(
                            "new-format",
                            &[
                                Arg::integer("client-id").token("ID").optional().since("2.8.12"),
                                Arg::oneof(
                                    "normal_master_slave_pubsub",
                                    &[
                                        Arg::word("normal", "NORMAL"),
                                        Arg::word("master", "MASTER").since("3.2.0"),
                                        Arg::word("slave", "SLAVE"),
                                        Arg::word("replica", "REPLICA").since("5.0.0"),
                                        Arg::word("pubsub", "PUBSUB"),
                                    ],
                                )
                                .token("TYPE")
                                .optional()
                                .since("2.8.12"),
                                Arg::string("username").token("USER").optional(),
                                Arg::string("ip:port").token("ADDR").optional(),
                                Arg::string("ip:port").token("LADDR").optional().since("6.2.0"),
                                Arg::string("yes/no").token("SKIPME").optional(),
                            ],
                        )
                        .multiple(),
                    ],
                )],
                handler: Handler::Session(SessionCommand::ClientKill),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "list",
                arity: -2,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Describes all connections.",
                since: "2.4.0",
                group: "connection",
                complexity: "O(N), N connections",
                history: &[
                    ("2.8.12", "Field `id`."),
                    ("5.0.0", "`TYPE` filter."),
                    ("6.0.0", "Field `user`."),
                    ("6.2.0", "Fields `argv-mem`, `tot-mem`, `laddr` and `redir`; `ID` filter."),
                    ("7.0.0", "Fields `resp`, `multi-mem`, `rbs` and `rbp`."),
                    ("7.0.3", "Field `ssub`."),
                ],
                tips: &["nondeterministic_output"],
                args: &[
                    Arg::oneof(
                        "normal_master_replica_pubsub",
                        &[
                            Arg::word("normal", "NORMAL"),
                            Arg::word("master", "MASTER"),
                            Arg::word("replica", "REPLICA"),
                            Arg::word("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("TYPE")
                    .optional()
                    .since("5.0.0"),
                    Arg::block("id", &[Arg::integer("client-id").multiple()])
                        .token("ID")
                        .optional()
                        .since("6.2.0"),
                ],
                handler: Handler::Session(SessionCommand::ClientList),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "no-evict",
                arity: 3,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Shields this connection from eviction for want of memory.",
                since: "7.0.0",
                group: "connection",
                complexity: "O(1)",
                args: &[Arg::oneof("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
                handler: Handler::Session(SessionCommand::ClientNoEvict),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "no-touch",
                arity: 3,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Lets commands of this connection leave the use time of keys alone.",
                since: "7.2.0",
                group: "connection",
                complexity: "O(1)",
                args: &[Arg::oneof("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
                handler: Handler::Session(SessionCommand::ClientNoTouch),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "pause",
                arity: -3,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Holds back the commands of all clients for a while.",
                since: "2.9.50",
                group: "connection",
                complexity: "O(1)",
                history: &[("6.2.0", "Modes `WRITE` and `ALL`.")],
                args: &[
                    Arg::integer("timeout"),
                    Arg::oneof("mode", &[Arg::word("write", "WRITE"), Arg::word("all", "ALL")])
                        .optional()
                        .since("6.2.0"),
                ],
                handler: Handler::Session(SessionCommand::ClientPause),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "reply",
                arity: 3,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Turns the replies to this connection off and on.",
                since: "3.2.0",
                group: "connection",
                complexity: "O(1)",
                args: &[Arg::oneof(
                    "on_off_skip",
                    &[Arg::word("on", "ON"), Arg::word("off", "OFF"), Arg::word("skip", "SKIP")],
                )],
                handler: Handler::Session(SessionCommand::ClientReply),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "setinfo",
                arity: 4,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Tells the server the name or version of the client's library.",
                since: "7.2.0",
                group: "connection",
                complexity: "O(1)",
                args: &[Arg::oneof(
                    "attr",
                    &[Arg::string("libname").token("LIB-NAME"), Arg::string("libver").token("LIB-VER")],
                )],
                handler: Handler::Session(SessionCommand::ClientSetInfo),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "setname",
                arity: 3,
                flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["slow", "connection"],
                summary: "Gives this connection a name.",
                since: "2.6.9",
                group: "connection",
                complexity: "O(1)",
                args: &[Arg::string("connection-name")],
                handler: Handler::Session(SessionCommand::ClientSetName),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "unblock",
                arity: -3,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Ends the wait of another connection in a blocking command.",
                since: "5.0.0",
                group: "connection",
                complexity: "O(log N), N connections",
                args: &[
                    Arg::integer("client-id"),
                    Arg::oneof(
                        "timeout_error",
                        &[Arg::word("timeout", "TIMEOUT"), Arg::word("error", "ERROR")],
                    )
                    .optional(),
                ],
                handler: Handler::Session(SessionCommand::ClientUnblock),
                ..CommandSpec::EMPTY
            },
            CommandSpec {
                name: "unpause",
                arity: 2,
                flags: F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]),
                acl: &["admin", "slow", "dangerous", "connection"],
                summary: "Ends a CLIENT PAUSE.",
                since: "6.2.0",
                group: "connection",
                complexity: "O(N), N paused clients",
                handler: Handler::Session(SessionCommand::ClientUnpause),
                ..CommandSpec::EMPTY
            },
        ],
        handler: Handler::Container,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "echo",
        arity: 2,
        flags: F::all(&[F::LOADING, F::STALE, F::FAST]),
        acl: &["fast", "connection"],
        summary: "Replies with its argument.",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        args: &[Arg::string("message")],
        handler: Handler::Session(SessionCommand::Echo),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "hello",
        arity: -1,
        flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY]),
        acl: &["fast", "connection"],
        summary: "Agrees on the protocol version and greets the server.",
        since: "6.0.0",
        group: "connection",
        complexity: "O(1)",
        history: &[("6.2.0", "Without a version it only reports.")],
        args: &[Arg::block(
            "arguments",
            &[
                Arg::integer("protover"),
                Arg::block("username_password", &[Arg::string("username"), Arg::string("password")])
                    .token("AUTH")
                    .optional(),
                Arg::string("clientname").token("SETNAME").optional(),
            ],
        )
        .optional()],
        handler: Handler::Session(SessionCommand::Hello),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "ping",
        arity: -1,
        flags: F::FAST,
        acl: &["fast", "connection"],
        summary: "Replies with PONG, or with its argument.",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        args: &[Arg::string("message").optional()],
        handler: Handler::Session(SessionCommand::Ping),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "quit",
        arity: -1,
        flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY]),
        acl: &["fast", "connection"],
        summary: "Closes the connection.",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        handler: Handler::Session(SessionCommand::Quit),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "reset",
        arity: 1,
        flags: F::all(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY]),
        acl: &["fast", "connection"],
        summary: "Brings the connection back to the state it had when opened.",
        since: "6.2.0",
        group: "connection",
        complexity: "O(1)",
        handler: Handler::Session(SessionCommand::Reset),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "select",
        arity: 2,
        flags: F::all(&[F::LOADING, F::STALE, F::FAST]),
        acl: &["fast", "connection"],
        summary: "Changes the database of this connection.",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        args: &[Arg::integer("index")],
        handler: Handler::Session(SessionCommand::Select),
        ..CommandSpec::EMPTY
    },
];
