//! The rows of group `search`: the text index.

use crate::cost::Cost;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, ServiceCommand};

/// Group `search`, by name.
pub(crate) static SEARCH: &[CommandSpec] = &[
    CommandSpec {
        name: "ft._list",
        arity: 1,
        flags: F::READONLY,
        acl: &["read", "slow", "admin", "search"],
        summary: "Lists the text indexes.",
        since: "0.1.0",
        group: "search",
        complexity: "O(N), N indexes",
        handler: Handler::Service(ServiceCommand::FtList),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "ft.create",
        arity: -5,
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "slow", "search"],
        summary: "Creates a text index over hashes.",
        since: "0.1.0",
        group: "search",
        complexity: "O(N), N keys in the database: those under its prefixes are indexed in the background",
        args: &[
            Arg::string("index"),
            Arg::oneof("on", &[Arg::word("hash", "HASH")]).token("ON").optional(),
            Arg::block(
                "prefixes",
                &[Arg::integer("count").token("PREFIX"), Arg::string("prefix").multiple()],
            )
            .optional(),
            Arg::word("schema", "SCHEMA"),
            Arg::block(
                "field",
                &[
                    Arg::string("name"),
                    Arg::string("alias").token("AS").optional(),
                    Arg::oneof(
                        "type",
                        &[
                            Arg::word("text", "TEXT"),
                            Arg::word("tag", "TAG"),
                            Arg::word("numeric", "NUMERIC"),
                        ],
                    ),
                    Arg::double("weight").token("WEIGHT").optional(),
                    Arg::word("nostem", "NOSTEM").optional(),
                    Arg::string("separator").token("SEPARATOR").optional(),
                    Arg::word("sortable", "SORTABLE").optional(),
                ],
            )
            .multiple(),
        ],
        handler: Handler::Service(ServiceCommand::FtCreate),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "ft.dropindex",
        arity: -2,
        flags: F::WRITE,
        acl: &["write", "slow", "dangerous", "search"],
        summary: "Removes a text index, and with DD the hashes it covers.",
        since: "0.1.0",
        group: "search",
        complexity: "O(1), or O(N) with DD, N keys in the index",
        args: &[Arg::string("index"), Arg::word("delete_docs", "DD").optional()],
        handler: Handler::Service(ServiceCommand::FtDropIndex),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "ft.info",
        arity: 2,
        flags: F::READONLY,
        acl: &["read", "slow", "search"],
        summary: "Describes a text index and how far it has come.",
        since: "0.1.0",
        group: "search",
        complexity: "O(1)",
        args: &[Arg::string("index")],
        handler: Handler::Service(ServiceCommand::FtInfo),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "ft.search",
        arity: -3,
        flags: F::READONLY,
        acl: &["read", "slow", "search"],
        summary: "Finds the documents that match a query.",
        since: "0.1.0",
        group: "search",
        complexity: "O(N), N documents that match the query's rarest terms",
        args: &[
            Arg::string("index"),
            Arg::string("query"),
            Arg::word("nocontent", "NOCONTENT").optional(),
            Arg::word("verbatim", "VERBATIM").optional(),
            Arg::word("withscores", "WITHSCORES").optional(),
            Arg::block("inkeys", &[Arg::integer("count").token("INKEYS"), Arg::string("key").multiple()])
                .optional(),
            Arg::block("return", &[Arg::integer("count").token("RETURN"), Arg::string("field").multiple()])
                .optional(),
            Arg::block(
                "sortby",
                &[
                    Arg::string("field").token("SORTBY"),
                    Arg::oneof("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional(),
                ],
            )
            .optional(),
            Arg::block("limit", &[Arg::integer("offset").token("LIMIT"), Arg::integer("count")]).optional(),
            Arg::block(
                "params",
                &[
                    Arg::integer("count").token("PARAMS"),
                    Arg::block("pair", &[Arg::string("name"), Arg::string("value")]).multiple(),
                ],
            )
            .optional(),
            Arg::integer("dialect").token("DIALECT").optional(),
        ],
        handler: Handler::Service(ServiceCommand::FtSearch),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
];
