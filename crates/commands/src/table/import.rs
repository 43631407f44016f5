//! The rows of group `import`: what `strand import` keeps in the server.

use crate::cost::{Cost, Merge, Slices, SlowPath};
use crate::families::{dataset_versions, import_version};
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// IMPORT.VERSION with the subcommands that are about the data. The engine adds its own.
pub const IMPORT_VERSION: CommandSpec = CommandSpec::new(
    "import.version",
    "import",
    "0.1.0",
    "By subcommand",
    "Groups the commands on imported versions of datasets.",
)
.arity(-2)
.acl(&["slow"])
.subcommands(&[
    CommandSpec::sub(
        "datasets",
        "import",
        "0.1.0",
        "O(N), N datasets",
        "Lists the datasets that have a container and may be read.",
    )
    .flags(&[F::READONLY])
    .exec(Exec::Walk(import_version::datasets)),
    CommandSpec::sub("del", "import", "0.1.0", "O(N), N paths given", "Forgets containers of a dataset.")
        .flags(&[F::WRITE])
        .keys(&[KeySpec::one(2, &[K::RW, K::DELETE])])
        .args(&[Arg::key("dataset", 0), Arg::string("path").multiple()])
        .exec(Exec::Estimated(
            import_version::del,
            Cost::Arguments,
            SlowPath::Slices(Slices { head: 3, step: 1, merge: Merge::Sum, of_system: true }),
        )),
    CommandSpec::sub("get", "import", "0.1.0", "O(1)", "Returns a container of a dataset.")
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("dataset", 0), Arg::string("path")])
        .exec(Exec::Inline(import_version::get)),
    CommandSpec::sub("help", "import", "0.1.0", "O(1)", "Lists the subcommands of IMPORT.VERSION.")
        .flags(&[F::LOADING, F::STALE])
        .exec(Exec::Inline(import_version::help)),
    CommandSpec::sub(
        "list",
        "import",
        "0.1.0",
        "O(N), N containers of the dataset",
        "Lists the paths of a dataset's containers.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("dataset", 0)])
    .exec(Exec::Estimated(import_version::list, Cost::SystemElements, SlowPath::CopyValues)),
    CommandSpec::sub("log", "import", "0.1.0", "O(1)", "Lists the published versions of a dataset.")
        .flags(&[F::READONLY])
        .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("dataset", 0)])
        .exec(Exec::Inline(dataset_versions::log)),
    CommandSpec::sub(
        "publish",
        "import",
        "0.1.0",
        "O(1)",
        "Announces that all documents of a version of a dataset have arrived.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("dataset", 0), Arg::string("version"), Arg::integer("number").token("HOLD").optional()])
    .exec(Exec::Inline(dataset_versions::publish)),
    CommandSpec::sub("set", "import", "0.1.0", "O(1)", "Records a container of a dataset.")
        .flags(&[F::WRITE, F::DENYOOM])
        .keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
        .args(&[
            Arg::key("dataset", 0),
            Arg::string("path"),
            Arg::string("container"),
            Arg::integer("number").token("HOLD").optional(),
        ])
        .exec(Exec::Inline(import_version::set)),
    CommandSpec::sub("wait", "import", "0.1.0", "O(1)", "Waits until a version of a dataset is published.")
        .flags(&[F::READONLY, F::BLOCKING])
        .keys(&[KeySpec::one(2, &[K::RO, K::ACCESS])])
        .args(&[
            Arg::key("dataset", 0),
            Arg::string("version"),
            Arg::word("visible", "VISIBLE"),
            Arg::integer("milliseconds").token("TIMEOUT").optional(),
        ])
        .exec(Exec::Inline(dataset_versions::wait)),
]);
