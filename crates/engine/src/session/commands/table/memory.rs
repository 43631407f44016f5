//! The rows of MEMORY: the subcommands about the whole server, added to the subcommands about the data.

use super::super::memory;
use crate::session::session_command::{InMulti, InScripts, SessionCommand};
use strand_commands::spec::{CommandSpec, Exec};
use strand_commands::{rows, table};

/// The container with all its subcommands.
pub(super) const MEMORY: &[CommandSpec] =
    &[table::MEMORY.subcommands(rows!(&[table::MEMORY.subcommands, OWN]))];

/// The subcommands about the whole server, by name.
const OWN: &[CommandSpec] = &[
    CommandSpec::sub("doctor", "server", "4.0.0", "O(N), N clients", "Returns remarks about the memory.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, _, _, reply| memory::doctor(engine, reply))
                .in_multi(InMulti::AfterUnlock)
                .in_scripts(InScripts::Detached),
        )),
    CommandSpec::sub(
        "malloc-stats",
        "server",
        "4.0.0",
        "By the allocator's arenas",
        "Returns the allocator's own report.",
    )
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .exec(Exec::Session(
        &SessionCommand::detached(|engine, _, _, reply| memory::malloc_stats(engine, reply))
            .in_multi(InMulti::AfterUnlock)
            .in_scripts(InScripts::Detached),
    )),
    CommandSpec::sub(
        "purge",
        "server",
        "4.0.0",
        "By the pages freed",
        "Gives freed pages back to the system at once.",
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
    .exec(Exec::Session(
        &SessionCommand::detached(|engine, _, _, reply| memory::purge(engine, reply))
            .in_multi(InMulti::AfterUnlock)
            .in_scripts(InScripts::Detached),
    )),
    CommandSpec::sub("stats", "server", "4.0.0", "O(N), N clients", "Returns what memory is used for.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .exec(Exec::Session(
            &SessionCommand::detached(|engine, _, _, reply| memory::stats(engine, reply))
                .locks_shards(|_| true)
                .in_multi(InMulti::AfterUnlock),
        )),
];
