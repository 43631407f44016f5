//! The rows of group `transactions`.

use crate::session::session_command::{CommandKind, InFiles, InMulti, SessionCommand};
use strand_commands::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// Group `transactions`, by name.
pub(super) const TRANSACTIONS: &[CommandSpec] = &[
    CommandSpec::new(
        "discard",
        "transactions",
        "2.0.0",
        "O(N), N queued commands",
        "Forgets the queued commands.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, _| session.discard()).in_multi(InMulti::Immediate),
    )),
    CommandSpec::new(
        "exec",
        "transactions",
        "1.2.0",
        "That of the queued commands",
        "Runs the queued commands, all at one moment.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::SKIP_SLOWLOG])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, now| session.exec(now))
            .kind(CommandKind::Exec)
            .in_multi(InMulti::Immediate),
    )),
    CommandSpec::new(
        "multi",
        "transactions",
        "1.2.0",
        "O(1)",
        "Begins a transaction: later commands are queued.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, _| session.multi())
            .kind(CommandKind::Multi)
            .in_multi(InMulti::Immediate),
    )),
    CommandSpec::new(
        "unwatch",
        "transactions",
        "2.2.0",
        "O(1) for each watched key",
        "Ends the watch of all keys.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, _, _| session.unwatch()).in_files(InFiles::ChangesNothing),
    )),
    CommandSpec::new(
        "watch",
        "transactions",
        "2.2.0",
        "O(1) for each key",
        "Makes the next EXEC run nothing if one of the keys changes before it.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .keys(&[KeySpec::range(1, -1, 1, &[K::RO])])
    .args(&[Arg::key("key", 0).multiple()])
    .exec(Exec::Session(
        &SessionCommand::at_once(|session, args, now| session.watch(args, now))
            .kind(CommandKind::Watch)
            .in_multi(InMulti::Immediate)
            .in_files(InFiles::ChangesNothing),
    )),
];
