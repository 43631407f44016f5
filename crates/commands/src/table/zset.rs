//! The rows of group `sorted-set`: members ordered by scores.

use crate::cost::{Cost, Merge, SlowPath, of_difference, of_intersection, pops_one};
use crate::families::zset;
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// The values of AGGREGATE: how the scores of one member in several sources are combined.
const AGGREGATES: &[Arg] = &[
    Arg::word("sum", "SUM"),
    Arg::word("min", "MIN"),
    Arg::word("max", "MAX"),
    Arg::word("count", "COUNT").since("8.8.0"),
];

/// Group `sorted-set`, by name.
pub(crate) const ZSET: &[CommandSpec] = &[
    CommandSpec::new(
        "bzmpop",
        "sorted-set",
        "7.0.0",
        "O(K) + O(M*log(N)), K keys given, M members taken, N members",
        "Takes members off an end of the first sorted set that has any; blocks until a member exists.",
    )
    .flags(&[F::WRITE, F::BLOCKING, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(2, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[
        Arg::double("timeout"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::oneof("where", &[Arg::word("min", "MIN"), Arg::word("max", "MAX")]),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .exec(Exec::Estimated(
        zset::bzmpop,
        Cost::InData(zset::bzmpop_elements),
        SlowPath::Own(zset::bzmpop_long),
    )),
    CommandSpec::new(
        "bzpopmax",
        "sorted-set",
        "5.0.0",
        "O(log N) with the number of members",
        "Takes the highest-scored member off the first sorted set with a member; blocks until there is one.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT, F::BLOCKING, F::FAST])
    .keys(&[KeySpec::range(1, -2, 1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple(), Arg::double("timeout")])
    .history(&[("6.0.0", "The timeout may have a fraction.")])
    .exec(Exec::Estimated(zset::bzpopmax, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "bzpopmin",
        "sorted-set",
        "5.0.0",
        "O(log N) with the number of members",
        "Takes the lowest-scored member off the first sorted set with a member; blocks until there is one.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT, F::BLOCKING, F::FAST])
    .keys(&[KeySpec::range(1, -2, 1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple(), Arg::double("timeout")])
    .history(&[("6.0.0", "The timeout may have a fraction.")])
    .exec(Exec::Estimated(zset::bzpopmin, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "zadd",
        "sorted-set",
        "1.2.0",
        "O(log N) for each member given",
        "Adds members to a sorted set, or changes their scores.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::oneof("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional().since("3.0.2"),
        Arg::oneof("comparison", &[Arg::word("gt", "GT"), Arg::word("lt", "LT")]).optional().since("6.2.0"),
        Arg::word("change", "CH").optional().since("3.0.2"),
        Arg::word("increment", "INCR").optional().since("3.0.2"),
        Arg::block("score_member", &[Arg::double("score"), Arg::string("member")]).multiple(),
    ])
    .history(&[
        ("2.4.0", "Takes several members."),
        ("3.0.2", "`XX`, `NX`, `CH` and `INCR`."),
        ("6.2.0", "`GT` and `LT`."),
    ])
    .exec(Exec::Estimated(zset::zadd, Cost::Arguments, SlowPath::Own(zset::zadd_long))),
    CommandSpec::new(
        "zcard",
        "sorted-set",
        "1.2.0",
        "O(1)",
        "Returns the number of members of a sorted set.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO])])
    .args(&[Arg::key("key", 0)])
    .exec(Exec::Inline(zset::zcard)),
    CommandSpec::new(
        "zcount",
        "sorted-set",
        "2.0.0",
        "O(log N)",
        "Counts the members with a score in a range.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::double("min"), Arg::double("max")])
    .exec(Exec::Inline(zset::zcount)),
    CommandSpec::new(
        "zdiff",
        "sorted-set",
        "6.2.0",
        "O(N log N) with the number of members of all sources",
        "Returns the members of the first sorted set that none of the other given sorted sets has.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ])
    .exec(Exec::Estimated(zset::zdiff, Cost::Combination(0, of_difference), SlowPath::CopyValues)),
    CommandSpec::new(
        "zdiffstore",
        "sorted-set",
        "6.2.0",
        "O(N log N) with the number of members of all sources",
        "Stores the members of the first sorted set that none of the other given sorted sets has.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::counted(2, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("destination", 0), Arg::integer("numkeys"), Arg::key("key", 1).multiple()])
    .exec(Exec::Estimated(
        zset::zdiffstore,
        Cost::Combination(1, of_difference),
        SlowPath::Own(zset::zdiffstore_long),
    )),
    CommandSpec::new("zincrby", "sorted-set", "1.2.0", "O(log N)", "Adds a number to the score of a member.")
        .flags(&[F::WRITE, F::DENYOOM, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
        .args(&[Arg::key("key", 0), Arg::integer("increment"), Arg::string("member")])
        .exec(Exec::Inline(zset::zincrby)),
    CommandSpec::new(
        "zinter",
        "sorted-set",
        "6.2.0",
        "O(N log N) with the number of members of all sources",
        "Returns the members that all given sorted sets have.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::oneof("aggregate", AGGREGATES).token("AGGREGATE").optional(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ])
    .history(&[("8.8.0", "`AGGREGATE COUNT`.")])
    .exec(Exec::Estimated(zset::zinter, Cost::Combination(0, of_intersection), SlowPath::CopyValues)),
    CommandSpec::new(
        "zintercard",
        "sorted-set",
        "7.0.0",
        "O(N K) with the members of the smallest source and the number of sources",
        "Counts the members that all given sorted sets have.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("limit").token("LIMIT").optional(),
    ])
    .exec(Exec::Estimated(zset::zintercard, Cost::Combination(0, of_intersection), SlowPath::CopyValues)),
    CommandSpec::new(
        "zinterstore",
        "sorted-set",
        "2.0.0",
        "O(N log N) with the number of members of all sources",
        "Stores the members that all given sorted sets have.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::counted(2, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("destination", 0),
        Arg::integer("numkeys"),
        Arg::key("key", 1).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::oneof("aggregate", AGGREGATES).token("AGGREGATE").optional(),
    ])
    .history(&[("8.8.0", "`AGGREGATE COUNT`.")])
    .exec(Exec::Estimated(
        zset::zinterstore,
        Cost::Combination(1, of_intersection),
        SlowPath::Own(zset::zinterstore_long),
    )),
    CommandSpec::new(
        "zlexcount",
        "sorted-set",
        "2.8.9",
        "O(log N)",
        "Counts the members that lie between two texts.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::string("min"), Arg::string("max")])
    .exec(Exec::Inline(zset::zlexcount)),
    CommandSpec::new(
        "zmpop",
        "sorted-set",
        "7.0.0",
        "O(K + M log N) with the number of keys given and of members taken",
        "Takes members off an end of the first sorted set that has any.",
    )
    .flags(&[F::WRITE, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::oneof("where", &[Arg::word("min", "MIN"), Arg::word("max", "MAX")]),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .exec(Exec::Estimated(
        zset::zmpop,
        Cost::InData(zset::zmpop_elements),
        SlowPath::Own(zset::zmpop_long),
    )),
    CommandSpec::new(
        "zmscore",
        "sorted-set",
        "6.2.0",
        "O(N) with the number of members given",
        "Returns the scores of several members.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
    .exec(Exec::Estimated(zset::zmscore, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "zpopmax",
        "sorted-set",
        "5.0.0",
        "O(M log N) with the number of members taken",
        "Takes the members with the highest scores off a sorted set.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional()])
    .exec(Exec::Estimated(
        zset::zpopmax,
        Cost::InDataUnless(pops_one, zset::pop_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "zpopmin",
        "sorted-set",
        "5.0.0",
        "O(M log N) with the number of members taken",
        "Takes the members with the lowest scores off a sorted set.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional()])
    .exec(Exec::Estimated(
        zset::zpopmin,
        Cost::InDataUnless(pops_one, zset::pop_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "zrandmember",
        "sorted-set",
        "6.2.0",
        "O(N) with the number of members returned",
        "Returns random members of a sorted set.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("options", &[Arg::integer("count"), Arg::word("withscores", "WITHSCORES").optional()])
            .optional(),
    ])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(zset::zrandmember, Cost::CountArgument(2), SlowPath::CopyValues)),
    CommandSpec::new(
        "zrange",
        "sorted-set",
        "1.2.0",
        "O(log N + M) with the number of members and of those returned",
        "Returns a range of members, by rank, score or text.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("start"),
        Arg::string("stop"),
        Arg::oneof("sortby", &[Arg::word("byscore", "BYSCORE"), Arg::word("bylex", "BYLEX")])
            .optional()
            .since("6.2.0"),
        Arg::word("rev", "REV").optional().since("6.2.0"),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional()
            .since("6.2.0"),
        Arg::word("withscores", "WITHSCORES").optional(),
    ])
    .history(&[("6.2.0", "`REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")])
    .exec(Exec::Estimated(zset::zrange, Cost::InData(zset::range_elements), SlowPath::CopyValues)),
    CommandSpec::new(
        "zrangebylex",
        "sorted-set",
        "2.8.9",
        "O(log N + M) with the number of members and of those returned",
        "Returns the members that lie between two texts.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("min"),
        Arg::string("max"),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional(),
    ])
    .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
    .exec(Exec::Estimated(
        zset::zrangebylex,
        Cost::InData(zset::range_by_lex_elements),
        SlowPath::CopyValues,
    )),
    CommandSpec::new(
        "zrangebyscore",
        "sorted-set",
        "1.0.5",
        "O(log N + M) with the number of members and of those returned",
        "Returns the members with a score in a range.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::double("min"),
        Arg::double("max"),
        Arg::word("withscores", "WITHSCORES").optional().since("2.0.0"),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional(),
    ])
    .history(&[("2.0.0", "`WITHSCORES`.")])
    .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
    .exec(Exec::Estimated(
        zset::zrangebyscore,
        Cost::InData(zset::range_by_score_elements),
        SlowPath::CopyValues,
    )),
    CommandSpec::new(
        "zrangestore",
        "sorted-set",
        "6.2.0",
        "O(log N + M) with the number of members and of those stored",
        "Stores a range of members of a sorted set.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::one(2, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("dst", 0),
        Arg::key("src", 1),
        Arg::string("min"),
        Arg::string("max"),
        Arg::oneof("sortby", &[Arg::word("byscore", "BYSCORE"), Arg::word("bylex", "BYLEX")]).optional(),
        Arg::word("rev", "REV").optional(),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional(),
    ])
    .exec(Exec::Estimated(
        zset::zrangestore,
        Cost::InData(zset::rangestore_elements),
        SlowPath::Own(zset::zrangestore_long),
    )),
    CommandSpec::new(
        "zrank",
        "sorted-set",
        "2.0.0",
        "O(log N)",
        "Returns how many members come before a member.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::word("withscore", "WITHSCORE").optional().since("7.2.0"),
    ])
    .history(&[("7.2.0", "`WITHSCORE`.")])
    .exec(Exec::Inline(zset::zrank)),
    CommandSpec::new(
        "zrem",
        "sorted-set",
        "1.2.0",
        "O(log N) for each member given",
        "Removes members of a sorted set.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
    .history(&[("2.4.0", "Takes several members.")])
    .exec(Exec::Estimated(zset::zrem, Cost::Arguments, SlowPath::fields(Merge::Sum))),
    CommandSpec::new(
        "zremrangebylex",
        "sorted-set",
        "2.8.9",
        "O(log N + M) with the number of members and of those removed",
        "Removes the members that lie between two texts.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::string("min"), Arg::string("max")])
    .exec(Exec::Estimated(
        zset::zremrangebylex,
        Cost::InData(zset::remove_by_lex_elements),
        SlowPath::Own(zset::zremrangebylex_long),
    )),
    CommandSpec::new(
        "zremrangebyrank",
        "sorted-set",
        "2.0.0",
        "O(log N + M) with the number of members and of those removed",
        "Removes the members in a range of ranks.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")])
    .exec(Exec::Estimated(
        zset::zremrangebyrank,
        Cost::InData(zset::remove_by_rank_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "zremrangebyscore",
        "sorted-set",
        "1.2.0",
        "O(log N + M) with the number of members and of those removed",
        "Removes the members with a score in a range.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::double("min"), Arg::double("max")])
    .exec(Exec::Estimated(
        zset::zremrangebyscore,
        Cost::InData(zset::remove_by_score_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "zrevrange",
        "sorted-set",
        "1.2.0",
        "O(log N + M) with the number of members and of those returned",
        "Returns a range of members by their ranks from the end.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::integer("start"),
        Arg::integer("stop"),
        Arg::word("withscores", "WITHSCORES").optional(),
    ])
    .deprecated("6.2.0", "`ZRANGE` with the `REV` argument")
    .exec(Exec::Estimated(zset::zrevrange, Cost::InData(zset::revrange_elements), SlowPath::CopyValues)),
    CommandSpec::new(
        "zrevrangebylex",
        "sorted-set",
        "2.8.9",
        "O(log N + M) with the number of members and of those returned",
        "Returns the members that lie between two texts, the last member first.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("max"),
        Arg::string("min"),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional(),
    ])
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
    .exec(Exec::Estimated(
        zset::zrevrangebylex,
        Cost::InData(zset::revrange_by_lex_elements),
        SlowPath::CopyValues,
    )),
    CommandSpec::new(
        "zrevrangebyscore",
        "sorted-set",
        "2.2.0",
        "O(log N + M) with the number of members and of those returned",
        "Returns the members with a score in a range, the highest score first.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::double("max"),
        Arg::double("min"),
        Arg::word("withscores", "WITHSCORES").optional(),
        Arg::block("offset_count", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .optional(),
    ])
    .history(&[("2.1.6", "Ends of the range may be excluded.")])
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
    .exec(Exec::Estimated(
        zset::zrevrangebyscore,
        Cost::InData(zset::revrange_by_score_elements),
        SlowPath::CopyValues,
    )),
    CommandSpec::new(
        "zrevrank",
        "sorted-set",
        "2.0.0",
        "O(log N)",
        "Returns how many members come after a member.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::word("withscore", "WITHSCORE").optional().since("7.2.0"),
    ])
    .history(&[("7.2.0", "`WITHSCORE`.")])
    .exec(Exec::Inline(zset::zrevrank)),
    CommandSpec::new(
        "zscan",
        "sorted-set",
        "2.8.0",
        "O(1) a call, O(N) a walk",
        "Walks over the members of a sorted set, a part with each call.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(zset::zscan, Cost::CountOption(3), SlowPath::Own(zset::zscan_long))),
    CommandSpec::new("zscore", "sorted-set", "1.2.0", "O(1)", "Returns the score of a member.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0), Arg::string("member")])
        .exec(Exec::Inline(zset::zscore)),
    CommandSpec::new(
        "zunion",
        "sorted-set",
        "6.2.0",
        "O(N log N) with the number of members of all sources",
        "Returns the members that any of the given sorted sets has.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::oneof("aggregate", AGGREGATES).token("AGGREGATE").optional(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ])
    .history(&[("8.8.0", "`AGGREGATE COUNT`.")])
    .exec(Exec::Estimated(zset::zunion, Cost::InData(zset::source_elements), SlowPath::CopyValues)),
    CommandSpec::new(
        "zunionstore",
        "sorted-set",
        "2.0.0",
        "O(N log N) with the number of members of all sources",
        "Stores the members that any of the given sorted sets has.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::counted(2, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("destination", 0),
        Arg::integer("numkeys"),
        Arg::key("key", 1).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::oneof("aggregate", AGGREGATES).token("AGGREGATE").optional(),
    ])
    .history(&[("8.8.0", "`AGGREGATE COUNT`.")])
    .exec(Exec::Estimated(
        zset::zunionstore,
        Cost::InData(zset::source_elements),
        SlowPath::Own(zset::zunionstore_long),
    )),
];
