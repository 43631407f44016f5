//! The rows of group `stream`: entries with IDs, and groups of consumers.

use crate::cost::{Cost, Merge, Slices, SlowPath};
use crate::families::stream::{self, costs};
use crate::spec::{Arg, BeginSearch, CommandSpec, Exec, FindKeys, Flags as F, KeyFlags as K, KeySpec};

/// Group `stream`, by name.
pub(crate) const STREAM: &[CommandSpec] = &[
    CommandSpec::new(
        "xack",
        "stream",
        "5.0.0",
        "O(N) with the number of IDs given",
        "Acknowledges entries of a consumer group, which are then no longer pending.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::string("group"), Arg::string("id").multiple()])
    .exec(Exec::Estimated(
        stream::xack,
        Cost::Arguments,
        SlowPath::Slices(Slices { head: 3, step: 1, merge: Merge::Sum, of_system: false }),
    )),
    CommandSpec::new(
        "xackdel",
        "stream",
        "8.2.0",
        "O(N*M) with the number of IDs given and of groups",
        "Acknowledges entries of a consumer group and deletes them.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::oneof(
            "condition",
            &[Arg::word("keepref", "KEEPREF"), Arg::word("delref", "DELREF"), Arg::word("acked", "ACKED")],
        )
        .optional(),
        Arg::block("ids", &[Arg::integer("numids"), Arg::string("id").multiple()]).token("IDS"),
    ])
    .exec(Exec::Estimated(stream::xackdel, Cost::InData(stream::delete_elements), SlowPath::Locked)),
    CommandSpec::new(
        "xadd",
        "stream",
        "5.0.0",
        "O(1), and O(N) with the number of entries trimmed",
        "Adds an entry to a stream.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])
        .notes("The command may also trim the stream, which is an update.")])
    .args(&[
        Arg::key("key", 0),
        Arg::word("nomkstream", "NOMKSTREAM").optional().since("6.2.0"),
        Arg::block(
            "trim",
            &[
                Arg::oneof(
                    "strategy",
                    &[Arg::word("maxlen", "MAXLEN"), Arg::word("minid", "MINID").since("6.2.0")],
                ),
                Arg::oneof("operator", &[Arg::word("equal", "="), Arg::word("approximately", "~")])
                    .optional(),
                Arg::string("threshold"),
                Arg::integer("count").token("LIMIT").optional().since("6.2.0"),
            ],
        )
        .optional(),
        Arg::oneof("id_or_auto", &[Arg::word("auto_id", "*"), Arg::string("id")]),
        Arg::block("field_value", &[Arg::string("field"), Arg::string("value")]).multiple(),
    ])
    .history(&[("6.2.0", "Takes NOMKSTREAM, MINID and LIMIT."), ("7.0.0", "Takes IDs of the form ms-*.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(
        stream::xadd,
        Cost::InDataUnless(costs::adds_only, costs::add),
        SlowPath::Locked,
    )),
    CommandSpec::new(
        "xautoclaim",
        "stream",
        "6.2.0",
        "O(N) with COUNT",
        "Gives a consumer the entries that have been pending for long enough.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::string("consumer"),
        Arg::string("min-idle-time"),
        Arg::string("start"),
        Arg::integer("count").token("COUNT").optional(),
        Arg::word("justid", "JUSTID").optional(),
    ])
    .history(&[("7.0.0", "Returns the IDs of deleted entries, too.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(stream::xautoclaim, Cost::InData(costs::autoclaim), SlowPath::Locked)),
    CommandSpec::new(
        "xclaim",
        "stream",
        "5.0.0",
        "O(N log M), N the IDs given, M the pending entries",
        "Gives a consumer pending entries by their IDs.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::string("consumer"),
        Arg::string("min-idle-time"),
        Arg::string("id").multiple(),
        Arg::integer("ms").token("IDLE").optional(),
        Arg::unix_time("unix-time-milliseconds").token("TIME").optional(),
        Arg::integer("count").token("RETRYCOUNT").optional(),
        Arg::word("force", "FORCE").optional(),
        Arg::word("justid", "JUSTID").optional(),
        Arg::string("id").token("LASTID").optional(),
    ])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(stream::xclaim, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "xdel",
        "stream",
        "5.0.0",
        "O(N) with the number of IDs given",
        "Deletes entries of a stream.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::string("id").multiple()])
    .exec(Exec::Estimated(stream::xdel, Cost::Arguments, SlowPath::fields(Merge::Sum))),
    CommandSpec::new(
        "xdelex",
        "stream",
        "8.2.0",
        "O(N*M) with the number of IDs given and of groups",
        "Deletes entries of a stream, or only the entries that no group needs.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[
        Arg::key("key", 0),
        Arg::oneof(
            "condition",
            &[Arg::word("keepref", "KEEPREF"), Arg::word("delref", "DELREF"), Arg::word("acked", "ACKED")],
        )
        .optional(),
        Arg::block("ids", &[Arg::integer("numids"), Arg::string("id").multiple()]).token("IDS"),
    ])
    .exec(Exec::Estimated(stream::xdelex, Cost::InData(stream::delete_elements), SlowPath::Locked)),
    CommandSpec::container(
        "xgroup",
        "stream",
        "5.0.0",
        "Groups the commands on consumer groups.",
        &[
            CommandSpec::sub("create", "stream", "5.0.0", "O(1)", "Creates a consumer group.")
                .flags(&[F::WRITE, F::DENYOOM])
                .keys(&[KeySpec::one(2, &[K::RW, K::INSERT])])
                .args(&[
                    Arg::key("key", 0),
                    Arg::string("groupname"),
                    Arg::oneof("id", &[Arg::string("id"), Arg::word("new_id", "$")]),
                    Arg::word("mkstream", "MKSTREAM").optional(),
                    Arg::integer("entries_read").token("ENTRIESREAD").optional(),
                ])
                .history(&[("7.0.0", "Takes ENTRIESREAD.")])
                .exec(Exec::Inline(stream::xgroup_create)),
            CommandSpec::sub("createconsumer", "stream", "6.2.0", "O(1)", "Creates a consumer of a group.")
                .flags(&[F::WRITE, F::DENYOOM])
                .keys(&[KeySpec::one(2, &[K::RW, K::INSERT])])
                .args(&[Arg::key("key", 0), Arg::string("groupname"), Arg::string("consumername")])
                .exec(Exec::Inline(stream::xgroup_createconsumer)),
            CommandSpec::sub(
                "delconsumer",
                "stream",
                "5.0.0",
                "O(N), N pending entries of the consumer",
                "Removes a consumer of a group, and the consumer's pending entries.",
            )
            .flags(&[F::WRITE])
            .keys(&[KeySpec::one(2, &[K::RW, K::DELETE])])
            .args(&[Arg::key("key", 0), Arg::string("groupname"), Arg::string("consumername")])
            .exec(Exec::Estimated(
                stream::xgroup_delconsumer,
                Cost::InData(costs::group),
                SlowPath::Locked,
            )),
            CommandSpec::sub(
                "destroy",
                "stream",
                "5.0.0",
                "O(N), N pending entries of the group",
                "Removes a consumer group.",
            )
            .flags(&[F::WRITE])
            .keys(&[KeySpec::one(2, &[K::RW, K::DELETE])])
            .args(&[Arg::key("key", 0), Arg::string("groupname")])
            .exec(Exec::Estimated(
                stream::xgroup_destroy,
                Cost::InData(costs::group),
                SlowPath::Locked,
            )),
            CommandSpec::sub("help", "stream", "5.0.0", "O(1)", "Lists the subcommands of XGROUP.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Inline(stream::xgroup_help)),
            CommandSpec::sub(
                "setid",
                "stream",
                "5.0.0",
                "O(1)",
                "Sets the ID up to which a consumer group has read.",
            )
            .flags(&[F::WRITE])
            .keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
            .args(&[
                Arg::key("key", 0),
                Arg::string("groupname"),
                Arg::oneof("id", &[Arg::string("id"), Arg::word("new_id", "$")]),
                Arg::integer("entries_read").token("ENTRIESREAD").optional(),
            ])
            .history(&[("7.0.0", "Takes ENTRIESREAD.")])
            .exec(Exec::Inline(stream::xgroup_setid)),
        ],
    )
    .acl(&["slow"]),
    CommandSpec::container(
        "xinfo",
        "stream",
        "5.0.0",
        "Groups the commands that describe streams.",
        &[
            CommandSpec::sub(
                "consumers",
                "stream",
                "5.0.0",
                "O(N) with the consumers",
                "Describes the consumers of a group.",
            )
            .flags(&[F::READONLY])
            .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
            .args(&[Arg::key("key", 0), Arg::string("groupname")])
            .tips(&["nondeterministic_output"])
            .exec(Exec::Estimated(
                stream::xinfo_consumers,
                Cost::InData(costs::info),
                SlowPath::CopyValues,
            )),
            CommandSpec::sub(
                "groups",
                "stream",
                "5.0.0",
                "O(N) with the groups",
                "Describes the consumer groups of a stream.",
            )
            .flags(&[F::READONLY])
            .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
            .args(&[Arg::key("key", 0)])
            .history(&[("7.0.0", "Returns entries-read and lag.")])
            .exec(Exec::Estimated(
                stream::xinfo_groups,
                Cost::InData(costs::info),
                SlowPath::CopyValues,
            )),
            CommandSpec::sub("help", "stream", "5.0.0", "O(1)", "Lists the subcommands of XINFO.")
                .flags(&[F::LOADING, F::STALE])
                .exec(Exec::Inline(stream::xinfo_help)),
            CommandSpec::sub(
                "stream",
                "stream",
                "5.0.0",
                "O(N) with the blocks of the stream; with FULL also with the entries shown",
                "Describes a stream.",
            )
            .flags(&[F::READONLY])
            .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
            .args(&[
                Arg::key("key", 0),
                Arg::block("full", &[Arg::integer("count").token("COUNT").optional()])
                    .token("FULL")
                    .optional(),
            ])
            .history(&[
                ("6.0.0", "Takes FULL."),
                (
                    "7.0.0",
                    "Returns the highest ID deleted, the entries added, the first ID, and groups' progress.",
                ),
            ])
            .exec(Exec::Estimated(
                stream::xinfo_stream,
                Cost::InData(costs::info),
                SlowPath::CopyValues,
            )),
        ],
    )
    .acl(&["slow"]),
    CommandSpec::new("xlen", "stream", "5.0.0", "O(1)", "Returns the number of entries of a stream.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(stream::xlen)),
    CommandSpec::new(
        "xpending",
        "stream",
        "5.0.0",
        "O(N) with the consumers, or with the entries looked at",
        "Returns the entries that a group's consumers have received and not acknowledged, or their number.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::block(
            "filters",
            &[
                Arg::integer("min-idle-time").token("IDLE").optional().since("6.2.0"),
                Arg::string("start"),
                Arg::string("end"),
                Arg::integer("count"),
                Arg::string("consumer").optional(),
            ],
        )
        .optional(),
    ])
    .history(&[("6.2.0", "Takes IDLE, and IDs that are not in the interval.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(stream::xpending, Cost::InData(costs::pending), SlowPath::CopyValues)),
    CommandSpec::new(
        "xrange",
        "stream",
        "5.0.0",
        "O(N) with the entries returned",
        "Returns the entries of a stream in an interval of IDs.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("start"),
        Arg::string("end"),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .history(&[("6.2.0", "Takes IDs that are not in the interval.")])
    .exec(Exec::Estimated(stream::xrange, Cost::InData(costs::range), SlowPath::CopyValues)),
    CommandSpec::new(
        "xread",
        "stream",
        "5.0.0",
        "O(N) with the entries returned",
        "Returns the entries of streams after the given IDs.",
    )
    .flags(&[F::READONLY, F::BLOCKING, F::MOVABLEKEYS])
    .keys(&[KeySpec::new(
        &[K::RO, K::ACCESS],
        BeginSearch::Keyword("STREAMS", 1),
        FindKeys::Range { last: -1, step: 1, limit: 2 },
    )])
    .args(&[
        Arg::integer("count").token("COUNT").optional(),
        Arg::integer("milliseconds").token("BLOCK").optional(),
        Arg::block("streams", &[Arg::key("key", 0).multiple(), Arg::string("id").multiple()])
            .token("STREAMS"),
    ])
    .exec(Exec::Estimated(stream::xread, Cost::InData(costs::read), SlowPath::CopyValues)),
    CommandSpec::new(
        "xreadgroup",
        "stream",
        "5.0.0",
        "O(N) with the entries returned",
        "Returns entries of streams to a consumer of a group.",
    )
    .flags(&[F::WRITE, F::BLOCKING, F::MOVABLEKEYS])
    .keys(&[KeySpec::new(
        &[K::RO, K::ACCESS],
        BeginSearch::Keyword("STREAMS", 4),
        FindKeys::Range { last: -1, step: 1, limit: 2 },
    )])
    .args(&[
        Arg::block("group_consumer", &[Arg::string("group"), Arg::string("consumer")]).token("GROUP"),
        Arg::integer("count").token("COUNT").optional(),
        Arg::integer("milliseconds").token("BLOCK").optional(),
        Arg::word("noack", "NOACK").optional(),
        Arg::block("streams", &[Arg::key("key", 0).multiple(), Arg::string("id").multiple()])
            .token("STREAMS"),
    ])
    .exec(Exec::Estimated(stream::xreadgroup, Cost::InData(costs::read), SlowPath::Locked)),
    CommandSpec::new(
        "xrevrange",
        "stream",
        "5.0.0",
        "O(N) with the entries returned",
        "Returns the entries of a stream in an interval of IDs, the newest entry first.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("end"),
        Arg::string("start"),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .history(&[("6.2.0", "Takes IDs that are not in the interval.")])
    .exec(Exec::Estimated(stream::xrevrange, Cost::InData(costs::range_back), SlowPath::CopyValues)),
    CommandSpec::new("xsetid", "stream", "5.0.0", "O(1)", "Sets the last ID of a stream.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
        .args(&[
            Arg::key("key", 0),
            Arg::string("last-id"),
            Arg::integer("entries_added").token("ENTRIESADDED").optional().since("7.0.0"),
            Arg::string("max_deleted_entry_id").token("MAXDELETEDID").optional().since("7.0.0"),
        ])
        .history(&[("7.0.0", "Takes ENTRIESADDED and MAXDELETEDID.")])
        .exec(Exec::Inline(stream::xsetid)),
    CommandSpec::new(
        "xtrim",
        "stream",
        "5.0.0",
        "O(N) with the entries removed",
        "Removes the oldest entries of a stream.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[
        Arg::key("key", 0),
        Arg::block(
            "trim",
            &[
                Arg::oneof(
                    "strategy",
                    &[Arg::word("maxlen", "MAXLEN"), Arg::word("minid", "MINID").since("6.2.0")],
                ),
                Arg::oneof("operator", &[Arg::word("equal", "="), Arg::word("approximately", "~")])
                    .optional(),
                Arg::string("threshold"),
                Arg::integer("count").token("LIMIT").optional().since("6.2.0"),
            ],
        ),
    ])
    .history(&[("6.2.0", "Takes MINID and LIMIT.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(stream::xtrim, Cost::InData(costs::xtrim), SlowPath::Own(stream::xtrim_long))),
];
