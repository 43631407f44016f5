//! The rows of ACL: who may do what. They belong to group `server`.

use crate::spec::{Arg, CommandSpec, Flags as F, Handler, SessionCommand};

const PLAIN: F = F::all(&[F::NOSCRIPT, F::LOADING, F::STALE]);
const ADMIN: F = F::all(&[F::ADMIN, F::NOSCRIPT, F::LOADING, F::STALE]);
const ADMIN_CATEGORIES: &[&str] = &["admin", "slow", "dangerous"];

/// What all subcommands for administrators have in common.
const ADMIN_ROW: CommandSpec = CommandSpec {
    flags: ADMIN,
    acl: ADMIN_CATEGORIES,
    since: "6.0.0",
    group: "server",
    ..CommandSpec::EMPTY
};
/// The same of those for everybody.
const PLAIN_ROW: CommandSpec =
    CommandSpec { flags: PLAIN, acl: &["slow"], since: "6.0.0", group: "server", ..CommandSpec::EMPTY };

/// ACL with its subcommands, by name.
pub(crate) static ACL: &[CommandSpec] = &[CommandSpec {
    name: "acl",
    arity: -2,
    acl: &["slow"],
    summary: "Groups the commands about users and their rights.",
    since: "6.0.0",
    group: "server",
    complexity: "By subcommand",
    subcommands: &[
        CommandSpec {
            name: "cat",
            arity: -2,
            summary: "Lists the categories, or the commands of one.",
            complexity: "O(N), N commands",
            args: &[Arg::string("categoryname").optional()],
            handler: Handler::Session(SessionCommand::AclCat),
            ..PLAIN_ROW
        },
        CommandSpec {
            name: "deluser",
            arity: -3,
            summary: "Removes users and closes their connections.",
            complexity: "O(N), N connections",
            args: &[Arg::string("username").multiple()],
            handler: Handler::Session(SessionCommand::AclDelUser),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "dryrun",
            arity: -4,
            summary: "Tells whether a user might run a command, without running it.",
            since: "7.0.0",
            complexity: "O(N), N patterns of the user",
            args: &[
                Arg::string("username"),
                Arg::string("command"),
                Arg::string("arg").optional().multiple(),
            ],
            handler: Handler::Session(SessionCommand::AclDryRun),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "genpass",
            arity: -2,
            summary: "Makes a password that nobody guesses.",
            complexity: "O(1)",
            args: &[Arg::integer("bits").optional()],
            handler: Handler::Session(SessionCommand::AclGenPass),
            ..PLAIN_ROW
        },
        CommandSpec {
            name: "getuser",
            arity: 3,
            summary: "Describes a user, part by part.",
            complexity: "O(N), N rules of the user",
            history: &[
                ("6.2.0", "Channel patterns."),
                ("7.0.0", "Selectors; patterns are written as rules are, no longer as a list."),
            ],
            args: &[Arg::string("username")],
            handler: Handler::Session(SessionCommand::AclGetUser),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "help",
            arity: 2,
            flags: F::all(&[F::LOADING, F::STALE]),
            summary: "Lists the subcommands of ACL.",
            complexity: "O(1)",
            handler: Handler::Session(SessionCommand::AclHelp),
            ..PLAIN_ROW
        },
        CommandSpec {
            name: "list",
            arity: 2,
            summary: "Describes all users, each as a line of an ACL file.",
            complexity: "O(N), N users",
            handler: Handler::Session(SessionCommand::AclList),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "load",
            arity: 2,
            summary: "Reads the ACL file again.",
            complexity: "O(N), N users",
            handler: Handler::Session(SessionCommand::AclLoad),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "log",
            arity: -2,
            summary: "Shows what was denied of late, and to whom.",
            complexity: "O(N), N entries shown",
            args: &[Arg::oneof("operation", &[Arg::integer("count"), Arg::word("reset", "RESET")]).optional()],
            handler: Handler::Session(SessionCommand::AclLog),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "save",
            arity: 2,
            summary: "Writes the users to the ACL file.",
            complexity: "O(N), N users",
            handler: Handler::Session(SessionCommand::AclSave),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "setuser",
            arity: -3,
            summary: "Makes a user, or changes what one may do.",
            complexity: "O(N), N rules given",
            history: &[
                ("6.2.0", "Channel patterns."),
                ("7.0.0", "Selectors; patterns for reading or writing."),
            ],
            args: &[Arg::string("username"), Arg::string("rule").optional().multiple()],
            handler: Handler::Session(SessionCommand::AclSetUser),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "users",
            arity: 2,
            summary: "Lists the names of all users.",
            complexity: "O(N), N users",
            handler: Handler::Session(SessionCommand::AclUsers),
            ..ADMIN_ROW
        },
        CommandSpec {
            name: "whoami",
            arity: 2,
            summary: "Tells the user of this connection.",
            complexity: "O(1)",
            handler: Handler::Session(SessionCommand::AclWhoAmI),
            ..PLAIN_ROW
        },
    ],
    handler: Handler::Container,
    ..CommandSpec::EMPTY
}];
