//! The rows of group `hyperloglog`: estimates of how many different elements were added.

use crate::cost::{Cost, Merge, SlowPath};
use crate::families::hyperloglog;
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// Group `hyperloglog`, by name.
pub(crate) const HYPERLOGLOG: &[CommandSpec] = &[
    CommandSpec::new(
        "pfadd",
        "hyperloglog",
        "2.8.9",
        "O(1) for each element",
        "Adds elements to a HyperLogLog. Creates the HyperLogLog if the key does not exist.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("element").optional().multiple()])
    .exec(Exec::Estimated(hyperloglog::pfadd, Cost::Arguments, SlowPath::fields(Merge::Max))),
    CommandSpec::new(
        "pfcount",
        "hyperloglog",
        "2.8.9",
        "O(1) for each key, some 10 us",
        "Estimates how many different elements were added to any of several keys.",
    )
    .flags(&[F::READONLY, F::MAY_REPLICATE])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RW, K::ACCESS])
        .notes("Written when the count of one key is kept in its value")])
    .args(&[Arg::key("key", 0).multiple()])
    .exec(Exec::Estimated(hyperloglog::pfcount, Cost::Sources, SlowPath::CopyValues)),
    CommandSpec::new(
        "pfdebug",
        "hyperloglog",
        "2.8.9",
        "O(1), 16,384 registers",
        "Returns the internal data of a HyperLogLog; for tests.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::ADMIN])
    .keys(&[KeySpec::one(2, &[K::RW, K::ACCESS])])
    .args(&[Arg::string("subcommand"), Arg::key("key", 0)])
    .doc_flags(&["syscmd"])
    .exec(Exec::Inline(hyperloglog::pfdebug)),
    CommandSpec::new(
        "pfmerge",
        "hyperloglog",
        "2.8.9",
        "O(1) for each key, some 10 us",
        "Adds the elements of other HyperLogLogs to a HyperLogLog.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::INSERT]), KeySpec::range(2, -1, 1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("destkey", 0), Arg::key("sourcekey", 1).multiple()])
    .arity(-2)
    .exec(Exec::Estimated(hyperloglog::pfmerge, Cost::Sources, SlowPath::Own(hyperloglog::pfmerge_long))),
    CommandSpec::new(
        "pfselftest",
        "hyperloglog",
        "2.8.9",
        "O(1), 200,000 elements",
        "Checks the estimator; for tests.",
    )
    .flags(&[F::ADMIN])
    .doc_flags(&["syscmd"])
    .exec(Exec::Heavy(hyperloglog::pfselftest)),
];
