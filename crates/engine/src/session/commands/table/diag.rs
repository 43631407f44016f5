//! The rows of group `diag`: the server's own figures.

use super::super::diag;
use crate::session::session_command::{InMulti, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

const FLAGS: &[F] = &[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE];
const TIPS: &[&str] = &["nondeterministic_output"];

/// How a subcommand with figures runs: on a helper thread, and in EXEC after the shards are unlocked.
const FIGURES: SessionCommand =
    SessionCommand::detached(|engine, args, at, reply| diag::run(engine, args, at.now, reply))
        .in_multi(InMulti::AfterUnlock);

/// Group `diag`, by name.
pub(super) const DIAG: &[CommandSpec] = &[CommandSpec::container(
    "diag",
    "diag",
    "0.1.0",
    "Groups the commands that diagnose the server.",
    &[
        CommandSpec::sub(
            "bigkeys",
            "diag",
            "0.1.0",
            "O(1)",
            "Returns the largest of the keys that DIAG HOTKEYS has seen, as JSON.",
        )
        .flags(FLAGS)
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES.locks_shards(|_| true))),
        CommandSpec::sub(
            "doctor",
            "diag",
            "0.1.0",
            "O(N), N clients",
            "Returns what is wrong now, what the server did by itself, and what to do, as JSON.",
        )
        .flags(FLAGS)
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub("help", "diag", "0.1.0", "O(1)", "Lists the subcommands of DIAG.")
            .flags(&[F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.diag_help()))),
        CommandSpec::sub("history", "diag", "0.1.0", "O(N), N rows", "Returns figures over time, as JSON.")
            .flags(FLAGS)
            .args(&[
                Arg::integer("from-seconds").token("FROM").optional(),
                Arg::integer("to-seconds").token("TO").optional(),
                Arg::integer("step-seconds").token("STEP").optional(),
                Arg::integer("points").token("POINTS").optional(),
                Arg::string("series").token("SERIES").optional(),
            ])
            .tips(TIPS)
            .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub("hotkeys", "diag", "0.1.0", "O(1)", "Returns the keys that are used most, as JSON.")
            .flags(FLAGS)
            .args(&[Arg::word("reset", "RESET").optional()])
            .tips(TIPS)
            .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub("live", "diag", "0.1.0", "O(1)", "Returns the newest row of the history, as JSON.")
            .flags(FLAGS)
            .args(&[Arg::string("series").token("SERIES").optional()])
            .tips(TIPS)
            .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub("log", "diag", "0.1.0", "O(1)", "Returns the newest lines of the log.")
            .flags(FLAGS)
            .tips(TIPS)
            .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub(
            "memory",
            "diag",
            "0.1.0",
            "O(N), N clients",
            "Returns what all the memory is used for, as JSON.",
        )
        .flags(FLAGS)
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES.locks_shards(|_| true))),
        CommandSpec::sub(
            "phases",
            "diag",
            "0.1.0",
            "O(N), N commands that were called",
            "Returns how long commands waited and ran, as JSON.",
        )
        .flags(FLAGS)
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub(
            "profile",
            "diag",
            "0.1.0",
            "O(N), N different stacks",
            "Returns where memory is allocated, or where processor time goes, in pprof's format or folded.",
        )
        .flags(FLAGS)
        .args(&[
            Arg::string("kind"),
            Arg::string("action").optional(),
            Arg::string("number").optional(),
            Arg::word("folded", "FOLDED").optional(),
        ])
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub("series", "diag", "0.1.0", "O(1)", "Lists the series of the history, as JSON.")
            .flags(FLAGS)
            .tips(TIPS)
            .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub(
            "slowlog",
            "diag",
            "0.1.0",
            "O(N), N entries",
            "Returns slow commands, and commands that waited long, as JSON.",
        )
        .flags(FLAGS)
        .args(&[Arg::integer("count").optional()])
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES)),
        CommandSpec::sub(
            "system",
            "diag",
            "0.1.0",
            "By threads",
            "Returns the kernel's text about the process, its threads and the machine, as JSON.",
        )
        .flags(FLAGS)
        .tips(TIPS)
        .exec(Exec::Session(&FIGURES)),
    ],
)];
