//! The rows of group `hyperloglog`: estimates of how many different elements were added.

use crate::cost::{Cost, Long, Merge};
use crate::families::hyperloglog;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, KeySpec};

/// Group `hyperloglog`, by name.
pub(crate) static HYPERLOGLOG: &[CommandSpec] = &[
    CommandSpec {
        name: "pfadd",
        arity: -2,
        flags: F::all(&[F::WRITE, F::DENYOOM, F::FAST]),
        acl: &["write", "hyperloglog", "fast"],
        keys: &[KeySpec::one(1, &["RW", "insert"])],
        summary: "Adds elements to a HyperLogLog, creating it if need be.",
        since: "2.8.9",
        group: "hyperloglog",
        complexity: "O(1) for each element",
        args: &[Arg::key("key", 0), Arg::string("element").optional().multiple()],
        handler: Handler::Data(hyperloglog::pfadd),
        cost: Cost::Arguments,
        long: Long::fields(Merge::Most),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "pfcount",
        arity: -2,
        flags: F::READONLY,
        acl: &["read", "hyperloglog", "slow"],
        keys: &[KeySpec {
            notes: "Written when the count of one key is kept in its value",
            ..KeySpec::range(1, -1, 1, &["RW", "access"])
        }],
        summary: "Estimates how many different elements were added to any of several keys.",
        since: "2.8.9",
        group: "hyperloglog",
        complexity: "O(1) for each key, some 10 us",
        args: &[Arg::key("key", 0).multiple()],
        handler: Handler::Data(hyperloglog::pfcount),
        cost: Cost::Sources,
        long: Long::Snapshot,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "pfdebug",
        arity: 3,
        flags: F::all(&[F::WRITE, F::DENYOOM, F::ADMIN]),
        acl: &["write", "hyperloglog", "admin", "slow", "dangerous"],
        keys: &[KeySpec::one(2, &["RW", "access"])],
        summary: "Shows what is in a HyperLogLog; for tests.",
        since: "2.8.9",
        group: "hyperloglog",
        complexity: "O(1), 16,384 registers",
        doc_flags: &["syscmd"],
        args: &[Arg::string("subcommand"), Arg::key("key", 0)],
        handler: Handler::Data(hyperloglog::pfdebug),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "pfmerge",
        arity: -2,
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "hyperloglog", "slow"],
        keys: &[KeySpec::one(1, &["RW", "access", "insert"]), KeySpec::range(2, -1, 1, &["RO", "access"])],
        summary: "Adds to a HyperLogLog what was added to others.",
        since: "2.8.9",
        group: "hyperloglog",
        complexity: "O(1) for each key, some 10 us",
        args: &[Arg::key("destkey", 0), Arg::key("sourcekey", 1).multiple()],
        handler: Handler::Data(hyperloglog::pfmerge),
        cost: Cost::Sources,
        long: Long::Own(hyperloglog::pfmerge_long),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "pfselftest",
        arity: 1,
        flags: F::ADMIN,
        acl: &["hyperloglog", "admin", "slow", "dangerous"],
        summary: "Checks the estimator; for tests.",
        since: "2.8.9",
        group: "hyperloglog",
        complexity: "O(1), 200,000 elements",
        doc_flags: &["syscmd"],
        handler: Handler::Lane(hyperloglog::pfselftest),
        cost: Cost::Budget,
        ..CommandSpec::EMPTY
    },
];
