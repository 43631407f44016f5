//! The rows of group `regex`: sets of patterns, and regular expressions over keys and values.

use crate::call::Call;
use crate::cost::Cost;
use crate::families::regex_help;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, ServiceCommand};

/// HELP of a container.
const fn help(summary: &'static str, handler: fn(&mut Call<'_, '_>)) -> CommandSpec {
    CommandSpec {
        name: "help",
        arity: 2,
        flags: F::all(&[F::LOADING, F::STALE]),
        acl: &["slow"],
        summary,
        since: "0.1.0",
        group: "regex",
        complexity: "O(1)",
        handler: Handler::Data(handler),
        ..CommandSpec::EMPTY
    }
}

/// A command that is searched on the worker while its text, which is at `text`, is short.
const fn on_text(name: &'static str, arity: i32, text: usize, command: ServiceCommand) -> CommandSpec {
    CommandSpec {
        name,
        arity,
        flags: F::READONLY,
        acl: &["read", "slow"],
        since: "0.1.0",
        group: "regex",
        complexity: "O(N), N bytes of text, times the states of the pattern where its automaton is no help",
        handler: Handler::Service(command),
        cost: Cost::Text(text),
        ..CommandSpec::EMPTY
    }
}

/// A command on the lane.
const fn on_lane(
    name: &'static str,
    arity: i32,
    complexity: &'static str,
    command: ServiceCommand,
) -> CommandSpec {
    CommandSpec {
        name,
        arity,
        flags: F::READONLY,
        acl: &["read", "slow"],
        since: "0.1.0",
        group: "regex",
        complexity,
        handler: Handler::Service(command),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    }
}

const LIMIT: Arg = Arg::integer("limit").token("LIMIT").optional();

/// Group `regex`, by name.
pub(crate) static REGEX: &[CommandSpec] = &[
    CommandSpec {
        summary: "Finds the groups of every match of a set's patterns in a text.",
        args: &[Arg::string("name"), Arg::string("text"), LIMIT],
        ..on_text("rx.captures", -3, 2, ServiceCommand::RxCaptures)
    },
    CommandSpec {
        summary: "Says what a pattern will cost.",
        args: &[
            Arg::pattern("pattern"),
            Arg::word("unicode", "UNICODE").optional(),
            Arg::word("nocase", "NOCASE").optional(),
        ],
        ..on_lane("rx.check", -2, "O(N), N bytes of the pattern's automaton", ServiceCommand::RxCheck)
    },
    CommandSpec {
        flags: F::WRITE,
        acl: &["write", "slow"],
        summary: "Removes sets of patterns.",
        args: &[Arg::string("name").multiple()],
        ..on_lane("rx.del", -2, "O(N), N names", ServiceCommand::RxDel)
    },
    CommandSpec {
        summary: "Finds every match of a set's patterns in a text.",
        args: &[Arg::string("name"), Arg::string("text"), LIMIT, Arg::word("spans", "SPANS").optional()],
        ..on_text("rx.findall", -3, 2, ServiceCommand::RxFindAll)
    },
    CommandSpec {
        acl: &["keyspace", "read", "slow", "dangerous"],
        summary: "Finds the keys whose name or value matches a regular expression.",
        args: &[
            Arg::oneof("where", &[Arg::word("keys", "KEYS"), Arg::word("values", "VALUES")]),
            Arg::pattern("pattern"),
            Arg::string("prefix").token("PREFIX").optional(),
            Arg::string("field").token("FIELD").optional(),
            LIMIT,
            Arg::word("nocase", "NOCASE").optional(),
            Arg::word("withvalues", "WITHVALUES").optional(),
        ],
        ..on_lane(
            "rx.grep",
            -3,
            "O(N), N bytes of the keys or values looked at, which with an index are those that may match",
            ServiceCommand::RxGrep,
        )
    },
    CommandSpec {
        name: "rx.index",
        arity: -2,
        acl: &["slow"],
        summary: "A container for the commands of trigram indexes.",
        since: "0.1.0",
        group: "regex",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                flags: F::all(&[F::WRITE, F::DENYOOM]),
                acl: &["write", "slow"],
                summary: "Creates a trigram index, which makes RX.GREP look only at values that may match.",
                args: &[
                    Arg::string("name"),
                    Arg::string("prefix").token("PREFIX"),
                    Arg::string("field").token("FIELD").optional(),
                ],
                ..on_lane(
                    "create",
                    -5,
                    "O(N), N bytes under the prefix, which are indexed in the background",
                    ServiceCommand::RxIndexCreate,
                )
            },
            CommandSpec {
                flags: F::WRITE,
                acl: &["write", "slow"],
                summary: "Removes a trigram index.",
                args: &[Arg::string("name")],
                ..on_lane("drop", 3, "O(1)", ServiceCommand::RxIndexDrop)
            },
            help("Lists the subcommands of RX.INDEX.", regex_help::index),
            CommandSpec {
                summary: "Describes a trigram index and how far it has come.",
                args: &[Arg::string("name")],
                ..on_lane("info", 3, "O(1)", ServiceCommand::RxIndexInfo)
            },
            CommandSpec {
                summary: "Lists the trigram indexes.",
                ..on_lane("list", 2, "O(N), N indexes", ServiceCommand::RxIndexList)
            },
        ],
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        summary: "Lists the sets of patterns.",
        ..on_lane("rx.list", 1, "O(N), N sets", ServiceCommand::RxList)
    },
    CommandSpec {
        summary: "Finds which of a set's patterns match in a text.",
        args: &[Arg::string("name"), Arg::string("text")],
        ..on_text("rx.match", 3, 2, ServiceCommand::RxMatch)
    },
    CommandSpec {
        summary: "Replaces every match of a set's patterns in a text.",
        args: &[Arg::string("name"), Arg::string("text"), Arg::string("replacement"), LIMIT],
        ..on_text("rx.replace", -4, 2, ServiceCommand::RxReplace)
    },
    CommandSpec {
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "slow"],
        summary: "Compiles a set of patterns under a name, in the place of the one before.",
        args: &[
            Arg::string("name"),
            Arg::block("member", &[Arg::string("id").token("ID"), Arg::pattern("pattern")]).multiple(),
            Arg::word("unicode", "UNICODE").optional(),
            Arg::word("nocase", "NOCASE").optional(),
            Arg::integer("memory").token("MEMORY").optional(),
            Arg::integer("deadline").token("DEADLINE").optional(),
        ],
        ..on_lane("rx.set", -5, "O(N), N bytes of the patterns' automata", ServiceCommand::RxSet)
    },
    CommandSpec {
        summary: "Says what the searches with a set went through.",
        args: &[Arg::string("name")],
        ..on_lane("rx.stats", 2, "O(N), N threads", ServiceCommand::RxStats)
    },
    CommandSpec {
        name: "rx.stream",
        arity: -2,
        acl: &["slow"],
        summary: "A container for the commands of texts that come in pieces.",
        since: "0.1.0",
        group: "regex",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                summary: "Ends a stream: finds what ends where its text does.",
                args: &[Arg::integer("stream")],
                ..on_text("close", 3, 2, ServiceCommand::RxStreamClose)
            },
            CommandSpec {
                summary: "Finds where matches end in the next piece of a stream.",
                args: &[Arg::integer("stream"), Arg::string("text")],
                ..on_text("feed", 4, 3, ServiceCommand::RxStreamFeed)
            },
            help("Lists the subcommands of RX.STREAM.", regex_help::stream),
            CommandSpec {
                summary: "Begins a text that comes in pieces, for this client.",
                args: &[Arg::string("name")],
                ..on_lane(
                    "open",
                    3,
                    "O(1), or as RX.SET for the first of a set",
                    ServiceCommand::RxStreamOpen,
                )
            },
        ],
        ..CommandSpec::EMPTY
    },
];
