//! The rows of ACL: who may do what. They belong to group `server`.

use super::super::acl;
use crate::session::session_command::{InMulti, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

/// ACL with its subcommands, by name.
pub(super) const ACL: &[CommandSpec] = &[CommandSpec::container(
    "acl",
    "server",
    "6.0.0",
    "Groups the commands about users and their rights.",
    &[
        CommandSpec::sub(
            "cat",
            "server",
            "6.0.0",
            "O(N), N commands",
            "Lists the categories, or the commands of a category.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::string("categoryname").optional()])
        .exec(Exec::Session(
            &SessionCommand::detached(|_, args, _, reply| acl::cat(args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub(
            "deluser",
            "server",
            "6.0.0",
            "O(N), N connections",
            "Removes users and closes their connections.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::string("username").multiple()])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, _, reply| acl::delete_users(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub(
            "dryrun",
            "server",
            "7.0.0",
            "O(N), N patterns of the user",
            "Returns whether a user may run a command, and does not run the command.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::string("username"), Arg::string("command"), Arg::string("arg").optional().multiple()])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, _, reply| acl::dry_run(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub(
            "genpass",
            "server",
            "6.0.0",
            "O(1)",
            "Returns a new password that nobody can guess.",
        )
        .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::integer("bits").optional()])
        .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.acl_genpass(args)))),
        CommandSpec::sub(
            "getuser",
            "server",
            "6.0.0",
            "O(N), N rules of the user",
            "Describes a user, part by part.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::string("username")])
        .history(&[
            ("6.2.0", "Channel patterns."),
            ("7.0.0", "Selectors; patterns are written as rules are, no longer as a list."),
        ])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, _, reply| acl::get_user(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub("help", "server", "6.0.0", "O(1)", "Lists the subcommands of ACL.")
            .flags(&[F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.acl_help()))),
        CommandSpec::sub(
            "list",
            "server",
            "6.0.0",
            "O(N), N users",
            "Describes all users, each as a line of an ACL file.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, _, _, reply| acl::list(engine, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub("load", "server", "6.0.0", "O(N), N users", "Reads the ACL file again.")
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(
                &SessionCommand::detached(|engine, _, _, reply| acl::load(engine, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
        CommandSpec::sub(
            "log",
            "server",
            "6.0.0",
            "O(N), N entries shown",
            "Returns what was denied recently, and to whom.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::oneof("operation", &[Arg::integer("count"), Arg::word("reset", "RESET")]).optional()])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, at, reply| acl::log(engine, args, at.now, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub("save", "server", "6.0.0", "O(N), N users", "Writes the users to the ACL file.")
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(
                &SessionCommand::detached(|engine, _, _, reply| acl::save(engine, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
        CommandSpec::sub(
            "setuser",
            "server",
            "6.0.0",
            "O(N), N rules given",
            "Creates a user, or changes the rights of a user.",
        )
        .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
        .args(&[Arg::string("username"), Arg::string("rule").optional().multiple()])
        .history(&[("6.2.0", "Channel patterns."), ("7.0.0", "Selectors; patterns for reading or writing.")])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, args, _, reply| acl::set_user(engine, args, reply))
                .in_multi(InMulti::AfterUnlock),
        )),
        CommandSpec::sub("users", "server", "6.0.0", "O(N), N users", "Lists the names of all users.")
            .flags(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(
                &SessionCommand::detached(|engine, _, _, reply| acl::users(engine, reply))
                    .in_multi(InMulti::AfterUnlock),
            )),
        CommandSpec::sub("whoami", "server", "6.0.0", "O(1)", "Returns the user of this connection.")
            .flags(&[F::NOSCRIPT, F::LOADING, F::STALE])
            .exec(Exec::Session(&SessionCommand::at_once(|session, _, _| session.acl_whoami()))),
    ],
)];
