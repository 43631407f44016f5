//! The rows of WAIT and WAITAOF.

use crate::session::session_command::SessionCommand;
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F};

/// The rows, by name. They belong to group `generic`.
pub(super) const WAIT: &[CommandSpec] = &[
    CommandSpec::new(
        "wait",
        "generic",
        "3.0.0",
        "O(1)",
        "Waits until this number of replicas have all writes that clients have made so far.",
    )
    .flags(&[F::NOSCRIPT])
    .acl(&["slow", "connection"])
    .args(&[Arg::integer("numreplicas"), Arg::integer("timeout")])
    .tips(&["request_policy:all_shards", "response_policy:agg_min"])
    .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.wait(args)))),
    CommandSpec::new(
        "waitaof",
        "generic",
        "7.2.0",
        "O(1)",
        "Waits until all writes that clients have made so far are in the append-only files of this server and of this number of replicas.",
    )
    .flags(&[F::NOSCRIPT])
    .acl(&["slow", "connection"])
    .args(&[Arg::integer("numlocal"), Arg::integer("numreplicas"), Arg::integer("timeout")])
    .tips(&["request_policy:all_shards", "response_policy:agg_min"])
    .exec(Exec::Session(&SessionCommand::at_once(|session, args, _| session.wait_aof(args)))),
];
