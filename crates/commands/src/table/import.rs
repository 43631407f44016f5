//! The rows of group `import`: what `strand import` keeps in the server.

use crate::cost::{Cost, Long, Merge, Slices};
use crate::families::import_version;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, KeySpec};

/// Group `import`, by name.
pub(crate) static IMPORT: &[CommandSpec] = &[CommandSpec {
    name: "import.version",
    arity: -2,
    acl: &["slow"],
    summary: "Groups the commands on imported versions of datasets.",
    since: "0.1.0",
    group: "import",
    complexity: "By subcommand",
    subcommands: &[
        CommandSpec {
            name: "datasets",
            arity: 2,
            flags: F::READONLY,
            acl: &["read", "slow", "import"],
            summary: "Lists the datasets that have a container and may be read.",
            since: "0.1.0",
            group: "import",
            complexity: "O(N), N datasets",
            handler: Handler::Lane(import_version::datasets),
            cost: Cost::Keyspace,
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "del",
            arity: -4,
            flags: F::WRITE,
            acl: &["write", "slow", "import"],
            keys: &[KeySpec::one(2, &["RW", "delete"])],
            summary: "Forgets containers of a dataset.",
            since: "0.1.0",
            group: "import",
            complexity: "O(N), N paths given",
            args: &[Arg::key("dataset", 0), Arg::string("path").multiple()],
            handler: Handler::Data(import_version::del),
            cost: Cost::Arguments,
            long: Long::Slices(Slices { head: 3, step: 1, merge: Merge::Sum, one_key: true, anew: false }),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "get",
            arity: 4,
            flags: F::READONLY,
            acl: &["read", "slow", "import"],
            keys: &[KeySpec::one(2, &["RO", "access"])],
            summary: "Reads a container of a dataset.",
            since: "0.1.0",
            group: "import",
            complexity: "O(1)",
            args: &[Arg::key("dataset", 0), Arg::string("path")],
            handler: Handler::Data(import_version::get),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "help",
            arity: 2,
            flags: F::all(&[F::LOADING, F::STALE]),
            acl: &["slow", "import"],
            summary: "Lists the subcommands of IMPORT.VERSION.",
            since: "0.1.0",
            group: "import",
            complexity: "O(1)",
            handler: Handler::Data(import_version::help),
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "list",
            arity: 3,
            flags: F::READONLY,
            acl: &["read", "slow", "import"],
            keys: &[KeySpec::one(2, &["RO", "access"])],
            summary: "Lists the paths of a dataset's containers.",
            since: "0.1.0",
            group: "import",
            complexity: "O(N), N containers of the dataset",
            args: &[Arg::key("dataset", 0)],
            handler: Handler::Data(import_version::list),
            cost: Cost::SystemElements,
            long: Long::Snapshot,
            ..CommandSpec::EMPTY
        },
        CommandSpec {
            name: "set",
            arity: 5,
            flags: F::all(&[F::WRITE, F::DENYOOM]),
            acl: &["write", "slow", "import"],
            keys: &[KeySpec::one(2, &["RW", "update"])],
            summary: "Records a container of a dataset.",
            since: "0.1.0",
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
