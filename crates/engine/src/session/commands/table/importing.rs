//! The rows of IMPORT.STATUS and of IMPORT.VERSION. To the subcommands about the data, IMPORT.VERSION gets the
//! subcommands about the importing connection.

use crate::session::session_command::SessionCommand;
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};
use strand_commands::{rows, table};

/// Group `import`: IMPORT.VERSION has all its subcommands here.
pub(super) const IMPORT: &[CommandSpec] = &[
    CommandSpec::new(
        "import.status",
        "import",
        "0.1.0",
        "O(N*log(M)), N datasets named and M connections that import; O(M) without names",
        "Returns the progress of the imports that run now.",
    )
    .flags(&[F::READONLY, F::NOSCRIPT])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("dataset", 0).multiple().optional()])
    .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.import_status(args)))),
    table::IMPORT_VERSION.subcommands(rows!(&[table::IMPORT_VERSION.subcommands, OWN, strand_search::KEEP])),
];

/// The subcommands about the connection, by name.
const OWN: &[CommandSpec] = &[
    CommandSpec::sub(
        "hold",
        "import",
        "0.1.0",
        "O(log(N)), N connections that import",
        "Keeps other importers off a dataset while this connection exists.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT])
    .keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("dataset", 0)])
    .exec(Exec::Session(&SessionCommand::at_once(|session, args, now| {
        session.import_version_hold(args, now)
    }))),
    CommandSpec::sub(
        "report",
        "import",
        "0.1.0",
        "O(log(N)+M), N connections that import, M words told",
        "Records the progress of the import of this connection.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT])
    .keys(&[KeySpec::one(2, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("dataset", 0), Arg::string("name").multiple(), Arg::string("value").multiple()])
    .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.import_version_report(args)))),
];
