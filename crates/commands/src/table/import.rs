//! The rows of group import: the state of imported datasets.

use crate::families::import_version;
use crate::spec::{Arg, CommandSpec, Flags, Handler, KeySpec};

/// Since which version of Strand the group exists.
const SINCE: &str = "0.1.0";

/// Group import, by name.
pub(crate) static IMPORT: &[CommandSpec] = &[CommandSpec {
    name: "import.version",
    arity: -2,
    acl: &["slow"],
    summary: "Keeps the version of the datasets imported into this database.",
    since: SINCE,
    group: "import",
    complexity: "Depends on the subcommand",
    subcommands: &[
        CommandSpec {
            name: "del",
            arity: -4,
            flags: Flags::WRITE,
            acl: &["keyspace", "write", "slow"],
            keys: &[KeySpec::one(2, &["RW", "delete"])],
            summary: "Forgets containers of a dataset.",
            since: SINCE,
            group: "import",
            complexity: "O(N) with the number of paths given",
            args: &[Arg::key("dataset", 0), Arg::string("path").multiple()],
            handler: Handler::Data(import_version::del),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "get",
            arity: 4,
            flags: Flags::READONLY,
            acl: &["keyspace", "read", "slow"],
            keys: &[KeySpec::one(2, &["RO", "access"])],
            summary: "Returns a container of a dataset.",
            since: SINCE,
            group: "import",
            complexity: "O(1)",
            args: &[Arg::key("dataset", 0), Arg::string("path")],
            handler: Handler::Data(import_version::get),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "help",
            arity: 2,
            flags: Flags::all(&[Flags::LOADING, Flags::STALE]),
            acl: &["keyspace", "slow"],
            summary: "Lists the subcommands of IMPORT.VERSION.",
            since: SINCE,
            group: "import",
            complexity: "O(1)",
            handler: Handler::Data(import_version::help),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "list",
            arity: 3,
            flags: Flags::READONLY,
            acl: &["keyspace", "read", "slow"],
            keys: &[KeySpec::one(2, &["RO", "access"])],
            summary: "Lists the paths of a dataset that have a container.",
            since: SINCE,
            group: "import",
            complexity: "O(N) with the number of containers",
            tips: &["nondeterministic_output_order"],
            args: &[Arg::key("dataset", 0)],
            handler: Handler::Data(import_version::list),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "set",
            arity: 5,
            flags: Flags::all(&[Flags::WRITE, Flags::DENYOOM]),
            acl: &["keyspace", "write", "slow"],
            keys: &[KeySpec::one(2, &["RW", "update"])],
            summary: "Records a container of a dataset.",
            since: SINCE,
            group: "import",
            complexity: "O(1)",
            args: &[Arg::key("dataset", 0), Arg::string("path"), Arg::string("container")],
            handler: Handler::Data(import_version::set),
            ..CommandSpec::EMPTY
        },
    ],
    handler: Handler::Container,
    ..CommandSpec::EMPTY
}];
