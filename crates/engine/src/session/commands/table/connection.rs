//! The rows of group `connection`: commands about the connection.

use super::super::{client, connection};
use crate::Engine;
use crate::scripts::run as scripts;
use crate::session::session_command::{CommandKind, InFiles, InMulti, InScripts, SessionCommand};
use strand_commands::serial::system;
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Runs an ECHO of an append-only file, which may stand for a command that changes a definition.
fn run_echo(engine: &Engine, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), ErrorText> {
    if let Some(words) = system::decode_echo(args.get(1).unwrap_or_default()) {
        engine.define(&words, engine.host.now());
    }
    Ok(())
}

/// Group `connection`, by name.
pub(super) const CONNECTION: &[CommandSpec] = &[
    CommandSpec::new(
        "auth",
        "connection",
        "1.0.0",
        "O(N), N passwords of the user",
        "Logs the connection in with a password.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY])
    .args(&[Arg::string("username").optional().since("6.0.0"), Arg::string("password")])
    .history(&[("6.0.0", "A user name may come first.")])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.auth(args, now))
            .in_multi(InMulti::QueuedForSession),
    )),
    CommandSpec::new(
        "client",
        "connection",
        "2.4.0",
        "By subcommand",
        "Groups the commands about connections.",
    )
    .arity(-2)
    .acl(&["slow"])
    .subcommands(&[
        CommandSpec::sub(
            "caching",
            "connection",
            "6.0.0",
            "O(1)",
            "Sets whether keys that the next command reads are tracked.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof("mode", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.client_caching(args))
                .in_multi(InMulti::QueuedForSession),
        )),
        CommandSpec::sub(
            "getname",
            "connection",
            "2.6.9",
            "O(1)",
            "Returns the name that this connection was given.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_get_name()))),
        CommandSpec::sub(
            "getredir",
            "connection",
            "6.0.0",
            "O(1)",
            "Returns which connection receives the invalidations of this connection.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_get_redir()))),
        CommandSpec::sub("help", "connection", "5.0.0", "O(1)", "Lists the subcommands of CLIENT.")
            .flags(&[F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_help()))),
        CommandSpec::sub("id", "connection", "5.0.0", "O(1)", "Returns the number of this connection.")
            .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_id()))),
        CommandSpec::sub("info", "connection", "6.2.0", "O(1)", "Describes this connection.")
            .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
            .tips(&["nondeterministic_output"])
            .exec(Exec::Session(&SessionCommand::at_once(|session, args, now| {
                session.client_info(args, now)
            }))),
        CommandSpec::sub(
            "kill",
            "connection",
            "2.4.0",
            "O(N), N connections",
            "Closes the connections that match filters.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof(
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
        )])
        .arity(-3)
        .history(&[
            ("2.8.12", "Filters by name and value."),
            ("2.8.12", "`ID` filter."),
            ("3.2.0", "`TYPE` knows `master`."),
            ("5.0.0", "`TYPE` says `replica`; `slave` still works."),
            ("6.2.0", "`LADDR` filter."),
        ])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, now| session.client_kill(args, now)))),
        CommandSpec::sub("list", "connection", "2.4.0", "O(N), N connections", "Describes all connections.")
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[
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
            ])
            .history(&[
                ("2.8.12", "Field `id`."),
                ("5.0.0", "`TYPE` filter."),
                ("6.0.0", "Field `user`."),
                ("6.2.0", "Fields `argv-mem`, `tot-mem`, `laddr` and `redir`; `ID` filter."),
                ("7.0.0", "Fields `resp`, `multi-mem`, `rbs` and `rbp`."),
                ("7.0.3", "Field `ssub`."),
            ])
            .tips(&["nondeterministic_output"])
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, now| session.client_list(args, now))
                    .or_detached(|engine, args, at, reply| client::list(engine, args, at.now, reply)),
            )),
        CommandSpec::sub(
            "no-evict",
            "connection",
            "7.0.0",
            "O(1)",
            "Protects this connection from being closed when clients use too much memory.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.client_no_evict(args)))),
        CommandSpec::sub(
            "no-touch",
            "connection",
            "7.2.0",
            "O(1)",
            "Sets whether commands of this connection update the keys' times of last use.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.client_no_touch(args))
                .in_multi(InMulti::QueuedForSession),
        )),
        CommandSpec::sub(
            "pause",
            "connection",
            "2.9.50",
            "O(1)",
            "Holds back the commands of all clients for a while.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[
            Arg::integer("timeout"),
            Arg::oneof("mode", &[Arg::word("write", "WRITE"), Arg::word("all", "ALL")])
                .optional()
                .since("6.2.0"),
        ])
        .history(&[("6.2.0", "Modes `WRITE` and `ALL`.")])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, now| session.client_pause(args, now)))),
        CommandSpec::sub(
            "reply",
            "connection",
            "3.2.0",
            "O(1)",
            "Turns the replies to this connection off and on.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof(
            "on_off_skip",
            &[Arg::word("on", "ON"), Arg::word("off", "OFF"), Arg::word("skip", "SKIP")],
        )])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.client_reply(args))
                .in_multi(InMulti::QueuedForSession),
        )),
        CommandSpec::sub(
            "setinfo",
            "connection",
            "7.2.0",
            "O(1)",
            "Records the name or the version of the client's library.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof(
            "attr",
            &[Arg::string("libname").token("LIB-NAME"), Arg::string("libver").token("LIB-VER")],
        )])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.client_set_info(args)))),
        CommandSpec::sub("setname", "connection", "2.6.9", "O(1)", "Gives this connection a name.")
            .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[Arg::string("connection-name")])
            .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.client_set_name(args)))),
        CommandSpec::sub(
            "tracking",
            "connection",
            "6.0.0",
            "O(N), N prefixes",
            "Tells this connection when keys change that the client has cached.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[
            Arg::oneof("status", &[Arg::word("on", "ON"), Arg::word("off", "OFF")]),
            Arg::integer("client-id").token("REDIRECT").optional(),
            Arg::string("prefix").token("PREFIX").optional().multiple().multiple_token(),
            Arg::word("bcast", "BCAST").optional(),
            Arg::word("optin", "OPTIN").optional(),
            Arg::word("optout", "OPTOUT").optional(),
            Arg::word("noloop", "NOLOOP").optional(),
        ])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.client_tracking(args))
                .in_multi(InMulti::QueuedForSession),
        )),
        CommandSpec::sub(
            "trackinginfo",
            "connection",
            "6.2.0",
            "O(N), N prefixes",
            "Returns the state of client tracking for this connection.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_tracking_info()))),
        CommandSpec::sub(
            "unblock",
            "connection",
            "5.0.0",
            "O(log N), N connections",
            "Ends the wait of another connection in a blocking command.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[
            Arg::integer("client-id"),
            Arg::oneof("timeout_error", &[Arg::word("timeout", "TIMEOUT"), Arg::word("error", "ERROR")])
                .optional(),
        ])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.client_unblock(args)))),
        CommandSpec::sub("unpause", "connection", "6.2.0", "O(N), N paused clients", "Ends a CLIENT PAUSE.")
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.client_unpause()))),
    ]),
    CommandSpec::new("echo", "connection", "1.0.0", "O(1)", "Returns its argument.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .args(&[Arg::string("message")])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.echo(args))
                .or_detached(|_, args, _, reply| connection::echo(args, reply))
                .in_multi(InMulti::QueuedForAnyThread)
                .in_scripts(InScripts::Detached)
                .in_files(InFiles::Runs(run_echo)),
        )),
    CommandSpec::new(
        "hello",
        "connection",
        "6.0.0",
        "O(1)",
        "Agrees on the protocol version and greets the server.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY])
    .args(&[Arg::block(
        "arguments",
        &[
            Arg::integer("protover"),
            Arg::block("username_password", &[Arg::string("username"), Arg::string("password")])
                .token("AUTH")
                .optional(),
            Arg::string("clientname").token("SETNAME").optional(),
        ],
    )
    .optional()])
    .history(&[("6.2.0", "Without a version it only reports.")])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.hello(args, now))
            .in_multi(InMulti::QueuedForSession),
    )),
    CommandSpec::new("ping", "connection", "1.0.0", "O(1)", "Returns PONG, or its argument.")
        .flags(&[F::FAST])
        .args(&[Arg::string("message").optional()])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.ping(args))
                .or_detached(|_, args, _, reply| connection::ping(args, reply))
                .in_multi(InMulti::QueuedForAnyThread)
                .kind(CommandKind::Ping)
                .allow_subscribers()
                .in_scripts(InScripts::Detached)
                .in_files(InFiles::ChangesNothing),
        )),
    CommandSpec::new("quit", "connection", "1.0.0", "O(1)", "Closes the connection.")
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY])
        .arity(-1)
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, _, _| session.quit())
                .in_multi(InMulti::Immediate)
                .allow_subscribers(),
        )),
    CommandSpec::new(
        "reset",
        "connection",
        "6.2.0",
        "O(1)",
        "Brings the connection back to the state of a new connection.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::NO_AUTH, F::ALLOW_BUSY])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, _| session.reset())
            .kind(CommandKind::Reset)
            .in_multi(InMulti::Immediate)
            .allow_subscribers(),
    )),
    CommandSpec::new("select", "connection", "1.0.0", "O(1)", "Changes the database of this connection.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .args(&[Arg::integer("index")])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, _| session.select(args))
                .kind(CommandKind::Select)
                .in_multi(InMulti::QueuedForAnyThread)
                .in_scripts(InScripts::Runs(scripts::select)),
        )),
];
