//! The rows of group `set`: members without order.

use crate::cost::{Cost, Merge, SlowPath, of_intersection};
use crate::families::set;
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// Group `set`, by name.
pub(crate) const SET: &[CommandSpec] = &[
    CommandSpec::new(
        "sadd",
        "set",
        "1.0.0",
        "O(1) for each member",
        "Adds members to a set. Creates the set if the key does not exist.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
    .history(&[("2.4.0", "Several members.")])
    .exec(Exec::Estimated(set::sadd, Cost::Arguments, SlowPath::fields(Merge::Sum))),
    CommandSpec::new("scard", "set", "1.0.0", "O(1)", "Returns how many members a set has.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(set::scard)),
    combination("sdiff", OF_ALL, "Returns the members of a set that none of the other given sets has.").exec(
        Exec::Estimated(set::sdiff, Cost::Combination(0, set::difference_elements), SlowPath::CopyValues),
    ),
    storing("sdiffstore", OF_ALL, "Stores the members of a set that none of the other given sets has.").exec(
        Exec::Estimated(
            set::sdiffstore,
            Cost::Combination(1, set::difference_elements),
            SlowPath::Own(set::sdiffstore_long),
        ),
    ),
    combination("sinter", OF_SMALLEST, "Returns the members that all given sets have.")
        .exec(Exec::Estimated(set::sinter, Cost::Combination(0, of_intersection), SlowPath::CopyValues)),
    CommandSpec::new(
        "sintercard",
        "set",
        "7.0.0",
        OF_SMALLEST,
        "Counts the members that all given sets have.",
    )
    .flags(&[F::READONLY, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("limit").token("LIMIT").optional(),
    ])
    .exec(Exec::Estimated(set::sintercard, Cost::Combination(0, of_intersection), SlowPath::CopyValues)),
    storing("sinterstore", OF_SMALLEST, "Stores the members that all given sets have.")
        .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE]), KeySpec::range(2, -1, 1, &[K::RO, K::ACCESS])])
        .exec(Exec::Estimated(
            set::sinterstore,
            Cost::Combination(1, of_intersection),
            SlowPath::Own(set::sinterstore_long),
        )),
    CommandSpec::new("sismember", "set", "1.0.0", "O(1)", "Returns whether a set has a member.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0), Arg::string("member")])
        .exec(Exec::Inline(set::sismember)),
    CommandSpec::new("smembers", "set", "1.0.0", "O(N), N members", "Returns every member of a set.")
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0)])
        .tips(&["nondeterministic_output_order"])
        .exec(Exec::Estimated(set::smembers, Cost::Elements, SlowPath::CopyValues)),
    CommandSpec::new(
        "smismember",
        "set",
        "6.2.0",
        "O(1) for each member",
        "Returns for each of several members whether a set has it.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
    .exec(Exec::Estimated(set::smismember, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new("smove", "set", "1.0.0", "O(1)", "Moves a member from one set to another.")
        .flags(&[F::WRITE, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
        .args(&[Arg::key("source", 0), Arg::key("destination", 1), Arg::string("member")])
        .exec(Exec::Inline(set::smove)),
    CommandSpec::new(
        "spop",
        "set",
        "1.0.0",
        "O(1) for each member",
        "Removes random members of a set and returns them.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional().since("3.2.0")])
    .history(&[("3.2.0", "`count`.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(set::spop, Cost::CountArgument(2), SlowPath::Own(set::spop_long))),
    CommandSpec::new(
        "srandmember",
        "set",
        "1.0.0",
        "O(1) for each member",
        "Returns random members of a set.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional().since("2.6.0")])
    .history(&[("2.6.0", "`count`.")])
    .tips(&["nondeterministic_output"])
    .exec(Exec::Estimated(set::srandmember, Cost::CountArgument(2), SlowPath::CopyValues)),
    CommandSpec::new("srem", "set", "1.0.0", "O(1) for each member", "Removes members from a set.")
        .flags(&[F::WRITE, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
        .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
        .history(&[("2.4.0", "Several members.")])
        .exec(Exec::Estimated(set::srem, Cost::Arguments, SlowPath::fields(Merge::Sum))),
    CommandSpec::new(
        "sscan",
        "set",
        "2.8.0",
        "O(1) for each call, O(N) for a whole walk",
        "Walks over the members of a set, a part with each call.",
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
    .exec(Exec::Estimated(set::sscan, Cost::CountOption(3), SlowPath::Own(set::sscan_long))),
    combination("sunion", OF_ALL, "Returns the members that any of the given sets has.")
        .exec(Exec::Estimated(set::sunion, Cost::Sources, SlowPath::CopyValues)),
    storing("sunionstore", OF_ALL, "Stores the members that any of the given sets has.")
        .exec(Exec::Estimated(set::sunionstore, Cost::Sources, SlowPath::Own(set::sunionstore_long))),
];

const OF_ALL: &str = "O(N), N members of all sets";
const OF_SMALLEST: &str = "O(N*M), N members of the smallest set, M sets";

/// A row of SINTER, SUNION or SDIFF, which are alike.
const fn combination(name: &'static str, complexity: &'static str, summary: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::range(1, -1, 1, &[K::RO, K::ACCESS])];
    const ARGS: &[Arg] = &[Arg::key("key", 0).multiple()];
    CommandSpec::new(name, "set", "1.0.0", complexity, summary)
        .flags(&[F::READONLY])
        .keys(KEYS)
        .args(ARGS)
        .tips(&["nondeterministic_output_order"])
}

/// A row of SINTERSTORE, SUNIONSTORE or SDIFFSTORE, which are alike.
const fn storing(name: &'static str, complexity: &'static str, summary: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] =
        &[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::range(2, -1, 1, &[K::RO, K::ACCESS])];
    const ARGS: &[Arg] = &[Arg::key("destination", 0), Arg::key("key", 1).multiple()];
    CommandSpec::new(name, "set", "1.0.0", complexity, summary)
        .flags(&[F::WRITE, F::DENYOOM])
        .keys(KEYS)
        .args(ARGS)
}
