//! The rows of group `pubsub`: messages to whoever has subscribed.

use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec, SessionCommand as S};

const SUBSCRIBES: &[F] = &[F::PUBSUB, F::NOSCRIPT, F::LOADING, F::STALE];
const PUBLISHES: &[F] = &[F::PUBSUB, F::LOADING, F::STALE, F::FAST];
const ASKS: &[F] = &[F::PUBSUB, F::LOADING, F::STALE];
/// Shard channels are spread like keys, and are none.
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(1, -1, 1, &[K::NOT_KEY])];

/// Group `pubsub`, by name.
pub(crate) static PUBSUB: &[CommandSpec] = &[
    CommandSpec::new(
        "psubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N patterns, M subscribed by this connection",
        "Subscribes to all channels that match patterns.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::block("pattern", &[Arg::pattern("pattern")]).multiple()])
    .exec(Exec::Session(S::PSubscribe)),
    CommandSpec::new(
        "publish",
        "pubsub",
        "2.0.0",
        "O(W+P), W workers with subscribers, P patterns subscribed to",
        "Sends a message to a channel.",
    )
    .flags(PUBLISHES)
    .args(&[Arg::string("channel"), Arg::string("message")])
    .exec(Exec::Session(S::Publish)),
    CommandSpec::new(
        "pubsub",
        "pubsub",
        "2.8.0",
        "By subcommand",
        "Groups the commands about channels and subscribers.",
    )
    .arity(-2)
    .acl(&["slow"])
    .subcommands(&[
        CommandSpec::sub(
            "channels",
            "pubsub",
            "2.8.0",
            "O(N), N channels",
            "Lists channels with subscribers.",
        )
        .flags(ASKS)
        .args(&[Arg::pattern("pattern").optional()])
        .exec(Exec::Session(S::PubSubChannels)),
        CommandSpec::sub("help", "pubsub", "6.2.0", "O(1)", "Lists the subcommands of PUBSUB.")
            .flags(&[F::LOADING, F::STALE])
            .acl(&["slow"])
            .exec(Exec::Session(S::PubSubHelp)),
        CommandSpec::sub("numpat", "pubsub", "2.8.0", "O(1)", "Counts the patterns that are subscribed to.")
            .flags(ASKS)
            .exec(Exec::Session(S::PubSubNumPat)),
        CommandSpec::sub(
            "numsub",
            "pubsub",
            "2.8.0",
            "O(N), N channels",
            "Counts the subscribers of channels.",
        )
        .flags(ASKS)
        .args(&[Arg::string("channel").optional().multiple()])
        .exec(Exec::Session(S::PubSubNumSub)),
        CommandSpec::sub(
            "shardchannels",
            "pubsub",
            "7.0.0",
            "O(N), N shard channels",
            "Lists shard channels with subscribers.",
        )
        .flags(ASKS)
        .args(&[Arg::pattern("pattern").optional()])
        .exec(Exec::Session(S::PubSubShardChannels)),
        CommandSpec::sub(
            "shardnumsub",
            "pubsub",
            "7.0.0",
            "O(N), N shard channels",
            "Counts the subscribers of shard channels.",
        )
        .flags(ASKS)
        .args(&[Arg::string("shardchannel").optional().multiple()])
        .exec(Exec::Session(S::PubSubShardNumSub)),
    ]),
    CommandSpec::new(
        "punsubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N patterns, M subscribed by this connection",
        "Ends subscriptions to patterns, or to all of them.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::pattern("pattern").optional().multiple()])
    .exec(Exec::Session(S::PUnsubscribe)),
    CommandSpec::new(
        "spublish",
        "pubsub",
        "7.0.0",
        "O(W), W workers with subscribers",
        "Sends a message to a shard channel.",
    )
    .flags(PUBLISHES)
    .keys(&[KeySpec::one(1, &[K::NOT_KEY])])
    .args(&[Arg::string("shardchannel"), Arg::string("message")])
    .exec(Exec::Session(S::SPublish)),
    CommandSpec::new(
        "ssubscribe",
        "pubsub",
        "7.0.0",
        "O(N log M), N shard channels, M subscribed by this connection",
        "Subscribes to shard channels.",
    )
    .flags(SUBSCRIBES)
    .keys(SHARD_CHANNELS)
    .args(&[Arg::string("shardchannel").multiple()])
    .exec(Exec::Session(S::SSubscribe)),
    CommandSpec::new(
        "subscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N channels, M subscribed by this connection",
        "Subscribes to channels.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::string("channel").multiple()])
    .exec(Exec::Session(S::Subscribe)),
    CommandSpec::new(
        "sunsubscribe",
        "pubsub",
        "7.0.0",
        "O(N log M), N shard channels, M subscribed by this connection",
        "Ends subscriptions to shard channels, or to all of them.",
    )
    .flags(SUBSCRIBES)
    .keys(SHARD_CHANNELS)
    .args(&[Arg::string("shardchannel").optional().multiple()])
    .exec(Exec::Session(S::SUnsubscribe)),
    CommandSpec::new(
        "unsubscribe",
        "pubsub",
        "2.0.0",
        "O(N log M), N channels, M subscribed by this connection",
        "Ends subscriptions to channels, or to all of them.",
    )
    .flags(SUBSCRIBES)
    .args(&[Arg::string("channel").optional().multiple()])
    .exec(Exec::Session(S::Unsubscribe)),
];
