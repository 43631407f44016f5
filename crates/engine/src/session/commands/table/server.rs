//! The rows of group `server`: commands about the server.

use super::super::{DONE, config, debug, info, introspection, latency, server, slowlog};
use crate::scripts::run as scripts;
use crate::session::session_command::{CommandKind, InFiles, InMulti, InScripts, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

const LATENCY_TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

/// Group `server`, by name.
pub(super) const SERVER: &[CommandSpec] = &[
    CommandSpec::new(
        "bgrewriteaof",
        "server",
        "1.0.0",
        "O(1)",
        "Rewrites the append-only file in the background, without commands that are no longer needed.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, now| session.bgrewriteaof(now))
            .or_detached(|engine, _, _, reply| server::bgrewriteaof_inside(engine, reply))
            .in_multi(InMulti::AfterUnlock),
    )),
    CommandSpec::new("bgsave", "server", "1.0.0", "O(1)", "Writes a snapshot to the disk in the background.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING])
        .args(&[Arg::word("schedule", "SCHEDULE").optional().since("3.2.2")])
        .arity(-1)
        .history(&[("3.2.2", "`SCHEDULE`.")])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, now| session.bgsave(args, now))
                .or_detached(|engine, args, _, reply| server::bgsave_inside(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
    CommandSpec::new("command", "server", "2.8.13", "O(N), N commands", "Describes all commands.")
        .flags(&[F::LOADING, F::STALE])
        .arity(-1)
        .acl(&["slow", "connection"])
        .tips(&["nondeterministic_output_order"])
        .subcommands(&[
            CommandSpec::sub("count", "server", "2.8.13", "O(1)", "Counts the commands.")
                .flags(&[F::LOADING, F::STALE])
                .acl(&["slow", "connection"])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, args, _| session.describe(introspection::count, args))
                        .or_detached(|_, args, _, reply| introspection::count(args, reply))
                        .in_scripts(InScripts::Detached),
                )),
            CommandSpec::sub("docs", "server", "7.0.0", "O(N), N commands asked for", "Documents commands.")
                .flags(&[F::LOADING, F::STALE])
                .args(&[Arg::string("command-name").optional().multiple()])
                .acl(&["slow", "connection"])
                .tips(&["nondeterministic_output_order"])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, args, _| {
                        session.describe_named(introspection::docs_of, args)
                    })
                    .or_detached(|_, args, _, reply| introspection::docs_of(args, reply))
                    .in_scripts(InScripts::Detached),
                )),
            CommandSpec::sub(
                "getkeys",
                "server",
                "2.8.13",
                "O(N), N arguments",
                "Returns the keys of a full command.",
            )
            .flags(&[F::LOADING, F::STALE])
            .arity(-4)
            .acl(&["slow", "connection"])
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| session.describe(introspection::get_keys, args))
                    .or_detached(|_, args, _, reply| introspection::get_keys(args, reply))
                    .in_scripts(InScripts::Detached),
            )),
            CommandSpec::sub(
                "getkeysandflags",
                "server",
                "7.0.0",
                "O(N), N arguments",
                "Returns the keys of a full command, and what the command does to each key.",
            )
            .flags(&[F::LOADING, F::STALE])
            .arity(-4)
            .acl(&["slow", "connection"])
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| {
                    session.describe(introspection::get_keys_and_flags, args)
                })
                .or_detached(|_, args, _, reply| introspection::get_keys_and_flags(args, reply))
                .in_scripts(InScripts::Detached),
            )),
            CommandSpec::sub("help", "server", "5.0.0", "O(1)", "Lists the subcommands of COMMAND.")
                .flags(&[F::LOADING, F::STALE])
                .acl(&["slow", "connection"])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, args, _| session.describe(introspection::help, args))
                        .or_detached(|_, args, _, reply| introspection::help(args, reply))
                        .in_scripts(InScripts::Detached),
                )),
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
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| {
                    session.describe_named(introspection::info_of, args)
                })
                .or_detached(|_, args, _, reply| introspection::info_of(args, reply))
                .in_scripts(InScripts::Detached),
            )),
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
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, args, _| session.describe(introspection::list, args))
                        .or_detached(|_, args, _, reply| introspection::list(args, reply))
                        .in_scripts(InScripts::Detached),
                )),
        ])
        .exec(Exec::Session(
            &SessionCommand::detached(|_, _, _, reply| introspection::infos(reply))
                .in_scripts(InScripts::Detached),
        )),
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
                "Returns the configuration parameters that match patterns.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[Arg::block("parameter", &[Arg::string("parameter")]).multiple()])
            .history(&[("7.0.0", "Several patterns in one call.")])
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| session.config_get(args))
                    .or_detached(|engine, args, _, reply| config::get(engine, args, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
            CommandSpec::sub("help", "server", "5.0.0", "O(1)", "Lists the subcommands of CONFIG.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.config_help()))),
            CommandSpec::sub("resetstat", "server", "2.0.0", "O(1)", "Resets the counters of INFO to zero.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, _, _| session.config_reset_stat())
                        .or_detached(|engine, _, _, reply| {
                            config::reset_stat(engine, reply);
                            Ok(())
                        })
                        .in_multi(InMulti::AfterUnlock),
                )),
            CommandSpec::sub(
                "rewrite",
                "server",
                "2.8.0",
                "O(1)",
                "Writes the current configuration into the configuration file.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, _, _| session.config_rewrite())
                    .or_detached(|engine, _, _, reply| config::rewrite(engine, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
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
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| session.config_set(args))
                    .or_detached(|engine, args, at, reply| {
                        config::set(engine, args, at.is_local).map(|()| reply.ok())
                    })
                    .locks_shards(config::locks_shards)
                    .in_multi(InMulti::AfterUnlock),
            )),
        ],
    ),
    CommandSpec::new("debug", "server", "1.0.0", "By subcommand", "Helps to test the server.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE, F::PROTECTED])
        .arity(-2)
        .doc_flags(&["syscmd"])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, now| session.debug(args, now))
                .kind(CommandKind::Debug)
                .locks_shards(|_| true)
                .or_detached(|engine, args, at, reply| debug::run(engine, args, at.db, at.now, reply))
                .in_scripts(InScripts::Runs(debug::in_script))
                .in_multi(InMulti::QueuedIf(debug::is_plain)),
        )),
    CommandSpec::new(
        "info",
        "server",
        "1.0.0",
        "O(1)",
        "Returns the state of the server, section by section.",
    )
    .flags(&[F::LOADING, F::STALE])
    .args(&[Arg::string("section").optional().multiple()])
    .acl(&["slow", "dangerous"])
    .history(&[("7.0.0", "Several sections in one call.")])
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.info(args, now))
            // A worker may wait for the helper thread's core.
            .or_detached(|engine, args, at, reply| {
                info::info(engine, args, at.now, &|| engine.host.yield_now(), reply)
            })
            .locks_shards(info::reads_keys)
            .in_multi(InMulti::AfterUnlock),
    )),
    CommandSpec::new("lastsave", "server", "1.0.0", "O(1)", "Returns when the last snapshot was written.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .acl(&["admin", "fast", "dangerous"])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, _, _| session.last_save())
                .in_scripts(InScripts::Runs(scripts::last_save))
                .in_files(InFiles::ChangesNothing),
        )),
    CommandSpec::container(
        "latency",
        "server",
        "2.8.13",
        "Groups the commands about slow events.",
        &[
            CommandSpec::sub("doctor", "server", "2.8.13", "O(1)", "Returns a report about slow events.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.latency_doctor()))),
            CommandSpec::sub("graph", "server", "2.8.13", "O(1)", "Draws the samples of an event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event")])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(&SessionCommand::at_once(|session, args, now| {
                    session.latency_graph(args, now)
                }))),
            CommandSpec::sub("help", "server", "2.8.13", "O(1)", "Lists the subcommands of LATENCY.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.latency_help()))),
            CommandSpec::sub(
                "histogram",
                "server",
                "7.0.0",
                "O(N), N commands that were called",
                "Returns a histogram of the times of commands.",
            )
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .args(&[Arg::string("command").optional().multiple()])
            .tips(LATENCY_TIPS)
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| session.latency_histogram(args))
                    .or_detached(|engine, args, _, reply| latency::histogram(engine, args, reply)),
            )),
            CommandSpec::sub("history", "server", "2.8.13", "O(1)", "Lists the samples of an event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event")])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| {
                    session.latency_history(args)
                }))),
            CommandSpec::sub("latest", "server", "2.8.13", "O(1)", "Lists the newest sample of every event.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .tips(LATENCY_TIPS)
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.latency_latest()))),
            CommandSpec::sub("reset", "server", "2.8.13", "O(1)", "Forgets the samples of events.")
                .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
                .args(&[Arg::string("event").optional().multiple()])
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, args, _| session.latency_reset(args)).or_detached(
                        |engine, args, _, reply| {
                            latency::reset(engine, args, reply);
                            Ok(())
                        },
                    ),
                )),
        ],
    ),
    CommandSpec::new("lolwut", "server", "5.0.0", "O(1)", "Draws something, and returns the version.")
        .flags(&[F::READONLY, F::FAST])
        .args(&[Arg::integer("version").token("VERSION").optional()])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.lolwut(args)))),
    CommandSpec::new(
        "monitor",
        "server",
        "1.0.0",
        "O(1) for each command",
        "Shows this connection every command that any client calls.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, _| session.monitor()).in_multi(InMulti::QueuedForSession),
    )),
    CommandSpec::new(
        "save",
        "server",
        "1.0.0",
        "O(N), N keys",
        "Writes a snapshot to the disk, and replies when the snapshot is complete.",
    )
    .flags(&[F::ADMIN, F::NOSCRIPT, F::NO_ASYNC_LOADING, F::NO_MULTI])
    .exec(Exec::Session(
        &SessionCommand::detached(|engine, _, at, reply| server::save(engine, at.now, reply))
            .locks_shards(|_| true),
    )),
    CommandSpec::new("shutdown", "server", "1.0.0", "O(1)", "Stops the server.")
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE, F::NO_MULTI, F::ALLOW_BUSY])
        .args(&[
            Arg::oneof("nosave_save", &[Arg::word("nosave", "NOSAVE"), Arg::word("save", "SAVE")]).optional(),
            Arg::word("now", "NOW").optional().since("7.0.0"),
            Arg::word("force", "FORCE").optional().since("7.0.0"),
            Arg::word("abort", "ABORT").optional().since("7.0.0"),
        ])
        .history(&[("7.0.0", "`NOW`, `FORCE` and `ABORT`.")])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, args, now| session.shutdown(args, now))
                .in_multi(InMulti::Refused),
        )),
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
            .exec(Exec::Session(
                &SessionCommand::at_once(|session, args, _| session.slowlog_get(args))
                    .or_detached(|engine, args, _, reply| slowlog::get(engine, args, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
            CommandSpec::sub("help", "server", "6.2.0", "O(1)", "Lists the subcommands of SLOWLOG.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.slowlog_help()))),
            CommandSpec::sub("len", "server", "2.2.12", "O(1)", "Counts the slow commands that are kept.")
                .flags(&[F::ADMIN, F::LOADING, F::STALE])
                .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
                .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.slowlog_len()))),
            CommandSpec::sub("reset", "server", "2.2.12", "O(N), N entries", "Forgets all slow commands.")
                .flags(&[F::ADMIN, F::LOADING, F::STALE])
                .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
                .exec(Exec::Session(
                    &SessionCommand::at_once(|session, _, _| session.slowlog_reset())
                        .or_detached(|engine, _, _, reply| {
                            slowlog::reset(engine, reply);
                            Ok(())
                        })
                        .in_multi(InMulti::AfterUnlock),
                )),
        ],
    ),
    CommandSpec::new("time", "server", "2.6.0", "O(1)", "Returns the time of the server's clock.")
        .flags(&[F::LOADING, F::STALE, F::FAST])
        .tips(&["nondeterministic_output"])
        .exec(Exec::Session(
            &SessionCommand::at_once(|session, _, now| {
                server::time(now, &mut session.reply());
                DONE
            })
            .or_detached(|_, _, at, reply| {
                server::time(at.now, reply);
                Ok(())
            })
            .in_multi(InMulti::QueuedForAnyThread)
            .in_scripts(InScripts::Runs(scripts::time)),
        )),
];
