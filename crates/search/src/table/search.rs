//! The rows of group `search`: the text index.

use super::serve;
use crate::{Search, difference, exec, versions};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// The options that all query commands have in common.
const LIMIT: Arg =
    Arg::block("limit", &[Arg::integer("offset").token("LIMIT"), Arg::integer("count")]).optional();
const PARAMS: Arg = Arg::block(
    "params",
    &[
        Arg::integer("count").token("PARAMS"),
        Arg::block("pair", &[Arg::string("name"), Arg::string("value")]).multiple(),
    ],
)
.optional();
const DIALECT: Arg = Arg::integer("dialect").token("DIALECT").optional();

const FILTER: Arg = Arg::block(
    "filter",
    &[Arg::string("numeric_field").token("FILTER"), Arg::double("min"), Arg::double("max")],
)
.optional()
.multiple();
const IN_KEYS: Arg =
    Arg::block("inkeys", &[Arg::integer("count").token("INKEYS"), Arg::string("key").multiple()]).optional();
const IN_FIELDS: Arg =
    Arg::block("infields", &[Arg::integer("count").token("INFIELDS"), Arg::string("field").multiple()])
        .optional();
const NO_STOP_WORDS: Arg = Arg::word("nostopwords", "NOSTOPWORDS").optional();
const LANGUAGE: Arg = Arg::string("language").token("LANGUAGE").optional();
const SCORER: Arg = Arg::string("scorer").token("SCORER").optional();

/// The row of IMPORT.VERSION KEEP, for the table with the other subcommands.
pub const KEEP: &[CommandSpec] = &[CommandSpec::sub(
    "keep",
    "import",
    "0.1.0",
    "O(N), N changed documents of the dataset that are not indexed yet",
    "Keeps the current state of a dataset's text indexes as a version.",
)
.flags(&[F::WRITE, F::DENYOOM, F::NOSCRIPT])
.keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
.args(&[Arg::key("dataset", 0), Arg::string("version"), Arg::integer("count").token("COUNT").optional()])
.exec(Exec::Service(|services, call| serve(services, call, versions::keep)))];

/// Group `search`, by name.
pub(super) const SEARCH: &[CommandSpec] = &[
    CommandSpec::new("ft._list", "search", "0.1.0", "O(N), N indexes", "Lists the text indexes.")
        .flags(&[F::READONLY])
        .acl(&["read", "slow", "admin", "search"])
        .exec(Exec::Service(|services, call| serve(services, call, Search::list))),
    CommandSpec::new(
        "ft.changes",
        "search",
        "0.1.0",
        "O(N), N documents that match and lie in segments that changed",
        "Finds what changed in the result of a query between two versions of a dataset.",
    )
    .flags(&[F::READONLY])
    .args(&[
        Arg::string("index"),
        Arg::string("query"),
        Arg::string("version").token("FROM"),
        Arg::string("version").token("TO").optional(),
        Arg::word("verbatim", "VERBATIM").optional(),
        NO_STOP_WORDS,
        FILTER,
        IN_KEYS,
        IN_FIELDS,
        LANGUAGE,
        SCORER,
        Arg::integer("timeout").token("TIMEOUT").optional(),
        LIMIT,
        PARAMS,
        DIALECT,
    ])
    .exec(Exec::Service(|services, call| serve(services, call, difference::difference))),
    CommandSpec::new(
        "ft.create",
        "search",
        "0.1.0",
        "O(N), N keys in the database: those under its prefixes are indexed in the background",
        "Creates a text index over hashes.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::DEFINES, F::INDEXES])
    .args(&[
        Arg::string("index"),
        Arg::oneof("on", &[Arg::word("hash", "HASH")]).token("ON").optional(),
        Arg::block("prefixes", &[Arg::integer("count").token("PREFIX"), Arg::string("prefix").multiple()])
            .optional(),
        LANGUAGE,
        Arg::double("score").token("SCORE").optional(),
        Arg::block("stopwords", &[Arg::integer("count").token("STOPWORDS"), Arg::string("word").multiple()])
            .optional(),
        Arg::word("maxtextfields", "MAXTEXTFIELDS").optional(),
        Arg::word("nohl", "NOHL").optional(),
        Arg::word("skipinitialscan", "SKIPINITIALSCAN").optional(),
        Arg::word("schema", "SCHEMA"),
        Arg::block(
            "field",
            &[
                Arg::string("name"),
                Arg::string("alias").token("AS").optional(),
                Arg::oneof(
                    "type",
                    &[Arg::word("text", "TEXT"), Arg::word("tag", "TAG"), Arg::word("numeric", "NUMERIC")],
                ),
                Arg::double("weight").token("WEIGHT").optional(),
                Arg::word("nostem", "NOSTEM").optional(),
                Arg::string("separator").token("SEPARATOR").optional(),
                Arg::word("casesensitive", "CASESENSITIVE").optional(),
                Arg::block(
                    "sortable",
                    &[Arg::word("sortable", "SORTABLE"), Arg::word("unf", "UNF").optional()],
                )
                .optional(),
                Arg::word("noindex", "NOINDEX").optional(),
            ],
        )
        .multiple(),
    ])
    .exec(Exec::Service(|services, call| serve(services, call, Search::create))),
    CommandSpec::new(
        "ft.dropindex",
        "search",
        "0.1.0",
        "O(1), or O(N) with DD, N keys in the index",
        "Removes a text index, and with DD also the indexed hashes.",
    )
    .flags(&[F::WRITE, F::DEFINES])
    .args(&[Arg::string("index"), Arg::word("delete_docs", "DD").optional()])
    .acl(&["write", "slow", "dangerous", "search"])
    .exec(Exec::Service(|services, call| serve(services, call, Search::drop_index))),
    CommandSpec::new(
        "ft.info",
        "search",
        "0.1.0",
        "O(1)",
        "Describes a text index, and the progress of the indexing.",
    )
    .flags(&[F::READONLY])
    .args(&[Arg::string("index")])
    .exec(Exec::Service(|services, call| serve(services, call, Search::info_index))),
    CommandSpec::new(
        "ft.search",
        "search",
        "0.1.0",
        "O(N), N documents that match the query's rarest terms",
        "Finds the documents that match a query.",
    )
    .flags(&[F::READONLY])
    .args(&[
        Arg::string("index"),
        Arg::string("query"),
        Arg::word("nocontent", "NOCONTENT").optional(),
        Arg::word("verbatim", "VERBATIM").optional(),
        NO_STOP_WORDS,
        Arg::word("withscores", "WITHSCORES").optional(),
        Arg::word("withsortkeys", "WITHSORTKEYS").optional(),
        FILTER,
        IN_KEYS,
        IN_FIELDS,
        Arg::block("return", &[Arg::integer("count").token("RETURN"), Arg::string("field").multiple()])
            .optional(),
        LANGUAGE,
        SCORER,
        Arg::integer("timeout").token("TIMEOUT").optional(),
        Arg::block(
            "sortby",
            &[
                Arg::string("field").token("SORTBY"),
                Arg::oneof("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional(),
            ],
        )
        .optional(),
        LIMIT,
        PARAMS,
        DIALECT,
        Arg::string("version").token("VERSION").optional(),
    ])
    .exec(Exec::Service(|services, call| serve(services, call, exec::search))),
];
