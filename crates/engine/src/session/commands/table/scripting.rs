//! The rows of group `scripting`.

use super::super::scripting;
use crate::session::script::{EVAL, EVAL_RO, EVALSHA, EVALSHA_RO, FCALL, FCALL_RO};
use crate::session::session_command::{CommandKind, InFiles, InMulti, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

const RUNS: &[F] =
    &[F::NOSCRIPT, F::STALE, F::SKIP_MONITOR, F::MAY_REPLICATE, F::NO_MANDATORY_KEYS, F::MOVABLEKEYS];
const READS: &[F] =
    &[F::READONLY, F::NOSCRIPT, F::STALE, F::SKIP_MONITOR, F::NO_MANDATORY_KEYS, F::MOVABLEKEYS];
const RW_NOTES: &str =
    "Only the script says what it does with the keys, so any read or write is possible: RW and UPDATE.";
const RO_NOTES: &str = "Only the script says which keys it reads, so any read is possible: RO and ACCESS.";
const RW: KeySpec = KeySpec::counted(2, &[K::RW, K::ACCESS, K::UPDATE]);
const RO: KeySpec = KeySpec::counted(2, &[K::RO, K::ACCESS]);
const RW_KEYS: &[KeySpec] = &[RW];
const RO_KEYS: &[KeySpec] = &[RO];
const NOTED_RW_KEYS: &[KeySpec] = &[RW.notes(RW_NOTES)];
const NOTED_RO_KEYS: &[KeySpec] = &[RO.notes(RO_NOTES)];
const COST: &str = "That of the script";

const SCRIPT_ARGS: &[Arg] = &[
    Arg::string("script"),
    Arg::integer("numkeys"),
    Arg::key("key", 0).optional().multiple(),
    Arg::string("arg").optional().multiple(),
];
const SHA_ARGS: &[Arg] = &[
    Arg::string("sha1"),
    Arg::integer("numkeys"),
    Arg::key("key", 0).optional().multiple(),
    Arg::string("arg").optional().multiple(),
];
const FUNCTION_ARGS: &[Arg] = &[
    Arg::string("function"),
    Arg::integer("numkeys"),
    Arg::key("key", 0).optional().multiple(),
    Arg::string("arg").optional().multiple(),
];

const fn row(
    name: &'static str,
    since: &'static str,
    summary: &'static str,
    command: &'static SessionCommand,
) -> CommandSpec {
    CommandSpec::new(name, "scripting", since, COST, summary).exec(Exec::Session(command))
}

const fn sub(
    name: &'static str,
    since: &'static str,
    complexity: &'static str,
    summary: &'static str,
    command: &'static SessionCommand,
) -> CommandSpec {
    CommandSpec::sub(name, "scripting", since, complexity, summary).exec(Exec::Session(command))
}

/// Group `scripting`, by name.
pub(super) const SCRIPTING: &[CommandSpec] = &[
    row(
        "eval",
        "2.6.0",
        "Runs a Lua script.",
        &SessionCommand::at_once(|session, args, now| session.run_script(EVAL, args, now))
            .kind(CommandKind::Script(EVAL))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(RUNS)
    .keys(NOTED_RW_KEYS)
    .args(SCRIPT_ARGS),
    row(
        "eval_ro",
        "7.0.0",
        "Runs a Lua script that only reads.",
        &SessionCommand::at_once(|session, args, now| session.run_script(EVAL_RO, args, now))
            .kind(CommandKind::Script(EVAL_RO))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(READS)
    .acl(&["slow", "scripting"])
    .keys(NOTED_RO_KEYS)
    .args(SCRIPT_ARGS),
    row(
        "evalsha",
        "2.6.0",
        "Runs a Lua script that the server knows, by its digest.",
        &SessionCommand::at_once(|session, args, now| session.run_script(EVALSHA, args, now))
            .kind(CommandKind::Script(EVALSHA))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(RUNS)
    .keys(RW_KEYS)
    .args(SHA_ARGS),
    row(
        "evalsha_ro",
        "7.0.0",
        "Runs a Lua script that only reads and that the server knows, by its digest.",
        &SessionCommand::at_once(|session, args, now| session.run_script(EVALSHA_RO, args, now))
            .kind(CommandKind::Script(EVALSHA_RO))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(READS)
    .acl(&["slow", "scripting"])
    .keys(RO_KEYS)
    .args(SHA_ARGS),
    row(
        "fcall",
        "7.0.0",
        "Calls a function of a library.",
        &SessionCommand::at_once(|session, args, now| session.run_script(FCALL, args, now))
            .kind(CommandKind::Script(FCALL))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(RUNS)
    .keys(NOTED_RW_KEYS)
    .args(FUNCTION_ARGS),
    row(
        "fcall_ro",
        "7.0.0",
        "Calls a function of a library that only reads.",
        &SessionCommand::at_once(|session, args, now| session.run_script(FCALL_RO, args, now))
            .kind(CommandKind::Script(FCALL_RO))
            .in_multi(InMulti::QueuedForAnyThread),
    )
    .flags(READS)
    .acl(&["slow", "scripting"])
    .keys(NOTED_RO_KEYS)
    .args(FUNCTION_ARGS),
    CommandSpec::container(
        "function",
        "scripting",
        "7.0.0",
        "Manages libraries of functions.",
        &[
            sub(
                "delete",
                "7.0.0",
                "O(1)",
                "Deletes a library.",
                &SessionCommand::at_once(|session, args, _| {
                    session.with_libraries(scripting::function_delete, args)
                })
                .or_detached(|engine, args, _, reply| scripting::function_delete(engine, args, reply))
                .in_multi(InMulti::QueuedForAnyThread)
                .in_files(InFiles::Runs(scripting::function_delete)),
            )
            .flags(&[F::WRITE, F::NOSCRIPT])
            .args(&[Arg::string("library-name")])
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
            sub(
                "dump",
                "7.0.0",
                "O(N), N libraries",
                "Returns all libraries as one payload.",
                &SessionCommand::at_once(|session, args, _| {
                    session.with_libraries(scripting::function_dump, args)
                })
                .or_detached(|engine, args, _, reply| scripting::function_dump(engine, args, reply))
                .in_multi(InMulti::QueuedForAnyThread),
            )
            .flags(&[F::NOSCRIPT]),
            sub(
                "flush",
                "7.0.0",
                "O(N), N functions",
                "Deletes all libraries.",
                &SessionCommand::at_once(|session, args, _| {
                    session.with_libraries(scripting::function_flush, args)
                })
                .or_detached(|engine, args, _, reply| scripting::function_flush(engine, args, reply))
                .in_multi(InMulti::QueuedForAnyThread)
                .in_files(InFiles::Runs(scripting::function_flush)),
            )
            .flags(&[F::WRITE, F::NOSCRIPT])
            .args(&[Arg::oneof("flush-type", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")])
                .optional()])
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
            sub(
                "help",
                "7.0.0",
                "O(1)",
                "Lists the subcommands of FUNCTION.",
                &SessionCommand::at_once(|session, args, _| {
                    session.scripting(scripting::function_help, args)
                }),
            )
            .flags(&[F::LOADING, F::STALE]),
            sub(
                "kill",
                "7.0.0",
                "O(1)",
                "Ends the functions that run.",
                &SessionCommand::at_once(|session, args, _| {
                    session.scripting(scripting::function_kill, args)
                }),
            )
            .flags(&[F::NOSCRIPT, F::ALLOW_BUSY])
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            sub(
                "list",
                "7.0.0",
                "O(N), N functions",
                "Lists the libraries.",
                &SessionCommand::at_once(|session, args, _| {
                    session.with_libraries(scripting::function_list, args)
                })
                .or_detached(|engine, args, _, reply| scripting::function_list(engine, args, reply))
                .in_multi(InMulti::QueuedForAnyThread),
            )
            .flags(&[F::NOSCRIPT])
            .args(&[
                Arg::string("library-name-pattern").token("LIBRARYNAME").optional(),
                Arg::word("withcode", "WITHCODE").optional(),
            ])
            .tips(&["nondeterministic_output_order"]),
            sub(
                "load",
                "7.0.0",
                "O(1)",
                "Creates a library.",
                &SessionCommand::detached(|engine, args, _, reply| {
                    scripting::function_load(engine, args, reply)
                })
                .in_files(InFiles::Runs(scripting::function_load)),
            )
            .flags(&[F::WRITE, F::DENYOOM, F::NOSCRIPT])
            .args(&[Arg::word("replace", "REPLACE").optional(), Arg::string("function-code")])
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
            sub(
                "restore",
                "7.0.0",
                "O(N), N functions",
                "Creates the libraries of a payload.",
                &SessionCommand::detached(|engine, args, _, reply| {
                    scripting::function_restore(engine, args, reply)
                })
                .in_files(InFiles::Runs(scripting::function_restore)),
            )
            .flags(&[F::WRITE, F::DENYOOM, F::NOSCRIPT])
            .args(&[
                Arg::string("serialized-value"),
                Arg::oneof(
                    "policy",
                    &[
                        Arg::word("flush", "FLUSH"),
                        Arg::word("append", "APPEND"),
                        Arg::word("replace", "REPLACE"),
                    ],
                )
                .optional(),
            ])
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
            sub(
                "stats",
                "7.0.0",
                "O(1)",
                "Returns which function runs, and how many functions exist.",
                &SessionCommand::at_once(|session, args, _| {
                    session.scripting(scripting::function_stats, args)
                }),
            )
            .flags(&[F::NOSCRIPT, F::ALLOW_BUSY])
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ]),
        ],
    )
    .acl(&["slow"]),
    CommandSpec::container(
        "script",
        "scripting",
        "2.6.0",
        "Manages the scripts that the server knows.",
        &[
            sub(
                "debug",
                "3.2.0",
                "O(1)",
                "Always fails: there is no debugger.",
                &SessionCommand::at_once(|session, args, _| session.scripting(scripting::script_debug, args)),
            )
            .flags(&[F::NOSCRIPT])
            .args(&[Arg::oneof(
                "mode",
                &[Arg::word("yes", "YES"), Arg::word("sync", "SYNC"), Arg::word("no", "NO")],
            )]),
            sub(
                "exists",
                "2.6.0",
                "O(N), N digests",
                "Returns which scripts the server knows.",
                &SessionCommand::at_once(|session, args, _| session.script_exists(args))
                    .or_detached(|engine, args, _, reply| scripting::script_exists(engine, args, reply))
                    .in_multi(InMulti::QueuedForAnyThread),
            )
            .flags(&[F::NOSCRIPT])
            .args(&[Arg::string("sha1").multiple()])
            .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"]),
            sub(
                "flush",
                "2.6.0",
                "O(N), N scripts",
                "Forgets all scripts.",
                &SessionCommand::at_once(|session, args, _| session.scripting(scripting::script_flush, args))
                    .or_detached(|engine, args, _, reply| scripting::script_flush(engine, args, reply))
                    .in_multi(InMulti::QueuedForAnyThread)
                    .in_files(InFiles::Runs(scripting::script_flush)),
            )
            .flags(&[F::NOSCRIPT])
            .args(&[Arg::oneof("flush-type", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")])
                .optional()
                .since("6.2.0")])
            .history(&[("6.2.0", "Takes `ASYNC` and `SYNC`.")])
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
            sub(
                "help",
                "5.0.0",
                "O(1)",
                "Lists the subcommands of SCRIPT.",
                &SessionCommand::at_once(|session, args, _| session.scripting(scripting::script_help, args)),
            )
            .flags(&[F::LOADING, F::STALE]),
            sub(
                "kill",
                "2.6.0",
                "O(1)",
                "Ends the scripts that run.",
                &SessionCommand::at_once(|session, args, _| session.scripting(scripting::script_kill, args)),
            )
            .flags(&[F::NOSCRIPT, F::ALLOW_BUSY])
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
            sub(
                "load",
                "2.6.0",
                "O(N), N bytes",
                "Keeps a script at the server, to be run by its digest.",
                &SessionCommand::detached(|engine, args, _, reply| {
                    scripting::script_load(engine, args, reply)
                })
                .in_files(InFiles::Runs(scripting::script_load)),
            )
            .flags(&[F::NOSCRIPT, F::STALE])
            .args(&[Arg::string("script")])
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
        ],
    )
    .acl(&["slow"]),
];
