//! The rows of group `transactions`.

use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec, SessionCommand as S};

/// Group `transactions`, by name.
pub(crate) static TRANSACTIONS: &[CommandSpec] = &[
    CommandSpec::new(
        "discard",
        "transactions",
        "2.0.0",
        "O(N), N queued commands",
        "Forgets the queued commands.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(S::Discard)),
    CommandSpec::new(
        "exec",
        "transactions",
        "1.2.0",
        "That of the queued commands",
        "Runs the queued commands, all at one moment.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::SKIP_SLOWLOG])
    .exec(Exec::Session(S::Exec)),
    CommandSpec::new(
        "multi",
        "transactions",
        "1.2.0",
        "O(1)",
        "Begins a transaction: commands are queued from here on.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(S::Multi)),
    CommandSpec::new(
        "unwatch",
        "transactions",
        "2.2.0",
        "O(1) for each watched key",
        "Watches no key any more.",
    )
    .flags(&[F::NOSCRIPT, F::LOADING, F::STALE, F::FAST, F::ALLOW_BUSY])
    .exec(Exec::Session(S::Unwatch)),
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
    .exec(Exec::Session(S::Watch)),
];
