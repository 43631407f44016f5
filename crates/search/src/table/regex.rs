//! The rows of group `regex`: sets of patterns, and regular expressions over keys and values.

use super::serve;
use crate::rx::help as texts;
use crate::{grep, rx, trigram};
use strand_commands::call::Call;
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

/// The row of a container's HELP.
const fn help(summary: &'static str, handler: fn(&mut Call<'_, '_>)) -> CommandSpec {
    CommandSpec::sub("help", "regex", "0.1.0", "O(1)", summary)
        .flags(&[F::LOADING, F::STALE])
        .exec(Exec::Inline(handler))
}

/// The complexity of a search with a set, for the rows of such commands.
const SEARCHED: &str = "O(N), N bytes of text; O(N*M), M states of the pattern, where the DFA gives up";

const LIMIT: Arg = Arg::integer("limit").token("LIMIT").optional();

/// Group `regex`, by name.
pub(super) const REGEX: &[CommandSpec] = &[
    CommandSpec::new(
        "rx.captures",
        "regex",
        "0.1.0",
        SEARCHED,
        "Finds the groups of every match of a set's patterns in a text.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("name"), Arg::string("text"), LIMIT])
    .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::captures), 2)),
    CommandSpec::new(
        "rx.check",
        "regex",
        "0.1.0",
        "O(N), N bytes of the pattern's automaton",
        "Returns what a pattern will cost.",
    )
    .flags(&[F::READONLY])
    .args(&[
        Arg::pattern("pattern"),
        Arg::word("unicode", "UNICODE").optional(),
        Arg::word("nocase", "NOCASE").optional(),
    ])
    .exec(Exec::Service(|services, call| serve(services, call, |_, call| rx::check(call)))),
    CommandSpec::new("rx.del", "regex", "0.1.0", "O(N), N names", "Removes sets of patterns.")
        .flags(&[F::WRITE, F::DEFINES])
        .args(&[Arg::string("name").multiple()])
        .exec(Exec::Service(|services, call| serve(services, call, rx::delete))),
    CommandSpec::new(
        "rx.findall",
        "regex",
        "0.1.0",
        SEARCHED,
        "Finds every match of a set's patterns in a text.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("name"), Arg::string("text"), LIMIT, Arg::word("spans", "SPANS").optional()])
    .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::find_all), 2)),
    CommandSpec::new(
        "rx.grep",
        "regex",
        "0.1.0",
        "O(N), N bytes of the keys or values; with an index, of the values that may match",
        "Finds the keys whose name or value matches a regular expression.",
    )
    .flags(&[F::READONLY])
    .args(&[
        Arg::oneof("where", &[Arg::word("keys", "KEYS"), Arg::word("values", "VALUES")]),
        Arg::pattern("pattern"),
        Arg::string("prefix").token("PREFIX").optional(),
        Arg::string("field").token("FIELD").optional(),
        LIMIT,
        Arg::word("nocase", "NOCASE").optional(),
        Arg::word("withvalues", "WITHVALUES").optional(),
    ])
    .acl(&["keyspace", "read", "slow", "dangerous"])
    .exec(Exec::Service(|services, call| serve(services, call, grep::run))),
    CommandSpec::new(
        "rx.index",
        "regex",
        "0.1.0",
        "By subcommand",
        "Groups the commands on trigram indexes.",
    )
    .arity(-2)
    .subcommands(&[
        CommandSpec::sub(
            "create",
            "regex",
            "0.1.0",
            "O(N), N bytes under the prefix, which are indexed in the background",
            "Creates a trigram index, so that RX.GREP looks only at values that may match.",
        )
        .flags(&[F::WRITE, F::DENYOOM, F::DEFINES, F::INDEXES])
        .args(&[
            Arg::string("name"),
            Arg::string("prefix").token("PREFIX"),
            Arg::string("field").token("FIELD").optional(),
        ])
        .exec(Exec::Service(|services, call| serve(services, call, trigram::create))),
        CommandSpec::sub("drop", "regex", "0.1.0", "O(1)", "Removes a trigram index.")
            .flags(&[F::WRITE, F::DEFINES])
            .args(&[Arg::string("name")])
            .exec(Exec::Service(|services, call| serve(services, call, trigram::drop_index))),
        help("Lists the subcommands of RX.INDEX.", texts::index),
        CommandSpec::sub(
            "info",
            "regex",
            "0.1.0",
            "O(1)",
            "Describes a trigram index, and the progress of the indexing.",
        )
        .flags(&[F::READONLY])
        .args(&[Arg::string("name")])
        .exec(Exec::Service(|services, call| serve(services, call, trigram::info))),
        CommandSpec::sub("list", "regex", "0.1.0", "O(N), N indexes", "Lists the trigram indexes.")
            .flags(&[F::READONLY])
            .exec(Exec::Service(|services, call| serve(services, call, trigram::list))),
    ]),
    CommandSpec::new("rx.list", "regex", "0.1.0", "O(N), N sets", "Lists the sets of patterns.")
        .flags(&[F::READONLY])
        .exec(Exec::Service(|services, call| serve(services, call, rx::list))),
    CommandSpec::new(
        "rx.match",
        "regex",
        "0.1.0",
        SEARCHED,
        "Finds which of a set's patterns match in a text.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("name"), Arg::string("text")])
    .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::matching), 2)),
    CommandSpec::new(
        "rx.replace",
        "regex",
        "0.1.0",
        SEARCHED,
        "Replaces every match of a set's patterns in a text.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("name"), Arg::string("text"), Arg::string("replacement"), LIMIT])
    .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::replace), 2)),
    CommandSpec::new(
        "rx.set",
        "regex",
        "0.1.0",
        "O(N), N bytes of the patterns' automata",
        "Compiles a set of patterns under a name, and replaces the set that had the name.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::DEFINES])
    .args(&[
        Arg::string("name"),
        Arg::block("member", &[Arg::string("id").token("ID"), Arg::pattern("pattern")]).multiple(),
        Arg::word("unicode", "UNICODE").optional(),
        Arg::word("nocase", "NOCASE").optional(),
        Arg::integer("memory").token("MEMORY").optional(),
        Arg::integer("deadline").token("DEADLINE").optional(),
    ])
    .exec(Exec::Service(|services, call| serve(services, call, rx::set))),
    CommandSpec::new(
        "rx.stats",
        "regex",
        "0.1.0",
        "O(N), N threads",
        "Returns what the searches with a set have cost.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("name")])
    .exec(Exec::Service(|services, call| serve(services, call, rx::stats))),
    CommandSpec::new(
        "rx.stream",
        "regex",
        "0.1.0",
        "By subcommand",
        "Groups the commands on texts that arrive in pieces.",
    )
    .arity(-2)
    .subcommands(&[
        CommandSpec::sub(
            "close",
            "regex",
            "0.1.0",
            SEARCHED,
            "Ends a stream, and finds the matches that end at the end of the text.",
        )
        .flags(&[F::READONLY])
        .args(&[Arg::integer("stream")])
        .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::close), 2)),
        CommandSpec::sub(
            "feed",
            "regex",
            "0.1.0",
            SEARCHED,
            "Finds where matches end in the next piece of a stream.",
        )
        .flags(&[F::READONLY])
        .args(&[Arg::integer("stream"), Arg::string("text")])
        .exec(Exec::ServiceOnText(|services, call| serve(services, call, rx::feed), 3)),
        help("Lists the subcommands of RX.STREAM.", texts::stream),
        CommandSpec::sub(
            "open",
            "regex",
            "0.1.0",
            "O(1); as RX.SET for the first stream of a set",
            "Opens a stream, which scans a text that arrives in pieces.",
        )
        .flags(&[F::READONLY])
        .args(&[Arg::string("name")])
        .exec(Exec::Service(|services, call| serve(services, call, rx::open))),
    ]),
];
